# SPDX-License-Identifier: LGPL-2.1-or-later
"""Orders that change CRUSH, and checks of PGs while they are executed."""
import json
import threading
import time
from datetime import datetime
from types import TracebackType
from typing import Any, Dict, Iterable, List, Mapping, Optional, Set, Tuple, Type

from qa.cluster import Cluster
from qa.lib.guard import Guard
from qa.lib.reference import unknown_arguments

#: A proposal interval that differs from the one that perfguard borrows, so that a leftover shows.
SLOW_PEERING = {'fast_peering': 'off'}


def add_rule(cluster: Cluster, rule: str) -> None:
    """Add a rule of crushtool's text, without its min_size and max_size, which Pacific requires."""
    if cluster.release.name == 'pacific':
        rule = rule.replace('    step ', '    min_size 1\n    max_size 10\n    step ', 1)
    path, text = cluster.directory / 'crush', cluster.directory / 'crush.txt'
    cluster.ceph('osd', 'getcrushmap', '-o', str(path))
    cluster.run_tool(['crushtool', '-d', str(path), '-o', str(text)])
    text.write_text(text.read_text() + rule)
    cluster.run_tool(['crushtool', '-c', str(text), '-o', str(path)])
    cluster.ceph('osd', 'setcrushmap', '-i', str(path))


