# SPDX-License-Identifier: LGPL-2.1-or-later
"""Campaigns, orders and plans as tables for people."""
import errno
from typing import Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from ..errors import Code, Refused, texts
from ..tables import Json, pairs, reason_lines, table
from ..text import bytes_text, interval_text, ms_text, pgs, pgs_are, plural, seconds_text, time_text
from ..upmap.balance import BalanceLimit
from ..upmap.pins import UnpinnableCode
from .bill import KINDS
from .orders import AWAIT, left_out_text
from .report import WHOLE_RATIO, CampaignStatus
from .types import Phase

#: Number of limits in `campaign status`; those with a smaller share of the time are "other".
MOST_SHARES, LEAST_LIMIT_SHARE = 4, 0.01
#: Number of phases, and of limits, of a bill.
MOST_TIMES = 5


def rebalance_status(data: Json) -> str:
    """The state of the campaign as text."""
    if data['id'] is None:
        return '\n'.join(['no campaign', *reason_lines(data)])
    rows = [
        ('campaign', '%d, begun %s' % (data['id'], time_text(data['started']))),
        ('phase', data['phase'] + (' (paused)' if data['paused'] else '')),
        ('PGs', '[%-30s] %d of %d released, %d in flight (at most %d), %d pinned' % (
            '=' * int(30 * data['done_ratio']), data['released'], data['moving'],
            data['in_flight'], data['limit'], data['pinned'])),
        ('bytes', '%s of %s' % (bytes_text(data['bytes_done']), bytes_text(data['bytes_total']))),
        ('ended', time_text(data['ended'])) if data['ended'] else ('time left', eta_text(data)),
        ('OSDMap epochs', data['epochs'])]
    if data.get('tranches'):
        rows.append(('tranche', '%(tranche)d of about %(tranches)d' % data))
    if data['kept']:
        rows.append(('kept as upmaps', data['kept']))
    if data.get('paused_until'):
        rows.append(('pause ends', time_text(data['paused_until'])))
    if data.get('settings'):
        rows.append(('settings', ', '.join('%s=%s' % item for item in sorted(
            data['settings'].items()))))
    if data['limit_shares']:
        rows.append(('time by limit', _shares_text(data['limit_shares'])))
    text = [pairs(rows), *reason_lines(data)]
    if data['unpinnable']:
        text += ['', _reason_table(data['unpinnable'], 'why it cannot be pinned')]
        if len(data['unpinnable']) > 20:
            text.append('... and %d more' % (len(data['unpinnable']) - 20))
    return '\n'.join(text)


def _shares_text(shares: Mapping[str, float]) -> str:
    """The main limits, as in "LATENCY 61 %, CAP_PGS 30 %, other 9 %"; "why campaign" has all."""
    ordered = sorted(shares, key=lambda code: (-shares[code], code))[:MOST_SHARES]
    parts = [(code, shares[code]) for code in ordered if shares[code] >= LEAST_LIMIT_SHARE]
    others = sum(shares.values()) - sum(share for _, share in parts)
    if others >= LEAST_LIMIT_SHARE:
        parts.append(('other', others))
    return ', '.join('%s %.0f %%' % (code, 100.0 * share) for code, share in parts)


def watched(data: Json) -> str:
    """One line of `campaign watch`."""
    if data['id'] is None:
        return ': '.join(['no campaign', *data['reasons'][:1]])
    parts = ['campaign %d: %s%s' % (data['id'], data['phase'], ' (paused)' if data['paused']
                                    else ''),
             '%d of %s released' % (data['released'], pgs(data['moving'])),
             '%d in flight' % data['in_flight'],
             '%s of %s' % (bytes_text(data['bytes_done']), bytes_text(data['bytes_total']))]
    if data['eta_seconds'] is not None:
        parts.append('%s left' % eta_text(data))
    return ', '.join(parts) + (': ' + data['reasons'][0] if data['reasons'] else '')


def eta_text(data: Json) -> str:
    """The time left, as in "20 min (15 min to 31 min)"."""
    return interval_text(*(data[key] for key in (
        'eta_seconds', 'eta_low_seconds', 'eta_high_seconds')))


