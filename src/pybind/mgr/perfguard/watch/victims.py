# SPDX-License-Identifier: LGPL-2.1-or-later
"""Who is slow only because another OSD is.

While writes wait for a slow replica, reads of the same objects and whatever else is queued behind
them wait as well, in a primary that has nothing wrong.
"""
from typing import Dict, List

from .comparison import Finding, Findings
from .recent import COMMITS, READS, REPLICATED, WRITES

#: What victims suffer from; the store and the writes that it replicates speak for themselves.
_SUFFERED = frozenset({READS, WRITES})
#: What waits for a write waits as long as that does, not twice as long.
FACTOR = 2.0


def without_victims(findings: Findings, ratio: float) -> Findings:
    """The findings, but not those that a replica explains which the primaries wait for."""
    causes: Dict[int, float] = {}
    for osd, found in findings.items():
        for each in found:
            if each.channel in (COMMITS, REPLICATED) and each.over(ratio):
                causes[osd] = max(causes.get(osd, 0.0), _excess_ms(each))
    if not causes:
        return findings
    kept: Dict[int, List[Finding]] = {}
    for osd, found in findings.items():
        most = max((excess for cause, excess in causes.items() if cause != osd), default=0.0)
        own = any(each.channel not in _SUFFERED and each.over(ratio) for each in found)
        kept[osd] = [each for each in found if own or each.channel not in _SUFFERED
                     or _excess_ms(each) > FACTOR * most]
    return kept


def _excess_ms(finding: Finding) -> float:
    return finding.comparison.ms - finding.comparison.expected_ms
