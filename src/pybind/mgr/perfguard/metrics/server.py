# SPDX-License-Identifier: LGPL-2.1-or-later
"""A web server for small pages, with one thread that no client can block.

It waits for all connections at once. The size and the total time of a request are limited, so a
client that sends or reads single bytes slowly is dropped like an idle one. There is no TLS, no
request body, and no second request on a connection.
"""
import contextlib
import logging
import selectors
import socket
import time
from typing import Callable, Dict, Iterator, List, NamedTuple, Optional, Tuple

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
    """Listens from its creation, which raises OSError."""

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
