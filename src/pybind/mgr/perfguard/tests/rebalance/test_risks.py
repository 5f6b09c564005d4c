# SPDX-License-Identifier: LGPL-2.1-or-later
"""Refusals for risks that are not accepted."""
import pytest

from perfguard.errors import MOST_ERROR_CHARACTERS, Refused
from perfguard.rebalance.risks import RISKS, Risk, refuse

WORDS = ''.join(' --accept ' + code for code in RISKS)


def refused(command: str, length: int, *codes: str) -> str:
    """`length`: of the text of each risk."""
    with pytest.raises(Refused) as caught:
        refuse([Risk(code, code[0].lower() * length) for code in codes], (), command)
    assert len(str(caught.value)) <= MOST_ERROR_CHARACTERS
    return str(caught.value)


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
