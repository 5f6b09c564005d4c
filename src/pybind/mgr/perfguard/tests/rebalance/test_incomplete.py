# SPDX-License-Identifier: LGPL-2.1-or-later
"""PGs for which CRUSH finds too few OSDs: active, clean and remapped until CRUSH changes."""
import errno
import json
from dataclasses import dataclass, field, replace
from typing import Any, Callable, List, Mapping, Optional, Sequence, Set, Tuple

import pytest

from perfguard.cluster.types import NO_ENTRY, NO_OSD, OsdSet, pool_of
from perfguard.errors import Reason, Refused
from perfguard.events import Event
from perfguard.rebalance import pinning
from perfguard.rebalance.replacing import DRAINS, REPLACE
from perfguard.rebalance.risks import RISKS
from perfguard.upmap.pins import INCOMPLETE, Unpinnable

from ..fakes.cluster import FakeCluster, FakePg
from ..fakes.driver import OPTIONS, Driver, codes
from ..fakes.straw_cluster import StrawCluster
from .test_goals import BALANCED


@dataclass
class IncompleteCluster(StrawCluster):
    """CRUSH gives up on a position of some PGs, where the OSDs keep the shard that they have."""
    #: PG -> positions.
    gaps: Mapping[str, Sequence[int]] = field(default_factory=dict)
    #: The CRUSH weights with which CRUSH gives up; None: any.
    only_with: Optional[Mapping[int, float]] = None
    #: PGs whose first two OSDs change places, which no pairs can express.
    swapped: Sequence[str] = ()

    def raw_under(self, pgid: str, toys: Any) -> List[int]:
        raw = super().raw_under(pgid, toys)
        if pgid in self.swapped:
            raw[:2] = raw[1::-1]
        weights = {osd: toy.crush_weight for osd, toy in toys.items()}
        if self.only_with is None or self.only_with.items() <= weights.items():
            for position in self.gaps.get(pgid, ()):
                raw[position] = NO_OSD
        return raw

    def _backfills(self, pgid: str, pg: FakePg) -> bool:
        return self._merged(pgid, pg) != self._have(pgid, pg) and super()._backfills(pgid, pg)

    def _copies(self, pgid: str, pg: FakePg) -> int:
        """An OSD may have two shards, one of which waits for an OSD of its own."""
        have = self._have(pgid, pg)
        return len(have) - have.count(NO_OSD)

    def _held(self, pgid: str, pg: FakePg) -> OsdSet:
        return self._merged(pgid, pg)

    def _merged(self, pgid: str, pg: FakePg) -> OsdSet:
        """The acting set once everything is copied that there is a place for."""
        if pool_of(pgid) == 2:
            return tuple(old if new == NO_OSD else new for old, new in zip(pg.data, pg.up))
        return tuple(dict.fromkeys((*pg.up, *pg.data)))[:3]

    def tick(self, seconds: float = 1.0) -> None:
        super().tick(seconds)
        for pgid, pg in self.pg.items():
            if len(set(pg.up) - {NO_OSD}) < 3 and pg.temp is None and pg.peering_until is None:
                pg.temp = pg.data

    def give_up(self, gaps: Mapping[str, Sequence[int]]) -> None:
        self.gaps = gaps
        self._place()
        self.change_tunables()


def stuck(driver: Driver) -> List[str]:
    return sorted(pgid for pgid, why in unpinnable(driver).items() if why == INCOMPLETE)


def unpinnable(driver: Driver) -> Mapping[str, Unpinnable]:
    campaign = driver.loop.rebalance.campaign
    return campaign.pinning.unpinnable


def expanding(gaps: Mapping[str, Sequence[int]], options: Any = OPTIONS,
              swapped: Sequence[str] = (), spares: int = 0) -> Driver:
    """A campaign after a change with which CRUSH gives up on some PGs, beside OSDs without PGs."""
    cluster = IncompleteCluster()
    if spares:
        cluster.add_osds(spares, 0.0)
    driver = Driver(cluster, options)
    driver.ask('prepare')
    driver.run_to('PREPARED')
    cluster.gaps, cluster.swapped = gaps, swapped
    cluster.add_osds(3, 1.0)
    driver.run_until(lambda: bool(cluster.remapped()))
    driver.ask('pin')
    driver.run_to('PINNED')
    return driver


