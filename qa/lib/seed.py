# SPDX-License-Identifier: LGPL-2.1-or-later
"""The seed of all random choices of tests: each run prints it, and PERFGUARD_SEED repeats it.

    names = chance('power loss').sample(names, len(names))
"""
import os
import random
import time

VARIABLE = 'PERFGUARD_SEED'
#: In the environment, so that all workers of a run have the same one.
SEED = int(os.environ.setdefault(VARIABLE, str(time.time_ns() % 1000000)))


def chance(what: str) -> random.Random:
    """Choices that depend on the seed and on what is chosen, but on no other test."""
    return random.Random('%d %s' % (SEED, what))
