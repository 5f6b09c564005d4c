# SPDX-License-Identifier: LGPL-2.1-or-later
"""The ways out of a campaign: an abort that stays still, and a rollback in one epoch."""
import errno
import json
import re
import time
from typing import Any, Dict, List, Sequence, Set, Tuple

import pytest

from perfguard.codec import encode
from perfguard.rebalance.requests import Request
from perfguard.request_queue import PROMISE_SECONDS
from qa.cluster import Cluster
from qa.lib.guard import Guard
from qa.lib.joins import (SLOW_PEERING, Witness, ask, changed_since, crush_weights, join, landing,
                          order, refused, served_by, spare_osds, up_sets, wait_reported)

from .test_drain import targets_of_balancer

pytestmark = [pytest.mark.releases('pacific', 'reef', 'tentacle', quick='tentacle'),
              pytest.mark.shares('join')]

HELD = 'PERFGUARD_HELD_PINS'
#: Seconds between two looks of the balancer, and for how long it must not find anything to do.
BALANCER_SECONDS = 3

#: What the balancer says when it changes nothing because nothing is to be changed.
FOUND_NOTHING = re.compile('(?i)unable to find further optimization|already perfect')
STILL_SECONDS = 12.0


def eager_balancer(cluster: Cluster) -> None:
    """It moves PGs as soon as an OSD has one too many."""
    for name, value in (('upmap_max_deviation', '1'), ('sleep_interval', str(BALANCER_SECONDS))):
        cluster.mon('config set', who='mgr', name='mgr/balancer/' + name, value=value)
    retval, _, error = cluster.mgr('balancer on')
    assert retval == 0, error


def wait_balanced(guard: Guard) -> None:
    """Until the balancer has looked twice at clean PGs and found nothing to do."""
    looks: List[Any] = []

    def unchanged() -> bool:
        balancer = guard.balancer()
        look = guard.upmaps(), served_by(guard.cluster), balancer['last_optimize_started']
        if guard.cluster.osd_dump()['pg_temp'] or not FOUND_NOTHING.search(
                balancer['optimize_result']) or looks and look[:2] != looks[0][:2]:
            looks.clear()
        elif look not in looks:
            looks.append(look)
        # Of the first look it is not known whether it began with the last change.
        return len(looks) > 3

    guard.cluster.wait_clean(60)
    guard.cluster.wait(unchanged, 90, 'the balancer to find nothing more to do')
    guard.cluster.wait_clean(60)


def clean(states: Set[str]) -> bool:
    """Scrubs may begin at any time."""
    return {'+'.join(word for word in state.split('+') if word not in ('scrubbing', 'deep'))
            for state in states} == {'active+clean'}


def stays_still(guard: Guard) -> None:
    cluster = guard.cluster
    cluster.wait_clean(60)
    time.sleep(2)
    upmaps, served, epoch, begin = (guard.upmaps(), served_by(cluster), cluster.epoch(),
                                    time.time())
    with Witness(cluster) as witness:
        time.sleep(STILL_SECONDS)
    print('%s: still for %.0f s: states %s in %d looks, %d PGs changed their state, epochs %d' % (
        cluster.release.name, STILL_SECONDS, sorted(witness.states), witness.looks,
        len(changed_since(cluster, begin)), cluster.epoch() - epoch))
    assert witness.looks and clean(witness.states)
    assert guard.upmaps() == upmaps and served_by(cluster) == served
    assert guard.balancer()['active'] is False


def roll_back(guard: Guard) -> Dict[str, Any]:
    answer = order(guard, 'campaign rollback')
    assert answer['one_epoch'] and not answer['unpinnable']
    done = guard.wait_phase('DONE', timeout=240)
    assert done['rolled_back'] and not done['pinned']
    guard.cluster.wait_clean(60)
    return answer


