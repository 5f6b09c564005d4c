# SPDX-License-Identifier: LGPL-2.1-or-later
"""What each command asks of the loop, what it answers, and which arguments are at their limits."""
import errno
import json
import re
import types
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Dict, List, Tuple

import pytest

from perfguard.advise.report import AdviseOrder
from perfguard.cluster.types import Ops, OsdCounters, OsdPlace, Readings
from perfguard.errors import MOST_ERROR_CHARACTERS, Refused
from perfguard.mitigation.types import Revert
from perfguard.probe.orders import (DroppedSchedule, ImportedRun, NewSchedule, RunId, RunOrder)
from perfguard.rebalance.orders import LOSE, Order
from perfguard.rebalance.plans import APPROVE, LS, RM, SAVE, SHOW, PlanOrder
from perfguard.rebalance.requests import Request
from perfguard.shutdown import ShutdownOrder
from perfguard.web.routes import ROUTES
from perfguard.why.causes import Why

from .fakes.driver import Driver
from .fakes.functions import noting
from .test_cli import Shell


@pytest.fixture()
def shell(mgr_stub: types.ModuleType) -> Shell:
    return Shell(Driver())


@pytest.fixture()
def asked(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> List[Any]:
    """The orders of commands, which are answered with a message only."""
    orders: List[Any] = []

    def ask(order: Any, again: bool = False) -> Any:
        orders.append(order)
        return {'message': 'done'}

    monkeypatch.setattr(shell.driver.loop, 'ask', ask)
    return orders


SWITCHES = ('store', 'interference', 'scale', 'by_host')
WINDOW = {'begin_time': '0200', 'end_time': '0400', 'begin_weekday': '1', 'end_weekday': '5',
          'every_days': '2'}
TARGET = {'profile': 'quick', 'pool': 'rep', 'osd': '1', 'host': 'h1', 'device_class': 'ssd',
          'repeat': '3', 'replicas': '2'}


@pytest.mark.parametrize('command, given, order', [
    ('probe run', {}, RunOrder()), ('probe run', TARGET, RunOrder(**TARGET)),  # type: ignore
    ('probe run', {'rw': 'read', 'io_size': '1g', 'inbuf': '[a]'},
     RunOrder(words={'rw': 'read', 'io_size': '1g'}, job_file='[a]')),
    *(('probe run', {name: True}, RunOrder(**{name: True}))  # type: ignore
      for name in (*SWITCHES, 'dry_run', 'during_campaign', 'hold_scrub')),
    ('probe run', {'yes_i_really_mean_it': True}, RunOrder(consent=True)),
    ('preview probe', {'pool': 'rep', 'store': True}, RunOrder(
        pool='rep', store=True, consent=True, during_campaign=True, dry_run=True)),
    ('probe import', {'inbuf': '{}'}, ImportedRun('{}')),
    ('probe cancel', {'run': 3}, RunId('probe cancel', 3)),
    ('probe cancel', {'run': 3, 'force': True}, RunId('probe cancel --force', 3)),
    ('probe rm', {'run': 3}, RunId('probe rm', 3)),
    ('probe baseline', {'run': 3}, RunId('probe baseline', 3)),
    ('probe baseline', {'run': 3, 'rm': True}, RunId('probe baseline --rm', 3)),
    ('probe schedule', {'schedule': 'n'}, NewSchedule('n', RunOrder(trigger='n'), {})),
    ('probe schedule', {'schedule': 'n', **TARGET, **WINDOW, 'store': True},
     NewSchedule('n', RunOrder(trigger='n', store=True, **TARGET), WINDOW)),  # type: ignore
    ('probe schedule', {'schedule': 'n', 'during_campaign': True, 'hold_scrub': True,
                        'yes_i_really_mean_it': True},
     NewSchedule('n', RunOrder(trigger='n', during_campaign=True, hold_scrub=True,
                               consent=True), {})),
    ('probe schedule', {'schedule': 'n', 'rm': True}, DroppedSchedule('n')),
    ('plan ls', {}, PlanOrder(LS)), ('plan show', {'plan': 'p'}, PlanOrder(SHOW, 'p')),
    ('plan rm', {'plan': 'p'}, PlanOrder(RM, 'p')),
    ('plan approve', {'plan': 'p'}, PlanOrder(APPROVE, 'p')),
    ('plan approve', {'plan': 'p', 'token': 't', 'accept': ['pg-limit'], 'dry_run': True},
     PlanOrder(APPROVE, 'p', token='t', accept=('PG_LIMIT',), previews=True)),
    ('plan save', {'plan': 'p', 'change': 'drain', 'what': ['h1'], 'inbuf': ''},
     PlanOrder(SAVE, 'p', Order('drain', ('h1',)))),
    ('plan save', {'plan': 'p', 'change': 'rule', 'what': ['p', 'r'], 'upmaps_max': 0},
     PlanOrder(SAVE, 'p', Order('rule', ('p', 'r'), upmaps_max=0))),
    ('advise mute', {'code': 'pg-limit'}, AdviseOrder('advise mute', 'PG_LIMIT')),
    ('advise unmute', {'code': 'pg-limit'}, AdviseOrder('advise unmute', 'PG_LIMIT')),
    ('why', {'what': 'osd.3'}, Why('osd.3')), ('shutdown', {}, ShutdownOrder()),
    ('shutdown', {'dry_run': True, 'yes_i_really_mean_it': True}, ShutdownOrder(True, True)),
    ('drain', {'what': ['h1']}, Order('drain', ('h1',))),
    ('undrain', {'what': ['h1'], 'dry_run': True}, Order('undrain', ('h1',), dry_run=True)),
    ('replace', {'what': ['h1'], 'remove': True}, Order('replace', ('h1',), remove=True)),
    ('pg_num', {'pool': 'rep'}, Order('pg_num', ('rep',))),
    ('balance', {}, Order('balance')),
    ('balance', {'deviation': '2'}, Order('balance', deviation='2')),
    ('adopt', {'dry_run': True, 'accept': ['pg-limit']},
     Order('adopt', dry_run=True, accept=('PG_LIMIT',))),
    ('import', {'inbuf': '[]'}, Order('import', mappings=b'[]')),
    ('campaign rollback', {'accept': ['pg-limit']}, Order('rollback', accept=('PG_LIMIT',)))])
def test_the_order_of_a_command(command: str, given: Dict[str, Any], order: Any, shell: Shell,
                                asked: List[Any]) -> None:
    assert shell.json(command, **given) == {'message': 'done'} and asked == [order]


@pytest.mark.parametrize('command, given, text', [
    ('probe import', {}, 'no results: give a file with -i <file>'),
    ('probe import', {'inbuf': ''}, 'no results: give a file with -i <file>'),
    ('probe schedule', {'schedule': 'n', 'rm': True, 'osd': '1'},
     '--rm takes the name of a schedule and nothing else'),
    ('replace', {'what': ['h1'], 'cancel': True, 'accept': ['PG_LIMIT']},
     '--accept does not apply to --cancel'),
    ('replace', {'what': ['h1'], 'cancel': True, 'remove': True},
     '--remove does not apply to --cancel'),
    ('rule', {'pool': 'p', 'rule': 'r', 'upmaps_max': -1},
     '--upmaps-max must be at least 0, not -1'),
    ('preview', {'change': 'expand', 'what_if': '1x1x1T', 'drain': ['h1']},
     '--drain with --what-if does not apply to expand'),
    ('preview', {'change': 'expand', 'drain': ['h1'], 'within': '1d'},
     '--within does not apply to expand'),
    ('drain', {'what': []}, 'drain requires OSDs, hosts or racks'),
    ('import', {}, 'no mappings: give a file with -i <file>'),
    ('why', {'what': 'osd'},
     "'osd' is neither a PG id (such as 1.2f) nor osd.<id> nor \"campaign\""),
    ('events', {'count': 0}, 'count must be at least 1, not 0')])
def test_why_a_command_is_refused(command: str, given: Dict[str, Any], text: str, shell: Shell,
                                  asked: List[Any]) -> None:
    assert shell(command, **given) == (-errno.EINVAL, '', text) and not asked


def test_the_loss_of_osds_is_no_change(mgr_stub: types.ModuleType) -> None:
    from perfguard.cli.changes import CHANGE_TEXTS, order_of
    assert order_of('lose', {'what': ['h1'], 'dry_run': True}) == Order(
        LOSE, ('h1',), dry_run=True)
    names = ', '.join(CHANGE_TEXTS)
    cases: Tuple[Tuple[str, Dict[str, Any], str], ...] = (
        ('lose', {}, names), ('x', {}, names), ('x', {'dry_run': True}, names + ', lose'))
    for change, given, known in cases:
        with pytest.raises(Refused) as refused:
            order_of(change, given)
        assert str(refused.value) == 'unknown change %r: must be one of %s' % (change, known)


def test_each_list_of_changes_has_all_of_them(mgr_stub: types.ModuleType) -> None:
    from perfguard.cli.campaign import CampaignCommands
    from perfguard.cli.changes import CHANGE_TEXTS, PLANNABLE
    for handler, changes in (('preview', (*CHANGE_TEXTS, LOSE)), ('plan_save', PLANNABLE)):
        (field,) = [field for route in ROUTES if route.handler == handler
                    for field in route.fields if field.name == 'change']
        assert field.about == '%s or %s' % (', '.join(changes[:-1]), changes[-1])
    assert field.about in str(CampaignCommands.plan_save.__doc__)
    # Those of the page.
    page = Path(__file__).resolve().parents[1] / 'web' / 'src' / 'orders.ts'
    (texts,) = re.findall(r'const CHANGES = \[(.*?)\]', page.read_text(), re.S)
    assert set(re.findall(r"'(\w+)'", texts)) == set(PLANNABLE)


def test_growth_takes_a_class_and_buckets(mgr_stub: types.ModuleType) -> None:
    from perfguard.cli.changes import order_of
    assert order_of('expand', {'what_if': '1x2x3T', 'under': ['r1,r2'], 'class_': 'ssd',
                               'accept': ['PG_LIMIT'], 'await_': False}) == Order(
        'expand', what_if='1x2x3T', under=('r1', 'r2'), device_class='ssd', dry_run=True)


# ---- campaigns

@pytest.mark.parametrize('command, given, request_, message', [
    ('prepare', {}, Request('prepare'),
     'preparing; change CRUSH as soon as "campaign status" shows PREPARED'),
    ('prepare', {'accept': ['pg-limit']}, Request('prepare', accept=('PG_LIMIT',)),
     'preparing; change CRUSH as soon as "campaign status" shows PREPARED'),
    ('pin', {'accept': ['pg-limit']}, Request('pin', accept=('PG_LIMIT',)),
     'pinning; run "campaign start" as soon as "campaign status" shows PINNED'),
    ('start', {}, Request('start'), 'releasing; "campaign status" shows the progress'),
    ('pause', {}, Request('pause'), 'pausing; "campaign resume" continues'),
    ('pause', {'duration': '2h'}, Request('pause', seconds=7200.0),
     'pausing for 2.0 h; "campaign resume" ends the pause early'),
    ('set', {'setting': 'latency-factor=2'}, Request('set', option='latency_factor', value='2'),
     'latency_factor is 2 for this campaign'),
    ('set', {'setting': 'latency_factor='}, Request('set', option='latency_factor'),
     'this campaign uses the module option latency_factor again'),
    ('accept', {'code': 'slow-ops'}, Request('accept', code='SLOW_OPS'),
     'SLOW_OPS stops no releases until it has been absent for 10 minutes'),
    ('accept', {'code': 'PIN_LIMIT'}, Request('accept', code='PIN_LIMIT'),
     'PIN_LIMIT stops no releases of this campaign any longer'),
    ('resume', {}, Request('resume'), 'resuming'),
    ('abort', {}, Request('abort'), 'aborting; pinned PGs stay where they are'),
    ('finish', {}, Request('finish'), 'finishing'),
    ('finish', {'keep': True, 'yes_i_really_mean_it': True},
     Request('finish', keep=True, sure=True), 'finishing')])
def test_the_request_of_a_command(command: str, given: Dict[str, Any], request_: Request,
                                  message: str, shell: Shell,
                                  monkeypatch: pytest.MonkeyPatch) -> None:
    loop = shell.driver.loop
    calls: List[Any] = []
    monkeypatch.setattr(loop, 'request', noting(calls, 'it'))
    monkeypatch.setattr(loop.requests, 'confirm', calls.append)
    monkeypatch.setattr(loop, 'dry_run', noting(calls, ['a', 'b']))
    assert shell.json('campaign ' + command, **given) == {
        'verb': request_.verb, 'dry_run': False, 'message': message}
    assert calls == [(request_, False), 'it']
    del calls[:]
    assert shell.json('campaign ' + command, dry_run=True, **given) == {
        'verb': request_.verb, 'dry_run': True, 'effects': ['a', 'b'], 'message': 'a\nb'}
    assert calls == [(request_, False)]


def test_a_mitigation_is_reverted(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: List[Any] = []
    monkeypatch.setattr(shell.driver.loop, 'request', calls.append)
    monkeypatch.setattr(shell.driver.loop, 'dry_run', lambda revert: ['a', 'b'])
    assert shell.json('mitigation revert', mitigation=5, dry_run=True) == {
        'id': 5, 'dry_run': True, 'effects': ['a', 'b'], 'message': 'a\nb'}
    assert not calls
    assert shell.json('mitigation revert', mitigation=5) == {
        'id': 5, 'dry_run': False, 'message': 'undoing; see "mitigation ls"'}
    assert calls == [Revert(5)]


def test_campaigns_are_listed_with_the_active_one_and_without_bills(shell: Shell) -> None:
    driver = shell.driver
    driver.to_releasing()
    active, = shell.json('campaign ls')['campaigns']
    assert active['id'] == 1 and active['phase'] == 'RELEASING' and 'bill' not in active
    driver.run_to('DONE')
    ended, = shell.json('campaign ls')['campaigns']
    assert ended['phase'] == 'DONE' and 'bill' not in ended
    shell.json('campaign prepare')
    driver.run_to('PREPARED')
    assert [row['id'] for row in shell.json('campaign ls')['campaigns']] == [1, 2]
    assert shell('campaign ls')[1].count('PREPARED') == 1
    assert 'bill' in shell.json('campaign show', campaign=1)
    assert 'DONE' in shell('campaign show', campaign=1)[1]
    assert shell('campaign show', campaign=3) == (
        -errno.ENOENT, '', 'campaign 3 does not exist (see "campaign ls")')


@pytest.mark.parametrize('vectors, text', [
    (0, ''), (1, '1 PG is left out: a pg_upmap entry has no from/to pairs'),
    (2, '2 PGs are left out: a pg_upmap entry has no from/to pairs')])
def test_mappings_are_exported(vectors: int, text: str, shell: Shell,
                               monkeypatch: pytest.MonkeyPatch) -> None:
    orders: List[Any] = []
    mappings = [{'pgid': '1.0', 'mapping': {'from': 1, 'to': 2}}]
    monkeypatch.setattr(shell.driver.loop, 'ask', noting(
        orders, {'mappings': mappings, 'vectors': vectors}))
    assert shell('campaign export') == (0, json.dumps(mappings, indent=2), text)
    assert shell('campaign export', format='json') == (0, json.dumps(mappings), text)
    assert orders == [(Order('export', dry_run=True), False)] * 2


# ---- what is shown

def test_the_advice_is_computed_again_on_demand(shell: Shell,
                                                monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shell.driver.loop, 'advise', lambda: {'advised': 'again'})
    assert shell.json('advise', refresh=True) == {'advised': 'again'}
    assert 'findings' in shell.json('advise')


@pytest.mark.parametrize('command, given, method, arguments', [
    ('pools', {'expected': True}, 'expected_json', []),
    ('probe ls', {}, 'everything', []), ('probe baseline ls', {}, 'everything', []),
    ('probe show', {}, 'details', [None]), ('probe show', {'run': 3}, 'details', [3]),
    ('probe compare', {'before': 1, 'after': 2}, 'compared', [1, 2])])
def test_what_is_shown_of_probes(command: str, given: Dict[str, Any], method: str,
                                 arguments: List[Any], shell: Shell,
                                 monkeypatch: pytest.MonkeyPatch) -> None:
    calls: List[Any] = []

    def shown(*given: Any) -> Any:
        calls.extend(given)
        return {'shown': method}

    monkeypatch.setattr(shell.driver.loop, 'probed', lambda: SimpleNamespace(**{method: shown}))
    assert shell.json(command, **given) == {'shown': method} and calls == arguments


def test_the_capacity_of_pools(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: List[Any] = []
    monkeypatch.setattr(shell.driver.loop, 'probed', lambda: SimpleNamespace(
        capacity_json=noting(calls, {'pools': []})))
    assert shell('pools', capacity=True) == (0, 'no pools', '')
    assert calls == [(shell.driver.loop.published.watched.uses, shell.driver.loop.clock())]


def test_the_number_of_events(shell: Shell) -> None:
    shell.driver.to_pinned()
    last, = shell.json('events', count=1)['events']
    assert last == shell.json('events')['events'][-1]


def watched_for(shell: Shell, turns: int) -> None:
    """Of two OSDs in hosts h3 and h4, so many readings."""
    each = Ops(0, 0)
    for turn in range(1, turns + 1):
        each = Ops(each.sum_ns + 50 * 10 ** 6, each.number + 100)
        shell.driver.cluster.read = Readings(
            seconds=2.0, counters={osd: OsdCounters(2.0 * turn, each, each, each, each, each)
                                   for osd in (3, 4)},
            clients=(), places={osd: OsdPlace(osd, 'h%d' % osd, 'default', 'ssd', 'm')
                                for osd in (3, 4)})
        shell.driver.run(2)


def test_an_export_has_at_most_so_many_points(shell: Shell,
                                              monkeypatch: pytest.MonkeyPatch) -> None:
    from perfguard.cli import watch
    watched_for(shell, 3)
    points = sum(len(shell.json('history', what=osd)['points']) for osd in ('osd.3', 'osd.4'))
    monkeypatch.setattr(watch, 'MOST_EXPORTED', points)
    assert shell.json('history', export=True)['of'] == 'cluster'
    assert shell.json('history', export=True, week=True)['rows'] == []
    monkeypatch.setattr(watch, 'MOST_EXPORTED', points - 1)
    assert shell('history', export=True) == (
        -errno.E2BIG, '', 'the history of 2 OSDs has %d points (limit %d): export a host or '
        'osd.<id>' % (points, points - 1))
    assert shell('history', what='h5', export=True) == (
        -errno.ENOENT, '', "no OSDs to export of 'h5': must be cluster, a host, or osd.<id>")


def test_a_history_fits_a_screen(shell: Shell) -> None:
    watched_for(shell, 30)
    whole = shell('history', all_=True)[1]
    for format in (None, 'plain'):
        assert 10 < len(shell('history', format=format)[1].splitlines()) <= 24
        assert len(whole.splitlines()) > 24
        assert shell('history', format=format, all_=True)[1] == whole


# ---- refusals

def test_a_refusal_is_one_printable_line(mgr_stub: types.ModuleType) -> None:
    from perfguard.cli.shell import line
    most = MOST_ERROR_CHARACTERS
    for text, shown in (('a\nb\x1b', 'a\\nb\\x1b'), ('x' * most, 'x' * most),
                        ('x' * (most + 1), 'x' * (most - 3) + '...'),
                        ('\n' * most, '\\n' * (most // 2 - 2) + '\\...'),
                        ('\n' * (most // 2), '\\n' * (most // 2))):
        assert line(text) == shown and len(line(text)) <= most


@pytest.mark.parametrize('report_seconds, calls', [(60.0, 6), (5.0, 6), (2.0, 3), (0.0, 1)])
def test_how_long_a_command_is_patient(report_seconds: float, calls: int,
                                       mgr_stub: types.ModuleType,
                                       monkeypatch: pytest.MonkeyPatch) -> None:
    """The first refusal is reported, which names other risks as well."""
    from perfguard.cli import shell as module
    now, again, woken = [100.0], [], []
    monkeypatch.setattr(module, 'time', SimpleNamespace(
        monotonic=lambda: now[0], sleep=lambda seconds: now.append(now.pop() + seconds)))

    def ask(is_repeated: bool) -> Any:
        again.append(is_repeated)
        raise Refused(errno.EPERM, 'refusal %d' % len(again), not_fit=True)

    with pytest.raises(Refused, match='^refusal 1$'):
        module.patiently(ask, report_seconds, lambda: woken.append(now[0]))
    assert again == [False] + [True] * (calls - 1)
    assert woken == [100.0 + second for second in range(calls - 1)]


def test_a_command_waits_for_the_first_turn(shell: Shell, asked: List[Any]) -> None:
    shell.driver.restart()
    shell.module.loop = shell.driver.loop
    retval, _, text = shell('held')
    assert retval == -errno.EAGAIN and text
