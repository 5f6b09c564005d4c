# SPDX-License-Identifier: LGPL-2.1-or-later
"""Requests of operators to a campaign: when they are valid, and their effects."""
import errno
from dataclasses import dataclass, replace
from typing import (Callable, ClassVar, Container, FrozenSet, List, Mapping, Optional, Sequence,
                    Tuple)

from ..cluster.types import OsdMap
from ..errors import Code, Reason, Refused, texts
from ..ledger import Owner, Row
from ..options import Options
from ..text import bytes_text, listed, pgs, pgs_are, plural, seconds_text
from ..watch.stop_conditions import ABSENT_TEXT, LASTING, WAIVABLE
from .campaign import Campaign, Orders
from .holds import not_given_up
from .pinning import lastingly_unpinned
from .pool_rule import RuleChange
from .report import Rebalanced
from .risks import RISKS, of_health, refuse
from .settings import assignment, overridden, problems
from .states import STATES, from_phases
from .types import NOREBALANCE_KEY, Phase


@dataclass(frozen=True)
class Request:
    """A request to a campaign."""
    #: prepare, pin, start, pause, resume, accept, set, abort or finish.
    verb: str
    #: Codes of accepted risks.
    accept: Tuple[str, ...] = ()
    #: finish --keep: the remaining pins become ordinary upmaps.
    keep: bool = False
    #: finish: although PGs will move outside the caps.
    sure: bool = False
    #: The code of the acknowledged stop condition.
    code: str = ''
    #: The length of a pause; 0: until resume.
    seconds: float = 0.0
    #: set: an option and its value for this campaign; '': the value of the module option.
    option: str = ''
    value: str = ''
    #: Where requests wait in the store, and the document that has changed once they are executed.
    document: ClassVar[str] = 'requests'
    effects: ClassVar[Tuple[str, ...]] = ('campaign', 'await')

    def __post_init__(self) -> None:
        if self.verb not in VERBS:
            raise ValueError('unknown verb %r' % self.verb)

    @property
    def text(self) -> str:
        return ' '.join(filter(None, ('campaign', self.verb, self.code)))

    @property
    def only_stops(self) -> bool:
        return self.verb in ('pause', 'abort')


@dataclass(frozen=True)
class DryRun:
    """An order to check a request, and to carry nothing out."""
    request: Request
    dry_run: ClassVar[bool] = True
    addressee: ClassVar[str] = 'rebalance'

    @property
    def verb(self) -> str:
        return self.request.verb


#: Oldest require_min_compat_client values under which the mon refuses upmaps.
_BEFORE_LUMINOUS = frozenset({'argonaut', 'bobtail', 'cuttlefish', 'dumpling', 'emperor',
                              'firefly', 'giant', 'hammer', 'infernalis', 'jewel', 'kraken'})
#: Verbs that only stop or end a campaign, or change one that continues anyway.
_ALWAYS_ALLOWED = frozenset({'pause', 'abort', 'finish', 'accept', 'set'})
#: What to do instead, by verb and phase.
_ADVICE = {
    ('pin', Phase.PINNING): 'it is already pinning',
    ('pin', Phase.RELEASING): 'PGs that become remapped now are pinned automatically',
    ('pin', Phase.HOLDING): 'PGs that become remapped now are pinned automatically',
    ('start', Phase.PREPARED): 'run "campaign pin" first',
    ('start', Phase.PINNING): 'wait until it is PINNED',
    ('start', Phase.RELEASING): 'it is already releasing',
    ('start', Phase.HOLDING): 'it has already started; "campaign resume" ends a pause',
    ('pause', Phase.PREPARED): 'it releases no PG',
    ('pause', Phase.PINNING): 'it releases no PG now; "campaign abort" stops the campaign',
    ('pause', Phase.PINNED): 'it releases no PG now; "campaign abort" stops the campaign',
    ('resume', Phase.PREPARED): 'it is not paused',
    ('resume', Phase.PINNING): 'it is not paused',
    ('resume', Phase.PINNED): 'it has not started: run "campaign start"',
    ('resume', Phase.RELEASING): 'it is not paused',
    ('resume', Phase.HOLDING): 'it is not paused and continues when the stop conditions have '
                               'cleared (see "campaign status")',
    ('finish', Phase.PINNING): 'wait until it is PINNED, or run "campaign abort"',
    ('finish', Phase.FINISHING): 'it is already finishing',
}


