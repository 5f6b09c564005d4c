# SPDX-License-Identifier: LGPL-2.1-or-later
"""What orders that change CRUSH record of OSDs and maps, and how a rollback finds it."""
import base64
import errno
from dataclasses import dataclass, field, replace
from typing import Any, Dict, List, Mapping, Optional, Tuple, Union

import pytest

from perfguard.cluster.crush import CrushRules
from perfguard.cluster.ports import Future, NoFuture, Outlook, ToolFailed
from perfguard.cluster.types import Osd, OsdMap, PgCounts, Pool, Signals, Space
from perfguard.errors import Refused
from perfguard.observation import Observation, Settings
from perfguard.rebalance.campaign import NO_CAMPAIGN, Campaign, Rollback
from perfguard.rebalance.crush_orders import (
    ADDED, CRUSH_BASE, CRUSH_BEFORE, CRUSH_MAP, DRAINED, NAMED_PARTS, Added, CrushOrders, Drained,
    _changing, _computed, _refuse_upmaps_max, changed_crush_parts)
from perfguard.rebalance.orders import DRAINED_WEIGHT, Order
from perfguard.rebalance.preview import Preview
from perfguard.rebalance.types import Phase
from perfguard.rebalance.weights import WeightChange
from perfguard.rebalance.whole_map import MapChange
from perfguard.store import Store

from ..fakes.campaigns import campaign_of
from ..fakes.cluster import MemoryKv
from .test_orders import crush

WEIGHTS = {0: 1.0, 1: 1.0, 2: 0.0, 3: DRAINED_WEIGHT, 4: 2.0}


@dataclass
class ClusterFake:
    crush_map_: Union[Tuple[bytes, int], OSError] = (b'map', 5)
    recommended: Union[Mapping[str, int], OSError] = OSError()
    rules: Union[CrushRules, ToolFailed] = field(default_factory=lambda: crush(WEIGHTS))
    future: Outlook = field(default_factory=lambda: Future({}, crush(WEIGHTS)))

    def crush_map(self) -> Tuple[bytes, int]:
        if isinstance(self.crush_map_, OSError):
            raise self.crush_map_
        return self.crush_map_

    def recommended_pg_nums(self) -> Mapping[str, int]:
        if isinstance(self.recommended, OSError):
            raise self.recommended
        return self.recommended

    def crush_rules(self, crush_map: bytes) -> CrushRules:
        if isinstance(self.rules, ToolFailed):
            raise self.rules
        return self.rules

    def osd_space(self) -> Mapping[int, Space]:
        return {osd: Space(1 << 40, 0, 0) for osd in WEIGHTS}

    def outlook(self, *args: Any) -> Outlook:
        return self.future


class Orders(CrushOrders):
    def __init__(self, drained: Optional[Mapping[int, Drained]] = None,
                 added: Optional[Mapping[int, Added]] = None) -> None:
        self.cluster, self.store = ClusterFake(), Store(MemoryKv())
        super().__init__(self.cluster, self.store)  # type: ignore[arg-type]
        self._put_drained(dict(drained or {}))
        self._put_added(dict(added or {}))

    def reloaded(self) -> Tuple[Mapping[int, Drained], Mapping[int, Added]]:
        """The records, as another mgr finds them."""
        other = CrushOrders(self.cluster, self.store)  # type: ignore[arg-type]
        assert other.load() == []
        return other._records, other._added


def seen(weights: Mapping[int, float] = WEIGHTS, version: int = 5,
         **osds: Optional[Osd]) -> Observation:
    """`osds`: "osd3": a row in place of the usual one; None: it is gone."""
    rows = {osd: osds.get('osd%d' % osd, Osd(osd, True, 1.0, uuid='u%d' % osd)) for osd in WEIGHTS}
    osdmap = OsdMap(7, frozenset(), {1: Pool(1, 'p', False, 3, 2, 0, 8, 8, 8)},
                    {osd: row for osd, row in rows.items() if row is not None}, {}, {}, {})
    return Observation(50.0, Signals(PgCounts()), Settings(osdmap, None), lambda pgid: None,
                       crush(dict(weights)), crush_version=version)


# ---- maps

