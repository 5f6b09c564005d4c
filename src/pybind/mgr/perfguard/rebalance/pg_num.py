# SPDX-License-Identifier: LGPL-2.1-or-later
"""Another pg_num for a pool. Pure.

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
from typing import ClassVar, Dict, FrozenSet, Iterable, List, Mapping, Optional, Sequence, Tuple

from ..cluster.crush import CrushRules
from ..cluster.ports import Future
from ..cluster.types import NO_OSD, OsdMap, Pool, PoolPgs, merging_seeds, pool_of, seed_of
from ..errors import Code, Refused
from ..observation import Observation
from ..text import pgs
from .change import Change, ChangeStage, Details, LeftSetting, NextPart
from .pool_change import PoolChange
from .risks import Risk
from .types import Action, SetPool

#: Maximum difference of pg_num and pgp_num: the default of mgr_max_pg_num_change, at which ceph-mgr
#: splits no further (DaemonServer::adjust_pgs). A lower value of that option applies.
MOST_AHEAD = 128
#: PGs that are merged in one step: both of each pair may have an upmap until pgp_num is set, and
#: many thousand upmaps slow every OSDMap down.
MOST_MERGED = 2048
#: Number of OSDs on which the mons count at least, and the release since which they count those of
#: the CRUSH rule (OSDMonitor::check_pg_num).
LEAST_OSDS, BY_RULE_SINCE = 3, 'reef'
NOPGCHANGE = 'nopgchange'
_NUMBER = re.compile('0{0,9}[1-9][0-9]{0,9}')


@dataclass(frozen=True)
class PgNumChange(PoolChange):
    """It goes in steps: each is a pg_num and a pgp_num that the mons take at once."""
    kind: ClassVar[str] = 'pg_num'
    fewer_pins: ClassVar[str] = 'change pg_num in several steps'
    value: ClassVar[str] = 'pgp_num'
    subject: ClassVar[str] = 'pg_num or pgp_num'
    #: PGs that were split have not reported yet.
    awaits_reports: ClassVar[bool] = True

    #: The numbers of the present step. There is always one.
    step: PoolPgs = PoolPgs(-1, 0, 0)
    #: pg_num after all steps, and before them.
    pg_num: int = 0
    found_pg_num: int = 0
    #: The targets of the pool when they were sent; once the mons have accepted the step, its own.
    #: None: not sent.
    replaces: Optional[PoolPgs] = None

    @property
    def setting(self) -> PoolPgs:
        return self.step

    def commands(self, observation: Observation) -> List[Action]:
        return _commands(observation.osdmap.pools[self.step.pool], self.step)

    def landed(self, observation: Observation) -> bool:
        pool = self.pool_in(observation.osdmap)
        return pool is not None and at_rest(pool) and numbers_of(pool) == self.step

    @property
    def needs_outlook(self) -> bool:
        """A split leaves PGs where they are, so does a merge after the step that has moved
        them."""
        return self.moves_first

    @property
    def follows_parts(self) -> bool:
        return True

    def awaited(self, observation: Observation) -> str:
        pool = observation.osdmap.pools[self.step.pool]
        text = 'waiting until pool %s has %s (now %s)' % (
            pool.name, _text(self.step), _text(numbers_of(pool)))
        if observation.split_limit == 0 and pool.pg_num < self.step.pg_num:
            text += '; ceph-mgr splits no PG while mgr_max_pg_num_change is 0: "ceph config rm ' \
                'mgr mgr_max_pg_num_change"'
        return text

    def _overtaken(self, observation: Observation, pool: Pool) -> str:
        """Why the change is impossible: others have set pg_num or pgp_num; '' if they have not."""
        other_targets = self.pending and self._set_by_others(pool)
        # After an abort that could not stop it (at once), ceph-mgr may still carry out the step,
        # or the part of it up to where it was stopped (`replaces`).
        other_change = self._is_next and not at_rest(pool) \
            and targets_of(pool) not in (self.step, self.replaces)
        if not other_targets and not other_change:
            return ''
        return 'pg_num of pool %s was changed outside perfguard (%s, target %s)' % (
            pool.name, _text(numbers_of(pool)), _text(targets_of(pool)))

    @property
    def _is_next(self) -> bool:
        """The step is the next one, and was not sent yet."""
        return self.stage is ChangeStage.WANTED and not self.pending

    def _set_by_others(self, pool: Pool) -> bool:
        """Whether the targets are neither those of the step, nor those from before it, nor what the
        first of its commands makes of them."""
        step, before = self.step, self.replaces
        return before is not None and targets_of(pool) not in (
            {step} if before == step else
            {step, before, _after_first_command(before, step), _after_first_command(step, before)})

    def is_accepted(self, osdmap: OsdMap) -> bool:
        """ceph-mgr splits and merges slowly."""
        pool = self.pool_in(osdmap)
        return pool is not None and targets_of(pool) == self.step

    def remaining(self, observation: Observation) -> Change:
        """The change with the step that the pool needs now, which may differ from the planned one
        after an interruption."""
        pool = self.pool_in(observation.osdmap)
        if pool is not None and self._splits_no_further(pool, observation.split_limit):
            # The step ends with the PGs that there are. It is sent once more, as its target.
            return replace(self, step=self.step._replace(pg_num=pool.pg_num),
                           stage=ChangeStage.WANTED, times=1)
        if pool is None or not self._is_next or self.step == numbers_of(pool):
            return self
        following = self._following(observation)
        return self if following is None or following.step == self.step else following

    def _splits_no_further(self, pool: Pool, split_limit: int) -> bool:
        """Whether ceph-mgr has split only some PGs of the step that was sent, and splits no other
        before pgp_num follows: mgr_max_pg_num_change (`split_limit`) was lowered meanwhile."""
        numbers = numbers_of(pool)
        return (self.stage is ChangeStage.SENT and targets_of(pool) == self.step
                and numbers.pg_num < self.step.pg_num and pool.pg_num_pending == pool.pg_num
                and 0 < split_limit <= numbers.pg_num - numbers.pgp_num)

    def _following(self, observation: Observation) -> Optional['PgNumChange']:
        """The next step after one that is in force; None: there is none."""
        osdmap = observation.osdmap
        return step_to(osdmap, osdmap.pools[self.step.pool], self.pg_num, self.found_pg_num,
                       observation.split_limit, observation.now)

    def sent(self, observation: Observation) -> Change:
        return replace(self, replaces=targets_of(observation.osdmap.pools[self.step.pool]))

    def accepted(self, observation: Observation) -> Change:
        """If the targets of the step vanish from now on, others have set them."""
        return replace(self, replaces=self.step) if self.is_accepted(observation.osdmap) else self

    def next_part(self, observation: Observation, pins: int) -> Optional[NextPart]:
        following = self._following(observation)
        return None if following is None else NextPart(following, self.awaited(observation))

    def stands_still(self, observation: Observation) -> bool:
        """Whether no PG of the pool is being split or merged, or others have set its numbers."""
        pool = self.pool_in(observation.osdmap)
        return pool is None or at_rest(pool) or self._set_by_others(pool)

    def stop(self, observation: Observation) -> Tuple[Change, List[Action]]:
        """Set the targets to what is reached: PGs that are not yet split or merged stay as they
        are. The mons may refuse that: if nopgchange is set, or with an end of merges where OSDs
        have too many PGs (OSDMonitor::check_pg_num)."""
        pool = observation.osdmap.pools[self.step.pool]
        numbers = PoolPgs(pool.id, pool.pg_num_pending, min(
            numbers_of(pool).pgp_num, pool.pg_num_pending))
        if targets_of(pool) == numbers:
            return self, []
        # With `replaces`, these targets do not count as set by others.
        return replace(self, replaces=numbers), _commands(pool, numbers)

    def part_in_force(self, observation: Observation) -> Optional[Change]:
        # "campaign resume" continues with the remaining PGs.
        osdmap = observation.osdmap
        return self if self.pool_in(osdmap) is not None and (
            self.moves_first or self._has_begun(osdmap)) else None

    def _has_begun(self, osdmap: OsdMap) -> bool:
        """Whether a part of it is in force, or PGs have moved for it."""
        pool = self.pool_in(osdmap)
        return pool is not None and self.stage is not ChangeStage.LANDED and (
            self.passes > 0 or numbers_of(pool) != self._numbers_before(pool))

    def _numbers_before(self, pool: Pool) -> PoolPgs:
        """The numbers from before all steps."""
        return PoolPgs(pool.id, self.found_pg_num, self.found_pg_num)

    def why_no_rollback(self, campaign: int) -> str:
        return 'campaign %d changes pg_num of a pool: "campaign abort" first, then "pg_num ' \
            '<pool> %d", or "campaign finish --keep" where pg_num has not changed yet' % (
                campaign, self.found_pg_num)

    def way_back(self, osdmap: OsdMap) -> str:
        pool = self.pool_in(osdmap)
        if pool is None:
            return super().way_back(osdmap)
        return '' if numbers_of(pool) == self._numbers_before(pool) else 'pg_num %s %d' % (
            quote(pool.name), self.found_pg_num)

    def begun_pools(self, osdmap: OsdMap) -> FrozenSet[int]:
        begun = self.stage is ChangeStage.WANTED and self._has_begun(osdmap)
        return frozenset({self.step.pool}) if begun else frozenset()

    def left_setting(self, osdmap: OsdMap) -> Optional[LeftSetting]:
        """The pg_num that an abort leaves, with the command that restores it; None: it has not
        changed."""
        pool = self.pool_in(osdmap)
        if pool is None or not self._has_begun(osdmap):
            return None
        return LeftSetting(
            'pg_num of pool ' + pool.name, str(self.found_pg_num), str(self.pg_num),
            'ceph osd pool set %s pg_num %d: ceph-mgr moves PGs back as fast as '
            'target_max_misplaced_ratio allows' % (quote(pool.name), self.found_pg_num))

    @property
    def features(self) -> Mapping[str, str]:
        return {**super().features, 'pg_num:': str(self.pg_num),
                'first step:': _text(self.step)}


# ---- Its steps

def _commands(pool: Pool, numbers: PoolPgs) -> List[Action]:
    """The actions that set these numbers: ceph-mgr steps pg_num towards its target; pgp_num takes
    its new value at once. In this order: a pgp_num that equals pg_num follows it, and one that is
    not yet at its target is stepped towards it by ceph-mgr."""
    return [SetPool(pool.name, name, str(number)) for name, number in (
        ('pg_num', numbers.pg_num), ('pgp_num', numbers.pgp_num),
        ('pgp_num_actual', numbers.pgp_num))]


def numbers_of(pool: Pool) -> PoolPgs:
    """The pg_num and pgp_num that are in force."""
    return PoolPgs(pool.id, pool.pg_num, pool.pgp_num or pool.pg_num)


def targets_of(pool: Pool) -> PoolPgs:
    """The pg_num and pgp_num towards which ceph-mgr steps."""
    return PoolPgs(pool.id, pool.pg_num_target,
                   pool.pgp_num_target or pool.pgp_num or pool.pg_num_target)


def at_rest(pool: Pool) -> bool:
    """Whether all numbers have reached their targets."""
    return numbers_of(pool) == targets_of(pool) and pool.pg_num_pending == pool.pg_num


def next_step(osdmap: OsdMap, pool: Pool, pg_num: int, split_limit: int) -> Optional[PoolPgs]:
    """The numbers of the next step of a pool at rest towards a pg_num; None: it has arrived. To
    fewer PGs, pgp_num takes its next number before pg_num does; to more PGs, pg_num does first.

    `split_limit`: mgr_max_pg_num_change; below 0: no limit. With 0, the step never ends, which
    `PgNumChange.awaited` reports.
    """
    now = numbers_of(pool)
    if now.pg_num > pg_num:
        # After an interrupted merge or split, pg_num follows pgp_num, but not below the goal.
        lower = now.pgp_num if now.pgp_num < now.pg_num else now.pg_num - MOST_MERGED
        lower = max(pg_num, lower)
        # pg_num follows once the PGs are where the lower pgp_num places them, without upmaps.
        pgs_must_move = now.pgp_num != lower or _has_upmaps(osdmap, pool, lower)
        return PoolPgs(pool.id, now.pg_num if pgs_must_move else lower, lower)
    most_ahead = MOST_AHEAD if split_limit < 0 else max(1, min(MOST_AHEAD, split_limit))
    ahead = min(pg_num, now.pgp_num + most_ahead)
    if ahead > now.pg_num:
        return PoolPgs(pool.id, ahead, now.pgp_num)
    return None if now.pgp_num == now.pg_num else PoolPgs(pool.id, now.pg_num, now.pg_num)


def _has_upmaps(osdmap: OsdMap, pool: Pool, pg_num: int) -> bool:
    """Whether PGs that a merge to `pg_num` concerns have upmaps: ceph-mgr would remove these, and
    so move the PGs."""
    seeds = merging_seeds(pool.pg_num, pg_num)
    return any(pool_of(pgid) == pool.id and seed_of(pgid) in seeds
               for pgid in (*osdmap.upmap_items, *osdmap.upmap_vectors))


def step_to(osdmap: OsdMap, pool: Pool, pg_num: int, pg_num_before: int, split_limit: int,
            now: float = 0.0) -> Optional[PgNumChange]:
    """The next step as a change; None: there is none. `pg_num_before`: that before all steps;
    `split_limit`: as for next_step."""
    step = next_step(osdmap, pool, pg_num, split_limit)
    if step is None:
        return None
    # A step that changes pgp_num alone moves PGs; splits and merges leave them where they are.
    return PgNumChange(step=step, pg_num=pg_num, found_pg_num=pg_num_before, since=now,
                       moves_first=step.pg_num == pool.pg_num)


def _after_first_command(before: PoolPgs, after: PoolPgs) -> PoolPgs:
    """The targets while pg_num is set and pgp_num is not: one that equals pg_num follows it
    (OSDMonitor::prepare_command_pool_set)."""
    return after._replace(pgp_num=after.pg_num if before.pg_num == before.pgp_num
                          else before.pgp_num)


def _text(numbers: PoolPgs) -> str:
    return 'pg_num %d, pgp_num %d' % (numbers.pg_num, numbers.pgp_num)


# ---- The preview of an order

def pg_num_ordered(names: Tuple[str, ...], osdmap: OsdMap, crush: CrushRules, limit: int,
                   pool_limit: int) -> Tuple[Pool, int]:
    """The pool and the pg_num that an order names. Raises Refused.

    `limit`: mon_max_pg_per_osd; `pool_limit`: mon_max_pool_pg_num; 0: none.
    """
    pool = check_pg_num(names, osdmap)
    name, pg_num = pool.name, int(names[1])
    _refuse_pool(pool)
    if numbers_of(pool) == PoolPgs(pool.id, pg_num, pg_num):
        raise Refused(errno.EALREADY, 'pool %s already has %s' % (name, pgs(pg_num)))
    _refuse_outside(pool, pg_num)
    if pg_num > max(pool.pg_num, pool_limit or pg_num):
        raise Refused(errno.ERANGE, 'pg_num %d is beyond mon_max_pool_pg_num (%d)'
                      % (pg_num, pool_limit))
    _refuse_too_many(pool, pg_num, osdmap, crush, limit)
    return pool, pg_num


def check_pg_num(names: Sequence[str], osdmap: OsdMap) -> Pool:
    """The pool of an order, `names`: its name, and perhaps a pg_num. Raises Refused if the pool
    does not exist, or pg_num is no number."""
    name, *numbers = names
    pool = next((pool for pool in osdmap.pools.values() if pool.name == name), None)
    if pool is None:
        raise Refused(errno.ENOENT, 'pool %r does not exist' % name)
    for number in numbers:
        if not _NUMBER.fullmatch(number):
            raise Refused(errno.EINVAL, 'pg_num must be an integer from 1 to 9999999999, not %.40r'
                          % number)
    return pool


def _refuse_pool(pool: Pool) -> None:
    """Raise Refused if pg_num of a pool cannot change now."""
    if NOPGCHANGE in pool.flags:
        raise Refused(errno.EPERM, 'the flag nopgchange of pool %s is set: "ceph osd pool set %s '
                      'nopgchange false" first' % (pool.name, quote(pool.name)))
    if not at_rest(pool):
        raise Refused(errno.EBUSY, 'pg_num of pool %s is changing (%s, target %s): wait, or set '
                      'both to their current values with "ceph osd pool set"' % (
                          pool.name, _text(numbers_of(pool)), _text(targets_of(pool))))


def autoscaler_risk(pool: Pool) -> List[Risk]:
    """The risk that the autoscaler undoes the change."""
    if pool.autoscale_mode != 'on':
        return []
    return [Risk(Code.AUTOSCALER, 'the autoscaler of pool %s is on and may undo the change: "ceph '
                 'osd pool set %s pg_autoscale_mode warn" first' % (pool.name, quote(pool.name)))]


def _refuse_outside(pool: Pool, pg_num: int) -> None:
    """Raise Refused for a pg_num beyond pg_num_min or pg_num_max, within which the autoscaler would
    bring the pool back."""
    for name, limit, beyond in (
            ('pg_num_min', pool.pg_num_min, pg_num < min(pool.pg_num, pool.pg_num_min)),
            ('pg_num_max', pool.pg_num_max, pg_num > max(pool.pg_num, pool.pg_num_max))):
        if limit and beyond:
            raise Refused(errno.ERANGE, 'pg_num %d is beyond %s of pool %s (%d): change it with '
                          '"ceph osd pool set" first' % (pg_num, name, pool.name, limit))


def _refuse_too_many(pool: Pool, pg_num: int, osdmap: OsdMap, crush: CrushRules,
                     limit: int) -> None:
    """Raise Refused for a pg_num that OSDMonitor::check_pg_num would refuse in the middle of the
    campaign. `limit`: mon_max_pg_per_osd; 0: none.

    Since Reef, it counts the pools of the CRUSH rule, and all OSDs below the buckets that the rule
    takes, whatever their state. Before, it counts all pools, and the OSDs that are in; the last
    versions of Quincy may have either. Both take a cluster to have at least three OSDs.
    """
    if not limit or pg_num <= pool.pg_num:
        return
    same_rule = [other for other in osdmap.pools.values() if other.crush_rule == pool.crush_rule]
    mean = _shards(same_rule, pool, pg_num) // max(LEAST_OSDS, crush.osds_of_rule(pool.crush_rule))
    if mean > limit:
        raise Refused(errno.ERANGE, 'with %s in pool %s, an OSD of CRUSH rule %s would have %s on '
                      'average (limit %d, mon_max_pg_per_osd)' % (
                          pgs(pg_num), pool.name, crush.rule_name(pool.crush_rule), pgs(mean),
                          limit))
    if osdmap.require_osd_release >= BY_RULE_SINCE:
        return
    osds = max(LEAST_OSDS, len(osdmap.osds) - len(osdmap.out))
    shards = _shards(osdmap.pools.values(), pool, pg_num)
    if shards > limit * osds:
        raise Refused(errno.ERANGE, 'with %s in pool %s, an OSD would have %.1f PGs on average '
                      '(limit %d, mon_max_pg_per_osd)' % (
                          pgs(pg_num), pool.name, shards / osds, limit))


def _shards(pools: Iterable[Pool], changed: Pool, pg_num: int) -> int:
    """The shards of all PGs of pools once each has its target, and `changed` this pg_num."""
    return sum(pool.size * (pg_num if pool.id == changed.id else pool.pg_num_target)
               for pool in pools)


def final_numbers(pool: Pool, pg_num: int) -> PoolPgs:
    """The numbers with which a preview maps the pool: all PGs from before and after the change
    exist, and are where the final pgp_num places them."""
    return PoolPgs(pool.id, max(pool.pg_num, pg_num), pg_num)


def pgs_by_split(pool: Pool, pg_num: int, future: Future) -> Dict[int, int]:
    """OSD -> PGs that it gets by splits before any PG moves, or (below 0) loses by merges at the
    end."""
    pgs_by_osd: Dict[int, int] = {}
    for pgid, pg in future.all():
        seed = seed_of(pgid)
        if seed >= min(pool.pg_num, pg_num):
            split = seed >= pool.pg_num
            for osd in pg.acting if split else pg.raw:
                pgs_by_osd[osd] = pgs_by_osd.get(osd, 0) + (1 if split else -1)
    pgs_by_osd.pop(NO_OSD, None)
    return pgs_by_osd


def pg_num_details(pool: Pool, pg_num: int) -> Details:
    """The PGs move before the pool gets the last pgp_num."""
    return Details('pg_num', {
        'pool': pool.name, 'from': pool.pg_num, 'to': pg_num,
        'splits': max(0, pg_num - pool.pg_num), 'merges': max(0, pool.pg_num - pg_num),
        'moves_first': True}, moves_first=True, follows_change=True,
        risks=tuple(autoscaler_risk(pool)))
