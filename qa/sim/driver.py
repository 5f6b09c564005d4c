# SPDX-License-Identifier: LGPL-2.1-or-later
"""Runs perfguard's loop over the model, from the join of new OSDs to the end of the campaign."""

import resource
import time
from dataclasses import dataclass, field
from typing import Any, Callable, Dict, List, Optional

import numpy as np

from perfguard.clock import Clock
from perfguard.cluster.tool_thread import Result, ToolJob, ToolThread
from perfguard.loop.loop import Loop
from perfguard.options import Options
from perfguard.rebalance.orders import Order
from perfguard.rebalance.throttle import FlightCap, limit
from perfguard.store import Store

from .caps import Wrong
from .port import SimCluster

#: Turns of the loop while it waits for the answer to an order.
ANSWER_TURNS = 20


@dataclass
class Costs:
    """What perfguard's own code takes, in seconds of this machine, without the model's part."""
    turns: List[float] = field(default_factory=list)
    #: Jobs of the tool thread, which hold the interpreter's lock beside the loop.
    jobs: List[float] = field(default_factory=list)
    #: Turns by phase.
    phases: Dict[str, List[float]] = field(default_factory=dict)

    @property
    def peak_mib(self) -> float:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024.0

    def median_ms(self, phase: str = '') -> float:
        found = self.phases.get(phase, []) if phase else self.turns
        return 1000.0 * float(np.median(found)) if found else 0.0

    def most_ms(self, phase: str = '') -> float:
        found = self.phases.get(phase, []) if phase else self.turns
        return 1000.0 * max(found, default=0.0)


class TimedTools(ToolThread):
    """Does each job at once, and measures it."""

    def __init__(self, cluster: SimCluster) -> None:
        super().__init__(lambda: None)
        self._cluster = cluster
        self.seconds: List[float] = []
        #: Time that the loop did not spend on its own turn.
        self.inside = 0.0

    def submit(self, task: Callable[[], Result], first: bool = False) -> Optional[ToolJob[Result]]:
        job = ToolJob(task)
        began, model = time.process_time(), self._cluster.seconds
        job.run()
        took = time.process_time() - began
        self.seconds.append(took - (self._cluster.seconds - model))
        self._cluster.seconds = model
        self.inside += took
        return job


class Driver:
    """A turn begins after `interval`, or `rest` after the last one if there is a new OSDMap."""

    def __init__(self, cluster: SimCluster, options: Options, rest: float) -> None:
        self.cluster, self.model = cluster, cluster.model
        self.options, self._rest = options, rest
        self._tools = TimedTools(cluster)
        self.costs = Costs(jobs=self._tools.seconds)
        self._flying = 0
        self._cap = FlightCap()
        self._load()

    def _load(self) -> None:
        def now() -> float:
            return self.model.now

        self.loop = Loop(self.cluster, Store(self.cluster.kv), lambda: self.options,
                         clock=Clock(now, now), tools=self._tools)
        # Turns run in the thread of the commands.
        self.loop.requests.confirm_seconds = 0.0
        self.loop.load()

    def fail_over(self, seconds: float) -> None:
        """Another mgr becomes active after `seconds`: nothing is left but the store and the
        cluster."""
        self.model.advance(self.model.now + seconds)
        self._load()
        # The journal may still list PGs that have arrived meanwhile.
        self._flying = self._released()
        self.turn()

    @property
    def phase(self) -> str:
        status = self.loop.published.rebalanced.status
        return str(status.phase.value)

    @property
    def ended(self) -> str:
        """The phase in which the last campaign has ended, also if another mgr was active then."""
        last = self.loop.rebalance.campaigns.last_end()
        return last[1] if last is not None else ''

    def turn(self) -> None:
        phase = self.phase
        self.cluster.seconds = self._tools.inside = 0.0
        began = time.process_time()
        self.loop.turn()
        took = time.process_time() - began - self.cluster.seconds - self._tools.inside
        self.costs.turns.append(took)
        self.costs.phases.setdefault(phase, []).append(took)
        failed = self.loop.failed_turns.check() or self.loop.published.watched.failure
        if failed:
            raise Wrong(str(failed))
        self._check_limit()
        self._wait()

    def _check_limit(self) -> None:
        """No release exceeds the limit of the throttle, which may be below the number in flight."""
        campaign = self.loop.rebalance.campaign
        released = self._released()
        most = limit(campaign.pace, self.resolved()).caps.pgs
        if released > max(self._flying, most):
            raise Wrong('%d PGs are in flight (limit %d)' % (released, most))
        self._flying = released

    def _released(self) -> int:
        """PGs in flight, but for those that could not be pinned and move regardless of every
        limit."""
        flights = self.loop.rebalance.campaign.flights.in_flight
        return sum(flight.pin is not None for flight in flights.values())

    def resolved(self) -> Options:
        """The options, with the cap on PGs in flight that follows from the other caps."""
        view = self.cluster.map_view()
        return self._cap.resolve(self.options, view.osdmap, self.cluster.crush(view.crush_version),
                                 view.crush_version)

    def _wait(self) -> None:
        begin, epoch = self.model.now, self.model.epoch
        interval = self.options.campaign_interval if self.loop.rebalance.active \
            else self.options.loop_interval
        interval = max(interval, self._rest)
        self.model.advance(begin + self._rest)
        if self.model.epoch == epoch or not self.loop.rebalance.in_flight:
            self.model.advance(begin + interval,
                               epoch if self.loop.rebalance.in_flight else None)

    def quiet(self, seconds: float) -> None:
        """Learn baselines."""
        until = self.model.now + seconds
        while self.model.now < until:
            self.turn()

    def order(self, order: Order) -> Any:
        waiting = self.loop.requests.submit(order)
        for _ in range(ANSWER_TURNS):
            self.turn()
            if waiting.refused is not None:
                raise waiting.refused
            if waiting.answer is not None:
                return waiting.answer
        raise Wrong('%s has no answer' % order.verb)

    def run_to(self, phase: str, seconds: float) -> None:
        until = self.model.now + seconds
        while self.phase != phase:
            if self.model.now > until:
                raise Wrong('not %s in %d s: %s %s' % (
                    phase, seconds, self.phase, self.loop.published.rebalanced.status))
            self.turn()
