# SPDX-License-Identifier: LGPL-2.1-or-later
"""Plans: pins of remapped PGs, their release, and the commands that carry them out. Pure.

The OSDMap does not contain the purpose of an upmap. So the pins to release are those that
`adopt` would take over: upmaps that keep data away from OSDs below their share of PGs.
"""
import shlex
from collections import Counter
from dataclasses import dataclass, replace
from typing import (Any, Dict, FrozenSet, Iterable, Iterator, List, Mapping, Optional, Sequence,
                    Tuple)

from ..cluster.crush import CrushRules
from ..cluster.dumps import count_states
from ..cluster.inventory import shared_devices
from ..cluster.types import (NO_OSD, Balancing, Json, OsdMap, OsdSet, PgSets, Pool, UpmapEntry,
                             pool_of, seed_of)
from ..errors import Code, Reason
from ..rebalance.adopting import plan_adoption
from ..rebalance.holds import MOVEMENT_FLAGS
from ..rebalance.moves import (Caps, Load, Move, choose, domains_of, move_between, release_move,
                               window)
from ..rebalance.releasing import foreign_flags
from ..rebalance.types import Holds, PinRecord
from ..text import pgs
from ..upmap.pins import (INCOMPLETE, Pin, Unpinnable, UnpinnableCode, has_no_target,
                          merge_reason, plan_partial_pin)
from ..upmap.semantics import PoolUp, Raws, as_line, entry_commands
from ..watch.stop_conditions import STOP_CHECKS, peering, stop_conditions
from .sources import Maps


DEGRADED_PG = Unpinnable('the PG is degraded and must recover first', UnpinnableCode.DEGRADED)


@dataclass(frozen=True)
class PinPlan:
    """The pins of all remapped PGs, by PG id."""
    #: The complete new entry of each PG whose entry changes; an empty one is a removal.
    entries: Mapping[str, UpmapEntry]
    #: Why PGs stay remapped, also those of which some shards are pinned.
    unpinnable: Mapping[str, Unpinnable]

    def as_json(self) -> Json:
        """The documented JSON: items, pg_upmap, remove, unpinnable."""
        return {**entries_json(self.entries), 'unpinnable': [
            why.as_json(pgid) for pgid, why in self.unpinnable.items()]}


def entries_json(entries: Mapping[str, UpmapEntry]) -> Json:
    return {
        'items': {pgid: [list(pair) for pair in e.items] for pgid, e in entries.items() if e.items},
        'pg_upmap': {pgid: list(e.vector) for pgid, e in entries.items() if e.vector is not None},
        'remove': [pgid for pgid, e in entries.items() if not e]}


def reasons_json(reasons: Mapping[str, str]) -> Any:
    return [{'pgid': pgid, 'reason': reason} for pgid, reason in reasons.items()]


def plan_pins(osdmap: OsdMap, pgs: Iterable[PgSets], crush: Optional[CrushRules]) -> PinPlan:
    """The pins that keep remapped PGs where their data is. PGs that need no change are left out, so
    `pgs` may contain clean ones. `crush`: None: not known, so pins are not checked against rules.
    """
    out, absent = osdmap.out, osdmap.absent
    entries: Dict[str, UpmapEntry] = {}
    unpinnable: Dict[str, Unpinnable] = {}
    for pgid, up, acting, state in sorted(pgs, key=by_pgid):
        if up == acting:
            continue
        pool = osdmap.pools.get(pool_of(pgid))
        reason = 'its pool is not in the OSDMap' if pool is None else merge_reason(pool, pgid)
        if pool is None or reason is not None:
            unpinnable[pgid] = Unpinnable(reason or '')
            continue
        # While OSDs are down, up sets lack them, and a pin may still be needed.
        if not absent and has_no_target(pool, up, acting):
            unpinnable[pgid] = INCOMPLETE
            continue
        pin = plan_partial_pin(pool, up, acting, osdmap.entry(pgid), osdmap.osds, crush, out)
        if isinstance(pin, Pin) and pin.changed:
            entries[pgid] = pin.entry
        # A pin may keep only some of the shards in place.
        unpinned_reason = pin.reason if isinstance(pin, Unpinnable) else pin.unpinned_reason
        if unpinned_reason:
            unpinnable[pgid] = DEGRADED_PG if 'degraded' in state else Unpinnable(unpinned_reason)
    return PinPlan(entries, unpinnable)


def by_pgid(pg: PgSets) -> Tuple[int, int]:
    return pool_of(pg[0]), seed_of(pg[0])


