# SPDX-License-Identifier: LGPL-2.1-or-later
"""`perfguard why`: causes are provoked on a real cluster, and have to be named."""
import json
from typing import Any, Callable, Dict, List

import pytest

from qa.lib.clusters import ClusterFactory, small_cluster
from qa.lib.guard import FAST_CONF, Guard

pytestmark = pytest.mark.releases('pacific')

#: One PG of an OSD at a time.
OPTIONS = {'max_backfills_source': '2', 'max_backfills_primary': '2', 'max_backfills_target': '1',
           'max_backfills_host': '2', 'max_pgs_in_flight': '100'}


class Asker:
    def __init__(self, guard: Guard) -> None:
        self.guard = guard
        self.found: Dict[str, Any] = {}

    def causes(self, what: str) -> List[Dict[str, Any]]:
        retval, out, error = self.guard.ask('why', what=what)
        assert retval == 0, (what, retval, error)
        answer = json.loads(out)
        assert answer['object'] == what and answer['reasons']
        found: List[Dict[str, Any]] = answer['reasons']
        return found

    def wait(self, code: str, candidates: Callable[[], List[str]], first: bool = True,
             timeout: float = 60) -> Dict[str, Any]:
        """Until the first cause (else any) of one of the PGs has this code."""
        seen: List[Any] = []

        def named() -> bool:
            for what in candidates()[:12]:
                causes = self.causes(what)
                seen[:] = [what, [cause['code'] for cause in causes]]
                for cause in causes[:1] if first else causes:
                    if cause['code'] == code:
                        self.found[code] = {'of': what, **cause}
                        return True
            return False

        try:
            self.guard.cluster.wait(named, timeout, code)
        except Exception as error:
            raise AssertionError('%s; last seen %s; status %s' % (
                error, seen, self.guard.status()['limits'])) from error
        found: Dict[str, Any] = self.found[code]
        return found


def remapped(guard: Guard) -> List[str]:
    return sorted(row['pgid'] for row in guard.cluster.osd_dump()['pg_temp'])


def pinned(guard: Guard) -> List[str]:
    """PGs with an upmap that are not on their way."""
    dump = guard.cluster.osd_dump()
    return sorted({row['pgid'] for row in dump['pg_upmap_items'] + dump['pg_upmap']}
                  - set(remapped(guard)))


def test_provoked_causes_are_named(release: str, make_cluster: ClusterFactory) -> None:
    cluster = small_cluster(make_cluster, release, FAST_CONF)
    guard = Guard(cluster, OPTIONS)
    asker = Asker(guard)
    every = sorted(pg['pgid'] for pg in cluster.pgs())
    asker.wait('IN_PLACE', lambda: every[:1])
    assert asker.causes('campaign')[0]['code'] == 'NO_CAMPAIGN'
    asker.wait('NOT_SLOW', lambda: ['osd.0'])
    guard.prepare()
    cluster.add_osds(2)
    guard.wait_remapped()
    asker.wait('UNPINNED', lambda: remapped(guard), first=False)
    guard.do('pin')
    guard.wait_phase('PINNED')
    asker.wait('AWAITS_START', lambda: pinned(guard))
    guard.do('start')
    guard.wait_moving(at_least=0)

    cap = asker.wait('CAP_BACKFILLS', lambda: pinned(guard))
    assert cap['evidence']['where'] and cap['evidence']['used'] >= cap['evidence']['limit']
    guard.wait_phase('DONE', timeout=240)
    assert abs(sum(cause['share'] or 0.0 for cause in asker.causes('campaign')) - 1.0) < 0.02
    assert len(asker.found) >= 5 and not guard.tracebacks()
