# SPDX-License-Identifier: LGPL-2.1-or-later
"""This version completes what an earlier version has begun.

recorded/*.json has, for each story, the documents in the mons' key/value store and the cluster to
which they belong, as an earlier state of the module left them; fakes/recording.py wrote them.
"""
import json
from pathlib import Path
from typing import Any, Callable, Dict, List, Tuple

import pytest

from perfguard.errors import Refused
from perfguard.rebalance.plans import APPROVE, PlanOrder
from perfguard.rebalance.replacing import DRAINS
from perfguard.store import STORE_VERSION

from .fakes import recording
from .fakes.cluster import FakeCluster
from .fakes.driver import Driver
from .fakes.probe_cluster import fake_children
from .fakes import probe_runs
from .mitigation.test_controller import ALL_UNDONE_TURNS, FOUND, SLOWED
from .mitigation.test_rescue import FULL, upmaps
from .probe.test_controller import REPEATED
from .watch.test_controller import CHRONIC

RECORDED: Dict[str, Any] = {
    path.stem: json.loads(path.read_text())
    for path in sorted((Path(__file__).parent / 'recorded').glob('*.json'))}
#: Phases in which each campaign continues, and what finishes it.
CAMPAIGNS: Dict[str, Tuple[Tuple[str, ...], str]] = {
    'PINNED': (('PINNED',), 'start'), 'RELEASING': (('RELEASING', 'FINISHING'), ''),
    'ABORTED': (('ABORTED',), 'resume'), 'expand': (('RELEASING', 'FINISHING'), ''),
    'rollback': (('ABORTING', 'PINNING', 'RELEASING', 'FINISHING'), '')}
LATER_SECONDS = 30.0


@pytest.fixture(autouse=True)
def workers(monkeypatch: pytest.MonkeyPatch) -> None:
    fake_children(monkeypatch)


def having(*stories: str) -> List[Any]:
    return [pytest.param(version, story, id='%s-%s' % (version, story))
            for version, recorded in RECORDED.items() for story in stories if story in recorded]


def taken_over(version: str, story: str) -> Driver:
    """The mgr of this version becomes active on what the earlier one left."""
    recorded = RECORDED[version][story]
    make = recording.DRIVERS.get(story)
    if make is None:
        driver = Driver(recording.cluster_from_json(recorded['cluster']))
    else:
        driver = make()
        recording.cluster_from_json(recorded['cluster'], driver.cluster)
    driver.kv.data = dict(recorded['store'])
    driver.cluster.now += LATER_SECONDS
    driver.restart()
    driver.turn()
    return driver


def upgraded(version: str, story: str) -> Driver:
    driver = taken_over(version, story)
    assert driver.loop._store.damaged == [] and driver.loop._store.losses == []
    return driver


def check_end(driver: Driver) -> None:
    cluster = driver.cluster
    driver.run_until(cluster.clean)
    driver.run(5)
    assert cluster.entries() == {}
    assert cluster.foreign() == FakeCluster().foreign()
    assert cluster.mon_config == FakeCluster().mon_config and cluster.checks == {}


@pytest.mark.parametrize('version, story', having('await'))
def test_osds_are_awaited(version: str, story: str) -> None:
    driver = upgraded(version, story)
    assert driver.loop.rebalance.awaiting.waits
    driver.run_until(lambda: driver.phase == 'DONE')
    check_end(driver)
    assert driver.cluster.osd_config == {} and not driver.loop.rebalance.awaiting.unfinished


@pytest.mark.parametrize('version, story', having(*CAMPAIGNS))
def test_a_campaign_is_finished(version: str, story: str) -> None:
    phases, verb = CAMPAIGNS[story]
    driver = upgraded(version, story)
    assert driver.phase in phases and driver.loop.rebalance.pins
    if verb:
        driver.ask(verb)
    driver.run_to('DONE')
    check_end(driver)
    assert [(row['id'], row['phase']) for row in driver.history] == [(1, 'DONE')]


