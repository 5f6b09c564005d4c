# SPDX-License-Identifier: LGPL-2.1-or-later
"""What expand, drain, undrain and apply change in CRUSH, and what they refuse, with numbers."""
import errno
from dataclasses import replace
from typing import Any, Dict, List, Optional, Tuple

import pytest

from perfguard.cluster.crush import CrushRules
from perfguard.cluster.types import Osd, OsdMap, Pool, Space
from perfguard.errors import MOST_ERROR_CHARACTERS, Refused
from perfguard.rebalance.orders import (OrderFacts, Order, change_of, check_map,
                                        must_fit_by_weight, osds_left_out, reasons_not_new,
                                        weight_warnings)
from perfguard.rebalance.types import TINY_WEIGHT
from perfguard.rebalance.weights import WeightChange

GIB = 1 << 30
LESS = ': drain fewer OSDs, or into new ones ("expand <new> --drain <old>")'


def crush(weights: Dict[int, float], hosts: int = 4, rules: int = 1,
          domain: str = 'host', classes: Dict[int, str] = {}) -> CrushRules:
    """Hosts h0.. with every `hosts`-th OSD each, under one root."""
    buckets: List[Dict[str, Any]] = [
        {'id': -2 - host, 'name': 'h%d' % host, 'type_id': 1,
         'items': [{'id': osd, 'weight': int(weight * 65536)} for osd, weight in weights.items()
                   if osd % hosts == host]} for host in range(hosts)]
    buckets.append({'id': -1, 'name': 'default', 'type_id': 11, 'items': [
        {'id': -2 - host, 'weight': 65536} for host in range(hosts)]})
    steps = [{'op': 'take', 'item': -1, 'item_name': 'default'},
             {'op': 'chooseleaf_firstn', 'num': 0, 'type': domain}, {'op': 'emit'}]
    return CrushRules.from_dump({
        'buckets': buckets, 'types': [{'type_id': 0, 'name': 'osd'}, {'type_id': 1, 'name': 'host'},
                                      {'type_id': 11, 'name': 'root'}],
        'rules': [{'rule_id': rule, 'rule_name': 'r%d' % rule, 'steps': steps}
                  for rule in range(rules)],
        'devices': [{'id': osd, 'class': name} for osd, name in classes.items()]})


def facts(weights: Optional[Dict[int, float]] = None, used_gib: int = 10, size: int = 3,
          osds: Optional[Dict[int, Osd]] = None, **kwargs: Any) -> OrderFacts:
    """Eight OSDs of 100 GiB and weight 1 on four hosts, two of weight 0 on two of the hosts."""
    weights = {**dict.fromkeys(range(8), 1.0), 8: 0.0, 9: 0.0, **(weights or {})}
    osdmap = OsdMap(1, frozenset(), {1: Pool(1, 'p', False, size, 2, 0, 8, 8, 8)},
                    {**{osd: Osd(osd, True, 1.0) for osd in weights}, **(osds or {})}, {}, {}, {})
    space = {osd: Space(100 * GIB, (used_gib if weight else 0) * GIB, 10 if weight else 0)
             for osd, weight in weights.items()}
    return OrderFacts(osdmap, crush(weights), space, **kwargs)


def refusal(order: Order, there: OrderFacts) -> str:
    with pytest.raises(Refused) as refused:
        change_of(order, there)
    assert refused.value.errno > 0 and '\n' not in str(refused.value)
    return str(refused.value)


def test_expand_takes_what_waits_and_weighs_it_by_size() -> None:
    assert change_of(Order('expand'), facts()) == WeightChange(weights={8: 0.0977, 9: 0.0977})
    assert change_of(Order('expand', weight='1.5'), facts()) == WeightChange(
        weights={8: 1.5, 9: 1.5})


def warned(there: OrderFacts, **kwargs: Any) -> Tuple[str, ...]:
    order = Order('expand', **kwargs)
    change = change_of(order, there)
    assert change is not None
    return weight_warnings(order, change, there)


