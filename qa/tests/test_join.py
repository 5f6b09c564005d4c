# SPDX-License-Identifier: LGPL-2.1-or-later
"""Joining, draining and other changes of CRUSH without remapping one PG, on every release."""
import base64
import json
import subprocess
import threading
import time
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Dict, List, Optional, Set, Tuple, Type

import pytest

from qa.cluster import Cluster
from qa.lib.clusters import ClusterFactory, small_cluster
from qa.lib.guard import Guard

#: So that what is left of the join's own hold of the mons' proposal interval shows.
SLOW_PEERING = {'fast_peering': 'off'}

pytestmark = pytest.mark.releases('pacific', 'reef', 'tentacle', quick='tentacle')

#: The mons' own proposal interval: a ceph.conf would override what perfguard sets for the burst.
CONF = {'mgr': {'mgr_stats_period': '1'}}
#: Seconds with and around a burst in which clients are listened to.
LISTEN_SECONDS = 12.0


class Witness:
    """Looks at all PGs, again and again, for what must not happen meanwhile."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look)
        self._problem: Optional[BaseException] = None
        self.states: Set[str] = set()
        self.looks = 0

    def __enter__(self) -> 'Witness':
        self._thread.start()
        return self

    def __exit__(self, kind: Optional[Type[BaseException]], error: Optional[BaseException],
                 trace: Optional[TracebackType]) -> None:
        self._over.set()
        self._thread.join(60)
        if error is None:
            assert not self._thread.is_alive(), 'the witness hangs'
            assert self._problem is None and self.looks > 0, repr(self._problem)

    def _look(self) -> None:
        try:
            while not self._over.wait(0.1):
                self.states |= {pg['state'] for pg in self._cluster.pgs()}
                self.looks += 1
        except BaseException as problem:
            self._problem = problem


def served_by(cluster: Cluster) -> Dict[str, Tuple[Any, ...]]:
    return {pg['pgid']: (tuple(pg['acting']), pg['acting_primary']) for pg in cluster.pgs()}


def crush_weights(cluster: Cluster) -> Dict[int, float]:
    return {node['id']: node['crush_weight'] for node in cluster.mon('osd tree')['nodes']
            if node['id'] >= 0}


def wait_reported(guard: Guard) -> None:
    """Until the mgr, which may just have become active, knows that all PGs are clean."""
    def clean() -> bool:
        signals = guard.get('status')['signals']
        return bool(signals['active_clean_pgs'] == signals['pgs'] > 0)

    guard.cluster.wait(clean, 60, 'all PGs reported clean')


def ask(guard: Guard, command: str, given: str = '', **args: Any) -> Tuple[int, str, str]:
    """A command of perfguard's, with `given` as its input file."""
    return guard.cluster.command('mgr', {'prefix': 'perfguard ' + command, 'format': 'json',
                                         **args}, given.encode())


def order(guard: Guard, command: str, **args: Any) -> Dict[str, Any]:
    retval, out, error = ask(guard, command, **args)
    assert retval == 0, (command, args, error)
    found: Dict[str, Any] = json.loads(out)
    return found


def refused(guard: Guard, command: str, text: str, **args: Any) -> None:
    retval, out, error = ask(guard, command, **args)
    assert retval < 0 and not out and text in error, (command, args, error)


def changed_since(cluster: Cluster, begin: float) -> List[str]:
    """PGs that have changed their state since then, however shortly."""
    cluster.flush_pg_stats()
    retval, out, error = cluster.mgr('pg dump', dumpcontents=['pgs'], format='json')
    assert retval == 0, error
    dump = json.loads(out)
    stats = dump.get('pg_map', dump)['pg_stats']
    return [pg['pgid'] for pg in stats
            if datetime.strptime(pg['last_change'], '%Y-%m-%dT%H:%M:%S.%f%z').timestamp() > begin]


def landing(cluster: Cluster, since: int) -> Tuple[int, Set[int], int]:
    """Epochs in which CRUSH changed, in which upmaps changed, and PGs remapped in any of them."""
    dumps = [cluster.mon('osd dump', epoch=epoch) for epoch in range(since, cluster.epoch() + 1)]
    crush, upmaps = set(), set()
    for before, after in zip(dumps, dumps[1:]):
        if before['crush_version'] != after['crush_version']:
            crush.add(after['epoch'])
        if (before['pg_upmap_items'], before['pg_upmap']) != (
                after['pg_upmap_items'], after['pg_upmap']):
            upmaps.add(after['epoch'])
    return len(crush), crush | upmaps, max(len(dump['pg_temp']) for dump in dumps)


