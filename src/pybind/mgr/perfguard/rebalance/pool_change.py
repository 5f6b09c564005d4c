# SPDX-License-Identifier: LGPL-2.1-or-later
"""Another CRUSH rule, or another pg_num, for a pool. Pure.

If the new rule allows every PG to stay where it is, the rule is changed first and the PGs are
pinned in the same epoch, as with any change of CRUSH. Otherwise the mons would cancel the pins:

1. The pool gets an intermediate rule, under which a PG may be where it is and where the new rule
   places it. All PGs are pinned in the same epoch. If the old rule allows both, it is kept.
2. Each PG is released to where the new rule places it, by an upmap that the intermediate rule
   allows.
3. Once all PGs are there, the rule is changed. No PG is remapped, and the upmaps are removed.

More PGs: they are split first, while pgp_num keeps the children on the OSDs of their parents. Each
child is released to where the new pgp_num places it, by an upmap under the same CRUSH rule. Then
pgp_num is set, which remaps nothing, and the upmaps are removed.

Fewer PGs: those that will be merged are released to where the new pgp_num places them, which is
the same for both of a pair. Then pgp_num is set and the upmaps are removed, and ceph-mgr merges one
PG after the other.

Each step follows from the OSDMap, so an interrupted step is repeated for the remaining PGs.
"""
import errno
import re
from dataclasses import dataclass, replace
from shlex import quote
from typing import Dict, FrozenSet, Iterable, Iterator, List, Mapping, Optional, Tuple

from ..cluster.crush import CrushRules
from ..cluster.ports import Future, FuturePg
from ..cluster.types import (NO_OSD, Json, OsdMap, Pool, PoolPgs, PoolRule, Space, UpmapEntry,
                             merging_seeds, pool_of, seed_of)
from ..errors import Refused
from ..tables import bytes_text, pgs
from ..upmap.pins import Unpinnable, broken_rule, plan_pin
from ..upmap.semantics import out_osds
from .draft import Draft
from .join_plan import keeps
from .moves import Move, move_between
from .types import Change, ChangeStage, PinRecord, SetPoolPgs

# ---- Another CRUSH rule

#: Share of a pool's PGs that may be remapped when its rule is changed.
MOST_REMAPPED = 0.005
#: Maximum number of passes that move PGs to where the new rule places them. More than one pass is
#: needed if CRUSH is changed, or OSDs fail, while PGs move.
MOST_PASSES = 5


@dataclass(frozen=True)
class FirstMoves:
    """PGs to move before the rule is changed."""
    pins: Mapping[str, PinRecord]
    #: PG -> why the present rule does not allow its new place.
    unpinnable: Mapping[str, Unpinnable]
    moves: Mapping[str, Move]


def rule_ordered(names: Tuple[str, ...], osdmap: OsdMap, crush: CrushRules) -> PoolRule:
    """The pool and the rule that an order names. Raises Refused."""
    pool_name, rule_name = names
    pool = next((pool for pool in osdmap.pools.values() if pool.name == pool_name), None)
    if pool is None:
        raise Refused(errno.ENOENT, 'pool %r does not exist' % pool_name)
    rule = crush.rule_named(rule_name)
    if rule is None:
        raise Refused(errno.ENOENT, 'CRUSH rule %r does not exist' % rule_name)
    if rule == pool.crush_rule:
        raise Refused(errno.EALREADY, 'pool %s already has the CRUSH rule %s'
                      % (pool_name, rule_name))
    if rule not in crush.rules_for(pool.erasure, pool.size):
        raise Refused(errno.EINVAL, 'CRUSH rule %s is not for %s pools of size %d' % (
            rule_name, 'erasure-coded' if pool.erasure else 'replicated', pool.size))
    return PoolRule(pool.id, rule)


