# SPDX-License-Identifier: LGPL-2.1-or-later
"""The mgr dies before writes and commands of a rescue; the next one goes on.

PERFGUARD_CRASHES=1 tries every instant.
"""
import os
import random
from typing import List, Optional

import pytest

from perfguard.store import Store

from ..fakes.cluster import Crash
from ..fakes.driver import Driver
from .test_rescue import FULL, Hurt, hurt, upmaps

ALL = bool(os.environ.get('PERFGUARD_CRASHES'))
#: Instants of each story in the quick tier.
SAMPLE = 6


def chosen(steps: int) -> List[int]:
    """Numbers of writes and commands."""
    instants = range(1, steps + 1)
    return list(instants) if ALL else sorted(random.sample(instants, SAMPLE))


def arm(driver: Driver, at: Optional[int]) -> None:
    fault = driver.cluster.fault
    fault.count, fault.at = 0, at


def turn(driver: Driver) -> None:
    try:
        driver.turn()
    except Crash:
        driver.restart()
        driver.cluster.tick()


def rescued(at: Optional[int] = None) -> Hurt:
    """PGs are led to OSDs with room, and back."""
    driver = hurt()
    arm(driver, at)
    for _ in range(60):
        turn(driver)
    assert not driver.cluster.toofull() and len(upmaps(driver)) == 6, at
    driver.cluster.fullness.clear()
    driver.cluster.used[FULL] = 1 << 30
    for _ in range(250):
        turn(driver)
        if not upmaps(driver) and driver.cluster.clean():
            break
    for _ in range(5):
        turn(driver)
    return driver


@pytest.mark.timeout(1800)
def test_a_rescue_outlives_the_mgr() -> None:
    steps = rescued().cluster.fault.count
    for at in chosen(steps):
        driver = rescued(at)
        assert upmaps(driver) == {} and driver.cluster.clean(), at
        assert Store(driver.kv).get('rescues') is None and not driver.loop.published.ledger.rows, at
        assert driver.cluster.fault.at is None, 'no such step'
