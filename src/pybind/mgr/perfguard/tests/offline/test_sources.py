# SPDX-License-Identifier: LGPL-2.1-or-later
"""perfguard-plan --live, with a cluster that answers from dumps."""
import errno
import io
import json
import shlex
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Dict, List, Tuple

import pytest

from perfguard.cluster.crush import CrushRules
from perfguard.cluster.ports import Future
from perfguard.offline import command
from perfguard.offline.sources import BadInput, LiveCluster, Terminal

from .test_command import CRUSH_DUMP, FUTURE, OSD_DF, OSD_DUMP, ROWS, Files

ANSWERS: Dict[str, Any] = {
    'osd dump': OSD_DUMP, 'osd crush dump': CRUSH_DUMP, 'osd df': OSD_DF,
    'balancer status': {'active': False, 'mode': 'upmap'}, 'mgr module ls': {'enabled_modules': []},
    'status': {'health': {'checks': {}}, 'pgmap': {'pgs_by_state': []}}, 'config dump': [],
    'osd getmap': '',
    'pg dump': {'pg_stats': ROWS}, 'df': {'pools': [{'id': 1, 'stats': {'stored': 256 << 20}}]},
    'osd metadata': [{'id': 3, 'hostname': 'h', 'bluestore_bdev_devices': 'sda'}, {'id': 4}]}


class Rados:
    """The part of rados.Rados that is used."""
    made: List['Rados'] = []
    status, message = 0, 'access denied'

    def __init__(self, **words: str) -> None:
        self.words = words
        self.set: Dict[str, str] = {}
        self.asked: List[Tuple[str, Dict[str, Any]]] = []
        Rados.made.append(self)

    def conf_read_file(self, path: str) -> None:
        self.words['conf'] = path

    def conf_parse_env(self, name: str) -> None:
        self.words['env'] = name

    def conf_set(self, name: str, value: str) -> None:
        self.set[name] = value

    def connect(self, timeout: int) -> None:
        pass

    def mon_command(self, command: str, inbuf: bytes) -> Tuple[int, bytes, str]:
        return self._answer('mon', json.loads(command))

    def mgr_command(self, command: str, inbuf: bytes) -> Tuple[int, bytes, str]:
        return self._answer('mgr', json.loads(command))

    def _ask(self, daemon: str, asked: Dict[str, Any]) -> bytes:
        return self._answer(daemon, asked)[1]

    def _answer(self, daemon: str, asked: Dict[str, Any]) -> Tuple[int, bytes, str]:
        self.asked.append((daemon, asked))
        return self.status, json.dumps(ANSWERS[asked['prefix']]).encode(), self.message


@pytest.fixture(autouse=True)
def librados(monkeypatch: pytest.MonkeyPatch) -> None:
    rados: Any = SimpleNamespace(Rados=Rados, Error=OSError)
    monkeypatch.setitem(sys.modules, 'rados', rados)
    monkeypatch.setattr(command.signal, 'signal', lambda number, action: None)
    monkeypatch.setattr(Rados, 'made', [])


def test_a_live_cluster_gives_the_plan_of_its_dumps(
        files: Files, capsys: pytest.CaptureFixture[str]) -> None:
    dumps = ['--osd-dump', files['osd'], '--pg-dump', files['pg'], '--crush-dump', files['crush']]
    assert command.main(['pin', *dumps, '--format', 'json']) == 0
    expected = capsys.readouterr().out
    assert command.main(['pin', '--live', '--format', 'json', '--id', 'me', '-c', 'C',
                         '-k', 'K']) == 0
    assert capsys.readouterr().out == expected
    made, = Rados.made
    assert made.words == {'name': 'client.me', 'clustername': 'ceph', 'conf': 'C',
                          'env': 'CEPH_ARGS'}
    assert made.set == {'keyring': 'K', 'rados_mon_op_timeout': '300'}
    assert [(daemon, asked['prefix']) for daemon, asked in made.asked] == [
        ('mgr', 'pg dump'), ('mon', 'mgr module ls'), ('mon', 'osd dump'),
        ('mon', 'osd crush dump'), ('mon', 'status'), ('mon', 'df'), ('mon', 'osd metadata'),
        ('mgr', 'balancer status'), ('mon', 'config dump')]


def test_a_live_cluster_has_the_drives_of_its_osds() -> None:
    source = LiveCluster(Rados()._ask, Terminal(io.StringIO()), print)
    assert source.maps().devices == {3: ('h:sda',)}


