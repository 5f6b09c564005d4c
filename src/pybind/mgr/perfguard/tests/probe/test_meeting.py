# SPDX-License-Identifier: LGPL-2.1-or-later
"""Several hosts that measure together: a model of the object at which they meet, and of time."""
import json
import random
from dataclasses import replace
from typing import Any, Dict, List, Mapping, Optional

import pytest

from perfguard.probe.histogram import quantiles
from perfguard.probe.meeting import (BEAT_SECONDS, JOIN_SECONDS, SILENT_SECONDS, CannotJoin,
                                     Go, HostEntry, Meeting, MeetingPlan, judge, merged,
                                     merged_results, shares_of_hosts)
from perfguard.probe.types import Direction, Quantiles, StepResult, StreamResult
from perfguard.probe.worker.engine import SECOND_NS, Tally

STEPS = 4
#: Seconds of a measurement, and between two turns of a host.
MEASURE, TURN = 3.0, 0.25
PLAN = MeetingPlan('digest', 3, STEPS)


class Pool:
    """A pool with one meeting; usable as the Board of all hosts."""

    def __init__(self) -> None:
        self.content: Optional[str] = None
        self.xattrs: Dict[str, str] = {}
        self.others: Dict[str, bytes] = {}

    @property
    def empty(self) -> bool:
        return self.content is None and not self.others

    def create(self, content: str, xattrs: Mapping[str, str]) -> bool:
        if self.content is not None:
            return False
        self.content, self.xattrs = content, dict(xattrs)
        return True

    def read(self) -> Optional[Mapping[str, str]]:
        return None if self.content is None else dict(self.xattrs)

    def write(self, content: str, key: str, value: str) -> bool:
        if self.content != content:
            return False
        self.xattrs[key] = value
        return True

    def remove(self, content: str) -> None:
        if self.content == content:
            self.content = None

    def put(self, suffix: str, data: bytes) -> None:
        self.others[suffix] = data

    def get(self, suffix: str) -> Optional[bytes]:
        return self.others.get(suffix)

    def drop(self, suffix: str) -> None:
        self.others.pop(suffix, None)


class Player:
    """A host, turn by turn, as perfguard-probe plays it."""

    def __init__(self, pool: Pool, number: int, now: float, plan: MeetingPlan = PLAN) -> None:
        self.meeting = Meeting(pool, plan, 'kvm%d' % number, 1000 + number, now)
        self.joined = self.over = self.dead = self.delivered = self.finished = False
        self.said = ''
        #: When each measurement began.
        self.begun: List[float] = []
        self.ready = 0
        self.fails_at = -1
        self.results: List[StepResult] = []
        self.merged: List[StepResult] = []

    def turn(self, now: float) -> None:
        if self.dead or self.over:
            return
        try:
            if not self.joined:
                self.joined = self.meeting.join(now)
            elif self.said:
                self.over = self.meeting.leave(self.said, now)
            elif self.delivered:
                self._wait_for_others(now)
            else:
                self._measure(now)
        except CannotJoin as error:
            self.said, self.over = str(error), True

    def _measure(self, now: float) -> None:
        if self.begun and now - self.begun[-1] >= MEASURE:
            self.ready = len(self.begun)
        if self.ready == self.fails_at:
            self.said = 'no memory'
            return
        if self.ready == STEPS:
            self.results = [result(self.ready) for _ in range(STEPS)]
            self.meeting.deliver(self.results, now)
            self.delivered = True
            return
        go = self.meeting.attend(now, self.ready)
        self.said = go.end
        if not go.end and go.step >= len(self.begun):
            self.begun.append(now)

    def _wait_for_others(self, now: float) -> None:
        if not self.finished:
            go = self.meeting.attend(now, STEPS)
            self.said, self.finished = go.end, go.step == STEPS
            if self.finished and self.meeting.leads:
                _, _, by_host = self.meeting.gathered()
                self.merged = list(merged_results(by_host))
        if self.finished:
            self.over = self.meeting.leave('', now)


def direction(latencies: List[int]) -> Direction:
    tally = Tally()
    for latency in latencies:
        tally.add(latency, 1000, 4096)
    return tally.direction(SECOND_NS)


def result(seed: int) -> StepResult:
    draw = random.Random(seed)
    return StepResult((StreamResult('0', direction(
        [round(draw.lognormvariate(13, 1)) for _ in range(500)])),), 0.5, 0.1, 0.3, False, 'native')


