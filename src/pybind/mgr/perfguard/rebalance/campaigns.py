# SPDX-License-Identifier: LGPL-2.1-or-later
"""The campaign that is open, its pins, and the campaigns before it, with their documents."""
import errno
from dataclasses import dataclass, replace
from typing import Callable, Dict, List, Mapping, Optional, Tuple

from ..cluster.ports import Cluster
from ..cluster.tool_thread import AnyJob, ToolThread
from ..cluster.types import OsdSet
from ..codec import no_later_than
from ..errors import Refused
from ..events import Event
from ..observation import Observation
from ..options import Options
from ..store import Store
from ..text import osds_text, pgs
from . import report
from .bill import Bill
from .campaign import NO_CAMPAIGN, TRIAL_KEPT, AnyChange, Campaign, Origin, OwnCrush, Pinning
from .campaign_store import CampaignHistory, CampaignStore, PinStore, document_parts
from .change import ChangeStage
from .crush_orders import CrushOrders
from .goals import without_goals
from .orders import is_tiny
from .progress import Progress
from .types import Holds, Phase, PinRecord

#: Orders whose campaign begins with upmaps as pins.
_PINS_WITH_ORDER = ('adopt', 'import')


@dataclass(frozen=True)
class CampaignContext:
    """The common context of the parts of the campaign's controller."""
    cluster: Cluster
    store: Store
    options: Callable[[], Options]
    clock: Callable[[], float]
    #: Runs jobs that use the tools of Ceph.
    tools: ToolThread
    note: Callable[[Event], None]
    #: Whether the mons have stored the journal.
    journal_is_stored: Callable[[], bool]
    #: Whether this mgr owns the journal.
    may_write: Callable[[], bool]
    #: Raises Refused during a shutdown; the second one also ends a completed one.
    refuse_closing: Callable[[], None]
    reopen: Callable[[], None]
    #: The job of an earlier order that is equal, for the same CRUSH version and, for a rollback,
    #: the same phase, whose result was too late.
    job_left_behind: Callable[[object, int, float], Optional[AnyJob]]


