# SPDX-License-Identifier: LGPL-2.1-or-later
"""When the moves of releases are computed again, and what they add up to."""
from dataclasses import replace
from typing import Any, Collection, Dict, Mapping, Optional, Sequence

import pytest

from perfguard.cluster.types import (NO_OSD, Osd, OsdMap, OsdSet, PgCounts, Placement, Pool,
                                     Signals, UpmapEntry)
from perfguard.observation import Observation, Settings
from perfguard.rebalance import release_moves
from perfguard.rebalance.campaign import NO_CAMPAIGN
from perfguard.rebalance.moves import Move, MoveIndex
from perfguard.rebalance.pin_index import PinIndex
from perfguard.rebalance.release_moves import (
    PLAN_SECONDS, ReleaseMoves, _is_complete, _moves_of_remapped, _placing, preview)
from perfguard.rebalance.types import Flight, Phase, PinRecord

from ..fakes.campaigns import campaign_of
from ..fakes.driver import OPTIONS
from .test_orders import crush

POOL = Pool(7, 'p', False, 3, 2, 0, 32, 32, 32)
PLACE = (3, 1, 2)
ENTRY = UpmapEntry(((0, 3),))
PIN = PinRecord(UpmapEntry(), ENTRY, goal=UpmapEntry())


def seen(now: float = 1000.0, pinned: Collection[str] = ('7.1', '7.2'), epoch: int = 5,
         pool: Pool = POOL, version: int = 1, down: Collection[int] = (), reweight: float = 1.0,
         count: int = 6,
         remapped: Sequence[str] = (), acting: OsdSet = PLACE, **places: OsdSet) -> Observation:
    """PGs are on OSDs 3, 1 and 2, unless `places` ("pg1": that of PG 7.1) says otherwise."""
    osds = {osd: Osd(osd, osd not in down, reweight if osd == 5 else 1.0) for osd in range(count)}
    osdmap = OsdMap(epoch, frozenset(), {7: pool}, osds, dict.fromkeys(pinned, ENTRY.items), {},
                    dict.fromkeys(remapped, acting))

    def placement(pgid: str) -> Optional[Placement]:
        up = places.get('pg' + pgid[2:], PLACE)
        return Placement(up, acting if pgid in remapped else up) if up else None

    return Observation(now, Signals(PgCounts(), pool_bytes={7: 3200}), Settings(osdmap, None),
                       placement, crush({osd: float(version) for osd in range(6)}))


class Moves(ReleaseMoves):
    def __init__(self, pins: Mapping[str, PinRecord]) -> None:
        super().__init__()
        self.pins = PinIndex(pins)

    def since(self, observation: Observation, pinning: bool = False) -> Dict[str, float]:
        """When the moves were computed, after a turn."""
        self.update_moves(self.pins, observation, pinning)
        return {pgid: move.since for pgid, move in self.moves.items()}

    @property
    def displaced(self) -> Dict[str, float]:
        return {pgid: move.displaced for pgid, move in self.moves.items()}


TWO = {'7.1': PIN, '7.2': PIN}
FIRST = {'7.1': 1000.0, '7.2': 1000.0}
AGAIN = {'7.1': 1060.0, '7.2': 1060.0}


def test_the_move_of_a_release() -> None:
    moves = Moves(TWO)
    assert moves.since(seen()) == FIRST
    move = moves.moves['7.1']
    assert (move.sources, move.targets, move.bytes, move.here) == ((3,), (0,), 100, PLACE)


@pytest.mark.parametrize('change, again', [
    ({}, FIRST), ({'epoch': 6}, FIRST), ({'version': 2}, AGAIN), ({'reweight': 0.5}, AGAIN),
    ({'pool': replace(POOL, size=2)}, AGAIN), ({'pool': replace(POOL, pgp_num=16)}, AGAIN),
    ({'pool': replace(POOL, name='q')}, FIRST), ({'count': 7}, FIRST)])
