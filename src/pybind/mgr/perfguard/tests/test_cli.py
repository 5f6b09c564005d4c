# SPDX-License-Identifier: LGPL-2.1-or-later
"""The commands and the adapter to ceph-mgr, with a stub of the modules that only ceph-mgr has."""
import errno
import inspect
import json
import re
import threading
import time
import types
from typing import Any, Dict, List, Optional, Set, Tuple

import pytest

from perfguard.cluster.types import Balancing, ClientOps, Ops, OsdCounters, OsdPlace, Readings
from perfguard.errors import Refused
from perfguard.rebalance import tables
from perfguard.rebalance.orders import AWAIT, Order
from perfguard.rebalance.plans import APPROVE, LS, SAVE, PlanOrder
from perfguard.rebalance.requests import Request
from perfguard.shutdown import ShutdownOrder
from perfguard.window import duration_seconds

from qa.lib import reference

from .cluster.test_set_by_others import entry
from .fakes.driver import Driver
from .fakes.mgr_module import COMMANDS, CommandResult


class Shell:
    """`ceph perfguard ...`, by the name of the command."""

    def __init__(self, driver: Driver) -> None:
        import perfguard.cli
        self.driver = driver
        self.module = perfguard.cli.Commands()
        self.module.loop = driver.loop

    def __call__(self, command: str, **kwargs: Any) -> Tuple[int, str, str]:
        retval, out, error = COMMANDS['perfguard ' + command][1](self.module, **kwargs)
        return retval, out, error

    def json(self, command: str, **kwargs: Any) -> Any:
        retval, out, error = self(command, format='json', **kwargs)
        assert (retval, error) == (0, '')
        return json.loads(out)


@pytest.fixture()
def shell(mgr_stub: types.ModuleType) -> Shell:
    return Shell(Driver())


READ = ('status', 'held', 'advise', 'events', 'osds', 'pools', 'laggy', 'history', 'mitigation ls',
        'campaign', 'campaign status', 'campaign ls', 'preview')
WRITE = ('prepare', 'pin', 'start', 'pause', 'accept', 'resume', 'set', 'abort', 'finish')
ORDERS = ('expand', 'drain', 'replace', 'undrain', 'crushmap', 'rule', 'pg_num', 'pg-num', 'adopt',
          'balance', 'import', 'campaign rollback', 'plan save', 'plan rm', 'plan approve',
          'shutdown', 'advise mute', 'advise unmute',
          *('probe ' + verb for verb in ('run', 'cancel', 'rm', 'import', 'baseline',
                                         'schedule')))


@pytest.mark.parametrize('not_fit, refusals, seconds, accepted', [
    (True, 3, 60.0, True), (True, 3, 0.0, False), (False, 3, 60.0, False)])
def test_what_the_cluster_is_not_fit_for_is_asked_again(
        mgr_stub: types.ModuleType, not_fit: bool, refusals: int, seconds: float,
        accepted: bool) -> None:
    """For a report period: what was refused may rest on an old picture."""
    from perfguard.cli.shell import patiently
    woken: List[int] = []

    def ask(again: bool) -> str:
        assert again == bool(woken)
        if len(woken) < refusals:
            raise Refused(errno.EPERM, 'not now', not_fit)
        return 'done'

    if accepted:
        assert patiently(ask, seconds, lambda: woken.append(1), 0.0) == 'done'
        return
    with pytest.raises(Refused):
        patiently(ask, seconds, lambda: woken.append(1), 0.0)
    assert not woken


def test_a_command_reports_what_the_loop_refuses_a_moment_later(shell: Shell) -> None:
    """It was accepted by what the last turn had published."""
    requests = shell.driver.loop.requests
    answers: List[Tuple[int, str, str]] = []
    commands = [threading.Thread(target=lambda: answers.append(shell('campaign prepare')))
                for _ in range(2)]
    requests.confirm_seconds = 60.0
    for thread in commands:
        thread.start()
    deadline = time.monotonic() + 30.0
    while len(requests.promised(Request.document)) < 2 and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not answers
    shell.driver.turn()
    for thread in commands:
        thread.join(30.0)
    assert sorted(retval for retval, _, _ in answers) == [-errno.EBUSY, 0]
    assert 'campaign 1' in ' '.join(error for _, _, error in answers)
    # A turn takes longer than a command waits: it is in the journal.
    requests.confirm_seconds = 0.0
    shell.driver.run_to('PREPARED')
    assert shell('campaign abort')[0] == 0
    shell.driver.run_to('ABORTED')


def test_permissions(shell: Shell) -> None:
    assert {name for name, (way, _) in COMMANDS.items() if way == 'w'} == {
        'perfguard ' + verb for verb in ORDERS}.union(
            ('perfguard campaign ' + verb for verb in WRITE), {'perfguard mitigation revert'})


def test_orders(shell: Shell) -> None:
    given: List[Order] = []
    answer = shell.driver.order('drain', 'h3', dry_run=True)

    def order(wanted: Order, again: bool = False) -> Any:
        given.append(wanted)
        return answer

    setattr(shell.driver.loop, 'ask', order)
    assert shell.json('expand', what=['osd.8,osd.9', 'h1'], weight='2', dry_run=True) == answer
    assert shell('expand', what=['h9'], drain=['h3,h4', 'osd.1'])[0] == 0
    assert shell('drain', what=['h3', 'osd.1,osd.2'], accept=['PG_LIMIT'])[0] == 0
    assert shell('undrain', what=['h3'])[0] == 0
    # The table of replacements is not that of the answer.
    assert shell('replace', what=['h3'], accept=['PG_LIMIT'], format='json')[0] == 0
    assert shell('preview', change='replace', what=['h3'], format='json')[0] == 0
    assert shell('crushmap', inbuf='map', prior_version=7)[0] == 0
    assert shell('campaign rollback', dry_run=True)[0] == 0
    assert shell('campaign rollback', accept=['PG_LIMIT'])[0] == 0
    assert shell('rule', pool='rep', rule='racks', accept=['PG_LIMIT'])[0] == 0
    assert shell('pg_num', pool='rep', pg_num=64, dry_run=True)[0] == 0
    assert shell('balance', what=['a,b', 'ssd'], by='bytes', max_movement='2%')[0] == 0
    assert given == [Order('expand', ('osd.8', 'osd.9'), ('h1',), '2', dry_run=True),
                     Order('expand', (), ('h9',), drain=('h3', 'h4', 'osd.1')),
                     Order('drain', ('h3', 'osd.1', 'osd.2'), accept=('PG_LIMIT',)),
                     Order('undrain', ('h3',)),
                     Order('replace', ('h3',), accept=('PG_LIMIT',)),
                     Order('replace', ('h3',), dry_run=True),
                     Order('crushmap', crush_map=b'map', prior_version=7),
                     Order('rollback', dry_run=True),
                     Order('rollback', accept=('PG_LIMIT',)),
                     Order('rule', ('rep', 'racks'), accept=('PG_LIMIT',)),
                     Order('pg_num', ('rep', '64'), dry_run=True),
                     Order('balance', ('a,b', 'ssd'), by='bytes', max_movement='2%')]
    assert given[-1].text == 'balance a,b ssd --by bytes --max-movement 2%'
    assert shell('crushmap') == (-errno.EINVAL, '', 'no CRUSH map: give one with -i <file>')


