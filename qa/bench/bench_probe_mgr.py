# SPDX-License-Identifier: LGPL-2.1-or-later
"""Whether commands of the mgr remain fast while a probe runs.

    /usr/bin/python3 -m qa.bench.bench_probe_mgr [--release pacific] [--calls 100] [--rounds 4]

`perfguard status` is called over an open connection, a fixed number of times per round, one
call every 20 ms: without a probe and while one runs, in turns (ABBA), so that other load on the
machine affects both alike. Prints median, p99 and maximum in ms for each. The machine should be
idle.
"""
import argparse
import json
import time
from typing import Any, Dict, List

from qa.cluster import Cluster
from qa.cluster.samples import quantile

PAUSE_SECONDS = 0.02
ALONE, PROBING = 'without', 'with'
#: Small reads and writes without a pause.
PROBE = {'pool': 'bench', 'rw': 'randrw', 'bs': '4k', 'size': '16m', 'nrfiles': '64',
         'ramp_time': '0'}
RUNTIME_SECONDS = 600.0


def ask(cluster: Cluster, command: str, **args: Any) -> Any:
    retval, out, error = cluster.mgr('perfguard ' + command, format='json', **args)
    assert retval == 0, (command, error)
    return json.loads(out)


def calls_ms(cluster: Cluster, calls: int) -> List[float]:
    """The duration of each call."""
    found = []
    for _ in range(calls):
        begin = time.monotonic()
        ask(cluster, 'status')
        found.append(1000 * (time.monotonic() - begin))
        time.sleep(PAUSE_SECONDS)
    return found


def state(cluster: Cluster, run: int) -> str:
    return str(ask(cluster, 'probe show', run=run)['state'])


def while_probing(cluster: Cluster, calls: int, depth: int) -> List[float]:
    run = ask(cluster, 'probe run', iodepth=str(depth), runtime='%g' % RUNTIME_SECONDS,
              **PROBE)['id']
    cluster.wait(lambda: state(cluster, run) == 'running', 60, 'the probe to run')
    # The probe fills its objects first.
    time.sleep(3.0)
    found = calls_ms(cluster, calls)
    assert state(cluster, run) == 'running'
    ask(cluster, 'probe cancel', run=run)
    cluster.wait(lambda: state(cluster, run) == 'cancelled', 60, 'the probe to end')
    return found


def measure(cluster: Cluster, calls: int, rounds: int, depth: int) -> Dict[str, List[float]]:
    cluster.pool_create('bench', 32)
    cluster.mon('mgr module enable', module='perfguard')
    cluster.wait(lambda: cluster.mgr('perfguard osds')[0] == 0, 120, 'perfguard to answer')
    cluster.wait_clean(60)
    time.sleep(10.0)
    found: Dict[str, List[float]] = {ALONE: [], PROBING: []}
    for number in range(rounds):
        for kind in (ALONE, PROBING) if number % 2 == 0 else (PROBING, ALONE):
            found[kind] += calls_ms(cluster, calls) if kind == ALONE else while_probing(
                cluster, calls, depth)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('--release', default='pacific')
    parser.add_argument('--calls', type=int, default=100)
    parser.add_argument('--rounds', type=int, default=4)
    parser.add_argument('--iodepth', type=int, default=1, help='of the probe')
    args = parser.parse_args()
    with Cluster.up(args.release, osds=6, hosts=3) as cluster:
        found = measure(cluster, args.calls, args.rounds, args.iodepth)
    print('perfguard status, ms (%s; probe of 4 KiB at depth %d)' % (args.release, args.iodepth))
    print('%-8s %6s %8s %8s %8s' % ('probe', 'calls', 'median', 'p99', 'max'))
    numbers: Dict[str, List[float]] = {}
    for kind, times in found.items():
        ordered = sorted(times)
        numbers[kind] = [quantile(ordered, share) for share in (0.5, 0.99, 1.0)]
        median, p99, most = numbers[kind]
        print('%-8s %6d %8.2f %8.2f %8.2f' % (kind, len(ordered), median, p99, most))
    median, p99, most = (b / a for a, b in zip(numbers[ALONE], numbers[PROBING]))
    print('%-8s %6s %8.2f %8.2f %8.2f' % ('ratio', '', median, p99, most))
    print('p99 with a probe is %+.1f ms' % (numbers[PROBING][1] - numbers[ALONE][1]))


if __name__ == '__main__':
    main()
