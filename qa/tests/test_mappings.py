# SPDX-License-Identifier: LGPL-2.1-or-later
"""Upmaps are exported, lost, and imported again as a campaign."""
import errno
import json
from typing import Any, Dict

import pytest

from qa.lib.guard import Guard
from qa.lib.joins import ask, spare_mappings, up_sets, wait_reported

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
        shown = order_with(guard, 'preview', given, change='import')
        assert shown['pgs'] == len(mappings) == 12 and not shown['left_out']
        order_with(guard, 'import', given)
        cluster.wait(lambda: SCRUBS in [row['what'] for row in guard.get('held')['held']], 60,
                     'scrubs to be held')
        cluster.wait(lambda: max_scrubs(guard) == '0', 30, 'osd.0 to have the option')
        done = guard.wait_phase('DONE', timeout=180)
        cluster.wait_clean(60)
        assert done['released'] == 12 and not done['pinned']
        assert guard.get('campaign export') == sorted(mappings, key=lambda row: row['pgid'])
        assert guard.foreign() == before
        cluster.wait(lambda: max_scrubs(guard) == scrubs, 30, 'osd.0 to have its option back')
        retval, _, error = ask(guard, 'import', given)
        assert retval == -errno.ENOENT, error
    finally:
        guard.unset('hold_scrubs')
        for row in mappings:
            cluster.mon('osd rm-pg-upmap-items', pgid=row['pgid'])
        cluster.wait_clean(60)
    assert not guard.tracebacks()


@pytest.mark.releases('pacific', 'reef', 'tentacle', quick=())
def test_pgs_with_a_vector_are_imported(guard: Guard) -> None:
    """Back to where CRUSH places them."""
    cluster = guard.cluster
    cluster.wait_clean(60)
    raw = up_sets(cluster)
    there = {row['pgid']: row['mapping'] for row in spare_mappings(cluster, 2)}
    vectors = {pgid: [pair['to'] if osd == pair['from'] else osd for osd in raw[pgid]]
               for pgid, pair in there.items()}
    try:
        for pgid, osds in vectors.items():
            cluster.mon('osd pg-upmap', pgid=pgid, id=osds)
        cluster.wait(lambda: {**raw, **vectors} == up_sets(cluster), 30, 'the vectors')
        cluster.wait_clean(60)
        wait_reported(guard)
        back = json.dumps([{'pgid': pgid, 'mapping': {'from': pair['to'], 'to': pair['from']}}
                           for pgid, pair in there.items()])
        assert order_with(guard, 'preview', back, change='import')['pgs'] == 2
        order_with(guard, 'import', back)
        done = guard.wait_phase('DONE', timeout=180)
        assert done['released'] == 2 and up_sets(cluster) == raw
        cluster.wait_clean(60)
    finally:
        for pgid in vectors:
            cluster.mon('osd rm-pg-upmap', pgid=pgid)
        cluster.wait_clean(60)
    assert not guard.tracebacks()


def max_scrubs(guard: Guard) -> str:
    return str(guard.cluster.tell('osd.0', 'config get', var='osd_max_scrubs')['osd_max_scrubs'])


def order_with(guard: Guard, command: str, given: str, **args: Any) -> Dict[str, Any]:
    retval, out, error = ask(guard, command, given, **args)
    assert retval == 0, (command, error)
    found: Dict[str, Any] = json.loads(out)
    return found
