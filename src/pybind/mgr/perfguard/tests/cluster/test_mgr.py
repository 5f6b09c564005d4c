# SPDX-License-Identifier: LGPL-2.1-or-later
"""What MgrModule answers, and what perfguard makes of it."""
import errno
import json
import time
from types import ModuleType, SimpleNamespace
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple

import pytest

from perfguard.cluster.types import (Balancing, ConfigEntry, OptionChange, Osd, OsdMap, PgCounts,
                                     Placement, Pool, PoolSpace, Reply, Space)

from .test_crush import DUMP
from .test_set_by_others import entry

OLD, NEW = '18.2.7', '20.2.1'
DEGRADED = 'osd_recovery_sleep_degraded'


class Mgr:
    """An mgr that has the newer option. `builds`: mon -> its version and build."""

    def __init__(self, builds: Dict[str, str]) -> None:
        self._builds = builds
        self.get_latest_counter = None

    def get(self, name: str) -> Dict[str, Any]:
        assert name == 'mon_map'
        return {'mons': [{'name': mon} for mon in self._builds]}

    def get_mgr_id(self) -> str:
        return 'x'

    def get_metadata(self, service: str, name: str) -> Any:
        build = NEW if service == 'mgr' else self._builds[name]
        return {'ceph_version': build, 'ceph_version_short': build.split()[0]} if build else None

    def get_ceph_option(self, name: str) -> str:
        assert name == DEGRADED
        return '0'


@pytest.mark.parametrize('builds, osds, alike, option', [
    ({'a': NEW, 'b': NEW}, {NEW}, True, DEGRADED),
    ({'a': NEW, 'b': OLD}, {NEW}, False, 'osd_recovery_sleep'),
    ({'a': NEW, 'b': NEW}, {NEW, OLD}, True, 'osd_recovery_sleep'),
    ({'a': OLD, 'b': OLD}, {OLD}, True, 'osd_recovery_sleep'),
    # Of one mon nothing is known yet.
    ({'a': NEW, 'b': ''}, {NEW}, False, 'osd_recovery_sleep'),
    # Two builds of one version have the same options.
    ({'a': NEW + ' (1)', 'b': NEW + ' (2)'}, {NEW}, False, DEGRADED)])
def test_daemons_of_several_versions(mgr_stub: ModuleType, builds: Dict[str, str], osds: Any,
                                     alike: bool, option: str) -> None:
    from perfguard.cluster.mgr import MgrCluster
    mgr: Any = Mgr(builds)
    cluster = MgrCluster(mgr, lambda: False, lambda: 0.0)
    assert cluster.mons_alike() is alike and cluster.degraded_sleep(osds) == option


@pytest.mark.parametrize('limit, ratio, hard', [(250, 3.0, 750), (25, 3.1, 78), (0, 3.0, 0)])
def test_the_number_of_pgs_that_an_osd_accepts(mgr_stub: ModuleType, limit: int, ratio: float,
                                               hard: int) -> None:
    from perfguard.cluster.mgr import MgrCluster
    mgr: Any = Mgr({})
    mgr.get_ceph_option = {'mon_max_pg_per_osd': limit,
                           'osd_max_pg_per_osd_hard_ratio': ratio}.get
    assert MgrCluster(mgr, lambda: False, lambda: 0.0).hard_pg_limit() == hard


def test_the_versions_of_osds(mgr_stub: ModuleType) -> None:
    from perfguard.cluster.mgr import MgrCluster
    builds = {'3': NEW, '4': ''}
    mgr: Any = Mgr(builds)
    now = 0.0
    cluster = MgrCluster(mgr, lambda: False, lambda: now)
    assert cluster.osd_versions([3, 4]) == {3: NEW.split()[0], 4: ''}
    builds.update({'3': OLD, '5': NEW})
    now = 59.0
    assert cluster.osd_versions([3, 5]) == {3: NEW.split()[0], 5: NEW.split()[0]}
    now = 60.0
    assert cluster.osd_versions([3, 5]) == {3: OLD.split()[0], 5: NEW.split()[0]}


# ---- answers of the mgr, of the mons and of other modules

