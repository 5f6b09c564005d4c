# SPDX-License-Identifier: LGPL-2.1-or-later
"""PGs that are remapped and not pinned: they move outside all caps unless norebalance is set."""
from dataclasses import replace
from typing import Any, Callable, Iterable, List

import pytest

from perfguard.cluster.crush import CrushRules
from perfguard.cluster.types import Placement
from perfguard.errors import Refused
from perfguard.metrics.page import campaign_samples
from perfguard.options import Options
from perfguard.rebalance.pinning import pinned_once_recovered
from perfguard.rebalance.risks import RISKS
from perfguard.rebalance.types import Phase

from ..fakes.cluster import FakeCluster, FakeReply
from ..fakes.driver import OPTIONS, Driver, codes
from ..fakes.mon_model import HOLE, ToyMon
from ..fakes.straw_cluster import StrawCluster
from .test_joining import waiting
from .test_phases import Machine, expanded, out_of_hours, pinned, prepared, releasing


def everything(machine: Machine) -> None:
    """A host fails: each OSD has a degraded PG."""
    machine.cluster.degraded = set(machine.cluster.pg)
    machine.cluster.report()


def recovered(machine: Machine) -> None:
    machine.cluster.degraded = set()
    machine.cluster.report()


def test_degraded_pgs_are_pinned_and_nothing_is_released_until_they_have_recovered() -> None:
    machine = expanded()
    cluster = machine.cluster
    everything(machine)
    machine.ask('pin')
    machine.to(Phase.PINNED)
    assert len(machine.pins) == 12 and not machine.campaign.pinning.unpinnable
    machine.ask('start')
    for _ in range(30):
        machine.turn()
    assert machine.campaign.phase is Phase.HOLDING and not cluster.moved
    recovered(machine)
    machine.to(Phase.DONE)
    assert cluster.most_moving <= 4


def test_pgs_that_recover_from_a_lost_osd_raise_no_alarm() -> None:
    """There is nothing to do about them, least of all to abort the campaign."""
    driver = Driver(FakeCluster(backfill_seconds=30.0), replace(OPTIONS, max_pgs_in_flight=1))
    driver.to_releasing()
    driver.cluster.take_down(5)
    driver.run(5)
    driver.cluster.mark_out(5)
    driver.run_until(lambda: len(driver.status['unpinnable']) > 4)
    while driver.status['unpinnable']:
        assert 'DEGRADED' in codes(driver.status)
        assert 'PERFGUARD_UNPINNABLE' not in driver.cluster.checks
        samples = campaign_samples(driver.loop.published.rebalanced)['campaign_pgs']
        assert ('state="unpinnable"', 0) in samples
        driver.turn()


def test_pgs_that_are_not_reported_as_degraded_raise_no_alarm_while_they_lack_an_osd() -> None:
    """Those without objects never are, and the others only with the next report of their OSDs."""
    driver = Driver(FakeCluster(backfill_seconds=30.0), replace(OPTIONS, max_pgs_in_flight=1))
    driver.cluster.empty = set(driver.cluster.pg)
    driver.to_releasing()
    driver.cluster.take_down(5)
    driver.run(5)
    driver.cluster.mark_out(5)
    driver.run_until(lambda: driver.status['unpinnable'])
    while driver.status['unpinnable']:
        assert 'PERFGUARD_UNPINNABLE' not in driver.cluster.checks
        driver.turn()
    assert driver.phase == 'RELEASING'


