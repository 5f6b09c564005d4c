# SPDX-License-Identifier: LGPL-2.1-or-later
"""Ceph's tools: their output is read, and each of their failures becomes a reason."""
import base64
import itertools
import json
import os
import shutil
import signal
import struct
import subprocess
import sys
import time
from pathlib import Path
from types import ModuleType
from typing import Any, Callable, Dict, Iterator, List, Optional, Tuple

import pytest

from perfguard.cluster import crush_preview
from perfguard.cluster.map_encoding import rules_exchanged
from perfguard.cluster.ports import Future, FuturePg, NoFuture, ToolFailed
from perfguard.cluster.types import NO_OSD, OsdMap

CRUSH: Dict[str, Any] = {'buckets': [], 'types': [], 'rules': []}
OSDMAP = OsdMap(7, frozenset(), {}, {}, {'1.2': ((1, 4),)}, {}, {})
NOW = ['pool 1 pg_num 4',
       '1.0 raw ([0,1,2], p0) up ([0,1,2], p0) acting ([0,1,2], p0)',
       '1.1 raw ([3,1,2], p3) up ([3,1,2], p3) acting ([4,1,2], p4)',
       '1.2 raw ([1,2,3], p1) up ([4,2,3], p4) acting ([4,2,3], p4)',
       '1.3\traw ([1,NONE,3], p1) up ([1,NONE,3], p1) acting ([1,NONE,3], p1)',
       '#osd\tcount', ' in 4']
PYTHON = sys.executable
LATER = [*NOW[:2], NOW[2].replace('3,1,2', '9,1,2').replace('p3', 'p9'), NOW[3],
         NOW[4].replace('NONE', '9', 1), *NOW[5:]]


class Mons:
    """Stands for MgrModule and for its librados: the mons answer one command."""

    def __init__(self, status: int, data: bytes) -> None:
        self.rados, self._reply = self, (status, data, 'why')
        self.get_latest_counter = None
        self.commands: List[Dict[str, Any]] = []

    def mon_command(self, command: str, inbuf: bytes, timeout: int) -> Tuple[int, bytes, str]:
        self.commands.append(json.loads(command))
        return self._reply


@pytest.mark.parametrize('status, data', [(0, b'map'), (-2, b''), (0, b'')])
def test_the_osdmap_of_an_epoch_comes_from_the_mons(
        mgr_stub: ModuleType, monkeypatch: pytest.MonkeyPatch, status: int, data: bytes) -> None:
    from perfguard.cluster.mgr import MgrCluster
    mons: Any = Mons(status, data)
    cluster = MgrCluster(mons, lambda: False, lambda: 0.0)
    for name in ('outlook', 'grown', 'shrunk'):
        monkeypatch.setattr(crush_preview, name, lambda osdmap, read, *_: read(osdmap.epoch))
    for ask in (lambda: cluster.outlook(OSDMAP, {}, None), lambda: cluster.shrunk(OSDMAP, set())):
        if data:
            assert ask() == data
        else:
            with pytest.raises(OSError, match='could not get OSDMap 7 from the mons: why'):
                ask()
    assert mons.commands == 2 * [{'prefix': 'osd getmap', 'epoch': 7}]


class Process:
    """A tool that has ended, or that hangs until its process group is killed."""

    def __init__(self, status: int, hangs: bool) -> None:
        self.pid = next(PIDS)
        self.returncode = None if hangs else status
        self.killed = self.reaped = False

    def wait(self, timeout: Optional[float] = None) -> Optional[int]:
        if self.returncode is None:
            assert timeout is not None, 'it is waited for without a limit'
            raise subprocess.TimeoutExpired('tool', timeout)
        self.reaped = True
        return self.returncode

    def poll(self) -> Optional[int]:
        return self.returncode

    def kill(self) -> None:
        self.killed, self.returncode = True, -9


#: Higher than the kernel's.
PIDS = itertools.count(1 << 30)