class Api:
    """MgrModule, with what it answers. The mons answer at once."""

    def __init__(self) -> None:
        #: What `get` returns, and metadata by "osd.3".
        self.data: Dict[str, Any] = {}
        self.metadata: Dict[str, Any] = {}
        #: Options of Ceph, and of modules by "balancer.mode".
        self.options: Dict[str, Any] = {}
        self.module_options: Dict[str, Any] = {}
        #: Prefix of a mon command -> its status, output and error.
        self.replies: Dict[str, Tuple[int, str, str]] = {}
        self.sent: List[Dict[str, Any]] = []
        #: Input data of the commands that have some.
        self.inputs: List[str] = []
        #: Calls of other modules, and what they return or raise.
        self.calls: List[Any] = []
        self.returned: Any = (0, '', '')
        #: What librados returns for a command.
        self.binary: Any = (0, b'', '')
        self.get_latest_counter = None
        self.module_name = 'perfguard'
        self.rados = self
        self.health: Any = None

    def get(self, name: str) -> Any:
        return self.data[name]

    def get_metadata(self, service: str, name: str) -> Any:
        return self.metadata.get('%s.%s' % (service, name))

    def get_mgr_id(self) -> str:
        return 'x'

    def get_ceph_option(self, name: str) -> Any:
        return self.options[name]

    def get_ceph_conf_path(self) -> str:
        return '/etc/ceph/ceph.conf'

    def get_module_option_ex(self, module: str, name: str) -> Any:
        return self.module_options.get('%s.%s' % (module, name))

    def get_daemon_health_metrics(self) -> Any:
        return self.data['metrics']

    def remote(self, *call: Any) -> Any:
        self.calls.append(call)
        if isinstance(self.returned, Exception):
            raise self.returned
        return self.returned

    def send_command(self, result: Any, service: str, target: str, command: str, tag: str,
                     *inputs: str) -> None:
        assert (service, target, tag) == ('mon', '', '')
        self.sent.append(json.loads(command))
        self.inputs += inputs
        result.r, result.outb, result.outs = self.replies.get(self.sent[-1]['prefix'], (0, '', ''))
        result.ev.set()

    def mon_command(self, command: str, inbuf: bytes, timeout: int) -> Any:
        assert (inbuf, timeout) == (b'', 30)
        self.sent.append(json.loads(command))
        if isinstance(self.binary, Exception):
            raise self.binary
        return self.binary

    def set_health_checks(self, checks: Any) -> None:
        self.health = checks


@pytest.fixture
def api(mgr_stub: ModuleType) -> Api:
    return Api()


def cluster_of(api: Api, clock: Callable[[], float] = lambda: 0.0) -> Any:
    from perfguard.cluster.mgr import MgrCluster
    mgr: Any = api
    return MgrCluster(mgr, lambda: False, clock)


def test_what_the_mgr_knows_of_the_cluster(api: Api) -> None:
    cluster = cluster_of(api)
    api.data = {'mon_map': {'fsid': 'f', 'mons': [
        {'name': 'a', 'public_addrs': {'addrvec': [{'type': 'v2', 'addr': '1:3300'},
                                                   {'type': 'v1', 'addr': '1:6789'}]}},
        {'name': 'b', 'public_addrs': {'addrvec': [{'type': 'v2', 'addr': '2:3300'}]}}]},
        'df': {'stats': {'total_avail_bytes': 77}, 'pools': [
            {'id': 2, 'stats': {'max_avail': 5, 'stored': 6, 'objects': 7}}]},
        'mgr_map': {'active_gid': 4123}, 'osd_stats': {'osd_stats': [
            {'osd': 3, 'kb': 4, 'kb_used': 2, 'num_pgs': 9}, {'osd': 4, 'kb': 1, 'kb_used': 0}]}}
    api.options = {'mgr_stats_period': '5', 'mon_max_pg_per_osd': '250',
                   'mon_max_pool_pg_num': '65536', 'osd_pool_default_crush_rule': '-1',
                   'mgr_max_pg_num_change': 32}
    api.metadata = {'mgr.x': {'hostname': 'h1'}}
    assert (cluster.fsid(), cluster.active_gid(), cluster.mgr_host()) == ('f', 4123, 'h1')
    assert cluster.connection() == (
        '/etc/ceph/ceph.conf', '[v2:1:3300,v1:1:6789],[v2:2:3300]')
    assert cluster.free_bytes() == 77
    assert (cluster.pool_space(2), cluster.pool_space(1)) == (PoolSpace(5, 6, 7), None)
    assert cluster.osd_space() == {3: Space(4096, 2048, 9), 4: Space(1024, 0, None)}
    assert (cluster.stats_period(), cluster.pgs_per_osd_limit(), cluster.default_crush_rule(),
            cluster.split_limit()) == (5.0, 250, -1, 32)
    api.data, api.metadata = {'mgr_map': {}, 'df': {}}, {}
    api.options = {'mon_max_pg_per_osd': ''}
    assert (cluster.active_gid(), cluster.mgr_host(), cluster.pool_space(2)) == (0, '', None)
    assert cluster.pgs_per_osd_limit() == 0