@pytest.mark.parametrize('version, behind', [(4, True), (5, False), (6, False)])
def test_whether_this_mgr_has_an_older_map(version: int, behind: bool) -> None:
    orders = Orders()
    assert orders.mgr_is_behind_mons(seen(version=version)) is behind
    orders.cluster.crush_map_ = OSError('no answer')
    assert orders.mgr_is_behind_mons(seen(version=version)) is True


def test_the_map_from_before_a_campaign() -> None:
    orders = Orders()
    orders.remember(seen())
    document = {'version': 5, 'map': base64.b64encode(b'map').decode()}
    assert orders.store.get(CRUSH_BEFORE) == document
    assert orders._crush_map_before(seen(version=6)) == b'map'
    with pytest.raises(Refused, match='CRUSH has not changed .*version 5') as refused:
        orders._crush_map_before(seen())
    assert refused.value.errno == errno.ENOENT
    for crush_map, text in (
            ((b'map', 6), 'CRUSH is changing: the mons have version 6, this mgr has version 5'),
            (OSError('no answer'), 'no answer')):
        orders.cluster.crush_map_ = crush_map  # type: ignore[assignment]
        with pytest.raises(Refused, match=text) as refused:
            orders.remember(seen())
        assert refused.value.errno == errno.EAGAIN and refused.value.not_fit
        # An aborted campaign may still need it.
        assert orders.store.get(CRUSH_BEFORE) == document
    orders.forget_before()
    for stored in (None, {'version': 5}, [5]):
        if stored is not None:
            orders.store.put(CRUSH_BEFORE, stored)
        with pytest.raises(Refused, match='is not known') as refused:
            orders._crush_map_before(seen(version=6))
        assert refused.value.errno == errno.ENOENT


def test_what_is_journalled_of_a_map_and_its_end() -> None:
    orders = Orders()
    orders.journal(Preview(MapChange(), crush_map=b'new', order=Order('crushmap')), seen())
    assert orders.store.get(CRUSH_MAP) == base64.b64encode(b'new').decode()
    assert orders.store.get(CRUSH_BASE) == seen().crush.digest
    # The map must not be set before the mons have both.
    assert {CRUSH_MAP + '/head', CRUSH_BASE + '/head'} <= orders.store.unverified().keys()
    orders.remember(seen())
    orders.remove_maps()
    assert [orders.store.get(name) for name in (CRUSH_MAP, CRUSH_BASE, CRUSH_BEFORE)] == [None] * 3
    orders.journal(Preview(WeightChange(weights={4: 1.0}), order=Order('expand')), seen())
    assert orders.store.get(CRUSH_MAP) is orders.store.get(CRUSH_BASE) is None


@pytest.mark.parametrize('change, weights, version, text', [
    (WeightChange(), {}, 6, ''), (MapChange(), {}, 6, ''), (MapChange(crush_version=6), {}, 6, ''),
    (MapChange(crush_version=5), WEIGHTS, 6, ''),
    (MapChange(crush_version=5), {**WEIGHTS, 4: 1.0}, 6, 'osd.4')])
def test_changes_by_others_since_a_map_was_ordered(change: Any, weights: Mapping[int, float],
                                                   version: int, text: str) -> None:
    for stored in (True, False):
        orders = Orders()
        if stored:
            orders.store.put(CRUSH_BASE, seen().crush.digest)
        if isinstance(change, MapChange):
            change = replace(change, crush_identity=seen().crush.identity)
        found = orders.overtaken(seen(weights or WEIGHTS, version), change)
        assert text in found and bool(found) is bool(text)


def test_a_new_map_that_is_not_stored() -> None:
    orders = Orders()
    assert orders.foreseeing(seen(), MapChange())() == NoFuture(
        'the new CRUSH map is no longer in the store')
    orders.store.put(CRUSH_MAP, base64.b64encode(b'new').decode())
    assert isinstance(orders.foreseeing(seen(), MapChange())(), Future)
    orders.cluster.future = failed = NoFuture('no answer')
    assert orders.foreseeing(seen(), WeightChange(weights={4: 1.0}))() is failed


@pytest.mark.parametrize('name, stored', [
    (CRUSH_MAP, 5), (CRUSH_MAP, '?'), (CRUSH_MAP, {}), (CRUSH_BASE, [1]), (CRUSH_BASE, 'x'),
    (CRUSH_BASE, {'osd.1': 'x'})])
