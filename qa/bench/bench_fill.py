#!/usr/bin/env python3
# SPDX-License-Identifier: LGPL-2.1-or-later
"""Balance by bytes: perfguard's planner against Ceph's balancer, on the same OSDMap.

    PYTHONPATH=src/pybind/mgr:. /usr/bin/python3 -m qa.bench.bench_fill --hosts 80

A mon makes an OSDMap with OSDs of two sizes and several pools on one device class; osdmaptool
places their PGs. The bytes of each PG scatter around the mean of its pool, and each OSD has
metadata of its own; the planner knows neither, only what the OSDs use in all. The table shows the
fill of the OSDs, the MAX AVAIL of the largest pool, what moves, and the time, for the state as
CRUSH places it, after the balancer (osdmaptool --upmap, repeated until it finds no more), after
perfguard, and after perfguard on top of the balancer. PERFGUARD_JJ names the placementoptimizer.py
of github.com/TheJJ/ceph-balancer, which balances the same state; it knows the bytes of each PG.
"""
import argparse
import json
import lzma
import os
import random
import re
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any, Dict, List, Mapping, NamedTuple, Sequence, Tuple

from perfguard.cluster.crush import CrushRules
from perfguard.cluster.types import Osd, OsdSet, Pool, Space, UpmapEntry, pool_of
from perfguard.rebalance.capacity import CrushAndSpace, pool_avail, rule_room
from perfguard.upmap.balance import PlacedPg
from perfguard.upmap.evening import EvenGround, EvenPool, even_out
from perfguard.upmap.semantics import apply_entry

from qa.bench.large_map import order
from qa.cluster import Cluster
from qa.cluster.connection import parse

OSDS_PER_HOST = 10
TIB = 1 << 40
#: (PGs of one OSD on average, share of the data): an object store, block devices, an index.
POOLS: Sequence[Tuple[int, float]] = ((60, 0.75), (30, 0.22), (10, 0.03))
SIZE, FILL, SCATTER, METADATA = 3, 0.6, 0.03, 0.02
DEVIATIONS = (1.0, 5.0)
_ROW = re.compile(r'^(\d+\.[0-9a-f]+)\s+raw \(\[([\d,]*)\]', re.M)
_UPMAP = re.compile(r'^ceph osd pg-upmap-items (\S+) ([\d ]+)$', re.M)

Sets = Dict[str, OsdSet]


class Scene(NamedTuple):
    crush: CrushRules
    osds: Mapping[int, Osd]
    pools: Sequence[Pool]
    raw: Sets
    #: PG -> bytes of one shard.
    sizes: Mapping[str, int]
    #: OSD -> its size, and bytes that are no shards.
    total: Mapping[int, int]
    metadata: Mapping[int, int]

    def space(self, sets: Sets) -> Dict[int, Space]:
        used: 'Counter[int]' = Counter(self.metadata)
        for pgid, osds in sets.items():
            for osd in osds:
                used[osd] += self.sizes[pgid]
        return {osd: Space(size, used[osd]) for osd, size in self.total.items()}

    def fills(self, sets: Sets) -> List[float]:
        return [row.used_bytes / row.total_bytes for row in self.space(sets).values()]

    def free(self, sets: Sets) -> int:
        """MAX AVAIL of the largest pool, as `ceph df` shows it."""
        pool, cluster = self.pools[0], CrushAndSpace(self.crush, self.space(sets))
        found = pool_avail(pool, rule_room(pool.crush_rule, cluster, 0.95), None)
        assert found.max_avail_before is not None
        return found.max_avail_before


def tool(*argv: str) -> str:
    return subprocess.run(argv, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                          universal_newlines=True).stdout


