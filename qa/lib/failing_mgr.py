# SPDX-License-Identifier: LGPL-2.1-or-later
"""Inside an mgr under test: ends the process before or after a named write or command.

fail_points.py copies this file beside the module. It imports nothing of the tests.
"""
import json
import os
import re
import signal
from collections import Counter
from pathlib import Path
from typing import Any, Callable, Counter as CounterType, Mapping

#: Commands to the mons that change something; the others only read.
CHANGES = ('osd set', 'osd unset', 'config set', 'config rm', 'osd pg-upmap', 'osd rm-pg-upmap',
           'osd pg-temp', 'osd crush reweight', 'osd setcrushmap', 'osd pool set',
           'osd pool create', 'osd pool rm', 'osd pool application', 'osd primary-affinity',
           'auth get-or-create', 'auth rm')
#: The file that names the instant, and what is written to it instead to record all of them.
ARMED, RECORD = 'fail-point', 'record'


def name_of_key(key: str, value: Any) -> str:
    return ('remove ' if value is None else 'put ') + re.sub(r'\d+', 'N', key)


def name_of_command(command: Mapping[str, Any]) -> str:
    """'': it changes nothing."""
    prefix = str(command['prefix'])
    if not prefix.startswith(CHANGES):
        return ''
    detail = command.get('var') or command.get('key') or (
        command.get('name') if prefix.startswith('config') else '')
    return ' '.join(filter(None, (prefix, detail)))


class FailPoint:
    def __init__(self, directory: str) -> None:
        self._armed = Path(directory) / ARMED
        self._text = ''
        self._counts: CounterType[str] = Counter()

    def passes(self, when: str, name: str) -> None:
        """The file has one instant a line; "before 2 put campaign/head" is the second time since
        the file was written."""
        try:
            text = self._armed.read_text()
        except OSError:
            return
        step = '%s %%d %s' % (when, name)
        if text == RECORD:
            with open(str(self._armed) + '.recorded', 'a') as recorded:
                recorded.write(step % 1 + '\n')
            return
        if text != self._text:
            self._text = text
            self._counts.clear()
        self._counts[step] += 1
        instant = step % self._counts[step]
        if instant in text.splitlines():
            Path(str(self._armed) + '.hit').write_text(instant)
            os.kill(os.getpid(), signal.SIGKILL)


def wrap(module: Any, directory: str) -> None:
    """Have each instant of the module class pass the fail point."""
    point = FailPoint(directory)

    def put_around(method: str, describe: Callable[..., str]) -> None:
        original = getattr(module, method)

        def passing(self: Any, *args: Any, **kwargs: Any) -> Any:
            name = describe(*args)
            if not name:
                return original(self, *args, **kwargs)
            point.passes('before', name)
            answer = original(self, *args, **kwargs)
            point.passes('after', name)
            return answer

        setattr(module, method, passing)

    put_around('set_store', name_of_key)
    put_around('send_command', lambda result, kind, target, command, *more:
               name_of_command(json.loads(command)) if kind == 'mon' else '')
    put_around('remote', lambda name, method, *args:
               str(args[1]['prefix']) if name == 'balancer' and args
               and args[1]['prefix'] in ('balancer on', 'balancer off') else '')
