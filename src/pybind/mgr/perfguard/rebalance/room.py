# SPDX-License-Identifier: LGPL-2.1-or-later
"""How many PGs may be in flight on a cluster of this size (max_pgs_in_flight 0)."""
from dataclasses import replace
from typing import Optional, Sequence, Tuple

from ..cluster.crush import CrushRules
from ..cluster.types import OsdMap
from ..options import Options
from .throttle import LEAST_PGS


class Room:
    """The number, worked out anew where CRUSH, the pools' rules or the other caps have changed."""

    def __init__(self) -> None:
        self._basis: Optional[Tuple[object, ...]] = None
        self._pgs = LEAST_PGS

    def resolve(self, options: Options, osdmap: OsdMap, crush: CrushRules,
                crush_version: int) -> Options:
        """The options with a number of PGs."""
        if options.max_pgs_in_flight:
            return options
        basis = (crush_version, frozenset(pool.crush_rule for pool in osdmap.pools.values()),
                 options)
        if basis != self._basis:
            self._basis, self._pgs = basis, pgs_in_flight(options, osdmap, crush)
        return replace(options, max_pgs_in_flight=self._pgs)


def pgs_in_flight(options: Options, osdmap: OsdMap, crush: CrushRules) -> int:
    """As many PGs as the caps by OSD, host and failure domain let move on the whole cluster.

    Each PG leaves an OSD and enters another one, in another host and failure domain as a rule.
    """
    osds = [osd for osd, weight in crush.weights().items() if weight > 0.0]
    hosts = {crush.host_of(osd) for osd in osds} - {None}
    bounds = [len(osds) * min(options.max_backfills_source, options.max_backfills_target)]
    if hosts:
        bounds.append(len(hosts) * options.max_backfills_host // 2)
    domains = [_domains(pool.crush_rule, osds, crush) for pool in osdmap.pools.values()]
    if domains and None not in domains:
        most = max(number for number in domains if number is not None)
        bounds.append(most * options.max_backfills_domain // 2)
    return max(LEAST_PGS, min(bounds))


def _domains(rule: int, osds: Sequence[int], crush: CrushRules) -> Optional[int]:
    """Failure domains of a rule; None: OSDs, which have caps of their own."""
    kind = crush.failure_domain(rule)
    if kind is None or kind == 'osd':
        return None
    return len({crush.domain_of(osd, kind) for osd in osds} - {None})
