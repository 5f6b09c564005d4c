# SPDX-License-Identifier: LGPL-2.1-or-later
"""The command line."""

import argparse
import json
import os
import sys
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any, Dict, List, Optional, Sequence

from qa.cluster import ClusterError, releases
from qa.cluster.cluster import exit_on_signals
from qa.demo.screen import Parser, Screen

from . import __doc__ as description
from . import report
from .arms import FRONTIER, METHODS, PRESETS, STOCK
from .run import BURST, LOAD, SCENARIOS, Result, run
from .settings import DRIVES, FLASH, OSDS_A_HOST, Settings, alternating, parse_arm, parse_option

QUICK = {'repetitions': 1, 'quiet': 25, 'objects': 3000, 'pgs': 64, 'erasure_pgs': 32}
DEFAULTS = {'repetitions': 3, 'quiet': 30, 'objects': 8000, 'pgs': 128, 'erasure_pgs': 64}
#: For OSDs that sleep after each object that they copy, instead of the above.
SLOW = {'objects': 1000}

#: Names of several arms.
FRONTIER_ARMS = 'frontier'
GROUPS: Dict[str, Sequence[str]] = {'all': list(METHODS), FRONTIER_ARMS: FRONTIER}

LIMITS = {'osds': (6, 60), 'added': (2, 60), 'repetitions': (1, 99), 'quiet': (1, 3600),
          'objects': (1, 1000000), 'pgs': (1, 4096), 'erasure_pgs': (1, 4096),
          'many_rate': (1, 10000), 'ones': (1, 16), 'one_rate': (0.1, 1000),
          'object_kib': (1, 4096), 'mib': (1, 65536), 'propose_interval': (0.05, 5),
          'step_seconds': (60, 7200)}


