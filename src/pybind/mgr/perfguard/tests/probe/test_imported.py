# SPDX-License-Identifier: LGPL-2.1-or-later
"""What perfguard-probe prints on a client host, and what the mgr keeps of it."""
import errno
import json
import socket
import zlib
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, Callable, Dict, Iterator, List, Mapping, Optional, Tuple

import pytest

from perfguard.probe import client
from perfguard.codec import encode
from perfguard.errors import Refused
from perfguard.probe.child import KILLED_SECONDS
from perfguard.probe.expectations import Layout, expect
from perfguard.probe.fio_json import fio_json
from perfguard.probe.jobs import parse_jobs, plan_steps
from perfguard.probe.meeting import CannotJoin, Meeting, MeetingPlan
from perfguard.probe.orders import ImportedRun, RunId
from perfguard.probe.records import (ACTIVE_MGR, CLIENT, CLIENTS, MAX_IMPORTED, RunRecord,
                                     differing_conditions, imported_record, imported_to_json)
from perfguard.probe.types import BadJob, Target
from perfguard.probe.worker.protocol import (RUN, STEP_WAITS, SWEEP, Failed, WorkerRequest,
                                             request_from_json)

from ..fakes import probe_runs
from ..fakes.probe_cluster import ProbeDriver, fake_children
from .test_meeting import Pool, result

WORDS = {'rw': 'randrw', 'bs': '4k', 'size': '64k', 'nrfiles': '2', 'runtime': '1',
         'numjobs': '2', 'rwmixread': '70'}
REPEAT = 3


def measured(rate: int = 1000, created: float = 100.0, host: str = 'kvm7') -> Dict[str, Any]:
    jobs = parse_jobs(None, WORDS, None)
    target = Target('pool', 'rep')
    steps = plan_steps(jobs, target, REPEAT)
    record = RunRecord(
        0, 'done', '', target, created, created + 1.0, created + 20.0, steps=steps,
        results=tuple(probe_runs.result(step.job, [rate, rate]) for step in steps),
        setting={CLIENT: host})
    found: Dict[str, Any] = imported_to_json(record, jobs, REPEAT, 'f1')
    return found


@pytest.fixture
def driver(monkeypatch: Any) -> Iterator[ProbeDriver]:
    fake_children(monkeypatch)
    yield ProbeDriver()


def test_the_record_is_that_of_a_probe_in_the_mgr() -> None:
    record = imported_record(json.dumps(measured()))
    assert (record.id, record.state, record.trigger) == (0, 'done', 'import')
    assert record.target.key == 'pool:rep' and len(record.done) == REPEAT
    assert record.steps == plan_steps(parse_jobs(None, WORDS, None), record.target, REPEAT)
    assert record.results[0] == probe_runs.result(record.steps[0].job, [1000, 1000])


def test_numbers_may_be_zero() -> None:
    document = {**measured(), 'created': 0.0, 'started': 0.0}
    record = imported_record(json.dumps(document))
    assert (record.created, record.started) == (0.0, 0.0)


def change(*keys: Any, value: Any) -> Callable[[Dict[str, Any]], None]:
    def changed(document: Dict[str, Any]) -> None:
        at: Any = document
        for key in keys[:-1]:
            at = at[key]
        at[keys[-1]] = value
    return changed


@pytest.mark.parametrize('damage', [
    change('perfguard_probe', value=2), change('pool', value=7), change('host', value='a\nb'),
    change('repeat', value=0), change('repeat', value=10 ** 9), change('jobs', value=[]),
    change('jobs', 0, 'rw', value='erase'), change('jobs', 0, 'bs', value=4096),
    change('jobs', 0, 'ioengine', value='libaio'), change('jobs', 0, 'nosuch', value='1'),
    change('profile', value='x' * 300), change('state', value='running'),
    change('created', value=-1), change('created', value='NaN'),
    # In units that no clock has: "probe ls" could not show it.
    change('started', value=1e18), change('ended', value=1 << 62),
    change('results', 0, 'streams', 0, 'read', 'latency', 'mean', value=1e300),
    change('results', 0, 'streams', value=[]), change('results', 0, 'engine', value={}),
    change('results', 0, 'streams', 0, 'read', 'ios', value=-5),
    change('results', 0, 'streams', 0, 'read', 'ios', value='-5'),
    change('results', 0, 'streams', 0, 'read', 'latency', value=[]),
    change('results', value=measured()['results'] * 2), change('messages', value=[1]),
    change('messages', value=None)])
def test_what_is_no_result_is_refused(damage: Callable[[Dict[str, Any]], None]) -> None:
    document = measured()
    damage(document)
    with pytest.raises(BadJob) as refused:
        imported_record(json.dumps(document))
    assert '\n' not in str(refused.value) and len(str(refused.value)) < 400


@pytest.mark.parametrize('damage, text', [
    (change('perfguard_probe', value=2), 'version 2 (expected 1)'),
    (change('repeat', value=0), '1 jobs, repeat 0 (limits 32 and 20)'),
    (change('repeat', value=21), '1 jobs, repeat 21 (limits 32 and 20)'),
    (change('jobs', value=[]), '0 jobs, repeat 3 (limits 32 and 20)'),
    (change('jobs', value=[{}] * 33), '33 jobs, repeat 3 (limits 32 and 20)'),
    (change('jobs', 0, 'bs', value=4096), 'options of a job must be strings'),
    (change('results', value=measured()['results'] * 2), '6 results of 3 measurements'),
    (change('results', 0, 'streams', value=[]), '0 streams instead of 2'),
    (change('state', value='running'), "state is 'running'"),
    (change('created', value='x'), "'x' is not a time"),
    (change('created', value=253402300800), '253402300800 is not a time in seconds'),
    (change('host', value='x' * 201), "not a line of text: '%s" % ('x' * 49)),
    (change('results', 0, 'cpu_user', value=-0.5), '-0.5 is not a valid number'),
    (change('results', 0, 'cpu_user', value=1e19), '1e+19 is not a valid number'),
    (change('repeat', value=1 << 63), '9223372036854775808 is not a valid number'),
    (change('repeat', value=10 ** 20), '1%s is not a valid number' % ('0' * 20))])
