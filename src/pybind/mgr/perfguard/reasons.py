# SPDX-License-Identifier: LGPL-2.1-or-later
"""Why things are as they are: a code for programs beside the text for people."""
from dataclasses import dataclass
from typing import Dict, Iterable, List


class Code:
    """Codes of reasons. They are stable, where texts are not; the manual explains each.

    Reasons that pass on a health check have the code of that check instead.
    """
    # No campaign, or one that waits for an operator.
    STARTING = 'STARTING'
    NO_CAMPAIGN = 'NO_CAMPAIGN'
    ENDED = 'ENDED'
    REMAPPED = 'REMAPPED'
    HELD_PINS = 'HELD_PINS'
    REQUESTED = 'REQUESTED'
    AWAITS_CHANGE = 'AWAITS_CHANGE'
    AWAITS_PIN = 'AWAITS_PIN'
    AWAITS_START = 'AWAITS_START'
    PAUSED = 'PAUSED'
    UNPINNABLE = 'UNPINNABLE'
    # A phase that takes its time.
    SETTINGS = 'SETTINGS'
    OUTLOOK = 'OUTLOOK'
    CRUSH_SENT = 'CRUSH_SENT'
    UNPINNED = 'UNPINNED'
    PINS_SENT = 'PINS_SENT'
    PINNED = 'PINNED'
    REPORTS = 'REPORTS'
    NO_GOALS = 'NO_GOALS'
    UNCLEAN = 'UNCLEAN'
    IN_FLIGHT = 'IN_FLIGHT'
    # Stop conditions.
    LAGGY = 'LAGGY'
    LAGGY_LATELY = 'LAGGY_LATELY'
    LEASES = 'LEASES'
    INACTIVE = 'INACTIVE'
    DEGRADED = 'DEGRADED'
    SLOW_OPS = 'SLOW_OPS'
    SLOW_PING = 'SLOW_PING'
    MON_DOWN = 'MON_DOWN'
    SLOW_POOL = 'SLOW_POOL'
    MITIGATION = 'MITIGATION'
    FOREIGN_FLAG = 'FOREIGN_FLAG'
    BALANCER_ON = 'BALANCER_ON'
    HALTED = 'HALTED'
    WINDOW_CLOSED = 'WINDOW_CLOSED'
    BAD_OPTIONS = 'BAD_OPTIONS'
    CONFIRMING = 'CONFIRMING'
    # What a campaign does not begin under.
    BACKFILL_TOOFULL = 'BACKFILL_TOOFULL'
    PEERING = 'PEERING'
    OSD_DOWN = 'OSD_DOWN'
    OSD_SCRUB_ERRORS = 'OSD_SCRUB_ERRORS'
    PG_DAMAGED = 'PG_DAMAGED'
    PG_NUM_CHANGING = 'PG_NUM_CHANGING'
    OLD_CLIENTS = 'OLD_CLIENTS'
    # How many PGs may be in flight.
    FIRST_PACE = 'FIRST_PACE'
    NO_CLIENTS = 'NO_CLIENTS'
    LATENCY = 'LATENCY'
    LATENCY_OK = 'LATENCY_OK'
    NEW_BASELINE = 'NEW_BASELINE'
    NO_READINGS = 'NO_READINGS'
    NO_BASELINE = 'NO_BASELINE'
    FEW_OPS = 'FEW_OPS'
    CAP_BACKFILLS = 'CAP_BACKFILLS'
    TARGET_FULL = 'TARGET_FULL'
    TARGET_DOWN = 'TARGET_DOWN'
    STALL_SHARE = 'STALL_SHARE'
    BATCH = 'BATCH'
    FAST_PEERING = 'FAST_PEERING'
    # What else there is.
    COMMAND_FAILED = 'COMMAND_FAILED'
    NOT_STORED = 'NOT_STORED'
    PROBE = 'PROBE'
    MISPLACED = 'MISPLACED'
    WATCH_FAILED = 'WATCH_FAILED'
    STALE = 'STALE'
    REMARK = 'REMARK'


@dataclass(frozen=True)
class Reason:
    #: One of Code, or that of a health check.
    code: str
    text: str


def as_json(reasons: Iterable[Reason]) -> List[Dict[str, str]]:
    """As `limits` of `status` and of `rebalance status`."""
    return [{'code': reason.code, 'text': reason.text} for reason in reasons]


def texts(reasons: Iterable[Reason]) -> List[str]:
    return [reason.text for reason in reasons]
