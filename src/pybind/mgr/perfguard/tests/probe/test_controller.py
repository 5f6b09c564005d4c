# SPDX-License-Identifier: LGPL-2.1-or-later
"""The probes in the loop: orders, schedules, baselines, and what is kept, through failovers."""
import calendar
import errno
from dataclasses import replace
from pathlib import Path
from typing import Any, Dict, List, Mapping, Sequence

import pytest

from perfguard.cluster.inventory import installed_version
from perfguard.cluster.types import OSD_ANSWER_SECONDS
from perfguard.errors import Refused
from perfguard.probe import orders, schedules, tables
from perfguard.probe.controller import EFFECT_PERIODS, JOURNAL, SETTINGS
from perfguard.probe.schedules import SCHEDULE_AGAIN_SECONDS, REGRESSION_CHECK
from perfguard.probe.osd_bench import capacities
from perfguard.probe.orders import DroppedSchedule, NewSchedule, RunId, RunOrder
from perfguard.probe.resources import LEFT_CHECK
from perfguard.store import Store
from perfguard.version import VERSION

from ..fakes import probe_runs
from ..fakes.cluster import FakeView
from ..fakes.driver import OPTIONS, codes
from ..fakes.probe_cluster import ProbeCluster, ProbeDriver, fake_children
from ..test_journal import records, two

WORDS = {'rw': 'randread', 'bs': '4k', 'size': '64k', 'nrfiles': '2', 'runtime': '1'}
IN_POOL = RunOrder(words=WORDS, pool='rep')
#: A Sunday in 2026.
SUNDAY = calendar.timegm((2026, 1, 4, 0, 0, 0))
HOUR, DAY = 3600.0, 86400.0


@pytest.fixture(autouse=True)
def setting(monkeypatch: Any, utc: None) -> None:
    fake_children(monkeypatch)


def ran(driver: ProbeDriver, order: RunOrder = IN_POOL) -> int:
    run = int(driver.give(order)['id'])
    driver.finish()
    driver.judged()
    assert driver.state(run) == 'done'
    return run


def refusal(driver: ProbeDriver, order: Any) -> Refused:
    with pytest.raises(Refused) as refused:
        driver.give(order)
    return refused.value


def code(driver: ProbeDriver, order: Any) -> int:
    return refusal(driver, order).errno


# ---- orders

@pytest.mark.parametrize('verb', ['probe cancel', 'probe rm', 'probe baseline',
                                  'probe baseline --rm'])
def test_orders_about_a_run_that_is_not_known(verb: str) -> None:
    assert code(ProbeDriver(), RunId(verb, 7)) == errno.ENOENT


def test_orders_that_would_disturb_a_run_are_refused() -> None:
    driver = ProbeDriver()
    driver.cluster.behaviour = 'deaf'
    driver.give(IN_POOL)
    driver.run_until(lambda: driver.state(1) == 'running')
    assert refusal(driver, IN_POOL).args[0] == (
        'probe 1 is active: wait until it has ended, or stop it with "probe cancel 1"')
    assert code(driver, RunId('probe rm', 1)) == errno.EBUSY
    assert code(driver, RunId('probe baseline', 1)) == errno.EINVAL
    assert driver.give(replace(IN_POOL, dry_run=True))['dry_run']
    status = driver.loop.status()
    assert status['probe']['id'] == 1 and 'measurement 1 of 1' in status['probe']['text']
    assert 'PROBE' in codes(status)
    assert 'probe 1 of pool:rep is active' in '\n'.join(status['reasons'])
    assert driver.cluster.progress_events == {'perfguard-probe-1': 0.0}
    assert driver.give(RunId('probe cancel', 1))['message'] == 'stopping'
    driver.finish()
    assert driver.state(1) == 'cancelled'


def test_orders_about_a_run_that_has_ended() -> None:
    driver = ProbeDriver()
    ran(driver)
    assert code(driver, RunId('probe cancel', 1)) == errno.EINVAL
    assert driver.give(RunId('probe rm', 1))['message'] == 'forgotten'
    assert not driver.listed
    driver.restart()
    driver.turn()
    assert not driver.listed
    assert ran(driver) == 2  # no id twice


