# SPDX-License-Identifier: LGPL-2.1-or-later
"""`expand --await`: the next OSDs that boot start empty, and are expanded once no more appear.

Meanwhile osd_crush_initial_weight of the OSDs is borrowed, by the rule of perfguard/ledger.py. It
is given back when the campaign that fills the OSDs has ended, or when the wait ends without one.
"""
import errno
from dataclasses import dataclass, field, replace
from typing import (Callable, FrozenSet, Iterable, List, Mapping, NamedTuple, Optional, Sequence,
                    Tuple)

from ..cluster.types import ConfigEntry, Document
from ..codec import Time, encode, no_later_than
from ..errors import Code, Reason, Refused
from ..events import Event
from ..ledger import Held, Owner, Row, give_back, hold, same_value, shell
from ..observation import OSD, OSD_OPTION, Observation
from ..options import Options
from ..text import listed, osds_text, plural, seconds_text
from .campaign import COUNT_SECONDS, Campaign
from .campaigns import CampaignContext
from .crush_orders import CrushOrders
from .executor import commands_of, execute
from .holds import INITIAL_WEIGHT, option_text, set_option
from .orders import (AWAIT, UNREPORTED, Order, OrderFacts, change_of, named_osds, reasons_not_new,
                     weight_of, weight_warnings)
from .plans import PlanOrder
from .queued import QueuedOrder, Retry, WaitingOrder
from .requests import Request, refuse_bad_options, unfit
from .types import SetOption

#: The document in the store.
AWAIT_DOCUMENT = 'await'
KIND = 'await'
#: INITIAL_WEIGHT as in Holds, and its value with which OSDs start empty.
OPTION_KEY = OSD_OPTION + INITIAL_WEIGHT
EMPTY = '0'
#: The longest wait without --within.
WITHIN_SECONDS = 86400.0
#: Seconds between two looks for new OSDs, and between two readings of the option in force.
LOOK_SECONDS, OPTION_SECONDS = 10.0, 30.0
#: Seconds since a new OSD was first seen for which it is awaited although it does not serve. One
#: that never boots, or flaps, must not keep the others empty. Seconds since the last new OSD for
#: which new hosts are awaited that have none: it may be that they are to have none.
BOOT_SECONDS = 600.0
#: OSDs and entries that a text names.
NAMED_IN_TEXT = 10


@dataclass(frozen=True)
class Await:
    """The record of the order."""
    since: Time
    #: Seconds until it expires.
    within: float
    #: The weight of the order, or the one that operators have set for OSDs that boot.
    weight: Optional[str] = None
    #: As Order.drain: what is drained in the same campaign.
    drain: Tuple[str, ...] = ()
    #: OSDs in CRUSH before that were never the primary of a PG -> uuid: if they are empty, they
    #: stay so.
    others: Mapping[int, str] = field(default_factory=dict)
    #: Hosts of the orchestrator at the time of the order; None: there was none.
    hosts: Optional[FrozenSet[str]] = None
    #: The borrowed option; None: OSDs boot with weight 0 anyway, or it is given back.
    option: Optional[Held] = None
    #: New OSDs so far that can be expanded; after the end, those that nothing fills.
    osds: Tuple[int, ...] = ()
    #: When each new OSD was first seen, also of those that cannot be expanded yet.
    appeared: Mapping[int, Time] = field(default_factory=dict)
    #: The campaign that fills them; 0: it has not begun. OSDs that boot meanwhile stay empty.
    campaign: int = 0
    #: Why it has ended; the option may still have to be given back.
    ended: str = ''
    #: The seconds that it had lasted when they were last counted, and when that was. The clock of
    #: the next mgr may differ, and time without an active mgr does not count.
    waited: float = 0.0
    counted: Time = 0.0
    #: The seconds, as last counted, for which another campaign has kept its OSDs empty.
    delayed: float = 0.0

    @property
    def returns_option(self) -> bool:
        """Whether the option is given back: the wait has ended, or another campaign has delayed it
        for as long as a wait may last. Then OSDs that have appeared are still expanded; those that
        boot later are not awaited."""
        return bool(self.ended) or self.delayed >= self.within

    def waited_until(self, now: float) -> float:
        """The seconds that the wait has lasted, without those of a delay."""
        return self.waited + now - self.counted

    def with_time_counted(self, now: float, delayed: bool) -> 'Await':
        """The record with the time up to now counted, at intervals, so that a later mgr knows how
        long the wait has lasted. `delayed`: another campaign keeps its OSDs empty (is_delayed), so
        the time counts as delay and not for the wait."""
        if now - self.counted < COUNT_SECONDS:
            return self
        if delayed:
            return replace(self, delayed=self.delayed + now - self.counted, counted=now)
        return replace(self, waited=self.waited_until(now), counted=now)

    def taken_over(self, now: float) -> 'Await':
        """The record of an earlier mgr with its times by the clock of this one: no time has passed
        since the last count, and OSDs that have appeared since then appear now."""
        return replace(self, counted=now, appeared={
            osd: now - max(0.0, self.counted - appeared)
            for osd, appeared in self.appeared.items()})


