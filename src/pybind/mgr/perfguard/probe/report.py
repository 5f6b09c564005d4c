# SPDX-License-Identifier: LGPL-2.1-or-later
"""The probes as commands show them: the state at the end of a turn, and reports based on it."""
import errno
from dataclasses import dataclass, field
from functools import partial
from typing import (Callable, Dict, Generic, Hashable, Iterator, List, Mapping, NamedTuple,
                    Optional, Sequence, Tuple, TypeVar)

from ..cluster.types import Json, OsdPlace
from ..errors import Refused
from ..watch.load import PoolUse
from .compare import (Interference, Rank, RunComparison, compare, interference,
                      interference_findings, outlier_text, rank, slow_in_pool)
from .curve import Curve, Scaling, curves, scalings, slower_alone
from .expectations import (Expected, Layout, Range, capacity_of, expect, expected_of,
                           last_measured)
from .fio_json import fio_json
from .headroom import Headroom, ProbedCurve, headroom, headroom_json
from .records import (ABORTED, CANCELLED, FAILED, POOL_PGS, REDUNDANCY, RunRecord,
                      differing_conditions)
from .schedules import Baselines, Regression, Schedule, schedule_to_json

#: Verdicts: more than any history that is shown at a time. Comparisons: one of runs on many OSDs
#: has hundreds of lines. Measurements of a run on many OSDs are megabytes.
MOST_VERDICTS, MOST_COMPARISONS, MOST_MEASURED = 1000, 20, 5

Result = TypeVar('Result')


