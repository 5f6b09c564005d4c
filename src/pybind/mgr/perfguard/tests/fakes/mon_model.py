# SPDX-License-Identifier: LGPL-2.1-or-later
"""A second model of what the mon does with upmaps, for the planner's tests.

Written from the observed behaviour of Ceph, with nothing of perfguard.upmap in it: a toy cluster
with one rule, over hosts or over racks, so that a fault in the CRUSH model shows, too.
"""
from typing import Any, Dict, Iterable, List, NamedTuple, Optional, Sequence, Set, Tuple

HOLE = 2147483647


class Refused(Exception):
    """The mon answers the command with an error and changes nothing."""


class Stored(NamedTuple):
    items: List[Tuple[int, int]]
    vector: Optional[List[int]]


class ToyOsd(NamedTuple):
    host: int
    crush_weight: float = 1.0
    reweight: float = 1.0
    up: bool = True
    #: With racks the rule chooses racks, one OSD in each.
    rack: Optional[int] = None

    @property
    def domain(self) -> int:
        """Its failure domain."""
        return self.host if self.rack is None else self.rack


class ToyMon:
    """One pool, one rule (chooseleaf host or rack), and what is stored for one PG."""

    def __init__(self, osds: Dict[int, ToyOsd], size: int, raw: Sequence[int],
                 merging: bool = False) -> None:
        self.osds = osds
        self.size = size
        self.raw = list(raw)
        self.merging = merging
        self.stored = Stored([], None)
        #: OSDs by host, for what a test makes up of them.
        self.usable: Dict[int, List[int]] = {}

    def weight(self, osd: int) -> float:
        """What the mon checks each member of a set for."""
        return self.osds[osd].crush_weight * self.osds[osd].reweight if osd in self.osds else 0.0

    def is_out(self, osd: int) -> bool:
        return osd in self.osds and self.osds[osd].reweight == 0.0

    def legal(self, osds: Sequence[int]) -> bool:
        if any(self.weight(osd) == 0.0 for osd in osds):
            return False
        domains = [self.osds[osd].domain for osd in set(osds)]
        return len(domains) == len(set(domains))

    def placed(self, entry: Stored) -> List[int]:
        """The PG's set before OSDs that are down leave it."""
        result = list(self.raw)
        if entry.vector is not None:
            for osd in entry.vector:
                if self.is_out(osd):
                    return result
            result = list(entry.vector)
        for old, new in entry.items:
            if new in result or self.is_out(new):
                continue
            for position, osd in enumerate(result):
                if osd == old:
                    result[position] = new
                    break
        return result

    def up(self) -> List[int]:
        return self.placed(self.stored)

    def commit(self, items: Sequence[Tuple[int, int]] = (),
               vector: Optional[Sequence[int]] = None) -> None:
        """Both commands in one proposal, replacing what was there."""
        self._refuse(items, vector)
        self.stored = self._cleaned(Stored(list(items), None if vector is None else list(vector)))

    def put_items(self, items: Sequence[Tuple[int, int]]) -> None:
        """One command; the mon cleans when it proposes (`next_epoch`), maybe after others."""
        self._refuse(items, None)
        self.stored = Stored(list(items), self.stored.vector)

    def put_vector(self, vector: Optional[Sequence[int]]) -> None:
        self._refuse((), vector)
        self.stored = Stored(self.stored.items, None if vector is None else list(vector))

    def next_epoch(self) -> None:
        """The mon cleans with every proposal.

        Dropping a pair can leave a set that is illegal; it takes the next epoch to cancel that.
        """
        self.stored = self._cleaned(self.stored)

    def _refuse(self, items: Sequence[Tuple[int, int]], vector: Optional[Sequence[int]]) -> None:
        named: Set[int] = {osd for pair in items for osd in pair} | set(vector or ())
        if len(items) > self.size or not named - {HOLE} <= set(self.osds):
            raise Refused()

    def _cleaned(self, entry: Stored) -> Stored:
        nothing = Stored([], None)
        if self.merging or not self.legal(self.placed(entry)):
            return nothing
        if entry.vector is not None:
            if entry.vector == self.raw or len(entry.vector) != self.size:
                return nothing
        items = [pair for pair in entry.items
                 if pair[0] in self.raw and not self.is_out(pair[1])]
        if entry.items and not items:
            return nothing
        return Stored(items, entry.vector)

    def crush_dump(self) -> Dict[str, Any]:
        """The toy cluster in the form of ``ceph osd crush dump``."""
        hosts: Dict[int, List[Dict[str, int]]] = {}
        racks: Dict[int, Dict[int, None]] = {}
        for osd, toy in self.osds.items():
            hosts.setdefault(toy.host, []).append(
                {'id': osd, 'weight': int(toy.crush_weight * 65536), 'pos': 0})
            if toy.rack is not None:
                racks.setdefault(toy.rack, {})[-2 - toy.host] = None
        buckets = [{'id': -2 - host, 'name': 'h%d' % host, 'type_id': 1, 'type_name': 'host',
                    'items': items} for host, items in hosts.items()]
        top = [_bucket(-100002 - rack, 'r%d' % rack, 3, 'rack', ids)
               for rack, ids in racks.items()]
        root = _bucket(-1, 'default', 11, 'root',
                       [-100002 - rack for rack in racks] or [-2 - host for host in hosts])
        steps = [{'op': 'take', 'item': -1, 'item_name': 'default'},
                 {'op': 'chooseleaf_firstn', 'num': 0, 'type': 'rack' if racks else 'host'},
                 {'op': 'emit'}]
        return {'buckets': [root] + top + buckets,
                'types': [{'type_id': 0, 'name': 'osd'}, {'type_id': 1, 'name': 'host'},
                          {'type_id': 3, 'name': 'rack'}, {'type_id': 11, 'name': 'root'}],
                'rules': [{'rule_id': 0, 'rule_name': 'r', 'type': 1, 'steps': steps}]}


def _bucket(number: int, name: str, type_id: int, type_name: str,
            children: Iterable[int]) -> Dict[str, Any]:
    return {'id': number, 'name': name, 'type_id': type_id, 'type_name': type_name,
            'items': [{'id': child, 'weight': 65536, 'pos': 0} for child in children]}
