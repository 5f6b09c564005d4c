# SPDX-License-Identifier: LGPL-2.1-or-later
"""perfguard-plan: perfguard's plans from dumps, for clusters that cannot load a module.

Reads files, prints a plan, changes nothing.
"""
import argparse
import contextlib
import gc
import json
import os
import sys
from dataclasses import dataclass
from typing import (Any, Callable, ContextManager, Dict, Iterable, Iterator, List, Mapping,
                    Optional, Sequence, TextIO, Tuple)

from .cluster import crush_preview
from .cluster.crush import CrushRules
from .cluster.osdmap import WrongDump, osdmap_from_dump
from .cluster.pgs import CLEAN, keep_remapped, pg_rows, wrong_pg_dump
from .cluster.ports import NoFuture
from .cluster.types import OsdMap, PgSets, Space, UpmapEntry, pool_of, seed_of
from .errors import PerfguardError, Refused
from .rebalance.joining import plan_join
from .rebalance.moves import MovePlan, plan as plan_moves
from .rebalance.orders import Order, OrderFacts, change_of
from .tables import plural
from .upmap.pins import Unpinnable, plan_pin, skip_reason
from .upmap.semantics import as_line, entry_commands, out_osds


@dataclass(frozen=True)
class PinPlan:
    """What pins every remapped PG. Keyed by PG id."""
    #: The complete new entry of each PG whose entry changes; an empty one is a removal.
    entries: Mapping[str, UpmapEntry]
    #: Why the others stay remapped.
    unpinnable: Mapping[str, str]

    def as_json(self) -> Dict[str, Any]:
        """The documented JSON: items, pg_upmap, remove, unpinnable."""
        entries = self.entries.items()
        return {
            'items': {pgid: [list(pair) for pair in e.items] for pgid, e in entries if e.items},
            'pg_upmap': {pgid: list(e.vector) for pgid, e in entries if e.vector is not None},
            'remove': [pgid for pgid, e in entries if not e],
            'unpinnable': [{'pgid': pgid, 'reason': reason}
                           for pgid, reason in self.unpinnable.items()],
        }


def plan_pins(osdmap: OsdMap, pgs: Iterable[PgSets], crush: Optional[CrushRules]) -> PinPlan:
    """Plans the pins of many PGs.

    PGs which need no change are left out of the plan, so ``pgs`` may hold clean ones.
    """
    out = out_osds(osdmap.osds)
    entries: Dict[str, UpmapEntry] = {}
    unpinnable: Dict[str, str] = {}
    for pgid, up, acting, state in sorted(pgs, key=_by_pgid):
        if up == acting:
            continue
        pool = osdmap.pools.get(pool_of(pgid))
        reason = skip_reason(pool, pgid)
        if reason is None and 'degraded' in state:
            reason = 'the PG is degraded and must recover first'
        if pool is None or reason:
            unpinnable[pgid] = reason or ''
            continue
        pin = plan_pin(pool, up, acting, osdmap.entry(pgid), osdmap.osds, crush, out=out)
        if isinstance(pin, Unpinnable):
            unpinnable[pgid] = pin.reason
        elif pin.changed:
            entries[pgid] = pin.entry
    return PinPlan(entries, unpinnable)


def _by_pgid(pg: PgSets) -> Tuple[int, int]:
    return pool_of(pg[0]), seed_of(pg[0])


def commands(osdmap: OsdMap, plan: PinPlan) -> Iterator[str]:
    """The ceph commands of a plan, one per line of a shell script, in safe order."""
    for pgid, wanted in plan.entries.items():
        yield from map(as_line, entry_commands(pgid, osdmap.entry(pgid), wanted))


def script(lines: Sequence[str], last: str = '') -> Iterator[str]:
    """The same as a script that shows its progress.

    An error of one command does not stop it, since the PGs that follow would move without their
    pins. It may be interrupted and run again: each command sets the complete entry of one PG, or
    a weight or flag to its value. `last`: a command for when none has failed.
    """
    yield '#!/bin/sh'
    # Some shells continue after Ctrl-C, since "ceph" returns an ordinary error then.
    yield 'trap \'echo "interrupted; run this script again" >&2; exit 130\' INT TERM'
    yield 'failed=0'
    for number, line in enumerate(lines, 1):
        yield line + ' || failed=$((failed + 1))'
        if number % PROGRESS_LINES == 0 or number == len(lines):
            yield 'echo "%d of %d commands, $failed failed" >&2' % (number, len(lines))
    if last:
        yield 'test "$failed" -ne 0 || %s || failed=1' % last
    yield 'test "$failed" -eq 0'


#: Commands of a script from one line of progress to the next.
PROGRESS_LINES = 20
#: Exit status for input that is missing or is not what it should be; argparse uses it, too.
BAD_INPUT = 2


class BadInput(PerfguardError):
    """A file that cannot be used; the message is the one line that the user sees."""


