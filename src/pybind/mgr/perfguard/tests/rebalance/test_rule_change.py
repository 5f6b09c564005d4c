# SPDX-License-Identifier: LGPL-2.1-or-later
"""Another CRUSH rule for a pool: first where it lets the PGs stay, else last, after they moved."""
from dataclasses import replace
from typing import Any, Dict, List, Tuple

import pytest

from perfguard.cluster.crush import CrushRules
from perfguard.cluster.ports import Future, FuturePg
from perfguard.cluster.types import PgCounts, Pool
from perfguard.errors import Refused
from perfguard.ledger import Row
from perfguard.observation import Observation, Settings
from perfguard.rebalance.pool_change import MOST_PASSES, first_moves
from perfguard.rebalance.pool_rule import _weaker
from perfguard.rebalance.risks import RISKS
from perfguard.shutdown import ShutdownOrder

from ..fakes.driver import Driver
from ..fakes.ruled_cluster import RULES, TOP, RuledCluster


def number_of(name: str) -> int:
    return [rule.name for rule in RULES].index(name)


def sets(cluster: RuledCluster, pool: str = '1.') -> Dict[str, Tuple[int, ...]]:
    return {pgid: tuple(pg.up) for pgid, pg in cluster.pg.items() if pgid.startswith(pool)}


def wanted(cluster: RuledCluster, rule: str) -> Dict[str, Tuple[int, ...]]:
    return {pgid: tuple(cluster._raw(pgid, cluster.toys, RULES[number_of(rule)]))
            for pgid in cluster.pg if pgid.startswith('1.')}


def switches(cluster: RuledCluster) -> List[str]:
    return [command['val'] for command in cluster.sent if command.get('var') == 'crush_rule']


class Watcher(RuledCluster):
    """Notes what is remapped as the rule is changed. Degraded PGs are known by OSD, as on real
    clusters, so that they stop no release that touches none of these."""

    def readings(self, view: Any, signals: Any) -> Any:
        serving = {osd: [pgid for pgid, pg in self.pg.items() if osd in (pg.temp or pg.up)]
                   for osd in self.toys}
        return replace(self.read, osd_counts={osd: PgCounts(total=len(pgids), degraded=sum(
            self._degraded(pgid, self.pg[pgid]) for pgid in pgids))
            for osd, pgids in serving.items()})

    def set_rule(self, pool: int, rule: int) -> None:
        super().set_rule(pool, rule)
        for pg in self.pg.values():
            pg.mon.next_epoch()
        self.remapped_by_switch = {pgid for pgid, pg in self.pg.items()
                                   if tuple(pg.mon.up()) != tuple(pg.up)}


def test_a_pg_that_is_not_led_by_its_first_osd_does_not_move_for_that() -> None:
    """The primary affinity of osd.0 is lower, with an upmap or without."""
    cluster = RuledCluster()
    cluster.add_upmap('1.1', cluster.pg['1.1'].data[0], 0)
    view, crush = cluster.map_view(), cluster.crush(0)
    seen = Observation(cluster.now, cluster.signals(view.osdmap), Settings(view.osdmap, 'false'),
                       view.placement, crush)
    future = Future({pgid: FuturePg((2, 0, 4), (0, 2, 4), (2, 0, 4))
                     for pgid in ('1.1', '1.2')}, crush)
    assert not first_moves(seen, future).pins
    future = Future({'1.2': FuturePg((2, 0, 4), (0, 2, 6), (2, 0, 6))}, crush)
    assert first_moves(seen, future).pins


@pytest.mark.parametrize('start, name, via', [
    ('hosts', 'racks', None), ('hosts', 'hosts-ssd', None), ('hosts-hdd', 'hosts-ssd', 'hosts'),
    ('east', 'west', 'hosts')])
