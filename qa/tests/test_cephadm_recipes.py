# SPDX-License-Identifier: LGPL-2.1-or-later
"""The manual's commands for cephadm, as printed, on a cluster of cephadm.

Only names differ: of hosts, OSDs, drives and images. OSDs are created with ceph-volume's method
"raw", as the hosts have no LVM. The spare host joins the cluster with four OSDs, which later tests
replace and remove.
"""
import json
import re
import subprocess
import time
from typing import Any, Callable, Dict, Iterator, List, Mapping, Optional, Set

import pytest

from qa.cephadm import Rig
from qa.cephadm.admin import FASTER, SLOW, Admin, build_archive
from qa.cephadm.bootstrap import authorize
from qa.cephadm.cache import HOSTS, IMAGE, SPARE_HOST, TAGS, address
from qa.cluster.daemons import tied_argv
from qa.cluster.patience import patient
from qa.lib.guard import FAST_OPTIONS
from qa.lib.recipes import recipes
from qa.lib.reference import manual, pages

pytestmark = [pytest.mark.cephadm, pytest.mark.releases('tentacle', quick=()),
              pytest.mark.timeout(1800)]

#: Between two of the four OSDs of a host.
SETTLE = {'auto_expand_settle': '40'}
SHORT_LOGS = {'osd_min_pg_log_entries': 2, 'osd_max_pg_log_entries': 3, 'osd_pg_log_trim_min': 1}
COMMAND_SECONDS, AGAIN_SECONDS = 300.0, 300.0
UPGRADE_SECONDS = 600.0
#: For the manual's names of the host that joins and of the one that leaves.
NAMES = {'host3': SPARE_HOST, 'host4': SPARE_HOST, '192.0.2.14': address(SPARE_HOST)}


@pytest.fixture(scope='module')
def admin(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Admin]:
    """One OSD on each host, and perfguard; the spare host lets the orchestrator log in."""
    rig = Rig(tmp_path_factory.mktemp('cephadm') / 'rig', tied=True, spare=True)
    try:
        rig.up()
        authorize(rig, SPARE_HOST)
        admin = Admin(rig, build_archive(tmp_path_factory.mktemp('archive')))
        # Otherwise recovery from the PG logs fills new OSDs, without a PG that is remapped.
        rig.give(f'config set osd {name} {value}' for name, value in SHORT_LOGS.items())
        admin.fill()
        admin.installer('--copy')
        admin.configure({**FAST_OPTIONS, **SETTLE, 'auto_expand': 'false'})
        rig.wait_ready()
        yield admin
    finally:
        rig.purge()


# ---- Following a recipe

def follow(admin: Admin, name: str, names: Mapping[str, str],
           by_hand: Optional[Mapping[str, Callable[[], object]]] = None) -> None:
    """Give the commands of a recipe. `names`: what stands for words of it; `by_hand`: beginning of
    a step's text -> what an operator does after its commands."""
    left = dict(by_hand or {})
    for step in recipes(manual())[name]:
        for command in (*step.commands, *step.cephadm):
            give(admin, named(command, {**NAMES, **names}))
        for begin in [begin for begin in left if step.text.startswith(begin)]:
            left.pop(begin)()
    assert not left, f'no such step in {name!r}: {sorted(left)}'


def named(command: str, names: Mapping[str, str]) -> str:
    words = '|'.join(map(re.escape, sorted(names, key=len, reverse=True)))
    return re.sub(rf'(?<!\w)({words})(?!\w)', lambda found: names[found[1]], command)


def give(admin: Admin, command: str) -> None:
    """As an operator does, who repeats what Ceph is not ready for. Files are put into the directory
    that the administrator's host shares with its shell."""
    argv = tied_argv(admin.rig.client_argv('sh', '-euc', f'cd /etc/ceph; {command}'))
    deadline = time.monotonic() + patient(AGAIN_SECONDS)
    while True:
        done = subprocess.run(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, text=True, timeout=patient(COMMAND_SECONDS))
        print(f'# {command}\n{done.stdout[-2000:]}{done.stderr[-1000:]}')
        creates = 'daemon add osd' in command
        # Until cephadm knows the drives, it reports neither success nor failure.
        if done.returncode == 0 and (not creates or 'Created osd' in done.stdout):
            break
        assert time.monotonic() < deadline, (command, done.returncode, done.stderr)
        # cephadm says what to repeat: it may have lost an order while it removed OSDs.
        repeat = re.search("Please run '(ceph orch host drain [^']+)'", done.stderr)
        if repeat:
            give(admin, repeat[1])
        time.sleep(3)


