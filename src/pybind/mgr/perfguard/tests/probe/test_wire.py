# SPDX-License-Identifier: LGPL-2.1-or-later
"""What the mgr and the worker send each other: how much of it, and what makes no sense."""
import json
from typing import Any, Dict

import pytest

from perfguard.codec import encode
from perfguard.probe.jobs import parse_jobs, plan_steps
from perfguard.probe.placement import naming_of, run_prefix
from perfguard.probe.types import Target
from perfguard.probe.worker.protocol import (WorkerRequest, request_from_json, request_to_json,
                                             step_result)

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