@pytest.mark.parametrize('dry_run', [True, False])
def test_the_answer_says_what_fio_would_do_differently(dry_run: bool) -> None:
    answer = ProbeDriver().give(replace(IN_POOL, profile=None, dry_run=dry_run, words={},
                                        job_file='[a]\nrw=read\npool=x\n[b]\nrw=read\n'))
    assert [text.split()[-1] for text in answer['remarks']] == ['pool', 'b']
    assert all(text in tables.started(answer).splitlines() for text in answer['remarks'])


@pytest.fixture
def mapped(monkeypatch: Any) -> List[int]:
    """The pools whose PGs are mapped."""
    pools: List[int] = []
    primaries = FakeView.primaries

    def counted(view: FakeView, pool_id: int) -> Mapping[str, int]:
        pools.append(pool_id)
        return primaries(view, pool_id)

    monkeypatch.setattr(FakeView, 'primaries', counted)
    return pools


@pytest.mark.parametrize('order', [
    replace(IN_POOL, osd='all', dry_run=True), replace(IN_POOL, osd='all'),
    NewSchedule('nightly', replace(IN_POOL, osd='all', words={}), {'begin_time': '0200'})])
def test_the_pgs_of_a_pool_are_mapped_beside_the_loop(order: Any, mapped: List[int]) -> None:
    """It takes some 20 us a PG, and readers may ask for it."""
    driver = ProbeDriver()
    driver.tools.late = True
    waiting = driver.loop.requests.submit(order)
    driver.run(2)
    assert waiting.answer is None and not mapped and len(driver.tools.jobs) == 1
    driver.tools.work()
    driver.turn()
    assert waiting.answer is not None and mapped == [1]


def test_a_scheduled_probe_begins_once_the_pgs_are_mapped(mapped: List[int]) -> None:
    driver = ProbeDriver(ProbeCluster(now=SUNDAY))
    driver.give(NewSchedule('nightly', replace(IN_POOL, osd='all', words={}),
                            {'begin_time': '0200'}))
    driver.tools.late = True
    mapped.clear()
    go_to(driver, SUNDAY + 2 * HOUR)
    assert not mapped and not driver.busy and len(driver.tools.jobs) == 1
    driver.tools.late = False
    driver.tools.work()
    driver.turn()
    assert driver.busy


def test_what_is_refused_is_not_begun() -> None:
    driver = ProbeDriver()
    driver.cluster.health['OSD_NEARFULL'] = '1 nearfull osd(s)'
    assert 'nearly full' in str(refusal(driver, IN_POOL))
    preview = driver.give(replace(IN_POOL, dry_run=True))
    assert any('nearly full' in text for text in preview['refusals'])
    assert not driver.listed and not driver.busy and driver.cluster.is_untouched()


def test_a_campaign_keeps_probes_out() -> None:
    driver = ProbeDriver()
    driver.ask('prepare')
    driver.run_to('PREPARED')
    assert 'campaign' in str(refusal(driver, IN_POOL))
    ran(driver, replace(IN_POOL, during_campaign=True))


def test_a_campaign_that_begins_ends_a_probe() -> None:
    driver = ProbeDriver()
    driver.cluster.behaviour = 'deaf'
    driver.give(IN_POOL)
    driver.run_until(lambda: driver.state(1) == 'running')
    driver.ask('prepare')
    driver.finish()
    assert driver.state(1) == 'aborted' and 'campaign' in driver.listed[1]['message']


def test_an_order_that_fails_is_refused(monkeypatch: Any) -> None:
    driver = ProbeDriver()
    monkeypatch.setattr('perfguard.probe.controller.check_run', None)
    assert code(driver, IN_POOL) == errno.EIO
    assert not driver.busy


