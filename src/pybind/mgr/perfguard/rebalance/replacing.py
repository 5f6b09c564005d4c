# SPDX-License-Identifier: LGPL-2.1-or-later
"""Devices that are replaced under the same OSD ids: `replace`, and the list of drains.

An ordinary drain empties the OSD, or recovery does if it is down or out. An operator destroys it
and creates it again on another device, which an ordinary undrain fills. A replacement is only a
record of the OSD and its old device: its phase follows from the OSDMap and from CRUSH, so nothing
else has to survive a failover.
"""
import enum
import errno
from dataclasses import dataclass, field
from functools import cached_property
from math import inf
from typing import (Callable, Container, Dict, FrozenSet, Iterable, Iterator, List, Mapping,
                    NamedTuple, Optional, Sequence, Tuple)

from ..cluster.types import Document, Osd, OsdSet, Reply, Space, pool_of
from ..codec import Time, encode, no_later_than
from ..errors import Code, Refused
from ..events import Event
from ..observation import Observation
from ..store import Store
from ..text import osds_text, pgs
from ..upmap.pins import has_no_target
from .auto_expand import REMAP_SECONDS
from .campaign import NO_CAMPAIGN, Campaign
from .crush_orders import CrushOrders
from .orders import (DRAINED_WEIGHT, Order, OrderFacts, how_to_leave_empty, is_tiny, named_osds,
                     serves)
from .plans import PlanOrder
from .queued import QueuedOrder, Retry
from .types import Phase

#: Verbs of orders.
REPLACE, CANCEL, DRAINS = 'replace', 'replace cancel', 'osds --drained'
#: The next step of an OSD whose drain an order begins.
EMPTIED = 'wait until the campaign has emptied it'
#: The document in the store: OSD -> its record.
REPLACEMENTS_DOCUMENT = 'replacements'
REPLACE_KIND = 'replace'
#: The uuid of an OSD that was destroyed.
NO_UUID = '00000000-0000-0000-0000-000000000000'
#: A new device whose size differs by less than this share receives the weight of the old one.
SAME_SIZE = 0.01
#: Seconds between two readings of the PGs that OSDs store, which is costly on large clusters; the
#: second, while all replacements wait for operators.
BUSY_LOOK_SECONDS, IDLE_LOOK_SECONDS = 10.0, 120.0
#: Seconds until the orchestrator is asked again to remove an OSD that it is not removing.
REMOVAL_SECONDS = 120.0


class ReplacePhase(str, enum.Enum):
    """The phase of an OSD that is drained or replaced."""
    #: A campaign moves its PGs away.
    DRAINING = 'DRAINING'
    #: The OSD is down or out, and other OSDs still lack copies.
    RECOVERING = 'RECOVERING'
    #: The operator may destroy the OSD.
    EMPTY = 'EMPTY'
    #: The OSD is destroyed, or its new device is not in use yet.
    WAITING = 'WAITING'
    #: The new device is in use; a campaign is about to fill it.
    READY = 'READY'
    FILLING = 'FILLING'


#: Phases that last until an operator acts.
BY_OPERATOR = frozenset({ReplacePhase.EMPTY, ReplacePhase.WAITING})


class _Removal(NamedTuple):
    """The last order to the orchestrator to remove an OSD."""
    #: When it was given, or the orchestrator last had it in its queue, in seconds since the epoch;
    #: -inf: never.
    at: float
    #: What the orchestrator has answered; '': not ordered yet.
    answer: str = ''


class Replacement(NamedTuple):
    """The record of an OSD whose device is replaced."""
    uuid: str
    #: The earlier CRUSH weight of the OSD.
    weight: float
    #: Size of the old device; 0: not known.
    total_bytes: int
    since: Time
    #: Vendor, model and serial number of the old drive; '': not known, or the OSD may be on it.
    drive: str = ''
    #: The orchestrator is ordered to remove the OSD once it is empty.
    remove: bool = False
    #: The orchestrator has had this order in its queue: one that is no longer there was stopped.
    queued: bool = False


