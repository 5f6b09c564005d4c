# SPDX-License-Identifier: LGPL-2.1-or-later
"""perfguard-plan on a real cluster: from dumps, live, and with Ceph's own tools."""
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Callable, Dict, List, Set

import pytest

from qa.cluster import Cluster
from qa.cluster.patience import patient
from qa.lib.reference import CHECKOUT

pytestmark = pytest.mark.releases('pacific', quick=())


def planned(cluster: Cluster, verb: str, *words: str) -> str:
    """What perfguard-plan prints from fresh dumps."""
    directory = cluster.directory
    files = {'--report': ('report',), '--osd-df': ('osd', 'df', '-f', 'json')}
    arguments = [verb, *words]
    for option, command in files.items():
        path = directory / ('dump' + option)
        path.write_text(cluster.ceph(*command).stdout)
        arguments += [option, str(path)]
    osdmap = str(directory / 'osdmap.bin')
    epoch = json.loads((directory / 'dump--report').read_text())['osdmap']['epoch']
    cluster.ceph('osd', 'getmap', str(epoch), '-o', osdmap)
    return plan(*arguments, '--osdmap', osdmap)


def plan(*arguments: str) -> str:
    return subprocess.run(
        [sys.executable, '-m', 'perfguard.offline', *arguments],
        env={**os.environ, 'PYTHONPATH': str(CHECKOUT / 'src' / 'pybind' / 'mgr')}, check=True,
        timeout=patient(60), stdout=subprocess.PIPE, universal_newlines=True).stdout


def run_script(cluster: Cluster, text: str, directory: Path) -> None:
    path = directory / 'plan.sh'
    path.write_text(text)
    subprocess.run(['sh', str(path)], check=True, timeout=patient(150), env=environment(cluster))


def environment(cluster: Cluster) -> Dict[str, str]:
    return {**os.environ, 'CEPH_CONF': str(cluster.conf_path)}


def interrupt_script(cluster: Cluster, text: str, directory: Path) -> str:
    """Ctrl-C while it waits for PGs to move."""
    path = directory / 'plan.sh'
    path.write_text(text)
    with subprocess.Popen(['sh', str(path)], env=environment(cluster), start_new_session=True,
                          stderr=subprocess.PIPE, universal_newlines=True) as shell:
        try:
            assert shell.stderr is not None
            said = ''
            for line in shell.stderr:
                said += line
                if ' commands, 0 failed' in line:
                    break
            os.killpg(shell.pid, signal.SIGINT)
            said += shell.communicate(timeout=patient(60))[1]
        finally:
            shell.kill()
    assert shell.returncode == 130
    return said


def upmaps(cluster: Cluster) -> Set[str]:
    dump = cluster.osd_dump()
    return {row['pgid'] for row in (*dump['pg_upmap_items'], *dump['pg_upmap'])}


def remapped(cluster: Cluster) -> int:
    cluster.wait_clean(60)
    return sum(row['up'] != row['acting'] for row in cluster.pgs())


def test_an_expansion_and_a_drain_are_pinned_and_released_without_the_module(
        cluster_factory: Callable[..., Cluster], release: str, tmp_path: Path) -> None:
    cluster = cluster_factory(release, osds=8, hosts=4)
    cluster.pool_create('p', 32)
    cluster.fill('p', 500, 4096)
    cluster.wait_clean(60)
    added = cluster.add_osds(2, weight=0.0)
    cluster.flush_pg_stats()
    names = ['osd.%d' % osd for osd in added]
    found = json.loads(planned(cluster, 'expand', '--weight', '1', '--format', 'json'))
    assert sorted(found['weights']) == sorted(names) and found['pgs'] > 0
    run_script(cluster, planned(cluster, 'expand', '--weight', '1', '--format', 'sh'), tmp_path)
    assert remapped(cluster) == 0
    drain = planned(cluster, 'drain', 'osd.0', '--format', 'sh')
    run_script(cluster, drain, tmp_path)
    # Again, as after an interruption.
    run_script(cluster, drain, tmp_path)
    assert remapped(cluster) == 0
    weights = {row['name']: row['crush_weight'] for row in json.loads(
        cluster.ceph('osd', 'df', '-f', 'json').stdout)['nodes']}
    assert weights['osd.0'] < 0.001 and all(weights[name] == 1.0 for name in names)
    assert 'norebalance' not in cluster.osd_dump()['flags_set']
    pinned = len(cluster.osd_dump()['pg_upmap_items']) + len(cluster.osd_dump()['pg_upmap'])
    assert pinned >= found['pgs']
    release_all(cluster, tmp_path)
    held = {osd for pg in cluster.pgs() for osd in pg['acting']}
    assert held == {*range(1, 8), *added}


