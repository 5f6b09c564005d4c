# SPDX-License-Identifier: LGPL-2.1-or-later
"""One run: a cluster at rest, an expansion in the way of one controller, and what it was like."""

import sys
import time
from dataclasses import dataclass, field, replace
from typing import Any, Dict, Optional, Sequence, Tuple

import numpy as np

from perfguard.cluster.crush import CrushRules
from perfguard.options import DEFAULTS, Options
from perfguard.rebalance.orders import Order
from perfguard.rebalance.progress import Eta
from perfguard.rebalance.throttle import FlightCap, caps
from perfguard.rebalance.types import Phase

from .caps import Caps, Wrong
from .cluster import SIZE, Model
from .controllers import CONTROLLERS, mean_ms
from .crush import Tree
from .driver import Costs, Driver
from .physics import HARDWARE
from .port import STATS_SECONDS, SimCluster
from .scenarios import SCENARIOS
from .troubles import Trouble, Troublemaker, troubles

#: Seconds in which baselines are learned; the last minute is what latency is compared with.
LEARN_SECONDS, QUIET_SECONDS = 300.0, 60.0
WEIGHT = 8.0
PERCENTILES = (0.5, 0.99, 0.999)
#: Seconds after the end of a campaign in which everything borrowed is given back.
GIVEN_BACK_SECONDS = 30.0
#: Share of the bytes after which the time left is compared with what it then takes.
FORESEEN_SHARE = 0.1
#: CPU time after which a run that takes long says how far it is.
TELL_SECONDS = 60.0


@dataclass(frozen=True)
class Settings:
    osds: int = 12
    #: Of them: OSDs that join, on hosts of their own.
    added: int = 4
    osds_per_host: int = 2
    hosts_per_rack: int = 1000
    #: Failure domain of the pools' rule: host or rack.
    domain: str = 'host'
    #: The option of perfguard; the other controllers release every pin.
    target: str = 'crush'
    pools: Tuple[int, ...] = (192,)
    pg_bytes: float = 1.0e6
    hardware: str = 'bench'
    controller: str = 'perfguard'
    scenario: str = 'calm'
    seed: int = 1
    backfills: int = 1
    #: Seconds between two turns at least.
    rest: float = 0.2
    limit: float = 30 * 86400.0
    #: Faults and orders of operators, drawn by the seed.
    troubles: int = 0
    options: Dict[str, Any] = field(default_factory=dict)


