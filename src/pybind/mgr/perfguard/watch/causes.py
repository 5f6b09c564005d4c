# SPDX-License-Identifier: LGPL-2.1-or-later
"""Likely causes of a slow OSD or pool, each with its evidence.

A cause is reported only if there is evidence for it. The drive is reported if the store is slow
and no other cause was found.
"""
import math
from collections import Counter
from dataclasses import dataclass, field
from typing import Dict, Iterable, Iterator, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from ..cluster.types import ClientLoad, ObjectLoad, OsdPlace
from ..text import plural, seconds_text
from .drives import DriveEvidence, with_drive
from .laggy import is_slow_ping, slow_pings, median_ping_ms
from .osd_window import CHANNELS, COMMITS, READS, REPLICATED, STORE_READS, WRITES
from .slow_parts import DEVICE, HOST, RACK
from .types import SlowShared

#: Share of the OSDs of a host with slow heartbeats that indicates the network of the host.
HOST_PING_SHARE = 2 / 3
#: Share of OSDs with slow heartbeats among those to which an OSD has fast ones, and of other OSDs
#: among the rest, that indicates a network that some hosts share.
SIDE_SHARE = 2 / 3
#: Load relative to the peers from which the load may be the cause.
HOT_LOAD = 1.5
#: Minimum share of the operations of a client or object that is reported.
HEAVY_SHARE = 0.5
#: Minimum number of operations for such shares.
CAUSE_OPS = 50.0

#: Minimum of bytes per second in SST files that indicates a compaction, and their minimum ratio to
#: the WAL, since flushes alone write less than that receives, and to the median of the peers.
COMPACTION_BYTES = 1 << 20
COMPACTION_RATIO = 2.0

#: Work besides client operations: code -> count of PGs, text. PgCounts has no PGs that OSDs delete,
#: since these are in no acting set.
WORK = {'deep_scrub': ('deep_scrubbing', 'deep scrub of %s'),
        'snaptrim': ('snaptrim', 'removal of deleted snapshots in %s'),
        'backfill': ('backfilling', 'backfill of %s'),
        'recovery': ('recovering', 'recovery of %s'),
        'deletion': ('', 'deletion of %s')}
#: Minimum ratio of the PGs that it works on to those of its peers' median. What all OSDs do makes
#: none of them slower than the others.
WORK_RATIO = 2.0

#: Names as in CHANNELS.
STORE_CHANNELS = frozenset({CHANNELS[COMMITS], CHANNELS[STORE_READS]})
READ_CHANNELS = frozenset({CHANNELS[READS], CHANNELS[STORE_READS]})
#: What an OSD measures of operations of clients on PGs that it leads.
OWN_CHANNELS = frozenset({CHANNELS[READS], CHANNELS[WRITES]})


class LikelyCause(NamedTuple):
    code: str
    text: str
    #: Numbers and names, by JSON key.
    evidence: Mapping[str, object]
    #: The text without the name of a client or object; '' if `text` has none.
    unnamed: str = ''


class ExtraWork(NamedTuple):
    """Work besides client operations of which an OSD has more than its peers."""
    #: A key of WORK.
    code: str
    #: PGs that it works on, and the median of its peers.
    pgs: int
    peers_pgs: float
    #: Whether it had more than they before it became slow; None: not known, as after a failover, or
    #: if both began at about the same time. A slow OSD works longer than its peers, so what began
    #: later may be an effect.
    was_first: Optional[bool]


class KvWrites(NamedTuple):
    """Bytes per second that the RocksDB of an OSD writes, and those of its peers' median."""
    sst: float
    wal: float
    peers_sst: float


@dataclass(frozen=True)
class OsdEvidence:
    """Evidence on a slow OSD. None and empty: not known."""
    osd: int
    #: Kind of operation (CHANNELS) -> slowdown, of all that were compared.
    slowdowns: Mapping[str, float] = field(default_factory=dict)
    #: Slowdown from which an OSD is slow.
    ratio: float = 1.5
    #: Its operations per second / the median of its peers.
    load_ratio: float = 1.0
    #: How many times the operations of these it should serve, as its drive is larger.
    weight_ratio: float = 1.0
    host: str = ''
    #: OSDs of its host.
    host_osds: Tuple[int, ...] = ()
    #: What it shares with other slow OSDs, if that is slow as a whole.
    shared: Optional[SlowShared] = None
    work: Tuple[ExtraWork, ...] = ()
    #: Whether it is known on what it works.
    work_known: bool = True
    kv_writes: Optional[KvWrites] = None
    #: Seconds since it was restarted, if that was lately, and before it became slow.
    restarted_seconds: Optional[float] = None
    #: SMART data of what may be slow: the shared device, or its main drive. None: not read yet.
    drive: Optional[DriveEvidence] = None
    #: "nearfull", "backfillfull", "full" or ''.
    fullness: str = ''
    #: OSD -> heartbeat ping time in ms.
    ping_ms: Mapping[int, float] = field(default_factory=dict)
    #: OSDs of several hosts, with it, whose heartbeats are slow, but not among them.
    side: Tuple[OsdPlace, ...] = ()
    #: Operations by client, and the names of pools.
    clients: Sequence[ClientLoad] = ()
    #: Operations of clients on it / the median of its peers.
    client_ratio: Optional[float] = None
    #: Operations on the busiest objects.
    objects: Sequence[ObjectLoad] = ()
    pool_names: Mapping[int, str] = field(default_factory=dict)


