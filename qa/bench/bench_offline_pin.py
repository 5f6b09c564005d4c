#!/usr/bin/env python3
# SPDX-License-Identifier: LGPL-2.1-or-later
"""The cost of perfguard-plan pin on a large cluster, as a multiple of reading its input.

Generates dumps of a synthetic cluster, then runs two processes in turn (ABBA): one that only
json.loads the dumps, and ``python3 -m perfguard.offline pin``. Prints wall time and peak memory
of both and their ratios, medians over the rounds.
"""
import argparse
import json
import os
import random
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Dict, List, NamedTuple, Sequence, Tuple

MODULES = Path(__file__).resolve().parents[2] / 'src' / 'pybind' / 'mgr'
#: Goals: the whole process against merely reading the input.
TIME_GOAL, MEMORY_GOAL = 3.0, 2.0
LOAD_ONLY = 'import json, sys\nfor path in sys.argv[1:]:\n    json.load(open(path))\n'


class PinCost(NamedTuple):
    seconds: float
    peak_kib: int


class DumpedCluster:
    """Hosts of ten OSDs; half of the PGs replicated (3), half erasure coded (4+2)."""

    OSDS_PER_HOST = 10

    def __init__(self, pgs: int, remapped: float, seed: int) -> None:
        self.rng = random.Random(seed)
        self.osds = max(120, pgs * 9 // 2 // 100 // self.OSDS_PER_HOST * self.OSDS_PER_HOST)
        self.pools = ((1, 3, pgs // 2), (2, 6, pgs - pgs // 2))
        self.rows: List[Dict[str, Any]] = []
        self.items: List[Dict[str, Any]] = []
        self.temps: List[Dict[str, Any]] = []
        for pool, size, pg_num in self.pools:
            for seed_of_pg in range(pg_num):
                self._add_pg('%d.%x' % (pool, seed_of_pg), size, remapped)

    def _osds_of(self, count: int, beside: Sequence[int]) -> List[int]:
        """OSDs of different hosts, none of which has an OSD of ``beside``."""
        found: List[int] = []
        taken = {osd // self.OSDS_PER_HOST for osd in beside}
        while len(found) < count:
            osd = self.rng.randrange(self.osds)
            if osd // self.OSDS_PER_HOST not in taken:
                taken.add(osd // self.OSDS_PER_HOST)
                found.append(osd)
        return found

    def _add_pg(self, pgid: str, size: int, remapped: float) -> None:
        up = self._osds_of(size, ())
        acting = list(up)
        state = 'active+clean'
        if self.rng.random() < .1:
            [source] = self._osds_of(1, up)
            self.items.append({'pgid': pgid, 'mappings': [{'from': source, 'to': up[0]}]})
        if self.rng.random() < remapped:
            for old in self.rng.sample(range(size), self.rng.choice((1, 1, 1, 2, 3))):
                [acting[old]] = self._osds_of(1, up + acting)
            if self.rng.random() < .05:
                acting[0], acting[1] = acting[1], acting[0]
            state = 'active+remapped+backfill_wait'
            self.temps.append({'pgid': pgid, 'osds': acting})
        self.rows.append({'pgid': pgid, 'state': state, 'up': up, 'up_primary': up[0],
                          'acting': acting, 'acting_primary': acting[0]})

    def osd_dump(self) -> Dict[str, Any]:
        pools = [{'pool': pool, 'pool_name': 'pool%d' % pool, 'type': 1 if size == 3 else 3,
                  'size': size, 'min_size': size - 1, 'crush_rule': pool, 'pg_num': pg_num,
                  'pg_num_target': pg_num, 'pg_num_pending': pg_num,
                  'pg_autoscale_mode': 'off', 'erasure_code_profile': 'p'}
                 for pool, size, pg_num in self.pools]
        address = {'addrvec': [{'type': 'v2', 'addr': '192.168.1.1:6800', 'nonce': 123456789}]}
        osds = [{'osd': osd, 'uuid': '%032x' % osd, 'up': 1, 'in': 1, 'weight': 1.0,
                 'primary_affinity': 1.0, 'up_from': 1234, 'up_thru': 1234, 'public_addrs': address,
                 'cluster_addrs': address, 'heartbeat_back_addrs': address,
                 'heartbeat_front_addrs': address, 'state': ['exists', 'up']}
                for osd in range(self.osds)]
        return {'epoch': 4321, 'fsid': '0' * 36, 'flags_set': ['norebalance'], 'pools': pools,
                'osds': osds, 'pg_upmap': [], 'pg_upmap_items': self.items,
                'pg_temp': self.temps, 'erasure_code_profiles': {'p': {'k': '4', 'm': '2'}}}

    def crush_dump(self) -> Dict[str, Any]:
        per_host = self.OSDS_PER_HOST
        hosts = [{'id': -2 - host, 'name': 'host%d' % host, 'type_id': 1, 'type_name': 'host',
                  'items': [{'id': osd, 'weight': 65536, 'pos': 0}
                            for osd in range(host * per_host, (host + 1) * per_host)]}
                 for host in range(self.osds // per_host)]
        root = {'id': -1, 'name': 'default', 'type_id': 11, 'type_name': 'root',
                'items': [{'id': host['id'], 'weight': 65536, 'pos': 0} for host in hosts]}
        rules = [{'rule_id': pool, 'rule_name': 'rule%d' % pool, 'steps': [
            {'op': 'take', 'item': -1, 'item_name': 'default'},
            {'op': 'chooseleaf_firstn' if size == 3 else 'chooseleaf_indep', 'num': 0,
             'type': 'host'}, {'op': 'emit'}]} for pool, size, _ in self.pools]
        return {'buckets': [root, *hosts], 'rules': rules,
                'types': [{'type_id': 0, 'name': 'osd'}, {'type_id': 1, 'name': 'host'},
                          {'type_id': 11, 'name': 'root'}]}

    def write(self, directory: Path) -> List[Path]:
        paths = []
        for name, dump in (('osd', self.osd_dump()), ('pg', {'pg_stats': self.rows}),
                           ('crush', self.crush_dump())):
            paths.append(directory / ('%s.json' % name))
            with open(paths[-1], 'w') as f:
                json.dump(dump, f, separators=(',', ':'))
        return paths


def measure(argv: List[str], output: Path) -> PinCost:
    """Wall time and peak resident memory of one process, from start to end.

    It is spawned: a forked child counts the memory of this process as its own peak.
    """
    environment = {**os.environ, 'PYTHONPATH': str(MODULES)}
    started = time.perf_counter()
    pid = os.posix_spawn(argv[0], argv, environment, file_actions=[
        (os.POSIX_SPAWN_OPEN, 1, str(output), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)])
    _, status, usage = os.wait4(pid, 0)
    seconds = time.perf_counter() - started
    if status:
        raise SystemExit('%s: wait status %d' % (' '.join(argv[:4]), status))
    return PinCost(seconds, usage.ru_maxrss)


def compare(paths: Sequence[Path], rounds: int, plan: Path) -> Tuple[List[PinCost], List[PinCost]]:
    osd, pg, crush = map(str, paths)
    load_only = [sys.executable, '-c', LOAD_ONLY, osd, pg, crush]
    pin = [sys.executable, '-m', 'perfguard.offline', 'pin', '--osd-dump', osd, '--pg-dump', pg,
           '--crush-dump', crush, '--format', 'json']
    costs: Dict[str, List[PinCost]] = {'load': [], 'pin': []}
    for round_ in range(rounds):
        arms = [('load', load_only, Path(os.devnull)), ('pin', pin, plan)]
        for name, argv, output in arms if round_ % 2 == 0 else reversed(arms):
            costs[name].append(measure(argv, output))
    return costs['load'], costs['pin']


def median(costs: Sequence[PinCost]) -> PinCost:
    return PinCost(statistics.median(c.seconds for c in costs),
                   int(statistics.median(c.peak_kib for c in costs)))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition('\n')[0])
    parser.add_argument('--pgs', type=int, default=262144)
    parser.add_argument('--remapped', type=float, default=.28, help='share of the PGs')
    parser.add_argument('--rounds', type=int, default=4)
    parser.add_argument('--seed', type=int, default=1)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        generate(args, directory)
        paths = [directory / ('%s.json' % kind) for kind in ('osd', 'pg', 'crush')]
        load_costs, pin_costs = compare(paths, args.rounds, directory / 'plan.json')
        with open(directory / 'plan.json') as f:
            plan = json.load(f)
        megabytes = sum(path.stat().st_size for path in paths) / 1e6
    print('%d PGs, %d pinned with items, %d with pg_upmap, %d unpinnable; %.1f MB of JSON' % (
        args.pgs, len(plan['items']), len(plan['pg_upmap']), len(plan['unpinnable']), megabytes))
    return report(median(load_costs), median(pin_costs), args.rounds)


def generate(args: argparse.Namespace, directory: Path) -> None:
    """In a separate process, which frees its memory before the measurement begins."""
    pid = os.fork()
    if pid == 0:
        DumpedCluster(args.pgs, args.remapped, args.seed).write(directory)
        os._exit(0)
    if os.waitpid(pid, 0)[1]:
        raise SystemExit('the dumps could not be generated')


def report(load: PinCost, pin: PinCost, rounds: int) -> int:
    time_ratio, memory_ratio = pin.seconds / load.seconds, pin.peak_kib / load.peak_kib
    print('%-22s %10s %10s   (median of %d)' % ('', 'seconds', 'peak MiB', rounds))
    print('%-22s %10.2f %10.1f' % ('json.load of the dumps', load.seconds, load.peak_kib / 1024))
    print('%-22s %10.2f %10.1f' % ('perfguard.offline pin', pin.seconds, pin.peak_kib / 1024))
    print('%-22s %10.2f %10.2f' % ('ratio', time_ratio, memory_ratio))
    print('%-22s %10.2f %10.2f' % ('goal: at most', TIME_GOAL, MEMORY_GOAL))
    return 0 if time_ratio <= TIME_GOAL and memory_ratio <= MEMORY_GOAL else 1


if __name__ == '__main__':
    sys.exit(main())