@pytest.mark.parametrize('version, story', having('drained'))
def test_what_was_drained_is_known(version: str, story: str) -> None:
    driver = upgraded(version, story)
    assert [row['trigger'] for row in driver.history] == ['drain']
    assert driver.order('undrain', 'osd.3')['weights'] == {'osd.3': 1.0}
    driver.run_to('DONE')
    assert driver.cluster.toys[3].crush_weight == 1.0


@pytest.mark.parametrize('version, story', having('replace'))
def test_a_replacement_continues(version: str, story: str) -> None:
    driver = upgraded(version, story)
    rows = driver.order(DRAINS, dry_run=True)['drains']
    assert [(row['osd'], row['phase'], row['replace']) for row in rows] == [(8, 'EMPTY', True)]
    driver.cluster.destroy(8)
    driver.run(recording.SETTLED_TURNS)
    driver.cluster.create_again(8)
    driver.run_until(lambda: driver.status['id'] == 3)
    driver.run_to('DONE')
    driver.run(recording.SETTLED_TURNS)
    assert driver.order(DRAINS, dry_run=True)['drains'] == []
    assert driver.cluster.toys[8].crush_weight == 1.0


@pytest.mark.parametrize('version, story', having('plan'))
def test_a_saved_plan_is_approved(version: str, story: str) -> None:
    driver = upgraded(version, story)
    driver.give(PlanOrder(APPROVE, 'next'))
    driver.run_to('DONE')
    check_end(driver)


# ---- the mitigation

@pytest.mark.parametrize('version, story', having('mitigation'))
def test_what_the_mitigation_has_changed_is_given_back(version: str, story: str) -> None:
    driver: Any = upgraded(version, story)
    assert driver.cluster.osd_config == SLOWED and 'norebalance' in driver.cluster.flags
    assert driver.states()['slow recovery'] == 'held' == driver.states()['norebalance']
    driver.trouble(False)
    driver.run(ALL_UNDONE_TURNS)
    assert set(driver.states().values()) == {'idle'}
    assert driver.cluster.osd_config == FOUND and 'norebalance' not in driver.cluster.flags


@pytest.mark.parametrize('version, story', having('affinity'))
def test_a_lowered_affinity_is_given_back(version: str, story: str) -> None:
    driver: Any = upgraded(version, story)
    assert driver.osds.affinity == {7: 0.0}
    driver.osds.slow = {}
    driver.minutes(10)
    assert driver.osds.affinity == {7: 0.75}


@pytest.mark.parametrize('version, story', having('rescue'))
def test_upmaps_of_a_rescue_are_removed(version: str, story: str) -> None:
    driver: Any = upgraded(version, story)
    held = {row.what for row in driver.loop.published.ledger.rows}
    assert held == {'upmap of PG ' + pgid for pgid in upmaps(driver)} and held
    driver.cluster.fullness.clear()
    driver.cluster.used[FULL] = 1 << 30
    driver.run_until(lambda: not upmaps(driver))
    driver.run(20)
    assert driver.cluster.clean() and not driver.loop.published.ledger.rows
    assert driver.loop._store.get('rescues') is None


# ---- what was learned and found

@pytest.mark.parametrize('version, story', having('chronic'))
def test_findings_and_baselines_are_kept(version: str, story: str) -> None:
    driver: Any = upgraded(version, story)
    # Nothing can be learned meanwhile.
    driver.osds.trouble = {'active_clean': 0, 'backfilling': 4}
    driver.minutes(1)
    assert driver.checks == [CHRONIC] and driver.rows[7]['chronic']['episodes'] == 22
    assert driver.events('chronic-osd') == ['osd.7 is chronically slow']
    assert driver.pool['read_baseline_ms'] == pytest.approx(1.0)
    assert driver.loop.jobs.watching.clients.norms