def adoption(data: Json) -> str:
    """The result of "adopt" as text."""
    lines = [*_begun(data), pairs([
        ('upmaps to take over', data['pgs']),
        ('CRUSH moves', '%s, %s' % (plural(data['shards'], 'shard'), bytes_text(data['bytes']))),
        ('primaries that move', data['primaries_moving']),
        ('upmaps of a balanced state', data['balancing_pgs']),
        ('upmaps left alone', data['left_out_pgs'])]), *_remarks(data)]
    # All OSDs: one that was emptied by hand must not be overlooked among many new ones.
    lines.append(_load_table([row for row in data['osds'] if row['pgs_in']]))
    lines.append(table(('PG', 'returns to'), [
        (row['pgid'], ', '.join('osd.%d (from osd.%d)' % tuple(pair) for pair in row['pairs']))
        for row in data['taken'][:20]], left=('PG', 'returns to')))
    if data['left_out']:
        lines.append(_reason_table(data['left_out'], 'why its upmap is left alone'))
    return '\n'.join(lines)


def importing(data: Json) -> str:
    """The result of "import" as text."""
    lines = [*_begun(data), pairs([
        ('PGs to move', data['pgs']),
        ('shards to copy', '%d, %s' % (data['shards'], bytes_text(data['bytes']))),
        ('primaries that move', data['primaries_moving']),
        ('PGs whose mappings are in force', data['in_force_pgs']),
        ('PGs left out', data['left_out_pgs'])]), *_remarks(data)]
    if data['left_out']:
        lines.append(_reason_table(data['left_out'], 'why it is left out'))
    return '\n'.join(lines)


def _begun(data: Json) -> List[str]:
    """Text on the campaign of an order, except for a preview."""
    what = 'is being rolled back' if data.get('verb') == 'rollback' else 'has begun'
    return [] if data['campaign'] is None else [
        'campaign %d %s; "campaign status" shows the progress' % (data['campaign'], what)]


def _reason_table(rows: Sequence[Json], title: str) -> str:
    """PGs with the reason for each."""
    return table(('PG', title), [(row['pgid'], row['reason']) for row in rows[:20]],
                 left=('PG', title))


def release_preview(data: Json) -> str:
    """What a release of all pins moves, as text."""
    if not data['pgs']:
        remapped = data['remapped'] or sum(
            row['code'] != UnpinnableCode.INCOMPLETE.value for row in data['unpinnable'])
        return ('%s remapped: run "campaign pin" for a preview' % pgs_are(remapped)
                if remapped else 'nothing to move')
    rows = [('PGs to move', data['pgs']), ('shards to copy', data['shards']),
            ('bytes to copy', bytes_text(data['bytes'])),
            ('primaries that move', data['primaries_moving']),
            ('estimated time', '%s (speed %s)' % (seconds_text(data['estimated_seconds']),
                                                  data['estimate_basis']))]
    if data['remapped']:
        rows.append(('not pinned yet', data['remapped']))
    if data['unpinnable']:
        rows.append(('cannot be pinned', len(data['unpinnable'])))
    return '\n'.join([pairs(rows), '', _load_table(data['osds'])])


def _load_table(osds: Sequence[Json]) -> str:
    """PGs and bytes to and from OSDs."""
    return table(('OSD', 'PGs in', 'bytes in', 'PGs out', 'bytes out'), [
        (row['osd'], row['pgs_in'], bytes_text(row['bytes_in']), row['pgs_out'],
         bytes_text(row['bytes_out'])) for row in osds])


def history(data: Json) -> str:
    """The campaigns as a table."""
    if not data['campaigns']:
        return 'no campaigns'
    columns = ('id', 'phase', 'started', 'ended', 'PGs', 'released', 'kept', 'bytes', 'epochs')
    return table(columns, [
        (row['id'], row['phase'], time_text(row['started']), time_text(row['ended']),
         row['total'], row['released'], row['kept'], bytes_text(row['bytes_done']), row['epochs'])
        for row in data['campaigns']], left=('phase', 'started', 'ended'))


def campaign(data: Json) -> str:
    """A campaign that has ended, as text. `data`: a row of report.summary, with its bill (what it
    has moved and cost)."""
    # The number of unpinnable PGs is for other formats only.
    rows = [(key.replace('_', ' '), data[key]) for key in data
            if key not in ('started', 'ended', 'bytes_done', 'unpinnable', 'bill')]
    rows += [('started', time_text(data['started'])), ('ended', time_text(data['ended'])),
             ('bytes done', bytes_text(data['bytes_done']))]
    if data.get('bill'):  # campaigns of earlier versions have none
        rows += _bill(data['bill'])
    return pairs(rows)


