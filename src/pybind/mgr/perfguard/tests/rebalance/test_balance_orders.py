# SPDX-License-Identifier: LGPL-2.1-or-later
"""What an order to balance pools chooses, refuses and shows, without a cluster."""
import errno
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, Collection, Dict, List, Mapping, Optional, Sequence, Tuple

import pytest

from perfguard.cluster.ports import Future, FuturePg, NoFuture
from perfguard.cluster.types import (NO_OSD, Balancing, Osd, OsdMap, OsdSet, PgCounts, Placement,
                                     Pool, Signals, Space, UpmapEntry)
from perfguard.errors import Refused
from perfguard.observation import Observation, Settings
from perfguard.rebalance import balancing
from perfguard.rebalance.balancing import (
    NAMED_POOLS, BalanceChange, _destination, _even_pools, _group, _may_move, _load_range,
    _refuse_harm, _refuse_nothing, _shown_of, _why_not, _why_undone, balance_ordered,
    change_ordered, check_balance, chosen)
from perfguard.rebalance.change import ChangeStage, Led
from perfguard.rebalance.orders import Order
from perfguard.rebalance.types import PinRecord
from perfguard.rebalance.weights import WeightChange
from perfguard.upmap.evening import Evened

from ..upmap.test_evening_steps import rules

#: Two roots with a rule and a device class each.
CRUSH = rules((0, 1, 2), (3, 4, 5))


def a_pool(number: int, name: str, rule: int = 0, **fields: Any) -> Pool:
    return replace(Pool(number, name, False, 2, 1, rule, 4, 4, 4), **fields)


A, B, C = a_pool(1, 'a'), a_pool(2, 'b'), a_pool(3, 'c', 1)
MERGING = {'pg_num_pending': 3}


def seen(*pools: Pool, active: Optional[str] = 'true', upmaps: Collection[str] = (),
         remapped: Mapping[str, OsdSet] = {}, places: Mapping[str, OsdSet] = {},
         vectors: Mapping[str, OsdSet] = {}, **fields: Any) -> Observation:
    osdmap = OsdMap(5, frozenset(), {pool.id: pool for pool in pools or (A, B, C)},
                    {osd: Osd(osd, True, 1.0) for osd in range(6)},
                    dict.fromkeys(upmaps, ((0, 2),)), vectors, remapped)
    return Observation(50.0, Signals(PgCounts(), pool_bytes={1: 400, 2: 80, 3: 40}),
                       Settings(osdmap, active),
                       lambda pgid: Placement(places[pgid], places[pgid]) if pgid in places
                       else None, CRUSH, **fields)


# ---- the pools of an order

@pytest.mark.parametrize('names, ids', [
    ((), (1, 2, 3)), (('b', 'a'), (1, 2)), (('b', 'b'), (2,)), (('root0',), (1, 2)),
    (('class1',), (3,)), (('root0', 'a', 'class1'), (1, 2, 3))])
def test_the_pools_of_an_order(names: Tuple[str, ...], ids: Tuple[int, ...]) -> None:
    for pools in ((A, B, C), (C, B, A)):
        found = chosen(names, seen(*pools))
        assert tuple(pool.id for pool in found.pools) == ids and found.left_out == {}


def test_pools_that_are_left_out() -> None:
    merging = replace(A, **MERGING)
    for names in ((), ('root0',)):
        found = chosen(names, seen(merging, B))
        assert found == ((B,), {'a': 'its PGs are being merged'})


def refusal(names: Sequence[str], observation: Observation) -> Tuple[int, str]:
    with pytest.raises(Refused) as refused:
        chosen(names, observation)
    return refused.value.errno, str(refused.value)


