# SPDX-License-Identifier: LGPL-2.1-or-later
"""The orders of operators, and the check of a run: what it will do, and whether it may begin.

Nothing is created yet.
"""
import errno
import math
from collections import Counter
from dataclasses import dataclass, field
from functools import partial
from typing import Callable, ClassVar, Dict, Iterable, List, Mapping, Optional, Sequence, Tuple

from ..cluster.ports import Reader, View
from ..cluster.types import RJENKINS, Document, Pool, Signals
from ..codec import encode
from ..errors import Code, Refused
from ..observation import Observation
from ..options import Options
from ..watch.stop_conditions import MUTED_BY, Touched, stop_conditions
from .jobs import (MAX_REPEAT, check_target, default_repeat, number_between, parse_jobs, plan_steps,
                   profile_of, remarks)
from .limits import (Budget, blocked_io, budget_of, budget_refusals, clients_over_limit,
                     full_or_moving, nearfull_osds, preview_json, shares_of)
from .osd_bench import store_budget
from .placement import Candidate, Naming, naming_of, selected_osds
from .records import redundancy_text
from .resources import pg_num_for, pool_named, quoted
from .types import RBD, Job, JobStep, Target


@dataclass(frozen=True)
class RunOrder:
    """The order of a run, as given on the command line."""
    profile: Optional[str] = None
    #: fio's options -> values.
    words: Mapping[str, str] = field(default_factory=dict)
    job_file: Optional[str] = None
    pool: Optional[str] = None
    #: Selection of OSDs by ids, host and device class; all given ones apply.
    osd: Optional[str] = None
    host: Optional[str] = None
    device_class: Optional[str] = None
    #: Bench the object stores; measure the OSDs alone, together, and alone again.
    store: bool = False
    interference: bool = False
    #: Measure 1, 2, 4 ... of the OSDs at a time.
    scale: bool = False
    #: Or of the hosts, each with all of its selected OSDs.
    by_host: bool = False
    #: Of the pool that the run creates; a pool with one replica requires consent.
    replicas: Optional[str] = None
    consent: bool = False
    repeat: Optional[str] = None
    during_campaign: bool = False
    #: Scrubs and the removal of snapshots pause during the run.
    hold_scrub: bool = False
    dry_run: bool = False
    #: "command", or the name of a schedule.
    trigger: str = 'command'
    addressee: ClassVar[str] = 'probe'

    @property
    def verb(self) -> str:
        return 'probe run'

    @property
    def kind(self) -> str:
        """The kind of the target, as in Target."""
        if self.interference:
            return 'interference'
        if self.scale:
            return 'scale'
        if self.store:
            return 'store'
        if self.osd or self.host or self.device_class:
            return 'osd'
        return 'pool' if self.pool else 'cluster'


@dataclass(frozen=True)
class RunId:
    """An order for one run: "probe cancel", "probe cancel --force", "probe rm", "probe baseline" or
    "probe baseline --rm"."""
    verb: str
    run: int
    addressee: ClassVar[str] = 'probe'


@dataclass(frozen=True)
class ImportedRun:
    """The JSON of perfguard-probe."""
    text: str
    verb: ClassVar[str] = 'probe import'
    addressee: ClassVar[str] = 'probe'


@dataclass(frozen=True)
class DroppedSchedule:
    """The name of "schedule --rm"."""
    key: str
    verb: ClassVar[str] = 'probe schedule --rm'
    addressee: ClassVar[str] = 'probe'


@dataclass(frozen=True)
class NewSchedule:
    """The arguments of "schedule"; `run` is begun when the schedule is due."""
    key: str
    run: RunOrder
    window: Mapping[str, str]
    verb: ClassVar[str] = 'probe schedule'
    addressee: ClassVar[str] = 'probe'


#: Instead of a pool that cannot be probed.
OWN_POOL = 'without --pool, a probe creates its own pool'


def words_of_order(order: RunOrder) -> Dict[str, str]:
    """What an order says beside its trigger, as commands show it."""
    return {name: 'yes' if value is True else value for name, value in encode(order).items()
            if name != 'trigger'}


#: Default and maximum number of replicas in the pool that a probe creates.
REPLICAS, MOST_REPLICAS = 3, 10
#: Advice if an OSD does not lead enough PGs of the pool that a run creates.
MORE_PGS = '; name a pool with more PGs (--pool)'
#: Least probability that each chosen OSD leads a PG of the pool that a run creates.
LEAST_CHANCE = 0.5
#: Repetitions of a bench of the stores.
STORE_REPEAT = 1
#: Maximum number of OSDs of a pool whose counters are read before and after a probe of it: each
#: answers with a few kB, which the mgr parses.
MOST_COUNTED = 200


