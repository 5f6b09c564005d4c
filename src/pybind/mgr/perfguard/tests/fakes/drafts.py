# SPDX-License-Identifier: LGPL-2.1-or-later
"""Drafts of single turns, without a cluster: a small OSDMap, and what differs from it."""
from dataclasses import replace
from typing import Any, Dict, Iterable, List, Mapping, Optional, Tuple

from perfguard.cluster.crush import CrushRules
from perfguard.cluster.types import (NO_ENTRY, Osd, OsdMap, OsdSet, PgCounts, Placement, Pool,
                                     Signals, UpmapEntry, pool_of)
from perfguard.observation import Observation, Settings
from perfguard.options import DEFAULTS, Options
from perfguard.rebalance.campaign import Campaign
from perfguard.rebalance.draft import Draft
from perfguard.rebalance.moves import Move
from perfguard.rebalance.types import PinRecord

from ..rebalance.test_orders import crush

NOW = 1000.0
#: Of 3 copies, and of an erasure code with 3 shards.
POOLS = {1: Pool(1, 'p', False, 3, 2, 0, 8, 8, 8),
         2: Pool(2, 'e', True, 3, 2, 0, 8, 8, 8, data_shards=2)}
#: OSDs 0 to 7, each of them on a host of its own.
OSDS = {osd: Osd(osd, True, 1.0) for osd in range(8)}
CRUSH = crush(dict.fromkeys(OSDS, 1.0), hosts=8)
#: CRUSH places PGs on the OSDs 3, 1 and 2, and a pin keeps them on 0, 1 and 2.
HERE: OsdSet = (0, 1, 2)
THERE: OsdSet = (3, 1, 2)
PINNED = UpmapEntry(((3, 0),))
PIN = PinRecord(NO_ENTRY, PINNED)
OPTIONS = replace(DEFAULTS, readback_timeout=6.0)


def _bucket(number: int, name: str, kind: int, items: Dict[int, int]) -> Dict[str, Any]:
    return {'id': number, 'name': name, 'type_id': kind,
            'items': [{'id': item, 'weight': weight * 65536} for item, weight in items.items()]}


def _take(root: int, number: int) -> Any:
    return [{'op': 'take', 'item': root}, {'op': 'choose_firstn', 'num': number, 'type': 'host'},
            {'op': 'choose_firstn', 'num': 1, 'type': 'osd'}, {'op': 'emit'}]


#: With a rule under which the mons cancel upmaps: two copies are on OSDs 0 to 3, below one root,
#: and one on OSDs 4 to 7, below another.
HYBRID = CrushRules.from_dump({
    'types': [{'type_id': 0, 'name': 'osd'}, {'type_id': 1, 'name': 'host'},
              {'type_id': 11, 'name': 'root'}],
    'buckets': [*(_bucket(-10 - osd, 'h%d' % osd, 1, {osd: 1}) for osd in OSDS),
                _bucket(-1, 'a', 11, {-10 - osd: 1 for osd in range(4)}),
                _bucket(-2, 'b', 11, {-10 - osd: 1 for osd in range(4, 8)})],
    'rules': [{'rule_id': 0, 'rule_name': 'r', 'steps': _take(-1, 2) + _take(-2, 1)}]})


def draft_of(campaign: Campaign, pins: Mapping[str, PinRecord] = {}, *,
             up: Mapping[str, OsdSet] = {}, acting: Mapping[str, OsdSet] = {},
             temp: Optional[Iterable[str]] = None, entries: Mapping[str, UpmapEntry] = {},
             osds: Mapping[int, Osd] = {}, pools: Mapping[int, Pool] = {},
             without: Iterable[object] = (), flags: Iterable[str] = (),
             moves: Mapping[str, Move] = {}, options: Options = OPTIONS, **seen: Any) -> Draft:
    """PGs are in place on HERE, except as `up` and `acting` say; `temp`: those that the OSDMap
    shows remapped, if these are not the ones whose acting set differs. `without`: pools, OSDs and
    placements of PGs, by id, that do not exist. `seen`: fields of the observation."""
    sets = {pgid: Placement(up.get(pgid, HERE), acting.get(pgid, HERE))
            for pgid in sorted({*up, *acting, *pins, *entries, *(temp or ()),
                                *campaign.flights.in_flight})}
    remapped = [pgid for pgid, place in sets.items() if place.up != place.acting] \
        if temp is None else temp
    osdmap = OsdMap(
        10, frozenset(flags),
        {pool_id: pool for pool_id, pool in {**POOLS, **pools}.items()
         if 'pool %d' % pool_id not in without},
        {osd: row for osd, row in {**OSDS, **osds}.items() if osd not in without},
        {pgid: entry.items for pgid, entry in entries.items() if entry.items},
        {pgid: entry.vector for pgid, entry in entries.items() if entry.vector is not None},
        {pgid: sets[pgid].acting for pgid in remapped})
    observation = Observation(
        NOW, Signals(PgCounts(total=16), {pool: PgCounts() for pool in osdmap.pools}),
        Settings(osdmap, None),
        lambda pgid: None if pgid in without or pool_of(pgid) not in osdmap.pools
        else sets.get(pgid, Placement(HERE, HERE)), CRUSH)
    return Draft.of(campaign, pins, moves, replace(observation, **seen), options)


def events_of(draft: Draft) -> List[Tuple[str, str]]:
    """Kinds and subjects of its events."""
    return [(event.kind, event.what) for event in draft.events]
