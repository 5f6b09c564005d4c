# SPDX-License-Identifier: LGPL-2.1-or-later
"""What a run of a probe creates on the cluster: pool, user, options of the mons, objects.

Each is journalled before it is created and before it is removed, so that this mgr or the next one
finds and removes it at any time.
"""
import errno
import json
import re
from dataclasses import dataclass, field, replace
from typing import Any, Callable, Dict, Iterable, List, Mapping, NamedTuple, Optional

from ..cluster.ports import Cluster, View
from ..cluster.types import ConfigEntry, Pool
from ..errors import PerfguardError, warning
from ..holds import Row, shell
from .placement import Naming, naming_from_json, naming_to_json
from .records import PREPARING
from .types import BadJob, NAMESPACE, PREFIX

CHECK = 'PERFGUARD_PROBE_LEFT'
#: The mons' options that a run may have to set for a moment, each for a pool of its own.
DELETE_OPTION = 'mon_allow_pool_delete'
SIZE_ONE_OPTION = 'mon_allow_pool_size_one'
ALLOWED = 'true'
#: PGs of an own pool for each OSD, so that each leads some (of N OSDs with 8 N PGs one in e^8 does
#: not), and their bounds: a pool of more than about a thousand PGs splits for minutes.
PGS_PER_OSD = 8
LEAST_PGS, MOST_PGS = 32, 1024


@dataclass(frozen=True)
class RunResources:
    run: int
    #: Name of the pool.
    pool: str
    #: The pool is the run's own: made for it, and removed after it.
    own: bool
    #: PREPARING, RUNNING or CLEANING.
    stage: str = PREPARING
    #: The cephx user may exist; noted before anything is made, removed after all else is.
    user: bool = False
    #: Options of the mons that were set, with the value of the configuration database from before
    #: (None: there was none).
    allowed: Mapping[str, Optional[str]] = field(default_factory=dict)
    #: When the run's worker has ended for sure, whoever started it.
    worker_ends: float = 0.0
    #: Of the pool, whatever its name becomes; -1: no worker was started yet.
    pool_id: int = -1
    #: Of the objects in an operator's pool; None: not known, as long as there are none, or of a
    #: run that another version has begun.
    naming: Optional[Naming] = None
    #: Where the search for objects that are left came to (see Sweeps).
    cursor: int = 0
    #: The operator has given up the clean-up.
    abandoned: bool = False

    @property
    def entity(self) -> str:
        return 'client.%s%d' % (PREFIX, self.run)

    @property
    def prefix(self) -> str:
        return '%s%d-' % (PREFIX, self.run)


def resources_to_json(resources: RunResources) -> Dict[str, Any]:
    naming = None if resources.naming is None else naming_to_json(resources.naming)
    return {**vars(resources), 'allowed': dict(resources.allowed), 'naming': naming}


def resources_from_json(raw: Mapping[str, Any]) -> RunResources:
    """Raises KeyError, TypeError, ValueError or zlib.error on what is none of ours."""
    naming = raw.get('naming')
    return RunResources(int(raw['run']), str(raw['pool']), bool(raw['own']), str(raw['stage']),
                        bool(raw['user']), {str(key): None if value is None else str(value)
                                            for key, value in raw['allowed'].items()},
                        float(raw['worker_ends']), int(raw.get('pool_id', -1)),
                        None if naming is None else naming_from_json(naming),
                        int(raw.get('cursor', 0)), bool(raw.get('abandoned', False)))


def leftover_check(resources: RunResources, why: str) -> Dict[str, Any]:
    """As MgrModule.set_health_checks takes it: a run that cannot clean up."""
    return {CHECK: warning('probe %d cannot complete its clean-up' % resources.run,
                           [why, *('not removed yet: ' + each for each in leftovers(resources))])}


def unreadable_journal_check(why: str) -> Dict[str, Any]:
    """The same of a run whose journal cannot be read."""
    return {CHECK: warning('the journal of an earlier probe is unreadable', [
        why, 'not removed yet: the objects, pool and user of that probe',
        'no other probe can begin; "probe abandon 0" gives up the clean-up'])}


