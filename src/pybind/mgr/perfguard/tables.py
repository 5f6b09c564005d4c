# SPDX-License-Identifier: LGPL-2.1-or-later
"""The data of a command as JSON or as tables for people."""
import csv
import io
import json
import time
from typing import Any, Callable, List, Mapping, Optional, Sequence, Tuple


def plural(number: int, noun: str) -> str:
    """As in "1 pin" or "12 pins"."""
    return '%d %s%s' % (number, noun, '' if number == 1 else 's')


def pgs(number: int) -> str:
    """As in "1 PG" or "12 PGs"."""
    return plural(number, 'PG')


def pgs_are(number: int) -> str:
    """As in "1 PG is" or "12 PGs are"."""
    return pgs(number) + (' is' if number == 1 else ' are')


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
    # Not at the top: perfguard-plan, which prints no table, needs nothing but Python.
    from prettytable import PrettyTable
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
    if data.get('age_seconds') is not None:
        rows.append(('updated', '%s ago' % seconds_text(data['age_seconds'])))
    if data['health']:
        rows.append(('health', ', '.join(data['health'])))
    if signals:
        rows += [
            ('PGs', '%(pgs)d, %(active_clean_pgs)d active+clean' % signals),
            ('clients', _clients(signals)),
            ('trouble', '%(laggy_pgs)d laggy, %(inactive_pgs)d inactive, '
                        '%(degraded_pgs)d degraded, slow operations: %(slow_ops)d' % signals),
            ('movement', '%.2f %% misplaced, %d remapped, %d backfilling, %s/s' % (
                100 * signals['misplaced_ratio'], signals['remapped_pgs'],
                signals['backfilling_pgs'], bytes_text(signals['recovery_bytes_per_second'])))]
    campaign = data.get('rebalance')
    if campaign and campaign['id']:
        rows.append(('rebalance %d' % campaign['id'],
                     '%(released)d of %(total)d PGs released, %(in_flight)d in flight, '
                     '%(pinned)d pinned' % campaign))
    if data.get('page'):
        rows.append(('page', data['page']))
    return '\n'.join([_pairs(rows), *_reasons(data)])


def _clients(signals: Json) -> str:
    """In the last minute."""
    parts = []
    for kind in ('read', 'write'):
        if signals.get(kind + '_rate'):
            tail = signals[kind + '_p99_ms']
            parts.append('%ss %.2f ms%s at %.0f/s' % (
                kind, signals[kind + '_ms'], '' if tail is None else ' (p99 %.1f)' % tail,
                signals[kind + '_rate']))
    return ', '.join(parts) or 'no operations'


def _number(value: Optional[float], text: str = '%.2f') -> str:
    return '-' if value is None else text % value


def _trouble(row: Json) -> str:
    return ', '.join('%d %s' % (count, name) for name, count in row['pgs'].items())


def _remarks(row: Json) -> str:
    chronic = row['chronic']['why'] if row.get('chronic') else ''
    now = row['why'] if row['slow'] else ''
    return '; '.join(text for text in (now, chronic) if text) or _trouble(row)


def osds(data: Json) -> str:
    if not data['osds']:
        return 'no OSD has reported so far'
    rows = [('osd.%d' % row['osd'], row['host'], row['device_class'], _number(row['read_rate']),
             _number(row['read_ms']), _number(row['write_rate']), _number(row['write_ms']),
             _number(row['store_ms']), _number(row['write_p99_ms']), _number(row['ping_ms']),
             _number(row['score']), _remarks(row))
            for row in data['osds']]
    return table(('OSD', 'host', 'class', 'reads/s', 'ms', 'writes/s', 'ms ', 'store ms',
                  'write p99', 'ping ms', 'slowdown', 'remarks'), rows,
                 left=('OSD', 'host', 'class', 'remarks'))


def pools(data: Json) -> str:
    if not data['pools']:
        return 'no pools'
    rows = [(row['pool'], _number(row['read_rate']), _number(row['read_ms']),
             _number(row['read_baseline_ms']), _number(row['write_rate']),
             _number(row['write_ms']), _number(row['write_baseline_ms']),
             '; '.join([kind + ' slower than the baseline' for kind in row['slow']]
                       + ([_trouble(row)] if row['pgs'] else [])))
            for row in data['pools']]
    return table(('pool', 'reads/s', 'read ms', 'baseline', 'writes/s', 'write ms', 'baseline ',
                  'remarks'), rows, left=('pool', 'remarks'))


