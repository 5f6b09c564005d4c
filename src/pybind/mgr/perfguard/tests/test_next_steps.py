# SPDX-License-Identifier: LGPL-2.1-or-later
"""Texts for operators name the command, option or wait that goes on, and the command exists."""
import ast
import functools
import inspect
import re
import types
from pathlib import Path
from typing import Dict, Iterator, List, Mapping, NamedTuple, Set, Tuple

import pytest

from perfguard.errors import DETAIL_LINES, Code, Reason, warning
from perfguard.metrics.catalogue import CHECK_CODES, HEALTH_CHECKS, HealthCheck
from perfguard.watch.next_steps import CHECK_STEPS, NEXT_STEPS, detailed, next_step, with_steps
from perfguard.watch.stop_conditions import WAIVABLE

from .fakes.mgr_module import COMMANDS

PACKAGE = Path(__file__).resolve().parents[1]
#: Refusals because of a state.
STATES = {'EAGAIN', 'EALREADY', 'EBUSY', 'ECANCELED', 'EEXIST', 'EIO', 'ENOSPC', 'EPERM', 'ESTALE',
          'ETIMEDOUT'}
#: Others may also say which argument is valid, or what is wrong with it.
ARGUMENTS = re.compile(
    r'must be |does not exist|unknown|requires |at most|give |\(limit |beyond mon_|apply to|'
    r'expected|not a |not valid|is neither|is empty|no (?:bucket|history|OSDs|pool, nor|OSD has|'
    r'%s %r in CRUSH)|hosts are in |has no hosts|filled and drained|name the pools|is not for |'
    r'map lacks rule')
#: What goes on, apart from a command between quotes: an option, or time.
GOES_ON = re.compile(r'"[a-z][^"]*"|--[a-z]|\btry again|\bwait|\bcontinues\b')
#: Refusals whose text leaves nothing to do.
EXPLAINED = {
    '%s; it begins when this has cleared': 'nothing to do',
    'already balanced: ': 'nothing is left to move',
    'already imported as probe %d': 'the results are there',
    'CRUSH rule %s finds fewer than %d OSDs': 'another rule must be named, or this one changed',
    'campaign %s has not begun: it ended': 'an abort ended it, and nothing is left of it',
    'cannot begin a campaign: %s': 'the reason has the command',
    'no OSD of CRUSH weight 0 is new: %s (%s)': 'each OSD has its command',
    'no pool can be balanced': 'each pool has its reason',
    'nothing to import: ': 'everything is in force already, or each PG has its reason',
    'pool %s cannot be balanced: %s': 'the reason says what ends it',
    'pool %s already has the CRUSH rule %s': 'the rule is in force',
    'pool %s already has %s': 'so is pg_num',
}


class Text(NamedTuple):
    where: str
    code: str
    text: str


def constants(node: ast.AST, names: Mapping[str, str] = {}) -> List[str]:
    """The texts in it, and those of the constants that it names."""
    texts = [part.value if isinstance(part, ast.Constant) else names.get(getattr(part, 'id', ''))
             for part in ast.walk(node)]
    return [text for text in texts if isinstance(text, str)]


def trees() -> Iterator[ast.Module]:
    for path in sorted(PACKAGE.rglob('*.py')):
        if 'tests' not in path.parts:
            tree = ast.parse(path.read_text())
            tree.name = path.name  # type: ignore[attr-defined]
            yield tree


def refusals() -> Iterator[Text]:
    """Those with a text of their own: others pass on one that is checked where it is written."""
    names = {node.targets[0].id: ' '.join(constants(node.value)) for tree in trees()
             for node in tree.body
             if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)}
    for tree in trees():
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and getattr(node.func, 'id', '') == 'Refused':
                text = ' '.join(constants(node, names)).strip()
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


def test_every_refusal_names_what_goes_on_or_the_valid_arguments() -> None:
    texts = list(refusals())
    assert len(texts) > 150
    assert [each for each in texts if not GOES_ON.search(each.text)
            and (each.code in STATES or not ARGUMENTS.search(each.text))
            and not each.text.startswith(tuple(EXPLAINED))] == []


def test_each_exception_is_of_a_refusal() -> None:
    texts = [each.text for each in refusals()]
    assert [begin for begin in EXPLAINED if not any(
        text.startswith(begin) for text in texts)] == []


