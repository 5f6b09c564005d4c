# SPDX-License-Identifier: LGPL-2.1-or-later
"""The limits of a run: its budget, and reasons not to begin it and to end it."""
from collections import deque
from typing import (AbstractSet, Deque, Dict, List, Mapping, NamedTuple, Optional, Sequence,
                    Tuple)

from ..cluster.types import Json, Ops, OsdMap, PgCounts, Pool, Signals, Space, are_sane
from ..observation import Clients
from ..text import bytes_text, pgs_are, plural, seconds_text
from ..watch.peers import weighted_median
from ..watch.stop_conditions import Touched
from .jobs import job_options, scale_counts, step_count
from .placement import objects_wanted
from .types import Job, Target

#: Expected speed of the prefill, and the lowest speed that still fits the limit, in bytes/s.
PREFILL_BYTES_PER_SECOND = 50e6
SLOW_PREFILL_BYTES_PER_SECOND = 10e6
#: Seconds to create and remove an object, in addition to writing its bytes.
OBJECT_SECONDS = 0.001
SLOW_OBJECT_SECONDS = 0.02
#: Seconds between two steps; seconds to connect and disconnect, expected and at most.
PROBE_STEP_SECONDS = 0.2
CONNECT_SECONDS = 1.0
SLOW_CONNECT_SECONDS = 10.0
#: Maximum share of an OSD in the bytes of a pool, as a multiple of the even share.
MOST_OSD_SHARES = 2.0
#: Share of what a quota leaves that a run may use: clients of the pool write meanwhile, and at the
#: quota the mons stop all of them.
QUOTA_SHARE = 0.5
#: Number of OSDs that a refusal names.
NAMED_BUSY_OSDS = 5


class Budget(NamedTuple):
    """What a run takes of time and space."""
    #: Expected duration.
    seconds: float
    #: Bytes of all objects that are written before the measurements, and the space that they take
    #: with all replicas or shards.
    prefill_bytes: int
    stored_bytes: int
    #: Maximum number of bytes that the measurements read and write; None: only time limits it.
    transfer_bytes: Optional[int]
    objects: int


def budget_of(jobs: Sequence[Job], target: Target, repeat: int,
              replicas_factor: float) -> Budget:
    """What a run takes: its time, its objects and its bytes. They are estimated, since a run on all
    OSDs of a large cluster has too many steps to plan them first.

    `replicas_factor`: bytes stored per byte of an object: the number of replicas, or (k+m)/k.
    """
    jobs = target.jobs(jobs)
    # Without OSDs of its own, the target is a pool or the cluster, with one set of objects.
    osds = max(1, len(target.osds))
    objects_by_size = objects_wanted(jobs)
    objects = osds * sum(objects_by_size.values())
    prefill = osds * sum(size * count for size, count in objects_by_size.items())
    steps = step_count(jobs, target, repeat)
    # How often each job is done, summed over the OSDs that do it: with interference, each OSD works
    # alone, together with the others, and alone again.
    times_done = repeat * (3 * osds if target.kind == 'interference' else
                           sum(scale_counts(target)) if target.kind == 'scale' else osds)
    seconds = (sum(job.ramp_time + job.runtime + PROBE_STEP_SECONDS for job in jobs)
               * steps / max(1, len(jobs)) + prefill / PREFILL_BYTES_PER_SECOND
               + OBJECT_SECONDS * objects + CONNECT_SECONDS)
    transfers = [_transfer(job, times_done * job.numjobs) for job in jobs]
    return Budget(seconds, prefill, int(prefill * replicas_factor),
                  None if None in transfers else sum(filter(None, transfers)), objects)


def _transfer(job: Job, streams: int) -> Optional[int]:
    """Maximum number of bytes that this number of streams of a job reads and writes; None: only
    time limits it."""
    # io_size counts from the end of the ramp; a ramp without a rate transfers any number of bytes.
    bounds = []
    if job.rate_iops:
        bounds.append(_at_rate(job, job.ramp_time + job.runtime))
    if job.io_size and (job.rate_iops or not job.ramp_time):
        bounds.append(job.io_size + _at_rate(job, job.ramp_time))
    return streams * min(bounds) if bounds else None


def _at_rate(job: Job, seconds: float) -> int:
    return int(job.rate_iops * job.bs * seconds)


