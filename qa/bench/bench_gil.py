# SPDX-License-Identifier: LGPL-2.1-or-later
"""How long the module keeps other threads of ceph-mgr from running Python, at 1,000 OSDs.

    /usr/bin/python3 -m qa.bench.bench_gil [--osds 1000] [--pgs 32000]

An idle thread releases the interpreter's lock (GIL) and acquires it again in a loop. The CPU time
of the whole process between two acquisitions is the time for which other threads held the lock.
Python hands the lock over after 5 ms (sys.getswitchinterval), but only between two bytecode
instructions: one call of C code (json, sorted, a regular expression, zlib, the garbage collector)
holds it until it returns. The benchmark finds such calls. It measures CPU time, not wall-clock
time, so other load on the machine makes no difference.

Every command and the turns of the loop are measured with the module's own code over a cluster in
memory, and Ceph's tools with a real OSDMap. What ceph-mgr itself computes for the module
(MgrModule.get, OSDMap.dump) is not included. The garbage collector does not examine the objects
from before a measurement, because most are the model's. In the mgr it examines those of the module
in every fifth iteration or so while PGs are released, which takes 0.1 s with 32,000 PGs and 0.26 s
with 100,000.
"""
import argparse
import contextlib
import enum
import gc
import itertools
import json
import subprocess
import sys
import tempfile
import threading
import time
import types
from dataclasses import replace
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List, NamedTuple, Tuple

from perfguard.cluster import crush_preview
from perfguard.cluster.crush import CrushRules
from perfguard.cluster.dumps import osdmap_from_dump
from perfguard.cluster.ports import Future
from perfguard.cluster.tool_thread import ToolThread
from perfguard.cluster.types import (ClientOps, Ops, OsdCounters, OsdPlace, PgCounts, PgWrites,
                                     Readings, Signals, Space)
from perfguard.tests.fakes.cluster import FakeCluster, FakeView
from perfguard.tests.fakes.driver import OPTIONS, Driver
from perfguard.tests.fakes.mon_model import ToyMon

GOAL_MS = 50.0
GOALS_SECONDS = 300.0
#: PGs of which the mgr reports writes: cluster.sensors.MOST_PGS.
BUSY_PGS = 3000


class GilRow(NamedTuple):
    what: str
    longest_ms: float
    #: Of the longest run of the garbage collector, which is part of the former if it is large.
    collector_ms: float
    cpu_ms: float


class GilWitness:
    """Notes the longest stretch in which it did not get the GIL."""

    def __init__(self) -> None:
        self.rows: List[GilRow] = []
        self._longest = self._collector = self._collecting = 0.0
        self._ended = False
        gc.callbacks.append(self._collected)
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        last = time.process_time()
        while not self._ended:
            time.sleep(0)
            now = time.process_time()
            self._longest = max(self._longest, now - last)
            last = now

    def _collected(self, phase: str, info: Dict[str, Any]) -> None:
        now = time.thread_time()
        if phase == 'start':
            self._collecting = now
        else:
            self._collector = max(self._collector, now - self._collecting)

    def end(self) -> None:
        gc.callbacks.remove(self._collected)
        self._ended = True
        self._thread.join()

    @contextlib.contextmanager
    def measure(self, what: str, shown: bool = True) -> Iterator[None]:
        gc.collect()
        # Keep the collector from examining the millions of objects of the model.
        gc.freeze()
        time.sleep(0.05)  # until it has counted that
        self._longest = self._collector = 0.0
        begin = time.thread_time()
        yield
        cpu = time.thread_time() - begin
        time.sleep(0.02)
        self.rows.append(GilRow(what, 1e3 * self._longest, 1e3 * self._collector, 1e3 * cpu))
        if shown:
            print('%-34s %10.1f %10.1f %10.1f' % self.rows[-1], flush=True)

    def worst(self, begin: str) -> None:
        """The longest stretch and the most CPU time of the rows with this prefix."""
        found = [row for row in self.rows if row.what.startswith(begin)]
        print('%-34s %10.1f %10.1f %10.1f' % (
            '%s, worst of %d' % (begin, len(found)), max(row.longest_ms for row in found),
            max(row.collector_ms for row in found), max(row.cpu_ms for row in found)), flush=True)


def handlers() -> Dict[str, Callable[..., Any]]:
    """Prefix -> handler of every command, without ceph-mgr."""
    found: Dict[str, Callable[..., Any]] = {}

    def register(prefix: str, poll: bool = False) -> Callable[..., Any]:
        def decorate(handler: Callable[..., Any]) -> Callable[..., Any]:
            found[prefix] = handler
            return handler
        return decorate

    module = types.ModuleType('mgr_module')
    for name, value in {
            'CLICommand': object, 'CLIReadCommand': register, 'CLIWriteCommand': register,
            'MgrModule': object, 'NotifyType': enum.Enum('NotifyType', {'x': 'x'})}.items():
        setattr(module, name, value)
    sys.modules['mgr_module'] = module
    import perfguard.cli  # noqa: F401
    return found


