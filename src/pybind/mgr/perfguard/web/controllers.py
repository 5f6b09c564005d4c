# SPDX-License-Identifier: LGPL-2.1-or-later
"""Controllers of the dashboard: the routes of the REST API, and the page.

They run in the dashboard module and call perfguard through MgrModule.remote. The dashboard handles
login, roles and the format of errors. Importing this file registers the controllers.
"""
import errno
import hashlib
import inspect
import json
from pathlib import Path
from typing import Any, Callable, Dict, List, NamedTuple

import cherrypy
from dashboard import mgr
from dashboard.controllers import (APIDoc, APIRouter, BaseController, CreatePermission,
                                   DeletePermission, Endpoint, EndpointDoc, ReadPermission, Router,
                                   UpdatePermission)
from dashboard.exceptions import DashboardException
from dashboard.security import Permission, Scope
from dashboard.services.auth import JwtManager

from .routes import (CREATE, DELETE, MAY_READ, OVERVIEW_FIELDS, ROUTES, UPDATE, BadField, Route,
                     arguments, http_status, largest_body, refuse_twice)

COMPONENT = 'perfguard'
PAGE = Path(__file__).parent / 'page'
#: Only files of the page: no inline script or style, nothing from other origins.
SECURITY_POLICY = ("default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
                   "connect-src 'self'; base-uri 'none'; form-action 'none'; "
                   "frame-ancestors 'self'")
_PERMISSIONS = {MAY_READ: ReadPermission, CREATE: CreatePermission, UPDATE: UpdatePermission,
                DELETE: DeletePermission}


def _failure(text: str, code: int, status: int) -> DashboardException:
    return DashboardException(msg=text, code=str(code), component=COMPONENT,
                              http_status_code=status)


def _remote(method: str, **fields: Any) -> Any:
    """What a method of perfguard's module returns. Raises an error for the dashboard if the module
    is not available."""
    try:
        return mgr.remote(COMPONENT, method, **fields)
    except ImportError as error:
        raise _failure('the module perfguard is not enabled or has failed: see "ceph mgr module '
                       'enable perfguard" and "ceph health detail"', errno.ENOENT, 503) from error


def _ask(handler: str, fields: Dict[str, Any]) -> Any:
    """The JSON output of the command with this handler. Raises an error for the dashboard if it is
    refused."""
    retval, out, err = _remote(handler, format='json', **fields)
    if retval:
        raise _failure(err, -retval, http_status(retval))
    return json.loads(out)


# ---- REST API

def _json_object(entity: Any) -> None:
    """Parse the body of a request, and keep its JSON object in request.json. Replaces the parser of
    the dashboard, which fails (500) on invalid bodies: these are 400, and too long ones 413."""
    largest = largest_body(cherrypy.serving.request.path_info)
    # A body that is announced as too long is not read.
    body = b'' if (entity.length or 0) > largest else entity.fp.read(largest + 1)
    if max(entity.length or 0, len(body)) > largest:
        raise cherrypy.HTTPError(413, 'the body exceeds %d bytes' % largest)
    try:
        document = json.loads(body.decode('utf-8') or '{}')
    except (RecursionError, ValueError) as error:
        raise cherrypy.HTTPError(400, 'the body is not JSON: %s' % error) from error
    if not isinstance(document, dict):
        raise cherrypy.HTTPError(400, 'the body must be a JSON object')
    cherrypy.serving.request.json = document
    # The dashboard accepts fields only with exactly this type, without "; charset=utf-8".
    cherrypy.serving.request.headers['Content-Type'] = 'application/json'


def _signature(fields: Any) -> inspect.Signature:
    """The signature from which the dashboard derives fields of path, query and body: `self`, then
    the fields, required ones first."""
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    ordered = sorted(fields, key=lambda field: not field.required)
    return inspect.Signature([inspect.Parameter('self', kind), *(
        inspect.Parameter(field.name, kind,
                          default=inspect.Parameter.empty if field.required else None)
        for field in ordered)])


def _method(route: Route, answer: Callable[..., Any]) -> Callable[..., Any]:
    """An endpoint of the dashboard for a route. `answer` takes the controller and the arguments of
    the handler, converted from the fields of the request."""
    in_path = [field.name for field in route.fields if '{%s}' % field.name in route.path]

    def method(self: Any, /, **given_fields: Any) -> Any:
        cherrypy.response.headers['Cache-Control'] = 'no-store'
        try:
            # In the dashboard, fields of the body override those of the path.
            refuse_twice(in_path, getattr(cherrypy.request, 'json', None) or {})
            values = arguments(route.fields, given_fields)
        except BadField as error:
            raise _failure(str(error), errno.EINVAL, 400) from error
        return answer(self, values)

    method.__name__ = route.handler
    method.__doc__ = route.about
    method.__signature__ = _signature(route.fields)  # type: ignore[attr-defined]
    options: Dict[str, Any] = {}
    if route.method in ('GET', 'DELETE'):
        options['query_params'] = [field.name for field in route.fields
                                   if field.name not in in_path]
    documented = EndpointDoc(route.about, parameters={
        field.name: (field.kind.documented, field.about, not field.required)
        for field in route.fields})(method)
    return _PERMISSIONS[route.permission](
        Endpoint(route.method, path=route.path, **options)(documented))


