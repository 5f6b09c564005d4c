# SPDX-License-Identifier: LGPL-2.1-or-later
"""The mitigation ladder: applies rungs one by one while clients are affected, then undoes them.

`decide` makes one turn: pure, from observations to actions. A setting is journalled, put, seen in
the cluster, and finally given back. A setting that was changed outside perfguard meanwhile is left
alone. A rule takes a draft of the decision and returns the next one.
"""
from dataclasses import dataclass, replace
from typing import Callable, FrozenSet, Iterable, List, Mapping, Optional, Tuple

from ..cluster.set_by_others import AFFINITY_OF_OSD
from ..errors import Code, Reason, texts
from ..events import Event
from ..ledger import CHANGED_BY_OTHERS, Held, give_back, hold, hold_other, same_value
from ..rebalance.holds import NOREBALANCE
from ..text import pgs, pgs_are, plural
from . import recovery
from .evidence import CLEAR_INTERVALS, IN_VAIN_REST_SECONDS, is_known, trouble_keys, troubles
from .report import DONE_TEXT, UNDONE_TEXT, step_name, step_text
from .types import (Evidence, LadderDecision, LadderStep, LadderView, MitigationState, Need, Policy,
                    Put, RecoveryPace, Rung, Setting, SettingKind, StepStage)


def _affinity_text(affinity: float) -> str:
    """A primary affinity with all its digits: it is a multiple of 1/65536, and the mons cut off the
    rest."""
    return '%.16g' % affinity


def present_value(setting: Setting, ladder_view: LadderView) -> Tuple[bool, Optional[str]]:
    """(whether the value of a setting in the cluster is known, the value); None: not set, or its
    OSD was removed."""
    if setting.kind is SettingKind.FLAG:
        return True, setting.held.put if setting.name in ladder_view.flags else None
    if setting.kind is SettingKind.AFFINITY:
        affinity = ladder_view.affinities.get(int(setting.name))
        return True, None if affinity is None else _affinity_text(affinity)
    if ladder_view.config is None:
        return False, None
    for entry in ladder_view.config:
        if entry.name == setting.name and entry.who == setting.who:
            return True, entry.value
    return True, None


#: Time after which a setting that the cluster does not show counts as refused, if the mons answer.
READBACK_SECONDS = 60.0
#: Maximum share of the OSDs with a lowered primary affinity; one OSD is always allowed.
AFFINITY_SHARE = 0.1
#: Minimum share and number of OSDs that are up with a primary affinity above 0, including those
#: that were lowered outside perfguard.
PRIMARIES_SHARE = 2 / 3
LEAST_PRIMARIES = 2
#: Intervals for which the primary affinity of an OSD is not lowered again: each change makes its
#: PGs peer.
AFFINITY_REST_INTERVALS = 20
#: Time for which the primary affinity of an OSD remains lowered that was slow again after it was
#: given back, and how many times as long with each further time within RETURNED_SECONDS. An OSD
#: that is slow only while it leads PGs, such as a drive that is slow at reads, is not reported as
#: slow while its affinity is lowered, so giving it back is a trial: after 1, 4 and 16 hours, and
#: then three times a day.
AGAIN_SECONDS = 3600.0
AGAIN_FACTOR = 4.0
RETURNED_SECONDS = 86400.0
#: Number of times within GIVEN_BACK_SECONDS that a rung against movement is given back. Trouble
#: that returns then is in vain.
MOST_GIVEN_BACK = 3
GIVEN_BACK_SECONDS = 3600.0
MITIGATION = 'mitigation'
#: Rungs against the effects of data movement.
MOVEMENT_RUNGS = (Rung.NOREBALANCE, Rung.PIN_BACK, Rung.SLOW)


def decide(state: MitigationState, evidence: Evidence, ladder_view: LadderView, policy: Policy,
           now: float) -> LadderDecision:
    """Make one turn: follow the rungs in force, then undo at most one or apply the next, and pace
    the recovery. If the decision has `needs`, it can be made again at once with these data in
    `ladder_view`. `now`: seconds since the epoch."""
    draft = _note_times(_Draft(evidence, ladder_view, policy, now, state))
    for step in draft.state.steps:
        draft = _exclude(draft, step)
    for step in draft.state.steps:
        draft = _follow(draft, step)
    if draft.may_step:
        draft = _undo_one_rung(draft)
    if draft.may_step:
        draft = _apply_one_rung(draft)
    draft = _accelerate(draft)
    return LadderDecision(draft.state, draft.actions, draft.events, draft.needs)