def test_a_new_map_that_cannot_be_read_is_set_aside(name: str, stored: Any) -> None:
    orders = Orders()
    orders.store.put(CRUSH_MAP, base64.b64encode(b'new').decode())
    orders.store.put(name, stored)
    error, = orders.load()
    assert 'before the campaign (' in error or 'the new CRUSH map of the campaign (' in error
    assert orders.store.get(name) is None and orders.store.unreadable == {name}
    outlook = orders.foreseeing(seen(), MapChange())()
    assert isinstance(outlook, NoFuture) == (name == CRUSH_MAP)
    changed = seen({**WEIGHTS, 4: 1.0}, 6)
    change = MapChange(crush_version=5, crush_identity=changed.crush.identity)
    assert orders.overtaken(changed, change) == ''
    assert orders.load() == []


@pytest.mark.parametrize('before, now, text', [
    ({'a': 1}, {'a': 1}, 'tunables or weight sets'), ({'a': 1}, {}, 'a'), ({}, {'a': 1}, 'a'),
    ({'b': 1, 'osd.10': 1, 'osd.9': 1, 'a': 1, 'c': 5}, {'c': 5}, 'osd.9, osd.10, a, b')])
def test_the_names_that_differ(before: Mapping[str, int], now: Mapping[str, int],
                               text: str) -> None:
    assert changed_crush_parts(before, now) == text
    many = {'osd.%d' % osd: 1 for osd in range(NAMED_PARTS + 2)}
    assert changed_crush_parts({}, many).endswith('osd.%d and 2 more' % (NAMED_PARTS - 1))


def test_results_of_tools() -> None:
    assert _computed(5, 'see') == 5
    with pytest.raises(Refused) as refused:
        _computed(NoFuture('no answer'), 'see')
    assert (refused.value.errno, str(refused.value)) == (
        errno.EIO, 'cannot see: no answer (try again)')
    _refuse_upmaps_max(Order('rule'), 'x')
    with pytest.raises(Refused) as refused:
        _refuse_upmaps_max(Order('rule', upmaps_max=0), 'x')
    assert (refused.value.errno, str(refused.value)) == (
        errno.EINVAL, '--upmaps-max does not apply: x')


@pytest.mark.parametrize('recommended, names, found', [
    ({'p': 16}, ('p', '8'), ('p', '8')), ({'p': 16}, ('p',), ('p', '16')),
    ({}, ('p',), errno.ENOENT), (OSError('no such module'), ('p',), errno.EIO)])
def test_the_number_of_the_autoscaler(recommended: Any, names: Tuple[str, ...],
                                      found: Any) -> None:
    orders = Orders()
    orders.cluster.recommended = recommended
    if isinstance(found, tuple):
        assert orders._pool_and_number(Order('pg_num', names)) == found
    else:
        with pytest.raises(Refused) as refused:
            orders._pool_and_number(Order('pg_num', names))
        assert refused.value.errno == found


def test_a_rollback_that_has_nothing_to_restore() -> None:
    orders, campaign = Orders(), campaign_of(1, Phase.ABORTED, 900.0)
    for rules, outlook, text, number in (
            (crush(WEIGHTS), NoFuture('x'), 'CRUSH has not changed', errno.ENOENT),
            (ToolFailed('broken'), NoFuture('x'), 'cannot read the CRUSH map .*: broken',
             errno.EIO),
            (crush({**WEIGHTS, 4: 1.0}), NoFuture('no answer'),
             'cannot preview the rollback: no answer', errno.EIO)):
        orders.cluster.rules, orders.cluster.future = rules, outlook  # type: ignore[assignment]
        with pytest.raises(Refused, match=text) as refused:
            orders._preview_back(campaign, {}, seen(), b'map', orders.facts(seen()))
        assert refused.value.errno == number


