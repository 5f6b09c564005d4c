# SPDX-License-Identifier: LGPL-2.1-or-later
"""What the preview of each order asks of Ceph's tools, and makes of their answer."""
import errno
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any, List, Mapping, Optional, Sequence, Tuple

import pytest

from perfguard.cluster.crush import CrushRules
from perfguard.cluster.ports import (Future, FuturePg, Grown, NewHosts, NoFuture, Outlook,
                                     ToolFailed)
from perfguard.cluster.types import (NO_ENTRY, NO_OSD, Balancing, ConfigEntry, Osd, PgCounts,
                                     PoolPgs, PoolRule, Signals, Space, UpmapEntry)
from perfguard.errors import Refused
from perfguard.observation import Observation
from perfguard.rebalance.balancing import BalanceChange
from perfguard.rebalance.campaign import NO_CAMPAIGN, Campaign
from perfguard.rebalance.change import ChangeStage, Led
from perfguard.rebalance.crush_orders import CRUSH_MAP, CrushOrders, Drained
from perfguard.rebalance.orders import Order
from perfguard.rebalance.pg_num import PgNumChange
from perfguard.rebalance.pool_rule import RuleChange
from perfguard.rebalance.preview import ASSUMED, EARLIER_CAMPAIGNS, Preview
from perfguard.rebalance.types import TINY_WEIGHT, Bounds, Flight, Phase, PinRecord
from perfguard.rebalance.weights import WeightChange
from perfguard.rebalance.whole_map import MapChange
from perfguard.store import Store

from ..fakes.campaigns import campaign_of, changed
from ..fakes.cluster import MemoryKv
from ..fakes.drafts import HERE, OPTIONS, OSDS, THERE, draft_of
from .test_orders import crush

#: OSD 8 is new.
WEIGHTS = {**dict.fromkeys(OSDS, 1.0), 8: 0.0}
BEFORE, AFTER = crush(WEIGHTS, hosts=9), crush({**WEIGHTS, 8: 1.0}, hosts=9)
#: Two OSDs a host.
IN_PAIRS = crush(WEIGHTS, hosts=4)
FUTURE = Future({'1.0': FuturePg(HERE, (8, 1, 2))}, AFTER)
FAILED = NoFuture('no answer')
CRUSH_OPTIONS = replace(OPTIONS, target='crush')
BALANCED = replace(OPTIONS, target='balanced')
EXPAND = Order('expand', ('osd.8',), weight='1')


@dataclass
class ClusterFake:
    future: Outlook = field(default_factory=lambda: FUTURE)
    #: Results of later questions for a mapping, and the arguments of all.
    later: List[Outlook] = field(default_factory=list)
    asked: List[Tuple[Any, ...]] = field(default_factory=list)
    rules: Any = field(default_factory=lambda: AFTER)
    compiled: List[Tuple[bytes, int]] = field(default_factory=list)
    broken_source: bool = False
    entries: Optional[Sequence[ConfigEntry]] = ()
    #: How often the configuration database was read.
    reads: int = 0
    pg_limit: int = 250
    pool_limit: int = 0
    lost: Any = None
    larger: Any = None

    def outlook(self, *args: Any) -> Outlook:
        self.asked.append(args)
        return self.later.pop(0) if self.later and len(self.asked) > 1 else self.future

    def osd_space(self) -> Mapping[int, Space]:
        return {osd: Space(1 << 40, 0, 0 if osd == 8 else 3) for osd in WEIGHTS}

    def pool_shared(self) -> Mapping[int, float]:
        return {1: 0.25}

    def pgs_per_osd_limit(self) -> int:
        return self.pg_limit

    def mon_pg_limits(self) -> Tuple[int, int]:
        return self.pg_limit, self.pool_limit

    def config_entries(self) -> Optional[Sequence[ConfigEntry]]:
        self.reads += 1
        return self.entries

    def recommended_pg_nums(self) -> Mapping[str, int]:
        return {'p': 16}

    def crush_map(self) -> Tuple[bytes, int]:
        return b'map', 5

    def crush_rules(self, crush_map: bytes) -> CrushRules:
        assert crush_map in (b'map', b'compiled')
        if isinstance(self.rules, ToolFailed):
            raise self.rules
        found: CrushRules = self.rules
        return found

    def compiled_crush_map(self, source: bytes, ids: int) -> bytes:
        self.compiled.append((source, ids))
        if self.broken_source:
            raise ToolFailed('broken')
        return b'compiled'

    def shrunk(self, *args: Any) -> Any:
        self.asked.append(args)
        return self.lost

    def grown(self, *args: Any) -> Any:
        self.asked.append(args)
        return self.larger

    def drive_ids(self, osds: Sequence[int]) -> Mapping[int, str]:
        return dict.fromkeys(osds, 'a drive')