def revert(state: MitigationState, step_id: int) -> MitigationState:
    """Begin to undo one step by command; the next turn gives its settings back. Its rung is not
    applied again until the evidence has cleared."""
    return replace(state, steps=tuple(
        replace(step, stage=StepStage.UNDOING, then=StepStage.REVERTED)
        if step.id == step_id and step.stage in (StepStage.HELD, StepStage.UNDOING) else step
        for step in state.steps))


@dataclass(frozen=True)
class _Draft:
    """A LadderDecision in the making: first what it is based on, then what it will contain. Methods
    return a changed draft."""
    evidence: Evidence
    view: LadderView
    policy: Policy
    now: float
    state: MitigationState
    actions: Tuple[Put, ...] = ()
    events: Tuple[Event, ...] = ()
    needs: FrozenSet[Need] = frozenset()

    # ---- what rules return

    def put(self, new: LadderStep) -> '_Draft':
        """The draft with the step `new` instead of the one of the same id."""
        return self._with_steps(new if step.id == new.id else step for step in self.state.steps)

    def drop(self, dropped: LadderStep) -> '_Draft':
        """The draft without this step."""
        return self._with_steps(step for step in self.state.steps if step.id != dropped.id)

    def _with_steps(self, steps: Iterable[LadderStep]) -> '_Draft':
        return replace(self, state=replace(self.state, steps=tuple(steps)))

    def add(self, rung: Rung, why: str, subject: str = '', settings: Tuple[Setting, ...] = (),
            pgs: Tuple[str, ...] = (), note: str = '') -> '_Draft':
        """Apply a rung by a new step with these settings, or, unless the mode is act, record that
        it would be applied. Earlier steps of the rung that were in vain are dropped."""
        number, acting = self.state.last_id + 1, self.policy.mode == 'act'
        step = LadderStep(number, rung, StepStage.HELD if acting else StepStage.WOULD, self.now,
                          why, subject, settings, pgs, note=note)
        draft = replace(self, state=replace(
            self.state, steps=(*self._without_vain(rung), step), last_id=number,
            stepped=self.now))
        if not acting:
            return draft.event('%s: would be done in mode act (mitigation_mode is observe)'
                               % step_name(step), why)
        return draft.event(step_text(DONE_TEXT, step), why).send(
            Put(setting, setting.held.put) for setting in settings)

    def add_in_vain(self, rung: Rung, why: str) -> '_Draft':
        """Record a rung that is not applied since it was given back too often. Rungs against the
        present trouble are in vain from now on, unless other ones are in force, which may end it;
        then this is recorded once."""
        others_in_force = any(map(self.has_applied, MOVEMENT_RUNGS))
        if others_in_force and any(step.rung is rung and step.stage is StepStage.IN_VAIN
                                   for step in self.state.steps):
            return self
        limit = 'it was given back %d times within an hour, and the trouble has returned' \
            % MOST_GIVEN_BACK
        keys = set() if others_in_force else {
            key for reason in self.causes for key in trouble_keys(reason)}
        number = self.state.last_id + 1
        step = LadderStep(number, rung, StepStage.IN_VAIN, self.now, '%s; %s' % (why, limit))
        return replace(self, state=replace(
            self.state, steps=(*self._without_vain(rung), step), last_id=number,
            troubles=tuple(trouble._replace(in_vain=trouble.in_vain or trouble.key in keys)
                           for trouble in self.state.troubles))
                       ).event('%s: not applied again' % step_name(step), limit)

    def _without_vain(self, rung: Rung) -> Iterable[LadderStep]:
        """The steps except those of the rung that were in vain: these only inform operators."""
        return (step for step in self.state.steps
                if step.rung is not rung or step.stage is not StepStage.IN_VAIN)

    def add_limited(self, rung: Rung, why: str, subject: str, limit: str) -> '_Draft':
        """Record a rung that is not applied because of a limit. `why`: the reason for the rung."""
        number = self.state.last_id + 1
        step = LadderStep(number, rung, StepStage.LIMITED, self.now, why, subject, note=limit)
        state = replace(self.state, steps=(*self.state.steps, step), last_id=number)
        return replace(self, state=state).event('%s: not changed' % step_name(step), limit)

    def event(self, subject: str, why: str = '') -> '_Draft':
        return replace(self, events=(*self.events, Event(MITIGATION, subject, why)))

    def send(self, actions: Iterable[Put]) -> '_Draft':
        return replace(self, actions=(*self.actions, *actions))

    def need(self, need: Need) -> '_Draft':
        return replace(self, needs=self.needs | {need})

    def with_pace(self, pace: RecoveryPace) -> '_Draft':
        return replace(self, state=replace(self.state, recovery=pace))

    def note_step(self) -> '_Draft':
        """Note that a rung was applied or undone now: `may_step` is False for an interval."""
        return replace(self, state=replace(self.state, stepped=self.now))

    # ---- what predicates read

    @property
    def may_step(self) -> bool:
        """Whether no rung was applied or undone within the last interval (mitigation_seconds)."""
        return self.now - self.state.stepped >= self.policy.seconds

    def is_too_often(self, rung: Rung) -> bool:
        """Whether the rung was given back so often that it is not taken again."""
        return sum(given_back is rung for given_back, _ in self.state.given_back) \
            >= MOST_GIVEN_BACK

    def has_applied(self, rung: Rung) -> bool:
        """Whether the rung is in force or being undone."""
        return any(step.rung is rung and step.stage in (StepStage.HELD, StepStage.UNDOING)
                   for step in self.state.steps)

    @property
    def is_bad(self) -> bool:
        """Whether movement may cause trouble now."""
        return bool(self.causes) and self.evidence.moving

    @property
    def causes(self) -> Tuple[Reason, ...]:
        """The trouble that movement may cause, without trouble that is known to have another cause
        (`Trouble.in_vain`)."""
        in_vain = {trouble.key for trouble in self.state.troubles if trouble.in_vain}
        return tuple(reason for reason in self.evidence.of_movement
                     if not is_known(reason, in_vain))

    @property
    def in_vain(self) -> bool:
        """Whether there is trouble, all of it is known to have another cause than movement, and no
        trouble without such a cause has just paused."""
        pause = float('inf') if self.evidence.is_incomplete \
            else CLEAR_INTERVALS * self.policy.seconds
        paused = any(not trouble.in_vain and 0.0 < self.now - trouble.seen_at < pause
                     for trouble in self.state.troubles)
        return bool(self.evidence.of_movement) and not self.causes and not paused

    @property
    def rest_seconds(self) -> float:
        """Time for which a primary affinity that was given back is not lowered again."""
        return AFFINITY_REST_INTERVALS * self.policy.seconds

    @property
    def bad_lasts(self) -> bool:
        """Whether movement may have caused trouble for long enough to take a rung."""
        since = self.state.bad_since
        return bool(since) and self.now - since >= self.policy.seconds

    @property
    def is_clear(self) -> bool:
        """Whether there has been no evidence for long enough to undo a rung."""
        since = self.state.clear_since
        return bool(since) and self.now - since >= CLEAR_INTERVALS * self.policy.seconds


