# SPDX-License-Identifier: LGPL-2.1-or-later
"""The table of options and the object made of it agree."""
from dataclasses import fields
from typing import Any, Dict

import pytest

from perfguard.options import DEFAULTS, OPTIONS, Options, read_options

TYPES = {'float': float, 'uint': int, 'size': int, 'str': str, 'bool': bool}
BY_NAME = pytest.mark.parametrize('spec', OPTIONS, ids=[spec['name'] for spec in OPTIONS])


def test_fields_are_the_options_in_order() -> None:
    assert [field.name for field in fields(Options)] == [spec['name'] for spec in OPTIONS]


@BY_NAME
def test_type_of_field_and_default(spec: Dict[str, Any]) -> None:
    wanted = TYPES[spec['type']]
    assert type(spec['default']) is wanted
    assert {field.name: field.type for field in fields(Options)}[spec['name']] is wanted


@BY_NAME
def test_described_and_bounded(spec: Dict[str, Any]) -> None:
    assert spec['runtime'] is True and len(spec['desc']) > 10
    assert not spec['desc'].endswith('.')
    if spec['type'] == 'str':
        assert spec['default'] in spec.get('enum_allowed', [spec['default']])
    elif spec['type'] != 'bool':
        assert spec['min'] <= spec['default'] <= spec.get('max', float('inf'))
        # Bytes have no natural upper bound.
        assert 'max' in spec or 'bytes' in spec['name']


@BY_NAME
def test_only_what_ceph_knows(spec: Dict[str, Any]) -> None:
    assert set(spec) <= {'name', 'type', 'default', 'desc', 'long_desc', 'runtime', 'min', 'max',
                         'enum_allowed', 'see_also', 'tags', 'level'}


def test_a_value_of_the_operator_wins_and_none_is_the_default() -> None:
    options = read_options({'pin_batch': 7, 'readback_timeout': 0}.get)
    assert options.pin_batch == 7 and options.readback_timeout == 0
    assert options.loop_interval == DEFAULTS.loop_interval == 5.0
