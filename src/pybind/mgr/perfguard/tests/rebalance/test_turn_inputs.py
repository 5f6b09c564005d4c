# SPDX-License-Identifier: LGPL-2.1-or-later
"""What a turn of a campaign computes or asks beyond the common observation, without a thread."""
from dataclasses import dataclass, field, replace
from typing import Any, Callable, Dict, Iterable, List, Mapping, Optional, Sequence, Tuple, Union

import pytest

from perfguard.cluster.ports import Future, FuturePg, NoFuture, Outlook
from perfguard.cluster.tool_thread import ToolJob
from perfguard.cluster.types import ConfigEntry, Question, UpmapEntry
from perfguard.observation import Observation
from perfguard.options import Options
from perfguard.rebalance.campaign import NO_CAMPAIGN, Basis, Campaign
from perfguard.rebalance.change import Change, ChangeStage
from perfguard.rebalance.turn_inputs import (
    BALANCER_REST_SECONDS, OUTDATED_SECONDS, OUTDATED_TIMES, PREVIEW_SECONDS, PREVIEW_TIMES,
    ChangePreviews, TurnInputs, _lasting_goal, _raws_shown, same_placement, what_places)
from perfguard.rebalance.types import Phase, PinRecord
from perfguard.rebalance.weights import WeightChange

from ..fakes.campaigns import campaign_of, changed
from ..fakes.driver import OPTIONS
from .test_auto_expand import seen as seen_by_version
from .test_orders import crush

CHANGE = WeightChange(weights={8: 1.0})
FUTURE = Future({}, crush({}))
FAILED = NoFuture('no answer')


@dataclass
class Tools:
    """A tool thread whose jobs run when a test says so."""
    jobs: List[ToolJob[Outlook]] = field(default_factory=list)
    refuses: bool = False

    def submit(self, task: Callable[[], Outlook], first: bool = False
               ) -> Optional[ToolJob[Outlook]]:
        assert first
        if self.refuses:
            return None
        self.jobs.append(ToolJob(task))
        return self.jobs[-1]


@dataclass
class CrushOrdersFake:
    """`outlook`: what the tools of Ceph compute."""
    outlook: Union[Outlook, Exception] = FUTURE
    changes: List[Change] = field(default_factory=list)
    by_others: str = ''
    is_behind: bool = False

    def foreseeing(self, observation: Observation, change: Change) -> Callable[[], Outlook]:
        self.changes.append(change)

        def task() -> Outlook:
            if isinstance(self.outlook, Exception):
                raise self.outlook
            return self.outlook

        return task

    def overtaken(self, observation: Observation, change: Change) -> str:
        return self.by_others

    def mgr_is_behind_mons(self, observation: Observation) -> bool:
        return self.is_behind


def seen(now: float = 1000.0, version: int = 1) -> Observation:
    found = seen_by_version(version, now)
    osdmap = replace(found.osdmap, epoch=version, flags=frozenset({'norebalance'}))
    return replace(found, settings=replace(found.settings, osdmap=osdmap, balancer_active='false'))


class Previews(ChangePreviews):
    def __init__(self) -> None:
        self.tools, self.orders = Tools(), CrushOrdersFake()
        super().__init__(self.tools, self.orders)  # type: ignore[arg-type]

    def computed(self, observation: Observation, change: Change = CHANGE) -> Optional[Outlook]:
        """In the turn after the one that asks."""
        assert self.outlook(change, observation) is None
        self.tools.jobs[-1].run()
        return self.outlook(change, observation)


# ---- previews of the change

def test_a_result_serves_until_the_placement_changes() -> None:
    previews = Previews()
    assert previews.outlook(CHANGE, seen()) is None and len(previews.tools.jobs) == 1
    assert previews.outlook(CHANGE, seen(1001.0)) is None and len(previews.tools.jobs) == 1
    previews.tools.jobs[0].run()
    for now in (1002.0, 1003.0):
        assert previews.outlook(CHANGE, seen(now)) is FUTURE
    # The mons gather commands for longer: the result is the same.
    assert previews.outlook(replace(CHANGE, gathers=True), seen(1004.0)) is FUTURE
    assert len(previews.tools.jobs) == 1 and previews.orders.changes == [CHANGE]
    # Another CRUSH map.
    assert previews.outlook(CHANGE, seen(1005.0, 2)) is None and len(previews.tools.jobs) == 2
    previews.tools.jobs[1].run()
    assert previews.outlook(CHANGE, seen(1006.0, 2)) is FUTURE


