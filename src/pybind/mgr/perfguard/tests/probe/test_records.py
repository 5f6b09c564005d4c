# SPDX-License-Identifier: LGPL-2.1-or-later
"""Records of runs: their JSON, their size, and how long they are kept."""
import json
import random
from dataclasses import replace
from typing import Dict

import pytest

from perfguard.codec import Malformed, decode, encode
from perfguard.probe import records
from perfguard.probe.records import (MAX_POINTS, MAX_TEXTS, RunHistory, RunRecord,
                                     slimmed, thinned)
from perfguard.probe.types import PERCENTILES, Counted, Second, Target

from ..fakes.probe_records import IOPS, LATENCY, LINEAR, noisy, run, step

JOBS = [replace(job, rw=rw) for job in (LATENCY, IOPS, LINEAR) for rw in ('randread', 'randwrite')]
#: The values of fio, as the worker reports them.
ALL_PERCENTILES: Dict[str, int] = {'%f' % each: int(1e9 / 7) for each in PERCENTILES}


def large(osds: int, seconds: int) -> RunRecord:
    """Six jobs on each OSD, three times, with everything that a worker reports."""
    done = []
    for osd in range(osds):
        for job in JOBS:
            for one, result in noisy(random.Random(osd), job, 4321.0, 3, 0.05, osd, seconds):
                stream = result.streams[0]
                both = {name: replace(each, latency=each.latency and replace(
                    each.latency, percentile=ALL_PERCENTILES, mean=1234567.123456,
                    stddev=345678.123456))
                    for name, each in (('read', stream.read), ('write', stream.write))}
                done.append((one, replace(result, streams=(replace(stream, **both),),
                                          cpu_user=1.234567, cpu_system=0.456789)))
    return run(7, done, Target('osd', '', tuple(range(osds))))


def test_json_both_ways() -> None:
    record = slimmed(replace(run(3, [
        step(LATENCY, [1000.0] * 9, 4, 1), step(replace(LATENCY, rw='randrw'), [9.0] * 3),
        step(IOPS, [9.5] * 3, part='alone')]), conditions=('deep scrub',), messages=('a', 'b'),
        trigger='nightly', counted=(Counted(4, 100, 7),)))
    assert decode(RunRecord, json.loads(json.dumps(encode(record)))) == record


def test_json_of_a_run_that_has_not_begun() -> None:
    waiting = RunRecord(1, 'preparing', '', Target('pool', 'rbd'), 5.0)
    assert decode(RunRecord, json.loads(json.dumps(encode(waiting)))) == waiting
    assert not waiting.ended_well and waiting.done == ()


@pytest.mark.parametrize('broken', [{}, {'id': 1}, [], {'jobs': [{}]}])
def test_what_is_no_record(broken: object) -> None:
    with pytest.raises(Malformed):
        decode(RunRecord, broken)


@pytest.mark.parametrize('change', [{'results': [{'streams': 3}]}, {'steps': [{'job': 9}]},
                                    {'target': 'rbd'}, {'created': 'x'}, {'results': 1}])
def test_damage_inside_a_record(change: Dict[str, object]) -> None:
    raw = {**encode(run(1, [step(LATENCY, [1.0])])), **change}
    with pytest.raises(Malformed):
        decode(RunRecord, raw)


def test_slimmed_has_no_names_of_objects_and_the_same_sums() -> None:
    record = large(2, 90)
    kept = slimmed(record)
    assert all(not stream.objects for each in kept.steps for stream in each.streams)
    before, after = (each.results[0].streams[0].read for each in (record, kept))
    assert len(before.seconds) == 90 and len(after.seconds) == 45 <= MAX_POINTS
    assert sum(each.ios for each in after.seconds) == before.ios
    assert replace(after, seconds=()) == replace(before, seconds=())
    assert slimmed(kept) == kept


def test_a_run_over_sixty_osds_fits() -> None:
    for seconds in (10, 60):
        record = slimmed(large(60, seconds))
        assert len(record.steps) == 60 * 6 * 3
        assert len(json.dumps(encode(record), separators=(',', ':'))) < 1.5e6


def test_texts_are_bounded() -> None:
    many = tuple(map(str, range(500)))
    kept = slimmed(replace(run(1, []), messages=many, conditions=many))
    assert kept.messages == kept.conditions == many[-MAX_TEXTS:]


def test_thinned() -> None:
    seconds = [Second(at + 1.0, at, 2 * at, 3) for at in range(7)]
    assert thinned(seconds, 7) == tuple(seconds) and thinned((), 5) == ()
    assert thinned(seconds, 3) == (Second(3.0, 3, 6, 9), Second(6.0, 12, 24, 9),
                                   Second(7.0, 6, 12, 3))


def ended(run_id: int, at: float, steps: int = 2, state: str = 'done') -> RunRecord:
    return run(run_id, [step(LATENCY, [1.0])] * steps, state=state, ended=at)


def kept(history: RunHistory) -> list:
    return [record.id for record in history.all()]


def of(*records: RunRecord) -> RunHistory:
    history = RunHistory()
    for record in records:
        history.put(record)
    return history


def test_the_newest_runs_are_kept() -> None:
    history = of(*(ended(number, 100.0) for number in range(1, 8)))
    assert history.outlived(3, frozenset()) == [1, 2, 3, 4]
    # 2 is a baseline and counts as none of the three.
    assert history.outlived(3, {2, 7}) == [1, 3]
    assert kept(history) == [1, 2, 3, 4, 5, 6, 7]


@pytest.mark.parametrize('streams', [1, 16])
def test_streams_are_bounded_in_all(streams: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(records, 'MOST_STREAMS', 39 * streams)
    history = of(*(replace(record, steps=tuple(replace(step, streams=streams * step.streams[:1])
                                               for step in record.steps), results=())
                   for record in (ended(number, 0.0, steps=10) for number in range(1, 8))))
    assert history.outlived(100, frozenset()) == [1, 2, 3, 4]
    assert history.outlived(100, {1, 2}) == [3, 4, 5, 6]
    # However large it is, the last one stays.
    monkeypatch.setattr(records, 'MOST_STREAMS', 5)
    assert history.outlived(100, frozenset()) == [1, 2, 3, 4, 5, 6]


def test_what_is_under_way_is_never_removed() -> None:
    history = of(ended(1, 0.0, state='running'), ended(2, 0.0, state='preparing'), ended(3, 0.0),
                 ended(4, 0.0))
    assert history.outlived(1, frozenset()) == [3]


def test_a_record_that_is_removed_is_gone() -> None:
    history = of(ended(1, 1.0), ended(2, 1.0))
    history.remove(1)
    history.remove(9)
    assert kept(history) == [2] and history.get(1) is None


def test_records_are_slimmed() -> None:
    record = run(1, [step(LATENCY, [9.0] * 100)])
    assert of(record).get(1) == slimmed(record) != record
