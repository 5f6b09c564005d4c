# SPDX-License-Identifier: LGPL-2.1-or-later
"""Types of the watch: flows of operations, verdicts, and alarms."""
import math
from dataclasses import dataclass, field
from typing import AbstractSet, Collection, Mapping, NamedTuple, Optional, Sequence, Tuple

from ..cluster.types import OsdPlace


class Flow(NamedTuple):
    """Operations of one kind in one interval."""
    #: Operations per second.
    rate: float = 0.0
    #: Mean latency in milliseconds; undefined if the rate is 0.
    ms: float = 0.0


NO_FLOW = Flow()
#: Rate and ms, as in Flow. A plain tuple of numbers, as PlainOps.
PlainFlow = Tuple[float, float]


class OsdSample(NamedTuple):
    """Operations of one OSD in one interval (about mgr_stats_period, 5 s)."""
    osd: int
    #: Length of the interval.
    seconds: float
    #: Client operations on PGs of which this OSD is the primary, from arrival to reply. Writes
    #: include the slowest replica, operations on erasure-coded pools the other shards.
    read: PlainFlow = NO_FLOW
    write: PlainFlow = NO_FLOW
    #: The part of client writes that this OSD alone determines: from arrival until they are sent
    #: to its store and to the replicas (queue and preparation).
    own_write: PlainFlow = NO_FLOW
    #: Transactions of the OSD's store until they are committed, including those of replicas and
    #: backfill. NO_FLOW for stores that do not measure it (memstore).
    commit: PlainFlow = NO_FLOW
    #: Reads of the OSD's store.
    store_read: PlainFlow = NO_FLOW
    #: Client writes that it replicates, with the latency that it causes (osds.py).
    replica: PlainFlow = NO_FLOW


class Sizes(NamedTuple):
    """Mean bytes of the client reads of an OSD, and of client writes with those that it
    replicates; 0.0: not known."""
    read: float = 0.0
    write: float = 0.0


#: Work of an OSD besides client operations.
TARGET = 'backfill target'
SOURCE = 'backfill'
DELETION = 'deletion of PGs'
SCRUB = 'deep scrub'
#: No work, but its reads are as slow: its cache is cold.
RESTART = 'restart'


@dataclass(frozen=True)
class OsdReading:
    """What is known about the OSDs at the end of one interval."""
    #: Seconds since the epoch.
    now: float
    samples: Sequence[OsdSample]
    #: OSDs without a place are ignored.
    places: Mapping[int, OsdPlace]
    #: OSD -> TARGET, SOURCE, DELETION, SCRUB or RESTART if it has work besides client operations.
    busy: Mapping[int, str]
    #: The samples may become part of baselines.
    learning: bool = True
    #: Since the last round began, no PG has peered, moved or recovered (WatchState._settled).
    settled: bool = True
    #: OSDs with a primary affinity of 0.
    replicas_only: Collection[int] = ()
    #: OSD -> the OSDs with which it shares a PG, of slow OSDs of which that is known.
    partners: Mapping[int, AbstractSet[int]] = field(default_factory=dict)
    #: OSDs whose samples may contain operations of a probe of this module: they are not judged.
    probed: Collection[int] = ()
    #: When `busy` was read, if not now: OSDs may have begun other work since then.
    busy_read: float = math.inf
    #: OSD -> how large its operations are.
    sizes: Mapping[int, Sizes] = field(default_factory=dict)
    #: Seconds since the last one in which the loop has taken readings, of which this is the sum.
    observed: float = 0.0


class OsdVerdict(NamedTuple):
    """The conclusion about one OSD."""
    osd: int
    #: Slowdown against its peers at the same load, in the kind of operation where it is worst:
    #: about 1.0 for a healthy OSD. None without evidence (no peers, too few operations).
    score: Optional[float] = None
    slow: bool = False
    #: When the slowness began; 0.0 if the OSD is not slow.
    since: float = 0.0
    #: "writes 3.1 ms against 0.4 +- 0.05 of 11 peers for 90 s at the same load"
    why: str = ''
    #: The slow replica that alone explains the score, if there is one.
    waits_for: Optional[int] = None


class Chronic(NamedTuple):
    """An OSD that is slow for a share of the time, in repeated episodes."""
    osd: int
    #: When the first episode began, when this was raised, and when the last episode ended, in
    #: seconds since the epoch.
    since: float
    raised: float
    last: float
    #: Since the first episode: share (0 to 1) of the time with operations in which it was slow,
    #: number of episodes, and slowdown against its peers during them.
    share: float
    episodes: int
    slowdown: float
    #: "slow 9.0 % of the time since 2026-11-17 14:05:00 CET, 14 episodes, slowdown 6.1 ..."
    why: str


#: What several OSDs have in common, and may be the reason why they are slow: a key of
#: slow_parts.SHARED_KINDS, and a name; that of a device with its host, as in "h1:nvme0n1".
SharedPart = Tuple[str, str]


class SlowShared(NamedTuple):
    """A shared part of which most OSDs are slow, reported once instead of once per OSD."""
    part: SharedPart
    osds: Tuple[int, ...]
    #: Number of OSDs of the same root and class that share it, slow or not.
    size: int
    #: Devices that all of its OSDs use as well, if it is no device.
    devices: Tuple[str, ...]
    score: float
    since: float
    why: str

    @property
    def subject(self) -> str:
        return '%s %s' % self.part


class SlowPart(NamedTuple):
    """OSDs of a root and device class that are slow, and too many to be reported one by one."""
    root: str
    device_class: str
    osds: Tuple[int, ...]
    #: "4 of 12 ssd OSDs"
    what: str
    score: float
    since: float
    why: str

    @property
    def subject(self) -> str:
        """The subject in events, which does not depend on how many OSDs belong to it."""
        return 'part of the %s OSDs of root %s' % (self.device_class or 'classless',
                                                   self.root or '(none)')


# ---- Hysteresis: one bad reading raises nothing, one good reading clears nothing

class Alarm:
    """Is raised after its condition has held for some time, and cleared after it has not.

    Time is the sum of the lengths of readings, so that a gap between them raises nothing.
    """

    def __init__(self, raised: bool = False, since: float = 0.0) -> None:
        self.raised = raised
        #: When the condition began to hold, in seconds since the epoch; 0.0 if it does not hold.
        self.since = since
        self._held = 0.0
        self._not_held = 0.0

    def update(self, now: float, seconds: float, holds: Optional[bool], raise_after: float,
               clear_after: float) -> None:
        """Raise or clear the alarm by a reading of `seconds`. `holds`: whether its condition holds;
        None if the reading is inconclusive: then nothing changes. `raise_after`, `clear_after`:
        seconds for which the condition must hold, or not hold."""
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
            # An alarm that is not raised yet starts over at once.
            if not self.raised or self._not_held >= clear_after:
                self.raised = False
                self.since = 0.0
