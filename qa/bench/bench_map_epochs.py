# SPDX-License-Identifier: LGPL-2.1-or-later
"""What one more OSDMap epoch costs: mon, mgr and an OSD, for maps of 12 to 3,000 OSDs.

    /usr/bin/python3 -m qa.bench.bench_map_epochs [--release pacific] [--sizes 12 100 600]

For each size, a new mon gets a map with that number of OSDs, all of them in but down, with 96 PGs
per OSD (size 3), a fifth of which have pg-upmap-items. One real OSD joins; no PG is created on it,
so its CPU time is the cost of the map alone. Then upmap items are set one after the other, with a
paxos_propose_interval of 0.1 s. CPU is utime + stime of the process per epoch, minus the CPU time
of an equally long idle period; bytes are those of the full map and of the last incremental map.
No PG is ever active, so the numbers do not include the cost of the PGs of an OSD.
"""
import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Dict, Iterator, List, Sequence, Tuple

from qa.cluster import Cluster, ClusterError

SIZES = (12, 100, 600, 1500, 3000)
#: 2^5 PGs of 3 replicas per OSD: Ceph recommends 100 replicas per OSD.
PG_BITS = 5
POOL = 1
UPMAP_SHARE = 5
INTERVAL_SECONDS = 0.1
IDLE_SECONDS = 10.0
#: Commands in flight while the map is made.
AT_ONCE = 1000
#: A thousand commands to a mon with thousands of OSDs, on a busy machine.
COMMAND_TIMEOUT = 180.0
DAEMONS = ('mon.a', 'mgr.x', 'osd.0')

Pairs = List[Tuple[str, int, int]]


def osds_per_host(osds: int) -> int:
    """Small clusters have small hosts, or there would be too few for three replicas."""
    return 12 if osds > 100 else 2


@dataclass(frozen=True)
class Cost:
    """Per epoch: CPU milliseconds of each daemon, milliseconds of a commit, bytes."""

    release: str
    osds: int
    pgs: int
    upmaps: int
    epochs: int
    cpu_ms: Dict[str, float]
    idle_cpu_share: Dict[str, float]
    commit_ms: float
    commit_p95_ms: float
    full_bytes: int
    incremental_bytes: int


