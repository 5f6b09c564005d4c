# SPDX-License-Identifier: LGPL-2.1-or-later
"""The worker's percentiles against numpy, and the native engine's buckets against Python's."""
import ctypes
import random
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from perfguard.probe import worker
from perfguard.probe.histogram import BUCKETS, bucket_of, middle_of
from perfguard.probe.types import PERCENTILES
from perfguard.probe.worker.engine import SECOND_NS, Tally

ERROR_MAX = 0.004

DISTRIBUTIONS = {
    'even': lambda draw: draw.uniform(50_000, 5_000_000),
    'lognormal': lambda draw: draw.lognormvariate(13, 1.0),
    'heavy': lambda draw: draw.lognormvariate(12, 3.0),
    'pareto': lambda draw: 100_000 * draw.paretovariate(0.7),
    'two humps': lambda draw: draw.gauss(*((2e5, 1e4) if draw.random() < 0.99 else (4e7, 1e6))),
    'all alike': lambda draw: 123_456_789,
    'tiny': lambda draw: draw.randrange(1, 400),
}


@pytest.mark.parametrize('number', [1, 10, 100_000])
@pytest.mark.parametrize('name', DISTRIBUTIONS)
def test_against_numpy(name, number):
    draw = random.Random('%s %d' % (name, number))
    samples = [int(DISTRIBUTIONS[name](draw)) % (1 << 42) for _ in range(number)]
    tally = Tally()
    for sample in samples:
        tally.add(sample, 1000, 4096)
    found = tally.direction(SECOND_NS).latency
    assert found is not None
    ordered = np.sort(np.array(samples))
    assert (found.min, found.max) == (ordered[0], ordered[-1])
    assert found.mean == pytest.approx(np.mean(ordered), rel=1e-9)
    assert found.stddev == pytest.approx(np.std(ordered, ddof=1) if number > 1 else 0.0,
                                         rel=1e-6, abs=1.0)
    assert len(found.percentile) == len(PERCENTILES)
    for percentile in PERCENTILES:
        # numpy's own rank may be one too high where the product is no whole number in binary.
        expected = [np.percentile(ordered, exact, method='inverted_cdf')
                    for exact in (percentile, percentile * (1 - 1e-12))]
        value = found.percentile['%.6f' % percentile]
        assert min(abs(value / one - 1) for one in expected) <= ERROR_MAX, percentile


def test_buckets_hold_what_they_say():
    """Each boundary of an octave and some latencies between: the middle is near, order is kept."""
    latencies = sorted({max(0, (1 << bits) + near) for bits in range(42) for near in (-1, 0, 1)}
                       | {random.Random(bits).randrange(1 << bits) for bits in range(1, 42)})
    buckets = [bucket_of(latency) for latency in latencies]
    assert buckets == sorted(buckets) and buckets[-1] < BUCKETS
    for latency, bucket in zip(latencies, buckets):
        assert abs(middle_of(bucket) - latency) <= latency * ERROR_MAX / 2
    assert [middle_of(bucket_of(latency)) for latency in range(512)] == list(range(512))
    assert bucket_of(1 << 60) == BUCKETS - 1


def test_the_native_engine_has_the_same_buckets(tmp_path):
    if shutil.which('cc') is None:
        pytest.skip('no C compiler found')
    core = Path(worker.__file__).with_name('core.c')
    source = tmp_path / 'buckets.c'
    source.write_text('#include "%s"\nunsigned exported(uint64_t latency)\n'
                      '{ return bucket_of(latency); }\n'
                      'unsigned number(void) { return BUCKETS; }\n' % core)
    subprocess.run(['cc', '-shared', '-fPIC', str(source), '-o', str(tmp_path / 'buckets.so'),
                    '-ldl', '-pthread'], check=True)
    native = ctypes.CDLL(str(tmp_path / 'buckets.so'))
    native.exported.argtypes = [ctypes.c_uint64]
    assert native.number() == BUCKETS
    draw = random.Random(4)
    latencies = [*range(2000), *(draw.randrange(1 << draw.randrange(1, 50)) for _ in range(5000))]
    for latency in latencies:
        assert native.exported(latency) == bucket_of(latency), latency


def test_seconds_end_where_the_measured_time_ends():
    tally = Tally()
    tally.add(1000, SECOND_NS // 2, 4096)
    tally.add(3000, SECOND_NS // 2, 4096)
    tally.add(2000, 2 * SECOND_NS + SECOND_NS // 4, 4096)
    direction = tally.direction(2 * SECOND_NS)
    assert direction.runtime_ns == 2 * SECOND_NS + SECOND_NS // 4
    assert [tuple(second) for second in direction.seconds] == [
        (1.0, 2, 8192, 4000), (2.0, 0, 0, 0), (2.25, 1, 4096, 2000)]
    # Nothing came after the first second, but it was waited for.
    assert len(tally.direction(5 * SECOND_NS).seconds) == 5
    assert tally.direction(5 * SECOND_NS).iops == pytest.approx(3 / 5)


def test_nothing_done():
    direction = Tally().direction(SECOND_NS)
    assert direction.latency is None and direction.iops == 0.0
    assert [second.ios for second in direction.seconds] == [0]
