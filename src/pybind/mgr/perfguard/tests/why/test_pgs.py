# SPDX-License-Identifier: LGPL-2.1-or-later
"""Each cause for which a PG does not move, provoked one at a time."""
from dataclasses import replace
from typing import Any, List, Mapping

import pytest

from perfguard.cluster.types import NO_OSD, Osd, Placement, UpmapEntry
from perfguard.errors import Code, Reason
from perfguard.rebalance.campaign import Campaign
from perfguard.rebalance.moves import Move, Obstacle
from perfguard.rebalance.types import Flight, Phase, PinRecord, Sent
from perfguard.upmap.pins import Unpinnable
from perfguard.why.causes import Cause, Gate
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
             pgid='1.b', move=Move('1.b', (), (), 0, 0, targets_known=False)), Code.GOES_ALONE),
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


OF_7 = {'phase': 'RELEASING', 'campaign': 7}


def stateful(*state: str, **more: Any) -> PgCase:
    return replace(IDLE, answers=PgAnswers(frozenset(state)), **more)


def of_state(code: str, text: str, state: str) -> Cause:
    return Cause(code, text, {'state': state, 'acting': [0, 1, 2]})


@pytest.mark.parametrize('case, cause', [
    (IDLE, Cause(Code.IN_PLACE, 'the PG is where CRUSH and its upmaps place it: there is nothing '
                 'to move', {'up': [0, 1, 2]})),
    # Pinned.
    (pinned(Phase.PINNING), Cause(Code.PINNED, 'it is pinned, and campaign 7 is PINNING',
                                  {'phase': 'PINNING', 'campaign': 7})),
    # As after a failover, before the first turn.
    (pinned(Phase.HOLDING), Cause(Code.PINNED, 'it is pinned, and campaign 7 is HOLDING',
                                  {'phase': 'HOLDING', 'campaign': 7})),
    (pinned(Phase.HOLDING, Code.PAUSED), Cause(
        Code.PAUSED, 'because', {'phase': 'HOLDING', 'campaign': 7})),
    (replace(pinned(), campaign=campaign(Phase.RELEASING, sent={PGID: Sent(1.0)})),
     Cause(Code.PINS_SENT, 'its pin is not in the OSDMap yet', OF_7)),
    (replace(pinned(), pin=replace(PIN, goal=PIN.entry)), Cause(
        Code.KEPT, 'an ordinary upmap keeps it where it is, because the balance requires that',
        {**OF_7, 'upmap': {'items': [[8, 2]], 'vector': None}})),
    (replace(pinned(), pin=replace(PIN, entry=UpmapEntry((), HERE), goal=UpmapEntry((), HERE))),
     Cause(Code.KEPT, 'an ordinary upmap keeps it where it is, because the balance requires that',
           {**OF_7, 'upmap': {'items': [], 'vector': [0, 1, 2]}})),
    (gated(stops=(Reason(Code.SLOW_OPS, 'slow'),)), Cause(Code.SLOW_OPS, 'slow')),
    (gated(degraded=True),
     Cause(Code.DEGRADED, 'it may be degraded, and is released after recovery')),
    (gated(down=frozenset({8, 5})),
     Cause(Code.TARGET_DOWN, 'its target is down: osd.5, osd.8', {'osds': [5, 8]})),
    (gated(full=frozenset({8})),
     Cause(Code.TARGET_FULL, 'its target is too full: osd.8', {'osds': [8]})),
    (gated(pace=Reason(Code.LATENCY, 'slow writes')),
     Cause(Code.LATENCY, 'slow writes', {'in_flight': 0})),
    (gated(obstacles=(CAP,)), Cause(
        Code.CAP_BACKFILLS, 'max_backfills_target of osd.8 is at its limit: 2 of 2',
        {'option': 'max_backfills_target', 'where': 'osd.8', 'used': 2, 'limit': 2})),
    (gated(obstacles=(CAP._replace(place='', used=3),)), Cause(
        Code.CAP_BACKFILLS, 'max_backfills_target is at its limit: 3 of 2',
        {'option': 'max_backfills_target', 'where': '', 'used': 3, 'limit': 2})),
    (gated(affordable=False), Cause(
        Code.STALL_RATIO, 'the pool waits a few seconds between releases (stall_ratio)',
        {'option': 'stall_ratio'})),
    (pinned(), Cause(Code.NEXT, 'it can be released: PGs whose OSDs have less load are released '
                     'first', {'in_flight': 0})),
    (pinned(Phase.RELEASING, Code.BATCH), Cause(Code.BATCH, 'because')),
    (replace(moving(), place=Placement(HERE, HERE), remapped=False, pin=PIN, pgid='1.b',
             move=Move('1.b', (), (), 0, 0, targets_known=False)), Cause(
        Code.GOES_ALONE, 'its target is known only after the release, so it is released alone',
        {'in_flight': 1})),
    # In flight.
    (UNCONFIRMED, Cause(Code.RELEASE_SENT, 'its release was sent and is not in the OSDMap yet',
                        {'sent': 2})),
    (moving('peering', flags=frozenset({'nobackfill'})), Cause(
        Code.FOREIGN_FLAG, 'nobackfill is set, but not by perfguard: "ceph osd unset nobackfill"',
        {'flag': 'nobackfill'})),
    (moving('peering', flags=frozenset({'nobackfill'}), own_flags=frozenset({'nobackfill'})),
     Cause(Code.OWN_FLAG, 'perfguard has set nobackfill', {'flag': 'nobackfill'})),
    (moving('peering', flags=frozenset({'norebalance'}), own_flags=frozenset({'norebalance'}),
            reasons=(Reason(Code.PAUSED, 'paused'),)),
     Cause(Code.PAUSED, 'paused', {'flag': 'norebalance'})),
    (moving('backfill_toofull'), Cause(
        Code.BACKFILL_TOOFULL, 'too full for backfill: a target', {'targets': [8], 'full': []})),
    (moving('backfill_toofull', osds={osd: Osd(osd, True, 1.0, fullness='backfillfull')
                                      for osd in (2, 8)}),
     Cause(Code.BACKFILL_TOOFULL, 'too full for backfill: osd.8', {'targets': [8], 'full': [8]})),
    (moving('backfill_wait', reservations=holds(0, local=Queue(3, (), (PGID,)))), Cause(
        Code.LOCAL_RESERVATION, 'it waits for the local backfill reservation of osd.0, which allows'
        ' 3 (osd_max_backfills): none is granted',
        {'osd': 0, 'limit': 3, 'granted': [], 'waiting': 1})),
    (moving('backfill_wait', reservations=holds(8, remote=BUSY)), Cause(
        Code.REMOTE_RESERVATION, 'it waits for the remote backfill reservation of osd.8, which '
        'allows 1 (osd_max_backfills): granted to PG 1.1, 1.2',
        {'osd': 8, 'limit': 1, 'granted': ['1.1', '1.2'], 'waiting': 2})),
    (moving('backfill_wait', reservations=holds(8, local=BUSY)), Cause(
        Code.BACKFILL_WAIT, 'it waits for a backfill reservation; the OSD is not known',
        {'primary': 0, 'targets': [8], 'silent': []})),
    (moving('backfilling', options=MCLOCK), Cause(
        Code.MCLOCK, 'osd_mclock_profile of osd.0 is high_client_ops, which leaves little to '
        'backfill', {'osd': 0, **MCLOCK})),
    (moving('clean'), Cause(Code.ARRIVING, 'its backfill has not begun, or has just ended',
                            {'state': 'active+clean+remapped'})),
    (replace(moving(), answers=PgAnswers(silent=(0, 8))),
     Cause(Code.NO_ANSWER, 'osd.0, osd.8 did not answer in time', {'osds': [0, 8]})),
    # Remapped, and not the campaign's.
    (REMAPPED, Cause(Code.REMAPPED, 'it is remapped, and no campaign has pinned it',
                     {'up': [0, 1, 8], 'acting': [0, 1, 2]})),
    (replace(REMAPPED, campaign=campaign(Phase.PINNING)), Cause(
        Code.UNPINNED, 'it is remapped and still to be pinned',
        {'campaign': 7, 'phase': 'PINNING'})),
    (replace(REMAPPED, leaves=(2, 5)), Cause(
        Code.EVACUATING, 'it leaves OSDs that are to be emptied: osd.2, osd.5', {'osds': [2, 5]})),
    (replace(REMAPPED, campaign=campaign(Phase.PINNED, unpinnable={PGID: Unpinnable('no')})),
     Cause(Code.UNPINNABLE, 'it cannot be pinned: no', {'campaign': 7})),
    # The state of the PG.
    (stateful('peering'), of_state(Code.PEERING, 'it is peering', 'peering')),
    (stateful('activating'), of_state(Code.PEERING, 'it is peering', 'activating')),
    (stateful('creating'), of_state(Code.PEERING, 'it is peering', 'creating')),
    (stateful('stale', 'down'),
     of_state(Code.INACTIVE, 'it is not active: down+stale', 'down+stale')),
    (stateful('active', 'degraded'), of_state(
        Code.DEGRADED, 'it is degraded and must recover first', 'active+degraded')),
    (stateful('active', 'undersized'), of_state(
        Code.DEGRADED, 'it is degraded and must recover first', 'active+undersized')),
    (stateful('active', 'laggy'), of_state(
        Code.LAGGY, 'it is laggy: its read lease has expired', 'active+laggy')),
    (stateful('active', 'wait'), of_state(
        Code.LEASES, 'it waits for read leases to expire', 'active+wait')),
    (stateful('active', 'scrubbing'), of_state(
        Code.SCRUB, 'it is being scrubbed: the objects under scrub are copied afterwards',
        'active+scrubbing')),
    (replace(IDLE, place=Placement((), ())), Cause(
        Code.INACTIVE, 'no OSD serves it', {'state': '', 'acting': []}))])
