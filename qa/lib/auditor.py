# SPDX-License-Identifier: LGPL-2.1-or-later
"""The settings that perfguard must leave unchanged, recorded before a test and compared after it.

    before = guard.foreign()
    ...
    assert guard.foreign() == before

The OSDs and PGs that a test adds or moves are not part of it: see `placement`.
"""
import json
from dataclasses import dataclass
from typing import Any, Dict, FrozenSet, List, Tuple

from qa.cluster import Cluster

#: Options that others set meanwhile: the dashboard writes its own settings at a login. Whether the
#: balancer is on is compared apart; its entry remains after "balancer on", as Ceph leaves it.
VOLATILE_OPTIONS = ('mgr/perfguard', 'mgr/dashboard', 'mgr/balancer/active')
#: Keys of modules, and the copy of the configuration database of the mons.
VOLATILE_KEYS = ('mgr/', 'config/', 'config-history/')
#: Pools that the mgr creates and configures at any time.
MGR_POOLS = ('.', 'device_health_metrics')
#: Flags of pools that the mons set: the fill level.
STATES = ('nearfull', 'backfillfull', 'full', 'full_quota')
#: Settings of a pool by operators.
POOL_SETTINGS = ('size', 'min_size', 'crush_rule', 'flags_names', 'quota_max_bytes',
                 'quota_max_objects', 'options', 'application_metadata', 'read_tier',
                 'erasure_code_profile')


@dataclass(frozen=True)
class Foreign:
    """Settings that perfguard must restore."""
    flags: FrozenSet[str]
    balancer: Tuple[str, ...]
    #: Pool and its pg_autoscale_mode.
    autoscale: Tuple[Tuple[str, str], ...]
    #: Section with its mask, option and value.
    config: Tuple[Tuple[str, str, str], ...]
    #: Entity and its caps, but for OSDs.
    users: Tuple[Tuple[str, str], ...]
    #: Pool and its other settings; without those of the mgr's own pools.
    pools: Tuple[Tuple[str, str], ...]
    #: OSD, weight and primary affinity, where one of them is not 1.
    osds: Tuple[Tuple[int, float, float], ...]
    keys: Tuple[str, ...]


def audit(cluster: Cluster, balancer: Dict[str, Any]) -> Foreign:
    """`balancer`: the output of `balancer status`."""
    dump = cluster.osd_dump()
    return Foreign(
        flags=frozenset(dump['flags_set']),
        balancer=tuple(str(balancer[key]) for key in ('active', 'mode')),
        autoscale=tuple((pool['pool_name'], pool['pg_autoscale_mode']) for pool in dump['pools']),
        config=tuple(sorted(('/'.join(filter(None, (entry['section'], entry['mask']))),
                             entry['name'], entry['value'])
                            for entry in cluster.mon('config dump')
                            if not entry['name'].startswith(VOLATILE_OPTIONS))),
        users=tuple(sorted((user['entity'], _text(user['caps']))
                           for user in cluster.mon('auth ls')['auth_dump']
                           if not user['entity'].startswith('osd.'))),
        pools=tuple((pool['pool_name'], _text({**{name: pool.get(name) for name in POOL_SETTINGS},
                                               'flags_names': _flags(pool['flags_names'])}))
                    for pool in dump['pools'] if not pool['pool_name'].startswith(MGR_POOLS)),
        osds=tuple((osd['osd'], osd['weight'], osd['primary_affinity']) for osd in dump['osds']
                   if (osd['weight'], osd['primary_affinity']) != (1.0, 1.0)),
        keys=tuple(sorted(key for key in cluster.mon('config-key ls')
                          if not key.startswith(VOLATILE_KEYS))))


@dataclass(frozen=True)
class Placement:
    """The data that determines the placement of PGs."""
    upmaps: str
    crush: str


def placement(cluster: Cluster) -> Placement:
    dump = cluster.osd_dump()
    names = ('pg_upmap', 'pg_upmap_items', 'pg_upmap_primaries')
    return Placement(_text({name: dump.get(name, []) for name in names}),
                     _text(cluster.mon('osd crush dump')))


def _flags(names: str) -> List[str]:
    return [name for name in names.split(',') if name not in STATES]


def _text(document: Any) -> str:
    return json.dumps(document, sort_keys=True)
