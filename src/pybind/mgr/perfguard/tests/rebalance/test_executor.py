# SPDX-License-Identifier: LGPL-2.1-or-later
"""Actions as commands, in the right order."""
from typing import Any, List, Mapping, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perfguard.cluster.types import INPUT, UpmapEntry
from perfguard.rebalance.executor import Outcome, commands_of, describe, execute
from perfguard.rebalance.types import (SetBalancer, SetCrushMap, SetEntry, SetFlag, SetOption,
                                       SetPool, SetWeight)

from ..fakes.cluster import FakeCluster, FakeReply

BALANCER = 'mgr/balancer/active'


class Recorder:
    """Notes the commands; fails those that the test names, and does not answer others."""

    def __init__(self, fails: Sequence[str] = (), unanswered: Sequence[str] = ()) -> None:
        self.log: List[Any] = []
        self.fails, self.unanswered = fails, unanswered

    def run(self, commands: Sequence[Mapping[str, Any]]) -> List[FakeReply]:
        self.log.append(list(commands))
        return [FakeReply(-22, 'no') if command['prefix'] in self.fails else
                FakeReply(None if command['prefix'] in self.unanswered else 0)
                for command in commands]

    def switch_balancer(self, active: bool) -> FakeReply:
        self.log.append(active)
        return FakeReply(None) if 'balancer' in self.fails else FakeReply(0)


def test_flags_pools_and_balancer() -> None:
    assert commands_of(SetFlag('norebalance', True)) == [
        {'prefix': 'osd set', 'key': 'norebalance'}]
    assert commands_of(SetFlag('norebalance', False)) == [
        {'prefix': 'osd unset', 'key': 'norebalance'}]
    assert commands_of(SetPool('rbd', 'pg_autoscale_mode', 'off')) == [
        {'prefix': 'osd pool set', 'pool': 'rbd', 'var': 'pg_autoscale_mode', 'val': 'off'}]
    assert commands_of(SetBalancer(True)) == [
        {'prefix': 'config set', 'who': 'mgr', 'name': BALANCER, 'value': 'true'}]


def test_options_weights_and_crush_maps() -> None:
    assert commands_of(SetOption('osd', 'osd_max_scrubs', '0')) == [
        {'prefix': 'config set', 'who': 'osd', 'name': 'osd_max_scrubs', 'value': '0'}]
    assert commands_of(SetOption('mon', 'paxos_min_wait', None)) == [
        {'prefix': 'config rm', 'who': 'mon', 'name': 'paxos_min_wait'}]
    assert commands_of(SetWeight(3, 0.5)) == [
        {'prefix': 'osd crush reweight', 'name': 'osd.3', 'weight': 0.5}]
    command, = commands_of(SetCrushMap(b'map', 7))
    assert command == {'prefix': 'osd setcrushmap', 'prior_version': 7, INPUT: b'map'}
    assert describe(command) == 'osd setcrushmap 7'


ITEMS = UpmapEntry(((1, 2), (3, 4)))
OTHER = UpmapEntry(((1, 5),))
VECTOR = UpmapEntry(vector=(7, 8, 9))
BOTH = UpmapEntry(((7, 1),), (7, 8, 9))


def test_an_acting_set_follows_the_release_that_it_belongs_to() -> None:
    """If the mons commit an epoch in between, they would remove it as that of a PG in place."""
    release = SetEntry('1.0', UpmapEntry(), ITEMS, prime=(1, 3))
    assert commands_of(release) == [
        {'prefix': 'osd rm-pg-upmap-items', 'pgid': '1.0'},
        {'prefix': 'osd pg-temp', 'pgid': '1.0', 'id': [1, 3]}]


@pytest.mark.parametrize('now, entry, prefixes', [
    (UpmapEntry(), ITEMS, ['osd pg-upmap-items']),
    (ITEMS, ITEMS, []),
    (ITEMS, OTHER, ['osd pg-upmap-items']),
    (ITEMS, UpmapEntry(), ['osd rm-pg-upmap-items']),
    (ITEMS, VECTOR, ['osd pg-upmap', 'osd rm-pg-upmap-items']),
    (VECTOR, ITEMS, ['osd rm-pg-upmap', 'osd pg-upmap-items']),
    (VECTOR, UpmapEntry(), ['osd rm-pg-upmap']),
    (BOTH, UpmapEntry(), ['osd rm-pg-upmap-items', 'osd rm-pg-upmap']),
    (BOTH, VECTOR, ['osd rm-pg-upmap-items']),
    (VECTOR, BOTH, ['osd pg-upmap-items']),
])
def test_an_entry_takes_the_fewest_commands(now: UpmapEntry, entry: UpmapEntry,
                                            prefixes: List[str]) -> None:
    commands = commands_of(SetEntry('1.a', entry, now))
    assert [command['prefix'] for command in commands] == prefixes
    assert all(command['pgid'] == '1.a' for command in commands)


