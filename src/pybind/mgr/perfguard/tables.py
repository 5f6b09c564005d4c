# SPDX-License-Identifier: LGPL-2.1-or-later
"""The data of a command as JSON or as tables for people."""
import csv
import io
import json
from typing import Any, Callable, List, Optional, Sequence

from .cluster.types import Json
from .text import bytes_text, ms_text, pgs, seconds_text, time_text, with_next

FORMATS = ('plain', 'json', 'json-pretty')


def render(data: Json, format_: str, plain: Callable[[Json], str]) -> str:
    if format_ == 'json':
        return json.dumps(data)
    if format_ == 'json-pretty':
        return json.dumps(data, indent=4)
    return plain(data)


def table(columns: Sequence[str], rows: Sequence[Sequence[Any]], left: Sequence[str] = ()) -> str:
    """A table with numbers to the right; `left` names the columns of words."""
    # Not at the top: perfguard-plan, which prints no tables, only needs Python.
    from prettytable import PrettyTable
    pretty = PrettyTable(list(columns), border=False)
    for column in columns:
        pretty.align[column] = 'l' if column in left else 'r'
    pretty.left_padding_width = 0
    pretty.right_padding_width = 2
    for row in rows:
        pretty.add_row(list(row))
    return '\n'.join(line.rstrip() for line in pretty.get_string().splitlines())


def pairs(rows: Sequence[Sequence[Any]]) -> str:
    """Names and values, one below the other."""
    width = max(len(str(row[0])) for row in rows)
    return '\n'.join('%-*s  %s' % (width, row[0], row[1]) for row in rows)


def reason_lines(data: Json) -> List[str]:
    """The reasons of a state, below it."""
    return ['', *('- ' + with_next(row['text'], row['next']) for row in data['limits'])] \
        if data['limits'] else []


def status(data: Json) -> str:
    """The answer of "perfguard status" as text."""
    signals = data['signals']
    rows = [('phase', data['phase'])]
    if data.get('age_seconds') is not None:
        rows.append(('updated', '%s ago' % seconds_text(data['age_seconds'])))
    if data['health']:
        rows.append(('health', ', '.join(data['health'])))
    if signals:
        rows += [
            ('PGs', '%(pgs)d, %(active_clean_pgs)d active+clean' % signals),
            ('clients', _clients(signals)),
            ('problems', '%(laggy_pgs)d laggy, %(inactive_pgs)d inactive, '
                         '%(degraded_pgs)d degraded, slow operations: %(slow_ops)d' % signals),
            ('movement', '%.2f %% misplaced, %d remapped, %d backfilling, %s/s' % (
                100 * signals['misplaced_ratio'], signals['remapped_pgs'],
                signals['backfilling_pgs'], bytes_text(signals['recovery_bytes_per_second'])))]
    campaign = data.get('rebalance')
    if campaign and campaign['id']:
        rows.append(('campaign %d' % campaign['id'],
                     '%d of %s released, %d in flight, %d pinned' % (
                         campaign['released'], pgs(campaign['moving']), campaign['in_flight'],
                         campaign['pinned'])))
    if data.get('page'):
        rows.append(('page', data['page']))
    return '\n'.join([pairs(rows), *reason_lines(data)])


def _clients(signals: Json) -> str:
    """Operations of clients in the last minute."""
    parts = []
    for kind in ('read', 'write'):
        if signals.get(kind + '_rate'):
            p99_ms = signals[kind + '_p99_ms']
            parts.append('%ss %s%s at %.0f/s' % (
                kind, ms_text(signals[kind + '_ms']),
                '' if p99_ms is None else ' (p99 of 2 minutes: %.1f)' % p99_ms,
                signals[kind + '_rate']))
    return ', '.join(parts) or 'no operations'


def _number(value: Optional[float], text: str = '%.2f') -> str:
    return '-' if value is None else text % value


def _trouble(row: Json) -> str:
    return ', '.join('%d %s' % (count, name) for name, count in row['pgs'].items())


def _remarks(row: Json) -> str:
    chronic = row['chronic']['why'] if row.get('chronic') else ''
    now = row['why'] if row['slow'] else ''
    if not now and row.get('waits_for') is not None:
        now = 'waits for osd.%d' % row['waits_for']
    return '; '.join(text for text in (now, chronic) if text) or _trouble(row)


def osds(data: Json) -> str:
    """The OSDs as a table."""
    if not data['osds']:
        return 'no OSD has reported so far'
    rows = [('osd.%d' % row['osd'], row['host'], row['device_class'], _number(row['read_rate']),
             _number(row['read_ms']), _number(row['write_rate']), _number(row['write_ms']),
             _number(row['store_ms']), _number(row['write_p99_ms']), _number(row['ping_ms']),
             _number(row['score']), _remarks(row))
            for row in data['osds']]
    # "ms ": PrettyTable requires that names of columns differ.
    return table(('OSD', 'host', 'class', 'reads/s', 'ms', 'writes/s', 'ms ', 'store ms',
                  'write p99', 'ping ms', 'slowdown', 'remarks'), rows,
                 left=('OSD', 'host', 'class', 'remarks'))


