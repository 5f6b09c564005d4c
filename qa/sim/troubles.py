# SPDX-License-Identifier: LGPL-2.1-or-later
"""What goes wrong during a campaign, and what operators do: drawn by a seed, or by Hypothesis."""

import errno
import functools
import itertools
from dataclasses import dataclass
from typing import Callable, Dict, List, Sequence, Tuple

import numpy as np

from perfguard.errors import Refused
from perfguard.rebalance.requests import Request

from .driver import Driver

#: Kinds, and how often a seed draws each of them.
KINDS: Dict[str, float] = {'down': 2.0, 'dead': 1.0, 'out': 1.0, 'failover': 2.0, 'pause': 1.0,
                           'abort': 1.0, 'flag': 1.0, 'upmap': 1.0, 'load': 1.0}
#: Flags that operators set.
FLAGS = ('norebalance', 'nobackfill', 'noout')
#: Mean time between two troubles in seconds.
PAUSE_SECONDS = 60.0
#: Seconds after which an operator starts a campaign that waits for that.
PATIENCE_SECONDS = 30.0
#: Seconds after which they repeat an order.
AGAIN_SECONDS = 5.0


@dataclass(frozen=True)
class Trouble:
    """One fault or order, and its end."""
    #: Seconds after the one before.
    after: float
    kind: str
    #: Chooses the OSD, the flag or the PG.
    number: int
    #: Seconds until it is over.
    lasts: float


def troubles(seed: int, count: int) -> List[Trouble]:
    random = np.random.default_rng([seed, count])
    shares = np.array(list(KINDS.values())) / sum(KINDS.values())
    return [Trouble(float(random.exponential(PAUSE_SECONDS)),
                    str(random.choice(list(KINDS), p=shares)), int(random.integers(1 << 16)),
                    float(random.exponential(PAUSE_SECONDS))) for _ in range(count)]


class Troublemaker:
    """Causes the troubles one after the other, and ends each of them; between two turns."""

    def __init__(self, driver: Driver, found: Sequence[Trouble]) -> None:
        self._driver, self._cluster, self._model = driver, driver.cluster, driver.model
        self._due: List[Tuple[float, int, Callable[[], None]]] = []
        self._numbers = itertools.count()
        self._unstarted = time = self._model.now
        for each in found:
            time += each.after
            self._at(time, functools.partial(self._begin, each))

    def _at(self, time: float, what: Callable[[], None]) -> None:
        self._due.append((time, next(self._numbers), what))
        self._due.sort()

    @property
    def over(self) -> bool:
        return not self._due

    def work(self) -> None:
        """What is due by now."""
        while self._due and self._due[0][0] <= self._model.now:
            self._due.pop(0)[2]()
        self._start_again()

    def _start_again(self) -> None:
        """Operators look at campaigns that wait for them: PGs cannot be pinned where an OSD is out,
        or the campaign was aborted."""
        phase, now = self._driver.phase, self._model.now
        verb = {'PINNED': 'start', 'ABORTED': 'resume'}.get(phase, '')
        if not verb:
            self._unstarted = now
        elif now - self._unstarted > PATIENCE_SECONDS:
            self.order(Request(verb))
            self._unstarted = now

    def order(self, request: Request) -> None:
        try:
            self._driver.loop.request(request)
        except Refused as refused:
            if refused.errno == errno.EAGAIN:  # another mgr has just become active
                self._at(self._model.now + AGAIN_SECONDS, lambda: self.order(request))

    def _begin(self, each: Trouble) -> None:
        end = getattr(self, '_' + each.kind)(each)
        if end is not None:
            self._at(self._model.now + each.lasts, end)

    def _osd(self, each: Trouble) -> int:
        return each.number % self._model.tree.osds

    def _down(self, each: Trouble) -> Callable[[], None]:
        osd, model = self._osd(each), self._model
        if model.down:
            return lambda: None  # more than one could take the last copies of a PG
        model.fail(osd)
        return lambda: model.revive(osd) if osd in model.down else None

    def _dead(self, each: Trouble) -> Callable[[], None]:
        """Down, and out a moment later, until it is replaced."""
        osd, model = self._osd(each), self._model
        if model.down or model.out:
            return lambda: None
        model.fail(osd)
        self._at(model.now + each.lasts / 4,
                 lambda: self._cluster.set_out(osd, True) if osd in model.down else None)

        def back() -> None:
            model.revive(osd)
            if osd in model.out:
                self._cluster.set_out(osd, False)
        return back

    def _out(self, each: Trouble) -> Callable[[], None]:
        osd, model = self._osd(each), self._model
        if model.out or model.down:
            return lambda: None
        self._cluster.set_out(osd, True)
        return lambda: self._cluster.set_out(osd, False)

    def _failover(self, each: Trouble) -> None:
        self._driver.fail_over(min(each.lasts, 30.0))

    def _pause(self, each: Trouble) -> Callable[[], None]:
        self.order(Request('pause'))
        return lambda: self.order(Request('resume'))

    def _abort(self, each: Trouble) -> None:
        self.order(Request('abort'))
        self._cluster.balanced_anew = True

    def _flag(self, each: Trouble) -> Callable[[], None]:
        """An operator sets a flag; flags that perfguard has set are left alone."""
        flag, model = FLAGS[each.number % len(FLAGS)], self._model
        if flag in model.flags:
            return lambda: None
        model.set_flag(flag, True)
        model.epoch += 1

        def clear() -> None:
            model.set_flag(flag, False)
            model.epoch += 1
        return clear

    def _upmap(self, each: Trouble) -> None:
        """An operator removes the upmap of one PG: it moves."""
        entries = sorted(self._model.entries)
        if entries:
            pg = entries[each.number % len(entries)]
            self._model.forced.add(pg)
            self._cluster.remove_entry(pg)

    def _load(self, each: Trouble) -> Callable[[], None]:
        self._model.load = 0.5 + each.number % 4 * 0.5
        return lambda: setattr(self._model, 'load', 1.0)
