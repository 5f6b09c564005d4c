# SPDX-License-Identifier: LGPL-2.1-or-later
"""Two runs of probes side by side: how often a verdict is right."""
import random
import time
from dataclasses import replace
from typing import Dict

import pytest
from hypothesis import example, given, strategies as st

from perfguard.probe import compare as comparing
from perfguard.probe.compare import (FASTER, SAME, SLOWER, UNKNOWN, RunComparison, NothingInCommon,
                                     _overall, compare)
from perfguard.probe.records import RunRecord, slimmed
from perfguard.probe.types import Target

from ..fakes.probe_records import (IOPS, LATENCY, LINEAR, POOL, WRITING, direction, noisy, run,
                                   step, with_mean)

TRIALS = 150


def flat(run_id: int, *iops: float, job=LATENCY, p99_ratio: float = 3.0) -> RunRecord:
    """A repetition each."""
    return run(run_id, [step(job, [rate] * 10, repetition=number, p99_ratio=p99_ratio)
                        for number, rate in enumerate(iops)])


def shares(ratio: float, repetitions: int, *run_sds: float, trials: int = TRIALS
           ) -> Dict[str, float]:
    """How often which verdict comes where b really is so many times as fast."""
    rng = random.Random(repr((ratio, repetitions, run_sds)))
    count = dict.fromkeys((FASTER, SLOWER, SAME, UNKNOWN), 0)
    for trial in range(trials):
        run_sd = run_sds[trial % len(run_sds)]
        a = run(1, noisy(rng, LATENCY, 1000.0, repetitions, run_sd))
        b = run(2, noisy(rng, LATENCY, 1000.0 * ratio, repetitions, run_sd))
        count[compare(a, b).lines[0].verdict] += 1
    return {verdict: number / trials for verdict, number in count.items()}


@pytest.mark.parametrize('run_sd', [0.05, 0.075, 0.1])
def test_nothing_changed(run_sd: float) -> None:
    found = shares(1.0, 3, run_sd)
    assert found[SLOWER] <= 0.05 and found[FASTER] <= 0.05
    assert found[SAME] >= 0.6


def test_nothing_changed_on_a_restless_cluster() -> None:
    found = shares(1.0, 3, 0.2, 0.3, 0.5, trials=450)
    assert found[SLOWER] <= 0.06 and found[FASTER] <= 0.06
    assert found[UNKNOWN] >= 0.8


def test_thirty_per_cent_slower_is_found() -> None:
    found = shares(0.7, 3, 0.05, 0.06, 0.07, 0.08, 0.09, 0.1, trials=300)
    assert found[SLOWER] >= 0.9 and found[FASTER] == 0.0
    assert shares(0.7, 5, 0.1)[SLOWER] >= 0.95


def test_of_single_repetitions_little_is_said() -> None:
    assert shares(1.0, 1, 0.1, trials=600)[SLOWER] <= 0.05
    found = shares(0.5, 1, 0.1)
    assert found[SLOWER] >= 0.9 and found[SAME] == 0.0


def test_an_alarm_counts_how_many_lines_there_are() -> None:
    rng = random.Random(3)
    jobs = [replace(LATENCY, iodepth=depth) for depth in range(1, 13)]

    def alarms(ratio: float, trials: int) -> float:
        found = 0
        for _ in range(trials):
            a, b = (run(1, [pair for job in jobs for pair in noisy(rng, job, speed, 3, 0.08)])
                    for speed in (1000.0, 1000.0 * ratio))
            found += bool(compare(a, b).slower)
        return found / trials

    assert alarms(1.0, 40) <= 0.05
    assert alarms(0.7, 10) == 1.0


def test_the_same_runs_have_one_answer() -> None:
    rng = random.Random(4)
    a, b = (run(number, noisy(rng, LATENCY, 1000.0, 3, 0.05)) for number in (1, 2))
    assert compare(a, b) == compare(a, b)


#: What remains of a verdict if the runs are exchanged.
REVERSED = {FASTER: SLOWER, SLOWER: FASTER, SAME: SAME, UNKNOWN: UNKNOWN}