class Orders(CrushOrders):
    def __init__(self, **cluster: Any) -> None:
        self.cluster, self.store = ClusterFake(**cluster), Store(MemoryKv())
        super().__init__(self.cluster, self.store)  # type: ignore[arg-type]

    def preview(self, order: Order, seen: Observation, options: Any = CRUSH_OPTIONS,
                rates: Sequence[float] = ()) -> Preview:
        work = self.previewing(order, seen, options, rates)
        assert self.cluster.asked == [], 'the tool thread asks'
        return work()


def observed(**fields: Any) -> Observation:
    fields = {'crush': BEFORE, 'crush_version': 5, 'osds': {8: Osd(8, True, 1.0)},
              'signals': Signals(PgCounts(total=16), pool_bytes={1: 800, 2: 800}), **fields}
    return draft_of(NO_CAMPAIGN, **fields).observed


SEEN = observed()
OSDMAP = SEEN.osdmap


def refused(number: int, text: str, orders: Orders, *args: Any) -> None:
    with pytest.raises(Refused) as error:
        orders.preview(*args)
    assert (error.value.errno, str(error.value)) == (number, text)


# ---- the mapping after a change

def test_the_mapping_after_a_change() -> None:
    orders = Orders()
    change: Any = SimpleNamespace(chunk={8: 0.5}, whole=True, setting='a setting',
                                  foreseen=lambda *args: args)
    seen = observed(crush=BEFORE.with_upmaps_kept_under(frozenset({7})))
    work = orders.foreseeing(seen, change)
    assert orders.cluster.asked == []
    outlook, observation, space = work()  # type: ignore[misc]
    assert orders.cluster.asked == [(OSDMAP, {8: 0.5}, None, True, 'a setting')]
    # The tools know nothing of what the mons do.
    assert outlook.crush.proven_rules == {7}
    assert observation is seen and space == orders.cluster.osd_space()
    orders.store.put(CRUSH_MAP, 'bmV3')
    assert orders.foreseeing(seen, MapChange())() is not None
    assert orders.cluster.asked[1:] == [(OSDMAP, {}, b'new', False, None)]


# ---- weights

def test_the_preview_of_weights() -> None:
    orders = Orders()
    preview = orders.preview(EXPAND, SEEN, CRUSH_OPTIONS, (50.0, 40.0, 30.0))
    assert orders.cluster.asked == [(OSDMAP, {8: 1.0}, None, False, None)]
    assert preview.change == WeightChange(weights={8: 1.0}) and preview.order is EXPAND
    assert preview.planned.pins == {'1.0': PinRecord(NO_ENTRY, UpmapEntry(((8, 0),)))}
    assert preview.balanced is None and preview.warnings == () and orders.cluster.reads == 0
    effects = preview.effects
    assert effects is not None and effects.pg_limit == 250 and effects.clone_bytes == 25
    assert effects.eta_basis == EARLIER_CAMPAIGNS and effects.eta.seconds == 2.5
    preview = orders.previewing(EXPAND, SEEN, BALANCED)()
    # The balance depends on the PGs that CRUSH does not move as well.
    assert orders.cluster.asked[1:] == [(OSDMAP, {8: 1.0}, None, True, None)]
    assert preview.balanced is not None and preview.effects is not None
    assert preview.effects.eta_basis == ASSUMED


