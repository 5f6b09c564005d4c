# SPDX-License-Identifier: LGPL-2.1-or-later
"""How much of what a pool can serve its clients use: their load against the probed curves. Pure.

A pool serves as many operations per second as the curve has at the p99 that is allowed, linear
between two depths. Reads and writes share the same OSDs, so that their shares add up; so do those
of other pools on these OSDs, which count like operations of the pool. A probe measures what was
left beside the clients: their operations at that time are added to what it reached.

Bounds are from the lowest and the highest repetition.
"""
from dataclasses import dataclass, replace
from shlex import quote
from typing import Callable, Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from ..cluster.types import Json
from ..watch.load import LEAST_DAYS, PoolUse, Rates
from .curve import Curve, CurvePoint, Measure
from .stats import READ, WRITE

#: Age of a curve from which it may no longer be true.
OLD_CURVE_SECONDS = 30 * 86400.0
#: Ratio of the mean size of operations to that of the probe from which they are not comparable.
UNLIKE_SIZE_RATIO = 2.0
#: Share of the operations from which a direction without a curve matters.
COUNTED_SHARE = 0.1
#: Times as long as its history, up to which growth is extended.
MOST_EXTENDED = 4

#: Remarks: code -> text. The first ones leave no share.
TEXTS: Mapping[str, str] = {
    'NO_CURVE': 'no probe has measured it: "ceph perfguard probe run curve --pool %(pool)s"',
    'NO_WRITE_CURVE': 'writes were not probed: "ceph perfguard probe run curve --pool %(pool)s"',
    'OVER_AT_ONCE': 'p99 is %(p99_ms).1f ms at the lowest depth of probe %(probe)d: raise '
                    'capacity_p99_ms to see a share',
    'UNLIKE_SIZE': '%(direction)ss have %(bytes)d bytes, those of probe %(probe)d %(probed)d: the '
                   'share is a guess; probe with --bs %(bytes)d',
    'READS_AS_WRITES': 'reads were not probed and count as writes: the share is an upper bound; '
                       '"ceph perfguard probe run curve --pool %(pool)s --rw randread"',
    'OPEN_END': 'probe %(probe)d has not reached the p99: the share is an upper bound',
    'CLIENT_LIMITED': 'the CPU of probe %(probe)d was the bottleneck: the share is an upper bound',
    'OLD': 'probe %(probe)d is %(days)d days old',
    'OTHER_PGS': 'the pool has %(pg_num)d PGs, and had %(before)d in probe %(probe)d',
    'OTHER_OSDS': 'the pool has %(osds)d OSDs, and had %(before)d in probe %(probe)d',
    'OTHER_REDUNDANCY': 'the redundancy of the pool is %(redundancy)s, and was %(before)s in probe '
                        '%(probe)d',
    'SHORT_HISTORY': 'growth is known after %(least)d days of readings (so far %(days)d)',
}
#: With one of these, the share may be wrong by more than its bounds: it has no metric.
UNCERTAIN_CODES = frozenset({'UNLIKE_SIZE', 'OLD', 'OTHER_PGS', 'OTHER_OSDS', 'OTHER_REDUNDANCY'})


class Remark(NamedTuple):
    code: str
    #: By name, as in TEXTS.
    values: Mapping[str, object]

    @property
    def text(self) -> str:
        # The pool is a word of a command.
        return TEXTS[self.code] % {name: quote(str(value)) if name == 'pool' else value
                                   for name, value in self.values.items()}


class ServedOps(NamedTuple):
    """Operations per second that a curve reaches at the p99 that is allowed."""
    ops: Measure
    #: Why the pool can do more: codes of TEXTS.
    causes: Tuple[str, ...] = ()


class ProbedCurve(NamedTuple):
    """A curve of a pool, with the conditions of its probe."""
    probe: int
    ended: float
    curve: Curve
    #: Operations per second of clients on the same OSDs when it began.
    beside: float = 0.0
    #: PGs and OSDs of the pool; 0: not known.
    pg_num: int = 0
    osds: int = 0
    #: As records.redundancy_text; '': not known.
    redundancy: str = ''


