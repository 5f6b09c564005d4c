# SPDX-License-Identifier: LGPL-2.1-or-later
"""What a cluster is like that has more hosts, or has lost some: what an operator wants to know
before it happens. Pure.

Hosts that are not there: the cluster is taken as it would be once they have booted, with OSDs of
CRUSH weight 0. From there on it is an expansion like any other, which ends with its preview.

The loss of OSDs, hosts or racks: what is degraded at once, and what the cluster is like once it has
recovered without them. Ceph marks lost OSDs out, and CRUSH then places their PGs elsewhere; their
CRUSH weight remains. Other shards move as well: CRUSH retries from another place, and the mons
remove upmaps that no longer fit.
"""
import errno
import re
from collections import Counter
from dataclasses import dataclass, replace
from itertools import chain, count, islice
from typing import (AbstractSet, Dict, FrozenSet, Iterable, List, Mapping, NamedTuple, Optional,
                    Sequence, Tuple)

from ..cluster.crush import CrushRules
from ..cluster.ports import Future, FuturePg, Grown, NewHost, NewHosts
from ..cluster.types import (NOOUT, NO_OSD, Document, Osd, OsdMap, OsdSet, Pool, Signals, Space,
                             pg_shard_bytes, pool_of)
from ..errors import Refused
from ..observation import Observation
from ..text import listed, osds_text
from ..upmap.pins import after_commit
from ..upmap.semantics import apply_entry
from .capacity import CapacityChange, CrushAndSpace, capacity_change, unreported
from .orders import (DRAINED_WEIGHT, TIB, TINY_WEIGHT, Order, OrderFacts, named_osds, weight_of,
                     words)
from .preview import EARLIER_CAMPAIGNS, eta_of
from .progress import Eta

#: Maximum number of OSDs: crushtool adds their hosts one by one.
MOST_NEW_OSDS = 500
_SHAPE = re.compile(r'(\d{1,4})x(\d{1,4})x(\d{1,6}(?:\.\d{1,6})?)([GTP])(i?)B?', re.ASCII)
#: As sold, and as Ceph counts.
_DRIVE_UNITS = {'': {'G': 10 ** 9, 'T': 10 ** 12, 'P': 10 ** 15},
                'i': {'G': 1 << 30, 'T': 1 << 40, 'P': 1 << 50}}


@dataclass(frozen=True)
class Growth:
    """Hosts that an order supposes, and the size of each of their OSDs."""
    new: NewHosts
    size_bytes: int

    def order(self, order: Order) -> Order:
        """The expansion by these OSDs."""
        return replace(order, names=tuple('osd.%d' % osd for osd in self.new.osds), hosts=(),
                       weight=repr(self.new.weight), what_if=None, under=(), device_class=None)

    def observed(self, observation: Observation, grown: Grown) -> Observation:
        """The cluster with these hosts, before their OSDs get a weight."""
        osdmap = replace(observation.osdmap, osds={
            **observation.osdmap.osds, **{osd: Osd(osd, True, 1.0) for osd in self.new.osds}})
        settings = replace(observation.settings, osdmap=osdmap)
        return replace(observation, settings=settings, crush=grown.crush.with_upmaps_kept_under(
            observation.crush.proven_rules))

    def facts(self, facts: OrderFacts, observation: Observation) -> OrderFacts:
        """The facts with these hosts. `observation`: with them as well (`observed`)."""
        return replace(facts, osdmap=observation.osdmap, crush=observation.crush, space={
            **facts.space, **{osd: Space(self.size_bytes, 0, 0) for osd in self.new.osds}})

    def as_json(self) -> Document:
        hosts = self.new.hosts
        return {'hosts': len(hosts), 'osds': len(self.new.osds), 'size_bytes': self.size_bytes,
                'under': sorted({host.parent[1] for host in hosts}),
                'device_class': self.new.device_class, 'weight': self.new.weight}


