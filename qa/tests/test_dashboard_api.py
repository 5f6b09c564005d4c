# SPDX-License-Identifier: LGPL-2.1-or-later
"""The REST API, and how the page is served, in the real dashboards of real clusters.

The tests of a release share one cluster; those at the end break something of it.
"""
import json
import time
from typing import Any, Dict, Iterator, List, Tuple

import pytest

from perfguard.web.routes import ROUTES

from qa.lib.clusters import ClusterFactory
from qa.lib.guard import FAST_CONF, Guard
from qa.lib.probes import ENDED, SHORT
from qa.lib.restapi import ADMIN, API, NOBODY, READER, Request, RestApi

pytestmark = pytest.mark.releases('pacific', 'reef', 'tentacle', quick='reef')

HOSTILE = ('<img src=x onerror=alert(1)>', '"><script>alert(2)</script>', "a'b&lt;c")
#: Bytes, one more than a body may have.
LARGER = (64 << 10) + 1
#: Cross-site forms can send these, and only these.
FORM_TYPES = ('text/plain', 'application/x-www-form-urlencoded', 'multipart/form-data; boundary=x',
              '')

READS = {
    '/status': 'status', '/events?count=5': 'events', '/osds': 'osds', '/pools': 'pools',
    '/laggy': 'laggy', '/held': 'held', '/advice': 'advise',
    '/history?what=osd.1': 'history',
    '/history?what=p&week=true': 'history',
    '/mitigation': 'mitigation ls', '/campaign': 'campaign status',
    '/plan': 'plan ls', '/campaigns': 'campaign ls', '/probe': 'probe ls'}

#: Each would do something, or find the campaign or the probe missing.
ACTIONS = (
    *(Request('POST', '/campaign/' + verb, {}) for verb in (
        'prepare', 'pin', 'start', 'pause', 'resume', 'abort', 'rollback', 'finish')),
    Request('POST', '/campaign/accept', {'code': 'DEGRADED'}),
    Request('POST', '/campaign/set', {'setting': 'latency_factor=2'}),
    Request('POST', '/expand', {}), Request('POST', '/adopt', {}),
    Request('POST', '/shutdown', {}),
    *(Request('POST', '/advice/SCRUBS_BEHIND/' + verb, {}) for verb in ('mute', 'unmute')),
    Request('POST', '/drain', {'what': ['osd.0']}),
    Request('POST', '/undrain', {'what': ['osd.0']}),
    Request('POST', '/replace', {'what': ['osd.0'], 'cancel': True}),
    Request('POST', '/crushmap', {'crush_map': 'nonsense'}),
    Request('POST', '/balance', {'what': ['nosuch']}),
    Request('POST', '/rule', {'pool': 'p', 'rule': 'nosuch'}),
    Request('POST', '/pg_num', {'pool': 'nosuch', 'pg_num': 8}),
    Request('POST', '/import', {'mappings': 'nonsense'}),
    Request('POST', '/plan', {'plan': 'next', 'change': 'drain', 'what': ['osd.0']}),
    Request('DELETE', '/plan/next'),
    Request('POST', '/plan/next/approve', {}),
    Request('POST', '/mitigation/1/revert', {}),
    Request('POST', '/probe', SHORT), Request('POST', '/probe/1/cancel', {}),
    Request('POST', '/probe/import', {'results': 'nonsense'}),
    Request('DELETE', '/probe/1'), Request('POST', '/baseline', {'run': 1}),
    Request('POST', '/schedule', {'schedule': 'nightly', 'profile': 'quick'}))

