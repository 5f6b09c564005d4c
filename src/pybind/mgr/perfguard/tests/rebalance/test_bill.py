# SPDX-License-Identifier: LGPL-2.1-or-later
"""The bill of a campaign: its sums, and which slow operations movement explains."""
import random
from dataclasses import replace
from typing import Any, Dict, List, Sequence, Tuple

import pytest

from perfguard.cluster.set_by_others import BALANCER
from perfguard.cluster.types import ClientOps, LatencyCounts, Ops, Readings
from perfguard.codec import decode, encode
from perfguard.ledger import Held
from perfguard.observation import Clients
from perfguard.rebalance import tables
from perfguard.rebalance.bill import Bill, BillTurn, BorrowedSetting, SlowOps
from perfguard.rebalance.campaign import Campaign
from perfguard.rebalance.report import bill_event
from perfguard.rebalance.types import AUTOSCALE, NOREBALANCE_KEY, Holds, Phase
from perfguard.watch.op_counts import Tail

from ..fakes.driver import Driver
from ..test_crash_matrix import small

MS = 1000000
#: Up to 1 ms, 100 ms, 1 s, and longer.
BOUNDS = (MS, 100 * MS, 1000 * MS)
BEGIN = 1000.0


def sample(osd: int, fast: int, slow: int = 0, very_slow: int = 0, seconds: float = 30.0,
           age: float = 0.0, writes: Sequence[int] = (0, 0, 0)) -> LatencyCounts:
    """`writes`: as the three numbers of reads."""
    return LatencyCounts(osd, seconds, BOUNDS, (fast, 0, slow, very_slow),
                         (writes[0], 0, *writes[1:]), age)


class Account:
    """A bill, turn by turn."""

    def __init__(self, quiet: Sequence[LatencyCounts] = ()) -> None:
        self.now = BEGIN
        self.bill = Bill.begun(quiet[0] if quiet else None)
        # The counts of a later turn begin after this mgr has begun to note causes.
        self.turn()
        self.now += 100.0

    def turn(self, *samples: LatencyCounts, seconds: float = 1.0, **more: Any) -> 'Account':
        self.now += seconds
        rows = tuple(ClientOps(1, one.osd, Ops(0, sum(one.read)), Ops(0, sum(one.write)))
                     for one in samples)
        clients = Clients(self.now, 5.0, rows, counted=tuple(samples))
        turn = BillTurn(self.now, BEGIN, seconds, Phase.RELEASING, clients)
        self.bill = self.bill.after(turn._replace(**more))
        return self

    def moving(self, *osds: int) -> 'Account':
        """PGs in flight between these OSDs, for some seconds."""
        return self.turn(osds=frozenset(osds), seconds=20.0)

    @property
    def slow(self) -> Tuple[int, int, int, int]:
        total, movement, others, unknown = self.bill.slow_ops[0]
        return total, movement, others, unknown


# ---- which slow operations movement explains

def test_no_movement_explains_nothing() -> None:
    account = Account([sample(-1, 10000)]).turn(sample(1, 900, 100))
    assert account.slow == (100, 0, 100, 0)


def test_movement_explains_what_is_beyond_the_quiet_share() -> None:
    """One in a hundred is slow without movement."""
    account = Account([sample(-1, 9900, 100)]).moving(1, 2).turn(sample(1, 900, 100))
    assert account.slow == (100, 90, 10, 0)


def test_slow_reads_elsewhere_show_the_effect_of_the_load() -> None:
    account = Account([sample(-1, 10000)]).moving(1, 2)
    account.turn(sample(1, 900, 100), sample(3, 9500, 500))
    assert account.slow == (600, 50, 550, 0)


def test_slow_writes_elsewhere_may_wait_for_replicas_that_move() -> None:
    account = Account([sample(-1, 0, writes=(9900, 100, 0))]).moving(1, 2)
    account.turn(sample(3, 0, writes=(9500, 500, 0)))
    assert account.slow == (500, 0, 100, 400)
    account.turn(sample(1, 0, writes=(900, 100, 0)))
    assert account.slow == (600, 50, 110, 440)


def test_slow_writes_are_unknown_without_a_quiet_share() -> None:
    account = Account().moving(1, 2)
    account.turn(sample(3, 0, writes=(9500, 500, 0)), sample(1, 0, writes=(900, 100, 0)))
    assert account.slow == (600, 0, 0, 600)


