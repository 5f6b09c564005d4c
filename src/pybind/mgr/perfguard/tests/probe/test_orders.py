# SPDX-License-Identifier: LGPL-2.1-or-later
"""The check of an order: what makes no sense is one line with an errno, and nothing is made."""
import errno
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, Dict, FrozenSet, List, Optional, Sequence, Tuple

import pytest

from perfguard.cluster.crush import CrushRules
from perfguard.cluster.dumps import osdmap_from_dump
from perfguard.cluster.types import ClientOps, Ops, PoolSpace, Space
from perfguard.errors import PerfguardError
from perfguard.observation import Clients, Minute, PoolClients
from perfguard.options import Options
from perfguard.probe.orders import (MOST_COUNTED, CheckedRun, RunOrder, _own_rule,
                                    _weights_under, check_run, refuse_too_few_pgs,
                                    words_of_order)
from perfguard.probe.resources import pg_num_for

from ..fakes.driver import OPTIONS
from ..fakes.mon_model import ToyMon
from ..fakes.probe_cluster import ProbeCluster, ProbeDriver

WORDS = {'rw': 'randwrite', 'bs': '4k', 'size': '64k', 'nrfiles': '2', 'runtime': '1'}
RBD_WORDS = {**WORDS, 'ioengine': 'rbd'}


class Changed(ProbeCluster):
    """Pool "rep" has what `changes` say, and `space`."""
    changes: Dict[str, Any] = {}
    space: Optional[PoolSpace] = PoolSpace(1 << 40, 0, 0)
    free = 1 << 40

    def _view(self) -> Any:
        view = super()._view()
        pools = {**view.osdmap.pools, 1: replace(view.osdmap.pools[1], **self.changes)}
        return replace(view, osdmap=replace(view.osdmap, pools=pools))

    def pool_space(self, pool_id: int) -> Optional[PoolSpace]:
        return self.space

    def free_bytes(self) -> int:
        return self.free


def checked(order: RunOrder, cluster: Optional[ProbeCluster] = None, moving: bool = False,
            options: Options = OPTIONS) -> CheckedRun:
    cluster = cluster or ProbeCluster()
    seen, view = ProbeDriver(cluster).loop._observing.observe()
    return check_run(order, cluster, seen, view, options, moving)


def test_osds_are_ordered_by_host_to_add_whole_hosts() -> None:
    order = RunOrder(words=WORDS, scale=True, by_host=True, osd='0,1,2,5,7')
    target = checked(order, ProbeCluster(osds_per_host=3)).target
    assert (target.osds, target.hosts) == ((0, 1, 2, 5, 7), (3, 1, 1))
    apart = replace(order, by_host=False)
    assert checked(apart, ProbeCluster(osds_per_host=3)).target.hosts == ()
    with pytest.raises(PerfguardError, match='two hosts'):
        checked(replace(order, osd='0,1'), ProbeCluster(osds_per_host=3))


