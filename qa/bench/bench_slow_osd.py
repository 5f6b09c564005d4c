# SPDX-License-Identifier: LGPL-2.1-or-later
"""Finding slow OSDs in synthetic traces: perfguard against Ceph change #69995 and Perseus.

    /usr/bin/python3 -m qa.bench.bench_slow_osd [--seeds 3] [--hours 24] [--quick]
    /usr/bin/python3 -m qa.bench.bench_slow_osd --chronic|--standing [--seeds 3]
    /usr/bin/python3 -m qa.bench.bench_slow_osd --trace DIRECTORY

All detectors see the same traces (traces.py) beat by beat. An OSD counts once a trace: right if it
is slow and flagged after the onset, false if flagged while healthy, missed otherwise. Time to
detect runs from the onset. "raised" is how often the right ones were, which is what an operator has
to read. CPU is that of one update, without the making of its input.

--chronic: drives that are slow for 3 to 20 % of the time, and healthy drives with heavy tails, in
14 days of three hours. --trace: recordings (recorded.py says in which columns), for which without
labels only what was flagged is said.
"""
import argparse
import itertools
import statistics
import sys
import time
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Dict, Iterator, List, Optional, Sequence, Set, Tuple

from perfguard.tests.fakes.functions import whole
from perfguard.watch.slow_osds import SlowOsds
from perfguard.watch.slowness import LEAST_SLOW_SECONDS, SlowSettings
from perfguard.watch.types import OsdReading

from . import recorded
from .detectors import Chronic, CommitMad, Detector, PeerEvaluation, Perfguard, Perseus
from .traces import (BEAT, DAY_SECONDS, DISK, DISK_DB, FLASH, FLASH_B, Case, Fault, Layout,
                     Trace, build)

FLASHES, DISKS = ((10, 6, FLASH),), ((8, 6, DISK),)
#: As on three nodes of Rook or Proxmox.
FEW_FLASHES, FEW_DISKS = ((3, 1, FLASH),), ((3, 1, DISK),)
MODELS = ((6, 5, FLASH), (6, 5, FLASH_B))
CLASSES = ((8, 6, FLASH), (6, 6, DISK))
FACTORS = (1.2, 1.5, 2.0, 3.0, 5.0, 10.0)


def named_cases() -> Iterator[Case]:
    yield Case('NVMe 0.4 -> 8 ms', FLASHES, Fault(20, 20))
    yield Case('disk 10 -> 60 ms', DISKS, Fault(6, 6))
    yield Case('flash, reads only', FLASHES, Fault(read=6))
    yield Case('disk, reads only', DISKS, Fault(read=4))
    yield Case('flash, writes only', FLASHES, Fault(write=4))
    yield Case('disk, writes only', DISKS, Fault(write=4))
    yield Case('OSD process slow (CPU)', FLASHES, Fault(cpu=20))
    yield Case('from the start, 3 OSDs, writes', FLASHES, Fault(write=4, osds=3, from_start=True))
    yield Case('a whole host, flash', FLASHES, Fault(3, 3, 3, hosts=1))
    yield Case('a whole host, disk', DISKS, Fault(3, 3, hosts=1), minutes=60)
    yield Case('during backfill, flash', FLASHES, Fault(6, 6), backfill=True)
    yield Case('during backfill, disk', DISKS, Fault(6, 6), backfill=True)
    yield Case('mixed models', MODELS, Fault(3, 3))
    yield Case('mixed models, not known', MODELS, Fault(5, 5), models=False)
    yield Case('mixed classes, slow flash', CLASSES, Fault(5, 5), where=FLASH.name)
    yield Case('mixed classes, slow disk', CLASSES, Fault(4, 4), where=DISK.name)
    yield Case('one of three, flash', FEW_FLASHES, Fault(6, 6), minutes=60)
    yield Case('one of three, disk', FEW_DISKS, Fault(6, 6), minutes=60)


def graded_cases(factors: Sequence[float] = FACTORS) -> Iterator[Case]:
    for name, layout in (('flash', FLASHES), ('disk', DISKS)):
        for factor in factors:
            yield Case('%s, %g x' % (name, factor), layout, Fault(factor, factor, osds=2),
                       minutes=60)


