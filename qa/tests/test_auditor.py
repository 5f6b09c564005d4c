# SPDX-License-Identifier: LGPL-2.1-or-later
"""The auditor of the other tests: it notices each change that it does not name as legitimate."""
import copy
from typing import Any, Dict, Iterator, List, Tuple

import pytest

from qa.cluster import Cluster
from qa.lib import auditor
from qa.lib.auditor import audit, placement
from qa.lib.guard import Guard

pytestmark = [pytest.mark.releases('pacific', 'reef', 'tentacle', quick='tentacle'),
              pytest.mark.shares('campaign')]

#: What the auditor reads of the mons.
COMMANDS = ('osd dump', 'osd crush dump', 'config dump', 'auth ls', 'config-key dump')
BALANCER = {'active': True, 'mode': 'upmap'}
SKIPPED = {**auditor.MAP_SKIPPED, **auditor.POOL_SKIPPED, **auditor.OSD_SKIPPED}
#: What `config dump` says of an option besides its section, mask, name and value.
DETAILS = {'level', 'can_update_at_runtime', 'location_type', 'location_value'}
#: A key whose value changes, and a weight that an operator gives.
KEY, WEIGHT = 'mine', 1.1

Path = Tuple[Any, ...]


class Recorded(Cluster):
    """Answers with the documents of a real cluster, of which a value may be another one."""

    def __init__(self, documents: Dict[str, Any]) -> None:
        self.documents = documents

    def mon(self, prefix: str, **args: Any) -> Any:
        return self.documents[prefix]


def leaves(document: Any, path: Path = ()) -> Iterator[Path]:
    rows: List[Tuple[Any, Any]] = list(
        document.items() if isinstance(document, dict)
        else enumerate(document) if isinstance(document, list) else ())
    if not rows:
        yield path
    for key, value in rows:
        yield from leaves(value, (*path, key))


def changed(documents: Dict[str, Any], path: Path) -> Dict[str, Any]:
    *parents, last = path
    found = {**documents, path[0]: copy.deepcopy(documents[path[0]])}
    inner = found
    for key in parents:
        inner = inner[key]
    inner[last] = (inner[last] + 3 if isinstance(inner[last], (int, float))
                   else inner[last] + '3' if isinstance(inner[last], str)
                   else {'3': {}} if isinstance(inner[last], dict) else ['3'])
    return found


def seen(documents: Dict[str, Any]) -> Any:
    cluster = Recorded(documents)
    return audit(cluster, BALANCER), placement(cluster)


def named(documents: Dict[str, Any], path: Path) -> bool:
    """Whether the auditor says that a value may change."""
    command, *inner = path
    if command == 'osd dump':
        return bool(set(inner) & set(SKIPPED))
    if command == 'config-key dump':
        return str(inner[0]).startswith(tuple(auditor.KEYS_SKIPPED))
    if command == 'config dump':
        return (inner[1] in DETAILS or documents[command][inner[0]]['name'].startswith(
            tuple(auditor.OPTIONS_SKIPPED)))
    return (command == 'auth ls' and documents[command][inner[0]][inner[1]]['caps']
            == auditor.OSD_CAPS)


def test_each_other_value_is_compared(guard: Guard) -> None:
    cluster = guard.cluster
    cluster.mon('config-key set', key=KEY, val='1')
    try:
        documents = {command: cluster.mon(command) for command in COMMANDS}
    finally:
        cluster.mon('config-key rm', key=KEY)
    before, paths = seen(documents), list(leaves(documents))
    missed = [path for path in paths if seen(changed(documents, path)) == before]
    print('%d of %d values may change' % (len(missed), len(paths)))
    assert [path for path in missed if not named(documents, path)] == []
    assert len(missed) < len(paths) and seen(documents) == before


def config(verb: str, who: str, **value: str) -> Dict[str, Any]:
    return {'prefix': 'config ' + verb, 'who': who, 'name': 'osd_max_scrubs', **value}


def pool(name: str, value: str) -> Dict[str, Any]:
    return {'prefix': 'osd pool set', 'pool': 'rep', 'var': name, 'val': value}


def caps(of_mons: str) -> Dict[str, Any]:
    return {'prefix': 'auth caps', 'entity': 'client.bootstrap-mds', 'caps': ['mon', of_mons]}


