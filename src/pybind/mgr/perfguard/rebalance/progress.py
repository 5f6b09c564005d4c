# SPDX-License-Identifier: LGPL-2.1-or-later
"""The remaining time of a campaign, and its limits. Pure.

The time left is an interval, from the rate of this campaign.

The rate changes: the throttle raises and lowers it, stop conditions reduce it to 0, the last batch
was of small PGs. The history itself, in which arrived bytes are counted for equal lengths of time,
shows by how much. Means over long times vary less than over short ones; batch means show by how
much (Law and Kelton, Simulation Modeling and Analysis: the variance of a mean over a time t tends
to c / t, and c is the variance of batch means times their length, whatever the correlation inside a
batch). The mean so far and the future mean both vary by chance.

That is the rate of all OSDs together. It falls when only a few OSDs have PGs left, which move one
after the other, so the OSD with most left to send or receive bounds the time as well.

Each turn has one limit, which prevents further releases. Its seconds are counted by the code of its
reason. The sums, one for each code, are part of the campaign.
"""
import math
from dataclasses import dataclass, field, replace
from typing import Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from ..codec import Time
from ..errors import Code, Reason

#: Initial length of a block, and the maximum number of blocks. At the maximum, pairs are merged.
BLOCK_SECONDS = 5.0
MOST_BLOCKS = 64
#: Numbers of batches for which the variance is computed; the widest interval is used. Fewer batches
#: are longer and less correlated, but give a less certain variance.
BATCH_NUMBERS = (4, 8)
#: Two-sided 95 % quantiles of Student's t, by degrees of freedom from 1 on. Early in a campaign the
#: batches are too short to be independent, so that the intervals hold in 9 of 10 cases.
STUDENT_95 = (12.71, 4.30, 3.18, 2.78, 2.57, 2.45, 2.36)
#: The two-sided 95 % quantile of the normal distribution, for a known variance.
NORMAL_95 = 1.96
#: The interval is limited to 1/8 to 8 times the estimate.
MOST_ERROR = math.log(8.0)


@dataclass(frozen=True)
class Arrivals:
    """Arrived bytes by blocks of equal duration in which releases were allowed."""
    #: Bytes of each complete block, and the length of a block in seconds.
    blocks: Tuple[float, ...] = ()
    length: float = BLOCK_SECONDS
    #: The current, incomplete block.
    seconds: float = 0.0
    bytes: float = 0.0
    #: Sum over all PGs of their seconds in flight, and seconds with PGs in flight.
    flown: float = 0.0
    busy: float = 0.0

    @property
    def whole_seconds(self) -> float:
        return self.length * len(self.blocks) + self.seconds

    @property
    def whole_bytes(self) -> float:
        return sum(self.blocks) + self.bytes


class Eta(NamedTuple):
    """Seconds of work left: the estimate, and an interval that holds in 9 of 10 cases."""
    seconds: float
    low: float
    high: float


def advance(arrivals: Arrivals, seconds: float, arrived: float, in_flight: int = 0) -> Arrivals:
    """The arrivals after these seconds, in which these bytes arrived, and so many PGs were in
    flight."""
    blocks, length = list(arrivals.blocks), arrivals.length
    block_seconds, block_bytes = arrivals.seconds + seconds, arrivals.bytes + arrived
    while block_seconds >= length:
        part = block_bytes * length / block_seconds
        blocks.append(part)
        block_seconds, block_bytes = block_seconds - length, block_bytes - part
        if len(blocks) >= MOST_BLOCKS:
            blocks = [first + second for first, second in zip(blocks[::2], blocks[1::2])]
            length *= 2
    return Arrivals(tuple(round(block) for block in blocks), length, round(block_seconds, 3),
                    round(block_bytes), round(arrivals.flown + in_flight * seconds, 3),
                    round(arrivals.busy + (seconds if in_flight else 0.0), 3))


def path_seconds(arrivals: Arrivals, bytes_left: float) -> float:
    """Seconds until these bytes have moved one PG at a time, at the speed of a PG so far; 0.0 while
    that is unknown."""
    if arrivals.whole_bytes <= 0 or arrivals.busy <= 0:
        return 0.0
    idle = max(1.0, arrivals.whole_seconds / arrivals.busy)
    return bytes_left * arrivals.flown / arrivals.whole_bytes * idle