def main(argv: Optional[List[str]] = None) -> int:
    """Run everything and print the table; returns 0 if every run completed."""
    args = parse(argv)
    # Progress is not part of the result.
    screen = Screen(sys.stderr)
    exit_on_signals()
    results: List[Result] = []
    try:
        _run_all(args, screen, results)
    except (ClusterError, OSError) as e:
        screen.end_line()
        print(f'expansion: {e}', file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        screen.end_line()
        print('interrupted; the cluster is gone', file=sys.stderr)
        return 130
    finally:
        if results:
            _print(args, results)
    return 1 if report.failures(results) else 0


def _run_all(args: argparse.Namespace, screen: Screen, results: List[Result]) -> None:
    for scenario in args.scenarios:
        arms = [arm for arm in args.arms if scenario != BURST or arm.method != STOCK]
        for repetition, (arm, drives, kib) in alternating(
                list(product(arms, args.drives, args.object_kib)), args.repetitions):
            settings = replace(args.settings, drives=drives, object_kib=kib,
                               objects=objects(args, kib))
            found = run(settings, arm, scenario, screen)
            if len(args.drives) > 1:
                found['arm'] += f', {drives}'
            if len(args.object_kib) > 1:
                found['arm'] += f', {kib} KiB'
            results.append({'repetition': repetition, **found})
            if args.json is not None:
                args.json.write_text(json.dumps(results, indent=1))


def objects(args: argparse.Namespace, kib: int) -> int:
    """Of each pool, if each has so many KiB."""
    return int(args.objects if args.mib is None else max(1, args.mib * 1024 // kib))


def _print(args: argparse.Namespace, results: List[Result]) -> None:
    print('\n'.join([report.introduction(args.settings, args.repetitions, args.drives,
                                         args.object_kib, args.mib), '',
                     report.table(results), '', report.ratios(results),
                     report.bursts(results)]).rstrip(), flush=True)
    for failure in report.failures(results):
        print(f'FAILED: {failure}', flush=True)


def parse(argv: Optional[List[str]]) -> argparse.Namespace:
    p = _parser()
    args = p.parse_args(argv)
    slow = args.arms == FRONTIER_ARMS or args.drives != FLASH
    sizes = {**(QUICK if args.quick else DEFAULTS), **(SLOW if slow else {})}
    for name, value in sizes.items():
        if getattr(args, name) is None:
            setattr(args, name, value)
    try:
        args.object_kib = [int(text) for text in args.object_kib.split(',')]
    except ValueError:
        p.error(f'--object-kib {args.object_kib}: numbers, with commas between them')
    if len(args.object_kib) > 1 and args.mib is None:
        p.error('--object-kib with several sizes needs --mib: pools of as many bytes')
    for name, (least, most) in LIMITS.items():
        given = getattr(args, name)
        for value in given if isinstance(given, list) else [given]:
            if value is not None and not least <= value <= most:
                p.error(f'--{name.replace("_", "-")} {value:g}: '
                        f'a number from {least:g} to {most:g}')
    if args.osds % OSDS_A_HOST or args.added % OSDS_A_HOST:
        p.error(f'OSDs come {OSDS_A_HOST} a host')
    if args.release != 'pacific' and os.getuid() != 0:
        p.error(f'--release {args.release} runs in a chroot, which takes root')
    try:
        args.arms = [parse_arm(text, list(METHODS), PRESETS)
                     for text in GROUPS.get(args.arms) or args.arms.split(',')]
        options = dict(parse_option(text) for text in args.options)
    except ValueError as e:
        p.error(str(e))
    args.drives = args.drives.split(',')
    for drives in args.drives:
        if drives not in DRIVES:
            p.error(f'no such drives: {drives!r} (one of {", ".join(DRIVES)})')
    args.scenarios = args.scenarios.split(',')
    for scenario in args.scenarios:
        if scenario not in SCENARIOS:
            p.error(f'no such scenario: {scenario!r} (one of {", ".join(SCENARIOS)})')
    args.settings = Settings(
        release=args.release, osds=args.osds, added=args.added, quiet_seconds=args.quiet,
        many_rate=args.many_rate, ones=args.ones, one_rate=args.one_rate,
        objects=objects(args, args.object_kib[0]), object_kib=args.object_kib[0], pgs=args.pgs,
        erasure_pgs=args.erasure_pgs, propose_seconds=args.propose_interval,
        step_seconds=args.step_seconds, options=options)
    return args


def _parser() -> argparse.ArgumentParser:
    p = Parser(prog='qa.bench.expansion', description=description,
               formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument('--release', default='pacific', choices=releases.NAMES)
    p.add_argument('--arms', default='stock,perfguard', metavar='ARM,...',
                   help=f'of {", ".join(METHODS)}, with options if wanted: '
                        'perfguard:fast_peering=on, or stock:osd_recovery_sleep_hdd=0.1 for the '
                        'OSDs; or "all"; or "frontier": latency against time at several limits '
                        '(default: %(default)s)')
    p.add_argument('--scenarios', default=LOAD, metavar='NAME,...',
                   help='load: with clients; idle: without any; burst: three times the load for '
                        'half a minute in the middle of a release (default: %(default)s)')
    p.add_argument('--options', action='append', default=[], metavar='KEY=VALUE',
                   help='set mgr/perfguard/KEY for all arms of perfguard; may be repeated')
    p.add_argument('--drives', default=FLASH, metavar='KIND,...',
                   help='flash, disk or both; disk: OSDs sleep 0.1 s after each object that they '
                        'copy, as on rotating drives (default: %(default)s)')
    p.add_argument('--quick', action='store_true', help='one repetition of something small')
    p.add_argument('--json', type=Path, metavar='FILE', help='write the raw results here')
    _add_size(p)
    return p


def _add_size(p: argparse.ArgumentParser) -> None:
    size = p.add_argument_group('the size of it')

    def add(name: str, kind: Any, default: Any, text: str) -> None:
        shown = f'{DEFAULTS[name]}; with --quick {QUICK[name]}' if name in DEFAULTS else default
        if name in SLOW:
            shown += f'; with --drives disk or --arms {FRONTIER_ARMS} {SLOW[name]}'
        size.add_argument('--' + name.replace('_', '-'), type=kind, default=default, metavar='N',
                          help=f'{text} (default: {shown})')

    add('repetitions', int, None, 'of each arm, alternating')
    add('osds', int, 8, 'OSDs to begin with, two a host')
    add('added', int, 4, 'OSDs that join, two a host')
    add('quiet', int, None, 'seconds before the change')
    add('objects', int, None, 'in each pool')
    add('object_kib', str, '16', 'KiB of each; several sizes with commas, for an arm of each')
    add('mib', int, None, 'MiB of data in each pool, instead of a number of objects')
    add('pgs', int, None, 'of the pool of three copies')
    add('erasure_pgs', int, None, 'of the erasure-coded pool')
    add('many_rate', float, 100.0, 'operations a second of the client of each pool that has many '
        'in flight')
    add('ones', int, 2, 'clients of each pool that have one in flight')
    add('one_rate', float, 20.0, 'operations a second of each of these')
    add('propose_interval', float, 1.0, 'seconds: the mons\' paxos_propose_interval, Ceph\'s own '
        'default')
    add('step_seconds', int, 900, 'that a step of a run may take')
