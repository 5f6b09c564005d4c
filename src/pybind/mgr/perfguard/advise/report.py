# SPDX-License-Identifier: LGPL-2.1-or-later
"""The advice as the data that commands print, and as text for people."""
import textwrap
from typing import Any, Dict, List

from ..tables import plural, time_text
from .types import Advice, Finding

Json = Dict[str, Any]

#: Columns of a terminal.
WIDTH = 100


def to_json(advice: Advice) -> Json:
    return {'time': advice.time, 'remarks': list(advice.remarks),
            'findings': [_finding(each) for each in advice.findings if not each.muted],
            'muted': sorted(advice.muted)}


def _finding(finding: Finding) -> Json:
    rule = finding.rule
    return {'code': rule.code, 'severity': rule.severity.value, 'seen': finding.seen,
            'why': rule.why, 'fix': finding.fix, 'source': rule.source}


def plain(data: Json) -> str:
    lines: List[str] = []
    for each in data['findings']:
        lines += ['%s (%s)' % (each['code'], each['severity']),
                  *_wrapped('seen', each['seen']), *_wrapped('why', each['why']),
                  *_wrapped('fix', each['fix']), *_wrapped('source', each['source']), '']
    count = len(data['findings'])
    lines.append('%s, as of %s' % (
        'no findings' if not count else plural(count, 'finding'), time_text(data['time']))
        if data['time'] else
        'the cluster has not been examined yet; "perfguard advise --refresh" examines it now')
    if data['muted']:
        lines.append('muted: ' + ', '.join(data['muted']))
    return '\n'.join([*lines, *('- ' + remark for remark in data['remarks'])])


def _wrapped(label: str, text: str) -> List[str]:
    head = '  %-8s' % (label + ':')
    return textwrap.wrap(text, WIDTH, initial_indent=head, subsequent_indent=' ' * len(head),
                         break_long_words=False, break_on_hyphens=False)