def test_a_pg_that_an_osd_serves_in_place_of_another_that_is_down_is_not_pinned(
        monkeypatch: pytest.MonkeyPatch) -> None:
    """It has left that OSD, which has still its data. Once clean there, a PG that is pinned to it
    would lose its copy on the OSD that is down, and move a second time."""
    driver = Driver(FakeCluster(backfill_seconds=4.0), OPTIONS)
    cluster, before = driver.cluster, {pgid: pg.data for pgid, pg in driver.cluster.pg.items()}
    driver.to_releasing()
    driver.run_until(lambda: any(moved.pgid.startswith('1.') for moved in cluster.moved))
    pgid = next(moved.pgid for moved in cluster.moved if moved.pgid.startswith('1.'))
    pg, backfills = cluster.pg[pgid], cluster._backfills
    left = next(osd for osd in before[pgid] if osd not in pg.data)
    down = next(osd for osd in before[pgid] if osd in pg.data)
    with monkeypatch.context() as patch:
        patch.setattr(cluster, '_backfills',
                      lambda name, other: name != pgid and backfills(name, other))
        pg.data = (*pg.data, left)
        cluster.take_down(down)
        driver.run_until(lambda: left in cluster.map_view().osdmap.pg_temp.get(pgid, ()))
        for _ in range(20):
            driver.turn()
            assert 'PERFGUARD_UNPINNABLE' not in cluster.checks and not cluster.entries().get(pgid)
        pg.data = pg.data[:-1]
    cluster.revive(down)
    driver.run_to('DONE')
    assert [moved.pgid for moved in cluster.moved].count(pgid) == 1


@pytest.mark.parametrize('phase', [Phase.PINNED, Phase.HOLDING, Phase.RELEASING])
def test_degraded_pgs_of_a_later_change_are_pinned(phase: Phase) -> None:
    machine = pinned() if phase is Phase.PINNED else releasing()
    cluster = machine.cluster
    machine.until(lambda: not machine.campaign.flights.in_flight or phase is not Phase.HOLDING)
    moved = len(cluster.moved)
    everything(machine)
    cluster.expand(share=1)
    machine.until(lambda: len(cluster.remapped()) > 12)
    machine.turn()
    cluster.most_moving = 0  # an unannounced change moves data until it is seen
    machine.until(lambda: not cluster.remapped())
    assert not machine.campaign.pinning.unpinnable
    assert len(cluster.moved) - moved <= 4, 'only what was released before'
    recovered(machine)
    if phase is Phase.PINNED:
        machine.ask('start')
    machine.to(Phase.DONE)
    assert cluster.most_moving <= 4


@pytest.mark.parametrize('out', [False, True])
def test_what_pgs_have_left_is_pinned_while_an_osd_is_lost(out: bool) -> None:
    """A degraded PG backfills in spite of norebalance: to the OSDs of the expansion as well."""
    machine = expanded()
    cluster = machine.cluster
    cluster.backfill_seconds = 1e6
    cluster.take_down(0)
    if out:
        cluster.mark_out(0)
    cluster.tick(5.0)
    lacking = {pgid: set(pg.data) - {0} for pgid, pg in cluster.pg.items() if 0 in pg.data}
    assert any(not held <= set(cluster.pg[pgid].mon.up()) for pgid, held in lacking.items())
    machine.ask('pin')
    machine.until(lambda: all(held <= set(cluster.pg[pgid].up) for pgid, held in lacking.items()),
                  turns=10)
    for _ in range(5):
        machine.turn()
    assert all(held <= set(cluster.pg[pgid].up) for pgid, held in lacking.items())
    assert set(machine.campaign.pinning.unpinnable) <= set(cluster.remapped())
    cluster.backfill_seconds = 4.0
    cluster.revive(0)
    machine.until(lambda: not machine.campaign.pinning.unpinnable and not cluster.remapped())
    machine.to(Phase.PINNED)
    machine.ask('start')
    machine.to(Phase.DONE)
    assert not cluster.entries()


def held_up(phase: Phase) -> Machine:
    """An OSD is lost while norebalance is set, and PGs without objects have the reservations."""
    machine = prepared() if phase is Phase.PREPARED else expanded() \
        if phase is Phase.PINNING else releasing()
    cluster = machine.cluster
    if phase is Phase.HOLDING:
        machine.ask('pause')
        machine.to(Phase.HOLDING)
    cluster.empty = {pgid for pgid, pg in cluster.pg.items() if pgid.startswith('1.')
                     and 0 in pg.data}
    cluster.take_down(0)
    cluster.mark_out(0)
    if phase is Phase.PINNING:
        machine.ask('pin')
    machine.until(lambda: cluster.report_now().degraded_waiting > 0)
    return machine