def shown(data: Json) -> str:
    """The campaign that is active, or the last one, with its bill."""
    return '\n'.join([rebalance_status(data), '', pairs(_bill(data['bill']))])


def _bill(data: Json) -> List[Tuple[str, str]]:
    """Rows on what a campaign has moved and cost."""
    # Without the last letter, a kind ("reads") is the prefix of the keys of its latencies.
    return [('bytes moved', _moved_text(data)),
            ('time by phase', _times_text(data['phase_seconds'])),
            ('time by limit', _times_text(data['limit_seconds'])),
            *(('latency of ' + kind, _latency_text(data, kind[:-1])) for kind in KINDS),
            ('operations over 100 ms', _slow_text(data, data['over_100_ms'])),
            ('operations over 1 s', _slow_text(data, data['over_1_s'])),
            ('borrowed settings', _settings_text(data['settings']))]


def _moved_text(data: Json) -> str:
    """The bytes that were moved, compared with those that the change required."""
    moved, required = data['bytes_moved'], data['bytes_required']
    if required is None:
        return bytes_text(moved) + '; what the change required is not known'
    text = '%s; the change required %s' % (bytes_text(moved), bytes_text(required))
    if data['rolled_back']:
        return text + ', and the way back what had moved of it'
    return text + (' (%.2f times)' % (moved / required) if required else '')


def _times_text(seconds: Mapping[str, float]) -> str:
    """The longest times, as in "RELEASING 5 min, PINNING 12 s, other 4 s"."""
    ordered = sorted((name for name in seconds if round(seconds[name])),
                     key=lambda name: (-seconds[name], name))
    parts = ['%s %s' % (name, seconds_text(seconds[name])) for name in ordered[:MOST_TIMES]]
    if len(ordered) > MOST_TIMES:
        parts.append('other %s' % seconds_text(sum(map(seconds.__getitem__, ordered[MOST_TIMES:]))))
    return ', '.join(parts) or 'none'


def _latency_text(data: Json, kind: str) -> str:
    """Latency, as in "p50 1.2 ms, p99 8.1 ms while PGs moved (before: 1.1 ms, 7.9 ms)"."""
    now, before = ([row['%s_%s_ms' % (kind, name)] for name in ('p50', 'p99')]
                   for row in (data['latency_while_moving'], data['latency_before']))
    # Both are [p50, p99]; None: not measured.
    text = 'not measured' if now[1] is None else 'p50 %s, p99 %s' % tuple(map(ms_text, now))
    return text + (' while PGs moved' if now[1] is not None else '') + (
        ' (before: not measured)' if before[1] is None
        else ' (before: %s, %s)' % tuple(map(ms_text, before)))


def _slow_text(data: Json, row: Json) -> str:
    """How many operations took longer than a threshold, and why. `row`: of this threshold."""
    counted = data['counted_ratio']
    if not counted:
        return 'not measured'
    text = '%d of %d' % (row['total'], round(counted * data['operations']))
    if row['total']:
        text += '; movement explains %d, and not %d; unknown %d' % (
            row['movement'], row['others'], row['unknown'])
    return text + ('' if counted >= WHOLE_RATIO else ' (%.0f %% of the operations were counted)' % (
        100 * counted))


def _settings_text(rows: Sequence[Json]) -> str:
    """The borrowed settings by what became of them ("borrowed", "given back", "changed by others":
    report.py), with the time for which they were borrowed in all."""
    texts_by_state: Dict[str, List[str]] = {}
    for row in rows:
        texts_by_state.setdefault(row['state'], []).append('%s (%s)' % (
            row['what'], seconds_text(row['seconds'])))
    return '; '.join('%s: %s' % (state, ', '.join(settings))
                     for state, settings in texts_by_state.items()) or 'none'


def _balanced(balanced: Optional[Json]) -> List[Tuple[str, str]]:
    """Rows on the movement with target=balanced; none for another target."""
    if balanced is None:
        return []
    rows = [('moved with target=balanced', '%s, %s; %d only for the balance (limit %d in total)' % (
        plural(balanced['shards'], 'shard'), bytes_text(balanced['bytes']),
        balanced['extra_shards'], balanced['limit_shards']))]
    if balanced['deviation'] is not None:
        # The preview of a plan that an earlier version has stored has no `limits`.
        limits = [BalanceLimit(code) for code in balanced.get(
            'limits', [BalanceLimit.MOVEMENT] if balanced['limited'] else [])]
        texts = [limit.text + (' %g' % balanced['max_extra_movement']
                               if limit is BalanceLimit.MOVEMENT else '') for limit in limits]
        rows.append(('OSDs end within', '%.2f PGs of their share of each pool (%s)' % (
            balanced['deviation'], ', '.join(['target_deviation %g' % balanced['target_deviation'],
                                              *('limited by ' + text for text in texts)]))))
    return [*rows, ('pins that stay as upmaps', str(balanced['kept']))]


