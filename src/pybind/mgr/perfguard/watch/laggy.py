# SPDX-License-Identifier: LGPL-2.1-or-later
"""Laggy PGs and the OSDs that are suspected to cause them.

A PG becomes laggy when a client operation finds its read lease expired, because an OSD of its
acting set did not acknowledge the renewal in time. So an OSD that hangs is in the acting set of all
laggy PGs and the primary of none: PGs of which it is the primary keep the state it last reported.

Renewals and their acknowledgements pass the same messenger threads as all operations. In a flood of
writes the OSDs report and answer, but these threads work without a pause, and renewals wait.
"""
from dataclasses import dataclass, field
from typing import Callable, Dict, FrozenSet, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from ..cluster.types import OsdSet, PgCounts, Pressure, UnreadablePg
from ..codec import Time
from .rounds import latest

#: Maximum numbers of suspects and PGs that are kept.
MOST_SUSPECTS = 5
MOST_LAGGY_PGS = 200
#: Heartbeats of an OSD are slow from this time, and this multiple of the median, on.
SLOW_PING_MS = 10.0
SLOW_PING_FACTOR = 5.0
#: Share of the laggy PGs with one primary that suggests a lost lease renewal, and share of the
#: laggy PGs that must be known for that hint.
WEDGE_SHARE = 0.8
KNOWN_SHARE = 0.5
#: Share of the time for which a messenger thread works: from the first on, what it receives waits;
#: up to the second, load is not why renewals wait. In a flood of writes on six OSDs, that of the
#: OSD in all laggy PGs worked for 0.83 to 0.92 of the time, the others' for 0.13 to 0.52.
MESSENGER_BUSY_SHARE, MESSENGER_IDLE_SHARE = 0.7, 0.3

#: Time from the arrival of operations until they begin up to which an OSD is not overloaded.
CALM_QUEUE_MS = 20.0

# Mechanisms, of which each was provoked. A slow network is none of them: heartbeats are as slow if
# an OSD stops for moments, or has too little CPU time. With a cable that carried 0.7 of the traffic
# of one OSD of six, its heartbeats took 555 ms (median of all OSDs: 1.2 ms), messengers worked for
# 0.00 to 0.01 of the time, and operations of all OSDs, many of which waited for leases, began after
# 97 to 4,796 ms.
HANGS, LOAD, NO_MECHANISM = 'hangs', 'load', 'unknown'
MECHANISM_TEXTS = {
    HANGS: 'it hangs, or is cut off from the network',
    LOAD: 'its messenger threads are too busy for lease renewals',
    NO_MECHANISM: 'unknown'}


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
    #: How it makes PGs laggy, as far as the evidence says: a key of MECHANISM_TEXTS.
    mechanism: str = NO_MECHANISM


class LaggyEpisode(NamedTuple):
    """The last time for which PGs were laggy. Times in seconds since the epoch."""
    since: Time
    #: 0.0: it lasts.
    until: Time
    #: The first suspect, with the last evidence of a mechanism if there was any, and its time.
    osd: int
    mechanism: str
    why: str
    time: Time

    def text(self) -> str:
        return 'main suspect osd.%d (mechanism: %s): %s' % (
            self.osd, MECHANISM_TEXTS.get(self.mechanism, self.mechanism), self.why)


def episode_after(last: Optional[LaggyEpisode], since: float, now: float,
                  suspect: Optional[Suspect]) -> Optional[LaggyEpisode]:
    """The last episode once PGs are still laggy at `now`: `last` if that lasts, otherwise a new one
    that began at `since`. It names the main suspect of now, unless that has no evidence of a
    mechanism and the one before has. `last`: None: there was none. `suspect`: None: no OSD is
    suspected, so nothing changes.
    """
    lasting = last if last is not None and not last.until else None
    had_evidence = lasting is not None and lasting.mechanism != NO_MECHANISM
    if suspect is None or (had_evidence and suspect.mechanism == NO_MECHANISM):
        return last
    return LaggyEpisode(since if lasting is None else lasting.since, 0.0, suspect.osd,
                        suspect.mechanism, suspect.why, now)


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
    #: OSD -> how busy its threads are, of those that were asked.
    pressures: Mapping[int, Pressure] = field(default_factory=dict)


