# SPDX-License-Identifier: LGPL-2.1-or-later
"""The state of the watch: typed, as the data of commands, as health checks and as events."""
from dataclasses import dataclass
from operator import attrgetter
from types import MappingProxyType
from typing import (Any, Callable, Dict, FrozenSet, Iterable, List, Mapping, NamedTuple, Optional,
                    Sequence, Set, Tuple)

from ..cluster.types import Json, OsdPlace, PgCounts, Pool
from ..errors import HealthChecks, HealthWarning, warning
from ..events import Event
from ..options import Options
from ..text import are, listed, osds_text, pgs_are, time_text
from .causes import CHECK_OF_PART, ClientShare, LikelyCause
from .laggy import MECHANISM_TEXTS, NO_MECHANISM, LaggyEpisode, LaggyPg, Suspect
from .osds import COMMIT_NS, STORE_COMMITS
from .load import PoolUse
from .pools import PoolPerformance, named_target, target_ms
from .series import READ_NS, READS, WRITE_NS, WRITES, HistoryPoint, mean_flow, recent
from .slow_parts import DEVICE, SHARED_KINDS, shared_by, whole_parts
from .state import Reported, WatchContext, WatchState
from .types import Chronic, Flow, OsdVerdict, SharedPart, SlowShared

#: Conditions of PGs that are shown.
_TROUBLE = ('laggy', 'wait', 'inactive', 'degraded', 'remapped', 'backfilling', 'backfill_wait',
            'backfill_toofull', 'recovering')
_numbers_of: Callable[[PgCounts], Tuple[int, ...]] = attrgetter(*_TROUBLE)
#: Of OSDs of which nothing else is known.
_NO_COUNTS = PgCounts()
_NO_PGS: Mapping[str, int] = MappingProxyType({})


def ms(flow: Flow) -> Optional[float]:
    return round(flow.ms, 3) if flow.rate > 0.0 else None


def rounded(value: Optional[float], digits: int = 3) -> Optional[float]:
    return None if value is None else round(value, digits)


def trouble(counts: PgCounts) -> Mapping[str, int]:
    """Condition -> number of PGs, of conditions with at least one."""
    numbers = _numbers_of(counts)
    if not any(numbers):
        return _NO_PGS  # nearly always
    return {name: number for name, number in zip(_TROUBLE, numbers) if number}


@dataclass(frozen=True)
class ClusterRow:
    """Clients of the whole cluster in the last minute; latencies in ms, None: not measured."""
    read_ms: Optional[float]
    write_ms: Optional[float]
    #: Operations per second.
    read_rate: float
    write_rate: float
    read_p99_ms: Optional[float]
    write_p99_ms: Optional[float]
    untrimmed_osdmaps: Optional[int]


@dataclass(frozen=True)
class PoolRow:
    """One pool, as ClusterRow."""
    pool: str
    id: int
    read_ms: Optional[float]
    write_ms: Optional[float]
    read_rate: float
    write_rate: float
    baseline_ms: Optional[float]
    read_baseline_ms: Optional[float]
    write_baseline_ms: Optional[float]
    #: Limits.
    target_ms: Optional[float]
    read_target_ms: Optional[float]
    write_target_ms: Optional[float]
    #: Latencies above which PERFGUARD_LATENCY is raised at this hour.
    read_alarm_ms: Optional[float]
    write_alarm_ms: Optional[float]
    #: Kinds of operations that are slow: "reads", "writes".
    slow: Tuple[str, ...]
    #: Conditions with at least one PG.
    pgs: Mapping[str, int]
    #: While it is slow: the client that sends most of its operations, if there is one.
    clients: Tuple[ClientShare, ...] = ()


class OsdRow(NamedTuple):
    """One OSD, as ClusterRow. There may be 10,000, with each reading: a tuple takes a tenth of the
    time of a frozen dataclass."""
    osd: int
    host: str
    device_class: str
    model: str
    read_ms: Optional[float] = None
    write_ms: Optional[float] = None
    store_ms: Optional[float] = None
    #: Slowdown against its peers.
    score: Optional[float] = None
    slow: bool = False
    why: str = ''
    causes: Tuple[LikelyCause, ...] = ()
    #: Why it serves more operations than its peers, slow or not.
    load: Tuple[LikelyCause, ...] = ()
    #: The standing finding of a chronically slow OSD.
    chronic: Optional[Chronic] = None
    slow_time_ratio: Optional[float] = None
    #: When it became slow, in seconds since the epoch.
    since: Optional[float] = None
    read_rate: float = 0.0
    write_rate: float = 0.0
    read_p99_ms: Optional[float] = None
    write_p99_ms: Optional[float] = None
    ping_ms: Optional[float] = None
    silent_seconds: Optional[float] = None
    pgs: Mapping[str, int] = _NO_PGS
    #: '' if it is in none.
    rack: str = ''
    #: The slow replica that alone explains the slowdown of an OSD that is not slow itself.
    waits_for: Optional[int] = None