def spare_of(driver: Driver) -> int:
    """The OSD without PGs."""
    spare, = (osd for osd, toy in driver.cluster.toys.items() if not toy.crush_weight)
    return spare


def ended(driver: Driver) -> None:
    """All settings are given back, and only these PGs are remapped."""
    cluster, fresh = driver.cluster, FakeCluster()
    assert cluster.foreign() == fresh.foreign() and cluster.mon_config == fresh.mon_config
    assert not [code for code in cluster.checks if code.startswith('PERFGUARD')]


@pytest.mark.parametrize('options', [OPTIONS, BALANCED])
@pytest.mark.parametrize('gaps', [{'2.0': [2]}, {'2.2': [2]}, {'1.0': [1]},
                                  {'2.%x' % seed: [seed % 3] for seed in range(6)},
                                  {'2.1': [0, 1], '1.1': [0], '1.2': [2]}])
def test_a_campaign_with_pgs_that_crush_gives_up_on_ends(
        gaps: Mapping[str, Sequence[int]], options: Any) -> None:
    """More than max_pgs_in_flight of them, too. Those that move with another shard are pinned."""
    driver = expanding(gaps, options)
    cluster = driver.cluster
    pinned = {pgid for pgid in gaps if cluster.entries().get(pgid, NO_ENTRY).vector}
    assert set(unpinnable(driver)) == set(stuck(driver)) == set(gaps) - pinned and not cluster.moved
    assert pinned or len(gaps) == 1
    driver.ask('start')
    driver.run_to('DONE')
    assert set(cluster.remapped()) == set(gaps) and cluster.most_moving <= 4 + len(gaps)
    ended(driver)


def test_they_do_not_count_as_too_many_to_release() -> None:
    """None of them moves when norebalance is cleared."""
    gaps = {'2.%x' % seed: [seed % 3] for seed in range(10)}
    driver = expanding(gaps, replace(OPTIONS, max_unpinnable_ratio=0.05))
    still = [pgid for pgid in gaps if pgid in stuck(driver)]
    assert len(still) > 2
    check = driver.cluster.checks['PERFGUARD_UNPINNABLE']
    assert 'staying in place: %d' % len(still) in check['summary']
    assert any(INCOMPLETE.reason in line for line in check['detail'])


@pytest.mark.parametrize('failover', [False, True])
@pytest.mark.parametrize('down', ['no PGs', 'such a PG'])
def test_an_osd_that_is_down_does_not_stop_a_campaign_for_them(down: str, failover: bool) -> None:
    """CRUSH still has no place for them, whether or not the OSD serves one of them."""
    gaps = {'2.%x' % seed: [seed % 3] for seed in range(10)}
    driver = expanding(gaps, replace(OPTIONS, max_unpinnable_ratio=0.05), spares=1)
    cluster, spare = driver.cluster, spare_of(driver)
    driver.ask('start')
    driver.run_until(lambda: driver.status['in_flight'] > 0)
    still = stuck(driver)
    osd = spare if down == 'no PGs' else cluster.pg[still[0]].up[0]
    if failover:
        driver.restart()
    cluster.take_down(osd)
    for _ in range(60):
        driver.run(1)
        assert driver.phase != 'PINNED' and set(still) <= set(stuck(driver))
    if osd != spare:
        cluster.revive(osd)
    driver.run_to('DONE')
    assert set(still) <= set(cluster.remapped())


@pytest.mark.parametrize('failover', [False, True])
@pytest.mark.parametrize('verb', ['pin', 'resume', 'prepare'])
def test_pins_that_are_requested_again_while_an_osd_is_down_do_not_wait_for_them(
        verb: str, failover: bool) -> None:
    """That CRUSH has no place for them was known before the OSD was down."""
    gaps = {'2.%x' % seed: [seed % 3] for seed in range(10)}
    # PGs that only become so by their release, while the OSD is down, count as unpinnable.
    driver = expanding(gaps, replace(OPTIONS, max_unpinnable_ratio=0.5), spares=1)
    cluster = driver.cluster
    still = stuck(driver)
    assert len(still) > 2
    if verb != 'pin':
        driver.ask('abort')
        driver.run_to('ABORTED')
    cluster.take_down(spare_of(driver))
    driver.run(8)
    if failover:
        driver.restart()
        driver.run(2)
    if verb == 'prepare':
        driver.ask('prepare', accept=RISKS)
        driver.run_to('PREPARED')
        driver.run(3)
        driver.ask('pin')
    else:
        driver.ask(verb)
    driver.run_to('PINNED')
    assert stuck(driver) == still
    if verb != 'resume':
        driver.ask('start')
    driver.run_to('DONE')
    assert set(still) <= set(cluster.remapped()) and not cluster.entries()