def test_why_a_document_is_refused(damage: Callable[[Dict[str, Any]], None], text: str) -> None:
    document = measured()
    damage(document)
    with pytest.raises(BadJob) as refused:
        imported_record(json.dumps(document))
    assert str(refused.value) == 'cannot import: ' + text


def test_a_document_without_a_field_is_refused() -> None:
    document = measured()
    del document['pool']
    with pytest.raises(BadJob) as refused:
        imported_record(json.dumps(document))
    assert str(refused.value) == "cannot import: 'pool' is missing"
    for text, why in (('{}', 'neither the JSON of perfguard-probe nor that of fio'),
                      ('[]', 'not a JSON object'),
                      (' ' * (MAX_IMPORTED + 1), '4194305 characters (limit 4194304)')):
        with pytest.raises(BadJob) as refused:
            imported_record(text)
        assert str(refused.value) == 'cannot import: ' + why


def test_values_at_their_limits_are_imported() -> None:
    document: Dict[str, Any] = {
        **measured(host='x' * 200), 'ended': 253402300799,
        'messages': [str(number) for number in range(60)]}
    document['results'][0]['cpu_user'] = 0.0
    document['results'][0]['streams'][0]['read']['ios'] = (1 << 63) - 1
    text = json.dumps(document)
    record = imported_record(text + ' ' * (MAX_IMPORTED - len(text)))
    assert record.setting == {CLIENT: 'x' * 200} and record.ended == 253402300799.0
    assert record.messages == tuple(str(number) for number in range(10, 60))
    assert record.results[0].streams[0].read.ios == (1 << 63) - 1
    assert imported_record(json.dumps({**document, 'clients': '3'})).setting[CLIENTS] == '3'


@pytest.mark.parametrize('text', [
    '', '7', '[]', '{}', 'null', '{"perfguard_probe": 1}', '[' * 100000,
    # A long number costs the interpreter the square of its length.
    json.dumps(measured()).replace('1000000', '1' * 100000, 1),
    json.dumps(measured()) + ' ' * MAX_IMPORTED,
    json.dumps(measured()).replace('1000000', '1e999', 1),
    json.dumps(measured()).replace('"cpu_user": 0.5', '"cpu_user": NaN', 1)])
def test_what_is_no_document_is_refused(text: str) -> None:
    with pytest.raises(BadJob):
        imported_record(text)


# ---- runs of fio itself

def of_fio(**options: str) -> Dict[str, Any]:
    """As fio writes it, with the results of two streams; `options`: of the job."""
    record = imported_record(json.dumps(measured()))
    document = fio_json(100.0, record.steps[:1], record.results[:1])
    for entry in document['jobs']:
        entry['job options'].update({'pool': 'rep', 'clientname': 'admin', 'time_based': '',
                                     **options})
    document['global options'] = {'direct': '1', 'group_reporting': '0'}
    decoded: Dict[str, Any] = json.loads(json.dumps(document))
    return decoded


@pytest.mark.parametrize('engine', ['rados', 'rbd'])
def test_a_run_of_fio_is_imported(engine: str) -> None:
    expected = imported_record(json.dumps(measured()))
    record = imported_record(json.dumps(of_fio(ioengine=engine)))
    assert (record.state, record.trigger, record.target.key) == ('done', 'import', 'pool:rep')
    assert (record.id, record.profile, record.setting) == (0, '', {CLIENT: 'fio'})
    # fio says when it ended, and how long each job took.
    elapsed = of_fio()['jobs'][0]['elapsed']
    assert elapsed > 0.0 and (record.created, record.started, record.ended) == (
        100.0 - elapsed, 100.0 - elapsed, 100.0)
    assert record.results[0].engine == 'fio'
    assert [stream.name for stream in record.results[0].streams] == ['0', '1']
    assert record.steps == (replace(expected.steps[0], job=replace(
        expected.steps[0].job, ioengine=engine)),)
    for ours, theirs in zip(record.results[0].streams, expected.results[0].streams):
        for mine, other in ((ours.read, theirs.read), (ours.write, theirs.write)):
            assert (mine.ios, mine.bytes, mine.latency) == (other.ios, other.bytes, other.latency)
            assert mine.iops == pytest.approx(other.iops, rel=0.01)


@pytest.mark.parametrize('options, text', [
    ({'pool': ''}, 'must name one pool'), ({'ioengine': 'libaio'}, 'must be rados or rbd'),
    ({'zonemode': 'zbd'}, 'unknown key zonemode'), ({'numjobs': '4'}, 'without group_reporting')])
def test_runs_of_fio_with_other_jobs_are_refused(options: Dict[str, str], text: str) -> None:
    with pytest.raises(BadJob, match=text):
        imported_record(json.dumps(of_fio(**options)))


