# SPDX-License-Identifier: LGPL-2.1-or-later
"""The command perfguard-plan."""
import argparse
import contextlib
import errno
import gc
import json
import os
import signal
import sys
import time
from dataclasses import replace
from typing import Any, Dict, Iterator, List, Mapping, Optional, Sequence, Tuple

from ..cluster import crush_preview
from ..cluster.crush import CrushRules
from ..cluster.ports import NoFuture, Outlook
from ..cluster.types import ConfigEntry, Json, OsdMap, PgSets, UpmapEntry
from ..errors import Code, Reason, Refused, texts
from ..observation import Observation, Settings
from ..options import DEFAULTS, STORED_PREFIX, LiveOptions, Options
from ..rebalance.campaign_orders import not_fit
from ..rebalance.change import Change
from ..rebalance.epochs import why_too_many_pins
from ..rebalance.moves import Caps, Move, Movement, movement_of
from ..rebalance.orders import (Order, OrderFacts, expansion, how_to_leave_empty, is_tiny,
                                left_out_text, words)
from ..rebalance.preview import Preview, weights_preview
from ..rebalance.releasing import BALANCER_ON
from ..rebalance.requests import unfit
from ..rebalance.risks import Risk, accepted, of_health, refuse
from ..rebalance.throttle import caps as caps_of, pgs_in_flight
from ..rebalance.types import TINY_WEIGHT
from ..text import listed, osds_text, pgs_are, plural
from ..upmap.pins import INCOMPLETE, Unpinnable
from ..upmap.semantics import NO_RAWS, Raws, pgs_lacking_osds
from .plans import (CommandBatch, HeldBack, PinPlan, Script, batches, commands, entries_json,
                    held_back, listing, plan_pins, pool_up_of, reasons_json, script, stops)
from .sources import BadInput, Dumps, LiveCluster, Maps, Source, Terminal, connected

#: Exit status for missing or invalid input; argparse uses it, too.
BAD_INPUT = 2
#: Exit status of a process that SIGINT has ended, as shells report it.
INTERRUPTED = 130
#: Maximum number of OSDs that a summary names.
MOST_OSDS = 8
#: Maximum number of reasons that are printed.
MOST_REASONS = 20
#: Options of release and plan, with the module options whose defaults they have.
CAPS: Mapping[str, Tuple[str, str]] = {
    '--max-backfills': ('max_pgs_in_flight', 'maximum number of PGs in flight (default: as many '
                        'as the other limits allow on the whole cluster, at least 32)'),
    '--osd-max-backfills': ('max_backfills_target', 'maximum number of PGs in flight to one OSD, '
                            'and from one OSD (default: %d)' % DEFAULTS.max_backfills_target),
    '--host-max-backfills': ('max_backfills_host', 'maximum number of PGs in flight to or from '
                             'one host (default: %d)' % DEFAULTS.max_backfills_host),
    '--device-max-backfills': ('max_backfills_device', 'maximum number of PGs in flight of OSDs '
                               'that share a drive or DB device (default: %d)'
                               % DEFAULTS.max_backfills_device),
    '--domain-max-backfills': ('max_backfills_domain', 'maximum number of PGs in flight to or '
                               'from one failure domain (default: %d)'
                               % DEFAULTS.max_backfills_domain)}


#: Why a PG is not pinned: its data may have arrived since the dump was taken, and would move back.
MAPS_APART = Unpinnable('the OSDMap is newer and has another acting set: plan again')
#: The limit of PGs per OSD, and its default on Pacific to Tentacle.
PG_LIMIT, DEFAULT_PG_LIMIT = 'mon_max_pg_per_osd', 250
#: Options of the module by which it refuses changes of CRUSH and pins.
REFUSING_OPTIONS = ('max_pins', 'max_unpinnable_ratio')
#: Maximum length of an unexpected error.
MOST_REPR_CHARACTERS = 200


