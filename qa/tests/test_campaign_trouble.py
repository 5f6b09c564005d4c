# SPDX-License-Identifier: LGPL-2.1-or-later
"""What may come in a campaign's way on a real cluster, one trouble a test.

The tests share one cluster. Its CRUSH weights change by turns, so each campaign has PGs to hold.
"""
import contextlib
import itertools
import json
import re
import threading
import time
from dataclasses import replace
from datetime import datetime
from typing import Any, Callable, Dict, Iterator, List, Set

import pytest

from perfguard.rebalance.risks import RISKS
from qa.cluster import Cluster
from qa.lib.auditor import Foreign
from qa.lib.clusters import Failed, Lender
from qa.lib.guard import FAST_CONF, Guard

ClusterFactory = Callable[..., Cluster]

_weights = itertools.cycle(((0, 1), (4, 5), (2, 3), (6, 7)))


pytestmark = pytest.mark.releases('pacific')
#: For what unit tests show as well.
nightly = pytest.mark.releases('pacific', quick=())


def booted(make: ClusterFactory, release: str) -> Guard:
    cluster = make(release, osds=8, hosts=4, conf=FAST_CONF)
    cluster.pool_create('rep', 64, size=3)
    cluster.pool_create('ec', 32, erasure=(2, 1))
    cluster.fill('rep', 1000, 4096)
    cluster.fill('ec', 300, 4096)
    return Guard(cluster)


@pytest.fixture(scope='module')
def lender(release: str, cluster_factory: ClusterFactory) -> Iterator[Lender[Guard]]:
    with Lender(lambda: booted(cluster_factory, release)) as lender:
        yield lender


@pytest.fixture
def guard(lender: Lender[Guard], failed: Failed) -> Iterator[Guard]:
    """The shared cluster, clean and without a campaign, before the test and after it."""
    with lender.lend(failed) as guard:
        tidy(guard)
        yield guard
        assert not guard.tracebacks()


def tidy(guard: Guard) -> None:
    cluster = guard.cluster
    if guard.status()['phase'] not in ('IDLE', 'DONE', 'ABORTED'):
        guard.do('abort')
        guard.wait_phase('ABORTED')
    guard.remove_upmaps()
    # With the last pin of an aborted campaign its settings are given back.
    guard.wait_check('PERFGUARD_HELD_PINS', False, 30)
    flags = set(cluster.osd_dump()['flags_set'])
    for flag in {'norebalance', 'nobackfill', 'noscrub', 'noout'} & flags:
        cluster.mon('osd unset', key=flag)
    cluster.wait_clean(90)
    # Pins of an aborted campaign that are gone from the OSDMap are forgotten by the next one.
    guard.wait_ready()


def change_crush(guard: Guard, weight: float = 2.5) -> None:
    """Make CRUSH want many PGs elsewhere."""
    heavy = next(_weights)
    guard.cluster.burst([
        {'prefix': 'osd crush reweight', 'name': 'osd.%d' % osd,
         'weight': weight if osd in heavy else 1.0} for osd in guard.cluster.osds()])


def left_still(guard: Guard, before: Foreign) -> None:
    """As an abort leaves the settings: what would move its pins is off, all else as before."""
    now = guard.foreign()
    assert now.flags == before.flags and now.balancer[0] == 'False'
    assert set(dict(now.autoscale).values()) <= {'off', *dict(before.autoscale).values()}


def wait_check(guard: Guard, code: str, raised: bool = True) -> None:
    """Until the mons show a health check, or show it no more."""
    guard.cluster.wait(lambda: (code in guard.cluster.mon('health')['checks']) == raised, 20,
                       '%s %s' % (code, 'raised' if raised else 'gone'))


def finish(guard: Guard, before: Foreign) -> None:
    """Wait for the end of the campaign and check that it leaves nothing behind."""
    done = guard.wait_phase('DONE', timeout=150)
    assert done['pinned'] == 0 and done['in_flight'] == 0
    guard.cluster.wait_clean(30)
    assert guard.upmaps() == {}
    assert guard.foreign() == before