@pytest.mark.parametrize('stored, limits', [
    ([('mon', '', '500')], (500, 65536)), ([('mon', '', '0')], (0, 65536)),
    ([('mon', '', '1K')], (250, 65536)), ([('mon', 'host:a', '500')], (250, 65536)),
    ([('mgr', '', '500')], (250, 65536)), ([('global', 'host:a', '500')], (250, 65536)),
    ([('global', '', '400'), ('mgr', '', '250')], (400, 65536)),
    ([('global', '', '400'), ('mon', '', '500')], (500, 65536)),
    ([('mon', '', '500'), ('global', '', '400')], (500, 65536))])
def test_the_limits_of_pgs_by_which_the_mons_decide(
        api: Api, stored: List[Tuple[str, str, str]], limits: Tuple[int, int]) -> None:
    api.options = {'mon_max_pg_per_osd': '250', 'mon_max_pool_pg_num': '65536'}
    api.replies = {'config dump': (0, json.dumps([{
        'section': section, 'mask': mask, 'name': 'mon_max_pg_per_osd', 'value': value}
        for section, mask, value in stored]), '')}
    assert cluster_of(api).mon_pg_limits() == limits
    api.replies = {'config dump': (-11, '', 'no quorum')}
    api.options['mon_max_pool_pg_num'] = None
    assert cluster_of(api).mon_pg_limits() == (250, 0)


@pytest.mark.parametrize('services, page', [
    ({'dashboard': 'https://h:8443/'}, 'https://h:8443/perfguard'),
    ({'dashboard': 'https://h:8443/a'}, 'https://h:8443/a/perfguard'), ({}, ''), (None, '')])
def test_the_address_of_the_page(api: Api, services: Any, page: str) -> None:
    api.data = {'mgr_map': {'services': services}}
    assert cluster_of(api).page() == page


def test_the_drives_of_osds(api: Api) -> None:
    of_osd = {'hostname': 'h1', 'device_ids': 'sdb=ACME_X1_S7', 'bluestore_bdev_devices': 'sdb',
              'osd_objectstore': 'bluestore'}
    api.metadata, api.data = {'osd.3': of_osd}, {'osd_metadata': {'3': of_osd, '4': {}}}
    cluster = cluster_of(api)
    assert cluster.drives([3, 4]) == {3: 'bluestore on ACME_X1', 4: ''}
    assert cluster.drive_ids([3, 4]) == {3: 'ACME_X1_S7', 4: ''}
    assert cluster.device_ids() == {'h1:sdb': 'ACME_X1_S7'}


def test_samples_of_a_drive(api: Api, utc: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, 'time', lambda: 86400.0 + 3600.0)
    api.returned = {'19700102-000007': {'x': 1}}
    assert cluster_of(api).drive_samples('ACME', 3600.0) == {86407.0: {'x': 1}}
    assert api.calls == [
        ('devicehealth', 'get_recent_device_metrics', 'ACME', '19700102-000000')]


