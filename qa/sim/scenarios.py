# SPDX-License-Identifier: LGPL-2.1-or-later
"""What happens besides the expansion: load, neighbours, slow and failing OSDs."""

import math
from typing import Callable, Dict

from .cluster import Model

Scenario = Callable[[Model, float], None]

#: Seconds between two changes of a load that varies.
BEAT = 10.0


def calm(model: Model, begin: float) -> None:
    """The load of clients stays as it is."""


def noise(model: Model, begin: float) -> None:
    """The load wanders, lognormal with sigma 0.3 and a memory of about two minutes."""
    state = [0.0]

    def beat() -> None:
        state[0] = 0.92 * state[0] + 0.3 * math.sqrt(1 - 0.92 ** 2) * model.random.normal()
        model.load = math.exp(state[0])
        model.at(model.now + BEAT, beat)

    model.at(begin, beat)


def diurnal(model: Model, begin: float) -> None:
    """The load rises to twice what it was and falls again, in a day of 20 minutes."""

    def beat() -> None:
        model.load = 1.5 - 0.5 * math.cos(2 * math.pi * (model.now - begin) / 1200.0)
        model.at(model.now + BEAT, beat)

    model.at(begin, beat)


def neighbour(model: Model, begin: float) -> None:
    """Others use the machines of a quarter of the OSDs every other minute: all takes 1.6 times as
    long there."""
    quarter = slice(0, max(1, model.tree.osds // 4))

    def turn(on: bool) -> None:
        model.slowness[quarter] = 1.6 if on else 1.0
        model.at(model.now + 60.0, lambda: turn(not on))

    model.at(begin + 30.0, lambda: turn(True))


def slow_osd(model: Model, begin: float) -> None:
    """One OSD takes ten times as long, from a minute on."""
    def slow() -> None:
        model.slowness[1] = 10.0

    model.at(begin + 60.0, slow)


def slow_host(model: Model, begin: float) -> None:
    """The network of one host is bad: all its OSDs take four times as long, from a minute on."""
    def slow() -> None:
        per_host = model.tree.osds_per_host
        model.slowness[per_host:2 * per_host] = 4.0

    model.at(begin + 60.0, slow)


def failure(model: Model, begin: float) -> None:
    """An OSD fails after two minutes, if no other one is down, and is back three minutes later."""
    def fail() -> None:
        if not model.down:
            model.fail(2)
            model.at(model.now + 180.0, lambda: model.revive(2))

    model.at(begin + 120.0, fail)


SCENARIOS: Dict[str, Scenario] = {each.__name__: each for each in (
    calm, noise, diurnal, neighbour, slow_osd, slow_host, failure)}
