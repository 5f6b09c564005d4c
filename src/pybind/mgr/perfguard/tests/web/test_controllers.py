# SPDX-License-Identifier: LGPL-2.1-or-later
"""The controllers in a dashboard of the test's own: routes, errors, bodies, the page."""
import errno
import importlib
import inspect
import io
import json
import sys
import types
from typing import Any, Callable, Dict, List, Optional

import pytest

from perfguard.web.routes import DELETE, MAY_READ, ROUTES, UPDATE


class HTTPError(Exception):
    """cherrypy.HTTPError"""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class Failure(Exception):
    """DashboardException"""

    def __init__(self, msg: str, code: str, component: str, http_status_code: int) -> None:
        super().__init__(msg)
        self.code, self.component, self.status = code, component, http_status_code


class Base:
    """BaseController of a user with the permissions in `may`."""
    may = {'read'}

    def _has_permissions(self, permission: str) -> bool:
        return permission in self.may


class Mgr:
    """The dashboard's module: remembers what it was asked for."""
    ClusterLogPrio = types.SimpleNamespace(INFO='info')

    def __init__(self) -> None:
        self.asked: List[Any] = []
        self.audited: List[str] = []
        self.answer: Any = (0, '{"phase": "IDLE"}', '')

    def remote(self, module: str, method: str, **given: Any) -> Any:
        self.asked.append((module, method, given))
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer

    def cluster_log(self, channel: str, priority: str, message: str) -> None:
        assert (channel, priority) == ('audit', 'info')
        self.audited.append(message)


def noted(**notes: Any) -> Callable[[Any], Any]:
    """A decorator that only leaves notes."""
    def decorate(target: Any) -> Any:
        for name, value in notes.items():
            setattr(target, name, value)
        return target
    return decorate


def permission(name: str) -> Callable[[Any], Any]:
    return noted(permission=name)


