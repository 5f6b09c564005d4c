# SPDX-License-Identifier: LGPL-2.1-or-later
"""Flags and values that others have set, in the audit log as the releases write it."""
import datetime
import json
from typing import Any, Dict, FrozenSet, List, Set, Tuple

import pytest

from perfguard.cluster.set_by_others import SetByOthers

#: When the entries arrive.
NOW = datetime.datetime(2026, 11, 27, 1, 17, 3, tzinfo=datetime.timezone.utc).timestamp()
SET, CLEAR = frozenset({'norebalance'}), frozenset({'noout'})
FORMS = {
    'pacific': "from='client.? 127.0.0.1:0/466242006' entity='{}' cmd=[{}]: dispatch",
    'tentacle': "from='client.? 127.0.0.1:0/2559357048' entity='{}' cmd={} : dispatch"}


def entry(second: int, verb: str, entity: str = 'client.admin', flag: str = 'norebalance', *,
          form: str = 'pacific') -> Dict[str, Any]:
    command = json.dumps({'prefix': 'osd ' + verb, 'format': 'json', 'key': flag})
    return {'channel': 'audit', 'stamp': '2026-11-27T01:17:%02d.002169+0000' % second,
            'message': FORMS[form].format(entity, command)}


@pytest.mark.parametrize('form', FORMS)
@pytest.mark.parametrize('entries, standing', [
    ([], set()),
    ([(1, 'set')], {'norebalance'}),
    ([(1, 'set'), (2, 'unset')], set()),
    ([(1, 'set'), (2, 'unset'), (3, 'set')], {'norebalance'}),
    # perfguard has the flag set already, or sets it at the same moment.
    ([(1, 'set', 'mgr.x'), (2, 'set')], {'norebalance'}),
    ([(1, 'set'), (2, 'set', 'mgr.x')], {'norebalance'}),
    ([(1, 'set', 'mgr.x')], set()),
    ([(1, 'set'), (2, 'unset', 'mgr.x'), (3, 'set', 'mgr.x')], set()),
    ([(1, 'set', 'client.admin', 'noout')], {'noout'}),
    ([(1, 'set'), (2, 'unset', 'client.admin', 'noout')], {'norebalance'}),
    # Several mons write the log.
    ([(2, 'unset'), (1, 'set')], set())])
def test_flags_that_stay_set(entries: List[Any], standing: Set[str], form: str) -> None:
    others = SetByOthers()
    for row in entries:
        others.hear(entry(*row, form=form), NOW)
    assert others.flags() == standing


@pytest.mark.parametrize('other', [
    {'channel': 'cluster'}, {'stamp': ''}, {'message': 'osd.3 reported "osd set" norebalance'},
    {'message': "entity='client.admin' cmd=[{\"prefix\": \"osd set\"}]: dispatch"},
    {'message': "entity='client.admin' cmd=[{\"prefix\": \"osd set\": dispatch"},
    {'message': entry(1, 'set')['message'].replace(': dispatch', ':  access denied')}])
def test_other_entries_are_none(other: Dict[str, str]) -> None:
    others = SetByOthers()
    others.hear({**entry(1, 'set'), **other}, NOW)
    others.read([{}], NOW)
    assert not others.flags()


@pytest.mark.parametrize('replayed', [False, True])
def test_a_mon_whose_clock_is_ahead_sets_nothing_for_the_future(replayed: bool) -> None:
    """Its clock is set right before the flag is cleared."""
    others, ahead = SetByOthers(), entry(59, 'set')
    if replayed:
        others.read([ahead], NOW - 3600.0)
    else:
        others.hear(ahead, NOW - 3600.0)
    assert others.flags() == {'norebalance'}
    for seconds in (3599.0, 3590.0):
        late = datetime.datetime.fromtimestamp(NOW - seconds, datetime.timezone.utc)
        others.hear({**entry(0, 'unset'), 'stamp': late.strftime('%Y-%m-%dT%H:%M:%S.%f%z')},
                    NOW - seconds)
    assert not others.flags()