def test_weights_for_mons_that_keep_upmaps() -> None:
    seen = observed(crush=BEFORE.with_upmaps_kept_under(frozenset({7})))
    outlook = Orders().preview(EXPAND, seen).outlook
    assert outlook is not None and outlook.crush.proven_rules == {7}


@pytest.mark.parametrize('entries, warned', [((), False), (None, True)])
def test_the_configuration_is_read_for_weight_sets(entries: Any, warned: bool) -> None:
    seen = observed(crush=replace(BEFORE, weight_sets=True))
    orders = Orders(entries=entries)
    assert any('weight sets' in text for text in orders.preview(EXPAND, seen).warnings) is warned
    assert orders.cluster.reads == 1


# ---- a CRUSH map

def crushmap(**fields: Any) -> Order:
    fields = {'crush_map': b'source', **fields}
    return Order('crushmap', **fields)


@pytest.mark.parametrize('target', [CRUSH_OPTIONS, BALANCED])
@pytest.mark.parametrize('prior', [None, 5])
def test_the_preview_of_a_crush_map(target: Any, prior: Optional[int]) -> None:
    orders = Orders()
    preview = orders.preview(crushmap(prior_version=prior), SEEN, target)
    assert orders.cluster.compiled == [(b'source', 9)]
    assert orders.cluster.asked == [(OSDMAP, {}, b'compiled', True, None)]
    assert preview.change == MapChange.to(AFTER, SEEN) and preview.crush_map == b'compiled'
    assert list(preview.planned.pins) == ['1.0'] and preview.first == ()


def test_crush_maps_that_are_refused() -> None:
    refused(errno.EINVAL, 'not a CRUSH map: broken', Orders(broken_source=True), crushmap(), SEEN)
    orders = Orders(broken_source=True)
    refused(errno.EINVAL, 'not a CRUSH map: broken', orders, crushmap(crush_map=None),
            observed(osds={}, without=WEIGHTS))
    assert orders.cluster.compiled == [(b'', 0)]
    refused(errno.EINVAL, 'not a CRUSH map: cannot read', Orders(rules=ToolFailed('cannot read')),
            crushmap(), SEEN)
    refused(errno.EPERM, 'the CRUSH map has version 5, not 4: it has changed since "ceph osd '
            'getcrushmap"', Orders(), crushmap(prior_version=4), SEEN)
    refused(errno.EIO, 'cannot preview the CRUSH map: no answer (try again)', Orders(
        future=FAILED), crushmap(), SEEN)
    for options in (CRUSH_OPTIONS, BALANCED):
        refused(errno.EINVAL, '--upmaps-max does not apply: no PGs move before the CRUSH map is '
                'set', Orders(), crushmap(upmaps_max=0), SEEN, options)
    with pytest.raises(Refused, match='lacks rule 0'):
        Orders(rules=crush(WEIGHTS, rules=0)).preview(crushmap(), SEEN)


#: With two OSDs in each host, PG 1.0 may not stay where it is, and CRUSH moves PG 1.1. All OSDs
#: have three of the PGs then.
SETS = {'1.%x' % seed: tuple((seed + place) % 8 for place in range(3)) for seed in range(8)}
NARROW = Future({**{pgid: FuturePg(osds, osds) for pgid, osds in SETS.items()},
                 '1.0': FuturePg((0, 4, 1), (0, 2, 1)), '1.1': FuturePg((1, 2, 3), (1, 2, 7))},
                IN_PAIRS)


def test_pgs_that_a_crush_map_does_not_allow_to_stay_move_with_it() -> None:
    orders = Orders(rules=IN_PAIRS, future=NARROW)
    preview = orders.preview(crushmap(), SEEN)
    assert list(preview.planned.unpinnable) == ['1.0'] and preview.first == ()
    assert preview.change == MapChange.to(IN_PAIRS, SEEN) and preview.details.key is None


@pytest.mark.parametrize('upmaps_max, first, pins', [
    (None, ['1.0'], ['1.1']), (2, ['1.0'], ['1.1']), (1, ['1.0'], ['1.1']),
    (0, ['1.0', '1.1'], [])])
