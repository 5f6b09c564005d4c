# SPDX-License-Identifier: LGPL-2.1-or-later
"""Commands, JSON, the progress event and the page show the same time left."""
import json
from pathlib import Path
from typing import Any, Dict, List

import pytest

from perfguard.rebalance import tables
from perfguard.rebalance.moves import OsdLoad
from perfguard.rebalance.report import eta
from perfguard.status import progress_message

from ..fakes.cluster import FakeCluster
from ..fakes.driver import OPTIONS, Driver

#: Times, and the text that the page shows for them (web/tests/campaign.test.ts).
TIMES: List[Dict[str, Any]] = json.loads(
    (Path(__file__).resolve().parents[2] / 'web' / 'tests' / 'times.json').read_text())


@pytest.mark.parametrize('times', TIMES, ids=lambda times: str(times['text']))
def test_the_texts_of_commands_are_those_of_the_page(times: Dict[str, Any]) -> None:
    assert tables.eta_text(times) == times['text']


@pytest.fixture(scope='module')
def moving() -> Driver:
    driver = Driver(FakeCluster(backfill_seconds=20.0))
    driver.to_releasing()
    driver.run_until(lambda: driver.status['released'] >= 4)
    return driver


def test_commands_json_and_the_progress_event_agree(moving: Driver) -> None:
    shown = moving.loop.published.rebalanced
    text = tables.eta_text(moving.status)
    assert 's (' in text and moving.status['eta_low_seconds'] < moving.status['eta_high_seconds']
    assert 'time left %s' % text in ' '.join(tables.rebalance_status(moving.status).split())
    assert '%s left' % text in tables.watched(moving.status)
    assert progress_message(shown.campaign, shown.status).endswith('%s left' % text)


def test_a_line_has_the_first_reason(moving: Driver) -> None:
    line = tables.watched({**moving.status, 'reasons': ['the limit', 'another one']})
    assert line.endswith(' left: the limit')


def test_an_osd_with_most_to_send_or_to_receive_bounds_the_time(moving: Driver) -> None:
    campaign = moving.loop.rebalance.campaign
    assert campaign.progress.arrivals.flown > campaign.progress.arrivals.busy > 0
    size = 8 * campaign.progress.bytes_done
    found = [eta(campaign, size, waiting, OPTIONS, moving.cluster.now) for waiting in (
        (), [OsdLoad(osd, 1, 1, size // 8, size // 8) for osd in range(8)],
        [OsdLoad(1, 8, 0, size, 0)], [OsdLoad(1, 0, 8, 0, size)])]
    overall, even, received, sent = (each.seconds if each else 0.0 for each in found)
    assert all(each and each.low <= each.seconds <= each.high for each in found)
    assert overall == even and received == sent > 1.5 * even > 0.0
