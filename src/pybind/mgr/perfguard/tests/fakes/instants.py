# SPDX-License-Identifier: LGPL-2.1-or-later
"""Instants of a story at which tests make the mgr or its API fail."""
import os
import random
from typing import Sequence

#: Number of them by day. The crash matrix and PERFGUARD_CRASHES=1, at night, try more.
SAMPLE = 8


def instants(total: int, story: object) -> Sequence[int]:
    """Of the instants 1 to `total`: all of them with PERFGUARD_CRASHES, else a sample that is
    always the same for a story."""
    every = range(1, total + 1)
    if os.environ.get('PERFGUARD_CRASHES') or total <= SAMPLE:
        return every
    return sorted(random.Random(repr(story)).sample(every, SAMPLE))
