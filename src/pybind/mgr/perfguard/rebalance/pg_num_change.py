# SPDX-License-Identifier: LGPL-2.1-or-later
"""Another pg_num for a pool. Pure.

More PGs: they are split first, while pgp_num keeps the children on the OSDs of their parents. Each
child is released to where the new pgp_num places it, by an upmap under the same CRUSH rule. Then
pgp_num is set, which remaps nothing, and the upmaps are removed.

Fewer PGs: those that will be merged are released to where the new pgp_num places them, which is
the same for both of a pair. Then pgp_num is set and the upmaps are removed, and ceph-mgr merges one
PG after the other.

Each step follows from the present numbers of the pool, so an interrupted step is repeated.
"""
import errno
import re
from typing import Any, Dict, Optional, Tuple

from ..cluster.ports import Future
from ..cluster.types import NO_OSD, OsdMap, Pool, PoolPgs, merging_seeds, pool_of, seed_of
from ..errors import Refused
from ..tables import pgs
from .turn import Turn
from .types import Change, ChangeStage, SetPoolPgs

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
                      % (pool.name, pool.name))


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


def pg_num_json(pool: Pool, pg_num: int) -> Dict[str, Any]:
    return {'pool': pool.name, 'from': pool.pg_num, 'to': pg_num,
            'splits': max(0, pg_num - pool.pg_num), 'merges': max(0, pool.pg_num - pg_num),
            'moves_first': True}


# ---- In a campaign

def change_to(turn: Turn, change: Change) -> Optional[Change]:
    """The next step after one that is in force; None: there is none."""
    if change.pgs is None:
        return None
    osdmap = turn.seen.osdmap
    return step_to(osdmap, osdmap.pools[change.pgs.pool], change.pg_num, change.found_pg_num,
                   turn.now)


def interrupted(turn: Turn, change: Change) -> str:
    """Why no step may be made: others have set numbers as well; '' if it may."""
    pool = _pool_at_hand(turn, change)
    if pool is None or at_rest(pool):
        return ''
    return 'pg_num of pool %s was changed outside perfguard (%s, target %s)' % (
        pool.name, _text(numbers_of(pool)), _text(targets_of(pool)))


def step_now(turn: Turn, change: Change) -> Change:
    """The next step, which may differ after an interruption."""
    pool = _pool_at_hand(turn, change)
    if pool is None or change.pgs == numbers_of(pool):
        return change
    following = change_to(turn, change)
    return change if following is None or following.pgs == change.pgs else following


def _pool_at_hand(turn: Turn, change: Change) -> Optional[Pool]:
    """The pool whose next step was not sent yet; None: another kind of change, or it was sent."""
    if change.pgs is None or change.stage is not ChangeStage.WANTED or change.pending:
        return None
    return turn.seen.osdmap.pools[change.pgs.pool]


def has_numbers(turn: Turn, change: Change) -> bool:
    """Whether the OSDMap shows the numbers of the step."""
    assert change.pgs is not None
    pool = turn.seen.osdmap.pools.get(change.pgs.pool)
    return pool is not None and at_rest(pool) and numbers_of(pool) == change.pgs


def has_targets(osdmap: OsdMap, change: Change) -> bool:
    """Whether the mons have accepted the step; ceph-mgr splits and merges slowly."""
    pool = osdmap.pools.get(change.pgs.pool) if change.pgs is not None else None
    return pool is not None and targets_of(pool) == change.pgs


def stands_still(turn: Turn, change: Change) -> bool:
    """For a campaign that is being aborted: PGs that are not yet split or merged stay as they are.
    """
    pool = turn.seen.osdmap.pools.get(change.pgs.pool) if change.pgs is not None else None
    if pool is None or at_rest(pool):
        return True
    numbers = PoolPgs(pool.id, pool.pg_num_pending, min(
        numbers_of(pool).pgp_num, pool.pg_num_pending))
    if targets_of(pool) != numbers:
        turn.actions.append(SetPoolPgs(pool.name, numbers.pg_num, numbers.pgp_num))
    return False


def step_text(turn: Turn, change: Change) -> str:
    """Text on what a sent step waits for."""
    assert change.pgs is not None
    pool = turn.seen.osdmap.pools[change.pgs.pool]
    return 'waiting until pool %s has %s (now %s)' % (
        pool.name, _text(change.pgs), _text(numbers_of(pool)))


def is_begun(change: Change, osdmap: OsdMap) -> bool:
    """Whether a part of it is in force, or PGs have moved for it."""
    pool = osdmap.pools.get(change.pgs.pool) if change.pgs is not None else None
    return pool is not None and change.stage is not ChangeStage.LANDED and (
        change.passes > 0 or numbers_of(pool) != PoolPgs(
            pool.id, change.found_pg_num, change.found_pg_num))
