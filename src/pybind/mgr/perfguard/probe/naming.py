# SPDX-License-Identifier: LGPL-2.1-or-later
"""Names of a run's objects: they follow from the run, the size, and the PGs that an OSD leads.

Only these are sent to the worker and journalled. So the mgr never computes a name, and objects
are removed by name: a pool is not listed for them, however many objects it holds.
"""
import base64
import json
import zlib
from dataclasses import dataclass
from typing import Any, Dict, Iterable, Iterator, Mapping, Optional, Sequence, Tuple

from .placement import MAX_TRIES, led_by, names_by_osd, too_few
from .types import PREFIX, BadJob, Job, Json, Step, Stream, Target

#: OSD (None: any) and bytes of an object -> names of such objects.
Names = Mapping[Tuple[Optional[int], int], Tuple[str, ...]]
#: Names that are tried for each that is found, beyond what the share of the PGs asks for: the last
#: PG to get one of its own takes longest.
TRIES_MARGIN = 3.0


@dataclass(frozen=True)
class Naming:
    run: int
    #: Bytes of an object -> how many such objects the pool, or each OSD, gets.
    wanted: Tuple[Tuple[int, int], ...]
    pool_id: int = -1
    pg_num: int = 0
    #: OSD -> the PGs that it leads; empty: objects lie anywhere.
    leads: Tuple[Tuple[int, Tuple[int, ...]], ...] = ()


def run_prefix(run_id: int) -> str:
    """What the names of all objects of a run begin with."""
    return '%s%d-' % (PREFIX, run_id)


def objects_wanted(jobs: Iterable[Job]) -> Dict[int, int]:
    """Bytes of an object -> how many such objects the largest job works on."""
    wanted: Dict[int, int] = {}
    for job in jobs:
        wanted[job.object_bytes] = max(wanted.get(job.object_bytes, 0), job.numjobs * job.nrfiles)
    return wanted


def naming_of(run_id: int, jobs: Sequence[Job], target: Target,
              leads: Optional[Mapping[str, int]], pool_id: int, pg_num: int) -> Naming:
    """`leads`: PG -> the OSD that leads it; wanted where the target is OSDs.

    BadJob if an OSD leads no PG, or too few to find names that go there.
    """
    wanted = objects_wanted(target.jobs(jobs))
    if leads is None:
        return Naming(run_id, tuple(wanted.items()))
    led = led_by(pool_id, pg_num, leads, target.osds)
    for osd, pgs in led.items():
        for count in wanted.values():
            if TRIES_MARGIN * count * pg_num > MAX_TRIES * len(pgs):
                raise BadJob(too_few(osd, len(pgs), count, pg_num))
    return Naming(run_id, tuple(wanted.items()), pool_id, pg_num,
                  tuple((osd, tuple(pgs)) for osd, pgs in led.items()))


def names_of(naming: Naming) -> Names:
    """Takes some 4 us of one core for each name that is tried: not for the mgr."""
    found: Dict[Tuple[Optional[int], int], Tuple[str, ...]] = {}
    led = {osd: list(pgs) for osd, pgs in naming.leads}
    for size, count in naming.wanted:
        prefix = '%s%d-' % (run_prefix(naming.run), size)
        if not led:
            found[None, size] = tuple(prefix + str(number) for number in range(count))
            continue
        for osd, names in names_by_osd(prefix, naming.pg_num, led, count).items():
            found[osd, size] = names
    return found


def all_names(naming: Naming) -> Iterator[str]:
    """In the same order each time."""
    for names in names_of(naming).values():
        yield from names


def named(steps: Sequence[Step], naming: Naming) -> Tuple[Step, ...]:
    """The steps with objects for each stream, of its own within a step."""
    names = names_of(naming)
    return tuple(_named(step, names) for step in steps)


def _named(step: Step, names: Names) -> Step:
    job = step.job
    taken: Dict[Optional[int], int] = {}
    streams = []
    for stream in step.streams:
        begin = taken.get(stream.osd, 0)
        taken[stream.osd] = begin + job.nrfiles
        mine = names[stream.osd, job.object_bytes][begin:begin + job.nrfiles]
        streams.append(Stream(stream.name, mine, stream.osd))
    return Step(job, tuple(streams), step.repetition, step.part)


# ---- JSON

def naming_to_json(naming: Naming) -> Json:
    """PGs in compressed form: all OSDs of a pool of 65,536 PGs take 400 kB otherwise."""
    leads = zlib.compress(json.dumps([[osd, _steps_between(pgs)] for osd, pgs in naming.leads],
                                     separators=(',', ':')).encode())
    return {'run': naming.run, 'wanted': [list(each) for each in naming.wanted],
            'pool_id': naming.pool_id, 'pg_num': naming.pg_num,
            'leads': base64.b64encode(leads).decode()}


def naming_from_json(raw: Mapping[str, Any]) -> Naming:
    """ValueError, TypeError, LookupError or zlib.error where it is none."""
    leads = json.loads(zlib.decompress(base64.b64decode(raw['leads'])))
    return Naming(int(raw['run']), tuple((int(size), int(count)) for size, count in raw['wanted']),
                  int(raw['pool_id']), int(raw['pg_num']),
                  tuple((int(osd), _added_up(pgs)) for osd, pgs in leads))


def _steps_between(pgs: Sequence[int]) -> Sequence[int]:
    return [pg - before for before, pg in zip((0, *pgs), pgs)]


def _added_up(differences: Sequence[int]) -> Tuple[int, ...]:
    found, pg = [], 0
    for difference in differences:
        pg += int(difference)
        found.append(pg)
    return tuple(found)
