# SPDX-License-Identifier: LGPL-2.1-or-later
"""What the answers of OSDs about a PG contain."""
from typing import Any, Dict, FrozenSet, Optional

import pytest

from perfguard.why.controller import option_of, plain_pgid, reservations, state_of
from perfguard.why.pgs import Queue, Reservations


@pytest.mark.parametrize('text, pgid', [
    ('2.1f', '2.1f'), ('2.1fs0', '2.1f'), ('2.1fs11', '2.1f'), ('2.1s', '2.1s')])
def test_the_shard_of_a_pg_is_left_out(text: str, pgid: str) -> None:
    assert plain_pgid(text) == pgid


@pytest.mark.parametrize('pgid, state', [
    ('2.1fs3', frozenset({'active', 'clean'})), ('2.1f', frozenset({'active', 'clean'})),
    ('2.1e', None)])
def test_the_state_of_a_pg_by_its_query(pgid: str, state: Optional[FrozenSet[str]]) -> None:
    assert state_of('2.1f', {'info': {'pgid': pgid}, 'state': 'active+clean'}) == state


def queue(limit: Any, granted: str, *waiting: str) -> Dict[str, Any]:
    """As OSDs dump it: a queue for each priority."""
    return {'max_allowed': limit, 'in_progress': [{'item': granted}], 'queues': [
        {'priority': number, 'items': [{'item': pgid}]} for number, pgid in enumerate(waiting)]}


def test_the_reservations_of_an_osd() -> None:
    assert reservations({'local_reservations': queue('3', '2.1fs0', '2.as1', '2.b'),
                         'remote_reservations': queue(1, '2.c')}) == Reservations(
        Queue(3, ('2.1f',), ('2.a', '2.b')), Queue(1, ('2.c',), ()))
    with pytest.raises(KeyError):
        reservations({'local_reservations': queue(1, '2.a')})


def test_the_value_of_an_option() -> None:
    assert option_of({'osd_max_backfills': 3}, 'osd_max_backfills') == {'osd_max_backfills': '3'}
    assert option_of({'other': 3}, 'osd_max_backfills') == {}
