# SPDX-License-Identifier: LGPL-2.1-or-later
"""Steps with results as a worker brings them, for tests."""
from typing import Dict, List, Sequence, Tuple

from perfguard.probe.types import (PERCENTILES, Direction, Job, Quantiles, Second, JobStep,
                                   StepResult, Stream, StreamResult)

MS = 1000000


def latency(mean_ms: float) -> Quantiles:
    """p50 is the mean, p99 twice as much, and so on."""
    found: Dict[str, int] = {'%.6f' % each: int(mean_ms * MS * (0.5 + each / 100 + (each > 95)))
                             for each in PERCENTILES}
    return Quantiles(int(mean_ms * MS / 4), int(mean_ms * MS * 4), mean_ms * MS, mean_ms * MS / 5,
                     found)


def direction(iops: int, bs: int, mean_ms: float, seconds: int = 2) -> Direction:
    series = tuple(Second(second + 1.0, iops + (10 if second % 2 else -10), iops * bs, iops * MS)
                   for second in range(seconds))
    return Direction(iops * seconds, iops * seconds * bs, seconds * 1000 * MS, latency(mean_ms),
                     series)


def result(job: Job, rates: Sequence[int], **changes: object) -> StepResult:
    """One stream for each rate."""
    streams = tuple(StreamResult(
        str(number), direction(rate, job.bs, 1.0) if job.reads else Direction(),
        direction(rate, job.bs, 2.0) if job.writes else Direction())
        for number, rate in enumerate(rates))
    plain = StepResult(streams, cpu_user=0.5, cpu_system=0.25, cpu_share=0.4, engine='python')
    return StepResult(**{**vars(plain), **changes})


def repeated(job: Job, rates: Sequence[int]) -> Tuple[List[JobStep], List[StepResult]]:
    """One stream, each rate one repetition."""
    steps = [JobStep(job, (Stream('0', ('a', 'b')),), repetition)
             for repetition in range(len(rates))]
    return steps, [result(job, [rate]) for rate in rates]
