# SPDX-License-Identifier: LGPL-2.1-or-later
"""The active mgr is killed at named writes and commands of each story; a standby finishes it.

An instant is before or after the first or second write or command of one name, such as "put
pins/N/head" or "osd pg-upmap-items". The nightly tier takes a sample of each story's instants
that differs from run to run: 8 of each, another number with PERFGUARD_CRASHES, or all of them with
PERFGUARD_CRASHES=1. Each of the sample is tried until it came, or is named with the reason why not
every story passes it.
"""
import os
import random
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Callable, Iterator, List

import pytest

from qa.lib import fail_points
from qa.lib.clusters import ClusterFactory, small_cluster
from qa.lib.failing_mgr import FailPoint
from qa.lib.fail_points import (Killer, Tries, install, instants_of, record, some, uninstall,
                                why_not)
from qa.lib.guard import CALM, FAST_CONF, Guard
from qa.lib.faults import laggy
from qa.lib.stories import STORIES, Expected, Operator, audit, check_end, empty
from qa.lib.writer import Writer
from qa.tests.test_mitigation import HANGS, booted, configured, knob_of, remapped, rows
from qa.tests.test_rescue import FAILED, FULL, clean, full, toofull

#: How often the mgr dies in one run of a story at most.
KILLS = 6
#: How many instants of each story are tried; 1: all.
CHOSEN = int(os.environ.get('PERFGUARD_CRASHES', '8'))
#: What is tried in the nightly tier; printed, so that a run can be repeated.
CHOICE = int(os.environ.get('PERFGUARD_SEED', time.time_ns() % 1000000))
#: On the shared cluster.
SAMPLE, SEED = 6, 18


def killed(operator: Operator, name: str, instants: List[str], end: Expected) -> List[str]:
    """Play a story in which the mgr is killed at these instants; returns those that came."""
    empty(operator)
    before = audit(operator)
    with Writer(operator.cluster, *operator.written), Killer(
            operator.cluster, instants) as killer:
        end.story(operator)
    try:
        check_end(operator, before, end)
    except AssertionError as error:
        raise AssertionError('%s, killed %s: %s' % (name, killer.hits, error)) from error
    print('%s: killed %s' % (name, killer.hits))
    return killer.hits


# ---- the tests

@pytest.fixture
def ready(guard: Guard) -> Iterator[Operator]:
    """The shared cluster, with fail points."""
    yield from with_fail_points(guard)


def with_fail_points(guard: Guard) -> Iterator[Operator]:
    added = guard.cluster.add_osds(2, weight=0.0)
    install(guard.cluster)
    guard.wait_ready()
    try:
        yield Operator(guard, added)
    finally:
        uninstall(guard.cluster)


def test_each_instant_is_tried_until_it_came_or_was_alone_twice() -> None:
    """Three of them come only in a story without an earlier death, and one never."""
    names = ['before 1 put %s' % name for name in 'abcdefg']
    tries = Tries(names, 3)
    while tries.armed:
        usual = [name for name in tries.armed if name < names[3]]
        alone = [name for name in tries.armed if names[3] <= name < names[6]]
        tries.note(usual or alone[:1])
    assert sorted(tries.came) == names[:6] and tries.given_up == names[6:]
    assert why_not(names[6]) == ''


