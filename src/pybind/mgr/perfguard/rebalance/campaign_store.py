# SPDX-License-Identifier: LGPL-2.1-or-later
"""The campaign and its pins in the store: JSON in and out, and the documents.

The OSDMap contains the pins. The store records which are perfguard's, and the entries before them:
a batch of pins is one document that is written once, and removed when none of its PGs is pinned
anymore. Until then it may list released PGs, which the audit against the OSDMap removes after a
restart. The audit requires their last records, so these stay as long as there are earlier ones.
"""
from dataclasses import replace
from typing import (AbstractSet, Any, Callable, Dict, List, Mapping, Optional, Set, Tuple)

from ..cluster.types import Json
from ..codec import Malformed, decode, encode
from ..store import Store
from .pin_index import PinIndex
from .progress import Progress, in_minutes
from .stalls import Stalls
from .types import Campaign, Pace, Phase, PinRecord, Unpinnable

CAMPAIGN = 'campaign'
HISTORY = 'history'
PREFIX = 'pins/'
Pins = Mapping[str, PinRecord]
#: PGs that cannot be pinned have a document of their own. They may change with each OSDMap, so they
#: are written with each new phase, and otherwise at this interval in seconds. Those that have
#: nowhere to move are written at once: while an OSD is down, the OSDMap does not show them again.
UNPINNABLE = 'unpinnable'
UNPINNABLE_SECONDS = 60.0
#: Maximum delay of writing changes that the OSDMap shows again, such as arrivals.
ARRIVAL_SECONDS = 5.0


class CampaignStore:
    """The stored campaign, and whether it must be written again."""

    def __init__(self, store: Store, clock: Callable[[], float]) -> None:
        self._store = store
        self._clock = clock
        self._saved: Optional[Campaign] = None
        self._saved_at = 0.0
        #: The PGs that cannot be pinned, the campaign's phase then, and when they were written.
        self._unpinnable: Mapping[str, str] = {}
        self._phase: Optional[Phase] = None
        self._unpinnable_at = 0.0

    @property
    def known(self) -> bool:
        """Whether the store contains a campaign."""
        return self._saved is not None

    def load(self) -> Tuple[Optional[Campaign], List[str]]:
        """The campaign of an earlier mgr, and texts on what cannot be read."""
        document = self._store.get(CAMPAIGN)
        if document is None:
            return None, []
        try:
            campaign = decode(Campaign, document)
            self._unpinnable = decode(Unpinnable, self._store.get(UNPINNABLE) or ())
            self._saved = replace(campaign, unpinnable={**campaign.unpinnable, **self._unpinnable})
        except Malformed as error:
            self._store.refuse(CAMPAIGN)
            return None, ['the campaign (%s)' % error]
        return self._saved, []

    def due(self, campaign: Campaign, sending: bool) -> bool:
        """Whether `save` would write something."""
        return self._campaign_due(campaign, sending) or self._unpinnable_due(campaign)

    def save(self, campaign: Campaign, sending: bool = True) -> None:
        """Write the campaign if more than its times have changed. `sending`: its commands are sent
        next."""
        if self._unpinnable_due(campaign):
            self._put_unpinnable(campaign)
        if self._campaign_due(campaign, sending):
            self._store.put(CAMPAIGN, campaign_record(campaign))
            self._saved, self._saved_at = campaign, self._clock()

    def write_again(self) -> None:
        """The mons have not stored the last write."""
        self._saved = None

    def remove(self) -> None:
        self._store.remove(UNPINNABLE)
        self._store.remove(CAMPAIGN)
        self._saved, self._unpinnable = None, {}

    def _campaign_due(self, campaign: Campaign, sending: bool) -> bool:
        if self._saved is None:
            return True
        before, now = _lasting(self._saved), _lasting(campaign)
        if before == now:
            return False
        return (sending or not 0.0 <= self._clock() - self._saved_at < ARRIVAL_SECONDS
                or _without_flights(before) != _without_flights(now))

    def _unpinnable_due(self, campaign: Campaign) -> bool:
        if campaign.unpinnable == self._unpinnable:
            return False
        passed = self._clock() - self._unpinnable_at
        return (campaign.phase is not self._phase or not 0.0 <= passed < UNPINNABLE_SECONDS
                or not campaign.incomplete.items() <= self._unpinnable.items())

    def _put_unpinnable(self, campaign: Campaign) -> None:
        if campaign.unpinnable:
            self._store.put(UNPINNABLE, encode(campaign.unpinnable, Unpinnable))
        else:
            self._store.remove(UNPINNABLE)
        self._unpinnable, self._phase = campaign.unpinnable, campaign.phase
        self._unpinnable_at = self._clock()


def _lasting(campaign: Campaign) -> Campaign:
    """The parts that must be stored: all except times and parts with a document of their own."""
    return replace(campaign, turned=0.0, moving_seconds=0.0, stopped=0.0, copied=0.0, last_epoch=0,
                   pace=Pace(), stalls=Stalls(), unpinnable={}, blocked=0.0,
                   evacuation_held=0.0,
                   copying=replace(campaign.copying, degraded=0.0),
                   limits=in_minutes(campaign.limits), arrivals=Progress())