def limit_seconds(budget: Budget) -> float:
    """Wall time after which the worker must end, even if the cluster does not answer."""
    return (budget.seconds + budget.prefill_bytes / SLOW_PREFILL_BYTES_PER_SECOND
            + SLOW_OBJECT_SECONDS * budget.objects + SLOW_CONNECT_SECONDS)


def budget_refusals(budget: Budget, free_bytes: Optional[int], max_bytes: int, max_seconds: float,
                    quota_left_bytes: Optional[int], quota_left_objects: Optional[int]
                    ) -> List[str]:
    """Why a run must not begin, because of the space and the time that it takes, as texts; empty:
    it may begin.

    `free_bytes`: free space with all replicas, as far as the fullest OSD allows; None: unknown.
    `max_bytes` and `max_seconds` are the operator's limits on space and time. Quotas of a pool
    count its objects and their bytes once; None: there is no quota.
    """
    texts = []
    if budget.stored_bytes > max_bytes:
        texts.append('the probe would store %s (limit %s, probe_max_bytes)' % (
            bytes_text(budget.stored_bytes), bytes_text(max_bytes)))
    if free_bytes is not None and budget.stored_bytes > free_bytes:
        texts.append('the probe would store %s, but only %s are free' % (
            bytes_text(budget.stored_bytes), bytes_text(free_bytes)))
    texts += over_quota(budget, quota_left_bytes, quota_left_objects)
    if budget.seconds > max_seconds:
        texts.append('the probe would take %s (limit %s, probe_max_seconds)' % (
            seconds_text(budget.seconds), seconds_text(max_seconds)))
    return texts


def over_quota(budget: Budget, left_bytes: Optional[int], left_objects: Optional[int]) -> List[str]:
    """Why a run must not begin, because of what the quotas of its pool leave (None: there is none),
    as texts."""
    texts = []
    if left_bytes is not None and budget.prefill_bytes > QUOTA_SHARE * left_bytes:
        texts.append("the probe would write %s, more than half of the pool's remaining quota of %s"
                     % (bytes_text(budget.prefill_bytes), bytes_text(max(0, left_bytes))))
    if left_objects is not None and budget.objects > QUOTA_SHARE * left_objects:
        texts.append("the probe would create %d objects, more than half of the pool's remaining "
                     'quota of %d' % (budget.objects, max(0, left_objects)))
    return texts


def preview_json(target: Target, jobs: Sequence[Job], repeat: int, budget: Budget,
                 refused: Sequence[str], remarks: Sequence[str] = ()) -> Json:
    """What a run would do, why it is refused, and remarks on its job file, as --dry-run shows it.
    """
    jobs = target.jobs(jobs)
    return {'target': target.key, 'jobs': [job_options(job) for job in dict.fromkeys(jobs)],
            'steps': step_count(jobs, target, repeat), 'repeat': repeat,
            'seconds': budget.seconds, 'limit_seconds': limit_seconds(budget),
            'objects': budget.objects, 'prefill_bytes': budget.prefill_bytes,
            'stored_bytes': budget.stored_bytes, 'transfer_bytes': budget.transfer_bytes,
            'remarks': list(remarks), 'refusals': list(refused)}


def nearfull_osds(shares: Mapping[int, float], space: Mapping[int, Space],
                  nearfull_ratio: float) -> List[str]:
    """OSDs that a run would fill to the nearfull ratio, as texts: the first NAMED_BUSY_OSDS, and
    the number of the others. `shares`: OSD -> maximum bytes that it gets; OSDs that do not report
    their space are skipped."""
    nearfull = []
    for osd, share in sorted(shares.items()):
        if osd not in space or not space[osd].total_bytes:
            continue
        used = (space[osd].used_bytes + share) / space[osd].total_bytes
        if used >= nearfull_ratio:
            nearfull.append('osd.%d would be %.1f %% full with its share of %s (nearfull is '
                            '%.1f %%)' % (osd, 100 * used, bytes_text(share), 100 * nearfull_ratio))
    return nearfull if len(nearfull) <= NAMED_BUSY_OSDS else [
        *nearfull[:NAMED_BUSY_OSDS], 'and %s more' % plural(len(nearfull) - NAMED_BUSY_OSDS, 'OSD')]


