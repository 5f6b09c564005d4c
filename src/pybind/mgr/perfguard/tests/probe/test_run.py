# SPDX-License-Identifier: LGPL-2.1-or-later
"""One run of a probe: with any failure, it leaves nothing behind and touches nothing of others."""
import json
from dataclasses import replace
from typing import Any, Dict, List, Mapping, Optional, Tuple

import pytest

from perfguard.cluster.types import OSD_ANSWER_SECONDS, Pool
from perfguard.errors import Refused
from perfguard.probe.child import KILLED_SECONDS
from perfguard.probe.orders import RunId, RunOrder
from perfguard.probe.resources import LEFT_CHECK, own_pool
from perfguard.probe.run import PROBE_PATIENCE_SECONDS
from perfguard.store import OWNER

from ..fakes.cluster import Crash, FakeView
from ..fakes.probe_cluster import (COMMANDS, FOREIGN_OBJECTS, Answer, FakeWorker, ProbeCluster,
                                   ProbeDriver, fake_children)

WORDS = {'rw': 'randread', 'bs': '4k', 'size': '64k', 'nrfiles': '2', 'runtime': '1'}
OWN = RunOrder(words=WORDS)
IN_POOL = RunOrder(words=WORDS, pool='rep')
SIZE_ONE = RunOrder(words=WORDS, replicas='1', consent=True, osd='0,1')
QUIET = replace(IN_POOL, hold_scrub=True)
ORDERS = {'own pool': OWN, "operator's pool": IN_POOL, 'one replica': SIZE_ONE,
          'without scrub': QUIET}


@pytest.fixture(autouse=True)
def workers(monkeypatch: Any) -> None:
    fake_children(monkeypatch)


def begun(order: RunOrder = IN_POOL, behaviour: str = 'good') -> ProbeDriver:
    driver = ProbeDriver()
    driver.cluster.behaviour = behaviour
    driver.give(order)
    return driver


def refused_errno(driver: ProbeDriver, order: Any) -> int:
    with pytest.raises(Refused) as refused:
        driver.give(order)
    return refused.value.errno


def test_a_pool_that_others_create_meanwhile_is_not_taken_for_its_own() -> None:
    driver, name = ProbeDriver(), own_pool(1)
    driver.cluster.before_command['osd pool create'] = lambda: driver.cluster.made.setdefault(
        name, Pool(99, name, False, 3, 2, 0, 8, 8, 8)) and None
    driver.give(OWN)
    driver.finish()
    assert driver.state(1) == 'failed' and name in driver.cluster.made
    assert 'already exists' in driver.loop.probed().record_of(1).messages[0]


def test_a_pool_whose_creation_was_sent_again_is_its_own() -> None:
    """As the mgr does when its connection to a mon breaks before the answer."""
    driver, create = ProbeDriver(), ProbeCluster.create

    def twice(cluster: ProbeCluster, command: Mapping[str, Any]) -> Any:
        create(cluster, command)
        return create(cluster, command)

    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(COMMANDS, 'osd pool create', twice)
        driver.give(OWN)
        driver.finish()
    assert driver.state(1) == 'done' and driver.cluster.is_untouched()


@pytest.mark.parametrize('answer', [
    (None, ''), (0, '[]'), (0, 'no JSON'), (0, '[{"pool_name": "perfguard-probe-1"}]'),
    (0, '[{"pool_name": "perfguard-probe-1", "options": {"target_size_bytes": 0}}]')])
def test_a_pool_that_may_be_of_others_is_not_removed(answer: Tuple[Optional[int], str]) -> None:
    driver, name = ProbeDriver(), own_pool(1)
    driver.cluster.before_command['osd pool create'] = lambda: driver.cluster.made.setdefault(
        name, Pool(99, name, False, 3, 2, 0, 8, 8, 8)) and None
    driver.cluster.reply['osd pool ls'] = Answer(*answer)
    driver.give(OWN)
    driver.finish()
    assert driver.state(1) == 'failed' and name in driver.cluster.made


@pytest.mark.parametrize('name', ORDERS)
def test_a_run_ends_well_and_leaves_nothing(name: str) -> None:
    driver = begun(ORDERS[name])
    driver.finish()
    assert driver.state(1) == 'done' and driver.cluster.is_untouched()
    assert driver.loop.probed().details(1)['jobs']
    assert not driver.cluster.progress_events
    keys = [command for command in driver.cluster.sent if command['prefix'].startswith('auth')]
    assert [command['prefix'] for command in keys] == ['auth get-or-create', 'auth rm']
    assert 'namespace=perfguard-probe' in keys[0]['caps'][3]


