# SPDX-License-Identifier: LGPL-2.1-or-later
"""Expansions that another tool has begun, with upmaps, are taken over and brought to their end."""
import errno
from collections import Counter
from typing import List

import pytest

from qa.cluster import Cluster
from qa.lib.guard import Guard
from qa.lib.joins import as_script, order, wait_reported

pytestmark = [pytest.mark.releases('pacific', 'reef', 'tentacle', quick='reef'),
              pytest.mark.shares('campaign')]

OPTIONS = {'target': 'balanced', 'max_extra_movement': '10'}
#: Options with which the balancer begins at once, and changes a few PGs at a time.
BALANCER = {'sleep_interval': '1', 'upmap_max_optimizations': '3'}


def spread(cluster: Cluster, pool: str) -> int:
    """PGs of the fullest OSD less those of the emptiest, of one pool; all OSDs weigh the same."""
    number = next(row['pool'] for row in cluster.osd_dump()['pools'] if row['pool_name'] == pool)
    found = Counter(osd for pg in cluster.pgs() if pg['pgid'].startswith('%d.' % number)
                    for osd in pg['up'])
    counts = [found[osd] for osd in cluster.osds()]
    return max(counts) - min(counts)


def begin_by_script(guard: Guard) -> List[str]:
    """Add four OSDs as operators of upmap-remapped.py do; returns the PGs that it has pinned."""
    cluster = guard.cluster
    guard.configure(OPTIONS)
    cluster.mon('config set', who='mgr', name='mgr/balancer/upmap_max_deviation', value='1')
    cluster.mgr('balancer off')
    wait_reported(guard)
    cluster.mon('osd set', key='norebalance')
    cluster.add_osds(4)
    guard.wait_remapped()
    pinned = as_script(cluster)
    cluster.wait_active(60)
    cluster.mon('osd unset', key='norebalance')
    # On a busy machine the module's reports may be older than that.
    cluster.wait(lambda: guard.get('status')['signals']['inactive_pgs'] == 0, 60,
                 'all PGs reported active')
    # The script is done, or was interrupted: what is left remapped is pinned by the campaign.
    assert len(pinned) > 20 and set(pinned) <= set(guard.upmaps())
    assert spread(cluster, 'rep') > 8
    return pinned


def balanced(guard: Guard) -> bool:
    return all(spread(guard.cluster, pool) <= 2 for pool in ('rep', 'ec'))


def test_an_expansion_pinned_by_a_script(release: str, guard: Guard) -> None:
    cluster = guard.cluster
    retval, _, error = guard.ask('adopt', dry_run=True)
    assert retval == -errno.ENOENT, error
    pinned = begin_by_script(guard)
    upmaps = guard.upmaps()
    preview = order(guard, 'preview', change='adopt')
    assert preview['campaign'] is None and guard.upmaps().keys() <= upmaps.keys()
    assert guard.phase() == 'IDLE'
    # PGs that the script has left remapped peer when they arrive.
    answer = order(guard, 'adopt', accept=['PEERING'])
    assert answer['campaign'] == guard.former + 1 and answer['pgs'] >= 0.8 * len(pinned), answer
    done = guard.wait_phase('DONE', timeout=300)
    assert done['trigger'] == 'adopt' and done['released'] > 0 and not done['pinned']
    cluster.wait_clean(60)
    print('%s: %d upmaps of the script, %d adopted, %d balancing, %d left; %d PGs released, '
          '%d kept; spread %d and %d' % (
              release, len(pinned), answer['pgs'], answer['balancing_pgs'],
              answer['left_out_pgs'], done['released'], done['kept'], spread(cluster, 'rep'),
              spread(cluster, 'ec')))
    assert balanced(guard)
    wait_reported(guard)
    retval, _, error = guard.ask('adopt')
    assert retval == -errno.ENOENT, error
    assert not guard.tracebacks()


def let_the_balancer_begin(guard: Guard, pinned: List[str]) -> int:
    """Until the balancer has removed a quarter of the upmaps; returns how many are left."""
    cluster = guard.cluster
    for name, value in BALANCER.items():
        cluster.mon('config set', who='mgr', name='mgr/balancer/' + name, value=value)
    cluster.mgr('balancer on')
    cluster.wait(lambda: len(set(pinned) & set(guard.upmaps())) <= 0.75 * len(pinned), 240,
                 'the balancer to release PGs')
    cluster.mgr('balancer off')
    cluster.wait_clean(120)
    return len(set(pinned) & set(guard.upmaps()))


def test_an_expansion_that_the_balancer_has_half_balanced(release: str, guard: Guard) -> None:
    cluster = guard.cluster
    pinned = begin_by_script(guard)
    cluster.wait_clean(60)
    left = let_the_balancer_begin(guard, pinned)
    assert left > 10 and not balanced(guard), left
    wait_reported(guard)
    found = guard.upmaps()
    # With another mode they look like upmaps that were set by hand.
    cluster.mon('config set', who='mgr', name='mgr/balancer/mode', value='crush-compat')
    try:
        cluster.wait(lambda: guard.ask('preview', change='adopt')[0] == -errno.ENOENT, 15,
                     'the mgr to have another mode')
        retval, _, error = guard.ask('adopt')
        assert retval == -errno.ENOENT and '--accept NOT_BALANCED' in error, error
        assert guard.phase() == 'IDLE' and guard.upmaps() == found
        forced = order(guard, 'adopt', dry_run=True, accept=['NOT_BALANCED'])
    finally:
        # Without a value, the mgr keeps the last one until it restarts.
        cluster.mon('config set', who='mgr', name='mgr/balancer/mode', value='upmap')
    cluster.wait(lambda: guard.ask('preview', change='adopt')[0] == 0, 15,
                 'the mgr to have the usual mode')
    before = {pg['pgid']: pg['acting'] for pg in cluster.pgs()}
    answer = order(guard, 'adopt')
    assert answer['pgs'] == forced['pgs'] and 0 < answer['pgs'] <= len(found), answer
    done = guard.wait_phase('DONE', timeout=300)
    cluster.wait_clean(60)
    moved = [pg['pgid'] for pg in cluster.pgs() if set(pg['acting']) != set(before[pg['pgid']])]
    print('%s: %d upmaps of the script, %d left by the balancer, %d upmaps then; %d adopted, '
          '%d balancing, %d left out; %d PGs released, %d kept, %d moved; spread %d and %d' % (
              release, len(pinned), left, len(found), answer['pgs'], answer['balancing_pgs'],
              answer['left_out_pgs'], done['released'], done['kept'], len(moved),
              spread(cluster, 'rep'), spread(cluster, 'ec')))
    assert done['trigger'] == 'adopt' and moved and balanced(guard)
    assert not guard.tracebacks()
