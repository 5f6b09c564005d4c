# SPDX-License-Identifier: LGPL-2.1-or-later
"""A cluster that is read through librados, by read-only commands."""
import argparse
import json
from typing import Any, Callable, Dict, List, Optional

from ..cluster.dumps import WrongDump, keep_remapped, keep_sets, osdmap_from_dump
from ..cluster.types import OsdMap, PgSets, Space
from ..rebalance.types import ENDED, Phase
from .sources import (BadInput, Maps, ObjectHook, Terminal, converted, crush_rules, osd_space,
                      pg_sets)

#: The module's name among those of ceph-mgr.
MODULE = 'perfguard'
#: Seconds until a cluster that does not answer counts as unreachable.
CONNECT_SECONDS = 30
#: Sends a command to the mons ("mon") or the active mgr ("mgr"), and returns its output. Raises
#: BadInput.
Ask = Callable[[str, Dict[str, Any]], bytes]


class LiveCluster:
    """The Source of a cluster."""

    def __init__(self, ask: Ask, progress: Terminal, warn: Callable[[str], None]) -> None:
        self._ask = ask
        self._progress = progress
        self._warn = warn

    def rival(self) -> str:
        if self._json('mgr', _balances, prefix='balancer status'):
            self._warn('the balancer is on, and may move or remove pins: run "ceph balancer off"')
        if MODULE not in self._json('mon', _modules, prefix='mgr module ls'):
            return ''
        try:
            status = self._json('mgr', _campaign, prefix='perfguard rebalance status')
        except BadInput as e:
            self._warn('the module perfguard is enabled, but its campaign could not be read (%s)'
                       % e)
            return ''
        return '' if status['phase'] in ENDED and not (
            status['phase'] == Phase.ABORTED and status['pinned']) else (
            'campaign %s of the module perfguard is %s: use "ceph perfguard rebalance", or end it '
            'first' % (status['id'], status['phase']))

    def maps(self) -> Maps:
        osdmap: OsdMap = self._json('mon', osdmap_from_dump, prefix='osd dump')
        crush = self._json('mon', crush_rules, prefix='osd crush dump')
        return Maps(osdmap, crush, self._json('mon', _pool_bytes, prefix='df'))

    def pgs(self, clean: bool) -> List[PgSets]:
        found: List[PgSets] = self._json('mgr', pg_sets, keep_sets if clean else keep_remapped,
                                         prefix='pg dump', dumpcontents=['pgs_brief'])
        return found

    def space(self) -> Dict[int, Space]:
        found: Dict[int, Space] = self._json('mgr', osd_space, prefix='osd df')
        return found

    def encoded(self, epoch: int) -> Optional[bytes]:
        return self._sent('mon', prefix='osd getmap', epoch=epoch)

    def _sent(self, daemon: str, **command: Any) -> bytes:
        self._progress.say('reading the output of "ceph %s"' % command['prefix'])
        return self._ask(daemon, command)

    def _json(self, daemon: str, convert: Callable[[Any], Any],
              object_hook: Optional[ObjectHook] = None, **command: Any) -> Any:
        output = self._sent(daemon, format='json', **command)
        try:
            return converted(output.decode(), convert, object_hook)
        except (ValueError, WrongDump) as e:
            raise BadInput('unexpected output of "ceph %s": %s' % (command['prefix'], e)) from e


def _balances(dump: Any) -> bool:
    try:
        return bool(dump['active'] and dump['mode'].startswith('upmap'))
    except (AttributeError, KeyError, TypeError) as e:
        raise WrongDump('not the status of the balancer') from e


def _modules(dump: Any) -> List[str]:
    try:
        return list(dump['enabled_modules'])
    except (KeyError, TypeError) as e:
        raise WrongDump('not the output of "ceph mgr module ls -f json"') from e


def _campaign(status: Any) -> Dict[str, Any]:
    try:
        return {key: status[key] for key in ('id', 'phase', 'pinned')}
    except (KeyError, TypeError) as e:
        raise WrongDump('not the status of a campaign') from e


def _pool_bytes(dump: Any) -> Dict[int, int]:
    try:
        return {row['id']: row['stats']['stored'] for row in dump['pools']}
    except (KeyError, TypeError) as e:
        raise WrongDump('not the output of "ceph df -f json"') from e


def connected(args: argparse.Namespace) -> Ask:
    """With the configuration and the key that the ceph command would use. Raises BadInput."""
    try:
        import rados
    except ImportError as e:
        raise BadInput('--live requires python3-rados: %s' % e) from e
    try:
        handle = rados.Rados(name=args.name or 'client.%s' % (args.id or 'admin'),
                             clustername=args.cluster)
        handle.conf_read_file(args.conf)
        handle.conf_parse_env('CEPH_ARGS')
        if args.keyring:
            handle.conf_set('keyring', args.keyring)
        handle.connect(timeout=CONNECT_SECONDS)
    except rados.Error as e:
        raise BadInput('cannot connect to the cluster: %s' % e) from e

    def ask(daemon: str, command: Dict[str, Any]) -> bytes:
        send = handle.mon_command if daemon == 'mon' else handle.mgr_command
        try:
            status, output, message = send(json.dumps(command), b'')
        except rados.Error as e:
            raise BadInput('"ceph %s" failed: %s' % (command['prefix'], e)) from e
        if status:
            raise BadInput('"ceph %s" failed: %s' % (command['prefix'], message or status))
        return bytes(output)

    return ask
