# SPDX-License-Identifier: LGPL-2.1-or-later
"""What a campaign holds and gives back, and what it leaves to others."""
import itertools
from dataclasses import replace
from typing import Any, Dict, List, Optional

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfguard.cluster.set_by_others import BALANCER
from perfguard.cluster.types import OsdMap, PgCounts, Pool, UpmapEntry
from perfguard.events import Event
from perfguard.ledger import Held
from perfguard.observation import Settings
from perfguard.options import DEFAULTS
from perfguard.rebalance.holds import (NOREBALANCE, blocked_since, foreign_movement_flags,
                                       gives_way, needs_stored_options, option_name, reconcile,
                                       set_option, settled, waiting_text, without_refused)
from perfguard.rebalance.types import (AUTOSCALE, NOREBALANCE_KEY, Action, Flight, Holds, Phase,
                                       SetBalancer, SetFlag, SetOption, SetPool)

from ..fakes.campaigns import campaign_of

SEEN = Held(None, NOREBALANCE, True)
PREPARED = Holds(prepared=True)
BORROWED = Holds({'paxos_propose_interval': Held(None, '0.1', True)}, prepared=True)
QUIET = Holds({BALANCER: Held('true', 'false', True)}, prepared=True)


class World:
    """Settings that actions change at once."""

    def __init__(self, flag: bool = False, stored: Optional[str] = 'true',
                 mode: str = 'on') -> None:
        self.flag, self.stored, self.mode = flag, stored, mode
        self.pools = True

    def settings(self) -> Settings:
        pools = {1: Pool(1, 'p', False, 3, 2, 0, 8, 8, 8, self.mode)} if self.pools else {}
        osdmap = OsdMap(1, frozenset({NOREBALANCE} if self.flag else ()), pools, {}, {}, {}, {})
        stored = {} if self.stored is None else {BALANCER: self.stored}
        return Settings(osdmap, self.stored or 'true', {'mgr': stored})

    def act(self, actions: List[Action]) -> None:
        for action in actions:
            if isinstance(action, SetFlag):
                self.flag = action.on
            elif isinstance(action, SetBalancer):
                self.stored = 'true' if action.active else 'false'
            elif isinstance(action, SetPool):
                self.mode = action.value

    def shows(self) -> tuple:
        return self.flag, self.stored or 'true', self.mode

    def drive(self, holds: Holds, wanted: bool, begin: bool = True) -> Holds:
        for _ in range(4):
            done = reconcile(holds, self.settings(), wanted, wanted, begin)
            holds = done.holds
            self.act(list(done.actions))
        return holds


WORLDS = st.builds(World, st.booleans(), st.sampled_from([None, 'true', 'false']),
                   st.sampled_from(['on', 'off', 'warn']))


@given(WORLDS)
def test_hold_and_give_back_leaves_everything_as_found(world: World) -> None:
    found = world.shows()
    holds = world.drive(Holds(), True)
    assert world.flag and world.settings().balancer_active == 'false' and world.mode != 'on'
    assert settled(holds, world.settings(), True, True)
    holds = world.drive(holds, False)
    assert world.shows() == found
    assert not holds and settled(holds, world.settings(), NOREBALANCE in world.settings()
                                 .osdmap.flags, False)


@given(WORLDS, st.integers(0, 3))
def test_a_lost_command_is_sent_again(world: World, lost: int) -> None:
    """The intent is journalled, the command never sent: the next turn sends it."""
    found, holds = world.shows(), Holds()
    for turn in range(6):
        done = reconcile(holds, world.settings(), True, True, True)
        holds = done.holds
        if turn != lost:
            world.act(list(done.actions))
    assert settled(holds, world.settings(), True, True)
    world.drive(holds, False)
    assert world.shows() == found


def test_what_others_set_before_is_never_held() -> None:
    world = World(flag=True, stored='false', mode='warn')
    done = reconcile(Holds(), world.settings(), True, True, True)
    assert not done.holds and done.actions == () and done.notices == ()