#: How another campaign begins.
_BEGINS = '"expand", "drain" and other changes begin one, "campaign prepare" one for a change by ' \
    'hand'
#: What to do in phases in which the campaign ends.
_ENDING = dict.fromkeys((Phase.ABORTING, Phase.FINISHING), 'wait until it has ended')
#: What to do before another campaign begins.
_MEANWHILE = {
    **_ENDING,
    **dict.fromkeys((Phase.RELEASING, Phase.HOLDING), 'wait until it has ended (a saved plan that '
                    'is approved begins then), or abort it first')}


def check(campaign: Campaign, request: Request, pins: int,
          unhealthy: Sequence[Reason], unfit: str = '', loose: str = '',
          awaiting: bool = False, left_rule: str = '') -> None:
    """Raise Refused if `request` cannot be met now.

    `pins`: PGs kept pinned; `unhealthy`: reasons not to begin a campaign; `unfit`: why none can
    begin at all; `loose`: why norebalance must not be given back; `awaiting`: OSDs are awaited;
    `left_rule`: as `why_rule_first`.
    """
    verb = request.verb
    if verb == 'prepare':
        _check_new(campaign, request, unhealthy, unfit, left_rule)
        return
    if verb == 'accept':
        _check_code(request.code)
    if verb == 'abort' and awaiting:
        return
    # Of an aborted campaign that keeps PGs pinned, an operator decides on these.
    decides_on_pins = campaign.held and verb in ('resume', 'finish')
    if not campaign.active and not decides_on_pins:
        raise _not_active(campaign)
    if verb in ('abort', 'accept', 'set'):
        return
    if verb == 'pin' and not campaign.holds.prepared:
        raise Refused(errno.EBUSY, 'campaign %d is not PREPARED yet: wait until norebalance is set '
                      'and the balancer is off (see "campaign status")' % campaign.id)
    nothing_to_resume = verb == 'resume' and not campaign.orders.paused and not campaign.held
    if campaign.phase not in from_phases(verb) or nothing_to_resume:
        advice = _ADVICE.get((verb, campaign.phase)) or _ENDING.get(campaign.phase)
        raise Refused(errno.EBUSY, 'campaign %d is %s: %s' % (
            campaign.id, campaign.phase.value, advice or 'see "campaign status"'))
    if verb == 'finish' and pins and not request.keep:
        raise Refused(errno.EBUSY, '%s still pinned: release them%s, or run "campaign finish '
                      '--keep" to turn the pins into ordinary upmaps%s' % (
                          pgs_are(pins), *((' ("campaign resume")', '') if campaign.held else
                                           ('', ', or "campaign abort"'))))
    if verb == 'finish' and loose and not request.sure:
        raise Refused(errno.EPERM, '%s: "campaign %s" first, or --yes-i-really-mean-it finishes '
                      'anyway' % (loose, _PIN_VERBS.get(campaign.phase, 'start')))


def _not_active(campaign: Campaign) -> Refused:
    """Why a request finds no active campaign, and what to do instead."""
    if campaign.held:
        return Refused(errno.ENOENT, 'campaign %d is ABORTED and keeps PGs pinned: run '
                       '"campaign resume"%s or "campaign finish --keep"' % (
                           campaign.id, '' if campaign.no_way_back else ', "campaign rollback"'))
    if campaign.phase is not Phase.IDLE:
        return Refused(errno.ENOENT, 'campaign %d is %s and has ended: %s' % (
            campaign.id, campaign.phase.value, _BEGINS))
    return Refused(errno.ENOENT, 'no campaign is active: %s' % _BEGINS)