def test_pgs_that_a_crush_map_does_not_allow_to_stay_move_first(
        upmaps_max: Optional[int], first: List[str], pins: List[str]) -> None:
    orders = Orders(rules=IN_PAIRS, future=NARROW)
    preview = orders.preview(crushmap(upmaps_max=upmaps_max), SEEN, BALANCED)
    assert sorted(move.pgid for move in preview.first) == first
    assert preview.change == replace(
        MapChange.to(IN_PAIRS, SEEN), least=Bounds.of(BALANCED), upmaps_max=upmaps_max,
        limited=() if upmaps_max is None else (1,), balanced=(1,))
    # Once they have moved, nothing but the other pins is left.
    assert list(preview.planned.pins) == pins and not preview.planned.unpinnable
    assert preview.outlook is not None and preview.outlook.pgs['1.0'] == FuturePg(
        (0, 2, 1), (0, 2, 1))
    assert preview.entries == len(pins) and preview.details.upmaps == len(pins)
    shown: Any = preview.details.shown
    assert preview.details.key == 'crushmap' and shown['pgs'] == len(first)
    assert shown['least_moves']['upmaps'] == len(pins)


def test_no_pgs_move_first_in_pools_that_the_balancer_does_not_cover() -> None:
    seen = observed(balancing=Balancing(upmap=False))
    preview = Orders(rules=IN_PAIRS, future=NARROW).preview(crushmap(), seen, BALANCED)
    assert list(preview.planned.unpinnable) == ['1.0'] and preview.first == ()
    assert preview.change == MapChange.to(IN_PAIRS, SEEN)
    refused(errno.EINVAL, '--upmaps-max does not apply: no PGs move before the CRUSH map is set',
            Orders(rules=IN_PAIRS, future=NARROW), crushmap(upmaps_max=0), seen, BALANCED)


# ---- a rule

def two_rules(first: str, second: str) -> CrushRules:
    """Two OSDs in each host."""
    one, other = (crush(WEIGHTS, hosts=4, domain=domain) for domain in (first, second))
    dumped: Any = {rule: {**rules._dumped_rules[0], 'rule_id': rule, 'rule_name': 'r%d' % rule,
                          'type': 1} for rule, rules in enumerate((one, other))}
    return replace(one, _dumped_rules=dumped)


RULES = two_rules('osd', 'host')
#: The rules are exchanged.
EXCHANGED = replace(NARROW, crush=two_rules('host', 'osd'))
RULE = Order('rule', ('p', 'r1'))
SAME_RULE = Future({'1.0': FuturePg(HERE, THERE)}, two_rules('osd', 'osd'))


def test_the_preview_of_a_rule_that_allows_pgs_to_stay() -> None:
    orders = Orders(future=SAME_RULE)
    preview = orders.preview(RULE, observed(crush=two_rules('osd', 'osd')), BALANCED)
    assert orders.cluster.asked == [(OSDMAP, {}, None, True, PoolRule(1, 1))]
    assert preview.change == RuleChange(rule=PoolRule(1, 1), rule_name='r1', found_rule='r0')
    assert list(preview.planned.pins) == ['1.0'] and preview.outlook == SAME_RULE
    assert preview.planned.moves['1.0'].bytes == 100
    assert preview.warnings == () and preview.details.moves_first is False


def test_rules_that_are_refused() -> None:
    seen = observed(crush=RULES)
    refused(errno.EIO, 'cannot preview the CRUSH rule: no answer (try again)',
            Orders(future=FAILED), RULE, seen)
    short = replace(EXCHANGED, pgs={'1.0': FuturePg(HERE, (0, 1))})
    refused(errno.EINVAL, 'CRUSH rule r1 finds fewer than 3 OSDs for 1 PG of pool p, such as PG '
            '1.0', Orders(future=short), RULE, seen)
    limited = replace(RULE, upmaps_max=0)
    refused(errno.EINVAL, '--upmaps-max does not apply: the new rule allows every PG to stay '
            'where it is', Orders(future=SAME_RULE), limited, observed(
                crush=two_rules('osd', 'osd')), BALANCED)
    all_move = '--upmaps-max does not apply: all PGs move to where the new rule places them: '
    refused(errno.EINVAL, all_move + 'target=crush', Orders(future=EXCHANGED), limited, seen)
    refused(errno.EINVAL, all_move + 'the balancer does not cover the pool (balancer mode, or '
            'pool list)', Orders(future=EXCHANGED), limited, observed(
                crush=RULES, balancing=Balancing(upmap=False)), BALANCED)


