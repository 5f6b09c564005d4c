# SPDX-License-Identifier: LGPL-2.1-or-later
"""Previews: for users who may only read, and without keeping the module from its work."""
import json
import re
import subprocess
import threading
from pathlib import Path
from typing import Any, Dict, Tuple

import pytest

from qa.cluster import Cluster
from qa.lib.guard import Guard
from qa.lib.joins import wait_reported

pytestmark = [pytest.mark.releases('pacific', 'reef', 'tentacle', quick='tentacle'),
              pytest.mark.shares('campaign')]

EACCES = 13
EINVAL = 22
EAGAIN = 11
ENOENT = 2


class Viewer:
    """client.viewer, with read access to mons and mgrs."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        key = cluster.mon('auth get-or-create', entity='client.viewer',
                          caps=['mon', 'allow r', 'mgr', 'allow r'])[0]['key']
        self._keyring: Path = cluster.directory / 'viewer.keyring'
        self._keyring.write_text('[client.viewer]\n\tkey = %s\n' % key)

    def ask(self, *words: str) -> Tuple[int, str]:
        """Retval and output of `ceph perfguard ...`."""
        done = self._cluster.ceph('--name', 'client.viewer', '--keyring', str(self._keyring),
                                  'perfguard', *words, '--format', 'json', check=False)
        return done.returncode, done.stdout if done.returncode == 0 else done.stderr

    def get(self, *words: str) -> Dict[str, Any]:
        answers = []

        def answered() -> bool:
            # New OSDs may not have reported yet.
            answers.append(self.ask(*words))
            return answers[-1][0] != EAGAIN

        self._cluster.wait(answered, 60, 'an answer')
        assert answers[-1][0] == 0, (words, answers[-1])
        found: Dict[str, Any] = json.loads(answers[-1][1])
        return found


def with_a_large_id(cluster: Cluster, crush_map: str) -> str:
    """A map for which crushtool prints thousands of lines for each OSD of the cluster."""
    path = cluster.directory / 'large.txt'
    text = Path(crush_map).read_text()
    path.write_text(re.sub(r'\b(device |osd\.)0\b', r'\g<1>123456', text))
    return str(path)


def test_a_user_who_may_only_read_previews_everything(guard: Guard) -> None:
    cluster = guard.cluster
    added = cluster.add_osds(2, weight=0.0)
    wait_reported(guard)
    viewer, before = Viewer(cluster), guard.foreign()
    crush_map = str(cluster.directory / 'crush.txt')
    binary = str(cluster.directory / 'crush.bin')
    cluster.ceph('osd', 'getcrushmap', '-o', binary)
    subprocess.run(cluster.release.argv(['crushtool', '-d', binary, '-o', crush_map],
                                        cluster.directory), check=True, timeout=60)
    # By name: one that has not reported yet would be left out.
    expand = viewer.get('preview', 'expand', *('osd.%d' % osd for osd in added), '--weight', '1')
    assert expand['pgs'] > 0 and set(expand['weights']) == {'osd.%d' % osd for osd in added}
    assert viewer.get('preview', 'drain', 'osd.0')['pgs'] > 0
    assert viewer.get('preview', 'crushmap', '-i', crush_map)['pgs'] == 0
    refused, why = viewer.ask('preview', 'crushmap', '-i', with_a_large_id(cluster, crush_map))
    assert refused == EINVAL and 'osd.123456' in why, (refused, why)
    assert viewer.get('preview', 'probe', 'quick', '--pool', 'rep')
    assert viewer.ask('preview', 'rollback')[0] == ENOENT
    assert viewer.ask('preview', 'undrain', 'osd.0')[0] == ENOENT
    for words in (('expand', '--dry-run'), ('drain', 'osd.0'), ('campaign', 'prepare'),
                  ('probe', 'run', 'quick')):
        assert viewer.ask(*words)[0] == EACCES
    assert viewer.get('campaign', 'status') and guard.phase() == 'IDLE'
    assert guard.foreign() == before and not guard.tracebacks()


def test_a_campaign_proceeds_while_previews_are_worked_out(release: str, guard: Guard) -> None:
    cluster = guard.cluster
    guard.hold(lambda: cluster.add_osds(2))
    ended, answers = threading.Event(), []

    def preview() -> None:
        while not ended.is_set():
            answers.append(guard.ask('preview', change='drain', what=['osd.0']))

    threads = [threading.Thread(target=preview) for _ in range(2)]
    for thread in threads:
        thread.start()
    try:
        guard.do('start')
        assert guard.wait_phase('DONE', timeout=180)['released'] > 0
    finally:
        ended.set()
        for thread in threads:
            thread.join(60)
    good = [answer for answer in answers if answer[0] == 0]
    print('%s: %d of %d previews were answered' % (release, len(good), len(answers)))
    assert good and {retval for retval, _, _ in answers} <= {0, -11}
    assert not guard.tracebacks()