@dataclass(frozen=True)
class ReplaceFacts:
    """The facts that determine the phases of replacements."""
    order_facts: OrderFacts
    #: OSDs of the acting sets of remapped PGs, OSDs to which such PGs go, and OSDs to which PGs go
    #: that lack no copy: a campaign can pin these, since they do not recover.
    leaving: FrozenSet[int] = frozenset()
    entering: FrozenSet[int] = frozenset()
    entering_complete: FrozenSet[int] = frozenset()
    #: OSD -> number of degraded PGs on it, as far as it is known.
    degraded: Mapping[int, int] = field(default_factory=dict)
    #: Whether all PGs have all their copies, as far as it is known.
    complete: bool = False
    #: OSDs that have stopped serving a moment ago: the reports of their PGs may be older.
    stopped: FrozenSet[int] = frozenset()
    campaign: Campaign = NO_CAMPAIGN
    weights: Mapping[int, float] = field(default_factory=dict)
    #: OSD -> its drive, of OSDs that were created again, as Reader.drive_ids.
    drives: Mapping[int, str] = field(default_factory=dict)

    @property
    def campaign_active(self) -> bool:
        return self.campaign.active

    def weight(self, osd: int) -> float:
        """The CRUSH weight of an OSD; 0.0 if CRUSH does not contain it."""
        return self.weights.get(osd, 0.0)

    @cached_property
    def upmapped(self) -> FrozenSet[int]:
        """OSDs on which upmaps keep PGs, as the pins of a campaign do."""
        osdmap = self.order_facts.osdmap
        return frozenset(
            [target for pairs in osdmap.upmap_items.values() for _, target in pairs]
            + [osd for osds in osdmap.upmap_vectors.values() for osd in osds])

    def recovery_text(self, osd: int) -> str:
        """Text on the recovery of an OSD that no campaign fills, since PGs that lack only what the
        PG logs contain are not remapped, and cannot be pinned; '': nothing recovers."""
        pgs_degraded = self.degraded.get(osd, 0)
        return '; recovery from the PG logs fills it (degraded: %s)' % pgs(pgs_degraded) \
            if pgs_degraded else ''

    def pgs_on(self, osd: int) -> Optional[int]:
        """The number of PGs that the OSD stores; None: not known."""
        row = self.order_facts.space.get(osd)
        return None if row is None else row.pgs


def facts_of(observation: Observation, order_facts: OrderFacts, campaign: Campaign,
             records: Mapping[int, Replacement], drives: Mapping[int, str],
             stopped: FrozenSet[int]) -> ReplaceFacts:
    """The facts of this turn; `records`: OSD -> the record of its replacement."""
    temp, counts = observation.osdmap.pg_temp, observation.signals.counts
    # ceph-mgr is asked for each remapped PG, so only while there is a new device to fill.
    goals = list(_moving_to(observation, temp)) if created_again(observation.osdmap.osds, records) \
        else []
    return ReplaceFacts(
        order_facts, leaving=frozenset(osd for acting in temp.values() for osd in acting),
        entering=frozenset(osd for _, up in goals for osd in up),
        entering_complete=frozenset(osd for is_complete, up in goals if is_complete for osd in up),
        degraded={osd: count.degraded for osd, count in observation.osd_counts.items()},
        complete=not (counts.degraded or counts.inactive or counts.in_transition
                      or counts.unreported or counts.undersized_empty),
        stopped=stopped, campaign=campaign, weights=order_facts.crush.weights(), drives=drives)


def _moving_to(observation: Observation, pgids: Iterable[str]) -> Iterator[Tuple[bool, OsdSet]]:
    """For each of these remapped PGs: whether it lacks no copy, and the OSDs to which it moves.
    Without PGs that remain remapped because they have nowhere to move."""
    for pgid in pgids:
        pool, place = observation.osdmap.pools.get(pool_of(pgid)), observation.placement(pgid)
        if pool is not None and place is not None \
                and not has_no_target(pool, place.up, place.acting):
            yield pool.is_complete(place.acting), place.up


def created_again(osds: Mapping[int, Osd], records: Mapping[int, Replacement]) -> List[int]:
    """The OSDs that were destroyed and have a new device."""
    return [osd for osd, record in records.items()
            if osd in osds and osds[osd].uuid not in (record.uuid, NO_UUID)]


def phase_of(osd: int, record: Replacement, facts: ReplaceFacts) -> ReplacePhase:
    """The phase of an existing OSD."""
    row = facts.order_facts.osdmap.osds[osd]
    if row.destroyed or row.uuid == NO_UUID:
        return ReplacePhase.WAITING
    serving = serves(osd, facts.order_facts.osdmap)
    if row.uuid != record.uuid:  # the new device
        if not serving or is_kept_empty(osd, record, facts):
            return ReplacePhase.WAITING
        return ReplacePhase.FILLING if facts.weight(osd) > DRAINED_WEIGHT else ReplacePhase.READY
    if not serving:  # the old device, down or out
        is_emptied = row.reweight == 0 or facts.weight(osd) <= DRAINED_WEIGHT
        safe = is_emptied and facts.complete and osd not in facts.leaving | facts.stopped
        return ReplacePhase.EMPTY if safe else ReplacePhase.RECOVERING
    empty = facts.pgs_on(osd) == 0 and osd not in facts.leaving \
        and facts.weight(osd) <= DRAINED_WEIGHT
    return ReplacePhase.EMPTY if empty else ReplacePhase.DRAINING


def on_same_drive(osd: int, record: Replacement, facts: ReplaceFacts) -> bool:
    """Whether the OSD was created again on its old drive, which may be failing: an orchestrator
    creates one on any drive that was wiped."""
    return bool(record.drive) and facts.drives.get(osd) == record.drive \
        and bool(created_again(facts.order_facts.osdmap.osds, {osd: record}))


