# SPDX-License-Identifier: LGPL-2.1-or-later
"""How long a client stands still when one PG is released, and what shortens that.

    /usr/bin/python3 -m qa.bench.bench_release_stall [--release pacific] [--trials 5] [--json F]

A PG's up set is changed by pg-upmap-items: one replica is replaced (kind ``replica``), or the
first OSD (kind ``primary``). Two clients write to the PG, each with one write in flight: one that
does nothing else (``lone``), and one that also reads from other PGs (``busy``) and so gets new
OSDMaps from other OSDs. The stall is the sum of (latency - usual) of the writes that take more
than 30 ms, from the command until 3 s after the PG is clean. The variants differ in the mon's
paxos_propose_interval and paxos_min_wait, and in whether the acting set of before is sent as
pg_temp in the same burst (``primed``). They take turns, and each trial has a PG of its own. Plain
mon commands, no module.

With --refused: what becomes of a pg_temp whose upmap the mon refuses or drops, or that is wrong.
"""
import argparse
import itertools
import json
import statistics
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Callable, Dict, Iterator, List, Optional, Sequence, Tuple, Type

from qa.bench.one_op_client import OneOpClient, Run, Write
from qa.cluster import Cluster, ClusterError, CommandError

SLOW_SECONDS = 0.03
#: An op that hung at a client with an old OSDMap, rather than one that waited for peering.
HUNG_SECONDS = 8.0
#: Longer than the default proposal interval, so that a trial begins as a quiet mon would.
WARM_UP_SECONDS = 1.5
AFTER_CLEAN_SECONDS = 3.0
#: How long a wrong pg_temp is watched.
WRONG_SECONDS = 10.0
CLEAN_TIMEOUT = 30.0
#: A write that takes longer is waited for at the end, for long enough to see the objecter's
#: timeout of 10 s and its tick of 5 s.
LAST_WRITE_SECONDS = 0.3
HUNG_WRITE_SECONDS = 20.0
#: Each object 16 KiB: backfill is there, and short.
OBJECTS_PER_PG = 20
DATA = b'perfguard!' * 1638

KINDS = ('replica', 'primary')
POOLS: Dict[str, Optional[Tuple[int, int]]] = {'replicated': None, 'erasure': (2, 1)}

Set = List[int]


@dataclass(frozen=True)
class Variant:
    """What is done besides the upmap; intervals are in seconds, min_wait is Ceph's default."""

    interval: float
    primed: bool
    min_wait: float = 0.05


VARIANTS = {'default': Variant(1.0, False), 'primed': Variant(1.0, True),
            'fast25': Variant(0.25, False), 'fast': Variant(0.1, False),
            'fast+primed': Variant(0.1, True), 'wait+primed': Variant(0.1, True, 0.01),
            'faster+primed': Variant(0.02, True), 'fastest+primed': Variant(0.02, True, 0.005)}


@dataclass(frozen=True)
class Stall:
    """The stall of one client, in seconds; `lengths` are those of the slow writes."""

    stall: float
    lengths: List[float]
    usual: float


@dataclass(frozen=True)
class Trial:
    """One release; `clean` is the time until the new primary says so, None if it never did."""

    release: str
    pool: str
    kind: str
    variant: str
    pgid: str
    epochs: int
    clean: Optional[float]
    clients: Dict[str, Stall]


def judge(writes: Sequence[Write], command: float) -> Stall:
    """The stall of one client; `command` is when the PG was released."""
    usual = statistics.median(w.seconds for w in writes if w.begin + w.seconds < command)
    slow = [w.seconds for w in writes
            if w.begin + w.seconds >= command and w.seconds > SLOW_SECONDS]
    return Stall(sum(seconds - usual for seconds in slow), slow, usual)


