# SPDX-License-Identifier: LGPL-2.1-or-later
"""Runs the mitigation: observes, decides, journals, acts and publishes once per turn."""
import errno
from dataclasses import dataclass, field, replace
from typing import Callable, Dict, FrozenSet, List, Mapping, Optional, Sequence, Tuple

from ..cluster.inventory import ConfigTarget, in_force
from ..cluster.crush import CrushRules
from ..cluster.ports import Cluster, View
from ..cluster.types import NO_OSD, QUEUE, ConfigEntry, Question, Signals
from ..codec import encode, no_later_than
from ..errors import Reason, Refused
from ..events import Event
from ..ledger import Row, same_value
from ..observation import Observation
from ..options import Options
from ..rebalance.campaign import Campaign
from ..rebalance.copying import queue_kinds, some_osds
from ..rebalance.states import STILL_PHASES
from ..rebalance.throttle import decide as judge
from ..rebalance.types import RELEASING_PHASES, Pace
from ..store import Store
from ..watch.controller import Watched
from ..watch.state import UNKNOWN_SECONDS
from . import ladder, recovery, report
from .evidence import evidence, futile, mixed_osds, untouched_pools
from .report import mitigation_rows
from .types import (ClientRoom, Evidence, LadderDecision, LadderStep, LadderView, MitigationState,
                    Need, Policy, Put, Revert, Rung, SettingKind, StepStage, active_steps)

#: The document in the store.
MITIGATION_DOCUMENT = 'mitigation'
#: Interval of reading the configuration database while options are borrowed.
CONFIG_SECONDS = 5.0
#: Time to wait for answers of OSDs and PGs.
PATIENCE_SECONDS = 5.0
#: Maximum number of PGs whose states are requested.
ASKED_PGS = 64
#: Time after which OSDs apply a change of the configuration database.
APPLIED_SECONDS = 10.0


@dataclass(frozen=True)
class Mitigated:
    """The published state of the mitigation."""
    #: Why the campaign must release nothing.
    stops: Tuple[Reason, ...] = ()
    #: Conditions that the operator has accepted.
    accepted: Tuple[Reason, ...] = ()
    #: PGs in flight that the campaign must pin back.
    pin_back: FrozenSet[str] = frozenset()
    reasons: Tuple[Reason, ...] = ()
    #: Stages of the rungs that are listed, by id.
    stages: Mapping[int, StepStage] = field(default_factory=dict)
    listing: report.MitigationListing = report.MitigationListing()


def with_mitigation(observation: Observation, mitigated: Mitigated) -> Observation:
    """The observation for the campaign."""
    return replace(observation, stops=mitigated.stops, accepted=mitigated.accepted,
                   pin_back=mitigated.pin_back)


