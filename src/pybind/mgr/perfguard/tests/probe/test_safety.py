# SPDX-License-Identifier: LGPL-2.1-or-later
"""When a probe must not begin, and when it has to end."""
from dataclasses import replace
from typing import Any

import pytest

from perfguard.cluster.types import OsdMap, PgCounts, Pool, Signals
from perfguard.probe.limits import (FULL_CHECKS, STILL_FLAGS, STILL_POOL_FLAGS, blocked_io,
                                    disturbances, full_or_moving)

WELL = Signals(PgCounts(total=8, active_clean=8))
POOL = Pool(1, 'rep', False, 3, 2, 0, 8, 8, 8)
EC = replace(POOL, name='ec', erasure=True, data_shards=2)


def osdmap(*flags: str) -> OsdMap:
    return OsdMap(1, frozenset(flags), {1: POOL}, {}, {}, {}, {})


def signals(**counts: Any) -> Signals:
    return replace(WELL, counts=PgCounts(total=8, **counts))


def test_nothing_against_it() -> None:
    assert full_or_moving(WELL, False) == disturbances(WELL) == []
    assert blocked_io(osdmap('noscrub'), POOL, True) == []


@pytest.mark.parametrize('check', FULL_CHECKS)
@pytest.mark.parametrize('moving', [False, True])
def test_full(check: str, moving: bool) -> None:
    reason, = full_or_moving(replace(WELL, health={check: 'so it is'}), moving)
    assert reason.endswith(': so it is')


@pytest.mark.parametrize('what, text', [
    ('backfilling', '3 PGs are backfilling'), ('recovering', '3 PGs are recovering'),
    ('backfill_wait', '3 PGs are waiting for backfill')])
def test_movement(what: str, text: str) -> None:
    assert full_or_moving(signals(**{what: 3}), False) == [text]
    assert full_or_moving(signals(**{what: 3}), True) == []


def test_movement_of_the_probes_own_pool_does_not_count() -> None:
    """The balancer evens out each new pool."""
    moving = replace(signals(backfilling=3, recovering=2, backfill_wait=1), pool_counts={
        7: PgCounts(backfilling=2, recovering=2, backfill_wait=1), 8: PgCounts(backfilling=1)})
    assert full_or_moving(moving, False, 7) == ['1 PG is backfilling']
    assert full_or_moving(moving, False) == full_or_moving(moving, False, 9) == [
        '3 PGs are backfilling', '2 PGs are recovering', '1 PG is waiting for backfill']


@pytest.mark.parametrize('flag', STILL_FLAGS)
def test_flags_of_the_cluster(flag: str) -> None:
    for pool in (None, POOL):
        assert blocked_io(osdmap(flag), pool, False) == ['the OSDMap has the flag ' + flag]


@pytest.mark.parametrize('flag', STILL_POOL_FLAGS)
def test_flags_of_a_pool(flag: str) -> None:
    reason, = blocked_io(osdmap(), replace(POOL, flags=frozenset({flag})), False)
    assert reason == 'pool rep has the flag ' + flag


def test_erasure_coded_pools_without_overwrites() -> None:
    assert blocked_io(osdmap(), EC, True) == [
        'pool ec is erasure coded without allow_ec_overwrites: only reads can be probed']
    assert blocked_io(osdmap(), POOL, True) == []
    assert blocked_io(osdmap(), EC, False) == []
    assert blocked_io(osdmap(), replace(EC, flags=frozenset({'ec_overwrites'})), True) == []


@pytest.mark.parametrize('what, text', [('deep_scrubbing', 'deep scrub'),
                                        ('backfilling', 'recovery or backfill'),
                                        ('recovering', 'recovery or backfill')])
def test_what_disturbs(what: str, text: str) -> None:
    assert disturbances(signals(**{what: 1})) == [text]
