# SPDX-License-Identifier: LGPL-2.1-or-later
"""The number of pins is limited by what the mons spend on checking all upmaps for each epoch."""
import errno
import json
from dataclasses import replace
from typing import Any, Callable, Dict

import pytest

from perfguard.cluster.types import Osd, OsdMap, Pool
from perfguard.errors import Refused
from perfguard.options import DEFAULTS
from perfguard.rebalance.fast_peering import epoch_of, release_interval
from perfguard.rebalance.tranches import pin_limit, too_many

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
    assert pin_limit(DEFAULTS, osdmap_of(5000, 3000), own=3000) == free
    assert pin_limit(DEFAULTS, osdmap_of(5000, 60000)) == pytest.approx(free / 6, abs=1)
    assert pin_limit(replace(DEFAULTS, max_pins=7), osdmap_of(5000, 60000)) == 7
    assert too_many(free, DEFAULTS, osdmap_of(5000)) == ''
    text = too_many(90000, DEFAULTS, osdmap_of(5000, 100))
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
    ('apply', of_map, lambda driver: {'crush_map': whole_map(driver)}),
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
    driver.order(verb, *names, force=True, **given)
    driver.run_to('DONE')
    assert driver.cluster.clean() and len(driver.cluster.moved) > 1


def test_a_rollback_with_many_pins_is_refused_unless_it_is_forced() -> None:
    driver = retuned(RetunedCluster())
    driver.ask('start')
    driver.run_until(lambda: driver.status['released'] > 3)
    driver.options = FEW
    with pytest.raises(Refused, match='limit 1 pins, max_pins'):
        driver.order('rollback')
    driver.order('rollback', force=True)
    driver.run_to('DONE')
    assert driver.cluster.clean() and driver.cluster.entries() == {}


def prepared(options: Any) -> Driver:
    driver = Driver(options=options)
    driver.ask('prepare')
    driver.run_to('PREPARED')
    driver.cluster.expand()
    driver.run_until(lambda: len(driver.cluster.remapped()) == 12)
    return driver


def test_pins_of_a_change_by_hand_are_refused_unless_they_are_forced() -> None:
    driver = prepared(FEW)
    driver.ask('pin')
    driver.turn()
    [why] = [event['why'] for event in driver.loop.published.events if event['kind'] == 'refused']
    assert 'limit 1 pins, max_pins' in why and driver.phase == 'PREPARED'
    driver.ask('pin', force=True)
    driver.run_to('PINNED')
    assert driver.status['pinned'] == 12
    driver.ask('start')
    driver.run_to('DONE')


def test_pgs_that_others_remap_are_pinned_up_to_twice_the_limit() -> None:
    driver = prepared(replace(OPTIONS, max_pins=12))
    driver.ask('pin')
    driver.run_to('PINNED')
    driver.options = replace(OPTIONS, max_pins=7)
    driver.ask('start')
    driver.run_until(lambda: driver.status['in_flight'] > 0)
    driver.cluster.backfill_seconds = 1000.0
    driver.cluster.expand(share=1)
    driver.run_until(lambda: 'PIN_LIMIT' in codes(driver.status))
    driver.run(20)
    assert driver.status['pinned'] + driver.status['in_flight'] <= 14
    assert 'norebalance' in driver.cluster.flags and 'PIN_LIMIT' in codes(driver.status)
    driver.ask('acknowledge', code='PIN_LIMIT')
    driver.cluster.backfill_seconds = 4.0
    driver.run_to('DONE')
    assert driver.cluster.clean()


def test_an_abort_pins_all_pgs() -> None:
    driver = prepared(FEW)
    driver.ask('abort')
    driver.run_to('ABORTED')
    assert driver.status['pinned'] == 12 and driver.cluster.clean()