def _check_new(campaign: Campaign, request: Request, unhealthy: Sequence[Reason],
               unfit: str, left_rule: str) -> None:
    """Refuse a request that would begin a campaign, if none may begin."""
    if campaign.active:
        raise Refused(errno.EBUSY, 'campaign %d is %s: %s' % (
            campaign.id, campaign.phase.value,
            _MEANWHILE.get(campaign.phase, '"campaign finish" or "campaign abort" first')))
    if left_rule:
        raise Refused(errno.EBUSY, left_rule)
    if unfit:
        raise Refused(errno.EPERM, 'cannot begin a campaign: %s' % unfit)
    refuse(of_health(unhealthy), request.accept, 'ceph perfguard campaign prepare')


def why_rule_first(campaign: Campaign, osdmap: OsdMap, pool_name: str = '') -> str:
    """Why no other campaign may follow an aborted one that has left a pool with an intermediate
    CRUSH rule: it would forget which rule the pool had, and release its PGs under the intermediate
    one. '' if one may. `pool_name`: the pool whose rule the other campaign changes; '': none."""
    change = campaign.change
    if not campaign.held or not isinstance(change, RuleChange):
        return ''
    pool, left_rule = change.pool_in(osdmap), change.intermediate_rule(osdmap)
    if pool is None or not left_rule or pool.name == pool_name:
        return ''
    return 'campaign %d is ABORTED and pool %s has the intermediate CRUSH rule %s: "campaign ' \
        'resume", or "rule" back to %s' % (campaign.id, pool.name, left_rule, change.found_rule)


#: The verb that pins, or releases, PGs that are remapped and not pinned, by phase; else "start".
_PIN_VERBS = {Phase.PREPARED: 'pin', Phase.ABORTED: 'resume'}


def _check_code(code: str) -> None:
    if code in RISKS and code not in WAIVABLE:
        raise Refused(errno.EINVAL, '%s stops no release: it is a risk of beginning a change, '
                      'which takes it as "--accept %s"' % (code, code))
    if code not in WAIVABLE:
        raise Refused(errno.EINVAL, 'cannot accept %r; must be one of %s'
                      % (code, ', '.join(WAIVABLE)))


def refuse_bad_options(request: Request, options: Options,
                       pools: Optional[Container[str]]) -> None:
    """Raise Refused for a request to begin, pin, start or resume with invalid options.

    `pools`: the names that exist, if known; only for prepare and start: a pool that is deleted or
    renamed later only loses its limit.
    """
    texts = problems(options, pools if request.verb in ('prepare', 'start') else None)
    if texts and request.verb not in _ALWAYS_ALLOWED:
        raise Refused(errno.EINVAL, 'invalid module options; fix first: %s ("ceph config set mgr '
                      'mgr/perfguard/<option> <value>")' % '; '.join(texts))


def refuse_bad_settings(campaign: Campaign, request: Request, options: Options,
                        pools: Optional[Container[str]]) -> None:
    """Raise Refused for a setting that is invalid or contradicts other options, whether or not the
    campaign is active. `options`: the module's own, which may have other problems."""
    assignment('%s=%s' % (request.option, request.value))
    settings = (campaign.orders if campaign.active else Orders()).with_setting(
        request.option, request.value).settings
    names_pools = request.option == 'latency_limits_ms' and request.value
    texts = problems(overridden(options, settings),
                     pools if names_pools else None)
    texts = [text for text in texts if request.option in text]
    if texts:
        raise Refused(errno.EINVAL, '; '.join(texts))


