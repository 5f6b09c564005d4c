# SPDX-License-Identifier: LGPL-2.1-or-later
"""The seed of examples that differ from run to run."""
import os
import time

VARIABLE = 'PERFGUARD_SEED'
#: In the environment, so that all workers of a run have the same one.
SEED = int(os.environ.setdefault(VARIABLE, str(time.time_ns() % 1000000)))
#: Whether this run draws other examples than the last one.
FRESH = 'PERFGUARD_FUZZ' in os.environ or 'PERFGUARD_STORIES' in os.environ
