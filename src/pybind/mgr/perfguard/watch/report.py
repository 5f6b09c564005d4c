# SPDX-License-Identifier: LGPL-2.1-or-later
"""The state of the watch: typed, and as the data of commands."""
from dataclasses import dataclass
from operator import attrgetter
from types import MappingProxyType
from typing import Any, Callable, Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from ..cluster.types import OsdPlace, PgCounts, Pool
from ..options import Options
from .causes import ClientShare, LikelyCause
from .laggy import LaggyPg, Suspect
from .osds import COMMIT_NS, COMMITS, NO_FLOWS
from .pools import named_target, target_ms
from .series import READ_NS, READS, WRITE_NS, WRITES, HistoryPoint, mean_flow, recent
from .state import WatchContext, WatchState
from .types import Chronic, Flow, OsdVerdict

Json = Dict[str, Any]

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


def trouble(counts: PgCounts) -> Dict[str, int]:
    """Conditions with at least one PG."""
    found = _numbers_of(counts)
    return {name: number for name, number in zip(_TROUBLE, found) if number} if any(found) else {}


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
    #: Kinds of operations that are slow.
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
    #: The standing finding of an OSD that is slow again and again.
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


@dataclass(frozen=True)
class LaggyStatus:
    laggy_pgs: int = 0
    wait_pgs: int = 0
    since: Optional[float] = None
    pgs: Tuple[LaggyPg, ...] = ()
    #: Suspected causes, the most likely first.
    suspects: Tuple[Suspect, ...] = ()


def signals(watch: WatchState, context: WatchContext) -> ClusterRow:
    points = recent(watch.cluster.detailed, context.now, context.period)
    read = mean_flow(points, READS, READ_NS)
    write = mean_flow(points, WRITES, WRITE_NS)
    tail = watch.percentiles.of_cluster(context.now)
    return ClusterRow(
        ms(read), ms(write), round(read.rate, 1), round(write.rate, 1), rounded(tail.read_ms),
        rounded(tail.write_ms), watch.untrimmed_epochs)


def pools(watch: WatchState, context: WatchContext, options: Options) -> Tuple[PoolRow, ...]:
    slow = {(pool, kind) for pool, kind, _ in watch.pools.slow()}
    return tuple(_pool(watch, context, options, pool, tuple(sorted(
        kind for pool_id, kind in slow if pool_id == pool.id)))
        for pool in sorted(context.osdmap.pools.values(), key=lambda pool: pool.id))


def _pool(watch: WatchState, context: WatchContext, options: Options, pool: Pool,
          slow: Tuple[str, ...]) -> PoolRow:
    seen = watch.pools.latency(pool.id)
    named = named_target(options, pool.name)

    def limit(usual: Optional[float]) -> Optional[float]:
        return rounded(target_ms(usual, named, options, pool.id in watch.disk_pools))

    return PoolRow(
        pool=pool.name, id=pool.id, read_ms=ms(seen.read), write_ms=ms(seen.write),
        read_rate=round(seen.read.rate, 1), write_rate=round(seen.write.rate, 1),
        baseline_ms=rounded(seen.baseline_ms), read_baseline_ms=rounded(seen.read_baseline_ms),
        write_baseline_ms=rounded(seen.write_baseline_ms), target_ms=limit(seen.baseline_ms),
        read_target_ms=limit(seen.read_baseline_ms),
        write_target_ms=limit(seen.write_baseline_ms), slow=slow,
        pgs=trouble(context.signals.pool_counts.get(pool.id, PgCounts())),
        clients=watch.heavy_clients(pool.id) if slow else ())


def osds(watch: WatchState, context: WatchContext) -> Tuple[OsdRow, ...]:
    shares, verdicts = watch.slow.chronic.shares(), watch.slow.verdicts
    return tuple([_osd(watch, context, place, shares.get(osd), verdicts.get(osd) or OsdVerdict(osd))
                  for osd, place in sorted(watch.places.items())])


