# SPDX-License-Identifier: LGPL-2.1-or-later
"""A pool that is slower from one minute to the next is one event, with what changed then."""
import random
from dataclasses import replace
from typing import Callable, Dict, List, Optional, Sequence, Set, Tuple

import pytest

from perfguard.cluster.drive_health import DriveHealth
from perfguard.cluster.dumps import option_changes
from perfguard.cluster.types import OptionChange, OsdMap, Pool
from perfguard.tests.watch.test_controller import Watched
from perfguard.watch.series import READ_NS, READS, HistoryPoint
from perfguard.watch.steps import (AFTER_POINTS, LEAST_BEFORE_POINTS, Changes, ClusterChange,
                                   KnownSteps, OsdRelease, ReleaseChange, Step, changes_around,
                                   facts_of, of_options, step_of, what_text, why_text)
from perfguard.watch.types import Flow

from ..fakes.zones import in_zone

MINUTE = 60.0
START = 1e9 - 1e9 % 3600.0


def points(latencies: List[float], ops: float = 6000.0) -> List[HistoryPoint]:
    """Of a minute each, with these latencies in ms."""
    return [HistoryPoint(START + MINUTE * (number + 1), MINUTE, (ops, ms * ops * 1e6, 0.0, 0.0))
            for number, ms in enumerate(latencies)]


def found(latencies: List[float], ops: float = 6000.0) -> Optional[Step]:
    return step_of(1, 'reads', points(latencies, ops), READS, READ_NS)


def noisy(level: Callable[[int], float], number: int, seed: int) -> List[float]:
    rng = random.Random(seed)
    return [level(minute) * rng.lognormvariate(0.0, 0.08) for minute in range(number)]


def test_a_step_is_dated_to_its_minute() -> None:
    step = found([2.0] * 40 + [2.8] * AFTER_POINTS)
    assert step is not None
    assert (step.last_before, step.begin) == (START + 40 * MINUTE, START + 40 * MINUTE)
    assert (step.before, step.after.rate) == (Flow(100.0, 2.0), 100.0)
    assert step.after.ms == pytest.approx(2.8)


@pytest.mark.parametrize('seed', range(5))
def test_1_4_times_as_slow_is_found_in_noise_and_once(seed: int) -> None:
    latencies = noisy(lambda minute: 2.8 if minute >= 60 else 2.0, 90, seed)
    times = [end for end in range(len(latencies)) if found(latencies[max(0, end - 71):end])]
    assert times and 60 + AFTER_POINTS <= times[0] <= 60 + AFTER_POINTS + 2
    # Until it has moved past the place where steps are looked for.
    assert times[-1] <= times[0] + 3


@pytest.mark.parametrize('latencies', [
    [2.0] * (LEAST_BEFORE_POINTS - 1) + [2.8] * AFTER_POINTS, [2.0] * 60 + [2.4] * AFTER_POINTS,
    [2.0] * 60 + [20.0] * (AFTER_POINTS - 1), [0.1] * 60 + [0.15] * AFTER_POINTS,
    [2.0] * 60 + [2.8, 2.0] * 6, [2.8] * 60 + [2.0] * AFTER_POINTS])
def test_what_is_no_step(latencies: List[float]) -> None:
    """Too short before it or after it, too small a rise, a rise that is not kept, a fall."""
    assert found(latencies) is None


