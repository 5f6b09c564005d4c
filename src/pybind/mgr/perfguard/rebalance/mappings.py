# SPDX-License-Identifier: LGPL-2.1-or-later
"""Upmaps as pgremapper exports and imports them. Pure.

A list of {"pgid": "1.1", "mapping": {"from": 100, "to": 42}}, one for each pair. Imported pairs
become the goals of a campaign, so PGs move under its caps and stop conditions.
"""
import errno
import json
from dataclasses import dataclass, field, replace
from typing import Any, Callable, Dict, List, Mapping, Optional, Tuple, Union

from ..cluster.types import OsdMap, OsdSet, Pair, Space, UpmapEntry, pool_of
from ..errors import Refused
from ..observation import Observation
from ..tables import plural
from ..upmap.pins import Unpinnable, plan_pin, skip_reason
from ..upmap.semantics import out_osds
from .moves import Move, move_between, plan
from .rule_change import refuse_full
from .types import PinRecord

Json = Dict[str, Any]

#: Maximum number of pairs in a file: about the number of upmaps with which OSDMaps become slow
#: (ceph#28373).
MOST_PAIRS = 20000
MOST_BYTES = 8 << 20
#: Maximum number of ignored pairs that an answer lists.
NAMED = 50
IN_FORCE = ''


def exported(osdmap: OsdMap) -> Json:
    """All pg_upmap_items; `vectors`: PGs with a pg_upmap entry, which the format lacks."""
    return {'mappings': [{'pgid': pgid, 'mapping': {'from': source, 'to': target}}
                         for pgid, items in sorted(osdmap.upmap_items.items())
                         for source, target in items],
            'vectors': len(osdmap.upmap_vectors)}


@dataclass(frozen=True)
class Imported:
    """The movement of an import."""
    pins: Mapping[str, PinRecord] = field(default_factory=dict)
    #: PG -> why its pairs cannot be applied.
    left: Mapping[str, str] = field(default_factory=dict)
    moves: Tuple[Move, ...] = ()
    #: PGs whose pairs are in force already.
    in_force: int = 0

    def refuse_unfit(self, seen: Observation, space: Mapping[int, Space], force: bool) -> None:
        """Raise Refused if nothing or not everything would move, or if OSDs would be too full."""
        if self.left and not force:
            pgid, reason = min(self.left.items())
            raise Refused(errno.EPERM, 'the mappings of %s cannot be carried out, such as those of '
                          'PG %s: %s (--force imports the others)' % (
                              plural(len(self.left), 'PG'), pgid, reason))
        if not self.pins:
            raise Refused(errno.ENOENT, 'nothing to import: %s' % (
                'the mappings of %s are in force' % plural(self.in_force, 'PG')
                if self.in_force else 'no mapping can be carried out'))
        if not force:
            refuse_full(self.moves, space, seen.osdmap.nearfull_ratio)

    def still_there(self, osdmap: OsdMap) -> 'Imported':
        """The import if no entry has changed meanwhile; raises Refused otherwise."""
        if any(osdmap.entry(pgid) != pin.entry for pgid, pin in self.pins.items()):
            raise Refused(errno.EAGAIN, 'the upmaps have changed during the computation of the '
                          'import: try again')
        return self

    def as_json(self, campaign: Optional[int]) -> Json:
        moves = plan(self.moves, 1, 1, None)
        return {'verb': 'import', 'campaign': campaign, 'pgs': len(self.pins),
                'shards': moves.shards, 'bytes': moves.bytes,
                'primaries_moving': moves.primaries_moving, 'in_force_pgs': self.in_force,
                'left_out_pgs': len(self.left),
                'left_out': [{'pgid': pgid, 'reason': why}
                             for pgid, why in sorted(self.left.items())[:NAMED]]}


def _osd(given: Any) -> int:
    if type(given) is not int:  # a bool is an int, too
        raise TypeError('%r is not the id of an OSD' % (given,))
    return given


def parsed(given: bytes) -> Dict[str, List[Pair]]:
    """PG -> its pairs, in their order. Raises Refused."""
    if len(given) > MOST_BYTES:
        raise Refused(errno.E2BIG, 'the file has %d bytes (limit %d)' % (len(given), MOST_BYTES))
    try:
        rows = json.loads(given)
        pairs = [(str(row['pgid']), (_osd(row['mapping']['from']), _osd(row['mapping']['to'])))
                 for row in rows]
        found: Dict[str, List[Pair]] = {}
        for pgid, pair in pairs:
            pool_of(pgid)
            found.setdefault(pgid, []).append(pair)
    except (LookupError, TypeError, ValueError, RecursionError) as error:
        raise Refused(errno.EINVAL, 'not a list of {"pgid": "1.1", "mapping": {"from": 100, "to": '
                      '42}}: %s' % error) from error
    if not pairs or len(pairs) > MOST_PAIRS:
        raise Refused(errno.EINVAL, 'the file has %s (must be 1 to %d)' % (
            plural(len(pairs), 'mapping'), MOST_PAIRS))
    return found


def imported(seen: Observation, pool_up: Callable[[int], Mapping[str, OsdSet]],
             pairs: Mapping[str, List[Pair]]) -> Imported:
    """For any thread. `pool_up`: up sets of a pool's PGs."""
    ups: Dict[int, Mapping[str, OsdSet]] = {}
    result, pins, left, moves = Imported(), {}, {}, []
    for pgid, wanted in pairs.items():
        pool = seen.osdmap.pools.get(pool_of(pgid))
        if pool is not None and pool.id not in ups:
            ups[pool.id] = pool_up(pool.id)
        up = ups[pool.id].get(pgid) if pool is not None else None
        goal = _goal(seen, pgid, up, wanted)
        if isinstance(goal, UpmapEntry) and pool is not None and up is not None:
            present = seen.osdmap.entry(pgid)
            pins[pgid] = PinRecord(present, present, goal=goal)
            moves.append(move_between(pgid, pool, up, _with(up, wanted),
                                      seen.signals.pool_bytes.get(pool.id, 0)))
        elif goal == IN_FORCE:
            result = replace(result, in_force=result.in_force + 1)
        else:
            left[pgid] = str(goal)
    return replace(result, pins=pins, left=left, moves=tuple(moves))


def _goal(seen: Observation, pgid: str, up: Optional[OsdSet],
          wanted: List[Pair]) -> Union[UpmapEntry, str]:
    """The entry that leads to the OSDs of the pairs, or why there is none."""
    pool, present = seen.osdmap.pools.get(pool_of(pgid)), seen.osdmap.entry(pgid)
    if pool is None or up is None:
        return 'the PG does not exist'
    if pgid in seen.osdmap.pg_temp:
        return 'the PG is remapped'
    reason = skip_reason(pool, pgid)
    if reason is not None:
        return reason
    final = _with(up, wanted)
    for source, target in wanted:
        if (source in final or target not in final) and (source, target) not in present.items:
            return 'osd.%d is not in its up set, or osd.%d is already' % (source, target)
    if final == up:
        return IN_FORCE
    pin = plan_pin(pool, up, final, present, seen.osdmap.osds, seen.crush,
                   out=out_osds(seen.osdmap.osds))
    return pin.reason if isinstance(pin, Unpinnable) else pin.entry


def _with(up: OsdSet, pairs: List[Pair]) -> OsdSet:
    """The set that the pairs lead to; pairs without an effect are ignored."""
    found = list(up)
    for source, target in pairs:
        if source in found and target not in found:
            found[found.index(source)] = target
    return tuple(found)
