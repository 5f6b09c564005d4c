# SPDX-License-Identifier: LGPL-2.1-or-later
"""Reproducible synthetic traces of a cluster's OSDs, some of them slow, in beats of 5 s.

The model, none of which the detectors know:

* Clients are open-loop: a load with a day's wave (+- 50 %), drift and noise falls on PGs of
  unequal popularity and operation size, placed at random on hosts; OSDs so differ by about
  0.7..1.3 in load, and with their devices' age and fullness by a tenth (one standard deviation)
  in what an operation takes. Now and then one PG is hot.
* A device is a queue of `slots` servers whose wait follows Sakasegawa's approximation of M/M/c
  (1977), a disk being M/M/1. Before it stand the OSD's threads, which a read occupies until the
  device has answered (osd_op_num_shards x threads: 1 x 5 on disks, 8 x 2 on flash).
* A client write waits for the slowest of three replicas, each with its own queue and commit. One
  read in a hundred waits for a write to the same object.
* What a beat reports is a mean over its n operations: a gamma variable whose relative variance is
  OP_VARIANCE / n; and each OSD drifts by a few percent.
* Disturbances of healthy OSDs: compactions and flash garbage collection (10 to 60 s of slower
  writes, every half hour), peering (operations of some OSDs wait up to 3 s), deep scrubs (each PG
  weekly; extra utilisation and large reads); in some cases backfill, without scrubs.

A fault multiplies latency, not service time: the queue behind a slow device would make it easier
to see, and clients with a bounded queue depth would take that back. An intermittent fault does so
for a share of the time only: in episodes of minutes, and within them in bursts of seconds.

Long traces follow those that Perseus (Lu et al., FAST 2023) was judged on: a reading each 15 s,
three hours a day. Heavy tails are drives that are healthy and yet have single intervals many times
as long as usual, and compactions of up to eight times the usual latency of writes.

Sources of constants: 0.42 ms per 4k write at depth 1 of a good NVMe cluster, some 30 to 50 us per
round trip (measuring notes by M. Nelson and yourcmc.ru); 100 to 120 operations/s of a 7,200 rpm
disk; 100 PGs an OSD; deep scrub once a week (osd_deep_scrub_interval).
"""
from dataclasses import dataclass, field, replace
from typing import Dict, List, Optional, Sequence, Set, Tuple

import numpy as np

from perfguard.cluster.types import OsdPlace
from perfguard.watch.types import SCRUB, SOURCE, TARGET, Flow, OsdSample

Array = np.ndarray

BEAT = 5.0
DAY_SECONDS = 86400.0
SIZE = 3
PGS_PER_OSD = 100
#: Client reads per client write.
READS = 1.5
OP_VARIANCE = 2.0
RTT_MS = 0.05
#: Part of the reads that wait for a write in flight on the same object.
LOCKED = 0.01
#: Schedules of an intermittent fault to choose from.
DUTY_DRAWS = 20


@dataclass(frozen=True)
class Device:
    name: str
    device_class: str
    #: Service times of a small read and of a commit in milliseconds.
    read_ms: float
    write_ms: float
    #: Operations that it serves at the same time.
    slots: int
    #: OSD threads, and their own work per operation.
    threads: int
    cpu_ms: float
    #: Latency of a large operation: backfill's pushes and reads, deep scrub's reads.
    large_ms: float
    #: Bounds of the cluster's mean utilisation, drawn for each trace.
    load: Tuple[float, float]
    #: Utilisation that a deep scrub or a backfill adds, and its large operations per second.
    extra: Tuple[float, float]
    large_rate: float
    scrub_seconds: Tuple[float, float]
    #: As in OsdPlace.
    store: str = ''


FLASH = Device('nvme-a', 'ssd', 0.12, 0.25, 8, 16, 0.05, 0.8, (0.005, 0.3), (0.02, 0.1), 60.0,
               (20.0, 120.0))
#: Another model of the same class, slower by nature.
FLASH_B = Device('nvme-b', 'ssd', 0.21, 0.45, 8, 16, 0.05, 1.2, (0.005, 0.3), (0.02, 0.1), 60.0,
                 (20.0, 120.0))
DISK = Device('disk-a', 'hdd', 7.0, 7.0, 1, 5, 0.08, 30.0, (0.05, 0.4), (0.15, 0.35), 12.0,
              (300.0, 2400.0), 'bluestore')
#: The same disk with its DB on flash.
DISK_DB = replace(DISK, write_ms=3.0, store='bluestore, DB on flash')