def test_another_change_has_a_preview_of_its_own() -> None:
    previews, other = Previews(), WeightChange(weights={9: 1.0})
    assert previews.outlook(CHANGE, seen()) is None
    assert previews.outlook(other, seen()) is None
    assert [job.cancelled for job in previews.tools.jobs] == [True, False]
    assert previews.orders.changes == [CHANGE, other]
    previews.forget()
    assert previews.tools.jobs[1].cancelled and previews.outlook(other, seen()) is None
    assert len(previews.tools.jobs) == 3


def test_an_error_is_raised_once() -> None:
    previews = Previews()
    previews.orders.outlook = ValueError('broken')
    with pytest.raises(ValueError):
        previews.computed(seen())
    previews.orders.outlook = FUTURE
    assert previews.computed(seen(1001.0)) is FUTURE and len(previews.tools.jobs) == 2


def test_a_full_tool_thread_is_asked_again() -> None:
    previews = Previews()
    previews.tools.refuses = True
    assert previews.outlook(CHANGE, seen()) is None
    previews.tools.refuses = False
    assert previews.computed(seen()) is FUTURE


@pytest.mark.parametrize('seconds, again', [
    (0.0, False), (PREVIEW_SECONDS - 1.0, False), (PREVIEW_SECONDS, True)])
def test_a_failed_preview_is_computed_again_after_a_while(seconds: float, again: bool) -> None:
    previews = Previews()
    previews.orders.outlook = FAILED
    assert previews.computed(seen()) is None and previews.failure == 'no answer'
    assert previews.outlook(CHANGE, seen(1000.0 + seconds)) is None
    assert len(previews.tools.jobs) == (2 if again else 1)
    if again:
        previews.orders.outlook = FUTURE
        previews.tools.jobs[-1].run()
        assert previews.outlook(CHANGE, seen(1000.0 + seconds)) is FUTURE
        assert previews.failure == ''


def test_a_preview_that_fails_again_and_again_counts_as_failed() -> None:
    previews, now = Previews(), 1000.0
    previews.orders.outlook = FAILED
    for _ in range(PREVIEW_TIMES - 1):
        assert previews.computed(seen(now)) is None and previews.failure == 'no answer'
        now += PREVIEW_SECONDS
    assert previews.computed(seen(now)) is FAILED and previews.failure == ''
    assert previews.outlook(CHANGE, seen(now + 1e6)) is FAILED
    assert len(previews.tools.jobs) == PREVIEW_TIMES
    # Nothing of it is left for the same change of another campaign.
    previews.forget()
    assert previews.computed(seen(now)) is None and previews.failure == 'no answer'
    previews.forget()
    assert previews.failure == '' and previews.outlook(CHANGE, seen(now)) is None
    assert len(previews.tools.jobs) == PREVIEW_TIMES + 2


def test_a_success_lets_failures_be_forgotten() -> None:
    previews, now = Previews(), 1000.0
    for _ in range(2):
        previews.orders.outlook = FAILED
        for _ in range(PREVIEW_TIMES - 1):
            # A new CRUSH map makes the earlier result useless.
            version = int(now)
            if previews.outlook(CHANGE, seen(now, version)) is None:
                previews.tools.jobs[-1].run()
            assert previews.outlook(CHANGE, seen(now, version)) is None
            assert previews.failure == 'no answer'
            now += PREVIEW_SECONDS
        previews.orders.outlook = FUTURE
        assert previews.computed(seen(now, int(now))) is FUTURE
        now += PREVIEW_SECONDS
    previews.orders.outlook = FAILED
    assert previews.outlook(CHANGE, seen(now, int(now))) is None
    previews.tools.jobs[-1].run()
    for _ in range(PREVIEW_TIMES - 1):
        assert previews.outlook(CHANGE, seen(now, int(now))) is None
        now += PREVIEW_SECONDS
        assert previews.outlook(CHANGE, seen(now, int(now))) is None
        previews.tools.jobs[-1].run()
    assert previews.outlook(CHANGE, seen(now, int(now))) is FAILED


