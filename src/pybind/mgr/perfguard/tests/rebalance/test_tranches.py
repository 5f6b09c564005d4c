# SPDX-License-Identifier: LGPL-2.1-or-later
"""The number of pins is limited by what the mons spend on checking all upmaps for each epoch."""
import errno
import json
import re
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, Callable, Dict, Set, cast

import pytest

from perfguard.cluster.crush import CrushRules
from perfguard.cluster.types import Osd, OsdMap, Pool, UpmapEntry
from perfguard.errors import Refused
from perfguard.options import DEFAULTS
from perfguard.rebalance import tables
from perfguard.rebalance.change import ChangeStage, Led
from perfguard.rebalance.epochs import epoch_of, pin_limit, release_interval, why_too_many_pins
from perfguard.rebalance.report import progress_share
from perfguard.rebalance.risks import RISKS
from perfguard.rebalance.weights import WeightChange

from ..fakes.cluster import FakeReply
from ..fakes.driver import OPTIONS, Driver, codes
from ..fakes.ruled_cluster import RuledCluster
from ..fakes.split_cluster import SplitCluster
from ..fakes.straw_cluster import StrawCluster
from .test_rollback import RetunedCluster, retuned


def osdmap_of(osds: int, upmaps: int = 0, size: int = 3) -> OsdMap:
    pool = Pool(1, 'p', False, size, 2, 0, 65536, 65536, 65536)
    return OsdMap(1, frozenset(), {1: pool}, {osd: Osd(osd, True, 1.0) for osd in range(osds)},
                  {'1.%x' % seed: ((0, 1),) for seed in range(upmaps)}, {}, {})


@pytest.mark.parametrize('osds, size, cpu_ms', [
    (1000, 3, 0.036), (3000, 3, 0.105), (5000, 3, 0.17), (5000, 10, 0.31)])
def test_the_cost_of_an_upmap_is_as_measured(osds: int, size: int, cpu_ms: float) -> None:
    cpu_seconds = 4 * epoch_of(osdmap_of(osds, 1000, size)).upmap_seconds
    assert cpu_seconds == pytest.approx(cpu_ms, rel=0.06)


def test_upmaps_count_in_what_an_epoch_costs_and_slow_proposals_down() -> None:
    few, many = epoch_of(osdmap_of(500)), epoch_of(osdmap_of(500, 60000))
    assert many.mon_seconds - few.mon_seconds == pytest.approx(4 * many.upmap_seconds)
    assert '60000 upmaps' in many.text()
    small = few._replace(pgs=5000, map_bytes=60000)
    assert release_interval(small, 'auto') == '0.1'
    assert release_interval(small._replace(upmaps=many.upmaps), 'auto') is None


def test_pins_may_use_what_other_upmaps_leave_but_always_some() -> None:
    free = pin_limit(DEFAULTS, osdmap_of(5000))
    assert 6500 < free < 7000
    assert pin_limit(DEFAULTS, osdmap_of(5000, 3000)) == pytest.approx(free - 3000, abs=1)
    # Its own pins are no other upmaps.
    assert pin_limit(DEFAULTS, osdmap_of(5000, 3000), own_pins=3000) == free
    assert pin_limit(DEFAULTS, osdmap_of(5000, 60000)) == pytest.approx(free / 6, abs=1)
    assert pin_limit(replace(DEFAULTS, max_pins=7), osdmap_of(5000, 60000)) == 7
    assert why_too_many_pins(free, DEFAULTS, osdmap_of(5000)) == ''
    text = why_too_many_pins(90000, DEFAULTS, osdmap_of(5000, 100))
    assert text.startswith('90000 pins and 100 other upmaps would take the mons about 3.9 s')


FEW = replace(OPTIONS, max_pins=1)


def of_rule() -> Driver:
    return Driver(RuledCluster(), FEW)


def of_pg_num() -> Driver:
    return Driver(SplitCluster(pgs=8), FEW)


def of_map() -> Driver:
    cluster = StrawCluster()
    cluster.add_osds(2, 0.0)
    return Driver(cluster, FEW)


def whole_map(driver: Driver) -> bytes:
    weights = {osd: toy.crush_weight or 1.0 for osd, toy in driver.cluster.toys.items()}
    return json.dumps(weights).encode()


