# SPDX-License-Identifier: LGPL-2.1-or-later
"""Longer deadlines for busy machines."""
import os

#: Factor on all deadlines; 1 is for an idle machine.
PATIENCE = float(os.environ.get('PERFGUARD_PATIENCE', '1'))


def patient(seconds: float) -> float:
    """A deadline for this machine, from one for an idle machine."""
    return seconds * PATIENCE
