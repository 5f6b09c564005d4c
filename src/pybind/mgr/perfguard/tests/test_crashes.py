# SPDX-License-Identifier: LGPL-2.1-or-later
"""One mgr after the other dies, at any write or command."""
import itertools
import os
from typing import Any, List, Tuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perfguard.store import PART_BYTES, Store

from .fakes.cluster import Crash, MemoryKv
from .loop.test_loop import Story


class ManyCrashes(Story):
    """A story whose next mgrs crash as well, each after so many steps."""
    more: Tuple[int, ...] = ()

    def _failed(self, error: Any) -> None:
        super()._failed(error)
        if self.faults <= len(self.more):
            self.cluster.fault.at = self.cluster.fault.count + self.more[self.faults - 1]


@settings(deadline=None, max_examples=60 if os.environ.get('PERFGUARD_CRASHES') else 20)
@given(st.lists(st.integers(1, 25), min_size=2, max_size=5))
def test_many_crashes_change_nothing_in_the_end(gaps: List[int]) -> None:
    story = ManyCrashes(gaps[0])
    story.more = tuple(gaps[1:])
    story.play().check()
    assert story.faults >= 2


@pytest.mark.parametrize('size, writes', [(1, 1), (PART_BYTES, 5)])
def test_two_crashes_leave_what_was_read(size: int, writes: int) -> None:
    for first, second in itertools.product(range(1, writes + 1), repeat=2):
        kv = MemoryKv()
        Store(kv).put('x', '1' * size)
        store = Store(kv)
        store.get('x')
        kv.fault.count, kv.fault.at = 0, first
        with pytest.raises(Crash):
            store.put('x', '2' * size)
        store = Store(kv)
        seen = store.get('x')
        kv.fault.count, kv.fault.at = 0, second
        with pytest.raises(Crash):
            store.put('x', '3' * size)
        assert Store(kv).get('x') in (seen, '3' * size), (first, second)