def laggy(data: Json) -> str:
    if not data.get('laggy_pgs') and not data.get('wait_pgs'):
        return 'no PG is laggy'
    text = ['laggy PGs: %(laggy_pgs)d, waiting for read leases to expire: %(wait_pgs)d' % data]
    if data['suspects']:
        text += ['', table(('suspect', 'score', 'why', 'what to do'), [
            ('osd.%d' % row['osd'], _number(row['score']), row['why'], row['advice'])
            for row in data['suspects']], left=('suspect', 'why', 'what to do'))]
    if data['pgs']:
        text += ['', table(('PG', 'acting', 'waiting since'), [
            (row['pgid'], ','.join(str(osd) for osd in row['acting']), time_text(row['since']))
            for row in data['pgs']], left=('PG', 'acting', 'waiting since'))]
    return '\n'.join(text)


def exported(data: Json) -> str:
    """As CSV."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator='\n')
    writer.writerow(data['columns'])
    writer.writerows(data['rows'])
    return text.getvalue().rstrip('\n')


def watch_history(data: Json) -> str:
    if not data['points']:
        return 'nothing yet'
    return table(('time', 'reads/s', 'read ms', 'writes/s', 'write ms'), [
        (time_text(row['time']), _number(row['read_rate']), _number(row['read_ms']),
         _number(row['write_rate']), _number(row['write_ms']))
        for row in data['points']], left=('time',))


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
        ('time left', eta_text(data)),
        ('OSDMap epochs', data['epochs'])]
    if data['kept']:
        rows.append(('kept as upmaps', data['kept']))
    if data.get('paused_until'):
        rows.append(('pause ends', time_text(data['paused_until'])))
    if data.get('settings'):
        rows.append(('settings', ', '.join('%s=%s' % item for item in sorted(
            data['settings'].items()))))
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


def watched(data: Json) -> str:
    """One line of `rebalance watch`."""
    if data['id'] is None:
        return 'no campaign'
    parts = ['campaign %d: %s%s' % (data['id'], data['phase'], ' (paused)' if data['paused']
                                    else ''),
             '%d of %d PGs released' % (data['released'], data['total']),
             '%d in flight' % data['in_flight'],
             '%s of %s' % (bytes_text(data['bytes_done']), bytes_text(data['bytes_total']))]
    if data['eta_seconds'] is not None:
        parts.append('%s left' % eta_text(data))
    return ', '.join(parts) + (': ' + data['reasons'][0] if data['reasons'] else '')


def eta_text(data: Json) -> str:
    """As in "20 min (15 min to 31 min)"."""
    return interval_text(*(data[key] for key in (
        'eta_seconds', 'eta_low_seconds', 'eta_high_seconds')))


def interval_text(seconds: Optional[float], low: Optional[float], high: Optional[float]) -> str:
    """The same of an estimate and its ends."""
    text = seconds_text(seconds)
    ends = [seconds_text(end) for end in (low, high) if end is not None]
    return text if not ends or ends == [text, text] else '%s (%s)' % (text, ' to '.join(ends))


def why(data: Json) -> str:
    rows = [(row['code'], '-' if row['share'] is None else '%.1f %%' % (100 * row['share']),
             row['text']) for row in data['causes']]
    return '%s\n\n%s' % (data['subject'], table(('cause', 'time', 'explanation'), rows,
                                                left=('cause', 'explanation')))


def adoption(data: Json) -> str:
    """What rebalance adopt will take over, or has."""
    lines = [] if data['campaign'] is None else [
        'campaign %d has begun; "rebalance status" shows the progress' % data['campaign']]
    lines.append(_pairs([
        ('upmaps to take over', data['pgs']),
        ('CRUSH moves', '%d shards, %s' % (data['shards'], bytes_text(data['bytes']))),
        ('primaries that move', data['primaries_moving']),
        ('upmaps of a balanced state', data['balancing_pgs']),
        ('upmaps left alone', data['left_out_pgs'])]))
    lines.append(table(('PG', 'returns to'), [
        (row['pgid'], ', '.join('osd.%d (from osd.%d)' % tuple(pair) for pair in row['pairs']))
        for row in data['taken'][:20]], left=('PG', 'returns to')))
    if data['left_out']:
        lines.append(table(('PG', 'why its upmap is left alone'), [
            (row['pgid'], row['reason']) for row in data['left_out'][:20]],
            left=('PG', 'why its upmap is left alone')))
    return '\n'.join(lines)


def importing(data: Json) -> str:
    """What rebalance import will move, or has begun to."""
    lines = [] if data['campaign'] is None else [
        'campaign %d has begun; "rebalance status" shows the progress' % data['campaign']]
    lines.append(_pairs([
        ('PGs to move', data['pgs']),
        ('shards to copy', '%d, %s' % (data['shards'], bytes_text(data['bytes']))),
        ('primaries that move', data['primaries_moving']),
        ('PGs whose mappings are in force', data['in_force_pgs']),
        ('PGs left out', data['left_out_pgs'])]))
    if data['left_out']:
        lines.append(table(('PG', 'why it is left out'), [
            (row['pgid'], row['reason']) for row in data['left_out'][:20]],
            left=('PG', 'why it is left out')))
    return '\n'.join(lines)


def plan(data: Json) -> str:
    if not data['pgs']:
        return ('%s remapped: run "rebalance pin" for a preview' % pgs_are(data['remapped'])
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


def mitigation(data: Json) -> str:
    columns = ('id', 'mitigation', 'state', 'since', 'why', 'found -> put')
    rows = []
    for row in data['rungs']:
        settings = ['%s%s: %s -> %s' % (each['what'], ' of ' + each['who'] if each['who'] else '',
                                        'not set' if each['found'] is None else each['found'],
                                        each['put']) for each in row['settings']]
        settings += [row['note']] if row['note'] else []
        rows.append(('-' if row['id'] is None else row['id'],
                     ' '.join([row['rung'], row['subject']]).strip(), row['state'],
                     time_text(row['since']), row['why'], '\n'.join(settings)))
    return 'mode: %s\n\n%s' % (data['mode'], table(columns, rows, left=columns[1:]))


def events(data: Json) -> str:
    if not data['events']:
        return 'no events'
    return table(('time', 'kind', 'what', 'why'), [
        (time_text(row['time']), row['kind'], row['what'], row['why'])
        for row in data['events']], left=('time', 'kind', 'what', 'why'))


def held(data: Json) -> str:
    if not data['held']:
        return 'nothing is borrowed'
    columns = ('what', 'found', 'put', 'since', 'restore by hand')
    return table(columns, [
        (row['what'], 'not set' if row['found'] is None else row['found'], row['put'],
         time_text(row['since']), row['restore']) for row in data['held']], left=columns)


def shutdown(data: Json) -> str:
    text = str(data['message'])
    return text if data['safe'] else text + '\n\n' + held(data)


def accepted(data: Json) -> str:
    return str(data['message'])


def _balanced(found: Optional[Json]) -> List[Tuple[str, str]]:
    """What target=balanced makes of the movement."""
    if found is None:
        return []
    return [('moved with target=balanced', '%d shards, %s; for the balance alone %d (limit of all '
             'movement %d)' % (found['shards'], bytes_text(found['bytes']), found['extra_shards'],
                               found['limit_shards'])),
            ('pins that stay as upmaps', str(found['kept']))]


def _effects(data: Json) -> List[Tuple[str, str]]:
    """The OSDs that are worst off, the time and the borrowed settings."""
    osds = data.get('osds', ())
    if not osds:
        return []
    crowded = max(osds, key=lambda row: row['pgs_peak'])
    rows = [('most PGs at the peak', 'osd.%d: %d (before %d, after %d, mon_max_pg_per_osd %d)' % (
        crowded['osd'], crowded['pgs_peak'], crowded['pgs_before'], crowded['pgs_after'],
        data['pg_limit']))]
    filled = [row for row in osds if row['fill_after'] is not None]
    if filled:
        fullest = max(filled, key=lambda row: row['fill_after'])
        rows.append(('fullest OSD', 'osd.%d: %.0f %% (before %.0f %%)' % (
            fullest['osd'], 100 * fullest['fill_after'], 100 * fullest['fill_before'])))
    return [*rows, ('estimated time', '%s (speed: %s)' % (eta_text(data), data['eta_basis'])),
            ('borrowed settings', ', '.join('%(what)s: %(put)s' % row for row in data['borrowed']))]


def drains(data: Json) -> str:
    """Drained OSDs and replacements, and what happens next with each."""
    if not data['drains']:
        return 'no drained OSDs'
    columns = ('OSD', 'host', 'phase', 'replace', 'weight before', 'PGs', 'fill', 'next')
    return table(columns, [
        (row['osd'], row['host'] or '-', row['phase'], 'yes' if row['replace'] else 'no',
         '%.5g' % row['weight_before'], '-' if row['pgs'] is None else row['pgs'],
         '-' if row['fill'] is None else '%.1f %%' % (100 * row['fill']), row['next'])
        for row in data['drains']], left=('host', 'phase', 'replace', 'next'))


def replacement(data: Json) -> str:
    """What `replace` has begun or would do: the drain, if there is one, and the OSDs."""
    return '\n\n'.join([*([order(data)] if 'weights' in data else []), drains(data)])


def saved_plans(data: Json) -> str:
    if not data['plans']:
        return 'no plans'
    columns = ('plan', 'saved', 'change', 'PGs', 'bytes', 'time', 'state', 'reason')
    return table(columns, [
        (row['plan'], time_text(row['saved']), row['change'], row['pgs'], bytes_text(row['bytes']),
         seconds_text(row['eta_seconds']), row['state'],
         row['refused'] or '; '.join(row['changed'][:3]) or '-')
        for row in data['plans']], left=('plan', 'saved', 'change', 'state', 'reason'))


def saved_plan(data: Json) -> str:
    """One plan, with what it does to each OSD."""
    lines = ['plan %s, saved %s: %s (%s)' % (data['plan'], time_text(data['saved']),
                                             data['change'], data['state']),
             *('changed since: ' + text for text in data['changed'][:10]),
             '', order(data['preview'])]
    rows = [(row['osd'], row['pgs_before'], row['pgs_peak'], row['pgs_after'],
             *('-' if row[key] is None else '%.1f %%' % (100 * row[key])
               for key in ('fill_before', 'fill_after')))
            for row in data['preview'].get('osds', ())[:50]]
    columns = ('OSD', 'PGs before', 'at the peak', 'after', 'fill before', 'fill after')
    return '\n'.join([*lines, *(['', table(columns, rows)] if rows else []), '',
                      'carry it out with "ceph perfguard rebalance approve %s"' % data['plan']])


def approved(data: Json) -> str:
    if data['queued_behind'] is None:
        return order(data)
    return ('plan %s is queued: it begins once campaign %d is DONE, unless the cluster has changed '
            'by then' % (data['plan'], data['queued_behind']))


def _peering_and_copying(data: Json) -> List[str]:
    return [data['fast_peering']['text'], data['copying']['text']]


def _rule(data: Optional[Json]) -> List[Tuple[str, str]]:
    if data is None:
        return []
    rows = [('CRUSH rule of pool %s' % data['pool'], '%s -> %s' % (data['from'], data['to']))]
    if data['via']:
        rows.append(('intermediate CRUSH rule', '%s (%d PGs to pin)' % (data['via'], data['pins'])))
    return rows


def _pg_num(data: Optional[Json]) -> List[Tuple[str, str]]:
    if data is None:
        return []
    return [('pg_num of pool %s' % data['pool'], '%(from)d -> %(to)d' % data)]


def order(data: Json) -> str:
    """What an expansion, a drain or another change of CRUSH will do, or has begun to."""
    lines = []
    left_out = ['osd.%(osd)d is left out: it %(reason)s (add it with --osds)' % row
                for row in data.get('left_out', ())]
    if data['campaign'] is not None:
        lines.append('campaign %d has begun; "rebalance status" shows the progress'
                     % data['campaign'])
    if data['waits_for_change']:
        lines.append('no new OSD of CRUSH weight 0 is up and in: change CRUSH now; perfguard pins '
                     'and releases the PGs that the change remaps'
                     if data['campaign'] is not None else
                     'no new OSD of CRUSH weight 0 is up and in: nothing to preview')
        return '\n'.join([*lines, *left_out])
    rows = [('%s to CRUSH weight' % osd, '%.5g' % weight)
            for osd, weight in list(data['weights'].items())[:20]]
    if len(data['weights']) > 20:
        rows.append(('...', '%d OSDs in total' % len(data['weights'])))
    if not data['one_epoch']:
        lines.append('PGs will be remapped first and pinned afterwards: ' + data['reason'])
        return '\n'.join([*lines, *([_pairs(rows)] if rows else []), *left_out,
                          *_peering_and_copying(data)])
    moves_first = (data.get('rule') or data.get('pg_num') or {}).get('moves_first')
    rows += [*_rule(data.get('rule')), *_pg_num(data.get('pg_num')),
             ('PGs to move first', str(data['pgs'])) if moves_first else
             ('PGs to pin', '%d (pg_upmap_items %d, pg_upmap %d)' % (
                 data['pgs'], data['pgs'] - data['vectors'], data['vectors'])),
             ('CRUSH moves', '%d shards, %s' % (data['shards'], bytes_text(data['bytes']))),
             *_balanced(data.get('balanced')),
             ('primaries that move', data['primaries_moving'])]
    rows += _effects(data)
    if data.get('pins_removed'):
        rows.append(('pins to remove', data['pins_removed']))
    lines += [_pairs(rows), *left_out]
    if data['unpinnable']:
        lines += ['%s cannot be pinned and will be remapped:' % pgs(data['unpinnable_pgs']),
                  table(('PG', 'why it cannot be pinned'),
                        [(row['pgid'], row['reason']) for row in data['unpinnable'][:20]],
                        left=('PG', 'why it cannot be pinned'))]
    return '\n'.join([*lines, *_peering_and_copying(data)])
