# SPDX-License-Identifier: LGPL-2.1-or-later
"""What a run has on the cluster beside its objects, journalled before it is made.

Whatever of it is there at any instant can so be found and removed, by this mgr or by the next.
"""
import re
from dataclasses import dataclass, field
from typing import Any, Dict, Iterable, List, Mapping, Optional

from ..cluster.types import ConfigEntry
from ..health import warning
from ..holds import Row, shell
from .naming import Naming, naming_from_json, naming_to_json
from .records import PREPARING
from .types import NAMESPACE, PREFIX, BadJob

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
class Site:
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
    #: Where the search for objects that are left came to (probe/sweeping.py).
    cursor: int = 0
    #: The operator has given up the clean-up.
    abandoned: bool = False

    @property
    def entity(self) -> str:
        return 'client.%s%d' % (PREFIX, self.run)

    @property
    def prefix(self) -> str:
        return '%s%d-' % (PREFIX, self.run)


def site_to_json(site: Site) -> Dict[str, Any]:
    naming = None if site.naming is None else naming_to_json(site.naming)
    return {**vars(site), 'allowed': dict(site.allowed), 'naming': naming}


def site_from_json(raw: Mapping[str, Any]) -> Site:
    """Raises KeyError, TypeError, ValueError or zlib.error on what is none of ours."""
    naming = raw.get('naming')
    return Site(int(raw['run']), str(raw['pool']), bool(raw['own']), str(raw['stage']),
                bool(raw['user']), {str(key): None if value is None else str(value)
                                    for key, value in raw['allowed'].items()},
                float(raw['worker_ends']), int(raw.get('pool_id', -1)),
                None if naming is None else naming_from_json(naming), int(raw.get('cursor', 0)),
                bool(raw.get('abandoned', False)))


def left_check(site: Site, why: str) -> Dict[str, Any]:
    """As MgrModule.set_health_checks takes it: a run that cannot clean up."""
    return {CHECK: warning('probe %d cannot complete its clean-up' % site.run,
                           [why, *('not removed yet: ' + each for each in left(site))])}


def unknown_check(why: str) -> Dict[str, Any]:
    """The same of a run whose journal cannot be read."""
    return {CHECK: warning('the journal of an earlier probe is unreadable', [
        why, 'not removed yet: the objects, pool and user of that probe',
        'no other probe can begin; "probe abandon 0" gives up the clean-up'])}


def left(site: Site) -> List[str]:
    """What it may still have on the cluster, in words."""
    found = ['option %s of the mons' % option for option in site.allowed]
    if not site.user:
        return found
    if site.own:
        return ['pool %s' % site.pool, site.entity, *found]
    objects = ['objects %s* of namespace %s in pool %s' % (site.prefix, NAMESPACE, site.pool)]
    # Before a worker was started there are none.
    return [*(objects if site.worker_ends else []), site.entity, *found]


def own_pool(run: int) -> str:
    return '%s%d' % (PREFIX, run)


def pg_num_for(osds: int) -> int:
    """A power of two."""
    wanted = min(max(PGS_PER_OSD * osds, LEAST_PGS), MOST_PGS)
    return 1 << (wanted - 1).bit_length()


def pool_commands(site: Site, replicas: int, pg_num: int) -> List[Dict[str, Any]]:
    """One after the other; a pool of one replica is asked for again, as the mons want it."""
    size: Dict[str, Any] = {'prefix': 'osd pool set', 'pool': site.pool, 'var': 'size',
                            'val': str(replicas)}
    if replicas == 1:
        size['yes_i_really_mean_it'] = True
    return [
        {'prefix': 'osd pool create', 'pool': site.pool, 'pg_num': pg_num, 'pgp_num': pg_num,
         'pool_type': 'replicated', 'autoscale_mode': 'off'},
        size,
        # Pools may be made with it (osd_pool_default_flag_nodelete), and this one has to go.
        {'prefix': 'osd pool set', 'pool': site.pool, 'var': 'nodelete', 'val': 'false'},
        {'prefix': 'osd pool application enable', 'pool': site.pool, 'app': 'perfguard'}]


def user_command(site: Site) -> Dict[str, Any]:
    """Nothing but objects of the probes' namespace in the one pool is in this user's reach."""
    return {'prefix': 'auth get-or-create', 'entity': site.entity, 'format': 'json',
            'caps': ['mon', 'allow r',
                     'osd', 'allow rw pool=%s namespace=%s' % (quoted(site.pool), NAMESPACE)]}


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


def remove_user_command(site: Site) -> Dict[str, Any]:
    return {'prefix': 'auth rm', 'entity': site.entity}


def remove_pool_command(site: Site) -> Dict[str, Any]:
    return {'prefix': 'osd pool rm', 'pool': site.pool, 'pool2': site.pool,
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


def probe_rows(site: Optional[Site], since: float) -> List[Row]:
    """Of the probe that runs or cleans up."""
    if site is None:
        return []
    rows = [Row('%s of the mons' % option, before, ALLOWED, since,
                shell(restore_command(option, before)))
            for option, before in site.allowed.items()]
    if site.user:
        rows.append(Row('user ' + site.entity, None, 'exists', since,
                        shell(remove_user_command(site))))
        if site.own:
            rows.append(Row('pool ' + site.pool, None, 'exists', since,
                            shell(remove_pool_command(site))))
    return rows