class Tools:
    """Stands in for the tools: prints NOW, and LATER with a CRUSH map or weights of its own."""

    def __init__(self) -> None:
        self.runs: List[List[str]] = []
        #: The whole command lines, and the environments.
        self.calls: List[Any] = []
        #: CRUSH maps that were read.
        self.given: List[bytes] = []
        self.made = b'made\0'
        self.now, self.later, self.dump = NOW, LATER, json.dumps(CRUSH)
        self.error: Any = None
        self.status = 0
        self.hangs = False
        self.stopping = False
        self.processes: List[Process] = []

    def run(self, argv: Any, **kwargs: Any) -> Process:
        changed = any('--adjust-crush-weight' in run for run in self.runs)
        self.calls.append((list(argv), kwargs['env']))
        argv = argv[4:]
        self.runs.append(list(argv))
        if self.error:
            raise self.error
        self.given += [Path(argv[argv.index(flag) + 1]).read_bytes()
                       for flag in ('-i', '-c', '--import-crush') if flag in argv]
        for flag in ('-o', '--export-crush'):
            if flag in argv:
                Path(argv[argv.index(flag) + 1]).write_bytes(self.made)
        lines = self.later if '--import-crush' in argv or changed else self.now
        text = self.dump if '--dump' in argv else '\n'.join(lines)
        kwargs['stdout'].write(text.encode())
        kwargs['stderr'].write(b'one\nlast words\n')
        self.processes.append(Process(self.status, self.hangs))
        return self.processes[-1]

    def outlook(self, crush_map: Optional[bytes] = None) -> Any:
        return crush_preview.outlook(OSDMAP, lambda epoch: b'map of %d' % epoch,
                                     {8: 1.5, 9: 0.0001}, crush_map, lambda: self.stopping)


@pytest.fixture()
def tools(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Tools]:
    found = Tools()

    def kill_group(pid: int, sent: int) -> None:
        assert sent == signal.SIGKILL
        process, = [process for process in found.processes if process.pid == pid]
        process.kill()

    monkeypatch.setattr(subprocess, 'Popen', found.run)
    monkeypatch.setattr(os, 'killpg', kill_group)
    monkeypatch.setenv('TMPDIR', str(tmp_path))
    monkeypatch.setattr('tempfile.tempdir', None)
    yield found
    assert os.listdir(tmp_path) == [], 'the private directory is left'


def test_pgs_that_change_or_have_an_upmap(tools: Tools) -> None:
    found = tools.outlook()
    assert isinstance(found, Future) and found.crush_map is None
    hole = (1, NO_OSD, 3)
    assert found.pgs == {'1.1': FuturePg((4, 1, 2), (9, 1, 2), (9, 1, 2), (3, 1, 2)),
                         '1.2': FuturePg((4, 2, 3), (1, 2, 3), (4, 2, 3), (1, 2, 3)),
                         '1.3': FuturePg(hole, (1, 9, 3), hole, hole)}


def test_all_weights_go_into_one_call(tools: Tools) -> None:
    tools.outlook()
    weights = [run[run.index('--adjust-crush-weight') + 1] for run in tools.runs
               if '--adjust-crush-weight' in run]
    assert weights == ['8:1.5,9:0.0001'] and len(tools.runs) == 4


def test_an_argument_has_room_for_many_weights(tools: Tools) -> None:
    many = {osd: 1.8189849853515625 for osd in range(2 * crush_preview.WEIGHTS_AT_ONCE)}
    crush_preview.outlook(OSDMAP, lambda epoch: b'map', many, None, lambda: False)
    given = [run[run.index('--adjust-crush-weight') + 1] for run in tools.runs
             if '--adjust-crush-weight' in run]
    assert len(given) == 2 and max(map(len, given)) < 128 << 10
    assert sum(argument.count(':') for argument in given) == len(many)


def test_without_a_change_the_map_is_read_once(tools: Tools) -> None:
    found = crush_preview.outlook(OSDMAP, lambda epoch: b'map', {}, None, lambda: False)
    assert isinstance(found, Future) and list(found.pgs) == ['1.2'] and len(tools.runs) == 2


def test_all_pgs_of_pools_that_change_where_that_is_asked_for(tools: Tools) -> None:
    others = ['2.0 raw ([0,1,2], p0) up ([0,1,2], p0) acting ([0,1,2], p0)']
    tools.now, tools.later = [*NOW, *others], [*LATER, *others]
    found = crush_preview.outlook(OSDMAP, lambda epoch: b'map', {8: 1.0}, None, lambda: False, True)
    assert isinstance(found, Future)
    assert found.others == {'1.0': FuturePg((0, 1, 2), (0, 1, 2), (0, 1, 2))}
    assert set(found.pgs) == {'1.1', '1.2', '1.3'} and tools.outlook().others == {}


def test_all_pgs_where_nothing_changes(tools: Tools) -> None:
    found = crush_preview.outlook(OSDMAP, lambda epoch: b'map', {}, None, lambda: False, True)
    assert isinstance(found, Future) and set(found.pgs) == {'1.2'}
    assert set(found.others) == {'1.0', '1.1', '1.3'} and len(tools.runs) == 2