@pytest.mark.parametrize('failover', [False, True])
def test_those_that_arrive_while_an_osd_is_down_are_known_once_it_is_back(failover: bool) -> None:
    """Until then they may only lack that OSD."""
    gaps = {'2.%x' % seed: [seed % 3] for seed in range(10)}
    driver = expanding(gaps, replace(OPTIONS, max_unpinnable_ratio=0.5, max_pgs_in_flight=1),
                       spares=1)
    cluster, before = driver.cluster, stuck(driver)
    driver.ask('start')
    cluster.take_down(spare_of(driver))
    driver.run_until(lambda: len(unpinnable(driver)) > len(before))
    if failover:
        driver.restart()
        driver.run(2)
    arrived, = set(unpinnable(driver)) - set(before)
    assert stuck(driver) == before
    cluster.revive(spare_of(driver))
    driver.run(2)
    assert driver.phase == 'RELEASING' and stuck(driver) == sorted([*before, arrived])
    driver.run_to('DONE')
    assert stuck(driver) == sorted(gaps)


def test_those_that_lack_an_osd_in_maintenance_are_no_alarm() -> None:
    """PGs that arrive while a host is down are remapped only because they lack its OSD."""
    cluster = IncompleteCluster(hosts=6, pgs=32, osds_per_host=2)
    cluster.add_osds(2, 0.0)
    driver = Driver(cluster, replace(OPTIONS, max_pgs_in_flight=4))
    driver.run(3)
    driver.order('expand', weight='1.0')
    driver.run_until(lambda: driver.status.get('released', 0) >= 9)
    host = [osd for osd, toy in cluster.toys.items() if toy.domain == 1]
    for osd in host:
        cluster.take_down(osd)  # in, since noout is set
    for _ in range(30):
        driver.run(1)
        assert not [code for code in cluster.checks if code.startswith('PERFGUARD')]
    assert cluster.remapped() and not driver.status['in_flight'] and not stuck(driver)
    for osd in host:
        cluster.revive(osd)
    driver.run_to('DONE', 600)
    assert cluster.clean() and not stuck(driver)


def test_an_abort_counts_only_those_that_still_have_no_place() -> None:
    driver = expanding({'2.2': [2]})
    cluster = driver.cluster
    driver.ask('abort')
    driver.run_to('ABORTED')
    driver.run(3)
    assert stuck(driver) == ['2.2']
    assert isinstance(cluster, IncompleteCluster)
    cluster.give_up({})
    driver.run(3)
    assert not stuck(driver)


@pytest.mark.parametrize('phase', ['PINNED', 'RELEASING'])
def test_finish_does_not_wait_for_them(phase: str) -> None:
    driver = expanding({'2.0': [2], '2.1': [0], '2.2': [1]},
                       replace(OPTIONS, max_unpinnable_ratio=0.5))
    if phase == 'RELEASING':
        driver.ask('start')
        driver.run_until(lambda: driver.status['released'] > 0)
    driver.ask('finish', keep=True)
    driver.run_to('DONE')
    assert driver.cluster.remapped()
    ended(driver)


def test_an_abort_gives_norebalance_back_where_nothing_would_move() -> None:
    driver = expanding({'2.2': [2]})
    assert stuck(driver) == ['2.2']
    driver.ask('abort')
    driver.run_to('ABORTED')
    driver.run(10)
    assert 'norebalance' not in driver.cluster.flags and driver.cluster.remapped() == ['2.2']
    assert not driver.cluster.moved
    driver.ask('finish', keep=True)
    driver.run_to('DONE')


def test_an_abort_pins_pgs_that_would_move_to_an_osd_that_is_down() -> None:
    """They would all move once it is back."""
    driver = Driver()
    driver.ask('prepare')
    driver.run_to('PREPARED')
    cluster = driver.cluster
    new = cluster.expand()
    driver.run_until(lambda: bool(cluster.remapped()))
    for osd in new:
        cluster.take_down(osd)
    driver.ask('abort')
    driver.run_to('ABORTED')
    driver.run(5)
    assert not cluster.remapped() and 'norebalance' not in cluster.flags
    for osd in new:
        cluster.revive(osd)
    driver.run(20)
    assert not cluster.moved


