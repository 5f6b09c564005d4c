# SPDX-License-Identifier: LGPL-2.1-or-later
"""Each cause for which a PG does not move, provoked one at a time."""
from dataclasses import replace
from typing import Any, List, Mapping

import pytest

from perfguard.cluster.types import Osd, Placement, UpmapEntry
from perfguard.errors import Code, Reason
from perfguard.rebalance.campaign import Campaign
from perfguard.rebalance.moves import Move, Obstacle
from perfguard.rebalance.types import Flight, Phase, PinRecord, Sent
from perfguard.upmap.pins import Unpinnable
from perfguard.why.causes import Gate
from perfguard.why.pgs import PgAnswers, PgCase, Queue, Reservations, causes

from ..fakes.campaigns import campaign_of

PGID = '1.a'
HERE, THERE = (0, 1, 2), (0, 1, 8)
OSDS = {osd: Osd(osd, True, 1.0) for osd in range(9)}
PIN = PinRecord(UpmapEntry(), UpmapEntry(((8, 2),)))
EMPTY = Reservations(Queue(1), Queue(1))

IDLE = PgCase(PGID, Placement(HERE, HERE), False, OSDS)
REMAPPED = replace(IDLE, place=Placement(THERE, HERE), remapped=True)


def campaign(phase: Phase, **more: Any) -> Campaign:
    return campaign_of(7, phase, 1000.0, **more)


def pinned(phase: Phase = Phase.RELEASING, *reasons: str, **more: Any) -> PgCase:
    return replace(IDLE, campaign=campaign(phase), pin=PIN, move=Move(PGID, (2,), (8,), 0, 1),
                   reasons=tuple(Reason(code, 'because') for code in reasons), **more)


def gated(**more: Any) -> PgCase:
    return pinned(gate=Gate(**more))


def moving(*state: str, **more: Any) -> PgCase:
    """In flight, and its primary answers."""
    answers = PgAnswers(frozenset(('active', 'remapped', *state)), more.pop('reservations', {}),
                        more.pop('options', {}))
    flight = Flight(1000.0, UpmapEntry(), confirmed=1001.0, pin=PIN)
    return replace(REMAPPED, campaign=campaign(Phase.RELEASING, in_flight={PGID: flight}),
                   pin=PIN, answers=answers, **more)


def holds(osd: int, **queues: Queue) -> Mapping[int, Reservations]:
    return {0: EMPTY, 8: EMPTY, osd: replace(EMPTY, **queues)}


BUSY = Queue(1, ('1.1', '1.2'), (PGID, '1.c'))
UNCONFIRMED = replace(REMAPPED, campaign=campaign(
    Phase.RELEASING, in_flight={PGID: Flight(1000.0, UpmapEntry(), sent=2)}))
CAP = Obstacle(Code.CAP_BACKFILLS, 'max_backfills_target', 'osd.8', 2, 2)
MCLOCK = {'osd_op_queue': 'mclock_scheduler', 'osd_mclock_profile': 'high_client_ops'}