def main(argv: Optional[Sequence[str]] = None) -> int:
    """The console script. Returns the exit status."""
    args = _parser().parse_args(argv)
    progress = Terminal(sys.stderr)
    try:
        with _without_gc():
            text = args.carry_out(args, _source(args, progress), progress)
        # All at once: an interrupted plan prints nothing.
        sys.stdout.write(text)
        sys.stdout.flush()
    except (BadInput, Refused) as e:
        say(str(e))
        return BAD_INPUT
    except (LookupError, TypeError, AttributeError) as e:
        # Parsed, but with a value of another type, or without a key.
        say('a dump has an unexpected value (%s)' % repr(e)[:MOST_REPR_CHARACTERS])
        return BAD_INPUT
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        # The reader, such as head, has closed the pipe. Python flushes stdout again at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    return 0


def say(text: str) -> None:
    print('perfguard-plan: ' + text, file=sys.stderr)


# ---- the command line

def _parser() -> argparse.ArgumentParser:
    """The arguments of perfguard-plan."""
    parser = argparse.ArgumentParser(
        prog='perfguard-plan', description='Plan pins, their release, expansions and drains, from '
        'dumps or from a live cluster. Prints commands or a script; changes nothing.')
    subparsers = parser.add_subparsers(dest='command', required=True)
    pin = subparsers.add_parser('pin', help='print the upmaps that keep every '
                                'remapped PG where its data is')
    release = subparsers.add_parser('release', help='print the commands that release the next '
                                    'batch of pinned PGs')
    plan = subparsers.add_parser('plan', help='preview the release of all pinned PGs, and print '
                                 'its commands, batch by batch')
    expand = subparsers.add_parser('expand', help='preview an expansion to new OSDs (CRUSH '
                                   'weight 0), and print the commands that set weights and pins')
    expand.add_argument('what', nargs='*', help='only these OSDs, hosts or racks')
    expand.add_argument('--weight', metavar='W', help='CRUSH weight of each OSD (default: its '
                        'size in TiB)')
    expand.add_argument('--drain', nargs='+', metavar='WHAT', default=[], help='OSDs, hosts or '
                        'racks that the same change empties')
    drain = subparsers.add_parser('drain', help='preview a drain of OSDs, hosts or racks, and '
                                  'print the commands that set weights and pins')
    drain.add_argument('what', nargs='+', help='OSDs, hosts or racks')
    for command, carry_out in ((pin, _pin), (release, _release), (plan, _release),
                               (expand, _change), (drain, _change)):
        command.set_defaults(carry_out=carry_out)
        _add_source(command)
        command.add_argument('--format', choices=('commands', 'sh', 'json'), default='commands',
                             help='commands: one per line; sh: a script that shows its progress '
                             'and may be interrupted and run again; json: the complete new entry '
                             'of each changed PG (default: commands)')
    for command in (pin, release, plan):
        _add_pg_dumps(command)
    for command in (release, plan):
        for option, (_, text) in CAPS.items():
            command.add_argument(option, metavar='N', type=_positive, help=text)
        _add_osdmap(command, 'ceph osd getmap -o F; without it, or without osdmaptool, PGs with a '
                    'pg_upmap entry are left alone')
    for command in (release, plan, expand, drain):
        command.add_argument('--mon-max-pg-per-osd', metavar='N', type=_positive,
                             help='the value of this option of Ceph (default: %d; --live reads it)'
                             % DEFAULT_PG_LIMIT)
    for command in (pin, expand, drain):
        command.add_argument('--accept', action='append', default=[], metavar='CODE',
                             help='go on despite the risk of this code, which a refusal names')
    for command in (expand, drain):
        command.add_argument('--osd-df', metavar='F', help='ceph osd df -f json')
        _add_osdmap(command, 'ceph osd getmap -o F')
    return parser