@pytest.mark.parametrize('name', ORDERS)
@pytest.mark.parametrize('lag', [0, 4])
def test_a_crash_before_any_step_leaves_nothing(name: str, lag: int) -> None:
    at = 0
    while _crashed(ORDERS[name], at, lag):
        at += 1
    assert at > 8


def _crashed(order: RunOrder, at: int, lag: int) -> bool:
    """Whether the mgr died before this write or command; with it goes its worker."""
    driver = ProbeDriver(ProbeCluster(lag=lag))
    cluster = driver.cluster
    cluster.fault.at = cluster.fault.count + at + 1
    try:
        driver.give(order)
        driver.finish()
        return False
    except Crash:
        cluster.kill_workers()
    driver.restart()
    driver.turn()
    driver.finish()
    where = '%s before step %d, after %s' % (order.kind, at,
                                             cluster.sent[-1:])
    assert cluster.is_untouched(), where
    assert {row['state'] for row in driver.listed.values()} <= {'failed', 'done'}, where
    driver.give(order)
    driver.finish()
    assert driver.state(max(driver.listed)) == 'done' and cluster.is_untouched(), where
    return True


@pytest.mark.parametrize('name', ORDERS)
def test_a_record_survives_a_crash_before_its_journal_is_removed(name: str) -> None:
    driver = begun(ORDERS[name])
    journal: Dict[str, str] = {}
    for _ in range(60):
        if driver.busy:
            journal = driver.kv.get_store_prefix('probing/')
            driver.turn()
    jobs = driver.loop.probed().details(1)['jobs']
    assert journal and jobs and not driver.busy
    driver.kv.data.update(journal)
    driver.restart()
    driver.turn()
    driver.finish()
    assert driver.state(1) == 'done' and driver.loop.probed().details(1)['jobs'] == jobs
    assert driver.cluster.is_untouched()
    driver.restart()
    driver.turn()
    assert not driver.busy and driver.state(1) == 'done'


@pytest.mark.parametrize('behaviour, state, why', [
    ('dies', 'failed', 'Killed'), ('missing', 'failed', 'cannot start'),
    ('refused', 'failed', 'no connection'), ('deaf', 'failed', 'was killed'),
    ('babbles', 'done', ''), ('leaves', 'done', '')])
@pytest.mark.parametrize('name', ORDERS)
def test_whatever_a_worker_does(name: str, behaviour: str, state: str, why: str) -> None:
    driver = begun(ORDERS[name], behaviour)
    driver.finish(300)
    assert driver.state(1) == state and why in driver.listed[1]['message']
    assert driver.cluster.is_untouched()


@pytest.mark.parametrize('name', ORDERS)
def test_no_worker_begins_that_the_mons_have_not_journalled(name: str) -> None:
    """Else the next mgr does not know that there are objects in the operator's pool."""
    driver = ProbeDriver()
    kv = driver.kv
    driver.cluster.before_command['auth get-or-create'] = lambda: setattr(kv, 'losing', True)
    driver.give(ORDERS[name])
    driver.run(8)
    assert not driver.cluster.workers
    kv.losing = False
    driver.finish()
    assert driver.state(1) == 'failed' and 'journal' in driver.listed[1]['message']
    assert driver.cluster.is_untouched()


@pytest.mark.parametrize('name', ORDERS)
def test_a_worker_that_is_killed_at_any_time_ends_the_run(name: str) -> None:
    """By the kernel, where memory runs out: before its first line, in a job, between two of them,
    and while a sweep removes its objects."""
    killed = 0
    for turns in range(12):
        driver = begun(ORDERS[name])
        driver.run(turns)
        working = [worker for worker in driver.cluster.workers if worker.status is None]
        if not working:
            continue
        killed += 1
        driver.cluster.kill_workers()
        driver.finish(20)
        assert driver.state(1) == 'failed'
        assert driver.listed[1]['message'] == 'the worker was killed by SIGKILL'
        assert driver.cluster.is_untouched() and not driver.loop.published.ledger.rows
    assert killed > 1


def test_a_sweep_that_is_killed_is_told() -> None:
    driver = begun(IN_POOL, 'dies')
    driver.run_until(lambda: len(driver.cluster.workers) == 2)
    for _ in range(3):
        driver.cluster.kill_workers()
        driver.turn()
    assert driver.listed[1]['message'] == 'cleaning: the worker was killed by SIGKILL'
    driver.finish()
    assert driver.state(1) == 'failed' and driver.cluster.is_untouched()


