# SPDX-License-Identifier: LGPL-2.1-or-later
"""The references in the manual that are generated: from the tables of the code, and the alerts.

    python3 -m qa.lib.reference          rewrites them in doc/mgr/perfguard/index.rst

Each stands between two comments, ".. BEGIN generated: NAME" and ".. END generated".
"""
import re
import sys
import textwrap
from pathlib import Path
from typing import Any, Callable, Dict, List, Mapping, Sequence, Tuple

from perfguard.advise.rules import RULES
from perfguard.metrics.catalogue import HEALTH_CHECKS
from perfguard.options import OPTIONS
from perfguard.rebalance.states import STATES

CHECKOUT = Path(__file__).resolve().parents[2]
MANUAL = CHECKOUT / 'doc' / 'mgr' / 'perfguard' / 'index.rst'
ALERTS = CHECKOUT / 'monitoring' / 'perfguard_alerts.yml'
BLOCK = re.compile(r'(\.\. BEGIN generated: (\w+)\n)(.*?)(\.\. END generated\n)', re.DOTALL)
#: Columns of the manual's source.
WIDTH = 100

Row = Tuple[str, ...]


def table(heads: Row, rows: Sequence[Row]) -> str:
    """A simple table; its last column is wrapped."""
    widths = [max(len(row[column]) for row in (heads, *rows)) for column in range(len(heads) - 1)]
    widths.append(WIDTH - sum(widths) - 2 * len(widths))
    rule = '  '.join('=' * width for width in widths)
    lines = [rule, *_row(heads, widths), rule]
    for row in rows:
        lines += _row(row, widths)
    return '\n'.join([*lines, rule, ''])


def _row(row: Row, widths: Sequence[int]) -> List[str]:
    last = textwrap.wrap(row[-1], widths[-1], break_long_words=False, break_on_hyphens=False)
    first = '  '.join(cell.ljust(width) for cell, width in zip(row[:-1], widths))
    blank = ' ' * len(first)
    return [(first if not number else blank) + '  ' + text for number, text in enumerate(last)]


def _literal(value: object) -> str:
    text = '%g' % value if isinstance(value, float) else str(value)
    # A leading colon would begin a role.
    return '``%s``' % text if not text[:1].isalnum() and text else text or '-'


def _meaning(spec: Mapping[str, Any]) -> str:
    text = spec['desc']
    choices = ['``%s``' % choice for choice in spec.get('enum_allowed', ())]
    if choices and not any(choice in text for choice in choices):
        text += ' (%s)' % ', '.join(choices)
    if spec['type'] in ('float', 'uint', 'int', 'secs') and 'min' in spec:
        text += ' (%s to %s)' % (_literal(spec['min']), _literal(spec['max']))
    return text + ('. ' + spec['long_desc'] if spec.get('long_desc') else '')


def options() -> str:
    return table(('option', 'default', 'meaning'), [
        ('``%s``' % spec['name'], _literal(spec['default']),
         _escaped(_meaning(spec))) for spec in OPTIONS])


def _escaped(text: str) -> str:
    """What rst would take for markup; text between double backquotes is meant to be."""
    parts = text.split('``')
    parts[::2] = [re.sub(r'([*|<>_])', r'\\\1', part)
                  if '*' in part or '|' in part else part for part in parts[::2]]
    return '``'.join(parts)


def phases() -> str:
    rows: List[Row] = []
    for phase, state in STATES.items():
        ways = [(after, when) for after, when in state.exits.items()]
        for after in dict.fromkeys(state.verbs.values()):
            verbs = [verb for verb, where in state.verbs.items() if where is after]
            if after is not phase:
                ways.append((after, 'command %s' % ' or '.join('``%s``' % verb for verb in verbs)))
        rows += [('' if number else '``%s``' % phase.value, '``%s``' % after.value, when)
                 for number, (after, when) in enumerate(ways)]
    borrowed = [('``%s``' % phase.value, state.borrows) for phase, state in STATES.items()]
    return table(('phase', 'next phase', 'when'), rows) + '\n' + table(
        ('phase', 'borrowed settings'), borrowed)


def advice() -> str:
    return table(('code', 'severity', 'reason'), [
        ('``%s``' % rule.code, rule.severity.value, '%s *%s*' % (rule.why, rule.source))
        for rule in sorted(RULES, key=lambda rule: rule.code)])


def health() -> str:
    def paragraph(text: str) -> str:
        return textwrap.fill(text, WIDTH, break_long_words=False, break_on_hyphens=False)

    # Sections, to which alerts link.
    return '\n\n'.join('%s\n%s\n\n%s\n\n%s' % (check.code, '~' * len(check.code),
                                               paragraph(check.meaning), paragraph(check.action))
                       for check in HEALTH_CHECKS) + '\n'


def alert_rules(text: str) -> Dict[str, str]:
    """Alert -> the text of its rule."""
    parts = re.split(r'^ +- alert: (\w+)$', text, flags=re.MULTILINE)[1:]
    return dict(zip(parts[::2], parts[1::2]))


def alerts() -> str:
    rows = []
    for name, rule in alert_rules(ALERTS.read_text()).items():
        lasting = re.search(r'^ {8}for: (\w+)$', rule, re.MULTILINE)
        severity = re.search(r'severity: (\w+)', rule)
        assert severity is not None, name
        rows.append(('``%s``' % name, severity.group(1), lasting.group(1) if lasting else '0m',
                     _summary(rule)))
    return table(('alert', 'severity', 'for', 'summary'), rows)


def _summary(rule: str) -> str:
    """Labels of the alert in angle brackets: <ceph_daemon>."""
    found = re.search(r'^ {10}summary: (?:>-\n)?(.*?)\n {10}\w+:', rule, re.MULTILINE | re.DOTALL)
    assert found is not None, rule
    text = ' '.join(found.group(1).split()).strip('"')
    # The plural stands for both forms.
    text = re.sub(r'{{ *if [^}]*}}[^{]*{{ *else *}}(.*?){{ *end *}}', r'\1', text)
    return re.sub(r'{{ *\$(?:labels\.)?(\w+)[^}]*}}', r'<\1>', text)


TABLES: Dict[str, Callable[[], str]] = {
    'phases': phases, 'options': options, 'advice': advice, 'health': health, 'alerts': alerts}


def current(manual: str) -> str:
    """The manual with every table as the code has it."""
    return BLOCK.sub(lambda found: '%s\n%s\n%s' % (
        found.group(1), TABLES[found.group(2)](), found.group(4)), manual)


def generated(manual: str) -> List[str]:
    """Names of the tables in the manual."""
    return [found.group(2) for found in BLOCK.finditer(manual)]


def main() -> int:
    MANUAL.write_text(current(MANUAL.read_text()))
    return 0


if __name__ == '__main__':
    sys.exit(main())