def _note_times(draft: _Draft) -> _Draft:
    """Note in the state what has changed with time: the present troubles, since when there has been
    evidence, or none, and when PGs were last degraded. What was given back long ago is dropped."""
    now, evidence, stopped = draft.now, draft.evidence, NOREBALANCE in draft.view.flags
    # An operator who changes the mode and back has all troubles judged anew.
    acting = draft.policy.mode == 'act'
    given_back = tuple((rung, when) for rung, when in draft.state.given_back
                       if acting and now - when < GIVEN_BACK_SECONDS)
    tried = any(map(draft.has_applied, MOVEMENT_RUNGS)) or any(
        now - when < IN_VAIN_REST_SECONDS for _, when in given_back)
    present = troubles(draft.state, evidence, stopped, draft.policy.seconds, now, tried) \
        if acting else ()
    draft = replace(draft, state=replace(draft.state, turned=now, troubles=present,
                                         given_back=given_back))
    state = draft.state
    bad_since, clear_since = state.bad_since, state.clear_since
    if draft.is_bad:
        bad_since, clear_since = bad_since or now, 0.0
    elif not evidence.is_incomplete:
        # Also while a cause lasts for which mitigations are in vain: it may last for weeks.
        bad_since, clear_since = 0.0, clear_since or now
    elif draft.in_vain:
        # The evidence is incomplete: what is known is not bad, and what is not known not clear.
        bad_since, clear_since = 0.0, 0.0
    # Otherwise both remain, since the evidence is incomplete.
    remembered = max(RETURNED_SECONDS, draft.rest_seconds)
    returned = tuple((osd, when) for osd, when in state.returned if now - when < remembered)
    return replace(draft, state=replace(
        state, bad_since=bad_since, clear_since=clear_since, returned=returned,
        degraded=now if evidence.degraded else state.degraded))


# ---- Rungs in force, and rungs that are being undone

def _follow(draft: _Draft, step: LadderStep) -> _Draft:
    """Continue with a step that is in force or being undone."""
    if step.stage is StepStage.HELD:
        return _keep_in_force(draft, step)
    return _undo(draft, step) if step.stage is StepStage.UNDOING else draft


