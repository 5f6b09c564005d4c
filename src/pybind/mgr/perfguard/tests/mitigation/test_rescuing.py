# SPDX-License-Identifier: LGPL-2.1-or-later
"""The times, texts and commands of rescues, turn by turn; for whole stories, see test_rescue."""
from dataclasses import replace
from functools import lru_cache
from typing import Any, Dict, Iterable, List, Mapping, Sequence, Tuple

import pytest

from perfguard.cluster.orchestrator import Orchestrating
from perfguard.cluster.types import (Items, OsdSet, PgCounts, Placement, Question, Reply, Space,
                                     UpmapEntry)
from perfguard.codec import encode
from perfguard.events import Event
from perfguard.mitigation.rescue import Rescue
from perfguard.mitigation.rescuing import MOST_REFUSED_SECONDS, Rescuing
from perfguard.observation import Observation
from perfguard.store import Store

from ..fakes.cluster import FakeCluster, MemoryKv
from ..fakes.driver import OPTIONS, Driver

START = 10000.0
FULL = 3
ROOMY = 1 << 40
WAITING = 'active+undersized+degraded+remapped+backfill_toofull'


@lru_cache()
def template() -> Observation:
    """Nine hosts with an OSD each."""
    return Driver(FakeCluster(hosts=9)).loop._observing.observe()[0]


def rescue(taker: int = 0, seen: bool = True, since: float = START, **fields: Any) -> Rescue:
    """The upmap of a PG that CRUSH places on the OSDs 1, 2 and 3."""
    return replace(Rescue(UpmapEntry(), UpmapEntry(((FULL, taker),)), (FULL,), (taker,), since,
                          seen), **fields)


