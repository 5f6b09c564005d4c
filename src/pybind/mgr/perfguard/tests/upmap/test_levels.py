# SPDX-License-Identifier: LGPL-2.1-or-later
"""Moves between items that several takes of a rule share."""
from typing import List

from perfguard.upmap.levels import ShardLevel
from perfguard.upmap.shares import Targets


class TwoTakes(ShardLevel):
    """The first shard of each PG cannot leave the first take, the second cannot leave the second.
    Each item belongs to the failure domain of its tens."""
    by_place = True

    def __init__(self, here: List[List[int]], takes: List[List[int]], share: int) -> None:
        super().__init__()
        items = sorted({item for take in takes for item in take})
        self.here, self.origin, self.raw = here, [list(row) for row in here], [*here]
        self.free = range(len(here))
        self.domain = {item: item // 10 for item in items}
        self.fences = [{item: number for item in take} for number, take in enumerate(takes)]
        self.weights = dict.fromkeys(items, 1.0)
        self.count = {item: sum(row.count(item) for row in here) for item in items}
        bounds = dict.fromkeys(items, share)
        self.near = self.wide = Targets(dict.fromkeys(items, float(share)), bounds, bounds)
        self.filled = self.limits = bounds

    def move(self, number: int, place: int, item: int) -> None:
        self.count[self.here[number][place]] -= 1
        self.here[number][place] = item
        self.count[item] += 1

    def surplus(self, item: int) -> float:
        return self.count[item] - self.near.ideal[item]

    def affords(self, giver: int, moves: int = 1) -> bool:
        return True


def test_items_that_two_takes_share_are_all_filled() -> None:
    """Domain 1 has five items that both takes may use: the shards of the first take that are too
    many fill some of them, and those of the second the others."""
    shared = list(range(10, 18))
    here = [[20, 40 + number] for number in range(5)] + [[50 + number, 30] for number in range(5)]
    level = TwoTakes([list(row) for row in here],
                     [[20, *range(50, 55), *shared], [30, *range(40, 45), *shared]], 1)
    level.even_out()
    assert set(level.count.values()) == {1}
