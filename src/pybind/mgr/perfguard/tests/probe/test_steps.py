# SPDX-License-Identifier: LGPL-2.1-or-later
"""Steps of a run, the OSDs that it is about, and what it takes."""
import errno
from dataclasses import replace
from typing import Any, Dict, Sequence, Tuple

import pytest

from perfguard.cluster.types import Space
from perfguard.errors import Refused
from perfguard.probe.jobs import parse_jobs, plan_steps, step_count
from perfguard.probe.limits import (Budget, budget_of, budget_refusals, limit_seconds,
                                    nearfull_osds, shares_of)
from perfguard.probe.placement import (Candidate, naming_of, run_prefix, selected_osds,
                                       with_objects)
from perfguard.probe.types import BadJob, Job, NAMESPACE, JobStep, Target
from qa.lib.pgids import pgid_of

MIB = 1 << 20
CLUSTER = Target('cluster')
SMALL = Job('small', 'randwrite', bs=4096, iodepth=4, size=4 * MIB, nrfiles=8, runtime=2.0,
            ramp_time=0.5)
LARGE = Job('large', 'write', bs=MIB, iodepth=4, size=4 * MIB, nrfiles=4, runtime=3.0)
LEADS = {'5.%x' % pg: pg % 3 for pg in range(24)}


def on_osds(kind: str, osds: Tuple[int, ...], jobs: Sequence[Job], repeat: int = 1
            ) -> Tuple[JobStep, ...]:
    target = Target(kind, osds=osds)
    return with_objects(plan_steps(jobs, target, repeat), naming_of(7, jobs, target, LEADS, 5, 24))


def planned(jobs: Sequence[Job], repeat: int) -> Tuple[JobStep, ...]:
    return with_objects(plan_steps(jobs, CLUSTER, repeat), naming_of(7, jobs, CLUSTER, None, 5, 24))


def objects_of(steps: Sequence[JobStep]) -> Dict[str, int]:
    return {name: step.job.object_bytes for step in steps for stream in step.streams
            for name in stream.objects}


def test_repetitions_take_turns() -> None:
    steps = planned([SMALL, LARGE], 2)
    assert [(step.job.name, step.repetition, step.part) for step in steps] == [
        ('small', 0, ''), ('large', 0, ''), ('small', 1, ''), ('large', 1, '')]
    assert {stream.osd for step in steps for stream in step.streams} == {None}


def test_objects_of_the_same_size_are_shared_between_jobs() -> None:
    twice = replace(SMALL, name='twice', rw='randread', numjobs=2)
    steps = planned([SMALL, twice, LARGE], 2)
    one, two, large = (step.streams for step in steps[:3])
    assert [stream.name for stream in two] == ['0', '1']
    assert one[0].objects == two[0].objects and not set(two[0].objects) & set(two[1].objects)
    assert len(large[0].objects) == 4 and not set(large[0].objects) & set(one[0].objects)
    objects = objects_of(steps)
    assert len(objects) == 16 + 4
    assert all(name.startswith(run_prefix(7) + '%d-' % size) for name, size in objects.items())
    assert run_prefix(7) == 'perfguard-probe-7-'


def test_each_osd_in_turn_with_objects_that_it_leads() -> None:
    steps = on_osds('osd', (0, 2), [SMALL, LARGE], repeat=2)
    assert [(step.streams[0].osd, step.job.name, step.repetition) for step in steps] == [
        (0, 'small', 0), (0, 'large', 0), (2, 'small', 0), (2, 'large', 0),
        (0, 'small', 1), (0, 'large', 1), (2, 'small', 1), (2, 'large', 1)]
    for step in steps:
        stream, = step.streams
        assert stream.name == 'osd.%d' % (stream.osd or 0)
        assert len(set(stream.objects)) == step.job.nrfiles
        assert {LEADS[pgid_of(5, 24, NAMESPACE, name)] for name in stream.objects} == {stream.osd}


def test_streams_of_an_osd() -> None:
    step, = on_osds('osd', (1,), [replace(SMALL, numjobs=2)])
    assert [(stream.name, stream.osd) for stream in step.streams] == [('osd.1/0', 1),
                                                                      ('osd.1/1', 1)]
    assert len(objects_of([step])) == 16


def test_interference() -> None:
    steps = on_osds('interference', (0, 1, 2), [SMALL, LARGE], repeat=2)
    assert {step.job for step in steps} == {SMALL}
    told = [(step.part, step.repetition, tuple(stream.osd for stream in step.streams))
            for step in steps]
    alone = [('alone', r, (osd,)) for r in (0, 1) for osd in (0, 1, 2)]
    again = [('again', r, (osd,)) for r in (0, 1) for osd in (0, 1, 2)]
    assert told == alone + [('together', r, (0, 1, 2)) for r in (0, 1)] + again
    assert {stream for step in steps if step.part == 'alone' for stream in step.streams} == set(
        steps[6].streams)