def test_reads_of_erasure_coded_pools_are_like_writes() -> None:
    account = Account([sample(-1, 9900, 100)]).moving(1, 2)
    account.turn(sample(3, 9500, 500), erasure=True)
    assert account.slow == (500, 0, 100, 400)


@pytest.mark.parametrize('trouble', [{'troubled': BEGIN + 105.0}, {'slow': frozenset({1})}])
def test_other_causes_leave_the_rest_unknown(trouble: Dict[str, Any]) -> None:
    account = Account([sample(-1, 9900, 100)]).turn(**trouble).moving(1, 2)
    assert account.turn(sample(1, 900, 100)).slow == (100, 0, 10, 90)


def test_a_slow_osd_may_delay_writes_of_others_but_no_reads() -> None:
    account = Account([sample(-1, 10000, writes=(10000, 0, 0))]).turn(slow=frozenset({7}))
    account.moving(1, 2).turn(sample(1, 900, 100, writes=(900, 10, 0)))
    assert account.slow == (110, 100, 0, 10)


def test_too_few_operations_give_no_share() -> None:
    account = Account([sample(-1, 500)]).moving(1, 2).turn(sample(1, 900, 100))
    assert account.slow == (100, 0, 0, 100)


def test_a_move_that_has_ended_counts_for_some_seconds() -> None:
    account = Account([sample(-1, 10000)]).moving(1, 2)
    account.turn(seconds=33.0).turn(sample(1, 900, 100, seconds=30.0))
    assert account.slow == (100, 100, 0, 0)
    account.turn(seconds=3.0).turn(sample(1, 900, 100, seconds=30.0))
    assert {key: tail.slow for key, tail in account.bill.tails.items()} == {
        'moving reads': 100, 'still reads': 100}


def test_the_end_of_an_interval_is_before_its_reading() -> None:
    """A move of 40 s ago is in the 30 s that ended 15 s ago."""
    account = Account([sample(-1, 10000)]).moving(1, 2).turn(seconds=39.0)
    assert account.turn(sample(1, 900, 100, age=15.0)).slow == (100, 100, 0, 0)


def test_counts_from_before_the_campaign_are_left_out() -> None:
    account = Account()
    account.turn(sample(1, 900, 100, seconds=250.0))
    assert account.slow == (0, 0, 0, 0)
    account.turn(sample(1, 900, 100, seconds=150.0))
    assert account.slow[0] == 100


@pytest.mark.parametrize('cause, reads, writes', [
    ({'osds': {1}}, 'moving', 'moving'), ({'osds': {2}}, 'away', 'away'),
    ({'slow': {1}}, 'unsure', 'unsure'), ({'slow': {2}}, 'still', 'unsure'),
    ({'slow': {2}, 'erasure': True}, 'unsure', 'unsure'),
    ({'troubled': BEGIN + 102.0}, 'unsure', 'unsure')])
def test_a_cause_counts_until_five_seconds_after_it(
        cause: Dict[str, Any], reads: str, writes: str) -> None:
    for seconds, groups in ((5.0, (reads, writes)), (5.5, ('still', 'still'))):
        account = Account().turn(**cause)
        account.turn(sample(1, 8, seconds=20.0, writes=(9, 0, 0)), seconds=20.0 + seconds)
        assert account.bill.tails == {
            groups[0] + ' reads': Tail(8), groups[1] + ' writes': Tail(9)}
        assert any(account.bill.moving.read) == ('osds' in cause and seconds == 5.0)


@pytest.mark.parametrize('seconds, group', [(5.0, 'moving'), (5.5, 'away')])
def test_a_move_away_follows_one_here(seconds: float, group: str) -> None:
    account = Account().turn(osds={1}).turn(osds={2})
    account.turn(sample(1, 9, seconds=20.0), seconds=19.0 + seconds)
    assert account.bill.tails == {group + ' reads': Tail(9)}


@pytest.mark.parametrize('seconds, group', [(101.0, 'still'), (101.5, 'unsure')])
def test_what_moved_is_known_since_the_first_turn_of_a_mgr(seconds: float, group: str) -> None:
    account = Account().turn(sample(1, 9, seconds=seconds))
    assert account.bill.tails == {group + ' reads': Tail(9)}


@pytest.mark.parametrize('seconds, ops', [(204.0, 9), (205.0, 0)])
def test_an_interval_counts_if_half_of_it_is_in_the_campaign(seconds: float, ops: int) -> None:
    account = Account().turn(sample(1, 9, seconds=seconds))
    assert sum(tail.ops for tail in account.bill.tails.values()) == ops