@pytest.mark.parametrize('phase', [Phase.PREPARED, Phase.PINNING, Phase.HOLDING])
def test_norebalance_gives_way_to_recovery_behind_pgs_without_objects(phase: Phase) -> None:
    machine = held_up(phase)
    cluster = machine.cluster
    machine.until(lambda: not cluster.report_now().degraded, turns=60)
    machine.until(lambda: not machine.campaign.holds.blocked and 'norebalance' in cluster.flags)
    assert machine.campaign.active


def lost_without_objects(machine: Machine) -> None:
    """An OSD of which no PG has objects is marked out."""
    cluster = machine.cluster
    cluster.empty = {pgid for pgid, pg in cluster.pg.items() if 0 in pg.data}
    cluster.take_down(0)
    cluster.mark_out(0)
    machine.until(lambda: cluster.report_now().undersized_empty > 0)
    assert not cluster.report_now().degraded


def test_norebalance_gives_way_to_pgs_without_objects_alone() -> None:
    """As long as they are not clean, the mons keep all OSDMaps."""
    machine = expanded()
    cluster = machine.cluster
    machine.ask('pin')
    machine.to(Phase.PINNED)
    lost_without_objects(machine)
    machine.until(lambda: not cluster.report_now().undersized_empty, turns=60)
    event, = (event for event in machine.events if 'norebalance is cleared' in event.what)
    assert 'not degraded, and norebalance defers their backfill' in event.why
    machine.until(lambda: not machine.campaign.holds.blocked and 'norebalance' in cluster.flags)
    assert machine.campaign.active


def test_norebalance_gives_way_to_pgs_for_which_clients_wait() -> None:
    """Other PGs cannot become clean."""
    driver = Driver(FakeCluster(pgs=48, hosts=12))
    driver.to_pinned()
    cluster = driver.cluster
    cluster.noout.add('osd.0')
    cluster.take_down(0)
    cluster.trouble = {'inactive': 1, 'in_transition': 0, 'undersized_empty': 1}
    driver.run(60)
    assert cluster.report_now().degraded and 'norebalance' in cluster.flags
    cluster.trouble['inactive_empty'] = 1
    driver.run_until(lambda: 'norebalance' not in cluster.flags, 20)
    assert '1 PG is inactive, and norebalance defers' in str(driver.status['reasons'])
    cluster.trouble = {}
    driver.run_until(lambda: 'norebalance' in cluster.flags, 10)


def test_norebalance_stays_for_the_operator_who_is_about_to_change_crush() -> None:
    machine = prepared()
    lost_without_objects(machine)
    for _ in range(60):
        machine.turn()
        assert 'norebalance' in machine.cluster.flags


@pytest.mark.parametrize('phase', ['PREPARED', 'PINNING', 'PINNED'])
def test_norebalance_gives_no_way_to_a_change_without_pins(phase: str) -> None:
    """In PINNED, the mons have refused the pins."""
    cluster = StrawCluster(hosts=12, pgs=64, osds_per_host=2)
    driver = Driver(cluster, replace(OPTIONS, max_pgs_in_flight=4, pin_batch=4))
    driver.run(3)
    driver.ask('prepare')
    driver.run_to('PREPARED')
    if phase == 'PINNED':
        cluster.refuse['osd pg-upmap-items'] = cluster.refuse['osd pg-upmap'] = 'EINVAL'
    cluster.add_osds(6, 1.0)
    driver.run(4)
    if phase != 'PREPARED':
        driver.ask('pin')
        driver.run(2)
    if phase == 'PINNED':
        driver.run_to('PINNED', 3000)
    others = {pgid for pgid in cluster.remapped() if 0 not in cluster.pg[pgid].data}
    cluster.empty = {pgid for pgid, pg in cluster.pg.items() if pgid.startswith('1.')
                     and 0 in pg.data}
    cluster.take_down(0)
    cluster.mark_out(0)
    before = len(cluster.moved)
    for _ in range(90):
        driver.turn()
        if 'GIVES_WAY' in codes(driver.status):
            assert 'norebalance' in cluster.flags or phase == 'PINNING'
    # Those that are pinned in the meantime do not move either.
    assert len(others) > 40
    assert len({move.pgid for move in cluster.moved[before:]} & others) <= 4


