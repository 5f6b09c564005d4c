# SPDX-License-Identifier: LGPL-2.1-or-later
"""The HTTP endpoint for Prometheus, on its own port: no release lets a module add metrics to those
of the prometheus module.
"""
import contextlib
import http.client
import ipaddress
import logging
import socket
import socketserver
import threading
import time
from http.server import BaseHTTPRequestHandler
from typing import Any, BinaryIO, Callable, Dict, List, NamedTuple, Optional, Tuple, cast

from .page import CONTENT_TYPE

log = logging.getLogger(__name__)

#: Maximum size of a request with its headers.
REQUEST_BYTES = 8 << 10
#: Maximum time from the start of a connection to the end of the response.
TOTAL_SECONDS = 10.0
#: Maximum number of connections, after which the oldest one is dropped; and the backlog of the
#: kernel.
CONNECTIONS = 32
BACKLOG = 32
#: Maximum delay of noticing a stop or a deadline.
ENDPOINT_LOOK_SECONDS = 0.5
#: Pause of accepting connections without free file descriptors.
ENDPOINT_PAUSE_SECONDS = 0.2


class _LimitedReader:
    """Limits the lines of a request as a whole: http.server limits each line to 64 KiB."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self._left = REQUEST_BYTES
        self.close = stream.close

    def readline(self, limit: int) -> bytes:
        line = self._stream.readline(min(limit, self._left + 1))
        self._left -= len(line)
        if self._left < 0:
            raise http.client.LineTooLong('request')
        return line


class _Request(BaseHTTPRequestHandler):
    """A request, after which the connection is closed. All but GET and HEAD are answered 501."""
    server: 'Server'
    server_version, sys_version = 'perfguard', ''
    #: Also of a request that has none: the response to HTTP/0.9 would have no status.
    default_request_version = 'HTTP/1.0'
    error_message_format, error_content_type = '%(code)d %(message)s\n', 'text/plain; charset=utf-8'

    def setup(self) -> None:
        super().setup()
        self.rfile = cast(Any, _LimitedReader(self.rfile))

    def do_GET(self) -> None:
        """Serve the metrics; other paths do not exist."""
        if self.path.partition('?')[0] != '/metrics':
            self.send_error(404, 'the metrics are at /metrics')
            return
        try:
            page = self.server.page()
        except Exception:
            log.exception('cannot render the metrics')
            self.send_error(500, 'see the log of the mgr')
            return
        self.send_response(200)
        self.send_header('Content-Type', CONTENT_TYPE)
        self.send_header('Content-Length', str(len(page)))
        self.end_headers()
        if self.command == 'GET':
            self.wfile.write(page)

    do_HEAD = do_GET

    def log_message(self, format: str, *args: Any) -> None:
        log.debug(format, *args)


class Server(socketserver.ThreadingTCPServer):
    """A web server for one page; it listens from its creation, which raises OSError.

    Each connection has a thread, which ends when the connection is closed. The number of
    connections, the size of a request and its total time are limited, so a client that sends or
    reads single bytes slowly is dropped like an idle one. There is no TLS.
    """
    allow_reuse_address = daemon_threads = True
    request_queue_size = BACKLOG

    def __init__(self, address: str, port: int, page: Callable[[], bytes],
                 clock: Callable[[], float] = time.monotonic) -> None:
        self.address_family = socket.AF_INET6 if ':' in address else socket.AF_INET
        self._page = page
        self._clock = clock
        self._lock = threading.Lock()
        #: Open request -> when it is dropped, on `clock` (monotonic); the oldest one first.
        self._deadlines: Dict[socket.socket, float] = {}
        super().__init__((address, port), _Request)
        # The client may be gone when it is accepted.
        self.socket.setblocking(False)

    def page(self) -> bytes:
        """The page, which one thread at a time renders."""
        with self._lock:
            return self._page()

    def server_bind(self) -> None:
        if self.server_address[0] == '::' and socket.has_dualstack_ipv6():
            self.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        super().server_bind()

    def get_request(self) -> Tuple[socket.socket, Any]:
        try:
            return super().get_request()
        except OSError:
            # Otherwise a lack of file descriptors would keep this thread busy.
            time.sleep(ENDPOINT_PAUSE_SECONDS)
            raise

    def process_request(self, request: Any, client_address: Any) -> None:
        open_requests = list(self._deadlines)
        if len(open_requests) >= CONNECTIONS:
            self._end(open_requests[0])  # the oldest one
        self._deadlines[request] = self._clock() + TOTAL_SECONDS
        super().process_request(request, client_address)

    def service_actions(self) -> None:
        """End requests that take too long. The server calls this for each request, and every
        ENDPOINT_LOOK_SECONDS."""
        now = self._clock()
        for request, deadline in self._deadlines.copy().items():
            if deadline <= now:
                self._end(request)

    def _end(self, request: socket.socket) -> None:
        """Close the connection of a request, so that its thread fails and ends."""
        self._deadlines.pop(request, None)
        with contextlib.suppress(OSError):
            request.shutdown(socket.SHUT_RDWR)

    def shutdown_request(self, request: Any) -> None:
        self._deadlines.pop(request, None)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        log.debug('a metrics client was dropped', exc_info=True)

    def server_close(self) -> None:
        super().server_close()
        for request in self._deadlines.copy():
            self._end(request)


# ---- The endpoint

#: Time until a server that could not start, or has failed, is started again.
LISTEN_RETRY_SECONDS = 5.0


class Place(NamedTuple):
    """The address and port to listen on; port 0: do not listen."""
    address: str
    port: int

    def __str__(self) -> str:
        return ('[%s]:%d' if ':' in self.address else '%s:%d') % self


def place_of(option: Callable[[str], object]) -> Place:
    """`option`: a getter such as MgrModule.get_localized_module_option."""
    return Place(str(option('metrics_addr')), int(str(option('metrics_port'))))


class Endpoint:
    """Serves the page with the metrics. Only one thread may call its methods; threads of the server
    call `page`, one at a time."""

    def __init__(self, page: Callable[[], bytes], place: Callable[[], Place],
                 clock: Callable[[], float] = time.monotonic) -> None:
        """`page` returns what is served; `place` the address and port of the options, which may
        change at any time."""
        self._page = page
        self._configured = place
        self._clock = clock
        self._server: Optional[Server] = None
        self._thread: Optional[threading.Thread] = None
        self._place = Place('', 0)
        self._failure = ''
        #: When a server was last started, on `clock` (monotonic).
        self._tried = 0.0

    def remarks(self) -> List[str]:
        """Why the metrics are not served although they are enabled."""
        return [self._failure] if self._failure else []

    def tend(self) -> None:
        """Listen on the address of the options; called at short intervals. If they have changed, or
        the server does not run, stop it and start one, at most every LISTEN_RETRY_SECONDS for one
        address. Port 0: only stop it."""
        place = self._configured()
        if place == self._place and not self._retry_due():
            return
        self.close()
        self._place = place
        if place.port:
            self._start(place)
        else:
            self._failure = ''

    def _retry_due(self) -> bool:
        serving = self._thread is not None and self._thread.is_alive()
        return (self._place.port != 0 and not serving
                and self._clock() - self._tried >= LISTEN_RETRY_SECONDS)

    def _start(self, place: Place) -> None:
        """Start a server, or note why it cannot start."""
        self._tried = self._clock()
        failure = ''
        server: Optional[Server] = None
        try:
            server = Server(_bind_address(place.address), place.port, self._page)
            thread = threading.Thread(target=self._serve, args=(server,), name='perfguard-metrics')
            thread.start()
        except Exception as error:
            # No error may end a turn of the loop.
            failure = str(error) or repr(error)
            if server is not None:
                # It listens already, and would block the next attempt.
                server.server_close()
        else:
            self._server, self._thread = server, thread
        self._report(place, failure)

    def _report(self, place: Place, failure: str) -> None:
        """Log a failure ('': none) once, and each success. `remarks` returns the failure."""
        text = failure and 'cannot serve metrics on %s: %s' % (place, ' '.join(failure.split()))
        if text != self._failure:
            self._failure = text
            if text:
                log.error(text)
        if not text:
            log.info('serving metrics on %s', place)

    @staticmethod
    def _serve(server: Server) -> None:
        try:
            server.serve_forever(ENDPOINT_LOOK_SECONDS)
        except Exception:
            log.exception('the metrics server ended')
        finally:
            server.server_close()

    def close(self) -> None:
        """Stop the server, and wait for its thread."""
        server, thread = self._server, self._thread
        self._server = self._thread = None
        if server is None or thread is None:
            return
        if thread.is_alive():
            server.shutdown()
            thread.join()


def _bind_address(address: str) -> str:
    """The address to listen on: for "::" without IPv6, all IPv4 addresses. Raises ValueError for a
    name, since resolving it may take long."""
    ip = ipaddress.ip_address(address)
    if ip == ipaddress.IPv6Address('::') and not _has_ipv6():
        return '0.0.0.0'
    return str(ip)


def _has_ipv6() -> bool:
    try:
        socket.socket(socket.AF_INET6).close()
    except OSError:
        return False
    return True