@pytest.mark.parametrize('failover', [False, True])
def test_an_abort_needs_no_norebalance_for_them_while_an_unrelated_osd_is_down(
        failover: bool) -> None:
    """CRUSH may have a place for them, so they are pinned at first."""
    cluster = IncompleteCluster()
    cluster.add_osds(1, 0.0)  # it serves no PG
    spare = max(cluster.toys)
    driver = Driver(cluster, OPTIONS)
    driver.ask('prepare')
    driver.run_to('PREPARED')
    cluster.gaps = {'2.2': [2]}
    cluster.add_osds(3, 1.0)
    driver.run_until(lambda: bool(cluster.remapped()))
    cluster.take_down(spare)
    driver.ask('pin')
    driver.run_to('PINNED')
    driver.ask('start')
    driver.run_until(lambda: driver.status['released'] > 8)
    driver.ask('abort')
    driver.run_to('ABORTED')
    assert 'norebalance' not in cluster.flags
    cluster.revive(spare)
    if failover:
        driver.restart()
    driver.run(30)
    assert 'norebalance' not in cluster.flags and set(cluster.remapped()) <= {'2.2'}


@pytest.mark.parametrize('change', ['tunables', 'expansion'])
def test_auto_expand_does_not_take_later_moves_for_those_of_a_change_beside_them(
        change: str) -> None:
    cluster = IncompleteCluster()
    cluster.give_up({'2.0': [2]})
    cluster.tick(5.0)
    driver = Driver(cluster, replace(OPTIONS, auto_expand=True, auto_expand_settle=2.0,
                                     auto_expand_ratio=0.05))
    driver.run(10)
    cluster.change_tunables()  # no PG moves
    driver.run(60)
    assert driver.phase == 'IDLE' and cluster.remapped() == ['2.0']
    if change == 'expansion':
        cluster.add_osds(3, 1.0)
        driver.run(10)
        assert driver.status['trigger'] == 'auto'
        return
    for pgid in ('1.1', '1.2', '1.3', '1.4'):  # as the balancer does
        up = cluster.pg[pgid].up
        cluster.set_upmap(pgid, [(up[0], next(osd for osd in cluster.toys if osd not in up))])
    driver.run(10)
    assert driver.phase == 'IDLE' and len(cluster.moved) == 4


def test_no_campaign_is_proposed_for_them() -> None:
    cluster = IncompleteCluster()
    driver = Driver(cluster)
    cluster.give_up({'2.2': [2]})
    driver.run(8)
    assert cluster.remapped() == ['2.2'] and codes(driver.status) == ['NO_CAMPAIGN']
    cluster.set_raw('2.3', [*cluster.pg['2.3'].data[:2], 6])
    driver.run_until(lambda: len(cluster.remapped()) == 2)
    driver.turn()
    assert codes(driver.status) == ['REMAPPED']
    assert driver.status['reasons'][0].startswith('1 PG is remapped')


def test_a_flight_whose_target_is_down_for_a_while_is_not_given_up() -> None:
    driver = Driver(FakeCluster(backfill_seconds=30.0), OPTIONS)
    driver.to_releasing()
    cluster = driver.cluster
    driver.run_until(lambda: bool([pgid for pgid in cluster.remapped() if pgid[0] == '2']))
    campaign = driver.loop.rebalance.campaign
    pgid = next(pgid for pgid in cluster.remapped() if pgid[0] == '2')
    target = campaign.flights.in_flight[pgid].targets[0]
    cluster.take_down(target)
    driver.run(20)
    campaign = driver.loop.rebalance.campaign
    assert NO_OSD in cluster.pg[pgid].up
    assert pgid in campaign.flights.in_flight
    cluster.revive(target)
    driver.run_to('DONE')
    assert cluster.clean() and [one.pgid for one in cluster.moved].count(pgid) == 1


