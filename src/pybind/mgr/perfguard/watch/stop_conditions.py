# SPDX-License-Identifier: LGPL-2.1-or-later
"""Stop conditions: reasons to hold all releases, or those that concern certain OSDs and pools."""
from collections import Counter
from dataclasses import dataclass
from typing import (AbstractSet, Callable, FrozenSet, Iterable, List, Mapping, NamedTuple, Optional,
                    Sequence, Tuple)

from ..cluster.types import OsdMap, PgCounts, Signals
from ..errors import Code, Reason
from ..text import osds_text, pgs, pgs_are, plural
from .slowness import CROWD_PART

#: Health checks that stop all releases, with what to say (the check's own summary follows).
#: Nothing in them says which OSDs they concern.
STOP_CHECKS = {
    'MON_DOWN': Reason(Code.MON_DOWN, 'mons out of quorum'),
    # Each release adds OSDMaps to the store of the mons.
    'MON_DISK_LOW': Reason(Code.MON_DISK, 'little disk space on mons'),
    'MON_DISK_CRIT': Reason(Code.MON_DISK, 'very little disk space on mons'),
    'MON_DISK_BIG': Reason(Code.MON_DISK, 'large stores of mons'),
    'SLOW_OPS': Reason(Code.SLOW_OPS, 'slow operations'),
    'OSD_SLOW_PING_TIME_BACK': Reason(Code.SLOW_PING, 'slow heartbeats'),
    'OSD_SLOW_PING_TIME_FRONT': Reason(Code.SLOW_PING, 'slow heartbeats'),
}
#: Further checks that prevent the start of a campaign. Full OSDs and pools do not: a campaign is
#: needed to empty an OSD, no PG is released onto a full one, and a quota only stops clients.
UNHEALTHY_CHECKS = {
    'OSD_SCRUB_ERRORS': Reason(Code.OSD_SCRUB_ERRORS, 'scrub errors'),
    'PG_DAMAGED': Reason(Code.PG_DAMAGED, 'damaged PGs'),
}
#: The health check that an operator mutes to ignore a stop condition.
MUTED_BY = {Code.LAGGY: 'PERFGUARD_LAGGY_PGS', Code.LAGGY_LATELY: 'PERFGUARD_LAGGY_PGS',
            Code.LEASES: 'PERFGUARD_LAGGY_PGS', Code.INACTIVE: 'PG_AVAILABILITY',
            Code.DEGRADED: 'PG_DEGRADED', Code.SLOW_OPS: 'SLOW_OPS',
            Code.SLOW_POOL: 'PERFGUARD_LATENCY', Code.OSD_DOWN: 'OSD_DOWN'}
#: Conditions under which no campaign begins unless the operator accepts them.
UNHEALTHY = (Code.DEGRADED, Code.INACTIVE, Code.LAGGY, Code.LEASES, Code.MON_DISK, Code.MON_DOWN,
             Code.OSD_DOWN, Code.OSD_SCRUB_ERRORS, Code.PEERING, Code.PG_DAMAGED,
             Code.PG_NUM_CHANGING, Code.SLOW_OPS, Code.SLOW_PING)
#: Stop conditions that `campaign accept` waives.
WAIVABLE = (Code.DEGRADED, Code.INACTIVE, Code.LAGGY, Code.LEASES, Code.MON_DISK, Code.MON_DOWN,
            Code.PG_LIMIT, Code.PIN_LIMIT, Code.SAME_DRIVE, Code.SLOW_OPS, Code.SLOW_PING,
            Code.SLOW_POOL, Code.UNTRIMMED_CEILING, Code.UPGRADE)
#: Those of WAIVABLE that are limits or decisions, and are waived until the campaign ends; the
#: others are conditions, which come and go.
LASTING = (Code.PG_LIMIT, Code.PIN_LIMIT, Code.SAME_DRIVE, Code.UNTRIMMED_CEILING)
#: Seconds without the condition of an accepted code after which the code is no longer accepted, and
#: what texts say of it then.
ABSENT_SECONDS = 600.0
ABSENT_TEXT = 'absent for ' + plural(round(ABSENT_SECONDS / 60), 'minute')


@dataclass(frozen=True)
class Touched:
    """OSDs and pools that a change or a release concerns."""
    osds: AbstractSet[int]
    pools: AbstractSet[int]


NOTHING = Touched(frozenset(), frozenset())