def test_a_worker_that_never_began_is_not_swept_after() -> None:
    driver = begun(IN_POOL, 'refused')
    driver.finish(10)
    assert len(driver.cluster.workers) == 1


@pytest.mark.parametrize('turns', range(8))
@pytest.mark.parametrize('name', ORDERS)
def test_cancelled_at_any_time(name: str, turns: int) -> None:
    driver = begun(ORDERS[name])
    driver.run(turns)
    try:
        driver.give(RunId('probe cancel', 1))
    except Refused:
        pass  # it has ended, or cleans up
    driver.finish()
    assert driver.state(1) in ('cancelled', 'done') and driver.cluster.is_untouched()


def test_a_deaf_worker_is_killed_soon_after_it_is_cancelled() -> None:
    driver = begun(RunOrder(words={**WORDS, 'runtime': '900'}, pool='rep'), 'deaf')
    driver.run(3)
    driver.give(RunId('probe cancel', 1))
    driver.finish(40)
    assert driver.state(1) == 'cancelled' and driver.cluster.is_untouched()


def test_a_worker_that_cannot_be_killed_does_not_keep_the_run_from_cleaning_up(
        monkeypatch: Any) -> None:
    """It waits for a file system of the host of the mgr. Scrubs would not be resumed meanwhile."""
    driver = begun(RunOrder(words={**WORDS, 'runtime': '900'}, pool='rep', hold_scrub=True), 'deaf')
    driver.run_until(lambda: bool(driver.cluster.workers))
    assert 'noscrub' in driver.cluster.flags
    kills: List[float] = []
    (worker,) = driver.cluster.workers
    monkeypatch.setattr(worker, 'kill', lambda: kills.append(driver.cluster.now))
    driver.run(3)
    driver.give(RunId('probe cancel', 1))
    driver.finish(80)
    assert driver.state(1) == 'cancelled' and driver.cluster.is_untouched()
    assert worker.status is None and kills[-1] - kills[0] >= KILLED_SECONDS


def test_what_cleans_up_cannot_be_cancelled() -> None:
    driver = begun(OWN)
    driver.cluster.reply['auth rm'] = Answer(None)
    driver.run_until(lambda: driver.state(1) == 'cleaning')
    assert refused_errno(driver, RunId('probe cancel', 1)) == 16
    driver.cluster.reply.clear()
    driver.finish()
    assert driver.state(1) == 'done'


def test_an_osd_that_leads_no_pg_of_the_own_pool(monkeypatch: Any) -> None:
    """As one in three of 1,000 OSDs, with 1,024 PGs."""
    monkeypatch.setattr(FakeView, 'primaries', lambda view, pool: {'7.0': 2, '7.1': 3})
    driver = begun(RunOrder(words=WORDS, osd='1,2'))
    driver.finish()
    assert driver.state(1) == 'failed' and driver.cluster.is_untouched()
    message = driver.listed[1]['message']
    assert 'osd.1: it is primary of none of' in message and message.endswith('(--pool)')


def test_trouble_ends_it_within_a_turn() -> None:
    driver = begun(behaviour='deaf')
    driver.run_until(lambda: driver.state(1) == 'running')
    driver.cluster.trouble = {'laggy': 2}
    driver.turn()
    assert driver.cluster.workers[0].cancelled
    driver.finish(60)
    assert driver.state(1) == 'aborted' and '2 PGs are laggy' in driver.listed[1]['message']


@pytest.mark.parametrize('order', [OWN, SIZE_ONE])
def test_the_balancer_may_move_pgs_of_the_probes_own_pool(order: RunOrder) -> None:
    """It does so in each new pool, and little moves: the run goes on, and its record says so."""
    driver = begun(order)
    driver.run_until(lambda: driver.state(1) == 'running')
    driver.cluster.moving = 2
    driver.finish()
    assert driver.state(1) == 'done' and driver.cluster.is_untouched()
    assert driver.loop.probed().record_of(1).conditions == ('recovery or backfill',)


@pytest.mark.parametrize('order', [OWN, SIZE_ONE])
@pytest.mark.parametrize('trouble', [{'backfilling': 1}, {'degraded': 1}])
def test_other_movement_ends_it(order: RunOrder, trouble: Dict[str, int]) -> None:
    driver = begun(order, 'deaf')
    driver.run_until(lambda: driver.state(1) == 'running')
    driver.cluster.moving, driver.cluster.trouble = 2, trouble
    driver.finish(60)
    assert driver.state(1) == 'aborted' and driver.cluster.is_untouched()