def test_abort_stays_still_and_rollback_takes_one_epoch(release: str, guard: Guard) -> None:
    cluster = guard.cluster
    guard.configure(SLOW_PEERING)
    eager_balancer(cluster)
    added = cluster.add_osds(4, weight=0.0)
    wait_balanced(guard)
    before, mine, weights = guard.foreign(), guard.upmaps(), crush_weights(cluster)
    served = served_by(cluster)

    pinned = join(guard, 'expand', weight='1.0', what=['osd.%d' % osd for osd in added])['pgs']
    guard.do('abort')
    guard.wait_phase('ABORTED')
    cluster.mon('osd unset', key='nobackfill')
    guard.wait_check(HELD, True, 20)
    assert len(guard.upmaps()) >= pinned
    stays_still(guard)

    # Nothing was released: CRUSH changes in one epoch, unnecessary pins go once that is read back,
    # and no PG leaves active+clean.
    epoch = cluster.epoch()
    with Witness(cluster) as witness:
        answer = roll_back(guard)
    crush_epochs, epochs, remapped = landing(cluster, epoch)
    print('%s: rollback: %d pins removed, %d made, %d CRUSH epoch(s), %d epoch(s) with upmaps or '
          'CRUSH, %d remapped, states %s in %d looks' % (
              release, answer['pins_removed'], answer['pgs'], crush_epochs, len(epochs), remapped,
              sorted(witness.states), witness.looks))
    assert answer['pins_removed'] == pinned and answer['pgs'] == 0
    assert (crush_epochs, remapped) == (1, 0) and len(epochs) <= 2 and clean(witness.states)
    assert crush_weights(cluster) == weights
    cluster.wait(lambda: guard.upmaps() == mine, 30, 'the upmaps from before')
    assert served_by(cluster) == served and guard.foreign() == before
    guard.wait_check(HELD, False, 20)

    # What has moved by then goes back.
    order(guard, 'expand', weight='1.0', what=['osd.%d' % osd for osd in added])
    guard.wait_moving(at_least=2)
    shown = order(guard, 'campaign rollback', dry_run=True)
    assert shown['eta_seconds'] > 0.0 and set(added) & {row['osd'] for row in shown['osds']}
    answer = roll_back(guard)
    print('%s: rollback half way: %d PGs go back, %d pins removed' % (
        release, answer['pgs'], answer['pins_removed']))
    assert answer['pgs'] >= 2
    assert not {osd for pg in cluster.pgs() for osd in pg['acting']} & set(added)
    assert crush_weights(cluster) == weights
    assert targets_of_balancer(cluster).isdisjoint(added)
    assert guard.foreign() == before and not guard.tracebacks()
    refused(guard, 'campaign rollback', 'no campaign is active')

    # The OSDs are new again, as before the expansion.
    wait_reported(guard)
    again = order(guard, 'expand', weight='1.0', dry_run=True)
    assert set(again['weights']) == {'osd.%d' % osd for osd in added} and not again['left_out']


@pytest.mark.releases('pacific', 'reef', 'tentacle', quick=())
def test_expand_leaves_drained_disks_out(release: str, guard: Guard) -> None:
    cluster = guard.cluster
    guard.configure(SLOW_PEERING)
    wait_reported(guard)
    # One by perfguard, one as "ceph orch osd rm" and others do it, which no test has drained.
    order(guard, 'drain', what=['osd.0'])
    guard.wait_phase('DONE', timeout=240)
    for osd in (0, 5):
        cluster.mon('osd crush reweight', name='osd.%d' % osd, weight=0.0)
    cluster.wait_clean(120)
    added = cluster.add_osds(2, weight=0.0)
    cluster.wait_clean(60)
    wait_reported(guard)
    up_thru = {osd['osd']: osd['up_thru'] for osd in cluster.osd_dump()['osds']}
    print('%s: up_thru %s' % (release, up_thru))
    assert all((up_thru[osd] == 0) == (osd in added) for osd in up_thru)

    def reported() -> bool:
        retval, out, error = ask(guard, 'expand', dry_run=True)
        assert retval in (0, -errno.EAGAIN), error
        return retval == 0 and len(json.loads(out)['left_out']) == 2

    cluster.wait(reported, 30, 'the new OSDs to report that they hold no PG')
    answer = order(guard, 'expand', weight='1.0', dry_run=True)
    assert set(answer['weights']) == {'osd.%d' % osd for osd in added}
    assert [(row['osd'], row['reason']) for row in answer['left_out']] == [
        (0, 'was drained'), (5, 'held PGs before')]
    named = order(guard, 'expand', what=['osd.0'], weight='1.0', dry_run=True)
    assert set(named['weights']) == {'osd.0'} and not guard.tracebacks()


