# SPDX-License-Identifier: LGPL-2.1-or-later
"""The HTTP endpoint for Prometheus, on its own port: no release lets a module add metrics to those
of the prometheus module.
"""
import ipaddress
import logging
import socket
import threading
import time
from typing import Any, Callable, List, NamedTuple, Optional

from .server import Answer, Server
from .page import CONTENT_TYPE

log = logging.getLogger(__name__)

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


def place_of(option: Callable[[str], Any]) -> Place:
    """`option`: a getter such as MgrModule.get_localized_module_option."""
    return Place(str(option('metrics_addr')), int(option('metrics_port')))


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
