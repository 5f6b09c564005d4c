# SPDX-License-Identifier: LGPL-2.1-or-later
"""Options of the mons: borrowed, given back as found, and left alone if others change them."""
from dataclasses import replace
from typing import Dict, List, Mapping, Optional

import pytest

from perfguard.cluster.types import Osd, OsdMap, Pool, UpmapEntry
from perfguard.codec import decode, encode
from perfguard.ledger import Held, same_value
from perfguard.options import DEFAULTS
from perfguard.rebalance.campaign import Campaign, Flights
from perfguard.rebalance.change import ChangeStage
from perfguard.rebalance.copying import Copying
from perfguard.rebalance.epochs import PREPARED_SECONDS, epoch_of
from perfguard.rebalance.epochs import peering_forecast as forecast
from perfguard.rebalance.epochs import release_interval
from perfguard.rebalance.holds import mon_options_settled as settled
from perfguard.rebalance.holds import reconcile_mon_options as reconcile
from perfguard.rebalance.holds import wanted_mon_options as wanted
from perfguard.rebalance.types import Action, Flight, Holds, Phase, SetOption
from perfguard.rebalance.weights import WeightChange

from ..fakes.campaigns import campaign_of
from ..fakes.driver import OPTIONS, Driver

NAME = 'paxos_propose_interval'
OTHERS = {'mon_op_complaint_time': '5'}


class Database:
    """The mon section of the configuration database; loses the next `lost` batches."""

    def __init__(self, value: Optional[str], lost: int = 0) -> None:
        self.stored: Dict[str, str] = dict(OTHERS)
        if value is not None:
            self.stored[NAME] = value
        self.lost = lost

    def act(self, actions: List[Action]) -> None:
        if self.lost:
            self.lost -= 1
            return
        for action in actions:
            assert isinstance(action, SetOption) and action.who == 'mon'
            if action.value is None:
                self.stored.pop(action.name, None)
            else:
                # As the mons write the value of an option that is a float.
                self.stored[action.name] = '%f' % float(action.value)

    def drive(self, holds: Holds, wanted: Mapping[str, str]) -> Holds:
        for _ in range(4):
            holds, actions, _ = reconcile(holds, self.stored, wanted)
            self.act(actions)
        assert settled(holds, self.stored, wanted)
        return holds


@pytest.mark.parametrize('found', [None, '1', '3', '0.1'])
@pytest.mark.parametrize('lost', [0, 1, 2])
def test_held_changed_and_given_back(found: Optional[str], lost: int) -> None:
    database = Database(found, lost)
    before = dict(database.stored)
    holds = database.drive(Holds(), {NAME: '3'})
    assert same_value(database.stored[NAME], '3')
    database.lost = lost
    holds = database.drive(holds, {NAME: '0.1'})
    assert same_value(database.stored[NAME], '0.1')
    database.lost = lost
    assert not database.drive(holds, {})
    assert database.stored.keys() == before.keys()
    assert all(same_value(database.stored[name], before[name]) for name in before)


def test_nothing_happens_before_the_database_was_read() -> None:
    assert reconcile(Holds(), None, {NAME: '3'}) == (Holds(), [], [])
    assert not settled(Holds(), None, {NAME: '3'}) and settled(Holds(), None, {})


def test_settled_only_when_seen_with_the_intended_value() -> None:
    assert not settled(Holds({NAME: Held('1', '3')}), {NAME: '3'}, {NAME: '3'})
    seen = Holds({NAME: Held('1', '3', True)})
    assert settled(seen, None, {NAME: '3'})
    assert not settled(seen, None, {NAME: '0.1'}) and not settled(seen, None, {})


def test_what_has_the_value_anyway_is_neither_set_nor_taken_away() -> None:
    holds, actions, _ = reconcile(Holds(), {NAME: '3'}, {NAME: '3'})
    assert actions == [] and settled(holds, None, {NAME: '3'})
    assert reconcile(holds, {NAME: '3'}, {}) == (Holds(), [], [])