@pytest.fixture
def web(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The controllers, with the mgr and the cherrypy that they run in."""
    mgr = Mgr()
    request = types.SimpleNamespace(json=None, headers={}, path_info='/perfguard')
    response = types.SimpleNamespace(headers={}, status=200)
    etags: List[Any] = []
    modules: Dict[str, Dict[str, Any]] = {
        'cherrypy': {'HTTPError': HTTPError, 'request': request, 'response': response,
                     'serving': types.SimpleNamespace(request=request),
                     'lib': types.SimpleNamespace(cptools=types.SimpleNamespace(
                         validate_etags=lambda: etags.append(response.headers['ETag'])))},
        'dashboard': {'mgr': mgr},
        'dashboard.controllers': {
            'APIDoc': lambda *args: noted(), 'BaseController': Base,
            'APIRouter': lambda path, scope: noted(path=path, scope=scope),
            'Router': lambda path, security_scope: noted(path=path, scope=security_scope),
            'Endpoint': lambda method, **options: noted(method=method, options=options),
            'EndpointDoc': lambda about, parameters: noted(parameters=parameters),
            'ReadPermission': permission('read'), 'CreatePermission': permission('create'),
            'UpdatePermission': permission('update'), 'DeletePermission': permission('delete')},
        'dashboard.exceptions': {'DashboardException': Failure},
        'dashboard.security': {
            'Scope': types.SimpleNamespace(MANAGER='manager'),
            'Permission': types.SimpleNamespace(MAY_READ='read', CREATE='create', UPDATE='update',
                                                DELETE='delete')},
        'dashboard.services': {},
        'dashboard.services.auth': {
            'JwtManager': types.SimpleNamespace(get_username=lambda: 'alice')}}
    for name, content in modules.items():
        module = types.ModuleType(name)
        vars(module).update(content)
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.delitem(sys.modules, 'perfguard.web.controllers', raising=False)
    controllers = importlib.import_module('perfguard.web.controllers')
    yield types.SimpleNamespace(controllers=controllers, mgr=mgr, request=request, etags=etags,
                                response=response, api=controllers.Perfguard(),
                                page=controllers.PerfguardPage())
    sys.modules.pop('perfguard.web.controllers', None)


# ---- the API

@pytest.mark.parametrize('route', ROUTES, ids=lambda route: route.handler)
def test_each_route_is_an_endpoint_with_its_permission(web: Any, route: Any) -> None:
    method = getattr(web.controllers.Perfguard, route.handler)
    assert (method.method, method.options['path']) == (route.method, route.path)
    assert method.permission == route.permission
    assert set(method.parameters) == {field.name for field in route.fields}
    found = inspect.signature(method).parameters
    for field in route.fields:
        required = found[field.name].default is inspect.Parameter.empty
        assert required == field.required
    in_query = method.options.get('query_params')
    assert (in_query is None) == (route.method not in ('GET', 'DELETE'))


def test_both_controllers_need_the_managers_scope(web: Any) -> None:
    for controller in (web.controllers.Perfguard, web.controllers.PerfguardPage):
        assert (controller.path, controller.scope) == ('/perfguard', 'manager')


def test_a_request_is_answered_by_the_commands_handler(web: Any) -> None:
    assert web.api.campaign_prepare(accept='LAGGY') == {'phase': 'IDLE'}
    assert web.mgr.asked == [
        ('perfguard', 'campaign_prepare', {'format': 'json', 'accept': ['LAGGY']})]
    assert web.response.headers['Cache-Control'] == 'no-store'


def test_the_audit_log_names_the_user_of_each_request_that_acts(web: Any) -> None:
    web.api.status()
    assert web.mgr.audited == []
    web.request.path_info = '/api/perfguard/probe/1\n/cancel'
    web.api.probe_cancel(run=1)
    assert web.mgr.audited == [
        "perfguard: POST '/api/perfguard/probe/1\\n/cancel' by 'alice'"]


@pytest.mark.parametrize('retval, status', [(-errno.EINVAL, 400), (-errno.EBUSY, 409),
                                            (-errno.ENOENT, 404)])
def test_what_a_command_refuses_has_its_errno_and_a_status(web: Any, retval: int,
                                                           status: int) -> None:
    web.mgr.answer = (retval, '', 'not now')
    with pytest.raises(Failure, match='not now') as failure:
        web.api.campaign_start()
    assert (failure.value.code, failure.value.status) == (str(-retval), status)
    assert failure.value.component == 'perfguard'


def test_without_the_module_the_service_is_unavailable(web: Any) -> None:
    web.mgr.answer = ImportError('no module')
    with pytest.raises(Failure) as failure:
        web.api.status()
    assert failure.value.status == 503


def test_a_field_that_cannot_be_taken_reaches_no_handler(web: Any) -> None:
    with pytest.raises(Failure, match='accept') as failure:
        web.api.campaign_prepare(accept=7)
    assert failure.value.status == 400 and web.mgr.asked == []


def test_the_body_does_not_overrule_the_path(web: Any) -> None:
    route = next(each for each in ROUTES if '{' in each.path and each.method != 'GET')
    name = route.path.split('{')[1].split('}')[0]
    web.request.json = {name: '7'}
    with pytest.raises(Failure, match=name) as failure:
        getattr(web.api, route.handler)(**{name: '8'})
    assert failure.value.status == 400 and web.mgr.asked == []


@pytest.mark.parametrize('may', [{'read'}, {'read', 'create', 'update', 'delete'}])
def test_the_overview_says_who_looks_and_what_they_may(web: Any, may: Any) -> None:
    web.mgr.answer = json.dumps({'status': {}})
    web.api.may = may
    found = web.api.overview(since='12.5', pools='1,2')
    assert found['user'] == 'alice' and found['status'] == {}
    assert found['may'] == {name: name in may for name in ('create', UPDATE, DELETE)}
    (_, method, given), = web.mgr.asked
    assert method == 'dashboard_overview' and given['since'] == 12.5
    assert web.controllers.Perfguard.overview.permission == MAY_READ


# ---- bodies

def body_of(web: Any, content: bytes, length: Optional[int] = None) -> Optional[Dict[str, Any]]:
    web.controllers._json_object(types.SimpleNamespace(fp=io.BytesIO(content), length=length))
    found: Optional[Dict[str, Any]] = web.request.json
    return found


def test_a_body_is_taken_whatever_its_charset(web: Any) -> None:
    web.request.headers['Content-Type'] = 'application/json; charset=utf-8'
    assert body_of(web, b'{"force": true}') == {'force': True}
    assert web.request.headers['Content-Type'] == 'application/json'
    assert body_of(web, b'') == {}


@pytest.mark.parametrize('content, status', [
    (b'[]', 400), (b'{', 400), (b'\xff', 400), (b'[' * 50000, 400), (b'"x"', 400)],
    ids=['a list', 'half', 'no UTF-8', 'too deep', 'a text'])
def test_what_is_no_json_object_is_refused(web: Any, content: bytes, status: int) -> None:
    with pytest.raises(HTTPError) as refused:
        body_of(web, content)
    assert refused.value.status == status


@pytest.mark.parametrize('announced', [False, True])
def test_a_body_has_a_limit(web: Any, monkeypatch: pytest.MonkeyPatch, announced: bool) -> None:
    monkeypatch.setattr(web.controllers, 'largest_body', {'/perfguard': 16}.__getitem__)
    assert body_of(web, b'{"a": 1}        ') == {'a': 1}
    with pytest.raises(HTTPError) as refused:
        body_of(web, b'{"a": 1}         ', 17 if announced else None)
    assert refused.value.status == 413


# ---- the page

def test_the_page_and_its_files(web: Any) -> None:
    page = b''.join(web.page.page())
    assert page.startswith(b'<!') and web.response.headers['Content-Type'].startswith('text/html')
    policy = web.response.headers['Content-Security-Policy']
    assert "default-src 'none'" in policy and 'unsafe' not in policy
    assert web.etags == [web.response.headers['ETag']]
    scripts = [path.name for path in web.controllers.PAGE.glob('*.js')]
    assert scripts
    for name in scripts:
        assert b''.join(web.page.file(name)) == (web.controllers.PAGE / name).read_bytes()
        assert web.response.headers['Content-Type'].startswith('application/javascript')
    assert web.response.headers['Cache-Control'] == 'no-cache'
    assert web.response.headers['X-Content-Type-Options'] == 'nosniff'
    assert web.response.headers['Referrer-Policy'] == 'no-referrer'


@pytest.mark.parametrize('name', ['x.js', '../controllers.py', 'controllers.py', ''])
def test_nothing_else_is_served(web: Any, name: str) -> None:
    with pytest.raises(HTTPError) as refused:
        web.page.file(name)
    assert refused.value.status == 404


def test_the_address_with_a_slash_leads_to_the_one_without(web: Any) -> None:
    web.request.path_info = '/perfguard/'
    assert web.page.page() == [] and web.response.status == 303
    assert web.response.headers['Location'] == '../perfguard'


def test_who_is_not_logged_in_is_shown_the_way(web: Any) -> None:
    shown = web.controllers.PerfguardPage._cp_config['error_page.401']
    assert '#/login' in shown(status='401', message='x', traceback='', version='')


def test_the_page_outlives_its_files(web: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """An upgrade of the package removes or replaces them before the mgr is restarted."""
    monkeypatch.setattr(web.controllers, 'PAGE', web.controllers.PAGE / 'gone')
    assert b''.join(web.page.page()).startswith(b'<!')