@dataclass(frozen=True)
class Headroom:
    """How much of what it can serve a pool uses."""
    pool: str
    p99_ms: float
    #: Operations per second of clients of the pool; of others on its OSDs.
    ops: float
    others: float
    remarks: Tuple[Remark, ...] = ()
    #: The newest probe that it is computed from.
    probe: Optional[int] = None
    #: Operations per second that it serves in the present mix of reads and writes; None: not known,
    #: and neither are the shares.
    capacity: Optional[Measure] = None
    #: Shares of this capacity, from 0.0: of the present operations of the pool and of others on its
    #: OSDs; of those of the pool alone; and of all in its busiest hour in seven days.
    used: Optional[Measure] = None
    alone: Optional[float] = None
    busiest: Optional[float] = None
    #: Seconds until the busiest hour uses it all; None: it does not grow, or that is not known.
    full_seconds: Optional[float] = None

    @property
    def certain(self) -> bool:
        """Whether no remark doubts the shares."""
        return not UNCERTAIN_CODES & {remark.code for remark in self.remarks}


# ---- One curve

def capacity(points: Sequence[CurvePoint], p99_ms: float) -> Optional[ServedOps]:
    """The operations per second at which a curve reaches this p99, its lower bound from the worst
    repetitions, its upper one from the best; None: the lowest depth is above it already. `points`:
    by queue depth."""
    limit_ns = 1e6 * p99_ms
    middle = _reached(points, limit_ns, lambda point: point.iops.median,
                      lambda point: point.p99_ns.median)
    if middle is None:
        return None
    ops, is_open_end = middle
    worst = _reached(points, limit_ns, lambda point: point.iops.low,
                     lambda point: point.p99_ns.high)
    best = _reached(points, limit_ns, lambda point: point.iops.high,
                    lambda point: point.p99_ns.low)
    causes = ['OPEN_END'] if is_open_end else []
    if any(point.client_limited for point in points if point.p99_ns.median <= limit_ns):
        causes.append('CLIENT_LIMITED')
    low, high = worst[0] if worst else points[0].iops.low, best[0] if best else ops
    return ServedOps(Measure(ops, min(ops, low), max(ops, high)), tuple(causes))


def _reached(points: Sequence[CurvePoint], limit_ns: float, ops: Callable[[CurvePoint], float],
             p99: Callable[[CurvePoint], float]) -> Optional[Tuple[float, bool]]:
    """The operations per second that the curve reaches within the limit of p99, and whether it ends
    below the limit with its highest throughput: it may reach more. None: the lowest depth is above
    the limit. `ops` and `p99` read the operations per second and the p99 (ns) of a point."""
    best = 0.0
    for number, point in enumerate(points):
        if p99(point) > limit_ns:
            if not number:
                return None
            before = points[number - 1]
            share = (limit_ns - p99(before)) / (p99(point) - p99(before))
            return max(best, ops(before) + share * (ops(point) - ops(before))), False
        best = max(best, ops(point))
    return best, len(points) > 1 and ops(points[-1]) >= best


# ---- One pool

def headroom(use: PoolUse, osds: int, curves: Sequence[ProbedCurve], now: float,
             redundancy: str = '') -> Headroom:
    """How much of its capacity a pool uses. If no probe has measured what most of its operations
    do, only a remark says why. `osds`, `redundancy`: of the pool now, as in ProbedCurve; `curves`:
    of the pool, oldest first; `now`: seconds since the epoch."""
    blank = Headroom(use.pool, use.p99_ms, use.now.ops, use.others)
    by_direction: Dict[str, Tuple[ProbedCurve, ServedOps]] = {}
    remarks: Dict[str, Remark] = {}
    for direction, ops, byte_rate in ((READ, use.now.reads, use.now.read_bytes),
                                      (WRITE, use.now.writes, use.now.write_bytes)):
        mean_bytes = byte_rate / ops if ops else 0.0
        best = _fitting(curves, direction, mean_bytes)
        if best is None:
            continue
        served = capacity(best.curve.points, use.p99_ms)
        if served is None:
            return replace(blank, remarks=(Remark('OVER_AT_ONCE', {
                'p99_ms': best.curve.points[0].p99_ns.median / 1e6, 'probe': best.probe}),))
        by_direction[direction] = best, served
        if ops >= COUNTED_SHARE * use.now.ops:
            remarks.update((remark.code, remark)
                           for remark in _doubts(use.pg_num, osds, redundancy, best, served,
                                                 mean_bytes, now))
    if not by_direction:
        return replace(blank, remarks=(Remark('NO_CURVE', {'pool': use.pool}),))
    if WRITE not in by_direction and use.now.writes > COUNTED_SHARE * use.now.ops:
        return replace(blank, remarks=(Remark('NO_WRITE_CURVE', {'pool': use.pool}),))
    if READ not in by_direction and use.now.reads > COUNTED_SHARE * use.now.ops:
        remarks['READS_AS_WRITES'] = Remark('READS_AS_WRITES', {'pool': use.pool})
    if use.growth.days < LEAST_DAYS:
        remarks['SHORT_HISTORY'] = Remark('SHORT_HISTORY', {'least': LEAST_DAYS,
                                                            'days': use.growth.days})
    # A direction without a curve uses that of the other one.
    either = next(iter(by_direction.values()))
    return _computed(blank, use, {READ: either, WRITE: either, **by_direction},
                     tuple(remarks.values()))