CASES = [
    (IDLE, Code.IN_PLACE),
    # Pinned.
    (replace(pinned(), campaign=campaign(Phase.PINNING, sent={PGID: Sent(1.0)})),
     Code.PINS_SENT),
    (replace(pinned(), pin=replace(PIN, goal=PIN.entry)), Code.KEPT),
    (pinned(Phase.PINNED, Code.AWAITS_START), Code.AWAITS_START),
    (pinned(Phase.PINNING), Code.PINNED),
    (pinned(Phase.HOLDING, Code.PAUSED), Code.PAUSED),
    (pinned(Phase.HOLDING, Code.WINDOW_CLOSED), Code.WINDOW_CLOSED),
    (pinned(Phase.HOLDING, Code.FOREIGN_FLAG), Code.FOREIGN_FLAG),
    (pinned(Phase.HOLDING, Code.HALTED), Code.HALTED),
    (gated(stops=(Reason(Code.DEGRADED, 'degraded on osd.8'),)), Code.DEGRADED),
    (gated(degraded=True), Code.DEGRADED),
    (gated(down=frozenset({8})), Code.TARGET_DOWN),
    (gated(full=frozenset({8})), Code.TARGET_FULL),
    (gated(pace=Reason(Code.LATENCY, 'write latency')), Code.LATENCY),
    (gated(obstacles=(CAP,)), Code.CAP_BACKFILLS),
    (gated(affordable=False), Code.STALL_RATIO),
    (pinned(Phase.RELEASING, Code.LATENCY_OK, Code.PEERING), Code.PEERING),
    (pinned(Phase.RELEASING, Code.LATENCY_OK), Code.NEXT),
    (replace(moving(), place=Placement(HERE, HERE), remapped=False, pin=PIN,
             pgid='1.b', move=Move('1.b', (), (), 0, 0, known=False)), Code.GOES_ALONE),
    # In flight.
    (UNCONFIRMED, Code.RELEASE_SENT),
    (moving('backfilling'), Code.BACKFILLING),
    (moving('backfilling', options=MCLOCK), Code.MCLOCK),
    (moving('backfilling', flags=frozenset({'nobackfill'})), Code.FOREIGN_FLAG),
    (moving('backfilling', flags=frozenset({'norebalance'}),
            own_flags=frozenset({'norebalance'})), Code.OWN_FLAG),
    (moving('backfilling', flags=frozenset({'norebalance'}), own_flags=frozenset({'norebalance'}),
            reasons=(Reason(Code.PAUSED, 'paused'),)), Code.PAUSED),
    (moving('degraded', 'recovery_wait', flags=frozenset({'norebalance'})), Code.DEGRADED),
    (moving('backfill_toofull'), Code.BACKFILL_TOOFULL),
    (moving('backfill_wait', reservations=holds(0, local=BUSY)), Code.LOCAL_RESERVATION),
    (moving('backfill_wait', reservations=holds(8, remote=BUSY)), Code.REMOTE_RESERVATION),
    (moving('backfill_wait'), Code.BACKFILL_WAIT),
    (moving('peering'), Code.PEERING),
    (moving('scrubbing', 'deep'), Code.SCRUB),
    (moving('clean'), Code.ARRIVING),
    (replace(moving(), answers=PgAnswers(silent=(0,))), Code.NO_ANSWER),
    # Remapped, and not the campaign's.
    (REMAPPED, Code.REMAPPED),
    (replace(REMAPPED, campaign=campaign(Phase.PINNING)), Code.UNPINNED),
    (replace(REMAPPED, campaign=campaign(Phase.PINNING), leaves=(2,)), Code.EVACUATING),
    (replace(REMAPPED, campaign=campaign(Phase.PINNED, unpinnable={PGID: Unpinnable('no')})),
     Code.UNPINNABLE),
    # Regardless of its origin.
    (replace(IDLE, answers=PgAnswers(frozenset({'peering'}))), Code.PEERING),
    (replace(IDLE, answers=PgAnswers(frozenset({'down'}))), Code.INACTIVE),
    (replace(IDLE, place=Placement((), ()), answers=PgAnswers(silent=(-1,))), Code.INACTIVE),
    (replace(IDLE, answers=PgAnswers(silent=HERE[:1])), Code.NO_ANSWER),
    (replace(IDLE, answers=PgAnswers(frozenset({'active', 'laggy'}))), Code.LAGGY),
    (replace(IDLE, answers=PgAnswers(frozenset({'active', 'wait'}))), Code.LEASES),
    (replace(IDLE, answers=PgAnswers(frozenset({'active', 'undersized'}))), Code.DEGRADED),
]


@pytest.mark.parametrize('case, code', CASES, ids=['%d-%s' % (number, code) for number, (
    _, code) in enumerate(CASES)])
def test_the_first_cause(case: PgCase, code: str) -> None:
    found = causes(case)
    assert found[0].code == code
    assert all(cause.text for cause in found)


def test_every_cap_that_is_in_the_way_is_named_with_its_place() -> None:
    host = Obstacle(Code.CAP_BACKFILLS, 'max_backfills_host', 'host h1', 8, 8)
    first, second = causes(gated(obstacles=(CAP, host)))
    assert first.evidence == {'option': 'max_backfills_target', 'where': 'osd.8', 'used': 2,
                              'limit': 2}
    assert second.evidence['where'] == 'host h1' and 'host h1' in second.text


def test_a_reservation_names_who_has_it() -> None:
    found = causes(moving('backfill_wait', reservations=holds(8, remote=BUSY)))
    assert found[0].evidence == {'osd': 8, 'limit': 1, 'granted': ['1.1', '1.2'], 'waiting': 2}


def codes(case: PgCase) -> List[str]:
    return [cause.code for cause in causes(case)]


def test_causes_add_up() -> None:
    case = moving('backfill_wait', flags=frozenset({'nobackfill'}),
                  reservations=holds(0, local=BUSY))
    assert codes(case) == [Code.FOREIGN_FLAG, Code.LOCAL_RESERVATION]
    assert codes(gated(stops=(Reason(Code.SLOW_OPS, 'slow'),), obstacles=(CAP,),
                       affordable=False)) == [Code.SLOW_OPS, Code.CAP_BACKFILLS, Code.STALL_RATIO]


def test_norebalance_does_not_stop_what_is_degraded() -> None:
    case = moving('degraded', 'backfilling', flags=frozenset({'norebalance'}))
    assert Code.FOREIGN_FLAG not in codes(case)