def test_the_signals_of_a_turn(api: Api) -> None:
    pool = Pool(1, 'p', False, 3, 2, 0, 8, 8, 8)
    stats = {'stored': 6, 'bytes_used': 18}
    api.data = {
        'pg_status': {
            'pgs_by_state': [{'state_name': 'active+clean', 'count': 7}],
            'misplaced_ratio': 0.5, 'misplaced_objects': 3, 'recovering_bytes_per_sec': 11,
            'num_objects_recovered': 12},
        'health': {'json': json.dumps({'status': 'HEALTH_WARN', 'checks': {
            'A': {'summary': {'message': 'a'}}, 'B': {'muted': True}}})},
        'df': {'pools': [{'id': 1, 'stats': stats}, {'id': 2, 'stats': {}}]},
        'metrics': {'osd.1': [{'type': 'SLOW_OPS', 'value': 2}, {'type': 'OTHER', 'value': 5},
                              {'type': 'SLOW_OPS', 'value': 1}],
                    'osd.2': [{'type': 'SLOW_OPS', 'value': 0}], 'mon.a': [{'type': 'SLOW_OPS'}]}}
    cluster = cluster_of(api)
    signals = cluster.signals(OsdMap(1, frozenset(), {1: pool}, {}, {}, {}, {}))
    assert signals.counts == PgCounts(total=8, active_clean=7, inactive=1, in_transition=1,
                                      unreported=1)
    assert (signals.misplaced_ratio, signals.misplaced_objects) == (0.5, 3)
    assert (signals.slow_ops, signals.slow_daemons) == (3, {'osd.1': 3})
    assert (signals.health, signals.muted, signals.health_status) == (
        {'A': 'a'}, {'B'}, 'HEALTH_WARN')
    assert (signals.recovery_bytes_per_second, signals.recovered_objects) == (11.0, 12)
    assert (signals.pool_bytes, signals.pool_space) == ({1: 6, 2: 0}, {1: 6})
    # As of an mgr that has just become active.
    api.data = {'pg_status': {}, 'health': {}, 'df': {}, 'metrics': {}}
    signals = cluster.signals(OsdMap(1, frozenset(), {}, {}, {}, {}, {}))
    assert (signals.misplaced_ratio, signals.misplaced_objects, signals.slow_ops) == (0.0, 0, 0)
    assert (signals.health, signals.health_status, signals.recovery_bytes_per_second,
            signals.recovered_objects) == ({}, '', 0.0, 0)


@pytest.mark.parametrize('slow, up, expected', [
    ({'osd.1': 7}, (2,), {}), ({'osd.1': 7, 'osd.2': 1}, (2,), {'osd.2': 1}),
    ({'osd.1': 7, 'mon.a': 1}, (2,), {'mon.a': 1}), ({'osd.1': 7}, (1, 2), {'osd.1': 7}),
    # Not reported to this mgr yet.
    ({}, (1, 2), None)])
def test_slow_operations_of_an_osd_that_is_down_are_over(
        api: Api, slow: Dict[str, int], up: Sequence[int],
        expected: Optional[Dict[str, int]]) -> None:
    """It failed with them. They would stop campaigns and probes until the mgr is restarted."""
    api.data = {
        'pg_status': {}, 'df': {},
        'health': {'json': json.dumps({'checks': {'SLOW_OPS': {'summary': {'message': 'x'}}}})},
        'metrics': {name: [{'type': 'SLOW_OPS', 'value': n}] for name, n in slow.items()}}
    osds = {osd: Osd(osd, osd in up, 1.0) for osd in (1, 2)}
    signals = cluster_of(api).signals(OsdMap(1, frozenset(), {}, osds, {}, {}, {}))
    assert signals.slow_daemons == (expected or {})
    assert signals.slow_ops == sum((expected or {}).values())
    assert ('SLOW_OPS' in signals.health) is (expected != {})


@pytest.mark.parametrize('options, balancing', [
    ({}, Balancing(5.0, True, frozenset(), False)),
    ({'upmap_max_deviation': '2', 'mode': 'upmap-read', 'pool_ids': '3, 7,x'},
     Balancing(2.0, True, frozenset({3, 7}), False)),
    ({'upmap_max_deviation': '0.01', 'mode': 'crush-compat'},
     Balancing(5.0, False, frozenset(), True)),
    ({'mode': 'none'}, Balancing(5.0, False, frozenset(), False))])
def test_the_options_of_the_balancer(api: Api, options: Dict[str, str],
                                     balancing: Balancing) -> None:
    api.module_options = {'balancer.' + name: value for name, value in options.items()}
    assert cluster_of(api).balancing() == balancing


@pytest.mark.parametrize('value, active', [(None, None), ('True', 'true'), ('false', 'false')])
def test_whether_the_balancer_is_active(api: Api, value: Optional[str],
                                        active: Optional[str]) -> None:
    api.module_options = {'balancer.active': value}
    assert cluster_of(api).balancer_active() == active


@pytest.mark.parametrize('returned, busy', [
    ((-errno.EINVAL, '', 'a plan is executed'), True),
    ((-errno.EINVAL, '', 'Balancer enabled, disable to optimize'), False),
    ((-errno.ENOENT, '', 'plan does not exist'), False), (ImportError('off'), False)])
