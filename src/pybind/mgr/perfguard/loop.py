# SPDX-License-Identifier: LGPL-2.1-or-later
"""The loop: observe, judge, act, publish. One turn at a time, in one thread.

Commands run in other threads. They read `published`, which is replaced whole at the end of each
turn, or leave a request in the queue.
"""
import contextlib
import errno
import logging
import queue
import threading
import time
from dataclasses import dataclass, field, replace
from typing import (Any, Callable, Dict, FrozenSet, List, Mapping, Optional, Protocol, Sequence,
                    Tuple)

from .cluster.types import OsdMap, Placement, Signals, pool_of
from .options import Options
from .rebalance import moves, report
from .rebalance.executor import execute
from .rebalance.holds import BALANCER, Settings
from .rebalance.machine import judge
from .rebalance.moves import Move, move_between, release_move
from .rebalance.pinbook import PinBook
from .rebalance.pinning import count_again
from .rebalance.requests import Refused, Request, apply, check, from_json, to_json
from .rebalance.stop import unhealthy
from .rebalance.turn import Event, Observation
from .rebalance.types import (Campaign, Phase, PinRecord, campaign_from_json, campaign_to_json)
from .store import Store
from .upmap.crush import CrushRules
from .upmap.semantics import out_osds

log = logging.getLogger(__name__)

Json = Dict[str, Any]

#: Oldest require_min_compat_client values under which the mon refuses upmaps.
_BEFORE_LUMINOUS = frozenset({'argonaut', 'bobtail', 'cuttlefish', 'dumpling', 'emperor',
                              'firefly', 'giant', 'hammer', 'infernalis', 'jewel', 'kraken'})
#: With more pins than PREVIEW_PGS the plan is worked out anew this often.
PLAN_SECONDS = 10.0
#: Share of its time that the loop may be at work, waiting for the mons included.
BUSY_SHARE = 0.5
#: Where requests wait in the store.
REQUESTS = 'requests'
#: Events are written to the store at most this often.
EVENTS_SECONDS = 10.0
#: More remapped PGs than this that nobody holds are not previewed: it costs too much.
PREVIEW_PGS = 5000


class View(Protocol):
    @property
    def osdmap(self) -> OsdMap: ...

    @property
    def crush_version(self) -> int: ...

    def placement(self, pgid: str) -> Optional[Placement]: ...


class Cluster(Protocol):
    """What the loop needs of a cluster; cluster.mgr.MgrCluster is the real one."""

    def map_view(self) -> View: ...

    def crush(self, version: int) -> CrushRules: ...

    def signals(self, osdmap: OsdMap) -> Signals: ...

    def degraded_osds(self) -> FrozenSet[int]: ...

    def stats_period(self) -> float: ...

    def balancer_active(self) -> Optional[str]: ...

    def stored_option(self, option: str) -> Optional[str]: ...

    def run(self, commands: Sequence[Any]) -> Any: ...

    def switch_balancer(self, active: bool) -> Any: ...

    def health_checks(self, checks: Mapping[str, Any]) -> None: ...

    def progress(self, event_id: str, message: str, share: float) -> None: ...

    def progress_done(self, event_id: str) -> None: ...

    def cluster_log(self, text: str) -> None: ...


@dataclass(frozen=True)
class Published:
    """What commands see: the state at the end of one turn."""
    status: Json = field(default_factory=lambda: {
        'phase': 'IDLE', 'mode': 'off', 'health': [], 'signals': {}, 'pools': [],
        'reasons': ['perfguard has just started']})
    rebalance: Json = field(default_factory=dict)
    plan: Json = field(default_factory=dict)
    events: Tuple[Json, ...] = ()
    history: Tuple[Json, ...] = ()
    campaign: Optional[Campaign] = None
    pins: int = 0
    unhealthy: Tuple[str, ...] = ()


