# SPDX-License-Identifier: LGPL-2.1-or-later
"""Where CRUSH will place the PGs after a change, by Ceph's own tools on copies of the maps.

For the module's own thread only: it waits for the mons and for the tools.
"""
import base64
import json
import re
import subprocess
import tempfile
from pathlib import Path
from typing import Callable, Dict, Iterator, List, Mapping, Optional, Tuple

from ..upmap.future import Future, FuturePg, NoFuture, Outlook, ToolFailed
from .crush import CrushRules
from .types import NO_OSD, OsdMap, OsdSet

OSDMAPTOOL = '/usr/bin/osdmaptool'
CRUSHTOOL = '/usr/bin/crushtool'
#: Seconds for one run of a tool; mapping 100,000 PGs takes a few.
TOOL_SECONDS = 60.0
#: The OSDMap of an epoch as bytes; raises OSError where the mons do not give it.
MapSource = Callable[[int], bytes]

#: "1.2f raw ([1,NONE,3], p1) up ([1,2,3], p1) acting ([1,2,3], p1)"
_PG = re.compile(r'(\d+\.[0-9a-f]+)\s+raw \(\[([^\]]*)\], p\S+\) up \(\[([^\]]*)\], p\S+\) '
                 r'acting \(\[([^\]]*)\], p\S+\)$')


def outlook(osdmap: OsdMap, source: MapSource, weights: Mapping[int, float],
            crush_map: Optional[bytes]) -> Outlook:
    """The mapping with other CRUSH weights of some OSDs, or with a whole other CRUSH map.

    Everything is computed on copies in a private directory that is gone afterwards.
    """
    try:
        with tempfile.TemporaryDirectory(prefix='perfguard-') as directory:
            return _outlook(Path(directory), osdmap, source, weights, crush_map)
    except (OSError, ToolFailed) as error:
        return NoFuture(str(error))
    except (LookupError, TypeError, ValueError) as error:
        return NoFuture('what the tools print cannot be read: %r' % error)


def _outlook(directory: Path, osdmap: OsdMap, source: MapSource,
             weights: Mapping[int, float], crush_map: Optional[bytes]) -> Outlook:
    osdmap_path, crush_path = str(directory / 'osdmap'), directory / 'crush'
    (directory / 'osdmap').write_bytes(source(osdmap.epoch))
    now = _mapping(osdmap_path)
    if crush_map is None:
        _run(OSDMAPTOOL, osdmap_path, '--export-crush', str(crush_path))
        for osd, weight in weights.items():
            _reweight(crush_path, osd, weight)
    else:
        crush_path.write_bytes(crush_map)
    later = _mapping(osdmap_path, '--import-crush', str(crush_path))
    rules = CrushRules.from_dump(json.loads(_run(CRUSHTOOL, '-i', str(crush_path), '--dump')))
    return Future(dict(_changed(osdmap, now, later)), rules, crush_map)


def compiled(crush_map: bytes) -> bytes:
    """A CRUSH map in the form that the mons take, from that form, its text, or base64 of either.

    Raises ToolFailed where it is none of these.
    """
    data = crush_map
    if re.fullmatch(rb'[A-Za-z0-9+/\s]+=*\s*', data):
        try:
            data = base64.b64decode(data, validate=False)
        except ValueError:
            pass  # a text of one word
    try:
        with tempfile.TemporaryDirectory(prefix='perfguard-') as directory:
            given, made = Path(directory) / 'given', Path(directory) / 'made'
            given.write_bytes(data)
            if b'\0' not in data:
                _run(CRUSHTOOL, '-c', str(given), '-o', str(made))
                return made.read_bytes()
            _run(CRUSHTOOL, '-i', str(given), '--dump')
            return data
    except OSError as error:
        raise ToolFailed(str(error)) from error


def rules_of(crush_map: bytes) -> CrushRules:
    """What a CRUSH map in the mons' form says; raises ToolFailed."""
    try:
        with tempfile.TemporaryDirectory(prefix='perfguard-') as directory:
            path = Path(directory) / 'crush'
            path.write_bytes(crush_map)
            return CrushRules.from_dump(json.loads(_run(CRUSHTOOL, '-i', str(path), '--dump')))
    except (OSError, LookupError, TypeError, ValueError) as error:
        raise ToolFailed('the CRUSH map cannot be read: %s' % error) from error


def _reweight(path: Path, osd: int, weight: float) -> None:
    changed = path.with_suffix('.new')
    _run(CRUSHTOOL, '-i', str(path), '--reweight-item', 'osd.%d' % osd, repr(weight),
         '-o', str(changed))
    changed.replace(path)


def _mapping(osdmap_path: str, *options: str) -> List[str]:
    """One line a PG; the tool itself says what the map's upmaps make of each."""
    lines = _run(OSDMAPTOOL, osdmap_path, *options, '--test-map-pgs-dump-all').splitlines()
    return [line for line in lines if 'raw (' in line]


def _changed(osdmap: OsdMap, now: List[str], later: List[str]
             ) -> Iterator[Tuple[str, FuturePg]]:
    """PGs whose line changes, and PGs with an upmap, of which the mon may drop some."""
    if len(now) != len(later):
        raise ValueError('%d PGs before the change, %d after it' % (len(now), len(later)))
    for old, new in zip(now, later):
        pgid = old.split(None, 1)[0]
        if old == new and not osdmap.entry(pgid):
            continue
        acting = _parsed(old, pgid)['acting']
        yield pgid, FuturePg(acting, _parsed(new, pgid)['raw'])


def _parsed(line: str, pgid: str) -> Mapping[str, OsdSet]:
    match = _PG.match(line.strip())
    if match is None or match.group(1) != pgid:
        raise ValueError('not the mapping of PG %s: %r' % (pgid, line[:200]))
    sets: Dict[str, OsdSet] = {}
    for name, text in zip(('raw', 'up', 'acting'), match.groups()[1:]):
        sets[name] = tuple(NO_OSD if osd == 'NONE' else int(osd)
                           for osd in text.split(',') if osd)
    return sets


def _run(*argv: str) -> str:
    try:
        done = subprocess.run(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, timeout=TOOL_SECONDS, check=False)
    except FileNotFoundError:
        raise ToolFailed('%s is not installed' % argv[0]) from None
    except subprocess.TimeoutExpired:
        raise ToolFailed('%s took more than %d s' % (argv[0], TOOL_SECONDS)) from None
    if done.returncode != 0:
        words = (done.stderr or done.stdout).decode(errors='replace').strip().splitlines()
        raise ToolFailed('%s failed: %s' % (argv[0], words[-1] if words else done.returncode))
    return done.stdout.decode(errors='replace')