def devices(admin: Admin, *numbers: int) -> str:
    """Drives of the spare host, as an argument of cephadm."""
    drives = admin.rig.devices(SPARE_HOST)
    return ','.join(drives[number] for number in numbers)


def osds_of_spare_host(admin: Admin) -> List[int]:
    return sorted(child for node in admin.rig.json('osd', 'tree')['nodes']
                  if node['name'] == SPARE_HOST for child in node['children'])


def four_osds(admin: Admin) -> List[int]:
    """Those of the spare host, which joins the cluster with them."""
    if not osds_of_spare_host(admin):
        follow(admin, 'first expansion', {'/dev/sdb': f'{devices(admin, 0, 1, 2, 3)} raw'})
    return osds_of_spare_host(admin)


def row(admin: Admin, osd: int) -> Dict[str, Any]:
    found: Dict[str, Any] = next(row for row in admin.rig.json('osd', 'dump')['osds']
                                 if row['osd'] == osd)
    return found


def usage(admin: Admin, osd: int) -> Dict[str, Any]:
    found: Dict[str, Any] = next(row for row in admin.rig.json('osd', 'df')['nodes']
                                 if row['id'] == osd)
    return found


def assert_over(admin: Admin) -> None:
    admin.rig.wait_ready()
    held = admin.perfguard('held')
    assert held is not None and held['held'] == []


# ---- Expansions and replacements

def test_a_host_with_four_osds_joins(admin: Admin) -> None:
    osds = four_osds(admin)
    assert len(osds) == 4 and all(usage(admin, osd)['pgs'] for osd in osds)
    assert 'osd_crush_initial_weight' not in admin.rig.ceph('config', 'dump')
    assert_over(admin)


def wait_destroyed(admin: Admin, osd: int) -> None:
    """Until cephadm has removed the OSD and wiped its drive."""
    def destroyed() -> bool:
        # In words if none is being removed.
        removing = admin.rig.ceph('orch', 'osd', 'rm', 'status', '--format', 'json', check=False)
        return 'destroyed' in row(admin, osd)['state'] and '"osd_id"' not in removing

    admin.rig.wait(destroyed, 300, f'osd.{osd} destroyed')


def wait_campaign_after(admin: Admin, last: int) -> None:
    admin.rig.wait(lambda: admin.status()['id'] > last, 120, 'the campaign that fills the OSD')


def assert_replaced(admin: Admin, osd: int) -> None:
    def ended() -> bool:
        drains = admin.perfguard('osds', '--drained')
        return drains is not None and drains['drains'] == []

    admin.rig.wait(ended, 60, 'the end of the replacement')
    assert usage(admin, osd)['pgs'] and osd in osds_of_spare_host(admin)
    assert_over(admin)


def replace_a_drive_that_still_works(admin: Admin, osd: int, drive: str, created: str,
                                     db: str = '') -> None:
    """`created`: how cephadm names the new drive; `db`: the device of the OSD's DB."""
    last: List[int] = []

    def destroyed() -> None:
        wait_destroyed(admin, osd)
        if db:
            # For the method "raw", 20.2.4 wipes the drive only.
            give(admin, f'ceph orch device zap {SPARE_HOST} {db} --force')
        last.append(admin.status()['id'])

    follow(admin, 'replace a drive that still works', {'7': str(osd), '/dev/sdb': created}, {
        'Stop the daemon': destroyed,
        'Replace the drive': lambda: wait_campaign_after(admin, last[0])})
    assert device(admin, osd, 'bluestore_bdev_devices') == drive
    assert_replaced(admin, osd)