def make_map(directory: Path, hosts: int) -> Tuple[Path, Dict[str, Any]]:
    """An OSDMap with all OSDs up and in, and what the mon shows of it."""
    with Cluster.up(osds=0, hosts=1, conf={'mon': {
            'mon max pool pg num': 65536, 'mon osd max initial pgs': 65536}}) as cluster:
        count = hosts * OSDS_PER_HOST
        order(cluster, [{'prefix': 'osd create'}] * count)
        text, binary = directory / 'crush.txt', directory / 'crush'
        text.write_text(crush_text(hosts))
        cluster.run_tool(['crushtool', '-c', str(text), '-o', str(binary)])
        parse(cluster.command('mon', {'prefix': 'osd setcrushmap'}, binary.read_bytes()),
              'osd setcrushmap')
        order(cluster, [{
            'prefix': 'osd pool create', 'pool': 'pool%d' % number, 'size': SIZE, 'pg_num': pgs,
            'pgp_num': pgs, 'pool_type': 'replicated', 'rule': 'replicated_rule',
            'autoscale_mode': 'off'}
            for number, pgs in enumerate(pg_nums(count))])
        path = directory / 'osdmap'
        cluster.ceph('osd', 'getmap', '-o', str(path), timeout=120)
        cluster.run_tool(['osdmaptool', str(path), '--mark-up-in', '--adjust-crush-weight', '0:%s'
                          % weight_of(0), '--save'])
        return path, {
            'crush_dump': json.loads(tool('crushtool', '-i', str(binary), '--dump')),
            'osd_dump': cluster.osd_dump(),
            'pool_dump': cluster.mon('osd pool ls', detail='detail')}


def pg_nums(osds: int) -> List[int]:
    """Powers of two."""
    return [1 << round((per_osd * osds / SIZE)).bit_length() - 1 for per_osd, _ in POOLS]


def weight_of(osd: int) -> float:
    """Every third host has drives of twice the size."""
    return 16.0 if osd // OSDS_PER_HOST % 3 == 0 else 8.0


def crush_text(hosts: int) -> str:
    lines = ['tunable choose_local_tries 0', 'tunable choose_local_fallback_tries 0',
             'tunable choose_total_tries 50', 'tunable chooseleaf_descend_once 1',
             'tunable chooseleaf_vary_r 1', 'tunable chooseleaf_stable 1',
             'tunable straw_calc_version 1']
    lines += ['device %d osd.%d class hdd' % (osd, osd) for osd in range(hosts * OSDS_PER_HOST)]
    lines += ['type 0 osd', 'type 1 host', 'type 11 root']
    for host in range(hosts):
        lines += ['host h%d {' % host, 'id %d' % (-2 - host), 'alg straw2', 'hash 0',
                  *('item osd.%d weight %.3f' % (osd, weight_of(osd)) for osd in range(
                      host * OSDS_PER_HOST, (host + 1) * OSDS_PER_HOST)), '}']
    lines += ['root default {', 'id -1', 'alg straw2', 'hash 0',
              *('item h%d weight %.3f' % (host, OSDS_PER_HOST * weight_of(host * OSDS_PER_HOST))
                for host in range(hosts)), '}',
              'rule replicated_rule {', 'id 0', 'type replicated', 'min_size 1', 'max_size 10',
              'step take default', 'step chooseleaf firstn 0 type host', 'step emit', '}']
    return '\n'.join(lines) + '\n'


def scene_of(raw: Sets, crush: CrushRules, hosts: int, seed: int) -> Scene:
    rng, count = random.Random(seed), hosts * OSDS_PER_HOST
    total = {osd: int(weight_of(osd) * TIB) for osd in range(count)}
    numbers = sorted({pool_of(pgid) for pgid in raw})
    pools, sizes = [], {}
    for number, (_, share) in zip(numbers, POOLS):
        pgids = [pgid for pgid in raw if pool_of(pgid) == number]
        mean = FILL * share * sum(total.values()) / SIZE / len(pgids)
        sizes.update({pgid: int(mean * rng.gauss(1.0, SCATTER)) for pgid in pgids})
        pools.append(Pool(number, 'pool%d' % number, False, SIZE, 2, 0, len(pgids), len(pgids),
                          len(pgids)))
    return Scene(crush, {osd: Osd(osd, True, 1.0) for osd in total}, pools, raw, sizes, total,
                 {osd: int(size * METADATA * rng.random()) for osd, size in total.items()})


