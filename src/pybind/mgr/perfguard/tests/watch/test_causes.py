# SPDX-License-Identifier: LGPL-2.1-or-later
"""The likely causes of a slow OSD, each named on its own evidence."""
from dataclasses import replace
from typing import Any, Dict, List, Sequence

import pytest

from perfguard.cluster.types import ClientLoad, ObjectLoad, PgCounts
from perfguard.watch.causes import OsdEvidence, causes, heavy_clients

STORE = {'reads': 6.0, 'writes': 5.0, 'store commits': 7.0, 'store reads': 1.0}
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


@pytest.mark.parametrize('seen, codes', [
    ({'host_slow': (4, 5, 6, 7)}, ['host']),
    ({'ping_ms': pings(osd5=80.0), 'slowdowns': PROCESS}, ['network']),
    ({'ping_ms': pings(osd4=70.0, osd5=80.0, osd6=90.0), 'slowdowns': PROCESS}, ['host_network']),
    ({'ping_ms': pings(osd5=80.0)}, ['cpu']),
    ({'ping_ms': pings(osd4=70.0, osd5=80.0, osd6=90.0)}, ['cpu']),
    ({'ping_ms': pings(osd4=70.0, osd6=90.0)}, ['drive']),
    ({'ping_ms': pings(osd5=9.0)}, ['drive']),
    ({'ping_ms': {osd: 30.0 for osd in range(12)}}, ['drive']),
    ({'ping_ms': {}}, ['drive']),
    ({'fullness': 'nearfull'}, ['full']),
    ({'counts': PgCounts(total=9, deep_scrubbing=1)}, ['deep_scrub']),
    ({'counts': PgCounts(total=9, snaptrim=2)}, ['snaptrim']),
    ({'counts': PgCounts(total=9, backfilling=2, recovering=1)}, ['backfill', 'recovery']),
    ({'load_ratio': 3.0, 'clients': loads(client_1=900, client_2=100)}, ['client']),
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
    # A store that measures nothing: which part of the OSD is slow is not known.
    ({'slowdowns': {'reads': 9.0, 'writes': 8.0}}, []),
    ({'slowdowns': {}}, []),
    ({'host_slow': (4, 5, 6, 7), 'counts': PgCounts(total=9, deep_scrubbing=1)},
     ['host', 'deep_scrub']),
])
def test_causes(seen: Dict[str, Any], codes: Sequence[str]) -> None:
    found = causes(replace(USUAL, **seen))
    assert [cause.code for cause in found] == codes
    assert all(cause.text and cause.evidence for cause in found)


def test_texts_give_the_evidence() -> None:
    client, = causes(OsdEvidence(5, STORE, load_ratio=3.0,
                                 clients=loads(client_7=900, client_2=100)))
    assert client.text == ('it serves 3.0 times the operations of its peers; '
                           'client.7 (10.0.0.0:0/1) sends 90% of the operations')
    assert client.evidence == {'load_ratio': 3.0, 'client': 'client.7',
                               'address': '10.0.0.0:0/1', 'share': 0.9}
    pool, = causes(OsdEvidence(5, STORE, load_ratio=3.0, pool_names={1: 'rbd'},
                               clients=loads(client_1=400, client_2=400, client_3=300)))
    assert pool.evidence == {'load_ratio': 3.0, 'pool': 'rbd', 'share': 1.0}
    hot, = causes(OsdEvidence(5, STORE, load_ratio=3.0, pool_names={1: 'rbd'},
                              clients=loads(client_1=1000), objects=objects(header=1010)))
    assert hot.text == ('it serves 3.0 times the operations of its peers; 100% are on object '
                        'header of pool rbd')
    assert hot.evidence == {'load_ratio': 3.0, 'object': 'header', 'pool': 'rbd', 'share': 1.0}
    scrub, = causes(OsdEvidence(5, STORE, counts=PgCounts(total=9, deep_scrubbing=1)))
    assert scrub.text == 'deep scrub of 1 PG' and scrub.evidence == {'pgs': 1}


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
