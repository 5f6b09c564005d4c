# SPDX-License-Identifier: LGPL-2.1-or-later
"""The program that installs perfguard with cephadm: specifications of mgrs, and its commands."""
import argparse
import importlib.util
import json
import os
import signal
import subprocess
import sys
import tarfile
import threading
from pathlib import Path
from typing import Any, Dict, Iterator, List

import pytest

import perfguard

SOURCE = Path(perfguard.__file__).parents[4] / 'packaging/install_cephadm.py'
DIRECTORY = '/opt/perfguard/1.2.3-0123abcd'
OWN = ['--volume=/opt/perfguard/1.2.3-0123abcd/perfguard:/usr/share/ceph/mgr/perfguard:ro,z',
       '--volume=/opt/perfguard/1.2.3-0123abcd/dashboard/controllers/perfguard.py:'
       '/usr/share/ceph/mgr/dashboard/controllers/perfguard.py:ro,z']
PLAIN: Dict[str, Any] = {'service_type': 'mgr', 'service_name': 'mgr', 'placement': {'count': 2}}


@pytest.fixture(scope='module')
def program() -> Any:
    spec = importlib.util.spec_from_file_location('install_cephadm', SOURCE)
    assert spec is not None and spec.loader is not None
    found = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(found)
    return found


def test_only_mounts_are_added(program: Any) -> None:
    assert program.with_mounts(PLAIN, DIRECTORY) == {**PLAIN, 'extra_container_args': OWN}
    assert 'extra_container_args' not in PLAIN


@pytest.mark.parametrize('args', [
    ['--cpus=2'], ['-v', '/etc/hosts:/etc/hosts:ro'],
    [{'argument': '--cpus=2', 'split': False}], ['--volume=/data:/usr/share/ceph/mgr/other:ro']])
def test_arguments_of_the_operator_stay(program: Any, args: List[Any]) -> None:
    spec = {**PLAIN, 'extra_container_args': args}
    mounted = program.with_mounts(spec, DIRECTORY)
    assert mounted['extra_container_args'] == [*args, *OWN]
    assert program.without_mounts(mounted) == spec


def test_removing_leads_back_to_the_specification_before(program: Any) -> None:
    mounted = program.with_mounts(PLAIN, DIRECTORY)
    # As later releases export it.
    exported = {**mounted, 'extra_container_args': [
        {'argument': text, 'split': True} for text in mounted['extra_container_args']]}
    assert program.without_mounts(mounted) == program.without_mounts(exported) == PLAIN
    assert program.directory_of(mounted) == program.directory_of(exported) == DIRECTORY
    assert program.directory_of(PLAIN) is None


def test_another_version_takes_the_place(program: Any) -> None:
    mounted = program.with_mounts(program.with_mounts(PLAIN, '/opt/perfguard/1.0-ffffffff'),
                                  DIRECTORY)
    assert mounted['extra_container_args'] == OWN


def test_mounts_by_hand_are_refused(program: Any) -> None:
    spec = {**PLAIN, 'extra_container_args': [
        '-v', '/srv/perfguard:/usr/share/ceph/mgr/perfguard:ro']}
    with pytest.raises(program.Refusal, match='remove them first'):
        program.with_mounts(spec, DIRECTORY)


@pytest.mark.parametrize('placement, names', [
    ({'count': 2}, ['a1', 'a2', 'b1']), ({}, ['a1', 'a2', 'b1']),
    ({'label': 'mgr'}, ['a2']), ({'host_pattern': 'a*'}, ['a1', 'a2']),
    ({'host_pattern': {'pattern': 'b.', 'pattern_type': 'regex'}}, ['b1']),
    ({'host_pattern': {'pattern': '?1', 'pattern_type': 'fnmatch'}}, ['a1', 'b1']),
    ({'hosts': ['b1', 'a1:10.0.0.1', 'gone']}, ['a1', 'b1']),
    ({'hosts': [{'hostname': 'a2', 'network': '', 'name': 'x'}]}, ['a2'])])
def test_hosts_that_may_get_a_mgr(program: Any, placement: Dict[str, Any],
                                  names: List[str]) -> None:
    hosts = [{'hostname': 'a1', 'labels': []}, {'hostname': 'a2', 'labels': ['mgr']},
             {'hostname': 'b1', 'labels': []},
             {'hostname': 'c1', 'labels': ['mgr', '_no_schedule']}]
    assert program.hosts_of({**PLAIN, 'placement': placement}, hosts) == names