def device(admin: Admin, osd: int, key: str) -> str:
    """From the metadata of an OSD."""
    return f'/dev/{admin.rig.json("osd", "metadata", str(osd))[key]}'


def test_replace_a_drive_that_still_works(admin: Admin) -> None:
    drive = devices(admin, 4)
    replace_a_drive_that_still_works(admin, four_osds(admin)[0], drive, f'{drive} raw')


def stop(admin: Admin, host: str, osd: int) -> None:
    """As if its daemon had failed."""
    admin.rig.on(host, 'systemctl', 'stop', f'ceph-*@osd.{osd}.service')
    admin.rig.wait(lambda: 'up' not in row(admin, osd)['state'], 60, f'osd.{osd} down')


def test_replace_a_drive_that_has_failed(admin: Admin) -> None:
    osd, drive = four_osds(admin)[1], devices(admin, 5)
    last = admin.status()['id']

    def fail() -> None:
        stop(admin, SPARE_HOST, osd)
        # Without mon_osd_down_out_interval.
        admin.rig.ceph('osd', 'out', str(osd))
        admin.rig.wait(lambda: not admin.rig.json('pg', 'dump_stuck', 'degraded')['stuck_pg_stats'],
                       180, 'recovery')

    follow(admin, 'replace a drive that has failed', {'7': str(osd), '/dev/sdb': f'{drive} raw'}, {
        'Let Ceph recover': fail,
        'Stop the daemon': lambda: wait_destroyed(admin, osd),
        'Replace the drive': lambda: wait_campaign_after(admin, last)})
    assert f'/dev/{admin.rig.json("osd", "metadata", str(osd))["devices"]}' == drive
    assert_replaced(admin, osd)


def test_a_managed_specification_puts_an_osd_back(admin: Admin) -> None:
    """On its old drive, which perfguard does not fill."""
    rig, osd = admin.rig, four_osds(admin)[2]
    drive = f'/dev/{rig.json("osd", "metadata", str(osd))["devices"]}'
    before = row(admin, osd)['uuid']
    give(admin, f'ceph perfguard replace osd.{osd}')
    give(admin, 'ceph perfguard campaign watch')
    rig.ceph('orch', 'apply', '-i', '-', given=json.dumps({
        'service_type': 'osd', 'service_id': 'managed', 'placement': {'hosts': [SPARE_HOST]},
        'spec': {'data_devices': {'paths': [drive]}, 'method': 'raw'}}))
    give(admin, f'ceph orch osd rm {osd} --replace --zap')
    rig.wait(lambda: row(admin, osd)['uuid'] != before and row(admin, osd)['up'], 600,
             f'osd.{osd} created again')
    rig.ceph('orch', 'rm', 'osd.managed', '--force')
    last = admin.status()['id']

    def next_steps() -> List[str]:
        found = admin.perfguard('osds', '--drained')
        return [each['next'] for each in found['drains'] if each['osd'] == osd] if found else []

    rig.wait(lambda: any('on the same drive as before' in text for text in next_steps()), 60,
             'the same drive')
    time.sleep(15)
    # CRUSH may give it a PG: so small drives have a weight near that of a drained OSD.
    assert admin.status()['id'] == last and usage(admin, osd)['crush_weight'] < 0.001
    give(admin, f'ceph perfguard undrain osd.{osd}')
    wait_campaign_after(admin, last)
    give(admin, 'ceph perfguard campaign watch')
    assert_replaced(admin, osd)


def test_drain_a_host(admin: Admin) -> None:
    first, second, *_ = four_osds(admin)
    follow(admin, 'drain a host', {'3': str(first), '7': str(second)})
    assert SPARE_HOST not in {host['hostname'] for host in admin.rig.json('orch', 'host', 'ls')}
    assert not osds_of_spare_host(admin)
    assert_over(admin)


