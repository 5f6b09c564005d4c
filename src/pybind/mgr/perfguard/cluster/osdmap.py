# SPDX-License-Identifier: LGPL-2.1-or-later
"""An OSDMap as others write it. Pure.

Its JSON, from the command or from ceph-mgr, becomes frozen types. Its encoding is known as far as
the numbers of PGs of a pool: osdmaptool has no option for another pgp_num, so the copy of the map
that it reads gets one.
"""
import struct
from typing import Any, FrozenSet, List, Mapping

from ..errors import InvalidValue
from .types import RJENKINS, Osd, OsdMap, Pool, PoolPgs

# ---- the JSON of an OSDMap

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


# ---- the encoding of an OSDMap

#: OSDMap::encode: the two outer headers (version, compat version, length), fsid, epoch, and the
#: times of creation and modification come before the pools.
_EPOCH_AT = 6 + 6 + 16
_POOLS_AT = _EPOCH_AT + 4 + 8 + 8
#: A pool's id, and the header of pg_pool_t::encode.
_POOL = struct.Struct('<qBBI')
#: pg_pool_t: type, size, crush_rule and object_hash come before pg_num and pgp_num.
_NUMBERS_AFTER = 4
_NUMBERS = struct.Struct('<II')
_CRC = struct.Struct('<I')
#: The polynomial of CRC-32C, reflected.
_POLYNOMIAL = 0x82F63B78


def with_pg_nums(osdmap: bytes, numbers: PoolPgs) -> bytes:
    """The map in which a pool has these pg_num and pgp_num. Raises ValueError."""
    changed = bytearray(osdmap)
    try:
        _NUMBERS.pack_into(changed, _numbers_at(osdmap, numbers.pool), numbers.pg_num,
                           numbers.pgp_num)
        # The last field is the checksum of everything before it.
        _CRC.pack_into(changed, len(changed) - _CRC.size, crc32c(changed[:-_CRC.size]))
    except struct.error as error:
        raise ValueError('not an OSDMap: %s' % error) from error
    return bytes(changed)


def epoch_of(osdmap: bytes) -> int:
    """Raises ValueError."""
    try:
        return int(struct.unpack_from('<I', osdmap, _EPOCH_AT)[0])
    except struct.error as error:
        raise ValueError('not an OSDMap: %s' % error) from error


def pg_nums(osdmap: bytes, pool: int) -> PoolPgs:
    """The numbers of a pool. Raises ValueError."""
    try:
        return PoolPgs(pool, *_NUMBERS.unpack_from(osdmap, _numbers_at(osdmap, pool)))
    except struct.error as error:
        raise ValueError('not an OSDMap: %s' % error) from error


def _numbers_at(osdmap: bytes, pool: int) -> int:
    count, = struct.unpack_from('<I', osdmap, _POOLS_AT)
    at = _POOLS_AT + 4
    for _ in range(count):
        found, _, _, length = _POOL.unpack_from(osdmap, at)
        at += _POOL.size
        if found == pool:
            return at + _NUMBERS_AFTER
        at += length
    raise ValueError('pool %d is not in the OSDMap' % pool)


def _table() -> List[int]:
    found = []
    for byte in range(256):
        for _ in range(8):
            byte = (byte >> 1) ^ (_POLYNOMIAL if byte & 1 else 0)
        found.append(byte)
    return found


_TABLE = _table()


def crc32c(data: bytes) -> int:
    """As ceph_crc32c with -1 to begin with: not inverted at the end."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc = _TABLE[(crc ^ byte) & 0xFF] ^ (crc >> 8)
    return crc
