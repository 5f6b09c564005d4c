# SPDX-License-Identifier: LGPL-2.1-or-later
"""Upmaps that become the pins of a campaign: those of others, and imported ones. Pure.

Upmaps of others keep data away from where CRUSH and the balance place it.

An expansion that was begun with upmap-remapped.py or pgremapper, or in part by the balancer, leaves
pg_upmap_items entries, and the OSDMap does not contain their purpose. The shares of the OSDs show
it: a pair is a pin if it keeps a shard away from an OSD that is more than one PG below its share,
on an OSD that has its share. A pair that takes a shard from an OSD that has its share belongs to a
balanced state. Unclear entries are left alone, with the reason. A PG that its upmap keeps on a
drained OSD is always a pin, or unclear.

Upmaps are exported and imported as pgremapper does: a list of
{"pgid": "1.1", "mapping": {"from": 100, "to": 42}}, one for each pair. Imported pairs become the
goals of a campaign, so PGs move under its caps and stop conditions.
"""
import errno
import json
from collections import Counter
from dataclasses import dataclass, field, replace
from typing import (AbstractSet, Dict, FrozenSet, Iterator, List, Mapping, Optional, Sequence, Set,
                    Tuple, Union)

from ..cluster.crush import CrushRules
from ..cluster.types import (NO_ENTRY, Balancing, Document, Items, Json, Osd, OsdMap, OsdSet, Pair,
                             Pool, Space, UpmapEntry, pool_of)
from ..errors import Code, Refused
from ..observation import Observation
from ..options import Options
from ..upmap.balance import PlacedPg, balance
from ..upmap.pins import Pin, Unpinnable, broken_rule, lawful, merge_reason, plan_pin
from ..upmap.semantics import (NO_RAWS, PoolUp, Raws, apply_entry, raw_from_up,
                               with_down_osds)
from ..text import are, bytes_text, plural
from .epochs import why_too_many_pins
from .moves import Move, move_between, movement_of, release_move
from .risks import Risk
from .types import TINY_WEIGHT, PinRecord

#: Maximum deviation, in PGs, of an OSD that has its share.
SHARE_PGS = 1.0
#: Maximum number of ignored entries, or pairs, that an answer lists.
NAMED_PGS = 50
VECTOR = 'a pg_upmap entry hides where CRUSH places the PG'
LACKING = 'OSDs are down, and it is not known which of them the PG lacks'
NO_OTHER = 'it is on an OSD that is drained, and no other can take its place'
BALANCED = 'the pool is balanced with its upmaps'
NOT_MODELLED = "the shares of the OSDs under the pool's CRUSH rule are not known"
NOT_COVERED = "the balancer does not cover the pool, and the upmap may have been set by hand " \
    "(--accept NOT_BALANCED takes it over)"
AMBIGUOUS = 'more than one CRUSH placement explains its upmap'


@dataclass(frozen=True)
class Adoption:
    """The result of an order to adopt."""
    #: Pins to take over; `before` is the entry of the PG without its pin.
    pins: Mapping[str, PinRecord] = field(default_factory=dict)
    #: Entries that are left alone, with the reason.
    left_out: Mapping[str, str] = field(default_factory=dict)
    #: Entries that are part of a balanced state.
    balancing: int = 0
    #: The movement of the releases.
    moves: Tuple[Move, ...] = ()

    def risks(self) -> List[Risk]:
        """An adoption has no risks. Raises Refused if there is nothing to take over."""
        if self.pins:
            return []
        text = 'no upmap keeps data away from the OSDs where CRUSH and the balance place it'
        if self.balancing:
            text += '; %s part of a balanced state' % are(self.balancing, 'upmap')
        if self.left_out:
            text += '; %s, such as PG %s: %s' % (
                plural(len(self.left_out), 'unclear case'), *min(self.left_out.items()))
        raise Refused(errno.ENOENT, text)

    def still_valid(self, osdmap: OsdMap) -> 'Adoption':
        """The result with only the pins of PGs whose upmap entries have not changed since it was
        computed; raises Refused if none is left."""
        pins = {pgid: pin for pgid, pin in self.pins.items() if osdmap.entry(pgid) == pin.entry}
        if not pins:
            raise Refused(errno.EAGAIN, 'the upmaps have changed during the computation: if '
                          'another tool changes them, stop it, then try again')
        return replace(self, pins=pins, moves=tuple(
            move for move in self.moves if move.pgid in pins))

    def _rows_to_review(self) -> List[Document]:
        """The first NAMED_PGS PGs that are taken over, each with the pairs that its release removes
        (none of a vector). For review: an upmap that was set by hand may look like a pin."""
        return [{'pgid': pgid, 'pairs': [list(pair) for pair in pin.entry.items
                                         if pair not in pin.before.items]}
                for pgid, pin in sorted(self.pins.items())[:NAMED_PGS]]

    def as_json(self, campaign: Optional[int]) -> Json:
        """The answer of the command. `campaign`: the id of the one that it has begun; None: none
        (--dry-run)."""
        left_out = sorted(self.left_out.items())
        moves = movement_of(self.moves).as_json()
        return {'verb': 'adopt', 'campaign': campaign, 'pgs': len(self.pins),
                **{key: moves[key] for key in ('shards', 'bytes', 'primaries_moving', 'osds')},
                'taken': self._rows_to_review(),
                'balancing_pgs': self.balancing, 'left_out_pgs': len(left_out),
                'left_out': [{'pgid': pgid, 'reason': why} for pgid, why in left_out[:NAMED_PGS]]}


