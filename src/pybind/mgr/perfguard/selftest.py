# SPDX-License-Identifier: LGPL-2.1-or-later
"""What "ceph mgr self-test module perfguard" does: it reads only, and changes nothing."""
import json
from typing import Any, Callable

from . import tables
from .errors import PerfguardError
from .status import Published

#: Handlers that take nothing but a format.
READS = ('status', 'advise', 'held', 'events', 'osds', 'pools', 'laggy', 'mitigation_ls', 'history',
         'rebalance_status', 'rebalance_plan', 'rebalance_ls', 'probe_ls', 'probe_baseline_ls',
         'probe_schedule_ls')


class SelfTestFailed(PerfguardError):
    """One line that names what failed."""


def run(commands: Any, published: Published, metrics: Callable[[], bytes], now: float) -> None:
    """Raises SelfTestFailed, or whatever the module itself raises."""
    if not published.turned:
        raise SelfTestFailed('the loop has not completed an iteration yet')
    age = now - published.turned
    if age > published.stale_after:
        raise SelfTestFailed('the loop completed its last iteration %d s ago (limit %d s)'
                             % (age, published.stale_after))
    for name in READS:
        for format_ in tables.FORMATS:
            _answered(name, format_, getattr(commands, name)(format=format_))
    if b'ceph_perfguard_info' not in metrics():
        raise SelfTestFailed('the metrics are incomplete')


def _answered(name: str, format_: str, answer: Any) -> None:
    retval, out, error = answer
    if retval or not out:
        raise SelfTestFailed('%s --format %s: %d %s' % (name, format_, retval, error))
    if format_ != 'plain' and not isinstance(json.loads(out), dict):
        raise SelfTestFailed('%s --format %s: no JSON object' % (name, format_))