def test_what_others_change_later_is_theirs() -> None:
    world = World()
    holds = world.drive(Holds(), True)
    world.flag, world.stored, world.mode = False, 'true', 'warn'
    done = reconcile(holds, world.settings(), True, True, True)
    assert done.actions == () and len(done.notices) == 3
    assert not done.holds and len(done.holds.given_up) == 3
    # Not taken again in the next turn, and not given back at the end.
    assert reconcile(done.holds, world.settings(), True, True, True).actions == ()
    world.drive(done.holds, False)
    assert world.shows() == (False, 'true', 'warn')


def switched_on(world: World) -> Holds:
    """The balancer was on and borrowed; then others have switched it on."""
    holds = world.drive(Holds(), True)
    world.stored = 'true'
    return world.drive(holds, True, begin=False)


def test_a_balancer_that_is_off_again_is_given_back_as_it_was() -> None:
    world = World()
    holds = switched_on(world)
    assert world.stored == 'true' and BALANCER in holds.given_up
    world.stored = 'false'
    done = reconcile(holds, world.settings(), True, True, False, now=50.0)
    assert done.actions == () and len(done.notices) == 1
    assert done.holds.held[BALANCER] == Held('true', 'false', True) and not done.holds.given_up
    assert settled(done.holds, world.settings(), True, True)
    again = reconcile(done.holds, world.settings(), True, True, False, now=51.0)
    assert again.holds == done.holds and not again.notices
    holds = world.drive(again.holds, False)
    assert world.stored == 'true' and not holds and holds.balancer_found is None


def test_a_balancer_that_others_switch_on_once_more_is_given_up_once_more() -> None:
    world = World()
    holds = switched_on(world)
    for _ in range(3):
        world.stored = 'false'
        holds = world.drive(holds, True, begin=False)
        assert BALANCER in holds.held
        world.stored = 'true'
        holds = world.drive(holds, True, begin=False)
        assert BALANCER in holds.given_up and world.stored == 'true'
    holds = world.drive(holds, False)
    assert world.stored == 'true' and holds.balancer_found is None


def test_a_balancer_that_still_carries_out_a_plan_is_not_off_again() -> None:
    world = World()
    holds = switched_on(world)
    world.stored = 'false'
    busy = replace(world.settings(), balancer_busy=True)
    assert reconcile(holds, busy, True, True, False, now=50.0).holds == holds
    # At the end, nothing waits for the plan: it is given back all the same.
    ended = reconcile(holds, busy, False, False, False, now=50.0)
    assert SetBalancer(True) in ended.actions


def test_a_balancer_that_is_switched_off_after_the_campaign_needed_it_stays_off() -> None:
    world = World()
    holds = world.drive(switched_on(world), False)
    world.stored = 'false'
    assert BALANCER not in world.drive(holds, False).held and world.stored == 'false'


@pytest.mark.parametrize('when, left', [(30.0, 'true'), (50.0, 'true'), (50.5, 'false')])
def test_only_a_later_order_to_switch_the_balancer_off_counts(when: float, left: str) -> None:
    """The order that perfguard had asked for shows in the log only later."""
    world = World()
    holds = switched_on(world)
    world.stored = 'false'
    holds = reconcile(holds, world.settings(), True, True, False, now=50.0).holds
    ordered = replace(world.settings(), values_set_by_others={BALANCER: ('false', when)})
    holds = reconcile(holds, ordered, True, True, False, now=60.0).holds
    assert (BALANCER in holds.held) == (left == 'true')
    world.drive(holds, False)
    assert world.stored == left


def test_a_balancer_that_was_off_before_the_campaign_stays_off() -> None:
    world = World(stored='false', mode='off')
    holds = world.drive(Holds(), True)
    world.stored = 'true'
    holds = world.drive(holds, True, begin=False)
    world.stored = 'false'
    holds = world.drive(holds, True, begin=False)
    assert not holds.held.keys() & {BALANCER}
    world.drive(holds, False)
    assert world.stored == 'false'


def test_a_campaign_that_goes_on_borrows_a_balancer_that_is_on_as_usual() -> None:
    """"campaign resume" after an abort, and a rollback, forget what others have changed."""
    world = World()
    holds = switched_on(world).with_nothing_given_up()
    begun = reconcile(holds, world.settings(), True, True, True, now=50.0)
    assert SetBalancer(False) in begun.actions and begun.holds.balancer_found is None
    rolled_back = world.drive(holds, True, begin=False)
    assert BALANCER in rolled_back.given_up and rolled_back.balancer_found == 'true'
    world.stored = 'false'
    assert BALANCER in world.drive(holds, True, begin=False).held