def causes(facts: OsdEvidence) -> Tuple[LikelyCause, ...]:
    """The likely causes, the most significant first; may be empty."""
    likely = [*_shared_part(facts), *_heartbeats(facts), *_full(facts), *_work(facts),
              *_restart(facts), *higher_load(facts)]
    # The drive is not to blame for what may be an effect of other work.
    other_work_possible = not facts.work_known or any(work.was_first is None for work in facts.work)
    return tuple(likely if likely or other_work_possible else _what_is_slow(facts))


#: Where the OSDs of a shared part are, and what to check of it.
CHECK_OF_PART = {DEVICE: ('on', 'check this device (SMART, kernel log)'),
                 HOST: ('on', 'check its CPU, memory, disk controller and network'),
                 RACK: ('in', 'check its switch, power and cooling')}


def _shared_part(facts: OsdEvidence) -> List[LikelyCause]:
    """The cause that all OSDs of a device, host or rack are slow."""
    shared = facts.shared
    if shared is None:
        return []
    kind, name = shared.part
    evidence: Dict[str, object] = {kind: name, 'osds': list(shared.osds)}
    where, check = CHECK_OF_PART[kind]
    if shared.devices:
        evidence['devices'] = list(shared.devices)
        check = 'check device %s, which all of them share; %s' % (', '.join(shared.devices), check)
    if kind == DEVICE:
        check, evidence = with_drive(check, evidence, facts.drive)
    return [LikelyCause(kind, '%d of %s %s %s are slow: %s' % (
        len(shared.osds), plural(shared.size, 'OSD'), where, shared.subject, check), evidence)]


def _heartbeats(facts: OsdEvidence) -> List[LikelyCause]:
    """The cause that the heartbeats of an OSD suggest: CPU, a switch, the network of its host, or
    its own. [] if they are not slow. Its peers measure them.

    A drive does not delay heartbeats, and a network does not delay commits: if both are slow, the
    processes get too little CPU or memory.
    """
    median_ms = median_ping_ms(facts.ping_ms)
    slow_on_host = slow_pings(facts.ping_ms) & {facts.osd, *facts.host_osds}
    if facts.osd not in slow_on_host:
        return []
    ping = facts.ping_ms[facts.osd]
    ping_text = 'heartbeat ping time %.0f ms (median of all OSDs %.1f ms)' % (ping, median_ms)
    evidence: Dict[str, object] = {'ping_ms': round(ping, 3), 'median_ping_ms': round(median_ms, 3)}
    host_is_slow = len(slow_on_host) >= max(2.0, HOST_PING_SHARE * len(facts.host_osds))
    slow_channels = _slow_channels(facts)
    if slow_channels.keys() & STORE_CHANNELS:
        return [LikelyCause(
            'cpu', 'too little CPU or memory%s: %s, and its store is slow as well' % (
                ' on host %s' % facts.host if host_is_slow else '', ping_text),
            {**evidence, 'slowdowns': slow_channels,
             **({'host': facts.host, 'osds': sorted(slow_on_host)} if host_is_slow else {})})]
    if facts.side:  # a slow link separates several hosts from the others
        hosts = sorted({place.host for place in facts.side})
        return [LikelyCause('switch', 'network between hosts %s and the others: %s, but fast among '
                            'these hosts: check the switch or the link that they share'
                            % (', '.join(hosts), ping_text),
                            {**evidence, 'hosts': hosts,
                             'osds': [place.osd for place in facts.side]})]
    if host_is_slow:
        return [LikelyCause('host_network', 'network of host %s: %s, as for most of its OSDs'
                            % (facts.host, ping_text),
                            {**evidence, 'host': facts.host, 'osds': sorted(slow_on_host)})]
    return [LikelyCause('network', 'network, or an OSD that hangs briefly: ' + ping_text, evidence)]