def assert_mirrored(a: RunRecord, b: RunRecord) -> None:
    there, back = compare(a, b), compare(b, a)
    assert there.verdict == REVERSED[back.verdict]
    for one, other in zip(there.lines, back.lines):
        assert (one.verdict, one.p) == (REVERSED[other.verdict], other.p)
        for name, found in one.estimates.items():
            mirror = other.estimates[name]
            assert (found.a, found.b) == (mirror.b, mirror.a)
            assert found.verdict == REVERSED[mirror.verdict]
            assert (found.ratio, found.low, found.high) == pytest.approx(
                (1 / mirror.ratio, 1 / mirror.high, 1 / mirror.low), rel=1e-12)


REPETITIONS = st.lists(st.lists(st.integers(1, 3000), min_size=1, max_size=7), min_size=1,
                       max_size=6)
TAILS = st.sampled_from([3.0, 4.5, 30.0])


@given(REPETITIONS, REPETITIONS, TAILS, TAILS, st.integers(1, 2))
@example([[1000] * 6] * 6, [[1000] * 6] * 6, 3.0, 30.0, 2)
def test_exchanged_runs_have_the_reversed_result(ours, theirs, tail: float, other: float,
                                                 number: int) -> None:
    a, b = (run(each, [step(LATENCY, rates, repetition=at, p99_ratio=ratio)
                       for at, rates in enumerate(side)])
            for each, side, ratio in ((1, ours, tail), (number, theirs, other)))
    assert_mirrored(a, b)


def test_exchanged_runs_at_the_border() -> None:
    """Where chance decides between two verdicts."""
    rng = random.Random(7)
    for ratio in (0.75, 0.8, 0.85, 0.9):
        for _ in range(25):
            assert_mirrored(run(1, noisy(rng, LATENCY, 1000.0, 3, 0.1)),
                            run(2, noisy(rng, LATENCY, 1000.0 * ratio, 3, 0.1)))


@given(REPETITIONS)
@example([[1000] * 6])
def test_a_run_and_itself_have_no_difference(rates) -> None:
    """However few and scattered its repetitions are."""
    record = run(1, [step(LATENCY, each, repetition=at) for at, each in enumerate(rates)])
    found = compare(record, record)
    assert found.verdict == SAME and found.slower == ()
    for line in found.lines:
        assert (line.verdict, line.p) == (SAME, 1.0)
        assert all((each.ratio, each.low, each.high) == (1.0, 1.0, 1.0)
                   for each in line.estimates.values())
    assert found.notes == ('probe 1 is compared with itself',)


def test_equal_results_of_two_runs_have_an_interval() -> None:
    """Their random numbers differ: else the noise of both sides would cancel out."""
    speed = compare(flat(1, 1000, 1010, 990), flat(2, 1000, 1010, 990)).lines[0].estimates['iops']
    assert speed.ratio == 1.0 and speed.low < 0.95 and speed.high > 1.05


def test_other_lines_do_not_change_the_result_of_a_line() -> None:
    rng = random.Random(8)
    a, b = (noisy(rng, LATENCY, speed, 3, 0.1) for speed in (1000.0, 850.0))
    more = noisy(rng, IOPS, 1000.0, 3, 0.1)
    assert compare(run(1, [*more, *a]), run(2, [*more, *b])).lines[1] == compare(
        run(1, a), run(2, b)).lines[0]


def test_a_verdict_contains_its_numbers() -> None:
    line = compare(flat(1, 1000, 1010, 990), flat(2, 502, 500, 498)).lines[0]
    assert line.label == 'latency read' and line.verdict == SLOWER
    assert line.repetitions == (3, 3)
    speed, latency = line.estimates['iops'], line.estimates['latency']
    assert (speed.a, speed.b) == (1000.0, 500.0) and speed.ratio == pytest.approx(0.5, rel=0.01)
    assert 0.3 < speed.low < 0.5 < speed.high < 0.7
    assert latency.ratio == pytest.approx(2.0, rel=0.01) and latency.verdict == SLOWER
    assert line.estimates['bandwidth'].b == 500.0 * 4096
    assert line.why.startswith('0.50 times (0.')
    assert '); 500 IOPS (before: 1,000 IOPS); p99 6 ms (before: 3 ms)' in line.why


