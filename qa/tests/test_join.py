# SPDX-License-Identifier: LGPL-2.1-or-later
"""Joining, draining and other changes of CRUSH without remapping one PG, on every release."""
import base64
import subprocess
import time
from pathlib import Path
from typing import Any, Dict, List, Tuple

import pytest

from qa.cluster import Cluster
from qa.cluster.patience import patient
from qa.lib.guard import Guard
from qa.lib.joins import (SLOW_PEERING, crush_weights, join, let_go, order, refused,
                          safe_to_destroy, wait_reported)

pytestmark = [pytest.mark.releases('pacific', 'reef', 'tentacle', quick='tentacle'),
              pytest.mark.shares('join')]
#: Phases whose failovers other tests of the quick tier show.
nightly = pytest.mark.releases('pacific', quick=())

#: Seconds with and around a burst in which clients are listened to.
LISTEN_SECONDS = 8.0


@pytest.mark.alone
@pytest.mark.releases('pacific', 'reef', 'tentacle', quick=())
def test_expand_under_load(release: str, guard: Guard) -> None:
    cluster = guard.cluster
    guard.configure(SLOW_PEERING)
    before = guard.foreign()
    wait_reported(guard)
    refused(guard, 'expand', 'no new OSD of CRUSH weight 0', weight='1')
    added = cluster.add_osds(4, weight=0.0)
    wait_reported(guard)
    mistakes: List[Tuple[Dict[str, Any], str]] = [
        ({'what': ['osd.99']}, 'osd.99 does not exist'),
        ({'what': ['nowhere']}, "no OSD, host or rack 'nowhere'"),
        ({'what': ['osd.0']}, 'already has CRUSH weight'),
        ({'weight': '0'}, 'must be between'), ({'weight': '-1'}, 'between'),
        ({'weight': 'inf'}, 'between'), ({'weight': 'much'}, 'not a number')]
    for args, text in mistakes:
        refused(guard, 'expand', text, **args)
    loads = [cluster.load(pool, rate=100, runtime=300) for pool in ('rep', 'ec')]
    try:
        time.sleep(5)
        quiet = time.time()
        time.sleep(LISTEN_SECONDS)
        preview = order(guard, 'expand', weight='1.0', dry_run=True)
        assert guard.phase() == 'IDLE' and set(crush_weights(cluster)) >= set(added)
        begin = time.time()
        answer = join(guard, 'expand', weight='1.0')
        time.sleep(max(0.0, begin + LISTEN_SECONDS + 3 - time.time()))
        for load, pool in zip(loads, ('rep', 'ec')):
            calm, around = (load.percentiles(t, t + LISTEN_SECONDS) for t in (quiet, begin))
            print('%s: %s: p50 %.1f -> %.1f ms, p99 %.1f -> %.1f ms, max %.0f -> %.0f ms' % (
                release, pool, calm['p50'], around['p50'], calm['p99'], around['p99'],
                calm['max'], around['max']))
            assert around['errors'] == 0 and around['max'] < max(1000.0, 3 * calm['max'])
    finally:
        for load in loads:
            load.stop()
    assert {osd: crush_weights(cluster)[osd] for osd in added} == dict.fromkeys(added, 1.0)
    assert (answer['pgs'], answer['bytes'] > 0) == (preview['pgs'], True)
    refused(guard, 'drain', 'abort it first', what=['osd.0'])
    let_go(guard)
    assert guard.upmaps() == {} and guard.foreign() == before
    assert {osd for pg in cluster.pgs() for osd in pg['acting']} >= set(added)
    kept = {key.split('/')[0] for key in guard.store_keys()}
    assert not kept & {'campaign', 'crushmap', 'pins'}
    assert not guard.tracebacks()


def test_drain_and_undrain(release: str, guard: Guard) -> None:
    cluster = guard.cluster
    guard.configure(SLOW_PEERING)
    before, weights = guard.foreign(), crush_weights(cluster)
    host, other = sorted(set(cluster.osd_hosts().values()))[:2]
    drained = [osd for osd, at in cluster.osd_hosts().items() if at == host]
    wait_reported(guard)
    refused(guard, 'drain', "no OSD, host or rack 'nohost'", what=['nohost'])
    refused(guard, 'drain', 'needs 3 failure domains of type host, but only 2 would be left',
            what=[host, other])
    refused(guard, 'undrain', 'not drained by perfguard', what=[host])

    join(guard, 'drain', what=[host])
    let_go(guard)
    cluster.wait(lambda: all(safe_to_destroy(cluster, osd) for osd in drained), 30,
                 'OSDs that are safe to destroy')
    assert not {osd for pg in cluster.pgs() for osd in pg['up'] + pg['acting']} & set(drained)
    refused(guard, 'drain', 'already drained', what=[host])

    join(guard, 'undrain', what=['osd.%d' % osd for osd in drained])
    let_go(guard)
    assert crush_weights(cluster) == weights and guard.upmaps() == {}
    assert {osd for pg in cluster.pgs() for osd in pg['acting']} >= set(drained)
    assert guard.foreign() == before and not guard.tracebacks()


