# SPDX-License-Identifier: LGPL-2.1-or-later
"""What the decision of a campaign's turn needs beside the observation that all jobs share."""
from dataclasses import dataclass, replace
from typing import FrozenSet, Optional, Tuple

from ..cluster.ports import Cluster, Outlook
from ..cluster.tool_thread import ToolJob, ToolThread
from ..cluster.types import Question
from ..observation import Observation
from ..options import Options
from . import copying
from .crush_orders import CrushOrders
from .joining import overdue, wants_outlook
from .types import RELEASING_PHASES, Campaign, Change, ChangeStage

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


def same_placement(one: Observation, other: Observation) -> bool:
    """A mapping worked out for one OSDMap holds for the other, too.

    How full OSDs and pools are, quotas and the autoscaler change all the time elsewhere, and place
    no PG.
    """
    def parts(seen: Observation) -> Tuple[object, ...]:
        osdmap = seen.osdmap
        osds = {osd.id: replace(osd, fullness='') for osd in osdmap.osds.values()}
        pools = {pool.id: replace(pool, name='', autoscale_mode='', quota_bytes=0, quota_objects=0,
                                  pg_num_min=0, pg_num_max=0,
                                  flags=pool.flags & {'hashpspool'})
                 for pool in osdmap.pools.values()}
        return (seen.crush_version, osds, pools, osdmap.upmap_items, osdmap.upmap_vectors,
                osdmap.pg_temp)
    return one.osdmap.epoch == other.osdmap.epoch or parts(one) == parts(other)


@dataclass(frozen=True)
class _Preview:
    change: Change
    #: What it starts from.
    seen: Observation
    job: ToolJob[Outlook]


class ChangePreviews:
    def __init__(self, tools: ToolThread, orders: CrushOrders) -> None:
        self._tools = tools
        self._crush_orders = orders
        self._preview: Optional[_Preview] = None

    def outlook(self, change: Change, seen: Observation) -> Optional[Outlook]:
        """None: it is being worked out. A result is never used in the turn that asked for it,
        since the OSDMap may have changed meanwhile."""
        preview = self._preview
        if preview is None or preview.change != change:
            self.forget()
            self._begin(change, seen)
        elif preview.job.done and same_placement(preview.seen, seen):
            # Forgotten first: what it raises must not be raised in each turn to come, and a
            # failure of the tools is not that of the next order.
            self._preview = None
            return preview.job.result()
        elif preview.job.done:
            # The OSDMap has changed meanwhile. Without an outlook PGs would be remapped before they
            # are pinned, so this goes on until it holds still.
            self._begin(change, seen)
        return None

    def forget(self) -> None:
        """Another campaign begins: the same change may be one of another CRUSH map."""
        if self._preview is not None:
            self._preview.job.cancelled = True
        self._preview = None

    def _begin(self, change: Change, seen: Observation) -> None:
        job = self._tools.submit(self._crush_orders.previewing(seen, change), first=True)
        self._preview = None if job is None else _Preview(change, seen, job)
