# SPDX-License-Identifier: LGPL-2.1-or-later
"""The campaign and its pins in the store: JSON in and out, and the documents.

The OSDMap contains the pins. The store records which are perfguard's, and the entries before them:
a batch of pins is one or more documents of one value each, which are written once. One is removed
in a later turn when none of its PGs is pinned anymore. Until then it may list released PGs, which
the audit against the OSDMap removes after a restart. The audit requires their last records, so
these stay as long as there are earlier ones. New goals of known pins are a document of goals alone,
which is a tenth as long: the records in earlier documents stay.
"""
import json
import time
from dataclasses import replace
from typing import (AbstractSet, Annotated, Any, Callable, Collection, Dict, Iterable, Iterator,
                    List, Mapping, NamedTuple, Optional, Sequence, Set, Tuple)

from ..cluster.types import Json, OsdMap, UpmapEntry
from ..codec import BY_PG, Malformed, Newer, decode, encode, object_with
from ..store import PART_BYTES, Store
from ..upmap.pins import Unpinnable
from .bill import Bill, SlowOps
from .campaign import NO_CAMPAIGN, Campaign, Pinning
from .change import Led
from .pin_index import PinIndex
from .stalls import Stalls
from .types import Pace, Phase, PinRecord, UnpinnablePgs

CAMPAIGN = 'campaign'
HISTORY = 'history'
PINS_PREFIX = 'pins/'
#: The key of the numbers of the documents of Campaign.led_ahead, and their type.
LED = 'led'
Numbers = Tuple[int, ...]
LedLists = Tuple[Numbers, Numbers, Numbers]
Pins = Mapping[str, PinRecord]
#: The key of a document that contains only goals, which is no PG.
GOALS = 'goals'
Goals = Annotated[Mapping[str, Optional[UpmapEntry]], BY_PG]
#: PGs that cannot be pinned have a document of their own. They may change with each OSDMap, so they
#: are written with each new phase, and otherwise at this interval in seconds. Those that have
#: nowhere to move are written at once: while an OSD is down, the OSDMap does not show them again.
UNPINNABLE = 'unpinnable'
UNPINNABLE_SECONDS = 60.0
#: Maximum delay of writing changes that the OSDMap shows again, such as arrivals.
ARRIVAL_SECONDS = 5.0
#: Many documents are written, or removed, over several turns: each may take the mons a second, in
#: which nothing else is done. After these seconds, the rest follows in the next turn.
STORING_SECONDS = 0.5


