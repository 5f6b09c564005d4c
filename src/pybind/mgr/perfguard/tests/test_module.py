# SPDX-License-Identifier: LGPL-2.1-or-later
"""The module, its standby and its self-test, with a stub of the modules that only ceph-mgr has."""
import importlib
import json
import logging
import threading
from dataclasses import replace
from typing import Any, List, Optional, Tuple
from unittest import mock

import pytest

from perfguard.status import Published

pytestmark = pytest.mark.usefixtures('mgr_stub')


class Part:
    """An endpoint and a loop that note what is called, and may fail."""

    def __init__(self, calls: List[str], name: str, failing: str) -> None:
        self.calls, self.name, self.failing = calls, name, failing
        self.stop: Optional[threading.Event] = None

    def _called(self, what: str) -> None:
        call = '%s.%s' % (self.name, what)
        self.calls.append(call)
        if call == self.failing:
            raise RuntimeError(call)

    def load(self) -> None:
        self._called('load')

    def tend(self) -> None:
        self._called('tend')

    def turn(self) -> None:
        self._called('turn')

    def failed(self, error: Exception) -> None:
        self.calls.append('failed')

    def wait(self) -> None:
        self._called('wait')
        assert self.stop is not None
        if self.calls.count('loop.wait') == 2:
            self.stop.set()

    def close(self) -> None:
        self._called('close')


def serve(failing: str = '') -> List[str]:
    """What was called, with the failure that came out of serve()."""
    found = importlib.import_module('perfguard.module').Module
    module = found.__new__(found)
    calls: List[str] = []
    module._stop = threading.Event()
    module._options = mock.Mock()
    module._cluster = mock.Mock()
    module._metrics = Part(calls, 'metrics', failing)
    module.loop = Part(calls, 'loop', failing)
    module.loop.stop = module._stop
    try:
        module.serve()
    except RuntimeError as error:
        calls.append('raised %s' % error)
    return calls


TURN = ['metrics.tend', 'loop.turn', 'loop.wait']
CLOSE = ['metrics.close', 'loop.close']


@pytest.mark.parametrize('failing', ['', 'metrics.tend', 'loop.turn'])
def test_a_bad_turn_does_not_end_it(failing: str, caplog: pytest.LogCaptureFixture) -> None:
    turn = ['metrics.tend', 'loop.turn', 'failed', 'loop.wait'] if failing == 'loop.turn' else TURN
    assert serve(failing) == ['loop.load', *turn, *turn, *CLOSE]
    assert len(caplog.records) == (1 if failing else 0), 'one traceback for each error'


@pytest.mark.parametrize('failing', ['loop.wait', 'metrics.close', 'loop.close'])
def test_everything_is_closed_whatever_fails(failing: str) -> None:
    assert serve(failing)[-3:] == [*CLOSE, 'raised %s' % failing]


def test_a_standby_continues_after_a_failed_turn(monkeypatch: pytest.MonkeyPatch,
                                                 caplog: pytest.LogCaptureFixture) -> None:
    standby = importlib.import_module('perfguard.module')
    monkeypatch.setattr(standby, 'STANDBY_LOOK_SECONDS', 0)
    calls: List[str] = []
    module = standby.StandbyModule()

    class Failing:
        def tend(self) -> None:
            calls.append('tend')
            if len(calls) == 2:
                module.shutdown()
            raise RuntimeError('no options')

        def close(self) -> None:
            calls.append('close')

    monkeypatch.setattr(standby, 'Endpoint', lambda *_: Failing())
    with caplog.at_level(logging.ERROR):
        module.serve()
    assert calls == ['tend', 'tend', 'close'] and len(caplog.records) == 2


# ---- the self-test fails where the module does. On real clusters: qa/tests/test_module.py

TURNED = Published(turned=100.0, stale_after=20.0)


def shell() -> Any:
    return importlib.import_module('perfguard.module')


class Commands:
    """All answer well, but those that a test makes fail."""

    def __getattr__(self, name: str) -> Any:
        # pytest looks for some of these.
        if name.startswith('__') or name not in shell().READ_HANDLERS:
            raise AttributeError(name)
        return lambda format: (0, json.dumps({'a': 1}), '')


def failing(name: str, answer: Tuple[int, str, str]) -> Commands:
    commands = Commands()
    setattr(commands, name, lambda format: answer)
    return commands


def metrics() -> bytes:
    return b'ceph_perfguard_info 1\n'


def test_it_passes() -> None:
    shell().run_self_test(Commands(), TURNED, metrics, 110.0)


@pytest.mark.parametrize('commands, published, page, now, why', [
    (Commands(), replace(TURNED, turned=0.0), metrics, 110.0, 'not completed an iteration'),
    (Commands(), TURNED, metrics, 121.0, '21 s ago'),
    (failing('osds', (-11, '', 'try again')), TURNED, metrics, 110.0, 'osds .*try again'),
    (failing('pools', (0, '', '')), TURNED, metrics, 110.0, 'pools'),
    (failing('events', (0, '[]', '')), TURNED, metrics, 110.0, 'events .*no JSON object'),
    (Commands(), TURNED, lambda: b'', 110.0, 'metrics')])
def test_it_fails(commands: Any, published: Published, page: Any, now: float, why: str) -> None:
    with pytest.raises(shell().SelfTestFailed, match=why):
        shell().run_self_test(commands, published, page, now)