@pytest.mark.parametrize('options', [OPTIONS, BALANCED])
def test_crush_that_gives_up_on_pgs_in_mid_campaign_holds_nothing(options: Any) -> None:
    """Pinned by pairs or by a vector, or in flight. No command names an OSD that is none."""
    every = ['2.%x' % seed for seed in range(12)]
    driver = expanding({}, replace(options, max_unpinnable_ratio=0.5, max_pgs_in_flight=3),
                       swapped=every[1::2])
    cluster = driver.cluster
    assert isinstance(cluster, IncompleteCluster)
    assert any(pin.entry.vector for pin in driver.loop.rebalance.pins.values())
    cluster.backfill_seconds = 20.0
    driver.ask('start')
    driver.run_until(lambda: len(cluster.remapped()) == 3)
    cluster.swapped = every[1::4]
    cluster.give_up({pgid: [place % 3] for place, pgid in enumerate(every)})
    driver.run_to('DONE', 900)
    assert not [command for command in cluster.sent if NO_OSD in command.get('id', ())]
    ended(driver)


def test_sets_that_are_complete_again_are_pinned(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where there are so many that they are not looked at with each OSDMap."""
    monkeypatch.setattr(pinning, 'PLANNED_AGAIN', 2)
    gaps = {'2.%x' % seed: [seed % 3] for seed in range(10)}
    driver = expanding(gaps)
    cluster = driver.cluster
    assert isinstance(cluster, IncompleteCluster) and len(stuck(driver)) > 2
    cluster.give_up({})
    driver.run_until(lambda: not cluster.remapped())
    assert not unpinnable(driver) and not cluster.moved
    driver.ask('start')
    driver.run_to('DONE')
    assert cluster.clean()


# ---- before the change

def emptying() -> Driver:
    """CRUSH will give up on some PGs once osd.0 is drained."""
    return Driver(IncompleteCluster(hosts=10, only_with={0: 0.0001}))


def given_up(driver: Driver, pool: int, osd: int = 0) -> str:
    """A PG with a shard on the OSD, for which CRUSH will find no other."""
    cluster = driver.cluster
    assert isinstance(cluster, IncompleteCluster)
    pgid = next(pgid for pgid, pg in cluster.pg.items()
                if osd in pg.data and pool_of(pgid) == pool)
    cluster.gaps = {pgid: [cluster.pg[pgid].data.index(osd)]}
    return pgid


@pytest.mark.parametrize('pool', [1, 2])
def test_a_drain_with_which_crush_gives_up_on_pgs_is_refused(pool: int) -> None:
    driver = emptying()
    pgid = given_up(driver, pool)
    shown = driver.order('drain', 'osd.0', dry_run=True)
    assert shown['incomplete_pgs'] == 1 and pgid in ' '.join(shown['warnings'])
    assert INCOMPLETE.as_json(pgid) in shown['unpinnable']
    with pytest.raises(Refused, match='too few OSDs for 1 PG, such as PG %s:' % pgid) as refused:
        driver.order('drain', 'osd.0')
    assert refused.value.errno == errno.EPERM and 'TOO_FEW_OSDS' in str(refused.value)
    assert driver.phase == 'IDLE' and not driver.cluster.sent
    assert driver.order('drain', 'osd.0', accept=RISKS)['incomplete_pgs'] == 1
    driver.run_to('DONE')
    assert driver.cluster.remapped() == [pgid] and 0 in driver.cluster.pg[pgid].data
    assert sum(0 in pg.data for pg in driver.cluster.pg.values()) == 1


def test_a_pg_that_is_released_to_too_few_osds_is_counted() -> None:
    """Its vector keeps it in place until then."""
    driver = emptying()
    pgid, cluster = given_up(driver, 2), driver.cluster
    assert isinstance(cluster, IncompleteCluster)
    vector, cluster.swapped = list(cluster.pg[pgid].data), [pgid]
    cluster.pg[pgid].mon.put_vector(vector)
    cluster.place()
    driver.run(3)
    assert not cluster.remapped() and cluster.pg[pgid].mon.stored.vector == vector
    shown = driver.order('drain', 'osd.0', dry_run=True)
    assert shown['incomplete_pgs'] == 1 and not shown['unpinnable']


def test_pgs_that_were_so_before_refuse_no_change() -> None:
    driver = emptying()
    pgid, cluster = given_up(driver, 2), driver.cluster
    assert isinstance(cluster, IncompleteCluster)
    cluster.only_with = None
    cluster.give_up(cluster.gaps)
    cluster.tick(5.0)
    driver.run(3)
    assert driver.order('drain', 'osd.0')['incomplete_pgs'] == 0
    driver.run_to('DONE')
    assert cluster.remapped() == [pgid]


def test_osds_that_get_a_weight_are_filled_although_crush_gives_up_on_pgs() -> None:
    """Else the new device of an OSD that was replaced would wait for ever."""
    driver = emptying()
    driver.order('drain', 'osd.0')
    driver.run_to('DONE')
    pgid, cluster = given_up(driver, 2, osd=1), driver.cluster
    assert isinstance(cluster, IncompleteCluster)
    cluster.only_with = {0: 1.0}
    shown = driver.order('undrain', 'osd.0')
    assert shown['incomplete_pgs'] == 1 and pgid in ' '.join(shown['warnings'])
    driver.run_to('DONE')
    assert cluster.remapped() == [pgid] and any(0 in pg.data for pg in cluster.pg.values())


def test_a_map_with_which_crush_gives_up_on_pgs_is_refused() -> None:
    driver = emptying()
    pgid = given_up(driver, 2)
    weights = {**dict.fromkeys(map(str, range(10)), 1.0), '0': 0.0001}
    with pytest.raises(Refused, match='such as PG %s:' % pgid):
        driver.order('crushmap', crush_map=json.dumps(weights).encode())


def test_a_new_device_is_filled_once_although_crush_gives_up_on_a_pg_of_it() -> None:
    """The PG is remapped for ever, with the device in its up set."""
    cluster = IncompleteCluster(hosts=10)
    here = {pgid: pg.data for pgid, pg in cluster.pg.items()}
    pgid = next(pgid for pgid, osds in here.items() if pgid[0] == '2' and osds[0] == 0)
    driver = Driver(cluster)
    driver.order(REPLACE, 'osd.0')
    driver.run_to('DONE')
    cluster.gaps, cluster.only_with = {pgid: [1]}, {0: 1.0}
    cluster.destroy(0)
    driver.run(45)
    cluster.create_again(0)
    driver.run_until(lambda: driver.status['id'] == 2)
    driver.run_to('DONE')
    assert cluster.remapped() == [pgid] and 0 in cluster.pg[pgid].up
    driver.run(200)
    assert driver.status['id'] == 2 and driver.phase == 'DONE'
    assert driver.order(DRAINS, dry_run=True)['drains'] == []


def gaps_of_crush(driver: Driver) -> None:
    cluster: Any = driver.cluster
    cluster.gaps = {'2.1': [0, 1], '1.1': [0], '1.2': [2]}
    cluster.add_osds(3, 1.0)


def lost_osd(driver: Driver) -> None:
    cluster: Any = driver.cluster
    cluster.take_down(5)
    cluster.add_osds(3, 1.0)
    driver.run(5)
    cluster.revive(5)


def refusing_mons(driver: Driver) -> None:
    cluster: Any = driver.cluster
    cluster.refuse = {'osd pg-upmap': 'EINVAL'}
    cluster.swapped = ['2.1', '2.2']
    cluster.add_osds(3, 1.0)


@pytest.mark.parametrize('trouble', [gaps_of_crush, lost_osd, refusing_mons])
def test_no_decision_depends_on_a_text(trouble: Callable[[Driver], None],
                                       monkeypatch: pytest.MonkeyPatch) -> None:
    def played() -> Tuple[List[Any], Set[str]]:
        driver = Driver(IncompleteCluster(), replace(OPTIONS, max_unpinnable_ratio=0.5))
        driver.ask('prepare')
        driver.run_to('PREPARED')
        trouble(driver)
        driver.run_until(lambda: bool(driver.cluster.remapped()))
        driver.ask('pin')
        driver.run_to('PINNED')
        found = {why.code.value for why in unpinnable(driver).values()}
        driver.restart()
        driver.turn()
        driver.ask('start')
        driver.run_to('DONE', turns=600)
        return driver.cluster.sent, found

    with_texts = played()
    monkeypatch.setattr(Reason, '__init__', blanked(Reason.__init__, 'text'))
    monkeypatch.setattr(Event, '__init__', blanked(Event.__init__, 'what', 'why'))
    monkeypatch.setattr(Unpinnable, 'reason', property(lambda why: '?'))
    assert played() == with_texts
    assert with_texts[1] or trouble is lost_osd


def blanked(init: Any, *parts: str) -> Any:
    def blank(made: Any, *args: Any, **kwargs: Any) -> None:
        init(made, *args, **kwargs)
        for part in parts:
            object.__setattr__(made, part, '?')
    return blank