def test_what_is_switched_on_in_mid_campaign_is_not_taken() -> None:
    """Off when the campaign began, so nothing was held; later it was switched on by others."""
    world = World(stored='false', mode='off')
    holds = world.drive(Holds(), True)
    world.stored, world.mode = 'true', 'on'
    done = reconcile(holds, world.settings(), True, True, False)
    assert done.actions == () and len(done.notices) == 1 and BALANCER in done.holds.given_up
    assert world.drive(done.holds, True, begin=False).given_up == {BALANCER}
    assert (world.stored, world.mode) == ('true', 'on')


def test_the_balancer_is_not_taken_before_its_stored_value_is_known() -> None:
    blind = replace(World().settings(), stored=None)
    done = reconcile(Holds(), blind, True, True, True)
    assert BALANCER not in done.holds.held
    assert not any(isinstance(action, SetBalancer) for action in done.actions)
    assert not settled(done.holds.put(NOREBALANCE_KEY, SEEN), blind, False, True)


def test_a_hold_not_seen_yet_is_taken_back_all_the_same() -> None:
    """The mgr's OSDMap may be older than the command that was just answered."""
    world = World()
    first = reconcile(Holds(), world.settings(), True, True, True)
    back = reconcile(first.holds, world.settings(), False, False, True)
    assert set(back.actions) == {SetFlag(NOREBALANCE, False), SetBalancer(True),
                                 SetPool('p', 'pg_autoscale_mode', 'on')}
    assert not world.drive(back.holds, False)
    assert world.shows() == (False, 'true', 'on')


def test_a_balancer_that_finishes_its_plan_is_not_off() -> None:
    world = World()
    holds = world.drive(Holds(), True)
    busy = replace(world.settings(), balancer_busy=True)
    assert settled(holds, world.settings(), True, True) and not settled(holds, busy, True, True)
    # It was switched on by others, or is about to be given back: no reason to wait.
    assert settled(holds.give_up(BALANCER), busy, True, True)
    assert settled(Holds(), busy, False, False)


def test_settled_only_when_seen() -> None:
    world = World()
    first = reconcile(Holds(), world.settings(), True, True, True)
    assert not settled(first.holds, world.settings(), True, True)
    world.act(list(first.actions))
    assert not settled(first.holds, world.settings(), True, True)
    second = reconcile(first.holds, world.settings(), True, True, True)
    assert settled(second.holds, world.settings(), True, True)
    assert not settled(second.holds, world.settings(), False, False)


@pytest.mark.parametrize('holds', [Holds({BALANCER: Held('true', 'false')}),
                                   Holds({AUTOSCALE + '1': Held('on', 'off')})])
def test_one_hold_that_was_not_seen_is_enough_to_wait(holds: Holds) -> None:
    world = World(flag=True, stored='false', mode='off')
    assert not settled(holds, world.settings(), True, True)
    assert settled(reconcile(holds, world.settings(), True, True, True).holds,
                   world.settings(), True, True)


@pytest.mark.parametrize('lag', range(4))
def test_our_own_clearing_that_the_map_shows_late_is_not_taken_for_that_of_others(lag: int) -> None:
    world, holds = World(), Holds()
    maps = [world.settings()]
    for turn in range(20):
        wanted = turn != 8  # for a moment, all PGs were pinned
        done = reconcile(holds, maps[max(0, len(maps) - 1 - lag)], wanted, True, True)
        holds = done.holds
        world.act(list(done.actions))
        maps.append(world.settings())
        assert done.notices == ()
    assert world.flag and not holds.given_up
    # What others clear later is theirs again.
    world.flag = False
    for _ in range(2):
        holds = reconcile(holds, world.settings(), True, True, True).holds
    assert not world.flag and holds.gave_up_flag