def test_a_mon_whose_clock_is_behind_is_heard() -> None:
    others = SetByOthers()
    others.hear(entry(1, 'set'), NOW)
    others.hear(entry(2, 'unset'), NOW + 7200.0)
    assert not others.flags()
    others.hear(entry(1, 'set'), NOW + 7300.0)
    assert others.flags() == {'norebalance'}


@pytest.mark.parametrize('flags_at, stands', [
    ([(0.0, SET), (100.0, CLEAR), (200.0, SET)], False),
    # The OSDMap does not show the flag yet.
    ([(0.0, CLEAR), (30.0, SET), (900.0, SET)], True),
    # It was set before this mgr became active.
    ([(900.0, SET)], True)])
def test_a_command_ends_with_its_flag_though_the_log_lacks_the_end(
        flags_at: List[Tuple[float, FrozenSet[str]]], stands: bool) -> None:
    others = SetByOthers()
    others.hear(entry(3, 'set'), NOW)
    for seconds, flags in flags_at:
        others.see(flags, NOW + seconds)
    assert bool(others.flags()) == stands


# ---- values

def said(second: int, entity: str = 'client.admin', form: str = 'pacific',
         **command: Any) -> Dict[str, Any]:
    return {'channel': 'audit', 'stamp': '2026-11-27T01:17:%02d.000000+0000' % second,
            'message': FORMS[form].format(entity, json.dumps(command))}


def mode(second: int, value: str, entity: str = 'client.admin', form: str = 'pacific',
         var: str = 'pg_autoscale_mode') -> Dict[str, Any]:
    return said(second, entity, form, prefix='osd pool set', pool='rbd', var=var, val=value)


@pytest.mark.parametrize('form', FORMS)
@pytest.mark.parametrize('prefix, value', [('balancer on', 'true'), ('balancer off', 'false')])
def test_the_balancer_is_switched_by_others(form: str, prefix: str, value: str) -> None:
    others = SetByOthers()
    others.read([said(1, form=form, prefix=prefix, target='mgr')], NOW)
    others.hear(said(2, 'mgr.x', form, prefix='config set', who='mgr', name='mgr/balancer/active',
                     value='true'), NOW)
    assert others.values() == {'mgr/balancer/active': (value, NOW - 2.0)}
    # The mons do not log this: nothing may depend on it.
    others.hear(said(3, form=form, prefix='config set', who='mgr', name='mgr/balancer/active',
                     value='False'), NOW)
    assert others.values() == {'mgr/balancer/active': (value, NOW - 2.0)}


@pytest.mark.parametrize('form', FORMS)
def test_the_last_mode_that_others_have_set_counts(form: str) -> None:
    others = SetByOthers()
    others.read([mode(2, 'off', form=form), mode(1, 'on', form=form),
                 mode(3, 'on', 'mgr.x', form)], NOW)
    assert others.values() == {'pg_autoscale_mode of rbd': ('off', NOW - 1.0)}


@pytest.mark.parametrize('form', FORMS)
@pytest.mark.parametrize('osd', [7, 'osd.7'])
def test_a_primary_affinity_is_set_by_others(osd: Any, form: str) -> None:
    others = SetByOthers()
    others.read([said(1, form=form, prefix='osd primary-affinity', id=osd, weight=0.0),
                 said(2, 'mgr.x', form, prefix='osd primary-affinity', id=osd, weight=1.0)], NOW)
    assert others.values() == {'primary affinity of osd.7': ('0.0', NOW - 2.0)}


@pytest.mark.parametrize('other', [
    mode(1, '32', var='pg_num'), {**mode(1, 'off'), 'channel': 'cluster'},
    {**mode(1, 'off'), 'stamp': ''}, said(1, prefix='balancer status'),
    said(1, prefix='osd pool set', var='pg_autoscale_mode'),
    said(1, prefix='osd primary-affinity', id='7'),
    said(1, prefix='config set', who='mgr', name='mgr/balancer/mode', value='upmap'),
    {**mode(1, 'off'), 'message': mode(1, 'off')['message'].replace(': dispatch', ': denied')}])
def test_other_commands_set_no_value(other: Dict[str, Any]) -> None:
    others = SetByOthers()
    others.hear(other, NOW)
    assert not others.values()
