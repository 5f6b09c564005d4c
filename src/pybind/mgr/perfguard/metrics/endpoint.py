# SPDX-License-Identifier: LGPL-2.1-or-later
"""The HTTP endpoint for Prometheus, on its own port: no release lets a module add metrics to those
of the prometheus module.

Its web server has one thread that no client can block.
"""
import contextlib
import ipaddress
import logging
import selectors
import socket
import threading
import time
from typing import Callable, Dict, Iterator, List, NamedTuple, Optional, Tuple

from .page import CONTENT_TYPE

log = logging.getLogger(__name__)

#: Maximum size of a request with its headers, and of further data until the client is dropped.
REQUEST_BYTES = 8 << 10
REST_BYTES = 64 << 10
#: Maximum time from the start of a connection to the end of the response.
TOTAL_SECONDS = 10.0
#: Maximum number of connections, after which the oldest one is dropped; and the backlog of the
#: kernel.
CONNECTIONS = 32
BACKLOG = 32
#: Maximum delay of noticing a stop or a deadline.
LOOK_SECONDS = 0.5
#: Pause of accepting connections without free file descriptors.
PAUSE_SECONDS = 0.2
_READ, _WRITE = selectors.EVENT_READ, selectors.EVENT_WRITE

_END = b'\r\n\r\n'
_REASONS = {200: 'OK', 400: 'Bad Request', 404: 'Not Found', 405: 'Method Not Allowed',
            431: 'Request Header Fields Too Large', 500: 'Internal Server Error'}


class Answer(NamedTuple):
    status: int
    body: bytes
    content_type: str = 'text/plain; charset=utf-8'
    headers: Tuple[Tuple[str, str], ...] = ()


#: Method and path of a request -> response.
Handler = Callable[[str, str], Answer]


class _Connection:
    def __init__(self, client: socket.socket, deadline: float) -> None:
        self.client = client
        self.deadline = deadline
        self.request = b''
        #: Data that is still to be sent; None: the request is not complete yet.
        self.answer: Optional[memoryview] = None
        self.rest = 0


