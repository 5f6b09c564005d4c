# SPDX-License-Identifier: LGPL-2.1-or-later
"""What is expected of an OSD: by its peers, at their load."""
import math
from typing import Dict, List, Optional, Sequence, Tuple

import pytest

from perfguard.cluster.types import OsdPlace
from perfguard.watch.osd_window import (COMMITS, READS, REPLICATED, STORE_READS, WRITES, OsdWindow,
                                        WindowLatency)
from perfguard.watch.peers import (CLIP, LEARN_SECONDS, MIN_PEERS, MIN_SPREAD, Excused, LoadPoint,
                                   OsdExpectation, Partners, PeerComparison, PeerFinding, Peers,
                                   Rise, ScoreBaseline, _choose, compare, compare_with_few,
                                   excuse_waiting, fitted_utilisation, groups_of, growth, judge,
                                   loads_of, median, queue_allowance, score_of, weighted_quantile,
                                   worst)
from perfguard.watch.types import DELETION, RESTART, SCRUB, SOURCE, TARGET, Flow, OsdSample

from ..fakes.functions import whole


def point(osd: int, ms: float, rate: float = 100.0, ops: float = 1e5) -> LoadPoint:
    return LoadPoint(osd, WindowLatency(ms, ms, math.log(ms), ops),
                     loads_of(0.6 * rate, 0.4 * rate))


def alike(count: int, ms: float = 10.0) -> List[LoadPoint]:
    """Within some percent of each other in latency and load."""
    return [point(osd, ms * (0.95 + 0.1 * (osd * 7 % count) / count),
                  95 + 10 * (osd * 3 % count) / count) for osd in range(count)]


def queue(rates: Sequence[float], capacity: float = 200.0) -> List[LoadPoint]:
    """M/M/1: all alike but for their load."""
    return [point(osd, 1000 / (capacity - rate), rate) for osd, rate in enumerate(rates)]


def test_the_slow_do_not_move_what_is_expected() -> None:
    healthy = Peers(alike(12)).expected(loads_of(60, 40))
    some_slow = alike(12)[:8] + [point(osd, 500.0) for osd in range(8, 12)]
    assert Peers(some_slow).expected(loads_of(60, 40)) == pytest.approx(healthy, abs=0.05)


@pytest.mark.parametrize('others, judged', [(2, False), (3, True)])
def test_three_others_are_needed(others: int, judged: bool) -> None:
    points = alike(others) + [point(99, 30.0)]
    found = compare(points[-1], Peers(points), True)
    assert (found is not None) == judged
    if found is not None:
        assert found.peers == 3 and found.score == pytest.approx(3.0, rel=0.1)


def test_in_a_small_group_an_osd_does_not_vouch_for_itself() -> None:
    points = alike(3) + [point(99, 30.0)]
    found = compare(points[-1], Peers(points), True)
    assert found is not None and found.spread_ms < 1.0


def test_load_explains_latency_within_the_range_of_the_peers() -> None:
    peers = Peers(queue([60 + 5 * i for i in range(16)]))  # 60 to 135 of 200
    assert math.exp(peers.expected(loads_of(0.6 * 130, 0.4 * 130))) == pytest.approx(
        1000 / 70, rel=0.15)


def test_the_latency_of_slow_osds_is_not_taken_for_that_of_their_load() -> None:
    """A third of the OSDs, most of them with more load than the median."""
    points = [point(osd, 10.0 * (1.0 + osd * 7 % 12 / 100), 100.0 + 3 * osd) for osd in range(12)]
    for osd in (4, 7, 8, 10):
        points[osd] = point(osd, 300.0, 100.0 + 3 * osd)
    points[8] = point(8, 300.0, 110.0)
    peers = Peers(points)
    assert peers.utilisation < 0.2 and 9.0 < math.exp(peers.expected(loads_of(66, 44))) < 12.0
    # The hottest ones are slow for their load.
    assert Peers(queue([60 + 2 * i for i in range(13)] + [180, 185, 190])).utilisation > 0.2


