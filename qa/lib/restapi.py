# SPDX-License-Identifier: LGPL-2.1-or-later
"""Sends requests to the REST API of perfguard as different users."""
from typing import Any, Dict, NamedTuple

from qa.cluster import Cluster
from qa.cluster.dashboard import Answer, Dashboard

from .guard import Guard

API = '/api/perfguard'
#: Users: with all rights, with read access, and not logged in.
ADMIN, READER, NOBODY = 'admin', 'reader', ''


class Request(NamedTuple):
    method: str
    #: Below /api/perfguard, with its query.
    path: str
    body: Any = None

    def __str__(self) -> str:
        return f'{self.method} {self.path}'


class RestApi:
    def __init__(self, guard: Guard, dashboard: Dashboard) -> None:
        self.guard = guard
        self.dashboard = dashboard
        self.tokens = {NOBODY: ''}
        for user in (ADMIN, READER):
            self.tokens[user] = dashboard.login(user)

    @property
    def cluster(self) -> Cluster:
        return self.guard.cluster

    def send(self, request: Request, user: str = ADMIN, **options: Any) -> Answer:
        return self.dashboard.request(request.method, API + request.path, request.body,
                                      token=self.tokens[user], **options)

    def done(self, method: str, path: str, body: Any = None) -> Any:
        """The body of the response, which must be a success."""
        answer = self.send(Request(method, path, body))
        assert answer.status == 200, (method, path, body, answer)
        assert answer.headers['content-type'] == 'application/vnd.ceph.api.v1.0+json'
        return answer.json()

    def get(self, path: str) -> Any:
        return self.done('GET', path)

    def refused(self, request: Request, status: int, text: str, **options: Any) -> Dict[str, Any]:
        """Checks that it is refused with this status and a JSON detail that contains `text`."""
        answer = self.send(request, **options)
        assert answer.status == status, (request, answer)
        assert answer.headers['content-type'].startswith('application/json'), (request, answer)
        found: Dict[str, Any] = answer.json()
        assert text in found['detail'], (request, found)
        return found

    def page(self, path: str = '', user: str = ADMIN, **headers: str) -> Answer:
        """A file of the page, requested as a browser does."""
        return self.dashboard.request('GET', '/perfguard' + path, token=self.tokens[user],
                                      headers={'Accept': 'text/html', 'Content-Type': '',
                                               **headers})
