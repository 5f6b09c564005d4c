# SPDX-License-Identifier: LGPL-2.1-or-later
"""The expected performance of a pool or the cluster, and whether a run has reached it. Pure.

The figures are published by practitioners (Mark Nelson's and Clyso's published performance
tests of 2023 and 2024, the Ceph performance pages of yourcmc.ru): ranges, not limits. They are of
one OSD; depth-1 operations average over OSDs, deep queues and linear I/O add up.
"""
from typing import Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from ..observation import Observation
from ..text import plural
from ..watch.peers import median
from .records import CLIENTS, RunRecord, redundancy_text
from .stats import READ, WRITE, JobWords, Key, Repetition, figure_text, label, measured
from .types import ALONE, READING, WRITING

AS_EXPECTED, BELOW, ABOVE, NO_EXPECTATION = ('as expected', 'below', 'above', 'no expectation')

SMALL_BYTES = 4096
#: A job is linear from this size and depth on.
LINEAR_BYTES = 1 << 20
LINEAR_DEPTH = 8
DEEP = 128
#: Small erasure coded writes achieve about a third of replicated ones.
EC_SMALL_WRITE = 1 / 3
#: Writes per second of one virtual machine at its peak (Frank Schilder, DTU).
VM_WRITES = {'linux': 20.0, 'windows': 50.0}
#: What one client achieves on a flash cluster of any size.
CLIENT_IOPS = {'read': 30000.0, 'write': 15000.0}


class Range(NamedTuple):
    low: float
    high: float

    def times(self, factor: float) -> 'Range':
        return Range(self.low * factor, self.high * factor)


class Figures(NamedTuple):
    """Figures of one OSD in one direction: IOPS of 4 KiB at depths 1 and 128, bytes a second
    linear."""
    shallow: Range
    deep: Range
    #: None: depends on the device.
    linear: Optional[Range]


#: "About 66" is taken as a factor of 1.5 to both sides, "100 to 120" as a fifth more to both.
_DISK = Figures(Range(44.0, 99.0), Range(80.0, 144.0), Range(27e6, 60e6))
#: With power-loss protection.
_FLASH = {'read': Figures(Range(1000.0, 4000.0), Range(10000.0, 50000.0), None),
          'write': Figures(Range(300.0, 2500.0), Range(10000.0, 20000.0), None)}
FIGURES: Mapping[str, Mapping[str, Figures]] = {
    'hdd': {'read': _DISK, 'write': _DISK}, 'ssd': _FLASH, 'nvme': _FLASH}


class Layout(NamedTuple):
    """What the I/O of one step is spread over."""
    #: OSDs that work at the same time.
    osds: int
    replicas: int = 1
    #: Of an erasure coded pool: k and m; 0: it is replicated.
    data_chunks: int = 0
    coding_chunks: int = 0
    #: Of all its OSDs; '' if they differ.
    device_class: str = ''
    #: Sum of the CRUSH weights, which are sizes in TiB unless an operator has set others.
    tib: float = 0.0

    @property
    def copies(self) -> int:
        """Replicas with the same redundancy."""
        return self.coding_chunks + 1 if self.data_chunks else self.replicas

    @property
    def redundancy(self) -> str:
        return redundancy_text(self.data_chunks + self.coding_chunks or self.replicas,
                               self.data_chunks)

    @property
    def usable_tib(self) -> float:
        chunks = self.data_chunks + self.coding_chunks
        return self.tib * self.data_chunks / chunks if chunks else self.tib / self.replicas


def layouts_of(observation: Observation) -> Dict[str, Layout]:
    """Name of a pool -> its layout, which determines what is expected of it."""
    # A hundred pools may share a rule with a thousand OSDs.
    by_rule: Dict[int, Layout] = {}
    layouts: Dict[str, Layout] = {}
    for pool in observation.osdmap.pools.values():
        rule = pool.crush_rule
        if rule not in by_rule:
            by_rule[rule] = _layout_of_rule(rule, observation)
        layouts[pool.name] = by_rule[rule]._replace(
            data_chunks=pool.data_shards, coding_chunks=pool.size - pool.data_shards) \
            if pool.erasure else by_rule[rule]._replace(replicas=pool.size)
    return layouts


def _layout_of_rule(rule: int, observation: Observation) -> Layout:
    """The layout of any pool of a rule, without the redundancy, which differs between pools."""
    weights = {osd: observation.crush.weight_of(rule, osd) for osd in observation.osdmap.osds}
    osds = [osd for osd, weight in weights.items() if weight > 0.0]
    classes = {observation.crush.class_of(osd) for osd in osds}
    return Layout(len(osds), device_class=classes.pop() if len(classes) == 1 else '',
                  tib=sum(weights[osd] for osd in osds))