def test_reports_of_osds_are_a_probes_doing_for_a_while_after_it() -> None:
    driver = ProbeDriver()
    assert not driver.affects_latency
    driver.cluster.behaviour = 'deaf'
    driver.give(IN_POOL)
    driver.run_until(lambda: driver.state(1) == 'running')
    assert driver.affects_latency
    driver.give(RunId('probe cancel', 1))
    driver.finish()
    ended = driver.cluster.now
    assert driver.affects_latency
    driver.run_until(lambda: not driver.affects_latency)
    periods = (driver.cluster.now - ended) / driver.cluster.stats_period()
    assert 2 <= periods <= EFFECT_PERIODS


# ---- schedules

def scheduled(now: float = SUNDAY, **window: str) -> ProbeDriver:
    driver = ProbeDriver(ProbeCluster(now=now))
    driver.give(NewSchedule('nightly', RunOrder(profile='quick', pool='rep', trigger='nightly'),
                            {'begin_time': '0200', 'end_time': '0400', **window}))
    return driver


def go_to(driver: ProbeDriver, at: float) -> None:
    driver.cluster.now = at
    driver.run(3)


def test_once_a_window_through_failovers_and_forgetting() -> None:
    driver = scheduled()
    go_to(driver, SUNDAY + HOUR)
    assert not driver.listed
    go_to(driver, SUNDAY + 2 * HOUR)
    driver.finish()
    assert [row['trigger'] for row in driver.listed.values()] == ['nightly']
    driver.give(RunId('probe rm', 1))
    driver.restart()
    go_to(driver, SUNDAY + 3 * HOUR)
    assert not driver.listed
    go_to(driver, SUNDAY + DAY + 2 * HOUR)
    driver.finish()
    assert list(driver.listed) == [2]


def test_an_mgr_that_was_replaced_begins_no_scheduled_probe() -> None:
    driver = scheduled()
    other = two(driver)
    other.give(NewSchedule('weekly', IN_POOL, {'begin_weekday': '5', 'end_weekday': '6'}))
    driver.cluster.now = SUNDAY + 2 * HOUR
    other.run_until(lambda: other.loop.probing.busy)
    before = records(driver, 'probing', 'probe')
    for _ in range(3):
        driver.loop.turn()
    assert records(driver, 'probing', 'probe') == before and not driver.busy


def test_refused_is_reported_once_and_tried_again(monkeypatch: Any) -> None:
    driver = scheduled()
    tries: List[float] = []

    def counted(*args: Any) -> Any:
        tries.append(driver.cluster.now)
        return orders.check_run(*args)

    monkeypatch.setattr('perfguard.probe.controller.check_run', counted)
    cluster = driver.cluster
    cluster.trouble = {'laggy': 1}
    cluster.now = SUNDAY + 2 * HOUR
    for laggy in range(1, 6):
        cluster.trouble = {'laggy': laggy}
        driver.run(int(SCHEDULE_AGAIN_SECONDS))
    assert driver.told('refused') == ['scheduled probe nightly'] and len(tries) == 5
    row, = driver.loop.probed().schedules_json()['schedules']
    assert '5 PGs are laggy' in row['refused'] and not driver.listed
    cluster.trouble = {}
    driver.run(int(SCHEDULE_AGAIN_SECONDS))
    driver.finish()
    assert driver.state(1) == 'done'
    row, = driver.loop.probed().schedules_json()['schedules']
    assert row['refused'] == ''


def test_refused_in_the_next_window_is_reported_again() -> None:
    driver = scheduled()
    driver.cluster.trouble = {'laggy': 1}
    for day in range(2):
        go_to(driver, SUNDAY + day * DAY + 2 * HOUR)
        go_to(driver, SUNDAY + day * DAY + 5 * HOUR)
    assert len(driver.told('refused')) == 2