SOON = 'it takes seconds'
NOTHING_WAITS = 'nothing waits'
BY_CAMPAIGN = 'the campaign does it, and reports what keeps it from that'
#: Code -> why there is no command: only time helps, or there is nothing to do.
ONLY_TIME: Dict[str, str] = {
    **dict.fromkeys((Code.STARTING, Code.REQUESTED, Code.OUTLOOK, Code.CRUSH_SENT, Code.UNPINNED,
                     Code.PINS_SENT, Code.REPORTS, Code.CONFIRMING, Code.PEERING, Code.BATCH,
                     Code.RELEASE_SENT, Code.ARRIVING, Code.COMMAND_FAILED), SOON),
    **dict.fromkeys((Code.NO_CAMPAIGN, Code.ENDED, Code.NO_LIMIT, Code.NO_CLIENTS, Code.LATENCY_OK,
                     Code.FIRST_PACE, Code.NEW_BASELINE, Code.FAST_PEERING, Code.PACED,
                     Code.IN_PLACE, Code.KEPT, Code.NEXT, Code.GOES_ALONE, Code.NOT_SLOW,
                     Code.MISPLACED, Code.ACCEPTED), NOTHING_WAITS),
    **dict.fromkeys((Code.IN_FLIGHT, Code.BACKFILLING, Code.EVACUATING, Code.SCRUB, Code.SNAPTRIM,
                     Code.PG_NUM_CHANGING), 'it ends when Ceph has done its work'),
    **dict.fromkeys((Code.NO_GOALS,), BY_CAMPAIGN),
    **dict.fromkeys((Code.NO_READINGS, Code.NO_BASELINE, Code.FEW_OPS),
                    'perfguard learns it; the campaign continues carefully meanwhile'),
    Code.REMARK: 'each of these texts has its own',
}
#: Codes whose texts all have a command, or a function of their own makes them.
IN_TEXT = {Code.AWAITS_OSDS, Code.HELD_PINS, Code.AWAITS_PIN, Code.AWAITS_START, Code.PAUSED,
           Code.FLAG_CLEARED, Code.FOREIGN_FLAG, Code.BALANCER_ON, Code.OLD_CLIENTS}
#: Those of risks, which are refusals: the refusal has the command that accepts them.
RISKS = {Code.AUTOSCALER, Code.BALANCER_UNDOES, Code.LEFT_OUT, Code.NO_PREVIEW,
         Code.NOT_BALANCED, Code.ONE_EPOCH, Code.TOO_FEW_OSDS, Code.WEAKER_RULE}


@functools.lru_cache(maxsize=None)
def reasons() -> Tuple[Text, ...]:
    """The texts of reasons and causes that are written where they are made."""
    found = []
    for tree in trees():
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and (getattr(node.func, 'id', '') in ('Reason', 'Cause')
                                               or getattr(node.func, 'attr', '') == 'because'):
                code = ast.unparse(node.args[0])
                text = ' '.join(part for arg in node.args[1:2] for part in constants(arg))
                if code.startswith('Code.') and text:
                    where = '%s:%d' % (tree.name, node.lineno)  # type: ignore[attr-defined]
                    found.append(Text(where, getattr(Code, code[5:]), text))
    return tuple(found)


@pytest.mark.parametrize('code', [value for name, value in vars(Code).items() if name.isupper()])
def test_every_reason_names_what_goes_on(code: str) -> None:
    """In `status` and `why`, unless only time helps."""
    known = [code in found for found in (
        NEXT_STEPS.keys() | {*WAIVABLE}, ONLY_TIME.keys(), IN_TEXT, RISKS)]
    assert known.count(True) == 1
    texts = [each for each in reasons() if each.code == code]
    if code in IN_TEXT:
        assert [each for each in texts if not re.search('"[a-z]', each.text)] == []


def test_the_command_follows_the_reason() -> None:
    assert detailed([Reason(Code.DEGRADED, '3 PGs are degraded'), Reason(
        Code.PAUSED, 'paused; "campaign resume" continues'), Reason(
        Code.BATCH, 'waiting'), Reason('PERFGUARD_SLOW_OSD', '1 OSD is slow')]) == [
        '3 PGs are degraded: recovery ends this; "campaign accept DEGRADED" continues',
        'paused; "campaign resume" continues', 'waiting',
        '1 OSD is slow: "ceph health detail" names the cause and what to do']
    assert next_step(Code.DEGRADED, 'it recovers 2 PGs', False) == 'recovery ends this'


#: Health checks whose detail always has the commands: tests of them check that.
OF_THEIR_OWN = {'PERFGUARD_HELD_PINS', 'PERFGUARD_EVACUATION'}


def test_the_detail_of_every_health_check_names_a_command() -> None:
    assert CHECK_STEPS.keys() | OF_THEIR_OWN == set(CHECK_CODES)
    raised = with_steps({code: warning('summary', ['detail']) for code in CHECK_STEPS})
    assert all(check['detail'] == ['detail', CHECK_STEPS[code]] and check['count'] == 1
               for code, check in raised.items())


def test_a_command_in_the_detail_is_enough_and_the_number_of_lines_is_limited() -> None:
    lines = ['line %d' % number for number in range(2 * DETAIL_LINES)]
    check = with_steps({'PERFGUARD_LAGGY_PGS': warning('summary', lines)})['PERFGUARD_LAGGY_PGS']
    assert len(check['detail']) == DETAIL_LINES and 'laggy' in check['detail'][-1]
    named = warning('summary', ['a client sends most ("ceph perfguard pools" names it)'])
    assert with_steps({'PERFGUARD_LATENCY': named}) == {'PERFGUARD_LATENCY': named}


@pytest.mark.parametrize('check', HEALTH_CHECKS, ids=lambda check: check.code)
def test_every_health_check_names_a_command(mgr_stub: types.ModuleType,
                                            check: HealthCheck) -> None:
    """In the text of the manual, to which the alert of the check leads."""
    assert re.search(r'``(ceph )?(perfguard )?(campaign|probe|mitigation|advise|why|osds|laggy|'
                     r'pools|replace|status|held|config|osd|mgr|health)\b|'
                     r'[Rr]un the command that the detail', check.action), check.action
