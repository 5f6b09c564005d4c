# SPDX-License-Identifier: LGPL-2.1-or-later
"""Runs the watch: reads the cluster every stats period, stores and publishes the results."""
import logging
import math
import threading
from dataclasses import dataclass, field, replace
from typing import (Any, Callable, Dict, FrozenSet, List, Mapping, Optional, Sequence, Set, Tuple,
                    TypeVar, Union)

from ..cluster.drive_health import DriveHealth
from ..cluster.ports import Cluster, View
from ..cluster.types import Json, LatencyCounts, PgCounts, Readings, Signals
from ..codec import encode, no_later_than
from ..errors import ROUNDS_STOP, WATCH_STOPS, FailedTurns, HealthChecks
from ..events import Event
from ..observation import Clients, PoolClients
from ..options import Options
from ..store import Store
from . import report
from .load import PoolUse
from .chronic import StoredCounts
from .osds import OsdReads, StoredNorm
from .pools import OpSpread, Provisional, StoredPool, named_target, target_ms
from .report import ClusterRow, LaggyStatus, OsdRow, PoolRow
from .series import HistoryPoint
from .state import StoredWatch, WatchContext, WatchState, pool_settings
from .steps import KnownSteps, Step, changes_around, of_options, what_text, why_text
from .stop_conditions import NOTHING, Touched

log = logging.getLogger(__name__)

T = TypeVar('T')

#: Documents in the store: raised alarms, and the baseline of each pool.
WATCH_DOCUMENT = 'watch'
BASELINES = 'baseline/'
#: The counts of chronically slow OSDs. They change all the time, so they are written at this
#: interval, or at the shorter one while an OSD may soon be raised; a new mgr misses little.
CHRONIC_DOCUMENT = 'chronic'
CHRONIC_SECONDS, CANDIDATE_SECONDS = 900.0, 300.0
#: How latency varies while nothing moves: of each OSD against the others, and from one operation to
#: the next. Written at this interval, and a first time soon: a new mgr cannot learn it while a
#: campaign moves data.
USUAL = 'usual'
USUAL_SECONDS, FIRST_USUAL_SECONDS = 3600.0, 300.0
#: The provisional baselines. A new mgr cannot learn these either. They are written at once when a
#: pool gets one, and at this interval while they change, which is for the first minutes of a pool.
PROVISIONAL = 'provisional'
REWRITE_SECONDS = 60.0
#: Maximum number of pools in one reply.
DRAWN_POOLS = 4
#: Share of the stats period after which the next reading may be taken: turns are not punctual.
READING_SHARE = 0.9


@dataclass(frozen=True)
class Watched:
    """The published state of the watch."""
    #: None before the first reading.
    signals: Optional[ClusterRow] = None
    pools: Tuple[PoolRow, ...] = ()
    osds: Tuple[OsdRow, ...] = ()
    uses: Tuple[PoolUse, ...] = ()
    laggy: LaggyStatus = LaggyStatus()
    checks: HealthChecks = field(default_factory=dict)
    #: Why the last reading, or the last round that judged the OSDs, failed; '': neither has.
    failure: str = ''
    #: Why it is not known which OSDs hang; '': it is known.
    unreported: str = ''
    pool_ids: Mapping[str, int] = field(default_factory=dict)
    #: For the mitigation: whether PERFGUARD_LAGGY_PGS is raised; operations that are slower than
    #: their baseline ("reads of pool rbd"), with the id of the pool; OSDs that are slow, or
    #: chronically slow, with the reason.
    laggy_raised: bool = False
    late: Tuple[Tuple[str, int], ...] = ()
    slow_osds: Mapping[int, str] = field(default_factory=dict)
    #: Slow OSD -> the codes of its likely causes.
    osd_causes: Mapping[int, Tuple[str, ...]] = field(default_factory=dict)
    #: Slow OSD -> its client reads, once they are known; for the mitigation that lowers affinities.
    osd_reads: Mapping[int, OsdReads] = field(default_factory=dict)
    #: Health check -> the slow OSDs that it reports.
    reported_osds: Mapping[str, FrozenSet[int]] = field(default_factory=dict)
    #: What to check of each host and rack that is chronically slow as a whole -> such OSDs.
    chronic_parts: Mapping[str, Set[int]] = field(default_factory=dict)
    #: Host by OSD.
    hosts: Mapping[int, str] = field(default_factory=dict)
    #: Versions of the OSDs, as in "18.2.7"; '' among them: some are unknown.
    osd_versions: FrozenSet[str] = frozenset()


