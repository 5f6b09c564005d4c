# SPDX-License-Identifier: LGPL-2.1-or-later
"""The campaign for commands, metrics and the page: typed, and as JSON."""
from dataclasses import dataclass, field
from functools import partial
from typing import List, Mapping, Optional, Sequence, Tuple

from ..cluster.set_by_others import BALANCER
from ..cluster.types import MAX_SCRUBS, Document, Json, OsdMap
from ..errors import Code, Reason, texts
from ..ledger import Owner, Row, shell
from ..observation import OSD_OPTION, Observation
from ..options import Options
from ..text import bytes_text, ms_text, pgs, pgs_are, plural, seconds_text
from ..upmap.pins import Unpinnable
from ..watch.next_steps import limits_json
from ..watch.op_counts import OpLevels
from ..window import BadWindow, is_open, seconds_until_done
from .bill import AUTOSCALERS, READ_KIND, WRITE_KIND, Bill
from .campaign import NO_CAMPAIGN, Campaign
from .copying import NAMES
from .epochs import MIN_WAIT, PROPOSE_INTERVAL
from .executor import commands_of
from .holds import INITIAL_WEIGHT, NOREBALANCE, option_text, set_option
from .moves import Caps, Movement, OsdLoad, movement_of
from .progress import Eta, path_seconds, remaining, shares
from .settings import window_of
from .throttle import caps, limit
from .types import (AUTOSCALE_MODE, FLAG, RELEASING_PHASES, Action, Phase, PinRecord, SetFlag,
                    SetPool, is_option)

#: The plain command.
BALANCER_ON_COMMAND = 'ceph balancer on'


@dataclass(frozen=True)
class CampaignStatus:
    """The campaign, if any, at the end of one turn."""
    #: 0: no campaign.
    id: int = 0
    #: IDLE as well while the flags of a new campaign are not in force.
    phase: Phase = Phase.IDLE
    paused: bool = False
    #: When the pause ends, in seconds since the epoch; 0.0: with "campaign resume".
    paused_until: float = 0.0
    settings: Mapping[str, str] = field(default_factory=dict)
    trigger: Optional[str] = None
    target: str = ''
    total: int = 0
    #: PGs of these that have to move, and the share of the work that is done, 0 to 1.
    moving: int = 0
    done_ratio: float = 0.0
    pinned: int = 0
    in_flight: int = 0
    released: int = 0
    kept: int = 0
    #: PG -> why it cannot be pinned.
    unpinnable: Mapping[str, Unpinnable] = field(default_factory=dict)
    bytes_total: int = 0
    bytes_done: int = 0
    #: Until the last PG has arrived; None: not known.
    eta: Optional[Eta] = None
    rolled_back: bool = False
    #: Ended with PGs that wait for a decision of the operator.
    held: bool = False
    #: PGs that may be in flight.
    limit: int = 0
    #: Of one interval change, as measured; None: not enough evidence so far.
    stall_seconds: Optional[float] = None
    waits_for_window: bool = False
    #: Seconds since the epoch; 0.0 and None: not yet.
    started: float = 0.0
    ended: Optional[float] = None
    epochs: int = 0
    reasons: Tuple[Reason, ...] = ()
    #: Code of a limit -> its share of the campaign's time, 0 to 1.
    limit_shares: Mapping[str, float] = field(default_factory=dict)
    acknowledged: Tuple[str, ...] = ()
    #: Number of the present tranche of the CRUSH change, and of all of them, by estimate; 0: it is
    #: not divided.
    tranche: int = 0
    tranches: int = 0
    #: The bill as bill_json renders it; None: no campaign.
    bill: Optional[Document] = None


@dataclass(frozen=True)
class ReleasePreview:
    """The remaining moves."""
    moves: Movement = movement_of((), 1, 1)
    #: Number of remapped PGs that are not pinned yet, and could be.
    remapped: int = 0
    #: PG -> why it cannot be pinned.
    unpinnable: Mapping[str, Unpinnable] = field(default_factory=dict)


@dataclass(frozen=True)
class Rebalanced:
    """The state of the rebalance for commands."""
    campaign: Campaign = NO_CAMPAIGN
    status: CampaignStatus = CampaignStatus()
    preview: ReleasePreview = ReleasePreview()
    #: Stored summaries of finished campaigns.
    history: Tuple[Json, ...] = ()
    #: PGs that are pinned and not in flight.
    pins: int = 0
    unhealthy: Tuple[Reason, ...] = ()
    #: Why no campaign can begin at all; '' if one may.
    unfit: str = ''
    #: Why norebalance must not be given back; '' if it may.
    loose: str = ''
    #: Why only a change of a certain CRUSH rule may follow; '' if others may.
    left_rule: str = ''
    #: OSDs that are up and in, and get no PGs.
    idle_osds: int = 0
    #: OSDs that are still to boot are awaited.
    awaiting: bool = False
    #: Texts on what "finish --keep" ends, and an abort.
    withdrawn: Tuple[str, ...] = ()
    withdrawn_plans: Tuple[str, ...] = ()