@pytest.mark.parametrize('damage', [
    change('jobs', value=7), change('jobs', 0, 'job options', value='x'),
    change('jobs', 0, 'read', 'clat_ns', value=None), change('jobs', 0, 'jobname', value='a\nb'),
    change('jobs', 0, 'read', 'total_ios', value=-5), change('timestamp_ms', value='now'),
    change('timestamp_ms', value=1 << 62), change('jobs', 0, 'elapsed', value=1 << 62),
    change('jobs', 0, 'job options', 'bs', value='4k\nrw=read')])
def test_a_document_of_fio_that_is_damaged_is_refused(
        damage: Callable[[Dict[str, Any]], None]) -> None:
    document = of_fio()
    damage(document)
    with pytest.raises(BadJob) as refused:
        imported_record(json.dumps(document))
    assert '\n' not in str(refused.value)


def test_an_error_of_fio_is_a_failed_run() -> None:
    document = of_fio()
    document['jobs'][1]['error'] = 5
    record = imported_record(json.dumps(document))
    assert (record.state, record.messages) == (
        'failed', ('fio reports an error of job randrw',))


def test_a_run_of_fio_that_does_not_say_how_long_it_took_began_at_its_end() -> None:
    document = of_fio()
    for entry in document['jobs']:
        del entry['elapsed']
    record = imported_record(json.dumps(document))
    assert (record.created, record.started, record.ended) == (100.0, 100.0, 100.0)


def test_results_are_imported_once_and_kept(driver: ProbeDriver) -> None:
    text = json.dumps(measured())
    run = driver.give(ImportedRun(text))['id']
    with pytest.raises(Refused) as refused:
        driver.give(ImportedRun(text))
    assert refused.value.errno == errno.EEXIST
    driver.turn()
    driver.restart()
    driver.turn()
    assert driver.state(run) == 'done'
    with pytest.raises(Refused) as refused:
        driver.give(ImportedRun(text))
    assert refused.value.errno == errno.EEXIST, 'also by the next mgr'
    with pytest.raises(Refused) as refused:
        driver.give(ImportedRun('{}'))
    assert refused.value.errno == errno.EINVAL


@pytest.mark.parametrize('fsid, is_other', [('f1', False), ('f2', True), (None, False)])
def test_results_of_another_cluster_are_refused(driver: ProbeDriver, fsid: Optional[str],
                                                is_other: bool, monkeypatch: Any) -> None:
    """Pools of several clusters have the same names. Earlier versions name no cluster."""
    view = driver.cluster.map_view
    monkeypatch.setattr(driver.cluster, 'map_view', lambda: replace(
        view(), osdmap=replace(view().osdmap, fsid='f1')))
    document = {**measured(), 'fsid': fsid}
    if fsid is None:
        del document['fsid']
    if is_other:
        with pytest.raises(Refused, match='measured on cluster f2, and this is f1'):
            driver.give(ImportedRun(json.dumps(document)))
    else:
        assert driver.give(ImportedRun(json.dumps(document)))['id'] == 1


def test_results_of_two_runs_are_both_imported(driver: ProbeDriver) -> None:
    runs = [driver.give(ImportedRun(json.dumps(measured(created=created))))['id']
            for created in (100.0, 101.0)]
    other = {**measured(created=101.0), 'pool': 'ec'}
    runs.append(driver.give(ImportedRun(json.dumps(other)))['id'])
    assert len(set(runs)) == 3


def test_only_results_of_the_same_host_are_compared_with_a_baseline(driver: ProbeDriver) -> None:
    def give(rate: int, created: float, host: str = 'kvm7') -> int:
        found = driver.give(ImportedRun(json.dumps(measured(rate, created, host))))
        driver.turn()
        driver.judged()
        return int(found['id'])

    base = give(1000, 100.0)
    driver.give(RunId('probe baseline', base))
    give(100, 200.0, 'kvm8')
    assert 'PERFGUARD_PROBE_REGRESSION' not in driver.cluster.checks
    give(100, 300.0)
    driver.turn()
    assert 'PERFGUARD_PROBE_REGRESSION' in driver.cluster.checks


def test_the_host_of_the_mgr_is_another_one() -> None:
    record = imported_record(json.dumps(measured()))
    assert differing_conditions(replace(record, setting={}), record) == [
        'client: kvm7 (before: %s)' % ACTIVE_MGR]


# ---- the command

class FakeChild:
    """Answers as a worker does."""
    lines_: List[Dict[str, Any]] = []
    requests: List[Dict[str, Any]] = []

    def __init__(self, argv: Any) -> None:
        pass

    def send(self, request: Any) -> None:
        self.requests.append(request)

    def ended(self, now: float) -> int:
        return 0

    def why(self) -> str:
        return 'the worker was killed by SIGKILL'

    def lines(self) -> List[Dict[str, Any]]:
        return self.lines_

    def kill(self) -> None:
        raise AssertionError('not in time')


class FakeConnection:
    def __init__(self, health: Mapping[str, str], quota: Any = (None, None),
                 free: int = 1 << 40) -> None:
        self._health, self._quota, self._free = health, quota, free

    def fsid(self) -> str:
        return 'f1'

    def health(self) -> Mapping[str, str]:
        return self._health

    def free_bytes(self) -> int:
        return self._free

    def quota_left(self) -> Any:
        return self._quota