def _without_flights(campaign: Campaign) -> Campaign:
    return replace(campaign, in_flight={}, released=0, bytes_done=0, progressed=0.0, total=0)


class PinStore(PinIndex):
    def __init__(self, store: Store) -> None:
        super().__init__()
        self._store = store
        #: PG -> documents that list it, the newest last.
        self._listed: Dict[str, Tuple[str, ...]] = {}
        #: Document -> PGs that it lists; and those for which it is the newest, if they are pinned
        #: or an older document lists them as well.
        self._contents: Dict[str, List[str]] = {}
        self._needed: Dict[str, Set[str]] = {}
        self._next = 1

    def load(self) -> List[str]:
        """Read the stored pins; returns texts on what cannot be read."""
        lost: List[str] = []
        for name in self._store.names(PREFIX):
            document = self._store.get(name)
            try:
                self._next = max(self._next, int(name[len(PREFIX):]) + 1)
                pins = decode(Pins, document or {})
            except ValueError:
                lost.append(name)
                continue
            self._adopt(name, pins)
        return lost

    def note(self, pins: Mapping[str, PinRecord]) -> None:
        """Store new or changed pins before they are sent to the mons."""
        if not pins:
            return
        name = '%s%06d' % (PREFIX, self._next)
        self._next += 1
        self._store.put(name, encode(pins, Pins))
        self._adopt(name, pins)

    def forget(self, pgids: AbstractSet[str]) -> None:
        left: Dict[str, List[str]] = {}
        for pgid in pgids:
            if self._drop(pgid) and len(self._listed[pgid]) == 1:
                left.setdefault(self._listed[pgid][0], []).append(pgid)
        self._leave(left)

    def clear(self) -> None:
        self.forget(set(self._pins))
        for name in self._store.names(PREFIX):
            self._store.remove(name)

    def _adopt(self, name: str, pins: Mapping[str, PinRecord]) -> None:
        self._contents[name], self._needed[name] = list(pins), set(pins)
        left: Dict[str, List[str]] = {}
        alone = (name,)
        for pgid, pin in pins.items():
            self._put(pgid, pin)
            before = self._listed.get(pgid)
            if before is not None:
                left.setdefault(before[-1], []).append(pgid)
            self._listed[pgid] = (*before, name) if before is not None else alone
        self._leave(left)

    def _leave(self, left: Mapping[str, List[str]]) -> None:
        """Documents -> PGs that no longer need them. Remove those that no PG needs."""
        todo = list(left.items())
        while todo:
            name, pgids = todo.pop()
            if name not in self._needed:
                continue  # removed meanwhile
            self._needed[name].difference_update(pgids)
            if not self._needed[name]:
                todo += self._removed(name).items()

    def _removed(self, name: str) -> Dict[str, List[str]]:
        """Remove a document. Returns the newer ones, as `_leave` has them, that need not overrule
        it any longer."""
        del self._needed[name]
        self._store.remove(name)
        found: Dict[str, List[str]] = {}
        for pgid in self._contents.pop(name):
            listed = self._listed[pgid] = tuple([
                each for each in self._listed[pgid] if each != name])
            if not listed:
                del self._listed[pgid]
            elif len(listed) == 1 and pgid not in self._pins:
                found.setdefault(listed[0], []).append(pgid)
        return found


def campaign_record(campaign: Campaign) -> Dict[str, Any]:
    """The document that is written whenever the campaign changes, so it must be small.

    PGs that cannot be pinned have a document of their own, which is written less often: the OSDMap
    shows which PGs are remapped. Those in flight are found there again, and remain accepted.
    """
    pinned = {pgid: flight for pgid, flight in campaign.in_flight.items()
              if flight.pin is not None}
    document: Dict[str, Any] = encode(replace(
        campaign, unpinnable={}, in_flight=pinned, accepted_unpinnable=max(
            campaign.accepted_unpinnable, len(campaign.in_flight) - len(pinned))))
    return document


#: Number of earlier campaigns whose rates count for forecasts.
RATES = 8


class CampaignHistory:
    """Summaries of campaigns that have ended, oldest first."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.rows: List[Json] = []

    def load(self) -> None:
        self.rows = self._store.get_entries(HISTORY)

    @property
    def last_id(self) -> int:
        """0: unknown."""
        return max((row['id'] for row in self.rows), default=0)

    def last_end(self) -> Optional[Tuple[int, str]]:
        """The id and the phase of the last campaign; None: unknown."""
        return (self.rows[-1]['id'], str(self.rows[-1].get('phase'))) if self.rows else None

    def rates(self) -> Tuple[float, ...]:
        """Bytes per second of the last RATES campaigns, without those that moved nothing."""
        return tuple(row['bytes_done'] / row['moving_seconds'] for row in self.rows[-RATES:]
                     if row.get('moving_seconds', 0) > 0 and row.get('bytes_done', 0) > 0)

    def file(self, row: Json, most: int) -> None:
        """Add a summary, which replaces an earlier one of the same campaign; at most `most` are
        kept."""
        rows = [entry for entry in self.rows if entry['id'] != row['id']]
        self.rows = [*rows, row][-most:]
        self._store.put(HISTORY, self.rows)
