# SPDX-License-Identifier: LGPL-2.1-or-later
"""What people and programs are shown."""
import json
import re
from typing import Any, Dict

import pytest

from perfguard import tables
from perfguard.status import Published, status_json

from .fakes.driver import Driver


def test_formats() -> None:
    data = {'b': [1], 'a': 'ä'}
    assert json.loads(tables.render(data, 'json', str)) == data
    pretty = tables.render(data, 'json-pretty', str)
    assert json.loads(pretty) == data and '\n    "b"' in pretty
    assert tables.render(data, 'plain', lambda shown: shown['a']) == 'ä'


def test_table_aligns_numbers_right_and_words_left() -> None:
    text = tables.table(('OSD', 'why'), [(1, 'x'), (100, 'longer')], left=('why',))
    assert text.splitlines()[1] == '  1  x' and text.splitlines()[2] == '100  longer'


@pytest.fixture(scope='module')
def moving() -> Driver:
    driver = Driver()
    driver.to_releasing()
    driver.run(2)
    return driver


def test_status_of_a_module_that_has_just_started() -> None:
    text = tables.status(status_json(Published(), 0.0))
    assert 'IDLE' in text and '- perfguard has just started' in text


def test_status(moving: Driver) -> None:
    text = tables.status(moving.loop.status())
    assert 'RELEASING' in text and 'PGs         24, ' in text and 'campaign 1' in text
    assert '4 in flight' in text and '- at most 4 of 4 PGs' in text
    assert 'page        http://a:7000/perfguard' in text
    assert 'page' not in tables.status({**moving.loop.status(), 'page': ''})


def test_status_names_health_checks(moving: Driver) -> None:
    data = {**moving.loop.status(), 'health': ['PERFGUARD_STALLED', 'PERFGUARD_UNPINNABLE']}
    assert 'PERFGUARD_STALLED, PERFGUARD_UNPINNABLE' in tables.status(data)


def test_events(moving: Driver) -> None:
    assert tables.events({'events': []}) == 'no events'
    text = tables.events({'events': moving.loop.published.events})
    assert 'releasing 4 PGs' in text and text.splitlines()[0].split() == [
        'time', 'kind', 'what', 'why']


def test_accepted() -> None:
    data: Dict[str, Any] = {'verb': 'pin', 'message': 'pinning'}
    assert tables.accepted(data) == 'pinning'


# ---- the watch

def osd_row(**changes: Any) -> Dict[str, Any]:
    return {**{'osd': 3, 'host': 'a', 'device_class': 'ssd', 'read_ms': 0.412, 'write_ms': None,
               'store_ms': 0.2, 'score': None, 'slow': False, 'why': '', 'since': None,
               'read_rate': 12.0, 'write_rate': 0.0, 'read_p99_ms': None, 'write_p99_ms': None,
               'ping_ms': None, 'silent_seconds': None, 'chronic': None, 'slow_time_ratio': None,
               'model': 'x', 'pgs': {}}, **changes}


def test_osds() -> None:
    assert tables.osds({'osds': []}) == 'no OSD has reported so far'
    text = tables.osds({'osds': [
        osd_row(), osd_row(osd=12, score=7.75, slow=True, why='store commits 3.1 ms'),
        osd_row(osd=13, pgs={'laggy': 2, 'degraded': 1}),
        osd_row(osd=14, chronic={'why': 'slow 9.0% of the time'}, pgs={'laggy': 2})]}).splitlines()
    assert text[1].split() == ['osd.3', 'a', 'ssd', '12.00', '0.41', '0.00', '-', '0.20', '-', '-',
                               '-']
    assert text[2].endswith('7.75  store commits 3.1 ms')
    assert text[3].endswith('2 laggy, 1 degraded')
    assert tables.osds({'osds': [osd_row(score=9.0, waits_for=4)]}).endswith(
        '9.00  waits for osd.4')
    assert text[4].endswith('  slow 9.0% of the time')


