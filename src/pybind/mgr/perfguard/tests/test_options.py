# SPDX-License-Identifier: LGPL-2.1-or-later
"""The table of options and the object made of it agree."""
from dataclasses import fields, replace
from typing import Any, Callable, Dict, List, Optional

import pytest

from perfguard.cluster.types import ConfigEntry
from perfguard.options import BASIC, DEFAULTS, OPTIONS, LiveOptions, Options, read_options

TYPES = {'float': float, 'uint': int, 'size': int, 'str': str, 'bool': bool}
BY_NAME = pytest.mark.parametrize('spec', OPTIONS, ids=[spec['name'] for spec in OPTIONS])


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


def test_operators_have_few_options_to_look_at() -> None:
    """The table of a level stands for what an operator sets, may set, and leaves to developers."""
    assert [spec['level'] for spec in OPTIONS] == sorted(spec['level'] for spec in OPTIONS)
    assert sum(spec['level'] == BASIC for spec in OPTIONS) <= 15


@BY_NAME
def test_only_what_ceph_knows(spec: Dict[str, Any]) -> None:
    assert set(spec) <= {'name', 'type', 'default', 'desc', 'long_desc', 'runtime', 'min', 'max',
                         'enum_allowed', 'see_also', 'tags', 'level'}


def test_a_value_of_the_operator_wins_and_none_is_the_default() -> None:
    options = read_options({'pin_batch': 7, 'readback_timeout': 0}.get)
    assert options.pin_batch == 7 and options.readback_timeout == 0
    assert options.loop_interval == DEFAULTS.loop_interval == 5.0


class Running:
    """A mgr and its configuration database: what is removed there stays in force in the mgr."""

    def __init__(self) -> None:
        self.in_force: Dict[str, Any] = {}
        self.stored: List[ConfigEntry] = []
        self.answers = True
        self.reads = 0
        self.now = 0.0
        self.options = LiveOptions(self._get, self._get_localized, lambda: 'x')
        self.compare()

    def _get(self, name: str) -> Any:
        return self._read(name, lambda: getattr(DEFAULTS, name))

    def _get_localized(self, name: str) -> Any:
        return self._read('x/' + name, lambda: self._get(name))

    def _read(self, key: str, other: Callable[[], Any]) -> Any:
        """As ceph-mgr does: "config set --force" stores what is no number as well."""
        if isinstance(self.in_force.get(key), ValueError):
            raise self.in_force[key]
        return self.in_force.get(key, other())

    def entries(self) -> Optional[List[ConfigEntry]]:
        self.reads += 1
        return list(self.stored) if self.answers else None

    def compare(self, seconds: float = 0.0) -> None:
        self.now += seconds
        self.options.note_removed(self.entries, self.now)

    def set(self, key: str, value: Any, section: str = 'mgr', mask: str = '') -> None:
        self.stored.append(ConfigEntry(section, mask, 'mgr/perfguard/' + key, str(value)))
        self.in_force[key] = value
        self.options.notify()

    def rm(self, key: str) -> None:
        self.stored = [entry for entry in self.stored if entry.name != 'mgr/perfguard/' + key]
        self.options.notify()


def test_a_removed_option_has_its_default() -> None:
    mgr = Running()
    mgr.set('begin_time', '2200')
    assert mgr.options.read().begin_time == '2200', 'at once'
    mgr.compare(1)
    assert mgr.options.read().begin_time == '2200'
    mgr.rm('begin_time')
    mgr.compare(1)
    assert mgr.in_force['begin_time'] == '2200'
    assert mgr.options.read() == DEFAULTS


def test_a_removed_option_is_found_without_any_notice() -> None:
    mgr = Running()
    mgr.set('pin_batch', 7)
    mgr.compare(1)
    mgr.stored = []
    mgr.compare(29)
    assert mgr.options.get('pin_batch') == 7 and mgr.reads == 2
    mgr.compare(1)
    assert mgr.options.get('pin_batch') == DEFAULTS.pin_batch and mgr.reads == 3


