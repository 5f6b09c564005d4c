# SPDX-License-Identifier: LGPL-2.1-or-later
"""Pinning about 200 remapped PGs of a real 12-OSD cluster: perfguard against a script of commands.

    /usr/bin/python3 -m qa.bench.bench_pin [--release pacific] [--rounds 3]

Both arms pin the same PGs of the same cluster, with the default proposal interval of the mon. The
script is the output of an external tool, here of perfguard's offline planner: a sequence of
`ceph osd pg-upmap-items` commands. Seconds and osdmap epochs run from the start of pinning
to all PGs active+clean. Between the arms the pins are removed again, under norebalance.
"""
import argparse
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Callable, Dict, List, Tuple

from qa.cluster import Cluster
from qa.lib.guard import Guard

SOURCE = Path(__file__).resolve().parents[2] / 'src' / 'pybind' / 'mgr'

Measured = Tuple[float, int, int]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('--release', default='pacific')
    parser.add_argument('--rounds', type=int, default=3)
    args = parser.parse_args()
    arms: Dict[str, Callable[[Cluster, Guard], None]] = {
        'perfguard': pin_by_perfguard, 'script of commands': pin_by_script}
    found: Dict[str, List[Measured]] = {name: [] for name in arms}
    with Cluster.up(args.release, osds=8, hosts=4) as cluster:
        guard = remapped_cluster(cluster)
        for number in range(args.rounds):
            names = list(arms) if number % 2 == 0 else list(arms)[::-1]
            for name in names:
                found[name].append(measure(cluster, guard, arms[name]))
                unpin(cluster, guard)
    return report(args.release, found)


def remapped_cluster(cluster: Cluster) -> Guard:
    """8 OSDs become 12 under norebalance: about 195 of 256 PGs are remapped."""
    cluster.pool_create('p', 256, size=3)
    cluster.fill('p', 2000, 4096)
    cluster.wait_clean(60)
    guard = Guard(cluster)
    cluster.mon('config rm', who='mgr', name='mgr/perfguard/campaign_interval')
    cluster.mon('osd set', key='norebalance')
    cluster.add_osds(4)
    guard.wait_remapped()
    cluster.flush_pg_stats()
    return guard


def measure(cluster: Cluster, guard: Guard, pin: Callable[[Cluster, Guard], None]) -> Measured:
    """Seconds, epochs and PGs of one arm."""
    pgs = len(cluster.osd_dump()['pg_temp'])
    if pin is pin_by_perfguard:
        guard.prepare()
    epoch, begin = cluster.epoch(), time.monotonic()
    pin(cluster, guard)
    cluster.wait_clean(120)
    return time.monotonic() - begin, cluster.epoch() - epoch, pgs


def pin_by_perfguard(cluster: Cluster, guard: Guard) -> None:
    guard.do('pin')
    cluster.wait(lambda: not cluster.osd_dump()['pg_temp'], 60, 'no remapped PG')


def pin_by_script(cluster: Cluster, guard: Guard) -> None:
    dumps = {}
    for name, command in (('osd', ('osd', 'dump')), ('pg', ('pg', 'dump', 'pgs_brief')),
                          ('crush', ('osd', 'crush', 'dump'))):
        dumps[name] = cluster.directory / f'{name}.json'
        dumps[name].write_text(cluster.ceph(*command, '-f', 'json').stdout)
    done = subprocess.run(
        [sys.executable, '-m', 'perfguard.offline', 'pin', '--osd-dump', str(dumps['osd']),
         '--pg-dump', str(dumps['pg']), '--crush-dump', str(dumps['crush'])],
        env={'PYTHONPATH': str(SOURCE)}, check=True, stdout=subprocess.PIPE,
        universal_newlines=True)
    for line in done.stdout.splitlines():
        cluster.ceph(*line.split()[1:])


def unpin(cluster: Cluster, guard: Guard) -> None:
    """Remove the pins, so that the PGs are remapped again."""
    if guard.status()['phase'] not in ('IDLE', 'ABORTED'):
        guard.wait_phase('PINNED')
        guard.do('abort')
        guard.wait_phase('ABORTED')
    guard.remove_upmaps()
    guard.wait_remapped()
    cluster.flush_pg_stats()
    time.sleep(6)  # two reports of the PG states


def report(release: str, found: Dict[str, List[Measured]]) -> int:
    print(f'{release}: pinning to active+clean, median of {len(found["perfguard"])}')
    medians = {}
    for name, runs in found.items():
        seconds, epochs, pgs = (statistics.median(run[i] for run in runs) for i in range(3))
        medians[name] = seconds
        print(f'{name:20} {seconds:7.1f} s {epochs:5.0f} epochs {pgs:5.0f} PGs')
    print('ratio of times: %.1f' % (medians['script of commands'] / medians['perfguard']))
    return 0


if __name__ == '__main__':
    sys.exit(main())
