# SPDX-License-Identifier: LGPL-2.1-or-later
"""The page's one answer, of what a loop publishes."""
import json
from dataclasses import replace
from typing import Any

from perfguard.rebalance.moves import Move, movement_of
from perfguard.rebalance.report import CampaignStatus, Rebalanced, ReleasePreview
from perfguard.rebalance.requests import Request
from perfguard.status import (MOST_PROBES, MOST_SHOWN_EVENTS, MOST_SHOWN_PGS, Published, foreseen,
                              osds_json, overview, rebalance_json, status_json)
from perfguard.upmap.pins import Unpinnable

from .fakes.driver import Driver
from .metrics.test_page import OSD
from .probe.test_report import PROBED, record

SERIES = {'cluster': {'columns': [], 'rows': []}, 'pools': {}}


def found(published: Published, since: float = 0.0, probed: Any = PROBED) -> Any:
    return json.loads(json.dumps(overview(published, probed, SERIES, since, 200.0)))


def test_of_a_loop_that_has_just_begun() -> None:
    told = found(Published())
    assert told['status']['phase'] == 'IDLE' and told['turned'] == 0.0


def test_a_request_before_the_first_turn_publishes_no_part_of_a_status() -> None:
    """Commands are refused until there is a whole one."""
    assert foreseen(Published(), Request('prepare'), 0.0) == Published()


def test_of_a_loop_that_turns() -> None:
    driver = Driver()
    driver.turn()
    published = driver.loop.published
    told = found(published)
    assert told['turned'] == round(published.turned, 3) > 0
    assert told['stale_after'] >= 20.0
    assert told['status'] == status_json(published, 200.0)
    assert told['rebalance'] == {**rebalance_json(published), 'unpinnable_count': 0}
    assert told['series'] == SERIES
    assert [row['id'] for row in told['probe']['probes']] == [1, 2, 3, 4, 5]
    assert told['schedules'][0]['name'] == 'nightly'
    drawn = driver.loop.drawn(0.0, [])
    assert len(drawn['cluster']['rows']) <= 1


def test_only_what_is_new_and_not_too_much() -> None:
    events = tuple({'time': float(number), 'kind': 'x', 'what': '', 'why': '', 'id': number}
                   for number in range(300))
    assert len(found(Published(events=events))['events']) == MOST_SHOWN_EVENTS
    assert [event['id'] for event in found(Published(events=events), 297.0)['events']] == [298, 299]
    many = replace(PROBED, records=tuple(record(run, 2000) for run in range(1, 60)), running=None)
    assert [row['id'] for row in found(Published(), probed=many)['probe']['probes']] == [
        1, *range(60 - MOST_PROBES, 60)]
    pgs = {'1.%02x' % number: Unpinnable('why') for number in range(99)}
    told = found(Published(turned=1.0, rebalanced=Rebalanced(
        status=CampaignStatus(unpinnable=pgs))))['rebalance']
    assert [row['pgid'] for row in told['unpinnable']] == sorted(pgs)[:MOST_SHOWN_PGS]
    assert told['unpinnable_count'] == 99


def test_pins_by_osd() -> None:
    moves = movement_of([Move('1.1', (3,), (2,), 0, 9), Move('1.2', (2,), (4,), 0, 9)], 1, 1)
    osds = [OSD._replace(osd=osd) for osd in (1, 2, 3)]
    rows = osds_json(osds, ReleasePreview(moves))
    assert [(row['osd'], row['pgs_in'], row['pgs_out']) for row in rows] == [
        (1, 0, 0), (2, 1, 1), (3, 0, 1)]
    assert osds_json(osds, ReleasePreview())[1]['pgs_in'] == 0
