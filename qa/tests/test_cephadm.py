# SPDX-License-Identifier: LGPL-2.1-or-later
"""perfguard on a cluster of cephadm: installed, expanded with OSDs of the orchestrator, removed."""
import contextlib
import http.client
import json
import ssl
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Dict, Iterator, List, Optional, Tuple

import pytest

from qa.cephadm import Rig
from qa.cephadm.admin import FASTER, Admin, build_archive
from qa.cephadm.bootstrap import add_osds
from qa.cephadm.cache import DASHBOARD_PASSWORD, HOSTS, address
from qa.cephadm.sweeper import cgroup, hierarchies
from qa.cluster.dashboard import ACCEPT
from qa.cluster.load_control import TOP_DIR
from qa.lib.guard import FAST_OPTIONS

pytestmark = [pytest.mark.cephadm, pytest.mark.releases('tentacle', quick=()),
              pytest.mark.timeout(1800)]


#: What cephadm reserves for an mgr (min_size_by_type in its autotune.py).
MGR_KIB = 4 << 20


@pytest.fixture
def admin(tmp_path: Path) -> Iterator[Admin]:
    rig = Rig(tmp_path / 'rig', tied=True)
    try:
        with ThreadPoolExecutor() as pool:
            archive = pool.submit(build_archive, tmp_path / 'archive')
            rig.up()
        yield Admin(rig, archive.result())
    finally:
        rig.purge()


def ask(rig: Rig, method: str, path: str, body: Any = None, token: str = ''
        ) -> Tuple[int, bytes]:
    """A request to the dashboard of the active mgr, over its self-signed certificate."""
    host = next(host for host in HOSTS
                if rig.json('mgr', 'stat')['active_name'].startswith(f'{host}.'))
    headers: Dict[str, str] = {'Accept': ACCEPT, 'Content-Type': 'application/json'}
    if token:
        headers['Authorization'] = f'Bearer {token}'
    with rig.network():
        connection = http.client.HTTPSConnection(
            address(host), 8443, timeout=60, context=ssl._create_unverified_context())
        try:
            connection.request(method, path, None if body is None else json.dumps(body), headers)
            response = connection.getresponse()
            return response.status, response.read()
        finally:
            connection.close()


def through_the_dashboard(rig: Rig) -> None:
    """The page and the REST API."""
    def login() -> Optional[str]:
        try:
            status, body = ask(rig, 'POST', '/api/auth', {
                'username': 'admin', 'password': DASHBOARD_PASSWORD})
        except OSError:
            return None
        return str(json.loads(body)['token']) if status == 201 else None

    token = rig.wait(login, 90, 'the dashboard')
    status, body = ask(rig, 'GET', '/api/perfguard/status', token=token)
    assert status == 200 and 'phase' in json.loads(body), (status, body)
    status, body = ask(rig, 'GET', '/perfguard', token=token)
    assert status == 200 and b'page.js' in body, (status, body)


@pytest.mark.releases('tentacle')
def test_install_expand_fail_over_and_remove(admin: Admin) -> None:
    rig, begin = admin.rig, time.monotonic()

    def lap(text: str) -> None:
        print(f'{time.monotonic() - begin:6.1f} s  {text}')

    spec = admin.spec()
    with ThreadPoolExecutor() as pool:
        filled = pool.submit(admin.fill)
        assert 'would do: apply' in admin.installer('--copy', '--dry-run')
        assert admin.spec() == spec
        lap('explained')
        assert 'IDLE' in admin.installer('--copy')
        lap('installed')
        filled.result()

        # One PG after the other: the campaign must not end before the failover.
        admin.configure({**FAST_OPTIONS, 'max_backfills_host': '1', 'auto_expand': 'false'})
        rig.ceph('perfguard', 'expand', '--await')
        again = pool.submit(admin.installer, '--copy')
        add_osds(rig, HOSTS[1], *rig.devices(HOSTS[1])[1:])
        lap('two OSDs created')
        # Nothing was left to do.
        assert 'apply' not in again.result()
    assert admin.spec()[0]['placement'] == spec[0]['placement']
    admin.wait_moving()
    rig.ceph('mgr', 'fail')
    lap('failover in the middle of the campaign')
    admin.configure(FASTER)
    done = admin.wait_phase('DONE', seconds=180)
    assert done['total'] == done['released'] > 0, done
    memory_kib = max(int(word) for host in HOSTS for word in rig.on(
        host, 'ps', '-C', 'ceph-mgr', '-o', 'rss=', check=False).split())
    assert memory_kib < MGR_KIB
    lap(f'done, with at most {memory_kib >> 10} MiB in an mgr')
    through_the_dashboard(rig)
    lap('page and REST')
    assert 'osd_crush_initial_weight' not in rig.ceph('config', 'dump')

    admin.installer('--remove')
    lap('removed')
    assert admin.spec() == spec
    assert 'perfguard' not in rig.ceph('mgr', 'module', 'ls')
    for host in HOSTS:
        assert rig.on(host, 'sh', '-c', 'ls /opt').strip() == ''


#: A process that has a rig until it is killed.
OWNER = '''
import sys, time
from pathlib import Path
from qa.cephadm import Rig
Rig(Path(sys.argv[1]), tied=True).up()
print('up', flush=True)
time.sleep(600)
'''


def traces(directory: Path) -> List[List[str]]:
    """Of a rig: processes, mounts in any namespace, loop devices, and cgroups."""
    name = str(directory)

    def with_name(pattern: str) -> List[str]:
        found = []
        for path in Path('/').glob(pattern):
            with contextlib.suppress(OSError):
                if name in path.read_text(errors='replace'):
                    found.append(str(path))
        return found

    return [with_name('proc/[0-9]*/cmdline'), with_name('proc/[0-9]*/mountinfo'),
            with_name('sys/block/loop*/loop/backing_file'),
            [str(path / cgroup(directory.name)) for path in hierarchies()
             if (path / cgroup(directory.name)).exists()]]


def test_nothing_is_left_when_the_owner_is_killed(tmp_path: Path) -> None:
    directory = tmp_path / 'killed'
    with subprocess.Popen([sys.executable, '-c', OWNER, str(directory)], cwd=TOP_DIR,
                          stdout=subprocess.PIPE, text=True) as owner:
        try:
            assert owner.stdout is not None and owner.stdout.readline() == 'up\n'
            assert all(traces(directory)), traces(directory)
            owner.kill()
            owner.wait()
            Rig.wait(lambda: not any(traces(directory)), 60, 'the end of the rig')
        finally:
            owner.kill()
            Rig(directory).purge()