def test_after_an_upgrade_no_probe_begins_before_the_mgr_is_restarted(monkeypatch: Any) -> None:
    """The worker would be one of the other version, and each attempt would leave a failed probe."""
    driver = scheduled()
    driver.run(3)
    monkeypatch.setattr('perfguard.probe.controller.installed_version', lambda: '99.0')
    driver.cluster.now = SUNDAY + 2 * HOUR
    driver.run(int(3 * SCHEDULE_AGAIN_SECONDS))
    assert not driver.listed and driver.told('refused') == ['scheduled probe nightly']
    text = 'but 99.0 is installed: restart the mgr'
    row, = driver.loop.probed().schedules_json()['schedules']
    assert text in row['refused'] and '\n' not in row['refused']
    assert [text in reason for reason in driver.loop.status()['reasons']].count(True) == 1
    with pytest.raises(Refused, match=text):
        driver.give(IN_POOL)
    assert text in driver.give(replace(IN_POOL, dry_run=True))['refusals'][0]
    # The OSDs' own bench needs no worker.
    assert driver.give(RunOrder(store=True, osd='0', dry_run=True))['refusals'] == []
    monkeypatch.setattr('perfguard.probe.controller.installed_version', lambda: VERSION)
    driver.run(int(SCHEDULE_AGAIN_SECONDS))
    driver.finish()
    assert driver.state(1) == 'done' and not driver.loop.probing.remarks


def test_no_probe_begins_while_the_files_are_missing(monkeypatch: Any) -> None:
    driver = scheduled()
    monkeypatch.setattr('perfguard.probe.controller.installed_version', lambda: '')
    with pytest.raises(Refused, match='the files of perfguard are missing'):
        driver.give(IN_POOL)


def test_the_installed_version(tmp_path: Path) -> None:
    assert installed_version() == VERSION
    assert installed_version(str(tmp_path / 'missing')) == ''
    for content, found in ((b"# x\nVERSION = '1.2'\n", '1.2'), (b'', ''), (b'\xff', '')):
        (tmp_path / 'version.py').write_bytes(content)
        assert installed_version(str(tmp_path / 'version.py')) == found


def test_a_schedule_whose_pool_has_gone() -> None:
    driver = scheduled()
    store = Store(driver.kv)
    settings = store.get(SETTINGS)
    settings['schedules'][0]['run'] = {'pool': 'gone'}  # type: ignore[index]
    store.put(SETTINGS, settings)
    driver.restart()
    go_to(driver, SUNDAY + 2 * HOUR)
    row, = driver.loop.probed().schedules_json()['schedules']
    assert "pool 'gone' does not exist" in row['refused']


def test_a_schedule_that_fails_does_not_stop_the_loop(monkeypatch: Any) -> None:
    driver = scheduled()
    monkeypatch.setattr('perfguard.probe.controller.check_run', None)
    go_to(driver, SUNDAY + 2 * HOUR)
    row, = driver.loop.probed().schedules_json()['schedules']
    assert 'internal error' in row['refused']


def test_never_two_at_a_time() -> None:
    driver = scheduled()
    driver.cluster.behaviour = 'deaf'
    driver.give(IN_POOL)
    go_to(driver, SUNDAY + 2 * HOUR)
    assert list(driver.listed) == [1]


@pytest.mark.parametrize('order, errno_', [
    (NewSchedule('command', RunOrder(pool='rep'), {}), errno.EINVAL),
    (NewSchedule('ls', RunOrder(pool='rep'), {}), errno.EINVAL),
    (NewSchedule('a b', RunOrder(pool='rep'), {}), errno.EINVAL),
    (NewSchedule('x', RunOrder(pool='rep'), {'begin_time': '2500'}), errno.EINVAL),
    (NewSchedule('x', RunOrder(pool='rep'), {'every_days': '0'}), errno.EINVAL),
    (NewSchedule('x', RunOrder(pool='gone'), {}), errno.ENOENT),
    (NewSchedule('x', RunOrder(profile='bogus'), {}), errno.EINVAL),
    (DroppedSchedule('x'), errno.ENOENT)])
def test_bad_schedules(order: Any, errno_: int) -> None:
    driver = ProbeDriver()
    assert code(driver, order) == errno_
    assert not driver.loop.probed().schedules


def test_a_schedule_is_replaced_and_dropped() -> None:
    driver = scheduled()
    driver.cluster.trouble = {'laggy': 1}
    go_to(driver, SUNDAY + 2 * HOUR)
    driver.give(NewSchedule('nightly', RunOrder(pool='ec', trigger='nightly'), {}))
    row, = driver.loop.probed().schedules_json()['schedules']
    assert row['probe'] == {'pool': 'ec'}
    driver.restart()
    driver.give(DroppedSchedule('nightly'))
    driver.restart()
    driver.turn()
    assert not driver.loop.probed().schedules