@pytest.mark.parametrize('names, pools, number, text', [
    (('a',), (replace(A, **MERGING), B), errno.EINVAL,
     'pool a cannot be balanced: its PGs are being merged'),
    (('root0',), (replace(A, **MERGING),), errno.ENOENT,
     'no pool can be balanced: a: its PGs are being merged'),
    ((), (replace(A, **MERGING),), errno.ENOENT,
     'no pool can be balanced; a: its PGs are being merged'),
    (('x',), (A,), errno.ENOENT,
     "no pool, nor device class or CRUSH root with pools, is called 'x'"),
    (('root1',), (A,), errno.ENOENT,
     "no pool, nor device class or CRUSH root with pools, is called 'root1'"),
    (('root0',), (A, B, replace(C, name='root0')), errno.EINVAL,
     "'root0' is a pool, and a device class or CRUSH root of 2 pools: name the pools")])
def test_orders_that_are_refused(names: Sequence[str], pools: Sequence[Pool], number: int,
                                 text: str) -> None:
    assert refusal(names, seen(*pools)) == (number, text)


def test_a_pool_with_the_name_of_its_root() -> None:
    named = replace(A, name='root0')
    assert chosen(('root0',), seen(named, C)).pools == (named,)


@pytest.mark.parametrize('names', [(), ('root0',)])
def test_a_refusal_names_a_few_pools(names: Sequence[str]) -> None:
    pools = [a_pool(number, 'p%02d' % number, **MERGING) for number in range(NAMED_POOLS + 1)]
    text = refusal(names, seen(*pools))[1]
    assert text.count('merged') == NAMED_POOLS and 'p09:' in text and 'p10:' not in text


def test_a_rule_without_osds_is_in_no_group() -> None:
    nowhere = a_pool(1, 'a', rule=7)
    assert _group('root0', seen(nowhere)) == [] and _group('', seen(nowhere)) == []
    assert _group('root0', seen(nowhere, B)) == [B]


NOT_COVERED = 'the balancer does not cover it (balancer mode, or pool list); name it to balance it'
BY_HAND = 'it has upmaps, which may have been set by hand since the balancer is off; name it to ' \
    'balance it'


@pytest.mark.parametrize('observation, left_out', [
    (seen(balancing=Balancing(pools=frozenset({1, 3}))), {'b': NOT_COVERED}),
    (seen(active='false', upmaps=['2.1']), {'b': BY_HAND}),
    (seen(active='false', vectors={'2.1': (0, 1)}), {'b': BY_HAND}),
    (seen(upmaps=['2.1']), {}), (seen(active=None, upmaps=['2.1']), {}),
    (seen(active='false'), {})])
def test_pools_that_have_to_be_named(observation: Observation,
                                     left_out: Mapping[str, str]) -> None:
    assert chosen((), observation).left_out == left_out
    assert chosen(('b',), observation) == ((B,), {})


def test_a_pool_under_a_rule_that_ends_no_balance() -> None:
    found = chosen((), seen(A, a_pool(4, 'd', rule=7)))
    assert found.pools == (A,) and found.left_out.keys() == {'d'}
    assert _why_not(A, seen(), {2}) == '' == _why_not(A, seen(), {1}, named=True)


# ---- the options of an order

def ordered(**options: Any) -> BalanceChange:
    return change_ordered(Order('balance', **options), (A, C),
                          seen(balancing=Balancing(deviation=5.0)))


@pytest.mark.parametrize('options, fields', [
    ({}, {}), ({'by': 'pgs'}, {}), ({'by': 'bytes'}, {'by_bytes': True, 'deviation': 5.0}),
    ({'by': 'bytes', 'deviation': '2.5'}, {'by_bytes': True, 'deviation': 2.5}),
    ({'deviation': '1'}, {'deviation': 1.0}), ({'deviation': '1000'}, {'deviation': 1000.0}),
    ({'max_movement': '100%'}, {'max_movement': 1.0}),
    ({'max_movement': '2.5%'}, {'max_movement': 0.025}),
    ({'max_movement': '0.000001%'}, {'max_movement': 1e-8})])
