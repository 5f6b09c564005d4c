# SPDX-License-Identifier: LGPL-2.1-or-later
"""Wrong arguments are refused before the state of the cluster, and each refusal of a risk prints a
command that the same verb accepts."""
import errno
import inspect
import re
import shlex
import types
from typing import Any, Dict, List, Tuple

import pytest

from perfguard.errors import Code, Refused
from perfguard.rebalance.campaign import NO_CAMPAIGN
from perfguard.rebalance.orders import Order
from perfguard.rebalance.plans import PlanOrder, SavedPlan
from perfguard.rebalance.requests import Request, check
from perfguard.rebalance.risks import RISKS, Risk, refuse
from perfguard.watch.stop_conditions import UNHEALTHY, WAIVABLE

from .fakes.driver import Driver
from .fakes.mgr_module import COMMANDS

FILES = {'crushmap': 'a map', 'import': 'a list', 'plan save': 'a map'}


class Cli:
    """The ceph command, up to the order or the request that a command gives to the loop."""

    def __init__(self) -> None:
        import perfguard.cli
        self.module: Any = perfguard.cli.Commands()
        self.module.loop = types.SimpleNamespace(
            ask=self._take, request=self._take, wake=lambda: None, report_seconds=lambda: 0.0,
            requests=types.SimpleNamespace(confirm=lambda promised: None))
        self.orders: List[Any] = []

    def _take(self, order: Any, again: bool = False) -> Dict[str, Any]:
        self.orders.append(order)
        return {'message': ''}

    def __call__(self, line: str) -> Tuple[int, str]:
        words = shlex.split(line)
        assert words.pop(0) == 'ceph'
        prefix = next(' '.join(words[:count]) for count in range(len(words), 0, -1)
                      if ' '.join(words[:count]) in COMMANDS)
        handler = COMMANDS[prefix][1]
        given = arguments(words[len(prefix.split()):], inspect.signature(handler).parameters,
                          FILES.get(prefix[len('perfguard '):], ''))
        retval, _, error = handler(self.module, format='json', **given)
        return retval, error


def arguments(words: List[str], parameters: Any, file: str) -> Dict[str, Any]:
    """As the ceph command reads them."""
    given: Dict[str, Any] = {}
    names = [name for name in parameters if name not in ('self', 'format', 'inbuf')]
    while words:
        word = words.pop(0)
        if word == '-i':
            assert words.pop(0) == '<file>' and 'inbuf' in parameters
            given['inbuf'] = file
            continue
        name = word[2:].replace('-', '_') if word.startswith('--') else next(
            each for each in names if each not in given or 'List' in str(
                parameters[each].annotation))
        kind = str(parameters[name].annotation)
        if word.startswith('--'):
            word = '' if kind == "<class 'bool'>" else words.pop(0)
        if 'List' in kind:
            given.setdefault(name, []).append(word)
        else:
            given[name] = True if not word else int(word) if 'int' in kind else word
    return given


#: One for each way to write a change that may be refused for a risk.
CHANGES = ('expand', 'expand osd.8 host9', 'expand --weight 1.5',
           'expand host9 --drain host3,osd.4',
           'drain host3 osd.7', 'undrain osd.7', 'replace osd.7', 'rule rep fast',
           "rule 'odd name' fast", 'pg_num rep 16', 'balance', 'balance rep --by bytes',
           'balance ssd --deviation 2 --max-movement 2%', 'crushmap -i <file>',
           'crushmap --prior-version 7 -i <file>', 'adopt', 'import -i <file>',
           'campaign rollback')
PLANNED = [change for change in CHANGES
           if change.split()[0] not in ('adopt', 'import', 'campaign')]


@pytest.fixture()
def cli(mgr_stub: types.ModuleType) -> Cli:
    return Cli()


def ordered(cli: Cli, line: str) -> Any:
    retval, error = cli(line)
    assert (retval, error) == (0, ''), line
    return cli.orders.pop()


def printed(code: str, command: str, accept: Tuple[str, ...] = ()) -> str:
    """The command in a refusal."""
    with pytest.raises(Refused) as refused:
        refuse([Risk(code, 'a risk')], accept, command)
    match = re.search('; to accept: "(.*)"$', str(refused.value))
    assert match, refused.value
    return match.group(1)


@pytest.mark.parametrize('change', CHANGES)
def test_the_verb_of_a_refusal_accepts_its_command(cli: Cli, change: str) -> None:
    order: Order = ordered(cli, 'ceph perfguard ' + change)
    for code in RISKS:
        again: Order = ordered(cli, printed(code, order.command))
        assert again.accept == (code,) and again.command == order.command
    once_more = ordered(cli, printed(Code.PIN_LIMIT, order.command, ('TARGET_FULL',)))
    assert once_more.accept == ('TARGET_FULL', 'PIN_LIMIT')