def test_expand_warns_where_weights_are_not_sizes() -> None:
    assert warned(facts()) == (
        'new OSDs get their size in TiB as CRUSH weight, but other OSDs have a weight of 10.2 '
        'per TiB; "--weight 1" gives osd.8 as much data per TiB as they have',)
    assert not warned(facts(), weight='1')
    assert not warned(facts(dict.fromkeys(range(8), 0.11)))
    assert 'have a weight of 0.102 per' in warned(facts(dict.fromkeys(range(8), 0.01)))[0]


def test_weights_are_those_of_the_same_device_class() -> None:
    """Disks weigh their size, and flash ten times its size."""
    weights = {**dict.fromkeys(range(4), 0.0977), **dict.fromkeys(range(4, 8), 1.0), 8: 0.0, 9: 0.0}
    classes = {**dict.fromkeys(range(4), 'hdd'), **dict.fromkeys(range(4, 8), 'ssd')}

    def of(first: str, second: str) -> Tuple[str, ...]:
        return warned(replace(facts(weights), crush=crush(
            weights, classes={**classes, 8: first, 9: second})))

    assert not of('hdd', 'hdd') and not of('nvme', 'nvme')
    for new in (('ssd', 'ssd'), ('hdd', 'ssd')):
        assert of(*new) == (
            'new OSDs of class ssd get their size in TiB as CRUSH weight, but other OSDs of the '
            'class have a weight of 10.2 per TiB; "--weight 1" gives osd.%d as much data per TiB '
            'as they have%s' % (
                (8, '') if new[0] == 'ssd' else (9, ' (add the OSDs of each class separately)')),)


def test_drained_osds_do_not_say_what_others_weigh() -> None:
    drained = dict.fromkeys(range(6), TINY_WEIGHT)
    assert not warned(facts({**drained, 6: 0.1, 7: 0.1}))


@pytest.mark.parametrize('names', [('8',), ('osd.8',)])
def test_expand_of_named_osds(names: Any) -> None:
    assert change_of(Order('expand', names, weight='1'), facts()) == WeightChange(
        weights={8: 1.0})


def test_expand_of_hosts_takes_the_osds_of_weight_0() -> None:
    order = Order('expand', hosts=('h0', 'h1'), weight='1')
    assert change_of(order, facts()) == WeightChange(weights={8: 1.0, 9: 1.0})
    assert 'no OSD of CRUSH weight 0 in h2' in refusal(Order('expand', hosts=('h2',)), facts())


def test_expand_leaves_out_what_is_down_out_or_drained() -> None:
    there = facts(osds={8: Osd(8, False, 1.0)})
    assert change_of(Order('expand', weight='1'), there) == WeightChange(weights={9: 1.0})
    there = facts(osds={8: Osd(8, True, 0.0)}, drained={9: 1.0})
    assert 'osd.9 was drained' in refusal(Order('expand'), there)
    assert 'no OSD of CRUSH weight 0 is new' in refusal(Order('expand', weight='1'), there)
    assert 'no new OSD of CRUSH weight 0 is up and in' in refusal(Order('expand'), facts(osds={
        8: Osd(8, True, 0.0), 9: Osd(9, False, 1.0)}))


def test_a_refusal_with_many_emptied_osds_still_names_the_ways_out() -> None:
    emptied = dict.fromkeys(range(8, 408), 0.0)
    why = refusal(Order('expand'), facts(emptied, drained=dict.fromkeys(emptied, 1.0)))
    assert len(why) < MOST_ERROR_CHARACTERS
    assert '("expand osd.12" adds it) and 395 more (for another CRUSH change, begin with' in why


@pytest.mark.parametrize('why, changes', [
    ('was drained', {'drained': {9: 1.0}}), ('held PGs before', {'up_thru': 7}),
    ('holds 3 PGs', {'pgs': 3}), ('has not reported yet', {'pgs': None})])
