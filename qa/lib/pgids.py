# SPDX-License-Identifier: LGPL-2.1-or-later
"""The PG of an object as every client computes it: an independent check of probe/placement.py."""

from typing import Tuple

MASK = 0xffffffff


def pgid_of(pool_id: int, pg_num: int, namespace: str, name: str) -> str:
    """The PG of an object, such as "1.2f"."""
    hashed = str_hash_rjenkins(((namespace + '\x1f' if namespace else '') + name).encode())
    whole = (1 << (pg_num - 1).bit_length()) - 1
    seed = hashed & whole
    # ceph_stable_mod in include/rados.h.
    return '%d.%x' % (pool_id, seed if seed < pg_num else hashed & (whole >> 1))


def str_hash_rjenkins(name: bytes) -> int:
    """The 32 bit hash of a name (ceph_str_hash_rjenkins in common/ceph_hash.cc)."""
    a = b = 0x9e3779b9
    c = 0
    for start in range(0, len(name) - len(name) % 12, 12):
        first, second, third = (int.from_bytes(name[at:at + 4], 'little')
                                for at in range(start, start + 12, 4))
        a, b, c = _mixed(a + first, b + second, c + third)
    rest = name[len(name) - len(name) % 12:]
    # The lowest byte of the last word is that of the length.
    return _mixed(a + int.from_bytes(rest[:4], 'little'), b + int.from_bytes(rest[4:8], 'little'),
                  c + (int.from_bytes(rest[8:], 'little') << 8) + len(name))[2]


def _mixed(a: int, b: int, c: int) -> Tuple[int, int, int]:
    a, b, c = a & MASK, b & MASK, c & MASK
    for right, left, last in ((13, 8, 13), (12, 16, 5), (3, 10, 15)):
        a = ((a - b - c) & MASK) ^ (c >> right)
        b = ((b - c - a) & MASK) ^ ((a << left) & MASK)
        c = ((c - a - b) & MASK) ^ (b >> last)
    return a, b, c
