# SPDX-License-Identifier: LGPL-2.1-or-later
"""The whole page that Prometheus reads, in its text format, version 0.0.4."""
import math
from collections import Counter
from statistics import median
from typing import (Callable, Dict, Iterable, List, Mapping, NamedTuple, Optional, Sequence, Tuple,
                    Union)

from ..cluster.types import Signals
from ..mitigation.report import MitigationListing
from ..mitigation.types import Rung, StepStage
from ..probe.records import CANCELLED, RunRecord
from ..probe.report import Probed
from ..probe.stats import Key, Repetition, measured
from ..probe.types import Target
from ..rebalance.pinning import lastingly_unpinnable
from ..rebalance.report import Rebalanced
from ..rebalance.types import Phase
from ..status import Published
from ..watch.report import ClusterRow, LaggyStatus, OsdRow, PoolRow
from .catalogue import CATALOGUE, CHECK_CODES, METRIC_PREFIX

# ---- The text format

CONTENT_TYPE = 'text/plain; version=0.0.4; charset=utf-8'

#: Labels in the format between braces, and the value; None: no value.
Sample = Tuple[str, Optional[float]]
#: Samples by the name of the metric without the prefix.
Samples = Mapping[str, Iterable[Sample]]

#: Characters that end the value of a label or its line; a carriage return does not.
_ESCAPES = str.maketrans({'\\': '\\\\', '"': '\\"', '\n': '\\n'})


def labels(**values: object) -> str:
    """Labels in the format between braces; labels without a value are left out."""
    return ','.join('%s="%s"' % (name, str(value).translate(_ESCAPES))
                    for name, value in values.items() if value not in (None, ''))


def joined(*parts: str) -> str:
    return ','.join(filter(None, parts))


def state_set(name: str, states: Iterable[str], current: str) -> List[Sample]:
    return [(labels(**{name: state}), state == current) for state in states]


def seconds(ms: Optional[float]) -> Optional[float]:
    # Without digits that the division adds.
    return None if ms is None else round(ms / 1000.0, 9)


def render(samples: Samples) -> bytes:
    """The samples as Prometheus reads them, in the order of the catalogue. Metrics without a value
    are left out. Raises KeyError for metrics that are not in the catalogue."""
    remaining = dict(samples)
    lines: List[str] = []
    for metric in CATALOGUE:
        rows = _values(remaining.pop(metric.name, ()))
        if rows:
            name = METRIC_PREFIX + metric.name
            lines += ['# HELP %s %s' % (name, metric.help), '# TYPE %s gauge' % name]
            lines += ['%s{%s} %s' % (name, key, value) if key else '%s %s' % (name, value)
                      for key, value in rows.items()]
    if remaining:
        raise KeyError('not in the catalogue: %s' % ', '.join(sorted(remaining)))
    # Ceph passes bytes that are not UTF-8 as surrogates.
    return ('\n'.join(lines) + '\n').encode('utf-8', 'replace')


def _values(samples: Iterable[Sample]) -> Dict[str, str]:
    """Labels -> the first value with them, as text, without None: Prometheus refuses a page with
    duplicates."""
    values: Dict[str, str] = {}
    for key, value in samples:
        if value is not None:
            values.setdefault(key, _number(value))
    return values


def _number(value: float) -> str:
    """A value as Prometheus reads it."""
    if isinstance(value, float):
        if math.isnan(value):
            return 'NaN'
        if math.isinf(value):
            return '+Inf' if value > 0 else '-Inf'
        return repr(value)
    return '%d' % value


# ---- All metrics

#: Samples of metrics, by the metric's name without the prefix.
SamplesByMetric = Dict[str, List[Sample]]

# ---- Metrics of the campaign and of the mitigation

MODES = ('off', 'observe', 'act')
#: States of mitigations that have a metric; in other states, nothing is borrowed.
STEP_STATES = (StepStage.HELD.value, StepStage.WOULD.value, StepStage.UNDOING.value)