class Pool:
    """A pool with data, of which every PG can be released once."""

    def __init__(self, cluster: Cluster, name: str, pg_num: int) -> None:
        self.cluster, self.name = cluster, name
        cluster.pool_create(name, pg_num, size=3, erasure=POOLS[name])
        self.names = [f'obj{i}' for i in range(OBJECTS_PER_PG * pg_num)]
        cluster.fill(name, len(self.names), len(DATA))
        cluster.wait_clean(60)
        self.objects = self._objects()
        #: PGs without upmap items, most objects first.
        self.fresh = sorted(self.objects, key=lambda pgid: -len(self.objects[pgid]))

    def _objects(self) -> Dict[str, List[str]]:
        found: Dict[str, List[str]] = {}
        for begin in range(0, len(self.names), 100):
            names = self.names[begin:begin + 100]
            replies = self.cluster.burst([
                {'prefix': 'osd map', 'pool': self.name, 'object': name, 'format': 'json'}
                for name in names])
            for name, (_, out, _) in zip(names, replies):
                found.setdefault(json.loads(out)['pgid'], []).append(name)
        return {pgid: names for pgid, names in found.items() if len(names) >= 2}

    def acting(self, pgid: str) -> Set:
        """The acting set of a PG that is not remapped."""
        found = self.cluster.mon('osd map', pool=self.name, object=self.objects[pgid][0])
        assert found['up'] == found['acting'], found
        return list(found['acting'])

    def free_osd(self, acting: Set) -> int:
        """An OSD on a host that has no part of the PG."""
        hosts = self.cluster.osd_hosts()
        taken = {hosts[osd] for osd in acting}
        free = [osd for osd in self.cluster.osds() if hosts[osd] not in taken]
        return free[acting[0] % len(free)]

    def is_clean(self, pgid: str, up: Set) -> bool:
        """Whether the PG has arrived, as its primary says."""
        query = {'prefix': 'pg', 'cmd': 'query', 'pgid': pgid, 'format': 'json'}
        try:
            ret, out, _ = self.cluster.command(f'osd.{up[0]}', query, timeout=1.0)
        except CommandError:
            return False  # not answered in time
        if ret < 0:
            return False
        found = json.loads(out)
        return (found['state'].split('+')[:2] == ['active', 'clean']
                and found['up'] == up and found['acting'] == up)


class StallClients:
    """The lone and the busy client of a pool, new ones when a write hangs."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._idle: Dict[str, OneOpClient] = {}
        self._hung: List[Tuple[OneOpClient, Run]] = []

    def __enter__(self) -> 'StallClients':
        return self

    def __exit__(self, kind: Optional[Type[BaseException]], error: Optional[BaseException],
                 trace: Optional[TracebackType]) -> None:
        self.wait_hung()
        for client in [*self._idle.values(), *(client for client, _ in self._hung)]:
            client.close()

    def start(self, pgid: str) -> Dict[str, Run]:
        """Write to a PG for long enough to measure its normal latency, and go on."""
        objects = self._pool.objects[pgid]
        runs = {name: self._client(name).run(written, DATA, objects)
                for name, written in zip(('lone', 'busy'), objects)}
        time.sleep(WARM_UP_SECONDS)
        return runs

    def stop(self, runs: Dict[str, Run]) -> None:
        """End the runs; a client whose write hangs is put aside."""
        for name, run in runs.items():
            if not run.stop(LAST_WRITE_SECONDS):
                self._hung.append((self._idle.pop(name), run))

    def wait_hung(self) -> None:
        """Give the writes that hang their time."""
        deadline = time.monotonic() + HUNG_WRITE_SECONDS
        for _, run in self._hung:
            run.stop(max(0.0, deadline - time.monotonic()))

    def _client(self, name: str) -> OneOpClient:
        if name not in self._idle:
            background = self._pool.names if name == 'busy' else ()
            self._idle[name] = OneOpClient(self._pool.cluster.conf_path, self._pool.name,
                                           background)
        return self._idle[name]


def upmap(pgid: str, source: int, target: int) -> Dict[str, Any]:
    return {'prefix': 'osd pg-upmap-items', 'pgid': pgid, 'id': [source, target]}


def prime(pgid: str, acting: Set) -> Dict[str, Any]:
    return {'prefix': 'osd pg-temp', 'pgid': pgid, 'id': acting}


class StallBench:
    """All trials on one cluster."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._set: Dict[str, float] = {}

    def set_options(self, variant: Variant) -> None:
        """Those of the mon; what it last proposed is then WARM_UP_SECONDS ago."""
        for name, seconds in (('paxos_propose_interval', variant.interval),
                              ('paxos_min_wait', variant.min_wait)):
            if seconds != self._set.get(name):
                self._cluster.mon('config set', who='mon', name=name, value=str(seconds))
                self._set[name] = seconds

    def trial(self, pool: Pool, clients: StallClients, kind: str,
              name: str) -> Callable[[], Trial]:
        """Release one PG; what is returned judges it, after clients.wait_hung."""
        variant, pgid = VARIANTS[name], pool.fresh.pop(0)
        acting = pool.acting(pgid)
        position = 0 if kind == 'primary' else len(acting) - 1
        target = pool.free_osd(acting)
        up = [*acting[:position], target, *acting[position + 1:]]
        self.set_options(variant)
        runs = clients.start(pgid)
        # pg_temp first: should the mon split the two, it drops one that equals the up set.
        commands = [prime(pgid, acting)] if variant.primed else []
        commands.append(upmap(pgid, acting[position], target))
        epoch, command = self._cluster.epoch(), time.monotonic()
        replies = self._cluster.burst(commands)
        assert not any(ret for ret, _, _ in replies), replies
        clean = self._wait_clean(pool, pgid, up, command)
        time.sleep(AFTER_CLEAN_SECONDS)
        clients.stop(runs)
        epochs = self._cluster.epoch() - epoch
        return lambda: Trial(self._cluster.release.name, pool.name, kind, name, pgid, epochs,
                             clean, judge_all(runs, command))

    def _wait_clean(self, pool: Pool, pgid: str, up: Set, begin: float) -> Optional[float]:
        while time.monotonic() < begin + CLEAN_TIMEOUT:
            if pool.is_clean(pgid, up):
                return time.monotonic() - begin
            time.sleep(0.1)
        return None

    def wrong_prime(self, pool: Pool, clients: StallClients, case: str) -> Dict[str, Any]:
        """Send a pg_temp that should not have been sent, and see what becomes of it."""
        pgid = pool.fresh.pop(0)
        acting = pool.acting(pgid)
        commands = wrong_commands(self._cluster, pool, case, pgid, acting)
        runs = clients.start(pgid)
        epoch, command = self._cluster.epoch(), time.monotonic()
        replies = [ret for ret, _, _ in self._cluster.burst(commands)]
        seen, last = [], 0.0
        while time.monotonic() < command + WRONG_SECONDS:
            temp = self._pg_temp(pgid)
            if temp:
                last = time.monotonic() - command
                seen.append(temp)
            time.sleep(0.02)
        clients.stop(runs)
        epochs = self._cluster.epoch() - epoch
        # Any change at all makes the mon look at its pg_temps again.
        self._cluster.mon('osd set', key='nodeep-scrub')
        stays = self._pg_temp(pgid)
        self._cluster.mon('osd unset', key='nodeep-scrub')
        self._cluster.flush_pg_stats()
        row = next(pg for pg in self._cluster.pgs() if pg['pgid'] == pgid)
        return {'case': case, 'pool': pool.name, 'pgid': pgid, 'before': acting,
                'sent': commands, 'replies': replies, 'pg_temp_until': last,
                'pg_temps': [temp for temp, _ in itertools.groupby(seen)],
                'state': row['state'], 'up': row['up'], 'acting': row['acting'],
                'epochs': epochs, 'pg_temp_in_next_epoch': stays,
                'stalls': {name: stall.stall for name, stall in judge_all(runs, command).items()}}

    def _pg_temp(self, pgid: str) -> Set:
        return next((list(row['osds']) for row in self._cluster.osd_dump()['pg_temp']
                     if row['pgid'] == pgid), [])