def remaining(arrivals: Arrivals, bytes_left: float, pgs_done: int, pgs_left: int,
              slowest: float = 0.0) -> Optional[Eta]:
    """The time that the campaign still needs, by its speed so far. None before the first arrival.

    `slowest`: seconds that the OSD with the most left needs on its own (path_seconds).
    """
    if bytes_left <= 0:
        return _of_empty_pgs(arrivals, pgs_done, pgs_left)
    done, elapsed_seconds = arrivals.whole_bytes, arrivals.whole_seconds
    if done <= 0 or elapsed_seconds <= 0:
        return None
    overall = bytes_left * elapsed_seconds / done
    seconds = max(overall, slowest)
    error = min(MOST_ERROR, _error(arrivals, seconds, pgs_done, pgs_left))
    recent_seconds = _by_recent_rate(arrivals, bytes_left)
    bounds = [seconds * math.exp(-error), seconds * math.exp(error)]
    if recent_seconds is not None:
        # If the recent rate is higher, the slowest OSD may be faster as well: twofold at most.
        slowest *= max(0.5, min(1.0, recent_seconds / overall))
        # The recent rate widens the interval at most twofold at either end.
        bounds += [max(bounds[0] / 2, recent_seconds * math.exp(-error)),
                   min(bounds[1] * 2, recent_seconds * math.exp(error))]
    return Eta(seconds, max(min(bounds), slowest * math.exp(-error)), max(bounds))


def _of_empty_pgs(arrivals: Arrivals, pgs_done: int, pgs_left: int) -> Optional[Eta]:
    """The time for PGs without data, by the number of PGs so far, as they wait for batches and peer
    like others; None: not known yet. They may take far less time, since nothing is copied."""
    if not pgs_left:
        return Eta(0.0, 0.0, 0.0)
    if not pgs_done or arrivals.whole_seconds <= 0:
        return None
    seconds = pgs_left * arrivals.whole_seconds / pgs_done
    error = min(MOST_ERROR, _error_of_number(pgs_done, pgs_left))
    return Eta(seconds, seconds * math.exp(-MOST_ERROR), seconds * math.exp(error))


def _error(arrivals: Arrivals, seconds: float, pgs_done: int, pgs_left: int) -> float:
    """Half the width of the interval of the logarithm of the time, which `remaining` estimates as
    `seconds`."""
    by_number = _error_of_number(pgs_done, pgs_left)
    by_rate = [_error_of_rate(arrivals, seconds, number) for number in BATCH_NUMBERS]
    # Two causes that are independent of each other.
    return math.hypot(by_number, max(by_rate))


def _error_of_number(pgs_done: int, pgs_left: int) -> float:
    # PGs arrive nearly independently: their number varies by its square root.
    return NORMAL_95 * math.sqrt(1.0 / max(1, pgs_done) + 1.0 / max(1, pgs_left))