def test_pgs_move_before_the_rule_is_changed(start: str, name: str, via: str) -> None:
    cluster = Watcher(rule=number_of(start))
    driver = Driver(cluster)
    before, others, found = sets(cluster), sets(cluster, '2.'), cluster.foreign()
    end = wanted(cluster, name)
    assert before != end
    shown = driver.order('rule', 'rep', name, dry_run=True)['rule']
    assert (shown['from'], shown['to'], shown['via'], shown['moves_first']) == (
        start, name, via, True)
    answer = driver.order('rule', 'rep', name)
    driver.run_to('DONE')
    assert switches(cluster) == ([via] if via else []) + [name]
    assert cluster.remapped_by_switch == set() and cluster.clean()
    assert sets(cluster) == end and cluster.entries() == {} and sets(cluster, '2.') == others
    assert cluster.foreign() == found
    moved = [one.pgid for one in cluster.moved]
    assert len(moved) == len(set(moved)) and answer['pgs'] >= len(moved) > 0


def test_a_rule_that_lets_the_pgs_stay_is_changed_first() -> None:
    cluster = Watcher(rule=number_of('racks'))
    driver = Driver(cluster)
    answer = driver.order('rule', 'rep', 'hosts')
    assert not answer['rule']['moves_first'] and answer['rule']['via'] is None
    driver.run_to('PINNED')
    assert switches(cluster) == ['hosts'] and not cluster.moved and cluster.most_unclean == 0
    driver.run_to('DONE')
    assert sets(cluster) == wanted(cluster, 'hosts') and cluster.entries() == {}


@pytest.mark.parametrize('names, text', [
    (('rep', 'hosts'), 'already has'), (('rep', 'none'), 'does not exist'),
    (('none', 'racks'), 'does not exist'), (('ec', 'racks'), 'not for erasure-coded pools')])
def test_refused(names: Tuple[str, str], text: str) -> None:
    driver = Driver(RuledCluster())
    with pytest.raises(Refused, match=text):
        driver.order('rule', *names)
    assert driver.phase == 'IDLE'


def test_a_rule_that_finds_too_few_osds_is_refused() -> None:
    cluster = RuledCluster(rule=number_of('racks'))
    for osd, toy in cluster.toys.items():
        if toy.rack in (0, 1):
            cluster.toys[osd] = toy._replace(crush_weight=1.0 if osd % 2 == 0 else 0.0)
    cluster.place()
    driver = Driver(cluster)
    driver.run_until(cluster.clean)
    with pytest.raises(Refused, match='fewer than 3 OSDs'):
        driver.order('rule', 'rep', 'two')


def test_without_a_rule_that_allows_both_it_is_refused() -> None:
    cluster = RuledCluster(rule=number_of('hosts-hdd'))
    driver = Driver(cluster)
    # Of the others, none allows all PGs where they are: they are ordered away.
    cluster.crush = lambda version: without(cluster, 'hosts', 'any')  # type: ignore
    driver.run(2)
    with pytest.raises(Refused, match='no CRUSH rule allows'):
        driver.order('rule', 'rep', 'hosts-ssd')


@pytest.mark.parametrize('start, end', [('hosts', 'hosts-ssd'), ('hosts', 'racks')])
def test_the_present_rule_serves_while_pgs_leave_an_osd_that_is_out(start: str, end: str) -> None:
    """Their data takes long to leave it. They move once it has."""
    cluster = Watcher(rule=number_of(start), pgs=12)
    driver = Driver(cluster)
    cluster.backfill_seconds = 60.0
    cluster.mark_out(max(cluster.toys, key=lambda osd: sum(
        osd in pg.data for pgid, pg in cluster.pg.items() if pgid.startswith('1.'))))
    driver.run(10)
    assert cluster.remapped()
    assert driver.order('rule', 'rep', end)['rule']['via'] is None
    driver.run_to('DONE', turns=3000)
    assert sets(cluster) == wanted(cluster, end) and cluster.clean()
    assert cluster.remapped_by_switch == set() and switches(cluster) == [end]


@pytest.mark.parametrize('start, end, via', [
    ('hosts-hdd', 'hosts-ssd', 'hosts'), ('racks', 'hosts', None)])