@pytest.mark.parametrize('version, story', having('provisional'))
def test_provisional_baselines_are_kept(version: str, story: str) -> None:
    driver: Any = upgraded(version, story)
    driver.osds.trouble = {'active_clean': 0, 'backfilling': 4}
    driver.minutes(0.25)
    found = driver.loop.jobs.watching.clients.pools
    assert found[1].read_baseline_ms == pytest.approx(1.0, rel=0.05)


# ---- probes

@pytest.mark.parametrize('version, story', having('probing'))
def test_nothing_of_a_probe_is_left(version: str, story: str) -> None:
    driver: Any = taken_over(version, story)
    assert not driver.cluster.is_untouched()
    driver.finish()
    assert driver.state(1) == 'failed' and driver.cluster.is_untouched()
    assert driver.loop._store.damaged == [] and driver.loop._store.losses == []


@pytest.mark.parametrize('version, story', having('probed'))
def test_probes_are_compared_with_a_baseline_of_before(
        version: str, story: str, monkeypatch: pytest.MonkeyPatch) -> None:
    driver: Any = upgraded(version, story)
    assert {run: row['state'] for run, row in driver.listed.items()} == {1: 'done'}
    assert [schedule.name for schedule in driver.loop.probed().schedules] == ['nightly']
    plain = probe_runs.result
    monkeypatch.setattr(probe_runs, 'result', lambda job, rates: plain(job, [30] * len(rates)))
    assert driver.give(REPEATED)['id'] == 2
    driver.finish()
    driver.judged()
    assert driver.listed[2]['verdict'] == 'slower than its baseline'


# ---- a newer version

def of_newer_layout(name: str, head: str) -> str:
    ours, theirs = ('"version": %d' % number for number in (STORE_VERSION, STORE_VERSION + 1))
    return head.replace(ours, theirs, 1)


def with_newer_field(name: str, head: str) -> str:
    """Fields are added without a new layout. Other documents are maps."""
    parsed = json.loads(head)
    if name in ('campaign', 'mitigation', 'await'):
        parsed['document']['more'] = 1
    return json.dumps(parsed)


@pytest.mark.parametrize('change, version, story', [
    pytest.param(change, *case.values, id='%s-%s' % (case.id, change.__name__))
    for change, stories in ((of_newer_layout, [*CAMPAIGNS, 'drained', 'replace', 'mitigation',
                                               'rescue']),
                            (with_newer_field, ['mitigation', 'affinity', 'await', 'rollback']))
    for case in having(*stories)])
def test_what_a_newer_version_has_left_is_kept_and_reported(
        change: Callable[[str, str], str], version: str, story: str) -> None:
    """Nothing is sent, nothing overwritten: an mgr of that version may become active again."""
    newer = {key: change(key[:-len('/head')], value) if key.endswith('/head') else value
             for key, value in RECORDED[version][story]['store'].items()}
    RECORDED['newer'] = {story: {**RECORDED[version][story], 'store': newer}}
    try:
        driver = taken_over('newer', story)
    finally:
        del RECORDED['newer']
    upmaps = driver.cluster.entries()
    driver.run(10)
    assert 'newer' in driver.cluster.checks['PERFGUARD_LOOP_FAILED']['summary']
    assert {key: driver.kv.data.get(key) for key in newer if key.endswith('/head')} == {
        key: value for key, value in newer.items() if key.endswith('/head')}
    assert driver.cluster.entries() == upmaps
    with pytest.raises(Refused, match='newer perfguard'):
        driver.order('drain', 'osd.1')


def test_the_recorder_records_what_is_read() -> None:
    """It is run once a version: it has to work when that is due."""
    assert set(recording.STORIES) == set(RECORDED[max(RECORDED)])
    driver = recording.STORIES['RELEASING']()
    kept = json.loads(json.dumps(recording.record(driver)))
    again = recording.cluster_from_json(kept['cluster'])
    assert json.loads(json.dumps(recording.cluster_to_json(again))) == kept['cluster']