def is_kept_empty(osd: int, record: Replacement, facts: ReplaceFacts) -> bool:
    """Whether the OSD has no weight, and perfguard does not fill it without an operator's order,
    because it was created again on its old drive."""
    return facts.weight(osd) <= DRAINED_WEIGHT and on_same_drive(osd, record, facts)


def is_filled_by(campaign: Campaign, osd: int) -> bool:
    """Whether the campaign's own change gives the OSD a weight, so that it is filled."""
    return campaign.change is not None \
        and campaign.change.weights.get(osd, 0.0) > DRAINED_WEIGHT


def is_emptied_by(campaign: Campaign, osd: int) -> bool:
    """Whether the change of a campaign that has not ended (`Campaign.open`) concerns an OSD that is
    EMPTY: it has emptied the OSD, and a rollback may still fill it again."""
    return campaign.open and campaign.change is not None \
        and osd in campaign.change.weights


def is_accepted(osd: int, record: Replacement, facts: ReplaceFacts) -> bool:
    """Whether an operator has ordered, since the replacement began, that the OSD is filled whatever
    its drive: by a change that fills it, or by accepting SAME_DRIVE."""
    campaign = facts.campaign
    return campaign.origin.started >= record.since \
        and (is_filled_by(campaign, osd) or Code.SAME_DRIVE in campaign.orders.acknowledged)


def is_withheld(osd: int, record: Replacement, facts: ReplaceFacts) -> bool:
    """Whether no PG is released to the OSD: it is on its old drive, and no operator has accepted
    that."""
    return facts.weight(osd) > DRAINED_WEIGHT and on_same_drive(osd, record, facts) \
        and not is_accepted(osd, record, facts)


def ending(osd: int, record: Replacement, facts: ReplaceFacts) -> str:
    """Why a replacement has ended; '' while it has not."""
    row = facts.order_facts.osdmap.osds.get(osd)
    if row is None or not row.exists:
        return 'the OSD was purged ("expand" fills a new one)'
    if facts.campaign_active or facts.weight(osd) <= DRAINED_WEIGHT \
            or not serves(osd, facts.order_facts.osdmap):
        return ''
    if row.uuid == record.uuid:
        return 'it is in use again with the same device'
    if is_withheld(osd, record, facts):
        # Recovery from the PG logs fills it without a campaign: only an operator decides on that.
        return ''
    is_filled = bool(facts.pgs_on(osd)) and osd not in facts.entering
    return 'the new device is in use with CRUSH weight %.4g%s' % (
        facts.weight(osd), facts.recovery_text(osd)) if is_filled else ''


def given_up(osd: int, phase: ReplacePhase, facts: ReplaceFacts) -> str:
    """Why the replacement ends, and no other campaign fills the new device: its campaign is being
    aborted, by the operator or for a lasting reason; '': it continues."""
    campaign = facts.campaign
    if campaign.phase is not Phase.ABORTING \
            or phase not in (ReplacePhase.READY, ReplacePhase.FILLING):
        return ''
    # An automatic campaign has caught PGs that Ceph had remapped to it.
    is_caught = campaign.origin.trigger == 'auto' and osd in facts.entering
    if not is_caught and not is_filled_by(campaign, osd):
        return ''
    return 'campaign %d, which fills it, is aborted%s' % (campaign.id, '' if facts.weight(
        osd) > DRAINED_WEIGHT else ' ("undrain osd.%d" fills it)' % osd)


def next_step(osd: int, record: Replacement, phase: ReplacePhase, facts: ReplaceFacts) -> str:
    """Text on the next step of perfguard or the operator for an existing OSD. `record`, `phase`: of
    its replacement, or as `Replacing._row` makes them for a drain."""
    row = facts.order_facts.osdmap.osds[osd]
    if on_same_drive(osd, record, facts):
        return 'osd.%d is on the same drive as before (%s): replace the drive, or %s' % (
            osd, record.drive, _way_back(osd, record, facts))
    if phase is ReplacePhase.DRAINING:
        if facts.campaign_active:
            return '"campaign status" shows the progress'
        return 'campaign %d is aborted: "campaign resume" continues' % facts.campaign.id \
            if facts.campaign.held else _leaves_without_campaign(osd, facts)
    if phase is ReplacePhase.RECOVERING:
        is_placed = facts.weight(osd) > DRAINED_WEIGHT or osd in facts.upmapped
        return ('recovery begins when it is marked out ("ceph osd out %d")' % osd
                if row.reweight > 0 and is_placed else 'waiting for recovery')
    if phase is ReplacePhase.EMPTY and record.remove:
        return 'waiting until the campaign has ended' if is_emptied_by(facts.campaign, osd) else \
            'waiting for the orchestrator to remove it ("ceph orch osd rm status")'
    if phase is ReplacePhase.EMPTY:
        return _balancer_advice(osd, facts) + (
                'once "ceph osd safe-to-destroy osd.{0}" agrees: stop the daemon, "ceph osd '
                'destroy {0} --yes-i-really-mean-it" (with cephadm: "ceph orch osd rm {0} '
                '--replace"), replace the device and create osd.{0} again'.format(osd))
    if phase is ReplacePhase.WAITING:
        up_but_out = row.up and not row.destroyed and row.reweight == 0
        return ('the new device is out: "ceph osd in %d"' % osd if up_but_out else
                'waiting for the new device: create osd.%d on it and start it' % osd)
    if facts.campaign.held:
        return 'waiting until campaign %d, which is aborted and keeps PGs pinned, has ended: ' \
            '"campaign resume" or "campaign finish --keep"' % facts.campaign.id
    if facts.campaign_active and phase is ReplacePhase.FILLING:
        return '"campaign status" shows the progress'
    if phase is ReplacePhase.READY or osd in facts.entering_complete:
        return 'waiting for a campaign to fill it'
    return 'recovery fills it' if osd in facts.entering or facts.degraded.get(osd) else \
        'waiting for the report of the OSD'


