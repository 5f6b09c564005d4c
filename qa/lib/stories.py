# SPDX-License-Identifier: LGPL-2.1-or-later
"""Stories of an operator on a cluster whose mgr may die at any time, each with its expected end.

Each story begins with the OSDs of the operator empty, at weight 0.
"""
import contextlib
import json
from dataclasses import dataclass
from typing import Any, Callable, Dict, Iterator, List, Sequence, TypeVar

from qa.lib.auditor import Foreign, Placement, placement
from qa.lib.faults import dispatch_delay
from qa.lib.guard import Guard
from qa.lib.joins import as_script, ask, crush_weights, order, spare_mappings, wait_reported
from qa.lib.probes import SHORT, digest

#: Seconds for a story in which the mgr fails several times.
STORY_SECONDS = 300.0
#: Complete probes of a story.
PROBES = 4
#: PGs that an import moves.
IMPORTED = 12
#: upmap_max_deviation of the balancer of test clusters, and one with which the upmaps of a script
#: are no balanced state.
CALM_DEVIATION, STRICT_DEVIATION = '100', '1'

T = TypeVar('T')


class Operator:
    """Repeats each command until the cluster shows that it was carried out."""

    def __init__(self, guard: Guard, osds: List[int]) -> None:
        self.guard, self.cluster = guard, guard.cluster
        #: OSDs that stories fill and empty.
        self.osds = osds
        self.names = ['osd.%d' % osd for osd in osds]
        self.id = 0
        #: Pools whose objects are compared.
        self.pools: Sequence[str] = ('rep', 'ec')
        #: Pools to which a client writes meanwhile.
        self.written: Sequence[str] = ('rep', 'ec')

    def status(self) -> Dict[str, Any]:
        return dict(self.guard.status())

    def insist(self, done: Callable[[], bool], command: str, given: str = '', **args: Any) -> None:
        answers: List[Any] = []

        def carried_out() -> bool:
            if done():
                return True
            retval, _, error = ask(self.guard, command, given, **args)
            answers.append((retval, error))
            return done()

        try:
            self.cluster.wait(quietly(carried_out), STORY_SECONDS, command)
        except Exception as error:
            raise AssertionError('%s; answers %s' % (error, answers[-3:])) from error

    def wait(self, done: Callable[[], bool], what: str) -> None:
        try:
            self.cluster.wait(quietly(done), STORY_SECONDS, what)
        except Exception as error:
            raise AssertionError('%s; %s' % (error, self.status())) from error

    def begin(self, command: str, given: str = '', **args: Any) -> None:
        """A command that begins the next campaign."""
        last = self.answer(self.newest)
        self.insist(lambda: self.newest() > last, command, given, **args)
        self.id = self.answer(self.newest)

    def newest(self) -> int:
        """The id of the last campaign; 0: there was none."""
        return max((int(row['id']) for row in self.guard.get('campaign ls')['campaigns']),
                   default=0)

    def answer(self, question: Callable[[], T]) -> T:
        """Asked again while no mgr answers."""
        answers: List[T] = []

        def answered() -> bool:
            answers.append(question())
            return True

        self.wait(answered, 'an answer')
        return answers[0]

    def ended(self) -> List[Dict[str, Any]]:
        """The campaign in the history: the status of an mgr that takes over later has none."""
        return [row for row in self.guard.get('campaign ls')['campaigns']
                if row['id'] == self.id and row['phase'] == 'DONE']

    def wait_done(self) -> Dict[str, Any]:
        self.wait(lambda: bool(self.ended()), 'campaign %d to end' % self.id)
        return self.answer(self.ended)[0]

    def wait_moving(self) -> None:
        self.wait(lambda: self.status()['released'] > 0, 'the first released PG')

    def phase(self, *phases: str) -> Callable[[], bool]:
        return lambda: (self.status()['phase'] in phases
                        or 'DONE' in phases and bool(self.ended()))

    @contextlib.contextmanager
    def one_by_one(self) -> Iterator[None]:
        """So that the campaign does not end before the next command, on any mgr."""
        self.guard.option('max_pgs_in_flight', '1')
        try:
            yield
        finally:
            self.guard.unset('max_pgs_in_flight')

    def expand(self) -> None:
        self.begin('expand', what=['osd.%d' % osd for osd in self.osds], weight='1.0')


def quietly(check: Callable[[], bool]) -> Callable[[], bool]:
    """A command without an answer is a condition that is not met yet."""
    def checked() -> bool:
        try:
            return check()
        except AssertionError:
            return False
    return checked


# ---- stories

def expand(operator: Operator) -> None:
    operator.expand()
    operator.wait_done()