@dataclass(frozen=True)
class CheckedRun:
    """A valid order, checked against the cluster."""
    order: RunOrder
    #: Name of the profile of its jobs, as RunRecord.profile.
    profile: str
    jobs: Tuple[Job, ...]
    target: Target
    repeat: int
    #: None: the run creates one.
    pool: Optional[Pool]
    pg_num: int
    #: The OSDs that are probed one by one; else all under the rule of the pool.
    osds_at_work: Tuple[int, ...]
    budget: Budget
    #: Why the run must not begin now.
    refusals: Tuple[str, ...]
    #: What --dry-run shows.
    preview: Document

    @property
    def image(self) -> bool:
        return any(job.ioengine == RBD for job in self.jobs)

    @property
    def redundancy(self) -> str:
        """The redundancy of the operator's pool, as a text: a later pool of this name may have
        another one. '': the probe creates its pool."""
        pool = self.pool
        if pool is None:
            return ''
        return redundancy_text(pool.size, pool.data_shards if pool.erasure else 0)

    def steps(self) -> Tuple[JobStep, ...]:
        """The steps of the run, without names of objects."""
        return plan_steps(self.jobs, self.target, self.repeat)

    def placement_check(self, view: View) -> Optional[Callable[[], Naming]]:
        """A function for the tool thread, because it considers each PG of the pool: it raises
        BadJob if a chosen OSD leads too few of them. None: no check is needed."""
        if self.pool is None or not self.target.osds or self.refusals:
            return None
        # Any run will do: whether there are enough PGs does not depend on it.
        return partial(self.naming, run=0, pool=self.pool, view=view)

    def naming(self, run: int, pool: Pool, view: View) -> Naming:
        """What names the objects of the run. Raises BadJob."""
        primaries = view.primaries(pool.id) if self.target.osds else None
        return naming_of(run, self.jobs, self.target, primaries, pool.id, pool.pg_num)

    @property
    def counted_osds(self) -> Tuple[int, ...]:
        """The OSDs whose counters show where the operations went."""
        return self.osds_at_work if len(self.osds_at_work) <= MOST_COUNTED else self.target.osds


def _measuring(order: RunOrder) -> Tuple[str, Tuple[Job, ...], int]:
    """The name of the profile, the jobs (none for --store), and the number of repetitions. Raises
    Refused or BadJob."""
    jobs: Tuple[Job, ...] = ()
    if order.store:
        if order.words or order.profile or order.job_file:
            raise Refused(errno.EINVAL, "--store runs the OSDs' own bench and accepts "
                          'neither profile nor jobs')
        profile, repeat = 'store', STORE_REPEAT
    else:
        jobs = parse_jobs(order.profile, order.words, order.job_file)
        profile = profile_of(order.profile, order.words, order.job_file)
        repeat = default_repeat(profile)
    if order.repeat is not None:
        repeat = number_between('repeat', order.repeat, 1, MAX_REPEAT)
    return profile, jobs, repeat


def _check_switches(order: RunOrder) -> None:
    """Raise Refused if the switches of the order contradict each other."""
    if order.by_host and not order.scale:
        raise Refused(errno.EINVAL, '--by_host applies only to --scale')
    if order.store and order.hold_scrub:
        raise Refused(errno.EINVAL, '--hold_scrub does not apply to --store: the bench of an OSD '
                      'continues if the mgr fails')
    if order.store + order.interference + order.scale > 1:
        raise Refused(errno.EINVAL, '--store, --interference and --scale exclude each other')


