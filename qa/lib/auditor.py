# SPDX-License-Identifier: LGPL-2.1-or-later
"""The state that perfguard must leave unchanged, recorded before a test and compared after it.

    before = guard.foreign()
    ...
    assert guard.foreign() == before

Everything in the OSDMap, the configuration database, the auth list and the config-keys is part of
it, but for what the dictionaries here name with the reason. Tests add OSDs and hosts, and give them
weights; `placement` is compared where they do not, or after `without` them.
"""
import json
from dataclasses import dataclass
from typing import Any, Collection, Dict, FrozenSet, Iterator, List, Tuple

from qa.cluster import Cluster

#: Path and value, as JSON.
Rows = Tuple[Tuple[str, str], ...]

#: Keys of the OSDMap that are not in `Foreign.osdmap`, and why.
MAP_SKIPPED = {
    'epoch': 'counts the changes',
    'modified': 'time of the last change',
    'crush_version': 'counts the changes of CRUSH',
    'last_up_change': 'time of a start or a death of an OSD',
    'last_in_change': 'time at which an OSD became in or out; who is in is in `osds`',
    'max_osd': 'tests add OSDs',
    'osd_xinfo': 'the mons note when and how long OSDs were down',
    'pool_max': 'probes create pools, and ids are not used again',
    'min_compat_client': 'computed from the features that the map uses',
    'blocklist': 'the mons add an mgr that was replaced, for a day',
    'pg_temp': 'OSDs ask for it while PGs move',
    'primary_temp': 'as pg_temp',
    'new_purged_snaps': 'of one epoch',
    'new_removed_snaps': 'of one epoch',
    'removed_snaps_queue': 'OSDs work it off',
    'flags': 'as a text; see `flags`',
    'flags_num': 'as a number; see `flags`',
    'pools': 'see `pools`',
    'osds': 'see `osds`',
    'pg_upmap': 'see Placement',
    'pg_upmap_items': 'see Placement',
    'pg_upmap_primaries': 'see Placement',
}
#: Keys of a pool that are not in `Foreign.pools`, and why.
POOL_SKIPPED = {
    'last_change': 'an epoch',
    'last_force_op_resend': 'an epoch',
    'last_force_op_resend_preluminous': 'an epoch',
    'last_force_op_resend_prenautilus': 'an epoch',
    'last_pg_merge_meta': 'epochs and versions of the last merge',
    'read_balance': 'computed from the placement of PGs',
    'flags': 'as a number, with the fill level; see flags_names',
    'pg_autoscale_mode': 'see `autoscale`',
}
#: Keys of an OSD that are not in `Foreign.osds`, and why.
OSD_SKIPPED = {
    'osd': 'names the row',
    'uuid': 'tests replace devices',
    'up': 'tests kill OSDs, and wait for those that they need',
    'last_clean_begin': 'an epoch',
    'last_clean_end': 'an epoch',
    'up_from': 'an epoch',
    'up_thru': 'an epoch',
    'down_at': 'an epoch',
    'public_addr': 'another one after a restart',
    'cluster_addr': 'another one after a restart',
    'heartbeat_back_addr': 'another one after a restart',
    'heartbeat_front_addr': 'another one after a restart',
    'public_addrs': 'another one after a restart',
    'cluster_addrs': 'another one after a restart',
    'heartbeat_back_addrs': 'another one after a restart',
    'heartbeat_front_addrs': 'another one after a restart',
}
#: The other keys of an ordinary OSD, which has no row: tests add OSDs.
OSD_USUAL = {'in': 1, 'weight': 1, 'primary_affinity': 1, 'lost_at': 0, 'state': []}
#: States of OSDs and flags of pools that are not settings: the fill level, and what is new.
STATES = ('nearfull', 'backfillfull', 'full', 'full_quota', 'creating', 'new', 'up', 'exists')
#: Pools that the mgr creates and configures at any time.
MGR_POOLS = ('.', 'device_health_metrics')
#: Beginnings of options that are not in `Foreign.config`, and why.
OPTIONS_SKIPPED = {
    'mgr/perfguard/': 'tests set them',
    'mgr/dashboard/': 'the dashboard sets its own at a login',
    'mgr/balancer/active': 'stays after "balancer on"; see `balancer`',
}
#: Beginnings of config-keys that are not in `Foreign.keys`, and why.
KEYS_SKIPPED = {
    'mgr/perfguard/': 'what the module itself stores; see `check_end` of stories.py',
    'mgr/dashboard/': 'the dashboard stores its own state',
    'mgr/devicehealth/': 'stores when it has looked',
    'mgr/progress/': 'stores the completed events',
    'mgr/telemetry/': 'makes its identity at its first start',
    'config/': 'the configuration database; see `config`',
    'config-history/': 'the mons note each change of the configuration',
}
#: The caps of an OSD, which has no row: tests add OSDs.
OSD_CAPS = {'mgr': 'allow profile osd', 'mon': 'allow profile osd', 'osd': 'allow *'}