def test_interference_refused() -> None:
    with pytest.raises(BadJob, match='at least two OSDs'):
        on_osds('interference', (1,), [SMALL])
    with pytest.raises(BadJob, match='iodepth=1024 with numjobs=6: limit is 4096 operations'):
        on_osds('interference', (0, 1, 2), [replace(SMALL, iodepth=1024, numjobs=2)])
    with pytest.raises(BadJob, match='osd.4: it is primary of none'):
        on_osds('interference', (0, 4), [SMALL])


PLACES = {0: Candidate('h1', 'ssd', True, True), 1: Candidate('h1', 'hdd', True, True),
          2: Candidate('h2', 'ssd', False, True), 3: Candidate('h2', 'ssd', True, False),
          4: Candidate('h2', 'ssd', True, True)}


@pytest.mark.parametrize('words, osds', [
    ({}, (0, 1, 4)), ({'osd': 'all'}, (0, 1, 4)), ({'osd': '4'}, (4,)), ({'osd': 'osd.4'}, (4,)),
    ({'osd': '4, osd.0'}, (0, 4)), ({'host': 'h1'}, (0, 1)), ({'host': 'h2'}, (4,)),
    ({'device_class': 'ssd'}, (0, 4)), ({'host': 'h1', 'device_class': 'ssd'}, (0,)),
    ({'osd': '0,1', 'device_class': 'hdd'}, (1,))])
def test_selected(words: Dict[str, str], osds: Tuple[int, ...]) -> None:
    assert selected_osds(PLACES, **words) == osds


@pytest.mark.parametrize('words, message', [
    ({'osd': '9'}, 'osd.9 does not exist'), ({'osd': '2'}, 'osd.2 is down'),
    ({'osd': '0,3'}, 'osd.3 is out'),
    ({'osd': 'x'}, "'x' is not an OSD: must be a list such as 3 or osd.3,osd.4, or all"),
    ({'osd': '123456789'}, 'osd.123456789 does not exist'),
    ({'osd': '1234567890'}, "'1234567890' is not an OSD"),
    ({'osd': '-1'}, "'-1' is not an OSD"), ({'osd': '0,'}, "'' is not an OSD"),
    ({'host': 'h9'}, 'no host h9 with OSDs'),
    ({'device_class': 'nvme'}, 'no OSD has device class nvme'),
    ({'osd': '1', 'host': 'h2'}, 'no OSD among 1 and on host h2'),
    ({'host': 'h2', 'device_class': 'hdd'}, 'no OSD is up and in and on host h2 and of device '
                                            'class hdd')])
def test_not_selected(words: Dict[str, str], message: str) -> None:
    with pytest.raises((BadJob, Refused)) as caught:
        selected_osds(PLACES, **words)
    assert message in str(caught.value)
    # As of other commands, for a name that does not exist.
    is_unknown = message.endswith('does not exist') or words in (
        {'host': 'h9'}, {'device_class': 'nvme'})
    assert caught.value.errno == (errno.ENOENT if is_unknown else errno.EINVAL)


def test_budget() -> None:
    budget = budget_of([SMALL, LARGE], CLUSTER, 3, 3)
    assert (budget.prefill_bytes, budget.stored_bytes, budget.objects) == (8 * MIB, 24 * MIB, 12)
    assert budget.transfer_bytes is None
    assert 3 * (2.5 + 3.0) < budget.seconds < 3 * (2.5 + 3.0) + 5
    assert limit_seconds(budget) > budget.seconds + 5
    assert budget_of([SMALL, LARGE], CLUSTER, 3, 1.5).stored_bytes == 12 * MIB


def test_bytes_to_transfer() -> None:
    def transfer(**changes: Any) -> Any:
        return budget_of([replace(SMALL, **changes)], CLUSTER, 2, 3).transfer_bytes

    assert transfer() is None
    assert transfer(rate_iops=100) == 2 * 100 * 4096 * 2.5
    assert transfer(io_size=MIB, numjobs=3, ramp_time=0.0) == 2 * 3 * MIB
    assert transfer(io_size=MIB) is None, 'the ramp is not bounded'
    assert transfer(io_size=8192, rate_iops=100) == 2 * (8192 + 100 * 4096 * 0.5)
    assert transfer(io_size=MIB, rate_iops=10) == 2 * 10 * 4096 * 2.5
    both = [SMALL, replace(SMALL, rate_iops=10)]
    assert budget_of(both, CLUSTER, 1, 3).transfer_bytes is None


@pytest.mark.parametrize('kind', ['osd', 'interference'])
def test_the_budget_is_that_of_the_steps(kind: str) -> None:
    """It is reckoned without them, for a large cluster has very many."""
    jobs = [replace(SMALL, rate_iops=10), replace(SMALL, rw='randread', numjobs=2, rate_iops=10)]
    steps = on_osds(kind, (0, 1, 2), jobs, repeat=2)
    budget = budget_of(jobs, Target(kind, osds=(0, 1, 2)), 2, 3)
    objects = objects_of(steps)
    assert (budget.objects, budget.prefill_bytes) == (len(objects), sum(objects.values()))
    assert step_count(jobs, Target(kind, osds=(0, 1, 2)), 2) == len(steps)
    assert budget.seconds >= sum(step.job.ramp_time + step.job.runtime for step in steps)
    assert budget.transfer_bytes == sum(
        len(step.streams) * int(10 * 4096 * 2.5) for step in steps)