def test_versions_of_mgrs(program: Any) -> None:
    module = {'name': 'perfguard', 'module_options': {
        'installed_version': {'default_value': '1.2.3'}}}
    mgr_map: Dict[str, Any] = {'active_name': 'x', 'available_modules': [module], 'standbys': [
        {'name': 'y', 'available_modules': [{'name': 'balancer', 'module_options': {}}]}]}
    assert program.mgr_versions(mgr_map) == {'x': '1.2.3', 'y': None}
    assert program.mgr_versions({**mgr_map, 'active_name': ''}) == {'y': None}


@pytest.mark.parametrize('mgrs, refusal', [
    ({'ceph version 15.2.17 (a) octopus (stable)': 2}, 'requires version 16'),
    ({'ceph version 19.2.3 (a) squid (stable)': 1, 'ceph version 20.2.4 (b) tentacle (stable)': 1},
     'different versions'), ({}, 'different versions')])
def test_the_release_is_checked(program: Any, mgrs: Dict[str, int], refusal: str) -> None:
    program.check_release({'mgr': {'ceph version 20.2.4 (a) tentacle (stable)': 2}, 'osd': {}})
    with pytest.raises(program.Refusal, match=refusal):
        program.check_release({'mgr': mgrs, 'osd': {}})


@pytest.mark.parametrize('mode, directory, expected', [
    (0o700, True, 0o755), (0o600, False, 0o644), (0o750, False, 0o755), (0o777, False, 0o755)])
def test_the_mgr_can_read_the_files_whatever_the_umask_was(
        program: Any, mode: int, directory: bool, expected: int) -> None:
    info = tarfile.TarInfo('perfguard/module.py')
    info.mode, info.type = mode, tarfile.DIRTYPE if directory else tarfile.REGTYPE
    assert program.owned_by_root(info).mode == expected


#: In place of librados: answers with the command and what is given; it may say to fail, or to hang.
RADOS = '''
import json, time
class Rados:
    DEFAULT_CONF_FILES = -1
    def __init__(self, conffile): assert conffile == -1
    def __enter__(self): return self
    def __exit__(self, *error): pass
    def mon_command(self, text, given):
        command = json.loads(text)
        if command["prefix"] == "hang":
            time.sleep(30)
        failed = command["prefix"] == "fail"
        return -1 if failed else 0, b"%s %s" % (text.encode(), given), "refused" if failed else ""
    def mgr_command(self, text, given):
        return 0, b"by the mgr", ""
'''
#: Says something of its own, as the real one may, and notes that it was started.
CEPHADM = '''#!/bin/sh
echo started >> "$0.log"
echo 'Inferring fsid'
test "$1 $2" = "shell --" && shift 2
PYTHONPATH=%s exec "$@"
'''


def executable(path: Path, text: str) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)


