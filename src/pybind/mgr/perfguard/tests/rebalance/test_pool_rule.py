# SPDX-License-Identifier: LGPL-2.1-or-later
"""The stages of another CRUSH rule for a pool, and its texts. The movement: test_rule_change.py."""
import errno
from dataclasses import replace
from typing import Any

import pytest

from perfguard.cluster.crush import CrushRules
from perfguard.cluster.ports import Future, FuturePg
from perfguard.cluster.types import NO_OSD, OsdMap, OsdSet, PoolRule
from perfguard.codec import decode, encode
from perfguard.errors import Refused
from perfguard.rebalance.change import ChangeStage, LeftSetting
from perfguard.rebalance.pool_change import refuse_incomplete
from perfguard.rebalance.pool_rule import RuleChange, bridging_rule, may_stay, rule_ordered
from perfguard.rebalance.requests import Request, apply, check, why_rule_first
from perfguard.rebalance.types import Bounds, Phase
from perfguard.rebalance.weights import WeightChange
from perfguard.upmap.pins import Unpinnable

from ..fakes.campaigns import campaign_of
from ..fakes.ruled_cluster import RULES, RuledCluster
from .test_phases import Machine

RACKS, HDD, SSD = ([rule.name for rule in RULES].index(name)
                   for name in ('racks', 'hosts-hdd', 'hosts-ssd'))
LEAST = Bounds(1.0, 0.0)
CHANGE = RuleChange(rule=PoolRule(1, 0), rule_name='racks', found_rule='hosts', via='any')


def crush() -> CrushRules:
    return RuledCluster().crush(0)


def osdmap() -> OsdMap:
    """With the pool "rep" of id 1."""
    return RuledCluster().map_view().osdmap


DELETED = replace(CHANGE, rule=PoolRule(99, 0), moves_first=True)


@pytest.mark.parametrize('moves_first, least, whole', [
    (True, LEAST, True), (True, None, False), (False, LEAST, False)])
def test_upmaps_keep_pgs_under_the_new_rule_once_they_move_first(moves_first: bool, least: Any,
                                                                 whole: bool) -> None:
    change = replace(CHANGE, moves_first=moves_first, least=least)
    assert change.whole == whole
    assert change.settled_pools == (frozenset({1}) if whole else frozenset())


@pytest.mark.parametrize('changes, intermediate', [
    ({'moves_first': True}, True), ({'moves_first': True, 'via': ''}, False), ({}, False),
    ({'stage': ChangeStage.SENT}, True), ({'times': 1}, True),
    ({'moves_first': True, 'stage': ChangeStage.LANDED}, False)])
def test_a_pool_may_have_the_intermediate_rule(changes: Any, intermediate: bool) -> None:
    change = replace(CHANGE, **changes)
    assert change.intermediate_rule(osdmap()) == ('any' if intermediate else '')
    assert change.way_back(osdmap()) == ('rule rep hosts' if intermediate else '')
    assert change.left_setting(osdmap()) == (LeftSetting(
        'crush_rule of pool rep', 'hosts', change.via, 'ceph osd pool set rep crush_rule hosts: '
        'all PGs that have moved return at once') if intermediate else None)
    assert change.left_intermediate(osdmap(), 'keeps') == (
        'pool rep keeps the intermediate CRUSH rule any, under which recovery may place PGs where '
        'neither hosts nor racks allows them' if intermediate else '')


def on_rule(rule: int) -> OsdMap:
    """With this rule for the pool "rep"."""
    pools = osdmap().pools
    return replace(osdmap(), pools={**pools, 1: replace(pools[1], crush_rule=rule)})


#: The change to the intermediate rule "any", and the change to "racks" that follows.
FIRST = replace(CHANGE, rule=PoolRule(1, 4), then=1, vias={4: 'any'})
FINAL = replace(CHANGE, rule=PoolRule(1, 1), moves_first=True, vias={4: 'any'})


@pytest.mark.parametrize('change, rule, intermediate', [
    (FIRST, 0, ''), (replace(FIRST, times=1), 0, 'any'), (FIRST, 4, 'any'),
    (FINAL, 4, 'any'), (FINAL, 1, ''), (FINAL, 2, ''),
    (replace(FINAL, stage=ChangeStage.LANDED), 4, ''),
    # It was not noted which rule it is.
    (replace(FINAL, vias={}), 4, 'any')])
def test_the_rule_of_the_pool_shows_whether_it_is_the_intermediate_one(
        change: RuleChange, rule: int, intermediate: str) -> None:
    assert change.intermediate_rule(on_rule(rule)) == intermediate


def test_the_intermediate_rule_is_noted_as_the_campaign_begins() -> None:
    seen = Machine().observe()
    assert replace(FIRST, vias={}).begun(seen) == FIRST
    assert replace(FINAL, vias={}).begun(seen) == replace(FINAL, vias={})
    assert decode(RuleChange, encode(FIRST)) == FIRST