def test_faster_and_what_does_not_matter() -> None:
    assert compare(flat(1, 500, 502, 498), flat(2, 1000, 990, 1010)).verdict == FASTER
    many = [1000.0 + number for number in range(10)]
    close = compare(flat(1, *many), flat(2, *(0.96 * each for each in many)))
    # Ranks prove it, but 4 % is not worth a word.
    assert close.lines[0].p < 0.5 and close.verdict == SAME


def test_what_seems_faster_is_not_no_difference() -> None:
    found = compare(flat(1, 500, 502, 498), flat(2, 560, 549, 571))
    assert [line.verdict for line in found.lines] == [FASTER] and found.verdict == UNKNOWN


def test_a_fixed_rate_leaves_only_latency() -> None:
    job = replace(LATENCY, rate_iops=100)
    fast, slow = (run(number, [with_mean(step(job, [100.0] * 10, repetition=each), mean)
                               for each in range(3)]) for number, mean in ((1, 1e6), (2, 3e6)))
    line = compare(fast, slow).lines[0]
    assert line.estimates['iops'].verdict == SAME and line.verdict == SLOWER
    assert line.why.startswith('3.00 times (') and line.why.endswith('); 3 ms (before: 1 ms)')


def test_a_long_tail_alone() -> None:
    a, b = flat(1, 1000, 1010, 990), flat(2, 1000, 1010, 990, p99_ratio=30.0)
    line = compare(a, b).lines[0]
    assert line.estimates['iops'].verdict == SAME and line.verdict == SLOWER
    assert line.why.endswith('; p99 30 ms (before: 3 ms)')
    better = compare(b, a).lines[0]
    assert better.verdict == FASTER and better.why.endswith('; p99 3 ms (before: 30 ms)')
    # One odd repetition is no tail, and three a side are no reason for an alarm.
    odd = run(3, [*zip(b.steps[:1], b.results[:1]), *zip(a.steps[1:], a.results[1:])])
    assert compare(a, odd).lines[0].verdict == SAME
    assert compare(a, b).slower == ()
    more = [990.0 + number for number in range(6)]
    assert compare(flat(1, *more), flat(2, *more, p99_ratio=30.0)).slower


def test_one_repetition_shows_no_tail() -> None:
    line = compare(flat(1, 1000), flat(2, 1000, p99_ratio=300.0)).lines[0]
    assert line.estimates['p99'].ratio > 50.0
    assert line.verdict != SLOWER and 'p99' not in line.why


def test_only_what_both_have_is_compared() -> None:
    a = run(1, [step(LATENCY, [1000.0] * 10), step(IOPS, [9000.0] * 10)])
    b = run(2, [step(LATENCY, [1000.0] * 10), step(WRITING, [700.0] * 10)])
    found = compare(a, b)
    assert [line.label for line in found.lines] == ['latency read']
    assert 'only in probe 1: iops read' in found.notes
    assert 'only in probe 2: latency write' in found.notes


def test_nothing_in_common() -> None:
    a, b = run(1, [step(LATENCY, [1.0] * 9)]), run(2, [step(LINEAR, [1.0] * 9)])
    with pytest.raises(NothingInCommon, match='cannot compare probes 1 and 2: they have no job in '
                                              'common .latency read; throughput read'):
        compare(a, b)
    with pytest.raises(NothingInCommon, match='cannot compare probe 1 of pool:rbd '
                       'with probe 3 of pool:other'):
        compare(a, replace(a, id=3, target=Target('pool', 'other')))
    with pytest.raises(NothingInCommon, match='no measurement'):
        compare(a, run(4, []))


def test_an_image_is_never_compared_with_objects() -> None:
    objects, image = (run(number, [step(replace(LATENCY, ioengine=ioengine), [9.0] * 9)])
                      for number, ioengine in enumerate(('rados', 'rbd')))
    with pytest.raises(NothingInCommon):
        compare(objects, image)


def test_names_and_lengths_make_no_other_job() -> None:
    renamed = replace(LATENCY, name='mine', runtime=20.0, ramp_time=3.0, io_size=1 << 30)
    assert len(compare(run(1, [step(LATENCY, [9.0] * 9)]), run(2, [step(renamed, [9.0] * 9)])).lines
               ) == 1
    with pytest.raises(NothingInCommon):
        compare(run(1, [step(LATENCY, [9.0] * 9)]),
                run(2, [step(replace(LATENCY, size=1 << 30), [9.0] * 9)]))