def outdated(previews: Previews, now: float, number: int) -> Optional[Outlook]:
    """The result of one that is done once the map has changed, and the next one has begun."""
    previews.tools.jobs[-1].run()
    return previews.outlook(CHANGE, seen(now, number))


@pytest.mark.parametrize('seconds, ends', [
    (OUTDATED_SECONDS, True), (OUTDATED_SECONDS - 1.0, False)])
def test_a_map_that_always_changes_ends_the_attempts(seconds: float, ends: bool) -> None:
    previews = Previews()
    previews.outlook(CHANGE, seen(900.0))
    for number in range(OUTDATED_TIMES - 1):
        assert outdated(previews, 1000.0 if not number else 1001.0, number + 2) is None
    found = outdated(previews, 1000.0 + seconds, OUTDATED_TIMES + 1)
    assert len(previews.tools.jobs) == OUTDATED_TIMES + (0 if ends else 1)
    text = 'OSDs, pools or upmaps have changed during each of %d computations'
    if not ends:
        assert found is None
        found = outdated(previews, 1000.0 + OUTDATED_SECONDS, OUTDATED_TIMES + 2)
        assert found == NoFuture(text % (OUTDATED_TIMES + 1))
    else:
        assert found == NoFuture(text % OUTDATED_TIMES)
    assert previews.outlook(CHANGE, seen(1e6, 99)) is found


def test_fewer_changes_of_the_map_do_not_end_them_however_long_they_take() -> None:
    previews = Previews()
    previews.outlook(CHANGE, seen())
    for number in range(OUTDATED_TIMES - 1):
        assert outdated(previews, 1000.0 + number * OUTDATED_SECONDS, number + 2) is None
    # One result lets them be forgotten.
    last = 1000.0 + OUTDATED_TIMES * OUTDATED_SECONDS
    previews.tools.jobs[-1].run()
    assert previews.outlook(CHANGE, seen(last, OUTDATED_TIMES)) is FUTURE
    assert previews.outlook(CHANGE, seen(last, 50)) is None
    for number in range(OUTDATED_TIMES - 2):
        assert outdated(previews, last + OUTDATED_SECONDS - 1.0, 51 + number) is None
    assert outdated(previews, last + OUTDATED_SECONDS, 99) == NoFuture(
        'OSDs, pools or upmaps have changed during each of %d computations' % OUTDATED_TIMES)


# ---- what places PGs

def test_what_has_no_effect_on_placement() -> None:
    before = seen()
    osdmap, pool = before.osdmap, before.osdmap.pools[1]

    def changed_map(**fields: Any) -> Observation:
        other = replace(osdmap, epoch=9, **fields)
        return replace(before, settings=replace(before.settings, osdmap=other))

    same: List[Dict[str, Any]] = [
        {}, {'osds': {**osdmap.osds, 0: replace(osdmap.osds[0], fullness='full')}},
        {'pg_temp': {'1.1': (1, 2, 3)}}, {'flags': frozenset()},
        {'pools': {1: replace(pool, name='other', autoscale_mode='warn', quota_bytes=1,
                              quota_objects=1, pg_num_min=1, pg_num_max=1,
                              flags=frozenset({'full'}))}}]
    other: List[Dict[str, Any]] = [
        {'osds': {**osdmap.osds, 0: replace(osdmap.osds[0], up=False)}},
        {'upmap_items': {'1.1': ((1, 2),)}}, {'upmap_vectors': {'1.1': (1, 2, 3)}},
        {'upmap_primaries': {'1.1': 2}}, {'pools': {1: replace(pool, pgp_num=16)}},
        {'pools': {1: replace(pool, flags=frozenset({'hashpspool'}))}}, {'pools': {}}]
    for fields, is_same in [(row, True) for row in same] + [(row, False) for row in other]:
        assert same_placement(before, changed_map(**fields)) is is_same, fields
        assert (what_places(before) == what_places(changed_map(**fields))) is is_same
    assert not same_placement(before, seen(version=2))
    # The same epoch is the same map, whatever else is newer.
    assert same_placement(before, replace(before, crush_version=99)) is True


# ---- a turn

