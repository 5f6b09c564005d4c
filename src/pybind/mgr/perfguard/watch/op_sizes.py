# SPDX-License-Identifier: LGPL-2.1-or-later
"""Mean sizes of the operations of each OSD: one that serves larger operations than its peers takes
longer for each of them, and is not slow. Pure.

A pool with few PGs is on a part of the OSDs, and its clients may read and write 4 MiB at a time
where those of other pools read and write 4 KiB.
"""
from typing import Dict, List, Mapping, Optional, Sequence, Tuple

from ..cluster.types import NO_OSD, OsdPlace, PgWrites, Pool, pool_of
from .osd_window import READS, STORE_READS
from .peers import FLASH_CLASSES, LEAST_SCORE, Findings, PeerFinding, median
from .pools import PoolOps
from .steps import SPLIT_READS
from .types import Sizes

#: Weight of a reading against the ones before: about the last minute counts.
READING_WEIGHT = 1 / 8
#: Bytes per ms that a healthy flash drive, or another one, reaches beside other operations: about
#: half of a SATA SSD, and a third of a disk.
FLASH_BYTES_PER_MS, DISK_BYTES_PER_MS = 250e3, 60e3


class OpSizes:
    """The mean sizes of operations of late: of reads on each OSD, of writes to each pool, and of
    writes on each OSD, from those of the pools."""

    def __init__(self) -> None:
        self._reads, self._writes = _Means(), _Means()
        #: OSD -> pool -> writes, replicated ones included, in the last reading by PG.
        self._mix: Mapping[int, Mapping[int, int]] = {}

    def update(self, ops: Mapping[int, PoolOps], pg_writes: Optional[Sequence[PgWrites]],
               pools: Mapping[int, Pool], places: Mapping[int, OsdPlace]) -> None:
        """Note the sizes of the operations of a reading. `ops`: of clients, by pool. `pg_writes`:
        client writes by PG, which show to which pools the writes of an OSD belong; None: not read
        this time, so the last ones remain valid. `places`: of the OSDs; others are forgotten."""
        reads, read_bytes = (dict.fromkeys(places, 0.0) for _ in range(2))
        writes, write_bytes = (dict.fromkeys(pools, 0.0) for _ in range(2))
        for pool_id in ops.keys() & pools.keys():
            of_pool = ops[pool_id]
            # The OSDs of an erasure-coded PG have a part of each operation.
            parts = pools[pool_id].data_shards
            # With this flag, clients may read such a part directly from its OSD. It is not known
            # which reads are direct, so all count as such.
            read_parts = 1 if SPLIT_READS in pools[pool_id].flags else parts
            for _, osd, (_, number), _, bytes_of_osd, _ in of_pool.rows:
                if osd in reads:
                    reads[osd] += number
                    read_bytes[osd] += bytes_of_osd / read_parts
            writes[pool_id] = of_pool.writes
            write_bytes[pool_id] = of_pool.write_bytes / parts
        self._reads.add(reads, read_bytes)
        self._writes.add(writes, write_bytes)
        if pg_writes is not None:
            self._mix = _mix(pg_writes)

    def by_osd(self) -> Dict[int, Sizes]:
        """Of all OSDs that have a place."""
        bytes_by_pool = self._writes.bytes()
        return {osd: Sizes(mean, _mixed(self._mix.get(osd, {}), bytes_by_pool))
                for osd, mean in self._reads.bytes().items()}


class _Means:
    """Mean sizes, of late, by OSD or pool. Plain numbers: there may be 10,000 OSDs, and Python's
    garbage collector examines any objects."""

    def __init__(self) -> None:
        self._ops: Dict[int, float] = {}
        self._bytes: Dict[int, float] = {}

    def add(self, ops: Mapping[int, float], number_of_bytes: Mapping[int, float]) -> None:
        """Add the operations of a reading. Keys that are not in it are forgotten."""
        self._ops, self._bytes = _with(self._ops, ops), _with(self._bytes, number_of_bytes)

    def bytes(self) -> Dict[int, float]:
        return {key: self._bytes[key] / ops if ops > 0.0 else 0.0 for key, ops in self._ops.items()}


def _with(means: Mapping[int, float], reading: Mapping[int, float]) -> Dict[int, float]:
    """Exponentially weighted means with one more reading."""
    after: Dict[int, float] = {}
    for key, value in reading.items():
        before = means.get(key, 0.0)
        after[key] = before + READING_WEIGHT * (value - before)
    return after


def _mix(pg_writes: Sequence[PgWrites]) -> Dict[int, Dict[int, int]]:
    """OSD -> pool -> writes, with those that it replicates."""
    mix: Dict[int, Dict[int, int]] = {}
    for row in pg_writes:
        pool = pool_of(row.pgid)
        for osd in row.acting:
            if osd != NO_OSD:
                of_osd = mix.setdefault(osd, {})
                of_osd[pool] = of_osd.get(pool, 0) + row.write.number
    return mix


def _mixed(ops_by_pool: Mapping[int, int], of_pools: Mapping[int, float]) -> float:
    """The mean of `of_pools`, weighted by the operations of one OSD; 0.0 without any."""
    ops = sum(number for pool, number in ops_by_pool.items() if pool in of_pools)
    return sum(number * of_pools.get(pool, 0.0) for pool, number in ops_by_pool.items()) / ops \
        if ops > 0 else 0.0


def at_same_size(findings: Findings, sizes: Mapping[int, Sizes],
                 places: Mapping[int, OsdPlace]) -> Findings:
    """The findings, expecting more ms where the operations of an OSD are larger than the median of
    its root and device class. `sizes`: of the operations of each OSD; empty: not known. Findings up
    to LEAST_SCORE remain as they are: they are not slow in any case."""
    if not sizes:
        return findings
    by_kind: Dict[Tuple[str, str], List[Sizes]] = {}
    for osd, size in sizes.items():
        if osd in places:
            by_kind.setdefault(places[osd].kind, []).append(size)
    medians = {kind: Sizes(*map(_median, zip(*rows))) for kind, rows in by_kind.items()}
    resized = {osd: [_at_size(finding, sizes[osd], medians[places[osd].kind], places[osd])
                     if finding.score > LEAST_SCORE else finding for finding in compared]
               for osd, compared in findings.items()
               if osd in sizes and any([finding.score > LEAST_SCORE for finding in compared])}
    return {**findings, **resized}


def _median(sizes: Sequence[float]) -> float:
    """Of the sizes that are known; 0.0: none is."""
    known = sorted(size for size in sizes if size)
    return median(known) if known else 0.0


def _at_size(finding: PeerFinding, sizes: Sizes, median_sizes: Sizes,
             place: OsdPlace) -> PeerFinding:
    larger = sizes.read - median_sizes.read if finding.channel in (READS, STORE_READS) \
        else sizes.write - median_sizes.write
    per_ms = FLASH_BYTES_PER_MS if place.device_class in FLASH_CLASSES else DISK_BYTES_PER_MS
    return finding.with_more(larger / per_ms) if larger > 0.0 else finding