def leftovers(resources: RunResources) -> List[str]:
    """What it may still have on the cluster, in words."""
    found = ['option %s of the mons' % option for option in resources.allowed]
    if not resources.user:
        return found
    if resources.own:
        return ['pool %s' % resources.pool, resources.entity, *found]
    objects = ['objects %s* of namespace %s in pool %s' % (
        resources.prefix, NAMESPACE, resources.pool)]
    # Before a worker was started there are none.
    return [*(objects if resources.worker_ends else []), resources.entity, *found]


def own_pool(run: int) -> str:
    return '%s%d' % (PREFIX, run)


def pg_num_for(osds: int) -> int:
    """A power of two."""
    wanted = min(max(PGS_PER_OSD * osds, LEAST_PGS), MOST_PGS)
    return 1 << (wanted - 1).bit_length()


def pool_commands(resources: RunResources, replicas: int, pg_num: int) -> List[Dict[str, Any]]:
    """One after the other; a pool of one replica is asked for again, as the mons want it."""
    size: Dict[str, Any] = {'prefix': 'osd pool set', 'pool': resources.pool, 'var': 'size',
                            'val': str(replicas)}
    if replicas == 1:
        size['yes_i_really_mean_it'] = True
    return [
        {'prefix': 'osd pool create', 'pool': resources.pool, 'pg_num': pg_num, 'pgp_num': pg_num,
         'pool_type': 'replicated', 'autoscale_mode': 'off'},
        size,
        # Pools may be made with it (osd_pool_default_flag_nodelete), and this one has to go.
        {'prefix': 'osd pool set', 'pool': resources.pool, 'var': 'nodelete', 'val': 'false'},
        {'prefix': 'osd pool application enable', 'pool': resources.pool, 'app': 'perfguard'}]


def user_command(resources: RunResources) -> Dict[str, Any]:
    """Nothing but objects of the probes' namespace in the one pool is in this user's reach."""
    return {'prefix': 'auth get-or-create', 'entity': resources.entity, 'format': 'json',
            'caps': ['mon', 'allow r',
                     'osd', 'allow rw pool=%s namespace=%s' % (quoted(resources.pool), NAMESPACE)]}


def quoted(name: str) -> str:
    """A pool's name as capabilities take it: they know quotes, and no escapes within them.

    BadJob for a name that cannot be written.
    """
    if re.fullmatch(r'[A-Za-z0-9_.-]+', name):
        return name
    for quote in '"', "'":
        if quote not in name and name.isprintable():
            return quote + name + quote
    raise BadJob('pool %r: capabilities do not support pool names with both kinds of quotes or '
                 'with control characters' % name)


def remove_user_command(resources: RunResources) -> Dict[str, Any]:
    return {'prefix': 'auth rm', 'entity': resources.entity}


def remove_pool_command(resources: RunResources) -> Dict[str, Any]:
    return {'prefix': 'osd pool rm', 'pool': resources.pool, 'pool2': resources.pool,
            'yes_i_really_really_mean_it': True}


def in_force(entries: Iterable[ConfigEntry], option: str) -> Optional[str]:
    """What the configuration database has for all mons; None: nothing."""
    return next((entry.value for entry in entries if entry.name == option
                 and entry.section == 'mon' and not entry.mask), None)


def allow_command(option: str) -> Dict[str, Any]:
    return {'prefix': 'config set', 'who': 'mon', 'name': option, 'value': ALLOWED}


def restore_command(option: str, before: Optional[str]) -> Dict[str, Any]:
    if before is None:
        return {'prefix': 'config rm', 'who': 'mon', 'name': option}
    return {'prefix': 'config set', 'who': 'mon', 'name': option, 'value': before}


def probe_rows(resources: Optional[RunResources], since: float) -> List[Row]:
    """Of the probe that runs or cleans up."""
    if resources is None:
        return []
    rows = [Row('%s of the mons' % option, before, ALLOWED, since,
                shell(restore_command(option, before)))
            for option, before in resources.allowed.items()]
    if resources.user:
        rows.append(Row('user ' + resources.entity, None, 'exists', since,
                        shell(remove_user_command(resources))))
        if resources.own:
            rows.append(Row('pool ' + resources.pool, None, 'exists', since,
                            shell(remove_pool_command(resources))))
    return rows


Json = Dict[str, Any]