@dataclass(frozen=True)
class Foreign:
    """Settings that perfguard must restore."""
    flags: FrozenSet[str]
    balancer: Tuple[str, ...]
    #: Pool and its pg_autoscale_mode.
    autoscale: Tuple[Tuple[str, str], ...]
    #: Section with its mask, option and value.
    config: Tuple[Tuple[str, str, str], ...]
    #: Entities, their keys and caps.
    users: Rows
    #: All other values of pools, without the mgr's own pools.
    pools: Rows
    #: Values of OSDs that differ from the defaults.
    osds: Rows
    #: The rest of the OSDMap: erasure code profiles, ratios, required releases.
    osdmap: Rows
    #: Rules, tunables, types and the names of weight sets.
    crush: Rows
    keys: Rows


def audit(cluster: Cluster, balancer: Dict[str, Any]) -> Foreign:
    """`balancer`: the output of `balancer status`."""
    dump, crush = cluster.osd_dump(), cluster.mon('osd crush dump')
    return Foreign(
        flags=frozenset(dump['flags_set']),
        balancer=tuple(str(balancer[key]) for key in ('active', 'mode')),
        autoscale=tuple((pool['pool_name'], pool['pg_autoscale_mode']) for pool in dump['pools']),
        config=tuple(sorted(('/'.join(filter(None, (entry['section'], entry['mask']))),
                             entry['name'], entry['value'])
                            for entry in cluster.mon('config dump')
                            if not entry['name'].startswith(tuple(OPTIONS_SKIPPED)))),
        users=_rows({user['entity']: {'key': user['key'], 'caps': user['caps']}
                     for user in cluster.mon('auth ls')['auth_dump']
                     if not (user['entity'].startswith('osd.') and user['caps'] == OSD_CAPS)}),
        pools=_rows({pool['pool_name']: {**_but(pool, POOL_SKIPPED), 'flags_names': _settings(
            pool['flags_names'].split(','))} for pool in dump['pools']
            if not pool['pool_name'].startswith(MGR_POOLS)}),
        osds=_rows({'osd.%d' % osd['osd']: _unusual(osd) for osd in dump['osds']
                    if _unusual(osd)}),
        osdmap=_rows(_but(dump, ('flags_set', *MAP_SKIPPED))),
        crush=_rows({**_but(crush, ('devices', 'buckets')),
                     'choose_args': sorted(crush['choose_args'])}),
        keys=tuple(sorted((key, value) for key, value in cluster.mon('config-key dump').items()
                          if not key.startswith(tuple(KEYS_SKIPPED)))))


def known(rows: Rows, before: Rows) -> Rows:
    """The rows whose paths were there before: a newer release of Ceph adds others."""
    paths = {path for path, _ in before}
    return tuple((path, value) for path, value in rows if path in paths)


@dataclass(frozen=True)
class Placement:
    """The data that determines the placement of PGs."""
    upmaps: Rows
    crush: Rows


def placement(cluster: Cluster, without: Collection[int] = ()) -> Placement:
    """The whole CRUSH map and all upmaps; as if the OSDs `without` had weight 0."""
    dump = cluster.osd_dump()
    names = ('pg_upmap', 'pg_upmap_items', 'pg_upmap_primaries')
    crush = cluster.mon('osd crush dump')
    return Placement(_rows({name: dump.get(name, []) for name in names}),
                     _rows(weightless(crush, without) if without else crush))


def weightless(crush: Dict[str, Any], osds: Collection[int]) -> Dict[str, Any]:
    """The CRUSH map in which these OSDs have weight 0, as `osd crush reweight` makes it."""
    buckets = {bucket['id']: bucket for bucket in crush['buckets']}

    def weighted(item: Dict[str, Any]) -> Dict[str, Any]:
        weight = (0 if item['id'] in osds else item['weight'] if item['id'] >= 0
                  else sum(each['weight'] for each in items(item['id'])))
        return {**item, 'weight': weight}

    def items(bucket: int) -> List[Dict[str, Any]]:
        return [weighted(item) for item in buckets[bucket]['items']]

    return {**crush, 'buckets': [
        {**bucket, 'items': items(bucket['id']),
         'weight': sum(item['weight'] for item in items(bucket['id']))}
        for bucket in crush['buckets']]}


def _unusual(osd: Dict[str, Any]) -> Dict[str, Any]:
    found = {**_but(osd, OSD_SKIPPED), 'state': _settings(osd['state'])}
    return {name: value for name, value in found.items() if value != OSD_USUAL.get(name)}


def _settings(names: List[str]) -> List[str]:
    return sorted(set(names) - {'', *STATES})


def _but(document: Dict[str, Any], names: Collection[str]) -> Dict[str, Any]:
    return {name: value for name, value in document.items() if name not in names}


def _rows(document: Dict[str, Any]) -> Rows:
    return tuple(sorted(_leaves(document, '')))


def _leaves(document: Any, path: str) -> Iterator[Tuple[str, str]]:
    if isinstance(document, dict) and document:
        for key, value in document.items():
            yield from _leaves(value, '%s/%s' % (path, key))
    else:
        yield path, json.dumps(document, sort_keys=True)
