# SPDX-License-Identifier: LGPL-2.1-or-later
"""The cluster in memory with what probes need: pools, users, objects, and workers as children."""
import errno
import json
from dataclasses import replace
from typing import (Any, ClassVar, Dict, Iterator, List, Mapping, NamedTuple, Optional, Sequence,
                    Set, Tuple)

from perfguard.cluster.types import ConfigEntry, Json, OsdMap, PgCounts, Placement, Pool, Signals
from perfguard.codec import encode
from perfguard.options import Options
from perfguard.probe import run as proberun
from perfguard.probe.placement import all_names, with_objects
from perfguard.probe.types import NAMESPACE
from perfguard.probe.worker.protocol import ALIVE, SWEEP, WorkerRequest, request_from_json

from . import probe_runs
from .cluster import FakeCluster, FakeView
from .driver import OPTIONS, Driver

#: (pool, namespace, name)
Object = Tuple[str, str, str]
#: What is there before any probe, and has to be there after it.
FOREIGN_OBJECTS: Set[Object] = {
    ('rep', '', 'perfguard-probe-1-4096-0'), ('rep', NAMESPACE, 'mine'), ('rep', '', 'x')}
FOREIGN_USERS = {'client.admin': 'A'}


class Answer(NamedTuple):
    retval: Optional[int]
    out: str = ''
    error: str = ''


class ProbeCluster(FakeCluster):
    """`reply`: command's prefix -> how it is answered instead of being carried out."""
    newest: ClassVar['ProbeCluster']

    def __post_init__(self) -> None:
        self.objects: Set[Object] = set(FOREIGN_OBJECTS)
        self.users: Dict[str, str] = dict(FOREIGN_USERS)
        self.made: Dict[str, Pool] = {}
        #: Options of these pools.
        self.pool_options: Dict[str, Json] = {}
        self.workers: List['FakeWorker'] = []
        self.reply: Dict[str, Answer] = {}
        self.before_command: Dict[str, Any] = {}
        #: Objects cannot be removed.
        self.stuck = False
        #: PGs of the pools of runs that backfill.
        self.moving = 0
        #: Such PGs that the balancer has moved -> their OSD.
        self.balanced: Dict[str, int] = {}
        #: What a worker does: see FakeWorker.
        self.behaviour = 'good'
        ProbeCluster.newest = self
        super().__post_init__()
        self.mon_before = dict(self.mon_config)
        self.flags_before = frozenset(self.flags)

    def worker(self, argv: Sequence[str]) -> 'FakeWorker':
        if self.behaviour == 'missing':
            raise FileNotFoundError(2, 'No such file or directory')
        self.workers.append(FakeWorker(self))
        return self.workers[-1]

    def kill_workers(self) -> None:
        for worker in self.workers:
            worker.status = -9

    def is_untouched(self) -> bool:
        return (self.objects == FOREIGN_OBJECTS and self.users == FOREIGN_USERS
                and not self.made and self.mon_config == self.mon_before
                and self.flags == self.flags_before)

    # ---- cluster.ports.Cluster

    def _view(self) -> FakeView:
        view = super()._view()
        pools = {**view.osdmap.pools, **{pool.id: pool for pool in self.made.values()}}
        placed = {'%d.%x' % (pool.id, seed): Placement((seed % self.hosts,), (seed % self.hosts,))
                  for pool in self.made.values() for seed in range(pool.pg_num)}
        moved = {pgid: Placement((osd,), (osd,)) for pgid, osd in self.balanced.items()}
        items = {pgid: ((placed[pgid].up[0], osd),) for pgid, osd in self.balanced.items()
                 if pgid in placed}
        return FakeView(replace(view.osdmap, pools=pools, upmap_items={
            **view.osdmap.upmap_items, **items}), view.crush_version,
            {**view.placements, **placed, **moved})

    def signals(self, osdmap: OsdMap) -> Signals:
        clean = {pool.id: PgCounts(total=pool.pg_num, active_clean=pool.pg_num)
                 for pool in osdmap.pools.values()}
        moving = {pool.id: PgCounts(total=pool.pg_num, active_clean=pool.pg_num - self.moving,
                                    backfilling=self.moving) for pool in self.made.values()}
        found = super().signals(osdmap)
        counts = replace(found.counts, backfilling=found.counts.backfilling + sum(
            each.backfilling for each in moving.values()))
        return replace(found, counts=counts, pool_counts={**clean, **moving})

    def config_entries(self) -> Optional[Tuple[ConfigEntry, ...]]:
        mine = tuple(ConfigEntry('mon', '', *item) for item in self.mon_config.items())
        return (super().config_entries() or ()) + mine

    def run(self, commands: Sequence[Mapping[str, Any]]) -> List[Any]:
        answers: List[Any] = []
        for command in commands:
            self.before_command.get(command['prefix'], lambda: None)()
            if command['prefix'] in self.reply:
                self.sent.append(dict(command))
                answers.append(self.reply[command['prefix']])
            elif command['prefix'] in COMMANDS and command.get('var') != 'pg_autoscale_mode':
                self.fault.step()
                self.sent.append(dict(command))
                self.epoch += 1
                answers.append(COMMANDS[command['prefix']](self, command))
            else:
                answers += [Answer(each.retval, '', each.error) for each in super().run([command])]
        return answers

    def create(self, command: Mapping[str, Any]) -> Answer:
        name, pg_num = command['pool'], command['pg_num']
        if name in self.made:
            return Answer(0, '', "pool '%s' already exists" % name)
        self.made.setdefault(name, Pool(7 + len(self.made), name, False, 3, 2, 0, pg_num, pg_num,
                                        pg_num))
        self.pool_options[name] = {'target_size_bytes': command.get('target_size_bytes', 0)}
        return Answer(0)

    def list_pools(self, command: Mapping[str, Any]) -> Answer:
        return Answer(0, json.dumps([{'pool_name': name, 'options': self.pool_options.get(name, {})}
                                     for name in self.made]))

    def allowed(self, option: str) -> bool:
        return self.mon_config.get(option) == 'true'

    def set_pool(self, command: Mapping[str, Any]) -> Answer:
        one = command['var'] == 'size' and command['val'] == '1'
        if one and not self.allowed('mon_allow_pool_size_one'):
            return Answer(-errno.EPERM, '', 'you must set mon_allow_pool_size_one')
        return Answer(0)

    def remove(self, command: Mapping[str, Any]) -> Answer:
        name = command['pool']
        if name in self.made:
            if not self.allowed('mon_allow_pool_delete'):
                return Answer(-errno.EPERM, '', 'you must set mon_allow_pool_delete')
            del self.made[name]
            self.objects = {each for each in self.objects if each[0] != name}
        return Answer(0)

    def add_user(self, command: Mapping[str, Any]) -> Answer:
        key = self.users.setdefault(command['entity'], 'K')
        return Answer(0, json.dumps([{'entity': command['entity'], 'key': key}]))

    def remove_user(self, command: Mapping[str, Any]) -> Answer:
        self.users.pop(command['entity'], None)
        return Answer(0)