@pytest.mark.parametrize('latencies, ops, is_step', [
    ([2.0] * LEAST_BEFORE_POINTS + [2.8] * AFTER_POINTS, 100.0, True),
    ([2.0] * LEAST_BEFORE_POINTS + [2.8] * AFTER_POINTS, 99.0, False),
    # At least 1.3 times as slow, and 0.1 ms.
    ([2.0] * 60 + [2.601] * AFTER_POINTS, 6000.0, True),
    ([2.0] * 60 + [2.599] * AFTER_POINTS, 6000.0, False),
    ([0.2] * 60 + [0.301] * AFTER_POINTS, 6000.0, True),
    ([0.2] * 60 + [0.299] * AFTER_POINTS, 6000.0, False),
    # 90 % of the points are on their side of the middle.
    ([2.0] * 9 + [3.0] * 2 + [2.0] * 9 + [2.8] * AFTER_POINTS, 6000.0, True),
    ([2.0] * 9 + [3.0] * 3 + [2.0] * 8 + [2.8] * AFTER_POINTS, 6000.0, False),
    ([2.0] * 60 + [2.8] * 6 + [2.0] + [2.8] * 4, 6000.0, True),
    ([2.0] * 60 + [2.8] * 6 + [2.0] * 2 + [2.8] * 3, 6000.0, False),
    # 70 % of the rise are within five points before and after the step.
    ([2.0] * 57 + [2.21] * 3 + [2.8] * AFTER_POINTS, 6000.0, True),
    ([2.0] * 57 + [2.22] * 3 + [2.8] * AFTER_POINTS, 6000.0, False),
    ([2.0] * 58 + [2.22] * 2 + [2.8] * AFTER_POINTS, 6000.0, True),
    ([2.0] * 60 + [2.54] * 3 + [2.8] * 8, 6000.0, True),
    ([2.0] * 60 + [2.52] * 3 + [2.8] * 8, 6000.0, False),
    # The first point after it is above the middle.
    ([2.0] * 60 + [2.37] + [2.8] * (AFTER_POINTS - 1), 6000.0, True),
    ([2.0] * 60 + [2.36] + [2.8] * (AFTER_POINTS - 1), 6000.0, False)])
def test_the_limits_of_a_step(latencies: List[float], ops: float, is_step: bool) -> None:
    assert (found(latencies, ops) is not None) is is_step


def test_a_step_is_against_the_hour_before_it() -> None:
    step = found([9.0] * 30 + [2.0] * 60 + [2.8] * AFTER_POINTS)
    assert step is not None and step.before == Flow(100.0, 2.0)
    step = found([2.0] * 10 + [2.1] * 60 + [2.8] * AFTER_POINTS)
    assert step is not None and step.before.ms == pytest.approx(2.1)


def test_time_without_operations_lies_between_the_hour_and_the_step() -> None:
    latencies = [2.0] * 45 + [2.8] * AFTER_POINTS
    with_idle = [point._replace(sums=(0.0,) * 4) if 40 <= number < 45 else point
                 for number, point in enumerate(points(latencies))]
    step = step_of(1, 'reads', with_idle, READS, READ_NS)
    assert step is not None
    assert (step.last_before, step.begin) == (START + 40 * MINUTE, START + 45 * MINUTE)


@pytest.mark.parametrize('seed', range(3))
def test_a_slow_rise_and_noise_are_no_steps(seed: int) -> None:
    for growth in (1.01, 1.0):
        latencies = noisy(lambda minute: 2.0 * growth ** minute, 600, seed)
        assert not any(found(latencies[end - 71:end]) for end in range(71, 600))


def test_minutes_with_few_operations_say_nothing() -> None:
    assert found([2.0] * 60 + [4.0] * AFTER_POINTS, ops=50.0) is None


def test_operations_that_took_no_time_are_not_compared() -> None:
    """An OSD reports nonsense: the text of the step would divide by zero, and end the watch."""
    assert found([0.0] * 60 + [4.0] * AFTER_POINTS) is None


def step(last_before: float = START, begin: float = START) -> Step:
    return Step(1, 'reads', last_before, begin, Flow(100.0, 2.0), Flow(100.0, 2.8))