def test_whether_the_balancer_is_busy(api: Api, returned: Any, busy: bool) -> None:
    api.returned = returned
    assert cluster_of(api).balancer_busy() is busy
    assert api.calls == [
        ('balancer', '_handle_command', '', {'prefix': 'balancer execute', 'plan': ''})]


@pytest.mark.parametrize('active, returned, reply', [
    (True, (0, 'out', 'text'), Reply(0, 'out', 'text')),
    (False, ImportError('off'), Reply(-errno.ENOENT, '', 'balancer: off'))])
def test_the_balancer_is_switched(api: Api, active: bool, returned: Any, reply: Reply) -> None:
    api.returned = returned
    assert cluster_of(api).switch_balancer(active) == reply
    assert api.calls[0][3] == {'prefix': 'balancer on' if active else 'balancer off'}


@pytest.mark.parametrize('returned, reply', [
    (SimpleNamespace(exception_str='', result='Scheduled'), Reply(0, 'Scheduled', '')),
    (SimpleNamespace(exception_str='no', result=None), Reply(-errno.EIO, '', 'no')),
    (ImportError('off'), Reply(-errno.ENOENT, '', 'cephadm: off'))])
def test_an_osd_is_removed_by_cephadm(api: Api, returned: Any, reply: Reply) -> None:
    api.returned = returned
    assert cluster_of(api).remove_osd(3) == reply
    assert api.calls == [('cephadm', 'remove_osds', ['3'], True)]


@pytest.mark.parametrize('returned, why', [
    ((0, '[{"pool_name": "p", "pg_num_final": 32}]', ''), None),
    ((-2, '', 'no'), 'pg_autoscaler: no'), ((0, '[{}]', ''), "pg_autoscaler: 'pool_name'"),
    ((0, 'x', ''), 'pg_autoscaler: Expecting'), (ImportError('off'), 'pg_autoscaler: off')])
def test_the_advice_of_the_autoscaler(api: Api, returned: Any, why: Optional[str]) -> None:
    api.returned = returned
    if why is None:
        assert cluster_of(api).recommended_pg_nums() == {'p': 32}
        assert api.calls == [('pg_autoscaler', '_command_autoscale_status', 'json')]
    else:
        with pytest.raises(OSError, match=why):
            cluster_of(api).recommended_pg_nums()


def test_what_the_mons_store(api: Api, caplog: pytest.LogCaptureFixture) -> None:
    rows = [{'section': 'osd', 'name': 'a', 'value': 1}, {'section': 'osd', 'name': 'b',
                                                          'value': '2', 'mask': 'class:hdd'},
            {'section': 'global', 'name': 'a', 'value': '3'}]
    api.replies = {'config dump': (0, json.dumps(rows), ''), 'config log': (0, json.dumps([
        {'timestamp': '1970-01-01T00:00:05.000000+0000', 'changes': [
            {'name': 'osd/a', 'new_value': '1'}]}]), '')}
    cluster = cluster_of(api)
    assert cluster.config_entries() == (
        ConfigEntry('osd', '', 'a', '1'), ConfigEntry('osd', 'class:hdd', 'b', '2'),
        ConfigEntry('global', '', 'a', '3'))
    assert cluster.stored_options() == {'osd': {'a': '1'}, 'global': {'a': '3'}}
    assert cluster.option_changes() == (OptionChange(5.0, 'osd', 'a', '', '1'),)
    assert api.sent[-1] == {'prefix': 'config log', 'num': 100, 'format': 'json'}
    for error, text in (('x', 'x'), ('', 'no answer')):
        caplog.clear()
        api.replies = {'config dump': (-11, '', error), 'config log': (-11, '', error)}
        assert cluster.config_entries() is cluster.option_changes() is None
        assert [record.getMessage() for record in caplog.records] == ['config dump: ' + text]
    assert cluster.stored_options() is None


@pytest.mark.parametrize('reply, values', [
    ((0, 'v', ''), {'a': 'v'}), ((-errno.ENOENT, '', 'no'), {'a': None}), ((-1, 'v', ''), {})])
def test_keys_that_the_mons_have_stored(api: Api, reply: Any, values: Any) -> None:
    api.replies = {'config-key get': reply}
    assert cluster_of(api).stored(['a']) == values
    assert api.sent == [{'prefix': 'config-key get', 'key': 'mgr/perfguard/a'}]


@pytest.mark.parametrize('reply, release', [
    ((0, json.dumps({'osd': {'ceph version 18.2.7 (x) reef (stable)': 3,
                             'ceph version 16.2.15 (x) pacific (stable)': 1, 'odd one': 1}}), ''),
     '16.2.15, 18.2.7, odd one'), ((0, '{}', ''), ''), ((-1, '', 'x'), '')])