BACK = RuleChange(rule=PoolRule(1, 0), rule_name='hosts', found_rule='any', moves_first=True)


@pytest.mark.parametrize('aborted, change, rule, found_rule, vias', [
    # The way back, also if it begins with another intermediate rule.
    (FINAL, BACK, 4, 'hosts', {4: 'any'}),
    (FINAL, replace(BACK, via='both', vias={9: 'both'}), 4, 'hosts', {4: 'any', 9: 'both'}),
    # By way of the rule from before.
    (FINAL, replace(BACK, via='hosts', vias={0: 'hosts'}), 4, 'hosts', {4: 'any'}),
    (replace(FINAL, vias={}), BACK, 4, 'hosts', {4: 'any'}),
    # An operator has set the rule from before.
    (FINAL, BACK, 0, 'any', {}),
    (FINAL, replace(BACK, rule=PoolRule(2, 0)), 4, 'any', {}),
    (WeightChange(), BACK, 4, 'any', {}), (None, BACK, 4, 'any', {})])
def test_the_intermediate_rule_of_an_aborted_change_is_remembered(
        aborted: Any, change: RuleChange, rule: int, found_rule: str, vias: Any) -> None:
    following = change.continuing(aborted, on_rule(rule))
    assert following == replace(change, found_rule=found_rule, vias=vias)


def test_the_way_back_from_an_intermediate_rule() -> None:
    """An abort of it keeps what is remembered, also before a PG has moved."""
    back, there = BACK.continuing(FINAL, on_rule(4)), on_rule(4)
    assert back.way_back(there) == '' and back.begun_pools(there) == frozenset({1})
    assert back.left_intermediate(there) == (
        'pool rep would keep the intermediate CRUSH rule any, under which recovery may place PGs '
        'where hosts does not allow them')
    seen = Machine().observe()
    seen = replace(seen, settings=replace(seen.settings, osdmap=there))
    for change in (back, replace(back, moves_first=False)):
        assert change.part_in_force(seen) == change
        assert change.left_setting(there).now == 'any'  # type: ignore[union-attr]
    assert replace(BACK, moves_first=False).part_in_force(seen) is None


@pytest.mark.parametrize('held, pool_name, change, refused', [
    (True, '', FINAL, True), (True, 'ec', FINAL, True), (True, 'rep', FINAL, False),
    (False, '', FINAL, False), (True, '', replace(FINAL, stage=ChangeStage.LANDED), False),
    (True, '', replace(FINAL, rule=PoolRule(99, 1)), False), (True, '', WeightChange(), False)])
def test_only_a_change_of_its_rule_follows_an_intermediate_one(
        held: bool, pool_name: str, change: Any, refused: bool) -> None:
    campaign = campaign_of(7, Phase.ABORTED, 1.0, held=held, change=change)
    why = why_rule_first(campaign, on_rule(4), pool_name)
    assert why == ('campaign 7 is ABORTED and pool rep has the intermediate CRUSH rule any: '
                   '"campaign resume", or "rule" back to hosts' if refused else '')
    if refused:
        with pytest.raises(Refused) as raised:
            check(campaign, Request('prepare'), 0, (), left_rule=why)
        assert (raised.value.errno, str(raised.value)) == (errno.EBUSY, why)


@pytest.mark.parametrize('passes, left', [(0, 0), (1, 1), (5, 1)])
def test_passes_are_counted_anew_once_a_campaign_is_resumed(passes: int, left: int) -> None:
    """But one: PGs have moved for the change, so it is still begun."""
    aborted = campaign_of(7, Phase.ABORTED, 1.0, held=True, change=replace(FINAL, passes=passes))
    assert apply(aborted, Request('resume'), 2.0).change == replace(FINAL, passes=left)
    paused = campaign_of(7, Phase.HOLDING, 1.0, paused=True, change=replace(FINAL, passes=passes))
    assert apply(paused, Request('resume'), 2.0).change == replace(FINAL, passes=passes)
    no_change = campaign_of(7, Phase.ABORTED, 1.0, held=True)
    assert apply(no_change, Request('resume'), 2.0).change is None


def test_nothing_is_left_of_a_pool_that_was_deleted() -> None:
    assert DELETED.left_setting(osdmap()) is None and DELETED.left_intermediate(osdmap()) == ''
    assert DELETED.impossible(Machine().observe()) == 'the pool no longer exists'


@pytest.mark.parametrize('changes, begun', [
    ({'moves_first': True}, True), ({'moves_first': True, 'via': '', 'passes': 1}, True),
    ({'moves_first': True, 'via': ''}, False), ({'passes': 1}, False),
    ({'moves_first': True, 'stage': ChangeStage.SENT}, False),
    ({'moves_first': True, 'rule': PoolRule(99, 0)}, False)])
def test_pools_whose_pgs_have_begun_to_move(changes: Any, begun: bool) -> None:
    pools = replace(CHANGE, **changes).begun_pools(osdmap())
    assert pools == (frozenset({1}) if begun else frozenset())


