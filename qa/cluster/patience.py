# SPDX-License-Identifier: LGPL-2.1-or-later
"""How much longer things take on a machine that does other things as well."""
import os

#: What deadlines are multiplied by; 1 is for a machine of one's own.
PATIENCE = float(os.environ.get('PERFGUARD_PATIENCE', '1'))


def patient(seconds: float) -> float:
    """A deadline that was chosen on an idle machine, for this one."""
    return seconds * PATIENCE
