# SPDX-License-Identifier: LGPL-2.1-or-later
"""The references in the manual that are generated: from the tables of the code.

    python3 -m qa.lib.reference          rewrites them

Each stands between two comments, ".. BEGIN generated: NAME" and ".. END generated".
"""
import inspect
import re
import sys
import textwrap
from functools import partial
from pathlib import Path
from typing import Any, Callable, Dict, Iterable, List, Mapping, Sequence, Tuple

from perfguard.advise.report import Severity
from perfguard.advise.rules import RULES
from perfguard.metrics.catalogue import CATALOGUE, HEALTH_CHECKS, MEASURED, OSD_LABELS, POOL
from perfguard.options import ADVANCED, BASIC, DEV, OPTIONS
from perfguard.probe.jobs import SUPPORTED
from perfguard.rebalance.states import STATES
from perfguard.tests.fakes import mgr_module

CHECKOUT = Path(__file__).resolve().parents[2]
#: The directory of the manual's pages.
MANUAL = CHECKOUT / 'doc' / 'mgr' / 'perfguard'
#: The notes for reviewers, which have the table of phases.
NOTES = CHECKOUT / 'doc' / 'dev' / 'perfguard.rst'
ERRORS = CHECKOUT / 'src' / 'pybind' / 'mgr' / 'perfguard' / 'errors.py'
BLOCK = re.compile(r'(\.\. BEGIN generated: (\w+)\n)(.*?)(\.\. END generated\n)', re.DOTALL)
#: Columns of the manual's source.
WIDTH = 100

Row = Tuple[str, ...]

#: Optional arguments that operators give without their names, unlike other optional ones.
UNNAMED = {'change', 'what', 'duration', 'pg_num', 'count', 'profile', 'run', 'campaign'}
#: Second spellings of commands.
ALIASES = {'perfguard campaign': 'perfguard campaign status',
           'perfguard probe baseline ls': 'perfguard probe ls',
           'perfguard pg-num': 'perfguard pg_num'}
#: Labels that the manual abbreviates.
LABELS = {POOL: '*pool*', OSD_LABELS: '*osd*', MEASURED: '*measurement*'}


def pages() -> Dict[str, str]:
    """Name -> text of each page of the manual, the first one first."""
    paths = sorted(MANUAL.glob('*.rst'), key=lambda path: (path.stem != 'index', path.stem))
    return {path.name: path.read_text() for path in paths}


def manual() -> str:
    """All pages."""
    return '\n'.join(pages().values())


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
    text = str(spec['desc'])
    choices = ['``%s``' % choice for choice in spec.get('enum_allowed', ())]
    return '%s (%s)' % (text, ', '.join(choices)) if choices else text


def _options(level: int) -> str:
    return table(('option', 'default', 'meaning'), [
        ('``%s``' % spec['name'], _literal(spec['default']), _escaped(_meaning(spec)))
        for spec in OPTIONS if spec['level'] == level])


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


def _load_commands() -> None:
    if not mgr_module.COMMANDS:
        sys.modules.setdefault('mgr_module', mgr_module.made())
        import perfguard.cli  # noqa: F401


def unknown_arguments(command: str, given: Iterable[str]) -> List[str]:
    """Arguments that a command of perfguard does not have: the mgr ignores them, and a test that
    gives one may pass without what it is about."""
    _load_commands()
    _, handler = mgr_module.COMMANDS['perfguard ' + command]
    # Without what distinguishes them from keywords of Python, as "await_".
    known = {name.rstrip('_') for name in inspect.signature(handler).parameters}
    return sorted(set(given) - known - {'format'})


def commands() -> str:
    _load_commands()
    return table(('command', 'access', 'meaning'), [
        (_written(prefix, inspect.signature(handler)), permission, _help(handler))
        for prefix, (permission, handler) in sorted(described().items())])


def described() -> Dict[str, Tuple[str, Callable[..., Any]]]:
    """Prefix -> access and handler of each command."""
    return {prefix: command for prefix, command in mgr_module.COMMANDS.items()
            if prefix not in ALIASES}


