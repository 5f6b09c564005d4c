# SPDX-License-Identifier: LGPL-2.1-or-later
"""What the decision of a campaign's turn needs beside the observation that all jobs share."""
from dataclasses import replace
from typing import FrozenSet, Optional

from ..cluster.ports import Cluster
from ..cluster.tool_thread import ToolThread
from ..cluster.types import Question
from ..observation import Observation
from ..options import Options
from . import copying
from .crush_orders import ChangePreviews, CrushOrders
from .joining import overdue, wants_outlook
from .types import RELEASING_PHASES, Campaign, ChangeStage

#: The balancer decides to make a plan, copies the OSDMap (about a second of a huge one), and only
#: then says that it is busy. If it is switched off in between, it makes and executes the plan all
#: the same (balancer/module.py, serve). It rests once it has been off and idle for so long.
BALANCER_REST_SECONDS = 2.0


class TurnInputs:
    """Completes the observation: whether the balancer rests, the mapping after the campaign's
    change, the schedulers of OSDs. Keeps what has to be known from one turn to the next."""

    def __init__(self, cluster: Cluster, orders: CrushOrders, tools: ToolThread) -> None:
        self._cluster = cluster
        self._orders = orders
        self._previews = ChangePreviews(tools, orders)
        #: Of the OSDs (osd_op_queue); empty: not known.
        self._schedulers: FrozenSet[str] = frozenset()
        #: Since when the balancer has been off and idle; None: it was not. A campaign that an
        #: earlier mgr has begun finds a balancer that started with this mgr, switched off.
        self._balancer_idle: Optional[float] = 0.0

    def begin(self) -> None:
        """A campaign begins."""
        self._previews.forget()
        self._balancer_idle = None

    def with_balancer(self, seen: Observation) -> Observation:
        """`seen` with a balancer that counts as busy until it rests."""
        settings = seen.settings
        if settings.balancer_active != 'false' or settings.balancer_busy:
            self._balancer_idle = None
            return seen
        if self._balancer_idle is None:
            self._balancer_idle = seen.now
        rests = not 0.0 <= seen.now - self._balancer_idle < BALANCER_REST_SECONDS
        return replace(seen, settings=replace(settings, balancer_busy=not rests))

    def complete(self, campaign: Campaign, seen: Observation, options: Options) -> Observation:
        """`seen` with what else the phase of the campaign needs."""
        seen = self._with_schedulers(
            campaign, self._with_outlook(campaign, seen, options), options)
        if overdue(campaign, seen, options) and self._orders.behind(seen):
            # No change counts as lost while the mons have a newer CRUSH map than this mgr.
            return replace(seen, answered=seen.now)
        return seen

    def _with_outlook(self, campaign: Campaign, seen: Observation,
                      options: Options) -> Observation:
        """`seen` with the mapping after the campaign's change, if that is about to be sent."""
        if campaign.change is None or campaign.change.stage is ChangeStage.LANDED:
            return seen
        seen = replace(seen, overtaken=self._orders.overtaken(seen, campaign.change))
        if seen.overtaken or not wants_outlook(campaign, seen, options):
            return seen
        return replace(seen, outlook=self._previews.outlook(campaign.change, seen))

    def _with_schedulers(self, campaign: Campaign, seen: Observation,
                         options: Options) -> Observation:
        """`seen` with the schedulers of some OSDs, if their recovery may be paced. OSDs are asked
        until all of them have answered, each time that releases begin."""
        if options.pace_copying == copying.OFF or campaign.phase not in RELEASING_PHASES:
            # The OSDs may have another one when releases continue, or in the next campaign.
            self._schedulers = frozenset()
            return seen
        if not self._schedulers:
            questions = [Question(osd, option=copying.QUEUE)
                         for osd in copying.some_osds(seen.osdmap)]
            answers = self._cluster.inquire(questions)
            if len(answers) == len(questions):
                self._schedulers = frozenset(answers.values())
        return replace(seen, schedulers=self._schedulers)