def test_quick_takes_less_than_a_minute() -> None:
    budget = budget_of(parse_jobs('quick', {}, None), CLUSTER, 3, 3)
    assert budget.seconds < 55 and budget.prefill_bytes == 128 * MIB
    assert limit_seconds(budget) < 90


BUDGET = Budget(seconds=60.0, prefill_bytes=100 * MIB, stored_bytes=300 * MIB, transfer_bytes=None,
                objects=10)


def test_refusals() -> None:
    assert budget_refusals(BUDGET, 300 * MIB, 300 * MIB, 60.0, 200 * MIB, 20) == []
    assert budget_refusals(BUDGET, None, 300 * MIB, 60.0, None, None) == []
    assert budget_refusals(BUDGET, 299 * MIB, 298 * MIB, 59.0, 199 * MIB, 19) == [
        'the probe would store 300.0 MiB (limit 298.0 MiB, probe_max_bytes)',
        'the probe would store 300.0 MiB, but only 299.0 MiB are free',
        "the probe would write 100.0 MiB, more than half of the pool's remaining quota of "
        '199.0 MiB',
        "the probe would create 10 objects, more than half of the pool's remaining quota of 19",
        'the probe would take 60 s (limit 59 s, probe_max_seconds)']
    assert budget_refusals(BUDGET, None, 300 * MIB, 60.0, -5, None) == [
        "the probe would write 100.0 MiB, more than half of the pool's remaining quota of 0 B"]
    assert budget_refusals(BUDGET, None, 300 * MIB, 60.0, None, -5) == [
        "the probe would create 10 objects, more than half of the pool's remaining quota of 0"]


def test_a_probe_does_not_bring_a_pool_to_its_quota() -> None:
    """There the mons stop all clients of the pool."""
    assert budget_refusals(BUDGET, None, 300 * MIB, 60.0, 100 * MIB, None)
    assert budget_refusals(BUDGET, None, 300 * MIB, 60.0, None, 10)
    assert budget_refusals(BUDGET, None, 300 * MIB, 60.0, 101 * MIB, None)


GIB = 1 << 30


@pytest.mark.parametrize('target, data_shards, shares', [
    # 100 MiB of objects, 300 MiB stored on ten OSDs, of which none gets more than twice its share.
    (CLUSTER, 1, {osd: 60 for osd in range(10)}),
    # Half of the objects lie whole on each of two; of the other copies each OSD gets its share.
    (Target('osd', osds=(3, 4)), 1, {**{osd: 40 for osd in range(10)}, 3: 90, 4: 90}),
    (Target('osd', 'ec', osds=(3,)), 2, {**{osd: 50 for osd in range(10)}, 3: 100}),
    (Target('store', osds=(1, 2)), 1, {1: 300, 2: 300})])
def test_what_each_osd_gets(target: Target, data_shards: int, shares: Dict[int, int]) -> None:
    found = shares_of(BUDGET, target, range(10), data_shards)
    assert {osd: round(share / MIB) for osd, share in found.items()} == shares


def test_no_osd_is_filled_up_to_nearfull() -> None:
    space = {0: Space(10 * GIB, 8 * GIB), 1: Space(10 * GIB, int(8.4 * GIB)), 2: Space(0, 0)}
    shares = {osd: 0.2 * GIB for osd in range(4)}
    assert nearfull_osds(shares, space, 0.85) == [
        'osd.1 would be 86.0 % full with its share of 204.8 MiB (nearfull is 85.0 %)']
    # Exactly at the ratio, the OSD is nearfull.
    assert nearfull_osds({0: 5.0}, {0: Space(100, 80)}, 0.85) == [
        'osd.0 would be 85.0 % full with its share of 5 B (nearfull is 85.0 %)']
    assert nearfull_osds({0: 4.9}, {0: Space(100, 80)}, 0.85) == []


@pytest.mark.parametrize('osds, named_osds, rest', [
    (5, 5, []), (6, 5, ['and 1 OSD more']), (9, 5, ['and 4 OSDs more'])])
def test_of_many_osds_that_would_be_nearfull_five_are_named(
        osds: int, named_osds: int, rest: Sequence[str]) -> None:
    full = {osd: Space(GIB, GIB) for osd in range(osds)}
    texts = nearfull_osds(dict.fromkeys(range(osds), 1.0), full, 0.85)
    assert [text.split()[0] for text in texts[:named_osds]] == [
        'osd.%d' % osd for osd in range(named_osds)]
    assert texts[named_osds:] == rest


def test_a_probe_that_stores_nothing_or_has_no_osds_fills_none() -> None:
    assert shares_of(BUDGET, CLUSTER, (), 1) == {}
    assert shares_of(BUDGET._replace(stored_bytes=0), CLUSTER, (0, 1), 1) == {}