def test_norebalance_gives_way_only_for_a_while_and_seldom() -> None:
    machine = held_up(Phase.PREPARED)
    cluster = machine.cluster
    cluster.flags.add('nobackfill')
    set_seconds: List[float] = []
    cleared_seconds: List[float] = []
    for _ in range(1200):
        machine.turn()
        (set_seconds if 'norebalance' in cluster.flags else cleared_seconds).append(cluster.now)
    assert cluster.report_now().degraded and 60 < len(cleared_seconds) < 110
    assert len([event for event in machine.events if 'norebalance is cleared' in event.what]) == 2


def test_norebalance_of_others_is_left_to_them_while_recovery_waits() -> None:
    cluster = FakeCluster()
    cluster.flags.add('norebalance')
    machine = prepared(cluster)
    cluster.empty = {pgid for pgid, pg in cluster.pg.items() if 0 in pg.data
                     and pgid.startswith('1.')}
    cluster.take_down(0)
    cluster.mark_out(0)
    for _ in range(90):
        machine.turn()
        assert 'norebalance' in cluster.flags and 'GIVES_WAY' not in machine.codes


def test_norebalance_that_others_have_cleared_is_not_set_again_after_recovery() -> None:
    machine = expanded()
    cluster = machine.cluster
    cluster.flags.discard('norebalance')
    machine.turn()
    assert machine.campaign.holds.gave_up_flag
    cluster.trouble = {'undersized_empty': 1, 'degraded_waiting': 1}
    for _ in range(30):
        machine.turn()
    cluster.trouble = {}
    for _ in range(10):
        machine.turn()
        assert 'norebalance' not in cluster.flags


# ---- more PGs than can be pinned

def refusing(phase: str = 'PINNED') -> Driver:
    """A campaign of its own accord whose pins the mons refuse, all of them."""
    driver = Driver(waiting())
    driver.cluster.no_tools = 'osdmaptool is not installed'
    driver.cluster.refuse['osd pg-upmap-items'] = driver.cluster.refuse['osd pg-upmap'] = 'EINVAL'
    driver.order('expand', weight='1.0', accept=RISKS)
    driver.run_to(phase)
    return driver


def test_releases_do_not_begin_while_most_pgs_would_move_at_once() -> None:
    driver = refusing()
    cluster = driver.cluster
    driver.run(30)
    assert driver.phase == 'PINNED' and 'norebalance' in cluster.flags and not cluster.moved
    number = len(driver.status['unpinnable'])
    assert number == len(cluster.remapped()) > 4
    assert 'max_unpinnable_ratio' in ' '.join(driver.status['reasons'])
    check = cluster.checks['PERFGUARD_UNPINNABLE']
    assert check['count'] == number and 'campaign start' in check['summary']
    driver.restart()
    driver.run(10)
    assert driver.phase == 'PINNED' and 'norebalance' in cluster.flags
    driver.ask('start')
    driver.run_to('DONE')
    assert len(cluster.moved) == number and cluster.clean()


@pytest.mark.parametrize('phase', ['PREPARED', 'PINNED', 'ABORTED'])
@pytest.mark.parametrize('keep', [False, True])
def test_finish_does_not_let_most_pgs_move_at_once(phase: str, keep: bool) -> None:
    driver = refusing() if phase != 'PREPARED' else prepared_and_remapped()
    cluster = driver.cluster
    if phase == 'ABORTED':
        driver.ask('abort')
        driver.run_to('ABORTED')
    driver.run(3)
    with pytest.raises(Refused) as refused:
        driver.ask('finish', keep=keep)
    assert 'yes-i-really-mean-it' in str(refused.value)
    driver.run(20)
    assert driver.phase == phase and 'norebalance' in cluster.flags and not cluster.moved
    driver.ask('finish', keep=keep, sure=True)
    driver.run_to('DONE')
    assert 'norebalance' not in cluster.flags


def prepared_and_remapped() -> Driver:
    driver = Driver()
    driver.ask('prepare')
    driver.run_to('PREPARED')
    driver.cluster.expand()
    driver.run_until(lambda: len(driver.cluster.remapped()) == 12)
    return driver


