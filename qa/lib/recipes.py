# SPDX-License-Identifier: LGPL-2.1-or-later
"""The recipes of the manual, and how a test follows one.

A recipe stands below a comment, ".. recipe: NAME", up to the next heading: numbered steps, each
with a text and, in directives "prompt", the commands to give.
"""
import errno
import json
import re
import shlex
import time
from pathlib import Path
from typing import Callable, Dict, List, Mapping, NamedTuple, Tuple

from qa.cluster import Cluster
from qa.cluster.patience import patient
from qa.lib.guard import Guard

MANUAL = Path(__file__).resolve().parents[2] / 'doc' / 'mgr' / 'perfguard.rst'
#: A recipe ends with the underlined line that begins another section.
_RECIPE = re.compile(
    r'^\.\. recipe: ([^\n]+)\n(.*?)(?=\n[^\n]+\n(?:-{4,}|~{4,})\n)', re.M | re.S)
_PROMPT = re.compile(r'^ {3}\.\. prompt:: bash #\n\n((?: {6}.+\n)+)', re.M)
#: Ceph asks to try again: statistics are on their way. perfguard does on a busy machine; of a
#: "watch" it means that the campaign has missed its end.
_NOT_YET = {errno.EAGAIN, errno.EBUSY}
_NO_ANSWER = {errno.ETIMEDOUT}
#: Seconds for a command with "watch", which ends with the campaign; seconds to try again.
WATCH_SECONDS, AGAIN_SECONDS = 300.0, 60.0


class Step(NamedTuple):
    text: str
    commands: Tuple[str, ...]


def recipes(manual: str) -> Dict[str, Tuple[Step, ...]]:
    """Name -> steps."""
    return {found.group(1): tuple(map(_step, re.split(r'^#\. ', found.group(2) + '\n', flags=re.M)
                                      [1:])) for found in _RECIPE.finditer(manual)}


def _step(text: str) -> Step:
    commands: List[str] = []
    for block in _PROMPT.findall(text):
        commands += [line.strip() for line in block.splitlines()]
    return Step(' '.join(_PROMPT.sub('', text).split()), tuple(commands))


def follow(guard: Guard, name: str, by_hand: Mapping[str, Callable[[], object]]) -> None:
    """Give the commands of a recipe, in a cluster's own ceph tool.

    by_hand: beginning of a step's text -> what an operator does there, after its commands. Every
    step without a command needs one.
    """
    left = dict(by_hand)
    for step in recipes(MANUAL.read_text())[name]:
        for command in step.commands:
            _give(guard.cluster, command)
        named = [begin for begin in left if step.text.startswith(begin)]
        assert named or step.commands, 'not done: %s' % step.text
        for begin in named:
            left.pop(begin)()
    assert not left, 'no such step in %r: %s' % (name, sorted(left))


def _give(cluster: Cluster, command: str) -> None:
    words = [str(cluster.directory / word) if re.fullmatch(r'[a-z]+\.(bin|txt)', word) else word
             for word in shlex.split(command)]
    if '|' in words:
        print('# %s\n%s' % (command, cluster.run_tool(
            ['env', 'CEPH_CONF=%s' % cluster.conf_path, 'sh', '-euc', command], WATCH_SECONDS)))
        return
    if words[0] != 'ceph':
        cluster.run_tool(words)
        return
    deadline = time.monotonic() + patient(AGAIN_SECONDS)
    again = _NOT_YET if 'watch' in words else _NOT_YET | _NO_ANSWER
    while True:
        done = cluster.ceph(*words[1:], check=False, timeout=patient(WATCH_SECONDS))
        print('# %s\n%s%s' % (command, done.stdout[-2000:], done.stderr[-500:]))
        if done.returncode not in again or time.monotonic() > deadline:
            break
        time.sleep(1)
    assert done.returncode == 0, (command, done.returncode, done.stderr)


def safe_to_disable(guard: Guard) -> bool:
    """`shutdown`, given again."""
    retval, out, error = guard.ask('shutdown')
    assert retval == 0, error
    return bool(json.loads(out)['safe'])