def _keep_in_force(draft: _Draft, step: LadderStep) -> _Draft:
    """Keep a rung in force: send again what has no effect yet, forget PGs that are no longer in
    flight, and give the rung up if others have changed one of its settings, or the cluster does not
    show it within READBACK_SECONDS."""
    settings: List[Setting] = []
    actions: List[Put] = []
    theirs: List[str] = []
    for setting in step.settings:
        can_tell, value = present_value(setting, draft.view)
        if can_tell:
            # What others have set as well is left to them, like what they have changed.
            hold_step = CHANGED_BY_OTHERS if _is_set_by_others(step, setting, draft) \
                else hold(setting.held, value)
            if hold_step.theirs:
                theirs.append('%s is %s' % (setting.text(), 'not set' if value is None else value))
            elif hold_step.send:
                actions.append(Put(setting, setting.held.put))
            setting = _with_held(setting, hold_step.held)
        elif not setting.held.seen:
            draft = draft.need(Need.CONFIG)
        settings.append(setting)
    if theirs:
        return draft.event('%s: given up' % step_name(step), 'it was changed outside perfguard: '
                           '%s; perfguard leaves it alone' % ', '.join(theirs)) \
            .put(replace(step, settings=tuple(settings), stage=StepStage.UNDOING,
                         then=StepStage.GIVEN_UP, note=', '.join(theirs)))
    if actions and draft.now - max(step.since, draft.view.unanswered_at) > READBACK_SECONDS:
        return draft.event('%s: given up' % step_name(step), 'the cluster does not show it after '
                           '%d s' % READBACK_SECONDS) \
            .put(replace(step, stage=StepStage.UNDOING, then=StepStage.GIVEN_UP,
                         note='the cluster did not accept it'))
    in_flight = tuple(pgid for pgid in step.pgs if pgid in draft.view.in_flight)
    return draft.send(actions).put(replace(step, settings=tuple(settings), pgs=in_flight))


def _is_set_by_others(step: LadderStep, setting: Setting, draft: _Draft) -> bool:
    """Whether others have set the flag or the primary affinity of a step as well: that changes
    nothing, but shows that they need it. False for options, of which that is not known."""
    if setting.kind is SettingKind.AFFINITY:
        value, when = draft.view.values_set_by_others.get(AFFINITY_OF_OSD + setting.name, ('', 0.0))
        return when > step.since and same_value(value, setting.held.put)
    return setting.kind is SettingKind.FLAG and setting.name in draft.view.flags_set_by_others


def _with_held(setting: Setting, held: Optional[Held]) -> Setting:
    """The setting with this record; with None, which ends the record, it is done: given back, or
    left to others."""
    return replace(setting, done=True) if held is None else replace(setting, held=held)


def _undo(draft: _Draft, step: LadderStep) -> _Draft:
    """Give the settings of a rung back, as far as that is possible now, and end the step once all
    are."""
    # Neither reverted by command nor changed by others.
    is_only_unneeded = step.then in (None, StepStage.IN_VAIN)
    if (step.rung is Rung.NOREBALANCE and draft.view.campaign_still and is_only_unneeded
            and not draft.evidence.against_norebalance):
        # Data would move until the campaign has set the flag itself.
        return draft.put(replace(step, needed_by_campaign=True))
    settings: List[Setting] = []
    for setting in step.settings:
        if not setting.done:
            draft, setting = _give_back(draft, step, setting)
        settings.append(setting)
    step = replace(step, settings=tuple(settings), needed_by_campaign=False)
    return _end_step(draft, step) if all(setting.done for setting in settings) else draft.put(step)


def _give_back(draft: _Draft, step: LadderStep, setting: Setting) -> Tuple[_Draft, Setting]:
    """Give one setting back, or send that command again. Returns the setting as it is after this
    turn; done once the cluster shows its value from before, or another one, which others have set
    and which stays."""
    can_tell, value = present_value(setting, draft.view)
    if not can_tell:
        return draft.need(Need.CONFIG), setting
    step_back = CHANGED_BY_OTHERS if _is_set_by_others(step, setting, draft) \
        else give_back(setting.held, value)
    if step_back.send:
        draft = draft.send([Put(setting, setting.held.found)])
    elif step_back.theirs:
        draft = draft.event('%s remains unchanged' % setting.text(),
                            'it was changed outside perfguard')
    return draft, _with_held(setting, step_back.held)


