# SPDX-License-Identifier: LGPL-2.1-or-later
"""What changes after PGs have moved have in common: mostly another CRUSH rule or pg_num for a pool.
Pure.

If PGs would have to move, and the mons would cancel the pins that keep them, the PGs move first: by
upmaps, to where they end. Then the change is made, which remaps nothing, and the upmaps that are
not needed any longer are removed. pool_rule.py and pg_num.py say when.
"""
import errno
from dataclasses import dataclass, replace
from typing import ClassVar, Dict, FrozenSet, Mapping, Optional, TypeVar

from ..cluster.ports import Future
from ..cluster.types import OsdMap, OsdSet, Pool, UpmapEntry, pool_of
from ..errors import Refused
from ..observation import Observation
from ..text import pgs
from ..upmap.pins import Unpinnable, plan_pin
from .change import Change, Planned
from .join_plan import keeps
from .moves import Move, move_between
from .types import PinRecord

#: Share of a pool's PGs that may be remapped when it is changed.
MOST_REMAPPED = 0.005
#: Maximum number of passes that move PGs to where the change places them. More than one pass is
#: needed if CRUSH is changed, or OSDs fail, while PGs move.
MOST_PASSES = 5
Passing = TypeVar('Passing', bound='PassingChange')


@dataclass(frozen=True)
class PassingChange(Change):
    """A change that is made once PGs have moved, in as many passes as that takes."""
    #: Number of passes that have moved PGs so far, or since it was resumed.
    passes: int = 0

    def first_moves(self, observation: Observation, outlook: Future,
                    pins: Mapping[str, PinRecord]) -> Optional[Planned]:
        """The moves of the next pass; None after MOST_PASSES passes."""
        if not self.moving_first or self.passes >= MOST_PASSES:
            return None
        first = first_moves(observation, outlook, outlook.finals, pins)
        return first if first.pins else None

    def moves_noted(self) -> Change:
        return replace(self, passes=self.passes + 1)

    def resumed(self: Passing) -> Passing:
        # An abort ends a pass before it has moved all of its PGs. One still counts: it shows that
        # PGs have moved.
        return replace(self, passes=min(self.passes, 1))


@dataclass(frozen=True)
class PoolChange(PassingChange):
    #: What the pool gets last.
    value: ClassVar[str]

    moves_first: bool = False

    def pool_in(self, osdmap: OsdMap) -> Optional[Pool]:
        """The pool of the change; None: it was deleted."""
        return None if self.pool is None else osdmap.pools.get(self.pool)

    def succeeds(self, aborted: Change) -> bool:
        return aborted.kind == self.kind and aborted.pool == self.pool

    @property
    def features(self) -> Mapping[str, str]:
        return {'PGs move before the pool is changed:': 'yes' if self.moves_first else 'no'}

    def impossible(self, observation: Observation) -> str:
        pool = self.pool_in(observation.osdmap)
        return 'the pool no longer exists' if pool is None else self._overtaken(observation, pool)

    def _overtaken(self, observation: Observation, pool: Pool) -> str:
        """Why others have made the change impossible; '' if they have not."""
        raise NotImplementedError

    def harmful(self, observation: Observation, unpinnable: Mapping[str, Unpinnable]) -> str:
        pool = self.pool_in(observation.osdmap)
        if pool is None or len(unpinnable) <= MOST_REMAPPED * pool.pg_num:
            return ''
        pgid = min(unpinnable)
        return '%s of pool %s would be remapped by the new %s, such as PG %s: %s' % (
            pgs(len(unpinnable)), pool.name, self.value, pgid, unpinnable[pgid].reason)

    def upmaps_to_remove(self, osdmap: OsdMap, future: Future) -> Mapping[str, PinRecord]:
        return upmaps_to_remove(osdmap, future) if self.moves_first else {}

    def first_moves_text(self, osdmap: OsdMap) -> str:
        pool = self.pool_in(osdmap)
        return '' if pool is None else 'of pool %s will move before its %s is changed' % (
            pool.name, self.value)


def refuse_incomplete(pool: Pool, future: Future, rule: str) -> None:
    """Raise Refused for a rule that finds too few OSDs for PGs of the pool."""
    short = [pgid for pgid, pg in future.all() if not pool.is_complete(pg.raw)]
    if short:
        raise Refused(errno.EINVAL, 'CRUSH rule %s finds fewer than %d OSDs for %s of pool %s, '
                      'such as PG %s' % (rule, pool.size, pgs(len(short)), pool.name, min(short)))


def first_moves(observation: Observation, future: Future,
                finals: Optional[Mapping[str, OsdSet]] = None,
                pins: Mapping[str, PinRecord] = {}, changed: Optional[Pool] = None,
                upmaps_only: bool = False) -> Planned:
    """The PGs that move before a change is made, with the upmaps that lead to their final sets;
    without those that are remapped already.

    `finals`: PG -> final set; None: where the change places the PGs. `pins`: the present ones,
    whose other entries are kept. `changed`: the pool of all PGs, if its rule or pg_num is another
    one while they move. `upmaps_only`: nothing but upmaps is changed, so replicated PGs may end in
    any order.
    """
    osdmap, out = observation.osdmap, observation.osdmap.out
    records: Dict[str, PinRecord] = {}
    moves: Dict[str, Move] = {}
    unpinnable: Dict[str, Unpinnable] = {}
    for pgid, final in (_moved_by_crush(osdmap, future, out) if finals is None else finals).items():
        pool = changed or osdmap.pools.get(pool_of(pgid))
        if pool is None or pgid in osdmap.pg_temp:
            continue
        present, pg = osdmap.entry(pgid), future.of(pgid)
        final_pin = plan_pin(pool, pg.acting, final, present, osdmap.osds, observation.crush,
                             raw=pg.raw if upmaps_only else None, exact=not upmaps_only, out=out)
        if isinstance(final_pin, Unpinnable):
            unpinnable[pgid] = final_pin
            continue
        pin = pins.get(pgid, PinRecord(present, present))
        records[pgid] = replace(pin, entry=present, goal=final_pin.entry)
        moves[pgid] = move_between(pgid, pool, pg.acting, final,
                                   observation.signals.pool_bytes.get(pool.id, 0))
    return Planned(records, unpinnable, moves)


def _moved_by_crush(osdmap: OsdMap, future: Future, out: FrozenSet[int]) -> Mapping[str, OsdSet]:
    """PG -> where CRUSH would move it without upmaps; only PGs that move."""
    return {pgid: pg.raw for pgid, pg in future.pgs.items()
            if not keeps(pg, UpmapEntry(), osdmap.entry(pgid), out)}


def upmaps_to_remove(osdmap: OsdMap, future: Future) -> Dict[str, PinRecord]:
    """The upmaps of PGs that may not need them once their pool, or CRUSH, is changed, as pins: so
    they are removed when the change has been read back, and not before."""
    return {pgid: PinRecord(UpmapEntry(), osdmap.entry(pgid))
            for pgid in {*osdmap.upmap_items, *osdmap.upmap_vectors} if pgid in future.pgs}