class Machine:
    """A cluster of one mon, one mgr and one OSD, with generated maps."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self._map = cluster.directory / 'data' / 'osdmap'

    def tool(self, *command: str) -> str:
        """Run a tool of the release; returns its output."""
        argv = self.cluster.release.argv(list(command), self.cluster.directory)
        return subprocess.run(argv, check=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                              universal_newlines=True, timeout=300).stdout

    def restart(self, osds: int) -> None:
        """Create a store for the mon with a map of that many OSDs, and an empty one for the OSD."""
        for name in {'osd.0', 'mon.a'} & set(self.cluster.pids()):
            self.cluster.kill(name)
        self._make_map(osds)
        uuids = [str(uuid.uuid4()) for _ in range(osds)]
        conf = str(self.cluster.conf_path)
        data = self.cluster.directory / 'data'
        keyring = (data / 'osd.0' / 'keyring').read_text()
        for name in ('mon.a', 'osd.0'):
            shutil.rmtree(data / name)
            (data / name).mkdir()
        (data / 'osd.0' / 'keyring').write_text(keyring)
        self.tool('ceph-mon', '-i', 'a', '-c', conf, '--mkfs', '--monmap', str(data / 'monmap'),
                  '--keyring', str(data / 'initial.keyring'), '--osdmap', str(self._map))
        self.tool('ceph-osd', '-i', '0', '-c', conf, '--mkfs', '--no-mon-config',
                  '--osd-uuid', uuids[0])
        self.cluster.start('mon.a')
        # A librados handle does not always find the new mon behind the old one's address.
        self.cluster = Cluster.attach(self.cluster.directory)
        self.cluster.wait(lambda: self.cluster.epoch() >= 1, 60, 'the mon to answer')
        self._join(keyring, uuids)

    def _join(self, keyring: str, uuids: List[str]) -> None:
        mon = self.cluster.mon
        mon('osd require-osd-release', release=self.cluster.release.name,
            yes_i_really_mean_it=True)
        mon('osd set-require-min-compat-client', version='luminous', yes_i_really_mean_it=True)
        caps = '\n'.join(f'caps {service} = "allow *"' for service in ('mon', 'mgr', 'osd'))
        reply = self.cluster.command('mon', {'prefix': 'auth import'},
                                     f'{keyring}\n{caps}\n'.encode())
        assert reply[0] == 0, reply
        with ThreadPoolExecutor(AT_ONCE) as pool:
            list(pool.map(lambda osd: mon('osd create', id=osd, uuid=uuids[osd]),
                          range(len(uuids))))
        mon('osd in', ids=['all'])
        crush = self._crush(len(uuids)).read_bytes()
        reply = self.cluster.command('mon', {'prefix': 'osd setcrushmap'}, crush)
        assert reply[0] >= 0, reply
        self.cluster.start('osd.0')

    def _make_map(self, osds: int) -> None:
        """A map of the pool, whose CRUSH map has only three OSDs until the others exist.

        CRUSH retries many times for OSDs that do not exist, and the mon maps all PGs.
        """
        osdmap = str(self._map)
        self.tool('osdmaptool', osdmap, '--createsimple', str(osds), '--with-default-pool',
                  '--pg-bits', str(PG_BITS), '--pgp-bits', str(PG_BITS), '--clobber')
        for number in (osds, 3):
            crush = str(self._crush(number))
            self.tool('crushtool', '-o', crush, '--build', '--num_osds', str(number), 'host',
                      'straw2', str(osds_per_host(osds)), 'root', 'straw2', '0')
        self.tool('osdmaptool', osdmap, '--import-crush', crush)

    def _crush(self, osds: int) -> Path:
        return self._map.with_name(f'crush-{osds}')

    def pairs(self, osds: int) -> Pairs:
        """For each PG an upmap pair that the CRUSH rule allows."""
        self.tool('osdmaptool', str(self._map), '--import-crush', str(self._crush(osds)))
        per_host = osds_per_host(osds)
        found = []
        for line in self.tool('osdmaptool', str(self._map), '--mark-up-in', '--pool', str(POOL),
                              '--test-map-pgs-dump').splitlines():
            pgid, _, rest = line.partition('\t')
            if not pgid.startswith(f'{POOL}.'):
                continue
            up = [int(osd) for osd in rest[1:rest.index(']')].split(',')]
            taken = {osd // per_host for osd in up}
            target = next(osd for step in range(osds)
                          for osd in [(up[0] + osds // 2 + step) % osds]
                          if osd // per_host not in taken)
            found.append((pgid, up[0], target))
        return found

    def set_items(self, pair: Tuple[str, int, int]) -> None:
        reply = self.cluster.command('mon', {'prefix': 'osd pg-upmap-items', 'pgid': pair[0],
                                             'id': [pair[1], pair[2]]}, timeout=COMMAND_TIMEOUT)
        assert reply[0] == 0, reply

    def cpu(self) -> Dict[str, float]:
        """Seconds of CPU that each daemon has used."""
        found = {}
        for name in DAEMONS:
            stat = Path(f'/proc/{self.cluster.pid(name)}/stat').read_text()
            fields = stat.rpartition(')')[2].split()
            found[name] = (int(fields[11]) + int(fields[12])) / os.sysconf('SC_CLK_TCK')
        return found

    def full_bytes(self) -> int:
        ret, out, _ = self.cluster.rados().mon_command(
            json.dumps({'prefix': 'osd getmap'}), b'')
        assert ret == 0
        return len(out)

    def incremental_bytes(self) -> int:
        """The size of the newest incremental map; the mon must be stopped to read it."""
        epoch, data = self.cluster.epoch(), self.cluster.directory / 'data'
        self.cluster.kill('mon.a')

        def read() -> int:
            try:
                self.tool('ceph-kvstore-tool', 'rocksdb', str(data / 'mon.a' / 'store.db'), 'get',
                          'osdmap', str(epoch), 'out', str(data / 'incremental'))
            except subprocess.CalledProcessError:
                return 0  # a process with much memory releases its files some time after it ends
            return (data / 'incremental').stat().st_size

        deadline = time.monotonic() + 20.0
        while not read() and time.monotonic() < deadline:
            time.sleep(1.0)
        return read()


def measure(machine: Machine, osds: int, changes: int, seconds: float) -> Cost:
    """The cost with a map of that many OSDs."""
    machine.restart(osds)
    pairs = machine.pairs(osds)
    filled = pairs[::UPMAP_SHARE]
    machine.cluster.mon('config set', who='mon', name='paxos_propose_interval',
                        value=str(INTERVAL_SECONDS))
    with ThreadPoolExecutor(AT_ONCE) as pool:
        list(pool.map(machine.set_items, filled))
    upmaps = len(machine.cluster.osd_dump()['pg_upmap_items'])
    assert upmaps == len(filled), (upmaps, len(filled))
    time.sleep(IDLE_SECONDS / 2)
    before = machine.cpu()
    time.sleep(IDLE_SECONDS)
    idle = {name: (used - before[name]) / IDLE_SECONDS for name, used in machine.cpu().items()}
    return change(machine, osds, pairs, upmaps, idle, changes, seconds)


def change(machine: Machine, osds: int, pairs: Pairs, upmaps: int, idle: Dict[str, float],
           changes: int, seconds: float) -> Cost:
    fresh = [pair for i, pair in enumerate(pairs) if i % UPMAP_SHARE][:changes]
    epoch, cpu = machine.cluster.epoch(), machine.cpu()
    begin = time.monotonic()
    latencies = []
    for pair in fresh:
        start = time.monotonic()
        machine.set_items(pair)
        latencies.append(time.monotonic() - start)
        if time.monotonic() > begin + seconds:
            break
    # Background work that an epoch causes counts as its cost.
    time.sleep(2.0)
    spent = time.monotonic() - begin
    epochs = machine.cluster.epoch() - epoch
    used = {name: 1000 * (after - cpu[name] - idle[name] * spent) / epochs
            for name, after in machine.cpu().items()}
    return Cost(machine.cluster.release.name, osds, len(pairs), upmaps, epochs, used, idle,
                1000 * statistics.median(latencies),
                1000 * sorted(latencies)[int(0.95 * (len(latencies) - 1))],
                machine.full_bytes(), machine.incremental_bytes())


def table(costs: Sequence[Cost]) -> Iterator[str]:
    yield '%-9s %5s %6s %7s %6s %8s %8s %8s %9s %6s %8s %9s' % (
        'release', 'OSDs', 'PGs', 'upmaps', 'epochs', 'mon CPU', 'mgr CPU', 'OSD CPU',
        'commit ms', 'p95', 'full KiB', 'inc. KiB')
    for c in costs:
        cpu = ' '.join('%8.1f' % c.cpu_ms[name] for name in DAEMONS)
        yield '%-9s %5d %6d %7d %6d %s %9.0f %6.0f %8.1f %9.1f' % (
            c.release, c.osds, c.pgs, c.upmaps, c.epochs, cpu, c.commit_ms, c.commit_p95_ms,
            c.full_bytes / 1024, c.incremental_bytes / 1024)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('--release', default='pacific')
    parser.add_argument('--sizes', nargs='+', type=int, default=list(SIZES))
    parser.add_argument('--changes', type=int, default=200)
    parser.add_argument('--seconds', type=float, default=60.0, help='for the changes of one size')
    parser.add_argument('--json', type=Path, help='write all numbers to this file')
    return parser.parse_args()


def main() -> int:
    args = arguments()
    conf: Dict[str, Any] = {'mon': {'mon_osd_down_out_interval': 0,
                                    # The PGs remain as they are: never created.
                                    'mon_osd_max_creating_pgs': 0}}
    with Cluster.up(args.release, osds=1, hosts=1, conf=conf) as cluster:
        machine = Machine(cluster)
        costs = []
        for osds in args.sizes:
            costs.append(measure(machine, osds, args.changes, args.seconds))
            print(list(table(costs))[-1], file=sys.stderr, flush=True)
    print('\n'.join(table(costs)))
    if args.json:
        args.json.write_text(json.dumps([asdict(cost) for cost in costs], indent=1) + '\n')
    return 0


if __name__ == '__main__':
    try:
        sys.exit(main())
    except ClusterError as e:
        sys.exit(f'error: {e}')