class Mitigating:
    """Once every turn of the loop:

    1. Observe: evidence from the watch, and the current settings of the cluster.
    2. Decide: `ladder.decide`, pure. If it needs more data (configuration database, schedulers, PG
       states), that is read and the decision is repeated.
    3. Journal: the new state is stored before any command is sent, if this mgr owns the journal.
    4. Act: the commands are sent, unless the mons have not stored the journal.
    5. Check: some OSDs are asked whether options are in force; the next turn reads back the rest.
    6. Publish: why releases stop, borrowed settings, and the listing for commands (`mitigated`).
    """

    def __init__(self, cluster: Cluster, store: Store, note: Callable[[Event], None],
                 journal_is_stored: Callable[[], bool] = lambda: True,
                 may_write: Callable[[], bool] = lambda: True) -> None:
        """`journal_is_stored`: whether the mons have stored the journal; `may_write`: whether this
        mgr owns it."""
        self._cluster = cluster
        self._store = store
        self._note = note
        self._journal_is_stored = journal_is_stored
        self._may_write = may_write
        self._state = MitigationState()
        #: What the store has of the state (_gist).
        self._stored_gist: object = None
        self._config_read_at: Optional[float] = None
        #: Since when answers are waited for.
        self._waiting_since: Dict[Need, float] = {}
        #: Steps whose options were compared with those in force on OSDs.
        self._checked_steps: Dict[int, None] = {}
        self._unknown_since: Optional[float] = None
        #: Since when releases of the active campaign are held; 0.0: they are not.
        self._hold_since = 0.0
        #: The OSD that most likely causes laggy PGs.
        self._suspects: FrozenSet[int] = frozenset()
        #: PGs are laggy and no OSD is suspected.
        self._suspect_unknown = False
        #: As in Watched.
        self._osd_versions: FrozenSet[str] = frozenset()
        #: The judgement of the throttle on clients, without a campaign, and what follows from it,
        #: while degraded PGs recover.
        self._pace, self._room = Pace(), ClientRoom()
        #: Commands that failed in the last turn, so that each failure is reported once.
        self._failures: Tuple[str, ...] = ()
        self.mitigated = Mitigated()

    # ---- Commands, in other threads

    def check(self, request: Revert) -> None:
        """Check an order to revert a rung. Raises Refused if the rung is not in force."""
        stage = self.mitigated.stages.get(request.rung)
        if stage is None:
            raise Refused(errno.ENOENT, 'mitigation %d does not exist (see "mitigation ls")'
                          % request.rung)
        if stage is not StepStage.HELD:
            raise Refused(errno.EINVAL, 'mitigation %d is not in force: it is %s ("mitigation '
                          'ls" lists those that are)' % (request.rung, stage.value))

    # ---- State

    def load(self, now: float) -> List[str]:
        """Load the state of an earlier mgr; returns what cannot be read. Called again if another
        mgr may have been active meanwhile."""
        self._checked_steps = {}
        state, errors = self._store.load(MITIGATION_DOCUMENT, MitigationState, MitigationState())
        state = no_later_than(MitigationState, state, now)
        # This mgr does not know how long there has been evidence, or none; but when PGs were last
        # degraded remains true.
        self._state = replace(_gist(state), degraded=state.degraded)
        self._stored_gist = _gist(self._state)
        return ['the mitigations in force (%s): norebalance, recovery options and primary '
                'affinities may remain as they are' % error for error in errors]

    @property
    def held(self) -> List[Row]:
        """Borrowed settings."""
        return mitigation_rows(self._state)

    def revert(self, request: Revert) -> None:
        """For the loop: the next turn undoes the rung."""
        self._note(Event('request', request.text, 'by command'))
        self._state = ladder.revert(self._state, request.rung)

    # ---- Turn

    def turn(self, observed: Observation, view: View, watched: Watched,
             campaign: Campaign, options: Options,
             borrowed_elsewhere: FrozenSet[str] = frozenset()) -> None:
        """Decide which rungs to take or undo, store that, and send the commands.

        `borrowed_elsewhere`: flags and options that other parts of perfguard have borrowed.
        """
        now, signals, osdmap = observed.now, observed.signals, observed.osdmap
        # Only the most likely one: the others may only share PGs with it.
        self._suspects = frozenset(suspect.osd for suspect in watched.laggy.suspects[:1])
        self._suspect_unknown = signals.counts.laggy > 0 and not self._suspects
        self._osd_versions = watched.osd_versions
        unmuted = {osd for check, osds in watched.reported_osds.items()
                   if check not in signals.muted for osd in osds}
        slow_osds = {osd: why for osd, why in watched.slow_osds.items() if osd in unmuted}
        present_evidence = evidence(
            signals, watched.laggy_raised, watched.late, slow_osds,
            self._evidence_is_incomplete(now, signals, watched),
            untouched_pools(observed, {pool for _, pool in watched.late}),
            evacuating=len(observed.evacuation),
            waived=campaign.orders.acknowledged)
        policy = Policy(options.mitigation_mode, options.mitigation_seconds,
                        options.mitigation_affinity, options.mitigation_backfills)
        # Costly: client operations of all OSDs are judged. As for a campaign with one PG in flight
        # (1), and without stalls by peering PGs (no OSDs, 0.0 ms).
        if present_evidence.recovering:
            self._pace = judge(self._pace, observed.clients, frozenset(), 0.0, 1, options)
            self._room = recovery.room(self._room, self._pace, observed.clients, now)
        else:
            self._pace, self._room = Pace(), ClientRoom()
        if osdmap.osds:
            ladder_view = self._ladder_view(observed, watched, campaign, policy)
            ladder_view = replace(ladder_view, borrowed_elsewhere=borrowed_elsewhere)
            self._carry_out(self._decided(observed, present_evidence, view, policy, ladder_view),
                            observed)
        else:
            # An empty OSDMap does not show settings, so none of them was changed.
            self._save(self._state)
        self.mitigated = self._published(now, present_evidence, campaign, policy)

    def _decided(self, observed: Observation, present_evidence: Evidence, view: View,
                 policy: Policy, ladder_view: LadderView) -> LadderDecision:
        """The decision of the ladder, made again with the data that it needs, as far as they can be
        read in this turn."""
        now = observed.now
        decision = ladder.decide(self._state, present_evidence, ladder_view, policy, now)
        self._waiting_since = {need: since for need, since in self._waiting_since.items()
                               if need in decision.needs}
        for _ in Need:
            # With the new data, the decision may need more.
            if decision.needs:
                ladder_view = self._look_up(observed, ladder_view, view, decision)
                decision = ladder.decide(self._state, present_evidence, ladder_view, policy, now)
        return decision

    def _carry_out(self, decision: LadderDecision, observed: Observation) -> None:
        """Store a decision, report it, and act on it; nothing, if this mgr does not own the
        journal."""
        if self._save(decision.state):
            for event in decision.events:
                self._note(event)
            # Without actions, this forgets the failures of the last turn.
            if not decision.actions or self._journal_is_stored():
                self._act(decision.actions)
            self._compare_options(observed)

    def _evidence_is_incomplete(self, now: float, signals: Signals, watched: Watched) -> bool:
        """Whether the absence of evidence means nothing: after a failover, until all PGs are
        reported (for a limited time: PGs whose OSDs are dead remain unreported), and while the
        watch fails, which then reports no slow OSD."""
        if not signals.counts.unreported and not watched.failure:
            self._unknown_since = None
            return False
        if self._unknown_since is None:
            self._unknown_since = now
        return now - self._unknown_since < UNKNOWN_SECONDS

    def _ladder_view(self, observed: Observation, watched: Watched, campaign: Campaign,
                     policy: Policy) -> LadderView:
        """What the ladder judges by, besides the evidence. The configuration is read at intervals
        while options of it are borrowed; otherwise it is None."""
        now, osdmap = observed.now, observed.osdmap
        in_flight: FrozenSet[str] = frozenset()
        if campaign.phase in RELEASING_PHASES:
            # A PG without a pin was never pinned, so it cannot be pinned back.
            in_flight = frozenset(pgid for pgid, flight in campaign.flights.in_flight.items()
                                  if flight.pin is not None)
        ladder_view = LadderView(
            flags=osdmap.flags,
            affinities={osd.id: osd.primary_affinity for osd in osdmap.osds.values()},
            hosts={osd: host for osd, host in watched.hosts.items()
                   if osd in osdmap.osds and osdmap.osds[osd].up},
            mixed=mixed_osds(observed, watched.slow_osds) if policy.affinity else frozenset(),
            futile=futile(watched.osd_causes, watched.osd_reads),
            unread=_unread(watched),
            in_flight=in_flight,
            flags_set_by_others=osdmap.flags & observed.settings.flags_set_by_others,
            values_set_by_others=observed.settings.values_set_by_others,
            unanswered_at=observed.unanswered_at, room=self._room,
            campaign_still=campaign.active and (
                campaign.orders.paused or campaign.pace.halted or campaign.phase in STILL_PHASES))
        borrows_options = any(setting.kind is SettingKind.CONFIG
                              for step in active_steps(self._state) for setting in step.settings)
        is_read = self._config_read_at is not None and now - self._config_read_at < CONFIG_SECONDS
        if borrows_options and not is_read:
            ladder_view = self._with_config(now, ladder_view)
        return ladder_view

    def _with_config(self, now: float, ladder_view: LadderView) -> LadderView:
        self._config_read_at = now
        return replace(ladder_view, config=self._cluster.config_entries(),
                       degraded_sleep=self._cluster.degraded_sleep(self._osd_versions))

    def _look_up(self, observed: Observation, ladder_view: LadderView, view: View,
                 decision: LadderDecision) -> LadderView:
        """Read the data that the decision needs; answers of OSDs arrive in a later turn."""
        now = observed.now
        # The configuration also shows which OSDs to ask for their scheduler.
        if decision.needs & {Need.CONFIG, Need.SCHEDULERS} and self._config_read_at != now:
            # Once per turn, even if the mons do not answer.
            ladder_view = self._with_config(now, ladder_view)
        if Need.SCHEDULERS in decision.needs:
            answers = self._asked(now, Need.SCHEDULERS, [
                Question(osd, option=QUEUE) for osd in some_osds(view.osdmap, queue_kinds(
                    self._cluster.osd_versions(view.osdmap.osds), ladder_view.config or (),
                    observed.crush))])
            if answers:
                ladder_view = replace(ladder_view, schedulers=frozenset(answers.values()))
        if Need.PG_STATES in decision.needs and self._suspect_unknown:
            # No PG is pinned back, since it may have to peer with the OSD that is the cause. A
            # later turn decides anew; until then, the other rungs are considered.
            ladder_view = replace(ladder_view, pg_states={})
        elif Need.PG_STATES in decision.needs:
            answers = self._asked(now, Need.PG_STATES, [
                Question(primary, pgid=pgid) for pgid, primary in _primaries(
                    view, ladder_view.in_flight, self._suspects)])
            if answers is not None:
                ladder_view = replace(ladder_view, pg_states={
                    question.pgid: state for question, state in answers.items()})
        return ladder_view

    def _asked(self, now: float, need: Need,
               questions: Sequence[Question]) -> Optional[Mapping[Question, str]]:
        """The answers of OSDs: all, or after PATIENCE_SECONDS those that there are; None: they are
        awaited. `need`: what they are for."""
        answers = self._cluster.inquire(questions)
        since = self._waiting_since.setdefault(need, now)
        if len(answers) < len(questions) and now - since < PATIENCE_SECONDS:
            return None
        return answers

    def _save(self, state: MitigationState) -> bool:
        """Store the state, before any command is sent. Returns False, and keeps the earlier one, if
        this mgr does not own the journal."""
        if _gist(state) != self._stored_gist:
            if not self._may_write():
                return False
            self._store.put(MITIGATION_DOCUMENT, encode(state))
            self._stored_gist = _gist(state)
        self._state = state
        return True

    def _act(self, actions: Sequence[Put]) -> None:
        """Send the commands, and report each new failure once."""
        commands = [put.command for put in actions]
        failures: List[str] = []
        for command, reply in zip(commands, self._cluster.run(commands) if commands else ()):
            if reply.retval != 0:
                failures.append('%s: %s' % (' '.join(str(value) for value in command.values()),
                                            reply.error or 'no answer'))
        for failure in failures:
            if failure not in self._failures:
                self._note(Event('failed', failure))
        self._failures = tuple(failures)

    def _compare_options(self, observed: Observation) -> None:
        """Once per step that sets options: compare these with the options in force on some OSDs, as
        settings of single OSDs, and their ceph.conf, have precedence."""
        now, osdmap = observed.now, observed.osdmap
        for step in self._state.steps:
            names = sorted({setting.name for setting in step.settings})
            sets_options = step.rung in (Rung.SLOW, Rung.FASTER) and names
            is_in_database = step.stage is StepStage.HELD and all(
                setting.held.seen for setting in step.settings)
            is_checked = step.differs or step.id in self._checked_steps
            if not sets_options or not is_in_database or is_checked \
                    or now - step.since < APPLIED_SECONDS:
                continue
            questions = [Question(osd, option=name)
                         for osd in some_osds(osdmap) for name in names]
            answers = self._cluster.inquire(questions)
            if len(answers) < len(questions) and now - step.since < 3 * APPLIED_SECONDS:
                continue
            self._checked_steps[step.id] = None
            self._note_differences(step, answers, observed.crush)

    def _note_differences(self, step: LadderStep, answers: Mapping[Question, str],
                          crush: CrushRules) -> None:
        """Note, in an event and in the step, which OSDs answered that they have other values than
        the step has set, and where they have them from."""
        other_values = {question: value for question, value in sorted(answers.items())
                        if not any(same_value(value, setting.held.put) for setting in step.settings
                                   if setting.name == question.option)}
        texts = ['osd.%d shows %s %s' % (question.osd, question.option, value)
                 for question, value in other_values.items()]
        if not texts:
            return
        entries = self._cluster.config_entries()
        note = 'not in force on all OSDs: ' + ', '.join(
            text + _source(question, value, entries, crush)
            for text, (question, value) in zip(texts, other_values.items()))
        self._note(Event(ladder.MITIGATION, '%s: %s' % (step.rung.value, note)))
        self._save(replace(self._state, steps=tuple(
            replace(any_step, differs=True,
                    note='; '.join(text for text in (any_step.note, note) if text))
            if any_step.id == step.id else any_step for any_step in self._state.steps)))

    def _published(self, now: float, present_evidence: Evidence, campaign: Campaign,
                   policy: Policy) -> Mitigated:
        """What other parts of perfguard and commands read of the mitigation."""
        state = self._state
        stops = ladder.stops(state, present_evidence)
        holding = stops if campaign.active else ()
        self._hold_since = (self._hold_since or now) if holding else 0.0
        return Mitigated(
            stops=stops, accepted=present_evidence.accepted,
            pin_back=frozenset(pgid for step in state.steps
                               if step.rung is Rung.PIN_BACK and step.stage is StepStage.HELD
                               for pgid in step.pgs),
            reasons=report.reasons(state),
            stages={step.id: step.stage for step in state.steps},
            listing=report.listing(state, policy.mode, holding, self._hold_since))