def _fitting(curves: Sequence[ProbedCurve], direction: str, mean_bytes: float
             ) -> Optional[ProbedCurve]:
    """The newest curve of the direction with operations of such a size, else the newest of the
    direction; None: there is none. `mean_bytes`: of an operation of clients, 0.0: there are none.
    """
    of_direction = [row for row in curves if row.curve.direction == direction]
    alike = [row for row in of_direction if mean_bytes and _are_alike(row.curve.bs, mean_bytes)]
    return next(reversed(alike or of_direction), None)


def _are_alike(probed_bytes: float, mean_bytes: float) -> bool:
    return 1.0 / UNLIKE_SIZE_RATIO <= mean_bytes / probed_bytes <= UNLIKE_SIZE_RATIO


def _doubts(pg_num: int, osds: int, redundancy: str, best: ProbedCurve, served: ServedOps,
            mean_bytes: float, now: float) -> List[Remark]:
    """Why the capacity of a pool may differ from what the curve `best` shows: `served` is only a
    bound, or the operations, the age of the probe or the pool are not those of the probe."""
    doubts = [Remark(code, {'probe': best.probe}) for code in served.causes]
    if mean_bytes and not _are_alike(best.curve.bs, mean_bytes):
        doubts.append(Remark('UNLIKE_SIZE', {
            'direction': best.curve.direction, 'bytes': round(mean_bytes),
            'probed': best.curve.bs, 'probe': best.probe}))
    if now - best.ended > OLD_CURVE_SECONDS:
        doubts.append(Remark('OLD', {'probe': best.probe, 'days': (now - best.ended) // 86400.0}))
    conditions: Sequence[Tuple[str, str, object, object]] = (
        ('OTHER_PGS', 'pg_num', pg_num, best.pg_num), ('OTHER_OSDS', 'osds', osds, best.osds),
        ('OTHER_REDUNDANCY', 'redundancy', redundancy, best.redundancy))
    for code, name, present, before in conditions:
        if before not in (0, '', present):  # else it is the same, or not known
            doubts.append(Remark(code, {name: present, 'before': before, 'probe': best.probe}))
    return doubts


def _computed(blank: Headroom, use: PoolUse,
              by_direction: Mapping[str, Tuple[ProbedCurve, ServedOps]],
              remarks: Sequence[Remark]) -> Headroom:
    """The headroom of a pool from its use, and the curves of its reads and writes."""
    (read_curve, reads), (write_curve, writes) = by_direction[READ], by_direction[WRITE]

    def served(rates: Rates) -> Measure:
        """Operations per second that the pool serves in this mix of reads and writes; without
        operations, in a mix of writes alone. Clients beside a probe were served in addition to it.
        """
        read_share = rates.reads / rates.ops if rates.ops else 0.0
        return Measure(*(1.0 / (read_share / (read_ops + read_curve.beside)
                                + (1.0 - read_share) / (write_ops + write_curve.beside))
                         for read_ops, write_ops in zip(reads.ops, writes.ops)))

    serves, serves_at_peak = served(use.now), served(use.busiest).median
    ops, ops_at_peak = use.now.ops + use.others, use.busiest.ops + use.others
    full_seconds = None
    if use.growth.per_day is not None:
        # A short history says nothing about a distant future.
        days = max(0.0, serves_at_peak - ops_at_peak) / use.growth.per_day
        full_seconds = 86400.0 * days if days <= MOST_EXTENDED * use.growth.days else None
    return replace(
        blank, remarks=tuple(remarks), probe=max(read_curve.probe, write_curve.probe),
        capacity=serves, used=Measure(ops / serves.median, ops / serves.high, ops / serves.low),
        alone=use.now.ops / serves.median, busiest=ops_at_peak / serves_at_peak,
        full_seconds=full_seconds)


# ---- JSON

def headroom_json(row: Headroom, use: PoolUse) -> Json:
    """The row of a pool in Probed.capacity_json. Shares are from 0; null: not known."""
    return {**{name: value._asdict() if isinstance(value, Measure) else value
               for name, value in vars(row).items()},
            'certain': row.certain, 'days': use.growth.days, 'growth_per_day': use.growth.per_day,
            'now': use.now._asdict(), 'busiest_hour': use.busiest._asdict(),
            'remarks': [{'code': remark.code, 'text': remark.text} for remark in row.remarks]}