def healthy_cases(hours: float) -> Iterator[Case]:
    yield Case('hot, healthy flash', FLASHES, hot=3.0)
    yield Case('hot, healthy disk', DISKS, hot=3.0)
    yield Case('backfill, healthy flash', FLASHES, backfill=True)
    yield Case('backfill, healthy disk', DISKS, backfill=True)
    yield Case('nearly idle, flash', FLASHES, load=0.02, minutes=60)
    yield Case('nearly idle, disk', DISKS, load=0.1, minutes=60)
    yield Case('three, healthy flash', FEW_FLASHES, minutes=60 * hours)
    yield Case('three, healthy disk', FEW_DISKS, minutes=60 * hours)
    yield Case('three, hot, healthy flash', FEW_FLASHES, hot=3.0)
    yield Case('three, hot, healthy disk', FEW_DISKS, hot=3.0)
    yield Case('%g h healthy flash' % hours, FLASHES, minutes=60 * hours)
    yield Case('%g h healthy disk' % hours, DISKS, minutes=60 * hours)


DUTIES = (0.03, 0.05, 0.1, 0.2)
DUTY_FACTORS = (3.0, 5.0, 8.0, 15.0)


#: Seconds between two readings of the recordings that Perseus was judged on.
LONG_BEAT = 15.0


def long_case(name: str, layout: Layout, fault: Optional[Fault] = None,
              beat: float = LONG_BEAT) -> Case:
    """As these recordings: 14 days, three hours of each."""
    return Case(name, layout, fault, minutes=14 * 180.0, beat=beat, hours_a_day=3.0,
                drives_only=True, tails=True)


def chronic_cases() -> Iterator[Case]:
    """Share of the time that they are slow, and times as slow as the others."""
    for name, layout in (('flash', ((4, 6, FLASH),)), ('disk', ((4, 6, DISK),))):
        for duty, factor in itertools.product(DUTIES, DUTY_FACTORS):
            yield long_case('%s, %g %% at %g x' % (name, 100 * duty, factor), layout,
                            Fault(factor, factor, duty=duty, osds=2))
        yield long_case('%s, healthy with tails' % name, layout)


def standing_cases() -> Iterator[Case]:
    """What must not prevent a standing finding, repeat it, or be one."""
    flash, disk = ((4, 6, FLASH),), ((4, 6, DISK),)
    always = Fault(4, 4, from_start=True, osds=2)
    slow = [long_case('flash, slow all the time', flash, always),
            long_case('disk, slow all the time', disk, always),
            long_case('flash, twice as slow all the time', flash,
                      replace(always, read=2, write=2))]
    yield from slow
    for case in (slow[0], long_case('flash, 10 % at 8 x', flash, Fault(8, 8, duty=0.1, osds=2))):
        yield replace(case, name=case.name + ', 20 failovers', failovers=20)
        yield replace(case, name=case.name + ', OSDs join and leave', changing=True)
        yield replace(case, name=case.name + ', batch each night', batch=3.0)
    for name, layout in (('flash', flash), ('disk', disk)):
        yield replace(long_case(name + ', healthy, batch each night', layout), batch=3.0)
        yield replace(long_case(name + ', healthy, OSDs join and leave', layout), changing=True,
                      failovers=20)
    mixed = ((2, 6, DISK), (2, 6, DISK_DB))
    yield long_case('disks, half with DB, slow all the time', mixed, always)
    yield long_case('disks, half with DB, healthy', mixed)
    yield Case('two slow hosts of four', flash, Fault(4, 4, hosts=2), minutes=60)
    yield Case('3,000 OSDs, slow all the time', ((150, 20, FLASH),),
               Fault(4, 4, from_start=True, osds=3), minutes=45, beat=LONG_BEAT, pgs_per_osd=12)


