# SPDX-License-Identifier: LGPL-2.1-or-later
"""The campaign and its pins in the store: JSON in and out, and the documents.

The OSDMap contains the pins. The store records which are perfguard's, and the entries before them:
a batch of pins is one document that is written once, and removed when none of its PGs is pinned
anymore. Until then it may list released PGs, which the audit against the OSDMap removes after a
restart. The audit requires their last records, so these stay as long as there are earlier ones.
"""
from dataclasses import replace
from typing import (AbstractSet, Any, Callable, Dict, List, Mapping, Optional, Set, Tuple)

from ..cluster.types import Json, PoolPgs, PoolRule, UpmapEntry
from ..errors import Code
from ..holds import Held
from ..store import Store, checked
from .copying import copying_from_json, copying_to_json
from .pin_index import PinIndex
from .progress import (Progress, flown_to_json, in_minutes, limits_from_json, limits_to_json,
                       progress_from_json, progress_to_json)
from .stalls import Stalls, stalls_from_json, stalls_to_json
from .types import Campaign, Change, ChangeStage, Flight, Holds, Pace, Phase, PinRecord, Sent

CAMPAIGN = 'campaign'
HISTORY = 'history'
PREFIX = 'pins/'
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
            campaign = campaign_from_json(document)
            self._unpinnable = unpinnable_from_json(self._store.get(UNPINNABLE) or ())
            self._saved = replace(campaign, unpinnable={**campaign.unpinnable, **self._unpinnable})
        except (AttributeError, LookupError, TypeError, ValueError) as error:
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
            self._store.put(UNPINNABLE, unpinnable_to_json(campaign.unpinnable))
        else:
            self._store.remove(UNPINNABLE)
        self._unpinnable, self._phase = campaign.unpinnable, campaign.phase
        self._unpinnable_at = self._clock()


