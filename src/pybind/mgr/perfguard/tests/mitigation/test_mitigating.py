# SPDX-License-Identifier: LGPL-2.1-or-later
"""What one turn of the mitigation reads, decides by, stores and sends; for stories, see
test_controller."""
import types
from dataclasses import replace
from functools import lru_cache
from typing import Any, Dict, FrozenSet, Iterable, List, Mapping, Optional, Sequence, Tuple

import pytest

from perfguard.cluster.types import (NO_OSD, ConfigEntry, OsdSet, PgCounts, Placement, Question,
                                     Reply, UpmapEntry)
from perfguard.codec import encode
from perfguard.errors import Refused
from perfguard.events import Event
from perfguard.ledger import Held
from perfguard.mitigation import controller, ladder
from perfguard.mitigation.controller import (ASKED_PGS, MITIGATION_DOCUMENT, Mitigated,
                                             Mitigating, with_mitigation)
from perfguard.mitigation.types import (Evidence, LadderStep, LadderView, MitigationState, Policy,
                                        RecoveryPace, Revert, Rung, Setting, SettingKind, StepStage,
                                        Trouble)
from perfguard.observation import Observation
from perfguard.rebalance.campaign import NO_CAMPAIGN, Campaign
from perfguard.rebalance.types import Flight, Pace, Phase, PinRecord
from perfguard.store import Store
from perfguard.watch.controller import Watched
from perfguard.watch.laggy import Suspect
from perfguard.watch.osds import OsdReads
from perfguard.watch.report import LaggyStatus, OsdRow

from ..fakes.campaigns import campaign_of, changed
from ..fakes.cluster import FakeCluster, MemoryKv
from ..fakes.driver import OPTIONS, Driver

START = 10000.0
LAGGY = {'laggy': 3, 'remapped': 5, 'backfilling': 5}
#: Recovery that is slowed: the option and its command.
SLOWED = ['config set osd osd_max_backfills 1', 'config set osd osd_recovery_max_active 1']


@lru_cache()
def template() -> Observation:
    """Nine hosts with an OSD each."""
    return Driver(FakeCluster(hosts=9)).loop._observing.observe()[0]