# ---- baselines

@pytest.fixture
def speed(monkeypatch: Any) -> Dict[str, int]:
    """What workers measure."""
    rates = {'iops': 1000}
    plain = probe_runs.result
    monkeypatch.setattr(probe_runs, 'result', lambda job, given, **changes: plain(
        job, [rates['iops']] * len(given), **changes))
    return rates


REPEATED = replace(IN_POOL, repeat='5')


def test_a_regression_through_failovers(speed: Dict[str, int]) -> None:
    driver = ProbeDriver()
    driver.give(RunId('probe baseline', ran(driver, REPEATED)))
    ran(driver, REPEATED)
    assert REGRESSION_CHECK not in driver.cluster.checks
    speed['iops'] = 300
    ran(driver, REPEATED)
    assert REGRESSION_CHECK in driver.cluster.checks
    assert driver.listed[3]['verdict'] == 'slower than its baseline'
    driver.cluster.checks = {}
    driver.restart()
    driver.turn()
    assert REGRESSION_CHECK in driver.cluster.checks
    row, = driver.loop.probed().baselines_json()['baselines']
    assert row['id'] == 1 and row['slower'][0]['probe'] == 3
    assert code(driver, RunId('probe rm', 1)) == errno.EBUSY
    speed['iops'] = 1000
    ran(driver, REPEATED)
    assert REGRESSION_CHECK not in driver.cluster.checks


def test_a_comparison_waits_for_the_thread_of_the_tools(speed: Dict[str, int]) -> None:
    driver = ProbeDriver()
    driver.give(RunId('probe baseline', ran(driver, REPEATED)))
    speed['iops'] = 300
    run = int(driver.give(REPEATED)['id'])
    driver.run_until(lambda: driver.state(run) == 'running', 120)
    driver.tools.late = True
    driver.finish()
    driver.run(3)
    assert REGRESSION_CHECK not in driver.cluster.checks
    driver.tools.work()
    driver.turn()
    assert REGRESSION_CHECK in driver.cluster.checks


def test_a_comparison_that_fails_does_not_prevent_the_next(
        speed: Dict[str, int], monkeypatch: Any, caplog: pytest.LogCaptureFixture) -> None:
    compared = schedules.regression

    def computed(known: Any, record: Any) -> Any:
        if record.id == 2:
            raise ValueError('odd')
        return compared(known, record)

    monkeypatch.setattr(schedules, 'regression', computed)
    driver = ProbeDriver()
    driver.give(RunId('probe baseline', ran(driver, REPEATED)))
    speed['iops'] = 300
    ran(driver, REPEATED)
    assert REGRESSION_CHECK not in driver.cluster.checks
    assert 'cannot compare probe 2 with probe 1' in caplog.text
    ran(driver, REPEATED)
    assert REGRESSION_CHECK in driver.cluster.checks


@pytest.mark.parametrize('order', [RunId('probe baseline --rm', 1), RunId('probe rm', 2),
                                   RunId('probe baseline', 2)])
def test_what_else_ends_a_regression(speed: Dict[str, int], order: RunId) -> None:
    driver = ProbeDriver()
    driver.give(RunId('probe baseline', ran(driver, REPEATED)))
    speed['iops'] = 300
    ran(driver, REPEATED)
    assert REGRESSION_CHECK in driver.cluster.checks
    driver.give(order)
    driver.turn()
    assert REGRESSION_CHECK not in driver.cluster.checks


def test_a_regression_ends_with_the_record_that_shows_it(speed: Dict[str, int]) -> None:
    """Later probes may have other jobs, or another mgr host, and clear nothing."""
    driver = ProbeDriver(options=replace(OPTIONS, probe_history=2))
    driver.give(RunId('probe baseline', ran(driver, REPEATED)))
    speed['iops'] = 300
    ran(driver, REPEATED)
    other = replace(IN_POOL, words={**WORDS, 'bs': '8k'})
    ran(driver, other)
    assert REGRESSION_CHECK in driver.cluster.checks
    ran(driver, other)
    driver.run(2)
    assert list(driver.listed) == [1, 3, 4] and REGRESSION_CHECK not in driver.cluster.checks


