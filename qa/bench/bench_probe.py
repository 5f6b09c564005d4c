# SPDX-License-Identifier: LGPL-2.1-or-later
"""The probe's worker against fio's rados engine: operations per second of one client.

    /usr/bin/python3 -m qa.bench.bench_probe [--release pacific] [--pairs 5] [--json F]

Both read and write the same number of prefilled objects of the same size in the same PGs (fio in
the default namespace, so the objects differ), with 4 KiB at queue depths 1, 32 and 128, and with
4 MiB at 16. In each round fio, the native and the Python engine take turns, in reverse order in
every other round; the ratios are medians over the rounds. By default the pool has one replica, so
that the client limits the speed as much as possible.
"""
import argparse
import itertools
import json
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any, Dict, Iterator, List, NamedTuple, Sequence, Tuple

from perfguard.probe.types import NAMESPACE, PROBE_PREFIX, Job, JobStep, Stream
from perfguard.probe.worker.protocol import WorkerRequest, request_to_json, step_result
from qa.cluster import Cluster
from qa.lib.pgids import pgid_of
from qa.lib.probe_worker import Worker, probe_key

POOL = 'bench'
PG_NUM = 64
#: Objects of fio, in the default namespace.
FIO_PREFIX = 'fio-'
RAMP_SECONDS = 0.5
#: Seconds that a run may take in addition to its runtime.
SPARE_SECONDS = 40.0

ENGINES = ('fio', 'native', 'python')


class ProbeCase(NamedTuple):
    rw: str
    bs: int
    iodepth: int
    object_bytes: int
    objects: int = 64

    @property
    def title(self) -> str:
        size = '4M' if self.bs == 4 << 20 else '4k'
        return '%-9s %s depth %d' % (self.rw, size, self.iodepth)

    #: The lowest ratio that counts as equal to fio.
    @property
    def least_ratio(self) -> float:
        return 0.95 if self.bs == 4 << 20 else 0.9 if self.iodepth == 1 else 0.8


CASES = [ProbeCase(rw, 4096, depth, 1 << 20) for depth in (1, 32, 128)
         for rw in ('randread', 'randwrite')] + [
             ProbeCase(rw, 4 << 20, 16, 4 << 20) for rw in ('read', 'write')]


def fio_names(case: ProbeCase) -> List[str]:
    return ['%s%d-%d' % (FIO_PREFIX, case.object_bytes, n) for n in range(case.objects)]


def twins(names: Sequence[str]) -> Tuple[str, ...]:
    """Names in the probes' namespace that lie in the same PGs."""
    tried = ('%sbench-%d' % (PROBE_PREFIX, n) for n in itertools.count())
    # Only the number of the PG matters, so the id of any pool works.
    return tuple(next(twin for twin in tried if pgid_of(1, PG_NUM, NAMESPACE, twin)
                      == pgid_of(1, PG_NUM, '', name)) for name in names)


def fio_iops(case: ProbeCase, seconds: float, *target: str) -> float:
    """Raises RuntimeError where fio fails."""
    command = [
        'fio', '--name=bench', *target, '--clientname=admin', '--pool=' + POOL,
        '--rw=' + case.rw, '--bs=%d' % case.bs, '--iodepth=%d' % case.iodepth,
        '--size=%d' % (case.object_bytes * case.objects), '--norandommap', '--randrepeat=0',
        '--time_based', '--runtime=%g' % seconds, '--ramp_time=%g' % RAMP_SECONDS,
        '--thread', '--output-format=json']
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                          timeout=seconds + SPARE_SECONDS)
    out = done.stdout
    if done.returncode or '{' not in out:
        raise RuntimeError('fio: %s %s' % (out[-500:], done.stderr[-500:]))
    job = json.loads(out[out.index('{'):])['jobs'][0]
    return float(job['read' if 'read' in case.rw else 'write']['iops'])


def job_of(case: ProbeCase, seconds: float, **fields: Any) -> Job:
    return Job('bench', case.rw, case.bs, case.iodepth, case.object_bytes * case.objects,
               case.objects, seconds, RAMP_SECONDS, **fields)