def _add_source(parser: argparse.ArgumentParser) -> None:
    """Add the arguments that say where the cluster is read."""
    parser.add_argument('--report', metavar='F', help='ceph report')
    live = parser.add_argument_group('a live cluster in place of dumps')
    live.add_argument('--live', action='store_true', help='read the cluster through librados '
                      "(python3-rados; the user needs mon 'allow r' and mgr 'allow r')")
    live.add_argument('-c', '--conf', metavar='F', help='as for the ceph command')
    live.add_argument('-n', '--name', help='cephx user (default: client.admin)')
    live.add_argument('--id', help='cephx user without "client."')
    live.add_argument('-k', '--keyring', metavar='F')
    live.add_argument('--cluster', default='ceph', help=argparse.SUPPRESS)


def _add_pg_dumps(parser: argparse.ArgumentParser) -> None:
    parser.add_argument('--osd-dump', metavar='F', help='ceph osd dump -f json, in place of '
                        '--report')
    parser.add_argument('--pg-dump', metavar='F', help='ceph pg dump pgs_brief -f json')
    parser.add_argument('--crush-dump', metavar='F', help='ceph osd crush dump -f json, with '
                        '--osd-dump; without it pins are not checked against '
                        'CRUSH rules, and the mons drop pins that violate them')


def _add_osdmap(parser: argparse.ArgumentParser, text: str) -> None:
    parser.add_argument('--osdmap', metavar='F', help=text)


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise ValueError
    return number


def _source(args: argparse.Namespace, progress: Terminal) -> Source:
    """The source that the arguments name. Raises BadInput if they contradict each other."""
    # expand and drain have no --pg-dump: they compute the sets of PGs.
    required = ('pg_dump',) if hasattr(args, 'pg_dump') else ('osd_df', 'osdmap')
    present = [name for name in ('report', 'osd_dump', 'crush_dump', 'pg_dump', 'osd_df', 'osdmap')
               if getattr(args, name, None)]
    if args.live and present:
        raise BadInput('--live replaces %s' % _option(present[0]))
    if args.live:
        # Ctrl-C ends the process at once, also while librados waits for a cluster that hangs. The
        # cluster is only read, so nothing is lost.
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        return LiveCluster(connected(args), progress, say)
    for name in required:
        if name not in present:
            raise BadInput('%s (or --live) is required' % _option(name))
    return Dumps(args, progress)


def _option(name: str) -> str:
    return '--' + name.replace('_', '-')


@contextlib.contextmanager
def _without_gc() -> Iterator[None]:
    """Parsing JSON creates no reference cycles, but its objects trigger searches for them.

    On a large dump these searches, over all that was read so far, cost as much as the parsing.
    """
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


# ---- the subcommands

def _maps(source: Source) -> Maps:
    """The maps of the source. Raises BadInput if the commands of a plan would do harm."""
    # A campaign of the module would fight these commands.
    campaign = source.module_campaign()
    if campaign:
        raise BadInput(campaign)
    maps = source.maps()
    # The mons would change weights but refuse all pins, so the data would move at once.
    why_no_pins = unfit(maps.osdmap)
    if why_no_pins:
        raise BadInput(why_no_pins)
    return maps


def _pin(args: argparse.Namespace, source: Source, progress: Terminal) -> str:
    """The output of "pin": the commands that pin all remapped PGs to where their data is. PGs that
    stay remapped are named on standard error."""
    # The largest dump is read first, so that it is alone in memory.
    pgs = source.pgs(also_clean=False)
    maps = _maps(source)
    differing = _warn_if_dumps_differ(pgs, maps.osdmap)
    _warn_of_balancer(source)
    progress.say('planning pins for ' + plural(len(pgs), 'PG'))
    plan = plan_pins(maps.osdmap, [pg for pg in pgs if pg.pgid not in differing], maps.crush)
    plan = replace(plan, unpinnable={**plan.unpinnable, **dict.fromkeys(differing, MAPS_APART)})
    _refuse_many_pins(len(plan.entries), args, maps.osdmap, _module_options(source.config()))
    if args.format != 'json':
        _explain('stays remapped', _texts(plan.unpinnable))
    return _printed(args, maps, plan.as_json(),
                    Script([CommandBatch(list(commands(maps.osdmap, plan.entries)))]))


