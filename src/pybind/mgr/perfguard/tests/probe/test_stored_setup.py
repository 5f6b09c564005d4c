# SPDX-License-Identifier: LGPL-2.1-or-later
"""What operators set up of probes survives a failover."""
import errno
import json
from dataclasses import replace
from typing import Any, List, Sequence

import pytest

from perfguard.cluster.types import Document
from perfguard.codec import decode, encode
from perfguard.errors import Refused
from perfguard.events import Event
from perfguard.probe.orders import RunOrder
from perfguard.probe.records import RunHistory, RunRecord
from perfguard.probe.schedules import (Baselines, ProbeSettings, Regression, StoredSettings,
                                       schedule_of)

from ..fakes.driver import Inline
from ..fakes.probe_records import LATENCY, run, step


def test_settings_both_ways() -> None:
    night = schedule_of('night', RunOrder(profile='quick'),
                        {'begin_time': '0200', 'end_time': '0500'})
    base = run(3, [step(LATENCY, [9.0] * 9)])
    settings = ProbeSettings((night,), Baselines().with_run(base),
                             (Regression(3, 5, 'pool:rbd', ('latency read: slower',)),),
                             {'night': 1234.5})
    found = decode(ProbeSettings, json.loads(json.dumps(encode(settings))))
    assert found.schedules == (night,) and found.begun == {'night': 1234.5}
    assert found.regressions == settings.regressions and found.baselines.of(base) == 3


# ---- Settings in force

class Setup:
    """Stored settings, with what they store and report."""

    def __init__(self) -> None:
        self.stored: List[Document] = []
        self.events: List[Event] = []
        self.tools = Inline()
        self.settings = StoredSettings(self.stored.append, self.events.append, self.tools)

    def compared(self, *records: RunRecord, past: Sequence[RunRecord] = ()) -> None:
        """Compare these runs one after the other. `past`: the history, without them."""
        history = RunHistory()
        for record in (*past, *records):
            history.put(record)
        for record in records:
            self.settings.compare_later(record, history)
        for _ in range(len(records) + 1):
            self.settings.compare_next(history)
        assert not self.settings.comparing


def measured(run_id: int, iops: float, **changes: Any) -> RunRecord:
    return replace(run(run_id, [step(LATENCY, [iops] * 9, repetition=number)
                                for number in range(3)]), **changes)


def with_baseline(*records: RunRecord) -> Setup:
    setup = Setup()
    for record in records:
        setup.settings.set_baseline(record)
    return setup


BASE = measured(1, 1000.0)


def test_runs_are_compared_in_their_order_and_the_last_one_counts() -> None:
    setup = with_baseline(BASE)
    setup.compared(measured(2, 300.0), measured(3, 400.0), past=[BASE])
    assert [(row.baseline, row.run, row.target) for row in setup.settings.now.regressions] == [
        (1, 3, 'pool:rbd')]
    assert [(event.kind, event.what) for event in setup.events] == [
        ('probe', 'probe 2 is slower than its baseline 1'),
        ('probe', 'probe 3 is slower than its baseline 1')]
    assert setup.events[1].why == setup.settings.now.regressions[0].lines[0]
    assert setup.events[1].why.startswith('latency read: 0.40 times (')
    assert setup.stored[-1] == encode(setup.settings.now)
    setup.compared(measured(4, 1000.0), past=[BASE])
    assert setup.settings.now.regressions == () and len(setup.events) == 2


def test_a_comparison_is_made_one_at_a_time_when_the_thread_has_room() -> None:
    setup, history = with_baseline(BASE), RunHistory()
    for record in (BASE, measured(2, 300.0), measured(3, 400.0)):
        history.put(record)
        if record is not BASE:
            setup.settings.compare_later(record, history)
    setup.tools.late = True
    for runs in ([], [2], [3]):
        setup.settings.compare_next(history)
        setup.settings.compare_next(history)
        assert [row.run for row in setup.settings.now.regressions] == runs
        # The last one has left nothing to compare.
        assert setup.settings.comparing == bool(setup.tools.jobs) == (runs != [3])
        assert len(setup.tools.jobs) <= 1
        setup.tools.work()