def test_a_regression_ends_with_its_pool(speed: Dict[str, int],
                                         monkeypatch: pytest.MonkeyPatch) -> None:
    """No later probe can be compared."""
    driver = ProbeDriver()
    driver.give(RunId('probe baseline', ran(driver, REPEATED)))
    speed['iops'] = 300
    ran(driver, REPEATED)
    assert REGRESSION_CHECK in driver.cluster.checks
    map_view = driver.cluster.map_view

    def without(names: Sequence[str]) -> Any:
        view = map_view()
        pools = {pool.id: pool for pool in view.osdmap.pools.values() if pool.name not in names}
        return replace(view, osdmap=replace(view.osdmap, pools=pools,
                                            epoch=view.osdmap.epoch + len(names)))

    monkeypatch.setattr(driver.cluster, 'map_view', lambda: without(['rep']))
    driver.turn()
    assert REGRESSION_CHECK not in driver.cluster.checks
    # The baseline stays, for a pool of the same name.
    assert driver.loop.probed().baselines_json()['baselines'][0]['id'] == 1
    monkeypatch.setattr(driver.cluster, 'map_view', lambda: without([]))
    driver.turn()
    assert REGRESSION_CHECK in driver.cluster.checks


def test_a_baseline_whose_record_is_lost() -> None:
    driver = ProbeDriver()
    driver.give(RunId('probe baseline', ran(driver)))
    Store(driver.kv).remove('probe/1')
    driver.restart()
    driver.turn()
    ran(driver)
    assert driver.give(RunId('probe baseline --rm', 1))['message'] == 'baseline removed'
    assert code(driver, RunId('probe baseline --rm', 1)) == errno.ENOENT


# ---- what is kept

def test_only_so_many_runs_are_kept() -> None:
    driver = ProbeDriver(options=replace(OPTIONS, probe_history=2))
    driver.give(RunId('probe baseline', ran(driver)))
    for _ in range(4):
        ran(driver)
    driver.turn()
    assert list(driver.listed) == [1, 4, 5]
    driver.restart()
    driver.turn()
    assert list(driver.listed) == [1, 4, 5]


def test_no_turn_waits_until_the_records_of_many_runs_are_removed() -> None:
    """Each takes a write that the mons have to commit."""
    driver = ProbeDriver()
    for _ in range(6):
        ran(driver)
    driver.options = replace(OPTIONS, probe_history=2)
    kept = []
    for _ in range(6):
        driver.turn()
        kept.append(len(Store(driver.kv).names('probe/')))
    assert kept == [5, 4, 3, 2, 2, 2] and list(driver.listed) == [5, 6]


@pytest.mark.parametrize('head', [
    '{"version": 1, "document": {"schedules": 3}}', '{"version": 1, "docum', '[]'])
def test_settings_that_cannot_be_read_hide_no_journal(head: str) -> None:
    """They are set aside and reported, so that operators can make others."""
    driver = ProbeDriver()
    driver.cluster.behaviour = 'deaf'
    driver.give(IN_POOL)
    driver.run(4)
    driver.cluster.kill_workers()
    driver.cluster.behaviour = 'good'
    driver.kv.set_store(SETTINGS + '/head', head)
    driver.restart()
    driver.turn()
    assert 'damaged/probe-settings' in \
        driver.cluster.checks['PERFGUARD_INTERRUPTED']['detail'][0]
    driver.finish()
    assert driver.cluster.is_untouched() and driver.state(1) == 'failed'
    assert driver.told('store')
    driver.give(NewSchedule('night', IN_POOL, {}))
    driver.restart()
    driver.turn()
    assert [row.name for row in driver.loop.probed().schedules] == ['night']


@pytest.mark.parametrize('head', [
    '{"version": 1, "document": {"record": {}, "site": null}}', '{"version": 1, "docum', '[]',
    '{"version": 1, "slot": "a", "parts": 2}'])