FIRST = RuleChange(rule=PoolRule(1, 1), rule_name='r1', found_rule='r0', moves_first=True)
GOALS = {'1.0': UpmapEntry(((4, 2),)), '1.1': UpmapEntry(((3, 7),))}


@pytest.mark.parametrize('options, balancing, upmaps_max, moving, least, warning', [
    (CRUSH_OPTIONS, Balancing(), None, ['1.0', '1.1'], None, ''),
    (BALANCED, Balancing(upmap=False), None, ['1.0', '1.1'], None, 'does not cover the pool'),
    (BALANCED, Balancing(), None, ['1.0'], Bounds.of(BALANCED), ''),
    (BALANCED, Balancing(), 1, ['1.0'], Bounds.of(BALANCED), ''),
    (BALANCED, Balancing(), 0, ['1.0', '1.1'], Bounds.of(BALANCED), '')])
def test_the_preview_of_a_rule_before_which_pgs_move(
        options: Any, balancing: Balancing, upmaps_max: Optional[int], moving: List[str],
        least: Optional[Bounds], warning: str) -> None:
    orders = Orders(future=EXCHANGED)
    preview = orders.preview(replace(RULE, upmaps_max=upmaps_max),
                             observed(crush=RULES, balancing=balancing), options)
    assert preview.change == replace(FIRST, least=least, upmaps_max=upmaps_max)
    assert {pgid: pin.goal for pgid, pin in preview.planned.pins.items()} == {
        pgid: GOALS[pgid] for pgid in moving}
    assert preview.outlook is None and preview.effects is not None
    assert preview.details.moves_first is True
    assert preview.details.follows_change is (least is None)
    assert preview.details.upmaps == (2 - len(moving) if least is not None else 0)
    assert [warning in text for text in preview.warnings] == ([True] if warning else [])


def trees(first: int, second: int) -> CrushRules:
    """Rules 0 and 1 take these roots, of four hosts each, and rule 2 takes both."""
    return CrushRules.from_dump({
        'types': [{'type_id': 0, 'name': 'osd'}, {'type_id': 1, 'name': 'host'},
                  {'type_id': 11, 'name': 'root'}],
        'buckets': [*({'id': -10 - osd, 'name': 'h%d' % osd, 'type_id': 1,
                       'items': [{'id': osd, 'weight': 65536}]} for osd in OSDS),
                    *({'id': number, 'name': name, 'type_id': 11,
                       'items': [{'id': item, 'weight': 65536} for item in items]}
                      for number, name, items in ((-1, 'a', range(-10, -14, -1)),
                                                  (-2, 'b', range(-14, -18, -1)),
                                                  (-3, 'all', (-1, -2))))],
        'rules': [{'rule_id': rule, 'rule_name': 'r%d' % rule, 'type': 1, 'steps': [
            {'op': 'take', 'item': root}, {'op': 'chooseleaf_firstn', 'num': 0, 'type': 'host'},
            {'op': 'emit'}]} for rule, root in enumerate((first, second, -3))]})


def test_the_preview_of_a_rule_with_an_intermediate_one() -> None:
    orders = Orders(future=Future({'1.0': FuturePg(HERE, (4, 5, 6))}, trees(-2, -1)))
    preview = orders.preview(RULE, observed(crush=trees(-1, -2)))
    assert preview.change == RuleChange(rule=PoolRule(1, 2), then=1, rule_name='r1',
                                        found_rule='r0', via='r2')
    assert {pgid: pin.goal for pgid, pin in preview.planned.pins.items()} == {
        '1.0': UpmapEntry(((0, 4), (1, 5), (2, 6)))}
    assert preview.details.moves_first is True and preview.details.pins_at_once == 8