@pytest.fixture
def argv(tmp_path: Any, monkeypatch: Any) -> List[str]:
    keyring = tmp_path / 'keyring'
    keyring.write_text('[client.probe]\n\tkey = AQ==\n\tcaps mon = "allow r"\n')
    monkeypatch.setattr(client, 'Child', FakeChild)
    monkeypatch.setattr(client, 'connect', lambda request: FakeConnection({}))
    monkeypatch.setattr(FakeChild, 'requests', [])
    return ['--pool', 'rep', '--name', 'client.probe', '--keyring', str(keyring)]


def test_the_command_prints_what_the_mgr_imports(argv: List[str], monkeypatch: Any,
                                                 capsys: Any) -> None:
    results = measured()['results']
    monkeypatch.setattr(FakeChild, 'lines_', [
        *({'type': 'result', 'index': index, 'result': result}
          for index, result in enumerate(results)),
        {'type': 'cleaned', 'removed': 4, 'left': 0}])
    words = [text for word, value in WORDS.items() for text in ('--' + word, value)]
    assert client.main([*argv, *words, '--repeat', str(REPEAT)]) == 0
    request, = FakeChild.requests
    assert (request['entity'], request['key'], request['pool']) == ('client.probe', 'AQ==', 'rep')
    assert request['naming']['run'] >= client.FIRST_RUN
    written = capsys.readouterr().out
    record = imported_record(written, 'f1')
    assert record.state == 'done' and len(record.results) == REPEAT
    assert json.loads(written)['fsid'] == 'f1'


def test_a_run_without_all_results_has_failed(argv: List[str], monkeypatch: Any,
                                              capsys: Any) -> None:
    monkeypatch.setattr(FakeChild, 'lines_', [
        {'type': 'error', 'message': 'no connection'}, {'type': 'cleaned', 'left': 3}])
    assert client.main([*argv, '--rw', 'randread']) == 1
    said = capsys.readouterr()
    assert imported_record(said.out).messages == ('no connection',)
    assert '--clean %d' % FakeChild.requests[0]['naming']['run'] in said.err


class Killed(FakeChild):
    """A worker that is killed while it measures; the next one answers with `swept`."""
    swept: Dict[str, Any] = {'type': 'cleaned', 'left': 0}

    def __init__(self, argv: Any) -> None:
        self.sweeping = bool(self.requests)

    def ended(self, now: float) -> int:
        return 0 if self.sweeping else -9

    def lines(self) -> List[Dict[str, Any]]:
        return [self.swept] if self.sweeping else [{'type': 'step', 'index': 0, 'state': 'run'}]


@pytest.mark.parametrize('swept, left', [({'type': 'cleaned', 'left': 0}, False),
                                         ({'type': 'error', 'message': 'no connection'}, True)])
def test_the_objects_of_a_worker_that_is_killed_are_removed(
        argv: List[str], swept: Dict[str, Any], left: bool, monkeypatch: Any, capsys: Any) -> None:
    monkeypatch.setattr(Killed, 'swept', swept)
    monkeypatch.setattr(client, 'Child', Killed)
    assert client.main([*argv, '--rw', 'randread']) == 1
    run, sweep = FakeChild.requests
    assert (sweep['mode'], sweep['prefix']) == (SWEEP, run['prefix'])
    said = capsys.readouterr()
    assert imported_record(said.out).messages == ('the worker was killed by SIGKILL',)
    assert ('--clean %d' % run['naming']['run'] in said.err) is left


class Clock:
    """The time module of perfguard-probe, whose time passes only while it sleeps."""
    time = staticmethod(lambda: 1e9)

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


class Hanging(FakeChild):
    """Workers that measure or sweep for ever, as if all OSDs hung. `dies`: if they are killed."""
    dies = True
    killed: List[int] = []

    def __init__(self, argv: Any) -> None:
        self.number = len(self.requests)

    def ended(self, now: float) -> Any:
        return -9 if self.dies and self.number in self.killed else None

    def lines(self) -> List[Dict[str, Any]]:
        return [] if self.number else [{'type': 'step', 'index': 0, 'state': 'run'}]

    def kill(self) -> None:
        self.killed.append(self.number)


@pytest.mark.parametrize('dies', [True, False])
def test_a_probe_ends_though_its_workers_hang(dies: bool, argv: List[str], monkeypatch: Any,
                                              capsys: Any) -> None:
    """Within the time that it has printed, and that of the sweep."""
    clock = Clock()
    monkeypatch.setattr(client, 'time', clock)
    monkeypatch.setattr(client, 'Child', Hanging)
    monkeypatch.setattr(Hanging, 'dies', dies)
    monkeypatch.setattr(Hanging, 'killed', [])
    assert client.main([*argv, '--rw', 'randread', '--force']) == 1
    said = capsys.readouterr()
    record = imported_record(said.out)
    assert record.state == 'failed'
    assert record.messages[0] == 'the worker did not end in time and was killed'
    assert (record.messages[1:] == ('the worker does not end although it was killed',)) is not dies
    run, sweep = FakeChild.requests
    assert Hanging.killed == [0, 1] and sweep['mode'] == SWEEP
    assert 'objects left: unknown; remove them with --clean %d' % run['naming']['run'] in said.err
    assert '(at most %.0f s)' % run['limit_seconds'] in said.err
    limit = run['limit_seconds'] + sweep['limit_seconds'] + 2 * (
        client.CLIENT_GRACE_SECONDS + KILLED_SECONDS * (not dies))
    assert limit <= clock.now <= limit + 5.0