# ---- What is expected

#: Latency of one operation, the most operations, and throughput: (bytes, iodepth).
SHAPES = ((SMALL_BYTES, 1), (SMALL_BYTES, DEEP), (4 * LINEAR_BYTES, 16))


class Expected(NamedTuple):
    """What is expected of one client in one direction."""
    #: Such a job; its size is ignored.
    key: Key
    range: Range
    #: In bytes a second, not in operations.
    linear: bool
    #: "at depth 128 from 6 OSDs"
    how: str

    def median_of(self, repetitions: Sequence[Repetition]) -> float:
        return median(sorted(repetition.bytes_per_second if self.linear else repetition.iops
                             for repetition in repetitions))

    def verdict(self, repetitions: Sequence[Repetition]) -> str:
        """NO_EXPECTATION for a slow job that the CPU of the client has limited."""
        value = self.median_of(repetitions)
        if value < self.range.low:
            return NO_EXPECTATION if any(repetition.client_limited for repetition in repetitions) \
                else BELOW
        return ABOVE if value > self.range.high else AS_EXPECTED


def expected_of(layout: Layout) -> Tuple[Expected, ...]:
    """What one client is expected to achieve: jobs of each of SHAPES, reading and writing. Empty if
    no figures of the device class are known, or no OSDs."""
    figures = FIGURES.get(layout.device_class)
    if figures is None or not layout.osds:
        return ()
    keys = [_key(direction, *shape) for shape in SHAPES for direction in (READ, WRITE)]
    return tuple(filter(None, (_expected(key, figures[key.direction], layout) for key in keys)))


def _key(direction: str, bs: int, iodepth: int) -> Key:
    rw = direction if bs >= LINEAR_BYTES else 'rand' + direction
    return Key(JobWords(rw, bs, iodepth, 1, 0, 1, 0, 0), direction, None, '')


def last_measured(records: Sequence[RunRecord], pool: str, expected: Expected
                  ) -> Optional[Tuple[int, float, str]]:
    """The id of the newest probe of a pool ('': of the cluster, in its own pool) that has measured
    such a job, its median in the unit of `expected`, and the verdict on it; None: there is none.
    `records`: oldest first."""
    shape = expected.key.job
    for record in reversed(records):
        # The expected figures are those of one client; CLIENTS is set if several have measured.
        target = record.target
        if not record.ended_well or CLIENTS in record.setting \
                or target.kind not in ('pool', 'cluster') or target.pool != pool:
            continue
        for key, repetitions in measured(record.done).items():
            job = key.job
            if key.direction == expected.key.direction and not job.rate_iops and (
                    job.rw, job.bs, job.iodepth * job.numjobs, job.ioengine) == (
                    shape.rw, shape.bs, shape.iodepth, shape.ioengine):
                return record.id, expected.median_of(repetitions), expected.verdict(repetitions)
    return None


class Capacity(NamedTuple):
    """Of a pool whose OSDs serve no other, for any number of clients: 4 KiB operations."""
    read: Range
    write: Range

    def vms(self, system: str) -> Range:
        """Virtual machines that may all be at their peak at the same time."""
        return self.write.times(1.0 / VM_WRITES[system])


def capacity_of(layout: Layout) -> Optional[Capacity]:
    """The capacity of a pool; None if no figures of its device class are known, or it has no OSDs.
    """
    figures = FIGURES.get(layout.device_class)
    if figures is None or not layout.osds:
        return None
    return Capacity(*(figures[direction].deep.times(_deep_factor(layout, direction))
                      for direction in (READ, WRITE)))


def _deep_factor(layout: Layout, direction: str) -> float:
    """How many OSDs' worth of small operations of users are served at the same time."""
    if direction == READ:
        return float(layout.osds)
    return layout.osds / layout.copies * (EC_SMALL_WRITE if layout.data_chunks else 1.0)


# ---- Whether a run has shown it

class Expectation(NamedTuple):
    """What was expected of one job in one direction (on one OSD)."""
    label: str
    verdict: str
    #: "66 IOPS; hdd: 44 IOPS to 99 IOPS at depth 1", or why there is no expectation.
    why: str