def balancer(path: Path) -> Tuple[Dict[str, UpmapEntry], float]:
    """Ceph's: the upmaps, and the seconds that it took."""
    out = path.with_name('upmaps')
    begin = time.perf_counter()
    tool('osdmaptool', str(path), '--upmap', str(out), '--upmap-max', '1000000',
         '--upmap-deviation', '1')
    return entries_of(out.read_text()), time.perf_counter() - begin


def entries_of(commands: str) -> Dict[str, UpmapEntry]:
    found = {}
    for pgid, osds in _UPMAP.findall(commands):
        ids = [int(osd) for osd in osds.split()]
        found[pgid] = UpmapEntry(tuple(zip(ids[::2], ids[1::2])))
    return found


def with_entries(raw: Sets, entries: Mapping[str, UpmapEntry]) -> Sets:
    return {pgid: apply_entry(osds, entries.get(pgid, UpmapEntry()), ())
            for pgid, osds in raw.items()}


def other_balancer(script: str, directory: Path, scene: Scene,
                   dumps: Mapping[str, Any]) -> Tuple[Dict[str, UpmapEntry], float]:
    """As `balancer`, of TheJJ's."""
    state = directory / 'state.xz'
    with lzma.open(state, 'wt') as out:
        json.dump(state_of(scene, dumps), out)
    begin = time.perf_counter()
    commands = tool(sys.executable, script, 'balance', '--state', str(state), '-m', '1000000',
                    '--osdsize', 'device')
    return entries_of(commands), time.perf_counter() - begin


def state_of(scene: Scene, dumps: Mapping[str, Any]) -> Dict[str, Any]:
    """What it gathers from a cluster, as far as it reads it."""
    space = scene.space(scene.raw)
    total = sum(row.total_bytes for row in space.values())
    used = sum(row.used_bytes for row in space.values())
    osds = [{**row, 'state': ['exists', 'up'], 'up': 1, 'in': 1, 'weight': 1.0}
            for row in dumps['osd_dump']['osds']]
    pools = [(pool, [size for pgid, size in scene.sizes.items() if pool_of(pgid) == pool.id])
             for pool in scene.pools]
    nothing = {'num_objects': 0, 'num_object_copies': 0, 'num_objects_degraded': 0,
               'num_objects_misplaced': 0, 'num_omap_bytes': 0, 'num_omap_keys': 0}
    return {
        **dumps, 'stateversion': 1, 'osd_dump': {**dumps['osd_dump'], 'osds': osds},
        'crush_class_osds': {'hdd': sorted(space)},
        'osd_df_dump': {'nodes': [
            {'id': osd, 'utilization': 100 * row.used_bytes / row.total_bytes, 'status': 'up'}
            for osd, row in space.items()]},
        'osd_df_tree_dump': {'nodes': [
            {'id': bucket['id'], 'name': bucket['name'],
             'children': [item['id'] for item in bucket['items']]}
            for bucket in dumps['crush_dump']['buckets'] if '~' not in bucket['name']]},
        'df_dump': {'stats_by_class': {'hdd': {
            'total_bytes': total, 'total_avail_bytes': total - used,
            'total_used_raw_bytes': used, 'total_used_raw_ratio': used / total}},
            'pools': [{'id': pool.id, 'stats': {
                'stored': sum(sizes), 'objects': 0, 'bytes_used': SIZE * sum(sizes),
                'max_avail': 0, 'percent_used': 0.5, 'quota_bytes': 0, 'quota_objects': 0}}
                for pool, sizes in pools]},
        'pg_dump': {'pg_map': {
            'pool_stats': [{'poolid': pool.id, 'stat_sum': {**nothing, 'num_bytes': sum(sizes)}}
                           for pool, sizes in pools],
            'pg_stats': [{'pgid': pgid, 'state': 'active+clean', 'up': list(up),
                          'acting': list(up), 'stat_sum': {
                              **nothing, 'num_bytes': scene.sizes[pgid]}}
                         for pgid, up in scene.raw.items()],
            'osd_stats': [{'osd': osd, 'num_shards_repaired': 0, 'statfs': {
                'total': row.total_bytes, 'available': row.total_bytes - row.used_bytes,
                'allocated': row.used_bytes - scene.metadata[osd],
                'internal_metadata': scene.metadata[osd], 'omap_allocated': 0}}
                for osd, row in space.items()]}}}


