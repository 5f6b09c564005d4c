# SPDX-License-Identifier: LGPL-2.1-or-later
"""What perfguard costs a real mon and mgr whose OSDMap is that of a very large cluster.

    /usr/bin/python3 -m qa.bench.bench_scale [--release pacific] [--osds 10000] [--pgs 100000]
        [--upmaps 28000] [--new 2000] [--seconds 60]

The map is real and no OSD is (see large_map.py). With the module off and on, in this order, the
memory of ceph-mgr and the latency of commands to it are measured while nothing changes and while
the OSDMap changes every second; then what the module itself reports: the CPU time of its turns.
At the end it previews the expansion by all new OSDs, while commands go on.
"""
import argparse
import json
import statistics
import threading
import time
from pathlib import Path
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Sequence, Tuple

from qa.cluster import Cluster
from qa.cluster.connection import parse
from qa.cluster.errors import ClusterError

from . import large_map
from .bench_watch import turns
from .large_map import Shape

POLL_SECONDS = 0.1
#: The mgr has read the maps and the module has completed its first turns.
SETTLE_SECONDS = 30.0


class ScaleRow(NamedTuple):
    what: str
    commands: int
    median_ms: float
    p99_ms: float
    longest_ms: float
    mgr_cores: float
    mgr_mib: float


def mgr_stat(cluster: Cluster) -> Tuple[float, float]:
    """CPU seconds and resident MiB of the active mgr."""
    mgr = 'mgr.%s' % cluster.active_mgr()
    resident = int(Path('/proc/%s/statm' % cluster.pid(mgr)).read_text().split()[1])
    return cpu_seconds(cluster, mgr), resident * 4096 / 2 ** 20


def cpu_seconds(cluster: Cluster, daemon: str) -> float:
    fields = Path('/proc/%s/stat' % cluster.pid(daemon)).read_text().rpartition(')')[2].split()
    return (int(fields[11]) + int(fields[12])) / 100


class MapEpochs:
    """Changes the OSDMap every second: an upmap is removed and set again."""

    def __init__(self, cluster: Cluster, item: Dict[str, Any]) -> None:
        """`item`: an upmap of the OSDMap. A dump of so large a map may take the mons seconds."""
        self._cluster = cluster
        self._pgid, pair = item['pgid'], item['mappings'][0]
        self._pair = [pair['from'], pair['to']]
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> 'MapEpochs':
        self._thread.start()
        return self

    def __exit__(self, *error: Any) -> None:
        self._ended.set()
        self._thread.join()

    def _run(self) -> None:
        there = True
        while not self._ended.wait(1.0) or not there:
            prefix = 'osd rm-pg-upmap-items' if there else 'osd pg-upmap-items'
            extra = {} if there else {'id': self._pair}
            self._cluster.mon(prefix, pgid=self._pgid, **extra)
            there = not there


def commands(cluster: Cluster, what: str, seconds: float,
             until: Optional[Callable[[], bool]] = None) -> ScaleRow:
    """Latency of `pg stat`, which the mgr answers without perfguard."""
    times: List[float] = []
    cpu, _ = mgr_stat(cluster)
    begin = time.monotonic()
    while time.monotonic() < begin + seconds and not (until and until()):
        start = time.monotonic()
        parse(cluster.mgr('pg stat', format='json'), 'pg stat')
        times.append(1e3 * (time.monotonic() - start))
        time.sleep(POLL_SECONDS)
    after, mib = mgr_stat(cluster)
    ordered = sorted(times)
    row = ScaleRow(what, len(times), statistics.median(times),
                   ordered[int(0.99 * (len(times) - 1))], ordered[-1],
                   (after - cpu) / (time.monotonic() - begin), mib)
    print('%-34s %6d %8.1f %8.1f %8.1f %8.2f %8.0f' % row, flush=True)
    return row


def show_turns(what: str, found: List[float]) -> None:
    print('%-34s turns %3d: CPU median %.1f ms, longest %.1f ms' % (
        what, len(found), statistics.median(found), max(found)), flush=True)


def preview(cluster: Cluster, osds: Sequence[int]) -> Dict[str, Any]:
    """The dry run of the expansion, and how long it took.

    By OSD: a host whose OSDs have never reported is refused, since they may hold PGs.
    """
    begin = time.monotonic()
    plan = parse(cluster.command('mgr', {
        'prefix': 'perfguard expand', 'format': 'json', 'dry_run': True, 'weight': '1.0',
        'what': ['osd.%d' % osd for osd in osds]}, timeout=600.0), 'expand')
    return {'seconds': round(time.monotonic() - begin, 1), 'plan': plan}


def answers(cluster: Cluster) -> bool:
    """Whether perfguard has completed a turn."""
    retval, out, _ = cluster.command('mgr', {'prefix': 'perfguard status', 'format': 'json'},
                                     timeout=120.0)
    return retval == 0 and 'turn_cpu_ms' in json.loads(out)


def measure(cluster: Cluster, shape: Shape, seconds: float, upmap: Dict[str, Any]) -> None:
    print('%-34s %6s %8s %8s %8s %8s %8s' % (
        '`pg stat` in ms', 'calls', 'median', 'p99', 'longest', 'cores', 'MiB'))
    time.sleep(SETTLE_SECONDS)
    commands(cluster, 'module off', seconds)
    with MapEpochs(cluster, upmap):
        commands(cluster, 'module off, an epoch a second', seconds)
    cluster.mon('mgr module enable', module='perfguard')
    cluster.wait(lambda: answers(cluster), 600, 'perfguard to answer')
    time.sleep(SETTLE_SECONDS)
    commands(cluster, 'module on', seconds)
    show_turns('module on', turns(cluster, seconds))
    with MapEpochs(cluster, upmap):
        commands(cluster, 'module on, an epoch a second', seconds)
        show_turns('module on, an epoch a second', turns(cluster, seconds))
    found: List[Dict[str, Any]] = []
    new = range(shape.osds - shape.new, shape.osds)

    def ask() -> None:
        try:
            found.append(preview(cluster, new))
        except ClusterError as error:
            print('expand --dry-run: %s' % error, flush=True)

    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    commands(cluster, 'module on, preview of expand', 600.0, lambda: not thread.is_alive())
    thread.join()
    if not found:
        return
    print('expand --dry-run: %.1f s; %s' % (found[0]['seconds'], json.dumps(
        {key: value for key, value in found[0]['plan'].items()
         if isinstance(value, (int, float, str))})))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split('\n')[0])
    parser.add_argument('--release', default='pacific')
    parser.add_argument('--osds', type=int, default=10000)
    parser.add_argument('--pgs', type=int, default=100000)
    parser.add_argument('--upmaps', type=int, default=28000)
    parser.add_argument('--new', type=int, default=2000)
    parser.add_argument('--seconds', type=float, default=60.0)
    args = parser.parse_args()
    shape = Shape(args.osds, args.pgs, args.upmaps, args.new)
    begin = time.monotonic()
    with large_map.boot(args.release, shape, {}) as cluster:
        dump = parse(cluster.command('mon', {'prefix': 'osd dump', 'format': 'json'},
                                     timeout=300.0), 'osd dump')
        print('%s: %d OSDs up, %d PGs, %d upmaps; made in %.0f s' % (
            args.release, sum(osd['up'] for osd in dump['osds']),
            sum(pool['pg_num'] for pool in dump['pools']), len(dump['pg_upmap_items']),
            time.monotonic() - begin), flush=True)
        measure(cluster, shape, args.seconds, dump['pg_upmap_items'][0])


if __name__ == '__main__':
    main()