def test_osds_with_db_devices(admin: Admin) -> None:
    """The spare host joins again. Without LVM, a DB has a whole device. One OSD is replaced, and
    its DB is where it was."""
    follow(admin, 'expand with OSDs that have DB devices', {
        '/dev/sdb': devices(admin, 0), '/dev/sdc': devices(admin, 1),
        '/dev/nvme0n1': f'{devices(admin, 6, 7)} raw'})
    osds, drive = osds_of_spare_host(admin), devices(admin, 2)
    assert {device(admin, osd, 'bluefs_db_devices') for osd in osds} \
        == set(devices(admin, 6, 7).split(','))
    assert_over(admin)
    db = device(admin, osds[0], 'bluefs_db_devices')
    replace_a_drive_that_still_works(admin, osds[0], drive,
                                     f'data_devices={drive},db_devices={db} raw', db)
    assert device(admin, osds[0], 'bluefs_db_devices') == db


# ---- In mid-campaign

#: The OSD of the last host, which campaigns empty and fill again.
MOVED = len(HOSTS) - 1


def begin(admin: Admin) -> int:
    """A campaign that takes a while; returns its number."""
    admin.rig.wait_ready()
    admin.configure(SLOW)
    give(admin, f'ceph perfguard drain osd.{MOVED}')
    return int(admin.wait_moving()['id'])


def end(admin: Admin, number: int) -> None:
    """The campaign, and one that fills the OSD again."""
    admin.configure(FASTER)
    done = admin.wait_phase('DONE', 'ABORTED', seconds=300)
    assert (done['phase'], done['id']) == ('DONE', number), done
    give(admin, f'ceph perfguard undrain osd.{MOVED}')
    wait_campaign_after(admin, number)
    give(admin, 'ceph perfguard campaign watch')
    assert_over(admin)


def mgr_hosts(admin: Admin) -> List[str]:
    """Of the active mgr, then of the standbys."""
    dump = admin.rig.json('mgr', 'dump')
    return [name.partition('.')[0] for name in (
        dump['active_name'], *(standby['name'] for standby in dump['standbys']))]


def test_the_mgrs_are_placed_elsewhere(admin: Admin) -> None:
    """From the exported specification, by which the mgrs keep perfguard."""
    rig, number = admin.rig, begin(admin)
    hosts = [host for host in HOSTS if host != mgr_hosts(admin)[0]]
    spec, = admin.spec()
    rig.ceph('orch', 'apply', '-i', '-', given=json.dumps(
        {**spec, 'placement': {'hosts': hosts}}))
    rig.wait(lambda: sorted(mgr_hosts(admin)) == hosts, 300, f'mgrs on {hosts}')
    assert admin.status()['pinned'], 'the campaign ended too early'
    end(admin, number)


def wait_upgraded(admin: Admin) -> None:
    def ended() -> bool:
        # In words if none is in progress; nothing while no mgr answers.
        out = admin.rig.ceph('orch', 'upgrade', 'status', '--format', 'json', check=False)
        return bool(out.strip()) and '"in_progress": true' not in out

    admin.rig.wait(ended, UPGRADE_SECONDS, 'the end of the upgrade')


def images(admin: Admin, kind: str) -> Set[str]:
    """Of all daemons of a kind, once cephadm knows them: it forgets them with each restart."""
    def known() -> Optional[Set[str]]:
        rows = admin.rig.json('orch', 'ps', '--daemon_type', kind, '--refresh')
        return {row['container_image_id'] for row in rows} if all(
            row.get('container_image_id') for row in rows) else None

    found: Set[str] = admin.rig.wait(known, 60, f'the image of each {kind}')
    return found


@pytest.mark.timeout(3600)
def test_upgrade_ceph(admin: Admin) -> None:
    """To an image with the same Ceph and another digest."""
    number, before = begin(admin), images(admin, 'osd')

    def paused() -> None:
        status = admin.status()
        assert (status['id'], status['paused']) == (number, True) and status['pinned'], status

    def mgrs_upgraded() -> None:
        admin.rig.wait(lambda: any('keeps perfguard' in text for text in reasons(admin)), 120,
                       'what the upgrade does to perfguard')
        wait_upgraded(admin)
        after = images(admin, 'mgr') | images(admin, 'mon')
        assert len(after) == 1 and images(admin, 'osd') == before and after.isdisjoint(before)
        paused()

    def osds_upgraded() -> None:
        wait_upgraded(admin)
        assert images(admin, 'osd') == images(admin, 'mgr') != before
        paused()
        admin.configure(FASTER)

    follow(admin, 'upgrade Ceph in the middle of a campaign', {
        'quay.io/ceph/ceph:v20.2.4': f'{IMAGE}:{TAGS[1]}'},
        {'Upgrade mons and mgrs': mgrs_upgraded, 'Upgrade the OSDs': osds_upgraded})
    end(admin, number)