@dataclass
class Tally:
    """What one detector made of the traces of one case."""
    right: int = 0
    false: int = 0
    missed: int = 0
    seconds: List[float] = field(default_factory=list)
    #: How often the right ones were raised.
    raised: int = 0

    def add(self, other: 'Tally') -> None:
        self.right += other.right
        self.false += other.false
        self.missed += other.missed
        self.seconds += other.seconds
        self.raised += other.raised

    def words(self) -> str:
        flags, slow = self.right + self.false, self.right + self.missed
        precision = '%.2f' % (self.right / flags) if flags else '-'
        recall = '%.2f' % (self.right / slow) if slow else '-'
        seconds = _time(statistics.median(self.seconds)) if self.seconds else '-'
        return '%9s %6s %5d %7s %6d' % (precision, recall, self.false, seconds, self.raised)


def _time(seconds: float) -> str:
    return '%.0f s' % seconds if seconds < 7200 else '%.1f h' % (seconds / 3600)


class Watcher:
    """One detector at a trace."""

    def __init__(self, trace: Trace, detector: Detector) -> None:
        self.trace, self.detector = trace, detector
        #: OSD -> beat of the first flag.
        self.found: Dict[int, int] = {}
        self.false: Set[int] = set()
        self._last: Set[int] = set()
        self._raised = 0

    def show(self, beat: int) -> None:
        flagged = self.detector.flagged(beat)
        for osd in flagged - self._last:
            if osd in self.trace.slow and beat >= self.trace.onset:
                self.found.setdefault(osd, beat)
                self._raised += 1
            else:
                self.false.add(osd)
        self._last = set(flagged)

    def seconds_until(self, osd: int) -> float:
        """Recorded seconds from the onset to the first flag of a slow OSD."""
        return (self.found[osd] - self.trace.onset + 1) * self.trace.case.beat

    def tally(self) -> Tally:
        return Tally(len(self.found), len(self.false), len(self.trace.slow) - len(self.found),
                     [self.seconds_until(osd) for osd in self.found], self._raised)


def watch(trace: Trace, with_others: bool = True) -> List[Watcher]:
    """Show a trace to all detectors, or to those of perfguard."""
    perfguard = Perfguard(trace)
    detectors: List[Detector] = [perfguard, Chronic(perfguard)]
    if with_others:
        detectors += [CommitMad(trace), Perseus(trace), PeerEvaluation(trace)]
    watchers = [Watcher(trace, detector) for detector in detectors]
    for beat in range(trace.beats):
        for watcher in watchers:
            watcher.show(beat)
    if perfguard.parts:
        print('  %s: %s' % (trace.case.name, ', '.join(sorted(perfguard.parts))))
    if perfguard.hosts != trace.hosts:
        print('  %s: hosts %s named, %s slow' % (trace.case.name, sorted(perfguard.hosts),
                                                 sorted(trace.hosts)))
    return watchers