def test_pause_and_resume(guard: Guard) -> None:
    before = guard.foreign()
    guard.hold(lambda: change_crush(guard))
    guard.do('start')
    guard.wait_moving()
    guard.do('pause')
    guard.wait_phase('HOLDING')
    cluster = guard.cluster
    cluster.wait(lambda: 'norebalance' in cluster.osd_dump()['flags_set'], 10, 'norebalance')
    time.sleep(3)
    paused = guard.status()
    time.sleep(4)
    later = guard.status()
    assert later['paused'] and later['phase'] == 'HOLDING'
    assert (later['pinned'], later['in_flight']) == (paused['pinned'], paused['in_flight'])
    assert 'PAUSED' in guard.codes()
    guard.do('resume')
    guard.wait_phase('RELEASING')
    assert 'norebalance' not in cluster.osd_dump()['flags_set']
    finish(guard, before)


def test_abort_half_way(guard: Guard) -> None:
    before = guard.foreign()
    total = guard.hold(lambda: change_crush(guard))['total']
    guard.do('start')
    guard.wait_moving(at_least=2)
    guard.do('abort')
    ended = guard.wait_phase('ABORTED')
    guard.cluster.flush_pg_stats()
    assert {pg['state'] for pg in guard.cluster.pgs()} == {'active+clean'}
    assert 0 < len(guard.upmaps()) < total
    assert ended['kept'] == len(guard.upmaps())
    left_still(guard, before)


def test_abort_before_the_start(guard: Guard) -> None:
    before = guard.foreign()
    guard.prepare()
    change_crush(guard)
    guard.wait_remapped()
    guard.do('abort')
    guard.wait_phase('ABORTED')
    guard.cluster.wait_clean(20)
    assert guard.upmaps()
    left_still(guard, before)


def test_osd_killed_while_releasing(guard: Guard) -> None:
    cluster = guard.cluster
    before = guard.foreign()
    guard.hold(lambda: change_crush(guard))
    guard.do('start')
    guard.wait_moving()
    cluster.kill('osd.3')
    guard.wait_phase('HOLDING')
    guard.wait_code('DEGRADED', 'INACTIVE')
    # Others, on OSDs without a degraded PG, may still be released.
    degraded = {pg['pgid'] for pg in cluster.pgs() if 'degraded' in pg['state']}
    pins = pins_of(guard, degraded)
    time.sleep(3)
    assert pins_of(guard, degraded) == pins, 'released while they are degraded'
    cluster.start('osd.3')
    finish(guard, before)


def pins_of(guard: Guard, pgids: Set[str]) -> Dict[str, Any]:
    return {key: entry for key, entry in guard.upmaps().items() if key.split()[0] in pgids}


@nightly
def test_pool_deleted(guard: Guard) -> None:
    cluster = guard.cluster
    cluster.pool_create('doomed', 32, size=3)
    cluster.fill('doomed', 200, 4096)
    cluster.wait_clean(30)
    before = guard.foreign()
    guard.hold(lambda: change_crush(guard))
    guard.do('start')
    guard.wait_moving()
    cluster.mon('osd pool delete', pool='doomed', pool2='doomed',
                yes_i_really_really_mean_it=True)
    finish(guard, replace(before, **{
        name: tuple(row for row in getattr(before, name) if row[0] != 'doomed')
        for name in ('autoscale', 'pools')}))


@nightly
def test_pg_num_changed(guard: Guard) -> None:
    cluster = guard.cluster
    cluster.pool_create('splits', 16, size=3)
    cluster.fill('splits', 200, 4096)
    before = guard.foreign()
    guard.hold(lambda: change_crush(guard))
    guard.do('start')
    guard.wait_moving()
    cluster.mon('osd pool set', pool='splits', var='pg_num', val='32')
    cluster.mon('osd pool set', pool='splits', var='pgp_num', val='32')
    finish(guard, before)
    cluster.mon('osd pool delete', pool='splits', pool2='splits',
                yes_i_really_really_mean_it=True)


