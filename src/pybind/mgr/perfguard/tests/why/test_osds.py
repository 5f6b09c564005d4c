# SPDX-License-Identifier: LGPL-2.1-or-later
"""Each cause for which an OSD is slow, provoked one at a time."""
from dataclasses import replace
from typing import Any

import pytest

from perfguard.cluster.types import Osd, PgCounts, Signals, UpmapEntry
from perfguard.errors import Code
from perfguard.rebalance.types import Campaign, Flight, Phase
from perfguard.why.osds import OsdCase, causes

CALM = OsdCase(Osd(3, True, 1.0), {'osd': 3, 'slow': False, 'why': '', 'chronic': None,
                                   'ping_ms': 1.0, 'silent_seconds': None, 'causes': []})
NETWORK = {'code': 'network', 'text': 'heartbeats are slow', 'evidence': {'ping_ms': 300.0}}
FLIGHT = Flight(1.0, UpmapEntry(), sources=(1,), targets=(3,), primary=1)


def row(**more: Any) -> OsdCase:
    return replace(CALM, row={**(CALM.row or {}), **more})


def counts(**more: Any) -> OsdCase:
    return replace(CALM, counts=PgCounts(total=9, **more))


@pytest.mark.parametrize('case, code', [
    (CALM, Code.NOT_SLOW),
    (replace(CALM, osd=Osd(3, False, 1.0)), Code.OSD_DOWN),
    (replace(CALM, row=None), Code.NO_READINGS),
    (row(silent_seconds=40.0), Code.NO_ANSWER),
    (row(slow=True, why='commits take 9 ms'), 'PERFGUARD_SLOW_OSD'),
    (row(slow=True, why='commits take 9 ms', causes=[NETWORK]), 'network'),
    (row(chronic={'why': 'slow for 4 % of the time'}), Code.SLOW_AGAIN),
    (replace(CALM, suspect={'score': 1.0, 'why': 'in all', 'advice': ''}), 'PERFGUARD_LAGGY_PGS'),
    (row(ping_ms=300.0), Code.SLOW_PING),
    (replace(CALM, signals=Signals(PgCounts(), slow_daemons={'osd.3': 2})), Code.SLOW_OPS),
    (replace(CALM, campaign=Campaign(1, Phase.RELEASING, 0.0, in_flight={'1.a': FLIGHT})),
     Code.IN_FLIGHT),
    (counts(backfilling=2), Code.BACKFILLING),
    (counts(recovering=2), Code.DEGRADED),
    (counts(deep_scrubbing=1), Code.SCRUB),
    (replace(CALM, osd=Osd(3, True, 1.0, fullness='nearfull')), Code.TARGET_FULL),
])
def test_the_first_cause(case: OsdCase, code: str) -> None:
    assert causes(case)[0].code == code


def test_that_it_is_slow_comes_after_why() -> None:
    found = causes(row(slow=True, why='commits take 9 ms', causes=[NETWORK]))
    assert [cause.code for cause in found] == ['network', 'PERFGUARD_SLOW_OSD']
    assert found[0].evidence == {'ping_ms': 300.0}