class World:
    """The mons and OSDs, as far as one turn of the mitigation depends on them."""

    def __init__(self, state: MitigationState = MitigationState()) -> None:
        self.now = START
        self.counts: Dict[str, int] = {}
        self.flags: FrozenSet[str] = frozenset()
        self.config: Dict[Tuple[str, str], str] = {('osd', 'osd_max_backfills'): '4'}
        #: What OSDs show in place of the configuration database.
        self.shown: Dict[str, str] = {'osd_op_queue': 'wpq'}
        self.unread = False
        #: How many questions are answered.
        self.answered = 1000
        #: PGs that wait for backfill, and acting sets.
        self.waiting: Tuple[str, ...] = ()
        self.acting: Dict[str, OsdSet] = {}
        self.watched = Watched()
        self.campaign: Campaign = NO_CAMPAIGN
        #: Fields of the observation, of signals and of OSDMaps; options.
        self.observation: Dict[str, Any] = {}
        self.signals: Dict[str, Any] = {}
        self.osdmap: Dict[str, Any] = {}
        self.options: Dict[str, Any] = {}
        self.refusal: Optional[str] = None
        self.late = False
        self.kept = self.writes = True
        self.config_read: List[float] = []
        self.asked: List[Tuple[float, Sequence[Question]]] = []
        self.sleeps_of: List[object] = []
        self.sent: List[str] = []
        self.events: List[Event] = []
        self.kv = MemoryKv()
        self.store = Store(self.kv)
        self.store.put(MITIGATION_DOCUMENT, encode(state))
        self.begin()

    def begin(self) -> None:
        """With another mgr."""
        mons: Any = self
        self.mitigating = Mitigating(mons, self.store, self.events.append, lambda: self.kept,
                                     lambda: self.writes)
        assert self.mitigating.load(self.now) == []

    # ---- cluster.ports.Cluster

    def config_entries(self) -> Optional[Tuple[ConfigEntry, ...]]:
        self.config_read.append(self.now)
        return None if self.unread else tuple(
            ConfigEntry(who.partition('/')[0], who.partition('/')[2], name, value)
            for (who, name), value in self.config.items())

    def degraded_sleep(self, versions: object) -> str:
        self.sleeps_of.append(versions)
        return 'osd_recovery_sleep'

    def osd_versions(self, osds: Iterable[int]) -> Dict[int, str]:
        return dict.fromkeys(osds, '')

    def inquire(self, questions: Sequence[Question]) -> Mapping[Question, str]:
        self.asked.append((self.now, questions))
        return {question: self._answer(question) for question in questions[:self.answered]}

    def _answer(self, question: Question) -> str:
        if question.pgid:
            return 'active+remapped+' + ('backfill_wait' if question.pgid in self.waiting
                                         else 'backfilling')
        return self.shown.get(question.option, self.config.get(('osd', question.option), ''))

    def run(self, commands: Sequence[Mapping[str, Any]]) -> List[Reply]:
        for command in commands:
            self.sent.append(' '.join(str(value) for value in command.values()))
            if self.refusal is None and not self.late:
                self._apply(command)
        return [Reply(0) if self.refusal is None else Reply(-1, error=self.refusal)
                for _ in commands]

    def _apply(self, command: Mapping[str, Any]) -> None:
        if command['prefix'] == 'osd set':
            self.flags |= {command['key']}
        elif command['prefix'] == 'osd unset':
            self.flags -= {command['key']}
        elif command['prefix'] == 'config set':
            self.config[command['who'], command['name']] = command['value']
        elif command['prefix'] == 'config rm':
            del self.config[command['who'], command['name']]

    # ---- one turn

    def placement(self, pgid: str) -> Optional[Placement]:
        acting = self.acting.get(pgid, (1, 2, 3))
        return Placement((4, 5, 6), acting) if acting else None

    def observed(self) -> Observation:
        seen = template()
        osdmap = replace(seen.osdmap, flags=self.flags, **self.osdmap)
        return replace(seen, **{
            'now': self.now, 'placement': self.placement, 'unanswered_at': 0.0,
            'signals': replace(seen.signals, counts=PgCounts(total=24, **self.counts),
                               **self.signals),
            'settings': replace(seen.settings, osdmap=osdmap), **self.observation})

    def turn(self, after: float = 1.0, taken: FrozenSet[str] = frozenset()) -> List[str]:
        """What is sent to the mons, `after` seconds later."""
        self.now += after
        observed, before = self.observed(), len(self.sent)
        view: Any = types.SimpleNamespace(osdmap=observed.osdmap, placement=self.placement)
        self.mitigating.turn(observed, view, self.watched, self.campaign, replace(OPTIONS, **{
            'mitigation_mode': 'act', 'mitigation_seconds': 5.0, **self.options}), taken)
        return self.sent[before:]

    def fly(self, *pgids: str, phase: Phase = Phase.RELEASING, pinned: bool = True) -> None:
        """A campaign has released these PGs."""
        pin = PinRecord(UpmapEntry(), UpmapEntry(((4, 1),))) if pinned else None
        self.campaign = campaign_of(1, phase, START, in_flight={
            pgid: Flight(START, UpmapEntry(), pin=pin) for pgid in pgids})

    @property
    def stored(self) -> MitigationState:
        return self.store.load(MITIGATION_DOCUMENT, MitigationState, MitigationState())[0]

    @property
    def stages(self) -> Dict[Rung, StepStage]:
        return {step.rung: step.stage for step in self.mitigating._state.steps}

    @property
    def told(self) -> List[str]:
        return [event.what for event in self.events]


