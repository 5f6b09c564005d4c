# SPDX-License-Identifier: LGPL-2.1-or-later
"""Finds what a setting is now in what was seen of the cluster."""
from typing import Optional, Tuple

from .types import Kind, Seen, Setting


def present(setting: Setting, seen: Seen) -> Tuple[bool, Optional[str]]:
    """(whether it is known, its value); None: it is not set."""
    if setting.kind is Kind.FLAG:
        return True, setting.put if setting.name in seen.flags else None
    if setting.kind is Kind.AFFINITY:
        affinity = seen.affinities.get(int(setting.name))
        # An OSD that is gone has none, and needs none back.
        return True, None if affinity is None else '%g' % affinity
    if seen.config is None:
        return False, None
    for entry in seen.config:
        if entry.name == setting.name and entry.who == setting.who:
            return True, entry.value
    return True, None
