# SPDX-License-Identifier: LGPL-2.1-or-later
"""The mitigation in the loop: with campaigns, through crashes, by command, with damage."""
import errno
from dataclasses import replace
from typing import Any, Dict, List, Optional, Tuple

import pytest

from perfguard.watch.osds import OsdReads
from ...mitigation.types import Policy, Revert
from perfguard import tables
from perfguard.cluster.crush import CrushRules
from perfguard.cluster.types import PgCounts, PgReads, Readings, Reply
from perfguard.errors import Refused
from perfguard.rebalance.campaign import NO_CAMPAIGN
from perfguard.mitigation.controller import CONFIG_SECONDS
from perfguard.mitigation.report import listing_json
from perfguard.store import Store
from perfguard.watch.slow_osds import SlowOsds

from ..fakes.cluster import Crash, FakeCluster
from ..fakes.driver import OPTIONS, Driver, codes
from ..test_journal import records, two
from ..watch.test_controller import PERIOD, Watched

SECONDS = 5.0
ACT = replace(OPTIONS, mitigation_mode='act', mitigation_seconds=SECONDS)
FOUND = {('osd', 'osd_max_backfills'): '4', ('osd/class:hdd', 'osd_max_backfills'): '8'}
SLOWED = {('osd', 'osd_max_backfills'): '1', ('osd/class:hdd', 'osd_max_backfills'): '1',
          ('osd', 'osd_recovery_max_active'): '1'}
#: The alarm for laggy PGs is kept for 15 s.
ALL_UNDONE_TURNS = 60
#: An OSD that has none of the PGs in flight.
SUSPECT = 50


class Mitigated(Driver):
    def __init__(self, **options: Any) -> None:
        # Time passes between two readings, and one OSD is suspected when PGs are laggy.
        read = Readings(seconds=2.0, counters={}, clients=(), places={},
                        osd_counts={SUSPECT: PgCounts(total=6, laggy=3)})
        super().__init__(FakeCluster(osd_config=dict(FOUND), read=read), replace(ACT, **options))

    def freeze(self) -> None:
        """PGs are remapped and stay so, without a campaign."""
        self.cluster.flags.add('nobackfill')
        self.cluster.expand()
        self.run_until(lambda: bool(self.cluster.remapped()))

    def trouble(self, on: bool = True) -> None:
        self.cluster.trouble = {'laggy': 3} if on else {}

    @property
    def listing(self) -> Any:
        return listing_json(self.loop.published.mitigated.listing)

    @property
    def rungs(self) -> Dict[str, Any]:
        return {row['rung']: row for row in self.listing['rungs']}

    def states(self) -> Dict[str, str]:
        return {rung: row['state'] for rung, row in self.rungs.items()}

    def wait(self, rung: str, state: str) -> None:
        self.run_until(lambda: self.states()[rung] == state, 100)

    def told(self, kind: str = 'mitigation') -> List[str]:
        return [event['what'] for event in self.loop.published.events if event['kind'] == kind]


def climbed(queues: Dict[int, str] = {}, version: str = '18.2.7',
            found: Dict[Tuple[str, str], str] = {}) -> Mitigated:
    """`queues`: schedulers of some OSDs, of `version`."""
    driver = Mitigated()
    driver.cluster.osd_config.update(found)
    driver.cluster.queues = dict(queues)
    driver.cluster.versions = dict.fromkeys(queues, version)
    driver.freeze()
    driver.trouble()
    driver.wait('slow recovery', 'held')
    driver.run(3)
    return driver


def test_osds_with_the_other_scheduler_are_slowed_while_a_cluster_is_upgraded() -> None:
    driver = climbed({7: 'mclock_scheduler'})
    assert driver.cluster.osd_config == {**SLOWED, ('osd', 'osd_mclock_profile'): 'high_client_ops'}


def test_an_osd_that_is_configured_for_the_other_scheduler_is_slowed() -> None:
    """It has the version of the others."""
    entry = {('osd.7', 'osd_op_queue'): 'mclock_scheduler'}
    driver = climbed({7: 'mclock_scheduler'}, version='', found=entry)
    assert driver.cluster.osd_config == {
        **SLOWED, **entry, ('osd', 'osd_mclock_profile'): 'high_client_ops'}


