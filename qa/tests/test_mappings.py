# SPDX-License-Identifier: LGPL-2.1-or-later
"""Upmaps are exported, lost, and imported again as a campaign."""
import errno
import json
from typing import Any, Dict

import pytest

from qa.lib.guard import Guard
from qa.lib.joins import ask, spare_mappings, wait_reported

pytestmark = [pytest.mark.shares('campaign'),
              pytest.mark.releases('pacific', 'reef', 'tentacle')]


SCRUBS = 'osd_max_scrubs of the OSDs'


def test_upmaps_are_exported_and_imported(guard: Guard) -> None:
    cluster = guard.cluster
    cluster.wait_clean(60)
    wait_reported(guard)
    mappings = spare_mappings(cluster, 12)
    guard.option('hold_scrubs', 'true')
    given, before, scrubs = json.dumps(mappings), guard.foreign(), max_scrubs(guard)
    try:
        shown = order_with(guard, 'preview import', given)
        assert shown['pgs'] == len(mappings) == 12 and not shown['left_out']
        order_with(guard, 'rebalance import', given)
        cluster.wait(lambda: SCRUBS in [row['what'] for row in guard.get('held')['held']], 60,
                     'scrubs to be held')
        cluster.wait(lambda: max_scrubs(guard) == '0', 30, 'osd.0 to have the option')
        done = guard.wait_phase('DONE', timeout=180)
        cluster.wait_clean(60)
        assert done['released'] == 12 and not done['pinned']
        assert guard.get('rebalance export') == sorted(mappings, key=lambda row: row['pgid'])
        assert guard.foreign() == before
        cluster.wait(lambda: max_scrubs(guard) == scrubs, 30, 'osd.0 to have its option back')
        retval, _, error = ask(guard, 'rebalance import', given)
        assert retval == -errno.ENOENT, error
    finally:
        guard.unset('hold_scrubs')
        for row in mappings:
            cluster.mon('osd rm-pg-upmap-items', pgid=row['pgid'])
        cluster.wait_clean(60)
    assert not guard.tracebacks()


def max_scrubs(guard: Guard) -> str:
    return str(guard.cluster.tell('osd.0', 'config get', var='osd_max_scrubs')['osd_max_scrubs'])


def order_with(guard: Guard, command: str, given: str) -> Dict[str, Any]:
    retval, out, error = ask(guard, command, given)
    assert retval == 0, (command, error)
    found: Dict[str, Any] = json.loads(out)
    return found