class World:
    def __init__(self, hosts: int = 3, seconds_between: float = 0.0) -> None:
        self.pool, self.now = Pool(), 100.0
        self.players: List[Player] = []
        for number in range(hosts):
            self.add(number)
            self.run(seconds_between)

    def add(self, number: int, plan: MeetingPlan = PLAN) -> Player:
        player = Player(self.pool, number, self.now, plan)
        self.players.append(player)
        return player

    def run(self, seconds: float) -> None:
        until = self.now + seconds
        while self.now < until:
            self.now += TURN
            for player in self.players:
                player.turn(self.now)

    def until_over(self, limit: float = 300.0) -> float:
        began = self.now
        while not all(player.over or player.dead for player in self.players):
            assert self.now - began < limit, [player.said for player in self.players]
            self.run(TURN)
        return self.now - began


@pytest.mark.parametrize('seconds_between', [0.0, 5.0, 30.0])
def test_hosts_begin_together_and_have_one_result(seconds_between: float) -> None:
    world = World(seconds_between=seconds_between)
    world.until_over()
    assert [player.said for player in world.players] == ['', '', '']
    for begins in zip(*(player.begun for player in world.players)):
        assert max(begins) - min(begins) <= TURN
    first, = [player for player in world.players if player.meeting.leads]
    assert len(first.begun) == STEPS == len(first.merged)
    assert first.merged[0].streams[0].read.ios == 3 * 500
    assert world.pool.empty


@pytest.mark.parametrize('number', [0, 1, 2])
def test_a_host_that_dies_ends_the_probe_of_all(number: int) -> None:
    for turns in range(1, 60):
        world = World()
        world.run(turns * TURN)
        victim = world.players[number]
        victim.dead = not victim.over
        seconds = world.until_over()
        others = [player for player in world.players if player is not victim]
        if victim.begun and not victim.delivered:
            assert seconds <= SILENT_SECONDS + 12.0, turns
            assert {player.said for player in others} <= {
                'kvm%d has not answered for 20 s' % number, 'kvm0 has ended the probe'}, turns
            assert all(player.said for player in others), turns
        if victim.dead and victim.joined and not victim.delivered:
            finders = [player for player in others if player.meeting.dead]
            assert {player.meeting.dead for player in finders} == {(1000 + number,)}, turns
        # Only the first host, after the others have left, is the last to know the object.
        assert world.pool.empty or victim.delivered and number == 0, turns


def test_a_host_that_fails_tells_the_others() -> None:
    world = World()
    world.players[2].fails_at = 2
    assert world.until_over() < SILENT_SECONDS
    assert [player.said for player in world.players] == [
        'kvm2 has ended: no memory', 'kvm2 has ended: no memory', 'no memory']
    assert world.pool.empty


def test_the_first_host_says_why_it_fails() -> None:
    world = World()
    world.players[0].fails_at = 2
    assert world.until_over() < SILENT_SECONDS
    assert [player.said for player in world.players] == ['no memory'] * 3 and world.pool.empty


def test_a_host_that_is_late_is_refused_and_disturbs_nothing() -> None:
    world = World()
    world.run(5.0)
    late = world.add(7)
    world.until_over()
    assert 'has begun without this host' in late.said
    assert [player.said for player in world.players[:3]] == ['', '', ''] and world.pool.empty


def test_a_host_that_is_late_by_one_measurement_says_that_it_has_left() -> None:
    world = World()
    world.run(1.0)
    late = world.add(7)
    world.run(BEAT_SECONDS + TURN)
    assert (late.over, late.said) == (
        True, 'the probe has begun without this host; wait until it has ended, or join another '
        'name')
    assert late.meeting.go.step == 0
    assert json.loads(world.pool.xattrs['host.%x' % 1007])[3] == 'too late'


def test_one_host_too_many_is_told() -> None:
    world = World(hosts=4)
    world.until_over()
    told, = [player.said for player in world.players if player.said]
    assert told.startswith('the probe has begun without this host')
    assert sum(bool(player.merged) for player in world.players) == 1 and world.pool.empty


def test_too_few_hosts_wait_for_a_limited_time() -> None:
    world = World(hosts=2)
    assert JOIN_SECONDS <= world.until_over() <= JOIN_SECONDS + 5.0
    assert {player.said for player in world.players} == {'2 of 3 hosts have joined within 120 s'}
    assert world.pool.empty


