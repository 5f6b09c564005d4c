# SPDX-License-Identifier: LGPL-2.1-or-later
"""Is an OSD slow? One question, three horizons, with all their times and thresholds.

========  ==================================  ========================  ============================
horizon   what is compared with what          slow after; healthy       for
                                              after
========  ==================================  ========================  ============================
now       client reads of one report, with    two reports (10 s);       releases, and the throttle:
          the OSD's own baseline and with     30 s                      who gets no PG, and whose
          the other OSDs in the same report                             latency does not count
minutes   all operations of a minute, with    35 s to 4 minutes, by     ``PERFGUARD_SLOW_OSD``,
          those of peers at the same load     how slow; 1 minute        mitigation, probes
half a    each report, with peers at the      4 minutes of slow time    ``PERFGUARD_OSD_CHRONIC``,
day       same load; slow seconds as a share  in three episodes, or 21  mitigation, probes
                                              minutes in all; a day
========  ==================================  ========================  ============================

They cannot be one. The first horizon decides before the next release, so it cannot wait for a
minute; if it is wrong, a PG is released 30 s later. It reads only what clients read, with the limit
that the operator has set. Health checks and primary affinities must not be wrong, so the second
horizon waits until chance, a stall or a compaction is excluded. It also sees writes, replicas and
stores. A drive that is slow for a few seconds of each minute has a healthy median in every minute:
only the third horizon finds it.

The first is judged while a campaign moves data, and published with it (``Pace.slow_reads``). The
others are always judged, and published as ``Watched.slow_osds``.

slow_reads.py, slow_osds.py and chronic.py have the rules, peers.py the comparison with peers.
"""
import math
from dataclasses import dataclass

#: Standard deviation of the latency of one operation over its mean, unless it is measured. An
#: exponential distribution has 1, idle flash 0.6 to 0.9, disks and compactions more: a lognormal
#: distribution with sigma 1.3 has 2.1.
OP_SPREAD = math.sqrt(2.0)
#: Maximum share of the OSDs of a class (or, for releases, of all OSDs, or of those of PGs in
#: flight) that are slow at once because of themselves. If more are, the cause is the load, movement
#: or the kind of device, and naming OSDs would mislead.
CROWD_PART = 1 / 4

# ---- Now (slow_reads.py)

#: Seconds after the last reading over the limit until an OSD gets releases again.
RESUME_SECONDS = 30.0
#: Reads that are slow for this time after the last PG moved there are slow for another reason. An
#: OSD gets no release for at most this time while readings are inconclusive.
UNTOUCHED_SECONDS = 180.0
#: Time in which the OSD then gets releases regardless of its latency, and in which the throttle
#: takes no other latency of a pool for its new baseline.
EXEMPT_SECONDS = 3600.0
#: Minimum number of reads of an OSD in one reading. An OSD that hardly answers has few; of so few,
#: only a latency of many times the limit is significant.
LEAST_READS = 5
#: The alarm of a pool outlasts the slow OSDs that have caused it: it judges the last minute, and is
#: cleared after another minute (watch/pools.py).
ALARM_SECONDS = 150.0

# ---- Minutes (slow_osds.py)

#: Time constant of the counts, in seconds with operations.
MEMORY_SECONDS = 12 * 3600.0


@dataclass(frozen=True)
class SlowSettings:
    #: Slowdown from which an OSD is slow.
    ratio: float = 1.5
    #: Slowdown below which it is healthy again.
    clear_ratio: float = 1.25
    #: Length of the window that is judged, whose median takes half of it to rise, and how long the
    #: slowness must last then. A compaction of a minute is not reported.
    seconds: float = 60.0
    #: Time constant of the counts of chronically slow OSDs.
    memory_seconds: float = MEMORY_SECONDS


