# SPDX-License-Identifier: LGPL-2.1-or-later
"""Verdicts come later, from a thread of their own."""
import time
from typing import List

import pytest

from perfguard.probe import judge
from perfguard.probe.baseline import Regression
from perfguard.probe.judge import Judge, Verdict
from perfguard.probe.records import RunRecord
from perfguard.probe.types import Target


def record(run: int) -> RunRecord:
    return RunRecord(run, 'done', 'latency', Target('cluster'), 0.0)


def verdicts(asked: Judge, number: int) -> List[Verdict]:
    """Waits for so many; fewer where they do not come."""
    found: List[Verdict] = []
    deadline = time.monotonic() + 10
    while len(found) < number and time.monotonic() < deadline:
        found += asked.verdicts()
        time.sleep(0.005)
    return found


def test_verdicts(monkeypatch: pytest.MonkeyPatch) -> None:
    slower = Regression(1, 3, 'cluster:x3', ('latency write: 0.5 times',))
    monkeypatch.setattr(judge, 'regression',
                        lambda base, run: slower if run.id == 3 else None)
    asked = Judge()
    assert asked.verdicts() == []
    asked.ask(record(1), record(2))
    assert verdicts(asked, 1) == [Verdict(1, 2, None)]
    asked.ask(record(1), record(3))
    assert verdicts(asked, 1) == [Verdict(1, 3, slower)]
    assert asked.verdicts() == []


def test_one_that_cannot_be_judged_does_not_keep_the_next_from_it(
        monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    def judged(base: RunRecord, run: RunRecord) -> None:
        if run.id == 2:
            raise ValueError('odd')

    monkeypatch.setattr(judge, 'regression', judged)
    asked = Judge()
    asked.ask(record(1), record(2))
    asked.ask(record(1), record(4))
    assert verdicts(asked, 1) == [Verdict(1, 4, None)]
    assert 'cannot compare probe 2 with probe 1' in caplog.text