def test_options_are_read_every_few_seconds_while_some_are_borrowed(
        monkeypatch: pytest.MonkeyPatch) -> None:
    """As the operator may set them meanwhile; each reading is a command to the mons."""
    driver = climbed()
    read, times = driver.cluster.config_entries, []

    def noted() -> Any:
        times.append(driver.cluster.now)
        return read()

    monkeypatch.setattr(driver.cluster, 'config_entries', noted)
    driver.run(40)
    assert 40 / CONFIG_SECONDS - 2 <= len(times) <= 40 / CONFIG_SECONDS + 1
    assert all(after - before >= CONFIG_SECONDS for before, after in zip(times, times[1:]))


def test_up_and_down_without_a_campaign() -> None:
    driver = climbed()
    cluster = driver.cluster
    assert 'norebalance' in cluster.flags and cluster.osd_config == SLOWED
    status = driver.loop.status()
    assert status['mode'] == 'act' and 'MITIGATION' in codes(status)
    row = driver.rungs['slow recovery']
    assert row['state'] == 'held' and '3 PGs are laggy' in row['why']
    assert {'what': 'osd_max_backfills', 'who': 'osd/class:hdd', 'found': '8', 'put': '1',
            'in_force': True} in row['settings']
    assert driver.states()['hold releases'] == 'idle'
    driver.trouble(False)
    driver.run(ALL_UNDONE_TURNS)
    assert set(driver.states().values()) == {'idle'}
    assert 'norebalance' not in cluster.flags and cluster.osd_config == FOUND
    assert driver.told() == ['norebalance is set', 'recovery is slowed',
                             'slow recovery: undoing', 'recovery options are given back',
                             'norebalance: undoing', 'norebalance is given back']
    assert [line for line in cluster.logged if line.startswith('norebalance is set')]


def test_a_muted_check_drives_no_mitigation() -> None:
    driver = climbed()
    driver.cluster.muted = {'PERFGUARD_LAGGY_PGS'}
    driver.run(ALL_UNDONE_TURNS)
    assert set(driver.states().values()) == {'idle'}
    assert 'norebalance' not in driver.cluster.flags and driver.cluster.osd_config == FOUND
    driver.cluster.muted = {'SLOW_OPS'}
    driver.wait('norebalance', 'held')


def test_an_acknowledged_condition_drives_none_until_the_campaign_ends() -> None:
    driver = Mitigated()
    driver.cluster.backfill_seconds = 1e6
    driver.to_releasing()
    driver.ask('accept', code='LAGGY')
    driver.turn()
    driver.trouble()
    driver.run(60)
    assert driver.phase == 'RELEASING' and set(driver.states().values()) == {'idle'}
    driver.cluster.backfill_seconds = 4.0
    driver.run_to('DONE')
    driver.freeze()
    driver.wait('norebalance', 'held')


def test_observe_touches_nothing() -> None:
    driver = Mitigated(mitigation_mode='observe')
    driver.freeze()
    driver.trouble()
    sent = len(driver.cluster.sent)
    driver.run(60)
    assert driver.states()['norebalance'] == driver.states()['slow recovery'] == 'would'
    assert len(driver.cluster.sent) == sent and driver.cluster.osd_config == FOUND
    assert driver.loop.status()['mode'] == 'observe'


def test_what_holds_does_not_write_or_read_for_nothing() -> None:
    driver = climbed()
    driver.run(15)
    writes, sent = driver.cluster.fault.count, len(driver.cluster.sent)
    driver.run(30)
    assert (driver.cluster.fault.count, len(driver.cluster.sent)) == (writes, sent)


def test_an_osd_that_fails_while_recovery_is_slowed() -> None:
    """The options are read only now and then while a rung holds them, but not then."""
    driver = climbed()
    driver.cluster.trouble = {'laggy': 3, 'degraded': 5}
    driver.turn()
    assert driver.cluster.osd_config == FOUND
    driver.run(2)
    assert driver.states()['slow recovery'] == 'idle'
    assert driver.states()['norebalance'] == 'held'


def test_pgs_that_are_not_known_of_after_a_failover_undo_nothing() -> None:
    driver = Mitigated()
    driver.freeze()
    driver.cluster.slow_daemons = {'osd.0': 3}
    driver.wait('slow recovery', 'held')
    driver.run(3)
    driver.restart()
    driver.cluster.slow_daemons, driver.cluster.trouble = {}, {'unreported': 5}
    driver.run(ALL_UNDONE_TURNS)
    assert driver.states()['norebalance'] == driver.states()['slow recovery'] == 'held'
    assert driver.cluster.osd_config == SLOWED
    # Those of OSDs that are dead will never be known of.
    driver.run_until(lambda: set(driver.states().values()) == {'idle'}, 500)
    assert driver.cluster.osd_config == FOUND and 'norebalance' not in driver.cluster.flags