def plan_adoption(osdmap: OsdMap, crush: CrushRules, pool_up: PoolUp, balancing: Balancing,
                  own_pgids: FrozenSet[str] = frozenset(), uncovered: bool = False,
                  raws: Raws = NO_RAWS, pool_bytes: Mapping[int, int] = {}) -> Adoption:
    """The upmaps that keep data from where CRUSH and the balance place it become pins; those that
    are part of a balanced state are only counted; unclear ones are left out, with the reason. For
    any thread.

    `pool_up`: up sets of a pool's PGs; `own_pgids`: PGs whose upmaps are perfguard's own, and are
    ignored; `uncovered`: also take over upmaps of pools that the balancer does not cover, where
    operators may have placed PGs by hand; `raws`: where CRUSH places PGs with a pg_upmap vector,
    and those that lack an OSD which is down, as far as that is known; `pool_bytes`: by pool, for
    the bytes of the moves.
    """
    pool_up, out = with_down_osds(osdmap, pool_up, raws), osdmap.out
    pins: Dict[str, PinRecord] = {}
    left_out: Dict[str, str] = {}
    balanced, moves = 0, []
    for pool_id, pgids in _pgs_with_upmaps(osdmap, own_pgids).items():
        pool, ups = osdmap.pools[pool_id], pool_up(pool_id)
        upmaps = _PoolUpmaps(osdmap, crush, pool, ups, raws)
        why_not_pool = upmaps.why_not(balancing, uncovered, pgids)
        for pgid in pgids:
            judgement = why_not_pool or upmaps.judged(pgid)
            if isinstance(judgement, PinRecord):
                pins[pgid] = judgement
                moves.append(release_move(pgid, osdmap, ups[pgid], judgement, out,
                                          pool_bytes.get(pool_id, 0)))
            elif judgement == BALANCED:
                balanced += 1
            else:
                left_out[pgid] = judgement
    return Adoption(pins=pins, left_out=left_out, balancing=balanced, moves=tuple(moves))


def _pgs_with_upmaps(osdmap: OsdMap, own_pgids: FrozenSet[str]) -> Dict[int, List[str]]:
    """Pool -> its PGs with an upmap entry, without `own_pgids`; pools without such PGs are
    absent."""
    pgids_by_pool: Dict[int, List[str]] = {}
    for pgid in {*osdmap.upmap_items, *osdmap.upmap_vectors} - own_pgids:
        if pool_of(pgid) in osdmap.pools:
            pgids_by_pool.setdefault(pool_of(pgid), []).append(pgid)
    return {pool: sorted(pgids_by_pool[pool]) for pool in sorted(pgids_by_pool)}