def _refuse_many_pins(pins: int, args: argparse.Namespace, osdmap: OsdMap, options: Options,
                      advice: str = '') -> None:
    """Raise BadInput for more pins than the mons should check in each epoch."""
    why = why_too_many_pins(pins, options, osdmap)
    risks = [Risk(Code.PIN_LIMIT, why + advice, errno.E2BIG)] if why else []
    refuse(risks, accepted(args.accept), command='')


def _warn_of_balancer(source: Source) -> None:
    if source.balances():
        say(BALANCER_ON.text)


def _release(args: argparse.Namespace, source: Source, progress: Terminal) -> str:
    """The output of "release" and "plan": the commands that release the PGs of the next batch
    (release), or of all batches (plan). What they move is named on standard error."""
    only_next = args.command == 'release'
    pgs = source.pgs(also_clean=True)
    maps = _maps(source)
    if maps.crush is None:
        raise BadInput('--crush-dump is required with --osd-dump')
    _warn_if_dumps_differ([pg for pg in pgs if pg.up != pg.acting], maps.osdmap)
    _refuse_or_warn(args.command, stops(maps, pgs) + ([BALANCER_ON] if source.balances() else []))
    plan = held_back(maps, maps.crush, pgs, _raws(maps.osdmap, source, pgs),
                     _pg_limit(args, source.config()))
    caps = _caps(args, maps)
    batches = _batches(plan, maps, caps, only_next, progress)
    movement = movement_of([move for batch in batches for move in batch], caps.pgs, caps.target)
    _summarize_release(args.command, plan, movement)
    _warn_of_unknown_devices(plan, maps)
    _name_emptied_osds(maps.crush, maps.osdmap, pgs)
    all_entries: Dict[str, UpmapEntry] = {}
    command_batches = []
    for batch in batches:
        entries = plan.entries(move.pgid for move in batch)
        all_entries.update(entries)
        # A single batch does not wait.
        receivers = None if only_next else frozenset(
            osd for move in batch for osd in move.targets)
        command_batches.append(CommandBatch(list(commands(maps.osdmap, entries)), receivers))
    return _printed(args, maps, {
        **_movement_json(movement, maps), 'pinned': len(plan.pins),
        'in_flight': len(plan.in_flight),
        'batches': [[move.pgid for move in batch] for batch in batches],
        **entries_json(all_entries), 'left_out': reasons_json(plan.left_out)},
        Script(command_batches, repeated=only_next))


def _warn_of_unknown_devices(plan: HeldBack, maps: Maps) -> None:
    """Warn of OSDs that take part in these releases and whose devices are not known: they may share
    a drive with others."""
    unknown = {osd for move in plan.moves for osd in (*move.sources, *move.targets)
               } - maps.devices.keys()
    if unknown:
        say('the drives and DB devices of %s are not known: those that several OSDs share do not '
            'limit these releases' % osds_text(unknown, MOST_OSDS))


def _name_emptied_osds(crush: CrushRules, osdmap: OsdMap, pgs: Sequence[PgSets]) -> None:
    """Print the command that gives a drained OSD CRUSH weight 0, for each that is empty. OSDs that
    are down do not count: the sets of PGs do not contain them in any case."""
    empty = {osd for osd, weight in crush.weights().items() if is_tiny(weight)} - {
        osd.id for osd in osdmap.osds.values() if not osd.up}
    if empty:
        empty.difference_update(*(pg.up for pg in pgs), *(pg.acting for pg in pgs))
    for osd in sorted(empty)[:MOST_OSDS]:
        say('osd.%d is empty and has a small CRUSH weight: %s' % (osd, how_to_leave_empty(osd)))


def _refuse_or_warn(command: str, reasons: Sequence[Reason]) -> None:
    """Warn or raise BadInput if there are `reasons` not to release PGs now: the script of a plan
    waits, but the output of "release" may be executed at once."""
    why = '; '.join(texts(reasons))
    if why and command == 'release':
        raise BadInput('no PG is released now: ' + why)
    if why:
        say('wait before you release PGs: ' + why)