def test_a_rule_with_which_all_pgs_are_pinned_names_the_osd_that_some_leave(
        start: str, end: str, via: Any) -> None:
    cluster = Watcher(rule=number_of(start), pgs=12)
    driver = Driver(cluster)
    cluster.backfill_seconds = 60.0
    osd = max(cluster.toys, key=lambda osd: sum(
        osd in pg.data for pgid, pg in cluster.pg.items() if pgid.startswith('1.')))
    cluster.mark_out(osd)
    driver.run(10)
    answer = driver.order('rule', 'rep', end, dry_run=True)
    assert answer['rule']['via'] == via and answer['rule']['moves_first'] == bool(via)
    with pytest.raises(Refused, match=r'osd\.%d is out .*UNPINNABLE' % osd):
        driver.order('rule', 'rep', end)
    cluster.backfill_seconds = 1.0
    driver.run_until(cluster.clean)
    assert driver.order('rule', 'rep', end, dry_run=True)['risks'] == []
    driver.order('rule', 'rep', end)
    driver.run_to('DONE')
    assert sets(cluster) == wanted(cluster, end) and cluster.entries() == {}


@pytest.mark.parametrize('common, text', [
    (False, ['link east root=<root>', 'link west root=<root>', 'replicated <rule> <root> host']),
    (True, ['create-replicated <rule> default host'])])
def test_a_refusal_says_how_to_create_the_intermediate_rule(common: bool, text: List[str]) -> None:
    cluster = RuledCluster(rule=number_of('east'))
    driver = Driver(cluster)
    rules = without(cluster, *(rule.name for rule in RULES if rule.root == 'default'))
    if not common:
        rules = replace(rules, _buckets={number: bucket for number, bucket
                                         in rules._buckets.items() if number != TOP})
    cluster.crush = lambda version: rules  # type: ignore
    driver.run(2)
    with pytest.raises(Refused, match='no CRUSH rule allows') as refused:
        driver.order('rule', 'rep', 'west')
    assert all(part in str(refused.value) for part in text), str(refused.value)
    assert ('crush link' in str(refused.value)) != common


@pytest.mark.parametrize('start, end', [('hosts-hdd', 'hosts-ssd'), ('hosts-hdd', 'two')])
def test_the_intermediate_rule_is_the_strictest(monkeypatch: pytest.MonkeyPatch, start: str,
                                                end: str) -> None:
    """Not the first: under a rule for single OSDs, recovery may place two copies in one host."""
    others = [rule for rule in RULES if rule.name != 'any']
    rules = (RULES[number_of('any')], *others)
    monkeypatch.setattr('%s.RULES' % RuledCluster.__module__, rules)
    monkeypatch.setattr('%s.RULES' % __name__, rules)
    driver = Driver(Watcher(rule=number_of(start)))
    answer = driver.order('rule', 'rep', end)
    assert answer['rule']['via'] == 'hosts' and not answer['warnings']
    driver.run_to('DONE')
    assert switches(driver.cluster) == ['hosts', end]  # type: ignore[arg-type]


def test_a_weaker_intermediate_rule_has_to_be_forced() -> None:
    cluster = Watcher(rule=number_of('hosts-hdd'))
    cluster.crush = lambda version: without(cluster, 'hosts')  # type: ignore
    driver = Driver(cluster)
    shown = driver.order('rule', 'rep', 'hosts-ssd', dry_run=True)
    assert shown['rule']['via'] == 'any'
    [warning] = shown['warnings']
    assert 'failure domain osd' in warning and 'create-replicated <rule> default host' in warning
    with pytest.raises(Refused, match='intermediate CRUSH rule any .* in the same host') as refused:
        driver.order('rule', 'rep', 'hosts-ssd')
    assert '--accept WEAKER_RULE' in str(refused.value) and driver.phase != 'PREPARED'
    assert driver.order('rule', 'rep', 'hosts-ssd', accept=RISKS)['rule']['via'] == 'any'