def test_what_computes_moves_again(change: Dict[str, Any], again: Mapping[str, float]) -> None:
    moves = Moves(TWO)
    moves.since(seen())
    assert moves.since(seen(1060.0, **change)) == again
    # Once.
    assert moves.since(seen(1090.0, **change)) == again
    if 'reweight' in change:
        assert moves.since(seen(1120.0, reweight=0.25)) == {'7.1': 1120.0, '7.2': 1120.0}


@pytest.mark.parametrize('pool', [
    replace(POOL, pg_num=16), replace(POOL, pg_num_pending=16), replace(POOL, pgp_num=16),
    replace(POOL, size=2), replace(POOL, crush_rule=1)])
def test_what_places_the_pgs_of_a_pool(pool: Pool) -> None:
    assert _placing(pool) != _placing(POOL) == _placing(replace(POOL, min_size=1, name='q'))


def test_a_change_of_crush_by_the_campaign_computes_the_last_moves_again() -> None:
    moves = Moves(TWO)
    assert moves.since(seen(), pinning=True) == FIRST
    # The pins may have been committed before the change.
    assert moves.since(seen(1060.0, version=2), pinning=True) == AGAIN
    moves.pins._put('7.3', PIN)
    three = '7.1', '7.2', '7.3'
    assert moves.since(seen(1090.0, three, version=2), pinning=True) == {**AGAIN, '7.3': 1090.0}
    assert moves.since(seen(1120.0, three, version=3), pinning=True) == {**AGAIN, '7.3': 1120.0}
    assert moves.since(seen(1150.0, three, version=4), pinning=True) == {**AGAIN, '7.3': 1120.0}


def test_pins_that_change_and_pins_that_are_not_in_force() -> None:
    moves = Moves(TWO)
    assert moves.since(seen(pinned=['7.1'])) == {'7.1': 1000.0}
    # The mons have it by now; another one became an ordinary upmap, or is gone.
    assert moves.since(seen(1060.0)) == {'7.1': 1000.0, '7.2': 1060.0}
    assert moves.since(seen(1070.0, pinned=['7.2'], version=2)) == {'7.2': 1070.0}
    assert moves.since(seen(1080.0, version=2)) == {'7.1': 1080.0, '7.2': 1070.0}
    assert moves.since(seen(1060.0)) == AGAIN
    moves.pins._put('7.1', replace(PIN, goal=ENTRY))
    assert moves.since(seen(1090.0)) == {'7.2': 1060.0}
    moves.pins._put('7.1', PIN)
    moves.pins._drop('7.2')
    assert moves.since(seen(1120.0)) == {'7.1': 1120.0}
    # A PG that does not exist has no move.
    moves.pins._put('7.3', PIN)
    assert moves.since(seen(1150.0, ['7.1', '7.3'], pg3=())) == {'7.1': 1120.0}
    assert moves.since(seen(1180.0, ['7.1', '7.3'])) == {'7.1': 1120.0, '7.3': 1180.0}


def test_osds_that_are_out_are_no_place_to_stay() -> None:
    """OSD 5, to which the upmap leads, is out: without the upmap, OSD 0 has the PG."""
    moves = Moves({'7.1': PinRecord(ENTRY, UpmapEntry(), goal=UpmapEntry(((3, 5),)))})
    found = {}
    for reweight in (1.0, 0.0):
        moves.update_moves(moves.pins, seen(pinned=(), reweight=reweight))
        found[reweight] = moves.moves['7.1'].targets
    assert found == {1.0: (5,), 0.0: ()}


@pytest.mark.parametrize('here, before, after, again', [
    # Where PGs are complete, nothing depends on the OSDs that are down.
    (PLACE, (4,), (), False), ((3, 1, NO_OSD), (4,), (), True), ((3, 1), (4,), (0,), True),
    ((3, 1), (4,), (4,), False), ((3, 1), (), (), False), ((3, 1), (), (4,), True)])
