# SPDX-License-Identifier: LGPL-2.1-or-later
"""Bootstraps the cluster with cephadm."""
import re
import time

from qa.cluster.errors import ClusterError

from .cache import ADMIN_HOST, DASHBOARD_PASSWORD, HOSTS, IMAGE, TAGS, Cache, address
from .rig import Rig

#: Two replicas, as a host may be down.
_CONF = '''[global]
osd_pool_default_size = 2
osd_crush_chooseleaf_type = 1
[mon]
mon_data_avail_warn = 5
mon_warn_on_pool_no_redundancy = false
[mgr]
mgr_stats_period = 1
mgr/cephadm/use_repo_digest = true
mgr/crash/warn_recent_interval = 0
'''
_SECONDS = 120.0
#: Without a message of cephadm: it has nothing left to do.
_CALM_SECONDS = 20.0


def bootstrap(cache: Cache) -> None:
    """Make the cluster that rigs are copies of."""
    rig = Rig(cache.fresh.with_name('fresh.partial'), cache, tied=True)
    rig.purge()
    rig.boot()
    try:
        _bootstrap(rig)
    finally:
        rig.down()
    rig.mark_current()
    Rig(cache.fresh, cache).purge()
    rig.directory.rename(cache.fresh)


def _bootstrap(rig: Rig) -> None:
    rig.admin('sh', '-c', 'cat > /root/boot.conf', given=_CONF)
    rig.admin('python3', '/usr/sbin/cephadm', '--image', f'{IMAGE}:{TAGS[0]}', 'bootstrap',
              '--mon-ip', address(ADMIN_HOST), '--skip-pull', '--skip-monitoring-stack',
              '--skip-firewalld', '--allow-mismatched-release', '--config', '/root/boot.conf',
              '--initial-dashboard-user', 'admin', '--initial-dashboard-password',
              DASHBOARD_PASSWORD, '--dashboard-password-noupdate')
    for host in HOSTS:
        if host != ADMIN_HOST:
            authorize(rig, host)
            rig.ceph('orch', 'host', 'add', host, address(host))
    for host in HOSTS:
        add_osds(rig, host, rig.devices(host)[0])
    # The specification that the first of these has made would have ceph-volume try the used device
    # again in each round.
    rig.ceph('orch', 'set-unmanaged', 'osd.default')
    rig.wait(lambda: len(rig.json('mgr', 'dump')['standbys']) == 1, _SECONDS, 'a standby mgr')
    rig.wait(lambda: len(rig.json('mon', 'dump')['quorum']) == len(HOSTS), _SECONDS, 'three mons')
    # Otherwise each copy of the cluster begins with it, for 10 seconds.
    rig.wait(lambda: _is_calm(rig), _SECONDS, 'the end of what cephadm does')
    rig.wait_ready()


def _is_calm(rig: Rig) -> bool:
    def newest() -> str:
        return rig.ceph('log', 'last', '1', 'info', 'cephadm')

    before = newest()
    time.sleep(_CALM_SECONDS)
    return newest() == before


def authorize(rig: Rig, host: str) -> None:
    """Let the orchestrator log in on a host."""
    rig.on(host, 'sh', '-c', 'umask 077; cat >> /root/.ssh/authorized_keys',
           given=rig.admin('cat', '/etc/ceph/ceph.pub'))


def add_osds(rig: Rig, host: str, *devices: str) -> None:
    """Have the orchestrator create an OSD on each device of a host, and wait until all are up."""
    # "orch apply osd --all-available-devices" would take devices of the machine itself.
    said = rig.ceph('orch', 'daemon', 'add', 'osd', f'{host}:{",".join(devices)}', 'raw')
    # A failure has status 0.
    created = re.search(r'Created osd\(s\) ([\d,]+)', said)
    if not created:
        log = rig.ceph('log', 'last', '20', 'info', 'cephadm')
        raise ClusterError(f'no OSD on {host}: {said}{log}')
    osds = {int(osd) for osd in created[1].split(',')}
    rig.wait(lambda: osds <= {row['osd'] for row in rig.json('osd', 'dump')['osds'] if row['up']},
             _SECONDS, f'{said.strip()}')