#: What does not exist, and the words that say so.
MISSING = (
    (Request('GET', '/probe/99'), 'probe 99 does not exist'),
    (Request('DELETE', '/probe/99'), 'probe 99 does not exist'),
    (Request('POST', '/probe/99/cancel', {}), 'probe 99'),
    (Request('POST', '/probe/99/cancel', {'force': True}), 'probe 99 does not exist'),
    (Request('GET', '/probe/compare?before=98&after=99'), 'probe 98 does not exist'),
    (Request('GET', '/campaigns/99'), 'campaign 99 does not exist'),
    (Request('GET', '/plan/nosuch'), 'nosuch'),
    (Request('DELETE', '/plan/nosuch'), 'nosuch'),
    (Request('POST', '/plan/nosuch/approve', {}), 'nosuch'),
    (Request('POST', '/mitigation/99/revert', {}), '99'),
    (Request('POST', '/baseline', {'run': 99}), 'probe 99 does not exist'),
    (Request('POST', '/baseline', {'run': 99, 'rm': True}), '99'),
    (Request('POST', '/schedule', {'schedule': 'nosuch', 'rm': True}), 'nosuch'),
    (Request('GET', '/history?what=osd.99'), 'osd.99'),
    (Request('GET', '/why?what=osd.99'), 'osd.99'),
    (Request('POST', '/probe', {'pool': 'nosuch', **SHORT}), "'nosuch'"),
    (Request('GET', '/nosuch'), 'nosuch'), (Request('GET', '/probe/1/nosuch'), 'nosuch'))

#: What cannot be meant, and the field that the answer names.
BAD = (
    (Request('POST', '/campaign/prepare', {'accept': 1}), "'accept'"),
    (Request('POST', '/campaign/prepare', {'accept': ['NOSUCH']}), "'NOSUCH'"),
    (Request('POST', '/campaign/prepare', {'forse': True}), "unknown field 'forse'"),
    (Request('POST', '/campaign/finish', {'keep': {}}), "'keep'"),
    (Request('POST', '/expand', {'what': {'a': 1}}), "'what'"),
    (Request('POST', '/expand', {'weight': [1]}), "'weight'"),
    (Request('POST', '/expand', {'weight': 'much'}), 'not a number'),
    (Request('POST', '/drain', {}), "'what' is missing"),
    (Request('POST', '/drain', {'what': None}), "'what' is missing"),
    (Request('POST', '/drain', {'what': [None]}), "'what'"),
    (Request('POST', '/crushmap', {}), "'crush_map' is missing"),
    (Request('POST', '/crushmap', {'crush_map': 'nonsense'}), 'CRUSH map'),
    (Request('POST', '/probe', {'pool': 7}), "'pool'"),
    (Request('POST', '/probe', {'runtime': 'ten'}), 'runtime'),
    (Request('POST', '/probe', {'runtime': True}), "'runtime'"),
    (Request('POST', '/probe', {'no such field': 1}), "unknown field 'no such field'"),
    (Request('POST', '/baseline', {}), "'run' is missing"),
    (Request('POST', '/baseline', {'run': -1}), "'run'"),
    (Request('POST', '/baseline', {'run': 1.5}), "'run'"),
    (Request('POST', '/schedule', {'schedule': ['a']}), "'schedule'"),
    (Request('POST', '/schedule', {'profile': 'quick'}), "'schedule' is missing"),
    (Request('POST', '/schedule', {'schedule': HOSTILE[0], 'profile': 'quick'}), HOSTILE[0]),
    (Request('POST', '/probe', b'{"rw": '), 'not JSON'),
    (Request('POST', '/probe', b'\xff\xfe'), 'not JSON'),
    (Request('POST', '/probe', b'["rw"]'), 'must be a JSON object'),
    (Request('POST', '/probe', b'"rw"'), 'must be a JSON object'),
    (Request('GET', '/events?count=many'), "'count'"),
    (Request('GET', '/events?count=-1'), "'count'"),
    (Request('GET', '/events?count=0'), 'count'), (Request('GET', '/events?nosuch=1'), "'nosuch'"),
    (Request('GET', '/history?week=perhaps'), "'week'"),
    (Request('GET', '/overview?since=yesterday'), "'since'"),
    (Request('GET', '/overview?since=nan'), "'since'"),
    (Request('GET', '/probe/compare?before=1'), "'after' is missing"),
    (Request('GET', '/probe/first'), "'run'"))