def worker_iops(cluster: Cluster, request: WorkerRequest) -> float:
    """Of a request with one step of one stream."""
    with Worker(cluster, request_to_json(request)) as worker:
        lines = worker.lines()
    result = step_result(next(line for line in lines if line['type'] == 'result')['result'])
    assert result.engine == request.engine and not result.cut_short, lines
    stream = result.streams[0]
    assert not stream.errors and not stream.corrupt, lines
    return (stream.read if request.steps[0].job.reads else stream.write).iops


class ProbeBench:
    """All runs on one cluster."""

    def __init__(self, cluster: Cluster, seconds: float) -> None:
        self._cluster, self._seconds = cluster, seconds
        self._key = probe_key(cluster, PROBE_PREFIX + 'bench', POOL)
        self._twins = {case.object_bytes: twins(fio_names(case)) for case in CASES}

    def iops(self, engine: str, case: ProbeCase) -> float:
        return self._fio(case) if engine == 'fio' else self._worker(engine, case)

    def _fio(self, case: ProbeCase) -> float:
        return fio_iops(case, self._seconds, '--ioengine=rados',
                        '--conf=%s' % self._cluster.conf_path,
                        '--filename=' + ':'.join(fio_names(case)))

    def _worker(self, engine: str, case: ProbeCase) -> float:
        job = job_of(case, self._seconds)
        names = self._twins[case.object_bytes]
        request = WorkerRequest(POOL, PROBE_PREFIX + 'bench-', 'client.%sbench' % PROBE_PREFIX,
                                self._key, '', conf=str(self._cluster.conf_path),
                                steps=(JobStep(job, (Stream('bench', names),)),), engine=engine,
                                limit_seconds=self._seconds + SPARE_SECONDS)
        return worker_iops(self._cluster, request)

    def prefill(self) -> None:
        for size, objects in sorted({(case.object_bytes, case.objects) for case in CASES}):
            self._cluster.fill(POOL, objects, size, '%s%d-' % (FIO_PREFIX, size))


def measure(bench: ProbeBench, pairs: int, cases: Sequence[ProbeCase]) -> Iterator[Dict[str, Any]]:
    for case in cases:
        found: Dict[str, List[float]] = {engine: [] for engine in ENGINES}
        for number in range(pairs):
            for engine in ENGINES if number % 2 == 0 else ENGINES[::-1]:
                found[engine].append(bench.iops(engine, case))
        yield {'case': case._asdict(), 'iops': found}


def ratio(row: Dict[str, Any], engine: str) -> float:
    """Median ratio of the IOPS of an engine to those of fio in the same round."""
    return statistics.median(one / fio for one, fio in zip(row['iops'][engine],
                                                           row['iops']['fio']))


def line(row: Dict[str, Any]) -> str:
    case = ProbeCase(**row['case'])
    medians = [statistics.median(row['iops'][engine]) for engine in ENGINES]
    native, python = ratio(row, 'native'), ratio(row, 'python')
    return '%-24s %9.0f %9.0f %9.0f %10.2f %10.2f %7.2f  %s' % (
        case.title, *medians, native, python, case.least_ratio,
        'good' if native >= case.least_ratio else 'SLOW')


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('--release', default='pacific')
    parser.add_argument('--pairs', type=int, default=5)
    parser.add_argument('--seconds', type=float, default=3.0, help='measured time of a run')
    parser.add_argument('--osds', type=int, default=3)
    parser.add_argument('--replicas', type=int, default=1)
    parser.add_argument('--only', default='', help='cases whose title contains this: 4M')
    parser.add_argument('--json', type=Path, help='file for all that was measured')
    args = parser.parse_args()
    rows = []
    with Cluster.up(args.release, osds=args.osds, hosts=args.osds) as cluster:
        cluster.pool_create(POOL, PG_NUM, size=args.replicas)
        bench = ProbeBench(cluster, args.seconds)
        bench.prefill()
        print('%-24s %9s %9s %9s %10s %10s %7s' % (
            'median of %d' % args.pairs, *ENGINES, 'native/fio', 'python/fio', 'wanted'))
        for row in measure(bench, args.pairs, [case for case in CASES if args.only in case.title]):
            rows.append(row)
            print(line(row), flush=True)
    if args.json:
        args.json.write_text(json.dumps(rows, indent=1))
    sys.exit(any(ratio(row, 'native') < ProbeCase(**row['case']).least_ratio for row in rows))


if __name__ == '__main__':
    main()
