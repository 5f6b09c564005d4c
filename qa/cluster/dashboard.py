# SPDX-License-Identifier: LGPL-2.1-or-later
"""The dashboard of a cluster: enables it, creates users, and sends HTTP requests.

    dashboard = cluster.dashboard()
    print(dashboard.url(), dashboard.passwords['admin'])
    answer = dashboard.request('GET', '/api/summary', token=dashboard.login('admin'))
    print(answer.status, answer.json())
"""

import http.client
import json
import secrets
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Dict, Mapping, Optional, Union
from urllib.parse import urlsplit

from .connection import parse
from .errors import ClusterError

if TYPE_CHECKING:
    from .cluster import Cluster

#: Users that are created, and their roles.
USERS = {'admin': 'administrator', 'reader': 'read-only'}
ACCEPT = 'application/vnd.ceph.api.v1.0+json'
#: Enabling the module restarts every mgr, and importing it takes seconds.
READY_SECONDS = 90.0
ANSWER_SECONDS = 30.0


@dataclass(frozen=True)
class Answer:
    """A response; names of headers are in lower case."""
    status: int
    headers: Mapping[str, str]
    body: bytes

    def json(self) -> Any:
        """The parsed body, which must be JSON."""
        return json.loads(self.body)


class Dashboard:
    """Created by Cluster.dashboard. Nothing is cached: the mgrs may change at any time."""

    def __init__(self, cluster: 'Cluster', prefix: str) -> None:
        self._cluster = cluster
        self._prefix = prefix
        self.passwords = {user: secrets.token_hex(8) for user in USERS}

    def enable(self) -> None:
        """Enable the module and create the users; returns when it answers."""
        cluster = self._cluster
        if self._prefix:
            cluster.mon('config set', who='mgr', name='mgr/dashboard/url_prefix',
                        value=self._prefix)
        cluster.mon('mgr module enable', module='dashboard')
        for user, role in USERS.items():
            # The command exists only after the module has started.
            cluster.wait(lambda: self._make_user(user, role), READY_SECONDS, 'the dashboard')
        self.wait_ready()

    def _make_user(self, user: str, role: str) -> bool:
        password = self.passwords[user].encode()
        made = {'prefix': 'dashboard ac-user-create', 'username': user, 'rolename': role}
        known = {'prefix': 'dashboard ac-user-set-password', 'username': user}
        exists = self._cluster.mgr('dashboard ac-user-show', username=user)[0] == 0
        parse(self._cluster.command('mgr', known if exists else made, password),
              'dashboard: make a user')
        return True

    def wait_ready(self) -> None:
        """Wait until the administrator can log in to the dashboard of the active mgr."""
        self._cluster.wait(self._answers, READY_SECONDS, 'the dashboard to answer')

    def _answers(self) -> bool:
        try:
            return bool(self.login('admin'))
        except (OSError, http.client.HTTPException, ClusterError):
            return False

    def url(self, mgr: str = '') -> str:
        """The URL of the dashboard of an mgr (default: the active one), without trailing slash."""
        port = self._cluster.dashboard_port(mgr or self._cluster.active_mgr())
        return f'http://127.0.0.1:{port}{self._prefix}'

    def login(self, user: str) -> str:
        """Log in; returns the token of the session."""
        given = {'username': user, 'password': self.passwords[user]}
        answer = self.request('POST', '/api/auth', given)
        if answer.status != 201:
            raise ClusterError(f'no login as {user}: {answer.status} {answer.body!r}')
        return str(answer.json()['token'])

    def request(self, method: str, path: str, body: Union[bytes, Any] = None, token: str = '',
                headers: Optional[Mapping[str, str]] = None, mgr: str = '') -> Answer:
        """Send a request; a `body` that is not bytes is sent as JSON.

        `headers` are laid over the ones that the API wants; one of '' is not sent. Redirects are
        not followed.
        """
        data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        sent: Dict[str, str] = {'Accept': ACCEPT, 'Content-Type': 'application/json'}
        if token:
            sent['Authorization'] = f'Bearer {token}'
        sent.update(headers or {})
        url = urlsplit(self.url(mgr))
        connection = http.client.HTTPConnection(str(url.hostname), url.port, ANSWER_SECONDS)
        try:
            connection.request(method, url.path + path, data,
                               {name: value for name, value in sent.items() if value})
            response = connection.getresponse()
            got = {name.lower(): value for name, value in response.getheaders()}
            return Answer(response.status, got, response.read())
        finally:
            connection.close()