def test_changes_at_that_time() -> None:
    changes = Changes()
    changes.note(START - 500.0, {'pg_num of pool p': '32', 'release of OSDs': '16'})
    changes.note(START - 400.0, {'pg_num of pool p': '64'})
    assert changes.around(step()) == [], 'too early'
    changes.note(START + 60.0, {'pg_num of pool p': '128', 'release of OSDs': '16'})
    changes.note(START + 600.0, {'pg_num of pool p': '256', 'release of OSDs': '18'})
    assert [(change.what, change.before, change.after) for change in changes.around(step())] == [
        ('pg_num of pool p', '64', '128'), ('release of OSDs', '16', '18')]
    # While PGs moved in between, nothing is known of the time.
    assert len(changes.around(step(START - 420.0, START))) == 3


@pytest.mark.parametrize('at, late, is_named', [
    (START - 420.0, 0.0, True), (START - 420.1, 0.0, False),
    (START + 120.0, 0.0, True), (START + 120.1, 0.0, False),
    (START + 780.0, 660.0, True), (START + 780.1, 660.0, False)])
def test_which_changes_are_at_the_time_of_a_step(at: float, late: float, is_named: bool) -> None:
    change = ClusterChange(at, 'x', '1', '2', late)
    assert changes_around([change], step(START - 300.0, START)) == [change] * is_named


def test_what_may_change_the_latency() -> None:
    pools = {number: Pool(number, 'p%d' % number, False, 3, 2, 0, 8 * number, 8, 8,
                          flags=frozenset({'split_reads'} if number == 1 else ()))
             for number in (1, 2)}
    osdmap = OsdMap(9, frozenset(), pools, {}, {}, {}, {})
    assert facts_of(osdmap, [('20.2.4', '6.8'), ('18.2.7', ''), ('20.2.4', '6.1')]) == {
        'pg_num of pool p1': '8', 'pg_num of pool p2': '16', 'pools with ec_optimizations': '0',
        'pools with split_reads': '1', 'OSDs that are up and in': '0',
        'release of OSDs': '18.2.7 and 20.2.4', 'kernel of OSDs': '6.1 and 6.8'}
    assert 'kernel of OSDs' not in facts_of(osdmap, [('20.2.4', '')])


def test_flags_with_which_pools_do_other_operations_are_changes() -> None:
    """The mons set such a flag of all pools when an upgrade is complete."""
    pools = {number: Pool(number, 'p%d' % number, True, 6, 5, 0, 8, 8, 8) for number in range(300)}
    osdmap = OsdMap(9, frozenset(), pools, {}, {}, {}, {})
    flagged = replace(osdmap, pools={
        number: replace(pool, flags=frozenset({'ec_optimizations', 'split_reads', 'bulk'}))
        for number, pool in pools.items()})
    changes = Changes()
    changes.note(START - 10.0, facts_of(osdmap, [('20.2.4', '6.1')]))
    changes.note(START + 10.0, facts_of(flagged, [('21.2.0', '6.1')]))
    assert [change[1:4] for change in changes.around(step())] == [
        ('pools with ec_optimizations', '0', '300'), ('pools with split_reads', '0', '300'),
        ('release of OSDs', '20.2.4', '21.2.0')]


def drives(*rows: Tuple[str, str]) -> Dict[str, DriveHealth]:
    """Drives with these ids and firmwares."""
    return {'h%d:sda' % number: DriveHealth(*row) for number, row in enumerate(rows)}


def test_the_firmware_of_drives_is_known_a_day_later() -> None:
    """A sample of smartctl is up to a day old when it is read, and read every six hours."""
    before = drives(('M_S1', 'A'), ('M_S2', 'A'), ('N_S3', 'X'), ('', 'Y'))
    after = drives(('M_S1', 'B'), ('M_S2', 'B'), ('N_S3', 'X'), ('O_S4', 'Z'), ('', 'W'))
    changes = Changes()
    for now, read in ((START - 20.0, None), (START - 10.0, before), (START, before),
                      (START + 30 * 3600.0, after)):
        changes.note(now, {}, read)
    change, = changes.around(step())
    assert change[1:] == ('firmware of drive model M', 'A', 'B', 30 * 3600.0)
    assert changes.noticed == [change]
    changes.note(START + 30 * 3600.0 + 5.0, {}, after)
    assert changes.noticed == [] and changes.around(step()) == [change]
    assert changes.around(step(START - 121.0, START - 121.0)) == []
    with in_zone('CET-1'):
        assert why_text([step()], [change], True).endswith(
            'changed at that time: firmware of drive model M: B instead of A, noticed at '
            '2001-09-10 08:00:00 CET, up to 30.0 h late')