def switch_side(osd: int, peer_ping_ms: Mapping[int, Mapping[int, float]],
                ping_ms: Mapping[int, float], places: Mapping[int, OsdPlace]
                ) -> Tuple[OsdPlace, ...]:
    """The OSDs on the same side of a slow link as an OSD with slow heartbeats: itself, and the
    other such OSDs to which its heartbeats are fast. Empty if nothing indicates a link between
    hosts.

    `peer_ping_ms`: OSD -> peer -> heartbeat ping time in ms; `ping_ms`: OSD -> the median of these.
    """
    median_ms = median_ping_ms(ping_ms)
    slow = slow_pings(ping_ms) if osd in places else frozenset()
    if osd not in slow:
        return ()
    times = {peer: ms for peer, ms in peer_ping_ms.get(osd, {}).items() if peer in places}
    near_peers = {peer for peer, ms in times.items() if not is_slow_ping(ms, median_ms)}
    far_peers = times.keys() - near_peers
    this_side, other_side = {osd} | near_peers & slow, far_peers - slow
    # Most OSDs on this side have slow heartbeats too, and most of the others do not.
    two_sides = len(near_peers & slow) >= SIDE_SHARE * len(near_peers) \
        and len(other_side) >= SIDE_SHARE * len(far_peers)
    several_hosts = all(len({places[member].host for member in members}) > 1
                        for members in (this_side, other_side))
    return tuple(places[member] for member in sorted(this_side)) \
        if two_sides and several_hosts else ()


def _full(facts: OsdEvidence) -> List[LikelyCause]:
    if not facts.fullness:
        return []
    return [LikelyCause('full', 'its device is %s' % facts.fullness, {'fullness': facts.fullness})]


def _work(facts: OsdEvidence) -> List[LikelyCause]:
    """Work besides client operations that may have made it slow."""
    likely = []
    for work in facts.work:
        # Work that began later, or about when the OSD became slow, may be an effect of that.
        if work.was_first:
            of_peers = ' (median of its peers %g)' % work.peers_pgs if work.peers_pgs else ''
            _, text = WORK[work.code]
            likely.append(LikelyCause(work.code, text % plural(work.pgs, 'PG') + of_peers,
                                      {'pgs': work.pgs, 'peers_pgs': work.peers_pgs}))
    return likely + _compaction(facts)


def _restart(facts: OsdEvidence) -> List[LikelyCause]:
    """The cause that the cache of an OSD is cold; [] unless reads are slow."""
    seconds = facts.restarted_seconds
    if seconds is None or not _slow_channels(facts).keys() & READ_CHANNELS:
        return []
    return [LikelyCause('restart', 'it was restarted %s ago, so its cache is cold'
                        % seconds_text(seconds), {'seconds': round(seconds)})]


def _compaction(facts: OsdEvidence) -> List[LikelyCause]:
    """The cause that the RocksDB of an OSD compacts more than those of its peers; [] unless the
    store of the OSD is slow as well."""
    wrote = facts.kv_writes
    # Flushes alone write less to SST files than the WAL receives.
    if wrote is None or not _slow_channels(facts).keys() & STORE_CHANNELS or wrote.sst < max(
            COMPACTION_BYTES, COMPACTION_RATIO * wrote.wal, COMPACTION_RATIO * wrote.peers_sst):
        return []
    return [LikelyCause(
        'compaction', 'compaction of its RocksDB: it writes %.1f MiB/s to SST files (WAL %.1f '
        'MiB/s; median of its peers %.1f MiB/s)' % tuple(amount / (1 << 20) for amount in wrote),
        {'%s_bytes_per_second' % key: round(amount) for key, amount in wrote._asdict().items()})]


def higher_load(facts: OsdEvidence) -> List[LikelyCause]:
    """The cause that an OSD serves more operations than its peers ([]: it does not, or because its
    drive is larger), with what most of these have in common: other primaries, an object, a client,
    or else the busiest pool. The code is 'load' if too few operations are known to say. For slow
    OSDs and for others."""
    excess = facts.load_ratio / facts.weight_ratio
    if excess < HOT_LOAD:
        return []
    text = 'it serves %.1f times the operations of its peers' % facts.load_ratio
    evidence: Dict[str, object] = {'load_ratio': round(facts.load_ratio, 2)}
    # Clients send it little more than they send to its peers: less than half of the excess, as a
    # logarithm. The rest are writes that it replicates.
    if facts.client_ratio is not None \
            and facts.client_ratio / facts.weight_ratio < math.sqrt(excess):
        return [LikelyCause('replicas', text + ', mostly of PGs with other primaries', {
            **evidence, 'client_load_ratio': round(facts.client_ratio, 2)})]
    loads = [row for row in facts.clients if row.osd == facts.osd]
    ops_by_pool: Counter[int] = Counter()
    for row in loads:
        ops_by_pool[row.pool] += row.ops
    total = sum(ops_by_pool.values())
    by_whom = [*_hot_object(facts, total), *map(_by_client, heavy_clients(loads))]
    if by_whom:
        return [LikelyCause(cause.code, '%s; %s' % (text, cause.text),
                            {**evidence, **cause.evidence}, '%s; %s' % (text, cause.unnamed))
                for cause in by_whom]
    if total >= CAUSE_OPS:
        pool, ops = ops_by_pool.most_common(1)[0]
        name = facts.pool_names.get(pool, str(pool))
        return [LikelyCause('pool', '%s; %.0f %% are of pool %s' % (text, 100 * ops / total, name),
                            {**evidence, 'pool': name, 'share': round(ops / total, 3)})]
    return [LikelyCause('load', text, evidence)]