class CampaignStore:
    """The stored campaign, and whether it must be written again. Times are those of `clock`."""

    def __init__(self, store: Store, clock: Callable[[], float]) -> None:
        self._store = store
        self._clock = clock
        #: The campaign that was last written or read (NO_CAMPAIGN: none, or `write_again`), and
        #: when it was last written (0.0: never).
        self._saved = NO_CAMPAIGN
        self._saved_at = 0.0
        #: The PGs that cannot be pinned, as stored; the campaign's phase when they were written
        #: (None: not by this mgr), and when that was (0.0: never).
        self._unpinnable: Mapping[str, Unpinnable] = {}
        self._unpinnable_phase: Optional[Phase] = None
        self._unpinnable_at = 0.0
        self._led = LedStore(store)

    @property
    def has_campaign(self) -> bool:
        """Whether the store contains a campaign that `write_again` has not marked."""
        return bool(self._saved.id)

    def load(self) -> Tuple[Campaign, List[str]]:
        """The campaign of an earlier mgr, and texts on what cannot be read. NO_CAMPAIGN: none is
        stored, or it cannot be read, or a newer perfguard has written it."""
        document = self._store.get(CAMPAIGN)
        if document is None:
            self._load_no_campaign()
            return NO_CAMPAIGN, []
        try:
            led_documents = decode(LedLists, document.pop(LED, None))
            campaign = decode(Campaign, document)
        except Newer:
            self._store.withhold(CAMPAIGN)
            self._load_no_campaign()
            return NO_CAMPAIGN, []
        except (AttributeError, TypeError, Malformed) as error:
            self._store.set_aside_unreadable(CAMPAIGN)
            self._load_no_campaign()
            return NO_CAMPAIGN, ['the campaign (%s)' % error]
        led_ahead, errors = self._led.load(led_documents)
        campaign = campaign.with_led_ahead(led_ahead)
        try:
            self._unpinnable = decode(UnpinnablePgs, self._store.get(UNPINNABLE) or ())
        except Newer:
            self._store.withhold(UNPINNABLE)
        except Malformed as error:
            # The next turns find these PGs again.
            self._store.set_aside_unreadable(UNPINNABLE)
            self._unpinnable = {}
            errors.append('the unpinnable PGs (%s)' % error)
        pinning: Pinning = campaign.pinning
        self._saved = replace(campaign, pinning=replace(
            pinning, unpinnable={**pinning.unpinnable, **self._unpinnable}))
        return self._saved, errors

    def _load_no_campaign(self) -> None:
        """Keep the other documents of a campaign that cannot be read for whoever restores it; else
        note that no campaign needs them."""
        if CAMPAIGN in self._store.unreadable:
            self._led.set_aside()
        self._led.load(())

    def must_save(self, campaign: Campaign, sending: bool) -> bool:
        """Whether `save` would write something; `sending`: commands of the campaign follow."""
        return self._campaign_due(campaign, sending) or self._unpinnable_due(campaign)

    def save(self, campaign: Campaign, sending: bool = True) -> None:
        """Write the campaign if it is due (`must_save`). `sending`: its commands are sent next."""
        if self._unpinnable_due(campaign):
            self._put_unpinnable(campaign)
        if self._campaign_due(campaign, sending):
            self._store.put(CAMPAIGN, {
                LED: self._led.put(campaign.led_ahead), **campaign_record(campaign)})
            self._saved, self._saved_at = campaign, self._clock()

    def write_again(self) -> None:
        """Have the next `save` write the campaign again: the mons have not stored the last
        write."""
        self._saved = NO_CAMPAIGN

    def remove(self) -> None:
        """Remove the campaign from the store."""
        self._store.remove(UNPINNABLE)
        self._store.remove(CAMPAIGN)
        self._led.forget()
        self._saved, self._unpinnable = NO_CAMPAIGN, {}

    @property
    def is_tidy(self) -> bool:
        """Whether no document is left that no campaign needs."""
        return not self._led.unlisted

    def tidy(self) -> None:
        """Remove documents that no campaign needs, as many as are removed within
        STORING_SECONDS; none until the mons have stored the last write of the campaign, as its
        earlier document lists others."""
        if not self._store.is_verified(CAMPAIGN):
            return
        begin = self._clock()
        self._led.tidy(lambda: self._clock() - begin <= STORING_SECONDS)

    def _campaign_due(self, campaign: Campaign, sending: bool) -> bool:
        """Whether the document of the campaign must be written. Only changes of PGs in flight may
        wait, and not if commands are sent next (`sending`)."""
        if not self.has_campaign:
            return True
        before, now = _lasting(self._saved), _lasting(campaign)
        if before == now:
            return False
        return (sending or self._clock() - self._saved_at >= ARRIVAL_SECONDS
                or _without_flights(before) != _without_flights(now))

    def _unpinnable_due(self, campaign: Campaign) -> bool:
        """Whether the document of the PGs that cannot be pinned must be written: it has changed,
        and the phase has, too, or UNPINNABLE_SECONDS have passed, or a PG has nowhere to move that
        the document does not list."""
        if campaign.pinning.unpinnable == self._unpinnable:
            return False
        elapsed = self._clock() - self._unpinnable_at
        return (campaign.phase is not self._unpinnable_phase or elapsed >= UNPINNABLE_SECONDS
                or not campaign.pinning.incomplete.items() <= self._unpinnable.items())

    def _put_unpinnable(self, campaign: Campaign) -> None:
        self._store.put_or_remove(UNPINNABLE, encode(campaign.pinning.unpinnable, UnpinnablePgs))
        self._unpinnable, self._unpinnable_phase = campaign.pinning.unpinnable, campaign.phase
        self._unpinnable_at = self._clock()


