# SPDX-License-Identifier: LGPL-2.1-or-later
"""Why an OSD is called slow, in words."""
from .comparison import Finding
from .recent import CHANNELS

#: Loads within this factor are the same to a reader.
SAME_LOAD = 1.2


def describe(finding: Finding, seconds: float) -> str:
    """As in "store commits 3.1 ms against 0.4 +- 0.05 of 11 peers for 90 s at the same load"."""
    found = finding.comparison
    load = 'at the same load'
    if not 1 / SAME_LOAD < found.load_ratio < SAME_LOAD:
        load = 'at %s times the load' % figure(found.load_ratio)
    return '%s %s ms against %s +- %s of %d peers for %s %s' % (
        CHANNELS[finding.channel], figure(found.ms), figure(found.expected_ms),
        figure(found.spread_ms), found.peers, duration(seconds), load)


def figure(value: float) -> str:
    """Two significant digits, or all before the point."""
    return '%.0f' % value if value >= 10 else '%.2g' % value


def duration(seconds: float) -> str:
    if seconds < 120:
        return '%d s' % seconds
    return '%d min' % (seconds / 60) if seconds < 7200 else '%.1f h' % (seconds / 3600)