def test_moves_of_incomplete_pgs_depend_on_the_osds_that_are_down(
        here: OsdSet, before: Sequence[int], after: Sequence[int], again: bool) -> None:
    moves = Moves(TWO)
    first = moves.since(seen(down=before, pg1=here))
    assert first == FIRST
    found = moves.since(seen(1060.0, epoch=6, down=after, pg1=here))
    assert found == {'7.1': 1060.0 if again else 1000.0, '7.2': 1000.0}
    # The same OSDMap is not looked at again.
    assert moves.since(seen(1090.0, epoch=6, down=before, pg1=here)) == found


def test_since_when_a_pg_is_displaced() -> None:
    moves = Moves(TWO)
    moves.since(seen())
    # They may have been displaced before this mgr became active.
    assert moves.displaced == FIRST
    moves.since(seen(1060.0, version=2, pg1=(3, 1, 4)))
    assert moves.displaced == {'7.1': 1060.0, '7.2': 1000.0}
    # While its pin is not in force, a PG is compared with where it was before.
    for now, pinned in ((1090.0, ['7.2']), (1120.0, ['7.2'])):
        moves.since(seen(now, pinned, version=int(now), pg1=PLACE))
    moves.since(seen(1150.0, version=1120, pg1=(3, 1, 4)))
    assert moves.displaced == {'7.1': 1060.0, '7.2': 1000.0}
    moves.since(seen(1180.0, version=1120, pool=replace(POOL, pgp_num=16), pg1=(3, 1, 5)))
    assert moves.displaced == {'7.1': 1180.0, '7.2': 1000.0}
    # Another pin of the same PG begins anew.
    moves.pins._drop('7.1')
    moves.since(seen(1210.0, version=1120, pool=replace(POOL, pgp_num=16), pg1=(3, 1, 5)))
    moves.pins._put('7.1', PIN)
    moves.since(seen(1240.0, version=1120, pool=replace(POOL, pgp_num=16), pg1=(3, 1, 5)))
    assert moves.displaced == {'7.1': 0.0, '7.2': 1000.0}
    # It may be removed before it is in force again.
    moves.since(seen(1270.0, ['7.2'], version=1121, pg1=(3, 1, 5)))
    moves.pins._drop('7.1')
    moves.since(seen(1300.0, ['7.2'], version=1121))
    moves.pins._put('7.1', PIN)
    moves.since(seen(1330.0, version=1121))
    assert moves.displaced == {'7.1': 0.0, '7.2': 1000.0}


@pytest.mark.parametrize('known, here, again', [
    (True, PLACE, False), (False, PLACE, True), (True, PLACE[:2], True)])
def test_moves_that_were_known_in_part(known: bool, here: OsdSet, again: bool) -> None:
    moves = Moves(TWO)
    moves.since(seen())
    moves.moves.put('7.1', moves.moves['7.1']._replace(targets_known=known, here=here))
    assert moves.since(seen(1060.0, epoch=6, down=[4])) == {
        '7.1': 1060.0 if again else 1000.0, '7.2': 1000.0}


def test_pgs_of_a_pool_of_unknown_size_count_as_empty() -> None:
    one = replace(POOL, pg_num=1, pg_num_pending=1)
    observation = replace(seen(pinned=['7.0'], pool=one, remapped=['7.0'], acting=(3, 1, 5)),
                          signals=Signals(PgCounts()))
    moves = Moves({'7.0': PIN})
    moves.since(observation)
    assert moves.moves['7.0'].bytes == _moves_of_remapped(['7.0'], observation)['7.0'].bytes == 0


# ---- the movement

ACTIVE = campaign_of(1, Phase.RELEASING, 900.0)
MOVE = Move('7.1', (3,), (0,), 3, 100)


def test_the_movement_of_what_is_pinned_and_of_what_is_remapped() -> None:
    index = MoveIndex({'7.1': MOVE, '7.2': MOVE._replace(pgid='7.2', bytes=10)})
    unpinned = {'7.3': MOVE._replace(pgid='7.3', bytes=1)}
    assert preview(ACTIVE, index, unpinned, OPTIONS).bytes == 111
    flying = campaign_of(1, Phase.RELEASING, 900.0, in_flight={
        '7.1': Flight(0.0, ENTRY), '7.3': Flight(0.0, ENTRY)})
    assert preview(flying, index, unpinned, OPTIONS).bytes == 10
    # One that is remapped is counted as it moves now.
    assert preview(ACTIVE, index, {'7.1': MOVE._replace(bytes=5)}, OPTIONS).bytes == 15


