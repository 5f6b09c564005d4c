# SPDX-License-Identifier: LGPL-2.1-or-later
"""The steps of another pg_num, and what they ask and show, without a cluster."""
import errno
from dataclasses import replace
from typing import Any, Dict, List, Optional, Tuple

import pytest

from perfguard.cluster.crush import CrushRules
from perfguard.cluster.ports import Future, FuturePg
from perfguard.cluster.types import (NO_OSD, Osd, OsdMap, PgCounts, Pool, PoolPgs,
                                     Signals)
from perfguard.errors import Refused
from perfguard.observation import Observation, Settings
from perfguard.rebalance.change import ChangeStage
from perfguard.rebalance.pg_num import (
    MOST_AHEAD, MOST_MERGED, NOPGCHANGE, PgNumChange, _after_first_command, _refuse_outside,
    _refuse_too_many, at_rest, final_numbers, check_pg_num, next_step, numbers_of, autoscaler_risk,
    pg_num_details, pg_num_ordered, pgs_by_split, step_to, targets_of)
from perfguard.rebalance.types import SetPool

POOL = Pool(1, 'rep', False, 2, 1, 0, 16, 16, 16)
NO_CRUSH = CrushRules({}, {}, {})


def a_pool(pg_num: int, pgp_num: int = 0, target: int = 0, pgp_target: int = 0,
           pending: int = 0) -> Pool:
    """Numbers that are 0 are those of a pool at rest."""
    return replace(POOL, pg_num=pg_num, pg_num_target=target or pg_num,
                   pg_num_pending=pending or pg_num, pgp_num=pgp_num, pgp_num_target=pgp_target)


def a_map(*pools: Pool, upmaps: Tuple[str, ...] = (), vectors: Tuple[str, ...] = (),
          osds: Tuple[Osd, ...] = ()) -> OsdMap:
    return OsdMap(7, frozenset(), {pool.id: pool for pool in pools}, {osd.id: osd for osd in osds},
                  dict.fromkeys(upmaps, ((1, 2),)), dict.fromkeys(vectors, (1, 2)), {})


def seen(*pools: Pool, now: float = 50.0) -> Observation:
    return Observation(now, Signals(PgCounts()), Settings(a_map(*pools), None), lambda pgid: None,
                       NO_CRUSH)


def a_change(pg_num: int, pgp_num: int, to: int = 32, found: int = 16, **fields: Any
             ) -> PgNumChange:
    return PgNumChange(step=PoolPgs(1, pg_num, pgp_num), pg_num=to, found_pg_num=found, **fields)


SENT: Dict[str, Any] = {'stage': ChangeStage.SENT, 'times': 1}


# ---- the numbers of a pool

@pytest.mark.parametrize('pool, numbers, targets, rests', [
    (a_pool(16), (16, 16), (16, 16), True), (a_pool(16, 16, 16, 16), (16, 16), (16, 16), True),
    (a_pool(16, 8, 16, 8), (16, 8), (16, 8), True),
    # Without a target of pgp_num, its value counts, and without that pg_num.
    (a_pool(16, 8), (16, 8), (16, 8), True), (a_pool(16, 0, 32), (16, 16), (32, 32), False),
    (a_pool(16, 8, 16, 12), (16, 8), (16, 12), False),
    (a_pool(16, 8, 16, 8, pending=15), (16, 8), (16, 8), False)])
def test_what_a_pool_has_and_is_to_get(pool: Pool, numbers: Tuple[int, int],
                                       targets: Tuple[int, int], rests: bool) -> None:
    assert numbers_of(pool) == (1, *numbers) and targets_of(pool) == (1, *targets)
    assert at_rest(pool) is rests


# ---- steps

FAR = 16 + MOST_AHEAD


