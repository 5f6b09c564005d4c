# SPDX-License-Identifier: LGPL-2.1-or-later
"""Plans of another rule or pg_num for a pool, and of replaced devices."""
import errno
from typing import Any, Dict, Tuple

import pytest

from perfguard.cluster.types import PoolPgs
from perfguard.errors import Refused
from perfguard.rebalance.orders import Order
from perfguard.rebalance.plans import APPROVE, LS, SAVE, PlanOrder
from perfguard.rebalance.replacing import REPLACE

from ..fakes.driver import Driver
from ..fakes.ruled_cluster import RULES, RuledCluster
from ..fakes.split_cluster import SplitCluster
from .test_replacing import filled, phases

KEYS = {'osds', 'bytes', 'primaries_moving', 'eta_low_seconds', 'eta_high_seconds', 'borrowed'}


def number_of(name: str) -> int:
    return [rule.name for rule in RULES].index(name)


def save(driver: Driver, verb: str, *names: str) -> Any:
    return driver.give(PlanOrder(SAVE, 'p', Order(verb, names)))


def approve(driver: Driver) -> Any:
    return driver.give(PlanOrder(APPROVE, 'p'))


def pgs_of(driver: Driver) -> Dict[int, int]:
    return {osd: row.pgs or 0 for osd, row in driver.cluster.osd_space().items()}


def check_effects(driver: Driver, saved: Any, carry_out: bool = True) -> None:
    """What the plan says of OSDs is what they have before, at most, and at the end."""
    rows = {row['osd']: row for row in saved['preview']['osds']}
    before = pgs_of(driver)
    assert rows and {osd: row['pgs_before'] for osd, row in rows.items()} == {
        osd: before[osd] for osd in rows}
    approve(driver)
    most = dict(before)

    def done() -> bool:
        for osd, number in pgs_of(driver).items():
            most[osd] = max(most[osd], number)
        return driver.phase == 'DONE'

    driver.run_until(done, 900)
    driver.run(5)
    after = pgs_of(driver)
    assert {osd: row['pgs_after'] for osd, row in rows.items()} == {
        osd: after[osd] for osd in rows}
    assert all(after[osd] == before[osd] for osd in before if osd not in rows)
    assert all(most[osd] <= row['pgs_peak'] for osd, row in rows.items())


@pytest.mark.parametrize('begin, end', [(8, 16), (16, 8), (8, 11)])
def test_a_plan_of_another_pg_num(begin: int, end: int) -> None:
    driver = Driver(SplitCluster(pgs=begin))
    preview = driver.order('pg_num', 'rep', str(end), dry_run=True)
    saved = save(driver, 'pg_num', 'rep', str(end))
    assert saved['preview'] == preview and KEYS <= preview.keys()
    assert saved['change'] == 'pg_num rep %d' % end and driver.phase == 'IDLE'
    driver.restart()
    driver.turn()
    check_effects(driver, saved)
    cluster: Any = driver.cluster
    assert cluster.numbers[1] == PoolPgs(1, end, end) and cluster.clean()
    assert driver.status['trigger'] == 'pg_num' and driver.give(PlanOrder(LS))['plans'] == []


@pytest.mark.parametrize('start, name', [('hosts', 'racks'), ('hosts-hdd', 'hosts-ssd'),
                                         ('racks', 'hosts')])
def test_a_plan_of_another_rule(start: str, name: str) -> None:
    driver = Driver(RuledCluster(rule=number_of(start)))
    saved = save(driver, 'rule', 'rep', name)
    assert KEYS <= saved['preview'].keys() and saved['preview']['rule']['to'] == name
    check_effects(driver, saved)
    assert driver.status['trigger'] == 'rule' and driver.cluster.clean()


def crush(driver: Any) -> None:
    driver.cluster._weigh(3, 2.0)


def split(driver: Any) -> None:
    driver.cluster.targets[1] = PoolPgs(1, 12, 12)


