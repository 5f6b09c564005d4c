# SPDX-License-Identifier: LGPL-2.1-or-later
"""The advice as the loop works it out, and as commands show and mute it."""
from concurrent import futures
from dataclasses import replace
from typing import Any, List

import pytest

from perfguard.advise.controller import (ADVISE_PATIENCE_SECONDS, EVERY_SECONDS, FIRST_SECONDS,
                                         SOON_SECONDS)
from perfguard.advise.report import ADVICE_FRESH_SECONDS, AdviseOrder, Facts, plain, to_json
from perfguard.advise.rules import findings
from perfguard.cluster.inventory import Inventory, OsdFacts, PoolFacts, client_releases
from perfguard.cluster.orchestrator import Orchestrating
from perfguard.errors import Refused
from perfguard.watch.controller import Watched
from perfguard.watch.load import Rates

from ..fakes.driver import Driver
from ..metrics import test_page

OFF = Inventory(balancer={'active': 'false'})
ELSEWHERE = Inventory(osds=(OsdFacts(0, host='h0', hostname='node7'),))


@pytest.fixture()
def driver() -> Driver:
    driver = Driver()
    driver.cluster.inventory_ = OFF
    return driver


def codes(driver: Driver) -> List[str]:
    return [row['code'] for row in to_json(driver.loop.advice())['findings']]


def order(driver: Driver, verb: str, code: str = '') -> Any:
    """As a command gives it."""
    pending = driver.loop.requests.submit(AdviseOrder(verb, code))
    driver.turn()
    if pending.refused is not None:
        raise pending.refused
    return pending.answer


def test_it_looks_when_osds_have_reported_and_then_now_and_then(driver: Driver) -> None:
    assert codes(driver) == [] and not driver.loop.advice().time
    assert '--refresh' in plain(to_json(driver.loop.advice()))
    driver.turn(FIRST_SECONDS)
    driver.turn()
    assert codes(driver) == ['BALANCER_OFF']
    driver.cluster.inventory_ = Inventory()
    driver.turn(EVERY_SECONDS / 2)
    driver.turn()
    assert codes(driver) == ['BALANCER_OFF']
    driver.turn(EVERY_SECONDS / 2)
    driver.turn()
    assert codes(driver) == []


@pytest.mark.parametrize('image, found, every', [
    ('', OFF, EVERY_SECONDS), ('ceph:next', OFF, SOON_SECONDS),
    ('', Inventory(version='1', installed='2'), SOON_SECONDS)])
def test_the_inventory_is_read_at_intervals(driver: Driver, monkeypatch: pytest.MonkeyPatch,
                                            image: str, found: Inventory, every: float) -> None:
    """Reading it in each turn would burden the mgr of a large cluster."""
    readings: List[float] = []

    def inventory(view: object) -> Inventory:
        readings.append(driver.cluster.now)
        return found
    monkeypatch.setattr(driver.cluster, 'inventory', inventory)
    driver.cluster.orchestrator = Orchestrating(image=image)
    for _ in range(720):
        driver.turn(5.0)
    assert 3600 / every - 2 <= len(readings) <= 3600 / every + 1


def test_it_looks_at_once_when_it_is_asked(driver: Driver) -> None:
    answer = order(driver, 'advise')
    assert [row['code'] for row in answer['findings']] == codes(driver) == ['BALANCER_OFF']
    driver.cluster.inventory_ = Inventory()
    assert order(driver, 'advise')['findings'] == []


def test_it_is_not_examined_again_and_again(driver: Driver) -> None:
    """Readers may order it all the time."""
    order(driver, 'advise')
    driver.cluster.inventory_ = Inventory()
    driver.cluster.tick(ADVICE_FRESH_SECONDS / 2)
    assert [row['code'] for row in driver.loop.advise()['findings']] == ['BALANCER_OFF']
    driver.cluster.tick(ADVICE_FRESH_SECONDS / 2)
    with futures.ThreadPoolExecutor() as pool:
        answer = pool.submit(driver.loop.advise)
        while not answer.done():
            driver.loop.turn()
    assert answer.result()['findings'] == []


