# SPDX-License-Identifier: LGPL-2.1-or-later
"""Time until all PGs are clean after an OSD is lost under load, and what clients feel meanwhile.

    /usr/bin/python3 -m qa.bench.bench_recovery [--release pacific] [--drives disk|flash]
        [--arms stock,perfguard] [--repetitions 3] [--json FILE]

An arm is stock, with options of the OSDs (stock:osd_max_backfills=4), or perfguard, with options of
perfguard (perfguard:mitigation_backfills=4). One OSD is killed and marked out at once. disk:
with wpq, OSDs sleep 0.1 s after each object, and with mclock they have the default capacity of
rotating drives. The OSDs keep data in memory and share the cores of this machine with the clients:
compare arms of one run only.
"""
import argparse
import json
import os
import statistics
import sys
import time
from pathlib import Path
from typing import Any, Dict, List, Mapping, Optional, Sequence

from qa.cluster import Cluster, ClusterError, Load, releases
from qa.cluster.cluster import exit_on_signals
from qa.cluster.samples import Sample, summarise
from qa.demo.operator import Operator
from qa.demo.screen import Screen

from .expansion.settings import DRIVES, FLASH, NO_SLEEP_IN_CONF, Arm, alternating, parse_arm

STOCK, PERFGUARD = 'stock', 'perfguard'
PRESETS = {PERFGUARD: {'mitigation_mode': 'act', 'mitigation_backfills': '8'}}
POOL, LOST = 'data', 1
CLIENT_OBJECTS, OPERATION_BYTES, READ_FRACTION = 1000, 4096, 0.7
#: With the names of the configuration file; None: Ceph's default.
DISK_CAPACITY = {'osd mclock max capacity iops hdd': None,
                 'osd mclock max sequential bandwidth hdd': None}
#: Seconds that are not measured, that a clean cluster may take, and of clients after the last PG.
SETTLE_SECONDS, RECOVERY_SECONDS, AFTER_SECONDS = 5.0, 1800.0, 5.0
#: Seconds that the data may take.
FILL_SECONDS = 900.0
#: Seconds in which perfguard gives back what it has borrowed.
RETURN_SECONDS = 60.0
QUIET, LOSS = 'quiet', 'loss'
COLUMNS = ('p50', 'p99', 'p999', 'max', 'over_100_ms', 'errors')

Result = Dict[str, Any]


