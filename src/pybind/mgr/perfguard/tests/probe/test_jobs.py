# SPDX-License-Identifier: LGPL-2.1-or-later
"""Jobs from profiles, words and job files."""
import re
import shutil
import subprocess
from typing import Dict, Optional

import pytest

from perfguard.probe.jobs import (ALIASES, IMPLIED, PROFILES, WORDS, default_repeat, job_options,
                                  number_between, parse_jobs, parse_seconds, parse_size, profile_of,
                                  remarks, size_text)
from perfguard.probe.types import BadJob, Job

KIB, MIB = 1 << 10, 1 << 20


def one(**words: str) -> Job:
    job, = parse_jobs(None, {'rw': 'randread', **words}, None)
    return job


def refused(profile: Optional[str] = None, words: Optional[Dict[str, str]] = None,
            job_file: Optional[str] = None) -> str:
    with pytest.raises(BadJob) as caught:
        parse_jobs(profile, words or {}, job_file)
    assert '\n' not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize('text, size', [
    ('4096', 4096), ('4k', 4096), ('4K', 4096), ('4kb', 4096), ('4KiB', 4096), ('4Ki', 4096),
    ('4m', 4 * MIB), ('4M', 4 * MIB), ('1g', 1 << 30), ('2t', 2 << 40), (' 8k ', 8192),
    ('512b', 512), ('0', 0)])
def test_sizes(text: str, size: int) -> None:
    assert parse_size('bs', text) == size


@pytest.mark.parametrize('text', ['', 'k', '-4k', '+4k', '4 k', '1.5k', '4k,8k', '0x1000', 'inf',
                                  '\u0664k', '4p', '4i', '9' * 30])
def test_no_sizes(text: str) -> None:
    with pytest.raises(BadJob, match='bs=.*must be a size'):
        parse_size('bs', text)


@pytest.mark.parametrize('text, seconds', [
    ('10', 10), ('10s', 10), ('2.5', 2.5), ('500ms', 0.5), ('2m', 120), ('1h', 3600), ('1M', 60)])
def test_times(text: str, seconds: float) -> None:
    assert parse_seconds('runtime', text) == pytest.approx(seconds)


@pytest.mark.parametrize('text', ['', 's', '-1', 'nan', 'inf', '1e3', '10 min', '1d', '.5', '5.'])
def test_no_times(text: str) -> None:
    with pytest.raises(BadJob, match='runtime=.*must be a time'):
        parse_seconds('runtime', text)


@pytest.mark.parametrize('size, text', [(4096, '4k'), (4 * MIB, '4m'), (4097, '4097'), (0, '0'),
                                        (1536 * KIB, '1536k'), (1 << 40, '1t')])
def test_a_size_as_text_reads_as_the_same(size: int, text: str) -> None:
    assert size_text(size) == text and parse_size('size', text) == size


def test_words_alone_make_one_job() -> None:
    assert one() == Job('randread', 'randread', bs=4096, iodepth=1, size=64 * MIB, nrfiles=16,
                        runtime=10.0, ramp_time=1.0)
    job = one(rw='readwrite', bs='16k', iodepth='8', numjobs='2', size='8m', nrfiles='4',
              runtime='90s', ramp_time='0', rate_iops='100', rwmixread='70', io_size='1g')
    assert job == Job('rw', 'rw', bs=16 * KIB, iodepth=8, size=8 * MIB, nrfiles=4, runtime=90.0,
                      ramp_time=0.0, numjobs=2, rwmixread=70, rate_iops=100, io_size=1 << 30)
    assert job.reads and job.writes and job.object_bytes == 2 * MIB


@pytest.mark.parametrize('words, objects', [
    ({'size': '1g'}, 256), ({'size': '1m'}, 1), ({'size': '4m'}, 1),
    ({'size': '64m', 'bs': '8m'}, 8),
    ({'size': '10m'}, None), ({'size': '32g'}, None), ({'size': '32g', 'nrfiles': '1024'}, 1024)])
