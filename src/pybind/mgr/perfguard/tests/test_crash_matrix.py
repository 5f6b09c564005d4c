# SPDX-License-Identifier: LGPL-2.1-or-later
"""The mgr dies before each write and each command of every story, and all ends as ordered.

PERFGUARD_CRASHES=1 tries every instant of every story, and that with a second crash, with an OSDMap
that is late, and with commands of the dead mgr that reach the mons late.
"""
import json
import os
import random
import types
from dataclasses import replace
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence

import pytest

from perfguard.errors import Refused
from perfguard.rebalance.campaign import Campaign
from perfguard.rebalance.campaign_store import CampaignStore
from perfguard.rebalance.change import ChangeStage
from perfguard.rebalance.orders import AWAIT, Order
from perfguard.rebalance.plans import APPROVE, SAVE, PlanOrder
from perfguard.rebalance.replacing import REPLACE
from perfguard.rebalance.risks import RISKS
from perfguard.shutdown import ShutdownOrder

from .fakes.crash_play import CrashPlay, CrashStory, Step, asked, ordered, unlike, waited
from .fakes.driver import OPTIONS, Driver
from .fakes.ruled_cluster import RULES, RuledCluster
from .fakes.split_cluster import SplitCluster
from .fakes.straw_cluster import AuditedCluster
from .rebalance.test_adopting import pin_by_script
from .rebalance.test_map_change import MappedCluster
from .rebalance.test_mappings import a_pair, text

ALL = bool(os.environ.get('PERFGUARD_CRASHES'))
#: Instants of each story in the quick tier.
SAMPLE = 3


@pytest.fixture(autouse=True)
def small_bursts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr('perfguard.rebalance.joining.MAX_BURST_PINS', 8)
    # Pins and goals are stored over several turns.
    monkeypatch.setattr('perfguard.rebalance.campaign_store.PART_BYTES', 120)
    monkeypatch.setattr('perfguard.rebalance.campaign_store.STORING_SECONDS', -1.0)


def small(lag: int = 0, waiting: int = 0, pgs: int = 6, **options: Any) -> Driver:
    """8 OSDs with PGs of two pools, an upmap of others, and OSDs that wait for their weight."""
    cluster = AuditedCluster(pgs=pgs, lag=lag)
    others_upmap(cluster)
    if waiting:
        cluster.add_osds(waiting, 0.0)
    cluster.tick(5.0)
    return Driver(cluster, replace(OPTIONS, **options))


def others_upmap(cluster: AuditedCluster) -> None:
    for pgid, pg in sorted(cluster.pg.items()):
        spare = [osd for osd in cluster.toys if osd not in pg.mon.raw]
        if spare and pgid.startswith('1.'):
            cluster.add_upmap(pgid, pg.mon.raw[0], spare[0])
            return


def phase(*names: str) -> Callable[[Driver], bool]:
    return lambda driver: driver.phase in names


def ended(number: int = 1) -> Callable[[Driver], bool]:
    return lambda driver: any((row['id'], row['phase']) == (number, 'DONE')
                              for row in driver.history)


def begun(number: int = 1) -> Callable[[Driver], bool]:
    return lambda driver: any(row['id'] >= number for row in driver.history) or (
        driver.status.get('id') or 0) >= number


def has_stored_pins(driver: Driver) -> bool:
    return begun()(driver) and not driver.loop.rebalance.campaigns.storing


def moving(driver: Driver) -> bool:
    return bool(driver.status.get('released'))


def second_tranche(driver: Driver) -> bool:
    return (driver.status.get('tranche') or 0) > 1


def grow(driver: Driver) -> None:
    if len(driver.cluster.toys) == 8:
        driver.cluster.add_osds(2, 1.0)  # type: ignore[attr-defined]


def remapped(driver: Driver) -> bool:
    return len(driver.cluster.toys) > 8 and bool(driver.cluster.remapped()) and all(
        pg.peering_until is None for pg in driver.cluster.pg.values())


def rolling_back(driver: Driver) -> bool:
    campaign = driver.loop.rebalance.campaign
    return ended()(driver) or campaign.rollback.begun or campaign.rollback.wanted is not None