def test_osds_of_different_lists() -> None:
    a = run(1, [step(LATENCY, [1000.0] * 9, osd) for osd in (0, 1, 2)],
            Target('osd', '', (0, 1, 2)))
    b = run(2, [step(LATENCY, [500.0] * 9, osd) for osd in (1, 7)], Target('osd', '', (1, 7)))
    found = compare(a, b)
    assert [line.label for line in found.lines] == ['latency read osd.1']
    assert found.verdict == SLOWER


def notes(a: RunRecord, b: RunRecord) -> str:
    found: RunComparison = compare(a, b)
    return '\n'.join(found.notes)


def test_what_to_keep_in_mind() -> None:
    a, b = flat(1, 1000), flat(2, 1000)
    uncertain = ('the result is uncertain: %s the variation, which is assumed to be 10 %%; use at '
                 'least three repetitions')
    assert notes(a, b) == uncertain % 'one repetition does not show'
    assert notes(flat(1, 9, 9, 9), flat(2, 9, 9, 9)) == ''
    assert notes(flat(1, 9, 9, 9), flat(2, 9, 9)) == uncertain % 'two repetitions show little of'
    three = flat(2, 9, 9, 9)
    limited = replace(three, results=(
        three.results[0], replace(three.results[1], client_limited=True), three.results[2]))
    assert notes(flat(1, 9, 9, 9), limited) == (
        'the CPU of the probe process limited probe 2 in latency read: the cluster may be faster')
    scrubbed = replace(b, conditions=('deep scrub of 3 PGs', 'the balancer was on'))
    assert 'during probe 2: deep scrub of 3 PGs; the balancer was on' in notes(a, scrubbed)
    cut = replace(b, state='cancelled', steps=b.steps * 2)
    assert 'probe 2 is cancelled with 1 of 2 measurements' in notes(a, cut)


def test_streams_of_one_job_are_added_up() -> None:
    job = replace(LATENCY, numjobs=2)
    one, result = step(job, [300.0] * 10)
    other = replace(result.streams[0], name='b', read=direction(job, [100.0] * 10, 9.0))
    both = run(1, [(replace(one, streams=one.streams * 2),
                    replace(result, streams=(result.streams[0], other)))])
    estimates = compare(both, replace(both, id=2)).lines[0].estimates
    assert estimates['iops'].a == 400.0
    # 3 of 4 operations took a third of the others' time; p99 is that of the worse stream.
    assert estimates['latency'].a == pytest.approx(5e6, rel=0.01)
    assert estimates['p99'].a == pytest.approx(90e6, rel=0.01)


def test_a_quick_profile_is_compared_at_once() -> None:
    rng = random.Random(5)
    jobs = [replace(each, rw=rw) for each in (LATENCY, IOPS, LINEAR)
            for rw in ('randread', 'randwrite')]
    a, b = (slimmed(run(number, [pair for job in jobs
                                 for pair in noisy(rng, job, 1000.0, 3, 0.05)]))
            for number in (1, 2))
    begin = time.process_time()
    assert len(compare(a, b).lines) == 6
    assert time.process_time() - begin < 0.5


def test_mixed_jobs_have_both_directions() -> None:
    mixed = replace(LATENCY, rw='randrw')
    each, result = step(mixed, [50.0] * 10)
    stream = replace(result.streams[0], write=direction(mixed, [20.0] * 10))
    record = run(1, [(each, replace(result, streams=(stream,)))])
    assert [line.label for line in compare(record, replace(record, id=2)).lines] == [
        'latency read', 'latency write']
    with pytest.raises(NothingInCommon):
        compare(record, run(2, [step(replace(mixed, rwmixread=70), [50.0] * 10)], POOL))


def test_one_uncertain_line_of_twenty_is_chance() -> None:
    same = compare(flat(1, 5000.0), flat(2, 5000.0)).lines[0]
    lines = [same._replace(verdict=SAME)] * 19
    assert _overall([*lines, same._replace(verdict=SLOWER)], []) == SAME
    assert _overall([*lines[1:], *[same._replace(verdict=FASTER)] * 2], []) == UNKNOWN


def test_latencies_of_seconds_are_written_out() -> None:
    assert comparing._two_values_text(2.4e9, 1.1e9, comparing.LATENCY) == '2,400, 1,100 ms'