def apply(campaign: Campaign, request: Request, now: float) -> Campaign:
    """The campaign after a request that `check` has accepted (except prepare)."""
    verb = request.verb
    if verb in ('pause', 'abort'):
        # norebalance is borrowed again, even if others have cleared it meanwhile.
        campaign = replace(campaign, holds=not_given_up(campaign.holds, NOREBALANCE_KEY))
    if verb == 'pause':
        return replace(campaign, orders=campaign.orders.pausing(now, request.seconds))
    if verb == 'resume':
        return _resumed(campaign, now)
    if verb == 'accept':
        return replace(campaign, orders=campaign.orders.accepting(request.code))
    if verb == 'set':
        return replace(campaign, orders=campaign.orders.with_setting(
            request.option, request.value))
    phase, orders = STATES[campaign.phase].verbs[verb], campaign.orders.resumed()
    if verb == 'abort' and campaign.phase is Phase.ABORTING:
        # Without the rollback that was ordered.
        return replace(campaign, rollback=replace(campaign.rollback, wanted=None))
    if verb == 'finish':
        orders = replace(orders, keep=request.keep)
    elif verb == 'abort':
        orders = orders.accepting(Code.PIN_LIMIT)  # it pins every PG
    elif verb == 'start':
        orders = replace(orders, accepted_unpinnable=lastingly_unpinned(campaign))
    elif verb == 'pin':
        # The operator requests pins again: unpinnable PGs are tried again.
        campaign = replace(campaign, pinning=campaign.pinning.tried_again())
        orders = orders.accepting(*(code for code in request.accept if code == Code.PIN_LIMIT))
    return replace(campaign.reopened(phase, now), orders=orders)


def _resumed(campaign: Campaign, now: float) -> Campaign:
    """The campaign after "campaign resume": no longer paused, or, if it was aborted and keeps PGs
    pinned, continued."""
    if not campaign.held:
        return replace(campaign, orders=campaign.orders.resumed())
    # PGs that became remapped meanwhile are pinned first; then releases continue automatically.
    change = campaign.change
    return replace(campaign.reopened(Phase.PINNING, now), automatic=True, ended=None,
                   change=None if change is None else change.resumed(),
                   pinning=campaign.pinning.tried_again(),
                   holds=replace(campaign.holds.with_nothing_given_up(), prepared=False))


def aborted_again(campaign: Campaign, now: float) -> Campaign:
    """An aborted campaign that keeps PGs pinned, about to pin those that others have remapped."""
    return replace(campaign.reopened(Phase.ABORTING, now), ended=None,
                   holds=not_given_up(campaign.holds, NOREBALANCE_KEY))


#: "accept" and "set" are possible in every phase of an active campaign. A rollback is an
#: order: its effects are computed first.
VERBS: FrozenSet[str] = frozenset({'accept', 'set'}).union(
    *(state.verbs for state in STATES.values())) - {'rollback'}


def unfit(osdmap: OsdMap) -> str:
    """Why no campaign can begin at all: the mons would refuse every pin."""
    if osdmap.min_compat_client not in _BEFORE_LUMINOUS:
        return ''
    return ('require_min_compat_client is %s, but upmaps require luminous ("ceph osd '
            'set-require-min-compat-client luminous")' % osdmap.min_compat_client)


# ---- `campaign <verb> --dry-run`: the effects of a request, read from the published state
#
# For requests that `check` has accepted. Rollbacks and changes have previews of their own, as
# Ceph's tools compute their effects.

#: Borrowed settings that a text names.
_NAMED_SETTINGS = 5


def effects(request: Request, rebalanced: Rebalanced, rows: Sequence[Row], options: Options,
            arriving: int, forgotten: int = 0) -> List[str]:
    """What a request would do, as texts, the phase first. `rows`: all borrowed settings; `options`:
    those in force; `arriving`: PGs in flight that an abort cannot pin back, and lets arrive;
    `forgotten`: PGs with records of pins that an abort forgets, since they were never pinned."""
    campaign = rebalanced.campaign
    if request.verb == 'abort' and not campaign.active:
        return ['OSDs would not be awaited any longer: those that boot later get data at once']
    if request.verb == 'set':
        now = getattr(options, request.option)
        lines = ['%s is %s now and would be %s' % (
            request.option, 'empty' if now == '' else now,
            request.value or 'the value of the module option')]
    elif request.verb == 'abort':
        lines = _abort(campaign, rebalanced, arriving, forgotten)
    else:
        lines = _EFFECTS[request.verb](request, rebalanced)
    borrowed = [row.what for row in rows
                if row.owner is Owner.CAMPAIGN and not row.can_stay]
    if request.verb == 'finish' and borrowed:
        lines.append('given back: ' + listed(borrowed, _NAMED_SETTINGS))
    return [_phase_text(request, campaign), *lines]


