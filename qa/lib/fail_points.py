# SPDX-License-Identifier: LGPL-2.1-or-later
"""Kills the active mgr (SIGKILL) at named writes and commands of perfguard; a standby takes over.

    install(cluster)                       # and restarts the mgrs with the fail points
    recorded = record(cluster, story)      # what a story writes and sends
    with Killer(cluster, instants) as killer:
        story()
    print(killer.hits)

perfguard is not changed for that: the copy of the module that the cluster runs gets one more file,
which wraps the methods of MgrModule that write and send.
"""
import random
import shutil
import threading
import time
from collections import Counter
from pathlib import Path
from types import TracebackType
from typing import Callable, Counter as CounterType, Dict, List, Optional, Sequence, Type

from qa.cluster import Cluster
from qa.cluster.errors import ClusterError
from qa.lib import failing_mgr
from qa.lib.failing_mgr import ARMED, RECORD

#: Seconds within which a standby is active after its predecessor was killed.
TAKEOVER_SECONDS = 180.0


def install(cluster: Cluster) -> None:
    """Add the fail points to the cluster's copy of the module, and load it in every mgr."""
    copy = cluster.directory / 'mgr-modules' / 'perfguard'
    shutil.copy(failing_mgr.__file__, copy / 'failing_mgr.py')
    with open(copy / 'module.py', 'a') as module:
        module.write('\n\nfrom . import failing_mgr\nfailing_mgr.wrap(Module, %r)\n'
                     % str(cluster.directory))
    reload_mgrs(cluster)


def uninstall(cluster: Cluster) -> None:
    """The mgrs that run do nothing more at fail points: none is armed."""
    (cluster.directory / ARMED).unlink(missing_ok=True)
    cluster.install_module()


def reload_mgrs(cluster: Cluster) -> None:
    for _ in range(len(cluster.mon('mgr dump')['standbys']) + 1):
        wait_standby(cluster)
        cluster.restart_mgr()
    wait_standby(cluster)


def wait_standby(cluster: Cluster) -> None:
    cluster.wait(lambda: cluster.mon('mgr dump')['standbys'], TAKEOVER_SECONDS, 'a standby mgr')


def record(cluster: Cluster, story: Callable[[], None]) -> List[str]:
    """What a story writes and sends, in order: "before 1 put campaign/head"."""
    armed = cluster.directory / ARMED
    recorded = Path(str(armed) + '.recorded')
    recorded.unlink(missing_ok=True)
    armed.write_text(RECORD)
    try:
        story()
    finally:
        armed.unlink(missing_ok=True)
    return recorded.read_text().splitlines()


def instants_of(recorded: Sequence[str]) -> List[str]:
    """Before and after the first and the second write or command of each name, in order."""
    counts: CounterType[str] = Counter()
    found: List[str] = []
    for step in recorded:
        counts[step] += 1
        if counts[step] <= 2:
            found.append(step.replace(' 1 ', ' %d ' % counts[step], 1))
    return found


def some(instants: Sequence[str], count: int, seed: int) -> List[str]:
    places = random.Random(seed).sample(range(len(instants)), min(count, len(instants)))
    return [instants[place] for place in sorted(places)]


class Tries:
    """The instants to arm in each story, until each was reached, or missed in two stories without a
    death.

    A story that another mgr continues does not pass all instants again, so those that were not
    reached are armed again later. A story in which the mgr does not die is one for each of its
    armed instants alone.
    """
    #: Stories without a death after which an instant is given up.
    ALONE = 2

    def __init__(self, instants: Sequence[str], at_once: int) -> None:
        """`at_once`: how often the mgr dies in one story at most."""
        self._waiting = list(instants)
        self._at_once = at_once
        self._alone: CounterType[str] = Counter()
        self.stories = 0
        self.came: List[str] = []
        self.given_up: List[str] = []

    @property
    def armed(self) -> List[str]:
        """For the next story; none: all were tried."""
        return self._waiting[:self._at_once]

    def note(self, hits: Sequence[str]) -> None:
        """What came in the story for which `armed` was armed."""
        missed = [instant for instant in self.armed if instant not in hits]
        del self._waiting[:self._at_once]
        self.stories += 1
        self.came += hits
        if not hits:
            self._alone.update(missed)
        self.given_up += [each for each in missed if self._alone[each] >= self.ALONE]
        self._waiting += [each for each in missed if self._alone[each] < self.ALONE]