def _effect_rows(data: Json) -> List[Tuple[str, str]]:
    """Rows on the most affected OSDs, the time and the borrowed settings of a change."""
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
    if data['clone_bytes']:
        rows.append(('shared by clones of snapshots', 'up to %s more are stored after the moves' %
                     bytes_text(data['clone_bytes'])))
    return [*rows, ('estimated time', '%s (speed: %s)' % (eta_text(data), data['eta_basis'])),
            ('borrowed settings', ', '.join('%(what)s: %(put)s' % row for row in data['borrowed']))]


#: Pools of which a text shows MAX AVAIL.
SHOWN_POOLS = 20


def capacity(data: Json) -> List[str]:
    """The space and the PGs of the OSDs of each class, and the room of pools, before and after."""
    change = data.get('capacity')
    if change is None:
        return []
    classes = [(row['class'] or '-', *map(_before_and_after, (
        [fill['osds'] for fill in fills],
        [_percent(fill['fill']) for fill in fills],
        [_percent(fill['fullest_fill']) for fill in fills],
        ['-' if fill['pgs_mean'] is None else '%(pgs_min)d/%(pgs_mean).1f/%(pgs_max)d' % fill
         for fill in fills])))
        for row in change['classes'] for fills in [(row['before'], row['after'])]]
    pools = [(row['pool'], *map(_before_and_after, (
        ['-' if row[key] is None else bytes_text(row[key])
         for key in ('max_avail_before', 'max_avail_after')],
        ['-' if row[key] is None else 'osd.%d' % row[key]
         for key in ('limited_by_before', 'limited_by_after')])))
        for row in change['pools'][:SHOWN_POOLS]]
    columns = ('class', 'OSDs', 'fill', 'fullest OSD', 'PGs per OSD (min/mean/max)')
    lines = ['', table(columns, classes, left=columns), '',
             table(('pool', 'MAX AVAIL', 'limited by'), pools,
                   left=('pool', 'MAX AVAIL', 'limited by'))]
    if len(change['pools']) > SHOWN_POOLS:
        lines.append('... and ' + plural(len(change['pools']) - SHOWN_POOLS, 'more pool'))
    return lines


def _before_and_after(texts_: Sequence[object]) -> str:
    before, after = map(str, texts_)
    return before if before == after else '%s -> %s' % (before, after)


def _percent(share: Optional[float]) -> str:
    return '-' if share is None else '%.1f %%' % (100 * share)


def drains(data: Json) -> str:
    """Drained OSDs and replacements, with the next step of each."""
    if not data['drains']:
        return 'no drained OSDs'
    columns = ('OSD', 'host', 'phase', 'replace', 'weight before', 'PGs', 'fill', 'next')
    return table(columns, [
        (row['osd'], row['host'] or '-', row['phase'], 'yes' if row['replace'] else 'no',
         '%.5g' % row['weight_before'], '-' if row['pgs'] is None else row['pgs'],
         '-' if row['fill'] is None else '%.1f %%' % (100 * row['fill']), row['next'])
        for row in data['drains']], left=('host', 'phase', 'replace', 'next'))


def replacement(data: Json) -> str:
    """The effects of `replace`: the drain, if there is one, and the OSDs."""
    would = 'would be ' if data['dry_run'] else ''
    rows = [{**row, 'phase': would + row['phase']} for row in data['drains']]
    return '\n\n'.join([*([order(data)] if 'weights' in data else []), drains({'drains': rows})])


def saved_plans(data: Json) -> str:
    """The saved plans as a table."""
    if not data['plans']:
        return 'no plans'
    columns = ('plan', 'saved', 'change', 'PGs', 'bytes', 'estimated time', 'accepted', 'state',
               'reason')
    return table(columns, [
        (row['plan'], time_text(row['saved']), row['change'], row['pgs'], bytes_text(row['bytes']),
         eta_text(row), ', '.join(row['accepted']) or '-', row['state'],
         row['refused'] or '; '.join(row['changed'][:3]) or '-')
        for row in data['plans']], left=('plan', 'saved', 'change', 'accepted', 'state', 'reason'))