class _PoolUpmaps:
    """Judges which upmaps of a pool keep PGs away from where CRUSH and the balance place them."""

    def __init__(self, osdmap: OsdMap, crush: CrushRules, pool: Pool,
                 ups: Mapping[str, OsdSet], raws: Raws) -> None:
        self._osdmap, self._crush, self._pool, self._ups = osdmap, crush, pool, ups
        self._raws = raws
        self._out = osdmap.out
        #: OSD -> number of PGs that it gets from drained ones.
        self._pgs_received: 'Counter[int]' = Counter()
        self._shares_known = crush.balances(pool.crush_rule, pool.size)
        if self._shares_known:
            # No PG may move: only the shares are computed.
            self._balance = balance(pool, [PlacedPg(pgid, up, raw=None, may_move=False)
                                           for pgid, up in ups.items()], crush, osdmap.osds)

    def why_not(self, balancing: Balancing, uncovered: bool, pgids: Sequence[str]) -> str:
        """Why no entry of the pool is taken over; '' if entries may be. `uncovered`: entries may
        also be taken over if the balancer does not cover the pool; `pgids`: its PGs with upmaps."""
        if not self._shares_known:
            return NOT_MODELLED
        is_covered = balancing.covers(self._pool.id)
        # The balancer leaves a pool alone whose OSDs deviate by no more than its limit.
        max_deviation = max(SHARE_PGS, balancing.deviation if is_covered else 0.0)
        if self._balance.deviation <= max_deviation and not any(map(self._on_drained, pgids)):
            return BALANCED
        return '' if is_covered or uncovered else NOT_COVERED

    def judged(self, pgid: str) -> Union[PinRecord, str]:
        """The upmap of a PG as a pin, or why it is not taken over."""
        entry, up = self._osdmap.entry(pgid), self._ups.get(pgid)
        is_vector = entry.vector is not None
        if is_vector and pgid not in self._raws:
            return VECTOR
        if up is None:
            return 'the PG does not exist'
        merging = merge_reason(self._pool, pgid)
        if merging is not None:
            return merging
        if not self._pool.is_complete(up) and self._osdmap.absent:
            return LACKING
        raw = self._raws[pgid] if is_vector else raw_from_up(up, entry, self._out)
        if raw is None:
            return AMBIGUOUS
        pairs = self._pairs(raw, up) if is_vector else entry.items
        pin_pairs, why_unclear = self._pin_pairs(pairs, raw, up)
        # Drained OSDs on which the PG is because of its upmap alone.
        drained_osds = frozenset(osd for osd in up if osd not in raw and self._is_drained(osd))
        # The entry once the PG is released, and where the PG is then.
        entry_after = lawful(UpmapEntry(tuple(pair for pair in pairs if pair not in pin_pairs)),
                             raw, self._pool, self._crush, self._out)
        up_after = apply_entry(raw, entry_after, self._out)
        stays_on_drained = not pin_pairs or up_after == up or not drained_osds.isdisjoint(up_after)
        if drained_osds and stays_on_drained:
            leaving = None if why_unclear else self._entry_off_drained(pgid, raw, up, drained_osds)
            if leaving is None:
                return why_unclear or NO_OTHER
            entry_after = leaving
        elif not pin_pairs:
            return why_unclear or BALANCED
        elif up_after == up:
            return 'without it the PG would not move'
        return PinRecord(before=entry_after, entry=entry, raw=raw if is_vector else None)

    def _entry_off_drained(self, pgid: str, raw: OsdSet, up: OsdSet,
                           drained: AbstractSet[int]) -> Optional[UpmapEntry]:
        """The entry that moves only the shards on drained OSDs, and count its targets as such for
        the PGs that follow. If no OSD can take these shards: NO_ENTRY, so that the PG moves to
        where CRUSH places it; None if it cannot move there either.

        The pairs of the upmap do not show where these shards belong: two groups of a rule that
        chooses several OSDs in a bucket may have changed places.
        """
        final = up
        for position, osd in enumerate(up):
            if osd in drained:
                final = next(self._replaced(final, position, raw), final)
        if drained.isdisjoint(final):
            pin = plan_pin(self._pool, up, final, self._osdmap.entry(pgid), self._osdmap.osds,
                           self._crush, raw=raw, out=self._out)
            if isinstance(pin, Pin):
                self._pgs_received.update(set(final) - set(up))
                return pin.entry
        return NO_ENTRY if self._pool.is_complete(raw) and all(map(self._takes, raw)) else None

    def _replaced(self, osds: OsdSet, position: int, raw: OsdSet) -> Iterator[OsdSet]:
        """The legal sets with another OSD at a position, the best one first: an OSD that CRUSH
        chose for the PG, else the one that lacks the most PGs."""
        ideal, pgs_now = self._balance.targets.ideal, self._balance.before
        for osd in sorted(ideal, key=lambda osd: (
                osd not in raw, pgs_now.get(osd, 0) + self._pgs_received[osd] - ideal[osd], osd)):
            tried = (*osds[:position], osd, *osds[position + 1:])
            if osd not in osds and self._takes(osd) and broken_rule(
                    self._pool, tried, self._crush, self._out) is None:
                yield tried

    def _takes(self, osd: int) -> bool:
        """Whether an OSD can receive a PG now."""
        row = self._osdmap.osds.get(osd)
        return row is not None and row.is_up_and_in and not row.fullness \
            and not self._is_drained(osd)

    def _pairs(self, raw: OsdSet, up: OsdSet) -> Items:
        """The pairs that stand for the vector of a PG, which leads from `raw` to `up`. OSDs of both
        sets, which only exchange shards, are in none."""
        if self._pool.erasure:
            return tuple((old, new) for old, new in zip(raw, up)
                         if old not in up and new not in raw)
        return tuple(zip((osd for osd in raw if osd not in up),
                         (osd for osd in up if osd not in raw)))

    def _pin_pairs(self, pairs: Items, raw: OsdSet, up: OsdSet) -> Tuple[FrozenSet[Pair], str]:
        """Those of the pairs of a PG that are pins, and why another one is unclear ('': all are
        clear)."""
        pin_pairs: Set[Pair] = set()
        why_unclear = ''
        for source in [source for source, _ in pairs if source in raw and source not in up]:
            chain = _chain(source, pairs, raw)
            _, last_target = chain[-1]
            if last_target not in up:
                continue  # the chain has no effect
            reason = self._why_no_pin(source, last_target)
            if reason is None:
                pin_pairs.update(chain)
            elif reason != BALANCED:
                why_unclear = reason
        return frozenset(pin_pairs), why_unclear

    def _on_drained(self, pgid: str) -> bool:
        """Whether the upmap of a PG keeps data on an OSD that is being drained."""
        entry, up = self._osdmap.entry(pgid), self._ups.get(pgid, ())
        return any(self._is_drained(osd) for osd in (
            *(target for _, target in entry.items if target in up), *(entry.vector or ())))

    def _is_drained(self, osd: int) -> bool:
        """Whether an OSD has the least CRUSH weight with which the mons keep upmaps."""
        return self._crush.weight_of(self._pool.crush_rule, osd) < 2 * TINY_WEIGHT

    def _why_no_pin(self, source: int, target: int) -> Optional[str]:
        """Why a pair is not a pin; None: it is one, as it keeps a shard away from an OSD that lacks
        PGs, or on a drained one."""
        ideal, pgs_now = self._balance.targets.ideal, self._balance.before
        row = self._osdmap.osds.get(source)
        if not ideal.get(source):
            return BALANCED  # the source is to be empty
        source_has_share = ideal[source] - pgs_now.get(source, 0) < SHARE_PGS
        if source_has_share and not self._is_drained(target):
            return BALANCED
        if row is None or not row.up or row.reweight < 1.0 or row.fullness:
            return 'osd.%d lacks PGs, but is %s' % (source, _condition(row))
        if ideal.get(target, 0.0) - pgs_now.get(target, 0) >= SHARE_PGS:
            return 'neither osd.%d nor osd.%d has its share of PGs' % (source, target)
        return None


