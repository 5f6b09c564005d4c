# SPDX-License-Identifier: LGPL-2.1-or-later
"""Stories that end as they are recorded: what is sent to the mons, when, and what operators read.

A story that ends otherwise is no defect if that was the purpose of the change: record it again
(fakes/transcript.py says how), and read the difference.
"""
import re
import types
from dataclasses import replace
from pathlib import Path
from typing import Any, Callable, Dict, Optional

import pytest

from perfguard.rebalance.orders import AWAIT, Order
from perfguard.rebalance.plans import APPROVE, SAVE, PlanOrder
from perfguard.rebalance.replacing import REPLACE
from perfguard.rebalance.risks import RISKS
from perfguard.shutdown import ShutdownOrder

from .fakes.cluster import BALANCER, FakeCluster
from .fakes.driver import OPTIONS, Driver
from .fakes.ruled_cluster import RuledCluster
from .fakes.split_cluster import SplitCluster
from .fakes.transcript import Transcript
from .mitigation.test_controller import Mitigated
from .mitigation.test_rescue import hurt
from .rebalance.test_adopting import expanded as expanded_by_script
from .rebalance.test_phases import out_of_hours
from .test_crash_matrix import crush_map, mapped, mappings, ruled, small
from .watch.test_controller import Watched

#: Time windows are in local time.
pytestmark = pytest.mark.usefixtures('utc')
RECORDED = Path(__file__).parent / 'recorded' / 'transcripts'


class Told:
    """An operator, and a cluster that others use as well; what they do is in the transcript."""

    def __init__(self, driver: Driver) -> None:
        self.driver, self.cluster = driver, driver.cluster
        self.transcript = Transcript(driver)

    def order(self, verb: str, *names: str, **more: Any) -> 'Told':
        return self.give(Order(verb, names, **more), ' '.join((verb,) + names))

    def give(self, order: Any, said: str) -> 'Told':
        self.transcript.say(said)
        self.driver.give(order)
        return self

    def ask(self, verb: str, **more: Any) -> 'Told':
        self.transcript.say(' '.join([verb] + ['%s=%s' % item for item in more.items()]))
        self.driver.ask(verb, **more)
        self.driver.turn()
        return self

    def others(self, said: str, act: Callable[[Any], Any]) -> 'Told':
        self.transcript.say(said)
        act(self.cluster)
        return self

    def fail_over(self) -> 'Told':
        self.transcript.say('another mgr becomes active')
        self.driver.restart()
        return self

    def run(self, turns: int) -> 'Told':
        self.driver.run(turns)
        return self

    def until(self, done: Callable[[Any], bool], turns: int = 500) -> 'Told':
        self.driver.run_until(lambda: done(self.driver), turns)
        return self

    def to(self, phase: str) -> 'Told':
        return self.until(lambda driver: driver.phase == phase)

    def released(self, number: int) -> 'Told':
        return self.until(lambda driver: (driver.status.get('released') or 0) >= number)

    def done(self, campaign: int = 1) -> 'Told':
        self.until(lambda driver: any((row['id'], row['phase']) == (campaign, 'DONE')
                                      for row in driver.history))
        return self.run(3)


def expanding(released: int = 1, **options: Any) -> Told:
    """In mid-expansion."""
    options.setdefault('max_pgs_in_flight', 1)
    return Told(small(waiting=2, **options)).order('expand', weight='1.0').released(released)


def by_hand() -> Told:
    told = Told(small(max_pgs_in_flight=2)).ask('prepare').to('PREPARED')
    told.others('two OSDs get their CRUSH weight', lambda cluster: cluster.add_osds(2, 1.0))
    told.until(lambda driver: bool(driver.cluster.remapped()))
    return told.ask('pin').to('PINNED').ask('start').done()


def interrupted(said: str, begin: Callable[[Any], Any], then: str, end: Callable[[Any], Any],
                turns: int = 20, **options: Any) -> Callable[[], Told]:
    """An expansion during which something is done, and something else so many turns later."""
    return lambda: expanding(**options).others(said, begin).run(turns).others(then, end).done()


def trouble(**counts: int) -> Callable[[], Told]:
    return interrupted('trouble: %s' % counts, lambda cluster: cluster.trouble.update(counts),
                       'it is over', lambda cluster: cluster.trouble.clear())


def health(check: str) -> Callable[[], Told]:
    return interrupted(check, lambda cluster: cluster.health.update({check: 'as the mons say'}),
                       'it is over', lambda cluster: cluster.health.clear())


def switched(active: str) -> Callable[[Any], Any]:
    """The balancer."""
    return lambda cluster: cluster.config.update({BALANCER: active})