def test_they_are_removed_although_the_results_cannot_be_written(
        argv: List[str], monkeypatch: Any, capsys: Any) -> None:
    monkeypatch.setattr(client, 'Child', Killed)
    assert client.main([*argv, '--rw', 'randread', '-o', '/dev/full']) == client.BAD_INPUT
    assert [request.get('mode', RUN) for request in FakeChild.requests] == [RUN, SWEEP]
    assert '/dev/full: No space left on device' in capsys.readouterr().err


def test_an_unwell_cluster_is_not_probed(argv: List[str], monkeypatch: Any, capsys: Any) -> None:
    monkeypatch.setattr(client, 'connect', lambda request: FakeConnection({
        'PG_DEGRADED': 'Degraded data redundancy', 'POOL_APP_NOT_ENABLED': 'no application'}))
    assert client.main([*argv, '--rw', 'randread']) == 1
    said = capsys.readouterr()
    assert 'PG_DEGRADED' in said.err and 'POOL_APP' not in said.err
    assert not said.out and not FakeChild.requests
    # Its leftovers are removed nevertheless, and the operator may override the refusal.
    monkeypatch.setattr(FakeChild, 'lines_', [{'type': 'cleaned', 'left': 0}])
    assert client.main([*argv, '--clean', str(client.FIRST_RUN)]) == 0
    client.main([*argv, '--rw', 'randread', '--force'])
    assert len(FakeChild.requests) == 2


@pytest.mark.parametrize('left, text', [
    ((131071, None), 'write 64.0 KiB, more than half'), ((None, 3), 'create 2 objects'),
    ((131072, 4), '')])
@pytest.mark.parametrize('words', [[], ['--force']])
def test_a_quota_limits_a_probe_as_in_the_mgr(argv: List[str], left: Any, text: str, capsys: Any,
                                              words: List[str], monkeypatch: Any) -> None:
    monkeypatch.setattr(client, 'connect', lambda request: FakeConnection({}, left))
    status = client.main([*argv, '--rw', 'randread', '--size', '64k', '--nrfiles', '2', *words])
    assert status == 1 and text in capsys.readouterr().err
    assert bool(FakeChild.requests) is not bool(text)


HOSTS = ['--join', 'night', '--hosts', '4']


@pytest.mark.parametrize('words, free, text', [
    # 16 MiB on this host, 48 MiB with replicas.
    (['--max-bytes', '48m'], 64 << 20, ''),
    (['--max-bytes', '50331647'], 64 << 20, 'would store 48.0 MiB (limit 48.0 MiB, --max-bytes)'),
    ([], (64 << 20) - 1, 'would write 16.0 MiB, more than a quarter of the free space of the pool'),
    ([*HOSTS, '--max-bytes', '192m'], (256 << 20) - 1, 'would write 64.0 MiB, more than a quarter'),
    ([*HOSTS, '--max-bytes', '191m'], 256 << 20, 'would store 192.0 MiB (limit 191.0 MiB'),
    (['--size', '21840m', '--nrfiles', '1365'], 1 << 40, ''),
    (['--size', '21856m', '--nrfiles', '1366'], 1 << 40, 'would store 64.0 GiB (limit 64.0 GiB, '),
    ([], 0, 'would write 16.0 MiB, more than a quarter of the free space of the pool, 0 B')])
@pytest.mark.parametrize('forced', [[], ['--force']])
def test_space_limits_a_probe(argv: List[str], words: List[str], free: int, text: str, capsys: Any,
                              forced: List[str], monkeypatch: Any) -> None:
    monkeypatch.setattr(client, 'connect', lambda request: FakeConnection({}, free=free))
    monkeypatch.setattr(FakeChild, 'lines_', [])
    status = client.main([*argv, '--rw', 'randread', '--size', '16m', '--nrfiles', '1',
                          *words, *forced])
    assert status == 1 and text in capsys.readouterr().err
    assert bool(FakeChild.requests) is not bool(text)


class Cancelled(FakeChild):
    """A worker that measures until it is cancelled, and then removes its objects."""
    def ended(self, now: float) -> Any:
        return 0 if 'cancel' in self.requests[-1] else None

    def lines(self) -> List[Dict[str, Any]]:
        return [{'type': 'cleaned', 'left': 0}] if self.ended(0.0) is not None else [
            {'type': 'step', 'index': 0, 'state': 'run'}]


class Sickening(FakeConnection):
    """`after`: answers about the health after the admission, the last one for ever; None: none."""
    def __init__(self, after: List[Any]) -> None:
        super().__init__({})
        self.after, self.asked = after, 0

    def health(self) -> Mapping[str, str]:
        self.asked += 1
        answer = ([{}] + self.after)[min(self.asked, len(self.after) + 1) - 1]
        if answer is None:
            raise Failed(110, 'cannot read the health of the cluster: timed out')
        return dict(answer)


SICK = {'OSD_NEARFULL': '1 nearfull osd(s)', 'POOL_APP_NOT_ENABLED': 'no application'}


@pytest.mark.parametrize('after, reason, asked', [
    ([{}, {}, SICK], '1 nearfull osd(s) (OSD_NEARFULL)', 4),
    ([None, None, {}, None, None, SICK], '1 nearfull osd(s) (OSD_NEARFULL)', 7),
    ([None], 'cannot read the health of the cluster: timed out', 1 + client.FAILED_READINGS)])