class Server:
    """A web server for small pages; it listens from its creation, which raises OSError.

    It waits for all connections at once. The size and the total time of a request are limited, so
    a client that sends or reads single bytes slowly is dropped like an idle one. There is no TLS,
    no request body, and no second request on a connection.
    """

    def __init__(self, address: str, port: int, handler: Handler,
                 clock: Callable[[], float] = time.monotonic) -> None:
        self._handler = handler
        self._clock = clock
        self._connections: Dict[int, _Connection] = {}
        family = socket.AF_INET6 if ':' in address else socket.AF_INET
        dual = address == '::' and socket.has_dualstack_ipv6()
        self._listening = socket.create_server((address, port), family=family, backlog=BACKLOG,
                                               dualstack_ipv6=dual)
        self._listening.setblocking(False)
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._listening, _READ)
        self._stopping = False

    def serve(self) -> None:
        """Serve until `stop`."""
        while not self._stopping:
            for key, events in self._selector.select(LOOK_SECONDS):
                self._look(key.fd, events)
            self._drop_late()

    def stop(self) -> None:
        """Accept no further connection. Thread-safe."""
        self._stopping = True
        with contextlib.suppress(OSError):
            # This also wakes the other thread.
            self._listening.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Close all sockets; `serve` must not be running. May be called twice."""
        for connection in list(self._connections.values()):
            self._drop(connection)
        self._selector.close()
        self._listening.close()

    # ---- Connections

    def _look(self, fd: int, events: int) -> None:
        connection = self._connections.get(fd)
        if connection is None:
            if fd == self._listening.fileno() and not self._stopping:
                self._accept()
            return
        try:
            if events & _WRITE:
                self._send(connection)
            elif connection.answer is None:
                self._receive(connection)
            else:
                self._receive_rest(connection)
        except BlockingIOError:
            pass
        except OSError as error:
            log.debug('a metrics client disconnected: %s', error)
            self._drop(connection)

    def _accept(self) -> None:
        try:
            client, _ = self._listening.accept()
        except OSError as error:
            # Otherwise a lack of file descriptors would keep this thread busy.
            log.debug('could not accept a metrics connection: %s', error)
            time.sleep(PAUSE_SECONDS)
            return
        client.setblocking(False)
        if len(self._connections) >= CONNECTIONS:
            self._drop(min(self._connections.values(), key=lambda each: each.deadline))
        self._connections[client.fileno()] = _Connection(client, self._clock() + TOTAL_SECONDS)
        self._selector.register(client, _READ)

    def _receive(self, connection: _Connection) -> None:
        received = connection.client.recv(REQUEST_BYTES)
        if not received:
            self._drop(connection)
            return
        connection.request += received
        if _END in connection.request:
            answer = self._answer(connection.request.partition(_END)[0])
        elif len(connection.request) >= REQUEST_BYTES:
            answer = rendered(Answer(431, b'the request is too long\n'))
        else:
            return
        connection.request = b''
        connection.answer = memoryview(answer)
        self._selector.modify(connection.client, _WRITE)

    def _answer(self, request: bytes) -> bytes:
        words = request.split(b'\r\n', 1)[0].decode('latin-1').split(' ')
        if len(words) != 3 or not words[2].startswith('HTTP/1.'):
            return rendered(Answer(400, b'HTTP/1.1 only\n'))
        return rendered(self._handler(words[0], words[1].partition('?')[0]), words[0] == 'HEAD')

    def _send(self, connection: _Connection) -> None:
        assert connection.answer is not None
        connection.answer = connection.answer[connection.client.send(connection.answer):]
        if not connection.answer:
            # Further data of the client is read: closing at once would reset the connection and
            # lose the response.
            connection.client.shutdown(socket.SHUT_WR)
            self._selector.modify(connection.client, _READ)

    def _receive_rest(self, connection: _Connection) -> None:
        received = len(connection.client.recv(REQUEST_BYTES))
        connection.rest += received
        if not received or connection.rest > REST_BYTES:
            self._drop(connection)

    def _drop_late(self) -> None:
        now = self._clock()
        for connection in [each for each in self._connections.values() if each.deadline <= now]:
            self._drop(connection)

    def _drop(self, connection: _Connection) -> None:
        del self._connections[connection.client.fileno()]
        self._selector.unregister(connection.client)
        connection.client.close()


def rendered(answer: Answer, head: bool = False) -> bytes:
    """The bytes of a response; `head`: without the body."""
    return ''.join(_lines(answer)).encode('latin-1') + (b'' if head else answer.body)


def _lines(answer: Answer) -> Iterator[str]:
    yield 'HTTP/1.1 %d %s\r\n' % (answer.status, _REASONS[answer.status])
    headers: List[Tuple[str, str]] = [
        ('Content-Type', answer.content_type), ('Content-Length', str(len(answer.body))),
        *answer.headers, ('Connection', 'close')]
    for name, value in headers:
        yield '%s: %s\r\n' % (name, value)
    yield '\r\n'


# ---- The endpoint

#: Maximum time to wait for a stop.
CLOSE_SECONDS = 2.0
#: Time until a server that could not start, or has failed, is started again.
RETRY_SECONDS = 5.0


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
    """Only one thread may call it; the thread of the server calls `text`."""

    def __init__(self, text: Callable[[], bytes], place: Callable[[], Place],
                 clock: Callable[[], float] = time.monotonic) -> None:
        """`place` returns the address and port of the options, which may change at any time."""
        self._text = text
        self._configured = place
        self._clock = clock
        self._server: Optional[Server] = None
        self._thread: Optional[threading.Thread] = None
        self._place = Place('', 0)
        self._failure = ''
        self._tried = 0.0

    def remarks(self) -> List[str]:
        """Why the metrics are not served although they are enabled."""
        return [self._failure] if self._failure else []

    def tend(self) -> None:
        """Listen on the address of the options, if that is not the case yet."""
        place = self._configured()
        if place == self._place and not self._due():
            return
        self.close()
        self._place = place
        if place.port:
            self._start(place)
        else:
            self._failure = ''

    def _due(self) -> bool:
        serving = self._thread is not None and self._thread.is_alive()
        return (self._place.port != 0 and not serving
                and self._clock() - self._tried >= RETRY_SECONDS)

    def _start(self, place: Place) -> None:
        self._tried = self._clock()
        failure = ''
        server: Optional[Server] = None
        try:
            server = Server(_usable(place.address), place.port, self._answer)
            thread = threading.Thread(target=self._serve, args=(server,),
                                      name='perfguard-metrics')
            thread.start()
        except Exception as error:
            # No error may end a turn of the loop.
            failure = str(error) or repr(error)
            if server is not None:
                # It listens already, and would block the next attempt.
                server.close()
        else:
            self._server, self._thread = server, thread
        self._report(place, failure)

    def _report(self, place: Place, failure: str) -> None:
        text = failure and 'cannot serve metrics on %s: %s' % (
            place, ' '.join(failure.split()))
        if text != self._failure:
            self._failure = text
            if text:
                log.error(text)
        if not text:
            log.info('serving metrics on %s', place)

    @staticmethod
    def _serve(server: Server) -> None:
        try:
            server.serve()
        except Exception:
            log.exception('the metrics server ended')
        finally:
            server.close()

    def close(self) -> None:
        server, thread = self._server, self._thread
        self._server = self._thread = None
        if server is None or thread is None:
            return
        server.stop()
        thread.join(CLOSE_SECONDS)

    # ---- Requests, in the thread of the server

    def _answer(self, method: str, path: str) -> Answer:
        if path != '/metrics':
            return Answer(404, b'the metrics are at /metrics\n')
        if method not in ('GET', 'HEAD'):
            return Answer(405, b'GET or HEAD\n', headers=(('Allow', 'GET, HEAD'),))
        try:
            return Answer(200, self._text(), CONTENT_TYPE)
        except Exception:
            log.exception('cannot render the metrics')
            return Answer(500, b'see the log of the mgr\n')


def _usable(address: str) -> str:
    """Raises ValueError unless it is an address: resolving a name may take long."""
    found = ipaddress.ip_address(address)
    if found == ipaddress.IPv6Address('::') and not _has_ipv6():
        return '0.0.0.0'
    return str(found)


def _has_ipv6() -> bool:
    try:
        socket.socket(socket.AF_INET6).close()
    except OSError:
        return False
    return True