def test_muted_codes_survive_a_failover(driver: Driver) -> None:
    order(driver, 'advise')
    assert order(driver, 'advise mute', 'BALANCER_OFF')['findings'] == []
    driver.restart()
    assert to_json(driver.loop.advice())['muted'] == ['BALANCER_OFF']
    answer = order(driver, 'advise')
    assert (answer['findings'], answer['muted']) == ([], ['BALANCER_OFF'])
    assert 'muted: BALANCER_OFF' in plain(answer)
    order(driver, 'advise unmute', 'BALANCER_OFF')
    assert codes(driver) == ['BALANCER_OFF']


@pytest.mark.parametrize('verb, code', [
    ('advise mute', 'NONESUCH'), ('advise unmute', 'BALANCER_OFF')])
def test_codes_that_are_refused(driver: Driver, verb: str, code: str) -> None:
    with pytest.raises(Refused):
        order(driver, verb, code)


def test_osds_that_may_move_are_asked(driver: Driver) -> None:
    driver.cluster.inventory_ = ELSEWHERE
    driver.cluster.osd_shows.update({'osd_crush_update_on_start': 'true', 'crush_location': ''})
    order(driver, 'advise')
    assert codes(driver) == ['CRUSH_LOCATION']


def test_osds_that_do_not_answer_are_left_out(driver: Driver) -> None:
    driver.cluster.inventory_ = replace(OFF, osds=ELSEWHERE.osds)
    driver.cluster.mute = True
    answer = order(driver, 'advise')
    assert answer['findings'] == [] and answer['remarks']
    driver.turn(ADVISE_PATIENCE_SECONDS)
    driver.turn()
    assert codes(driver) == ['BALANCER_OFF']


def test_a_failure_does_not_stop_the_loop(driver: Driver) -> None:
    order(driver, 'advise')
    setattr(driver.cluster, 'inventory', lambda view: 1 / 0)
    answer = order(driver, 'advise')
    assert 'ZeroDivisionError' in answer['remarks'][0]
    assert codes(driver) == ['BALANCER_OFF']


def test_what_the_mons_do_not_answer_is_said(driver: Driver) -> None:
    driver.cluster.inventory_ = Inventory(config=None)
    assert 'config dump' in order(driver, 'advise')['remarks'][0]


def test_what_the_watch_and_probes_have_measured_is_used(driver: Driver) -> None:
    """Without the shares that may be wrong by more than their bounds."""
    jobs, sizes = driver.loop.jobs, Rates(0.0, 4000.0, 0.0, 4e3 * 65536)
    inventory = Inventory(pools=(PoolFacts(3, 'rbd'),))
    jobs.probing.probed = test_page.measured()
    busy = test_page.USE._replace(busiest=Rates(0.0, 15000.0))
    driver.cluster.inventory_ = inventory
    for use, expected in ((busy, ['POOL_CAPACITY']), (busy._replace(now=sizes), [])):
        jobs.watching.watched = Watched(osds=(test_page.OSD,), uses=(use,))
        measured = jobs.measured(driver.cluster.now)
        assert measured.slowdowns == {7: 2.5}
        assert [finding.rule.code for finding in findings(Facts(
            inventory, measured=measured))] == expected


def test_plain_text(driver: Driver) -> None:
    text = plain(order(driver, 'advise'))
    assert text.startswith('BALANCER_OFF (warning)\n  seen:   the balancer is off\n')
    assert '  fix:    ceph perfguard balance --dry-run ' in text and '\n1 finding, as of ' in text
    assert max(map(len, text.splitlines())) <= 100


def test_clients_of_a_release_are_added_up() -> None:
    assert client_releases('{"client": [{"release": "luminous", "num": 2, "features": "0x1"}, '
                           '{"release": "luminous", "num": 1, "features": "0x2"}]}') == {
                               'luminous': 3}
    assert client_releases('') == {}
