# SPDX-License-Identifier: LGPL-2.1-or-later
"""What a probe leaves when something dies, hangs or is taken away under it: nothing.

The tests share one cluster. A pool of the operator's, which is probed as well, holds objects that
look as if they were a probe's, and a client writes to it all the time.
"""
import errno
import json
import os
import random
import re
import signal
import time
from dataclasses import dataclass
from typing import Any, Callable, Dict, Iterator, List, Tuple

import pytest

from perfguard.probe.run import SILENCE_SECONDS
from perfguard.probe.types import PROBE_PREFIX
from perfguard.probe.worker.work import CLEANING_SECONDS
from qa.cluster import Cluster
from qa.cluster.patience import patient
from qa.lib.auditor import Foreign, Placement, placement
from qa.lib.clusters import Failed, Lender
from qa.lib.faults import LAGGY_CONF, laggy
from qa.lib.guard import CALM, FAST_CONF, Guard, Json
from qa.lib.probes import (ENDED, PATIENT_CLIENTS, Probes, objects, put_lookalikes,
                           workers)
from qa.lib.tiers import RELEASES
from qa.lib.writer import Writer

ClusterFactory = Callable[..., Cluster]

POOL = 'rbd'
#: A pool of the operator's, and one of the run's own.
TARGETS: Tuple[Dict[str, str], ...] = ({'pool': POOL}, {})
NAMES = ('operator', 'own')
#: Of what differs little between the two, one is for the nightly tier.
ONE = [pytest.param(TARGETS[0], id='operator'),
       pytest.param(TARGETS[1], id='own', marks=pytest.mark.releases('pacific', quick=()))]
OTHER = [pytest.param(TARGETS[0], id='operator',
                      marks=pytest.mark.releases('pacific', quick=())),
         pytest.param(TARGETS[1], id='own')]
SHORT = {'profile': 'latency', 'size': '4m', 'nrfiles': '16', 'runtime': '1', 'ramp_time': '0',
         'repeat': '1'}
LONG = {'rw': 'randwrite', 'bs': '4k', 'iodepth': '8', 'size': '4m', 'nrfiles': '16',
        'ramp_time': '0', 'repeat': '1'}
#: What is killed, one after the other, each time at another instant; each third or fourth time
#: while a run cleans up that was cancelled at that instant.
VICTIMS = ('worker', 'mgr', 'osd')
#: How often each of them, by tier.
ROUNDS = {'quick': 2, 'nightly': 7}
SEED = 20
#: So often, at other instants, if what is to be killed was not there.
TRIES = 10
CANCEL_SHARE = 0.3
#: What a cancelled run takes to stop and clean up, about.
CANCEL_SECONDS = 0.6
#: For what has to be over in a moment, on a machine that has other things to do as well.
PATIENCE_SECONDS = 120.0
#: From the instant at which the mons show a stop condition until the run is asked to stop:
#: a stats period and some turns of the loop.
ABORT_SECONDS = 2.5
#: Over its limit a worker may take two seconds, and the loop a turn.
LATE_SECONDS = patient(3.0)


@dataclass(frozen=True)
class TroubleTraces:
    """What a probe must leave as it was."""
    foreign: Foreign
    placement: Placement
    workers: Tuple[int, ...]
    objects: Dict[Tuple[str, str], bytes]