@pytest.mark.parametrize('time, ops', [(BEGIN, 9), (BEGIN - 1.0, 0)])
def test_operations_count_from_the_begin_of_the_campaign(time: float, ops: int) -> None:
    rows = (ClientOps(1, 2, Ops(5, 9), Ops()),)
    assert Account().turn(clients=Clients(time, 5.0, rows)).bill.ops == ops


def test_another_mgr_does_not_know_what_moved_before() -> None:
    account = Account([sample(-1, 10000)]).moving(1, 2)
    account.bill = decode(Bill, encode(account.bill))
    account.turn(sample(1, 900, 100))
    assert account.slow == (100, 0, 0, 100)
    account.turn(seconds=20.0).moving(1, 2).turn(seconds=20.0)
    assert account.turn(sample(1, 900, 100)).slow == (200, 100, 0, 100)


def test_a_reading_counts_once() -> None:
    account = Account([sample(-1, 10000)]).moving(1)
    account.turn(sample(1, 900, 100))
    clients = Clients(account.now, 5.0, counted=(sample(1, 900, 100),))
    for _ in range(3):
        account.turn(clients=clients)
    assert account.slow[0] == 100 and account.bill.ops == 1000


@pytest.mark.parametrize('seed', range(20))
def test_the_parts_are_close_to_the_truth(seed: int) -> None:
    """Clients whose slow operations have known causes: the load, and movement. Each OSD is primary
    of operations that also wait for one replica if they are writes."""
    chance = random.Random(seed)
    usual, load, move = 0.001, chance.choice([0.0, 0.002]), chance.uniform(0.005, 0.03)
    osds, per_osd = 12, 20000
    moving = set(chance.sample(range(osds), 4))
    truth = [0, 0]
    samples: List[LatencyCounts] = []
    for osd in range(osds):
        counts = [[per_osd, 0], [per_osd, 0]]
        for kind, places in ((0, [osd]), (1, [osd, (osd + 1) % osds])):
            for _ in range(per_osd):
                by_load = chance.random() < usual + load
                by_move = any(place in moving and chance.random() < move for place in places)
                if by_load or by_move:
                    truth[by_move] += 1
                    counts[kind][0] -= 1
                    counts[kind][1] += 1
        samples.append(sample(osd, counts[0][0], counts[0][1], writes=(*counts[1], 0)))
    quiet = sample(-1, 99900, 100, writes=(99900, 100, 0))
    account = Account([quiet]).moving(*moving).turn(*samples)
    total, movement, others, unknown = account.slow
    assert total == sum(truth) == movement + others + unknown
    # Some writes elsewhere wait for those that move: these are unknown, not denied.
    noise = 4 * sum(truth) ** 0.5
    assert truth[1] - unknown - noise <= movement <= truth[1] + noise
    assert others <= truth[0] + noise


def test_the_parts_are_never_negative() -> None:
    chance = random.Random(7)
    for _ in range(300):
        account = Account([any_sample(chance, -1)])
        for _ in range(4):
            account.turn(*(any_sample(chance, osd) for osd in range(3)),
                         osds=frozenset(chance.sample(range(3), chance.random() < 0.6)),
                         seconds=20.0, erasure=chance.random() < 0.2,
                         troubled=account.now * (chance.random() < 0.2))
        for row in account.bill.slow_ops:
            assert row.total == row.movement + row.others + row.unknown and min(row) >= 0


def any_sample(chance: random.Random, osd: int) -> LatencyCounts:
    numbers = [chance.choice([0, 1, 30, 2000]) for _ in range(6)]
    return sample(osd, numbers[0], numbers[1], numbers[2], writes=numbers[3:])


# ---- its other sums

def test_latency_is_that_while_pgs_moved() -> None:
    account = Account([sample(-1, 1000)]).turn(sample(1, 0, 1000))
    assert account.bill.moving.levels.read.p99_ms is None
    account.moving(1).turn(sample(1, 1000))
    level = account.bill.moving.levels.read
    assert level.p50_ms == 0.5 and level.p99_ms == 0.99 and account.bill.quiet.read.p50_ms == 0.5


def test_the_share_of_counted_operations() -> None:
    account = Account()
    assert account.bill.counted_ratio is None
    account.turn(sample(1, 300))
    account.turn(clients=Clients(account.now + 1, 5.0, (
        ClientOps(1, 2, Ops(5, 60), Ops(5, 40)), ClientOps(1, 3, Ops(-1, 9), Ops(0, 0)))))
    assert account.bill.counted_ratio == 0.75
    account.turn(sample(1, 9000), clients=Clients(account.now + 9, 5.0, (
        ClientOps(1, 2, Ops(5, 60), Ops(5, 40)),), counted=(sample(1, 9000),)))
    assert account.bill.counted_ratio == 1.0


