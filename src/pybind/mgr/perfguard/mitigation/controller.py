# SPDX-License-Identifier: LGPL-2.1-or-later
"""The mitigation at work: fed every turn, journalled before it acts, read back, published."""
import errno
from dataclasses import dataclass, field, replace
from typing import Any, Callable, Dict, FrozenSet, List, Mapping, Optional, Sequence, Tuple

from ..cluster.ports import Cluster, View
from ..cluster.types import NO_OSD, OsdMap, Question, Signals
from ..errors import Reason, Refused
from ..events import Event
from ..holds import Row, same_value
from ..observation import OSD_OPTION, Observation
from ..options import Options
from ..rebalance.copying import QUEUE, some_osds
from ..rebalance.holds import NOREBALANCE
from ..rebalance.types import RELEASING_PHASES, Campaign, Phase
from ..store import Store
from ..watch.controller import Watched
from ..watch.state import UNKNOWN_SECONDS
from . import ladder, report
from .ladder import evidence
from .recovery_options import command_of
from .report import mitigation_rows
from .types import (Evidence, LadderDecision, LadderStep, LadderView, MitigationState, Need, Policy,
                    Put, Revert, Rung, SettingKind, StepStage, active, own_flags, own_options,
                    state_from_json, state_to_json)

Json = Dict[str, Any]

#: The document in the store.
DOCUMENT = 'mitigation'
#: Seconds between two looks at the configuration database while options are held.
CONFIG_SECONDS = 5.0
#: Seconds that answers of OSDs and PGs are waited for.
PATIENCE_SECONDS = 5.0
#: PGs of which the states are asked.
ASKED_PGS = 64
#: Seconds after which an OSD has taken over what the configuration database has.
SETTLE_SECONDS = 10.0
#: Phases in which a campaign has norebalance set, or is about to.
STILL_PHASES = frozenset({Phase.PREPARED, Phase.PINNING, Phase.PINNED, Phase.ABORTING})


@dataclass(frozen=True)
class Mitigated:
    """What the campaign and commands see of the mitigation."""
    #: Why the campaign must release nothing.
    stops: Tuple[Reason, ...] = ()
    #: PGs under way that the campaign shall pin back.
    pin_back: FrozenSet[str] = frozenset()
    #: Flags that the mitigation has set.
    own_flags: FrozenSet[str] = frozenset()
    #: Options of the OSDs that the mitigation has set.
    own_options: FrozenSet[str] = frozenset()
    reasons: Tuple[Reason, ...] = ()
    #: Stages of the rungs that are listed, by id.
    stages: Mapping[int, StepStage] = field(default_factory=dict)
    listing: Json = field(default_factory=lambda: report.listing(MitigationState(), 'off', (), 0.0))


def with_mitigation(seen: Observation, mitigated: Mitigated) -> Observation:
    """What the campaign shall see: flags on their way are there already, lest it sets them too."""
    osdmap = replace(seen.osdmap, flags=seen.osdmap.flags | mitigated.own_flags)
    return replace(seen, settings=replace(seen.settings, osdmap=osdmap), stops=mitigated.stops,
                   pin_back=mitigated.pin_back, own_flags=mitigated.own_flags,
                   own_options=mitigated.own_options,
                   coming_flags=mitigated.own_flags - seen.osdmap.flags)