def test_a_whole_map_is_tried_as_it_is(tools: Tools) -> None:
    found = tools.outlook(b'given')
    assert found.crush_map == b'given' and tools.given == [b'given', b'given']
    assert not any('--adjust-crush-weight' in run for run in tools.runs)
    assert found.pgs == tools.outlook().pgs


def break_(tools: Tools, how: str) -> None:
    broken: Dict[str, Any] = {
        'missing': ('status', 127),
        'fails': ('status', 1), 'fewer': ('later', LATER[:-4]),
        'other words': ('later', [*LATER[:2], '1.1 raw (9,1,2) up', *LATER[3:]]),
        'no JSON': ('dump', 'crushtool'), 'other JSON': ('dump', '[]')}
    setattr(tools, *broken[how])


@pytest.mark.parametrize('how, reason', [
    ('missing', 'is not installed'), ('fails', 'last words'),
    ('fewer', 'not the same PGs'), ('other words', 'not the mapping of PG 1.1'),
    ('no JSON', 'cannot read'), ('other JSON', 'cannot read')])
def test_whatever_is_wrong_is_a_reason(tools: Tools, monkeypatch: pytest.MonkeyPatch, how: str,
                                       reason: str) -> None:
    if how == 'missing':
        monkeypatch.setattr(crush_preview, 'OSDMAPTOOL', '/nowhere/osdmaptool')
    break_(tools, how)
    found = tools.outlook()
    assert isinstance(found, NoFuture) and reason in found.reason


