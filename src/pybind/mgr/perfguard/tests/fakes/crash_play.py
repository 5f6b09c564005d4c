# SPDX-License-Identifier: LGPL-2.1-or-later
"""Plays an operator's story in which one mgr dies before a given write or command.

A story is a list of steps. The operator repeats a step until the cluster shows that it is done, as
an operator does whose mgr has just failed.
"""
from dataclasses import dataclass, field
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence, Tuple

from perfguard.errors import Refused
from perfguard.request_queue import PendingOrder

from .audit import over_caps
from .cluster import Crash, FakeCluster, FakeReply
from .driver import Driver

#: Turns until an operator gives an order again that has had no effect.
PATIENCE = 4
#: Turns in which every story ends.
MOST_TURNS = 500
#: Turns after the end in which nothing may change any more.
REST_TURNS = 15

Check = Callable[[Driver], bool]


@dataclass(frozen=True)
class Step:
    """What is done until `done` is true."""
    act: Callable[[Driver], Any]
    done: Check
    order: Any = None


@dataclass(frozen=True)
class CrashStory:
    name: str
    driver: Callable[[], Driver]
    steps: Sequence[Step]
    #: How many PGs have moved depends on the instant, as where a campaign is aborted.
    timing: bool = False
    #: PGs may move back.
    returns: bool = False


def ordered(order: Any, done: Check) -> Step:
    return Step(lambda driver: driver.loop.requests.submit(order), done, order)


def asked(verb: str, done: Check, **more: Any) -> Step:
    return Step(lambda driver: driver.ask(verb, **more), done)


def waited(done: Check) -> Step:
    return Step(lambda driver: None, done)


@dataclass
class Late:
    """Commands that a dead mgr has sent reach the mons so many seconds after its death."""
    cluster: FakeCluster
    seconds: float
    waiting: List[Tuple[float, Sequence[Mapping[str, Any]]]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._run, self._tick = self.cluster.run, self.cluster.tick
        setattr(self.cluster, 'run', self.run)
        setattr(self.cluster, 'tick', self.tick)

    def run(self, commands: Sequence[Mapping[str, Any]]) -> List[FakeReply]:
        sent = len(self.cluster.sent)
        try:
            return self._run(commands)
        except Crash:
            rest = commands[len(self.cluster.sent) - sent:]
            self.waiting.append((self.cluster.now + self.seconds, rest))
            raise

    def tick(self, seconds: float = 1.0) -> None:
        self._tick(seconds)
        due = [rest for when, rest in self.waiting if when <= self.cluster.now]
        self.waiting = [each for each in self.waiting if each[0] > self.cluster.now]
        for rest in due:
            self._run(rest)


class CrashPlay:
    """One story with a crash before side effect number `at`, and `again` after that a second one.

    `jump`: in that turn another mgr becomes active, whose clock is so many seconds ahead.
    """

    def __init__(self, story: CrashStory, at: Optional[int] = None, again: Optional[int] = None,
                 late: float = 0.0, jump: Tuple[int, float] = (0, 0.0)) -> None:
        self.story, self.again = story, again
        self.driver = story.driver()
        self.cluster = self.driver.cluster
        if late:
            Late(self.cluster, late)
        self.turns, self._jump = 0, jump
        if jump[1] < 0.0:
            self.cluster.now -= 2.0 * jump[1]  # no time is before the epoch
        self.crashes = 0
        self.where = ''
        fault = self.cluster.fault
        fault.count, fault.at = 0, at
        self.cluster.moved.clear()
        self._steps = list(story.steps)
        self._pending: Any = None
        self._patience = 0
        self._blind = False
        self._over: List[str] = []

    def play(self) -> 'CrashPlay':
        while self.turns < MOST_TURNS:
            self.turns += 1
            if self.turns == self._jump[0]:
                self.cluster.ahead += self._jump[1]
                self._fail_over()
            try:
                self._turn()
            except Crash:
                self._crashed()
            if not self._steps:
                break
        else:
            raise AssertionError('no end: %s, %d steps left: %s' % (
                self.driver.phase, len(self._steps), self.driver.status.get('reasons')))
        self.count, self.cluster.fault.at = self.cluster.fault.count, None
        self.driver.run(REST_TURNS)
        return self

    def _turn(self) -> None:
        if self._blind:
            # What a new mgr shows before its first turn says nothing.
            self.driver.turn()
            self._blind = False
        while self._steps and self._steps[0].done(self.driver):
            self._steps.pop(0)
            self._pending, self._patience = None, 0
        if not self._steps:
            return
        if self._patience == 0:
            try:
                self._pending = self._steps[0].act(self.driver)
            except Refused:
                pass
            self._patience = PATIENCE
        self.driver.turn()
        self._over = self._over or over_caps(self.cluster, self.driver.options)
        if not (isinstance(self._pending, PendingOrder) and not self._pending.done.is_set()):
            self._patience -= 1

    def _crashed(self) -> None:
        self.crashes += 1
        self.where = 'after %s' % (self.cluster.sent[-1:],)
        self._fail_over()
        if self.again is not None:
            self.cluster.fault.at = self.cluster.fault.count + self.again
            self.again = None

    def _fail_over(self) -> None:
        self._pending, self._patience, self._blind = None, 0, True
        self.driver.restart()
        self.cluster.tick()

    def ending(self) -> Dict[str, Any]:
        """What an auditor finds at the end."""
        cluster, driver = self.cluster, self.driver
        found = {
            'flags': sorted(cluster.flags), 'config': cluster.config,
            'mon options': cluster.mon_config, 'OSD options': cluster.osd_config,
            'affinity': cluster.affinity,
            # Of an OSD that a rollback found empty 0, of another one a little more.
            'weights': {osd: round(toy.crush_weight, 3) for osd, toy in cluster.toys.items()},
            'rules': getattr(cluster, 'rules', None), 'progress': cluster.progress_events,
            'health checks': sorted(cluster.checks),
            'campaigns': [(row['id'], row['phase'], row['trigger'], row['rolled_back'])
                          for row in driver.history],
            'losses': driver.loop._store.losses,
            'clean': cluster.clean(), 'documents': self._documents(),
            'wrong': getattr(cluster, 'wrong', []), 'over caps': self._over}
        if not self.story.timing:
            found['autoscaler'] = cluster.modes
            found['upmaps'] = cluster.entries()
            found['up'] = {pgid: sorted(pg.up) for pgid, pg in cluster.pg.items()}
            found['pins'] = sorted(driver.loop.rebalance.pins)
        if not self.story.returns:
            moved = [one.pgid for one in cluster.moved]
            found['moved twice'] = sorted({pgid for pgid in moved if moved.count(pgid) > 1})
        return found

    def _documents(self) -> List[str]:
        return sorted({key.split('/')[0] for key in self.driver.kv.data} - {
            # Written now and then.
            'events', 'events_recent', 'baseline', 'watch'})


def unlike(story: CrashStory, quiet: Dict[str, Any], at: Optional[int],
           **how: Any) -> Optional[str]:
    """What ends otherwise than without a crash; None: nothing."""
    play = CrashPlay(story, at, **how)
    try:
        ending = play.play().ending()
    except AssertionError as error:
        return '%s: %s' % (play.where, error)
    assert play.crashes or at is None
    wrong = {what: (found, quiet[what]) for what, found in ending.items() if found != quiet[what]}
    return '%s: %s' % (play.where, wrong) if wrong else None