def test_without_nrfiles_objects_have_4_mib(words: Dict[str, str], objects: Optional[int]) -> None:
    if objects is None:
        assert 'objects' in refused(words={'rw': 'read', **words})
    else:
        assert one(**words).nrfiles == objects


def test_profiles() -> None:
    def shape(profile: Optional[str]) -> list:
        return [(job.rw, job.bs, job.iodepth) for job in parse_jobs(profile, {}, None)]

    latency = [('randwrite', 4 * KIB, 1), ('randread', 4 * KIB, 1)]
    iops = [('randwrite', 4 * KIB, 128), ('randread', 4 * KIB, 128)]
    throughput = [('write', 4 * MIB, 16), ('read', 4 * MIB, 16)]
    assert shape('latency') == latency and shape('iops') == iops
    assert shape('throughput') == throughput
    assert shape('quick') == shape(None) == shape('') == latency + iops + throughput
    assert {default_repeat(profile) for profile in PROFILES} == {3} and default_repeat('') == 1


def test_which_profile_is_meant() -> None:
    assert profile_of(None, {}, None) == profile_of('', {'bs': '8k'}, None) == 'quick'
    assert profile_of('iops', {'rw': 'read'}, None) == 'iops'
    assert profile_of(None, {'rw': 'read'}, None) == profile_of(None, {}, '[a]') == ''


@pytest.mark.parametrize('profile', PROFILES)
def test_jobs_of_a_profile_have_names_of_their_own(profile: str) -> None:
    jobs = parse_jobs(profile, {}, None)
    assert len({job.name for job in jobs}) == len(jobs)
    assert all(job.numjobs * job.nrfiles >= job.iodepth for job in jobs), 'depth needs objects'


def test_words_override_the_profile() -> None:
    jobs = parse_jobs('latency', {'iodepth': '4', 'runtime': '3', 'size': '1g'}, None)
    assert [job.name for job in jobs] == ['randwrite-4k-4', 'randread-4k-4']
    assert {(job.iodepth, job.runtime, job.nrfiles) for job in jobs} == {(4, 3.0, 256)}
    # Larger blocks than the profile's objects: larger objects.
    assert {job.nrfiles for job in parse_jobs('latency', {'bs': '4m'}, None)} == {64}
    assert {job.nrfiles for job in parse_jobs('iops', {'nrfiles': '64'}, None)} == {64}


def test_jobs_that_words_make_equal_count_once() -> None:
    job, = parse_jobs('iops', {'rw': 'randrw', 'rwmixread': '70'}, None)
    assert (job.name, job.rw, job.rwmixread) == ('randrw-4k-128', 'randrw', 70)
    assert len(parse_jobs('quick', {'rw': 'read'}, None)) == 3


@pytest.mark.parametrize('words, part', [
    ({'rw': 'trim'}, 'rw=trim: must be one of read, write, randread, randwrite, rw, randrw'),
    ({'bs': '511'}, 'bs=511: must be from 512 to 64m'),
    ({'bs': '65m'}, 'bs=65m: must be from 512 to 64m'),
    ({'bs': '8m', 'size': '64m', 'nrfiles': '16'},
     'bs=8m is larger than an object of 4m (size=64m in 16 objects)'),
    ({'iodepth': '0'}, 'iodepth=0: must be from 1 to 1024'),
    ({'iodepth': '1025'}, 'from 1 to 1024'),
    ({'iodepth': '-1'}, 'iodepth=-1: must be a whole number'),
    ({'iodepth': '1.5'}, 'must be a whole number'),
    ({'numjobs': '65'}, 'from 1 to 64'),
    ({'nrfiles': '4097'}, 'from 1 to 4096'),
    ({'nrfiles': '0'}, 'from 1 to 4096'),
    ({'size': '64m', 'nrfiles': '7'}, 'size=64m in 7 objects: the objects would differ in size'),
    ({'size': '1g', 'nrfiles': '4'}, 'size=1g in 4 objects: an object is limited to 128m'),
    ({'size': '0'}, 'size=0: must be'),
    ({'runtime': '0'}, 'runtime=0: must be from 0.1 s to 3600 s'),
    ({'runtime': '2h'}, 'runtime=2h: must be from 0.1 s to 3600 s'),
    ({'ramp_time': '11m'}, 'ramp_time=11m: must be from 0 s to 600 s'),
    ({'rwmixread': '101'}, 'rwmixread=101: must be from 0 to 100'),
    ({'rwmixread': '50'}, 'rwmixread=50 requires a job that reads and writes'),
    ({'io_size': '4095'}, 'io_size=4095 is less than one operation (bs=4k)'),
    ({'rate_iops': 'many'}, 'rate_iops=many: must be a whole number'),
    ({'bs': '4m', 'iodepth': '129'}, 'limit is 512m in flight'),
    ({'nrfiles': '4096', 'numjobs': '5'}, 'nrfiles=4096 with numjobs=5: limit is 16384 objects'),
    ({'iodepth': '1024', 'numjobs': '5'}, 'limit is 4096 operations in flight'),
    ({'block': '4k'}, 'block=4k: unknown job option; must be one of rw, bs, iodepth')])
