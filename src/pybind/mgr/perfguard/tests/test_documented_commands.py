# SPDX-License-Identifier: LGPL-2.1-or-later
"""Every command of perfguard in README and manual exists, with the arguments that are given."""
import ast
import inspect
import re
import shlex
import types
from pathlib import Path
from typing import Iterator, List, Set, Tuple

import pytest

from perfguard.offline import command
from perfguard.options import OPTIONS
from perfguard.probe import client

from qa.lib import reference

from .fakes.mgr_module import COMMANDS

CHECKOUT = Path(__file__).resolve().parents[5]
README = CHECKOUT / 'README.md'
#: Ceph's own arguments of every command.
EVERYWHERE = {'--format'}


def lines() -> Iterator[Tuple[str, str]]:
    """File and line of each command in a block."""
    for block in re.findall(r'^```\n(.*?)^```$', README.read_text(), re.MULTILINE | re.DOTALL):
        yield from (('README.md', line) for line in block.splitlines())
    for name, text in reference.pages().items():
        for block in re.findall(r'\.\. prompt:: bash [#$]\n\n((?: +.+\n)+)', text):
            yield from ((name, line) for line in block.splitlines())
        for literal in re.findall(r'``(ceph (?:perfguard|config set mgr)[^`]+)``', text):
            yield name, ' '.join(literal.split())


def commands(prefix: str) -> List[Tuple[str, str]]:
    """Commands that begin so, without comments and what follows them in a shell."""
    return sorted({(name, found) for name, line in lines() for part in re.split(r' +# |&&|;', line)
                   for found in re.findall(r'\b%s .*' % prefix, part)})


GIVEN = commands('ceph(?: [-]p [0-9]+| --id [a-z]+)? perfguard')


def test_there_are_commands_to_check() -> None:
    assert {name for name, _ in GIVEN} >= {'README.md', 'index.rst', 'changes.rst', 'campaigns.rst'}
    assert len(GIVEN) > 60


@pytest.mark.parametrize('name,line', GIVEN)
def test_a_command_exists_with_its_arguments(
        mgr_stub: types.ModuleType, name: str, line: str) -> None:
    import perfguard.cli  # noqa: F401
    words = shlex.split(line[line.index('perfguard'):])
    prefix = next(' '.join(words[:count]) for count in range(len(words), 0, -1)
                  if ' '.join(words[:count]) in COMMANDS)
    parameters = inspect.signature(COMMANDS[prefix][1]).parameters
    options = {word.split('=')[0] for word in words if word.startswith('--')} - EVERYWHERE
    assert {option[2:].replace('-', '_') for option in options} <= parameters.keys(), (name, line)
    assert '-i' not in words or 'inbuf' in parameters, (name, line)
    # One command a line, as an operator copies it.
    assert '|' not in words, (name, line)


@pytest.mark.parametrize('name,line', commands('ceph config set mgr'))
def test_options_that_are_set_exist(name: str, line: str) -> None:
    option = re.search(r'mgr/perfguard/(?:<id>/)?(\w+)', line)
    assert option is None or option.group(1) in {spec['name'] for spec in OPTIONS}, (name, line)


#: The programs beside the module.
PARSERS = {'perfguard-plan': command._parser, 'perfguard-probe': client._parser}


@pytest.mark.parametrize('line', sorted(re.findall(
    r'(?:^ +|``)(perfguard-(?:plan|probe) [^`\n]+)', reference.manual(), re.MULTILINE)))
def test_programs_accept_their_arguments(line: str) -> None:
    program, *words = shlex.split(
        line.split(' > ')[0].replace('<run>', str(client.FIRST_RUN)))
    assert words and PARSERS[program]().parse_args(words)


#: How the tests on clusters call a command, and what they give to these functions themselves.
CALLERS = {'ask', 'get', 'order', 'refused'}
OF_CALLERS = {'format', 'timeout', 'given'}


def called() -> Iterator[Tuple[str, str, Set[str]]]:
    """Place, command and arguments of each call in qa."""
    for path in sorted((CHECKOUT / 'qa').rglob('*.py')):
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.Call) or getattr(
                    node.func, 'attr', getattr(node.func, 'id', '')) not in CALLERS:
                continue
            for argument in node.args[:2]:
                if isinstance(argument, ast.Constant) and isinstance(argument.value, str):
                    yield ('%s:%d' % (path.name, node.lineno), argument.value,
                           {keyword.arg for keyword in node.keywords if keyword.arg})


def test_commands_of_the_tests_on_clusters_have_their_arguments(
        mgr_stub: types.ModuleType) -> None:
    """The mgr ignores arguments that a command does not have."""
    import perfguard.cli  # noqa: F401
    known = [(place, COMMANDS['perfguard ' + command][1], given)
             for place, command, given in called() if 'perfguard ' + command in COMMANDS]
    assert len(known) > 300
    assert not [(place, sorted(wrong)) for place, handler, given in known for wrong in [
        given - OF_CALLERS - inspect.signature(handler).parameters.keys()] if wrong]


@pytest.mark.parametrize('command, given, unknown', [
    ('expand', {'what', 'weight', 'await', 'format'}, []), ('expand', {'await_'}, ['await_']),
    ('preview', {'change', 'class', 'what_if'}, []),
    ('pg-num', {'pool', 'pg_num'}, []),
    ('plan save', {'plan', 'wieght'}, ['wieght'])])
def test_arguments_that_tests_on_clusters_compute_exist(command: str, given: Set[str],
                                                        unknown: List[str]) -> None:
    """`**what` is known when the test runs."""
    assert reference.unknown_arguments(command, given) == unknown
