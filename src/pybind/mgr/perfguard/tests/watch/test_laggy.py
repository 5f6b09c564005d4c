# SPDX-License-Identifier: LGPL-2.1-or-later
"""Laggy PGs: which they are, and which OSD is the suspect."""
import random
from typing import Dict, Iterable, List, Mapping, Optional, Tuple

import pytest

from perfguard.cluster.types import OsdSet, PgCounts, Pressure, UnreadablePg
from perfguard.watch.laggy import (HANGS, LOAD, MECHANISM_TEXTS, MOST_LAGGY_PGS, MOST_SUSPECTS,
                                   NO_MECHANISM, LaggyEpisode, LaggyPg,
                                   LaggyPgs, LaggySignals, Suspect, episode_after, is_slow_ping,
                                   median_ping_ms, slow_pings, suspects)

NAN = float('nan')
BUSY, IDLE = Pressure(0.88, 89.6), Pressure(0.11, 5.3)


class Osds:
    """A replicated pool of which some PGs are laggy, as the OSDs would report it."""

    def __init__(self, osds: int, pgs: int, size: int = 3, seed: int = 1) -> None:
        rnd = random.Random(seed)
        self.acting = {'1.%x' % number: tuple(rnd.sample(range(osds), size))
                       for number in range(pgs)}
        self.osds = osds

    def stopped(self, suspect: int) -> List[str]:
        """PGs in whose acting set an OSD hangs; those that it leads keep their last state."""
        return [pgid for pgid, acting in self.acting.items() if suspect in acting[1:]]

    def wedged(self, primary: int) -> List[str]:
        return [pgid for pgid, acting in self.acting.items() if acting[0] == primary]

    def seen(self, laggy: Iterable[str], known: Optional[Iterable[str]] = None,
             silent: Mapping[int, float] = {}, ping_ms: Mapping[int, float] = {},
             pressures: Mapping[int, Pressure] = {}) -> LaggySignals:
        laggy = list(laggy)
        counts: Dict[int, PgCounts] = {}
        for osd in range(self.osds):
            mine = [pgid for pgid, acting in self.acting.items() if osd in acting]
            counts[osd] = PgCounts(total=len(mine), laggy=len(set(mine) & set(laggy)))
        return LaggySignals(len(laggy), counts, [
            LaggyPg(pgid, self.acting[pgid][0], self.acting[pgid], 100.0)
            for pgid in (laggy if known is None else known)], silent, ping_ms, pressures)


@pytest.mark.parametrize('osds, size', [(6, 3), (12, 3), (60, 3), (12, 2), (20, 6)])
def test_the_osd_that_hangs_is_named_first(osds: int, size: int) -> None:
    for suspect in range(0, osds, 5):
        cluster = Osds(osds, 16 * osds, size, seed=suspect)
        laggy = cluster.stopped(suspect)
        # At first it only looks like this, later it is known not to report.
        both: Tuple[Mapping[int, float], ...] = ({}, {suspect: 21.0})
        for silent in both:
            found = suspects(cluster.seen(laggy, silent=silent))
            assert found[0].osd == suspect
            assert 'in the acting set of %d of %d laggy' % (len(laggy), len(laggy)) in found[0].why
            assert 'primary of none of the' in found[0].why
            assert [each.score for each in found] == sorted(
                (each.score for each in found), reverse=True)
        assert 'no report for 21 s' in found[0].why
        assert '"ceph osd down %d"' % suspect in found[0].advice


@pytest.mark.parametrize('suspect', range(3))
def test_where_every_osd_has_every_pg(suspect: int) -> None:
    """Then the primaries of the PGs decide."""
    cluster = Osds(3, 64)
    cases: List[Tuple[List[str], Mapping[int, float]]] = [
        (cluster.stopped(suspect), {}), (cluster.wedged(suspect), {}),
        (cluster.stopped(suspect), {suspect: 30.0})]
    for laggy, silent in cases:
        found = suspects(cluster.seen(laggy, silent=silent))
        assert found[0].osd == suspect and found[0].score > found[1].score


def test_a_slow_answer_to_heartbeats_is_a_hint() -> None:
    cluster = Osds(6, 96)
    pings = {osd: 0.5 for osd in range(6)}
    plain = suspects(cluster.seen(cluster.stopped(4), ping_ms=pings))[0]
    slow = suspects(cluster.seen(cluster.stopped(4), ping_ms={**pings, 4: 900.0}))[0]
    assert (plain.osd, slow.osd) == (4, 4) and slow.score > plain.score
    assert ('heartbeat ping time 900 ms '
            '(median of all OSDs 0.5 ms)') in slow.why and 'network' in slow.advice
    assert 'heartbeats' not in plain.why and plain.advice == ''
    # On a slow network all are slow.
    equal = suspects(cluster.seen(cluster.stopped(4), ping_ms={osd: 900.0 for osd in range(6)}))
    assert 'heartbeats in' not in equal[0].why