def test_refused(words: Dict[str, str], part: str) -> None:
    assert part in refused(words={'rw': 'randread', **words})


@pytest.mark.parametrize('words', [
    {'bs': '512', 'size': '512', 'nrfiles': '1'}, {'bs': '64m', 'size': '128m', 'nrfiles': '1'},
    {'iodepth': '1024'}, {'numjobs': '64'}, {'nrfiles': '4096'}, {'runtime': '100ms'},
    {'runtime': '1h'}, {'ramp_time': '10m'}, {'rw': 'rw', 'rwmixread': '0'},
    {'rw': 'rw', 'rwmixread': '100'}, {'rate_iops': '1000000'}, {'rate_iops': '0'},
    {'io_size': '4k'}, {'io_size': '1024t'}, {'bs': '4m', 'iodepth': '128'},
    {'nrfiles': '4096', 'numjobs': '4'}, {'iodepth': '1024', 'numjobs': '4'},
    {'size': '512g', 'nrfiles': '4096'}, {'bs': '4m', 'size': '64m', 'nrfiles': '16'}])
def test_values_at_their_limits_are_valid(words: Dict[str, str]) -> None:
    job = one(**words)
    assert {word: getattr(job, word) for word in words} == {
        word: WORDS[word].parse(word, text) for word, text in words.items()}


@pytest.mark.parametrize('words, part', [
    ({'rate_iops': '1000001'}, 'rate_iops=1000001: must be from 0 to 1000000'),
    ({'io_size': '1025t'}, 'io_size=1025t: must be from 0 to 1024t'),
    ({'size': '513g', 'nrfiles': '4096'}, 'size=513g: must be from 512 to 512g'),
    ({'size': '511', 'nrfiles': '1'}, 'size=511: must be from 512 to 512g'),
    ({'runtime': '99ms'}, 'runtime=99ms: must be from 0.1 s to 3600 s'),
    ({'ramp_time': '601'}, 'ramp_time=601: must be from 0 s to 600 s'),
    ({'ioengine': 'libaio'}, 'ioengine=libaio: must be rados or rbd')])
def test_values_beyond_their_limits_are_refused(words: Dict[str, str], part: str) -> None:
    assert refused(words={'rw': 'randread', **words}) == part


@pytest.mark.parametrize('text, is_valid', [
    ('1', True), ('12345', True), ('0', False), ('12346', False), ('123456', False), ('1.0', False),
    ('-1', False), ('', False), ('\u0661', False), (' 1', False)])
def test_numbers_that_are_no_options_of_a_job(text: str, is_valid: bool) -> None:
    if is_valid:
        assert number_between('repeat', text, 1, 12345) == int(text)
    else:
        with pytest.raises(BadJob) as caught:
            number_between('repeat', text, 1, 12345)
        assert str(caught.value) == (
            'repeat is %r: must be a number from 1 to 12345' % text)