def test_a_rule_for_shelves_is_weaker_than_one_for_their_hosts() -> None:
    """Although the id of this custom type is the higher one."""
    weight = 0x10000
    dump = {
        'types': [{'type_id': number, 'name': name} for number, name in (
            (0, 'osd'), (1, 'host'), (11, 'root'), (12, 'shelf'))],
        'buckets': [
            {'id': -1, 'name': 'default', 'type_id': 11, 'items': [{'id': -2, 'weight': weight}]},
            {'id': -2, 'name': 'h', 'type_id': 1, 'items': [{'id': -3, 'weight': weight}]},
            {'id': -3, 'name': 's', 'type_id': 12, 'items': [{'id': 0, 'weight': weight}]}],
        'rules': [{'rule_id': number, 'rule_name': 'rule%d' % number, 'type': 1, 'steps': [
            {'op': 'take', 'item': -1, 'item_name': 'default'},
            {'op': 'chooseleaf_firstn', 'num': 0, 'type': domain}, {'op': 'emit'}]}
            for number, domain in enumerate(['host', 'host', 'shelf'])]}
    crush, pool = CrushRules.from_dump(dump), Pool(1, 'p', False, 3, 2, 0, 8, 8, 8)
    assert 'failure domain shelf' in _weaker(pool, 2, 1, crush)
    assert _weaker(replace(pool, crush_rule=2), 2, 1, crush) == ''


def test_a_rule_that_is_as_weak_as_the_present_one_needs_no_force() -> None:
    """Under the rule for single OSDs, copies may share a host already."""
    cluster = Watcher(rule=number_of('any'))
    cluster.crush = lambda version: without(cluster, 'hosts')  # type: ignore
    shown = Driver(cluster).order('rule', 'rep', 'hosts-ssd', dry_run=True)
    assert shown['rule']['via'] is None and shown['warnings'] == []


def without(cluster: RuledCluster, *names: str) -> Any:
    rules = cluster._crush_rules(list(range(cluster.known)))
    rules._dumped_rules = {number: rule for number, rule in rules._dumped_rules.items()
                           if rule['rule_name'] not in names}
    return rules


def test_an_abort_keeps_what_has_moved_and_resume_continues() -> None:
    cluster = Watcher(rule=number_of('hosts-hdd'))
    driver = Driver(cluster)
    driver.order('rule', 'rep', 'hosts-ssd')
    driver.run_until(lambda: driver.status['released'] >= 2)
    driver.ask('abort')
    driver.run_to('ABORTED')
    stays = sets(cluster)
    driver.run(20)
    assert sets(cluster) == stays and cluster.clean() and switches(cluster) == ['hosts']
    driver.ask('resume')
    driver.run_to('DONE')
    assert sets(cluster) == wanted(cluster, 'hosts-ssd') and cluster.entries() == {}
    assert cluster.remapped_by_switch == set()


def test_a_change_is_aborted_and_resumed_any_number_of_times() -> None:
    """As on each day of a long migration: more often than one campaign moves PGs in passes."""
    cluster = Watcher(rule=number_of('hosts-hdd'), pgs=48)
    driver = Driver(cluster)
    driver.order('rule', 'rep', 'hosts-ssd')
    cluster.backfill_seconds = 30.0
    for aborts in range(MOST_PASSES + 1):
        released = driver.status['released']
        driver.run_until(lambda: driver.status['released'] > released)
        driver.ask('abort')
        driver.run_to('ABORTED')
        driver.ask('resume')
    cluster.backfill_seconds = 1.0
    driver.run_to('DONE')
    assert sets(cluster) == wanted(cluster, 'hosts-ssd') and cluster.entries() == {}
    assert cluster.remapped_by_switch == set()
    assert len({one.pgid for one in cluster.moved}) == 48


