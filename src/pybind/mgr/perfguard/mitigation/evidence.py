# SPDX-License-Identifier: LGPL-2.1-or-later
"""Evidence for and against mitigation, from the signals of the cluster. Pure."""
from typing import AbstractSet, Dict, FrozenSet, Iterable, List, Mapping, Sequence, Set, Tuple

from ..cluster.types import PgCounts, Signals, pool_of
from ..errors import Code, Reason
from ..observation import Observation
from ..text import pgs_are, plural
from ..watch.osds import OsdReads
from ..watch.report import SLOW
from ..watch.stop_conditions import is_muted, is_waived
from .types import Evidence, MitigationState, Trouble


def evidence(signals: Signals, laggy: bool, late: Sequence[Tuple[str, int]],
             slow_osds: Mapping[int, str], is_incomplete: bool,
             untouched: AbstractSet[int] = frozenset(), evacuating: int = 0,
             waived: Sequence[str] = ()) -> Evidence:
    """The evidence by which the ladder takes and undoes rungs. `laggy`: PERFGUARD_LAGGY_PGS is
    raised, since PGs are laggy, were so lately, or wait for read leases for too long.

    `late`: operations that are slower than their baseline ("reads of pool rbd"), with the pool.
    `slow_osds`: with the reason. A slow OSD is evidence for its primary affinity only: it may be
    slow for weeks, and a campaign that drains it must not wait for that. `is_incomplete`: the
    absence of evidence means nothing. `untouched`: slow pools on hosts without movement.
    `evacuating`: PGs that leave OSDs which are to be emptied. `waived`: codes that the operator has
    acknowledged. Like a muted health check, they are no evidence.
    """
    counts = signals.counts
    trouble: List[Reason] = []
    if counts.laggy:
        trouble.append(Reason(Code.LAGGY, '%s laggy' % pgs_are(counts.laggy),
                              number=counts.laggy))
    elif laggy and counts.wait:
        trouble.append(Reason(Code.LEASES, '%s waiting for read leases to expire'
                              % pgs_are(counts.wait), number=counts.wait))
    elif laggy:
        trouble.append(Reason(Code.LAGGY_LATELY, 'PGs were laggy within the last three reports'))
    slow_ops = [number for daemon, number in signals.slow_daemons.items()
                if daemon.startswith('osd.')]
    if slow_ops:
        trouble.append(Reason(Code.SLOW_OPS, plural(sum(slow_ops), 'slow operation'),
                              number=len(slow_ops)))
    trouble += [Reason(Code.SLOW_POOL, '%s are slower than their baseline' % text,
                       frozenset({pool})) for text, pool in late]
    accepted = tuple(reason for reason in trouble if is_waived(reason, waived))
    trouble = [reason for reason in trouble
               if not is_muted(reason, signals) and not is_waived(reason, waived)]
    # Degraded PGs may wait for the reservations of PGs without objects, which norebalance defers.
    blocked = counts.undersized_empty > 0 and counts.degraded_waiting > 0
    waiting = counts.degraded_waiting + counts.recovery_wait
    return Evidence(tuple(trouble), frozenset(untouched), _moves(counts), counts.rebalancing,
                    counts.degraded, blocked, dict(slow_osds), is_incomplete, evacuating,
                    waiting=waiting, recovering=waiting + counts.degraded_recovering > 0,
                    accepted=accepted, slow_osds_muted=SLOW in signals.muted)


def _moves(counts: PgCounts) -> bool:
    """Whether PGs move, by rebalancing or recovery."""
    return counts.rebalancing or counts.recovering > 0


# ---- Trouble over time

#: Intervals without evidence until the first rung is undone, and until a trouble is forgotten.
CLEAR_INTERVALS = 2
#: Time and intervals with norebalance in force, after which trouble that lasts has another cause
#: than movement. The alarm of a slow pool outlasts its cause by two minutes.
IN_VAIN_SECONDS = 180.0
IN_VAIN_INTERVALS = 6
#: Share of the time that counts for that while PGs are degraded: norebalance does not stop their
#: recovery, which may be the cause, and which rebalancing would add to.
RECOVERY_SHARE = 0.05
#: Maximum time that counts for one turn: longer ones mean that the mgr hung, or that another one
#: was active.
LONGEST_TURN_SECONDS = 60.0
#: Time without such trouble until it is judged anew, so that recurring trouble does not stop
#: movement repeatedly.
IN_VAIN_REST_SECONDS = 600.0
#: Codes of one trouble that goes through several conditions.
_SAME = {Code.LAGGY_LATELY: Code.LAGGY, Code.LEASES: Code.LAGGY}


