# SPDX-License-Identifier: LGPL-2.1-or-later
"""perfguard-plan on a real cluster, with the tools and the Python of its release: from dumps, and
live."""
import json
import os
import signal
import subprocess
from typing import Callable, Dict, List, Set

import pytest

from qa.cluster import Cluster
from qa.cluster.patience import patient

pytestmark = pytest.mark.releases('pacific', 'reef', 'tentacle', quick=())


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
    return plan(cluster, *arguments, '--osdmap', osdmap)


def within(cluster: Cluster, *command: str) -> List[str]:
    """The command line of what an operator runs on a host of the cluster."""
    return cluster.release.argv(
        ['env', 'CEPH_CONF=%s' % cluster.conf_path,
         'PYTHONPATH=%s' % (cluster.directory / 'mgr-modules'), *command], cluster.directory)


def plan(cluster: Cluster, *arguments: str) -> str:
    return subprocess.run(
        within(cluster, '/usr/bin/python3', '-m', 'perfguard.offline', *arguments), check=True,
        timeout=patient(60), stdout=subprocess.PIPE, universal_newlines=True).stdout


def script(cluster: Cluster, text: str) -> List[str]:
    """The command line that runs a script of perfguard-plan."""
    path = cluster.directory / 'plan.sh'
    path.write_text(text)
    return within(cluster, 'sh', str(path))


def run_script(cluster: Cluster, text: str) -> None:
    subprocess.run(script(cluster, text), check=True, timeout=patient(150))


def interrupt_script(cluster: Cluster, text: str) -> str:
    """Ctrl-C while it waits for PGs to move."""
    with subprocess.Popen(script(cluster, text), start_new_session=True,
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


def places(cluster: Cluster, pool: int) -> Dict[str, List[int]]:
    """The OSDs that have the data of each PG of a pool."""
    cluster.wait_clean(60)
    return {row['pgid']: sorted(row['acting']) for row in cluster.pgs()
            if row['pgid'].startswith('%d.' % pool)}


def test_an_expansion_and_a_drain_are_pinned_and_released_without_the_module(
        cluster_factory: Callable[..., Cluster], release: str) -> None:
    cluster = cluster_factory(release, osds=8, hosts=4)
    pool = cluster.pool_create('p', 32)
    cluster.fill('p', 500, 4096)
    # As the manual says: it would remove pins within a minute.
    cluster.ceph('balancer', 'off')
    before = places(cluster, pool)
    added = cluster.add_osds(2, weight=0.0)
    cluster.flush_pg_stats()
    names = ['osd.%d' % osd for osd in added]
    found = json.loads(planned(cluster, 'expand', '--weight', '1', '--format', 'json'))
    assert sorted(found['weights']) == sorted(names) and found['pgs'] > 0
    run_script(cluster, planned(cluster, 'expand', '--weight', '1', '--format', 'sh'))
    assert remapped(cluster) == 0 and places(cluster, pool) == before
    drain = planned(cluster, 'drain', 'osd.0', '--format', 'sh')
    run_script(cluster, drain)
    # It has run to its end, so it is not run again, unless as after an interruption.
    assert 'plan again' in pipe(cluster, drain).stderr
    cluster.mon('osd set', key='norebalance')
    run_script(cluster, drain)
    cluster.mon('osd unset', key='norebalance')
    assert remapped(cluster) == 0 and places(cluster, pool) == before
    weights = {row['name']: row['crush_weight'] for row in json.loads(
        cluster.ceph('osd', 'df', '-f', 'json').stdout)['nodes']}
    assert weights['osd.0'] < 0.001 and all(weights[name] == 1.0 for name in names)
    assert 'norebalance' not in cluster.osd_dump()['flags_set']
    pinned = len(cluster.osd_dump()['pg_upmap_items']) + len(cluster.osd_dump()['pg_upmap'])
    assert pinned >= found['pgs']
    release_all(cluster)
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
    text = plan(cluster, 'plan', *live, '--osd-max-backfills', '8')
    released = set(json.loads(plan(cluster, 'plan', *live, '--format', 'json'))['remove'])
    assert released
    cluster.mon('osd set-nearfull-ratio', ratio=0.0001)
    cluster.wait(lambda: all('nearfull' in row['state'] for row in cluster.osd_dump()['osds']
                             if row['osd']), 60, 'OSDs to be nearfull')
    cluster.mon('osd set', key='nobackfill')
    refused = subprocess.run(
        within(cluster, '/usr/bin/python3', '-m', 'perfguard.offline', 'release', *live),
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, universal_newlines=True, check=False)
    assert (refused.returncode, refused.stdout) == (2, '') and 'nobackfill' in refused.stderr
    with subprocess.Popen(within(cluster, 'sh', '-c', text), stderr=subprocess.PIPE,
                          universal_newlines=True) as shell:
        try:
            assert shell.stderr is not None
            said = ''.join(shell.stderr.readline() for _ in range(3))
            assert 'nearfull' in said and 'nobackfill' in said, said
            assert upmaps(cluster) == pinned
            cluster.mon('osd set-nearfull-ratio', ratio=0.85)
            cluster.mon('osd unset', key='nobackfill')
            shell.communicate(timeout=patient(240))
        finally:
            shell.kill()
    assert shell.returncode == 0 and not upmaps(cluster) & released and remapped(cluster) == 0


def pipe(cluster: Cluster, text: str) -> 'subprocess.CompletedProcess[str]':
    return subprocess.run(within(cluster, 'sh'), input=text, check=False,
                          timeout=patient(150), stderr=subprocess.PIPE, universal_newlines=True)


def pinned_from(cluster: Cluster, live: List[str]) -> bool:
    """Whether the commands of "pin" have pinned all that is remapped."""
    cluster.flush_pg_stats()
    assert pipe(cluster, plan(cluster, 'pin', *live)).returncode == 0
    return all(row['up'] == row['acting'] for row in cluster.pgs())


def release_all(cluster: Cluster) -> None:
    """Two PGs first; the rest by a script that is interrupted after a batch, and run again."""
    live = ['--live', '-c', str(cluster.conf_path), '--osd-max-backfills', '8']
    few = ['release', *live, '--max-backfills', '2']
    cluster.flush_pg_stats()
    cluster.wait_clean(60)
    whole = json.loads(plan(cluster, 'plan', *live, '--format', 'json'))
    assert whole['pgs'] == whole['pinned'] > 10 and whole['bytes'] > 0
    assert len(plan(cluster, *few).splitlines()) >= 2
    run_script(cluster, plan(cluster, *few, '--format', 'sh'))
    cluster.flush_pg_stats()
    cluster.wait_clean(60)
    rest = json.loads(plan(cluster, 'plan', *live, '--format', 'json'))
    # Without these two, OSDs on both ends of other pins may lack PGs.
    assert rest['pgs'] + len(rest['left_out']) == whole['pgs'] - 2 and len(rest['batches']) > 1
    text = plan(cluster, 'plan', *live, '--format', 'sh')
    assert 'interrupted' in interrupt_script(cluster, text)
    assert upmaps(cluster) & set(rest['remove'])
    for _ in range(4):
        run_script(cluster, text)
        cluster.flush_pg_stats()
        cluster.wait_clean(60)
        assert not upmaps(cluster) & set(rest['remove'])
        # Pins between OSDs that both lacked PGs show once one of them has its share.
        rest = json.loads(plan(cluster, 'plan', *live, '--format', 'json'))
        if not rest['pgs']:
            break
        text = plan(cluster, 'plan', *live, '--format', 'sh')
    assert not rest['pinned'] and not rest['in_flight']
