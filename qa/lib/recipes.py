# SPDX-License-Identifier: LGPL-2.1-or-later
"""The recipes of the manual, and how a test follows one.

A recipe stands below a comment, ".. recipe: NAME": numbered steps, each with a text and, in
directives "prompt", the commands to give. Commands below "With packages" and "With cephadm" are
alternatives. A test gives those of packages; what systemd would do it does itself, and of what
other programs than Ceph's would do it checks the words. These clusters have no cephadm, but Ceph
checks the arguments of its commands all the same; test_cephadm_recipes.py gives some of them.
"""
import errno
import json
import re
import shlex
import signal
import time
from typing import Callable, Dict, List, Mapping, NamedTuple, Tuple

from qa.cluster import Cluster
from qa.cluster.patience import patient
from qa.lib.guard import Guard
from qa.lib.reference import manual

#: A recipe consists of numbered steps and what is indented below them.
_RECIPE = re.compile(r'^\.\. recipe: (?P<name>[^\n]+)\n(?P<steps>(?:(?:#\. .+| {3}.+|)\n)+)', re.M)
#: A section that begins with a recipe.
_LABELLED = re.compile(
    r'^\.\. _(?P<label>[\w-]+):\n\n.+\n\W+\n\n\.\. recipe: (?P<name>[^\n]+)', re.M)
_CONTINUED = re.compile(r'[Cc]ontinue with the second step of :ref:`(?P<label>[\w-]+)`')
_PROMPT = re.compile(r'^(?: {3}With (packages|cephadm)(?:, .+)?:\n\n)?'
                     r' {3}\.\. prompt:: bash #\n\n((?: {6}.+\n)+)', re.M)
PACKAGES, CEPHADM = 'packages', 'cephadm'
#: Ceph asks to try again: statistics are on their way. perfguard does on a busy machine; of a
#: "watch" it means that the campaign has missed its end.
_NOT_YET = {errno.EAGAIN, errno.EBUSY}
_NO_ANSWER = {errno.ETIMEDOUT}
#: Seconds for a command with "watch", which ends with the campaign; seconds to try again.
WATCH_SECONDS, AGAIN_SECONDS = 300.0, 60.0


#: What operators give to systemd and apt.
UNITS = re.compile(r'ceph-(?:osd@\d+|(?:mgr|mon|osd)\.target)')
INSTALLED = {'ceph-mgr', 'ceph-mon', 'ceph-osd', 'ceph-mgr-perfguard'}
#: The answer to a command of cephadm whose arguments are right.
NO_CEPHADM = 'No orchestrator configured'


class Step(NamedTuple):
    text: str
    commands: Tuple[str, ...]
    #: Alternatives after that.
    packages: Tuple[str, ...] = ()
    cephadm: Tuple[str, ...] = ()


def recipes(text: str) -> Dict[str, Tuple[Step, ...]]:
    """Name -> steps, with those of the recipe that its last step continues with."""
    written = {match['name']: tuple(map(_step, re.split(r'^#\. ', match['steps'] + '\n', flags=re.M)
                                        [1:])) for match in _RECIPE.finditer(text)}
    labelled = {match['label']: match['name'] for match in _LABELLED.finditer(text)}

    def complete(name: str) -> Tuple[Step, ...]:
        steps = written[name]
        further = _CONTINUED.search(steps[-1].text)
        return (*steps, *complete(labelled[further['label']])[1:]) if further else steps

    return {name: complete(name) for name in written}


def _step(text: str) -> Step:
    found: Dict[str, Tuple[str, ...]] = {}
    for form, block in _PROMPT.findall(text):
        found[form] = (*found.get(form, ()), *map(str.strip, block.splitlines()))
    return Step(' '.join(_PROMPT.sub('', text).split()), found.get('', ()),
                found.get(PACKAGES, ()), found.get(CEPHADM, ()))


def follow(guard: Guard, name: str, by_hand: Mapping[str, Callable[[], object]]) -> None:
    """Give the commands of a recipe, in a cluster's own ceph tool.

    by_hand: beginning of a step's text -> what an operator does there, or what another program than
    Ceph's would do, after its commands. Every step needs one of which nothing was done otherwise.
    """
    left = dict(by_hand)
    for step in recipes(manual())[name]:
        for command in (*step.commands, *step.packages):
            _give(guard.cluster, command)
        for command in step.cephadm:
            _check_cephadm(guard.cluster, command)
        named = [begin for begin in left if step.text.startswith(begin)]
        assert named or step.commands or any(map(_is_done, step.packages)) \
            or _CONTINUED.match(step.text), step.text
        for begin in named:
            left.pop(begin)()
    assert not left, 'no such step in %r: %s' % (name, sorted(left))


def _is_done(command: str) -> bool:
    """Whether `follow` does it, not only checks it."""
    return not command.startswith(('apt ', 'ceph-volume ')) and not command.endswith('.target')


def _give(cluster: Cluster, command: str) -> None:
    words = [str(cluster.directory / word) if re.fullmatch(r'[a-z]+\.(bin|txt)', word) else word
             for word in shlex.split(command)]
    if '|' in words:
        print('# %s\n%s' % (command, cluster.run_tool(
            ['env', 'CEPH_CONF=%s' % cluster.conf_path, 'sh', '-euc', command], WATCH_SECONDS)))
        return
    if words[0] in ('systemctl', 'apt', 'ceph-volume'):
        {'systemctl': _systemctl, 'apt': _apt, 'ceph-volume': _ceph_volume}[words[0]](
            cluster, words[1:])
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


def _systemctl(cluster: Cluster, words: List[str]) -> None:
    """Single OSDs only: a target is up to the test."""
    verb, units = words[0], [word for word in words[1:] if word != '--now']
    assert units and all(map(UNITS.fullmatch, units)), units
    assert verb == 'start' or verb == 'restart' or words[:2] == ['disable', '--now'], words
    for unit in units:
        if not unit.endswith('.target') and verb == 'start':
            cluster.start('osd.' + unit.partition('@')[2])
        elif not unit.endswith('.target'):
            stop(cluster, int(unit.partition('@')[2]))


def stop(cluster: Cluster, osd: int) -> None:
    """As a daemon is stopped; a memstore keeps its data."""
    if cluster.pid('osd.%d' % osd) is not None:
        cluster.kill('osd.%d' % osd, signal.SIGTERM)
    cluster.wait(lambda: not up(cluster, osd), 60, 'osd.%d down' % osd)


def up(cluster: Cluster, osd: int) -> bool:
    return any(row['osd'] == osd and row['up'] for row in cluster.osd_dump()['osds'])


def _apt(cluster: Cluster, words: List[str]) -> None:
    assert words[0] in ('install', 'purge') and set(words[1:]) <= INSTALLED, words


def _ceph_volume(cluster: Cluster, words: List[str]) -> None:
    known = cluster.run_tool(['ceph-volume', *words[:2], '--help'])
    for word in words[2:]:
        assert not word.startswith('--') or re.search(r'^ +%s ' % word, known, re.M), word


def _check_cephadm(cluster: Cluster, command: str) -> None:
    """It ends where the mgr looks for cephadm: it exists, with these arguments."""
    words = shlex.split(command)
    assert words[:2] == ['ceph', 'orch'], command
    done = cluster.ceph(*words[1:], check=False)
    assert done.returncode == errno.ENOENT and NO_CEPHADM in done.stderr, (command, done.stderr)


def safe_to_disable(guard: Guard) -> bool:
    """`shutdown`, given again."""
    retval, out, error = guard.ask('shutdown')
    assert retval == 0, error
    return bool(json.loads(out)['safe'])
