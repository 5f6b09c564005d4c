# SPDX-License-Identifier: LGPL-2.1-or-later
"""What commands tell people of probes, beside the table of one run (show.py)."""
from typing import Any, Mapping

from ..render import table
from . import show

Json = Mapping[str, Any]


def started(data: Json) -> str:
    if data['dry_run']:
        return show.preview(data)
    return 'probe %d has begun; "perfguard probe show %d" shows what it finds' % (
        data['id'], data['id'])


def message(data: Json) -> str:
    return str(data['message'])


def details(data: Json) -> str:
    lines = [show.show(data)]
    if data['expected']:
        lines += ['', *('%s: %s (%s)' % (each['label'], each['verdict'], each['why'])
                        for each in data['expected'])]
    if data['osds']:
        lines += ['', _ranks(data)]
    if data['conditions']:
        lines += ['', 'disturbed by: ' + ', '.join(data['conditions'])]
    if data['findings']:
        lines += ['', *('! ' + text for text in data['findings'])]
    return '\n'.join(lines)


def _ranks(data: Json) -> str:
    """The slowest first."""
    rows = [('osd.%d' % each['osd'], each['host'], each['device_class'], each['job'],
             each['direction'], '%.0f' % each['iops'],
             '%.3f' % (each['latency_ns'] / 1e6) if each['latency_ns'] else '-',
             '-' if each['ratio'] is None else '%.2f' % each['ratio'],
             'slow' if each['outlier'] else '')
            for each in sorted(data['osds'], key=lambda row: row['ratio'] or 1.0)]
    return table(('OSD', 'host', 'class', 'job', '', 'IOPS', 'ms', 'of its peers', 'remarks'),
                 rows, left=('OSD', 'host', 'class', 'job', '', 'remarks'))


def comparison(data: Json) -> str:
    rows = [(line['job'], line['verdict'], line['why']) for line in data['lines']]
    return '\n'.join([
        'probe %d against probe %d: %s' % (data['after'], data['before'], data['verdict']), '',
        table(('job', 'verdict', 'why'), rows, left=('job', 'verdict', 'why')),
        *('- ' + note for note in data['notes'])])


def baselines(data: Json) -> str:
    if not data['baselines']:
        return 'there are none: "probe baseline set <id>" makes a probe one'
    rows = [(each['id'], each['target'], each['profile'],
             '; '.join('probe %d is slower: %s' % (slow['probe'], slow['why'][0])
                       for slow in each['slower'])) for each in data['baselines']]
    return table(('probe', 'target', 'profile', 'remarks'), rows,
                 left=('target', 'profile', 'remarks'))


def schedules(data: Json) -> str:
    if not data['schedules']:
        return 'there are none: "probe schedule add <name> ..." makes one'
    rows = [(each['name'], each['begin_time'], each['end_time'], each['begin_weekday'],
             each['end_weekday'], each['every_days'],
             ' '.join('%s=%s' % word for word in sorted(each['probe'].items())), each['refused'])
            for each in data['schedules']]
    return table(('name', 'from', 'to', 'from day', 'to day', 'every', 'probe', 'remarks'), rows,
                 left=('name', 'probe', 'remarks'))
