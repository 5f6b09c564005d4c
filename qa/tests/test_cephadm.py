# SPDX-License-Identifier: LGPL-2.1-or-later
"""perfguard on a cluster of cephadm: installed, expanded with OSDs of the orchestrator, removed."""
import http.client
import json
import ssl
import subprocess
import time
from pathlib import Path
from typing import Any, Dict, Iterator, Optional, Tuple

import pytest

from qa.cephadm import Rig
from qa.cephadm.bootstrap import add_osd
from qa.cephadm.cache import ADMIN_HOST, DASHBOARD_PASSWORD, HOSTS, address
from qa.cluster.dashboard import ACCEPT
from qa.lib.guard import FAST_OPTIONS

pytestmark = [pytest.mark.cephadm, pytest.mark.releases('tentacle', quick=()),
              pytest.mark.timeout(1800)]
CHECKOUT = Path(__file__).resolve().parents[2]
PGS = 64
OBJECTS = 300


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    rig = Rig(tmp_path / 'rig', tied=True)
    try:
        rig.up()
        yield rig
    finally:
        rig.purge()


@pytest.fixture(scope='module')
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp('archive')
    subprocess.run([str(CHECKOUT / 'packaging/build.sh'), 'tar', str(out)], check=True,
                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=300)
    found, = out.iterdir()
    return found


class Admin:
    """The administrator, on a host with the keyring."""

    def __init__(self, rig: Rig, archive: Path) -> None:
        self.rig = rig
        # The root of the host is visible to the keeper only.
        subprocess.run(rig.host_argv(ADMIN_HOST, 'tar', '-C', '/root', '-xz'), check=True,
                       stdin=open(archive, 'rb'), timeout=60)
        self.folder = f'/root/{archive.name[:-len(".tar.gz")]}'

    def installer(self, *options: str, check: bool = True) -> str:
        return self.rig.admin('sh', '-c', f'cd {self.folder} && ./install-cephadm "$@" 2>&1', 'sh',
                              *options, check=check)

    def spec(self) -> Any:
        return self.rig.json('orch', 'ls', 'mgr', '--export')

    def perfguard(self, *words: str) -> Optional[Any]:
        """The answer to a command; None while no mgr answers."""
        out = self.rig.ceph('perfguard', *words, '--format', 'json', check=False)
        return json.loads(out) if out.strip() else None

    def wait_phase(self, *phases: str, seconds: float) -> Any:
        def there() -> Optional[Any]:
            status = self.perfguard('campaign', 'status')
            return status if status and status['phase'] in phases else None

        return self.rig.wait(there, seconds, f'phase {"/".join(phases)}')

    def wait_moving(self) -> Any:
        def moving() -> Optional[Any]:
            status = self.perfguard('campaign', 'status')
            return status if status and status['released'] and status['pinned'] else None

        return self.rig.wait(moving, 120, 'PGs to be released')


def fill(rig: Rig) -> None:
    """A pool whose PGs have something to copy."""
    rig.ceph('osd', 'pool', 'create', 'rep', str(PGS), '--autoscale-mode=off')
    rig.ceph('osd', 'pool', 'application', 'enable', 'rep', 'test')
    rig.client('rados', '-p', 'rep', 'bench', '20', 'write', '--no-cleanup', '-b', '65536',
               '--max-objects', str(OBJECTS))


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


def test_install_expand_fail_over_and_remove(rig: Rig, archive: Path) -> None:
    begin = time.monotonic()

    def lap(text: str) -> None:
        print(f'{time.monotonic() - begin:6.1f} s  {text}')

    admin = Admin(rig, archive)
    spec = admin.spec()
    assert 'would do: apply' in admin.installer('--copy', '--dry-run')
    assert admin.spec() == spec
    lap('explained')
    assert 'IDLE' in admin.installer('--copy')
    lap('installed')
    # Nothing is left to do.
    assert 'apply' not in admin.installer('--copy')
    assert rig.json('orch', 'ls', 'mgr', '--export')[0]['placement'] == spec[0]['placement']

    options = {**FAST_OPTIONS, 'auto_expand': 'false'}
    rig.ceph('config', 'assimilate-conf', '-i', '-', given='[osd]\nosd_crush_initial_weight = 0\n'
             '[mgr]\n' + ''.join(f'mgr/perfguard/{name} = {value}\n'
                                 for name, value in options.items()))
    fill(rig)
    for host in HOSTS[1:]:
        add_osd(rig, host, rig.devices(host)[1])
    lap('two OSDs created')
    rig.ceph('perfguard', 'expand')
    admin.wait_moving()
    rig.ceph('mgr', 'fail')
    lap('failover in the middle of the campaign')
    done = admin.wait_phase('DONE', seconds=180)
    assert done['total'] == done['released'] > 0, done
    lap('done')
    through_the_dashboard(rig)
    lap('page and REST')

    admin.installer('--remove')
    lap('removed')
    assert admin.spec() == spec
    assert 'perfguard' not in rig.ceph('mgr', 'module', 'ls')
    for host in HOSTS:
        assert rig.on(host, 'sh', '-c', 'ls /opt').strip() == ''
