# SPDX-License-Identifier: LGPL-2.1-or-later
"""The resources of a run in the cluster: their journal, commands and names."""
import json
from dataclasses import replace
from typing import Any, Dict, Optional

import pytest

from perfguard.cluster.types import ConfigEntry, Pool
from perfguard.codec import Malformed, decode, encode
from perfguard.ledger import config_command
from perfguard.probe import resources as resources
from perfguard.probe.jobs import number_between
from perfguard.probe.placement import run_prefix
from perfguard.probe.orders import NewSchedule, RunOrder
from perfguard.probe.records import CLEANING
from perfguard.probe.resources import RunResources
from perfguard.probe.schedules import Schedule, schedule_of
from perfguard.probe.types import BadJob

from ..fakes.probe_cluster import ProbeCluster, ProbeDriver

RESOURCES = RunResources(
    7, 'perfguard-probe-7', True, CLEANING, True,
    {resources.DELETE_OPTION: None, resources.SIZE_ONE_OPTION: 'false'}, 1234.5)

#: Its PGs are no compressed list.
NAMING = {'run': 7, 'wanted': [], 'pool_id': 1, 'pg_num': 8, 'led': 'AAAA'}


def test_the_journal_goes_and_comes() -> None:
    raw = json.loads(json.dumps(encode(RESOURCES)))
    assert decode(RunResources, raw) == RESOURCES


@pytest.mark.parametrize('wrong', [{'run': 'x'}, {'allowed': 3}, {'worker_ends': None},
                                   {'naming': {}}, {'naming': NAMING}, {'naming': 3}])
def test_a_journal_that_makes_no_sense(wrong: Dict[str, Any]) -> None:
    with pytest.raises(Malformed):
        decode(RunResources, {**encode(RESOURCES), **wrong})
    with pytest.raises(Malformed):
        decode(RunResources, {})


def test_names() -> None:
    assert RESOURCES.entity == 'client.perfguard-probe-7' and RESOURCES.prefix == run_prefix(7)
    # Of run 7, not of run 70.
    assert not (run_prefix(70) + '4096-0').startswith(RESOURCES.prefix)


@pytest.mark.parametrize('osds, wanted', [(0, 32), (1, 32), (4, 32), (5, 64), (60, 512),
                                          (1000, 1024)])
def test_pgs_of_an_own_pool(osds: int, wanted: int) -> None:
    assert resources.pg_num_for(osds) == wanted


def test_a_pool_that_no_probe_has_created_is_not_the_runs_own() -> None:
    """Nothing that cleans up may remove it."""
    cluster = ProbeCluster()
    cluster.made['perfguard-probe-1'] = Pool(9, 'perfguard-probe-1', False, 3, 2, 0, 8, 8, 8)
    _, view = ProbeDriver(cluster).loop._observing.observe()
    manager = resources.ResourceManager(cluster, lambda _: True,
                                        RunResources(1, 'perfguard-probe-1', True))
    with pytest.raises(resources.CannotMake) as refused:
        manager.make(view, 3, 32)
    assert str(refused.value) == (
        'pool perfguard-probe-1 already exists, but no probe created it')
    assert not manager.resources.own and not manager.resources.user
    assert 'perfguard-probe-1' in cluster.made


def test_one_replica_is_asked_for_again() -> None:
    sure = [command.get('yes_i_really_mean_it')
            for command in resources.pool_commands(RESOURCES, 1, 32)]
    assert sure == [None, True, None, None]
    assert not any(command.get('yes_i_really_mean_it')
                   for command in resources.pool_commands(RESOURCES, 2, 32))


def test_rights_of_the_user_end_at_the_pool_and_the_namespace() -> None:
    caps = resources.user_command(RESOURCES)['caps']
    assert caps == ['mon', 'allow r', 'osd',
                    'allow rw pool=perfguard-probe-7 namespace=perfguard-probe']


@pytest.mark.parametrize('before, prefix', [(None, 'config rm'), ('false', 'config set')])
def test_giving_back(before: Optional[str], prefix: str) -> None:
    command = config_command('mon', resources.DELETE_OPTION, before)
    assert command['prefix'] == prefix and command.get('value') == before