def refuse_incomplete(pool: Pool, future: Future, rule: str) -> None:
    """Raise Refused for a rule that finds too few OSDs for PGs."""
    short = [pgid for pgid, pg in _all(future) if not pool.is_complete(pg.raw)]
    if short:
        raise Refused(errno.EINVAL, 'CRUSH rule %s finds fewer than %d OSDs for %s of pool %s, '
                      'such as PG %s' % (rule, pool.size, pgs(len(short)), pool.name, min(short)))


def bridging_rule(pool: Pool, future: Future, crush: CrushRules, osdmap: OsdMap,
                  ordered: int) -> int:
    """The rule under which every PG may be where it is and where the new rule places it: the
    present one, else that of the others whose failure domain is the largest. Raises Refused."""
    out, reasons = out_osds(osdmap.osds), []
    for rule in sorted(crush.rules_for(pool.erasure, pool.size), key=lambda each: (
            each != pool.crush_rule, -crush.type_rank(crush.separation(each, pool.size)), each)):
        bridged = replace(pool, crush_rule=rule)
        sets = ((pgid, osds) for pgid, pg in _all(future) for osds in (pg.raw, pg.acting))
        reason = next((
            'under rule %s: PG %s: %s' % (crush.rule_name(rule), pgid, why)
            for pgid, why in ((pgid, broken_rule(bridged, osds, crush, out))
                              for pgid, osds in sets) if why), None)
        if reason is None:
            return rule
        reasons.append(reason)
    raise Refused(errno.EPERM, 'no CRUSH rule allows the PGs of pool %s both where they are and '
                  'where the new rule places them (%s): create one with %s, and try again'
                  % (pool.name, '; '.join(reasons), ' '.join(
                      '"%s"' % command for command in _bridging_commands(pool, ordered, crush))))


def _bridging_commands(pool: Pool, ordered: int, crush: CrushRules) -> List[str]:
    """How to create a rule above the trees of the present rule and of the ordered one."""
    tops = sorted(crush.tops(pool.crush_rule) | crush.tops(ordered))
    root = tops[0] if len(tops) == 1 else '<root>'
    links = ['ceph osd crush link %s root=<root>' % top for top in tops] if len(tops) > 1 else []
    domain = _common_domain(pool, ordered, crush)
    if not pool.erasure:
        return [*links, 'ceph osd crush rule create-replicated <rule> %s %s' % (root, domain)]
    return [*links, 'ceph osd erasure-code-profile set <profile> k=<k> m=<m> crush-root=%s '
            'crush-failure-domain=%s' % (root, domain),
            'ceph osd crush rule create-erasure <rule> <profile>']


def _common_domain(pool: Pool, ordered: int, crush: CrushRules) -> str:
    """The largest failure domain that the sets of the present rule and of the ordered one have."""
    return min((crush.separation(rule, pool.size) for rule in (pool.crush_rule, ordered)),
               key=crush.type_rank)


def _weaker(pool: Pool, via: int, ordered: int, crush: CrushRules) -> str:
    """Text on an intermediate rule that protects the data less than the present rule and the
    ordered one; '' if it does not."""
    domain, common = crush.separation(via, pool.size), _common_domain(pool, ordered, crush)
    if crush.encloses(domain, common):
        return ''
    return 'the intermediate CRUSH rule %s has the failure domain %s: while it is in force, ' \
        'recovery may place two shards of a PG in the same %s. Create a rule with %s' % (
            crush.rule_name(via), domain, common, ' '.join(
                '"%s"' % command for command in _bridging_commands(pool, ordered, crush)))


@dataclass(frozen=True)
class NewRule:
    """Another CRUSH rule for a pool, by names."""
    pool: str
    found: str
    wanted: str
    #: The intermediate rule; None: there is none.
    via: Optional[str]
    #: The PGs move before the pool gets the rule.
    moves_first: bool
    #: PGs to pin in the epoch of the intermediate rule.
    pins: int
    #: Why the intermediate rule protects data less; '' if it does not.
    weaker: str

    def as_json(self) -> Json:
        return {'pool': self.pool, 'from': self.found, 'to': self.wanted, 'via': self.via,
                'moves_first': self.moves_first, 'pins': self.pins, 'weaker': self.weaker}


