# SPDX-License-Identifier: LGPL-2.1-or-later
"""The table of the REST API, against the commands that it stands for."""
import errno
import importlib
import inspect
import re
import types
from typing import Any, Dict, List

import pytest

from perfguard.rebalance.requests import VERBS
from perfguard.web.routes import (LARGEST_BODY, LARGEST_FILE_BODY, MAY_READ, OVERVIEW_FIELDS,
                                  ROUTES, BadField, Route, arguments, http_status, largest_body,
                                  refuse_twice)

from ..fakes.mgr_module import COMMANDS

#: Handlers of the changes that `preview` shows.
PREVIEWED = {'expand', 'drain', 'undrain', 'replace', 'rule', 'pg_num', 'balance', 'crushmap',
             'adopt', 'import_mappings', 'campaign_rollback'}
#: Parameters that are not the caller's to give: Ceph's and the format. "all" concerns a text only.
OWN = {'self', 'format', 'all'}


@pytest.fixture(scope='module')
def handlers(mgr_stub: types.ModuleType) -> Dict[str, List[str]]:
    """Handler -> its parameters, of all commands."""
    importlib.import_module('perfguard.cli')
    return {handler.__name__: [name for name in inspect.signature(handler).parameters
                               if name not in OWN] for _, handler in COMMANDS.values()}


def route(handler: str) -> Route:
    return next(each for each in ROUTES if each.handler == handler)


def test_every_command_has_one_route(handlers: Dict[str, List[str]]) -> None:
    # A request is answered once: clients follow a campaign themselves.
    assert sorted(each.handler for each in ROUTES) == sorted({*handlers} - {'campaign_watch'})
    paths = [(each.method, each.path) for each in ROUTES]
    assert len(set(paths)) == len(paths)


@pytest.mark.parametrize('each', ROUTES, ids=lambda each: each.handler)
def test_fields_are_the_parameters_of_the_command(
        each: Route, handlers: Dict[str, List[str]]) -> None:
    given = [field.parameter or field.name for field in each.fields]
    assert sorted(given) == sorted(handlers[each.handler])
    in_path = set(re.findall(r'\{(\w+)\}', each.path))
    assert in_path <= {field.name for field in each.fields if field.required}
    preview = each.path.startswith('/preview')
    assert (each.permission == MAY_READ) == (each.method == 'GET' or preview)
    assert preview == each.handler.startswith('preview')


@pytest.mark.parametrize('handler, given, expected', [
    ('campaign_prepare', {}, {}),
    ('campaign_prepare', {'accept': ['LAGGY']}, {'accept': ['LAGGY']}),
    ('campaign_prepare', {'accept': None}, {}),
    ('crushmap', {'crush_map': 'tunable'}, {'inbuf': 'tunable'}),
    ('expand', {'what': 'osd.8,h1', 'weight': 1.5}, {'what': ['osd.8', 'h1'], 'weight': '1.5'}),
    ('drain', {'what': ['osd.1', 2]}, {'what': ['osd.1', '2']}),
    ('events', {'count': '7'}, {'count': 7}),
    ('history', {'week': 'true', 'what': 'a=b'}, {'week': True, 'what': 'a=b'}),
    ('probe_run', {'iodepth': 32, 'pool': '"><b>'}, {'iodepth': '32', 'pool': '"><b>'}),
])
def test_arguments(handler: str, given: Dict[str, Any], expected: Dict[str, Any]) -> None:
    assert arguments(route(handler).fields, given) == expected


@pytest.mark.parametrize('handler, given, named', [
    ('campaign_prepare', {'accept': {}}, 'accept'), ('campaign_prepare', {'accept': 1}, 'accept'),
    ('campaign_prepare', {'farce': True}, 'farce'),
    ('campaign_start', {'accept': ['LAGGY']}, 'accept'),
    ('drain', {}, 'what'), ('drain', {'what': None}, 'what'), ('drain', {'what': ''}, 'what'),
    ('drain', {'what': []}, 'what'), ('expand', {'what': []}, 'what'),
    ('drain', {'what': {'a': 1}}, 'what'), ('drain', {'what': [['a']]}, 'what'),
    ('drain', {'what': [True]}, 'what'), ('campaign_show', {'campaign': '-1'}, 'campaign'),
    ('campaign_show', {'campaign': '1' * 40}, 'campaign'),
    ('campaign_show', {'campaign': '²'}, 'campaign'),
    ('probe_show', {'run': True}, 'run'), ('probe_run', {'pool': 3}, 'pool'),
    ('probe_run', {'bs': True}, 'bs'), ('probe_run', {'bs': ['4k']}, 'bs'),
    ('crushmap', {'crush_map': 5}, 'crush_map'),
])
def test_what_cannot_be_taken_is_named(handler: str, given: Dict[str, Any], named: str) -> None:
    with pytest.raises(BadField, match="field '%s'" % named):
        arguments(route(handler).fields, given)


