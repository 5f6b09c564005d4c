# SPDX-License-Identifier: LGPL-2.1-or-later
"""Memory of an mgr, with or without perfguard, while PGs move all the time.

    /usr/bin/python3 -m qa.bench.bench_mgr_memory [--with-perfguard] [--seconds 600]

One OSD after another is reweighted and gets its weight back; perfguard only watches.
"""
import argparse
import sys
import time
from contextlib import ExitStack
from itertools import cycle
from pathlib import Path
from typing import Any, Optional

from qa.cluster import Cluster
from qa.lib.clusters import small_cluster
from qa.lib.guard import FAST_CONF

#: Seconds between two weights.
INTERVAL = 5.0


def rss_kib(pid: Optional[int]) -> int:
    status = Path('/proc/%s/status' % pid).read_text()
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith('VmRSS'))


def measure(cluster: Cluster, seconds: float) -> None:
    begin, mgr = time.monotonic(), cluster.pid('mgr.' + cluster.active_mgr())
    first, minute = rss_kib(mgr), 0
    print('minute      MiB    added', flush=True)
    for osd in cycle(cluster.osds()):
        for weight in (0.5, 1.0):
            cluster.mon('osd reweight', id=osd, weight=weight)
            time.sleep(INTERVAL)
        passed = time.monotonic() - begin
        if passed >= 60 * minute:
            now = rss_kib(mgr)
            print('%6d %8.1f %8.1f' % (minute, now / 1024, (now - first) / 1024), flush=True)
            minute += 1
        if passed > seconds:
            break
    assert mgr == cluster.pid('mgr.' + cluster.active_mgr()), 'the mgr was replaced'
    print('osdmaps: %d' % cluster.epoch())


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or '').splitlines()[0])
    parser.add_argument('--with-perfguard', action='store_true')
    parser.add_argument('--seconds', type=float, default=600.0)
    parser.add_argument('--release', default='pacific')
    args = parser.parse_args()
    conf = {**FAST_CONF, 'mon': {**FAST_CONF['mon'], 'mgr_initial_modules': (
        'iostat perfguard' if args.with_perfguard else 'iostat')}}
    with ExitStack() as clusters:
        def make(release: str, **options: Any) -> Cluster:
            return clusters.enter_context(Cluster.up(release, **options))

        measure(small_cluster(make, args.release, conf), args.seconds)
    return 0


if __name__ == '__main__':
    sys.exit(main())