def test_pgs_that_leave_an_osd_are_not_what_an_intermediate_rule_has_to_allow() -> None:
    """They cannot be pinned in its epoch, of which the preview warns."""
    future = Future({'1.0': FuturePg(HERE, (4, 5, 6)), '1.1': FuturePg((0, 1, 3), (5, 6, 7))},
                    trees(-2, -1))
    preview = Orders(future=future).preview(
        RULE, observed(crush=trees(-1, -2), osds={3: Osd(3, True, 0.0)}))
    assert isinstance(preview.change, RuleChange) and preview.change.via == 'r2'
    assert {pgid: why.reason for pgid, why in preview.planned.unpinnable.items()} == {
        '1.1': 'osd.3 is out'}


def test_pgs_that_leave_an_osd_do_not_make_others_move_before_the_rule_is_changed() -> None:
    future = replace(SAME_RULE, pgs={**SAME_RULE.pgs, '1.1': FuturePg((0, 1, 7), (0, 1, 3))})
    preview = Orders(future=future).preview(
        RULE, observed(crush=two_rules('osd', 'osd'), osds={7: Osd(7, True, 0.0)}))
    assert preview.details.moves_first is False and preview.outlook is not None
    assert list(preview.planned.pins) == ['1.0'] and list(preview.planned.unpinnable) == ['1.1']


# ---- pg_num

def test_the_preview_of_pg_num() -> None:
    future = replace(FUTURE, pgs={'1.0': FuturePg(HERE, HERE), '1.8': FuturePg(HERE, THERE)})
    for order in (Order('pg_num', ('p', '16')), Order('pg_num', ('p',), dry_run=True),
                  Order('pg_num', ('p', '16'), dry_run=True)):
        orders = Orders(future=future)
        preview = orders.preview(order, SEEN)
        assert orders.cluster.asked == [(OSDMAP, {}, None, False, PoolPgs(1, 16, 16))]
        assert preview.change == PgNumChange(step=PoolPgs(1, 16, 8), pg_num=16, found_pg_num=8)
        assert {pgid: pin.goal for pgid, pin in preview.planned.pins.items()} == {
            '1.8': UpmapEntry(((0, 3),))}
        assert preview.pgs_by_split == dict.fromkeys(HERE, 1)
        assert preview.details.shown['splits'] == 8 and preview.outlook is None


def test_numbers_of_pgs_that_are_refused() -> None:
    more = Order('pg_num', ('p', '16'))
    refused(errno.EINVAL, 'pg_num is missing: the pg_autoscaler recommends 16 for pool p ("ceph '
            'perfguard pg_num p 16 --dry-run" shows what would move)', Orders(),
            Order('pg_num', ('p',)), SEEN)
    refused(errno.EIO, 'cannot preview pg_num: no answer (try again)', Orders(future=FAILED), more,
            SEEN)
    refused(errno.EINVAL, 'CRUSH rule r0 finds fewer than 3 OSDs for 1 PG of pool p, such as PG '
            '1.8', Orders(future=replace(FUTURE, pgs={'1.8': FuturePg(HERE, (0, 1))})), more, SEEN)
    with pytest.raises(Refused, match='beyond mon_max_pool_pg_num'):
        Orders(pool_limit=12).preview(more, SEEN)
    with pytest.raises(Refused, match=r'limit 7, mon_max_pg_per_osd'):
        Orders(pg_limit=7).preview(more, SEEN)


# ---- a balance

def test_the_preview_of_a_balance() -> None:
    order = Order('balance', ('p',), max_movement='100%')
    orders = Orders(future=replace(NARROW, crush=BEFORE, pgs={
        pgid: FuturePg(HERE, HERE) for pgid in NARROW.pgs}))
    preview = orders.preview(order, SEEN, BALANCED)
    assert orders.cluster.asked == [(OSDMAP, {}, None, True, None)]
    assert isinstance(preview.change, BalanceChange) and preview.details.key == 'balance'
    assert preview.planned.moves and preview.outlook is None and preview.effects is not None
    refused(errno.EIO, 'cannot read where CRUSH places the PGs: no answer (try again)',
            Orders(future=FAILED), order, SEEN)
    # Of the loads by bytes.
    with pytest.raises(Refused, match='store no data'):
        orders = Orders(future=replace(NARROW, crush=BEFORE))
        orders.preview(replace(order, by='bytes'), SEEN, BALANCED)


