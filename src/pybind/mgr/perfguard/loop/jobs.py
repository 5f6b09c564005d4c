# SPDX-License-Identifier: LGPL-2.1-or-later
"""The controllers of the jobs, and their common journal."""
from dataclasses import dataclass
from typing import Callable, List, Optional

from ..advise.controller import Advising
from ..advise.report import Measurements, SlowAlone, UsedCapacity
from ..clock import Clock
from ..cluster.drive_health import Drives
from ..cluster.ports import Cluster
from ..cluster.tool_thread import ToolThread
from ..cluster.types import OsdMap
from ..events import Event
from ..ledger import Ledger
from ..mitigation.controller import Mitigating
from ..mitigation.rescuing import Rescuing
from ..options import Options
from ..probe.controller import Probing
from ..probe.osd_bench import capacities
from ..probe.records import Archive
from ..rebalance.campaigns import CampaignContext
from ..rebalance.controller import RebalanceController
from ..request_queue import Requests
from ..shutdown import Shutdown
from ..store import Journal, Store
from ..watch.controller import Watching
from ..why.controller import Explaining


@dataclass(frozen=True)
class LoopContext:
    """The common context of the parts of the loop."""
    cluster: Cluster
    store: Store
    options: Callable[[], Options]
    clock: Clock
    #: Runs jobs that use the tools of Ceph.
    tools: ToolThread
    requests: Requests


class Jobs:
    """Each controller journals its next actions, and calls `journal_is_stored` before it
    executes them."""

    def __init__(self, context: LoopContext, note: Callable[[Event], None]) -> None:
        cluster, store, tools = context.cluster, context.store, context.tools
        self._options = context.options
        self._clock = context.clock
        self._note = note
        self.journal = Journal(cluster, store)
        #: Whether this mgr owns the journal in this turn; None: not checked yet.
        self._owns: Optional[bool] = None
        self.shutdown = Shutdown(store)
        self.rebalance = RebalanceController(CampaignContext(
            cluster, store, self.options, context.clock, tools, note, self.journal_is_stored,
            self.may_write, self.shutdown.refuse_closing, self.shutdown.reopen,
            context.requests.job_left_behind))
        # A thread of its own, whose results wake no turn.
        self.drives = Drives(cluster, ToolThread(lambda: None))
        self.watching = Watching(cluster, store, note, lambda: self.drives.by_device,
                                 self.may_record)
        self.mitigating = Mitigating(cluster, store, note, self.journal_is_stored, self.may_write)
        self.rescuing = Rescuing(cluster, store, note, self.journal_is_stored, self.may_write)
        self.explaining = Explaining(cluster)
        self.probing = Probing(cluster, store, Archive(store), note, tools, self.journal_is_stored,
                               self.may_write)
        self.advising = Advising(cluster, store, self.measured)

    def measured(self, now: float) -> Measurements:
        """What the other jobs have measured, for the advice."""
        probed, watched = self.probing.probed, self.watching.watched
        slow_alone = probed.slower_alone()
        return Measurements(
            capacities(probed.records), None if slow_alone is None else SlowAlone(*slow_alone),
            {row.osd: row.score for row in watched.osds if row.score is not None},
            tuple(UsedCapacity(row.pool, row.busiest, row.p99_ms, row.probe)
                  for row in probed.headrooms(watched.uses, now)
                  if row.certain and row.busiest is not None and row.probe is not None),
            self.drives.by_device)

    def options(self) -> Options:
        """The options, with those that were set for the active campaign."""
        return self.rebalance.overridden(self._options())

    def load(self, now: float) -> None:
        """Load the state of an earlier mgr from the store, except for `load_shared`."""
        self.watching.load(self._options(), now)
        self.probing.load(now)
        self.advising.load()

    def load_shared(self, now: float) -> List[str]:
        """Load the state that another mgr may have changed while this one was fenced; returns texts
        on what cannot be read."""
        return self.shutdown.load(self._clock.process_began) + self.mitigating.load(now) \
            + self.rebalance.load() + self.rescuing.load(now)

    # ---- the journal

    def begin_turn(self) -> None:
        self._owns = None

    def journal_is_stored(self) -> bool:
        """Whether the mons have stored the journal, so that commands may be sent."""
        return self._checked(self.journal.is_stored)

    def read_back(self, now: float) -> None:
        """Begin a turn: check that documents which the last one removed are gone."""
        self._checked(lambda: self.journal.read_back(now))

    def may_write(self) -> bool:
        """Whether this mgr owns the journal. The mons are asked once per turn, before its first
        record: another mgr uses the same keys."""
        if self._owns is None:
            self._owns = self._checked(self.journal.owns)
        return self._owns

    def may_record(self) -> bool:
        """As `may_write`, for records and events, for which nothing waits; after a failure, False
        without asking the mons until an interval has passed."""
        if self._owns is None and not self.journal.may_ask(self._clock()):
            return False
        return self.may_write()

    def _checked(self, check: Callable[[], bool]) -> bool:
        """The result of a check of the journal. A failure becomes the reason that the campaign
        shows; a new one is also reported by an event."""
        failure_before = self.journal.failure
        is_good = check()
        if not is_good:
            self.rebalance.not_stored(self.journal.failure)
            if self.journal.failure != failure_before:
                self._note(Event('failed', self.journal.failure))
        return is_good

    # ---- the state of all jobs

    @property
    def busy(self) -> bool:
        """A campaign, a probe or a shutdown is in progress, or about to begin."""
        return self.rebalance.busy or self.probing.busy or self.closing

    @property
    def closing(self) -> bool:
        """A shutdown was ordered and has not completed."""
        return self.shutdown.ordered and not self.shutdown.done

    @property
    def untrimmed_epochs(self) -> Optional[int]:
        """OSDMap epochs that the mons keep; None: not known yet."""
        signals = self.watching.watched.signals
        return None if signals is None else signals.untrimmed_osdmaps

    def ledger(self, osdmap: OsdMap) -> Ledger:
        """Everything that is borrowed from the cluster."""
        return Ledger((*self.rebalance.held(osdmap), *self.mitigating.held, *self.rescuing.held,
                       *self.probing.held))

    @property
    def remarks(self) -> List[str]:
        """For the reasons of `status`."""
        return [*self.rebalance.replacing.remarks, *self.rescuing.remarks, *self.probing.remarks,
                self.journal.failure, self.watching.watched.unreported]