@pytest.mark.parametrize('plan, text', [
    (PLAN._replace(hosts=2), '--hosts 3'), (PLAN._replace(digest='other'), 'other jobs')])
def test_other_plans_are_refused(plan: MeetingPlan, text: str) -> None:
    world = World(hosts=1)
    world.run(1.0)
    other = world.add(5, plan)
    world.run(BEAT_SECONDS + TURN)
    assert other.over and text in other.said and not world.players[0].said


@pytest.mark.parametrize('plan', [PLAN._replace(hosts=1), PLAN._replace(digest='other', hosts=1)])
def test_a_dead_meeting_of_other_jobs_does_not_stand_in_the_way(plan: MeetingPlan) -> None:
    world = World(hosts=2)
    world.run(5.0)
    for player in world.players:
        player.dead = True
    other = world.add(5, plan)
    before = world.pool.read()
    world.run(SILENT_SECONDS)
    assert not other.joined and not other.over and world.pool.read() == before
    world.until_over()
    assert (other.said, len(other.merged)) == ('', STEPS) and world.pool.empty
    # The names of their objects are not those of these jobs.
    assert other.meeting.dead == ()
    assert sorted(other.meeting.dead_of_other_jobs) == [1000, 1001]


def test_a_host_with_other_jobs_that_is_interrupted_leaves_no_trace() -> None:
    world = World(hosts=1)
    world.run(TURN)
    world.players[0].dead = True
    other = world.add(5, PLAN._replace(digest='other'))
    world.run(5.0)
    before = world.pool.read()
    assert other.meeting.leave('interrupted', world.now)
    assert world.pool.read() == before and not world.pool.others


OTHER_VERSION = 'the first host measures other jobs, or has another version of perfguard'


@pytest.mark.parametrize('key, value', [
    *(('plan', value) for value in (
        '', '{', 'null', '7', '[]', '{}', '["1000", {"hosts": 3}]', '["x", ["digest", 3, 4]]',
        '["1000", ["digest", 3, 4, 5]]', '[1000, ["digest", 3, 4]]', '[' * 50000,
        # Not what a host writes, so that the object could not be removed.
        '["01000", ["digest", 3, 4]]', '["\u0663", ["digest", 3, 4]]',
        '["%s", ["digest", 3, 4]]' % (5000 * '1'))),
    *(('go', value) for value in ('', '{', 'null', '7', '{}', '["1"]', '[-1, [], "", 0]')),
    *(('host.0', value) for value in ('', '{}', '["kvm0", 0, 0, "", 0]'))])
def test_what_another_version_has_written_is_refused(key: str, value: str) -> None:
    world = World(hosts=1)
    world.run(1.0)
    world.pool.xattrs[key] = value
    other = world.add(5)
    world.run(TURN if key == 'host.0' else BEAT_SECONDS + TURN)
    assert (other.over, other.said) == (True, OTHER_VERSION)


def test_an_entry_that_no_host_has_written_disturbs_no_host() -> None:
    world = World(hosts=2)
    world.pool.xattrs['host.7'] = 50000 * '['
    world.add(2)
    world.until_over()
    assert {player.said for player in world.players} == {''}


def test_hosts_wait_for_others_from_the_beginning_of_their_meeting() -> None:
    """Not from when the first one has met a dead one."""
    world = World(hosts=1)
    world.run(5.0)
    world.players[0].dead = True
    world.add(1)
    world.run(SILENT_SECONDS + 1.0)
    assert JOIN_SECONDS - 1.0 <= world.until_over() <= JOIN_SECONDS + 5.0


@pytest.mark.parametrize('key', ['plan', 'go'])
def test_a_meeting_without_an_attribute_is_refused(key: str) -> None:
    world = World(hosts=1)
    world.run(1.0)
    del world.pool.xattrs[key]
    other = world.add(5)
    world.run(BEAT_SECONDS + TURN)
    assert (other.over, other.said) == (True, OTHER_VERSION)


@pytest.mark.parametrize('key', ['plan', 'go'])
def test_damage_during_the_probe_ends_it(key: str) -> None:
    world = World()
    world.run(5.0)
    world.pool.xattrs[key] = '{'
    world.run(TURN)
    assert world.players[1].said == OTHER_VERSION


