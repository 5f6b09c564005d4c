# SPDX-License-Identifier: LGPL-2.1-or-later
"""`campaign <verb> --dry-run`: the effects of a request, read from the published state.

For requests that `check` has accepted. Rollbacks and changes have previews of their own, as Ceph's
tools compute their effects.
"""
from typing import Callable, List, Mapping, Optional, Sequence

from ..errors import texts
from ..holds import Owner, Row
from ..options import Options
from ..tables import bytes_text, listed, pgs, seconds_text
from .campaign import Campaign
from .report import Rebalanced
from .requests import Request
from .states import STATES
from .types import Phase

#: Borrowed settings that a text names.
_NAMED = 5


def effects(request: Request, rebalanced: Rebalanced, rows: Sequence[Row],
            options: Options) -> List[str]:
    """Texts, the phase first. `rows`: all borrowed settings; `options`: those in force."""
    campaign = rebalanced.campaign
    if request.verb == 'abort' and (campaign is None or not campaign.active):
        return ['OSDs would not be awaited any longer: those that boot later get data at once']
    if request.verb == 'set':
        moved = ['%s is %s now and would be %s' % (
            request.option, getattr(options, request.option) or 'empty',
            request.value or 'the value of the module option')]
    else:
        moved = _EFFECTS[request.verb](request, rebalanced)
    borrowed = [row.what for row in rows
                if row.owner is Owner.CAMPAIGN and not row.can_stay]
    if request.verb == 'finish' and borrowed:
        moved.append('given back: ' + listed(borrowed, _NAMED))
    return [_phase_text(request, campaign), *moved]


def _phase_text(request: Request, campaign: Optional[Campaign]) -> str:
    if request.verb == 'prepare' or campaign is None:
        return 'a campaign would begin and become PREPARED, which borrows: %s' \
            % STATES[Phase.PREPARED].borrows
    after = STATES[campaign.phase].verbs.get(request.verb, campaign.phase)
    if after is campaign.phase:
        return 'campaign %d would stay %s' % (campaign.id, after.value)
    return 'campaign %d is %s and would become %s, which borrows: %s' % (
        campaign.id, campaign.phase.value, after.value, STATES[after].borrows)


def _unpinnable(number: int) -> List[str]:
    return ['%s cannot be pinned and would move at once' % pgs(number)] if number else []


def _prepare(request: Request, rebalanced: Rebalanced) -> List[str]:
    return ['no PG would move']


def _pin(request: Request, rebalanced: Rebalanced) -> List[str]:
    preview = rebalanced.preview
    return ['%s would be pinned where the data is' % pgs(preview.remapped),
            *_unpinnable(len(preview.unpinnable))]


def _start(request: Request, rebalanced: Rebalanced) -> List[str]:
    return ['%s would be released in batches, %s to copy' % (
        pgs(rebalanced.pins), bytes_text(rebalanced.preview.moves.bytes)),
        *_unpinnable(len(rebalanced.status.unpinnable))]


def _pause(request: Request, rebalanced: Rebalanced) -> List[str]:
    until = 'until "campaign resume"' if not request.seconds else \
        'for ' + seconds_text(request.seconds)
    return ['%s in flight would stop and %s stay pinned, %s; what was copied is kept' % (
        pgs(rebalanced.status.in_flight), pgs(rebalanced.pins), until)]


def _resume(request: Request, rebalanced: Rebalanced) -> List[str]:
    resumed = ['%s would be released, and %s in flight continue' % (
        pgs(rebalanced.pins), pgs(rebalanced.status.in_flight))]
    if rebalanced.preview.remapped and rebalanced.campaign and rebalanced.campaign.held:
        resumed.insert(0, '%s that became remapped meanwhile would be pinned'
                       % pgs(rebalanced.preview.remapped))
    return resumed


def _abort(request: Request, rebalanced: Rebalanced) -> List[str]:
    in_flight = rebalanced.status.in_flight
    return ['%s in flight would be pinned back, and what was copied of them is lost'
            % pgs(in_flight),
            '%s would stay pinned until "campaign resume", "campaign rollback" or "campaign finish '
            '--keep"' % pgs(rebalanced.pins + in_flight), *rebalanced.withdrawn_plans]


def _finish(request: Request, rebalanced: Rebalanced) -> List[str]:
    kept = ['the pins of %s would become ordinary upmaps, which the balancer may change'
            % pgs(rebalanced.pins)] if rebalanced.pins else []
    return [*kept, *([rebalanced.loose] if rebalanced.loose else []),
            *(rebalanced.withdrawn if request.keep else ())]


def _accept(request: Request, rebalanced: Rebalanced) -> List[str]:
    stops = texts([reason for reason in rebalanced.status.reasons if reason.code == request.code])
    return ['%s would not stop releases of this campaign any longer; now: %s' % (
        request.code, '; '.join(stops) or 'it stops none')]


_EFFECTS: Mapping[str, Callable[[Request, Rebalanced], List[str]]] = {
    'prepare': _prepare, 'pin': _pin, 'start': _start, 'pause': _pause, 'resume': _resume,
    'abort': _abort, 'finish': _finish, 'accept': _accept}