@pytest.mark.parametrize('what', ['baseline', 'run'])
def test_a_comparison_of_what_was_removed_meanwhile_shows_nothing(what: str) -> None:
    setup, history, slow = with_baseline(BASE), RunHistory(), measured(2, 300.0)
    for record in (BASE, slow):
        history.put(record)
    setup.settings.compare_later(slow, history)
    setup.settings.compare_next(history)
    if what == 'baseline':
        setup.settings.drop_baseline(1)
    else:
        history.remove(2)
    setup.settings.compare_next(history)
    assert setup.settings.now.regressions == () and not setup.events
    assert not setup.settings.comparing


def test_a_run_under_other_conditions_is_reported_and_not_compared() -> None:
    base = measured(1, 1000.0, setting={'PGs': '32'})
    setup = with_baseline(base)
    setup.compared(measured(2, 300.0, setting={'PGs': '64'}), past=[base])
    event, = setup.events
    assert (event.kind, event.what, event.why) == (
        'probe', 'probe 2 cannot be compared with its baseline 1', 'PGs: 64 (before: 32)')


@pytest.mark.parametrize('past', [[], [measured(2, 300.0)]])
def test_without_the_record_of_the_baseline_nothing_is_compared(past: List[RunRecord]) -> None:
    setup = with_baseline(BASE)
    setup.compared(measured(3, 300.0), past=past)
    assert not setup.events and setup.settings.now.regressions == ()


def test_what_ends_a_regression() -> None:
    other = Regression(7, 9, 'pool:other', ('x',))
    for end, kept in (
            (lambda settings: settings.drop_baseline(1), [other]),
            (lambda settings: settings.forget_run(2), [other]),
            (lambda settings: settings.set_baseline(measured(2, 300.0)), [])):
        setup = with_baseline(BASE)
        setup.compared(measured(2, 300.0), past=[BASE])
        setup.settings.now = replace(
            setup.settings.now, regressions=(*setup.settings.now.regressions, other))
        end(setup.settings)
        assert list(setup.settings.now.regressions) == kept
        assert setup.stored[-1] == encode(setup.settings.now)


def test_a_run_without_a_regression_is_forgotten_without_a_write() -> None:
    setup = with_baseline(BASE)
    stored = len(setup.stored)
    setup.settings.forget_run(2)
    assert len(setup.stored) == stored


def test_schedules_are_replaced_and_removed_with_their_last_start() -> None:
    setup = Setup()
    night, day = (schedule_of(name, RunOrder(), {}) for name in ('night', 'day'))
    for schedule in (night, day, schedule_of('night', RunOrder(), {'every_days': '2'})):
        setup.settings.add_schedule(schedule)
    assert [(row.name, row.every_days) for row in setup.settings.now.schedules] == [
        ('day', 1), ('night', 2)]
    setup.settings.note_begun('night', 5.0)
    setup.settings.note_begun('day', 7.0)
    setup.settings.drop_schedule('night')
    assert setup.settings.now.schedules == (day,) and setup.settings.now.begun == {'day': 7.0}
    assert setup.stored[-1] == encode(setup.settings.now)
    with pytest.raises(Refused) as refused:
        setup.settings.drop_schedule('night')
    assert refused.value.errno == errno.ENOENT
    assert str(refused.value) == 'schedule \'night\' does not exist (see "probe ls")'


def test_only_a_baseline_can_be_removed() -> None:
    with pytest.raises(Refused) as refused:
        with_baseline(BASE).settings.drop_baseline(2)
    assert refused.value.errno == errno.ENOENT
    assert str(refused.value) == 'probe 2 is not a baseline (see "probe ls")'


def test_unreadable_settings_are_not_overwritten() -> None:
    setup = Setup()
    setup.settings.unreadable = 'version 9'
    for change in (lambda: setup.settings.set_baseline(BASE),
                   lambda: setup.settings.drop_baseline(1),
                   lambda: setup.settings.drop_schedule('night')):
        with pytest.raises(Refused) as refused:
            change()
        assert refused.value.errno == errno.EBUSY
        assert str(refused.value).startswith(
            'cannot store schedules or baselines because the stored ones are unreadable '
            '(version 9): ')
    setup.settings.note_begun('night', 5.0)
    assert setup.stored == []


def test_settings_that_were_stored_are_loaded() -> None:
    before = with_baseline(BASE)
    after = Setup()
    after.settings.load(None)
    assert after.settings.now == ProbeSettings()
    after.settings.load(before.stored[-1])
    assert after.settings.now == before.settings.now