@pytest.mark.releases('pacific', 'reef', 'tentacle', quick=())
def test_an_expansion_completes_an_aborted_drain(release: str, guard: Guard) -> None:
    cluster = guard.cluster
    guard.configure(SLOW_PEERING)
    wait_reported(guard)
    drained = max(osd for osd, weight in crush_weights(cluster).items() if weight == 1.0)
    order(guard, 'drain', what=['osd.%d' % drained])
    guard.wait_moving(at_least=1)
    guard.do('abort')
    guard.wait_phase('ABORTED')
    added = cluster.add_osds(2, weight=0.0)
    cluster.wait_clean(60)
    wait_reported(guard)

    # It takes over the pins of the drain.
    order(guard, 'expand', weight='1.0', what=['osd.%d' % osd for osd in added])
    guard.wait_phase('DONE', timeout=240)
    cluster.wait_clean(120)
    weights = crush_weights(cluster)
    print('%s: osd.%d has weight %g, %s' % (release, drained, weights[drained], {
        osd: weights[osd] for osd in added}))
    assert weights[drained] == 0.0 and all(weights[osd] == 1.0 for osd in added)
    assert not any(drained in pg['acting'] for pg in cluster.pgs())
    assert drained not in targets_of_balancer(cluster) and not guard.tracebacks()


@pytest.mark.releases('pacific', 'reef', 'tentacle', quick=())
def test_an_upmap_of_others_survives_an_abort(release: str, guard: Guard) -> None:
    cluster = guard.cluster
    guard.configure({**SLOW_PEERING, 'target': 'crush'})
    added = cluster.add_osds(2, weight=0.0)
    cluster.wait_clean(60)
    wait_reported(guard)
    # Few objects move for a minute. The ceph.conf of test clusters wins over "config set".
    cluster.ceph('tell', 'osd.*', 'config', 'set', 'osd_recovery_sleep', '15')
    found: List[Tuple[str, int, int]] = []

    def moving() -> bool:
        found[:] = moving_to(cluster, added)
        return bool(found)

    try:
        order(guard, 'expand', weight='1.0', what=['osd.%d' % osd for osd in added])
        cluster.wait(moving, 90, 'a PG to move')
        pgid, target, other = found[0]
        cluster.mon('osd pg-upmap-items', pgid=pgid, id=[target, other])
        cluster.wait(lambda: other in up_sets(cluster)[pgid], 30, 'the upmap')
        guard.do('abort')
        guard.wait_phase('ABORTED', timeout=60)
        cluster.wait(lambda: not cluster.osd_dump()['pg_temp'], 60, 'all PGs to be in place')
        print('%s: PG %s, osd.%d -> osd.%d, while aborted: %s' % (
            release, pgid, target, other, guard.upmaps().get(pgid)))
        assert not {target, other} & set(up_sets(cluster)[pgid])
    finally:
        cluster.ceph('tell', 'osd.*', 'config', 'set', 'osd_recovery_sleep', '0')
    guard.do('resume')
    guard.wait_phase('DONE', timeout=240)
    cluster.wait_clean(120)
    assert other in up_sets(cluster)[pgid] and guard.upmaps()[pgid] == [(target, other)]
    cluster.mon('osd rm-pg-upmap-items', pgid=pgid)
    assert not guard.tracebacks()