def out_of_window() -> Told:
    told = expanding()
    inside = told.driver.options
    told.transcript.say('the window closes')
    told.driver.options = out_of_hours(inside, told.cluster.now)
    told.run(15)
    told.transcript.say('it opens')
    told.driver.options = inside
    return told.done()


def refused_pins() -> Told:
    told = Told(small(waiting=2)).others(
        'the mons refuse upmaps', lambda cluster: cluster.refuse.update(
            {'osd pg-upmap-items': 'no', 'osd pg-upmap': 'no'}))
    told.order('expand', weight='1.0').run(60)
    told.others('they accept them', lambda cluster: cluster.refuse.clear())
    return told.until(lambda driver: driver.phase == 'PINNED').ask('start').done()


def adopted() -> Told:
    cluster, _, _ = expanded_by_script()
    cluster.flags.clear()
    return Told(Driver(cluster)).order('adopt').done()


def awaited() -> Told:
    driver = Driver(FakeCluster(), replace(OPTIONS, auto_expand_settle=20.0))
    told = Told(driver)
    told.transcript.say('expand --await')
    driver.loop.requests.submit(Order(AWAIT))
    told.run(10)
    told.others('3 OSDs boot', lambda cluster: cluster.add_waiting(3))
    return told.done()


def slow_clients() -> Told:
    driver = Watched()
    driver.cluster.backfill_seconds = 30.0
    told = Told(driver).ask('prepare')
    told.to('PREPARED').others('three hosts are added', lambda cluster: cluster.expand())
    told.until(lambda driver: bool(driver.cluster.remapped())).ask('pin').to('PINNED')
    told.ask('start').released(1)
    told.others('clients are 3 times as slow', lambda cluster: setattr(cluster, 'factor', 3.0))
    driver.minutes(3)
    told.others('they are as fast as before', lambda cluster: setattr(cluster, 'factor', 1.0))
    driver.minutes(20)
    assert driver.phase == 'DONE'
    return told


def watched(minutes: int, after: int, **options: Any) -> Told:
    """An OSD is slow for some minutes."""
    driver = Watched()
    driver.options = replace(driver.options, **options)
    told = Told(driver)
    told.others('osd.7 is 8 times as slow', lambda cluster: cluster.slow.update({7: 8.0}))
    driver.minutes(minutes)
    told.others('it is as fast as others', lambda cluster: cluster.slow.clear())
    driver.minutes(after)
    return told


def aborted_and(then: str, **more: Any) -> Callable[[], Told]:
    return lambda: expanding().ask('abort').to('ABORTED').run(3).ask(then, **more).done()


def replaced() -> Told:
    cluster = FakeCluster()
    cluster.add_waiting(1)
    cluster.tick()
    told = Told(Driver(cluster)).order('expand', weight='1.0').done()
    told.order(REPLACE, 'osd.8').done(2).run(45)
    told.others('osd.8 is destroyed', lambda cluster: (cluster.take_down(8), cluster.destroy(8)))
    told.run(45)
    told.others('osd.8 is created again', lambda cluster: cluster.create_again(8))
    return told.done(3).run(45)


def queued() -> Told:
    told = expanding()
    told.give(PlanOrder(SAVE, 'next', Order('drain', ('osd.3',))), 'plan save next drain osd.3')
    return told.give(PlanOrder(APPROVE, 'next'), 'plan approve next').done(2)


def imported() -> Told:
    driver = small()
    return Told(driver).give(mappings(driver.cluster), 'import').done()


def mitigated() -> Told:
    driver = Mitigated()
    told = Told(driver)
    told.others('PGs are remapped without a campaign', lambda cluster: driver.freeze()).run(3)
    told.others('PGs are laggy', lambda cluster: driver.trouble()).run(60)
    return told.others('it is over', lambda cluster: driver.trouble(False)).run(120)


def rescued() -> Told:
    told = Told(hurt())
    told.until(lambda driver: not driver.cluster.toofull()).run(20)
    told.others('osd.3 has room again', lambda cluster: (
        cluster.fullness.clear(), cluster.used.clear()))
    return told.run(400)


