# SPDX-License-Identifier: LGPL-2.1-or-later
"""Upmaps of others that keep data away from where CRUSH and the balance place it. Pure.

An expansion that was begun with upmap-remapped.py or pgremapper, or in part by the balancer, leaves
pg_upmap_items entries, and the OSDMap does not contain their purpose. The shares of the OSDs show
it: a pair is a pin if it keeps a shard away from an OSD that is more than one PG below its share,
on an OSD that has its share. A pair that takes a shard from an OSD that has its share belongs to a
balanced state. Unclear entries are left alone, with the reason.
"""
import errno
from dataclasses import dataclass, field, replace
from typing import (Any, Callable, Dict, FrozenSet, List, Mapping, Optional, Sequence, Set, Tuple,
                    Union)

from ..cluster.crush import CrushRules
from ..cluster.types import Balancing, Items, Osd, OsdMap, OsdSet, Pair, Pool, UpmapEntry, pool_of
from ..errors import Refused
from ..observation import Observation
from ..upmap.balance import PlacedPg, balance
from ..upmap.pins import lawful, skip_reason
from ..upmap.semantics import apply_entry, out_osds, raw_from_up
from ..tables import are, plural
from .moves import Move, plan, release_move
from .types import TINY_WEIGHT, PinRecord

Json = Dict[str, Any]

#: Maximum deviation, in PGs, of an OSD that has its share.
SHARE_PGS = 1.0
NO_RAWS: Mapping[str, OsdSet] = {}
#: Maximum number of ignored entries that an answer lists.
NAMED = 50
VECTOR = 'a pg_upmap entry hides where CRUSH places the PG'
BALANCED = 'the pool is balanced with its upmaps'
NOT_MODELLED = "the shares of the OSDs under the pool's CRUSH rule are not known"
NOT_COVERED = "the balancer does not cover the pool, and the upmap may have been set by hand " \
    "(--force takes it over)"
AMBIGUOUS = 'more than one CRUSH placement explains its upmap'


@dataclass(frozen=True)
class Adoption:
    #: Pins to take over; `before` is the entry of the PG without its pin.
    pins: Mapping[str, PinRecord] = field(default_factory=dict)
    #: Entries that are left alone, with the reason.
    left: Mapping[str, str] = field(default_factory=dict)
    #: Entries that are part of a balanced state.
    balancing: int = 0


@dataclass(frozen=True)
class Adopted:
    """The result of an order to adopt, and the movement of the releases."""
    adoption: Adoption
    moves: Tuple[Move, ...] = ()

    @property
    def pins(self) -> Mapping[str, PinRecord]:
        return self.adoption.pins

    def refuse_nothing(self) -> None:
        """Raise Refused if there is nothing to take over."""
        adoption = self.adoption
        if adoption.pins:
            return
        text = 'no upmap keeps data away from the OSDs where CRUSH and the balance place it'
        if adoption.balancing:
            text += '; %s part of a balanced state' % are(adoption.balancing, 'upmap')
        if adoption.left:
            pgid, reason = min(adoption.left.items())
            text += '; %s, such as PG %s: %s' % (
                plural(len(adoption.left), 'unclear case'), pgid, reason)
        raise Refused(errno.ENOENT, text)

    def still_there(self, osdmap: OsdMap) -> 'Adopted':
        """The result with only the pins whose entries have not changed meanwhile; raises Refused if
        none is left.
        """
        pins = {pgid: pin for pgid, pin in self.adoption.pins.items()
                if osdmap.entry(pgid) == pin.entry}
        if not pins:
            raise Refused(errno.EAGAIN, 'the upmaps have changed during the computation: if '
                          'another tool changes them, stop it, then try again')
        return Adopted(replace(self.adoption, pins=pins),
                       tuple(move for move in self.moves if move.pgid in pins))

    def _taken(self) -> List[Json]:
        """Operators must review the entries first: an upmap that was set by hand may look like a
        pin."""
        return [{'pgid': pgid, 'pairs': [list(pair) for pair in pin.entry.items
                                         if pair not in pin.before.items]}
                for pgid, pin in sorted(self.adoption.pins.items())[:NAMED]]

    def as_json(self, campaign: Optional[int]) -> Json:
        left = sorted(self.adoption.left.items())
        moves = plan(self.moves, 1, 1, None).as_json()
        return {'verb': 'adopt', 'campaign': campaign, 'pgs': len(self.adoption.pins),
                **{key: moves[key] for key in ('shards', 'bytes', 'primaries_moving', 'osds')},
                'taken': self._taken(),
                'balancing_pgs': self.adoption.balancing, 'left_out_pgs': len(left),
                'left_out': [{'pgid': pgid, 'reason': why} for pgid, why in left[:NAMED]]}