@pytest.mark.parametrize('fields, code, text', [
    ({'pool': 'gone'}, errno.ENOENT, 'gone'), ({'osd': '99'}, errno.ENOENT, 'osd.99'),
    ({'osd': 'x'}, errno.EINVAL, "'x'"), ({'host': 'gone'}, errno.ENOENT, 'gone'),
    ({'device_class': 'gone'}, errno.ENOENT, 'gone'), ({'profile': 'gone'}, errno.EINVAL, 'gone'),
    ({'repeat': '0'}, errno.EINVAL, 'repeat'), ({'repeat': '21'}, errno.EINVAL, 'repeat'),
    ({'replicas': '0'}, errno.EINVAL, 'replicas'), ({'replicas': '11'}, errno.EINVAL, 'replicas'),
    ({'replicas': '1'}, errno.EPERM, 'replica'),
    ({'pool': 'rep', 'replicas': '2'}, errno.EINVAL, 'replicas'),
    ({'words': {**WORDS, 'bs': '1m'}}, errno.EINVAL, 'bs'),
    ({'words': {**WORDS, 'runtime': '0'}}, errno.EINVAL, 'runtime'),
    ({'words': {**WORDS, 'runtime': 'soon'}}, errno.EINVAL, 'soon'),
    ({'words': {**WORDS, 'iodepth': '99999999'}}, errno.EINVAL, 'iodepth'),
    ({'words': {'bogus': '1'}}, errno.EINVAL, 'bogus'),
    ({'interference': True, 'osd': '3'}, errno.EINVAL, 'two OSDs'),
    ({'interference': True, 'osd': '3,3'}, errno.EINVAL, 'two OSDs'),
    ({'scale': True, 'osd': '3'}, errno.EINVAL, 'two OSDs'),
    ({'by_host': True, 'osd': '3,4'}, errno.EINVAL, 'only to --scale'),
    ({'scale': True, 'interference': True, 'osd': '3,4'}, errno.EINVAL, 'exclude each other'),
    ({'words': RBD_WORDS, 'pool': 'rep'}, errno.EINVAL, 'ioengine=rbd'),
    ({'words': RBD_WORDS, 'osd': '1'}, errno.EINVAL, 'ioengine=rbd'),
    ({'words': RBD_WORDS, 'interference': True}, errno.EINVAL, 'ioengine=rbd'),
    ({'store': True, 'words': WORDS}, errno.EINVAL, '--store'),
    ({'store': True, 'words': {}, 'profile': 'quick'}, errno.EINVAL, '--store'),
    ({'store': True, 'words': {}, 'pool': 'rep'}, errno.EINVAL, '--store'),
    ({'store': True, 'words': {}, 'replicas': '2'}, errno.EINVAL, '--store'),
    ({'store': True, 'words': {}, 'interference': True}, errno.EINVAL, '--store')])
def test_what_makes_no_sense(fields: Dict[str, Any], code: int, text: str) -> None:
    given: Dict[str, Any] = {'words': WORDS, **fields}
    with pytest.raises(PerfguardError) as refused:
        checked(RunOrder(**given))
    assert refused.value.errno == code and text in str(refused.value)
    assert '\n' not in str(refused.value)


def test_osds_that_are_down_or_out() -> None:
    cluster = ProbeCluster()
    cluster.toys[3] = cluster.toys[3]._replace(up=False)
    cluster.toys[4] = cluster.toys[4]._replace(reweight=0.0)
    for osd, why in ((3, 'down'), (4, 'out')):
        with pytest.raises(PerfguardError, match='osd.%d is %s' % (osd, why)):
            checked(RunOrder(words=WORDS, osd=str(osd)), cluster)
    assert checked(RunOrder(words=WORDS, osd='all'), cluster).target.osds == (0, 1, 2, 5, 6, 7)


@pytest.mark.parametrize('chosen, osds, refused', [
    (1, 8, False), (8, 8, False), (128, 128, False), (256, 256, True), (8, 256, False),
    (1, 1000, False), (2, 1000, True), (1, 5000, True)])
def test_osds_of_a_large_cluster_require_a_pool_with_more_pgs(chosen: int, osds: int,
                                                              refused: bool) -> None:
    """Among thousands of OSDs, many lead no PG of a pool of 1,024."""
    pg_num = pg_num_for(osds)
    if not refused:
        refuse_too_few_pgs(range(chosen), dict.fromkeys(range(osds), 2.0), pg_num)
        return
    with pytest.raises(PerfguardError, match='1024 PGs for %d OSDs.*--pool' % osds):
        refuse_too_few_pgs(range(chosen), dict.fromkeys(range(osds), 2.0), pg_num)