def _source(question: Question, value: str, entries: Optional[Sequence[ConfigEntry]],
            crush: CrushRules) -> str:
    """Text on where an OSD has the value of an option from, in parentheses; '': not known.
    `entries`: the configuration database; None: the mons did not answer."""
    if entries is None:
        return ''
    osd = question.osd
    entry = in_force((entry for entry in entries if entry.name == question.option),
                     ConfigTarget(osd, crush.class_of(osd), crush.location_of(osd)))
    return ' (set for %s)' % entry.who if entry is not None and same_value(entry.value, value) \
        else ' (its ceph.conf or "ceph tell")'


def _unread(watched: Watched) -> FrozenSet[int]:
    """Slow OSDs of which it is not known which reads they serve. One without a present comparison,
    as after a failover or while clients are idle, has no load and no likely causes either."""
    if not watched.slow_osds:
        return frozenset()
    compared = {row.osd for row in watched.osds if row.score is not None}
    return frozenset(watched.slow_osds.keys() - (watched.osd_reads.keys() & compared))


def _primaries(view: View, pgids: FrozenSet[str],
               suspects: FrozenSet[int]) -> List[Tuple[str, int]]:
    """(PG, its primary) of some of the PGs, at most ASKED_PGS.

    PGs of a suspect are left out: to be pinned back, they would have to peer with it.
    """
    primaries: List[Tuple[str, int]] = []
    for pgid in sorted(pgids)[:ASKED_PGS]:
        placement = view.placement(pgid)
        if placement is None or suspects.intersection(placement.acting + placement.up):
            continue
        primaries += [(pgid, osd) for osd in placement.acting if osd != NO_OSD][:1]
    return primaries


def _gist(state: MitigationState) -> MitigationState:
    """The part of the state whose changes are stored at once: without times, which are stored only
    together with other changes, and without troubles that are not in vain yet."""
    return replace(state, bad_since=0.0, clear_since=0.0, degraded=0.0, turned=0.0,
                   recovery=replace(state.recovery, waiting=0.0),
                   troubles=tuple(trouble._replace(seen_at=0.0, stopped_seconds=0.0)
                                  for trouble in state.troubles if trouble.in_vain))