def test_a_renewal_that_may_be_lost_is_a_hint() -> None:
    cluster = Osds(12, 192)
    laggy = cluster.wedged(5)
    found = suspects(cluster.seen(laggy, ping_ms={osd: 0.5 for osd in range(12)},
                                  pressures={5: IDLE}))
    assert found[0].osd == 5 and 'renewal may have been lost' in found[0].why
    assert '"ceph pg repeer ' in found[0].advice
    assert found[0].advice.split('"')[1].split()[-1] in laggy
    assert not any('may have been lost' in each.why for each in found[1:])


@pytest.mark.parametrize('silent, ping_ms', [({5: 20.0}, {}), ({}, {5: 5000.0})])
def test_no_lost_renewal_where_the_osd_itself_is_in_trouble(
        silent: Mapping[int, float], ping_ms: Mapping[int, float]) -> None:
    cluster = Osds(12, 192)
    pings = {**{osd: 0.5 for osd in range(12)}, **ping_ms}
    found = suspects(cluster.seen(cluster.wedged(5), silent=silent, ping_ms=pings))
    assert found[0].osd == 5 and 'may have been lost' not in found[0].why


def test_a_lost_renewal_is_found_while_another_osd_is_silent() -> None:
    cluster = Osds(60, 600)
    laggy = cluster.wedged(5)
    (other, *_) = set(range(60)) - {osd for pgid in laggy for osd in cluster.acting[pgid]}
    found = suspects(cluster.seen(laggy, silent={other: 99.0}, pressures={5: IDLE}))
    assert found[0].osd == 5 and 'may have been lost' in found[0].why


def test_a_stopped_osd_is_no_lost_renewal_of_others() -> None:
    cluster = Osds(6, 96)
    laggy = cluster.stopped(4)
    assert not any('may have been lost' in each.why for each in suspects(cluster.seen(laggy)))
    # At first only one primary has answered.
    for osd in set(range(6)) - {4}:
        known = [pgid for pgid in laggy if cluster.acting[pgid][0] == osd]
        assert len(known) >= 2
        found = suspects(cluster.seen(laggy, known))
        assert found[0].osd == 4 and not any('may have been lost' in each.why for each in found)


# ---- how

PINGS = {osd: 0.5 for osd in range(12)}


@pytest.mark.parametrize('silent, ping_ms, pressure, mechanism', [
    ({5: 21.0}, PINGS, IDLE, HANGS),
    # Evidence from before it hung does not count.
    ({5: 21.0}, {**PINGS, 5: 900.0}, BUSY, HANGS),
    ({}, PINGS, BUSY, LOAD),
    ({}, {**PINGS, 5: 900.0}, BUSY, LOAD),
    # The network may be slow, or the OSD may stop for moments.
    ({}, {**PINGS, 5: 900.0}, IDLE, NO_MECHANISM),
    ({}, {**PINGS, 5: 900.0}, Pressure(0.5), NO_MECHANISM),
    ({}, {**PINGS, 5: 900.0}, None, NO_MECHANISM),
    ({}, {**PINGS, 5: 900.0}, Pressure(0.1, 455.6), NO_MECHANISM),
    ({}, PINGS, IDLE, NO_MECHANISM),
    ({}, PINGS, None, NO_MECHANISM)])
def test_the_mechanism_is_what_the_evidence_says(
        silent: Mapping[int, float], ping_ms: Mapping[int, float], pressure: Optional[Pressure],
        mechanism: str) -> None:
    cluster = Osds(12, 192)
    pressures = {**{osd: IDLE for osd in range(12)}, **({5: pressure} if pressure else {})}
    if pressure is None:
        del pressures[5]
    signals = cluster.seen(cluster.stopped(5), None, silent, ping_ms, pressures)
    first, *others = suspects(signals)
    assert (first.osd, first.mechanism) == (5, mechanism)
    assert {suspect.mechanism for suspect in others} == {NO_MECHANISM}
    if pressure is BUSY:
        assert 'messenger thread works 88 % of the time' in first.why
        assert 'its operations wait 89.6 ms, also for leases' in first.why


