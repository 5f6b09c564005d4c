# SPDX-License-Identifier: LGPL-2.1-or-later
"""The likely causes of a slow OSD, each named on its own evidence."""
from dataclasses import replace
from typing import Any, Dict, List, Optional, Sequence, Tuple

import pytest

from perfguard.cluster.types import (NO_OPS, ClientLoad, KvBytes, ObjectLoad, Ops, OsdCounters,
                                     OsdMap, OsdPlace, PgCounts, Readings, Signals)
from perfguard.watch.causes import (ExtraWork, KvWrites, OsdEvidence, causes, heavy_clients,
                                    switch_side)
from perfguard.watch import state
from perfguard.watch.state import kv_writes
from perfguard.watch.types import OsdVerdict, SlowShared

from ..fakes.driver import OPTIONS

STORE = {'reads': 6.0, 'writes': 5.0, 'store commits': 7.0, 'store reads': 1.0}
MIB = 1 << 20
COMPACTION = KvWrites(8.0 * MIB, 0.5 * MIB, 0.1 * MIB)
HOST = SlowShared(('host', 'h1'), (4, 5, 6, 7), 4, (), 6.0, 1e9, '')
PROCESS = {'reads': 6.0, 'writes': 5.0, 'store commits': 1.1, 'store reads': 1.0}
USUAL = OsdEvidence(5, STORE, host='h1', host_osds=(4, 5, 6, 7),
                    ping_ms={osd: 0.5 for osd in range(12)})


def loads(**ops: int) -> List[ClientLoad]:
    return [ClientLoad(client.replace('_', '.'), '10.0.0.%d:0/1' % number, 1, 5, each)
            for number, (client, each) in enumerate(ops.items())]


def objects(**ops: int) -> List[ObjectLoad]:
    return [ObjectLoad(name, 1, 5, each) for name, each in ops.items()]


def pings(**slow: float) -> Dict[int, float]:
    return {osd: slow.get('osd%d' % osd, 0.5) for osd in range(12)}


def work(code: str, was_first: Optional[bool] = True) -> Tuple[ExtraWork, ...]:
    return (ExtraWork(code, 1, 0.0, was_first),)