def main(argv: Optional[Sequence[str]] = None) -> int:
    """The console script. Returns the exit status."""
    args = _parser().parse_args(argv)
    try:
        _check(args)
        with _without_gc():
            args.carry_out(args, sys.stdout)
        sys.stdout.flush()
    except BadInput as e:
        print('perfguard-plan: %s' % e, file=sys.stderr)
        return BAD_INPUT
    except BrokenPipeError:
        # The reader, head for one, has had enough. Python flushes stdout once more at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    return 0


def _check(args: argparse.Namespace) -> None:
    if args.command != 'pin':
        return
    if [args.report, args.osd_dump, args.pg_dump, args.crush_dump].count('-') > 1:
        raise BadInput('only one of the dumps can come from standard input')
    if bool(args.report) == bool(args.osd_dump):
        raise BadInput('either --osd-dump or --report is required')
    if args.report and args.crush_dump:
        raise BadInput('--crush-dump is part of --report')


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog='perfguard-plan', description='Plan pins '
                                     'offline from dumps.')
    subparsers = parser.add_subparsers(dest='command', required=True)
    pin = subparsers.add_parser('pin', help='print the upmaps that keep every '
                                'remapped PG where its data is')
    pin.add_argument('--osd-dump', metavar='F', help='ceph osd dump -f json')
    pin.add_argument('--report', metavar='F',
                     help='ceph report, in place of --osd-dump and --crush-dump')
    pin.add_argument('--pg-dump', required=True, metavar='F',
                     help='ceph pg dump pgs_brief -f json')
    pin.add_argument('--crush-dump', metavar='F',
                     help='ceph osd crush dump -f json; without it pins are not checked against '
                          'CRUSH rules, and the mons drop pins that violate them')
    pin.set_defaults(carry_out=_pin)
    expand = subparsers.add_parser('expand', help='preview the weighting of new OSDs (CRUSH '
                                   'weight 0), and print its commands with the pins')
    expand.add_argument('what', nargs='*', help='only these OSDs, hosts or racks')
    expand.add_argument('--weight', metavar='W', help='CRUSH weight of each OSD (default: its '
                        'size in TiB)')
    drain = subparsers.add_parser('drain', help='preview the emptying of OSDs, hosts or racks, '
                                  'and print its commands with the pins')
    drain.add_argument('what', nargs='+', help='OSDs, hosts or racks')
    for change in (expand, drain):
        change.set_defaults(carry_out=_change)
        change.add_argument('--report', required=True, metavar='F', help='ceph report')
        change.add_argument('--osdmap', required=True, metavar='F', help='ceph osd getmap -o F')
        change.add_argument('--osd-df', required=True, metavar='F', help='ceph osd df -f json')
    for each in (pin, expand, drain):
        each.add_argument('--format', choices=('commands', 'sh', 'json'), default='commands',
                          help='commands: one per line; sh: a script that shows its progress and '
                          'may be interrupted and run again; json: the complete new entry of each '
                          'changed PG (default: commands)')
    return parser


@contextlib.contextmanager
def _without_gc() -> Iterator[None]:
    """JSON makes no reference cycles, but each new object brings a search for them nearer.

    On a large dump these searches, over all that was read so far, cost as much as the parsing.
    """
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def _pin(args: argparse.Namespace, output: TextIO) -> None:
    # First the largest, so that nothing else is in memory beside it.
    pgs = _read(args.pg_dump, _remapped, keep_remapped)
    osdmap, crush = _maps(args)
    _warn_if_apart(pgs, osdmap)
    plan = plan_pins(osdmap, pgs, crush)
    if args.format == 'json':
        json.dump(plan.as_json(), output)
        output.write('\n')
        return
    lines = list(commands(osdmap, plan))
    output.writelines(line + '\n' for line in (script(lines) if args.format == 'sh' else lines))
    for pgid, reason in plan.unpinnable.items():
        print('perfguard-plan: PG %s stays remapped: %s' % (pgid, reason), file=sys.stderr)


