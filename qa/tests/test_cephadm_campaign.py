# SPDX-License-Identifier: LGPL-2.1-or-later
"""Upgrades, maintenance, reboots and removals of OSDs by the orchestrator during a campaign."""
import contextlib
import json
import threading
import time
from typing import Any, Callable, Dict, Iterator, List, NamedTuple, Optional, Set, Tuple

import pytest

from qa.cephadm import Rig
from qa.cephadm.admin import FASTER, SLOW, SLOWEST, Admin, build_archive
from qa.cephadm.bootstrap import add_osds
from qa.cephadm.cache import HOSTS, IMAGE, TAGS
from qa.cluster.errors import ClusterError
from qa.lib.guard import FAST_OPTIONS

pytestmark = [pytest.mark.cephadm, pytest.mark.releases('tentacle', quick=()),
              pytest.mark.timeout(1800)]

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
            add_osds(rig, host, rig.devices(host)[1])
        admin.fill()
        admin.installer('--copy')
        admin.configure({**FAST_OPTIONS, 'auto_expand': 'false'})
        rig.wait_ready()
        yield admin
    finally:
        rig.purge()


@contextlib.contextmanager
def campaign(admin: Admin, pace: Dict[str, str] = SLOW) -> Iterator[Watcher]:
    """A campaign that goes on until the end of the block, and then to its own end. `pace`: options
    that let it last so long."""
    admin.configure(SLOW)
    admin.rig.ceph('perfguard', 'drain', f'osd.{MOVED}')
    number = admin.wait_moving()['id']
    admin.configure(pace)
    with Watcher(admin) as watcher:
        yield watcher
        assert admin.status()['pinned'], 'the campaign ended too early'
        admin.configure(FASTER)
        done = admin.wait_phase('DONE', 'ABORTED', seconds=300)
    print('phases', watcher.phases, 'alarms', watcher.alarms)
    print('\n'.join(sorted(watcher.reasons)))
    assert done['phase'] == 'DONE' and done['id'] == number and not done['pinned'], done
    assert done['released'] == done['total'], done
    fill_again(admin)


def fill_again(admin: Admin) -> None:
    admin.rig.wait_ready()
    admin.rig.wait(lambda: undrained(admin), 60, 'PGs that do not peer')
    admin.wait_phase('RELEASING', 'HOLDING', 'FINISHING', seconds=60)
    admin.wait_phase('DONE', seconds=180)
    admin.rig.wait_ready()


def undrained(admin: Admin) -> bool:
    """Whether the order is accepted. PGs may peer just then: the end of a campaign has given the
    balancer back."""
    try:
        admin.rig.ceph('perfguard', 'undrain', f'osd.{MOVED}')
    except ClusterError as e:
        if 'PEERING' not in str(e):
            raise
        return False
    return True


def active_host(admin: Admin) -> str:
    return str(admin.rig.json('mgr', 'stat')['active_name'].partition('.')[0])


def wait_all_up(admin: Admin) -> None:
    def up() -> bool:
        found = json.loads(admin.rig.ceph('-s', '--format', 'json', check=False) or '{}')
        return bool(found and found['osdmap']['num_osds'] == found['osdmap']['num_up_osds']
                    and not found['pgmap'].get('degraded_objects'))

    admin.rig.wait(up, 180, 'all OSDs up and all PGs complete')


def may_stop(admin: Admin, host: str) -> Tuple[bool, bool]:
    """Whether Ceph lets all OSDs of a host stop, and cephadm all of its daemons."""
    def allowed(*words: str) -> bool:
        try:
            admin.rig.ceph(*words)
        except ClusterError:
            return False
        return True

    osds = [str(row['id']) for row in admin.rig.json('osd', 'metadata')
            if row.get('hostname') == host]
    return allowed('osd', 'ok-to-stop', *osds), allowed('orch', 'host', 'ok-to-stop', host)


def maintenance(admin: Admin, host: str) -> None:
    # A PG that peers just now may not lose an OSD.
    admin.rig.wait(lambda: may_stop(admin, host) == (True, True), 60, f'{host} to be ok to stop')
    assert admin.status()['pinned']
    admin.rig.ceph('orch', 'host', 'maintenance', 'enter', host)
    admin.rig.wait(lambda: admin.rig.json('osd', 'stat')['num_up_osds'] == 4, 60, 'two OSDs down')
    wait_remark(admin, f'in maintenance: {host}')
    for other in set(HOSTS) - {host}:
        assert may_stop(admin, other) == (False, False), other
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