def saved_plan(data: Json) -> str:
    """One plan, with its effect on each OSD."""
    lines = ['plan %s, saved %s: %s (%s)' % (data['plan'], time_text(data['saved']),
                                             data['change'], data['state']),
             *_accepted(data), *('changed since: ' + text for text in data['changed'][:10]),
             '', order(data['preview'])]
    rows = [(row['osd'], row['pgs_before'], row['pgs_peak'], row['pgs_after'],
             *('-' if row[key] is None else '%.1f %%' % (100 * row[key])
               for key in ('fill_before', 'fill_after')))
            for row in data['preview'].get('osds', ())[:50]]
    columns = ('OSD', 'PGs before', 'at the peak', 'after', 'fill before', 'fill after')
    return '\n'.join([*lines, *(['', table(columns, rows)] if rows else []), '',
                      'carry it out with "ceph perfguard plan approve %s"' % data['plan']])


def approved(data: Json) -> str:
    text = order(data) if data['queued_behind'] is None else (
        'plan %s %s: it begins once campaign %d is DONE, unless the cluster has changed by then' % (
            data['plan'], 'would be queued' if data['dry_run'] else 'is queued',
            data['queued_behind']))
    return '\n'.join([*_accepted(data), text])


def _accepted(data: Json) -> List[str]:
    """The accepted risks of a plan, if any."""
    return ['accepted risks: ' + ', '.join(data['accepted'])] if data['accepted'] else []


def _peering_and_copying(data: Json) -> List[str]:
    return [data['fast_peering']['text'], data['copying']['text']]


def _rule(data: Json) -> List[Tuple[str, str]]:
    """Rows on the change of the rule of a pool."""
    rows = [('CRUSH rule of pool %s' % data['pool'], '%s -> %s' % (data['from'], data['to']))]
    if data['via']:
        rows.append(('intermediate CRUSH rule', '%s (%s to pin)' % (
            data['via'], pgs(data['pins']))))
    if data['least_moves'] is not None:
        rows += _least_moves(data['least_moves'], 'new rule')
    return rows


def _least_moves(fewest: Json, what: str) -> List[Tuple[str, str]]:
    """Rows on how few shards a rule or a map moves with upmaps. `what`: "new rule" or "new map"."""
    return [('shards the %s places elsewhere' % what, str(fewest['shards_by_crush'])),
            ('shards it does not allow to stay', str(fewest['shards_required'])),
            ('further shards for the balance', '%d (ends within %.2f PGs of the share)' % (
                fewest['shards_extra'], fewest['deviation'])),
            ('PGs that upmaps keep in place', '%d (an OSD that goes out later moves two to '
             'four times its data: the mons drop upmaps that no longer fit)' % fewest['upmaps']),
            *(('with --upmaps-max %d' % trade['upmaps'], 'about %s' % plural(
                trade['shards'], 'shard')) for trade in fewest.get('trades', ()))]


def _map(data: Json) -> List[Tuple[str, str]]:
    """Rows on a CRUSH map that does not allow PGs to stay."""
    return [('PGs to move before the map is set', str(data['pgs'])),
            *_least_moves(data['least_moves'], 'new map')]


def _pg_num(data: Json) -> List[Tuple[str, str]]:
    return [('pg_num of pool %s' % data['pool'], '%(from)d -> %(to)d' % data)]


def _evened(data: Json) -> List[Tuple[str, str]]:
    """Rows on the end state of a balance."""
    loads = 'fill of the OSDs' if data['by'] == 'bytes' else 'PGs of the OSDs, of their share'
    rows = [('shards that --max-movement leaves out', str(
        data['wanted_shards'] - data['shards']))] if data['wanted_shards'] > data['shards'] else []
    rows += [(loads, '%.1f to %.1f %% (before %.1f to %.1f %%)' % tuple(
        100 * share for share in (*data['load_after'], *data['load_before']))),
             ('upmaps of the pools', '%d (before %d, of which %d change or are removed)' % (
                 data['upmaps_after'], data['upmaps_before'], data['upmaps_changed']))]
    for pool in data['pools'][:20]:
        text = 'OSDs end within %.2f PGs of their share (before %.2f)' % (
            pool['deviation_after'], pool['deviation_before'])
        if pool['max_avail_after'] is not None:
            text += '; MAX AVAIL %s, limited by osd.%d (before %s, osd.%d)' % (
                bytes_text(pool['max_avail_after']), pool['limited_by_after'],
                bytes_text(pool['max_avail_before']), pool['limited_by_before'])
        rows.append(('pool ' + pool['pool'], text))
    rows += [('pool ' + row['pool'], 'left out: ' + row['reason'])
             for row in data['left_out'][:20]]
    return rows