def test_osds_that_are_awaited(shell: Shell) -> None:
    given: List[Order] = []

    def ask(order: Order, again: bool = False) -> Any:
        given.append(order)
        return {'verb': AWAIT, 'message': 'awaiting'}

    setattr(shell.driver.loop, 'ask', ask)
    # A parameter cannot have the name: it is a word of Python.
    awaits = {'await': True}
    assert shell('expand', **awaits) == (0, 'awaiting', '')
    assert shell('expand', **awaits, weight='2', within='12h', dry_run=True)[0] == 0
    assert shell('preview', change='expand', **awaits)[:2] == (0, 'awaiting')
    assert given == [Order(AWAIT), Order(AWAIT, weight='2', within=43200.0, dry_run=True),
                     Order(AWAIT, dry_run=True)]
    assert given[1].command == 'ceph perfguard expand --await --weight 2 --within 43200s'
    for within in ('30d', '1.5d', '0.25s', '100001s'):
        assert shell('expand', **awaits, within=within)[0] == 0
        assert duration_seconds(given[-1].command.split()[-1]) == duration_seconds(within)
    wrong: List[Tuple[Dict[str, Any], str]] = [
        ({'what': ['osd.8']}, 'it takes the OSDs that boot later'),
        ({'accept': ['PG_LIMIT']}, 'the risks are not known yet'),
        ({'within': '1y'}, 'is not a duration')]
    for more, text in wrong:
        retval, out, error = shell('expand', **awaits, **more)
        assert (retval, out) == (-errno.EINVAL, '') and text in error, error
    assert '--within does not apply' in shell('expand', within='1d')[2]
    assert '--await does not apply' in shell('preview', change='drain', what=['h1'], **awaits)[2]


def test_following_and_aborting_what_is_awaited(shell: Shell) -> None:
    shell.driver.loop.requests.submit(Order(AWAIT))
    shell.driver.run(4)
    retval, out, _ = shell('campaign watch')
    assert retval == 0 and 'waiting for OSDs' in out
    assert shell('campaign abort') == (0, 'no OSDs are awaited any longer', '')
    shell.driver.run(4)
    assert shell('campaign watch')[0] == -errno.ETIMEDOUT
    shell.driver.loop.requests.submit(Order(AWAIT))
    shell.driver.run(4)
    shell.driver.to_releasing()
    assert shell('campaign abort') == (
        0, 'aborting; pinned PGs stay where they are; new OSDs are still awaited: once the '
        'campaign is aborted, "campaign abort" ends that', '')


def test_replacements(shell: Shell) -> None:
    shell.driver.run(2)
    loop = shell.driver.loop
    given: List[Order] = []
    answers = {'osds --drained': {'drains': []},
               'replace cancel': {'verb': 'replace cancel', 'message': 'cancelled'}}

    def ask(order: Order, again: bool = False) -> Any:
        given.append(order)
        return answers[order.verb]

    setattr(loop, 'ask', ask)
    assert shell('osds', drained=True) == (0, 'no drained OSDs', '')
    assert shell('replace', what=['h3,osd.1'], cancel=True)[0] == 0
    assert given == [Order('osds --drained', dry_run=True),
                     Order('replace cancel', ('h3', 'osd.1'))]