def test_finish_leaves_norebalance_to_others() -> None:
    cluster = FakeCluster()
    cluster.flags.add('norebalance')
    driver = Driver(cluster)
    driver.ask('prepare')
    driver.run_to('PREPARED')
    cluster.expand()
    driver.run_until(lambda: len(cluster.remapped()) == 12)
    driver.ask('finish')
    driver.run_to('FINISHING')
    driver.run(10)
    assert 'norebalance' in cluster.flags and not cluster.moved


def test_an_abort_pins_what_still_peers() -> None:
    cluster = FakeCluster(peer_seconds=15.0)
    driver = Driver(cluster)
    driver.ask('prepare')
    driver.run_to('PREPARED')
    cluster.expand()
    driver.ask('abort')
    driver.run_to('ABORTED')
    driver.run(30)
    assert not cluster.moved and not cluster.remapped() and driver.status['pinned'] == 12


def test_an_abort_does_not_wait_for_pgs_that_are_stuck() -> None:
    cluster = FakeCluster(peer_seconds=1e9)
    driver = Driver(cluster)
    driver.ask('prepare')
    driver.run_to('PREPARED')
    cluster.expand()
    driver.ask('abort')
    driver.run_to('ABORTED', 100)


def test_pins_onto_an_osd_that_was_out_succeed_once_it_is_in_again() -> None:
    """The mons drop pins onto an OSD that is out: they have not refused them for good."""
    machine = expanded()
    cluster = machine.cluster
    machine.ask('pin')
    machine.until(lambda: bool(machine.campaign.pinning.sent))
    cluster.backfill_seconds = 1e6
    cluster.mark_out(0)
    machine.until(lambda: not machine.campaign.pinning.sent)
    assert not machine.campaign.pinning.unpinnable and cluster.remapped()
    cluster.revive(0)
    machine.until(lambda: not cluster.remapped())
    machine.to(Phase.PINNED)
    assert not cluster.moved


def test_what_the_mons_refused_is_pinned_once_crush_has_changed_again() -> None:
    driver = refusing()
    cluster = driver.cluster
    driver.run(3)
    number = len(driver.status['unpinnable'])
    cluster.refuse.clear()
    driver.run(10)
    assert len(driver.status['unpinnable']) == number, 'the same CRUSH map gets the same answer'
    cluster.crush_version_ += 1
    cluster.epoch += 1
    driver.run_until(lambda: driver.status['pinned'] == number)
    assert not driver.status['unpinnable'] and not cluster.moved


def test_what_was_accepted_stays_accepted_through_a_failover() -> None:
    driver = refusing()
    cluster = driver.cluster
    cluster.backfill_seconds = 20.0
    driver.ask('start')
    driver.run_until(lambda: driver.status['in_flight'] > 4)
    driver.run(3)
    driver.restart()
    phases = set()
    while driver.phase != 'DONE':
        driver.turn()
        phases.add(driver.phase)
        assert driver.phase != 'PINNED' and cluster.now < 1500.0, phases
    assert cluster.clean()


def test_what_was_accepted_is_not_accepted_for_a_later_change() -> None:
    driver = refusing()
    driver.ask('start')
    driver.run_until(lambda: driver.status['in_flight'] > 0)
    driver.cluster.expand(share=1)
    driver.run_to('PINNED')
    driver.run(10)
    assert driver.phase == 'PINNED' and 'norebalance' in driver.cluster.flags
    driver.cluster.refuse.clear()
    driver.ask('abort')
    driver.run_to('ABORTED')


def test_a_few_pgs_that_cannot_be_pinned_hold_nothing() -> None:
    driver = Driver(waiting())
    cluster, run = driver.cluster, driver.cluster.run
    few = ('1.0', '2.0')

    def run_but_few(commands: Any) -> Any:
        return run([c for c in commands if c.get('pgid') not in few])

    setattr(cluster, 'run', run_but_few)
    driver.cluster.no_tools = 'osdmaptool is not installed'
    driver.order('expand', weight='1.0', accept=RISKS)
    driver.run_to('DONE')
    assert cluster.clean()