@pytest.mark.parametrize('pressure, ping_ms, mechanism', [
    (Pressure(0.7), 0.5, LOAD), (Pressure(0.69), 0.5, NO_MECHANISM),
    (Pressure(0.7), 900.0, LOAD), (Pressure(0.3), 900.0, NO_MECHANISM)])
def test_how_busy_a_suspect_may_be(pressure: Pressure, ping_ms: float, mechanism: str) -> None:
    cluster = Osds(12, 192)
    signals = cluster.seen(cluster.stopped(5), None, {}, {**PINGS, 5: ping_ms}, {5: pressure})
    assert suspects(signals)[0].mechanism == mechanism


#: Two OSDs with laggy PGs, one of them with five PGs of ten laggy ones.
PARTS = {1: PgCounts(total=20, laggy=4, wait=1), 2: PgCounts(total=10, laggy=10),
         3: PgCounts(total=9)}


def led(by_1: int, by_2: int) -> List[LaggyPg]:
    return [LaggyPg('1.%x' % number, 1 if number < by_1 else 2, (1, 2), 100.0)
            for number in range(by_1 + by_2)]


@pytest.mark.parametrize('signals, rated', [
    (LaggySignals(10, PARTS), [
        Suspect(2, 0.6, 'in the acting set of 10 of 10 laggy PGs'),
        Suspect(1, 0.275, 'in the acting set of 5 of 10 laggy PGs')]),
    # Four of ten PGs are too few for a lost renewal.
    (LaggySignals(10, PARTS, led(0, 4)), [
        Suspect(2, 0.6, 'in the acting set of 10 of 10 laggy PGs, primary of 4 of the 4 known'),
        Suspect(1, 0.325, 'in the acting set of 5 of 10 laggy PGs, primary of none of the 4 '
                'known')]),
    (LaggySignals(10, PARTS, led(1, 4), pressures={2: IDLE}), [
        Suspect(2, 0.82, 'in the acting set of 10 of 10 laggy PGs, primary of 4 of the 5 known, '
                'its busiest messenger thread works 11 % of the time, its operations wait 5.3 ms, '
                'also for leases, answers heartbeats and reports: a read lease renewal may have '
                'been lost',
                'force a new interval, which renews the leases: "ceph pg repeer 1.1", likewise for '
                'the other PGs'),
        Suspect(1, 0.315, 'in the acting set of 5 of 10 laggy PGs, primary of 1 of the 5 known')]),
    # Three of five PGs are too few for one primary.
    (LaggySignals(10, PARTS, led(2, 3), pressures={2: Pressure(0.2)}), [
        Suspect(2, 0.64, 'in the acting set of 10 of 10 laggy PGs, primary of 3 of the 5 known, '
                'its busiest messenger thread works 20 % of the time'),
        Suspect(1, 0.305, 'in the acting set of 5 of 10 laggy PGs, primary of 2 of the 5 known')]),
    (LaggySignals(10, PARTS, silent={1: 31.0, 3: 20.4}, ping_ms={1: 900.0, 2: 90.0, 3: 4.0}), [
        Suspect(2, 0.6, 'in the acting set of 10 of 10 laggy PGs'),
        Suspect(1, 0.575, 'in the acting set of 5 of 10 laggy PGs, no report for 31 s',
                'osd.1 hangs or its host is unreachable: check both; "ceph osd down 1" makes its '
                'PGs peer without it', HANGS),
        Suspect(3, 0.3, 'in the acting set of 0 of 10 laggy PGs, no report for 20 s',
                'osd.3 hangs or its host is unreachable: check both; "ceph osd down 3" makes its '
                'PGs peer without it', HANGS)]),
    (LaggySignals(10, PARTS, ping_ms={1: 10.1, 2: 10.0, 3: 0.5, 4: 0.6, 5: 0.6}), [
        Suspect(2, 0.6, 'in the acting set of 10 of 10 laggy PGs'),
        Suspect(1, 0.475, 'in the acting set of 5 of 10 laggy PGs, heartbeat ping time 10 ms '
                '(median of all OSDs 0.6 ms)', 'check the network and the load of the host of '
                'osd.1')]),
    (LaggySignals(10, PARTS, pressures={1: BUSY}), [
        Suspect(2, 0.6, 'in the acting set of 10 of 10 laggy PGs'),
        Suspect(1, 0.475, 'in the acting set of 5 of 10 laggy PGs, its busiest messenger thread '
                'works 88 % of the time, its operations wait 89.6 ms, also for leases',
                'let clients write less at a time, or give its messenger more threads: "ceph '
                'config set osd ms_async_op_threads 6", then restart it', LOAD)])])