@pytest.fixture(scope='module')
def api(release: str, cluster_factory: ClusterFactory) -> Iterator[RestApi]:
    cluster = cluster_factory(release, osds=6, hosts=3, conf=FAST_CONF)
    cluster.pool_create('p', 16)
    for name in HOSTILE:
        cluster.pool_create(name, 1)
    guard = Guard(cluster)
    dashboard = cluster.dashboard('/ceph')
    guard.wait_ready()
    yield RestApi(guard, dashboard)
    # Not beside the next release's cluster.
    cluster.down()


def what_is_done(guard: Guard) -> Tuple[Any, ...]:
    """All that an action would change."""
    kept = [key for key in guard.store_keys()
            if not key.startswith(('events/', 'events_recent/', 'history/', 'watch/'))]
    return (guard.foreign(), guard.upmaps(), kept, guard.status()['phase'],
            guard.get('probe ls'), guard.cluster.mon('osd tree')['nodes'])


# ---- what is answered

def test_reads_are_the_commands_answers(api: RestApi) -> None:
    api.cluster.wait_clean(30)
    for path, command in READS.items():
        if '?' in path:
            # The first samples are not there yet.
            answer = api.cluster.wait(lambda: found(api, path), 20, path)
        else:
            # The loop may turn between the two.
            answer = api.cluster.wait(lambda: same(api, path, command), 20,
                                      f'{path} and {command} to be the same')
        assert api.send(Request('GET', path), READER).status == 200
        assert answer, path
    assert api.get('/history?what=p')['of'] == 'p'
    assert (api.send(Request('GET', '/campaign/export')).json()
            == json.loads(api.guard.ask('campaign export', format='json')[1]))


def found(api: RestApi, path: str) -> Any:
    answer = api.send(Request('GET', path))
    return answer.json() if answer.status == 200 else None


def same(api: RestApi, path: str, command: str) -> Any:
    answer, printed = api.get(path), api.guard.get(command)
    for each in (answer, printed):
        each.pop('age_seconds', None)
    return answer if answer == printed else None


def test_overview_is_all_that_the_page_needs(api: RestApi) -> None:
    found = api.get('/overview')
    assert found['user'] == ADMIN and found['name'] == api.cluster.active_mgr()
    assert found['may'] == {'create': True, 'update': True, 'delete': True}
    assert abs(found['now'] - time.time()) < 60 and found['turned'] <= found['now']
    # The page knows its own address.
    assert {*found['status'], 'page'} == {*api.get('/status')}
    assert found['rebalance'].keys() == {*api.get('/campaign'), 'unpinnable_count'}
    columns, rows = (found['series']['cluster'][key] for key in ('columns', 'rows'))
    assert columns[:2] == ['time', 'seconds'] and {len(row) for row in rows} == {len(columns)}
    last = rows[-1][0]
    later = api.get(f'/overview?since={last}')
    assert all(row[0] > last for row in later['series']['cluster']['rows'])
    assert all(event['time'] > last for event in later['events'])
    pool = next(row['id'] for row in api.get('/pools')['pools'] if row['pool'] == 'p')
    assert list(api.get(f'/overview?pools={pool}')['series']['pools']) == [str(pool)]
    read = api.send(Request('GET', '/overview'), READER).json()
    assert read['user'] == READER
    assert read['may'] == {'create': False, 'update': False, 'delete': False}


def test_rebalance_over_the_api(api: RestApi) -> None:
    for verb in ('resume', 'start', 'pin'):
        word = api.guard.refused(verb)
        found = api.refused(Request('POST', '/campaign/' + verb, {}), 404, word)
        assert found['component'] == 'perfguard' and found['detail'] == word
    before = api.guard.foreign()
    api.cluster.wait_clean(30)
    assert api.done('POST', '/campaign/prepare')['verb'] == 'prepare'
    api.guard.wait_phase('PREPARED')
    found = api.refused(Request('POST', '/campaign/resume', {}), 409, '')
    assert found['detail'] == api.guard.refused('resume')
    assert api.done('POST', '/campaign/abort', {})['verb'] == 'abort'
    ended = api.guard.wait_phase('ABORTED', 'DONE')
    assert api.get(f'/campaigns/{ended["id"]}')['id'] == ended['id']
    assert api.get('/campaigns')['campaigns'][-1]['id'] == ended['id']
    assert api.guard.foreign() == before