@dataclass(frozen=True)
class LaggyStatus:
    laggy_pgs: int = 0
    wait_pgs: int = 0
    since: Optional[float] = None
    pgs: Tuple[LaggyPg, ...] = ()
    #: Suspected causes, the most likely first.
    suspects: Tuple[Suspect, ...] = ()
    #: The last time for which PGs were laggy, which may last.
    last_episode: Optional[LaggyEpisode] = None


def signals(watch: WatchState, context: WatchContext) -> ClusterRow:
    """The client latency of the whole cluster, for `status`."""
    points = recent(watch.cluster.detailed, context.now, context.period)
    read = mean_flow(points, READS, READ_NS)
    write = mean_flow(points, WRITES, WRITE_NS)
    tail = watch.percentiles.levels_of_cluster(context.now)
    return ClusterRow(
        ms(read), ms(write), round(read.rate, 1), round(write.rate, 1), rounded(tail.read_p99_ms),
        rounded(tail.write_p99_ms), watch.untrimmed_epochs)


def pools(watch: WatchState, context: WatchContext, options: Options) -> Tuple[PoolRow, ...]:
    slow: Dict[int, List[str]] = {}
    for pool_id, kind, _ in watch.pools.slow():
        slow.setdefault(pool_id, []).append(kind)
    return tuple(_pool(watch, context, options, pool, tuple(slow.get(pool.id, ())))
                 for pool in sorted(context.osdmap.pools.values(), key=lambda pool: pool.id))


def _pool(watch: WatchState, context: WatchContext, options: Options, pool: Pool,
          slow: Tuple[str, ...]) -> PoolRow:
    """A row of "perfguard pools". `slow`: kinds of operations with a raised alarm."""
    latency = watch.pools.latency(pool.id)
    operator_limit_ms = named_target(options, pool.name)

    def limit(baseline_ms: Optional[float]) -> Optional[float]:
        return rounded(target_ms(baseline_ms, operator_limit_ms, options,
                                 watch.is_on_disks(pool.id)))

    return PoolRow(
        pool=pool.name, id=pool.id, read_ms=ms(latency.read), write_ms=ms(latency.write),
        read_rate=round(latency.read.rate, 1), write_rate=round(latency.write.rate, 1),
        baseline_ms=rounded(latency.baseline_ms),
        read_baseline_ms=rounded(latency.read_baseline_ms),
        write_baseline_ms=rounded(latency.write_baseline_ms), target_ms=limit(latency.baseline_ms),
        read_target_ms=limit(latency.read_baseline_ms),
        write_target_ms=limit(latency.write_baseline_ms),
        read_alarm_ms=rounded(latency.read_alarm_ms),
        write_alarm_ms=rounded(latency.write_alarm_ms), slow=slow,
        pgs=trouble(context.signals.pool_counts.get(pool.id, PgCounts())),
        clients=watch.heavy_clients(pool.id) if slow else ())


#: p99 that clients expect, by default: of flash, and of pools with OSDs of the class hdd.
FLASH_P99_MS, DISK_P99_MS = 5.0, 50.0


def pool_uses(watch: WatchState, context: WatchContext, options: Options) -> Tuple[PoolUse, ...]:
    """The load of each pool, to compare it with what a probe has measured."""
    uses = []
    for pool in sorted(context.osdmap.pools.values(), key=lambda pool: pool.id):
        latency, load = watch.pools.latency(pool.id), watch.pools.load_of(pool.id)
        default_ms = DISK_P99_MS if watch.is_on_disks(pool.id) else FLASH_P99_MS
        uses.append(PoolUse(
            pool.id, pool.name, pool.pg_num, options.capacity_p99_ms or default_ms,
            load.sized(latency.read.rate, latency.write.rate), load.busiest(context.now),
            watch.others_rates.get(pool.id, 0.0), load.growth(context.now)))
    return tuple(uses)