def boot(driver: Driver) -> None:
    if len(driver.cluster.toys) == 8:
        driver.cluster.add_osds(2, 0.0)  # type: ignore[attr-defined]


def awaits(driver: Driver) -> bool:
    return driver.loop.rebalance.awaiting.waits or begun()(driver)


def awaits_no_more(driver: Driver) -> bool:
    return not driver.loop.rebalance.awaiting.unfinished


BY_HAND = [asked('prepare', phase('PREPARED')), Step(grow, remapped)]
PINNED = [*BY_HAND, asked('pin', phase('PINNED'))]
MOVING = [*PINNED, asked('start', moving)]
EXPAND = Order('expand', weight='1.0')
EXPANDED = [ordered(EXPAND, begun()), waited(moving)]


def crush_map() -> bytes:
    return json.dumps({osd: 1.0 for osd in range(10)}).encode()


def mappings(cluster: Any) -> Order:
    """Takes PGs to hosts without one of their OSDs."""
    return Order('import', mappings=text([a_pair(cluster, pgid)
                                          for pgid in ('1.3', '1.4', '2.1', '2.3')]))


def ruled(start: str = 'hosts-hdd', target: str = 'crush') -> Driver:
    names = [rule.name for rule in RULES]
    return Driver(RuledCluster(rule=names.index(start), pgs=5), replace(OPTIONS, target=target))


def ruled_evenly() -> Driver:
    return ruled('hosts')


def split(pgs: int, lag: int) -> Callable[[], Driver]:
    return lambda: Driver(SplitCluster(pgs=pgs, lag=lag), OPTIONS)


def adopting() -> Driver:
    cluster = AuditedCluster(pgs=6)
    cluster.flags.add('norebalance')
    cluster.add_osds(2, 1.0)
    pin_by_script(cluster)
    cluster.flags.clear()
    return Driver(cluster, OPTIONS)