def adopted(seen: Observation, pool_up: Callable[[int], Mapping[str, OsdSet]],
            known: FrozenSet[str], force: bool = False) -> Adopted:
    """For any thread; `known` and `force` as in adoptable."""
    osdmap = seen.osdmap
    found = adoptable(osdmap, seen.crush, pool_up, seen.balancing, known, force)
    out = out_osds(osdmap.osds)
    ups: Dict[int, Mapping[str, OsdSet]] = {}
    moves = []
    for pgid, pin in found.pins.items():
        pool = osdmap.pools[pool_of(pgid)]
        if pool.id not in ups:
            ups[pool.id] = pool_up(pool.id)
        moves.append(release_move(pgid, pool, ups[pool.id][pgid], pin, out,
                                  seen.signals.pool_bytes.get(pool.id, 0)))
    return Adopted(found, tuple(moves))


def adoptable(osdmap: OsdMap, crush: CrushRules, pool_up: Callable[[int], Mapping[str, OsdSet]],
              balancing: Balancing, known: FrozenSet[str] = frozenset(),
              force: bool = False, raws: Mapping[str, OsdSet] = NO_RAWS) -> Adoption:
    """`pool_up`: up sets of a pool's PGs; `known`: PGs whose upmaps are perfguard's own; `force`:
    pools that the balancer does not cover as well, where operators may place PGs by hand.
    `raws`: where CRUSH places PGs with a pg_upmap vector, as far as that is known."""
    pins: Dict[str, PinRecord] = {}
    left: Dict[str, str] = {}
    kept = 0
    for pool_id, pgids in _with_upmaps(osdmap, known).items():
        pool = osdmap.pools[pool_id]
        work = _PoolUpmaps(osdmap, crush, pool, pool_up(pool_id), raws)
        whole = work.why_not(balancing, force, pgids)
        for pgid in pgids:
            found = whole or work.judged(pgid)
            if isinstance(found, PinRecord):
                pins[pgid] = found
            elif found == BALANCED:
                kept += 1
            else:
                left[pgid] = found
    return Adoption(pins, left, kept)


def _with_upmaps(osdmap: OsdMap, known: FrozenSet[str]) -> Dict[int, List[str]]:
    found: Dict[int, List[str]] = {}
    for pgid in {*osdmap.upmap_items, *osdmap.upmap_vectors} - known:
        if pool_of(pgid) in osdmap.pools:
            found.setdefault(pool_of(pgid), []).append(pgid)
    return {pool: sorted(found[pool]) for pool in sorted(found)}


