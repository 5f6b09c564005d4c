# SPDX-License-Identifier: LGPL-2.1-or-later
"""The endpoint on the loopback address: requests, changed options, ports in use."""
import http.client
import socket
import threading
import time
from concurrent import futures
from typing import Any, Callable, Dict, Iterator, List, Set, Tuple, cast

import pytest

from perfguard.metrics import endpoint as module
from perfguard.metrics.endpoint import (CONNECTIONS, LISTEN_RETRY_SECONDS, REQUEST_BYTES,
                                        TOTAL_SECONDS, Endpoint, Place, Server, place_of)

LOOPBACK = '127.0.0.1'


def free_port() -> int:
    with socket.socket() as found:
        found.bind((LOOPBACK, 0))
        return int(found.getsockname()[1])


class Bench:
    """An endpoint with options and a clock that the test sets."""

    def __init__(self) -> None:
        self.place = Place(LOOPBACK, free_port())
        self.now = 0.0
        self.page = b'x 1\n'
        self.endpoint = Endpoint(self.text, lambda: self.place, lambda: self.now)

    def text(self) -> bytes:
        if not self.page:
            raise RuntimeError('no page')
        return self.page

    def ask(self, path: str = '/metrics', method: str = 'GET'
            ) -> Tuple[int, Dict[str, str], bytes]:
        connection = http.client.HTTPConnection(LOOPBACK, self.place.port, timeout=5)
        try:
            connection.request(method, path)
            answer = connection.getresponse()
            return answer.status, dict(answer.getheaders()), answer.read()
        finally:
            connection.close()

    def served(self) -> bool:
        try:
            return self.ask()[0] == 200
        except OSError:
            return False


def own_threads() -> Set[threading.Thread]:
    return {thread for thread in threading.enumerate()
            if thread.name == 'perfguard-metrics'}


