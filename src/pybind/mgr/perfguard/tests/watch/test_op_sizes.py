# SPDX-License-Identifier: LGPL-2.1-or-later
"""How large the operations of each OSD are, from those of clients and those by PG."""
from dataclasses import replace
from typing import Dict, Mapping, Optional, Sequence

import pytest

from perfguard.cluster.types import NO_OSD, ClientOps, Ops, OsdPlace, PgWrites, Pool
from perfguard.watch.op_sizes import OpSizes, at_same_size
from perfguard.watch.osd_window import COMMITS, READS, STORE_READS, WRITES
from perfguard.watch.peers import PeerComparison, PeerFinding
from perfguard.watch.pools import ops_by_pool
from perfguard.watch.types import Sizes

POOLS = {1: Pool(1, 'small', False, 3, 2, 0, 32, 32, 32),
         2: Pool(2, 'large', False, 3, 2, 0, 1, 1, 1),
         3: Pool(3, 'coded', True, 6, 5, 0, 1, 1, 1, data_shards=4)}
PLACES = {osd: OsdPlace(osd, 'h%d' % osd, 'default', 'ssd', 'm') for osd in range(8)}
MIB = 1 << 20


def client(pool: int, osd: int, number: int, size: int) -> ClientOps:
    return ClientOps(pool, osd, Ops(number * 1000, number), Ops(number * 1000, number),
                     number * size, number * size)


def writes(pgid: str, number: int, *acting: int) -> PgWrites:
    return PgWrites(pgid, acting, Ops(number * 1000, number))


def updated(sizes: OpSizes, clients: Sequence[ClientOps],
            pg_writes: Optional[Sequence[PgWrites]], pools: Mapping[int, Pool] = POOLS,
            places: Mapping[int, OsdPlace] = PLACES) -> Dict[int, Sizes]:
    sizes.update(ops_by_pool(clients), pg_writes, pools, places)
    return sizes.by_osd()


def test_writes_are_those_that_it_replicates_as_well() -> None:
    sizes = OpSizes()
    clients = [client(1, 0, 90, 4096), client(2, 1, 10, MIB)]
    by_pg = [writes('1.0', 90, 0, 2, 3), writes('2.0', 10, 1, 2, NO_OSD)]
    found = updated(sizes, clients, by_pg)
    assert found[0] == Sizes(4096.0, 4096.0) and found[1] == Sizes(MIB, MIB)
    # It is the primary of no PG.
    assert tuple(found[2]) == pytest.approx((0.0, (90 * 4096 + 10 * MIB) / 100))
    assert found[3] == Sizes(0.0, 4096.0) and found[4] == Sizes()
    # The mix remains until it is read again.
    assert updated(sizes, clients, None) == found


def test_each_osd_has_a_part_of_an_erasure_coded_operation() -> None:
    found = updated(OpSizes(), [client(3, 0, 10, MIB)], [writes('3.0', 10, 0, 1, 2, 3, 4, 5)])
    assert found[0] == Sizes(MIB / 4, MIB / 4) and found[5].write == MIB / 4


def test_clients_may_read_a_part_from_the_osd_that_has_it() -> None:
    """The reads of a pool with this flag may be parts already, which are not divided again: an OSD
    that reads more than its peers takes longer, and is not slow."""
    direct = {3: replace(POOLS[3], flags=frozenset({'ec_optimizations', 'split_reads'}))}
    sizes = updated(OpSizes(), [client(3, 0, 10, MIB)], [writes('3.0', 10, 0, 1, 2, 3, 4, 5)],
                    direct)
    assert sizes[0] == Sizes(MIB, MIB / 4)


def test_the_last_minute_counts() -> None:
    sizes = OpSizes()
    for _ in range(100):
        updated(sizes, [client(1, 0, 100, 4096)], None)
    after = [updated(sizes, [client(1, 0, 100, MIB)], None)[0].read for _ in range(24)]
    assert after == sorted(after)
    assert after[0] < 0.2 * MIB and after[11] > 0.7 * MIB and after[23] > 0.9 * MIB


def test_writes_of_a_removed_pool_do_not_count() -> None:
    sizes = OpSizes()
    by_pg = [writes('1.0', 90, 0, 2, 3), writes('2.0', 10, 0, 2, 3)]
    found = updated(sizes, [client(1, 0, 90, 4096)], by_pg, {1: POOLS[1]})
    assert found[0].write == 4096.0


def test_an_eighth_of_each_reading_counts() -> None:
    """First 100 reads of 4 KiB, then 300 of 8 KiB."""
    sizes = OpSizes()
    updated(sizes, [client(1, 0, 100, 4096)], None)
    after = updated(sizes, [client(1, 0, 300, 8192)], None)
    # 7/8 of an eighth of the first, and an eighth of the second.
    assert after[0].read == pytest.approx((87.5 * 4096 + 300 * 8192) / 387.5)


#: 10 ms where 2 ms are expected.
FINDING = PeerFinding(READS, PeerComparison(10.0, 10.0, 2.0, 0.1, 9.0, 0.1, 1.0, 9), 1.0)


@pytest.mark.parametrize('channel, device_class, sizes, expected_ms', [
    (READS, 'ssd', Sizes(254096.0, 4096.0), 3.0), (READS, 'nvme', Sizes(254096.0, 4096.0), 3.0),
    (READS, 'hdd', Sizes(64096.0, 4096.0), 3.0), (STORE_READS, 'ssd', Sizes(254096.0), 3.0),
    (WRITES, 'ssd', Sizes(4096.0, 504096.0), 4.0), (COMMITS, 'ssd', Sizes(9e9, 254096.0), 3.0),
    (READS, 'ssd', Sizes(4096.0, 9e9), 2.0), (READS, 'ssd', Sizes(1.0, 1.0), 2.0)])
def test_more_is_expected_of_larger_operations(
        channel: int, device_class: str, sizes: Sizes, expected_ms: float) -> None:
    """250 KB more take 1 ms on flash, and 60 KB on a disk."""
    places = {osd: place._replace(device_class=device_class) for osd, place in PLACES.items()}
    usual = {osd: Sizes(4096.0, 4096.0) for osd in range(7)}
    finding = FINDING._replace(channel=channel)
    found = at_same_size({7: [finding]}, {**usual, 7: sizes}, places)
    assert found[7][0].comparison.expected_ms == pytest.approx(expected_ms)
    # Those whose size is not known, and those that are not slow, remain as they are.
    assert at_same_size({7: [finding]}, usual, places) == {7: [finding]}
    fast = finding._replace(comparison=finding.comparison._replace(ms=2.2))
    assert at_same_size({7: [fast]}, {**usual, 7: sizes}, places) == {7: [fast]}
    assert at_same_size({7: [finding]}, {}, places) == {7: [finding]}


def test_removed_osds_and_pools_are_forgotten() -> None:
    sizes = OpSizes()
    updated(sizes, [client(2, 0, 100, MIB)], [writes('2.0', 10, 0, 1, 2)])
    places = {osd: place for osd, place in PLACES.items() if osd}
    found = updated(sizes, [client(2, 0, 100, MIB)], None, {1: POOLS[1]}, places)
    assert 0 not in found and set(found.values()) == {Sizes()}


def test_invalid_numbers_count_nothing() -> None:
    broken = ClientOps(1, 0, Ops(-1, -5), Ops(0, 10), 10 * MIB, 10 * MIB)
    assert updated(OpSizes(), [broken], None)[0] == Sizes()