def test_the_change_of_an_order(options: Dict[str, str], fields: Dict[str, Any]) -> None:
    expected: Dict[str, Any] = {'by_bytes': False, 'deviation': 1.0, 'max_movement': 0.05, **fields}
    assert ordered(**options) == BalanceChange(pools=(1, 3), **expected)


@pytest.mark.parametrize('options', [
    {'by': 'size'}, {'deviation': '0.99'}, {'deviation': '1000.1'}, {'deviation': 'x'},
    {'deviation': 'nan'}, {'deviation': '-2'}, {'max_movement': '0%'}, {'max_movement': '100.1%'},
    {'max_movement': '5'}, {'max_movement': '1e1%'}, {'max_movement': '-5%'}])
def test_options_that_are_refused(options: Dict[str, str]) -> None:
    with pytest.raises(Refused) as refused:
        ordered(**options)
    name, = options
    assert refused.value.errno == errno.EINVAL
    assert str(refused.value).startswith('--%s must be ' % name.replace('_', '-'))
    with pytest.raises(Refused):
        check_balance(Order('balance', **options), seen())  # type: ignore[arg-type]
    with pytest.raises(Refused):
        check_balance(Order('balance', ('x',)), seen())


# ---- the change

CHANGE = BalanceChange(pools=(1, 3), max_movement=0.25, deviation=2.5, shards=3)


@pytest.mark.parametrize('other, same', [
    (CHANGE, True), (replace(CHANGE, shards=4), True), (replace(CHANGE, shards=2), False),
    (replace(CHANGE, deviation=2.0, shards=4), False),
    (WeightChange(weights={8: 1.0}), False)])
def test_whether_an_accepted_change_is_the_same(other: Any, same: bool) -> None:
    assert CHANGE.same_as(other) is same


def test_what_the_change_is_and_shows() -> None:
    assert CHANGE.whole is True and CHANGE.moves_noted().stage is ChangeStage.LANDED
    assert CHANGE.features == {'pools (IDs):': '1, 3', 'deviation:': '2.5', 'movement:': '25 %',
                               'shards:': '3'}
    assert CHANGE.first_moves_text(seen().osdmap) == 'of 2 pools will move for the balance'
    assert CHANGE.impossible(seen(C)) == ''
    assert CHANGE.impossible(seen(B)) == 'none of its pools exists any longer'


def test_without_an_outlook_nothing_is_planned() -> None:
    failed = NoFuture('no answer')
    assert CHANGE.foreseen(failed, seen(), {}) is failed
    planned = CHANGE.first_moves(seen(), Future({}, CRUSH), {})
    assert planned is not None and not planned.pins
    planned = CHANGE.first_moves(seen(), replace(skewed(), finals={'1.1': (0, 2)}), {})
    assert planned is not None and planned.pins == {
        '1.1': PinRecord(UpmapEntry(), UpmapEntry(), goal=UpmapEntry(((1, 2),)))}


@pytest.mark.parametrize('shards, moved, budgets', [
    (0, 9, [4]), (3, 3, [4]), (3, 4, [4, 3]), (3, 0, [4])])
def test_no_more_shards_move_than_in_the_preview(shards: int, moved: int, budgets: List[int],
                                                 monkeypatch: pytest.MonkeyPatch) -> None:
    calls: List[Any] = []

    def even_out(pools: Any, on: Any, budget: int) -> Any:
        calls.append((pools, on, budget))
        return SimpleNamespace(moved=moved, finals={'1.0': (budget,)})

    monkeypatch.setattr(balancing, 'even_out', even_out)
    pgs = {'%d.%x' % (pool, seed): FuturePg((0, 1), (0, 1))
           for pool in (1, 3) for seed in range(5 - pool)}
    remapped = seen(remapped={'1.0': (0, 1)}, places={'1.0': (0, 2)})
    space = {osd: Space(1000, 10 * osd) for osd in range(6)}
    # A third of 2 * (4 + 2) shards, rounded down.
    change = replace(CHANGE, max_movement=0.4, shards=shards)
    found = change.foreseen(Future(pgs, CRUSH), remapped, space)
    assert isinstance(found, Future) and found.finals == {'1.0': (budgets[-1],)}
    assert [budget for _, _, budget in calls] == budgets
    on = calls[0][1]
    size = remapped.shard_bytes(A)
    assert size > 0 and dict(on.leaving) == {1: size} and on.full == 0.85 and on.deviation == 2.5
    assert {osd: row.used_bytes for osd, row in on.space.items()} == {
        osd: 10 * osd + (size if osd == 2 else 0) for osd in range(6)}


