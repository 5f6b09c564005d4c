# SPDX-License-Identifier: LGPL-2.1-or-later
"""The steps of a run: which job on which objects, in which order."""
from typing import Dict, Iterable, List, Mapping, Optional, Sequence, Tuple

from .job import check_in_flight
from .placement import names_by_osd
from .types import AGAIN, ALONE, PREFIX, TOGETHER, BadJob, Job, Step, Stream, Target

#: OSD (None: any) and bytes of an object -> names of such objects.
Names = Mapping[Tuple[Optional[int], int], Tuple[str, ...]]


def plan_steps(run_id: int, jobs: Sequence[Job], target: Target,
               leads: Optional[Mapping[str, int]], pool_id: int, pg_num: int,
               repeat: int) -> Tuple[Step, ...]:
    """The steps of a run on a pool, in order.

    `leads`: PG -> the OSD that leads it; wanted where the target is OSDs. Jobs with objects of the
    same size work on the same objects, so that these are written once. Each repetition goes
    through all jobs, and all OSDs, before the next one: what changes with time, changes all alike.
    BadJob if an OSD leads no PG, or if interference would have too much in flight.
    """
    if target.kind == 'interference':
        jobs = jobs[:1]
    if leads is None:
        names: Names = _plain_names(run_id, jobs)
    else:
        names = _led_names(run_id, jobs, target.osds, leads, pool_id, pg_num)
    if target.kind == 'interference':
        return _interference(jobs[0], target.osds, names, repeat)
    osds: Sequence[Optional[int]] = (None,) if leads is None else target.osds
    return tuple(Step(job, _streams(job, osd, names), repetition)
                 for repetition in range(repeat) for osd in osds for job in jobs)


def run_prefix(run_id: int) -> str:
    """What the names of all objects of a run begin with."""
    return '%s%d-' % (PREFIX, run_id)


def _prefix(run_id: int, object_bytes: int) -> str:
    return '%s%d-' % (run_prefix(run_id), object_bytes)


def _objects_wanted(jobs: Iterable[Job]) -> Dict[int, int]:
    """Bytes of an object -> how many such objects the largest job works on."""
    wanted: Dict[int, int] = {}
    for job in jobs:
        wanted[job.object_bytes] = max(wanted.get(job.object_bytes, 0), job.numjobs * job.nrfiles)
    return wanted


def _plain_names(run_id: int, jobs: Sequence[Job]) -> Names:
    return {(None, size): tuple(_prefix(run_id, size) + str(number) for number in range(count))
            for size, count in _objects_wanted(jobs).items()}


def _led_names(run_id: int, jobs: Sequence[Job], osds: Sequence[int], leads: Mapping[str, int],
               pool_id: int, pg_num: int) -> Names:
    return {(osd, size): names
            for size, count in _objects_wanted(jobs).items()
            for osd, names in names_by_osd(_prefix(run_id, size), pool_id, pg_num, leads, osds,
                                           count).items()}


def _streams(job: Job, osd: Optional[int], names: Names) -> Tuple[Stream, ...]:
    """One for each of numjobs, with objects of its own."""
    mine = names[osd, job.object_bytes]
    return tuple(Stream(_stream_name(job, osd, number),
                        mine[number * job.nrfiles:(number + 1) * job.nrfiles], osd)
                 for number in range(job.numjobs))


def _stream_name(job: Job, osd: Optional[int], number: int) -> str:
    if osd is None:
        return str(number)
    return 'osd.%d' % osd + ('/%d' % number if job.numjobs > 1 else '')


def _interference(job: Job, osds: Sequence[int], names: Names, repeat: int) -> Tuple[Step, ...]:
    """Each OSD alone, all together, each alone again. All repetitions of a part before the next:
    after the first time together, no OSD is as it was."""
    if len(osds) < 2:
        raise BadJob('interference takes two OSDs at least')
    check_in_flight(job, job.numjobs * len(osds))
    streams = {osd: _streams(job, osd, names) for osd in osds}
    everyone = tuple(stream for osd in osds for stream in streams[osd])
    steps: List[Step] = []
    for part, each in ((ALONE, list(streams.values())), (TOGETHER, [everyone]),
                       (AGAIN, list(streams.values()))):
        steps += [Step(job, those, repetition, part)
                  for repetition in range(repeat) for those in each]
    return tuple(steps)