def status(campaign: Campaign, pins: Mapping[str, PinRecord],
           waiting: Movement, reasons: Sequence[Reason], options: Options,
           wall: float) -> CampaignStatus:
    """The state of the campaign, as commands show it. `waiting`: the moves of PGs that are not in
    flight yet; `wall`: Observation.wall."""
    phase = campaign.phase
    if phase is Phase.PREPARED and not campaign.holds.prepared:
        phase = Phase.IDLE
    flights = campaign.flights.in_flight
    bytes_left = 0
    if campaign.active:
        bytes_left = waiting.bytes + sum(flight.bytes for flight in flights.values())
    tranche, tranches = tranche_of(campaign)
    if campaign.active and tranche:
        # As much for each tranche that is still to come as for those so far.
        bytes_left += (campaign.progress.bytes_done + bytes_left) * (tranches - tranche) // tranche
    progress = campaign.progress
    return CampaignStatus(
        id=campaign.id, phase=phase, paused=campaign.orders.paused,
        paused_until=campaign.orders.paused_until if campaign.orders.paused else 0.0,
        settings=dict(campaign.orders.settings), target=campaign.target, total=progress.total,
        trigger=campaign.origin.trigger if campaign.id else None,
        moving=_moving(campaign), done_ratio=progress_share(campaign),
        pinned=pinned_count(campaign, pins), in_flight=len(flights),
        released=progress.released, kept=campaign.kept_now,
        unpinnable=campaign.pinning.unpinnable, bytes_total=progress.bytes_done + bytes_left,
        bytes_done=progress.bytes_done, eta=eta(campaign, bytes_left, waiting.osds, options, wall),
        rolled_back=campaign.rollback.begun, held=campaign.held,
        limit=0 if phase is Phase.HOLDING else limit(campaign.pace, options).caps.pgs,
        stall_seconds=campaign.stalls.seconds,
        waits_for_window=waits_for_window(campaign, options, wall),
        started=campaign.origin.started, ended=campaign.ended,
        epochs=epochs_of(campaign), reasons=tuple(reasons),
        limit_shares=shares(progress.limits), acknowledged=campaign.orders.acknowledged,
        tranche=tranche, tranches=tranches, bill=bill_json(campaign) if campaign.id else None)


def tranche_of(campaign: Campaign) -> Tuple[int, int]:
    """The number of the present tranche and of all of them; zeros: the change is not divided."""
    change = campaign.change
    if change is None or change.tranches == 1:
        return 0, 0
    return change.tranche + 1, change.tranches


def status_json(shown: CampaignStatus) -> Json:
    """The JSON of "campaign status"."""
    eta_seconds, low, high = shown.eta or (None, None, None)
    return {
        'id': shown.id or None, 'phase': shown.phase.value, 'paused': shown.paused,
        'paused_until': shown.paused_until or None, 'settings': dict(shown.settings),
        'trigger': shown.trigger, 'target': shown.target, 'total': shown.total,
        'moving': shown.moving, 'done_ratio': round(shown.done_ratio, 4), 'pinned': shown.pinned,
        'in_flight': shown.in_flight, 'released': shown.released,
        'kept': shown.kept, 'unpinnable': _unpinnable_json(shown.unpinnable),
        'bytes_total': shown.bytes_total, 'bytes_done': shown.bytes_done,
        'eta_seconds': eta_seconds, 'eta_low_seconds': low, 'eta_high_seconds': high,
        'rolled_back': shown.rolled_back, 'held': shown.held, 'limit': shown.limit,
        'stall_seconds': shown.stall_seconds, 'waits_for_window': shown.waits_for_window,
        'started': shown.started or None, 'ended': shown.ended, 'epochs': shown.epochs,
        'reasons': texts(shown.reasons), 'limits': limits_json(shown.reasons),
        'limit_shares': {code: round(share, 4) for code, share in shown.limit_shares.items()},
        'acknowledged': list(shown.acknowledged), 'tranche': shown.tranche,
        'tranches': shown.tranches, 'bill': shown.bill}


def _unpinnable_json(unpinnable: Mapping[str, Unpinnable]) -> List[Json]:
    return [unpinnable[pgid].as_json(pgid) for pgid in sorted(unpinnable)]