#: Why a step was undone that did not simply become unnecessary.
_WHY_UNDONE: Mapping[Optional[StepStage], str] = {
    StepStage.REVERTED: 'by command', StepStage.IN_VAIN: 'it was in vain'}


def _end_step(draft: _Draft, step: LadderStep) -> _Draft:
    """End a step whose settings are all given back: report it, and drop the step, or give it the
    stage `then`. Of a primary affinity, note when it was given back."""
    if step.then is not StepStage.GIVEN_UP:
        draft = draft.event(step_text(UNDONE_TEXT, step), _WHY_UNDONE.get(step.then, ''))
    if step.rung is Rung.AFFINITY:
        # Once an operator has changed an option and back, earlier returns do not count; this one
        # does, for the time of rest.
        osd, may_lower = int(step.subject), draft.policy.mode == 'act' and draft.policy.affinity
        returned = [row for row in draft.state.returned if may_lower or row[0] != osd]
        draft = replace(draft, state=replace(
            draft.state, returned=(*returned, (osd, draft.now))))
    return draft.drop(step) if step.then is None else draft.put(
        replace(step, stage=step.then, pgs=()))


def _exclude(draft: _Draft, step: LadderStep) -> _Draft:
    """Undo at once what the options exclude, and what would delay recovery. Steps that only inform
    operators are dropped once the options no longer lead to them."""
    mode, stage = draft.policy.mode, step.stage
    urgent = ''
    if step.rung is Rung.NOREBALANCE:
        urgent = draft.evidence.against_norebalance
    elif step.rung is Rung.SLOW and draft.evidence.degraded:
        urgent = '%s degraded' % pgs_are(draft.evidence.degraded)
    is_faster, may_accelerate = step.rung is Rung.FASTER, draft.policy.backfills > 0
    is_dropped = False
    if stage is StepStage.WOULD:
        is_dropped = mode != 'observe' or bool(urgent) or is_faster and not may_accelerate
    elif stage in (StepStage.GIVEN_UP, StepStage.REVERTED, StepStage.IN_VAIN):
        is_dropped = mode != 'act'
    elif stage is StepStage.LIMITED:
        # A limit lasts while mitigation_backfills is what it was, or mitigation_affinity is on.
        may_be_limited = draft.state.recovery.bound == draft.policy.backfills if is_faster \
            else draft.policy.affinity
        is_dropped = mode == 'off' or not may_be_limited
    if is_dropped:
        return draft.drop(step)
    if stage is not StepStage.HELD:
        return draft
    if mode != 'act':
        return _begin_undo(draft, step, 'mitigation_mode is %s' % mode)
    if urgent:
        return _begin_undo(draft, step, urgent).note_step()
    if step.rung is Rung.AFFINITY and not draft.policy.affinity:
        return _begin_undo(draft, step, 'mitigation_affinity is off')
    if is_faster and not may_accelerate:
        return _begin_undo(draft, step, recovery.NO_BOUND)
    return draft


def _begin_undo(draft: _Draft, step: LadderStep, why: str,
                then: Optional[StepStage] = None) -> _Draft:
    """Have the next turns give the settings of a step back. `then`: its stage after that; None: it
    is dropped."""
    return draft.event('%s: undoing' % step_name(step), why).put(
        replace(step, stage=StepStage.UNDOING, then=then))


# ---- Down

def _undo_one_rung(draft: _Draft) -> _Draft:
    """Undo the lowest rung against movement if these are in vain, since norebalance may keep data
    on the OSD that is the cause; otherwise the highest rung whose evidence has cleared. Of rungs
    that are not in force, such steps are dropped."""
    steps_in_vain = [step for step in draft.state.steps if draft.in_vain
                     and step.rung in MOVEMENT_RUNGS and step.stage is StepStage.HELD]
    if steps_in_vain:
        return _begin_undo(
            draft, min(steps_in_vain, key=lambda step: MOVEMENT_RUNGS.index(step.rung)),
            'in vain: %s, although norebalance has stopped all movement that it can stop'
            % '; '.join(texts(draft.evidence.of_movement)), StepStage.IN_VAIN).note_step()
    cleared = [step for step in draft.state.steps if _has_cleared(draft, step)]
    for step in cleared:
        if step.stage not in (StepStage.HELD, StepStage.UNDOING):
            draft = draft.drop(step)
    in_force = [step for step in cleared if step.stage is StepStage.HELD]
    if not in_force:
        return draft
    order = list(Rung)
    highest = max(in_force, key=lambda step: (order.index(step.rung), step.id))
    if highest.rung in MOVEMENT_RUNGS:
        draft = replace(draft, state=replace(
            draft.state, given_back=(*draft.state.given_back, (highest.rung, draft.now))))
    # An OSD that leads no PGs may not show whether it is slow.
    why = 'it is not reported as slow' if highest.rung is Rung.AFFINITY else 'the cause has cleared'
    return _begin_undo(draft, highest, why).note_step()