class Trouble(Probes):
    """Probes on a cluster that has its mgr and OSDs killed: no command is sure of an answer."""
    settle_seconds = PATIENCE_SECONDS

    def __init__(self, guard: Guard) -> None:
        super().__init__(guard)
        self.before = self.seen()

    def seen(self) -> TroubleTraces:
        return TroubleTraces(self.guard.foreign(), placement(self.cluster), workers(self.cluster),
                             objects(self.cluster, POOL))

    def row_now(self, run: int) -> Json:
        """The row of `probe ls`; {} if no mgr answers."""
        retval, out, _ = self.guard.ask('probe ls')
        rows = json.loads(out)['probes'] if retval == 0 else []
        return next((row for row in rows if row['id'] == run), {})

    def until(self, run: int, states: Tuple[str, ...], text: str = '') -> Json:
        """Until the run is in one of the states and says the text."""
        rows: List[Json] = []

        def there() -> bool:
            rows.append(self.row_now(run))
            return rows[-1].get('state') in states and text in rows[-1]['message']

        self._wait(there, 'probe %d to be %s' % (run, '/'.join(states)), rows)
        return rows[-1]

    def _wait(self, there: Callable[[], bool], what: str, seen: List[Any]) -> None:
        try:
            self.cluster.wait(there, PATIENCE_SECONDS, what)
        except Exception as problem:
            raise AssertionError('%s; %s' % (problem, seen[-1:])) from problem

    def goes_on(self, run: int) -> bool:
        """Whether it measures and is not about to stop."""
        row = self.row_now(run)
        return bool(row['state'] == 'running' and not row['message'].startswith('stopping: '))

    def running(self, seconds: float, **args: Any) -> int:
        """A run in the midst of its measurement; returns its id."""
        run = self.begin(**{**LONG, 'runtime': '%g' % seconds, **args})
        self.until(run, ('running',), ', run')
        return run

    def ended(self, run: int) -> Json:
        """Wait for the end of a run, after which nothing of it must be left."""
        row = self.until(run, ENDED)
        self.cluster.wait_clean(60)
        assert self.seen() == self.before
        # The mons hear of progress every stats period.
        self.cluster.wait(lambda: not self.progress(run), 15, 'the end of the progress event')
        return row


def remove_pool(cluster: Cluster, name: str) -> None:
    def removed() -> bool:
        cluster.mon('osd pool delete', pool=name, pool2=name, yes_i_really_really_mean_it=True)
        return True

    option = {'who': 'mon', 'name': 'mon_allow_pool_delete'}
    cluster.mon('config set', value='true', **option)
    try:
        cluster.wait(removed, 30, 'the mons to delete a pool')
    finally:
        cluster.mon('config rm', **option)


def shared_cluster(make: ClusterFactory, release: str, conf: Dict[str, Any]) -> Trouble:
    cluster = make(release, osds=4, hosts=4, mgrs=2, conf={
        **conf, 'global': {**conf.get('global', {}), **CALM},
        # As operators have it: pools are not deleted, so that the module has to set it.
        'mon': {**conf['mon'], 'mon_allow_pool_delete': None}})
    cluster.pool_create(POOL, 16, size=3)
    cluster.fill(POOL, 300, 4096)
    put_lookalikes(cluster, POOL)
    guard = Guard(cluster, PATIENT_CLIENTS)
    # The mgr creates a pool for the probe once it needs it.
    cluster.wait(lambda: len(cluster.osd_dump()['pools']) > 1, 60, "the mgr's own pool")
    cluster.wait_clean(60)
    return Trouble(guard)


@pytest.fixture(scope='module')
def lender(cluster_factory: ClusterFactory, release: str) -> Iterator[Lender[Trouble]]:
    with Lender(lambda: shared_cluster(cluster_factory, release, FAST_CONF)) as lender:
        yield lender


@pytest.fixture
def probes(lender: Lender[Trouble], failed: Failed) -> Iterator[Trouble]:
    with lender.lend(failed) as probes:
        with Writer(probes.cluster, POOL):
            yield probes
        assert not probes.guard.tracebacks()


# ---- killed

@pytest.mark.timeout(1800)
@pytest.mark.releases(*RELEASES)
def test_killed_at_random_instants(probes: Trouble, tier: str) -> None:
    instants = random.Random(SEED)
    lives = [life(probes, target) for target in TARGETS]
    print('a run lasts %.1f s in a pool of the operator, %.1f s in its own' % tuple(lives))
    for number, victim in enumerate(VICTIMS * ROUNDS[tier]):
        which = number % 2
        assert any(killed(probes, victim, which, instants.uniform(0.0, lives[which]), instants)
                   for _ in range(TRIES)), 'there was never a %s to kill' % victim
    for target in TARGETS:
        probes.ended(probes.begin(**SHORT, **target))


def life(probes: Trouble, target: Dict[str, str]) -> float:
    """Seconds from the answer to the command until the module says that the run has ended."""
    run = probes.begin(**SHORT, **target)
    begin = time.monotonic()
    assert probes.until(run, ENDED)['state'] == 'done'
    seconds = time.monotonic() - begin
    probes.ended(run)
    return seconds