def growth(order: Order, facts: OrderFacts) -> Growth:
    """The hosts of `--what-if`. Raises Refused."""
    hosts, per_host, size = shape(order.what_if or '')
    crush = facts.crush
    parents = _parent_buckets(order.under, crush)
    device_class = _device_class(order.device_class, [name for _, name in parents], facts)
    weight = weight_of(repr(max(TINY_WEIGHT, round(size / TIB, 4)))
                       if order.weight is None else order.weight)
    free = (osd for osd in count() if osd not in facts.osdmap.osds and osd not in crush.weights())
    names = (name for name in map('what-if-{}'.format, count(1)) if crush.type_of(name) is None)
    return Growth(NewHosts(tuple(
        NewHost(name, parents[number % len(parents)], tuple(islice(free, per_host)))
        for number, name in enumerate(islice(names, hosts))), weight, device_class), size)


def shape(text: str) -> Tuple[int, int, int]:
    """Hosts, OSDs of each, and bytes of each OSD, from "4x12x16T". Raises Refused."""
    match = _SHAPE.fullmatch(text)
    if match is None:
        raise Refused(errno.EINVAL, '--what-if must be <hosts>x<OSDs of each>x<size>, such as '
                      '4x12x16T (16 * 10^12 bytes, as sold; 16TiB: 2^40), not %.40r' % text)
    hosts, osds = int(match.group(1)), int(match.group(2))
    size = int(float(match.group(3)) * _DRIVE_UNITS[match.group(5)][match.group(4)])
    if not hosts * osds or not size:
        raise Refused(errno.EINVAL, '--what-if %s adds nothing' % text)
    if hosts * osds > MOST_NEW_OSDS:
        raise Refused(errno.E2BIG, '--what-if %s adds %d OSDs (at most %d)' % (
            text, hosts * osds, MOST_NEW_OSDS))
    return hosts, osds, size


def _parent_buckets(under: Sequence[str], crush: CrushRules) -> List[Tuple[str, str]]:
    """Types and names of the buckets that the hosts are added to, in turn. Raises Refused."""
    bucket_above = crush.parents('host')
    used = sorted({bucket_above[host] for host, osds in crush.osds_by('host').items()
                   if host in bucket_above and any(_has_weight(osd, crush) for osd in osds)})
    if not used:
        raise Refused(errno.EINVAL, 'CRUSH has no hosts with OSDs below another bucket')
    if not under:
        if len(used) > 1:
            raise Refused(errno.EINVAL, 'hosts are in %s: name one or more of them with --under'
                          % listed([name for _, name in used]))
        return used
    types = sorted({kind for kind, _ in used})
    named = []
    for name in words(*under):
        kind = crush.type_of(name)
        if kind is None:
            raise Refused(errno.ENOENT, 'no bucket %.64r in CRUSH' % name)
        if kind not in types:
            raise Refused(errno.EINVAL, '%s is a %s, but hosts are in buckets of type %s, such as '
                          '%s' % (name, kind, ' or '.join(types), used[0][1]))
        named.append((kind, name))
    return named


def _device_class(named: Optional[str], under: Sequence[str], facts: OrderFacts) -> str:
    """The class of the new OSDs: the one `named`; else the only class of the OSDs below the buckets
    `under`, or of all if these have none. Raises Refused."""
    crush = facts.crush
    all_classes = _classes(crush.weights(), crush)
    if named is not None:
        if named not in all_classes:
            raise Refused(errno.ENOENT, 'no OSD has the device class %.40r' % named)
        return named
    classes = _classes(chain.from_iterable(crush.osds_below(name) or () for name in under),
                       crush) or all_classes
    if len(classes) > 1:
        raise Refused(errno.EINVAL, 'OSDs below %s have the device classes %s: name one with '
                      '--class' % (listed(under), listed([name or '(none)'
                                                          for name in sorted(classes)])))
    return next(iter(classes), '')


def _classes(osds: Iterable[int], crush: CrushRules) -> FrozenSet[str]:
    return frozenset(crush.class_of(osd) for osd in osds if _has_weight(osd, crush))