def stories(lag: int = 0) -> List[CrashStory]:
    def driver(**more: Any) -> Callable[[], Driver]:
        return lambda: small(lag, **more)

    return [
        CrashStory('campaign', driver(), [*MOVING, waited(ended())]),
        CrashStory('balanced', driver(target='balanced', max_extra_movement=100.0), [
            *MOVING, waited(ended())]),
        CrashStory('pause and resume', driver(), [
            *MOVING, asked('pause', lambda d: bool(d.status.get('paused'))),
            waited(phase('HOLDING')),
            asked('resume', lambda d: not d.status.get('paused')), waited(ended())]),
        CrashStory('settings', driver(), [
            *PINNED, asked('set', lambda d: bool(d.status.get('settings')),
                           option='max_pgs_in_flight', value='2'),
            asked('start', moving), waited(ended())]),
        CrashStory('abort', driver(max_pgs_in_flight=1), [
            *MOVING, asked('abort', phase('ABORTED'))], timing=True, returns=True),
        CrashStory('abort and resume', driver(max_pgs_in_flight=1), [
            *MOVING, asked('abort', phase('ABORTED')),
            asked('resume', phase('RELEASING', 'DONE')), waited(ended())], returns=True),
        CrashStory('abort and keep', driver(max_pgs_in_flight=1), [
            *MOVING, asked('abort', phase('ABORTED')), asked('finish', ended(), keep=True)],
            timing=True, returns=True),
        CrashStory('taken over', driver(max_pgs_in_flight=1), [
            *MOVING, asked('abort', phase('ABORTED')), asked('prepare', phase('PREPARED')),
            asked('pin', phase('PINNED')), asked('start', phase('RELEASING', 'HOLDING', 'DONE')),
            waited(ended(2))], returns=True),
        CrashStory('import', driver(), [ordered(
            mappings(small(lag).cluster), has_stored_pins), waited(ended())]),
        CrashStory('expand', driver(waiting=2), [*EXPANDED, waited(ended())]),
        CrashStory('await', driver(auto_expand_settle=2.0), [
            ordered(Order(AWAIT, weight='1.0'), awaits), Step(boot, begun()), waited(ended())]),
        CrashStory('await and abort', driver(auto_expand_settle=60.0), [
            ordered(Order(AWAIT), awaits), Step(boot, lambda d: len(d.cluster.toys) > 8),
            asked('abort', awaits_no_more)]),
        CrashStory('expand in bursts', driver(waiting=6, pgs=24, max_pgs_in_flight=16),
                   [*EXPANDED, waited(ended())]),
        CrashStory('expand in tranches', driver(
            waiting=2, pgs=10, max_pins=6, max_pgs_in_flight=16), [*EXPANDED, waited(ended())]),
        CrashStory('drain in tranches', driver(pgs=10, max_pins=4, max_pgs_in_flight=16), [
            ordered(Order('drain', ('osd.3',)), begun()), waited(ended())]),
        CrashStory('tranches, abort and resume', driver(waiting=2, pgs=10, max_pins=6), [
            *EXPANDED, waited(second_tranche), asked('abort', phase('ABORTED')),
            asked('resume', phase('PINNING', 'PINNED', 'RELEASING', 'DONE')), waited(ended())],
            returns=True),
        CrashStory('tranches and rollback', driver(waiting=2, pgs=10, max_pins=6), [
            *EXPANDED, waited(second_tranche),
            ordered(Order('rollback', accept=RISKS), rolling_back),
            waited(ended())], returns=True),
        CrashStory('rollback', driver(waiting=2, max_pgs_in_flight=1), [
            *EXPANDED, ordered(Order('rollback'), rolling_back),
            waited(ended())], returns=True),
        CrashStory('drain', driver(), [
            ordered(Order('drain', ('osd.3',)), begun()), waited(ended())]),
        CrashStory('drain and undrain', driver(), [
            ordered(Order('drain', ('osd.3',)), begun()), waited(ended()),
            ordered(Order('undrain', ('osd.3',)), begun(2)), waited(ended(2))], returns=True),
        CrashStory('crushmap', driver(waiting=2), [
            ordered(Order('crushmap', crush_map=crush_map()), begun()), waited(ended())]),
        CrashStory('crushmap, PGs move first', mapped, [
            ordered(Order('crushmap', crush_map=mapped().cluster.map_with({'hosts': 'racks'})),
                    begun()), waited(ended())]),
        CrashStory('pg_num', split(8, lag), [
            ordered(Order('pg_num', ('rep', '12')), begun()), waited(ended())]),
        CrashStory('pg_num, merges', split(8, lag), [
            ordered(Order('pg_num', ('rep', '6')), begun()), waited(ended())], returns=True),
        CrashStory('adopt', adopting, [ordered(Order('adopt'), has_stored_pins),
                                       waited(ended())]),
        CrashStory('plan', driver(waiting=2), [
            ordered(PlanOrder(SAVE, 'p', EXPAND), lambda d: bool(plans(d)) or begun()(d)),
            ordered(PlanOrder(APPROVE, 'p'), begun()), waited(ended())]),
        CrashStory('queued plan', driver(waiting=2), [
            *EXPANDED, ordered(PlanOrder(SAVE, 'p', Order('drain', ('osd.3',))),
                               lambda d: bool(plans(d)) or begun(2)(d)),
            ordered(PlanOrder(APPROVE, 'p'), lambda d: begun(2)(d) or any(
                plan.approved for plan in plans(d))), waited(ended(2))], returns=True),
        CrashStory('auto_expand', driver(auto_expand=True, auto_expand_settle=2.0), [
            Step(grow, begun()), waited(ended())]),
        CrashStory('shutdown', driver(waiting=2), [
            *EXPANDED, ordered(ShutdownOrder(True), lambda d: d.loop.shutdown.done)], timing=True,
            returns=True),
        CrashStory('rule', ruled, [ordered(Order('rule', ('rep', 'hosts-ssd')), begun()),
                                   waited(ended())]),
        CrashStory('balance', ruled_evenly, [
            ordered(Order('balance', max_movement='100%'), begun()), waited(ended())]),
        CrashStory('balance and rollback', ruled_evenly, [
            ordered(Order('balance', max_movement='100%'), begun()), waited(moving),
            ordered(Order('rollback'), rolling_back), waited(ended())], returns=True),
        CrashStory('rule, least moves', lambda: ruled('hosts', 'balanced'), [
            ordered(Order('rule', ('rep', 'racks')), begun()), waited(ended())]),
    ]


