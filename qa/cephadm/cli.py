# SPDX-License-Identifier: LGPL-2.1-or-later
"""A cephadm cluster from the command line: /usr/bin/python3 -m qa.cephadm VERB."""
import argparse
import subprocess
import sys
import time
from pathlib import Path
from typing import List, Optional

from qa.cluster.cluster import exit_on_signals
from qa.cluster.errors import ClusterError

from .build import build
from .cache import HOSTS, Cache
from .rig import Rig


def main(argv: Optional[List[str]] = None) -> int:
    """Run one verb; returns the exit status. Errors are one line."""
    args = parser().parse_args(argv)
    exit_on_signals()
    try:
        return int(args.run(args) or 0)
    except ClusterError as e:
        print(f'error: {e}', file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130


def parser() -> argparse.ArgumentParser:
    """The command line of all verbs."""
    p = argparse.ArgumentParser(prog='python3 -m qa.cephadm', description=__doc__)
    p.add_argument('--directory', type=Path, default=Cache.default().path / 'rig',
                   help='of the rig (default: %(default)s)')
    verbs = p.add_subparsers(title='verbs', metavar='VERB', required=True)
    verb = verbs.add_parser('build', help='build what rigs need, where it is missing')
    verb.set_defaults(run=lambda args: build(Cache.default()))
    verb = verbs.add_parser('up', help='boot the hosts; returns once the cluster is healthy')
    verb.set_defaults(run=_up)
    verb = verbs.add_parser('ceph', help='run the command ceph: ceph -- -s')
    verb.add_argument('words', nargs='+')
    verb.set_defaults(run=lambda args: subprocess.run(
        Rig(args.directory).client_argv('ceph', *args.words)).returncode)
    verb = verbs.add_parser('on', help='run a command on a host: on h2 -- podman ps')
    verb.add_argument('host', choices=HOSTS)
    verb.add_argument('words', nargs='+')
    verb.set_defaults(run=lambda args: subprocess.run(
        Rig(args.directory).host_argv(args.host, *args.words)).returncode)
    verb = verbs.add_parser('reboot', help='reboot a host')
    verb.add_argument('host', choices=HOSTS)
    verb.set_defaults(run=lambda args: Rig(args.directory).reboot(args.host))
    verb = verbs.add_parser('down', help='shut the hosts down, and keep their data')
    verb.set_defaults(run=lambda args: Rig(args.directory).down())
    verb = verbs.add_parser('purge', help='end the hosts and remove their data')
    verb.set_defaults(run=lambda args: Rig(args.directory).purge())
    return p


def _up(args: argparse.Namespace) -> None:
    begin = time.monotonic()
    Rig(args.directory).up()
    print(f'up after {time.monotonic() - begin:.1f} s')
