# SPDX-License-Identifier: LGPL-2.1-or-later
"""Objects that a run has left: when they are looked for, how far that came, and giving it up."""
from typing import Any, Dict

import pytest

from perfguard.codec import encode
from perfguard.errors import Refused
from perfguard.probe.controller import JOURNAL, SETTINGS
from perfguard.probe.jobs import parse_jobs
from perfguard.probe.orders import DroppedSchedule, NewSchedule, RunId, RunOrder
from perfguard.probe.placement import JournalledNaming, naming_of, names_seconds
from perfguard.probe.resources import LEFT_CHECK, SweepPart, Sweeps
from perfguard.probe.run import SWEEP_SECONDS
from perfguard.probe.types import Target

from ..fakes.probe_cluster import FOREIGN_OBJECTS, Answer, ProbeDriver, fake_children
from ..test_store import written_by_a_newer_version

WORDS = {'rw': 'randread', 'bs': '4k', 'size': '64k', 'nrfiles': '2', 'runtime': '1'}
IN_POOL = RunOrder(words=WORDS, pool='rep')
OWN = RunOrder(words=WORDS)


@pytest.fixture(autouse=True)
def workers(monkeypatch: Any) -> None:
    fake_children(monkeypatch)


def test_a_pass_that_finds_something_is_followed_by_another() -> None:
    sweeps = Sweeps(orphan=False, cursor=0)
    sweeps.note_result(SweepPart(3, 0, 8, 8), 10.0)
    assert not sweeps.done and not sweeps.is_due(10.0) and sweeps.is_due(15.0)
    sweeps.note_result(SweepPart(0, 0, 8, 8), 15.0)
    assert sweeps.done


def test_what_another_mgr_has_begun_is_looked_for_until_its_worker_is_gone_for_sure() -> None:
    sweeps = Sweeps(orphan=True, cursor=0)
    for now in (10.0, 16.0, 22.0):
        sweeps.note_result(SweepPart(0, 0, 8, 8), now)
        assert not sweeps.done
    sweeps.note_result(SweepPart(0, 0, 8, 8), 22.5)
    assert sweeps.done


def test_a_pass_that_made_progress_continues_at_once() -> None:
    sweeps = Sweeps(orphan=False, cursor=3)
    sweeps.note_result(SweepPart(0, 0, 5, 8), 10.0)
    assert sweeps.is_due(10.0) and sweeps.cursor == 5
    sweeps.note_result(SweepPart(1, 0, 8, 8), 20.0)
    assert sweeps.cursor == 0 and not sweeps.done


def test_the_longer_nothing_works_the_more_rarely_it_is_tried() -> None:
    sweeps, now, pauses = Sweeps(orphan=False, cursor=0), 0.0, []
    for _ in range(9):
        sweeps.note_result(SweepPart(0, 4, 0, 8), now)
        begin = now
        while not sweeps.is_due(now):
            now += 1.0
        pauses.append(now - begin)
    assert pauses == [5, 10, 20, 40, 80, 160, 300, 300, 300]


def begun(order: RunOrder = IN_POOL, behaviour: str = 'deaf') -> ProbeDriver:
    driver = ProbeDriver()
    driver.cluster.behaviour = behaviour
    driver.give(order)
    return driver


def orphaned(**changes: Any) -> ProbeDriver:
    """The mgr and its worker die in the midst of a run in the pool of an operator; `changes` of
    the journal."""
    driver = begun()
    driver.run_until(lambda: driver.cluster.objects != FOREIGN_OBJECTS)
    driver.cluster.kill_workers()
    driver.cluster.behaviour = 'good'
    document = driver.loop._store.get(JOURNAL)
    assert document is not None
    document['site'].update(changes)
    driver.loop._store.put(JOURNAL, document)
    driver.restart()
    return driver


def test_an_orphan_is_swept_by_the_names_of_its_objects() -> None:
    driver = orphaned()
    driver.turn()
    driver.finish()
    assert driver.cluster.is_untouched()


def test_a_sweep_has_time_to_find_the_names_of_all_objects() -> None:
    """For many objects of an OSD that leads few PGs, that takes longer than to remove them."""
    naming = naming_of(1, parse_jobs(None, {**WORDS, 'size': '16m', 'nrfiles': '1024'}, None),
                       Target('osd', osds=(3,)), {'1.%x' % pg: 3 for pg in range(32)}, 1, 32768)
    driver = orphaned(naming=encode(naming, JournalledNaming))
    driver.run_until(lambda: len(driver.cluster.workers) == 2)
    request = driver.cluster.workers[1].request
    assert request is not None and request.naming == naming
    assert request.limit_seconds == SWEEP_SECONDS + names_seconds(naming) > 50.0


def test_a_run_that_no_worker_was_started_for_is_not_swept_after() -> None:
    driver = orphaned(worker_ends=0.0)
    driver.turn()
    driver.finish(30)
    assert len(driver.cluster.workers) == 1


def refused(driver: ProbeDriver, run: int) -> int:
    with pytest.raises(Refused) as found:
        driver.give(RunId('probe cancel --force', run))
    return found.value.errno