def test_an_aborted_change_is_reverted_by_another_one() -> None:
    cluster = Watcher(rule=number_of('hosts-hdd'))
    driver = Driver(cluster)
    before = sets(cluster)
    driver.order('rule', 'rep', 'hosts-ssd')
    driver.run_until(lambda: driver.status['released'] >= 2)
    with pytest.raises(Refused, match='CRUSH rule of a pool'):
        driver.order('rollback')
    driver.ask('abort')
    driver.run_to('ABORTED')
    driver.order('rule', 'rep', 'hosts-hdd')
    driver.run_to('DONE')
    assert sets(cluster) == before and cluster.entries() == {}
    assert cluster.remapped_by_switch == set()


@pytest.mark.parametrize('fails', [False, True])
@pytest.mark.parametrize('start, via', [('hosts', []), ('hosts-hdd', ['hosts'])])
def test_the_rule_is_changed_once_pgs_have_left_an_osd_that_fails_at_the_end(
        start: str, via: List[str], fails: bool) -> None:
    """All PGs have moved; then the OSD is marked out while it is up, or after it has failed."""
    cluster = Watcher(rule=number_of(start))
    driver = Driver(cluster)
    driver.order('rule', 'rep', 'hosts-ssd')
    driver.run_until(lambda: driver.status['released'] > 3 and not driver.status['pinned']
                     and not driver.status['in_flight'])
    osd = 1
    affected = {pgid for pgid, data in sets(cluster).items() if osd in data}
    assert len(affected) > 1
    cluster.backfill_seconds = 120.0
    if fails:
        cluster.take_down(osd)
    cluster.mark_out(osd)
    reasons = set()
    while driver.phase != 'DONE':
        driver.turn()
        assert driver.phase not in ('ABORTING', 'ABORTED'), driver.loop.published.events[-3:]
        if driver.phase == 'PINNING':
            reasons |= {text for text in driver.status['reasons'] if 'by the change' in text}
        assert cluster.now < 3000.0
    assert any(('undersized' if fails else 'osd.%d' % osd) in text for text in reasons)
    assert switches(cluster) == [*via, 'hosts-ssd'] and cluster.remapped_by_switch == set()
    assert sets(cluster) == wanted(cluster, 'hosts-ssd') and cluster.entries() == {}
    driver.run(5)
    assert 'norebalance' not in cluster.flags and cluster.clean()


@pytest.mark.parametrize('turns', range(1, 56, 6))
def test_a_failover_repeats_nothing(turns: int) -> None:
    cluster = Watcher(rule=number_of('hosts-hdd'))
    driver = Driver(cluster)
    driver.order('rule', 'rep', 'hosts-ssd')
    driver.run(turns)
    driver.restart()
    driver.run_to('DONE')
    assert sets(cluster) == wanted(cluster, 'hosts-ssd') and cluster.entries() == {}
    moved = [one.pgid for one in cluster.moved]
    assert len(moved) == len(set(moved)) and cluster.remapped_by_switch == set()


def test_mons_that_refuse_the_new_rule() -> None:
    """The PGs stay where they have moved to, under the rule that is in force."""
    cluster = Watcher()
    driver = Driver(cluster)
    driver.order('rule', 'rep', 'racks')
    driver.run_until(lambda: driver.status['released'] >= 2)
    cluster.refuse['osd pool set'] = 'not now'
    driver.run_to('ABORTED')
    assert cluster.clean() and sets(cluster) == wanted(cluster, 'racks')
    del cluster.refuse['osd pool set']
    driver.ask('resume')
    driver.run_to('DONE')
    assert switches(cluster)[-1] == 'racks' and cluster.entries() == {}


def intermediate() -> Driver:
    """A campaign that has begun to move PGs under the intermediate rule."""
    driver = Driver(Watcher(rule=number_of('hosts-hdd')))
    driver.order('rule', 'rep', 'hosts-ssd')
    driver.run_until(lambda: driver.status['released'] >= 2)
    return driver


def test_pgs_that_peer_after_the_intermediate_rule_are_waited_for() -> None:
    cluster = Watcher(rule=number_of('hosts-hdd'))
    driver = Driver(cluster)
    driver.order('rule', 'rep', 'hosts-ssd')
    driver.run_until(lambda: bool(switches(cluster)))
    end = cluster.pg['1.0'].peering_until = cluster.now + 20.0
    driver.run_until(lambda: driver.status['released'] >= 1)
    assert cluster.now >= end