# ---- a rollback

DONE = campaign_of(1, Phase.ABORTED, 900.0, change=WeightChange(
    weights={8: 1.0}, stage=ChangeStage.LANDED))
NOW = observed(crush=AFTER, crush_version=6)


class Rollbacks(Orders):
    def __init__(self, **cluster: Any) -> None:
        super().__init__(**{'rules': BEFORE, **cluster})
        self.remember(SEEN)

    def back(self, campaign: Campaign = DONE, pins: Mapping[str, PinRecord] = {},
             seen: Observation = NOW, rates: Sequence[float] = ()) -> Preview:
        return self.previewing_back(campaign, pins, seen, BALANCED, rates)()


def back_to(acting: Any, *, crush_rules: CrushRules = BEFORE) -> Future:
    return Future({'1.0': FuturePg(acting, HERE)}, crush_rules)


@pytest.mark.parametrize('acting, targets, weight, drained', [
    (HERE, (), 0.0, ()), ((8, 1, 2), (), TINY_WEIGHT, (8,)), (HERE, (8,), TINY_WEIGHT, (8,))])
def test_the_preview_of_earlier_weights(acting: Any, targets: Tuple[int, ...], weight: float,
                                        drained: Tuple[int, ...]) -> None:
    """An OSD that holds PGs, or is about to, keeps a tiny weight."""
    orders = Rollbacks(future=back_to(acting))
    flights = {'1.3': Flight(900.0, NO_ENTRY, targets=targets)}
    preview = orders.back(changed(DONE, in_flight=flights), rates=(50.0, 40.0, 30.0))
    assert preview.change == WeightChange(weights={8: weight}, drained=drained)
    assert orders.cluster.asked == [(OSDMAP, {8: 0.0}, None, False, None),
                                    (OSDMAP, {8: weight}, None, True, None)]
    assert preview.crush_map is None and preview.order is None and preview.balanced is None
    assert preview.effects is not None and preview.effects.eta_basis == EARLIER_CAMPAIGNS


def test_an_osd_that_was_drained_before_ends_without_weight() -> None:
    rules = crush({**WEIGHTS, 8: TINY_WEIGHT}, hosts=9)
    orders = Rollbacks(future=back_to(HERE), rules=rules)
    assert orders.back().change.weights == {8: pytest.approx(TINY_WEIGHT, rel=0.1)}
    orders._put_drained({8: Drained(1.0)})
    assert orders.back().change.weights == {8: 0.0}


def test_the_entries_from_before_are_restored() -> None:
    here = UpmapEntry(((3, 0),))
    seen = observed(crush=AFTER, crush_version=6, entries={'1.0': UpmapEntry(((8, 0),))})
    future = Future({'1.0': FuturePg(HERE, THERE)}, BEFORE)
    pins = {'1.0': PinRecord(NO_ENTRY, UpmapEntry(((8, 0),)), was=here)}
    preview = Rollbacks(future=future).back(pins=pins, seen=seen)
    assert preview.planned.removed == {'1.0': here} and not preview.planned.pins


def test_the_preview_of_an_earlier_map() -> None:
    orders = Rollbacks(future=back_to((*HERE[:2], NO_OSD)), rules=IN_PAIRS)
    preview = orders.back()
    assert preview.change == MapChange.to(IN_PAIRS, NOW) and preview.crush_map == b'map'
    assert orders.cluster.asked == [(OSDMAP, {}, b'map', False, None),
                                    (OSDMAP, {}, b'map', True, None)]
    with pytest.raises(Refused, match='does not contain osd.8') as error:
        Rollbacks(future=back_to((8, 1, 2)), rules=IN_PAIRS).back()
    assert error.value.errno == errno.EBUSY