def hang(tools: Tools, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(crush_preview, 'TOOL_SECONDS', 0.0)
    tools.hangs = True
    return 'took more than'


def flood(tools: Tools, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(crush_preview, 'DUMP_BYTES', 8)
    monkeypatch.setattr(crush_preview, 'PG_OUTPUT_BYTES', 0)
    tools.hangs = True
    return 'printed more than'


def stop(tools: Tools, monkeypatch: pytest.MonkeyPatch) -> str:
    tools.hangs = tools.stopping = True
    return 'is being stopped'


@pytest.mark.parametrize('ruin', [hang, flood, stop])
def test_a_tool_out_of_bounds_is_killed(tools: Tools, monkeypatch: pytest.MonkeyPatch,
                                        ruin: Callable[..., str]) -> None:
    reason = ruin(tools, monkeypatch)
    found = tools.outlook()
    assert isinstance(found, NoFuture) and reason in found.reason
    assert [(process.killed, process.reaped) for process in tools.processes] == 2 * [(True, True)]


def test_mons_that_do_not_give_the_map(tools: Tools) -> None:
    def source(epoch: int) -> bytes:
        raise OSError('the mons do not give OSDMap %d' % epoch)

    assert crush_preview.outlook(OSDMAP, source, {}, None, lambda: False) == NoFuture(
        'the mons do not give OSDMap 7')


def test_maps_in_every_form(tools: Tools) -> None:
    tools.made = crush_map_of(rule_of(0, 3))
    binary = crush_map_of(rule_of(0, 2))
    for given, made in ((binary, binary), (base64.b64encode(binary), binary),
                        (base64.encodebytes(binary), binary),
                        (b'# begin crush map\ntunable ...\n', tools.made)):
        assert crush_preview.compiled(given, 6, lambda: False) == made
    assert tools.given == [binary, binary, binary, given]
    crush_preview.rules_of(binary, lambda: False)
    assert tools.given[4:] == [binary]
    tools.status = 1
    for wrong in (b'# nonsense\n', binary):
        with pytest.raises(ToolFailed, match='last words'):
            crush_preview.compiled(wrong, 6, lambda: False)


def test_how_large_a_map_may_be(tools: Tools, monkeypatch: pytest.MonkeyPatch) -> None:
    binary = crush_map_of(rule_of(0, 2))
    monkeypatch.setattr(crush_preview, 'MAP_OSD_BYTES', 1)
    for limit, given, is_small in (
            (len(binary), binary, True), (len(binary) - 1, binary, False),
            # Blanks in base64 do not count, up to twice the limit.
            (len(binary), base64.b64encode(binary).ljust(2 * len(binary)), True),
            (len(binary), base64.b64encode(binary).ljust(2 * len(binary) + 1), False)):
        monkeypatch.setattr(crush_preview, 'MAP_BYTES', limit - 6)
        if is_small:
            assert crush_preview.compiled(given, 6, lambda: False) == binary
        else:
            with pytest.raises(ToolFailed, match='MiB'):
                crush_preview.compiled(given, 6, lambda: False)
    monkeypatch.setattr(crush_preview, 'MAP_BYTES', (1 << 20) - 6)
    with pytest.raises(ToolFailed, match='^the map has 1.5 MiB, the limit for 6 OSDs is 1.0 MiB$'):
        crush_preview.compiled(bytes(3 << 19), 6, lambda: False)


def test_how_much_a_tool_may_print(tools: Tools) -> None:
    printed = len('\n'.join(NOW)) + len('one\nlast words\n')
    with crush_preview._tools(lambda: False) as in_directory:
        assert in_directory.run('x', limit=printed).read_text() == '\n'.join(NOW)
        with pytest.raises(ToolFailed, match='^x printed more than %d bytes$' % (printed - 1)):
            in_directory.run('x', limit=printed - 1)
        tools.status = -1
        with pytest.raises(ToolFailed, match='^x ended with signal 1 .memory limit: 1024 MiB.$'):
            in_directory.run('x')


def test_a_long_line_that_is_no_mapping_is_cut() -> None:
    with pytest.raises(ValueError) as refused:
        crush_preview._parsed('1.1 ' + 'x' * 300, '1.1')
    assert str(refused.value) == "not the mapping of PG 1.1: '1.1 %s'" % ('x' * 196)


def test_the_last_line_that_a_tool_printed(tmp_path: Path) -> None:
    path = tmp_path / 'errors'
    for printed, last in (('', ''), ('a', 'a'), ('a\nb\n\n', 'b'), ('a' * 5000 + '\nb', 'b'),
                          ('a' * 5000, 'a' * 4096)):
        path.write_text(printed)
        assert crush_preview._last_words(path) == last


@pytest.mark.parametrize('blanks', [200_000, 5_000_000])
def test_blanks_take_no_time(tools: Tools, blanks: int) -> None:
    """The search for base64 holds the GIL, and with it ceph-mgr."""
    begin = time.monotonic()
    tools.status = 1
    with pytest.raises(ToolFailed, match='MiB' if blanks > 2 << 20 else 'last words'):
        crush_preview.compiled(b' ' * blanks + b'#', 6, lambda: False)
    assert time.monotonic() - begin < 30.0


@pytest.mark.parametrize('end', [b'', b'\n', b' \n\n'])
def test_base64_with_blanks_at_its_end(tools: Tools, end: bytes) -> None:
    binary = crush_map_of(rule_of(0, 2))
    for given in (binary, binary + b'\0', binary + b'\0\0'):
        assert crush_preview.compiled(base64.b64encode(given) + end, 6, lambda: False) == given


TEXT = b'device %d osd.%d\ntype 0 osd\nroot default {\n id %d\n item osd.%d weight 1.0000\n}\n'


@pytest.mark.parametrize('given, text', [
    ('crush map', 'osd.4000000, but the highest OSD ID in the cluster is 5'), ('text', 'IDs'),
    ('bucket', 'IDs'), ('on two lines', 'IDs'),
    ('loop', 'contains itself'), ('diamonds', 'too many buckets'), ('large', 'MiB'),
    ('large text', 'MiB'), ('nonsense', 'no compiled CRUSH map'),
    ('short', 'no compiled CRUSH map')])
def test_a_map_that_takes_much_memory_is_given_to_no_tool(tools: Tools, given: str,
                                                          text: str) -> None:
    """crushtool prints a line for each id of an OSD, and has a place for each one of a bucket."""
    fine = crush_map_of(rule_of(0, 2))
    maps = {'crush map': fine.replace(struct.pack('<i', 5), struct.pack('<i', 4000000)),
            'text': TEXT % (4000000, 4000000, -1, 4000000), 'bucket': TEXT % (0, 0, -10 ** 9, 0),
            'loop': buckets_of({-1: (-2, 0), -2: (1, -1)}),
            'diamonds': buckets_of({-n: (-n - 1, -n - 1) for n in range(1, 90)}),
            'on two lines': b'root default { id\n\t-0001000000 alg straw2 }',
            'large': fine + bytes(2 << 20), 'large text': b'# comment\n' * (2 << 17),
            'nonsense': b'bin\0ary\xff', 'short': fine[:200]}
    for data in (maps[given], base64.b64encode(maps[given])):
        with pytest.raises(ToolFailed, match=text):
            crush_preview.compiled(data, 6, lambda: False)
    assert tools.runs == []


def test_ids_of_a_text_count_as_compiled(tools: Tools) -> None:
    tools.made = crush_map_of(rule_of(0, 2)).replace(struct.pack('<i', 5), struct.pack('<i', 20000))
    with pytest.raises(ToolFailed, match='osd.20000'):
        crush_preview.compiled(TEXT % (20000, 20000, -1, 20000), 6, lambda: False)
    assert crush_preview.compiled(TEXT % (20000, 20000, -1, 20000), 20000,
                                  lambda: False) == tools.made


def test_a_tool_may_use_little_memory_and_leaves_no_crash_report(tools: Tools) -> None:
    tools.outlook()
    assert tools.calls and not [argv for argv, _ in tools.calls
                                if argv[0] != '/bin/sh' or 'ulimit -v 1048576' not in argv[2]]
    assert {env['CEPH_ARGS'].split()[-1] for _, env in tools.calls} == {'--crash_dir='}


def test_directories_of_dead_processes_are_removed(tools: Tools, tmp_path: Path) -> None:
    """Not those in use, of which one may have had no output for long, nor those of others."""
    names = 'dead', 'in use', 'new', 'file'
    dead, in_use, new, file = (tmp_path / (crush_preview.TOOLS_PREFIX + name) for name in names)
    other = tmp_path / 'perfguard-data'
    for path in (dead, in_use, new, other):
        path.joinpath('sub').mkdir(parents=True)
    file.write_text('')
    with crush_preview._locked(in_use):
        for path in (dead, in_use, file, other):
            os.utime(path, (0, 0))
        tools.outlook()
        assert set(tmp_path.iterdir()) == {in_use, new, file, other}
    os.utime(in_use, (0, 0))
    tools.outlook()
    assert set(tmp_path.iterdir()) == {new, file, other}
    file.unlink()
    for path in (new, other):
        shutil.rmtree(path)


def ran(*argv: str) -> str:
    """What a real program prints, run as a tool of Ceph."""
    with crush_preview._tools(lambda: False) as found:
        return found.run(*argv).read_text()


def test_the_failure_of_a_tool_beside_another_is_noticed_at_once() -> None:
    with crush_preview._tools(lambda: False) as found:
        with found.meanwhile('/bin/sh', '-c', 'echo no map; exit 1'):
            with pytest.raises(ToolFailed, match='^/bin/sh failed: no map$'):
                found.run('/bin/sleep', '100')


@pytest.mark.parametrize('available, limit, used, together', [
    (2048, 'max', 0, True), (2047, 'max', 0, False), (9000, '3000', 952, True),
    (9000, '3000', 953, False), (9000, None, 0, True), (None, 'max', 0, True),
    (None, '2047', 0, False)])
def test_two_tools_run_at_the_same_time_if_there_is_memory(
        tools: Tools, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory,
        available: Optional[int], limit: Optional[str], used: int, together: bool) -> None:
    """All in MiB."""
    directory = tmp_path_factory.mktemp('memory')
    monkeypatch.setattr(crush_preview, 'MEMINFO', directory / 'meminfo')
    monkeypatch.setattr(crush_preview, 'CGROUP', directory)
    if available is not None:
        (directory / 'meminfo').write_text('MemTotal:  99 kB\nMemAvailable:   %d kB\n'
                                           % (available << 10))
    if limit is not None:
        (directory / 'memory.max').write_text(
            limit + '\n' if limit == 'max' else '%d\n' % (int(limit) << 20))
        (directory / 'memory.current').write_text('%d\n' % (used << 20))
    before = tools.outlook()
    assert isinstance(before, Future) and len(before.pgs) == 3
    with crush_preview._tools(lambda: False) as found:
        tools.hangs = True
        found._stopping = lambda: True
        if together:
            with crush_preview._map_pgs_meanwhile(found, b'map', 4):
                pass
        else:
            with pytest.raises(ToolFailed, match='^perfguard is being stopped$'):
                crush_preview._map_pgs_meanwhile(found, b'map', 4)


def test_the_kernel_ends_a_tool_before_ceph_mgr() -> None:
    assert ran('/bin/cat', '/proc/self/oom_score_adj') == '1000\n'


def test_programs_within_and_beyond_the_limits() -> None:
    assert ran('/bin/sh', '-c', 'ulimit -v; echo "$0" $CEPH_ARGS', 'a b').split('\n')[:2] == [
        str(crush_preview.TOOL_BYTES >> 10), 'a b --crash_dir=']
    for argv, text in (
            (('/nowhere/crushtool', '-i', 'x'), '/nowhere/crushtool is not installed'),
            (('/bin/sh', '-c', 'kill -11 $$'), 'ended with signal 11 .memory limit: 1024 MiB'),
            (('/bin/sh', '-c', 'kill -9 $$'), '/bin/sh was killed, perhaps because memory ran out'),
            (('/bin/sh', '-c', "sh -c 'kill -9 $$' || exit"), '/bin/sh was killed, perhaps'),
            (('/bin/sh', '-c', 'echo last words; exit 127'), 'last words'),
            ((PYTHON, '-c', 'bytearray(2 << 30)'), 'MemoryError')):
        with pytest.raises(ToolFailed, match=text):
            ran(*argv)


def test_a_program_that_a_shell_runs_is_killed_with_it(tmp_path: Path) -> None:
    text = 'sleep 100 & echo $! > "$0.new"; mv "$0.new" "$0"; wait'
    with crush_preview._tools(lambda: (tmp_path / 'pid').exists()) as found:
        with pytest.raises(ToolFailed, match='is being stopped'):
            found.run('/bin/sh', '-c', text, str(tmp_path / 'pid'))
    process = Path('/proc', (tmp_path / 'pid').read_text().strip())
    for _ in range(1000):
        try:
            # Empty once it is killed, even if it is not reaped yet.
            if not (process / 'cmdline').read_bytes():
                return
        except (FileNotFoundError, ProcessLookupError):
            return
        time.sleep(0.01)
    pytest.fail('it still runs')


def test_rules_of_a_map(tools: Tools) -> None:
    assert crush_preview.rules_of(b'map\0', lambda: False).weights() == {}
    tools.dump = '{}'
    with pytest.raises(ToolFailed, match='cannot read'):
        crush_preview.rules_of(b'map\0', lambda: False)


#: A bucket's bytes after its items, by algorithm: uniform, list, tree, straw, straw2.
BUCKETS = {1: b'w' * 4, 2: b'w' * 16, 3: b'\3' + b'w' * 12, 4: b'w' * 16, 5: b'w' * 8}


def bucket_of(algorithm: int) -> bytes:
    return struct.pack('<IiHBBIIii', algorithm, -1, 1, algorithm, 0, 9, 2, 4, 5) \
        + BUCKETS[algorithm]


def rule_of(number: int, steps: int) -> bytes:
    """A rule whose type and steps are its own number."""
    return struct.pack('<IIBBBB', 1, steps, number, number, 1, 10) + bytes([number]) * 12 * steps


def buckets_of(items: Dict[int, Any]) -> bytes:
    """A map with straw2 buckets of two items each."""
    return struct.pack('<IiIi', 0x10000, len(items), 0, 8) + b''.join(
        struct.pack('<IiHBBIIii', 5, bucket, 1, 5, 0, 9, 2, *inside) + BUCKETS[5]
        for bucket, inside in items.items())


def crush_map_of(*rules: bytes) -> bytes:
    buckets = [bucket_of(algorithm) for algorithm in sorted(BUCKETS)] + [bytes(4)]
    return struct.pack('<IiIi', 0x10000, len(buckets), len(rules), 8) + b''.join(
        [*buckets, *rules]) + b'names and tunables'


def test_two_rules_change_their_ids() -> None:
    none = bytes(4)
    found = crush_map_of(rule_of(0, 2), none, rule_of(2, 3), rule_of(3, 1))
    made = rules_exchanged(found, 3, 0)
    first = rule_of(3, 1)[:8] + b'\0' + rule_of(3, 1)[9:]
    last = rule_of(0, 2)[:8] + b'\3' + rule_of(0, 2)[9:]
    assert made == crush_map_of(first, none, rule_of(2, 3), last)
    assert rules_exchanged(made, 0, 3) == found
    assert rules_exchanged(found, 2, 2) == found


@pytest.mark.parametrize('crush_map', [b'', b'\0' * 40, crush_map_of(rule_of(0, 2)),
                                       crush_map_of(rule_of(0, 2), rule_of(1, 2))[:150]])
def test_what_is_no_crush_map_with_both_rules(crush_map: bytes) -> None:
    with pytest.raises(ValueError):
        rules_exchanged(crush_map, 0, 1)