@pytest.mark.parametrize('order, seed, ends', [
    (SIZE_ONE, 1, True), (SIZE_ONE, 2, False), (OWN, 1, False)])
def test_a_pg_that_a_probed_osd_no_longer_leads_ends_it(order: RunOrder, seed: int,
                                                        ends: bool) -> None:
    """Objects that were placed on osd.0 and osd.1 are on another one; osd.2 is not probed."""
    driver = begun(order)
    driver.run_until(lambda: driver.state(1) == 'running')
    pool, = driver.cluster.made.values()
    driver.cluster.moving, driver.cluster.balanced = 1, {'%d.%x' % (pool.id, seed): 5}
    driver.finish(60)
    assert driver.state(1) == ('aborted' if ends else 'done') and driver.cluster.is_untouched()
    assert ('is no longer led by osd.%d' % seed in driver.listed[1]['message']) == ends


def lower_affinity(cluster: ProbeCluster, osd: int) -> None:
    """The next OSD of each PG becomes its primary; erasure-coded pools keep their shards."""
    cluster.affinity[osd] = 0.0
    cluster.epoch += 1
    for pgid, pg in cluster.pg.items():
        if pgid.startswith('1.') and pg.up[0] == osd:
            pg.up = pg.data = (*pg.up[1:], osd)


@pytest.mark.parametrize('during_campaign', [False, True])
@pytest.mark.parametrize('osd, ends', [(1, True), (4, False)])
def test_a_primary_that_moves_is_noticed_in_an_operators_pool(osd: int, ends: bool,
                                                              during_campaign: bool) -> None:
    """Neither an upmap nor pg_temp shows a primary affinity."""
    driver = begun(RunOrder(words=WORDS, pool='rep', osd='1', during_campaign=during_campaign))
    driver.run_until(lambda: driver.state(1) == 'running')
    lower_affinity(driver.cluster, osd)
    driver.finish(60)
    assert driver.state(1) == ('aborted' if ends else 'done') and driver.cluster.is_untouched()
    assert ('is no longer led by osd.1' in driver.listed[1]['message']) == ends


def test_primaries_are_read_again_beside_the_loop_and_only_after_changes() -> None:
    driver = begun(RunOrder(words={**WORDS, 'runtime': '60'}, pool='rep', osd='1'), 'deaf')
    driver.run_until(lambda: driver.state(1) == 'running')
    driver.run(3)
    read = driver.tools.submitted
    driver.cluster.epoch += 1
    driver.run(3)
    assert driver.tools.submitted == read
    driver.tools.late = True
    for osd in (4, 7):
        lower_affinity(driver.cluster, osd)
        driver.run(3)
    assert driver.tools.submitted == read + 1, 'one at a time'
    lower_affinity(driver.cluster, 1)
    driver.tools.work()
    driver.run(2)
    assert driver.tools.submitted == read + 2 and 'stopping' not in driver.listed[1]['message']
    driver.tools.work()
    driver.finish(60)
    assert driver.state(1) == 'aborted'


def test_primaries_that_cannot_be_read_end_the_run_and_not_the_turn(monkeypatch: Any) -> None:
    driver = begun(RunOrder(words={**WORDS, 'runtime': '60'}, pool='rep', osd='1'), 'deaf')
    driver.run_until(lambda: driver.state(1) == 'running')
    driver.run(3)

    def fails(view: FakeView, pool_id: int) -> Any:
        raise RuntimeError('no such PG')

    monkeypatch.setattr(FakeView, 'primaries', fails)
    lower_affinity(driver.cluster, 4)
    driver.finish(60)
    assert driver.state(1) == 'failed' and driver.cluster.is_untouched()
    assert "RuntimeError('no such PG')" in driver.listed[1]['message']


def test_the_first_shard_of_an_erasure_coded_pg_need_not_lead_it(monkeypatch: Any) -> None:
    primaries = {'2.0': 3, '2.4': 3, '2.8': 3}
    monkeypatch.setattr(FakeView, 'primaries', lambda view, pool: primaries)
    driver = begun(RunOrder(words={**WORDS, 'runtime': '60'}, pool='ec', osd='3'), 'deaf')
    driver.run_until(lambda: driver.state(1) == 'running')
    driver.cluster.add_upmap('2.0', 4, 7)
    driver.run(5)
    assert driver.state(1) == 'running' and 'stopping' not in driver.listed[1]['message']
    primaries['2.4'] = 2
    driver.cluster.affinity[3] = 0.0
    driver.cluster.epoch += 1
    driver.finish(60)
    assert 'PG 2.4 of the pool is no longer led by osd.3' in driver.listed[1]['message']