def _change(args: argparse.Namespace, output: TextIO) -> None:
    """expand and drain: what they move, and the commands that keep all data where it is."""
    osdmap, crush = _read(args.report, _reported)
    order = Order(args.command, () if args.command == 'expand' else tuple(args.what),
                  tuple(args.what) if args.command == 'expand' else (),
                  weight=getattr(args, 'weight', None))
    try:
        change = change_of(order, OrderFacts(osdmap, crush, _read(args.osd_df, _space)))
    except Refused as e:
        raise BadInput(str(e)) from e
    if change is None:
        raise BadInput('no new OSD of CRUSH weight 0 is up and in')
    encoded = _bytes(args.osdmap)
    future = crush_preview.outlook(osdmap, lambda epoch: encoded, change.weights, None,
                                   lambda: False)
    if isinstance(future, NoFuture):
        raise BadInput('cannot compute the mapping after the change: %s' % future.reason)
    join = plan_join(osdmap, future, change.drained)
    pins = PinPlan({pgid: pin.entry for pgid, pin in join.pins.items()}, join.unpinnable)
    moves = plan_moves(join.moves.values(), len(join.moves) or 1, 1, None)
    _summarize(moves, pins)
    if args.format == 'json':
        json.dump({'weights': {'osd.%d' % osd: w for osd, w in change.weights.items()},
                   'pgs': moves.pgs, 'shards': moves.shards,
                   'primaries_moving': moves.primaries_moving,
                   'osds': [{'osd': load.osd, 'pgs_in': load.pgs_in, 'pgs_out': load.pgs_out}
                            for load in moves.osds], **pins.as_json()}, output)
        output.write('\n')
        return
    hold = 'norebalance' not in osdmap.flags
    lines = [*(['ceph osd set norebalance'] if hold else []),
             *('ceph osd crush reweight osd.%d %r' % row for row in change.weights.items()),
             *commands(osdmap, pins)]
    last = 'ceph osd unset norebalance' if hold else ''
    output.writelines(line + '\n' for line in (
        script(lines, last) if args.format == 'sh' else [*lines, *filter(None, [last])]))


def _summarize(moves: MovePlan, pins: PinPlan) -> None:
    busiest = sorted(moves.osds, key=lambda load: -load.pgs_in)[:MOST_OSDS]
    into = ', '.join('osd.%d (%d)' % (load.osd, load.pgs_in) for load in busiest if load.pgs_in)
    print('perfguard-plan: %s to pin; their release moves %s, and %s primaries; most PGs enter %s'
          % (plural(len(pins.entries), 'PG'), plural(moves.shards, 'shard'),
             moves.primaries_moving, into or 'no OSD'), file=sys.stderr)
    for pgid, reason in pins.unpinnable.items():
        print('perfguard-plan: PG %s moves at once: %s' % (pgid, reason), file=sys.stderr)


#: OSDs that a summary names.
MOST_OSDS = 8


def _space(dump: Any) -> Dict[int, Space]:
    try:
        return {row['id']: Space(row['kb'] << 10, row['kb_used'] << 10, row.get('pgs'))
                for row in dump['nodes']}
    except (KeyError, TypeError) as e:
        raise WrongDump('not the output of "ceph osd df -f json"') from e


def _bytes(path: str) -> bytes:
    try:
        with open(path, 'rb') as f:
            return f.read()
    except OSError as e:
        raise BadInput('%s: %s' % (path, e.strerror)) from e


def _maps(args: argparse.Namespace) -> Tuple[OsdMap, Optional[CrushRules]]:
    if args.report:
        maps: Tuple[OsdMap, CrushRules] = _read(args.report, _reported)
        return maps
    osdmap: OsdMap = _read(args.osd_dump, osdmap_from_dump)
    return osdmap, None if args.crush_dump is None else _read(args.crush_dump, _crush)


def _reported(report: Any) -> Tuple[OsdMap, CrushRules]:
    if not isinstance(report, dict) or not {'osdmap', 'crushmap'} <= report.keys():
        raise WrongDump('not the output of "ceph report"')
    return osdmap_from_dump(report['osdmap']), _crush(report['crushmap'])


def _warn_if_apart(pgs: Sequence[PgSets], osdmap: OsdMap) -> None:
    """The OSDMap holds the acting set of every remapped PG, so dumps of one moment agree.

    PG stats lag: after a primary moved they show the interval before for some seconds.
    """
    apart = sum(osdmap.pg_temp.get(pg.pgid) != pg.acting for pg in pgs)
    if apart:
        print('perfguard-plan: the acting sets of %s differ between the PG dump and the OSD dump; '
              'if the cluster has changed in '
              'between, take both dumps again' % plural(apart, 'PG'), file=sys.stderr)


def _remapped(dump: Any) -> List[PgSets]:
    kept = [row for row in pg_rows(dump) if row is not CLEAN]
    if not all(isinstance(row, PgSets) for row in kept):
        raise wrong_pg_dump()
    return kept


def _crush(dump: Any) -> CrushRules:
    try:
        return CrushRules.from_dump(dump)
    except (KeyError, TypeError) as e:
        raise WrongDump('not the output of "ceph osd crush dump -f json"') from e


def _read(path: str, convert: Callable[[Any], Any],
          object_hook: Optional[Callable[[Any], Any]] = None) -> Any:
    try:
        with _opened(path) as f:
            return convert(json.load(f, object_hook=object_hook))
    except OSError as e:
        raise BadInput('%s: %s' % (path, e.strerror)) from e
    except WrongDump as e:
        raise BadInput('%s: %s' % (path, e)) from e
    except (ValueError, RecursionError) as e:
        raise BadInput('%s: not JSON: %s' % (path, e)) from e


def _opened(path: str) -> ContextManager[TextIO]:
    if path == '-':
        return contextlib.nullcontext(sys.stdin)
    return open(path, encoding='utf-8')


if __name__ == '__main__':
    sys.exit(main())