@pytest.mark.releases('pacific')
def test_apply(release: str, guard: Guard) -> None:
    cluster = guard.cluster
    guard.configure(SLOW_PEERING)
    before, weights = guard.foreign(), crush_weights(cluster)
    wait_reported(guard)
    text = crush_text(cluster)
    lacking = ''.join(line for line in text.splitlines(keepends=True) if 'osd.7' not in line)
    for given, what in (('', 'with -i'), ('nonsense', 'not a CRUSH map'),
                        (lacking, 'lacks osd.7'), (text[:text.index('rule ')], 'lacks rule 0')):
        refused(guard, 'crushmap', what, given=given)
    # osd.1 counts twice from now on; compiled, since its text is the exception.
    heavy = crush_tool(cluster, '-i', 'crush', '--reweight-item', 'osd.1', '2', '-o', 'heavy')
    join(guard, 'crushmap', given=base64.b64encode(heavy).decode())
    let_go(guard)
    assert crush_weights(cluster) == {**weights, 1: 2.0} and guard.upmaps() == {}
    join(guard, 'crushmap', given=text)
    let_go(guard)
    assert crush_weights(cluster) == weights and guard.upmaps() == {}
    assert guard.foreign() == before and not guard.tracebacks()


def crush_text(cluster: Cluster) -> str:
    """The CRUSH map as text; what is in force is left in the file "crush" for crush_tool."""
    cluster.ceph('osd', 'getcrushmap', '-o', str(cluster.directory / 'crush'))
    return crush_tool(cluster, '-d', 'crush', '-o', 'text').decode()


def crush_tool(cluster: Cluster, *options: str) -> bytes:
    """What the release's crushtool, run in the cluster's directory, makes of its last option."""
    argv = [str(cluster.directory / option) if option in ('crush', 'heavy', 'text') else option
            for option in options]
    subprocess.run(cluster.release.argv(['crushtool', *argv], cluster.directory), check=True,
                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=patient(60))
    return Path(argv[-1]).read_bytes()


@pytest.mark.releases('pacific', 'reef', 'tentacle')
def test_auto_expand(release: str, guard: Guard) -> None:
    cluster = guard.cluster
    guard.configure({'auto_expand': 'true', 'loop_interval': '10'})
    before = guard.foreign()
    time.sleep(3)
    added = cluster.add_osds(2, in_crush=False)
    begin = time.monotonic()
    cluster.place(added)
    cluster.wait(lambda: 'norebalance' in cluster.osd_dump()['flags_set'], 10, 'norebalance')
    print('%s: norebalance %.1f s after the weights' % (release, time.monotonic() - begin))
    assert guard.wait_phase('DONE', timeout=180)['trigger'] == 'auto'
    cluster.wait_clean(30)
    assert guard.upmaps() == {} and guard.foreign() == before
    assert set(added) <= {osd for pg in cluster.pgs() for osd in pg['acting']}
    # An OSD that goes out is none of its business.
    cluster.mon('osd out', ids=['0'])
    time.sleep(5)
    assert guard.status()['id'] == guard.former + 1 and guard.status()['phase'] == 'DONE'
    assert not guard.tracebacks()


@pytest.mark.releases('pacific')
@pytest.mark.parametrize('phase', [pytest.param('IDLE', marks=nightly), 'PINNING',
                                   pytest.param('RELEASING', marks=nightly)])
def test_mgr_failover_in_the_middle(guard: Guard, phase: str) -> None:
    """In any phase, nothing is lost and nothing is left behind. IDLE: it has only begun."""
    cluster = guard.cluster
    guard.configure(SLOW_PEERING)
    before = guard.foreign()
    added = cluster.add_osds(2, weight=0.0)
    cluster.wait_clean(30)
    wait_reported(guard)
    order(guard, 'expand', weight='1.0')
    guard.wait_phase(phase, timeout=30)
    if phase == 'PINNING':
        # The burst leaves a second or two after the phase begins, and takes up to three.
        time.sleep(1.5)
    cluster.mgr_fail()
    guard.wait_ready()
    assert guard.wait_phase('DONE', timeout=240)['id'] == guard.former + 1
    cluster.wait_clean(60)
    assert {crush_weights(cluster)[osd] for osd in added} == {1.0}
    assert guard.upmaps() == {} and guard.foreign() == before
    assert not guard.tracebacks()