@dataclass
class ClusterFake:
    answers: Mapping[Question, str] = field(default_factory=dict)
    asked: int = 0

    entries: Optional[Tuple[ConfigEntry, ...]] = ()
    #: How often the configuration database was read.
    entries_read: int = 0

    def osd_versions(self, osds: Iterable[int]) -> Dict[int, str]:
        return dict.fromkeys(osds, '18.2.7')

    def config_entries(self) -> Optional[Tuple[ConfigEntry, ...]]:
        self.entries_read += 1
        return self.entries

    def inquire(self, questions: Sequence[Question]) -> Dict[Question, str]:
        self.asked += 1
        return {question: self.answers[question] for question in questions
                if question in self.answers}


class Turn(TurnInputs):
    def __init__(self) -> None:
        self.cluster, self.orders, self.tools = ClusterFake(), CrushOrdersFake(), Tools()
        super().__init__(self.cluster, self.orders, self.tools)  # type: ignore[arg-type]


def with_balancer(active: str, busy: bool, now: float) -> Observation:
    found = seen(now)
    return replace(found, settings=replace(found.settings, balancer_active=active,
                                           balancer_busy=busy))


def test_the_balancer_is_busy_until_it_has_rested() -> None:
    turn = Turn()

    def busy(active: str, is_busy: bool, now: float) -> bool:
        return turn.with_balancer(with_balancer(active, is_busy, now)).settings.balancer_busy

    # An mgr that begins in the middle of a campaign does not wait.
    assert busy('false', False, BALANCER_REST_SECONDS) is False
    turn.begin()
    assert busy('false', False, 1000.0) is True
    assert busy('false', False, 1000.0 + BALANCER_REST_SECONDS / 2) is True
    assert busy('false', False, 1000.0 + BALANCER_REST_SECONDS) is False
    # It begins again once it is on, or busy.
    for active, is_busy in (('true', False), ('false', True)):
        assert busy(active, is_busy, 1010.0) is is_busy
        assert busy('false', False, 1011.0) is True
        assert busy('false', False, 1011.0 + BALANCER_REST_SECONDS) is False


RELEASING = campaign_of(1, Phase.RELEASING, 900.0)
PACED = replace(OPTIONS, pace_copying='on')
QUESTIONS = [Question(osd, option='osd_op_queue') for osd in range(6)]


@pytest.mark.parametrize('campaign, options, asked', [
    (RELEASING, PACED, True), (replace(RELEASING, phase=Phase.HOLDING), PACED, True),
    (replace(RELEASING, phase=Phase.PINNED), PACED, False),
    (RELEASING, replace(OPTIONS, pace_copying='off'), False)])
def test_when_osds_are_asked_for_their_scheduler(campaign: Campaign, options: Options,
                                                 asked: bool) -> None:
    turn = Turn()
    for _ in range(2):
        assert turn.complete(campaign, seen(), options).schedulers == frozenset()
    assert turn.cluster.asked == (2 if asked else 0)
    # All have to answer; the configuration is read once.
    assert turn.cluster.entries_read == (1 if asked else 0)
    turn.cluster.answers = dict.fromkeys(QUESTIONS[1:], 'wpq')
    assert turn.complete(campaign, seen(), options).schedulers == frozenset()
    turn.cluster.answers = {**dict.fromkeys(QUESTIONS, 'wpq'), QUESTIONS[3]: 'mclock_scheduler'}
    for _ in range(2):
        assert turn.complete(campaign, seen(), options).schedulers == (
            {'wpq', 'mclock_scheduler'} if asked else frozenset())
    assert turn.cluster.asked == (4 if asked else 0)
    # They may use another one when releases continue.
    turn.complete(replace(campaign, phase=Phase.PINNED), seen(), options)
    turn.complete(campaign, seen(), options)
    assert turn.cluster.asked == (5 if asked else 0)
    assert turn.cluster.entries_read == (2 if asked else 0)


def about_to_send(**fields: Any) -> Campaign:
    change = replace(CHANGE, **fields)
    return campaign_of(1, Phase.PINNING, 900.0, change=change)


def test_the_mapping_after_a_change_that_is_about_to_be_sent() -> None:
    turn, campaign = Turn(), about_to_send()
    assert turn.complete(campaign, seen(), OPTIONS).outlook is None
    turn.tools.jobs[0].run()
    assert turn.complete(campaign, seen(), OPTIONS).outlook is FUTURE
    assert turn.complete(campaign, seen(), OPTIONS).outlook_failure == ''
    turn.begin()
    assert turn.complete(campaign, seen(), OPTIONS).outlook is None and len(turn.tools.jobs) == 2