def new_rule(change: Change, osdmap: OsdMap, crush: CrushRules) -> NewRule:
    assert change.rule is not None
    pool = osdmap.pools[change.rule.pool]
    final = change.rule.rule if change.then is None else change.then
    via = None if change.then is None else crush.rule_name(change.rule.rule)
    return NewRule(pool.name, crush.rule_name(pool.crush_rule), crush.rule_name(final), via,
                   change.moves_first or change.then is not None, pool.pg_num if via else 0,
                   _weaker(pool, change.rule.rule, final, crush) if via else '')


def _all(future: Future) -> Iterator[Tuple[str, FuturePg]]:
    yield from future.pgs.items()
    yield from future.others.items()


def first_moves(osdmap: OsdMap, future: Future, crush: CrushRules, pool: Pool,
                pins: Mapping[str, PinRecord], pool_bytes: int) -> FirstMoves:
    """The PGs that are not where the new rule places them, with the upmaps that lead there.

    `crush` and the rule of `pool` are those under which they move.
    """
    out = out_osds(osdmap.osds)
    found: Dict[str, PinRecord] = {}
    moves: Dict[str, Move] = {}
    unpinnable: Dict[str, Unpinnable] = {}
    for pgid, pg in future.pgs.items():
        present = osdmap.entry(pgid)
        if keeps(pg, UpmapEntry(), present, out) or pgid in osdmap.pg_temp:
            continue
        goal = plan_pin(pool, pg.acting, pg.raw, present, osdmap.osds, crush, exact=True, out=out)
        if isinstance(goal, Unpinnable):
            unpinnable[pgid] = goal
            continue
        pin = pins.get(pgid, PinRecord(present, present))
        found[pgid] = replace(pin, entry=present, goal=goal.entry)
        moves[pgid] = move_between(pgid, pool, pg.acting, pg.raw, pool_bytes)
    return FirstMoves(found, unpinnable, moves)


def refuse_full(moves: Iterable[Move], space: Mapping[int, Space],
                nearfull_ratio: float) -> None:
    """Raise Refused if these PGs together would fill an OSD beyond nearfull."""
    change: Dict[int, int] = {}
    for move in moves:
        share = move.bytes // max(1, len(move.targets))
        for osd in move.targets:
            change[osd] = change.get(osd, 0) + share
        for osd in move.sources:
            change[osd] = change.get(osd, 0) - share
    for osd, more in sorted(change.items()):
        row = space.get(osd)
        if row is None or more <= 0 or row.total_bytes <= 0:
            continue
        if row.used_bytes + more > nearfull_ratio * row.total_bytes:
            raise Refused(errno.ENOSPC, 'not enough space: osd.%d would hold %s of %s with the '
                          'PGs that it receives (nearfull is %d %%)' % (
                              osd, bytes_text(row.used_bytes + more), bytes_text(row.total_bytes),
                              100 * nearfull_ratio))


# ---- In a campaign

def other_rule(change: Change, crush: CrushRules) -> str:
    """Why the rule with the id of the ordered one is another; '' if it is not."""
    assert change.rule is not None
    number = change.rule.rule if change.then is None else change.then
    if change.rule_name in ('', crush.rule_name(number)):
        return ''
    return 'CRUSH rule %s no longer has the ID %d' % (change.rule_name, number)


def first_moves_of(draft: Draft, change: Change, future: Future) -> FirstMoves:
    """The PGs that move before the pool is changed; none after MOST_PASSES passes."""
    assert change.pool is not None
    if change.passes >= MOST_PASSES:
        return FirstMoves({}, {}, {})
    pool = draft.seen.osdmap.pools[change.pool]
    return first_moves(draft.seen.osdmap, future, draft.seen.crush, pool, draft.pinned(),
                       draft.seen.signals.pool_bytes.get(pool.id, 0))