def osds(watch: WatchState, context: WatchContext) -> Tuple[OsdRow, ...]:
    shares, verdicts = watch.slow.chronic.shares(), watch.slow.verdicts
    standing = watch.slow.chronic.standing
    return tuple([_osd(watch, context, place, shares.get(osd), verdicts.get(osd) or OsdVerdict(osd),
                       standing.get(osd))
                  for osd, place in sorted(watch.places.items())])


def _osd(watch: WatchState, context: WatchContext, place: OsdPlace, slow_share: Optional[float],
         verdict: OsdVerdict, standing: Optional[Chronic]) -> OsdRow:
    """A row of "perfguard osds". `slow_share`: share (0 to 1) of the time for which it was slow;
    None: too little time with operations. `standing`: if it is chronically slow."""
    osd = place.osd
    flows = watch.osds.flows(osd, context.now, context.period)
    tail = watch.percentiles.levels_of_osd(osd)
    return OsdRow(
        osd=osd, host=place.host, device_class=place.device_class, model=place.model,
        read_ms=ms(flows.read), write_ms=ms(flows.write), store_ms=ms(flows.commit),
        score=rounded(verdict.score, 2), slow=verdict.slow, why=verdict.why,
        causes=tuple(watch.causes_of(osd, context)) if verdict.slow else (),
        load=watch.load_of(osd, context),
        chronic=standing, slow_time_ratio=rounded(slow_share, 4),
        since=verdict.since or None, read_rate=round(flows.read.rate, 1),
        write_rate=round(flows.write.rate, 1), read_p99_ms=rounded(tail.read_p99_ms),
        write_p99_ms=rounded(tail.write_p99_ms), ping_ms=rounded(watch.ping_ms.get(osd)),
        silent_seconds=rounded(watch.silent.get(osd), 1),
        pgs=trouble(watch.osd_counts.get(osd, _NO_COUNTS)), rack=place.rack,
        waits_for=verdict.waits_for)


def laggy(watch: WatchState, context: WatchContext) -> LaggyStatus:
    counts = context.signals.counts
    return LaggyStatus(counts.laggy, counts.wait, watch.laggy.since or None, watch.laggy.pgs.all(),
                       tuple(watch.laggy.suspects), watch.laggy.last_episode)


# ---- JSON

def signals_json(row: Optional[ClusterRow]) -> Json:
    return {} if row is None else dict(vars(row))


def pool_json(row: PoolRow) -> Json:
    """A row of `pools`."""
    return {**vars(row), 'slow': list(row.slow), 'pgs': dict(row.pgs),
            'clients': [client.to_json() for client in row.clients]}


def osd_json(row: OsdRow) -> Json:
    """A row of `osds`."""
    return {**row._asdict(), 'pgs': dict(row.pgs), 'chronic': row.chronic and chronic(row.chronic),
            'causes': _causes_json(row.causes), 'load': _causes_json(row.load)}


def _causes_json(causes: Sequence[LikelyCause]) -> List[Json]:
    return [{'code': cause.code, 'text': cause.text, 'evidence': dict(cause.evidence)}
            for cause in causes]


def chronic(standing: Chronic) -> Json:
    return {'since': round(standing.since, 1), 'raised': round(standing.raised, 1),
            'last': round(standing.last, 1), 'slow_time_ratio': round(standing.share, 4),
            'episodes': standing.episodes, 'slowdown': round(standing.slowdown, 2),
            'why': standing.why}


def laggy_json(state: LaggyStatus) -> Json:
    """The JSON of "perfguard laggy"."""
    return {
        'laggy_pgs': state.laggy_pgs, 'wait_pgs': state.wait_pgs, 'since': state.since,
        'pgs': [{'pgid': pg.pgid, 'acting': list(pg.acting), 'since': round(pg.since, 3),
                 'primary': pg.primary} for pg in state.pgs],
        'suspects': [suspect._asdict() for suspect in state.suspects],
        'last': None if state.last_episode is None else {
            **state.last_episode._asdict(), 'text': state.last_episode.text()}}