def test_an_option_that_is_set_again_counts_again() -> None:
    mgr = Running()
    mgr.set('pin_batch', 7)
    mgr.rm('pin_batch')
    mgr.compare(1)
    mgr.set('pin_batch', 8)
    assert mgr.options.get('pin_batch') == 8, 'at once'
    mgr.rm('pin_batch')
    mgr.compare(1)
    assert mgr.options.get('pin_batch') == DEFAULTS.pin_batch
    mgr.set('pin_batch', 8)
    mgr.compare(1)
    assert mgr.options.get('pin_batch') == 8, 'to the value that was removed'


def test_an_option_that_is_set_while_the_database_is_read() -> None:
    mgr = Running()

    def late() -> List[ConfigEntry]:
        mgr.in_force['pin_batch'] = 7
        return []

    mgr.options.note_removed(late, 30.0)
    assert mgr.options.get('pin_batch') == 7


def test_without_an_answer_nothing_changes() -> None:
    mgr = Running()
    mgr.set('pin_batch', 7)
    mgr.rm('pin_batch')
    mgr.answers = False
    mgr.compare(1)
    assert mgr.options.get('pin_batch') == 7
    mgr.answers = True
    mgr.compare(30)
    assert mgr.options.get('pin_batch') == DEFAULTS.pin_batch
    mgr.answers = False
    mgr.compare(30)
    assert mgr.options.get('pin_batch') == DEFAULTS.pin_batch


@pytest.mark.parametrize('section,mask,for_this_mgr', [
    ('global', '', True), ('mgr', '', True), ('mgr.x', '', True), ('mgr', 'host:a', True),
    ('mgr.y', '', False), ('mon', '', False)])
def test_sections_of_the_database(section: str, mask: str, for_this_mgr: bool) -> None:
    mgr = Running()
    mgr.set('pin_batch', 7, section, mask)
    mgr.compare(1)
    assert (mgr.options.get('pin_batch') == 7) is for_this_mgr


def test_options_of_one_mgr() -> None:
    mgr = Running()
    mgr.set('metrics_port', 9283)
    mgr.set('x/metrics_port', 9284)
    mgr.compare(1)
    assert mgr.options.localized('metrics_port') == 9284
    mgr.rm('x/metrics_port')
    mgr.compare(1)
    assert mgr.options.localized('metrics_port') == 9283
    mgr.set('x/metrics_port', 9285)
    mgr.rm('metrics_port')
    mgr.compare(1)
    assert mgr.options.localized('metrics_port') == 9285
    mgr.rm('x/metrics_port')
    mgr.compare(1)
    assert mgr.options.localized('metrics_port') == 0


@pytest.mark.parametrize('name,value,why', [
    ('max_bytes_in_flight', ValueError("invalid literal for int() with base 0: '4T'"), "'4T'"),
    ('latency_factor', float('nan'), 'between 1.0 and 100.0, not nan'),
    ('max_backfills_source', 0, 'between 1 and 1000, not 0'),
    ('mitigation_mode', 'on', "one of off, observe, act, not 'on'")])
def test_a_value_that_the_mons_have_not_checked_does_not_count(name: str, value: Any,
                                                               why: str) -> None:
    """The loop would end in the middle of a campaign: it reads the options in each iteration."""
    mgr = Running()
    mgr.set('pin_batch', 7)
    mgr.set(name, value)
    mgr.compare(1)
    assert mgr.options.read() == replace(DEFAULTS, pin_batch=7)
    [remark] = mgr.options.remarks()
    assert name in remark and why in remark and str(getattr(DEFAULTS, name)) in remark
    mgr.rm(name)
    mgr.compare(1)
    assert mgr.options.read() == replace(DEFAULTS, pin_batch=7) and not mgr.options.remarks()


def test_the_port_of_one_mgr_that_is_no_number() -> None:
    mgr = Running()
    mgr.set('metrics_port', 9283)
    mgr.set('x/metrics_port', ValueError('invalid literal'))
    mgr.compare(1)
    assert mgr.options.localized('metrics_port') == 9283
