# SPDX-License-Identifier: LGPL-2.1-or-later
"""Reads and changes encoded OSDMaps and CRUSH maps, where no tool of Ceph gives the same answer.

Ceph's tools read the changed copies; nothing of this is sent to the mons. The tools of Pacific,
Reef and Tentacle list no option that replaces it:

- OSDs that are up, or out: ``osdmaptool --mark-up`` and ``--mark-out`` take one OSD in each run
  (tried on Pacific), and save it only with a change of a CRUSH weight. ``--mark-up-in`` marks OSDs
  in that are out.
- pg_num and pgp_num of a pool: osdmaptool has no option.
- Another rule for a pool: osdmaptool has no option. ``crushtool --test --pool-id`` reads no OSDMap:
  neither upmaps, nor up sets and acting sets. Exchanging the rules in crushtool's text rounds
  weights.
- Whether a map of a user is bounded has to be known before crushtool reads it.
"""
import contextlib
import struct
from graphlib import CycleError, TopologicalSorter
from typing import Callable, Dict, Iterable, Iterator, List, Mapping, Tuple

from .ports import ToolFailed
from .types import OsdSet, PoolPgs

# ---- the encoding of an OSDMap

#: OSDMap::encode: the two outer headers (version, compat version, length), fsid, epoch, and the
#: times of creation and modification come before the pools.
_EPOCH_AT = 6 + 6 + 16
_POOLS_AT = _EPOCH_AT + 4 + 8 + 8
#: A pool's id, and the header of pg_pool_t::encode.
_POOL = struct.Struct('<qBBI')
#: The version of the part of clients, since when states of OSDs have 32 bits; a pool's id, and the
#: length of its name; pool_max, flags and max_osd, and the number of states; a state, and its bit
#: CEPH_OSD_UP; a reweight (osd_weight, in units of 1/65536), of which there are as many.
_VERSION_AT, _WIDE_STATES = 6, 5
_NAME = struct.Struct('<qI')
_BEFORE_STATES = struct.Struct('<iIiI')
_STATE = struct.Struct('<I')
_REWEIGHT = struct.Struct('<I')
_UP = 2
#: pg_pool_t: type, size, crush_rule and object_hash come before pg_num and pgp_num.
_NUMBERS_AFTER = 4
_NUMBERS = struct.Struct('<II')
_CRC = struct.Struct('<I')
#: The polynomial of CRC-32C, reflected.
_POLYNOMIAL = 0x82F63B78


@contextlib.contextmanager
def _reading_osdmap() -> Iterator[None]:
    """Raises ValueError for bytes that are no OSDMap."""
    try:
        yield
    except (IndexError, struct.error) as error:
        raise ValueError('not an OSDMap: %s' % error) from error


@_reading_osdmap()
def with_pg_nums(osdmap: bytes, numbers: PoolPgs) -> bytes:
    """The map in which a pool has these pg_num and pgp_num. Raises ValueError."""
    changed = bytearray(osdmap)
    _NUMBERS.pack_into(changed, _numbers_at(osdmap, numbers.pool), numbers.pg_num, numbers.pgp_num)
    return _with_checksum(changed)


@_reading_osdmap()
def with_osds_up(osdmap: bytes, osds: Iterable[int]) -> bytes:
    """The map in which these OSDs are up. Raises ValueError."""
    changed = bytearray(osdmap)
    states_at, count = _states_at(osdmap)
    for osd in _in_osdmap(osds, count):
        state, = _STATE.unpack_from(osdmap, states_at + osd * _STATE.size)
        _STATE.pack_into(changed, states_at + osd * _STATE.size, state | _UP)
    return _with_checksum(changed)


@_reading_osdmap()
def with_osds_out(osdmap: bytes, osds: Iterable[int]) -> bytes:
    """The map in which these OSDs are out. Raises ValueError."""
    changed = bytearray(osdmap)
    states_at, count = _states_at(osdmap)
    reweights_at = states_at + count * _STATE.size
    # They begin with their number.
    if struct.unpack_from('<I', osdmap, reweights_at) != (count,):
        raise ValueError('no reweights of %d OSDs in the OSDMap' % count)
    for osd in _in_osdmap(osds, count):
        _REWEIGHT.pack_into(changed, reweights_at + 4 + osd * _REWEIGHT.size, 0)
    return _with_checksum(changed)