def _chain(source: int, pairs: Items, raw: OsdSet) -> Items:
    """The pair of a source, and those that pass its shard on: 5->6, 6->7 and 7->0 move a shard from
    osd.5 to osd.0, and the others to other positions, if osd.6 and osd.7 are in the raw set."""
    following = {old: new for old, new in pairs if old in raw}
    chain = [(source, following.pop(source))]
    while chain[-1][1] in following:
        chain.append((chain[-1][1], following.pop(chain[-1][1])))
    return tuple(chain)


def _condition(row: Optional[Osd]) -> str:
    return 'down' if row is None or not row.up else row.fullness or 'reweighted'


# ---- Upmaps as pgremapper exports and imports them

#: Maximum number of pairs in a file: about the number of upmaps with which OSDMaps become slow
#: (ceph#28373).
MOST_PAIRS = 20000
MOST_BYTES = 8 << 20
IN_FORCE = ''


def exported(osdmap: OsdMap) -> Document:
    """All pg_upmap_items, as the answer of "export"; `vectors`: number of PGs with a pg_upmap
    entry, for which pgremapper has no format."""
    return {'mappings': [{'pgid': pgid, 'mapping': {'from': source, 'to': target}}
                         for pgid, items in sorted(osdmap.upmap_items.items())
                         for source, target in items],
            'vectors': len(osdmap.upmap_vectors)}