def test_the_same_instants_are_counted_anew_in_each_story(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    died: List[int] = []
    monkeypatch.setattr(os, 'kill', lambda pid, number: died.append(number))
    monkeypatch.setattr(fail_points, 'take_over', lambda cluster: None)
    cluster: Any = SimpleNamespace(directory=tmp_path)
    point = FailPoint(str(tmp_path))
    with Killer(cluster, ['after 2 put a']):
        point.passes('after', 'put a')
    with Killer(cluster, ['after 2 put a']) as killer:
        point.passes('after', 'put a')
        assert not died
        point.passes('after', 'put a')
    assert len(died) == 1 and killer.hits == ['after 2 put a']


@pytest.mark.releases('pacific', 'reef', 'tentacle', quick=())
@pytest.mark.shares('campaign')
@pytest.mark.parametrize('name', ['drain'])
def test_a_story_outlives_the_mgr(release: str, name: str, ready: Operator) -> None:
    try_instants(release, name, ready, STORIES[name],
                 lambda instants: some(instants, SAMPLE, SEED))


@pytest.fixture(scope='module')
def operators(release: str, cluster_factory: ClusterFactory) -> Iterator[Operator]:
    guard = Guard(small_cluster(cluster_factory, release, FAST_CONF, mgrs=2))
    yield from with_fail_points(guard)


@pytest.mark.releases('pacific', 'tentacle', quick=())
@pytest.mark.timeout(3600)
@pytest.mark.parametrize('name', STORIES)
def test_every_instant_of_a_story(release: str, name: str, operators: Operator) -> None:
    try_instants(release, name, operators, STORIES[name])


def chosen(instants: List[str]) -> List[str]:
    found = instants if CHOSEN == 1 else some(instants, CHOSEN, CHOICE)
    return random.Random(CHOICE).sample(found, len(found))


def try_instants(release: str, name: str, operator: Operator, end: Expected,
                 choose: Callable[[List[str]], List[str]] = chosen) -> None:
    empty(operator)
    recorded = record(operator.cluster, lambda: end.story(operator))
    instants = instants_of(recorded)
    tries = Tries(choose(instants), KILLS)
    while tries.armed:
        # In the order in which they come.
        tries.note(killed(operator, name, sorted(tries.armed, key=instants.index), end))
    print('%s: %s: %d of %d instants came in %d stories (PERFGUARD_SEED=%d); given up: %s' % (
        release, name, len(tries.came), len(instants), tries.stories, CHOICE, {
            instant: why_not(instant) for instant in tries.given_up}))
    assert tries.came and all(map(why_not, tries.given_up)), tries.given_up


# ---- the rungs of the mitigation, with laggy PGs

def rungs(operator: Operator) -> None:
    guard, cluster = operator.guard, operator.cluster
    knob, fast, slow = knob_of(guard)
    load = cluster.load('p', rate=200, read_fraction=0.8, runtime=600)
    try:
        with remapped(guard), laggy(cluster, HANGS):
            operator.wait(lambda: configured(guard, knob) == [slow], 'recovery to be slowed')
        operator.wait(lambda: {row['state'] for row in rows(guard).values()} == {'idle'},
                      'all rungs to be idle')
        operator.wait(lambda: not guard.checks(), 'no health check')
    finally:
        load.stop()


@pytest.mark.releases('pacific', 'tentacle', quick=())
@pytest.mark.timeout(3600)
def test_every_instant_of_the_rungs(release: str, make_cluster: ClusterFactory) -> None:
    guard = booted(make_cluster, release)
    install(guard.cluster)
    guard.wait_ready()
    guard.option('mitigation_mode', 'act')
    knob, fast, _ = knob_of(guard)
    guard.cluster.mon('config set', who='osd', name=knob, value=fast)
    operator = Operator(guard, [])
    operator.pools, operator.written = (), ('p',)
    try_instants(release, 'rungs', operator, Expected(rungs))


# ---- a rescue of degraded PGs

def rescue(operator: Operator) -> None:
    guard, cluster = operator.guard, operator.cluster
    guard.option('mitigation_mode', 'act')
    try:
        cluster.tell('osd.%d' % FULL, 'injectfull', type='backfillfull', count=-1)
        operator.wait(lambda: full(cluster) == [FULL], 'an OSD that is backfillfull')
        cluster.kill('osd.%d' % FAILED)
        cluster.mon('osd out', ids=[str(FAILED)])
        operator.wait(lambda: bool(guard.upmaps()), 'the first upmap')
        operator.wait(lambda: not toofull(cluster) and clean(cluster), 'all PGs clean')
        cluster.tell('osd.%d' % FULL, 'injectfull', type='none', count=0)
        operator.wait(lambda: guard.upmaps() == {} and guard.get('held')['held'] == [],
                      'upmaps to be removed')
    finally:
        cluster.tell('osd.%d' % FULL, 'injectfull', type='none', count=0)
        guard.unset('mitigation_mode')
        cluster.start('osd.%d' % FAILED)
        cluster.mon('osd in', ids=[str(FAILED)])
    cluster.wait_clean(120)


@pytest.mark.releases('pacific', 'tentacle', quick=())
@pytest.mark.timeout(3600)
def test_every_instant_of_a_rescue(release: str, make_cluster: ClusterFactory) -> None:
    cluster = make_cluster(release, osds=8, hosts=4, mgrs=2, conf={**FAST_CONF, 'global': CALM})
    # So few that their upmaps, which are removed one at a time, do not take long.
    cluster.pool_create('p', 24)
    cluster.fill('p', 300, 4096)
    guard = Guard(cluster, {'mitigation_seconds': '2'})
    install(cluster)
    guard.wait_ready()
    operator = Operator(guard, [])
    operator.pools = operator.written = ('p',)
    try_instants(release, 'rescue', operator, Expected(rescue))
