# SPDX-License-Identifier: LGPL-2.1-or-later
"""Metrics of probes: of each target and profile what the last run has found."""
from statistics import median
from typing import Dict, List, NamedTuple, Tuple

from ..probe.records import CANCELLED, RunRecord
from ..probe.report import Probed
from ..probe.stats import Key, Repetition, measured
from ..probe.types import Target
from .text import Sample, joined, labels

Found = Dict[str, List[Sample]]

#: Targets and profiles that are told of, those that were probed last.
MAX_SUBJECTS = 20
#: Measurements of all of them: a probe of each OSD has one for each OSD, job and direction.
MAX_MEASURED = 2000
#: OSDs that are named in a target.
MAX_NAMED = 8
#: Profile of runs whose jobs were given in words or in a file.
CUSTOM = 'custom'


class Measurement(NamedTuple):
    """One direction of one job, in the median of its repetitions."""
    labels: str
    #: Zeros where nobody measures it, as in the bench of an OSD's store.
    latency: float
    p99: float
    ops: float
    bytes: float


class ProbeMetrics:
    """Remembers what ended runs have measured, since working it out goes through every step."""

    def __init__(self) -> None:
        self._known: Dict[Tuple[int, float], Tuple[Measurement, ...]] = {}

    def samples(self, probed: Probed) -> Found:
        last, whole = _last(probed.records)
        slower = {each.run for each in probed.regressions}
        held = [(subject, record) for subject, record in whole.items()
                if probed.baselines.of(record) is not None]
        rows = self._measurements(whole)
        return {
            'probe_running': [('', probed.running is not None)],
            'probe_success': [(subject, record.ended_well) for subject, record in last.items()],
            'probe_ended_timestamp_seconds': [
                (subject, record.ended) for subject, record in last.items()],
            'probe_regression': [(subject, record.id in slower) for subject, record in held],
            'probe_latency_seconds': [(row.labels, row.latency or None) for row in rows],
            'probe_latency_p99_seconds': [(row.labels, row.p99 or None) for row in rows],
            'probe_ops_per_second': [(row.labels, row.ops) for row in rows],
            'probe_bytes_per_second': [(row.labels, row.bytes) for row in rows],
            'probe_schedule_refused': [
                (labels(schedule=each.name), bool(probed.refused.get(each.name)))
                for each in probed.schedules]}

    def _measurements(self, whole: Dict[str, RunRecord]) -> List[Measurement]:
        known: Dict[Tuple[int, float], Tuple[Measurement, ...]] = {}
        for subject, record in whole.items():
            key = (record.id, record.ended)
            known[key] = self._known[key] if key in self._known else _measure(subject, record)
        self._known = known
        return [row for rows in known.values() for row in rows][:MAX_MEASURED]


def _last(records: Tuple[RunRecord, ...]) -> Tuple[Dict[str, RunRecord], Dict[str, RunRecord]]:
    """By target and profile, the newest first: the last run, and the last that came to its end.

    One that was cancelled has found nothing, neither good nor bad.
    """
    last: Dict[str, RunRecord] = {}
    whole: Dict[str, RunRecord] = {}
    for record in reversed(records):
        if record.state == CANCELLED:
            continue
        subject = labels(target=target_text(record.target), profile=record.profile or CUSTOM)
        if subject not in last and len(last) == MAX_SUBJECTS:
            continue
        last.setdefault(subject, record)
        if record.ended_well:
            whole.setdefault(subject, record)
    return last, whole


def target_text(target: Target) -> str:
    """As `probe ls` names it, but for long lists of OSDs."""
    if len(target.osds) <= MAX_NAMED:
        return target.key
    listed = ','.join(map(str, target.osds))
    return target.key[:-len(listed)] + '%d OSDs' % len(target.osds)


def _measure(subject: str, record: RunRecord) -> Tuple[Measurement, ...]:
    return tuple(_measurement(subject, key, repetitions)
                 for key, repetitions in measured(record.done).items())


def _measurement(subject: str, key: Key, repetitions: List[Repetition]) -> Measurement:
    who = labels(job=repetitions[0].name, op=key.direction, part=key.part,
                 ceph_daemon=None if key.osd is None else 'osd.%d' % key.osd)
    return Measurement(
        joined(subject, who),
        latency=round(median(each.latency_ns for each in repetitions) / 1e9, 9),
        p99=round(median(each.p99_ns for each in repetitions) / 1e9, 9),
        ops=median(each.iops for each in repetitions),
        bytes=median(each.bytes_per_second for each in repetitions))