@pytest.mark.parametrize('theirs', ['2', None])
def test_what_others_change_is_theirs(theirs: Optional[str]) -> None:
    database = Database('1')
    holds = database.drive(Holds(), {NAME: '3'})
    database.act([SetOption('mon', NAME, theirs)])
    left = dict(database.stored)
    holds, actions, notices = reconcile(holds, database.stored, {NAME: '3'})
    assert actions == [] and not holds.mon and len(notices) == 1 and NAME in notices[0]
    assert holds.given_up == {NAME}
    for value in ('0.1', None):
        holds = database.drive(holds, {} if value is None else {NAME: value})
        assert database.stored == left


def test_changed_by_others_before_it_is_given_back() -> None:
    database = Database('1')
    holds = database.drive(Holds(), {NAME: '3'})
    database.act([SetOption('mon', NAME, '2')])
    assert not database.drive(holds, {}) and float(database.stored[NAME]) == 2


def test_wanted_again_while_it_is_given_back() -> None:
    database = Database('1')
    holds = database.drive(Holds(), {NAME: '3'})
    holds, actions, _ = reconcile(holds, database.stored, {})
    database.act(actions)
    assert not settled(holds, None, {NAME: '3'})
    holds = database.drive(holds, {NAME: '3'})
    assert not holds.given_up and database.stored[NAME].startswith('3')
    assert not database.drive(holds, {}) and database.stored[NAME].startswith('1')


def test_a_hold_not_seen_yet_is_taken_back_all_the_same() -> None:
    holds, actions, _ = reconcile(Holds({NAME: Held(None, '3')}), {}, {})
    assert actions == [SetOption('mon', NAME, None)] and holds.mon
    holds, actions, _ = reconcile(holds, {}, {})
    assert actions == [SetOption('mon', NAME, None)] and holds.mon
    assert not reconcile(holds, {}, {})[0]


def test_the_journal_keeps_it() -> None:
    held = campaign_of(1, Phase.PINNING, 0.0, holds=Holds({NAME: Held(None, '3', True)}))
    assert decode(Campaign, encode(held)) == held


def osdmap_of(osds: int, pgs: int, entries: int = 0) -> OsdMap:
    pool = Pool(1, 'p', False, 3, 2, 0, pgs, pgs, pgs)
    return OsdMap(1, frozenset(), {1: pool}, {osd: Osd(osd, True, 1.0) for osd in range(osds)},
                  {'1.%x' % seed: ((0, 1),) for seed in range(entries)}, {}, {})


def test_copying_stays_slow_until_pgs_in_flight_arrive_while_finishing() -> None:
    campaign = campaign_of(1, Phase.FINISHING, 0.0, copying=Copying(
        wanted={'osd_recovery_sleep_ssd': '0.1'}))
    flying = replace(campaign, flights=Flights({'1.0': Flight(0.0, UpmapEntry())}))
    options = replace(DEFAULTS, pace_copying='on')
    assert wanted(flying, options, osdmap_of(12, 64)) == {'osd/osd_recovery_sleep_ssd': '0.1'}
    assert wanted(campaign, options, osdmap_of(12, 64)) == {}


@pytest.mark.parametrize('osds, pgs, auto, on', [
    (12, 64, '0.02', '0.02'), (12, 1000, '0.02', '0.02'), (12, 1001, '0.05', '0.05'),
    (12, 3001, '0.1', '0.1'), (12, 10000, '0.1', '0.1'), (12, 10001, '0.25', '0.25'),
    (12, 25000, '0.25', '0.25'), (12, 25001, None, '0.25'),
    # Few PGs, and OSDs that all have to store each map.
    (90, 1000, '0.02', '0.02'), (100, 1000, '0.05', '0.05'), (200, 3000, '0.1', '0.1'),
    (300, 4096, '0.1', '0.1'), (500, 4096, '0.25', '0.25'), (1000, 8192, '0.25', '0.25'),
    (1100, 8192, None, '0.25')])
