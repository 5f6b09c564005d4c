# SPDX-License-Identifier: LGPL-2.1-or-later
"""Baselines, and the health check about runs that are slower."""
import json
from dataclasses import replace
from typing import Dict, List, Optional, Tuple

import pytest

from perfguard.codec import decode, encode
from perfguard.probe.schedules import (REGRESSION_CHECK, Baselines, Regression, health_check,
                                       regression)
from perfguard.probe.records import RunHistory, RunRecord
from perfguard.probe.types import BadJob, Target

from ..fakes.probe_records import LATENCY, POOL, WRITING, run, step


def measured(run_id: int, reading: float, writing: float, target: Target = POOL) -> RunRecord:
    return run(run_id, [step(job, [rate] * 10, repetition=number)
                        for number in range(3)
                        for job, rate in ((LATENCY, reading), (WRITING, writing))], target)


def history(*records: RunRecord) -> RunHistory:
    found = RunHistory()
    for record in records:
        found.put(record)
    return found


def regressions(baselines: Baselines, history: RunHistory) -> Tuple[Regression, ...]:
    """Of the last run of each baseline's key that is done, as the controller keeps them."""
    last: Dict[int, RunRecord] = {}
    for record in history.all():
        run_id = baselines.of(record)
        if run_id is not None and record.ended_well and record.id > run_id:
            last[run_id] = record
    found: List[Optional[Regression]] = []
    for run_id, record in sorted(last.items()):
        baseline = history.get(run_id)
        found.append(None if baseline is None else regression(baseline, record))
    return tuple(each for each in found if each is not None)


def test_a_slower_run_is_reported_and_a_good_one_clears_the_report() -> None:
    base, slow, good = (measured(1, 1000, 800), measured(2, 500, 790), measured(3, 990, 810))
    baselines = Baselines().with_run(base)
    found = regressions(baselines, history(base, slow))
    check = health_check(found)[REGRESSION_CHECK]
    assert check['severity'] == 'warning' and check['count'] == 1
    assert check['summary'] == 'probes slower than their baseline: pool:rbd'
    assert check['detail'][0].startswith(
        'pool:rbd (probe 2 compared with probe 1): latency read: 0.50 times (')
    assert '); 500 IOPS (before: 1,000 IOPS)' in check['detail'][0]
    assert health_check(regressions(baselines, history(base, slow, good))) == {}


def test_what_disturbed_a_slower_run_is_reported_with_it() -> None:
    """A scrub that begins during a scheduled probe is no reason to look for a broken drive."""
    base, slow = measured(1, 1000, 800), measured(2, 500, 790)
    baselines = Baselines().with_run(replace(base, conditions=('recovery or backfill',)))
    (text,) = health_check(regressions(baselines, history(base, replace(
        slow, conditions=('deep scrub', 'recovery or backfill')))))[REGRESSION_CHECK]['detail']
    assert text.endswith('; during the probe: deep scrub, recovery or backfill')
    (text,) = health_check(regressions(baselines, history(base, slow)))[REGRESSION_CHECK]['detail']
    assert 'during' not in text


def test_faster_is_no_regression_and_neither_is_chance() -> None:
    base = measured(1, 1000, 800)
    baselines = Baselines().with_run(base)
    for other in (measured(2, 2000, 800), measured(2, 930, 760)):
        assert regressions(baselines, history(base, other)) == ()


def test_only_runs_of_the_same_jobs_and_target_count() -> None:
    base = measured(1, 1000, 800)
    baselines = Baselines().with_run(base)
    elsewhere = measured(2, 100, 100, Target('pool', 'other'))
    other_job = run(3, [step(replace(LATENCY, iodepth=2), [100.0] * 10)])
    unfinished = replace(measured(4, 100, 100), state='cancelled')
    assert regressions(baselines, history(base, elsewhere, other_job, unfinished)) == ()
    renamed = run(5, [(replace(one, job=replace(one.job, name='x', runtime=3.0)), result)
                      for one, result in measured(5, 100, 100).done])
    assert [each.run for each in regressions(baselines, history(base, renamed))] == [5]


def test_runs_from_before_the_baseline_do_not_count() -> None:
    old, base = measured(1, 100, 100), measured(2, 1000, 800)
    assert regressions(Baselines().with_run(base), history(old, base)) == ()


def test_set_again_and_removed() -> None:
    base, slow = measured(1, 1000, 800), measured(2, 500, 400)
    baselines = Baselines().with_run(base)
    assert baselines.of(slow) == 1 and baselines.ids == {1}
    assert baselines.with_run(slow).ids == {2}
    assert regressions(baselines.with_run(slow), history(base, slow)) == ()
    assert baselines.without(1).ids == frozenset() and baselines.without(7).ids == {1}
    assert baselines.ids == {1}
    # Nothing is compared with a baseline whose record is lost.
    assert regressions(baselines, history(slow)) == ()


def test_two_targets_are_two_baselines() -> None:
    there = Target('osd', '', (3,))
    bases = measured(1, 1000, 800), measured(2, 1000, 800, there)
    baselines = Baselines().with_run(bases[0]).with_run(bases[1])
    slow = measured(3, 500, 400), measured(4, 500, 400, there)
    found = regressions(baselines, history(*bases, *slow))
    assert [(each.baseline, each.run) for each in found] == [(1, 3), (2, 4)]
    assert health_check(found)[REGRESSION_CHECK]['count'] == 4
    assert health_check(found)[REGRESSION_CHECK]['summary'].endswith(': pool:rbd, osd:x3:3')


def test_what_cannot_be_a_baseline() -> None:
    good = measured(1, 9, 9)
    for record in (replace(good, state='failed'), replace(good, results=())):
        with pytest.raises(BadJob, match='probe 1 is [a-z]+: only a probe '
                           'that is done can be a base'):
            Baselines().with_run(record)


def test_json() -> None:
    base = measured(1, 1000, 800)
    raw = json.loads(json.dumps(encode(Baselines().with_run(base))))
    assert decode(Baselines, raw).of(measured(2, 500, 400)) == 1


def test_a_target_with_many_osds_is_named_once_and_cut() -> None:
    target = 'scale:rbd:' + ','.join(map(str, range(400)))
    check = health_check([Regression(1, 5, target, ('x',)), Regression(2, 6, target, ('y',)),
                          Regression(3, 7, 'pool:rbd', ('z',))])[REGRESSION_CHECK]
    short = 'scale:rbd:0,1,2,3,4,5,6,7,8,9,10,11,12,1...'
    assert check['summary'] == 'probes slower than their baseline: %s, pool:rbd' % short
    assert check['detail'] == [
        short + ' (probe 5 compared with probe 1): x',
        short + ' (probe 6 compared with probe 2): y',
        'pool:rbd (probe 7 compared with probe 3): z']