@pytest.mark.releases('pacific', 'reef', 'tentacle', quick=())
def test_a_request_that_the_mons_stored_long_ago_is_not_carried_out(release: str,
                                                                    guard: Guard) -> None:
    """The mgr that was to do so was disabled, or hung."""
    cluster, last = guard.cluster, guard.last_event()
    before = guard.foreign()
    stored_at = time.time() - PROMISE_SECONDS - 60
    key = '%s/%020d' % (Request.document, int(stored_at * 1e9))
    cluster.mon('config-key set', key='mgr/perfguard/' + key,
                val=json.dumps(encode(Request('prepare'))))
    cluster.mon('mgr fail', who=cluster.active_mgr())
    guard.wait_ready()
    cluster.wait(lambda: key not in guard.store_keys(), 60, 'the request to be dropped')
    assert guard.phase() in ('IDLE', 'DONE', 'ABORTED') and guard.foreign() == before
    assert any('has expired' in text for text in guard.event_texts('refused', last))
    assert not guard.tracebacks()


def moving_to(cluster: Cluster, added: Sequence[int]) -> List[Tuple[str, int, int]]:
    """PGs in flight with the OSD that they move to and one on another host that may take its
    place."""
    hosts, weights = cluster.osd_hosts(), crush_weights(cluster)
    moving = {row['pgid'] for row in cluster.osd_dump()['pg_temp']}
    found = []
    for pg in cluster.pgs():
        targets = set(pg['up']) & set(added) - set(pg['acting'])
        spare = spare_osds(hosts, weights, (*pg['up'], *pg['acting']))
        if pg['pgid'] in moving and targets and spare:
            found.append((pg['pgid'], min(targets), spare[0]))
    return found


def test_shutdown_gives_everything_back(release: str, guard: Guard) -> None:
    cluster = guard.cluster
    before, upmaps = guard.foreign(), guard.upmaps()
    assert guard.get('held')['held'] == []
    names = ['osd.%d' % osd for osd in cluster.add_osds(4, weight=0.0)]
    wait_reported(guard)
    # On a loaded machine, the OSDMap of the mgr does not contain them at once.
    cluster.wait(lambda: ask(guard, 'expand', weight='1.0', what=names, dry_run=True)[0] == 0, 30,
                 'the mgr to know the new OSDs')
    order(guard, 'expand', weight='1.0', what=names)
    guard.wait_moving()
    held = guard.get('held')['held']
    print('%s: held: %s' % (release, ['%s: %s' % (row['what'], row['restore']) for row in held]))
    assert {row['what'] for row in held} >= {'mgr/balancer/active', 'upmaps of pinned PGs'}
    assert all(row['restore'].startswith('ceph ') and row['since'] for row in held)
    refused(guard, 'shutdown', 'yes-i-really-mean-it')
    answer = order(guard, 'shutdown', yes_i_really_mean_it=True)
    assert answer['held'] and not answer['safe']
    begin = time.monotonic()
    cluster.wait(lambda: order(guard, 'shutdown')['safe'], 90, 'a safe shutdown')
    print('%s: safe after %.0f s, %d pins handed over' % (
        release, time.monotonic() - begin, len(guard.upmaps()) - len(upmaps)))
    assert guard.foreign() == before and guard.get('held')['held'] == []
    assert len(guard.upmaps()) > len(upmaps) and not guard.checks()
    assert not {key.split('/')[0] for key in guard.store_keys()} & {
        'campaign', 'pins', 'crushbefore'}
    assert not guard.tracebacks()
    cluster.mon('mgr module disable', module='perfguard')
    # The mgr starts anew and answers nothing meanwhile; the mons do.
    assert set(cluster.osd_dump()['flags_set']) == set(before.flags)