def wait(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


def fail_to_start(monkeypatch: pytest.MonkeyPatch, failing: Callable[[str], bool]) -> None:
    """Of threads those whose names are `failing`."""
    start = threading.Thread.start

    def started(thread: threading.Thread) -> None:
        if failing(thread.name):
            raise RuntimeError("can't start new thread")
        start(thread)
    monkeypatch.setattr(threading.Thread, 'start', started)


@pytest.fixture
def bench() -> Iterator[Bench]:
    found = Bench()
    yield found
    found.endpoint.close()


def test_requests(bench: Bench) -> None:
    bench.endpoint.tend()
    status, headers, body = bench.ask()
    assert (status, body) == (200, b'x 1\n')
    assert headers['Content-Type'] == 'text/plain; version=0.0.4; charset=utf-8'
    status, headers, body = bench.ask(method='HEAD')
    assert (status, headers['Content-Length'], body) == (200, '4', b'')
    assert [bench.ask(path)[0] for path in ('/', '/metrics/', '/metrics/../metrics')] == [404] * 3
    assert [bench.ask(method=method)[0] for method in ('POST', 'DELETE')] == [501, 501]
    assert bench.ask('/metrics?x=1')[0] == 200


def test_a_page_that_cannot_be_made(bench: Bench) -> None:
    bench.endpoint.tend()
    bench.page = b''
    status, _, body = bench.ask()
    assert status == 500 and b'no page' not in body
    bench.page = b'y 2\n'
    assert bench.ask()[2] == b'y 2\n'


def test_off_by_default_and_switched_at_run_time(bench: Bench) -> None:
    threads = own_threads()
    port = bench.place.port
    bench.place = Place(LOOPBACK, 0)
    bench.endpoint.tend()
    bench.now += LISTEN_RETRY_SECONDS
    bench.endpoint.tend()
    assert own_threads() == threads
    bench.place = Place(LOOPBACK, port)
    bench.endpoint.tend()
    assert bench.served()
    bench.place = Place(LOOPBACK, free_port())
    bench.endpoint.tend()
    assert bench.served()
    bench.place = Place(LOOPBACK, port)
    assert not bench.served()
    bench.place = Place(LOOPBACK, 0)
    bench.endpoint.tend()
    wait(lambda: own_threads() == threads)


def test_a_port_in_use_is_reported_and_tried_again(bench: Bench) -> None:
    with socket.socket() as other:
        other.bind((LOOPBACK, bench.place.port))
        other.listen()
        bench.endpoint.tend()
        remark, = bench.endpoint.remarks()
        assert '\n' not in remark and 'in use' in remark
        assert '127.0.0.1:%d' % bench.place.port in remark
        bench.now += LISTEN_RETRY_SECONDS
        bench.endpoint.tend()
        assert bench.endpoint.remarks() == [remark]
    bench.now += LISTEN_RETRY_SECONDS / 2
    bench.endpoint.tend()
    assert not bench.served()
    bench.now += LISTEN_RETRY_SECONDS / 2
    bench.endpoint.tend()
    assert bench.served() and bench.endpoint.remarks() == []


def test_an_endpoint_that_is_switched_off_reports_no_failure(bench: Bench) -> None:
    bench.place = Place('nonsense', 1)
    bench.endpoint.tend()
    assert 'nonsense' in bench.endpoint.remarks()[0]
    bench.place = Place('nonsense', 0)
    bench.endpoint.tend()
    assert bench.endpoint.remarks() == []


@pytest.mark.parametrize('address', ['localhost', '', '1.2.3', '127.0.0.1:80', '127.0.0.256'])
def test_addresses_that_cannot_be_listened_on(bench: Bench, address: str) -> None:
    bench.place = Place(address, bench.place.port)
    bench.endpoint.tend()
    assert len(bench.endpoint.remarks()) == 1


@pytest.mark.parametrize('ipv6', [True, False])
def test_all_addresses(bench: Bench, ipv6: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    tried: List[Tuple[str, int]] = []

    def server(address: str, port: int, *_: Any) -> None:
        tried.append((address, port))
        raise OSError('not in a test')
    monkeypatch.setattr(module, '_has_ipv6', lambda: ipv6)
    monkeypatch.setattr(module, 'Server', server)
    port = bench.place.port
    for address in ('::', '0.0.0.0', '::1'):
        bench.place = Place(address, port)
        bench.endpoint.tend()
    assert tried == [('::' if ipv6 else '0.0.0.0', port), ('0.0.0.0', port), ('::1', port)]


def test_a_connection_that_says_nothing_does_not_keep_it(bench: Bench) -> None:
    bench.endpoint.tend()
    with socket.create_connection((LOOPBACK, bench.place.port)) as silent:
        silent.sendall(b'GET /metr')
        assert bench.served()
        bench.endpoint.close()
    assert not bench.served()


def test_a_server_that_breaks_down_is_started_anew(bench: Bench,
                                                   monkeypatch: pytest.MonkeyPatch) -> None:
    threads = own_threads()
    with monkeypatch.context() as broken:
        broken.setattr(Server, 'serve_forever', breaking_down)
        bench.endpoint.tend()
        thread = serving(bench)
        thread.join()
    bench.now += LISTEN_RETRY_SECONDS / 2
    bench.endpoint.tend()
    assert serving(bench) is thread
    bench.now += LISTEN_RETRY_SECONDS / 2
    bench.endpoint.tend()
    assert bench.served() and bench.endpoint.remarks() == []
    bench.endpoint.close()
    wait(lambda: own_threads() == threads)


def test_a_server_without_a_thread_is_tried_again(bench: Bench,
                                                  monkeypatch: pytest.MonkeyPatch) -> None:
    threads = own_threads()
    with monkeypatch.context() as scarce:
        fail_to_start(scarce, 'perfguard-metrics'.__eq__)
        bench.endpoint.tend()
        assert "can't start new thread" in bench.endpoint.remarks()[0]
        bench.now += LISTEN_RETRY_SECONDS
        bench.endpoint.tend()
        assert len(bench.endpoint.remarks()) == 1
    wait(lambda: own_threads() == threads)
    bench.now += LISTEN_RETRY_SECONDS
    bench.endpoint.tend()
    assert bench.served() and bench.endpoint.remarks() == []


def test_a_client_that_does_not_read_blocks_no_other(bench: Bench) -> None:
    threads = own_threads()
    bench.page = b'x 1\n' * (4 << 20)
    bench.endpoint.tend()
    with socket.create_connection((LOOPBACK, bench.place.port)) as client:
        client.sendall(b'GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n')
        # The answer is on its way, and gets stuck when the buffers are full.
        assert client.recv(1)
        bench.page = b'y 2\n'
        assert bench.ask()[2] == b'y 2\n'
        bench.place = Place(LOOPBACK, free_port())
        bench.endpoint.tend()
        assert bench.served() and own_threads() - threads == {serving(bench)}
    bench.endpoint.close()
    assert own_threads() == threads


# ---- bounds of a request

class Bounded:
    """A server with a clock that the test sets."""

    def __init__(self) -> None:
        self.now = 100.0
        self.port = free_port()
        self.server = Server(LOOPBACK, self.port, lambda: b'page', lambda: self.now)
        self.thread = threading.Thread(target=self.server.serve_forever, daemon=True)
        self.thread.start()

    def client(self, sent: bytes = b'') -> socket.socket:
        client = socket.create_connection((LOOPBACK, self.port), timeout=10)
        client.sendall(sent)
        return client

    def answer(self, sent: bytes) -> bytes:
        """All that there is until the end of the connection."""
        with self.client(sent) as client:
            return b''.join(iter(lambda: client.recv(65536), b''))

    def known(self) -> int:
        return len(self.server._deadlines)


@pytest.fixture
def bounded() -> Iterator[Bounded]:
    found = Bounded()
    yield found
    found.server.shutdown()
    found.thread.join(10)
    assert not found.thread.is_alive()
    found.server.server_close()


GET = b'GET /metrics HTTP/1.1\r\n'


@pytest.mark.parametrize('sent, status', [
    (GET + b'Host: x\r\n\r\n', b'200'), (b'nonsense\r\n\r\n', b'400'),
    (b'GET /metrics\r\n\r\n', b'200'), (b'\xff\xfe\r\n\r\n', b'400'),
    (GET + b'A: ' + b'x' * REQUEST_BYTES, b'431'),
    (GET + 90 * (b'A: ' + b'x' * 90 + b'\r\n'), b'431'),
    (GET + b'Content-Length: 4000000000\r\n\r\n' + b'x' * 4096, b'200')],
    ids=['good', 'nonsense', 'no version', 'no text', 'long line', 'long request', 'with a body'])
def test_a_request_is_answered_at_once_or_refused(bounded: Bounded, sent: bytes,
                                                  status: bytes) -> None:
    with bounded.client(sent) as client:
        assert client.recv(12) == b'HTTP/1.0 ' + status
        client.shutdown(socket.SHUT_WR)
        wait(lambda: not bounded.known())


def test_a_request_line_that_is_too_long_has_no_response(bounded: Bounded) -> None:
    assert bounded.answer(b'GET /' + b'x' * (REQUEST_BYTES - 4)) == b''
    wait(lambda: not bounded.known())


def test_pages_are_made_one_at_a_time(bench: Bench) -> None:
    """The page keeps what it has made, and is no thread's own."""
    making: List[int] = []

    def text() -> bytes:
        making.append(1)
        time.sleep(0.02)
        count = len(making)
        making.pop()
        return b'%d' % count

    endpoint = Endpoint(text, lambda: bench.place)
    endpoint.tend()
    try:
        with futures.ThreadPoolExecutor(4) as clients:
            assert {page for _, _, page in clients.map(lambda _: bench.ask(), range(4))} == {b'1'}
    finally:
        endpoint.close()


def test_what_follows_a_request_is_bounded(bounded: Bounded) -> None:
    with bounded.client(GET + b'\r\n') as client:
        with pytest.raises(OSError):
            while True:
                client.sendall(b'x' * 65536)
    wait(lambda: not bounded.known())


def test_a_client_that_trickles_is_dropped_after_its_time(bounded: Bounded) -> None:
    with bounded.client(GET) as trickling, bounded.client() as silent:
        wait(lambda: bounded.known() == 2)
        bounded.now += TOTAL_SECONDS / 2
        trickling.sendall(b'A: b\r\n')
        assert bounded.answer(GET + b'\r\n').endswith(b'page')
        bounded.now += TOTAL_SECONDS / 2
        assert trickling.recv(1) == b'' and silent.recv(1) == b''
    wait(lambda: not bounded.known())


def test_of_too_many_clients_the_oldest_is_dropped(bounded: Bounded) -> None:
    silent = []
    for number in range(CONNECTIONS):
        bounded.now += 0.01
        silent.append(bounded.client(GET))
        wait(lambda: bounded.known() == number + 1)
    assert bounded.answer(GET + b'\r\n').endswith(b'page')
    assert silent[0].recv(1) == b''
    wait(lambda: bounded.known() == CONNECTIONS - 1)
    for client in silent:
        client.close()


def test_one_that_is_slow_to_end_does_not_keep_the_next_one(
        bounded: Bounded, monkeypatch: pytest.MonkeyPatch) -> None:
    ended: List[socket.socket] = []
    monkeypatch.setattr(bounded.server, 'shutdown_request', ended.append)
    silent = [bounded.client(GET) for _ in range(CONNECTIONS)]
    wait(lambda: bounded.known() == CONNECTIONS)
    for _ in range(2):
        with bounded.client(GET):
            wait(lambda: bounded.known() == CONNECTIONS)
    assert [client.recv(1) for client in silent[:2]] == [b'', b'']
    for client in silent:
        client.close()
    wait(lambda: len(ended) == CONNECTIONS + 2)
    for request in ended:
        request.close()


def serving(bench: Bench) -> threading.Thread:
    return cast(threading.Thread, cast(Any, bench.endpoint)._thread)


def breaking_down(_: Any, poll_interval: float) -> None:
    raise RuntimeError('no more threads')


def test_scrapes_at_the_same_time(bench: Bench) -> None:
    bench.endpoint.tend()
    answers: List[int] = []
    threads = [threading.Thread(target=lambda: answers.append(bench.ask()[0])) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert answers == [200] * 8


def test_options() -> None:
    assert place_of({'metrics_addr': '::', 'metrics_port': 9284}.__getitem__) == Place('::', 9284)
    assert (str(Place('::', 1)), str(Place(LOOPBACK, 2))) == ('[::]:1', '127.0.0.1:2')