def _has_cleared(draft: _Draft, step: LadderStep) -> bool:
    """Whether the evidence for a step has cleared, for long enough if the OSD of a primary affinity
    was slow again each time. Never for faster recovery, which `_accelerate` ends."""
    if step.rung is Rung.AFFINITY:
        osd = int(step.subject)
        # An OSD that is down, or was removed, leads nothing in any case.
        is_tried_later = step.stage is StepStage.HELD and osd in draft.view.hosts \
            and not draft.evidence.slow_osds_muted and not _is_waited_for(draft, osd) \
            and draft.now - step.since < _again_seconds(draft, osd)
        return osd not in draft.evidence.slow_osds and not draft.evidence.is_incomplete \
            and not is_tried_later
    if step.stage is StepStage.IN_VAIN:
        # Shown while the trouble lasts, and, if the rung is not applied for now, until it is clear.
        return not any(trouble.in_vain for trouble in draft.state.troubles) \
            and (draft.is_clear or not draft.is_too_often(step.rung))
    return draft.is_clear and step.rung is not Rung.FASTER


# ---- Up

def _apply_one_rung(draft: _Draft) -> _Draft:
    """Apply the lowest rung against movement that has no step yet and can be applied, if the
    evidence has lasted; otherwise, lower the primary affinity of a slow OSD."""
    if draft.policy.mode not in ('observe', 'act'):
        return draft
    # A step in vain only informs operators.
    rungs_tried = {step.rung for step in draft.state.steps if step.stage is not StepStage.IN_VAIN}
    if draft.bad_lasts and draft.is_bad:
        why = '; '.join(texts(draft.causes))
        for rung in MOVEMENT_RUNGS:
            with_rung = draft if rung in rungs_tried else _TAKE[rung](draft, why)
            # A rung that is taken has a new step.
            is_taken = with_rung.state.last_id != draft.state.last_id
            draft = draft.add_in_vain(rung, why) if is_taken and draft.is_too_often(rung) \
                else with_rung
            if not draft.is_bad:
                # All trouble is in vain now.
                break
            if draft.needs or not draft.may_step:
                return draft
    return _take_affinity(draft) if draft.policy.affinity else draft


def _take_norebalance(draft: _Draft, why: str) -> _Draft:
    """Set norebalance, unless it would stop nothing, must not be set, or is set already."""
    ladder_view = draft.view
    if (not draft.evidence.rebalancing or draft.evidence.against_norebalance
            or NOREBALANCE in ladder_view.flags | ladder_view.borrowed_elsewhere):
        return draft
    return draft.add(Rung.NOREBALANCE, why, settings=(
        Setting(SettingKind.FLAG, NOREBALANCE, '', Held(None, 'set')),))


def _take_pin_back(draft: _Draft, why: str) -> _Draft:
    """Pin PGs in flight that only wait for backfill back to where their data is."""
    if not draft.view.in_flight:
        return draft
    if draft.view.pg_states is None:
        return draft.need(Need.PG_STATES)
    # Degraded PGs need their copies, so they are not pinned back.
    waiting = tuple(sorted(pgid for pgid, state in draft.view.pg_states.items()
                           if 'backfill_wait' in state and 'degraded' not in state
                           and 'undersized' not in state and pgid in draft.view.in_flight))
    if not waiting:
        return draft
    return draft.add(Rung.PIN_BACK, why, pgs=waiting, note='%s: %s%s' % (
        pgs(len(waiting)), ', '.join(waiting[:8]), ', ...' if len(waiting) > 8 else ''))


def _take_slow(draft: _Draft, why: str) -> _Draft:
    """Slow the recovery, unless PGs have been degraded lately."""
    ladder_view = draft.view
    if draft.now - draft.state.degraded < draft.policy.seconds or draft.has_applied(Rung.FASTER):
        # Recovery of degraded PGs comes first. Unreported PGs do not count: PGs whose primary hangs
        # remain unreported, and clients wait for that OSD. Once they are reported as degraded, the
        # rung is undone at once.
        return draft
    if ladder_view.schedulers is None or ladder_view.config is None:
        return draft.need(Need.SCHEDULERS if ladder_view.schedulers is None else Need.CONFIG)
    slow = recovery.slow_recovery(ladder_view.config, ladder_view.schedulers,
                                  ladder_view.borrowed_elsewhere)
    remarks = slow.remarks if slow.settings else \
        slow.remarks + ('recovery is already as slow as perfguard makes it',)
    return draft.add(Rung.SLOW, why, settings=slow.settings, note='; '.join(remarks))