def join(guard: Guard, command: str, **args: Any) -> Dict[str, Any]:
    """Give an order, and hold it to its promise as long as nothing is released.

    Nothing is: somebody else's nobackfill is a stop condition.
    """
    cluster = guard.cluster
    cluster.wait_clean(60)
    wait_reported(guard)
    cluster.mon('osd set', key='nobackfill')
    time.sleep(2)  # what has just become clean has changed its state
    before, epoch, begin = served_by(cluster), cluster.epoch(), time.time()
    with Witness(cluster) as witness:
        answer = order(guard, command, **args)
        guard.wait_phase('HOLDING', timeout=60)
    seconds = time.time() - begin
    crush_epochs, epochs, remapped = landing(cluster, epoch)
    dump = cluster.osd_dump()
    print('%s: %s: %d PGs pinned, %d by vector, in %d epoch(s), %.1f s; at most %d remapped; '
          'states %s in %d looks; %d PGs changed their state' % (
              cluster.release.name, command, answer['pgs'], len(dump['pg_upmap']), len(epochs),
              seconds, remapped, sorted(witness.states), witness.looks,
              len(changed_since(cluster, begin))))
    assert answer['one_epoch'] and answer['pgs'] > 0 and not answer['unpinnable']
    assert (crush_epochs, len(epochs), remapped) == (1, 1, 0)
    assert witness.states == {'active+clean'} and changed_since(cluster, begin) == []
    assert served_by(cluster) == before
    assert guard.status()['pinned'] == answer['pgs'] and not guard.status()['unpinnable']
    assert 'paxos_propose_interval' not in [e['name'] for e in cluster.mon('config dump')]
    return answer


def let_go(guard: Guard) -> None:
    guard.cluster.mon('osd unset', key='nobackfill')
    done = guard.wait_phase('DONE', timeout=180)
    assert done['released'] == done['total'] and not done['pinned'] and not done['unpinnable']
    guard.cluster.wait_clean(60)


def test_expand_under_load(release: str, make_cluster: ClusterFactory) -> None:
    cluster = small_cluster(make_cluster, release, CONF)
    guard = Guard(cluster, SLOW_PEERING)
    before = guard.foreign()
    wait_reported(guard)
    refused(guard, 'expand', 'nothing to give the weight to', weight='1')
    added = cluster.add_osds(4, weight=0.0)
    wait_reported(guard)
    for args, text in ((dict(osds='99'), 'osd.99 does not exist'),
                       (dict(hosts='nowhere'), "no OSD, host or rack 'nowhere'"),
                       (dict(osds='0'), 'has a CRUSH weight already'),
                       (dict(weight='0'), 'must be between'), (dict(weight='-1'), 'between'),
                       (dict(weight='inf'), 'between'), (dict(weight='much'), 'not a number')):
        refused(guard, 'expand', text, **args)
    loads = [cluster.load(pool, rate=100, runtime=300) for pool in ('rep', 'ec')]
    try:
        time.sleep(5)
        quiet = time.time()
        time.sleep(LISTEN_SECONDS)
        preview = order(guard, 'expand', weight='1.0', dry_run=True)
        assert guard.status()['phase'] == 'IDLE' and set(crush_weights(cluster)) >= set(added)
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
    refused(guard, 'drain', 'finish or abort it first', what=['osd.0'])
    let_go(guard)
    assert guard.upmaps() == {} and guard.foreign() == before
    assert {osd for pg in cluster.pgs() for osd in pg['acting']} >= set(added)
    kept = {key.split('/')[0] for key in guard.store_keys()}
    assert not kept & {'campaign', 'crushmap', 'pins'}
    assert not guard.tracebacks()