class World:
    """The mons, OSDs and PGs, as far as one turn of Rescuing depends on them.

    osd.3 is too full. CRUSH places each PG on the OSDs 1, 2 and 3, and 1 and 2 have those that
    wait. Upmaps that `rescues` have seen are in force.
    """

    def __init__(self, waiting: Iterable[str] = (), rescues: Mapping[str, Rescue] = {}) -> None:
        self.now = START
        self.waiting = set(waiting)
        self.fullness: Dict[int, str] = {FULL: 'backfillfull'}
        self.used = {FULL: int(0.91 * ROOMY)}
        self.raw: Dict[str, OsdSet] = {}
        self.acting: Dict[str, OsdSet] = {}
        self.items: Dict[str, Items] = {pgid: row.entry.items for pgid, row in rescues.items()
                                        if row.seen}
        #: Fields of counts, OSDMap and observation.
        self.counts: Dict[str, int] = {}
        self.osdmap: Dict[str, Any] = {}
        self.observation: Dict[str, Any] = {}
        self.options: Dict[str, Any] = {}
        #: PGs whose primaries do not answer, or answer that they do not wait.
        self.silent: Tuple[str, ...] = ()
        self.denying: Tuple[str, ...] = ()
        #: Why the mons refuse commands; they may be late.
        self.refusal, self.late = '', False
        self.kept = self.writes = True
        self.sent: List[str] = []
        self.asked: List[List[str]] = []
        self.space_read = 0
        self.events: List[Event] = []
        self.store = Store(MemoryKv())
        self.store.put_or_remove('rescues', encode(dict(rescues), Dict[str, Rescue]))
        mons: Any = self
        self.rescuing = Rescuing(mons, self.store, self.events.append, lambda: self.kept,
                                 lambda: self.writes)
        assert self.rescuing.load(START) == []

    # ---- cluster.ports.Cluster

    def osd_space(self) -> Dict[int, Space]:
        self.space_read += 1
        return {osd: Space(ROOMY, self.used.get(osd, 1 << 35)) for osd in range(9)}

    def hard_pg_limit(self) -> int:
        return 0

    def inquire(self, questions: Sequence[Question]) -> Mapping[Question, str]:
        self.asked.append([question.pgid for question in questions])
        return {question: 'active+degraded' if question.pgid in self.denying else WAITING
                for question in questions if question.pgid not in self.silent}

    def run(self, commands: Sequence[Mapping[str, Any]]) -> List[Reply]:
        for command in commands:
            osds = list(command.get('id', ()))
            self.sent.append('%s %s' % (command['pgid'], ' '.join(map(str, osds)) or 'removed'))
            if not (self.refusal or self.late):
                self.items[command['pgid']] = tuple(zip(osds[::2], osds[1::2]))
        return [Reply(-22, error=self.refusal) if self.refusal else Reply(0) for _ in commands]

    # ---- one turn

    def up(self, pgid: str) -> OsdSet:
        moved = dict(self.items.get(pgid, ()))
        return tuple(moved.get(osd, osd) for osd in self.raw.get(pgid, (1, 2, FULL)))

    def acting_of(self, pgid: str) -> OsdSet:
        return self.acting.get(pgid, (1, 2)) if pgid in self.waiting else self.up(pgid)

    def observed(self) -> Observation:
        toofull = [pgid for pgid in self.waiting if any(
            self.fullness.get(osd) for osd in set(self.up(pgid)) - set(self.acting_of(pgid)))]
        seen = template()
        osdmap = replace(
            seen.osdmap, upmap_items={pgid: items for pgid, items in self.items.items() if items},
            pg_temp={pgid: self.acting_of(pgid) for pgid in self.waiting},
            osds={osd: replace(row, fullness=self.fullness.get(osd, ''))
                  for osd, row in seen.osdmap.osds.items()})
        counts = PgCounts(total=24, degraded=len(self.waiting), backfill_toofull=len(toofull),
                          remapped=len(self.waiting))
        return replace(seen, **{
            'now': self.now, 'unanswered_at': 0.0,
            'signals': replace(seen.signals, counts=replace(counts, **self.counts)),
            'settings': replace(seen.settings, osdmap=replace(osdmap, **self.osdmap)),
            'placement': lambda pgid: Placement(self.up(pgid), self.acting_of(pgid)),
            **self.observation})

    def turn(self, after: float = 1.0, pinned: Iterable[str] = (), campaign: bool = False,
             shutting_down: bool = False, drained: Iterable[int] = ()) -> List[str]:
        """What is sent to the mons, `after` seconds later."""
        self.now += after
        before = len(self.sent)
        self.rescuing.turn(
            self.observed(), replace(OPTIONS, **{
                'mitigation_mode': 'act', 'mitigation_seconds': 5.0, **self.options}),
            frozenset(pinned), campaign, shutting_down, drained)
        return self.sent[before:]

    def empty(self) -> None:
        """The OSD has room again."""
        self.fullness, self.used = {}, {}

    @property
    def stored(self) -> Any:
        return self.store.get('rescues')

    @property
    def told(self) -> List[Tuple[str, str]]:
        return [(event.what, event.why) for event in self.events]

    @property
    def held(self) -> List[str]:
        return [row.what for row in self.rescuing.held]


# ---- new upmaps

def test_pgs_wait_for_a_while_before_they_get_upmaps() -> None:
    world = World(['1.0'])
    assert world.turn(0.0) == world.turn(4.875) == []
    assert not world.stored and world.asked == []
    assert world.turn(0.125) == ['1.0 3 0']
    assert world.told == [('PG 1.0 is mapped to osd.0',
                           'it is degraded and waits for osd.3, which is too full')]
    assert world.stored['1.0']['entry'] == encode(UpmapEntry(((FULL, 0),)))
    row, = world.rescuing.held
    assert (row.what, row.found, row.put, row.since, row.restore) == (
        'upmap of PG 1.0', '[]', '[(3, 0)]', START + 5.0, 'ceph osd rm-pg-upmap-items 1.0')


def test_the_wait_begins_anew_with_each_time_that_osds_are_too_full() -> None:
    world = World(['1.0'])
    world.turn(0.0)
    world.counts = {'backfill_toofull': 0}
    world.turn(4.0)
    world.counts = {}
    assert world.turn(1.0) == world.turn(4.875) == []
    assert world.turn(0.125) == ['1.0 3 0']