def run(cases: List[Case], seeds: int, totals: Dict[str, Tally],
        with_others: bool = True) -> None:
    """Print a table of cases, and add them up; of the long traces a third of the seeds."""
    for case in cases:
        tallies: Dict[str, Tally] = {}
        for seed in range(seeds if case.minutes <= 120 else (seeds + 2) // 3):
            for watcher in watch(build(case, seed), with_others):
                tally = watcher.tally()
                tallies.setdefault(watcher.detector.name, Tally()).add(tally)
                totals.setdefault(watcher.detector.name, Tally()).add(tally)
        for name, tally in tallies.items():
            print('%-32s %-10s %s' % (case.name, name, tally.words()), flush=True)


def run_recorded(directory: Path, totals: Dict[str, Tally]) -> None:
    for trace in recorded.load(directory):
        days = len({int(trace.clock(beat) // DAY_SECONDS) for beat in range(trace.beats)})
        print('%s: %d drives, %d drive-days, a reading each %g s' % (
            trace.case.name, len(trace.places), days * len(trace.places), trace.case.beat))
        for watcher in watch(trace):
            tally, name = watcher.tally(), watcher.detector.name
            totals.setdefault(name, Tally()).add(tally)
            print('%-32s %-10s %s' % (trace.case.name, name, tally.words()))
            for osd in sorted({*watcher.found, *watcher.false}):
                print('    %s: %s' % (trace.name(osd), 'not labelled as slow'
                                      if osd not in watcher.found else 'after %s of readings'
                                      % _time(watcher.seconds_until(osd))))


def run_healthy(drive_days: float, beat: float) -> None:
    """Count the false alarms of perfguard in so many healthy drive-days with tails."""
    seen, seed = 0, 0
    while seen < drive_days:
        device = (FLASH, DISK)[seed % 2]
        trace = build(long_case('healthy', ((10, 6, device),), beat=beat), seed)
        perfguard = Perfguard(trace)
        watchers = [Watcher(trace, perfguard), Watcher(trace, Chronic(perfguard))]
        most = 0.0
        for number in range(trace.beats):
            for watcher in watchers:
                watcher.show(number)
            if number % 100 == 0:
                kept = perfguard.detector.chronic.stored({}).values()
                most = max([most, *(count.slow for count in kept)])
        seen, seed = seen + 14 * len(trace.places), seed + 1
        print('%6d healthy drive-days, now of %s: %s falsely slow; slow for %.0f of %.0f s'
              % (seen, device.name, ', '.join('%d %s' % (
                  len(watcher.false), watcher.detector.name) for watcher in watchers),
                 most, LEAST_SLOW_SECONDS), flush=True)


def cpu_ms(osds: int, beats: int = 60) -> Tuple[float, float]:
    """Milliseconds of CPU of perfguard's update: median and longest, with one OSD slow."""
    trace = build(Case('CPU', ((osds // 10, 10, FLASH),), Fault(5, 5), minutes=beats / 12), 0)
    detector, taken = SlowOsds(), []
    for beat in range(beats):
        samples = trace.samples(beat)
        begin = time.process_time()
        whole(detector.round(OsdReading(1e9 + beat * BEAT, samples, trace.places,
                                        trace.busy[beat]), SlowSettings()))
        taken.append(1000 * (time.process_time() - begin))
    return statistics.median(taken[12:]), max(taken[12:])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('--seeds', type=int, default=3)
    parser.add_argument('--hours', type=float, default=24.0, help='of the long healthy traces')
    parser.add_argument('--quick', action='store_true',
                        help='one seed, a healthy hour, two factors')
    parser.add_argument('--chronic', action='store_true', help='intermittent drives only')
    parser.add_argument('--standing', action='store_true',
                        help='drives that are slow all the time, failovers, and other changes')
    parser.add_argument('--healthy-days', type=float, metavar='N',
                        help='false alarms of perfguard in so many healthy drive-days')
    parser.add_argument('--beat', type=float, default=LONG_BEAT, metavar='SECONDS',
                        help='between two readings of the healthy drives')
    parser.add_argument('--trace', type=Path, metavar='DIRECTORY', help='recorded traces')
    args = parser.parse_args()
    if args.healthy_days:
        run_healthy(args.healthy_days, args.beat)
        return 0
    seeds, hours = (1, 1.0) if args.quick else (args.seeds, args.hours)
    factors = (2.0, 5.0) if args.quick else FACTORS
    print('%-32s %-10s %9s %6s %5s %7s %6s' % ('case', 'detector', 'precision', 'recall', 'false',
                                               'time', 'raised'))
    totals: Dict[str, Tally] = {}
    if args.trace is not None:
        run_recorded(args.trace, totals)
    elif args.chronic:
        run(list(chronic_cases()), 3 * seeds, totals)
    elif args.standing:
        run(list(standing_cases()), 3 * seeds, totals, with_others=False)
    else:
        run([*named_cases(), *healthy_cases(hours), *graded_cases(factors)], seeds, totals)
    for name, tally in totals.items():
        print('%-32s %-10s %s' % ('all', name, tally.words()))
    for osds in () if args.chronic or args.standing or args.trace else (60, 1000):
        print('perfguard, %d OSDs: %.1f ms of CPU an update, %.1f at most' % (osds, *cpu_ms(osds)))
    return 0


if __name__ == '__main__':
    sys.exit(main())