def unlawful(driver: Driver) -> None:
    """Nearly every pin of the next change breaks the new CRUSH rule."""
    cluster, real = driver.cluster, driver.cluster.outlook

    def outlook(*args: Any) -> Any:
        future = real(*args)
        dump = ToyMon({osd: toy._replace(host=0) for osd, toy in cluster.toys.items()}, 3,
                      ()).crush_dump()
        return replace(future, crush=CrushRules.from_dump(dump))

    setattr(cluster, 'outlook', outlook)


def test_a_change_whose_pgs_cannot_be_pinned_is_refused_before_it_is_made() -> None:
    driver = Driver(waiting())
    unlawful(driver)
    with pytest.raises(Refused, match='12 PGs of 12 that the change remaps cannot be pinned'):
        driver.order('expand', weight='1.0')
    assert driver.phase == 'IDLE' and driver.cluster.sent == []
    assert driver.order('expand', weight='1.0', dry_run=True)['unpinnable_pgs'] == 12
    assert driver.order('expand', weight='1.0', accept=RISKS)['unpinnable_pgs'] == 12


def test_clients_too_old_for_upmaps_cannot_be_forced() -> None:
    driver = Driver(waiting())
    view = driver.cluster._view

    def old_clients() -> Any:
        found = view()
        return replace(found, osdmap=replace(found.osdmap, min_compat_client='jewel'))

    setattr(driver.cluster, 'map_view', old_clients)
    driver.run(2)
    with pytest.raises(Refused, match='require_min_compat_client is jewel'):
        driver.ask('prepare', accept=RISKS)
    with pytest.raises(Refused, match='require_min_compat_client is jewel'):
        driver.order('expand', weight='1.0', accept=RISKS)
    driver.run(2)
    assert driver.phase == 'IDLE' and driver.cluster.sent == []


# ---- stop conditions and the time window hold what cannot be pinned, too

def loose(options: Options = OPTIONS) -> Driver:
    """A campaign that has just landed; the mons refuse the pins of three of its PGs."""
    driver = Driver(waiting(), replace(options, max_unpinnable_ratio=0.5))
    cluster, run = driver.cluster, driver.cluster.run
    refused = set(sorted(cluster.coming)[:6:2])

    def run_but_three(commands: Any) -> List[FakeReply]:
        taken = [command for command in commands if command.get('pgid') not in refused]
        return run(taken) + [FakeReply(-22, 'no')] * (len(commands) - len(taken))

    setattr(cluster, 'run', run_but_three)
    cluster.no_tools = 'osdmaptool is not installed'
    driver.order('expand', weight='1.0', accept=RISKS)
    driver.run_to('PINNED')
    assert len(cluster.remapped()) == 3 and not cluster.moved
    return driver


def shut(driver: Driver) -> None:
    driver.options = out_of_hours(driver.options, driver.cluster.now)


def opened(driver: Driver) -> None:
    driver.options = replace(driver.options, begin_time='0000', end_time='2400')


def laggy(driver: Driver) -> None:
    driver.cluster.trouble['laggy'] = 3


def well(driver: Driver) -> None:
    driver.cluster.trouble.clear()


@pytest.mark.parametrize('begins, ends', [(shut, opened), (laggy, well)])
def test_what_cannot_be_pinned_does_not_move_while_releases_are_held(
        begins: Callable[[Driver], None], ends: Callable[[Driver], None]) -> None:
    driver = loose()
    cluster = driver.cluster
    begins(driver)
    driver.run(30)
    assert driver.phase == 'HOLDING' and 'norebalance' in cluster.flags
    assert not cluster.moved and not driver.status['in_flight']
    ends(driver)
    driver.run_until(lambda: 'norebalance' not in cluster.flags)
    campaign = driver.loop.rebalance.campaign
    assert len(campaign.flights.in_flight) >= 3, 'counted from the first moment'
    driver.run_to('DONE')
    assert cluster.clean()


