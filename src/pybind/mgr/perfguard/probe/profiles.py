# SPDX-License-Identifier: LGPL-2.1-or-later
"""Sets of jobs with a name. Extremes say most: 4 KiB at depth 1 (what the journal of a database
waits for), 4 KiB at depth 128 (the most operations there can be), 4 MiB at depth 16 (the most
bytes), each writing and reading."""
from typing import Mapping, Sequence, Tuple

Words = Mapping[str, str]

#: Many objects, so that small operations reach many PGs; large ones fill the objects of 4 MiB
#: that RBD and CephFS have.
_LATENCY = {'bs': '4k', 'iodepth': '1', 'size': '256m', 'nrfiles': '256'}
_IOPS = {'bs': '4k', 'iodepth': '128', 'size': '256m', 'nrfiles': '256'}
_THROUGHPUT = {'bs': '4m', 'iodepth': '16', 'size': '256m', 'nrfiles': '64'}
_LONG = {'runtime': '10', 'ramp_time': '1'}
#: 18 steps (6 jobs, 3 repetitions) of this are 43 s, which leaves 15 s for making a pool, filling
#: it and clearing up.
_QUICK = {'size': '64m', 'runtime': '2', 'ramp_time': '400ms'}


def _random(words: Words) -> Tuple[Words, ...]:
    return {'rw': 'randwrite', **words}, {'rw': 'randread', **words}


def _linear(words: Words) -> Tuple[Words, ...]:
    return {'rw': 'write', **words}, {'rw': 'read', **words}


PROFILES: Mapping[str, Sequence[Words]] = {
    'latency': _random({**_LATENCY, **_LONG}),
    'iops': _random({**_IOPS, **_LONG}),
    'throughput': _linear({**_THROUGHPUT, **_LONG}),
    'quick': (*_random({**_LATENCY, **_QUICK}), *_random({**_IOPS, **_QUICK}),
              *_linear({**_THROUGHPUT, **_QUICK, 'nrfiles': '16'})),
}
DEFAULT_PROFILE = 'quick'
#: Three runs or more, of which the median is told.
DEFAULT_REPEAT = 3
MAX_REPEAT = 20


def default_repeat(profile: str) -> int:
    """How often each job of a profile is repeated; of jobs that stand by themselves: once."""
    return DEFAULT_REPEAT if profile else 1