def evacuated(driver: Mitigated, osd: int = 7) -> None:
    """The OSD is marked out: its PGs move, and its operations are slow until it has none."""
    cluster = driver.cluster
    cluster.toys[osd] = cluster.toys[osd]._replace(reweight=0.0)
    for pgid, pg in sorted(cluster.pg.items()):
        if osd in pg.up:
            other = next(each for each in cluster.toys if each not in pg.up)
            cluster.set_raw(pgid, [other if each == osd else each for each in pg.up])

    def tick(seconds: float = 1.0) -> None:
        FakeCluster.tick(cluster, seconds)
        full = any(osd in pg.data for pg in cluster.pg.values())
        cluster.slow_daemons = {'osd.%d' % osd: 7} if full else {}

    setattr(cluster, 'tick', tick)


@pytest.mark.parametrize('failover', [False, True])
def test_a_slow_osd_that_is_marked_out_becomes_empty(failover: bool) -> None:
    driver = Mitigated()
    driver.cluster.backfill_seconds = 90.0
    evacuated(driver)
    driver.wait('slow recovery', 'held')
    if failover:
        driver.restart()
    while not driver.cluster.clean():
        driver.turn()
        assert 'norebalance' not in driver.cluster.flags
    driver.run(ALL_UNDONE_TURNS)
    assert set(driver.states().values()) == {'idle'} and driver.cluster.osd_config == FOUND


@pytest.mark.parametrize('mode', ['act', 'observe'])
def test_norebalance_is_given_back_at_once_when_an_osd_is_marked_out(mode: str) -> None:
    driver = Mitigated(mitigation_mode=mode)
    driver.freeze()
    driver.trouble()
    driver.wait('norebalance', 'held' if mode == 'act' else 'would')
    driver.run(3)
    evacuated(driver)
    driver.run(4)
    assert 'norebalance' not in driver.cluster.flags
    assert driver.states()['norebalance'] == 'idle'
    assert any('to be emptied' in event['why'] for event in driver.loop.published.events
               if event['what'] == 'norebalance: undoing') == (mode == 'act')


# ---- with a campaign

def releasing(**options: Any) -> Mitigated:
    driver = Mitigated(**options)
    driver.cluster.backfill_seconds = 1e6
    driver.to_releasing()
    driver.run_until(lambda: len(driver.cluster.remapped()) == 4)
    driver.cluster.backfill_wait = set(sorted(driver.cluster.remapped())[:2])
    return driver


def test_with_a_campaign_pgs_that_wait_are_pinned_back() -> None:
    driver = releasing()
    driver.run(3)
    waiting = set(driver.cluster.backfill_wait)
    assert len(waiting) == 2
    driver.trouble()
    driver.wait('norebalance', 'held')
    assert driver.states()['hold releases'] == 'held' and driver.phase == 'HOLDING'
    driver.turn()
    assert 'MITIGATION' in codes(driver.status) and 'FOREIGN_FLAG' not in codes(driver.status)
    driver.wait('pin back', 'held')
    driver.run(5)
    assert driver.status['in_flight'] == 2 and not waiting & set(driver.cluster.remapped())
    driver.trouble(False)
    driver.cluster.backfill_seconds = 4.0
    driver.run_to('DONE')
    assert len(driver.cluster.moved) == 12 and driver.cluster.entries() == {}
    assert driver.cluster.osd_config == FOUND
    assert 'norebalance' not in driver.cluster.flags


def test_answers_that_arrive_late_are_waited_for() -> None:
    """One question is answered at once, the others after three seconds."""
    driver = releasing()
    driver.run(3)
    waiting = set(driver.cluster.backfill_wait)
    answer = driver.cluster.inquire
    asked: Dict[Any, float] = {}

    def late(questions: Any) -> Any:
        for question in questions:
            asked.setdefault(question, driver.cluster.now)
        answers = answer(questions)
        return {question: answers[question] for number, question in enumerate(questions)
                if number == 0 or driver.cluster.now - asked[question] >= 3}

    setattr(driver.cluster, 'inquire', late)
    driver.trouble()
    driver.run_until(lambda: 'held' in (driver.states()['pin back'],
                                        driver.states()['slow recovery']))
    assert driver.states()['slow recovery'] == 'idle'
    assert all(pgid in driver.rungs['pin back']['note'] for pgid in waiting)