#: Nothing is made, or set, that another mgr would not find in the journal.
NOT_KEPT = 'the mons do not keep the journal of the probe'


class CannotMake(PerfguardError):
    """The mons refuse something that the run needs; the message is one line."""


class ResourceManager:
    """For the loop's thread only: it waits for the mons."""

    def __init__(self, cluster: Cluster, keep: Callable[[RunResources], bool],
                 resources: RunResources) -> None:
        self._cluster = cluster
        self._keep = keep
        self.resources = resources
        #: Secret of the user; '' where it is not known, or not any more.
        self.key = ''
        #: What is in the way of giving back, in words, and whether it was met in this attempt.
        self.problem = ''
        self.met_problem = False

    def note(self, **changes: Any) -> bool:
        """Journal what is about to change; whether the mons have it."""
        self.resources = replace(self.resources, **changes)
        return self._keep(self.resources)

    def report_problem(self, text: str) -> None:
        self.problem, self.met_problem = text, True

    # ---- making

    def make(self, view: View, replicas: int, pg_num: int) -> None:
        """The own pool, if there shall be one, and the user; raises CannotMake."""
        if self.resources.own and pool_named(view, self.resources.pool) is not None:
            # Whoever made it, it is not the run's to remove.
            self.resources = replace(self.resources, own=False)
            raise CannotMake('pool %s already exists, but no probe created it'
                             % self.resources.pool)
        if not self.note(user=True):
            raise CannotMake(NOT_KEPT)
        if self.resources.own:
            self._make_pool(replicas, pg_num)
        self.make_user()

    def _make_pool(self, replicas: int, pg_num: int) -> None:
        for command in pool_commands(self.resources, replicas, pg_num):
            if command.get('yes_i_really_mean_it') and not self._allow(SIZE_ONE_OPTION):
                raise CannotMake('the mons do not accept %s' % SIZE_ONE_OPTION)
            reply = self._cluster.run([command])[0]
            if 'already exists' in reply.error:
                # Somebody has made it just now; the mons take that for success.
                self.note(own=False)
            if reply.retval != 0 or not self.resources.own:
                raise CannotMake('%s: %s' % (command['prefix'], reply.error))
        # Not for longer than it takes.
        self.restored()

    def make_user(self) -> None:
        """Or learn the secret of the one that there is; raises CannotMake."""
        reply = self._cluster.run([user_command(self.resources)])[0]
        if reply.retval != 0:
            raise CannotMake('auth get-or-create: %s' % reply.error)
        self.key = str(json.loads(reply.out)[0]['key'])

    def _allow(self, option: str) -> bool:
        """Set an option of the mons for a moment; False: they did not."""
        if option not in self.resources.allowed:
            entries = self._cluster.config_entries()
            if entries is None:
                self.report_problem('config dump: no answer')
                return False
            if not self.note(allowed={**self.resources.allowed,
                                      option: in_force(entries, option)}):
                self.report_problem(NOT_KEPT)
                return False
        return self._done(allow_command(option))

    # ---- giving back

    def close(self) -> None:
        """What can be given back at once, where there will be no other turn.

        The journal stays, so that the next start sees to what the mons do not do in time.
        """
        if not self.resources.user:
            return
        if self.resources.own and not self.remove_pool():
            self.remove_pool()
        self.drop_user()
        self.restored()

    def drop_user(self) -> None:
        """Whatever the mons say to it: it is made anew, or removed, later on."""
        self.key = ''
        self._cluster.run([remove_user_command(self.resources)])

    def user_removed(self) -> bool:
        """Whether it is gone."""
        self.key = ''
        return self._done(remove_user_command(self.resources))

    def remove_user(self) -> bool:
        """Whether it is gone, and noted so."""
        if not self.user_removed():
            return False
        self.note(user=False)
        return True

    def follow_rename(self, view: View) -> None:
        """The operator may have renamed the pool; the user has no right under the new name."""
        pool = view.osdmap.pools.get(self.resources.pool_id)
        if pool is not None and pool.name != self.resources.pool:
            self.drop_user()
            self.note(pool=pool.name)

    @property
    def half_way(self) -> bool:
        """The next call of `remove_pool` belongs to the attempt of the last one."""
        return DELETE_OPTION in self.resources.allowed

    def remove_pool(self) -> bool:
        """What the mons say counts: this mgr's OSDMap need not show yet what was just made.

        Mons that do not delete pools are allowed to for one attempt, from one call to the next,
        so that all of them have heard of it.
        """
        allowed = self.half_way
        reply = self._cluster.run([remove_pool_command(self.resources)])[0]
        if allowed:
            self.restored()
        if reply.retval in (0, -errno.ENOENT):
            return True
        if reply.retval != -errno.EPERM:
            self.report_problem('osd pool rm: %s' % (reply.error or 'no answer'))
        elif allowed:
            # Their ceph.conf wins over the database, or the pool itself has to stay.
            self.report_problem('osd pool rm: %s; if the configuration database has no effect: '
                                'ceph tell mon.* config set %s true'
                                % (reply.error, DELETE_OPTION))
        else:
            self._allow(DELETE_OPTION)
        return False

    def restored(self) -> bool:
        """Give back what the operator has not set anew meanwhile; False: not all of it yet."""
        if not self.resources.allowed:
            return True
        entries = self._cluster.config_entries()
        if entries is None:
            self.report_problem('config dump: no answer')
            return False
        for option, before in self.resources.allowed.items():
            ours = in_force(entries, option) == ALLOWED and before != ALLOWED
            if ours and not self._done(restore_command(option, before)):
                return False
        self.note(allowed={})
        return True

    def _done(self, command: Json) -> bool:
        reply = self._cluster.run([command])[0]
        if reply.retval not in (0, -errno.ENOENT):
            self.report_problem('%s: %s' % (command['prefix'], reply.error or 'no answer'))
            return False
        return True