def rows(driver: Driver) -> List[Row]:
    cluster = driver.cluster
    return [row for row in driver.loop.rebalance.held(cluster.map_view().osdmap)
            if row.what.startswith('crush_rule')]


def test_an_intermediate_rule_is_listed_with_the_command_that_restores_the_rule() -> None:
    driver = intermediate()
    driver.restart()
    driver.turn()
    assert [(row.what, row.found, row.put) for row in rows(driver)] == [
        ('crush_rule of pool rep', 'hosts-hdd', 'hosts')]
    assert 'ceph osd pool set rep crush_rule hosts-hdd' in rows(driver)[0].restore
    driver.run_to('DONE')
    assert rows(driver) == []


def test_finish_does_not_leave_an_intermediate_rule_unless_it_is_meant() -> None:
    driver = intermediate()
    with pytest.raises(Refused, match='intermediate CRUSH rule hosts'):
        driver.ask('finish', keep=True)
    with pytest.raises(Refused, match='intermediate CRUSH rule hosts'):
        driver.give(ShutdownOrder())
    driver.ask('finish', keep=True, sure=True)
    driver.run_to('DONE')


def test_nothing_else_follows_on_an_aborted_change_with_an_intermediate_rule() -> None:
    driver = intermediate()
    driver.ask('abort')
    driver.run_to('ABORTED')
    with pytest.raises(Refused, match='intermediate CRUSH rule hosts: .* back to hosts-hdd'):
        driver.ask('prepare')
    with pytest.raises(Refused, match='intermediate CRUSH rule hosts'):
        driver.order('drain', 'osd.0')
    assert len(rows(driver)) == 1
    driver.order('rule', 'rep', 'hosts-hdd')
    driver.run_to('DONE')


