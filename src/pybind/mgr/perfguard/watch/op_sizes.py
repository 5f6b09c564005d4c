# SPDX-License-Identifier: LGPL-2.1-or-later
"""Mean sizes of the operations of each OSD: one that serves larger operations than its peers takes
longer for each of them, and is not slow. Pure.

A pool with few PGs is on a part of the OSDs, and its clients may read and write 4 MiB at a time
where those of other pools read and write 4 KiB.
"""
from typing import Dict, List, Mapping, Optional, Sequence, Tuple

from ..cluster.types import NO_OSD, ClientOps, OsdPlace, PgWrites, Pool, pool_of
from .osd_window import READS, STORE_READS
from .peers import FLASH_CLASSES, LEAST_SCORE, Findings, PeerFinding, median
from .types import Sizes

#: Weight of a reading against the ones before: about the last minute counts.
READING_WEIGHT = 1 / 8
#: Bytes per ms that a healthy flash drive, or another one, reaches beside other operations: about
#: half of a SATA SSD, and a third of a disk.
FLASH_BYTES_PER_MS, DISK_BYTES_PER_MS = 250e3, 60e3


class _Mean:
    """A mean size, of late."""
    __slots__ = ('_ops', '_bytes')

    def __init__(self) -> None:
        self._ops = self._bytes = 0.0

    def add(self, ops: float, number_of_bytes: float) -> None:
        self._ops += READING_WEIGHT * (ops - self._ops)
        self._bytes += READING_WEIGHT * (number_of_bytes - self._bytes)

    @property
    def bytes(self) -> float:
        return self._bytes / self._ops if self._ops > 0.0 else 0.0


class OpSizes:
    """Keeps what clients of late read on each OSD and write to each pool, and which part of the
    writes of an OSD is of which pool."""

    def __init__(self) -> None:
        self._reads: Dict[int, _Mean] = {}
        self._writes: Dict[int, _Mean] = {}
        #: OSD -> pool -> writes, replicated ones included, in the last reading by PG.
        self._mix: Mapping[int, Mapping[int, int]] = {}

    def update(self, clients: Sequence[ClientOps], pg_writes: Optional[Sequence[PgWrites]],
               pools: Mapping[int, Pool], places: Mapping[int, OsdPlace]) -> Dict[int, Sizes]:
        """The sizes by OSD. `pg_writes`: None: not read this time."""
        reads, writes = ({key: [0.0, 0.0] for key in keys} for keys in (places, pools))
        for row in clients:
            pool = pools.get(row.pool)
            if pool is not None and row.read.sane and row.write.sane:
                # The OSDs of an erasure-coded PG have a part of each operation.
                if row.osd in reads:
                    _add(reads[row.osd], row.read.number, row.read_bytes / pool.data_shards)
                _add(writes[row.pool], row.write.number, row.write_bytes / pool.data_shards)
        self._reads, self._writes = _with(self._reads, reads), _with(self._writes, writes)
        if pg_writes is not None:
            self._mix = _mix(pg_writes)
        of_pools = {pool: mean.bytes for pool, mean in self._writes.items()}
        return {osd: Sizes(mean.bytes, _mixed(self._mix.get(osd, {}), of_pools))
                for osd, mean in self._reads.items()}


def _add(sums: List[float], ops: float, number_of_bytes: float) -> None:
    sums[0] += ops
    sums[1] += number_of_bytes


def _with(means: Mapping[int, _Mean], sums: Mapping[int, Sequence[float]]) -> Dict[int, _Mean]:
    """The means with the operations of a reading; those that are not in it are forgotten."""
    after = {key: means.get(key) or _Mean() for key in sums}
    for key, (ops, number_of_bytes) in sums.items():
        after[key].add(ops, number_of_bytes)
    return after


def _mix(pg_writes: Sequence[PgWrites]) -> Dict[int, Dict[int, int]]:
    mix: Dict[int, Dict[int, int]] = {}
    for row in pg_writes:
        pool = pool_of(row.pgid)
        for osd in row.acting:
            if osd != NO_OSD:
                of_osd = mix.setdefault(osd, {})
                of_osd[pool] = of_osd.get(pool, 0) + row.write.number
    return mix


def _mixed(ops_by_pool: Mapping[int, int], of_pools: Mapping[int, float]) -> float:
    ops = sum(number for pool, number in ops_by_pool.items() if pool in of_pools)
    return sum(number * of_pools.get(pool, 0.0) for pool, number in ops_by_pool.items()) / ops \
        if ops > 0 else 0.0


def at_same_size(findings: Findings, sizes: Mapping[int, Sizes],
                 places: Mapping[int, OsdPlace]) -> Findings:
    """The findings, with what is expected for operations as large as those of the OSD."""
    if not sizes:
        return findings
    by_kind: Dict[Tuple[str, str], List[Sizes]] = {}
    for osd, size in sizes.items():
        if osd in places:
            by_kind.setdefault(places[osd].kind, []).append(size)
    usual = {kind: Sizes(*map(_median, zip(*rows))) for kind, rows in by_kind.items()}
    return {osd: [_at_size(finding, sizes[osd], usual[places[osd].kind], places[osd])
                  if finding.score > LEAST_SCORE and osd in sizes else finding
                  for finding in compared] for osd, compared in findings.items()}


def _median(sizes: Sequence[float]) -> float:
    """Of those that are known."""
    known = sorted(size for size in sizes if size)
    return median(known) if known else 0.0


def _at_size(finding: PeerFinding, own: Sizes, usual: Sizes, place: OsdPlace) -> PeerFinding:
    larger = own.read - usual.read if finding.channel in (READS, STORE_READS) \
        else own.write - usual.write
    per_ms = FLASH_BYTES_PER_MS if place.device_class in FLASH_CLASSES else DISK_BYTES_PER_MS
    return finding.with_more(larger / per_ms) if larger > 0.0 else finding