#: Arguments of commands that need some.
ARGUMENTS: Dict[str, Dict[str, Any]] = {
    'expand': {'weight': '1.0', 'dry_run': True}, 'preview': {'change': 'drain', 'what': ['h3']},
    'drain': {'what': ['h3'], 'dry_run': True}, 'undrain': {'what': ['h3'], 'dry_run': True},
    'events': {'count': 500}, 'campaign show': {'campaign': 1},
    'campaign accept': {'code': 'SLOW_OPS'}, 'campaign rollback': {'dry_run': True},
    'mitigation revert': {'rung': 1},
    'probe run': {'profile': 'quick', 'osd': '3', 'pool': 'rep', 'dry_run': True},
    'preview probe': {'profile': 'quick', 'osd': '3', 'pool': 'rep'},
    'probe compare': {'before': 1, 'after': 2}, 'probe schedule': {'schedule': 'x'},
    **{'probe ' + verb: {'run': 1} for verb in (
        'show', 'cancel', 'rm', 'baseline')}}
#: Commands that end or change what the others are measured with come last.
LAST = ('campaign pause', 'campaign resume', 'campaign abort', 'campaign finish', 'shutdown')


class Console:
    """Gives commands as ceph-mgr does: in a thread of their own, while the loop turns."""

    def __init__(self, driver: Driver, witness: GilWitness) -> None:
        self._driver, self._witness = driver, witness
        self.handlers = handlers()
        import perfguard.cli
        self._module = perfguard.cli.Commands()
        self._module.loop = driver.loop

    def __call__(self, prefix: str, handler: Callable[..., Any]) -> None:
        name = prefix[len('perfguard '):]
        answers: List[Tuple[int, str, str]] = []
        for format_ in ('json', 'plain'):
            thread = threading.Thread(target=lambda: answers.append(handler(
                self._module, format=format_, **ARGUMENTS.get(name, {}))))
            with self._witness.measure('%s (%s)' % (name, format_)):
                thread.start()
                while thread.is_alive():
                    self._driver.loop.turn()
                    thread.join(0.02)