class OwnPg(NamedTuple):
    """A PG that may be degraded because the campaign has released it."""
    pool: int
    #: OSDs that serve it.
    osds: FrozenSet[int]


@dataclass(frozen=True)
class Stop:
    """A reason to hold releases, and the OSDs and pools concerned; `osds` None: all."""
    reason: Reason
    osds: Optional[FrozenSet[int]] = None
    pools: FrozenSet[int] = frozenset()
    #: OSDs to be emptied that may explain it: of PGs that leave them, only the targets count.
    failing: FrozenSet[int] = frozenset()

    def concerns(self, osds: Iterable[int], pools: Iterable[int]) -> bool:
        return self.osds is None or not (self.osds.isdisjoint(osds)
                                         and self.pools.isdisjoint(pools))


def is_waived(reason: Reason, waived: Sequence[str]) -> bool:
    """Whether the operator has waived it. Waiving laggy PGs includes PGs that were laggy lately."""
    return reason.code in waived or (reason.code == Code.LAGGY_LATELY and Code.LAGGY in waived)


def is_muted(reason: Reason, signals: Signals) -> bool:
    return MUTED_BY.get(reason.code) in signals.muted


def stop_conditions(signals: Signals,
                    osd_counts: Mapping[int, PgCounts] = {},
                    own_pgs: Sequence[OwnPg] = ()) -> List[Stop]:
    """The stop conditions that hold now and are not muted: of PGs, of health checks (STOP_CHECKS)
    and of slow operations.

    Conditions of PGs concern the OSDs with such PGs, else the pools with such PGs; if neither is
    known, they concern everything. Laggy PGs always do: clients wait, and any movement may be the
    cause. `osd_counts`: PGs by the OSDs of their acting sets; empty if not known. `own_pgs`: PGs
    that may be degraded because they were released, which is no stop condition. Nor are degraded
    PGs that are backfill_toofull: releases make the room that they wait for.
    """
    counts = signals.counts
    stops: List[Stop] = []
    for number, code, text in ((counts.laggy, Code.LAGGY, 'laggy'),
                               (counts.wait, Code.LEASES, 'waiting for read leases to expire')):
        if number > 0:
            stops.append(Stop(Reason(code, '%s %s' % (pgs_are(number), text))))
    stops += _located(Code.INACTIVE, 'inactive', lambda counts: counts.stuck, signals, osd_counts,
                      ())
    # Without those that wait for room: releases do not slow their recovery, and make the room.
    stops += _located(Code.DEGRADED, 'degraded',
                      lambda counts: counts.degraded - counts.degraded_toofull, signals, osd_counts,
                      own_pgs)
    # If it is known which daemons report slow operations (slow_ops is their sum), _slow_ops says
    # more than the check.
    stops += [Stop(reason) for reason in _checks(STOP_CHECKS, signals)
              if reason.code != Code.SLOW_OPS or not signals.slow_daemons]
    if signals.slow_ops:
        stops.append(_slow_ops(signals))
    return [stop for stop in stops if not is_muted(stop.reason, signals)]


def _located(code: str, text: str, number_of: Callable[[PgCounts], int], signals: Signals,
             osd_counts: Mapping[int, PgCounts], own_pgs: Sequence[OwnPg]) -> List[Stop]:
    """The stop condition of the PGs that `number_of` counts: on the OSDs that have such PGs besides
    `own_pgs` (those that may be so because they were released), else on the pools; on everything if
    neither is known. [] if there are no such PGs, or only `own_pgs`. `text`: what they are."""
    total = number_of(signals.counts)
    if total <= 0:
        return []
    subject = '%s %s' % (pgs_are(total), text)
    number_by_osd = {osd: number_of(counts) for osd, counts in osd_counts.items()}
    if any(number_by_osd.values()):
        # A degraded PG is counted on each of its OSDs; others of `own_pgs` are not degraded.
        own_pgs = [pg for pg in own_pgs if all(number_by_osd.get(osd, 0) for osd in pg.osds)]
    own_by_osd = Counter(osd for pg in own_pgs for osd in pg.osds)
    own_by_pool = Counter(pg.pool for pg in own_pgs)
    osds = frozenset(osd for osd, number in number_by_osd.items() if number > own_by_osd[osd])
    pools = frozenset(pool for pool, counts in signals.pool_counts.items()
                      if number_of(counts) > own_by_pool[pool])
    if osds:
        return [Stop(Reason(code, '%s on %s' % (subject, osds_text(osds))), osds)]
    if pools:  # `osds` is empty: no OSD is concerned
        return [Stop(Reason(code, '%s in %s' % (subject, plural(len(pools), 'pool'))), osds, pools)]
    # A total alone does not show which PGs are degraded.
    all_are_own = total <= len(own_pgs) and bool(osd_counts or signals.pool_counts)
    return [] if all_are_own else [Stop(Reason(code, subject))]


