# SPDX-License-Identifier: LGPL-2.1-or-later
"""What OSDMap epochs cost: the limits of the interval of proposals, and of pins."""
from dataclasses import replace
from typing import Dict, Optional

import pytest

from perfguard.cluster.types import Osd, OsdMap, Pool
from perfguard.options import DEFAULTS
from perfguard.rebalance.epochs import (Epoch, epoch_of, fast_proposals, peering_forecast,
                                        pin_limit, release_interval, why_too_many_pins)
from perfguard.rebalance.types import Phase

from ..fakes.campaigns import campaign_of
from .test_mon_options import osdmap_of

MIB = 1 << 20


def test_the_size_of_an_epoch() -> None:
    pool = Pool(1, 'p', False, 3, 2, 0, 32, 32, 32)
    osdmap = OsdMap(1, frozenset(), {1: pool, 2: replace(pool, id=2, size=2)},
                    {osd: Osd(osd, True, 1.0) for osd in range(3)},
                    {'1.0': ((0, 1),), '1.1': ((0, 1),)}, {'1.2': (0, 1, 2)},
                    {'1.%x' % seed: (0, 1, 2) for seed in range(4)})
    assert epoch_of(osdmap) == Epoch(64, 3, 3 * 450 + 2 * 400 + (3 + 4) * 30, 3, 2.5)
    assert epoch_of(OsdMap(1, frozenset(), {}, {}, {}, {}, {})) == Epoch(0, 0, 0, 0, 0.0)
    assert epoch_of(osdmap_of(3, 1)).size == 3.0


def test_the_costs_of_an_epoch() -> None:
    epoch = Epoch(1000, 100, 5000, 400, 3.0)
    assert epoch.stored_bytes == 500000
    # 4 threads; 4 us for each upmap, and 22 ns and 3 times 4 ns for each OSD.
    assert epoch.upmap_seconds == pytest.approx(100 * 7.4e-6)
    assert epoch.mon_seconds == pytest.approx(0.012 + 400 * 7.4e-6)
    assert epoch.text() == (
        'an OSDMap epoch costs a mon about 15 ms of CPU (1000 PGs, 400 upmaps) and each OSD a '
        'write of about 4.9 KiB (100 OSDs)')


@pytest.mark.parametrize('pgs, text, cpu_ms', [
    (70, '0.8', 0.8), (800, '9.6', 9.6), (880, '11', 10.6), (100000, '1200', 1200.0)])
def test_the_cpu_time_of_an_epoch_has_a_digit_below_10_ms(pgs: int, text: str,
                                                          cpu_ms: float) -> None:
    shown = peering_forecast(osdmap_of(3, pgs), 'auto')
    assert 'about %s ms of CPU (%d PGs' % (text, pgs) in str(shown['text'])
    assert shown['mon_cpu_ms'] == cpu_ms


@pytest.mark.parametrize('pgs, stored_bytes, upmaps, seconds', [
    (1000, 4 * MIB, 0, '0.02'), (1000, 4 * MIB + 1, 0, '0.05'), (1001, 4 * MIB, 0, '0.05'),
    (3000, 16 * MIB, 0, '0.05'), (3000, 16 * MIB + 1, 0, '0.1'), (10000, 64 * MIB, 0, '0.1'),
    (10000, 64 * MIB + 1, 0, '0.25'), (25000, 512 * MIB, 0, '0.25'),
    (25000, 512 * MIB + 1, 0, None), (25001, 512 * MIB, 0, None),
    # With a single OSD, the check of an upmap takes 1.0085 us.
    (1000, 1, 19831, '0.02'), (1000, 1, 19832, '0.05'), (1000, 1, 247892, '0.25'),
    (1000, 1, 247893, None)])
def test_the_interval_by_what_an_epoch_costs(pgs: int, stored_bytes: int, upmaps: int,
                                             seconds: Optional[str]) -> None:
    epoch = Epoch(pgs, 1, stored_bytes, upmaps, 3.0)
    assert release_interval(epoch, 'auto') == seconds
    assert release_interval(epoch, 'on') == (seconds or '0.25')
    assert release_interval(epoch, 'off') is None


@pytest.mark.parametrize('seconds, values', [(3599.5, {'paxos_propose_interval': '0.1'}),
                                             (3600.0, {})])
def test_a_campaign_that_is_prepared_shortens_the_interval_for_an_hour(
        seconds: float, values: Dict[str, str]) -> None:
    campaign = campaign_of(1, Phase.PREPARED, 0.0, phase_since=1000.0, turned=1000.0 + seconds)
    assert fast_proposals(campaign, False, DEFAULTS, osdmap_of(12, 64)) == values


@pytest.mark.parametrize('upmaps, own_pins, limit', [
    # On 1000 OSDs, the check of an upmap takes 9.5 us; 0.3 s in all, or 0.05 s for the pins.
    (0, 0, 31578), (10000, 0, 21578), (10000, 4000, 25578), (10000, 10000, 31578),
    (10000, 20000, 31578), (26000, 0, 5578), (27000, 0, 5263), (99000, 0, 5263)])
def test_the_limit_of_pins_by_what_upmaps_cost(upmaps: int, own_pins: int, limit: int) -> None:
    osdmap = osdmap_of(1000, 100000, upmaps)
    assert pin_limit(DEFAULTS, osdmap, own_pins) == limit
    assert pin_limit(replace(DEFAULTS, max_pins=7), osdmap, own_pins) == 7


def test_more_pins_than_the_limit_are_refused() -> None:
    osdmap = osdmap_of(1000, 100000, 10000)
    assert why_too_many_pins(25578, DEFAULTS, osdmap, 4000) == ''
    assert why_too_many_pins(25579, DEFAULTS, osdmap, 4000) == (
        '25579 pins and 6000 other upmaps would take the mons about 0.3 s in each OSDMap epoch '
        '(limit 25578 pins, max_pins)')
    assert why_too_many_pins(40000, DEFAULTS, osdmap, 20000) == (
        '40000 pins and 0 other upmaps would take the mons about 0.38 s in each OSDMap epoch '
        '(limit 31578 pins, max_pins)')
