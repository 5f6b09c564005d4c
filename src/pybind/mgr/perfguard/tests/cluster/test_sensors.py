# SPDX-License-Identifier: LGPL-2.1-or-later
"""What is read of the OSDs, with a stub in place of ceph-mgr."""
import json
import random
import re
from array import array
from dataclasses import replace
from typing import Any, Dict, List, Mapping, Optional, Sequence, Set, Tuple

import pytest

from perfguard.cluster.crush import CrushRules
from perfguard.cluster.inventory import devices_of, drive_model, store_layout
from perfguard.cluster.dumps import PgSummary, count_states, pool_counts
from perfguard.cluster.types import (OSD_ANSWER_SECONDS, PROBE_NAMESPACE, ClientLoad, ClientOps,
                                     KvBytes, NO_OSD, ObjectLoad, Ops, Osd, OsdCounters, OsdMap,
                                     OsdPlace, PgCounts, PgReads, PgWrites, Placement, Pool,
                                     Pressure, Readings, Signals)
from perfguard.watch.osds import faster_of_two, replica_flows
from perfguard.watch.types import Flow

from ..fakes.cluster import FakeView
from ..fakes.mgr_module import CommandResult

pytestmark = pytest.mark.usefixtures('mgr_stub')

CLEAN = Signals(PgCounts(total=4, active_clean=4))
NAN = float('nan')
LAGGY = Signals(PgCounts(total=4, active_clean=4, laggy=2))
HISTOGRAM, OPS, STATUS, PINGS, PRESSURE = (
    'perf histogram dump', 'dump_ops_in_flight', 'status', 'dump_osd_network', 'perf dump')


class Mgr:
    """MgrModule, as far as the sensors use it, over OSDs that answer or do not."""

    def __init__(self, osds: Sequence[int] = (0, 1, 2)) -> None:
        #: Monotonic, and of the day.
        self.now, self.clock = 500.0, 1e9
        self.counters: Dict[int, Dict[str, List[float]]] = {osd: {
            'osd.op_r_latency': [1e9, 30, 3], 'osd.op_w_latency': [1e9, 80, 4],
            'osd.op_w_process_latency': [1e9, 70, 4], 'osd.op_w_prepare_latency': [1e9, 10, 4],
            'bluestore.txc_commit_lat': [1e9, 50, 9], 'bluestore.read_lat': [1e9, 20, 5],
            'osd.numpg': [1e9, 12], 'osd.numpg_removing': [1e9, 3]} for osd in osds}
        self.metadata: Dict[str, Any] = {str(osd): {
            'hostname': 'box%d' % osd, 'device_ids': 'sdb=ACME_X1_S%d' % osd,
            'bluestore_bdev_devices': 'sdb', 'osd_objectstore': 'bluestore'} for osd in osds}
        self.metadata_reads = 0
        self.data: Dict[str, Any] = {'pg_summary': {'by_osd': {}}}
        self.gets: List[str] = []
        #: Number -> its keys, and keys -> what is answered.
        self.queries: Dict[int, Tuple[str, ...]] = {}
        self.answers: Dict[Tuple[str, ...], Any] = {}
        self.made = 0
        self.sent: List[Tuple[int, str, CommandResult]] = []

    def get(self, what: str) -> Any:
        self.gets.append(what)
        return self.data[what]

    def get_metadata(self, kind: str, daemon: str) -> Optional[Mapping[str, str]]:
        assert kind == 'osd'
        self.metadata_reads += 1
        found: Optional[Mapping[str, str]] = self.metadata.get(daemon)
        return found

    def get_latest_counter(self, kind: str, daemon: str, counter: str) -> Any:
        assert kind == 'osd'
        return {counter: self.counters[int(daemon)].get(counter, [])}

    def add_osd_perf_query(self, query: Any) -> int:
        self.made += 1
        self.queries[self.made] = tuple([key['type'] for key in query['key_descriptor']])
        return self.made

    def get_osd_perf_counters(self, query: int) -> Any:
        return self.answers.get(self.queries[query])

    def remove_osd_perf_query(self, query: int) -> None:
        del self.queries[query]

    def send_command(self, result: CommandResult, service: str, target: str, command: str,
                     tag: str) -> None:
        parsed = json.loads(command)
        assert (service, parsed['format']) == ('osd', 'json')
        self.sent.append((int(target), parsed['prefix'], result))

    def asked(self, prefix: str) -> List[int]:
        return [osd for osd, sent, _ in self.sent if sent == prefix]

    def answer(self, prefix: str, out: Any, retval: int = 0) -> None:
        """All that were asked and have not answered yet do."""
        for osd, sent, result in self.sent:
            if sent == prefix and not result.ev.is_set():
                result.r, result.outb = retval, out if isinstance(out, str) else json.dumps(out)
                result.ev.set()


def crush(hosts: Mapping[str, Sequence[int]], top: str = 'root') -> CrushRules:
    buckets = [{'id': -1, 'name': 'default', 'type_id': 10, 'items': [
        {'id': -2 - number, 'weight': 1} for number in range(len(hosts))]}]
    for number, (name, osds) in enumerate(hosts.items()):
        buckets.append({'id': -2 - number, 'name': name, 'type_id': 1,
                        'items': [{'id': osd, 'weight': 1} for osd in osds]})
    return CrushRules.from_dump({
        'buckets': buckets, 'rules': [], 'types': [
            {'name': 'host', 'type_id': 1}, {'name': top, 'type_id': 10}],
        'devices': [{'id': 0, 'class': 'ssd'}, {'id': 1, 'class': 'hdd'}, {'id': 2}]})


class Reader:
    def __init__(self, mgr: Optional[Mgr] = None) -> None:
        from perfguard.cluster.osd_commands import OsdCommands
        from perfguard.cluster.sensors import Sensors
        self.mgr = mgr or Mgr()
        stub: Any = self.mgr
        self.sensors = Sensors(stub, self.clock, PgSummary(stub, self.clock),
                               OsdCommands(stub, self.clock))
        self.down: Sequence[int] = ()
        self.out: Sequence[int] = ()
        self.hang: Sequence[int] = ()
        self.placements: Dict[str, Placement] = {}
        self.crush = crush({'a': [0, 1]})
        self.version = 1

    def clock(self) -> float:
        return self.mgr.now

    def __call__(self, signals: Signals = CLEAN, seconds: float = 5.0) -> Readings:
        """One reading; `seconds` pass before it, and all OSDs but those that are down report."""
        self.mgr.now += seconds
        self.mgr.clock += seconds
        for osd, counters in self.mgr.counters.items():
            for point in counters.values() if osd not in self.hang else ():
                point[0] = self.mgr.clock
        osdmap = OsdMap(1, frozenset(), {}, {osd: Osd(osd, osd not in self.down,
                                                      float(osd not in self.out))
                                             for osd in self.mgr.counters}, {}, {}, {})
        view = FakeView(osdmap, self.version, self.placements)
        found: Readings = self.sensors.read(view, signals, self.crush, 5.0)
        return found

    def run(self, seconds: float, signals: Signals = CLEAN) -> None:
        for _ in range(int(seconds / 5)):
            self(signals)


# ---- counters, places

def test_counters_of_osds_that_are_up() -> None:
    reader = Reader()
    reader.down = (2,)
    found = reader().counters
    assert set(found) == {0, 1}
    assert found[0] == OsdCounters(1e9 + 5, Ops(30, 3), Ops(80, 4), Ops(70, 4), Ops(10, 4),
                                   Ops(50, 9), Ops(20, 5), 12, 3)


def test_the_first_reading_covers_no_time() -> None:
    reader = Reader()
    assert [reader(seconds=seconds).seconds for seconds in (5.0, 6.5)] == [0.0, 6.5]


def test_counters_that_are_missing() -> None:
    mgr = Mgr()
    mgr.counters[0] = {}
    mgr.counters[1] = {'osd.op_r_latency': [1e9, 30, 3]}
    del mgr.counters[2]['bluestore.txc_commit_lat']
    mgr.counters[2]['bluestore.commit_lat'] = [1e9, 5, 1]
    found = Reader(mgr)().counters
    assert set(found) == {1, 2}
    assert found[1] == OsdCounters(1e9 + 5, Ops(30, 3), Ops(), Ops(), Ops())
    assert found[2].commit == Ops(5, 1)


def test_counters_of_an_osd_without_operations() -> None:
    reader = Reader()
    reader.mgr.counters[1]['osd.op_r_latency'] = [1e9, 0, 0]
    assert reader().counters[1].read == Ops(0, 0)