@pytest.mark.parametrize('rows', [
    # Another drive of the model; one that cannot be read for some time.
    ([('M_S1', 'A')], [('M_S1', 'A'), ('M_S2', 'B')], [('M_S2', 'B')]),
    ([('M_S1', 'A'), ('M_S2', 'B')], [('M_S1', 'A')], [('M_S1', 'A'), ('M_S2', 'B')])])
def test_drives_that_come_and_go_are_no_change_of_firmware(
        rows: Sequence[Sequence[Tuple[str, str]]]) -> None:
    changes = Changes()
    for number, present in enumerate(rows):
        changes.note(START + number, {}, drives(*present))
        assert changes.noticed == []


def test_a_pool_with_the_name_of_a_removed_one_is_no_change() -> None:
    changes = Changes()
    changes.note(START - 20.0, {'pg_num of pool p': '128'})
    changes.note(START - 10.0, {})
    changes.note(START, {'pg_num of pool p': '32'})
    assert changes.around(step()) == []


NEW, OLD = '20.2.4', '18.2.7'


def upgraded(*rows: Tuple[float, Set[str]]) -> OsdRelease:
    """After minutes with these releases of the OSDs."""
    release = OsdRelease()
    for minute, releases in rows:
        release = release.noted(START + MINUTE * minute, releases)
    return release


BEGUN = upgraded((0, {OLD}), (60, {OLD, NEW}), (70, {OLD, NEW, ''}), (80, {OLD, NEW}))
DONE = BEGUN.noted(START + MINUTE * 120, {NEW})


@pytest.mark.parametrize('release, minute, since, text', [
    (BEGUN, 90, 75, 'OSDs are being upgraded from 18.2.7 since '),
    (DONE, 130, 75, 'OSDs were upgraded from 18.2.7 to 20.2.4, the first at '),
    (upgraded((0, {OLD}), (60, {NEW})), 130, 75, 'OSDs were upgraded from 18.2.7 to 20.2.4'),
    # Releases are read every ten minutes; latency was high before.
    (DONE, 130, 50, 'OSDs were upgraded'), (DONE, 130, 48, ''),
    # No baseline is that old.
    (DONE, 20 * 1440, 75, ''),
    # It was reverted; the older release is not known.
    (BEGUN.noted(START + MINUTE * 120, {OLD}), 130, 75, ''),
    (upgraded((0, {OLD, NEW})), 130, 75, ''), (upgraded((0, {OLD, NEW}), (60, {NEW})), 130, 75, ''),
    (upgraded((0, {''}), (60, set())), 9, 9, '')])
def test_an_upgrade_may_be_why_latency_is_above_the_baseline(
        release: OsdRelease, minute: int, since: int, text: str) -> None:
    shown = release.upgrade_text(START + MINUTE * minute, START + MINUTE * since)
    assert shown.startswith(text) and bool(shown) == bool(text)


@pytest.mark.parametrize('release, now, since, is_named', [
    (DONE, 60 * MINUTE, 49 * MINUTE, True), (DONE, 60 * MINUTE, 49 * MINUTE - 1.0, False),
    (DONE, 60 * MINUTE + 14 * 86400.0, 75 * MINUTE, True),
    (DONE, 60 * MINUTE + 14 * 86400.0 + 1.0, 75 * MINUTE, False)])
def test_how_long_an_upgrade_may_be_the_reason(
        release: OsdRelease, now: float, since: float, is_named: bool) -> None:
    assert bool(release.upgrade_text(START + now, START + since)) is is_named