def another_version(admin: Admin) -> None:
    """The unpacked archive becomes that of a later version."""
    admin.rig.admin('sh', '-euc', '''
cd "$1"
sed -i "s/^VERSION = .*/VERSION = '9.9.9'/" perfguard/version.py
echo 9.9.9 > VERSION
find perfguard dashboard -type f | LC_ALL=C sort | xargs sha256sum > SHA256SUMS
''', 'sh', admin.folder)


def versions(admin: Admin) -> Set[str]:
    """Of perfguard, in all mgrs."""
    dump = admin.rig.json('mgr', 'dump')
    return {module['module_options']['installed_version']['default_value']
            for mgr in (dump, *dump['standbys']) for module in mgr['available_modules']
            if module['name'] == 'perfguard'}


def test_another_version_is_installed_and_removed(admin: Admin) -> None:
    another_version(admin)
    assert '--upgrade replaces it' in admin.installer('--copy', check=False)
    with campaign(admin) as watcher:
        admin.installer('--copy', '--upgrade')
        assert versions(admin) == {'9.9.9'}
    # Between the restarts of the two mgrs, their versions differ.
    assert watcher.alarms <= {'PERFGUARD_STANDBY_MGR'} and 'ABORTING' not in watcher.phases
    admin.configure(SLOW)
    admin.rig.ceph('perfguard', 'drain', f'osd.{MOVED}')
    admin.wait_moving()
    assert 'perfguard shutdown' in admin.installer('--remove', check=False)
    assert admin.status()['phase'] in ('RELEASING', 'HOLDING')
    admin.installer('--remove', '--force')
    assert versions(admin) == set()
    assert 'norebalance' not in admin.rig.json('osd', 'dump')['flags_set']
    admin.rig.wait_ready()
    admin.installer('--copy')
    admin.configure(FASTER)
    fill_again(admin)


def test_an_osd_is_marked_out(admin: Admin) -> None:
    """Ceph empties it at once, which the campaign does not delay; its PGs return meanwhile."""
    rig, osd = admin.rig, 1

    def pgs() -> int:
        return int(next(row['pgs'] for row in rig.json('osd', 'df')['nodes'] if row['id'] == osd))

    with campaign(admin, SLOWEST) as watcher:
        rig.ceph('osd', 'out', str(osd))
        rig.wait(lambda: not pgs(), 180, f'osd.{osd} empty')
        rig.ceph('osd', 'in', str(osd))
    assert pgs() and not watcher.alarms and 'ABORTING' not in watcher.phases


def remove_osd(admin: Admin, osd: int) -> None:
    """Have the orchestrator remove an OSD, and wait for it."""
    begin = time.monotonic()
    admin.rig.ceph('orch', 'osd', 'rm', str(osd))
    # In words if there is none.
    admin.rig.wait(lambda: '"osd_id"' not in admin.rig.ceph(
        'orch', 'osd', 'rm', 'status', '--format', 'json', check=False), 300, f'osd.{osd} removed')
    print(f'osd.{osd} removed after {time.monotonic() - begin:.0f} s')


def create_osd(admin: Admin, host: str, device: str) -> None:
    """On a drive that was just wiped: cephadm's list of devices may be old."""
    def created() -> bool:
        try:
            add_osds(admin.rig, host, device)
        except ClusterError:
            admin.rig.ceph('orch', 'device', 'ls', '--refresh')
            return False
        return True

    admin.rig.wait(created, 180, f'an OSD on {device}')


def test_an_osd_is_removed(admin: Admin) -> None:
    """The orchestrator empties it, which perfguard does not delay."""
    rig = admin.rig
    with campaign(admin) as watcher:
        rig.ceph('orch', 'osd', 'rm', '1', '--zap')
        wait_remark(admin, 'is emptying osd.1')
        rig.wait(lambda: 1 not in _osds(admin), 300, 'osd.1 removed')
    assert not watcher.alarms and 'ABORTING' not in watcher.phases
    create_osd(admin, HOSTS[1], rig.devices(HOSTS[1])[0])
    rig.wait_ready()


