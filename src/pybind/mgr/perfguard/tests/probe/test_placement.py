# SPDX-License-Identifier: LGPL-2.1-or-later
"""Objects and their PGs. Against real clusters: qa/tests/test_probe_placement.py."""
import itertools
from collections import Counter
from dataclasses import replace

import pytest

from perfguard.cluster.types import mask_of, stable_mod
from perfguard.probe.placement import (MAX_TRIES, Naming, all_names, led_by, names_by_osd,
                                       names_of, names_seconds, naming_of, objects_wanted, pgs_of,
                                       with_objects)
from perfguard.probe.types import NAMESPACE, BadJob, Job, JobStep, Stream, Target
from qa.lib.pgids import pgid_of, str_hash_rjenkins

PREFIX = 'perfguard-probe-12-4194304-'


@pytest.mark.parametrize('name, hashed', [
    # As "ceph osd map" of a real cluster has them, of all lengths modulo 12 that are special.
    ('', 0xbd49d10d), ('a', 703514648), ('foo', 0x7fc1f406), ('abcdefgh', 88045406),
    ('abcdefghijk', 3844836940), ('abcdefghijkl', 186334885), ('abcdefghijklm', 824356913),
    ('rbd_data.1.000000000001', 3833864428), ('x' * 300, 3834265880), ('\u00e4', 1899444195)])
def test_hash(name: str, hashed: int) -> None:
    assert str_hash_rjenkins(name.encode()) == hashed


def test_stable_mod_splits_one_value_at_a_time() -> None:
    for pg_num in range(1, 100):
        bmask = mask_of(pg_num)
        assert bmask & (bmask + 1) == 0 and bmask >= pg_num - 1 and bmask // 2 < max(1, pg_num - 1)
        now = [stable_mod(x, pg_num, bmask) for x in range(1000)]
        assert set(now) == set(range(pg_num))
        more = [stable_mod(x, pg_num + 1, mask_of(pg_num + 1)) for x in range(1000)]
        assert {(a, b) for a, b in zip(now, more) if a != b} <= {(now[x], pg_num)
                                                                 for x in range(1000)}


def test_pgid() -> None:
    assert pgid_of(3, 64, '', 'foo') == '3.6'
    assert pgid_of(3, 1, '', 'foo') == '3.0'
    assert pgid_of(3, 64, 'a', 'foo') != pgid_of(3, 64, '', 'foo')


@pytest.mark.parametrize('length', range(13))
def test_pgs_of_names_with_a_common_prefix(length: int) -> None:
    """The prefix is hashed once, up to the last whole block of twelve bytes."""
    prefix = 'perfguard-probe-'[:length]
    found = itertools.islice(pgs_of(prefix, 100), 1200)
    assert [pgid_of(3, 100, NAMESPACE, '%s%d' % (prefix, number)) for number in range(1200)] == [
        '3.%x' % pg for pg in found]


def leads_of(pool_id: int, pg_num: int, osds: int) -> dict:
    return {'%d.%x' % (pool_id, pg): pg * 7 % osds for pg in range(pg_num)}