@pytest.mark.parametrize('now, to, step', [
    ((16, 16), 16, None), ((16, 16), 17, (17, 16)), ((16, 16), FAR, (FAR, 16)),
    ((16, 16), FAR + 1, (FAR, 16)), ((20, 16), FAR + 1, (FAR, 16)),
    # No split is allowed beyond: PGs move first.
    ((FAR, 16), FAR + 1, (FAR, FAR)), ((FAR - 1, 16), FAR + 1, (FAR, 16)),
    ((20, 16), 20, (20, 20)), ((20, 16), 18, (20, 18)), ((20, 16), 16, (16, 16)),
    ((20, 16), 12, (16, 16)), ((20, 18), 17, (18, 18)),
    ((16, 16), 15, (16, 15)), ((16, 16), 1, (16, 1)),
    ((MOST_MERGED + 4, MOST_MERGED + 4), 4, (MOST_MERGED + 4, 4)),
    ((MOST_MERGED + 4, MOST_MERGED + 4), 3, (MOST_MERGED + 4, 4)),
    ((MOST_MERGED + 4, MOST_MERGED + 4), 5, (MOST_MERGED + 4, 5))])
def test_the_next_step(now: Tuple[int, int], to: int, step: Optional[Tuple[int, int]]) -> None:
    pool = a_pool(*now)
    assert next_step(a_map(pool), pool, to, -1) == (None if step is None else (1, *step))
    change = step_to(a_map(pool), pool, to, 9, MOST_AHEAD + 1, 50.0)
    if step is None:
        assert change is None
    else:
        # PGs move where pg_num stays.
        assert change == PgNumChange(step=PoolPgs(1, *step), pg_num=to, found_pg_num=9, since=50.0,
                                     moves_first=step[0] == now[0])
        assert change.needs_outlook is change.moves_first is (step[0] == now[0])


@pytest.mark.parametrize('upmaps, vectors, step', [
    ((), (), (16, 16)), (('1.13',), (), (20, 16)), ((), ('1.13',), (20, 16)),
    # What a PG is merged into; one that stays as it is; one of another pool.
    (('1.3',), (), (20, 16)), (('1.4',), (), (16, 16)), (('2.13',), ('2.3',), (16, 16))])
def test_merging_pgs_with_upmaps_move_first(upmaps: Tuple[str, ...], vectors: Tuple[str, ...],
                                            step: Tuple[int, int]) -> None:
    pool = a_pool(20, 16)
    assert next_step(a_map(pool, upmaps=upmaps, vectors=vectors), pool, 16, -1) == (1, *step)


@pytest.mark.parametrize('split_limit, now, step', [
    (32, (16, 16), (48, 16)), (MOST_AHEAD, (16, 16), (FAR, 16)), (-1, (16, 16), (FAR, 16)),
    (32, (48, 16), (48, 48)), (32, (60, 16), (60, 60)), (0, (16, 16), (17, 16))])
def test_splits_go_as_far_as_ceph_mgr_makes_them(split_limit: int, now: Tuple[int, int],
                                                 step: Tuple[int, int]) -> None:
    pool = a_pool(*now)
    assert next_step(a_map(pool), pool, FAR + 1, split_limit) == (1, *step)


@pytest.mark.parametrize('before, after, between', [
    ((16, 16), (32, 16), (32, 32)), ((32, 16), (32, 32), (32, 16)), ((32, 16), (16, 16), (16, 16))])
def test_the_targets_between_two_commands(before: Tuple[int, int], after: Tuple[int, int],
                                          between: Tuple[int, int]) -> None:
    assert _after_first_command(PoolPgs(1, *before), PoolPgs(1, *after)) == (1, *between)


# ---- the change

def test_the_commands_of_a_step() -> None:
    assert a_change(32, 16).commands(seen(POOL)) == [
        SetPool('rep', 'pg_num', '32'), SetPool('rep', 'pgp_num', '16'),
        SetPool('rep', 'pgp_num_actual', '16')]


@pytest.mark.parametrize('pool, landed, accepted', [
    (a_pool(32, 16), True, True), (a_pool(32, 16, pgp_target=16), True, True),
    (a_pool(20, 16, 32, 16), False, True), (a_pool(32, 16, pending=31), False, True),
    (a_pool(16), False, False), (a_pool(32, 32), False, False)])