def test_a_meeting_whose_hosts_have_all_died_does_not_stand_in_the_way() -> None:
    world = World()
    world.run(5.0)
    for player in world.players:
        player.dead = True
    for number in range(10, 13):
        world.add(number)
    world.until_over()
    assert [player.said for player in world.players[3:]] == ['', '', '']
    assert sum(bool(player.merged) for player in world.players) == 1 and world.pool.empty
    finders = [player.meeting.dead for player in world.players if player.meeting.dead]
    assert set().union(*finders) == {1000, 1001, 1002}


def test_a_meeting_that_another_removes_is_not_created_again() -> None:
    world = World()
    world.run(5.0)
    world.pool.content = None
    world.run(3 * BEAT_SECONDS)
    assert world.pool.empty
    world.until_over()
    assert all('has ended the probe' in player.said for player in world.players)


# ---- What the first host decides

SILENT, HEARD = SILENT_SECONDS + 0.1, SILENT_SECONDS
THREE = ('0', '3e9', '3ea')


def entries(*ready: int, end: str = '') -> Dict[str, HostEntry]:
    """Of the hosts kvm0, kvm1 ...; `end`: of the last one."""
    return {name: HostEntry('kvm%d' % number, step, 0, end if number == len(ready) - 1 else '')
            for number, (name, step) in enumerate(zip(THREE, ready))}


@pytest.mark.parametrize('go, hosts, silence, waited, decision', [
    # All are ready for the first measurement, and for the next one.
    (Go(), entries(0, 0, 0), HEARD, 0.0, Go(0, THREE)),
    (Go(0, THREE), entries(1, 1, 1), HEARD, 999.0, Go(1, THREE)),
    (Go(3, THREE), entries(4, 4, 4), HEARD, 999.0, Go(4, THREE)),
    # One is not.
    (Go(), entries(0, -1, 0), HEARD, 0.0, Go()),
    (Go(0, THREE), entries(1, 0, 1), HEARD, 0.0, Go(0, THREE)),
    # Too few.
    (Go(), entries(0, 0), HEARD, JOIN_SECONDS, Go()),
    (Go(), entries(0, 0), HEARD, JOIN_SECONDS + 0.1,
     Go(end='2 of 3 hosts have joined within 120 s')),
    (Go(), entries(0, 0, 0, end='interrupted'), HEARD, 0.0, Go()),
    (Go(), entries(0, 0, 0), SILENT, 0.0, Go()),
    # One has ended, or died.
    (Go(1, THREE), entries(2, 2, 2, end='no memory'), SILENT, 0.0,
     Go(1, THREE, 'kvm2 has ended: no memory')),
    (Go(1, THREE), entries(2, 2, 2), SILENT, 0.0,
     Go(1, THREE, 'kvm2 has not answered for 20 s')),
    # It is over.
    (Go(1, THREE, 'x'), entries(2, 2, 2), HEARD, 0.0, Go(1, THREE, 'x')),
    (Go(4, THREE), entries(9, 9, 9, end='x'), SILENT, 0.0, Go(4, THREE))])
def test_decisions(go: Go, hosts: Dict[str, HostEntry], silence: float, waited: float,
                   decision: Go) -> None:
    """`silence`: of the last of three hosts."""
    assert judge(go, hosts, {**dict.fromkeys(hosts, 0.0), THREE[2]: silence}, PLAN,
                 waited) == decision


def test_the_first_hosts_by_name_take_part() -> None:
    many = {name: HostEntry('kvm', 0) for name in ('0', '5', '1', '2')}
    assert judge(Go(), many, dict.fromkeys(many, 0.0), PLAN, 0.0) == Go(0, ('0', '1', '2'))


@pytest.mark.parametrize('other', ['-1', '+1', '', '1', '3e9'])
def test_the_first_host_takes_part_whatever_names_others_have(other: str) -> None:
    many = {name: HostEntry('kvm', 0) for name in (other, '0', 'a')}
    assert judge(Go(), many, dict.fromkeys(many, 0.0), PLAN._replace(hosts=2), 0.0) == Go(
        0, ('0', other))


@pytest.mark.parametrize('name, is_host', [
    ('3e9', True), ('a', True), ('f' * 16, True), ('f' * 17, False), ('-1', False), ('+1', False),
    ('00', False), ('0x1', False), ('1_0', False), ('3E9', False), (' 1', False), ('', False)])