def _has_weight(osd: int, crush: CrushRules) -> bool:
    return crush.weights()[osd] > DRAINED_WEIGHT


# ---- A loss

#: The default of mon_osd_down_out_subtree_limit: the mons do not mark out OSDs below a bucket of
#: that type, or of one with a larger number, all of whose OSDs are down (OSDMonitor::tick).
SUBTREE_LIMIT = 'rack'
#: Flags with which PGs that lack shards do not get them again.
_NO_RECOVERY = frozenset({'norecover', 'nobackfill'})
#: The default of mon_osd_min_in_ratio.
MIN_IN_RATIO = 0.75


class PgLoss(NamedTuple):
    """What a loss means for one PG."""
    #: Its shards, or copies, that are lost, and that remain and are up.
    lost: int
    serving: int
    #: OSDs that get a shard, with one for each lost shard first, and that give one up.
    targets: OsdSet
    freed: OsdSet
    #: CRUSH finds an OSD for each shard.
    placed: bool
    #: The set it ends with.
    final: OsdSet


class PoolLoss(NamedTuple):
    """Number of PGs of a pool."""
    pool: str
    min_size: int
    #: That lack a shard; that have fewer than min_size, so clients wait for recovery; that have too
    #: few to be read at all; and that CRUSH finds too few OSDs for.
    degraded_pgs: int = 0
    inactive_pgs: int = 0
    unreadable_pgs: int = 0
    unplaced_pgs: int = 0


@dataclass(frozen=True)
class OsdLoss:
    osds: Tuple[int, ...]
    names: Tuple[str, ...]
    #: Space of the lost OSDs.
    space: Space
    #: Shards that recovery makes again, their bytes, and bytes of other shards that move besides.
    shards: int
    bytes: int
    moved_bytes: int
    #: Time to full redundancy; None: no campaign was measured.
    eta: Optional[Eta]
    pools: Tuple[PoolLoss, ...]
    capacity: CapacityChange
    #: OSDs that end above nearfull, and above full.
    nearfull: Tuple[int, ...]
    full: Tuple[int, ...]
    warnings: Tuple[str, ...]

    def as_json(self) -> Document:
        """The answer of the command."""
        eta = self.eta or (None, None, None)
        return {'verb': 'lose', 'dry_run': True, 'campaign': None, 'names': list(self.names),
                'osds': list(self.osds), 'total_bytes': self.space.total_bytes,
                'used_bytes': self.space.used_bytes, 'shards': self.shards, 'bytes': self.bytes,
                'moved_bytes': self.moved_bytes,
                **dict(zip(('eta_seconds', 'eta_low_seconds', 'eta_high_seconds'), eta)),
                'eta_basis': '' if self.eta is None else EARLIER_CAMPAIGNS,
                'pools': [row._asdict() for row in self.pools],
                'capacity': self.capacity.as_json(),
                'nearfull_osds': list(self.nearfull), 'full_osds': list(self.full),
                'warnings': list(self.warnings)}


def lost_osds(order: Order, facts: OrderFacts) -> FrozenSet[int]:
    """The OSDs of an order, of which at least one is in. Others may still hold data that moves away
    from them. Raises Refused."""
    rows = facts.osdmap.osds
    osds = frozenset(named_osds(order.names, facts, hosts=True) & rows.keys())
    if not any(rows[osd].reweight > 0.0 for osd in osds):
        raise Refused(errno.ENOENT, 'no OSD of %s is in' % ', '.join(order.names))
    if all(osd in osds or row.reweight == 0.0 for osd, row in rows.items()):
        raise Refused(errno.EINVAL, 'no OSD would be left')
    return osds


