# SPDX-License-Identifier: LGPL-2.1-or-later
"""Runs probes on a test cluster, and records what they must not leave or change."""
import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Dict, List, Tuple

import rados

from perfguard.probe.types import NAMESPACE, PROBE_PREFIX
from qa.cluster import Cluster

from .auditor import Foreign, Placement, placement
from .guard import Guard, Json
from .writer import WRITTEN

#: Final states of runs.
ENDED = ('done', 'failed', 'cancelled', 'aborted')
#: Long enough for a run of some seconds on a busy machine.
RUN_SECONDS = 90.0
#: A job that takes a second and a few objects.
SHORT = {'bs': '4k', 'size': '1m', 'nrfiles': '16', 'runtime': '1', 'ramp_time': '0'}
#: On a small machine, probes slow clients down beyond their limit, which would end the probe.
PATIENT_CLIENTS = {'latency_factor': '100', 'latency_alarm_factor': '100'}
#: Foreign objects that look like those of a probe: (namespace, name).
LOOKALIKES = ((NAMESPACE, 'mine'), ('', PROBE_PREFIX + '1-65536-0'),
              ('other', PROBE_PREFIX + '1-65536-0'))


@dataclass(frozen=True)
class Traces:
    """State that must be the same before and after a probe."""
    foreign: Foreign
    placement: Placement
    #: SHA-256 of names and contents of all objects, by pool.
    objects: Tuple[Tuple[str, str], ...]


class Probes:
    #: Time for which a probe may be refused.
    settle_seconds = 40.0

    def __init__(self, guard: Guard) -> None:
        self.guard = guard
        self.cluster = guard.cluster

    # ---- Runs

    def begin(self, **args: Any) -> int:
        """Begin a run, repeatedly while the cluster settles; returns its id."""
        def begun() -> Any:
            retval, out, error = self.guard.ask('probe run', **args)
            refused.append(error)
            return retval == 0 and json.loads(out)

        refused: List[str] = []
        try:
            return int(self.cluster.wait(begun, self.settle_seconds, 'the probe to begin')['id'])
        except Exception as problem:
            raise AssertionError('%s; %s' % (problem, refused[-1:])) from problem

    def details(self, run: int) -> Json:
        found: Json = self.guard.get('probe show', run=run)
        return found

    def state(self, run: int) -> str:
        return str(self.details(run)['state'])

    def wait_state(self, run: int, *states: str) -> Json:
        self.cluster.wait(lambda: self.state(run) in (*states, *ENDED), RUN_SECONDS,
                          'probe %d to be %s' % (run, ' or '.join(states or ENDED)))
        found = self.details(run)
        assert not states or found['state'] in states, (found['state'], found['message'])
        return found

    def measure(self, **args: Any) -> Json:
        """The result of a complete run, whose jobs have operations and no errors."""
        found = self.wait_state(self.begin(**args), 'done')
        assert found['jobs']
        for job in found['jobs']:
            assert job['read']['total_ios'] + job['write']['total_ios'] > 0, job
            assert job['errors'] == job['corrupt'] == job['unfinished'] == job['error'] == 0, job
        return found

    def ids(self) -> List[int]:
        return [row['id'] for row in self.guard.get('probe ls')['probes']]

    def row(self, run: int) -> Json:
        """The row of `probe ls`."""
        found: Json = next(row for row in self.guard.get('probe ls')['probes']
                           if row['id'] == run)
        return found

    def plain(self, command: str, **args: Any) -> str:
        """The plain output."""
        retval, out, error = self.guard.ask(command, **{**args, 'format': 'plain'})
        assert retval == 0, (command, retval, error)
        return out

    def refused(self, command: str, errno: int, text: str, inbuf: str = '', **args: Any) -> None:
        """Checks that it is refused with this errno and one line that contains the text."""
        retval, out, error = self.cluster.command(
            'mgr', {'prefix': 'perfguard ' + command, 'format': 'json', **args}, inbuf.encode())
        assert (retval, out) == (-errno, ''), (command, args, retval, out, error)
        assert text in error and '\n' not in error.strip(), (command, args, error)

    def progress(self, run: int) -> List[str]:
        """The progress of the run in the status of the cluster."""
        events: Dict[str, Any] = self.cluster.mon('status').get('progress_events', {})
        return [event['message'] for event in events.values()
                if 'probe %d:' % run in event['message']]

    # ---- Traces

    def traces(self) -> Traces:
        return Traces(self.guard.foreign(), placement(self.cluster),
                      tuple(sorted((pool['pool_name'], digest(self.cluster, pool['pool_name']))
                                   for pool in self.cluster.osd_dump()['pools']
                                   if not pool['pool_name'].startswith('.'))))


def users(cluster: Cluster) -> List[str]:
    return [entry['entity'] for entry in cluster.mon('auth ls')['auth_dump']]


def workers(cluster: Cluster) -> Tuple[int, ...]:
    """The pids of the cluster's own probe workers."""
    found = []
    for entry in Path('/proc').iterdir():
        if entry.name.isdigit():
            try:
                line = (entry / 'cmdline').read_bytes().decode(errors='replace')
            except OSError:
                continue  # just gone
            if f'{cluster.directory}/' in line and 'probe/worker/__main__.py' in line:
                found.append(int(entry.name))
    return tuple(sorted(found))


def objects(cluster: Cluster, pool: str) -> Dict[Tuple[str, str], bytes]:
    """(namespace, name) -> content of all objects of a pool, without those of a Writer, which
    checks them itself."""
    found = {}
    with cluster.rados().open_ioctx(pool) as ioctx:
        ioctx.set_namespace(rados.LIBRADOS_ALL_NSPACES)
        names = [(each.nspace, each.key) for each in ioctx.list_objects()
                 if not each.key.startswith(WRITTEN)]
        for namespace, name in names:
            ioctx.set_namespace(namespace)
            found[namespace, name] = ioctx.read(name, 8 << 20)
    return found


def digest(cluster: Cluster, pool: str) -> str:
    """SHA-256 of the same objects."""
    return hashlib.sha256(repr(sorted(objects(cluster, pool).items())).encode()).hexdigest()


def put_lookalikes(cluster: Cluster, pool: str) -> None:
    with cluster.rados().open_ioctx(pool) as ioctx:
        for namespace, name in LOOKALIKES:
            ioctx.set_namespace(namespace)
            ioctx.write_full(name, b'not a probe\'s')