class Decisions:
    """What the ladder was given, and by which it decided."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.rows: List[Tuple[Evidence, LadderView, Policy]] = []
        decide = ladder.decide

        def noted(state: MitigationState, evidence: Evidence, view: LadderView, policy: Policy,
                  now: float) -> ladder.LadderDecision:
            self.rows.append((evidence, view, policy))
            return decide(state, evidence, view, policy, now)

        monkeypatch.setattr(ladder, 'decide', noted)

    @property
    def evidence(self) -> Evidence:
        return self.rows[-1][0]

    @property
    def view(self) -> LadderView:
        return self.rows[-1][1]

    @property
    def policy(self) -> Policy:
        return self.rows[-1][2]


@pytest.fixture
def decisions(monkeypatch: pytest.MonkeyPatch) -> Decisions:
    return Decisions(monkeypatch)


def slowed(*options: str, since: float = START, stage: StepStage = StepStage.HELD,
           seen: bool = True, rung: Rung = Rung.SLOW, **fields: Any) -> MitigationState:
    """Recovery is slowed by these options, which have the value 1 now."""
    settings = tuple(Setting(SettingKind.CONFIG, name, 'osd', Held('4', '1', seen))
                     for name in options or ('osd_max_backfills',))
    return MitigationState(
        (LadderStep(7, rung, stage, since, 'laggy', settings=settings, **fields),), 7,
        recovery=RecoveryPace(int(rung is Rung.FASTER)))


def with_slowed(**fields: Any) -> World:
    world = World(slowed(**fields))
    world.config = {('osd', 'osd_max_backfills'): '1'}
    world.counts = dict(LAGGY)
    return world


# ---- the ladder, from the outside

def test_rung_by_rung_up_and_down() -> None:
    world = World()
    world.counts = dict(LAGGY)
    assert world.turn(0.0) == world.turn(4.875) == []
    assert world.turn(0.125) == ['osd set norebalance']
    assert world.told == ['norebalance is set'] and world.turn(4.875) == []
    assert world.turn(0.125) == SLOWED
    assert world.stages == {Rung.NOREBALANCE: StepStage.HELD, Rung.SLOW: StepStage.HELD}
    assert world.stored.last_id == 2
    world.counts = {}
    # The options are read back first.
    world.turn()
    assert world.turn(9.875) == []
    assert world.turn(0.125) == []
    assert world.turn() == ['config set osd osd_max_backfills 4',
                            'config rm osd osd_recovery_max_active']
    world.turn(5.0)
    world.turn(5.0)
    world.turn(5.0)
    assert world.flags == frozenset() and world.stages == {}


def test_only_the_first_slow_osds_of_checks_that_are_not_muted_count(
        decisions: Decisions) -> None:
    world = World()
    world.watched = Watched(
        slow_osds={1: 'slow', 2: 'chronic', 3: 'not reported yet'},
        reported_osds={'PERFGUARD_SLOW_OSD': frozenset({1}),
                       'PERFGUARD_OSD_CHRONIC': frozenset({1, 2})})
    for muted, slow in (((), {1, 2}), (('PERFGUARD_OSD_CHRONIC',), {1}),
                        (('PERFGUARD_SLOW_OSD',), {1, 2}),
                        (('PERFGUARD_SLOW_OSD', 'PERFGUARD_OSD_CHRONIC'), set())):
        world.signals = {'muted': frozenset(muted)}
        world.turn()
        assert decisions.evidence.slow_osds.keys() == slow


def test_what_the_evidence_is_made_of(decisions: Decisions) -> None:
    world = World()
    world.watched = Watched(laggy_raised=True, late=(('reads of pool rbd', 1),))
    world.campaign = changed(campaign_of(1, Phase.RELEASING, START), acknowledged=('SLOW_POOL',))
    world.observation = {'evacuation': {'1.0': (1,), '1.1': (1, 2)}}
    world.signals = {'pool_counts': {1: PgCounts(), 2: PgCounts()}}
    world.options = {'mitigation_affinity': True, 'mitigation_backfills': 3}
    world.turn(taken=frozenset({'noscrub'}))
    signs = decisions.evidence
    assert [reason.code for reason in signs.trouble] == ['LAGGY_LATELY']
    assert [reason.code for reason in signs.accepted] == ['SLOW_POOL']
    # Its OSDs have no part in movement.
    assert signs.untouched == {1} and signs.evacuating == 2 and not signs.is_incomplete
    assert decisions.policy == Policy('act', 5.0, True, 3)
    assert decisions.view.borrowed_elsewhere == {'noscrub'}


def test_the_absence_of_evidence_means_nothing_for_five_minutes(decisions: Decisions) -> None:
    world = World()
    for number, failure in ((1, ''), (0, 'KeyError'), (1, 'KeyError')):
        world.counts, world.watched = {'unreported': number}, Watched(failure=failure)
        for after, unknown in ((0.0, True), (299.875, True), (0.125, False), (60.0, False)):
            world.turn(after)
            assert decisions.evidence.is_incomplete is unknown
        world.counts, world.watched = {}, Watched()
        world.turn()
        assert not decisions.evidence.is_incomplete


@pytest.mark.parametrize('waiting, judged', [(0, False), (1, True)])
def test_clients_are_judged_while_degraded_pgs_recover(
        monkeypatch: pytest.MonkeyPatch, decisions: Decisions, waiting: int,
        judged: bool) -> None:
    """As for a campaign with one PG in flight, and without stalls."""
    calls: List[Any] = []

    def judge(*args: Any) -> Pace:
        calls.append(args)
        return Pace(code='LATENCY', why='slow clients')

    monkeypatch.setattr(controller, 'judge', judge)
    world = World()
    world.counts = {'degraded': 1, 'degraded_waiting': waiting}
    world.turn()
    world.turn()
    assert [call[2:5] for call in calls] == [(frozenset(), 0.0, 1)] * (2 * judged)
    assert decisions.view.room.over_limit is judged
    if judged:
        assert calls[0][0] == Pace() and calls[1][0].code == 'LATENCY'
        world.counts = {}
        world.turn()
        assert not decisions.view.room.over_limit
        world.counts = {'degraded': 1, 'degraded_waiting': waiting}
        world.turn()
        assert calls[-1][0] == Pace()


def test_an_empty_osdmap_decides_nothing(decisions: Decisions) -> None:
    world = with_slowed()
    world.mitigating.revert(Revert(7))
    world.osdmap = {'osds': {}}
    assert world.turn() == [] and decisions.rows == []
    assert world.stored.steps[0].stage is StepStage.UNDOING
    assert world.mitigating.mitigated.stages == {7: StepStage.UNDOING}
    world.osdmap = {}
    assert world.turn() == ['config set osd osd_max_backfills 4']
    assert world.told == ['mitigation revert 7']


# ---- what it decides by

def test_the_view_of_the_ladder(decisions: Decisions) -> None:
    world = World()
    world.flags = frozenset({'norebalance', 'noout'})
    osds = template().osdmap.osds
    world.osdmap = {'osds': {**osds, 2: replace(osds[2], up=False),
                             3: replace(osds[3], primary_affinity=0.5)}}
    world.watched = Watched(hosts={1: 'h1', 2: 'h2', 3: 'h3', 77: 'h77'}, slow_osds={1: 'slow'},
                            osd_causes={1: ('load',)}, osd_reads={1: OsdReads(100)},
                            osds=(OsdRow(1, 'h1', 'hdd', '', score=3.0),))
    world.observation = {'unanswered_at': 5.0, 'settings': replace(
        template().settings, osdmap=replace(template().osdmap, flags=world.flags, **world.osdmap),
        flags_set_by_others=frozenset({'norebalance', 'noscrub'}))}
    world.turn()
    view = decisions.view
    assert view.flags == {'norebalance', 'noout'} and view.flags_set_by_others == {'norebalance'}
    assert view.affinities == {**dict.fromkeys(range(9), 1.0), 3: 0.5}
    assert view.hosts == {1: 'h1', 3: 'h3'} and view.unanswered_at == 5.0
    assert list(view.futile) == [1] and view.unread == set() and view.in_flight == set()
    assert view.config is None and world.config_read == [] and not view.campaign_still


@pytest.mark.parametrize('affinity', [False, True])
def test_device_classes_matter_only_if_affinities_may_be_lowered(
        monkeypatch: pytest.MonkeyPatch, decisions: Decisions, affinity: bool) -> None:
    monkeypatch.setattr(controller, 'mixed_osds', lambda seen, osds: frozenset(osds))
    world = World()
    world.watched = Watched(slow_osds={4: 'slow'})
    world.options = {'mitigation_affinity': affinity}
    world.turn()
    assert decisions.view.mixed == ({4} if affinity else set())


@pytest.mark.parametrize('slow, osd_reads, score, unread', [
    ({1: 'slow'}, {1: OsdReads(9)}, 3.0, set()), ({1: 'slow'}, {1: OsdReads(9)}, None, {1}),
    ({1: 'slow'}, {}, 3.0, {1}), ({}, {1: OsdReads(9)}, 3.0, set()),
    ({1: 'slow', 2: 'slow'}, {1: OsdReads(9), 2: OsdReads(9)}, 3.0, {2})])
def test_of_which_slow_osds_the_reads_are_unknown(
        decisions: Decisions, slow: Dict[int, str], osd_reads: Dict[int, OsdReads],
        score: Optional[float], unread: FrozenSet[int]) -> None:
    world = World()
    world.watched = Watched(slow_osds=slow, osd_reads=osd_reads,
                            osds=(OsdRow(1, 'h1', 'hdd', '', score=score),))
    world.turn()
    assert decisions.view.unread == unread


@pytest.mark.parametrize('phase, pinned, in_flight', [
    (Phase.RELEASING, True, {'1.0', '1.1'}), (Phase.HOLDING, True, {'1.0', '1.1'}),
    (Phase.RELEASING, False, set()), (Phase.ABORTING, True, set())])
def test_which_pgs_can_be_pinned_back(decisions: Decisions, phase: Phase, pinned: bool,
                                      in_flight: FrozenSet[str]) -> None:
    world = World()
    world.fly('1.0', '1.1', phase=phase, pinned=pinned)
    world.turn()
    assert decisions.view.in_flight == in_flight


@pytest.mark.parametrize('phase, fields, still', [
    (Phase.RELEASING, {}, False), (Phase.RELEASING, {'paused': True}, True),
    (Phase.RELEASING, {'pace': Pace(halted=True)}, True), (Phase.PINNED, {}, True),
    (Phase.DONE, {'paused': True}, False), (Phase.DONE, {'pace': Pace(halted=True)}, False)])
def test_whether_the_campaign_needs_all_pgs_to_stand_still(
        decisions: Decisions, phase: Phase, fields: Dict[str, Any], still: bool) -> None:
    world = World()
    world.campaign = changed(campaign_of(1, phase, START), **fields)
    world.turn()
    assert decisions.view.campaign_still is still


@pytest.mark.parametrize('state, is_read', [
    (slowed(), True), (slowed(stage=StepStage.UNDOING, then=StepStage.GIVEN_UP), True),
    (slowed(stage=StepStage.WOULD), False),
    (MitigationState((LadderStep(7, Rung.NOREBALANCE, StepStage.HELD, START, 'laggy', settings=(
        Setting(SettingKind.FLAG, 'norebalance', '', Held(None, 'set', True)),)),), 7), False)])
def test_options_are_read_while_some_are_borrowed(
        decisions: Decisions, state: MitigationState, is_read: bool) -> None:
    world = World(state)
    world.counts = dict(LAGGY)
    world.options = {'mitigation_mode': 'observe'} if StepStage.WOULD in [
        step.stage for step in state.steps] else {}
    world.watched = Watched(osd_versions=frozenset({'18.2.7'}))
    world.turn(0.0)
    assert world.config_read == [START] * is_read
    assert world.sleeps_of == [frozenset({'18.2.7'})] * is_read


def test_options_are_read_every_five_seconds() -> None:
    world = with_slowed()
    world.flags = frozenset({'norebalance'})
    for _ in range(40):
        world.turn(0.625)
    assert world.config_read == [START + 0.625 + 5.0 * number for number in range(5)]


def test_options_are_read_once_per_turn_although_the_mons_do_not_answer(
        decisions: Decisions) -> None:
    world = World()
    world.flags, world.counts, world.unread = frozenset({'norebalance'}), dict(LAGGY), True
    world.turn()
    for _ in range(3):
        assert world.turn(5.0) == []
    assert world.config_read == [START + 6.0, START + 11.0, START + 16.0]
    assert decisions.view.schedulers == {'wpq'} and decisions.view.config is None
    world.unread = False
    assert world.turn(0.125) == SLOWED


@pytest.mark.parametrize('answered', [3, 4])
def test_osds_have_five_seconds_to_answer(answered: int) -> None:
    """Which scheduler they use."""
    world = World()
    world.flags, world.counts = frozenset({'norebalance'}), dict(LAGGY)
    world.answered = answered
    world.turn()
    assert world.turn(5.0) == (SLOWED if answered == 4 else [])
    assert world.asked[0] == (START + 6.0, [
        Question(osd, option='osd_op_queue') for osd in (0, 2, 4, 6)])
    if answered == 3:
        assert world.turn(4.875) == [] and world.turn(0.125) == SLOWED


def test_without_any_answer_the_scheduler_remains_unknown() -> None:
    world = World()
    world.flags, world.counts, world.answered = frozenset({'norebalance'}), dict(LAGGY), 0
    world.turn()
    assert not any(world.turn(5.0) for _ in range(4))
    world.answered = 1000
    assert world.turn(1.0) == SLOWED


def test_the_time_to_answer_begins_anew_with_each_need() -> None:
    world = World()
    world.flags, world.counts, world.answered = frozenset({'norebalance'}), dict(LAGGY), 1
    world.turn()
    assert world.turn(5.0) == []
    world.counts = {}
    world.turn(3.0)
    world.counts = dict(LAGGY)
    world.turn(1.0)
    assert world.turn(5.0) == [] and world.turn(4.875) == [] and world.turn(0.125) == SLOWED


# ---- pinning back

def flying(*pgids: str, suspects: Sequence[int] = (8,), laggy: int = 3) -> World:
    """PGs are in flight, and norebalance is set."""
    world = World()
    world.flags = frozenset({'norebalance'})
    world.counts = {**LAGGY, 'laggy': laggy}
    world.watched = Watched(laggy=LaggyStatus(
        suspects=tuple(Suspect(osd, 0.5, 'laggy') for osd in suspects)))
    world.fly(*pgids)
    world.waiting = pgids
    world.turn()
    return world


def pinned_back(world: World) -> FrozenSet[str]:
    world.turn(5.0)
    return world.mitigating.mitigated.pin_back


@pytest.mark.parametrize('suspects, laggy, slow_ops, pinned', [
    ((8,), 3, False, {'1.0', '1.1'}),
    # Only the most likely suspect counts.
    ((8, 1), 3, False, {'1.0', '1.1'}), ((1, 8), 3, False, {'1.1'}),
    ((4,), 3, False, set()),
    # Which OSD is the cause is not known.
    ((), 1, False, set()), ((), 0, True, {'1.0', '1.1'})])
def test_pgs_that_wait_are_pinned_back_unless_they_would_peer_with_the_suspect(
        suspects: Sequence[int], laggy: int, slow_ops: bool, pinned: FrozenSet[str]) -> None:
    world = World()
    world.flags = frozenset({'norebalance'})
    world.counts = {**LAGGY, 'laggy': laggy}
    world.signals = {'slow_daemons': {'osd.2': 1}} if slow_ops else {}
    world.watched = Watched(laggy=LaggyStatus(
        suspects=tuple(Suspect(osd, 0.5, 'laggy') for osd in suspects)))
    world.fly('1.0', '1.1')
    world.waiting = ('1.0', '1.1')
    world.acting = {'1.1': (2, 3, 7)}
    world.turn()
    assert pinned_back(world) == pinned


def test_the_primaries_are_asked_for_the_states() -> None:
    world = flying('1.0', '1.1', '1.2')
    world.acting = {'1.0': (NO_OSD, 5, 6), '1.1': (), '1.2': (NO_OSD, NO_OSD, NO_OSD)}
    assert pinned_back(world) == {'1.0'}
    assert world.asked == [(START + 6.0, [Question(5, pgid='1.0')])]


def test_so_many_pgs_are_asked() -> None:
    pgids = ['1.%03x' % number for number in range(ASKED_PGS + 9)]
    world = flying(*pgids)
    assert pinned_back(world) == set(pgids[:ASKED_PGS])


def test_late_answers_of_pgs_are_awaited() -> None:
    world = flying('1.0', '1.1')
    world.answered = 1
    assert pinned_back(world) == set()
    world.turn(4.875)
    assert world.mitigating.mitigated.pin_back == set() and world.sent == []
    world.turn(0.125)
    assert world.mitigating.mitigated.pin_back == {'1.0'}


def test_pgs_that_have_arrived_are_no_longer_pinned_back() -> None:
    world = flying('1.0', '1.1')
    assert pinned_back(world) == {'1.0', '1.1'}
    world.fly('1.1')
    world.turn()
    assert world.mitigating.mitigated.pin_back == {'1.1'}
    world.counts = {}
    world.turn()
    world.turn(10.0)
    assert world.mitigating.mitigated.pin_back == set(), 'it is being undone'


# ---- the journal

def test_an_mgr_that_does_not_own_the_journal_does_nothing() -> None:
    world = World()
    world.counts = dict(LAGGY)
    world.turn(0.0)
    world.writes = False
    before = world.stored
    assert world.turn(5.0) == [] and world.told == [] and world.stored == before
    assert world.stages == {}
    world.writes = True
    assert world.turn(0.0) == ['osd set norebalance']


def test_no_command_is_sent_before_its_record_is_stored() -> None:
    world = World()
    world.counts = dict(LAGGY)
    world.turn(0.0)
    world.kept = False
    assert world.turn(5.0) == [] and world.stored.last_id == 1
    assert world.told == ['norebalance is set']
    world.kept = True
    assert world.turn() == ['osd set norebalance']


def test_what_does_not_change_is_not_written() -> None:
    world = with_slowed()
    world.flags = frozenset({'norebalance'})
    world.turn()
    written = world.kv.fault.count
    world.begin()
    for _ in range(20):
        world.turn()
    assert world.kv.fault.count == written
    world = World()
    world.counts, world.answered = dict(LAGGY), 0
    world.turn(0.0)
    world.turn(5.0)
    # It is read back.
    world.turn()
    written = world.kv.fault.count
    for _ in range(20):
        world.turn()
    assert world.kv.fault.count == written


def test_this_mgr_does_not_know_how_long_there_has_been_evidence() -> None:
    troubles = (Trouble('LAGGY', START - 5.0, 90.0, False), Trouble('LAGGY 2', START, 90.0, True))
    stored = MitigationState(
        slowed().steps, 7, bad_since=START - 50.0, clear_since=START - 60.0, degraded=START - 70.0,
        turned=START, troubles=troubles, recovery=RecoveryPace(2, waiting=START - 9.0))
    world = World(stored)
    assert world.mitigating._state == replace(
        stored, bad_since=0.0, clear_since=0.0, turned=0.0, recovery=RecoveryPace(2),
        troubles=(Trouble('LAGGY 2', 0.0, 0.0, True),))


def test_a_clock_that_was_ahead() -> None:
    world = World(slowed(since=START + 3600.0))
    assert world.mitigating._state.steps[0].since == START


# ---- commands

def test_each_failure_is_reported_once() -> None:
    world = World()
    world.counts, world.refusal, world.answered = dict(LAGGY), 'EPERM', 0
    world.turn(0.0)
    for _ in range(3):
        assert world.turn(5.0) == ['osd set norebalance']
    failures = [event.what for event in world.events if event.kind == 'failed']
    assert failures == ['osd set norebalance: EPERM']
    world.refusal = ''
    world.turn(1.0)
    assert world.told[-1] == 'osd set norebalance: no answer'
    # One that has succeeded in between is reported again.
    world.refusal, world.late = None, True
    world.turn(1.0)
    world.refusal = ''
    world.turn(1.0)
    assert world.told[-2:] == ['osd set norebalance: no answer'] * 2


def test_failures_are_forgotten_without_commands() -> None:
    world = World()
    world.counts, world.refusal, world.answered = dict(LAGGY), 'EPERM', 0
    world.turn(0.0)
    world.turn(5.0)
    world.flags = frozenset({'norebalance'})
    world.turn()
    assert world.mitigating._failures == ()


# ---- whether options are in force

def differing(**fields: Any) -> World:
    world = with_slowed(**fields)
    world.flags = frozenset({'norebalance'})
    world.shown['osd_max_backfills'] = '3'
    return world


def notes(world: World) -> List[str]:
    return [event.what for event in world.events if 'not in force' in event.what]


def test_options_are_compared_with_those_in_force_after_ten_seconds() -> None:
    world = differing()
    world.turn(9.875)
    assert world.asked == []
    world.turn(0.125)
    assert [now for now, _ in world.asked] == [START + 10.0]
    assert {(question.option, question.pgid) for question in world.asked[0][1]} == {
        ('osd_max_backfills', '')}
    assert len(notes(world)) == 1 and notes(world)[0].startswith(
        'slow recovery: not in force on all OSDs: osd.0 shows osd_max_backfills 3 (its ceph.conf '
        'or "ceph tell"), osd.')
    step, = world.stored.steps
    assert step.differs and notes(world)[0].endswith(step.note)
    # Once, also of another mgr.
    world.turn(20.0)
    world.begin()
    world.turn(20.0)
    assert len(world.asked) == 1 and len(notes(world)) == 1


def test_a_note_is_added_to_the_one_before() -> None:
    world = differing(note='some remark')
    world.turn(10.0)
    assert world.stored.steps[0].note.startswith('some remark; not in force on all OSDs: osd.0')


def test_options_that_are_in_force_are_compared_once_by_each_mgr() -> None:
    world = with_slowed()
    world.flags = frozenset({'norebalance'})
    world.shown['osd_max_backfills'] = '1.0'
    for _ in range(3):
        world.turn(10.0)
    assert len(world.asked) == 1 and notes(world) == []
    # It may have been away.
    world.mitigating.load(world.now)
    world.turn(1.0)
    world.turn(1.0)
    assert len(world.asked) == 2


@pytest.mark.parametrize('answered, seconds', [(0, 30.0), (1, 30.0), (1000, 10.0)])
def test_osds_that_do_not_answer_are_awaited_for_half_a_minute(
        answered: int, seconds: float) -> None:
    world = differing()
    world.answered = answered
    world.turn(seconds - 0.125)
    assert notes(world) == []
    world.turn(0.125)
    assert len(notes(world)) == (answered > 0)
    asked = len(world.asked)
    world.answered = 1000
    world.turn(5.0)
    assert len(world.asked) == asked


@pytest.mark.parametrize('fields', [
    {'seen': False}, {'stage': StepStage.UNDOING}, {'differs': True}, {'rung': Rung.FASTER}])
def test_which_options_are_compared(fields: Dict[str, Any]) -> None:
    world = differing(**fields)
    if 'seen' in fields:
        world.unread = True
    if 'rung' in fields:
        world.counts = {'degraded': 1, 'degraded_waiting': 1}
        world.options = {'mitigation_backfills': 8}
    world.turn(15.0)
    assert bool([questions for _, questions in world.asked
                 if questions[0].option == 'osd_max_backfills']) is ('rung' in fields)


def test_flags_are_not_asked_for() -> None:
    world = World(MitigationState((LadderStep(
        7, Rung.NOREBALANCE, StepStage.HELD, START, 'laggy', settings=(
            Setting(SettingKind.FLAG, 'norebalance', '', Held(None, 'set', True)),)),
        LadderStep(8, Rung.SLOW, StepStage.HELD, START, 'laggy')), 8))
    world.counts, world.flags = dict(LAGGY), frozenset({'norebalance'})
    world.turn(20.0)
    assert world.asked == []


@pytest.mark.parametrize('config, source', [
    ({('osd.0', 'osd_max_backfills'): '3'}, ' (set for osd.0)'),
    ({('osd.0', 'osd_max_backfills'): '7'}, ' (its ceph.conf or "ceph tell")'),
    ({('osd.0', 'osd_max_scrubs'): '3'}, ' (its ceph.conf or "ceph tell")'), (None, '')])
def test_where_an_osd_has_another_value_from(
        config: Optional[Dict[Tuple[str, str], str]], source: str) -> None:
    world = differing()
    world.config.update(config or {})
    world.turn(9.0)
    world.unread = config is None
    world.turn(1.0)
    note, = notes(world)
    assert note.startswith('slow recovery: not in force on all OSDs: osd.0 shows '
                           'osd_max_backfills 3%s, osd.' % source)


# ---- what is published

def test_what_others_read() -> None:
    world = World(slowed())
    world.config, world.counts = {('osd', 'osd_max_backfills'): '1'}, dict(LAGGY)
    world.watched = Watched(late=(('reads of pool rbd', 1),))
    world.campaign = changed(campaign_of(1, Phase.RELEASING, START), acknowledged=('SLOW_POOL',))
    world.turn()
    mitigated = world.mitigating.mitigated
    assert [reason.code for reason in mitigated.stops] == ['LAGGY', 'MITIGATION']
    assert [reason.code for reason in mitigated.accepted] == ['SLOW_POOL']
    assert mitigated.stages == {7: StepStage.HELD} and len(mitigated.reasons) == 1
    assert mitigated.listing.mode == 'act'
    observed = with_mitigation(world.observed(), mitigated)
    assert (observed.stops, observed.accepted, observed.pin_back) == (
        mitigated.stops, mitigated.accepted, frozenset())
    row, = world.mitigating.held
    assert (row.name, row.found, row.put) == ('osd_max_backfills', '4', '1')


def test_since_when_releases_are_held() -> None:
    world = World()

    def held() -> Tuple[str, Optional[float]]:
        row = world.mitigating.mitigated.listing.rungs[0]
        return row.state, row.since

    world.counts = {'laggy': 1}
    world.turn()
    assert held() == ('idle', None) and world.mitigating.mitigated.stops
    world.campaign = campaign_of(1, Phase.RELEASING, START)
    world.turn()
    world.turn()
    assert held() == ('held', START + 2.0)
    world.begin()
    assert world.mitigating.mitigated == Mitigated()
    world.turn()
    assert held() == ('held', START + 4.0), 'as far as this mgr knows'
    world.counts = {}
    world.turn()
    assert held() == ('idle', None)
    world.counts = {'laggy': 1}
    world.turn()
    assert held() == ('held', START + 6.0)


@pytest.mark.parametrize('stage, error', [
    (StepStage.HELD, ''), (StepStage.UNDOING, 'mitigation 7 is not in force: it is undoing'),
    (StepStage.GIVEN_UP, 'mitigation 7 is not in force: it is given up')])
def test_which_rungs_can_be_reverted(stage: StepStage, error: str) -> None:
    world = with_slowed(stage=stage, then=StepStage.GIVEN_UP)
    world.unread = True
    world.turn()
    with pytest.raises(Refused, match='mitigation 8 does not exist'):
        world.mitigating.check(Revert(8))
    if error:
        with pytest.raises(Refused, match=error):
            world.mitigating.check(Revert(7))
    else:
        world.mitigating.check(Revert(7))