def test_whether_a_step_is_accepted_and_in_force(pool: Pool, landed: bool, accepted: bool) -> None:
    change = a_change(32, 16, **SENT)
    assert change.landed(seen(pool)) is landed and change.is_accepted(a_map(pool)) is accepted
    before = change.sent(seen(POOL))
    assert before == replace(change, replaces=PoolPgs(1, 16, 16))
    assert before.accepted(seen(pool)) == (
        replace(before, replaces=PoolPgs(1, 32, 16)) if accepted else before)
    assert change.awaited(seen(pool)) == (
        'waiting until pool rep has pg_num 32, pgp_num 16 (now pg_num %d, pgp_num %d)'
        % (pool.pg_num, pool.pgp_num or pool.pg_num))


def test_a_pool_that_was_deleted() -> None:
    change, gone = a_change(32, 16, **SENT), seen()
    assert change.landed(gone) is change.is_accepted(gone.osdmap) is False
    assert change.remaining(gone) is change and change.stands_still(gone) is True
    assert change.impossible(gone) == 'the pool no longer exists'
    assert change.part_in_force(gone) is change.left_setting(gone.osdmap) is None
    assert change.begun_pools(gone.osdmap) == frozenset()
    assert change.way_back(gone.osdmap) == 'campaign rollback'


@pytest.mark.parametrize('fields, pool, others', [
    # Not sent yet: the pool has to be at rest.
    ({}, a_pool(16), False), ({}, a_pool(16, 16, 20, 16), True),
    ({'stage': ChangeStage.LANDED}, a_pool(16, 16, 20, 16), False),
    # Sent: targets from before, of the step, and between its commands.
    ({**SENT, 'replaces': PoolPgs(1, 16, 16)}, a_pool(16), False),
    ({**SENT, 'replaces': PoolPgs(1, 16, 16)}, a_pool(16, 16, 32, 16), False),
    ({**SENT, 'replaces': PoolPgs(1, 16, 16)}, a_pool(16, 16, 32, 32), False),
    ({**SENT, 'replaces': PoolPgs(1, 16, 16)}, a_pool(16, 16, 16, 12), True),
    ({**SENT, 'replaces': PoolPgs(1, 32, 32)}, a_pool(32, 32, 32, 16), False),
    ({**SENT, 'replaces': PoolPgs(1, 20, 16)}, a_pool(20, 16, 20, 20), True),
    # Accepted: those of the step alone.
    ({**SENT, 'replaces': PoolPgs(1, 32, 16)}, a_pool(20, 16, 32, 16), False),
    ({**SENT, 'replaces': PoolPgs(1, 32, 16)}, a_pool(20, 16, 32, 32), True),
    ({**SENT, 'replaces': PoolPgs(1, 32, 16)}, a_pool(16), True),
    # What was sent before counts as sent; without it, nothing is known.
    ({'times': 1, 'replaces': PoolPgs(1, 16, 16)}, a_pool(16, 16, 20, 16), True),
    ({'times': 1, 'replaces': PoolPgs(1, 16, 16)}, a_pool(16, 16, 32, 16), False),
    (SENT, a_pool(16, 16, 20, 16), False)])
def test_numbers_of_others(fields: Dict[str, Any], pool: Pool, others: bool) -> None:
    change = a_change(32, 16, **fields)
    now, target = numbers_of(pool), targets_of(pool)
    assert change.impossible(seen(pool)) == (
        'pg_num of pool rep was changed outside perfguard (pg_num %d, pgp_num %d, target pg_num '
        '%d, pgp_num %d)' % (*now[1:], *target[1:]) if others else '')
    if change.replaces is not None:
        assert change.stands_still(seen(pool)) is (others or at_rest(pool))
    else:
        assert change.stands_still(seen(pool)) is at_rest(pool)