def order(data: Json) -> str:
    """The effects of an expansion, a drain or another change of CRUSH."""
    if data.get('verb') == AWAIT:
        return str(data['message'])
    remarks = ['left out: ' + left_out_text(row['osd'], row['reason'])
               for row in data.get('left_out', ())] + _remarks(data)
    lines = _begun(data)
    rows = [('%s to CRUSH weight' % osd, '%.5g' % weight)
            for osd, weight in list(data['weights'].items())[:20]]
    if len(data['weights']) > 20:
        rows.append(('...', '%s in total' % plural(len(data['weights']), 'OSD')))
    if not data['one_epoch']:
        lines.append('PGs will be remapped first and pinned afterwards: ' + data['reason'])
        return '\n'.join([*lines, *([pairs(rows)] if rows else []), *remarks,
                          *_peering_and_copying(data)])
    for key, rows_of in (('rule', _rule), ('crushmap', _map), ('pg_num', _pg_num)):
        rows += rows_of(data[key]) if data.get(key) else []
    rows += _order_moves(data)
    # A rollback has no tranches.
    if data.get('tranches', 1) > 1:
        rows.append(('tranches of the change', 'about %d, of at most %d pins (max_pins)' % (
            data['tranches'], data['pin_limit'])))
    rows += [('moved by weights, as the mons keep no upmaps', '%s of pool %s' % (pgs(number), pool))
             for pool, number in data.get('moved_by_weights', {}).items()]
    if data['bursts'] > 1:
        rows.append(('OSDMap epochs of the change', '%d or more' % data['bursts']))
    rows += _effect_rows(data)
    if data.get('pins_removed'):
        rows.append(('pins to remove', data['pins_removed']))
    lines.append(pairs(rows))
    if data['dry_run'] and data.get('capacity'):
        lines += [*capacity(data), '']
    lines += remarks
    if data['unpinnable']:
        lines += ['%s cannot be pinned and will be remapped:' % pgs(data['unpinnable_pgs']),
                  _reason_table(data['unpinnable'], 'why it cannot be pinned')]
    return '\n'.join([*lines, *_peering_and_copying(data)])


def _order_moves(data: Json) -> List[Tuple[str, str]]:
    """The rows of `order` on the PGs that it pins or moves, and on what is copied."""
    balance = data.get('balance')
    moves_first = (data.get('rule') or data.get('pg_num') or balance or {}).get('moves_first')
    if moves_first:
        first_row = 'PGs to move' if balance else 'PGs to move first', str(data['pgs'])
    else:
        first_row = 'PGs to pin', '%d (pg_upmap_items %d, pg_upmap %d)' % (
            data['pgs'], data['pgs'] - data['vectors'], data['vectors'])
    return [first_row,
            ('shards to copy' if balance else 'CRUSH moves', '%s, %s' % (
                plural(data['shards'], 'shard'), bytes_text(data['bytes']))),
            *(_evened(balance) if balance else []),
            *_balanced(data.get('balanced')),
            ('primaries that move', data['primaries_moving'])]


def growth(data: Json) -> str:
    """The effects of an expansion by hosts that are not there yet (--what-if), as text."""
    new = data['what_if']
    moved = data['balanced'] or data
    rows = [('new OSDs', '%d of %s in %s below %s%s, CRUSH weight %.5g' % (
        new['osds'], bytes_text(new['size_bytes']), plural(new['hosts'], 'host'),
        ', '.join(new['under']), ', class ' + new['device_class'] if new['device_class'] else '',
        new['weight'])),
            ('to copy', '%s, %s' % (plural(moved['shards'], 'shard'),
                                    bytes_text(moved['bytes']))),
            ('time to fill them', measured_text(data))]
    return '\n'.join([pairs(rows), *capacity(data), '', *_remarks(data)]).rstrip('\n')