def check_run(order: RunOrder, cluster: Reader, observation: Observation, view: View,
              options: Options, moving: bool) -> CheckedRun:
    """What an order would do: its jobs and their target, budget and preview, and the reasons why it
    cannot run now, which are no error. Raises Refused or BadJob if the order is invalid at any
    time.

    `moving`: a campaign is active.
    """
    profile, jobs, repeat = _measuring(order)
    _check_switches(order)
    pool = _pool(order, view)
    target = _target(order, observation, pool)
    if pool is not None and target.osds and pool.object_hash != RJENKINS:
        raise Refused(errno.EINVAL, 'cannot place objects on chosen OSDs: pool %s uses object_hash '
                      '%d (%s)' % (pool.name, pool.object_hash, OWN_POOL))
    rule = pool.crush_rule if pool is not None else _own_rule(cluster, observation, target.replicas)
    weights = _weights_under(rule, observation)
    rule_osds = tuple(sorted(weights))
    usable_osds = [osd for osd in rule_osds if observation.osdmap.osds[osd].is_up_and_in]
    pg_num = pool.pg_num if pool is not None else pg_num_for(len(usable_osds))
    if not order.store:
        if pool is None:
            refuse_too_few_pgs(target.osds, {osd: weights[osd] for osd in usable_osds}, pg_num)
        check_target(jobs, target)
        if pool is not None and jobs[0].ioengine == RBD:
            # The user of a probe cannot create the namespace that images require.
            raise Refused(errno.EINVAL, "ioengine=rbd measures an image in the probe's own pool: "
                          '--pool applies only to perfguard-probe')
    budget = store_budget(len(target.osds), repeat) if order.store else budget_of(
        jobs, target, repeat, _copies(target, pool))
    touched = Touched(frozenset(target.osds or usable_osds),
                      frozenset({pool.id} if pool is not None else ()))
    refusals = (*_blocked(order, observation, moving, pool, jobs, touched),
                *_no_room(cluster, options, pool, budget),
                *_nearfull_texts(cluster, observation, target, pool, usable_osds, budget))
    preview = preview_json(target, jobs, repeat, budget, refusals, remarks(order.job_file))
    return CheckedRun(order, profile, jobs, target, repeat, pool, pg_num,
                      target.osds or rule_osds, budget, refusals, preview)


def _pool(order: RunOrder, view: View) -> Optional[Pool]:
    """The operator's pool that an order names; None: it names none, and the probe creates its own
    or needs none (--store). Raises Refused or BadJob if the pool cannot be probed."""
    if order.store and (order.pool is not None or order.replicas is not None):
        raise Refused(errno.EINVAL, '--store measures OSDs: --pool and --replicas do not apply')
    if order.pool is None:
        return None
    if order.replicas is not None:
        raise Refused(errno.EINVAL, "--replicas applies only to the probe's own pool, not to pool "
                      '%s' % order.pool)
    pool = pool_named(view, order.pool)
    if pool is None:
        raise Refused(errno.ENOENT, 'pool %r does not exist' % order.pool)
    quoted(pool.name)  # BadJob if capabilities cannot name this pool
    if pool.cached:
        # Its operations go to the tier, to which the user of the probe has no access.
        raise Refused(errno.EINVAL, 'pool %s is behind a cache tier: a probe of it would measure '
                      'the tier, and could not remove its objects (%s)' % (pool.name, OWN_POOL))
    if pool.caches:
        raise Refused(errno.EINVAL, 'pool %s is a cache tier: to make room for the objects of a '
                      'probe, it would evict those of clients (%s)' % (pool.name, OWN_POOL))
    return pool


def _target(order: RunOrder, observation: Observation, pool: Optional[Pool]) -> Target:
    """What an order measures: the cluster, a pool, or the selected OSDs. Raises Refused or BadJob.
    `pool`: as _pool()."""
    replicas = REPLICAS if order.replicas is None else number_between(
        'replicas', order.replicas, 1, MOST_REPLICAS)
    if replicas == 1 and not order.consent:
        raise Refused(errno.EPERM, 'a pool with one replica loses its objects with their OSD: add '
                      '--yes-i-really-mean-it to confirm')
    osds: Tuple[int, ...] = ()
    hosts: Tuple[int, ...] = ()
    if order.kind in ('osd', 'store', 'interference', 'scale'):
        candidates = {
            osd.id: Candidate(observation.crush.host_of(osd.id) or '',
                              observation.crush.class_of(osd.id), is_up=osd.up,
                              is_in=osd.reweight > 0.0)
            for osd in observation.osdmap.osds.values() if osd.exists}
        osds = selected_osds(candidates, order.osd or '', order.host or '',
                             order.device_class or '')
        if order.by_host:
            osds = tuple(sorted(osds, key=lambda osd: (candidates[osd].host, osd)))
            hosts = tuple(Counter(candidates[osd].host for osd in osds).values())
    return Target(order.kind, pool.name if pool is not None else '', osds, replicas, hosts)