def test_the_text_and_the_evidence_of_each_cause(case: PgCase, cause: Cause) -> None:
    assert causes(case)[0] == cause


@pytest.mark.parametrize('options', [
    {**MCLOCK, 'osd_op_queue': 'wpq'}, {**MCLOCK, 'osd_mclock_profile': 'balanced'}, {}])
def test_schedulers_that_do_not_slow_a_backfill(options: Mapping[str, str]) -> None:
    assert codes(moving('backfilling', options=options)) == [Code.BACKFILLING]


def test_each_target_whose_reservation_it_waits_for_is_named() -> None:
    """Of an erasure-coded PG with a missing shard, one target is no OSD."""
    place = Placement((8, 7, NO_OSD), (0, 1, 2))
    case = replace(moving('backfill_wait', reservations={
        osd: Reservations(Queue(1), BUSY) for osd in (7, 8)}), place=place)
    assert case.targets == (8, 7)
    assert [cause.evidence['osd'] for cause in causes(case)] == [8, 7]


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


def test_nobackfill_also_stops_what_is_degraded() -> None:
    case = moving('degraded', 'backfill_wait', flags=frozenset({'nobackfill', 'norebalance'}))
    assert [cause.evidence for cause in causes(case) if cause.code == Code.FOREIGN_FLAG] == [
        {'flag': 'nobackfill'}]
