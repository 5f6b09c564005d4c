# SPDX-License-Identifier: LGPL-2.1-or-later
"""What thousands of pins cost a mon: seconds, commits, and OSDMap epochs.

    /usr/bin/python3 -m qa.bench.bench_pin_epochs [--release pacific] [--osds 1000] [--pgs 20000]
        [--pins 15000] [--releases 800]

The map is real and no OSD is (see large_map.py). The pins are set as perfguard sets those of a
change of CRUSH, 2,000 at a time with the mon's own proposal interval, and some are removed eight
at a time, as PGs are released. No PG is ever active: the epochs with which OSDs answer a release
(up_thru, pg_temp) are missing, and the mon trims nothing, so that the range of epochs is what all
this has added.
"""
import argparse
import time
from typing import Any, Dict, List, Tuple

from perfguard.rebalance.joining import MAX_BURST_PINS

from qa.cluster import Cluster

from . import large_map
from .bench_scale import cpu_seconds
from .large_map import Shape

#: PGs that are released together (doc/dev/perfguard-rules.rst, "Releases go in batches").
RELEASED_AT_ONCE = 8


def commits(cluster: Cluster) -> Tuple[int, float]:
    """Number of paxos commits since the mon started, and their seconds."""
    found = cluster.tell('mon.a', 'perf dump')['paxos']['commit_latency']
    return int(found['avgcount']), float(found['sum'])


def measure(cluster: Cluster, what: str, commands: List[Dict[str, Any]], burst: int) -> None:
    first, (number, spent), cpu = cluster.epoch(), commits(cluster), cpu_seconds(cluster, 'mon.a')
    answers: List[float] = []
    for start in range(0, len(commands), burst):
        begin = time.monotonic()
        large_map.order(cluster, commands[start:start + burst], burst)
        answers.append(time.monotonic() - begin)
    epochs = max(1, cluster.epoch() - first)
    number_after, spent_after = commits(cluster)
    made = max(1, number_after - number)
    print('%-22s %6d in %3d bursts: answered in %.2f s (median; longest %.2f s), %d epochs, '
          '%d commits of %.1f ms, %.0f ms of CPU time of the mon for each epoch' % (
              what, len(commands), len(answers), sorted(answers)[len(answers) // 2], max(answers),
              epochs, made, 1000 * (spent_after - spent) / made,
              1000 * (cpu_seconds(cluster, 'mon.a') - cpu) / epochs), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split('\n')[0])
    parser.add_argument('--release', default='pacific')
    parser.add_argument('--osds', type=int, default=1000)
    parser.add_argument('--pgs', type=int, default=20000)
    parser.add_argument('--pins', type=int, default=15000)
    parser.add_argument('--releases', type=int, default=800)
    args = parser.parse_args()
    shape = Shape(args.osds, args.pgs, 0, 0)
    with large_map.boot(args.release, shape, {}) as cluster:
        pins = list(large_map.upmaps(cluster, shape._replace(upmaps=args.pins)))
        measure(cluster, 'pins', pins, MAX_BURST_PINS)
        dump = cluster.osd_dump()
        print('the map has %d upmaps' % len(dump['pg_upmap_items']))
        measure(cluster, 'releases', [
            {'prefix': 'osd rm-pg-upmap-items', 'pgid': pin['pgid']}
            for pin in pins[:args.releases]], RELEASED_AT_ONCE)
        print('OSDMap epochs that the mon keeps: %d to %d' % cluster.kept_epochs())


if __name__ == '__main__':
    main()