def pinned_count(campaign: Campaign, pins: Mapping[str, PinRecord]) -> int:
    """The number of PGs that are pinned and not in flight. Those in flight still have a record of
    their pins."""
    return len(pins) - sum(1 for pgid in campaign.flights.in_flight if pgid in pins)


def waits_for_window(campaign: Campaign, options: Options, wall: float) -> bool:
    """Whether releases wait for begin_time."""
    if campaign.phase is not Phase.HOLDING or campaign.orders.paused:
        return False
    try:
        return not is_open(window_of(options), wall)
    except BadWindow:
        return False


def stalled(campaign: Campaign, observation: Observation,
            options: Options) -> Optional[str]:
    """Text: the campaign has made no progress for stalled_after seconds; None: it has, or need
    not."""
    if not campaign.active or campaign.orders.paused \
            or _waits_for_operator(campaign):
        return None
    if waits_for_window(campaign, options, observation.wall) and not campaign.flights.in_flight:
        return None
    # A large PG may be in flight for longer: copied bytes are progress as well.
    idle_seconds = min(campaign.idle_seconds(observation.now),
                       observation.now - campaign.flights.copied)
    # Releases may have waited for announced maintenance, and recovery follows it.
    if min(idle_seconds, observation.now - campaign.progress.excused) < options.stalled_after:
        return None
    return 'campaign %d is %s and has made no progress for %d s' % (
        campaign.id, campaign.phase.value, idle_seconds)


def _waits_for_operator(campaign: Campaign) -> bool:
    """Whether the campaign waits for a CRUSH change, or for the next command."""
    return (campaign.phase is Phase.PREPARED and campaign.holds.prepared
            or campaign.phase is Phase.PINNED and not campaign.automatic)


def eta(campaign: Campaign, bytes_left: int, waiting: Sequence[OsdLoad], options: Options,
        wall: float) -> Optional[Eta]:
    """Seconds until the last PG has arrived, with an interval that holds in 9 of 10 cases.

    `waiting`: what OSDs are still to send and to receive, without PGs in flight. None while the
    time is unknown.
    """
    if campaign.phase not in RELEASING_PHASES or campaign.orders.paused:
        return None
    progress = campaign.progress
    releasing_seconds = remaining(
        progress.arrivals, bytes_left, progress.released,
        progress.total - progress.released - campaign.kept_now,
        path_seconds(progress.arrivals, _longest_queue(waiting, caps(options))))
    if releasing_seconds is None:
        return None
    return Eta(*(round(by_the_clock(seconds, options, wall), 1) for seconds in releasing_seconds))


def _longest_queue(waiting: Sequence[OsdLoad], all_caps: Caps) -> float:
    """Bytes that one OSD is still to send or to receive, for each PG that it may at a time."""
    return max((queue for load in waiting for queue in (
        load.bytes_out / all_caps.source, load.bytes_in / all_caps.target)), default=0.0)


def by_the_clock(work: float, options: Options, wall: float) -> float:
    """Seconds until so much work is done, with the hours in which nothing is released."""
    try:
        return seconds_until_done(window_of(options), wall, work)
    except BadWindow:
        return work


def progress_share(campaign: Campaign) -> float:
    """The share (0 to 1) of the campaign's PGs that have arrived, of those that have to move. If
    the change comes in tranches, those to come count as well."""
    if not campaign.progress.total:
        return 0.0
    tranche, tranches = tranche_of(campaign)
    # The share of the change that is done once all PGs of the present tranche have arrived.
    share = tranche / tranches if tranche else 1.0
    moving = _moving(campaign)
    return share * min(1.0, campaign.progress.released / moving) if moving > 0 else share


def _moving(campaign: Campaign) -> int:
    """PGs that have to move, also those that an abort has left in place for now."""
    return campaign.progress.total - campaign.progress.kept


def release_preview_json(shown: ReleasePreview) -> Json:
    """The JSON of `preview`."""
    return {**shown.moves.as_json(), 'remapped': shown.remapped,
            'unpinnable': _unpinnable_json(shown.unpinnable)}


def summary(campaign: Campaign) -> Json:
    """One line of `campaign ls`, which the history stores once the campaign has ended, and again
    whenever it differs: so it must not depend on the time."""
    progress = campaign.progress
    return {'id': campaign.id, 'phase': campaign.phase.value, 'trigger': campaign.origin.trigger,
            'target': campaign.target, 'started': campaign.origin.started, 'ended': campaign.ended,
            'total': progress.total, 'released': progress.released, 'kept': campaign.kept_now,
            'bytes_done': progress.bytes_done, 'moving_seconds': round(progress.moving_seconds, 1),
            'epochs': epochs_of(campaign), 'unpinnable': len(campaign.pinning.unpinnable),
            'rolled_back': campaign.rollback.begun, 'bill': bill_json(campaign)}


