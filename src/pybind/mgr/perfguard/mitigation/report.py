# SPDX-License-Identifier: LGPL-2.1-or-later
"""The mitigation in words, and as the data that commands print."""
from dataclasses import dataclass
from typing import Dict, List, Optional, Sequence, Tuple

from ..cluster.types import Json
from ..errors import Code, Reason, texts
from ..ledger import Owner, Row, shell
from .types import (LadderStep, MitigationState, Put, Revert, Rung, Setting, SettingKind, StepStage,
                    active_steps)


@dataclass(frozen=True)
class RungRow:
    """One step of a rung, or a rung without any."""
    rung: Rung
    #: Of a StepStage, 'held' or 'idle'.
    state: str = 'idle'
    id: Optional[int] = None
    #: As in "osd.3"; '' for the whole cluster.
    subject: str = ''
    since: Optional[float] = None
    why: str = ''
    settings: Tuple[Setting, ...] = ()
    note: str = ''


@dataclass(frozen=True)
class MitigationListing:
    """The mode of the mitigation, and its rungs from the mildest on."""
    mode: str = 'off'
    rungs: Tuple[RungRow, ...] = tuple(map(RungRow, Rung))


def listing(state: MitigationState, mode: str, hold: Sequence[Reason],
            hold_since: float) -> MitigationListing:
    """The answer of "mitigation ls": all rungs, each with a row per step, or one without any.
    `hold`: why releases of a campaign are held, empty if they are not; `hold_since`: since when."""
    rungs: List[RungRow] = []
    for rung in Rung:
        if rung is Rung.HOLD and hold:
            rungs.append(RungRow(rung, 'held', since=hold_since, why='; '.join(texts(hold))))
        else:
            rungs += [_row(step) for step in state.steps
                      if step.rung is rung is not Rung.HOLD] or [RungRow(rung)]
    return MitigationListing(mode, tuple(rungs))


def _row(step: LadderStep) -> RungRow:
    return RungRow(step.rung, step.stage.value, step.id, subject_text(step), step.since, step.why,
                   step.settings, _note(step))


def _note(step: LadderStep) -> str:
    needed = 'kept as long as the campaign also needs it' if step.needed_by_campaign else ''
    return '; '.join(text for text in (step.note, needed) if text)


def listing_json(shown: MitigationListing) -> Json:
    """`mitigation ls`."""
    return {'mode': shown.mode, 'rungs': [
        {'id': row.id, 'rung': row.rung.value, 'subject': row.subject, 'state': row.state,
         'since': row.since, 'why': row.why,
         'settings': [_setting(setting) for setting in row.settings],
         'note': row.note} for row in shown.rungs]}


def _setting(setting: Setting) -> Json:
    return {'what': setting.name if setting.kind is SettingKind.CONFIG else setting.text(),
            'who': setting.who, 'found': setting.held.found, 'put': setting.held.put,
            'in_force': setting.held.seen and not setting.done}


def reverted_texts(shown: MitigationListing, request: Revert) -> List[str]:
    """What `mitigation revert` would do."""
    return ['%s would become %s again (now %s), for %s' % (
        setting.text(), 'unset' if setting.held.found is None else setting.held.found,
        setting.held.put, row.rung.value)
        for row in shown.rungs if row.id == request.rung
        for setting in row.settings if not setting.done]


def mitigation_rows(state: MitigationState) -> List[Row]:
    return [Row(Owner.MITIGATION, setting.text(), setting.held.found, setting.held.put, step.since,
                shell(Put(setting, setting.held.found).command), setting.name)
            for step in active_steps(state) for setting in step.settings if not setting.done]


# ---- Words

DONE_TEXT = {Rung.NOREBALANCE: 'norebalance is set', Rung.SLOW: 'recovery is slowed',
             Rung.PIN_BACK: 'PGs that wait for backfill are pinned back',
             Rung.AFFINITY: 'primary affinity of osd.%s is lowered',
             Rung.FASTER: 'recovery is accelerated'}
UNDONE_TEXT = {Rung.NOREBALANCE: 'norebalance is given back',
               Rung.SLOW: 'recovery options are given back',
               Rung.PIN_BACK: 'PGs that were pinned back may be released again',
               Rung.AFFINITY: 'primary affinity of osd.%s is given back',
               Rung.FASTER: 'recovery options are given back'}


def subject_text(step: LadderStep) -> str:
    return 'osd.' + step.subject if step.subject else ''


def step_name(step: LadderStep) -> str:
    return step.rung.value + (' of ' + subject_text(step) if step.subject else '')


def step_text(texts: Dict[Rung, str], step: LadderStep) -> str:
    text = texts[step.rung]
    return text % step.subject if '%s' in text else text


def reasons(state: MitigationState) -> Tuple[Reason, ...]:
    """Texts for `status` on the rungs that are in force, being undone or in vain, or that mode act
    or another limit would allow."""
    rows = []
    for step in state.steps:
        lines: List[str] = []
        if step.stage is StepStage.HELD:
            lines.append('mitigation %d: %s (%s)' % (step.id, step_text(DONE_TEXT, step), step.why))
        elif step.stage is StepStage.UNDOING:
            lines.append('mitigation %d: %s is being undone%s' % (
                step.id, step_name(step), ': ' + _note(step) if _note(step) else ''))
        elif step.stage is StepStage.IN_VAIN:
            lines.append('mitigation %d: %s was in vain (%s)' % (
                step.id, step_name(step), step.why))
        elif step.stage is StepStage.WOULD:
            lines.append('mitigation_mode act would take: %s (%s)' % (step_name(step), step.why))
        elif step.stage is StepStage.LIMITED and step.rung is Rung.FASTER:
            lines.append('recovery could be faster (%s): %s' % (step.why, step.note))
        code = Code.RECOVERY_WAITS if step.rung is Rung.FASTER else Code.MITIGATION
        rows += [Reason(code, text) for text in lines]
    return tuple(rows)