def test_orders_over_the_api(api: RestApi) -> None:
    """They are given dry: what they do is another test's."""
    before = what_is_done(api.guard)
    found = api.done('POST', '/drain', {'what': ['osd.0'], 'dry_run': True})
    assert found['pgs'] > 0
    api.refused(Request('POST', '/expand', {'weight': 1, 'dry_run': True}), 404,
                'no new OSD of CRUSH weight 0')
    api.refused(Request('POST', '/undrain', {'what': 'osd.0', 'dry_run': True}), 404,
                'not drained by perfguard')
    assert what_is_done(api.guard) == before
    api.cluster.wait(lambda: api.guard.log_lines(
        "perfguard: POST '/ceph/api/perfguard/undrain' by '%s'" % ADMIN), 20,
        'the entry of the last request in the audit log')


def test_probes_over_the_api(api: RestApi) -> None:
    api.cluster.wait_clean(60)
    runs = [probe(api), probe(api)]
    shown = api.get(f'/probe/{runs[0]}')
    assert shown['state'] == 'done' and shown['jobs']
    assert api.get(f'/probe/compare?before={runs[0]}&after={runs[1]}')['verdict']
    api.done('POST', '/baseline', {'run': runs[0]})
    assert [row['id'] for row in api.get('/probe')['baselines']] == [runs[0]]
    api.done('POST', '/baseline', {'run': runs[0], 'rm': True})
    assert api.get('/probe')['baselines'] == []
    api.refused(Request('POST', f'/probe/{runs[0]}/cancel', {}), 400, 'is not active')
    assert len(api.get('/events')['events']) > len(api.get('/events?count=1')['events']) == 1
    for run in runs:
        api.done('DELETE', f'/probe/{run}')
    assert not {row['id'] for row in api.get('/probe')['probes']} & set(runs)
    # Not due in the days of this test, wherever the mgr's midnight is.
    days = [(time.gmtime().tm_wday + ahead) % 7 for ahead in (4, 5)]
    api.done('POST', '/schedule', {'schedule': 'nightly', 'profile': 'quick', 'every_days': 2,
                                   'begin_weekday': days[0], 'end_weekday': days[1]})
    for listed in (api.get('/probe'), api.get('/overview')):
        assert [row['name'] for row in listed['schedules']] == ['nightly']
    api.done('POST', '/schedule', {'schedule': 'nightly', 'rm': True})
    assert api.get('/probe')['schedules'] == []


def probe(api: RestApi) -> int:
    """The id of a completed probe; refused while the cluster settles."""
    def begun() -> Any:
        answer = api.send(Request('POST', '/probe', {
            'rw': 'randwrite', 'pool': 'p', **SHORT, 'iodepth': 2}))
        assert answer.status in (200, 409, 503), answer
        return answer.status == 200 and answer.json()

    run = int(api.cluster.wait(begun, 40, 'the probe to begin')['id'])
    api.cluster.wait(lambda: api.get(f'/probe/{run}')['state'] in ENDED, 60, 'the end of a probe')
    return run


# ---- what is refused

def test_no_login(api: RestApi) -> None:
    before = what_is_done(api.guard)
    for request in (*(Request('GET', path) for path in (
            *READS, '/overview', '/campaign/export')), *ACTIONS):
        api.refused(request, 401, 'not authorized', user=NOBODY)
    for path in ('', '/page.js', '/nosuch'):
        assert api.page(path, NOBODY).status == 401
    assert what_is_done(api.guard) == before


def test_reader_may_not_act(api: RestApi) -> None:
    before = what_is_done(api.guard)
    for request in ACTIONS:
        api.refused(request, 403, '', user=READER)
    assert what_is_done(api.guard) == before