def run(args: argparse.Namespace, arm: Arm, screen: Screen) -> Result:
    """The raw result of one loss."""
    conf = {'osd': {**NO_SLEEP_IN_CONF, **({} if args.drives == FLASH else DISK_CAPACITY)}}
    screen.step(f'{arm.name}: a cluster of {args.osds} OSDs boots')
    with Cluster.up(args.release, osds=args.osds, hosts=args.osds // 2, conf=conf) as cluster:
        cluster.mon('config set', who='osd', name='osd_recovery_sleep_hdd',
                    value=DRIVES[args.drives])
        cluster.pool_create(POOL, args.pgs)
        cluster.fill(POOL, args.objects, args.object_kib * 1024, timeout=FILL_SECONDS)
        _set_up(cluster, arm, screen)
        loads = [cluster.load(POOL, rate=args.rate / 2, read_fraction=READ_FRACTION, seed=seed,
                              runtime=3 * 3600, objects=CLIENT_OBJECTS, size=OPERATION_BYTES,
                              prefill=seed == 0) for seed in (0, 1)]
        time.sleep(SETTLE_SECONDS)
        begin = time.time()
        time.sleep(args.quiet)
        lost = time.time()
        screen.step(f'osd.{LOST} is lost')
        cluster.kill(f'osd.{LOST}')
        cluster.mon('osd down', ids=[str(LOST)])
        cluster.mon('osd out', ids=[str(LOST)])
        backfills = _until_clean(cluster)
        clean = time.time()
        borrowed = _given_back(cluster) if arm.method == PERFGUARD else []
        time.sleep(AFTER_SECONDS)
        spans = {QUIET: (begin, lost), LOSS: (lost, clean)}
        return {'arm': arm.name, 'seconds': clean - lost, 'backfills': backfills,
                'not_given_back': borrowed,
                'events': _events(cluster) if arm.method == PERFGUARD else [],
                **{name: _latency(loads, *span) for name, span in spans.items()}}


def _set_up(cluster: Cluster, arm: Arm, screen: Screen) -> None:
    if arm.method == PERFGUARD:
        cluster.mon('mgr module enable', module='perfguard')
    for name, value in arm.options.items():
        if arm.method == PERFGUARD:
            cluster.mon('config set', who='mgr', name=f'mgr/perfguard/{name}', value=value)
        else:
            cluster.mon('config set', who='osd', name=name, value=value)
    if arm.method == PERFGUARD:
        Operator(cluster, screen).wait_ready()
    cluster.wait_clean(RETURN_SECONDS)


def _until_clean(cluster: Cluster) -> List[List[float]]:
    """Wait until all PGs are clean; returns [second, PGs that backfill or recover, PGs that
    wait], one row for each change."""
    rows: List[List[float]] = []
    begin = time.monotonic()

    def clean() -> bool:
        states = [pg['state'].split('+') for pg in cluster.pgs()]
        row = [sum(bool({'backfilling', 'recovering'} & set(state)) for state in states),
               sum(bool({'backfill_wait', 'recovery_wait'} & set(state)) for state in states)]
        if not rows or row != rows[-1][1:]:
            rows.append([round(time.monotonic() - begin, 1), *row])
        return all('clean' in state and 'active' in state for state in states)

    # PG states lag behind the loss.
    cluster.wait(lambda: any('degraded' in pg['state'] for pg in cluster.pgs()),
                 RETURN_SECONDS, 'degraded PGs')
    cluster.wait(clean, RECOVERY_SECONDS, 'all PGs to be clean')
    return rows


def _perfguard(cluster: Cluster, verb: str) -> Any:
    retval, out, error = cluster.mgr(f'perfguard {verb}', format='json')
    if retval:
        raise ClusterError(f'perfguard {verb}: {error}')
    return json.loads(out)


def _given_back(cluster: Cluster) -> List[Any]:
    """What perfguard still holds after a while: nothing."""
    deadline = time.monotonic() + RETURN_SECONDS
    while _perfguard(cluster, 'held')['held'] and time.monotonic() < deadline:
        time.sleep(1.0)
    held: List[Any] = _perfguard(cluster, 'held')['held']
    return held


def _events(cluster: Cluster) -> List[Any]:
    return [event for event in _perfguard(cluster, 'events')['events']
            if event['kind'] == 'mitigation']


def _latency(loads: Sequence[Load], begin: float, end: float) -> Dict[str, float]:
    samples: List[Sample] = [sample for load in loads for sample in load.samples()
                             if begin <= sample.scheduled < end]
    return {**summarise(samples, begin, end),
            'over_100_ms': sum(sample.latency_ms > 100.0 for sample in samples)}


def table(results: Sequence[Mapping[str, Any]]) -> str:
    """One row per arm: medians, with the range."""
    lines = ['%-44s %20s  %s' % ('arm', 'seconds until clean', '  '.join(
        f'{span} {column}' for span in (QUIET, LOSS) for column in COLUMNS))]
    for arm in dict.fromkeys(result['arm'] for result in results):
        rows = [result for result in results if result['arm'] == arm]
        lines.append('%-44s %20s  %s' % (arm, _spread([row['seconds'] for row in rows]), '  '.join(
            _spread([row[span].get(column, 0.0) for row in rows])
            for span in (QUIET, LOSS) for column in COLUMNS)))
        lines += [f'  NOT GIVEN BACK: {row["not_given_back"]}' for row in rows
                  if row['not_given_back']]
    return '\n'.join(lines)


def _spread(values: Sequence[float]) -> str:
    median = f'{statistics.median(values):.4g}'
    return median if len(values) == 1 else f'{median} ({min(values):.4g} to {max(values):.4g})'


def parse(argv: Optional[List[str]]) -> argparse.Namespace:
    p = argparse.ArgumentParser(prog='qa.bench.bench_recovery', description=__doc__,
                                formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument('--release', default='pacific', choices=releases.NAMES)
    p.add_argument('--arms', default=f'{STOCK},{PERFGUARD}')
    p.add_argument('--drives', default='disk', choices=sorted(DRIVES))
    for name, default in (('repetitions', 3), ('osds', 12), ('pgs', 128), ('objects', 40000),
                          ('object-kib', 16), ('rate', 200), ('quiet', 60)):
        p.add_argument(f'--{name}', type=int, default=default)
    p.add_argument('--json', type=Path)
    args = p.parse_args(argv)
    try:
        args.arms = [parse_arm(text, [STOCK, PERFGUARD], PRESETS)
                     for text in args.arms.split(',')]
    except ValueError as e:
        p.error(str(e))
    return args


def main(argv: Optional[List[str]] = None) -> int:
    args, screen = parse(argv), Screen(sys.stderr)
    exit_on_signals()
    results: List[Result] = []
    print(f'{args.release}, {args.drives}: {args.osds} OSDs, {args.pgs} PGs of 3 copies, '
          f'{args.objects} objects of {args.object_kib} KiB, {args.rate} operations of 4 KiB/s, '
          f'{os.cpu_count()} cores; latency in ms', flush=True)
    for repetition, arm in alternating(args.arms, args.repetitions):
        results.append({'repetition': repetition, **run(args, arm, screen)})
        print(table(results), flush=True)
        if args.json is not None:
            args.json.write_text(json.dumps(results, indent=1))
    return 0


if __name__ == '__main__':
    sys.exit(main())