@pytest.mark.parametrize('fields, pool, step', [
    # As planned, in force already, at its end, and of a change that was sent.
    ({}, a_pool(16), (32, 16)), ({}, a_pool(32, 16), (32, 16)), ({}, a_pool(32), (32, 16)),
    (SENT, a_pool(20, 16), (32, 16)), (SENT, a_pool(24, 20), (32, 16)),
    # Others have grown the pool.
    ({}, a_pool(24), (32, 24)), ({}, a_pool(40), (40, 32))])
def test_the_step_that_remains(fields: Dict[str, Any], pool: Pool, step: Tuple[int, int]) -> None:
    change = a_change(32, 16, **fields)
    found = change.remaining(seen(pool))
    assert isinstance(found, PgNumChange) and found.step == (1, *step)
    assert (found is change) is (step == (32, 16))
    assert found.since == (0.0 if found is change else 50.0)


def test_the_next_part() -> None:
    change = a_change(32, 16)
    assert change.next_part(seen(a_pool(32)), 0) is None
    following = change.next_part(seen(a_pool(32, 16)), 0)
    assert following is not None and following.change == a_change(
        32, 32, since=50.0, moves_first=True)
    assert following.text.endswith('(now pg_num 32, pgp_num 16)')


@pytest.mark.parametrize('pool, kept', [
    (a_pool(20, 16, 32, 16), (20, 16)), (a_pool(20, 20, 8, 8, pending=19), (19, 19)),
    (a_pool(20, 16, 8, 8, pending=15), (15, 15)), (a_pool(16, 16, 16, 20), (16, 16)),
    (a_pool(20, 16), None)])
def test_a_stop_leaves_what_is_reached(pool: Pool, kept: Optional[Tuple[int, int]]) -> None:
    change = a_change(32, 16, **SENT)
    after, actions = change.stop(seen(pool))
    if kept is None:
        assert after is change and actions == []
    else:
        assert after == replace(change, replaces=PoolPgs(1, *kept))
        assert actions == [SetPool('rep', name, str(number)) for name, number in (
            ('pg_num', kept[0]), ('pgp_num', kept[1]), ('pgp_num_actual', kept[1]))]


@pytest.mark.parametrize('pool, fields, begun, wanted', [
    (a_pool(16), {}, False, False), (a_pool(17, 16), {}, True, True),
    (a_pool(16, 15), {}, True, True), (a_pool(16), {'passes': 1}, True, True),
    (a_pool(17), SENT, True, False), (a_pool(17), {'stage': ChangeStage.LANDED}, False, False)])
def test_whether_a_part_is_in_force(pool: Pool, fields: Dict[str, Any], begun: bool,
                                    wanted: bool) -> None:
    change, osdmap = a_change(32, 16, **fields), a_map(pool)
    assert change.part_in_force(seen(pool)) is (change if begun else None)
    moves_first = replace(change, moves_first=True)
    assert moves_first.part_in_force(seen(pool)) is moves_first
    assert change.begun_pools(osdmap) == (frozenset({1}) if wanted else frozenset())
    left = change.left_setting(osdmap)
    assert left == (None if not begun else (
        'pg_num of pool rep', '16', '32', 'ceph osd pool set rep pg_num 16: ceph-mgr moves PGs '
        'back as fast as target_max_misplaced_ratio allows'))


@pytest.mark.parametrize('pool, back', [
    (a_pool(16), ''), (a_pool(17, 16), 'pg_num rep 16'), (a_pool(16, 15), 'pg_num rep 16'),
    (replace(a_pool(17), name='a b'), "pg_num 'a b' 16")])
def test_the_way_back(pool: Pool, back: str) -> None:
    change = a_change(32, 16)
    assert change.way_back(a_map(pool)) == back
    assert change.why_no_rollback(5) == (
        'campaign 5 changes pg_num of a pool: "campaign abort" first, then "pg_num <pool> 16", or '
        '"campaign finish --keep" where pg_num has not changed yet')


