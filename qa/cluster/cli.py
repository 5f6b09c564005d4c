# SPDX-License-Identifier: LGPL-2.1-or-later
"""Persistent clusters from the command line: /usr/bin/python3 -m qa.cluster VERB."""

import argparse
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import List, Optional

from . import load as load_client
from . import releases
from .cluster import Cluster, end_cluster, exit_on_signals
from .daemons import Daemons, tied_argv
from .dashboard import USERS
from .errors import ClusterError
from .load_control import TOP_DIR, client_argv
from .state import State, base_dir, directories

STORES = ('memstore', 'bluestore')


def main(argv: Optional[List[str]] = None) -> int:
    """Run one verb; returns the exit status. Errors are one line."""
    args = parser().parse_args(argv)
    exit_on_signals()
    try:
        status = args.run(args)
    except ClusterError as e:
        print(f'error: {e}', file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print('interrupted', file=sys.stderr)
        return 130
    return int(status or 0)


def parser() -> argparse.ArgumentParser:
    """The command line of all verbs."""
    p = argparse.ArgumentParser(
        prog='python3 -m qa.cluster', description=__doc__,
        epilog='Clusters live below $PERFGUARD_RUN (default: a directory in /tmp), the chroots of '
               'other releases below $PERFGUARD_CACHE (default: /var/cache/perfguard). Where a '
               'NAME may be left out, there must be one cluster only.')
    verbs = p.add_subparsers(title='verbs', metavar='VERB', required=True)
    _add_up(verbs)
    verb = verbs.add_parser('ls', help='list the clusters')
    verb.set_defaults(run=_ls)
    _add_osd_verbs(verbs)
    verb = _verb(verbs, 'ceph', 'run the ceph command of the cluster\'s release: ceph -- -s')
    verb.add_argument('args', nargs='+')
    verb.set_defaults(run=_ceph)
    verb = _verb(verbs, 'load', 'run an open-loop client and print a line of JSON every second')
    verb.add_argument('pool')
    load_client.add_options(verb)
    verb.set_defaults(run=_load)
    verb = _verb(verbs, 'dashboard', 'switch the dashboard on; prints its address and users')
    verb.set_defaults(run=_dashboard)
    verb = verbs.add_parser('build', help='build the chroots of releases, where they are not yet')
    verb.add_argument('releases', nargs='+', choices=releases.NAMES, metavar='RELEASE')
    verb.set_defaults(run=_build)
    verb = _verb(verbs, 'down', 'end a cluster and remove its directory')
    verb.add_argument('--all', action='store_true', help='all clusters')
    verb.add_argument('--keep-logs', action='store_true', help='leave DIRECTORY/log')
    verb.set_defaults(run=_down)
    return p


def _verb(verbs: 'argparse._SubParsersAction[argparse.ArgumentParser]', verb: str,
          text: str) -> argparse.ArgumentParser:
    added = verbs.add_parser(verb, help=text, description=text)
    added.add_argument('--name', help='the cluster\'s directory name, as "ls" shows it')
    return added


def _add_up(verbs: 'argparse._SubParsersAction[argparse.ArgumentParser]') -> None:
    verb = _verb(verbs, 'up', 'boot a cluster that stays until "down"')
    verb.add_argument('--release', default='pacific', choices=[*releases.NAMES, 'native'])
    for option, default in (('osds', 6), ('hosts', 3), ('racks', 0), ('mons', 1), ('mgrs', 1)):
        verb.add_argument(f'--{option}', type=int, default=default, help=f'default {default}')
    verb.add_argument('--store', default='memstore', choices=STORES)
    verb.add_argument('--conf', action='append', default=[], metavar='OPTION=VALUE',
                      help='a setting for ceph.conf, as often as needed')
    verb.set_defaults(run=_up)


def _add_osd_verbs(verbs: 'argparse._SubParsersAction[argparse.ArgumentParser]') -> None:
    verb = _verb(verbs, 'add-osds', 'boot more OSDs and place them into CRUSH at once')
    verb.add_argument('count', type=int)
    verb.add_argument('--hosts', type=lambda text: text.split(','), help='host3,host4 (default: '
                      'new ones)')
    verb.add_argument('--weight', type=float, default=1.0)
    verb.set_defaults(run=_add_osds)
    for name, text in (('kill', 'kill a daemon'), ('stop', 'halt a daemon (SIGSTOP)'),
                       ('cont', 'let a halted daemon go on'), ('start', 'start a killed daemon')):
        verb = _verb(verbs, name, text)
        verb.add_argument('daemon', help='osd.3, mgr.x, mon.a')
        if name == 'kill':
            verb.add_argument('--sig', type=int, default=int(signal.SIGKILL))
        verb.set_defaults(run=_signal_daemon, action=name)


def _find(name: Optional[str]) -> Path:
    found = list(directories())
    if name is not None:
        found = [path for path in found if path.name == name]
    if len(found) == 1:
        return found[0]
    if found:
        names = ', '.join(path.name for path in found)
        raise ClusterError(f'which cluster? give --name: {names}')
    raise ClusterError(f'no cluster {name or ""} in {base_dir()}'.replace('  ', ' '))


def _attach(args: argparse.Namespace) -> Cluster:
    return Cluster.attach(_find(args.name))


def _up(args: argparse.Namespace) -> None:
    conf = {}
    for setting in args.conf:
        option, equals, value = setting.partition('=')
        if not equals:
            raise ClusterError(f'--conf {setting}: must be OPTION=VALUE')
        conf[option.strip()] = value.strip()
    begin = time.monotonic()
    cluster = Cluster.up(
        args.release, args.osds, args.hosts, args.racks, args.mons, args.mgrs, args.store, conf,
        directory=base_dir() / args.name if args.name else None, tied=False)
    print(f'{cluster.directory.name} is up after {time.monotonic() - begin:.1f} s; '
          f'ceph -c {cluster.conf_path} for the native release, else the verb "ceph"')


def _ls(args: argparse.Namespace) -> None:
    for path in directories():
        try:
            state = State.load(path)
        except (OSError, ValueError):
            print(f'{path.name}  damaged')
            continue
        daemons = Daemons(path, tied=False)
        alive = sum(daemons.pid(name) is not None for name in daemons.names())
        kind = 'abandoned' if state.abandoned() else 'tied' if state.tied else 'persistent'
        print(f'{path.name}  {state.release}  {len(state.osds)} OSDs ({state.store})  '
              f'{alive} processes  {kind}  {path}')


def _add_osds(args: argparse.Namespace) -> None:
    added = _attach(args).add_osds(args.count, args.hosts, args.weight)
    print(' '.join(f'osd.{osd}' for osd in added))


def _signal_daemon(args: argparse.Namespace) -> None:
    cluster = _attach(args)
    if args.action == 'kill':
        cluster.kill(args.daemon, args.sig)
    else:
        getattr(cluster, args.action)(args.daemon)


def _ceph(args: argparse.Namespace) -> int:
    cluster = _attach(args)
    command = ['ceph', '-c', str(cluster.conf_path), *args.args]
    return subprocess.run(cluster.release.argv(command, cluster.directory)).returncode


def _load(args: argparse.Namespace) -> int:
    cluster = _attach(args)
    names = ('rate', 'read_fraction', 'objects', 'size', 'max_outstanding', 'runtime', 'interval',
             'seed')
    options = {name: getattr(args, name) for name in names}
    return subprocess.run(tied_argv(client_argv(cluster.conf_path, args.pool, options)),
                          cwd=TOP_DIR).returncode


def _dashboard(args: argparse.Namespace) -> None:
    dashboard = _attach(args).dashboard()
    print(dashboard.url())
    for user, password in dashboard.passwords.items():
        print(f'{user}  {password}  ({USERS[user]})')


def _build(args: argparse.Namespace) -> None:
    for name in args.releases:
        releases.get(name)


def _down(args: argparse.Namespace) -> None:
    found = list(directories()) if args.all else [_find(args.name)]
    for path in found:
        end_cluster(path, args.keep_logs)
        print(f'{path.name} is down')