def history_json(subject: str, points: Sequence[HistoryPoint], most_rows: int = 0) -> Json:
    """The JSON of "perfguard history", from the first four columns, which all kinds of history
    share.

    `most_rows`: if there are more points, each row sums up as many as needed, the first one the
    rest; 0: each point is a row.
    """
    per_row = max(1, -(-len(points) // most_rows)) if most_rows else 1
    ends = range(len(points), 0, -per_row)
    return {'of': subject, 'points': [_history_row(points[max(0, end - per_row):end])
                                      for end in reversed(ends)]}


def _history_row(points: Sequence[HistoryPoint]) -> Json:
    """Consecutive points as one row of the history: their mean and, if there are several, the
    highest mean of one of them."""
    row: Json = {'time': round(points[-1].end, 1),
                 'seconds': round(sum(point.seconds for point in points), 1)}
    for kind, ops_column, ns_column in ('read', READS, READ_NS), ('write', WRITES, WRITE_NS):
        flow = mean_flow(points, ops_column, ns_column)
        row.update({kind + '_ms': ms(flow), kind + '_rate': round(flow.rate, 1)})
        if len(points) > 1:
            flows = [mean_flow([point], ops_column, ns_column) for point in points]
            row[kind + '_max_ms'] = ms(max(flows, key=lambda any_flow: any_flow.ms))
    return row


#: Columns of an export; throughput in operations per second, latency in milliseconds.
EXPORTED = ('time', 'drive', 'host', 'class', 'model', 'kind', 'throughput', 'latency')
_EXPORTED_KINDS = (('reads', READS, READ_NS), ('writes', WRITES, WRITE_NS),
                   ('commits', STORE_COMMITS, COMMIT_NS))


def exported_json(subject: str, histories: Sequence[Tuple[OsdRow, Sequence[HistoryPoint]]]) -> Json:
    """The history of OSDs for other tools: a row for each point and kind of operation. `histories`:
    OSDs with their points. Points without operations of a kind have no row of it."""
    rows: List[List[Any]] = []
    for osd, points in histories:
        who = ['osd.%d' % osd.osd, osd.host, osd.device_class, osd.model]
        for point in points:
            for kind, ops_column, ns_column in _EXPORTED_KINDS:
                flow = mean_flow([point], ops_column, ns_column)
                if flow.rate > 0.0:
                    rows.append([round(point.end, 1), *who, kind, round(flow.rate, 2),
                                 round(flow.ms, 4)])
    return {'of': subject, 'columns': list(EXPORTED), 'rows': rows}


# ---- Health checks, and events when a problem begins and ends

# They name no clients and no objects, because reading the health of a cluster, or its log, requires
# no access to the mgr.

LAGGY = 'PERFGUARD_LAGGY_PGS'
SLOW = 'PERFGUARD_SLOW_OSD'
CHRONIC = 'PERFGUARD_OSD_CHRONIC'
LATENCY_CHECK = 'PERFGUARD_LATENCY'
#: Maximum numbers of suspects and PGs in the text of a health check.
SUSPECTS_IN_TEXT = 3
PGS_IN_TEXT = 20
#: Kinds of events by health check; the cluster log contains them as well.
EVENT_KINDS = {LAGGY: 'laggy', SLOW: 'slow-osd', CHRONIC: 'chronic-osd', LATENCY_CHECK: 'latency'}
#: OSDs, or operations of pools, that become slow, or fast again, in one turn with an event each.
EVENTS_OF_KIND = 10


def health_checks(watch: WatchState, context: WatchContext) -> HealthChecks:
    """The health checks of the watch that are raised now, as MgrModule.set_health_checks takes
    them."""
    checks: Dict[str, HealthWarning] = {}
    if watch.laggy.raised:
        checks[LAGGY] = warning(_laggy_summary(watch, context), _laggy_detail(watch, context))
    slow = _slow_lines(watch, context)
    if slow:
        checks[SLOW] = warning(_slow_summary(watch), slow)
    if watch.slow.chronic.standing:
        checks[CHRONIC] = warning(_chronic_summary(watch), _chronic_lines(watch))
    late = _late_pools(watch, context)
    if late:
        checks[LATENCY_CHECK] = warning(
            '%s slower than %s' % (are(len(late), 'pool'), 'its baseline' if len(late) == 1 else
                                   'their baselines'),
            ['; '.join(lines) for lines in late.values()])
    return checks


def _laggy_summary(watch: WatchState, context: WatchContext) -> str:
    """The summary of the health check on laggy PGs."""
    counts = context.signals.counts
    text = '%s laggy' % pgs_are(counts.laggy)
    if counts.wait:
        text += ', %d waiting for read leases to expire' % counts.wait
    if not counts.laggy + counts.wait:
        text = 'PGs were laggy until a moment ago'
    if watch.laggy.suspects:
        text += '; main suspect: osd.%d' % watch.laggy.suspects[0].osd
    return text


def _laggy_detail(watch: WatchState, context: WatchContext) -> List[str]:
    """The detail of the health check on laggy PGs: suspects, then PGs."""
    lines = [watch.unreported] if watch.unreported else []
    for suspect in watch.laggy.suspects[:SUSPECTS_IN_TEXT]:
        mechanism = '' if suspect.mechanism == NO_MECHANISM else \
            'likely mechanism: ' + MECHANISM_TEXTS[suspect.mechanism]
        lines.append('; '.join(filter(None, (
            'osd.%d: %s' % (suspect.osd, suspect.why), mechanism, suspect.advice))))
    for pg in watch.laggy.pgs.all()[:PGS_IN_TEXT]:
        lines.append('PG %s, acting %s: clients have been waiting for %s' % (
            pg.pgid, list(pg.acting), _ago(context, pg.since)))
    return lines or ['no OSD has reported yet which PGs are laggy']


def _slow(watch: WatchState) -> List[OsdVerdict]:
    """The slow OSDs without the chronically slow ones, which CHRONIC reports: SLOW would be raised
    and cleared with every episode."""
    standing = watch.slow.chronic.standing
    return [verdict for osd, verdict in watch.slow.slow_verdicts.items() if osd not in standing]


def _shared(watch: WatchState) -> List[SlowShared]:
    """The parts that are slow as a whole, without those whose slow OSDs CHRONIC reports all."""
    standing = watch.slow.chronic.standing.keys()
    return [shared for shared in watch.slow.shared() if not standing >= set(shared.osds)]


def reported_osds(watch: WatchState) -> Dict[str, FrozenSet[int]]:
    """Health check -> the slow OSDs that it reports."""
    return {SLOW: frozenset(verdict.osd for verdict in _slow(watch)),
            CHRONIC: frozenset(watch.slow.chronic.standing)}


def _slow_summary(watch: WatchState) -> str:
    """The summary of the health check on slow OSDs, of which there is at least one."""
    shared = [slow.part for slow in _shared(watch)]
    single = [verdict.osd for verdict in _single(watch)]
    many = len(shared) + len(single) > 1
    texts = ['%s are slower than the others' % part.what for part in watch.slow.class_parts()]
    if shared or single:
        texts.insert(0, '%s %s slower than %s peers' % (
            _names(shared, single), 'are' if many else 'is', 'their' if many else 'its'))
    return '; '.join(texts)


def _single(watch: WatchState) -> List[OsdVerdict]:
    """The slow OSDs without those that are reported as a shared part."""
    members = {osd for shared in _shared(watch) for osd in shared.osds}
    return [verdict for verdict in _slow(watch) if verdict.osd not in members]


def _names(shared: Iterable[SharedPart], osds: Sequence[int]) -> str:
    """The names of parts and of OSDs, as in "rack r1 and hosts h1, h2 and osd.3"."""
    names: Dict[str, List[str]] = {}
    for kind, name in sorted(shared, key=lambda part: (-SHARED_KINDS[part[0]], part)):
        names.setdefault(kind, []).append(name)
    parts = ['%s%s %s' % (kind, 's' if len(named) > 1 else '', ', '.join(named))
             for kind, named in names.items()]
    return ' and '.join([*parts, *([osds_text(osds)] if osds else [])])


def _slow_lines(watch: WatchState, context: WatchContext) -> List[str]:
    """The detail of the health check on slow OSDs: groups of a device class that are too many to
    name, then hosts, racks and devices that are slow as a whole (their OSDs share the causes), then
    single OSDs. Single OSDs that are chronically slow are left out, and so are hosts, racks and
    devices of which all slow OSDs are chronically slow."""
    return [part.why for part in watch.slow.class_parts()] + [
        '%s: %s%s' % (shared.subject, shared.why,
                      _likely(watch.causes_of(shared.osds[0], context)))
        for shared in _shared(watch)] + [
        '%s: %s%s' % (_place(watch, verdict.osd), verdict.why,
                      _likely(watch.causes_of(verdict.osd, context)))
        for verdict in _single(watch)]


def _likely(causes: Sequence[LikelyCause]) -> str:
    if not causes:
        return ''
    return '; likely cause%s: %s' % ('s' if len(causes) > 1 else '', ', '.join(
        cause.unnamed or cause.text for cause in causes))


def _place(watch: WatchState, osd: int) -> str:
    place = watch.places.get(osd)
    return 'osd.%d%s' % (osd, ' on ' + place.host if place else '')


def _chronic_summary(watch: WatchState) -> str:
    """The summary of the health check on chronically slow OSDs. A host, device or rack is named
    instead of its OSDs if most of them are chronically slow."""
    standing, whole = watch.slow.chronic.standing.keys(), _chronic_parts(watch)
    single = standing - set().union(*whole.values())
    return '%s %s chronically slow' % (
        _names(whole, sorted(single)), 'are' if len(whole) + len(single) > 1 else 'is')


def _chronic_parts(watch: WatchState) -> Dict[SharedPart, Set[int]]:
    """The hosts, devices and racks of which most OSDs are chronically slow -> these OSDs."""
    # OSDs that are down may have no place.
    standing = watch.slow.chronic.standing.keys() & watch.places.keys()
    osds_by_part: Dict[SharedPart, Set[int]] = {}
    for (_, part), osds in whole_parts(standing, watch.places, watch.places).items():
        osds_by_part.setdefault(part, set()).update(osds)
    return osds_by_part


def chronic_parts(watch: WatchState) -> Dict[str, Set[int]]:
    """What to check of each host and rack that is chronically slow as a whole, so that no new drive
    helps -> its chronically slow OSDs."""
    osds_by_text: Dict[str, Set[int]] = {}
    for (kind, name), osds in sorted(_chronic_parts(watch).items()):
        if kind != DEVICE:
            where, check = CHECK_OF_PART[kind]
            osds_by_text['%s %s: %d OSDs %s it are chronically slow: %s before any drive' % (
                kind, name, len(osds), where, check)] = osds
    return osds_by_text


def _chronic_lines(watch: WatchState) -> List[str]:
    """The detail of the health check on chronically slow OSDs: what to check of hosts and racks
    that are so as a whole, then all OSDs. If all OSDs are of such hosts and racks, their lines name
    the command that goes on (next_steps.with_steps)."""
    verdicts, standing = watch.slow.verdicts, watch.slow.chronic.standing
    parts = chronic_parts(watch)
    no_drive = standing.keys() == set().union(*parts.values())
    lines = [text + ('; "ceph perfguard why osd.%d" lists the evidence' % min(osds)
                     if no_drive else '') for text, osds in parts.items()]
    for osd, chronic_osd in standing.items():
        verdict = verdicts.get(osd)
        lines.append('%s: %s%s' % (_place(watch, osd), chronic_osd.why, '; slow now: ' + verdict.why
                                   if verdict is not None and verdict.slow else ''))
    return lines


def _late_pools(watch: WatchState, context: WatchContext) -> Dict[int, List[str]]:
    """Pool with a raised alarm -> its part of the detail of the health check on latency: what is
    slow, then a recent upgrade and the client that sends most of its operations, if any."""
    lines_by_pool: Dict[int, List[str]] = {}
    #: Pool -> since when the first kind of its operations is slow.
    slow_since: Dict[int, float] = {}
    for pool_id, kind, since in watch.pools.slow():
        pool = context.osdmap.pools.get(pool_id)
        if pool is not None:
            lines_by_pool.setdefault(pool_id, []).append('pool %s: %s for %s' % (
                pool.name, _late_text(watch.pools.latency(pool_id), kind), _ago(context, since)))
            slow_since[pool_id] = min(since, slow_since.get(pool_id, since))
    for pool_id, lines in lines_by_pool.items():
        lines += filter(None, [watch.release.upgrade_text(context.now, slow_since[pool_id])])
        lines += [client.unnamed() + ' ("ceph perfguard pools" names it)'
                  for client in watch.heavy_clients(pool_id)]
    return lines_by_pool


def _ago(context: WatchContext, since: float) -> str:
    # Another mgr, whose clock was ahead, may have noted when it began.
    return '%.0f s' % max(0.0, context.now - since)


def _late_text(latency: PoolPerformance, kind: str) -> str:
    """How slow the operations of a pool with a raised alarm are. `kind`: "reads" or "writes"."""
    flow, baseline_ms = (latency.read, latency.read_baseline_ms) if kind == 'reads' else \
        (latency.write, latency.write_baseline_ms)
    if not flow.rate:
        return '%s were slow (baseline %.1f ms; none completed in the last minute)' % (
            kind, baseline_ms or 0.0)
    return '%s take %.1f ms (baseline %.1f ms)' % (kind, flow.ms, baseline_ms or 0.0)


# ---- Events

class _Problem(NamedTuple):
    check: str
    #: For example "osd.3".
    subject: str
    since: float
    why: str
    #: It is an OSD that is reported as a part of what it shares with others.
    of_shared: bool = False


#: The health check and the subject of a problem.
_Key = Tuple[str, str]


class Announcer:
    """Reports each problem when it begins and when it ends."""

    def __init__(self) -> None:
        #: Problems whose begin was reported and whose end was not.
        self._reported: Dict[_Key, _Problem] = {}

    def reported(self) -> Tuple[Reported, ...]:
        return tuple(Reported(problem.check, problem.subject, problem.since)
                     for problem in self._reported.values())

    def load(self, reported: Iterable[Reported]) -> None:
        """Take over what an earlier mgr has reported."""
        self._reported.update(((check, subject), _Problem(check, subject, since, ''))
                              for check, subject, since in reported if check in EVENT_KINDS)

    def events(self, watch: WatchState, context: WatchContext) -> List[Event]:
        """Events for the problems that have begun or ended since the last call."""
        names = {pool.id: pool.name for pool in context.osdmap.pools.values()}
        present = {(problem.check, problem.subject): problem
                   for problem in _problems(watch, context.now, names)}
        # The OSDs of a host (device, rack) become slow and recover one by one. While one is slow, a
        # host that was reported has not recovered, and no OSD of it is reported.
        slow = [osd for osd in watch.places if _key_of(osd) in present]
        parts_of = {osd: {(SLOW, '%s %s' % part) for part in shared_by(watch.places[osd])}
                    for osd in slow}
        in_reported_parts = {_key_of(osd) for osd in slow if parts_of[osd] & self._reported.keys()}
        # Nor has an OSD recovered that was reported and is now slow as one of many of its class.
        in_class_parts = {_key_of(osd) for part in watch.slow.class_parts() for osd in part.osds}
        lasting = in_class_parts.union(*parts_of.values()) & self._reported.keys()
        present.update({key: self._reported[key] for key in lasting - present.keys()})
        begun = {key: problem for key, problem in present.items()
                 if key not in self._reported and not problem.of_shared
                 and key not in in_reported_parts}
        # These are now reported as chronically slow. They are forgotten, without an event that they
        # have ended.
        now_chronic = {_key_of(osd) for osd in watch.slow.chronic.standing} \
            | {(SLOW, part.subject) for part in watch.slow.shared()}
        ended = {key: problem for key, problem in self._reported.items()
                 if key not in present.keys() | now_chronic}
        continuing = {key: problem for key, problem in self._reported.items() if key in present}
        self._reported = {**continuing, **begun}
        return [
            *_bounded([Event(EVENT_KINDS[problem.check], _begin(problem, watch, context),
                             problem.why) for problem in begun.values()]),
            *_bounded([Event(EVENT_KINDS[problem.check], *_end(problem, watch, context))
                       for problem in ended.values()])]


def _key_of(osd: int) -> _Key:
    """The key of the problem that an OSD is slow."""
    return SLOW, 'osd.%d' % osd


def _bounded(events: List[Event]) -> List[Event]:
    """The events, with one in place of more than EVENTS_OF_KIND of one kind: an outage makes all
    pools slow at once, and a network hundreds of OSDs, and each line of the cluster log displaces
    one of another daemon."""
    by_kind: Dict[str, List[Event]] = {}
    for event in events:
        by_kind.setdefault(event.kind, []).append(event)
    bounded: List[Event] = []
    for kind, of_kind in by_kind.items():
        bounded += of_kind if len(of_kind) <= EVENTS_OF_KIND else [
            Event(kind, listed([event.what for event in of_kind], between='; '),
                  listed([event.why for event in of_kind], between='; '))]
    return bounded


def _problems(watch: WatchState, now: float, pool_names: Mapping[int, str]) -> List[_Problem]:
    """The problems that exist now, for events."""
    problems: List[_Problem] = []
    if watch.laggy.raised:
        first = watch.laggy.suspects[0] if watch.laggy.suspects else None
        problems.append(_Problem(LAGGY, 'PGs', watch.laggy.since,
                                 'osd.%d: %s' % (first.osd, first.why) if first else ''))
    of_shared: Set[int] = set()
    for shared in _shared(watch):
        problems.append(_Problem(SLOW, shared.subject, shared.since, shared.why))
        of_shared.update(shared.osds)
    problems += [_Problem(SLOW, part.subject, part.since, part.why)
                 for part in watch.slow.class_parts()]
    problems += [_Problem(SLOW, 'osd.%d' % verdict.osd, verdict.since, verdict.why,
                          verdict.osd in of_shared)
                 for verdict in _slow(watch)]
    problems += [_Problem(CHRONIC, 'osd.%d' % osd, standing.since, standing.why)
                 for osd, standing in watch.slow.chronic.standing.items()]
    for pool_id, kind, since in watch.pools.slow():
        if pool_id in pool_names:
            problems.append(_Problem(LATENCY_CHECK, _latency_subject(kind, pool_names[pool_id]),
                                     since, '; '.join(filter(None, (
                                         _late_text(watch.pools.latency(pool_id), kind),
                                         watch.release.upgrade_text(now, since))))))
    return problems


def _latency_subject(kind: str, pool: str) -> str:
    return '%s of pool %s' % (kind, pool)


#: Health check -> what events say of the subject of a problem that begins, and of one that ends.
_BEGIN_AND_END = {SLOW: ('is slow', 'is no longer slow'),
                  CHRONIC: ('is chronically slow', 'is no longer chronically slow'),
                  LATENCY_CHECK: ('are slower than their baseline', 'are back at their baseline')}


def _begin(problem: _Problem, watch: WatchState, context: WatchContext) -> str:
    """The text `what` of the event that a problem has begun."""
    return _laggy_summary(watch, context) if problem.check == LAGGY \
        else '%s %s' % (problem.subject, _BEGIN_AND_END[problem.check][0])


def _end(problem: _Problem, watch: WatchState, context: WatchContext) -> Tuple[str, str]:
    """The texts `what` and `why` of the event that a problem has ended: its subject has recovered,
    is no longer watched, or is an OSD that cannot be judged anymore, or its latency is accepted
    now."""
    after = 'after %s' % _ago(context, problem.since)
    why_unwatched = _why_unwatched(problem, context)
    if why_unwatched:
        return '%s %s no longer watched' % (
            problem.subject, 'are' if problem.check == LATENCY_CHECK else 'is'), \
            '%s: %s' % (after, why_unwatched)
    counts = watch.slow.chronic
    why_unjudged = {'osd.%d' % osd: why for osd, why in (
        *dict.fromkeys(counts.away, 'it has no PGs').items(), *counts.unjudged.items())}
    if problem.check == CHRONIC and problem.subject in why_unjudged:
        after = '%s: %s' % (after, why_unjudged[problem.subject])
    last = watch.laggy.last_episode
    if problem.check == LAGGY and last is not None:
        after = '%s; at %s, %s' % (after, time_text(last.time), last.text())
    pools = context.osdmap.pools
    accepted = {_latency_subject(kind, pools[pool_id].name): limit_ms
                for pool_id, kind, limit_ms in watch.pools.accepted() if pool_id in pools}
    if problem.check == LATENCY_CHECK and problem.subject in accepted:
        return ('the latency of %s is accepted at this hour' % problem.subject,
                '%s: it recurs; the limit is %.1f ms' % (after, accepted[problem.subject]))
    return 'no PG is laggy anymore' if problem.check == LAGGY \
        else '%s %s' % (problem.subject, _BEGIN_AND_END[problem.check][1]), after


def _why_unwatched(problem: _Problem, context: WatchContext) -> str:
    """Why the OSD or pool of a problem cannot be watched anymore; '': it can."""
    if problem.check == LATENCY_CHECK:
        name = problem.subject.partition(' of pool ')[2]
        exists = any(pool.name == name for pool in context.osdmap.pools.values())
        return '' if exists else 'pool %s no longer exists' % name
    if problem.subject.startswith('osd.'):
        # By name: an earlier mgr may have stored any text.
        osd = next((osd for osd in context.osdmap.osds.values()
                    if 'osd.%d' % osd.id == problem.subject), None)
        if osd is None:
            return 'it was removed'
        return '' if osd.up else 'it is down'
    return ''
