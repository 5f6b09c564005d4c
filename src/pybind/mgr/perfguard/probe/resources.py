# SPDX-License-Identifier: LGPL-2.1-or-later
"""What a run of a probe creates on the cluster: pool, user, options of the mons, objects.

Each is journalled before it is created and before it is removed, so that this mgr or the next one
finds and removes it at any time.
"""
import errno
import json
import random
import re
from dataclasses import dataclass, field, replace
from functools import partial
from typing import (Any, Callable, Iterable, List, Mapping, NamedTuple, Optional, Sequence, Set,
                    Tuple)

from ..cluster.ports import Cluster, View
from ..cluster.types import Command, ConfigEntry, Document, Pool, Reply
from ..errors import HealthChecks, PerfguardError, warning
from ..ledger import Held, Owner, Row, config_command, flag_command, give_back, shell
from .placement import JournalledNaming, run_prefix
from .records import PREPARING
from .types import BadJob, NAMESPACE, PROBE_PREFIX

LEFT_CHECK = 'PERFGUARD_PROBE_LEFT'
#: Options of the mons that a run may set temporarily for the pool that it creates.
DELETE_OPTION = 'mon_allow_pool_delete'
SIZE_ONE_OPTION = 'mon_allow_pool_size_one'
ALLOWED = 'true'
#: Flags that a run may set: no scrub begins, and those that run stop after their present chunk.
QUIET_FLAGS = ('noscrub', 'nodeep-scrub', 'nosnaptrim')
#: PGs per OSD of a pool that a run creates, so that each OSD is a primary (of N OSDs with 8 N PGs
#: one in e^8 is not), and the limits of pg_num: a pool with more than about 1,000 PGs splits for
#: minutes.
PROBE_PGS_PER_OSD = 8
LEAST_PROBE_PGS, MOST_PROBE_PGS = 32, 1024
#: Maximum mark of a pool, in bytes: too small to matter to the autoscaler.
MOST_MARK = 1 << 20


@dataclass(frozen=True)
class RunResources:
    """What a run has created or set in the cluster, as journalled."""
    run: int
    #: Name of the pool.
    pool: str
    #: Whether the run creates the pool and removes it.
    own: bool
    #: PREPARING, RUNNING or CLEANING.
    stage: str = PREPARING
    #: Whether the cephx user may exist; recorded before anything is created, removed last.
    user: bool = False
    #: Options of the mons that were set, with their previous values in the configuration database
    #: (None: there was none).
    allowed: Mapping[str, Optional[str]] = field(default_factory=dict)
    #: When the worker of the run, also that of another mgr, has certainly ended, in seconds since
    #: the epoch; 0.0: none was started.
    worker_ends: float = 0.0
    #: The ID of the pool, which may be renamed; -1: no worker was started yet.
    pool_id: int = -1
    #: The names of the objects in an operator's pool; None: there are none yet.
    naming: Optional[JournalledNaming] = None
    #: How far the removal of remaining objects has come (see Sweeps).
    cursor: int = 0
    #: Whether the operator has given up the clean-up.
    abandoned: bool = False
    #: Whether the run measures an image in its own pool.
    image: bool = False
    #: target_size_bytes of the pool that the run creates, a random number: distinguishes it
    #: from a pool of this name that others create. 0: none.
    mark: int = 0
    #: Flags of the OSDMap that the run sets, which were not set before.
    flags: Tuple[str, ...] = ()
    #: Flags of QUIET_FLAGS that others had set before the run set `flags`: if they set one later,
    #: it is theirs. None: unknown.
    ordered_before: Optional[Tuple[str, ...]] = None

    @property
    def entity(self) -> str:
        return 'client.%s%d' % (PROBE_PREFIX, self.run)

    @property
    def prefix(self) -> str:
        return run_prefix(self.run)


def leftover_check(resources: RunResources, why: str) -> HealthChecks:
    """The health check on a run that cannot complete its clean-up, as MgrModule.set_health_checks
    takes it. `why`: what prevents it."""
    return {LEFT_CHECK: warning(
        'probe %d cannot complete its clean-up' % resources.run,
        [why, *('not removed yet: ' + leftover for leftover in leftovers(resources))])}