def test_an_error_of_the_cluster_is_one_line(
        monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(Rados, 'status', -13)
    assert command.main(['pin', '--live']) == 2
    out, err = capsys.readouterr()
    assert out == '' and err.count('\n') == 1 and '"ceph pg dump" failed: access denied' in err


def test_a_command_that_is_not_answered_is_one_line(
        monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(Rados, 'status', -errno.ETIMEDOUT)
    monkeypatch.setattr(Rados, 'message', '')
    assert command.main(['pin', '--live']) == 2
    assert '"ceph pg dump" failed: Connection timed out\n' in capsys.readouterr().err


@pytest.mark.parametrize('status, words', [
    ({'id': 3, 'phase': 'RELEASING', 'pinned': 9}, 'campaign 3 of the module perfguard is RELEA'),
    ({'id': 3, 'phase': 'ABORTED', 'pinned': 9}, 'is ABORTED'),
    ({'id': 3, 'phase': 'ABORTED', 'pinned': 0}, ''), ({'id': 3, 'phase': 'DONE', 'pinned': 0}, ''),
    ({'id': None, 'phase': 'IDLE', 'pinned': 0}, '')])
def test_nothing_is_planned_beside_a_campaign_of_the_module(
        status: Dict[str, Any], words: str, monkeypatch: pytest.MonkeyPatch,
        capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setitem(ANSWERS, 'mgr module ls', {'enabled_modules': ['perfguard']})
    monkeypatch.setitem(ANSWERS, 'perfguard campaign status', status)
    assert command.main(['pin', '--live']) == (2 if words else 0)
    out, err = capsys.readouterr()
    assert bool(out) != bool(words) and words in err


def test_a_module_that_does_not_answer_is_reported(
        monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setitem(ANSWERS, 'mgr module ls', {'enabled_modules': ['perfguard']})
    monkeypatch.setitem(ANSWERS, 'perfguard campaign status', [])
    assert command.main(['pin', '--live']) == 0
    out, err = capsys.readouterr()
    assert out and 'its campaign could not be read' in err


@pytest.mark.parametrize('active', [True, False])
def test_a_balancer_that_is_on_is_reported(
        active: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setitem(ANSWERS, 'balancer status', {'active': active, 'mode': 'upmap'})
    assert command.main(['pin', '--live']) == 0
    assert ('ceph balancer off' in capsys.readouterr().err) == active


def test_the_configuration_decides_on_weight_sets_and_the_limit_of_pgs(
        monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    sets = {'-1': [{'bucket_id': -1, 'weight_set': [[1.0] * 10]}]}
    monkeypatch.setitem(ANSWERS, 'osd crush dump', {**CRUSH_DUMP, 'choose_args': sets})
    monkeypatch.setattr(command.crush_preview, 'outlook', lambda *given, **more: Future(
        FUTURE, CrushRules.from_dump(CRUSH_DUMP)))
    assert command.main(['expand', '--live']) == 0
    assert capsys.readouterr().err.count('weight set') == 0
    for name, value, words in (('osd_crush_update_weight_set', 'false', 'no PG would move'),
                               ('mon_max_pg_per_osd', '1', 'mon_max_pg_per_osd (1)')):
        monkeypatch.setitem(ANSWERS, 'config dump', [
            {'section': 'global', 'name': name, 'value': value, 'mask': ''}])
        assert command.main(['expand', '--live']) == 2
        assert words in capsys.readouterr().err


def test_nothing_is_released_while_the_balancer_is_on(
        monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setitem(ANSWERS, 'osd dump', {**OSD_DUMP, 'flags_set': []})
    monkeypatch.setitem(ANSWERS, 'balancer status', {'active': True, 'mode': 'upmap'})
    assert command.main(['release', '--live']) == 2
    assert 'ceph balancer off' in capsys.readouterr().err
    assert command.main(['plan', '--live']) == 0
    assert 'ceph balancer off' in capsys.readouterr().err


def test_the_commands_go_to_the_cluster_that_was_read(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
        capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    assert command.main(['pin', '--live', '-c', "b's.conf"]) == 0
    lines = capsys.readouterr().out.splitlines()
    conf = shlex.quote(str(tmp_path / "b's.conf"))
    assert lines and all(line.startswith('ceph -c %s osd ' % conf) for line in lines)
    assert command.main(['pin', '--live', '-c', "b's.conf", '--format', 'sh']) == 0
    script = capsys.readouterr().out
    sh = subprocess.run(['sh', '-c', 'ceph() { echo "$CEPH_CONF" >&2; echo f; }\n' + script],
                        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=True)
    assert str(tmp_path / "b's.conf") in sh.stderr


def test_no_connection_is_one_line(
        monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def refuse(self: Rados, timeout: int) -> None:
        raise OSError('timed out')

    monkeypatch.setattr(Rados, 'connect', refuse)
    assert command.main(['plan', '--live']) == 2
    out, err = capsys.readouterr()
    assert out == '' and err == 'perfguard-plan: cannot connect to the cluster: timed out\n'


@pytest.mark.parametrize('argv', [
    ['pin', '--live', '--report', 'F'], ['pin', '--live', '--pg-dump', 'F'],
    ['drain', 'osd.1', '--live', '--osdmap', 'F'], ['drain', 'osd.1', '--report', 'F'],
    ['release', '--report', 'F']])
def test_a_live_cluster_replaces_every_dump(
        argv: List[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(argv) == 2 and not Rados.made
    error = capsys.readouterr().err
    assert error.count('\n') == 1
    assert ('--live replaces %s' % argv[-2] in error) == ('--live' in argv)


def test_what_is_read_is_said_on_a_terminal_only() -> None:
    class Tty(io.StringIO):
        def isatty(self) -> bool:
            return True

    for output, expected in ((Tty(), 'perfguard-plan: reading ...\n'), (io.StringIO(), '')):
        Terminal(output).say('reading')
        assert output.getvalue() == expected


def test_standard_input_serves_for_one_dump_only(tmp_path: Path) -> None:
    args = command._parser().parse_args(['pin', '--osd-dump', '-', '--pg-dump', '-'])
    with pytest.raises(BadInput):
        command._source(args, Terminal(io.StringIO()))