def _written(prefix: str, signature: inspect.Signature) -> str:
    words = [prefix]
    for name, parameter in signature.parameters.items():
        several = '...' if 'List' in str(parameter.annotation) else ''
        if name in ('self', 'format', 'inbuf') or name not in UNNAMED and not _required(parameter):
            continue
        word = '<%s>%s' % (name, several)
        words.append(word if _required(parameter) else '[%s]' % word)
    return '``%s``' % ' '.join(words)[len('perfguard '):]


def _required(parameter: inspect.Parameter) -> bool:
    return parameter.default is inspect.Parameter.empty


def _help(handler: Callable[..., Any]) -> str:
    """The text that Ceph shows, and the options."""
    text = (handler.__doc__ or '').splitlines()[0].rstrip('.')
    options = ['-i' if name == 'inbuf' else '--' + name.replace('_', '-')
               for name, parameter in inspect.signature(handler).parameters.items()
               if name not in ('self', 'format', *UNNAMED) and not _required(parameter)]
    jobs = {'--' + name.replace('_', '-') for name in SUPPORTED}
    shown = ['``%s``' % option for option in options if option not in jobs]
    if jobs & set(options):
        shown.append('options of jobs')
    return _escaped(text) + (': ' + ', '.join(shown) if shown else '')


def reasons() -> str:
    """From the comments above the codes."""
    rows = [(code, ' '.join(line.strip()[3:] for line in comment.splitlines()))
            for comment, code in re.findall(r"^((?: {4}#: .+\n)*) {4}([A-Z_]+) = '\2'$",
                                            ERRORS.read_text(), re.MULTILINE)]
    return table(('code', 'meaning'), [('``%s``' % code, text) for code, text in rows])


def metrics() -> str:
    """Names and labels; what each means is a line of HELP of the endpoint."""
    return table(('metric', 'labels'), [
        ('``%s``' % metric.name, _labels(metric.labels) or '-') for metric in CATALOGUE])


def _labels(labels: Row) -> str:
    """Begins with the longest abbreviation."""
    for group, name in LABELS.items():
        if labels[:len(group)] == group:
            return ', '.join([name, *('``%s``' % label for label in labels[len(group):])])
    return ', '.join('``%s``' % label for label in labels)


def advice() -> str:
    return table(('severity', 'codes'), [
        (severity.value, ', '.join('``%s``' % code for code in sorted(
            rule.code for rule in RULES if rule.severity is severity)))
        for severity in Severity])


def health() -> str:
    def paragraph(text: str) -> str:
        return textwrap.fill(text, WIDTH, break_long_words=False, break_on_hyphens=False)

    # Sections and labels, to which alerts and other pages link.
    return '\n\n'.join('.. _%s:\n\n%s\n%s\n\n%s\n\n%s' % (
        check.code.lower().replace('_', '-'), check.code, '~' * len(check.code),
        paragraph(check.meaning), paragraph(check.action)) for check in HEALTH_CHECKS) + '\n'


TABLES: Dict[str, Callable[[], str]] = {
    'phases': phases, 'commands': commands, 'basic_options': partial(_options, BASIC),
    'advanced_options': partial(_options, ADVANCED), 'dev_options': partial(_options, DEV),
    'reasons': reasons, 'metrics': metrics, 'advice': advice, 'health': health}


def current(page: str) -> str:
    """The page with every table as the code has it."""
    return BLOCK.sub(lambda found: '%s\n%s\n%s' % (
        found.group(1), TABLES[found.group(2)](), found.group(4)), page)


def generated(page: str) -> List[str]:
    """Names of the tables on the page."""
    return [found.group(2) for found in BLOCK.finditer(page)]


def main() -> int:
    for path in (NOTES, *(MANUAL / name for name in pages())):
        path.write_text(current(path.read_text()))
    return 0


if __name__ == '__main__':
    sys.exit(main())