def _by_client(share: 'ClientShare') -> LikelyCause:
    return LikelyCause('client', share.text(), share.to_json(), share.unnamed())


def _hot_object(facts: OsdEvidence, total: int) -> Iterator[LikelyCause]:
    """The object with at least HEAVY_SHARE of the operations of clients on the OSD, if there is
    one. `total`: the number of these operations."""
    objects: Counter[Tuple[int, str]] = Counter()
    for row in facts.objects:
        if row.osd == facts.osd:
            objects[row.pool, row.name] += row.ops
    for (pool, name), ops in objects.most_common(1):
        if total >= CAUSE_OPS and ops >= HEAVY_SHARE * total:
            # The two counts do not begin at the same instant.
            share, pool_name = min(1.0, ops / total), facts.pool_names.get(pool, str(pool))
            text = '%.0f %% are on' % (100 * share)
            yield LikelyCause('object', '%s object %s of pool %s' % (text, name, pool_name),
                              {'object': name, 'pool': pool_name, 'share': round(share, 3)},
                              '%s one object of pool %s' % (text, pool_name))


def _what_is_slow(facts: OsdEvidence) -> List[LikelyCause]:
    """The part of an OSD that is slow, if there is no evidence of a cause: its drive, its process,
    or its way to other OSDs (brief stalls). [] if the slow operations do not show which."""
    slow = _slow_channels(facts)
    if not slow:
        return []
    if slow.keys() & STORE_CHANNELS:
        return [LikelyCause('drive', *with_drive(
            'its store is slow and nothing else explains that: check the drive (SMART, kernel log)',
            {'slowdowns': slow}, facts.drive))]
    # An OSD that leads hardly any PGs, as with a primary affinity of 0, measures no operations of
    # its own: its process may be as slow as its primaries see it.
    if slow.keys() == {CHANNELS[REPLICATED]} and facts.slowdowns.keys() & OWN_CHANNELS:
        return [LikelyCause('stalls', 'only the primaries of its PGs see it as slow: it hangs '
                            'briefly, or its network drops packets', {'slowdowns': slow})]
    if slow.keys() & OWN_CHANNELS and facts.slowdowns.keys() & STORE_CHANNELS:
        return [LikelyCause('process', 'its store is as fast as that of its peers: check the CPU '
                            'and memory of the OSD process', {'slowdowns': slow})]
    return []


def _slow_channels(facts: OsdEvidence) -> Dict[str, float]:
    return {kind: round(slowdown, 2) for kind, slowdown in facts.slowdowns.items()
            if slowdown >= facts.ratio}


# ---- Heavy clients

@dataclass(frozen=True)
class ClientShare:
    """Share of one client in the operations of a pool or an OSD."""
    client: str
    address: str
    share: float
    ops: float

    def text(self) -> str:
        return '%s (%s) %s' % (self.client, self.address, self._part())

    def unnamed(self) -> str:
        return 'one client ' + self._part()

    def _part(self) -> str:
        return 'sends %.0f %% of the operations' % (100 * self.share)

    def to_json(self) -> Dict[str, object]:
        return {'client': self.client, 'address': self.address, 'share': round(self.share, 3)}


def heavy_clients(rows: Iterable[ClientLoad]) -> Tuple[ClientShare, ...]:
    """The client that sends at least HEAVY_SHARE of the operations, alone in a tuple. () if there
    is none, if no other client sends any, or if fewer than CAUSE_OPS operations are known."""
    ops: Counter[Tuple[str, str]] = Counter()
    for row in rows:
        ops[row.client, row.address] += row.ops
    total = sum(ops.values())
    if total < CAUSE_OPS or len(ops) < 2:
        return ()
    (client, address), client_ops = ops.most_common(1)[0]
    share = client_ops / total
    return (ClientShare(client, address, share, client_ops),) if share >= HEAVY_SHARE else ()