class NewOsds(NamedTuple):
    """OSDs of CRUSH weight 0 that were created since the order."""
    #: Those that can be expanded.
    osds: Tuple[int, ...] = ()
    #: The rest -> what they lack.
    late: Mapping[int, str] = {}
    #: New hosts of the orchestrator that have no OSD yet.
    hosts: Sequence[str] = ()


def new_osds(earlier_osds: Mapping[int, str], facts: OrderFacts) -> NewOsds:
    """The OSDs that have appeared since the wait began: those that an expansion can take, and what
    others still lack. OSDs that are to stay empty, such as those that the orchestrator removes, are
    in neither. `earlier_osds`: OSD -> uuid of those from before the wait that were never a
    primary: nothing else shows that they are not new."""
    # OSD that serves -> why an expansion leaves it out; '': it takes the OSD.
    weights, why_left_out = facts.crush.weights(), reasons_not_new(facts)
    osds, late = [], {}
    for osd, row in sorted(facts.osdmap.osds.items()):
        is_earlier = earlier_osds.get(osd) == row.uuid or row.has_led or osd in facts.drained
        if is_earlier or weights.get(osd, 0.0) > 0.0 or not row.exists or row.destroyed:
            continue
        if why_left_out.get(osd) == '':
            osds.append(osd)
        elif why_left_out.get(osd) == UNREPORTED:
            late[osd] = UNREPORTED
        elif not row.up:
            late[osd] = 'is not up yet'
        elif row.reweight == 0.0:
            late[osd] = 'is out ("ceph osd in %d")' % osd
        elif osd not in weights:
            late[osd] = 'is not in CRUSH ("ceph osd crush add osd.%d 0 host=...")' % osd
    return NewOsds(tuple(osds), late)


def never_led(facts: OrderFacts) -> Mapping[int, str]:
    """OSD -> uuid of those that would look like new ones once others have drained them: they were
    never primary, for example because of primary affinity 0 or a hybrid rule."""
    osds = facts.osdmap.osds
    return {osd: osds[osd].uuid for osd in facts.crush.weights()
            if osd in osds and not osds[osd].has_led}


def empty(facts: OrderFacts) -> List[int]:
    """OSDs that have CRUSH weight 0 already."""
    return sorted(osd for osd, weight in facts.crush.weights().items()
                  if weight == 0.0 and osd in facts.osdmap.osds)


def initial_weight(entries: Iterable[ConfigEntry], *sections: str) -> Optional[str]:
    """INITIAL_WEIGHT as the first of these sections sets it, without a mask; None: none sets it."""
    values = {entry.section: entry.value for entry in entries
              if entry.name == INITIAL_WEIGHT and not entry.mask}
    return next((values[section] for section in sections if section in values), None)


def weight_found(entries: Sequence[ConfigEntry]) -> Optional[str]:
    """The CRUSH weight that operators have set for OSDs that boot; None: their size, or 0."""
    value = initial_weight(entries, OSD, 'global')
    by_size = value is None or value.strip().startswith('-') or same_value(value, EMPTY)
    return None if by_size else value


def option_to_borrow(entries: Sequence[ConfigEntry]) -> Optional[Held]:
    """The record of INITIAL_WEIGHT in the section of all OSDs, to be borrowed so that OSDs boot
    with weight 0; None: they do already. Raises Refused if another value is set for single OSDs or
    with a mask: that section does not overrule these."""
    exceptions = [entry for entry in entries if entry.name == INITIAL_WEIGHT
                  and (entry.mask or entry.section.startswith('osd.'))
                  and not same_value(entry.value, EMPTY)]
    if exceptions:
        raise Refused(errno.EPERM, '%s is %s: such OSDs would boot with that CRUSH weight; remove '
                      'it first (%s)' % (
                          INITIAL_WEIGHT, listed(['%s for %s' % (entry.value, entry.who)
                                                  for entry in exceptions], NAMED_IN_TEXT),
                          listed(['"ceph config rm %s %s"' % (entry.who, INITIAL_WEIGHT)
                                  for entry in exceptions], NAMED_IN_TEXT)))
    if same_value(initial_weight(entries, OSD, 'global'), EMPTY):
        return None
    return Held(initial_weight(entries, OSD), EMPTY)


