# SPDX-License-Identifier: LGPL-2.1-or-later
"""The whole page that Prometheus reads."""
from typing import Callable, Dict, Iterable, List, NamedTuple, Optional, Tuple

from .. import errors
from ..probe import resources
from ..probe.report import Probed
from ..status import HELD_PINS, Published
from ..watch.checks import CHRONIC, LAGGY, LATENCY, SLOW
from . import campaign, watch
from .probes import ProbeMetrics
from .text import Sample, labels, render

#: All health checks that perfguard knows.
CHECKS = (LAGGY, SLOW, CHRONIC, LATENCY, 'PERFGUARD_STALLED', 'PERFGUARD_UNPINNABLE',
          HELD_PINS, 'PERFGUARD_INTERRUPTED', 'PERFGUARD_PROBE_REGRESSION', resources.CHECK,
          errors.CHECK)


class Build(NamedTuple):
    """What serves the metrics."""
    version: str
    ceph_version: str
    #: As in "mgr.x".
    daemon: str


class MetricsPage:
    """Made when it is asked for, from what the loop published last, and once for each: it needs
    no lock, and scrapes in between cost nothing. For one thread."""

    def __init__(self, build: Callable[[], Build]) -> None:
        self._build = build
        self._probes = ProbeMetrics()
        self._made: Optional[Tuple[Published, Probed, bytes]] = None

    def text(self, published: Published, probed: Probed) -> bytes:
        made = self._made
        if made is None or made[0] is not published or made[1] is not probed:
            made = self._made = published, probed, self._text(published, probed)
        return made[2]

    def _text(self, published: Published, probed: Probed) -> bytes:
        samples: Dict[str, Iterable[Sample]] = dict(self._own(published))
        for found in (campaign.campaign(published.rebalance, published.campaign),
                      campaign.mitigation(published.mitigated.listing),
                      watch.cluster(published.status['signals']),
                      watch.pools(published.watched.pools), watch.osds(published.watched.osds),
                      watch.suspects(published.watched.laggy), self._probes.samples(probed)):
            samples.update(found)
        return render(samples)

    def _own(self, published: Published) -> Dict[str, List[Sample]]:
        build, status = self._build(), published.status
        found: Dict[str, List[Sample]] = {
            'info': [(labels(version=build.version, ceph_version=build.ceph_version,
                             ceph_daemon=build.daemon), 1)],
            'health_check': [(labels(name=name), name in status['health']) for name in CHECKS]}
        if published.turned:
            found['last_turn_timestamp_seconds'] = [('', published.turned)]
            found['turn_cpu_seconds'] = [('', round(status['turn_cpu_ms'] / 1000.0, 9))]
        return found