def perfguard(scene: Scene, here: Sets, deviation: float) -> Tuple[Sets, float]:
    """The sets at the end, and the seconds that it took. The planner knows the mean size of PGs."""
    parts = []
    for pool in scene.pools:
        pgids = [pgid for pgid in here if pool_of(pgid) == pool.id]
        mean = sum(scene.sizes[pgid] for pgid in pgids) // len(pgids)
        parts.append(EvenPool(pool, [PlacedPg(pgid, here[pgid], scene.raw[pgid])
                                     for pgid in pgids], dict.fromkeys(pgids, mean)))
    begin = time.perf_counter()
    found = even_out(parts, EvenGround(scene.crush, scene.osds, scene.space(here), 0.85, deviation,
                                       True), 10 ** 9)
    return {**here, **found.finals}, time.perf_counter() - begin


def row(scene: Scene, name: str, sets: Sets, since: Sets, seconds: float) -> None:
    fills = scene.fills(sets)
    mean = sum(fills) / len(fills)
    scatter = (sum((fill - mean) ** 2 for fill in fills) / len(fills)) ** 0.5
    moves = [(pgid, len(set(sets[pgid]) - set(osds))) for pgid, osds in since.items()]
    moved = sum(count * scene.sizes[pgid] for pgid, count in moves)
    gained = scene.free(sets) - scene.free(since)
    upmaps = sum(set(osds) != set(scene.raw[pgid]) for pgid, osds in sets.items())
    print('%-26s %6.1f %6.1f %8.2f %10.1f %8d %9.1f %9s %8d %8.1f' % (
        name, 100 * min(fills), 100 * max(fills), 100 * scatter, scene.free(sets) / TIB,
        sum(count for _, count in moves), moved / TIB,
        '%.3f' % (gained / moved) if moved else '-', upmaps, seconds))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('--hosts', type=int, default=80, help='hosts with ten OSDs each')
    parser.add_argument('--seed', type=int, default=1)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        path, dumps = make_map(Path(name), args.hosts)
        out = tool('osdmaptool', str(path), '--mark-up-in', '--test-map-pgs-dump-all')
        raw = {pgid: tuple(map(int, osds.split(','))) for pgid, osds in _ROW.findall(out)}
        scene = scene_of(raw, CrushRules.from_dump(dumps['crush_dump']), args.hosts, args.seed)
        entries, seconds = balancer(path)
        balanced = with_entries(raw, entries)
        script = os.environ.get('PERFGUARD_JJ')
        others = other_balancer(script, Path(name), scene, dumps) if script else None
    print('%d OSDs of two sizes, %d PGs in %d pools, seed %d' % (
        len(scene.total), len(raw), len(scene.pools), args.seed))
    print('%-26s %6s %6s %8s %10s %8s %9s %9s %8s %8s' % (
        '', 'least', 'most', 'scatter', 'MAX AVAIL', 'shards', 'moved', 'gained', 'upmaps',
        'seconds'))
    print('%-26s %6s %6s %8s %10s %8s %9s %9s' % ('', '%', '%', '%', 'TiB', 'moved', 'TiB',
                                                  'TiB/TiB'))
    row(scene, 'as CRUSH places', raw, raw, 0.0)
    row(scene, "Ceph's balancer", balanced, raw, seconds)
    if others is not None:
        row(scene, 'jj-balancer', with_entries(raw, others[0]), raw, others[1])
    for deviation in DEVIATIONS:
        sets, seconds = perfguard(scene, raw, deviation)
        row(scene, 'perfguard, deviation %g' % deviation, sets, raw, seconds)
    sets, seconds = perfguard(scene, balanced, DEVIATIONS[-1])
    row(scene, 'perfguard on the balancer', sets, balanced, seconds)
    return 0


if __name__ == '__main__':
    sys.exit(main())
