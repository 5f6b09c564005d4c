# SPDX-License-Identifier: LGPL-2.1-or-later
"""Commands for scripts, by the ceph tool itself: what it prints, and its exit codes."""
import errno
import json
import subprocess
import threading
import time
from typing import Any

import pytest

from qa.lib.guard import Guard
from qa.lib.joins import wait_reported

pytestmark = [pytest.mark.releases('pacific', 'reef', 'tentacle', quick='tentacle'),
              pytest.mark.shares('campaign')]


def run(guard: Guard, *words: str, period: str = '0.5',
        timeout: float = 240) -> 'subprocess.CompletedProcess[str]':
    return guard.cluster.ceph('--period', period, 'perfguard', *words, check=False,
                              timeout=timeout)


def test_a_script_follows_campaigns(guard: Guard) -> None:
    cluster = guard.cluster
    wait_reported(guard)
    done = run(guard, 'campaign', 'prepare')
    assert done.returncode == 0, done.stderr
    done = run(guard, 'campaign', 'watch', '--until', 'PREPARED')
    assert done.returncode == 0 and 'PREPARED' in done.stderr, done
    cluster.add_osds(2)
    guard.wait_remapped()
    assert run(guard, 'campaign', 'pin').returncode == 0
    assert run(guard, 'campaign', 'watch', '--until', 'pinned').returncode == 0
    assert run(guard, 'campaign', 'start').returncode == 0

    # A pause of a few seconds ends without a command.
    guard.wait_moving(at_least=0)
    done = run(guard, 'campaign', 'pause', '4s')
    assert done.returncode == 0, done.stderr
    begin, status = time.time(), guard.status()
    assert status['paused'] and 0 < status['paused_until'] - begin < 6
    guard.wait_phase('HOLDING')
    cluster.wait(lambda: not guard.status()['paused'], 30, 'the end of the pause')
    assert time.time() - begin > 3

    done = run(guard, 'campaign', 'set', 'latency_factor=2')
    assert done.returncode == 0, done.stderr
    assert guard.status()['settings'] == {'latency_factor': '2'}
    assert run(guard, 'campaign', 'set', 'target=crush').returncode == errno.EINVAL
    cluster.mgr_fail()
    guard.wait_ready()
    assert guard.status()['settings'] == {'latency_factor': '2'}

    done = run(guard, 'campaign', 'watch')
    assert done.returncode == 0, done
    assert 'DONE' in done.stderr and 'campaign %d: ' % (guard.former + 1) in done.stdout, done
    assert not guard.tracebacks()


@pytest.mark.releases('pacific', 'reef', 'tentacle', quick=())
def test_an_abort_is_an_error(guard: Guard) -> None:
    cluster = guard.cluster
    wait_reported(guard)
    added = cluster.add_osds(2, weight=0.0)
    wait_reported(guard)
    cluster.mon('osd set', key='nobackfill')
    hosts = sorted({cluster.osd_hosts()[osd] for osd in added})
    try:
        def begun() -> Any:
            answer = run(guard, 'expand', hosts[0], 'osd.%d' % added[-1], '--weight', '1',
                         '--format', 'json')
            # Until the OSDs of the host have reported that they hold no PG.
            assert answer.returncode in (0, errno.EAGAIN), answer.stderr
            return answer if answer.returncode == 0 else None

        done = cluster.wait(begun, 30, 'the expansion to begin')
        assert set(json.loads(done.stdout)['weights']) == {'osd.%d' % osd for osd in added}
        guard.wait_phase('HOLDING')
        threading.Timer(3.0, lambda: guard.do('abort')).start()
        done = run(guard, 'campaign', 'watch')
        assert done.returncode == errno.ETIMEDOUT and 'ABORTED' in done.stderr, done
    finally:
        cluster.mon('osd unset', key='nobackfill')
    assert not guard.tracebacks()