class LaggyPgs:
    """The laggy PGs that their primaries report."""

    def __init__(self) -> None:
        self._by_primary: Dict[int, Dict[str, LaggyPg]] = {}

    def update(self, now: float, answers: Mapping[int, Sequence[UnreadablePg]],
               acting_of: Callable[[str], Optional[OsdSet]],
               osd_counts: Mapping[int, PgCounts]) -> None:
        """Note which PGs are laggy, by what their primaries answer, until they answer otherwise.
        `answers`: OSD that was asked -> PGs that are not readable, with it as the primary.
        `acting_of`: the acting set of a PG; None: the PG does not exist. `osd_counts`: OSD -> PGs
        with it in their acting set."""
        self._drop_moved(acting_of)
        # OSDs without laggy PGs are not asked again.
        for osd in list(self._by_primary):
            counts = osd_counts.get(osd, PgCounts())
            if not counts.laggy + counts.wait:
                del self._by_primary[osd]
        for osd, blocked in answers.items():
            before = self._by_primary.pop(osd, {})
            laggy: Dict[str, LaggyPg] = {}
            for pg in blocked:
                acting = acting_of(pg.pgid)
                if acting is not None:
                    laggy_before = before.get(pg.pgid)
                    laggy[pg.pgid] = LaggyPg(pg.pgid, osd, acting,
                                             laggy_before.since if laggy_before else now - pg.age)
            if laggy:
                self._by_primary[osd] = laggy

    def _drop_moved(self, acting_of: Callable[[str], Optional[OsdSet]]) -> None:
        """Drop PGs whose acting set has changed: they have a new interval and new leases."""
        for laggy in self._by_primary.values():
            for pgid, pg in list(laggy.items()):
                if acting_of(pgid) != pg.acting:
                    del laggy[pgid]

    def clear(self) -> None:
        self._by_primary.clear()

    def all(self) -> Tuple[LaggyPg, ...]:
        """The PG that has waited longest first."""
        pgs = [pg for laggy in self._by_primary.values() for pg in laggy.values()]
        return tuple(sorted(pgs, key=lambda pg: (pg.since, pg.pgid))[:MOST_LAGGY_PGS])


def suspects(signals: LaggySignals) -> Tuple[Suspect, ...]:
    """OSDs that may be the cause, the most likely first.

    The score adds up: 0.5 for the share of the laggy PGs with the OSD in their acting set; 0.1 for
    the share of its PGs that are laggy; up to 0.1, scaled by the first share, for the share of the
    known ones of which it is not the primary; 0.3 if it does not report, else 0.2 if its heartbeats
    are slow; 0.2 if its messenger threads are busy, or if it is the primary of nearly all and
    responds. The weights only order the suspects: in a small cluster, every OSD shares PGs with the
    cause.
    """
    median_ping = median_ping_ms(signals.ping_ms)
    rated = []
    for osd, counts in signals.osd_counts.items():
        laggy = counts.laggy + counts.wait
        if not laggy and osd not in signals.silent:
            continue
        coverage = min(1.0, laggy / max(1, signals.total))
        score = 0.5 * coverage + 0.1 * laggy / max(1, counts.total)
        why = ['in the acting set of %d of %d laggy PGs' % (laggy, signals.total)]
        pgs_led = sum(1 for pg in signals.pgs if pg.primary == osd)
        if signals.pgs:
            score += 0.1 * coverage * (1 - pgs_led / len(signals.pgs))
            why.append('primary of %s of the %d known' % (pgs_led or 'none', len(signals.pgs)))
        ping = signals.ping_ms.get(osd, 0.0)
        slow_ping = is_slow_ping(ping, median_ping)
        if osd in signals.silent:
            score += 0.3
            why.append('no report for %.0f s' % signals.silent[osd])
        elif slow_ping:
            score += 0.2
            why.append('heartbeat ping time %.0f ms '
                       '(median of all OSDs %.1f ms)' % (ping, median_ping))
        why += _pressure_texts(signals.pressures.get(osd))
        leads_nearly_all = not slow_ping and _leads_nearly_all(signals, pgs_led)
        mechanism = _mechanism(signals, osd)
        if mechanism == LOAD or leads_nearly_all:
            score += 0.2
        maybe_lost = leads_nearly_all and _is_without_load(signals, osd)
        if maybe_lost:
            why.append('answers heartbeats and reports: a read lease renewal may have been lost')
        rated.append(Suspect(osd, round(score, 3), ', '.join(why),
                             _advice(osd, signals, mechanism, maybe_lost, slow_ping), mechanism))
    return tuple(sorted(rated, key=lambda suspect: (-suspect.score, suspect.osd))[:MOST_SUSPECTS])