def test_expand_takes_the_words_of_drain(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    given: List[Order] = []
    answer = shell.driver.order('drain', 'h3', dry_run=True)

    def ask(order: Order, again: bool = False) -> Any:
        given.append(order)
        return answer

    monkeypatch.setattr(shell.driver.loop, 'ask', ask)
    words = ['osd.7', 'host3', 'rack2,osd.8']
    shell.json('expand', what=words, weight='2')
    shell.json('preview', change='expand', what=words, weight='2')
    assert [(order.names, order.hosts, order.weight) for order in given] == [
        (('osd.7', 'osd.8'), ('host3', 'rack2'), '2')] * 2


@pytest.mark.parametrize('command, given', [
    ('expand', {'what': ['']}), ('expand', {'what': ['h1', ',']}),
    ('preview', {'change': 'expand', 'what': ['']}),
    ('drain', {'what': ['']}), ('undrain', {'what': [',']}), ('replace', {'what': ['']}),
    ('plan save', {'plan': 'p', 'change': 'expand', 'what': ['']}),
    ('balance', {'what': ['']}), ('preview', {'change': 'balance', 'what': ['rep', '']}),
    ('plan approve', {'plan': 'p', 'token': ''}), ('probe run', {'osd': ''}),
    ('preview probe', {'host': ''}), ('probe schedule', {'schedule': 's', 'device_class': ''})])
def test_an_empty_variable_of_a_shell_is_refused(
        shell: Shell, monkeypatch: pytest.MonkeyPatch, command: str,
        given: Dict[str, Any]) -> None:
    """"expand" without names takes all new OSDs, a probe without an OSD the cluster, and an
    approval without a token any plan."""
    monkeypatch.setattr(shell.driver.loop, 'ask', lambda order, again=False: pytest.fail('asked'))
    retval, out, error = shell(command, **given)
    assert (retval, out) == (-errno.EINVAL, '') and 'empty' in error


@pytest.mark.parametrize('command, given, named', [
    ('replace', {'what': ['osd.1'], 'cancel': True, 'dry_run': True}, '--dry-run'),
    ('plan save', {'change': 'undrain', 'what': ['osd.1'], 'weight': '2'}, '--weight'),
    ('plan save', {'change': 'drain', 'what': ['osd.1'], 'prior_version': 3},
     '--prior-version'),
    ('plan save', {'change': 'rule', 'what': ['p', 'r'], 'inbuf': 'map'}, '-i'),
    ('plan save', {'change': 'crushmap', 'what': ['osd.1'], 'inbuf': 'map'}, 'osd.1'),
    ('plan save', {'change': 'drain'}, 'drain requires OSDs'),
    ('preview', {'change': 'adopt', 'what': ['osd.1']}, 'osd.1'),
    ('preview', {'change': 'drain', 'what': ['osd.1'], 'by': 'bytes'}, '--by'),
    ('plan save', {'change': 'rule', 'what': ['p', 'r'], 'max_movement': '1%'}, '--max-movement'),
    ('preview', {'change': 'drain', 'what': ['osd.1'], 'what_if': '1x1x1T'}, '--what-if'),
    ('preview', {'change': 'expand', 'what': ['osd.1'], 'what_if': '1x1x1T'}, 'osd.1 with'),
    ('preview', {'change': 'expand', 'what_if': '1x1x1T', 'await': True}, '--await with'),
    ('preview', {'change': 'expand', 'under': ['r1']}, '--under'),
    ('preview', {'change': 'expand', 'class': 'ssd'}, '--class'),
    ('preview', {'change': 'lose', 'what': ['osd.1'], 'weight': '1'}, '--weight'),
    ('preview', {'change': 'lose', 'what': ['osd.1'], 'under': ['r1']}, '--under'),
    ('preview', {'change': 'lose'}, 'lose requires OSDs'),
    ('plan save', {'change': 'lose', 'what': ['osd.1']}, "cannot plan 'lose'"),
    ('preview', {'change': 'pg_num'}, 'requires a pool'), ('preview', {'change': 'import'}, '-i'),
    ('preview', {'change': 'pg_num', 'what': ['p', '32', '16']}, 'at most one number'),
    ('preview', {'change': 'rule', 'what': ['p']}, 'a CRUSH rule'),
    ('preview', {'change': 'rule', 'what': ['p', 'r', 'q']}, 'a CRUSH rule'),
    ('preview', {'change': 'destroy'}, 'expand, drain'),
    ('preview', {'what_if': '4x12x16T'}, '--what-if applies only to a change'),
    ('preview', {'inbuf': 'map'}, '-i applies only'), ('preview', {'await': True}, '--await'),
    ('preview', {'upmaps_max': 0}, '--upmaps-max'),
    ('pools', {'expected': True, 'capacity': True}, 'exclude each other')])
def test_no_argument_is_ignored_or_assumed(
        shell: Shell, monkeypatch: pytest.MonkeyPatch, command: str, given: Dict[str, Any],
        named: str) -> None:
    monkeypatch.setattr(shell.driver.loop, 'ask', lambda order, again=False: pytest.fail('asked'))
    more = {'plan': 'p'} if 'plan' in command else {}
    retval, out, error = shell(command, **more, **given)
    assert (retval, out) == (-errno.EINVAL, '') and named in error


@pytest.mark.parametrize('command', ['crushmap', 'import'])
def test_a_file_with_half_of_a_surrogate_pair_is_refused(shell: Shell, command: str) -> None:
    """The JSON of a REST call can contain it."""
    retval, out, error = shell(command, inbuf='\ud800')
    assert (retval, out) == (-errno.EINVAL, '') and error.strip()


def test_a_pause_for_a_time(shell: Shell) -> None:
    pause = COMMANDS['perfguard campaign pause'][1]
    assert inspect.getfullargspec(pause).args == ['self', 'duration', 'dry_run', 'format']
    retval, _, error = shell('campaign pause', duration='99999d')
    assert (retval, error) == (-errno.EINVAL, "the duration must be at most 30d, not '99999d'")
    retval, _, error = shell('campaign pause', duration='2 fortnights')
    assert retval == -errno.EINVAL and '2 fortnights' in error
    shell.driver.to_releasing()
    begin = shell.driver.loop.clock()
    shell.json('campaign pause', duration='2h')
    status = shell.json('campaign status')
    assert status['paused'] and 7200 <= status['paused_until'] - begin < 7300
    # The dashboard calls the handler by the names of its parameters.
    assert pause(shell.module, duration='1h', format='json')[0] == 0
    assert 3600 <= shell.json('campaign status')['paused_until'] - begin < 3700


def test_settings_of_a_campaign(shell: Shell) -> None:
    assert shell('campaign set', setting='latency_factor=2')[0] == -errno.ENOENT
    shell.driver.to_releasing()
    for setting in ('latency_factor', 'target=crush', 'latency_factor=x', 'latency_factor=0',
                    'max_backfills_host=1.5', 'fast_peering=no', 'latency_factor=nan',
                    'latency_factor=50', 'begin_time=99', 'max_pgs_in_flight=1_0',
                    'max_pgs_in_flight=\u0663', 'latency_factor=1_0', 'latency_limits_ms=rep=1_0'):
        assert shell('campaign set', setting=setting)[0] == -errno.EINVAL, setting
    shell.json('campaign set', setting='latency_factor=2')
    assert shell.json('campaign status')['settings'] == {'latency_factor': '2'}
    assert 'latency_factor=2' in shell('campaign status')[1]


def test_watching(shell: Shell) -> None:
    assert shell('campaign watch')[:2] == (-errno.ETIMEDOUT, '')
    shell.driver.to_pinned()
    assert shell('campaign watch', until='pinned')[0] == -errno.ENODATA
    assert shell('campaign watch', until='soon')[0] == -errno.EINVAL
    assert shell.json('campaign watch') == shell.json('campaign status')
    line = shell('campaign watch')[1]
    assert 'PINNED' in line and '\n' not in line
    shell.driver.ask('start')
    shell.driver.run_to('DONE')
    assert shell('campaign watch')[0] == -errno.ENODATA
    # The next one is not taken for the end of this one.
    shell.json('campaign prepare')
    assert shell('campaign watch')[0] == shell('campaign watch', until='PREPARED')[0] == 0


def test_shutdown(shell: Shell) -> None:
    answers = [{'safe': False, 'message': 'closing', 'held': shell.json('held')['held']},
               {'safe': True, 'message': 'safe', 'held': []}]
    given: List[ShutdownOrder] = []

    def answer(order: ShutdownOrder) -> Any:
        given.append(order)
        return answers.pop(0)

    setattr(shell.driver.loop, 'ask', answer)
    assert shell('shutdown', yes_i_really_mean_it=True)[1] == 'closing\n\nnothing is borrowed'
    assert shell('shutdown')[1] == 'safe' and given == [ShutdownOrder(True), ShutdownOrder()]


def test_held_as_a_table(shell: Shell) -> None:
    shell.driver.to_pinned()
    table = shell('held')[1]
    assert 'ceph osd unset norebalance' in table and 'ceph balancer on' in table


#: Switches that a preview does not have: they concern what would be changed.
SWITCHES = frozenset({'dry_run', 'accept', 'cancel', 'remove', 'during_campaign',
                      'hold_scrub', 'yes_i_really_mean_it'})


def test_a_preview_has_the_arguments_of_its_command(shell: Shell) -> None:
    """Ceph reads them from the signature. Names of pools, rules and OSDs are words of a preview."""
    preview, probe, run, *changes = (
        inspect.signature(COMMANDS['perfguard ' + name][1]).parameters for name in (
            'preview', 'preview probe', 'probe run', 'expand', 'drain', 'undrain', 'replace',
            'rule', 'pg_num', 'balance', 'crushmap', 'adopt', 'import', 'campaign rollback'))
    assert list(probe) == [name for name in run if name not in SWITCHES]
    for names in changes:
        assert names.keys() <= {*preview, *SWITCHES, 'pool', 'rule', 'pg_num'}


def test_previews_of_what_is_not_there(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    """For readers, in few lines; errors are one line."""
    monkeypatch.setattr(shell.driver.loop, 'ask', lambda order, again=False: shell.driver.give(
        order))
    given: Dict[str, Any] = {'change': 'expand', 'what_if': '2x3x1TiB', 'under': ['default']}
    retval, out, error = shell('preview', **given)
    assert (retval, error) == (0, '') and len(out.splitlines()) < 12
    assert '6 of 1.0 TiB in 2 hosts below default' in out and 'MAX AVAIL' in out
    assert shell.json('preview', **given)['what_if']['osds'] == 6
    retval, out, error = shell('preview', change='lose', what=['h1', 'h3'])
    assert (retval, error) == (0, '') and len(out.splitlines()) < 20
    assert '2 OSDs of 2.0 TiB' in out and 'below min_size' in out
    assert shell.json('preview', change='lose', what=['h1,h3'])['osds'] == [1, 3]
    assert not shell.driver.cluster.sent
    retval, out, error = shell('preview', **{**given, 'what_if': '2x3'})
    assert (retval, out) == (-errno.EINVAL, '') and 'such as 4x12x16T' in error


def test_there_are_at_most_55_commands(shell: Shell) -> None:
    """An operator must find the right one by reading the list."""
    assert len(reference.described()) <= 55
    for alias, prefix in reference.ALIASES.items():
        assert COMMANDS[alias][1].__name__ == COMMANDS[prefix][1].__name__


def test_hyphens_and_underscores_are_the_same(shell: Shell) -> None:
    given: List[Any] = []
    answer = shell.driver.order('drain', 'h3', dry_run=True)

    def ask(order: Any, again: bool = False) -> Any:
        given.append(order)
        return answer

    setattr(shell.driver.loop, 'ask', ask)
    for prefix in ('pg_num', 'pg-num'):
        assert shell(prefix, pool='rep', pg_num=64, dry_run=True)[0] == 0
    for change in ('pg_num', 'pg-num'):
        assert shell('preview', change=change, what=['rep', '64'])[0] == 0
    assert given == [Order('pg_num', ('rep', '64'), dry_run=True)] * 4
    shell.driver.to_releasing()
    shell.json('campaign set', setting='latency-factor=2')
    shell.json('campaign accept', code='slow-ops')
    assert shell.json('campaign status')['settings'] == {'latency_factor': '2'}


def test_a_schedule_is_removed_without_other_arguments(
        shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    """They would be taken for a change of it."""
    monkeypatch.setattr(shell.driver.loop, 'ask', lambda order: {'message': order.verb})
    assert shell('probe schedule', schedule='nightly', rm=True)[1] == 'probe schedule --rm'
    more: List[Dict[str, Any]] = [{'profile': 'quick'}, {'begin_time': '0200'}, {'store': True}]
    for given in more:
        assert shell('probe schedule', schedule='nightly', rm=True, **given)[0] == -errno.EINVAL


def test_every_command_has_help_and_annotations(shell: Shell) -> None:
    """Ceph makes the command's description and arguments of them."""
    for name, (_, handler) in COMMANDS.items():
        signature = inspect.signature(handler)
        assert handler.__doc__ and '\n' not in handler.__doc__.strip(), name
        assert list(signature.parameters)[-1] == 'format', name
        for parameter in list(signature.parameters.values())[1:]:
            assert parameter.annotation is not inspect.Parameter.empty, name
            assert parameter.name != 'name', name


@pytest.mark.parametrize('command', READ)
def test_reading_in_every_format(shell: Shell, command: str) -> None:
    shell.driver.to_releasing()
    for plain in (None, 'plain'):
        retval, out, error = shell(command, format=plain)
        assert (retval, error) == (0, '') and out and not out.startswith('{')
    data = shell.json(command)
    assert json.loads(shell(command, format='json-pretty')[1]) == data
    retval, out, error = shell(command, format='xml')
    assert (retval, out) == (-errno.EINVAL, '') and "'xml'" in error


def test_a_whole_campaign_by_command(shell: Shell) -> None:
    driver = shell.driver
    retval, out, error = shell('campaign prepare')
    assert retval == 0 and 'PREPARED' in out and error == ''
    driver.run_to('PREPARED')
    driver.cluster.expand()
    driver.run_until(lambda: len(driver.cluster.remapped()) == 12)
    assert shell.json('campaign pin')['verb'] == 'pin'
    driver.run_to('PINNED')
    for verb, phase in (('start', 'RELEASING'), ('pause', 'HOLDING'), ('resume', 'RELEASING')):
        assert shell('campaign ' + verb)[0] == 0
        driver.run_to(phase)
    assert shell('campaign finish')[0] == -errno.EBUSY
    assert shell('campaign finish', keep=True)[0] == 0
    driver.run_to('DONE')
    assert [row['phase'] for row in shell.json('campaign ls')['campaigns']] == ['DONE']
    assert shell.json('campaign show', campaign=1)['kept'] > 0


def test_abort_by_command(shell: Shell) -> None:
    assert shell('campaign abort') == (
        -errno.ENOENT, '', 'no campaign is active: "expand", "drain" and other changes begin one, '
        '"campaign prepare" one for a change by hand')
    shell('campaign prepare')
    shell.driver.run_to('PREPARED')
    assert shell('campaign abort')[0] == 0
    shell.driver.run_to('ABORTED')
    assert shell('campaign pause') == (
        -errno.ENOENT, '', 'campaign 1 is ABORTED and has ended: "expand", "drain" and other '
        'changes begin one, "campaign prepare" one for a change by hand')


@pytest.mark.parametrize('command, given, text', [
    ('events', {}, "'x' is neither a number (<count>) nor a format (plain, json or json-pretty)"),
    ('events', {'count': 3},
     "unexpected argument, or unknown format: 'x' (must be plain, json or json-pretty)"),
    ('pg_num', {'pool': 'rep'},
     "'x' is neither a number (<pg_num>) nor a format (plain, json or json-pretty)"),
    ('status', {},
     "unexpected argument, or unknown format: 'x' (must be plain, json or json-pretty)")])
def test_a_word_instead_of_a_number_is_no_unknown_format(
        shell: Shell, command: str, given: Dict[str, Any], text: str) -> None:
    """Ceph takes it for the next argument, which is the format."""
    assert shell(command, format='x', **given) == (-errno.EINVAL, '', text)


def test_each_release_of_ceph_finds_the_format_of_each_command(shell: Shell) -> None:
    """From Reef on, Ceph reads the arguments of the function that a decorator has wrapped."""
    found = {prefix: inspect.getfullargspec(inspect.unwrap(handler))
             for prefix, (_, handler) in COMMANDS.items() if prefix.startswith('perfguard ')}
    assert len(found) > 50
    assert [prefix for prefix, spec in found.items()
            if 'format' not in spec.args or 'format' not in spec.annotations] == []


def test_a_risk_is_accepted_by_its_code(shell: Shell) -> None:
    shell.driver.cluster.trouble = {'laggy': 1}
    shell.driver.cluster.period = 0.0
    shell.driver.turn()
    retval, _, error = shell('campaign prepare')
    assert retval == -errno.EPERM and error.endswith(
        '1 PG is laggy (LAGGY); to accept: "ceph perfguard campaign prepare --accept LAGGY"')
    retval, _, error = shell('campaign prepare', accept=['LAGY'])
    assert retval == -errno.EINVAL and "'LAGY'" in error and ', LAGGY, ' in error
    assert shell('campaign prepare', accept=['pg-limit,laggy'])[0] == 0


def test_show(shell: Shell) -> None:
    assert shell('campaign show', campaign=3)[0] == -errno.ENOENT
    shell.driver.to_pinned()
    assert shell.json('campaign show', campaign=1)['phase'] == 'PINNED'
    assert 'PINNED' in shell('campaign show', campaign=1)[1]


def test_events(shell: Shell) -> None:
    shell.driver.to_pinned()
    events = shell.json('events', count=2)['events']
    assert len(events) == 2 and events[0]['id'] + 1 == events[1]['id']
    assert len(shell.json('events')['events']) > 2
    assert shell('events', count=0)[0] == -errno.EINVAL


def test_what_the_watch_shows(shell: Shell) -> None:
    driver = shell.driver
    driver.cluster.read = Readings(
        seconds=2.0, counters={}, clients=(ClientOps(1, 0, Ops(8 * 10 ** 6, 4), Ops()),),
        places={0: OsdPlace(0, 'a', 'default', 'ssd')})
    driver.cluster.trouble = {'laggy': 2}
    driver.run(6)
    (osd,) = shell.json('osds')['osds']
    assert (osd['osd'], osd['host'], osd['device_class'], osd['slow']) == (0, 'a', 'ssd', False)
    pools = shell.json('pools')['pools']
    assert [(row['pool'], row['read_ms'], row['write_ms']) for row in pools] == [
        ('rep', 2.0, None), ('ec', None, None)]
    assert shell.json('laggy')['laggy_pgs'] == 2
    status = shell.json('status')
    assert status['pools'] == pools and status['health'] == ['PERFGUARD_LAGGY_PGS']


def test_history(shell: Shell) -> None:
    driver = shell.driver
    driver.cluster.read = Readings(seconds=2.0, counters={}, clients=(
        ClientOps(1, 0, Ops(8 * 10 ** 6, 4), Ops()),), places={})
    driver.run(60)
    assert len(shell('history')[1].splitlines()) <= 24
    assert len(shell('history', **{'all': True})[1].splitlines()) == 32
    assert len(shell.json('history')['points']) == 31
    for what in ('cluster', 'rep'):
        shown = shell.json('history', what=what)
        assert shown['of'] == what and shown['points'][-1]['read_ms'] == 2.0
    assert shell.json('history', week=True)['points'] == []
    retval, _, error = shell('history', what='osd.99')
    assert retval == -errno.ENOENT and "'osd.99'" in error
    # It exists, and an OSD that has just booted has no history yet.
    driver = Driver()
    driver.run(2)
    assert 'of an OSD that has reported' in Shell(driver)('history', what='osd.1')[2]


def test_history_exported_for_the_bench(shell: Shell) -> None:
    """In the columns that qa/bench reads."""
    driver, each = shell.driver, Ops(0, 0)
    for turn in range(1, 4):
        each = Ops(each.sum_ns + 50 * 10 ** 6, each.number + 100)
        driver.cluster.read = Readings(
            seconds=2.0, counters={osd: OsdCounters(2.0 * turn, each, each, each, each, each)
                                   for osd in (3, 4)},
            clients=(), places={osd: OsdPlace(osd, 'h%d' % osd, 'default', 'ssd', 'm')
                                for osd in (3, 4)})
        driver.run(2)
    exported = shell.json('history', export=True)
    assert exported['columns'] == ['time', 'drive', 'host', 'class', 'model', 'kind', 'throughput',
                                   'latency']
    assert {row[1] for row in exported['rows']} == {'osd.3', 'osd.4'}
    assert {row[5] for row in exported['rows']} == {'reads', 'writes', 'commits'}
    for what in ('h3', 'osd.3'):
        rows = shell.json('history', what=what, export=True)['rows']
        assert rows == [row for row in exported['rows'] if row[1] == 'osd.3']
    assert rows[-1][1:] == ['osd.3', 'h3', 'ssd', 'm', rows[-1][5], 50.0, 0.5]
    retval, text, _ = shell('history', what='osd.3', export=True)
    assert retval == 0 and text.splitlines()[0] == ','.join(exported['columns'])
    assert text.splitlines()[1].endswith(',osd.3,h3,ssd,m,reads,50.0,0.5')
    retval, _, error = shell('history', what='rep', export=True)
    assert retval == -errno.ENOENT and "'rep'" in error


def test_an_export_is_bounded(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    from perfguard.cli import watch
    test_history_exported_for_the_bench(shell)
    monkeypatch.setattr(watch, 'MOST_EXPORTED', 2)
    retval, _, error = shell('history', export=True)
    assert retval == -errno.E2BIG and 'limit 2' in error


def test_before_the_first_turn(shell: Shell) -> None:
    shell.driver.restart()
    shell.module.loop = shell.driver.loop
    assert shell('status')[0] == 0
    assert shell('mitigation revert', mitigation=1)[0] == -errno.EAGAIN
    for command in ('osds', 'pools', 'laggy', 'history', 'mitigation ls', 'campaign status',
                    'preview', 'campaign ls', 'campaign prepare'):
        assert shell(command)[0] == -errno.EAGAIN


def test_mitigation_by_command(shell: Shell) -> None:
    data = shell.json('mitigation ls')
    assert data['mode'] == 'observe' and len(data['rungs']) == 6
    assert {row['state'] for row in data['rungs']} == {'idle'}
    retval, out, error = shell('mitigation revert', mitigation=5)
    assert (retval, out) == (-errno.ENOENT, '') and 'mitigation 5 does not exist' in error


# ---- cluster.mgr

class Mgr:
    """MgrModule, as far as MgrCluster uses it."""

    module_name = 'perfguard'

    class ClusterLogPrio:
        INFO = 1

    def __init__(self) -> None:
        self.sent: List[Dict[str, Any]] = []
        self.answers: Dict[str, Tuple[int, str, str]] = {}
        self.silent = False
        self.options: Dict[Tuple[str, str], Any] = {}
        self.remotes: List[Tuple[Any, ...]] = []
        #: What the balancer answers to its commands.
        self.balancer = (0, 'out', '')
        self.data: Dict[str, Any] = {
            'pg_status': {'pgs_by_state': [
                {'state_name': 'active+clean', 'count': 5},
                {'state_name': 'active+clean+laggy', 'count': 1},
                {'state_name': 'stale+active+clean', 'count': 2},
                {'state_name': 'active+remapped+backfilling', 'count': 3},
                {'state_name': 'peering', 'count': 4},
                {'state_name': 'unknown', 'count': 1}], 'misplaced_ratio': 0.25},
            'health': {'json': json.dumps({'status': 'HEALTH_WARN', 'checks': {
                'OSD_DOWN': {'summary': {'message': '1 osds down'}},
                'SLOW_OPS': {'muted': True, 'summary': {'message': 'x'}}}})},
            'mgr_map': {'active_gid': 4100},
            'df': {'pools': [{'id': 1, 'stats': {'stored': 77, 'bytes_used': 300}}]},
            'pg_summary': {'by_osd': {'3': {'active+undersized+degraded': 1},
                                      '4': {'active+clean': 9}}}}

    def get(self, what: str) -> Any:
        return self.data[what]

    def get_ceph_option(self, name: str) -> Any:
        return {'mgr_stats_period': 5}[name]

    def get_daemon_health_metrics(self) -> Any:
        return {'osd.0': [{'type': 'SLOW_OPS', 'value': 2}, {'type': 'PENDING', 'value': 9}],
                'mon.a': [{'type': 'SLOW_OPS', 'value': 1}]}

    def get_latest_counter(self, kind: str, daemon: str, counter: str) -> Any:
        return {counter: []}

    def get_module_option_ex(self, module: str, option: str) -> Any:
        found = {('balancer', 'active'): True, **self.options}.get((module, option))
        if isinstance(found, ValueError):
            raise found
        return found

    def send_command(self, result: CommandResult, service: str, target: str, command: str,
                     tag: str) -> None:
        assert (service, target) == ('mon', '')
        parsed = json.loads(command)
        self.sent.append(parsed)
        if not self.silent:
            result.r, result.outb, result.outs = self.answers.get(parsed['prefix'], (0, '', ''))
            result.ev.set()

    def remote(self, *args: Any) -> Any:
        self.remotes.append(args)
        if args[0] == 'progress':
            raise ImportError('no module progress')
        return self.balancer


def mgr_cluster(mgr: Mgr, stopping: bool = False) -> Any:
    from perfguard.cluster.mgr import MgrCluster
    cluster: Any = MgrCluster
    return cluster(mgr, lambda: stopping, time.time)


def test_signals(mgr_stub: types.ModuleType) -> None:
    from perfguard.cluster.types import OsdMap, Pool
    pool = Pool(1, 'p', False, 3, 2, 0, 18, 18, 18)
    osdmap = OsdMap(1, frozenset(), {1: pool}, {}, {}, {}, {})
    signals = mgr_cluster(Mgr()).signals(osdmap)
    counts = signals.counts
    # Two of the 18 PGs are in no report.
    assert (counts.total, counts.active_clean, counts.laggy) == (18, 6, 1)
    assert (counts.inactive, counts.in_transition) == (9, 7)
    assert (counts.remapped, counts.backfilling) == (3, 3)
    assert signals.health == {'OSD_DOWN': '1 osds down'}
    assert (signals.health_status, signals.slow_ops) == ('HEALTH_WARN', 3)
    assert (signals.misplaced_ratio, signals.pool_bytes) == (0.25, {1: 77})
    assert signals.pool_space == {1: 100}


def test_degraded_osds_and_balancer(mgr_stub: types.ModuleType) -> None:
    cluster = mgr_cluster(Mgr())
    assert cluster.degraded_osds() == {3} and cluster.balancer_active() == 'true'


def test_flags_that_others_have_set_are_read_from_the_audit_log(mgr_stub: types.ModuleType
                                                                ) -> None:
    mgr = Mgr()
    mgr.answers['log last'] = (0, json.dumps([entry(1, 'set')]), '')
    assert mgr_cluster(mgr).flags_set_by_others() == {'norebalance'}
    mgr.answers['log last'] = (-errno.EACCES, mgr.answers['log last'][1], 'no')
    assert mgr_cluster(mgr).flags_set_by_others() == frozenset()


def test_what_is_to_be_read_reaches_the_sensors(mgr_stub: types.ModuleType) -> None:
    cluster: Any = mgr_cluster(Mgr())
    given: List[Any] = []
    for name in ('read_loads', 'read_without_probes', 'read_by_pg', 'count_clients'):
        setattr(cluster._sensors, name, given.append)
        getattr(cluster, name)(name)
    assert given == ['read_loads', 'read_without_probes', 'read_by_pg', 'count_clients']


def test_degraded_osds_are_read_once_a_report_period(mgr_stub: types.ModuleType,
                                                     monkeypatch: pytest.MonkeyPatch) -> None:
    mgr, now = Mgr(), [100.0]
    monkeypatch.setattr('time.monotonic', lambda: now[0])
    cluster = mgr_cluster(mgr)
    assert cluster.degraded_osds() == {3}
    del mgr.data['pg_summary']['by_osd']['3']
    now[0] += 4.0
    assert cluster.degraded_osds() == {3}
    now[0] += 1.0
    assert cluster.degraded_osds() == frozenset()


def test_what_the_mons_have_stored(mgr_stub: types.ModuleType) -> None:
    mgr = Mgr()
    mgr.answers['config-key get'] = (0, 'value', '')
    cluster = mgr_cluster(mgr)
    assert cluster.stored(['a/head', 'b']) == {'a/head': 'value', 'b': 'value'}
    assert mgr.sent[0] == {'prefix': 'config-key get', 'key': 'mgr/perfguard/a/head'}
    mgr.answers['config-key get'] = (-errno.ENOENT, '', 'error obtaining')
    assert cluster.stored(['b']) == {'b': None} and cluster.active_gid() == 4100
    mgr.answers['config-key get'] = (-errno.EAGAIN, '', 'no quorum')
    assert cluster.stored(['b']) == {}, 'nothing is known'


def test_the_address_of_the_page_is_that_of_the_dashboard(mgr_stub: types.ModuleType) -> None:
    mgr = Mgr()
    cluster = mgr_cluster(mgr)
    assert cluster.page() == ''
    mgr.data['mgr_map']['services'] = {'prometheus': 'http://a:9283/'}
    assert cluster.page() == ''
    mgr.data['mgr_map']['services']['dashboard'] = 'https://a:8443/prefix/'
    assert cluster.page() == 'https://a:8443/prefix/perfguard'


def test_stored_options(mgr_stub: types.ModuleType) -> None:
    mgr = Mgr()
    name = 'mgr/balancer/active'
    mgr.answers['config dump'] = (0, json.dumps([
        {'section': 'global', 'name': name, 'value': 'no'},
        {'section': 'mgr', 'name': name, 'mask': 'host:x', 'value': 'no'},
        {'section': 'mgr', 'name': name, 'mask': '', 'value': 'true'}]), '')
    assert mgr_cluster(mgr).stored_options() == {'global': {name: 'no'}, 'mgr': {name: 'true'}}
    mgr.answers['config dump'] = (-13, '', 'EACCES')
    assert mgr_cluster(mgr).stored_options() is None


def test_config_entries(mgr_stub: types.ModuleType) -> None:
    mgr = Mgr()
    mgr.answers['config dump'] = (0, json.dumps([
        {'section': 'osd', 'name': 'osd_max_backfills', 'mask': 'class:hdd', 'value': '3',
         'device_class': 'hdd', 'level': 'advanced'},
        {'section': 'osd.1', 'name': 'osd_recovery_sleep', 'value': '0.250000'}]), '')
    first, second = mgr_cluster(mgr).config_entries()
    assert (first.who, first.name, first.value) == ('osd/class:hdd', 'osd_max_backfills', '3')
    assert (second.who, second.mask) == ('osd.1', '')
    mgr.answers['config dump'] = (-13, '', 'EACCES')
    assert mgr_cluster(mgr).config_entries() is None


def test_all_commands_are_sent_before_any_answer_is_awaited(mgr_stub: types.ModuleType) -> None:
    mgr = Mgr()
    mgr.silent = True
    replies = mgr_cluster(mgr, stopping=True).run([{'prefix': 'a'}, {'prefix': 'b'}])
    assert [command['prefix'] for command in mgr.sent] == ['a', 'b']
    assert [reply.retval for reply in replies] == [None, None]
    assert 'no answer' in replies[0].error


def test_answers(mgr_stub: types.ModuleType) -> None:
    mgr = Mgr()
    mgr.answers['b'] = (-22, '', 'EINVAL')
    replies = mgr_cluster(mgr).run([{'prefix': 'a'}, {'prefix': 'b'}])
    assert [(reply.retval, reply.error) for reply in replies] == [(0, ''), (-22, 'EINVAL')]


def test_a_missing_progress_module_does_no_harm(mgr_stub: types.ModuleType) -> None:
    mgr = Mgr()
    cluster = mgr_cluster(mgr)
    cluster.progress('id', 'text', 0.5)
    cluster.progress_done('id')
    assert mgr.remotes == [('progress', 'update', 'id', 'text', 0.5, [], True),
                           ('progress', 'complete', 'id')]


def test_the_balancer_is_switched_by_its_own_command(mgr_stub: types.ModuleType) -> None:
    mgr = Mgr()
    assert mgr_cluster(mgr).switch_balancer(False).retval == 0
    assert mgr.remotes == [('balancer', '_handle_command', '', {'prefix': 'balancer off'})]


def test_methods_of_other_modules_that_a_release_lacks_are_named(
        mgr_stub: types.ModuleType) -> None:
    """ceph-mgr raises NameError for a method that does not exist."""
    class Later(Mgr):
        def remote(self, *args: Any) -> Any:
            raise NameError('Method not found')

    cluster = mgr_cluster(Later())
    reply = cluster.switch_balancer(False)
    assert reply.retval != 0 and 'balancer' in reply.error and '_handle_command' in reply.error
    assert not cluster.balancer_busy()
    with pytest.raises(OSError, match='pg_autoscaler .* has no method _command_autoscale_status'):
        cluster.recommended_pg_nums()
    cluster.progress('id', 'text', 0.5)


@pytest.mark.parametrize('result, error, reply', [
    ('Scheduled', '', (0, '')), (None, 'no such host', (-errno.EIO, 'no such host'))])
def test_cephadm_removes_osds(mgr_stub: types.ModuleType, result: Optional[str], error: str,
                              reply: Tuple[int, str]) -> None:
    """Its answer has the form of orchestrator.OrchResult."""
    class Cephadm(Mgr):
        def remote(self, *args: Any) -> Any:
            self.remotes.append(args)
            return types.SimpleNamespace(result=result, exception_str=error)

    mgr = Cephadm()
    answer = mgr_cluster(mgr).remove_osd(7)
    assert (answer.retval, answer.error) == reply
    assert mgr.remotes == [('cephadm', 'remove_osds', ['7'], True)]


@pytest.mark.parametrize('active, retval, error, busy', [
    ('false', -22, 'Balancer finishing up....try again', True),
    ('false', -2, 'plan  not found', False),
    (True, -22, 'Balancer enabled, disable to execute a plan', False),
    # "ceph config set mgr mgr/balancer/active false": it sleeps, or carries out a plan.
    (False, -22, 'Balancer enabled, disable to execute a plan', True)])
def test_the_balancer_is_asked_whether_it_finishes_a_plan(
        active: Any, retval: int, error: str, busy: bool, mgr_stub: types.ModuleType) -> None:
    mgr = Mgr()
    mgr.options['balancer', 'active'] = active
    mgr.balancer = (retval, '', error)
    assert mgr_cluster(mgr).balancer_busy() is busy
    assert mgr.remotes == [('balancer', '_handle_command', '',
                            {'prefix': 'balancer execute', 'plan': ''})]


@pytest.mark.parametrize('command, given', [
    ('expand', {'weight': '1.0'}), ('drain', {'what': ['h3']})])
def test_previews_change_nothing_and_need_read_access_only(
        mgr_stub: types.ModuleType, command: str, given: Any) -> None:
    driver = Driver()
    driver.cluster.add_waiting()
    driver.run(3)
    shell, found = Shell(driver), []
    thread = threading.Thread(target=lambda: found.append(
        shell('preview', change=command, format='json', **given)))
    thread.start()
    while thread.is_alive():
        driver.turn()
        thread.join(0.01)
    retval, out, _ = found[0]
    assert retval == 0 and json.loads(out)['dry_run'] and json.loads(out)['weights']
    assert driver.phase == 'IDLE' and driver.cluster.sent == []
    assert COMMANDS['perfguard preview'][0] == 'r'


class Handle:
    """An OSDMap of one pool, as ceph-mgr gives it to modules."""

    def __init__(self, pg_num: int) -> None:
        self.pg_num = pg_num
        self.calls: List[str] = []

    def dump(self) -> Any:
        return {'epoch': 1, 'flags_set': [], 'osds': [], 'pg_upmap': [], 'pg_upmap_items': [],
                'pg_temp': [], 'pools': [{
                    'pool': 1, 'pool_name': 'p', 'type': 1, 'size': 3, 'min_size': 2,
                    'crush_rule': 0, 'pg_num': self.pg_num}]}

    def get_crush_version(self) -> int:
        return 1

    def map_pool_pgs_up(self, pool_id: int) -> Any:
        self.calls.append('all')
        return {'1.%x' % seed: [seed, 1] for seed in range(self.pg_num)}

    def pg_to_up_acting_osds(self, pool_id: int, seed: int) -> Any:
        self.calls.append('one')
        return {'up': [seed, 1], 'acting': [seed, 1], 'acting_primary': seed if seed < 3 else -1}


@pytest.mark.parametrize('beyond, calls', [(0, {'all'}), (1, {'one'})])
def test_no_call_maps_so_many_pgs_that_other_modules_wait(mgr_stub: types.ModuleType, beyond: int,
                                                          calls: Any) -> None:
    from perfguard.cluster.mgr import MOST_PGS_MAPPED, MapView
    handle = Handle(MOST_PGS_MAPPED + beyond)
    found = MapView(handle).pool_up(1)
    assert found == {'1.%x' % seed: (seed, 1) for seed in range(handle.pg_num)}
    assert set(handle.calls) == calls


def test_primaries_of_pgs_that_have_one(mgr_stub: types.ModuleType) -> None:
    from perfguard.cluster.mgr import MapView
    placements = list(map(MapView(Handle(5)).placement, ('1.2', '1.3')))
    assert [place.primary for place in placements if place is not None] == [2, -1]
    assert MapView(Handle(5)).primaries(1) == {'1.0': 0, '1.1': 1, '1.2': 2}


def test_the_options_of_the_balancer(mgr_stub: types.ModuleType) -> None:
    mgr = Mgr()
    cluster = mgr_cluster(mgr)
    assert cluster.balancing() == Balancing(5.0, True, frozenset())
    mgr.options = {('balancer', 'upmap_max_deviation'): 1, ('balancer', 'mode'): 'crush-compat',
                   ('balancer', 'pool_ids'): '1, 17'}
    assert cluster.balancing() == Balancing(1.0, False, frozenset({1, 17}), True)
    assert cluster.balancing().covers(1) is False


def test_an_option_of_the_balancer_that_is_no_number(mgr_stub: types.ModuleType) -> None:
    """Up to Nautilus, upmap_max_deviation was a share, and what was set then is still stored. Each
    turn reads it."""
    mgr = Mgr()
    mgr.options = {('balancer', 'upmap_max_deviation'): ValueError(
        "invalid literal for int() with base 0: '0.010000'")}
    assert mgr_cluster(mgr).balancing() == Balancing(5.0, True, frozenset())
    from perfguard.cluster.inventory import balancer_options
    assert balancer_options(mgr) == {'active': 'true'}


def test_only_options_that_the_release_knows_have_values(mgr_stub: types.ModuleType) -> None:
    from perfguard.compat import ceph_options
    assert ceph_options(Mgr(), ['mgr_stats_period', 'nosuch']) == {'mgr_stats_period': '5'}


@pytest.mark.parametrize('value, text', [
    (True, 'true'), (False, 'false'), (0.5, '0.5'), ('wpq', 'wpq')])
def test_values_of_options_are_as_in_the_configuration_database(value: Any, text: str) -> None:
    from perfguard.compat import ceph_options
    mgr = types.SimpleNamespace(get_ceph_option=lambda name: value)
    assert ceph_options(mgr, ['x']) == {'x': text}


class MixedMgr(Mgr):
    """An mgr that may know the newer option, and the versions of daemons."""

    def __init__(self, has_option: bool, **versions: str) -> None:
        super().__init__()
        self.has_option, self.versions = has_option, versions
        self.data['mon_map'] = {'mons': [{'name': 'a'}, {'name': 'b'}]}

    def get_ceph_option(self, name: str) -> Any:
        if name == 'osd_recovery_sleep_degraded' and self.has_option:
            return 0.0
        return super().get_ceph_option(name)

    def get_mgr_id(self) -> str:
        return 'x'

    def get_metadata(self, service: str, name: str) -> Any:
        version = self.versions.get('%s_%s' % (service, name))
        return None if version is None else {'ceph_version_short': version}


NEW = {'mgr_x': '20.2.4', 'mon_a': '20.2.4', 'mon_b': '20.2.4'}


@pytest.mark.parametrize('has_option, versions, osd_versions, own', [
    (True, NEW, {'20.2.4'}, True), (False, NEW, {'20.2.4'}, False),
    # An upgrade: mgrs are first, OSDs last. Point releases of Reef differ in this.
    (True, {**NEW, 'mon_b': '18.2.7'}, {'18.2.7'}, False),
    (True, NEW, {'20.2.4', '18.2.7'}, False), (True, NEW, {'18.2.7'}, False),
    # Not known yet, as after a failover.
    (True, NEW, {'20.2.4', ''}, False), (True, NEW, set(), False),
    (True, {'mgr_x': '20.2.4', 'mon_a': '20.2.4'}, {'20.2.4'}, False), (True, {}, {''}, False)])
def test_the_sleep_of_degraded_pgs_is_one_that_all_daemons_have(
        has_option: bool, versions: Dict[str, str], osd_versions: Set[str], own: bool,
        mgr_stub: types.ModuleType) -> None:
    cluster = mgr_cluster(MixedMgr(has_option, **versions))
    assert cluster.degraded_sleep(frozenset(osd_versions)) == (
        'osd_recovery_sleep_degraded' if own else 'osd_recovery_sleep')


def test_notify_types_are_those_that_the_release_knows(mgr_stub: types.ModuleType) -> None:
    from perfguard.compat import notify_types
    assert [kind.value for kind in notify_types('osd_map', 'not_yet')] == ['osd_map']


def test_a_campaign_that_has_not_begun_yet_can_be_followed(shell: Shell) -> None:
    retval, _, error = shell('campaign watch')
    assert retval == -errno.ETIMEDOUT and 'no campaign' in error
    # Before the first turn of the loop that knows of it.
    shell.json('campaign prepare')
    assert shell('campaign watch', until='PREPARED')[0] == 0


def test_a_plan_holds_the_order_of_the_command(shell: Shell,
                                               monkeypatch: pytest.MonkeyPatch) -> None:
    given: List[Any] = []

    def ask(order: Any, *_: Any) -> Any:
        given.append(order)
        return {'plan': 'p'}

    monkeypatch.setattr(shell.driver.loop, 'ask', ask)
    plans: List[Tuple[str, Dict[str, Any]]] = [
        ('expand', {'what': ['osd.8', 'h3'], 'weight': '2'}),
        ('drain', {'what': ['h3'], 'accept': ['PG_LIMIT']}),
        ('crushmap', {'inbuf': '{}', 'prior_version': 7})]
    for change, arguments in plans:
        assert shell('plan save', plan='p', change=change, format='json',
                     **arguments)[0] == 0
    assert [order.order for order in given] == [
        Order('expand', ('osd.8',), ('h3',), '2'), Order('drain', ('h3',), accept=('PG_LIMIT',)),
        Order('crushmap', crush_map=b'{}', prior_version=7)]
    assert shell('plan save', plan='p', change='destroy')[0] == -errno.EINVAL


def test_plans_in_words(shell: Shell) -> None:
    give = shell.driver.give
    shell.driver.cluster.add_waiting()
    # They are 60 % full.
    shell.driver.cluster.sizes = dict.fromkeys(range(99), int((1 << 35) / 0.6))
    assert tables.saved_plans(give(PlanOrder(LS))) == 'no plans'
    saved = give(PlanOrder(SAVE, 'p', Order('expand', weight='1.0')))
    text = tables.saved_plan(saved)
    assert 'plan p' in text and 'plan approve p' in text
    fullest = max((row for row in saved['preview']['osds'] if row['fill_after'] is not None),
                  key=lambda row: row['fill_after'])
    assert re.search('fullest OSD +osd.%d: %.0f %% \\(before %.0f %%\\)' % (
        fullest['osd'], 100 * fullest['fill_after'], 100 * fullest['fill_before']), text)
    names, row = tables.saved_plans(give(PlanOrder(LS))).split('\n')
    assert 'estimated time' in names and row.split()[0] == 'p'
    # As in the preview, from a quarter of the estimate to four times of it.
    estimate, = re.findall(r'estimated time +(\d+ \w+ \(.* to .*\)) ', text)
    assert estimate in row
    assert 'campaign 1 has begun' in tables.approved(give(PlanOrder(APPROVE, 'p')))
    shell.driver.run_to('RELEASING')
    give(PlanOrder(SAVE, 'q', Order('drain', ('h6',))))
    assert 'plan q is queued' in tables.approved(give(PlanOrder(APPROVE, 'q')))
