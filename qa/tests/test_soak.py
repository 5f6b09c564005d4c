# SPDX-License-Identifier: LGPL-2.1-or-later
"""Stories of an operator one after another for a long time, a third of them with a fault.

PERFGUARD_SOAK is the duration in seconds. The same mgr serves all the time, so its memory can be
compared; deaths of mgrs are the subject of test_crash.
"""
import json
import os
import random
import time
from collections import Counter
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from statistics import median
from typing import ContextManager, Counter as CounterType, Iterator, List, Sequence, Tuple

import pytest

from qa.bench.bench_mgr_memory import rss_kib
from qa.lib.clusters import ClusterFactory, small_cluster
from qa.lib.faults import meanwhile, some_fault
from qa.lib.guard import CALM, FAST_CONF, Guard
from qa.lib.stories import STORIES, Operator, audit, check_end, empty, quietly
from qa.lib.writer import Writer

SECONDS = float(os.environ.get('PERFGUARD_SOAK', '1200'))
#: Printed, so that a run can be repeated.
SEED = int(os.environ.get('PERFGUARD_SEED', time.time_ns() % 1000000))
#: So little that the store reaches its bounds within minutes.
HISTORY = {'campaign_history': '10', 'probe_history': '10'}
#: Stories that continue beside a fault; a probe aborts, and the others change pools.
DISTURBED = ('expand', 'by hand', 'drain', 'undrain', 'rollback', 'abort', 'plan')
CALM_STORIES = (*DISTURBED, 'crushmap', 'replace', 'pg_num', 'rule', 'probe', 'OSD probe')
#: Seconds from the begin of a story to its fault.
FAULT_SECONDS = (2.0, 12.0)
#: Events that nothing in a story without a fault explains.
UNEXPLAINED = {'store', 'failed', 'laggy', 'slow-osd', 'chronic-osd'}

#: By how much the memory of the mgr may grow from the second to the last third of a soak: twice
#: what was measured. Where nothing leaks it grows about as the logarithm of time, so the limit does
#: not depend on the duration: by 9 MiB from minute 10 to 17, and by 8 MiB from minute 60 to 100. In
#: a soak of two hours, a leak of 12 MiB an hour exceeds it.
GROWTH_KIB_MAX = 16 << 10
#: Minute -> memory of the mgr in a soak of two hours.
MEASURED_MIB = {10: 276, 20: 289, 30: 297, 40: 303, 60: 310, 80: 315, 100: 318, 110: 319, 120: 320}
#: Keys and bytes of the store between two stories.
KEYS_MAX, BYTES_MAX = 100, 512 << 10
#: The mons keep 500 epochs (mon_min_osdmap_epochs) before the last one that all OSDs have reported
#: as clean, and trim 250 or more at once.
OSDMAPS_MAX = 2000
#: OSDs report clean epochs to the leader every five minutes by default. Here another mon becomes
#: the leader more often, so that none would ever trim, and releases would wait for it.
BEACONS = {'osd': {'osd_beacon_report_interval': '60'}}


@dataclass(frozen=True)
class Sample:
    """What is measured between two stories."""
    at_seconds: float
    story: str
    #: Of the active mgr.
    rss_kib: int
    keys: int
    stored_bytes: int
    osdmaps: int
    epoch: int


def look(guard: Guard, at_seconds: float, story: str) -> Sample:
    cluster = guard.cluster
    first, last = cluster.kept_epochs()
    stored = cluster.mon('config-key dump', key='mgr/perfguard/')
    return Sample(round(at_seconds, 1), story, rss_kib(cluster.pid('mgr.' + cluster.active_mgr())),
                  len(stored), sum(map(len, stored.values())), last - first, last)


def growth(samples: Sequence[float]) -> float:
    """From the median of the second to that of the last third: the first third is warm-up."""
    third = len(samples) // 3
    return median(samples[2 * third:]) - median(samples[third:2 * third])


def test_memory_that_leaks_exceeds_the_limit() -> None:
    def grown(leak_mib_per_hour: int) -> float:
        return growth([1024 * mib + 1024 * leak_mib_per_hour * minute // 60
                       for minute, mib in MEASURED_MIB.items()])

    assert grown(0) <= GROWTH_KIB_MAX < grown(12)


class Soak:
    def __init__(self, operator: Operator, chance: random.Random) -> None:
        self._operator, self._chance = operator, chance
        self._cluster = operator.cluster
        self._served = [osd for osd in self._cluster.osds() if osd not in operator.osds]
        self.kinds: CounterType[str] = Counter()

    def play(self, name: str, fault: bool) -> None:
        guard, end = self._operator.guard, STORIES[name]
        empty(self._operator)
        before, last = audit(self._operator), guard.last_event()
        with self._around(fault):
            end.story(self._operator)
        self._cluster.wait_clean(240)
        self._cluster.wait(quietly(lambda: not guard.checks()), 240, 'no health check')
        check_end(self._operator, before, end)
        new = [event for event in guard.events() if event['id'] > last]
        self.kinds.update(event['kind'] for event in new)
        assert fault or not [event for event in new if event['kind'] in UNEXPLAINED], new

    def _around(self, fault: bool) -> ContextManager[None]:
        if not fault:
            return nullcontext()
        return meanwhile(some_fault(self._cluster, self._served, self._chance),
                         self._chance.uniform(*FAULT_SECONDS))


def stories(chance: random.Random) -> Iterator[Tuple[str, bool]]:
    """Each story without a fault and each that can be disturbed with one, in a random order."""
    while True:
        all_ = [*((name, False) for name in CALM_STORIES), *((name, True) for name in DISTURBED)]
        chance.shuffle(all_)
        yield from all_


@pytest.mark.releases('pacific', quick=())
@pytest.mark.timeout(SECONDS + 1800)
def test_memory_store_and_osdmaps_stay_bounded(release: str, make_cluster: ClusterFactory) -> None:
    conf = {**FAST_CONF, **BEACONS, 'global': CALM}
    guard = Guard(small_cluster(make_cluster, release, conf, mons=3), HISTORY)
    operator = Operator(guard, guard.cluster.add_osds(2, weight=0.0))
    operator.pools = ('rep',)
    chance = random.Random(SEED)
    soak, begin = Soak(operator, chance), time.monotonic()
    samples: List[Sample] = []
    print('PERFGUARD_SEED=%d' % SEED)
    with Writer(guard.cluster, 'ec') as writer:
        for name, fault in stories(chance):
            soak.play(name, fault)
            samples.append(look(guard, time.monotonic() - begin, name))
            print(json.dumps(asdict(samples[-1])), flush=True)
            if time.monotonic() - begin > SECONDS:
                break
    grown = growth([each.rss_kib for each in samples])
    print('%s: %d stories in %.0f s: RSS %+.0f KiB, at most %d keys and %d bytes stored, '
          '%d osdmaps of %d; %d writes, all read back; events %s' % (
              release, len(samples), samples[-1].at_seconds, grown,
              max(each.keys for each in samples), max(each.stored_bytes for each in samples),
              max(each.osdmaps for each in samples), samples[-1].epoch, writer.writes,
              dict(soak.kinds)))
    assert grown <= GROWTH_KIB_MAX
    assert max(each.keys for each in samples) <= KEYS_MAX
    assert max(each.stored_bytes for each in samples) <= BYTES_MAX
    assert max(each.osdmaps for each in samples) <= OSDMAPS_MAX