def shares_of(budget: Budget, target: Target, osds: Sequence[int],
              data_shards: int) -> Dict[int, float]:
    """OSD -> bytes that it gets at most. `osds`: all that the pool may use. `data_shards`: k of an
    erasure-coded pool, else 1.

    An OSD that is probed is the primary of its objects and holds a copy (or chunk) of each. Of all
    other bytes no OSD gets more than MOST_OSD_SHARES times its even share.
    """
    if not osds or not budget.stored_bytes:
        return {}
    if target.kind == 'store':
        # A bench writes to the OSD itself; its `stored_bytes` are those of one OSD.
        return dict.fromkeys(target.osds, float(budget.stored_bytes))
    bytes_led = budget.prefill_bytes / data_shards if target.osds else 0.0
    most_others = MOST_OSD_SHARES * (budget.stored_bytes - bytes_led) / len(osds)
    shares = dict.fromkeys(osds, most_others)
    for osd in target.osds:
        shares[osd] = most_others + bytes_led / len(target.osds)
    return shares


# ---- When a probe must not begin, and when it must end at once

#: Health checks that prevent probes, in addition to the stop conditions of a campaign. Pools
#: matter only where they are the probe's own target: see `blocked_io`.
FULL_CHECKS = {
    'OSD_FULL': 'OSDs are full',
    'OSD_NEARFULL': 'OSDs are nearly full',
    'OSD_BACKFILLFULL': 'OSDs are too full for backfill',
}
#: Flags of the OSDMap with which clients wait or cannot write.
STILL_FLAGS = ('full', 'pauserd', 'pausewr', 'pauserec')
#: Flags of a pool with the same effect; eio: every operation returns an error.
STILL_POOL_FLAGS = ('full', 'full_quota', 'backfillfull', 'nearfull', 'eio')


def full_or_moving(signals: Signals, moving_allowed: bool, own_pool: int = -1) -> List[str]:
    """Why no probe may run now, in addition to the stop conditions of a campaign, as texts: full
    OSDs, and data that moves.

    `moving_allowed`: the operator wants to measure although data moves. `own_pool`: id of a pool
    that the run has created, whose PGs may move: the balancer evens out each new pool. -1: none.
    """
    counts, own_counts = signals.counts, signals.pool_counts.get(own_pool, PgCounts())
    texts = ['%s: %s' % (text, signals.health[check]) for check, text in FULL_CHECKS.items()
             if check in signals.health]
    if moving_allowed:
        return texts
    for number, text in ((counts.backfilling - own_counts.backfilling, 'backfilling'),
                         (counts.recovering - own_counts.recovering, 'recovering'),
                         (counts.backfill_wait - own_counts.backfill_wait, 'waiting for backfill')):
        if number > 0:
            texts.append('%s %s' % (pgs_are(number), text))
    return texts


def blocked_io(osdmap: OsdMap, pool: Optional[Pool], writing_in_place: bool) -> List[str]:
    """Why clients cannot do the I/O of the probe, as texts. `pool`: None if the probe creates one.
    `writing_in_place`: a job writes parts of objects."""
    texts = ['the OSDMap has the flag %s' % flag for flag in STILL_FLAGS if flag in osdmap.flags]
    if pool is None:
        return texts
    texts += ['pool %s has the flag %s' % (pool.name, flag)
              for flag in STILL_POOL_FLAGS if flag in pool.flags]
    if pool.erasure and writing_in_place and 'ec_overwrites' not in pool.flags:
        texts.append('pool %s is erasure coded without allow_ec_overwrites: '
                     'only reads can be probed' % pool.name)
    return texts


def disturbances(signals: Signals) -> List[str]:
    """What disturbs a measurement but does not prevent it, as texts."""
    counts = signals.counts
    texts = []
    if counts.deep_scrubbing:
        texts.append('deep scrub')
    if counts.backfilling or counts.recovering:
        texts.append('recovery or backfill')
    return texts


# ---- Clients of the same pool and OSDs

#: Number of readings of client latency that are judged together (half a minute), and how many of
#: them there must be: a reading with PGs that peer has no effect on their median.
LATENCY_READINGS, LEAST_READINGS = 6, 3
#: Minimum number of their operations: the mean of 50 rarely reaches the limit by chance, which is
#: 1.5 times the baseline or more.
LEAST_PROBE_OPS = 50

#: Pool and "reads" or "writes".
Kind = Tuple[int, str]