@dataclass(frozen=True)
class StoredUsual:
    """How latency varies while nothing moves."""
    osds: Mapping[int, StoredNorm] = field(default_factory=dict)
    #: By pool and kind of operation.
    pools: Mapping[int, Mapping[str, OpSpread]] = field(default_factory=dict)


class _Document:
    """A document in the store that may change with each turn. It is written once its gist changes,
    and otherwise at an interval: each write takes a mon some milliseconds. While it may not be
    written, it remains due."""

    def __init__(self, store: Store, name: str, may_write: Callable[[], bool]) -> None:
        self._store = store
        self._name = name
        self._may_write = may_write
        self._gist: object = None
        #: When it was last written, or computed and found to be as stored.
        self._saved_at = 0.0

    def loaded(self, now: float, gist: object) -> None:
        """Note that an earlier mgr has stored the document, with this gist (see save())."""
        self._gist, self._saved_at = gist, now

    def age(self, now: float) -> float:
        """Seconds since it was written, or was found to be as stored."""
        return now - self._saved_at

    def save(self, now: float, gist: object, interval: float, contents: Callable[[], Any]) -> None:
        """Write the document at once if its gist has changed, or else after `interval` seconds, but
        only if it differs from what is stored. `gist`: the part of it that must not wait for the
        interval; `contents`: computes the document; an empty one is removed from the store."""
        if gist == self._gist and self.age(now) < interval:
            return
        document = contents()
        if document != (self._store.get(self._name) or {}):
            if not self._may_write():
                return
            self._store.put_or_remove(self._name, document)
        self._gist, self._saved_at = gist, now