@dataclass(frozen=True)
class Imported:
    """The result of an order to import."""
    #: The PGs that are to move: `entry` is the present one, `goal` what the import requires.
    pins: Mapping[str, PinRecord] = field(default_factory=dict)
    #: PG -> why its pairs cannot be applied.
    left_out: Mapping[str, str] = field(default_factory=dict)
    moves: Tuple[Move, ...] = ()
    #: PGs whose pairs are in force already.
    in_force: int = 0

    def risks(self, observation: Observation, space: Mapping[int, Space],
              options: Options) -> List[Risk]:
        """The risks that not everything moves, that OSDs get too full, and that the mons have to
        check too many upmaps. Raises Refused if nothing would move."""
        if not self.pins and not self.left_out:
            raise Refused(errno.ENOENT, 'nothing to import: the mappings of %s are in force'
                          % plural(self.in_force, 'PG'))
        if not self.pins:
            raise Refused(errno.ENOENT, 'nothing to import: no mapping can be carried out, %s'
                          % self._left_out_text)
        all_risks = [Risk(Code.LEFT_OUT, 'the mappings of %s cannot be carried out, %s' % (
            plural(len(self.left_out), 'PG'), self._left_out_text))] if self.left_out else []
        all_risks += _full_osd(self.moves, space, observation.osdmap.nearfull_ratio)
        beyond = why_too_many_pins(len(self.pins), options, observation.osdmap)
        if beyond:
            all_risks.append(Risk(Code.PIN_LIMIT, beyond + ': import fewer mappings at a time',
                                  errno.E2BIG))
        return all_risks

    @property
    def _left_out_text(self) -> str:
        pgid, reason = min(self.left_out.items())
        return 'such as those of PG %s: %s' % (pgid, reason)

    def still_valid(self, osdmap: OsdMap) -> 'Imported':
        """The import if no upmap entry of its PGs has changed since it was computed; raises Refused
        otherwise."""
        if any(osdmap.entry(pgid) != pin.entry for pgid, pin in self.pins.items()):
            raise Refused(errno.EAGAIN, 'the upmaps have changed during the computation of the '
                          'import: try again')
        return self

    def as_json(self, campaign: Optional[int]) -> Json:
        """The answer of the command. `campaign`: the id of the one that it has begun; None: none
        (--dry-run)."""
        moves = movement_of(self.moves)
        return {'verb': 'import', 'campaign': campaign, 'pgs': len(self.pins),
                'shards': moves.shards, 'bytes': moves.bytes,
                'primaries_moving': moves.primaries_moving, 'in_force_pgs': self.in_force,
                'left_out_pgs': len(self.left_out),
                'left_out': [{'pgid': pgid, 'reason': why}
                             for pgid, why in sorted(self.left_out.items())[:NAMED_PGS]]}


def _full_osd(moves: Sequence[Move], space: Mapping[int, Space],
              nearfull_ratio: float) -> List[Risk]:
    """The risk that these PGs together fill an OSD beyond nearfull, for the first such OSD; []:
    there is none. OSDs of unknown size do not count."""
    for load in movement_of(moves).osds:
        row, gained_bytes = space.get(load.osd), load.bytes_in - load.bytes_out
        if row is None or gained_bytes <= 0 or row.total_bytes <= 0:
            continue
        if row.used_bytes + gained_bytes > nearfull_ratio * row.total_bytes:
            return [Risk(Code.TARGET_FULL, 'not enough space: osd.%d would hold %s of %s with the '
                         'PGs that it receives (nearfull is %d %%)' % (
                             load.osd, bytes_text(row.used_bytes + gained_bytes),
                             bytes_text(row.total_bytes), 100 * nearfull_ratio), errno.ENOSPC)]
    return []


def _osd(value: object) -> int:
    if type(value) is not int:  # a bool is an int, too
        raise TypeError('%r is not an OSD ID' % (value,))
    return value