def unreadable_journal_check(why: str) -> HealthChecks:
    """The health check on a run whose journal is unreadable, as MgrModule.set_health_checks takes
    it. `why`: the error."""
    return {LEFT_CHECK: warning('the journal of an earlier probe is unreadable', [
        why, 'not removed yet: the objects, pool and user of that probe',
        'no other probe can begin; "probe cancel 0 --force" gives up the clean-up'])}


def leftovers(resources: RunResources) -> List[str]:
    """What a run may have left on the cluster, as texts."""
    names = [*('option %s of the mons' % option for option in resources.allowed),
             *('flag %s' % flag for flag in resources.flags)]
    if not resources.user:
        return names
    if resources.own:
        return ['pool %s' % resources.pool, resources.entity, *names]
    objects = ['objects %s* of namespace %s in pool %s' % (
        resources.prefix, NAMESPACE, resources.pool)]
    # Without a worker there are no objects.
    return [*(objects if resources.worker_ends else []), resources.entity, *names]


def own_pool(run: int) -> str:
    return '%s%d' % (PROBE_PREFIX, run)


def pg_num_for(osds: int) -> int:
    """pg_num of a pool that a run creates on so many OSDs: a power of two."""
    pgs = min(max(PROBE_PGS_PER_OSD * osds, LEAST_PROBE_PGS), MOST_PROBE_PGS)
    return 1 << (pgs - 1).bit_length()


def pool_commands(resources: RunResources, replicas: int, pg_num: int) -> List[Command]:
    """The commands that create the pool of a probe, in order; for one replica the mons require a
    confirmation."""
    size: Document = {'prefix': 'osd pool set', 'pool': resources.pool, 'var': 'size',
                      'val': str(replicas)}
    if replicas == 1:
        size['yes_i_really_mean_it'] = True
    return [
        {'prefix': 'osd pool create', 'pool': resources.pool, 'pg_num': pg_num, 'pgp_num': pg_num,
         'pool_type': 'replicated', 'autoscale_mode': 'off',
         'target_size_bytes': resources.mark},
        size,
        # osd_pool_default_flag_nodelete may set it, and this pool must be removable.
        {'prefix': 'osd pool set', 'pool': resources.pool, 'var': 'nodelete', 'val': 'false'},
        {'prefix': 'osd pool application enable', 'pool': resources.pool, 'app': 'perfguard'}]


LIST_POOLS = {'prefix': 'osd pool ls', 'detail': 'detail', 'format': 'json'}


def user_command(resources: RunResources) -> Command:
    """The command that creates the user of a run, or returns its secret if it exists. The user can
    access only objects in the probes' namespace of the pool. For an image it can access the whole
    pool, which is the run's own, and call methods: librbd names the objects."""
    pool = quoted(resources.pool)
    scope = 'rwx pool=%s' % pool if resources.image and resources.own else (
        'rw pool=%s namespace=%s' % (pool, NAMESPACE))
    return {'prefix': 'auth get-or-create', 'entity': resources.entity, 'format': 'json',
            'caps': ['mon', 'allow r', 'osd', 'allow ' + scope]}


def quoted(name: str) -> str:
    """The name of a pool in capabilities, which support quotes but no escapes. Raises BadJob for a
    name that cannot be quoted."""
    if re.fullmatch(r'[A-Za-z0-9_.-]+', name):
        return name
    for quote in '"', "'":
        if quote not in name and name.isprintable():
            return quote + name + quote
    raise BadJob('pool %r: capabilities do not support pool names with both kinds of quotes or '
                 'with control characters' % name)


def remove_user_command(resources: RunResources) -> Command:
    return {'prefix': 'auth rm', 'entity': resources.entity}


def remove_pool_command(resources: RunResources) -> Command:
    return {'prefix': 'osd pool rm', 'pool': resources.pool, 'pool2': resources.pool,
            'yes_i_really_really_mean_it': True}


