# SPDX-License-Identifier: LGPL-2.1-or-later
"""How much latency varies while nothing is wrong."""
import random
from math import exp, sin, sqrt
from typing import Dict

import pytest

from perfguard.cluster.types import ClientOps, Ops, OsdPlace
from perfguard.options import DEFAULTS
from perfguard.watch.osds import LEAST_PEER_READS, OsdNorms, StoredNorm
from perfguard.watch.pools import (FLASH_FLOOR_MS, HDD_FLOOR_MS, LEAST_PAIRS, OpSpread,
                                   PoolSettings, PoolWatch, ops_by_pool, target_ms)

from ..test_codec import again


def draw(rng: random.Random, sigma: float, number: int, mean: float) -> float:
    return mean * sum(rng.lognormvariate(-sigma ** 2 / 2, sigma) for _ in range(number))


@pytest.mark.parametrize('sigma', [0.5, 1.0, 1.3])
def test_spread_of_single_operations_from_sums(sigma: float) -> None:
    rng = random.Random(3)
    spread = OpSpread()
    for _ in range(300):
        spread.add(200, draw(rng, sigma, 200, 1e6))
    assert spread.value == pytest.approx(sqrt(exp(sigma ** 2) - 1), rel=0.25)


def test_a_stall_hardly_raises_the_spread() -> None:
    rng = random.Random(5)
    spread = OpSpread()
    for _ in range(100):
        spread.add(200, draw(rng, 1.0, 200, 1e6))
    before = spread.value
    for mean in (80e6, 1e6):
        spread.add(200, draw(rng, 1.0, 200, mean))
    assert before is not None and spread.value is not None and spread.value < 1.25 * before


def test_the_spread_survives_the_mgr() -> None:
    rng = random.Random(7)
    watch, new = PoolWatch(), PoolWatch()
    settings = PoolSettings(2.0, 60.0)
    for turn in range(40):
        reads = Ops(int(1e9 * rng.uniform(0.9, 1.1)), 1000)
        watch.update(5.0 * turn, 5.0, ops_by_pool([ClientOps(1, 0, reads, Ops())]),
                     {1: None, 2: None}, True, settings)
    spreads = again(Dict[int, Dict[str, OpSpread]], watch.spreads())
    assert list(spreads) == [1] and list(spreads[1]) == ['reads']
    new.load_spreads(spreads, settings)
    known = watch.latency(1).read_spread
    assert known and new.latency(1).read_spread == pytest.approx(known, rel=0.01)
    assert new.latency(1).write_spread is None


def test_readings_on_both_sides_of_movement_are_no_pair() -> None:
    def spread(movement: bool) -> float:
        watch = PoolWatch()
        for turn in range(120):
            # Another latency after every third reading, in which PGs may have moved.
            level = 1.0 + 0.2 * (turn // 3 % 2)
            reads = ClientOps(1, 0, Ops(int(1e9 * level), 1000), Ops())
            watch.update(5.0 * turn, 5.0, ops_by_pool([reads]), {1: None},
                         not (movement and turn % 3 == 0), PoolSettings(2.0, 60.0))
        found = watch.latency(1).read_spread
        assert found is not None
        return found

    assert spread(False) > 1.0
    assert spread(True) == 0.0


def test_what_changes_slowly_is_no_spread() -> None:
    rng = random.Random(4)
    spread = OpSpread()
    for turn in range(700):
        spread.add(1000, draw(rng, 0.5, 1000, 1e6 * (1.0 + 0.5 * sin(turn / 100))))
    assert spread.value == pytest.approx(sqrt(exp(0.25) - 1), rel=0.25)


def test_few_readings_and_what_lies_on_both_sides_of_trouble_say_nothing() -> None:
    spread = OpSpread()
    for turn in range(int(LEAST_PAIRS)):
        assert spread.value is None
        spread.add(100, 1e8)
    for _ in range(30):
        spread.skip()
        spread.add(100, 9e9)
    spread.add(5, 1e3)
    assert spread.value is None


def test_norm_of_an_osd() -> None:
    norms = OsdNorms()
    for _ in range(50):
        norms.update([ClientOps(1, 0, Ops(10 ** 8, 100), Ops()),
                      ClientOps(1, 1, Ops(3 * 10 ** 8, 100), Ops()),
                      ClientOps(2, 1, Ops(10 ** 8, 100), Ops()),
                      ClientOps(1, 2, Ops(10 ** 6, 1), Ops()),
                      ClientOps(3, 3, Ops(10 ** 8, 100), Ops())], {1: 1.0, 2: 1.0})
    assert norms.norms() == pytest.approx({0: 1.0, 1: 2.0})
    assert 50 < LEAST_PEER_READS, 'osd.2 has had too few reads'
    norms.forget_others({0: None})
    assert list(norms.norms()) == [0]


def test_osds_with_few_reads_have_the_norm_of_their_host() -> None:
    norms = OsdNorms()
    slow, fast = OsdPlace(0, 'h0', 'default', 'hdd'), OsdPlace(0, 'h0', 'default', 'ssd')
    places = {**dict.fromkeys(range(4), slow), 4: fast, 5: OsdPlace(5, 'h1', 'default', 'hdd')}
    norms.places = places
    for _ in range(50):
        norms.update([ClientOps(1, osd, Ops((3 if place is slow else 1) * 6 * 10 ** 6, 6), Ops())
                      for osd, place in places.items()]
                     + [ClientOps(1, osd, Ops(10 ** 8, 100), Ops()) for osd in range(6, 12)],
                     {1: 1.0})
    found = norms.norms()
    assert [found.get(osd) for osd in range(4)] == pytest.approx([3.0] * 4)
    assert found.keys() == {*range(4), *range(6, 12)}, 'one OSD alone has too few reads'
    # What it knows of these OSDs outlives the mgr.
    later = OsdNorms()
    later.load(again(Dict[int, StoredNorm], norms.stored()))
    later.places = places
    assert later.norms() == pytest.approx(found, rel=0.01)


@pytest.mark.parametrize('baseline, disk, expected', [
    (0.15, False, 0.3), (0.15, True, 0.3), (0.8, False, 0.8 + FLASH_FLOOR_MS),
    (2.5, False, 1.5 * 2.5), (2.5, True, 2.5 + HDD_FLOOR_MS), (10.0, True, 15.0)])
def test_a_limit_has_a_floor(baseline: float, disk: bool, expected: float) -> None:
    assert target_ms(baseline, None, DEFAULTS, disk) == pytest.approx(expected)
    assert target_ms(baseline, 0.2, DEFAULTS, disk) == 0.2
    assert target_ms(None, None, DEFAULTS, disk) is None


def test_one_hiccup_does_not_make_a_pool_deaf() -> None:
    rng = random.Random(6)
    spread = OpSpread()
    for turn in range(40):
        spread.add(10000, draw(rng, 0.5, 100, 1e8) if turn != 20 else 2e11)
    assert spread.value is not None and spread.value < 12.0


def test_the_load_of_the_hour_is_no_property_of_the_osds() -> None:
    norms = OsdNorms()
    for factor in (1.0, 0.5, 2.0):
        for _ in range(50):
            norms.update([ClientOps(1, osd, Ops(int(factor * ms * 10 ** 8), 100), Ops())
                          for osd, ms in enumerate((1.0, 1.0, 3.0))], {1: 1.0})
        assert norms.norms() == pytest.approx({0: 1.0, 1: 1.0, 2: 3.0})