@pytest.mark.parametrize('order, text', [
    (Order('rule', ('p', 'none')), 'none'), (Order('pg_num', ('none', '8')), 'does not exist'),
    (Order('pg_num', ('p', '0')), 'from 1 to'), (Order('pg_num', ('p',)), ''),
    (Order('balance', ('none',)), 'no pool, nor'), (Order('balance', ('p',)), ''),
    (Order('expand', ('99',)), '99'), (Order('drain', ('99',)), '99'),
    (Order('undrain', ('99',)), '99'), (Order('drain', ('osd.0',)), ''),
    (Order('crushmap', ('none',)), ''), (Order('rollback', ('none',)), '')])
def test_arguments_that_are_wrong_in_any_state(order: Order, text: str) -> None:
    orders = Orders()
    if not text:
        orders.check_arguments(order, seen())
        return
    with pytest.raises(Refused, match=text):
        orders.check_arguments(order, seen())


# ---- drained OSDs

def test_drains_are_recorded() -> None:
    orders = Orders({1: Drained(3.0)})
    change = WeightChange(weights={0: 0.0, 3: 0.0, 4: 0.0}, drained=(0, 3, 4))
    orders.journal(Preview(change, order=Order('drain')), seen(osd4=None))
    # OSD 3 has a tiny weight already, and the OSDMap no longer contains OSD 4.
    expected = {1: Drained(3.0), 0: Drained(1.0, 'u0'), 4: Drained(2.0)}
    assert orders._records == expected == orders.reloaded()[0]
    orders.renew(seen().osdmap, {0: 1.0})
    assert orders._records == expected
    orders.renew(seen().osdmap, {0: 1.5, 2: 1.0})
    assert orders.reloaded()[0] == {**expected, 0: Drained(1.5, 'u0'), 2: Drained(1.0, 'u2')}


@pytest.mark.parametrize('osd, record, row, weight', [
    (2, Drained(3.0, 'u2'), Osd(2, True, 1.0, uuid='u2'), 3.0),
    (3, Drained(3.0, 'u3'), Osd(3, True, 1.0, uuid='u3'), 3.0),
    # It has a weight again.
    (0, Drained(3.0, 'u0'), Osd(0, True, 1.0, uuid='u0'), None),
    # Another device with this id: new, unless the earlier one has led PGs, or has a tiny weight.
    (2, Drained(3.0, 'u2'), Osd(2, True, 1.0, uuid='x'), None),
    (2, Drained(3.0, 'u2'), Osd(2, True, 1.0, uuid='x', up_thru=1), 3.0),
    (3, Drained(3.0, 'u3'), Osd(3, True, 1.0, uuid='x'), 3.0),
    (2, Drained(3.0), Osd(2, True, 1.0, uuid='x'), 3.0), (2, Drained(3.0, 'u2'), None, 3.0),
    (9, Drained(3.0, 'u9'), None, None)])
def test_the_weights_of_drained_osds(osd: int, record: Drained, row: Optional[Osd],
                                     weight: Optional[float]) -> None:
    orders = Orders({osd: record})
    rows: Any = {'osd%d' % osd: row}
    found = orders._drained(seen(**rows))
    assert found == ({} if weight is None else {osd: weight})


def test_the_facts_of_orders() -> None:
    orders = Orders({2: Drained(3.0, 'u2', (('host=a', 1.0),)), 3: Drained(1.0)},
                    {4: Added('u4', True), 1: Added('u1', False), 0: Added('x', True),
                     3: Added('', True), 9: Added('u9', True)})
    facts = orders.facts(seen(osd3=Osd(3, True, 1.0)))
    assert facts.drained == {2: 3.0, 3: 1.0} and facts.uneven == {2: {'host=a': 1.0}}
    # Those of the same devices.
    assert facts.undone == {4} and facts.space == orders.cluster.osd_space()
    assert orders.facts(seen(), space={}).space == {}


# ---- new OSDs

def test_expansions_are_recorded_until_they_are_rolled_back() -> None:
    orders = Orders(added={1: Added('u1')})
    change = WeightChange(weights={2: 1.0, 4: 1.0})
    orders.journal(Preview(change, order=Order('drain')), seen())
    assert orders._added == {1: Added('u1')}
    orders.journal(Preview(change, order=Order('expand')), seen())
    # OSD 4 has had a weight.
    expected = {1: Added('u1'), 2: Added('u2')}
    assert orders._added == expected == orders.reloaded()[1]
    orders.journal(Preview(change, order=None), seen())
    assert orders._added == {1: Added('u1'), 2: Added('u2', True)}
    # Until the weights of another expansion are in force, it is one that was rolled back.
    orders.journal(Preview(change, order=Order('expand')), seen())
    assert orders._added == {1: Added('u1'), 2: Added('u2', True)}
    orders.forget_added([1])
    assert orders.reloaded()[1] == {2: Added('u2', True)}
    orders.forget_added([2])
    assert orders._added == {} and orders.store.get(ADDED) is None