def test_pgs_that_would_have_to_peer_with_a_suspect_stay_in_flight() -> None:
    driver = releasing()
    first, second = sorted(driver.cluster.backfill_wait)
    for number, suspects in enumerate((driver.cluster.pg[first].data, ())):
        driver.cluster.read = replace(driver.cluster.read, osd_counts={
            osd: PgCounts(total=6, laggy=3) for osd in suspects[:1]})
        driver.trouble()
        driver.run(30)
        row = driver.rungs['pin back']
        assert first not in row['note'] and (number == 0 or row['state'] == 'idle')
        driver.trouble(False)
        driver.run(ALL_UNDONE_TURNS)
        driver.cluster.backfill_wait = set(driver.cluster.remapped()[:2])


@pytest.mark.parametrize('mode', ['off', 'observe', 'act'])
def test_releases_are_held_in_every_mode(mode: str) -> None:
    driver = releasing(mitigation_mode=mode, mitigation_seconds=1000.0)
    pinned = driver.status['pinned']
    driver.trouble()
    driver.run(3)
    driver.trouble(False)
    driver.run(4)
    assert 'LAGGY_LATELY' in codes(driver.status)
    assert driver.phase == 'HOLDING' and driver.status['pinned'] == pinned
    assert driver.states()['hold releases'] == 'held'


def test_the_flag_changes_hands_neither_way() -> None:
    """A pause during the mitigation; its end during the pause."""
    driver = releasing()
    driver.trouble()
    driver.wait('norebalance', 'held')
    driver.ask('pause')
    driver.run(5)
    driver.trouble(False)
    driver.run(ALL_UNDONE_TURNS)
    assert driver.states()['norebalance'] == 'undoing' and 'norebalance' in driver.cluster.flags
    driver.ask('resume')
    driver.run(5)
    assert driver.states()['norebalance'] == 'idle'
    assert 'norebalance' not in driver.cluster.flags
    driver.cluster.backfill_seconds = 4.0
    driver.run_to('DONE')


def test_a_flag_of_the_campaign_is_not_taken() -> None:
    driver = Mitigated()
    driver.to_pinned()
    driver.cluster.trouble = {'laggy': 3, 'remapped': 5}
    driver.run(60)
    assert driver.states()['norebalance'] == 'idle'
    driver.ask('abort')
    driver.cluster.trouble = {}
    driver.run_to('ABORTED')
    assert 'norebalance' not in driver.cluster.flags


def test_abort_while_rungs_are_held() -> None:
    driver = releasing()
    driver.trouble()
    driver.wait('slow recovery', 'held')
    driver.ask('abort')
    driver.run_to('ABORTED')
    driver.trouble(False)
    driver.run(ALL_UNDONE_TURNS)
    assert driver.cluster.clean() and driver.cluster.osd_config == FOUND
    assert 'norebalance' not in driver.cluster.flags


# ---- findings of the watch

def test_a_pool_that_is_slow_holds_releases() -> None:
    driver = Watched()
    driver.osds.backfill_seconds = 1e6
    driver.to_releasing()
    driver.osds.factor = 20.0
    driver.minutes(3)
    assert driver.phase == 'HOLDING'
    assert 'SLOW_POOL' in codes(driver.status)
    driver.osds.factor = 1.0
    driver.minutes(3)
    assert driver.phase == 'RELEASING'


def with_slow_osd() -> Watched:
    """osd.7 is slow, and the mitigation may lower its primary affinity."""
    driver = Watched()
    driver.options = replace(driver.options, mitigation_mode='act', mitigation_affinity=True)
    driver.osds.slow = {7: 6.0}
    return driver


def lowered() -> Watched:
    """The primary affinity of a slow OSD has been lowered."""
    driver = with_slow_osd()
    driver.osds.affinity[7] = 0.75
    driver.minutes(6)
    assert driver.osds.affinity == {7: 0.0}
    return driver


def test_a_slow_osd_leads_no_pgs_until_it_is_well() -> None:
    driver = lowered()
    assert 'primary affinity of osd.7 is lowered' in driver.events('mitigation')
    driver.restart()
    driver.turn(PERIOD)
    driver.osds.slow = {}
    driver.minutes(10)
    assert driver.osds.affinity == {7: 0.75}