def test_how_suspects_are_rated(signals: LaggySignals, rated: List[Suspect]) -> None:
    assert list(suspects(signals)) == rated


@pytest.mark.parametrize('total, known, is_named', [
    (1, 1, False), (2, 2, True), (4, 2, True), (5, 2, False), (1000, 100, True),
    (1000, 99, False)])
def test_how_many_laggy_pgs_must_be_known_for_a_lost_renewal(
        total: int, known: int, is_named: bool) -> None:
    """Half of them, of those that are kept."""
    signals = LaggySignals(total, PARTS, led(0, known), pressures={2: IDLE})
    suspect = suspects(signals)[0]
    assert ('may have been lost' in suspect.why) is is_named
    assert suspect.mechanism == NO_MECHANISM


@pytest.mark.parametrize('of_suspect, of_another, is_named', [
    (Pressure(0.3, 20.0), Pressure(0.3, None), True), (Pressure(0.31, 20.0), IDLE, False),
    (Pressure(0.3, 20.1), IDLE, False), (IDLE, Pressure(0.31), False),
    (IDLE, Pressure(0.3, 20.1), False)])
def test_a_renewal_may_be_lost_where_no_osd_is_busy(
        of_suspect: Pressure, of_another: Pressure, is_named: bool) -> None:
    signals = LaggySignals(4, PARTS, led(0, 4), pressures={2: of_suspect, 9: of_another})
    assert ('may have been lost' in suspects(signals)[0].why) is is_named


def test_where_several_pgs_were_laggy_before_their_counts_each_is_whole() -> None:
    """Counts of another moment: more PGs of an OSD are laggy than there are in all."""
    only, = suspects(LaggySignals(2, {1: PgCounts(total=8, laggy=4)}))
    assert only == Suspect(1, 0.55, 'in the acting set of 4 of 2 laggy PGs')


@pytest.mark.parametrize('ping_ms, usual_ms, is_slow', [
    (10.0, 0.5, False), (10.01, 0.5, True), (10.01, 2.0, True), (50.0, 10.0, False),
    (50.01, 10.0, True)])
def test_when_heartbeats_are_slow(ping_ms: float, usual_ms: float, is_slow: bool) -> None:
    assert is_slow_ping(ping_ms, usual_ms) is is_slow


def test_the_usual_time_of_heartbeats() -> None:
    assert median_ping_ms({}) == 0.0 and median_ping_ms({5: 7.0}) == 7.0
    assert median_ping_ms({1: 4.0, 2: 1.0, 3: 3.0}) == 3.0
    assert slow_pings({1: 60.0, 2: 1.0, 3: 3.0, 4: 16.0, 5: 2.0}) == {1, 4}


def test_the_text_of_an_episode() -> None:
    episode = LaggyEpisode(1.0, 0.0, 3, HANGS, 'no report', 2.0)
    assert episode.text() == \
        'main suspect osd.3 (mechanism: it hangs, or is cut off from the network): no report'
    assert episode._replace(mechanism='of a later release').text() == \
        'main suspect osd.3 (mechanism: of a later release): no report'


def test_in_a_flood_no_renewal_is_lost() -> None:
    """All PGs of one primary are laggy, and one of their replicas has no time to answer."""
    cluster = Osds(12, 192)
    laggy = cluster.wedged(5)

    def is_hinted_at(pressures: Mapping[int, Pressure]) -> bool:
        return 'may have been lost' in suspects(cluster.seen(laggy, pressures=pressures))[0].why

    assert is_hinted_at({5: IDLE})
    # It is not known yet whether it is busy.
    assert not is_hinted_at({}) and not is_hinted_at({5: Pressure(0.5)})
    replica = cluster.acting[laggy[0]][1]
    busy = {suspect.osd: suspect for suspect in suspects(
        cluster.seen(laggy, pressures={5: IDLE, replica: BUSY}))}
    assert busy[5].mechanism == NO_MECHANISM and busy[replica].mechanism == LOAD
    assert 'ms_async_op_threads' in busy[replica].advice


def test_an_episode_keeps_the_last_evidence() -> None:
    unknown, hangs = Suspect(3, 0.6, 'in all'), Suspect(4, 0.9, 'no report', '', HANGS)
    assert episode_after(None, 100.0, 101.0, None) is None
    begun = episode_after(None, 100.0, 101.0, unknown)
    assert begun == LaggyEpisode(100.0, 0.0, 3, NO_MECHANISM, 'in all', 101.0)
    evident = episode_after(begun, 100.0, 106.0, hangs)
    assert evident == LaggyEpisode(100.0, 0.0, 4, HANGS, 'no report', 106.0)
    assert episode_after(evident, 100.0, 111.0, unknown) is evident
    assert episode_after(evident, 100.0, 116.0, None) is evident
    assert evident is not None and MECHANISM_TEXTS[HANGS] in evident.text()
    # The next one knows nothing of it.
    ended = evident._replace(until=120.0)
    assert episode_after(ended, 500.0, 501.0, None) is ended
    assert episode_after(ended, 500.0, 501.0, unknown) == LaggyEpisode(
        500.0, 0.0, 3, NO_MECHANISM, 'in all', 501.0)


