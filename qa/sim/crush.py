# SPDX-License-Identifier: LGPL-2.1-or-later
"""Racks, hosts and OSDs, and where a rule over hosts or racks places PGs: straw2 draws, in numpy.

Not Ceph's own hash, but its properties: each position of a PG is drawn by weight, and new weights
move as little as possible.
"""

from dataclasses import dataclass
from typing import Any, Dict, List

import numpy as np

#: PGs that are placed at a time: their arrays fit into the cache of a CPU.
CHUNK = 8192
#: Times that a position is drawn anew if its host is taken, as choose_total_tries.
TRIES = 50
WEIGHT_UNIT = 0x10000


@dataclass(frozen=True)
class Tree:
    """`racks` racks of equal size; hosts of equal size in each."""
    osds: int
    osds_per_host: int
    hosts_per_rack: int
    #: Failure domain of the rule: host or rack.
    domain: str = 'host'

    @property
    def hosts(self) -> int:
        return -(-self.osds // self.osds_per_host)

    @property
    def racks(self) -> int:
        return -(-self.hosts // self.hosts_per_rack)

    def host(self, osd: int) -> int:
        return osd // self.osds_per_host

    def rack(self, osd: int) -> int:
        return self.host(osd) // self.hosts_per_rack

    def domain_of(self, osd: int) -> int:
        """The failure domain of an OSD."""
        return osd // self.osds_per_domain

    @property
    def osds_per_domain(self) -> int:
        return self.osds_per_host * (self.hosts_per_rack if self.domain == 'rack' else 1)

    def place(self, pgs: np.ndarray, size: int, weights: np.ndarray) -> np.ndarray:
        """The raw sets of PGs by number, one row each; `weights` by OSD."""
        padded = np.zeros(self.racks * self.hosts_per_rack * self.osds_per_host)
        padded[:self.osds] = weights
        below = padded.reshape(self.racks, self.hosts_per_rack, self.osds_per_host)
        hosts = self.osds_per_domain // self.osds_per_host
        return np.concatenate([
            _placed(pgs[begin:begin + CHUNK].astype(np.uint64), size, below, hosts)
            for begin in range(0, len(pgs), CHUNK)] or [np.zeros((0, size), dtype=np.int32)])

    def dump(self, weights: np.ndarray) -> Dict[str, Any]:
        """As ``ceph osd crush dump``."""
        units = [int(weight * WEIGHT_UNIT) for weight in weights]
        hosts = [_bucket(-100 - host, f'h{host}', 1, 'host', range(
            host * self.osds_per_host, min(self.osds, (host + 1) * self.osds_per_host)), units)
            for host in range(self.hosts)]
        racks = [_bucket(-100000 - rack, f'r{rack}', 3, 'rack', [-100 - host for host in range(
            rack * self.hosts_per_rack, min(self.hosts, (rack + 1) * self.hosts_per_rack))])
            for rack in range(self.racks)]
        root = _bucket(-1, 'default', 11, 'root', [bucket['id'] for bucket in racks])
        return {'buckets': [root, *racks, *hosts],
                'types': [{'type_id': number, 'name': name} for number, name in (
                    (0, 'osd'), (1, 'host'), (3, 'rack'), (11, 'root'))],
                'tunables': {},
                'rules': [{'rule_id': 0, 'rule_name': 'replicated', 'type': 1, 'steps': [
                    {'op': 'take', 'item': -1, 'item_name': 'default'},
                    {'op': 'chooseleaf_firstn', 'num': 0, 'type': self.domain}, {'op': 'emit'}]}]}


def _bucket(number: int, name: str, type_id: int, type_name: str, items: Any,
            units: List[int] = []) -> Dict[str, Any]:
    return {'id': number, 'name': name, 'type_id': type_id, 'type_name': type_name,
            'items': [{'id': item, 'weight': units[item] if units else WEIGHT_UNIT, 'pos': 0}
                      for item in items]}


def _placed(pgs: np.ndarray, size: int, below: np.ndarray, hosts: int) -> np.ndarray:
    """`below`: weights by rack, host and OSD; `hosts`: of a failure domain."""
    found = np.full((len(pgs), size), -1, dtype=np.int64)
    domains = np.full((len(pgs), size), -1, dtype=np.int64)
    for position in range(size):
        left = np.arange(len(pgs))
        for attempt in range(TRIES):
            host, osd = _drawn(pgs[left], position + size * attempt, below)
            domain = host // hosts
            fits = (domains[left] != domain[:, None]).all(axis=1)
            domains[left[fits], position], found[left[fits], position] = domain[fits], osd[fits]
            left = left[~fits]
            if not len(left):
                break
    return found.astype(np.int32)


def _drawn(pgs: np.ndarray, draw: int, below: np.ndarray) -> Any:
    """Host and OSD of one draw for each PG."""
    racks, per_rack, per_host = below.shape
    by_host = below.sum(axis=2)
    rack = _best(pgs, draw, np.arange(racks)[None, :], by_host.sum(axis=1)[None, :], 1)
    host = rack * per_rack + _best(pgs, draw, rack[:, None] * per_rack + np.arange(per_rack),
                                   by_host[rack], 2)
    osd = host * per_host + _best(pgs, draw, host[:, None] * per_host + np.arange(per_host),
                                  below.reshape(-1, per_host)[host], 3)
    return host, osd


def _best(pgs: np.ndarray, draw: int, items: np.ndarray, weights: np.ndarray,
          level: int) -> np.ndarray:
    """The item of the shortest straw: -ln(u) / weight."""
    straws = -np.log(_uniform(pgs[:, None], items, draw * 4 + level))
    with np.errstate(divide='ignore', invalid='ignore'):
        straws = np.where(weights > 0, straws / weights, np.inf)
    return np.asarray(straws.argmin(axis=1))


def _uniform(pgs: np.ndarray, items: np.ndarray, draw: int) -> np.ndarray:
    """In (0, 1], by splitmix64 of all three."""
    mixed = (pgs * np.uint64(0x9E3779B97F4A7C15) ^ items.astype(np.uint64)
             * np.uint64(0xD1B54A32D192ED03) ^ np.uint64(draw * 0x2545F4914F6CDD1D & (1 << 64) - 1))
    mixed = (mixed ^ mixed >> np.uint64(30)) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ mixed >> np.uint64(27)) * np.uint64(0x94D049BB133111EB)
    mixed = mixed ^ mixed >> np.uint64(31)
    return ((mixed >> np.uint64(40)).astype(np.float32) + np.float32(1)) / np.float32(1 << 24)