def _osd(watch: WatchState, context: WatchContext, place: OsdPlace,
         slow_share: Optional[float], verdict: OsdVerdict) -> OsdRow:
    osd = place.osd
    flows = watch.osds.flows(osd, context.now, context.period) or NO_FLOWS
    tail = watch.percentiles.of_osd(osd)
    return OsdRow(
        osd=osd, host=place.host, device_class=place.device_class, model=place.model,
        read_ms=ms(flows.read), write_ms=ms(flows.write), store_ms=ms(flows.commit),
        score=rounded(verdict.score, 2), slow=verdict.slow, why=verdict.why,
        causes=tuple(watch.causes_of(osd, context)) if verdict.slow else (),
        load=watch.load_of(osd, context),
        chronic=watch.slow.chronic.standing.get(osd), slow_time_ratio=rounded(slow_share, 4),
        since=verdict.since or None, read_rate=round(flows.read.rate, 1),
        write_rate=round(flows.write.rate, 1), read_p99_ms=rounded(tail.read_ms),
        write_p99_ms=rounded(tail.write_ms), ping_ms=rounded(watch.ping_ms.get(osd)),
        silent_seconds=rounded(watch.silent.get(osd), 1),
        pgs=trouble(watch.osd_counts.get(osd, _NO_COUNTS)), rack=place.rack)


def laggy(watch: WatchState, context: WatchContext) -> LaggyStatus:
    counts = context.signals.counts
    return LaggyStatus(counts.laggy, counts.wait, watch.laggy.since or None, watch.laggy.pgs.all(),
                       tuple(watch.laggy.suspects))


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


def chronic(found: Chronic) -> Json:
    return {'since': round(found.since, 1), 'raised': round(found.raised, 1),
            'last': round(found.last, 1), 'slow_time_ratio': round(found.share, 4),
            'episodes': found.episodes, 'slowdown': round(found.slowdown, 2), 'why': found.why}


def laggy_json(state: LaggyStatus) -> Json:
    """`laggy`."""
    return {
        'laggy_pgs': state.laggy_pgs, 'wait_pgs': state.wait_pgs, 'since': state.since,
        'pgs': [{'pgid': pg.pgid, 'acting': list(pg.acting), 'since': round(pg.since, 3),
                 'primary': pg.primary} for pg in state.pgs],
        'suspects': [suspect._asdict() for suspect in state.suspects]}


def history_json(what: str, points: Sequence[HistoryPoint]) -> Json:
    """Uses the first four columns, which all kinds of history share."""
    rows = []
    for point in points:
        read, write = (mean_flow([point], number, total) for number, total in (
            (READS, READ_NS), (WRITES, WRITE_NS)))
        rows.append({'time': round(point.end, 1), 'seconds': round(point.seconds, 1),
                     'read_ms': ms(read), 'write_ms': ms(write),
                     'read_rate': round(read.rate, 1), 'write_rate': round(write.rate, 1)})
    return {'of': what, 'points': rows}


#: Columns of an export; throughput in operations per second, latency in milliseconds.
EXPORTED = ('time', 'drive', 'host', 'class', 'model', 'kind', 'throughput', 'latency')
_EXPORTED_KINDS = (('reads', READS, READ_NS), ('writes', WRITES, WRITE_NS),
                   ('commits', COMMITS, COMMIT_NS))


def exported_json(what: str, histories: Sequence[Tuple[OsdRow, Sequence[HistoryPoint]]]) -> Json:
    """`histories`: OSDs with their points. Points without operations have no row."""
    rows: List[List[Any]] = []
    for osd, points in histories:
        who = ['osd.%d' % osd.osd, osd.host, osd.device_class, osd.model]
        for point in points:
            for kind, number, total in _EXPORTED_KINDS:
                flow = mean_flow([point], number, total)
                if flow.rate > 0.0:
                    rows.append([round(point.end, 1), *who, kind, round(flow.rate, 2),
                                 round(flow.ms, 4)])
    return {'of': what, 'columns': list(EXPORTED), 'rows': rows}