class _PoolUpmaps:
    def __init__(self, osdmap: OsdMap, crush: CrushRules, pool: Pool,
                 ups: Mapping[str, OsdSet], raws: Mapping[str, OsdSet]) -> None:
        self._osdmap, self._crush, self._pool, self._ups = osdmap, crush, pool, ups
        self._raws = raws
        self._out = out_osds(osdmap.osds)
        self._modelled = crush.balances(pool.crush_rule)
        if self._modelled:
            # No PG may move: only the shares are computed.
            self._balance = balance(pool, [PlacedPg(pgid, up, None, False)
                                           for pgid, up in ups.items()], crush, osdmap.osds)

    def why_not(self, balancing: Balancing, force: bool, pgids: Sequence[str]) -> str:
        """Why no entry of the pool is taken over; '' if entries may be."""
        if not self._modelled:
            return NOT_MODELLED
        covered = balancing.covers(self._pool.id)
        within = max(SHARE_PGS, balancing.deviation if covered else 0.0)
        if self._balance.deviation <= within and not any(map(self._on_drained, pgids)):
            return BALANCED
        return '' if covered or force else NOT_COVERED

    def judged(self, pgid: str) -> Union[PinRecord, str]:
        entry, up = self._osdmap.entry(pgid), self._ups.get(pgid)
        if entry.vector is not None and pgid not in self._raws:
            return VECTOR
        why_not = 'the PG does not exist' if up is None else skip_reason(self._pool, pgid)
        if up is None or why_not is not None:
            return str(why_not)
        raw = self._raws[pgid] if entry.vector is not None else raw_from_up(up, entry, self._out)
        if raw is None:
            return AMBIGUOUS
        items = entry.items if entry.vector is None else self._pairs(raw, up)
        pinning, why = self._pinning(items, raw, up)
        if not pinning:
            return why or BALANCED
        before = UpmapEntry(tuple(pair for pair in items if pair not in pinning))
        before = lawful(before, raw, self._pool, self._crush, self._out)
        if apply_entry(raw, before, self._out) == up:
            return 'without it the PG would not move'
        return PinRecord(before, entry, raw if entry.vector is not None else None)

    def _pairs(self, raw: OsdSet, up: OsdSet) -> Items:
        """A vector as pairs, without those that only exchange shards."""
        if self._pool.erasure:
            return tuple((old, new) for old, new in zip(raw, up)
                         if old not in up and new not in raw)
        return tuple(zip((osd for osd in raw if osd not in up),
                         (osd for osd in up if osd not in raw)))

    def _pinning(self, items: Items, raw: OsdSet, up: OsdSet) -> Tuple[FrozenSet[Pair], str]:
        """The pairs that are pins, and the reason for the others."""
        pinning: Set[Pair] = set()
        why = ''
        for source in [source for source, _ in items if source in raw and source not in up]:
            chain = _chain(source, items, raw)
            if chain[-1][1] not in up:
                continue  # it has no effect
            found = self._of_pair(source, chain[-1][1])
            if found is None:
                pinning.update(chain)
            elif found != BALANCED:
                why = found
        return frozenset(pinning), why

    def _on_drained(self, pgid: str) -> bool:
        """Its upmap keeps data on an OSD that is being drained."""
        entry, up = self._osdmap.entry(pgid), self._ups.get(pgid, ())
        return any(self._drained(osd) for osd in (
            *(target for _, target in entry.items if target in up), *(entry.vector or ())))

    def _drained(self, osd: int) -> bool:
        """Its CRUSH weight is the least with which the mons keep upmaps."""
        return self._crush.weight_of(self._pool.crush_rule, osd) < 2 * TINY_WEIGHT

    def _of_pair(self, source: int, target: int) -> Optional[str]:
        """Why a pair is not a pin; None: it is a pin."""
        ideal, count = self._balance.targets.ideal, self._balance.before
        row = self._osdmap.osds.get(source)
        if not ideal.get(source):
            return BALANCED  # it is to be empty
        if ideal[source] - count.get(source, 0) < SHARE_PGS and not self._drained(target):
            return BALANCED
        if row is None or not row.up or row.reweight < 1.0 or row.fullness:
            return 'osd.%d lacks PGs, but is %s' % (source, _condition(row))
        if ideal.get(target, 0.0) - count.get(target, 0) >= SHARE_PGS:
            return 'neither osd.%d nor osd.%d has its share of PGs' % (source, target)
        return None


def _chain(source: int, items: Items, raw: OsdSet) -> Items:
    """The pair of a source, and those that pass its shard on: 5->6, 6->7 and 7->0 move a shard from
    osd.5 to osd.0, and the others to other positions, if osd.6 and osd.7 are in the raw set."""
    following = {old: new for old, new in items if old in raw}
    found = [(source, following.pop(source))]
    while found[-1][1] in following:
        found.append((found[-1][1], following.pop(found[-1][1])))
    return tuple(found)


def _condition(row: Optional[Osd]) -> str:
    return 'down' if row is None or not row.up else row.fullness or 'reweighted'