class BusyCluster(FakeCluster):
    """Clients use every OSD, so that the watch has readings to judge."""

    def tick(self, seconds: float = 1.0) -> None:
        """What the model itself allocates, above all for every PG, is not the module's."""
        super().tick(seconds)
        self._views = self._views[-1:]

    def map_view(self) -> FakeView:
        return self._views[-1]

    def osd_space(self) -> Dict[int, Space]:
        return {osd: Space(1 << 43, 1 << 41, 100) for osd in self.toys}

    def readings(self, view: object, signals: Signals) -> Readings:
        reports = int(self.now / self.period)
        work = (reports * 500_000_000, reports * 1000)
        counters = {osd: OsdCounters(self.now, work, work, work, work, work, work, pgs=100)
                    for osd in self.toys}
        clients = tuple(ClientOps(pool, osd, (5_000_000, 10), (5_000_000, 10))
                        for osd in self.toys for pool in (1, 2))
        places = {osd: OsdPlace(osd, 'h%d' % (osd // 10), 'default', 'hdd', 'WDC')
                  for osd in self.toys}
        writes = tuple(PgWrites(pgid, pg.data, Ops(1_000_000, 10))
                       for pgid, pg in itertools.islice(self.pg.items(), BUSY_PGS))
        return Readings(self.period, counters, clients, places, self.period, writes,
                        osd_counts={osd: PgCounts(total=100, active_clean=100)
                                    for osd in self.toys},
                        ping_ms={osd: 1.0 for osd in self.toys})


def busy_cluster(osds: int, pgs: int) -> BusyCluster:
    return BusyCluster(hosts=osds // 10, osds_per_host=10, pgs=pgs // 2)


class ThreadedDriver(Driver):
    """Computes changes and goals outside the loop, as the module does."""

    def new_tools(self) -> ToolThread:
        return ToolThread(lambda: None)


def turns(driver: Driver, witness: GilWitness, what: str, number: int = 3) -> None:
    for _ in range(number):
        driver.cluster.tick(1.0)
        with witness.measure('a turn, ' + what):
            driver.loop.turn()


def measure_campaign(witness: GilWitness, osds: int, pgs: int) -> None:
    cluster = busy_cluster(osds, pgs)
    driver = ThreadedDriver(cluster, OPTIONS)
    turns(driver, witness, 'idle')
    driver.ask('prepare')
    driver.run_to('PREPARED')
    cluster.expand(count=20, share=4)
    turns(driver, witness, 'PGs peer')
    driver.run_until(lambda: bool(cluster.remapped()))
    driver.ask('pin')
    driver.run(2)
    turns(driver, witness, 'pinning', 5)
    driver.run_to('PINNED')
    driver.ask('start')
    turns(driver, witness, 'releasing', 5)
    console = Console(driver, witness)
    order = sorted(console.handlers, key=lambda prefix: prefix[10:] in LAST)
    for prefix in order:
        console(prefix, console.handlers[prefix])
    driver.loop.close()


def measure_goals(witness: GilWitness, osds: int, pgs: int) -> None:
    """target=balanced computes the goals in one turn."""
    cluster = busy_cluster(osds, pgs)
    driver = ThreadedDriver(cluster, replace(OPTIONS, target='balanced'))
    driver.ask('prepare')
    driver.run_to('PREPARED')
    cluster.expand(count=20, share=16)
    driver.run_until(lambda: bool(cluster.remapped()))
    driver.ask('pin')
    deadline = time.monotonic() + GOALS_SECONDS
    while driver.phase != 'PINNED' and time.monotonic() < deadline:
        cluster.tick(1.0)
        with witness.measure('a turn, target=balanced', shown=False):
            driver.loop.turn()
    witness.worst('a turn, target=balanced')
    driver.loop.close()


def measure_dumps(witness: GilWitness, osds: int, pgs: int) -> None:
    """What is parsed of a new OSDMap and of a new CRUSH map."""
    dump = {'epoch': 1, 'flags_set': ['noout'], 'erasure_code_profiles': {}, 'pools': [{
        'pool': 1, 'pool_name': 'p', 'type': 1, 'size': 3, 'min_size': 2, 'crush_rule': 0,
        'pg_num': pgs}], 'pg_upmap': [],
        'osds': [{'osd': osd, 'up': 1, 'weight': 1.0, 'state': ['exists', 'up'], 'up_thru': 1,
                  'uuid': '%032x' % osd} for osd in range(osds)],
        'pg_upmap_items': [{'pgid': '1.%x' % pg, 'mappings': [{'from': 1, 'to': 2}]}
                           for pg in range(pgs // 4)],
        'pg_temp': [{'pgid': '1.%x' % pg, 'osds': [1, 2, 3]} for pg in range(pgs // 4)]}
    with witness.measure('a new OSDMap'):
        osdmap_from_dump(dump)
    toys = FakeCluster(hosts=osds // 10, osds_per_host=10, pgs=1).toys
    crush = ToyMon(toys, 3, ()).crush_dump()
    with witness.measure('a new CRUSH map'):
        CrushRules.from_dump(crush)


def measure_tools(witness: GilWitness, directory: Path, osds: int, pgs: int) -> None:
    """A preview by Ceph's own tools."""
    bits = max(0, (pgs // osds).bit_length() - 1)
    path, crush, wrapper = directory / 'map', directory / 'crush', directory / 'osdmaptool'
    for argv in (['osdmaptool', str(path), '--createsimple', str(osds), '--with-default-pool',
                  '--pg-bits', str(bits)],
                 ['crushtool', '-o', str(crush), '--build', '--num_osds', str(osds),
                  'host', 'straw2', '10', 'rack', 'straw2', '10', 'root', 'straw2', '0'],
                 ['osdmaptool', str(path), '--import-crush', str(crush)]):
        subprocess.run(argv, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                       timeout=60)
    # The OSDs of such a map are down.
    wrapper.write_text('#!/bin/sh\nexec /usr/bin/osdmaptool "$@" --mark-up-in\n')
    wrapper.chmod(0o755)
    setattr(crush_preview, 'OSDMAPTOOL', str(wrapper))
    dump = subprocess.run([str(wrapper), str(path), '--dump', 'json'], check=True, timeout=60,
                          stdout=subprocess.PIPE, stderr=subprocess.DEVNULL).stdout
    osdmap = osdmap_from_dump(json.loads(dump[dump.index(b'{'):]))
    weights = {osd: 2.0 for osd in range(osds // 50)}
    with witness.measure("a preview by Ceph's tools"):
        found = crush_preview.outlook(osdmap, lambda epoch: path.read_bytes(), weights, None,
                                      lambda: False, True)
    assert isinstance(found, Future) and found.pgs, found
    print('  (%d PGs, of which %d change)' % (len(found.pgs) + len(found.others), len(found.pgs)))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('--osds', type=int, default=1000)
    parser.add_argument('--pgs', type=int, default=32000)
    args = parser.parse_args()
    witness = GilWitness()
    print('%-34s %10s %10s %10s' % ('ms at %d OSDs, %d PGs' % (args.osds, args.pgs), 'GIL held',
                                    'collector', 'CPU'))
    try:
        measure_dumps(witness, args.osds, args.pgs)
        with tempfile.TemporaryDirectory() as directory:
            measure_tools(witness, Path(directory), args.osds, args.pgs)
        measure_goals(witness, args.osds, args.pgs)
        measure_campaign(witness, args.osds, args.pgs)
    finally:
        witness.end()
    late = [row for row in witness.rows if row.longest_ms > GOAL_MS]
    print('goal: at most %.0f ms in a stretch; over it: %s' % (
        GOAL_MS, ', '.join('%s (%.0f ms)' % row[:2] for row in late) or 'none'))
    return 1 if late else 0


if __name__ == '__main__':
    sys.exit(main())