@pytest.mark.parametrize('change, text', [
    (crush, r'CRUSH \(version .*osd.3'), (split, 'pool rep: pg_num 8, now 12')])
def test_a_plan_of_another_pg_num_is_refused_with_what_has_changed(change: Any, text: str) -> None:
    driver = Driver(SplitCluster(pgs=8))
    save(driver, 'pg_num', 'rep', '16')
    change(driver)
    driver.run(60)
    sent = list(driver.cluster.sent)
    with pytest.raises(Refused, match=text) as refused:
        approve(driver)
    assert refused.value.errno == errno.ESTALE
    driver.run(3)
    assert driver.phase == 'IDLE' and driver.cluster.sent == sent


def test_a_plan_that_would_take_another_intermediate_rule_is_refused(
        monkeypatch: pytest.MonkeyPatch) -> None:
    driver = Driver(RuledCluster(rule=number_of('hosts-hdd')))
    assert save(driver, 'rule', 'rep', 'hosts-ssd')['preview']['rule']['via'] == 'hosts'
    monkeypatch.setattr('perfguard.rebalance.crush_orders.bridging_rule',
                        lambda *_: number_of('racks'))
    with pytest.raises(Refused, match='intermediate CRUSH rule: hosts, now racks') as refused:
        approve(driver)
    assert refused.value.errno == errno.ESTALE and driver.phase == 'IDLE'


def test_a_plan_names_the_number_of_pgs() -> None:
    driver = Driver(SplitCluster(pgs=8))
    driver.cluster.recommended = {'rep': 16}
    with pytest.raises(Refused, match='recommends 16 for pool rep'):
        save(driver, 'pg_num', 'rep')


def test_a_split_that_crowds_an_osd_is_refused_unless_it_is_forced() -> None:
    driver = Driver(SplitCluster(pgs=8))
    shown = driver.order('pg_num', 'rep', '16', dry_run=True)
    most = max(row['pgs_after'] for row in shown['osds'])
    driver.cluster.pg_limit = most - 1
    with pytest.raises(Refused, match='mon_max_pg_per_osd'):
        save(driver, 'pg_num', 'rep', '16')
    driver.cluster.pg_limit = most
    save(driver, 'pg_num', 'rep', '16')


@pytest.mark.parametrize('names', [('rep', '8'), ('none', '16'), ('rep', 'x')])
def test_what_would_be_refused_cannot_be_saved(names: Tuple[str, str]) -> None:
    driver = Driver(SplitCluster(pgs=8))
    with pytest.raises(Refused):
        save(driver, 'pg_num', *names)
    assert driver.give(PlanOrder(LS))['plans'] == []


def test_a_plan_of_a_replacement() -> None:
    driver = filled()
    saved = save(driver, REPLACE, 'osd.8')
    assert KEYS <= saved['preview'].keys() and saved['preview']['weights']
    assert saved['preview']['verb'] == REPLACE and phases(driver) == {}
    driver.restart()
    driver.turn()
    assert approve(driver)['campaign'] == 2
    driver.restart()
    driver.turn()
    assert phases(driver) == {8: 'DRAINING'}
    driver.run_to('DONE')
    driver.run(45)
    assert phases(driver) == {8: 'EMPTY'}


def test_a_replacement_that_needs_no_campaign_is_not_saved() -> None:
    driver = filled()
    driver.cluster.take_down(8)
    driver.run(3)
    with pytest.raises(Refused, match='osd.8: no drain is needed'):
        save(driver, REPLACE, 'osd.8')


def test_a_plan_of_a_replacement_is_refused_once_the_osd_serves_no_more() -> None:
    driver = filled()
    save(driver, REPLACE, 'osd.8')
    driver.cluster.mark_out(8)
    driver.run(20)
    with pytest.raises(Refused, match='osd.8: reweight 1.0, now 0') as refused:
        approve(driver)
    assert refused.value.errno == errno.ESTALE and phases(driver) == {}