def _batches(plan: HeldBack, maps: Maps, caps: Caps, only_first: bool,
             progress: Terminal) -> List[List[Move]]:
    """The batches of moves in which the pins are released; with `only_first`, at most one."""
    assert maps.crush is not None
    planned, number = [], 0
    for batch in batches(plan, maps, maps.crush, caps):
        # The first one is empty if the PGs in flight use up the caps.
        if batch:
            planned.append(batch)
        if only_first:
            break
        number += len(batch)
        progress.say('planning releases: %d of %d' % (number, len(plan.moves)))
    return planned


def _raws(osdmap: OsdMap, source: Source, pgs: Sequence[PgSets]) -> Raws:
    """Where CRUSH places the PGs whose up set does not show it: those with a pg_upmap entry, and
    those that lack an OSD that is down. Without osdmaptool, they are left alone."""
    lacking = pgs_lacking_osds(osdmap, pool_up_of(pgs), osdmap.pools)
    if not osdmap.upmap_vectors and not lacking:
        return NO_RAWS
    # PGs that lack an OSD are included only with `whole`, unless they have an upmap.
    future = _outlook(osdmap, source, {}, whole=bool(lacking))
    if isinstance(future, NoFuture):
        say('PGs that have a pg_upmap entry, or lack an OSD that is down, are left alone: %s'
            % future.reason)
        return NO_RAWS
    return future.raws({*osdmap.upmap_vectors, *lacking})


def _outlook(osdmap: OsdMap, source: Source, weights: Mapping[int, float],
             whole: bool = False) -> Outlook:
    """Where CRUSH places PGs with these weights of OSDs, by osdmaptool; NoFuture, with the reason,
    if that cannot be computed. `whole`: include all PGs of the affected pools; of all pools if no
    weight changes."""
    encoded = source.encoded(osdmap.epoch)
    if encoded is None:
        return NoFuture('--osdmap is not given')
    encoded_map = encoded  # not None, also in the lambda
    return crush_preview.outlook(osdmap, lambda epoch: encoded_map, weights, crush_map=None,
                                 stopping=lambda: False, whole=whole)


def _caps(args: argparse.Namespace, maps: Maps) -> Caps:
    """The caps of the throttle: the module's defaults, with those that the arguments change.
    --osd-max-backfills limits sources and primaries as well."""
    arguments = {name: getattr(args, option[2:].replace('-', '_'))
                 for option, (name, _) in CAPS.items()}
    options = replace(DEFAULTS, **{name: value for name, value in arguments.items() if value})
    if args.osd_max_backfills:
        options = replace(options, max_backfills_source=args.osd_max_backfills,
                          max_backfills_primary=args.osd_max_backfills)
    assert maps.crush is not None
    if not options.max_pgs_in_flight:
        options = replace(options, max_pgs_in_flight=pgs_in_flight(
            options, maps.osdmap, maps.crush))
    return caps_of(options)