#: Kind of a change -> the command, and the one that takes it back.
CHANGES: Dict[str, Tuple[Dict[str, Any], Dict[str, Any]]] = {
    'flag': ({'prefix': 'osd set', 'key': 'noscrub'}, {'prefix': 'osd unset', 'key': 'noscrub'}),
    'flag of an OSD': ({'prefix': 'osd set-group', 'flags': 'noout', 'who': ['osd.1']},
                       {'prefix': 'osd unset-group', 'flags': 'noout', 'who': ['osd.1']}),
    'flag of a host': ({'prefix': 'osd set-group', 'flags': 'noout', 'who': ['host1']},
                       {'prefix': 'osd unset-group', 'flags': 'noout', 'who': ['host1']}),
    'ratio': ({'prefix': 'osd set-nearfull-ratio', 'ratio': 0.84},
              {'prefix': 'osd set-nearfull-ratio', 'ratio': 0.85}),
    'weight of an OSD': ({'prefix': 'osd reweight', 'id': 1, 'weight': 0.9},
                         {'prefix': 'osd reweight', 'id': 1, 'weight': 1.0}),
    'primary affinity': ({'prefix': 'osd primary-affinity', 'id': 1, 'weight': 0.5},
                         {'prefix': 'osd primary-affinity', 'id': 1, 'weight': 1.0}),
    'option': (config('set', 'osd', value='3'), config('rm', 'osd')),
    'option with a mask': (config('set', 'osd/class:hdd', value='3'),
                           config('rm', 'osd/class:hdd')),
    'option of one daemon': (config('set', 'osd.1', value='3'), config('rm', 'osd.1')),
    'caps': (caps('allow r'), caps('allow profile bootstrap-mds')),
    'user': ({'prefix': 'auth add', 'entity': 'client.new', 'caps': ['mon', 'allow r']},
             {'prefix': 'auth rm', 'entity': 'client.new'}),
    'value of a config-key': ({'prefix': 'config-key set', 'key': KEY, 'val': '2'},
                              {'prefix': 'config-key set', 'key': KEY, 'val': '1'}),
    'setting of a pool': (pool('min_size', '1'), pool('min_size', '2')),
    'flag of a pool': (pool('nodelete', '1'), pool('nodelete', '0')),
    'autoscaler': (pool('pg_autoscale_mode', 'warn'), pool('pg_autoscale_mode', 'off')),
    'erasure code profile': (
        {'prefix': 'osd erasure-code-profile set', 'name': 'new', 'profile': ['k=2', 'm=1']},
        {'prefix': 'osd erasure-code-profile rm', 'name': 'new'}),
    'rule': ({'prefix': 'osd crush rule create-replicated', 'name': 'new', 'root': 'default',
              'type': 'osd'}, {'prefix': 'osd crush rule rm', 'name': 'new'}),
    'bucket': ({'prefix': 'osd crush add-bucket', 'name': 'new', 'type': 'rack'},
               {'prefix': 'osd crush rm', 'name': 'new'}),
    'weight set': ({'prefix': 'osd crush weight-set create-compat'},
                   {'prefix': 'osd crush weight-set rm-compat'}),
    'CRUSH weight': ({'prefix': 'osd crush reweight', 'name': 'osd.1', 'weight': WEIGHT},
                     {'prefix': 'osd crush reweight', 'name': 'osd.1', 'weight': 1.0}),
}


def test_each_kind_of_change_is_noticed(guard: Guard) -> None:
    cluster = guard.cluster

    def now() -> Any:
        return guard.foreign(), placement(cluster)

    cluster.mon('config-key set', key=KEY, val='1')
    try:
        before = now()
        for kind, (change, revert) in CHANGES.items():
            cluster.order([change])
            noticed = now() != before
            cluster.order([revert])
            assert noticed, kind
            assert now() == before, kind
    finally:
        cluster.mon('config-key rm', key=KEY)


def test_the_balancer_and_an_upmap_are_noticed(guard: Guard) -> None:
    cluster = guard.cluster
    before, settings = placement(cluster), guard.foreign()
    pg = next(pg for pg in cluster.pgs() if len(pg['up']) == 3)
    hosts = cluster.osd_hosts()
    other = next(osd for osd in cluster.osds()
                 if hosts[osd] not in {hosts[each] for each in pg['up']})
    cluster.mon('osd pg-upmap-items', pgid=pg['pgid'], id=[pg['up'][0], other])
    assert placement(cluster) != before
    cluster.mon('osd rm-pg-upmap-items', pgid=pg['pgid'])
    assert placement(cluster) == before
    cluster.mgr('balancer off')
    assert guard.foreign().balancer != settings.balancer
    cluster.mgr('balancer on')
    assert guard.foreign() == settings


def test_weights_of_some_osds_may_be_left_out(guard: Guard) -> None:
    cluster = guard.cluster
    before = placement(cluster, [0, 1])
    for osd in (1, 2):
        cluster.mon('osd crush reweight', name='osd.%d' % osd, weight=WEIGHT)
        assert (placement(cluster, [0, 1]) == before) == (osd == 1)
        cluster.mon('osd crush reweight', name='osd.%d' % osd, weight=1.0)
    assert placement(cluster, [0, 1]) == before