def test_a_pause_holds_what_cannot_be_pinned() -> None:
    driver = loose()
    driver.run_until(lambda: driver.phase in ('RELEASING', 'HOLDING'))
    driver.ask('pause')
    driver.run(10)
    moved = len(driver.cluster.moved)
    driver.run(20)
    assert 'norebalance' in driver.cluster.flags and len(driver.cluster.moved) == moved
    driver.ask('resume')
    driver.run_to('DONE')


def test_a_stop_of_their_osds_holds_what_cannot_be_pinned() -> None:
    """Elsewhere releases could go on, but nothing but the flag holds these."""
    driver = loose()
    cluster = driver.cluster
    place = cluster.map_view().placement(cluster.remapped()[0])
    assert place is not None
    cluster.slow_ops = 1
    cluster.slow_daemons = {'osd.%d' % place.acting[0]: 1}
    driver.run(30)
    assert driver.phase == 'HOLDING' and 'SLOW_OPS' in codes(driver.status)
    assert 'norebalance' in cluster.flags and not cluster.moved
    cluster.slow_ops = 0
    cluster.slow_daemons.clear()
    driver.run_to('DONE')


# ---- erasure coded PGs that lost an OSD, and what goes on afterwards

def test_pgs_with_a_hole_wait_for_recovery() -> None:
    """An OSD is out: the acting sets of its erasure coded PGs have a hole, in which is no OSD."""
    driver = Driver()
    driver.to_releasing()
    cluster = driver.cluster
    cluster.backfill_seconds = 20.0
    cluster.take_down(1)
    driver.run(2)
    cluster.mark_out(1)
    driver.run_until(lambda: any(HOLE in place.acting for place in placed(cluster)))
    while any(HOLE in place.acting for place in placed(cluster)):
        driver.turn()
        campaign = driver.loop.rebalance.campaign
        assert driver.phase != 'PINNED'
        assert all(pinned_once_recovered(campaign, pgid) for pgid in campaign.pinning.unpinnable)
    driver.run_to('DONE')


@pytest.mark.parametrize('phase', ['PREPARED', 'RELEASING'])
def test_a_pg_that_cannot_recover_holds_no_other(
        phase: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """An OSD is out, and the one that takes its place is too full: only releases make room."""
    driver = Driver()
    cluster = driver.cluster
    if phase == 'PREPARED':
        driver.ask('prepare')
        driver.run_to('PREPARED')
        cluster.expand()
    else:
        driver.to_releasing()
    cluster.take_down(1)
    driver.run(2)
    cluster.mark_out(1)
    driver.run_until(lambda: any(HOLE in place.acting for place in placed(cluster)))
    stuck = next(pgid for pgid, place in cluster.map_view().placements.items()
                 if HOLE in place.acting)
    backfills = cluster._backfills
    monkeypatch.setattr(cluster, '_backfills',
                        lambda pgid, pg: pgid != stuck and backfills(pgid, pg))
    driver.run_until(lambda: cluster.report_now().degraded == 1)
    if phase == 'PREPARED':
        driver.ask('pin')
        driver.run_to('PINNED')
        driver.ask('start')
        driver.run_to('HOLDING')
    driver.ask('accept', code='DEGRADED')
    driver.run_until(lambda: not driver.status['pinned'] and not driver.status['in_flight'])
    assert cluster.remapped() == [stuck]


def placed(cluster: FakeCluster) -> Iterable[Placement]:
    return cluster.map_view().placements.values()


def test_a_started_campaign_continues_once_few_enough_pgs_cannot_be_pinned() -> None:
    driver = Driver()
    cluster = driver.cluster
    before = {pgid: list(pg.mon.raw) for pgid, pg in cluster.pg.items()}
    driver.to_releasing()
    cluster.refuse['osd pg-upmap-items'] = cluster.refuse['osd pg-upmap'] = 'EINVAL'
    cluster.expand(share=1)
    driver.run_to('PINNED')
    driver.run(10)
    assert driver.phase == 'PINNED' and 'UNPINNABLE' in codes(driver.status)
    cluster.refuse.clear()
    for pgid, raw in before.items():
        cluster.pg[pgid].mon.raw = raw
    cluster._crush_changed()
    driver.run_to('RELEASING')
    driver.run_to('DONE')