def test_times_are_summed_to_the_millisecond() -> None:
    account = Account().turn(seconds=0.12345, phase=Phase.PINNING)
    account.turn(seconds=0.0, phase=Phase.PINNED)
    assert account.bill.phases == {'RELEASING': 1.0, 'PINNING': 0.123}
    holds = Holds({BALANCER: Held('on', 'off')})
    bill = account.bill.borrowing(holds, holds, 0.12345)
    assert bill.settings == {BALANCER: BorrowedSetting('off', 0.123)}


def borrowed(*turns: Tuple[Sequence[str], Sequence[str]]) -> Any:
    """`turns`: keys that are held, and given up, after each."""
    account, before = Account(), Holds()
    for held, given_up in turns:
        holds = Holds({key: Held('on', 'off') for key in held}, frozenset(given_up))
        account.bill = account.bill.borrowing(before, holds, 10.0)
        before = holds
    return dict(account.bill.settings)


def test_settings_are_borrowed_and_given_back() -> None:
    assert borrowed(([BALANCER, NOREBALANCE_KEY], []), ([BALANCER], []), ([], [])) == {
        BALANCER: BorrowedSetting('off', 20.0, held=False),
        NOREBALANCE_KEY: BorrowedSetting('off', 10.0, held=False)}


def test_settings_that_others_change_are_left() -> None:
    assert borrowed(([BALANCER], []), ([], [BALANCER]), ([], [])) == {
        BALANCER: BorrowedSetting('off', 10.0, held=False, left=True)}


def test_an_autoscaler_that_others_change_is_not_another_setting() -> None:
    pools = [AUTOSCALE + '1', AUTOSCALE + '2']
    assert borrowed(([BALANCER, *pools], []), ([], pools[:1])) == {
        BALANCER: BorrowedSetting('off', 10.0, held=False),
        'pg_autoscale_mode': BorrowedSetting('off', 10.0, held=False, left=True)}


def test_autoscalers_of_all_pools_are_one_setting() -> None:
    pools = [AUTOSCALE + str(pool) for pool in range(300)]
    assert borrowed((pools, []), (pools[1:], [])) == {
        'pg_autoscale_mode': BorrowedSetting('off', 10.0)}


def test_its_size_is_bounded() -> None:
    chance = random.Random(1)
    bounds = tuple(100000 << number for number in range(31))
    account = Account()
    for number in range(200):
        rows = [tuple(chance.randrange(10 ** 7) for _ in range(32)) for _ in range(2)]
        account.moving(number, number + 1)
        account.turn(LatencyCounts(number % 40, 30.0, bounds, rows[0], rows[1]),
                     phase=chance.choice(list(Phase)), slow=frozenset({number % 3} if number % 2
                                                                      else ()))
    assert len(str(encode(account.bill))) < 3000


# ---- campaigns

def expanding(released: int = 1, **options: Any) -> Driver:
    driver = small(waiting=2, max_pgs_in_flight=1, **options)
    driver.order('expand', weight='1.0')
    driver.run_until(lambda: driver.status['released'] >= released)
    return driver


def ended(driver: Driver, phase: str = 'DONE') -> Any:
    """The row of the history."""
    driver.run_until(lambda: driver.phase == phase and bool(driver.history))
    return driver.history[-1]


def events_of(driver: Driver) -> List[str]:
    return ['%(what)s; %(why)s' % event for event in driver.loop.published.events
            if event['kind'] == 'bill']


def test_the_bill_of_a_whole_campaign() -> None:
    driver = expanding()
    row = ended(driver)
    bill = row['bill']
    assert bill == driver.status['bill']
    assert bill['bytes_moved'] == row['bytes_done'] == bill['bytes_required'] > 0
    assert sum(bill['phase_seconds'].values()) == pytest.approx(row['ended'] - row['started'])
    assert {'PREPARED', 'PINNING', 'PINNED', 'RELEASING', 'FINISHING'} == set(bill['phase_seconds'])
    assert bill['limit_seconds']['NO_CLIENTS'] > 0 and bill['epochs'] == row['epochs'] > 0
    settings = {row['what']: row for row in bill['settings']}
    assert {row['state'] for row in settings.values()} == {'given back'}
    assert settings['mgr/balancer/active']['seconds'] > settings['flag norebalance']['seconds'] > 5
    assert 'pg_autoscale_mode of pools' in settings
    text, = events_of(driver)
    assert text.startswith('campaign 1: ') and text.endswith('all borrowed settings are given back')
    assert len(tables.shown(driver.status).splitlines()) < 25


