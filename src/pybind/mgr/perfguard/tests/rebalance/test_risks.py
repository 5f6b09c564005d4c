# SPDX-License-Identifier: LGPL-2.1-or-later
"""Refusals for risks that are not accepted."""
import errno
from types import SimpleNamespace
from typing import Any, List, Tuple

import pytest

from perfguard.errors import MOST_ERROR_CHARACTERS, Code, Reason, Refused
from perfguard.options import DEFAULTS
from perfguard.rebalance.change import Details
from perfguard.rebalance.orders import Order
from perfguard.rebalance.pool_rule import RuleChange
from perfguard.rebalance.preview import Effects, OsdEffect, Preview
from perfguard.rebalance.progress import Eta
from perfguard.rebalance.risks import RISKS, Risk, accepted, of_health, refuse, risks_json

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


@pytest.mark.parametrize('codes, expected', [
    ([], ()), (['degraded'], ('DEGRADED',)), (['Degraded, target-full', 'MON_DOWN'],
                                              ('DEGRADED', 'TARGET_FULL', 'MON_DOWN'))])
def test_codes_in_any_spelling(codes: List[str], expected: Tuple[str, ...]) -> None:
    assert accepted(codes) == expected


def test_codes_that_are_no_risks() -> None:
    with pytest.raises(Refused) as caught:
        accepted(['DEGRADED,rain'])
    assert caught.value.errno == errno.EINVAL
    assert str(caught.value) == "cannot accept 'RAIN'; must be one of " + ', '.join(RISKS)
    with pytest.raises(Refused) as caught:
        accepted(['UNTRIMMED_CEILING'])
    assert caught.value.errno == errno.EINVAL
    assert str(caught.value) == (
        'UNTRIMMED_CEILING stops releases, but not the beginning of a change: "campaign accept '
        'UNTRIMMED_CEILING" ignores it once the campaign has begun (omit --accept '
        'UNTRIMMED_CEILING)')


@pytest.mark.parametrize('length, is_spelled_out', [(567, True), (568, False)])
def test_a_command_is_spelled_out_up_to_600_characters(length: int, is_spelled_out: bool) -> None:
    """With the codes that were accepted before."""
    with pytest.raises(Refused) as caught:
        refuse([Risk('DEGRADED', 'why')], ('LAGGY',), 'c' * length)
    words = ' --accept LAGGY --accept DEGRADED'
    assert str(caught.value) == 'why (DEGRADED); to accept: ' + (
        '"%s%s"' % ('c' * length, words) if is_spelled_out else 'add' + words)


def test_a_refusal_is_that_of_its_first_risk() -> None:
    risks = [Risk('PIN_LIMIT', 'one', errno.E2BIG), Risk('DEGRADED', 'two', of_cluster=True)]
    with pytest.raises(Refused) as caught:
        refuse(risks, (), 'c')
    assert (caught.value.errno, caught.value.not_fit) == (errno.E2BIG, True)
    with pytest.raises(Refused) as caught:
        refuse(risks, ('DEGRADED',), 'c')
    assert not caught.value.not_fit
    refuse(risks, ('PIN_LIMIT', 'DEGRADED'), 'c')
    assert risks_json(risks, ('DEGRADED',)) == [{'code': 'PIN_LIMIT', 'text': 'one'}]
    assert of_health([Reason('DEGRADED', 'two')]) == [Risk('DEGRADED', 'two', of_cluster=True)]