def test_pgs_that_split_end_it() -> None:
    driver = begun(RunOrder(words=WORDS, pool='rep', osd='1'))
    driver.run_until(lambda: driver.state(1) == 'running')
    driver.cluster.pgs = 24
    driver.cluster.epoch += 1
    driver.finish(60)
    assert driver.state(1) == 'aborted'
    assert driver.listed[1]['message'] == 'pg_num of pool rep has changed'


def test_who_leads_which_pg_is_worked_out_beside_the_loop() -> None:
    """It takes some 20 us a PG."""
    driver = ProbeDriver()
    driver.tools.late = True
    driver.give(OWN)
    driver.run_until(lambda: bool(driver.tools.jobs))
    driver.run(3)
    assert driver.state(1) == 'preparing' and not driver.cluster.workers
    driver.tools.work()
    driver.turn()
    assert driver.cluster.workers
    driver.finish()


def test_trouble_while_it_prepares() -> None:
    driver = ProbeDriver()
    driver.loop.requests.submit(OWN)
    driver.cluster.before_command['auth get-or-create'] = lambda: driver.cluster.trouble.update(
        degraded=1)
    driver.turn()
    driver.finish()
    assert driver.state(1) == 'aborted' and not driver.cluster.workers
    assert driver.cluster.is_untouched()


@pytest.mark.parametrize('prefix', ['osd pool create', 'osd pool set', 'auth get-or-create',
                                    'osd pool application enable'])
@pytest.mark.parametrize('retval', [-22, None])
@pytest.mark.parametrize('lag', [0, 5])
def test_a_command_that_fails(prefix: str, retval: int, lag: int) -> None:
    driver = ProbeDriver(ProbeCluster(lag=lag))
    driver.cluster.reply[prefix] = Answer(retval, '', 'no')
    driver.give(OWN)
    driver.finish()
    assert driver.state(1) == 'failed' and driver.listed[1]['message'] == prefix + ': no'
    assert driver.cluster.is_untouched()


@pytest.mark.parametrize('prefix, reply', [
    ('auth rm', Answer(None)), ('osd pool rm', Answer(-1, '', 'not now')),
    ('config rm', Answer(-110, '', 'no quorum'))])
def test_what_cannot_be_removed_is_told_and_tried_again(prefix: str, reply: Answer) -> None:
    driver = begun(OWN)
    driver.cluster.reply[prefix] = reply
    driver.run(200)
    assert driver.state(1) == 'cleaning' and LEFT_CHECK in driver.cluster.checks
    assert prefix in driver.cluster.checks[LEFT_CHECK]['detail'][0]
    assert prefix in driver.listed[1]['message']
    tries = sum(command['prefix'] == prefix for command in driver.cluster.sent)
    assert 3 < tries < 20
    status = driver.loop.status()
    assert status['probe']['state'] == 'cleaning'
    assert any('probe 1 of' in reason for reason in status['reasons'])
    # It waits for the mons, perhaps for days; the watch must learn meanwhile.
    assert driver.busy and not driver.affects_latency
    assert refused_errno(driver, IN_POOL) == 16
    driver.cluster.reply.clear()
    driver.run(70)
    driver.finish()
    assert driver.cluster.is_untouched() and driver.state(1) == 'done'
    assert LEFT_CHECK not in driver.cluster.checks
    assert driver.loop.status()['probe'] is None


class LateCluster(ProbeCluster):
    """The mons do not answer the first command of a kind, and execute it half a minute later."""
    late = ''
    waiting: Any = None
    due = 0.0

    def run(self, commands: Any) -> Any:
        if commands[0]['prefix'] == self.late:
            self.late, self.waiting, self.mons_silent = '', commands[0], True
            self.due = self.now + 30.0
            return [Answer(None, '', 'no answer from the mons')]
        return super().run(commands)

    def tick(self, seconds: float = 1.0) -> None:
        super().tick(seconds)
        if self.mons_silent and self.now >= self.due:
            super().run([self.waiting])
            self.mons_silent = False


@pytest.mark.parametrize('prefix, order', [
    ('osd pool create', OWN), ('auth get-or-create', OWN), ('auth get-or-create', IN_POOL),
    ('config set', OWN)])
def test_what_the_mons_execute_late_is_removed(prefix: str, order: RunOrder) -> None:
    cluster = LateCluster()
    cluster.late = prefix
    driver = ProbeDriver(cluster)
    driver.give(order)
    driver.run(2)
    driver.finish(300)
    assert cluster.waiting is not None and not cluster.mons_silent
    assert cluster.is_untouched() and LEFT_CHECK not in cluster.checks