def test_an_affinity_that_an_operator_sets_to_0_as_well_is_not_given_back() -> None:
    driver = lowered()
    driver.osds.set_value_again('primary affinity of osd.7', '0')
    driver.minutes(1)
    assert 'primary affinity of osd.7: given up' in driver.events('mitigation')
    driver.osds.slow = {}
    driver.minutes(10)
    assert driver.osds.affinity == {7: 0.0}


def test_a_slow_osd_whose_pgs_hdds_would_lead_keeps_its_primary_affinity(
        monkeypatch: pytest.MonkeyPatch) -> None:
    """The rule of the pool takes OSDs of all classes."""
    monkeypatch.setattr(CrushRules, 'class_of', lambda _, osd: 'ssd' if osd == 7 else 'hdd')
    driver = with_slow_osd()
    driver.minutes(6)
    assert driver.osds.affinity == {}
    assert 'primary affinity of osd.7: not changed' in driver.events('mitigation')


def test_an_affinity_is_not_lowered_while_clients_are_idle(
        monkeypatch: pytest.MonkeyPatch) -> None:
    """What forbids it depends on their operations."""
    monkeypatch.setattr(CrushRules, 'class_of', lambda _, osd: 'ssd' if osd == 7 else 'hdd')
    driver = with_slow_osd()
    driver.minutes(6)
    driver.osds.idle = list(driver.osds.toys)
    driver.minutes(5)
    assert driver.osds.affinity == {}


def test_an_affinity_is_not_lowered_before_the_osd_is_compared() -> None:
    """A chronically slow OSD after a failover: neither its load nor a likely cause is known."""
    driver = Watched()
    driver.turn(PERIOD)
    observed, _ = driver.loop._observing.observe()
    watched = driver.loop.published.watched
    for score in None, 6.0:
        rows = [row._replace(score=score) for row in watched.osds]
        seen = driver.loop.jobs.mitigating._ladder_view(
            observed, replace(watched, osds=tuple(rows), slow_osds={7: 'chronic'},
                              osd_reads={7: OsdReads(led=100)}),
            NO_CAMPAIGN, Policy('act', 30.0))
        assert seen.unread == (set() if score else {7})


def test_osds_that_are_down_do_not_count_as_primaries() -> None:
    driver = Watched()
    driver.osds.take_down(0)
    driver.turn(PERIOD)
    observed, _ = driver.loop._observing.observe()
    seen = driver.loop.jobs.mitigating._ladder_view(
        observed, driver.loop.published.watched, NO_CAMPAIGN, Policy('act', 30.0))
    assert 0 in driver.loop.published.watched.hosts
    assert seen.hosts == {osd: 'h%d' % osd for osd in range(1, 12)}


def test_an_osd_that_is_slow_under_its_load_keeps_its_primary_affinity(
        monkeypatch: pytest.MonkeyPatch) -> None:
    """The next primary would have the load."""
    monkeypatch.setattr(SlowOsds, 'load_ratio', lambda _, osd: 3.0 if osd == 7 else 1.0)
    driver = with_slow_osd()
    driver.minutes(6)
    assert driver.checks == ['PERFGUARD_SLOW_OSD'] and driver.osds.affinity == {}
    row = listing_json(driver.loop.published.mitigated.listing)['rungs'][-1]
    assert (row['subject'], row['state']) == ('osd.7', 'limited')
    assert 'and the next primaries would as well' in row['note']


@pytest.mark.parametrize('erasure', [False, True])
def test_an_osd_whose_reads_do_not_depend_on_the_primary_keeps_its_primary_affinity(
        erasure: bool) -> None:
    """Reads of erasure-coded pools, and balanced or localized ones."""
    driver = with_slow_osd()
    pool = 2 if erasure else 1
    led, other = (PgReads('%d.1' % pool, acting, 100) for acting in ((7, 1, 2), (1, 7, 2)))
    driver.osds.change = {'pg_reads': {7: (led,) if erasure else (led, other, other)}}
    driver.minutes(6)
    assert driver.checks == ['PERFGUARD_SLOW_OSD'] and driver.osds.affinity == {}
    row = listing_json(driver.loop.published.mitigated.listing)['rungs'][-1]
    assert (row['subject'], row['state']) == ('osd.7', 'limited')
    assert row['note'] == (
        '100 % of its reads are of erasure-coded pools, which need it in any case'
        if erasure else '67 % of its reads are of PGs that it does not lead')
    driver.osds.change = {'pg_reads': {7: (led._replace(pgid='1.1'), other._replace(pgid='1.2'))}}
    driver.minutes(31)  # they are read again after half an hour
    assert driver.osds.affinity == {7: 0.0}
    driver.options = replace(driver.options, mitigation_affinity=False)
    driver.minutes(1)
    assert driver.osds.affinity == {7: 1.0} and driver.osds.read_osds == frozenset()