def test_not_more_suspects_than_anybody_reads() -> None:
    cluster = Osds(60, 2048)
    assert len(suspects(cluster.seen(cluster.acting))) == MOST_SUSPECTS


def test_nothing_known_and_nonsense() -> None:
    assert suspects(LaggySignals(0, {})) == ()
    assert suspects(LaggySignals(5, {1: PgCounts(total=4)})) == ()
    # Counts of different moments do not add up.
    (only,) = suspects(LaggySignals(0, {1: PgCounts(laggy=4)}, ping_ms={1: NAN, 2: -1.0}))
    assert only.osd == 1


# ---- which PGs

#: OSDs that still have laggy PGs.
LAGGY = {osd: PgCounts(total=9, laggy=3) for osd in range(9)}


def acting(pgid: str) -> Optional[OsdSet]:
    return {'1.0': (1, 2), '1.1': (1, 3), '1.2': (2, 1)}.get(pgid)


def named(pgs: LaggyPgs) -> List[Tuple[str, float]]:
    return [(pg.pgid, pg.since) for pg in pgs.all()]


def test_pgs_are_known_until_their_primary_names_them_no_more() -> None:
    pgs = LaggyPgs()
    pgs.update(100.0, {1: [UnreadablePg('1.0', 10.0, 2), UnreadablePg('1.1', 3.0, 1)],
                       2: [UnreadablePg('1.2', 20.0, 1)]}, acting, LAGGY)
    assert named(pgs) == [('1.2', 80.0), ('1.0', 90.0), ('1.1', 97.0)]
    assert (pgs.all()[0].primary, pgs.all()[0].acting) == (2, (2, 1))
    # Its oldest operation is another now, the PG is as long laggy as before.
    pgs.update(110.0, {1: [UnreadablePg('1.0', 5.0, 2)]}, acting, LAGGY)
    assert named(pgs) == [('1.2', 80.0), ('1.0', 90.0)]
    pgs.update(115.0, {2: []}, acting, LAGGY)
    assert named(pgs) == [('1.0', 90.0)]
    pgs.clear()
    assert named(pgs) == []


def test_a_pg_in_a_new_interval_is_another_matter() -> None:
    pgs = LaggyPgs()
    pgs.update(100.0, {1: [UnreadablePg('1.0', 10.0, 2), UnreadablePg('1.1', 3.0, 1)]}, acting,
               LAGGY)
    moved = {'1.0': (2, 1), '1.1': (1, 3)}
    pgs.update(105.0, {}, moved.get, LAGGY)
    assert named(pgs) == [('1.1', 97.0)]
    pgs.update(110.0, {2: [UnreadablePg('1.0', 1.0, 2)]}, moved.get, LAGGY)
    assert named(pgs) == [('1.1', 97.0), ('1.0', 109.0)]


def test_pgs_of_a_primary_without_laggy_pgs_are_readable_again() -> None:
    pgs = LaggyPgs()
    pgs.update(100.0, {1: [UnreadablePg('1.0', 10.0, 2)], 2: [UnreadablePg('1.2', 9.0, 1)]},
               acting, LAGGY)
    pgs.update(105.0, {}, acting, {1: PgCounts(total=9), 2: PgCounts(total=9, wait=1)})
    assert named(pgs) == [('1.2', 91.0)]


def test_a_pg_that_does_not_exist_is_no_pg() -> None:
    pgs = LaggyPgs()
    pgs.update(100.0, {1: [UnreadablePg('9.9', 1.0, 1)]}, acting, LAGGY)
    assert named(pgs) == []


def test_not_more_pgs_than_anybody_reads() -> None:
    pgs = LaggyPgs()
    pgs.update(1000.0, {osd: [UnreadablePg('1.%x' % (100 * osd + number), float(number), 1)
                              for number in range(90)] for osd in range(5)},
               lambda pgid: (int(pgid[2:], 16) // 100, 7), LAGGY)
    assert len(pgs.all()) == MOST_LAGGY_PGS
    assert pgs.all()[0].since == 911.0