# ---- Releases: which upmaps hold PGs back, and in which order they are released

@dataclass(frozen=True)
class HeldBack:
    """The PGs that upmaps hold back."""
    pins: Mapping[str, PinRecord]
    #: The moves of the PGs that may be released now.
    moves: Tuple[Move, ...]
    #: Upmaps that are left alone, and pins that must wait, with the reason.
    left_out: Mapping[str, str]
    #: The moves in progress.
    in_flight: Tuple[Move, ...] = ()

    def entries(self, pgids: Iterable[str]) -> Dict[str, UpmapEntry]:
        """The complete entries after the release."""
        return {pgid: self.pins[pgid].leads_to for pgid in pgids}


def held_back(maps: Maps, crush: CrushRules, rows: Sequence[PgSets], raws: Raws,
              pg_limit: int) -> HeldBack:
    """The pins of the cluster, with the moves to which their release leads. Pins that must wait,
    also since an OSD would hold more than `pg_limit` PGs (mon_max_pg_per_osd), are left out.
    `rows`: all PGs; `raws`: where CRUSH places PGs whose up sets do not show it."""
    osdmap, out = maps.osdmap, maps.osdmap.out
    row_of = {row.pgid: row for row in rows}
    # Balancing(): as if the balancer covered all pools with its default deviation.
    adoption = plan_adoption(osdmap, crush, pool_up_of(rows), Balancing(), raws=raws)
    left_out, moves, room = dict(adoption.left_out), [], _room(rows, pg_limit)
    for pgid, pin in adoption.pins.items():
        pool = osdmap.pools[pool_of(pgid)]
        move = release_move(pgid, osdmap, row_of[pgid].up, pin, out,
                            maps.pool_bytes.get(pool.id, 0))
        why_not = _why_not(row_of[pgid], pool)
        crowded = [osd for osd in move.targets if room.get(osd, pg_limit) <= 0]
        if why_not:
            left_out[pgid] = why_not
        elif crowded:
            left_out[pgid] = 'osd.%d would hold more PGs than mon_max_pg_per_osd (%d)' % (
                crowded[0], pg_limit)
        else:
            moves.append(move)
            room.update((osd, room.get(osd, pg_limit) - 1) for osd in move.targets)
    return HeldBack(adoption.pins, tuple(moves), left_out, tuple(_moving(maps, rows)))


def pool_up_of(rows: Iterable[PgSets]) -> PoolUp:
    ups: Dict[int, Dict[str, OsdSet]] = {}
    for row in rows:
        ups.setdefault(pool_of(row.pgid), {})[row.pgid] = row.up
    return lambda pool: ups.get(pool, {})


def stops(maps: Maps, rows: Sequence[PgSets]) -> List[Reason]:
    """The stop conditions of the module that hold now. Nothing follows the PGs that are released,
    so a condition of one PG stops all releases."""
    states = Counter(row.state for row in rows if row.state)
    # Without any state, the input has only sets of OSDs.
    counts = count_states(states.items(), maps.osdmap.pg_count if states else 0)
    conditions = stop_conditions(replace(maps.signals, counts=counts))
    full = counts.backfill_toofull
    # Holds(): this command has set no flag itself.
    return [*(stop.reason for stop in conditions), *peering(counts), *([Reason(
        Code.BACKFILL_TOOFULL, 'the targets of %s are too full for backfill' % pgs(full))]
        if full else []), *foreign_flags(Holds(), maps.osdmap.flags)]


def _why_not(row: PgSets, pool: Pool) -> str:
    """Why a pin must wait; '': it may be released."""
    if 'degraded' in row.state or 'undersized' in row.state or NO_OSD in row.acting:
        return DEGRADED_PG.reason
    if row.up != row.acting:
        return INCOMPLETE.reason if has_no_target(pool, row.up, row.acting) \
            else 'the PG is moving already'
    return ''


def _room(rows: Sequence[PgSets], pg_limit: int) -> Dict[int, int]:
    """OSD -> number of PGs that it may receive until it holds `pg_limit`. An OSD that is not in any
    set is not in the result."""
    pgs_by_osd = Counter(osd for row in rows for osd in {*row.up, *row.acting})
    return {osd: pg_limit - number for osd, number in pgs_by_osd.items()}