def test_pools() -> None:
    assert tables.pools({'pools': []}) == 'no pools'
    row = {'pool': 'rbd', 'read_rate': 10.0, 'read_ms': 5.0, 'read_baseline_ms': 1.0,
           'write_rate': 0.0, 'write_ms': None, 'write_baseline_ms': None, 'slow': [], 'pgs': {},
           'clients': []}
    client = {'client': 'client.4', 'address': '10.0.0.7:0/1', 'share': 0.9}
    text = tables.pools({'pools': [row, {**row, 'slow': ['reads'], 'pgs': {'laggy': 3},
                                         'clients': [client]}]})
    assert text.splitlines()[1].split() == ['rbd', '10.00', '5.00', '1.00', '0.00', '-', '-']
    assert text.splitlines()[2].endswith(
        'reads slower than the baseline; client.4 (10.0.0.7:0/1) sends most operations; 3 laggy')


def test_a_note_of_a_mitigation_stands_below_its_settings() -> None:
    rung = {'id': 3, 'rung': 'slow recovery', 'subject': '', 'state': 'held', 'since': 0,
            'why': 'slow', 'note': 'osd.0 shows 3', 'settings': [
                {'what': 'osd_max_backfills', 'who': 'osd', 'found': None, 'put': '1'}]}
    text = tables.mitigation({'mode': 'act', 'rungs': [rung]})
    assert 'osd_max_backfills of osd: not set -> 1\n' in text and text.endswith('osd.0 shows 3')
    quiet = tables.mitigation({'mode': 'act', 'rungs': [{**rung, 'note': ''}]})
    assert quiet.endswith('osd_max_backfills of osd: not set -> 1')


def test_laggy() -> None:
    data: Dict[str, Any] = {'laggy_pgs': 0, 'wait_pgs': 0, 'since': None, 'pgs': [],
                            'suspects': []}
    assert tables.laggy(data) == 'no PG is laggy'
    data['last'] = {'since': 1e9, 'until': 1e9 + 60, 'text': 'main suspect osd.4'}
    assert re.match(r'no PG is laggy; the last were from 2001-.* to 2001-.*; main suspect osd.4$',
                    tables.laggy(data))
    data.update(laggy_pgs=2, wait_pgs=1)
    assert tables.laggy(data) == 'laggy PGs: 2, waiting for read leases to expire: 1'
    data['suspects'] = [{'osd': 4, 'score': 0.85, 'why': 'leads none', 'advice': 'look at it',
                         'mechanism': 'load'}]
    data['pgs'] = [{'pgid': '1.a', 'acting': [1, 4], 'since': 1e9, 'primary': 1}]
    lines = tables.laggy(data).splitlines()
    assert lines[3].split() == ['osd.4', '0.85', 'load', 'leads', 'none', 'look', 'at', 'it']
    assert lines[-1].split()[:2] == ['1.a', '1,4']


def test_watch_history() -> None:
    assert tables.watch_history({'of': 'cluster', 'points': []}) == 'no history yet'
    text = tables.watch_history({'of': 'cluster', 'points': [
        {'time': 1e9, 'seconds': 5.0, 'read_ms': 0.5, 'write_ms': None, 'read_rate': 40.0,
         'write_rate': 0.0}]})
    assert text.splitlines()[1].split()[3:] == ['40.00', '0.50', '0.00', '-']
    text = tables.watch_history({'of': 'cluster', 'points': [
        {'time': 1e9, 'seconds': 180.0, 'read_ms': 0.5, 'write_ms': None, 'read_rate': 40.0,
         'write_rate': 0.0, 'read_max_ms': 7.0, 'write_max_ms': None}]})
    head, row, _, end = text.splitlines()
    assert head.split() == ['time', 'reads/s', 'read', 'ms', 'read', 'max', 'writes/s', 'write',
                            'ms', 'write', 'max']
    assert row.split()[3:] == ['40.00', '0.50', '7.00', '0.00', '-', '-'] and '--all' in end


def test_clients_in_status(moving: Driver) -> None:
    assert 'no operations' in tables.status(moving.loop.status())
    data = {**moving.loop.status(), 'signals': {
        **moving.loop.status()['signals'], 'read_rate': 120.0, 'read_ms': 0.5, 'read_p99_ms': 2.25,
        'write_rate': 3.0, 'write_ms': 9.0, 'write_p99_ms': None}}
    assert 'reads 0.50 ms (p99 of 2 minutes: 2.2) at 120/s, writes 9.00 ms at 3/s' \
        in tables.status(data)