def test_an_osd_that_has_led_pgs_is_not_new() -> None:
    orders = Orders()
    orders.journal(Preview(WeightChange(weights={2: 1.0}), order=Order('expand')),
                   seen(osd2=Osd(2, True, 1.0, up_thru=5)))
    assert orders._added == {}


CHANGING = campaign_of(1, Phase.PINNING, 900.0, change=WeightChange(weights={0: 1.0, 4: 1.0}))


def test_the_osds_whose_weights_a_campaign_changes() -> None:
    campaign = replace(CHANGING, rollback=Rollback(WeightChange(weights={2: 1.0}),
                                                   undone=WeightChange(weights={3: 1.0})))
    assert _changing(campaign) == {0, 2, 3, 4} and _changing(NO_CAMPAIGN) == set()


@pytest.mark.parametrize('campaign, rows, remaining', [
    # OSD 0 has a weight, OSD 2 and 3 have none, OSD 9 is not there.
    (NO_CAMPAIGN, {}, {2, 3}), (CHANGING, {}, {0, 2, 3}), (CHANGING, {'osd0': None}, {2, 3}),
    (NO_CAMPAIGN, {'osd2': None}, {3})])
def test_drains_that_are_forgotten(campaign: Campaign, rows: Any, remaining: Any) -> None:
    records = {osd: Drained(1.0) for osd in (0, 2, 3, 9)}
    orders = Orders(records)
    orders.forget_old_records(seen(**rows), campaign, lambda: False)
    assert orders._records == records
    orders.forget_old_records(seen(**rows), campaign, lambda: True)
    assert orders._records == {osd: Drained(1.0) for osd in remaining}
    # Without a change, the journal is of no interest.
    orders.forget_old_records(seen(**rows), campaign, lambda: pytest.fail('asked'))


def test_a_drained_osd_that_has_left_crush_and_not_the_osdmap() -> None:
    orders = Orders({2: Drained(1.0)})
    orders.forget_old_records(seen({osd: weight for osd, weight in WEIGHTS.items() if osd != 2}),
                              NO_CAMPAIGN, lambda: True)
    assert orders._records == {2: Drained(1.0)}


CLOSING = campaign_of(1, Phase.RELEASING, 900.0,
                      change=WeightChange(weights={3: 0.0}, closing=True))


@pytest.mark.parametrize('campaign, expected', [
    # OSD 0 has a weight, OSD 2 has none.
    (NO_CAMPAIGN, {12: True}), (CHANGING, {0: False, 10: False, 12: True}),
    (replace(CHANGING, rollback=Rollback(begun=True)), {0: False, 10: True, 12: True}),
    (replace(CHANGING, rollback=Rollback(WeightChange(weights={}))),
     {0: False, 10: True, 12: True}),
    (CLOSING, {0: False, 2: False, 10: False, 12: True})])
def test_new_osds_that_are_forgotten(campaign: Campaign, expected: Dict[int, bool]) -> None:
    """Keys from 10 on: the OSD with this id less 10, whose expansion was rolled back."""
    for undone in (False, True):
        orders = Orders(added={osd: Added('u', undone) for osd in (0, 2)})
        orders.forget_old_records(seen(), campaign, lambda: True)
        assert orders._added == {key % 10: Added('u', is_undone)
                                 for key, is_undone in expected.items() if (key >= 10) is undone}


def test_records_that_make_no_sense() -> None:
    orders = Orders()
    orders.store.put(DRAINED, {'0': 'x'})
    orders.store.put(ADDED, {'0': 5})
    errors: List[str] = orders.load()
    assert len(errors) == 2 and errors[0].startswith('the drained OSDs (')
    assert errors[1].startswith('the new OSDs (') and orders._records == orders._added == {}