def test_what_the_mons_execute_late_for_an_earlier_mgr_is_removed() -> None:
    driver = begun(OWN)
    driver.run_until(lambda: driver.state(1) == 'running')
    driver.restart()
    driver.run_until(lambda: not driver.cluster.made)
    driver.run(5)
    driver.cluster.create({'pool': 'perfguard-probe-1', 'pg_num': 8})
    driver.cluster.users['client.perfguard-probe-1'] = 'K'
    driver.finish()
    assert driver.cluster.is_untouched()


@pytest.mark.parametrize('before', [None, 'false', 'true'])
def test_options_of_the_mons_are_given_back(before: Any) -> None:
    cluster = ProbeCluster()
    if before is not None:
        cluster.mon_config['mon_allow_pool_delete'] = before
    cluster.mon_before = dict(cluster.mon_config)
    driver = ProbeDriver(cluster)
    driver.give(OWN)
    driver.finish()
    assert driver.state(1) == 'done' and cluster.is_untouched()


def test_what_the_operator_sets_meanwhile_stays() -> None:
    driver = begun(OWN)
    cluster = driver.cluster

    def forbid() -> None:
        cluster.mon_config['mon_allow_pool_delete'] = 'false'

    cluster.before_command['auth rm'] = forbid
    driver.finish()
    assert cluster.mon_config['mon_allow_pool_delete'] == 'false'
    assert not cluster.made and driver.state(1) == 'done'


@pytest.mark.parametrize('retval', [-1, -16, -110])
def test_pools_may_be_deleted_for_one_attempt_at_a_time(retval: int) -> None:
    """On EPERM only; the option is given back in any case."""
    driver = begun(OWN)
    cluster = driver.cluster
    cluster.reply['osd pool rm'] = Answer(retval, '', 'no')
    allowed: List[bool] = []
    for _ in range(120):
        driver.turn()
        allowed.append('mon_allow_pool_delete' in cluster.mon_config)
    assert driver.state(1) == 'cleaning' and LEFT_CHECK in cluster.checks
    assert any(allowed) == (retval == -1)
    # A turn each time, and some ten attempts, ever more rarely.
    assert not any(now and then for now, then in zip(allowed, allowed[1:]))
    assert sum(allowed) < 12
    cluster.reply.clear()
    driver.run(70)
    driver.finish()
    assert cluster.is_untouched() and driver.state(1) == 'done'


@pytest.mark.parametrize('allowed', [True, False])
def test_an_abandoned_clean_up_gives_the_permission_to_delete_pools_back(allowed: bool) -> None:
    """The last attempt to remove the pool may ask for it."""
    driver = begun(OWN)
    cluster = driver.cluster
    cluster.reply['osd pool rm'] = Answer(-1, '', 'no')
    driver.run_until(lambda: 'mon_allow_pool_delete' in cluster.mon_config, 120)
    driver.run_until(lambda: ('mon_allow_pool_delete' in cluster.mon_config) == allowed)
    driver.give(RunId('probe cancel --force', 1))
    driver.turn()
    assert 'mon_allow_pool_delete' not in cluster.mon_config and not driver.busy


def test_scrubs_pause_during_the_run_only() -> None:
    driver = begun(QUIET, 'deaf')
    cluster = driver.cluster
    driver.run_until(lambda: driver.state(1) == 'running')
    assert {'noscrub', 'nodeep-scrub', 'nosnaptrim'} <= cluster.flags
    assert {row.since for row in driver.loop.probing.held} == {
        driver.loop.probed().record_of(1).created}
    held = {row.what: row.restore for row in driver.loop.probing.held}
    assert held['flag nodeep-scrub'] == 'ceph osd unset nodeep-scrub'
    assert 'flag noscrub' not in held, 'an operator has set it'
    driver.give(RunId('probe cancel', 1))
    driver.finish()
    assert cluster.flags == {'noscrub'} and not driver.loop.probing.held


def test_a_flag_that_an_operator_unsets_and_sets_again_stays() -> None:
    driver = begun(QUIET, 'deaf')
    flags = driver.cluster.flags
    driver.run_until(lambda: driver.state(1) == 'running')
    driver.run(3)
    flags.discard('nosnaptrim')
    driver.run(3)
    flags.add('nosnaptrim')
    driver.give(RunId('probe cancel', 1))
    driver.finish()
    assert flags == {'noscrub', 'nosnaptrim'}