def test_balancer_switched_on(guard: Guard) -> None:
    cluster = guard.cluster
    guard.hold(lambda: change_crush(guard))
    assert not guard.balancer()['active']
    retval, _, error = cluster.mgr('balancer on')
    assert retval == 0, error
    guard.do('start')

    guard.wait_code('BALANCER_ON', timeout=15)
    assert guard.status()['released'] == 0
    retval, _, error = cluster.mgr('balancer off')
    assert retval == 0, error
    guard.wait_phase('DONE', timeout=150)
    # It was switched off for the campaign, which had found it on.
    assert guard.balancer()['active']
    cluster.mon('config rm', who='mgr', name='mgr/balancer/active')


def test_norebalance_of_the_operator(guard: Guard) -> None:
    cluster = guard.cluster
    cluster.mon('osd set', key='norebalance')
    before = guard.foreign()
    guard.hold(lambda: change_crush(guard))
    guard.do('start')
    guard.wait_phase('HOLDING')
    held = guard.wait_code('FOREIGN_FLAG')
    assert held['released'] == held['in_flight'] == 0
    guard.do('abort')
    guard.wait_phase('ABORTED')
    left_still(guard, before)
    assert 'norebalance' in cluster.osd_dump()['flags_set']

    guard.prepare()
    guard.do('pin')
    guard.wait_phase('PINNED')
    guard.do('start')
    guard.wait_phase('HOLDING')
    cluster.mon('osd unset', key='norebalance')
    guard.wait_phase('DONE', timeout=150)
    assert guard.upmaps() == {}


def test_pin_dropped_silently(guard: Guard) -> None:
    """The mon answers 0 and the OSDMap does not show the upmap: so it looks when it is removed."""
    cluster = guard.cluster
    guard.option('readback_timeout', '4')
    guard.prepare()
    change_crush(guard)
    guard.wait_remapped()
    victim = cluster.osd_dump()['pg_temp'][0]['pgid']
    stop = threading.Event()

    def remove() -> None:
        while not stop.is_set():
            cluster.command('mon', {'prefix': 'osd rm-pg-upmap-items', 'pgid': victim})
            cluster.command('mon', {'prefix': 'osd rm-pg-upmap', 'pgid': victim})

    remover = threading.Thread(target=remove)
    remover.start()
    try:
        guard.do('pin')
        cluster.wait(lambda: guard.status()['unpinnable'], 40, 'the dropped pin to be noticed')
    finally:
        stop.set()
        remover.join()
        guard.option('readback_timeout', '20')
    dropped = {row['pgid']: row['reason'] for row in guard.status()['unpinnable']}
    assert 'do not keep' in dropped[victim]
    guard.wait_phase('PINNED')
    wait_check(guard, 'PERFGUARD_UNPINNABLE')
    # With another request it gets its pin.
    guard.do('pin')
    assert not guard.wait_phase('PINNED')['unpinnable'] and victim in guard.upmaps()
    guard.do('start')
    guard.wait_phase('DONE', timeout=150)


@nightly
def test_damaged_store(guard: Guard) -> None:
    cluster = guard.cluster
    guard.hold(lambda: change_crush(guard))
    pins = guard.upmaps()

    def damage(copies: str) -> None:
        for key in guard.store_keys():
            if key.startswith('campaign/') and key.split('/')[1] in copies:
                cluster.mon('config-key set', key='mgr/perfguard/' + key, val='{"broken')
        cluster.mgr_fail()
        guard.wait_ready()

    damage('a')  # one copy: the other one serves
    assert guard.wait_phase('PINNED')['pinned'] == len(pins)
    assert any(event['kind'] == 'store' for event in guard.events())
    damage('ab')  # both: the campaign is lost, and reported as lost; its pins stay, and are held
    guard.wait_phase('ABORTED')
    wait_check(guard, 'PERFGUARD_INTERRUPTED')
    assert guard.upmaps() == pins
    assert any(key.startswith('damaged/campaign') for key in guard.store_keys())
    # The next campaign takes the pins over and tidies up.
    guard.do('prepare', accept=RISKS)
    guard.wait_phase('PREPARED')
    guard.do('pin')
    guard.wait_phase('PINNED')
    guard.do('start')
    guard.cluster.mon('osd unset', key='norebalance')  # left by the lost campaign
    guard.wait_phase('DONE', timeout=150)
    assert guard.upmaps() == {}
    assert not any(key.startswith('damaged/') for key in guard.store_keys())
    wait_check(guard, 'PERFGUARD_INTERRUPTED', raised=False)
    cluster.mgr('balancer on')
    cluster.mon('config rm', who='mgr', name='mgr/balancer/active')