@pytest.mark.parametrize('moves_first', [False, True])
def test_what_the_change_is_and_shows(moves_first: bool) -> None:
    change = a_change(32, 16, moves_first=moves_first)
    assert change.features == {
        'PGs move before the pool is changed:': 'yes' if moves_first else 'no', 'pg_num:': '32',
        'first step:': 'pg_num 32, pgp_num 16'}
    assert change.setting == PoolPgs(1, 32, 16) and change.pool == 1
    assert change.follows_parts is True and change.needs_outlook is moves_first


# ---- orders

UP = tuple(Osd(osd, True, 1.0) for osd in range(3))


def refusal(*names: str, pool: Pool = POOL, limit: int = 0, pool_limit: int = 0) -> Tuple[int, str]:
    with pytest.raises(Refused) as refused:
        pg_num_ordered(names, a_map(pool, osds=UP), NO_CRUSH, limit, pool_limit)
    return refused.value.errno, str(refused.value)


@pytest.mark.parametrize('names, pool, number, text', [
    (('none', '32'), POOL, errno.ENOENT, "pool 'none' does not exist"),
    (('rep', '0'), POOL, errno.EINVAL, "pg_num must be an integer from 1 to 9999999999, not '0'"),
    (('rep', '1099511627776'), POOL, errno.EINVAL,
     "pg_num must be an integer from 1 to 9999999999, not '1099511627776'"),
    (('rep', '16'), POOL, errno.EALREADY, 'pool rep already has 16 PGs'),
    (('rep', '32'), replace(POOL, flags=frozenset({NOPGCHANGE})), errno.EPERM,
     'the flag nopgchange of pool rep is set: "ceph osd pool set rep nopgchange false" first'),
    (('rep', '8'), replace(POOL, pg_num_min=12), errno.ERANGE, 'pg_num 8 is beyond pg_num_min of '
     'pool rep (12): change it with "ceph osd pool set" first'),
    (('rep', '32'), a_pool(16, 16, 20, 16), errno.EBUSY,
     'pg_num of pool rep is changing (pg_num 16, pgp_num 16, target pg_num 20, pgp_num 16): wait, '
     'or set both to their current values with "ceph osd pool set"')])
def test_why_an_order_is_refused(names: Tuple[str, ...], pool: Pool, number: int,
                                 text: str) -> None:
    assert refusal(*names, pool=pool) == (number, text)


def test_the_pool_and_the_number_of_an_order() -> None:
    other = replace(POOL, id=2, name='other')
    osdmap = a_map(other, POOL, osds=UP)
    assert pg_num_ordered(('rep', '0032'), osdmap, NO_CRUSH, 0, 0) == (POOL, 32)
    assert check_pg_num(('rep',), osdmap) is POOL and check_pg_num(('other', '1'), osdmap) is other


@pytest.mark.parametrize('to, limit, refused', [
    (32, 0, False), (32, 32, False), (33, 32, True), (32, 31, True),
    # Not beyond what the pool has already.
    (15, 8, False)])
def test_the_limit_of_the_mons(to: int, limit: int, refused: bool) -> None:
    names = 'rep', str(to)
    if refused:
        assert refusal(*names, pool_limit=limit) == (
            errno.ERANGE, 'pg_num %d is beyond mon_max_pool_pg_num (%d)' % (to, limit))
    else:
        pg_num_ordered(names, a_map(POOL, osds=UP), NO_CRUSH, 0, limit)


@pytest.mark.parametrize('low, high, to, refused', [
    (0, 0, 1, ''), (0, 0, 99, ''), (12, 0, 12, ''), (12, 0, 11, 'pg_num_min'), (0, 20, 20, ''),
    (0, 20, 21, 'pg_num_max'), (16, 0, 15, 'pg_num_min'), (0, 16, 17, 'pg_num_max'),
    # A pool beyond a limit already may come closer to it.
    (24, 0, 16, ''), (24, 0, 17, ''), (24, 0, 15, 'pg_num_min'), (0, 8, 15, ''), (0, 8, 16, ''),
    (0, 8, 17, 'pg_num_max')])