def value_for_mons(entries: Iterable[ConfigEntry], option: str) -> Optional[str]:
    """The value of an option for all mons in the configuration database; None: there is none."""
    return next((entry.value for entry in entries if entry.name == option
                 and entry.section == 'mon' and not entry.mask), None)


def probe_rows(resources: RunResources, since: float) -> List[Row]:
    """What the probe that runs or cleans up has borrowed from the cluster or created there, for the
    ledger. `since`: when the probe was ordered, in seconds since the epoch."""
    owned = partial(Row, Owner.PROBE, since=since)
    rows = [owned('%s of the mons' % option, found=before, put=ALLOWED, name=option,
                  restore=shell(config_command('mon', option, before)))
            for option, before in resources.allowed.items()]
    rows += [owned('flag %s' % flag, found='unset', put='set', name=flag,
                   restore=shell(flag_command(flag, on=False))) for flag in resources.flags]
    if resources.user:
        rows.append(owned('user ' + resources.entity, found=None, put='exists',
                          restore=shell(remove_user_command(resources))))
        if resources.own:
            rows.append(owned('pool ' + resources.pool, found=None, put='exists',
                              restore=shell(remove_pool_command(resources))))
    return rows


#: Nothing is created or set that another mgr does not find in the journal.
NOT_KEPT = 'the mons do not store the journal of the probe'
#: A command that the mons have not answered may be carried out after a removal that they have
#: answered.
UNCERTAIN_TEXT = 'waiting to confirm that the mons execute no earlier command of the probe'


class CannotMake(PerfguardError):
    """The mons refuse something that the run needs; the message is one line."""


