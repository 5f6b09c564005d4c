# SPDX-License-Identifier: LGPL-2.1-or-later
"""What the inventory reads from the statistics of pools."""
from typing import Dict, Tuple

import pytest

from perfguard.cluster.crush import CrushRules
from perfguard.cluster.inventory import (failure_domains, pool_space, shared_bytes,
                                         shared_ratios)
from perfguard.cluster.types import Pool

from .test_crush import DUMP


class Mgr:
    """An mgr that knows the pool's objects, and clones among them."""

    def __init__(self, space: Dict[str, int], objects: int, clones: int) -> None:
        self._space = space
        self._sum = {'num_objects': objects, 'num_object_clones': clones}

    def get(self, name: str) -> object:
        if name == 'df':
            return {'pools': [{'id': 1, 'stats': self._space}]}
        assert name == 'pool_stats'
        return {'pool_stats': [{'poolid': 1, 'stat_sum': self._sum}]}


@pytest.mark.parametrize('space, objects, shared', [
    ({}, (0, 0), 0),
    # Each object takes a little more than is stored.
    ({'stored_raw': 1000, 'bytes_used': 1040}, (10, 9), 0),
    ({'stored_raw': 3000, 'bytes_used': 1100}, (10, 9), 1900),
    # Sparse objects, or space that is not reported yet.
    ({'stored_raw': 3000, 'bytes_used': 1100}, (10, 0), 0),
    ({'stored_raw': 3000, 'bytes_used': 1100}, (10, 1), 300),
    # Compression saves 600 bytes.
    ({'stored_raw': 1000, 'bytes_used': 400, 'compress_under_bytes': 1000,
      'compress_bytes_used': 400}, (10, 9), 0),
    ({'stored_raw': 3000, 'bytes_used': 1400, 'compress_under_bytes': 1000,
      'compress_bytes_used': 400}, (10, 9), 1000)])
def test_bytes_that_clones_share(space: Dict[str, int], objects: Tuple[int, int], shared: int
                                 ) -> None:
    mgr = Mgr(space, *objects)
    assert shared_bytes(mgr, {1: space}) == ({1: shared} if shared else {})
    assert shared_ratios(mgr) == (
        {1: shared / space['stored_raw']} if shared else {})


@pytest.mark.parametrize('space, found', [
    ({}, 0), ({'stored': 77}, 0),
    # Allocation units, compression, and clones.
    ({'stored_raw': 1000, 'bytes_used': 3000}, 2000),
    ({'stored_raw': 1000, 'bytes_used': 600, 'compress_under_bytes': 1000,
      'compress_bytes_used': 600}, 400),
    ({'stored_raw': 3000, 'bytes_used': 1200}, 2000)])
def test_space_of_one_copy(space: Dict[str, int], found: int) -> None:
    assert pool_space(Pool(1, 'ec', True, 6, 5, 0, 8, 8, 8, data_shards=4), space) == found


@pytest.mark.parametrize('rule, size, domains', [
    (0, 3, ('host', 3, 4)), (2, 3, ('host', 3, 4)), (3, 3, ('osd', 3, 8)),
    # Two hosts in each of two racks: no other rack can take what one of them held.
    (1, 4, ('rack', 2, 2)),
    # Several trees.
    (4, 2, ('', 0, 0))])
def test_failure_domains_that_a_pool_needs_and_has(rule: int, size: int,
                                                   domains: Tuple[str, int, int]) -> None:
    assert failure_domains(rule, size, CrushRules.from_dump(DUMP)) == domains