def updated(moves: Moves, observation: Observation, campaign: Any = ACTIVE) -> int:
    moves.update_moves(moves.pins, observation)
    moves.update_movement(campaign, moves.pins, observation, OPTIONS)
    return moves.movement.pgs


def test_the_movement_of_a_turn() -> None:
    moves = Moves(TWO)
    assert moves.movement.pgs == moves.moving_count == 0
    assert updated(moves, seen()) == 2
    # Of an OSDMap once, unless the pins lead elsewhere.
    moves.pins._drop('7.1')
    assert updated(moves, seen(1001.0)) == 2
    moves.outdate_movement()
    assert updated(moves, seen(1002.0)) == 1
    assert updated(moves, seen(1003.0, epoch=6), NO_CAMPAIGN) == 0


def test_the_remapped_pgs_without_a_campaign(monkeypatch: pytest.MonkeyPatch) -> None:
    moves = Moves(TWO)
    here = seen(remapped=['7.1', '7.3', '7.4', '7.5'], acting=(3, 1, 5))
    flying = campaign_of(1, Phase.RELEASING, 900.0, in_flight={'7.4': Flight(0.0, ENTRY)})
    assert updated(moves, here, flying) == 4 and moves.moving_count == 2
    evacuated = replace(here, evacuation={'7.5': object()})
    moves.outdate_movement()
    assert updated(moves, evacuated, flying) == 4 and moves.moving_count == 1
    # One that has no place to move to, and those that recover.
    moves.outdate_movement()
    assert updated(moves, seen(remapped=['7.3', '7.5'], acting=(3, 1, 2))) == 4
    assert moves.moving_count == 0
    for acting in ((3, 1), (3, 1, NO_OSD)):
        moves.outdate_movement()
        updated(moves, seen(remapped=['7.3', '7.5'], acting=acting))
        assert moves.moving_count == 0
    # Many are not previewed, and count.
    for most, number in ((4, 4), (3, 2)):
        monkeypatch.setattr(release_moves, 'PREVIEW_PGS', most)
        moves.outdate_movement()
        assert updated(moves, seen(remapped=['7.3', '7.4', '7.5', '7.6'], acting=(3, 1, 5)),
                       NO_CAMPAIGN) == (4 if most == 4 else 0)
        assert moves.moving_count == 4


@pytest.mark.parametrize('most, seconds, again', [
    (2, 0.0, True), (1, 0.0, False), (1, PLAN_SECONDS - 1.0, False), (1, PLAN_SECONDS, True),
    (1, -0.5, True)])
def test_with_many_pins_the_movement_is_computed_less_often(
        most: int, seconds: float, again: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """At once if the clock was set back."""
    monkeypatch.setattr(release_moves, 'PREVIEW_PGS', most)
    moves = Moves({**TWO, '7.3': PIN})
    three = '7.1', '7.2', '7.3'
    assert updated(moves, seen(pinned=three)) == 3
    moves.pins._drop('7.3')
    assert updated(moves, seen(1000.0 + seconds, three, epoch=6)) == (2 if again else 3)


def test_pgs_of_pools_that_are_gone_and_pgs_that_are_gone() -> None:
    assert _is_complete(None, PLACE) is False and _is_complete(POOL, PLACE) is True
    assert _is_complete(POOL, PLACE[:2]) is False
    found = _moves_of_remapped(['7.3', '7.4'], seen(remapped=['7.3', '7.4'], acting=(3, 1, 5),
                                                    pg4=()))
    assert found.keys() == {'7.3'}
    assert (found['7.3'].sources, found['7.3'].targets, found['7.3'].bytes) == ((5,), (2,), 100)