class Mitigating:
    """Once every turn of the loop:

    1. Observe: evidence from the watch, and the cluster's settings as they are now.
    2. Decide: `ladder.decide`, pure. What it needs beside that (configuration database,
       schedulers, PG states) is looked up, and it is asked again.
    3. Journal: the new state goes to the store before anything is sent.
    4. Act: the commands are sent, unless the mons do not have what was journalled.
    5. Check: some OSDs are asked whether an option is in force; the next turn reads back the rest.
    6. Publish: why releases stop, borrowed settings, and the listing for commands (`mitigated`).
    """

    def __init__(self, cluster: Cluster, store: Store, note: Callable[[Event], None],
                 kept: Callable[[], bool] = lambda: True) -> None:
        """`kept`: whether the mons have what was journalled."""
        self._cluster = cluster
        self._store = store
        self._note = note
        self._kept = kept
        self._state = MitigationState()
        self._saved: Any = None
        self._config_read: Optional[float] = None
        #: When answers were first waited for, by what they are needed for.
        self._waiting: Dict[Need, float] = {}
        #: Steps whose options were held against what OSDs show.
        self._checked: Dict[int, None] = {}
        self._unknown_since: Optional[float] = None
        self._hold_since = 0.0
        #: The OSD that most likely is the cause of laggy PGs.
        self._suspects: FrozenSet[int] = frozenset()
        #: PGs are laggy and nobody knows because of which OSD.
        self._blind = False
        #: Commands that failed in the last turn, so that each failure is told once.
        self._failures: Tuple[str, ...] = ()
        self.mitigated = Mitigated()

    # ---- for commands: other threads

    def check(self, request: Revert) -> None:
        """Raise Refused if the rung is not held."""
        stage = self.mitigated.stages.get(request.rung)
        if stage is None:
            raise Refused(errno.ENOENT, 'mitigation %d does not exist (see "mitigation ls")'
                          % request.rung)
        if stage is not StepStage.HELD:
            raise Refused(errno.EINVAL, 'mitigation %d is not in force: it is %s'
                          % (request.rung, stage.value))

    # ---- life

    def load(self) -> None:
        """Take up what an earlier mgr left in the store."""
        document = self._store.get(DOCUMENT)
        if document is not None:
            state, lost = state_from_json(document)
            # How long there has been evidence is not known to this mgr.
            self._state = replace(state, bad_since=0.0, clear_since=0.0)
            for text in lost:
                self._note(Event('store', 'of the mitigation cannot be read: %s' % text))
        self._saved = _gist(self._state)

    @property
    def held(self) -> List[Row]:
        """What is borrowed from the cluster."""
        return mitigation_rows(self._state)

    # ---- one turn

    def turn(self, now: float, view: View, signals: Signals, watched: Watched,
             campaign: Optional[Campaign], options: Options,
             reverts: Sequence[int] = ()) -> None:
        """`reverts`: rungs that operators want undone."""
        osdmap = view.osdmap
        # The likeliest alone: further down the list are OSDs that only share PGs with it.
        self._suspects = frozenset(watched.suspects[:1])
        self._blind = signals.counts.laggy > 0 and not self._suspects
        self._revert(reverts)
        found = evidence(signals, watched.laggy_raised, watched.late, watched.slow_osds,
                         self._unknown(now, signals, watched))
        policy = Policy(options.mitigation_mode, options.mitigation_seconds,
                        options.mitigation_affinity)
        if not osdmap.osds:
            # It shows no setting as it is: none of them was changed by others.
            self._save(self._state)
            self.mitigated = self._published(now, found, campaign, policy)
            return
        seen = self._seen(now, osdmap, watched, campaign)
        decision = ladder.decide(self._state, found, seen, policy, now)
        self._waiting = {need: since for need, since in self._waiting.items()
                         if need in decision.needs}
        for _ in Need:
            # What was looked up may let it need one thing more.
            if decision.needs:
                seen = self._look_up(now, seen, view, decision)
                decision = ladder.decide(self._state, found, seen, policy, now)
        self._save(decision.state)
        for event in decision.events:
            self._note(event)
        if not decision.actions or self._kept():
            self._act(decision.actions)
        self._check(now, osdmap)
        self.mitigated = self._published(now, found, campaign, policy)

    def _revert(self, rungs: Sequence[int]) -> None:
        for step_id in rungs:
            self._note(Event('request', 'mitigation revert %d' % step_id, 'by command'))
            self._state = ladder.revert(self._state, step_id)

    def _unknown(self, now: float, signals: Signals, watched: Watched) -> bool:
        """Right after a failover; PGs whose OSDs are dead will never be known of. A watch that has
        failed names no slow OSD, which does not mean that there is none."""
        if not signals.counts.unreported and not watched.failure:
            self._unknown_since = None
            return False
        if self._unknown_since is None:
            self._unknown_since = now
        return now - self._unknown_since < UNKNOWN_SECONDS

    def _seen(self, now: float, osdmap: OsdMap, watched: Watched,
              campaign: Optional[Campaign]) -> LadderView:
        running = campaign is not None and campaign.active
        in_flight: FrozenSet[str] = frozenset()
        if campaign is not None and campaign.phase in RELEASING_PHASES:
            in_flight = frozenset(pgid for pgid, flight in campaign.in_flight.items()
                                  if flight.pin is not None)
        seen = LadderView(
            flags=osdmap.flags,
            affinities={osd.id: osd.primary_affinity for osd in osdmap.osds.values()},
            hosts={osd: host for osd, host in watched.hosts.items()
                   if osd in osdmap.osds and osdmap.osds[osd].up},
            in_flight=in_flight,
            paced=frozenset() if campaign is None or not campaign.open else frozenset(
                name[len(OSD_OPTION):] for name in campaign.holds.mon
                if name.startswith(OSD_OPTION)),
            campaign_flag=campaign is not None and running
            and NOREBALANCE in campaign.holds.flags,
            campaign_still=campaign is not None and running
            and (campaign.paused or campaign.pace.halted or campaign.phase in STILL_PHASES))
        holding = any(setting.kind is SettingKind.CONFIG for step in active(self._state)
                      for setting in step.settings)
        if holding and not (self._config_read is not None
                            and 0.0 <= now - self._config_read < CONFIG_SECONDS):
            seen = self._with_config(now, seen)
        return seen

    def _with_config(self, now: float, seen: LadderView) -> LadderView:
        self._config_read = now
        return replace(seen, config=self._cluster.config_entries())

    def _look_up(self, now: float, seen: LadderView, view: View,
                 decision: LadderDecision) -> LadderView:
        """Read what the decision needs; what has to be asked for is there in a later turn."""
        if Need.CONFIG in decision.needs and self._config_read != now:
            # Once a turn, also where the mons do not answer.
            seen = self._with_config(now, seen)
        if Need.SCHEDULERS in decision.needs:
            told = self._asked(now, Need.SCHEDULERS, [
                Question(osd, option=QUEUE) for osd in some_osds(view.osdmap)])
            if told:
                seen = replace(seen, schedulers=frozenset(told.values()))
        if Need.PG_STATES in decision.needs and self._blind:
            # Tried again in the next interval; until then the other rungs have their turn.
            seen = replace(seen, pg_states={})
        elif Need.PG_STATES in decision.needs:
            told = self._asked(now, Need.PG_STATES, [
                Question(primary, pgid=pgid) for pgid, primary in _primaries(
                    view, seen.in_flight, self._suspects)])
            if told is not None:
                seen = replace(seen, pg_states={
                    question.pgid: state for question, state in told.items()})
        return seen

    def _asked(self, now: float, need: Need,
               questions: Sequence[Question]) -> Optional[Mapping[Question, str]]:
        """None: wait for the answers."""
        told = self._cluster.inquire(questions)
        since = self._waiting.setdefault(need, now)
        if len(told) < len(questions) and 0.0 <= now - since < PATIENCE_SECONDS:
            return None
        return told

    def _save(self, state: MitigationState) -> None:
        """The intent goes to the store before anything is sent."""
        if _gist(state) != self._saved:
            self._store.put(DOCUMENT, state_to_json(state))
            self._saved = _gist(state)
        self._state = state

    def _act(self, actions: Sequence[Put]) -> None:
        commands = [command_of(put) for put in actions]
        failures: List[str] = []
        for command, reply in zip(commands, self._cluster.run(commands) if commands else ()):
            if reply.retval != 0:
                failures.append('%s: %s' % (' '.join(str(value) for value in command.values()),
                                            reply.error or 'no answer'))
        for failure in failures:
            if failure not in self._failures:
                self._note(Event('failed', failure))
        self._failures = tuple(failures)

    def _check(self, now: float, osdmap: OsdMap) -> None:
        """Hold what was put against what some OSDs show: their own ceph.conf wins over it."""
        for step in self._state.steps:
            names = sorted({setting.name for setting in step.settings})
            if step.rung is not Rung.SLOW or step.stage is not StepStage.HELD or not names \
                    or step.id in self._checked or now - step.since < SETTLE_SECONDS \
                    or not all(setting.seen for setting in step.settings):
                continue
            questions = [Question(osd, option=name) for osd in some_osds(osdmap) for name in names]
            told = self._cluster.inquire(questions)
            if len(told) < len(questions) and now - step.since < 3 * SETTLE_SECONDS:
                continue
            self._checked[step.id] = None
            self._note_differences(step, told)

    def _note_differences(self, step: LadderStep, told: Mapping[Question, str]) -> None:
        other = ['osd.%d shows %s %s' % (question.osd, question.option, value)
                 for question, value in sorted(told.items())
                 if not any(same_value(value, setting.put) for setting in step.settings
                            if setting.name == question.option)]
        if not other or other[0] in step.note:
            return
        note = 'not in force everywhere, as an OSD\'s own ceph.conf wins: ' + ', '.join(other)
        self._note(Event(ladder.KIND, '%s: %s' % (step.rung.value, note)))
        self._save(replace(self._state, steps=tuple(
            replace(each, note='; '.join(text for text in (each.note, note) if text))
            if each.id == step.id else each for each in self._state.steps)))

    def _published(self, now: float, found: Evidence, campaign: Optional[Campaign],
                   policy: Policy) -> Mitigated:
        state = self._state
        stops = ladder.stops(state, found)
        running = campaign is not None and campaign.active
        holding = stops if running else ()
        self._hold_since = (self._hold_since or now) if holding else 0.0
        return Mitigated(
            stops=stops,
            pin_back=frozenset(pgid for step in state.steps
                               if step.rung is Rung.PIN_BACK and step.stage is StepStage.HELD
                               for pgid in step.pgs),
            own_flags=own_flags(state), own_options=own_options(state),
            reasons=report.reasons(state),
            stages={step.id: step.stage for step in state.steps},
            listing=report.listing(state, policy.mode, holding, self._hold_since))


def _primaries(view: View, pgids: FrozenSet[str],
               suspects: FrozenSet[int]) -> List[Tuple[str, int]]:
    """Some PGs, each with the OSD that leads it.

    Not those of an OSD that may hang: pinned back they would have to peer with it.
    """
    found: List[Tuple[str, int]] = []
    for pgid in sorted(pgids)[:ASKED_PGS]:
        placement = view.placement(pgid)
        if placement is None or suspects.intersection(placement.acting + placement.up):
            continue
        found += [(pgid, osd) for osd in placement.acting if osd != NO_OSD][:1]
    return found


def _gist(state: MitigationState) -> MitigationState:
    """What is worth a write."""
    return replace(state, bad_since=0.0, clear_since=0.0, degraded=0.0)