def test_expand_without_names_takes_new_osds_alone(why: str, changes: Dict[str, Any]) -> None:
    there = facts(osds={9: Osd(9, True, 1.0, up_thru=changes.get('up_thru', 0))},
                  drained=changes.get('drained', {}))
    there = replace(there, space={**there.space, 9: Space(100 * GIB, GIB,
                                                          changes.get('pgs', 0))})
    assert change_of(Order('expand', weight='1'), there) == WeightChange(weights={8: 1.0})
    assert why in reasons_not_new(there)[9] and not reasons_not_new(there)[8]
    assert change_of(Order('expand', ('9',), weight='1'), there) == WeightChange(weights={9: 1.0})
    gone = replace(there, osdmap=replace(there.osdmap, osds={
        **there.osdmap.osds, 8: Osd(8, False, 1.0)}))
    assert 'osd.9 ' + why in refusal(Order('expand'), gone)
    assert 'osd.9 ' + why in refusal(Order('expand', weight='1'), gone)


def test_an_osd_that_the_orchestrator_removes_gets_no_weight() -> None:
    there = facts(drained={9: 1.0}, removing=frozenset({9}))
    assert change_of(Order('expand', weight='1'), there) == WeightChange(weights={8: 1.0})
    assert reasons_not_new(there)[9] == 'is being removed by the orchestrator'
    for order in (Order('expand', ('9',), weight='1'), Order('undrain', ('osd.9',))):
        assert '"ceph orch osd rm stop 9"' in refusal(order, there)
        change_of(order, replace(there, removing=frozenset()))


def test_osds_that_have_not_reported_yet_are_waited_for() -> None:
    there = facts(osds={9: Osd(9, True, 1.0)})
    for unknown in (Space(100 * GIB, GIB, None), Space(0, 0, 0)):
        with pytest.raises(Refused) as caught:
            change_of(Order('expand', hosts=('h1',)) if unknown.pgs is None
                      else Order('expand', ('9',)),
                      replace(there, space={**there.space, 9: unknown}))
        assert caught.value.errno == errno.EAGAIN and caught.value.not_fit


@pytest.mark.parametrize('why, changes', [
    ('was drained', {'drained': {9: 1.0}}), ('held PGs before', {'up_thru': 7}),
    ('holds 3 PGs', {'pgs': 3})])
def test_expand_of_a_bucket_leaves_out_disks_that_were_emptied(why: str,
                                                               changes: Dict[str, Any]) -> None:
    there = facts(osds={9: Osd(9, True, 1.0, up_thru=changes.get('up_thru', 0))},
                  drained=changes.get('drained', {}))
    there = replace(there, space={**there.space, 9: Space(100 * GIB, GIB,
                                                          changes.get('pgs', 0))})
    both = Order('expand', hosts=('default',), weight='1')
    assert change_of(both, there) == WeightChange(weights={8: 1.0})
    assert why in osds_left_out(both, there)[9]
    assert 'osd.9 ' + why in refusal(Order('expand', hosts=('h1',)), there)
    named = Order('expand', ('osd.9',), hosts=('default',), weight='1')
    assert change_of(named, there) == WeightChange(weights={8: 1.0, 9: 1.0})
    assert not osds_left_out(named, there)


def test_expand_of_a_bucket_waits_until_all_of_its_osds_have_reported() -> None:
    there = facts()
    there = replace(there, space={**there.space, 9: Space(100 * GIB, 0, None)})
    assert 'try again' in refusal(Order('expand', hosts=('default',), weight='1'), there)


@pytest.mark.parametrize('order, text', [
    (Order('expand', ('12',)), 'osd.12 does not exist'),
    (Order('expand', ('h0',)), "no OSD 'h0'"),
    (Order('expand', hosts=('h9',)), "no OSD, host or rack 'h9'"),
    (Order('expand', ('0',)), 'osd.0 already has CRUSH weight 1'),
    (Order('expand', ('8',)), 'osd.8 is down'),
    (Order('expand', ('9',)), 'osd.9 is out (see "ceph osd in")'),
    (Order('expand', ('10',)), 'osd.10 is not in CRUSH'),
    *[(Order('expand', weight=weight), text) for weight, text in (
        ('0', 'between'), ('-1', 'between'), ('nan', 'between'), ('1e9', 'between'),
        ('x', 'not a number'), ('', 'not a number'))]])