COMMANDS: Dict[str, Any] = {
    'osd pool create': ProbeCluster.create, 'osd pool set': ProbeCluster.set_pool,
    'osd pool ls': ProbeCluster.list_pools,
    'osd pool application enable': lambda cluster, command: Answer(0),
    'osd pool rm': ProbeCluster.remove, 'auth get-or-create': ProbeCluster.add_user,
    'auth rm': ProbeCluster.remove_user}


class FakeWorker:
    """probe.child.Child with a worker that takes one step each time its output is read.

    Behaviours: "good"; "deaf" (hangs in its first step and ignores its input), "dies" there,
    "refused" (cannot connect), "babbles" (prints invalid lines), "leaves" (cannot remove objects).
    """

    def __init__(self, cluster: ProbeCluster) -> None:
        self.cluster = cluster
        self.status: Optional[int] = None
        self.last_words = 'the worker was killed by SIGKILL'
        self.cancelled = False
        #: Lines that show that the mgr is active.
        self.alive = 0
        self.request: Optional[WorkerRequest] = None
        self._life: Optional[Iterator[List[Any]]] = None

    def send(self, document: Mapping[str, Any]) -> None:
        if 'cancel' in document:
            self.cancelled = True
            return
        if document == ALIVE:
            self.alive += 1
            return
        self.request = request_from_json(json.loads(json.dumps(document)))
        assert self.cluster.users[self.request.entity] == self.request.key
        sweeping = self.request.mode == SWEEP
        self._life = self._sweep(self.request) if sweeping else self._work(self.request)

    def lines(self) -> List[Any]:
        assert self._life is not None
        return next(self._life, []) if self.status is None else []

    def ended(self, now: float) -> Optional[int]:
        return self.status

    def why(self) -> str:
        return self.last_words

    def hang_up(self) -> None:
        self.cancelled = True

    def kill(self) -> None:
        self.status = -9

    def wait(self, seconds: float) -> bool:
        if self.cluster.behaviour != 'deaf':
            while self.status is None:
                self.lines()
        return self.status is not None

    def close(self) -> None:
        """Nothing is open."""

    def _work(self, request: WorkerRequest) -> Iterator[List[Any]]:
        behaviour = self.cluster.behaviour
        if behaviour == 'refused':
            self.status = 1
            yield [{'type': 'error', 'errno': -13, 'message': 'no connection'},
                   {'type': 'end', 'state': 'failed'}]
            return
        yield []  # it connects
        assert request.naming is not None
        for index, step in enumerate(with_objects(request.steps, request.naming)):
            self.cluster.objects |= {(request.pool, NAMESPACE, name)
                                     for stream in step.streams for name in stream.objects}
            yield [{'type': 'step', 'index': index, 'state': 'run'}]
            if behaviour == 'babbles':
                yield [{'type': 'result', 'index': 99}, {'type': 'result', 'index': index},
                       {'type': 'cleaned', 'left': None}, {'type': 'cleaned'}, {},
                       {'type': 'step'}, {'type': 'step', 'index': -1, 'state': 'run'},
                       {'type': 'step', 'index': len(request.steps), 'state': 'run'}]
            while behaviour == 'deaf':
                yield []
            if behaviour == 'dies':
                self.last_words, self.status = 'Killed', 137
                yield []
            if self.cancelled:
                break
            found = probe_runs.result(step.job, [100] * len(step.streams))
            yield [{'type': 'result', 'index': index, 'result': encode(found)}]
        self.status = 0
        left = behaviour == 'leaves'
        if not left:
            self._remove(request)
        yield [{'type': 'cleaned', 'removed': 1, 'left': int(left)},
               {'type': 'end', 'state': 'cancelled' if self.cancelled else 'done'}]

    def _sweep(self, request: WorkerRequest) -> Iterator[List[Any]]:
        yield []  # it connects
        self.status = 0
        if self.cluster.stuck:
            yield [{'type': 'cleaned', 'removed': 0, 'left': 2, 'cursor': 0, 'total': 2}]
            return
        assert request.naming is not None, 'the mgr never lists a pool'
        removed = self._remove(request, set(all_names(request.naming)))
        yield [{'type': 'cleaned', 'removed': removed, 'left': 0, 'cursor': 1, 'total': 1},
               {'type': 'end', 'state': 'done'}]

    def _remove(self, request: WorkerRequest, names: Optional[Set[str]] = None) -> int:
        mine = {each for each in self.cluster.objects if each[:2] == (request.pool, NAMESPACE)
                and each[2].startswith(request.prefix) and (names is None or each[2] in names)}
        self.cluster.objects -= mine
        return len(mine)


def fake_children(monkeypatch: Any) -> None:
    """Workers belong to the newest cluster."""
    monkeypatch.setattr(proberun, 'Child', lambda argv: ProbeCluster.newest.worker(argv))


class ProbeDriver(Driver):
    cluster: ProbeCluster

    def __init__(self, cluster: Optional[ProbeCluster] = None,
                 options: Options = OPTIONS) -> None:
        super().__init__(cluster or ProbeCluster(), options)

    @property
    def listed(self) -> Dict[int, Json]:
        return {row['id']: row for row in self.loop.probed().listing()['probes']}

    def state(self, run: int) -> str:
        return str(self.listed[run]['state'])

    @property
    def busy(self) -> bool:
        return self.loop.probing.busy

    @property
    def affects_latency(self) -> bool:
        return self.loop.probing.affects_latency(self.cluster.now, self.cluster.stats_period())

    def finish(self, turns: int = 120) -> None:
        self.run_until(lambda: not self.busy, turns)

    def judged(self) -> None:
        """Until the loop knows what the comparison with a baseline has found."""
        self.run(2)

    def told(self, kind: str) -> List[str]:
        return [event['what'] for event in self.loop.published.events if event['kind'] == kind]
