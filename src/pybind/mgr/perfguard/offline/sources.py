# SPDX-License-Identifier: LGPL-2.1-or-later
"""The input of plans: dumps in files, or the cluster itself."""
import argparse
import contextlib
import json
import os
import re
import sys
from dataclasses import dataclass, field
from typing import (Any, Callable, ContextManager, Dict, Iterator, List, Mapping, Optional,
                    Protocol, Sequence, TextIO, Tuple)

from ..cluster.crush import CrushRules
from ..cluster.dumps import (NOT_REMAPPED, WrongDump, config_entries, count_states, health_checks,
                             keep_remapped, keep_sets, osdmap_from_dump, pg_rows, wrong_pg_dump)
from ..cluster.inventory import devices_of
from ..cluster.map_encoding import epoch_of
from ..cluster.types import ConfigEntry, OsdMap, PgCounts, PgSets, Signals, Space
from ..errors import PerfguardError
from ..rebalance.types import ENDED, Phase

ObjectHook = Callable[[Dict[str, Any]], Any]
#: The ceph command prints this to standard error, before the dump. A terminal mixes both, as that
#: of "kubectl exec -it" does.
_MESSAGE = re.compile(r'(?:report|dumped) \w+\r?\n')


class BadInput(PerfguardError):
    """Input that cannot be used; the message is the one line that the user sees."""


@dataclass(frozen=True)
class Maps:
    osdmap: OsdMap
    #: None: not given.
    crush: Optional[CrushRules]
    #: PG states, health checks, and the bytes of pools, as far as they are known.
    signals: Signals = Signals(PgCounts())
    #: OSD -> its devices, as inventory.devices_of, as far as they are known.
    devices: Mapping[int, Sequence[str]] = field(default_factory=dict)

    @property
    def pool_bytes(self) -> Mapping[int, int]:
        """Bytes that clients have stored, by pool id; empty: not known."""
        return self.signals.pool_bytes


class Source(Protocol):
    """Each call reads; all raise BadInput."""

    def module_campaign(self) -> str:
        """Text on the campaign of the module that moves or pins PGs of this cluster; '': none is
        known."""

    def balances(self) -> bool:
        """Whether the balancer is known to be on."""

    def maps(self) -> Maps: ...

    def pgs(self, also_clean: bool) -> List[PgSets]:
        """Rows of the PG dump; `also_clean`: also those whose up set is their acting set."""

    def space(self) -> Dict[int, Space]: ...

    def config(self) -> Optional[Sequence[ConfigEntry]]:
        """The configuration database; None: not given."""

    def encoded(self, epoch: int) -> Optional[bytes]:
        """The OSDMap as Ceph's tools read it; None: not given."""


class Terminal:
    """Lines for a user who waits at a terminal; nothing elsewhere."""

    def __init__(self, output: TextIO) -> None:
        self._output = output
        self._shown = output.isatty()

    def say(self, text: str) -> None:
        if self._shown:
            print('perfguard-plan: %s ...' % text, file=self._output, flush=True)


class Dumps:
    """The Source of files; "-" is standard input. The command line has checked that those which the
    subcommand requires are given (command._source)."""

    def __init__(self, args: argparse.Namespace, progress: Terminal) -> None:
        self._report: Optional[str] = args.report
        self._osd_dump: Optional[str] = getattr(args, 'osd_dump', None)
        self._crush_dump: Optional[str] = getattr(args, 'crush_dump', None)
        self._pg_dump: Optional[str] = getattr(args, 'pg_dump', None)
        self._osd_df: Optional[str] = getattr(args, 'osd_df', None)
        self._osdmap: Optional[str] = getattr(args, 'osdmap', None)
        self._progress = progress
        self._check()

    def module_campaign(self) -> str:
        return ''  # dumps do not show it

    def balances(self) -> bool:
        return False  # nor this

    def maps(self) -> Maps:
        """The maps, from the report or from single dumps."""
        if self._report:
            maps: Maps = self._read(self._report, reported)
            return maps
        assert self._osd_dump is not None
        osdmap: OsdMap = self._read(self._osd_dump, osdmap_from_dump)
        crush = None if self._crush_dump is None else self._read(self._crush_dump, crush_rules)
        return Maps(osdmap, crush)

    def pgs(self, also_clean: bool) -> List[PgSets]:
        assert self._pg_dump is not None
        rows: List[PgSets] = self._read(self._pg_dump, pg_sets,
                                        keep_sets if also_clean else keep_remapped)
        return rows

    def space(self) -> Dict[int, Space]:
        assert self._osd_df is not None
        by_osd: Dict[int, Space] = self._read(self._osd_df, osd_space)
        return by_osd

    def config(self) -> Optional[Sequence[ConfigEntry]]:
        return None  # dumps do not contain it

    def encoded(self, epoch: int) -> Optional[bytes]:
        """The OSDMap of an epoch in the encoding of Ceph; None: it was not given. Raises
        BadInput."""
        if self._osdmap is None:
            return None
        try:
            with open(self._osdmap, 'rb') as f:
                encoded = f.read()
            file_epoch = epoch_of(encoded)
        except OSError as e:
            raise BadInput('%s: %s' % (self._osdmap, e.strerror)) from e
        except ValueError as e:
            raise BadInput('%s: %s' % (self._osdmap, e)) from e
        if file_epoch != epoch:
            raise BadInput('%s is OSDMap epoch %d, but the other dump shows epoch %d: take it '
                           'with "ceph osd getmap %d -o FILE"' % (
                               self._osdmap, file_epoch, epoch, epoch))
        return encoded

    def _check(self) -> None:
        """Raise BadInput if the dumps do not fit together."""
        if [self._report, self._osd_dump, self._pg_dump, self._crush_dump,
                self._osd_df].count('-') > 1:
            raise BadInput('only one of the dumps can come from standard input')
        if bool(self._report) == bool(self._osd_dump):
            raise BadInput('one of --live, --report and --osd-dump is required')
        if self._report and self._crush_dump:
            raise BadInput('--crush-dump is part of --report')

    def _read(self, path: str, convert: Callable[[Any], Any],
              object_hook: Optional[ObjectHook] = None) -> Any:
        """The converted JSON of a file. Raises BadInput."""
        self._progress.say('reading ' + path)
        try:
            with _opened(path) as f:
                return converted(f.read(), convert, object_hook)
        except OSError as e:
            raise BadInput('%s: %s' % (path, e.strerror)) from e
        except WrongDump as e:
            raise BadInput('%s: %s' % (path, e)) from e
        except (ValueError, RecursionError) as e:
            raise BadInput('%s: not JSON: %s' % (path, e)) from e