def plans(driver: Driver) -> Any:
    return driver.loop.rebalance.plans.saved.all()


def mapped() -> Any:
    return Driver(MappedCluster(pgs=5), replace(OPTIONS, target='balanced'))


STORIES = {story.name: story for story in stories()}


def wrong(story: CrashStory, count: Optional[int], again: bool = False,
          late: float = 0.0) -> Dict[int, str]:
    """Instant -> what was wrong in the end, of `count` instants at most."""
    without = CrashPlay(story, late=late).play()
    ending, choice = without.ending(), random.Random(story.name)
    instants = range(1, without.count + 1)
    chosen = instants if count is None else sorted(choice.sample(instants, count))
    print('%s: %d of %d instants' % (story.name, len(chosen), without.count))
    found = {at: unlike(story, ending, at, again=choice.randint(1, 40) if again else None,
                        late=late) for at in chosen}
    return {at: text for at, text in found.items() if text is not None}


@pytest.mark.timeout(1800)
@pytest.mark.parametrize('name', STORIES)
def test_a_crash_at_any_instant_changes_nothing_in_the_end(name: str) -> None:
    assert wrong(STORIES[name], None if ALL else SAMPLE) == {}


@pytest.mark.timeout(1800)
@pytest.mark.parametrize('name', STORIES)
def test_two_crashes_with_commands_that_arrive_late(name: str) -> None:
    """The mgr's OSDMap is two seconds old, and so are the commands of a dead mgr on arrival."""
    story = {story.name: story for story in stories(lag=2)}[name]
    assert wrong(story, None if ALL else 1, again=True, late=2.0) == {}


@pytest.mark.timeout(1800)
@pytest.mark.parametrize('name', STORIES)
def test_the_clock_of_the_next_mgr_differs(name: str) -> None:
    story = STORIES[name]
    without = CrashPlay(story).play()
    ending = without.ending()
    for seconds in (3600.0, -3600.0):
        turns = range(1, without.turns) if ALL else random.Random(name).sample(
            range(1, without.turns), 1)
        print('%s, %+d s: %d of %d turns' % (name, seconds, len(turns), without.turns - 1))
        found = {turn: unlike(story, ending, None, jump=(turn, seconds)) for turn in turns}
        assert {turn: text for turn, text in found.items() if text is not None} == {}


def test_every_change_has_a_story(mgr_stub: types.ModuleType) -> None:
    from perfguard.cli.changes import CHANGE_TEXTS
    orders = [step.order for story in STORIES.values() for step in story.steps]
    # A replacement is a drain, and an expansion later: tests/rebalance/test_replacing.py.
    assert {*CHANGE_TEXTS} - {getattr(order, 'verb', '') for order in orders} == {REPLACE}


# ---- instants that mattered

class Died(Exception):
    """The mgr ends where it is raised."""


def die(*args: Any) -> None:
    raise Died


def test_a_plan_that_has_begun_is_not_kept_by_a_crash(monkeypatch: pytest.MonkeyPatch) -> None:
    driver = small(waiting=2)
    driver.give(PlanOrder(SAVE, 'p', EXPAND))
    with monkeypatch.context() as patch:
        patch.setattr(driver.loop.rebalance.plans.saved, 'remove', die)
        with pytest.raises(Refused):
            driver.give(PlanOrder(APPROVE, 'p'))
    driver.restart()
    driver.turn()
    assert driver.status['id'] == 1 and not plans(driver)
    # Another plan of that name is another plan.
    driver.give(PlanOrder(SAVE, 'p', Order('drain', ('osd.3',))))
    driver.restart()
    driver.turn()
    assert [plan.name for plan in plans(driver)] == ['p']