def campaign_samples(rebalanced: Rebalanced) -> SamplesByMetric:
    """The samples of the current campaign, by name of the metric."""
    status, campaign = rebalanced.status, rebalanced.campaign
    counts = [('pinned', status.pinned), ('in_flight', status.in_flight),
              ('released', status.released), ('kept', status.kept),
              ('unpinnable', len(lastingly_unpinnable(campaign)))]
    samples: SamplesByMetric = {
        'idle_osds': [('', rebalanced.idle_osds)],
        'campaign_phase': state_set('phase', [phase.value for phase in Phase],
                                    status.phase.value),
        'campaign_pgs': [(labels(state=state), count) for state, count in counts],
        'campaign_limited_ratio': [(labels(reason=code), share)
                                   for code, share in status.limit_shares.items()]}
    single = {
        'active': campaign.active, 'id': status.id, 'paused': status.paused,
        'waits_for_window': status.waits_for_window, 'size_pgs': status.total,
        'limit_pgs': status.limit, 'size_bytes': status.bytes_total,
        'moved_bytes': status.bytes_done,
        'eta_seconds': None if status.eta is None else status.eta.seconds,
        'started_timestamp_seconds': status.started or None,
        'progress_timestamp_seconds': max(
            campaign.progress.progressed, campaign.phase_since) or None,
        'stall_seconds': status.stall_seconds}
    for name, value in single.items():
        samples['campaign_' + name] = [('', value)]
    return samples


def mitigation_samples(listing: MitigationListing) -> SamplesByMetric:
    counts = Counter((row.rung, row.state) for row in listing.rungs)
    return {
        'mitigation_mode': state_set('mode', MODES, listing.mode),
        'mitigations': [
            (labels(mitigation=rung.value.replace(' ', '_'), state=state), counts[rung, state])
            for rung in Rung for state in STEP_STATES]}


# ---- Metrics of the watch: the cluster, its pools and OSDs, laggy PGs

OPERATIONS = ('read', 'write')
OP_LABELS = {op: labels(op=op) for op in (*OPERATIONS, 'store')}
#: The names of slow operations in the rows of `pools`.
OPERATION_KINDS = {'read': 'reads', 'write': 'writes'}
#: Conditions of PGs, as PgCounts names them.
CONDITIONS = ('active_clean', 'laggy', 'wait', 'inactive', 'degraded', 'remapped', 'backfilling',
              'backfill_wait', 'backfill_toofull', 'recovering', 'deep_scrubbing')


def cluster_samples(signals: Optional[Signals], clients: Optional[ClusterRow]) -> SamplesByMetric:
    """The samples of the cluster as a whole, by name of the metric. `signals`: None before the
    first turn; `clients`: None while the watch cannot read its input."""
    if signals is None:
        return {}
    return {
        'pgs': [(labels(state=name), getattr(signals.counts, name)) for name in CONDITIONS],
        'cluster_pgs': [('', signals.counts.total)],
        'misplaced_ratio': [('', signals.misplaced_ratio)],
        'slow_ops': [('', signals.slow_ops)],
        'recovery_bytes_per_second': [('', signals.recovery_bytes_per_second)],
        'untrimmed_osdmaps': [('', None if clients is None else
                               clients.untrimmed_osdmaps)],
        'client_latency_seconds': _by_op(clients, '_ms'),
        'client_latency_p99_seconds': _by_op(clients, '_p99_ms'),
        'client_ops_per_second': [(OP_LABELS[op], getattr(clients, op + '_rate', None))
                                  for op in OPERATIONS]}


def _by_op(row: Union[ClusterRow, PoolRow, OsdRow, None], suffix: str, who: str = '',
           ops: Sequence[str] = OPERATIONS) -> List[Sample]:
    """For each operation, a sample in seconds of the field of `row` that is named after it and
    `suffix`, such as read_ms. `who`: labels that precede that of the operation. Without a row or
    such a field, the value is None."""
    return [(joined(who, OP_LABELS[op]), seconds(getattr(row, op + suffix, None))) for op in ops]


def pool_samples(rows: Sequence[PoolRow]) -> SamplesByMetric:
    """The samples of the latency of pools, by name of the metric."""
    samples: SamplesByMetric = {}
    for row in rows:
        who = labels(pool_id=row.id, name=row.pool)
        for name, suffix in (('pool_latency_seconds', '_ms'),
                             ('pool_latency_baseline_seconds', '_baseline_ms'),
                             ('pool_latency_limit_seconds', '_target_ms')):
            samples.setdefault(name, []).extend(_by_op(row, suffix, who))
        for op, rate in zip(OPERATIONS, (row.read_rate, row.write_rate)):
            key = joined(who, OP_LABELS[op])
            samples.setdefault('pool_ops_per_second', []).append((key, rate))
            samples.setdefault('pool_slow', []).append((key, OPERATION_KINDS[op] in row.slow))
    return samples


def capacity_samples(published: Published, probed: Probed) -> SamplesByMetric:
    """The samples of the capacity of pools, by name of the metric; only of pools that a probe has
    measured under the present conditions."""
    uses = published.watched.uses
    rows = [(labels(pool_id=use.id, name=use.pool), row)
            for use, row in zip(uses, probed.headrooms(uses, now=published.turned)) if row.certain]
    return {'pool_capacity_used_ratio': [
                (who, None if row.used is None else round(row.used.median, 4))
                for who, row in rows],
            'pool_capacity_full_seconds': [(who, row.full_seconds) for who, row in rows]}


