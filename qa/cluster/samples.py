# SPDX-License-Identifier: LGPL-2.1-or-later
"""Latency samples: their file format, and percentiles over any interval.

Every operation is kept, so that the percentiles of a phase are exact and phases can be chosen
after the fact. Time is that at which an operation was SCHEDULED to start: an operation that a
stall delayed belongs to the phase that stalled it, and its latency includes the delay.
"""

import math
import struct
from pathlib import Path
from typing import Dict, Iterable, Iterator, List, NamedTuple, Optional, Sequence

READ = 0
WRITE = 1
KINDS = {'read': READ, 'write': WRITE}

OK = 0
ERROR = 1
# In flight when the file was written; the latency is the time until then.
UNFINISHED = 2

PERCENTILES = {'p50': 0.5, 'p95': 0.95, 'p99': 0.99, 'p999': 0.999}

_RECORD = struct.Struct('<dfHH')


class Sample(NamedTuple):
    """One operation: seconds since the epoch, milliseconds, READ or WRITE, OK or not."""

    scheduled: float
    latency_ms: float
    kind: int
    status: int


def pack(samples: Iterable[Sample]) -> bytes:
    """Samples in the format of a file."""
    return b''.join(_RECORD.pack(*sample) for sample in samples)


def read_file(path: Path) -> Iterator[Sample]:
    """The samples of a file, without an incomplete last one: the file may be growing."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return
    whole = len(data) - len(data) % _RECORD.size
    for fields in _RECORD.iter_unpack(data[:whole]):
        yield Sample(*fields)


def quantile(ordered: Sequence[float], fraction: float) -> float:
    """The nearest-rank quantile of ascending values, which is one of the values."""
    return ordered[max(0, math.ceil(fraction * len(ordered)) - 1)]


def percentiles_ms(latencies: Iterable[float]) -> Dict[str, float]:
    """The percentiles and the maximum; empty without values."""
    ordered = sorted(latencies)
    if not ordered:
        return {}
    found = {name: quantile(ordered, fraction) for name, fraction in PERCENTILES.items()}
    found['max'] = ordered[-1]
    return found


def summarise(samples: Iterable[Sample], t0: float, t1: float,
              kind: Optional[str] = None) -> Dict[str, float]:
    """Percentiles in ms of the operations scheduled in [t0, t1), of one kind or of both.

    An unfinished operation counts with the time so far, a lower bound. A failed one has no latency
    and only counts in ``errors``. Without any operation, the result only contains ``count`` 0.
    """
    wanted = None if kind is None else KINDS[kind]
    latencies: List[float] = []
    errors = unfinished = 0
    for sample in samples:
        if not t0 <= sample.scheduled < t1 or wanted not in (None, sample.kind):
            continue
        if sample.status == ERROR:
            errors += 1
            continue
        unfinished += sample.status == UNFINISHED
        latencies.append(sample.latency_ms)
    return {'count': len(latencies), 'errors': errors, 'unfinished': unfinished,
            **percentiles_ms(latencies)}