def move_first(draft: Draft, change: Change, future: Future, moves: FirstMoves) -> Draft:
    """Note the goals of the PGs that move before the pool is changed."""
    assert change.pool is not None
    # The others stay where they are by their upmaps, until the pool is changed.
    settled = [pgid for pgid in draft.pinned() if pgid in future.pgs and pgid not in moves.pins]
    return draft.forget_pins(settled).note_pins(moves.pins) \
        .set(change=replace(change, passes=change.passes + 1)).event(
            'plan', '%s of pool %s will move before its %s is changed' % (
                pgs(len(moves.pins)), draft.seen.osdmap.pools[change.pool].name,
                'pgp_num' if change.rule is None else 'CRUSH rule'),
            'the current rule allows their new places')


def too_early(draft: Draft, change: Change, unpinnable: Mapping[str, Unpinnable]) -> str:
    """Why the pool must not be changed; '' if it may."""
    if change.pool is None:
        return ''
    pool = draft.seen.osdmap.pools[change.pool]
    if len(unpinnable) <= MOST_REMAPPED * pool.pg_num:
        return ''
    pgid = min(unpinnable)
    return '%s of pool %s would be remapped by the new %s, such as PG %s: %s' % (
        pgs(len(unpinnable)), pool.name, 'pgp_num' if change.rule is None else 'CRUSH rule',
        pgid, unpinnable[pgid].reason)


def upmaps_to_remove(draft: Draft, future: Future) -> Dict[str, PinRecord]:
    """The upmaps that PGs do not need once the pool is changed, as pins: so they are removed when
    the change has been read back, and not before."""
    osdmap = draft.seen.osdmap
    return {pgid: PinRecord(UpmapEntry(), osdmap.entry(pgid))
            for pgid in {*osdmap.upmap_items, *osdmap.upmap_vectors} if pgid in future.pgs}


# ---- Another pg_num

#: Maximum difference of pg_num and pgp_num: the default of mgr_max_pg_num_change, with which
#: ceph-mgr splits no further (DaemonServer::adjust_pgs).
MOST_AHEAD = 128
#: PGs that are merged in one step: both of each pair may have an upmap until pgp_num is set, and
#: many thousand upmaps slow every OSDMap down.
MOST_MERGED = 2048
NOPGCHANGE = 'nopgchange'
_NUMBER = re.compile('0{0,9}[1-9][0-9]{0,9}')


def numbers_of(pool: Pool) -> PoolPgs:
    return PoolPgs(pool.id, pool.pg_num, pool.pgp_num or pool.pg_num)


def targets_of(pool: Pool) -> PoolPgs:
    return PoolPgs(pool.id, pool.pg_num_target,
                   pool.pgp_num_target or pool.pgp_num or pool.pg_num_target)


def at_rest(pool: Pool) -> bool:
    """Whether all numbers have reached their targets."""
    return numbers_of(pool) == targets_of(pool) and pool.pg_num_pending == pool.pg_num


def next_step(osdmap: OsdMap, pool: Pool, pg_num: int) -> Optional[PoolPgs]:
    """The numbers of the next step of a pool at rest towards a pg_num; None: it has arrived."""
    now = numbers_of(pool)
    if now.pg_num > pg_num:
        # Merges that have begun continue to their end.
        lower = now.pgp_num if now.pgp_num < now.pg_num else now.pg_num - MOST_MERGED
        lower = max(pg_num, lower)
        first = now.pgp_num != lower or _has_upmaps(osdmap, pool, lower)
        return PoolPgs(pool.id, now.pg_num if first else lower, lower)
    ahead = min(pg_num, now.pgp_num + MOST_AHEAD)
    if ahead > now.pg_num:
        return PoolPgs(pool.id, ahead, now.pgp_num)
    return None if now.pgp_num == now.pg_num else PoolPgs(pool.id, now.pg_num, now.pg_num)


def _has_upmaps(osdmap: OsdMap, pool: Pool, pg_num: int) -> bool:
    """Whether ceph-mgr would remove upmaps of PGs that are merged, and so move them."""
    seeds = merging_seeds(pool.pg_num, pg_num)
    return any(pool_of(pgid) == pool.id and seed_of(pgid) in seeds
               for pgid in (*osdmap.upmap_items, *osdmap.upmap_vectors))