def _moving(maps: Maps, rows: Sequence[PgSets]) -> Iterator[Move]:
    """The moves of remapped PGs, without PGs that have nowhere to move: these delay no other."""
    for row in rows:
        pool = maps.osdmap.pools.get(pool_of(row.pgid))
        if pool is not None and row.up != row.acting \
                and not has_no_target(pool, row.up, row.acting):
            yield move_between(row.pgid, pool, row.acting, row.up,
                               maps.pool_bytes.get(pool.id, 0))


def batches(plan: HeldBack, maps: Maps, crush: CrushRules, caps: Caps) -> Iterator[List[Move]]:
    """The moves in the order of their release, each batch as large as the caps allow.

    The first one starts while other PGs are in flight, and may be empty; each of the others starts
    when all earlier ones have arrived. `caps`: each at least 1, so that any move fits when nothing
    is in flight, and no further batch is empty.
    """
    load = _load(maps, crush)
    for move in plan.in_flight:
        load.add(move.pgid, move)
    waiting = list(plan.moves)
    while waiting:
        chosen = choose(window(waiting, start=0), load, caps)
        yield chosen
        released = {move.pgid for move in chosen}
        waiting = [move for move in waiting if move.pgid not in released]
        load = _load(maps, crush)


def _load(maps: Maps, crush: CrushRules) -> Load:
    return Load(crush.host_of, domains_of(crush, maps.osdmap.pools), shared_devices(maps.devices))


# ---- Commands of plans, and scripts that run them

#: Number of commands per line of progress.
PROGRESS_LINES = 20
#: PG states in which a script sends no further batch, as patterns of a shell.
UNSETTLED = ('remapped', 'degraded', 'undersized', 'peering', 'activating', 'creating', 'unknown',
             'stale', 'down', 'incomplete', 'laggy', '+wait', 'recover')
#: PG statistics lag behind the OSDMap by seconds.
LAG = 'sleep 10'
#: RECEIVERS: ids of OSDs, with | between them. A PG that is released to one that is down and in
#: lacks a copy at once; if it is out, CRUSH chooses another. A PG that is clean and remapped stays
#: where it is.
SETTLE = (LAG + '; until pgs=$(CEPH pg stat) && osds=$(CEPH osd dump) && '
          'checks=$(CEPH health detail) && case "$(echo "${pgs%%;*}" | '
          'sed s/clean+remapped/clean/g)" in (STATES) false ;; esac && '
          '! printf "%s\\n" "$osds" "$checks" | grep -E "^osd[.](RECEIVERS) (down in |.*full)|'
          '^flags .*(FLAGS)|^[[][A-Z]+[]] (CHECKS):" >&2; do echo "waiting for PGs, OSDs, flags '
          'or health: $pgs" >&2; sleep 10; done').replace(
              'STATES', '|'.join('*%s*' % state for state in UNSETTLED)).replace(
                  'FLAGS', '|'.join(MOVEMENT_FLAGS)).replace('CHECKS', '|'.join(STOP_CHECKS))
CEPH = 'ceph'
#: Nothing moves until all commands were executed. A flag that others have set is left alone; they
#: may have set or cleared it since the plan was made. Without it this is not the rest of an
#: interrupted run, and pins for another CRUSH map, or of a run that has ended, would move data.
HOLD = '''osds=$(CEPH osd dump) || exit 1
if echo "$osds" | grep "^flags.*norebalance" > /dev/null; then
    echo "norebalance was set before, so it stays set" >&2
    hold=theirs
elif echo "$osds" | grep -x "crush_version VERSION" > /dev/null; then
    hold=ours
    CEPH osd set norebalance || exit 1
else
    echo "CRUSH has changed since it was planned (version VERSION): plan again" >&2
    exit 1
fi'''
LET_GO = '''if test "$failed" -ne 0; then
    echo "norebalance stays set, since commands failed: run this script again" >&2
elif test "$hold" = ours; then
    CEPH osd unset norebalance || failed=1
else
    echo "unset norebalance when nothing else needs it; an interrupted run may have set it" >&2
fi'''
#: What a shell reports if commands that are piped to it fail once the flag is set.
STOP = ('trap \'test "$?" -eq 0 || echo "stopped: norebalance stays set, so no PG moves; pin the '
        'remaining PGs (perfguard-plan pin), then unset it" >&2\' EXIT')


def commands(osdmap: OsdMap, entries: Mapping[str, UpmapEntry]) -> Iterator[str]:
    """The ceph commands that give PGs these entries, one per line, in safe order."""
    for pgid, entry in entries.items():
        yield from map(as_line, entry_commands(pgid, osdmap.entry(pgid), entry))