def for_all_pools(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the pool "ec" have the rules of the replicated one."""
    monkeypatch.setattr(CrushRules, 'rules_for',
                        lambda crush, erasure, size: list(crush._dumped_rules))


def test_a_change_of_the_rule_of_another_pool_does_not_follow_either(
        monkeypatch: pytest.MonkeyPatch) -> None:
    """It would release the pins under the intermediate rule, and forget that."""
    for_all_pools(monkeypatch)
    driver = intermediate()
    driver.ask('abort')
    driver.run_to('ABORTED')
    why = 'pool rep has the intermediate CRUSH rule hosts'
    takes_over, refused = driver.order('rule', 'ec', 'racks', dry_run=True)['warnings']
    assert takes_over.startswith('campaign 1 is aborted and keeps ') and why in refused
    with pytest.raises(Refused, match=why):
        driver.order('rule', 'ec', 'racks')
    assert driver.order('rule', 'rep', 'racks', dry_run=True)['warnings'] == []
    driver.order('rule', 'rep', 'hosts-hdd')
    driver.run_to('DONE')
    driver.order('rule', 'ec', 'racks')


@pytest.mark.parametrize('released', [0, 1])
def test_the_way_back_remembers_the_intermediate_rule_if_it_is_aborted_as_well(
        released: int) -> None:
    """Before it has moved a PG, or later."""
    driver = intermediate()
    driver.ask('abort')
    driver.run_to('ABORTED')
    driver.order('rule', 'rep', 'hosts-hdd')
    assert [(row.found, row.put) for row in rows(driver)] == [('hosts-hdd', 'hosts')]
    driver.run_until(lambda: driver.status['released'] >= released)
    driver.ask('abort')
    driver.run_to('ABORTED')
    driver.restart()
    driver.run(3)
    assert [(row.found, row.put) for row in rows(driver)] == [('hosts-hdd', 'hosts')]
    assert 'PERFGUARD_HELD_PINS' in driver.cluster.checks
    with pytest.raises(Refused, match='intermediate CRUSH rule hosts: .* back to hosts-hdd'):
        driver.order('drain', 'osd.0')
    with pytest.raises(Refused, match='intermediate CRUSH rule hosts'):
        driver.ask('finish', keep=True)
    driver.ask('resume')
    driver.run_to('DONE')
    assert driver.cluster.rules[1] == number_of('hosts-hdd')  # type: ignore[attr-defined]
    assert rows(driver) == [] and driver.cluster.entries() == {}


def test_a_rule_that_keeps_pgs_in_place_is_the_way_out_of_an_intermediate_one() -> None:
    """The order changes the rule at once, and is aborted before."""
    driver = Driver(Watcher(rule=number_of('hosts-hdd')))
    driver.order('rule', 'rep', 'hosts-ssd')
    driver.run_until(lambda: switches(driver.cluster) == ['hosts'])  # type: ignore[arg-type]
    driver.ask('abort')
    driver.run_to('ABORTED')
    answer = driver.order('rule', 'rep', 'any')
    assert not answer['rule']['moves_first'] and answer['rule']['from'] == 'hosts'
    driver.ask('abort')
    driver.run_to('ABORTED')
    driver.restart()
    driver.run(3)
    assert [(row.found, row.put) for row in rows(driver)] == [('hosts-hdd', 'hosts')]
    driver.ask('resume')
    driver.run_to('DONE')
    assert driver.cluster.rules[1] == number_of('any')  # type: ignore[attr-defined]
    assert rows(driver) == []


def test_once_an_operator_has_set_another_rule_the_intermediate_one_is_forgotten() -> None:
    driver = intermediate()
    driver.ask('abort')
    driver.run_to('ABORTED')
    driver.cluster.set_rule(1, number_of('hosts-hdd'))  # type: ignore[attr-defined]
    driver.run(20)
    assert rows(driver) == []
    driver.order('drain', 'osd.0')


def test_the_health_detail_of_an_abort_names_the_intermediate_rule_and_what_ends_it() -> None:
    driver = intermediate()
    driver.ask('abort')
    driver.run_to('ABORTED')
    driver.turn()
    detail = '\n'.join(driver.cluster.checks['PERFGUARD_HELD_PINS']['detail'])
    assert 'pool rep has the intermediate CRUSH rule hosts' in detail
    assert 'ceph perfguard rule rep hosts-hdd"' in detail and 'rollback' not in detail
    assert 'finish --keep --yes-i-really-mean-it' in detail
    assert '"rule rep hosts-hdd"' in str(driver.loop.status()['reasons'])
    driver.order('rule', 'rep', 'hosts-hdd')
    driver.run_to('DONE')
    driver.run(2)
    assert 'PERFGUARD_HELD_PINS' not in driver.cluster.checks


def test_the_id_of_a_rule_that_was_removed_is_not_taken_for_the_rule() -> None:
    """The mons give the id of a removed rule to the next one that is created."""
    driver = intermediate()
    cluster = driver.cluster
    rules: Any = cluster.crush(0)
    rules._dumped_rules[number_of('hosts-ssd')]['rule_name'] = 'another'
    cluster.crush = lambda version: rules  # type: ignore
    driver.run_to('ABORTED')
    assert switches(cluster) == ['hosts']  # type: ignore[arg-type]
    assert len(rows(driver)) == 1


def test_a_pool_that_is_removed_holds_nothing() -> None:
    driver = intermediate()
    driver.ask('abort')
    driver.run_to('ABORTED')
    cluster, view = driver.cluster, driver.cluster._view

    def without_pool() -> Any:
        found = view()
        left = {number: pool for number, pool in found.osdmap.pools.items()
                if number != 1}
        return replace(found, osdmap=replace(
            found.osdmap, epoch=found.osdmap.epoch + 1, pools=left, upmap_items={}))

    for pgid in [pgid for pgid in cluster.pg if pgid.startswith('1.')]:
        del cluster.pg[pgid]
    cluster._view = without_pool  # type: ignore
    driver.run(60)
    campaign = driver.loop.rebalance.campaign
    assert not campaign.held and rows(driver) == []
