# SPDX-License-Identifier: LGPL-2.1-or-later
"""What slow OSDs share, and when they are too many to name each."""
from typing import Any, Dict, Iterable, List, Mapping, Sequence, Set, Tuple

import pytest

from perfguard.cluster.types import OsdPlace
from perfguard.watch.slow_parts import (SlowOne, SlowParts, by_shared, crowded, shared_by,
                                        shared_parts, in_crowded_classes, unnamed, whole_parts)
from perfguard.watch.types import OsdVerdict, SharedPart, SlowPart, SlowShared

#: Twelve hosts in four racks, with four OSDs each, of which two share the device of their DBs.
PLACES = {osd: OsdPlace(osd, 'h%d' % (osd // 4), 'default', 'hdd', rack='r%d' % (osd // 12),
                        devices=('h%d:sd%d' % (osd // 4, osd), 'h%d:nvme%d' % (osd // 4, osd // 2)))
          for osd in range(48)}
HDD = ('default', 'hdd')
#: One OSD of each host, and a second one of the first.
SCATTERED = {2, *range(0, 48, 4)}


def of_hosts(*hosts: int) -> Set[int]:
    return {osd for host in hosts for osd in range(4 * host, 4 * host + 4)}


def test_what_an_osd_may_share() -> None:
    assert shared_by(PLACES[13]) == [
        ('device', 'h3:sd13'), ('device', 'h3:nvme6'), ('host', 'h3'), ('rack', 'r1')]
    assert shared_by(PLACES[13]._replace(rack='', devices=())) == [('host', 'h3')]


@pytest.mark.parametrize('only, parts', [
    ({('host', 'h0')}, {('host', 'h0'): {0, 1}}), ({('rack', 'r0')}, {('rack', 'r0'): {0, 1, 4}}),
    ({('device', 'h1:nvme2')}, {('device', 'h1:nvme2'): {4}}), ({('host', 'h9')}, None),
    # The name of a device is no host.
    ({('device', 'h0')}, {})])
def test_the_osds_of_some_shared_parts(only: Set[SharedPart], parts: Any) -> None:
    """Also of places of which nothing else is known."""
    assert by_shared({0, 1, 4, 13}, PLACES, {HDD: only}) == ({} if parts is None else {HDD: parts})
    (kind, _), = only
    bare = {osd: place._replace(devices=place.devices if kind == 'device' else (),
                                rack=place.rack if kind == 'rack' else '')
            for osd, place in PLACES.items()}
    assert by_shared({0, 1, 4, 13}, bare, {HDD: only}) == ({} if parts is None else {HDD: parts})
    assert by_shared({0, 1, 4, 13}, PLACES, {('x', 'hdd'): only}) in ({}, {HDD: {}})


def test_all_shared_parts_of_osds() -> None:
    assert by_shared({1, 2}, {osd: place._replace(rack='') for osd, place in PLACES.items()}) == {
        HDD: {('host', 'h0'): {1, 2}, ('device', 'h0:sd1'): {1}, ('device', 'h0:sd2'): {2},
              ('device', 'h0:nvme0'): {1}, ('device', 'h0:nvme1'): {2}}}
    assert by_shared({1, 2}, PLACES, {}) == {}


@pytest.mark.parametrize('slow, judged, parts', [
    (set(), PLACES, {}), ({0}, PLACES, {}), ({0}, {0}, {}),
    (of_hosts(0), PLACES, {('host', 'h0'): of_hosts(0)}),
    # Three of four; two of four that share a device, and that do not.
    ({0, 1, 2}, PLACES, {('host', 'h0'): {0, 1, 2}}),
    ({0, 1}, PLACES, {('device', 'h0:nvme0'): {0, 1}}), ({0, 2}, PLACES, {}),
    # Of the others nothing is known.
    ({0, 2}, {0, 2, 9}, {('host', 'h0'): {0, 2}}),
    ({0, 2}, {0, 2, 3, 9}, {('host', 'h0'): {0, 2}}),
    (of_hosts(0, 1, 2), PLACES, {('rack', 'r0'): of_hosts(0, 1, 2)}),
    # A rack is slow if all of its hosts are.
    (of_hosts(0, 1), PLACES, {('host', 'h0'): of_hosts(0), ('host', 'h1'): of_hosts(1)}),
    (of_hosts(0, 1, 2) - {8}, PLACES, {('rack', 'r0'): of_hosts(0, 1, 2) - {8}}),
    (of_hosts(0, 1) | {8, 9}, PLACES, {
        ('host', 'h0'): of_hosts(0), ('host', 'h1'): of_hosts(1),
        ('device', 'h2:nvme4'): {8, 9}}),
    # Half of the hosts, racks, and OSDs with such devices.
    (of_hosts(0, 1, 3, 4, 6), PLACES, {('host', 'h%d' % host): of_hosts(host)
                                       for host in (0, 1, 3, 4, 6)}),
    (of_hosts(0, 1, 3, 4, 6, 7), PLACES, {}),
    (of_hosts(0, 1, 2, 3, 4), PLACES, {
        ('rack', 'r0'): of_hosts(0, 1, 2), ('host', 'h3'): of_hosts(3), ('host', 'h4'):
            of_hosts(4)}),
    (of_hosts(0, 1, 2, 3, 4, 5), PLACES, {}),
    # Two OSDs of each host, with a DB device.
    ({osd for osd in range(44) if osd % 4 < 2}, PLACES, {
        ('device', 'h%d:nvme%d' % (host, 2 * host)): {4 * host, 4 * host + 1}
        for host in range(11)}),
    ({osd for osd in range(48) if osd % 4 < 2}, PLACES, {})])
def test_parts_that_are_slow_as_a_whole(
        slow: Set[int], judged: Iterable[int], parts: Mapping[SharedPart, Set[int]]) -> None:
    assert whole_parts(slow, judged, PLACES) == {
        (HDD, part): osds for part, osds in parts.items()}


def test_classes_are_judged_apart() -> None:
    """The flash of a host is slow, and its disks are not."""
    places = {osd: place._replace(device_class='ssd' if osd % 4 < 2 else 'hdd', devices=())
              for osd, place in PLACES.items()}
    assert whole_parts({0, 1}, places, places) == {(('default', 'ssd'), ('host', 'h0')): {0, 1}}
    other_root = {osd: place._replace(root='x' if osd < 4 else 'default')
                  for osd, place in places.items()}
    # It has no other host.
    assert whole_parts({0, 1}, other_root, other_root) == {}


@pytest.mark.parametrize('slow, judged, is_crowd', [
    (2, 8, False), (3, 8, True), (3, 11, True), (3, 12, False), (1, 2, False), (2, 2, True)])
def test_more_than_a_quarter_of_a_class_is_a_crowd(
        slow: int, judged: int, is_crowd: bool) -> None:
    others = {osd: PLACES[osd]._replace(device_class='ssd') for osd in range(40, 48)}
    places = {**PLACES, **others}
    found = crowded([*range(slow), 47], [*range(judged), *others], places)
    assert found == (set(range(slow)) if is_crowd else set())


def test_parts_that_are_slow_as_a_whole_are_no_crowd() -> None:
    assert in_crowded_classes(SCATTERED, PLACES, PLACES) == SCATTERED
    assert in_crowded_classes(SCATTERED - {2}, PLACES, PLACES) == set()
    # All of the first host.
    assert in_crowded_classes(SCATTERED | {1, 3}, PLACES, PLACES) == set()
    assert in_crowded_classes({0}, {0}, PLACES) == set()
    assert in_crowded_classes({0, 12}, {0, 12, 24, 36}, PLACES) == {0, 12}


@pytest.mark.parametrize('slowdowns, named', [
    ({}, set()), ({0: 6.0}, {0}), ({0: 5.99}, set()), ({0: 6.0, 4: 9.0}, {0, 4})])
def test_osds_that_are_far_slower_than_a_crowd_are_named(
        slowdowns: Dict[int, float], named: Set[int]) -> None:
    slow = {**dict.fromkeys(SCATTERED, 2.0), **slowdowns}
    assert unnamed(slow, PLACES, PLACES) == SCATTERED - named


def test_the_finding_on_a_shared_part() -> None:
    slow = {osd: OsdVerdict(osd, score, True, 1e9 + osd, 'reads of osd.%d' % osd)
            for osd, score in ((0, 4.0), (1, 7.0), (2, None), (3, 7.0))}
    assert shared_parts(slow, PLACES, PLACES) == (SlowShared(
        ('host', 'h0'), (0, 1, 2, 3), 4, (), 7.0, 1e9 + 1.5,
        '4 of its 4 hdd OSDs are slow, osd.1: reads of osd.1'),)
    device = {osd: slow[osd] for osd in (0, 1)}
    assert shared_parts(device, PLACES, PLACES) == (SlowShared(
        ('device', 'h0:nvme0'), (0, 1), 2, (), 5.5, 1e9 + 0.5,
        '2 of its 2 hdd OSDs are slow, osd.1: reads of osd.1'),)
    # A host whose OSDs all have the same device, and no class.
    one_device = {osd: place._replace(devices=(place.host + ':nvme', 'h:sd%d' % osd),
                                      device_class='') for osd, place in PLACES.items()}
    unscored = {osd: slow[2]._replace(osd=osd) for osd in (0, 1, 2)}
    assert shared_parts(unscored, one_device, one_device) == (SlowShared(
        ('host', 'h0'), (0, 1, 2), 4, ('h0:nvme',), 1.0, 1e9 + 2.0,
        '3 of its 4 classless OSDs are slow, osd.0: reads of osd.2'),)
    assert shared_parts({5: slow[0]}, PLACES, PLACES) == ()
    # The worst one has a score.
    weak = {0: slow[2]._replace(osd=0), 1: slow[1]._replace(score=0.9)}
    part, = shared_parts(weak, PLACES, PLACES)
    assert part.score == 0.9 and part.why.endswith('osd.1: reads of osd.1')


def slow_ones(score: float, changed: int = 0, of_part: bool = False,
              osds: Iterable[int] = SCATTERED) -> Dict[int, SlowOne]:
    """Of which the first `changed` are slower than they were."""
    return {osd: SlowOne(score, 1000.0 + osd, 'reads of osd.%d' % osd, of_part, number < changed)
            for number, osd in enumerate(sorted(osds))}


def raised_after(slow: Mapping[int, SlowOne], places: Mapping[int, OsdPlace] = PLACES,
                 beat: float = 20.0) -> float:
    """Seconds; 0.0: not within half an hour."""
    parts = SlowParts()
    for number in range(1, 91):
        osds = parts.update(beat, slow, set(places), places, 60.0)
        assert osds == {osd for part in parts.parts for osd in part.osds}
        if osds:
            return number * beat
    return 0.0


#: Half of the class, and most of it.
HALF = {osd for osd in range(48) if osd % 2 == 0}
MOST = {osd for osd in range(48) if osd % 4 != 3}


@pytest.mark.parametrize('slow, seconds', [
    (slow_ones(3.0), 60.0), (slow_ones(2.99), 0.0),
    # Seven of thirteen are slower than they were.
    (slow_ones(2.0, 7), 600.0), (slow_ones(2.0, 6), 0.0), (slow_ones(3.0, 7), 60.0),
    (slow_ones(2.0, 7, osds=SCATTERED | {6}), 0.0),
    (slow_ones(2.0, 8, osds=SCATTERED | {6}), 600.0),
    (slow_ones(3.0, osds=HALF), 60.0),
    # The few others may serve other operations.
    (slow_ones(3.0, osds=MOST), 0.0), (slow_ones(3.0, 19, osds=MOST), 60.0),
    (slow_ones(3.0, osds=SCATTERED - {2}), 0.0)])
def test_for_how_long_a_part_must_be_slow(slow: Mapping[int, SlowOne], seconds: float) -> None:
    assert raised_after(slow) == seconds


@pytest.mark.parametrize('seconds, beats', [(60.0, 1), (59.5, 2), (30.0, 2), (29.9, 3)])
def test_a_part_is_not_reported_early(seconds: float, beats: int) -> None:
    assert raised_after(slow_ones(3.0), beat=seconds) == beats * seconds


def test_what_was_seen_of_a_part_before_it_recovered_does_not_count() -> None:
    parts = SlowParts()
    slow = slow_ones(3.0)

    def update(slow_now: Mapping[int, SlowOne], seconds: float) -> bool:
        return bool(parts.update(seconds, slow_now, set(PLACES), PLACES, 60.0))

    assert not update(slow, 50.0)
    # No OSD is slow, and there is nothing to make up for.
    assert not update({}, 5.0)
    assert not update(slow, 50.0)
    # They are not a part now.
    assert not update(slow_ones(2.99), 300.0) and not update(slow_ones(2.99), 0.5)
    assert not update(slow, 0.5) and not update(slow, 59.0) and update(slow, 0.5)


def test_a_part_that_was_raised_ends_at_the_latest_with_its_last_but_one_osd() -> None:
    for osds, seconds, lasts in (({0, 12}, 59.5, True), ({0, 12}, 60.0, False), ({0}, 1.0, False)):
        parts = SlowParts()
        assert parts.update(60.0, slow_ones(3.0), set(PLACES), PLACES, 60.0)
        remaining = slow_ones(3.0, of_part=True, osds=osds)
        assert parts.update(seconds, remaining, set(PLACES), PLACES, 60.0) == (
            osds if lasts else set())


@pytest.mark.parametrize('after, updates', [
    # As long as it was slow; that of an earlier mgr for as long as it would take to raise it.
    ([20.0] * 3, 3), ([20.0] * 5, 3), ([], 3)])
def test_a_part_is_cleared_after_it_was_not_slow_for_as_long(
        after: Sequence[float], updates: int) -> None:
    parts = SlowParts()
    for passed in after:
        parts.update(passed, slow_ones(3.0), set(PLACES), PLACES, 60.0)
    lasting = slow_ones(3.0, of_part=True, osds=SCATTERED - {2})
    if not after:
        parts.update(0.0, slow_ones(3.0, of_part=True), set(PLACES), PLACES, 60.0)
    cleared = [bool(parts.update(20.0, lasting, set(PLACES), PLACES, 60.0)) for _ in range(4)]
    assert cleared.index(False) == updates - 1


def test_a_part_that_was_raised_lasts_while_most_of_it_is_twice_as_slow() -> None:
    for score, lasts in ((2.0, True), (1.99, False)):
        parts = SlowParts()
        slow = slow_ones(score, of_part=True)
        found: List[Set[int]] = [parts.update(100.0, slow, set(PLACES), PLACES, 60.0)
                                 for _ in range(6)]
        assert bool(found[0]) and bool(found[-1]) is lasts


@pytest.mark.parametrize('osds, place, subject, why', [
    (SCATTERED, ('default', 'hdd'), '13 of 48 hdd OSDs',
     '13 of 48 hdd OSDs are 3.5 times as slow as the others: osd.0, osd.2, osd.4, osd.8, osd.12, '
     'osd.16, osd.20, osd.24, osd.28, osd.32, osd.36, osd.40, osd.44; osd.0: reads of osd.0'),
    (SCATTERED, ('flash', ''), '13 of 48 classless OSDs of root flash',
     '13 of 48 classless OSDs of root flash are 3.5 times as slow as the others: osd.0, osd.2, '
     'osd.4, osd.8, osd.12, osd.16, osd.20, osd.24, osd.28, osd.32, osd.36, osd.40, osd.44; osd.0: '
     'reads of osd.0')])
def test_the_finding_on_a_part(
        osds: Set[int], place: Tuple[str, str], subject: str, why: str) -> None:
    places = {osd: known._replace(root=place[0], device_class=place[1])
              for osd, known in PLACES.items()}
    parts = SlowParts()
    parts.update(60.0, slow_ones(3.5, osds=osds), set(places), places, 60.0)
    assert parts.parts == (SlowPart(*place, tuple(sorted(osds)), subject, 3.5, 1020.0, why),)


def test_a_class_that_is_slow_as_a_whole_is_compared_with_before() -> None:
    parts = SlowParts()
    parts.update(60.0, slow_ones(3.5, 48, osds=range(48)), set(PLACES), PLACES, 60.0)
    part, = parts.parts
    assert part.why == (
        '48 of 48 hdd OSDs are 3.5 times as slow as before: %s and 28 more; osd.0: reads of osd.0'
        % ', '.join('osd.%d' % osd for osd in range(20)))