def _leaves_without_campaign(osd: int, facts: ReplaceFacts) -> str:
    """What an OSD that is drained, but not by an active campaign, waits for."""
    pgs_degraded = facts.degraded.get(osd, 0)
    if pgs_degraded:
        return 'waiting for recovery: PGs on it that lack copies: %d' % pgs_degraded
    if osd in facts.leaving:
        return 'waiting until the PGs that still use it have moved'
    return 'waiting until it has deleted its PGs ("adopt" moves those that upmaps keep on it)' \
        if facts.pgs_on(osd) else 'waiting for the report of the OSD'


def _way_back(osd: int, record: Replacement, facts: ReplaceFacts) -> str:
    """Text on how an operator has the old drive used again, or keeps PGs off it."""
    if is_kept_empty(osd, record, facts):
        return '"ceph perfguard undrain osd.%d" fills it again' % osd
    return '"ceph osd out %d" keeps PGs off it; %s' % (
        osd, '"ceph perfguard campaign accept SAME_DRIVE" fills it again'
        if facts.campaign_active else
        '"ceph perfguard replace --cancel osd.%d" leaves it in use' % osd)


def _balancer_advice(osd: int, facts: ReplaceFacts) -> str:
    """How the balancer leaves an empty OSD alone, with "; " at the end; '': it does already."""
    if facts.campaign_active or not is_tiny(facts.weight(osd)) \
            or not serves(osd, facts.order_facts.osdmap):
        return ''
    return how_to_leave_empty(osd) + '; '


def new_weight(record: Replacement, space: Optional[Space]) -> float:
    """The weight of the new device: the earlier one, or in proportion to its size."""
    if space is None or not space.total_bytes or not record.total_bytes:
        return record.weight
    ratio = space.total_bytes / record.total_bytes
    return record.weight if abs(ratio - 1.0) < SAME_SIZE else round(record.weight * ratio, 4)


def osds_to_replace(order: Order, replaced_osds: Iterable[int], facts: ReplaceFacts) -> List[int]:
    """The OSDs that an order names and that are not replaced yet. Raises Refused."""
    order_facts = facts.order_facts
    osds = sorted(named_osds(order.names, order_facts, hosts=True) - set(replaced_osds))
    if not osds:
        raise Refused(errno.EALREADY, 'already being replaced: %s (see "osds --drained")'
                      % ', '.join(order.names))
    for osd in osds:
        if facts.weight(osd) <= DRAINED_WEIGHT and osd not in order_facts.drained:
            raise Refused(errno.EINVAL, 'osd.%d has CRUSH weight %.4g and was not drained by '
                          'perfguard, so its weight is not known: use "expand" once it has its '
                          'new device' % (osd, facts.weight(osd)))
        if osd in order_facts.uneven or osd in order_facts.crush.uneven:
            raise Refused(errno.EINVAL, 'osd.%d has different CRUSH weights in several trees, but '
                          '"replace" gives its new device the same weight in all: use "drain"'
                          % osd)
    return osds


def osds_to_drain(osds: Iterable[int], facts: ReplaceFacts) -> List[int]:
    """The OSDs that a campaign has to empty."""
    return [osd for osd in osds
            if serves(osd, facts.order_facts.osdmap) and facts.weight(osd) > DRAINED_WEIGHT]


def record_of(osd: int, facts: ReplaceFacts, now: float, drive: str,
              remove: bool) -> Replacement:
    """The record of a replacement that begins."""
    order_facts, weight = facts.order_facts, facts.weight(osd)
    space = order_facts.space.get(osd)
    return Replacement(order_facts.osdmap.osds[osd].uuid,
                       order_facts.drained[osd] if weight <= DRAINED_WEIGHT else weight,
                       space.total_bytes if space else 0, now, drive, remove)


