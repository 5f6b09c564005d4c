# SPDX-License-Identifier: LGPL-2.1-or-later
"""The input of plans: dumps in files or, in live.py, the cluster itself."""
import argparse
import contextlib
import json
import sys
from dataclasses import dataclass, field
from typing import (Any, Callable, ContextManager, Dict, List, Mapping, Optional, Protocol, TextIO,
                    Tuple)

from ..cluster.crush import CrushRules
from ..cluster.dumps import (CLEAN, WrongDump, epoch_of, keep_remapped, keep_sets, osdmap_from_dump,
                             pg_rows, wrong_pg_dump)
from ..cluster.types import OsdMap, PgSets, Space
from ..errors import PerfguardError

ObjectHook = Callable[[Dict[str, Any]], Any]


class BadInput(PerfguardError):
    """Input that cannot be used; the message is the one line that the user sees."""


@dataclass(frozen=True)
class Maps:
    osdmap: OsdMap
    #: None: not given.
    crush: Optional[CrushRules]
    #: Bytes that clients have stored, by pool id; empty: not known.
    pool_bytes: Mapping[int, int] = field(default_factory=dict)


class Source(Protocol):
    """Each call reads; all raise BadInput."""

    def rival(self) -> str:
        """Text on the campaign of the module that moves or pins PGs of this cluster; '': none is
        known."""

    def maps(self) -> Maps: ...

    def pgs(self, clean: bool) -> List[PgSets]:
        """Rows of the PG dump; `clean`: also those whose up set is their acting set."""

    def space(self) -> Dict[int, Space]: ...

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
    """The Source of files; "-" is standard input."""

    def __init__(self, args: argparse.Namespace, progress: Terminal) -> None:
        self._report: Optional[str] = args.report
        self._osd_dump: Optional[str] = getattr(args, 'osd_dump', None)
        self._crush_dump: Optional[str] = getattr(args, 'crush_dump', None)
        self._pg_dump: Optional[str] = getattr(args, 'pg_dump', None)
        self._osd_df: Optional[str] = getattr(args, 'osd_df', None)
        self._osdmap: Optional[str] = getattr(args, 'osdmap', None)
        self._progress = progress
        self._check()

    def rival(self) -> str:
        return ''  # dumps do not show it

    def maps(self) -> Maps:
        if self._report:
            maps: Maps = self._read(self._report, reported)
            return maps
        assert self._osd_dump is not None
        osdmap: OsdMap = self._read(self._osd_dump, osdmap_from_dump)
        crush = None if self._crush_dump is None else self._read(self._crush_dump, crush_rules)
        return Maps(osdmap, crush)

    def pgs(self, clean: bool) -> List[PgSets]:
        assert self._pg_dump is not None
        found: List[PgSets] = self._read(self._pg_dump, pg_sets,
                                         keep_sets if clean else keep_remapped)
        return found

    def space(self) -> Dict[int, Space]:
        assert self._osd_df is not None
        found: Dict[int, Space] = self._read(self._osd_df, osd_space)
        return found

    def encoded(self, epoch: int) -> Optional[bytes]:
        if self._osdmap is None:
            return None
        try:
            with open(self._osdmap, 'rb') as f:
                encoded = f.read()
            found = epoch_of(encoded)
        except OSError as e:
            raise BadInput('%s: %s' % (self._osdmap, e.strerror)) from e
        except ValueError as e:
            raise BadInput('%s: %s' % (self._osdmap, e)) from e
        if found != epoch:
            raise BadInput('%s is OSDMap epoch %d, but the other dump shows epoch %d: take it '
                           'with "ceph osd getmap %d -o FILE"' % (
                               self._osdmap, found, epoch, epoch))
        return encoded

    def _check(self) -> None:
        if [self._report, self._osd_dump, self._pg_dump, self._crush_dump,
                self._osd_df].count('-') > 1:
            raise BadInput('only one of the dumps can come from standard input')
        if bool(self._report) == bool(self._osd_dump):
            raise BadInput('one of --live, --report and --osd-dump is required')
        if self._report and self._crush_dump:
            raise BadInput('--crush-dump is part of --report')

    def _read(self, path: str, convert: Callable[[Any], Any],
              object_hook: Optional[ObjectHook] = None) -> Any:
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
    """Raises WrongDump, or an error of json.loads."""
    return convert(json.loads(text, object_hook=object_hook))


def reported(report: Any) -> Maps:
    """From "ceph report"; raises WrongDump."""
    if not isinstance(report, dict) or not {'osdmap', 'crushmap'} <= report.keys():
        raise WrongDump('not the output of "ceph report"')
    rows = report.get('pool_stats', [])
    return Maps(osdmap_from_dump(report['osdmap']), crush_rules(report['crushmap']),
                dict(map(_reported_bytes, rows)))


def _reported_bytes(row: Any) -> Tuple[int, int]:
    try:
        return row['poolid'], row['stat_sum']['num_bytes']
    except (KeyError, TypeError) as e:
        raise WrongDump('not the output of "ceph report"') from e


def crush_rules(dump: Any) -> CrushRules:
    try:
        return CrushRules.from_dump(dump)
    except (KeyError, TypeError) as e:
        raise WrongDump('not the output of "ceph osd crush dump -f json"') from e


def pg_sets(dump: Any) -> List[PgSets]:
    kept = [row for row in pg_rows(dump) if row is not CLEAN]
    if not all(isinstance(row, PgSets) for row in kept):
        raise wrong_pg_dump()
    return kept


def osd_space(dump: Any) -> Dict[int, Space]:
    try:
        return {row['id']: Space(row['kb'] << 10, row['kb_used'] << 10, row.get('pgs'))
                for row in dump['nodes']}
    except (KeyError, TypeError) as e:
        raise WrongDump('not the output of "ceph osd df -f json"') from e


def _opened(path: str) -> ContextManager[TextIO]:
    if path == '-':
        return contextlib.nullcontext(sys.stdin)
    return open(path, encoding='utf-8')