def test_only_hosts_have_entries(name: str, is_host: bool) -> None:
    world = World(hosts=1)
    world.run(TURN)
    world.pool.xattrs['host.' + name] = json.dumps(['kvm9', 0, 0, ''])
    world.run(TURN)
    first, = world.players
    assert first.meeting.attend(world.now, 0) == Go()
    world.pool.xattrs['host.2'] = json.dumps(['kvm2', 0, 0, ''])
    assert first.meeting.attend(world.now, 0) == (
        Go(0, ('0', *sorted(('2', name)))) if is_host else Go())


def test_the_tolerance_is_the_longest_delay() -> None:
    meeting = Meeting(Pool(), PLAN, 'kvm0', 1000, 0.0)
    assert (meeting.tolerance, meeting.first_host, meeting.leads) == (0.0, 'the first host', False)
    for before, after in ((1.0, 1.25), (2.0, 2.75), (3.0, 3.5)):
        meeting.began(before, after)
    assert meeting.tolerance == 0.75


# ---- Results

@pytest.mark.parametrize('parts', [1, 2, 5])
def test_percentiles_of_parts_are_those_of_the_whole(parts: int) -> None:
    """One host is ten times as slow, so that a mean of percentiles would be far off."""
    draw = random.Random(parts)
    latencies = [[round(draw.lognormvariate(13, 1) * (10 if part else 1)) for _ in range(1000)]
                 for part in range(parts)]
    whole, together = direction(sum(latencies, [])), merged(list(map(direction, latencies)))
    assert together.ios == whole.ios and together.bytes == whole.bytes
    assert whole.latency is not None and together.latency is not None
    assert together.latency.percentile == whole.latency.percentile
    assert (together.latency.min, together.latency.max) == (whole.latency.min, whole.latency.max)
    assert together.latency.mean == pytest.approx(whole.latency.mean)
    assert together.latency.stddev == pytest.approx(whole.latency.stddev)
    assert sum(second.ios for second in together.seconds) == whole.ios


def test_a_host_without_operations_is_merged() -> None:
    alone, nothing = direction([10, 20, 30]), Direction(0, 0, SECOND_NS)
    together = merged([alone, nothing])
    assert together.latency is not None and alone.latency is not None
    assert together.ios == 3 and together.latency.percentile == alone.latency.percentile
    assert merged([nothing, nothing]).latency is None


def test_errors_and_limits_of_any_host_count() -> None:
    good = result(1)
    bad = replace(result(2), client_limited=True, streams=(
        replace(result(2).streams[0], errors=2, first_error='read: EIO'),))
    step, = merged_results([[good], [bad]])
    assert step.client_limited and step.streams[0].errors == 2
    assert step.streams[0].first_error == 'read: EIO' and step.cpu_user == 1.0
    assert shares_of_hosts(['a', 'b'], [[good], [good]]) == [
        'a: 50 % of the operations', 'b: 50 % of the operations']
    idle = StepResult((StreamResult('0'),))
    assert shares_of_hosts(['a', 'b'], [[good], [idle]]) == [
        'a: 100 % of the operations', 'b: 0 % of the operations']
    assert shares_of_hosts(['a'], [[idle]]) == ['a: 0 % of the operations']


def test_the_results_of_hosts_are_put_together_stream_by_stream() -> None:
    def host(seed: int, **changes: Any) -> StepResult:
        one, other = result(seed).streams[0], result(seed + 1).streams[0]
        return replace(result(seed), streams=(
            replace(one, corrupt=seed, unfinished=2 * seed),
            replace(other, name='1', write=direction([5, 7]))), **changes)

    step, = merged_results([[host(1, cpu_share=0.2, engine='python')],
                            [host(3, cpu_share=0.4, cut_short='cancelled')]])
    assert [stream.name for stream in step.streams] == ['0', '1']
    assert (step.streams[0].corrupt, step.streams[0].unfinished) == (4, 8)
    assert (step.streams[0].read.ios, step.streams[1].write.ios) == (1000, 4)
    assert (step.cpu_user, step.cpu_system) == (1.0, 0.2)
    assert (step.cpu_share, step.engine, step.cut_short, step.client_limited) == (
        0.4, 'native, python', 'cancelled', False)
    whole = merged([replace(direction([5]), runtime_ns=7), replace(direction([5]), runtime_ns=9)])
    assert (whole.runtime_ns, whole.bytes) == (9, 2 * 4096)


def test_no_operations_have_no_percentiles() -> None:
    assert quantiles([0], 0, 0, 0.0, 0.0) == Quantiles(0, 0, 0.0, 0.0, {
        key: 0 for key in direction([5]).latency.percentile})  # type: ignore[union-attr]
