# SPDX-License-Identifier: LGPL-2.1-or-later
"""The state of the watch as the data of commands."""
from typing import Any, Dict, List, Optional, Sequence, Tuple

from ..cluster.types import PgCounts
from ..options import Options
from .osds import COMMIT_NS, COMMITS, NO_FLOWS
from .pools import named_target, target_ms
from .series import READ_NS, READS, WRITE_NS, WRITES, HistoryPoint, mean_flow, recent
from .state import WatchContext, WatchState
from .types import Flow, OsdVerdict

Json = Dict[str, Any]

#: Conditions of PGs that are shown.
_TROUBLE = ('laggy', 'wait', 'inactive', 'degraded', 'remapped', 'backfilling', 'backfill_wait',
            'backfill_toofull', 'recovering')


def ms(flow: Flow) -> Optional[float]:
    return round(flow.ms, 3) if flow.rate > 0.0 else None


def rounded(value: Optional[float], digits: int = 3) -> Optional[float]:
    return None if value is None else round(value, digits)


def trouble(counts: PgCounts) -> Json:
    """Conditions with at least one PG."""
    return {name: getattr(counts, name) for name in _TROUBLE if getattr(counts, name)}


def signals(watch: WatchState, context: WatchContext) -> Json:
    """Signals of the whole cluster in the last minute."""
    points = recent(watch.cluster.detailed, context.now, context.period)
    read = mean_flow(points, READS, READ_NS)
    write = mean_flow(points, WRITES, WRITE_NS)
    tail = watch.percentiles.of_cluster(context.now)
    return {'read_ms': ms(read), 'write_ms': ms(write),
            'read_rate': round(read.rate, 1), 'write_rate': round(write.rate, 1),
            'read_p99_ms': rounded(tail.read_ms), 'write_p99_ms': rounded(tail.write_ms),
            'untrimmed_osdmaps': watch.untrimmed_epochs}


def pools(watch: WatchState, context: WatchContext, options: Options) -> List[Json]:
    slow = {(pool, kind) for pool, kind, _ in watch.pools.slow()}
    rows = []
    for pool in sorted(context.osdmap.pools.values(), key=lambda pool: pool.id):
        seen = watch.pools.latency(pool.id)
        named = named_target(options, pool.name)
        usual = {'baseline_ms': seen.baseline_ms, 'read_baseline_ms': seen.read_baseline_ms,
                 'write_baseline_ms': seen.write_baseline_ms}
        rows.append({
            'pool': pool.name, 'id': pool.id, 'read_ms': ms(seen.read),
            'write_ms': ms(seen.write), 'read_rate': round(seen.read.rate, 1),
            'write_rate': round(seen.write.rate, 1),
            **{key: rounded(value) for key, value in usual.items()},
            **{key.replace('baseline', 'target'): rounded(
                target_ms(value, named, options, pool.id in watch.disk_pools))
               for key, value in usual.items()},
            'slow': sorted(kind for pool_id, kind in slow if pool_id == pool.id),
            'pgs': trouble(context.signals.pool_counts.get(pool.id, PgCounts()))})
    return rows


def osds(watch: WatchState, context: WatchContext) -> List[Json]:
    rows = []
    verdicts, shares = watch.slow.verdicts, watch.slow.chronic.shares()
    for osd, place in sorted(watch.places.items()):
        flows = watch.osds.flows(osd, context.now, context.period) or NO_FLOWS
        verdict = verdicts.get(osd, OsdVerdict(osd))
        tail = watch.percentiles.of_osd(osd)
        rows.append({
            'osd': osd, 'host': place.host, 'device_class': place.device_class,
            'model': place.model,
            'read_ms': ms(flows.read), 'write_ms': ms(flows.write), 'store_ms': ms(flows.commit),
            'score': rounded(verdict.score, 2), 'slow': verdict.slow, 'why': verdict.why,
            'causes': [{'code': cause.code, 'text': cause.text, 'evidence': dict(cause.evidence)}
                       for cause in watch.causes_of(osd, context)] if verdict.slow else [],
            'chronic': chronic(watch, osd), 'slow_time_ratio': rounded(shares.get(osd), 4),
            'since': verdict.since or None, 'read_rate': round(flows.read.rate, 1),
            'write_rate': round(flows.write.rate, 1), 'read_p99_ms': rounded(tail.read_ms),
            'write_p99_ms': rounded(tail.write_ms), 'ping_ms': rounded(watch.ping_ms.get(osd)),
            'silent_seconds': rounded(watch.silent.get(osd), 1),
            'pgs': trouble(watch.osd_counts.get(osd, PgCounts()))})
    return rows


def chronic(watch: WatchState, osd: int) -> Optional[Json]:
    """The raised verdict on a chronically slow OSD."""
    found = watch.slow.chronic.standing.get(osd)
    if found is None:
        return None
    return {'since': round(found.since, 1), 'raised': round(found.raised, 1),
            'last': round(found.last, 1), 'slow_time_ratio': round(found.share, 4),
            'episodes': found.episodes, 'slowdown': round(found.slowdown, 2), 'why': found.why}


def laggy(watch: WatchState, context: WatchContext) -> Json:
    counts = context.signals.counts
    return {
        'laggy_pgs': counts.laggy, 'wait_pgs': counts.wait,
        'since': watch.laggy.since or None,
        'pgs': [{'pgid': pg.pgid, 'acting': list(pg.acting), 'since': round(pg.since, 3),
                 'primary': pg.primary} for pg in watch.laggy.pgs.all()],
        'suspects': [{'osd': suspect.osd, 'score': suspect.score, 'why': suspect.why,
                      'advice': suspect.advice} for suspect in watch.laggy.suspects]}


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


def exported_json(what: str, histories: Sequence[Tuple[Json, Sequence[HistoryPoint]]]) -> Json:
    """`histories`: rows of osds() with their points. Points without operations have no row."""
    rows: List[List[Any]] = []
    for osd, points in histories:
        who = ['osd.%d' % osd['osd'], osd['host'], osd['device_class'], osd['model']]
        for point in points:
            for kind, number, total in _EXPORTED_KINDS:
                flow = mean_flow([point], number, total)
                if flow.rate > 0.0:
                    rows.append([round(point.end, 1), *who, kind, round(flow.rate, 2),
                                 round(flow.ms, 4)])
    return {'of': what, 'columns': list(EXPORTED), 'rows': rows}