@dataclass(frozen=True)
class Fault:
    """Factors on the latency of those that are slow."""
    read: float = 1.0
    write: float = 1.0
    #: On the work of the OSD itself.
    cpu: float = 1.0
    osds: int = 1
    #: So many whole hosts in place of single OSDs.
    hosts: int = 0
    #: From the first beat on, in place of the middle.
    from_start: bool = False
    #: Share of the time that it is there, from the onset on; 1: always.
    duty: float = 1.0


#: Hosts, OSDs a host, device.
Layout = Tuple[Tuple[int, int, Device], ...]


@dataclass(frozen=True)
class Case:
    name: str
    layout: Layout
    fault: Optional[Fault] = None
    minutes: float = 30.0
    #: Factor on the load of one healthy OSD.
    hot: float = 1.0
    backfill: bool = False
    #: Whether the device's model is in the OSD metadata.
    models: bool = True
    #: Factor on the load; 0.01 leaves an OSD with few operations a beat.
    load: float = 1.0
    #: Device on which the fault is looked for; '' any.
    where: str = ''
    #: Seconds between two readings, and hours of a day that are recorded.
    beat: float = BEAT
    hours_a_day: float = 24.0
    #: Only the latency of the drives is recorded, all operations in one.
    drives_only: bool = False
    #: Healthy OSDs have heavy tails and compactions that slow clients down.
    tails: bool = False
    #: How often another mgr takes over.
    failovers: int = 0
    #: A tenth of the healthy OSDs are not there at first, and another tenth not in the end.
    changing: bool = False
    #: Factor on the load in the second and third hour of each day.
    batch: float = 1.0
    pgs_per_osd: int = PGS_PER_OSD


@dataclass
class Trace:
    case: Case
    places: Dict[int, OsdPlace]
    slow: Set[int]
    #: Beats in which the fault begins and the trace ends.
    onset: int
    beats: int
    #: By kind of operation: rate and milliseconds, [beat, OSD].
    flows: Dict[str, Tuple[Array, Array]]
    busy: List[Dict[int, str]]
    hosts: Set[str] = field(default_factory=set)
    #: Of recorded traces: seconds since the begin, by beat, and names of the drives.
    times: Optional[Array] = None
    names: Sequence[str] = ()
    #: OSD -> the beats (first, end) in which it is there, of those that are not there in all.
    there: Dict[int, Tuple[int, int]] = field(default_factory=dict)

    def clock(self, beat: int) -> float:
        """Seconds since the trace began; the hours that are not recorded pass as well."""
        if self.times is None:
            self.times = _clock(self.case, np.arange(self.beats))
        return float(self.times[beat])

    def name(self, osd: int) -> str:
        return self.names[osd] if self.names else 'osd.%d' % osd

    def places_at(self, beat: int) -> Dict[int, OsdPlace]:
        return {osd: place for osd, place in self.places.items() if self._is_there(osd, beat)}

    def _is_there(self, osd: int, beat: int) -> bool:
        first, end = self.there.get(osd, (0, self.beats))
        return first <= beat < end

    def samples(self, beat: int) -> List[OsdSample]:
        columns = [[Flow(rate, ms) for rate, ms in zip(rates[beat].tolist(), mss[beat].tolist())]
                   for rates, mss in self.flows.values()]
        return [OsdSample(osd, self.case.beat, **dict(zip(self.flows, flows)))
                for osd, flows in enumerate(zip(*columns)) if self._is_there(osd, beat)]

    def commit_whole_ms(self) -> Array:
        """As `ceph osd perf` has it: whole milliseconds, 0 when idle."""
        rate, ms = self.flows['commit']
        return np.where(rate > 0, np.floor(ms), 0.0)

    def device(self) -> Tuple[Array, Array]:
        """Operations per second of each device, and their mean latency."""
        commits, commit_ms = self.flows['commit']
        if 'store_read' not in self.flows:
            return commits, commit_ms
        reads, read_ms = self.flows['store_read']
        ops = reads + commits
        return ops, (reads * read_ms + commits * commit_ms) / np.maximum(ops, 1e-9)