class Watching:
    """Once every stats period (a reading):

    1. Read: counters, client operations, PG counts and answers of OSDs (`Cluster.readings`).
    2. Judge: WatchState processes the readings; pure.
    3. Report: events, health checks, rows for commands (`watched`), and client latency for the
       throttle (`clients`).
    4. Store: raised alarms, one changed baseline, provisional baselines, every 15 minutes the
       counts of chronically slow OSDs, and every hour how latency varies while nothing moves.

    The turns in between share the work of judging the OSDs; the last of these publishes the result
    without waiting for the next reading.

    If a reading fails, `watched` contains the failure alone, and a campaign continues without the
    rest. If a round fails, it contains nothing on single OSDs. The health checks stay in both
    cases: operators would be alarmed if they were cleared and raised again.
    """

    def __init__(self, cluster: Cluster, store: Store, note: Callable[[Event], None],
                 drives: Callable[[], Optional[Mapping[str, DriveHealth]]],
                 may_write: Callable[[], bool]) -> None:
        """`drives`: as in WatchContext; `may_write`: whether this mgr owns the journal, and the
        mons answer; asked before each record."""
        self._drives = drives
        self._cluster = cluster
        self._store = store
        self._note = note
        self._watch = WatchState(threading.Lock())
        self._announcer = report.Announcer()
        self._may_write = may_write
        self._alarms = _Document(store, WATCH_DOCUMENT, may_write)
        self._chronic = _Document(store, CHRONIC_DOCUMENT, may_write)
        self._variation = _Document(store, USUAL, may_write)
        self._provisional = _Document(store, PROVISIONAL, may_write)
        #: When the last reading was; None: there was none. And the turns since then.
        self._read_at: Optional[float] = None
        self._turns_since = 0
        #: When a probe last affected client latency.
        self._probed = -math.inf
        self._known_steps = KnownSteps()
        #: Pools with a baseline in the store.
        self._stored: Set[int] = set()
        #: Why the last reading failed; '': it did not.
        self._failure = ''
        self._failed_turns = FailedTurns('watch', WATCH_STOPS)
        #: Rounds that failed one after the other, and the last failure that was counted.
        self._failed_rounds = FailedTurns('judgement of OSDs', ROUNDS_STOP)
        self._counted: Optional[Exception] = None
        #: Health checks that were published last without a failure.
        self._checks: HealthChecks = {}
        self.watched = Watched()
        #: One row for each OSD, and the number of rounds that had ended when they were made.
        self._rows: Tuple[OsdRow, ...] = ()
        self._rows_round = 0
        #: Client latency for the throttle.
        self.clients = Clients()

    def load(self, options: Options, now: float) -> None:
        """Load the state of an earlier mgr from the store, before the first turn."""
        for name in self._store.names(BASELINES):
            pool_id = name[len(BASELINES):]
            if pool_id.isdigit():
                stored = self._loaded(name, Optional[StoredPool], now, None)
                self._watch.pools.load(int(pool_id), stored or StoredPool(), pool_settings(options))
                self._stored.add(int(pool_id))
        pools = self._watch.pools
        usual = self._loaded(USUAL, StoredUsual, now, StoredUsual())
        self._watch.norms.load(usual.osds)
        pools.load_spreads(usual.pools, pool_settings(options))
        self._variation.loaded(now, self._variation_subjects())
        pools.load_provisional(self._loaded(PROVISIONAL, Provisional, now, {}),
                               pool_settings(options))
        self._provisional.loaded(now, _kinds(pools.provisional()))
        watch = self._loaded(WATCH_DOCUMENT, StoredWatch, now, StoredWatch())
        self._watch.load(watch, now)
        self._announcer.load(watch.told)
        self._watch.load_chronic(self._loaded(CHRONIC_DOCUMENT, StoredCounts, now, {}))
        self._alarms.loaded(now, _gist(self._state()))
        self._chronic.loaded(now, set(self._watch.slow.chronic.standing))

    def _loaded(self, name: str, hint: Any, now: float, empty: T) -> T:
        """A document of an earlier mgr, as `hint` types it, without times of the future; `empty` if
        there is none."""
        loaded: T = no_later_than(hint, self._store.load_record(name, hint, empty), now)
        return loaded

    @property
    def osd_counts(self) -> Mapping[int, PgCounts]:
        """PGs by the OSDs of their acting sets, from the last reading."""
        return self._watch.osd_counts

    @property
    def deleting(self) -> Mapping[int, int]:
        """OSD -> PGs that it is deleting, from the last reading."""
        return self._watch.deleting

    @property
    def devices(self) -> Mapping[int, Sequence[str]]:
        """OSD -> the devices that it shares with others."""
        return self._watch.devices

    def turn(self, now: float, view: View, signals: Signals, options: Options,
             in_flight: int, probing: bool, probed: Touched = NOTHING,
             weights: Mapping[int, float] = {}) -> None:
        """Take a reading, if a stats period has passed since the last one. If not, continue the
        round that judges the OSDs, if one has begun.

        `in_flight`: number of PGs that a campaign moves. `probing`: a probe affects client latency.
        `probed`: the OSDs and pools that may have operations of probes. `weights`: OSD -> CRUSH
        weight.
        """
        period = self._cluster.stats_period()
        self._turns_since += 1
        # A turn may be a little early.
        is_due = self._read_at is None or now - self._read_at >= READING_SHARE * period
        if not is_due and self._watch.rounds.idle:
            return  # quickly: most turns are such
        context = WatchContext(now, signals, view.osdmap, view.placement, period,
                               idle=not (in_flight or probing), probing=probing,
                               in_flight=in_flight, probed=probed, drives=self._drives(),
                               turns_per_reading=self._turns_since, weights=weights)
        if is_due:
            self._read_at, self._turns_since = now, 0
            if probing:
                self._probed = now
        has_news = is_due
        try:
            if is_due:
                self._read(context, view, options)
            else:
                has_news = self._continue_round(context, options)
        except Exception as error:
            # Invalid reports of an OSD must not stop a campaign.
            if repr(error) != self._failure:
                self._failure = repr(error)
                log.exception('the watch failed to process the readings')
            self._failed_turns.note(error)
            self.watched = Watched(failure=self._failure, checks={
                **self._checks, **self._failed_rounds.check(), **self._failed_turns.check()})
        if has_news:
            self._save(now)
        if is_due:
            self._save_baselines(set(view.osdmap.pools))

    def _read(self, context: WatchContext, view: View, options: Options) -> None:
        """Read, judge and report. Clears the failure of an earlier reading."""
        readings = self._cluster.readings(view, context.signals)
        self._watch.update(context, readings, options)
        # The next readings contain the reads of these OSDs by PG.
        self._cluster.read_by_pg(self._watch.reads.osds_to_read)
        self._report(context, view, readings, options)
        self._failure = ''
        self._failed_turns.clear()
        self._note_round()

    def _continue_round(self, context: WatchContext, options: Options) -> bool:
        """Judge further OSDs of the round. Once it has ended, note events, publish what is known of
        all OSDs, and return True. After a reading that failed, the next one does so."""
        if not self._watch.continue_round(context.now) or self._failure:
            return False
        for event in self._announcer.events(self._watch, context):
            self._note(event)
        self._publish(context, options, self.watched.osd_versions)
        return True

    def _note_round(self) -> None:
        """Count the last round if it failed, and publish that, with what is known without it: an
        earlier verdict on an OSD may be wrong by now."""
        failure = self._watch.rounds.failure
        if failure is None:
            self._failed_rounds.clear()
        else:
            if failure is not self._counted:
                if repr(failure) != repr(self._counted):
                    log.error('the watch failed to judge the OSDs', exc_info=failure)
                self._failed_rounds.note(failure)
            self.watched = replace(
                self.watched, osds=(), slow_osds={}, osd_causes={}, osd_reads={}, reported_osds={},
                checks={**self._checks, **self._failed_rounds.check()}, failure=repr(failure))
        self._counted = failure

    def _report(self, context: WatchContext, view: View, readings: Readings,
                options: Options) -> None:
        """Note events, and publish what other parts of perfguard read: `watched`, `clients`."""
        for event in self._announcer.events(self._watch, context):
            self._note(event)
        pool_names = {pool.id: pool.name for pool in view.osdmap.pools.values()}
        # Late changes concern earlier steps: _step_events adds those of this turn to them.
        for event in (*self._late_events(pool_names),
                      *self._step_events(self._watch.pools.steps, pool_names)):
            self._note(event)
        self._publish(context, options,
                      frozenset(version for version, _ in readings.software.values()))
        self.clients = Clients(
            context.now, readings.seconds, readings.clients,
            pools=_pool_clients(self._watch, context, options),
            # `silent`: when the report of an OSD was last late.
            covered=self.clients.covered + readings.seconds, norms=self._watch.norms.norms(),
            silent=context.now if readings.silent or readings.unreported else self.clients.silent,
            counted=self._without_probes(context.now, readings.counted),
            quiet=self._watch.quiet_ops.summed_counts, why_not_quiet=self._watch.why_not_quiet)

    def _publish(self, context: WatchContext, options: Options,
                 osd_versions: FrozenSet[str]) -> None:
        """Publish the state of the watch, with new rows of all OSDs if a round has ended."""
        if self._watch.rounds.ended != self._rows_round:
            self._rows = report.osds(self._watch, context)
            self._rows_round = self._watch.rounds.ended
        self.watched = replace(_watched(self._watch, context, options, self._rows),
                               osd_versions=osd_versions)
        self._checks = self.watched.checks

    def _step_events(self, steps: Sequence[Step], names: Mapping[int, str]) -> List[Event]:
        """At most one event: the pools that have become slower, with what changed at that time. If
        nothing did, steps that recur are left out. `steps`: of this turn; `names`: of pools."""
        if not steps:
            return []
        # None: the mons did not answer.
        options = self._cluster.option_changes()
        # A dict as an ordered set.
        changes = {change: None for step in steps for change in (
            *changes_around(of_options(options or ()), step), *self._watch.changes_around(step))}
        new_steps = self._known_steps.new_of(steps)
        reported = steps if changes else new_steps
        if not reported:
            return []
        return [Event('latency-step', what_text(reported, names),
                      why_text(reported, list(changes), with_options=options is not None))]

    def _late_events(self, names: Mapping[int, str]) -> List[Event]:
        """Events for earlier steps that changes may have caused which were noticed only in this
        turn: one for all steps that began together. `names`: of the pools that still exist."""
        noticed = self._watch.changes.noticed
        events = []
        for same_begin in self._known_steps.around(noticed).values():
            steps = [step for step in same_begin if step.pool in names]
            if steps:
                changes = changes_around(noticed, steps[0])
                events.append(Event('latency-step', what_text(steps, names),
                                    why_text(steps, changes, with_options=True)))
        return events

    def _without_probes(self, now: float,
                        samples: Sequence[LatencyCounts]) -> Tuple[LatencyCounts, ...]:
        """The samples of operations that no probe has slowed down."""
        return tuple(sample for sample in samples
                     if now - sample.age - sample.seconds > self._probed)

    def _state(self) -> StoredWatch:
        return self._watch.stored(self._announcer.reported())

    def _save(self, now: float) -> None:
        """Store what has changed, each document at its interval; alarms only if their gist has."""
        state = self._state()
        self._alarms.save(now, _gist(state), interval=math.inf, contents=lambda: encode(state))
        chronic = self._watch.slow.chronic
        self._chronic.save(now, set(chronic.standing), CANDIDATE_SECONDS if chronic.has_candidates
                           else CHRONIC_SECONDS,
                           lambda: encode(self._watch.stored_chronic(), StoredCounts))
        # At most this often: its subjects may change with each turn.
        if self._variation.age(now) >= FIRST_USUAL_SECONDS:
            self._variation.save(now, self._variation_subjects(), USUAL_SECONDS, lambda: encode(
                StoredUsual(self._watch.norms.stored(), self._watch.pools.spreads())))
        provisional = self._watch.pools.provisional()
        self._provisional.save(now, _kinds(provisional), REWRITE_SECONDS,
                               lambda: encode(provisional, Provisional))

    def _variation_subjects(self) -> Set[Union[int, str]]:
        """OSDs and pools that the document knows something of."""
        return {*self._watch.norms.norms(), *self._watch.pools.spreads()}

    def _save_baselines(self, pools: Set[int]) -> None:
        """Remove the document of a pool that does not exist anymore, and store that of one whose
        baseline, load or alarm levels have changed. `pools`: all that exist. One of each per turn:
        a write takes the mon some milliseconds, and hundreds of pools may be removed at once."""
        # An OSDMap without pools may be the initial, empty one.
        removed = next(iter(self._stored - pools), None) if pools else None
        if removed is not None and self._may_write():
            self._store.remove(BASELINES + str(removed))
            self._stored.discard(removed)
        pools_state = self._watch.pools
        unsaved = pools_state.take_unsaved() \
            if pools_state.has_unsaved and self._may_write() else None
        if unsaved is not None:
            pool_id, stored = unsaved
            self._store.put(BASELINES + str(pool_id), encode(stored))
            self._stored.add(pool_id)

    def history(self, subject: str, condensed: bool) -> Optional[List[HistoryPoint]]:
        """For commands: the points of "cluster", "osd.N" or a pool by name; None: unknown.
        `condensed`: of a week, each of 10 minutes; else of an hour, one per reading."""
        return self._watch.history_of(subject, self.watched.pool_ids, condensed)

    def drawn(self, since: float, pools: Sequence[int]) -> Json:
        """For the page: the last hour after `since` of the cluster and of some pools; without
        `pools`, of the busiest."""
        names = {pool_id: name for name, pool_id in self.watched.pool_ids.items()}
        return self._watch.drawn(since, pools, names, DRAWN_POOLS)