class ResourceManager:
    """Creates and removes the resources of a run. It waits for the mons.

    To be used by the thread of the loop.
    """

    def __init__(self, cluster: Cluster, keep: Callable[[RunResources], bool],
                 resources: RunResources, orphan: bool = False) -> None:
        """`keep`: stores the resources in the journal, and returns whether the mons have stored
        that; `orphan`: another mgr began the run, and may have sent commands that the mons have not
        executed yet, so removals are repeated for ORPHAN_SECONDS."""
        self._cluster = cluster
        self._orphan = orphan
        #: Seconds since this mgr began or took over the run; set by the owner. And when the mons
        #: first answered a removal; None: they have not.
        self.now = 0.0
        self._answered: Optional[float] = None
        self._keep = keep
        self.resources = resources
        #: Secret of the user; '' if unknown.
        self.key = ''
        #: Flags of the run that the OSDMap has shown.
        self._flags_shown: Set[str] = set()
        #: What prevents the clean-up, as a text, and whether this attempt met it.
        self.problem = ''
        self.met_problem = False

    def journal(self, **changes: Any) -> bool:
        """Journal what is about to change. Returns whether the mons have stored it."""
        self.resources = replace(self.resources, **changes)
        return self._keep(self.resources)

    def report_problem(self, text: str) -> None:
        self.problem, self.met_problem = text, True

    # ---- Creating

    def make(self, view: View, replicas: int, pg_num: int) -> None:
        """Journal and create the pool, unless the operator named one, and the user. Raises
        CannotMake, perhaps after a part was created: the clean-up removes it."""
        if self.resources.own and pool_named(view, self.resources.pool) is not None:
            # The run did not create it, so it must not remove it.
            self.resources = replace(self.resources, own=False)
            raise CannotMake('pool %s already exists, but no probe created it'
                             % self.resources.pool)
        mark = random.randint(1, MOST_MARK) if self.resources.own else 0
        if not self.journal(user=True, mark=mark):
            raise CannotMake(NOT_KEPT)
        if self.resources.own:
            self._make_pool(replicas, pg_num)
        self.make_user()

    def _make_pool(self, replicas: int, pg_num: int) -> None:
        """Create the pool of the probe. Raises CannotMake, also if another client has just created
        a pool of this name, which is left alone."""
        for command in pool_commands(self.resources, replicas, pg_num):
            # Only the command that sets one replica has this argument; the mons must allow it.
            if command.get('yes_i_really_mean_it') and not self._allow(SIZE_ONE_OPTION):
                raise CannotMake('the mons do not accept %s' % SIZE_ONE_OPTION)
            reply = self._sent(command)[0]
            if 'already exists' in reply.error and not self._is_marked():
                # Not ours, although the mons report success.
                self.journal(own=False)
            if reply.retval != 0 or not self.resources.own:
                raise CannotMake('%s: %s' % (command['prefix'],
                                             reply.error or 'no answer'))
        # Options of the mons are restored as early as possible.
        self.restore_settings()

    def _is_marked(self) -> bool:
        """Whether the pool that exists has the mark of the run: the run has created it, and the mgr
        has sent the command again because its connection to the mon broke before the answer."""
        reply = self._sent(LIST_POOLS)[0]
        try:
            return any(pool['pool_name'] == self.resources.pool
                       and pool['options'].get('target_size_bytes') == self.resources.mark
                       for pool in json.loads(reply.out))
        except (AttributeError, KeyError, TypeError, ValueError):
            return False  # no answer, or not that of the mons

    def make_user(self) -> None:
        """Create the user, or fetch its secret if it exists; raises CannotMake."""
        reply = self._sent(user_command(self.resources))[0]
        if reply.retval != 0:
            raise CannotMake('auth get-or-create: %s' % (reply.error or 'no answer'))
        self.key = str(json.loads(reply.out)[0]['key'])

    def _allow(self, option: str) -> bool:
        """Set an option of the mons to ALLOWED until `restore_settings`, and journal its value from
        before. Returns whether it is set; False: see `problem`."""
        if option not in self.resources.allowed:
            entries = self._cluster.config_entries()
            if entries is None:
                self.report_problem('config dump: no answer')
                return False
            if not self.journal(allowed={**self.resources.allowed,
                                         option: value_for_mons(entries, option)}):
                self.report_problem(NOT_KEPT)
                return False
        return self._done(config_command('mon', option, ALLOWED))

    def set_flags(self, view: View) -> None:
        """Journal and set those of QUIET_FLAGS that are not set. Raises CannotMake."""
        flags = tuple(flag for flag in QUIET_FLAGS if flag not in view.osdmap.flags)
        set_by_others = self._cluster.flags_set_by_others()
        if not self.journal(flags=flags, ordered_before=tuple(
                flag for flag in QUIET_FLAGS if flag in set_by_others)):
            raise CannotMake(NOT_KEPT)
        if not self._done(*(flag_command(flag, on=True) for flag in flags)):
            raise CannotMake(self.problem)

    # ---- Removing and restoring

    def follow_flags(self, view: View) -> None:
        """Give up the flags of the run that others have unset since the OSDMap has shown them: the
        clean-up must not unset them again."""
        unset = self._flags_shown - view.osdmap.flags
        self._flags_shown = set(self.resources.flags) & view.osdmap.flags
        self._leave_to_others(unset)

    def _leave_to_others(self, flags: Set[str]) -> None:
        """Journal that those of these flags that the run has set are no longer its own."""
        if flags & set(self.resources.flags):
            self.journal(flags=tuple(flag for flag in self.resources.flags if flag not in flags))

    def unset_flags(self) -> bool:
        """Unset the flags of the run, except those that others have set since. Returns whether they
        are unset for certain; False: call it again."""
        if not self.resources.flags:
            return True
        ordered_before = self.resources.ordered_before
        # In a journal of an earlier version it is unknown which flags others have set later.
        self._leave_to_others(set(self._cluster.flags_set_by_others()) - set(
            QUIET_FLAGS if ordered_before is None else ordered_before))
        is_final = self._removal_is_final()
        if not self._done(*(flag_command(flag, on=False) for flag in self.resources.flags)) \
                or not self._note_answered_removal(is_final):
            return False
        self._flags_shown.clear()
        self.journal(flags=(), ordered_before=None)
        return True

    def _removal_is_final(self) -> bool:
        """Whether a removal that is sent now takes effect after every command that was sent before.

        What another mgr has sent is unknown: it is over when the mons have answered for some time.
        """
        return not self._cluster.unanswered() and (not self._orphan or (
            self._answered is not None and self.now - self._answered > ORPHAN_SECONDS))

    def _note_answered_removal(self, is_final: bool) -> bool:
        """Note that the mons have answered a removal. Returns `is_final`, which _removal_is_final()
        gave before the removal was sent: if it is False, the removal must be repeated."""
        if self._answered is None:
            self._answered = self.now
        if not is_final:
            self.report_problem(UNCERTAIN_TEXT)
        return is_final

    def close(self) -> None:
        """Remove what can be removed at once, when the module stops. The journal stays, so that the
        next start removes the rest."""
        if not self.resources.user:
            return
        if self.resources.own and not self.remove_pool():
            # The first attempt may only have configured the mons to allow it.
            self.remove_pool()
        self.drop_user()
        self.restore_settings()

    def drop_user(self) -> None:
        """Remove the user. An error does not matter: it is created again, or removed, later."""
        self.key = ''
        self._sent(remove_user_command(self.resources))

    def try_to_remove_user(self) -> bool:
        """Remove the user; the journal still names it. Returns whether it is gone for certain."""
        self.key = ''
        is_final = self._removal_is_final()
        return self._done(remove_user_command(self.resources)) \
            and self._note_answered_removal(is_final)

    def remove_user(self) -> bool:
        """Remove the user, also from the journal. Returns whether it is removed for certain; False:
        call it again."""
        if not self.try_to_remove_user():
            return False
        self.journal(user=False)
        return True

    def follow_rename(self, view: View) -> None:
        """If the operator has renamed the pool, journal its new name, and remove the user, which
        has no capability for it: a sweep creates the user again."""
        pool = view.osdmap.pools.get(self.resources.pool_id)
        if pool is not None and pool.name != self.resources.pool:
            self.drop_user()
            self.journal(pool=pool.name)

    @property
    def pool_delete_allowed(self) -> bool:
        """The mons allow pools to be deleted for now: the next call of `remove_pool` continues the
        attempt of the last one."""
        return DELETE_OPTION in self.resources.allowed

    def remove_pool(self) -> bool:
        """Remove the run's own pool. Returns whether it is gone for certain; False: call it again.
        The answer of the mons decides: the OSDMap of this mgr may not show a new pool yet.

        Mons that do not allow pools to be deleted are configured to do so for one attempt, from
        one call to the next, so that all of them have applied it.
        """
        allowed, is_final = self.pool_delete_allowed, self._removal_is_final()
        reply = self._sent(remove_pool_command(self.resources))[0]
        if allowed:
            self.restore_settings()
        if reply.retval in (0, -errno.ENOENT):
            return self._note_answered_removal(is_final)
        if reply.retval != -errno.EPERM:
            self.report_problem('osd pool rm: %s' % (reply.error or 'no answer'))
        elif allowed:
            # ceph.conf overrides the database, or the pool has the flag nodelete.
            self.report_problem('osd pool rm: %s; if the configuration database has no effect: '
                                'ceph tell mon.* config set %s true' % (reply.error, DELETE_OPTION))
        else:
            self._allow(DELETE_OPTION)
        return False

    def restore_settings(self) -> bool:
        """Restore the flags, and the options of the mons that others have not changed meanwhile.
        Returns whether all are restored for certain; False: call it again."""
        if not self.unset_flags():
            return False
        if not self.resources.allowed:
            return True
        is_final = self._removal_is_final()
        entries = self._cluster.config_entries()
        if entries is None:
            self.report_problem('config dump: no answer')
            return False
        for option, before in self.resources.allowed.items():
            # seen=True: give_back() need not consider that ALLOWED may still arrive, since
            # `is_final` says so.
            must_send = give_back(Held(before, ALLOWED, seen=True),
                                  value_for_mons(entries, option)).send
            if must_send and not self._done(config_command('mon', option, before)):
                return False
        if not self._note_answered_removal(is_final):
            return False
        self.journal(allowed={})
        return True

    def _done(self, *commands: Command) -> bool:
        """Send commands. Returns whether the mons have carried out all, or what they concern does
        not exist; else the first failure is reported as the problem."""
        failures = ['%s: %s' % (command['prefix'], reply.error or 'no answer')
                    for command, reply in zip(commands, self._sent(*commands))
                    if reply.retval not in (0, -errno.ENOENT)]
        if failures:
            self.report_problem(failures[0])
        return not failures

    def _sent(self, *commands: Command) -> Sequence[Reply]:
        """Send commands, and wait for the replies of the mons. While these have yet to answer
        another command, nothing is sent, and the replies are empty: without a quorum, each command
        would block the loop for a minute."""
        if self._cluster.unanswered():
            return [Reply(None)] * len(commands)
        return self._cluster.run(commands)