def pool_named(view: View, name: str) -> Optional[Pool]:
    return next((pool for pool in view.osdmap.pools.values() if pool.name == name), None)


# ---- When objects that a run left in an operator's pool are removed, and until when.
# A pass covers all names that the run may have written, or the whole pool where these are not
# known. A sweep is one worker's part of a pass; the next one goes on at its cursor.

#: Seconds between two passes; and, where a sweep came no further, between it and the next: twice
#: as long each time, up to the last.
PAUSE_SECONDS = 5.0
MOST_PAUSE_SECONDS = 300.0
#: Where another mgr may have left a worker, two passes that find nothing must lie further apart
#: than that worker takes to notice that it is alone.
ORPHAN_SECONDS = 12.0


class Part(NamedTuple):
    """What one sweep has done."""
    removed: int
    left: int
    #: Where the next one goes on, and where there is nothing more.
    cursor: int
    total: int

    @property
    def whole(self) -> bool:
        return not self.left and self.cursor >= self.total


class Sweeps:
    def __init__(self, orphan: bool, cursor: int) -> None:
        """`orphan`: another mgr has begun the run. `cursor`: where its sweeps came to."""
        self._orphan = orphan
        self.cursor = cursor
        #: When passes in a row have found nothing.
        self._empty: List[float] = []
        self._removed = 0
        self._next_at = float('-inf')
        self._pause = 0.0

    @property
    def done(self) -> bool:
        """Nothing is left, and nothing can come any more."""
        return bool(self._empty) and (
            not self._orphan or self._empty[-1] - self._empty[0] > ORPHAN_SECONDS)

    def due(self, now: float) -> bool:
        # A clock that was put back must not put the next sweep off.
        return not now < self._next_at <= now + MOST_PAUSE_SECONDS

    def failed(self, now: float) -> None:
        """A sweep could not begin, or said nothing."""
        self._pause = min(max(2.0 * self._pause, PAUSE_SECONDS), MOST_PAUSE_SECONDS)
        self._next_at = now + self._pause

    def ended(self, part: Part, now: float) -> None:
        forward = part.removed > 0 or part.cursor > self.cursor
        self._removed += part.removed
        self.cursor = part.cursor
        if part.whole:
            # What was on its way when its worker died may come after the removal.
            self._empty = [] if self._removed else [*self._empty, now]
            self.cursor = self._removed = 0
            self._pause, self._next_at = 0.0, now + PAUSE_SECONDS
        elif forward:
            self._pause, self._next_at = 0.0, now
        else:
            self.failed(now)
