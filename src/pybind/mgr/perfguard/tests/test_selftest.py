# SPDX-License-Identifier: LGPL-2.1-or-later
"""The self-test fails where the module does. On real clusters: qa/tests/test_module.py."""
import json
from dataclasses import replace
from typing import Any, Tuple

import pytest

from perfguard.selftest import READS, SelfTestFailed, run
from perfguard.status import Published

TURNED = Published(turned=100.0, stale_after=20.0)


class Commands:
    """All answer well, but those that a test makes fail."""

    def __getattr__(self, name: str) -> Any:
        if name not in READS:
            raise AttributeError(name)
        return lambda format: (0, json.dumps({'a': 1}), '')


def failing(name: str, answer: Tuple[int, str, str]) -> Commands:
    commands = Commands()
    setattr(commands, name, lambda format: answer)
    return commands


def metrics() -> bytes:
    return b'ceph_perfguard_info 1\n'


def test_it_passes() -> None:
    run(Commands(), TURNED, metrics, 110.0)


@pytest.mark.parametrize('commands, published, page, now, why', [
    (Commands(), replace(TURNED, turned=0.0), metrics, 110.0, 'not completed an iteration'),
    (Commands(), TURNED, metrics, 121.0, '21 s ago'),
    (failing('osds', (-11, '', 'try again')), TURNED, metrics, 110.0, 'osds .*try again'),
    (failing('pools', (0, '', '')), TURNED, metrics, 110.0, 'pools'),
    (failing('events', (0, '[]', '')), TURNED, metrics, 110.0, 'events .*no JSON object'),
    (Commands(), TURNED, lambda: b'', 110.0, 'metrics')])
def test_it_fails(commands: Any, published: Published, page: Any, now: float, why: str) -> None:
    with pytest.raises(SelfTestFailed, match=why):
        run(commands, published, page, now)