def test_a_pg_that_waits_for_two_osds() -> None:
    world = World(['1.0'])
    world.raw['1.0'], world.acting['1.0'] = (1, FULL, 6), (1,)
    world.fullness[6] = 'full'
    world.turn(0.0)
    assert world.turn(5.0) == ['1.0 3 0 6 2']
    assert world.told == [('PG 1.0 is mapped to osd.0, osd.2', 'it is degraded and waits for '
                           'osd.3, osd.6, which are too full')]


def test_space_is_read_at_intervals_and_only_if_there_is_something_to_do() -> None:
    world = World()
    world.turn(0.0)
    assert world.space_read == 0
    world.waiting = {'1.0'}
    world.options = {'mitigation_mode': 'off'}
    for after, number in ((1.0, 1), (9.875, 1), (0.125, 2), (5.0, 2), (20.0, 3)):
        world.turn(after)
        assert world.space_read == number
    world.writes = False
    world.turn(20.0)
    assert world.space_read == 3


@pytest.mark.parametrize('mode, remarks', [
    ('off', ()),
    ('observe', ('1 PG is degraded and waits for OSDs that are too full: mitigation_mode act would '
                 'map them to OSDs with room',))])
def test_in_other_modes_nothing_is_stored_or_sent(mode: str, remarks: Tuple[str, ...]) -> None:
    world = World(['1.0'])
    world.options = {'mitigation_mode': mode}
    world.turn(0.0)
    assert world.turn(10.0) == [] and world.stored is None and world.told == []
    assert world.rescuing.remarks == remarks


def test_an_mgr_that_does_not_own_the_journal_does_nothing() -> None:
    world = World(['1.0'], {'1.6': rescue(4)})
    world.empty()
    world.writes = False
    stored = world.stored
    assert not any(world.turn(5.0) for _ in range(10))
    assert not any(world.turn(shutting_down=True) for _ in range(2))
    assert world.stored == stored and world.held == ['upmap of PG 1.6']


def test_an_empty_osdmap_ends_no_rescue() -> None:
    world = World(rescues={'1.0': rescue()})
    world.osdmap = {'osds': {}, 'pools': {}, 'upmap_items': {}}
    assert world.turn() == [] and world.held and world.told == []
    world.osdmap = {'pools': {}}
    assert world.turn() == [] and not world.held and world.told == []
    assert world.stored is None


#: PGs of which CRUSH places the third copy on the OSD that is too full.
MANY = ['1.%x' % number for number in range(6)]


def test_four_pgs_at_a_time_move_to_osds_with_room() -> None:
    world = World(MANY)
    world.turn(0.0)
    assert world.turn(5.0) == ['1.0 3 0', '1.1 3 4', '1.2 3 5', '1.3 3 6']
    others = ('2 PGs are degraded and wait for OSDs that are too full: perfguard maps a few at a '
              'time to OSDs with room',)
    for _ in range(3):
        assert world.rescuing.remarks == others
        assert world.turn() == []
    # One has arrived.
    world.waiting.remove('1.1')
    assert world.turn() == ['1.4 3 4']
    assert world.rescuing.remarks == (
        '1 PG is degraded and waits for OSDs that are too full: perfguard maps a few at a time to '
        'OSDs with room',)
    world.waiting.clear()
    world.waiting.update(MANY[4:])
    assert world.turn() == ['1.5 3 0'] and world.rescuing.remarks == ()


def test_upmaps_that_the_osdmap_does_not_show_yet_count() -> None:
    world = World(MANY)
    world.late = True
    world.turn(0.0)
    assert len(world.turn(5.0)) == 4 and world.turn(1.0) == []
    assert len(world.held) == 4


def test_no_room_anywhere() -> None:
    world = World(['1.0', '1.1'])
    world.fullness = dict.fromkeys(range(3, 9), 'nearfull')
    world.fullness[0] = 'full'
    world.turn(0.0)
    assert world.turn(5.0) == []
    assert world.rescuing.remarks == (
        '2 PGs are degraded and wait for OSDs that are too full: no other OSD that their CRUSH '
        'rule allows has room',)