def _change(args: argparse.Namespace, source: Source, progress: Terminal) -> str:
    """The output of "expand" and "drain": the commands that set CRUSH weights and pin all data in
    place. What the release of the pins will move, and risks, are named on standard error."""
    maps = _maps(source)
    if maps.crush is None:
        raise BadInput('--report (or --live) is required')
    osdmap = maps.osdmap
    accept = accepted(args.accept)
    order = expansion(words(*args.what), weight=args.weight, accept=accept,
                      drain=words(*args.drain)) \
        if args.command == 'expand' else Order('drain', words(*args.what), accept=accept)
    entries = source.config()
    options = _module_options(entries)
    preview = _preview(order, args, maps, maps.crush, source, entries, options, progress)
    _warn_of_balancer(source)
    change, planned, shown = preview.change, preview.planned, preview.as_json(order, campaign=None)
    for text in (*(left_out_text(*row) for row in preview.left_out), *shown['warnings']):
        say(text)
    pins = PinPlan({pgid: pin.entry for pgid, pin in planned.pins.items()}, planned.unpinnable)
    _refuse_many_pins(len(pins.entries), args, osdmap, options,
                      ': change fewer OSDs at a time')
    caps = caps_of(DEFAULTS)
    movement = movement_of(planned.moves.values(), caps.pgs, caps.target)
    say('%s to pin; their release moves %s' % (plural(len(pins.entries), 'PG'), _moved(movement)))
    # PGs that have nowhere to move.
    incomplete = {pgid: why for pgid, why in pins.unpinnable.items() if why == INCOMPLETE}
    _explain('moves at once', _texts({pgid: why for pgid, why in pins.unpinnable.items()
                                      if pgid not in incomplete}))
    _explain('is remapped', _texts(incomplete))
    weights = maps.crush.weights()
    weights_before = {osd: weights[osd] for osd in change.weights}
    say('CRUSH weights before: ' + _some_weights(weights_before))
    if change.drained:
        say('drained OSDs keep CRUSH weight %s: with weight 0, the mons would drop their pins. '
            'When they are empty, "plan" names the command for weight 0' % TINY_WEIGHT)
    # hold: no data may move until all pins are set.
    lines = [*_reweights(change.weights), *commands(osdmap, pins.entries)]
    return _printed(args, maps, {
        'weights': _by_name(change.weights), 'weights_before': _by_name(weights_before),
        'warnings': shown['warnings'], 'left_out': shown['left_out'],
        **_movement_json(movement, maps), **pins.as_json()},
        Script([CommandBatch(lines)], hold=osdmap.crush_version, back=_reweights(weights_before)))


def _preview(order: Order, args: argparse.Namespace, maps: Maps, crush: CrushRules,
             source: Source, entries: Optional[Sequence[ConfigEntry]], options: Options,
             progress: Terminal) -> Preview:
    """What the module would find out about an order. Raises BadInput if that cannot be computed, or
    Refused if the module would refuse the order. `entries`: the configuration database; None: not
    given."""
    observation = _observed(maps, crush)
    facts = OrderFacts(maps.osdmap, crush, source.space(), pool_space=maps.signals.spaces,
                       pg_limit=_pg_limit(args, entries))

    def outlook(change: Change) -> Outlook:
        progress.say('computing where CRUSH places PGs')
        return _outlook(maps.osdmap, source, change.weights)

    preview = weights_preview(order, facts, observation, outlook, entries)
    if preview.no_outlook:
        raise BadInput('cannot compute the mapping after the change: ' + preview.no_outlook)
    # `plan` and `release` move PGs to where CRUSH places them.
    options = replace(options, target='crush')
    preview = preview.with_balance_and_effects(order, facts, observation, options)
    refuse([*of_health(not_fit(observation, preview.touched)),
            *preview.all_risks(order, observation, options)], order.accept, command='')
    return preview


def _observed(maps: Maps, crush: CrushRules) -> Observation:
    """What the module would observe, as far as it is known: not where PGs are."""
    return Observation(time.time(), maps.signals, Settings(maps.osdmap, None), lambda pgid: None,
                       crush)


def _pg_limit(args: argparse.Namespace, entries: Optional[Sequence[ConfigEntry]]) -> int:
    """mon_max_pg_per_osd, as the mgr has it, unless it is set for some hosts only."""
    return args.mon_max_pg_per_osd or int(_stored(entries, PG_LIMIT) or DEFAULT_PG_LIMIT)


def _module_options(entries: Optional[Sequence[ConfigEntry]]) -> Options:
    """The module's options, with the values that the configuration database has for those by which
    the module refuses changes. `entries`: the database; None: not given."""

    def value_of(name: str) -> Any:
        value = _stored(entries, STORED_PREFIX + name) if name in REFUSING_OPTIONS else None
        return None if value is None else type(getattr(DEFAULTS, name))(value)

    options = LiveOptions(value_of, value_of, mgr_id=str)
    for remark in options.remarks():
        say(remark)
    return options.read()