def step_to(osdmap: OsdMap, pool: Pool, pg_num: int, found: int,
            now: float = 0.0) -> Optional[Change]:
    """The next step as a change; None: there is none. `found`: the pg_num before all steps."""
    step = next_step(osdmap, pool, pg_num)
    if step is None:
        return None
    return Change(pgs=step, pg_num=pg_num, found_pg_num=found, since=now,
                  moves_first=step.pg_num == pool.pg_num)


def pg_num_ordered(names: Tuple[str, ...], osdmap: OsdMap, force: bool,
                   limit: int, pool_limit: int) -> Tuple[Pool, int]:
    """The pool and the pg_num that an order names. Raises Refused.

    `limit`: mon_max_pg_per_osd; `pool_limit`: mon_max_pool_pg_num; 0: none.
    """
    name, number = names
    pool = next((pool for pool in osdmap.pools.values() if pool.name == name), None)
    if pool is None:
        raise Refused(errno.ENOENT, 'pool %r does not exist' % name)
    if not _NUMBER.fullmatch(number):
        raise Refused(errno.EINVAL, 'pg_num must be an integer of at least 1, not %.40r' % number)
    pg_num = int(number)
    _refuse_pool(pool, force)
    if next_step(osdmap, pool, pg_num) is None:
        raise Refused(errno.EALREADY, 'pool %s already has %s' % (name, pgs(pg_num)))
    _refuse_outside(pool, pg_num)
    if pg_num > max(pool.pg_num, pool_limit or pg_num):
        raise Refused(errno.ERANGE, 'pg_num %d is beyond mon_max_pool_pg_num (%d)'
                      % (pg_num, pool_limit))
    _refuse_too_many(pool, pg_num, osdmap, limit)
    return pool, pg_num


def _refuse_pool(pool: Pool, force: bool) -> None:
    if NOPGCHANGE in pool.flags:
        raise Refused(errno.EPERM, 'the flag nopgchange of pool %s is set' % pool.name)
    if not at_rest(pool):
        raise Refused(errno.EBUSY, 'pg_num of pool %s is changing (%s, target %s): wait, or set '
                      'both to their current values with "ceph osd pool set"' % (
                          pool.name, _text(numbers_of(pool)), _text(targets_of(pool))))
    if pool.autoscale_mode == 'on' and not force:
        raise Refused(errno.EPERM, 'the autoscaler of pool %s is on and may undo the change: "ceph '
                      'osd pool set %s pg_autoscale_mode warn" first, or override with --force'
                      % (pool.name, quote(pool.name)))


def _refuse_outside(pool: Pool, pg_num: int) -> None:
    """The autoscaler would bring the pool back within these limits."""
    for name, limit, beyond in (
            ('pg_num_min', pool.pg_num_min, pg_num < min(pool.pg_num, pool.pg_num_min)),
            ('pg_num_max', pool.pg_num_max, pg_num > max(pool.pg_num, pool.pg_num_max))):
        if limit and beyond:
            raise Refused(errno.ERANGE, 'pg_num %d is beyond %s of pool %s (%d): change it with '
                          '"ceph osd pool set" first' % (pg_num, name, pool.name, limit))


