# SPDX-License-Identifier: LGPL-2.1-or-later
"""What limits a campaign, counted in seconds for each code of a reason. Pure.

Each turn has one limit: what it would have to be without to release more. The sums are part of the
campaign, and as small as the number of codes.
"""
from dataclasses import dataclass, field
from typing import Any, Dict, Mapping, Sequence

from ..errors import Code, Reason

#: A turn counts for no longer: what was longer ago was a rest, or another mgr.
LONGEST_TURN_SECONDS = 30.0
#: Codes that are kept apart; the seconds of others are those of Code.OTHER.
MOST_CODES = 24
#: Reasons of a turn that has released what it could, the last of which says why not more.
_LAST = frozenset({
    Code.PEERING, Code.STALL_SHARE, Code.CAP_BACKFILLS, Code.BATCH, Code.NO_GOALS, Code.SETTINGS,
    Code.UNCLEAN, Code.REPORTS, Code.CONFIRMING})
#: Without any of these, what keeps the PGs that are left from being candidates.
_BARS = (Code.TARGET_DOWN, Code.TARGET_FULL, Code.BACKFILL_TOOFULL, Code.DEGRADED)


@dataclass(frozen=True)
class Limits:
    seconds: Mapping[str, float] = field(default_factory=dict)
    #: The code of the last turn.
    now: str = ''


def limit_of(reasons: Sequence[Reason], releasing: bool, in_flight: int, allowed: int, cap: int,
             waiting: int) -> str:
    """The code of what limits this turn.

    `releasing`: it may release; `allowed` PGs may be in flight, of `cap` by the operator's options;
    `waiting`: PGs that are still to be released.
    """
    codes = [reason.code for reason in reasons]
    if not releasing:
        return codes[0] if codes else Code.NO_LIMIT
    if not waiting:
        return Code.IN_FLIGHT if in_flight else (codes[-1] if codes else Code.NO_LIMIT)
    if in_flight >= allowed:
        # The throttle's reason is the first one of a turn that may release.
        return Code.CAP_PGS if allowed >= cap or not codes else codes[0]
    last = [code for code in codes if code in _LAST]
    if last:
        return last[-1]
    return next((code for code in _BARS if code in codes), Code.NO_LIMIT)


def charge(limits: Limits, code: str, seconds: float) -> Limits:
    """With so many more seconds."""
    seconds = min(max(0.0, seconds), LONGEST_TURN_SECONDS)
    key = code if code in limits.seconds or len(limits.seconds) < MOST_CODES else Code.OTHER
    return Limits({**limits.seconds, key: round(limits.seconds.get(key, 0.0) + seconds, 3)}, code)


def shares(limits: Limits) -> Dict[str, float]:
    """Of the time that was counted, 0 to 1."""
    total = sum(limits.seconds.values())
    return {code: seconds / total for code, seconds in limits.seconds.items()} if total else {}


def in_minutes(limits: Limits) -> Limits:
    """To whole minutes in all: another value once a minute, which is often enough to be stored."""
    return Limits({'': float(int(sum(limits.seconds.values()) // 60))})


def limits_to_json(limits: Limits) -> Dict[str, Any]:
    return {'now': limits.now, 'seconds': dict(limits.seconds)}


def limits_from_json(raw: Mapping[str, Any]) -> Limits:
    return Limits({str(code): float(value) for code, value in raw['seconds'].items()},
                  str(raw['now']))
