# SPDX-License-Identifier: LGPL-2.1-or-later
"""Laggy PGs and the OSDs that are suspected to cause them.

A PG becomes laggy when a client operation finds its read lease expired, because an OSD of its
acting set did not acknowledge the renewal in time. So an OSD that hangs is in the acting set of all
laggy PGs and the primary of none: PGs of which it is the primary keep the state it last reported.
"""
from dataclasses import dataclass, field
from typing import Callable, Dict, Mapping, NamedTuple, Optional, Sequence, Tuple

from ..cluster.types import OsdSet, PgCounts, UnreadablePg

#: Maximum numbers of suspects and PGs that are kept.
MOST_SUSPECTS = 5
MOST_LAGGY_PGS = 200
#: Heartbeats of an OSD are slow from this time, and this multiple of the median, on.
SLOW_PING_MS = 10.0
SLOW_PING_FACTOR = 5.0
#: Share of the laggy PGs with one primary that suggests a lost lease renewal, and share of the
#: laggy PGs that must be known for that conclusion.
WEDGE_SHARE = 0.8
KNOWN_SHARE = 0.5


class LaggyPg(NamedTuple):
    pgid: str
    primary: int
    acting: OsdSet
    #: When the first operation that waited arrived, in seconds since the epoch.
    since: float


class Suspect(NamedTuple):
    osd: int
    #: 0 to 1
    score: float
    why: str
    #: A command or a place to check; '' if there is no specific advice.
    advice: str = ''


@dataclass(frozen=True)
class LaggySignals:
    """What is known while PGs are laggy."""
    #: Number of laggy and waiting PGs.
    total: int
    #: OSD -> PGs with it in their acting set.
    osd_counts: Mapping[int, PgCounts]
    pgs: Sequence[LaggyPg] = ()
    #: OSD -> seconds since its last report to the mgr, of OSDs whose report is late.
    silent: Mapping[int, float] = field(default_factory=dict)
    #: OSD -> heartbeat time, in ms.
    ping_ms: Mapping[int, float] = field(default_factory=dict)


class LaggyPgs:
    """The laggy PGs that their primaries report."""

    def __init__(self) -> None:
        self._by_primary: Dict[int, Dict[str, LaggyPg]] = {}

    def update(self, now: float, answers: Mapping[int, Sequence[UnreadablePg]],
               acting_of: Callable[[str], Optional[OsdSet]],
               osd_counts: Mapping[int, PgCounts]) -> None:
        """`answers`: OSD that was asked -> PGs that are not readable, with it as the primary."""
        self._drop_moved(acting_of)
        # OSDs without laggy PGs are not asked again.
        for osd in list(self._by_primary):
            counts = osd_counts.get(osd, PgCounts())
            if not counts.laggy + counts.wait:
                del self._by_primary[osd]
        for osd, blocked in answers.items():
            before = self._by_primary.pop(osd, {})
            named: Dict[str, LaggyPg] = {}
            for pg in blocked:
                acting = acting_of(pg.pgid)
                if acting is not None:
                    laggy_before = before.get(pg.pgid)
                    named[pg.pgid] = LaggyPg(pg.pgid, osd, acting,
                                             laggy_before.since if laggy_before else now - pg.age)
            if named:
                self._by_primary[osd] = named

    def _drop_moved(self, acting_of: Callable[[str], Optional[OsdSet]]) -> None:
        """Drop PGs whose acting set has changed: they have a new interval and new leases."""
        for named in self._by_primary.values():
            for pgid, pg in list(named.items()):
                if acting_of(pgid) != pg.acting:
                    del named[pgid]

    def clear(self) -> None:
        self._by_primary.clear()

    def all(self) -> Tuple[LaggyPg, ...]:
        """The PG that has waited longest first."""
        pgs = [pg for named in self._by_primary.values() for pg in named.values()]
        return tuple(sorted(pgs, key=lambda pg: (pg.since, pg.pgid))[:MOST_LAGGY_PGS])


def suspects(signals: LaggySignals) -> Tuple[Suspect, ...]:
    """OSDs that may be the cause, the most likely first.

    The score adds up: 0.5 for the share of the laggy PGs with the OSD in their acting set, 0.1 for
    the share of its PGs that are laggy, 0.1 if it is the primary of none of the known ones, 0.3 if
    it does not report, 0.2 if its heartbeats are slow, and 0.2 if it is the primary of nearly all
    and responds. The weights only order the suspects: in a small cluster, every OSD shares PGs with
    the cause.
    """
    usual_ping = usual_ping_ms(signals.ping_ms)
    rated = []
    for osd, counts in signals.osd_counts.items():
        laggy = counts.laggy + counts.wait
        if not laggy and osd not in signals.silent:
            continue
        coverage = min(1.0, laggy / max(1, signals.total))
        score = 0.5 * coverage + 0.1 * laggy / max(1, counts.total)
        why = ['in the acting set of %d of %d laggy PGs' % (laggy, signals.total)]
        led = sum(1 for pg in signals.pgs if pg.primary == osd)
        if signals.pgs:
            score += 0.1 * coverage * (1 - led / len(signals.pgs))
            why.append('primary of %s of the %d known' % (led or 'none', len(signals.pgs)))
        ping = signals.ping_ms.get(osd, 0.0)
        slow_ping = is_slow_ping(ping, usual_ping)
        if osd in signals.silent:
            score += 0.3
            why.append('no report for %.0f s' % signals.silent[osd])
        elif slow_ping:
            score += 0.2
            why.append('heartbeat ping time %.0f ms '
                       '(median of all OSDs %.1f ms)' % (ping, usual_ping))
        wedged = _wedged(signals, osd, led, slow_ping)
        if wedged:
            score += 0.2
            why.append('answers heartbeats and reports: a read lease renewal was probably lost')
        rated.append(Suspect(osd, round(score, 3), ', '.join(why),
                             _advice(osd, signals, wedged, slow_ping)))
    return tuple(sorted(rated, key=lambda suspect: (-suspect.score, suspect.osd))[:MOST_SUSPECTS])


def _wedged(signals: LaggySignals, osd: int, led: int, slow_ping: bool) -> bool:
    """Whether lease renewals of one primary were lost: it and its peers respond."""
    if slow_ping or len(signals.pgs) < max(2.0, KNOWN_SHARE * min(signals.total, MOST_LAGGY_PGS)):
        return False
    if any(osd_id in signals.silent for pg in signals.pgs for osd_id in pg.acting):
        return False
    return led >= WEDGE_SHARE * len(signals.pgs)


def _advice(osd: int, signals: LaggySignals, wedged: bool, slow_ping: bool) -> str:
    if osd in signals.silent:
        return ('osd.%d hangs or its host is unreachable: check both; "ceph osd down %d" makes '
                'its PGs peer without it') % (osd, osd)
    if wedged:
        led = next(pg.pgid for pg in signals.pgs if pg.primary == osd)
        return ('force a new interval, which renews the leases: "ceph pg repeer %s", '
                'likewise for the other PGs') % led
    if slow_ping:
        return 'check the network and the load of the host of osd.%d' % osd
    return ''


def usual_ping_ms(ping_ms: Mapping[int, float]) -> float:
    """The median of all OSDs."""
    values = sorted(ping_ms.values())
    return values[len(values) // 2] if values else 0.0


def is_slow_ping(ping_ms: float, usual_ms: float) -> bool:
    return ping_ms > max(SLOW_PING_MS, SLOW_PING_FACTOR * usual_ms)