def expect(record: RunRecord, device_class: str, layout: Layout) -> Tuple[Expectation, ...]:
    """Whether the jobs of a run, by the medians of their repetitions, reach what is expected of the
    device class. `layout`: of the pool or the cluster; OSDs that are probed one by one are judged
    one by one. Empty for a run of several clients: the figures are those of one."""
    expectations: List[Expectation] = []
    if CLIENTS in record.setting:
        return ()
    for key, repetitions in measured(record.done).items():
        if key.part not in ('', ALONE):
            # Parts in which OSDs work together, or again after that, have no expectation.
            continue
        layout_of_key = Layout(1) if key.osd is not None else layout
        expectations.append(_expectation(key, repetitions, device_class, layout_of_key))
    return tuple(expectations)


def _expectation(key: Key, repetitions: Sequence[Repetition], device_class: str,
                 layout: Layout) -> Expectation:
    """The verdict on one job in one direction: NO_EXPECTATION for jobs and device classes without
    figures, and for a slow job that the CPU of the client has limited."""
    name = label(key, repetitions[-1].name)
    figures = FIGURES.get(device_class)
    if figures is None:
        return Expectation(name, NO_EXPECTATION, 'no expected values for device class %s'
                           % (device_class or '(none)'))
    expected = _expected(key, figures[key.direction], layout)
    if expected is None:
        return Expectation(name, NO_EXPECTATION, 'expected values exist for 4 KiB at iodepth 1 and '
                           '128, and for 4 MiB at iodepth 16 on disks')
    value = expected.median_of(repetitions)
    verdict = expected.verdict(repetitions)
    why = '%s; %s: %s to %s %s' % (
        _amount(value, expected.linear), device_class, _amount(expected.range.low, expected.linear),
        _amount(expected.range.high, expected.linear), expected.how)
    if verdict == NO_EXPECTATION:
        why += '; the CPU of the probe process was the bottleneck'
    return Expectation(name, verdict, why)


def _expected(key: Key, figures: Figures, layout: Layout) -> Optional[Expected]:
    """The range that is expected of a job in one direction. None: figures exist only for jobs that
    are not mixed and have no fixed rate: of 4 KiB at depth 1 or from DEEP on, and linear on disks.
    """
    job = key.job
    depth = job.iodepth * job.numjobs
    is_mixed = job.rw in READING & WRITING
    if job.rate_iops or is_mixed:
        return None
    if job.bs >= LINEAR_BYTES and depth >= LINEAR_DEPTH and figures.linear is not None:
        return Expected(key, figures.linear.times(_linear_factor(key, layout, depth)),
                        linear=True, how=_from(layout, key))
    if job.bs != SMALL_BYTES or (depth != 1 and depth < DEEP):
        return None
    is_ec_write = layout.data_chunks and key.direction == WRITE
    if depth == 1:
        # With one operation at a time, the number of OSDs makes no difference.
        return Expected(key, figures.shallow.times(EC_SMALL_WRITE if is_ec_write else 1.0),
                        linear=False, how='at iodepth 1')
    deep = figures.deep.times(_deep_factor(layout, key.direction))
    return Expected(key, _bounded(deep, figures.shallow, depth, CLIENT_IOPS[key.direction]),
                    linear=False, how='at depth %d %s' % (depth, _from(layout, key)))


def _bounded(deep: Range, shallow: Range, depth: int, client_iops: float) -> Range:
    """The range `deep`, but at most what `depth` operations in flight achieve if each is as fast as
    one alone (`shallow`). Its lower end is also at most what one client achieves."""
    return Range(min(deep.low, depth * shallow.low, client_iops),
                 min(deep.high, depth * shallow.high))


def _linear_factor(key: Key, layout: Layout, depth: int) -> float:
    """How many OSDs' worth of user data is moved at the same time. Each operation keeps
    `osds_per_op` OSDs busy, and `user_share` of the bytes that they move is data of users."""
    chunks = layout.data_chunks + layout.coding_chunks
    if key.direction == WRITE:
        osds_per_op, user_share = ((chunks, layout.data_chunks / chunks) if chunks
                                   else (layout.replicas, 1.0 / layout.replicas))
    else:
        osds_per_op, user_share = max(1, layout.data_chunks), 1.0
    return min(layout.osds, depth * osds_per_op) * user_share


def _from(layout: Layout, key: Key) -> str:
    """What serves such operations, as in "from 6 OSDs, 3 replicas"."""
    text = 'from ' + plural(layout.osds, 'OSD')
    if key.direction == WRITE and layout.data_chunks:
        text += ', erasure coded %d+%d' % (layout.data_chunks, layout.coding_chunks)
    elif key.direction == WRITE and layout.replicas > 1:
        text += ', %d replicas' % layout.replicas
    return text


def _amount(value: float, linear: bool) -> str:
    return '%s MB/s' % figure_text(value / 1e6) if linear else '%s IOPS' % figure_text(value)