def ordered_weights(campaign: Campaign) -> Mapping[int, float]:
    """OSD -> the CRUSH weight that the campaign's change gives it."""
    return {} if campaign.change is None else campaign.change.weights


def hosts_without_osds(record: Await, observation: Observation) -> List[str]:
    """The hosts without OSDs in CRUSH that were added to the orchestrator since the order."""
    if record.hosts is None:
        return []
    managed = observation.orchestrating
    # The name of a host in CRUSH is the short one, unless its location says otherwise.
    return [host for host in sorted(managed.hosts - record.hosts - managed.maintenance)
            if not any(map(observation.crush.osds_below, (host, host.partition('.')[0])))]


def campaign_that_fills(record: Await, observation: Observation, campaign: Campaign) -> int:
    """The id of the active campaign, if it fills the OSDs of the record: it gives weights to some,
    and no other one is still empty. 0: none does."""
    if not campaign.active:
        return 0
    ordered = ordered_weights(campaign)
    fills_some = any(osd in ordered for osd in record.osds)
    return campaign.id if fills_some and ordered.keys() >= set(
        still_empty(record, observation)) else 0


def is_delayed(record: Await, campaign: Campaign) -> bool:
    """Whether another campaign, which may take weeks, keeps new OSDs empty."""
    return bool(record.osds) and not record.campaign and campaign.active


def why_over(record: Await, observation: Observation, campaign: Campaign) -> str:
    """Why the wait is over: the campaign that fills the OSDs has ended, or none has begun in time;
    '': it is not over."""
    weights = observation.crush.weights()
    empty_osds = still_empty(record, observation)
    filled = [osd for osd in record.osds if weights.get(osd, 0.0)]
    if record.campaign:
        if campaign.open and campaign.id == record.campaign:
            return ''
        why = 'campaign %d has ended' % record.campaign
    elif not empty_osds and not ordered_weights(campaign).keys().isdisjoint(filled):
        # A campaign has weighed them, and ended at once. Weights that others set do not end the
        # wait: further OSDs may boot.
        return '%s already %s a CRUSH weight' % (
            osds_text(filled), 'has' if len(filled) == 1 else 'have')
    elif record.waited_until(observation.now) < record.within or is_delayed(record, campaign):
        return ''
    else:
        why = 'no campaign has begun within %s' % seconds_text(record.within)
    return '; '.join([why, *kept_empty(empty_osds)])


def still_empty(record: Await, observation: Observation) -> Tuple[int, ...]:
    """The OSDs of the record that exist and have CRUSH weight 0."""
    weights = observation.crush.weights()
    return tuple(osd for osd in record.osds
                 if osd in observation.osdmap.osds and not weights.get(osd, 0.0))


def kept_empty(osds: Sequence[int]) -> List[str]:
    """Text on OSDs that nothing fills, on which the operator has to decide; []: there are none."""
    return ['%s CRUSH weight 0 ("ceph perfguard expand" fills %s)' % (
        osds_text(osds) + (' keeps' if len(osds) == 1 else ' keep'),
        'it' if len(osds) == 1 else 'them')] if osds else []


@dataclass
class _Expansion:
    """The expansion of the OSDs, until its campaign begins."""
    retry: Retry = Retry()
    pending: QueuedOrder = field(default_factory=lambda: QueuedOrder(PlanOrder(AWAIT)))