def _lasting(campaign: Campaign) -> Campaign:
    """The parts that must be stored: all except times and parts with a document of their own."""
    return replace(campaign, turned=0.0, moving_seconds=0.0, stopped=0.0, last_epoch=0,
                   pace=Pace(), stalls=Stalls(), unpinnable={}, blocked=0.0,
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
                pins = {pgid: pin_from_json(raw) for pgid, raw in (document or {}).items()}
            except (AttributeError, LookupError, TypeError, ValueError):
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
        self._store.put(name, {pgid: pin_to_json(pin) for pgid, pin in pins.items()})
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


_RULE_NAMES = ('rule_name', 'found_rule', 'via')
_CHANGE_PLAIN = ('crush_map', 'since', 'times', 'pins', 'vectors', 'fingerprint', 'crush_version')


def change_to_json(change: Change) -> Dict[str, Any]:
    document: Dict[str, Any] = {name: getattr(change, name) for name in _CHANGE_PLAIN}
    document.update({name: getattr(change, name) for name in _RULE_NAMES})
    document.update({'done': list(change.done), 'burst': change.burst,
                     'gathers': change.gathers,
                     'tunables': change.tunables, 'then': change.then,
                     'crush_identity': change.crush_identity,
                     'rule': None if change.rule is None else list(change.rule),
                     'moves_first': change.moves_first, 'passes': change.passes,
                     'pgs': None if change.pgs is None else list(change.pgs),
                     'replaces': None if change.replaces is None else list(change.replaces),
                     'pg_num': change.pg_num, 'found_pg_num': change.found_pg_num,
                     'ordinary': change.ordinary, 'closing': change.closing})
    document.update({'weights': {str(osd): weight for osd, weight in change.weights.items()},
                     'drained': list(change.drained), 'stage': change.stage.value})
    return document


def change_from_json(raw: Mapping[str, Any]) -> Change:
    """Raises KeyError, TypeError or ValueError on an invalid document."""
    rule, numbers, replaces = raw.get('rule'), raw.get('pgs'), raw.get('replaces')
    return Change({int(osd): float(weight) for osd, weight in raw['weights'].items()},
                  done=tuple(raw.get('done', ())), burst=raw.get('burst', 0),
                  gathers=bool(raw.get('gathers', False)), tunables=raw.get('tunables', 0),
                  crush_identity=int(raw.get('crush_identity', 0)),
                  rule=None if rule is None else PoolRule(*map(int, rule)), then=raw.get('then'),
                  moves_first=bool(raw.get('moves_first', False)), passes=raw.get('passes', 0),
                  pgs=None if numbers is None else PoolPgs(*map(int, numbers)),
                  replaces=None if replaces is None else PoolPgs(*map(int, replaces)),
                  pg_num=int(raw.get('pg_num', 0)), found_pg_num=int(raw.get('found_pg_num', 0)),
                  ordinary=bool(raw.get('ordinary', False)),
                  closing=bool(raw.get('closing', False)),
                  drained=tuple(raw['drained']), stage=ChangeStage(raw['stage']),
                  **{name: raw.get(name, '') for name in _RULE_NAMES},
                  **{name: raw[name] for name in _CHANGE_PLAIN})


#: Would make the document large.
NOT_KEPT = ('burdened', 'seen_since', 'slow_reads', 'judged')


def pace_to_json(pace: Pace) -> Dict[str, Any]:
    kept = {key: value for key, value in vars(pace).items() if key not in NOT_KEPT}
    return {**kept, 'levels': dict(pace.levels)}


def pace_from_json(raw: Mapping[str, Any]) -> Pace:
    """Raises KeyError, TypeError or ValueError on invalid data."""
    return Pace(float(raw['pgs']), float(raw['decided']), int(raw['over']), int(raw['under']),
                bool(raw['halted']), str(raw['why']),
                str(raw.get('code', Code.FIRST_PACE)),
                {str(name): float(ms) for name, ms in raw.get('levels', {}).items()},
                float(raw.get('acquitted', 0.0)), int(raw.get('used', 0)),
                int(raw.get('above', 0)))


def entry_to_json(entry: UpmapEntry) -> List[Any]:
    return [[list(pair) for pair in entry.items],
            None if entry.vector is None else list(entry.vector)]


def entry_from_json(raw: List[Any]) -> UpmapEntry:
    items, vector = raw
    return UpmapEntry(tuple((int(pair[0]), int(pair[1])) for pair in items),
                      None if vector is None else tuple(map(int, vector)))


def pin_to_json(pin: PinRecord) -> List[Any]:
    return [entry_to_json(pin.before), entry_to_json(pin.entry),
            None if pin.raw is None else list(pin.raw),
            None if pin.goal is None else entry_to_json(pin.goal),
            *_without_end([pin.was, pin.earlier])]


def _without_end(entries: List[Optional[UpmapEntry]]) -> List[Any]:
    """As JSON, without those at the end that are None: there are tens of thousands of pins."""
    while entries and entries[-1] is None:
        entries = entries[:-1]
    return [None if entry is None else entry_to_json(entry) for entry in entries]


def pin_from_json(raw: List[Any]) -> PinRecord:
    before, entry, raw_set, *later = raw
    return PinRecord(entry_from_json(before), entry_from_json(entry),
                     None if raw_set is None else tuple(map(int, raw_set)),
                     *(None if each is None else entry_from_json(each) for each in later[:3]))


def _flight_to_json(flight: Flight) -> List[Any]:
    """Short, since all flights are written whenever one begins or ends."""
    pin = flight.pin
    entry = None if pin is not None and pin.leads_to == flight.entry else flight.entry
    return [flight.since, flight.sent, flight.confirmed, int(flight.seen_remapped), flight.bytes,
            flight.primary, list(flight.sources), list(flight.targets), list(flight.readers),
            None if pin is None else pin_to_json(pin),
            None if entry is None else entry_to_json(entry)]


def _flight_from_json(raw: Any) -> Flight:
    (since, sent, confirmed, seen, size, primary, sources, targets, readers, raw_pin,
     raw_entry) = raw
    pin = None if raw_pin is None else pin_from_json(raw_pin)
    entry = pin.leads_to if raw_entry is None and pin is not None else entry_from_json(raw_entry)
    return Flight(since, entry, sent, confirmed, bool(seen), tuple(sources), tuple(targets),
                  primary, size, tuple(readers), pin)


def _held_to_json(held: Held) -> List[Any]:
    row: List[Any] = [held.found, held.put, held.seen, held.returning]
    return row + [list(held.earlier)] if held.earlier else row


def _held_from_json(row: List[Any]) -> Held:
    found, put, *marks = row
    held = Held(found, put, *marks[:2])
    return replace(held, earlier=tuple(marks[2])) if len(marks) > 2 else held


#: Fields of Campaign that are valid JSON values.
_PLAIN = ('id', 'started', 'phase_since', 'pins_sent', 'turned', 'progressed', 'stopped',
          'trigger', 'target', 'prepared', 'paused', 'keep', 'ended', 'total', 'released', 'kept',
          'bytes_done', 'moving_seconds', 'first_epoch', 'last_epoch', 'goals', 'kept_mark',
          'automatic', 'crush_version', 'held', 'left', 'crush_own', 'rolled_back',
          'accepted_unpinnable', 'refused_crush', 'paused_until')


#: The same for fields that documents of earlier versions lack.
_LATER = ('crush_identity', 'blocked', 'plan', 'plan_token', 'undersized', 'paused_at')


def _grouped(values: Mapping[str, Any]) -> List[List[Any]]:
    """[value, "pgid pgid ..."]: many PGs have the same value."""
    groups: Dict[Any, List[str]] = {}
    for pgid, value in values.items():
        groups.setdefault(value, []).append(pgid)
    return [[value, ' '.join(pgids)] for value, pgids in groups.items()]


def _ungrouped(raw: Any) -> Dict[str, Any]:
    return {pgid: value for value, pgids in raw for pgid in pgids.split()}


def unpinnable_to_json(unpinnable: Mapping[str, str]) -> List[List[Any]]:
    """[reason, {pool: "seed seed ..."}]: there may be tens of thousands."""
    groups: Dict[str, Dict[str, List[str]]] = {}
    for pgid, reason in unpinnable.items():
        pool, seed = pgid.split('.')
        groups.setdefault(reason, {}).setdefault(pool, []).append(seed)
    return [[reason, {pool: ' '.join(seeds) for pool, seeds in pools.items()}]
            for reason, pools in groups.items()]


def unpinnable_from_json(raw: Any) -> Dict[str, str]:
    return {'%s.%s' % (pool, seed): reason for reason, pools in raw
            for pool, seeds in pools.items() for seed in seeds.split()}


def campaign_record(campaign: Campaign) -> Dict[str, Any]:
    """The document that is written whenever the campaign changes, so it must be small.

    PGs that cannot be pinned have a document of their own, which is written less often: the OSDMap
    shows which PGs are remapped. Those in flight are found there again, and remain accepted.
    """
    pinned = {pgid: flight for pgid, flight in campaign.in_flight.items()
              if flight.pin is not None}
    document = campaign_to_json(replace(
        campaign, unpinnable={}, in_flight=pinned, accepted_unpinnable=max(
            campaign.accepted_unpinnable, len(campaign.in_flight) - len(pinned))))
    del document['unpinnable']
    return document


def campaign_to_json(campaign: Campaign) -> Dict[str, Any]:
    holds = campaign.holds
    document: Dict[str, Any] = {name: getattr(campaign, name) for name in _PLAIN + _LATER}
    document.update({
        'phase': campaign.phase.value, 'acknowledged': list(campaign.acknowledged),
        'undersized_pgs': list(campaign.undersized_pgs), 'draining': list(campaign.draining),
        'change': None if campaign.change is None else change_to_json(campaign.change),
        'back': None if campaign.back is None else change_to_json(campaign.back),
        'undone': None if campaign.undone is None else change_to_json(campaign.undone),
        'unpinnable': unpinnable_to_json(campaign.unpinnable),
        'arrivals': progress_to_json(campaign.arrivals),
        'flown': flown_to_json(campaign.arrivals),
        'limits': limits_to_json(campaign.limits), 'settings': dict(campaign.settings),
        'pace': pace_to_json(campaign.pace), 'stalls': stalls_to_json(campaign.stalls),
        'copying': copying_to_json(campaign.copying),
        'pinning': _grouped({pgid: (s.since, s.times) for pgid, s in campaign.pinning.items()}),
        'in_flight': {pgid: _flight_to_json(f) for pgid, f in campaign.in_flight.items()},
        'holds': {'flags': dict(holds.flags),
                  'options': {k: _held_to_json(v) for k, v in holds.options.items()},
                  'autoscale': {str(k): _held_to_json(v) for k, v in holds.autoscale.items()},
                  'mon': {k: _held_to_json(v) for k, v in holds.mon.items()},
                  'given_up': list(holds.given_up), 'returning': list(holds.returning)}})
    return document


def campaign_from_json(raw: Mapping[str, Any]) -> Campaign:
    """Raises KeyError, TypeError or ValueError on an invalid document."""
    holds = raw['holds']
    campaign = Campaign(id=raw['id'], phase=Phase(raw['phase']), started=raw['started'])
    return checked(replace(
        campaign, **{name: raw[name] for name in _PLAIN},
        **{name: raw[name] for name in _LATER if name in raw},
        change=None if raw['change'] is None else change_from_json(raw['change']),
        back=None if raw['back'] is None else change_from_json(raw['back']),
        undone=None if raw['undone'] is None else change_from_json(raw['undone']),
        unpinnable=unpinnable_from_json(raw.get('unpinnable', ())),
        acknowledged=tuple(raw['acknowledged']),
        # Documents of earlier versions lack `undersized_pgs`, `draining` and `flown`.
        undersized_pgs=tuple(raw.get('undersized_pgs', ())),
        draining=tuple(map(int, raw.get('draining', ()))),
        arrivals=progress_from_json(raw['arrivals'], raw.get('flown', (0.0, 0.0))),
        limits=limits_from_json(raw['limits']), settings=dict(raw['settings']),
        pace=pace_from_json(raw['pace']), stalls=stalls_from_json(raw['stalls']),
        copying=copying_from_json(raw['copying']),
        pinning={pgid: Sent(*sent) for pgid, sent in _ungrouped(raw['pinning']).items()},
        in_flight={pgid: _flight_from_json(f) for pgid, f in raw['in_flight'].items()},
        holds=Holds(dict(holds['flags']),
                    {k: _held_from_json(v) for k, v in holds['options'].items()},
                    {int(k): _held_from_json(v) for k, v in holds['autoscale'].items()},
                    {k: _held_from_json(v) for k, v in holds['mon'].items()},
                    tuple(holds['given_up']), tuple(holds['returning']))))


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