def by_hand(operator: Operator) -> None:
    operator.begin('campaign prepare')
    operator.insist(operator.phase('PREPARED'), 'campaign status')
    operator.cluster.order([{'prefix': 'osd crush reweight', 'name': name, 'weight': 1.0}
                            for name in operator.names])
    operator.wait(lambda: bool(operator.cluster.osd_dump()['pg_temp']), 'remapped PGs')
    operator.insist(operator.phase('PINNED'), 'campaign pin')
    operator.insist(operator.phase('RELEASING', 'HOLDING', 'DONE'), 'campaign start')
    operator.wait_done()


def drain(operator: Operator) -> None:
    expand(operator)
    operator.begin('drain', what=operator.names)
    operator.wait_done()


def rollback(operator: Operator) -> None:
    with operator.one_by_one():
        operator.expand()
        operator.wait_moving()
        operator.insist(lambda: bool(operator.status()['rolled_back'] or operator.ended()),
                        'campaign rollback')
    assert operator.wait_done()['rolled_back'], 'ended before the order was accepted'


def aborted(operator: Operator) -> None:
    """An expansion is aborted before its end."""
    with operator.one_by_one():
        operator.expand()
        operator.wait_moving()
        operator.insist(operator.phase('ABORTING', 'ABORTED'), 'campaign abort')
        operator.wait(operator.phase('ABORTED'), 'the abort')


def abort(operator: Operator) -> None:
    aborted(operator)
    operator.insist(operator.phase('RELEASING', 'HOLDING', 'DONE'), 'campaign resume')
    operator.wait_done()


def keep(operator: Operator) -> None:
    aborted(operator)
    operator.insist(operator.phase('DONE'), 'campaign finish', keep=True)
    operator.wait_done()


def taken_over(operator: Operator) -> None:
    """A new campaign takes over the pins of an aborted one."""
    aborted(operator)
    operator.begin('campaign prepare')
    operator.insist(operator.phase('PREPARED'), 'campaign status')
    operator.insist(operator.phase('PINNED'), 'campaign pin')
    operator.insist(operator.phase('RELEASING', 'HOLDING', 'DONE'), 'campaign start')
    operator.wait_done()


def pause(operator: Operator) -> None:
    with operator.one_by_one():
        operator.expand()
        operator.wait_moving()
        operator.insist(lambda: bool(operator.status()['paused']), 'campaign pause')
        operator.wait(operator.phase('HOLDING'), 'the pause')
        operator.insist(lambda: not operator.status()['paused'], 'campaign resume')
    operator.wait_done()


def import_mappings(operator: Operator) -> None:
    """They are ordinary upmaps at the end."""
    guard, mappings = operator.guard, spare_mappings(operator.cluster, IMPORTED)
    operator.begin('import', json.dumps(mappings))
    assert operator.wait_done()['released'] == len(mappings)
    expected = sorted(mappings, key=lambda row: str(row['pgid']))
    operator.wait(lambda: guard.get('campaign export') == expected, 'the upmaps')
    guard.remove_upmaps()


def adopt(operator: Operator) -> None:
    """Another tool has begun the expansion, without perfguard and with the balancer off."""
    cluster = operator.cluster
    with without_balancer(operator):
        cluster.mon('osd set', key='norebalance')
        try:
            cluster.order([{'prefix': 'osd crush reweight', 'name': name, 'weight': 1.0}
                           for name in operator.names])
            operator.guard.wait_remapped()
            operator.wait(lambda: bool(as_script(cluster)), 'the pins of the script')
            cluster.wait_active(60)
        finally:
            cluster.mon('osd unset', key='norebalance')
        operator.begin('adopt')
        assert operator.wait_done()['released'] > 0
        # Of the others perfguard cannot know that they are pins.
        operator.guard.remove_upmaps()
        cluster.wait_clean(120)


@contextlib.contextmanager
def without_balancer(operator: Operator) -> Iterator[None]:
    def deviation(value: str) -> None:
        operator.cluster.mon('config set', who='mgr', name='mgr/balancer/upmap_max_deviation',
                             value=value)

    def switched(on: bool) -> bool:
        operator.cluster.mgr('balancer on' if on else 'balancer off')
        return bool(operator.guard.balancer()['active'] == on)

    operator.wait(lambda: switched(False), 'the balancer to be off')
    deviation(STRICT_DEVIATION)
    try:
        yield
    finally:
        deviation(CALM_DEVIATION)
        operator.wait(lambda: switched(True), 'the balancer to be on')