@pytest.mark.parametrize('fields', [
    {'drained': (0,)}, {'pinned': ('1.0',)}, {'removing': {0}}])
def test_what_is_left_out(fields: Dict[str, Any]) -> None:
    world = World(['1.0', '1.1'])
    if 'removing' in fields:
        world.observation = {'orchestrating': Orchestrating(
            removing=frozenset(fields.pop('removing')))}
    world.turn(0.0, **fields)
    assert world.turn(5.0, **fields) == (
        ['1.1 3 0'] if 'pinned' in fields else ['1.0 3 4', '1.1 3 5'])


def test_only_pgs_that_answer_that_they_wait_get_upmaps() -> None:
    world = World(['1.0', '1.1', '1.2'])
    world.denying = ('1.1',)
    world.turn(0.0)
    assert world.turn(5.0) == ['1.0 3 0', '1.2 3 4'] and world.rescuing.remarks == ()
    assert world.asked == [['1.0', '1.1', '1.2']]


def test_pgs_have_ten_seconds_to_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Then the next ones are asked; the last remarks remain until then."""
    monkeypatch.setattr('perfguard.mitigation.rescue.QUERIED_PGS', 2)
    world = World(MANY)
    world.fullness = dict.fromkeys([0, *range(3, 9)], 'nearfull')
    world.turn(0.0)
    world.turn(5.0)
    assert world.asked == [['1.0', '1.1']]
    remarks = world.rescuing.remarks
    assert remarks and world.turn(1.0) == [] and world.asked[1:] == [['1.2', '1.3']]
    world.silent = ('1.4', '1.5', '1.0', '1.1')
    for after, asked in ((1.0, MANY[4:]), (8.875, MANY[4:]), (0.125, MANY[4:]), (1.0, MANY[:2]),
                         (9.0, MANY[:2]), (1.0, MANY[2:4])):
        world.turn(after)
        assert world.asked[-1] == asked
        assert world.rescuing.remarks == remarks
    world.silent = ()
    world.waiting.clear()
    world.counts = {'backfill_toofull': 1}
    world.turn()
    assert world.rescuing.remarks == ()


def test_upmaps_that_the_mons_would_refuse() -> None:
    world = World(['1.0'])
    world.osdmap = {'min_compat_client': 'jewel'}
    world.turn(0.0)
    assert world.turn(5.0) == [] and world.asked == []
    remark, = world.rescuing.remarks
    assert remark.startswith('no upmap can map degraded PGs away from full OSDs: require_min_')


def test_osds_that_are_too_full_for_a_rescue_are_replaced_at_once() -> None:
    world = World(['1.0'])
    world.counts = {'backfill_toofull': 1}
    world.turn(0.0)
    assert world.turn(5.0) == ['1.0 3 0'] and world.turn(1.0) == []
    world.fullness[0], world.used[0] = 'backfillfull', ROOMY
    assert world.turn(1.0) == ['1.0 3 4']
    assert world.told[1] == ('PG 1.0 is mapped to osd.4',
                             'it is degraded and waits for osd.3, which is too full')


def test_a_rescue_ends_if_only_the_first_osd_has_room() -> None:
    world = World(['1.0'], {'1.0': rescue(0, full=(FULL, 7))})
    world.fullness = dict.fromkeys([0, *range(4, 9)], 'backfillfull')
    world.used = {}
    world.turn(0.0)
    assert world.turn(5.0) == ['1.0 removed']
    assert world.told == [('the upmap of PG 1.0 is being removed', 'osd.3, osd.7 have room again')]
    world.turn()
    assert world.stored is None


# ---- upmaps in force

@pytest.mark.parametrize('seen', [True, False])
def test_an_upmap_in_force_is_only_watched(seen: bool) -> None:
    world = World(rescues={'1.0': rescue(seen=seen)})
    world.items['1.0'] = ((FULL, 0),)
    assert not any(world.turn(30.0) for _ in range(4)) and world.told == []
    assert world.stored['1.0'].get('seen') is True


@pytest.mark.parametrize('mode, unanswered_at, at', [
    ('act', 0.0, 60.125), ('act', START + 20.0, 80.125), ('observe', 0.0, 60.125)])
def test_an_upmap_that_is_not_shown_for_a_minute_is_given_up(
        mode: str, unanswered_at: float, at: float) -> None:
    world = World(['1.0'], {'1.0': rescue(seen=False)})
    world.late, world.options = True, {'mitigation_mode': mode}
    world.observation = {'unanswered_at': unanswered_at}
    sent = world.turn(at - 0.125)
    assert sent == (['1.0 3 0'] if mode == 'act' else []) and world.held and world.told == []
    assert world.turn(0.125) == [] and not world.held and world.stored is None
    assert world.told == [('the upmap of PG 1.0 is given up',
                           'the mons did not accept it within 60 s' if mode == 'act'
                           else 'mitigation_mode is not act')]


def test_an_upmap_that_is_not_accepted_is_tried_again_after_ever_longer_pauses() -> None:
    world = World(['1.0'])
    world.refusal = 'EINVAL'
    world.turn(0.0)
    assert world.turn(5.0) == ['1.0 3 0']
    for pause in (600.0, 1200.0, 2400.0):
        # It is given up in this turn.
        world.turn(60.0)
        assert world.held and world.turn(0.125) == [] and not world.held
        assert world.turn(pause - 0.125) == [] and world.turn(0.125) == ['1.0 3 0']
    # Once it is in force, the next pause is short.
    world.refusal = ''
    assert world.turn(5.0) == ['1.0 3 0'] and world.rescuing._refused
    assert world.turn() == [] and world.rescuing._refused == {}


@pytest.mark.parametrize('mode', ['observe', 'off'])
def test_what_was_not_sent_was_not_refused(mode: str) -> None:
    world = World(['1.0'], {'1.0': rescue(seen=False)})
    world.options = {'mitigation_mode': mode}
    world.turn(61.0)
    assert world.told
    world.options = {}
    assert world.turn(5.0) == ['1.0 3 0']


def test_the_longest_pause_is_a_day() -> None:
    world = World(['1.0'], {'1.0': rescue(seen=False)})
    world.refusal = 'EINVAL'
    world.turn(30.0)
    world.rescuing._refused['1.0'] = START, 50000.0
    world.turn(31.0)
    assert world.rescuing._refused['1.0'] == (world.now, MOST_REFUSED_SECONDS)
    # It is remembered for another day.
    world.waiting.clear()
    world.turn(2 * MOST_REFUSED_SECONDS)
    assert list(world.rescuing._refused) == ['1.0'] and len(world.rescuing._failures) == 1
    world.turn(0.125)
    assert not world.rescuing._refused and not world.rescuing._failures


def test_an_upmap_that_is_not_replaced_remains() -> None:
    """The mons have not accepted the other one."""
    before = UpmapEntry(((1, 8),))
    world = World(rescues={'1.0': rescue(
        4, seen=False, before=before, entry=UpmapEntry(((1, 8), (FULL, 4))), full=(FULL, 0),
        replaced=UpmapEntry(((1, 8), (FULL, 0))))})
    world.items['1.0'] = ((1, 8), (FULL, 0))
    world.late = True
    assert world.turn(60.0) == ['1.0 1 8 3 4']
    world.turn(1.0)
    row = world.stored['1.0']
    assert row['taken_by'] == [0] and row['seen'] and not row.get('replaced')
    assert row['entry'] == encode(UpmapEntry(((1, 8), (FULL, 0))))


def test_an_upmap_that_others_change_is_left_alone_for_a_day() -> None:
    world = World(['1.0', '1.1'], {'1.0': rescue(full=(FULL, 6)), '1.1': rescue(4)})
    world.fullness[6] = 'full'
    world.items['1.0'] = ()
    assert world.turn() == [] and world.held == ['upmap of PG 1.1']
    assert world.told == [('the upmap of PG 1.0 is given up',
                           'it was changed outside perfguard, which leaves the PG alone for a day, '
                           'or until osd.3, osd.6 have room')]
    assert world.turn(5.0) == []
    assert world.rescuing.remarks == (
        '1 PG is degraded and waits for OSDs that are too full: its upmap was changed outside '
        'perfguard',)
    world.items['1.1'] = ()
    world.turn()
    assert world.rescuing.remarks == (
        '2 PGs are degraded and wait for OSDs that are too full: their upmaps were changed outside '
        'perfguard',)
    world.turn(MOST_REFUSED_SECONDS - 6.125)
    assert world.turn(0.0) == []
    assert world.turn(0.125) == ['1.0 3 0']


def test_a_pg_is_not_left_alone_once_its_osd_has_had_room() -> None:
    world = World(['1.0'], {'1.0': rescue()})
    world.items['1.0'] = ()
    world.turn()
    world.turn(5.0)
    full, used = world.fullness, world.used
    world.empty()
    world.turn(10.0)
    world.fullness, world.used = full, used
    # Space is read every ten seconds.
    world.turn(10.0)
    assert world.turn(5.0) == ['1.0 3 0']


def test_an_upmap_that_the_mons_drop_is_not_left_alone() -> None:
    world = World(['1.0'], {'1.0': rescue()})
    world.raw['1.0'] = (1, 2, 5)
    world.items['1.0'] = ()
    world.fullness[5] = 'full'
    world.turn()
    assert world.told == [('the upmap of PG 1.0 is given up', 'it was changed outside perfguard')]
    assert world.turn(5.0) == ['1.0 5 0']


def test_what_a_campaign_holds_is_followed_and_not_changed() -> None:
    world = World(rescues={'1.0': rescue(returning=True), '1.1': rescue(4)})
    world.empty()
    held: Dict[str, Any] = {'pinned': ['1.0'], 'campaign': True}
    assert world.turn(1.0, **held) == [] and world.held == ['upmap of PG 1.1']
    assert not world.stored['1.0'].get('returning')
    world.items['1.0'] = ((1, 7),)
    assert world.turn(20.0, **held) == [] and world.told == []
    # The campaign has ended, and the PG has another upmap.
    assert world.turn(20.0) == []
    assert world.told == [('the upmap of PG 1.0 is given up', 'a campaign has replaced it')]


def test_pairs_that_the_mons_drop_end_no_rescue() -> None:
    before = UpmapEntry(((1, 8),))
    world = World(rescues={'1.0': rescue(
        before=before, entry=UpmapEntry(((1, 8), (FULL, 0))))})
    world.items['1.0'] = ((FULL, 0),)
    assert world.turn() == [] and world.told == []
    assert world.stored['1.0']['entry'] == encode(UpmapEntry(((FULL, 0),)))
    # Not of one that the OSDMap has not shown.
    world = World(rescues={'1.0': rescue(
        seen=False, before=before, entry=UpmapEntry(((1, 8), (FULL, 0))))})
    world.items['1.0'] = ((FULL, 0),)
    world.turn()
    assert not world.held


# ---- the end

def test_upmaps_are_removed_one_after_the_other_after_fifteen_calm_seconds() -> None:
    world = World(rescues={'1.0': rescue(0), '1.1': rescue(4)})
    world.turn()
    world.empty()
    # The reading of the space is as old as that.
    assert world.turn(14.0) == [] and world.told == []
    assert world.turn(1.0) == ['1.0 removed']
    assert world.told == [('the upmap of PG 1.0 is being removed', 'osd.3 has room again')]
    assert world.stored['1.0']['returning'] and world.held == [
        'upmap of PG 1.0', 'upmap of PG 1.1']
    assert world.turn(1.0) == [] and world.held == ['upmap of PG 1.1']
    assert world.turn(14.875) == [] and world.turn(0.125) == ['1.1 removed']
    world.turn()
    assert world.stored is None


@pytest.mark.parametrize('moving', [
    {'degraded': 1}, {'inactive': 1}, {'in_transition': 1}, {'backfill_toofull': 1}])
def test_nothing_is_removed_while_pgs_move(moving: Dict[str, int]) -> None:
    world = World(rescues={'1.0': rescue()})
    world.options = {'mitigation_mode': 'observe'}
    world.empty()
    world.turn()
    world.turn(10.0)
    world.counts = moving
    assert world.turn(10.0) == []
    world.counts = {}
    assert world.turn(1.0) == world.turn(14.875) == []
    assert world.turn(0.125) == ['1.0 removed']


@pytest.mark.parametrize('remapped, clean, is_removed', [
    (0, 0, True), (1, 0, False), (1, 1, True), (2, 1, False), (1, 2, True)])
def test_pgs_that_have_no_other_place_to_go_to_do_not_move(remapped: int, clean: int,
                                                           is_removed: bool) -> None:
    world = World(rescues={'1.0': rescue()})
    world.empty()
    world.osdmap = {'pg_temp': {'2.%x' % number: (4, 5, 6) for number in range(remapped)}}
    world.counts = {'remapped_clean': clean}
    world.turn()
    assert bool(world.turn(20.0)) is is_removed


@pytest.mark.parametrize('fields', [{'campaign': True}, {'pinned': ('1.0',)}])
def test_nothing_is_removed_during_a_campaign(fields: Dict[str, Any]) -> None:
    world = World(rescues={'1.0': rescue()})
    world.empty()
    world.turn(**fields)
    assert world.turn(30.0, **fields) == [] and world.told == []
    assert world.turn(1.0) + world.turn(15.0) == ['1.0 removed']


def test_an_upmap_that_is_not_in_force_yet_is_not_removed() -> None:
    world = World(rescues={'1.0': rescue(seen=False)})
    world.late = True
    world.empty()
    world.turn()
    world.turn(20.0)
    assert world.told == [] and world.held


@pytest.mark.parametrize('change, why', [
    ({'fullness': {FULL: 'full'}}, 'osd.3 cannot take the PG now'),
    ({'counts': {'inactive': 1}}, 'a campaign is active, or PGs are degraded or move'),
    ({'waiting': {'1.0'}}, 'a campaign is active, or PGs are degraded or move')])
def test_a_removal_that_the_mons_have_not_executed_is_called_off(change: Dict[str, Any],
                                                                 why: str) -> None:
    world = World(rescues={'1.0': rescue()})
    world.empty()
    world.late = True
    world.turn()
    assert world.turn(15.0) == ['1.0 removed']
    for name, value in change.items():
        setattr(world, name, value)
    # Before the command would be sent again, it may still take effect.
    assert world.turn(4.875) == [] and len(world.told) == 1
    # As long as the mons do not answer, too.
    world.observation = {'unanswered_at': world.now - 4.75}
    assert world.turn(0.125) == ['1.0 removed'] and len(world.told) == 1
    world.observation = {'unanswered_at': world.now}
    assert world.turn(5.0) == []
    assert world.told[1:] == [('the upmap of PG 1.0 remains', why)]
    assert not world.stored['1.0'].get('returning')


def test_a_removal_is_sent_again_while_nothing_speaks_against_it() -> None:
    world = World(rescues={'1.0': rescue()})
    world.empty()
    world.late = True
    world.turn()
    assert world.turn(15.0) == ['1.0 removed']
    for after, sent in ((4.875, []), (0.125, ['1.0 removed']), (5.0, ['1.0 removed'])):
        assert world.turn(after) == sent
    assert len(world.told) == 1


@pytest.mark.parametrize('new_osd_full, is_kept', [(True, False), (False, True)])
def test_an_upmap_whose_new_osd_is_too_full_is_removed_although_the_pg_is_degraded(
        new_osd_full: bool, is_kept: bool) -> None:
    world = World(['1.0'], {'1.0': rescue(returning=True)})
    world.empty()
    world.fullness = {0: 'full'} if new_osd_full else {}
    world.late = True
    sent = world.turn(10.0)
    assert sent == ([] if is_kept else ['1.0 removed'])
    assert [what for what, _ in world.told] == ['the upmap of PG 1.0 remains'] * is_kept


def test_a_removal_is_over_once_the_osdmap_shows_it() -> None:
    world = World(rescues={'1.0': rescue(returning=True)})
    world.items['1.0'] = ()
    assert world.turn() == [] and world.stored is None and world.told == []


# ---- commands

def test_commands_are_sent_again_after_five_seconds() -> None:
    world = World(['1.0'])
    world.late = True
    world.turn(0.0)
    assert world.turn(5.0) == ['1.0 3 0']
    for after, sent in ((4.875, []), (0.125, ['1.0 3 0']), (4.875, []), (0.125, ['1.0 3 0'])):
        assert world.turn(after) == sent


def test_another_upmap_delays_and_repeats_no_command() -> None:
    world = World(['1.0'])
    world.late = True
    world.turn(0.0)
    assert world.turn(5.0) == ['1.0 3 0']
    world.waiting.add('1.1')
    assert world.turn(1.0) == ['1.1 3 4'] and world.turn(4.0) == ['1.0 3 0']
    # What has ended leaves nothing.
    world.turn(60.0)
    assert not world.held and not world.rescuing._sent_at


def test_a_clock_that_was_ahead() -> None:
    world = World(rescues={'1.0': rescue(since=START + 3600.0)})
    row, = world.rescuing.held
    assert row.since == START


def test_no_command_is_sent_before_its_record_is_stored() -> None:
    world = World(['1.0'])
    world.turn(0.0)
    world.kept = False
    assert world.turn(5.0) == [] and world.stored
    world.kept = True
    assert world.turn() == ['1.0 3 0']


def test_an_upmap_that_was_seen_is_sent_again_in_any_mode() -> None:
    """Of a removal, the mons have executed nothing yet."""
    world = World(rescues={'1.0': rescue(returning=True), '1.1': rescue(4, seen=False)})
    world.empty()
    world.late, world.options = True, {'mitigation_mode': 'observe'}
    assert world.turn() == ['1.0 removed']


def test_each_failure_is_reported_once_until_it_has_succeeded() -> None:
    world = World(['1.0'])
    world.refusal = 'EAGAIN'
    world.turn(0.0)
    world.turn(5.0)
    world.turn(5.0)
    failed = [('ceph osd pg-upmap-items 1.0 3 0: EAGAIN', '')]
    assert world.told[1:] == failed and world.events[-1].kind == 'failed'
    world.refusal = 'EINVAL'
    world.turn(5.0)
    failed += [('ceph osd pg-upmap-items 1.0 3 0: EINVAL', '')]
    assert world.told[1:] == failed
    world.refusal, world.late = '', True
    world.turn(5.0)
    assert world.rescuing._failures == {}
    world.refusal = 'EINVAL'
    world.turn(5.0)
    assert world.told[1:] == failed + failed[-1:]


def test_a_command_without_an_answer_has_failed() -> None:
    world = World(['1.0'])
    setattr(world, 'run', lambda commands: [Reply(None) for _ in commands])
    world.turn(0.0)
    world.turn(5.0)
    assert world.told[1:] == [('ceph osd pg-upmap-items 1.0 3 0: no answer', '')]


# ---- shutdown

@pytest.mark.parametrize('pinned, number', [((), '2 PGs'), (('1.0',), '1 PG'),
                                            (('1.0', '1.1'), '')])
def test_a_shutdown_leaves_the_upmaps_to_the_operator(pinned: Tuple[str, ...],
                                                      number: str) -> None:
    world = World(rescues={'1.0': rescue(), '1.1': rescue(4)})
    world.turn(pinned=pinned)
    assert world.turn(shutting_down=True) == [] and world.stored is None
    assert world.told == ([('the upmaps of %s remain' % number,
                            'perfguard is shutting down, and removing them would send the PGs to '
                            'OSDs that were too full')] if number else [])
    # Once.
    assert world.turn(shutting_down=True) == [] and len(world.told) == bool(number)