@pytest.mark.parametrize('lag', range(3))
def test_norebalance_is_neither_given_up_nor_left_behind_if_maps_are_two_turns_late(
        lag: int) -> None:
    """Whatever the campaign wants from turn to turn, if others leave the flag alone."""
    for wishes in itertools.product((True, False), repeat=8):
        for at_last in (True, False):
            world, holds = World(stored='false', mode='off'), Holds()
            maps = [world.settings()]
            for wanted in (*wishes, *[at_last] * (4 * lag + 8)):
                done = reconcile(holds, maps[max(0, len(maps) - 1 - lag)], wanted, False, True)
                holds = done.holds
                world.act(list(done.actions))
                maps.append(world.settings())
                assert done.notices == (), wishes
            assert world.flag == at_last and (holds.flag is not None) == at_last, wishes


def test_norebalance_given_up_is_set_again_after_it_was_not_needed() -> None:
    world = World()
    holds = world.drive(Holds(), True)
    world.flag = False
    holds = world.drive(holds, True)
    assert not world.flag
    holds = reconcile(holds, world.settings(), False, True, True).holds
    world.drive(holds, True)
    assert world.flag


def test_a_pool_that_is_gone_needs_nothing_back() -> None:
    world = World()
    holds = world.drive(Holds(), True)
    world.pools = False
    done = reconcile(holds, world.settings(), False, False, True)
    assert not any(isinstance(action, SetPool) for action in done.actions)
    assert not world.drive(done.holds, False)


def test_the_balancer_is_switched_on_though_others_removed_its_entry() -> None:
    world = World()
    holds = world.drive(Holds(), True)
    removed = replace(world.settings(), stored={}, balancer_active='false')
    assert SetBalancer(True) in reconcile(holds, removed, False, False, True).actions


@pytest.mark.parametrize('found', [None, 'true'])
def test_the_balancers_entry_is_never_removed(found: Optional[str]) -> None:
    """An mgr does not notice that an option was removed: a standby would keep "false"."""
    world = World(stored=found)
    holds = world.drive(Holds(), True)
    assert world.stored == 'false'
    assert not world.drive(holds, False) and world.stored == 'true'


def test_foreign_movement_flags_are_those_that_we_did_not_set() -> None:
    ours = Holds({NOREBALANCE_KEY: SEEN})
    flags = frozenset({NOREBALANCE, 'nobackfill', 'noscrub'})
    assert foreign_movement_flags(ours, flags) == ('nobackfill',)
    assert foreign_movement_flags(Holds(), flags) == (NOREBALANCE, 'nobackfill')


def test_inputs_stay_as_they_were() -> None:
    holds = Holds({NOREBALANCE_KEY: SEEN, BALANCER: Held('true', 'false', True),
                   AUTOSCALE + '1': Held('on', 'off', True)})
    copy = replace(holds, held=dict(holds.held))
    for world in (World(), World(True, 'false', 'off'), World(True, 'true', 'on')):
        for wanted in (True, False):
            reconcile(holds, world.settings(), wanted, wanted, True)
    assert holds == copy


# ---- norebalance gives way to PGs without objects

@pytest.mark.parametrize('before, seconds, gives', [
    (1000.0, 14.5, False), (1000.0, 15.0, True), (1000.0, 59.5, True), (1000.0, 60.0, False),
    (1000.0, 614.5, False), (1000.0, 615.0, True), (1000.0, 659.5, True), (1000.0, 660.0, False),
    (0.0, 15.0, False)])
def test_norebalance_gives_way_after_a_while_and_again(before: float, seconds: float,
                                                       gives: bool) -> None:
    now = before + seconds
    assert gives_way(before, now) == gives
    # While it gives way, the PGs that waited are recovering.
    counts = PgCounts(undersized_empty=1)
    assert blocked_since(before, counts, now, False) == (before if gives else 0.0)


@pytest.mark.parametrize('before, waiting, empty, since', [
    (0.0, 1, 1, 5000.0), (4990.0, 1, 1, 4990.0), (4990.0, 0, 1, 0.0), (4990.0, 1, 0, 0.0)])
def test_since_when_pgs_without_objects_may_block_recovery(before: float, waiting: int, empty: int,
                                                           since: float) -> None:
    counts = PgCounts(degraded_waiting=waiting, undersized_empty=empty)
    assert blocked_since(before, counts, 5000.0, True) == since


@pytest.mark.parametrize('total, clean, empty, since', [
    (9, 8, 1, 5000.0), (9, 7, 1, 0.0), (9, 7, 2, 5000.0), (9, 9, 0, 0.0)])