def loss(data: Json) -> str:
    """The effects of a loss of OSDs as text."""
    rows = [('lost', '%s of %s, %s used' % (
        plural(len(data['osds']), 'OSD'), bytes_text(data['total_bytes']),
        bytes_text(data['used_bytes']))),
            ('to recover', '%s, %s; %s more move' % (
                plural(data['shards'], 'shard'), bytes_text(data['bytes']),
                bytes_text(data['moved_bytes']))),
            ('time to full redundancy', measured_text(data))]
    lines = [pairs(rows), *capacity(data), '']
    if data['pools']:
        columns = ('pool', 'PGs degraded', 'below min_size', 'unreadable', 'not placed again')
        lines += [table(columns, [
            (row['pool'], *(row[key] for key in (
                'degraded_pgs', 'inactive_pgs', 'unreadable_pgs', 'unplaced_pgs')))
            for row in data['pools'][:SHOWN_POOLS]], left=('pool',)), '']
    lines += ['%s would be above %s, such as osd.%d' % (
        plural(len(data[key]), 'OSD'), level, data[key][0])
              for key, level in (('full_osds', 'full'), ('nearfull_osds', 'nearfull'))
              if data[key]][:1]
    return '\n'.join([*lines, *_remarks(data)]).rstrip('\n')


def measured_text(data: Json) -> str:
    """A time that is not shown without a measured speed."""
    return 'not known: no campaign of this cluster has moved data yet' \
        if data['eta_seconds'] is None else '%s (speed: %s)' % (eta_text(data), data['eta_basis'])


def _remarks(data: Json) -> List[str]:
    """The warnings, and, of a preview, the risks that are not accepted."""
    risks = data.get('risks', ()) if data['campaign'] is None else ()
    return [*data.get('warnings', ()),
            *('refused without --accept %(code)s: %(text)s' % risk for risk in risks)]


# ---- Following a campaign: `campaign watch`
#
# A command of an mgr module cannot stream, and one that waits keeps other commands waiting (in
# Pacific those of all modules). The `ceph` tool itself repeats polling commands, such as `iostat`,
# every --period, until one returns an error; its exit code is 0 then, but for ETIMEDOUT.

#: The campaign has reached the phase. `ceph` prints the error, and its exit code is 0.
REACHED = -errno.ENODATA
#: It will not reach the phase. The only error that polling commands exit with (110).
MISSED = -errno.ETIMEDOUT
#: The order of phases; HOLDING is a part of RELEASING.
_ORDER = (Phase.IDLE, Phase.PREPARED, Phase.PINNING, Phase.PINNED, Phase.RELEASING,
          Phase.FINISHING, Phase.DONE)
_ENDS = (Phase.DONE, Phase.ABORTED)


class Ending(NamedTuple):
    retval: int
    text: str


def followed(status: CampaignStatus, until: Optional[str]) -> Optional[Ending]:
    """How "campaign watch" ends at this status; None: it continues. Raises Refused.

    `until`: the phase, or a later one, to wait for; None: the campaign's end.
    """
    goal = _phase(until)
    codes = {reason.code for reason in status.reasons}
    # The next campaign begins once the awaited OSDs have booted.
    if (not status.id or status.phase in _ENDS) and Code.AWAITS_OSDS in codes:
        return None
    if not status.id:
        # A requested campaign begins with the next turn of the loop.
        if Code.REQUESTED in codes:
            return None
        return Ending(MISSED, 'no campaign is active')
    who = 'campaign %d' % status.id
    if status.phase is goal or _is_past(status.phase, goal):
        return Ending(REACHED, '%s is %s: %d of %s released, %d kept as upmaps' % (
            who, status.phase.value, status.released, pgs(status.moving), status.kept))
    if status.phase in _ENDS:
        return Ending(MISSED, '; '.join(['%s is %s' % (who, status.phase.value),
                                         *texts(status.reasons)]))
    return None


def _phase(until: Optional[str]) -> Phase:
    """The phase for which "campaign watch" waits. Raises Refused."""
    if until is None:
        return Phase.DONE
    try:
        return Phase(until.upper())
    except ValueError:
        raise Refused(errno.EINVAL, 'unknown phase %.30r: must be one of %s' % (
            until, ', '.join(phase.value for phase in Phase))) from None


def _is_past(phase: Phase, goal: Phase) -> bool:
    phase = Phase.RELEASING if phase is Phase.HOLDING else phase
    return phase in _ORDER and goal in _ORDER and _ORDER.index(phase) > _ORDER.index(goal)