@pytest.mark.releases('pacific', 'reef', 'tentacle', quick='reef')
def test_drain_and_undrain(release: str, make_cluster: ClusterFactory) -> None:
    cluster = small_cluster(make_cluster, release, CONF)
    guard = Guard(cluster, SLOW_PEERING)
    before, weights = guard.foreign(), crush_weights(cluster)
    host, other = sorted(set(cluster.osd_hosts().values()))[:2]
    drained = [osd for osd, at in cluster.osd_hosts().items() if at == host]
    wait_reported(guard)
    refused(guard, 'drain', "no OSD, host or rack 'nohost'", what=['nohost'])
    refused(guard, 'drain', 'needs 3 failure domains (host), and 2 would be left',
            what=[host, other])
    refused(guard, 'undrain', 'has not drained', what=[host])

    join(guard, 'drain', what=[host])
    let_go(guard)
    cluster.wait(lambda: all(safe_to_destroy(cluster, osd) for osd in drained), 30,
                 'OSDs that are safe to destroy')
    assert not {osd for pg in cluster.pgs() for osd in pg['up'] + pg['acting']} & set(drained)
    refused(guard, 'drain', 'drained already', what=[host])

    join(guard, 'undrain', what=['osd.%d' % osd for osd in drained])
    let_go(guard)
    assert crush_weights(cluster) == weights and guard.upmaps() == {}
    assert {osd for pg in cluster.pgs() for osd in pg['acting']} >= set(drained)
    assert guard.foreign() == before and not guard.tracebacks()


@pytest.mark.releases('pacific')
def test_apply(release: str, make_cluster: ClusterFactory) -> None:
    cluster = small_cluster(make_cluster, release, CONF)
    guard = Guard(cluster, SLOW_PEERING)
    before, weights = guard.foreign(), crush_weights(cluster)
    wait_reported(guard)
    text = crush_text(cluster)
    lacking = ''.join(line for line in text.splitlines(keepends=True) if 'osd.7' not in line)
    for given, what in (('', 'with -i'), ('nonsense', 'not a CRUSH map'),
                        (lacking, 'lacks osd.7'), (text[:text.index('rule ')], 'lacks rule 0')):
        refused(guard, 'rebalance apply', what, given=given)
    # osd.1 counts twice from now on; compiled, since its text is the exception.
    heavy = crush_tool(cluster, '-i', 'crush', '--reweight-item', 'osd.1', '2', '-o', 'heavy')
    join(guard, 'rebalance apply', given=base64.b64encode(heavy).decode())
    let_go(guard)
    assert crush_weights(cluster) == {**weights, 1: 2.0} and guard.upmaps() == {}
    join(guard, 'rebalance apply', given=text)
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
                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=60)
    return Path(argv[-1]).read_bytes()


def safe_to_destroy(cluster: Cluster, osd: int) -> bool:
    retval, _, _ = cluster.mgr('osd safe-to-destroy', ids=[str(osd)])
    return retval == 0


@pytest.mark.releases('pacific', 'tentacle')
def test_auto_expand(release: str, make_cluster: ClusterFactory) -> None:
    cluster = small_cluster(make_cluster, release, CONF)
    guard = Guard(cluster, {'auto_expand': 'true', 'loop_interval': '10'})
    before = guard.foreign()
    time.sleep(3)
    cluster.add_osds(2, in_crush=False)
    begin = time.monotonic()
    cluster.place([8, 9])
    cluster.wait(lambda: 'norebalance' in cluster.osd_dump()['flags_set'], 10, 'norebalance')
    print('%s: norebalance %.1f s after the weights' % (release, time.monotonic() - begin))
    assert guard.wait_phase('DONE', timeout=180)['trigger'] == 'auto'
    cluster.wait_clean(30)
    assert guard.upmaps() == {} and guard.foreign() == before
    assert {8, 9} <= {osd for pg in cluster.pgs() for osd in pg['acting']}
    # An OSD that goes out is none of its business.
    cluster.mon('osd out', ids=['0'])
    time.sleep(5)
    assert guard.status()['id'] == 1 and guard.status()['phase'] == 'DONE'
    assert not guard.tracebacks()


@pytest.mark.releases('pacific')
@pytest.mark.parametrize('phase', ['IDLE', 'PINNING', 'RELEASING'])
def test_mgr_failover_in_the_middle(release: str, make_cluster: ClusterFactory,
                                    phase: str) -> None:
    """Whatever the mgr was about: nothing is lost, nothing is left. IDLE: it has only begun."""
    cluster = small_cluster(make_cluster, release, CONF, mgrs=2)
    guard = Guard(cluster, SLOW_PEERING)
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
    assert guard.wait_phase('DONE', timeout=240)['id'] == 1
    cluster.wait_clean(60)
    assert {crush_weights(cluster)[osd] for osd in added} == {1.0}
    assert guard.upmaps() == {} and guard.foreign() == before
    assert not guard.tracebacks()
