# SPDX-License-Identifier: LGPL-2.1-or-later
"""A cluster of three OSDs becomes slower as a whole, and the event names the option that was
changed: no OSD has a faster peer."""
import time
from typing import Callable, Dict

import pytest

from qa.cluster import Cluster
from qa.lib.guard import FAST_CONF, Guard

ClusterFactory = Callable[..., Cluster]

pytestmark = [pytest.mark.alone, pytest.mark.releases('pacific', 'reef', 'tentacle', quick=())]

POOL = 'p'
RATE = 150.0
#: Each message to an OSD waits for this; an operation has several.
DELAY: Dict[str, str] = {'osd_debug_inject_dispatch_delay_duration': '0.004',
                         'osd_debug_inject_dispatch_delay_probability': '1'}
#: Points of 10 s instead of a minute: 20 of them before the step, and 11 after it.
OPTIONS = {'baseline_seconds': '100'}
BEFORE_SECONDS, NAMED_SECONDS = 260.0, 240.0


@pytest.mark.timeout(900)
def test_the_event_names_the_option_that_has_made_all_osds_slow(
        release: str, cluster_factory: ClusterFactory) -> None:
    cluster = cluster_factory(release, osds=3, hosts=3, conf=FAST_CONF)
    try:
        cluster.pool_create(POOL, 32)
        cluster.wait_clean(60)
        guard = Guard(cluster, OPTIONS)
        cluster.load(POOL, rate=RATE, read_fraction=0.5, runtime=880)
        time.sleep(BEFORE_SECONDS)
        assert guard.event_texts('latency-step') == []
        changed_at = time.strftime('%H:%M UTC', time.gmtime())
        for name, value in DELAY.items():
            cluster.mon('config set', who='osd', name=name, value=value)
        cluster.wait(lambda: guard.event_texts('latency-step'), NAMED_SECONDS, 'the event')
        event = next(event for event in guard.events() if event['kind'] == 'latency-step')
        print('%s, changed at %s: %s (%s)' % (release, changed_at, event['what'], event['why']))
        assert 'of pool p take ' in event['what']
        for name, value in DELAY.items():
            assert '%s of osd: ' % name in event['why'], event
        assert not guard.slow_osds() and not guard.tracebacks()
        time.sleep(60)
        assert len({event['what'].partition(' of pool')[0] for event in guard.events()
                    if event['kind'] == 'latency-step'}) == len(guard.event_texts('latency-step'))
    finally:
        cluster.down()