@pytest.mark.parametrize('change', PLANNED)
def test_so_do_the_commands_of_plans(cli: Cli, change: str) -> None:
    """A risk of the change is accepted when the plan is saved, a state of the cluster later."""
    order = ordered(cli, 'ceph perfguard plan save autumn ' + change)
    approve: PlanOrder = ordered(cli, 'ceph perfguard plan approve autumn --token 12ab')
    plan: Any = types.SimpleNamespace(name='autumn', order=order.order)
    for code in RISKS:
        if code in UNHEALTHY:
            again = ordered(cli, printed(code, approve.command))
            assert again.accept == (code,) and again.command == approve.command
        else:
            command: str = SavedPlan.command_to_save.fget(plan)  # type: ignore[attr-defined]
            remove, save = printed(code, command).split(' && ')
            assert ordered(cli, remove) == PlanOrder('plan rm', 'autumn')
            again = ordered(cli, save)
            assert again.order.accept == (code,) and again.order.command == order.order.command
            assert again == ordered(cli, printed(code, order.command))
        again.refuse_codes()


@pytest.mark.parametrize('verb', ['prepare', 'pin'])
def test_so_do_the_steps_by_hand(cli: Cli, verb: str) -> None:
    for code in RISKS:
        request: Request = ordered(cli, printed(code, 'ceph perfguard campaign ' + verb))
        assert request == Request(verb, accept=(code,))


@pytest.mark.parametrize('code', sorted({*RISKS, *WAIVABLE}))
def test_a_code_of_another_command_is_refused_with_that_command(cli: Cli, code: str) -> None:
    """UPGRADE, say, stops releases, but does not keep a campaign from beginning."""
    accept, change = 'campaign accept ' + code, 'undrain osd.7 --accept ' + code
    if code in WAIVABLE:
        assert ordered(cli, 'ceph perfguard ' + accept) == Request('accept', code=code)
    else:
        with pytest.raises(Refused, match='as "--accept %s"' % code) as refused:
            check(NO_CAMPAIGN, ordered(cli, 'ceph perfguard ' + accept), 0, ())
        assert refused.value.errno == errno.EINVAL
    if code in RISKS:
        assert ordered(cli, 'ceph perfguard ' + change).accept == (code,)
    else:
        retval, error = cli('ceph perfguard ' + change)
        assert retval == -errno.EINVAL and '"%s"' % accept in error and 'must be' not in error


def test_what_a_cancelled_replacement_does_not_use_is_refused(cli: Cli) -> None:
    for option in ('--accept DEGRADED', '--dry-run'):
        retval, error = cli('ceph perfguard replace osd.7 --cancel ' + option)
        assert retval == -errno.EINVAL and option.split()[0] in error


WRONG: Tuple[Tuple[Any, int], ...] = (
    (Order('expand', ('osd.99',)), errno.ENOENT), (Order('expand', (), ('nohost',)), errno.ENOENT),
    (Order('expand', weight='x'), errno.EINVAL), (Order('expand', weight='1_0'), errno.EINVAL),
    (Order('balance', deviation='1_0'), errno.EINVAL),
    (Order('expand', drain=('nohost',)), errno.ENOENT),
    (Order('drain', ('nohost',)), errno.ENOENT), (Order('undrain', ('osd.99',)), errno.ENOENT),
    (Order('replace', ('osd.99',)), errno.ENOENT),
    (Order('rule', ('nopool', 'r0')), errno.ENOENT),
    (Order('rule', ('rep', 'norule')), errno.ENOENT),
    (Order('pg_num', ('nopool', '16')), errno.ENOENT), (Order('pg_num', ('nopool',)), errno.ENOENT),
    (Order('pg_num', ('rep', '-1')), errno.EINVAL), (Order('balance', ('nopool',)), errno.ENOENT),
    (Order('balance', by='x'), errno.EINVAL), (Order('balance', deviation='0'), errno.EINVAL),
    (Order('balance', max_movement='5'), errno.EINVAL),
    (PlanOrder('plan approve', 'noplan'), errno.ENOENT))


@pytest.fixture
def releasing() -> Driver:
    driver = Driver()
    driver.to_releasing()
    return driver


@pytest.mark.parametrize('order, code', WRONG)
def test_a_typing_error_is_refused_before_the_active_campaign(
        releasing: Driver, order: Any, code: int) -> None:
    with pytest.raises(Refused) as refused:
        releasing.give(order)
    assert refused.value.errno == code, refused.value


def test_what_exists_is_refused_for_the_active_campaign(releasing: Driver) -> None:
    for order in (Order('expand'), Order('drain', ('osd.0',)), Order('pg_num', ('rep', '16')),
                  Order('balance'), Order('balance', ('rep',))):
        with pytest.raises(Refused, match='campaign 1 is RELEASING') as refused:
            releasing.give(order)
        assert refused.value.errno == errno.EBUSY


def test_so_is_one_without_a_campaign() -> None:
    with pytest.raises(Refused) as refused:
        check(NO_CAMPAIGN, Request('accept', code='DEGRADET'), 0, ())
    assert refused.value.errno == errno.EINVAL