def _mechanism(signals: LaggySignals, osd: int) -> str:
    """Why the PGs of a suspected OSD are laggy."""
    if osd in signals.silent:
        return HANGS
    return LOAD if _is_busy(signals.pressures.get(osd)) else NO_MECHANISM


def _is_without_load(signals: LaggySignals, osd: int) -> bool:
    """Whether it is known that load delays no lease renewals of a suspected OSD: neither its own
    load nor that of the other OSDs that were asked."""
    return osd in signals.pressures and all(
        pressure.messenger_share <= MESSENGER_IDLE_SHARE
        and (pressure.queue_ms is None or pressure.queue_ms <= CALM_QUEUE_MS)
        for pressure in signals.pressures.values())


def _is_busy(pressure: Optional[Pressure]) -> bool:
    return pressure is not None and pressure.messenger_share >= MESSENGER_BUSY_SHARE


def _pressure_texts(pressure: Optional[Pressure]) -> List[str]:
    """How busy the messenger of a suspected OSD is, as texts."""
    if pressure is None:
        return []
    texts = ['its busiest messenger thread works %.0f %% of the time'
             % (100 * pressure.messenger_share)]
    if pressure.queue_ms is not None:
        texts.append('its operations wait %.1f ms, also for leases' % pressure.queue_ms)
    return texts


def _leads_nearly_all(signals: LaggySignals, pgs_led: int) -> bool:
    """Whether an OSD is the primary of nearly all laggy PGs (of `pgs_led` of the known ones), and
    all OSDs of these PGs report and are not busy. Then renewals may have been lost."""
    # Too few of the laggy PGs are known, of which at most MOST_LAGGY_PGS are kept.
    if len(signals.pgs) < max(2.0, KNOWN_SHARE * min(signals.total, MOST_LAGGY_PGS)):
        return False
    if any(osd_id in signals.silent or _is_busy(signals.pressures.get(osd_id))
           for pg in signals.pgs for osd_id in pg.acting):
        return False
    return pgs_led >= WEDGE_SHARE * len(signals.pgs)


def _advice(osd: int, signals: LaggySignals, mechanism: str, maybe_lost: bool,
            slow_ping: bool) -> str:
    """What to do about a suspected OSD; '': nothing is known. `maybe_lost`: lease renewals of the
    PGs that it leads may have been lost; `slow_ping`: its heartbeats are slow."""
    if osd in signals.silent:
        return ('osd.%d hangs or its host is unreachable: check both; "ceph osd down %d" makes '
                'its PGs peer without it') % (osd, osd)
    if mechanism == LOAD:
        return ('let clients write less at a time, or give its messenger more threads: '
                '"ceph config set osd ms_async_op_threads 6", then restart it')
    if maybe_lost:
        pgid = next(pg.pgid for pg in signals.pgs if pg.primary == osd)
        return ('force a new interval, which renews the leases: "ceph pg repeer %s", '
                'likewise for the other PGs') % pgid
    if slow_ping:
        return 'check the network and the load of the host of osd.%d' % osd
    return ''


@latest
def median_ping_ms(ping_ms: Mapping[int, float]) -> float:
    """The median heartbeat time of all OSDs; 0.0: none is known."""
    values = sorted(ping_ms.values())
    return values[len(values) // 2] if values else 0.0


@latest
def slow_pings(ping_ms: Mapping[int, float]) -> FrozenSet[int]:
    """The OSDs whose heartbeats are slow."""
    median_ms = median_ping_ms(ping_ms)
    return frozenset(osd for osd, ms in ping_ms.items() if is_slow_ping(ms, median_ms))


def is_slow_ping(ping_ms: float, median_ms: float) -> bool:
    return ping_ms > max(SLOW_PING_MS, SLOW_PING_FACTOR * median_ms)