def test_a_journal_that_cannot_be_read_is_reported(head: str) -> None:
    """By every mgr, until the operator has seen what the probe may have left."""
    driver = ProbeDriver()
    driver.kv.set_store(JOURNAL + '/head', head)
    for _ in range(2):
        driver.restart()
        driver.turn()
        assert not driver.busy and driver.told('store')
        assert driver.kv.data[JOURNAL + '/head'] == head
        assert driver.cluster.checks.keys() == {LEFT_CHECK}
        assert refusal(driver, IN_POOL).errno == errno.EBUSY
    driver.give(RunId('probe cancel --force', 0))
    ran(driver)
    assert not driver.cluster.checks


# ---- benches of the stores

class Benching(ProbeCluster):
    """OSDs that take `seconds` for each; those in `silent` never answer."""
    seconds = 3.0

    def __post_init__(self) -> None:
        super().__post_init__()
        self.benches: List[Any] = []
        self.commands: List[Any] = []
        #: OSD -> when it answers, until when an answer is expected, and the command.
        self.open: Dict[int, Any] = {}
        self.silent: Dict[int, bool] = {}
        self.slow = 1

    def ask(self, topic: str, osds: Any, command: Any,
            patience_seconds: float = OSD_ANSWER_SECONDS) -> None:
        for osd in osds if command['prefix'] == 'bench' else ():
            self.benches.append((osd, command['size']))
            self.commands.append(command)
            self.open[osd] = (self.now + self.seconds, self.now + patience_seconds, command)

    def asked(self, topic: str) -> Any:
        return set(self.open)

    def answers(self, topic: str) -> Dict[int, Any]:
        ready = {osd: command for osd, (at, _, command) in self.open.items()
                 if at <= self.now and osd not in self.silent}
        self.open = {osd: asked for osd, asked in self.open.items()
                     if osd not in ready and self.now <= asked[1]}
        return {osd: {'bytes_written': command['count'], 'blocksize': command['size'],
                      'elapsed_sec': 2.0 * (3.0 if osd == self.slow else 1.0)}
                for osd, command in ready.items()}


STORE = RunOrder(store=True, osd='0,1,2,3,4,5', repeat='5')


def test_stores_are_ranked_and_compared_with_each_other_and_with_baselines() -> None:
    cluster = Benching()
    driver = ProbeDriver(cluster)
    first = ran_long(driver, STORE)
    assert cluster.benches[:4] == [(0, 4096), (0, 4 << 20), (1, 4096), (1, 4 << 20)]
    # The first one is that of OSDs themselves: "bench 12288000 4096 4194304 100".
    assert cluster.commands[:2] == [
        {'prefix': 'bench', 'count': 12288000, 'size': 4096, 'object_size': 4 << 20,
         'object_num': 100}, {'prefix': 'bench', 'count': 128 << 20, 'size': 4 << 20}]
    found = driver.loop.probed().details(first)
    assert [row['osd'] for row in found['osds'] if row['outlier']] == [1, 1]
    assert {len(job['repetitions']) for job in found['jobs']} == {5}
    driver.give(RunId('probe baseline', first))
    second = ran_long(driver, STORE)
    assert driver.loop.probed().compared(first, second)['verdict'] == 'no difference'
    cluster.slow = 2
    third = ran_long(driver, STORE)
    lines = {line['job']: line['verdict']
             for line in driver.loop.probed().compared(first, third)['lines']}
    assert lines['bench-4096 write osd.2'] == 'slower'
    assert lines['bench-4096 write osd.1'] == 'faster'
    assert REGRESSION_CHECK in driver.cluster.checks
    assert driver.cluster.is_untouched() and not driver.cluster.workers


def test_the_capacity_of_a_store_is_that_of_its_last_probe() -> None:
    cluster = Benching()
    driver = ProbeDriver(cluster)
    first = ran_long(driver, replace(STORE, osd='0,1'))
    cluster.slow = 0
    second = ran_long(driver, replace(STORE, osd='0', repeat='1'))
    cluster.silent[0] = True
    driver.give(replace(STORE, osd='0', repeat='1'))
    driver.finish(600)
    fast = 12288000 / 4096 / 2.0
    assert capacities(driver.loop.probed().records) == {
        0: (second, fast / 3), 1: (first, fast / 3)}