class Loop:
    def __init__(self, cluster: Cluster, store: Store, options: Callable[[], Options],
                 clock: Callable[[], float] = time.time) -> None:
        self._cluster = cluster
        self._store = store
        self._options = options
        self._clock = clock
        #: Requests with their keys in the store.
        self._requests: 'queue.Queue[Tuple[str, Request]]' = queue.Queue()
        #: Off the queue and to be applied; applied and still noted in the store.
        self._taken: List[Tuple[str, Request]] = []
        self._applied: List[str] = []
        self._wake = threading.Event()
        #: Held while `published` and the queue of requests change.
        self._publishing = threading.Lock()
        self._campaign: Optional[Campaign] = None
        #: The campaign as it is in the store.
        self._saved: Optional[Campaign] = None
        self._pins = PinBook(store)
        self._moves: Dict[str, Move] = {}
        #: The last OSDMap that the pins were held against, by this process.
        self._audited_epoch = -1
        self._moves_key: Optional[Tuple[Any, ...]] = None
        self._history: List[Json] = []
        self._events: List[Json] = []
        self._event_id = 0
        self._events_saved = 0
        self._events_due = 0.0
        self._plan = moves.plan((), 1, 1, None)
        self._plan_epoch = -1
        self._plan_due = 0.0
        #: Remapped PGs that are neither pinned nor released by the campaign.
        self._unheld = 0
        self._reasons: Tuple[str, ...] = ()
        self._failures: Tuple[str, ...] = ()
        self._interrupted: List[str] = []
        self._turn_seconds = 0.0
        self.published = Published()

    # ---- for commands: other threads

    def request(self, request: Request) -> None:
        """Queue a request for the next turn; Refused if the last turn's state speaks against it.

        Where the state has changed by then, the loop checks again and notes the refusal.
        """
        seen = self.published
        if seen.campaign is None and not seen.rebalance:
            raise Refused(errno.EAGAIN, 'perfguard has just started: try again in a moment')
        check(seen.campaign, request, seen.pins, seen.unhealthy)
        # The answer is a promise: it must hold even if this mgr fails before the next turn.
        key = self._store.note(REQUESTS, to_json(request))
        with self._publishing:
            self._requests.put((key, request))
            self.published = self._foreseen(self.published, request)
        self._wake.set()

    def _foreseen(self, published: Published, request: Request) -> Published:
        """What commands shall see of a request that waits for the next turn.

        Without it, whoever asks to pin and then waits for PINNED could be shown the phase from
        before.
        """
        if published.campaign is None or request.verb == 'prepare':
            return published
        try:
            check(published.campaign, request, published.pins, published.unhealthy)
        except Refused:
            return published
        campaign = apply(published.campaign, request, self._clock())
        rebalance = {**published.rebalance, 'phase': campaign.phase.value,
                     'paused': campaign.paused}
        return replace(published, campaign=campaign, rebalance=rebalance,
                       status={**published.status, 'phase': campaign.phase.value})

    def wait(self) -> None:
        """Until the next turn is due, a request came in, or `wake`."""
        options = self._options()
        active = self._campaign is not None and self._campaign.active
        interval = options.campaign_interval if active else options.loop_interval
        # A turn holds the interpreter's lock; where the OSDMap is huge, other modules come first.
        self._wake.wait(max(interval, self._turn_seconds / BUSY_SHARE))
        self._wake.clear()

    def wake(self) -> None:
        self._wake.set()

    # ---- life

    def load(self) -> None:
        """Take up what an earlier mgr left in the store."""
        self._history = self._read_list('history')
        self._events = self._read_list('events')
        self._event_id = max((int(event['id']) for event in self._events), default=0)
        lost = self._pins.load() + self._load_requests() + self._load_campaign()
        self._interrupted = ['%s cannot be read' % text for text in lost]
        for key, reason in self._store.damaged:
            text = '%s: %s; set aside as damaged/%s' % (key, reason, key)
            self._note(Event('store', text))
            if key.rsplit('/', 1)[0] in self._store.unreadable or key.startswith(REQUESTS):
                self._interrupted.append(text)
        if 'campaign' in self._store.unreadable:
            self._interrupted.append('if a campaign was under way, its pins are still in the '
                                     'OSDMap; check the flag norebalance, the balancer and '
                                     'pg_autoscale_mode')
        for text in self._interrupted:
            self._note(Event('store', text))
        if self._campaign is not None and self._campaign.active:
            self._note(Event('start', 'campaign %d goes on: %s' % (
                self._campaign.id, self._campaign.phase.value), 'this mgr became active'))

    def _load_requests(self) -> List[str]:
        lost: List[str] = []
        for key, raw in self._store.notes(REQUESTS):
            try:
                self._requests.put((key, from_json(raw)))
            except (TypeError, ValueError) as error:
                lost.append('the request %s (%s)' % (key, error))
                self._store.drop_note(key)
        return lost

    def _load_campaign(self) -> List[str]:
        document = self._store.get('campaign')
        if document is None:
            return []
        try:
            self._saved = campaign_from_json(document)
            # Whether the last mgr's commands ever left is not known.
            self._campaign = count_again(self._saved, self._saved.pinning)
        except (AttributeError, LookupError, TypeError, ValueError) as error:
            self._store.unreadable.add('campaign')
            return ['the campaign (%s)' % error]
        return []

    def _read_list(self, name: str) -> List[Json]:
        """A list of entries with an id each; others are not ours."""
        document = self._store.get(name)
        if not isinstance(document, list):
            return []
        return [entry for entry in document if isinstance(entry, dict) and 'id' in entry]

    # ---- one turn

    def turn(self) -> None:
        begin = time.monotonic()
        try:
            self._turn()
        finally:
            self._turn_seconds = time.monotonic() - begin

    def _turn(self) -> None:
        options = self._options()
        self._take_requests()
        seen, view = self._observe()
        self._apply_requests(seen)
        if self._campaign is not None and self._campaign.active:
            self._update_moves(seen, view)
            self._judge_and_act(seen, options)
        self._archive_ended()
        for key in self._applied:
            self._store.drop_note(key)
        self._applied.clear()
        self._publish(seen, options)

    def _observe(self) -> Tuple[Observation, View]:
        view = self._cluster.map_view()
        campaign = self._campaign
        signals = self._cluster.signals(view.osdmap)
        reading = self._wants_stored_options()
        stored = self._cluster.stored_option(BALANCER) if reading else None
        scanning = campaign is not None and campaign.active and signals.counts.degraded > 0 \
            and view.osdmap.pg_temp
        return Observation(
            now=self._clock(), signals=signals,
            settings=Settings(view.osdmap, self._cluster.balancer_active(), stored, reading),
            placement=view.placement, crush=self._cluster.crush(view.crush_version),
            stats_period=self._cluster.stats_period(),
            degraded_osds=self._cluster.degraded_osds() if scanning else frozenset(),
            new_map=view.osdmap.epoch != self._audited_epoch), view

    def _wants_stored_options(self) -> bool:
        """Whether settings are about to be held or given back.

        Reading the configuration database costs a mon command, so it is not done in every turn.
        """
        if any(request.verb == 'prepare' for _, request in self._taken):
            return True
        campaign = self._campaign
        if campaign is None:
            return False
        if campaign.phase is Phase.PREPARED:
            return BALANCER not in campaign.holds.options
        return bool(self._taken) or campaign.phase in (Phase.FINISHING, Phase.ABORTING)

    def _take_requests(self) -> None:
        """Off the queue before anything is observed, so that what they need is."""
        with contextlib.suppress(queue.Empty):
            while True:
                self._taken.append(self._requests.get_nowait())

    def _apply_requests(self, seen: Observation) -> None:
        while self._taken:
            key, request = self._taken.pop(0)
            self._applied.append(key)
            try:
                check(self._campaign, request, self._held_back(), self._unhealthy(seen))
            except Refused as refused:
                self._note(Event('refused', 'rebalance %s' % request.verb, str(refused)))
                continue
            self._note(Event('request', 'rebalance %s' % request.verb, 'asked for by command'))
            if request.verb == 'prepare':
                self._begin(seen)
            else:
                assert self._campaign is not None
                self._campaign = apply(self._campaign, request, seen.now)

    def _begin(self, seen: Observation) -> None:
        last = max([entry['id'] for entry in self._history]
                   + ([self._campaign.id] if self._campaign else [0]))
        self._interrupted = []
        self._store.damaged.clear()
        self._store.unreadable.clear()
        for name in self._store.names('damaged/'):
            self._store.remove(name)
        # Pins that an aborted campaign left are this one's to release.
        self._campaign = Campaign(
            id=last + 1, phase=Phase.PREPARED, started=seen.now, phase_since=seen.now,
            target=self._options().target, first_epoch=seen.osdmap.epoch,
            last_epoch=seen.osdmap.epoch)

    def _held_back(self) -> int:
        return report.held_back(self._campaign, self._pins)

    def _unhealthy(self, seen: Observation) -> List[str]:
        reasons = unhealthy(seen.signals, tuple(seen.osdmap.pools.values()))
        if seen.osdmap.min_compat_client in _BEFORE_LUMINOUS:
            reasons.append('require_min_compat_client is %s: upmaps need luminous'
                           % seen.osdmap.min_compat_client)
        return reasons

    def _update_moves(self, seen: Observation, view: View) -> None:
        """Where each pin's release leads; worked out anew only when CRUSH or an upmap changed."""
        osdmap = seen.osdmap
        out = out_osds(osdmap.osds)
        key = (view.crush_version, out,
               tuple((pool.id, pool.pg_num, pool.pg_num_pending) for pool in
                     osdmap.pools.values()))
        if key != self._moves_key:
            self._moves = {}
            self._moves_key = key
        for pgid in [pgid for pgid in self._moves if pgid not in self._pins]:
            del self._moves[pgid]
        for pgid, pin in self._pins.items():
            if pgid not in self._moves and osdmap.entry(pgid) == pin.entry:
                move = _move_of(pgid, pin, seen, out)
                if move is not None:
                    self._moves[pgid] = move

    def _judge_and_act(self, seen: Observation, options: Options) -> None:
        assert self._campaign is not None
        decision = judge(self._campaign, self._pins, self._moves, seen, options)
        # The intent goes to the store before anything is sent.
        self._pins.note(decision.pins)
        self._campaign = decision.campaign
        self._save()
        for event in decision.events:
            self._note(event)
        outcome = execute(self._cluster, decision.actions)
        if outcome.unanswered:
            self._campaign = count_again(self._campaign, outcome.unanswered)
        self._failures = outcome.failures
        for failure in self._failures[:5]:
            log.warning('command failed: %s', failure)
            self._note(Event('failed', failure))
        self._pins.forget(decision.unpins)
        for pgid in set(decision.pins) | decision.unpins:
            self._moves.pop(pgid, None)
        self._audited_epoch = seen.osdmap.epoch
        self._reasons = decision.reasons

    def _save(self) -> None:
        """Write the campaign if it changed in more than its clocks."""
        assert self._campaign is not None
        if self._saved is None or _without_clocks(self._saved) != _without_clocks(self._campaign):
            self._store.put('campaign', campaign_to_json(self._campaign))
            self._saved = self._campaign

    def _archive_ended(self) -> None:
        """File a campaign that has ended; again if the last attempt was cut short."""
        campaign = self._campaign
        if campaign is None or campaign.active or self._saved is None:
            return
        self._cluster.progress_done(_progress_id(campaign))
        self._history = [entry for entry in self._history if entry['id'] != campaign.id]
        self._history.append(report.summary(campaign))
        self._history = self._history[-self._options().history:]
        self._store.put('history', self._history)
        if campaign.phase is Phase.DONE:
            self._pins.clear()
        self._store.remove('campaign')
        self._saved = None

    # ---- publishing

    def _note(self, event: Event) -> None:
        self._event_id += 1
        self._events.append({'time': round(self._clock(), 3), 'kind': event.kind,
                             'what': event.what, 'why': event.why, 'id': self._event_id})
        del self._events[:-self._options().event_history]
        log.info('%s: %s%s', event.kind, event.what, ' (%s)' % event.why if event.why else '')
        if event.kind == 'phase':
            self._cluster.cluster_log(
                event.what + (' (%s)' % event.why if event.why else ''))

    def save_events(self) -> None:
        if self._events and self._events[-1]['id'] != self._events_saved:
            self._store.put('events', self._events)
            self._events_saved = self._events[-1]['id']

    def _publish(self, seen: Observation, options: Options) -> None:
        campaign = self._campaign
        active = campaign is not None and campaign.active
        reasons = list(self._reasons if active else self._idle_reasons(seen))
        reasons += ['a command failed: %s' % text for text in self._failures[:3] if active]
        self._update_plan(seen, options)
        waiting = self._plan.bytes if active else 0
        rebalance = report.status(campaign, self._pins, waiting, reasons, options)
        checks = self._health(campaign, seen.now, options)
        self._cluster.health_checks(checks)
        if active:
            assert campaign is not None
            self._cluster.progress(_progress_id(campaign), _progress_text(campaign),
                                   report.progress_share(campaign))
        published = Published(
            status=self._status(seen, rebalance, checks), rebalance=rebalance,
            plan=report.plan_json(self._plan, self._unheld,
                                  campaign.unpinnable if campaign is not None else {}),
            events=tuple(self._events),
            history=tuple(self._history), campaign=campaign, pins=self._held_back(),
            unhealthy=tuple(self._unhealthy(seen)))
        with self._publishing:
            for _, request in list(self._requests.queue):
                published = self._foreseen(published, request)
            self.published = published
        if self._clock() - self._events_due > EVENTS_SECONDS:
            self._events_due = self._clock()
            self.save_events()

    def _idle_reasons(self, seen: Observation) -> List[str]:
        remapped = len(seen.osdmap.pg_temp)
        if remapped:
            return ['%d PGs are remapped and no campaign holds them: '
                    '"rebalance prepare", then "rebalance pin"' % remapped]
        return ['no campaign is under way']

    def _status(self, seen: Observation, rebalance: Json, checks: Mapping[str, Any]) -> Json:
        counts = seen.signals.counts
        return {
            'phase': rebalance['phase'], 'mode': 'off', 'health': sorted(checks),
            'signals': {
                'laggy_pgs': counts.laggy + counts.wait,
                'misplaced_ratio': seen.signals.misplaced_ratio,
                'slow_ops': seen.signals.slow_ops, 'pgs': counts.total,
                'active_clean_pgs': counts.active_clean, 'inactive_pgs': counts.inactive,
                'degraded_pgs': counts.degraded, 'remapped_pgs': counts.remapped,
                'backfilling_pgs': counts.backfilling,
                'backfill_wait_pgs': counts.backfill_wait,
                'backfill_toofull_pgs': counts.backfill_toofull,
                'recovery_bytes_per_second': seen.signals.recovery_bytes_per_second,
                'osdmap_epoch': seen.osdmap.epoch, 'health_status': seen.signals.health_status},
            'pools': [], 'rebalance': {key: rebalance[key] for key in (
                'id', 'total', 'pinned', 'in_flight', 'released', 'bytes_total', 'bytes_done',
                'eta_seconds')},
            'reasons': rebalance['reasons']}

    def _update_plan(self, seen: Observation, options: Options) -> None:
        """What is left to move. Costs time by the number of pins, so not in every turn."""
        if (seen.osdmap.epoch == self._plan_epoch
                or (len(self._moves) > PREVIEW_PGS and seen.now < self._plan_due)):
            return
        self._plan_epoch, self._plan_due = seen.osdmap.epoch, seen.now + PLAN_SECONDS
        campaign = self._campaign
        active = campaign is not None and campaign.active
        waiting: Mapping[str, Move] = self._moves if active else {}
        remapped = [pgid for pgid in seen.osdmap.pg_temp
                    if pgid not in self._pins
                    and (campaign is None or pgid not in campaign.in_flight)]
        self._unheld = len(remapped)
        if len(remapped) <= PREVIEW_PGS:
            waiting = {**waiting, **_moves_of_remapped(remapped, seen)}
        self._plan = report.preview(campaign if active else None, waiting, options)

    def _health(self, campaign: Optional[Campaign], now: float,
                options: Options) -> Dict[str, Any]:
        checks: Dict[str, Any] = {}
        stall = report.stalled(campaign, now, options)
        if stall is not None:
            checks['PERFGUARD_STALLED'] = _check(stall, list(self._reasons) or [stall])
        if self._interrupted:
            checks['PERFGUARD_INTERRUPTED'] = _check(
                'perfguard could not read all of its state', self._interrupted)
        if campaign is not None and campaign.active and campaign.unpinnable:
            checks['PERFGUARD_UNPINNABLE'] = _check(
                '%d PGs cannot be pinned where their data is' % len(campaign.unpinnable),
                ['PG %s: %s' % item for item in sorted(campaign.unpinnable.items())])
        return checks