def trouble_keys(reason: Reason) -> List[str]:
    """Keys of the troubles that a reason is about, as in "LAGGY" and "SLOW_POOL 7".

    Each doubling of the OSDs or PGs concerned is a trouble of its own, "LAGGY 2", "LAGGY 4": one
    operation that never ends on a failing disk says nothing about slow operations of a hundred
    OSDs.
    """
    name = ' '.join([_SAME.get(reason.code, reason.code), *map(str, sorted(reason.pools))])
    return [name] + ['%s %d' % (name, 1 << power)
                     for power in range(1, reason.number.bit_length())]


def is_known(reason: Reason, in_vain: AbstractSet[str]) -> bool:
    """Whether the trouble of a reason is among the keys `in_vain`, up to the next doubling: numbers
    vary."""
    return not in_vain.isdisjoint(trouble_keys(reason)[-2:])


def troubles(state: MitigationState, signs: Evidence, norebalance: bool, interval_seconds: float,
             now: float, tried: bool) -> Tuple[Trouble, ...]:
    """The troubles after a turn: present ones, and those that may only pause. One is `in_vain` once
    it has lasted long enough while norebalance stopped PGs: movement is not its cause.

    `norebalance`: it is in force; `interval_seconds`: mitigation_seconds; `now`: seconds since the
    epoch; `tried`: rungs against movement are in force, or were within IN_VAIN_REST_SECONDS.
    Meanwhile no trouble is forgotten: one that recurs would be mitigated for ever.
    """
    troubles_before = {trouble.key: trouble for trouble in state.troubles}
    present = {key for reason in signs.trouble for key in trouble_keys(reason)}
    turn_seconds = min(now - (state.turned or now), LONGEST_TURN_SECONDS) * (
        RECOVERY_SHARE if signs.degraded else 1.0)
    # Where nothing would be rebalanced, the flag stops nothing.
    stopped = norebalance and (signs.rebalancing or signs.is_incomplete)
    current: List[Trouble] = []
    for key in sorted(present | troubles_before.keys()):
        trouble = troubles_before.get(key, Trouble(key, now))
        if key in present:
            stopped_seconds = trouble.stopped_seconds if stopped or tried else 0.0
            stopped_seconds += turn_seconds if stopped else 0.0
            lasted = stopped_seconds >= max(IN_VAIN_SECONDS, IN_VAIN_INTERVALS * interval_seconds)
            trouble = Trouble(key, now, stopped_seconds, trouble.in_vain or lasted)
        else:
            trouble = trouble._replace(seen_at=trouble.seen_at or now)
        pause = max(CLEAR_INTERVALS * interval_seconds,
                    IN_VAIN_REST_SECONDS if trouble.in_vain else 0.0)
        is_kept = tried and not trouble.in_vain
        # While the evidence is unknown, its absence does not end a trouble.
        if signs.is_incomplete or is_kept or now - trouble.seen_at < pause:
            current.append(trouble)
    return tuple(current)


def untouched_pools(observation: Observation, pools: AbstractSet[int]) -> FrozenSet[int]:
    """Those of `pools`, the slow ones, on whose hosts no OSD takes part in movement.

    Remapped PGs move from the OSDs in pg_temp to OSDs of the rule of their pool. The OSDs of a pool
    are those of its rule, and those that serve its clients (Observation.osds_of). OSDs of one host
    may share its network, its CPU, and the device of their databases.
    """
    if not pools:
        return frozenset()
    temp, counts = observation.osdmap.pg_temp, observation.signals.pool_counts
    moving = {*map(pool_of, temp)} | {pool for pool in observation.osdmap.pools
                                      if pool not in counts or _moves(counts[pool])}
    osds_of = observation.osds_of(moving | pools)
    # A set of sets, since most pools have the same OSDs as another one.
    moving_osds: Set[int] = set().union(*temp.values(), *{osds_of[pool] for pool in moving})
    moving_hosts = {*map(observation.host_of, moving_osds)}
    return frozenset(pool for pool in pools if osds_of[pool]
                     and moving_hosts.isdisjoint(map(observation.host_of, osds_of[pool])))