def test_piped_commands_stop_at_a_failed_pin_and_wait_for_space(
        cluster_factory: Callable[..., Cluster], release: str) -> None:
    cluster = cluster_factory(release, osds=8, hosts=4)
    cluster.pool_create('p', 32)
    cluster.fill('p', 500, 65536)
    cluster.ceph('balancer', 'off')
    cluster.wait_clean(60)
    lines = planned(cluster, 'drain', 'osd.0').splitlines()
    first = next(at for at, line in enumerate(lines) if 'pg-upmap' in line)
    lines.insert(first + 1, 'ceph osd pg-upmap-items 99.0 0 1')
    failed = pipe(cluster, '\n'.join(lines))
    assert failed.returncode and 'norebalance stays set' in failed.stderr
    assert 'norebalance' in cluster.osd_dump()['flags_set'] and len(upmaps(cluster)) == 1
    live = ['--live', '-c', str(cluster.conf_path)]
    cluster.wait(lambda: pinned_from(cluster, live), 60, 'all others to be pinned')
    cluster.mon('osd unset', key='norebalance')
    pinned = upmaps(cluster)
    assert remapped(cluster) == 0 and len(pinned) > 2

    cluster.flush_pg_stats()
    script = plan('plan', *live, '--osd-max-backfills', '8')
    released = set(json.loads(plan('plan', *live, '--format', 'json'))['remove'])
    assert released
    cluster.mon('osd set-nearfull-ratio', ratio=0.0001)
    cluster.wait(lambda: all('nearfull' in row['state'] for row in cluster.osd_dump()['osds']
                             if row['osd']), 60, 'OSDs to be nearfull')
    with subprocess.Popen(['sh', '-c', script], env=environment(cluster),
                          stderr=subprocess.PIPE, universal_newlines=True) as shell:
        try:
            assert shell.stderr is not None
            said = [shell.stderr.readline() for _ in range(3)]
            assert any('nearfull' in line for line in said), said
            assert upmaps(cluster) == pinned
            cluster.mon('osd set-nearfull-ratio', ratio=0.85)
            shell.communicate(timeout=patient(240))
        finally:
            shell.kill()
    assert shell.returncode == 0 and not upmaps(cluster) & released and remapped(cluster) == 0


def pipe(cluster: Cluster, text: str) -> 'subprocess.CompletedProcess[str]':
    return subprocess.run(['sh'], input=text, env=environment(cluster), check=False,
                          timeout=patient(150), stderr=subprocess.PIPE, universal_newlines=True)


def pinned_from(cluster: Cluster, live: List[str]) -> bool:
    """Whether the commands of "pin" have pinned all that is remapped."""
    cluster.flush_pg_stats()
    assert pipe(cluster, plan('pin', *live)).returncode == 0
    return all(row['up'] == row['acting'] for row in cluster.pgs())


def release_all(cluster: Cluster, directory: Path) -> None:
    """Two PGs first; the rest by a script that is interrupted after a batch, and run again."""
    live = ['--live', '-c', str(cluster.conf_path), '--osd-max-backfills', '8']
    few = ['release', *live, '--max-backfills', '2']
    cluster.flush_pg_stats()
    cluster.wait_clean(60)
    whole = json.loads(plan('plan', *live, '--format', 'json'))
    assert whole['pgs'] == whole['pinned'] > 10 and whole['bytes'] > 0
    assert len(plan(*few).splitlines()) >= 2
    run_script(cluster, plan(*few, '--format', 'sh'), directory)
    cluster.flush_pg_stats()
    cluster.wait_clean(60)
    rest = json.loads(plan('plan', *live, '--format', 'json'))
    assert rest['pgs'] == whole['pgs'] - 2 and len(rest['batches']) > 1
    script = plan('plan', *live, '--format', 'sh')
    assert 'interrupted' in interrupt_script(cluster, script, directory)
    assert upmaps(cluster) & set(rest['remove'])
    for _ in range(4):
        run_script(cluster, script, directory)
        cluster.flush_pg_stats()
        cluster.wait_clean(60)
        assert not upmaps(cluster) & set(rest['remove'])
        # Pins between OSDs that both lacked PGs show once one of them has its share.
        rest = json.loads(plan('plan', *live, '--format', 'json'))
        if not rest['pgs']:
            break
        script = plan('plan', *live, '--format', 'sh')
    assert not rest['pinned'] and not rest['in_flight']
