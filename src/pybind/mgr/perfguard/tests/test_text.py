# SPDX-License-Identifier: LGPL-2.1-or-later
"""Numbers, sizes, times and lists as people read them."""
from typing import Optional

import pytest

from perfguard.text import (bytes_text, figure, interval_text, listed, ms_text, osds_text, pgs_are,
                            plural, seconds_text, time_text, with_next)

from .fakes.zones import in_zone


@pytest.mark.parametrize('size, text', [
    (0, '0 B'), (1023, '1023 B'), (1024, '1.0 KiB'), (1536, '1.5 KiB'), (5 << 30, '5.0 GiB'),
    (3000 << 40, '3000.0 TiB'), (-2048, '-2.0 KiB')])
def test_bytes_text(size: int, text: str) -> None:
    assert bytes_text(size) == text


@pytest.mark.parametrize('seconds, text', [
    (None, 'not known yet'), (0, '0 s'), (0.5, '1 s'), (119.4, '119 s'), (120, '2 min'),
    (150, '3 min'), (90 * 60, '90 min'), (7199, '120 min'), (7200, '2.0 h'),
    (2 * 86400 - 1, '48.0 h'), (2 * 86400, '2.0 days'), (10000 * 86400, '10000.0 days')])
def test_seconds_text(seconds: Optional[float], text: str) -> None:
    assert seconds_text(seconds) == text


@pytest.mark.parametrize('value, text', [
    (12.345, '12.35 ms'), (0.23, '0.23 ms'), (0.1, '0.10 ms'), (0.042, '0.042 ms'),
    (0.0042, '0.0042 ms'), (0.0, '0.00 ms')])
def test_ms_text(value: float, text: str) -> None:
    assert ms_text(value) == text


@pytest.mark.parametrize('value, text', [
    (0.0, '0'), (0.0567, '0.057'), (1.26, '1.3'), (9.94, '9.9'), (10.0, '10'), (10.4, '10'),
    (123.6, '124')])
def test_figure(value: float, text: str) -> None:
    assert figure(value) == text


@pytest.mark.parametrize('seconds, low, high, text', [
    (1200.0, 900.0, 1860.0, '20 min (15 min to 31 min)'), (1200.0, None, None, '20 min'),
    (1200.0, 1199.0, 1201.0, '20 min'), (1200.0, None, 1860.0, '20 min (31 min)'),
    (1200.0, 1200.0, 1860.0, '20 min (20 min to 31 min)'), (None, None, None, 'not known yet')])
def test_an_estimate_has_its_ends(seconds: Optional[float], low: Optional[float],
                                  high: Optional[float], text: str) -> None:
    assert interval_text(seconds, low, high) == text


def test_singular_and_plural() -> None:
    assert [plural(number, 'pin') for number in (0, 1, 2)] == ['0 pins', '1 pin', '2 pins']
    assert [pgs_are(number) for number in (0, 1, 2)] == ['0 PGs are', '1 PG is', '2 PGs are']


def test_the_next_step_follows_a_colon() -> None:
    assert with_next('it waits', 'campaign resume') == 'it waits: campaign resume'
    assert with_next('it waits', '') == 'it waits'


def test_lists_name_the_first_ones_and_count_the_others() -> None:
    assert listed([]) == '' and listed(['1.0', '1.1']) == '1.0, 1.1'
    assert listed(['1.%d' % i for i in range(8)]) == '1.0, 1.1, 1.2, 1.3, 1.4 and 3 more'
    assert listed(['a', 'b', 'c'], 2, '; ') == 'a; b and 1 more'
    assert osds_text({10, 2}) == 'osd.2, osd.10'
    assert osds_text(range(3), limit=2) == 'osd.0, osd.1 and 1 more'


def test_times_have_the_zone_of_the_mgr() -> None:
    with in_zone('Europe/Berlin'):
        assert time_text(1e9) == '2001-09-09 03:46:40 CEST'
    assert time_text(None) == '' and time_text(0) == ''
