# SPDX-License-Identifier: LGPL-2.1-or-later
"""Changes of weights that require more pins than max_pins come in tranches."""
import math
import time
from collections import Counter
from typing import Any, Callable, Dict, List, Set

import pytest

from qa.cluster import Cluster
from qa.cluster.patience import patient
from qa.lib.guard import Guard
from qa.lib.joins import ask, crush_weights, order, wait_reported

from .test_balanced import acting_sets, balance_from_now_on, distances, entries, pools

pytestmark = [pytest.mark.releases('pacific', 'reef', 'tentacle', quick='pacific'),
              pytest.mark.shares('campaign')]

TRANCHES = 3


def expansion(guard: Guard) -> Dict[str, Any]:
    """Four new OSDs of weight 0, for which a third of the PGs may be pinned that it moves."""
    added = guard.cluster.add_osds(4, weight=0.0)
    wait_reported(guard)
    what: Dict[str, Any] = {'what': ['osd.%d' % osd for osd in added], 'weight': '1.0'}
    # The mgr may not have their CRUSH yet.
    guard.cluster.wait(lambda: ask(guard, 'expand', dry_run=True, **what)[0] == 0, 30, 'the OSDs')
    whole = order(guard, 'expand', dry_run=True, **what)
    assert whole['tranches'] == 1
    limit = math.ceil(whole['pgs'] / TRANCHES)
    guard.option('max_pins', str(limit))
    parts: Dict[str, Any] = {}

    def limited() -> bool:
        parts.update(order(guard, 'expand', dry_run=True, **what))
        return bool(parts['pin_limit'] == limit)

    guard.cluster.wait(limited, 30, 'the option max_pins')
    assert (parts['pgs'], parts['tranches']) == (whole['pgs'], TRANCHES)
    return {'added': added, 'what': what, 'limit': limit, 'pgs': whole['pgs']}


def most_pinned(guard: Guard, done: Callable[[Dict[str, Any]], bool], seconds: float) -> int:
    """The most PGs that were pinned at a time until `done`."""
    most, end = 0, time.monotonic() + patient(seconds)
    while time.monotonic() < end:
        status = guard.get('campaign status')
        most = max(most, status['pinned'])
        if done(status):
            return most
        time.sleep(0.3)
    raise AssertionError(guard.get('campaign status'))


def pins_of_tranches(guard: Guard, last: int) -> List[int]:
    """How many PGs each tranche has pinned when its weights took effect."""
    return [int(text.split()[4]) for text in guard.event_texts('join', last)
            if text.startswith('changing CRUSH and pinning ')]


class MapHistory:
    """What the OSDMaps since an epoch show."""

    def __init__(self, cluster: Cluster, since: int) -> None:
        found = entries(cluster, since)
        #: The most PGs with an upmap, besides those of the first epoch.
        self.most_upmaps = 0
        #: PG -> how often it has moved.
        self.moves: 'Counter[str]' = Counter()
        moving: Set[str] = set()
        for epoch in range(since, cluster.epoch() + 1):
            dump = cluster.mon('osd dump', epoch=epoch)
            upmaps = {row['pgid'] for key in ('pg_upmap_items', 'pg_upmap') for row in dump[key]}
            self.most_upmaps = max(self.most_upmaps, len(upmaps - found.keys()))
            now = {row['pgid'] for row in dump['pg_temp']}
            self.moves.update(now - moving)
            moving = now

    @property
    def moved_again(self) -> int:
        return sum(number > 1 for number in self.moves.values())


@pytest.mark.parametrize('target', ['balanced', 'crush'])
def test_an_expansion_comes_in_tranches(target: str, release: str, guard: Guard) -> None:
    """Also if another mgr takes over between two of them."""
    cluster = guard.cluster
    balance_from_now_on(guard)
    guard.option('target', target)
    upmaps = guard.upmaps()
    begun = expansion(guard)
    limit, last, since = begun['limit'], guard.last_event(), cluster.epoch()
    before, begin = acting_sets(cluster), time.monotonic()
    order(guard, 'expand', **begun['what'])
    most = most_pinned(guard, lambda status: status['tranche'] == 2, 120)
    cluster.mgr_fail()
    guard.wait_ready()
    most = max(most, most_pinned(guard, lambda status: status['phase'] == 'DONE', 300))
    seconds = time.monotonic() - begin
    cluster.wait_clean(60)
    done, after = guard.get('campaign status'), acting_sets(cluster)
    moved = sum(set(before[pgid]) != set(after[pgid]) for pgid in after)
    maps, pins = MapHistory(cluster, since), pins_of_tranches(guard, last)
    print('%s: %s: tranches of %s pins (limit %d) in %.0f s: at most %d pinned, %d upmaps; '
          '%d PGs moved, %d of them again, %d kept' % (
              release, target, pins, limit, seconds, most, maps.most_upmaps, moved,
              maps.moved_again, done['kept']))
    # The mgr that failed may not have stored its last event.
    assert done['tranches'] >= TRANCHES and max(pins) <= limit
    assert len(pins) in (done['tranches'] - 1, done['tranches'])
    assert maps.moved_again <= moved / 5
    assert {osd: crush_weights(cluster)[osd] for osd in begun['added']} == dict.fromkeys(
        begun['added'], 1.0)
    if target == 'balanced':
        assert max(distance for pool in pools(cluster)
                   for distance in distances(after, pool, cluster.osds())) <= 1
    else:
        assert guard.upmaps() == upmaps
        assert most <= limit and maps.most_upmaps <= 1.5 * limit
    assert not guard.tracebacks()


def test_an_expansion_that_is_aborted_between_tranches_is_rolled_back(
        release: str, guard: Guard) -> None:
    cluster = guard.cluster
    wait_reported(guard)
    found, upmaps, before = guard.foreign(), guard.upmaps(), acting_sets(cluster)
    begun = expansion(guard)
    order(guard, 'expand', **begun['what'])
    most_pinned(guard, lambda status: status['tranche'] == 2 and status['phase'] == 'RELEASING',
                120)
    guard.do('abort')
    guard.wait_phase('ABORTED')
    cluster.wait_clean(60)
    weights = _weights(cluster, begun['added'])
    assert all(0.0 < weight < 1.0 for weight in weights)
    assert 'CRUSH weights are changed in part' in ' '.join(
        guard.get('campaign status')['reasons'])
    order(guard, 'campaign rollback', accept=['PIN_LIMIT'])
    guard.wait_phase('DONE', timeout=240)
    cluster.wait_clean(60)
    assert _weights(cluster, begun['added']) == [0.0] * len(begun['added'])
    assert guard.upmaps() == upmaps and guard.foreign() == found
    after = acting_sets(cluster)
    print('%s: weights %s after the abort, %d of %d PGs elsewhere after the rollback' % (
        release, weights, sum(set(before[pgid]) != set(after[pgid]) for pgid in after),
        len(after)))
    assert not {osd for osds in after.values() for osd in osds} & set(begun['added'])
    assert not guard.tracebacks()


def _weights(cluster: Cluster, osds: List[int]) -> List[float]:
    weights = crush_weights(cluster)
    return [weights[osd] for osd in osds]