def test_expand_refuses(order: Order, text: str) -> None:
    there = facts(osds={8: Osd(8, False, 1.0), 9: Osd(9, True, 0.0), 10: Osd(10, True, 1.0)})
    assert text in refusal(order, there)


def test_expand_needs_the_size_or_a_weight() -> None:
    there = replace(facts(), space={osd: Space(0, 0, 0) for osd in (8, 9)})
    assert 'osd.8 has not reported its size yet' in refusal(Order('expand'), there)
    assert change_of(Order('expand', weight='1'), there) == WeightChange(weights={8: 1.0, 9: 1.0})


@pytest.mark.parametrize('names, osds', [
    (('osd.3',), (3,)), (('h0',), (0, 4)), (('h0', 'osd.4', 'osd.1'), (0, 1, 4))])
def test_drain(names: Any, osds: Any) -> None:
    there = facts(used_gib=1, size=2)
    assert change_of(Order('drain', names), there) == WeightChange(
        weights=dict.fromkeys(osds, TINY_WEIGHT), drained=osds)


def test_drain_refuses_what_has_too_few_failure_domains() -> None:
    assert refusal(Order('drain', ('h0', 'h1')), facts()) == (
        'pool p needs 3 failure domains of type host, but only 2 would be left' + LESS)
    # Where they are too few anyway, a drain does not make it worse.
    assert change_of(Order('drain', ('osd.0',)), facts(size=5))


def racks(*steps: Dict[str, Any]) -> OrderFacts:
    """Two racks of four hosts each, and a pool of size 4 under a rule with these steps."""
    there = facts(size=4)
    dump: Dict[str, Any] = {
        'types': [{'type_id': 0, 'name': 'osd'}, {'type_id': 1, 'name': 'host'},
                  {'type_id': 3, 'name': 'rack'}, {'type_id': 11, 'name': 'root'}],
        'buckets': [{'id': -2 - host, 'name': 'h%d' % host, 'type_id': 1, 'items': [
            {'id': 2 * host + n, 'weight': 65536} for n in (0, 1)]} for host in range(8)]
        + [{'id': -20 - rack, 'name': 'rack%d' % rack, 'type_id': 3, 'items': [
            {'id': -2 - host, 'weight': 131072} for host in range(4 * rack, 4 * rack + 4)]}
           for rack in range(2)]
        + [{'id': -1, 'name': 'default', 'type_id': 11, 'items': [
            {'id': -20 - rack, 'weight': 524288} for rack in range(2)]}],
        'rules': [{'rule_id': 0, 'rule_name': 'r', 'steps': list(steps)}]}
    osds = {osd: Osd(osd, True, 1.0) for osd in range(16)}
    return replace(there, crush=CrushRules.from_dump(dump),
                   osdmap=replace(there.osdmap, osds=osds),
                   space={osd: Space(100 * GIB, GIB) for osd in osds})


EMIT = {'op': 'emit'}
TWO_HOSTS = {'op': 'chooseleaf_firstn', 'num': 2, 'type': 'host'}


def take(item: int, called: str) -> Dict[str, Any]:
    return {'op': 'take', 'item': item, 'item_name': called}


def test_drain_refuses_what_the_rule_chooses_above_the_failure_domain() -> None:
    there = racks(take(-1, 'default'), {'op': 'choose_firstn', 'num': 2, 'type': 'rack'},
                  TWO_HOSTS, EMIT)
    assert refusal(Order('drain', ('rack1',)), there) == (
        'the rule of pool p needs 2 buckets of type rack, but only 1 would be left' + LESS)
    assert change_of(Order('drain', ('h7',)), there)


@pytest.mark.parametrize('steps', [
    # Copies in each of two sites, as in stretch mode.
    (take(-20, 'rack0'), TWO_HOSTS, EMIT, take(-21, 'rack1'), TWO_HOSTS, EMIT),
    (take(-1, 'default'), {'op': 'choose_firstn', 'num': 0, 'type': 'rack'}, TWO_HOSTS, EMIT)])