def moves_of(driver: Driver) -> bytes:
    """Mappings of two PGs."""
    found = []
    for pgid in ('1.1', '1.4'):
        up = driver.cluster.pg[pgid].up
        taken = {driver.cluster.toys[osd].domain for osd in up}
        spare = next(osd for osd, toy in driver.cluster.toys.items() if toy.domain not in taken)
        found.append({'pgid': pgid, 'mapping': {'from': up[0], 'to': spare}})
    return json.dumps(found).encode()


@pytest.mark.parametrize('verb, make, arguments', [
    ('rule', of_rule, lambda driver: {'names': ('rep', 'racks')}),
    ('pg_num', of_pg_num, lambda driver: {'names': ('rep', '16')}),
    ('crushmap', of_map, lambda driver: {'crush_map': whole_map(driver)}),
    ('import', of_map, lambda driver: {'mappings': moves_of(driver)})])
def test_a_change_that_cannot_be_divided_is_refused_unless_it_is_forced(
        verb: str, make: Callable[[], Driver],
        arguments: Callable[[Driver], Dict[str, Any]]) -> None:
    driver = make()
    given = arguments(driver)
    names = given.pop('names', ())
    driver.order(verb, *names, dry_run=True, **given)
    with pytest.raises(Refused, match='limit 1 pins, max_pins') as refused:
        driver.order(verb, *names, **given)
    assert refused.value.errno == errno.E2BIG and driver.phase == 'IDLE'
    driver.order(verb, *names, accept=RISKS, **given)
    driver.run_to('DONE')
    assert driver.cluster.clean() and len(driver.cluster.moved) > 1


def test_a_rollback_with_many_pins_is_refused_unless_it_is_forced() -> None:
    driver = retuned(RetunedCluster())
    driver.ask('start')
    driver.run_until(lambda: driver.status['released'] > 3)
    driver.options = FEW
    with pytest.raises(Refused, match='limit 1 pins, max_pins'):
        driver.order('rollback')
    driver.order('rollback', accept=RISKS)
    driver.run_to('DONE')
    assert driver.cluster.clean() and driver.cluster.entries() == {}