STUCK: Dict[str, Any] = {
    'objects': (IN_POOL, {}, ['objects perfguard-probe-1-*', 'in pool rep']),
    'pool': (OWN, {'osd pool rm': Answer(-16, '', 'in use')}, ['pool perfguard-probe-1']),
    'user': (IN_POOL, {'auth rm': Answer(None)}, ['client.perfguard-probe-1'])}


@pytest.mark.parametrize('name', STUCK)
@pytest.mark.parametrize('crash', [False, True])
def test_a_clean_up_is_abandoned(name: str, crash: bool) -> None:
    order, replies, stays = STUCK[name]
    driver = begun(order, 'leaves')
    cluster = driver.cluster
    cluster.reply.update(replies)
    cluster.stuck = name == 'objects'
    driver.run(100)
    assert driver.state(1) == 'cleaning' and LEFT_CHECK in cluster.checks
    if crash:
        document = driver.loop._store.get(JOURNAL)
        assert document is not None
        document['site']['abandoned'] = True
        driver.loop._store.put(JOURNAL, document)
        driver.restart()
    else:
        answer = driver.give(RunId('probe cancel --force', 1))
        assert all(text in answer['message'] for text in stays), answer
    driver.turn()
    message = driver.listed[1]['message']
    assert all(text in message for text in stays), message
    assert not driver.busy and LEFT_CHECK not in cluster.checks
    assert any('probe 1 is' in text for text in driver.told('probe'))
    cluster.behaviour, cluster.stuck = 'good', False
    cluster.reply.clear()
    driver.give(IN_POOL)
    driver.finish()
    assert driver.state(2) == 'done'


def test_only_a_clean_up_is_abandoned() -> None:
    driver = begun()
    driver.run_until(lambda: driver.state(1) == 'running')
    assert refused(driver, 1) == 16 and refused(driver, 9) == 2
    driver.give(RunId('probe cancel', 1))
    driver.finish(60)
    assert refused(driver, 1) == 22


# ---- journals that the mons do not keep

@pytest.mark.parametrize('order', [OWN, IN_POOL])
def test_nothing_is_made_while_the_journal_is_not_kept(order: RunOrder) -> None:
    driver = ProbeDriver()
    driver.kv.losing = True
    driver.give(order)
    driver.finish()
    assert driver.state(1) == 'failed' and driver.cluster.is_untouched()
    assert not {'osd pool create', 'auth get-or-create'} & {
        command['prefix'] for command in driver.cluster.sent}
    driver.kv.losing = False
    driver.give(order)
    driver.finish()
    assert driver.state(2) == 'done'


# ---- journals of other versions

def changed_by_a_newer_version(driver: ProbeDriver, name: str, how: str) -> Dict[str, str]:
    """The document as the next mgr finds it in the store."""
    document = driver.loop._store.get(name)
    assert document is not None
    if how == 'fields':
        for key in {'record', 'baselines'} & document.keys():
            document['other_' + key] = document.pop(key)
    if how == 'resources':
        document['site']['other_naming'] = document['site'].pop('naming')
    driver.loop._store.put(name, document)
    if how == 'layout':
        written_by_a_newer_version(driver.kv, name)
    return stored(driver, name)


def stored(driver: ProbeDriver, name: str) -> Dict[str, str]:
    return {key: value for key, value in driver.kv.data.items() if key.startswith(name + '/')}


@pytest.mark.parametrize('how', ['fields', 'resources', 'layout'])
def test_a_journal_of_another_version_stays_until_it_is_given_up(how: str) -> None:
    driver = begun()
    driver.run_until(lambda: driver.state(1) == 'running')
    before = changed_by_a_newer_version(driver, JOURNAL, how)
    driver.cluster.kill_workers()
    driver.cluster.behaviour = 'good'
    driver.restart()
    driver.turn()
    with pytest.raises(Refused, match='unreadable'):
        driver.give(IN_POOL)
    assert LEFT_CHECK in driver.cluster.checks and stored(driver, JOURNAL) == before
    answer = driver.give(RunId('probe cancel --force', 0))
    assert 'client.perfguard-probe-*' in answer['message']
    driver.turn()
    assert LEFT_CHECK not in driver.cluster.checks and not stored(driver, JOURNAL)
    assert {'damaged/' + key: value for key, value in before.items()}.items() \
        <= driver.kv.data.items()
    driver.give(IN_POOL)
    driver.finish()
    assert driver.state(max(driver.listed)) == 'done'


@pytest.mark.parametrize('how', ['fields', 'layout'])
def test_schedules_and_baselines_of_another_version_stay(how: str) -> None:
    driver = begun(behaviour='good')
    driver.finish()
    driver.give(RunId('probe baseline', 1))
    before = changed_by_a_newer_version(driver, SETTINGS, how)
    driver.restart()
    driver.turn()
    (remark,) = driver.loop.probing.remarks
    assert remark.startswith('no scheduled probe begins: ')
    for order in (RunId('probe baseline', 1), RunId('probe baseline --rm', 1),
                  NewSchedule('nightly', IN_POOL, {}), DroppedSchedule('nightly')):
        with pytest.raises(Refused, match='unreadable'):
            driver.give(order)
    driver.give(IN_POOL)
    driver.finish()
    assert stored(driver, SETTINGS) == before