WRONG = ('upmap dropped by the mon', 'upmap refused by the mon', 'no upmap, members swapped',
         'no upmap, one member never had it', 'good upmap, one member never had it')


def wrong_commands(cluster: Cluster, pool: Pool, case: str, pgid: str,
                   acting: Set) -> List[Dict[str, Any]]:
    """The commands of one case of WRONG."""
    hosts = cluster.osd_hosts()
    free = pool.free_osd(acting)
    same_host = next(osd for osd in cluster.osds()
                     if hosts[osd] == hosts[acting[0]] and osd != acting[0])
    stranger = next(osd for osd in cluster.osds() if osd not in (*acting, free, same_host))
    return {
        WRONG[0]: [prime(pgid, acting), upmap(pgid, acting[-1], same_host)],
        WRONG[1]: [prime(pgid, acting), upmap(pgid, acting[-1], 9999)],
        WRONG[2]: [prime(pgid, [acting[1], acting[0], *acting[2:]])],
        WRONG[3]: [prime(pgid, [*acting[:-1], stranger])],
        WRONG[4]: [prime(pgid, [*acting[:-1], stranger]), upmap(pgid, acting[-1], free)],
    }[case]


def judge_all(runs: Dict[str, Run], command: float) -> Dict[str, Stall]:
    """The stall of each client since `command`."""
    return {name: judge(run.writes(), command) for name, run in runs.items()}


def cells(kinds: Sequence[str], variants: Sequence[str],
          trials: int) -> Iterator[Tuple[str, str]]:
    """Kinds and variants in turn; every other round backwards, so that none is always first."""
    once = [(kind, variant) for kind in kinds for variant in variants]
    for number in range(trials):
        yield from once if number % 2 == 0 else once[::-1]