def refuse_too_few_pgs(chosen: Iterable[int], weights: Mapping[int, float], pg_num: int) -> None:
    """Raise Refused if the chance is too small that each of the chosen OSDs leads a PG of the
    probe's own pool: the run would fail after it has created the pool. `weights`: CRUSH weights of
    all OSDs that the pool may use; an OSD leads PGs in proportion to its weight."""
    whole = sum(weights.values())
    chance = math.prod(1.0 - (1.0 - weights[osd] / whole) ** pg_num
                       for osd in chosen if osd in weights)
    if chance < LEAST_CHANCE:
        raise Refused(errno.EINVAL, "the probe's own pool would have %d PGs for %d OSDs, so a "
                      'chosen OSD would probably be primary of none%s' % (
                          pg_num, len(weights), MORE_PGS))


def _own_rule(cluster: Reader, observation: Observation, replicas: int) -> Optional[int]:
    """The CRUSH rule that the mons give to a new replicated pool; None: not known."""
    rules = observation.crush.rules_for(erasure=False, size=replicas)
    default = cluster.default_crush_rule()
    if default < 0:  # not configured: the mons take the first one
        return min(rules, default=None)
    return default if default in rules else None


def _weights_under(rule: Optional[int], observation: Observation) -> Dict[int, float]:
    """The CRUSH weights of the OSDs that a pool with this rule may use; for an unknown rule, of all
    that have a weight."""
    crush, osds = observation.crush, observation.osdmap.osds
    weights = crush.weights() if rule is None else {osd: crush.weight_of(rule, osd) for osd in osds}
    return {osd: weight for osd, weight in weights.items() if osd in osds and weight > 0.0}


def _copies(target: Target, pool: Optional[Pool]) -> float:
    """Bytes stored on OSDs for each byte of an object."""
    if pool is None:
        return float(target.replicas)
    return pool.size / pool.data_shards


def _blocked(order: RunOrder, observation: Observation, moving: bool, pool: Optional[Pool],
             jobs: Tuple[Job, ...], loaded: Touched) -> List[str]:
    """Why the state of the cluster forbids a probe now, as texts: a campaign, stop conditions, slow
    clients, and flags that block its I/O. `loaded`: what it would load."""
    texts = []
    if moving and not order.during_campaign:
        texts.append('a campaign is active (override with --during-campaign)')
    texts += stop_reasons(observation, order.during_campaign)
    if not ignores_clients(observation.signals):
        texts += clients_over_limit(observation.clients, loaded, observation.slow_osds)
    # Writes to a part of an object, which not all erasure-coded pools allow.
    writing_in_place = any(job.writes and job.bs < job.object_bytes for job in jobs)
    return texts + blocked_io(observation.osdmap, pool, writing_in_place)


def _no_room(cluster: Reader, options: Options, pool: Optional[Pool], budget: Budget) -> List[str]:
    """The limits of space and time that the budget exceeds, as texts."""
    space = cluster.pool_space(pool.id) if pool is not None else None
    # Raw bytes, as in the budget: the free space of a pool is before replication, and 0 while the
    # pool is new.
    raw_free = space.free_bytes * _copies(Target('pool'), pool) \
        if space is not None and space.free_bytes else cluster.free_bytes()
    quota_bytes = quota_objects = None
    if pool is not None and space is not None:
        if pool.quota_bytes:
            quota_bytes = pool.quota_bytes - space.stored_bytes
        if pool.quota_objects:
            quota_objects = pool.quota_objects - space.objects
    return budget_refusals(budget, int(raw_free), options.probe_max_bytes,
                           options.probe_max_seconds, quota_bytes, quota_objects)


def _nearfull_texts(cluster: Reader, observation: Observation, target: Target, pool: Optional[Pool],
                    osds: Sequence[int], budget: Budget) -> List[str]:
    """The OSDs that the probe would fill to the nearfull ratio, as texts: the free space of a pool
    does not show whether single OSDs have too little."""
    shares = shares_of(budget, target, osds, pool.data_shards if pool is not None else 1)
    return nearfull_osds(shares, cluster.osd_space(), observation.osdmap.nearfull_ratio)


def stop_reasons(observation: Observation, moving_allowed: bool, own_pool: int = -1) -> List[str]:
    """Why no probe may begin or continue, as texts: the stop conditions of a campaign, full OSDs,
    and data that moves unless `moving_allowed`. `own_pool`: the id of the pool that the run has
    created, whose PGs may move in any case; -1: none."""
    stops = [stop.reason.text for stop in stop_conditions(observation.signals)]
    return stops + full_or_moving(observation.signals, moving_allowed, own_pool)


def ignores_clients(signals: Signals) -> bool:
    """Whether the operator has muted the alarm of client latency: then a probe may slow clients
    down."""
    return MUTED_BY[Code.SLOW_POOL] in signals.muted
