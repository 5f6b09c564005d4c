# SPDX-License-Identifier: LGPL-2.1-or-later
"""A proxy for the dashboards of several mgrs that forwards to the active one.

The dashboards appear below a path of the proxy, which they do not know: on Pacific, an mgr with
``mgr/dashboard/url_prefix`` does not answer after a failover, because the handler of the standby is
still mounted there.
"""
import http.client
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import List, Optional, Sequence, Tuple, Type

from qa.cluster import Cluster

#: With these, the dashboard of a standby does not redirect browsers to the active mgr.
STANDBY_STATUS = 599
STANDBY_OPTIONS = {'mgr/dashboard/standby_behaviour': 'error',
                   'mgr/dashboard/standby_error_status_code': str(STANDBY_STATUS)}
#: Orders are answered after their preview, which takes up to 15 s on a busy machine.
ANSWER_SECONDS = 30.0
#: Headers of one connection.
HOP_BY_HOP = ('connection', 'keep-alive', 'transfer-encoding', 'content-length', 'date', 'server')

Reply = Tuple[int, List[Tuple[str, str]], bytes]


class Proxy:
    """Listens on its own port."""

    def __init__(self, cluster: Cluster, prefix: str, mgrs: Sequence[str] = ('x', 'y')) -> None:
        """`prefix`: the path below which the dashboards appear."""
        for name, value in STANDBY_OPTIONS.items():
            cluster.mon('config set', who='mgr', name=name, value=value)
        self._ports = [cluster.dashboard_port(mgr) for mgr in mgrs]
        self._prefix = prefix
        self._server = ThreadingHTTPServer(('127.0.0.1', 0), _handler(self))
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)

    @property
    def url(self) -> str:
        return f'http://127.0.0.1:{self._server.server_port}{self._prefix}'

    def __enter__(self) -> 'Proxy':
        self._thread.start()
        return self

    def __exit__(self, kind: Optional[Type[BaseException]], error: Optional[BaseException],
                 trace: Optional[TracebackType]) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def forward(self, method: str, path: str, headers: List[Tuple[str, str]],
                body: bytes) -> Reply:
        """The response of the active mgr, or 502."""
        if not path.startswith(self._prefix + '/'):
            return 404, [('Content-Type', 'text/plain')], b'not here'
        for port in self._ports:
            connection = http.client.HTTPConnection('127.0.0.1', port, timeout=ANSWER_SECONDS)
            try:
                connection.request(method, path[len(self._prefix):], body, dict(headers))
                answer = connection.getresponse()
                if answer.status != STANDBY_STATUS:
                    return answer.status, answer.getheaders(), answer.read()
            except (OSError, http.client.HTTPException):
                continue
            finally:
                connection.close()
        return 502, [('Content-Type', 'text/plain')], b'no mgr answers'


def _handler(proxy: Proxy) -> Type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = 'HTTP/1.1'

        def _forward(self) -> None:
            body = self.rfile.read(int(self.headers.get('Content-Length', 0)))
            sent = [(name, value) for name, value in self.headers.items()
                    if name.lower() not in HOP_BY_HOP]
            status, headers, data = proxy.forward(self.command, self.path, sent, body)
            self.send_response(status)
            for name, value in headers:
                if name.lower() not in HOP_BY_HOP:
                    self.send_header(name, value)
            self.send_header('Content-Length', str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        do_GET = do_POST = do_PUT = do_DELETE = _forward

        def log_message(self, *_: object) -> None:
            pass

    return Handler