# ---- Slow OSDs whose primary affinity is not lowered

#: Causes that another primary would inherit, or that do not depend on the primary.
_FUTILE = {
    'object': 'most of its operations are on one object, and would be on the next primary as well',
    'client': 'one client sends most of its operations, and would to the next primary as well',
    'pool': 'it serves more operations of one pool, and the next primaries would as well',
    'load': 'it serves more operations than its peers, and the next primaries would as well',
    'replicas': 'it replicates more writes than its peers, and would with any primary',
    'snaptrim': 'it removes deleted snapshots, as all OSDs of these PGs do',
    'restart': 'its cache is cold after a restart, and warms only while it serves reads'}
#: Causes in the OSD, its drive, its host or its network, which another primary does not have.
_OF_OSD = frozenset({'device', 'host', 'rack', 'switch', 'host_network', 'network', 'cpu', 'full',
                     'drive', 'stalls', 'process'})


#: Share of the reads of an OSD that do not depend on the primary, and least number of reads.
FUTILE_SHARE = 0.5
LEAST_OSD_READS = 20


def futile(causes: Mapping[int, Sequence[str]], reads: Mapping[int, OsdReads]) -> Dict[int, str]:
    """Slow OSDs of which a lower primary affinity would not help clients, with the reason: most of
    their reads do not depend on the primary, or the next one would inherit what makes them slow.

    By slow OSD: `causes`, the codes of the likely causes, the most significant first; `reads`, as
    far as they are known.
    """
    why = {osd: '%.0f %% of its reads are %s' % (100.0 * (row.erasure + row.replica) / sum(row), (
        'of erasure-coded pools, which need it in any case' if row.erasure > row.replica else
        'of PGs that it does not lead'))
        for osd, row in reads.items() if sum(row) >= LEAST_OSD_READS
        and row.erasure + row.replica > FUTILE_SHARE * sum(row)}
    for osd, codes in causes.items():
        # If a cause in the OSD itself is among them, another primary may help.
        futile_codes = [code for code in codes if code in _FUTILE]
        if futile_codes and _OF_OSD.isdisjoint(codes):
            why[osd] = _FUTILE[futile_codes[0]]
    return why


#: Share of the operations of an OSD that may be in pools with copies on several device classes:
#: pools of services such as .mgr have hardly any.
MIXED_SHARE = 0.1
#: Rate of a pool without operations: too low to matter beside another pool.
LEAST_RATE = 1e-9


def mixed_osds(observation: Observation, osds: Iterable[int]) -> FrozenSet[int]:
    """The OSDs in whose place OSDs of another device class would serve reads.

    More than MIXED_SHARE of their operations are in pools whose CRUSH rule places copies on several
    classes: a slow SSD is still faster than an HDD. The operations of the pools of a rule are
    divided among its OSDs by CRUSH weight; while there are none, all pools count alike. Clients of
    an erasure-coded pool read from all its OSDs in any case, so these pools do not count.
    """
    slow = frozenset(osds)
    rate_by_rule: Dict[int, float] = {}
    for number, pool in observation.osdmap.pools.items() if slow else ():
        if not pool.erasure:
            clients = observation.clients.pools.get(number)
            rate = max(clients.rate if clients is not None else 0.0, LEAST_RATE)
            rate_by_rule[pool.crush_rule] = rate_by_rule.get(pool.crush_rule, 0.0) + rate
    #: Operations per second of each OSD, and those of rules with several classes.
    rate_by_osd: Dict[int, float] = {}
    mixed_by_osd: Dict[int, float] = {}
    for rule, rate in rate_by_rule.items():
        weights = {osd: observation.crush.weight_of(rule, osd) for osd in observation.osdmap.osds}
        total_weight = sum(weights.values()) or 1.0
        classes = {observation.crush.class_of(osd) for osd, weight in weights.items()
                   if weight > 0.0}
        for osd in slow & weights.keys():
            osd_rate = rate * weights[osd] / total_weight
            rate_by_osd[osd] = rate_by_osd.get(osd, 0.0) + osd_rate
            if len(classes) > 1:
                mixed_by_osd[osd] = mixed_by_osd.get(osd, 0.0) + osd_rate
    return frozenset(osd for osd, mixed in mixed_by_osd.items()
                     if mixed > MIXED_SHARE * rate_by_osd[osd])
