# SPDX-License-Identifier: LGPL-2.1-or-later
"""Where Prometheus scrapes perfguard: a web server of its own.

No release lets a module add to what the prometheus module serves. The server is the one inside
CherryPy, by itself: CherryPy's engine is one for all modules that share an interpreter.
"""
import ipaddress
import logging
import socket
import threading
import time
from typing import Any, Callable, Iterable, List, NamedTuple, Optional, Tuple

from .text import CONTENT_TYPE

log = logging.getLogger(__name__)

#: Scrapes at the same time; one more waits.
THREADS = 2
#: Seconds that a connection may take over a request, and that a stop waits for the last answers.
TIMEOUT_SECONDS = 10
STOP_SECONDS = 1
#: Seconds that the caller waits for a stop, which clients that do not read can hold up.
CLOSE_SECONDS = 2.0
#: Seconds until a port that was in use, or a server that broke down, is tried again.
RETRY_SECONDS = 5.0

Environ = Any
StartResponse = Callable[[str, List[Tuple[str, str]]], Any]


class Place(NamedTuple):
    """Where to listen; port 0: nowhere."""
    address: str
    port: int

    def __str__(self) -> str:
        return ('[%s]:%d' if ':' in self.address else '%s:%d') % self


def place_of(option: Callable[[str], Any]) -> Place:
    """`option`: a getter such as MgrModule.get_localized_module_option."""
    return Place(str(option('metrics_addr')), int(option('metrics_port')))


class Endpoint:
    """Called by one thread; the server has its own."""

    def __init__(self, text: Callable[[], bytes], place: Callable[[], Place],
                 clock: Callable[[], float] = time.monotonic) -> None:
        """`place`: where to listen by the options, which may change at any time."""
        self._text = text
        self._wanted = place
        self._clock = clock
        self._server: Any = None
        self._thread: Optional[threading.Thread] = None
        self._place = Place('', 0)
        self._failure = ''
        self._tried = 0.0

    def remarks(self) -> List[str]:
        """Why there are no metrics although they are asked for."""
        return [self._failure] if self._failure else []

    def tend(self) -> None:
        """Listen where the options say, if that is not so already."""
        place = self._wanted()
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
        server: Any = None
        try:
            address = _usable(place.address)
            # Not before it is wanted: it is no part of Python.
            from cheroot.wsgi import Server
            server = Server((address, place.port), self._answer, numthreads=THREADS,
                            timeout=TIMEOUT_SECONDS, shutdown_timeout=STOP_SECONDS)
            server.error_log = _log_error
            server.prepare()
            thread = threading.Thread(target=self._serve, args=(server,),
                                      name='perfguard-metrics')
            thread.start()
        except ImportError as error:
            failure = 'python3-cheroot, which CherryPy brings along, is missing: %s' % error
        except Exception as error:
            # Whatever it is, it must not take a turn of the loop along.
            failure = str(error) or repr(error)
        else:
            self._server, self._thread = server, thread
        if failure and server is not None:
            # It may listen already, and would be in the way of the next try.
            _stop(server)
        self._tell(place, failure)

    def _tell(self, place: Place, failure: str) -> None:
        text = failure and 'metrics are not served on %s: %s' % (
            place, ' '.join(failure.split()))
        if text != self._failure:
            self._failure = text
            if text:
                log.error(text)
        if not text:
            log.info('metrics are served on %s', place)

    @staticmethod
    def _serve(server: Any) -> None:
        try:
            server.serve()
        except Exception:
            log.exception('the server of the metrics ended')

    def close(self) -> None:
        server, thread = self._server, self._thread
        self._server = self._thread = None
        if server is None or thread is None:
            return
        closing = threading.Thread(target=_end, args=(server, thread), daemon=True,
                                   name='perfguard-metrics-end')
        try:
            closing.start()
        except RuntimeError:
            # There are no more threads: it takes as long as it takes.
            _end(server, thread)
        else:
            closing.join(CLOSE_SECONDS)

    # ---- requests: the server's threads

    def _answer(self, environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
        method = environ['REQUEST_METHOD']
        headers = [('Content-Type', 'text/plain; charset=utf-8')]
        if environ.get('PATH_INFO') != '/metrics':
            status, body = '404 Not Found', b'the metrics are at /metrics\n'
        elif method not in ('GET', 'HEAD'):
            status, body = '405 Method Not Allowed', b'GET or HEAD\n'
            headers.append(('Allow', 'GET, HEAD'))
        else:
            try:
                status, body = '200 OK', self._text()
                headers = [('Content-Type', CONTENT_TYPE)]
            except Exception:
                log.exception('the metrics cannot be told')
                status, body = '500 Internal Server Error', b'see the log of the mgr\n'
        start_response(status, [*headers, ('Content-Length', str(len(body)))])
        return [] if method == 'HEAD' else [body]


def _end(server: Any, thread: threading.Thread) -> None:
    _stop(server)
    thread.join()


def _stop(server: Any) -> None:
    """Leave nothing of a server, however far it came with its start or an earlier stop."""
    from cheroot.workers import threadpool
    try:
        # Does nothing unless the server came to the end of its start.
        server.stop()
    except Exception:
        # One that broke down may do so again; a turn of the loop must not.
        log.exception('the server of the metrics does not stop as it should')
    listening = getattr(server, 'socket', None)
    if listening is not None:
        listening.close()
    # Newer servers do not know their workers until all have started.
    pool: Any = threadpool
    for _ in range(THREADS):
        server.requests.put(pool._SHUTDOWNREQUEST)


def _usable(address: str) -> str:
    """ValueError where it is no address; a name could take the DNS a while."""
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


def _log_error(msg: str = '', level: int = logging.INFO, traceback: bool = False) -> None:
    log.log(level, 'metrics: %s', msg, exc_info=traceback)