def _clock(case: Case, beats: Array) -> Array:
    """Seconds since the trace began, by beat."""
    day = case.hours_a_day * 3600 / case.beat
    return np.asarray(beats // day * DAY_SECONDS + beats % day * case.beat)


def build(case: Case, seed: int) -> Trace:
    return _Builder(case, np.random.default_rng([seed, *case.name.encode()])).trace()


class _Builder:
    def __init__(self, case: Case, rng: np.random.Generator) -> None:
        self.case, self.rng, self.beat = case, rng, case.beat
        self.beats = int(case.minutes * 60 / self.beat)
        self.devices: List[Device] = []
        self.places: Dict[int, OsdPlace] = {}
        host = 0
        for hosts, per_host, device in case.layout:
            for _ in range(hosts):
                for _ in range(per_host):
                    osd = len(self.devices)
                    self.devices.append(device)
                    self.places[osd] = OsdPlace(osd, 'h%d' % host, 'default', device.device_class,
                                                device.name if case.models else '',
                                                store=device.store)
                host += 1
        self.count = len(self.devices)
        self.busy: List[Dict[int, str]] = [{} for _ in range(self.beats)]
        shape = (self.beats, self.count)
        #: What a fault, and what a disturbance does to latency.
        self.read_factor, self.write_factor = np.ones(shape), np.ones(shape)
        self.cpu_factor = np.ones(shape)
        #: Utilisation and large operations of scrubs and backfill.
        self.extra, self.large_reads = np.zeros(shape), np.zeros(shape)
        self.large_writes = np.zeros(shape)
        self.stall_ms = np.zeros(shape)

    def column(self, name: str) -> Array:
        return np.array([getattr(device, name) for device in self.devices], dtype=float)

    def trace(self) -> Trace:
        self._place_pgs()
        slow, onset = self._fault()
        wave = self._wave()
        # Popularity by OSD: operations that it leads, commits that it makes.
        lead = wave * self._by_osd(self.acting[:, :1])
        commits = wave * self._by_osd(self.acting)
        self._hot_pgs(wave, lead, commits)
        if self.case.hot != 1.0:
            self._hot_osd(wave, lead, commits)
        if self.case.backfill:
            self._backfill()
        else:  # osd_scrub_during_recovery is false
            self._scrubs()
        self._compactions()
        if self.case.tails:
            self._tails()
        self._peering()
        flows = self._flows(lead, commits)
        hosts = {self.places[osd].host for osd in slow} if (
            self.case.fault and self.case.fault.hosts) else set()
        trace = Trace(self.case, self.places, slow, onset, self.beats, flows, self.busy, hosts,
                      there=self._changes(slow) if self.case.changing else {})
        if self.case.drives_only:
            trace.flows = {'commit': trace.device()}
        return trace

    def _changes(self, slow: Set[int]) -> Dict[int, Tuple[int, int]]:
        healthy = [osd for osd in self.places if osd not in slow]
        number = self.count // 10
        chosen = [int(osd) for osd in self.rng.choice(healthy, 2 * number, replace=False)]
        when = self.rng.integers(0, self.beats, 2 * number)
        return {osd: (int(beat), self.beats) if index < number else (0, int(beat))
                for index, (osd, beat) in enumerate(zip(chosen, when))}

    def _place_pgs(self) -> None:
        """Three OSDs of different hosts and one class for each PG, by weight."""
        rng, classes = self.rng, self.column('write_ms') * 0
        names = sorted({device.device_class for device in self.devices})
        for i, device in enumerate(self.devices):
            classes[i] = names.index(device.device_class)
        hosts = np.array([int(self.places[osd].host[1:]) for osd in range(self.count)])
        weight = rng.uniform(0.8, 1.2, self.count)
        acting = []
        for number in range(len(names)):
            members = np.flatnonzero(classes == number)
            for _ in range(len(members) * self.case.pgs_per_osd // SIZE):
                # The largest of weighted exponentials: a draw without repetition.
                keys = rng.exponential(1.0, len(members)) / weight[members]
                chosen: List[int] = []
                for index in np.argsort(keys):
                    osd = int(members[index])
                    if all(hosts[osd] != hosts[other] for other in chosen):
                        chosen.append(osd)
                    if len(chosen) == SIZE:
                        break
                acting.append(chosen)
        self.acting = np.array(acting)
        self.popularity = rng.lognormal(0.0, 0.4, len(acting))
        self.cost = rng.lognormal(0.0, 0.5, len(acting))
        self.age = rng.lognormal(0.0, 0.08, self.count)

    def _by_osd(self, acting: Array, values: Optional[Array] = None) -> Array:
        """Sum of the PGs' popularity (or of `values`) over the OSDs of each."""
        values = self.popularity if values is None else values
        total = np.zeros(self.count)
        np.add.at(total, acting, np.repeat(values[:, None], acting.shape[1], axis=1))
        return total

    def _cost(self, acting: Array) -> Array:
        """Mean cost of an operation by OSD."""
        return (self._by_osd(acting, self.popularity * self.cost)
                / np.maximum(self._by_osd(acting), 1e-9))

    def _wave(self) -> Array:
        """[beat, 1]: client writes per second and unit of popularity; each class has its own."""
        rng = self.rng
        hours = _clock(self.case, np.arange(self.beats)) / 3600 + rng.uniform(0, 24)
        drift = np.exp(_wander(rng, (self.beats, 1), 300 / self.beat, 0.15))
        day = (1 + 0.5 * np.sin(2 * np.pi * hours / 24))[:, None] * drift
        if self.case.batch != 1.0:
            hour = _clock(self.case, np.arange(self.beats)) % DAY_SECONDS // 3600
            day *= np.where((hour == 1) | (hour == 2), self.case.batch, 1.0)[:, None]
        columns = np.zeros((1, self.count))
        writes = self._by_osd(self.acting)
        for name in sorted({device.device_class for device in self.devices}):
            members = [i for i, device in enumerate(self.devices) if device.device_class == name]
            device = self.devices[members[0]]
            load = self.case.load * np.exp(rng.uniform(*np.log(device.load)))
            work = READS / SIZE * 0.7 * device.read_ms + device.write_ms
            commits = load * device.slots * 1000 / work
            columns[0, members] = commits / writes[members].mean()
        return np.asarray(day * columns)

    def _fault(self) -> Tuple[Set[int], int]:
        fault = self.case.fault
        if fault is None:
            return set(), self.beats
        onset = 0 if fault.from_start else int(self.beats * self.rng.uniform(0.3, 0.4))
        able = [osd for osd, device in enumerate(self.devices)
                if self.case.where in ('', device.name)]
        chosen = {int(osd) for osd in self.rng.choice(able, fault.osds, replace=False)}
        if fault.hosts:
            first = self.places[min(chosen)].host
            names = sorted({place.host for place in self.places.values()} - {first})
            hosts = {first, *names[:fault.hosts - 1]}
            chosen = {osd for osd, place in self.places.items() if place.host in hosts}
        for factors, factor in ((self.read_factor, fault.read), (self.write_factor, fault.write),
                                (self.cpu_factor, fault.cpu)):
            if fault.duty == 1.0:
                factors[onset:, sorted(chosen)] *= factor
        if fault.duty < 1.0:
            for osd in sorted(chosen):
                self._intermittent(fault, osd, onset)
        return chosen, onset

    def _intermittent(self, fault: Fault, osd: int, onset: int) -> None:
        """Of some draws the one that is slow for the share of the time that the fault says: by
        chance alone the share would be between a third and twice that."""
        def error(heights: Array) -> float:
            return abs(float((heights[onset:] > 0).mean()) - fault.duty)

        heights = min((self._bursts(fault.duty, onset) for _ in range(DUTY_DRAWS)), key=error)
        for factors, factor in ((self.read_factor, fault.read), (self.write_factor, fault.write)):
            if factor > 1.0:
                factors[:, osd] *= np.where(heights > 0, np.maximum(1.0, factor * heights), 1.0)

    def _bursts(self, duty: float, onset: int) -> Array:
        """By beat, the height of bursts of 5 to 60 s, 0 between them. They take half of an episode
        of minutes; each has its own height."""
        rng, inner = self.rng, 0.5
        heights, beat = np.zeros(self.beats), onset
        while beat < self.beats:
            end = beat + int(np.ceil(rng.exponential(10.0) * 60 / self.beat))
            now = beat
            while now < min(end, self.beats):
                burst = max(1, round(rng.uniform(5, 60) / self.beat))
                heights[now:min(now + burst, end)] = rng.lognormal(0.0, 0.3)
                now += burst + max(1, round(burst * (1 - inner) / inner))
            beat = end + int(rng.exponential(10.0 * 60 * (inner / duty - 1)) / self.beat)
        return heights

    def _events(self, per_hour: float) -> List[int]:
        number = self.rng.poisson(per_hour * self.beats * self.beat / 3600)
        return sorted(int(beat) for beat in self.rng.integers(0, self.beats, number))

    def _hot_pgs(self, wave: Array, lead: Array, commits: Array) -> None:
        """Two PGs an hour are ten times as popular for some minutes."""
        for beat in self._events(2.0):
            pg = int(self.rng.integers(len(self.acting)))
            end = beat + int(self.rng.uniform(300, 1800) / self.beat)
            more = self.popularity[pg] * self.rng.lognormal(np.log(10), 0.7)
            lead[beat:end, self.acting[pg, 0]] += wave[beat:end, self.acting[pg, 0]] * more
            for osd in self.acting[pg]:
                commits[beat:end, osd] += wave[beat:end, osd] * more

    def _hot_osd(self, wave: Array, lead: Array, commits: Array) -> None:
        """All PGs that one healthy OSD leads are hot, for all of the trace but its begin."""
        hot, begin = int(self.rng.integers(self.count)), self.beats // 6
        pgs = self.acting[:, 0] == hot
        for osd in range(self.count):
            more = (self.case.hot - 1) * (self.popularity * (self.acting == osd).any(axis=1))
            commits[begin:, osd] += wave[begin:, osd] * more[pgs].sum()
        lead[begin:, hot] *= self.case.hot
        # All of its work grows by the factor, not only what it leads.
        own = wave[begin:, hot] * self._by_osd(self.acting)[hot] * self.case.hot
        commits[begin:, hot] = np.maximum(commits[begin:, hot], own)

    def _mark(self, osds: Sequence[int], begin: int, end: int, kind: str) -> None:
        """The mgr learns of it with up to two beats' delay."""
        late, later = self.rng.integers(0, 3, 2)
        for beat in range(begin + late, min(end + later, self.beats)):
            for osd in osds:
                self.busy[beat][osd] = kind

    def _scrubs(self) -> None:
        per_hour = len(self.acting) / (7 * 24)
        for beat in self._events(per_hour):
            osds = self.acting[int(self.rng.integers(len(self.acting)))]
            device = self.devices[osds[0]]
            end = beat + max(1, int(self.rng.uniform(*device.scrub_seconds) / self.beat))
            # An OSD deep scrubs one PG at a time (osd_max_scrubs 1).
            extra, part = self.rng.uniform(*device.extra), (slice(beat, end), osds)
            self.extra[part] = np.maximum(self.extra[part], extra)
            self.large_reads[part] = device.large_rate
            self._mark([int(osd) for osd in osds], beat, end, SCRUB)

    def _backfill(self) -> None:
        """One host's OSDs are targets, half of the others are read from; some more than others."""
        target = self.places[int(self.rng.integers(self.count))].host
        for osd, device in enumerate(self.devices):
            amount = self.rng.uniform(0.5, 1.0)
            if self.places[osd].host == target:
                self.extra[:, osd] += amount * device.extra[1]
                self.large_writes[:, osd] += amount * device.large_rate
                self._mark([osd], 0, self.beats, TARGET)
            elif self.rng.random() < 0.5:
                self.extra[:, osd] += 0.5 * amount * device.extra[1]
                self.large_reads[:, osd] += 0.5 * amount * device.large_rate
                self._mark([osd], 0, self.beats, SOURCE)

    def _compactions(self) -> None:
        write, read = np.ones_like(self.write_factor), np.ones_like(self.read_factor)
        for osd in range(self.count):
            for beat in self._events(2.0):
                end = beat + int(self.rng.uniform(10, 60) / self.beat)
                # One at a time: they follow upon each other, but do not add up.
                for factors, most in ((write, 3.0), (read, 1.5)):
                    factor = self.rng.uniform(0.5 * most, most)
                    factors[beat:end, osd] = np.maximum(factors[beat:end, osd], factor)
        self.write_factor *= write
        self.read_factor *= read

    def _tails(self) -> None:
        """Single beats up to 30 times as slow, and every other hour a compaction of up to eight."""
        rng = self.rng
        rare = rng.random((self.beats, self.count)) < 0.003 * rng.lognormal(0.0, 0.5, self.count)
        high = np.where(rare, np.minimum(1 + rng.pareto(1.5, rare.shape), 30.0), 1.0)
        write, read = high, high.copy()
        for osd in range(self.count):
            for beat in self._events(0.5 * rng.lognormal(0.0, 0.25)):
                end = beat + max(1, round(rng.uniform(10, 60) / self.beat))
                for factors, most in ((write, 8.0), (read, 3.0)):
                    factors[beat:end, osd] = np.maximum(factors[beat:end, osd],
                                                        rng.uniform(most / 4, most))
        self.write_factor = np.maximum(self.write_factor, write)
        self.read_factor = np.maximum(self.read_factor, read)

    def _peering(self) -> None:
        """Operations of a tenth of the OSDs wait, those of some PGs or of all."""
        for beat in self._events(1.0):
            for osd in np.flatnonzero(self.rng.random(self.count) < 0.1):
                seconds = self.rng.uniform(0.5, 3.0)
                part = self.rng.uniform(0.05, 1.0)
                self.stall_ms[beat, osd] += part * seconds / self.beat * seconds / 2 * 1000

    def _flows(self, lead: Array, commits: Array) -> Dict[str, Tuple[Array, Array]]:
        rng, shape = self.rng, lead.shape
        cost, lead_cost = self._cost(self.acting), self._cost(self.acting[:, :1])
        read_s = self.column('read_ms') * lead_cost * self.age
        write_s = self.column('write_ms') * cost * self.age
        slots, threads, cpu = (self.column(name) for name in ('slots', 'threads', 'cpu_ms'))
        # `wave` counts commits: a client write makes one on each of three OSDs.
        client_writes, client_reads = lead, lead * READS
        device_reads = 0.7 * client_reads
        rho = (device_reads * read_s + commits * write_s) / 1000 / slots + self.extra
        wait = _wait(rho, slots)
        jitter = np.exp(_wander(rng, shape, 60 / self.beat, 0.05))
        read = read_s * (1 + wait) * self.read_factor * jitter
        commit = write_s * (1 + wait) * self.write_factor * jitter
        # A thread is with a read until the device has answered.
        busy = client_reads * (cpu + 0.7 * read) + commits * cpu
        own = cpu * self.cpu_factor * jitter + (cpu + read) * _wait(busy / 1000 / threads, threads)
        write = own + self._slowest(own, commit) + RTT_MS
        reads_ms = own + 0.7 * read + LOCKED * write / 2
        large = self.column('large_ms') * (1 + wait)
        commit = _mixed(commits, commit, self.large_writes, large * self.write_factor)
        store = _mixed(device_reads, read, self.large_reads, large * self.read_factor)
        flows = {'read': (client_reads, reads_ms + self.stall_ms),
                 'write': (client_writes, write + self.stall_ms),
                 'own_write': (client_writes, own + self.stall_ms),
                 'commit': (commits + self.large_writes, commit),
                 'store_read': (device_reads + self.large_reads, store)}
        return {kind: self._measured(*flow) for kind, flow in flows.items()}

    def _slowest(self, own: Array, commit: Array) -> Array:
        """Client writes by leading OSD: the slowest replica of each PG."""
        each = (own + commit).astype(np.float32)
        share = np.zeros((len(self.acting), self.count), dtype=np.float32)
        share[np.arange(len(self.acting)), self.acting[:, 0]] = self.popularity
        share /= np.maximum(share.sum(axis=0), 1e-9)
        found = np.empty(each.shape)
        for begin in range(0, self.beats, 512):
            part = each[begin:begin + 512]
            slowest = part[:, self.acting[:, 0]]
            for replica in range(1, SIZE):
                slowest = np.maximum(slowest, part[:, self.acting[:, replica]])
            found[begin:begin + 512] = slowest @ share
        return found

    def _measured(self, rate: Array, ms: Array) -> Tuple[Array, Array]:
        """What a beat reports: a count, and a mean over as many."""
        ops = self.rng.poisson(rate * self.beat)
        some = np.maximum(ops, 1) / OP_VARIANCE
        return ops / self.beat, np.where(ops > 0, ms * self.rng.gamma(some) / some, 0.0)


def _wait(rho: Array, servers: Array) -> Array:
    """Mean wait in a queue of `servers`, in units of the service time (Sakasegawa 1977)."""
    rho = np.minimum(rho, 0.95)  # clients do not queue for ever
    return np.asarray(rho ** (np.sqrt(2 * (servers + 1)) - 1) / (servers * (1 - rho)))


def _mixed(rate: Array, ms: Array, other_rate: Array, other_ms: Array) -> Array:
    total = rate + other_rate
    return np.asarray((rate * ms + other_rate * other_ms) / np.maximum(total, 1e-9))


def _wander(rng: np.random.Generator, shape: Tuple[int, ...], beats: float, sigma: float) -> Array:
    """First-order autoregressive noise of a correlation time in beats."""
    keep = np.exp(-1 / beats)
    steps = rng.normal(0, sigma * np.sqrt(1 - keep * keep), shape)
    found = np.empty(shape)
    now = rng.normal(0, sigma, shape[1])
    for beat in range(shape[0]):
        now = keep * now + steps[beat]
        found[beat] = now
    return found