def _error_of_rate(arrivals: Arrivals, seconds: float, batches: int) -> float:
    """How far the mean rate of the next `seconds` may be from that so far, as a share of it: from
    the variance of so many `batches`, or of fewer if there are not enough blocks."""
    size = max(1, len(arrivals.blocks) // batches)
    batches = min(batches, len(arrivals.blocks) // size)
    if batches < 2:
        return MOST_ERROR
    blocks = arrivals.blocks[len(arrivals.blocks) - batches * size:]
    batch_seconds = size * arrivals.length
    batch_rates = [sum(blocks[at:at + size]) / batch_seconds for at in range(0, len(blocks), size)]
    mean = sum(batch_rates) / batches
    variance = sum((batch_rate - mean) ** 2 for batch_rate in batch_rates) / (batches - 1)
    elapsed_seconds = arrivals.whole_seconds
    rate = arrivals.whole_bytes / elapsed_seconds
    # The sum of the variances of the mean so far and of the future one.
    relative = variance * batch_seconds / rate ** 2 * (1.0 / elapsed_seconds + 1.0 / seconds)
    return STUDENT_95[batches - 2] * math.sqrt(relative)


def _by_recent_rate(arrivals: Arrivals, bytes_left: float) -> Optional[float]:
    """Seconds at the rate of the later half."""
    later: List[float] = list(arrivals.blocks[len(arrivals.blocks) // 2:])
    arrived = sum(later) + arrivals.bytes
    if not arrived:
        return None
    return bytes_left * (len(later) * arrivals.length + arrivals.seconds) / arrived


# ---- limits

#: Maximum time that counts for one turn: in longer intervals the loop rested, or another mgr was
#: active.
LONGEST_COUNTED_SECONDS = 30.0
#: Maximum number of separate codes; the seconds of others count for Code.OTHER.
MOST_CODES = 24
#: Reasons of a turn that has released all it could; the last of them is its limit.
_LAST = frozenset({
    Code.PEERING, Code.STALL_RATIO, Code.CAP_BACKFILLS, Code.BATCH, Code.NO_GOALS, Code.SETTINGS,
    Code.UNCLEAN, Code.REPORTS, Code.CONFIRMING})
#: Without any of these: reasons for which the remaining PGs are not candidates.
_BARS = (Code.TARGET_DOWN, Code.TARGET_FULL, Code.PG_LIMIT, Code.BACKFILL_TOOFULL, Code.DEGRADED,
         Code.WINDOW_CLOSED)


@dataclass(frozen=True)
class Limits:
    seconds: Mapping[str, float] = field(default_factory=dict)
    #: The code of the last turn.
    now: str = ''


def limit_of(reasons: Sequence[Reason], releasing: bool, in_flight: int, allowed: int, cap: int,
             waiting: int) -> str:
    """The code of the limit of this turn.

    `releasing`: it may release; `allowed` PGs may be in flight, of `cap` by the operator's options;
    `waiting`: PGs that are still to be released.
    """
    codes = [reason.code for reason in reasons]
    if not releasing:
        # What prevents all releases is the first reason.
        return codes[0] if codes else Code.NO_LIMIT
    if not waiting:
        # The last reason, as the throttle's is the first one, and nothing waits for its release.
        return Code.IN_FLIGHT if in_flight else (codes[-1] if codes else Code.NO_LIMIT)
    if in_flight >= allowed:
        # The first reason is the throttle's.
        return Code.CAP_PGS if allowed >= cap or not codes else codes[0]
    # The turn has released all it could: the last such reason prevented more.
    limiting = [code for code in codes if code in _LAST]
    if limiting:
        return limiting[-1]
    # Otherwise this is why the remaining PGs are no candidates.
    return next((code for code in _BARS if code in codes), Code.NO_LIMIT)


def charge(limits: Limits, code: str, seconds: float) -> Limits:
    """The limits with these seconds added."""
    seconds = min(seconds, LONGEST_COUNTED_SECONDS)
    key = code if code in limits.seconds or len(limits.seconds) < MOST_CODES else Code.OTHER
    return Limits({**limits.seconds, key: round(limits.seconds.get(key, 0.0) + seconds, 3)}, code)


def shares(limits: Limits) -> Dict[str, float]:
    """Shares of the counted time, 0 to 1."""
    total = sum(limits.seconds.values())
    return {code: seconds / total for code, seconds in limits.seconds.items()} if total else {}


def in_minutes(limits: Limits) -> Limits:
    """The limits with their total in whole minutes alone, which is stored once a minute."""
    return Limits({'': float(int(sum(limits.seconds.values()) // 60))})


# ---- both, as a part of the campaign

@dataclass(frozen=True)
class Progress:
    """What the campaign has done, and when."""
    #: PGs of this campaign in all, arrived at their target, left as upmaps.
    total: int = 0
    released: int = 0
    kept: int = 0
    bytes_done: int = 0
    #: Seconds in which PGs were in flight; with bytes_done the measured rate.
    moving_seconds: float = 0.0
    #: When the last turn was, and its OSDMap epoch.
    turned: Time = 0.0
    last_epoch: int = 0
    #: When a PG was last released or arrived, and when a stop condition last held.
    progressed: Time = 0.0
    stopped: Time = 0.0
    #: When releases last waited for announced maintenance.
    excused: Time = 0.0
    #: Arrived bytes by blocks of time.
    arrivals: Arrivals = Arrivals()
    #: The campaign's limits, in seconds by code.
    limits: Limits = Limits()

    @property
    def rate(self) -> Optional[float]:
        """Bytes per second while PGs were in flight; None: none has arrived."""
        return self.bytes_done / self.moving_seconds \
            if self.bytes_done > 0 and self.moving_seconds > 0 else None

    def landed(self, pgs: int, landed_bytes: int = 0) -> 'Progress':
        return replace(self, released=self.released + pgs,
                       bytes_done=self.bytes_done + landed_bytes)

    def keeping(self, pgs: int) -> 'Progress':
        return replace(self, kept=self.kept + pgs)

    def timed(self, seconds: float, arrivals: Arrivals) -> 'Progress':
        """`seconds`: in which PGs were in flight, since the last turn."""
        return replace(self, moving_seconds=self.moving_seconds + seconds, arrivals=arrivals)

    def turn(self, now: float, epoch: int, total: int, limits: Limits) -> 'Progress':
        return replace(self, turned=now, last_epoch=epoch, total=total, limits=limits)

    def lasting(self) -> 'Progress':
        """What must be stored at once: all except times and what changes in every turn."""
        return replace(self, turned=0.0, moving_seconds=0.0, stopped=0.0, excused=0.0,
                       last_epoch=0, limits=in_minutes(self.limits), arrivals=Arrivals())

    def without_arrivals(self) -> 'Progress':
        """What does not change when a PG arrives."""
        return replace(self, released=0, bytes_done=0, progressed=0.0, total=0)