def _lasting(campaign: Campaign) -> Campaign:
    """The campaign with only the parts whose change requires a write of its document: without
    times, statistics, and parts with a document of their own."""
    return replace(campaign, progress=campaign.progress.lasting(), pace=Pace(), stalls=Stalls(),
                   pinning=campaign.pinning.for_campaign_document(), holds=campaign.holds.lasting(),
                   flights=replace(campaign.flights, copied=0.0, misplaced=0),
                   copying=campaign.copying.lasting(), bill=Bill())


def _without_flights(campaign: Campaign) -> Campaign:
    """A campaign that `_lasting` has returned, without the parts that change as PGs in flight
    arrive."""
    return replace(campaign, flights=replace(campaign.flights, in_flight={}),
                   progress=campaign.progress.without_arrivals())


class PinStore(PinIndex):
    """The pins, and their documents in the store."""

    def __init__(self, store: Store, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._store, self._clock = store, clock
        #: PG -> documents that list it, the newest last.
        self._documents_of: Dict[str, Tuple[str, ...]] = {}
        #: Document -> PGs that it lists; and those that need it, see `_documents_needed_by`.
        self._contents: Dict[str, Collection[str]] = {}
        self._needing_pgs: Dict[str, Set[str]] = {}
        #: Documents of goals alone.
        self._goals: Set[str] = set()
        #: Documents that no PG needs, and whether other documents were written since `tidy`.
        self._needless: Set[str] = set()
        self._has_noted = False
        self._next = 1
        #: Whether this mgr or an earlier one could not read a document of this campaign, so that
        #: pins or goals may be missing.
        self.is_incomplete = False

    def load(self) -> List[str]:
        """Read the stored pins. Returns the names of documents with invalid contents, which stay in
        the store until `clear`. The store itself sets aside other documents that it cannot read,
        and reports them."""
        lost: List[str] = []
        for name in self._store.names(PINS_PREFIX):
            document = self._store.get(name)
            try:
                self._next = max(self._next, int(name[len(PINS_PREFIX):]) + 1)
                goals, pins = _from_json(document or {})
            except Newer:
                self._store.withhold(name)
                continue
            except ValueError:
                lost.append(name)
                continue
            if goals:
                # Other PGs were released long ago, and their pins are in no document.
                pins = {pgid: replace(self._pins[pgid], goal=goal)
                        for pgid, goal in goals.items() if pgid in self._pins}
            self._adopt(name, pins, bool(goals))
        self.is_incomplete = bool(lost) or any(name.startswith(PINS_PREFIX) for name in (
            *self._store.unreadable, *self._store.lost_earlier()))
        return lost

    def note(self, pins: Mapping[str, PinRecord]) -> None:
        """Store new or changed pins before they are sent to the mons."""
        for part in document_parts(pins, self):
            self._write(part)

    def _write(self, pins: Pins) -> None:
        """Write pins that fit into one document (`document_parts`), which contains only their goals
        if nothing else of them has changed."""
        only_goals = all(_differs_in_goal_at_most(pin, self.get(pgid))
                         for pgid, pin in pins.items())
        name = '%s%06d' % (PINS_PREFIX, self._next)
        self._next += 1
        self._store.put(name, {GOALS: encode({pgid: pin.goal for pgid, pin in pins.items()}, Goals)}
                        if only_goals else encode(pins, Pins))
        self._has_noted = True
        self._adopt(name, pins, only_goals)

    def note_some(self, remaining_parts: List[Dict[str, PinRecord]], osdmap: OsdMap,
                  pins_before: Pins) -> bool:
        """Store the first of these parts (see `document_parts`), as many as are written within
        STORING_SECONDS, and remove them from the list. The rest is for later turns.

        PGs without a pin are left out if they had one, or if their upmap has changed.
        `pins_before`: the pins for which the parts were made. Returns False, and stores no more, if
        a PG has another pin by now.
        """
        begin = self._clock()
        while remaining_parts:
            part = {}
            for pgid, pin in remaining_parts[0].items():
                now = self.get(pgid)
                if now == pins_before.get(pgid) and (
                        now is not None or osdmap.entry(pgid) == pin.entry):
                    part[pgid] = pin
                elif now is not None:
                    return False
            self.note(part)
            del remaining_parts[0]
            if self._clock() - begin > STORING_SECONDS:
                break
        return True

    def forget(self, pgids: AbstractSet[str]) -> None:
        """Forget the pins of these PGs, if they have some. The store may contain them until `tidy`
        has removed the documents."""
        self._find_needless([pgid for pgid in pgids if self._drop(pgid)])

    @property
    def is_tidy(self) -> bool:
        """Whether no document is left to be removed."""
        return not self._needless

    def tidy(self) -> None:
        """Remove documents that no PG needs, as many as are removed within STORING_SECONDS; none in
        the first call since others were written, perhaps in an earlier turn."""
        begin = self._clock()
        while self._needless and not self._has_noted:
            self._remove(min(self._needless))
            if self._clock() - begin > STORING_SECONDS:
                break
        self._has_noted = False

    def clear(self) -> None:
        """Forget all pins, and remove their documents at once, also those that cannot be read."""
        self.forget(set(self._pins))
        while self._needless:
            self._remove(min(self._needless))
        self._store.list_again()
        for name in self._store.names(PINS_PREFIX):
            self._store.remove(name)

    def _adopt(self, name: str, pins: Mapping[str, PinRecord], only_goals: bool) -> None:
        """Take over the pins of a stored document, which overrules earlier ones that list the same
        PGs: these may not be needed any longer. `only_goals`: it contains only goals, and the rest
        of its pins is in earlier documents, which stay needed."""
        self._contents[name], self._needing_pgs[name] = list(pins), set()
        if only_goals:
            self._goals.add(name)
        # One tuple for all PGs that no other document lists: there may be 100,000.
        only_name = (name,)
        for pgid, pin in pins.items():
            self._put(pgid, pin)
            before = self._documents_of.get(pgid)
            self._documents_of[pgid] = (*before, name) if before is not None else only_name
        self._find_needless(pins, [name])

    def _documents_needed_by(self, pgid: str) -> Tuple[str, ...]:
        """The documents that a PG needs. A PG that is pinned: the one with its last record, and the
        one with a later goal, if there is one. Any other PG: the same documents, but only as long
        as they overrule earlier ones, which a restart would take for the present pin."""
        listed = self._documents_of.get(pgid, ())
        with_record = [index for index, name in enumerate(listed) if name not in self._goals]
        if not with_record:
            return ()
        last_goal = listed[-1:] if with_record[-1] < len(listed) - 1 else ()
        overrules_record = len(with_record) > 1
        if pgid in self._pins or overrules_record:
            return (listed[with_record[-1]], *last_goal)
        return last_goal

    def _find_needless(self, pgids: Iterable[str], names: Iterable[str] = ()) -> None:
        """Note, in `_needless`, which documents no PG needs any longer: of `names`, and of those
        that list one of these PGs, whose needs may have changed."""
        looked_at = set(names)
        for pgid in pgids:
            needs = self._documents_needed_by(pgid)
            for name in self._documents_of.get(pgid, ()):
                looked_at.add(name)
                if name in needs:
                    self._needing_pgs[name].add(pgid)
                else:
                    self._needing_pgs[name].discard(pgid)
        self._needless.update(name for name in looked_at if not self._needing_pgs[name])

    def _remove(self, name: str) -> None:
        """Remove a document. Others may have been needed only to overrule it."""
        del self._needing_pgs[name]
        self._needless.remove(name)
        self._goals.discard(name)
        self._store.remove(name)
        pgids = self._contents.pop(name)
        for pgid in pgids:
            listed = self._documents_of[pgid] = tuple([
                document for document in self._documents_of[pgid] if document != name])
            if not listed:
                del self._documents_of[pgid]
        self._find_needless(pgids)


def _from_json(document: object) -> Tuple[Mapping[str, Optional[UpmapEntry]], Pins]:
    """The goals of a document that contains only goals, else the pins of the document; the other
    one of both is empty. Raises Malformed."""
    if isinstance(document, dict) and document.keys() == {GOALS}:
        goals: Mapping[str, Optional[UpmapEntry]] = decode(Goals, document[GOALS])
        return goals, {}
    pins: Pins = decode(Pins, document)
    return {}, pins


def _differs_in_goal_at_most(pin: PinRecord, stored: Optional[PinRecord]) -> bool:
    """Whether a document of goals suffices for the pin: the stored one equals it otherwise."""
    return stored is not None and pin.all_but_goal == stored.all_but_goal


def document_parts(pins: Pins, stored: Pins) -> Iterator[Dict[str, PinRecord]]:
    """`pins` in parts, for each of which PinStore.note writes one document that fits into a single
    value, if its present pins are `stored`. Pins whose goals alone have changed are in parts of
    their own. Pure, for any thread."""
    by_goal: Dict[Optional[UpmapEntry], Dict[str, PinRecord]] = {}
    whole: Dict[str, PinRecord] = {}
    for pgid, pin in pins.items():
        if _differs_in_goal_at_most(pin, stored.get(pgid)):
            by_goal.setdefault(pin.goal, {})[pgid] = pin
        else:
            whole[pgid] = pin
    # PGs with the same goal are neighbours: a document contains a goal once, and a PG id for each.
    yield from _fitting(
        _SizedPin(pgid, pin, own_bytes=len(pgid) + 1,
                  shared_bytes=_json_length(encode(goal, Optional[UpmapEntry])) + _PUNCTUATION)
        for goal, of_goal in by_goal.items() for pgid, pin in of_goal.items())
    yield from _fitting(
        _SizedPin(pgid, pin, own_bytes=_json_length(encode(pin)) + len(pgid) + _PUNCTUATION)
        for pgid, pin in whole.items())


#: Upper bound of the bytes of JSON's own characters for one value.
_PUNCTUATION = 16


class _SizedPin(NamedTuple):
    """A pin, and the bytes that it takes in a document."""
    pgid: str
    pin: PinRecord
    own_bytes: int
    #: Not counted again if the PG before it in the document has the same goal.
    shared_bytes: int = 0


def _fitting(rows: Iterable[_SizedPin]) -> Iterator[Dict[str, PinRecord]]:
    """The pins of these rows, in their order, in parts that fit into a document each."""
    part: Dict[str, PinRecord] = {}
    goal, room_bytes = None, 0
    for row in rows:
        size = row.own_bytes if part and row.pin.goal == goal else row.own_bytes + row.shared_bytes
        if part and size > room_bytes:
            yield part
            part, size = {}, row.own_bytes + row.shared_bytes
        if not part:
            room_bytes = PART_BYTES - _PUNCTUATION
        part[row.pgid], goal, room_bytes = row.pin, row.pin.goal, room_bytes - size
    if part:
        yield part


def _json_length(encoded: object) -> int:
    return len(json.dumps(encoded, separators=(',', ':')))


def campaign_record(campaign: Campaign) -> Dict[str, Any]:
    """The document of a campaign, without `led_ahead`, whose documents its writer lists under LED.
    It must be small: it is written with each change of the campaign, except that changes of PGs in
    flight alone may wait for ARRIVAL_SECONDS.

    PGs that cannot be pinned, and PGs that move ahead of a change, have documents of their own,
    which are written less often. `Pinning.let_go` is not stored. PGs in flight without a pin are
    not stored either, since the OSDMap shows them again; at least as many unpinnable PGs as there
    are of them remain accepted.
    """
    in_flight = campaign.flights.in_flight
    with_pin = {pgid: flight for pgid, flight in in_flight.items() if flight.pin is not None}
    # No PGs led ahead, for each of `changes`.
    without_led = campaign.with_led_ahead([{}] * len(campaign.changes))
    document: Dict[str, Any] = encode(replace(
        without_led, pinning=campaign.pinning.for_campaign_document(),
        flights=replace(campaign.flights, in_flight=with_pin),
        orders=replace(campaign.orders, accepted_unpinnable=max(
            campaign.orders.accepted_unpinnable, len(in_flight) - len(with_pin)))))
    return document


#: Number of earlier campaigns whose rates count for forecasts.
MOST_RATES = 8
_SLOW_OPS = object_with(dict.fromkeys(SlowOps._fields, int))
_LEVELS = object_with(dict.fromkeys(
    ('read_p50_ms', 'read_p99_ms', 'write_p50_ms', 'write_p99_ms'), Optional[float]))
_SETTING = object_with({'what': str, 'seconds': float, 'state': str})
#: What commands require of a bill.
_BILL = object_with({
    'bytes_moved': float, 'bytes_required': Optional[float], 'rolled_back': bool,
    'phase_seconds': Dict[str, float], 'limit_seconds': Dict[str, float],
    'latency_before': _LEVELS, 'latency_while_moving': _LEVELS, 'operations': int,
    'counted_ratio': Optional[float], 'over_100_ms': _SLOW_OPS, 'over_1_s': _SLOW_OPS,
    'settings': List[_SETTING]})  # type: ignore[valid-type]
#: The values of a summary beside its id that every version has; those that commands and forecasts
#: require; the bill, which those of the first versions lack.
_ROW_HINTS = {'phase': str, 'started': float, 'ended': Optional[float], 'total': int,
              'released': int, 'kept': int, 'bytes_done': float, 'epochs': int,
              'moving_seconds': float, 'bill': Optional[_BILL]}


class CampaignHistory:
    """Summaries of campaigns that have ended, oldest first."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.rows: List[Json] = []

    def load(self) -> None:
        self.rows = self._store.get_entries(HISTORY, _ROW_HINTS)

    @property
    def last_id(self) -> int:
        """The id of the last campaign; 0: unknown."""
        return max((row['id'] for row in self.rows), default=0)

    def last_end(self) -> Optional[Tuple[int, str]]:
        """The id and the phase of the last campaign; None: unknown."""
        return (self.rows[-1]['id'], str(self.rows[-1].get('phase'))) if self.rows else None

    def rates(self) -> Tuple[float, ...]:
        """Bytes per second of the last MOST_RATES campaigns, without those that moved nothing."""
        return tuple(row['bytes_done'] / row['moving_seconds'] for row in self.rows[-MOST_RATES:]
                     if row.get('moving_seconds', 0) > 0 and row.get('bytes_done', 0) > 0)

    def file(self, row: Json, limit: int) -> None:
        """Add the summary of a campaign, which replaces an earlier one of the same campaign; the
        last `limit` summaries are kept."""
        rows = [entry for entry in self.rows if entry['id'] != row['id']]
        self.rows = [*rows, row][-limit:]
        self._store.put(HISTORY, self.rows)


# ---- Change.ahead in the store
#
# The PGs that the changes of a campaign have led to their place may be thousands, and each turn
# adds a few. So they are in documents of their own, which the document of the campaign lists by
# number: later ones overrule earlier ones, and those that it does not list do not count. A document
# is written before the campaign that lists it. The last one is written again, with further PGs,
# until it has SMALL_LED of them: after a crash it may contain PGs that are still in flight, whose
# release has been read back.

LED_PREFIX = 'led/'
Ahead = Mapping[str, Led]
#: The number of PGs up to which a document is extended, and the maximum, which fits into one value.
SMALL_LED = 100
MOST_LED = 500


class _StoredAhead(NamedTuple):
    """A mapping that is stored, and the numbers of its documents."""
    ahead: Ahead
    numbers: Numbers


class LedStore:
    """The documents of Campaign.led_ahead, and the mappings that they contain."""

    def __init__(self, store: Store) -> None:
        self._store = store
        #: What each document contains, by number.
        self._contents: Dict[int, Ahead] = {}
        #: The mappings of the stored campaign, in the order of Campaign.changes, each with the
        #: numbers of its documents.
        self._stored: List[_StoredAhead] = []

    def load(self, lists: Sequence[Sequence[int]]) -> Tuple[List[Ahead], List[str]]:
        """The mapping of each list of documents, and texts on what cannot be read. `lists`: numbers
        of documents, as in the document of the campaign; (): there is no campaign."""
        lost = []
        for name in self._store.names(LED_PREFIX):
            document = self._store.get(name)
            if document is None:
                continue  # the store has set it aside, or it is one of a newer perfguard
            try:
                number = int(name[len(LED_PREFIX):])
                self._contents[number] = decode(
                    Annotated[Mapping[str, Led], BY_PG], document)
            except Newer:
                self._store.withhold(name)
            except (Malformed, ValueError):
                self._store.set_aside_unreadable(name)
                lost.append(name)
        missing = {_name(number) for numbers in lists for number in numbers
                   if number not in self._contents}
        lost += ['%s, which is missing' % name for name in sorted(missing.difference(lost))]
        self._stored = [_StoredAhead(
            {pgid: led for number in numbers
             for pgid, led in self._contents.get(number, {}).items()},
            tuple(number for number in numbers if number in self._contents)) for numbers in lists]
        return [stored.ahead for stored in self._stored], lost

    def set_aside(self) -> None:
        """Set the documents aside with a campaign that cannot be read, for whoever restores it."""
        for name in self._store.names(LED_PREFIX):
            self._store.set_aside(name)

    def put(self, mappings: Sequence[Ahead]) -> List[Numbers]:
        """Store what has changed in the mappings of a campaign (its `led_ahead`); returns the
        numbers of the documents of each."""
        before = self._stored or [_StoredAhead({}, ()) for _ in mappings]
        self._stored = [_StoredAhead(ahead, self._put(ahead, replaced, mappings))
                        for ahead, replaced in zip(mappings, before)]
        return [stored.numbers for stored in self._stored]

    @property
    def unlisted(self) -> Set[int]:
        """Numbers of the documents that the stored campaign does not list."""
        return self._contents.keys() - {number for stored in self._stored
                                        for number in stored.numbers}

    def forget(self) -> None:
        """Note that the campaign was removed: `tidy` then removes its documents."""
        self._stored = []

    def tidy(self, goes_on: Callable[[], bool]) -> None:
        """Remove documents that the stored campaign does not list, as long as `goes_on`."""
        for number in sorted(self.unlisted):
            del self._contents[number]
            self._store.remove(_name(number))
            if not goes_on():
                return

    def _put(self, ahead: Ahead, replaced: _StoredAhead, mappings: Sequence[Ahead]) -> Numbers:
        """Store a mapping, and return the numbers of its documents.

        `replaced`: the stored mapping in its place: if the new one only extends that, only what is
        new is written, along with the last document if that is small. `mappings`: all that are
        being stored.
        """
        for stored in self._stored:
            if stored.ahead is ahead:
                return stored.numbers  # perhaps of another change of the campaign
        if not replaced.ahead.keys() <= ahead.keys():
            replaced = _StoredAhead({}, ())
        numbers = replaced.numbers
        new = {pgid: led for pgid, led in ahead.items() if replaced.ahead.get(pgid) != led}
        if not new:
            return numbers
        rewritten = 0
        if numbers and self._may_rewrite(numbers[-1], replaced.ahead, mappings):
            rewritten, numbers = numbers[-1], numbers[:-1]
            new = {**self._contents[rewritten], **new}
        for part in _led_parts(new):
            number = rewritten or max(self._contents, default=0) + 1
            rewritten = 0
            self._store.put(_name(number), encode(part, Annotated[Mapping[str, Led], BY_PG]))
            self._contents[number] = part
            numbers = (*numbers, number)
        return numbers

    def _may_rewrite(self, number: int, replaced: Ahead, mappings: Sequence[Ahead]) -> bool:
        """Whether the last document of the mapping `replaced` may get further PGs: it is small, and
        of no other mapping. `mappings`: those that are being stored; `replaced` may be among them,
        for another change of the campaign."""
        lists = sum(number in stored.numbers for stored in self._stored)
        is_kept = any(mapping is replaced for mapping in mappings)
        return len(self._contents[number]) < SMALL_LED and lists == 1 and not is_kept


def _name(number: int) -> str:
    return '%s%06d' % (LED_PREFIX, number)


def _led_parts(ahead: Ahead) -> Iterator[Ahead]:
    """The mapping in parts that fit into a document each."""
    rows = list(ahead.items())
    for first in range(0, len(rows), MOST_LED):
        yield dict(rows[first:first + MOST_LED])