def epochs_of(campaign: Campaign) -> int:
    """OSDMap epochs since it began."""
    return max(0, campaign.progress.last_epoch - campaign.origin.first_epoch)


# ---- the bill

def bill_json(campaign: Campaign) -> Document:
    """What the campaign has moved and cost, as JSON. Latencies are in ms; None: not measured."""
    bill, progress = campaign.bill, campaign.progress
    slow, very_slow = bill.slow_ops
    return {
        'bytes_moved': progress.bytes_done, 'bytes_required': bill.required_bytes,
        'rolled_back': campaign.rollback.begun,
        'phase_seconds': {phase: round(seconds) for phase, seconds in bill.phases.items()},
        'limit_seconds': {code: round(seconds)
                          for code, seconds in progress.limits.seconds.items()},
        'latency_before': _levels_json(bill.quiet),
        'latency_while_moving': _levels_json(bill.moving.levels),
        'operations': bill.ops,
        'counted_ratio': None if bill.counted_ratio is None else round(bill.counted_ratio, 4),
        'over_100_ms': slow._asdict(), 'over_1_s': very_slow._asdict(),
        'epochs': epochs_of(campaign),
        'settings': [{'what': setting_text(key), 'put': setting.put,
                      'seconds': round(setting.seconds), 'state': 'borrowed' if setting.held else
                      'changed by others' if setting.left else 'given back'}
                     for key, setting in bill.settings.items()]}


def _levels_json(levels: OpLevels) -> Document:
    percentiles: Document = {}
    for kind, level in (('read', levels.read), ('write', levels.write)):
        for name, value in (('p50_ms', level.p50_ms), ('p99_ms', level.p99_ms)):
            percentiles['%s_%s' % (kind, name)] = None if value is None else round(value, 3)
    return percentiles


def setting_text(key: str) -> str:
    """`key`: of Bill.settings."""
    if key == AUTOSCALERS:
        return key + ' of pools'
    if key.startswith(FLAG):
        return 'flag ' + key[len(FLAG):]
    return option_text(key) if is_option(key) else key


_WAY_BACK = ', and the way back what had moved of it'
#: The share of counted operations that is as good as all.
WHOLE_RATIO = 0.995


def bill_event(campaign: Campaign) -> Tuple[str, str]:
    """What an event at the end of the campaign says of its bill."""
    bill = campaign.bill
    what = 'campaign %d: %s moved%s in %s, %s' % (
        campaign.id, bytes_text(campaign.progress.bytes_done), _required_text(campaign),
        seconds_text(sum(bill.phases.values())), plural(epochs_of(campaign), 'OSDMap epoch'))
    return what, '; '.join([*_p99_texts(bill), *_slow_texts(bill), _settings_text(bill)])


def _required_text(campaign: Campaign) -> str:
    required = campaign.bill.required_bytes
    if required is None:
        return ''
    return ' (the change required %s%s)' % (bytes_text(required), _WAY_BACK
                                            if campaign.rollback.begun else '')


def _p99_texts(bill: Bill) -> List[str]:
    """The p99 of client latency while data moved, and before, as texts."""
    p99_texts = []
    for kind, before, level in ((READ_KIND, bill.quiet.read, bill.moving.levels.read),
                                (WRITE_KIND, bill.quiet.write, bill.moving.levels.write)):
        if level.p99_ms is not None:
            p99_texts.append('p99 of %s %s' % (kind, ms_text(level.p99_ms)) + (
                '' if before.p99_ms is None else ' (before: %s)' % ms_text(before.p99_ms)))
    return p99_texts


def _slow_texts(bill: Bill) -> List[str]:
    """How many operations were slow during the campaign, and how many because of it."""
    ratio = bill.counted_ratio
    if not ratio:
        return []
    slow_texts = ['%d over %s' % (row.total, text) + (
        ' (movement explains %d, and not %d; unknown %d)' % (row.movement, row.others, row.unknown)
        if row.total else '') for row, text in zip(bill.slow_ops, ('100 ms', '1 s'))]
    return ['; '.join(slow_texts) + ('' if ratio >= WHOLE_RATIO else
                                     ', of %.0f %% of the operations' % (100 * ratio))]