@nightly
def test_state_of_a_newer_version(guard: Guard) -> None:
    """An mgr with an older perfguard takes over in the middle of an upgrade."""
    cluster = guard.cluster
    guard.hold(lambda: change_crush(guard))
    pins = guard.upmaps()

    def hand_over(more: int) -> Dict[str, str]:
        """To an mgr that finds the campaign in another layout; returns the campaign's documents."""
        for key in guard.store_keys():
            if key.startswith('campaign/') and key.endswith('/head'):
                head = re.sub(r'(?<="version": )\d+', lambda found: str(int(found[0]) + more),
                              stored(cluster, key), count=1)
                cluster.mon('config-key set', key='mgr/perfguard/' + key, val=head)
        found = documents()
        cluster.mgr_fail()
        return found

    def documents() -> Dict[str, str]:
        return {key: stored(cluster, key) for key in guard.store_keys()
                if key.startswith(('campaign/', 'pins/'))}

    before = hand_over(10)
    try:
        wait_check(guard, 'PERFGUARD_LOOP_FAILED')
        guard.refused('start')
        time.sleep(5)
        assert documents() == before and guard.upmaps() == pins
        assert 'norebalance' in cluster.osd_dump()['flags_set']
    finally:
        hand_over(-10)
    guard.wait_ready()
    assert guard.wait_phase('PINNED')['pinned'] == len(pins)
    wait_check(guard, 'PERFGUARD_LOOP_FAILED', raised=False)
    guard.do('start')
    guard.wait_phase('DONE', timeout=150)
    assert guard.upmaps() == {}


def stored(cluster: Cluster, key: str) -> str:
    retval, out, error = cluster.command('mon', {'prefix': 'config-key get',
                                                 'key': 'mgr/perfguard/' + key})
    assert retval == 0, error
    return out


@nightly
def test_nothing_remapped(guard: Guard) -> None:
    before = guard.foreign()
    guard.prepare()
    guard.do('pin')
    assert guard.wait_phase('PINNED')['total'] == 0
    assert guard.get('preview')['pgs'] == 0
    guard.do('start')
    finish(guard, before)


def test_finish_keep_hands_the_pins_over(guard: Guard) -> None:
    before = guard.foreign()
    guard.hold(lambda: change_crush(guard))
    pins = guard.upmaps()
    assert 'still pinned' in guard.refused('finish')
    guard.do('finish', keep=True)
    done = guard.wait_phase('DONE')
    assert done['kept'] == len(pins) and guard.upmaps() == pins
    assert guard.foreign() == before
    assert not any(key.startswith('pins/') for key in guard.store_keys())
    # They are ordinary upmaps now: the next campaign does not touch them.
    guard.prepare()
    guard.do('pin')
    assert guard.wait_phase('PINNED')['total'] == 0
    guard.do('start')
    guard.wait_phase('DONE')
    assert guard.upmaps() == pins


#: Verbs that are let in, by phase; all others must be refused with one line.
LET_IN = {
    'IDLE': {'prepare'},
    'PREPARED': {'pin', 'abort', 'finish'},
    'PINNED': {'pin', 'start', 'abort'},
    'HOLDING': {'pause', 'resume', 'abort'},
    'DONE': {'prepare'},
}


def check_verbs(guard: Guard, phase: str) -> None:
    assert guard.status()['phase'] == phase
    for verb in ('prepare', 'pin', 'start', 'pause', 'resume', 'abort', 'finish'):
        if verb not in LET_IN[phase]:
            error = guard.refused(verb)
            assert 'campaign' in error or 'pinned' in error, (phase, verb, error)
    for command in ('status', 'events', 'campaign status', 'preview', 'campaign ls'):
        for format_ in ('plain', 'json', 'json-pretty'):
            retval, out, error = guard.ask(command, format=format_)
            assert retval == 0 and out.strip() and not error, (phase, command)
            if format_ != 'plain':
                json.loads(out)


