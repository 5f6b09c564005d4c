# SPDX-License-Identifier: LGPL-2.1-or-later
"""The options of a campaign, and those that are set for it alone."""
import errno
from dataclasses import replace
from typing import Any, Dict, List, Optional, Set, Tuple

import pytest

from perfguard.errors import Refused
from perfguard.options import DEFAULTS
from perfguard.rebalance.settings import SETTABLE, assignment, overridden, parsed, problems


@pytest.mark.parametrize('text, expected', [
    ('latency_factor=2', ('latency_factor', '2')), ('latency_factor=', ('latency_factor', '')),
    ('latency_limits_ms=rbd=3', ('latency_limits_ms', 'rbd=3'))])
def test_a_setting_and_its_value(text: str, expected: Tuple[str, str]) -> None:
    assert assignment(text) == expected


@pytest.mark.parametrize('text, why', [
    ('latency_factor', "expected <option>=<value>, not 'latency_factor' (\"<option>=\" removes a "
     'setting)'),
    ('target=crush', "'target' cannot be set for a campaign; must be one of "
     + ', '.join(SETTABLE)),
    ('max_pins=many', "max_pins must be a whole number, not 'many'"),
    ('max_pins=1.5', "max_pins must be a whole number, not '1.5'"),
    ('latency_factor=slow', "latency_factor must be a number, not 'slow'"),
    ('latency_factor=inf', "latency_factor must be a number, not 'inf'"),
    ('latency_factor=nan', "latency_factor must be a number, not 'nan'")])
def test_what_is_no_setting(text: str, why: str) -> None:
    with pytest.raises(Refused) as raised:
        assignment(text)
    assert (raised.value.errno, str(raised.value)) == (errno.EINVAL, why)


def test_a_value_that_is_out_of_bounds() -> None:
    for text in ('max_pins=-1', 'latency_factor=0.5'):
        with pytest.raises(Refused) as raised:
            assignment(text)
        assert raised.value.errno == errno.EINVAL and text.partition('=')[0] in str(raised.value)


@pytest.mark.parametrize('name, text, value', [
    ('max_pins', '7', 7), ('latency_factor', '2', 2.0), ('begin_time', '0900', '0900')])
def test_the_value_of_a_setting(name: str, text: str, value: Any) -> None:
    assert parsed(name, text) == value and type(parsed(name, text)) is type(value)


@pytest.mark.parametrize('settings, changes', [
    ({}, {}), ({'max_pins': '7', 'latency_factor': '2'}, {'max_pins': 7, 'latency_factor': 2.0}),
    # Of another version.
    ({'max_pins': '7', 'latency_factor': '0.5'}, {'max_pins': 7}), ({'target': 'crush'}, {}),
    ({'gone': '1', 'max_pins': '7'}, {'max_pins': 7})])
def test_settings_take_the_place_of_options(settings: Dict[str, str],
                                            changes: Dict[str, Any]) -> None:
    assert overridden(DEFAULTS, settings) == replace(DEFAULTS, **changes)


@pytest.mark.parametrize('changes, pools, texts', [
    ({}, None, []),
    ({'latency_factor': 3.0, 'latency_alarm_factor': 3.0}, None, []),
    ({'latency_factor': 3.5, 'latency_alarm_factor': 3.0}, None,
     ['latency_factor (3.5) must not exceed latency_alarm_factor (3)']),
    ({'latency_limits_ms': 'rbd=3,gone=4'}, {'rbd'},
     ["latency_limits_ms: pool 'gone' does not exist"]),
    ({'latency_limits_ms': 'rbd=3,gone=4'}, None, [])])
def test_options_with_which_no_campaign_begins(changes: Dict[str, Any], pools: Optional[Set[str]],
                                               texts: List[str]) -> None:
    assert problems(replace(DEFAULTS, **changes), pools) == texts


def test_each_invalid_option_is_named() -> None:
    texts = problems(replace(DEFAULTS, begin_time='never', latency_limits_ms='rbd'), None)
    assert [text.split()[0].rstrip(':') for text in texts] == ['begin_time', 'latency_limits_ms']
