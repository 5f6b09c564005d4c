# SPDX-License-Identifier: LGPL-2.1-or-later
"""Texts for operators name the command, option or wait that goes on, and the command exists."""
import ast
import inspect
import re
import types
from pathlib import Path
from typing import Iterator, List, NamedTuple, Set

import pytest

from perfguard.metrics.catalogue import HEALTH_CHECKS, HealthCheck

from .fakes.mgr_module import COMMANDS

PACKAGE = Path(__file__).resolve().parents[1]
#: Refusals because of a state. All others are about the arguments, and say which are valid.
STATES = {'EAGAIN', 'EALREADY', 'EBUSY', 'EEXIST', 'EIO', 'EPERM', 'ESTALE', 'ETIMEDOUT'}
#: What goes on, apart from a command between quotes: an option, or time.
GOES_ON = re.compile(r'"[a-z][^"]*"|--[a-z]|\btry again|\bwait|\bcontinues\b')
#: Refusals whose text leaves nothing to do.
EXPLAINED = {
    '%s; it begins when this has cleared': 'nothing to do',
    'already imported as probe %d': 'the results are there',
    'cannot begin a campaign: %s': 'the reason has the command',
    'pool %s already has the CRUSH rule %s': 'the rule is in force',
    'pool %s already has %s': 'so is pg_num',
}


class Text(NamedTuple):
    where: str
    code: str
    text: str


def constants(node: ast.AST) -> List[str]:
    return [part.value for part in ast.walk(node)
            if isinstance(part, ast.Constant) and isinstance(part.value, str)]


def trees() -> Iterator[ast.Module]:
    for path in sorted(PACKAGE.rglob('*.py')):
        if 'tests' not in path.parts:
            tree = ast.parse(path.read_text())
            tree.name = path.name  # type: ignore[attr-defined]
            yield tree


def refusals() -> Iterator[Text]:
    """Those with a text of their own: others pass on one that is checked where it is written."""
    for tree in trees():
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and getattr(node.func, 'id', '') == 'Refused':
                text = ' '.join(constants(node)).strip()
                if len(text) > 20:
                    where = '%s:%d' % (tree.name, node.lineno)  # type: ignore[attr-defined]
                    yield Text(where, ast.unparse(node.args[0]).rpartition('.')[2], text)


def commands_in(text: str) -> Iterator[str]:
    """What stands between quotes and begins as a command of perfguard does."""
    first = {prefix.split()[1] for prefix in COMMANDS if prefix.startswith('perfguard ')}
    for quoted in re.findall(r'"([^"\n]+)"|``([^`\n]+)``', text):
        words = re.sub(r'^(ceph )?perfguard ', '', ''.join(quoted)).split()
        if words and words[0] in first and len(words) > 1:
            yield ' '.join(words)


def unknown(command: str) -> Set[str]:
    """The words of a command that no command has."""
    words = command.split()
    lengths = [length for length in range(len(words), 0, -1)
               if ' '.join(('perfguard', *words[:length])) in COMMANDS]
    if not lengths:
        return {command}
    handler = COMMANDS[' '.join(('perfguard', *words[:lengths[0]]))][1]
    rest = [word for word in words[lengths[0]:] if not word.startswith('--')]
    if rest and rest != ['%s'] and set(inspect.signature(handler).parameters) == {'self', 'format'}:
        return {command}
    known = inspect.signature(handler).parameters
    return {word for word in words[lengths[0]:] if word.startswith('--')
            and re.sub('%s$', '', word[2:]).replace('-', '_') not in known}


def test_every_command_in_a_text_exists(mgr_stub: types.ModuleType) -> None:
    import perfguard.cli  # noqa: F401
    found = {command for tree in trees() for text in constants(tree)
             for command in commands_in(' '.join(text.split()))}
    assert len(found) > 40
    assert {command: unknown(command) for command in found if unknown(command)} == {}


def test_a_command_that_does_not_exist_is_found(mgr_stub: types.ModuleType) -> None:
    import perfguard.cli  # noqa: F401
    assert [unknown(command) for command in commands_in(
        'run "campaign acknowledge X", "drain ls --all" or "campaign finish --keep"')] == [
        {'campaign acknowledge X'}, {'--all'}, set()]


def test_every_refusal_of_a_state_names_what_goes_on() -> None:
    found = [each for each in refusals() if each.code in STATES]
    assert len(found) > 40
    assert [each for each in found if not GOES_ON.search(each.text)
            and not each.text.startswith(tuple(EXPLAINED))] == []


@pytest.mark.parametrize('check', HEALTH_CHECKS, ids=lambda check: check.code)
def test_every_health_check_names_a_command(mgr_stub: types.ModuleType,
                                            check: HealthCheck) -> None:
    """In the text of the manual, to which the alert of the check leads."""
    assert re.search(r'``(ceph )?(perfguard )?(campaign|probe|mitigation|advise|why|osds|laggy|'
                     r'pools|replace|status|held|config|osd|mgr|health)\b|'
                     r'[Rr]un the command that the detail', check.action), check.action