def test_a_failover_loses_no_time() -> None:
    driver = expanding()
    driver.run(7)
    driver.restart()
    driver.run(3)
    driver.restart()
    row = ended(driver)
    bill = row['bill']
    seconds = sum(bill['phase_seconds'].values())
    assert seconds == pytest.approx(row['ended'] - row['started'], abs=2)
    assert bill['bytes_moved'] == bill['bytes_required']


def test_the_bill_of_a_campaign_that_is_rolled_back() -> None:
    driver = expanding(released=2)
    driver.order('rollback')
    bill = ended(driver)['bill']
    assert bill['rolled_back'] and 0 < bill['bytes_required']
    assert 'ABORTING' in bill['phase_seconds']
    text, = events_of(driver)
    way_back = ', and the way back what had moved of it'
    assert way_back in text and way_back in tables.shown(driver.status)


def test_what_an_aborted_campaign_still_borrows() -> None:
    driver = expanding()
    driver.ask('abort')
    ended(driver, 'ABORTED')
    driver.run(30)
    bill = driver.history[-1]['bill']
    states = {row['what']: row['state'] for row in bill['settings']}
    assert states['mgr/balancer/active'] == 'borrowed'
    assert states['flag norebalance'] == 'given back'
    assert sum(bill['phase_seconds'].values()) < 60 and 'ABORTED' not in bill['phase_seconds']
    assert 'still borrowed: pg_autoscale_mode of pools, mgr/balancer/active' in events_of(driver)[0]
    driver.ask('finish', keep=True)
    bill = ended(driver)['bill']
    assert {row['state'] for row in bill['settings']} == {'given back'}
    assert len(events_of(driver)) == 2


def test_settings_are_given_back_once_an_aborted_campaign_has_no_pins() -> None:
    driver = expanding()
    driver.ask('abort')
    ended(driver, 'ABORTED')
    driver.cluster.run([{'prefix': 'osd rm-pg-upmap-items', 'pgid': pgid}
                        for pgid in driver.loop.rebalance.pins])
    driver.run(30)
    bill = driver.history[-1]['bill']
    assert {row['state'] for row in bill['settings']} == {'given back'}


def test_what_others_have_changed_is_named() -> None:
    driver = expanding()
    driver.cluster.config[BALANCER] = 'true'
    driver.run(3)
    # Switched off for the campaign, then once more: the second order stands.
    driver.cluster.config[BALANCER] = 'false'
    driver.run(5)
    driver.cluster.set_value_again(BALANCER, 'false')
    row = ended(driver)
    states = {setting['what']: setting['state'] for setting in row['bill']['settings']}
    assert states['mgr/balancer/active'] == 'changed by others'
    assert 'changed by others and left alone: mgr/balancer/active' in events_of(driver)[0]


def test_the_change_of_an_operator_has_no_known_size() -> None:
    driver = Driver()
    driver.to_releasing()
    bill = ended(driver)['bill']
    assert bill['bytes_required'] is None and bill['bytes_moved'] > 0
    assert 'what the change required is not known' in tables.shown(driver.status)


def test_slow_operations_in_a_campaign() -> None:
    driver = expanding()
    cluster = driver.cluster
    campaign = driver.loop.published.rebalanced.campaign
    flight = next(iter(campaign.flights.in_flight.values()))
    moving, still = flight.targets[0], 4

    def read(slow: int) -> Readings:
        counted = tuple(LatencyCounts(osd, 2.0, BOUNDS, (9990, 0, number, 0), (0,) * 4)
                        for osd, number in ((moving, slow), (still, 0)))
        clients = tuple(ClientOps(1, osd, Ops(10 ** 10, 9990), Ops()) for osd in (moving, still))
        return replace(cluster.read, seconds=2.0, counted=counted, clients=clients)
    cluster.read = read(10)
    row = ended(driver)
    bill = row['bill']
    assert bill['over_100_ms']['movement'] > 0 and bill['over_100_ms']['unknown'] == 0
    assert bill['counted_ratio'] == pytest.approx(1.0, abs=0.01)
    assert '(movement explains' in events_of(driver)[0]
    text = tables.shown(driver.status)
    assert 'operations over 100 ms' in text and 'movement explains' in text