def test_drain_leaves_each_part_of_a_rule_enough_failure_domains(steps: Any) -> None:
    there = racks(*steps)
    assert refusal(Order('drain', ('h5', 'h6', 'h7')), there) == (
        'CRUSH rule r would find only 3 OSDs for PGs of pool p (size 4)' + LESS)
    assert change_of(Order('drain', ('h6', 'h7')), there)
    # Another rack has no part in it, and what is lost already makes nothing worse.
    assert change_of(Order('drain', ('h2', 'h3', 'h6', 'h7')), there)
    osds = {**there.osdmap.osds, **{osd: Osd(osd, False, 1.0) for osd in range(8, 14)}}
    down = replace(there, osdmap=replace(there.osdmap, osds=osds))
    assert change_of(Order('drain', ('h0',)), down)


def test_drain_leaves_a_device_class_of_a_hybrid_rule_enough_hosts() -> None:
    there = racks(take(-20, 'rack0'), {'op': 'chooseleaf_firstn', 'num': 1, 'type': 'host'}, EMIT,
                  take(-21, 'rack1'), {'op': 'chooseleaf_firstn', 'num': -1, 'type': 'host'}, EMIT)
    assert change_of(Order('drain', ('h0', 'h1', 'h2')), there)
    assert 'only 3 OSDs' in refusal(Order('drain', ('rack0',)), there)
    assert change_of(Order('drain', ('h7',)), there)
    assert 'only 3 OSDs' in refusal(Order('drain', ('h6', 'h7')), there)


def test_drain_of_one_of_the_osds_that_an_msr_rule_chooses_on_a_host() -> None:
    """Its shards move to a further host."""
    there = racks(take(-1, 'default'), {'op': 'choosemsr', 'num': 2, 'type': 'host'},
                  {'op': 'choosemsr', 'num': 2, 'type': 'osd'}, EMIT)
    assert change_of(Order('drain', ('osd.1',)), there)
    assert change_of(Order('drain', ('rack0', 'h4', 'osd.11')), there)
    assert 'only 3 OSDs' in refusal(Order('drain', ('rack0', 'h4', 'h5', 'osd.13')), there)


@pytest.mark.parametrize('name', ['osd.\u00b2', '\u00b2', 'osd.' + 5000 * '1', 'osd.-1', 'osd.'])
def test_names_that_are_none(name: str) -> None:
    with pytest.raises(Refused, match='no OSD, host or rack'):
        change_of(Order('drain', (name,)), facts())


def test_drain_refuses_what_has_no_room() -> None:
    assert refusal(Order('drain', ('h0',)), facts(used_gib=70)) == (
        'not enough space: these OSDs hold 140.0 GiB, but the others have 90.0 GiB '
        'left below nearfull (85 %)' + LESS)
    uneven = facts(used_gib=20)
    uneven = replace(uneven, space={**uneven.space, 3: Space(100 * GIB, 80 * GIB)})
    # Where PGs go is chosen by what fits, but not without a preview.
    assert change_of(Order('drain', ('h0',)), uneven)
    with pytest.raises(Refused) as refused:
        must_fit_by_weight({0, 4}, uneven)
    assert str(refused.value) == (
        'not enough space: osd.3 would be 86 % full with another 6.7 GiB (nearfull is 85 %)'
        + LESS)


def two_roots(used: Dict[int, int]) -> OrderFacts:
    """Roots a and b of four OSDs of 100 GiB each, one pool on each. `used`: GiB of OSDs that hold
    something else than 10."""
    buckets = [{'id': -1 - root, 'name': 'ab'[root], 'type_id': 11, 'items': [
        {'id': osd, 'weight': 65536} for osd in range(4 * root, 4 * root + 4)]} for root in (0, 1)]
    rules = [{'rule_id': root, 'rule_name': 'r%d' % root, 'steps': [
        {'op': 'take', 'item': -1 - root, 'item_name': 'ab'[root]},
        {'op': 'choose_firstn', 'num': 0, 'type': 'osd'}, {'op': 'emit'}]} for root in (0, 1)]
    pools = {pool: Pool(pool, 'p%d' % pool, False, 2, 1, pool - 1, 8, 8, 8) for pool in (1, 2)}
    return OrderFacts(
        OsdMap(1, frozenset(), pools, {osd: Osd(osd, True, 1.0) for osd in range(8)}, {}, {}, {}),
        CrushRules.from_dump({'buckets': buckets, 'rules': rules, 'types': [
            {'type_id': 0, 'name': 'osd'}, {'type_id': 11, 'name': 'root'}]}),
        {osd: Space(100 * GIB, used.get(osd, 10) * GIB, 10) for osd in range(8)})


