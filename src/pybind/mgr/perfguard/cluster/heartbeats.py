# SPDX-License-Identifier: LGPL-2.1-or-later
"""Heartbeat ping times of OSDs, read from a few of their peers at a time.

ceph-mgr knows the times of all pairs, but converts all of them to Python objects at once, which
takes 50 ms with 60 OSDs and far too long with 1,000.
"""
import json
from typing import Dict, List, Mapping, Optional, Sequence, Tuple

from .osd_commands import OsdCommands
from .types import LONGEST_OP_SECONDS

TOPIC = 'pings'
COMMAND = {'prefix': 'dump_osd_network', 'value': 0}
#: Number of OSDs that are asked at the same time, and the interval, which is shorter while PGs are
#: laggy.
ASKED = 4
ROUND_SECONDS = 60.0
URGENT_SECONDS = 10.0
#: Maximum age of a ping time.
KEEP_SECONDS = 600.0


class PingTimes:
    """Ping times of all OSDs, as the median over their reporters."""

    def __init__(self, asking: OsdCommands) -> None:
        self._asking = asking
        #: OSD -> reporter -> (time, ms)
        self._times: Dict[int, Dict[int, Tuple[float, float]]] = {}
        self._asked_at = float('-inf')
        self._last = -1

    def take(self, now: float, alive: Sequence[int],
             laggy: Sequence[int]) -> Optional[Mapping[int, float]]:
        """Milliseconds by OSD, median of its reporters; None without new answers.

        `laggy`: OSDs with laggy PGs. They share PGs with the OSD that causes them, so they ping it.
        """
        fresh = self._collect()
        if now - self._asked_at >= (URGENT_SECONDS if laggy else ROUND_SECONDS):
            self._asked_at = now
            self._asking.ask(TOPIC, self._next(laggy or alive), COMMAND)
        return self._medians(now) if fresh else None

    def _next(self, osds: Sequence[int]) -> List[int]:
        waiting = sorted(osds, key=lambda osd: (osd <= self._last, osd))
        chosen = waiting[:max(0, ASKED - len(self._asking.asked(TOPIC)))]
        if chosen:
            self._last = chosen[-1]
        return chosen

    def _collect(self) -> bool:
        fresh = False
        for answer in self._asking.answers(TOPIC, ping_times):
            fresh = True
            for osd, ms in answer.parsed.items():
                self._times.setdefault(osd, {})[answer.osd] = (answer.asked, ms)
        return fresh

    def _medians(self, now: float) -> Dict[int, float]:
        found: Dict[int, float] = {}
        for osd, reporters in list(self._times.items()):
            for reporter, (when, _) in list(reporters.items()):
                if now - when > KEEP_SECONDS:
                    del reporters[reporter]
            if not reporters:
                del self._times[osd]
                continue
            times = sorted(ms for _, ms in reporters.values())
            found[osd] = times[len(times) // 2]
        return found


def ping_times(out: str) -> Dict[int, float]:
    """From ``dump_osd_network``: ping times of the peers of an OSD in ms.

    The slower one of the interfaces (front and back) counts.
    """
    found: Dict[int, float] = {}
    for entry in json.loads(out)['entries']:
        peer = int(entry['to osd'])
        ms = float(entry['last'])
        if 0.0 <= ms <= 1000.0 * LONGEST_OP_SECONDS:
            found[peer] = max(found.get(peer, 0.0), ms)
    return found