@pytest.mark.parametrize('rules', [BEFORE, IN_PAIRS])
def test_rollbacks_whose_effects_are_not_known(rules: CrushRules) -> None:
    second = 'preview the CRUSH map' if rules is IN_PAIRS else 'preview the rollback'
    cases: List[Tuple[Any, str]] = [
        ({'future': FAILED}, 'preview the rollback'),
        ({'future': back_to(HERE), 'later': [FAILED]}, second)]
    for cluster, text in cases:
        with pytest.raises(Refused) as error:
            Rollbacks(rules=rules, **cluster).back()
        assert (error.value.errno, str(error.value)) == (
            errno.EIO, 'cannot %s: no answer (try again)' % text)


def test_a_rollback_of_upmaps_alone() -> None:
    """CRUSH stays as it is, and what it was before does not matter."""
    led = Led(NO_ENTRY, UpmapEntry(((0, 3),)))
    change = BalanceChange(pools=(1,), stage=ChangeStage.LANDED, ahead={'1.0': led})
    seen = observed(entries={'1.0': led.entry}, up={'1.0': THERE}, acting={'1.0': THERE})
    orders = Orders()
    preview = orders.previewing_back(replace(DONE, change=change), {}, seen, BALANCED, ())()
    assert preview.change == replace(change, ahead={}) and preview.entries == 0
    assert list(preview.planned.moves) == ['1.0'] and preview.effects is not None
    assert orders.cluster.asked == []


# ---- what if

def test_the_preview_of_a_loss() -> None:
    orders, order = Orders(), Order('lose', ('osd.7',))
    orders.cluster.lost = future = Future({'1.0': FuturePg((7, 1, 2), HERE)}, BEFORE)
    work = orders.supposing(order, SEEN, CRUSH_OPTIONS, (10.0,))
    assert orders.cluster.asked == []
    answer = work()
    assert orders.cluster.asked == [(OSDMAP, frozenset({7}))]
    assert (answer['verb'], answer['osds'], answer['shards']) == ('lose', [7], 1)
    assert answer['eta_seconds'] == 10.0
    orders.cluster.lost = FAILED
    with pytest.raises(Refused, match='cannot compute where PGs would be: no answer') as error:
        work()
    assert error.value.errno == errno.EIO and future.pgs


def larger() -> Grown:
    weights = {**WEIGHTS, 9: 0.0}
    return Grown(Future({'1.0': FuturePg(HERE, (9, 1, 2))}, crush({**weights, 9: 1.0}, hosts=10)),
                 crush(weights, hosts=10))


@pytest.mark.parametrize('rates, seconds', [((), None), ((10.0, 10.0, 10.0), 10.0)])
def test_the_preview_of_hosts_that_are_not_there(rates: Tuple[float, ...],
                                                 seconds: Optional[float]) -> None:
    orders, order = Orders(larger=larger()), Order('expand', what_if='1x1x1TiB', dry_run=True)
    answer: Any = orders.supposing(order, SEEN, CRUSH_OPTIONS, rates)()
    (osdmap, new), = orders.cluster.asked
    assert osdmap == OSDMAP and isinstance(new, NewHosts) and new.osds == (9,)
    assert answer['what_if']['osds'] == 1 and answer['weights'] == {'osd.9': 1.0}
    assert (answer['pgs'], answer['campaign'], answer['eta_seconds']) == (1, None, seconds)
    assert answer['capacity'] is not None and orders.cluster.reads == 0
    sets = observed(crush=replace(BEFORE, weight_sets=True))
    orders.cluster.larger = larger()._replace(crush=replace(larger().crush, weight_sets=True))
    orders.cluster.entries = None
    answer = orders.supposing(order, sets, CRUSH_OPTIONS, rates)()
    assert any('weight sets' in text for text in answer['warnings'])
    orders.cluster.larger = FAILED
    with pytest.raises(Refused, match='cannot compute where PGs would be: no answer'):
        orders.supposing(order, SEEN, CRUSH_OPTIONS, rates)()


def test_the_drives_of_osds() -> None:
    assert Orders().drive_ids([3]) == {3: 'a drive'}