class Campaigns:
    """One campaign at a time, from its first document to its row in the history.

    1. `load`: the campaign of an earlier mgr, or the pins of an unknown one.
    2. `begin`: the next one, which takes over pins and settings of an aborted one. With many pins,
       `storing` is true until `store_more_pins` has stored them, and the campaign does nothing.
       If it ends before all upmaps of its order are stored as pins, it has not begun:
       `remove_abandoned` removes it.
    3. `put`: the campaign has changed, and that is journalled.
    4. `file_in_history`: the campaign has ended.
    """

    def __init__(self, context: CampaignContext, crush_orders: CrushOrders,
                 begun: Callable[[], None]) -> None:
        """`begun`: called for each campaign that begins."""
        self._context = context
        self._options, self._clock = context.options, context.clock
        self._note, self._may_write = context.note, context.may_write
        self._crush_orders = crush_orders
        self._begun = begun
        self.history = CampaignHistory(context.store)
        self._forget()

    def _forget(self) -> None:
        """Know no campaign and no pins, as before `load`."""
        self.current = NO_CAMPAIGN
        self.stored = CampaignStore(self._context.store, self._clock)
        self.pins = PinStore(self._context.store, self._clock)
        #: The first pins that are yet to be stored, in parts of one document each; None: none are,
        #: or only an mgr that failed knew which.
        self._parts: Optional[List[Dict[str, PinRecord]]] = None
        #: A campaign that has not begun, and is being removed from the store; None: there is none.
        self._abandoned: Optional[Campaign] = None

    def load(self) -> List[str]:
        """Load the campaign, its pins and the history. Returns texts on what cannot be read."""
        self._forget()
        self.history.load()
        lost = self.pins.load()
        campaign, unread = self.stored.load()
        if _lacks_pins(campaign):
            self._abandon(campaign, 'the mgr failed', '; give the order again')
        elif campaign.id:
            now = self._clock()
            taken_over: Campaign = no_later_than(Campaign, _taken_over(campaign, now), now)
            if self.pins.is_incomplete:
                # Some goals may be missing: marked as stored in part, all are computed again.
                taken_over = replace(taken_over, pinning=replace(
                    taken_over.pinning, goals=taken_over.pinning.goals.being_stored()))
            self.current = taken_over
        self._adopt_pins()
        return lost + unread

    def abandon(self) -> bool:
        """For an abort: end the campaign as one that has not begun, if not all upmaps of its order
        are stored as its pins: a part of them would be taken for all. Returns whether that was
        so."""
        campaign = self.current
        if not _lacks_pins(campaign):
            return False
        self._abandon(campaign, 'it was aborted')
        return True

    def _abandon(self, campaign: Campaign, why: str, advice: str = '') -> None:
        """Report that a campaign has not begun, and why; the next turns remove it and its pins from
        the store."""
        self._note(Event('request', 'campaign %d has not begun' % campaign.id,
                         '%s before the pins of "%s" were all stored%s' % (
                             why, campaign.origin.trigger, advice)))
        self.current, self._abandoned = NO_CAMPAIGN, campaign
        self.pins.forget(set(self.pins))

    def _adopt_pins(self) -> None:
        """Keep pins of an unknown campaign like those of an aborted one."""
        if not self.current.id and self.pins:
            self.current = Campaign(
                self.history.last_id or 1, Origin(self._clock()), Phase.ABORTED,
                ended=self._clock(), held=True, left=len(self.pins), holds=Holds(prepared=True),
                crush=OwnCrush(version=-1))

    # ---- the present state

    @property
    def active(self) -> bool:
        """Whether a campaign has begun and not ended."""
        return self.current.active

    @property
    def open(self) -> bool:
        """Whether the campaign is active, or aborted with remaining pins."""
        return self.current.open

    @property
    def storing(self) -> bool:
        """Whether the campaign waits until the pins that it begins with are all stored."""
        return _is_storing(self.current)

    @property
    def removing(self) -> bool:
        """Whether a campaign that has not begun is being removed from the store. Until its pins are
        removed, no other campaign may begin."""
        return self._abandoned is not None

    @property
    def pins_held_back(self) -> int:
        """The number of PGs that are pinned and not in flight."""
        return report.pinned_count(self.current, self.pins)

    def last_end(self) -> Optional[Tuple[int, str]]:
        """The id and the phase of the last campaign; None: unknown."""
        if self.current.id:
            # A campaign is filed after its end: after a crash in between, the last row is that of
            # an earlier one.
            return self.current.id, self.current.phase.value
        return self.history.last_end()

    def refuse_held(self) -> None:
        """Raise Refused while an aborted campaign keeps PGs pinned: they would be released as well,
        and its rollback would become impossible."""
        if self.current.held:
            raise Refused(errno.EBUSY, 'campaign %d is aborted and keeps PGs pinned: "campaign '
                          'resume"%s or "campaign finish --keep" first' % (
                              self.current.id,
                              '' if self.current.no_way_back else ', "campaign rollback"'))

    def why_larger(self, change: AnyChange, observation: Observation) -> List[str]:
        """Why a campaign with this change will move more than the change requires: it also releases
        the PGs that an aborted one keeps pinned, unless the change is about the same OSDs, or the
        same pool. [] if it will not."""
        last, pins, drained = self.current, self.pins_held_back, self._still_draining(observation)
        # That campaign may have taken over the drain of an earlier one.
        expected = last.change is not None and change.succeeds(last.change) \
            and change.weights.keys() >= set(drained)
        if not last.held or not pins or expected:
            return []
        return ['campaign %d is aborted and keeps %s pinned: this change releases these as well%s, '
                'and the figures here are without them; "campaign finish --keep" first leaves them '
                'where they are' % (last.id, pgs(pins), ' (to drain %s)' % osds_text(drained)
                                    if drained else '')]

    def refuse_removing(self) -> None:
        """Raise Refused while a campaign that has not begun is being removed from the store: no
        other one may begin yet."""
        if self._abandoned is not None:
            raise Refused(errno.EAGAIN, 'campaign %d, which has not begun, is being removed from '
                          'the store: try again in a few seconds' % self._abandoned.id)

    # ---- its life

    def remember_crush(self, observation: Observation) -> None:
        """Journal CRUSH from before the next campaign for its rollback, once nothing else can
        refuse its order. A campaign that continues an aborted one, after which nothing else has
        changed CRUSH, keeps the map from before that one, if it is known. Raises Refused if the
        map cannot be had."""
        last = self.current
        if not (last.held and last.crush.is_own(observation) and self._crush_orders.knows_before):
            self._crush_orders.remember(observation)

    def begin(self, observation: Observation, trigger: str = 'operator', plan: str = '',
              plan_token: str = '') -> Campaign:
        """Begin the next campaign, which takes over the pins, the borrowed settings and the drained
        OSDs of an aborted one. It is not journalled yet: `put` does that, or the turn before it
        sends commands. Not to be called while a campaign that has not begun is being removed
        (`removing`), nor before `remember_crush`.

        `trigger`: 'operator', 'auto', or the verb of the order. `plan`, `plan_token`: of the saved
        plan that it executes; '': none.
        """
        new_id = max(self.history.last_id, self.current.id) + 1
        # The aborted one that left pins, if there is one.
        continued = self.current if self.current.held else NO_CAMPAIGN
        # Whatever could not be read does not count from now on, and is removed.
        self._context.store.acknowledge_losses()
        self._begun()
        self.current = Campaign(
            new_id, Origin(observation.now, trigger, observation.osdmap.epoch, plan, plan_token),
            Phase.PREPARED, phase_since=observation.now, target=self._options().target,
            crush=OwnCrush(version=observation.crush_version, own=observation.crush_version,
                           identity=observation.crush.identity,
                           draining=self._still_draining(observation),
                           emptied=continued.crush.emptied,
                           reweights=_reweights_before(observation, continued)),
            holds=continued.holds.taken_over(), pinning=self._pinning_left(),
            progress=Progress(last_epoch=observation.osdmap.epoch),
            bill=Bill.begun(observation.clients.quiet))
        # This campaign releases the pins of an aborted one to its own goals.
        return self.store_first_pins(without_goals(self.pins), observation)

    def begin_after(self, observation: Observation, trigger: str) -> Campaign:
        """Begin a campaign for a change that was made before, or for upmaps. The CRUSH map from
        before the change is not known, so a rollback cannot restore it, and `remember_crush` is not
        needed. `trigger`: as in `begin`."""
        campaign = self.begin(observation, trigger)
        campaign = replace(campaign, automatic=True, crush=replace(campaign.crush, version=-1))
        self._crush_orders.forget_before()
        self.current = campaign
        return campaign

    def store_first_pins(self, pins: Mapping[str, PinRecord],
                         observation: Observation) -> Campaign:
        """Store the pins that the campaign begins with, or as many as are stored in one turn.
        Returns the campaign, for `put` to journal: its `storing` says whether some are yet to be
        stored."""
        self._parts = list(document_parts(pins, self.pins))
        return self._store_some_pins(self.current, self._parts, observation)

    def remove_abandoned(self) -> None:
        """Remove a campaign that has not begun, if there is one, and its pins from the store, as
        far as one turn may."""
        if self._abandoned is None or not self._may_write():
            return
        self.pins.tidy()
        if self.pins.is_tidy:
            self.pins.clear()
            self._context.cluster.progress_done(report.progress_id(self._abandoned))
            self.stored.remove()
            self._abandoned = None

    def store_more_pins(self, observation: Observation) -> None:
        """Store more of the pins that the campaign begins with, as many as are stored in one turn.
        Does nothing once all are stored."""
        if not self.storing:
            self._parts = None  # an abort may have changed the pins
            return
        if not self._may_write():
            return
        if self._parts is None:
            self._parts = list(document_parts(without_goals(self.pins), self.pins))
        self.put(self._store_some_pins(self.current, self._parts, observation))

    def tidy(self) -> None:
        """Remove more documents that no campaign needs."""
        if not self.stored.is_tidy and self._may_write():
            self.stored.tidy()

    def _store_some_pins(self, campaign: Campaign, remaining_parts: List[Dict[str, PinRecord]],
                         observation: Observation) -> Campaign:
        """Store as many parts of the campaign's first pins as one turn may, and remove them from
        the list. Returns the campaign, which is `storing` until none are left."""
        # The parts were made for the present pins: until all are stored nothing else changes these,
        # and after an abort, which may, the parts are made again.
        self.pins.note_some(remaining_parts, observation.osdmap, self.pins)
        self.current = replace(campaign, storing=bool(remaining_parts))
        return self.current

    def put(self, campaign: Campaign) -> None:
        """Make this the present state of the campaign, and journal it if more than its times have
        changed."""
        self.current = campaign
        self.stored.save(campaign)

    def _still_draining(self, observation: Observation) -> OsdSet:
        """OSDs of a tiny weight that the last campaign was emptying, if it was aborted and left
        pins; else (). The next campaign releases these pins, and so empties the OSDs, unless it
        gives them a weight."""
        last, weights = self.current, observation.crush.weights()
        if not last.held:
            return ()
        changes = (last.change, last.rollback.undone)
        drained = {*last.crush.draining, *(osd for change in changes if change is not None
                                           for osd in change.drained)}
        return tuple(sorted(osd for osd in drained if is_tiny(weights.get(osd, 0.0))))

    def _pinning_left(self) -> Pinning:
        """The Pinning that the next campaign begins with. After an aborted campaign: the PGs for
        which CRUSH finds too few OSDs (Pinning.incomplete, which it has kept up to date), and what
        is known of rules. After another one: only the rules, by their checksums, under which the
        mons have kept a pin, since the mons may be newer by now, and keep more."""
        last = self.current.pinning
        if self.current.held:
            return Pinning(unpinnable=last.incomplete, trials=last.trials)
        return Pinning(trials=dict.fromkeys(last.kept_rules, TRIAL_KEPT))

    def file_in_history(self) -> None:
        """File the campaign if it has ended and is not filed yet, and remove it from the store,
        unless it is aborted and awaits the operator's decision (`held`), with or without pins.
        Called in each turn, so a failure is repeated."""
        campaign = self.current
        if not campaign.id or campaign.active or not self.stored.has_campaign:
            return
        row = report.summary(campaign)
        filed = row in self.history.rows
        if filed and campaign.held or not self._may_write():
            return
        if not filed:
            self._context.cluster.progress_done(report.progress_id(campaign))
            self.history.file(row, self._options().campaign_history)
        if campaign.held:
            return  # it stays stored, with its pins, until the operator decides
        if campaign.phase is Phase.DONE:
            # After an abort, the documents of its pins were removed before it ended.
            self.pins.clear()
        self._crush_orders.remove_maps()
        self.stored.remove()