def test_numbers_and_sizes_of_18_digits_are_read() -> None:
    assert parse_size('bs', '9' * 18) == 10 ** 18 - 1
    with pytest.raises(BadJob, match='must be a size'):
        parse_size('bs', '9' * 19)
    assert 'must be from 1 to 1024' in refused(words={'rw': 'read', 'iodepth': '9' * 18})
    assert 'must be a whole number' in refused(words={'rw': 'read', 'iodepth': '9' * 19})


def test_a_job_file_may_have_2000_lines() -> None:
    job, = parse_jobs(None, {}, '#\n' * 1998 + '[a]\nrw=read')
    assert job.name == 'a'
    assert refused(job_file='#\n' * 1999 + '[a]\nrw=read') == (
        'the job file has 2001 lines (limit 2000)')


def test_profile_or_job_file() -> None:
    assert refused('fast') == ("unknown profile 'fast': must be one of latency, "
                               'iops, throughput, quick, curve')
    assert 'not both' in refused('quick', {}, '[a]\nrw=read')


JOB_FILE = '''
; two jobs
[global]
ioengine=rados
time_based
direct=1
bs = 8k     # of both
runtime=5

[seq-read]
rw=read
stonewall

# the other
[mixed]
rw=randrw
rwmixread=30
bs=16k
iodepth=32
group_reporting=1
'''


def test_job_file() -> None:
    first, second = parse_jobs(None, {}, JOB_FILE)
    assert first == Job('seq-read', 'read', bs=8 * KIB, iodepth=1, size=64 * MIB, nrfiles=16,
                        runtime=5.0, ramp_time=1.0)
    assert (second.name, second.rw, second.bs, second.iodepth, second.rwmixread) == (
        'mixed', 'randrw', 16 * KIB, 32, 30)
    assert {job.runtime for job in parse_jobs(None, {'runtime': '2'}, JOB_FILE)} == {2.0}


def test_job_file_the_longest_name() -> None:
    job, = parse_jobs(None, {}, '[%s]\nrw=read\n' % ('a' * 64))
    assert job.name == 'a' * 64


def test_job_file_a_second_global_section_is_for_what_follows() -> None:
    jobs = parse_jobs(None, {}, '[a]\nrw=read\n[global]\nbs=64k\n[b]\nrw=read\r\n')
    assert [job.bs for job in jobs] == [4 * KIB, 64 * KIB]


@pytest.mark.parametrize('text, part', [
    ('', 'the job file has no job'),
    ('[global]\nrw=read', 'the job file has no job'),
    ('rw=read', 'line 1 of the job file: rw=read is not in a [section]'),
    ('[a]\nrw=read\nfsync=1', 'line 3 of the job file, [a]: unknown key '
     'fsync; must be one of rw, bs'),
    ('[a]\nrw=rw\nrwmixwrite=101', 'line 3 of the job file, [a]: rwmixwrite=101: must be from 0'),
    ('[a]\nblocksize=1', 'line 2 of the job file, [a]: bs=1: must be from 512'),
    ('[a\nrw=read', 'line 1 of the job file: [a is not a [section]'),
    ('[]\nrw=read', 'is not a [section]'),
    ('[%s]' % ('a' * 65), 'is not a [section]'),
    ('[a]\nrw=read\n[a]\nrw=write', 'line 3 of the job file: duplicate job [a]'),
    ('[a]\nrw=read\nioengine=libaio', 'ioengine=libaio: must be rados or rbd'),
    ('[a]\nrw=read\n[b]\nrw=read\nioengine=rbd', 'must be the same for all jobs'),
    ('[a]\nrw=read\ntime_based=0', 'must be time_based or time_based=1'),
    ('[a]\nrw=read\nruntime=0', 'line 3 of the job file, [a]: runtime=0: must be'),
    ('[a]\nbs=8k', 'job a: rw is missing'),
    ('[a]\nrw=read\nbs=8m\nnrfiles=16', 'job a: bs=8m is larger than an object'),
    ('[a]\nrw=read\nrate_iops', 'rate_iops=: must be a whole number'),
    ('#\n' * 2001, 'the job file has 2001 lines'),
    (''.join('[%d]\nrw=read\n' % number for number in range(33)), '33 jobs (limit 32)')])