def test_the_limits_of_the_pool(low: int, high: int, to: int, refused: str) -> None:
    pool = replace(POOL, pg_num_min=low, pg_num_max=high)
    if not refused:
        _refuse_outside(pool, to)
        return
    with pytest.raises(Refused) as raised:
        _refuse_outside(pool, to)
    assert (raised.value.errno, str(raised.value)) == (
        errno.ERANGE, 'pg_num %d is beyond %s of pool rep (%d): change it with "ceph osd pool set" '
        'first' % (to, refused, low or high))


#: Another pool of the same rule with 12 shards, and one of another rule with 48.
OTHER = replace(POOL, id=2, name='other', size=3, pg_num=4, pg_num_target=4)
ELSEWHERE = replace(OTHER, id=3, name='elsewhere', crush_rule=1, pg_num=16, pg_num_target=16)


def rules_of(*osds: Tuple[int, int]) -> CrushRules:
    """Rule 0 takes a bucket with these OSDs, (id, weight); rule 1 one with 100."""
    return CrushRules.from_dump({'types': [{'type_id': 0, 'name': 'osd'}, {
        'type_id': 11, 'name': 'root'}], 'buckets': [
            {'id': -1 - rule, 'name': name, 'type_id': 11,
             'items': [{'id': osd, 'weight': weight, 'pos': 0} for osd, weight in items]}
            for rule, (name, items) in enumerate((
                ('few', osds), ('many', [(osd, 1) for osd in range(100, 200)])))], 'rules': [
            {'rule_id': rule, 'rule_name': 'rule%d' % rule, 'steps': [
                {'op': 'take', 'item': -1 - rule, 'item_name': 'x'},
                {'op': 'choose_firstn', 'num': 0, 'type': 'osd'}, {'op': 'emit'}]}
            for rule in range(2)]})


def limit_refusal(pg_num: int, osdmap: OsdMap, crush: CrushRules, limit: int) -> str:
    try:
        _refuse_too_many(POOL, pg_num, osdmap, crush, limit)
    except Refused as refused:
        assert refused.errno == errno.ERANGE
        return str(refused)
    return ''


@pytest.mark.parametrize('to, limit, osds, refused', [
    # 2 * 24 + 12 + 48 shards on 3 OSDs that are in.
    (24, 36, UP, ''), (24, 35, UP, '36.0 PGs on average (limit 35,'), (25, 36, UP, '36.7 PGs on'),
    (24, 0, UP, ''), (24, 36, (*UP[:2], Osd(2, False, 1.0)), ''),
    # The mons assume at least three OSDs.
    (24, 36, (*UP[:2], Osd(2, True, 0.0)), ''), (24, 36, (), ''),
    (24, 30, (*UP, Osd(3, True, 1.0)), ''), (24, 30, (*UP, Osd(3, True, 0.0)), '36.0 PGs on'),
    # Fewer PGs are no more than before.
    (16, 1, UP, ''), (15, 1, UP, '')])
def test_the_mean_of_pgs_on_all_osds_before_reef(to: int, limit: int, osds: Tuple[Osd, ...],
                                                 refused: str) -> None:
    osdmap = replace(a_map(POOL, OTHER, ELSEWHERE, osds=osds), require_osd_release='pacific')
    text = limit_refusal(to, osdmap, rules_of(*((osd, 1) for osd in range(100))), limit)
    assert text.startswith(refused and 'with %d PGs in pool rep, an OSD would have %s' % (
        to, refused)) and bool(text) == bool(refused)


@pytest.mark.parametrize('to, limit, osds, refused', [
    # 2 * pg_num + 12 shards of the rule, of which the mons leave out fractions of a PG per OSD.
    (24, 20, 3, 0), (25, 20, 3, 0), (26, 20, 3, 21), (16, 1, 3, 0), (17, 1, 3, 15),
    (26, 20, 4, 0), (24, 20, 2, 0), (24, 19, 0, 20), (24, 0, 3, 0)])
