# SPDX-License-Identifier: LGPL-2.1-or-later
"""The mitigation in words, and as the data that commands print."""
from typing import Any, Dict, List, Optional, Sequence, Tuple

from ..errors import Code, Reason, texts
from ..holds import Row, shell
from .recovery_options import command_of
from .types import LadderStep, MitigationState, Put, Rung, Setting, SettingKind, StepStage, active

Json = Dict[str, Any]


def listing(state: MitigationState, mode: str, hold: Sequence[Reason], hold_since: float) -> Json:
    """`mitigation ls`. `hold`: why releases are held; empty if they are not."""
    rungs: List[Json] = []
    for rung in Rung:
        if rung is Rung.HOLD:
            rungs.append(_row(None, rung, 'held' if hold else 'idle',
                              hold_since if hold else None, '; '.join(texts(hold))))
            continue
        steps = [step for step in state.steps if step.rung is rung]
        rungs += [_step(step) for step in steps] or [_row(None, rung, 'idle', None, '')]
    return {'mode': mode, 'rungs': rungs}


def _step(step: LadderStep) -> Json:
    row = _row(step.id, step.rung, step.stage.value, step.since, step.why)
    row.update(note=step.note, subject='osd.' + step.subject if step.subject else '',
               settings=[_setting(setting) for setting in step.settings])
    return row


def _row(number: Optional[int], rung: Rung, state: str, since: Optional[float],
         why: str) -> Json:
    return {'id': number, 'rung': rung.value, 'subject': '', 'state': state, 'since': since,
            'why': why, 'settings': [], 'note': ''}


def _setting(setting: Setting) -> Json:
    return {'what': setting.name if setting.kind is SettingKind.CONFIG else setting.text(),
            'who': setting.who, 'found': setting.found, 'put': setting.put,
            'in_force': setting.seen and not setting.done}


def mitigation_rows(state: MitigationState) -> List[Row]:
    return [Row(setting.text(), setting.found, setting.put, step.since,
                shell(command_of(Put(setting, setting.found))))
            for step in active(state) for setting in step.settings if not setting.done]


# ---- Words

DONE_TEXT = {Rung.NOREBALANCE: 'norebalance is set', Rung.SLOW: 'recovery is slowed',
             Rung.PIN_BACK: 'PGs that wait for backfill are pinned back',
             Rung.AFFINITY: 'primary affinity of osd.%s is lowered'}
UNDONE_TEXT = {Rung.NOREBALANCE: 'norebalance is given back', Rung.SLOW: 'recovery options '
               'are given back',
               Rung.PIN_BACK: 'PGs that were pinned back may be released again',
               Rung.AFFINITY: 'primary affinity of osd.%s is given back'}


def step_name(step: LadderStep) -> str:
    return step.rung.value + (' of osd.' + step.subject if step.subject else '')


def step_text(texts: Dict[Rung, str], step: LadderStep) -> str:
    text = texts[step.rung]
    return text % step.subject if '%s' in text else text


def reasons(state: MitigationState) -> Tuple[Reason, ...]:
    """Texts on the rungs in force, for `status`."""
    found = []
    for step in state.steps:
        if step.stage is StepStage.HELD:
            found.append('mitigation %d: %s (%s)' % (step.id, step_text(DONE_TEXT, step), step.why))
        elif step.stage is StepStage.UNDOING:
            found.append('mitigation %d: %s is being undone%s' % (
                step.id, step_name(step), ': ' + step.note if step.note else ''))
        elif step.stage is StepStage.WOULD:
            found.append('mitigation_mode act would take: %s (%s)' % (step_name(step), step.why))
    return tuple(Reason(Code.MITIGATION, text) for text in found)