@nightly
def test_every_command_in_every_phase(guard: Guard) -> None:
    cluster = guard.cluster
    guard.prepare()
    check_verbs(guard, 'PREPARED')
    assert 'is PREPARED' in guard.refused('prepare')
    change_crush(guard)
    assert guard.wait_remapped() > 8
    # They would all move at once.
    guard.wait_code('AWAITS_PIN')
    guard.refused('finish')
    assert 'norebalance' in cluster.osd_dump()['flags_set']
    guard.do('pin')
    guard.wait_phase('PINNED')
    check_verbs(guard, 'PINNED')
    guard.do('start')
    guard.wait_moving()
    guard.do('pause')
    guard.wait_phase('HOLDING')
    check_verbs(guard, 'HOLDING')
    guard.do('resume')
    guard.wait_phase('DONE', timeout=150)
    check_verbs(guard, 'DONE')
    for arguments in ({'format': 'yaml'}, {'format': ''}):
        retval, out, error = guard.ask('status', **arguments)
        assert retval == -22 and not out and 'format' in error and '\n' not in error
    assert guard.ask('campaign show', campaign=4711)[0] == -2
    assert guard.ask('events', count=0)[0] == -22
    done = cluster.ceph('perfguard', 'campaign', 'nonesuch', check=False)
    assert done.returncode == 22 and not done.stdout


@nightly
def test_refuses_an_unhealthy_cluster(guard: Guard) -> None:
    cluster = guard.cluster
    before = guard.foreign()
    cluster.mon('osd set', key='noout')
    cluster.kill('osd.1')

    def refused() -> bool:
        retval, _, error = guard.ask('campaign prepare')
        return bool(retval == -1 and 'degraded' in error)

    cluster.wait(lambda: guard.get('status')['signals']['degraded_pgs'], 30, 'degraded PGs')
    assert refused()
    assert guard.foreign().flags == before.flags | {'noout'}
    cluster.start('osd.1')
    cluster.mon('osd unset', key='noout')
    cluster.wait_clean(60)


@nightly
def test_enable_disable(guard: Guard) -> None:
    """Disabled in the middle, nothing moves and nothing is lost; enabled again it continues."""
    cluster = guard.cluster
    before = guard.foreign()
    guard.hold(lambda: change_crush(guard))
    pins: Any = guard.upmaps()
    cluster.mon('mgr module disable', module='perfguard')
    cluster.wait(lambda: 'perfguard' not in cluster.mon('mgr module ls')['enabled_modules'], 10,
                 'the module to go')
    cluster.wait_clean(30)
    assert guard.upmaps() == pins
    cluster.mon('mgr module enable', module='perfguard')
    guard.wait_ready()
    assert guard.wait_phase('PINNED')['pinned'] == len(pins)
    guard.do('start')
    finish(guard, before)


@nightly
def test_a_full_osd_is_emptied_beside_a_pool_that_is_full_by_quota(guard: Guard) -> None:
    """Neither refuses the drain, which is what relieves the OSD, nor holds one of its releases."""
    cluster = guard.cluster
    cluster.pool_create('tenant', 8, size=3)
    cluster.fill('tenant', 20, 4096)
    osd = 'osd.1'
    try:
        cluster.mon('osd pool set-quota', pool='tenant', field='max_objects', val='1')
        cluster.tell(osd, 'injectfull', type='full', count=-1)
        cluster.wait(lambda: {'OSD_FULL', 'POOL_FULL'} <= set(cluster.mon('health')['checks']),
                     60, 'a full OSD and a full pool')
        retval, _, error = guard.ask('drain', what=[osd])
        assert retval == 0, error
        ended = guard.wait_phase('DONE', timeout=150)
        assert {'OSD_FULL', 'POOL_FULL'} <= set(cluster.mon('health')['checks'])
        assert ended['released'] > 0 and not ended['unpinnable']
        assert not {1} & {osd for pg in cluster.pgs() for osd in pg['up'] + pg['acting']}
    finally:
        cluster.tell(osd, 'injectfull', type='none', count=0)
        cluster.mon('osd pool delete', pool='tenant', pool2='tenant',
                    yes_i_really_really_mean_it=True)
    assert guard.ask('undrain', what=[osd])[0] == 0
    guard.wait_phase('DONE', timeout=150)