def _stored(entries: Optional[Sequence[ConfigEntry]], name: str) -> Optional[str]:
    """The value that the configuration database has for all mgrs; None: it has none."""
    stored = {entry.section: entry.value for entry in entries or ()
              if entry.name == name and not entry.mask}
    return stored.get('mgr', stored.get('global'))


def _reweights(weights: Mapping[int, float]) -> List[str]:
    return ['ceph osd crush reweight osd.%d %r' % row for row in weights.items()]


def _some_weights(weights: Mapping[int, float]) -> str:
    names = listed(['osd.%d %r' % row for row in weights.items()], MOST_OSDS)
    return names + ' (--format json lists all)' if len(weights) > MOST_OSDS else names


def _by_name(weights: Mapping[int, float]) -> Dict[str, float]:
    return {'osd.%d' % osd: weight for osd, weight in weights.items()}


# ---- output

def _printed(args: argparse.Namespace, maps: Maps, document: Json, plan: Script) -> str:
    """The output in the format of the arguments: `document` as JSON, or `plan` as a shell script or
    a list of commands."""
    if args.format == 'json':
        return json.dumps(document) + '\n'
    # "ceph" without options could carry the plan out on another cluster.
    conf = os.path.abspath(args.conf) if args.conf else ''
    if args.format == 'sh':
        return '\n'.join(script(plan, maps.osdmap.fsid, conf)) + '\n'
    return ''.join(line + '\n' for line in listing(plan, maps.osdmap.fsid, conf))


def _movement_json(moves: Movement, maps: Maps) -> Dict[str, Any]:
    """The JSON of what moves; bytes and time are null if the dumps do not contain the sizes of the
    pools."""
    document = moves.as_json()
    if not maps.pool_bytes:
        document.update(bytes=None, estimated_seconds=None)
    return document


def _summarize_release(command: str, plan: HeldBack, moves: Movement) -> None:
    say('%s pinned, %d in flight; %s moves %s' % (
        pgs_are(len(plan.pins)), len(plan.in_flight),
        'this batch' if command == 'release' else 'their release', _moved(moves)))
    if plan.moves and not moves.pgs:
        say('no more PGs may move until those in flight have arrived')
    _explain('is left unchanged', plan.left_out)


def _moved(moves: Movement) -> str:
    """Text on what moves, and to which OSDs."""
    busiest = sorted(moves.osds, key=lambda load: -load.pgs_in)[:MOST_OSDS]
    into = ', '.join('osd.%d (%d)' % (load.osd, load.pgs_in) for load in busiest if load.pgs_in)
    return '%s, and the primary of %s; most PGs move to %s' % (
        plural(moves.shards, 'shard'), plural(moves.primaries_moving, 'PG'), into or 'no OSD')


def _texts(unpinnable: Mapping[str, Unpinnable]) -> Dict[str, str]:
    return {pgid: why.reason for pgid, why in unpinnable.items()}


def _explain(outcome: str, reasons: Mapping[str, str]) -> None:
    for pgid, reason in list(reasons.items())[:MOST_REASONS]:
        say('PG %s %s: %s' % (pgid, outcome, reason))
    if len(reasons) > MOST_REASONS:
        say('%s more; --format json lists all' % plural(len(reasons) - MOST_REASONS, 'PG'))


def _warn_if_dumps_differ(pgs: Sequence[PgSets], osdmap: OsdMap) -> List[str]:
    """Warn of PGs whose acting sets differ between the two dumps; returns these.

    The OSDMap holds the acting set of every remapped PG, so dumps of one moment agree. PG stats
    lag: after a change of the primary they show the earlier interval for some seconds.
    """
    # In pools with ec_optimizations, the OSDMap has another order.
    differing = [pg.pgid for pg in pgs if set(osdmap.pg_temp.get(pg.pgid, ())) != set(pg.acting)]
    if differing:
        say('the acting sets of %s differ between the PG dump and the OSD dump; if the cluster has '
            'changed in between, take both dumps again' % plural(len(differing), 'PG'))
    return differing