def _reweights_before(observation: Observation, continued: Campaign) -> Dict[int, float]:
    """OwnCrush.reweights of a campaign that begins. A reweight that was lowered a moment ago does
    not count: the PGs that leave because of it are yet to peer. `continued`: the aborted campaign
    before it."""
    leaving = {osd for osds in observation.evacuation.values() for osd in osds}
    reweights = {osd.id: continued.crush.reweights.get(osd.id, 1.0) if osd.id in leaving
                 else max(osd.reweight, observation.osds_before.get(osd.id, osd).reweight)
                 for osd in observation.osdmap.osds.values() if 0.0 < osd.reweight < 1.0}
    return {osd: reweight for osd, reweight in reweights.items() if reweight < 1.0}


def _is_storing(campaign: Campaign) -> bool:
    """Whether the campaign waits until its first pins are stored. An abort acts at once, and
    nothing is released after it before the rest is stored."""
    return campaign.storing and campaign.phase not in (Phase.ABORTING, Phase.ABORTED)


def _lacks_pins(campaign: Campaign) -> bool:
    """Whether not all upmaps of an order are stored as the pins of the campaign, so the order was
    not answered. With a part of the pins, the campaign would end as if all PGs had moved."""
    return _is_storing(campaign) and campaign.origin.trigger in _PINS_WITH_ORDER


def _taken_over(campaign: Campaign, now: float) -> Campaign:
    """The campaign of an earlier mgr, as this one continues it. The earlier mgr may have failed
    before it sent its commands, so its last attempt to send each does not count, except that at
    least one attempt at a change remains: it may still arrive. No attempt to send a release counts,
    as the conditions for it may have changed."""
    change = campaign.change
    if change is not None and change.stage is ChangeStage.SENT:
        change = replace(change, times=max(1, change.times - 1))
    flights = {pgid: flight if flight.confirmed is not None
               else replace(flight, sent=0)
               for pgid, flight in campaign.flights.in_flight.items()}
    return replace(campaign, change=change, flights=replace(campaign.flights, in_flight=flights),
                   orders=campaign.orders.taken_over(now),
                   pinning=campaign.pinning.count_again(campaign.pinning.sent))