def measure(cluster: Cluster, args: argparse.Namespace) -> List[Trial]:
    found: List[Trial] = []
    wanted = list(cells(args.kinds, args.variants, args.trials))
    pg_num = 1 << max(6, (len(wanted) + 3).bit_length())
    bench = StallBench(cluster)
    for name in args.pools:
        pool = Pool(cluster, name, pg_num)
        with StallClients(pool) as clients:
            released = [bench.trial(pool, clients, kind, variant) for kind, variant in wanted]
            clients.wait_hung()
            found.extend(judged() for judged in released)
    return found


def line(trial: Trial) -> str:
    stalls = '; '.join('%s %.2f s (%s)' % (
        name, stall.stall, ' '.join('%.2f' % seconds for seconds in stall.lengths))
        for name, stall in trial.clients.items())
    clean = 'never' if trial.clean is None else '%.1f s' % trial.clean
    return '%-10s %-8s %-14s %-6s %d epochs, clean %s: %s' % (
        trial.pool, trial.kind, trial.variant, trial.pgid, trial.epochs, clean, stalls)


def table(trials: Sequence[Trial]) -> Iterator[str]:
    """One row a cell; stalls in seconds, median/max."""
    yield '%-10s %-8s %-14s %3s %12s %12s %5s %7s %6s' % (
        'pool', 'moves', 'variant', 'n', 'busy client', 'lone client', 'hung', 'epochs', 'clean')
    for key in dict.fromkeys((t.pool, t.kind, t.variant) for t in trials):
        cell = [t for t in trials if (t.pool, t.kind, t.variant) == key]
        stalls = {name: [t.clients[name].stall for t in cell] for name in ('busy', 'lone')}
        both = ['%.2f/%.2f' % (statistics.median(found), max(found))
                for found in stalls.values()]
        hung = sum(max(t.clients['lone'].lengths, default=0.0) > HUNG_SECONDS for t in cell)
        clean = statistics.median(CLEAN_TIMEOUT if t.clean is None else t.clean for t in cell)
        yield '%-10s %-8s %-14s %3d %12s %12s %5d %7.0f %6.1f' % (
            *key, len(cell), both[0], both[1], hung, statistics.median(t.epochs for t in cell),
            clean)


def measure_wrong(cluster: Cluster, args: argparse.Namespace) -> List[Dict[str, Any]]:
    found = []
    bench = StallBench(cluster)
    for name in args.pools:
        pool = Pool(cluster, name, 32)
        with StallClients(pool) as clients:
            for case in WRONG:
                found.append(bench.wrong_prime(pool, clients, case))
    return found


def wrong_line(row: Dict[str, Any]) -> str:
    return ('%(pool)s, %(case)s: replies %(replies)s, pg_temp %(pg_temps)s until '
            '%(pg_temp_until).1f s, %(before)s -> up %(up)s acting %(acting)s, %(state)s, '
            '%(epochs)d epochs, in the next one pg_temp %(pg_temp_in_next_epoch)s, ' % row
            + ', '.join('%s %.2f s' % stall for stall in row['stalls'].items()))


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('--release', default='pacific')
    parser.add_argument('--trials', type=int, default=5)
    parser.add_argument('--pools', nargs='+', default=['replicated'], choices=list(POOLS))
    parser.add_argument('--kinds', nargs='+', default=list(KINDS), choices=KINDS)
    parser.add_argument('--variants', nargs='+', default=list(VARIANTS), choices=list(VARIANTS))
    parser.add_argument('--refused', action='store_true', help='wrong pg_temps instead')
    parser.add_argument('--json', type=Path, help='write every trial to this file')
    return parser.parse_args()


def main() -> int:
    args = arguments()
    with Cluster.up(args.release, osds=12, hosts=6) as cluster:
        # It would add items, and so epochs, of its own.
        assert cluster.mgr('balancer off')[0] == 0
        if args.refused:
            wrong = measure_wrong(cluster, args)
            found: List[Dict[str, Any]] = wrong
            lines = [wrong_line(row) for row in wrong]
        else:
            trials = measure(cluster, args)
            found = [asdict(trial) for trial in trials]
            lines = [*map(line, trials), *table(trials)]
    print(f'{args.release}: 12 OSDs on 6 hosts, stalls of one write in flight in s (median/max)')
    print('\n'.join(lines))
    if args.json:
        args.json.write_text(json.dumps(found, indent=1) + '\n')
    return 0


if __name__ == '__main__':
    try:
        sys.exit(main())
    except ClusterError as e:
        sys.exit(f'error: {e}')
