# SPDX-License-Identifier: LGPL-2.1-or-later
"""What the loop writes to the cluster log."""
from dataclasses import replace

from perfguard.events import MOST_LINES

from ..fakes.driver import OPTIONS, Driver


def test_a_campaign_that_flaps_does_not_flood_the_cluster_log() -> None:
    """The log of the mons is short, and other daemons need it as well. `events` shows all."""
    driver = Driver(options=replace(OPTIONS, max_pgs_in_flight=1))
    driver.to_releasing()
    holds = 'campaign 1: HOLDING'
    for _ in range(2 * MOST_LINES):
        driver.cluster.trouble = {'laggy': 1}
        driver.run_to('HOLDING')
        driver.cluster.trouble = {}
        driver.run_to('RELEASING')
    lines = [text for text in driver.cluster.logged if text.startswith(holds)]
    assert len(lines) == MOST_LINES and lines[0] == holds + ' (1 PG is laggy)'
    assert 'only "ceph perfguard events" shows' in lines[-1]
    assert not any('events' in text for text in lines[:-1])
    events = [event['what'] for event in driver.loop.published.events]
    assert events.count(holds) == 2 * MOST_LINES
    driver.cluster.now += 3600.0
    driver.cluster.trouble = {'laggy': 1}
    driver.run_to('HOLDING')
    assert driver.cluster.logged[-1] == lines[0]