def test_the_release_of_the_osds_and_its_change() -> None:
    assert BEGUN == OsdRelease(OLD, START + MINUTE * 60, None)
    assert DONE == OsdRelease(NEW, 0.0, ReleaseChange(START + MINUTE * 60, OLD, NEW))
    assert DONE.noted(START + MINUTE * 130, {NEW}) == DONE
    # Another upgrade begins: the last one remains known until it is complete.
    begun = DONE.noted(START + MINUTE * 200, {NEW, '21.2.0'})
    assert begun == replace(DONE, begun=START + MINUTE * 200)
    with in_zone('CET-1'):
        assert begun.upgrade_text(START + MINUTE * 210, START + MINUTE * 200) == \
            'OSDs are being upgraded from 20.2.4 since 2001-09-09 05:20:00 CET'
        assert DONE.upgrade_text(START + MINUTE * 210, START + MINUTE * 200) == (
            'OSDs were upgraded from 18.2.7 to 20.2.4, the first at 2001-09-09 03:00:00 CET: the '
            'baseline may be from before')


@pytest.mark.parametrize('name, value, shown', [
    ('osd_x', '7' * 60, '7' * 60), ('osd_x', '7' * 61, '7' * 60 + '...'), ('osd_x', '', 'no value'),
    ('osd_Auth_x', '7', 'a hidden value'), ('osd_token', '', 'no value')])
def test_the_value_of_an_option_in_an_event(name: str, value: str, shown: str) -> None:
    assert of_options([OptionChange(START, 'osd.3', name, '5', value)]) == [ClusterChange(
        START, name + ' of osd.3', 'a hidden value' if 'hidden' in shown or name == 'osd_token'
        else '5', shown)]


@pytest.mark.parametrize('rate, is_named', [
    (119.9, False), (120.0, True), (83.4, False), (83.3, True)])
def test_another_load_is_named(rate: float, is_named: bool) -> None:
    text = why_text([step()._replace(after=Flow(rate, 2.8))], [], True)
    assert text == 'reads take 2.8 ms instead of 2 ms; ' + (
        'changed at that time: client load: %.0f reads per second instead of 100' % rate
        if is_named else 'no change at that time is known that may be the cause')


def test_how_many_pools_and_changes_an_event_names() -> None:
    steps = [step(begin=START + 60.0 * pool)._replace(pool=pool, after=Flow(100.0, 3.0 + pool))
             for pool in range(11)]
    changes = [ClusterChange(START, 'x%d' % number, '1', '2', float(number == 12))
               for number in range(13)]
    with in_zone('CET-1'):
        what = what_text(steps[::-1], {pool: 'p%02d' % pool for pool in range(11)})
        why = why_text(steps, changes, True)
    assert what == (
        'reads of pool p00 and reads of pool p01 and reads of pool p02 and reads of pool p03 and '
        'reads of pool p04 and 6 more take 4 times as long since '
        '2001-09-09 02:00:00 CET')
    latencies, _, causes = why.partition('; changed at that time: ')
    assert latencies.count('instead of 2 ms') == 10 and latencies.endswith(' and 1 more')
    # What was noticed late comes first.
    at = 'at 2001-09-09 02:00:00 CET'
    assert causes.startswith(
        'x12: 2 instead of 1, noticed %s, up to 1 s late; x0: 2 instead of 1, %s' % (at, at))
    assert causes.endswith('x10: 2 instead of 1, %s and 1 more' % at)


