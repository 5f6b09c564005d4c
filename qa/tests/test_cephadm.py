# SPDX-License-Identifier: LGPL-2.1-or-later
"""perfguard on a cluster of cephadm: installed, expanded with OSDs of the orchestrator, removed."""
import http.client
import json
import ssl
import time
from pathlib import Path
from typing import Any, Dict, Iterator, Optional, Tuple

import pytest

from qa.cephadm import Rig
from qa.cephadm.admin import FASTER, SLOW, Admin, build_archive
from qa.cephadm.bootstrap import add_osds
from qa.cephadm.cache import DASHBOARD_PASSWORD, HOSTS, address
from qa.cluster.dashboard import ACCEPT
from qa.lib.guard import FAST_OPTIONS

pytestmark = [pytest.mark.cephadm, pytest.mark.releases('tentacle', quick=()),
              pytest.mark.timeout(1800)]


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    rig = Rig(tmp_path / 'rig', tied=True)
    try:
        rig.up()
        yield rig
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


def test_install_expand_fail_over_and_remove(rig: Rig, tmp_path: Path) -> None:
    begin = time.monotonic()

    def lap(text: str) -> None:
        print(f'{time.monotonic() - begin:6.1f} s  {text}')

    admin = Admin(rig, build_archive(tmp_path / 'archive'))
    spec = admin.spec()
    assert 'would do: apply' in admin.installer('--copy', '--dry-run')
    assert admin.spec() == spec
    lap('explained')
    assert 'IDLE' in admin.installer('--copy')
    lap('installed')
    # Nothing is left to do.
    assert 'apply' not in admin.installer('--copy')
    assert rig.json('orch', 'ls', 'mgr', '--export')[0]['placement'] == spec[0]['placement']

    # The second OSD must appear within that time after the first. The campaign must not end before
    # it is looked at.
    admin.configure({**FAST_OPTIONS, **SLOW, 'auto_expand': 'false', 'auto_expand_settle': '15'})
    admin.fill()
    rig.ceph('perfguard', 'expand', '--await')
    add_osds(rig, HOSTS[1:], 1)
    lap('two OSDs created')
    admin.wait_moving()
    rig.ceph('mgr', 'fail')
    lap('failover in the middle of the campaign')
    admin.configure(FASTER)
    done = admin.wait_phase('DONE', seconds=180)
    assert done['total'] == done['released'] > 0, done
    lap('done')
    through_the_dashboard(rig)
    lap('page and REST')
    assert 'osd_crush_initial_weight' not in rig.ceph('config', 'dump')

    admin.installer('--remove')
    lap('removed')
    assert admin.spec() == spec
    assert 'perfguard' not in rig.ceph('mgr', 'module', 'ls')
    for host in HOSTS:
        assert rig.on(host, 'sh', '-c', 'ls /opt').strip() == ''