class _Sums:
    """What the loss means for all PGs together."""

    def __init__(self, signals: Signals) -> None:
        self._signals = signals
        #: By OSD: bytes that it gets, PGs that it has, and PGs that it will have.
        self.gained_bytes: 'Counter[int]' = Counter()
        self.pgs_before: 'Counter[int]' = Counter()
        self.pgs_after: 'Counter[int]' = Counter()
        self.losses_by_pool: Dict[int, List[PgLoss]] = {}
        self.recovered_shards = self.recovered_bytes = self.moved_bytes = 0

    def add(self, pgid: str, pg: FuturePg, pool: Pool, loss: PgLoss) -> None:
        """Count one PG."""
        self.pgs_before.update(osd for osd in pg.acting if osd != NO_OSD)
        self.pgs_after.update(osd for osd in loss.final if osd != NO_OSD)
        data_bytes = pg_shard_bytes(pool, self._signals.pool_bytes.get(pool.id, 0), pgid)
        space_bytes = pg_shard_bytes(pool, self._signals.space_of(pool.id), pgid)
        self.gained_bytes.update(dict.fromkeys(loss.targets, space_bytes))
        self.gained_bytes.subtract(dict.fromkeys(loss.freed, space_bytes))
        recovered = min(loss.lost, len(loss.targets))
        self.recovered_shards += recovered
        self.recovered_bytes += recovered * data_bytes
        self.moved_bytes += (len(loss.targets) - recovered) * data_bytes
        if loss.lost or not loss.placed:
            self.losses_by_pool.setdefault(pool.id, []).append(loss)


def loss_of(order: Order, lost: AbstractSet[int], future: Future, observation: Observation,
            facts: OrderFacts) -> OsdLoss:
    """What the loss of OSDs would cost: the shards and bytes to recover, how long that takes, which
    pools it endangers, and how full the other OSDs become.

    `future`: all PGs, placed without the lost OSDs.
    """
    osdmap = observation.osdmap
    out = osdmap.out | lost
    sums = _Sums(observation.signals)
    for pgid, pg in future.all():
        pool = osdmap.pools[pool_of(pgid)]
        sums.add(pgid, pg, pool, pg_loss(pgid, pg, pool, lost, out, future.crush, osdmap))
    before = {osd: row._replace(pgs=sums.pgs_before[osd]) for osd, row in facts.space.items()}
    after = {osd: Space(0, 0, 0) if osd in lost else Space(
        row.total_bytes, max(0, row.used_bytes + sums.gained_bytes[osd]), sums.pgs_after[osd])
        for osd, row in before.items()}
    lost_rows = [before[osd] for osd in lost if osd in before]
    return OsdLoss(
        osds=tuple(sorted(lost)), names=order.names,
        space=Space(sum(row.total_bytes for row in lost_rows),
                    sum(row.used_bytes for row in lost_rows)),
        shards=sums.recovered_shards, bytes=sums.recovered_bytes, moved_bytes=sums.moved_bytes,
        eta=eta_of(sums.recovered_bytes, facts.rates) if facts.rates else None,
        pools=tuple(_pool_loss(osdmap.pools[pool_id], losses)
                    for pool_id, losses in sorted(sums.losses_by_pool.items())),
        capacity=capacity_change(osdmap, CrushAndSpace(observation.crush, before),
                                 CrushAndSpace(observation.crush, after)),
        nearfull=_osds_above(osdmap.nearfull_ratio, after),
        full=_osds_above(osdmap.full_ratio, after),
        warnings=tuple(_warnings(lost, observation, facts.space)))