def killed(probes: Trouble, victim: str, which: int, instant: float,
           instants: random.Random) -> bool:
    """Whether there was something to kill at that instant or after it."""
    run = probes.begin(**SHORT, **TARGETS[which])
    time.sleep(instant)
    if instants.random() < CANCEL_SHARE:
        probes.guard.ask('probe cancel', run=run)
        time.sleep(instants.uniform(0.0, CANCEL_SECONDS))
    before = probes.row_now(run)
    hit = {'worker': kill_worker, 'mgr': kill_mgr, 'osd': kill_osd}[victim](probes, run, instants)
    row = probes.ended(run)
    print('%-6s killed after %4.2f s, %s pool: %s %r, then %s %r' % (
        victim if hit else 'none', instant, NAMES[which], before['state'], before['message'],
        row['state'], row['message']))
    return hit


def kill_worker(probes: Trouble, run: int, instants: random.Random) -> bool:
    """Also a sweep's, a moment later, if there is one."""
    hit = False
    deadline = time.monotonic() + PATIENCE_SECONDS
    for pause in (0.0, instants.uniform(0.3, 2.0)):
        time.sleep(pause)
        while not workers(probes.cluster):
            if hit or probes.row_now(run).get('state') in ENDED:
                return hit
            assert time.monotonic() < deadline, 'neither a worker nor an end of probe %d' % run
            time.sleep(0.01)
        for pid in workers(probes.cluster):
            os.kill(pid, signal.SIGKILL)
        hit = True
    return hit


def kill_mgr(probes: Trouble, run: int, instants: random.Random) -> bool:
    probes.cluster.restart_mgr()
    probes.guard.wait_ready()
    return True


def kill_osd(probes: Trouble, run: int, instants: random.Random) -> bool:
    victim = 'osd.%d' % instants.choice(probes.cluster.osds())
    probes.cluster.kill(victim)
    try:
        time.sleep(instants.uniform(0.5, 3.0))
    finally:
        probes.cluster.start(victim)
    return True


@pytest.mark.parametrize('kill', [kill_worker, kill_mgr])
@pytest.mark.releases(*RELEASES)
def test_killed_while_an_image_exists(probes: Trouble, kill: Callable[..., bool]) -> None:
    run = probes.begin(ioengine='rbd', runtime='20', **LONG)
    pool = PROBE_PREFIX + str(run)
    probes.cluster.wait(lambda: probes.row_now(run).get('state') == 'running'
                        and ('', 'rbd_directory') in objects(probes.cluster, pool),
                        PATIENCE_SECONDS, 'the image')
    assert kill(probes, run, random.Random(SEED))
    assert probes.ended(run)['state'] == 'failed'


@pytest.mark.releases('pacific')
def test_mgr_killed_while_pools_may_be_deleted(probes: Trouble) -> None:
    for _ in range(5):
        run = probes.running(5)
        probes.guard.ask('probe cancel', run=run)
        if may_delete(probes, run):
            probes.cluster.restart_mgr()
            probes.guard.wait_ready()
            # It may have ended before the mgr stopped.
            probes.ended(run)
            return
        probes.ended(run)
    pytest.fail('the option was never seen')