@pytest.mark.parametrize('release', ['reef', 'squid', 'tentacle', 'quincy', 'pacific', ''])
def test_the_mean_of_pgs_on_the_osds_of_the_rule(release: str, to: int, limit: int, osds: int,
                                                 refused: int) -> None:
    """As the mons of Reef and Tentacle do, it counts OSDs that are down, out or of weight 0."""
    in_crush = rules_of(*((osd, int(osd > 0)) for osd in range(osds)))
    many_others = [Osd(osd, True, 1.0) for osd in range(10, 90)]
    osdmap = replace(a_map(POOL, OTHER, ELSEWHERE, osds=(
        Osd(0, False, 1.0), Osd(1, True, 0.0), *many_others)), require_osd_release=release)
    assert limit_refusal(to, osdmap, in_crush, limit) == (
        'with %d PGs in pool rep, an OSD of CRUSH rule rule0 would have %d PGs on average (limit '
        '%d, mon_max_pg_per_osd)' % (to, refused, limit) if refused else '')


@pytest.mark.parametrize('release, refused', [('quincy', True), ('reef', False)])
def test_pools_of_other_rules_count_before_reef(release: str, refused: bool) -> None:
    osdmap = replace(a_map(POOL, ELSEWHERE, osds=UP), require_osd_release=release)
    assert bool(limit_refusal(17, osdmap, rules_of((0, 1), (1, 1), (2, 1)), 20)) is refused


@pytest.mark.parametrize('target, refused', [(4, False), (16, True)])
@pytest.mark.parametrize('release', ['pacific', 'reef'])
def test_the_target_of_another_pool_counts(release: str, target: int, refused: bool) -> None:
    other = replace(OTHER, pg_num_target=target)
    osdmap = replace(a_map(POOL, other, osds=UP), require_osd_release=release)
    assert bool(limit_refusal(24, osdmap, rules_of((0, 1), (1, 1), (2, 1)), 20)) is refused


@pytest.mark.parametrize('mode, codes', [('on', ['AUTOSCALER']), ('warn', []), ('off', [])])
def test_the_risk_of_an_autoscaler(mode: str, codes: List[str]) -> None:
    pool = replace(POOL, autoscale_mode=mode)
    assert [risk.code for risk in autoscaler_risk(pool)] == codes
    assert [risk.code for risk in pg_num_details(pool, 32).risks] == codes


# ---- the preview

@pytest.mark.parametrize('to, splits, merges, numbers', [
    (32, 16, 0, (32, 32)), (10, 0, 6, (16, 10)), (17, 1, 0, (17, 17)), (15, 0, 1, (16, 15))])
def test_the_details_of_a_preview(to: int, splits: int, merges: int,
                                  numbers: Tuple[int, int]) -> None:
    details = pg_num_details(POOL, to)
    assert details.shown == {'pool': 'rep', 'from': 16, 'to': to, 'splits': splits,
                             'merges': merges, 'moves_first': True}
    assert details.key == 'pg_num' and details.moves_first is details.follows_change is True
    assert final_numbers(POOL, to) == (1, *numbers)


@pytest.mark.parametrize('to, made', [
    # Children are where their parents are, and merged PGs where the lower pgp_num places them.
    (18, {0: 2, 1: 1, 2: 1}), (15, {3: -2, 4: -1, 5: -1})])
def test_the_pgs_that_splits_and_merges_make(to: int, made: Dict[int, int]) -> None:
    future = Future({'1.10': FuturePg((0, 1), (8, 9)), '1.f': FuturePg((6, 7), (3, 4)),
                     '1.e': FuturePg((6, 7), (8, 9))}, CrushRules({}, {}, {}),
                    others={'1.11': FuturePg((0, 2, NO_OSD), (8, 9))})
    if to < 16:
        future = replace(future, pgs={'1.f': future.pgs['1.f'], '1.e': future.pgs['1.e']},
                         others={'1.10': FuturePg((0, 1), (3, 5))})
        pool = a_pool(17)
    else:
        pool = POOL
    assert pgs_by_split(pool, to, future) == made