def chance(seed: int, controller: str) -> Settings:
    """A small cluster, an expansion and a scenario, all drawn by the seed."""
    random = np.random.default_rng(seed)
    per_host, hosts = int(random.integers(1, 5)), int(random.integers(5, 11))
    new = int(random.integers(1, hosts // 2 + 1))
    hardware = str(random.choice(['bench', 'ssd']))
    return Settings(
        osds=per_host * (hosts + new), added=per_host * new, osds_per_host=per_host,
        pools=tuple(int(1 << random.integers(5, 8)) for _ in range(random.integers(1, 5))),
        pg_bytes=float(2 ** random.uniform(20, 24 if hardware == 'bench' else 28)),
        hardware=hardware, controller=controller, seed=seed, limit=3 * 86400.0,
        backfills=int(random.integers(1, 3)), scenario=str(random.choice(sorted(SCENARIOS))))


@dataclass(frozen=True)
class Result:
    settings: Settings
    seconds: float
    #: Of client operations, in ms: before the scenario, in it while nothing moves, and during the
    #: expansion.
    quiet: Dict[float, float]
    unmoved: Dict[float, float]
    during: Dict[float, float]
    most_ms: float
    moved: int
    shards: int
    #: OSDMap epochs from the join to the end.
    epochs: int
    #: PGs in flight at the same time at most, and PGs that the join has remapped.
    most_pgs: int = 0
    remapped: int = 0
    #: PGs on the OSD that is furthest from its share by weight, against that share.
    imbalance: float = 0.0
    #: Share of the time in which perfguard had halted everything.
    halted: float = 0.0
    costs: Optional[Costs] = None
    preview_seconds: float = 0.0
    #: Of perfguard, after FORESEEN_SHARE of the bytes; None: it gave no time.
    foreseen: Optional[Eta] = None
    #: What it took from then on.
    left: float = 0.0

    @property
    def ratio(self) -> float:
        """p99 against p99 of the same scenario without movement."""
        return self.during[0.99] / max(1e-9, self.unmoved[0.99])


def model_of(settings: Settings) -> Tuple[Model, np.ndarray]:
    """The cluster before the expansion, and the weights after it."""
    tree = Tree(settings.osds, settings.osds_per_host,
                min(settings.hosts_per_rack, -(-settings.osds // settings.osds_per_host)),
                settings.domain)
    after = np.full(settings.osds, WEIGHT)
    before = np.where(np.arange(settings.osds) < settings.osds - settings.added, WEIGHT, 0.0)
    return Model(tree, settings.pools, HARDWARE[settings.hardware], before, settings.pg_bytes,
                 np.random.default_rng(settings.seed), settings.backfills), after


def options_of(settings: Settings) -> Options:
    return replace(DEFAULTS, **{'baseline_seconds': 60.0, 'target': settings.target,
                                **settings.options})


def run(settings: Settings) -> Result:
    """Raises Wrong where a rule is broken that holds at every instant."""
    if settings.troubles:
        return troubled(settings, troubles(settings.seed, settings.troubles))
    model, after = model_of(settings)
    cluster = SimCluster(model, after)
    kind = CONTROLLERS[settings.controller]
    if kind is None:
        return _perfguard(settings, cluster)
    usual = _quiet(cluster)
    quiet = _percentiles(cluster)
    begin, epoch = model.now, model.epoch
    SCENARIOS[settings.scenario](model, begin)
    controller = kind(cluster, usual)
    controller.join(after)
    controller.run(settings.limit)
    return _result(settings, cluster, quiet, begin, epoch)


def _unmoved(settings: Settings, quiet: Dict[float, float], seconds: float,
             found: Sequence[Trouble]) -> Dict[float, float]:
    """Latencies of the same cluster in the same scenario, with the same troubles, for as long."""
    if found:
        return _troubled_at_rest(settings, seconds, found)
    if settings.scenario == 'calm':
        return quiet
    model, after = model_of(settings)
    cluster = SimCluster(model, after)
    SCENARIOS[settings.scenario](model, model.now)
    until = model.now + seconds
    while model.now < until:
        model.advance(model.now + STATS_SECONDS)
        cluster.readings(None, cluster.signals(cluster.map_view().osdmap))
    return _percentiles(cluster)


def _troubled_at_rest(settings: Settings, seconds: float,
                      found: Sequence[Trouble]) -> Dict[float, float]:
    model, after = model_of(settings)
    driver, _ = rested(settings, SimCluster(model, after))
    SCENARIOS[settings.scenario](model, model.now)
    makes, until = Troublemaker(driver, found), model.now + seconds
    while model.now < until:
        makes.work()
        driver.turn()
    return _percentiles(driver.cluster)


def _quiet(cluster: SimCluster) -> float:
    """Rest, and the mean latency of clients meanwhile."""
    signals = cluster.signals(cluster.map_view().osdmap)
    cluster.model.advance(cluster.model.now + QUIET_SECONDS)
    return mean_ms(cluster.readings(None, signals).clients)


def rested(settings: Settings, cluster: SimCluster) -> Tuple[Driver, Dict[float, float]]:
    """perfguard after it has learned its baselines at rest, and the latencies at that time."""
    options = options_of(settings)
    driver = Driver(cluster, options, settings.rest)
    driver.quiet(LEARN_SECONDS)
    cluster.latencies.clear()
    driver.quiet(QUIET_SECONDS)
    cluster.model.in_flight.caps = caps_of(options, cluster)
    return driver, _percentiles(cluster)


def caps_of(options: Options, cluster: SimCluster) -> Caps:
    """The operator's caps, once the new OSDs have their weights."""
    crush = CrushRules.from_dump(cluster.model.tree.dump(cluster.future_weights))
    most = caps(FlightCap().resolve(options, cluster.map_view().osdmap, crush, -1))
    return Caps(most.source, most.target, most.primary, most.host, most.domain, most.pgs,
                most.bytes)


def _perfguard(settings: Settings, cluster: SimCluster) -> Result:
    model = cluster.model
    driver, quiet = rested(settings, cluster)
    SCENARIOS[settings.scenario](model, model.now)
    driver.costs.turns.clear()
    driver.costs.phases.clear()
    begin, epoch = model.now, model.epoch
    driver.order(Order('expand'))
    preview = max(driver.costs.jobs, default=0.0)
    course = _to_the_end(driver, settings.limit)
    if model.remapped_by_crush:
        raise Wrong('the join has remapped %d PGs' % model.remapped_by_crush)
    return replace(_result(settings, cluster, quiet, begin, epoch), costs=driver.costs,
                   preview_seconds=preview, halted=course.halted / max(model.now - begin, 1e-9),
                   foreseen=course.eta, left=model.now - course.since)


@dataclass
class _Course:
    #: Seconds in which perfguard had halted everything.
    halted: float = 0.0
    #: The time left, and when that was; 0.0: not yet.
    eta: Optional[Eta] = None
    since: float = 0.0


def _to_the_end(driver: Driver, limit: float) -> _Course:
    model, course = driver.model, _Course()
    begin, due = model.now, time.process_time() + TELL_SECONDS
    while driver.loop.rebalance.active:
        if time.process_time() > due:
            due += TELL_SECONDS
            print(_so_far(driver, model.now - begin), file=sys.stderr, flush=True)
        status = driver.loop.published.rebalanced.status
        if model.now - begin > limit:
            raise Wrong('not done in %d s: %s' % (limit, status))
        if not course.since and status.bytes_done > FORESEEN_SHARE * status.bytes_total:
            course.eta, course.since = status.eta, model.now
        before = model.now
        driver.turn()
        campaign = driver.loop.rebalance.campaign
        if campaign.pace.halted:
            course.halted += model.now - before
    return course


def _so_far(driver: Driver, seconds: float) -> str:
    costs, phase = driver.costs, driver.phase
    return '%s after %.0f s: %d PGs moved, %d left, epoch %d, p99 %.1f ms; %d turns, in this ' \
        'phase: median %.1f ms, max %.1f ms; longest job %.2f s; %d MiB' % (
            phase, seconds, len(driver.model.moved), len(driver.model.entries),
            driver.model.epoch, driver.cluster.latencies.percentile(0.99), len(costs.turns),
            costs.median_ms(phase), costs.most_ms(phase), max(costs.jobs, default=0.0),
            costs.peak_mib)


def troubled(settings: Settings, found: Sequence[Trouble]) -> Result:
    """An expansion with faults and orders of operators: it ends all the same, and nothing is
    left."""
    model, after = model_of(settings)
    cluster = SimCluster(model, after)
    driver, quiet = rested(settings, cluster)
    given = cluster.borrowed()
    SCENARIOS[settings.scenario](model, model.now)
    begin, epoch = model.now, model.epoch
    driver.order(Order('expand'))
    end = _through(driver, found, settings.limit)
    driver.quiet(GIVEN_BACK_SECONDS)
    if driver.ended not in (Phase.DONE.value, Phase.ABORTED.value) or cluster.borrowed() != given:
        raise Wrong('%s; left: %s, before: %s' % (driver.ended, cluster.borrowed(), given))
    # It may have been aborted before anything was pinned.
    aborted = driver.ended == Phase.ABORTED.value
    return replace(_result(settings, cluster, quiet, begin, epoch, found, aborted),
                   seconds=end - begin, costs=driver.costs)


def _through(driver: Driver, found: Sequence[Trouble], limit: float) -> float:
    """Until all troubles are over and everything has arrived; returns when the campaign ended."""
    model, makes, end = driver.model, Troublemaker(driver, found), driver.model.now
    until = end + sum(each.after + each.lasts for each in found) + limit
    while driver.loop.rebalance.open or not makes.over or model.remapped:
        makes.work()
        if model.now > until:
            raise Wrong('not done: %s' % (driver.loop.published.rebalanced.status,))
        driver.turn()
        if driver.loop.rebalance.open:
            end = model.now
    return end


def _result(settings: Settings, cluster: SimCluster, quiet: Dict[float, float], begin: float,
            epoch: int, found: Sequence[Trouble] = (), aborted: bool = False) -> Result:
    model = cluster.model
    cluster.readings(None, cluster.signals(cluster.map_view().osdmap))
    _check(cluster, settings, aborted)
    most_ms, seconds = cluster.latencies.most_ms, model.now - begin
    return Result(settings, seconds, quiet, _unmoved(settings, quiet, seconds, found),
                  _percentiles(cluster), most_ms, len(model.moved), model.shards,
                  model.epoch - epoch, model.in_flight.most_pgs, model.remapped_by_crush,
                  imbalance(model))


def imbalance(model: Model) -> float:
    """PGs of a pool on the OSD that is furthest from its share, against that share."""
    worst = 0.0
    for pool, number in enumerate(model.pools):
        held = np.bincount(model.up[model.pool_of == pool + 1].ravel(), minlength=model.tree.osds)
        share = number * SIZE * model.weights / model.weights.sum()
        worst = max(worst, float(np.abs(held - share).max()))
    return worst


def _check(cluster: SimCluster, settings: Settings, aborted: bool) -> None:
    """The end: all data is where CRUSH places it, and nothing has moved twice."""
    model = cluster.model
    twice = [pg for pg, times in model.moved.items() if times > 1 and pg not in model.forced]
    # The balance is another one without an OSD, with it again, and after an abort.
    if twice and not (settings.target == 'balanced' and cluster.balanced_anew):
        raise Wrong('%d PGs moved more than once' % len(twice))
    light = int((model.weights < WEIGHT).sum())
    if model.remapped or light and not aborted:
        raise Wrong('%d PGs are remapped, %d OSDs have no weight' % (model.remapped, light))
    if settings.target == 'crush' and (
            model.entries or (np.sort(model.up) != np.sort(model.raw)).any()):
        raise Wrong('%d upmaps are left' % len(model.entries))
    assert model.up.shape == (model.pgs, SIZE)
    assert (np.sort(model.up) == np.sort(model.data)).all()
    held = np.bincount(model.data.ravel(), minlength=model.tree.osds)
    assert (held == model.holds).all(), 'the model counts wrongly'


def _percentiles(cluster: SimCluster) -> Dict[float, float]:
    """Of what was since the last call."""
    found = {share: cluster.latencies.percentile(share) for share in PERCENTILES}
    cluster.latencies.clear()
    return found