def test_the_texts() -> None:
    steps = [step(), step()._replace(kind='writes', after=Flow(300.0, 3.2))]
    change = ClusterChange(START + 60.0, 'x of osd', 'no value', '3')
    with in_zone('CET-1'):
        what, why = what_text(steps, {1: 'p'}), why_text(steps, [change], True)
    assert what == 'reads and writes of pool p take 1.5 times as long since ' \
        '2001-09-09 02:00:00 CET'
    assert why == (
        'reads take 2.8 ms instead of 2 ms, writes take 3.2 ms instead of 2 ms; changed at that '
        'time: x of osd: 3 instead of no value, at 2001-09-09 02:01:00 CET; client load: 300 '
        'writes per second instead of 100')
    assert why_text([step()], [], True).endswith(
        'no change at that time is known that may be the cause')
    assert 'the mons did not answer' in why_text([step()], [], False)


def test_an_upgrade_of_a_cluster_with_500_pools_is_one_short_event() -> None:
    names = {pool: 'tenant-%d' % pool for pool in range(500)}
    steps = [step()._replace(pool=pool, kind=kind, after=Flow(300.0, 3.2))
             for pool in names for kind in ('reads', 'writes')]
    changes = [ClusterChange(START, 'pg_num of pool tenant-%d' % pool, '32', '64')
               for pool in range(200)] + [ClusterChange(START, 'release of OSDs', '16', '18', 660.)]
    text = what_text(steps, names) + why_text(steps, changes, True)
    assert len(text) < 2000 and 'and 495 more' in text
    assert 'release of OSDs: 18 instead of 16' in text


@pytest.mark.parametrize('who, name', [
    ('client.rgw.a', 'rgw_keystone_admin_password'), ('global', 'rgw_crypt_vault_secret_id'),
    ('global', 'some_secret'), ('osd', 'x_access_key'), ('client', 'anything'),
    ('global/mgr/dashboard', 'ssl'), ('mgr/mgr/x', 'y'), ('mds.a', 'z')])
def test_secrets_are_in_no_event(who: str, name: str) -> None:
    changes = of_options([OptionChange(START, who, name, 'S3CR3T', 'S3CR3T2')])
    assert 'S3CR3T' not in why_text([step()], changes, True)


def test_options_of_osds_are_in_events() -> None:
    changes = of_options([OptionChange(START, who, 'osd_x', '1', '7' * 5000) for who in (
        'osd', 'osd.3', 'osd/class:hdd', 'global', 'global/host:h1')])
    assert len(changes) == 5 and len(why_text([step()], changes, True)) < 1000


def test_the_log_of_options() -> None:
    rows = option_changes([
        {'version': 3, 'timestamp': '2026-11-27T14:02:03.500000+0000', 'name': '', 'changes': [
            {'name': 'osd/class:hdd/x', 'previous_value': '1', 'new_value': '2'},
            {'name': 'global/y', 'new_value': 'true'}]},
        {'timestamp': 'x'}, {}])
    assert rows == (OptionChange(1795788123.5, 'osd/class:hdd', 'x', '1', '2'),
                    OptionChange(1795788123.5, 'global', 'y', '', 'true'))


def slower(baseline_seconds: float = 100.0) -> Tuple[Watched, float]:
    """All OSDs are 1.5 times as slow from some time on, and 10 s make a point."""
    driver = Watched(baseline_seconds)
    driver.osds.factor = 1.0
    driver.minutes(5)
    driver.osds.factor = 1.5
    begin = driver.osds.now
    driver.osds.option_log = [
        OptionChange(begin, 'osd', 'osd_slow', '', '1'), OptionChange(begin, 'mgr', 'x', '', '1'),
        OptionChange(begin - 3600.0, 'osd', 'earlier', '', '1')]
    return driver, begin


def events(driver: Watched) -> List[Tuple[str, str]]:
    return [(event['what'], event['why']) for event in driver.loop.published.events
            if event['kind'] == 'latency-step']


def test_the_event_names_the_option() -> None:
    driver, _ = slower()
    driver.minutes(3)
    (what, why), = events(driver)
    assert what.startswith('reads of pool rep take 1.5 times as long since ')
    assert 'osd_slow of osd: 1 instead of no value' in why
    assert 'earlier' not in why and 'x of mgr' not in why
    driver.minutes(20)
    assert len(events(driver)) == 1 and driver.checks == []