@pytest.mark.parametrize('failover', [False, True])
def test_a_flag_that_an_operator_orders_meanwhile_stays(failover: bool) -> None:
    """The order changes nothing in the OSDMap. One from before the run, of which it was missed that
    the flag was cleared, does not count."""
    driver = ProbeDriver()
    driver.cluster.behaviour = 'deaf'
    driver.cluster.flags_set_by_others_.add('nosnaptrim')
    driver.give(QUIET)
    driver.run_until(lambda: driver.state(1) == 'running')
    driver.cluster.order_flag('nodeep-scrub')
    if failover:
        driver.restart()
    else:
        driver.give(RunId('probe cancel', 1))
    driver.run_until(lambda: not driver.busy, 400)
    assert driver.cluster.flags == {'noscrub', 'nodeep-scrub'}


def test_a_journal_without_earlier_orders_gives_all_flags_back() -> None:
    """That of an earlier version: an order may be older than the run."""
    driver = begun(QUIET, 'deaf')
    driver.run_until(lambda: driver.state(1) == 'running')
    driver.cluster.order_flag('nodeep-scrub')
    head = json.loads(driver.kv.data['probing/head'])
    assert head['document']['site'].pop('ordered_before') == []
    driver.kv.data['probing/head'] = json.dumps(head)
    driver.restart()
    driver.run_until(lambda: not driver.busy, 400)
    assert driver.cluster.flags == {'noscrub'}


def test_flags_are_given_back_before_what_takes_long() -> None:
    driver = begun(replace(QUIET, pool=None))
    cluster = driver.cluster
    cluster.reply['osd pool rm'] = Answer(-1, '', 'no')
    driver.run_until(lambda: driver.state(1) == 'cleaning')
    driver.run(5)
    assert cluster.flags == {'noscrub'} and driver.busy
    del cluster.reply['osd pool rm']
    driver.run_until(lambda: not driver.busy, 300)


def test_mons_that_refuse_a_flag_end_the_run() -> None:
    driver = ProbeDriver()
    driver.cluster.reply['osd set'] = Answer(-1, '', 'EPERM')
    driver.give(QUIET)
    driver.run_until(lambda: not driver.busy, 120)
    assert driver.state(1) == 'failed' and 'osd set' in driver.listed[1]['message']
    assert driver.cluster.is_untouched()


class NoQuorum(ProbeCluster):
    """While the mons have none, they keep commands, and answer them when they have one again."""
    quorum = True

    def __post_init__(self) -> None:
        super().__post_init__()
        #: Commands that were sent at once, and waited for.
        self.waits: List[Any] = []

    def run(self, commands: Any) -> Any:
        if self.quorum:
            return super().run(commands)
        self.mons_silent = True
        self.waits.append(commands)
        return [Answer(None, '', 'no answer from the mons')] * len(commands)

    def restore(self) -> None:
        self.quorum, self.mons_silent = True, False
        for commands in self.waits:
            super().run(commands)


def test_mons_without_a_quorum_are_asked_once_to_unset_flags() -> None:
    """Each command that they do not answer blocks the loop for a minute."""
    driver = ProbeDriver(NoQuorum())
    cluster: Any = driver.cluster
    cluster.behaviour = 'deaf'
    driver.give(QUIET)
    driver.run_until(lambda: driver.state(1) == 'running')
    cluster.quorum = False
    driver.give(RunId('probe cancel', 1))
    driver.run(300)
    assert driver.state(1) == 'cleaning' and LEFT_CHECK in cluster.checks
    assert [[command['key'] for command in commands] for commands in cluster.waits] == [
        ['nodeep-scrub', 'nosnaptrim']]
    cluster.restore()
    driver.finish(200)
    assert cluster.flags == {'noscrub'} and driver.state(1) == 'cancelled'


def test_size_one_is_allowed_for_a_moment_only() -> None:
    driver = begun(SIZE_ONE, 'deaf')
    driver.run_until(lambda: driver.state(1) == 'running')
    assert 'mon_allow_pool_size_one' not in driver.cluster.mon_config
    assert {'mon_allow_pool_size_one'} <= {
        command.get('name') for command in driver.cluster.sent}


def test_a_pool_of_its_name_is_left_alone() -> None:
    driver = ProbeDriver()
    cluster = driver.cluster
    cluster.made['perfguard-probe-1'] = Pool(9, 'perfguard-probe-1', False, 3, 2, 0, 8, 8, 8)
    cluster.mon_config['mon_allow_pool_delete'] = 'true'
    driver.give(OWN)
    driver.finish()
    assert driver.state(1) == 'failed' and 'no probe created' in driver.listed[1]['message']
    assert list(cluster.made) == ['perfguard-probe-1'] and set(cluster.users) == {'client.admin'}


