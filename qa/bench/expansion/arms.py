# SPDX-License-Identifier: LGPL-2.1-or-later
"""The ways to expand: each takes OSDs that are up but not in CRUSH; ends with all data moved."""

import time
from typing import Any, Callable, Dict, List, Mapping, Sequence

from qa.cluster import Cluster, WaitTimeout
from qa.demo.operator import Operator

WEIGHT = 1.0
POLL_SECONDS = 1.0

#: A command that perfguard accepts begins a campaign within this time, or never.
BEGIN_SECONDS = 60.0

Tick = Callable[[Mapping[str, Any]], None]


class Expander:
    def __init__(self, cluster: Cluster, operator: Operator, osds: Sequence[int], timeout: float,
                 tick: Tick) -> None:
        """`tick` gets perfguard's ``campaign status`` every second; `timeout` is one step's."""
        self._cluster = cluster
        self._operator = operator
        self._osds = osds
        self._timeout = timeout
        self._tick = tick

    def stock(self) -> None:
        """With all their weight at once, as ``ceph osd crush add`` or an OSD's first start."""
        self._cluster.place(self._osds, WEIGHT)
        # PGs report every few seconds; pg_temp is in the OSDMap as soon as they peer.
        self._cluster.flush_pg_stats()
        self._poll(lambda: not self._cluster.osd_dump()['pg_temp'], 'no remapped PG')
        self._cluster.wait_clean(self._timeout)

    def expand(self) -> None:
        """perfguard's own command, on OSDs that wait in CRUSH without weight."""
        self._cluster.place(self._osds, 0.0)
        self._operator.type('perfguard expand', weight=f'{WEIGHT:g}')
        self._follow('DONE')

    def prepare_and_pin(self) -> None:
        """Announced to perfguard, added with all their weight, pinned, released."""
        self._operator.type('perfguard campaign prepare')
        self._follow('PREPARED')
        self._cluster.place(self._osds, WEIGHT)
        self._cluster.wait_active(self._timeout)
        self._operator.type('perfguard campaign pin')
        self._follow('PINNED')
        self._operator.type('perfguard campaign start')
        self._follow('DONE')

    def _follow(self, phase: str) -> None:
        seen: List[str] = []
        begin = time.monotonic()

        def arrived() -> bool:
            status = self._operator.campaign()
            seen[:] = [f'{status["phase"]}: {"; ".join(status["reasons"])}']
            self._tick(status)
            if status['phase'] in ('ABORTED', 'ABORTING') or \
                    status['phase'] == 'IDLE' and time.monotonic() - begin > BEGIN_SECONDS:
                raise WaitTimeout(f'the campaign is {seen[0]}')
            return bool(status['phase'] == phase)

        self._poll(arrived, f'the campaign to be {phase}', seen)

    def _poll(self, done: Callable[[], bool], what: str, seen: Sequence[str] = ()) -> None:
        deadline = time.monotonic() + self._timeout
        while not done():
            if time.monotonic() > deadline:
                raise WaitTimeout(f'not in {self._timeout:g} s: {what}; '
                                  + '; '.join([*seen, self._cluster.health()]))
            time.sleep(POLL_SECONDS)


#: Ceph alone is first: options of perfguard do not apply to it.
METHODS: Dict[str, Callable[[Expander], None]] = {
    'stock': Expander.stock, 'perfguard': Expander.expand,
    'perfguard-pin': Expander.prepare_and_pin, 'fixed-caps': Expander.expand}
STOCK = 'stock'
#: Options of perfguard that a method brings along. Fixed caps: PGs are pinned and released as with
#: upmap-remapped and a balancer, so many at a time, regardless of client latency.
PRESETS: Dict[str, Dict[str, str]] = {'fixed-caps': {
    'latency_alarm_factor': '1000', 'latency_factor': '100', 'stall_ratio': '1',
    'fast_peering': 'off', 'pace_copying': 'off'}}
#: Latency against time: Ceph alone, at its own pace and slowed down, and perfguard with stricter
#: and looser limits than its own.
FRONTIER = (STOCK, 'stock:osd_recovery_sleep_hdd=0.03', 'stock:osd_recovery_sleep_hdd=0.1',
            'perfguard:stall_ratio=0.001:latency_factor=1.25', 'perfguard',
            'perfguard:stall_ratio=0.01:latency_factor=2.5',
            'perfguard:stall_ratio=0.03:latency_factor=5:latency_alarm_factor=10')
