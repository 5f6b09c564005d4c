# SPDX-License-Identifier: LGPL-2.1-or-later
"""Each cause for which an OSD is slow, provoked one at a time."""
from dataclasses import replace
from typing import Any

import pytest

from perfguard.cluster.types import Osd, PgCounts, Signals, UpmapEntry
from perfguard.errors import Code
from perfguard.rebalance.types import Flight, Phase
from perfguard.watch.causes import LikelyCause
from perfguard.watch.laggy import Suspect
from perfguard.watch.report import OsdRow
from perfguard.watch.types import Chronic
from perfguard.why.causes import NOTABLE_PING_MS, OsdCase, osd_causes

from ..fakes.campaigns import campaign_of

ROW = OsdRow(3, 'h0', 'ssd', '', read_ms=1.0, write_ms=1.0, score=1.0, ping_ms=1.0)
CALM = OsdCase(Osd(3, True, 1.0), ROW)
NETWORK = LikelyCause('network', 'heartbeats are slow', {'ping_ms': 300.0})
HOT = LikelyCause('object', 'most operations are on one object', {'share': 0.9})
FLIGHT = Flight(1.0, UpmapEntry(), sources=(1,), targets=(3,), primary=1)


def row(**more: Any) -> OsdCase:
    return replace(CALM, row=ROW._replace(**more))


def counts(**more: Any) -> OsdCase:
    return replace(CALM, counts=PgCounts(total=9, **more))


@pytest.mark.parametrize('case, code', [
    (CALM, Code.NOT_SLOW),
    (replace(CALM, osd=Osd(3, False, 1.0)), Code.OSD_DOWN),
    (replace(CALM, row=None), Code.NO_READINGS),
    (row(silent_seconds=40.0), Code.NO_ANSWER),
    (row(slow=True, why='commits take 9 ms'), 'PERFGUARD_SLOW_OSD'),
    (row(slow=True, why='commits take 9 ms', causes=(NETWORK,)), 'network'),
    (row(score=9.0, waits_for=4), Code.WAITS_FOR_OSD),
    (row(chronic=Chronic(3, 1.0, 2.0, 3.0, 0.04, 2, 5.0, 'slow for 4 % of the time')),
     Code.SLOW_AGAIN),
    (replace(CALM, suspect=Suspect(3, 1.0, 'in all')), 'PERFGUARD_LAGGY_PGS'),
    (row(ping_ms=300.0), Code.SLOW_PING), (row(ping_ms=NOTABLE_PING_MS), Code.SLOW_PING),
    (row(ping_ms=0.99 * NOTABLE_PING_MS), Code.NOT_SLOW),
    (replace(CALM, signals=Signals(PgCounts(), slow_daemons={'osd.3': 2})), Code.SLOW_OPS),
    (replace(CALM, campaign=campaign_of(1, Phase.RELEASING, 0.0, in_flight={'1.a': FLIGHT})),
     Code.IN_FLIGHT),
    (counts(backfilling=2), Code.BACKFILLING),
    (counts(recovering=2), Code.DEGRADED),
    (counts(deep_scrubbing=1), Code.SCRUB),
    (counts(snaptrim=1), Code.SNAPTRIM),
    (replace(CALM, osd=Osd(3, True, 1.0, fullness='nearfull')), Code.TARGET_FULL),
])
def test_the_first_cause(case: OsdCase, code: str) -> None:
    assert osd_causes(case)[0].code == code


def test_a_busy_osd_is_not_slow() -> None:
    assert [cause.code for cause in osd_causes(row(load=(HOT,)))] == [Code.NOT_SLOW, 'object']
    slow = osd_causes(row(slow=True, why='reads take 9 ms', causes=(HOT,), load=(HOT,)))
    assert [cause.code for cause in slow] == ['object', 'PERFGUARD_SLOW_OSD']


def test_that_it_is_slow_comes_after_why() -> None:
    found = osd_causes(row(slow=True, why='commits take 9 ms', causes=(NETWORK,)))
    assert [cause.code for cause in found] == ['network', 'PERFGUARD_SLOW_OSD']
    assert found[0].evidence == {'ping_ms': 300.0}