def test_a_cluster_that_becomes_unwell_ends_the_measurement(
        after: List[Any], reason: str, asked: int, argv: List[str], monkeypatch: Any,
        capsys: Any) -> None:
    connection = Sickening(after)
    monkeypatch.setattr(client, 'connect', lambda request: connection)
    monkeypatch.setattr(client, 'Child', Cancelled)
    monkeypatch.setattr(client, 'HEALTH_SECONDS', 0.001)
    monkeypatch.setattr(client, 'POLL_SECONDS', 0.001)
    assert client.main([*argv, '--rw', 'randread']) == 1
    said = capsys.readouterr()
    record = imported_record(said.out)
    assert (record.state, record.messages) == ('failed', ('stopped measuring: ' + reason,))
    assert FakeChild.requests[1:] == [{'cancel': reason}] and connection.asked == asked
    assert said.err.count(reason) == 1 and 'objects' not in said.err.rpartition(reason)[2]


def test_an_answer_that_cannot_be_read_does_not_end_the_watch(monkeypatch: Any) -> None:
    """As JSON that was cut off, or an error of librados."""
    answers: List[Any] = [ValueError('cut off'), KeyError(), SICK]

    class Unreadable:
        def health(self) -> Any:
            answer = answers.pop(0)
            if isinstance(answer, Exception):
                raise answer
            return answer

    monkeypatch.setattr(client, 'HEALTH_SECONDS', 0.001)
    connection: Any = Unreadable()
    watch = client.HealthWatch(connection)
    watch._thread.join(10)
    assert watch.reason == '1 nearfull osd(s) (OSD_NEARFULL)' and not answers
    watch.close()


@pytest.mark.parametrize('steps, messages', [(2, ['stopped measuring: sick']), (1, [])])
def test_what_is_measured_completely_does_not_fail(steps: int, messages: List[str]) -> None:
    """While objects are removed the cluster may become unwell."""
    sent: List[Any] = []
    measuring: Any = object.__new__(client.Measuring)
    measuring.__dict__.update(
        _watch=SimpleNamespace(reason='sick'), _child=SimpleNamespace(send=sent.append),
        _cancelled=False, messages=[], steps=[None] * steps, results=[None])
    measuring._end_if_unwell()
    assert measuring.messages == messages and bool(sent) == bool(messages)


def test_nothing_is_measured_that_cannot_be_written(argv: List[str], capsys: Any) -> None:
    assert client.main([*argv, '--rw', 'randread', '--output', '/nonesuch/out']) == client.BAD_INPUT
    assert '/nonesuch/out' in capsys.readouterr().err and not FakeChild.requests


def test_what_a_killed_run_has_left_is_swept(argv: List[str], monkeypatch: Any) -> None:
    monkeypatch.setattr(FakeChild, 'lines_', [{'type': 'cleaned', 'left': 0}])
    assert client.main([*argv, '--clean', str(client.FIRST_RUN)]) == 0
    request, = FakeChild.requests
    assert (request['mode'], request['prefix']) == (
        SWEEP, 'perfguard-probe-%d-' % client.FIRST_RUN)


@pytest.mark.parametrize('lines, left, status', [
    ([{'type': 'cleaned', 'left': 0}], '0', 0), ([{'type': 'cleaned', 'left': 2}], '2', 1),
    ([{'type': 'error', 'message': 'no connection'}], 'unknown', 1),
    ([{'type': 'error', 'message': 'late'}, {'type': 'cleaned', 'left': 0}], 'unknown', 1)])
def test_what_a_sweep_has_left_is_told(lines: List[Dict[str, Any]], left: str, status: int,
                                       argv: List[str], monkeypatch: Any, capsys: Any) -> None:
    monkeypatch.setattr(FakeChild, 'lines_', lines)
    assert client.main([*argv, '--clean', str(client.FIRST_RUN)]) == status
    assert 'objects left: ' + left in capsys.readouterr().err


@pytest.mark.parametrize('run', ['0', '7', '-1', 'x'])
def test_only_runs_of_this_program_are_swept(argv: List[str], run: str, capsys: Any) -> None:
    """Those of the mgr have small ids, and may be active; none is no wish to measure."""
    with pytest.raises(SystemExit) as ended:
        client.main([*argv, '--clean=' + run])
    assert ended.value.code == client.BAD_INPUT and not FakeChild.requests


def test_an_interrupt_before_the_measurement_is_one_line(
        argv: List[str], monkeypatch: Any, capsys: Any) -> None:
    def interrupted(request: Any) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr(client, 'connect', interrupted)
    assert client.main([*argv, '--rw', 'randread']) == 130
    assert capsys.readouterr().err == 'perfguard-probe: interrupted\n' and not FakeChild.requests


# ---- several hosts

class TogetherChild:
    """A worker that begins each step when it is told to; `fails`: the number of a worker and the
    step at which it ends."""
    fails = (-1, -1)
    children: List['TogetherChild'] = []

    def __init__(self, argv: Any) -> None:
        self.number, self.over = len(self.children), False
        self.children.append(self)
        self.queued: List[Dict[str, Any]] = []
        self.sent: List[Dict[str, Any]] = []

    def send(self, line: Dict[str, Any]) -> None:
        self.sent.append(line)
        if 'cancel' in line:
            self._end()
            return
        begun = line.get('begin', -1)
        steps = len(request_from_json(self.sent[0]).steps)
        if begun >= 0:
            measured_once = encode(result(self.number + begun))
            self.queued.append({'type': 'result', 'index': begun, 'result': measured_once})
        if (self.number, begun) == self.fails:
            self.queued.append({'type': 'error', 'message': 'no memory'})
        if begun + 1 == steps or (self.number, begun) == self.fails:
            self._end()
        else:
            self.queued.append({'type': 'step', 'index': begun + 1, 'state': STEP_WAITS})

    def _end(self) -> None:
        self.queued.append({'type': 'cleaned', 'removed': 4, 'left': 0})
        self.over = True

    def ended(self, now: float) -> Any:
        return 0 if self.over else None

    def lines(self) -> List[Dict[str, Any]]:
        queued, self.queued = self.queued, []
        return queued