def test_histories_of_earlier_versions_have_no_bill() -> None:
    row = dict(ended(expanding()))
    assert 'borrowed settings' in tables.campaign(row)
    del row['bill']
    assert 'borrowed settings' not in tables.campaign(row)


def reloaded(changes: Any) -> Tuple[Any, List[Any], bool]:
    """A row with a changed bill, the rows that the next mgr knows, and whether it reports
    others."""
    driver = small()
    driver.ask('prepare')
    driver.run_to('PREPARED')
    driver.ask('abort')
    row = ended(driver, 'ABORTED')
    row = {**row, 'bill': {**row['bill'], **changes} if isinstance(changes, dict) else changes}
    driver.loop._store.put('history', [row])
    driver.restart()
    return row, driver.loop.rebalance.campaigns.history.rows, bool(driver.loop._store.damaged)


@pytest.mark.parametrize('changes', [
    'x', [], {'settings': [{'what': 'x', 'state': 'given back'}]}, {'latency_before': None},
    {'latency_while_moving': {}}, {'over_1_s': {'total': 1}}, {'phase_seconds': {'PINNING': 'x'}},
    {'limit_seconds': []}, {'operations': None}])
def test_a_row_with_a_malformed_bill_is_set_aside_and_reported(changes: Any) -> None:
    assert reloaded(changes)[1:] == ([], True)


@pytest.mark.parametrize('changes', [
    None, {}, {'more': 1}, {'over_1_s': {**SlowOps()._asdict(), 'more': 1}}, {'settings': []}])
def test_a_row_with_a_bill_of_another_version_stays(changes: Any) -> None:
    row, rows, is_reported = reloaded(changes)
    assert rows == [row] and not is_reported
    assert ('borrowed settings' in tables.campaign(row)) == (changes is not None)


def test_the_history_is_not_written_with_each_epoch_after_an_abort() -> None:
    driver = expanding()
    driver.ask('abort')
    row = ended(driver, 'ABORTED')
    driver.run(30)
    epoch, row = driver.cluster.epoch, driver.history[-1]
    for _ in range(5):
        driver.cluster.epoch += 1
        driver.turn()
    assert driver.cluster.epoch > epoch and driver.history[-1] is row
    driver.restart()
    driver.run(5)
    assert driver.history[-1] == row


def test_an_option_that_the_mons_refuse_was_not_borrowed() -> None:
    driver = small(waiting=2, max_pgs_in_flight=1, hold_scrubs=True)
    driver.cluster.refuse['config set osd_max_scrubs'] = 'EINVAL'
    driver.order('expand', weight='1.0')
    row = ended(driver)
    assert 'osd_max_scrubs' not in str(row['bill']['settings'])
    assert 'all borrowed settings are given back' in events_of(driver)[0]


def test_the_event_says_what_is_unknown_and_not_counted() -> None:
    current = expanding().loop.published.rebalanced.campaign
    campaign: Campaign = current
    account = Account().moving(1).turn(sample(1, 900, 100))

    def text(ops: int) -> str:
        return bill_event(replace(campaign, bill=replace(account.bill, ops=ops)))[1]
    slow = '100 over 100 ms (movement explains 0, and not 0; unknown 100); 0 over 1 s'
    assert slow + '; no settings' in text(1000)
    assert slow + ', of 1 % of the operations' in text(100000)


def test_a_move_that_ended_between_two_turns_counts_until_the_second() -> None:
    """A large cluster makes a turn every half a minute."""
    driver = expanding()

    def moving() -> bool:
        campaign = driver.loop.published.rebalanced.campaign
        return bool(campaign.flights.in_flight)
    while moving():
        now = driver.cluster.now
        driver.turn(30.0)
    campaign = driver.loop.published.rebalanced.campaign
    assert campaign.bill.causes.moving == now
    assert now in campaign.bill.causes.moved.values()


def test_a_campaign_that_takes_over_pins_has_no_known_size() -> None:
    """Their moves are those of the change before."""
    driver = small(waiting=4, max_pgs_in_flight=1)
    first, second, third, _ = ('osd.%d' % osd for osd in sorted(driver.cluster.toys)[-4:])
    driver.order('expand', first, second, weight='1.0')
    driver.run_until(lambda: driver.status['released'] >= 2)
    driver.ask('abort')
    assert ended(driver, 'ABORTED')['bill']['bytes_required'] > 0
    driver.order('expand', third, weight='1.0')
    assert ended(driver)['bill']['bytes_required'] is None