def osd_samples(rows: Sequence[OsdRow]) -> SamplesByMetric:
    """The samples of the latency and slowness of OSDs, by name of the metric."""
    samples: SamplesByMetric = {}
    for row in rows:
        who = labels(ceph_daemon='osd.%d' % row.osd, hostname=row.host,
                     device_class=row.device_class)
        samples.setdefault('osd_latency_seconds', []).extend(
            _by_op(row, '_ms', who, (*OPERATIONS, 'store')))
        samples.setdefault('osd_latency_p99_seconds', []).extend(_by_op(row, '_p99_ms', who))
        samples.setdefault('osd_ops_per_second', []).extend(
            (joined(who, OP_LABELS[op]), rate)
            for op, rate in zip(OPERATIONS, (row.read_rate, row.write_rate)))
        for name, value in (
                ('osd_slowdown_ratio', row.score), ('osd_slow', row.slow),
                ('osd_chronically_slow', row.chronic is not None),
                ('osd_slow_time_ratio', row.slow_time_ratio),
                ('osd_ping_seconds', seconds(row.ping_ms)),
                ('osd_silent_seconds', row.silent_seconds),
                ('osd_laggy_pgs', row.pgs.get('laggy', 0))):
            samples.setdefault(name, []).append((who, value))
    return samples


def suspect_samples(laggy: LaggyStatus) -> SamplesByMetric:
    return {'osd_laggy_suspect_score': [
        (labels(ceph_daemon='osd.%d' % suspect.osd), suspect.score) for suspect in laggy.suspects]}


# ---- Metrics of probes: the last result of each target and profile

#: Maximum number of targets and profiles on the page: the last ones that were probed.
MAX_SUBJECTS = 20
#: Maximum number of measurements in total: a probe of each OSD has one for each OSD, job and
#: direction.
MAX_MEASURED = 2000
#: Maximum number of OSDs that the name of a target lists.
MAX_NAMED = 8
#: Profile of probes whose jobs were given as options or in a file.
CUSTOM = 'custom'


class Measurement(NamedTuple):
    """One direction of one job: the median of its repetitions."""
    labels: str
    #: Zero if not measured, as by the bench of an OSD's store.
    latency: float
    p99: float
    ops: float
    bytes: float


class ProbeMetrics:
    """Caches the measurements of finished probes, as computing them reads all repetitions."""

    def __init__(self) -> None:
        #: By the id of the probe, and when it has ended.
        self._known: Dict[Tuple[int, float], Tuple[Measurement, ...]] = {}

    def samples(self, probed: Probed) -> SamplesByMetric:
        """The samples of probes, by name of the metric."""
        last, completed = _last(probed.records)
        slower = {regression.run for regression in probed.regressions}
        with_baseline = [(subject, record) for subject, record in completed.items()
                         if probed.baselines.of(record) is not None]
        rows = self._measurements(completed)
        return {
            'probe_running': [('', probed.running is not None)],
            'probe_success': [(subject, record.ended_well) for subject, record in last.items()],
            'probe_ended_timestamp_seconds': [
                (subject, record.ended) for subject, record in last.items()],
            'probe_regression': [(subject, record.id in slower)
                                 for subject, record in with_baseline],
            'probe_latency_seconds': [(row.labels, row.latency or None) for row in rows],
            'probe_latency_p99_seconds': [(row.labels, row.p99 or None) for row in rows],
            'probe_ops_per_second': [(row.labels, row.ops) for row in rows],
            'probe_bytes_per_second': [(row.labels, row.bytes) for row in rows],
            'probe_schedule_refused': [
                (labels(schedule=schedule.name), bool(probed.refused.get(schedule.name)))
                for schedule in probed.schedules]}

    def _measurements(self, completed: Dict[str, RunRecord]) -> List[Measurement]:
        """The measurements of the probes that completed, by labels; at most MAX_MEASURED. Those of
        the last call are not computed again."""
        measurements: Dict[Tuple[int, float], Tuple[Measurement, ...]] = {}
        for subject, record in completed.items():
            key = (record.id, record.ended)
            measurements[key] = (
                self._known[key] if key in self._known else _measure(subject, record))
        self._known = measurements
        return [row for rows in measurements.values() for row in rows][:MAX_MEASURED]