def test_fast_proposals_by_the_size_of_the_cluster(osds: int, pgs: int, auto: Optional[str],
                                                   on: str) -> None:
    campaign = campaign_of(1, Phase.RELEASING, 0.0)
    osdmap = osdmap_of(osds, pgs)
    for mode, value in (('auto', auto), ('on', on), ('off', None)):
        options = replace(DEFAULTS, fast_peering=mode)
        assert wanted(campaign, options, osdmap).get(NAME) == value
        # It would be most of what a PG waits for.
        assert ('paxos_min_wait' in wanted(campaign, options, osdmap)) == (value == '0.02')
        assert wanted(replace(campaign, phase=Phase.FINISHING), options, osdmap) == {}
        seconds = forecast(osdmap, mode)['seconds']
        assert seconds == (None if value is None else float(value))


@pytest.mark.parametrize('phase, change, expected', [
    (Phase.PREPARED, None, True), (Phase.PINNING, None, True),
    # Its burst of commands ends up in one epoch, and its PGs do not move.
    (Phase.PREPARED, WeightChange(), False),
    (Phase.PINNING, WeightChange(stage=ChangeStage.LANDED), False),
    (Phase.PINNED, None, False), (Phase.DONE, None, False)])
@pytest.mark.parametrize('osds, value', [(12, '0.1'), (100, '0.1'), (500, '0.25'), (1100, None)])
def test_proposals_are_fast_from_prepare_until_all_pgs_are_pinned(
        phase: Phase, change: Optional[WeightChange], expected: bool, osds: int,
        value: Optional[str]) -> None:
    """All PGs that the CRUSH change remaps peer at once: never faster than 0.1 s."""
    campaign = campaign_of(1, phase, 0.0, change=change)
    options = replace(DEFAULTS, fast_peering='auto')
    found = wanted(campaign, options, osdmap_of(osds, 1000 if osds < 500 else 8192))
    assert found == ({NAME: value} if expected and value else {})
    assert not wanted(campaign, replace(options, fast_peering='off'), osdmap_of(osds, 1000))


def test_a_campaign_that_stays_prepared_gives_the_interval_back() -> None:
    """Changes of others would create more epochs for days. To pin, it is shortened again."""
    driver = Driver(options=replace(OPTIONS, fast_peering='auto'))
    driver.ask('prepare')
    driver.run_to('PREPARED')
    driver.run(3)
    assert NAME in driver.cluster.mon_config
    driver.cluster.tick(PREPARED_SECONDS)
    driver.run(3)
    assert driver.phase == 'PREPARED' and NAME not in driver.cluster.mon_config


def test_upmaps_make_the_map_larger() -> None:
    """14,000 of them on a cluster of 900 OSDs."""
    assert release_interval(epoch_of(osdmap_of(900, 16384)), 'auto') == '0.25'
    assert release_interval(epoch_of(osdmap_of(900, 16384, 14000)), 'auto') is None


def test_what_an_epoch_costs() -> None:
    found = forecast(osdmap_of(1000, 8192), 'auto')
    assert found['map_bytes'] == 450400 and found['stored_bytes'] == 450400000
    assert found['mon_cpu_ms'] == 98.3
    assert found['text'] == (
        'paxos_propose_interval of the mons is 0.25 s while PGs are released: an OSDMap epoch '
        'costs a mon about 98 ms of CPU (8192 PGs, 0 upmaps) and each OSD a write of '
        'about 439.8 KiB (1000 OSDs)')
    small, off = (str(forecast(osdmap_of(3, 64), mode)['text']) for mode in ('auto', 'off'))
    assert 'about 0.8 ms of CPU (64 PGs, 0 upmaps) and each OSD a write of about 1.7 KiB (3 OSDs)' \
        in small
    assert 'remains unchanged (fast_peering is off)' in off
