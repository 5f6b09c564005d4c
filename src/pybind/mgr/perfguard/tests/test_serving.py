# SPDX-License-Identifier: LGPL-2.1-or-later
"""serve() of the module and of its standby, with a stub in place of what only ceph-mgr has."""
import enum
import importlib
import logging
import sys
import threading
import types
from typing import Any, Callable, Iterator, List, Optional
from unittest import mock

import pytest

#: Those that import mgr_module.
SHELL = ('perfguard.cli', 'perfguard.compat', 'perfguard.cluster.osd_commands',
         'perfguard.cluster.mgr', 'perfguard.cluster.perf_queries', 'perfguard.cluster.sensors',
         'perfguard.module', 'perfguard.standby')


def as_it_is(_: str) -> Callable[[Any], Any]:
    return lambda handler: handler


@pytest.fixture(scope='module', autouse=True)
def stub() -> Iterator[None]:
    module = types.ModuleType('mgr_module')
    for name, value in {
            'CLICommand': object, 'CLIReadCommand': as_it_is, 'CLIWriteCommand': as_it_is,
            'CommandResult': object, 'MgrModule': object, 'MgrStandbyModule': object,
            'Option': dict, 'NotifyType': enum.Enum('NotifyType', {'osd_map': 'osd_map'})}.items():
        setattr(module, name, value)
    with mock.patch.dict(sys.modules, {'mgr_module': module}):
        for name in SHELL:
            sys.modules.pop(name, None)
        yield


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


def test_a_standby_goes_on_after_a_bad_turn(monkeypatch: pytest.MonkeyPatch,
                                            caplog: pytest.LogCaptureFixture) -> None:
    standby = importlib.import_module('perfguard.standby')
    monkeypatch.setattr(standby, 'LOOK_SECONDS', 0)
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