@pytest.fixture
def together(argv: List[str], monkeypatch: Any, tmp_path: Any) -> Callable[..., List[int]]:
    """Runs two hosts on the same pool; returns their exit statuses."""
    pool = Pool()
    connection = FakeConnection({})
    monkeypatch.setattr(connection, 'board', lambda name: pool, raising=False)
    monkeypatch.setattr(client, 'connect', lambda request: connection)
    monkeypatch.setattr(client, 'Child', TogetherChild)
    monkeypatch.setattr(TogetherChild, 'children', [])
    monkeypatch.setattr(client.signal, 'signal', lambda number, handler: None)

    def run(*words: str) -> List[int]:
        given = [*argv, '--rw', 'randread', '--repeat', '3', '--join', 'night', *words]
        with ThreadPoolExecutor() as hosts:
            statuses = hosts.map(client.main, [
                [*given, '--output', str(tmp_path / name)] for name in 'ab'])
        assert pool.empty
        return list(statuses)

    return run


def test_two_hosts_have_one_result(together: Callable[..., List[int]], tmp_path: Any,
                                   capsys: Any) -> None:
    assert together() == [0, 0]
    texts = sorted((tmp_path / name).read_text() for name in 'ab')
    assert not texts[0], 'only the first host writes it'
    record = imported_record(texts[1])
    assert record.state == 'done' and record.setting[CLIENTS] == '2'
    assert record.setting[CLIENT] == '%s, %s' % (2 * (socket.gethostname(),))
    assert [step.streams[0].read.ios for step in record.results] == [2 * 500] * 3
    assert 'within 0.' in record.messages[0] and '50 % of the operations' in record.messages[1]
    assert 'this process writes the result' in capsys.readouterr().err
    assert not any(stream.read.counts for step in record.results for stream in step.streams)
    assert expect(record, 'ssd', Layout(3)) == (), 'the figures are those of one client'


def test_objects_of_a_host_that_has_died_are_removed_by_their_names(
        together: Callable[..., List[int]], monkeypatch: Any) -> None:
    """All hosts have the same jobs. To list a pool may take hours."""
    dead, leave = client.FIRST_RUN + 7, Meeting.leave

    def leave_a_dead_host(self: Meeting, why: str, now: float, at_once: bool) -> bool:
        self.dead = (dead,) if self.leads else ()
        return leave(self, why, now, at_once)

    monkeypatch.setattr(Meeting, 'leave', leave_a_dead_host)
    assert together() == [0, 0]
    run, _, sweep = (child.sent[0] for child in TogetherChild.children)
    assert (sweep['mode'], sweep['prefix']) == (SWEEP, 'perfguard-probe-%d-' % dead)
    assert sweep['naming'] == {**run['naming'], 'run': dead}


def test_objects_of_other_jobs_are_left_to_the_operator(
        together: Callable[..., List[int]], monkeypatch: Any, capsys: Any) -> None:
    """Their names are not known, and to list a pool may take hours."""
    dead, leave = client.FIRST_RUN + 7, Meeting.leave

    def leave_a_dead_host(self: Meeting, why: str, now: float, at_once: bool) -> bool:
        self.dead_of_other_jobs = (dead,) if self.leads else ()
        return leave(self, why, now, at_once)

    monkeypatch.setattr(Meeting, 'leave', leave_a_dead_host)
    assert together() == [0, 0] and len(TogetherChild.children) == 2
    assert ('objects left: unknown; remove them with --clean %d' % dead
            ) in capsys.readouterr().err


def test_objects_of_dead_hosts_are_named_if_this_one_cannot_join(
        together: Callable[..., List[int]], monkeypatch: Any, capsys: Any) -> None:
    """The meeting that named them is gone by then."""
    dead = client.FIRST_RUN + 7

    def removes_a_dead_meeting(self: Meeting, now: float) -> bool:
        self.dead, self.dead_of_other_jobs = (dead,), (dead + 1,)
        raise CannotJoin('other jobs')

    monkeypatch.setattr(Meeting, 'join', removes_a_dead_meeting)
    assert set(together()) != {0} and not TogetherChild.children
    err = capsys.readouterr().err
    assert all('objects left: unknown; remove them with --clean %d\n' % run in err
               for run in (dead, dead + 1))


def test_damage_to_the_meeting_ends_the_probe_with_one_line(
        together: Callable[..., List[int]], monkeypatch: Any, capsys: Any) -> None:
    read = Pool.read

    def damaged_once_begun(self: Pool) -> Any:
        xattrs = read(self)
        return {**xattrs, 'go': '{'} if xattrs and xattrs['go'] != '[]' else xattrs

    monkeypatch.setattr(Pool, 'read', damaged_once_begun)
    assert together() == [1, 1]
    assert 'another version of perfguard' in capsys.readouterr().err


def test_a_worker_that_fails_ends_the_probe_of_all(together: Callable[..., List[int]],
                                                   monkeypatch: Any, capsys: Any) -> None:
    monkeypatch.setattr(TogetherChild, 'fails', (1, 1))
    assert together() == [1, 1]
    assert capsys.readouterr().err.count('no memory') == 2


