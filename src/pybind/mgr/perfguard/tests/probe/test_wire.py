# SPDX-License-Identifier: LGPL-2.1-or-later
"""What the mgr and the worker send each other: how much of it, and what makes no sense."""
import json
from dataclasses import replace
from typing import Any, Dict

import pytest

from perfguard.codec import encode
from perfguard.probe.jobs import parse_jobs, plan_steps
from perfguard.probe.placement import Naming, naming_of, run_prefix
from perfguard.probe.types import BadJob, Job, JobStep, Stream, Target
from perfguard.probe.worker.protocol import (Cancelled, Failed, Input, WorkerRequest, other_version,
                                             request_from_json, request_to_json, step_result,
                                             words)

from ..fakes.probe_runs import repeated

#: What a pipe holds: the request is sent in one write.
PIPE_BYTES = 1 << 20


def test_a_request_for_five_hundred_osds_fits_into_a_pipe() -> None:
    jobs, target = parse_jobs('quick', {}, None), Target('osd', osds=tuple(range(500)))
    leads = {'1.%x' % pg: pg * 7 % 500 for pg in range(65536)}
    steps = plan_steps(jobs, target, 3)
    assert len(steps) == 500 * 18
    request = WorkerRequest('p', run_prefix(7), 'client.x', 'AQ', 'm', steps=steps,
                            naming=naming_of(7, jobs, target, leads, 1, 65536))
    line = json.dumps(request_to_json(request))
    assert len(line) < PIPE_BYTES
    assert request_from_json(json.loads(line)) == request


def result() -> Dict[str, Any]:
    job, = parse_jobs(None, {'rw': 'randread', 'bs': '4k', 'size': '1m'}, None)
    sent: Dict[str, Any] = json.loads(json.dumps(encode(repeated(job, [100])[1][0])))
    return sent


@pytest.mark.parametrize('wrong', [
    {'streams': None}, {'streams': [1]}, {'streams': [{}]}, {'cpu_user': 'much'},
    {'cpu_share': None}])
def test_results_that_make_no_sense(wrong: Dict[str, Any]) -> None:
    with pytest.raises((AttributeError, LookupError, TypeError, ValueError)):
        step_result({**result(), **wrong})


@pytest.mark.parametrize('wrong', [
    {'ios': 'many'}, {'ios': -1}, {'ios': 1 << 63}, {'ios': 1.5}, {'bytes': None}, {'latency': 3},
    {'latency': {}}, {'seconds': [1]}, {'seconds': [['a', 1, 1, 1]]}, {'seconds': [[1.0]]},
    {'seconds': [[-1.0, 1, 1, 1]]}])
def test_directions_that_make_no_sense(wrong: Dict[str, Any]) -> None:
    sent = result()
    sent['streams'][0]['read'].update(wrong)
    with pytest.raises((AttributeError, LookupError, TypeError, ValueError)):
        step_result(sent)


JOB = Job('reads', 'randread', 4096, 1, 8192, 2, 2.0)
STREAM = Stream('0', ('perfguard-probe-7-4096-0', 'perfguard-probe-7-4096-1'))
REQUEST = WorkerRequest('p', 'perfguard-probe-7-', 'client.x', 'AQ', 'm',
                        steps=(JobStep(JOB, (STREAM,)),))


def received(**changes: Any) -> WorkerRequest:
    return request_from_json(json.loads(json.dumps(request_to_json(replace(REQUEST, **changes)))))


@pytest.mark.parametrize('changes', [
    {'mode': 'sweep', 'steps': ()}, {'engine': 'python'}, {'meeting': 'perfguard-probe-join-night'},
    {'naming': Naming(7, ((4096, 2),)), 'steps': (JobStep(JOB, (Stream('0', ()),)),)},
    {'steps': (JobStep(replace(JOB, bs=1, size=2), (STREAM,)),)},
    {'steps': (JobStep(replace(JOB, nrfiles=1, bs=8192), (STREAM,)),)}])
def test_requests_that_make_sense(changes: Dict[str, Any]) -> None:
    assert received(**changes) == replace(REQUEST, **changes)


@pytest.mark.parametrize('changes, text', [
    ({'mode': 'walk'}, "mode 'walk'"), ({'engine': 'diesel'}, "engine 'diesel'"),
    ({'prefix': '', 'steps': ()}, 'prefix must not be empty'),
    ({'naming': Naming(8, ((4096, 2),))},
     "objects of run 8 lack the prefix 'perfguard-probe-7-'"),
    ({'meeting': 'mine'}, "meeting 'mine'"),
    ({'steps': (JobStep(replace(JOB, bs=8192), (STREAM,)),)},
     'job reads: inconsistent bs 8192, iodepth 1, size 8192 and nrfiles 2'),
    ({'steps': (JobStep(replace(JOB, iodepth=0), (STREAM,)),)},
     'job reads: inconsistent bs 4096, iodepth 0, size 8192 and nrfiles 2'),
    ({'steps': (JobStep(replace(JOB, bs=0), (STREAM,)),)},
     'job reads: inconsistent bs 0, iodepth 1, size 8192 and nrfiles 2'),
    ({'steps': (JobStep(JOB, ()),)}, 'job reads: a stream has no objects'),
    ({'steps': (JobStep(JOB, (STREAM, Stream('1', ()))),)}, 'job reads: a stream has no objects'),
    ({'steps': (JobStep(JOB, (Stream('0', ('mine',)),)),)},
     "object 'mine' lacks the prefix 'perfguard-probe-7-'")])
def test_requests_that_make_no_sense(changes: Dict[str, Any], text: str) -> None:
    with pytest.raises(BadJob) as refused:
        received(**changes)
    assert str(refused.value) == 'bad request: ' + text


def test_a_request_of_another_version_is_refused_whatever_it_says() -> None:
    with pytest.raises(BadJob) as refused:
        request_from_json({'version': '0.1', 'bogus': 1})
    version = str(request_to_json(REQUEST)['version'])
    assert str(refused.value) == other_version('0.1', version) == (
        'the mgr runs perfguard 0.1, but %s is installed: restart the mgr, or run "ceph mgr fail"'
        % version)


@pytest.mark.parametrize('number, is_measure', [
    (0, True), ((1 << 63) - 1, True), (1 << 63, False), (-1, False)])
def test_numbers_of_results_are_bounded(number: int, is_measure: bool) -> None:
    sent = result()
    sent['streams'][0]['read']['ios'] = number
    if is_measure:
        assert step_result(sent).streams[0].read.ios == number
    else:
        with pytest.raises(ValueError, match='%d is no measure' % number):
            step_result(sent)


@pytest.mark.parametrize('code, text', [
    (-122, 'Disk quota exceeded (EDQUOT)'), (5, 'Input/output error (EIO)'),
    (-4095, 'Unknown error 4095 (errno 4095)')])
def test_errors_as_text(code: int, text: str) -> None:
    assert words(code) == text


def test_a_failure_is_one_line_with_a_negative_errno() -> None:
    for code in (5, -5):
        failed = Failed(code, 'two\nlines  here')
        assert (failed.errno, str(failed)) == (-5, 'two lines here')
    assert not issubclass(Cancelled, Failed)


def test_the_first_reason_of_a_cancellation_is_kept() -> None:
    given = Input()
    assert not given.cancelled.is_set() and not given.wait_to_begin(0, 0.0)
    given.cancel('interrupted')
    given.cancel('too late')
    assert given.cancelled.is_set() and given.reason == 'interrupted'
    assert given.wait_to_begin(0, -1.0)
