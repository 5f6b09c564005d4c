# SPDX-License-Identifier: LGPL-2.1-or-later
"""Drives a Loop over the cluster in memory, as an mgr and an operator would."""
from dataclasses import replace
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence

from perfguard.clock import Clock
from perfguard.cluster.tool_thread import ToolJob, Result, ToolThread
from perfguard.loop.loop import Loop
from perfguard.options import DEFAULTS, Options
from perfguard.rebalance.orders import Order
from perfguard.rebalance.report import release_preview_json
from perfguard.rebalance.requests import Request
from perfguard.status import rebalance_json
from perfguard.store import Store

from .cluster import FakeCluster, MemoryKv

#: Small, so that a campaign of a few PGs meets its caps and its time limits.
OPTIONS = replace(DEFAULTS, target='crush', max_pgs_in_flight=4, readback_timeout=6.0,
                  stalled_after=600.0)


def codes(status: Mapping[str, Any]) -> List[str]:
    """The codes of the reasons that `status` or `campaign status` gives."""
    assert [row['text'] for row in status['limits']] == status['reasons']
    return [row['code'] for row in status['limits']]


class Inline(ToolThread):
    """Does each job at once, or when `work` is called."""

    def __init__(self) -> None:
        super().__init__(lambda: None)
        self.late = False
        self.jobs: List[ToolJob[Any]] = []
        #: Jobs in all.
        self.submitted = 0

    def submit(self, task: Callable[[], Result], first: bool = False) -> Optional[ToolJob[Result]]:
        job = ToolJob(task)
        self.submitted += 1
        self.jobs.append(job)
        if not self.late:
            self.work()
        return job

    def work(self) -> None:
        while self.jobs:
            self.jobs.pop(0).run()


class Driver:
    #: When the process of the next mgr has begun.
    process_began = 0.0

    def __init__(self, cluster: Optional[FakeCluster] = None,
                 options: Options = OPTIONS) -> None:
        self.cluster = cluster or FakeCluster()
        self.kv = self.cluster.kv = MemoryKv(self.cluster.fault)
        self.options = options
        self.loop = self._new_loop()
        self.turn()

    def new_tools(self) -> Any:
        return Inline()

    def _new_loop(self) -> Loop:
        self.tools: Any = self.new_tools()

        clock = Clock(lambda: self.cluster.now + self.cluster.ahead, lambda: self.cluster.now,
                      self.process_began)
        loop = Loop(self.cluster, Store(self.kv), lambda: self.options, clock=clock,
                    tools=self.tools)
        # Turns run in the thread of the commands.
        loop.requests.confirm_seconds = 0.0
        loop.load()
        return loop

    def restart(self) -> None:
        """A new mgr becomes active: nothing is left but the store and the cluster."""
        self.loop = self._new_loop()

    def turn(self, seconds: float = 1.0) -> None:
        self.loop.turn()
        self.cluster.tick(seconds)

    @property
    def status(self) -> Any:
        return rebalance_json(self.loop.published)

    @property
    def preview(self) -> Any:
        return release_preview_json(self.loop.published.rebalanced.preview)

    @property
    def history(self) -> Sequence[Any]:
        return self.loop.published.rebalanced.history

    @property
    def phase(self) -> str:
        return str(self.status.get('phase', ''))

    def ask(self, verb: str, **kwargs: Any) -> None:
        self.loop.request(Request(verb, **kwargs))

    def order(self, verb: str, *names: str, **kwargs: Any) -> Any:
        """What a command that changes CRUSH is answered; raises Refused."""
        return self.give(Order(verb, names, **kwargs))

    def give(self, order: Any) -> Dict[str, Any]:
        """What the next turn answers; raises Refused."""
        waiting = self.loop.requests.submit(order)
        self.turn()
        if waiting.refused is not None:
            raise waiting.refused
        assert waiting.answer is not None
        return waiting.answer

    def run_until(self, done: Callable[[], bool], turns: int = 300) -> None:
        for _ in range(turns):
            if done():
                return
            self.turn()
        raise AssertionError('not reached in %d turns: %s %s' % (
            turns, self.phase, self.status.get('reasons')))

    def run_to(self, phase: str, turns: int = 300) -> None:
        self.run_until(lambda: self.phase == phase, turns)

    def run(self, turns: int) -> None:
        for _ in range(turns):
            self.turn()

    def to_pinned(self) -> None:
        """Prepare, expand, wait for the remapped PGs, pin."""
        self.ask('prepare')
        self.run_to('PREPARED')
        self.cluster.expand()
        self.run_until(lambda: bool(self.cluster.remapped()))
        self.ask('pin')
        self.run_to('PINNED')

    def to_releasing(self) -> None:
        self.to_pinned()
        self.ask('start')
        self.run_until(lambda: self.status['in_flight'] > 0)