def _slow_ops(signals: Signals) -> Stop:
    """The stop condition of slow operations, of which there are some. It concerns the OSDs that
    report them, or everything if a mon does too or the daemons are not known."""
    text = plural(signals.slow_ops, 'slow operation')
    names, osds = signals.slow_daemons, osds_with_slow_ops(signals)
    if not names or len(osds) < len(names):
        return Stop(Reason(Code.SLOW_OPS, text))
    return Stop(Reason(Code.SLOW_OPS, '%s on %s' % (text, osds_text(osds))), osds)


def osds_with_slow_ops(signals: Signals) -> FrozenSet[int]:
    return frozenset(int(name[4:]) for name in signals.slow_daemons
                     if name.startswith('osd.') and name[4:].isdigit())


def _checks(checks: Mapping[str, Reason], signals: Signals) -> List[Reason]:
    """The reasons of those of the health checks that are raised, with their summaries."""
    return [Reason(reason.code, '%s: %s' % (reason.text, signals.health[check]))
            for check, reason in checks.items() if check in signals.health]


def unhealthy(signals: Signals, osdmap: OsdMap, osd_counts: Mapping[int, PgCounts] = {},
              touched: Optional[Touched] = None) -> List[Reason]:
    """Reasons not to begin a campaign that are not muted, each with one of UNHEALTHY.

    `osd_counts`: as for stop_conditions(). `touched`: OSDs and pools that the change concerns;
    None: not known, so all may be.
    """
    stops = stop_conditions(signals, osd_counts)
    # Degraded PGs that wait for room stop no release. But what lacks a copy cannot be pinned, so a
    # change would wait for it.
    toofull = _located(Code.DEGRADED, 'degraded and backfill_toofull',
                       lambda counts: counts.degraded_toofull, signals, osd_counts, ())
    stops += [stop for stop in toofull if not is_muted(stop.reason, signals)]
    stops += _down(signals, osdmap)
    stops += map(Stop, peering(signals.counts))
    stops += [Stop(reason) for reason in _checks(UNHEALTHY_CHECKS, signals)]
    for pool in osdmap.pools.values():
        if pool.pg_num != pool.pg_num_target or pool.pg_num_pending != pool.pg_num:
            text = 'pg_num of pool %s is changing from %s to %d' % (
                pool.name, pgs(pool.pg_num), pool.pg_num_target)
            # It concerns changes of the pool, wherever its PGs are.
            stops.append(Stop(Reason(Code.PG_NUM_CHANGING, text), osds=frozenset(),
                              pools=frozenset({pool.id})))
    return [stop.reason for stop in stops
            if touched is None or stop.concerns(touched.osds, touched.pools)]


def peering(counts: PgCounts) -> List[Reason]:
    number = counts.in_transition
    return [Reason(Code.PEERING, '%s peering or activating' % pgs_are(number))] if number else []


def _down(signals: Signals, osdmap: OsdMap) -> List[Stop]:
    """The stop condition of OSDs that are down and in, whose data is about to move elsewhere."""
    down = osdmap.absent
    if not down or 'OSD_DOWN' in signals.muted:
        return []
    return [Stop(Reason(Code.OSD_DOWN, 'OSDs down but in: %s' % osds_text(down)), down)]


def split_by_scope(stops: Sequence[Stop],
                   in_flight: AbstractSet[int]) -> Tuple[List[Stop], List[Stop]]:
    """The stops of all releases, and those of some OSDs, after which `stopped_moves` (releasing.py)
    may leave no move either. `in_flight`: the OSDs of PGs in flight.

    If more than CROWD_PART of the OSDs of PGs in flight report slow operations, all movement may be
    the cause. Fewer may be slow on their own, and movement elsewhere does not burden them. Nor is
    movement the cause while a drained OSD fails: all OSDs that share PGs with it wait for it.
    """
    wide = [stop for stop in stops if stop.osds is None or (
        stop.reason.code == Code.SLOW_OPS and not stop.failing
        and len(stop.osds & in_flight) > CROWD_PART * len(in_flight))]
    return wide, [stop for stop in stops if stop not in wide]