class Witness:
    """Checks all PGs repeatedly for states that must not occur meanwhile."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look)
        self._problem: Optional[BaseException] = None
        self.states: Set[str] = set()
        self.looks = 0

    def __enter__(self) -> 'Witness':
        self._thread.start()
        return self

    def __exit__(self, kind: Optional[Type[BaseException]], error: Optional[BaseException],
                 trace: Optional[TracebackType]) -> None:
        self._over.set()
        self._thread.join(60)
        if error is None:
            assert not self._thread.is_alive(), 'the witness hangs'
            assert self._problem is None and self.looks > 0, repr(self._problem)

    def _look(self) -> None:
        try:
            while not self._over.wait(0.1):
                self.states |= {pg['state'] for pg in self._cluster.pgs()}
                self.looks += 1
        except BaseException as problem:
            self._problem = problem


def served_by(cluster: Cluster) -> Dict[str, Tuple[Any, ...]]:
    return {pg['pgid']: (tuple(pg['acting']), pg['acting_primary']) for pg in cluster.pgs()}


def up_sets(cluster: Cluster) -> Dict[str, List[int]]:
    return {pg['pgid']: list(pg['up']) for pg in cluster.pgs()}


def crush_weights(cluster: Cluster) -> Dict[int, float]:
    return {node['id']: float(node['crush_weight']) for node in cluster.mon('osd tree')['nodes']
            if node['id'] >= 0}


def wait_reported(guard: Guard) -> None:
    """Wait until the mgr, which may be new, has reports that all PGs are clean."""
    def clean() -> bool:
        signals = guard.get('status')['signals']
        return bool(signals['active_clean_pgs'] == signals['pgs'] > 0)

    guard.cluster.wait(clean, 60, 'all PGs reported clean')


def ask(guard: Guard, command: str, given: str = '', **args: Any) -> Tuple[int, str, str]:
    """Run a command of perfguard with `given` as its input file. The arguments must exist."""
    assert not unknown_arguments(command, args), (command, args)
    return guard.cluster.command('mgr', {'prefix': 'perfguard ' + command, 'format': 'json',
                                         **args}, given.encode())


def order(guard: Guard, command: str, **args: Any) -> Dict[str, Any]:
    retval, out, error = ask(guard, command, **args)
    assert retval == 0, (command, args, error)
    found: Dict[str, Any] = json.loads(out)
    return found


def refused(guard: Guard, command: str, text: str, **args: Any) -> None:
    retval, out, error = ask(guard, command, **args)
    assert retval < 0 and not out and text in error, (command, args, error)


def changed_since(cluster: Cluster, begin: float) -> List[str]:
    """PGs that have changed their state since then, even briefly."""
    cluster.flush_pg_stats()
    retval, out, error = cluster.mgr('pg dump', dumpcontents=['pgs'], format='json')
    assert retval == 0, error
    dump = json.loads(out)
    stats = dump.get('pg_map', dump)['pg_stats']
    return [pg['pgid'] for pg in stats
            if datetime.strptime(pg['last_change'], '%Y-%m-%dT%H:%M:%S.%f%z').timestamp() > begin]


def landing(cluster: Cluster, since: int) -> Tuple[int, Set[int], int]:
    """Epochs in which CRUSH changed, in which upmaps changed, and PGs remapped in any of them."""
    dumps = [cluster.mon('osd dump', epoch=epoch) for epoch in range(since, cluster.epoch() + 1)]
    crush, upmaps = set(), set()
    for before, after in zip(dumps, dumps[1:]):
        if before['crush_version'] != after['crush_version']:
            crush.add(after['epoch'])
        if (before['pg_upmap_items'], before['pg_upmap']) != (
                after['pg_upmap_items'], after['pg_upmap']):
            upmaps.add(after['epoch'])
    return len(crush), crush | upmaps, max(len(dump['pg_temp']) for dump in dumps)


def join(guard: Guard, command: str, **args: Any) -> Dict[str, Any]:
    """Give an order, and check that no PG moves before the first release.

    The flag nobackfill is a stop condition, so nothing is released until it is removed.
    """
    cluster = guard.cluster
    cluster.wait_clean(60)
    wait_reported(guard)
    cluster.mon('osd set', key='nobackfill')
    time.sleep(2)  # PGs that have just become clean have changed their state
    before, epoch, begin = served_by(cluster), cluster.epoch(), time.time()
    with Witness(cluster) as witness:
        answer = order(guard, command, **args)
        guard.wait_phase('HOLDING', timeout=60)
    seconds = time.time() - begin
    crush_epochs, epochs, remapped = landing(cluster, epoch)
    dump = cluster.osd_dump()
    print('%s: %s: %d PGs pinned, %d by vector, in %d epoch(s), %.1f s; at most %d remapped; '
          'states %s in %d looks; %d PGs changed their state' % (
              cluster.release.name, command, answer['pgs'], len(dump['pg_upmap']), len(epochs),
              seconds, remapped, sorted(witness.states), witness.looks,
              len(changed_since(cluster, begin))))
    assert answer['one_epoch'] and answer['pgs'] > 0 and not answer['unpinnable']
    assert (crush_epochs, len(epochs), remapped) == (1, 1, 0)
    assert witness.states == {'active+clean'} and changed_since(cluster, begin) == []
    assert served_by(cluster) == before
    assert guard.status()['pinned'] == answer['pgs'] and not guard.status()['unpinnable']
    # It is given back only after the last release.
    cluster.wait(lambda: 'paxos_propose_interval' not in [
        entry['name'] for entry in cluster.mon('config dump')], 15, 'the interval of proposals')
    return answer


def let_go(guard: Guard) -> None:
    guard.cluster.mon('osd unset', key='nobackfill')
    done = guard.wait_phase('DONE', timeout=180)
    assert done['released'] == done['total'] and not done['pinned'] and not done['unpinnable']
    guard.cluster.wait_clean(60)


def safe_to_destroy(cluster: Cluster, osd: int) -> bool:
    retval, _, _ = cluster.mgr('osd safe-to-destroy', ids=[str(osd)])
    return retval == 0


def as_script(cluster: Cluster) -> List[str]:
    """`ceph osd pg-upmap-items` for each remapped PG, as upmap-remapped.py sends it."""
    dump = cluster.osd_dump()
    before: Dict[str, List[Tuple[int, int]]] = {
        row['pgid']: [(pair['from'], pair['to']) for pair in row['mappings']]
        for row in dump['pg_upmap_items']}
    pinned = []
    for pg in cluster.pgs():
        new = [osd for osd in pg['up'] if osd not in pg['acting']]
        old = [osd for osd in pg['acting'] if osd not in pg['up']]
        if new and len(new) == len(old):
            pairs = before.get(pg['pgid'], []) + list(zip(new, old))
            cluster.mon('osd pg-upmap-items', pgid=pg['pgid'],
                        id=[osd for pair in pairs for osd in pair])
            pinned.append(pg['pgid'])
    return pinned


def spare_osds(hosts: Mapping[int, str], weights: Mapping[int, float],
               osds: Iterable[int]) -> List[int]:
    """OSDs of full weight on hosts without any of these."""
    taken = {hosts[osd] for osd in osds}
    return [osd for osd, host in hosts.items() if host not in taken and weights[osd] >= 1.0]


def spare_mappings(cluster: Cluster, number: int) -> List[Dict[str, Any]]:
    """Mappings that take PGs of the replicated pool to a host without one of their OSDs."""
    hosts, weights, found = cluster.osd_hosts(), crush_weights(cluster), []
    pool = next(row['pool'] for row in cluster.osd_dump()['pools'] if row['pool_name'] == 'rep')
    for pg in cluster.pgs():
        spare = spare_osds(hosts, weights, pg['up'])
        if pg['pgid'].startswith('%d.' % pool) and spare:
            found.append({'pgid': pg['pgid'], 'mapping': {'from': pg['up'][-1], 'to': spare[0]}})
    return found[:number]


def replace_devices(guard: Guard, osds: List[int], failover: bool = False) -> None:
    """Replace the devices of OSDs that a replacement has drained; returns once they are filled."""
    cluster, hosts = guard.cluster, guard.cluster.osd_hosts()

    def phases() -> Set[str]:
        return {row['phase'] for row in guard.get('osds', drained=True)['drains']}

    cluster.wait(lambda: phases() == {'EMPTY'}, 60, 'empty OSDs')
    assert all(safe_to_destroy(cluster, osd) for osd in osds)
    cluster.remove_osds(osds, destroy=True)
    if failover:
        cluster.mgr_fail()
        guard.wait_ready()
    cluster.wait(lambda: phases() == {'WAITING'}, 60, 'OSDs that wait for their devices')
    last = max(row['id'] for row in guard.get('campaign ls')['campaigns'])
    cluster.add_osds(len(osds), hosts=[hosts[osd] for osd in osds], ids=osds, in_crush=False)
    cluster.wait(lambda: (guard.status()['id'] or 0) > last, 90, 'a campaign')
    guard.wait_phase('DONE', timeout=240)
    cluster.wait(lambda: phases() == set(), 60, 'the end of the replacement')
    cluster.wait_clean(60)
    assert {osd for pg in cluster.pgs() for osd in pg['acting']} >= set(osds)


def refused_after_a_change_of_crush(guard: Guard, **plan: Any) -> None:
    """Save a plan, and see it refused once osd.0 has another weight; all is put back."""
    cluster, name = guard.cluster, plan['plan']
    order(guard, 'plan save', **plan)
    try:
        cluster.mon('osd crush reweight', name='osd.0', weight=1.1)
        refused(guard, 'plan approve', 'osd.0', plan=name)
        [row] = guard.get('plan ls')['plans']
        assert row['state'] == 'changed'
    finally:
        cluster.mon('osd crush reweight', name='osd.0', weight=1.0)
        guard.get('plan rm', plan=name)
    cluster.wait_clean(120)
    wait_reported(guard)
