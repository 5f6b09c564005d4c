# SPDX-License-Identifier: LGPL-2.1-or-later
"""Values of options as they stand in the configuration database."""
from typing import Optional


def same_value(one: Optional[str], other: Optional[str]) -> bool:
    """Whether two values are the same to a daemon: the mons write 0.1 as "0.100000".

    None: not set.
    """
    if one is None or other is None:
        return one is other
    try:
        return float(one) == float(other)
    except ValueError:
        return one.strip() == other.strip()