@pytest.mark.parametrize('campaign', [
    NO_CAMPAIGN, replace(about_to_send(), phase=Phase.PINNED),
    about_to_send(stage=ChangeStage.SENT, since=990.0), about_to_send(stage=ChangeStage.LANDED),
    replace(about_to_send(), change=None)])
def test_nothing_is_computed_otherwise_and_results_are_discarded(campaign: Campaign) -> None:
    turn = Turn()
    turn.complete(about_to_send(), seen(), OPTIONS)
    found = turn.complete(campaign, seen(), OPTIONS)
    assert found.outlook is None and [job.cancelled for job in turn.tools.jobs] == [True]


def test_a_failure_is_shown() -> None:
    turn = Turn()
    turn.orders.outlook = FAILED
    turn.complete(about_to_send(), seen(), OPTIONS)
    turn.tools.jobs[0].run()
    assert turn.complete(about_to_send(), seen(), OPTIONS).outlook_failure == 'no answer'


@pytest.mark.parametrize('stage, shown', [
    (ChangeStage.WANTED, 'osd.3'), (ChangeStage.SENT, 'osd.3'), (ChangeStage.LANDED, '')])
def test_a_change_that_others_have_overtaken(stage: ChangeStage, shown: str) -> None:
    turn = Turn()
    turn.orders.by_others = 'osd.3'
    found = turn.complete(about_to_send(stage=stage, since=990.0), seen(), OPTIONS)
    assert found.overtaken == shown and turn.tools.jobs == []


@pytest.mark.parametrize('behind, late, unanswered', [
    (True, True, True), (False, True, False), (True, False, False)])
def test_no_change_is_late_for_an_mgr_that_is_behind(behind: bool, late: bool,
                                                     unanswered: bool) -> None:
    turn = Turn()
    turn.orders.is_behind = behind
    since = 1000.0 - OPTIONS.readback_timeout - (1.0 if late else 0.0)
    campaign = changed(about_to_send(stage=ChangeStage.SENT, times=1, since=since))
    assert turn.complete(campaign, seen(), OPTIONS).unanswered_at == (
        1000.0 if unanswered else 0.0)


# ---- raw sets behind vectors

VECTOR, ITEMS = UpmapEntry(vector=(1, 2, 3)), UpmapEntry(((1, 2),))


@pytest.mark.parametrize('pin, goal', [
    # The earlier entry is the goal of a PG whose raw set was unknown.
    (PinRecord(ITEMS, VECTOR, goal=ITEMS), None),
    (PinRecord(ITEMS, VECTOR, goal=ITEMS, raw=(1, 2, 3)), ITEMS),
    (PinRecord(ITEMS, VECTOR, goal=VECTOR), VECTOR), (PinRecord(ITEMS, VECTOR), None)])
def test_the_goal_of_a_pin_whose_raw_set_changes(pin: PinRecord,
                                                 goal: Optional[UpmapEntry]) -> None:
    assert _lasting_goal(pin) == goal


@pytest.mark.parametrize('raws, known, shown', [
    ({'1.1': (1, 2, 3)}, (1, 2, 3), {}), ({'1.1': (1, 2, 4)}, (1, 2, 3), {'1.1': (1, 2, 4)}),
    ({'1.2': (1, 2, 4)}, (1, 2, 3), {'1.1': None}), ({'1.2': (1, 2, 4)}, None, {}),
    (None, (1, 2, 3), {'1.1': None})])
def test_the_raw_sets_that_are_stored(raws: Optional[Mapping[str, Tuple[int, ...]]],
                                      known: Optional[Tuple[int, ...]],
                                      shown: Mapping[str, Optional[Tuple[int, ...]]]) -> None:
    outlook: Outlook = FAILED if raws is None else replace(FUTURE, pgs={
        pgid: FuturePg((), raw) for pgid, raw in raws.items()})
    pins, basis = {'1.1': PinRecord(ITEMS, VECTOR, raw=known)}, Basis('', {})
    new = _raws_shown(outlook, pins, basis)
    assert {pgid: pin.raw for part in new.parts for pgid, pin in part.items()} == shown
    assert new.failure == ('no answer' if raws is None else '')
    assert (new.basis, new.known) == (basis, pins)