@dataclass(frozen=True)
class CommandBatch:
    lines: Sequence[str]
    #: OSDs that receive PGs; None: it does not wait.
    receivers: Optional[FrozenSet[int]] = None

    def settle(self, ceph: str) -> Iterator[str]:
        """The command that waits until no PG moves or is in trouble, and no receiver is down or
        nearly full."""
        if self.receivers is not None:
            receivers = '|'.join(map(str, sorted(self.receivers))) or 'none'
            yield SETTLE.replace('CEPH', ceph).replace('RECEIVERS', receivers)


@dataclass(frozen=True)
class Script:
    """The commands of a plan."""
    batches: Sequence[CommandBatch]
    #: The version of CRUSH of a plan for which no data must move until all commands have been
    #: executed; None: it may.
    hold: Optional[int] = None
    #: The commands that undo the plan.
    back: Sequence[str] = ()
    #: Another plan may be made right after it, which must see what it moves.
    repeated: bool = False

    @property
    def for_shell(self) -> bool:
        """Whether it has more than commands, which requires a shell."""
        return self.hold is not None or any(
            batch.receivers is not None for batch in self.batches)

    def begin(self, ceph: str) -> Iterator[str]:
        if self.hold is not None:
            yield HOLD.replace('CEPH', ceph).replace('VERSION', str(self.hold))

    def end(self, ceph: str) -> Iterator[str]:
        if self.repeated and self.batches:
            yield LAG
        if self.hold is not None:
            yield LET_GO.replace('CEPH', ceph)


def listing(plan: Script, fsid: str = '', conf: str = '') -> Iterator[str]:
    """One command per line. `fsid`: of the only cluster that the lines may change, if they need a
    shell in any case; '': not known. `conf`: the cluster's configuration file; '': the default.

    The lines may be piped to a shell: waits precede each batch of a plan. If nothing must move,
    they first set norebalance, and the shell exits on the first error.
    """
    ceph = '%s -c %s' % (CEPH, shlex.quote(conf)) if conf else CEPH
    if plan.for_shell and fsid:
        yield from _only_on(fsid, ceph)
    if plan.hold is not None:
        yield from ('set -e', *plan.begin(ceph), STOP, 'failed=0')
    for batch in plan.batches:
        yield from batch.settle(ceph)
        yield from (ceph + line[len(CEPH):] for line in batch.lines)
    yield from plan.end(ceph)
    if plan.hold is not None:
        yield 'test "$failed" -eq 0'


def script(plan: Script, fsid: str = '', conf: str = '') -> Iterator[str]:
    """The commands as a script that shows its progress. `fsid`, `conf`: as for `listing`.

    An error of one command does not stop it, since the PGs that follow would move without their
    pins. It may be interrupted and run again: each command sets the complete entry of one PG, or a
    weight to its value.
    """
    yield '#!/bin/sh'
    if conf:
        yield 'CEPH_CONF=%s; export CEPH_CONF' % shlex.quote(conf)
    if fsid:
        yield from _only_on(fsid, CEPH)
    # Some shells continue after Ctrl-C, since "ceph" returns an ordinary error then.
    yield 'trap \'echo "interrupted; run this script again" >&2; exit 130\' INT TERM'
    yield from ('# to go back: ' + line for line in plan.back)
    yield 'failed=0'
    yield from plan.begin(CEPH)
    yield from _counted(plan.batches)
    yield from plan.end(CEPH)
    yield 'test "$failed" -eq 0'


def _only_on(fsid: str, ceph: str) -> Iterator[str]:
    """Lines that refuse another cluster, in which PGs and OSDs have the same ids."""
    yield 'planned_for=%s' % shlex.quote(fsid)
    yield ('test "$(%s fsid)" = "$planned_for" || {\n    echo "this script is for cluster '
           '$planned_for: set CEPH_CONF" >&2\n    exit 1\n}' % ceph)


def _counted(batches: Sequence[CommandBatch]) -> Iterator[str]:
    """The lines of the batches, which count failures and print progress."""
    number, total = 0, sum(len(batch.lines) for batch in batches)
    for batch in batches:
        yield from batch.settle(CEPH)
        for at, line in enumerate(batch.lines, 1):
            number += 1
            yield line + ' || failed=$((failed + 1))'
            if number % PROGRESS_LINES == 0 or at == len(batch.lines):
                yield 'echo "%d of %d commands, $failed failed" >&2' % (number, total)
