# SPDX-License-Identifier: LGPL-2.1-or-later
"""How many PGs may be in flight where the operator leaves that to perfguard."""
from dataclasses import replace
from typing import Any, Dict, List

import pytest

from perfguard.cluster.crush import CrushRules
from perfguard.cluster.types import OsdMap, Pool
from perfguard.options import DEFAULTS
from perfguard.rebalance.throttle import FlightCap, pgs_in_flight

from ..fakes.cluster import FakeCluster


def crush(racks: int, hosts: int, osds: int, empty: int = 0, domain: int = 1) -> CrushRules:
    """So many hosts in each rack, OSDs in each host, and `empty` OSDs without weight in all.

    `domain`: the type that the rule spreads over, 0 OSDs, 1 hosts, 2 racks.
    """
    buckets: List[Dict[str, Any]] = []
    osd = 0
    for rack in range(racks):
        for host in range(hosts):
            items = list(range(osd, osd + osds))
            osd += osds
            buckets.append(bucket(-1000 - len(buckets), 1, 'h%d-%d' % (rack, host), items,
                                  [0 if item < empty else 0x10000 for item in items]))
    rack_ids = [-10 - rack for rack in range(racks)]
    per_rack = [buckets[rack * hosts:(rack + 1) * hosts] for rack in range(racks)]
    buckets += [bucket(id_, 2, 'r%d' % -id_, [host['id'] for host in below],
                       [0x10000 * osds] * hosts) for id_, below in zip(rack_ids, per_rack)]
    buckets.append(bucket(-1, 3, 'default', rack_ids, [0x10000 * osds * hosts] * racks))
    choose = {'op': 'chooseleaf_firstn' if domain else 'choose_firstn', 'num': 0,
              'type': ('osd', 'host', 'rack')[domain]}
    return CrushRules.from_dump({
        'devices': [{'id': id_, 'name': 'osd.%d' % id_} for id_ in range(osd)],
        'types': [{'type_id': id_, 'name': name}
                  for id_, name in enumerate(('osd', 'host', 'rack', 'root'))],
        'buckets': buckets,
        'rules': [{'rule_id': 0, 'rule_name': 'r', 'type': 1, 'steps': [
            {'op': 'take', 'item': -1, 'item_name': 'default'}, choose, {'op': 'emit'}]}]})


def bucket(id_: int, type_id: int, name: str, items: List[int],
           weights: List[int]) -> Dict[str, Any]:
    return {'id': id_, 'name': name, 'type_id': type_id, 'alg': 'straw2', 'weight': sum(weights),
            'items': [{'id': item, 'weight': weight, 'pos': pos}
                      for pos, (item, weight) in enumerate(zip(items, weights))]}


def osdmap(*rules: int) -> OsdMap:
    seen = FakeCluster().map_view().osdmap
    pool = seen.pools[min(seen.pools)]
    pools: Dict[int, Pool] = {id_: replace(pool, id=id_, crush_rule=rule)
                              for id_, rule in enumerate(rules or (0,), 1)}
    return replace(seen, pools=pools)


@pytest.mark.parametrize('racks, hosts, osds, domain, expected', [
    (1, 6, 2, 1, 32),       # a small cluster: its other caps hold
    (1, 100, 10, 1, 400),   # 100 hosts of 8, each PG in two
    (1, 40, 10, 1, 160),
    (10, 10, 10, 2, 80),    # ten racks of 16, each PG in two
    (8, 5, 10, 2, 64),
    (10, 10, 10, 0, 400),   # OSDs as failure domains have caps of their own
    (1, 100, 1, 1, 200),    # 100 OSDs of 2
])
def test_the_caps_of_the_whole_cluster(racks: int, hosts: int, osds: int, domain: int,
                                       expected: int) -> None:
    assert pgs_in_flight(DEFAULTS, osdmap(), crush(racks, hosts, osds, domain=domain)) == expected


def test_other_caps_count_and_empty_osds_do_not() -> None:
    rules = crush(1, 100, 1)
    assert pgs_in_flight(replace(DEFAULTS, max_backfills_target=1), osdmap(), rules) == 100
    assert pgs_in_flight(DEFAULTS, osdmap(), crush(1, 100, 1, empty=40)) == 120
    assert pgs_in_flight(DEFAULTS, replace(osdmap(), pools={}), rules) == 200
    assert pgs_in_flight(DEFAULTS, osdmap(7), rules) == 200, 'no such rule'


def test_it_is_worked_out_once_and_never_where_the_operator_says() -> None:
    room, rules = FlightCap(), crush(1, 100, 10)
    assert room.resolve(DEFAULTS, osdmap(), rules, 1).max_pgs_in_flight == 400
    smaller = crush(1, 50, 10)
    assert room.resolve(DEFAULTS, osdmap(), smaller, 1).max_pgs_in_flight == 400
    assert room.resolve(DEFAULTS, osdmap(), smaller, 2).max_pgs_in_flight == 200
    host = replace(DEFAULTS, max_backfills_host=4)
    assert room.resolve(host, osdmap(), smaller, 2).max_pgs_in_flight == 100
    seven = replace(DEFAULTS, max_pgs_in_flight=7)
    assert room.resolve(seven, osdmap(), rules, 2) == seven