def test_a_pool_that_goes_meanwhile() -> None:
    driver = begun(OWN, 'deaf')
    driver.run_until(lambda: driver.state(1) == 'running')
    driver.cluster.made.clear()
    driver.cluster.objects = {each for each in driver.cluster.objects if each[0] == 'rep'}
    driver.cluster.workers[0].status = 1
    driver.finish()
    assert driver.state(1) == 'failed' and driver.cluster.is_untouched()


@pytest.mark.parametrize('name', ORDERS)
def test_the_module_is_stopped(name: str) -> None:
    driver = begun(ORDERS[name])
    driver.run_until(lambda: driver.state(1) == 'running')
    driver.loop.close()
    assert driver.cluster.is_untouched()
    driver.restart()
    driver.turn()
    driver.finish()
    assert driver.state(1) == 'failed' and driver.cluster.is_untouched()


def test_an_orphan_is_swept_until_no_new_object_appears() -> None:
    driver = begun(behaviour='deaf')
    cluster = driver.cluster
    driver.run_until(lambda: cluster.objects != FOREIGN_OBJECTS)
    late = next(iter(cluster.objects - FOREIGN_OBJECTS))
    cluster.kill_workers()
    cluster.behaviour = 'good'
    driver.restart()
    driver.run(8)
    assert late not in cluster.objects and driver.busy
    cluster.objects.add(late)  # the worker, on a host that does not know yet
    driver.finish()
    assert cluster.is_untouched() and driver.state(1) == 'failed'


def counters(reads: Any) -> Dict[str, Any]:
    """Each read takes 3 ms."""
    return {'osd': {'op_r': reads, 'op_w': 1, 'op_r_latency': {
        'avgcount': reads, 'sum': reads * 0.003, 'avgtime': 0.003}}}


class Counting(ProbeCluster):
    """OSD 0 counts reads, OSD 1 is started anew, OSD 2 owes an answer from before."""
    asked_at = 0

    def ask(self, topic: str, osds: Any, command: Any,
            patience_seconds: float = OSD_ANSWER_SECONDS) -> None:
        self.asked_at += 1
        assert 2 not in osds

    def asked(self, topic: str) -> Any:
        return {2}

    def answers(self, topic: str) -> Dict[int, Any]:
        return {0: counters(100 * self.asked_at), 1: counters(-self.asked_at), 2: counters(5)}


@pytest.mark.parametrize('chosen', ['0,1,2', None])
def test_what_the_osds_counted(chosen: Optional[str]) -> None:
    """Also those of a pool."""
    driver = ProbeDriver(Counting())
    driver.give(RunOrder(words=WORDS, pool='rep', osd=chosen))
    driver.finish()
    assert driver.state(1) == 'done'
    assert driver.loop.probed().details(1)['counted'] == [
        {'osd': 0, 'reads': 100, 'writes': 0, 'read_ns': 300_000_000, 'write_ns': 0}]


def test_a_stop_condition_ends_a_probe_while_counters_are_awaited() -> None:
    driver = ProbeDriver(ProbeCluster())
    driver.give(IN_POOL)
    driver.run(1)
    driver.cluster.trouble = {'laggy': 1}
    driver.run(int(PROBE_PATIENCE_SECONDS) - 2)
    assert driver.state(1) == 'aborted' and not driver.cluster.workers


def test_the_worker_gets_the_key_on_its_standard_input_only() -> None:
    driver = begun()
    driver.finish()
    worker: FakeWorker = driver.cluster.workers[0]
    assert worker.request is not None and worker.request.key == 'K'
    assert not any('K' == value for value in driver.kv.data.values())
    assert '"K"' not in ''.join(driver.kv.data.values())


def test_a_worker_hears_of_its_mgr_while_that_is_the_active_one() -> None:
    """It ends without: a replaced mgr must not let a probe load the cluster until its limit."""
    driver = begun(replace(IN_POOL, words={**WORDS, 'runtime': '200'}), 'deaf')
    driver.run_until(lambda: driver.state(1) == 'running')
    worker: FakeWorker = driver.cluster.workers[0]
    assert worker.request is not None and worker.request.silence_seconds >= 120.0
    driver.run(31)
    assert worker.alive == 1
    driver.run(31)
    assert worker.alive == 2
    # Another mgr has become active; this one has nothing to write, and so does not notice.
    driver.kv.data[OWNER] = '4099 1.0'
    driver.run(31)
    assert worker.alive == 2