class Awaiting:
    """Keeps the record. Once a turn:

    1. End the wait if the campaign that fills the OSDs has ended, or if it has expired.
    2. Borrow the option, or give it back: journalled, sent, read back.
    3. Look for new OSDs; order their expansion once they stand still.
    """

    def __init__(self, context: CampaignContext, crush_orders: CrushOrders) -> None:
        self._context, self._crush_orders = context, crush_orders
        self._store, self._note = context.store, context.note
        self._forget()

    def _forget(self) -> None:
        """Forget the wait."""
        self._record: Optional[Await] = None
        self._new_osds = NewOsds()
        self._looked_at = self._option_read_at = float('-inf')
        self._expansion = _Expansion()
        self._failure = ''
        #: Whether the last command to give the option back has failed.
        self._not_returned = False
        #: The order whose command waits until the option is in force, and its answer.
        self._unanswered: Optional[Tuple[WaitingOrder, Document]] = None
        #: For `status`.
        self.reasons: Tuple[Reason, ...] = ()

    def load(self) -> List[str]:
        """Returns texts on what cannot be read."""
        self._forget()
        record, errors = self._store.load(AWAIT_DOCUMENT, Optional[Await], None)
        now = self._context.clock()
        self._record = no_later_than(Optional[Await], record and record.taken_over(now), now)
        return ['the wait of expand --await (%s)' % error for error in errors]

    @property
    def unfinished(self) -> bool:
        """OSDs are awaited, or the option is not given back yet."""
        record = self._record
        return record is not None and not (record.ended and record.option is None)

    @property
    def waits(self) -> bool:
        """OSDs are awaited."""
        return self._record is not None and not self._record.ended

    @property
    def busy(self) -> bool:
        """The option is being borrowed, or given back."""
        record = self._record
        return record is not None and record.option is not None and bool(
            record.returns_option or not record.option.seen)

    @property
    def held(self) -> List[Row]:
        """The borrowed option."""
        record = self._record
        if record is None or record.option is None:
            return []
        value_before = record.option.found
        restore = '; '.join(map(shell, commands_of(set_option(OPTION_KEY, value_before))))
        return [Row(Owner.AWAIT, option_text(OPTION_KEY), value_before, EMPTY,
                    record.since, restore, INITIAL_WEIGHT)]

    def _put(self, record: Await) -> None:
        if record != self._record:
            self._store.put(AWAIT_DOCUMENT, encode(record))
            self._record = record

    def end(self, why: str, empty_osds: Tuple[int, ...] = ()) -> None:
        """Await no more OSDs; the next turns give the option back. From now on, `status` names the
        `empty_osds`."""
        if self._record is None:
            return
        waits = self.waits
        self._put(replace(self._record, ended=self._record.ended or why, osds=empty_osds))
        if waits:
            self._note(Event(KIND, 'the wait for new OSDs has ended', why))

    # ---- the order

    def carry_out(self, waiting_order: WaitingOrder, observation: Observation,
                  options: Options) -> Optional[Document]:
        """Begin to await OSDs, and return the answer. None: the option is not in force yet. Raises
        Refused."""
        if self._unanswered is not None and self._unanswered[0] is waiting_order:
            return self._once_in_force(self._unanswered[1])
        order: Order = waiting_order.order
        self._context.refuse_closing()
        facts = self._crush_orders.facts(observation, space={})  # no size is needed yet
        record = self._ordered(order, observation, facts, options)
        answer = _answer(order, record, empty(facts), options.auto_expand_settle)
        if order.dry_run:
            return answer
        self._context.reopen()
        self._note(Event('request', AWAIT, 'by command'))
        self._forget()
        self._put(record)
        self._unanswered = waiting_order, answer
        return None

    def _once_in_force(self, answer: Document) -> Optional[Document]:
        record = self._record
        if record is None or record.ended:
            raise Refused(errno.ECANCELED, 'the wait for new OSDs has ended: %s; "expand --await" '
                          'begins another one' % (record.ended if record else 'it was aborted'))
        return answer if record.option is None or record.option.seen else None

    def _ordered(self, order: Order, observation: Observation, facts: OrderFacts,
                 options: Options) -> Await:
        """The record of an order. Raises Refused if it is invalid, or not possible now."""
        if self.waits and self._record is not None and self._record.campaign:
            raise Refused(errno.EALREADY, 'campaign %d fills the OSDs of the previous order: wait '
                          'until it has ended' % self._record.campaign)
        if self.waits:
            raise Refused(errno.EALREADY, 'new OSDs are awaited already: "campaign abort" ends '
                          'that')
        if self.unfinished:
            raise Refused(errno.EALREADY, '%s is being given back: try again in a few seconds'
                          % INITIAL_WEIGHT)
        refuse_bad_options(Request('prepare'), options,
                           {pool.name for pool in observation.osdmap.pools.values()})
        if unfit(observation.osdmap):
            raise Refused(errno.EPERM, 'cannot begin a campaign: %s' % unfit(observation.osdmap))
        entries = self._context.cluster.config_entries()
        if entries is None:
            raise Refused(errno.EIO, 'could not read the configuration database: try again')
        weight = order.weight or weight_found(entries)
        # These two raise Refused for an invalid weight, and for names that do not exist.
        if weight is not None:
            weight_of(weight)
        named_osds(order.drain, facts, hosts=True)
        managed = observation.orchestrating
        return Await(observation.now, order.within or WITHIN_SECONDS, weight, order.drain,
                     others=never_led(facts), hosts=managed.hosts if managed.present else None,
                     option=option_to_borrow(entries), counted=observation.now)

    # ---- one turn

    def turn(self, observation: Observation, campaign: Campaign, settle: float,
             fill: Callable[[QueuedOrder, Order], Optional[Document]]) -> None:
        """Run one turn of the wait, and of what remains of it after its end.

        `settle`: seconds without a new OSD; `fill`: begins the campaign of an order and returns its
        answer, None while that is computed. It raises Refused.
        """
        self.reasons = ()
        if self._record is None or not observation.osdmap.osds or not self._context.may_write():
            return
        if self.waits:
            self._count_and_end_if_over(observation, campaign)
        self._borrow_or_give_back(observation.now)
        # Either of these may end the wait, or forget the record.
        if self.waits:
            self._look_for_osds(observation)
            if self._record.campaign:
                self.reasons = tuple(Reason(Code.REMARK, text) for text in kept_empty(
                    [osd for osd in self._record.osds if osd not in ordered_weights(campaign)]))
            else:
                self._expand(observation, campaign, settle, fill)
        elif self.unfinished:
            self.reasons = (Reason(Code.SETTINGS, 'waiting until %s is given back ("held" has the '
                                   'command)' % INITIAL_WEIGHT),)
        elif self._record is not None:
            # Some of its OSDs are still empty.
            self._put(replace(self._record, osds=still_empty(self._record, observation)))
            self.reasons = tuple(Reason(Code.REMARK, text)
                                 for text in kept_empty(self._record.osds))

    def _count_and_end_if_over(self, observation: Observation, campaign: Campaign) -> None:
        """Note the campaign that fills the OSDs, else count the time of the wait; end the wait if
        its time is over, or that campaign has ended."""
        assert self._record is not None
        campaign_id = self._record.campaign or campaign_that_fills(
            self._record, observation, campaign)
        record = replace(self._record, campaign=campaign_id)
        counted = record if campaign_id else record.with_time_counted(
            observation.now, is_delayed(record, campaign))
        self._put(counted)
        if counted.returns_option and not record.returns_option:
            self._note(Event(KIND, 'OSDs that boot from now on are not awaited',
                             'campaign %d has delayed the expansion of %s for %s' % (
                                 campaign.id, osds_text(record.osds),
                                 seconds_text(counted.delayed))))
        why = why_over(self._record, observation, campaign)
        if why:
            self.end(why, self._record.osds)

    def _borrow_or_give_back(self, now: float) -> None:
        """Read the option if that is due, and borrow it or give it back by one step; others may
        have changed it, which ends the wait. Forget the record once nothing is left to do or to
        report."""
        record = self._record
        assert record is not None
        if self._must_read_option(record, now):
            self._option_read_at = now
            entries = self._context.cluster.config_entries()
            if entries is not None:
                self._end_if_changed(entries)
                if record.option is not None:
                    self._step(record.option, initial_weight(entries, OSD))
        if self._record is not None and not self.unfinished and not self._record.osds:
            self._store.remove(AWAIT_DOCUMENT)
            self._record = None

    def _must_read_option(self, record: Await, now: float) -> bool:
        """Whether this turn reads the option: each turn until it is in force, or given back, unless
        the mons refuse that; else at intervals, for changes by others until the wait has ended."""
        borrowed = record.option
        changes = borrowed is not None and (not borrowed.seen or record.returns_option)
        if changes and not self._not_returned:
            return True
        return (changes or not record.ended) and now - self._option_read_at >= OPTION_SECONDS

    def _end_if_changed(self, entries: Sequence[ConfigEntry]) -> None:
        """End the wait if others have set the option for some OSDs only, or, where it was 0 anyway
        and so is not borrowed, for all."""
        record = self._record
        assert record is not None
        if record.returns_option:
            return
        try:
            if option_to_borrow(entries) is not None and record.option is None:
                self.end('%s is no longer 0: it was changed outside perfguard' % INITIAL_WEIGHT,
                         record.osds)
        except Refused as refused:
            self.end(str(refused), record.osds)

    def _step(self, borrowed: Held, value: Optional[str]) -> None:
        """One step to borrow the option, or to give it back. If others have changed it, it is left
        alone, which ends a wait. `value`: that of all OSDs in the configuration database now; None:
        not set."""
        assert self._record is not None
        gives_back = self._record.returns_option
        step = give_back(borrowed, value) if gives_back else hold(borrowed, value)
        self._put(replace(self._record, option=step.held))
        if step.theirs:
            why = '%s was changed outside perfguard and is left alone' % INITIAL_WEIGHT
            if gives_back:
                self._note(Event(KIND, why))
            else:
                self.end(why, self._record.osds)
        elif step.held is None:
            # Name the value: another admin may have set 0 meanwhile, which does not show.
            self._note(Event(KIND, '%s was given back' % INITIAL_WEIGHT, 'it is not set'
                             if borrowed.found is None else 'it is %s' % borrowed.found))
        if step.send and step.held is not None and self._context.journal_is_stored():
            self._send(set_option(OPTION_KEY, borrowed.found if gives_back else EMPTY))

    def _send(self, action: SetOption) -> None:
        """Send the command that borrows the option or gives it back. The wait ends if the mons
        refuse to set the borrowed value. A command that gives it back is sent again, at intervals
        as the mons log each one."""
        assert self._record is not None
        outcome = execute(self._context.cluster, [action])
        for failure in outcome.failures:
            if failure != self._failure:
                self._note(Event('failed', failure))
            self._failure = failure
        self._not_returned = bool(outcome.failures) and self._record.returns_option
        if outcome.refused and not self._record.returns_option:
            self.end('the mons did not accept %s 0' % INITIAL_WEIGHT, self._record.osds)

    def _look_for_osds(self, observation: Observation) -> None:
        """Record, at intervals, which OSDs are new, and when they appeared. If others can be
        expanded than before, their expansion is computed again."""
        assert self._record is not None
        if observation.now - self._looked_at < LOOK_SECONDS:
            return
        self._looked_at = observation.now
        record, new = self._record, new_osds(self._record.others,
                                             self._crush_orders.facts(observation))
        if new.osds != record.osds:
            self._expansion = _Expansion()
        appeared = {osd: record.appeared.get(osd, observation.now)
                    for osd in (*new.osds, *new.late)}
        self._put(replace(record, osds=new.osds, appeared={**record.appeared, **appeared}))
        self._new_osds = new._replace(hosts=hosts_without_osds(record, observation))

    def _expand(self, observation: Observation, campaign: Campaign, settle: float,
                fill: Callable[[QueuedOrder, Order], Optional[Document]]) -> None:
        """Begin the campaign that fills the OSDs once nothing is left to wait for (_waits_for), and
        publish what it waits for until it has begun. Parameters are those of `turn`."""
        record = self._record
        assert record is not None
        active_id = campaign.id if campaign.active else 0
        waits_for = self._waits_for(record, observation.now, active_id, settle)
        if not waits_for:
            self._begin(record, observation, fill)
            waits_for = self._expansion.retry.waits \
                or 'the effects of the expansion are being computed'
        time_left = seconds_text(max(0.0, record.within - record.waited_until(observation.now)))
        after = 'once campaign %d has ended, ' % active_id if active_id else ''
        self.reasons = (Reason(Code.AWAITS_OSDS, 'waiting for OSDs: %s so far%s; %s; %s"campaign '
                               'abort" ends the wait, which expires in %s%s' % (
                                   len(record.osds) or 'none',
                                   ' (%s)' % osds_text(record.osds) if record.osds else '',
                                   waits_for, after, time_left,
                                   '' if not record.returns_option else
                                   '; OSDs that boot now are not awaited' if record.option is None
                                   else '; OSDs that boot now start empty until %s is given back '
                                   '("held" has the command)' % INITIAL_WEIGHT)),)

    def _waits_for(self, record: Await, now: float, active_id: int, settle: float) -> str:
        """Text on what the expansion waits for; '': it can begin. `active_id`: the id of the active
        campaign, 0: none; `settle`: seconds without a new OSD."""
        late = self._new_osds.late
        quiet_seconds = now - max(record.appeared.values(), default=record.since)
        if record.option is not None and not record.option.seen and not record.returns_option:
            return 'waiting until %s is 0' % INITIAL_WEIGHT
        if not record.osds:
            return '; '.join('osd.%d %s' % row for row in sorted(late.items())[:NAMED_IN_TEXT]) \
                or 'create them now'
        booting = {osd: lacks for osd, lacks in late.items()
                   if now - record.appeared[osd] < BOOT_SECONDS}
        if booting:
            return 'expands when %s' % listed(
                ['osd.%d, which %s, is ready' % row for row in booting.items()], NAMED_IN_TEXT)
        hosts = self._new_osds.hosts
        if hosts and quiet_seconds < BOOT_SECONDS:
            return 'expands when %s, which the orchestrator has added, %s OSDs, or in %s' % (
                listed(hosts, NAMED_IN_TEXT), 'has' if len(hosts) == 1 else 'have',
                seconds_text(BOOT_SECONDS - quiet_seconds))
        if quiet_seconds < settle:
            return 'expands in %s unless more appear' % seconds_text(settle - quiet_seconds)
        if active_id:
            # Refusals would put it off for up to an hour after the end of that campaign.
            return 'expands once campaign %d has ended' % active_id
        return ''

    def _begin(self, record: Await, observation: Observation,
               fill: Callable[[QueuedOrder, Order], Optional[Document]]) -> None:
        """Begin the expansion by the OSDs of `record`, and note a refusal, after which it is tried
        again."""
        pending, retry = self._expansion.pending, self._expansion.retry
        if not retry.is_due(observation.now):
            return
        name = osds_text(record.osds)
        lost_state = self._store.interrupted
        order = Order('expand', tuple('osd.%d' % osd for osd in record.osds),
                      weight=record.weight, drain=record.drain)

        def carry_out() -> Optional[Document]:
            if lost_state:
                raise Refused(errno.EPERM, lost_state + ' ("campaign prepare" acknowledges this)')
            if pending.job is None:  # the effects are not being computed yet
                facts = self._crush_orders.facts(observation)
                unusual = weight_warnings(order, change_of(order, facts), facts)
                if unusual:
                    raise Refused(errno.EPERM, '%s: run "ceph perfguard %s" with the weight you '
                                  'want' % ('; '.join(unusual), order.text))
            return fill(pending, order)

        next_retry, refused = replace(retry, name=name).attempt(observation.now, carry_out)
        if refused is None:
            return
        # Refusals for the state of the cluster may change with each report: after any refusal, they
        # are not noted.
        is_repeated = next_retry.waits == retry.waits or refused.not_fit and retry.waits
        if not is_repeated:
            self._note(Event('refused', 'expand %s' % name,
                             next_retry.waits + '; perfguard will retry'))
        self._expansion = _Expansion(next_retry)