@pytest.fixture(params=['host', 'cephadm'])
def shell(request: pytest.FixtureRequest, program: Any, tmp_path: Path,
          monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """librados is installed on the host, or only in cephadm's image."""
    name: str = request.param
    (tmp_path / 'lib').mkdir()
    (tmp_path / 'lib/rados.py').write_text(RADOS)
    executable(tmp_path / 'host' / 'python3', '#!/bin/sh\nexec %s "$@"\n' % sys.executable)
    if name == 'cephadm':
        executable(tmp_path / 'host' / 'cephadm', CEPHADM % (tmp_path / 'lib'))
    else:
        monkeypatch.setenv('PYTHONPATH', str(tmp_path / 'lib'))
    monkeypatch.setenv('PATH', '%s:/usr/bin:/bin' % (tmp_path / 'host'))
    monkeypatch.setattr(program.importlib.util, 'find_spec', lambda _: name == 'host')
    ceph = program.Ceph()
    yield ceph
    ceph.close()
    if name == 'cephadm':
        assert (tmp_path / 'host' / 'cephadm.log').read_text() == 'started\n'


def test_all_commands_run_in_one_shell(program: Any, shell: Any) -> None:
    assert shell('osd stat', 'a\nb', ids=[1]) == '{"prefix": "osd stat", "ids": [1]} a\nb'
    assert shell('orch ls') == shell('perfguard status') == 'by the mgr'
    assert shell.attempt('fail') == (-1, '{"prefix": "fail"} ', 'refused')
    with pytest.raises(program.Refusal, match='"ceph fail": refused'):
        shell('fail')
    assert shell('s') == '{"prefix": "s"} '


def test_a_command_without_an_answer(program: Any, shell: Any, monkeypatch: pytest.MonkeyPatch
                                     ) -> None:
    monkeypatch.setattr(program, 'COMMAND_SECONDS', 0.5)
    with pytest.raises(program.Refusal, match='no answer to "ceph hang"'):
        shell('hang')


def test_a_shell_that_hangs(program: Any, shell: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever it does, the installer ends."""
    monkeypatch.setattr(program, 'COMMAND_SECONDS', 0.5)
    monkeypatch.setattr(program, 'END_SECONDS', 0.5)
    os.killpg(shell._shell.pid, signal.SIGSTOP)
    with pytest.raises(program.Refusal, match='no answer to "ceph osd"'):
        shell('osd')
    shell.close()
    assert shell._shell.returncode == -signal.SIGKILL


@pytest.mark.parametrize('script, refusal', [
    ('exit 1', 'the connection to the cluster has ended'),
    # Its child keeps the output open.
    ('sleep 30; exit', 'no connection to the cluster in 0.5 seconds')])
def test_a_shell_that_does_not_start(script: str, refusal: str, program: Any, tmp_path: Path,
                                     monkeypatch: pytest.MonkeyPatch) -> None:
    executable(tmp_path / 'host' / 'cephadm', '#!/bin/sh\necho starting\n%s\n' % script)
    monkeypatch.setenv('PATH', '%s:/usr/bin:/bin' % (tmp_path / 'host'))
    monkeypatch.setattr(program.importlib.util, 'find_spec', lambda _: None)
    monkeypatch.setattr(program, 'START_SECONDS', 0.5)
    monkeypatch.setattr(program, 'END_SECONDS', 0.5)
    with pytest.raises(program.Refusal, match=refusal):
        program.Ceph()


def test_hosts_are_asked_side_by_side(program: Any) -> None:
    together = threading.Barrier(3, timeout=20)

    def call(host: str) -> str:
        together.wait()
        if host == 'h2':
            raise program.Refusal(host)
        return host.upper()

    with pytest.raises(program.Refusal, match='h2'):
        program.on_each(['h1', 'h2', 'h3'], call)
    assert program.on_each(['h1', 'h3'], str.upper) == ['H1', 'H3']


def test_a_host_that_does_not_answer_is_named(
        program: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beside others that do."""
    executable(tmp_path / 'ssh', '#!/bin/sh\ncase "$*" in *@10.0.0.2*) exec sleep 30; esac\n')
    monkeypatch.setenv('PATH', '%s:/usr/bin:/bin' % tmp_path)
    monkeypatch.setattr(program, 'COMMAND_SECONDS', 0.5)
    hosts = program.Hosts.__new__(program.Hosts)
    hosts.rows = [{'hostname': 'h%d' % number, 'addr': '10.0.0.%d' % number} for number in (1, 2)]
    hosts._user, hosts._options = 'root', []
    with pytest.raises(program.Refusal, match='h2: no answer by ssh in 0.5 seconds'):
        program.on_each(['h1', 'h2'], lambda host: hosts.run(host, 'true'))


@pytest.mark.parametrize('python, refusal', [('3.9', ''), ('3.8', 'mgr.h-1.abc has Python 3.8')])
def test_the_python_of_a_mgr_is_that_of_its_present_container(
        program: Any, python: str, refusal: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
        ) -> None:
    """cephadm may know the ID of the one before."""
    executable(tmp_path / 'podman', """#!/bin/sh
case "$*" in
    "ps -q -f name=mgr.h.1.abc$") echo present ;;
    "exec present python3 "*) echo %s ;;
    *) exit 125 ;;
esac
""" % python)
    monkeypatch.setenv('PATH', '%s:/usr/bin:/bin' % tmp_path)
    installer = program.Installer.__new__(program.Installer)
    installer.ceph = argparse.Namespace(json=lambda *_, **__: [
        {'daemon_id': 'h-1.abc', 'hostname': 'h-1', 'container_id': 'before'}])
    installer.hosts = argparse.Namespace(run=lambda _, *words: subprocess.run(
        ['sh', '-euc', words[0], 'sh', *words[1:]], check=True, stdout=subprocess.PIPE,
        universal_newlines=True).stdout)
    said = ''
    try:
        installer.check_python()
    except program.Refusal as error:
        said = str(error)
    assert refusal in said and bool(refusal) is bool(said)


FAILED: Dict[str, Any] = {'checks': {'MGR_MODULE_ERROR': {'detail': [
    {'message': "Module 'devicehealth' has failed: no pool"},
    {'message': "Module 'perfguard' has failed: boom"}]}}}
LACKS: Dict[str, Any] = {'checks': {'MGR_MODULE_DEPENDENCY': {'detail': [
    {'message': "Module 'perfguard' has failed dependency: No module named prettytable"}]}}}
OTHER: Dict[str, Any] = {'checks': {'MGR_MODULE_ERROR': {'detail': [
    {'message': "Module 'devicehealth' has failed: perfguard"}]}}}
GONE = "No handler found for 'perfguard status'"
BUSY = 'this would abort campaign 7'


class MgrsToRemove:
    """As they answer commands: perfguard with an error, and `health` with what they detect."""

    def __init__(self, program: Any, error: str, health: Dict[str, Any]) -> None:
        self._program, self._error, self._health = program, error, health
        self.sent: List[str] = []

    def attempt(self, prefix: str, given: str = '', **arguments: Any) -> Any:
        self.sent.append(prefix)
        if prefix == 'perfguard shutdown' or prefix.startswith('perfguard') and self._error == GONE:
            return self._program.Answer(-1 if self._error else 0, 'disabling is safe now',
                                        self._error)
        return self._program.Answer(0, json.dumps(self._answer(prefix)), '')

    def __call__(self, prefix: str, given: str = '', **arguments: Any) -> str:
        return str(self._program.Ceph.__call__(self, prefix, given, **arguments))

    def json(self, prefix: str, **arguments: Any) -> Any:
        return self._program.Ceph.json(self, prefix, **arguments)

    def _answer(self, prefix: str) -> Any:
        return {'mgr module ls': {'enabled_modules': ['perfguard']}, 'health': self._health,
                'quorum_status': {'monmap': {'mons': [{'name': 'a'}]}, 'quorum_names': ['a']},
                'mgr dump': {'available': True, 'active_gid': self.sent.count('mgr module disable'),
                             'standbys': [{}]}, 'orch ls': [PLAIN]}.get(prefix, {})


@pytest.mark.parametrize('error, health, force, removed, part', [
    ('', {}, False, True, ''), ('', {}, True, True, ''),
    (BUSY, {}, False, False, 'would abort campaign 7'),
    # A refusal is one, whatever has failed.
    (BUSY, OTHER, True, False, 'would abort campaign 7'),
    ('boom', FAILED, False, False, "Module 'perfguard' has failed: boom"),
    ('boom', FAILED, True, True, "Module 'perfguard' has failed: boom"),
    ('...', LACKS, True, True, 'prettytable'),
    # It is enabled, and its files are missing: Ceph raises no health check.
    (GONE, {'checks': {}}, False, False, '--force'),
    (GONE, {'checks': {}}, True, True, 'config-key dump mgr/perfguard/')])
def test_a_module_that_has_failed_is_removed_by_force(
        program: Any, capsys: pytest.CaptureFixture[str], error: str, health: Dict[str, Any],
        force: bool, removed: bool, part: str) -> None:
    """It cannot give back what it has borrowed, nor answer that it is safe to disable it."""
    ceph = MgrsToRemove(program, error, health)
    installer = program.Installer.__new__(program.Installer)
    installer.ceph, installer.hosts = ceph, program.Hosts.__new__(program.Hosts)
    installer.hosts.rows = []
    installer.args = argparse.Namespace(force=force, dry_run=False, directory='/opt/perfguard')
    said = ''
    try:
        installer.remove()
    except program.Refusal as refusal:
        said = str(refusal)
    assert ('mgr module disable' in ceph.sent) is removed is (said == '')
    assert part in said + capsys.readouterr().out
    # Where it can answer, it is asked even with --force.
    assert any('shutdown' in line for line in ceph.sent) is (error in ('', BUSY))


def test_a_dry_run_removes_nothing(program: Any, capsys: pytest.CaptureFixture[str]) -> None:
    ceph = MgrsToRemove(program, 'boom', FAILED)
    installer = program.Installer.__new__(program.Installer)
    installer.ceph, installer.hosts = ceph, program.Hosts.__new__(program.Hosts)
    installer.hosts.rows = []
    installer.args = argparse.Namespace(force=True, dry_run=True, directory='/opt/perfguard')
    installer.remove()
    assert not [line for line in ceph.sent if 'shutdown' in line or 'disable' in line]
    assert 'would do: disable the module' in capsys.readouterr().out


def test_a_mgr_that_cannot_load_the_module_has_no_known_version(program: Any) -> None:
    """Ceph lists it without its options."""
    broken = {'name': 'perfguard', 'can_run': False, 'module_options': {}}
    assert program.mgr_versions({'active_name': 'x', 'available_modules': [broken],
                                 'standbys': []}) == {'x': 'unknown'}


def installer_of(program: Any, version: str = '1.2.3') -> Any:
    """For two mgrs that have this version of perfguard."""
    module = {'name': 'perfguard', 'module_options': {
        'installed_version': {'default_value': version}}}
    installer = program.Installer.__new__(program.Installer)
    installer.version, installer.directory = version, DIRECTORY
    installer.args = argparse.Namespace(dry_run=False, upgrade=True)
    answers: Dict[str, Any] = {
        'mgr dump': {'active_name': 'x', 'available_modules': [module],
                     'standbys': [{'name': 'y', 'available_modules': [module]}]},
        # One that cephadm has removed since.
        'orch ps': [{'daemon_id': name, 'hostname': name} for name in 'xyz']}
    installer.ceph = argparse.Namespace(
        attempt=lambda prefix, **_: program.Answer(0, json.dumps(answers[prefix]), ''))
    return installer


def test_mgrs_with_other_files_of_the_same_version_are_waited_for(
        program: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The version that they report does not show which files they have."""
    executable(tmp_path / 'podman', """#!/bin/sh
case "$*" in
    "ps -q -f name=mgr."?"$") echo of-${4#name=mgr.} ;;
    "inspect of-"?"$") cat %s/"${2%%?}" ;;
    *) exit 125 ;;
esac
""" % tmp_path)
    monkeypatch.setenv('PATH', '%s:/usr/bin:/bin' % tmp_path)
    installer, turns = installer_of(program), []
    installer.hosts = argparse.Namespace(attempt=lambda _, *words: subprocess.run(
        ['sh', '-euc', words[0], 'sh', *words[1:]], stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, universal_newlines=True))
    earlier = [text.replace('0123abcd', '89abcdef') for text in OWN]
    for name in 'xy':
        tmp_path.joinpath('of-' + name).write_text(json.dumps(earlier))

    def sleep(_: float) -> None:
        # No container runs while one takes the place of another.
        turns.append(0)
        steps = {1: ('y', None), 2: ('y', OWN), 3: ('x', OWN)}
        name, mounts = steps[len(turns)]
        path = tmp_path / ('of-' + name)
        path.write_text(json.dumps(mounts)) if mounts else path.unlink()

    monkeypatch.setattr(program.time, 'sleep', sleep)
    installer.wait_redeployed(2, DIRECTORY, 'saved')
    assert len(turns) == 3


def test_what_is_installed_already_is_not_applied_again(
        program: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """An earlier run may have ended before all mgrs had it."""
    installer, waits = installer_of(program), []
    installer.spec = program.with_mounts(PLAIN, DIRECTORY)
    for name in ('check_cluster', 'check_python', 'place_files', 'enable'):
        monkeypatch.setattr(installer, name, lambda: None)
    monkeypatch.setattr(program, 'check_release', lambda _: None)
    monkeypatch.setattr(installer, 'wait_redeployed', lambda *args: waits.append(args))
    installer.ceph.json = lambda prefix: {'standbys': [{}]} if prefix == 'mgr dump' else {}
    installer.install()
    assert 'nothing changes; wait until all mgrs have ' + DIRECTORY in capsys.readouterr().out
    assert waits == [(2, DIRECTORY)]


@pytest.mark.parametrize('answer, mounted', [
    ([], False), ([{'daemon_id': 'x', 'hostname': 'x'}], False),
    ([{'daemon_id': name, 'hostname': name} for name in 'xy'], True)])
def test_an_mgr_that_cephadm_does_not_list_yet_is_not_known_to_have_the_files(
        program: Any, answer: List[Dict[str, str]], mounted: bool) -> None:
    installer = installer_of(program)
    installer.ceph.attempt = lambda prefix, **_: program.Answer(0, json.dumps(answer), '')
    installer.hosts = argparse.Namespace(attempt=lambda *_: argparse.Namespace(returncode=0))
    assert installer.are_mounted(DIRECTORY, 'xy') == mounted


def test_a_host_that_does_not_answer_is_asked_again(program: Any) -> None:
    def attempt(*_: Any) -> Any:
        raise program.Refusal('x: no answer by ssh in 60 seconds')

    installer = installer_of(program)
    installer.hosts = argparse.Namespace(attempt=attempt)
    assert not installer.are_mounted(DIRECTORY, 'xy')
