# SPDX-License-Identifier: LGPL-2.1-or-later
"""Alarms: one bad reading raises nothing, one good reading clears nothing."""
from typing import List, Optional

import pytest

from perfguard.watch.types import Alarm

Y, N, UNKNOWN = True, False, None


@pytest.mark.parametrize('readings, raised', [
    ([Y], False), ([Y, Y], True), ([Y, N, Y], False), ([Y, UNKNOWN, Y], True),
    ([Y, Y, N], True), ([Y, Y, N, N], True), ([Y, Y, N, N, N], False),
    ([Y, Y, N, N, Y, N, N], True), ([Y, Y, N, N, UNKNOWN, N], False)])
def test_an_alarm_of_ten_seconds_that_clears_after_fifteen(readings: List[Optional[bool]],
                                                           raised: bool) -> None:
    alarm = Alarm()
    for number, holds in enumerate(readings, 1):
        alarm.update(100.0 + 5.0 * number, 5.0, holds, 10.0, 15.0)
    assert alarm.raised == raised


def test_since_when_the_condition_holds() -> None:
    alarm = Alarm()
    for now in (105.0, 110.0):
        alarm.update(now, 5.0, True, 10.0, 15.0)
    assert alarm.since == 100.0
    for now in (115.0, 120.0, 125.0):
        alarm.update(now, 5.0, False, 10.0, 15.0)
    assert alarm.since == 0.0
