# SPDX-License-Identifier: LGPL-2.1-or-later
"""Campaigns on every release: the expansion, and an mgr that fails in each phase of it."""
import json
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import List

import pytest

from qa.cluster import Cluster
from qa.cluster.patience import patient
from qa.lib.guard import Guard, Json

SOURCE = Path(__file__).resolve().parents[2] / 'src' / 'pybind' / 'mgr'

pytestmark = [pytest.mark.releases('pacific', 'reef', 'tentacle', quick='reef'),
              pytest.mark.shares('campaign')]


def with_foreign_settings(cluster: Cluster) -> None:
    """What an operator may have set, and perfguard has to respect."""
    cluster.mon('osd set', key='noscrub')
    cluster.mon('osd pool set', pool='rep', var='pg_autoscale_mode', val='on')
    cluster.mon('osd pool set', pool='rep', var='pg_num_min', val='64')
    cluster.mon('osd pool set', pool='ec', var='pg_autoscale_mode', val='warn')


def own_upmap(cluster: Cluster) -> str:
    """Give one replicated PG an upmap by hand, as a balancer would; returns the PG."""
    cluster.wait_clean(30)
    hosts = cluster.osd_hosts()
    for pg in cluster.pgs():
        if pg['pgid'].startswith(pool_id(cluster, 'rep')):
            free = [osd for osd in cluster.osds()
                    if hosts[osd] not in {hosts[o] for o in pg['up']}]
            if free:
                cluster.mon('osd pg-upmap-items', pgid=pg['pgid'], id=[pg['up'][1], free[0]])
                cluster.wait_clean(30)
                return str(pg['pgid'])
    raise AssertionError('no PG can be upmapped')


def pool_id(cluster: Cluster, name: str) -> str:
    return next('%d.' % p['pool'] for p in cluster.osd_dump()['pools'] if p['pool_name'] == name)


def test_expansion(release: str, guard: Guard) -> None:
    cluster = guard.cluster
    with_foreign_settings(cluster)
    mine = own_upmap(cluster)
    before = guard.foreign()
    upmap_before = guard.upmaps()[mine]

    guard.prepare()
    assert 'norebalance' in cluster.osd_dump()['flags_set']
    assert not guard.balancer()['active']
    assert dict(guard.foreign().autoscale)['rep'] == 'off'
    added = cluster.add_osds(4)
    remapped = guard.wait_remapped()
    plan = guard.get('preview')
    assert plan['remapped'] <= remapped + 8 and plan['bytes'] > 0
    assert {row['osd'] for row in plan['osds'] if row['pgs_in']} >= set(added)

    epoch, begin = cluster.epoch(), time.monotonic()
    guard.do('pin')
    status = guard.wait_phase('PINNED')
    cluster.flush_pg_stats()
    assert not [pg for pg in cluster.pgs() if pg['state'] != 'active+clean']
    assert status['pinned'] >= remapped and not status['unpinnable']
    print('%s: %d PGs pinned in %.1f s and %d epochs' % (
        release, status['pinned'], time.monotonic() - begin, cluster.epoch() - epoch))
    assert guard.get('preview')['pgs'] == status['pinned']

    answers_fast(guard)
    guard.do('start')
    guard.wait_moving()
    assert 'norebalance' not in cluster.osd_dump()['flags_set']
    assert progress_events(cluster)
    done = guard.wait_phase('DONE', timeout=180)
    assert done['released'] == done['total'] and done['pinned'] == 0

    cluster.wait_clean(20)
    assert guard.foreign() == before
    # The pins are gone; the upmap from before is as it was, if CRUSH's change left it a sense.
    assert set(guard.upmaps()) <= {mine}
    assert guard.upmaps().get(mine, upmap_before) == upmap_before
    assert {osd for pg in cluster.pgs() for osd in pg['acting']} >= set(added)
    assert {key.split('/')[0] for key in guard.store_keys()} <= {
        'events', 'events_recent', 'history', 'owner', 'watch'}
    cluster.wait(lambda: not progress_events(cluster), 10, 'the progress event to end')
    assert guard.get('campaign ls')['campaigns'][-1]['phase'] == 'DONE'
    assert not guard.tracebacks()


def progress_events(cluster: Cluster) -> List[str]:
    retval, out, error = cluster.mgr('progress json')
    assert retval == 0, error
    return [event['message'] for event in json.loads(out)['events']
            if 'perfguard' in event['message']]


def answers_fast(guard: Guard) -> None:
    """Every command that only shows answers from the snapshot: 100 ms, in every format."""
    for command in ('status', 'events', 'campaign status', 'preview', 'campaign ls'):
        for format_ in ('plain', 'json', 'json-pretty'):
            times = []
            for _ in range(5):
                begin = time.monotonic()
                retval, out, error = guard.ask(command, format=format_)
                times.append(time.monotonic() - begin)
                assert retval == 0 and out.strip(), (command, error)
            assert min(times) < 0.1, (command, times)