def test_the_change_to_the_final_rule_follows_the_intermediate_one() -> None:
    seen = Machine().observe()
    first = replace(CHANGE, then=4, least=LEAST, upmaps_max=7, vias={0: 'any'})
    part = first.next_part(seen, 1)
    assert part is not None and part[0] == RuleChange(
        rule=PoolRule(1, 4), moves_first=True, rule_name='racks', found_rule='hosts', via='any',
        vias={0: 'any'}, least=LEAST, upmaps_max=7, since=seen.now)
    assert part[1] == 'the intermediate CRUSH rule is in force, 1 PG is pinned'
    assert CHANGE.next_part(seen, 1) is None
    assert first.why_no_rollback(3) == (
        'campaign 3 changes the CRUSH rule of a pool: "campaign abort" first, then "rule <pool> '
        '<rule>" with the rule from before')


@pytest.mark.parametrize('names, code, text', [
    (('gone', 'racks'), errno.ENOENT, "pool 'gone' does not exist"),
    (('rep', 'gone'), errno.ENOENT, "CRUSH rule 'gone' does not exist"),
    (('rep', 'hosts'), errno.EALREADY, 'pool rep already has the CRUSH rule hosts')])
def test_a_rule_that_a_pool_cannot_get(names: Any, code: int, text: str) -> None:
    with pytest.raises(Refused) as refused:
        rule_ordered(names, osdmap(), crush())
    assert (refused.value.errno, str(refused.value)) == (code, text)


def test_a_rule_that_a_pool_may_get() -> None:
    assert rule_ordered(('rep', 'racks'), osdmap(), crush()) == PoolRule(1, 1)


def test_a_rule_that_finds_too_few_osds() -> None:
    pool = osdmap().pools[1]
    whole, short = FuturePg((0, 1, 2), (3, 4, 5)), FuturePg((0, 1, 2), (3, 4))
    refuse_incomplete(pool, Future({'1.0': whole}, crush()), 'racks')
    with pytest.raises(Refused) as refused:
        refuse_incomplete(pool, Future({'1.b': short, '1.a': short, '1.0': whole}, crush()),
                          'racks')
    assert (refused.value.errno, str(refused.value)) == (
        errno.EINVAL, 'CRUSH rule racks finds fewer than 3 OSDs for 2 PGs of pool rep, such as PG '
        '1.a')


@pytest.mark.parametrize('acting, stays', [
    ((0, 2, 4), True), ((0, 2), False), ((0, NO_OSD, 4), False), ((0, 2, 6), False),
    ((0, 2, 8), False), ((0, 2, 99), False)])
def test_a_pg_stays_unless_it_lacks_an_osd_or_leaves_one(acting: OsdSet, stays: bool) -> None:
    cluster = RuledCluster()
    cluster.toys[8] = cluster.toys[8]._replace(crush_weight=0.0)
    assert may_stay(osdmap().pools[1], acting, cluster.crush(0), frozenset({6})) == stays


@pytest.mark.parametrize('acting', [(0, 2), (0, NO_OSD, 4), (0, 2, 6)])
def test_where_a_pg_cannot_stay_no_rule_has_to_allow_it(acting: OsdSet) -> None:
    """But one has to allow where it ends, and the others where they are."""
    seen, pool = osdmap(), replace(osdmap().pools[1], crush_rule=HDD)
    seen = replace(seen, osds={**seen.osds, 6: replace(seen.osds[6], reweight=0.0)})

    def bridge(**pgs: FuturePg) -> int:
        return bridging_rule(pool, Future({'1.' + seed: pg for seed, pg in pgs.items()}, crush()),
                             crush(), seen, SSD, finals)

    finals = {'1.a': (8, 10, 12)}
    stays, leaves = FuturePg((0, 2, 4), (1, 3, 5)), FuturePg(acting, (1, 3, 5))
    assert bridge(a=stays) == HDD
    assert bridge(a=stays, b=leaves) == RACKS
    assert bridge(a=stays, b=leaves._replace(raw=(8, 10, 12))) == HDD


@pytest.mark.parametrize('pg_num, number, harmful', [(200, 1, False), (199, 1, True),
                                                     (400, 2, False), (400, 3, True)])
def test_few_pgs_may_be_remapped_by_the_new_rule(pg_num: int, number: int, harmful: bool) -> None:
    """At most one of 200."""
    seen = Machine().observe()
    pools = {1: replace(seen.osdmap.pools[1], pg_num=pg_num)}
    seen = replace(seen, settings=replace(seen.settings, osdmap=replace(seen.osdmap, pools=pools)))
    unpinnable = {'1.%x' % seed: Unpinnable('a hole') for seed in range(number)}
    assert CHANGE.harmful(seen, unpinnable) == (
        '%s of pool rep would be remapped by the new CRUSH rule, such as PG 1.0: a hole'
        % ('1 PG' if number == 1 else '%d PGs' % number) if harmful else '')
