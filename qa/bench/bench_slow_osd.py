# SPDX-License-Identifier: LGPL-2.1-or-later
"""Finding slow OSDs in synthetic traces: perfguard against Ceph change #69995 and Perseus.

    /usr/bin/python3 -m qa.bench.bench_slow_osd [--seeds 3] [--hours 24] [--quick]

All detectors see the same traces (traces.py) beat by beat. An OSD counts once a trace: right if it
is slow and flagged after the onset, false if flagged while healthy, missed otherwise. Time to
detect runs from the onset. CPU is that of one update, without the making of its input.
"""
import argparse
import statistics
import sys
import time
from dataclasses import dataclass, field
from typing import Dict, Iterator, List, Sequence, Tuple

from perfguard.watch.slow_osds import SlowOsds, SlowSettings

from .detectors import CommitMad, Detector, Perfguard, Perseus
from .traces import BEAT, DISK, FLASH, FLASH_B, Case, Fault, Trace, build

FLASHES, DISKS = ((10, 6, FLASH),), ((8, 6, DISK),)
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
    yield Case('a whole host, flash', FLASHES, Fault(3, 3, 3, host=True))
    yield Case('a whole host, disk', DISKS, Fault(3, 3, host=True), minutes=60)
    yield Case('during backfill, flash', FLASHES, Fault(6, 6), backfill=True)
    yield Case('during backfill, disk', DISKS, Fault(6, 6), backfill=True)
    yield Case('mixed models', MODELS, Fault(3, 3))
    yield Case('mixed models, not known', MODELS, Fault(5, 5), models=False)
    yield Case('mixed classes, slow flash', CLASSES, Fault(5, 5), where=FLASH.name)
    yield Case('mixed classes, slow disk', CLASSES, Fault(4, 4), where=DISK.name)


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
    yield Case('%g h healthy flash' % hours, FLASHES, minutes=60 * hours)
    yield Case('%g h healthy disk' % hours, DISKS, minutes=60 * hours)


@dataclass
class Tally:
    """What one detector made of the traces of one case."""
    right: int = 0
    false: int = 0
    missed: int = 0
    seconds: List[float] = field(default_factory=list)

    def add(self, other: 'Tally') -> None:
        self.right += other.right
        self.false += other.false
        self.missed += other.missed
        self.seconds += other.seconds

    def words(self) -> str:
        flags, slow = self.right + self.false, self.right + self.missed
        precision = '%.2f' % (self.right / flags) if flags else '-'
        recall = '%.2f' % (self.right / slow) if slow else '-'
        seconds = '%.0f s' % statistics.median(self.seconds) if self.seconds else '-'
        return '%9s %6s %5d %7s' % (precision, recall, self.false, seconds)


def watch(trace: Trace, detector: Detector) -> Tally:
    """Show a trace to a detector."""
    tally, false = Tally(), set()
    found: Dict[int, int] = {}
    for beat in range(trace.beats):
        if isinstance(detector, Perfguard):
            detector.prepare(beat)
        for osd in detector.flagged(beat):
            if osd in trace.slow and beat >= trace.onset:
                found.setdefault(osd, beat)
            else:
                false.add(osd)
    tally.right, tally.false = len(found), len(false)
    tally.missed = len(trace.slow) - len(found)
    tally.seconds = [(beat - trace.onset + 1) * BEAT for beat in found.values()]
    if isinstance(detector, Perfguard) and detector.hosts != trace.hosts:
        print('  %s: hosts %s named, %s slow' % (trace.case.name, sorted(detector.hosts),
                                                 sorted(trace.hosts)))
    return tally


def run(cases: List[Case], seeds: int, totals: Dict[str, Tally]) -> None:
    """Print a table of cases, and add them up; of the long traces a third of the seeds."""
    for case in cases:
        tallies: Dict[str, Tally] = {}
        for seed in range(seeds if case.minutes <= 120 else (seeds + 2) // 3):
            trace = build(case, seed)
            detectors: List[Detector] = [Perfguard(trace), CommitMad(trace), Perseus(trace)]
            for detector in detectors:
                tally = watch(trace, detector)
                tallies.setdefault(detector.name, Tally()).add(tally)
                totals.setdefault(detector.name, Tally()).add(tally)
        for name, tally in tallies.items():
            print('%-32s %-10s %s' % (case.name, name, tally.words()))


def cpu_ms(osds: int, beats: int = 60) -> Tuple[float, float]:
    """Milliseconds of CPU of perfguard's update: median and longest, with one OSD slow."""
    trace = build(Case('CPU', ((osds // 10, 10, FLASH),), Fault(5, 5), minutes=beats / 12), 0)
    detector, taken = SlowOsds(), []
    for beat in range(beats):
        samples = trace.samples(beat)
        begin = time.process_time()
        detector.update(1e9 + beat * BEAT, samples, trace.places, trace.busy[beat],
                        SlowSettings())
        taken.append(1000 * (time.process_time() - begin))
    return statistics.median(taken[12:]), max(taken[12:])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('--seeds', type=int, default=3)
    parser.add_argument('--hours', type=float, default=24.0, help='of the long healthy traces')
    parser.add_argument('--quick', action='store_true',
                        help='one seed, a healthy hour, two factors')
    args = parser.parse_args()
    seeds, hours = (1, 1.0) if args.quick else (args.seeds, args.hours)
    factors = (2.0, 5.0) if args.quick else FACTORS
    print('%-32s %-10s %9s %6s %5s %7s' % ('case', 'detector', 'precision', 'recall', 'false',
                                           'time'))
    totals: Dict[str, Tally] = {}
    cases = [*named_cases(), *healthy_cases(hours), *graded_cases(factors)]
    run(cases, seeds, totals)
    for name, tally in totals.items():
        print('%-32s %-10s %s' % ('all', name, tally.words()))
    for osds in (60, 1000):
        print('perfguard, %d OSDs: %.1f ms of CPU an update, %.1f at most' % (osds, *cpu_ms(osds)))
    return 0


if __name__ == '__main__':
    sys.exit(main())