def _states_at(osdmap: bytes) -> Tuple[int, int]:
    """The offset at which the states of the OSDs begin, and their number. The reweights follow the
    states."""
    if osdmap[_VERSION_AT] < _WIDE_STATES:
        raise ValueError('an OSDMap from before Luminous')
    # The names of the pools follow the pools.
    at = max([_POOLS_AT + 4, *(begin + length for _, begin, length in _pools(osdmap))])
    count, = struct.unpack_from('<I', osdmap, at)
    at += 4
    for _ in range(count):
        at += _NAME.size + _NAME.unpack_from(osdmap, at)[1]
    return at + _BEFORE_STATES.size, _BEFORE_STATES.unpack_from(osdmap, at)[-1]


def _in_osdmap(osds: Iterable[int], number: int) -> Iterator[int]:
    """These OSDs. Raises ValueError for one whose id is beyond those of the map."""
    for osd in osds:
        if osd >= number:
            raise ValueError('osd.%d is not in the OSDMap' % osd)
        yield osd


def _with_checksum(changed: bytearray) -> bytes:
    """The last field is the checksum of everything before it."""
    _CRC.pack_into(changed, len(changed) - _CRC.size, crc32c(changed[:-_CRC.size]))
    return bytes(changed)


@_reading_osdmap()
def epoch_of(osdmap: bytes) -> int:
    """Raises ValueError."""
    return int(struct.unpack_from('<I', osdmap, _EPOCH_AT)[0])


@_reading_osdmap()
def pg_nums(osdmap: bytes, pool: int) -> PoolPgs:
    """The numbers of a pool. Raises ValueError."""
    return PoolPgs(pool, *_NUMBERS.unpack_from(osdmap, _numbers_at(osdmap, pool)))


def _numbers_at(osdmap: bytes, pool: int) -> int:
    for pool_id, at, _ in _pools(osdmap):
        if pool_id == pool:
            return at + _NUMBERS_AFTER
    raise ValueError('pool %d is not in the OSDMap' % pool)


def _pools(osdmap: bytes) -> Iterator[Tuple[int, int, int]]:
    """Each pool's id, the offset of its fields after the header, and their length."""
    count, = struct.unpack_from('<I', osdmap, _POOLS_AT)
    at = _POOLS_AT + 4
    for _ in range(count):
        pool, _, _, length = _POOL.unpack_from(osdmap, at)
        at += _POOL.size
        yield pool, at, length
        at += length


def _table() -> List[int]:
    table = []
    for byte in range(256):
        for _ in range(8):
            byte = (byte >> 1) ^ (_POLYNOMIAL if byte & 1 else 0)
        table.append(byte)
    return table


_TABLE = _table()


