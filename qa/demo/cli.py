# SPDX-License-Identifier: LGPL-2.1-or-later
"""Command line of the demonstration."""

import argparse
import os
import signal
import sys
from typing import List, Optional

from qa.cluster import ClusterError, releases
from qa.cluster.cluster import exit_on_signals

from . import report
from .expansion import PERFGUARD, STOCK, Outcome, expand
from .screen import Parser, Screen
from .settings import OSDS_MAX, OSDS_MIN, DemoSettings, usual_pg_num

DESCRIPTION = '''\
Boots a Ceph cluster on this machine, runs clients, adds hosts to the cluster with perfguard,
and shows client latency before and during the expansion. Probes compare the speed of the quiet
cluster before and after it.'''


def main(argv: Optional[List[str]] = None) -> int:
    """Run the demonstration; returns 0 if all campaigns completed without client errors."""
    args = _parse(argv)
    screen = Screen(sys.stdout)
    exit_on_signals(signal.SIGTERM, signal.SIGHUP)
    try:
        return _run(args, screen)
    except ClusterError as e:
        screen.end_line()
        print(f'demo: {e}', file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        screen.end_line()
        print('interrupted; the cluster was removed', file=sys.stderr)
        return 130


def _parse(argv: Optional[List[str]]) -> argparse.Namespace:
    p = Parser(prog='demo.sh', description=DESCRIPTION)
    p.add_argument('--release', default='pacific', choices=releases.NAMES,
                   help='Ceph release; all except pacific require root and take some '
                        'minutes to install once (default: %(default)s)')
    p.add_argument('--osds', type=int, default=8, metavar='N',
                   help='initial number of OSDs, two per host; at least two hosts are added '
                        '(default: %(default)s)')
    p.add_argument('--compare', choices=('stock',),
                   help='first expand another cluster without perfguard')
    p.add_argument('--keep', action='store_true', help='leave the cluster up, with the '
                   'dashboard: prints the address of perfguard\'s page and a login')
    size = p.add_argument_group('size')
    size.add_argument('--seconds', type=int, default=30, help='length of the quiet phase '
                      '(default: %(default)s)')
    size.add_argument('--rate', type=int, default=300, help='client operations '
                      'per second (default: %(default)s)')
    size.add_argument('--objects', type=int, default=20000, help='number of objects of '
                      '16 KiB (default: %(default)s)')
    size.add_argument('--pgs', type=int,
                      help='PGs of the pool (default: depends on the number of OSDs)')
    size.add_argument('--propose-interval', type=float, default=1.0, metavar='SECONDS',
                      help='paxos_propose_interval of the mons '
                      '(default: %(default)s, as in Ceph)')
    args = p.parse_args(argv)
    if not OSDS_MIN <= args.osds <= OSDS_MAX or args.osds % 2:
        p.error(f'--osds {args.osds}: an even number from {OSDS_MIN} to {OSDS_MAX}')
    if args.pgs is None:
        args.pgs = usual_pg_num(args.osds)
    if not 0.05 <= args.propose_interval <= 5:
        p.error(f'--propose-interval {args.propose_interval:g}: a number from 0.05 to 5')
    for name, most in (('seconds', 600), ('rate', 2000), ('objects', 100000), ('pgs', 1024)):
        if not 1 <= getattr(args, name) <= most:
            p.error(f'--{name} {getattr(args, name)}: a number from 1 to {most}')
    if args.release != 'pacific' and os.getuid() != 0:
        p.error(f'--release {args.release} runs in a chroot, which requires root')
    return args


def _run(args: argparse.Namespace, screen: Screen) -> int:
    settings = DemoSettings(args.release, args.osds, args.seconds, args.rate, args.objects,
                            args.pgs, args.propose_interval)
    screen.say(report.introduction(settings))
    outcomes: List[Outcome] = []
    # A cluster that is kept runs last, because it would slow down the other one.
    if args.compare:
        outcomes.append(expand(settings, STOCK, screen))
    outcomes.append(expand(settings, PERFGUARD, screen, keep=args.keep))
    outcomes.reverse()
    screen.say(report.tables(outcomes))
    screen.say(report.speed_text(outcomes[0], settings))
    if not args.compare:
        screen.say(report.without_perfguard(settings))
    if outcomes[0].kept is not None:
        screen.say(report.how_to_go_on(outcomes[0].kept, outcomes[0].page))
    problems = [problem for outcome in outcomes for problem in outcome.problems()]
    for problem in problems:
        print(f'demo: {problem}', file=sys.stderr)
    return 1 if problems else 0