def test_a_campaign_is_filed_before_the_next_one_begins(monkeypatch: pytest.MonkeyPatch) -> None:
    driver = small(waiting=2)
    driver.order('expand', weight='1.0')
    driver.run_until(lambda: moving(driver))
    driver.give(PlanOrder(SAVE, 'p', Order('drain', ('osd.3',))))
    driver.give(PlanOrder(APPROVE, 'p'))
    put = driver.loop._store.put
    monkeypatch.setattr(driver.loop._store, 'put', lambda name, document: die() if name == 'history'
                        else put(name, document))
    with pytest.raises(Died):
        driver.run(100)
    driver.restart()
    driver.run_until(lambda: driver.status.get('id') == 2)
    assert [(row['id'], row['phase']) for row in driver.history] == [(1, 'DONE')]
    driver.run_until(lambda: ended(2)(driver))
    assert driver.cluster.progress_events == {}


def test_auto_expand_notices_a_change_that_comes_during_a_failover() -> None:
    driver = small(auto_expand=True, auto_expand_settle=2.0)
    driver.run(3)
    driver.restart()
    grow(driver)
    driver.cluster.tick(1.0)
    driver.run(3)
    assert driver.status['trigger'] == 'auto'


def test_auto_expand_notices_a_change_though_the_next_mgr_has_another_clock() -> None:
    story = STORIES['auto_expand']
    ending = CrashPlay(story).play().ending()
    assert unlike(story, ending, None, jump=(2, 3600.0)) is None


def in_bursts() -> Driver:
    """An expansion in several bursts, of which later ones pin PGs anew, is about to begin."""
    driver = small(waiting=6, pgs=24, max_pgs_in_flight=16)
    driver.order('expand', weight='1.0')
    return driver


def is_filled(driver: Driver) -> None:
    """The new OSDs are, and no pin has become an upmap without an owner."""
    driver.run_until(lambda: ended()(driver), 700)
    cluster = driver.cluster
    found = [event['what'] for event in driver.loop.published.events if event['kind'] == 'pins']
    assert found == [] and cluster.clean()
    assert set(cluster.entries()) <= {'1.0'}  # by others_upmap


@pytest.mark.parametrize('burst', range(1, 7))
def test_a_crash_between_the_pins_of_a_burst_and_the_campaign(
        monkeypatch: pytest.MonkeyPatch, burst: int) -> None:
    """The pins that a burst replaces are still in the OSDMap, and the campaign's own."""
    driver, save, bursts = in_bursts(), CampaignStore.save, [0]

    def save_or_die(self: CampaignStore, campaign: Campaign, sending: bool = True) -> None:
        change, before = campaign.change, self._saved and self._saved.change
        if change and before and before.stage is ChangeStage.WANTED and \
                change.stage is ChangeStage.SENT:
            bursts[0] += 1
            if bursts[0] == burst:
                raise Died
        save(self, campaign, sending)

    monkeypatch.setattr(CampaignStore, 'save', save_or_die)
    with pytest.raises(Died):
        driver.run(100)
    driver.cluster.tick()
    driver.restart()
    is_filled(driver)


@pytest.mark.parametrize('new_map', [False, True])
@pytest.mark.parametrize('burst', range(1, 7))
def test_the_mons_do_not_say_once_that_they_have_the_pins_of_a_burst(
        burst: int, new_map: bool) -> None:
    driver = in_bursts()
    cluster, stored, bursts = driver.cluster, driver.cluster.stored, [0]

    def unsaid(keys: Sequence[str]) -> Mapping[str, Optional[str]]:
        change = driver.loop.rebalance.campaign.change
        if change is not None and change.stage is ChangeStage.SENT \
                and any(key.startswith('pins/') for key in keys):
            bursts[0] += 1
            if bursts[0] == burst:
                cluster.epoch += new_map
                return {}
        return stored(keys)

    setattr(cluster, 'stored', unsaid)
    is_filled(driver)
    assert bursts[0] >= burst


def test_pins_of_a_rollback_that_arrive_late_are_still_known() -> None:
    """Nothing else would remove them."""
    story = STORIES['rollback']
    play = CrashPlay(story, late=2.0)
    weights: List[int] = []
    apply = play.cluster._apply

    def note(command: Any) -> Any:
        if command['prefix'] == 'osd crush reweight' and play.crashes == 0:
            weights.append(play.cluster.fault.count)
        return apply(command)

    setattr(play.cluster, '_apply', note)
    ending = play.play().ending()
    # Dead after the weights were sent back, before the pins.
    assert unlike(story, ending, weights[-1] + 1, late=2.0) is None