def _refuse_too_many(pool: Pool, pg_num: int, osdmap: OsdMap, limit: int) -> None:
    """As OSDMonitor::check_pg_num, which would refuse it in the middle of the campaign."""
    osds = sum(1 for osd in osdmap.osds.values() if osd.is_up_and_in)
    shards = sum(each.size * (pg_num if each.id == pool.id else each.pg_num)
                 for each in osdmap.pools.values())
    if limit and pg_num > pool.pg_num and shards > limit * osds:
        raise Refused(errno.ERANGE, 'with %s in pool %s, an OSD would have %s on average '
                      '(limit %d, mon_max_pg_per_osd)' % (
                          pgs(pg_num), pool.name, pgs(shards // max(1, osds)), limit))


def _text(numbers: PoolPgs) -> str:
    return 'pg_num %d, pgp_num %d' % (numbers.pg_num, numbers.pgp_num)


def at_the_end(pool: Pool, pg_num: int) -> PoolPgs:
    """The numbers for which all PGs exist and are in their final places."""
    return PoolPgs(pool.id, max(pool.pg_num, pg_num), pg_num)


def pgs_made(pool: Pool, pg_num: int, future: Future) -> Dict[int, int]:
    """OSD -> how many PGs it gets by splits before a PG moves, or (below 0) loses by merges at the
    end."""
    found: Dict[int, int] = {}
    for pgid, pg in (*future.pgs.items(), *future.others.items()):
        seed = seed_of(pgid)
        if seed >= min(pool.pg_num, pg_num):
            split = seed >= pool.pg_num
            for osd in pg.acting if split else pg.raw:
                found[osd] = found.get(osd, 0) + (1 if split else -1)
    found.pop(NO_OSD, None)
    return found


@dataclass(frozen=True)
class NewPgNum:
    """Another pg_num for a pool. The PGs move before the pool gets the last pgp_num."""
    pool: str
    found: int
    wanted: int

    def as_json(self) -> Json:
        return {'pool': self.pool, 'from': self.found, 'to': self.wanted,
                'splits': max(0, self.wanted - self.found),
                'merges': max(0, self.found - self.wanted), 'moves_first': True}


# ---- In a campaign

def change_to(draft: Draft, change: Change) -> Optional[Change]:
    """The next step after one that is in force; None: there is none."""
    if change.pgs is None:
        return None
    osdmap = draft.seen.osdmap
    return step_to(osdmap, osdmap.pools[change.pgs.pool], change.pg_num, change.found_pg_num,
                   draft.now)


def interrupted(draft: Draft, change: Change) -> str:
    """Why no step may be made: others have set numbers as well; '' if it may."""
    pool = draft.seen.osdmap.pools.get(change.pgs.pool) if change.pgs is not None else None
    if pool is None or not (_set_by_others(pool, change) if change.pending else
                            _pool_at_hand(draft, change) is not None and not at_rest(pool)):
        return ''
    return 'pg_num of pool %s was changed outside perfguard (%s, target %s)' % (
        pool.name, _text(numbers_of(pool)), _text(targets_of(pool)))


def _set_by_others(pool: Pool, change: Change) -> bool:
    """Whether the targets are neither those of the step, nor those from before it, nor what the
    first of its commands makes of them."""
    step, before = change.pgs, change.replaces
    return step is not None and before is not None and targets_of(pool) not in (
        {step} if before == step else {step, before, _half(before, step), _half(step, before)})


def _half(before: PoolPgs, after: PoolPgs) -> PoolPgs:
    """With pg_num alone; a pgp_num that equals it follows (OSDMonitor::prepare_command_pool_set).
    """
    return after._replace(pgp_num=after.pg_num if before.pg_num == before.pgp_num
                          else before.pgp_num)


def accepted(draft: Draft, change: Change) -> Change:
    """Note that the mons have accepted a step: if its targets vanish, others have set them."""
    return replace(change, replaces=change.pgs) \
        if has_targets(draft.seen.osdmap, change) else change


def step_now(draft: Draft, change: Change) -> Change:
    """The next step, which may differ after an interruption."""
    pool = _pool_at_hand(draft, change)
    if pool is None or change.pgs == numbers_of(pool):
        return change
    following = change_to(draft, change)
    return change if following is None or following.pgs == change.pgs else following


def _pool_at_hand(draft: Draft, change: Change) -> Optional[Pool]:
    """The pool whose next step was not sent yet; None: another kind of change, or it was sent."""
    if change.pgs is None or change.stage is not ChangeStage.WANTED or change.pending:
        return None
    return draft.seen.osdmap.pools[change.pgs.pool]


def has_numbers(draft: Draft, change: Change) -> bool:
    """Whether the OSDMap shows the numbers of the step."""
    assert change.pgs is not None
    pool = draft.seen.osdmap.pools.get(change.pgs.pool)
    return pool is not None and at_rest(pool) and numbers_of(pool) == change.pgs


def has_targets(osdmap: OsdMap, change: Change) -> bool:
    """Whether the mons have accepted the step; ceph-mgr splits and merges slowly."""
    pool = osdmap.pools.get(change.pgs.pool) if change.pgs is not None else None
    return pool is not None and targets_of(pool) == change.pgs


def stands_still(draft: Draft, change: Change) -> bool:
    """Whether no PG of the pool is being split or merged, or others have set its numbers."""
    pool = draft.seen.osdmap.pools.get(change.pgs.pool) if change.pgs is not None else None
    return pool is None or at_rest(pool) or _set_by_others(pool, change)


def stop_step(draft: Draft, change: Change) -> Draft:
    """For a campaign that is being aborted: PGs that are not yet split or merged stay as they
    are."""
    assert change.pgs is not None
    pool = draft.seen.osdmap.pools[change.pgs.pool]
    numbers = PoolPgs(pool.id, pool.pg_num_pending, min(
        numbers_of(pool).pgp_num, pool.pg_num_pending))
    if targets_of(pool) == numbers:
        return draft
    return draft.send(SetPoolPgs(pool.name, numbers.pg_num, numbers.pgp_num)) \
        .set(change=replace(change, replaces=numbers))


def step_text(draft: Draft, change: Change) -> str:
    """Text on what a sent step waits for."""
    assert change.pgs is not None
    pool = draft.seen.osdmap.pools[change.pgs.pool]
    return 'waiting until pool %s has %s (now %s)' % (
        pool.name, _text(change.pgs), _text(numbers_of(pool)))


def pg_num_begun(change: Change, osdmap: OsdMap) -> bool:
    """Whether a part of it is in force, or PGs have moved for it."""
    pool = osdmap.pools.get(change.pgs.pool) if change.pgs is not None else None
    return pool is not None and change.stage is not ChangeStage.LANDED and (
        change.passes > 0 or numbers_of(pool) != PoolPgs(
            pool.id, change.found_pg_num, change.found_pg_num))


# ---- Both

def way_back(change: Optional[Change], osdmap: OsdMap) -> str:
    """The command that undoes the change of an aborted campaign; '': there is none."""
    pool = osdmap.pools.get(change.pool) if change is not None and change.pool is not None else None
    if change is None or pool is None:
        return 'campaign rollback'
    if change.pgs is not None:
        found = PoolPgs(pool.id, change.found_pg_num, change.found_pg_num)
        return '' if numbers_of(pool) == found else 'pg_num %s %d' % (
            quote(pool.name), change.found_pg_num)
    return '' if not change.intermediate else 'rule %s %s' % (
        quote(pool.name), quote(change.found_rule))


def begun_pools(change: Optional[Change], osdmap: OsdMap) -> FrozenSet[int]:
    """The pool whose PGs are, by upmaps, where a change places them that is not in force yet."""
    if change is None or change.pool is None or change.stage is not ChangeStage.WANTED \
            or change.pool not in osdmap.pools:
        return frozenset()
    begun = pg_num_begun(change, osdmap) if change.pgs is not None else \
        change.moves_first and (change.passes or change.via)
    return frozenset({change.pool}) if begun else frozenset()


def left_intermediate(change: Optional[Change], osdmap: OsdMap, verb: str = 'would keep') -> str:
    """Text on the intermediate rule that remains in force after the campaign; '': there is none."""
    if change is None or change.rule is None or not change.intermediate \
            or change.rule.pool not in osdmap.pools:
        return ''
    return 'pool %s %s the intermediate CRUSH rule %s, under which recovery may place PGs where ' \
           'neither %s nor %s allows them' % (
               osdmap.pools[change.rule.pool].name, verb, change.via, change.found_rule,
               change.rule_name)