def _settings_text(bill: Bill) -> str:
    """What became of the settings that the campaign has borrowed."""
    borrowed = [key for key, setting in bill.settings.items() if setting.held]
    overruled = [key for key, setting in bill.settings.items() if setting.left]
    if not bill.settings:
        return 'no settings were borrowed'
    if not borrowed + overruled:
        return 'all borrowed settings are given back'
    return '; '.join('%s: %s' % (text, ', '.join(map(setting_text, keys))) for keys, text in (
        (borrowed, 'still borrowed'), (overruled, 'changed by others and left alone')) if keys)


def idle_reasons(campaign: Campaign, remapped: int) -> List[Reason]:
    """What to report while no campaign is active. `campaign`: the last one, if this mgr knows it;
    `remapped`: number of remapped PGs that a campaign could pin."""
    if remapped:
        return [Reason(Code.REMAPPED, '%s remapped, and no campaign is active: '
                       '"campaign prepare", then "campaign pin"' % pgs_are(remapped))]
    if campaign.id:
        return [Reason(Code.ENDED, 'campaign %d is %s: %s released, %d kept as upmaps' % (
            campaign.id, campaign.phase.value, pgs(campaign.progress.released), campaign.kept_now))]
    return [Reason(Code.NO_CAMPAIGN, 'no campaign is active')]


def progress_id(campaign: Campaign) -> str:
    """The id of a progress event. All mgrs use the same one, so that an mgr takes over the event
    of another."""
    return 'perfguard-rebalance-%d' % campaign.id


def progress_text(campaign: Campaign) -> str:
    return 'perfguard campaign %d: %s, %d of %s released' % (
        campaign.id, campaign.phase.value, campaign.progress.released, pgs(_moving(campaign)))


def campaign_rows(campaign: Campaign, osdmap: OsdMap, pins: int) -> List[Row]:
    """The settings that a campaign has borrowed, if it is active, or aborted with pins left."""
    if not campaign.open:
        return []
    since, holds = campaign.origin.started, campaign.holds
    owned = partial(Row, Owner.CAMPAIGN)
    rows = [owned('flag ' + flag, None, 'set', since, _restore(SetFlag(flag, False)),
                  name=flag) for flag in sorted(holds.flags)]
    if BALANCER in holds.held:
        borrowed = holds.held[BALANCER]
        rows.append(owned(BALANCER, borrowed.found, borrowed.put, since, BALANCER_ON_COMMAND,
                          BALANCER))
    for pool_id, borrowed in holds.autoscale.items():
        pool = osdmap.pools.get(pool_id)
        if pool is not None:
            rows.append(owned('pg_autoscale_mode of pool ' + pool.name, borrowed.found,
                              borrowed.put, since,
                              _restore(SetPool(pool.name, AUTOSCALE_MODE,
                                               borrowed.found or 'on'))))
    for name, borrowed in holds.mon.items():
        option = set_option(name, borrowed.found)
        rows.append(owned(option_text(name), borrowed.found, borrowed.put, since, _restore(option),
                          option.name))
    left_setting = campaign.change and campaign.change.left_setting(osdmap)
    if left_setting:
        rows.append(owned(left_setting.what, left_setting.before, left_setting.now, since,
                          left_setting.restore))
    if pins:
        rows.append(owned('upmaps of pinned PGs', 'upmaps from before the campaign',
                          plural(pins, 'pin'), since, 'ceph osd rm-pg-upmap-items <pgid>, ceph osd '
                          'rm-pg-upmap <pgid>: moves the PG; the pins may stay as ordinary '
                          'upmaps', can_stay=True))
    return rows


def _restore(action: Action) -> str:
    return '; '.join(shell(command) for command in commands_of(action))


def possible_leftovers(observation: Observation) -> List[str]:
    """Texts on settings that a campaign may have left, as far as the cluster shows them: for an
    operator, if the journal is lost."""
    osdmap = observation.osdmap
    lines = []
    if NOREBALANCE in osdmap.flags:
        lines.append('the flag norebalance is set: ' + _restore(SetFlag(NOREBALANCE, False)))
    if observation.settings.balancer_active == 'false':
        lines.append('the balancer is off: ' + BALANCER_ON_COMMAND)
    lines += ['pg_autoscale_mode of pool %s is off: %s' % (
        pool.name, _restore(SetPool(pool.name, AUTOSCALE_MODE, 'on')))
        for pool in osdmap.pools.values() if pool.autoscale_mode == 'off']
    lines += ['%s may be set: %s' % (option_text(name), _restore(set_option(name, None)))
              for name in (PROPOSE_INTERVAL, MIN_WAIT,
                           *(OSD_OPTION + name for name in (*NAMES, MAX_SCRUBS, INITIAL_WEIGHT)))]
    return ['if perfguard, and not an operator, changed it: ' + line for line in lines]