def _command(route: Route) -> Callable[..., Any]:
    """The method of the controller that answers a route."""
    def answer(self: Any, fields: Dict[str, Any]) -> Any:
        if route.permission != MAY_READ:
            # The dashboard's own entries in the audit log lack the user.
            mgr.cluster_log('audit', mgr.ClusterLogPrio.INFO, 'perfguard: %s %r by %r' % (
                route.method, cherrypy.request.path_info, JwtManager.get_username()))
        return _ask(route.handler, fields)

    return _method(route, answer)


def _overview(self: Any, fields: Dict[str, Any]) -> Any:
    overview = json.loads(_remote('dashboard_overview', since=fields.get('since', 0.0),
                                  pools=fields.get('pools', [])))
    return {**overview, 'user': JwtManager.get_username(), 'may': {
        name: self._has_permissions(permission) for name, permission in (
            (CREATE, Permission.CREATE), (UPDATE, Permission.UPDATE),
            (DELETE, Permission.DELETE))}}


def _api() -> type:
    """The class with the REST API, for the dashboard."""
    methods: Dict[str, Any] = {route.handler: _command(route) for route in ROUTES}
    methods['overview'] = _method(
        Route('GET', '/overview', 'overview', "Show the data of perfguard's page", MAY_READ,
              OVERVIEW_FIELDS), _overview)
    return type('Perfguard', (BaseController,), {
        '__doc__': 'REST API of the module perfguard.', **methods,
        # With a session, which the dashboard of Tentacle has and does not need, requests of a
        # browser would wait for each other.
        '_cp_config': {'tools.json_in.processor': _json_object, 'tools.sessions.on': False}})


Perfguard = APIRouter('/perfguard', Scope.MANAGER)(
    APIDoc('Rebalances, latency and probes', 'Perfguard')(_api()))


# ---- Page

class Asset(NamedTuple):
    content: bytes
    media_type: str
    tag: str


def _assets() -> Dict[str, Asset]:
    """The files of the page in the package."""
    # Types that the dashboard compresses.
    types = {'.html': 'text/html; charset=utf-8', '.js': 'application/javascript; charset=utf-8',
             '.css': 'text/css; charset=utf-8'}
    assets = {}
    for path in sorted(PAGE.glob('*')):
        if path.suffix in types:
            content = path.read_bytes()
            assets[path.name] = Asset(content, types[path.suffix],
                                      '"%s"' % hashlib.sha256(content).hexdigest()[:32])
    return assets


#: Read once at the start: an upgrade may replace or remove the files while the mgr runs.
ASSETS = _assets()


def _log_in_first(**_: Any) -> str:
    """The page for users who are not logged in.

    Users who are logged in also see it if they follow a link from another site, because the browser
    does not send the cookie then (SameSite). It does when they continue from here.
    """
    return ('<!DOCTYPE html><html lang="en"><title>perfguard</title><h1>perfguard</h1><p>Please '
            '<a href="./#/login">log in to the dashboard</a> first. If you are logged in, '
            '<a href="">continue to the page</a>.</p></html>')


@Router('/perfguard', security_scope=Scope.MANAGER)
class PerfguardPage(BaseController):
    _cp_config = {'error_page.401': _log_in_first}

    @Endpoint('GET', path='', json_response=False, version=None)
    @ReadPermission
    def page(self, **_: Any) -> List[bytes]:
        if cherrypy.request.path_info.endswith('/'):
            # Links of the page are relative to the address without the slash. The redirect is
            # relative as well, because the address of a proxy is unknown here.
            cherrypy.response.status = 303
            cherrypy.response.headers['Location'] = '../' + COMPONENT
            return []
        return self._serve('index.html')

    @Endpoint('GET', path='/{asset}', json_response=False, version=None)
    @ReadPermission
    def file(self, asset: str, **_: Any) -> List[bytes]:
        return self._serve(asset)

    @staticmethod
    def _serve(name: str) -> List[bytes]:
        """A file of the page, with the headers that it requires."""
        asset = ASSETS.get(name)
        if asset is None:
            raise cherrypy.HTTPError(404, 'no such file')
        headers = cherrypy.response.headers
        headers['Content-Type'] = asset.media_type
        headers['Content-Security-Policy'] = SECURITY_POLICY
        headers['X-Content-Type-Options'] = 'nosniff'
        headers['Referrer-Policy'] = 'no-referrer'
        # The browser must revalidate the file each time, so that an upgrade takes effect.
        headers['Cache-Control'] = 'no-cache'
        headers['ETag'] = asset.tag
        cherrypy.lib.cptools.validate_etags()
        # A list, because the dashboard converts bytes to text, which CherryPy accepts for text/*
        # only.
        return [asset.content]
