# SPDX-License-Identifier: LGPL-2.1-or-later
"""Where the pinned PGs go once they are released: worked out beside the loop, kept in the pins."""
from dataclasses import replace
from typing import Callable, Optional, Tuple

from ..cluster.ports import Cluster, NoFuture, Outlook, View
from ..cluster.tool_thread import ToolJob, ToolThread, call_off
from ..cluster.types import OsdMap
from ..events import Event
from ..observation import Observation
from ..options import Options
from ..tables import plural
from . import goals
from .campaign_store import PinStore
from .report import Forecast
from .types import Campaign, ChangeStage

#: Seconds until Ceph's tools are asked again for what CRUSH chooses, after they failed.
RAW_SECONDS = 60.0


class PinGoals:
    """Keeps the goals of the pins, and the raw sets behind pins that are vectors, up to date.

    Both rest on the OSDMap and CRUSH. They are worked out anew when these change, by the tool
    thread, and noted in the pins before they are used.
    """

    def __init__(self, cluster: Cluster, tools: ToolThread, pins: PinStore, forecast: Forecast,
                 note: Callable[[Event], None], may_write: Callable[[], bool]) -> None:
        self._cluster = cluster
        self._tools = tools
        self._pins = pins
        self._forecast = forecast
        self._note = note
        self._may_write = may_write
        #: What the goals would rest on, and since when: PGs have peered a while after.
        self._basis, self._basis_since = '', 0.0
        #: The basis of the raw sets, and when they are asked for again.
        self._raw_basis, self._raws_due = '', 0.0
        self._raw_job: Optional[Tuple[str, ToolJob[Outlook]]] = None
        self._goals_job: Optional[Tuple[goals.Ground, ToolJob[goals.Goals]]] = None
        #: The pins have the goals that this OSDMap and the campaign's phase ask for.
        self.fit = False

    def look_again(self) -> None:
        """A request may have changed what the goals are to be."""
        self.fit = False

    def refresh_raws(self, campaign: Campaign, seen: Observation) -> bool:
        """Learn what CRUSH chooses behind the pins that are vectors, once it chooses anew.

        Ceph's tools show it. Without them it is unknown, and such PGs are released one by one.
        Returns whether it is known by now.
        """
        joining = campaign.change is not None and campaign.change.stage is not ChangeStage.LANDED
        vectors = {pgid: self._pins[pgid] for pgid in self._pins.vectors
                   if pgid not in campaign.in_flight}
        now = goals.basis(seen.osdmap, seen.crush_version) if vectors else ''
        if joining or not vectors or now == self._raw_basis or seen.now < self._raws_due \
                or not self._may_write():
            return True
        outlook = self._raw_outlook(seen.osdmap, now)
        if outlook is None:
            return False
        if isinstance(outlook, NoFuture):
            self._raws_due = seen.now + RAW_SECONDS
            self._note(Event('pins', 'the CRUSH mapping of %s pinned by pg_upmap is not known'
                             % plural(len(vectors), 'PG'), outlook.reason))
            raws = {}
        else:
            self._raw_basis = now
            raws = {pgid: pg.raw for pgid, pg in outlook.pgs.items()}
        # The goal of a PG whose raw set was not known then is but what was there before.
        stale = {pgid: replace(pin, raw=raws.get(pgid), goal=None if pin.raw is None else pin.goal)
                 for pgid, pin in vectors.items() if pin.raw != raws.get(pgid)}
        self.fit = self.fit and not stale
        self._pins.note(stale)
        self._forecast.rework(stale)
        return True

    def _raw_outlook(self, osdmap: OsdMap, basis: str) -> Optional[Outlook]:
        """The mapping as it is, which shows what CRUSH chooses; None: it is being worked out."""
        if self._raw_job is None or self._raw_job[0] != basis:
            call_off(self._raw_job)
            job = self._tools.submit(lambda: self._cluster.outlook(osdmap, {}, None), first=True)
            self._raw_job = None if job is None else (basis, job)
        if self._raw_job is None or not self._raw_job[1].done:
            return None
        # Forgotten first: what it raises must not be raised in each turn to come.
        done, self._raw_job = self._raw_job[1], None
        return done.result()

    def work_out(self, campaign: Campaign, seen: Observation, view: View,
                 options: Options) -> Optional[goals.Goals]:
        """New goals, noted in the pins; None: there are none (yet), see `fit`."""
        if self.fit and not seen.new_map:
            return None
        now = goals.basis(seen.osdmap, view.crush_version, seen.balancing)
        if now != self._basis:
            self._basis, self._basis_since = now, seen.now
        self.fit = not goals.needed(campaign, self._pins, now)
        still = not 0.0 <= seen.now - self._basis_since <= seen.stats_period
        if self.fit or not still or not goals.settled(
                campaign, self._pins, seen, options.max_transition_ratio) \
                or not self._may_write():
            return None
        found = self._worked_out(goals.ground(campaign, self._pins, seen, now), seen, view,
                                 options.max_extra_movement)
        if found is not None:
            self._pins.note(found.records)
            self._pins.forget(found.dropped)
            self._forecast.rework(set(found.records) | found.dropped)
            self.fit = True
        return found

    def _worked_out(self, ground: goals.Ground, seen: Observation, view: View,
                    most: float) -> Optional[goals.Goals]:
        """None: they are being worked out, beside the loop since it takes a while: 8 s for two
        pools of 16,000 PGs."""
        if self._goals_job is None or self._goals_job[0] != ground:
            call_off(self._goals_job)
            space = self._cluster.osd_space()
            job = self._tools.submit(lambda: goals.work_out(ground, seen, view.pool_up, most,
                                                            space), first=True)
            self._goals_job = None if job is None else (ground, job)
        if self._goals_job is None or not self._goals_job[1].done:
            return None
        done, self._goals_job = self._goals_job[1], None
        return done.result()
