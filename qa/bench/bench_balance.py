#!/usr/bin/env python3
# SPDX-License-Identifier: LGPL-2.1-or-later
"""Balanced end states of expansions: perfguard's planner against CRUSH's move and the balancer.

    PYTHONPATH=src/pybind/mgr:. /usr/bin/python3 -m qa.bench.bench_balance

For each case, osdmaptool places the PGs before and after some hosts are added. Stock is what Ceph
does: all PGs go where CRUSH wants them, then the balancer (osdmaptool --upmap, deviation 1) moves
what is still uneven. Shards moved are given as multiples of the least that any balanced end state
needs; times of the planner as multiples of osdmaptool's for placing all PGs, and for balancing.
"""
import argparse
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Dict, List, NamedTuple, Sequence, Tuple

from perfguard.cluster.types import Osd, OsdSet, Pool, UpmapEntry
from perfguard.tests.fakes.crushmaps import Map, place
from perfguard.tests.fakes.osdmaps import OsdMapFile
from perfguard.upmap.balance import Balance, PlacedPg, balance
from perfguard.upmap.semantics import apply_entry

#: Goals: shards moved as a multiple of the least, and distance from the ideal in PGs.
MOVED_GOAL, DEVIATION_GOAL = 1.05, 1.0
#: The planner's seconds at most, as multiples of osdmaptool's for placing the same PGs.
TIME_GOAL = 10.0


class BalanceCase(NamedTuple):
    name: str
    hosts: int
    added: int
    osds_per_host: int
    size: int
    #: PGs of one OSD before they are multiplied by the size, as a power of two.
    pg_bits: int
    erasure: bool = False
    #: Whether the balancer completes it in reasonable time.
    stock: bool = True
    #: Of the rule; (): one shard in each host.
    steps: Sequence[str] = ()


#: Two shards of a PG in each of four hosts.
GROUPS = ('choose indep 4 type host', 'choose indep 2 type osd')

CASES = (BalanceCase('8 -> 12 OSDs, 3 copies', 4, 2, 2, 3, 5),
         BalanceCase('100 -> 120 OSDs, 3 copies', 10, 2, 10, 3, 5),
         BalanceCase('100 -> 120 OSDs, 4+2', 10, 2, 10, 6, 4, erasure=True),
         BalanceCase('800 -> 1024 OSDs, 3 copies', 100, 28, 8, 3, 7, stock=False),
         BalanceCase('800 -> 1024 OSDs, 4+2', 100, 28, 8, 6, 6, erasure=True, stock=False),
         BalanceCase('200 -> 220 OSDs, 6+2 by twos', 20, 2, 10, 8, 4, True, False, GROUPS),
         BalanceCase('800 -> 1024 OSDs, 6+2 by twos', 100, 28, 8, 8, 5, True, False, GROUPS))


class Result(NamedTuple):
    case: BalanceCase
    pgs: int
    least: int
    moved: int
    deviation: float
    crush_moved: int
    #: Shards of both steps, and the distance after them; None where stock was left out.
    stock: Tuple[int, float]
    seconds: float
    placing_seconds: float
    stock_seconds: float


def racks(case: BalanceCase, hosts: int) -> List[List[Dict[int, float]]]:
    per = case.osds_per_host
    return [[{osd: 1.0 for osd in range(host * per, (host + 1) * per)} for host in range(hosts)]]


def shards(case: BalanceCase, here: OsdSet, there: OsdSet) -> int:
    if case.erasure:
        return sum(a != b for a, b in zip(here, there))
    return len(set(there) - set(here))


def deviation(sets: Sequence[OsdSet], result: Balance) -> float:
    found = Counter(osd for osds in sets for osd in osds)
    return max(abs(found[osd] - ideal) for osd, ideal in result.targets.ideal.items())


def measure(case: BalanceCase, directory: Path) -> Result:
    steps = case.steps or (
        'chooseleaf %s 0 type host' % ('indep' if case.erasure else 'firstn'),)
    new = Map(racks(case, case.hosts + case.added), steps)
    osdmap = OsdMapFile(directory, (case.hosts + case.added) * case.osds_per_host, case.pg_bits,
                        case.size)
    here = osdmap.place(Map(racks(case, case.hosts), steps))
    begin = time.perf_counter()
    there = osdmap.place(new)
    placing_seconds = time.perf_counter() - begin
    crush, _ = place(new, case.size, 1, directory)
    pool = Pool(1, 'p', case.erasure, case.size, 2, 0, len(here), len(here), len(here))
    osds = {osd: Osd(osd, True, 1.0) for osd in new.osds}
    pgs = [PlacedPg(pgid, here[pgid], there[pgid]) for pgid in here]
    begin = time.perf_counter()
    result = balance(pool, pgs, crush, osds)
    seconds = time.perf_counter() - begin
    for pgid, final in result.finals.items():
        assert crush.violation(0, case.size, final) is None, (pgid, final)
    moved = sum(shards(case, here[pgid], final) for pgid, final in result.finals.items())
    crush_moved = sum(shards(case, here[pgid], there[pgid]) for pgid in here)
    stock, stock_seconds = (0, 0.0), 0.0
    if case.stock:
        begin = time.perf_counter()
        entries = osdmap.balance()
        stock_seconds = time.perf_counter() - begin
        ends = {pgid: apply_entry(raw, entries.get(pgid, UpmapEntry()), ())
                for pgid, raw in there.items()}
        again = sum(shards(case, there[pgid], ends[pgid]) for pgid in there)
        stock = crush_moved + again, deviation(list(ends.values()), result)
    return Result(case, len(here), result.least, moved, result.deviation, crush_moved, stock,
                  seconds, placing_seconds, stock_seconds)


def report(results: Sequence[Result]) -> int:
    print('%-28s %7s %8s %9s %9s %9s %6s %6s %7s %7s %7s' % (
        '', 'PGs', 'least', 'perfguard', 'CRUSH', 'stock', 'dev.', 'stock', 'seconds', '/place',
        '/stock'))
    for found in results:
        stock, compared = ('%.3f' % (found.stock[0] / found.least), '%.2f' % found.stock[1]), '-'
        if not found.case.stock:
            stock = '-', '-'
        else:
            compared = '%.3f' % (found.seconds / found.stock_seconds)
        print('%-28s %7d %8d %9.3f %9.3f %9s %6.2f %6s %7.2f %7.2f %7s' % (
            found.case.name, found.pgs, found.least, found.moved / found.least,
            found.crush_moved / found.least, stock[0], found.deviation, stock[1], found.seconds,
            found.seconds / found.placing_seconds, compared))
    print('goals: moved at most %.2f, deviation below %.0f, planner at most %.0f x placing' % (
        MOVED_GOAL, DEVIATION_GOAL, TIME_GOAL))
    return 0 if all(found.moved <= MOVED_GOAL * found.least and found.deviation < DEVIATION_GOAL
                    and found.seconds <= TIME_GOAL * found.placing_seconds
                    for found in results) else 1


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('--cases', type=int, default=len(CASES), help='only the first so many')
    args = parser.parse_args()
    results = []
    for case in CASES[:args.cases]:
        with tempfile.TemporaryDirectory() as name:
            results.append(measure(case, Path(name)))
    return report(results)


if __name__ == '__main__':
    sys.exit(main())