@pytest.mark.releases('pacific', 'reef', 'tentacle', quick=())
def test_mgr_failover_in_each_phase(guard: Guard) -> None:
    cluster = guard.cluster
    before = guard.foreign()

    def fail_mgr(*phases: str) -> None:
        cluster.mgr_fail()
        guard.wait_ready()
        assert guard.wait_phase(*phases, timeout=60)['id'] == guard.former + 1

    guard.prepare()
    fail_mgr('PREPARED')
    cluster.add_osds(4)
    remapped = guard.wait_remapped()
    guard.do('pin')
    fail_mgr('PINNING', 'PINNED')
    assert guard.wait_phase('PINNED')['pinned'] >= remapped
    assert not guard.status()['unpinnable']
    fail_mgr('PINNED')
    guard.do('start')
    guard.wait_moving()
    fail_mgr('RELEASING', 'HOLDING')
    guard.do('pause')
    guard.wait_phase('HOLDING')
    cluster.wait(lambda: 'norebalance' in cluster.osd_dump()['flags_set'], 20, 'norebalance')
    fail_mgr('HOLDING')
    assert guard.status()['paused']
    guard.do('resume')
    guard.wait_moving(at_least=2)
    guard.do('abort')
    fail_mgr('ABORTING', 'ABORTED')
    guard.wait_phase('ABORTED')
    cluster.wait_clean(60)
    assert guard.foreign().flags == before.flags and guard.balancer()['active'] is False
    assert guard.upmaps()

    # A second campaign takes up the pins that the first one left.
    guard.prepare()
    guard.do('pin')
    guard.wait_phase('PINNED')
    guard.do('start')
    done = guard.wait_phase('DONE', timeout=180)
    assert done['id'] == guard.former + 2 and done['pinned'] == 0
    cluster.wait_clean(30)
    assert guard.upmaps() == {} and guard.foreign() == before
    assert not guard.tracebacks()


@pytest.mark.releases('pacific')
def test_osds_added_while_releasing(guard: Guard) -> None:
    cluster, before = guard.cluster, guard.foreign()
    first = guard.hold(lambda: cluster.add_osds(2))['total']
    guard.do('start')
    guard.wait_moving()
    cluster.add_osds(2)
    # What the second change remapped is pinned without being asked, then released as well.
    cluster.wait(lambda: guard.status()['total'] > first, 30, 'more PGs pinned')
    assert guard.status()['phase'] in ('RELEASING', 'HOLDING')
    done = guard.wait_phase('DONE', timeout=150)
    assert done['pinned'] == 0 and done['in_flight'] == 0
    cluster.wait_clean(30)
    assert guard.upmaps() == {} and guard.foreign() == before
    assert {osd for pg in cluster.pgs() for osd in pg['up']} == set(cluster.osds())


@pytest.mark.releases('pacific', 'reef', 'tentacle')
def test_dry_runs_change_nothing(guard: Guard) -> None:
    cluster, before = guard.cluster, guard.foreign()
    pinned = guard.hold(lambda: cluster.add_osds(2))['pinned']
    upmaps, flags = guard.upmaps(), cluster.osd_dump()['flags_set']
    for words in (('campaign', 'start'), ('campaign', 'finish', '--keep'),
                  ('campaign', 'set', 'max_pgs_in_flight=7'), ('campaign', 'accept', 'LAGGY'),
                  ('campaign', 'abort')):
        shown = cluster.ceph('perfguard', *words, '--dry-run').stdout
        assert re.search(r'campaign \d+ (is PINNED and would become|would stay PINNED)',
                         shown), shown
    refused = guard.refused('pause', duration='2h', dry_run=True)
    assert refused == guard.refused('pause', duration='2h')
    shown = cluster.ceph('perfguard', 'shutdown', '--dry-run').stdout
    assert 'will be aborted' in shown and 'norebalance' in shown
    status = guard.status()
    assert (status['phase'], status['pinned'], status['settings']) == ('PINNED', pinned, {})
    assert (guard.upmaps(), cluster.osd_dump()['flags_set']) == (upmaps, flags)
    guard.do('start')
    guard.wait_phase('DONE', timeout=150)
    cluster.wait_clean(30)
    assert guard.upmaps() == {} and guard.foreign() == before


def test_offline_pins(guard: Guard) -> None:
    """The offline planner's commands make a real cluster active+clean."""
    cluster = guard.cluster
    cluster.mon('osd set', key='norebalance')
    cluster.add_osds(4)
    cluster.wait(lambda: cluster.osd_dump()['pg_temp'], 30, 'remapped PGs')
    cluster.wait_active(30)
    cluster.flush_pg_stats()
    argv = [sys.executable, '-m', 'perfguard.offline', 'pin']
    for option, command in (('osd', ('osd', 'dump')), ('pg', ('pg', 'dump', 'pgs_brief')),
                            ('crush', ('osd', 'crush', 'dump'))):
        path = cluster.directory / f'{option}.json'
        path.write_text(cluster.ceph(*command, '-f', 'json').stdout)
        argv += [f'--{option}-dump', str(path)]
    env = {'PYTHONPATH': str(SOURCE)}
    done = subprocess.run(argv, env=env, check=True, stdout=subprocess.PIPE, timeout=patient(60),
                          universal_newlines=True)
    plan = json.loads(subprocess.run([*argv, '--format', 'json'], env=env, check=True,
                                     stdout=subprocess.PIPE, timeout=patient(60)).stdout)
    assert not plan['unpinnable']
    commands = [as_command(line) for line in done.stdout.splitlines()]
    assert len(commands) >= len(plan['items']) + len(plan['pg_upmap']) > 20
    cluster.burst(commands)
    cluster.wait_clean(30)
    assert 'norebalance' in cluster.osd_dump()['flags_set']


def as_command(line: str) -> Json:
    """A line such as "ceph osd pg-upmap-items 1.2 3 4" as a mon command."""
    ceph, osd, verb, pgid, *osds = line.split()
    assert (ceph, osd) == ('ceph', 'osd')
    command: Json = {'prefix': 'osd ' + verb, 'pgid': pgid}
    return {**command, 'id': [int(osd) for osd in osds]} if osds else command
