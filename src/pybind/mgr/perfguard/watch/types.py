# SPDX-License-Identifier: LGPL-2.1-or-later
"""What the watch works with: flows of operations, alarms, and what it concludes from them."""
from typing import NamedTuple, Optional, Tuple

from ..cluster.types import OsdPlace

__all__ = ['Alarm', 'Chronic', 'Flow', 'NO_FLOW', 'OsdPlace', 'OsdSample', 'SCRUB', 'SOURCE',
           'SlowHost', 'TARGET', 'OsdVerdict']


class Flow(NamedTuple):
    """Operations of one kind in one interval."""
    #: Operations per second.
    rate: float = 0.0
    #: Mean latency in milliseconds; means nothing where the rate is 0.
    ms: float = 0.0


NO_FLOW = Flow()


class OsdSample(NamedTuple):
    """What one OSD did in one interval (about mgr_stats_period, 5 s)."""
    osd: int
    #: Length of the interval.
    seconds: float
    #: Client operations on PGs that this OSD leads, from their arrival to their answer. For
    #: writes that includes the slowest replica, and for erasure coded pools the other shards.
    read: Flow = NO_FLOW
    write: Flow = NO_FLOW
    #: The part of the client writes that is spent in this OSD alone: from arrival until they go
    #: to its store and to the replicas (queue and preparation).
    own_write: Flow = NO_FLOW
    #: Transactions of the OSD's store until they are committed, those of replicas and of
    #: backfill included. No flow with stores that do not measure it (memstore).
    commit: Flow = NO_FLOW
    #: Reads of the OSD's store.
    store_read: Flow = NO_FLOW
    #: Client writes that it replicates, as long as they take because of it (osds.py).
    replica: Flow = NO_FLOW


#: Why an OSD has other work than its peers.
TARGET = 'backfill target'
SOURCE = 'backfill'
SCRUB = 'deep scrub'


class OsdVerdict(NamedTuple):
    """What is concluded of one OSD."""
    osd: int
    #: Times as slow as its peers at the same load, in the kind of operation where it is worst;
    #: about 1.0 for a healthy OSD, None without evidence (no peers, too few operations).
    score: Optional[float] = None
    slow: bool = False
    #: When the trouble began; 0.0 when not slow.
    since: float = 0.0
    #: "writes 3.1 ms against 0.4 +- 0.05 of 11 peers for 90 s at the same load"
    why: str = ''


class Chronic(NamedTuple):
    """An OSD that is slow for a share of the time, again and again."""
    osd: int
    #: When the first episode began, it was called so, and the last episode ended, in seconds since
    #: the epoch.
    since: float
    raised: float
    last: float
    #: Since then: share (0 to 1) of the time with operations in which it was slow, episodes, and
    #: times as slow as its peers in them.
    share: float
    episodes: int
    slowdown: float
    #: "slow 9% of the time since Tue 2026-11-17 14:05 UTC, 14 episodes, 6.1 times its peers ..."
    why: str


class SlowHost(NamedTuple):
    """A host of which all OSDs (but a few) are slow: one cause, named once."""
    host: str
    osds: Tuple[int, ...]
    score: float
    since: float
    why: str


# ---- Hysteresis: nothing is raised by one bad reading, nor cleared by one good one

class Alarm:
    """Raised once its condition has held for a while, cleared once it has not for a while.

    Time comes as the length of each reading, so that a clock that jumps raises nothing.
    """

    def __init__(self, raised: bool = False, since: float = 0.0) -> None:
        self.raised = raised
        #: When the trouble began, in seconds since the epoch; 0.0 when there is none.
        self.since = since
        self._held = 0.0
        self._not_held = 0.0

    def update(self, now: float, seconds: float, holds: Optional[bool], raise_after: float,
               clear_after: float) -> None:
        """`holds`: None where the reading tells neither way; then nothing changes."""
        if holds is None:
            return
        if holds:
            if not self.raised and not self._held:
                self.since = now - seconds
            self._held += seconds
            self._not_held = 0.0
            if self._held >= raise_after:
                self.raised = True
        else:
            self._not_held += seconds
            self._held = 0.0
            if not self.raised or self._not_held >= clear_after:
                self.raised = False
                self.since = 0.0