@pytest.mark.parametrize('new', [30, 38, 45])
def test_new_osds_with_few_pgs_are_no_reason_to_expect_less(new: int) -> None:
    """While they are filled, their loads and those of the others are far apart. A queue with the
    slope between both, at the low load of most, would be saturated at the load of the others."""
    points = [point(osd, 0.6 + 0.1 * (osd % 3), 4.0 + osd % 9) for osd in range(new)]
    points += [point(osd, 3000 / (3300 - rate), rate) for osd, rate in enumerate(
        range(200, 1000, 800 // (63 - new)), new)]
    peers = Peers(points)
    assert 0.5 < math.exp(peers.expected(loads_of(5, 3))) < 0.9
    assert compare(points[2], peers, True).score < 1.5  # type: ignore[union-attr]


def test_the_curve_of_a_queue_passes_its_own_points() -> None:
    """Also where the loads are far apart."""
    for rates in ((20, 40, 60), (5, 6, 150), (5, 140, 150)):
        points = queue([rate for rate in rates for _ in range(6)])
        peers = Peers(points)
        for rate in rates:
            assert peers.expected(loads_of(0.6 * rate, 0.4 * rate)) >= math.log(
                1000 / (200 - rate)) - 0.05
        assert math.exp(peers.spread) < 1.02


def test_a_low_load_lowers_nothing() -> None:
    peers = Peers(queue([60 + 5 * i for i in range(16)]))
    assert peers.expected(loads_of(1, 1)) == peers.expected(loads_of(0.6 * 97, 0.4 * 97))


@pytest.mark.parametrize('ratio', [1.2, 1.5, 1.8])
def test_a_hot_osd_is_not_slow(ratio: float) -> None:
    peers = Peers(queue([80 + 2.5 * i for i in range(16)]))  # about half utilised
    hot = point(99, 1000 / (200 - 100 * ratio), 100 * ratio)
    found = peers.compare(hot, 16)
    allowed = queue_allowance(peers.utilisation, found.load_ratio, 1.15)
    assert found.score < 1.5 * allowed


def test_where_an_osd_may_be_saturated_no_latency_is_too_much() -> None:
    assert queue_allowance(0.6, 1.3, 1.15) == math.inf
    assert queue_allowance(0.6, 1.0, 1.15) == pytest.approx(0.4 / (1 - 0.6 * 1.15))


def test_a_load_of_other_composition_counts_as_load() -> None:
    """As many operations, but writes, which may cost more than reads."""
    peers = Peers([point(osd, 10.0) for osd in range(12)])
    assert peers.expected(loads_of(0, 100)) > peers.expected(loads_of(60, 40)) + math.log(2)


def test_the_load_ratio_is_one_of_operations() -> None:
    peers = Peers([point(osd, 10.0) for osd in range(12)])
    for reads, writes, ratio in ((60, 40, 1.0), (0, 100, 1.0), (300, 0, 3.0)):
        given = point(99, 20.0)._replace(loads=loads_of(reads, writes))
        assert peers.compare(given, 12).load_ratio == pytest.approx(ratio, rel=0.05)


def test_few_operations_prove_little() -> None:
    points = alike(12)
    many, few = point(99, 20.0), point(99, 20.0, ops=24)
    assert Peers(points).compare(many, 12).deviations > 5 > Peers(points).compare(
        few, 12).deviations


def places(models: Dict[str, int]) -> Dict[int, OsdPlace]:
    names = [model for model, count in models.items() for _ in range(count)]
    return {osd: OsdPlace(osd, 'h', 'default', 'ssd', model) for osd, model in enumerate(names)}


@pytest.mark.parametrize('models, groups, minorities', [
    ({'a': 6, 'b': 5}, 'aaaaaabbbbb', []),
    ({'a': 6, 'b': 4}, 'aaaaaa****', [6, 7, 8, 9]),
    ({'a': 4}, '****', []),
])
def test_a_model_is_a_group_when_it_has_members_enough(
        models: Dict[str, int], groups: str, minorities: List[int]) -> None:
    found, strange = groups_of(places(models))
    assert ''.join(found[osd][3] for osd in sorted(found)) == groups
    assert [osd for osd, is_strange in strange.items() if is_strange] == minorities


def test_osds_with_different_stores_are_no_peers() -> None:
    """Three without a DB device, and one whose metadata the mgr has not received yet."""
    where = {osd: OsdPlace(osd, 'h', 'default', 'hdd', 'm', store=(
        'plain' if osd < 3 else 'DB on flash')) for osd in range(12)}
    where[11] = where[11]._replace(store='')
    groups, strange = groups_of(where)
    assert len({groups[osd] for osd in range(3)}) == 1
    assert len({groups[osd] for osd in range(3, 12)}) == 1
    assert groups[0] != groups[3] and not any(strange.values())


# ---- OSDs that only wait for a slow replica

RATIO = 1.5


def finding(channel: int, ms: float, expected_ms: float = 1.0) -> PeerFinding:
    return PeerFinding(channel, PeerComparison(ms, ms, expected_ms, 0.1, 20.0, 0.1, 1.0, 9), 1.0)


#: OSDs below 100 are of one class, the others of another one.
PLACES = {osd: OsdPlace(osd, 'h', 'default', 'ssd' if osd < 100 else 'hdd') for osd in range(200)}


def excused(findings: Dict[int, List[PeerFinding]], partners: Partners = {}) -> Excused:
    found = excuse_waiting(findings, RATIO, PLACES, partners)
    assert found.findings.keys() == findings.keys(), 'who has no finding left is still judged'
    return found


def left(findings: Dict[int, List[PeerFinding]]) -> Dict[int, List[int]]:
    return {osd: [each.channel for each in found]
            for osd, found in excused(findings).findings.items()}


def test_without_a_cause_everything_stays() -> None:
    findings = {1: [finding(READS, 5.0)], 2: [finding(WRITES, 9.0)], 3: [finding(COMMITS, 1.1)]}
    assert excused(findings) == (findings, {}, frozenset())


def test_what_waits_for_a_replica_is_explained_by_it() -> None:
    findings = {1: [finding(READS, 5.0), finding(WRITES, 3.0)],
                3: [finding(REPLICATED, 6.0), finding(READS, 4.0)]}
    assert left(findings) == {1: [], 3: [REPLICATED, READS]}


def test_a_slow_store_is_a_cause_too() -> None:
    assert left({1: [finding(READS, 5.0)], 3: [finding(COMMITS, 300.0)]}) == {1: [], 3: [COMMITS]}


def test_an_osd_slower_than_the_cause_explains_is_slow_itself() -> None:
    assert left({1: [finding(READS, 50.0)], 3: [finding(REPLICATED, 6.0)]}) == {
        1: [READS], 3: [REPLICATED]}


def test_two_causes_are_both_named() -> None:
    findings = {1: [finding(COMMITS, 8.0), finding(WRITES, 5.0)], 3: [finding(REPLICATED, 90.0)],
                4: [finding(STORE_READS, 7.0), finding(READS, 7.0)]}
    assert left(findings) == {1: [COMMITS, WRITES], 3: [REPLICATED], 4: [STORE_READS, READS]}


def test_what_is_not_over_the_ratio_is_no_cause() -> None:
    findings = {1: [finding(READS, 5.0)], 3: [finding(REPLICATED, 1.3)]}
    assert excused(findings) == (findings, {}, frozenset())


def test_an_osd_waits_for_the_slowest_replica_only_if_it_may_share_pgs_with_it() -> None:
    findings = {1: [finding(READS, 5.0)], 2: [finding(READS, 5.0)], 101: [finding(READS, 5.0)],
                3: [finding(COMMITS, 9.0)], 4: [finding(COMMITS, 7.0), finding(READS, 4.0)],
                102: [finding(READS, 1.0)]}
    found = excused(findings)
    assert found.waits_for == {1: 3, 2: 3} and found.replicas == {3, 4}
    assert found.findings[101] and not found.findings[1]
    # Known partners may be of another class: rules may place primaries on flash, replicas on disks.
    assert excused(findings, {3: {1, 3, 101}}).waits_for == {1: 3, 2: 4, 101: 3}
    assert excused(findings, {3: {2, 3}, 4: {2, 4}}).waits_for == {2: 3}
    assert not excused(findings, {3: set(), 4: set()}).waits_for


def test_osds_with_the_same_work_are_peers_if_there_are_enough() -> None:
    for scrubbing, chosen in ((MIN_PEERS, ''), (MIN_PEERS + 1, 'scrub')):
        kinds = {'scrub': Peers(alike(scrubbing)), '': Peers(alike(12))}
        assert _choose('scrub', kinds) == chosen


@pytest.mark.parametrize('load, expected_ms', [(100.0, 1.0), (30.0, 20.0)])
def test_most_may_be_slow_but_not_because_the_others_have_less_to_do(
        load: float, expected_ms: float) -> None:
    few = [point(osd, 1.0, load) for osd in range(3)]
    peers = Peers(few + [point(osd, 20.0) for osd in range(3, 8)])
    assert math.exp(peers.expected(loads_of(60, 40))) == pytest.approx(expected_ms, rel=0.1)


def test_osds_with_other_operations_have_no_less_to_do() -> None:
    """The fast ones only read, as often."""
    readers = [point(osd, 1.0)._replace(loads=loads_of(100.0, 0.0)) for osd in range(3)]
    peers = Peers(readers + [point(osd, 20.0) for osd in range(3, 8)])
    assert math.exp(peers.expected(loads_of(60, 40))) == pytest.approx(1.0, rel=0.1)


def test_one_slow_moment_changes_little_of_what_was_learned() -> None:
    assert ScoreBaseline(seconds=0.0).learned(9.0, 10.0).mean == 9.0, 'nothing was'
    known = ScoreBaseline(mean=1.0, seconds=LEARN_SECONDS)
    share = 10.0 / (LEARN_SECONDS + 10.0)
    for value, most in ((9.0, CLIP), (-9.0, -CLIP)):
        assert known.learned(value, 10.0).mean == pytest.approx(1.0 + share * most * known.sigma())


# ---- Exact figures

@pytest.mark.parametrize('ordered, middle', [
    ([5.0], 5.0), ([1.0, 4.0], 2.5), ([1.0, 2.0, 9.0], 2.0), ([1.0, 2.0, 4.0, 9.0], 3.0)])
def test_the_median(ordered: List[float], middle: float) -> None:
    assert median(ordered) == middle


@pytest.mark.parametrize('share, value', [
    (0.0, 1.0), (0.1, 1.0), (0.11, 2.0), (0.5, 2.0), (0.51, 3.0), (1.0, 3.0)])
def test_quantiles_with_weights(share: float, value: float) -> None:
    assert weighted_quantile([(3.0, 5.0), (1.0, 1.0), (2.0, 4.0)], share) == value


def test_no_quantile_of_nothing() -> None:
    with pytest.raises(ValueError, match='no values'):
        weighted_quantile([], 0.5)


@pytest.mark.parametrize('utilisation, load_ratio, factor', [
    (0.0, 9.0, 1.0), (0.5, 1.0, 1.0), (0.5, 1.5, 2.0), (0.5, 0.5, 0.5 / 0.75),
    # No more than 95 % of the capacity, and ten powers of e of load.
    (0.5, 1.9, 10.0), (0.5, 3.0, 10.0), (1e-9, math.exp(10.0), 1.0 / (1.0 - 1e-9 * math.exp(10.0))),
    (1e-9, math.exp(12.0), 1.0 / (1.0 - 1e-9 * math.exp(10.0)))])
def test_the_latency_of_a_queue_by_its_load(
        utilisation: float, load_ratio: float, factor: float) -> None:
    assert math.exp(growth(utilisation, math.log(load_ratio))) == pytest.approx(factor)


@pytest.mark.parametrize('rise, middle, utilisation', [
    (Rise(0.0, 0.0, 0.0), 0.0, 0.0),
    # From half of the load, with 0.3 of the capacity, to twice as much: 0.7 / 0.4 times as slow.
    (Rise(math.log(0.5), 0.0, math.log(0.7 / 0.4) / math.log(2.0)), 0.0, 0.6),
    (Rise(0.0, math.log(2.0), math.log(0.7 / 0.4) / math.log(2.0)), 0.0, 0.3),
    (Rise(1.0, 1.0 + math.log(2.0), math.log(0.7 / 0.4) / math.log(2.0)), 1.0, 0.3),
    # Steeper than any queue.
    (Rise(-0.1, 0.1, 99.0), 0.0, 0.95 * math.exp(-0.1)), (Rise(-0.2, -0.1, 99.0), 0.0, 0.95)])
def test_the_queue_that_fits_a_rise(rise: Rise, middle: float, utilisation: float) -> None:
    assert fitted_utilisation(rise, middle) == pytest.approx(utilisation, abs=2e-6)


@pytest.mark.parametrize('utilisation, load_ratio, factor, allowance', [
    (0.3, 1.0, 2.0, 0.7 / 0.4), (0.3, 2.0, 1.2, 0.4 / 0.28),
    (0.5, 1.0, 0.95 / 0.6, math.inf), (0.5, 1.0, 0.949 / 0.6, 0.5 / (1.0 - 0.5 * 0.949 / 0.6))])
def test_how_much_slower_more_load_may_make_an_osd(
        utilisation: float, load_ratio: float, factor: float, allowance: float) -> None:
    assert queue_allowance(utilisation, load_ratio, factor) == pytest.approx(allowance)


@pytest.mark.parametrize('reads, writes, loads', [
    (10.0, 5.0, (15.0, 30.0, 45.0)), (0.0, 0.0, (1e-3, 1e-3, 1e-3)),
    (0.0, 3e-4, (1e-3, 1.2e-3, 1e-3))])
def test_the_loads_of_an_osd(
        reads: float, writes: float, loads: Tuple[float, float, float]) -> None:
    assert tuple(map(math.exp, loads_of(reads, writes))) == pytest.approx(loads)


def test_the_comparison_with_peers_that_are_alike() -> None:
    """Five of 8 to 12 ms with the load of the point, and 10 to 12 peers."""
    peers = Peers([point(osd, ms) for osd, ms in enumerate((8.0, 9.0, 10.0, 11.0, 12.0))])
    found = peers.compare(point(9, 25.0, ops=10000.0), 5)
    # The deviations of the logarithms: the median of 0, 0.095, 0.105, 0.182 and 0.223.
    spread = 1.4826 * math.log(10.0 / 9.0)
    sigma = spread * (1.0 + 2.0 / 5)
    assert found[:3] == pytest.approx((25.0, 25.0, 10.0))
    assert found.spread_ms == pytest.approx(10.0 * (math.exp(spread) - 1.0))
    assert found.sigma == pytest.approx(sigma)
    assert found.deviations == pytest.approx(math.log(2.5) / sigma)
    assert (found.load_ratio, found.load, found.peers) == pytest.approx((1.0, math.log(100.0), 5))
    few = peers.compare(point(9, 25.0, ops=100.0), 5)
    assert found.op_sigma == pytest.approx(few.op_sigma / 10)


def test_peers_without_any_spread() -> None:
    found = Peers([point(osd, 10.0) for osd in range(8)]).compare(point(9, 20.0), 8)
    assert found.sigma == pytest.approx(MIN_SPREAD * 1.25) and found.spread_ms == 0.0


@pytest.mark.parametrize('rate, expected_ms', [
    # The load that two others have as well, and twice as much beyond it.
    (50.0, 10.0), (100.0, 10.0), (120.0, 10.0), (240.0, 40.0)])
def test_what_is_expected_of_a_load_beyond_that_of_few_peers(
        rate: float, expected_ms: float) -> None:
    peers = Peers([point(osd, 10.0, load) for osd, load in enumerate(
        (100.0, 100.0, 120.0, 130.0, 140.0))])
    assert math.exp(peers.expected(loads_of(0.6 * rate, 0.4 * rate))) == pytest.approx(expected_ms)


@pytest.mark.parametrize('count, excluded', [(30, True), (31, False)])
def test_an_osd_is_not_its_own_peer_among_thirty(count: int, excluded: bool) -> None:
    points = [point(osd, 10.0 if osd < count // 2 else 11.0) for osd in range(count - 1)]
    slow = point(99, 13.0)
    found = compare(slow, Peers([*points, slow]), True)
    assert found == Peers(points if excluded else [*points, slow]).compare(slow, count - 1)


def test_the_comparison_with_one_or_two_others() -> None:
    points = [point(1, 10.0), point(2, 14.0), point(3, 30.0)]
    found = compare_with_few(points[2], points)
    assert found is not None
    assert (found[0].expected_ms, found[0].peers, found[1]) == pytest.approx((14.0, 2, 10.0))
    assert compare_with_few(points[2], points[2:]) is None


# ---- Findings

def found_of(ms: float, expected_ms: float = 1.0, deviations: float = 9.0,
             recent_ms: Optional[float] = None, op_sigma: float = 0.1, load: float = 0.0,
             sigma: float = 0.2, **more: float) -> PeerFinding:
    return PeerFinding(READS, PeerComparison(
        ms, ms if recent_ms is None else recent_ms, expected_ms, 0.1, deviations, op_sigma, 1.0, 9,
        load, sigma), more.pop('allowance', 1.0), **more)  # type: ignore[arg-type]


#: Twice as slow as its peers at all times, with a standard deviation of a tenth.
TWICE = ScoreBaseline(math.log(2.0), 0.01, LEARN_SECONDS)


@pytest.mark.parametrize('finding, usual, is_slow', [
    (found_of(1.5), None, True), (found_of(1.49), None, False),
    (found_of(1.5, recent_ms=1.49), None, False), (found_of(1.49, recent_ms=1.5), None, False),
    (found_of(3.0, allowance=2.0), None, True), (found_of(2.99, allowance=2.0), None, False),
    # An excess of 0.2 ms, and another one that matters.
    (found_of(0.401, 0.2), None, True), (found_of(0.399, 0.2), None, False),
    (found_of(1.0, 0.5, least_ms=0.5), None, True),
    (found_of(0.999, 0.5, least_ms=0.5), None, False),
    (found_of(1.5, deviations=5.0), None, True), (found_of(1.5, deviations=4.99), None, False),
    # Against its own history: 1.5 times, and five standard deviations.
    (found_of(3.31, deviations=4.0), TWICE, True), (found_of(3.29, deviations=4.0), TWICE, False),
    (found_of(3.31, deviations=4.0), TWICE._replace(seconds=LEARN_SECONDS - 1.0), False),
    (found_of(2.72 * 2.0, deviations=4.0, op_sigma=0.2), TWICE, True),
    (found_of(2.71 * 2.0, deviations=4.0, op_sigma=0.2), TWICE, False),
    (found_of(3.01, deviations=4.0, op_sigma=0.08), TWICE._replace(variance=0.0), True),
    (found_of(2.97, deviations=4.0, op_sigma=0.08), TWICE._replace(variance=0.0), False)])
def test_when_an_osd_is_slow(
        finding: PeerFinding, usual: Optional[ScoreBaseline], is_slow: bool) -> None:
    assert finding.is_slow(RATIO, usual) is is_slow


@pytest.mark.parametrize('finding, usual, is_slow', [
    (found_of(1.5, deviations=2.0), None, True), (found_of(1.5, deviations=1.99), None, False),
    (found_of(1.49), None, False), (found_of(1.5, recent_ms=1.49), None, False),
    # Half of the excess that makes it slow.
    (found_of(1.0, 0.5, least_ms=1.0), None, True),
    (found_of(0.999, 0.5, least_ms=1.0), None, False),
    (found_of(3.01, deviations=1.0), TWICE, True), (found_of(2.99, deviations=1.0), TWICE, False),
    (found_of(3.01, deviations=1.0), TWICE._replace(seconds=1.0), False),
    (found_of(3.65, deviations=1.0, op_sigma=0.3), TWICE, True),
    (found_of(3.63, deviations=1.0, op_sigma=0.3), TWICE, False)])
def test_when_a_slow_osd_is_still_slow(
        finding: PeerFinding, usual: Optional[ScoreBaseline], is_slow: bool) -> None:
    assert finding.is_still_slow(RATIO, usual) is is_slow


@pytest.mark.parametrize('load, expected_ms', [
    (0.0, 2.0), (-1.0, 2.0), (math.log(2.0), 8.0), (11.0, 2.0 * math.exp(20.0))])
def test_an_earlier_expectation_at_the_load_of_now(load: float, expected_ms: float) -> None:
    found = found_of(9.0, 5.0, load=load, op_sigma=0.1).against(OsdExpectation(2.0, 0.0, 0.3))
    assert found.earlier and found.comparison.expected_ms == pytest.approx(expected_ms)
    assert found.comparison.deviations == pytest.approx(math.log(9.0 / expected_ms) / 0.3)
    few = found_of(9.0, 5.0, load=load, op_sigma=0.6).against(OsdExpectation(2.0, 0.0, 0.3))
    assert few.comparison.deviations == pytest.approx(math.log(9.0 / expected_ms) / 0.6)


def test_what_was_expected_and_more_than_that() -> None:
    finding = found_of(9.0, 2.0, load=0.7, sigma=0.25)
    assert finding.expected() == OsdExpectation(2.0, 0.7, 0.25)
    more = finding.with_more(1.0).comparison
    assert (more.expected_ms, more.deviations) == pytest.approx((3.0, math.log(3.0) / 0.25))


@pytest.mark.parametrize('relative, latency, expected_ms, sigma', [
    # The fastest peer takes 2 ms: 1.5 times that is 3 ms. The OSD's own 5 ms are more.
    (math.log(1.5), 5.0, 5.0, 0.1), (math.log(1.5), 2.5, 3.0, 0.1), (-1.0, 1.5, 2.0, 0.1),
    (0.0, 5.0, 5.0, 0.3)])
def test_the_history_of_an_osd_in_a_small_group(
        relative: float, latency: float, expected_ms: float, sigma: float) -> None:
    finding = found_of(9.0, 7.0, op_sigma=0.1, fastest_ms=2.0)
    own = (ScoreBaseline(relative, (0.3 if sigma == 0.3 else 0.05) ** 2, LEARN_SECONDS),
           ScoreBaseline(math.log(latency)))
    found = finding.with_history(own)
    assert found.with_own and found.allowance == 1.0
    assert (found.comparison.expected_ms, found.comparison.sigma, found.comparison.deviations) == \
        pytest.approx((expected_ms, sigma, math.log(9.0 / expected_ms) / sigma))
    for unknown in (None, (own[0]._replace(seconds=LEARN_SECONDS - 1.0), own[1])):
        assert finding.with_history(unknown) == finding._replace(allowance=2.0)


@pytest.mark.parametrize('score, allowance, weight', [
    (10.0, 1.0, 1.0), (20.0, 1.0, 1.0), (10.0 ** 0.5, 1.0, 0.5), (20.0, 2.0, 1.0),
    (2.0 * 10.0 ** 0.3, 2.0, 0.3)])
def test_the_weight_of_the_evidence(score: float, allowance: float, weight: float) -> None:
    assert found_of(score, allowance=allowance).weight() == pytest.approx(weight)


@pytest.mark.parametrize('ms, expected_ms, score', [
    (1.2, 1.0, 1.2), (0.4, 0.2, 2.0), (0.3, 0.2, 1.25), (0.22, 0.2, 1.05), (0.1, 0.2, 0.5),
    (0.5, 2.0, 0.25)])
def test_a_score_is_below_the_ratio_while_the_excess_does_not_matter(
        ms: float, expected_ms: float, score: float) -> None:
    """Less than 0.2 ms."""
    assert score_of(found_of(ms, expected_ms), RATIO) == pytest.approx(score)


def test_the_most_significant_finding() -> None:
    high, certain = found_of(9.0, deviations=4.9), found_of(2.0, deviations=5.0)
    assert worst([high, certain], RATIO) == (certain, 2.0)
    assert worst([certain, high, found_of(3.0)], RATIO) == (found_of(3.0), 3.0)
    assert worst([found_of(1.5, deviations=1.0), high], RATIO) == (high, 9.0)
    assert worst([], RATIO) == (None, -1.0)


def judged(latencies: Sequence[float], busy: Dict[int, str] = {}, models: str = '',
           rate: float = 20.0) -> Dict[int, List[PeerFinding]]:
    """The findings on OSDs with reads of these latencies in ms, alike but for their models."""
    where = {osd: OsdPlace(osd, 'h', 'default', 'hdd', models[osd:osd + 1])
             for osd in range(len(latencies))}
    windows = {osd: OsdWindow() for osd in where}
    for osd, window in windows.items():
        for number in range(4):
            window.add(100.0 + 5 * number, OsdSample(
                osd, 5.0, Flow(rate, latencies[osd]), store_read=Flow(rate, latencies[osd])), 60.0)
    return whole(judge(windows, where, busy))


@pytest.mark.parametrize('latencies, busy, models, allowance, score', [
    ([1.0] * 4 + [9.0], {}, '', 1.0, 9.0),
    # It scrubs, and so do its peers.
    ([1.0] * 4 + [9.0], {4: 'scrub'}, '', 1.75 ** 2, 9.0),
    ([1.0] * 4 + [9.0], dict.fromkeys(range(5), 'scrub'), '', 2.0, 9.0),
    # Its model is a minority.
    ([1.0] * 6 + [1.0] * 3 + [9.0], {}, 'aaaaaabbbb', 2.0, 9.0),
    ([1.0] * 6 + [1.0] * 3 + [9.0], {9: 'scrub'}, 'aaaaaabbbb', 2.0 * 1.75 ** 2, 9.0),
    ([1.0] * 5 + [1.0] * 4 + [9.0], {}, 'aaaaabbbbb', 1.0, 9.0),
    # The queues of two or three OSDs are not known: 0.5 / (1 - 0.5 * 1.2) of their latency.
    ([1.0] * 2 + [9.0], {}, '', 1.25, 9.0), ([1.0] + [9.0], {}, '', 1.25, 9.0),
    ([1.0] * 2 + [1.11], {}, '', 1.25, 1.11), ([1.0] * 2 + [1.09], {}, '', 1.0, 1.09),
    ([1.0] * 2 + [9.0], {2: 'scrub'}, '', math.inf, 9.0)])
def test_what_an_osd_is_allowed(latencies: Sequence[float], busy: Dict[int, str], models: str,
                                allowance: float, score: float) -> None:
    last = len(latencies) - 1
    findings = {finding.channel: finding for finding in judged(latencies, busy, models)[last]}
    assert findings[READS].allowance == pytest.approx(allowance)
    assert findings[READS].score == pytest.approx(score)
    # Scrubs read more at a time than clients do.
    assert (STORE_READS in findings) is (last not in busy)


@pytest.mark.parametrize('kind, is_judged', [
    (DELETION, True), (RESTART, False), (SCRUB, False), (TARGET, False), (SOURCE, False)])
def test_the_reads_of_a_store_that_deletes_pgs_count(kind: str, is_judged: bool) -> None:
    """Of a drive with erasure-coded pools, nothing else shows that reads are slow."""
    findings = judged([1.0] * 4 + [9.0], {4: kind}, '')[4]
    assert (STORE_READS in {finding.channel for finding in findings}) is is_judged


def test_a_single_osd_has_no_peers() -> None:
    assert judged([9.0]) == {}
    assert judged([1.0, 9.0])[1][0].fastest_ms == pytest.approx(1.0)
    assert judged([1.0] * 4 + [9.0])[4][0].fastest_ms == 0.0


@pytest.mark.parametrize('device_class, least_ms', [
    ('ssd', 0.05), ('nvme', 0.05), ('hdd', 0.2), ('', 0.2)])
def test_a_smaller_excess_matters_on_flash(device_class: str, least_ms: float) -> None:
    where = {osd: OsdPlace(osd, 'h', 'default', device_class) for osd in range(5)}
    windows = {osd: OsdWindow() for osd in where}
    for osd, window in windows.items():
        for number in range(4):
            window.add(100.0 + 5 * number, OsdSample(osd, 5.0, Flow(
                20.0, 9.0 if osd == 4 else 1.0)), 60.0)
    findings = whole(judge(windows, where, {}))
    assert {osd: [(row.channel, row.least_ms, row.score) for row in rows]
            for osd, rows in findings.items()} == {
        osd: [(READS, least_ms, 9.0 if osd == 4 else 1.0)] for osd in where}


def test_what_a_baseline_learns() -> None:
    first = ScoreBaseline().learned(0.4, 200.0)
    # The variance is that of the deviation from what was known before.
    assert first == pytest.approx((0.4, 0.16, 200.0)) and not first.known
    second = first.learned(0.7, 100.0)
    assert second.known and second == pytest.approx((0.5, 0.16 + (0.09 - 0.16) / 3, 300.0))
    late = ScoreBaseline(0.5, 0.01, 7200.0).learned(0.6, 36.0)
    assert late == pytest.approx((0.5 + 0.001, 0.01, 7236.0))
    assert ScoreBaseline(0.0, 0.0, 0.0).sigma() == 0.08 and second.sigma() == pytest.approx(
        (0.16 - 0.07 / 3) ** 0.5)
