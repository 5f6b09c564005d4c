# SPDX-License-Identifier: LGPL-2.1-or-later
"""The pins of a campaign, and what each turn asks of all of them.

There may be 100,000 pins, and turns are a second apart. So everything that depends only on the pins
is kept from turn to turn, and a new OSDMap is compared with all pins without a Python statement for
each of them.
"""
from itertools import compress, repeat
from operator import is_not, ne
from typing import AbstractSet, Container, Dict, Iterator, List, Mapping, TypeVar

from ..cluster.types import Items, OsdMap, OsdSet, pool_of, seed_of
from .types import PinRecord

Value = TypeVar('Value')


class PinIndex(Mapping[str, PinRecord]):
    """Pins by PG. The other fields are derived from them."""

    def __init__(self, pins: Mapping[str, PinRecord] = {}) -> None:
        self._pins: Dict[str, PinRecord] = {}
        #: The upmap entries of the pins. `_differing_items` replaces equal items by the objects of
        #: the OSDMap, which is faster to compare.
        self._items: Dict[str, Items] = {}
        #: The vectors of the PGs that are pinned by one.
        self._vectors: Dict[str, OsdSet] = {}
        #: Pool id -> PG -> seed.
        self._seeds: Dict[int, Dict[str, int]] = {}
        #: Pool id -> the highest seed of a PG that was ever pinned.
        self._highest: Dict[int, int] = {}
        #: PGs whose pins become ordinary upmaps (PinRecord.stays), and those without a goal.
        self._staying: Dict[str, None] = {}
        self._without_goal: Dict[str, None] = {}
        #: OSD -> PGs whose release, or rollback, may lead to it by an upmap.
        self._ahead: Dict[int, Dict[str, None]] = {}
        #: PGs whose pins were added or removed since the last `take_changed`.
        self._changed: Dict[str, None] = {}
        for pgid, pin in pins.items():
            self._put(pgid, pin)

    @classmethod
    def of(cls, pins: Mapping[str, PinRecord]) -> 'PinIndex':
        return pins if isinstance(pins, PinIndex) else cls(pins)

    def __getitem__(self, pgid: str) -> PinRecord:
        return self._pins[pgid]

    def __iter__(self) -> Iterator[str]:
        return iter(self._pins)

    def __len__(self) -> int:
        return len(self._pins)

    def __contains__(self, pgid: object) -> bool:
        return pgid in self._pins

    @property
    def staying(self) -> AbstractSet[str]:
        """PGs whose pins are to become ordinary upmaps."""
        return self._staying.keys()

    @property
    def without_goal(self) -> AbstractSet[str]:
        return self._without_goal.keys()

    @property
    def vectors(self) -> AbstractSet[str]:
        """PGs that are pinned by a vector."""
        return self._vectors.keys()

    @property
    def is_tidy(self) -> bool:
        """Whether the store contains nothing of pins that were forgotten."""
        return True

    @property
    def pools(self) -> AbstractSet[int]:
        """Ids of the pools with pins."""
        return self._seeds.keys()

    def of_pool(self, pool_id: int) -> AbstractSet[str]:
        return self._seeds.get(pool_id, {}).keys()

    def differing(self, osdmap: OsdMap) -> List[str]:
        """PGs that no longer exist, or whose upmap entry is not that of the pin."""
        items, vectors = self._items, self._vectors
        pgids = dict.fromkeys(self._differing_items(osdmap.upmap_items))
        pgids.update(dict.fromkeys(compress(vectors, map(
            ne, vectors.values(), map(osdmap.upmap_vectors.get, vectors)))))
        # PGs that are pinned by items alone, but have a vector as well.
        pgids.update(dict.fromkeys(pgid for pgid in osdmap.upmap_vectors
                                   if pgid in items and pgid not in vectors))
        # PGs that were merged, or whose pool was deleted.
        for pool_id, seeds in self._seeds.items():
            pool = osdmap.pools.get(pool_id)
            pg_num = pool.pg_num if pool is not None else 0
            if self._highest[pool_id] >= pg_num:
                pgids.update(dict.fromkeys(pgid for pgid, seed in seeds.items()
                                           if seed >= pg_num))
        return list(pgids)

    def leading_elsewhere(self, osds: Container[int]) -> List[str]:
        """PGs whose release, or rollback, leads to an OSD that is none of these."""
        return list(dict.fromkeys(pgid for osd, pgids in self._ahead.items() if osd not in osds
                                  for pgid in pgids))

    def _differing_items(self, upmap_items: Mapping[str, Items]) -> List[str]:
        """PGs whose items in an OSDMap are not those of their pins.

        From one OSDMap to the next, most items are the same objects (cluster/dumps.py), so only
        other objects are compared by value. Equal ones are kept for the next comparison.
        """
        items, nothing = self._items, repeat(())
        other_objects = list(compress(items, map(is_not, items.values(),
                                                 map(upmap_items.get, items, nothing))))
        differing = list(compress(other_objects, map(ne, map(items.__getitem__, other_objects),
                                                     map(upmap_items.get, other_objects, nothing))))
        if len(other_objects) > len(differing):
            equal = dict.fromkeys(other_objects)
            for pgid in differing:
                del equal[pgid]
            items.update(zip(equal, map(upmap_items.get, equal, nothing)))
        return differing

    def take_changed(self) -> List[str]:
        """PGs whose pins were added or removed since the last call; for one caller."""
        changed, self._changed = self._changed, {}
        return list(changed)

    def _put(self, pgid: str, pin: PinRecord) -> None:
        """Add a pin to all indexes."""
        self._drop(pgid)
        self._pins[pgid] = pin
        self._items[pgid] = pin.entry.items
        if pin.entry.vector is not None:
            self._vectors[pgid] = pin.entry.vector
        if pin.stays:
            self._staying[pgid] = None
        if pin.goal is None:
            self._without_goal[pgid] = None
        pool, seed = pool_of(pgid), seed_of(pgid)
        self._seeds.setdefault(pool, {})[pgid] = seed
        self._highest[pool] = max(seed, self._highest.get(pool, 0))
        for osd in pin.ahead:
            self._ahead.setdefault(osd, {})[pgid] = None
        self._changed[pgid] = None

    def _drop(self, pgid: str) -> bool:
        """Remove a pin from all indexes. Returns whether the PG was pinned."""
        if pgid not in self._pins:
            return False
        for osd in self._pins.pop(pgid).ahead:
            _take_out(self._ahead, osd, pgid)
        self._items.pop(pgid, None)
        self._vectors.pop(pgid, None)
        self._staying.pop(pgid, None)
        self._without_goal.pop(pgid, None)
        _take_out(self._seeds, pool_of(pgid), pgid)
        self._changed[pgid] = None
        return True


def _take_out(groups: Dict[int, Dict[str, Value]], key: int, pgid: str) -> None:
    """Remove a PG from a group, and a group without PGs."""
    del groups[key][pgid]
    if not groups[key]:
        del groups[key]
