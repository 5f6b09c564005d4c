# SPDX-License-Identifier: LGPL-2.1-or-later
"""What users with less than all caps may do, and what the mgr itself needs.

The commands are those that the mgr reports. test_dashboard_api.py tries the REST API with a
read-only user of the dashboard.
"""
import errno
import json
from typing import Any, Callable, Dict, Iterator, List, NamedTuple

import pytest
import rados

from qa.cluster import Cluster
from qa.lib.guard import Guard
from qa.lib.joins import crush_weights, order, wait_reported
from qa.lib.probes import SHORT, Probes

pytestmark = [pytest.mark.releases('pacific', 'reef', 'tentacle', quick=()),
              pytest.mark.shares('campaign')]

Ask = Callable[[Dict[str, Any]], int]
#: Values of required arguments by type.
VALUES: Dict[str, Any] = {'CephInt': 1, 'CephFloat': 1.0, 'CephBool': True}
CAPS = ['mon', 'allow r', 'mgr', 'allow r']
#: Those that Ceph's deployment tools give an mgr also have `mds 'allow *'`.
MGR_CAPS = ['mon', 'allow profile mgr', 'osd', 'allow *']


class Verb(NamedTuple):
    command: Dict[str, Any]
    writes: bool


def verbs(cluster: Cluster) -> List[Verb]:
    """Each command of perfguard, with its required arguments."""
    retval, out, error = cluster.mgr('get_command_descriptions')
    assert retval == 0, error
    found = []
    for row in json.loads(out).values():
        words = [word for word in row['sig'] if isinstance(word, str)]
        given = {arg['name']: value_of(arg) for arg in row['sig']
                 if isinstance(arg, dict) and str(arg.get('req', 'true')).lower() != 'false'}
        if words[:1] == ['perfguard']:
            found.append(Verb({'prefix': ' '.join(words), 'format': 'json', **given},
                              'w' in row['perm']))
    return found


def value_of(arg: Dict[str, Any]) -> Any:
    value = VALUES.get(arg['type'], 'osd.0')
    return [value] if arg.get('n') == 'N' else value


@pytest.fixture
def viewer(guard: Guard) -> Iterator[Ask]:
    """The retval of commands to the mgr by a user who may only read."""
    cluster = guard.cluster
    key = cluster.mon('auth get-or-create', entity='client.viewer', caps=CAPS)[0]['key']
    client = rados.Rados(conffile=str(cluster.conf_path), rados_id='viewer',
                         conf={'key': key, 'keyring': '/dev/null'})
    client.connect(timeout=20)

    def ask(command: Dict[str, Any]) -> int:
        retval, _, _ = client.mgr_command(json.dumps(command), b'', timeout=60)
        return int(retval)

    try:
        yield ask
    finally:
        client.shutdown()
        cluster.mon('auth rm', entity='client.viewer')


def test_a_user_with_read_access_changes_nothing(guard: Guard, viewer: Ask) -> None:
    cluster = guard.cluster
    before, keys = guard.foreign(), guard.store_keys()
    every = verbs(cluster)
    refused = [verb.command['prefix'] for verb in every if viewer(verb.command) == -errno.EACCES]
    writing = [verb.command['prefix'] for verb in every if verb.writes]
    print('%s: %d commands, %d refused' % (cluster.release.name, len(every), len(refused)))
    assert refused == writing and {'perfguard shutdown', 'perfguard drain'} <= set(refused)
    assert 'perfguard status' not in refused and len(refused) < len(every)
    assert guard.foreign() == before and guard.phase() == 'IDLE'
    assert {key.split('/')[0] for key in guard.store_keys()} <= {
        key.split('/')[0] for key in keys}
    # With full caps, the same command gets as far as its arguments.
    assert guard.ask('campaign pause')[0] not in (0, -errno.EACCES)
    assert not guard.tracebacks()


def test_the_mgr_needs_no_caps_for_mds(guard: Guard) -> None:
    """A campaign and a probe, with mgrs that have just the documented caps."""
    cluster = guard.cluster
    entities = [user['entity'] for user in cluster.mon('auth ls')['auth_dump']
                if user['entity'].startswith('mgr.')]
    found = {entity: cluster.mon('auth get', entity=entity)[0]['caps'] for entity in entities}
    try:
        for entity in entities:
            cluster.mon('auth caps', entity=entity, caps=MGR_CAPS)
        # Caps count from the next session on.
        cluster.restart_mgr()
        guard.wait_ready()
        added = cluster.add_osds(2, weight=0.0)
        wait_reported(guard)
        order(guard, 'expand', weight='1.0', what=['osd.%d' % osd for osd in added])
        done = guard.wait_phase('DONE', timeout=180)
        assert done['released'] == done['total'] > 0 and not done['unpinnable']
        assert all(crush_weights(cluster)[osd] == 1.0 for osd in added)
        cluster.wait_clean(60)
        probes = Probes(guard)
        assert probes.measure(rw='randwrite', **SHORT)
        assert probes.measure(pool='rep', osd='osd.2', rw='randrw', **SHORT)
        assert guard.get('held')['held'] == [] and not guard.tracebacks()
    finally:
        for entity, caps in found.items():
            cluster.mon('auth caps', entity=entity,
                        caps=[word for pair in caps.items() for word in pair])
        cluster.restart_mgr()
        guard.wait_ready()
