# SPDX-License-Identifier: LGPL-2.1-or-later
"""The steps of a run: which job on which OSDs, in which order; objects: naming.py."""
from typing import List, Optional, Sequence, Tuple

from .jobs import check_in_flight
from .types import AGAIN, ALONE, TOGETHER, BadJob, Job, Step, Stream, Target


def check_target(jobs: Sequence[Job], target: Target) -> None:
    """BadJob if interference makes no sense, or would have too much in flight."""
    if target.kind != 'interference':
        return
    if len(target.osds) < 2:
        raise BadJob('--interference requires at least two OSDs')
    check_in_flight(jobs[0], jobs[0].numjobs * len(target.osds))


def step_count(jobs: Sequence[Job], target: Target, repeat: int) -> int:
    """How many steps there will be, by arithmetic."""
    if target.kind == 'interference':
        return repeat * (2 * len(target.osds) + 1)
    return repeat * len(jobs) * max(1, len(target.osds))


def plan_steps(jobs: Sequence[Job], target: Target, repeat: int) -> Tuple[Step, ...]:
    """The steps of a run on a pool, in order, without names of objects.

    Each repetition goes through all jobs, and all OSDs, before the next one: what changes with
    time, changes all alike.
    """
    check_target(jobs, target)
    if target.kind == 'interference':
        return _interference(jobs[0], target.osds, repeat)
    osds: Sequence[Optional[int]] = target.osds or (None,)
    return tuple(Step(job, _streams(job, osd), repetition)
                 for repetition in range(repeat) for osd in osds for job in jobs)


def _streams(job: Job, osd: Optional[int]) -> Tuple[Stream, ...]:
    """One for each of numjobs."""
    return tuple(Stream(_stream_name(job, osd, number), (), osd) for number in range(job.numjobs))


def _stream_name(job: Job, osd: Optional[int], number: int) -> str:
    if osd is None:
        return str(number)
    return 'osd.%d' % osd + ('/%d' % number if job.numjobs > 1 else '')


def _interference(job: Job, osds: Sequence[int], repeat: int) -> Tuple[Step, ...]:
    """Each OSD alone, all together, each alone again. All repetitions of a part before the next:
    after the first time together, no OSD is as it was."""
    streams = {osd: _streams(job, osd) for osd in osds}
    everyone = tuple(stream for osd in osds for stream in streams[osd])
    steps: List[Step] = []
    for part, each in ((ALONE, list(streams.values())), (TOGETHER, [everyone]),
                       (AGAIN, list(streams.values()))):
        steps += [Step(job, those, repetition, part)
                  for repetition in range(repeat) for those in each]
    return tuple(steps)