#: Beginnings of writes and commands that not every story passes, and why.
NOT_IN_EACH_STORY: Dict[str, str] = {
    'put events/': 'the log of events is written as a whole once per 30 events',
    'put events_recent/': 'new events are written once in ten seconds',
    'put baseline/': 'the baseline of a pool is written when it has grown',
    'put usual/': 'what is usual for an OSD is written every hour',
    'put watch/': 'written if an OSD seems slow, as on a busy machine',
    'put drained/': 'the first story after one that drains forgets what that has drained',
    'put chronic/': 'written every 15 minutes if an OSD was slow',
}


def why_not(instant: str) -> str:
    """Why an instant does not come in each story; '' if it should."""
    step = instant.split(' ', 2)[2]
    return next((why for begin, why in NOT_IN_EACH_STORY.items() if step.startswith(begin)), '')


class Killer:
    """Arms some instants; the mgr dies at each of them that comes, and a standby takes over."""

    def __init__(self, cluster: Cluster, instants: Sequence[str]) -> None:
        self._cluster = cluster
        self._armed = cluster.directory / ARMED
        self._hit = Path(str(self._armed) + '.hit')
        self._waiting = list(instants)
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch)
        self._problem: Optional[BaseException] = None
        self.hits: List[str] = []

    def __enter__(self) -> 'Killer':
        self._hit.unlink(missing_ok=True)
        self._arm()
        self._thread.start()
        return self

    def __exit__(self, kind: Optional[Type[BaseException]], error: Optional[BaseException],
                 trace: Optional[TracebackType]) -> None:
        self._armed.unlink(missing_ok=True)
        self._over.set()
        self._thread.join(2 * TAKEOVER_SECONDS)
        if error is None:
            assert self._problem is None, repr(self._problem)
            assert not self._thread.is_alive(), 'no standby has taken over'

    def _arm(self) -> None:
        """The instants that have not come yet. With the time, since an mgr that knows the text goes
        on counting."""
        new = Path(str(self._armed) + '.new')
        new.write_text('\n'.join(['# %d' % time.time_ns(), *self._waiting]))
        new.rename(self._armed)

    def _watch(self) -> None:
        try:
            while not self._over.wait(0.1):
                self._look()
            self._look()
        except BaseException as problem:
            self._problem = problem

    def _look(self) -> None:
        if not self._hit.exists():
            return
        hit = self._hit.read_text()
        self.hits.append(hit)
        self._waiting.remove(hit)
        self._hit.unlink()
        self._armed.unlink(missing_ok=True)
        take_over(self._cluster)
        if not self._over.is_set():
            self._arm()


def take_over(cluster: Cluster) -> None:
    """After the active mgr was killed: a standby becomes active, the dead one the new standby."""
    dead = cluster.mon('mgr dump')
    name = 'mgr.' + dead['active_name']
    deadline = time.monotonic() + TAKEOVER_SECONDS
    while cluster.pid(name) is not None:
        if time.monotonic() > deadline:
            raise ClusterError('%s was not killed' % name)
        time.sleep(0.05)
    cluster.mon('mgr fail', who=dead['active_name'])
    cluster.wait(lambda: cluster.mon('mgr dump')['active_gid'] not in (0, dead['active_gid']),
                 TAKEOVER_SECONDS, 'another active mgr')
    cluster.start(name)
    wait_standby(cluster)