def _watched(watch: WatchState, context: WatchContext, options: Options,
             osds: Tuple[OsdRow, ...]) -> Watched:
    """What other parts of perfguard and commands read of the watch."""
    pools, slow = context.osdmap.pools, watch.slow_osds()
    return Watched(
        laggy_raised=watch.laggy.raised, unreported=watch.unreported,
        hosts={osd: place.host for osd, place in watch.places.items()},
        late=tuple(('%s of pool %s' % (kind, pools[pool_id].name), pool_id)
                   for pool_id, kind, _ in watch.pools.slow() if pool_id in pools),
        slow_osds=slow, reported_osds=report.reported_osds(watch),
        chronic_parts=report.chronic_parts(watch),
        osd_causes={osd: tuple(cause.code for cause in watch.causes_of(osd, context))
                    for osd in slow},
        osd_reads=watch.reads.sums_by_osd(),
        signals=report.signals(watch, context), pools=report.pools(watch, context, options),
        osds=osds, uses=report.pool_uses(watch, context, options),
        laggy=report.laggy(watch, context),
        checks=report.health_checks(watch, context),
        pool_ids={pool.name: pool.id for pool in pools.values()})


def _pool_clients(watch: WatchState, context: WatchContext,
                  options: Options) -> Dict[int, PoolClients]:
    """The client latency of each pool with its limits, for the throttle."""
    pool_clients: Dict[int, PoolClients] = {}
    for pool in context.osdmap.pools.values():
        latency = watch.pools.latency(pool.id)
        operator_limit_ms = named_target(options, pool.name)
        read_limit_ms, write_limit_ms = (
            target_ms(baseline_ms, operator_limit_ms, options, watch.is_on_disks(pool.id))
            for baseline_ms in (latency.read_baseline_ms, latency.write_baseline_ms))
        pool_clients[pool.id] = PoolClients(
            pool.name, pool.pg_num, latency.read.rate + latency.write.rate, read_limit_ms,
            write_limit_ms, latency.read_baseline_ms, latency.write_baseline_ms,
            latency.read_spread, latency.write_spread, named=operator_limit_ms is not None,
            read_minute=latency.read_minute, write_minute=latency.write_minute,
            # Little's law: arrivals per second times seconds.
            in_progress=sum(flow.rate * flow.ms / 1e3 for flow in (latency.read, latency.write)),
            others_rate=watch.others_rates.get(pool.id, 0.0), erasure=pool.erasure)
    return pool_clients


def _kinds(provisional: Provisional) -> Dict[int, Set[str]]:
    return {pool: set(kinds) for pool, kinds in provisional.items()}


def _gist(state: StoredWatch) -> object:
    """What must be stored at once if it changes: all but texts, which change with every turn."""
    last = state.laggy_last
    return (state.laggy_since, last and last._replace(why='', time=0.0), state.latency, state.told,
            state.release, sorted((osd, row.part) for osd, row in state.slow.items()))