def crc32c(data: bytes) -> int:
    """The checksum ceph_crc32c(-1, data), which is not inverted at the end as CRC-32C is."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc = _TABLE[(crc ^ byte) & 0xFF] ^ (crc >> 8)
    return crc


# ---- the encoding of a CRUSH map

#: OSDs that a map may contain beside those of the cluster. crushtool prints a line for each id,
#: whether there is such an OSD or not.
SPARE_IDS = 10000
#: In how many places of one tree each OSD may be on average, and where counting ends.
OFTEN, MOST_ITEMS = 8, 1 << 62

#: CrushWrapper::encode, as far as the rules. Where CRUSH places a PG depends on the steps of its
#: rule and not on the rule's id.
_CRUSH_MAGIC, _HEADER_BYTES = 0x00010000, 16
#: Bytes after the items of a bucket, by its algorithm: for the bucket, and for each item. A tree
#: (3) counts its nodes.
_TREE = 3
_BUCKET_BYTES = {1: (4, 0), 2: (0, 8), 4: (0, 8), 5: (0, 4)}


def rules_exchanged(crush_map: bytes, rule_a: int, rule_b: int) -> bytes:
    """The encoded map in which two rules have exchanged their ids. Raises ValueError."""
    try:
        places = _rule_places(crush_map)
        (at_1, end_1), (at_2, end_2) = sorted((places[rule_a], places[rule_b]))
    except (struct.error, LookupError) as error:
        raise ValueError('no CRUSH map with rules %d and %d: %r'
                         % (rule_a, rule_b, error)) from error
    if rule_a == rule_b:
        return crush_map
    return b''.join((crush_map[:at_1], _with_id_of(crush_map[at_2:end_2], crush_map[at_1:]),
                     crush_map[end_1:at_2],
                     _with_id_of(crush_map[at_1:end_1], crush_map[at_2:]), crush_map[end_2:]))


def _with_id_of(rule: bytes, place: bytes) -> bytes:
    """A rule with the id of another: the byte after the length, which older releases read as the
    ruleset."""
    return rule[:4] + place[4:5] + rule[5:]


def _rule_places(crush_map: bytes) -> Dict[int, Tuple[int, int]]:
    """Rule -> the offsets at which it begins and ends, of the rules that exist."""
    slots, rules, _ = _header(crush_map)
    slot_ends = _ends(crush_map, _HEADER_BYTES, slots, _bucket_end)
    rule_ends = _ends(crush_map, slot_ends[-1], rules, _rule_end)
    # The first four bytes of a slot say whether the rule exists; they are all of it if it does not.
    rules_at = enumerate(zip(rule_ends, rule_ends[1:]))
    return {rule: (begin + 4, end) for rule, (begin, end) in rules_at if end > begin + 4}


def _header(crush_map: bytes) -> Tuple[int, int, int]:
    """Numbers of slots for buckets, of slots for rules, and of OSDs."""
    magic, slots, rules, devices = struct.unpack_from('<IiIi', crush_map)
    if magic != _CRUSH_MAGIC:
        raise LookupError('magic %x' % magic)
    return slots, rules, devices


def _ends(crush_map: bytes, begin: int, slots: int,
          end_of: Callable[[bytes, int], int]) -> List[int]:
    """The offset `begin` of the first of so many slots, then the offset at which each slot ends.
    `end_of`: returns the end of the slot at an offset."""
    ends = [begin]
    for _ in range(slots):
        ends.append(end_of(crush_map, ends[-1]))
    return ends


def _rule_end(crush_map: bytes, at: int) -> int:
    exists, steps = struct.unpack_from('<II', crush_map, at)
    return at + 12 + 12 * steps if exists else at + 4


def refuse_unbounded(crush_map: bytes, ids: int) -> None:
    """Raise ToolFailed for a compiled map with much larger ids of OSDs than those of the cluster,
    with buckets that contain themselves, or each other so often that reading them takes for ever,
    and for anything that is no such map. `ids`: number of ids of OSDs in the cluster."""
    try:
        slots, _, devices = _header(crush_map)
        buckets = dict(_bucket_items(crush_map, slots))
        most_items = _most_items_below(buckets)
    except (struct.error, LookupError) as error:
        raise ToolFailed('no compiled CRUSH map: %r' % error) from error
    except CycleError:
        raise ToolFailed('a bucket contains itself') from None
    highest = max((devices - 1, *(max(items, default=-1) for items in buckets.values())))
    if highest >= ids + SPARE_IDS:
        raise ToolFailed('the map contains osd.%d, but the highest OSD ID in the cluster is %d'
                         % (highest, ids - 1))
    if most_items > OFTEN * (ids + SPARE_IDS):
        raise ToolFailed('OSDs or buckets are in too many buckets')


def _bucket_items(crush_map: bytes, slots: int) -> Iterator[Tuple[int, OsdSet]]:
    """Each bucket's id and its items: OSDs, and ids of buckets, which are negative."""
    ends = _ends(crush_map, _HEADER_BYTES, slots, _bucket_end)
    for at, end in zip(ends, ends[1:]):
        if end > at + 4:
            bucket, size = struct.unpack_from('<i8xI', crush_map, at + 4)
            yield bucket, struct.unpack_from('<%di' % size, crush_map, at + 20)


def _most_items_below(buckets: Mapping[int, OsdSet]) -> int:
    """The largest number of items below any bucket, in which an item counts once for each way to
    it; at most MOST_ITEMS. Raises CycleError for a bucket that contains itself."""
    graph = {bucket: [item for item in items if item in buckets]
             for bucket, items in buckets.items()}
    below: Dict[int, int] = {}
    for bucket in TopologicalSorter(graph).static_order():
        below[bucket] = min(MOST_ITEMS, len(buckets[bucket]) + sum(
            below[item] for item in graph[bucket]))
    return max(below.values(), default=0)


def _bucket_end(crush_map: bytes, at: int) -> int:
    """The offset at which the bucket that begins at `at` ends. A slot without a bucket is an
    algorithm of 0 alone."""
    if not struct.unpack_from('<I', crush_map, at)[0]:
        return at + 4
    _, _, algorithm, _, _, size = struct.unpack_from('<iHBBII', crush_map, at + 4)
    at += 20 + 4 * size
    if algorithm == _TREE:
        return at + 1 + 4 * crush_map[at]  # a byte with the number of nodes, then these
    bucket_bytes, item_bytes = _BUCKET_BYTES[algorithm]
    return at + bucket_bytes + item_bytes * size
