# SPDX-License-Identifier: LGPL-2.1-or-later
"""Ceph's tools at the edge: what they print is read, and whatever they do wrong is a reason."""
import base64
import json
import os
import subprocess
from pathlib import Path
from typing import Any, Dict, Iterator, List, Optional

import pytest

from perfguard.cluster import crush_preview
from perfguard.cluster.types import NO_OSD, OsdMap
from perfguard.upmap.future import Future, FuturePg, NoFuture, ToolFailed

CRUSH: Dict[str, Any] = {'buckets': [], 'types': [], 'rules': []}
OSDMAP = OsdMap(7, frozenset(), {}, {}, {'1.2': ((1, 4),)}, {}, {})
NOW = ['pool 1 pg_num 4',
       '1.0 raw ([0,1,2], p0) up ([0,1,2], p0) acting ([0,1,2], p0)',
       '1.1 raw ([3,1,2], p3) up ([3,1,2], p3) acting ([4,1,2], p4)',
       '1.2 raw ([1,2,3], p1) up ([4,2,3], p4) acting ([4,2,3], p4)',
       '1.3\traw ([1,NONE,3], p1) up ([1,NONE,3], p1) acting ([1,NONE,3], p1)',
       '#osd\tcount', ' in 4']
LATER = [*NOW[:2], NOW[2].replace('3,1,2', '9,1,2').replace('p3', 'p9'), NOW[3],
         NOW[4].replace('NONE', '9', 1), *NOW[5:]]


class Tools:
    """Stands in for the tools: prints NOW, and LATER for an imported CRUSH map."""

    def __init__(self) -> None:
        self.runs: List[List[str]] = []
        self.now, self.later, self.dump = NOW, LATER, json.dumps(CRUSH)
        self.error: Any = None
        self.status = 0

    def run(self, argv: Any, **kwargs: Any) -> 'subprocess.CompletedProcess[bytes]':
        self.runs.append(list(argv))
        assert kwargs['timeout'] > 0
        if self.error:
            raise self.error
        for flag in ('-o', '--export-crush'):
            if flag in argv:
                Path(argv[argv.index(flag) + 1]).write_bytes(b'made\0')
        lines = self.later if '--import-crush' in argv else self.now
        text = self.dump if '--dump' in argv else '\n'.join(lines)
        return subprocess.CompletedProcess(argv, self.status, text.encode(), b'one\nlast words\n')

    def outlook(self, crush_map: Optional[bytes] = None) -> Any:
        return crush_preview.outlook(OSDMAP, lambda epoch: b'map of %d' % epoch,
                                     {8: 1.5, 9: 0.0001}, crush_map)


@pytest.fixture()
def tools(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Tools]:
    found = Tools()
    monkeypatch.setattr(subprocess, 'run', found.run)
    monkeypatch.setenv('TMPDIR', str(tmp_path))
    monkeypatch.setattr('tempfile.tempdir', None)
    yield found
    assert os.listdir(tmp_path) == [], 'the private directory is left'


def test_pgs_that_change_or_have_an_upmap(tools: Tools) -> None:
    found = tools.outlook()
    assert isinstance(found, Future) and found.crush_map is None
    assert found.pgs == {'1.1': FuturePg((4, 1, 2), (9, 1, 2)),
                         '1.2': FuturePg((4, 2, 3), (1, 2, 3)),
                         '1.3': FuturePg((1, NO_OSD, 3), (1, 9, 3))}
    weights = [run[run.index('--reweight-item') + 1:][:2] for run in tools.runs
               if '--reweight-item' in run]
    assert weights == [['osd.8', '1.5'], ['osd.9', '0.0001']]


def test_a_whole_map_is_tried_as_it_is(tools: Tools) -> None:
    found = tools.outlook(b'given')
    assert found.crush_map == b'given' and not any('--export-crush' in run for run in tools.runs)


def break_(tools: Tools, how: str) -> None:
    broken: Dict[str, Any] = {
        'missing': ('error', FileNotFoundError()),
        'too slow': ('error', subprocess.TimeoutExpired('x', 1)),
        'fails': ('status', 1), 'fewer': ('later', LATER[:-4]),
        'other words': ('later', [*LATER[:2], '1.1 raw (9,1,2) up', *LATER[3:]]),
        'no JSON': ('dump', 'crushtool'), 'other JSON': ('dump', '[]')}
    setattr(tools, *broken[how])


@pytest.mark.parametrize('how, reason', [
    ('missing', 'is not installed'), ('too slow', 'took more than'), ('fails', 'last words'),
    ('fewer', '4 PGs before the change, 2 after it'), ('other words', 'not the mapping of PG 1.1'),
    ('no JSON', 'cannot be read'), ('other JSON', 'cannot be read')])
def test_whatever_is_wrong_is_a_reason(tools: Tools, how: str, reason: str) -> None:
    break_(tools, how)
    found = tools.outlook()
    assert isinstance(found, NoFuture) and reason in found.reason


def test_mons_that_do_not_give_the_map(tools: Tools) -> None:
    def source(epoch: int) -> bytes:
        raise OSError('the mons do not give OSDMap %d' % epoch)

    assert crush_preview.outlook(OSDMAP, source, {}, None) == NoFuture(
        'the mons do not give OSDMap 7')


def test_maps_in_every_form(tools: Tools) -> None:
    for given, made in ((b'bin\0ary\xff', b'bin\0ary\xff'),
                        (base64.b64encode(b'bin\0ary\xff'), b'bin\0ary\xff'),
                        (base64.encodebytes(b'bin\0ary\xff' * 99), b'bin\0ary\xff' * 99),
                        (b'# begin crush map\ntunable ...\n', b'made\0')):
        assert crush_preview.compiled(given) == made
    tools.status = 1
    with pytest.raises(ToolFailed, match='last words'):
        crush_preview.compiled(b'# nonsense\n')


def test_rules_of_a_map(tools: Tools) -> None:
    assert crush_preview.rules_of(b'map\0').weights() == {}
    tools.dump = '{}'
    with pytest.raises(ToolFailed, match='cannot be read'):
        crush_preview.rules_of(b'map\0')