def test_all_actions_are_tried() -> None:
    """No route is added without a test of who may use it."""
    tried = {(request.method, len(request.path.split('/'))) for request in ACTIONS}
    wanted = {(route.method, len(route.path.split('/'))) for route in ROUTES
              if route.method != 'GET'}
    assert tried == wanted
    # Previews are for readers.
    assert len(ACTIONS) == len([route for route in ROUTES if route.method != 'GET'
                                and not route.path.startswith('/preview')])
    assert {path.partition('?')[0] for path in READS} == {
        route.path for route in ROUTES if route.method == 'GET'} - {
            '/probe/{run}', '/probe/compare', '/why', '/campaigns/{campaign}', '/plan/{plan}',
            '/campaign/export'}


def test_missing(api: RestApi) -> None:
    for request, text in MISSING:
        api.refused(request, 404, text)


def test_bad_fields(api: RestApi) -> None:
    before = what_is_done(api.guard)
    for request, text in BAD:
        api.refused(request, 400, text)
    assert api.send(Request('POST', '/probe', b' ' * LARGER)).status == 413
    api.refused(Request('POST', '/probe', b'[' * 50_000), 400, 'not JSON')
    assert what_is_done(api.guard) == before


def test_a_body_is_read_with_any_name_of_its_character_set(api: RestApi) -> None:
    for content_type in ('application/json', 'application/json; charset=utf-8'):
        api.refused(Request('POST', '/campaign/prepare', {'forse': True}), 400, "'forse'",
                    headers={'Content-Type': content_type})


def test_the_body_does_not_override_the_path(api: RestApi) -> None:
    for path, field in (('/mitigation/3/revert', 'mitigation'), ('/probe/1/cancel', 'run')):
        api.refused(Request('POST', path, {field: 5}), 400, 'in the path')
    api.refused(Request('POST', '/campaign/pause', {'self': 1}), 400, "'self'")


def test_unversioned(api: RestApi) -> None:
    for accept in ('', '*/*', 'text/html', 'application/json',
                   'application/vnd.ceph.api.v9.0+json'):
        api.refused(Request('GET', '/status'), 415, 'version', headers={'Accept': accept})


def test_cross_site_forms_do_nothing(api: RestApi) -> None:
    """Even if a browser sent the cookie along, and although scripts may choose what to accept."""
    before = what_is_done(api.guard)
    sent = 0
    for action in ACTIONS:
        for content_type in FORM_TYPES if action.method == 'POST' else ():
            answer = api.send(Request('POST', action.path, b'{"keep": true}'), NOBODY, headers={
                'Cookie': f'token={api.tokens[ADMIN]}', 'Content-Type': content_type})
            assert answer.status in (400, 411, 415), (action, content_type, answer)
            sent += 1
    assert sent >= 40 and what_is_done(api.guard) == before


def test_the_cookie_logs_in(api: RestApi) -> None:
    """It is the dashboard's own, and other sites can neither read it nor have it sent."""
    login = api.dashboard.request('POST', '/api/auth', {
        'username': ADMIN, 'password': api.dashboard.passwords[ADMIN]})
    cookie = login.headers['set-cookie']
    assert 'HttpOnly' in cookie and 'SameSite=Strict' in cookie
    token = cookie.partition(';')[0]
    assert api.send(Request('GET', '/status'), NOBODY, headers={'Cookie': token}).status == 200
    assert api.send(Request('GET', '/status'), NOBODY,
                    headers={'Cookie': token[:-4]}).status == 401


# ---- what names are

def test_hostile_pool_names_are_text(api: RestApi) -> None:
    raw = api.send(Request('GET', '/pools'))
    assert set(HOSTILE) <= {row['pool'] for row in raw.json()['pools']}
    assert raw.headers['x-content-type-options'] == 'nosniff'
    for name in HOSTILE:
        api.refused(Request('POST', '/probe', {'pool': name + 'x', **SHORT}), 404, name)
    page = api.page().body.decode()
    assert '<html' in page and not [name for name in HOSTILE if name in page]