@pytest.mark.parametrize('chosen, refused', [(range(200, 300), False), ([0], True), ([999], False)])
def test_an_osd_leads_pgs_in_proportion_to_its_weight(chosen: Sequence[int],
                                                      refused: bool) -> None:
    weights = {osd: 20.0 if osd >= 200 else 1.0 for osd in range(300)}
    if not refused:
        refuse_too_few_pgs(chosen, weights, 1024)
        return
    with pytest.raises(PerfguardError, match='1024 PGs for 300 OSDs'):
        refuse_too_few_pgs(chosen, weights, 1024)


@pytest.mark.parametrize('fields, refused', [
    ({'osd': 'all'}, True), ({'osd': 'all', 'pool': 'rep'}, False), ({}, False),
    ({'osd': 'all', 'words': {}, 'store': True}, False)])
def test_only_the_own_pool_of_a_probe_has_too_few_pgs(
        fields: Dict[str, Any], refused: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr('perfguard.probe.orders.pg_num_for', lambda _: 8)
    given: Dict[str, Any] = {'words': WORDS, **fields}
    order = RunOrder(**given)
    if not refused:
        checked(order)
        return
    with pytest.raises(PerfguardError, match='8 PGs for 8 OSDs'):
        checked(order)


def test_the_same_osd_twice_is_probed_once() -> None:
    assert checked(RunOrder(words=WORDS, osd='3,osd.3,1')).target.osds == (1, 3)


def cluster_with(**fields: Any) -> Changed:
    changed = {name: fields.pop(name) for name in ('space', 'free') if name in fields}
    kind = type('Changed', (Changed,), {'changes': fields, **changed})
    cluster: Changed = kind()
    return cluster


def refusals(order: RunOrder, cluster: ProbeCluster, moving: bool = False,
             options: Options = OPTIONS) -> List[str]:
    return list(checked(order, cluster, moving, options).refusals)


IN_POOL = RunOrder(words=WORDS, pool='rep')


@pytest.mark.parametrize('fields, text', [
    ({'flags': frozenset({'full_quota'})}, 'full_quota'),
    ({'quota_bytes': 1 << 10}, 'quota'), ({'quota_objects': 1}, 'quota'),
    ({'quota_bytes': 1 << 20, 'space': PoolSpace(1 << 40, 1 << 20, 0)}, 'quota'),
    ({'space': PoolSpace(1 << 10, 0, 0)}, 'free'),
    ({'erasure': True, 'data_shards': 2}, 'overwrites')])
def test_a_pool_that_cannot_be_written(fields: Dict[str, Any], text: str) -> None:
    found = refusals(IN_POOL, cluster_with(**fields))
    assert len(found) == 1 and text in found[0]


def test_a_pool_of_which_nothing_is_reported_yet() -> None:
    found, = refusals(IN_POOL, cluster_with(space=None, free=1 << 10))
    assert 'free' in found
    assert not refusals(IN_POOL, cluster_with(space=None, quota_bytes=1, quota_objects=1))


@pytest.mark.parametrize('words, refused', [({'bs': '32k'}, False), ({'bs': '16k'}, True),
                                            ({'bs': '16k', 'rw': 'randread'}, False)])
def test_whole_objects_of_an_erasure_coded_pool_are_written(words: Dict[str, str],
                                                            refused: bool) -> None:
    order = replace(IN_POOL, words={**WORDS, **words})
    found = refusals(order, cluster_with(erasure=True, data_shards=2))
    assert ['overwrites' in text for text in found] == [True] * refused


def test_a_stop_condition() -> None:
    cluster = ProbeCluster()
    seen, view = ProbeDriver(cluster).loop._observing.observe()
    laggy = replace(seen, signals=replace(seen.signals, counts=replace(
        seen.signals.counts, laggy=1)))
    found = check_run(IN_POOL, cluster, laggy, view, OPTIONS, False).refusals
    assert found and 'laggy' in found[0]


@pytest.mark.parametrize('changes, text', [({'probe_max_bytes': 1024}, 'would store'),
                                           ({'probe_max_seconds': 1}, 'would take')])
def test_over_the_budget(changes: Dict[str, Any], text: str) -> None:
    found, = refusals(IN_POOL, ProbeCluster(), options=replace(OPTIONS, **changes))
    assert text in found


def test_a_campaign() -> None:
    assert 'campaign' in refusals(IN_POOL, ProbeCluster(), True)[0]
    assert not refusals(replace(IN_POOL, during_campaign=True), ProbeCluster(), True)


@pytest.mark.parametrize('fields', [{}, {'osd': '3'}, {'pool': None}])
def test_one_osd_that_is_nearly_full(fields: Dict[str, Any]) -> None:
    """However much is free on all the others."""
    cluster = ProbeCluster()
    space = {**cluster.osd_space(), 3: Space(10 << 30, int(8.5 * (1 << 30)) - 4096)}
    setattr(cluster, 'osd_space', lambda: space)
    found, = refusals(replace(IN_POOL, **fields), cluster)
    assert 'osd.3 would be 85.0 % full' in found


class TwoRules(ProbeCluster):
    """Rule 0 takes one host of three OSDs, rule 1 all hosts."""
    default_rule = -1

    def crush(self, version: int) -> CrushRules:
        dump = ToyMon(self.toys, 3, ()).crush_dump()
        everywhere, = dump['rules']
        one_host = [{'op': 'take', 'item': -2, 'item_name': 'h0'},
                    {'op': 'choose_firstn', 'num': 0, 'type': 'osd'}, {'op': 'emit'}]
        return CrushRules.from_dump({**dump, 'rules': [
            {**everywhere, 'rule_id': 1, 'rule_name': 'everywhere'},
            {**everywhere, 'steps': one_host}]})

    def default_crush_rule(self) -> int:
        return self.default_rule


@pytest.mark.parametrize('default_rule, pg_num, full', [(-1, 32, True), (0, 32, True),
                                                        (1, 256, False), (7, 256, False)])
def test_an_own_pool_fits_the_osds_of_its_rule(default_rule: int, pg_num: int,
                                               full: bool) -> None:
    """Without osd_pool_default_crush_rule, the mons take the first rule."""
    cluster = TwoRules(osds_per_host=3)
    cluster.default_rule = default_rule
    space = {osd: Space(1 << 40, int(0.849 * (1 << 40)) if osd == 2 else 0)
             for osd in cluster.toys}
    setattr(cluster, 'osd_space', lambda: space)
    given = checked(RunOrder(words={**WORDS, 'size': '1g', 'nrfiles': '256'}), cluster)
    assert given.pg_num == pg_num
    # Drives of other OSDs must not make the run incomparable with its baseline.
    assert len(given.osds_at_work) == (3 if pg_num == 32 else len(cluster.toys))
    assert bool(given.refusals) == full and 'osd.2' in ''.join(given.refusals or ['osd.2'])


def test_a_pool_whose_name_capabilities_cannot_have() -> None:
    name = '6" it\'s'
    with pytest.raises(PerfguardError, match='both kinds of quotes') as refused:
        checked(replace(IN_POOL, pool=name), cluster_with(name=name))
    assert refused.value.errno == errno.EINVAL


def test_names_that_are_hashed_otherwise() -> None:
    cluster = cluster_with(object_hash=1)
    assert not refusals(IN_POOL, cluster)
    with pytest.raises(PerfguardError, match='object_hash 1'):
        checked(replace(IN_POOL, osd='1'), cluster)


def test_a_pool_behind_a_cache_tier_is_refused() -> None:
    """Its operations go to the tier, which the user of the probe cannot access."""
    with pytest.raises(PerfguardError, match='cache tier') as refused:
        checked(IN_POOL, cluster_with(cached=True))
    assert refused.value.errno == errno.EINVAL


def test_the_pool_of_a_cache_tier_is_refused() -> None:
    """To make room for the probe's objects, it evicts those of clients."""
    with pytest.raises(PerfguardError, match='is a cache tier.*evict') as refused:
        checked(IN_POOL, cluster_with(caches=True))
    assert refused.value.errno == errno.EINVAL


@pytest.mark.parametrize('given, name, wanted', [
    ({}, 'caches', False), ({'tier_of': -1}, 'caches', False), ({'tier_of': 2}, 'caches', True),
    ({}, 'object_hash', 2), ({'object_hash': 1}, 'object_hash', 1), ({}, 'cached', False),
    ({'read_tier': -1, 'write_tier': -1, 'tiers': [7]}, 'cached', False),
    ({'read_tier': 7, 'write_tier': -1}, 'cached', True),
    ({'read_tier': -1, 'write_tier': 7}, 'cached', True)])
def test_what_the_dump_of_a_pool_says(given: Dict[str, Any], name: str, wanted: Any) -> None:
    pool: Dict[str, Any] = {
        'pool': 1, 'pool_name': 'x', 'type': 1, 'size': 3, 'min_size': 2, 'crush_rule': 0,
        'pg_num': 8}
    dump: Dict[str, Any] = {'epoch': 1, 'flags': '', 'osds': [], 'pg_upmap_items': [],
                            'pg_upmap': [], 'pg_temp': []}
    pools = osdmap_from_dump({**dump, 'pools': [{**pool, **given}]}).pools
    assert getattr(pools[1], name) == wanted


def test_an_osd_that_leads_nothing_of_the_pool() -> None:
    cluster = ProbeCluster(pgs=2)
    led = {pg.up[0] for pgid, pg in cluster.pg.items() if pgid.startswith('1.')}
    idle = next(osd for osd in cluster.toys if osd not in led)
    driver = ProbeDriver(cluster)
    for dry_run in (True, False):
        with pytest.raises(PerfguardError, match='osd.%d: it is primary of none' % idle) as refused:
            driver.give(replace(IN_POOL, osd=str(idle), dry_run=dry_run))
        assert refused.value.errno == errno.EINVAL
    assert not driver.listed


def test_what_is_told_before() -> None:
    given = checked(RunOrder(profile='quick'))
    assert given.preview['steps'] == 18 and given.preview['repeat'] == 3
    assert given.preview['stored_bytes'] == 3 * int(str(given.preview['prefill_bytes']))
    assert given.target.key == 'cluster:x3' and given.pg_num == 64
    store = checked(RunOrder(store=True, osd='0,1', repeat='2'))
    assert store.preview['repeat'] == 2
    # 100 objects of each OSD, twice; one bench at a time.
    assert (store.budget.prefill_bytes, store.budget.stored_bytes) == (1600 << 20, 400 << 20)
    assert store.budget.seconds == 80.0


# ---- what a valid order says

def test_an_order_in_words() -> None:
    order = RunOrder(words=WORDS, osd='1', store=True, repeat='2', trigger='weekly')
    assert order.verb == 'probe run'
    assert words_of_order(order) == {'words': WORDS, 'osd': '1', 'store': 'yes', 'repeat': '2'}


@pytest.mark.parametrize('fields, name, value', [
    ({'repeat': '1'}, 'repeat', 1), ({'repeat': '20'}, 'repeat', 20),
    ({'replicas': '10'}, 'replicas', 10), ({'replicas': '1', 'consent': True}, 'replicas', 1)])
def test_limits_of_numbers_that_are_reached(fields: Dict[str, Any], name: str, value: int) -> None:
    given = checked(RunOrder(words=WORDS, **fields))
    assert (given.repeat if name == 'repeat' else given.target.replicas) == value


@pytest.mark.parametrize('words, image', [(WORDS, False), (RBD_WORDS, True)])
def test_whether_an_image_is_probed(words: Dict[str, str], image: bool) -> None:
    assert checked(RunOrder(words=words)).image is image


@pytest.mark.parametrize('changes, text', [
    (None, ''), ({}, '3 replicas'), ({'size': 1}, '1 replica'),
    ({'erasure': True, 'size': 6, 'data_shards': 4}, 'erasure coded 4+2')])
def test_the_redundancy_of_a_pool(changes: Optional[Dict[str, Any]], text: str) -> None:
    if changes is None:
        assert checked(RunOrder(words=WORDS)).redundancy == text
    else:
        assert checked(IN_POOL, cluster_with(**changes)).redundancy == text


@pytest.mark.parametrize('osd, pool, moving, needed', [
    ('1', 'rep', False, True), (None, 'rep', False, False), ('1', None, False, False),
    ('1', 'rep', True, False)])
def test_whether_the_pgs_of_chosen_osds_are_counted(osd: Optional[str], pool: Optional[str],
                                                    moving: bool, needed: bool) -> None:
    given = checked(RunOrder(words=WORDS, osd=osd, pool=pool), moving=moving)
    view: Any = None
    assert (given.placement_check(view) is not None) == needed


@pytest.mark.parametrize('at_work, counted', [(MOST_COUNTED, MOST_COUNTED), (MOST_COUNTED + 1, 1)])
def test_of_how_many_osds_counters_are_read(at_work: int, counted: int) -> None:
    given = checked(RunOrder(words=WORDS, osd='1'))
    assert len(replace(given, osds_at_work=tuple(range(at_work))).counted_osds) == counted


@pytest.mark.parametrize('default, rules, rule', [
    (-1, {3, 5}, 3), (-1, set(), None), (0, {3, 5}, None), (0, {0, 3}, 0), (5, {3, 5}, 5),
    (4, {3, 5}, None)])
def test_the_rule_of_an_own_pool(default: int, rules: FrozenSet[int], rule: Optional[int]) -> None:
    cluster: Any = SimpleNamespace(default_crush_rule=lambda: default)
    observation: Any = SimpleNamespace(crush=SimpleNamespace(
        rules_for=lambda erasure, size: rules if (erasure, size) == (False, 2) else {9}))
    assert _own_rule(cluster, observation, 2) == rule


def test_osds_that_crush_does_not_know_serve_no_pool() -> None:
    observation: Any = SimpleNamespace(
        osdmap=SimpleNamespace(osds={3: None, 1: None, 2: None}),
        crush=SimpleNamespace(weights=lambda: {1: 0.0, 2: 0.5},
                              weight_of=lambda rule, osd: float(osd == rule)))
    assert _weights_under(None, observation) == {2: 0.5}
    assert _weights_under(3, observation) == {3: 1.0}


@pytest.mark.parametrize('fields, muted, refused', [
    ({}, (), True), ({'osd': '3'}, (), False), ({'osd': '1'}, (), True),
    ({'osd': '1'}, ('PERFGUARD_LATENCY',), False), ({'osd': '3', 'pool': 'rep'}, (), True)])
def test_clients_of_the_osds_that_a_probe_loads(fields: Dict[str, Any], muted: Tuple[str, ...],
                                                refused: bool) -> None:
    cluster = ProbeCluster()
    seen, view = ProbeDriver(cluster).loop._observing.observe()
    pools = {1: PoolClients('rep', 8, 9.0, 2.0, 2.0, write_minute=Minute(900, 3.0))}
    rows = (ClientOps(1, 1, Ops(), Ops(10 ** 12, 10 ** 5)),)
    seen = replace(seen, clients=Clients(5.0, 5.0, rows, pools), signals=replace(
        seen.signals, muted=frozenset(muted)))
    found = check_run(RunOrder(words=WORDS, **fields), cluster, seen, view, OPTIONS, False).refusals
    assert list(found) == ['write latency of clients of pool rep is 3.00 ms (limit 2.00 ms)'
                           ] * refused
