# SPDX-License-Identifier: LGPL-2.1-or-later
"""Converts the JSON of an OSDMap, from the command or from ceph-mgr, to frozen types."""
from typing import Any, FrozenSet, Mapping

from ..errors import InvalidValue
from .types import RJENKINS, Osd, OsdMap, Pool

#: pg_pool_t::TYPE_ERASURE
_ERASURE = 3
#: Worst first: a full OSD is also nearfull.
_FULLNESS = ('full', 'backfillfull', 'nearfull')


class WrongDump(InvalidValue):
    """The data is valid JSON, but not the output of the expected command."""


def osdmap_from_dump(dump: Mapping[str, Any]) -> OsdMap:
    """From ``ceph osd dump -f json`` or ``MgrModule.get('osd_map')``; raises WrongDump."""
    if not isinstance(dump, Mapping):
        raise WrongDump('not the output of "ceph osd dump -f json"')
    try:
        profiles = dump.get('erasure_code_profiles', {})
        return OsdMap(
            epoch=dump['epoch'],
            flags=_flags(dump),
            pools={p['pool']: _pool(p, profiles) for p in dump['pools']},
            osds={o['osd']: _osd(o) for o in dump['osds']},
            upmap_items={e['pgid']: tuple([(m['from'], m['to']) for m in e['mappings']])
                         for e in dump['pg_upmap_items']},
            upmap_vectors={e['pgid']: tuple(e['osds']) for e in dump['pg_upmap']},
            pg_temp={e['pgid']: tuple(e['osds']) for e in dump['pg_temp']},
            fsid=dump.get('fsid', ''),
            min_compat_client=dump.get('require_min_compat_client', ''),
            nearfull_ratio=float(dump.get('nearfull_ratio', 0.85)))
    except (AttributeError, KeyError, TypeError, ValueError) as e:
        raise WrongDump('not the output of "ceph osd dump -f json" (%s)' % _complaint(e)) from e


def _complaint(error: Exception) -> str:
    return 'no %s' % error if isinstance(error, KeyError) else str(error)


def _flags(dump: Mapping[str, Any]) -> FrozenSet[str]:
    names = dump['flags_set'] if 'flags_set' in dump else dump['flags'].split(',')
    return frozenset(name for name in names if name)


def _osd(dumped: Mapping[str, Any]) -> Osd:
    states = dumped.get('state', ())
    return Osd(dumped['osd'], up=bool(dumped['up']), reweight=float(dumped['weight']),
               destroyed='destroyed' in states,
               fullness=next((level for level in _FULLNESS if level in states), ''),
               primary_affinity=float(dumped.get('primary_affinity', 1.0)),
               has_led=bool(dumped.get('up_thru', 0)), uuid=str(dumped.get('uuid', '')))


def _pool(dumped: Mapping[str, Any], profiles: Mapping[str, Mapping[str, str]]) -> Pool:
    erasure = dumped['type'] == _ERASURE
    profile: Mapping[str, str] = {}
    if erasure:
        profile = profiles.get(dumped['erasure_code_profile'], {})
    pg_num, options = dumped['pg_num'], dumped.get('options') or {}
    return Pool(
        id=dumped['pool'], name=dumped['pool_name'], erasure=erasure, size=dumped['size'],
        min_size=dumped['min_size'], crush_rule=dumped['crush_rule'], pg_num=pg_num,
        pg_num_target=dumped.get('pg_num_target', pg_num),
        pg_num_pending=dumped.get('pg_num_pending', pg_num),
        autoscale_mode=dumped.get('pg_autoscale_mode', 'off'),
        data_shards=int(profile.get('k', 1)),
        flags=frozenset(filter(None, dumped.get('flags_names', '').split(','))),
        quota_bytes=int(dumped.get('quota_max_bytes', 0)),
        quota_objects=int(dumped.get('quota_max_objects', 0)),
        object_hash=int(dumped.get('object_hash', RJENKINS)),
        pgp_num=dumped.get('pg_placement_num', 0),
        pgp_num_target=dumped.get('pg_placement_num_target', 0),
        pg_num_min=int(options.get('pg_num_min', 0)),
        pg_num_max=int(options.get('pg_num_max', 0)))
