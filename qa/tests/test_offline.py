# SPDX-License-Identifier: LGPL-2.1-or-later
"""perfguard-plan's expand and drain, from dumps of a real cluster and with Ceph's own tools."""
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Callable

import pytest

from qa.cluster import Cluster
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
    cluster.ceph('osd', 'getmap', '-o', osdmap)
    return subprocess.run(
        [sys.executable, '-m', 'perfguard.offline', *arguments, '--osdmap', osdmap],
        env={**os.environ, 'PYTHONPATH': str(CHECKOUT / 'src' / 'pybind' / 'mgr')}, check=True,
        timeout=120, stdout=subprocess.PIPE, universal_newlines=True).stdout


def run_script(cluster: Cluster, text: str, directory: Path) -> None:
    path = directory / 'plan.sh'
    path.write_text(text)
    subprocess.run(['sh', str(path)], check=True, timeout=300,
                   env={**os.environ, 'CEPH_CONF': str(cluster.conf_path)})


def remapped(cluster: Cluster) -> int:
    cluster.wait_clean(60)
    return sum(row['up'] != row['acting'] for row in cluster.pgs())


def test_an_expansion_and_a_drain_from_dumps_move_nothing_at_first(
        cluster_factory: Callable[..., Cluster], release: str, tmp_path: Path) -> None:
    cluster = cluster_factory(release, osds=8, hosts=4)
    cluster.pool_create('p', 64)
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