class Results(Generic[Result]):
    """A cache of what is computed from records, which do not change: each viewer of the page
    requests twenty verdicts every few seconds, a comparison takes up to 2 s of CPU, and the
    measurements of a run on 200 OSDs almost one. For any thread."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        #: Ids of records -> these records, what else the result depends on, and the result.
        self._cached: Dict[Tuple[int, ...], Tuple[Tuple[RunRecord, ...], Hashable, Result]] = {}

    def of(self, records: Tuple[RunRecord, ...], basis: Hashable,
           compute: Callable[[], Result]) -> Result:
        """The result for these records: the cached one, or the one of `compute` if none is cached,
        one of the records is another object, or what else the result depends on (`basis`; None:
        nothing) has changed. Beyond the limit, the oldest results are forgotten."""
        ids = tuple(record.id for record in records)
        # (records, basis, result)
        cached = self._cached.get(ids)
        if cached is None or cached[1] != basis or any(
                old is not new for old, new in zip(cached[0], records)):
            cached = records, basis, compute()
            # Other threads may forget and cache results meanwhile.
            self._cached.pop(ids, None)
            for oldest in list(self._cached)[:max(0, len(self._cached) - self._limit + 1)]:
                self._cached.pop(oldest, None)
            self._cached[ids] = cached
        return cached[2]


class Measured(NamedTuple):
    """What the results of a run show, as in the answer of "probe show"."""
    document: Json
    ranks: Sequence[Rank]
    interference: Sequence[Interference]
    #: Texts on OSDs that were slow in a probe of a pool.
    slow: Sequence[str]


class Caches:
    """The caches of results, which the states of all turns share."""

    def __init__(self) -> None:
        self.verdicts: Results[str] = Results(MOST_VERDICTS)
        self.comparisons: Results[RunComparison] = Results(MOST_COMPARISONS)
        self.measured: Results[Measured] = Results(MOST_MEASURED)
        self.curves: Results[Tuple[ProbedCurve, ...]] = Results(MOST_VERDICTS)


def _verdict(record: RunRecord, device_class: str, layout: Layout) -> str:
    """How a run compares with its device class: "below" if any of its jobs is, else "above", else
    "as expected"; "no expectation" if none of them has one."""
    verdicts = {expectation.verdict for expectation in expect(record, device_class, layout)}
    for verdict in ('below', 'above', 'as expected'):
        if verdict in verdicts:
            return verdict
    return 'no expectation'


def _measured(record: RunRecord, device_class: str, layout: Layout,
              places: Mapping[int, OsdPlace]) -> Measured:
    """What "probe show" derives from the results of a run."""
    ranks = rank(record, places) if len(record.target.osds) > 1 else ()
    interferences = interference(record)
    return Measured({
        **fio_json(record.started, record.steps, record.results),
        'expected': [expectation._asdict() for expectation in expect(record, device_class, layout)],
        'osds': [osd_rank._asdict() for osd_rank in ranks],
        'interference': [row._asdict() for row in interferences],
        'curves': [_curve_json(curve) for curve in curves(record)],
        'scalings': [_scaling_json(scaling) for scaling in scalings(record)],
        'counted': [counters._asdict() for counters in record.counted]}, ranks, interferences,
        slow_in_pool(record, places))


def _pool_curves(record: RunRecord) -> Tuple[ProbedCurve, ...]:
    """The curves of the whole pool, not of single OSDs, for only reads or only writes."""
    pgs = record.setting.get(POOL_PGS, '')
    return tuple(ProbedCurve(record.id, record.ended, curve, record.beside,
                             int(pgs) if pgs.isdecimal() else 0, record.osds,
                             record.setting.get(REDUNDANCY, ''))
                 for curve in curves(record) if curve.osd is None and not curve.is_mixed)


class SlowerAlone(NamedTuple):
    """One operation at a time takes longer than several, in the newest probe with a curve."""
    probe: int
    #: Latencies in ms of one operation at a time, and of `depth` at a time.
    alone_ms: float
    shallow_ms: float
    depth: int


def no_such_probe(run: int) -> Refused:
    """The refusal for a run without a record."""
    return Refused(errno.ENOENT, 'probe %d does not exist (see "probe ls")' % run)


class ActiveProbe(NamedTuple):
    """The active probe, as `perfguard status` shows it."""
    id: int
    state: str
    target: str
    #: Share of the work that is done, 0 to 1.
    share: float
    text: str


@dataclass(frozen=True)
class Probed:
    """The probes as they are at the end of a turn, and the reports on them. For any thread."""
    #: Runs that have ended, oldest first; the active run, None: there is none.
    records: Tuple[RunRecord, ...] = ()
    running: Optional[RunRecord] = None
    schedules: Tuple[Schedule, ...] = ()
    #: Name of a schedule -> why its last run could not begin.
    refused: Mapping[str, str] = field(default_factory=dict)
    baselines: Baselines = Baselines()
    regressions: Tuple[Regression, ...] = ()
    places: Mapping[int, OsdPlace] = field(default_factory=dict)
    #: Name of a pool -> how its I/O is distributed.
    layouts: Mapping[str, Layout] = field(default_factory=dict)
    caches: Caches = field(default_factory=Caches, compare=False)

    def record_of(self, run: int) -> RunRecord:
        """The record of a run, also of the active one. Raises Refused if there is no such run."""
        for record in self._all_records():
            if record.id == run:
                return record
        raise no_such_probe(run)

    def _last_record(self) -> RunRecord:
        """The record of the newest run. Raises Refused if there is none."""
        records = self._all_records()
        if not records:
            raise Refused(errno.ENOENT, 'no probes')
        return records[-1]

    def _all_records(self) -> List[RunRecord]:
        return [*self.records, *([self.running] if self.running is not None else [])]

    # ---- the data of commands

    def listing(self, last: Optional[int] = None) -> Json:
        """The data of "probe ls". `last`: only of so many runs, the newest, and of all baselines;
        None: of all runs."""
        records = self._all_records()
        first = 0 if last is None else len(records) - last
        return {'probes': [self._summary(record) for number, record in enumerate(records)
                           if number >= first or record.id in self.baselines.ids]}

    def everything(self) -> Json:
        """The data of "probe ls", of all baselines and of all schedules."""
        return {**self.listing(), **self.baselines_json(), **self.schedules_json()}

    def _summary(self, record: RunRecord) -> Json:
        """A row of "probe ls", also of a run that is active."""
        return {'id': record.id, 'state': record.state, 'profile': record.profile,
                'target': record.target.key, 'created': record.created,
                'started': record.started, 'ended': record.ended, 'trigger': record.trigger,
                'baseline': record.id in self.baselines.ids,
                'client_limited': any(result.client_limited for result in record.results),
                'verdict': self._verdict(record),
                'message': record.messages[0] if record.messages else ''}

    def details(self, run: Optional[int]) -> Json:
        """fio's JSON with perfguard's findings. `run`: None: the newest. Raises Refused if there is
        no such run."""
        record = self._last_record() if run is None else self.record_of(run)
        device_class, layout = self._device_class(record), self._layout(record)
        measured = self.caches.measured.of(
            (record,), (device_class, layout, tuple(self.places.items())),
            lambda: _measured(record, device_class, layout, self.places))
        return {**measured.document, **self._summary(record),
                'findings': self._findings(record, measured),
                'conditions': list(record.conditions), 'messages': list(record.messages)}

    def _findings(self, record: RunRecord, measured: Measured) -> List[str]:
        """What is notable about a run, as texts: OSDs that are slow, interference, a regression,
        and why it was not compared with its baseline."""
        texts = [outlier_text(osd_rank) for osd_rank in measured.ranks if osd_rank.outlier]
        texts += [*interference_findings(measured.interference), *measured.slow]
        for regression in self.regressions:
            if regression.run == record.id:
                texts += ['slower than probe %d: %s' % (regression.baseline, line)
                          for line in regression.lines]
        return [*texts, *self._not_compared(record)]

    def _not_compared(self, record: RunRecord) -> List[str]:
        """A text if a run was not compared with its baseline because their conditions differ: after
        an upgrade, another result may be that of the release and not of the cluster. Empty: it was
        compared, or has no baseline before it."""
        baseline_id = self.baselines.of(record) if record.ended_well else None
        baseline = next((known for known in self.records if known.id == baseline_id), None)
        if baseline is None or baseline.id >= record.id:
            return []  # only later runs are compared with it
        conditions = '; '.join(differing_conditions(baseline, record))
        return ['not compared with baseline %d: %s. "probe baseline %d" makes this probe the '
                'baseline' % (baseline.id, conditions, record.id)] if conditions else []

    def _verdict(self, record: RunRecord) -> str:
        """The verdict in a list of probes: why the run was not completed, that it is slower than
        its baseline, or else how it compares with its device class."""
        if record.state in (ABORTED, CANCELLED, FAILED):
            return ': '.join((record.state, *record.messages[:1]))
        if any(regression.run == record.id for regression in self.regressions):
            return 'slower than its baseline'
        device_class, layout = self._device_class(record), self._layout(record)
        return self.caches.verdicts.of((record,), (device_class, layout),
                                       lambda: _verdict(record, device_class, layout))

    def _device_class(self, record: RunRecord) -> str:
        """The device class of all OSDs that took part, as far as they are up and in now; '' if they
        differ."""
        layout = self.layouts.get(record.target.pool)
        if layout is not None and layout.device_class and not record.target.osds:
            return layout.device_class  # the cluster may have others
        osds = record.target.osds or tuple(self.places)
        classes = {self.places[osd].device_class for osd in osds if osd in self.places}
        return classes.pop() if len(classes) == 1 else ''

    def _layout(self, record: RunRecord) -> Layout:
        """How the I/O of the run was distributed; in a pool that does not exist now, as that of the
        probe: over all OSDs."""
        default = Layout(len(self.places), record.target.replicas)
        return self.layouts.get(record.target.pool, default)

    def compared(self, before: int, after: int) -> Json:
        """The comparison of two probes. Raises Refused or NothingInCommon."""
        records = self.record_of(before), self.record_of(after)
        comparison = self.caches.comparisons.of(records, basis=None,
                                                compute=lambda: compare(*records))
        return {'before': before, 'after': after, 'verdict': comparison.verdict,
                'notes': list(comparison.notes), 'lines': [
                    {'job': line.label, 'verdict': line.verdict, 'p': line.p, 'why': line.why,
                     'repetitions': list(line.repetitions),
                     **{name: estimate._asdict() for name, estimate in line.estimates.items()}}
                    for line in comparison.lines]}

    def baselines_json(self) -> Json:
        return {'baselines': [
            {**self._summary(self.record_of(run)), 'slower': [
                {'probe': regression.run, 'why': list(regression.lines)}
                for regression in self.regressions if regression.baseline == run]}
            for run in sorted(self.baselines.ids & {record.id for record in self.records})]}

    def schedules_json(self) -> Json:
        return {'schedules': [{**schedule_to_json(schedule),
                               'refused': self.refused.get(schedule.name, '')}
                              for schedule in self.schedules]}

    # ---- What pools use of what they serve

    def _curves(self, *kinds: str) -> Iterator[Tuple[RunRecord, Tuple[ProbedCurve, ...]]]:
        """The completed runs on targets of these kinds, oldest first, each with its curves."""
        for record in self.records:
            if record.ended_well and record.target.kind in kinds:
                yield record, self.caches.curves.of((record,), basis=None,
                                                    compute=partial(_pool_curves, record))

    def slower_alone(self) -> Optional[SlowerAlone]:
        """What the newest probe with a curve of a whole pool or the cluster shows of one operation
        at a time; None: it is not slower than several, or there is no such probe."""
        for record, probed in reversed(list(self._curves('pool', 'cluster'))):
            for row in probed:
                alone_and_shallow = slower_alone(row.curve.points)
                if alone_and_shallow is not None:
                    alone, shallow = alone_and_shallow
                    return SlowerAlone(record.id, alone.latency_ns.median / 1e6,
                                       shallow.latency_ns.median / 1e6, shallow.depth)
            if probed:
                break  # older curves do not count
        return None

    def headrooms(self, uses: Sequence[PoolUse], now: float) -> List[Headroom]:
        """For each of `uses`, how much of its capacity, as its probes show it, the pool uses.
        `now`: seconds since the epoch."""
        curves_by_pool: Dict[str, List[ProbedCurve]] = {}
        for record, probed in self._curves('pool'):
            curves_by_pool.setdefault(record.target.pool, []).extend(probed)
        layouts = [self.layouts.get(use.pool) for use in uses]
        return [headroom(use, layout.osds if layout else 0, curves_by_pool.get(use.pool, ()), now,
                         layout.redundancy if layout else '')
                for use, layout in zip(uses, layouts)]

    def capacity_json(self, uses: Sequence[PoolUse], now: float) -> Json:
        return {'pools': [headroom_json(row, use)
                          for use, row in zip(uses, self.headrooms(uses, now))]}

    # ---- What the cluster is expected to achieve

    def expected_json(self) -> Json:
        """What one client is expected to achieve with each pool, next to what was last measured;
        and what each pool is expected to serve to all clients, and for how many VMs that
        suffices."""
        return {'pools': [{**_described(name, layout), 'expected': [
            self._expected_row(name, expected) for expected in expected_of(layout)]}
            for name, layout in self._subjects()],
            'capacity': [{**_described(name, layout), **_capacity(layout)}
                         for name, layout in sorted(self.layouts.items())]}

    def _subjects(self) -> List[Tuple[str, Layout]]:
        """The pools by name, each with its layout; before them '', the pool that probes of the
        cluster create, once there was such a probe."""
        last = next((record for record in reversed(self.records)
                     if record.target.kind == 'cluster'), None)
        own_pool = [] if last is None else [('', self._layout(last)._replace(
            device_class=self._device_class(last)))]
        return [*own_pool, *sorted(self.layouts.items())]

    def _expected_row(self, pool: str, expected: Expected) -> Json:
        """What is expected of a job on a pool ('': on that of a probe of the cluster), and what was
        last measured; null: nothing was."""
        probe, measured, verdict = last_measured(self.records, pool, expected) or (
            None, None, None)
        job, bounds = expected.key.job, expected.range
        return {'direction': expected.key.direction, 'bs': job.bs, 'iodepth': job.iodepth,
                'unit': 'bytes_per_second' if expected.linear else 'iops',
                'low': bounds.low, 'high': bounds.high,
                'probe': probe, 'measured': measured, 'verdict': verdict}


def _curve_json(curve: Curve) -> Json:
    """A curve in the answer of "probe show": latency against throughput, by queue depth."""
    return {'label': curve.label, 'direction': curve.direction, 'osd': curve.osd,
            'points': [{'depth': point.depth, 'iops': point.iops._asdict(),
                        'latency_ns': point.latency_ns._asdict(),
                        'p99_ns': point.p99_ns._asdict(),
                        'client_limited': point.client_limited} for point in curve.points],
            'knee_depth': curve.knee.depth, 'peak_depth': curve.peak.depth,
            'last_tenth': None if curve.price is None else {
                **curve.price._asdict(), 'times': curve.price.times},
            'notes': list(curve.notes)}


def _scaling_json(scaling: Scaling) -> Json:
    """A scaling in the answer of "probe show": throughput by number of OSDs."""
    return {'label': scaling.label, 'direction': scaling.direction,
            'points': [{**point._asdict(), 'iops': point.iops._asdict(),
                        'latency_ns': point.latency_ns._asdict()} for point in scaling.points],
            'notes': list(scaling.notes)}


def _described(name: str, layout: Layout) -> Json:
    return {'pool': name, 'device_class': layout.device_class, 'osds': layout.osds,
            'copies': '%d+%d' % (layout.data_chunks, layout.coding_chunks)
            if layout.data_chunks else '%dx' % layout.replicas}


def _capacity(layout: Layout) -> Json:
    """What a pool is expected to serve to all clients, and for how many VMs that suffices. Ranges
    are null if no figures of the device class are known."""
    capacity, tib = capacity_of(layout), layout.usable_tib
    ranges: Dict[str, Optional[Range]] = dict.fromkeys(
        ('read_iops', 'write_iops', 'write_iops_per_tib', 'linux_vms', 'windows_vms'))
    if capacity is not None:
        ranges.update(read_iops=capacity.read, write_iops=capacity.write,
                      write_iops_per_tib=capacity.write.times(1.0 / tib) if tib else None,
                      linux_vms=capacity.vms('linux'), windows_vms=capacity.vms('windows'))
    return {'usable_tib': tib, **{name: None if interval is None else interval._asdict()
                                  for name, interval in ranges.items()}}