_TAKE: Mapping[Rung, Callable[[_Draft, str], _Draft]] = {
    Rung.NOREBALANCE: _take_norebalance, Rung.PIN_BACK: _take_pin_back, Rung.SLOW: _take_slow}


def _take_affinity(draft: _Draft) -> _Draft:
    """Lower the primary affinity of the first slow OSD for which that is allowed, or record why it
    is not."""
    limited = {step.subject: step for step in draft.state.steps if step.stage is StepStage.LIMITED}
    subjects = {step.subject for step in draft.state.steps if step.rung is Rung.AFFINITY}
    affinities = draft.view.affinities
    for osd, why in sorted(draft.evidence.slow_osds.items()):
        name = str(osd)
        # Nothing to lower, a step that is not just limited, or nothing known of what it serves.
        if affinities.get(osd, 0.0) <= 0.0 or name in subjects - limited.keys() \
                or osd in draft.view.unread:
            continue
        limit = _affinity_limit(draft, osd)
        if not limit:
            if name in limited:
                draft = draft.drop(limited[name])
            record, times = Held(_affinity_text(affinities[osd]), '0'), len(_returns(draft, osd))
            return draft.add(
                Rung.AFFINITY, why, name,
                settings=(Setting(SettingKind.AFFINITY, name, '', record),),
                note='it was slow again after it was given back, %s within a day'
                     % plural(times, 'time') if times else '')
        if name not in limited:
            draft = draft.add_limited(Rung.AFFINITY, why, name, limit)
        elif limited[name].note != limit:
            draft = draft.put(replace(limited[name], note=limit))
    return draft


def _affinity_limit(draft: _Draft, osd: int) -> str:
    """Why the primary affinity of a slow OSD must not be lowered; '': it may. OSDs of several hosts
    are never lowered at a time: OSDs of one host are in one failure domain of any type."""
    ladder_view = draft.view
    if osd in ladder_view.mixed:
        return 'clients would read from OSDs of another device class'
    if osd in ladder_view.futile:
        return ladder_view.futile[osd]
    lowered = {int(step.subject) for step in draft.state.steps if step.rung is Rung.AFFINITY
               and step.stage in (StepStage.WOULD, StepStage.HELD, StepStage.UNDOING)}
    other_hosts = {ladder_view.hosts.get(osd_id, 'osd.%d' % osd_id) for osd_id in lowered
                   } - {ladder_view.hosts.get(osd, 'osd.%d' % osd)}
    if other_hosts:
        return 'only OSDs of one host at a time, now those of %s' % ', '.join(sorted(other_hosts))
    if len(lowered) >= max(1, int(AFFINITY_SHARE * len(ladder_view.affinities))):
        return 'at most %.0f %% of all OSDs at a time' % (100 * AFFINITY_SHARE)
    up = [osd_id for osd_id in ladder_view.hosts if osd_id in ladder_view.affinities]
    remaining = sum(1 for osd_id in up if osd_id != osd and ladder_view.affinities[osd_id] > 0.0)
    if remaining < max(LEAST_PRIMARIES, PRIMARIES_SHARE * len(up)):
        return 'only %s would be left with a primary affinity above 0' % plural(remaining, 'OSD')
    returned = _returns(draft, osd)
    if returned and draft.now - max(returned) < draft.rest_seconds:
        return 'it was given back less than %d s ago' % draft.rest_seconds
    return ''


def _returns(draft: _Draft, osd: int) -> List[float]:
    """When the primary affinity of an OSD was given back within RETURNED_SECONDS."""
    return [when for osd_id, when in draft.state.returned if osd_id == osd]


def _again_seconds(draft: _Draft, osd: int) -> float:
    """Time for which the primary affinity of an OSD remains lowered though no check names it; 0.0
    once it was last given back RETURNED_SECONDS ago."""
    times = len(_returns(draft, osd))
    return AGAIN_SECONDS * AGAIN_FACTOR ** (times - 1) if times else 0.0


def _is_waited_for(draft: _Draft, osd: int) -> bool:
    """Whether a slow OSD of another host, which was not given back lately itself, may be lowered
    only once `osd`, which is not reported as slow, has its primary affinity back."""
    view = draft.view
    excluded = view.mixed | view.futile.keys() | view.unread
    return any(other not in excluded and view.affinities.get(other, 0.0) > 0.0
               and not _returns(draft, other)
               and view.hosts.get(other) not in (None, view.hosts[osd])
               for other in draft.evidence.slow_osds)