def auto_expand(operator: Operator) -> None:
    """Another operator gives the OSDs a weight, without perfguard."""
    cluster, guard = operator.cluster, operator.guard
    version = cluster.osd_dump()['crush_version']

    def known() -> bool:
        stored = cluster.mon('config-key dump', key='mgr/perfguard/lastclean')
        return any(json.loads(value)['document']['crush_version'] == version
                   for value in stored.values())

    last = operator.answer(operator.newest)
    guard.option('auto_expand', 'true')
    try:
        operator.wait(known, 'the state before the change to be stored')
        cluster.order([{'prefix': 'osd crush reweight', 'name': name, 'weight': 1.0}
                       for name in operator.names])
        operator.wait(lambda: operator.newest() > last, 'a campaign')
        operator.id = last + 1
        assert operator.wait_done()['trigger'] == 'auto'
    finally:
        # The mgr learns of a removed option seconds later, of a value at once.
        guard.option('auto_expand', 'false')
        guard.unset('auto_expand')


def crushmap(operator: Operator) -> None:
    cluster = operator.cluster
    path = cluster.directory / 'crush'
    cluster.order([{'prefix': 'osd crush reweight', 'name': name, 'weight': 1.0}
                   for name in operator.names])
    cluster.ceph('osd', 'getcrushmap', '-o', str(path))
    empty(operator)
    text = cluster.run_tool(['crushtool', '-d', str(path)])
    operator.begin('crushmap', text)
    operator.wait_done()


def plan(operator: Operator) -> None:
    def saved() -> bool:
        return bool(operator.guard.get('plan ls')['plans'])

    operator.insist(saved, 'plan save', plan='p', change='expand', weight='1',
                    what=operator.names)
    operator.begin('plan approve', plan='p')
    operator.wait_done()
    assert not operator.answer(saved)


def shutdown(operator: Operator) -> None:
    operator.expand()
    operator.wait_moving()

    def safe() -> bool:
        return bool(order(operator.guard, 'shutdown', yes_i_really_mean_it=True)['safe'])

    operator.insist(safe, 'status')


def measure(operator: Operator, **args: Any) -> None:
    """Until some probes are complete. The next mgr only cleans up after one that it finds, and the
    next probe may be over before the mgr can be killed again."""
    guard = operator.guard
    last = operator.answer(lambda: max([row['id'] for row in guard.get('probe ls')['probes']],
                                       default=0))

    def states() -> List[str]:
        return [row['state'] for row in guard.get('probe ls')['probes'] if row['id'] > last]

    operator.insist(lambda: states().count('done') >= PROBES, 'probe run', rw='randwrite', **args,
                    **SHORT)
    operator.wait(lambda: set(states()) <= {'done', 'failed'}, 'all probes to end')


def probe(operator: Operator) -> None:
    measure(operator)


def probe_pool(operator: Operator) -> None:
    """In a pool of the operator."""
    measure(operator, pool='rep')


def probe_osd(operator: Operator) -> None:
    measure(operator, pool='rep', osd='osd.2')


def undrain(operator: Operator) -> None:
    drain(operator)
    operator.begin('undrain', what=operator.names)
    operator.wait_done()


def replace(operator: Operator) -> None:
    """The operator puts a new device in the place of an OSD."""
    expand(operator)
    cluster, osd = operator.cluster, operator.osds[0]
    host = cluster.osd_hosts()[osd]

    def phases() -> List[str]:
        return [row['phase'] for row in operator.guard.get('osds', drained=True)['drains']]

    operator.begin('replace', what=['osd.%d' % osd])
    operator.wait_done()
    operator.wait(lambda: phases() == ['EMPTY'], 'an empty OSD')
    cluster.remove_osds([osd], destroy=True)
    cluster.add_osds(1, hosts=[host], ids=[osd], in_crush=False)
    operator.wait(lambda: phases() == [], 'the end of the replacement')


def pg_num(operator: Operator) -> None:
    for count in (72, 64):
        operator.begin('pg_num', pool='rep', pg_num=count)
        operator.wait_done()


def rule(operator: Operator) -> None:
    """Under the second rule, PGs with two OSDs on a host have to move first."""
    cluster = operator.cluster
    cluster.mon('osd crush rule create-replicated', name='osds', root='default', type='osd')
    number = next(pool['crush_rule'] for pool in cluster.osd_dump()['pools']
                  if pool['pool_name'] == 'rep')
    usual = next(found['rule_name'] for found in cluster.mon('osd crush rule dump')
                 if found['rule_id'] == number)
    for name in ('osds', usual):
        operator.begin('rule', pool='rep', rule=name)
        operator.wait_done()
    cluster.mon('osd crush rule rm', name='osds')


