# SPDX-License-Identifier: LGPL-2.1-or-later
"""What perfguard reads of the state that cephadm stores, and what it does about it."""
import json
from dataclasses import replace
from typing import Any, Dict, List, Mapping, Optional, Sequence

import pytest

from perfguard.cluster.orchestrator import (HOSTS, KEYS, MGRS, ORCHESTRATOR_SECONDS, REMOVALS,
                                            UPGRADE, Orchestrating, OrchestratorReader,
                                            orchestrating)
from perfguard.errors import Refused

from ..fakes.cluster import FakeCluster
from ..fakes.driver import Driver, codes

#: As cephadm of Tentacle stores it, shortened.
STATE: Dict[str, Any] = {
    UPGRADE: {'target_name': '10.77.1.1:60500/ceph:b', 'progress_id': 'x', 'target_id': None,
              'error': None, 'paused': False, 'daemon_types': None},
    REMOVALS: [{'osd_id': 5, 'started': True, 'draining': True, 'stopped': False,
                'replace': False, 'hostname': 'h3'},
               {'osd_id': 4, 'started': False, 'draining': False}],
    HOSTS: {'h1': {'hostname': 'h1', 'labels': [], 'status': ''},
            'h2': {'hostname': 'h2', 'labels': [], 'status': 'maintenance'}},
    MGRS: {'spec': {'service_type': 'mgr', 'extra_container_args': [
        '--volume=/opt/perfguard/1/perfguard:/usr/share/ceph/mgr/perfguard:ro,z']}}}


def stored(**documents: Any) -> Dict[str, Optional[str]]:
    return {key: json.dumps({**STATE, **documents}[key]) for key in KEYS}


def test_what_cephadm_stores() -> None:
    found = orchestrating(stored())
    assert found == Orchestrating('10.77.1.1:60500/ceph:b', True, True, frozenset({5}),
                                  frozenset({'h2'}), hosts=frozenset({'h1', 'h2'}))
    assert len(found.remarks) == 3 and 'keeps perfguard' in found.remarks[0]
    assert 'stops perfguard' in replace(found, mounted=False).remarks[0]


def test_an_upgrade_of_osds_alone_does_not_concern_the_module() -> None:
    for kinds, text in ((['osd'], 'leaves the mgrs as they are'), (['mgr'], 'stops perfguard')):
        found = orchestrating(stored(**{
            UPGRADE: {**STATE[UPGRADE], 'daemon_types': kinds}, MGRS: None}))
        assert text in found.remarks[0]


def test_a_paused_upgrade_restarts_nothing() -> None:
    assert orchestrating(stored(**{UPGRADE: {**STATE[UPGRADE], 'paused': True}})).image == ''


@pytest.mark.parametrize('odd', [None, 7, 'x', [], [1], {}, {'h1': 3},
                                 [{'osd_id': 'x', 'started': True}],
                                 [{'osd_id': True, 'started': True}]])
def test_other_forms_are_ignored(odd: Any) -> None:
    assert orchestrating({key: json.dumps(odd) for key in KEYS}) == Orchestrating()
    assert orchestrating(dict.fromkeys(KEYS, '{')) == Orchestrating()
    assert orchestrating(dict.fromkeys(KEYS, '[' * 100000)) == Orchestrating()


@pytest.mark.parametrize('daemon_types, restarts', [
    (None, True), ([], True), (['mgr', 'osd'], True), (['mgr', 'mon'], False)])
def test_an_upgrade_of_other_daemons_restarts_no_osd(daemon_types: Any, restarts: bool) -> None:
    """An OSD that is down meanwhile has another reason, and stops no release."""
    found = orchestrating(stored(**{UPGRADE: {**STATE[UPGRADE], 'daemon_types': daemon_types}}))
    cluster = FakeCluster(hosts=6)
    cluster.flags.add('noout')
    driver = Driver(cluster)
    driver.to_releasing()
    cluster.take_down(0)
    cluster.orchestrator = found
    driver.ask('accept', code='DEGRADED')
    driver.run(5)
    assert found.image and ('UPGRADE' in codes(driver.status)) == restarts


def test_it_is_read_at_intervals_and_kept_while_the_mons_do_not_answer() -> None:
    now, answers, asked = [0.0], [stored()], []

    def read(keys: Sequence[str]) -> Mapping[str, Optional[str]]:
        asked.append(now[0])
        return answers[0]

    present: List[bool] = [True]
    reader = OrchestratorReader(lambda: present[0], read, lambda: now[0])
    assert reader().removing == {5} and reader().removing == {5} and asked == [0.0]
    now[0], answers[0] = ORCHESTRATOR_SECONDS, {}
    assert reader().removing == {5} and asked == [0.0, ORCHESTRATOR_SECONDS]
    now[0], present[0] = 2 * ORCHESTRATOR_SECONDS, False
    assert reader() == Orchestrating() and len(asked) == 2


def test_nothing_is_released_while_an_upgrade_restarts_an_osd() -> None:
    cluster = FakeCluster()
    cluster.add_waiting(2)
    cluster.tick()
    driver = Driver(cluster)
    driver.order('expand', weight='1.0')
    driver.run_to('RELEASING')
    cluster.orchestrator = Orchestrating('ceph:b', mounted=True)
    driver.run(3)
    assert driver.phase == 'RELEASING'
    assert any('ceph:b' in text for text in driver.loop.status()['reasons'])
    cluster.take_down(0)
    driver.run(2)
    assert driver.phase == 'HOLDING' and 'UPGRADE' in [
        row['code'] for row in driver.status['limits']]
    cluster.revive(0)
    driver.run_to('DONE')


def test_an_upgrade_that_waits_for_a_dead_osd_does_not_stop_a_campaign_for_good() -> None:
    driver = Driver(FakeCluster(hosts=6))
    driver.to_releasing()
    driver.cluster.orchestrator = Orchestrating('ceph:b', mounted=True)
    driver.cluster.flags.add('noout')
    driver.cluster.take_down(0)
    driver.ask('accept', code='DEGRADED')
    driver.run(60)
    released = driver.status['released']
    assert driver.phase == 'HOLDING'
    assert any('campaign accept UPGRADE' in row['text'] for row in driver.status['limits'])
    driver.ask('accept', code='UPGRADE')
    driver.run(120)
    assert driver.status['released'] > released


def test_orders_know_what_the_orchestrator_removes() -> None:
    cluster = FakeCluster()
    cluster.add_waiting(2)
    cluster.tick()
    driver = Driver(cluster)
    cluster.orchestrator = Orchestrating(removing=frozenset(cluster.new))
    driver.run(2)
    with pytest.raises(Refused, match='being removed by the orchestrator'):
        driver.order('expand', weight='1.0')
