# SPDX-License-Identifier: LGPL-2.1-or-later
"""How throughput grows with the number of OSDs, from a run on 1, 2, 4 ... of them at a time.

Linear is one OSD times their number. What is missing at a number is what these OSDs share: hosts,
network, the OSDs of their replicas, or the client.
"""
from typing import Dict, List, NamedTuple, Sequence, Tuple

from ..errors import InvalidValue
from .curve import Measure, measure_of
from .records import RunRecord
from .stats import Key, Repetition, label, measured

#: Kind of the target of such a run.
SCALE = 'scale'
#: Share of linear throughput below which a number of OSDs is a finding.
LINEAR = 0.8


class NoScaling(InvalidValue):
    """The run was made without --scale, or too little of it is complete; one line."""


class ScalePoint(NamedTuple):
    #: Number of OSDs at the same time.
    osds: int
    #: Of all of them together.
    iops: Measure
    #: Of an operation, on all of them.
    latency_ns: Measure
    #: Throughput as a share of that of the fewest OSDs times the number.
    linear: float
    client_limited: bool


class Scaling(NamedTuple):
    #: "randwrite 4096 write"
    label: str
    direction: str
    points: Tuple[ScalePoint, ...]
    notes: Tuple[str, ...]


def scalings(record: RunRecord) -> Tuple[Scaling, ...]:
    """By direction; raises NoScaling if fewer than two numbers of OSDs were measured."""
    if record.target.kind != SCALE:
        raise NoScaling('probe %d did not measure growing numbers of OSDs: run "probe run '
                        '--scale --osd all"' % record.id)
    families: Dict[Key, Dict[int, List[List[Repetition]]]] = {}
    for key, repetitions in measured(record.done).items():
        family = families.setdefault(key._replace(osd=None, part=''), {})
        family.setdefault(int(key.part), []).append(repetitions)
    # A number of which an OSD has done nothing is no sum.
    found = tuple(_scaling(key, {osds: rows for osds, rows in family.items()
                                 if len(rows) == osds}) for key, family in families.items())
    if not found or any(len(each.points) < 2 for each in found):
        raise NoScaling('probe %d has too few results' % record.id)
    return found


def _scaling(key: Key, family: Dict[int, List[List[Repetition]]]) -> Scaling:
    sums = {osds: _sums(rows) for osds, rows in sorted(family.items())}
    points: List[ScalePoint] = []
    for osds, repetitions in sums.items():
        iops = measure_of(repetitions, lambda each: each.iops)
        first = points[0] if points else None
        linear = 1.0 if first is None else (
            iops.median / osds) / (first.iops.median / first.osds)
        points.append(ScalePoint(osds, iops, measure_of(
            repetitions, lambda each: each.latency_ns), linear,
            any(each.client_limited for each in repetitions)))
    words = key.job
    return Scaling(label(key, '%s %d' % (words.rw, words.bs)), key.direction, tuple(points),
                   tuple(_notes(points)))


def _sums(rows: Sequence[Sequence[Repetition]]) -> List[Repetition]:
    """All OSDs of a repetition together; latency by operation."""
    found: List[Repetition] = []
    for together in zip(*rows):
        iops = sum(each.iops for each in together)
        found.append(Repetition(
            together[0].name, iops, sum(each.bytes_per_second for each in together),
            sum(each.iops * each.latency_ns for each in together) / iops,
            max(each.p99_ns for each in together), (),
            any(each.client_limited for each in together)))
    return found


def _notes(points: Sequence[ScalePoint]) -> List[str]:
    notes = []
    under = next((point for point in points if point.linear < LINEAR), None)
    if under is not None:
        notes.append('less than %.0f %% of linear from %d OSDs on' % (100 * LINEAR, under.osds))
    limited = [str(point.osds) for point in points if point.client_limited]
    if limited:
        notes.append('the CPU of the probe process was the bottleneck with %s OSDs: the cluster '
                     'may be faster' % ', '.join(limited))
    return notes
