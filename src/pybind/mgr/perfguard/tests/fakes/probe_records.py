# SPDX-License-Identifier: LGPL-2.1-or-later
"""Runs of probes with made-up results."""
import math
import random
from dataclasses import replace
from typing import Iterable, List, Optional, Sequence, Tuple

from perfguard.probe.records import DONE, RunRecord
from perfguard.probe.types import (Direction, Job, Quantiles, Second, JobStep, StepResult, Stream,
                                   StreamResult, Target)

POOL = Target('pool', 'rbd')
LATENCY = Job('latency', 'randread', 4096, 1, 64 << 20, 16, 10.0)
WRITING = Job('latency', 'randwrite', 4096, 1, 64 << 20, 16, 10.0)
IOPS = Job('iops', 'randread', 4096, 128, 64 << 20, 16, 10.0)
LINEAR = Job('throughput', 'read', 4 << 20, 16, 1 << 30, 64, 10.0)

Done = List[Tuple[JobStep, StepResult]]


def direction(job: Job, rates: Sequence[float], p99_ratio: float = 3.0) -> Direction:
    """So many operations in each second, with the latency that depth and rate make."""
    counts = [max(1, round(rate)) for rate in rates]
    seconds = tuple(Second(float(at + 1), ios, ios * job.bs, int(1e9 * job.iodepth))
                    for at, ios in enumerate(counts))
    ios = sum(counts)
    mean = 1e9 * job.iodepth * len(counts) / ios
    p99 = int(mean * p99_ratio)
    return Direction(ios, ios * job.bs, len(counts) * 10 ** 9,
                     Quantiles(1, 2 * p99, mean, mean / 2, {'99.000000': p99}), seconds)


def step(job: Job, rates: Sequence[float], osd: Optional[int] = None, repetition: int = 0,
         part: str = '', p99_ratio: float = 3.0) -> Tuple[JobStep, StepResult]:
    name = 'pool' if osd is None else 'osd.%d' % osd
    done = direction(job, rates, p99_ratio)
    result = StreamResult(name, read=done) if job.reads else StreamResult(name, write=done)
    objects = tuple('perfguard-probe-1-%s-%d' % (name, number) for number in range(job.nrfiles))
    return (JobStep(job, (Stream(name, objects, osd),), repetition, part),
            StepResult((result,), engine='python'))


def with_mean(done: Tuple[JobStep, StepResult], mean_ns: float) -> Tuple[JobStep, StepResult]:
    """The same reads with another mean latency, and no seconds."""
    one, result = done
    read = result.streams[0].read
    assert read.latency is not None
    read = replace(read, latency=replace(read.latency, mean=mean_ns), seconds=())
    return one, replace(result, streams=(replace(result.streams[0], read=read),))


def run(run_id: int, done: Iterable[Tuple[JobStep, StepResult]], target: Target = POOL,
        state: str = DONE, ended: float = 0.0) -> RunRecord:
    pairs = tuple(done)
    return RunRecord(run_id, state, 'quick', target, ended - 60.0, ended - 50.0, ended,
                     steps=tuple(each for each, _ in pairs),
                     results=tuple(result for _, result in pairs))


def noisy(rng: random.Random, job: Job, iops: float, repetitions: int, run_sd: float,
          osd: Optional[int] = None, seconds: int = 10, second_sd: float = 0.08,
          correlation: float = 0.6) -> Done:
    """Repetitions whose logarithm varies by `run_sd`, with correlated seconds in each."""
    done: Done = []
    for repetition in range(repetitions):
        base = iops * math.exp(rng.gauss(0.0, run_sd))
        state, rates = rng.gauss(0.0, second_sd), []
        for _ in range(seconds):
            rates.append(base * math.exp(state))
            state = (correlation * state
                     + rng.gauss(0.0, second_sd * math.sqrt(1.0 - correlation ** 2)))
        done.append(step(job, rates, osd, repetition,
                         p99_ratio=3.0 * math.exp(rng.gauss(0.0, 0.15))))
    return done
