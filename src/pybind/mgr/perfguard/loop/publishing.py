# SPDX-License-Identifier: LGPL-2.1-or-later
"""The last part of a turn: the state for commands, metrics and the page, health checks, events."""
import logging
import threading
from typing import List, Optional

from ..errors import HealthChecks
from ..events import Event, EventLog, Lines
from ..mitigation.ladder import MITIGATION
from ..observation import Observation
from ..options import Options
from ..rebalance.campaign import Campaign
from ..rebalance.report import CampaignStatus, progress_id, progress_share
from ..rebalance.requests import Request
from ..status import (Published, failing, foreseen, health_checks, progress_message,
                      status as status_of)
from ..watch.next_steps import with_steps
from ..watch.report import EVENT_KINDS
from .jobs import Jobs, LoopContext

log = logging.getLogger(__name__)

#: Kinds of events that are written to the cluster log as well.
LOGGED = frozenset({'phase', MITIGATION, *EVENT_KINDS.values()})


class Publishing:
    """`published` is replaced whole at the end of each turn; other threads read it."""

    def __init__(self, context: LoopContext) -> None:
        self._cluster = context.cluster
        self._store = context.store
        self._options = context.options
        self._clock = context.clock
        self._requests = context.requests
        self.events = EventLog(self._store)
        self._lines = Lines()
        #: Held while `published` changes.
        self._lock = threading.Lock()
        #: Health checks of the last complete turn.
        self._checks: HealthChecks = {}
        self.published = Published()

    def note(self, event: Event) -> None:
        now = self._clock()
        self.events.note(event, now)
        if event.kind == MITIGATION or event.kind in EVENT_KINDS.values():
            # Rare events, which matter most to operators.
            self.events.save_soon()
        if event.kind in LOGGED:
            line = self._lines.line(event, now)
            if line is not None:
                self._cluster.cluster_log(line)

    def publish_expected(self) -> None:
        """For the thread of a command: show the effect of its request before the next turn."""
        with self._lock:
            self.published = self._expected(self.published, self._clock())

    def _expected(self, published: Published, now: float) -> Published:
        """The status with the effects of pending requests."""
        for request in self._requests.promised(Request.document):
            published = foreseen(published, request.promise, now)
        return published

    def warn(self, check: HealthChecks) -> None:
        """Raise a health check outside a turn."""
        with self._lock:
            self.published = failing(self.published, check)
        try:
            self._cluster.health_checks(with_steps({**self._checks, **check}))
        except Exception as why:
            # The error that failed the turn may occur here as well.
            log.debug('cannot set the health check: %r', why)

    def publish(self, jobs: Jobs, observation: Observation, options: Options, turn_seconds: float,
                stale_after: float, remarks: List[str]) -> None:
        """`turn_seconds`: CPU time of the last turn; `stale_after`: seconds after which the next
        turn is late."""
        rebalanced = jobs.rebalance.report(observation, options)
        campaign = rebalanced.status
        watched, mitigated = jobs.watching.watched, jobs.mitigating.mitigated
        checks = {**watched.checks, **health_checks(
            rebalanced.campaign, observation, options, campaign.reasons,
            [loss.text for loss in self._store.losses]),
            **jobs.probing.checks(observation.now), **jobs.advising.checks}
        self._show_progress(rebalanced.campaign, campaign)
        published = Published(
            status=status_of(observation, campaign, checks, watched, mitigated,
                             jobs.probing.status(), turn_seconds, remarks),
            rebalanced=rebalanced, watched=watched, mitigated=mitigated,
            ledger=jobs.ledger(observation.osdmap), events=self.events.all(),
            turned=observation.now, stale_after=stale_after, clock_set=observation.clock_set)
        with self._lock:
            self.published = self._expected(published, observation.now)
        self._checks = checks
        # Last: a turn that fails before this must not clear PERFGUARD_LOOP_FAILED.
        self._cluster.health_checks(with_steps(checks))
        self.events.save_now_and_then(observation.now)

    def _show_progress(self, campaign: Optional[Campaign], status: CampaignStatus) -> None:
        if campaign is not None and campaign.active:
            self._cluster.progress(progress_id(campaign),
                                   progress_message(campaign, status),
                                   progress_share(campaign))
