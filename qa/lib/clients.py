# SPDX-License-Identifier: LGPL-2.1-or-later
"""What clients notice of what a test does, phase by phase."""
from typing import Dict, Sequence, Tuple

from qa.cluster.load_control import Load

#: A name, and the times at which it began and ended.
Phase = Tuple[str, float, float]
#: Limit of p99 while PGs move, as a multiple of p99 in the first phase, which is quiet, or in ms
#: above it. The limit of the throttle, 1.5 times the baseline, is one of means: stalls of single
#: PGs are part of the slowest operations.
MOST_P99, MOST_P99_MS = 4.0, 5.0


def check_p99(load: Load, phases: Sequence[Phase]) -> None:
    """Print the latencies of all phases. No operation may fail, and p99 stays within its limit."""
    found: Dict[str, Dict[str, float]] = {}
    for name, begin, end in phases:
        print('%s: %s' % (name, load.described(begin, end)))
        found[name] = load.percentiles(begin, end)
        assert not found[name]['errors'] and not found[name]['unfinished'], found
    quiet = found[phases[0][0]]['p99']
    most = max(MOST_P99 * quiet, quiet + MOST_P99_MS)
    assert all(row['p99'] <= most for row in found.values()), (most, found)