@nightly
def test_own_releases_that_recover_from_the_log_hold_nothing(guard: Guard) -> None:
    """Nearly empty PGs are degraded for a moment after their release, and never remapped."""
    cluster = guard.cluster
    cluster.pool_create('thin', 64, size=3)
    cluster.fill('thin', 150, 4096)
    cluster.wait_clean(60)
    before = max((event['id'] for event in guard.get('events')['events']), default=0)
    degraded = 0
    try:
        guard.option('max_pgs_in_flight', '4')
        assert guard.ask('drain', what=['osd.3'])[0] == 0
        deadline = time.monotonic() + 200
        while guard.status()['phase'] != 'DONE':
            assert time.monotonic() < deadline, guard.status()
            degraded = max(degraded, guard.get('status')['signals']['degraded_pgs'])
            time.sleep(0.2)
        held = [event['why'] for event in guard.get('events', count=200)['events']
                if event['id'] > before and event['what'].endswith('HOLDING')]
        assert degraded and not [why for why in held if 'degraded' in why], (degraded, held)
    finally:
        guard.option('max_pgs_in_flight', '32')
        cluster.mon('osd pool delete', pool='thin', pool2='thin',
                    yes_i_really_really_mean_it=True)
    assert guard.ask('undrain', what=['osd.3'])[0] == 0
    guard.wait_phase('DONE', timeout=150)


#: PGs are always due for a scrub.
SCRUB_ALWAYS = {'osd': {'osd_scrub_min_interval': '1', 'osd_scrub_max_interval': '5',
                        'osd_scrub_interval_randomize_ratio': '0',
                        'osd_scrub_load_threshold': '1000'}}


@contextlib.contextmanager
def configured(cluster: Cluster, settings: Dict[str, Dict[str, str]]) -> Iterator[None]:
    """Options of daemons, in the configuration database of the mons."""
    named = [{'who': who, 'name': name, 'value': value}
             for who, options in settings.items() for name, value in options.items()]
    try:
        cluster.order([{'prefix': 'config set', **option} for option in named])
        yield
    finally:
        cluster.order([{'prefix': 'config rm', 'who': option['who'], 'name': option['name']}
                       for option in named])


def map_range(cluster: Cluster) -> int:
    """Number of OSDMap epochs that the mons keep."""
    first, last = cluster.kept_epochs()
    return last - first + 1


@nightly
def test_releases_wait_while_the_mons_keep_too_many_osdmaps(guard: Guard) -> None:
    cluster = guard.cluster
    before = guard.foreign()
    guard.option('max_pgs_in_flight', '2')
    try:
        total = guard.hold(lambda: change_crush(guard))['total']
        # The first PGs are released: only later ones wait until these have arrived.
        most = map_range(cluster) - 20
        guard.option('max_untrimmed_osdmaps', str(most))
        guard.do('start')
        # perfguard reads the range once a minute.
        guard.wait_code('UNTRIMMED_MAPS', timeout=90)
        cluster.wait(lambda: guard.status()['in_flight'] == 0, 30, 'PGs to arrive')
        upmaps, kept = guard.upmaps(), map_range(cluster)
        time.sleep(10)
        assert guard.status()['phase'] == 'HOLDING' and guard.upmaps() == upmaps
        assert kept > most and 0 < guard.status()['pinned'] < total
        assert 'UNTRIMMED_MAPS' in guard.codes()
        guard.configure({'max_untrimmed_osdmaps': '0', 'untrimmed_ceiling': str(most)})
        guard.wait_code('UNTRIMMED_CEILING')
        time.sleep(5)
        assert guard.status()['phase'] == 'HOLDING' and guard.upmaps() == upmaps
        guard.option('untrimmed_ceiling', str(kept + 1000))
        guard.option('max_pgs_in_flight', '32')
        guard.wait_phase('RELEASING')
        print('%s: releases waited at %d epochs (limit %d), %d of %d PGs released by then' % (
            cluster.release.name, kept, most, total - len(upmaps), total))
        finish(guard, before)
    finally:
        guard.unset('max_untrimmed_osdmaps')
        guard.unset('untrimmed_ceiling')
        guard.option('max_pgs_in_flight', '32')