def test_a_store_with_the_least_plausible_capacity_is_measured() -> None:
    """3,000 writes at 50 IOPS, after 400 MiB at 10 MB/s."""
    cluster = Benching()
    cluster.seconds = 102.0
    driver = ProbeDriver(cluster)
    run = ran_long(driver, replace(STORE, osd='0', repeat='1'))
    assert capacities(driver.loop.probed().records).keys() == {0} and driver.state(run) == 'done'


def ran_long(driver: ProbeDriver, order: RunOrder) -> int:
    run = int(driver.give(order)['id'])
    driver.finish(600)
    driver.judged()
    assert driver.state(run) == 'done'
    return run


def test_a_bench_is_not_stopped_but_no_other_begun() -> None:
    cluster = Benching()
    driver = ProbeDriver(cluster)
    driver.give(STORE)
    assert str(refusal(driver, RunId('probe cancel --force', 1))) == (
        'probe 1 is running ("probe cancel" stops it)')
    driver.give(RunId('probe cancel', 1))
    assert driver.busy
    driver.finish(10)
    assert driver.state(1) == 'cancelled' and len(cluster.benches) == 1


def test_an_osd_that_does_not_answer() -> None:
    cluster = Benching()
    cluster.silent[0] = True
    driver = ProbeDriver(cluster)
    driver.give(STORE)
    driver.finish(200)
    assert driver.state(1) == 'failed' and 'osd.0' in driver.listed[1]['message']
    # It is still at it: its answer is not taken for one to the next.
    driver.give(STORE)
    driver.run(5)
    assert cluster.benches == [(0, 4096)]
    cluster.silent.clear()
    driver.finish(600)
    assert driver.state(2) == 'done'


def test_a_bench_whose_mgr_is_gone() -> None:
    driver = ProbeDriver(Benching())
    driver.give(STORE)
    driver.run(2)
    driver.restart()
    driver.turn()
    assert driver.state(1) == 'failed' and not driver.busy


def test_the_osds_of_a_bench_whose_mgr_is_gone_count_as_loaded_for_a_while() -> None:
    """The last bench continues, and the journal does not say on which OSD."""
    cluster = Benching()
    driver = ProbeDriver(cluster)
    driver.give(STORE)
    driver.run(2)
    # Its answer goes to the mgr that has asked.
    cluster.open.clear()
    driver.restart()
    for seconds, loaded in ((100, True), (100, False)):
        driver.run(seconds)
        assert bool(driver.loop.probing.loaded(driver.cluster.now, 5.0).osds) == loaded


def test_an_mgr_that_was_replaced_begins_no_further_bench() -> None:
    cluster = Benching()
    driver = ProbeDriver(cluster)
    driver.give(STORE)
    driver.run(2)
    other = two(driver)
    other.run_until(lambda: not other.loop.probing.busy)
    driver.run(20)
    assert len(cluster.benches) == 1
    assert [record.state for record in other.loop.probed().records] == ['failed']


@pytest.mark.parametrize('order', [IN_POOL, replace(STORE, osd='0', repeat='1')])
def test_an_mgr_that_was_replaced_leaves_the_probe_of_the_next_one(order: RunOrder) -> None:
    """If that one failed as well, the resources of its probe in the cluster would not be known."""
    cluster = Benching()
    cluster.behaviour = 'deaf'
    driver = ProbeDriver(cluster)
    driver.give(order)
    # Without answers, the counters of OSDs are waited for for 5 s.
    driver.run(8 if order is IN_POOL else 3)
    other = two(driver)
    other.run_until(lambda: not other.loop.probing.busy)
    other.give(IN_POOL)
    other.run(8)
    before = records(driver, 'probing', 'probe')
    assert any(key.startswith('probing') for key in before) and driver.busy
    cluster.workers[0].status = -9
    driver.run(10)
    assert records(driver, 'probing', 'probe') == before and driver.loop.journal.fenced
