# SPDX-License-Identifier: LGPL-2.1-or-later
"""Expansions that another tool has begun, with upmaps, are taken over and brought to their end."""
import errno
from collections import Counter

import pytest

from qa.cluster import Cluster
from qa.lib.guard import Guard
from qa.lib.joins import as_script, order, wait_reported

pytestmark = [pytest.mark.releases('pacific', 'reef', 'tentacle', quick='reef'),
              pytest.mark.shares('campaign')]

OPTIONS = {'target': 'balanced', 'max_extra_movement': '10'}


def spread(cluster: Cluster, pool: str) -> int:
    """PGs of the fullest OSD less those of the emptiest, of one pool; all OSDs weigh the same."""
    number = next(row['pool'] for row in cluster.osd_dump()['pools'] if row['pool_name'] == pool)
    found = Counter(osd for pg in cluster.pgs() if pg['pgid'].startswith('%d.' % number)
                    for osd in pg['up'])
    counts = [found[osd] for osd in cluster.osds()]
    return max(counts) - min(counts)


def test_an_expansion_pinned_by_a_script(release: str, guard: Guard) -> None:
    cluster = guard.cluster
    guard.configure(OPTIONS)
    cluster.mon('config set', who='mgr', name='mgr/balancer/upmap_max_deviation', value='1')
    cluster.mgr('balancer off')
    wait_reported(guard)
    retval, _, error = guard.ask('rebalance adopt', dry_run=True)
    assert retval == -errno.ENOENT, error
    cluster.mon('osd set', key='norebalance')
    cluster.add_osds(4)
    guard.wait_remapped()
    pinned = as_script(cluster)
    cluster.wait_active(60)
    cluster.mon('osd unset', key='norebalance')
    # The script is done, or was interrupted: what is left remapped is pinned by the campaign.
    upmaps = guard.upmaps()
    assert len(pinned) > 20 and set(pinned) <= set(upmaps)
    assert spread(cluster, 'rep') > 8
    preview = order(guard, 'preview adopt')
    assert preview['campaign'] is None and guard.upmaps().keys() <= upmaps.keys()
    assert guard.phase() == 'IDLE'
    answer = order(guard, 'rebalance adopt', force=True)
    assert answer['campaign'] == guard.former + 1 and answer['pgs'] >= 0.8 * len(pinned), answer
    done = guard.wait_phase('DONE', timeout=300)
    assert done['trigger'] == 'adopt' and done['released'] > 0 and not done['pinned']
    cluster.wait_clean(60)
    print('%s: %d upmaps of the script, %d adopted, %d balancing, %d left; %d PGs released, '
          '%d kept; spread %d and %d' % (
              release, len(pinned), answer['pgs'], answer['balancing_pgs'],
              answer['left_out_pgs'], done['released'], done['kept'], spread(cluster, 'rep'),
              spread(cluster, 'ec')))
    assert spread(cluster, 'rep') <= 2 and spread(cluster, 'ec') <= 2
    wait_reported(guard)
    retval, _, error = guard.ask('rebalance adopt')
    assert retval == -errno.ENOENT, error
    assert not guard.tracebacks()