def affected_ops(clients: Clients, loaded: Touched, slow: AbstractSet[int]) -> Dict[Kind, Ops]:
    """The operations of clients that a probe affects in the last reading: those of the pools that
    it loads, and those on the OSDs. Without OSDs that are `slow`: they may be probed for that."""
    sums: Dict[Kind, Ops] = {}
    for row in clients.rows:
        if row.osd in slow or not (row.pool in loaded.pools or row.osd in loaded.osds):
            continue
        for kind, (sum_ns, number) in (('reads', row.read), ('writes', row.write)):
            so_far = sums.get((row.pool, kind), Ops())
            if are_sane(sum_ns, number) and number:
                sums[row.pool, kind] = Ops(so_far.sum_ns + sum_ns, so_far.number + number)
    return sums


def clients_over_limit(clients: Clients, loaded: Touched, slow: AbstractSet[int]) -> List[str]:
    """The client latencies that forbid a probe to begin, as texts: of clients that it would affect,
    and over their limit both in the last reading (of the affected operations) and in the last
    minute (of the whole pool), so that neither a short stall nor one slow OSD counts. `loaded`:
    what the probe would load; `slow`: OSDs that are slow."""
    latency_ms: Dict[Kind, float] = {}
    for (pool_id, kind), ops in affected_ops(clients, loaded, slow).items():
        pool = clients.pools.get(pool_id)
        if pool is not None and ops.number >= LEAST_PROBE_OPS:
            minute = pool.read_minute if kind == 'reads' else pool.write_minute
            # The lower one, because both must be over the limit.
            latency_ms[pool_id, kind] = min(_mean_ms(ops), minute.median_ms)
    return _over(clients, latency_ms)


class AffectedClients:
    """Latency of the clients that a probe affects, while it is active."""

    def __init__(self) -> None:
        self._time = 0.0
        self._readings: Deque[Dict[Kind, Ops]] = deque(maxlen=LATENCY_READINGS)

    def take_reading(self, clients: Clients, loaded: Touched, slow: AbstractSet[int]) -> None:
        """Take the last reading of client operations, if it is new. `loaded`: what probes load, or
        have loaded until lately; `slow`: OSDs that are slow."""
        if clients.time != self._time:
            self._time = clients.time
            self._readings.append(affected_ops(clients, loaded, slow))

    def over_limit(self, clients: Clients) -> List[str]:
        """The client latencies that end the probe, as texts: those over their limit in the median
        of the last readings. A kind with too few readings or operations does not count."""
        latency_ms: Dict[Kind, float] = {}
        for kind in {kind for reading in self._readings for kind in reading}:
            readings = [reading[kind] for reading in self._readings if kind in reading]
            number = sum(ops.number for ops in readings)
            if len(readings) >= LEAST_READINGS and number >= LEAST_PROBE_OPS:
                latency_ms[kind] = weighted_median((_mean_ms(ops), ops.number) for ops in readings)
        return _over(clients, latency_ms)


def _mean_ms(ops: Ops) -> float:
    return ops.sum_ns / ops.number / 1e6


def _over(clients: Clients, latency_ms: Mapping[Kind, float]) -> List[str]:
    """The client latencies that are over the limit of their pool, as texts."""
    texts = []
    for (pool_id, kind), ms in sorted(latency_ms.items()):
        pool = clients.pools.get(pool_id)
        limit = None if pool is None else (
            pool.read_target_ms if kind == 'reads' else pool.write_target_ms)
        if pool is not None and limit is not None and ms > limit:
            texts.append('%s latency of clients of pool %s is %.2f ms (limit %.2f ms)' % (
                kind[:-1], pool.name, ms, limit))  # "reads": "read"
    return texts


class Loaded:
    """Until when probes load, or have loaded, OSDs and pools."""

    def __init__(self) -> None:
        self._osds: Dict[int, float] = {}
        self._pools: Dict[int, float] = {}

    def note(self, until: float, loaded: Touched) -> None:
        """Note that a probe loads these OSDs and pools until a time in seconds since the epoch."""
        for times, numbers in ((self._osds, loaded.osds), (self._pools, loaded.pools)):
            times.update({number: max(until, times.get(number, until)) for number in numbers})

    def lately(self, now: float, seconds: float) -> Touched:
        """The pools and OSDs that were loaded in the last `seconds`."""
        return Touched(*({number for number, until in times.items() if now - until < seconds}
                         for times in (self._osds, self._pools)))
