# SPDX-License-Identifier: LGPL-2.1-or-later
"""The endpoint on the loopback address: requests, changed options, ports in use."""
import http.client
import socket
import sys
import threading
import time
from typing import Any, Callable, Dict, Iterator, List, Set, Tuple, cast

import pytest

from perfguard.metrics import endpoint as module
from perfguard.metrics.endpoint import RETRY_SECONDS, Endpoint, Place, place_of

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
            if thread.name.startswith(('perfguard-metrics', 'CP Server'))}


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
    pytest.importorskip('cheroot')
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
    status, headers, _ = bench.ask(method='POST')
    assert (status, headers['Allow']) == (405, 'GET, HEAD')
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
    bench.now += RETRY_SECONDS
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


def test_a_port_in_use_is_told_and_tried_again(bench: Bench) -> None:
    with socket.socket() as other:
        other.bind((LOOPBACK, bench.place.port))
        other.listen()
        bench.endpoint.tend()
        remark, = bench.endpoint.remarks()
        assert '\n' not in remark and 'in use' in remark
        assert '127.0.0.1:%d' % bench.place.port in remark
        bench.now += RETRY_SECONDS
        bench.endpoint.tend()
        assert bench.endpoint.remarks() == [remark]
    bench.now += RETRY_SECONDS / 2
    bench.endpoint.tend()
    assert not bench.served()
    bench.now += RETRY_SECONDS / 2
    bench.endpoint.tend()
    assert bench.served() and bench.endpoint.remarks() == []


def test_what_is_not_asked_for_any_more_is_no_failure(bench: Bench) -> None:
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
    from cheroot import wsgi
    tried: List[Tuple[str, int]] = []

    def server(where: Tuple[str, int], *_: Any, **__: Any) -> None:
        tried.append(where)
        raise OSError('not in a test')
    monkeypatch.setattr(module, '_has_ipv6', lambda: ipv6)
    monkeypatch.setattr(wsgi, 'Server', server)
    port = bench.place.port
    for address in ('::', '0.0.0.0', '::1'):
        bench.place = Place(address, port)
        bench.endpoint.tend()
    assert tried == [('::' if ipv6 else '0.0.0.0', port), ('0.0.0.0', port), ('::1', port)]


def test_without_a_server(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, 'cheroot.wsgi', cast(Any, None))
    bench.endpoint.tend()
    assert 'cheroot' in bench.endpoint.remarks()[0]


def test_a_connection_that_says_nothing_does_not_keep_it(bench: Bench) -> None:
    bench.endpoint.tend()
    with socket.create_connection((LOOPBACK, bench.place.port)) as silent:
        silent.sendall(b'GET /metr')
        assert bench.served()
        bench.endpoint.close()
    assert not bench.served()


def test_a_server_that_breaks_down_is_started_anew(bench: Bench,
                                                   monkeypatch: pytest.MonkeyPatch) -> None:
    from cheroot.wsgi import Server
    threads = own_threads()
    with monkeypatch.context() as broken:
        broken.setattr(Server, 'serve', breaking_down)
        bench.endpoint.tend()
        thread = serving(bench)
        thread.join()
    bench.now += RETRY_SECONDS / 2
    bench.endpoint.tend()
    assert serving(bench) is thread
    bench.now += RETRY_SECONDS / 2
    bench.endpoint.tend()
    assert bench.served() and bench.endpoint.remarks() == []
    bench.endpoint.close()
    wait(lambda: own_threads() == threads)


def test_a_server_that_starts_by_half_is_not_in_the_way(
        bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    threads = own_threads()
    workers: List[str] = []

    def second_worker(name: str) -> bool:
        workers.extend([name] if name.startswith('CP Server') else [])
        return len(workers) == 2
    with monkeypatch.context() as scarce:
        fail_to_start(scarce, second_worker)
        bench.endpoint.tend()
    assert "can't start new thread" in bench.endpoint.remarks()[0]
    wait(lambda: own_threads() == threads)
    bench.now += RETRY_SECONDS
    bench.endpoint.tend()
    assert bench.served() and bench.endpoint.remarks() == []


def test_a_server_without_a_thread_is_tried_again(bench: Bench,
                                                  monkeypatch: pytest.MonkeyPatch) -> None:
    threads = own_threads()
    with monkeypatch.context() as scarce:
        fail_to_start(scarce, 'perfguard-metrics'.__eq__)
        bench.endpoint.tend()
        assert "can't start new thread" in bench.endpoint.remarks()[0]
        bench.now += RETRY_SECONDS
        bench.endpoint.tend()
        assert len(bench.endpoint.remarks()) == 1
    wait(lambda: own_threads() == threads)
    bench.now += RETRY_SECONDS
    bench.endpoint.tend()
    assert bench.served() and bench.endpoint.remarks() == []


def test_it_closes_without_another_thread(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    threads = own_threads()
    bench.endpoint.tend()
    fail_to_start(monkeypatch, 'perfguard-metrics-end'.__eq__)
    bench.endpoint.close()
    assert own_threads() == threads and not bench.served()


def test_a_stop_that_fails_leaves_nothing(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    from cheroot.connections import ConnectionManager
    threads = own_threads()
    bench.endpoint.tend()
    monkeypatch.setattr(ConnectionManager, 'close', breaking_down)
    bench.endpoint.close()
    wait(lambda: own_threads() == threads)


def test_a_client_that_does_not_read_holds_nobody_up(bench: Bench,
                                                     monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, 'CLOSE_SECONDS', 0.1)
    threads = own_threads()
    bench.page = b'x 1\n' * (4 << 20)
    bench.endpoint.tend()
    with socket.create_connection((LOOPBACK, bench.place.port)) as client:
        client.sendall(b'GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n')
        # The answer is on its way, and gets stuck when the buffers are full.
        assert client.recv(1)
        bench.page = b'y 2\n'
        bench.place = Place(LOOPBACK, free_port())
        before = time.monotonic()
        bench.endpoint.tend()
        # Less than the server's timeout of the connection.
        assert time.monotonic() - before < module.TIMEOUT_SECONDS / 2
        assert bench.served()
    bench.endpoint.close()
    wait(lambda: own_threads() == threads)


def serving(bench: Bench) -> threading.Thread:
    return cast(threading.Thread, cast(Any, bench.endpoint)._thread)


def breaking_down(_: Any) -> None:
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