def _answer(order: Order, record: Await, left_out: Sequence[int], settle: float) -> Document:
    """The answer of the command: what the order does. `left_out`: OSDs that are empty already, and
    stay so; `settle`: seconds without a new OSD after which the expansion begins."""
    option = record.option
    value_before = None if option is None else option.found
    effect = '%s is 0 already, and stays 0' % INITIAL_WEIGHT if option is None else \
        '%s of the OSDs is 0 until then (%s)' % (INITIAL_WEIGHT, (
            'not set before'
            if value_before is None else '%s before, which is restored' % value_before))
    return {'verb': AWAIT, 'dry_run': order.dry_run, 'campaign': None,
            'option': INITIAL_WEIGHT, 'found': value_before,
            'put': None if option is None else EMPTY,
            'expires': record.since + record.within, 'settle_seconds': settle,
            'left_out': [{'osd': osd, 'reason': 'has CRUSH weight 0 already'}
                         for osd in left_out],
            'message': 'OSDs that boot start with CRUSH weight 0, and are expanded%s once '
            'no other one has appeared for %s. This ends with their campaign, or after %s without '
            'one; %s%s. "campaign abort" ends the wait%s' % (
                ', and %s drained,' % listed(record.drain, NAMED_IN_TEXT) if record.drain else '',
                seconds_text(settle), seconds_text(record.within), effect,
                '; their CRUSH weight is then %s' % record.weight if record.weight else '',
                '; %s of weight 0 %s left out' % (
                    plural(len(left_out), 'earlier OSD'),
                    'is' if len(left_out) == 1 else 'are') if left_out else '')}