# ---- Faster recovery

def _accelerate(draft: _Draft) -> _Draft:
    """Raise or lower the pace of recovery by one level, or record why its options are not changed
    (a limit). The step of faster recovery begins with level 1 and ends with level 0."""
    policy, signs = draft.policy, draft.evidence
    step = next((step for step in draft.state.steps if step.rung is Rung.FASTER), None)
    has_ended = step is not None and step.stage in (
        StepStage.UNDOING, StepStage.GIVEN_UP, StepStage.REVERTED)
    if has_ended or draft.has_applied(Rung.SLOW):
        # A step that has ended is not repeated until all PGs have recovered.
        recovery_is_over = not signs.recovering and not signs.is_incomplete
        if step is not None and step.stage is not StepStage.UNDOING and recovery_is_over:
            draft = draft.drop(step)
        return draft.with_pace(replace(draft.state.recovery, level=0))
    in_force = step is not None and step.stage is StepStage.HELD
    # Until a step is in force, the level is at most that of the step to take.
    if policy.mode == 'off':
        level_limit = 0
    else:
        level_limit = recovery.MOST_LEVELS if in_force else 1
    pace, why = recovery.next_pace(draft.state.recovery, signs, draft.view.room, draft.view.flags,
                                   level_limit, policy.seconds, draft.now)
    why = why or recovery.why_faster(signs, draft.view.room)
    if not pace.level:
        draft = draft.with_pace(pace)
        if step is None:
            return draft
        return _begin_undo(draft, step, why) if in_force else draft.drop(step)
    # A step that is only reported (mode observe, or a limit) sets nothing.
    sets_nothing = not in_force or pace.level == draft.state.recovery.level
    if step is not None and sets_nothing:
        return draft.with_pace(pace)
    if step is None:
        # The level may be one of mode observe, which had no effect: it takes effect now.
        pace = replace(pace, changed=draft.now, bound=policy.backfills)
    if not policy.backfills:
        return draft.with_pace(pace).add_limited(Rung.FASTER, why, '', recovery.NO_BOUND)
    if draft.view.schedulers is None or draft.view.config is None:
        return draft.need(Need.SCHEDULERS if draft.view.schedulers is None else Need.CONFIG)
    return _take_faster(draft.with_pace(pace), step, why)


def _take_faster(draft: _Draft, step: Optional[LadderStep], why: str) -> _Draft:
    """Set the options of the present level: by a new step, or by other values of the one in
    force."""
    ladder_view, policy, level = draft.view, draft.policy, draft.state.recovery.level
    assert ladder_view.config is not None and ladder_view.schedulers is not None
    options = recovery.fast_recovery(
        ladder_view.config, ladder_view.schedulers, level, policy.backfills,
        ladder_view.borrowed_elsewhere, () if step is None else step.settings,
        ladder_view.degraded_sleep)
    note = '; '.join(options.remarks)
    if step is None:
        if not options.settings:
            return draft.add_limited(Rung.FASTER, why, '', note or 'nothing is left to raise')
        return draft.add(Rung.FASTER, why, settings=options.settings, note=note)
    new_values = {setting.name: setting.held.put for setting in options.settings}
    settings: List[Setting] = []
    for setting in step.settings:
        _, value = present_value(setting, ladder_view)
        hold_step = hold_other(setting.held, value, new_values.get(setting.name, setting.held.put))
        # Without a record, others have changed it: `_keep_in_force` gives the rung up.
        if hold_step.held is not None:
            setting = replace(setting, held=hold_step.held)
            draft = draft.send([Put(setting, setting.held.put)] if hold_step.send else ())
        settings.append(setting)
    return draft.event('recovery is accelerated, level %d of %d'
                       % (level, recovery.MOST_LEVELS), why).put(
        replace(step, settings=tuple(settings), since=draft.now, why=why))


def stops(state: MitigationState, evidence: Evidence) -> Tuple[Reason, ...]:
    """Why the campaign must release nothing: trouble (Rung.HOLD, which every mode applies, without
    steps), and rungs against movement that are in force."""
    in_force = [step for step in state.steps
                if step.stage in (StepStage.HELD, StepStage.UNDOING)
                and step.rung in MOVEMENT_RUNGS]
    return evidence.trouble + tuple(
        Reason(Code.MITIGATION, 'mitigation %d is in force: %s' % (step.id, step_name(step)))
        for step in in_force)