def test_job_file_refused(text: str, part: str) -> None:
    assert part in refused(job_file=text)


#: In the manner of the examples of fio for its engines rados and rbd.
RADOS_FILE = '''[global]
ioengine=rados
clientname=admin
pool=bench
busy_poll=0
rw=randwrite
bs=4k
[deep]
iodepth=32
size=128m
nr_files=32
'''
RBD_FILE = '''[global]
ioengine=rbd
clientname=admin
pool=rbd
rbdname=bench
invalidate=0\t# required
rw=randwrite
bs=4k
[deep]
iodepth=32
'''


def test_files_that_name_a_cluster_are_read_with_a_remark() -> None:
    job, = parse_jobs(None, {}, RADOS_FILE)
    assert job == Job('deep', 'randwrite', 4 * KIB, 32, 128 * MIB, 32, 10.0, 1.0)
    assert parse_jobs(None, {}, RBD_FILE)[0].ioengine == 'rbd'
    text, = remarks(RADOS_FILE)
    assert text.endswith('ignored: pool, clientname, busy_poll')
    access, effect = remarks(RBD_FILE)
    assert 'rbdname' in access and effect == 'without effect on objects: invalidate'
    assert remarks(None) == remarks(JOB_FILE.replace('[mixed]', '[mixed]\nstonewall')) == ()


def test_fio_s_other_names_of_keys() -> None:
    job, = parse_jobs(None, {}, '[a]\nreadwrite=rw\nblocksize=8k\nnr_files=8\ntimeout=5\n'
                      'io_limit=1g\nrwmixread=10\nrwmixwrite=70\n')
    assert (job.rw, job.bs, job.nrfiles, job.runtime, job.io_size, job.rwmixread) == (
        'rw', 8 * KIB, 8, 5.0, 1 << 30, 30)


@pytest.mark.skipif(shutil.which('fio') is None, reason='fio is not installed')
def test_all_other_names_that_fio_has() -> None:
    found = {}
    for key in (*WORDS, *IMPLIED):
        shown = subprocess.run(['fio', '--cmdhelp=' + key], capture_output=True, text=True,
                               check=True).stdout
        found.update({alias: key for alias in re.findall(r'^ *alias: (\w+)$', shown, re.M)})
    assert found == ALIASES


@pytest.mark.parametrize('words', [
    {}, {'rw': 'randrw', 'rwmixread': '30', 'numjobs': '2', 'rate_iops': '100'},
    {'rw': 'read', 'bs': '1m', 'io_size': '1g', 'runtime': '500ms', 'ramp_time': '0'},
    {'ioengine': 'rbd'}])
def test_the_job_options_of_results_are_a_job_file(words: Dict[str, str]) -> None:
    job = one(**words)
    text = '[%s]\n%s' % (job.name, '\n'.join('%s=%s' % row for row in job_options(job).items()))
    assert parse_jobs(None, {}, text) == (job,)


@pytest.mark.parametrize('settings, names', [
    ({}, 'b, c'), ({'c': 'stonewall'}, 'b'), ({'b': 'wait_for_previous', 'c': 'stonewall=1'}, ''),
    ({'b': 'stonewall=0', 'c': 'stonewall'}, 'b'), ({'global': 'stonewall'}, ''),
    ({'global': 'stonewall', 'c': 'stonewall=0'}, 'c')])
def test_a_remark_names_jobs_that_fio_would_run_together(
        settings: Dict[str, str], names: str) -> None:
    text = ''.join('[%s]\n%s\n%s\n' % (
        name, '' if name == 'global' else 'rw=read', settings.get(name, ''))
        for name in ('global', 'a', 'b', 'c'))
    found = remarks(text)
    assert len(found) == bool(names) and all(
        each.endswith('together with the job before: ' + names) for each in found)


def test_every_word_has_its_help_and_its_field() -> None:
    assert set(WORDS) == set(Job.__dataclass_fields__) - {'name'}
    assert all(word.help for word in WORDS.values())