def test_drained_osds_of_two_rules_need_room_under_their_own_rules() -> None:
    full = dict.fromkeys((5, 6, 7), 70)
    assert 'the data of osd.4 is 60.0 GiB, but the others have 45.0 GiB' in refusal(
        Order('drain', ('osd.0', 'osd.4')), two_roots({**full, 4: 60}))
    # 30 GiB for each of the other OSDs under the same rule.
    must_fit_by_weight({0, 4}, two_roots({0: 90, 4: 0, **full}))
    with pytest.raises(Refused, match='osd.5 would be 90 % full with another 20.0 GiB'):
        must_fit_by_weight({0, 4}, two_roots({4: 60, **full}))


def test_drained_osds_of_rules_that_share_osds_need_room_for_all_of_it() -> None:
    """Both pools are on root b, one of them on root a as well."""
    there = two_roots({0: 60, 4: 60, 1: 84, 2: 84, 3: 84, 5: 60, 6: 60, 7: 60})
    both = CrushRules.from_dump({'buckets': [
        {'id': -1, 'name': 'a', 'type_id': 11, 'items': [
            {'id': osd, 'weight': 65536} for osd in range(8)]},
        {'id': -2, 'name': 'b', 'type_id': 11, 'items': [
            {'id': osd, 'weight': 65536} for osd in range(4, 8)]}],
        'rules': [{'rule_id': root, 'rule_name': 'r%d' % root, 'steps': [
            {'op': 'take', 'item': -1 - root, 'item_name': 'ab'[root]},
            {'op': 'choose_firstn', 'num': 0, 'type': 'osd'}, {'op': 'emit'}]} for root in (0, 1)],
        'types': [{'type_id': 0, 'name': 'osd'}, {'type_id': 11, 'name': 'root'}]})
    there = replace(there, crush=both)
    assert change_of(Order('drain', ('osd.0',)), there)
    assert change_of(Order('drain', ('osd.4',)), there)
    assert 'these OSDs hold 120.0 GiB, but the others have 78.0 GiB' in refusal(
        Order('drain', ('osd.0', 'osd.4')), there)
    # 10 GiB of osd.0, and 10 GiB of osd.4 (which both rules use).
    with pytest.raises(Refused, match='osd.1 would be 104 % full with another 20.0 GiB'):
        must_fit_by_weight({0, 4}, there)


def two_classes(ssd_gib: int, mgr_gib: Optional[int], hdd_gib: int = 0) -> OrderFacts:
    """Four SSDs and four HDDs of 100 GiB: pool 1 on the SSDs, and pool 2 (.mgr) on all OSDs.
    `ssd_gib`: used on each SSD; `mgr_gib`: data of pool 2, of pool 1 there are 100 GiB; None: not
    known."""
    there = two_roots({**dict.fromkeys(range(4), ssd_gib), **dict.fromkeys(range(4, 8), hdd_gib)})
    crush = CrushRules.from_dump({'buckets': [
        {'id': -1, 'name': 'default~ssd', 'type_id': 11, 'items': [
            {'id': osd, 'weight': 65536} for osd in range(4)]},
        {'id': -2, 'name': 'default', 'type_id': 11, 'items': [
            {'id': osd, 'weight': 65536} for osd in range(8)]}],
        'rules': [{'rule_id': rule, 'rule_name': name, 'steps': [
            {'op': 'take', 'item': -1 - rule, 'item_name': name},
            {'op': 'choose_firstn', 'num': 0, 'type': 'osd'}, {'op': 'emit'}]}
            for rule, name in enumerate(('ssd', 'default'))],
        'types': [{'type_id': 0, 'name': 'osd'}, {'type_id': 11, 'name': 'root'}]})
    return replace(there, crush=crush, pool_space={} if mgr_gib is None else {
        1: 100 * GIB, 2: mgr_gib * GIB})