def _phase_text(request: Request, campaign: Campaign) -> str:
    """The phase that a request would lead to, as a sentence."""
    if request.verb == 'prepare':
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
    flag = ['norebalance, which was cleared outside perfguard, would be set again'] \
        if rebalanced.campaign.holds.gave_up_flag else []
    until = 'until "campaign resume"' if not request.seconds else \
        'for ' + seconds_text(request.seconds)
    return ['%s in flight would stop and %s stay pinned, %s; what was copied is kept' % (
        pgs(rebalanced.status.in_flight), pgs(rebalanced.pins), until), *flag]


def _resume(request: Request, rebalanced: Rebalanced) -> List[str]:
    resumed = ['%s would be released, and %s in flight continue' % (
        pgs(rebalanced.pins), pgs(rebalanced.status.in_flight))]
    if rebalanced.preview.remapped and rebalanced.campaign.held:
        resumed.insert(0, '%s that became remapped meanwhile would be pinned'
                       % pgs(rebalanced.preview.remapped))
    return resumed


def _abort(campaign: Campaign, rebalanced: Rebalanced, arriving: int, forgotten: int) -> List[str]:
    """What an abort would do. `arriving`, `forgotten`: as for `effects`."""
    pinned_back = sum(flight.pin is not None for flight in campaign.flights.in_flight.values())
    # Those that the operator's change of CRUSH has remapped, or others.
    remapped = rebalanced.preview.remapped
    pinned = max(0, rebalanced.pins + pinned_back + remapped - forgotten)
    lines = (
        (pinned_back, '%s in flight would be pinned back, and what was copied of them is lost'
         % pgs(pinned_back)),
        (remapped, '%s would be pinned where the data is' % plural(remapped, 'remapped PG')),
        (arriving, '%s that cannot be pinned would still move to where CRUSH places %s' % (
            pgs(arriving), 'it' if arriving == 1 else 'them')),
        (pinned, '%s would stay pinned until "campaign resume", "campaign rollback" or "campaign '
         'finish --keep"' % pgs(pinned)))
    return [*(text for number, text in lines if number), *rebalanced.withdrawn_plans]


def _finish(request: Request, rebalanced: Rebalanced) -> List[str]:
    kept = ['the pins of %s would become ordinary upmaps, which the balancer may change'
            % pgs(rebalanced.pins)] if rebalanced.pins else []
    moving = rebalanced.status.in_flight
    if moving:
        kept.append('%s in flight would first arrive, at the pace that client latency allows'
                    % pgs(moving))
    return [*kept, *([rebalanced.loose] if rebalanced.loose else []),
            *(rebalanced.withdrawn if request.keep else ())]


def _accept(request: Request, rebalanced: Rebalanced) -> List[str]:
    stops = texts([reason for reason in rebalanced.status.reasons if reason.code == request.code])
    until = 'of this campaign any longer' if request.code in LASTING else \
        'until it has been ' + ABSENT_TEXT
    return ['%s would not stop releases %s; now: %s' % (
        request.code, until, '; '.join(stops) or 'it stops none')]


_EFFECTS: Mapping[str, Callable[[Request, Rebalanced], List[str]]] = {
    'prepare': _prepare, 'pin': _pin, 'start': _start, 'pause': _pause, 'resume': _resume,
    'finish': _finish, 'accept': _accept}