def prepared(options: Any, share: int = 2) -> Driver:
    """One in `share` of the 24 PGs is remapped."""
    driver = Driver(options=options)
    driver.ask('prepare')
    driver.run_to('PREPARED')
    assert driver.status['done_ratio'] == 0.0
    driver.cluster.expand(share=share)
    driver.run_until(lambda: len(driver.cluster.remapped()) == 24 // share)
    return driver


def test_pins_of_a_change_by_hand_are_refused_unless_they_are_forced() -> None:
    driver = prepared(FEW)
    driver.ask('pin')
    driver.turn()
    [why] = [event['why'] for event in driver.loop.published.events if event['kind'] == 'refused']
    assert 'limit 1 pins, max_pins' in why and driver.phase == 'PREPARED'
    driver.ask('pin', accept=RISKS)
    driver.run_to('PINNED')
    assert driver.status['pinned'] == 12
    driver.ask('start')
    driver.run_to('DONE')


def test_pgs_that_others_remap_are_pinned_up_to_twice_the_limit() -> None:
    """Or twice the pins that it began with, if the limit has become lower than these."""
    driver = prepared(replace(OPTIONS, max_pins=8), share=3)
    driver.ask('pin')
    driver.run_to('PINNED')
    driver.options = replace(OPTIONS, max_pins=5)
    driver.ask('start')
    driver.run_until(lambda: driver.status['in_flight'] > 0)
    driver.cluster.backfill_seconds = 1000.0
    driver.cluster.expand(share=1)
    driver.run_until(lambda: 'PIN_LIMIT' in codes(driver.status))
    driver.run(20)
    assert driver.status['pinned'] + driver.status['in_flight'] == 16
    assert 'norebalance' in driver.cluster.flags and 'PIN_LIMIT' in codes(driver.status)
    driver.ask('accept', code='PIN_LIMIT')
    driver.cluster.backfill_seconds = 4.0
    driver.run_to('DONE')
    assert driver.cluster.clean()


def test_an_abort_pins_all_pgs() -> None:
    driver = prepared(FEW)
    driver.ask('abort')
    driver.run_to('ABORTED')
    assert driver.status['pinned'] == 12 and driver.cluster.clean()


# ---- tranches of weights

def of_cluster(cluster: StrawCluster, target: str, most: int) -> Driver:
    return Driver(cluster, replace(
        OPTIONS, max_pins=most, max_pgs_in_flight=100, max_backfills_target=100,
        max_backfills_source=100, max_backfills_primary=100, max_backfills_host=100,
        target=target))


def expandable(target: str = 'crush', most: int = 20) -> Driver:
    """79 PGs get a place on three new OSDs."""
    cluster = StrawCluster(pgs=60)
    cluster.add_osds(3, 0.0)
    return of_cluster(cluster, target, most)


def moves_by_pg(cluster: StrawCluster) -> Dict[str, int]:
    found: Dict[str, int] = {}
    for one in cluster.moved:
        found[one.pgid] = found.get(one.pgid, 0) + 1
    return found


def most_held(driver: Driver, done: Callable[[], bool]) -> int:
    """The most PGs that pins held at a time until `done`."""
    most = 0
    for _ in range(1500):
        if done():
            return most
        driver.turn()
        rebalance = driver.loop.rebalance
        flights = rebalance.campaign.flights.in_flight
        entries = driver.cluster.entries()
        held = [pgid for pgid, pin in rebalance.pins.items()
                if pgid not in flights and entries.get(pgid) == pin.entry]
        most = max(most, len(held))
    raise AssertionError('no end: %s %s' % (driver.phase, driver.status['reasons']))


def shares(cluster: StrawCluster, pool: str) -> Dict[int, float]:
    """OSD -> its PGs, less its share."""
    weights = {osd: toy.crush_weight for osd, toy in cluster.toys.items()}
    sets = [pg.up for pgid, pg in cluster.pg.items() if pgid.startswith(pool)]
    total = 3 * len(sets) / sum(weights.values())
    return {osd: sum(osd in up for up in sets) - total * weight
            for osd, weight in weights.items()}


@pytest.mark.parametrize('most', [20, 30])
@pytest.mark.parametrize('target', ['crush', 'balanced'])
def test_an_expansion_comes_in_tranches(target: str, most: int) -> None:
    driver = expandable(target, most)
    cluster: Any = driver.cluster
    found = cluster.foreign()
    shown = driver.order('expand', dry_run=True)
    assert shown['pgs'] == 79 and shown['tranches'] == -(-79 // most)
    assert shown['pin_limit'] == most
    driver.order('expand')
    assert most / 2 < most_held(driver, lambda: driver.phase == 'DONE') <= most
    # A few PGs move for the balance without having been pinned.
    assert cluster.clean() and cluster.foreign() == found and cluster.most_unclean < 1.2 * most
    assert {osd: toy.crush_weight for osd, toy in cluster.toys.items()} == dict.fromkeys(
        range(11), 1.0)
    moves = moves_by_pg(cluster)
    assert sum(number > 1 for number in moves.values()) <= 1 and 70 < len(moves) < 85
    if target == 'crush':
        assert cluster.entries() == {}
        assert all(list(pg.up) == cluster.raw_under(pgid, cluster.toys)
                   for pgid, pg in cluster.pg.items())
    else:
        worst = max(abs(each) for pool in ('1.', '2.') for each in shares(cluster, pool).values())
        assert worst <= 1.0


def change_of(driver: Driver) -> Any:
    return driver.loop.rebalance.campaign.change or WeightChange()


def test_a_tranche_may_have_one_pin() -> None:
    driver = expandable(most=1)
    driver.order('expand')
    driver.run_until(lambda: change_of(driver).following > 0)
    assert change_of(driver).following == 79 - 1
    driver.run_until(lambda: change_of(driver).stage == ChangeStage.LANDED)
    # The result is the campaign's own, not a change by others.
    assert driver.loop.rebalance.campaign.crush.own == driver.cluster.crush_version_


def led_ahead(driver: Driver) -> Set[str]:
    campaign: Any = driver.loop.rebalance.campaign
    return set(campaign.change.ahead)


def test_a_lower_limit_leads_no_further_pg_ahead() -> None:
    """Those that an earlier tranche has led ahead count, also if they are more than the limit."""
    driver = expandable(most=30)
    driver.order('expand')
    driver.run_until(lambda: driver.status['tranche'] == 2)
    led = led_ahead(driver)
    assert len(led) > 5
    driver.options = replace(driver.options, max_pins=14)
    driver.run_until(lambda: driver.status['tranche'] == 3, turns=1500)
    assert led_ahead(driver) <= led


def test_releases_continue_under_a_lower_limit_when_others_remap_a_pg() -> None:
    cluster = StrawCluster(hosts=8, pgs=64, backfill_seconds=6.0)
    cluster.add_osds(4, 0.0)
    driver = Driver(cluster, replace(OPTIONS, target='crush', max_pgs_in_flight=4))
    driver.run(3)
    driver.order('expand', weight='1.0')
    driver.run_until(lambda: driver.status.get('released', 0) >= 4)
    driver.ask('set', option='max_pins', value='25')
    driver.run(3)
    assert driver.status['pinned'] > 50
    cluster.toys[2] = cluster.toys[2]._replace(reweight=0.97)
    cluster.place()
    driver.run_to('DONE', 1200)
    assert cluster.clean() and not cluster.entries()


def test_status_shows_the_tranche_and_counts_those_to_come() -> None:
    driver = expandable()
    driver.order('expand')
    driver.run_until(lambda: driver.status['tranche'] == 2 and driver.phase == 'RELEASING')
    status = driver.status
    assert status['tranches'] >= 4 and status['bytes_total'] > 1.5 * status['bytes_done']
    campaign = driver.loop.rebalance.campaign
    assert 0.1 < progress_share(campaign) < 0.6
    shown = tables.rebalance_status(status)
    assert re.search('tranche +2 of about %d' % status['tranches'], shown)
    driver.run_to('DONE', turns=1500)
    assert driver.status['released'] + driver.status['kept'] == driver.status['total']


def test_a_drain_comes_in_tranches() -> None:
    cluster = StrawCluster(hosts=6, osds_per_host=2, pgs=60)
    driver = of_cluster(cluster, 'crush', 15)
    found = cluster.foreign()
    shown = driver.order('drain', 'osd.2', 'osd.3')
    assert shown['tranches'] > 2
    assert 7 < most_held(driver, lambda: driver.phase == 'DONE') <= 15
    assert cluster.clean() and cluster.foreign() == found and cluster.entries() == {}
    assert not any({2, 3} & set(pg.up) for pg in cluster.pg.values())
    assert [cluster.toys[osd].crush_weight for osd in (2, 3)] == [0.0, 0.0]
    moves = moves_by_pg(cluster)
    assert max(moves.values()) <= 2
    assert sum(number > 1 for number in moves.values()) <= len(moves) / 10
    driver.order('undrain', 'osd.2', 'osd.3')
    assert 7 < most_held(driver, lambda: driver.phase == 'DONE') <= 15
    assert [cluster.toys[osd].crush_weight for osd in (2, 3)] == [1.0, 1.0]


def test_a_drain_that_was_aborted_between_its_tranches_names_the_way_back() -> None:
    """The OSDs have weights between, which "undrain" does not know."""
    cluster = StrawCluster(hosts=6, osds_per_host=2, pgs=60)
    driver = of_cluster(cluster, 'crush', 15)
    driver.order('drain', 'osd.2', 'osd.3')
    driver.run_until(lambda: driver.status['tranche'] == 2 and driver.phase == 'RELEASING')
    driver.ask('abort')
    driver.run_to('ABORTED')
    assert 0.1 < cluster.toys[2].crush_weight < 1.0
    with pytest.raises(Refused, match='not drained .*osd.2.*"campaign rollback"'):
        driver.order('undrain', 'osd.2', 'osd.3')
    driver.order('rollback')
    driver.run_to('DONE', turns=1500)
    assert [cluster.toys[osd].crush_weight for osd in (2, 3)] == [1.0, 1.0]


def test_accepted_pins_end_the_division() -> None:
    driver = expandable()
    driver.order('expand')
    driver.run_until(lambda: driver.status['released'] > 5)
    assert driver.status['tranches'] > 2
    driver.ask('accept', code='PIN_LIMIT')
    driver.run_until(lambda: driver.status['tranche'] == 2 and driver.phase == 'RELEASING')
    assert driver.status['tranches'] == 2 and driver.status['pinned'] > 40
    driver.run_to('DONE')


def test_a_change_without_pins_beside_more_pins_than_allowed() -> None:
    """The aborted campaign was accepted with more pins."""
    cluster = StrawCluster(pgs=60)
    cluster.add_osds(4, 0.0)
    driver = of_cluster(cluster, 'crush', 0)
    driver.order('expand', 'osd.8', 'osd.9')
    driver.run_until(lambda: driver.status['released'] > 5)
    driver.ask('abort')
    driver.run_to('ABORTED')
    driver.options = replace(driver.options, max_pins=2)
    assert driver.status['pinned'] > 2
    driver.order('expand', 'osd.10', weight='0.0001')
    driver.run_to('DONE', 900)
    assert cluster.clean() and not cluster.entries()


@pytest.mark.parametrize('when', ['moving', 'wanted', 'aborted'])
def test_a_weight_that_others_change_is_left_alone(when: str) -> None:
    driver = expandable()
    cluster: Any = driver.cluster
    driver.order('expand')
    driver.run_until(lambda: driver.status['released'] > 5)
    if when != 'moving':
        # The next tranche has not been sent.
        driver.run_until(lambda: driver.status['tranche'] == 2)
        assert driver.phase == 'PINNING'
    cluster.weigh(9, 0.0)
    if when == 'aborted':
        driver.ask('abort')
        driver.run_to('ABORTED')
        driver.ask('resume')
    driver.run_to('DONE', turns=1500)
    assert [cluster.toys[osd].crush_weight for osd in (8, 9, 10)] == [1.0, 0.0, 1.0]
    assert any('the CRUSH weight of osd.9 stays as it is' in event['what']
               for event in driver.loop.published.events)


@pytest.mark.parametrize('when', ['RELEASING', 'PINNING'])
@pytest.mark.parametrize('then', ['resume', 'rollback', 'finish'])
def test_aborted_between_tranches(when: str, then: str) -> None:
    driver = expandable()
    cluster: Any = driver.cluster
    before = {pgid: pg.up for pgid, pg in cluster.pg.items()}
    found = cluster.foreign()
    driver.order('expand')
    driver.run_until(lambda: driver.status['tranche'] == 2 and driver.phase == when
                     and (when == 'PINNING' or driver.status['released'] > 25))
    tranches = driver.status['tranches']
    driver.ask('abort')
    driver.run_to('ABORTED')
    driver.turn()
    assert cluster.clean() and driver.status['held']
    assert driver.status['tranches'] == tranches
    assert 'CRUSH weights are changed in part' in ' '.join(driver.status['reasons'])
    if then == 'rollback':
        driver.order('rollback', accept=RISKS)
    else:
        driver.ask(then, keep=then == 'finish')
    driver.run_to('DONE', turns=1500)
    assert cluster.clean() and cluster.foreign() == found
    weights = [cluster.toys[osd].crush_weight for osd in (8, 9, 10)]
    if then == 'finish':
        assert 0.1 < min(weights) and max(weights) < 0.9
    elif then == 'resume':
        assert weights == [1.0] * 3 and cluster.entries() == {}
    else:
        assert weights == [0.0] * 3 and cluster.entries() == {}
        assert {pgid: pg.up for pgid, pg in cluster.pg.items()} == before


def after_a_tranche() -> Any:
    """A driver in the second tranche, and a PG that an upmap has led ahead."""
    driver = expandable()
    driver.order('expand')
    driver.run_until(lambda: driver.status['tranche'] == 2 and driver.phase == 'RELEASING')
    campaign = driver.loop.rebalance.campaign
    assert campaign.change is not None
    return driver, next(pgid for pgid in campaign.change.ahead if pgid.startswith('2.')
                        and pgid not in driver.loop.rebalance.pins
                        and driver.cluster.entries().get(pgid))


def expand_and_roll_back(driver: Any, released: int) -> None:
    """Once more than so many PGs are released."""
    driver.order('expand')
    driver.run_until(lambda: driver.status['released'] > released, turns=1500)
    driver.ask('abort')
    driver.run_to('ABORTED')
    driver.order('rollback', accept=RISKS)
    driver.run_to('DONE', turns=1500)


@pytest.mark.parametrize('most', [30, 200])
def test_a_rollback_leaves_no_upmap_of_the_balance(most: int) -> None:
    driver = expandable('balanced', most)
    cluster = driver.cluster
    expand_and_roll_back(driver, 60)
    assert cluster.entries() == {} and cluster.clean()


@pytest.mark.parametrize('target', ['balanced', 'crush'])
def test_a_rollback_restores_the_upmaps_that_the_change_made_pointless(target: str) -> None:
    driver = expandable(target, 200)
    cluster = driver.cluster
    for pgid in list(cluster.pg)[::3]:
        old, *others = cluster.pg[pgid].up
        taken = {cluster.toys[osd].host for osd in others}
        cluster.add_upmap(pgid, old, next(
            osd for osd, toy in cluster.toys.items()
            if toy.crush_weight and osd != old and toy.host not in taken))
    driver.run_until(cluster.clean)
    before, places = cluster.entries(), {pgid: pg.up for pgid, pg in cluster.pg.items()}
    expand_and_roll_back(driver, 40)
    assert {pgid: pg.up for pgid, pg in cluster.pg.items()} == places
    assert cluster.entries() == before


def test_a_vector_that_has_led_a_pg_ahead_is_removed_at_the_end() -> None:
    """It hides where CRUSH places the PG, and the mons keep it."""
    driver, pgid = after_a_tranche()
    cluster, campaign = driver.cluster, driver.loop.rebalance.campaign
    vector = UpmapEntry(vector=cluster.pg[pgid].up)
    cluster.pg[pgid].mon.commit(vector=vector.vector)
    change = replace(campaign.change, ahead={
        **campaign.change.ahead, pgid: Led(UpmapEntry(), vector)})
    driver.loop.rebalance.campaign = replace(campaign, change=change)
    driver.run_to('DONE', turns=1500)
    assert cluster.entries() == {} and cluster.clean()


@pytest.mark.parametrize('deaf', [False, True])
def test_the_end_does_not_wait_for_pairs_that_the_mons_do_not_remove(deaf: bool) -> None:
    driver, _ = after_a_tranche()
    cluster, asked = driver.cluster, []
    apply = cluster._apply

    def at_the_end(command: Any) -> Any:
        if 'upmap' in command['prefix'] and not driver.loop.rebalance.pins \
                and not driver.loop.rebalance.campaign.flights.in_flight:
            asked.append(command['pgid'])
            if deaf:
                return FakeReply(0)
        return apply(command)

    cluster._apply = at_the_end
    driver.run_to('DONE', turns=1500)
    assert asked and cluster.clean()
    assert set(cluster.entries()) == (set(asked) if deaf else set())


def test_a_rollback_leaves_an_upmap_alone_that_others_set_on_a_pg_led_ahead() -> None:
    driver, pgid = after_a_tranche()
    cluster = driver.cluster
    raw = cluster.pg[pgid].mon.raw
    old = next(osd for osd in raw if osd < 8)
    other = next(osd for osd in range(8) if osd not in (*raw, *cluster.pg[pgid].up))
    cluster.add_upmap(pgid, old, other)
    driver.ask('abort')
    driver.run_to('ABORTED')
    driver.order('rollback', accept=RISKS)
    driver.run_to('DONE', turns=1500)
    assert cluster.entries() == {pgid: UpmapEntry(((old, other),))}


def test_an_osd_with_several_weights_is_not_divided() -> None:
    """A part of the difference to the one would be more than the other."""
    driver = expandable()
    crush = driver.cluster.crush(0)
    change = WeightChange(weights={0: 0.5})
    assert change.is_divisible(crush)
    uneven = SimpleNamespace(uneven={0: {'root a': 1.0, 'root b': 0.1}})
    assert not change.is_divisible(cast(CrushRules, uneven))
