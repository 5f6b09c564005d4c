# SPDX-License-Identifier: LGPL-2.1-or-later
"""The encoding of an OSDMap, as far as the numbers of PGs of a pool. Pure.

osdmaptool has no option for another pgp_num, so the copy of the map that it reads gets one.
"""
import struct
from typing import List

from .types import PoolPgs

#: OSDMap::encode: the two outer headers (version, compat version, length), fsid, epoch, and the
#: times of creation and modification come before the pools.
_POOLS_AT = 6 + 6 + 16 + 4 + 8 + 8
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
        # The checksum of all that is before it comes last.
        _CRC.pack_into(changed, len(changed) - _CRC.size, crc32c(changed[:-_CRC.size]))
    except struct.error as error:
        raise ValueError('not an OSDMap: %s' % error) from error
    return bytes(changed)


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
