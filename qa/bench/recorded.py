# SPDX-License-Identifier: LGPL-2.1-or-later
"""Recorded traces of drives, read from CSV files as the bench's Trace.

Each file of a directory (*.csv, *.csv.gz) is a cluster. Its first line names the columns, of which
four are needed; those in parentheses are other names of them:

    time (timestamp, ts)            seconds since the epoch
    drive (osd, disk, device, dev)  any name
    throughput (ops, iops)          operations per second
    latency (latency_ms)            mean milliseconds of an operation

and these are used: kind (reads, writes, commits, store reads; without it all is commits), host
(node), class, model, slow (1 in the rows of a drive that is known to be slow, from then on).
`perfguard history --export` prints such files. Readings are put on a grid of the usual interval; of
two in the same place the later one counts.

A directory with cluster_*/host_*/DAY.csv and slow_drive_info.csv is read as well: the recordings
that Lu et al. published with Perseus (FAST 2023), each cluster as one trace.
"""
import csv
import gzip
from pathlib import Path
from typing import AbstractSet, Dict, Iterator, List, NamedTuple, Optional, TextIO, Tuple

import numpy as np

from perfguard.cluster.types import OsdPlace

from .traces import Array, Case, Trace

NAMES = {'time': ('timestamp', 'ts'), 'drive': ('osd', 'disk', 'device', 'dev'),
         'throughput': ('ops', 'iops'), 'latency': ('latency_ms',), 'host': ('node',),
         'kind': (), 'class': ('device_class',), 'model': (), 'slow': ('label',)}
NEEDED = ('time', 'drive', 'throughput', 'latency')
KINDS = {'reads': 'read', 'writes': 'write', 'commits': 'commit', 'store reads': 'store_read'}
#: The published recordings have bytes instead of operations; an assumption.
BYTES_PER_OP = 16384
#: The flows of a Trace.
FLOWS = ('read', 'write', 'own_write', 'commit', 'store_read')


class Row(NamedTuple):
    time: float
    drive: str
    rate: float
    ms: float
    flow: str
    host: str
    device_class: str
    model: str
    slow: bool


def load(directory: Path) -> Iterator[Trace]:
    """A trace for each file or published cluster, in order of their names."""
    clusters = sorted(directory.glob('cluster_*'))
    if clusters:
        slow_drives = _published_labels(directory / 'slow_drive_info.csv')
        for cluster in clusters:
            yield trace_of(cluster.name, list(_published_rows(cluster, slow_drives)))
        return
    files = sorted([*directory.glob('*.csv'), *directory.glob('*.csv.gz')])
    if not files:
        raise ValueError('no *.csv or *.csv.gz in %s' % directory)
    for path in files:
        with gzip.open(path, 'rt') if path.suffix == '.gz' else path.open() as file:
            yield trace_of(path.name, list(rows(file, path.name)))


def _published_labels(path: Path) -> AbstractSet[Tuple[str, str, str]]:
    """The cluster, host and drive of each drive that is labelled as slow."""
    with path.open() as file:
        return {(row['cluster'], row['host_name'], row['disk_id'])
                for row in csv.DictReader(file)}


def _published_rows(cluster: Path,
                    slow_drives: AbstractSet[Tuple[str, str, str]]) -> Iterator[Row]:
    """The readings of a published cluster: throughput in bytes per second, latency in microseconds;
    NA: there is none."""
    for path in sorted(cluster.glob('host_*/[0-9]*.csv')):
        host = path.parent.name
        with path.open() as file:
            for row in csv.DictReader(file):
                throughput, latency, drive = row['throughput'], row['latency'], row['disk_id']
                if 'NA' not in (throughput, latency):
                    yield Row(float(row['ts']), '%s/%s' % (host, drive),
                              float(throughput) / BYTES_PER_OP, float(latency) / 1000, 'commit',
                              host, '', '', (cluster.name, host, drive) in slow_drives)


def rows(file: TextIO, name: str) -> Iterator[Row]:
    reader = csv.reader(file)
    columns = _columns(next(reader, []), name)
    for number, line in enumerate(reader, 2):
        if line:
            try:
                yield _row(line, columns)
            except (ValueError, LookupError) as error:
                raise ValueError('%s, line %d: %s' % (name, number, error)) from None


def _columns(header: List[str], name: str) -> Dict[str, int]:
    """Name -> place."""
    given = [each.strip().lower() for each in header]
    found: Dict[str, int] = {}
    for column, others in NAMES.items():
        for each in (column, *others):
            if each in given:
                found.setdefault(column, given.index(each))
    missing = [column for column in NEEDED if column not in found]
    if missing:
        raise ValueError('%s has no column %s' % (name, ', '.join(missing)))
    return found


def _row(line: List[str], columns: Dict[str, int]) -> Row:
    def text(column: str) -> str:
        return line[columns[column]].strip() if column in columns else ''

    return Row(float(text('time')), text('drive'), float(text('throughput') or 0),
               float(text('latency') or 0), KINDS[text('kind') or 'commits'],
               text('host') or 'node', text('class'), text('model'),
               text('slow').lower() in ('1', 'true', 'yes'))


def trace_of(name: str, found: List[Row]) -> Trace:
    drives = sorted({row.drive for row in found})
    number = {drive: osd for osd, drive in enumerate(drives)}
    times, beat = _grid(found)
    place = {time: index for index, time in enumerate(times.tolist())}
    flows = {flow: (np.zeros((len(times), len(drives))), np.zeros((len(times), len(drives))))
             for flow in FLOWS}
    onset: Optional[int] = None
    slow = set()
    for row in found:
        index, osd = place[round(row.time / beat)], number[row.drive]
        flows[row.flow][0][index, osd] = row.rate
        flows[row.flow][1][index, osd] = row.ms
        if row.slow:
            slow.add(osd)
            onset = index if onset is None else min(onset, index)
    places = {number[row.drive]: OsdPlace(number[row.drive], row.host, 'default',
                                          row.device_class, row.model) for row in found}
    case = Case(name, (), minutes=len(times) * beat / 60, beat=beat)
    return Trace(case, places, slow, len(times) if onset is None else onset, len(times), flows,
                 [{} for _ in range(len(times))], times=(times - times[0]) * beat, names=drives)


def _grid(found: List[Row]) -> Tuple[Array, float]:
    """The numbers of the intervals in which there is a reading, and their length in seconds."""
    if not found:
        raise ValueError('a trace without rows')
    times = np.unique([row.time for row in found])
    # Of one drive, since each could have a time of its own.
    own = np.unique([row.time for row in found if row.drive == found[0].drive])
    beat = max(1.0, round(float(np.median(np.diff(own))))) if len(own) > 1 else 1.0
    return np.unique(np.array([round(time / beat) for time in times.tolist()])), beat