# ---- the page's files

def test_page_is_served(api: RestApi) -> None:
    for user in (ADMIN, READER):
        page = api.page(user=user)
        assert page.status == 200 and page.headers['content-type'].startswith('text/html')
        policy = page.headers['content-security-policy']
        assert "default-src 'none'" in policy and "script-src 'self'" in policy
        assert 'unsafe' not in policy and "frame-ancestors 'self'" in policy
        assert page.headers['x-content-type-options'] == 'nosniff'
    total = 0
    for path, kind in (('', 'text/html'), ('/page.js', 'application/javascript'),
                       ('/page.css', 'text/css')):
        asset = api.page(path)
        assert asset.status == 200 and asset.headers['content-type'].startswith(kind), asset
        assert api.page(path, **{'If-None-Match': asset.headers['etag']}).status == 304
        assert asset.headers['cache-control'] == 'no-cache'
        total += len(asset.body)
    assert total < 300_000


def test_the_page_has_one_address(api: RestApi) -> None:
    slash = api.page('/')
    assert (slash.status, slash.headers['location']) == (303, '../perfguard')
    assert api.page('?theme=dark').body == api.page().body


def test_nothing_else_is_served(api: RestApi) -> None:
    for path in ('/nosuch.js', '/..%2f..%2fmodule.py', '/..%2f__init__.py', '/%2e%2e/module.py',
                 '/../module.py', '/page', '/.', '/%00', '/page.js%00.css'):
        answer = api.page(path)
        assert answer.status == 404, (path, answer)
        assert b'import' not in answer.body


def test_api_is_documented(api: RestApi) -> None:
    documented = api.dashboard.request('GET', '/docs/openapi.json').json()['paths']
    for route in ROUTES:
        operation = documented[API + route.path][route.method.lower()]
        assert operation['summary'] == route.about and operation['security']
        assert 'Perfguard' in operation['tags']
        assert names_of(operation) == {field.name for field in route.fields}


def names_of(operation: Dict[str, Any]) -> 'set[str]':
    """The fields of a path, a query and a body."""
    named = {parameter['name'] for parameter in operation['parameters']}
    body = operation.get('requestBody', {}).get('content', {}).get('application/json', {})
    return named | set(body.get('schema', {}).get('properties', {}))


# ---- what is broken

def test_module_disabled(api: RestApi) -> None:
    cluster = api.cluster
    cluster.mon('mgr module disable', module='perfguard')
    cluster.wait(lambda: api.guard.ask('status')[0] != 0, 60, 'the commands to go')
    api.dashboard.wait_ready()
    for request in (Request('GET', '/status'), Request('GET', '/overview'),
                    Request('POST', '/campaign/prepare', {})):
        api.refused(request, 503, 'the module perfguard is not enabled')
    assert works(api) and api.page().status == 200
    cluster.mon('mgr module enable', module='perfguard')
    api.guard.wait_ready()
    api.dashboard.wait_ready()
    cluster.wait(lambda: api.send(Request('GET', '/status')).status == 200, 30, 'perfguard back')
    assert not api.guard.tracebacks()


def works(api: RestApi) -> List[str]:
    """The pools, from the dashboard's own API."""
    answer = api.dashboard.request('GET', '/api/pool', token=api.tokens[ADMIN])
    assert answer.status == 200, answer
    return [row['pool_name'] for row in answer.json()]


def test_a_broken_package_does_not_affect_the_dashboard(api: RestApi) -> None:
    """Last in this file."""
    cluster = api.cluster
    broken = cluster.directory / 'mgr-modules' / 'perfguard' / 'web' / 'controllers.py'
    broken.write_text('import nosuchmodule\n')
    cluster.restart_mgr()
    api.dashboard.wait_ready()
    assert 'p' in works(api)
    api.refused(Request('GET', '/status'), 404, 'not found')
    assert api.page().status == 404
    with open(cluster.log_path('mgr.' + cluster.active_mgr()), errors='replace') as log:
        assert 'the dashboard goes without perfguard' in log.read()
