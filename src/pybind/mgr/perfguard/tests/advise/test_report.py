# SPDX-License-Identifier: LGPL-2.1-or-later
"""The advice as JSON and as text."""
from typing import Optional, Tuple

import pytest

from perfguard.advise.report import (Advice, Facts, Finding, Rule, Severity, Symptom, plain,
                                     to_json)

from ..fakes.zones import in_zone


def nothing(facts: Facts) -> Optional[Symptom]:
    return None


def finding(code: str, severity: Severity = Severity.WARNING, muted: bool = False,
            fix: str = 'ceph x') -> Finding:
    return Finding(Rule(code, severity, 'it is slow', 'Ceph documentation', nothing),
                   'osd.3 is slow', fix, muted)


LONG = 'ceph config rm osd.1 osd_max_backfills; ' * 3 + 'restart-the-osd'


@pytest.mark.parametrize('advice, lines', [
    (Advice(), ('the cluster has not been examined yet; "perfguard advise --refresh" examines it '
                'now',)),
    (Advice(1e9), ('no findings, as of 2001-09-09 02:46:40 CET',)),
    (Advice(1e9, (finding('A'), finding('B', Severity.INFO, fix=LONG), finding('C', muted=True)),
            frozenset({'D', 'C'}), ('no SMART data', 'no config')), (
        'A (warning)',
        '  seen:   osd.3 is slow',
        '  why:    it is slow',
        '  fix:    ceph x',
        '  source: Ceph documentation',
        '',
        'B (info)',
        '  seen:   osd.3 is slow',
        '  why:    it is slow',
        '  fix:    ceph config rm osd.1 osd_max_backfills; ceph config rm osd.1 osd_max_backfills; '
        'ceph',
        '          config rm osd.1 osd_max_backfills; restart-the-osd',
        '  source: Ceph documentation',
        '',
        '2 findings, as of 2001-09-09 02:46:40 CET',
        'muted: C, D',
        '- no SMART data',
        '- no config'))])
def test_the_text_of_the_advice(advice: Advice, lines: Tuple[str, ...]) -> None:
    with in_zone('CET-1'):
        assert tuple(plain(to_json(advice)).split('\n')) == lines


def test_the_json_of_the_advice() -> None:
    assert to_json(Advice(1e9, (finding('A'), finding('C', muted=True)), frozenset({'D', 'C'}),
                          ('remark',))) == {
        'time': 1e9, 'muted': ['C', 'D'], 'remarks': ['remark'], 'findings': [{
            'code': 'A', 'severity': 'warning', 'seen': 'osd.3 is slow', 'why': 'it is slow',
            'fix': 'ceph x', 'source': 'Ceph documentation'}]}


@pytest.mark.parametrize('length, lines', [(90, 1), (91, 2)])
def test_lines_are_as_long_as_a_terminal_is_wide(length: int, lines: int) -> None:
    """Two words that fill it, and one character more."""
    text = 'x' * 40 + ' ' + 'y' * (length - 41)
    advice = plain(to_json(Advice(1e9, (finding('A', fix=text),))))
    assert advice.count('\n') == 5 + lines