def pg_loss(pgid: str, pg: FuturePg, pool: Pool, lost: AbstractSet[int], out: FrozenSet[int],
            crush: CrushRules, osdmap: OsdMap) -> PgLoss:
    """What a PG loses with the OSDs `lost`, and where its shards go.

    `pg.acting`: its OSDs, with those that are down and in; `pg.raw`: where CRUSH places it without
    the lost OSDs; `out`: the lost OSDs, and those that are out already.
    """
    entry, previous = osdmap.entry(pgid), None
    while entry and entry != previous:
        # Without a pair, the set may be illegal: then the mons remove the rest an epoch later.
        previous = entry
        entry = after_commit(pg.raw, entry, pool, osdmap.osds, crush, pgid, out)
    final = apply_entry(pg.raw, entry, out)
    present = set(pg.acting) - {NO_OSD}
    surviving = present - lost
    if pool.erasure:
        osd_at = pg.acting + (NO_OSD,) * (len(final) - len(pg.acting))
        targets = tuple(new for old, new in zip(osd_at, final) if new not in (old, NO_OSD))
        freed = tuple(old for position, old in enumerate(pg.acting)
                      if old in surviving and final[position:position + 1] != (old,))
    else:
        targets = tuple(osd for osd in final if osd not in present)
        freed = tuple(osd for osd in surviving if osd not in final)
    if not pool.is_complete(final):
        freed = ()  # a shard is removed once the PG is clean elsewhere
    serving = sum(1 for osd in surviving if osd in osdmap.osds and osdmap.osds[osd].up)
    return PgLoss(len(present & lost), serving, targets, freed, pool.is_complete(final), final)


def _pool_loss(pool: Pool, losses: Sequence[PgLoss]) -> PoolLoss:
    serving_shards = [loss.serving for loss in losses if loss.lost]
    return PoolLoss(pool.name, pool.min_size, len(serving_shards),
                    sum(number < pool.min_size for number in serving_shards),
                    sum(number < pool.data_shards for number in serving_shards),
                    sum(not loss.placed for loss in losses))


def _osds_above(ratio: float, space: Mapping[int, Space]) -> Tuple[int, ...]:
    """OSDs fuller than that, fullest first."""
    fills = {osd: row.used_bytes / row.total_bytes for osd, row in space.items()
             if row.total_bytes > 0}
    return tuple(sorted((osd for osd, fill in fills.items() if fill > ratio),
                        key=lambda osd: (-fills[osd], osd)))


def _warnings(lost: AbstractSet[int], observation: Observation,
              space: Mapping[int, Space]) -> List[str]:
    """What delays or prevents the recovery of the OSDs `lost`, and what the numbers leave out."""
    unknown_space = unreported(observation.osdmap, space, observation.osdmap.osds.keys())
    warnings, crush = [unknown_space] if unknown_space else [], observation.crush
    serving = {osd for osd, row in observation.osdmap.osds.items() if row.up}
    down_subtrees = [
        (kind, name) for kind, name in crush.whole_subtrees(
            SUBTREE_LIMIT, (crush.weights().keys() - serving) | lost)
        if lost & (crush.osds_below(name) or frozenset())]
    for kind, name in down_subtrees[:1]:
        warnings.append('by default the mons do not mark out a whole %s (%s; '
                        'mon_osd_down_out_subtree_limit): recovery begins with "ceph osd out"'
                        % (kind, name))
    osds_left = sum(1 for osd, row in observation.osdmap.osds.items()
                    if row.reweight > 0.0 and osd not in lost)
    if osds_left < MIN_IN_RATIO * len(observation.osdmap.osds):
        warnings.append('by default the mons mark no further OSD out once fewer than %d %% are in '
                        '(mon_osd_min_in_ratio)' % (100 * MIN_IN_RATIO))
    if NOOUT in observation.osdmap.flags:
        warnings.append('noout is set: recovery begins once it is unset')
    elif lost & observation.noout_by_name:
        warnings.append('noout is set for %s ("ceph osd unset-group"): recovery begins once it is '
                        'unset' % osds_text(sorted(lost & observation.noout_by_name)))
    for flag in sorted(_NO_RECOVERY & observation.osdmap.flags):
        warnings.append('%s is set: PGs do not recover until it is unset' % flag)
    down = [osd for osd in observation.osdmap.absent if osd not in lost]
    if down:
        warnings.append('%s down: its PGs count as if it returned with its data' % (
            '%s is' % osds_text(down) if len(down) == 1 else '%s are' % osds_text(down)))
    return warnings