def test_in_force_is_what_all_mons_have() -> None:
    option = resources.DELETE_OPTION
    entries = [ConfigEntry('global', '', option, 'true'), ConfigEntry('mon', 'x', option, 'true'),
               ConfigEntry('mon.a', '', option, 'true'), ConfigEntry('mon', '', 'other', 'true')]
    assert resources.value_for_mons(entries, option) is None
    entries.append(ConfigEntry('mon', '', option, 'false'))
    assert resources.value_for_mons(entries, option) == 'false'


def test_what_is_left_is_told() -> None:
    checks = resources.leftover_check(RESOURCES, 'auth rm: no answer')
    detail = checks[resources.LEFT_CHECK]['detail']
    assert detail == ['auth rm: no answer', 'not removed yet: pool perfguard-probe-7',
                      'not removed yet: client.perfguard-probe-7',
                      'not removed yet: option mon_allow_pool_delete of the mons',
                      'not removed yet: option mon_allow_pool_size_one of the mons']
    in_a_pool = RunResources(7, 'rbd', False, CLEANING, True, worker_ends=1.0)
    assert resources.leftovers(in_a_pool) == [
        'objects perfguard-probe-7-* of namespace perfguard-probe in pool rbd',
        'client.perfguard-probe-7']
    assert resources.leftovers(replace(in_a_pool, worker_ends=0.0)) == ['client.perfguard-probe-7']


# ---- orders in words

@pytest.mark.parametrize('order', [
    RunOrder(), RunOrder(profile='quick', pool='rbd', repeat='3'),
    RunOrder(osd='0', host='a', device_class='ssd', replicas='1', consent=True, store=True,
             during_campaign=True), RunOrder(pool='rbd', hold_scrub=True)])
def test_a_schedule_keeps_an_order(order: RunOrder) -> None:
    schedule = schedule_of('x', order, {})
    assert decode(Schedule, json.loads(json.dumps(encode(schedule)))).run == replace(
        order, trigger='x')
    assert NewSchedule('x', order, {}).verb == 'probe schedule'


@pytest.mark.parametrize('order, kind', [
    (RunOrder(), 'cluster'), (RunOrder(pool='rbd'), 'pool'), (RunOrder(pool='rbd', osd='1'), 'osd'),
    (RunOrder(host='a'), 'osd'), (RunOrder(device_class='ssd'), 'osd'),
    (RunOrder(store=True, osd='1'), 'store'), (RunOrder(interference=True), 'interference'),
    (RunOrder(scale=True), 'scale')])
def test_kinds(order: RunOrder, kind: str) -> None:
    assert order.kind == kind


@pytest.mark.parametrize('text', ['0', '21', '-1', '1.5', 'x', '', '²', ' 3', 5000 * '1'])
def test_counts_that_make_no_sense(text: str) -> None:
    with pytest.raises(BadJob, match='must be a number from 1 to 20'):
        number_between('repeat', text, 1, 20)


def test_counts() -> None:
    assert number_between('repeat', '20', 1, 20) == 20


@pytest.mark.parametrize('name, written', [
    ('rbd', 'rbd'), ('a.b_c-1', 'a.b_c-1'), ('two words', '"two words"'), ('a,b=c', '"a,b=c"'),
    ("it's", '"it\'s"'), ('6"', '\'6"\''), ('\u00e4', '"\u00e4"'), ('*', '"*"')])
def test_the_user_is_confined_to_the_pool_whatever_its_name(name: str, written: str) -> None:
    caps = resources.user_command(RunResources(7, name, False))['caps']
    assert caps[3] == 'allow rw pool=%s namespace=perfguard-probe' % written


def test_the_user_of_an_image_has_all_of_the_own_pool_but_no_other() -> None:
    own = replace(RESOURCES, image=True)
    assert resources.user_command(own)['caps'][3] == 'allow rwx pool=perfguard-probe-7'
    assert decode(RunResources, json.loads(json.dumps(encode(own)))) == own
    in_a_pool = resources.user_command(replace(own, pool='rbd', own=False))['caps'][3]
    assert in_a_pool == 'allow rw pool=rbd namespace=perfguard-probe'


@pytest.mark.parametrize('name', ['6" it\'s', 'a\nb', 'a\x00'])
def test_a_name_that_capabilities_cannot_have(name: str) -> None:
    with pytest.raises(BadJob):
        resources.quoted(name)