def converted(text: str, convert: Callable[[Any], Any],
              object_hook: Optional[ObjectHook] = None) -> Any:
    """What `convert` makes of JSON, without a message of the ceph command before it. `object_hook`:
    as for json.loads. Raises WrongDump, or an error of json.loads."""
    message = _MESSAGE.match(text)
    return convert(json.loads(text[message.end():] if message else text, object_hook=object_hook))


@contextlib.contextmanager
def output_of(command: str) -> Iterator[None]:
    """Raises WrongDump where the contents are not the output of the command."""
    try:
        yield
    except (AttributeError, KeyError, TypeError) as e:
        raise WrongDump('not the output of "ceph %s"' % command) from e


def reported(report: Any) -> Maps:
    """From "ceph report"; raises WrongDump."""
    with output_of('report'):
        osdmap = osdmap_from_dump(report['osdmap'])
        states = [(row['state'], row['num']) for row in report.get('num_pg_by_state', ())]
        return Maps(osdmap, crush_rules(report['crushmap']), signals_of(
            report.get('health', {}), states, osdmap, {
                row['poolid']: row['stat_sum']['num_bytes']
                for row in report.get('pool_stats', ())}),
            osd_devices(report.get('osd_metadata', ())))


def signals_of(health: Mapping[str, Any], states: Sequence[Tuple[str, int]], osdmap: OsdMap,
               pool_bytes: Mapping[int, int]) -> Signals:
    """The signals that dumps show. `health`: that of "ceph status" or "ceph report"; `states`:
    (state of PGs, their number), empty: not known; `pool_bytes`: by pool id, empty: not known."""
    checks, muted = health_checks(health)
    return Signals(count_states(states, osdmap.pg_count if states else 0), health=checks,
                   muted=muted, pool_bytes=pool_bytes)


def osd_devices(dump: Any) -> Dict[int, Tuple[str, ...]]:
    with output_of('osd metadata -f json'):
        devices = {row['id']: devices_of(row) for row in dump}
    return {osd: names for osd, names in devices.items() if names}


def crush_rules(dump: Any) -> CrushRules:
    with output_of('osd crush dump -f json'):
        return CrushRules.from_dump(dump)


def pg_sets(dump: Any) -> List[PgSets]:
    remapped = [row for row in pg_rows(dump) if row is not NOT_REMAPPED]
    if not all(isinstance(row, PgSets) for row in remapped):
        raise wrong_pg_dump()
    return remapped


def osd_space(dump: Any) -> Dict[int, Space]:
    with output_of('osd df -f json'):
        return {row['id']: Space(row['kb'] << 10, row['kb_used'] << 10, row.get('pgs'))
                for row in dump['nodes']}


def _opened(path: str) -> ContextManager[TextIO]:
    if path == '-':
        return contextlib.nullcontext(sys.stdin)
    return open(path, encoding='utf-8')


# ---- A cluster that is read through librados, by read-only commands

#: The module's name among those of ceph-mgr.
MODULE = 'perfguard'
#: Seconds until a cluster that does not answer counts as unreachable.
CLUSTER_CONNECT_SECONDS = 30
#: Seconds until a command that is not answered has failed, for example without an active mgr.
CLUSTER_ANSWER_SECONDS = 300
#: Sends a command to the mons ("mon") or the active mgr ("mgr"), and returns its output. Raises
#: BadInput.
Ask = Callable[[str, Dict[str, Any]], bytes]


