# SPDX-License-Identifier: LGPL-2.1-or-later
"""`perfguard why` through the loop: what OSDs are asked, and what is made of their answers."""
import errno
from dataclasses import replace
from typing import Any, Dict, Iterable, List, Mapping, Set, Tuple

import pytest

from perfguard.cluster.types import OSD_ANSWER_SECONDS, OsdPlace, Readings
from perfguard.errors import Code, Refused
from perfguard.rebalance.progress import Limits
from perfguard.rebalance.types import Flight, Phase
from perfguard.watch.causes import LikelyCause
from perfguard.watch.chronic import ChronicOsds
from perfguard.watch.state import WatchState
from perfguard.watch.types import Chronic
from perfguard.why.causes import Why, campaign_causes, parsed
from perfguard.why.controller import COUNTED_SECONDS, LOADS_SECONDS, WHY_PATIENCE_SECONDS

from ..fakes.campaigns import campaign_of
from ..fakes.cluster import FakeCluster
from ..fakes.driver import Driver


class AskedCluster(FakeCluster):
    """Its OSDs answer the questions of `why` a tick after they were asked."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.silent: Set[int] = set()
        self.waiting: Dict[str, List[str]] = {'local': [], 'remote': []}
        self._asked: Dict[str, Dict[int, Tuple[float, Any]]] = {}
        self.questions = 0

    def ask(self, topic: str, osds: Iterable[int], command: Mapping[str, Any],
            patience_seconds: float = OSD_ANSWER_SECONDS) -> None:
        for osd in osds:
            if osd not in self.silent:
                self.questions += 1
                self._asked.setdefault(topic, {})[osd] = (self.now, self._reply(command))

    def answers(self, topic: str) -> Dict[int, Any]:
        due = {osd: reply for osd, (asked, reply) in self._asked.get(topic, {}).items()
               if self.now > asked}
        for osd in due:
            del self._asked[topic][osd]
        return due

    def _reply(self, command: Mapping[str, Any]) -> Any:
        if command['prefix'] == 'query':
            pg = self.pg[command['pgid']]
            state = 'active+clean' if pg.temp is None else 'active+remapped+backfill_wait'
            return {'state': state, 'info': {'pgid': command['pgid'] + 's0'}}
        if command['prefix'] == 'config get':
            return {command['var']: 'wpq'}
        return {kind + '_reservations': {
            'max_allowed': 1, 'queues': [{'items': [{'item': pgid} for pgid in pgids]}],
            'in_progress': [{'item': '1.f'}]} for kind, pgids in self.waiting.items()}


def explain(driver: Driver, what: str, turns: int = 20) -> Any:
    pending = driver.loop.requests.submit(Why(what))
    for _ in range(turns):
        driver.turn()
        if pending.refused is not None:
            raise pending.refused
        if pending.answer is not None:
            return pending.answer
    raise AssertionError('no answer in %d turns' % turns)


def flights(driver: Driver) -> Mapping[str, Flight]:
    campaign = driver.loop.rebalance.campaign
    return campaign.flights.in_flight


def codes(answer: Mapping[str, Any]) -> List[str]:
    return [row['code'] for row in answer['causes']]


@pytest.mark.parametrize('text', ['', '1', '1.G', 'osd', 'osd.x', 'campaigns', '1.a;', 'osd.1 '])
def test_what_is_none_of_the_three_is_refused(text: str) -> None:
    with pytest.raises(Refused) as refused:
        parsed(text)
    assert refused.value.errno == errno.EINVAL
    assert parsed('1.2f').pgid == '1.2f' and parsed('osd.7').osd == 7


@pytest.mark.parametrize('what', ['9.0', '1.ff', 'osd.99'])
def test_what_does_not_exist(what: str) -> None:
    with pytest.raises(Refused) as refused:
        explain(Driver(AskedCluster()), what)
    assert refused.value.errno == errno.ENOENT


def test_a_campaign_from_its_begin_to_its_end() -> None:
    cluster = AskedCluster(backfill_seconds=60.0)
    driver = Driver(cluster)
    assert codes(explain(driver, 'campaign')) == [Code.NO_CAMPAIGN]
    driver.to_pinned()
    pgid = sorted(driver.loop.rebalance.pins)[0]
    assert codes(explain(driver, pgid)) == [Code.AWAITS_START]
    driver.ask('start')
    driver.run_until(lambda: driver.status['in_flight'] == 4)
    waiting = sorted(set(driver.loop.rebalance.pins) - set(flights(driver)))
    assert Code.CAP_PGS in codes(explain(driver, waiting[0]))
    flying = sorted(set(cluster.remapped()))[0]
    assert codes(explain(driver, flying)) == [Code.BACKFILL_WAIT]
    cluster.waiting['remote'] = [flying]
    assert codes(explain(driver, flying)) == [Code.REMOTE_RESERVATION]
    cluster.waiting['local'] = [flying]
    assert codes(explain(driver, flying)) == [Code.LOCAL_RESERVATION]
    cluster.flags.add('nobackfill')
    assert codes(explain(driver, flying)) == [Code.FOREIGN_FLAG, Code.LOCAL_RESERVATION]
    cluster.flags.discard('nobackfill')
    driver.ask('pause')
    driver.run_to('HOLDING')
    assert codes(explain(driver, waiting[0]))[0] == Code.PAUSED
    answer = explain(driver, 'campaign')
    assert codes(answer)[0] == Code.PAUSED and Code.CAP_PGS in codes(answer)
    shares = [row['share'] for row in answer['causes']]
    assert answer['causes'][0]['evidence']['now'] and abs(sum(shares) - 1.0) < 0.05


def test_a_pg_that_may_be_degraded_is_not_said_to_be_next() -> None:
    """A waived stop condition concerns no PG, but those that recover are not released."""
    cluster = AskedCluster(backfill_seconds=60.0)
    driver = Driver(cluster)
    driver.to_pinned()
    pgid = sorted(driver.loop.rebalance.pins)[-1]
    cluster.degraded.add(pgid)
    driver.run(3)
    driver.ask('accept', code=Code.DEGRADED)
    driver.ask('start')
    driver.run_until(lambda: bool(driver.status['in_flight']))
    assert Code.DEGRADED in codes(explain(driver, pgid))


def test_shares_of_time_survive_a_failover() -> None:
    driver = Driver(AskedCluster())
    driver.to_releasing()
    driver.ask('pause')
    driver.run(70)
    before = explain(driver, 'campaign')['causes'][0]
    driver.restart()
    driver.turn()
    after = explain(driver, 'campaign')['causes'][0]
    assert before['code'] == after['code'] == Code.PAUSED
    assert before['evidence']['seconds'] >= 60.0
    assert abs(before['evidence']['seconds'] - after['evidence']['seconds']) < 65


def test_osds_that_do_not_answer_delay_nothing_else() -> None:
    cluster = AskedCluster(backfill_seconds=60.0)
    driver = Driver(cluster)
    driver.to_releasing()
    driver.run_until(lambda: len(cluster.remapped()) > 1)
    flying = sorted(cluster.remapped())[0]
    primary = cluster.map_view().placements[flying].acting[0]
    cluster.silent = set(cluster.toys)
    begin, turned = cluster.now, driver.loop.published.turned
    answer = explain(driver, flying)
    assert codes(answer) == [Code.NO_ANSWER]
    assert primary in answer['causes'][0]['evidence']['osds']
    assert cluster.now - begin <= WHY_PATIENCE_SECONDS + 2 and driver.loop.published.turned > turned


def test_the_primary_of_an_erasure_coded_pg_need_not_be_its_first_osd(
        monkeypatch: pytest.MonkeyPatch) -> None:
    """Primary affinities choose another one, and the order of the shards stays."""
    cluster = AskedCluster()
    driver = Driver(cluster)
    pgid, place = next(iter(cluster.map_view().placements.items()))
    led = replace(place, acting_primary=place.acting[-1])
    monkeypatch.setattr('perfguard.tests.fakes.cluster.FakeView.placement', lambda *_: led)
    cluster.silent = {place.acting[0]}
    begin = cluster.now
    assert codes(explain(driver, pgid)) == [Code.IN_PLACE]
    assert cluster.questions == 4 and cluster.now - begin < WHY_PATIENCE_SECONDS


def test_concurrent_questions_are_answered_in_turn() -> None:
    cluster = AskedCluster(backfill_seconds=60.0)
    driver = Driver(cluster)
    driver.to_releasing()
    driver.run_until(lambda: len(cluster.remapped()) > 1)
    first, second = sorted(cluster.remapped())[:2]
    pending = [driver.loop.requests.submit(Why(pgid)) for pgid in (first, second, first)]
    driver.run(12)
    assert [each.answer and each.answer['subject'] for each in pending] == [first, second, first]
    assert not driver.loop.requests.waiting


def test_a_fenced_mgr_still_explains() -> None:
    """It changes nothing, so whose journal it is does not matter."""
    driver = Driver(AskedCluster())
    driver.to_pinned()
    driver.run(2)  # the interval of the mons is given back
    questions = driver.cluster.read_back
    assert codes(explain(driver, sorted(driver.loop.rebalance.pins)[0])) == [Code.AWAITS_START]
    assert driver.cluster.read_back == questions


def test_an_osd() -> None:
    cluster = AskedCluster(backfill_seconds=60.0)
    cluster.read = replace(Readings(60.0, {}, (), {
        osd: OsdPlace(osd, 'h%d' % osd, 'default', 'hdd') for osd in range(11)}))
    driver = Driver(cluster)
    assert codes(explain(driver, 'osd.0')) == [Code.NOT_SLOW]
    driver.to_releasing()
    flight = next(iter(flights(driver).values()))
    answer = explain(driver, 'osd.%d' % flight.targets[0])
    assert codes(answer) == [Code.IN_FLIGHT]
    assert list(answer['causes'][0]['evidence']) == ['target']
    cluster.slow_daemons = {'osd.3': 2}
    assert codes(explain(driver, 'osd.3'))[0] == Code.SLOW_OPS
    cluster.take_down(4)
    assert codes(explain(driver, 'osd.4'))[0] == Code.OSD_DOWN


@pytest.mark.parametrize('slow_osds, step', [
    ((2,), '"replace osd.<id>" empties it and waits for a new drive'),
    ((2, 3), 'host h1: 2 OSDs on it are chronically slow: check its CPU, memory, disk controller '
     'and network before any drive')])
def test_no_new_drive_is_advised_on_a_host_that_is_chronically_slow(
        slow_osds: Tuple[int, ...], step: str, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = AskedCluster()
    cluster.read = replace(Readings(60.0, {}, (), {
        osd: OsdPlace(osd, 'h%d' % (osd // 2), 'default', 'hdd') for osd in range(8)}))
    driver = Driver(cluster)
    monkeypatch.setattr(ChronicOsds, 'standing', {
        osd: Chronic(osd, 1.0, 2.0, 3.0, 0.09, 2, 5.0, 'slow 9.0 % of the time')
        for osd in slow_osds})
    driver.run(2)
    cause, = explain(driver, 'osd.2')['causes']
    assert cause['code'] == Code.SLOW_AGAIN and cause['next'] == step


#: Turns after which the watch has published again.
PERIODS = 12


def test_a_busy_osd_is_explained_once_osds_have_reported_who_sends_its_load(
        monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = AskedCluster()
    cluster.read = replace(Readings(1.0, {}, (), {0: OsdPlace(0, 'h0', 'default', 'hdd')}))
    load = ['load']

    def load_of(watch: WatchState, osd: int, context: object) -> Tuple[LikelyCause, ...]:
        return (LikelyCause(load[0], 'it is busy', {}),)

    monkeypatch.setattr(WatchState, 'load_of', load_of)
    driver = Driver(cluster)
    driver.turn()
    pending = driver.loop.requests.submit(Why('osd.0'))
    driver.run(int(LOADS_SECONDS / 2))
    assert cluster.loads_wanted == [COUNTED_SECONDS] and pending.answer is None
    load[0] = 'object'
    driver.run(PERIODS)
    assert pending.answer is not None
    assert codes(pending.answer) == [Code.NOT_SLOW, 'object']
    load[0] = 'load'
    driver.run(PERIODS)
    begin = cluster.now
    answer = explain(driver, 'osd.0', 200)
    assert codes(answer) == [Code.NOT_SLOW, 'load'], 'in the end without it'
    assert 'repeat the command' in answer['causes'][-1]['text']
    # The thread of commands is the only one on Pacific.
    assert LOADS_SECONDS / 2 < cluster.now - begin <= LOADS_SECONDS <= 5
    # Two commands at the same time do not delay each other.
    both = [driver.loop.requests.submit(Why('osd.0')) for _ in range(2)]
    driver.run(int(LOADS_SECONDS))
    assert all(each.answer is not None for each in both)
    # Also if the next turn would be too late.
    driver.options = replace(driver.options, campaign_interval=10.0)
    begin = cluster.now
    explain(driver, 'osd.0', 200)
    assert cluster.now - begin <= 1


#: Under these no campaign begins, or they come with another reason.
NO_LIMITS = {Code.OSD_DOWN, Code.OSD_SCRUB_ERRORS, Code.PG_DAMAGED, Code.PG_NUM_CHANGING,
             Code.OLD_CLIENTS, Code.FAST_PEERING, Code.PACED, Code.AUTOSCALER,
             Code.BALANCER_UNDOES, Code.LEFT_OUT,
             Code.NOT_BALANCED, Code.NO_PREVIEW, Code.ONE_EPOCH, Code.TOO_FEW_OSDS,
             Code.WEAKER_RULE, Code.AWAITS_OSDS, Code.ACCEPTED}
CODES = [value for name, value in vars(Code).items() if name.isupper()]


@pytest.mark.parametrize('code', sorted(
    {*CODES[CODES.index(Code.REQUESTED):CODES.index(Code.OTHER) + 1]} - NO_LIMITS))
def test_what_has_limited_a_campaign_is_said_in_words(code: str) -> None:
    campaign = campaign_of(1, Phase.DONE, 1.0, limits=Limits({code: 9.0}))
    cause = campaign_causes(campaign, [])[0]
    assert cause.code == code and cause.text and code not in cause.text