@pytest.mark.parametrize('point', [
    [1e9], [1e9, 30], 7, [1e9, 'x', 3], [1e9, NAN, 3], [1e9, 3, float('inf')], [1e9, -1, 3],
    [1e9, 5, -3], [None, 1, 1]])
@pytest.mark.parametrize('counter', ['osd.op_r_latency', 'bluestore.txc_commit_lat'])
def test_counters_that_are_nonsense(counter: str, point: Any,
                                    caplog: pytest.LogCaptureFixture) -> None:
    reader = Reader()
    reader()
    reader.mgr.counters[1][counter] = point
    reader.hang = (1,)
    for _ in range(5):
        assert set(reader().counters) == {0, 2}
    assert caplog.text.count('osd.1: cannot read counters') == 1


@pytest.mark.parametrize('seconds', [1, 3600])
def test_an_osd_whose_clock_was_set_back_under_an_operation_is_read(seconds: int) -> None:
    """It adds the negative latency as 32 bits of seconds, which remain in the sum."""
    reader = Reader()
    reader()
    sum_ns = 30 + (2 ** 32 - seconds) * 10 ** 9
    reader.mgr.counters[1]['osd.op_r_latency'] = [1e9, sum_ns, 4]
    for _ in range(5):
        found = reader()
        assert found.counters[1].read == Ops(sum_ns, 4) and not found.silent


def test_counters_without_labels_are_preferred() -> None:
    class WithLabels(Mgr):
        """As from Tentacle on."""

        def get_latest_unlabeled_counter(self, kind: str, daemon: str, counter: str) -> Any:
            return Mgr.get_latest_counter(self, kind, daemon, counter)

        def get_latest_counter(self, *args: str) -> Any:
            raise AssertionError('this one wants labels')
    assert len(Reader(WithLabels())().counters) == 3


def test_places() -> None:
    reader = Reader()
    assert reader().places == {
        0: OsdPlace(0, 'a', 'default', 'ssd', 'ACME_X1', store='bluestore',
                    devices=('box0:sdb',)),
        1: OsdPlace(1, 'a', 'default', 'hdd', 'ACME_X1', store='bluestore',
                    devices=('box1:sdb',)),
        # Nowhere in CRUSH: the host's own word for it.
        2: OsdPlace(2, 'box2', '', '', 'ACME_X1', store='bluestore',
                    devices=('box2:sdb',))}


def test_the_software_of_osds() -> None:
    reader = Reader()
    reader.mgr.metadata['1'].update(ceph_version_short='18.2.7', kernel_version='6.1')
    assert reader().software == {0: ('', ''), 1: ('18.2.7', '6.1'), 2: ('', '')}


def test_racks_are_known_where_there_are_some() -> None:
    reader = Reader()
    reader.crush = crush({'a': [0, 1]}, top='rack')
    assert [place.rack for place in reader().places.values()] == ['default', 'default', '']


def test_places_are_another_object_once_they_have_changed() -> None:
    """What is derived from them is kept for the object."""
    reader = Reader()
    reader.down = (2,)
    places = reader().places
    assert reader().places is places and set(places) == {0, 1}
    reader.down = ()
    assert set(reader().places) == {0, 1, 2} and set(places) == {0, 1}


def test_places_are_read_once_and_again_when_crush_changes() -> None:
    reader = Reader()
    del reader.mgr.metadata['1']
    assert reader().places[1].model == ''
    reader()
    assert reader.mgr.metadata_reads == 3
    reader.crush, reader.version = crush({'a': [0], 'b': [1, 2]}), 2
    assert reader().places[1].host == 'b' and reader.mgr.metadata_reads == 6
    reader(seconds=700.0)
    assert reader.mgr.metadata_reads == 9


def test_an_osd_that_restarts_keeps_its_place() -> None:
    """What is known of it must not be lost with a change of CRUSH meanwhile."""
    reader = Reader()
    reader()
    reader.down, reader.mgr.metadata = (1,), {}
    assert reader().places[1].store == 'bluestore'
    reader.crush, reader.version = crush({'a': [0], 'b': [1, 2]}), 2
    assert reader().places[1] == OsdPlace(
        1, 'b', 'default', 'hdd', 'ACME_X1', store='bluestore', devices=('box1:sdb',))
    assert reader(seconds=700.0).places[1].host == 'b'
    reader.out = (1,)
    assert 1 not in reader(seconds=700.0).places
    reader.down = reader.out = ()
    assert 1 in reader().places


def test_an_empty_cluster() -> None:
    mgr = Mgr(())
    reader = Reader(mgr)
    for signals in (Signals(PgCounts()), LAGGY):
        found = [reader(signals) for _ in range(20)][-1]
        assert found.counters == {} and found.places == {} and found.clients == ()
        assert found.latencies == () and found.unreadable == {}
    assert mgr.sent == []


# ---- the perf query

BY_POOL, BY_PG, IDLE = ('pool_id', 'osd_id'), ('pg_id',), ('osd_id',)


def test_perf_queries_are_made_once_and_given_back() -> None:
    reader = Reader()
    reader.run(60)
    assert sorted(reader.mgr.queries.values()) == [BY_PG, BY_POOL] and reader.mgr.made == 2
    reader.sensors.close()
    assert reader.mgr.queries == {}
    reader.sensors.close()


def test_osds_are_left_with_a_query_that_matches_nothing() -> None:
    """They ignore an empty list of queries, and would evaluate the last one until they restart."""
    from perfguard.cluster.sensors import IDLE_QUERY
    reader = Reader()
    lists: List[Set[Tuple[str, ...]]] = []
    remove = reader.mgr.remove_osd_perf_query

    def removed(query: int) -> None:
        remove(query)
        lists.append(set(reader.mgr.queries.values()))

    setattr(reader.mgr, 'remove_osd_perf_query', removed)
    reader.sensors.read_by_pg({1})
    reader.sensors.read_loads(3600.0)
    reader.run(60)
    assert len(reader.mgr.queries) == 5
    for _ in range(2):
        reader.sensors.count_clients(False)
        assert lists[-1] == {IDLE} and len(lists) == 5 and set() not in lists
    reader.run(60)
    assert list(reader.mgr.queries.values()) == [IDLE] and reader().clients == ()
    key, = IDLE_QUERY['key_descriptor']
    assert not any(re.search(key['regex'], str(number)) for number in range(2000))
    # A campaign begins although the module was about to be disabled.
    reader.sensors.count_clients(True)
    reader.run(60)
    assert len(reader.mgr.queries) == 5 and IDLE not in reader.mgr.queries.values()
    reader.sensors.close()
    assert reader.mgr.queries == {}


def test_clients_by_pool_and_osd() -> None:
    reader = Reader()
    assert reader().clients == reader().clients == ()
    rows = [{'k': [['3'], ['11']], 'c': [[500, 2], [900, 3]]}]
    reader.mgr.answers[BY_POOL] = {'counters': rows}
    found = reader(seconds=6.0)
    assert found.clients == (ClientOps(3, 11, Ops(500, 2), Ops(900, 3)),) and found.seconds == 6.0
    odd = [{'k': [['3']], 'c': [[500, 2], [900, 3]]}, {'k': [[''], ['11']], 'c': [[1, 2], [1, 2]]},
           {'k': [['3'], ['11']], 'c': [[5], [1, 2, 3]]}, {'k': None, 'c': None}]
    reader.mgr.answers[BY_POOL] = {'counters': odd + rows + odd}
    assert reader().clients == found.clients
    # Bytes read and written.
    for given, size in ((0, 0), (-5, 0), (7, 7)):
        row = {'k': [['3'], ['11']], 'c': [[500, 2], [900, 3], [given, 2], [2 * given, 3]]}
        reader.mgr.answers[BY_POOL] = {'counters': [row]}
        assert reader().clients == (
            ClientOps(3, 11, Ops(500, 2), Ops(900, 3), size, 2 * size),)


BY_CLIENT = ('client_id', 'client_address', 'pool_id', 'osd_id')
BY_OBJECT = ('object_name', 'pool_id', 'osd_id')


@pytest.mark.parametrize('check', ['PERFGUARD_SLOW_OSD', 'PERFGUARD_LATENCY'])
def test_who_sends_how_much_is_asked_while_something_is_to_be_explained(check: str) -> None:
    reader = Reader()
    row = {'k': [['client.7'], ['10.0.0.1:0/9'], ['3'], ['11']], 'c': [[25, 0]]}
    reader.mgr.answers[BY_CLIENT] = {'counters': [{'k': [['client.7']], 'c': []}, row, {}]}
    assert reader().client_loads == () and BY_CLIENT not in reader.mgr.queries.values()
    slow = replace(CLEAN, health={check: 'something is slow'})
    assert reader(slow).client_loads == (), 'it has just been asked for'
    assert reader(slow).client_loads == (ClientLoad('client.7', '10.0.0.1:0/9', 3, 11, 25),)
    assert reader().client_loads == () and BY_CLIENT not in reader.mgr.queries.values()