#: Seconds without evidence after which a flag is dropped.
FORGET_SECONDS = 600.0
#: How much longer an OSD that backfills or deep scrubs must be slow.
BUSY_PATIENCE = 3.0
#: An OSD is reported after this time if each of its means is SURE_RATIO times that of its peers.
#: This applies only while all PGs are active and clean: a stall of one operation, or of one PG that
#: peers, is shorter, but PGs may peer one after another. It does not depend on the length of the
#: window, because the length of stalls does not either.
QUICK_SECONDS = 35.0
#: Maximum time for which an alarm waits until the work of its OSD is read. On large clusters that
#: is read every few minutes, and an OSD that has begun to deep scrub is slow.
WORK_SECONDS = 600.0
#: Time that a reading of replicated writes covers: when a reading is fast, they have been fast for
#: that time. If they alone are slow for longer than two readings take to pass, other operations do
#: not show when the OSD has recovered.
REPLICATED_SECONDS = 30.0
LATE_SECONDS = 3 * REPLICATED_SECONDS

# ---- Half a day (chronic.py)
#
# These values were chosen with the traces of qa/bench (bench_slow_osd --chronic): all drives that
# are slow for 3 to 20 % of the time are found, and no healthy drive with a heavy tail or
# compactions. Times apply to a memory of MEMORY_SECONDS, and scale with it.

#: Slowdown from which an interval is slow.
CHRONIC_RATIO = 2.5
#: Slowdown from which an interval is slow, as a multiple of the baseline of the OSD's own slowdown.
#: A healthy drive that is 1.8 times as slow as its peers at all times reaches CHRONIC_RATIO in the
#: intervals in which they take 1.4 times as long. Baselines count up to MOST_BASELINE, so that 4
#: times its peers is slow for any OSD.
CHRONIC_OWN_RATIO = 2.0
MOST_BASELINE = 2.0
#: Standard deviations of the mean of an interval; means of 8 operations vary by half.
NOISE_DEVIATIONS = 3.0
#: Minimum of slow seconds of a chronically slow OSD (2.5 % of the memory), minimum share of slow
#: seconds, and minimum ratio to the median share of the peers, which all have compactions.
LEAST_SLOW_SECONDS = 1080.0
LEAST_SHARE = 0.025
PEERS_SHARES = 3.0
#: The recent past has a memory of its own, as a share of MEMORY_SECONDS: an OSD that begins to be
#: slow would otherwise have to make up for half a day in which it was not. Minimum of slow seconds
#: within it.
RECENT_MEMORY = 1 / 24
RECENT_SLOW_SECONDS = 240.0
#: Slow seconds of an OSD that is slow all the time, in any number of episodes; and the minimum of
#: that for shorter memories.
LASTING_SECONDS = 1260.0
LEAST_LASTING_SECONDS = 240.0
#: Slowdown of the intervals that also count while an OSD is reported as slow: it is, by the median
#: of a minute, for minutes.
REPORTED_RATIO = 1.25
#: Minimum number of episodes.
LEAST_EPISODES = 3
#: Minimum length of an episode, for any memory, and time without a slow interval that ends it.
EPISODE_SECONDS = 10.0
GAP_SECONDS = 60.0
#: Slow seconds in fewer episodes that may recur each day: a drive that is slow in working hours.
LONG_EPISODE_SECONDS = 3600.0
#: Cleared after this time since the last episode, with operations for at least the latter time,
#: which is enough after fewer than LEAST_EPISODES with fewer than LONG_EPISODE_SECONDS.
CLEAR_SECONDS = 86400.0
CLEAR_EVIDENCE_SECONDS = 6 * 3600.0
#: Time without operations after which an OSD is forgotten.
FORGET_CHRONIC_SECONDS = 14 * 86400.0
#: Minimum evidence of peers whose share counts.
PEERS_SECONDS = 300.0
#: Seconds between two judgements (with a shorter memory, less), and maximum of an interval.
JUDGE_SECONDS = 60.0
LONGEST_SECONDS = 120.0