@pytest.mark.parametrize('delivered', [
    None, b'', b'x', zlib.compress(b'{'), zlib.compress(b'[]'), zlib.compress(b'[0.1, [7]]')])
def test_results_that_are_lost_or_damaged_leave_no_object(
        together: Callable[..., List[int]], delivered: Any, monkeypatch: Any,
        tmp_path: Any) -> None:
    monkeypatch.setattr(Pool, 'get', lambda self, suffix: delivered)
    assert max(together()) == 1
    first, = [text for text in ((tmp_path / name).read_text() for name in 'ab') if text]
    record = imported_record(first)
    assert record.state == 'failed' and record.messages[0].startswith('the results of ')


@pytest.mark.parametrize('value', ['{', '7', '[]', '["a", "b"]'])
def test_what_others_write_to_the_object_ends_no_host(
        together: Callable[..., List[int]], value: str, monkeypatch: Any) -> None:
    read = Pool.read

    def read_with_more(self: Pool) -> Any:
        xattrs = read(self)
        return None if xattrs is None else {**xattrs, 'host.zz': value, 'user.x': value}

    monkeypatch.setattr(Pool, 'read', read_with_more)
    assert together() == [0, 0]


class InterruptingClock:
    """The time module of perfguard-probe: the first sleep is interrupted."""

    def __init__(self, measuring: client.Measuring) -> None:
        self._measuring, self.now, self.sleeps = measuring, 104.0, 0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        self.sleeps += 1
        self._measuring.cancel(2, None)


def ended_with_an_interrupt(meeting: Meeting, state: str, monkeypatch: Any) -> RunRecord:
    """The record of a host that is interrupted after its measurement."""
    jobs = parse_jobs(None, WORDS, None)
    steps = plan_steps(jobs, Target('pool', 'rep'), 1)
    measuring = client.Measuring(WorkerRequest(
        'rep', 'x', 'client.x', 'AQ', 'm', steps=steps))
    clock = InterruptingClock(measuring)
    measuring.wait()
    monkeypatch.setattr(client, 'time', clock)
    record = RunRecord(0, state, '', Target('pool', 'rep'), 1.0, steps=steps,
                       results=(result(1),), messages=('no memory',) if state == 'failed' else ())
    ended = client._end_meeting(measuring, meeting, record)
    assert clock.sleeps == 1
    return ended


def two_hosts(pool: Pool) -> Tuple[Meeting, Meeting]:
    plan = MeetingPlan('digest', 2, 1)
    first, second = (Meeting(pool, plan, 'kvm%d' % n, 1000 + n, 100.0) for n in range(2))
    assert first.join(100.0) and not second.join(100.0)
    first.attend(102.0, -1)
    assert second.join(103.0)
    first.attend(103.0, -1)
    return first, second


@pytest.mark.parametrize('leads', [True, False])
def test_an_interrupt_ends_the_wait_for_the_results_of_other_hosts(
        leads: bool, argv: List[str], monkeypatch: Any) -> None:
    pool = Pool()
    first, second = two_hosts(pool)
    ended = ended_with_an_interrupt(first if leads else second, 'done', monkeypatch)
    assert (ended.state, ended.messages) == ('cancelled', ('interrupted',))
    assert not pool.others
    if leads:
        assert pool.empty
    else:
        assert json.loads(pool.xattrs['host.3e9'])[3] == 'interrupted'


def test_an_interrupt_ends_the_wait_for_hosts_that_have_not_left(
        argv: List[str], monkeypatch: Any) -> None:
    pool = Pool()
    first, _ = two_hosts(pool)
    ended = ended_with_an_interrupt(first, 'failed', monkeypatch)
    assert (ended.state, ended.messages, pool.empty) == ('failed', ('no memory',), True)


@pytest.mark.parametrize('hosts', [2, 3, client.MAX_HOSTS])
def test_the_quota_must_suffice_for_all_hosts(hosts: int, argv: List[str], monkeypatch: Any,
                                              capsys: Any) -> None:
    monkeypatch.setattr(client, 'connect', lambda request: FakeConnection({}, (None, 8)))
    words = [*argv, '--rw', 'randread', '--size', '64k', '--nrfiles', '4', '--join', 'night']
    assert client.main([*words, '--hosts', str(hosts)]) == 1
    assert 'create %d objects' % (4 * hosts) in capsys.readouterr().err


@pytest.mark.parametrize('words', [['--join', 'a/b'], ['--join', ''], ['--hosts', '1'],
                                   ['--hosts', '65']])
def test_names_and_numbers_of_hosts_are_checked(argv: List[str], words: List[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        client.main([*argv, *words])
    assert ended.value.code == client.BAD_INPUT


def test_the_worker_removes_images_of_runs_that_have_them(argv: List[str]) -> None:
    client.main([*argv, '--rw', 'randread', '--ioengine', 'rbd'])
    client.main([*argv, '--rw', 'randread'])
    client.main([*argv, '--clean', str(client.FIRST_RUN)])
    assert [request.get('removes_images', False) for request in FakeChild.requests] == [
        True, False, True]


@pytest.mark.parametrize('words', [
    ['--rw', 'erase'], ['nosuch'], ['--repeat', '0'], ['--keyring', '/nonesuch'],
    ['--name', 'client.other'], ['--job-file', '/nonesuch']])
def test_bad_input_is_one_line(argv: List[str], words: List[str], capsys: Any) -> None:
    assert client.main([*argv, *words]) == client.BAD_INPUT
    assert len(capsys.readouterr().err.splitlines()) == 1 and not FakeChild.requests