def _move_of(pgid: str, pin: PinRecord, seen: Observation, out: Any) -> Optional[Move]:
    place = seen.placement(pgid)
    if place is None:
        return None
    pool = seen.osdmap.pools[pool_of(pgid)]
    return release_move(pgid, pool, place.up, pin, out,
                        seen.signals.pool_bytes.get(pool.id, 0))


def _moves_of_remapped(pgids: Sequence[str], seen: Observation) -> Dict[str, Move]:
    """The moves that PGs without a pin are making or will make."""
    found: Dict[str, Move] = {}
    for pgid in pgids:
        place = seen.placement(pgid)
        if place is not None:
            pool = seen.osdmap.pools[pool_of(pgid)]
            found[pgid] = move_between(pgid, pool, place.acting, place.up,
                                       seen.signals.pool_bytes.get(pool.id, 0))
    return found


def _without_clocks(campaign: Campaign) -> Campaign:
    return replace(campaign, turned=0.0, moving_seconds=0.0, stopped=0.0, last_epoch=0)


def _progress_id(campaign: Campaign) -> str:
    return 'perfguard-rebalance-%d' % campaign.id


def _progress_text(campaign: Campaign) -> str:
    return 'perfguard rebalance %d: %s, %d of %d PGs released' % (
        campaign.id, campaign.phase.value, campaign.released, campaign.total)


def _check(summary: str, detail: Sequence[str]) -> Json:
    return {'severity': 'warning', 'summary': summary, 'count': len(detail),
            'detail': list(detail[:50])}