STORIES: Dict[str, Callable[[], Told]] = {
    'expand': lambda: Told(small(waiting=2)).order('expand', weight='1.0').done(),
    'expand-balanced': lambda: Told(small(
        waiting=2, target='balanced', max_extra_movement=100.0)).order(
            'expand', weight='1.0').done(),
    'expand-in-tranches': lambda: Told(small(
        waiting=2, pgs=10, max_pins=6, max_pgs_in_flight=16)).order(
            'expand', weight='1.0').done(),
    'expand-by-hand': by_hand,
    'expand-await': awaited,
    'balance': lambda: Told(Driver(RuledCluster(pgs=24))).give(
        Order('balance', max_movement='100%'), 'balance --max-movement 100%').done(),
    'expand-automatically': lambda: Told(small(auto_expand=True, auto_expand_settle=2.0)).others(
        'two OSDs get their CRUSH weight', lambda cluster: cluster.add_osds(2, 1.0)).done(),
    'drain-and-undrain': lambda: Told(small()).order('drain', 'osd.3').done().order(
        'undrain', 'osd.3').done(2),
    'replace': replaced,
    'rule': lambda: Told(ruled()).order('rule', 'rep', 'hosts-ssd').done(),
    'rule-least-moves': lambda: Told(ruled('hosts', 'balanced')).order(
        'rule', 'rep', 'racks').done(),
    'pg-num': lambda: Told(Driver(SplitCluster(pgs=8))).order('pg_num', 'rep', '16').done(),
    'crushmap': lambda: Told(small(waiting=2)).order(
        'crushmap', crush_map=crush_map()).done(),
    'crushmap-moves-first': lambda: Told(mapped()).order(
        'crushmap', crush_map=mapped().cluster.map_with({'hosts': 'racks'})).done(),
    'import': imported,
    'adopt': adopted,
    'plan-in-the-queue': queued,
    'pause-and-resume': lambda: expanding().ask('pause').to('HOLDING').run(5).ask(
        'resume').done(),
    'setting': lambda: expanding().ask('set', option='max_pgs_in_flight', value='3').done(),
    'abort-and-resume': aborted_and('resume'),
    'abort-and-keep': aborted_and('finish', keep=True),
    'rollback': lambda: expanding(3).order('rollback', accept=RISKS).done(),
    'rollback-of-tranches': lambda: expanding(5, pgs=10, max_pins=6, max_pgs_in_flight=16).order(
        'rollback', accept=RISKS).done(),
    'shutdown': lambda: expanding().give(ShutdownOrder(True), 'shutdown').run(30),
    'failover': lambda: expanding().fail_over().done(),
    'osd-dies': interrupted(
        'osd.5 goes down', lambda cluster: cluster.take_down(5),
        'osd.5 is up again', lambda cluster: cluster.revive(5), 10),
    'osd-is-marked-out': interrupted(
        'osd.5 goes down', lambda cluster: cluster.take_down(5),
        'osd.5 is marked out', lambda cluster: cluster.mark_out(5), 10),
    'norebalance-of-others': interrupted(
        'others set norebalance', lambda cluster: cluster.flags.add('norebalance'),
        'others clear it', lambda cluster: cluster.flags.discard('norebalance'), 12),
    'balancer-of-others': interrupted(
        'others switch the balancer on', switched('true'), 'and off again', switched('false'), 12),
    'laggy-pgs': trouble(laggy=3),
    'inactive-pgs': trouble(inactive=2),
    'degraded-pgs': trouble(degraded=3),
    'mon-disk-low': health('MON_DISK_LOW'),
    'mon-down': health('MON_DOWN'),
    'window-closes': out_of_window,
    'nearfull-targets': interrupted(
        'osd.8 and osd.9 are nearfull',
        lambda cluster: cluster.fullness.update({8: 'nearfull', 9: 'nearfull'}),
        'they are not', lambda cluster: cluster.fullness.clear(), max_pgs_in_flight=4),
    'refused-pins': refused_pins,
    'mitigation': mitigated,
    'rescue': rescued,
    'slow-clients': slow_clients,
    'slow-osd': lambda: watched(5, 5),
    'slow-osd-leads-less': lambda: watched(
        8, 30, mitigation_mode='act', mitigation_affinity=True),
}


@pytest.mark.parametrize('name', STORIES)
def test_a_story_ends_as_recorded(name: str) -> None:
    assert STORIES[name]().transcript.text == (RECORDED / (name + '.txt')).read_text()


def test_each_transcript_has_its_story() -> None:
    assert {path.stem for path in RECORDED.glob('*')} == set(STORIES)


def test_every_change_has_its_story(mgr_stub: types.ModuleType) -> None:
    from perfguard.cli.changes import CHANGE_TEXTS
    texts = '\n'.join(path.read_text() for path in RECORDED.glob('*'))
    assert {*CHANGE_TEXTS} <= {*re.findall(r's  > (\w+)', texts)}


def test_a_difference_is_noticed() -> None:
    def played(limit: Optional[int]) -> str:
        return Told(small(waiting=2, max_pgs_in_flight=limit)).order(
            'expand', weight='1.0').done().transcript.text

    assert played(4) == played(4) != played(2)