def test_a_muted_slow_osd_keeps_its_primary_affinity() -> None:
    driver = lowered()
    driver.osds.muted = {'PERFGUARD_OSD_CHRONIC'}
    driver.minutes(3)
    assert driver.osds.affinity == {7: 0.0}
    driver.osds.muted = {'PERFGUARD_SLOW_OSD'}
    driver.minutes(3)
    assert driver.osds.affinity == {7: 0.75}
    assert driver.checks == ['PERFGUARD_SLOW_OSD']


@pytest.mark.parametrize('failure', ['readings', 'osdmap'])
def test_affinity_is_not_given_back_while_nothing_is_known(
        failure: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A watch that fails for some turns, and the empty OSDMap of an mgr that has just begun."""
    driver = lowered()
    with monkeypatch.context() as patch:
        if failure == 'readings':
            def fail(*_: Any) -> Readings:
                raise KeyError('counters')
            patch.setattr(driver.cluster, 'readings', fail)
        else:
            view = driver.cluster.map_view
            patch.setattr(driver.cluster, 'map_view', lambda: replace(
                view(), osdmap=replace(view().osdmap, osds={}, pools={}, epoch=0)))
        driver.minutes(1)
    assert driver.osds.affinity == {7: 0.0}
    driver.minutes(2)
    assert driver.osds.affinity == {7: 0.0}
    driver.osds.slow = {}
    driver.minutes(10)
    assert driver.osds.affinity == {7: 0.75}


# ---- by command

def refusal(driver: Driver, rung: int) -> Refused:
    with pytest.raises(Refused) as raised:
        driver.loop.request(Revert(rung))
    return raised.value


def test_revert() -> None:
    driver = climbed()
    number = driver.rungs['slow recovery']['id']
    driver.loop.request(Revert(number))
    # The answer is a promise, also where this mgr fails now.
    driver.restart()
    driver.run(4)
    assert driver.states()['slow recovery'] == 'reverted' and driver.cluster.osd_config == FOUND
    assert not [key for key in driver.kv.data if key.startswith('reverts')]
    assert refusal(driver, number).errno == errno.EINVAL
    assert refusal(driver, 77).errno == errno.ENOENT
    assert 'mitigation revert %d' % number in driver.told('request')


def test_a_revert_is_noted_until_the_mons_have_its_effect() -> None:
    driver = climbed()
    driver.loop.request(Revert(driver.rungs['slow recovery']['id']))
    key, = [key for key in driver.kv.data if key.startswith('reverts')]
    driver.kv.losing = True
    driver.run(3)
    assert key in driver.kv.data and driver.cluster.osd_config == SLOWED
    driver.kv.losing = False
    driver.run(4)
    assert key not in driver.kv.data and driver.cluster.osd_config == FOUND


def test_nothing_is_reverted_before_the_first_turn() -> None:
    driver = climbed()
    driver.restart()
    assert refusal(driver, 1).errno == errno.EAGAIN


def test_a_request_of_a_wrong_shape_is_dropped() -> None:
    driver = climbed()
    Store(driver.kv).note('reverts', ['x'], 1000.0)
    driver.restart()
    driver.turn()
    assert not [key for key in driver.kv.data if key.startswith('reverts')]
    assert driver.states()['slow recovery'] == 'held'


def test_the_table() -> None:
    driver = climbed()
    text = tables.mitigation(driver.listing)
    assert text.startswith('mode: act') and 'osd_max_backfills of osd/class:hdd: 8 -> 1' in text
    assert 'osd_recovery_max_active of osd: not set -> 1' in text


# ---- what OSDs show

def test_an_option_that_an_osd_does_not_apply_is_reported() -> None:
    driver = climbed()
    driver.cluster.osd_shows['osd_recovery_max_active'] = '3'
    driver.run(15)
    note = driver.rungs['slow recovery']['note']
    assert 'osd.0 shows osd_recovery_max_active 3 (its ceph.conf or "ceph tell")' in note
    assert 'osd_max_backfills' not in note
    told = driver.told()
    driver.restart()
    driver.run(20)
    assert driver.rungs['slow recovery']['note'] == note and driver.told() == told


def test_whether_it_is_reported_does_not_depend_on_the_text() -> None:
    """Documents of versions without the field `differs` can be read: it is false in these."""
    driver = climbed()
    driver.cluster.osd_shows['osd_recovery_max_active'] = '3'
    driver.run(15)
    store, told = Store(driver.kv), driver.told()
    document = store.get('mitigation')
    assert document is not None
    (row,) = [row for row in document['steps'] if row['rung'] == 'slow recovery']
    assert row['differs'] is True
    row['note'] = 'in other words'
    store.put('mitigation', document)
    driver.restart()
    driver.run(20)
    assert driver.rungs['slow recovery']['note'] == 'in other words' and driver.told() == told
    del row['differs']
    store.put('mitigation', document)
    driver.restart()
    driver.run(20)
    assert driver.told() == [*told, told[-1]]


@pytest.mark.parametrize('who, text', [
    ('osd.0', 'osd.0 shows osd_recovery_max_active 3 (set for osd.0)'),
    # The OSD shows another value than that entry has, or the entry is not for it.
    ('osd/class:nvme', 'osd.0 shows osd_recovery_max_active 4 (its ceph.conf or "ceph tell")'),
    # The mons do not answer.
    ('', 'osd.0 shows osd_recovery_max_active 4')])
def test_what_precedes_an_option_of_the_mitigation(
        monkeypatch: pytest.MonkeyPatch, who: str, text: str) -> None:
    """What is set for a single OSD meanwhile, and else its ceph.conf."""
    driver = climbed()
    driver.cluster.osd_config[who, 'osd_recovery_max_active'] = '3'
    if who != 'osd.0':
        driver.cluster.osd_shows['osd_recovery_max_active'] = '4'
    if not who:
        monkeypatch.setattr(driver.cluster, 'config_entries', lambda: None)
    driver.run(15)
    note = driver.rungs['slow recovery']['note']
    assert text in note and ('(' in note) is bool(who), note


def test_osds_and_pgs_that_do_not_answer() -> None:
    driver = releasing()
    driver.cluster.mute = True
    driver.trouble()
    driver.run(60)
    assert driver.states()['norebalance'] == 'held' and driver.states()['pin back'] == 'idle'
    assert driver.states()['slow recovery'] == 'idle' and driver.cluster.osd_config == FOUND
    driver.cluster.mute = False
    driver.wait('pin back', 'held')
    driver.wait('slow recovery', 'held')


def test_refused_commands_are_reported_once() -> None:
    driver = Mitigated()
    driver.cluster.refuse['osd set'] = 'EPERM: not now'
    driver.freeze()
    driver.trouble()
    driver.run(30)
    assert driver.told('failed') == ['osd set norebalance: EPERM: not now']
    driver.cluster.refuse.clear()
    driver.run(3)
    assert 'norebalance' in driver.cluster.flags


@pytest.mark.parametrize('jump', [0.0, -3600.0])
def test_what_the_cluster_does_not_accept_is_given_up(jump: float) -> None:
    """Also by an mgr whose clock is behind that of the one before."""
    driver = Mitigated()
    driver.cluster.refuse['osd set'] = 'EPERM: not now'
    driver.freeze()
    driver.trouble()
    driver.run_until(lambda: bool(driver.told('failed')), 60)
    driver.cluster.ahead += jump
    driver.restart()
    driver.run_until(lambda: 'norebalance: given up' in driver.told(), 100)


# ---- crashes and damage

def story(at: Optional[int] = None) -> Mitigated:
    """Up and down with an mgr that dies before write or command number `at`."""
    driver = Mitigated()
    driver.freeze()
    fault = driver.cluster.fault
    fault.count, fault.at = 0, at

    def run(turns: int) -> None:
        for _ in range(turns):
            try:
                driver.turn()
            except Crash:
                driver.restart()
                driver.cluster.tick()
    driver.trouble()
    run(40)
    assert 'norebalance' in driver.cluster.flags and driver.cluster.osd_config == SLOWED, at
    driver.trouble(False)
    run(70)
    assert fault.at is None, 'no such step'
    return driver


@pytest.mark.parametrize('part', range(1, 9))
def test_an_mgr_that_dies_at_any_step(part: int) -> None:
    """Every eighth step from number `part` on."""
    steps = story().cluster.fault.count
    assert steps > 20
    for at in range(part, steps + 1, 8):
        driver = story(at)
        assert set(driver.states().values()) == {'idle'}, at
        assert driver.cluster.osd_config == FOUND, at
        assert 'norebalance' not in driver.cluster.flags, at


@pytest.mark.parametrize('document', [None, 5, [], {}, {'steps': [[]]}, {'steps': [{'id': 1}]}])
def test_documents_of_a_wrong_shape(document: Any) -> None:
    driver = climbed()
    Store(driver.kv).put('mitigation', document)
    driver.restart()
    driver.run(3)
    assert driver.states()['primary affinity'] == 'idle'


@pytest.mark.parametrize('document', [5, [], {'steps': [{'id': 1}]}])
def test_a_document_that_cannot_be_read_raises_a_health_check(document: Any) -> None:
    """Nothing else would give the settings back that it describes."""
    driver = climbed()
    Store(driver.kv).put('mitigation', document)
    for text in ('cannot read the mitigations in force (', 'damaged/mitigation'):
        driver.restart()
        driver.turn()
        assert text in driver.cluster.checks['PERFGUARD_INTERRUPTED']['detail'][0]


# ---- another mgr is active

def test_an_mgr_that_is_not_active_any_more_writes_nothing() -> None:
    driver = climbed()
    other = two(driver)
    driver.trouble(False)
    other.run_until(lambda: not other.loop.published.ledger.rows)
    stored = records(driver, 'mitigation')
    driver.loop.turn()
    assert records(driver, 'mitigation') == stored and driver.loop.journal.fenced


def test_an_mgr_that_is_active_again_continues_from_what_the_other_stored() -> None:
    driver = Mitigated()
    driver.freeze()
    jobs, gid = driver.loop.jobs, driver.cluster.gid
    assert jobs.may_write()
    other = two(driver)
    driver.trouble()
    other.run_until(lambda: len(other.loop.published.ledger.rows) == 4)
    jobs.begin_turn()
    assert not jobs.may_write() and jobs.journal.fenced
    driver.cluster.gid = gid
    driver.trouble(False)
    driver.run_until(lambda: not driver.loop.journal.fenced)
    driver.run(ALL_UNDONE_TURNS)
    assert 'norebalance' not in driver.cluster.flags and driver.cluster.osd_config == FOUND


def test_what_an_mgr_that_is_active_again_cannot_read_raises_a_health_check() -> None:
    """Nothing else would give the settings back that it describes."""
    driver = climbed()
    jobs, gid = driver.loop.jobs, driver.cluster.gid
    assert jobs.may_write()
    two(driver)
    jobs.begin_turn()
    assert not jobs.may_write() and jobs.journal.fenced
    Store(driver.kv).put('mitigation', {'steps': [{'id': 1}]})
    driver.cluster.gid = gid
    driver.run_until(lambda: not driver.loop.journal.fenced)
    driver.turn()
    assert 'norebalance' in driver.cluster.flags and not driver.loop.published.ledger.rows
    (text,) = [text for text in driver.told('store') if 'the mitigations in force' in text]
    assert text in driver.cluster.checks['PERFGUARD_INTERRUPTED']['detail']


def test_nothing_is_written_while_the_mons_do_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ceph's set_store waits for them without a limit, and the loop with it."""
    driver = climbed()
    driver.run(30)
    written: List[str] = []
    put = driver.kv.set_store

    def set_store(key: str, value: Optional[str]) -> None:
        written.append(key)
        put(key, value)

    with monkeypatch.context() as patch:
        patch.setattr(driver.cluster, 'stored', lambda keys: {})
        patch.setattr(driver.cluster, 'run', lambda commands, timeout=60.0: [
            Reply(None, error='no answer')] * len(commands))
        patch.setattr(driver.kv, 'set_store', set_store)
        driver.run(10)
        driver.trouble(False)  # the watch notes events
        driver.run(60)
        driver.loop.close()
        assert written == []
    monkeypatch.setattr(driver.kv, 'set_store', set_store)
    driver.run(40)
    assert {'watch/head', 'events_recent/head'} <= set(written)
    assert 'no PG is laggy anymore' in driver.kv.data['events_recent/head']