@pytest.mark.parametrize('handler, given, text', [
    ('campaign_prepare', {'farce': True},
     "unknown field 'farce'; must be one of: accept, dry_run"),
    ('status', {'farce': True}, "unknown field 'farce'; must be one of: none"),
    ('drain', {}, "field 'what' is missing"),
    ('drain', {'what': [None]}, "field 'what' must be a string or a number, not None"),
    ('drain', {'what': ''}, "field 'what' must be a list of names or IDs, not ''"),
    ('campaign_show', {'campaign': 'x' * 50},
     "field 'campaign' must be an integer of at least 0, not '%s" % ('x' * 39)),
    ('campaign_show', {'campaign': '1' * 16},
     "field 'campaign' must be an integer of at least 0, not '1111111111111111'"),
    ('campaign_show', {'campaign': -1},
     "field 'campaign' must be an integer of at least 0, not -1"),
    ('campaign_show', {'campaign': 1.0},
     "field 'campaign' must be an integer of at least 0, not 1.0"),
    ('probe_run', {'pool': 3}, "field 'pool' must be a text, not 3"),
    ('campaign_start', {'dry_run': 'yes'}, "field 'dry_run' must be true or false, not 'yes'"),
    ('campaign_start', {'dry_run': 1}, "field 'dry_run' must be true or false, not 1")])
def test_why_a_field_is_refused(handler: str, given: Dict[str, Any], text: str) -> None:
    with pytest.raises(BadField) as refused:
        arguments(route(handler).fields, given)
    assert str(refused.value) == text


@pytest.mark.parametrize('value, taken', [
    ('0', 0), (0, 0), ('9' * 15, 10 ** 15 - 1), (1 << 70, 1 << 70)])
def test_integers_are_taken(value: Any, taken: int) -> None:
    assert arguments(route('campaign_show').fields, {'campaign': value}) == {'campaign': taken}


@pytest.mark.parametrize('value, taken', [
    ('true', True), ('false', False), (True, True), (False, False)])
def test_switches_are_taken(value: Any, taken: bool) -> None:
    assert arguments(route('campaign_start').fields, {'dry_run': value}) == {'dry_run': taken}


@pytest.mark.parametrize('value, is_valid', [
    (0, True), ('0', True), (0.5, True), (999999999999999.0, True), (1e15, False), (-0.1, False),
    (False, False), ({}, False)])
def test_numbers_are_from_0_to_10_to_the_15th(value: Any, is_valid: bool) -> None:
    if is_valid:
        assert arguments(OVERVIEW_FIELDS, {'since': value}) == {'since': float(value)}
    else:
        with pytest.raises(BadField) as refused:
            arguments(OVERVIEW_FIELDS, {'since': value})
        assert str(refused.value) == "field 'since' must be a number of at least 0, not %r" % value


@pytest.mark.parametrize('since', ['x', 'nan', 'inf', '-1', True, None, [], '1e999'])
def test_times_that_are_none(since: Any) -> None:
    if since is None:
        assert arguments(OVERVIEW_FIELDS, {'since': None}) == {}
        return
    with pytest.raises(BadField, match="field 'since'"):
        arguments(OVERVIEW_FIELDS, {'since': since})


def test_the_overviews_own_fields() -> None:
    assert arguments(OVERVIEW_FIELDS, {'since': '17.5', 'pools': '1,2'}) == {
        'since': 17.5, 'pools': ['1', '2']}


def test_the_body_does_not_override_the_path() -> None:
    with pytest.raises(BadField, match="field 'rung' is already in the path"):
        refuse_twice(['rung'], {'rung': 5})
    refuse_twice(['rung'], {'force': True})


def test_a_long_text_is_not_repeated_whole() -> None:
    with pytest.raises(BadField) as caught:
        arguments(route('probe_show').fields, {'run': 'x' * 10000, 'y' * 10000: 1})
    assert len(str(caught.value)) < 200


@pytest.mark.parametrize('code, status', [
    (-errno.EINVAL, 400), (-errno.ENOENT, 404), (errno.EBUSY, 409), (-errno.EEXIST, 409),
    (-errno.EPERM, 409), (-errno.EAGAIN, 503), (-errno.ETIMEDOUT, 504)])
def test_http_status(code: int, status: int) -> None:
    assert http_status(code) == status


def test_every_dry_run_has_a_preview_for_those_who_may_only_read(
        handlers: Dict[str, List[str]]) -> None:
    """Ceph checks capabilities by a command's prefix, regardless of its options. What a verb of
    the campaign would do follows from "campaign status", what others would undo from "held"."""
    of_status = {'plan_approve', 'mitigation_revert', 'shut_down', *(
        'campaign_' + verb for verb in VERBS)}
    switches = {'dry_run', 'during_campaign', 'hold_scrub', 'yes_i_really_mean_it'}
    assert {handler for handler, given in handlers.items() if 'dry_run' in given} == {
        *PREVIEWED, *of_status, 'probe_run'}
    assert handlers['preview_probe'] == [name for name in handlers['probe_run']
                                         if name not in switches]


def test_only_files_are_large() -> None:
    """Bodies are read before the dashboard looks who sends them."""
    for prefix in ('/api/perfguard', '/proxied/api/perfguard'):
        for route in ROUTES:
            with_file = route.handler in (
                'crushmap', 'import_mappings', 'preview', 'plan_save', 'plan_ls', 'probe_import')
            largest = LARGEST_FILE_BODY if with_file else LARGEST_BODY
            assert largest_body(prefix + route.path) == largest
    assert LARGEST_BODY == 65536
