# SPDX-License-Identifier: LGPL-2.1-or-later
"""The command line of the model."""

import argparse
import sys
import time
from dataclasses import replace
from typing import Any, Iterator

from qa.bench.expansion.settings import parse_option

from . import report
from .caps import Wrong
from .controllers import CONTROLLERS
from .physics import HARDWARE
from .run import Settings, chance, run
from .scenarios import SCENARIOS


def main() -> int:
    args = parser().parse_args()
    results, failed = [], 0
    for settings in runs(args):
        began, name = time.process_time(), '%s, %s, seed %d' % (
            settings.controller, settings.scenario, settings.seed)
        try:
            results.append(run(settings))
        except Wrong as wrong:
            print('%s: %s' % (name, wrong), file=sys.stderr, flush=True)
            failed += 1
            continue
        if args.seeds == 1:
            print('%s (%.0f s of CPU time)' % (name, time.process_time() - began))
            print('\n'.join('  ' + line for line in report.lines(results[-1])), flush=True)
    print('\n'.join(report.table(results) if args.seeds < 30 else report.worst(results)))
    print('runs that broke a rule: %d of %d' % (failed, failed + len(results)))
    return 1 if failed else 0


def runs(args: argparse.Namespace) -> Iterator[Settings]:
    for seed in range(args.seed, args.seed + args.seeds):
        for controller in args.controller.split(','):
            if args.chance:
                yield replace(chance(seed, controller), target=args.target,
                              troubles=args.troubles)
            else:
                for scenario in args.scenario.split(','):
                    yield settings_of(args, seed, scenario, controller)


def settings_of(args: argparse.Namespace, seed: int, scenario: str,
                controller: str) -> Settings:
    return Settings(
        osds=args.osds, added=args.added, osds_per_host=args.osds_per_host,
        hosts_per_rack=args.hosts_per_rack, domain=args.domain, target=args.target,
        pools=tuple(int(number) for number in args.pgs.split(',')),
        pg_bytes=args.pg_mib * (1 << 20), hardware=args.hardware, controller=controller,
        scenario=scenario, seed=seed, rest=args.rest, backfills=args.backfills,
        troubles=args.troubles,
        options=dict(parsed(each) for each in args.option))


def parsed(text: str) -> Any:
    """KEY=VALUE, numbers as numbers."""
    key, value = parse_option(text)
    try:
        return key, float(value) if '.' in value else int(value)
    except ValueError:
        return key, value


def parser() -> argparse.ArgumentParser:
    found = argparse.ArgumentParser(prog='qa.sim', description=__doc__)
    add = found.add_argument
    add('--osds', type=int, default=12, help='OSDs after the expansion')
    add('--added', type=int, default=4, help='of these, OSDs that join')
    add('--osds-per-host', type=int, default=2)
    add('--hosts-per-rack', type=int, default=1000)
    add('--domain', default='host', choices=['host', 'rack'], help='failure domain of the pools')
    add('--target', default='crush', choices=['crush', 'balanced'], help='the option of perfguard')
    add('--pgs', default='192', help='PGs of each pool, separated by commas')
    add('--pg-mib', type=float, default=1.0, help='data of a PG on one OSD')
    add('--hardware', default='bench', choices=sorted(HARDWARE))
    add('--controller', default='perfguard',
        help='one or more of %s' % ', '.join(CONTROLLERS))
    add('--scenario', default='calm', help='one or more of %s' % ', '.join(SCENARIOS))
    add('--seed', type=int, default=1)
    add('--seeds', type=int, default=1, help='number of seeds')
    add('--chance', action='store_true', help='small clusters, loads and scenarios by seed')
    add('--rest', type=float, default=0.2, help='seconds between two turns at least')
    add('--troubles', type=int, default=0,
        help='number of faults and orders of operators, drawn by the seed; for perfguard')
    add('--backfills', type=int, default=1, help='osd_max_backfills')
    add('--option', action='append', default=[], metavar='KEY=VALUE',
        help='an option of perfguard')
    return found