def test_arguments_of_upmaps_are_flat() -> None:
    assert commands_of(SetEntry('1.a', ITEMS, UpmapEntry()))[0]['id'] == [1, 2, 3, 4]
    assert commands_of(SetEntry('1.a', VECTOR, UpmapEntry()))[0]['id'] == [7, 8, 9]


ENTRIES = st.sampled_from([UpmapEntry(), UpmapEntry(((0, 4),)), UpmapEntry(((2, 5),)),
                           UpmapEntry(((0, 4), (2, 5))), UpmapEntry(vector=(4, 1, 2)),
                           UpmapEntry(vector=(4, 1, 5))])


@settings(deadline=None)
@given(ENTRIES, ENTRIES)
def test_a_mon_ends_with_the_entry(now: UpmapEntry, entry: UpmapEntry) -> None:
    cluster = FakeCluster(pgs=1)
    cluster.set_raw('1.0', (0, 1, 2))
    assert execute(cluster, [SetEntry('1.0', now, UpmapEntry())]) == Outcome()
    assert cluster.entries().get('1.0', UpmapEntry()) == now
    assert execute(cluster, [SetEntry('1.0', entry, now)]) == Outcome()
    assert cluster.entries().get('1.0', UpmapEntry()) == entry


def test_balancer_first_then_all_commands_at_once_in_order() -> None:
    cluster = Recorder()
    assert execute(cluster, [SetFlag('norebalance', True), SetEntry('1.0', ITEMS, VECTOR),
                             SetBalancer(False)]) == Outcome()
    assert cluster.log[0] is False
    assert [command['prefix'] for command in cluster.log[1]] == [
        'osd set', 'osd rm-pg-upmap', 'osd pg-upmap-items', 'config set']
    assert len(cluster.log) == 2


def test_nothing_to_do_sends_nothing() -> None:
    cluster = Recorder()
    assert execute(cluster, [SetEntry('1.0', ITEMS, ITEMS)]) == Outcome()
    assert cluster.log == []


def test_failures_are_reported_and_the_rest_is_done() -> None:
    cluster = Recorder(fails=['osd set', 'balancer'])
    outcome = execute(cluster, [SetFlag('norebalance', True), SetBalancer(False),
                                SetEntry('1.0', ITEMS, UpmapEntry())])
    assert outcome.failures == ('balancer False: no answer', 'osd set norebalance: no')
    assert not outcome.unanswered
    assert len(cluster.log[1]) == 3


def test_options_that_the_mons_refuse_are_noted_unless_they_are_given_back() -> None:
    cluster = Recorder(fails=['config set', 'config rm', 'osd set'])
    outcome = execute(cluster, [
        SetOption('osd', 'osd_max_scrubs', '0'), SetOption('mon', 'paxos_min_wait', '0.005'),
        SetOption('osd', 'osd_recovery_sleep_ssd', None), SetFlag('norebalance', True)])
    assert outcome.refused == {'osd/osd_max_scrubs': 'no', 'paxos_min_wait': 'no'}
    assert outcome.failures == (
        'config set osd osd_max_scrubs 0: no', 'config set mon paxos_min_wait 0.005: no',
        'config rm osd osd_recovery_sleep_ssd: no', 'osd set norebalance: no')


def test_pgs_whose_command_was_not_answered_are_noted() -> None:
    cluster = Recorder(unanswered=['osd pg-upmap-items', 'osd set'])
    outcome = execute(cluster, [SetEntry('1.0', ITEMS, UpmapEntry()), SetFlag('noout', True),
                                SetEntry('1.1', UpmapEntry(), ITEMS)])
    assert outcome.unanswered == {'1.0'} and not outcome.refused
    assert outcome.failures == ('osd pg-upmap-items 1.0 [1, 2, 3, 4]: no answer',
                                'osd set noout: no answer')


def test_describe() -> None:
    assert describe({'prefix': 'osd set', 'key': 'x'}) == 'osd set x'