@pytest.mark.parametrize('seen, codes', [
    ({'shared': HOST}, ['host']),
    ({'shared': HOST._replace(part=('device', 'h1:nvme0'))}, ['device']),
    ({'shared': HOST._replace(part=('rack', 'r1'))}, ['rack']),
    ({'ping_ms': pings(osd5=80.0), 'slowdowns': PROCESS}, ['network']),
    ({'ping_ms': pings(osd4=70.0, osd5=80.0, osd6=90.0), 'slowdowns': PROCESS}, ['host_network']),
    ({'ping_ms': pings(osd5=80.0)}, ['cpu']),
    ({'ping_ms': pings(osd4=70.0, osd5=80.0, osd6=90.0)}, ['cpu']),
    ({'ping_ms': pings(osd4=70.0, osd6=90.0)}, ['drive']),
    ({'ping_ms': pings(osd5=9.0)}, ['drive']),
    ({'ping_ms': {osd: 30.0 for osd in range(12)}}, ['drive']),
    ({'ping_ms': {}}, ['drive']),
    ({'fullness': 'nearfull'}, ['full']),
    ({'work': work('deep_scrub')}, ['deep_scrub']),
    ({'work': work('snaptrim')}, ['snaptrim']),
    ({'kv_writes': COMPACTION}, ['compaction']),
    ({'kv_writes': COMPACTION, 'slowdowns': PROCESS}, ['process']),
    ({'kv_writes': COMPACTION._replace(sst=0.9 * MIB)}, ['drive']),
    # Flushes of its WAL, and the rate of all OSDs.
    ({'kv_writes': COMPACTION._replace(wal=5.0 * MIB)}, ['drive']),
    ({'kv_writes': COMPACTION._replace(peers_sst=5.0 * MIB)}, ['drive']),
    ({'work': work('backfill') + work('recovery')}, ['backfill', 'recovery']),
    # It was slow before.
    ({'work': work('backfill', False)}, ['drive']),
    ({'work': work('backfill', False) + work('recovery')}, ['recovery']),
    # Not known, so the drive is no cause either.
    ({'work': work('backfill', None)}, []),
    ({'work': work('backfill', None), 'fullness': 'nearfull'}, ['full']),
    ({'load_ratio': 3.0, 'clients': loads(client_1=900, client_2=100)}, ['client']),
    ({'load_ratio': 3.0, 'clients': loads(client_1=900, client_2=100), 'client_ratio': 2.0},
     ['client']),
    # Its clients send no more than those of its peers.
    ({'load_ratio': 3.0, 'clients': loads(client_1=900, client_2=100), 'client_ratio': 1.1,
      'objects': objects(a=900)}, ['replicas']),
    ({'load_ratio': 3.0, 'clients': loads(client_1=400, client_2=400, client_3=300)}, ['pool']),
    ({'load_ratio': 3.0, 'clients': loads(client_1=9, client_2=1)}, ['load']),
    ({'load_ratio': 1.2, 'clients': loads(client_1=900, client_2=100)}, ['drive']),
    ({'load_ratio': 3.0, 'clients': loads(client_1=400, client_2=400, client_3=300),
      'objects': objects(a=550, b=10)}, ['object']),
    ({'load_ratio': 3.0, 'clients': loads(client_1=900, client_2=100),
      'objects': objects(a=500)}, ['object', 'client']),
    ({'load_ratio': 3.0, 'clients': loads(client_1=900, client_2=100),
      'objects': objects(a=499, b=499)}, ['client']),
    ({'load_ratio': 3.0, 'clients': loads(client_1=9, client_2=1), 'objects': objects(a=9)},
     ['load']),
    ({'load_ratio': 1.2, 'clients': loads(client_1=900), 'objects': objects(a=900)}, ['drive']),
    ({}, ['drive']),
    ({'slowdowns': PROCESS}, ['process']),
    ({'slowdowns': {'replicated writes': 9.0, 'reads': 1.1, 'store commits': 1.0}}, ['stalls']),
    ({'slowdowns': {'replicated writes': 9.0, 'writes': 1.1}}, ['stalls']),
    # It leads hardly any PGs, as with a primary affinity of 0. Its process or the reads of its
    # drive may be slow as well.
    ({'slowdowns': {'replicated writes': 9.0, 'store commits': 1.0}}, []),
    ({'slowdowns': {'replicated writes': 9.0}}, []),
    ({'slowdowns': {'replicated writes': 9.0, 'store commits': 8.0}}, ['drive']),
    # A store that measures nothing: which part of the OSD is slow is not known.
    ({'slowdowns': {'reads': 9.0, 'writes': 8.0}}, []),
    ({'slowdowns': {}}, []),
    ({'shared': HOST, 'work': work('deep_scrub')}, ['host', 'deep_scrub']),
])
def test_causes(seen: Dict[str, Any], codes: Sequence[str]) -> None:
    found = causes(replace(USUAL, **seen))
    assert [cause.code for cause in found] == codes
    assert all(cause.text and cause.evidence for cause in found)