@pytest.mark.parametrize('ssd_gib, mgr_gib, text', [
    # 85 GiB of each of the three other SSDs may be used: 255 in all.
    (63, 0, ''), (64, 0, 'these OSDs hold 64.0 GiB, but the others have 63.0 GiB'),
    # Half of the data of pool 2 is on the SSDs: a fifth of their data, which the HDDs may take.
    (67, 50, ''), (68, 50, 'the data of osd.0 under CRUSH rule ssd is 54.4 GiB, but the others '
                           'have 51.0 GiB'),
    (63, None, ''), (64, None, 'these OSDs hold 64.0 GiB, but the others have 63.0 GiB')])
def test_a_pool_on_all_classes_gives_no_room_on_other_classes(
        ssd_gib: int, mgr_gib: Optional[int], text: str) -> None:
    there = two_classes(ssd_gib, mgr_gib)
    if text:
        assert text in refusal(Order('drain', ('osd.0',)), there)
    else:
        assert change_of(Order('drain', ('osd.0',)), there)


@pytest.mark.parametrize('mgr_gib', [0, None])
def test_osds_of_other_classes_get_no_share_of_the_data_of_a_class(mgr_gib: Optional[int]) -> None:
    must_fit_by_weight({0}, two_classes(63, mgr_gib))
    with pytest.raises(Refused, match='osd.1 would be 85 % full with another 21.3 GiB'):
        must_fit_by_weight({0}, two_classes(64, mgr_gib))


def test_drained_osds_without_a_rule_need_no_room() -> None:
    there = two_roots({0: 90, 5: 84, 6: 84, 7: 84})
    there = replace(there, osdmap=replace(there.osdmap, pools={2: there.osdmap.pools[2]}))
    assert change_of(Order('drain', ('osd.0',)), there)
    must_fit_by_weight({0}, there)


def test_drain_twice_and_of_nothing() -> None:
    there = facts({0: TINY_WEIGHT, 4: TINY_WEIGHT})
    assert 'already drained: h0' in refusal(Order('drain', ('h0',)), there)
    assert "no OSD, host or rack 'x'" in refusal(Order('drain', ('x',)), there)
    assert refusal(Order('drain', ('3',)), there).endswith("'3' in CRUSH (did you mean osd.3?)")


def test_undrain_gives_back_what_is_remembered() -> None:
    there = facts({0: TINY_WEIGHT, 4: TINY_WEIGHT}, drained={0: 1.25, 4: 3.5})
    assert change_of(Order('undrain', ('h0',)), there) == WeightChange(weights={0: 1.25, 4: 3.5})
    assert change_of(Order('undrain', ('osd.4',)), there) == WeightChange(weights={4: 3.5})
    assert 'not drained by perfguard: h1' in refusal(Order('undrain', ('h1',)), there)
    down = replace(there, osdmap=replace(there.osdmap, osds={
        **there.osdmap.osds, 0: Osd(0, False, 1.0)}))
    assert 'osd.0 is down' in refusal(Order('undrain', ('h0',)), down)


@pytest.mark.parametrize('weights, rules, text', [
    ({}, 0, 'lacks rule 0, which pool p uses'),
    ({3: -1.0, 5: -1.0}, 1, 'lacks osd.3, osd.5'), ({2: 0.0}, 1, 'gives weight 0 to osd.2')])
def test_maps_under_which_data_could_not_stay(weights: Dict[int, float], rules: int,
                                              text: str) -> None:
    kept = {osd: weight for osd, weight in {**dict.fromkeys(range(8), 1.0), **weights}.items()
            if weight >= 0}
    with pytest.raises(Refused) as refused:
        check_map(crush(kept, rules=rules), facts())
    assert text in str(refused.value) and refused.value.errno == errno.EINVAL


