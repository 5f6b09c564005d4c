# SPDX-License-Identifier: LGPL-2.1-or-later
"""Percentiles from histograms."""
import random
from typing import List, Sequence

import pytest

from perfguard.cluster.types import LatencyCounts
from perfguard.watch.series import LatencyPercentiles, percentile_ms

MS = 1000000
BOUNDS = tuple(1000 * 2 ** n for n in range(20))


def counted(values_ns: Sequence[float]) -> List[int]:
    counts = [0] * (len(BOUNDS) + 1)
    for value in values_ns:
        counts[sum(1 for bound in BOUNDS if value >= bound)] += 1
    return counts


def test_percentile_within_its_bucket() -> None:
    assert percentile_ms((MS, 2 * MS), (0, 4, 0), 0.5) == 1.5
    assert percentile_ms((MS, 2 * MS), (0, 4, 0), 1.0) == 2.0
    assert percentile_ms((MS, 2 * MS), (2, 2, 0), 0.5) == 1.0
    # The last bucket has no end: as wide as Ceph would make it.
    assert percentile_ms((MS, 2 * MS), (0, 0, 1), 0.5) == 3.0


@pytest.mark.parametrize('counts', [(), (0, 0, 0)])
def test_no_percentile_without_operations(counts: Sequence[int]) -> None:
    assert percentile_ms((MS, 2 * MS), counts, 0.99) is None


def test_percentiles_are_off_by_a_factor_of_two_at_most() -> None:
    rnd = random.Random(3)
    for _ in range(50):
        values = [rnd.lognormvariate(13.0, 1.0) for _ in range(rnd.randint(1, 500))]
        for share in (0.01, 0.5, 0.99, 1.0):
            true = sorted(values)[max(0, int(share * len(values) + 0.999999) - 1)] / 1e6
            found = percentile_ms(BOUNDS, counted(values), share)
            assert found is not None and true / 2 <= found <= 2 * true


def latencies(osd: int, read: Sequence[int], write: Sequence[int],
              bounds: Sequence[int] = (MS, 2 * MS)) -> LatencyCounts:
    return LatencyCounts(osd, 30.0, tuple(bounds), tuple(read), tuple(write))


def test_percentiles_of_the_cluster_add_up_those_with_the_same_buckets() -> None:
    percentiles = LatencyPercentiles()
    percentiles.update(0.0, [
        latencies(1, (1, 2, 3), (0, 0, 0)), latencies(2, (10, 0, 0), (0, 5, 0)),
        latencies(3, (100, 100), (100, 100), bounds=(MS,))], [1, 2, 3])
    levels = percentiles.levels_of_cluster(0.0)
    assert levels == tuple(percentile_ms((MS, 2 * MS), counts, share)
                           for counts in ((11, 2, 3), (0, 5, 0)) for share in (0.5, 0.99))