@nightly
def test_a_mon_short_of_disk_space_stops_releases(guard: Guard) -> None:
    cluster, before = guard.cluster, guard.foreign()
    guard.option('max_pgs_in_flight', '2')
    try:
        total = guard.hold(lambda: change_crush(guard))['total']
        guard.do('start')
        guard.wait_moving()
        # The ceph.conf of the cluster has this option as well.
        cluster.tell('mon.a', 'config set', var='mon_data_avail_warn', val=['99'])
        wait_check(guard, 'MON_DISK_LOW')
        guard.wait_code('MON_DISK')
        cluster.wait(lambda: guard.status()['in_flight'] == 0, 30, 'PGs to arrive')
        upmaps = guard.upmaps()
        time.sleep(5)
        assert guard.status()['phase'] == 'HOLDING' and guard.upmaps() == upmaps
        assert 0 < guard.status()['pinned'] < total
        cluster.tell('mon.a', 'config unset', var='mon_data_avail_warn')
        guard.option('max_pgs_in_flight', '32')
        finish(guard, before)
    finally:
        cluster.tell('mon.a', 'config unset', var='mon_data_avail_warn')
        guard.option('max_pgs_in_flight', '32')


def scrubbed_since(cluster: Cluster, begin: float) -> int:
    """PGs that were scrubbed after this time."""
    cluster.flush_pg_stats()
    rows = cluster.mon('pg dump', dumpcontents=['pgs'])['pg_stats']
    return sum(datetime.strptime(row['last_scrub_stamp'], '%Y-%m-%dT%H:%M:%S.%f%z').timestamp()
               > begin for row in rows)


def scrub_events(guard: Guard, after: int) -> List[str]:
    """Events about holding scrubs and giving them back, with an id above `after`."""
    return [event['what'] for event in guard.events()
            if event['id'] > after and 'hold_scrubs' in event['what']]


@pytest.mark.releases('pacific', 'reef', 'tentacle', quick=())
def test_held_scrubs_are_caught_up_with(guard: Guard) -> None:
    cluster = guard.cluster
    before, last = guard.foreign(), guard.last_event()
    guard.configure({'hold_scrubs': 'true', 'max_pgs_in_flight': '1'})
    try:
        with configured(cluster, SCRUB_ALWAYS):
            begin = time.time()
            cluster.wait(lambda: scrubbed_since(cluster, begin) > 4, 60, 'scrubs')
            guard.hold(lambda: change_crush(guard))
            guard.do('start')
            cluster.wait(lambda: all(
                cluster.tell('osd.%d' % osd, 'config get', var='osd_max_scrubs')
                ['osd_max_scrubs'] == '0' for osd in cluster.osds()), 60, 'scrubs to be held')
            cluster.wait(lambda: not any('scrubbing' in pg['state'] for pg in cluster.pgs()), 60,
                         'scrubs in progress to end')
            held = time.time()
            time.sleep(12)
            assert guard.status()['phase'] == 'RELEASING'
            assert scrubbed_since(cluster, held) == 0
            guard.option('max_pgs_in_flight', '32')
            guard.wait_phase('DONE', timeout=150)
            end = time.time()
            number = len(cluster.pgs())
            # A campaign that waits in between gives them back, too.
            cluster.wait(lambda: len(scrub_events(guard, last)) in range(2, 20, 2), 30,
                         'an event when scrubs were held, and one when they were given back')
            cluster.wait(lambda: scrubbed_since(cluster, held) == number, 240,
                         'all PGs to be scrubbed')
        print('%s: no scrub in 12 s of releases, all %d PGs scrubbed %.0f s after the end; %s' % (
            cluster.release.name, number, time.time() - end, scrub_events(guard, last)))
    finally:
        guard.unset('hold_scrubs')
        guard.option('max_pgs_in_flight', '32')
    finish(guard, before)