def pool_named(view: View, name: str) -> Optional[Pool]:
    return next((pool for pool in view.osdmap.pools.values() if pool.name == name), None)


# ---- When objects that a run left in an operator's pool are removed, and until when.
# A pass covers all names that the run may have written. A sweep is the part of a pass that one
# worker does; the next one continues at its cursor.

#: Seconds between two passes. After a sweep without progress the pause doubles, up to the maximum.
PAUSE_SECONDS = 5.0
MOST_SWEEP_PAUSE_SECONDS = 300.0
#: If another mgr may have left a worker, two passes that find nothing must be further apart than
#: that worker needs to notice that its mgr is gone.
ORPHAN_SECONDS = 12.0


class SweepPart(NamedTuple):
    """The result of one sweep."""
    removed: int
    remaining: int
    #: Where the next sweep continues, and the end.
    cursor: int
    total: int

    @property
    def ends_pass(self) -> bool:
        """Whether every name was tried, and no object remains."""
        return not self.remaining and self.cursor >= self.total


class Sweeps:
    """Decides when the next sweep of a run begins, and when the last one has ended. Times are
    seconds since the run began."""

    def __init__(self, orphan: bool, cursor: int) -> None:
        """`orphan`: another mgr began the run. `cursor`: the progress of its sweeps."""
        self._orphan = orphan
        self.cursor = cursor
        #: When the last passes in a row that found nothing ended.
        self._empty_passes_at: List[float] = []
        self._removed_in_pass = 0
        #: When the next sweep begins, and the pause before it (0.0: none).
        self._next_at = float('-inf')
        self._pause = 0.0

    @property
    def done(self) -> bool:
        """Whether no object is left, and none can appear anymore."""
        return bool(self._empty_passes_at) and (
            not self._orphan
            or self._empty_passes_at[-1] - self._empty_passes_at[0] > ORPHAN_SECONDS)

    def is_due(self, now: float) -> bool:
        return now >= self._next_at

    def note_failure(self, now: float) -> None:
        """Note that a sweep could not begin, or returned no result: the next one waits, longer each
        time."""
        self._pause = min(max(2.0 * self._pause, PAUSE_SECONDS), MOST_SWEEP_PAUSE_SECONDS)
        self._next_at = now + self._pause

    def note_result(self, part: SweepPart, now: float) -> None:
        """Note the result of a sweep, which decides when the next one begins: at once after
        progress, after PAUSE_SECONDS at the end of a pass, else as after a failure."""
        made_progress = part.removed > 0 or part.cursor > self.cursor
        self._removed_in_pass += part.removed
        self.cursor = part.cursor
        if part.ends_pass:
            # Not done after a pass that removed objects: operations in flight when the worker died
            # may recreate one.
            self._empty_passes_at = [] if self._removed_in_pass else [*self._empty_passes_at, now]
            self.cursor = self._removed_in_pass = 0
            self._pause, self._next_at = 0.0, now + PAUSE_SECONDS
        elif made_progress:
            self._pause, self._next_at = 0.0, now
        else:
            self.note_failure(now)