def test_an_emptied_osd_is_removed_at_once(admin: Admin) -> None:
    """The orchestrator finds nothing to move."""
    rig = admin.rig
    host, device = HOSTS[-1], rig.devices(HOSTS[-1])[1]
    admin.configure(FASTER)
    rig.ceph('perfguard', 'drain', f'osd.{MOVED}')
    admin.wait_phase('RELEASING', 'FINISHING', seconds=60)
    admin.wait_phase('DONE', seconds=180)
    remove_osd(admin, MOVED)
    assert MOVED not in _osds(admin)
    rig.ceph('orch', 'device', 'zap', host, device, '--force')
    create_osd(admin, host, device)
    rig.wait_ready()


def wait_remark(admin: Admin, remark: str) -> None:
    """Of "perfguard status", on what cephadm does."""
    admin.rig.wait(lambda: any(remark in text for text in _texts(admin)), 120, f'"{remark}"')


def _texts(admin: Admin) -> List[str]:
    status = admin.perfguard('status')
    return list(status['reasons']) if status else []


def _osds(admin: Admin) -> Set[int]:
    return {row['osd'] for row in admin.rig.json('osd', 'dump')['osds']}


def is_upgrading(admin: Admin) -> Optional[bool]:
    """None while no mgr answers."""
    # In words if none is in progress.
    out = admin.rig.ceph('orch', 'upgrade', 'status', '--format', 'json', check=False)
    return '"in_progress": true' in out if out.strip() else None


def upgrade(admin: Admin, *options: str) -> None:
    """To the image that the OSDs do not run: with the same Ceph, and another digest."""
    images = [f'{IMAGE}:{tag}' for tag in TAGS]
    target = next(image for image in images if digests(admin, 'osd').isdisjoint(json.loads(
        admin.rig.admin('podman', 'image', 'inspect', '-f', '{{json .RepoDigests}}', image))))
    admin.rig.ceph('orch', 'upgrade', 'start', '--image', target, *options)
    wait_remark(admin, 'keeps perfguard')
    admin.rig.wait(lambda: is_upgrading(admin) is False, 900, 'the end of the upgrade')


def digests(admin: Admin, kind: str) -> Set[str]:
    """Of the images of all daemons of a kind."""
    def known() -> Optional[Set[str]]:
        """Once cephadm knows them: it forgets them with each restart."""
        rows = admin.rig.json('orch', 'ps', '--daemon_type', kind, '--refresh')
        return {digest for row in rows for digest in row['container_image_digests']} if all(
            row.get('container_image_digests') for row in rows) else None

    found: Set[str] = admin.rig.wait(known, 60, f'the image of each {kind}')
    return found


@pytest.mark.timeout(3600)
def test_an_upgrade(admin: Admin) -> None:
    with campaign(admin, SLOWEST) as watcher:
        upgrade(admin)
        wait_all_up(admin)
    assert not watcher.alarms and 'ABORTING' not in watcher.phases


def test_an_upgrade_of_the_mgrs_alone(admin: Admin) -> None:
    """A staggered one, as the manual of Ceph recommends to begin with."""
    before = digests(admin, 'osd')
    with campaign(admin, SLOWEST) as watcher:
        upgrade(admin, '--daemon-types', 'mgr')
    assert digests(admin, 'osd') == before and before.isdisjoint(digests(admin, 'mgr'))
    assert not watcher.alarms and 'ABORTING' not in watcher.phases


def test_a_host_is_drained(admin: Admin) -> None:
    """The orchestrator empties its OSDs and removes all of its daemons. The last of these tests:
    the host remains empty."""
    host = HOSTS[1]
    osds = {row['id'] for row in admin.rig.json('osd', 'metadata') if row['hostname'] == host}
    with campaign(admin, SLOWEST) as watcher:
        admin.rig.ceph('orch', 'host', 'drain', host)
        wait_remark(admin, 'the orchestrator is emptying')
        admin.rig.wait(lambda: osds.isdisjoint(_osds(admin)), 600, f'the OSDs of {host} removed')
    assert not watcher.alarms and 'ABORTING' not in watcher.phases