def test_the_pgs_that_a_balance_takes() -> None:
    pgs = {'1.0': FuturePg((0, 1), (1, 2)), '3.1': FuturePg((3, 4), (3, 4)),
           '2.1': FuturePg((0, 1), (0, 1))}
    found = _even_pools([3, 1, 9], Future(pgs, CRUSH), seen(remapped={'1.0': (0, 1)},
                                                            places={'1.0': (0, 2)}))
    assert [(even.pool.id, even.pgs, even.sizes) for even in found] == [
        (1, [('1.0', (0, 2), (1, 2), False)], {'1.0': 100}),
        (3, [('3.1', (3, 4), (3, 4), True)], {'3.1': 10})]


@pytest.mark.parametrize('remapped, place, here', [
    (False, (0, 2), (0, 1)), (True, (0, 2), (0, 2)), (True, (), (0, 1))])
def test_where_a_pg_is_after_its_backfill(remapped: bool, place: OsdSet, here: OsdSet) -> None:
    observation = seen(remapped={'1.0': (0, 1)} if remapped else {},
                       places={'1.0': place} if place else {})
    assert _destination('1.0', FuturePg((0, 1), (0, 1)), observation) == here


@pytest.mark.parametrize('acting, fields, free', [
    ((0, 1), {}, True), ((0, 1), {'remapped': {'1.0': (0, 2)}}, False),
    ((0, NO_OSD), {}, False), ((0,), {}, False), ((0, 1), {'vectors': {'1.0': (0, 1)}}, False),
    ((0, 1), {'upmaps': ['1.0']}, True), ((0, 2), {}, False), ((0, 3), {}, False)])
def test_pgs_that_may_move(acting: OsdSet, fields: Dict[str, Any], free: bool) -> None:
    weights = {0: 1.0, 1: 1.0, 2: 0.0}
    pg = FuturePg(acting, (0, 1))
    assert _may_move('1.0', pg, A, seen(**fields).osdmap, weights) is free
    assert _may_move('1.3', pg, replace(A, **MERGING), seen(**fields).osdmap, weights) is False


def test_the_moves_that_a_rollback_undoes() -> None:
    entry = UpmapEntry(((0, 2),))
    change = replace(CHANGE, ahead={pgid: Led(UpmapEntry(), entry)
                                    for pgid in ('1.0', '1.1', '1.2')})
    planned = change.moves_back(seen(upmaps=['1.0', '1.2'], places={
        '1.0': (2, 1), '1.1': (2, 1)}))
    # Others have changed one, and one is gone.
    assert planned is not None and planned.pins == {'1.0': PinRecord(UpmapEntry(), entry)}
    assert planned.moves.keys() == {'1.0'}
    assert (planned.moves['1.0'].targets, planned.moves['1.0'].bytes) == ((0,), 100)
    # What a pool stores may be unknown.
    one = replace(seen(replace(A, pg_num=1), upmaps=['1.0'], places={'1.0': (2, 1)}),
                  signals=Signals(PgCounts()))
    moves = change.moves_back(one)
    assert moves is not None and moves.moves['1.0'].bytes == 0


# ---- refusals and the preview