def reasons(admin: Admin) -> List[str]:
    status = admin.perfguard('status')
    return list(status['reasons']) if status else []


# ---- Monitoring

#: In place of Prometheus and Grafana: the directories whose owners run them, and an entry point
#: that ignores its arguments.
MONITORING = f'''
podman run --net=host --name monitoring --entrypoint mkdir {IMAGE}:{TAGS[0]} -p \
    /etc/prometheus /var/lib/grafana
podman commit -q --change 'ENTRYPOINT ["sh", "-c", "exec sleep infinity"]' monitoring \
    localhost/monitoring:1
podman rm monitoring
'''


def commands_of(page: str, word: str) -> List[str]:
    """Of the only prompt that contains the word."""
    block, = (block for block in re.findall(
        r'^\.\. prompt:: bash #\n\n((?: {3}.+\n)+)', pages()[page], re.M) if word in block)
    return [line.strip() for line in block.splitlines()]


def test_prometheus_and_grafana(admin: Admin) -> None:
    yaml: Any = pytest.importorskip('yaml')
    rig, host = admin.rig, HOSTS[0]
    rig.admin('sh', '-euc', MONITORING)
    for name in ('prometheus', 'grafana'):
        rig.ceph('config', 'set', 'mgr', f'mgr/cephadm/container_image_{name}',
                 'localhost/monitoring:1')
        rig.ceph('orch', 'apply', name, '--placement', host)

    def contents(pattern: str) -> str:
        """Of a file that cephadm has written."""
        return rig.admin('sh', '-c', f'cat /var/lib/ceph/*/{pattern}', check=False)

    rig.wait(lambda: contents('prometheus.*/etc/prometheus/prometheus.yml'), 300, 'Prometheus')
    job = re.search(r'^ {3}scrape_configs:\n((?: {5}.+\n)+)', pages()['monitoring.rst'], re.M)
    assert job is not None
    jobs = re.sub('^ {3}', '', job[1], flags=re.M)
    template = (rig.cache.image_root / 'usr/share/ceph/mgr/cephadm/templates/services/prometheus'
                / 'prometheus.yml.j2').read_text()
    rig.admin('sh', '-euc', f'cp -r {admin.folder}/grafana {admin.folder}/perfguard_alerts.yml '
              '/etc/ceph; cat > /etc/ceph/prometheus.yml.j2',
              given=template.replace('scrape_configs:\n', f'scrape_configs:\n{jobs}'))
    for command in commands_of('monitoring.rst', 'orch reconfig prometheus'):
        give(admin, command)
    rig.wait(lambda: 'perfguard' in contents('prometheus.*/etc/prometheus/prometheus.yml'), 120,
             'the scrape job')
    config = yaml.safe_load(contents('prometheus.*/etc/prometheus/prometheus.yml'))
    assert yaml.safe_load(jobs)[0] in config['scrape_configs']
    assert any(path.startswith('/etc/prometheus/alerting/') for path in config['rule_files'])
    assert contents('prometheus.*/etc/prometheus/alerting/custom_alerts.yml') \
        == rig.admin('cat', f'{admin.folder}/perfguard_alerts.yml')

    def dashboard() -> str:
        return rig.admin('sh', '-c', 'podman exec "$(podman ps -q -f name=grafana)" cat '
                         '/etc/grafana/dashboards/ceph-dashboard/perfguard.json', check=False)

    for command in commands_of('monitoring.rst', 'orch redeploy grafana'):
        give(admin, command)
    rig.wait(dashboard, 120, 'the dashboard')
    assert json.loads(dashboard()) == json.loads(
        rig.admin('cat', f'{admin.folder}/grafana/perfguard.json'))