def test_the_release_of_the_osds(api: Api, reply: Any, release: str) -> None:
    api.replies = {'versions': reply}
    assert cluster_of(api).release() == release


@pytest.mark.parametrize('binary, result', [
    ((0, bytearray(b'map'), ' 12\n'), (b'map', 12)), ((0, b'map', ''), (b'map', -1)),
    ((-2, b'', 'no'), 'could not get the CRUSH map from the mons: no'),
    ((-2, b'', ''), 'could not get the CRUSH map from the mons: -2'),
    ((0, b'', ''), 'could not get the CRUSH map from the mons: 0'),
    (KeyError('x'), "could not get the CRUSH map from the mons: 'x'")])
def test_the_crush_map_of_the_mons(api: Api, binary: Any, result: Any) -> None:
    api.binary = binary
    if isinstance(result, str):
        with pytest.raises(OSError) as failed:
            cluster_of(api).crush_map()
        assert str(failed.value) == result
    else:
        assert cluster_of(api).crush_map() == result
    assert api.sent == [{'prefix': 'osd getcrushmap'}]


def test_a_command_with_input(api: Api) -> None:
    from perfguard.cluster.types import INPUT
    api.replies = {'auth import': (-22, 'o', 'e')}
    assert cluster_of(api).run([{'prefix': 'auth import', INPUT: 'text'}, {'prefix': 'b'}]) == [
        Reply(-22, 'o', 'e'), Reply(0, '', '')]
    assert (api.sent, api.inputs) == ([{'prefix': 'auth import'}, {'prefix': 'b'}], ['text'])


@pytest.mark.parametrize('returned', [None, ImportError('off')])
def test_progress_is_optional(api: Api, returned: Any) -> None:
    api.returned = returned
    cluster = cluster_of(api)
    cluster.progress('id', 'text', 0.5)
    cluster.progress_done('id')
    assert api.calls == [('progress', 'update', 'id', 'text', 0.5, [], True),
                         ('progress', 'complete', 'id')]
    cluster.health_checks({})
    assert api.health == {}


class Handle:
    """An OSDMap of ceph-mgr with one pool; PG 1.1 has no primary."""

    def __init__(self, pg_num: int) -> None:
        self.pg_num = pg_num
        self.mapped: List[Tuple[int, int]] = []
        self.epoch, self.crush_version, self.flags = 7, 3, ''
        #: Number of times that CRUSH was read.
        self.read = 0

    def get_epoch(self) -> int:
        return self.epoch

    def get_crush(self) -> Any:
        self.read += 1
        return SimpleNamespace(dump=lambda: DUMP)

    def dump(self) -> Any:
        return {'epoch': self.epoch, 'flags': self.flags, 'osds': [], 'pg_upmap_items': [],
                'pg_upmap': [], 'pg_temp': [], 'pools': [
                    {'pool': 1, 'pool_name': 'x', 'type': 1, 'size': 3, 'min_size': 2,
                     'crush_rule': 0, 'pg_num': self.pg_num}]}

    def get_crush_version(self) -> int:
        return self.crush_version

    def pg_to_up_acting_osds(self, pool: int, seed: int) -> Any:
        self.mapped.append((pool, seed))
        return {'up': [seed, 8], 'acting': [8, seed], 'acting_primary': -1 if seed == 1 else 0}

    def map_pool_pgs_up(self, pool: int) -> Any:
        return {'%d.%x' % (pool, seed): [seed, 8] for seed in range(self.pg_num)}


