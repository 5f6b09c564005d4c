# SPDX-License-Identifier: LGPL-2.1-or-later
"""Refusals for risks that are not accepted."""
from types import SimpleNamespace
from typing import Any

import pytest

from perfguard.errors import MOST_ERROR_CHARACTERS, Code, Refused
from perfguard.options import DEFAULTS
from perfguard.rebalance.change import Details
from perfguard.rebalance.orders import Order
from perfguard.rebalance.pool_rule import RuleChange
from perfguard.rebalance.preview import Effects, OsdEffect, Preview
from perfguard.rebalance.progress import Eta
from perfguard.rebalance.risks import RISKS, Risk, refuse, risks_json

from ..fakes.cluster import FakeCluster

WORDS = ''.join(' --accept ' + code for code in RISKS)


def refused(command: str, length: int, *codes: str) -> str:
    """`length`: of the text of each risk."""
    with pytest.raises(Refused) as caught:
        refuse([Risk(code, code[0].lower() * length) for code in codes], (), command)
    assert len(str(caught.value)) <= MOST_ERROR_CHARACTERS
    return str(caught.value)


def test_all_texts_of_a_code_are_shown_and_the_code_is_accepted_once() -> None:
    """One of the change itself, and one of its effects."""
    view = FakeCluster().map_view()
    seen: Any = SimpleNamespace(osdmap=view.osdmap, crush=None)
    first = Risk(Code.TARGET_FULL, 'osd.3 would hold 9 TiB of 10 TiB')
    preview = Preview(
        RuleChange(), details=Details(risks=(first, first)),
        effects=Effects((OsdEffect(7, 10, 20, 20, 0.8, 0.9),), Eta(1.0, 1.0, 1.0), 'assumed', ()))
    risks = preview.all_risks(Order('rule'), seen, DEFAULTS)
    shown = risks_json(risks, ())
    assert [row['code'] for row in shown] == ['TARGET_FULL', 'TARGET_FULL']
    assert 'osd.3' in shown[0]['text'] and 'osd.7' in shown[1]['text']
    with pytest.raises(Refused) as caught:
        refuse(risks, (), 'ceph x')
    text = str(caught.value)
    assert 'osd.3' in text and 'osd.7' in text
    assert text.endswith('to accept: "ceph x --accept TARGET_FULL"')


def test_a_long_refusal_ends_with_the_whole_command() -> None:
    """A command that is cut would name other OSDs."""
    command = 'ceph perfguard drain ' + ' '.join('osd.%d' % osd for osd in range(60))
    text = refused(command, 700, 'DEGRADED', 'TARGET_FULL')
    assert text.endswith('; to accept: "%s --accept DEGRADED --accept TARGET_FULL"' % command)
    assert 'ddd... (DEGRADED); ttt' in text and 'ttt... (TARGET_FULL)' in text


def test_short_texts_stay_whole() -> None:
    with pytest.raises(Refused) as caught:
        refuse([Risk('DEGRADED', 'd' * 50), Risk('TARGET_FULL', 't' * 2000)], (), 'ceph x')
    text = str(caught.value)
    assert text.startswith('d' * 50 + ' (DEGRADED); ttt') and 990 < len(text) <= 1000


@pytest.mark.parametrize('command', [
    'ceph perfguard drain ' + 'osd.1000 ' * 100, 'ceph perfguard drain ' + 'osd.1 ' * 50, ''])
def test_all_codes_are_named_where_the_command_is_too_long(command: str) -> None:
    text = refused(command, 300, *RISKS)
    assert text.endswith('; to accept: add' + WORDS)
    assert all('(%s)' % code in text for code in RISKS)