def evened(before: Sequence[float] = (), after: Sequence[float] = (), wanted: int = 0,
           deviations: Mapping[int, Tuple[float, float]] = {}, **fields: Any) -> Evened:
    return Evened({}, 0, wanted, deviations, dict(enumerate(zip(before, after))), {}, **fields)


def test_the_emptiest_and_the_fullest() -> None:
    found = evened((0.5, 0.25, 0.75), (0.3, 0.4, 0.5))
    assert _load_range(found, 0) == (0.25, 0.75) and _load_range(found, 1) == (0.3, 0.5)
    assert _load_range(evened(), 0) == (0.0, 0.0)


@pytest.mark.parametrize('change, found, number, text', [
    (CHANGE, evened(wanted=1), errno.EPERM,
     '--max-movement 25% allows no move; 1 shard would move without a limit'),
    (CHANGE, evened((0.5, 1.0), (0.9, 1.1), deviations={1: (2.0, 0.5), 3: (1.0, 0.75)}),
     errno.EALREADY, 'already balanced: every OSD has its share of each pool to within 0.75 PGs '
     '(a, c); OSDs have 90.0 to 110.0 % of their share of all these pools'),
    (replace(CHANGE, by_bytes=True), evened((0.5, 1.0), (0.9, 1.1), deviations={1: (2.0, 0.5)}),
     errno.EALREADY, 'already balanced: every OSD has its share of each pool to within 0.50 PGs '
     '(a, c); OSDs are 90.0 to 110.0 % full')])
def test_why_nothing_moves(change: BalanceChange, found: Evened, number: int, text: str) -> None:
    with pytest.raises(Refused) as refused:
        _refuse_nothing(change, found, (A, C))
    assert (refused.value.errno, str(refused.value)) == (number, text)


@pytest.mark.parametrize('before, after, text', [
    ((0.25, 0.75), (0.375, 0.75), ''),
    ((0.25, 0.75), (0.25, 0.75), 'with numbers of PGs within 2.5 of the shares, OSDs would be 25.0 '
     'to 75.0 % full, and are 25.0 to 75.0 % full now: raise --deviation'),
    ((0.25, 0.75), (0.125, 0.75), 'with numbers of PGs within 2.5 of the shares, OSDs would be '
     '12.5 to 75.0 % full, and are 25.0 to 75.0 % full now: raise --deviation'),
    ((0.0, 0.0), (0.0, 0.0), 'the pools store no data: balance them with "--by pgs"')])
def test_a_balance_that_would_do_harm(before: Sequence[float], after: Sequence[float],
                                      text: str) -> None:
    if not text:
        _refuse_harm(CHANGE, evened(before, after))
        return
    with pytest.raises(Refused) as refused:
        _refuse_harm(CHANGE, evened(before, after))
    assert (refused.value.errno, str(refused.value)) == (errno.EPERM, text)


@pytest.mark.parametrize('fields, text', [
    ({'balancing': Balancing(deviation=2.5)}, ''), ({'balancing': Balancing(deviation=3.0)}, ''),
    ({'balancing': Balancing(deviation=2.0)}, 'its upmap_max_deviation is 2 (use at most '
     '"--deviation 2", raise it, or "ceph balancer off")'),
    ({'balancing': Balancing(deviation=2.0, pools=frozenset({3}))}, 'upmap_max_deviation'),
    ({'balancing': Balancing(deviation=2.0, pools=frozenset({2}))}, ''),
    ({'balancing': Balancing(weight_sets=True, upmap=False)}, 'by weight-sets'),
    ({'balancing': Balancing(weight_sets=True), 'active': 'false'}, ''),
    ({'balancing': Balancing(deviation=2.0), 'active': None}, '')])
def test_what_the_balancer_would_undo(fields: Dict[str, Any], text: str) -> None:
    found = _why_undone(CHANGE, (A, C), seen(**fields))
    assert text in found and bool(found) is bool(text)