def test_the_placement_of_pgs(mgr_stub: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    from perfguard.cluster import mgr
    handle = Handle(3)
    view = mgr.MapView(handle)
    assert view.placement('1.2') == Placement((2, 8), (8, 2), 0)
    assert view.placement('1.3') is view.placement('2.0') is None
    assert view.primaries(1) == {'1.0': 0, '1.2': 0}
    handle.mapped.clear()
    up = {'1.0': (0, 8), '1.1': (1, 8), '1.2': (2, 8)}
    monkeypatch.setattr(mgr, 'MOST_PGS_MAPPED', 3)
    assert view.pool_up(1) == up and handle.mapped == []
    monkeypatch.setattr(mgr, 'MOST_PGS_MAPPED', 2)
    assert view.pool_up(1) == up and handle.mapped == [(1, 0), (1, 1), (1, 2)]


def test_an_osdmap_and_its_crush_are_parsed_once(api: Api) -> None:
    handle = Handle(3)
    setattr(api, 'get_osdmap', lambda: handle)
    cluster = cluster_of(api)
    view = cluster.map_view()
    assert cluster.map_view() is view and (view.osdmap.epoch, view.crush_version) == (7, 3)
    crush = cluster.crush(3)
    assert cluster.crush(3) is crush and handle.read == 1 and crush.weights()
    handle.epoch, handle.crush_version = 8, 4
    later = cluster.map_view()
    assert later is not view and later.osdmap.epoch == 8
    assert cluster.crush(4) is not crush and handle.read == 2
    with pytest.raises(AssertionError):
        cluster.crush(5)


def test_when_the_audit_log_is_read(api: Api) -> None:
    now = [1000.0]
    cluster = cluster_of(api, lambda: now[0])
    api.replies = {'log last': (-11, '', 'x')}
    for seconds, asked in ((0.0, 1), (29.5, 1), (0.5, 2), (29.5, 2)):
        now[0] += seconds
        assert cluster.flags_set_by_others() == frozenset() and len(api.sent) == asked
    assert api.sent[0] == {'prefix': 'log last', 'num': 1000, 'level': 'info', 'channel': 'audit',
                           'format': 'json'}
    api.replies = {'log last': (0, json.dumps([entry(1, 'set')]), '')}
    now[0] += 0.5
    assert cluster.flags_set_by_others() == {'norebalance'} and len(api.sent) == 3
    now[0] += 3600.0
    assert cluster.flags_set_by_others() == {'norebalance'} and len(api.sent) == 3
    cluster.hear(entry(2, 'unset'))
    assert cluster.flags_set_by_others() == frozenset()


def test_an_empty_audit_log(api: Api) -> None:
    assert cluster_of(api).flags_set_by_others() == frozenset() and len(api.sent) == 1


def test_osds_that_serve_are_noted_with_the_counts(api: Api) -> None:
    api.data = {'pg_status': {}, 'health': {}, 'df': {}, 'metrics': {}}
    cluster, noted = cluster_of(api), []
    cluster._summary = SimpleNamespace(note=lambda *given: noted.append(given))
    osds = {1: Osd(1, True, 1.0), 2: Osd(2, False, 1.0), 3: Osd(3, True, 0.0)}
    signals = cluster.signals(OsdMap(1, frozenset(), {}, osds, {}, {}, {}))
    assert noted == [(signals.counts, signals.pool_counts, {1})]


def test_osds_with_degraded_pgs(api: Api) -> None:
    api.data = {'pg_summary': {'by_osd': {'3': {'active+degraded': 1}, '4': {'active': 1}}}}
    api.options = {'mgr_stats_period': 5}
    assert cluster_of(api).degraded_osds() == {3}


def test_what_other_classes_answer(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    from perfguard.cluster import inventory
    cluster, calls = cluster_of(api), []

    def noting(name: str) -> Any:
        def note(*given: Any) -> Any:
            calls.append((name, *given))
            return name
        return note

    assert cluster.inquire([]) == {}
    cluster.close()
    sensors = SimpleNamespace(**{name: noting(name) for name in (
        'read', 'read_loads', 'read_without_probes', 'read_by_pg', 'close')})
    cluster._sensors = sensors
    cluster._questions = SimpleNamespace(answers=noting('answers'))
    cluster._orchestrator = noting('orchestrator')
    cluster._asking = SimpleNamespace(ask=noting('ask'), asked=noting('asked'), answers=lambda *_: [
        SimpleNamespace(osd=3, parsed='x')])
    monkeypatch.setattr(cluster, 'crush', lambda version: 'crush %d' % version)
    monkeypatch.setattr(inventory, 'shared_ratios', lambda mgr: {1: 0.5})
    api.options = {'mgr_stats_period': 5}
    view: Any = SimpleNamespace(crush_version=4, osdmap='osdmap')
    assert cluster.readings(view, 'signals') == 'read'
    cluster.read_loads(1.0), cluster.read_without_probes(2.0), cluster.read_by_pg({3})
    assert (cluster.inquire(['q']), cluster.orchestrating(), cluster.pool_shared()) == (
        'answers', 'orchestrator', {1: 0.5})
    cluster.ask('topic', [3], {'prefix': 'x'}, 9.0), cluster.ask('topic', [3], {'prefix': 'x'})
    assert (cluster.asked('topic'), cluster.answers('topic')) == ('asked', {3: 'x'})
    cluster.close()
    assert calls == [
        ('read', view, 'signals', 'crush 4', 5.0), ('read_loads', 1.0),
        ('read_without_probes', 2.0), ('read_by_pg', {3}), ('answers', ['q']), ('orchestrator',),
        ('ask', 'topic', [3], {'prefix': 'x'}, 9.0), ('ask', 'topic', [3], {'prefix': 'x'}, 60.0),
        ('asked', 'topic'), ('close',)]


def test_the_inventory_asks_the_mons(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    from perfguard.cluster import inventory
    from perfguard.cluster.mgr import MapView
    cluster = cluster_of(api)
    monkeypatch.setattr(cluster, 'crush', lambda version: 'crush %d' % version)
    monkeypatch.setattr(inventory, 'read', lambda *given: given)
    api.options = {'osd_memory_target': 4, 'unread': 5}
    api.replies = {'config dump': (0, '[]', ''), 'a': (0, 'out', ''), 'b': (-1, 'out', 'x')}
    # Of a dump, only what is needed is kept.
    dump = {'pools': [{'pool': 1, 'read_balance': {'score_acting': 1.5, 'score_stable': 2.0},
                       'snap_seq': 7}]}
    monkeypatch.setattr('perfguard.cluster.mgr.osdmap_from_dump', lambda *_: 'osdmap')
    view = MapView(SimpleNamespace(dump=lambda: dump, get_crush_version=lambda: 4))
    mgr, osdmap, pools, crush, entries, options, output = cluster.inventory(view)
    assert (mgr, osdmap, pools, crush, entries, options) == (
        api, 'osdmap', [{'pool': 1, 'read_balance': {'score_acting': 1.5}}], 'crush 4', (),
        {'osd_memory_target': '4'})
    assert (output({'prefix': 'a'}), output({'prefix': 'b'})) == ('out', '')


@pytest.mark.parametrize('name, keys, state', [
    ('cephadm', True, True), ('rook', False, False), (None, False, False)])
def test_the_orchestrator_is_read_if_it_is_cephadm(api: Api, name: Optional[str], keys: bool,
                                                   state: bool) -> None:
    api.module_options = {'orchestrator.orchestrator': name}
    cluster = cluster_of(api)
    assert cluster._has_cephadm() is state
    cluster.orchestrating()
    assert bool(api.sent) == keys


def test_a_line_of_the_cluster_log(api: Api) -> None:
    lines: List[Any] = []
    setattr(api, 'ClusterLogPrio', SimpleNamespace(INFO=2))
    setattr(api, 'cluster_log', lambda *given: lines.append(given))
    cluster_of(api).cluster_log('text')
    assert lines == [('cluster', 2, 'perfguard: text')]


def test_previews_of_crush(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    from perfguard.cluster import crush_preview
    for name in ('outlook', 'grown', 'shrunk', 'compiled', 'rules_of'):
        monkeypatch.setattr(crush_preview, name, lambda *given, name=name: (name, *given))
    cluster = cluster_of(api)
    api.binary = (0, b'map', ' 5 ')
    name, osdmap, source, weights, crush_map, stopping, whole, setting = cluster.outlook(
        'osdmap', {1: 0.5}, b'crush', True, 'setting')
    assert (name, osdmap, weights, crush_map, whole, setting) == (
        'outlook', 'osdmap', {1: 0.5}, b'crush', True, 'setting')
    assert source(7) == b'map' and api.sent == [{'prefix': 'osd getmap', 'epoch': 7}]
    assert not stopping()
    assert cluster.outlook('osdmap', {}, None)[6:] == (False, None)
    assert cluster.grown('osdmap', 'hosts')[:2] == ('grown', 'osdmap')
    assert cluster.grown('osdmap', 'hosts')[3] == 'hosts'
    assert cluster.shrunk('osdmap', {3})[3] == {3}
    assert cluster.compiled_crush_map(b'x', 5)[:3] == ('compiled', b'x', 5)
    assert cluster.crush_rules(b'x')[:2] == ('rules_of', b'x')
    api.binary = (-2, b'', 'no')
    with pytest.raises(OSError, match='^could not get OSDMap 7 from the mons: no$'):
        source(7)
