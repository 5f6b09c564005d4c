# SPDX-License-Identifier: LGPL-2.1-or-later
"""The orchestrator at work in mid-campaign: upgrades, maintenance, reboots, removals of OSDs."""
import contextlib
import json
import threading
import time
from typing import Any, Callable, Dict, Iterator, List, NamedTuple, Optional, Set

import pytest

from qa.cephadm import Rig
from qa.cephadm.admin import Admin, build_archive
from qa.cephadm.bootstrap import add_osd
from qa.cephadm.cache import HOSTS, IMAGE, TAGS
from qa.cluster.errors import ClusterError
from qa.lib.guard import FAST_OPTIONS

pytestmark = [pytest.mark.cephadm, pytest.mark.releases('tentacle', quick=()),
              pytest.mark.timeout(1800)]

#: For most of a campaign: it must outlast what happens meanwhile.
SLOW = {'max_pgs_in_flight': '1', 'campaign_interval': '5'}
FASTER = {'max_pgs_in_flight': '64', 'campaign_interval': '0.3'}
#: The second OSD of the last host, which campaigns empty and fill again.
MOVED = 5


class Sample(NamedTuple):
    """The cluster and the campaign at one moment; a campaign that no mgr reports is left out."""
    status: Dict[str, Any]
    degraded: int
    down: int
    checks: Set[str]


class Watcher:
    """Samples the campaign until the end of the block."""

    def __init__(self, admin: Admin) -> None:
        self._admin = admin
        self.samples: List[Sample] = []
        self._stop = threading.Event()

    def __enter__(self) -> 'Watcher':
        self._thread = threading.Thread(target=self._run)
        self._thread.start()
        return self

    def __exit__(self, *_: Any) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stop.wait(1.0):
            with contextlib.suppress(ClusterError, ValueError, KeyError):
                self._look()

    def _look(self) -> None:
        status = self._admin.perfguard('campaign', 'status')
        found = json.loads(self._admin.rig.ceph('-s', '--format', 'json', check=False) or '{}')
        if status and found:
            osds = found['osdmap']
            self.samples.append(Sample(
                status, found['pgmap'].get('degraded_objects', 0),
                osds['num_osds'] - osds['num_up_osds'], set(found['health']['checks'])))

    @property
    def phases(self) -> Set[str]:
        return {sample.status['phase'] for sample in self.samples}

    @property
    def alarms(self) -> Set[str]:
        """Health checks of perfguard."""
        return {code for sample in self.samples for code in sample.checks
                if code.startswith('PERFGUARD')}

    @property
    def reasons(self) -> Set[str]:
        return {text for sample in self.samples for text in sample.status['reasons']}


@pytest.fixture(scope='module')
def admin(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Admin]:
    """Two OSDs on each host, and perfguard."""
    rig = Rig(tmp_path_factory.mktemp('cephadm') / 'rig', tied=True)
    try:
        rig.up()
        admin = Admin(rig, build_archive(tmp_path_factory.mktemp('archive')))
        for host in HOSTS:
            add_osd(rig, host, rig.devices(host)[1])
        admin.fill()
        admin.installer('--copy')
        admin.configure({**FAST_OPTIONS, 'auto_expand': 'false'})
        rig.wait_ready()
        yield admin
    finally:
        rig.purge()


@contextlib.contextmanager
def campaign(admin: Admin) -> Iterator[Watcher]:
    """A campaign that goes on until the end of the block, and then to its own end."""
    admin.configure(SLOW)
    admin.rig.ceph('perfguard', 'drain', f'osd.{MOVED}')
    number = admin.wait_moving()['id']
    with Watcher(admin) as watcher:
        yield watcher
        admin.configure(FASTER)
        done = admin.wait_phase('DONE', 'ABORTED', seconds=300)
    print('phases', watcher.phases, 'alarms', watcher.alarms)
    print('\n'.join(sorted(watcher.reasons)))
    assert done['phase'] == 'DONE' and done['id'] == number and not done['pinned'], done
    assert done['released'] == done['total'], done
    fill_again(admin)


def fill_again(admin: Admin) -> None:
    admin.rig.wait_ready()
    admin.rig.ceph('perfguard', 'undrain', f'osd.{MOVED}')
    admin.wait_phase('RELEASING', 'HOLDING', 'FINISHING', seconds=60)
    admin.wait_phase('DONE', seconds=180)
    admin.rig.wait_ready()


def active_host(admin: Admin) -> str:
    return str(admin.rig.json('mgr', 'stat')['active_name'].partition('.')[0])


def wait_all_up(admin: Admin) -> None:
    def up() -> bool:
        found = json.loads(admin.rig.ceph('-s', '--format', 'json', check=False) or '{}')
        return bool(found and found['osdmap']['num_osds'] == found['osdmap']['num_up_osds']
                    and not found['pgmap'].get('degraded_objects'))

    admin.rig.wait(up, 180, 'all OSDs up and all PGs complete')


def maintenance(admin: Admin, host: str) -> None:
    admin.rig.ceph('orch', 'host', 'maintenance', 'enter', host)
    admin.rig.wait(lambda: admin.rig.json('osd', 'stat')['num_up_osds'] == 4, 60, 'two OSDs down')
    time.sleep(15)
    admin.rig.ceph('orch', 'host', 'maintenance', 'exit', host)


def idle_host(admin: Admin) -> str:
    """With OSDs, but not those of the administrator or of the active mgr."""
    return next(host for host in HOSTS[1:] if host != active_host(admin))


def test_a_host_in_maintenance(admin: Admin) -> None:
    with campaign(admin) as watcher:
        maintenance(admin, idle_host(admin))
        wait_all_up(admin)
    assert not watcher.alarms and 'ABORTING' not in watcher.phases


@pytest.mark.parametrize('host_of', [idle_host, active_host])
def test_a_reboot(host_of: Callable[[Admin], str], admin: Admin) -> None:
    with campaign(admin) as watcher:
        admin.rig.reboot(host_of(admin))
        wait_all_up(admin)
    assert not watcher.alarms and 'ABORTING' not in watcher.phases


def upgrade_state(admin: Admin) -> Optional[Any]:
    out = admin.rig.ceph('orch', 'upgrade', 'status', '--format', 'json', check=False)
    return json.loads(out) if out.strip() else None


def test_an_upgrade(admin: Admin) -> None:
    with campaign(admin) as watcher:
        admin.rig.ceph('orch', 'upgrade', 'start', '--image', f'{IMAGE}:{TAGS[1]}')
        admin.rig.wait(lambda: (upgrade_state(admin) or {}).get('in_progress'), 60, 'the upgrade')
        admin.rig.wait(lambda: (upgrade_state(admin) or {'in_progress': True})[
            'in_progress'] is False, 900, 'the end of the upgrade')
    images = {row.get('container_image_name') for row in admin.rig.json('orch', 'ps')}
    print('images', images)
    assert not watcher.alarms and 'ABORTING' not in watcher.phases