def test_what_is_shown_of_a_pool() -> None:
    space = {osd: Space(100, used) for osd, used in enumerate((5, 35, 5, 95, 5, 5))}
    found = replace(evened(deviations={1: (1.5, 0.5)}), gained={1: -35, 3: 9})
    # OSDs are full at 95 of 100 bytes, each has a third of twice what is stored.
    assert _shown_of(A, found, seen(), space) == {
        'pool': 'a', 'deviation_before': 1.5, 'deviation_after': 0.5,
        'max_avail_before': 90, 'limited_by_before': 1, 'max_avail_after': 135,
        'limited_by_after': 0}
    nothing = _shown_of(A, found, seen(), {})
    assert nothing['max_avail_before'] is nothing['limited_by_after'] is None


def skewed() -> Future:
    """OSDs 0 and 1 have all four PGs of pool 1."""
    return Future({'1.%x' % seed: FuturePg((0, 1), (0, 1)) for seed in range(4)}, CRUSH)


def balanced(observation: Observation, space: Mapping[int, Space] = {}, **options: Any) -> Any:
    return balance_ordered(Order('balance', ('a',), **options), observation, space, skewed())


def test_the_preview_of_a_balance() -> None:
    change, details, planned = balanced(seen(upmaps=['1.3', '2.0', '2.1']), max_movement='100%')
    assert change == BalanceChange(pools=(1,), max_movement=1.0, shards=2)
    assert details.key == 'balance' and details.moves_first is details.follows_change is True
    shown = dict(details.shown)
    pools = shown.pop('pools')
    assert shown == {
        'by': 'pgs', 'deviation': 1.0, 'max_movement': 1.0, 'limit_shards': 8, 'shards': 2,
        'wanted_shards': 2, 'upmaps_before': 1, 'upmaps_changed': 0, 'upmaps_after': 3,
        'load_before': (0.0, 1.5), 'load_after': (pytest.approx(0.75), pytest.approx(1.125)),
        'undone': '', 'moves_first': True, 'left_out': []}
    assert [row['pool'] for row in pools] == ['a'] and details.risks == ()
    assert details.upmaps == 3 and len(planned.moves) == len(planned.pins) == 2


@pytest.mark.parametrize('movement, shards', [('12%', 0), ('12.5%', 1), ('24.9%', 1), ('25%', 2)])
def test_the_limit_of_a_preview(movement: str, shards: int) -> None:
    if shards:
        change, details, _ = balanced(seen(), max_movement=movement)
        assert change.shards == details.shown['limit_shards'] == shards
    else:
        with pytest.raises(Refused, match='allows no move; 2 shards'):
            balanced(seen(), max_movement=movement)


def test_a_balance_that_the_balancer_would_undo_is_a_risk() -> None:
    _, details, _ = balanced(seen(balancing=Balancing(weight_sets=True, upmap=False)),
                             max_movement='100%')
    assert [risk.code for risk in details.risks] == ['BALANCER_UNDOES']
    assert details.shown['undone'] == details.risks[0].text


def test_a_balance_by_bytes_needs_the_space_of_its_osds() -> None:
    space = {osd: Space(1000, 400 if osd < 2 else 0) for osd in range(3)}
    with pytest.raises(Refused, match='the size of osd.2 ') as refused:
        balanced(seen(), {0: space[0], 1: space[1]}, by='bytes', max_movement='100%')
    assert refused.value.errno == errno.EAGAIN and refused.value.not_fit
    _, details, _ = balanced(seen(), space, by='bytes', max_movement='100%')
    assert details.shown['by'] == 'bytes' and details.shown['load_before'] == (0.0, 0.4)
    # By PGs it is of no interest.
    balanced(seen(), {}, max_movement='100%')
    with pytest.raises(Refused, match='store no data'):
        balanced(seen(), {osd: Space(1000, 0) for osd in range(3)}, by='bytes',
                 max_movement='100%')