def test_since_when_pgs_without_objects_alone_keep_osdmaps(total: int, clean: int, empty: int,
                                                           since: float) -> None:
    counts = PgCounts(total, clean, undersized_empty=empty)
    assert blocked_since(0.0, counts, 5000.0, False) == since
    assert blocked_since(0.0, counts, 5000.0, True) == 0.0


@pytest.mark.parametrize('is_prepared', [False, True])
def test_norebalance_does_not_keep_pgs_inactive_beside_others_that_are_unclean(
        is_prepared: bool) -> None:
    counts = PgCounts(9, 2, undersized_empty=2, inactive_empty=1)
    assert blocked_since(0.0, counts, 5000.0, is_prepared) == 5000.0
    assert blocked_since(0.0, replace(counts, inactive_empty=0), 5000.0, is_prepared) == 0.0


# ---- options that the mons refuse, and texts

def test_an_option_that_is_refused_while_it_is_given_back_stays_on_record() -> None:
    holds = Holds({'osd/osd_max_scrubs': Held(None, '0'), 'paxos_min_wait': Held(None, '0.005'),
                   'paxos_propose_interval': Held(None, '0.1', returning=True), BALANCER: SEEN})
    refused = {'osd/osd_max_scrubs': 'EINVAL', 'paxos_propose_interval': 'EPERM'}
    after, events = without_refused(holds, refused)
    assert after.refused == {'osd/osd_max_scrubs'} and after.held == holds.held
    assert events == [Event('settings', 'the campaign continues without osd_max_scrubs of the OSDs',
                            'the mons did not accept it: EINVAL')]
    assert without_refused(after, refused) == (after, [])
    _, events = without_refused(holds, {'paxos_min_wait': 'EINVAL'})
    assert [event.what for event in events] == [
        'the campaign continues without paxos_min_wait of the mons']


def test_why_a_campaign_waits_for_its_settings() -> None:
    settings = World().settings()
    assert waiting_text(settings, 'norebalance is set') == 'waiting until norebalance is set'
    assert waiting_text(replace(settings, balancer_busy=True), 'norebalance is set') == (
        'waiting until the balancer has carried out its last plan; if its module has failed '
        '("ceph health detail"), run "ceph mgr fail"')


@pytest.mark.parametrize('name, action', [
    ('osd/osd_max_scrubs', SetOption('osd', 'osd_max_scrubs', '0')),
    ('paxos_min_wait', SetOption('mon', 'paxos_min_wait', '0'))])
def test_options_of_the_osds_and_of_the_mons(name: str, action: SetOption) -> None:
    assert set_option(name, '0') == action
    assert option_name(action.who, action.name) == name


@pytest.mark.parametrize('phase, changes, needed', [
    (Phase.PREPARED, {}, True), (Phase.DONE, {}, False), (Phase.PINNED, {'holds': PREPARED}, False),
    (Phase.RELEASING, {'holds': PREPARED}, True), (Phase.PINNED, {'holds': BORROWED}, True),
    (Phase.ABORTED, {'holds': BORROWED}, False), (Phase.ABORTED, {'holds': QUIET}, False),
    (Phase.ABORTED, {'holds': BORROWED, 'held': True}, True),
    (Phase.ABORTED, {'holds': PREPARED, 'held': True}, False),
    (Phase.ABORTING, {'holds': QUIET}, True), (Phase.ABORTING, {'holds': PREPARED}, False),
    (Phase.FINISHING, {'holds': QUIET}, True),
    (Phase.FINISHING, {'holds': QUIET, 'in_flight': {'1.0': Flight(0.0, UpmapEntry())}}, False)])
def test_the_configuration_database_is_read_before_settings_change(
        phase: Phase, changes: Dict[str, Any], needed: bool) -> None:
    campaign = campaign_of(1, phase, 0.0, **changes)
    osdmap = World().settings().osdmap
    options = replace(DEFAULTS, fast_peering='auto')
    assert needs_stored_options(campaign, False, osdmap, options, False) == needed
    if campaign.held:  # pins of the campaign are left
        assert not needs_stored_options(campaign, True, osdmap, options, False)
    assert needs_stored_options(campaign, False, osdmap, options, True)