PLACES = {osd: OsdPlace(osd, 'h%d' % (osd // 2), 'default', 'ssd') for osd in range(12)}


def peer_pings(side: Sequence[int]) -> Dict[int, Dict[int, float]]:
    """Of twelve OSDs on six hosts, slow between these and the others."""
    return {osd: {peer: 60.0 if (osd in side) != (peer in side) else 0.5
                  for peer in range(12) if peer != osd} for osd in range(12)}


BEHIND = peer_pings((4, 5, 6, 7))


def test_hosts_behind_one_switch() -> None:
    medians = pings(osd4=60.0, osd5=60.0, osd6=60.0, osd7=60.0)
    assert {osd: [place.osd for place in switch_side(osd, BEHIND, medians, PLACES)]
            for osd in range(12)} == {osd: [4, 5, 6, 7] if 4 <= osd <= 7 else []
                                      for osd in range(12)}
    cause, = causes(replace(USUAL, slowdowns=PROCESS, ping_ms=medians,
                            side=switch_side(5, BEHIND, medians, PLACES)))
    assert cause.code == 'switch' and 'between hosts h2, h3 and the others' in cause.text
    assert cause.evidence['hosts'] == ['h2', 'h3'] and cause.evidence['osds'] == [4, 5, 6, 7]


@pytest.mark.parametrize('reports', [
    # Slow to the other slow host as well; of one peer on each side only; from before.
    {peer: 0.5 if peer == 4 else 60.0 for peer in range(12)}, {6: 0.5, 0: 60.0},
    {0: 0.5, 1: 0.5, 6: 0.5, 2: 60.0, 9: 60.0}, {}])
def test_other_patterns_of_heartbeats_are_no_switch(reports: Dict[int, float]) -> None:
    medians = pings(osd4=60.0, osd5=60.0, osd6=60.0, osd7=60.0)
    assert switch_side(5, {**BEHIND, 5: reports}, medians, PLACES) == ()


def test_one_host_alone_is_behind_no_switch() -> None:
    assert switch_side(5, peer_pings((4, 5)), pings(osd4=60.0, osd5=60.0), PLACES) == ()


@pytest.mark.parametrize('near, far, sides', [
    # Two of three near OSDs are slow, and two of three far ones are not.
    ((6, 7, 0), (1, 2, 4), True), ((6, 0, 1), (2, 3, 8), False), ((6, 7, 0), (1, 4, 8), True),
    # The other side has one host; this side has one.
    ((6, 7), (0, 1), False), ((4,), (0, 2), False), ((6, 7), (0, 2), True)])
def test_the_sides_of_a_slow_link(near: Sequence[int], far: Sequence[int], sides: bool) -> None:
    medians = pings(osd4=60.0, osd5=60.0, osd6=60.0, osd7=60.0)
    reports = {**dict.fromkeys(near, 0.5), **dict.fromkeys(far, 60.0), 99: 60.0}
    this_side = switch_side(5, {5: reports}, medians, PLACES)
    assert [place.osd for place in this_side] == (
        sorted({5, *near} & {4, 5, 6, 7}) if sides else [])
    assert switch_side(3, {3: reports}, medians, PLACES) == ()  # its heartbeats are fast


@pytest.mark.parametrize('seen, code, text', [
    ({'slowdowns': PROCESS, 'ping_ms': pings(osd5=80.0)}, 'network',
     'network, or an OSD that hangs briefly: heartbeat ping time 80 ms (median of all OSDs 0.5 '
     'ms)'),
    ({'slowdowns': PROCESS, 'ping_ms': pings(osd4=70.0, osd5=80.0, osd6=90.0)}, 'host_network',
     'network of host h1: heartbeat ping time 80 ms (median of all OSDs 0.5 ms), as for most of '
     'its OSDs'),
    ({'ping_ms': pings(osd4=70.0, osd5=80.0, osd6=90.0)}, 'cpu',
     'too little CPU or memory on host h1: heartbeat ping time 80 ms (median of all OSDs 0.5 ms), '
     'and its store is slow as well'),
    ({'ping_ms': pings(osd4=70.0, osd5=80.0)}, 'cpu',
     'too little CPU or memory: heartbeat ping time 80 ms (median of all OSDs 0.5 ms), and its '
     'store is slow as well'),
    ({'slowdowns': PROCESS, 'ping_ms': pings(osd5=80.0), 'side': (PLACES[5], PLACES[6])}, 'switch',
     'network between hosts h2, h3 and the others: heartbeat ping time 80 ms (median of all OSDs '
     '0.5 ms), but fast among these hosts: check the switch or the link that they share'),
    ({'fullness': 'nearfull'}, 'full', 'its device is nearfull'),
    ({}, 'drive', 'its store is slow and nothing else explains that: check the drive (SMART, '
     'kernel log)'),
    ({'slowdowns': PROCESS}, 'process', 'its store is as fast as that of its peers: check the CPU '
     'and memory of the OSD process'),
    ({'slowdowns': {'replicated writes': 9.0, 'writes': 1.1}}, 'stalls', 'only the primaries of '
     'its PGs see it as slow: it hangs briefly, or its network drops packets'),
    ({'shared': HOST._replace(part=('rack', 'r1'))}, 'rack',
     '4 of 4 OSDs in rack r1 are slow: check its switch, power and cooling')])
def test_the_text_of_each_cause(seen: Dict[str, Any], code: str, text: str) -> None:
    cause, = causes(replace(USUAL, **seen))
    assert (cause.code, cause.text) == (code, text)


def test_the_evidence_of_heartbeats() -> None:
    slow = pings(osd4=70.0, osd5=80.12345, osd6=90.0)
    host, = causes(replace(USUAL, slowdowns=PROCESS, ping_ms=slow))
    assert host.evidence == {'ping_ms': 80.123, 'median_ping_ms': 0.5, 'host': 'h1',
                             'osds': [4, 5, 6]}
    cpu, = causes(replace(USUAL, ping_ms=slow))
    assert cpu.evidence == dict(host.evidence, slowdowns={
        'reads': 6.0, 'writes': 5.0, 'store commits': 7.0})
    alone, = causes(replace(USUAL, slowdowns={**PROCESS, 'reads': 6.12345}, ping_ms={
        **dict.fromkeys(range(12), 0.51234), 5: 80.0}))
    assert alone.evidence == {'ping_ms': 80.0, 'median_ping_ms': 0.512}


def test_figures_are_rounded_and_one_object_is_named() -> None:
    process, = causes(replace(USUAL, slowdowns={**PROCESS, 'reads': 6.12345}))
    assert process.evidence == {'slowdowns': {'reads': 6.12, 'writes': 5.0}}
    replicas, = causes(replace(USUAL, load_ratio=3.0, client_ratio=1.12345))
    assert replicas.evidence == {'load_ratio': 3.0, 'client_load_ratio': 1.12}
    hot, = causes(replace(USUAL, load_ratio=3.0, clients=loads(a=100), objects=objects(x=50, y=50)))
    assert hot.evidence['object'] == 'x'


@pytest.mark.parametrize('seen, code', [
    # Two of three OSDs of a host, of two, and of four.
    ({'slowdowns': PROCESS, 'host_osds': (4, 5, 6), 'ping_ms': pings(osd4=70.0, osd5=80.0)},
     'host_network'),
    ({'slowdowns': PROCESS, 'host_osds': (4, 5), 'ping_ms': pings(osd4=70.0, osd5=80.0)},
     'host_network'),
    ({'slowdowns': PROCESS, 'host_osds': (5,), 'ping_ms': pings(osd5=80.0)}, 'network'),
    ({'slowdowns': PROCESS, 'ping_ms': pings(osd4=70.0, osd5=80.0)}, 'network'),
    ({'kv_writes': KvWrites(1.0 * MIB, 0.5 * MIB, 0.5 * MIB)}, 'compaction'),
    ({'kv_writes': KvWrites(1.0 * MIB - 1.0, 0.0, 0.0)}, 'drive'),
    ({'kv_writes': KvWrites(4.0 * MIB, 2.0 * MIB + 1.0, 0.0)}, 'drive'),
    ({'kv_writes': KvWrites(4.0 * MIB, 0.0, 2.0 * MIB + 1.0)}, 'drive'),
    ({'load_ratio': 1.5}, 'load'), ({'load_ratio': 1.49}, 'drive'),
    ({'load_ratio': 4.0, 'client_ratio': 2.0}, 'load'),
    ({'load_ratio': 4.0, 'client_ratio': 1.99}, 'replicas'),
    # A larger drive, which should serve more.
    ({'load_ratio': 2.99, 'weight_ratio': 2.0}, 'drive'),
    ({'load_ratio': 3.0, 'weight_ratio': 2.0}, 'load'),
    ({'load_ratio': 2.99, 'weight_ratio': 2.0, 'clients': loads(a=50), 'objects': objects(x=40)},
     'drive'),
    ({'load_ratio': 8.0, 'weight_ratio': 2.0, 'client_ratio': 4.0}, 'load'),
    ({'load_ratio': 8.0, 'weight_ratio': 2.0, 'client_ratio': 3.99}, 'replicas'),
    ({'load_ratio': 4.0, 'clients': loads(a=30, b=20)}, 'client'),
    ({'load_ratio': 4.0, 'clients': loads(a=30, b=19)}, 'load'),
    ({'load_ratio': 4.0, 'clients': loads(a=50)}, 'pool'),
    ({'load_ratio': 4.0, 'clients': loads(a=49)}, 'load'),
    ({'load_ratio': 4.0, 'clients': loads(a=50), 'objects': objects(x=25)}, 'object'),
    ({'load_ratio': 4.0, 'clients': loads(a=50), 'objects': objects(x=24)}, 'pool'),
    ({'load_ratio': 4.0, 'clients': loads(a=49), 'objects': objects(x=49)}, 'load'),
    ({'work_known': False, 'fullness': 'full'}, 'full')])
def test_the_limits_of_causes(seen: Dict[str, Any], code: str) -> None:
    assert [cause.code for cause in causes(replace(USUAL, **seen))] == [code]


def test_an_osd_of_unknown_work_has_no_slow_drive() -> None:
    assert causes(replace(USUAL, work_known=False)) == ()


@pytest.mark.parametrize('ratio, code', [(7.0, ['drive']), (7.01, [])])
def test_from_which_slowdown_on_an_osd_is_slow(ratio: float, code: List[str]) -> None:
    assert [cause.code for cause in causes(replace(USUAL, ratio=ratio))] == code


def test_a_pool_and_an_object_without_a_known_name() -> None:
    rows = [*loads(a=60), ClientLoad('b', 'x', 2, 5, 140), ClientLoad('b', 'x', 2, 6, 999)]
    pool, = causes(OsdEvidence(5, STORE, load_ratio=3.0, clients=[
        *rows, ClientLoad('c', 'y', 2, 5, 140)]))
    assert (pool.text, pool.evidence) == (
        'it serves 3.0 times the operations of its peers; 82 % are of pool 2',
        {'load_ratio': 3.0, 'pool': '2', 'share': 0.824})
    hot, = causes(OsdEvidence(5, STORE, load_ratio=3.456, clients=loads(a=300), objects=[
        ObjectLoad('x', 1, 5, 200), ObjectLoad('x', 2, 5, 40), ObjectLoad('y', 1, 6, 999)]))
    assert hot.text == ('it serves 3.5 times the operations of its peers; 67 % are on object x of '
                        'pool 1')
    assert hot.unnamed == ('it serves 3.5 times the operations of its peers; 67 % are on one object'
                           ' of pool 1')
    assert hot.evidence == {'load_ratio': 3.46, 'object': 'x', 'pool': '1', 'share': 0.667}
    client, = causes(OsdEvidence(5, STORE, load_ratio=3.0, clients=loads(a=200, b=100)))
    assert client.evidence['share'] == 0.667
    assert client.unnamed == ('it serves 3.0 times the operations of its peers; one client sends '
                              '67 % of the operations')


@pytest.mark.parametrize('ops, share', [
    ((25, 25), 0.5), ((25, 24), None), ((30, 19), None), ((40, 10), 0.8), ((24, 13, 13), None)])
def test_from_which_share_on_a_client_is_heavy(ops: Sequence[int], share: Optional[float]) -> None:
    heavy = heavy_clients(loads(**{'c%d' % number: count for number, count in enumerate(ops)}))
    assert [(row.client, row.share, row.ops) for row in heavy] == (
        [] if share is None else [('c0', share, ops[0])])


def test_texts_give_the_evidence() -> None:
    client, = causes(OsdEvidence(5, STORE, load_ratio=3.0,
                                 clients=loads(client_7=900, client_2=100)))
    assert client.text == ('it serves 3.0 times the operations of its peers; '
                           'client.7 (10.0.0.0:0/1) sends 90 % of the operations')
    assert client.evidence == {'load_ratio': 3.0, 'client': 'client.7',
                               'address': '10.0.0.0:0/1', 'share': 0.9}
    pool, = causes(OsdEvidence(5, STORE, load_ratio=3.0, pool_names={1: 'rbd'},
                               clients=loads(client_1=400, client_2=400, client_3=300)))
    assert pool.evidence == {'load_ratio': 3.0, 'pool': 'rbd', 'share': 1.0}
    hot, = causes(OsdEvidence(5, STORE, load_ratio=3.0, pool_names={1: 'rbd'},
                              clients=loads(client_1=1000), objects=objects(header=1010)))
    assert hot.text == ('it serves 3.0 times the operations of its peers; 100 % are on object '
                        'header of pool rbd')
    assert hot.evidence == {'load_ratio': 3.0, 'object': 'header', 'pool': 'rbd', 'share': 1.0}
    scrub, = causes(OsdEvidence(5, STORE, work=work('deep_scrub')))
    assert scrub.text == 'deep scrub of 1 PG' and scrub.evidence == {'pgs': 1, 'peers_pgs': 0.0}
    recovery, = causes(OsdEvidence(5, STORE, work=(ExtraWork('recovery', 5, 2.0, True),)))
    assert recovery.text == 'recovery of 5 PGs (median of its peers 2)'
    replicas, = causes(OsdEvidence(5, STORE, load_ratio=3.0, client_ratio=1.1))
    assert replicas.text == ('it serves 3.0 times the operations of its peers, mostly of PGs with '
                             'other primaries')
    assert replicas.evidence == {'load_ratio': 3.0, 'client_load_ratio': 1.1}
    compaction, = causes(OsdEvidence(5, STORE, kv_writes=COMPACTION))
    assert compaction.text == ('compaction of its RocksDB: it writes 8.0 MiB/s to SST files '
                               '(WAL 0.5 MiB/s; median of its peers 0.1 MiB/s)')
    assert compaction.evidence == {'sst_bytes_per_second': 8 * MIB, 'wal_bytes_per_second': MIB / 2,
                                   'peers_sst_bytes_per_second': round(0.1 * MIB)}


def test_the_text_of_a_shared_part() -> None:
    device, = causes(replace(USUAL, shared=HOST._replace(part=('device', 'h1:nvme0'), size=5)))
    assert device.text == ('4 of 5 OSDs on device h1:nvme0 are slow: check this device (SMART, '
                           'kernel log)')
    assert device.evidence == {'device': 'h1:nvme0', 'osds': [4, 5, 6, 7]}
    host, = causes(replace(USUAL, shared=HOST._replace(devices=('h1:nvme0',))))
    assert host.text == (
        '4 of 4 OSDs on host h1 are slow: check device h1:nvme0, which all of them share; check '
        'its CPU, memory, disk controller and network')
    assert host.evidence == {'host': 'h1', 'osds': [4, 5, 6, 7], 'devices': ['h1:nvme0']}


def test_the_load_of_another_osd_names_nobody() -> None:
    elsewhere = [row._replace(osd=6) for row in loads(client_1=900, client_2=100)]
    found, = causes(OsdEvidence(5, STORE, load_ratio=3.0, clients=elsewhere))
    assert found.code == 'load'


@pytest.mark.parametrize('ops, named', [
    ({'client_1': 900, 'client_2': 100}, ['client.1']), ({'client_1': 900}, []), ({}, []),
    ({'client_1': 490, 'client_2': 300, 'client_3': 300}, []), ({'a': 40, 'b': 1}, [])])
def test_one_heavy_client_among_others(ops: Dict[str, int], named: List[str]) -> None:
    rows = loads(**ops)
    # It sends to many OSDs.
    rows = [row._replace(osd=osd, ops=row.ops // 2) for row in rows for osd in (1, 2)]
    assert [each.client for each in heavy_clients(rows)] == named


def place(osd: int, device_class: str = 'ssd') -> OsdPlace:
    return OsdPlace(osd, 'h%d' % osd, 'default', device_class, '', '')


def test_what_rocksdb_writes_is_compared_with_the_peers() -> None:
    places = {**{osd: place(osd) for osd in range(4)}, 9: place(9, 'hdd')}
    readings = [(100.0 + 5 * beat, {
        0: KvBytes(9000 * beat, 500 * beat), 1: KvBytes(500 * beat, 500 * beat),
        2: KvBytes(1000 * beat, 0), 3: KvBytes(1 << 30, 0), 9: KvBytes(10 ** 6 * beat, 0)})
        for beat in range(3)]
    found = kv_writes(readings, places)
    assert found == {
        0: KvWrites(1800.0, 100.0, 100.0), 1: KvWrites(100.0, 100.0, 200.0),
        2: KvWrites(200.0, 0.0, 100.0), 3: KvWrites(0.0, 0.0, 200.0),
        9: KvWrites(200000.0, 0.0, 0.0)}
    three = {osd: place(osd) for osd in range(3)}
    assert kv_writes(readings, three)[0].peers_sst == 150.0
    assert kv_writes(readings[:1], places) == {}
    # Since the restart of the OSD, before which it had written more.
    assert 0 not in kv_writes([(90.0, {0: KvBytes(10 ** 9, 10 ** 9)}), *readings], places)


def watched(places: Dict[int, OsdPlace], **readings: Any
            ) -> Tuple[state.WatchState, state.WatchContext]:
    watch = state.WatchState()
    context = state.WatchContext(1e9, Signals(PgCounts()), OsdMap(
        9, frozenset(), {}, {}, {}, {}, {}), lambda pgid: None, 5.0)
    watch.update(context, Readings(5.0, {}, (), places, **readings), OPTIONS)
    return watch, context


def working(code: str, **numbers: int) -> Dict[int, PgCounts]:
    """Of six OSDs, without the others of them: osd1=2 works on two PGs."""
    return {osd: PgCounts(total=9, **{code: numbers['osd%d' % osd]}) for osd in range(6)
            if 'osd%d' % osd in numbers}


def test_work_is_compared_with_that_of_the_peers() -> None:
    """Recovery of all OSDs but one: what five recover is no cause of one of them."""
    places = {**{osd: place(osd) for osd in range(6)}, 9: place(9, 'hdd')}
    counts = working('recovering', osd0=2, osd1=2, osd2=2, osd3=3, osd4=4)
    watch, context = watched(places, osd_counts={})
    add(watch, context, 1e9, places, {**counts, 9: PgCounts(total=9, recovering=1)})
    slow_since(watch, 1e9)
    assert {osd: [(cause.code, cause.evidence) for cause in watch.causes_of(osd, context)]
            for osd in (0, 3, 4, 5, 9)} == {
        0: [], 3: [], 4: [('recovery', {'pgs': 4, 'peers_pgs': 2.0})], 5: [],
        9: [('recovery', {'pgs': 1, 'peers_pgs': 0.0})]}


def add(watch: state.WatchState, context: state.WatchContext, now: float,
        places: Dict[int, OsdPlace], counts: Dict[int, PgCounts], unreported: int = 0) -> None:
    watch.update(replace(context, now=now, signals=Signals(PgCounts(unreported=unreported))),
                 Readings(5.0, {}, (), places, osd_counts=counts), OPTIONS)


def test_deletion_of_pgs_is_a_cause() -> None:
    """At the end of an expansion all PGs are clean, and one OSD still deletes PGs."""
    places = {osd: place(osd) for osd in range(6)}
    watch, context = watched(places, osd_counts={})
    deleting: List[Tuple[float, List[int]]] = [(1e9 + 5, []), (1e9 + 10, [3]), (1e9 + 15, [3])]
    for now, osds in deleting:
        counters = OsdCounters(now, NO_OPS, NO_OPS, NO_OPS, NO_OPS, deleting=40)
        watch.update(replace(context, now=now), Readings(
            5.0, dict.fromkeys(osds, counters), (), places, osd_counts={}), OPTIONS)
    slow_since(watch, 1e9 + 12)
    assert {osd: [(cause.code, cause.text) for cause in watch.causes_of(osd, context)]
            for osd in (2, 3)} == {2: [], 3: [('deletion', 'deletion of 40 PGs')]}


def test_a_cold_cache_is_a_cause_of_slow_reads() -> None:
    cold = OsdEvidence(5, {'reads': 3.0, 'store reads': 4.0}, restarted_seconds=300.4)
    cause, = causes(cold)
    assert cause == ('restart', 'it was restarted 5 min ago, so its cache is cold',
                     {'seconds': 300}, '')
    assert [cause.code for cause in causes(replace(
        cold, slowdowns={'store commits': 4.0, 'reads': 1.0}))] == ['drive']


def test_a_restart_is_no_cause_if_the_osd_was_slow_before() -> None:
    places = {osd: place(osd) for osd in range(6)}
    watch, context = watched(places, osd_counts={})
    for now, number in ((1e9 + 5, 900), (1e9 + 10, 900), (1e9 + 15, 3)):
        counters = OsdCounters(now, Ops(number, number), NO_OPS, NO_OPS, NO_OPS)
        watch.update(replace(context, now=now), Readings(
            5.0, {3: counters}, (), places, osd_counts={}), OPTIONS)
    watch.slow.slowdowns = lambda osd: {'reads': 3.0}  # type: ignore
    for since, expected in ((1e9 - 46.0, []), (1e9 - 45.0, ['restart'])):
        slow_since(watch, since)
        assert [cause.code for cause in watch.causes_of(
            3, replace(context, now=1e9 + 60))] == expected


def slow_since(watch: state.WatchState, since: float) -> None:
    watch.slow.verdicts = {osd: OsdVerdict(osd, 3.0, True, since) for osd in watch.places}


#: Seconds -> PGs that OSDs backfill: all of them begin together, and osd.0 ends last.
LONGEST = [(0, {}), (5, {0: 2, 1: 2, 2: 1, 3: 2, 4: 2, 5: 1}), (60, {0: 1, 3: 1, 4: 2, 5: 1}),
           (120, {0: 1, 3: 1}), (300, {0: 1})]
#: It alone backfills.
ALONE: List[Tuple[int, Dict[int, int]]] = [
    (0, {}), (95, {}), (100, {0: 2}), (105, {0: 2}), (110, {0: 1})]


@pytest.mark.parametrize('rows, slow, causes_now', [
    # It was slow before; it became slow while all of them copied, and copies longest.
    (LONGEST, -600, []), (LONGEST, 30, []),
    (ALONE, -600, []), (ALONE, 50, []), (ALONE, 98, ['backfill']), (ALONE, 106, ['backfill']),
    # A pause, and the end of the first backfill long before the second.
    (ALONE + [(130, {}), (150, {0: 1})], 106, ['backfill']),
    (ALONE + [(130, {}), (180, {0: 1})], 106, []),
    (ALONE + [(130, {})], 106, []),
    # Readings that are far apart, as with 100,000 PGs.
    ([(0, {}), (200, {0: 2}), (400, {0: 2}), (600, {0: 1})], 390, ['backfill']),
    ([(0, {}), (200, {0: 2}), (400, {}), (600, {0: 1})], 390, []),
    # Before the first reading, as after a failover.
    (ALONE[2:], 106, ['backfill'])])
def test_work_that_begins_later_is_no_cause(rows: Sequence[Tuple[int, Dict[int, int]]], slow: int,
                                            causes_now: List[str]) -> None:
    """A slow OSD copies longest, so at the end it alone copies."""
    places = {osd: place(osd) for osd in range(6)}
    watch, context = state.WatchState(), watched(places)[1]
    for seconds, numbers in rows:
        add(watch, context, 1e9 + seconds, places,
            working('backfilling', **{'osd%d' % osd: pgs for osd, pgs in numbers.items()}))
    slow_since(watch, 1e9 + slow)
    assert [cause.code for cause in watch.causes_of(0, context)] == causes_now


def test_work_that_begins_with_the_slowness_does_not_make_it_the_drive(
        monkeypatch: pytest.MonkeyPatch) -> None:
    """What has begun after second 90 may have made an OSD slow that was noticed as late as second
    115, and so counts as slow since second 85."""
    places = {osd: place(osd) for osd in range(6)}
    watch, context = state.WatchState(), watched(places)[1]
    monkeypatch.setattr(watch.slow, 'slowdowns', lambda osd: STORE)
    for seconds, numbers in ALONE:
        add(watch, context, 1e9 + seconds, places, working('backfilling', **{
            'osd%d' % osd: pgs for osd, pgs in numbers.items()}))
    causes_by_time = {}
    for slow in (59, 60, 85, 89, 90):
        slow_since(watch, 1e9 + slow)
        causes_by_time[slow] = [cause.code for cause in watch.causes_of(0, context)]
    assert causes_by_time == {59: ['drive'], 60: [], 85: [], 89: [], 90: ['backfill']}


@pytest.mark.parametrize('unreported', [False, True])
def test_after_a_failover_the_beginning_of_work_is_not_known(
        unreported: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor is it before the first reading, when some PGs have not been reported yet."""
    places = {osd: place(osd) for osd in range(6)}
    watch, context = state.WatchState(), watched(places)[1]
    monkeypatch.setattr(watch.slow, 'slowdowns', lambda osd: STORE)
    for seconds, numbers in ((100, {} if unreported else {'osd0': 2}), (105, {'osd0': 2})):
        add(watch, context, 1e9 + seconds, places, working('backfilling', **numbers),
            unreported=3 if unreported and seconds == 100 else 0)
        slow_since(watch, 1e9)
        assert watch.causes_of(0, context) == ()
    add(watch, context, 1e9 + 110, places, {})
    slow_since(watch, 1e9)
    assert [cause.code for cause in watch.causes_of(0, context)] == ['drive']


@pytest.mark.parametrize('ops, cause', [
    ([300, 60, 60, 60], 'pool'), ([60, 60, 60, 60], 'replicas'),
    # Too few of the peers to say so.
    ([300, 40, 40, 40], 'pool'), ([40, 40, 40, 40], 'load')])
def test_clients_on_a_replica_are_not_the_cause_of_its_load(
        monkeypatch: pytest.MonkeyPatch, ops: List[int], cause: str) -> None:
    rows = tuple(ClientLoad('client.1', '', 1, osd, number) for osd, number in enumerate(ops))
    watch, context = watched({osd: place(osd) for osd in range(4)}, client_loads=rows)
    monkeypatch.setattr(watch.slow, 'load_ratio', lambda osd: 3.0)
    assert [each.code for each in watch.load_of(0, context)] == [cause]


class Passes(Dict[int, float]):
    """Heartbeat ping times that count how often all of them are looked at."""
    number = 0

    def values(self) -> Any:
        self.number += 1
        return super().values()

    def items(self) -> Any:
        self.number += 1
        return super().items()


def test_the_pings_of_all_osds_are_looked_at_once_for_all_slow_ones() -> None:
    """With 10,000 OSDs, of which 400 in one rack are slow, each pass takes a millisecond."""
    ping_ms = Passes(pings(osd1=80.0, osd2=80.0, osd3=80.0))
    watch, context = watched({osd: place(osd) for osd in range(12)}, ping_ms=ping_ms,
                             peer_ping_ms={osd: dict(ping_ms) for osd in range(12)})
    slow_since(watch, 1e9)
    before = ping_ms.number
    codes = [cause.code for osd in (1, 2, 3) for cause in watch.causes_of(osd, context)]
    assert codes == ['network'] * 3 and ping_ms.number - before <= 2


def test_what_all_slow_osds_share_is_computed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 1,000 OSDs hundreds may be slow: those of a rack."""
    calls: List[int] = []

    def counted(_: Any, places: Dict[int, OsdPlace]) -> Dict[int, KvWrites]:
        calls.append(len(places))
        return {}

    monkeypatch.setattr(state, 'kv_writes', counted)
    watch = state.WatchState()
    osdmap = OsdMap(9, frozenset(), {}, {}, {}, {}, {})
    context = state.WatchContext(1e9, Signals(PgCounts()), osdmap, lambda pgid: None, 5.0)
    for _ in range(3):
        watch.update(context, Readings(5.0, {}, (), {osd: place(osd) for osd in range(9)}),
                     OPTIONS)
        for osd in range(9):
            watch.causes_of(osd, context)
    assert calls == [9, 9, 9]