def parsed(document: bytes) -> Dict[str, List[Pair]]:
    """PG -> its pairs, in the order of the file (`document`). Raises Refused for a file that is
    invalid, empty or too long."""
    if len(document) > MOST_BYTES:
        raise Refused(errno.E2BIG, 'the file has %d bytes (limit %d)' % (len(document), MOST_BYTES))
    try:
        rows = json.loads(document)
        pairs = [(str(row['pgid']), (_osd(row['mapping']['from']), _osd(row['mapping']['to'])))
                 for row in rows]
        pairs_by_pg: Dict[str, List[Pair]] = {}
        for pgid, pair in pairs:
            pool_of(pgid)  # raises ValueError for an invalid PG id
            pairs_by_pg.setdefault(pgid, []).append(pair)
    except (LookupError, TypeError, ValueError, RecursionError) as error:
        raise Refused(errno.EINVAL, 'not a list of {"pgid": "1.1", "mapping": {"from": 100, "to": '
                      '42}}: %s' % error) from error
    if not pairs or len(pairs) > MOST_PAIRS:
        raise Refused(errno.EINVAL, 'the file has %s (must be 1 to %d)' % (
            plural(len(pairs), 'mapping'), MOST_PAIRS))
    return pairs_by_pg


def plan_import(observation: Observation, pool_up: PoolUp, pairs: Mapping[str, List[Pair]],
                raws: Raws = NO_RAWS) -> Imported:
    """The pins of an import with their moves, and why some PGs are left out. For any thread.

    `pool_up`: up sets of a pool's PGs; `pairs`: by PG, as in the file; `raws`: where CRUSH places
    PGs, if a pg_upmap vector or an OSD that is down hides that.
    """
    pool_up = with_down_osds(observation.osdmap, pool_up, raws)
    ups: Dict[int, Mapping[str, OsdSet]] = {}
    absent, out = observation.osdmap.absent, observation.osdmap.out
    in_force, pins, left_out, moves = 0, {}, {}, []
    for pgid, pg_pairs in pairs.items():
        pool = observation.osdmap.pools.get(pool_of(pgid))
        if pool is not None and pool.id not in ups:
            ups[pool.id] = pool_up(pool.id)
        up = ups[pool.id].get(pgid) if pool is not None else None
        raw = raws.get(pgid)
        goal = _goal(observation, pgid, up, pg_pairs, raw, absent, out)
        if isinstance(goal, UpmapEntry) and pool is not None and up is not None:
            present = observation.osdmap.entry(pgid)
            # The PG stays where it is until it is released.
            pins[pgid] = PinRecord(before=present, entry=present, raw=raw, goal=goal)
            moves.append(move_between(pgid, pool, up, _applied(pg_pairs, up),
                                      observation.signals.pool_bytes.get(pool.id, 0)))
        elif goal == IN_FORCE:
            in_force += 1
        else:
            left_out[pgid] = str(goal)
    return Imported(pins, left_out, tuple(moves), in_force)


def _goal(observation: Observation, pgid: str, up: Optional[OsdSet],
          pairs: List[Pair], raw: Optional[OsdSet], absent: AbstractSet[int],
          out: FrozenSet[int]) -> Union[UpmapEntry, str]:
    """The entry that leads the PG to the OSDs of its imported pairs; IN_FORCE if the PG is there
    already, or text on why it cannot be led there. `up`: None: the PG does not exist; `raw`: as in
    `plan_import`, None: not known; `absent`, `out`: OSDs that are down, and out."""
    pool, present = observation.osdmap.pools.get(pool_of(pgid)), observation.osdmap.entry(pgid)
    if pool is None or up is None:
        return 'the PG does not exist'
    if pgid in observation.osdmap.pg_temp:
        return 'the PG is remapped'
    reason = merge_reason(pool, pgid)
    if reason is not None:
        return reason
    final = _applied(pairs, up)
    for source, target in pairs:
        has_effect = source not in final and target in final
        # A pair that is in force already has no further effect.
        if not has_effect and (source, target) not in present.items:
            return 'osd.%d is not in its up set, or osd.%d is already' % (source, target)
        if target in absent:
            return 'osd.%d is down' % target
    if final == up:
        return IN_FORCE
    pin = plan_pin(pool, up, final, present, observation.osdmap.osds, observation.crush, raw=raw,
                   out=out)
    if isinstance(pin, Unpinnable):
        return pin.reason
    drained = (set(final) - set(up)) & observation.crush.light_osds
    return 'osd.%d is drained' % min(drained) if drained else pin.entry


def _applied(pairs: List[Pair], up: OsdSet) -> OsdSet:
    """The set to which the pairs lead a PG from `up`; pairs without an effect are ignored."""
    osds = list(up)
    for source, target in pairs:
        if source in osds and target not in osds:
            osds[osds.index(source)] = target
    return tuple(osds)