class LiveCluster:
    """The Source of a cluster."""

    def __init__(self, ask: Ask, progress: Terminal, warn: Callable[[str], None]) -> None:
        self._ask = ask
        self._progress = progress
        self._warn = warn

    def balances(self) -> bool:
        return bool(self._json('mgr', _balances, prefix='balancer status'))

    def module_campaign(self) -> str:
        """Why the module perfguard of the cluster prevents this plan: a campaign that has not
        ended, or keeps pins; '': there is none, or it cannot be read, which is a warning."""
        if MODULE not in self._json('mon', _modules, prefix='mgr module ls'):
            return ''
        try:
            status = self._json('mgr', _campaign, prefix='perfguard campaign status')
        except BadInput as e:
            self._warn('the module perfguard is enabled, but its campaign could not be read (%s)'
                       % e)
            return ''
        keeps_pins = status['phase'] == Phase.ABORTED and status['pinned']
        return '' if status['phase'] in ENDED and not keeps_pins else (
            'campaign %s of the module perfguard is %s: use "ceph perfguard campaign", or end it '
            'first' % (status['id'], status['phase']))

    def maps(self) -> Maps:
        osdmap: OsdMap = self._json('mon', osdmap_from_dump, prefix='osd dump')
        crush = self._json('mon', crush_rules, prefix='osd crush dump')
        health, states = self._json('mon', _health_and_states, prefix='status')
        return Maps(osdmap, crush, signals_of(
            health, states, osdmap, self._json('mon', _pool_bytes, prefix='df')),
            self._json('mon', osd_devices, prefix='osd metadata'))

    def pgs(self, also_clean: bool) -> List[PgSets]:
        rows: List[PgSets] = self._json('mgr', pg_sets, keep_sets if also_clean else keep_remapped,
                                        prefix='pg dump', dumpcontents=['pgs_brief'])
        return rows

    def space(self) -> Dict[int, Space]:
        by_osd: Dict[int, Space] = self._json('mgr', osd_space, prefix='osd df')
        return by_osd

    def config(self) -> Optional[Sequence[ConfigEntry]]:
        entries: Sequence[ConfigEntry] = self._json('mon', config_entries, prefix='config dump')
        return entries

    def encoded(self, epoch: int) -> Optional[bytes]:
        return self._sent('mon', prefix='osd getmap', epoch=epoch)

    def _sent(self, daemon: str, **command: Any) -> bytes:
        self._progress.say('reading the output of "ceph %s"' % command['prefix'])
        return self._ask(daemon, command)

    def _json(self, daemon: str, convert: Callable[[Any], Any],
              object_hook: Optional[ObjectHook] = None, **command: Any) -> Any:
        """The converted JSON of a command. Raises BadInput."""
        output = self._sent(daemon, format='json', **command)
        try:
            with output_of(command['prefix']):
                return converted(output.decode(), convert, object_hook)
        except (ValueError, WrongDump) as e:
            raise BadInput('unexpected output of "ceph %s": %s' % (command['prefix'], e)) from e


def _balances(dump: Any) -> bool:
    return bool(dump['active'] and dump['mode'].startswith('upmap'))


def _modules(dump: Any) -> List[str]:
    return list(dump['enabled_modules'])


def _campaign(status: Any) -> Dict[str, Any]:
    return {key: status[key] for key in ('id', 'phase', 'pinned')}


def _health_and_states(dump: Any) -> Tuple[Dict[str, Any], List[Tuple[str, int]]]:
    return dump['health'], [(row['state_name'], row['count'])
                            for row in dump['pgmap']['pgs_by_state']]


def _pool_bytes(dump: Any) -> Dict[int, int]:
    return {row['id']: row['stats']['stored'] for row in dump['pools']}


def connected(args: argparse.Namespace) -> Ask:
    """Connect to a cluster with the configuration and the key that the ceph command would use.
    Returns the function that sends commands to it. Raises BadInput."""
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
        # Also for commands to the mgr.
        handle.conf_set('rados_mon_op_timeout', str(CLUSTER_ANSWER_SECONDS))
        handle.connect(timeout=CLUSTER_CONNECT_SECONDS)
    except rados.Error as e:
        raise BadInput('cannot connect to the cluster: %s' % e) from e

    def ask(daemon: str, command: Dict[str, Any]) -> bytes:
        send = handle.mon_command if daemon == 'mon' else handle.mgr_command
        try:
            status, output, message = send(json.dumps(command), b'')
        except rados.Error as e:
            raise BadInput('"ceph %s" failed: %s' % (command['prefix'], e)) from e
        if status:
            raise BadInput('"ceph %s" failed: %s' % (
                command['prefix'], message or os.strerror(abs(status))))
        return bytes(output)

    return ask