def _last(records: Tuple[RunRecord, ...]) -> Tuple[Dict[str, RunRecord], Dict[str, RunRecord]]:
    """(last probe, last probe that completed), each by the labels of target and profile, the newest
    first, of at most MAX_SUBJECTS. Cancelled probes do not count. `records`: the newest last."""
    last: Dict[str, RunRecord] = {}
    completed: Dict[str, RunRecord] = {}
    for record in reversed(records):
        if record.state == CANCELLED:
            continue
        subject = labels(measured=target_text(record.target), profile=record.profile or CUSTOM)
        if subject not in last and len(last) == MAX_SUBJECTS:
            continue
        last.setdefault(subject, record)
        if record.ended_well:
            completed.setdefault(subject, record)
    return last, completed


def target_text(target: Target) -> str:
    """The name of a target in `probe ls`, except that lists of more than MAX_NAMED OSDs become
    their number."""
    if len(target.osds) <= MAX_NAMED:
        return target.key
    listed, short = ','.join(map(str, target.osds)), '%d OSDs' % len(target.osds)
    return ':'.join(short if part == listed else part for part in target.key.split(':'))


def _measure(subject: str, record: RunRecord) -> Tuple[Measurement, ...]:
    return tuple(_measurement(subject, key, repetitions)
                 for key, repetitions in measured(record.done).items())


def _measurement(subject: str, key: Key, repetitions: List[Repetition]) -> Measurement:
    """The medians of the repetitions of one job. Latencies are in seconds."""
    who = labels(probe_job=repetitions[0].name, op=key.direction, part=key.part,
                 ceph_daemon=None if key.osd is None else 'osd.%d' % key.osd)
    return Measurement(
        joined(subject, who),
        latency=round(median(repetition.latency_ns for repetition in repetitions) / 1e9, 9),
        p99=round(median(repetition.p99_ns for repetition in repetitions) / 1e9, 9),
        ops=median(repetition.iops for repetition in repetitions),
        bytes=median(repetition.bytes_per_second for repetition in repetitions))


# ---- The page

class Build(NamedTuple):
    """The version and the mgr that serve the metrics."""
    version: str
    ceph_version: str
    #: As in "mgr.x".
    daemon: str


def _by_wall_clock(samples: Samples, clock_set: float) -> Samples:
    """The samples with all timestamps on the wall clock, with which Prometheus compares them.
    `clock_set`: seconds by which the wall clock was set since the mgr's own clock (clock.py)
    started."""
    return {name: [(key, value and value + clock_set) for key, value in rows]
            if name.endswith('_timestamp_seconds') else rows for name, rows in samples.items()}


class MetricsPage:
    """The page with all metrics, rendered on request from the state that the loop published last,
    once per state: no lock is needed, and repeated scrapes are cheap. For one thread."""

    def __init__(self, build: Callable[[], Build]) -> None:
        self._build = build
        self._probes = ProbeMetrics()
        #: The state of the last page, and the page; None: none was rendered.
        self._rendered: Optional[Tuple[Published, Probed, bytes]] = None

    def page(self, published: Published, probed: Probed) -> bytes:
        """The page as Prometheus reads it, in UTF-8."""
        cached = self._rendered
        if cached is None or cached[0] is not published or cached[1] is not probed:
            cached = self._rendered = published, probed, self._render(published, probed)
        return cached[2]

    def _render(self, published: Published, probed: Probed) -> bytes:
        """For `page`. Before the first turn (`turned` is 0.0), no campaign is known."""
        samples: Dict[str, Iterable[Sample]] = dict(self._module_samples(published))
        for part in (campaign_samples(published.rebalanced) if published.turned else {},
                     mitigation_samples(published.mitigated.listing),
                     cluster_samples(published.status.signals, published.watched.signals),
                     pool_samples(published.watched.pools), capacity_samples(published, probed),
                     osd_samples(published.watched.osds),
                     suspect_samples(published.watched.laggy), self._probes.samples(probed)):
            samples.update(part)
        return render(_by_wall_clock(samples, published.clock_set))

    def _module_samples(self, published: Published) -> SamplesByMetric:
        """The samples of perfguard itself, by name of the metric."""
        build, status = self._build(), published.status
        samples: SamplesByMetric = {
            'info': [(labels(version=build.version, ceph_version=build.ceph_version,
                             ceph_daemon=build.daemon), 1)],
            'health_check': [(labels(name=name), name in status.health) for name in CHECK_CODES]}
        if published.turned:
            samples['last_loop_timestamp_seconds'] = [('', published.turned)]
            samples['loop_cpu_seconds'] = [('', round(status.turn_cpu_ms / 1000.0, 9))]
        return samples