#: A slow OSD is known as such in seconds, and loses its primary affinity.
AFFINITY_OPTIONS = {'slow_osd_seconds': '8', 'slow_osd_factor': '4', 'baseline_seconds': '5',
                    'mitigation_seconds': '2', 'mitigation_mode': 'act',
                    'mitigation_affinity': 'true'}
SLOW_OSD, DELAY_SECONDS = 2, 0.015


def affinity(operator: Operator) -> None:
    guard, cluster = operator.guard, operator.cluster

    def value() -> float:
        return float(next(osd['primary_affinity'] for osd in cluster.osd_dump()['osds']
                          if osd['osd'] == SLOW_OSD))

    cluster.pool_create('clients', 64)
    load = cluster.load('clients', rate=200, read_fraction=0.5, runtime=2 * STORY_SECONDS)
    try:
        guard.configure(AFFINITY_OPTIONS)
        operator.wait(lambda: all(row['score'] for osd, row in guard.osds().items()
                                  if osd not in operator.osds), 'slowdowns')
        with dispatch_delay(cluster, SLOW_OSD, DELAY_SECONDS):
            operator.wait(lambda: value() == 0.0, 'a lower primary affinity')
        operator.wait(lambda: value() == 1.0 and not guard.slow_osds(), 'the affinity given back')
        operator.wait(lambda: not guard.checks(), 'no health check')
    finally:
        load.stop()
        for name in AFFINITY_OPTIONS:
            guard.unset(name)
        cluster.mon('osd pool rm', pool='clients', pool2='clients',
                    yes_i_really_really_mean_it=True)


def empty(operator: Operator) -> None:
    """Give the OSDs weight 0, and wait until they hold nothing."""
    cluster = operator.cluster
    operator.guard.remove_upmaps()
    cluster.order([{'prefix': 'osd crush reweight', 'name': name, 'weight': 0.0}
                   for name in operator.names])
    cluster.wait_clean(120)
    wait_reported(operator.guard)


@dataclass(frozen=True)
class Expected:
    """The end of a story."""
    story: Callable[[Operator], None]
    weight: float = 1.0
    #: Pins become ordinary upmaps.
    keeps_upmaps: bool = False


STORIES = {'expand': Expected(expand), 'by hand': Expected(by_hand),
           'drain': Expected(drain, 0.0), 'rollback': Expected(rollback, 0.0),
           'abort': Expected(abort), 'keep': Expected(keep, keeps_upmaps=True),
           'taken over': Expected(taken_over), 'pause': Expected(pause),
           'import': Expected(import_mappings, 0.0), 'adopt': Expected(adopt),
           'auto_expand': Expected(auto_expand), 'crushmap': Expected(crushmap),
           'plan': Expected(plan), 'shutdown': Expected(shutdown, keeps_upmaps=True),
           'probe': Expected(probe, 0.0), 'pool probe': Expected(probe_pool, 0.0),
           'OSD probe': Expected(probe_osd, 0.0), 'undrain': Expected(undrain),
           'replace': Expected(replace), 'pg_num': Expected(pg_num, 0.0),
           'rule': Expected(rule, 0.0), 'affinity': Expected(affinity, 0.0)}


# ---- before and after

@dataclass(frozen=True)
class Audit:
    foreign: Foreign
    #: All of CRUSH but the weights of the operator's OSDs.
    placement: Placement
    weights: Dict[int, float]
    objects: List[str]


def audit(operator: Operator) -> Audit:
    cluster = operator.cluster
    return Audit(operator.guard.foreign(), placement(cluster, operator.osds),
                 crush_weights(cluster),
                 [digest(cluster, pool) for pool in operator.pools])


def check_end(operator: Operator, before: Audit, end: Expected) -> None:
    guard, cluster = operator.guard, operator.cluster
    cluster.wait_clean(120)
    cluster.wait(quietly(lambda: guard.get('held')['held'] == []), 30, 'nothing to be borrowed')
    found = audit(operator)
    assert found.foreign == before.foreign and found.objects == before.objects
    assert found.placement.crush == before.placement.crush
    weights = {**before.weights, **dict.fromkeys(operator.osds, end.weight)}
    assert {osd: round(weight, 4) for osd, weight in found.weights.items()} == weights
    assert end.keeps_upmaps or found.placement.upmaps == before.placement.upmaps
    assert set(guard.checks()) <= {'PERFGUARD_PROBE_REGRESSION'}
    left = {key.split('/')[0] for key in guard.store_keys()}
    assert not left & {'campaign', 'pins', 'plans', 'crushmap', 'requests'}, left
    progress = cluster.mon('status').get('progress_events', {})
    assert not [event for event in progress.values() if 'perfguard' in event['message']]
    assert not guard.tracebacks()
