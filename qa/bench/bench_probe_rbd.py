# SPDX-License-Identifier: LGPL-2.1-or-later
"""The probe's worker with ioengine=rbd against fio's rbd engine: operations per second.

    /usr/bin/python3 -m qa.bench.bench_probe_rbd [--release pacific] [--pairs 5]

Both read and write a prefilled image of the same size in the same pool, without a client cache, at
4 KiB with a queue depth of 1 and 32. They take turns, in every other round in reverse order; the
ratio is the median of those of the rounds.
"""
import argparse
import os
import statistics
import sys
from typing import Dict, List

import rbd

from perfguard.probe.types import PROBE_PREFIX, RBD, JobStep, Stream
from perfguard.probe.worker.protocol import WorkerRequest
from qa.cluster import Cluster
from qa.lib.probe_worker import probe_key

from .bench_probe import (CASES, PG_NUM, POOL, SPARE_SECONDS, ProbeCase, fio_iops, job_of,
                          worker_iops)

USER = PROBE_PREFIX + 'rbd'
RUN = USER + '-'
#: fio's image, and that of the worker.
FIO_IMAGE, PROBE_IMAGE = 'fio', RUN + 'image'
#: The worker is within ten per cent of fio.
LEAST_RATIO = 0.9
DEPTHS = (1, 32)


class ImageBench:
    def __init__(self, cluster: Cluster, seconds: float) -> None:
        self._cluster, self._seconds = cluster, seconds
        self._key = probe_key(cluster, USER, POOL, image=True)
        # fio's rbd engine has no option for it.
        os.environ['CEPH_CONF'] = str(cluster.conf_path)

    def prefill(self, size: int) -> None:
        with self._cluster.rados().open_ioctx(POOL) as ioctx:
            rbd.RBD().create(ioctx, FIO_IMAGE, size, old_format=False)
            with rbd.Image(ioctx, FIO_IMAGE) as image:
                for offset in range(0, size, 4 << 20):
                    image.write(os.urandom(4 << 20), offset)

    def fio(self, case: ProbeCase) -> float:
        return fio_iops(case, self._seconds, '--ioengine=rbd', '--rbdname=' + FIO_IMAGE)

    def worker(self, case: ProbeCase) -> float:
        names = tuple(RUN + str(number) for number in range(case.objects))
        step = JobStep(job_of(case, self._seconds, ioengine=RBD), (Stream('bench', names),))
        request = WorkerRequest(POOL, RUN, 'client.' + USER, self._key, '',
                                conf=str(self._cluster.conf_path), steps=(step,), engine='native',
                                limit_seconds=self._seconds + SPARE_SECONDS)
        try:
            return worker_iops(self._cluster, request)
        finally:
            with self._cluster.rados().open_ioctx(POOL) as ioctx:
                rbd.RBD().remove(ioctx, PROBE_IMAGE)

    def measure(self, case: ProbeCase, pairs: int) -> Dict[str, List[float]]:
        found: Dict[str, List[float]] = {'fio': [], 'worker': []}
        for number in range(pairs):
            for who in list(found)[::1 if number % 2 == 0 else -1]:
                found[who].append((self.fio if who == 'fio' else self.worker)(case))
        return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('--release', default='pacific')
    parser.add_argument('--pairs', type=int, default=5)
    parser.add_argument('--seconds', type=float, default=3.0, help='measured time of a run')
    args = parser.parse_args()
    good = True
    # The cache of fio's image must not answer its reads.
    with Cluster.up(args.release, osds=3, hosts=3,
                    conf={'client': {'rbd_cache': 'false'}}) as cluster:
        cluster.pool_create(POOL, PG_NUM, size=1)
        bench = ImageBench(cluster, args.seconds)
        cases = [case for case in CASES if case.bs == 4096 and case.iodepth in DEPTHS]
        bench.prefill(cases[0].object_bytes * cases[0].objects)
        for case in cases:
            found = bench.measure(case, args.pairs)
            ratio = statistics.median(one / fio for one, fio in zip(found['worker'], found['fio']))
            good = good and ratio >= LEAST_RATIO
            print('%-24s fio %7.0f worker %7.0f ratio %5.2f' % (
                case.title, statistics.median(found['fio']), statistics.median(found['worker']),
                ratio), flush=True)
    sys.exit(not good)


if __name__ == '__main__':
    main()