def test_a_map_that_data_can_live_with() -> None:
    check_map(crush({**dict.fromkeys(range(8), 1.0), 2: TINY_WEIGHT}), facts())


def test_undrain_of_an_osd_whose_weights_differed_between_trees_names_the_commands() -> None:
    there = facts({0: TINY_WEIGHT}, drained={0: 2.0}, uneven={
        0: {'host=h0': 1.0, 'host=x': 2.0}})
    text = refusal(Order('undrain', ('osd.0',)), there)
    assert '"ceph osd crush set osd.0 1 host=h0" and "ceph osd crush set osd.0 2 host=x"' in text


# ---- new OSDs for old ones, in one change

def exchange(*drain: str, **more: Any) -> Order:
    return Order('expand', drain=drain, **more)


def test_old_osds_leave_with_the_change_that_fills_the_new_ones() -> None:
    assert change_of(exchange('h0', weight='1'), facts()) == WeightChange(
        weights={8: 1.0, 9: 1.0, 0: TINY_WEIGHT, 4: TINY_WEIGHT}, drained=(0, 4))


def test_the_new_osds_make_up_for_the_failure_domains_and_the_room_of_the_old_ones() -> None:
    four = facts({8: 0.0, 9: 0.0}, size=4)
    weights = {**dict.fromkeys(range(8), 1.0), 8: 0.0, 9: 0.0, 14: 0.0}
    space = {osd: Space(100 * GIB, (70 if weight else 0) * GIB, 10 if weight else 0)
             for osd, weight in weights.items()}
    osdmap = replace(four.osdmap, osds={osd: Osd(osd, True, 1.0) for osd in weights})
    there = replace(four, osdmap=osdmap, crush=crush(weights, hosts=5), space=space)
    # osd.4, osd.9 and osd.14 are all of h4; 70 GiB of each of two OSDs do not fit on six.
    assert 'needs 4 failure domains' in refusal(Order('drain', ('h0', 'h1')), there)
    assert 'not enough space' in refusal(Order('drain', ('h0',)), there)
    change = change_of(exchange('h0', weight='1'), there)
    assert change is not None and change.drained == (0, 5)
    # A new OSD beside the old one does not replace its host.
    both = refusal(exchange('h0', 'h1', names=('osd.14',), weight='1'), there)
    assert 'needs 4 failure domains' in both


def test_an_exchange_needs_new_osds_and_others_than_those_that_leave() -> None:
    full = facts({8: 1.0, 9: 1.0})
    assert '"drain h0" empties the old OSDs alone' in refusal(exchange('h0'), full)
    assert 'osd.8: cannot be filled and drained' in refusal(exchange('h0', 'osd.8'), facts())
    assert "no OSD, host or rack 'h7'" in refusal(exchange('h7'), facts())
    drained = facts({0: TINY_WEIGHT, 4: TINY_WEIGHT})
    assert 'already drained: h0' in refusal(exchange('h0'), drained)


def test_the_text_of_an_exchange_is_the_command_that_gives_it() -> None:
    assert exchange('h0', "osd.1", hosts=('new',)).command == \
        'ceph perfguard expand new --drain h0,osd.1'


def test_a_host_without_new_osds_was_to_be_drained() -> None:
    """Of "expand h0 --drain h1 h2", ceph gives the last word to the OSDs that are filled."""
    there = facts({8: 0.0, 9: 1.0})
    assert refusal(exchange('h1', hosts=('h0', 'h2'), weight='1'), there) == (
        'h2 has no new OSD: if it is to be drained, give a list with commas, "--drain h1,h2"')


def test_weights_of_new_osds_are_compared_with_those_of_the_same_class_alone() -> None:
    """The drained OSDs are no new ones."""
    weights = {**dict.fromkeys(range(8), 0.1), 8: 0.0, 9: 0.0}
    there = replace(facts(weights), crush=crush(weights, classes={
        **dict.fromkeys(range(10), 'hdd'), 0: 'ssd', 4: 'ssd'}))
    change = change_of(exchange('h0'), there)
    assert change is not None and not weight_warnings(exchange('h0'), change, there)