def test_names_go_to_the_osd_and_to_all_its_pgs_alike() -> None:
    leads = {**leads_of(3, 100, 6), **leads_of(4, 100, 5)}
    found = names_by_osd(PREFIX, 100, led_by(3, 100, leads, range(6)), 64)
    assert set(found) == set(range(6))
    assert len({name for names in found.values() for name in names}) == 6 * 64
    for osd, names in found.items():
        pgs = Counter(pgid_of(3, 100, NAMESPACE, name) for name in names)
        assert {leads[pgid] for pgid in pgs} == {osd}
        led = [pgid for pgid in leads if pgid.startswith('3.') and leads[pgid] == osd]
        assert set(pgs) == set(led) and max(pgs.values()) <= -(-64 // len(led))


def test_names_of_one_osd_are_those_among_all() -> None:
    leads = leads_of(3, 100, 6)
    alone = names_by_osd(PREFIX, 100, led_by(3, 100, leads, [2]), 16)[2]
    assert alone == names_by_osd(PREFIX, 100, led_by(3, 100, leads, range(6)), 16)[2]
    assert alone[0].startswith(PREFIX)


def test_an_osd_that_leads_nothing() -> None:
    with pytest.raises(BadJob, match='osd.9: it is primary of none of the 100 PGs of the pool'):
        led_by(3, 100, leads_of(3, 100, 6), [9])
    # PGs of other pools, and such as a merge has removed, do not count.
    with pytest.raises(BadJob, match='primary of none'):
        led_by(3, 16, {'4.1': 9, '3.10': 9, '3.1': 8}, [9])


def test_too_few_pgs_among_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr('perfguard.probe.placement.MAX_TRIES', 2000)
    with pytest.raises(BadJob, match='osd.7 is primary of 1 of the 4096 PGs of the pool: too '
                                     'few to place 16 objects'):
        names_by_osd(PREFIX, 4096, {7: [1]}, 16)


# ---- The names of a run

SMALL = Job('small', 'randread', 4096, 1, 4 * 4096, 4, 2.0)
LARGE = Job('large', 'read', 4096, 1, 2 * 8192, 2, 2.0)
POOL = Target('pool', 'rbd')


def test_the_largest_job_of_a_size_says_how_many_objects() -> None:
    jobs = [SMALL, replace(SMALL, numjobs=3), LARGE, SMALL]
    assert objects_wanted(jobs) == {4096: 12, 8192: 2}


def test_names_that_may_have_any_primary_are_numbered() -> None:
    naming = naming_of(7, [SMALL, LARGE], POOL, None, 3, 64)
    assert naming == Naming(7, ((4096, 4), (8192, 2)))
    assert names_of(naming) == {
        (None, 4096): tuple('perfguard-probe-7-4096-%d' % number for number in range(4)),
        (None, 8192): ('perfguard-probe-7-8192-0', 'perfguard-probe-7-8192-1')}
    assert list(all_names(naming)) == [
        *('perfguard-probe-7-4096-%d' % number for number in range(4)),
        'perfguard-probe-7-8192-0', 'perfguard-probe-7-8192-1']
    assert names_seconds(naming) == 0.0


def test_streams_of_a_step_share_no_object_and_steps_do() -> None:
    streams = tuple(Stream(name, (), osd) for name, osd in (('a', 1), ('b', 1), ('c', 2)))
    steps = [JobStep(SMALL, streams, 5, 'together'), JobStep(SMALL, streams[2:], 6)]
    naming = Naming(7, ((4096, 8),), 3, 4, ((1, (0, 2)), (2, (1, 3))))
    both, alone = with_objects(steps, naming)
    names = names_of(naming)
    assert [stream.objects for stream in both.streams] == [
        names[1, 4096][:4], names[1, 4096][4:], names[2, 4096][:4]]
    assert alone.streams == both.streams[2:]
    assert (both.repetition, both.part, both.streams[1].name) == (5, 'together', 'b')


def test_how_long_it_takes_to_find_names() -> None:
    """Three times the tries that the share of the fewest PGs requires, of 10 us each."""
    assert names_seconds(Naming(7, ((4096, 8), (8192, 2)), 3, 100, (
        (1, (0, 2, 4)), (2, (1, 3))))) == pytest.approx(1e-5 * 3 * 10 * 100 / 2)


@pytest.mark.parametrize('objects, is_refused', [(333, False), (334, True)])
def test_a_naming_that_would_take_too_many_tries_is_refused(
        objects: int, is_refused: bool) -> None:
    """One PG of 4,000 has a name in 4,000 tries; three times that is allowed for."""
    job = Job('x', 'randread', 4096, 1, objects * 4096, objects, 2.0)
    given = ([job], Target('osd', osds=(5,)), {'3.1': 5, '3.2': 6}, 3, MAX_TRIES // 1000)
    if is_refused:
        with pytest.raises(BadJob) as refused:
            naming_of(7, *given)
        assert str(refused.value) == ('osd.5 is primary of 1 of the 4000 PGs of the pool: too few '
                                      'to place 334 objects there')
    else:
        assert naming_of(7, *given) == Naming(7, ((4096, objects),), 3, 4000, ((5, (1,)),))


def test_pgs_that_a_merge_has_removed_do_not_count() -> None:
    primaries = {'3.f': 9, '3.10': 9, '3.1': 8, '4.2': 9}
    assert led_by(3, 16, primaries, [8, 9]) == {8: [1], 9: [15]}