@dataclass
class _Fill:
    """The undrain of the devices that are ready, until its campaign begins."""
    osds: Tuple[int, ...] = ()
    #: Since when these OSDs are ready, in seconds since the epoch.
    since: float = 0.0
    #: Why the undrain waits; '': it does not.
    waits: str = ''
    retry: Retry = Retry()
    pending: QueuedOrder = field(default_factory=lambda: QueuedOrder(PlanOrder(REPLACE)))


class Replacing:
    """Keeps the records, and orders the changes for their phases: at most one in each turn."""

    def __init__(self, store: Store, crush_orders: CrushOrders,
                 note: Callable[[Event], None]) -> None:
        self._store = store
        self._crush_orders = crush_orders
        self._note = note
        self._records: Dict[int, Replacement] = {}
        #: OSD -> its phase in the last turn.
        self._phases: Dict[int, ReplacePhase] = {}
        #: OSD -> since when its new device seems to be in use. Here and below, times are seconds
        #: since the epoch.
        self._in_use_since: Dict[int, float] = {}
        #: Replaced or drained OSD -> since when it does not serve.
        self._stopped_since: Dict[int, float] = {}
        #: OSD -> when the orchestrator was last ordered to remove it, and what came of that.
        self._removals: Dict[int, _Removal] = {}
        #: OSD -> its space, and when that was read; None: not read yet.
        self._space: Optional[Mapping[int, Space]] = None
        self._space_read = 0.0
        #: The campaign that is to fill the new devices that are ready.
        self._fill = _Fill()
        #: OSDs that were created again on the drive that is being replaced: no PG is released to
        #: them until an operator accepts that.
        self.on_replaced_drive: FrozenSet[int] = frozenset()
        #: For `status`.
        self.remarks: Tuple[str, ...] = ()

    def load(self, now: float) -> List[str]:
        """Read the stored records. Returns texts on what cannot be read."""
        self._records, self._phases, self._space, self._fill = {}, {}, None, _Fill()
        self._in_use_since, self._stopped_since, self._removals = {}, {}, {}
        self.on_replaced_drive, self.remarks = frozenset(), ()
        self._records, errors = self._store.load(REPLACEMENTS_DOCUMENT, Dict[int, Replacement], {})
        self._records = no_later_than(Dict[int, Replacement], self._records, now)
        return ['the replacements of OSDs (%s)' % error for error in errors]

    def __bool__(self) -> bool:
        """Whether an OSD is being replaced."""
        return bool(self._records)

    def __iter__(self) -> Iterator[int]:
        """The OSDs that are being replaced."""
        return iter(sorted(self._records))

    def _put(self, records: Dict[int, Replacement]) -> None:
        """Replace all records by these, also in the store."""
        self._crush_orders.forget_added(records)
        self._store.put_or_remove(REPLACEMENTS_DOCUMENT, encode(records, Dict[int, Replacement]))
        self._records = records

    def _end(self, osds: Iterable[int], why: str) -> None:
        """Forget replacements, and report that."""
        osds = sorted(osds)
        self.on_replaced_drive -= {*osds}
        self._put({osd: row for osd, row in self._records.items() if osd not in osds})
        for osd in osds:
            self._phases.pop(osd, None)
            self._in_use_since.pop(osd, None)
            self._note(Event(REPLACE_KIND, 'the replacement of osd.%d has ended' % osd, why))
        if not self._records:
            self.remarks = ()  # no turn follows that would make others

    def cancel_all(self, why: str) -> None:
        """End all replacements: no more devices are filled."""
        if self._records:
            self._end(self._records, why)

    def _facts(self, observation: Observation, order_facts: OrderFacts,
               campaign: Campaign) -> ReplaceFacts:
        """The facts of this turn, with OSDs that have stopped within the last REMAP_SECONDS, whose
        PGs may yet be remapped."""
        now = observation.now
        replaced_or_drained = (*self._records, *order_facts.drained)
        self._stopped_since = {osd: self._stopped_since.get(osd, now) for osd in replaced_or_drained
                               if not serves(osd, observation.osdmap)}
        drives = self._crush_orders.drive_ids(created_again(observation.osdmap.osds, self._records))
        return facts_of(
            observation, order_facts, campaign, self._records, drives,
            frozenset(osd for osd, since in self._stopped_since.items()
                      if now - since < REMAP_SECONDS))

    # ---- orders

    def carry_out(self, order: Order, observation: Observation, campaign: Campaign,
                  change: Callable[[Order, Callable[[], None]], Optional[Document]]
                  ) -> Optional[Document]:
        """Carry out an order about replacements, and return the answer. None: not yet; raises
        Refused. `change`: begins a campaign for an order, after calling its second argument."""
        facts = self._facts(observation, self._crush_orders.facts(observation), campaign)
        if order.verb == DRAINS:
            return {'drains': self._rows(facts)}
        if order.verb == CANCEL:
            return self._cancel(order, facts)
        records, drain = self._records_and_drain(order, facts, observation)
        answer: Optional[Document] = {'campaign': None}
        if drain is not None:
            answer = change(drain, lambda: self._put({**self._records, **records}))
        elif not order.dry_run:
            self._put({**self._records, **records})
        if answer is None:
            return None
        if not order.dry_run:
            self._note(Event('request', REPLACE, 'by command'))
        # The facts are those from before the order.
        emptied = () if drain is None else drain.names
        return {**answer, 'verb': REPLACE, 'dry_run': order.dry_run, 'drains': self._rows(
            facts, {**self._records, **records}, sorted(records), emptied)}

    def _records_and_drain(self, order: Order, facts: ReplaceFacts, observation: Observation
                           ) -> Tuple[Dict[int, Replacement], Optional[Order]]:
        """New records, and the drain of OSDs that are in use, if any. Raises Refused."""
        if order.remove and not observation.orchestrating.present:
            raise Refused(errno.EOPNOTSUPP, '--remove requires cephadm: remove the OSD yourself '
                          'once "osds --drained" says EMPTY')
        osds = osds_to_replace(order, self._records, facts)
        drain = tuple('osd.%d' % osd for osd in osds_to_drain(osds, facts))
        drives = self._crush_orders.drive_ids(osds)
        return {osd: record_of(osd, facts, observation.now, drives[osd], order.remove)
                for osd in osds}, Order('drain', drain, accept=order.accept,
                                        dry_run=order.dry_run) if drain else None

    def draining(self, order: Order, observation: Observation,
                 campaign: Campaign) -> Tuple[Order, Callable[[], None]]:
        """For a plan: the drain that begins a replacement, and a function that journals the rest.
        Raises Refused."""
        facts = self._facts(observation, self._crush_orders.facts(observation), campaign)
        records, drain = self._records_and_drain(order, facts, observation)
        if drain is None:
            raise Refused(errno.EINVAL, '%s: no drain is needed; run "replace" without a plan'
                          % ', '.join(order.names))

        def keep() -> None:
            self._put({**self._records, **records})
            self._note(Event('request', REPLACE, 'by a plan'))

        return drain, keep

    def _cancel(self, order: Order, facts: ReplaceFacts) -> Document:
        """End the replacement of the OSDs of an order. Returns the answer. Raises Refused."""
        osds = [osd for osd in self._records if any(
            osd in _osds_named(name, facts.order_facts) for name in order.names)]
        if not osds:
            raise Refused(errno.ENOENT, 'not being replaced: %s ("osds --drained" lists those that '
                          'are)' % ', '.join(order.names))
        self._end(osds, 'by command')
        removing = [osd for osd in osds if osd in facts.order_facts.removing]
        return {'verb': CANCEL, 'message': 'the replacement of %s is cancelled; CRUSH weights stay '
                'as they are ("undrain" restores those of drained OSDs)%s' % (
                    osds_text(osds), '; the orchestrator still removes %s ("ceph orch osd rm stop '
                    '%s")' % (osds_text(removing), ' '.join(map(str, removing)))
                    if removing else '')}

    def _rows(self, facts: ReplaceFacts, records: Optional[Mapping[int, Replacement]] = None,
              osds: Optional[Sequence[int]] = None,
              emptied: Container[str] = ()) -> List[Document]:
        """The OSDs that are drained or replaced, as "osds --drained" shows them. `records`, `osds`:
        None: all; `emptied`: OSDs that the campaign of the order empties."""
        records = self._records if records is None else records
        chosen = sorted({*records, *facts.order_facts.drained}) if osds is None else osds
        return [{**self._row(osd, records.get(osd), facts),
                 **({'next': EMPTIED} if 'osd.%d' % osd in emptied else {})}
                for osd in chosen if osd in facts.order_facts.osdmap.osds]

    def _row(self, osd: int, record: Optional[Replacement], facts: ReplaceFacts) -> Document:
        """An OSD that is drained or replaced, as "osds --drained" shows it. `record`: of its
        replacement; None: it is only drained."""
        order_facts = facts.order_facts
        space = order_facts.space.get(osd)
        before = order_facts.drained[osd] if record is None else record.weight
        # A drain that is not a replacement has the same first phases.
        shown = record or Replacement(order_facts.osdmap.osds[osd].uuid, before, total_bytes=0,
                                      since=0.0)
        phase = phase_of(osd, shown, facts)
        step = next_step(osd, shown, phase, facts)
        if record is None:
            step = {ReplacePhase.EMPTY: '%s"undrain" restores its CRUSH weight; once "ceph osd '
                    'safe-to-destroy osd.%d" agrees, it may be removed'
                    % (_balancer_advice(osd, facts), osd),
                    ReplacePhase.WAITING: '"undrain" restores its CRUSH weight once it is up'
                    }.get(phase, step)
        elif phase is ReplacePhase.READY and self._fill.waits:
            step = self._fill.waits
        return {'osd': osd, 'host': order_facts.crush.host_of(osd), 'phase': phase.value,
                'replace': record is not None, 'weight_before': before,
                'weight': facts.weight(osd), 'pgs': facts.pgs_on(osd),
                'used_bytes': space.used_bytes if space else None,
                'fill': round(space.used_bytes / space.total_bytes, 4)
                if space and space.total_bytes else None, 'next': step}

    # ---- one turn

    def turn(self, observation: Observation, campaign: Campaign, settle: float,
             fill: Callable[[QueuedOrder, Order], Optional[Document]],
             catch: Callable[[str], None], remove: Callable[[int], Reply]) -> None:
        """Run one turn of all replacements. `settle`: seconds to wait for the other devices of a
        host; `fill`: begins a campaign for an order, None: not yet; `catch`: begins one for PGs
        that are remapped; `remove`: orders the orchestrator to remove an OSD."""
        if not self._records:
            self.remarks = ()
            return
        facts = self._facts(observation, self._order_facts(observation), campaign)
        self._forget_accepted_drives(facts)
        for osd, record in list(self._records.items()):
            is_early = self._is_early(osd, record, facts, observation.now)
            end_reason = ending(osd, record, facts)
            if end_reason and not is_early:
                self._end([osd], end_reason)
                continue
            end_reason = given_up(osd, phase_of(osd, record, facts), facts)
            if end_reason:
                self._end([osd], end_reason)
        phases = {osd: phase_of(osd, record, facts) for osd, record in self._records.items()}
        self._note_phases(phases, facts)
        self._remove(phases, observation, campaign, remove)
        self.on_replaced_drive = frozenset(osd for osd, record in self._records.items()
                                           if is_withheld(osd, record, facts))
        if not facts.campaign_active and not campaign.held:
            self._fill_new_devices(observation, facts, phases, settle, fill, catch)

    def _forget_accepted_drives(self, facts: ReplaceFacts) -> None:
        """Forget old drives that operators have accepted: later mgrs do not know that campaign."""
        accepted = {osd: record._replace(drive='') for osd, record in self._records.items()
                    if on_same_drive(osd, record, facts) and is_accepted(osd, record, facts)}
        if accepted:
            self._put({**self._records, **accepted})

    def _remove(self, phases: Mapping[int, ReplacePhase], observation: Observation,
                campaign: Campaign, remove: Callable[[int], Reply]) -> None:
        """Order the orchestrator to remove empty OSDs (`remove`), if that was requested, until it
        does. The orchestrator waits until no PG needs them, whatever happens meanwhile."""
        empty = {osd for osd, phase in phases.items() if phase is ReplacePhase.EMPTY
                 and self._records[osd].remove and not is_emptied_by(campaign, osd)}
        self._removals = {osd: removal for osd, removal in self._removals.items() if osd in empty}
        now = observation.now
        for osd in sorted(empty):
            record = self._records[osd]
            # At first as if ordered now, if it was queued: a new mgr may not have read the queue.
            removal = self._removals.setdefault(osd, _Removal(now if record.queued else -inf))
            if osd in observation.orchestrating.removing:
                self._removals[osd] = removal._replace(at=now)
                if not record.queued:
                    self._put({**self._records, osd: record._replace(queued=True)})
            elif now - removal.at < REMOVAL_SECONDS:
                continue
            elif record.queued:
                self._put({**self._records, osd: record._replace(remove=False)})
                self._note(Event(REPLACE_KIND, 'osd.%d is not removed' % osd, 'the removal was '
                                 'stopped outside perfguard, which does not order it again'))
            else:
                self._removals[osd] = removal._replace(at=now)
                self._note_removal(osd, remove(osd))

    def _note_removal(self, osd: int, reply: Reply) -> None:
        """Report the orchestrator's answer to an order, if it is a new one."""
        answer = 'ordered' if reply.retval == 0 else reply.error
        if answer != self._removals[osd].answer:
            # The orchestrator may refuse the same for days.
            self._note(Event(REPLACE_KIND, 'removal of osd.%d by the orchestrator' % osd, answer))
        self._removals[osd] = self._removals[osd]._replace(answer=answer)

    def _is_early(self, osd: int, record: Replacement, facts: ReplaceFacts, now: float) -> bool:
        """Whether a new device has been in use for less than REMAP_SECONDS: its PGs may not be
        remapped yet, and its report may be that of the old device."""
        if osd not in facts.order_facts.osdmap.osds \
                or phase_of(osd, record, facts) is not ReplacePhase.FILLING:
            self._in_use_since.pop(osd, None)
            return False
        return now - self._in_use_since.setdefault(osd, now) < REMAP_SECONDS

    def _order_facts(self, observation: Observation) -> OrderFacts:
        """The facts with the space of the OSDs, which is read at intervals: less often while all
        replacements wait for operators."""
        idle = bool(self._phases) and all(phase in BY_OPERATOR or osd in self.on_replaced_drive
                                          for osd, phase in self._phases.items())
        wait = IDLE_LOOK_SECONDS if idle else BUSY_LOOK_SECONDS
        if self._space is not None and observation.now - self._space_read < wait:
            return self._crush_orders.facts(observation, self._space)
        facts = self._crush_orders.facts(observation)
        self._space, self._space_read = facts.space, observation.now
        return facts

    def _note_phases(self, phases: Dict[int, ReplacePhase], facts: ReplaceFacts) -> None:
        """Report OSDs that have entered another phase, and remark on those that wait for an
        operator."""
        steps = {osd: next_step(osd, self._records[osd], phase, facts)
                 for osd, phase in phases.items()}
        for osd, phase in sorted(phases.items()):
            if self._phases.get(osd, phase) is not phase:
                self._note(Event(REPLACE_KIND, 'osd.%d is %s' % (osd, phase.value), steps[osd]))
        self._phases = phases
        self.remarks = tuple('replacement of osd.%d: %s, %s' % (osd, phase.value, steps[osd])
                             for osd, phase in sorted(phases.items())
                             if phase in BY_OPERATOR or facts.campaign.held
                             or on_same_drive(osd, self._records[osd], facts))[:3]

    def _fill_new_devices(self, observation: Observation, facts: ReplaceFacts,
                          phases: Mapping[int, ReplacePhase], settle: float,
                          fill: Callable[[QueuedOrder, Order], Optional[Document]],
                          catch: Callable[[str], None]) -> None:
        """Fill the new devices that are ready, once all new devices of their host are; `catch` the
        PGs of devices that Ceph has put to use already.

        `settle`: seconds to wait for the other devices of a host; `fill`: begins the campaign.
        """
        filling = sorted(osd for osd, phase in phases.items()
                         if phase is ReplacePhase.FILLING and osd in facts.entering_complete)
        ready = tuple(sorted(osd for osd, phase in phases.items() if phase is ReplacePhase.READY))
        why = self._store.interrupted
        if why and (filling or ready):
            if self._fill.waits != why:
                self._note(Event('refused', 'filling of %s' % osds_text(filling or ready), why))
            self._fill = _Fill(waits=why)
            return
        if filling:
            # Even on the old drive: Ceph would fill it at once.
            catch('the new device of osd.%d is in use' % filling[0])
            return
        if ready != self._fill.osds:
            self._fill = _Fill(ready, observation.now, retry=Retry(osds_text(ready)))
        if not ready or not self._fill.retry.is_due(observation.now):
            return
        waited = observation.now - self._fill.since
        if self._waits_for_host(ready, facts, phases) and waited < settle:
            self._fill.waits = 'waiting for the other OSDs of its host'
        elif waited >= max(BUSY_LOOK_SECONDS, 2 * observation.stats_period):
            # By now the report is that of the new device.
            self._begin_fill(ready, observation, fill)

    @staticmethod
    def _waits_for_host(ready: Sequence[int], facts: ReplaceFacts,
                        phases: Mapping[int, ReplacePhase]) -> bool:
        """Whether another device of the same host will be in use soon: the first would receive
        its PGs."""
        host_of = facts.order_facts.crush.host_of
        hosts = {host_of(osd) for osd in ready}
        return any(phase is ReplacePhase.WAITING and host_of(osd) in hosts
                   for osd, phase in phases.items())

    def _begin_fill(self, ready: Sequence[int], observation: Observation,
                    fill: Callable[[QueuedOrder, Order], Optional[Document]]) -> None:
        """Begin the campaign that fills the OSDs `ready`, and note a refusal, after which it is
        tried again."""
        space = self._crush_orders.facts(observation).space
        # These are the weights that "undrain" restores.
        self._crush_orders.renew(observation.osdmap, {
            osd: new_weight(self._records[osd], space.get(osd)) for osd in ready})
        order = Order('undrain', tuple('osd.%d' % osd for osd in ready))
        last = self._fill
        retry, refused = last.retry.attempt(observation.now, lambda: fill(last.pending, order))
        if refused is None:
            return
        # Only the first of several refusals is reported.
        if not last.retry.waits:
            self._note(Event('refused', 'filling of %s' % retry.name,
                             retry.waits + '; perfguard will retry'))
        self._fill = _Fill(last.osds, last.since, retry.waits, retry)


def _osds_named(name: str, order_facts: OrderFacts) -> FrozenSet[int]:
    """The OSDs of a name; an OSD also if it was purged from CRUSH."""
    digits = name[len('osd.'):] if name.startswith('osd.') else ''
    if digits.isascii() and digits.isdigit():
        return frozenset({int(digits)})
    return order_facts.crush.osds_below(name) or frozenset()