def pools(data: Json) -> str:
    """The pools as a table."""
    if not data['pools']:
        return 'no pools'
    rows = [(row['pool'], _number(row['read_rate']), _number(row['read_ms']),
             _number(row['read_baseline_ms']), _number(row['write_rate']),
             _number(row['write_ms']), _number(row['write_baseline_ms']),
             '; '.join([kind + ' slower than the baseline' for kind in row['slow']]
                       + ['%(client)s (%(address)s) sends most operations' % client
                          for client in row['clients']]
                       + ([_trouble(row)] if row['pgs'] else [])))
            for row in data['pools']]
    # "baseline ": PrettyTable requires that names of columns differ.
    return table(('pool', 'reads/s', 'read ms', 'baseline', 'writes/s', 'write ms', 'baseline ',
                  'remarks'), rows, left=('pool', 'remarks'))


def laggy(data: Json) -> str:
    """The laggy PGs and the suspected OSDs as text."""
    last = data.get('last')
    if not data.get('laggy_pgs') and not data.get('wait_pgs'):
        return 'no PG is laggy' + ('; the last were from %s to %s; %s' % (
            time_text(last['since']), time_text(last['until']), last['text'])
            if last and last['until'] else '')
    text = ['laggy PGs: %(laggy_pgs)d, waiting for read leases to expire: %(wait_pgs)d' % data]
    if data['suspects']:
        text += ['', table(('suspect', 'score', 'mechanism', 'why', 'what to do'), [
            ('osd.%d' % row['osd'], _number(row['score']), row['mechanism'].replace('_', ' '),
             row['why'], row['advice'])
            for row in data['suspects']], left=('suspect', 'mechanism', 'why', 'what to do'))]
    if data['pgs']:
        text += ['', table(('PG', 'acting', 'waiting since'), [
            (row['pgid'], ','.join(str(osd) for osd in row['acting']), time_text(row['since']))
            for row in data['pgs']], left=('PG', 'acting', 'waiting since'))]
    return '\n'.join(text)


def exported(data: Json) -> str:
    """The exported history as CSV."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator='\n')
    writer.writerow(data['columns'])
    writer.writerows(data['rows'])
    return text.getvalue().rstrip('\n')


def watch_history(data: Json) -> str:
    """The history of client latency as a table."""
    if not data['points']:
        return 'no history yet'
    is_condensed = any('read_max_ms' in row for row in data['points'])
    names = [kind + key for kind in ('read', 'write') for key in (
        '_rate', '_ms', '_max_ms')[:3 if is_condensed else 2]]
    columns = [name.replace('_rate', 's/s').replace('_max_ms', ' max').replace('_ms', ' ms')
               for name in names]
    return table(('time', *columns), [
        (time_text(row['time']), *(_number(row.get(name)) for name in names))
        for row in data['points']], left=('time',)) + (
            '\n\n--all shows each reading' if is_condensed else '')


def why(data: Json) -> str:
    rows = [(row['code'], '-' if row['share'] is None else '%.1f %%' % (100 * row['share']),
             with_next(row['text'], row['next'])) for row in data['causes']]
    return '%s\n\n%s' % (data['subject'], table(('cause', 'time', 'explanation'), rows,
                                                left=('cause', 'explanation')))


#: States of a mitigation in words, where the JSON has others.
STEP_TEXTS = {'held': 'in force', 'would': 'not taken (mode observe)', 'idle': 'not needed',
              'undoing': 'being undone'}


def mitigation(data: Json) -> str:
    """The mitigations as a table."""
    columns = ('id', 'mitigation', 'state', 'since', 'why', 'before -> now')
    rows = []
    for row in data['rungs']:
        settings = ['%s%s: %s -> %s' % (setting['what'],
                                        ' of ' + setting['who'] if setting['who'] else '',
                                        'not set' if setting['found'] is None else setting['found'],
                                        setting['put']) for setting in row['settings']]
        settings += [row['note']] if row['note'] else []
        rows.append(('-' if row['id'] is None else row['id'],
                     ' '.join([row['rung'], row['subject']]).strip(),
                     STEP_TEXTS.get(row['state'], row['state']),
                     time_text(row['since']), row['why'], '\n'.join(settings)))
    return 'mode: %s\n\n%s' % (data['mode'], table(columns, rows, left=columns[1:]))


def events(data: Json) -> str:
    if not data['events']:
        return 'no events'
    columns = ('time', 'kind', 'what', 'why')
    return table(columns, [(time_text(row['time']), row['kind'], row['what'], row['why'])
                           for row in data['events']], left=columns)


def held(data: Json) -> str:
    if not data['held']:
        return 'nothing is borrowed'
    columns = ('setting', 'owner', 'before', 'now', 'since', 'command that restores it by hand')
    return table(columns, [
        (row['what'], row['owner'], 'not set' if row['found'] is None else row['found'], row['put'],
         time_text(row['since']), row['restore']) for row in data['held']], left=columns)


def shutdown(data: Json) -> str:
    text = str(data['message'])
    return text if data['safe'] else text + '\n\n' + held(data)


def accepted(data: Json) -> str:
    return str(data['message'])