def may_delete(probes: Trouble, run: int) -> bool:
    """Whether the run has the mons delete pools, sooner or later."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while probes.row_now(run).get('state') not in ENDED:
        if any(name == 'mon_allow_pool_delete' for _, name, _ in probes.guard.foreign().config):
            return True
        assert time.monotonic() < deadline, 'no end of probe %d' % run
    return False


# ---- hung

@pytest.mark.releases('pacific')
@pytest.mark.parametrize('target', ONE)
def test_osd_hangs(probes: Trouble, target: Dict[str, str]) -> None:
    limit = probes.guard.get('probe run', dry_run=True, **LONG, runtime='3',
                             **target)['limit_seconds']
    run = probes.running(3, **target)
    pid, = workers(probes.cluster)
    with laggy(probes.cluster, 1):
        probes.cluster.wait(lambda: pid not in workers(probes.cluster), limit + 30, 'the end')
        seconds = time.time() - probes.row_now(run)['started']
        print('ended after %.1f s, limit %.1f s' % (seconds, limit))
        assert seconds < limit + LATE_SECONDS
        if target:
            # Objects of an OSD that does not answer cannot be removed.
            probes.until(run, ('cleaning',), 'cleaning: ')
            time.sleep(8)
            waiting = probes.row_now(run)
            print(waiting['message'])
            assert waiting['state'] == 'cleaning' and 'not removed yet' in waiting['message']
            probes.refused('probe run', errno.EBUSY, 'is active', **SHORT)
        else:
            probes.until(run, ENDED)
    row = probes.ended(run)
    print(row['state'], row['message'])
    assert row['state'] in ('failed', 'aborted') and row['message']
    assert probes.ended(probes.begin(**SHORT, **target))['state'] == 'done'


@pytest.mark.releases('pacific')
def test_worker_hangs(probes: Trouble) -> None:
    run = probes.running(3, pool=POOL)
    pid, = workers(probes.cluster)
    os.kill(pid, signal.SIGSTOP)
    row = probes.ended(run)
    assert row['state'] == 'failed' and 'did not end in time' in row['message'], row


@pytest.mark.releases('pacific', quick=())
def test_mgr_hangs(probes: Trouble) -> None:
    """The next mgr cannot end its worker, which ends when it hears nothing of its own mgr."""
    cluster = probes.cluster
    run = probes.running(300, pool=POOL)
    pid, = workers(cluster)
    hung = 'mgr.' + cluster.active_mgr()
    cluster.stop(hung)
    begin = time.monotonic()
    try:
        cluster.mgr_fail()
        probes.guard.wait_ready()
        cluster.wait(lambda: pid not in workers(cluster), SILENCE_SECONDS + 30, 'the worker to end')
        assert time.monotonic() - begin < SILENCE_SECONDS + CLEANING_SECONDS + LATE_SECONDS
        row = probes.until(run, ENDED)
        assert row['state'] == 'failed', row
        assert not workers(cluster)
    finally:
        cluster.cont(hung)
    probes.ended(run)


# ---- stop conditions

def aborted(probes: Trouble, run: int, shows: Callable[[], bool], text: str) -> None:
    """The run is stopped soon after the condition shows, and no other may begin.

    `text`: a regular expression that the reason matches.
    """
    cluster = probes.cluster
    cluster.wait(lambda: shows() or not probes.goes_on(run), 60, text)
    begin = time.monotonic()
    cluster.wait(lambda: not probes.goes_on(run), 60, 'the end')
    seconds = time.monotonic() - begin
    print('%s: stopped after %.1f s' % (text, seconds))
    assert seconds < ABORT_SECONDS
    # PGs that have just become inactive peer before they are degraded, which is no trouble.
    cluster.wait(lambda: any(re.search(text, refusal) for refusal in probes.guard.get(
        'probe run', dry_run=True, **SHORT)['refusals']), 10, 'the refusal: ' + text)
    retval, _, error = probes.guard.ask('probe run', **SHORT)
    assert retval == -errno.EBUSY and re.search(text + '|is active', error), error


def has_check(cluster: Cluster, code: str) -> bool:
    return code in cluster.mon('health')['checks']


def has_state(cluster: Cluster, state: str) -> bool:
    pgmap = cluster.mon('status')['pgmap']
    return any(state in each['state_name'] for each in pgmap['pgs_by_state'])


def ended_aborted(probes: Trouble, run: int, text: str) -> None:
    row = probes.ended(run)
    assert row['state'] == 'aborted' and re.search(text, row['message']), row
    assert probes.ended(probes.begin(**SHORT, pool=POOL))['state'] == 'done'


@pytest.mark.releases('pacific')
def test_pgs_become_degraded(probes: Trouble) -> None:
    cluster = probes.cluster
    run = probes.running(60, pool=POOL)
    # Those that the OSD leads are stale, and so inactive, until others have peered.
    text = r'PGs? (are|is) (degraded|inactive)'
    cluster.kill('osd.2')
    try:
        aborted(probes, run, lambda: has_state(cluster, 'degraded'), text)
    finally:
        cluster.start('osd.2')
    ended_aborted(probes, run, text)


@pytest.mark.releases('pacific', quick=())
def test_osds_nearly_full(probes: Trouble) -> None:
    cluster = probes.cluster
    run = probes.running(60, pool=POOL)
    cluster.mon('osd set-nearfull-ratio', ratio=0.000001)
    try:
        aborted(probes, run, lambda: has_check(cluster, 'OSD_NEARFULL'), 'nearly full')
    finally:
        cluster.mon('osd set-nearfull-ratio', ratio=0.85)
    ended_aborted(probes, run, 'nearly full')


@pytest.mark.releases('pacific', quick=())
def test_slow_operations(probes: Trouble) -> None:
    cluster = probes.cluster
    run = probes.running(60, pool=POOL)
    cluster.ceph('tell', 'osd.*', 'config', 'set', 'osd_op_complaint_time', '1')
    try:
        with laggy(cluster, 3):
            aborted(probes, run, lambda: has_check(cluster, 'SLOW_OPS'), 'slow operation')
    finally:
        cluster.ceph('tell', 'osd.*', 'config', 'set', 'osd_op_complaint_time', '30')
    ended_aborted(probes, run, 'slow operation')


#: What of it the mgr hears of first is chance.
MOVING = 'backfill|recovering'


@pytest.mark.releases('pacific', quick=())
def test_backfill_begins(probes: Trouble) -> None:
    cluster = probes.cluster
    run = probes.running(60, pool=POOL)
    cluster.ceph('tell', 'osd.*', 'config', 'set', 'osd_recovery_sleep', '0.3')
    cluster.mon('osd crush reweight', name='osd.0', weight=0.3)
    try:
        aborted(probes, run, lambda: has_state(cluster, 'backfill'), MOVING)
    finally:
        cluster.mon('osd crush reweight', name='osd.0', weight=1.0)
        cluster.ceph('tell', 'osd.*', 'config', 'set', 'osd_recovery_sleep', '0')
    ended_aborted(probes, run, MOVING)


@pytest.mark.releases('pacific', quick=())
def test_laggy_pgs(make_cluster: ClusterFactory, release: str) -> None:
    probes = shared_cluster(make_cluster, release, LAGGY_CONF)
    cluster = probes.cluster
    # A probe whose operations all wait finds no PG whose lease is over.
    cluster.pool_create('busy', 16, size=3)
    cluster.wait_clean(60)
    probes.before = probes.seen()
    load = cluster.load('busy', rate=200, read_fraction=0.8, runtime=300)
    run = probes.running(60, pool=POOL)
    with Writer(cluster, POOL), laggy(cluster, 1):
        aborted(probes, run, lambda: has_state(cluster, 'laggy'), 'laggy')
    load.stop()
    ended_aborted(probes, run, 'laggy')
    assert not probes.guard.tracebacks()


# ---- taken away

@pytest.mark.releases('pacific')
@pytest.mark.parametrize('target', OTHER)
def test_module_disabled_and_enabled(probes: Trouble, target: Dict[str, str]) -> None:
    cluster = probes.cluster
    run = probes.running(30, **target)
    cluster.mon('mgr module disable', module='perfguard')
    try:
        cluster.wait(lambda: not workers(cluster), 30, 'the end of the worker')
    finally:
        cluster.mon('mgr module enable', module='perfguard')
    probes.guard.wait_ready()
    assert probes.ended(run)['state'] == 'failed'
    assert probes.ended(probes.begin(**SHORT, **target))['state'] == 'done'


@pytest.mark.releases('pacific')
def test_pool_deleted(probes: Trouble) -> None:
    cluster = probes.cluster
    cluster.pool_create('doomed', 8, size=3)
    run = probes.running(30, pool='doomed')
    remove_pool(cluster, 'doomed')
    row = probes.ended(run)
    assert row['state'] in ('failed', 'aborted') and row['message'], row


@pytest.mark.releases('pacific')
@pytest.mark.parametrize('target', OTHER)
def test_pool_renamed(probes: Trouble, target: Dict[str, str]) -> None:
    cluster = probes.cluster
    run = probes.running(30, **target)
    name = target.get('pool', '%s%d' % (PROBE_PREFIX, run))
    cluster.mon('osd pool rename', srcpool=name, destpool='renamed')
    try:
        probes.guard.ask('probe cancel', run=run)
        row = probes.until(run, ENDED)
        assert row['state'] in ('failed', 'cancelled'), row
    finally:
        if target:
            cluster.mon('osd pool rename', srcpool='renamed', destpool=name)
    probes.ended(run)


@pytest.mark.releases('pacific')
@pytest.mark.parametrize('target', OTHER)
def test_own_pool_or_user_removed(probes: Trouble, target: Dict[str, str]) -> None:
    """The worker dies as well: a new one has to remove its objects, and needs a user."""
    cluster = probes.cluster
    run = probes.running(30, **target)
    name = '%s%d' % (PROBE_PREFIX, run)
    cluster.mon('auth rm', entity='client.' + name)
    if not target:
        remove_pool(cluster, name)
    for pid in workers(cluster):
        os.kill(pid, signal.SIGKILL)
    row = probes.ended(run)
    assert row['state'] in ('failed', 'aborted') and row['message'], row


@pytest.mark.releases('pacific')
@pytest.mark.parametrize('cancelled', (
    False, pytest.param(True, marks=pytest.mark.releases('pacific', quick=()))))
def test_pool_with_the_name_of_the_probe_pool(probes: Trouble, cancelled: bool) -> None:
    """It was there before the run, so it is there after it."""
    cluster = probes.cluster
    name = '%s%d' % (PROBE_PREFIX, max(probes.ids()) + 1)
    cluster.pool_create(name, 8, size=3)
    cluster.fill(name, 20, 4096)
    cluster.wait_clean(60)
    before = objects(cluster, name)
    run = probes.begin(**SHORT)
    assert name == '%s%d' % (PROBE_PREFIX, run)
    if cancelled:
        probes.guard.ask('probe cancel', run=run)
    row = probes.until(run, ENDED)
    assert row['state'] in ('failed', 'cancelled') and row['message'], row
    assert objects(cluster, name) == before
    remove_pool(cluster, name)
    probes.ended(run)
    assert probes.ended(probes.begin(**SHORT))['state'] == 'done'


@pytest.mark.parametrize('fails_over', [False, True])
def test_scrubs_pause_during_the_run_only(probes: Trouble, fails_over: bool) -> None:
    """`ended` compares the flags with those from before; the operator's stays set meanwhile."""
    cluster = probes.cluster
    held = {'nodeep-scrub', 'nosnaptrim'}
    cluster.mon('osd set', key='noscrub')
    try:
        run = probes.running(60, pool=POOL, hold_scrub=True)
        assert held | {'noscrub'} <= set(cluster.osd_dump()['flags'].split(','))
        rows = {row['what'] for row in probes.guard.get('held')['held']}
        assert {'flag nodeep-scrub', 'flag nosnaptrim'} <= rows and 'flag noscrub' not in rows
        if fails_over:
            cluster.mgr_fail()
        else:
            probes.guard.get('probe cancel', run=run)
        probes.until(run, ENDED)
        flags = set(cluster.osd_dump()['flags'].split(','))
        assert 'noscrub' in flags and not held & flags
    finally:
        cluster.mon('osd unset', key='noscrub')
    probes.ended(run)


@pytest.mark.releases('pacific', quick=())
def test_two_failovers_while_cleaning(probes: Trouble) -> None:
    cluster = probes.cluster
    run = probes.running(30, pool=POOL)
    with laggy(cluster, 0):
        for pid in workers(cluster):
            os.kill(pid, signal.SIGKILL)
        probes.until(run, ('cleaning',))
        for _ in range(2):
            cluster.mgr_fail()
            probes.until(run, ('cleaning',))
            cluster.wait(lambda: cluster.mon('mgr dump')['standbys'], 60, 'a standby')
    assert probes.ended(run)['state'] == 'failed'
    assert probes.ended(probes.begin(**SHORT, pool=POOL))['state'] == 'done'