def test_a_batch_that_recurs_is_one_event_unless_something_changed() -> None:
    driver, _ = slower()
    driver.osds.option_log = []
    for round_of in range(3):
        driver.osds.factor = 1.5
        driver.minutes(4)
        assert len(events(driver)) == 1, round_of
        driver.osds.factor = 1.0
        driver.minutes(12)
    driver.osds.factor = 1.5
    driver.osds.option_log = [OptionChange(driver.osds.now, 'osd', 'osd_slow', '', '1')]
    driver.minutes(4)
    assert len(events(driver)) == 2 and 'osd_slow of osd' in events(driver)[1][1]


def test_steps_that_are_news() -> None:
    known, first = KnownSteps(), step()
    assert known.new_of([first]) == [first] and known.new_of([first]) == []
    for other in (first._replace(pool=2), first._replace(kind='writes'),
                  first._replace(after=Flow(100.0, 3.5)), first._replace(after=Flow(100.0, 2.2)),
                  step(begin=START + 8 * 86400.0)):
        assert known.new_of([other]) == [other]


@pytest.mark.parametrize('ms, seconds, is_news', [
    (2.8, 0.0, False), (3.35, 0.0, False), (3.37, 0.0, True), (2.34, 0.0, False),
    (2.33, 0.0, True), (2.8, 8 * 86400.0 - 1.0, False), (2.8, 8 * 86400.0, True)])
def test_the_latency_and_the_time_of_a_step_that_recurs(
        ms: float, seconds: float, is_news: bool) -> None:
    known = KnownSteps()
    known.new_of([step()])
    other = step(begin=START + seconds)._replace(after=Flow(100.0, ms))
    assert known.new_of([other]) == [other] * is_news


@pytest.mark.parametrize('days', [1.0, 7.0])
def test_a_batch_of_each_night_or_week_is_no_news_after_months(days: float) -> None:
    known, first = KnownSteps(), step()
    assert known.new_of([first]) == [first]
    for number in range(1, 61):
        assert known.new_of([step(begin=START + number * days * 86400.0)]) == []
    # Changes that are noticed late are compared with the first one only.
    late = ClusterChange(START, 'firmware', 'A', 'B', late=MINUTE)
    assert known.around([late]) == {START: [first]}
    last = START + 60 * days * 86400.0
    assert known.around([late._replace(at=last)]) == {}
    assert known.new_of([step(begin=last + 8 * 86400.0)])


def test_without_an_answer_of_the_mons_the_event_says_so() -> None:
    driver, _ = slower()
    driver.osds.mute = True
    driver.minutes(3)
    (_, why), = events(driver)
    assert 'the mons did not answer "config log"' in why


def test_a_change_that_is_noticed_later_is_another_event() -> None:
    """Once, and only if it may have been at the time of the step."""
    driver, _ = slower()
    smart = driver.loop.jobs.drives
    smart.by_device = drives(('M_S1', 'A'), ('M_S2', 'A'))
    driver.minutes(20)
    assert len(events(driver)) == 1 and 'firmware' not in events(driver)[0][1]
    smart.by_device = drives(('M_S1', 'B'), ('M_S2', 'B'))
    driver.minutes(5)
    (what, _), (later_what, why) = events(driver)
    assert later_what == what
    assert 'firmware of drive model M: B instead of A, noticed at ' in why
    assert 'osd_slow' not in why and 'config log' not in why
    driver.osds.now += 31 * 3600.0
    smart.by_device = drives(('M_S1', 'C'), ('M_S2', 'C'))
    driver.minutes(1)
    assert len(events(driver)) == 2


def test_a_longer_baseline_takes_longer() -> None:
    driver, _ = slower()
    driver.options = replace(driver.options, baseline_seconds=600.0)
    driver.minutes(9)
    assert not events(driver)
