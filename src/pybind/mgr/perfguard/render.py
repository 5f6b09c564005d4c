# SPDX-License-Identifier: LGPL-2.1-or-later
"""The data of a command as JSON or as tables for people."""
import json
import time
from typing import Any, Callable, List, Mapping, Optional, Sequence

from prettytable import PrettyTable

Json = Mapping[str, Any]

FORMATS = ('plain', 'json', 'json-pretty')


def render(data: Json, format_: str, plain: Callable[[Json], str]) -> str:
    if format_ == 'json':
        return json.dumps(data)
    if format_ == 'json-pretty':
        return json.dumps(data, indent=4)
    return plain(data)


def table(columns: Sequence[str], rows: Sequence[Sequence[Any]], left: Sequence[str] = ()) -> str:
    """A table with numbers to the right; `left` names the columns of words."""
    pretty = PrettyTable(list(columns), border=False)
    for column in columns:
        pretty.align[column] = 'l' if column in left else 'r'
    pretty.left_padding_width = 0
    pretty.right_padding_width = 2
    for row in rows:
        pretty.add_row(list(row))
    return '\n'.join(line.rstrip() for line in pretty.get_string().splitlines())


def bytes_text(size: float) -> str:
    for unit in ('B', 'KiB', 'MiB', 'GiB', 'TiB'):
        if abs(size) < 1024 or unit == 'TiB':
            return ('%d %s' if unit == 'B' else '%.1f %s') % (size, unit)
        size /= 1024
    raise AssertionError('not reached')


def seconds_text(seconds: Optional[float]) -> str:
    if seconds is None:
        return 'not known yet'
    whole = int(round(seconds))
    if whole < 120:
        return '%d s' % whole
    if whole < 7200:
        return '%d min' % round(whole / 60)
    if whole < 48 * 3600:
        return '%.1f h' % (whole / 3600)
    return '%.1f days' % (whole / 86400)


def time_text(stamp: Optional[float]) -> str:
    return '' if not stamp else time.strftime('%Y-%m-%d %H:%M:%S', time.localtime(stamp))


def _pairs(rows: Sequence[Sequence[Any]]) -> str:
    width = max(len(str(row[0])) for row in rows)
    return '\n'.join('%-*s  %s' % (width, row[0], row[1]) for row in rows)


def _reasons(data: Json) -> List[str]:
    return ['', *('- ' + reason for reason in data['reasons'])] if data['reasons'] else []


def status(data: Json) -> str:
    signals = data['signals']
    rows = [('phase', data['phase'])]
    if data['health']:
        rows.append(('health', ', '.join(data['health'])))
    if signals:
        rows += [
            ('PGs', '%(pgs)d, %(active_clean_pgs)d active+clean' % signals),
            ('trouble', '%(laggy_pgs)d laggy, %(inactive_pgs)d inactive, '
                        '%(degraded_pgs)d degraded, %(slow_ops)d slow operations' % signals),
            ('movement', '%.2f %% misplaced, %d remapped, %d backfilling, %s/s' % (
                100 * signals['misplaced_ratio'], signals['remapped_pgs'],
                signals['backfilling_pgs'], bytes_text(signals['recovery_bytes_per_second'])))]
    campaign = data.get('rebalance')
    if campaign and campaign['id']:
        rows.append(('rebalance %d' % campaign['id'],
                     '%(released)d of %(total)d PGs released, %(in_flight)d in flight, '
                     '%(pinned)d pinned' % campaign))
    return '\n'.join([_pairs(rows), *_reasons(data)])


def rebalance_status(data: Json) -> str:
    if data['id'] is None:
        return '\n'.join(['no campaign', *_reasons(data)])
    share = data['released'] / data['total'] if data['total'] else 0.0
    bar = '=' * int(30 * share)
    rows = [
        ('campaign', '%d, begun %s' % (data['id'], time_text(data['started']))),
        ('phase', data['phase'] + (' (paused)' if data['paused'] else '')),
        ('PGs', '[%-30s] %d of %d released, %d in flight (at most %d), %d pinned' % (
            bar, data['released'], data['total'], data['in_flight'], data['limit'],
            data['pinned'])),
        ('bytes', '%s of %s' % (bytes_text(data['bytes_done']), bytes_text(data['bytes_total']))),
        ('time left', seconds_text(data['eta_seconds'])),
        ('osdmap epochs', data['epochs'])]
    if data['kept']:
        rows.append(('kept as upmaps', data['kept']))
    if data['ended']:
        rows[4] = ('ended', time_text(data['ended']))
    text = [_pairs(rows), *_reasons(data)]
    if data['unpinnable']:
        text += ['', table(('PG', 'why it cannot be pinned'),
                           [(row['pgid'], row['reason']) for row in data['unpinnable'][:20]],
                           left=('PG', 'why it cannot be pinned'))]
        if len(data['unpinnable']) > 20:
            text.append('... and %d more' % (len(data['unpinnable']) - 20))
    return '\n'.join(text)


def plan(data: Json) -> str:
    if not data['pgs']:
        return ('%d PGs are remapped: pin them for a preview' % data['remapped']
                if data['remapped'] else 'nothing to move')
    rows = [('PGs to move', data['pgs']), ('shards to copy', data['shards']),
            ('bytes to copy', bytes_text(data['bytes'])),
            ('primaries that move', data['primaries_moving']),
            ('estimated time', '%s (speed %s)' % (seconds_text(data['estimated_seconds']),
                                                  data['estimate_basis']))]
    if data['remapped']:
        rows.append(('not pinned yet', data['remapped']))
    osds = [(row['osd'], row['pgs_in'], bytes_text(row['bytes_in']), row['pgs_out'],
             bytes_text(row['bytes_out'])) for row in data['osds']]
    return '\n'.join([_pairs(rows), '',
                      table(('OSD', 'PGs in', 'bytes in', 'PGs out', 'bytes out'), osds)])


def history(data: Json) -> str:
    if not data['campaigns']:
        return 'no campaigns'
    columns = ('id', 'phase', 'started', 'ended', 'PGs', 'released', 'kept', 'bytes', 'epochs')
    return table(columns, [
        (row['id'], row['phase'], time_text(row['started']), time_text(row['ended']),
         row['total'], row['released'], row['kept'], bytes_text(row['bytes_done']), row['epochs'])
        for row in data['campaigns']], left=('phase', 'started', 'ended'))


def campaign(data: Json) -> str:
    rows = [(key.replace('_', ' '), data[key]) for key in data
            if key not in ('started', 'ended', 'bytes_done', 'unpinnable', 'reasons')]
    rows += [('started', time_text(data['started'])), ('ended', time_text(data['ended'])),
             ('bytes done', bytes_text(data['bytes_done']))]
    return _pairs(rows)


def events(data: Json) -> str:
    if not data['events']:
        return 'no events'
    return table(('time', 'kind', 'what', 'why'), [
        (time_text(row['time']), row['kind'], row['what'], row['why'])
        for row in data['events']], left=('time', 'kind', 'what', 'why'))


def accepted(data: Json) -> str:
    return str(data['message'])
