# SPDX-License-Identifier: LGPL-2.1-or-later
"""What limits a campaign: one code for each turn, and the share of time of each."""
import random
from typing import Sequence

import pytest

from perfguard.errors import Code, Reason
from perfguard.rebalance.progress import (MOST_CODES, Limits, charge, in_minutes, limit_of, shares)
from perfguard.rebalance.moves import Caps, Load, Move


def code_of(*codes: str, releasing: bool = True, in_flight: int = 0, allowed: int = 4,
            cap: int = 8, waiting: int = 10) -> str:
    reasons = [Reason(code, 'because') for code in codes]
    return limit_of(reasons, releasing, in_flight, allowed, cap, waiting)


@pytest.mark.parametrize('found, expected', [
    (code_of(Code.PAUSED, Code.DEGRADED, releasing=False), Code.PAUSED),
    (code_of(releasing=False), Code.NO_LIMIT),
    (code_of(Code.LATENCY, in_flight=4), Code.LATENCY),
    (code_of(Code.LATENCY_OK, in_flight=8, allowed=8), Code.CAP_PGS),
    (code_of(Code.LATENCY_OK, Code.FAST_PEERING, Code.STALL_RATIO), Code.STALL_RATIO),
    (code_of(Code.LATENCY_OK, Code.CAP_BACKFILLS, in_flight=2), Code.CAP_BACKFILLS),
    (code_of(Code.LATENCY_OK, Code.TARGET_DOWN, in_flight=2), Code.TARGET_DOWN),
    (code_of(Code.LATENCY_OK, in_flight=2), Code.NO_LIMIT),
    (code_of(Code.LATENCY_OK, in_flight=2, waiting=0), Code.IN_FLIGHT),
    (code_of(Code.LATENCY_OK, Code.REPORTS, waiting=0), Code.REPORTS),
])
def test_one_code_for_each_turn(found: str, expected: str) -> None:
    assert found == expected


def charged(turns: Sequence[float]) -> Limits:
    limits = Limits()
    for number, seconds in enumerate(turns):
        limits = charge(limits, (Code.LATENCY, Code.BATCH, Code.BATCH)[number % 3], seconds)
    return limits


def test_shares_of_time() -> None:
    assert shares(charged([1.0, 1.0, 2.0])) == {Code.LATENCY: 0.25, Code.BATCH: 0.75}
    assert shares(Limits()) == {}


def test_a_long_rest_counts_little() -> None:
    assert charged([1e6]).seconds[Code.LATENCY] == 30.0


def test_the_sums_stay_small() -> None:
    limits = Limits()
    for number in range(1000):
        limits = charge(limits, 'CODE_%d' % number, 1.0)
    assert len(limits.seconds) == MOST_CODES + 1 and sum(limits.seconds.values()) == 1000.0
    assert limits.seconds[Code.OTHER] == 1000.0 - MOST_CODES


def test_they_are_worth_writing_once_a_minute() -> None:
    assert in_minutes(charged([20.0, 20.0])) == in_minutes(charged([1.0]))
    assert in_minutes(charged([20.0] * 4)) != in_minutes(charged([20.0]))


def test_a_move_fits_exactly_if_no_cap_is_in_its_way() -> None:
    rng = random.Random(16)
    shared_devices = {osd: ('nvme%d' % (osd // 4),) for osd in range(8)}
    fitted = 0
    for _ in range(2000):
        load = Load(lambda osd: 'h%d' % (osd // 3),
                    lambda pgid, osd: 'rack r%d' % (osd // 6), shared_devices)
        for number in range(rng.randrange(6)):
            load.add('1.%x' % number, move(rng, number))
        caps = Caps(pgs=rng.randrange(1, 8), bytes=rng.randrange(1, 60),
                    source=rng.randrange(1, 4), primary=rng.randrange(1, 4),
                    target=rng.randrange(1, 4), host=rng.randrange(1, 8),
                    device=rng.randrange(1, 5), domain=rng.randrange(1, 10),
                    receives={osd: rng.randrange(4) for osd in range(0, 12, 5)})
        one = move(rng, 99)
        fits = load.fits(one, caps)
        assert fits == (not load.obstacles(one, caps))
        fitted += fits
    assert 200 < fitted < 1800


def move(rng: random.Random, number: int) -> Move:
    source, target, primary, reader = rng.sample(range(12), 4)
    return Move('1.%x' % number, (source,), (target,), primary, rng.randrange(1, 20),
                readers=(reader,) if rng.random() < 0.3 else ())