@pytest.mark.parametrize('turns', [
    # 600 s at first, and two seconds of each minute come back meanwhile.
    [(0.0, True, True), (620.0, True, True), (621.0, True, False)],
    # 20 s are left, and there must be more than 60 s to begin again.
    [(0.0, True, True), (600.0, False, False), (1800.0, True, False), (1830.0, True, True),
     (1890.0, True, True), (1895.0, True, False)],
    # No more than 600 s are saved up.
    [(0.0, False, False), (1e6, True, True), (1e6 + 620.0, True, True),
     (1e6 + 621.0, True, False)]])
def test_for_how_long_loads_are_read(turns: List[Tuple[float, bool, bool]]) -> None:
    from perfguard.cluster.sensors import LoadSampling
    sampling = LoadSampling()
    assert [sampling.decide(now, standing) for now, standing, _ in turns] == [
        counting for _, _, counting in turns]


@pytest.mark.parametrize('flaps', [False, True])
def test_who_sends_how_much_is_rarely_asked_while_a_check_stands(flaps: bool) -> None:
    """It may stand for weeks, or come and go all the time."""
    from perfguard.cluster.sensors import LOADS_FIRST_SECONDS, LOADS_LEAST_SECONDS
    reader, counted = Reader(), []
    slow = replace(CLEAN, health={'PERFGUARD_SLOW_OSD': 'osd.7 is slow'})
    for turn in range(3600 // 5):
        reader(slow if not flaps or turn % 4 else CLEAN)
        counted.append(BY_CLIENT in reader.mgr.queries.values())
        assert counted[-1] == (BY_OBJECT in reader.mgr.queries.values())
    assert flaps or all(counted[:int(LOADS_FIRST_SECONDS / 5)])
    assert 5 * sum(counted) <= LOADS_FIRST_SECONDS + 2.5 * LOADS_LEAST_SECONDS
    assert any(counted[1800 // 5:])


def test_who_sends_how_much_is_not_asked_for_as_long_as_an_osd_is_chronically_slow() -> None:
    """That may be weeks, and costs each OSD some microseconds per operation."""
    reader = Reader()
    for _ in range(2):
        reader(replace(CLEAN, health={'PERFGUARD_OSD_CHRONIC': 'osd.7 is slow again and again'}))
    assert not {BY_CLIENT, BY_OBJECT} & set(reader.mgr.queries.values())


def test_which_objects_are_hot_is_asked_for_some_time_after_it_was_wanted() -> None:
    reader = Reader()
    row = {'k': [['obj 1'], ['3'], ['11']], 'c': [[25, 0]]}
    reader.mgr.answers[BY_OBJECT] = {'counters': [
        row, {'k': [['obj'], ['x'], ['11']], 'c': [[1, 0]]}, {'k': [['3'], ['11']], 'c': [[1, 0]]},
        {'k': [['a'], ['b'], ['3'], ['11']], 'c': [[1, 0]]}, {}]}
    assert reader().object_loads == () and BY_OBJECT not in reader.mgr.queries.values()
    reader.sensors.read_loads(30.0)
    assert reader().object_loads == ()
    assert reader().object_loads == (ObjectLoad('obj 1', 3, 11, 25),)
    found = [reader().object_loads for _ in range(12)][-1]
    assert found == () and BY_OBJECT not in reader.mgr.queries.values()


def test_what_rocksdb_writes_is_read_while_something_is_to_be_explained() -> None:
    reader = Reader()
    reader.mgr.counters[1].update({'bluefs.bytes_written_sst': [1e9, 700],
                                   'bluefs.bytes_written_wal': [1e9, 50]})
    assert reader().kv_bytes == {}
    slow = replace(CLEAN, health={'PERFGUARD_SLOW_OSD': 'something is slow'})
    # The others have another store.
    assert reader(slow).kv_bytes == {1: KvBytes(700, 50)}
    reader.mgr.counters[1]['bluefs.bytes_written_sst'] = [1e9, float('nan')]
    assert reader(slow).kv_bytes == {}
    assert reader().kv_bytes == {}


def test_operations_of_probes_are_left_out_as_long_as_that_is_wanted() -> None:
    reader = Reader()
    plain, without = ('pool_id', 'osd_id'), ('pool_id', 'osd_id', 'namespace')
    reader.mgr.answers[plain] = {'counters': [{'k': [['3'], ['1']], 'c': [[50, 5], [0, 0]]}]}
    reader.mgr.answers[without] = {'counters': [{'k': [['3'], ['1'], ['']],
                                                 'c': [[20, 2], [0, 0]]}]}
    mixed, clients = ((ClientOps(3, 1, Ops(*ops), Ops()),) for ops in ((50, 5), (20, 2)))
    assert [reader().clients for _ in range(2)] == [(), mixed]
    reader.sensors.read_without_probes(12.0)
    assert [reader().clients for _ in range(2)] == [(), clients]
    assert plain not in reader.mgr.queries.values()
    assert [reader().clients for _ in range(2)] == [(), mixed]
    assert without not in reader.mgr.queries.values()


def test_until_when_loads_and_operations_without_probes_are_read() -> None:
    reader = Reader()
    reader.sensors.read_loads(10.0)
    reader.sensors.read_without_probes(10.0)
    without = ('pool_id', 'osd_id', 'namespace')
    for seconds, is_read in ((9.5, True), (0.5, False)):
        reader(seconds=seconds)
        assert [query in reader.mgr.queries.values()
                for query in (BY_CLIENT, BY_OBJECT, without)] == [is_read] * 3


def test_the_namespace_of_probes() -> None:
    from perfguard.cluster.sensors import CLIENT_QUERY_WITHOUT_PROBES
    pattern = re.compile(CLIENT_QUERY_WITHOUT_PROBES['key_descriptor'][-1]['regex'])
    assert not pattern.search(PROBE_NAMESPACE)
    for namespace in ('', 'perfguard', PROBE_NAMESPACE + '2', 'my-' + PROBE_NAMESPACE):
        found = pattern.search(namespace)
        # Without a group, an OSD counts nothing; each value of a group is a row of its own.
        assert found is not None and found.groups() == ('',)


def test_names_of_objects_that_ceph_mgr_cannot_hand_out_are_not_counted() -> None:
    """It crashes on names that are not UTF-8."""
    from perfguard.cluster.sensors import OBJECT_QUERY
    descriptors: Any = OBJECT_QUERY['key_descriptor']
    pattern = re.compile(descriptors[0]['regex'])
    assert all(map(pattern.search, ('rbd_data.1f.0000', 'a b', '~')))
    assert not any(map(pattern.search, ('caf\xe9', '\xff', 'a\nb', '')))


def test_writes_by_pg_are_read_now_and_then() -> None:
    reader = Reader()
    reader.placements = {'1.a': Placement((1, 2), (2, 1))}
    reader.mgr.answers[BY_PG] = {'counters': [
        {'k': [['1.a']], 'c': [[500, 2], [2, 0]]}, {'k': [['1.b']], 'c': [[500, 2], [2, 0]]},
        {'k': [[]], 'c': [[1, 1]]}, {'k': [['1.a']], 'c': [[1, 2, 3]]}, {}]}
    found = [reader() for _ in range(13)]
    read = [(each.pg_seconds, each.pg_writes) for each in found if each.pg_writes is not None]
    assert read == [(30.0, (PgWrites('1.a', (2, 1), Ops(500, 2)),))] * 2


def test_writes_by_pg_are_those_of_erasure_coded_pools_as_well() -> None:
    """Ceph names such a PG with the shard of its primary, which need not be the first one."""
    reader = Reader()
    reader.placements = {'2.1f': Placement((3, 1, 2), (3, 1, 2), 1),
                         '2.a': Placement((NO_OSD, 4, 5), (NO_OSD, 4, 5)),
                         '2.b': Placement((NO_OSD, NO_OSD), (NO_OSD, NO_OSD), -1)}
    reader.mgr.answers[BY_PG] = {'counters': [
        {'k': [['2.1fs1']], 'c': [[500, 2], [2, 0]]}, {'k': [['2.as1']], 'c': [[700, 2], [2, 0]]},
        {'k': [['2.bs0']], 'c': [[700, 2], [2, 0]]}]}
    found = [reader() for _ in range(8)]
    assert [each.pg_writes for each in found if each.pg_writes is not None] == [
        (PgWrites('2.1f', (1, 3, 2), Ops(500, 2)), PgWrites('2.a', (4, NO_OSD, 5), Ops(700, 2)))]


READS_BY_PG = ('osd_id', 'pg_id')


def test_reads_by_pg_are_read_of_chosen_osds_only() -> None:
    reader = Reader()
    reader.placements = {'1.a': Placement((1, 2), (2, 1)), '5.b': Placement((0, 1), (0, 1))}
    reader.mgr.answers[READS_BY_PG] = {'counters': [
        {'k': [['1'], ['1.a']], 'c': [[70, 0]]}, {'k': [['1'], ['5.b']], 'c': [[1, 0]]},
        {'k': [['1'], ['1.b']], 'c': [[5, 0]]}, {'k': [['1'], ['1.a']], 'c': [[0, 0]]},
        {'k': [['7'], ['1.a']], 'c': [[5, 0]]}, {'k': [['x'], ['1.a']], 'c': [[5, 0]]},
        {'k': [['1']], 'c': [[5, 0]]}, {'k': [['1'], ['1.a']], 'c': []}, {}]}
    assert [reader().pg_reads for _ in range(3)] == [None] * 3
    assert READS_BY_PG not in reader.mgr.queries.values()
    reader.sensors.read_by_pg({2, 1})
    found = {1: (PgReads('1.a', (2, 1), 70), PgReads('5.b', (0, 1), 1)), 2: ()}
    assert [reader().pg_reads for _ in range(3)] == [None, found, found]
    made = reader.mgr.made
    reader.sensors.read_by_pg({1})
    assert [reader().pg_reads for _ in range(2)] == [None, {1: found[1]}]
    assert reader.mgr.made == made + 1
    assert list(reader.mgr.queries.values()).count(READS_BY_PG) == 1
    reader.sensors.read_by_pg(set(range(100)))
    assert [len(reader().pg_reads or ()) for _ in range(2)] == [0, 32]
    reader.sensors.read_by_pg(set())
    assert [reader().pg_reads for _ in range(2)] == [None] * 2
    assert READS_BY_PG not in reader.mgr.queries.values()
    reader.sensors.read_by_pg({1})
    reader()
    reader.sensors.close()
    assert not reader.mgr.queries


def test_the_query_of_reads_by_pg() -> None:
    from perfguard.cluster.sensors import _read_query
    osd, pgid = (re.compile(key['regex']) for key in _read_query((3, 17))['key_descriptor'])
    assert [name for name in ('3', '17', '7', '13', '173', '31') if osd.search(name)] == ['3', '17']
    for name, found in (('2.1f', '2.1f'), ('12.1fs0', '12.1f'), ('2.as11', '2.a')):
        match = pgid.search(name)
        assert match is not None and match.groups() == (found,)


class BusyMgr:
    """ceph-mgr of a cluster with 33 PGs per OSD as their primary, three replicas each. An OSD
    reports its PGs with the most writes, other ones each time."""

    #: Those that add 50 ms to the writes that they replicate.
    slow = frozenset({7, 107, 207, 307})

    def __init__(self, osds: int) -> None:
        self.osds, self.random = osds, random.Random(1)
        self.per_osd = 0
        self.acting: Dict[str, Tuple[int, ...]] = {}

    def add_osd_perf_query(self, query: Any) -> int:
        self.per_osd = query['limit']['max_count']
        return 1

    def get_osd_perf_counters(self, query: int) -> Any:
        rows = []
        for osd in range(self.osds):
            for number in self.random.sample(range(33), min(33, self.per_osd)):
                pgid = '1.%x' % (33 * osd + number)
                if pgid not in self.acting:
                    self.acting[pgid] = (osd, *self.random.sample(range(self.osds), 2))
                ms = 2.0 + self.random.random() + 50.0 * bool(
                    self.slow.intersection(self.acting[pgid][1:]))
                rows.append({'k': [[pgid]], 'c': [[int(20 * ms * 1e6), 20], [20, 0]]})
        self.random.shuffle(rows)
        return {'counters': rows}

    def placement(self, pgid: str) -> Placement:
        return Placement(self.acting[pgid], self.acting[pgid])


@pytest.mark.parametrize('osds, limit', [
    (0, 64), (1, 64), (46, 64), (47, 63), (100, 30), (749, 4), (3000, 4)])
def test_how_many_pgs_of_each_osd_are_read(osds: int, limit: int) -> None:
    from perfguard.cluster.sensors import PerfQueries
    mgr: Any = BusyMgr(0)
    PerfQueries(mgr).pg_writes(0.0, osds, 5.0, mgr.placement)
    assert mgr.per_osd == limit


@pytest.mark.parametrize('limits', [
    [(100, 30), (50, 30), (49, 61), (96, 61), (97, 30)], [(50, 60), (100, 60), (101, 29)]])
def test_the_limit_of_pgs_changes_with_many_osds_only(limits: List[Tuple[int, int]]) -> None:
    from perfguard.cluster.sensors import PerfQueries
    mgr: Any = BusyMgr(0)
    mgr.remove_osd_perf_query = lambda query: None
    queries = PerfQueries(mgr)
    for osds, limit in limits:
        queries.pg_writes(0.0, osds, 5.0, mgr.placement)
        assert mgr.per_osd == limit


@pytest.mark.parametrize('pgs, parts', [(0, 1), (2, 1), (3, 2), (4, 2), (5, 3)])
def test_in_how_many_parts_pgs_are_read(monkeypatch: pytest.MonkeyPatch, pgs: int,
                                        parts: int) -> None:
    from perfguard.cluster import sensors
    monkeypatch.setattr(sensors, 'MOST_PGS_PER_READING', 2)
    rows = [{'k': [['1.%x' % seed]], 'c': [[10, 1], [1, 0]]} for seed in range(pgs)]
    reading = sensors._Parts()
    for number in range(parts):
        assert not reading.complete
        # The first reading decides how many there are.
        reading.add(5.0, rows if number == 0 else rows * 9, lambda pgid: Placement((1, 2), (1, 2)))
    assert reading.complete and (reading.readings, reading.seconds) == (parts, 5.0 * parts)
    assert {row.pgid for row in reading.writes} == {'1.%x' % seed for seed in range(pgs)}


def test_writes_by_pg_are_those_of_six_periods() -> None:
    from perfguard.cluster.sensors import PerfQueries
    mgr: Any = BusyMgr(2)
    queries = PerfQueries(mgr)
    read = []
    for now in (500.0, 529.5, 530.0, 559.5, 570.0):
        seconds, rows = queries.pg_writes(now, 2, 5.0, mgr.placement)
        read.append((seconds, None if rows is None else len(rows)))
    assert read == [(0.0, None), (0.0, None), (30.0, 66), (0.0, None), (40.0, 66)]


@pytest.mark.parametrize('osds, parts', [(1000, 1), (1500, 1), (1501, 2), (3000, 2), (5000, 4)])
def test_there_is_evidence_of_lossy_replicas_on_large_clusters(osds: int, parts: int) -> None:
    from perfguard.cluster.sensors import PerfQueries
    mgr: Any = BusyMgr(osds)
    queries = PerfQueries(mgr)
    before: Dict[int, Flow] = {}
    evidence: List[float] = []
    named: Set[int] = set()
    for reading in range(3 * parts + 1):
        seconds, rows = queries.pg_writes(30.0 * reading, osds, 5.0, mgr.placement)
        assert (rows is not None) == (reading > 0 and reading % parts == 0)
        if rows is not None:
            assert seconds == 30.0
            assert len(rows) == pytest.approx(4 * osds, rel=0.05)
            latest = replica_flows(rows, seconds, {})
            both, before = faster_of_two(before, latest), latest
            evidence.append(len(both) / osds)
            named |= {osd for osd, flow in both.items() if flow.ms > 20.0}
    assert min(evidence[1:]) > 0.88
    assert named <= mgr.slow and len(named) >= 3


# ---- counts by OSD

SUMMARY = {'pg_summary': {'by_osd': {'0': {'active+clean': 2, 'active+clean+laggy': 1},
                                     '1': {'active+remapped+backfilling': 3}}}}


def test_counts_by_osd_are_read_only_if_there_is_news() -> None:
    reader = Reader()
    reader.mgr.data.update(SUMMARY)
    for _ in range(20):
        assert reader().osd_counts == {}
    assert 'pg_summary' not in reader.mgr.gets
    counts = reader(LAGGY).osd_counts
    assert counts is not None and counts[0] == PgCounts(total=3, active_clean=3, laggy=1)
    assert counts[1].backfilling == counts[1].remapped == 3


@pytest.mark.parametrize('counts', [PgCounts(total=4, active_clean=3),
                                    PgCounts(total=4, active_clean=4, deep_scrubbing=1)])
def test_counts_by_osd_are_read_now_and_then_while_something_moves(counts: PgCounts) -> None:
    reader = Reader()
    reader.mgr.data.update(SUMMARY)
    found = [reader(Signals(counts)).osd_counts for _ in range(60)]
    read = sum(1 for each in found if each)
    assert found[0] and 2 <= read <= 21 and read == reader.mgr.gets.count('pg_summary')
    assert None in found and {} not in found


def test_one_summary_is_counted_once_as_long_as_something_is_wrong() -> None:
    reader = Reader()
    reader.mgr.data.update(SUMMARY)
    assert [reader(signals, seconds).osd_counts is None for signals, seconds in (
        (LAGGY, 5.0), (LAGGY, 1.0), (CLEAN, 1.0), (LAGGY, 1.0), (LAGGY, 1.0))] == [
            False, True, False, False, True]
    assert reader.mgr.gets.count('pg_summary') == 1


def test_a_costly_reading_is_rare() -> None:
    from perfguard.cluster.sensors import Paced
    assert Paced(10.0).is_due(0.0)
    pace = Paced(10.0)
    assert pace.is_due(3.0)
    pace.done(3.0, cost_seconds=0.001)
    assert not pace.is_due(12.9) and pace.is_due(13.0) and pace.is_due(4.0, urgent=True)
    pace.done(13.0, cost_seconds=1.0)
    assert not pace.is_due(212.0) and pace.is_due(213.0)


# ---- asking

def asking(mgr: Mgr) -> Any:
    from perfguard.cluster.osd_commands import OsdCommands
    made: Any = OsdCommands
    return made(mgr, lambda: mgr.now)


def test_no_osd_is_asked_again_before_it_has_answered() -> None:
    mgr = Mgr()
    asks = asking(mgr)
    asks.ask('a', [1, 2], {'prefix': 'x'})
    asks.ask('a', [1], {'prefix': 'x'})
    asks.ask('b', [1], {'prefix': 'y'})
    assert (mgr.asked('x'), mgr.asked('y')) == ([1, 2], [1])
    assert asks.asked('a') == {1, 2} and asks.answers('a', str) == []
    mgr.answer('x', {})
    assert asks.answers('b', str) == []
    assert [(answer.osd, answer.asked, answer.parsed) for answer in asks.answers('a', str)] == [
        (1, 500.0, '{}'), (2, 500.0, '{}')]
    assert asks.answers('a', str) == [] and asks.asked('a') == set() and asks.asked('b') == {1}


def test_refusals_and_late_answers_are_dropped() -> None:
    mgr = Mgr()
    asks = asking(mgr)
    asks.ask('a', [1], {'prefix': 'x'})
    mgr.answer('x', 'EINVAL', retval=-22)
    assert asks.answers('a', str) == [] and asks.asked('a') == set()
    asks.ask('a', [1], {'prefix': 'x'})
    mgr.now += OSD_ANSWER_SECONDS + 1
    assert asks.answers('a', str) == [] and asks.asked('a') == set()
    mgr.answer('x', 'late')
    assert asks.answers('a', str) == []


def test_the_answer_to_a_command_that_takes_long() -> None:
    mgr = Mgr()
    asks = asking(mgr)
    asks.ask('a', [1], {'prefix': 'x'}, 3 * OSD_ANSWER_SECONDS)
    mgr.now += 2 * OSD_ANSWER_SECONDS
    assert asks.answers('a', str) == [] and asks.asked('a') == {1}
    mgr.answer('x', {})
    assert [answer.osd for answer in asks.answers('a', str)] == [1]


# ---- PGs that are not readable

def op(pgid: str, age: Any = 3.0, event: str = 'waiting for readable') -> Dict[str, Any]:
    return {'description': 'osd_op(client.4.0:5 %s 2:f8 [read 0~1] e9)' % pgid, 'age': age,
            'type_data': {'events': [{'event': 'initiated'}, {'event': event}]}}


def test_unreadable_pgs() -> None:
    from perfguard.cluster.sensors import unreadable_pgs
    ops = [op('2.1f', 3.0), op('2.1f', 9.5), op('3.as0', 1.0), op('2.2', event='reached_pg'),
           {**op('2.3'), 'description': 'osd_repop(client.4.0:5 2.3 e9)'},
           {**op('2.4'), 'type_data': {'events': []}}, {**op('2.5'), 'type_data': {}}]
    assert unreadable_pgs(json.dumps({'ops': ops})) == [('2.1f', 9.5, 2), ('3.a', 1.0, 1)]
    assert unreadable_pgs('{"ops": []}') == []


@pytest.mark.parametrize('age, pgs', [
    (0.0, [('2.1', 0.0, 1)]), (604800.0, [('2.1', 604800.0, 1)]), (604800.5, []), (-0.5, [])])
def test_an_operation_waits_for_a_week_at_most(age: float, pgs: Any) -> None:
    from perfguard.cluster.sensors import unreadable_pgs
    assert unreadable_pgs(json.dumps({'ops': [op('2.1', age)]})) == pgs


def test_of_a_long_answer_the_beginning_is_read() -> None:
    from perfguard.cluster.sensors import MOST_CHARS, unreadable_pgs
    many = [op('2.%x' % number, float(number)) for number in range(20000)]
    out = json.dumps({'ops': many})
    assert len(out) > 2 * MOST_CHARS
    found = unreadable_pgs(out)
    assert [pg.pgid for pg in found] == ['2.%x' % number for number in range(len(found))]
    assert 1000 < len(found) < 20000
    # However long an answer is, it ends well.
    for cut in range(3000):
        exact = json.dumps({'ops': many[:2]})[:-2] + ' ' * cut + ']}'
        assert len(unreadable_pgs(exact)) == 2


def test_how_long_an_answer_may_be(monkeypatch: pytest.MonkeyPatch) -> None:
    from perfguard.cluster import sensors
    out = json.dumps({'ops': [op('2.1'), op('2.2')]})
    for limit, pgs in ((len(out), ['2.1', '2.2']), (len(out) - 1, ['2.1'])):
        monkeypatch.setattr(sensors, 'MOST_CHARS', limit)
        assert [pg.pgid for pg in sensors.unreadable_pgs(out)] == pgs


def waiting(*laggy: int) -> Dict[str, Any]:
    return {'pg_summary': {'by_osd': {str(osd): {'active+clean+laggy': number}
                                      for osd, number in enumerate(laggy) if number}}}


def test_osds_with_the_most_laggy_pgs_are_asked_first_and_not_all_at_once() -> None:
    reader = Reader(Mgr(range(10)))
    reader.mgr.data.update(waiting(1, 9, 0, 3, 4, 5, 6, 7, 8, 2))
    assert reader(LAGGY).unreadable == {}
    assert reader.mgr.asked(OPS) == [1, 8, 7, 6]
    reader(LAGGY)
    assert reader.mgr.asked(OPS) == [1, 8, 7, 6]
    reader.mgr.answer(OPS, {'ops': [op('2.1')]})
    found = reader(LAGGY).unreadable
    assert {osd: [pg.pgid for pg in pgs] for osd, pgs in found.items()} == {
        osd: ['2.1'] for osd in (1, 6, 7, 8)}
    reader(LAGGY)
    assert 2 not in reader.mgr.asked(OPS) and 5 in reader.mgr.asked(OPS)


def counters_of(worked: Dict[str, float], waits: int = 0, waited: float = 0.0) -> Dict[str, Any]:
    return {**{'AsyncMessenger::Worker-' + name: {'msgr_running_total_time': seconds}
               for name, seconds in worked.items()},
            'osd': {'op_before_dequeue_op_lat': {'avgcount': waits, 'sum': waited}}}


def test_how_busy_osds_are_is_read_while_pgs_are_laggy() -> None:
    reader = Reader(Mgr(range(10)))
    for _ in range(4):
        assert reader().pressures == {}
    assert reader.mgr.asked(PRESSURE) == []
    reader.mgr.data.update(waiting(1, 9, 0, 3, 4, 5, 6, 7, 8, 2))
    reader(LAGGY)
    assert reader.mgr.asked(PRESSURE) == [1, 8, 7, 6]
    reader.mgr.answer(PRESSURE, counters_of({'0': 100.0, '1': 7.0}, 50, 3.0))
    assert reader(LAGGY).pressures == {}
    reader.mgr.answer(PRESSURE, counters_of({'0': 101.0, '1': 11.0}, 150, 8.0))
    assert reader(LAGGY).pressures == {osd: Pressure(0.8, 50.0) for osd in (1, 6, 7, 8)}
    # A dump that begins a little later has seen more than the time between two questions.
    reader.mgr.answer(PRESSURE, counters_of({'0': 101.0, '1': 16.5}, 150, 8.0))
    assert reader(LAGGY).pressures == {osd: Pressure(1.0, None) for osd in (1, 6, 7, 8)}
    # All were restarted.
    reader.mgr.answer(PRESSURE, counters_of({'0': 1.0, '1': 1.0}))
    assert reader(LAGGY).pressures == {}
    reader.mgr.answer(PRESSURE, counters_of({'0': NAN, '1': 1.0}))
    assert reader(LAGGY).pressures == {}
    # PGs that are laggy every few seconds are so for the same reason.
    reader.mgr.answer(PRESSURE, counters_of({'0': 2.0, '1': 2.0}))
    assert reader(LAGGY).pressures == {}
    reader()
    reader.mgr.answer(PRESSURE, counters_of({'0': 5.0, '1': 3.0}))
    asked = len(reader.mgr.asked(PRESSURE))
    assert reader().pressures == {osd: Pressure(0.6) for osd in (1, 6, 7, 8)}
    assert len(reader.mgr.asked(PRESSURE)) == asked
    # Those that were so long ago are not.
    reader.run(60)
    reader(LAGGY)
    reader.mgr.answer(PRESSURE, counters_of({'0': 7.0, '1': 7.0}))
    assert reader(LAGGY).pressures == {}


def test_osds_that_do_not_answer_are_not_drowned_in_questions() -> None:
    reader = Reader(Mgr(range(10)))
    reader.mgr.data.update(waiting(*range(1, 11)))
    reader.run(50, LAGGY)
    assert len(reader.mgr.asked(OPS)) == 4 and len(reader.mgr.asked(PINGS)) == 4
    reader.run(30, LAGGY)
    assert len(reader.mgr.asked(OPS)) == 8


@pytest.mark.parametrize('seconds, number', [(9.5, 1), (10.0, 2)])
def test_an_osd_is_asked_for_operations_every_ten_seconds(seconds: float, number: int) -> None:
    reader = Reader()
    reader.mgr.data.update(waiting(3))
    reader(LAGGY)
    reader.mgr.answer(OPS, {'ops': []})
    reader(LAGGY, 2.0)
    reader(LAGGY, seconds - 2.0)
    assert len(reader.mgr.asked(OPS)) == number
    # It is asked at once when PGs are laggy again.
    reader.mgr.answer(OPS, {'ops': []})
    reader(CLEAN, 2.0)
    reader(LAGGY, 3.0)
    assert len(reader.mgr.asked(OPS)) == number + 1


def test_all_osds_with_laggy_pgs_are_asked_if_their_counts_are_rarely_read() -> None:
    """The counts of a large cluster are costly, so most readings have none."""
    reader = Reader(Mgr(range(6)))
    reader.mgr.data.update(waiting(9, 8, 7, 6, 5, 4))
    for seconds, asked in ((5.0, [0, 1, 2, 3]), (2.0, [0, 1, 2, 3]), (3.0, [0, 1, 2, 3, 4, 5])):
        reader(LAGGY, seconds)
        reader.mgr.answer(OPS, {'ops': []})
        assert reader.mgr.asked(OPS) == asked


def test_an_osd_that_hangs_takes_the_turn_of_no_other() -> None:
    reader = Reader(Mgr((0, 1)))
    reader.mgr.data.update(waiting(9, 8))
    reader(LAGGY)
    for osd, prefix, result in reader.mgr.sent:
        if (osd, prefix) == (1, OPS):
            result.outb = '{"ops": []}'
            result.ev.set()
    reader.run(15, LAGGY)
    assert reader.mgr.asked(OPS) == [0, 1, 1]
    # An answer that arrives late does not delay the next question by another ten seconds.
    reader.mgr.answer(OPS, {'ops': []})
    reader.run(10, LAGGY)
    assert reader.mgr.asked(OPS) == [0, 1, 1, 0, 1]


@pytest.mark.parametrize('counts, read', [
    ({'laggy': 1}, True), ({'wait': 1}, True), ({'degraded': 1}, True), ({'inactive': 1}, True),
    ({'inactive': 1, 'in_transition': 1}, False), ({'inactive': 2, 'in_transition': 1}, True),
    ({}, False), ({'active_clean': 4, 'deep_scrubbing': 1}, False),
    ({'active_clean': 4, 'snaptrim': 1}, False)])
def test_counts_by_osd_are_read_at_once_in_trouble(counts: Dict[str, int], read: bool) -> None:
    reader = Reader()
    reader.mgr.data.update(SUMMARY)
    signals = Signals(PgCounts(**{'total': 4, 'active_clean': 3, **counts}))
    assert reader(signals).osd_counts is not None
    reader.mgr.data['pg_summary'] = {'by_osd': {'2': {'active+clean': 1}}}
    assert (reader(signals, 14.0).osd_counts is not None) == read
    reader.mgr.data['pg_summary'] = {'by_osd': {'3': {'active+clean': 1}}}
    assert (reader(signals, 1.0).osd_counts is not None) or read


def test_no_osd_is_asked_for_operations_while_nothing_is_laggy() -> None:
    reader = Reader()
    for _ in range(20):
        reader(Signals(PgCounts(total=4, active_clean=3)))
    assert reader.mgr.asked(OPS) == []


def test_an_osd_that_hangs_is_silent_and_is_not_asked() -> None:
    reader = Reader(Mgr((0, 1, 2, 3)))
    # One reports no latency.
    reader.mgr.counters[3] = {'osd.op': [1e9, 5]}
    reader.run(30)
    reader.hang = (0,)
    reader.run(15)
    assert reader().silent == {0: 20.0}
    reader.mgr.data.update(waiting(5, 5, 5, 5))
    reader(LAGGY)
    assert sorted(reader.mgr.asked(OPS)) == [1, 2]
    reader.hang = ()
    assert reader().silent == {}
    reader.hang = (0,)
    reader.run(20)
    assert reader().silent == {0: 25.0}
    reader.down = (0,)
    assert reader().silent == {}


@pytest.mark.parametrize('hanging, silent, text', [
    ((0, 1, 2), {0: 20.0, 1: 20.0, 2: 20.0}, ''),
    # More than half of those that have reported, of which osd.6 is none.
    ((0, 1, 2, 3), {}, '4 of 6 OSDs have not reported to this mgr for 20 s or more: the likely '
     'reason is this mgr or its network, not the OSDs, or an mgr_stats_threshold above 5')])
def test_many_silent_osds_are_no_osds_that_hang(hanging: Sequence[int], silent: Dict[int, float],
                                                text: str) -> None:
    reader = Reader(Mgr(range(7)))
    reader.mgr.counters[6] = {'osd.op': [1e9, 5]}
    reader.run(30)
    reader.hang = hanging
    reader.run(15)
    found = reader()
    assert (found.silent, found.unreported) == (silent, text)
    reader.mgr.data.update(waiting(5, 5, 5, 5, 5, 5, 5))
    reader(LAGGY)
    # No command is sent to an OSD that may not answer.
    assert not set(reader.mgr.asked(OPS)) & set(hanging)
    reader.hang = ()
    found = reader()
    assert (found.silent, found.unreported) == ({}, '')


def test_osds_without_latency_counters_do_not_hang() -> None:
    """mgr_stats_threshold is above 5."""
    reader = Reader()
    for counters in reader.mgr.counters.values():
        for name in [name for name in counters if name.startswith('osd.op_')]:
            del counters[name]
        counters['osd.op'] = [1e9, 5]
    # They may report soon.
    assert [reader().unreported for _ in range(5)] == [''] * 4 + [
        'no OSD reports latency counters (op_r_latency) to this mgr, so perfguard cannot judge '
        'OSDs: mgr_stats_threshold must be at most 5, and OSDs must reach this mgr']
    assert reader().silent == {}


def test_an_osd_that_has_not_reported_since_a_failover_is_silent() -> None:
    reader = Reader(Mgr((0, 1, 2, 3)))
    reader.mgr.counters[3] = {}
    assert [reader().silent for _ in range(5)] == [{}] * 4 + [{3: 20.0}]
    assert not reader().unreported


@pytest.mark.parametrize('jump', [7200.0, -7200.0])
def test_no_osd_is_silent_after_a_jump_of_the_clock(jump: float) -> None:
    reader = Reader()
    reader.run(30)
    reader.mgr.clock += jump
    reader.hang = (1,)
    for _ in range(6):
        silent = reader().silent
    assert set(silent) == {1}


def test_an_osd_is_silent_after_more_than_three_periods() -> None:
    reader = Reader()
    reader()
    reader.hang = (1,)
    assert [reader(seconds=seconds).silent for seconds in (5.0, 10.0, 0.5)] == [{}, {}, {1: 15.5}]
    reader.hang = ()
    assert reader().silent == {}


# ---- histograms

def dump(read: Sequence[Any], write: Sequence[Any], bounds: Sequence[Any] = (99, 199)) -> Any:
    """Two sizes; the latency axis is the first one."""
    def one(counts: Sequence[Any]) -> Any:
        ranges = [{'min': 0, 'max': bound} for bound in bounds] + [{'min': 200}]
        return {'axes': [{'name': 'Latency (usec)', 'ranges': ranges}, {'ranges': [{}, {}]}],
                'values': [[count, count] for count in counts]}
    return {'osd': {'op_r_latency_out_bytes_histogram': one(read),
                    'op_w_latency_in_bytes_histogram': one(write)}}


def counted(*rows: Sequence[int]) -> Any:
    """The Histograms of these bounds, reads and writes."""
    from perfguard.cluster.osd_commands import Histograms
    return Histograms(*(array('q', row) for row in rows))


def test_histograms_are_summed_up_over_sizes() -> None:
    from perfguard.cluster.osd_commands import histograms
    found = histograms(json.dumps(dump((1, 2, 3), (0, 0, 5))))
    assert found == counted((100, 200), (2, 4, 6), (0, 0, 10))


def test_what_came_between_two_dumps() -> None:
    first = counted((1, 2), (1, 2, 3), (0, 0, 0))
    later = counted((1, 2), (1, 5, 3), (0, 0, 1))
    assert later.since(first) == ((0, 3, 0), (0, 0, 1))
    assert first.since(later) is None
    assert counted((1,), (9, 9), (9, 9)).since(first) is None


def test_osds_are_sampled_in_turn() -> None:
    from perfguard.cluster.osd_commands import SAMPLED_LEAST, SAMPLE_SECONDS
    reader = Reader(Mgr(range(8)))
    done: List[int] = []
    sampling: Set[int] = set()
    number = 0
    for _ in range(100):
        number += 1
        reader.mgr.answer(HISTOGRAM, dump((number, 0, 0), (0, number, 0)))
        readings = reader()
        for counts in readings.latencies:
            assert counts.osd not in readings.sampling
            done.append(counts.osd)
            assert counts.seconds >= SAMPLE_SECONDS and counts.bounds == (100, 200)
            assert counts.read[0] == counts.write[1] > 0 and counts.read[1] == 0
        busy = [result for _, prefix, result in reader.mgr.sent
                if prefix == HISTOGRAM and not result.ev.is_set()]
        assert len(busy) <= SAMPLED_LEAST
        sampling |= readings.sampling
    assert done[:8] == list(range(8)) and done[8:16] == list(range(8))
    assert sampling == set(range(8))


@pytest.mark.parametrize('osds, wanted', [(1, 1), (8, 8), (80, 16), (200, 25), (630, 32)])
def test_how_many_osds_are_sampled_at_a_time(osds: int, wanted: int) -> None:
    reader = Reader(Mgr(range(osds)))
    reader()
    assert len([1 for _, prefix, _ in reader.mgr.sent if prefix == HISTOGRAM]) == wanted


@pytest.mark.parametrize('osds', [4, 40])
def test_all_operations_are_counted_once(osds: int) -> None:
    """Also those between two samples of an OSD, and while it hangs."""
    reader = Reader(Mgr(range(osds)))
    counted: Dict[int, int] = dict.fromkeys(range(osds), 0)
    ends: Dict[int, float] = {}
    for number in range(100):
        reader.hang = (1,) if 40 < number < 60 else ()
        reader.mgr.answer(HISTOGRAM, dump((7 * number, 0, 0), (0, 0, number)))
        readings = reader()
        for counts in readings.counted:
            assert counts.read[0] == 7 * counts.write[2]
            assert counts.age == 5.0
            end = reader.mgr.now - counts.age
            assert ends.get(counts.osd, end - counts.seconds) == pytest.approx(end - counts.seconds)
            ends[counts.osd] = end
            counted[counts.osd] += counts.write[2]
    # Twice, as there are two sizes; up to the last dump of each OSD.
    assert min(counted.values()) > 100 and max(counted.values()) <= 198
    assert min(counted.values()) > 150 or osds > 16


def test_operations_are_not_counted_over_a_restart_of_the_osd() -> None:
    reader = Reader(Mgr((0,)))
    found: List[int] = []
    for total in (100, 130, 4, 9):
        for _ in range(8):
            reader()
            reader.mgr.answer(HISTOGRAM, dump((total, 0, 0), (0, 0, 0)))
            found += [counts.read[0] for counts in reader().counted]
    assert sum(found) == 2 * (30 + 5)


def test_an_osd_with_impossible_counts_is_not_counted() -> None:
    reader = Reader(Mgr((0, 1)))
    for _ in range(20):
        readings = reader()
        assert not readings.counted and not readings.latencies
        reader.mgr.answer(HISTOGRAM, dump((1 << 70, 0, 0), (0, 0, 0)))


def test_an_osd_that_starts_anew_or_dies_while_it_is_sampled() -> None:
    reader = Reader(Mgr((0, 1)))
    reader()
    reader.mgr.answer(HISTOGRAM, dump((100, 0, 0), (0, 0, 0)))
    reader()
    reader.down = (1,)
    reader.mgr.answer(HISTOGRAM, dump((1, 0, 0), (0, 0, 0)))
    found = []
    for _ in range(20):
        found += list(reader().latencies)
        reader.mgr.answer(HISTOGRAM, dump((1, 0, 0), (0, 0, 0)))
    assert found and {counts.osd for counts in found} == {0}
    assert all(counts.read == (0, 0, 0) for counts in found)


def test_others_are_sampled_where_those_in_turn_die() -> None:
    reader = Reader(Mgr(range(6)))
    for _ in range(2):
        reader()
        reader.mgr.answer(HISTOGRAM, dump((1, 0, 0), (0, 0, 0)))
    reader.down = (0, 1, 2)
    found = set()
    for _ in range(12):
        found |= {counts.osd for counts in reader().latencies}
        reader.mgr.answer(HISTOGRAM, dump((1, 0, 0), (0, 0, 0)))
    assert found == {3, 4, 5}


# ---- heartbeats, epochs

def pings(**average: Any) -> Any:
    return {'entries': [{'from osd': 0, 'to osd': osd[1:], 'interface': interface,
                         'average': {'1min': ms if interface == 'front' else 0.1, '5min': 3.0},
                         'last': 30.0}
                        for osd, ms in average.items() for interface in ('back', 'front')]}


def test_ping_times_by_the_slower_interface() -> None:
    from perfguard.cluster.osd_commands import ping_times
    assert ping_times(json.dumps(pings(p3=5.5, p4=0.05))) == {3: 5.5, 4: 0.1}


def test_a_few_osds_at_a_time_are_asked_for_heartbeats() -> None:
    reader = Reader(Mgr(range(10)))
    reader()
    assert reader.mgr.asked(PINGS) == [0, 1, 2, 3]
    reader.mgr.answer(PINGS, pings(p7=40.0, p8=0.5))
    readings = reader()
    assert readings.ping_ms == {7: 40.0, 8: 0.5}
    assert readings.peer_ping_ms == {7: dict.fromkeys(range(4), 40.0),
                                     8: dict.fromkeys(range(4), 0.5)}
    assert reader().ping_ms is None and len(reader.mgr.asked(PINGS)) == 4
    for _ in range(12):
        reader()
    assert reader.mgr.asked(PINGS) == [0, 1, 2, 3, 4, 5, 6, 7]


def test_a_slow_ping_that_only_one_osd_reports_does_not_count() -> None:
    reader = Reader(Mgr(range(3)))
    reader()
    for osd, ms in ((0, 900.0), (1, 0.5), (2, 0.6)):
        for target, prefix, result in reader.mgr.sent:
            if (target, prefix) == (osd, PINGS):
                result.outb = json.dumps(pings(p5=ms))
                result.ev.set()
    assert reader().ping_ms == {5: 0.6}


def test_those_that_share_pgs_with_the_culprit_are_asked_for_heartbeats() -> None:
    reader = Reader(Mgr(range(30)))
    reader.mgr.data['pg_summary']['by_osd'] = {'21': {'active+clean+laggy': 3},
                                               '22': {'active+clean+laggy': 1}}
    reader(LAGGY)
    assert sorted(reader.mgr.asked(PINGS)) == [21, 22]


def test_untrimmed_epochs() -> None:
    from perfguard.cluster.sensors import EPOCHS_SECONDS, untrimmed_epochs
    assert untrimmed_epochs('{"oldest_map": 10, "newest_map": 509}') == 500
    # The mons have trimmed; the OSD removes its maps later, 30 with each new one.
    assert untrimmed_epochs('{"oldest_map": 10, "cluster_osdmap_trim_lower_bound": 4000, '
                            '"newest_map": 4599}') == 600
    # An OSD that has just booted has not heard of the mons' first map.
    assert untrimmed_epochs('{"oldest_map": 10, "cluster_osdmap_trim_lower_bound": 0, '
                            '"newest_map": 509}') == 500
    assert untrimmed_epochs('{"oldest_map": 0, "newest_map": 0}') == 1
    assert untrimmed_epochs('{"oldest_map": 10, "newest_map": 9}') == 0
    assert untrimmed_epochs('{"oldest_map": 10, "newest_map": 8}') is None
    reader = Reader()
    assert reader().untrimmed_epochs is None and reader.mgr.asked(STATUS) == [0]
    reader.mgr.answer(STATUS, {'oldest_map': 1, 'newest_map': 3})
    assert reader().untrimmed_epochs == 3 and reader().untrimmed_epochs is None
    reader(seconds=EPOCHS_SECONDS - 11.0)
    assert reader.mgr.asked(STATUS) == [0]
    reader(seconds=2.0)
    assert reader.mgr.asked(STATUS) == [0, 0]


# ---- answers that are none

NONSENSE = [
    '', 'null', '[]', '7', '{}', '"x"', '\x00\xff', '{"osd": null}',
    '{"ops": [1]}', '{"ops": 1}', '{"ops": [{"description": 5}]}',
    '{"ops": [{"description": "osd_op(c 2.1f x", "type_data": [], "age": 1}]}',
    *[json.dumps({'ops': [op('2.1', age)]}) for age in (NAN, float('inf'), 1e300, -5)],
    '{"newest_map": "x", "oldest_map": 1}', '{"newest_map": null}',
    '{"newest_map": Infinity, "oldest_map": 1}', '{"newest_map": 1, "oldest_map": 1e30}',
    '{"entries": [{}]}', '{"entries": null}',
    '{"entries": [{"to osd": "x", "average": {"1min": 1}}]}',
    '{"osd": {}}', json.dumps({'AsyncMessenger::Worker-0': 5, 'osd': {}}),
    '{"entries": [{"to osd": NaN, "average": {"1min": 1}}]}',
    '{"entries": [{"to osd": 1, "average": {"1min": NaN}}]}', '{"entries": [{"to osd": 1}]}',
    *[json.dumps(each) for each in (
        dump((1, 2), (1, 2)), dump(('x', 1, 1), (1, 1, 1)), dump((1, 1, 1), (1, 1, 1), ('x', 'y')),
        dump((), (), ()), dump((1, 1), (1, 1), (float('inf'),)))]]


@pytest.mark.parametrize('out', NONSENSE)
def test_an_answer_that_is_nonsense_is_logged_and_passed_over(
        out: str, caplog: pytest.LogCaptureFixture) -> None:
    reader = Reader()
    reader.mgr.data.update(waiting(1, 1, 1))
    for _ in range(20):
        found = reader(LAGGY)
        for prefix in (HISTOGRAM, OPS, STATUS, PINGS, PRESSURE):
            reader.mgr.answer(prefix, out)
        assert len(found.counters) == 3 and found.latencies == ()
        assert not any(found.unreadable.values()) and not found.ping_ms and not found.pressures
        assert found.untrimmed_epochs is None
    assert 'osd.0: cannot read' in caplog.text


# ---- metadata, states of PGs

@pytest.mark.parametrize('metadata, model', [
    ({'device_ids': 'nvme0n1=A_B_1,sdc=SEAGATE_ST8_XYZ', 'bluestore_bdev_devices': 'sdc'},
     'SEAGATE_ST8'),
    ({'device_ids': 'sda=QEMU_7', 'bluestore_bdev_devices': 'dm-1'}, 'QEMU'),
    ({'device_ids': 'sda=serial'}, ''), ({'device_ids': ''}, ''), ({'device_ids': 'sda,='}, ''),
    # The drive of the DB must not be taken for it.
    ({'device_ids': 'nvme0n1=A_B_1', 'bluestore_bdev_devices': 'sdc',
      'bluefs_dedicated_db': '1', 'bluefs_db_devices': 'nvme0n1'}, ''), ({}, '')])
def test_drive_model(metadata: Mapping[str, str], model: str) -> None:
    assert drive_model(metadata) == model


@pytest.mark.parametrize('metadata, layout', [
    # As BlueStore reports it: with one device, BlueFS shares it.
    ({'osd_objectstore': 'bluestore', 'bluefs': '1', 'bluefs_single_shared_device': '1',
      'bluefs_dedicated_db': '0', 'bluefs_dedicated_wal': '0', 'rotational': '1'}, 'bluestore'),
    ({'osd_objectstore': 'bluestore', 'bluefs_single_shared_device': '0',
      'bluefs_dedicated_db': '1', 'bluefs_dedicated_wal': '0', 'bluefs_db_rotational': '0',
      'rotational': '1'}, 'bluestore, DB on flash'),
    ({'osd_objectstore': 'bluestore', 'bluefs_dedicated_db': '1', 'bluefs_db_rotational': '1',
      'bluefs_dedicated_wal': '1', 'bluefs_wal_rotational': '0'},
     'bluestore, DB on disk, WAL on flash'),
    ({'osd_objectstore': 'memstore'}, 'memstore'), ({}, '')])
def test_store_layout(metadata: Mapping[str, str], layout: str) -> None:
    assert store_layout(metadata) == layout


def test_a_pg_counts_in_each_condition_that_its_state_names() -> None:
    counts = count_states([
        ('active+clean', 10), ('active+clean+scrubbing+deep', 2), ('active+clean+scrubbing', 1),
        ('active+clean+laggy', 3), ('active+clean+wait', 1), ('stale+active+clean', 4),
        ('active+undersized+degraded+remapped+backfill_wait', 5), ('down', 6), ('peering', 7),
        ('active+remapped+backfill_toofull', 8), ('active+recovering+degraded', 1),
        ('active+clean+remapped', 2), ('active+recovery_wait+degraded', 3)])
    assert counts == PgCounts(
        total=53, active_clean=19, inactive=17, in_transition=7, degraded=9, remapped=15,
        backfill_wait=5, backfill_toofull=8, laggy=3, wait=1, recovering=1, deep_scrubbing=2,
        degraded_waiting=5, degraded_recovering=1, recovery_wait=3, remapped_clean=2)


def test_pgs_without_a_report_are_in_transition() -> None:
    counts = count_states([('active+clean', 10)], 16)
    assert (counts.total, counts.unreported, counts.inactive, counts.in_transition) == (16, 6, 6, 6)
    assert count_states([('active+clean', 10)], 4).unreported == 0
    unknown = count_states([('active+clean', 10), ('unknown', 3)], 15)
    assert (unknown.total, unknown.unreported, unknown.in_transition) == (15, 5, 5)
    assert count_states([]) == PgCounts()


def test_counts_by_pool() -> None:
    pools = {pool: Pool(pool, 'p', False, 3, 2, 0, 8, 8, 8) for pool in (1, 2)}
    status = {'pgs_by_pool_state': [
        {'pool_id': 1, 'pg_state_counts': [{'state_name': 'active+clean', 'count': 7}]},
        {'pool_id': 9, 'pg_state_counts': []}]}
    assert pool_counts(status, pools) == {1: PgCounts(total=8, active_clean=7, unreported=1,
                                                      inactive=1, in_transition=1)}
    assert pool_counts({}, pools) == {}


def test_the_hole_in_an_acting_set_is_no_osd() -> None:
    reader = Reader()
    reader.mgr.data['pg_summary']['by_osd'] = {str(NO_OSD): {'active+degraded+laggy': 4},
                                               '1': {'active+degraded+laggy': 4}}
    assert set(reader(LAGGY).osd_counts or {}) == {1}


@pytest.mark.parametrize('metadata, devices', [
    ({}, ()),
    ({'hostname': 'h1', 'bluestore_bdev_devices': 'sdb', 'bluefs_dedicated_db': '0',
      'bluefs_db_devices': 'sdb'}, ('h1:sdb',)),
    ({'hostname': 'h1', 'bluestore_bdev_devices': 'sdb', 'bluefs_dedicated_db': '1',
      'bluefs_db_devices': 'nvme0n1', 'bluefs_dedicated_wal': '1',
      'bluefs_wal_devices': 'nvme1n1'}, ('h1:sdb', 'h1:nvme0n1', 'h1:nvme1n1'))])
def test_devices_of(metadata: Mapping[str, str], devices: Tuple[str, ...]) -> None:
    assert devices_of(metadata) == devices
