# SPDX-License-Identifier: LGPL-2.1-or-later
"""The phases of replacements, their texts, and single turns with OSDs in each phase."""
import errno
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence, Tuple

import pytest

from perfguard.cluster.orchestrator import Orchestrating
from perfguard.cluster.types import NO_OSD, Osd, OsdSet, PgCounts, Reply, Signals, Space
from perfguard.errors import Code, Refused
from perfguard.events import Event
from perfguard.observation import Observation
from perfguard.rebalance.campaign import NO_CAMPAIGN, Campaign
from perfguard.rebalance.orders import Order
from perfguard.rebalance.replacing import (CANCEL, DRAINS, EMPTIED, NO_UUID, REMOVAL_SECONDS,
                                           REPLACE, ReplaceFacts, ReplacePhase, Replacement,
                                           Replacing, created_again, ending, facts_of, given_up,
                                           is_accepted, is_emptied_by, is_kept_empty, is_filled_by,
                                           is_withheld, new_weight, next_step, on_same_drive,
                                           phase_of, record_of, osds_to_drain, osds_to_replace)
from perfguard.rebalance.types import TINY_WEIGHT, Phase
from perfguard.rebalance.weights import WeightChange
from perfguard.store import Store

from ..fakes.campaigns import campaign_of
from ..fakes.cluster import MemoryKv
from ..fakes.drafts import NOW, OSDS, THERE, draft_of
from .test_orders import GIB, facts as order_facts

OLD, NEW = 'old', 'new'
RECORD = Replacement(OLD, 1.0, 100 * GIB, 0.0)
SAME = RECORD._replace(drive='ACME_1')
IN_USE = Osd(1, True, 1.0, uuid=OLD)
AGAIN = replace(IN_USE, uuid=NEW)
DOWN, OUT = replace(IN_USE, up=False), replace(IN_USE, reweight=0.0)
DESTROYED = replace(DOWN, destroyed=True)
FILL = campaign_of(2, Phase.RELEASING, 900.0, change=WeightChange(weights={1: 1.0}))
DRAIN = campaign_of(2, Phase.RELEASING, 900.0, change=WeightChange(weights={1: TINY_WEIGHT}))
HELD = campaign_of(2, Phase.ABORTED, 900.0, held=True)
#: From before the replacement.
EARLIER = replace(FILL, origin=replace(FILL.origin, started=-1.0))
LIGHT = 2 * TINY_WEIGHT


def facts(row: Osd = IN_USE, weight: float = 1.0, pgs: Optional[int] = 10, **more: Any
          ) -> ReplaceFacts:
    """`row`: osd.1, which has this weight and so many PGs."""
    orders = order_facts({1: weight}, osds={1: row}, **more.pop('orders', {}))
    orders = replace(orders, space={**orders.space, 1: Space(100 * GIB, 10 * GIB, pgs)})
    more.setdefault('complete', True)
    return ReplaceFacts(orders, weights={**orders.crush.weights(), 1: weight}, **more)


# ---- phases

DRAINING, RECOVERING, EMPTY = (
    ReplacePhase.DRAINING, ReplacePhase.RECOVERING, ReplacePhase.EMPTY)
WAITING, READY, FILLING = ReplacePhase.WAITING, ReplacePhase.READY, ReplacePhase.FILLING


@pytest.mark.parametrize('row, weight, more, phase', [
    (IN_USE, 1.0, {}, DRAINING), (IN_USE, TINY_WEIGHT, {}, DRAINING),
    (IN_USE, TINY_WEIGHT, {'pgs': 0}, EMPTY), (IN_USE, LIGHT, {'pgs': 0}, EMPTY),
    (IN_USE, LIGHT + 0.0001, {'pgs': 0}, DRAINING), (IN_USE, TINY_WEIGHT, {'pgs': None}, DRAINING),
    (IN_USE, TINY_WEIGHT, {'pgs': 0, 'leaving': frozenset({1})}, DRAINING),
    (IN_USE, TINY_WEIGHT, {'pgs': 0, 'leaving': frozenset({2})}, EMPTY),
    # Down or out: until all copies are elsewhere.
    (DOWN, 1.0, {}, RECOVERING), (OUT, 1.0, {}, EMPTY), (DOWN, LIGHT, {}, EMPTY),
    (DOWN, LIGHT + 0.0001, {}, RECOVERING), (OUT, 1.0, {'complete': False}, RECOVERING),
    (OUT, 1.0, {'leaving': frozenset({1})}, RECOVERING),
    (OUT, 1.0, {'stopped': frozenset({1})}, RECOVERING),
    (OUT, 1.0, {'stopped': frozenset({2}), 'leaving': frozenset({3})}, EMPTY),
    # Destroyed, and created again.
    (DESTROYED, 1.0, {}, WAITING), (replace(DOWN, uuid=NO_UUID), 1.0, {}, WAITING),
    (replace(AGAIN, up=False), 1.0, {}, WAITING), (AGAIN, TINY_WEIGHT, {}, READY),
    (AGAIN, LIGHT, {}, READY), (AGAIN, LIGHT + 0.0001, {}, FILLING), (AGAIN, 1.0, {}, FILLING)])
def test_phases(row: Osd, weight: float, more: Dict[str, Any], phase: ReplacePhase) -> None:
    assert phase_of(1, RECORD, facts(row, weight, **more)) is phase


@pytest.mark.parametrize('row, weight, drive, kept', [
    (AGAIN, TINY_WEIGHT, 'ACME_1', True), (AGAIN, LIGHT, 'ACME_1', True),
    (AGAIN, LIGHT + 0.0001, 'ACME_1', False), (AGAIN, TINY_WEIGHT, 'ACME_2', False),
    (IN_USE, TINY_WEIGHT, 'ACME_1', False), (DESTROYED, TINY_WEIGHT, 'ACME_1', False)])
def test_an_osd_on_its_old_drive_stays_empty(row: Osd, weight: float, drive: str,
                                             kept: bool) -> None:
    there = facts(row, weight, drives={1: drive})
    assert is_kept_empty(1, SAME, there) == kept
    if row is AGAIN:
        assert phase_of(1, SAME, there) is (
            WAITING if kept else FILLING if weight > LIGHT else READY)
    assert not on_same_drive(1, RECORD, facts(AGAIN, drives={1: ''}))
    assert not on_same_drive(1, SAME, facts(AGAIN))


def test_an_osd_that_is_not_in_crush_has_no_weight() -> None:
    assert facts().weight(77) == 0.0 and facts(weight=1.5).weight(1) == 1.5


def test_osds_that_were_created_again() -> None:
    osds = {1: AGAIN, 2: IN_USE, 3: replace(AGAIN, uuid=NO_UUID)}
    assert created_again(osds, dict.fromkeys(range(1, 5), RECORD)) == [1]


@pytest.mark.parametrize('campaign, filled, emptied', [
    (NO_CAMPAIGN, False, False), (FILL, True, True), (DRAIN, False, True),
    (replace(FILL, change=WeightChange(weights={1: LIGHT})), False, True),
    (replace(FILL, change=WeightChange(weights={2: 1.0})), False, False),
    (replace(FILL, phase=Phase.DONE), True, False),
    (replace(FILL, phase=Phase.ABORTED, held=True), True, True)])
def test_campaigns_that_fill_or_empty_an_osd(campaign: Campaign, filled: bool,
                                             emptied: bool) -> None:
    assert is_filled_by(campaign, 1) == filled
    assert is_emptied_by(campaign, 1) == emptied


@pytest.mark.parametrize('since, campaign, accepted', [
    (900.0, FILL, True), (900.5, FILL, False), (0.0, DRAIN, False),
    (900.0, campaign_of(2, Phase.RELEASING, 900.0, acknowledged=(Code.SAME_DRIVE,)), True),
    (0.0, campaign_of(2, Phase.RELEASING, 900.0, acknowledged=(Code.LAGGY,)), False)])
def test_an_old_drive_is_accepted(since: float, campaign: Campaign, accepted: bool) -> None:
    record = SAME._replace(since=since)
    there = facts(AGAIN, drives={1: 'ACME_1'}, campaign=campaign)
    assert is_accepted(1, record, there) == accepted == (not is_withheld(1, record, there))
    assert not is_withheld(1, record, replace(there, weights={1: LIGHT}))
    assert not is_withheld(1, record, replace(there, drives={}))


@pytest.mark.parametrize('row, weight, more, why', [
    (AGAIN, 1.0, {}, 'the new device is in use with CRUSH weight 1'),
    (AGAIN, 1.0, {'degraded': {1: 2, 2: 9}}, 'the new device is in use with CRUSH weight 1; '
     'recovery from the PG logs fills it (degraded: 2 PGs)'),
    (AGAIN, 1.0, {'pgs': 0}, ''), (AGAIN, 1.0, {'pgs': None}, ''),
    (AGAIN, 1.0, {'entering': frozenset({1})}, ''), (AGAIN, LIGHT, {}, ''),
    (AGAIN, 1.0, {'campaign': FILL}, ''), (replace(AGAIN, up=False), 1.0, {}, ''),
    (AGAIN, 1.0, {'drives': {1: 'ACME_1'}}, ''),
    (IN_USE, 1.0, {}, 'it is in use again with the same device'), (IN_USE, LIGHT, {}, ''),
    (replace(IN_USE, exists=False), 1.0, {}, 'the OSD was purged ("expand" fills a new one)')])
def test_why_a_replacement_ends(row: Osd, weight: float, more: Dict[str, Any], why: str) -> None:
    assert ending(1, SAME, facts(row, weight, **more)) == why


def test_the_replacement_of_a_purged_osd_ends() -> None:
    there = facts()
    osdmap = replace(there.order_facts.osdmap, osds={})
    assert ending(1, RECORD, replace(there, order_facts=replace(there.order_facts, osdmap=osdmap)))


@pytest.mark.parametrize('phase, campaign, more, why', [
    (READY, FILL, {}, 'campaign 2, which fills it, is aborted'), (READY, DRAIN, {}, ''),
    (FILLING, FILL, {'weight': LIGHT}, 'campaign 2, which fills it, is aborted ("undrain osd.1" '
     'fills it)'), (FILLING, FILL, {'weight': LIGHT + 0.0001}, 'campaign 2, which fills it, is '
                    'aborted'),
    (EMPTY, FILL, {}, ''), (FILLING, campaign_of(2, Phase.RELEASING, 1.0, trigger='auto'),
                            {'entering': frozenset({1})}, 'campaign 2, which fills it, is aborted'),
    (FILLING, campaign_of(2, Phase.RELEASING, 1.0, trigger='auto'), {}, ''),
    (FILLING, campaign_of(2, Phase.RELEASING, 1.0), {'entering': frozenset({1})}, '')])
def test_an_abort_gives_a_replacement_up(phase: ReplacePhase, campaign: Campaign,
                                         more: Dict[str, Any], why: str) -> None:
    there = facts(AGAIN, campaign=replace(campaign, phase=Phase.ABORTING), **more)
    assert given_up(1, phase, there) == why
    assert given_up(1, phase, replace(there, campaign=campaign)) == ''


def test_what_the_phases_depend_on() -> None:
    """Remapped PGs, of which those that lack a copy cannot be pinned, and some have no target."""
    up = {'1.0': THERE, '1.1': (4, 1, 2), '1.2': (1, 2), '1.3': (5, 1, 2)}
    acting = {'1.1': (0, 1, NO_OSD), '1.3': (6, 1, 2)}
    rows = {3: replace(OSDS[3], uuid=NEW)}
    seen = draft_of(NO_CAMPAIGN, up=up, acting=acting, osds=rows, without=['1.3'], osd_counts={
        1: PgCounts(degraded=2)}).observed
    found = facts_of(seen, order_facts(), FILL, {3: RECORD}, {3: 'x'}, frozenset({7}))
    assert found.leaving == {0, 1, 2, 6, NO_OSD} and found.entering == {1, 2, 3, 4}
    assert found.entering_complete == {1, 2, 3} and found.degraded == {1: 2} and found.complete
    assert (found.stopped, found.campaign, found.drives) == ({7}, FILL, {3: 'x'})
    assert found.weights[8] == 0.0 and found.campaign_active
    # Remapped PGs are looked at only while a device is new.
    same = facts_of(seen, order_facts(), FILL, {3: RECORD._replace(uuid=NEW)}, {}, frozenset())
    assert not same.entering and same.leaving == found.leaving


@pytest.mark.parametrize('counts, complete', [
    ({}, True), ({'degraded': 1}, False), ({'inactive': 1}, False), ({'in_transition': 1}, False),
    ({'unreported': 1}, False), ({'undersized_empty': 1}, False), ({'laggy': 1}, True)])
def test_all_pgs_have_all_their_copies(counts: Dict[str, int], complete: bool) -> None:
    seen = draft_of(NO_CAMPAIGN, signals=Signals(PgCounts(**counts))).observed
    assert facts_of(seen, order_facts(), NO_CAMPAIGN, {}, {}, frozenset()).complete == complete


# ---- the next step

BY_HAND = 'once "ceph osd safe-to-destroy osd.1" agrees: stop the daemon, '
BALANCER = '"ceph osd crush reweight osd.1 0" keeps the balancer from placing PGs on it; '


@pytest.mark.parametrize('phase, row, weight, record, more, text', [
    (DRAINING, IN_USE, 1.0, RECORD, {'campaign': DRAIN}, '"campaign status" shows the progress'),
    (DRAINING, IN_USE, 1.0, RECORD, {'campaign': HELD}, 'campaign 2 is aborted: "campaign '),
    (DRAINING, IN_USE, 1.0, RECORD, {}, 'waiting until it has deleted its PGs'),
    (DRAINING, IN_USE, 1.0, RECORD, {'pgs': 0}, 'waiting for the report of the OSD'),
    (RECOVERING, OUT, 1.0, RECORD, {}, 'waiting for recovery'),
    (RECOVERING, DOWN, 1.0, RECORD, {}, 'recovery begins when it is marked out ("ceph osd out 1")'),
    (EMPTY, IN_USE, 0.0, RECORD, {}, BY_HAND), (EMPTY, DOWN, TINY_WEIGHT, RECORD, {}, BY_HAND),
    (EMPTY, IN_USE, TINY_WEIGHT, RECORD, {}, BALANCER + BY_HAND),
    (EMPTY, IN_USE, TINY_WEIGHT, RECORD, {'campaign': FILL}, BY_HAND),
    (EMPTY, IN_USE, 0.0, RECORD._replace(remove=True), {'campaign': DRAIN},
     'waiting until the campaign has ended'),
    (EMPTY, IN_USE, 0.0, RECORD._replace(remove=True), {}, 'waiting for the orchestrator to '),
    (WAITING, DESTROYED, 0.0, RECORD, {}, 'waiting for the new device: create osd.1 on it and '),
    (WAITING, replace(AGAIN, reweight=0.0), 0.0, RECORD, {}, 'the new device is out: "ceph osd '),
    (WAITING, replace(DESTROYED, up=True, reweight=0.0), 0.0, RECORD, {}, 'waiting for the new '),
    (WAITING, replace(AGAIN, up=False, reweight=0.0), 0.0, RECORD, {}, 'waiting for the new '),
    (READY, AGAIN, 0.0, RECORD, {}, 'waiting for a campaign to fill it'),
    (READY, AGAIN, 0.0, RECORD, {'campaign': HELD}, 'waiting until campaign 2, which is aborted '),
    (FILLING, AGAIN, 1.0, RECORD, {'campaign': FILL}, '"campaign status" shows the progress'),
    (FILLING, AGAIN, 1.0, RECORD, {}, 'waiting for the report of the OSD'),
    (FILLING, AGAIN, 1.0, RECORD, {'entering': frozenset({1})}, 'recovery fills it'),
    (FILLING, AGAIN, 1.0, RECORD, {'degraded': {1: 1}}, 'recovery fills it'),
    (FILLING, AGAIN, 1.0, RECORD, {'entering': frozenset({1}), 'entering_complete': frozenset({1})},
     'waiting for a campaign to fill it'),
    (WAITING, AGAIN, 0.0, SAME, {}, 'osd.1 is on the same drive as before (ACME_1): replace the '
     'drive, or "ceph perfguard undrain osd.1" fills it again'),
    (FILLING, AGAIN, 1.0, SAME, {}, 'osd.1 is on the same drive as before (ACME_1): replace the '
     'drive, or "ceph osd out 1" keeps PGs off it; "ceph perfguard replace --cancel osd.1" leaves '
     'it in use'),
    (FILLING, AGAIN, 1.0, SAME, {'campaign': FILL}, 'osd.1 is on the same drive as before '
     '(ACME_1): replace the drive, or "ceph osd out 1" keeps PGs off it; "ceph perfguard campaign '
     'accept SAME_DRIVE" fills it again')])
def test_the_next_step(phase: ReplacePhase, row: Osd, weight: float, record: Replacement,
                       more: Dict[str, Any], text: str) -> None:
    there = facts(row, weight, drives={1: 'ACME_1'}, **more)
    step = next_step(1, record, phase, there)
    assert step.startswith(text) and (not text.endswith(('it', 'again', 'OSD')) or step == text)


@pytest.mark.parametrize('row, weight, items, vectors, text', [
    # It may be stopped for the exchange of its device while another OSD recovers.
    (DOWN, 0.0, {}, {}, 'waiting for recovery'), (DOWN, LIGHT, {}, {}, 'waiting for recovery'),
    (DOWN, 0.0, {'1.0': ((2, 3), (1, 4))}, {'1.1': (2, 3)}, 'waiting for recovery'),
    (OUT, 0.0, {'1.0': ((2, 1),)}, {}, 'waiting for recovery'),
    (DOWN, LIGHT + 0.0001, {}, {}, 'recovery begins when it is marked out ("ceph osd out 1")'),
    # A campaign has not moved these PGs yet.
    (DOWN, 0.0, {'1.0': ((2, 3), (4, 1))}, {}, 'recovery begins when it is marked out ("ceph osd '
     'out 1")'),
    (DOWN, 0.0, {}, {'1.1': (2, 1)}, 'recovery begins when it is marked out ("ceph osd out 1")')])
def test_recovery_waits_for_osds_that_are_marked_out_only_if_pgs_are_placed_on_them(
        row: Osd, weight: float, items: Mapping[str, Any], vectors: Mapping[str, OsdSet],
        text: str) -> None:
    there = facts(row, weight)
    orders = there.order_facts
    osdmap = replace(orders.osdmap, upmap_items=items, upmap_vectors=vectors)
    there = replace(there, order_facts=replace(orders, osdmap=osdmap))
    assert next_step(1, RECORD, RECOVERING, there) == text


# ---- orders

@pytest.mark.parametrize('total, record, weight', [
    (100, RECORD, 2.0), (0, RECORD, 2.0), (101, RECORD, 2.02), (100.9, RECORD, 2.0),
    (99, RECORD, 1.98), (50, RECORD, 1.0), (200, RECORD._replace(total_bytes=0), 2.0),
    (133.33333, RECORD, 2.6667)])
def test_the_weight_of_a_new_device(total: float, record: Replacement, weight: float) -> None:
    assert new_weight(record._replace(weight=2.0), Space(int(total * GIB), 0)) == weight
    assert new_weight(record._replace(weight=2.0), None) == 2.0


def test_osds_to_replace() -> None:
    there = facts()
    assert osds_to_replace(Order(REPLACE, ('osd.1', 'osd.2')), [2], there) == [1]
    with pytest.raises(Refused, match='already being replaced: osd.2') as refused:
        osds_to_replace(Order(REPLACE, ('osd.2',)), [2], there)
    assert refused.value.errno == errno.EALREADY
    for weight, is_refused in ((LIGHT, True), (LIGHT + 0.0001, False)):
        light = facts(weight=weight)
        if not is_refused:
            assert osds_to_replace(Order(REPLACE, ('osd.1',)), [], light) == [1]
            continue
        with pytest.raises(Refused, match='has CRUSH weight 0.0002 and was not drained') as no:
            osds_to_replace(Order(REPLACE, ('osd.1',)), [], light)
        assert no.value.errno == errno.EINVAL
        drained = facts(weight=weight, orders={'drained': {1: 1.0}})
        assert osds_to_replace(Order(REPLACE, ('osd.1',)), [], drained) == [1]
    with pytest.raises(Refused, match='different CRUSH weights') as refused:
        osds_to_replace(Order(REPLACE, ('osd.1',)), [], facts(orders={'uneven': {1: {'a': 1.0}}}))
    assert refused.value.errno == errno.EINVAL


def test_osds_to_drain_and_their_records() -> None:
    assert osds_to_drain([1, 2, 8], facts()) == [1, 2]
    assert osds_to_drain([1, 2], facts(weight=LIGHT + 0.0001)) == [1, 2]
    assert osds_to_drain([1], facts(weight=LIGHT)) == [] == osds_to_drain([1], facts(OUT))
    record = record_of(1, facts(weight=1.5), 7.0, 'ACME_1', True)
    assert record == Replacement(OLD, 1.5, 100 * GIB, 7.0, 'ACME_1', True)
    light = facts(weight=LIGHT, orders={'drained': {1: 3.0}})
    light = replace(light, order_facts=replace(light.order_facts, space={}))
    assert record_of(1, light, 7.0, '', False) == Replacement(OLD, 3.0, 0, 7.0)


# ---- turns

class Host:
    """Replacements of OSDs of one host, without a cluster."""

    def __init__(self, records: Mapping[int, Replacement] = {1: RECORD}, drained: Any = {}) -> None:
        self.events: List[Event] = []
        self.store = Store(MemoryKv())
        self.rows: Dict[int, Osd] = {osd: replace(IN_USE, id=osd) for osd in (1, 5)}
        self.weights = {1: 1.0, 5: 1.0}
        self.space = {osd: Space(100 * GIB, 10 * GIB, 10) for osd in (1, 5)}
        self.drained: Mapping[int, float] = drained
        self.drives = {osd: 'ACME_%d' % osd for osd in (1, 5)}
        self.removing: Any = frozenset()
        self.present = True
        self.up: Dict[str, OsdSet] = {}
        self.acting: Dict[str, OsdSet] = {}
        self.now, self.reads, self.period = NOW, 0, 5.0
        self.renewed: Dict[int, float] = {}
        self.filled: List[Tuple[str, ...]] = []
        self.caught: List[str] = []
        self.removed: List[int] = []
        #: The OSDs that are being replaced, each time that they change.
        self.replaced: List[List[int]] = []
        self.reply = Reply(0)
        self.refusal: Optional[Refused] = None
        self.replacing = Replacing(self.store, SimpleNamespace(  # type: ignore[arg-type]
            facts=self._facts, drive_ids=lambda osds: {osd: self.drives[osd] for osd in osds},
            forget_added=lambda osds: self.replaced.append(sorted(osds)),
            renew=lambda osdmap, weights: self.renewed.update(weights)), self.events.append)
        self.replacing._put(dict(records))

    def _facts(self, observation: Observation, space: Any = None) -> Any:
        self.reads += space is None
        facts_now = order_facts(self.weights, osds=self.rows, drained=self.drained,
                                removing=self.removing)
        return replace(facts_now, space={**facts_now.space, **(
            self.space if space is None else space)})

    def seen(self) -> Observation:
        observation = draft_of(NO_CAMPAIGN, osds=self.rows, up=self.up, acting=self.acting).observed
        return replace(observation, now=self.now, stats_period=self.period,
                       orchestrating=Orchestrating(
                           present=self.present, removing=self.removing))

    def _fill(self, pending: Any, order: Order) -> None:
        if self.refusal is not None:
            raise self.refusal
        self.filled.append(order.names)

    def _remove(self, osd: int) -> Reply:
        self.removed.append(osd)
        return self.reply

    def turn(self, seconds: float = 0.0, campaign: Campaign = NO_CAMPAIGN, settle: float = 60.0
             ) -> None:
        self.now += seconds
        self.replacing.turn(self.seen(), campaign, settle, self._fill, self.caught.append,
                            self._remove)

    def order(self, *names: str, verb: str = REPLACE, campaign: Campaign = NO_CAMPAIGN,
              change: Optional[Callable[..., Any]] = None, **more: Any) -> Any:
        def begins(drain: Order, journal: Callable[[], None]) -> Any:
            self.filled.append(drain.names)
            journal()
            return {'campaign': 3}

        return self.replacing.carry_out(Order(verb, names, **more), self.seen(), campaign,
                                        change or begins)

    def whats(self) -> List[str]:
        return [event.what for event in self.events]


def ready(osds: Sequence[int] = (1,), weight: float = 0.0) -> Host:
    """Host with new devices of these OSDs."""
    host = Host(dict.fromkeys(osds, RECORD))
    for osd in osds:
        host.rows[osd], host.weights[osd] = replace(AGAIN, id=osd), weight
    return host


def test_new_devices_are_filled_once_they_have_reported() -> None:
    host = ready((1, 5))
    host.space[5] = Space(200 * GIB, 0, 0)
    host.turn()
    assert not host.filled
    host.turn(9.5)
    assert not host.filled and host.replacing.remarks == ()
    host.turn(0.5)
    assert host.filled == [('osd.1', 'osd.5')] and host.renewed == {1: 1.0, 5: 2.0}


def test_new_devices_are_filled_after_two_reports() -> None:
    host = ready()
    host.period = 8.0
    host.turn()
    host.turn(15.5)
    assert not host.filled
    host.turn(0.5)
    assert host.filled


def test_a_new_device_waits_for_the_others_of_its_host() -> None:
    host = ready()
    host.replacing._put({1: RECORD, 5: RECORD})
    host.rows[5] = replace(DESTROYED, id=5)
    first, second = host.order(verb=DRAINS)['drains']
    assert first['next'] == 'waiting for a campaign to fill it'
    host.turn()
    host.turn(59.5)
    assert not host.filled
    first, after = host.order(verb=DRAINS)['drains']
    assert first['next'] == 'waiting for the other OSDs of its host' and after == second
    host.turn(0.5)
    assert host.filled == [('osd.1',)]


def test_devices_of_other_hosts_and_ready_ones_are_not_waited_for() -> None:
    host = ready()
    host.replacing._put({1: RECORD, 2: RECORD})
    host.rows[2] = replace(DESTROYED, id=2)
    host.turn()
    host.turn(10.0)
    assert host.filled == [('osd.1',)]
    # Another one that becomes ready begins the wait again.
    host = ready()
    host.replacing._put({1: RECORD, 5: RECORD})
    host.rows[5] = replace(DESTROYED, id=5)
    host.turn()
    host.turn(55.0)
    host.rows[5], host.weights[5] = replace(AGAIN, id=5), 0.0
    host.turn(4.0)
    host.turn(9.5)
    assert not host.filled
    host.turn(0.5)
    assert host.filled == [('osd.1', 'osd.5')]


@pytest.mark.parametrize('campaign, fills', [
    (NO_CAMPAIGN, True), (FILL, False), (HELD, False), (replace(HELD, held=False), True)])
def test_nothing_is_filled_beside_a_campaign(campaign: Campaign, fills: bool) -> None:
    host = ready()
    for seconds in (0.0, 10.0):
        host.turn(seconds, campaign)
    assert bool(host.filled) == fills


def test_a_refused_fill_is_reported_once() -> None:
    host = ready()
    host.refusal = Refused(errno.EINVAL, 'too full')
    host.turn()
    for _ in range(300):
        host.turn(10.0)
    event, = host.events
    assert (event.kind, event.what) == ('refused', 'filling of osd.1')
    assert event.why == 'too full; perfguard will retry'
    row, = host.order(verb=DRAINS)['drains']
    assert row['next'] == 'too full'
    host.refusal = None
    for _ in range(300):
        host.turn(10.0)
    assert host.filled and len(host.events) == 1


def filling_host() -> Host:
    """PGs move to the new device."""
    host = ready(weight=1.0)
    host.up, host.acting = {'1.0': (1, 2, 3)}, {'1.0': (0, 2, 3)}
    return host


def test_pgs_of_a_device_in_use_are_caught() -> None:
    host = filling_host()
    host.turn()
    assert host.caught == ['the new device of osd.1 is in use'] and not host.filled
    both = ready((1, 5), weight=1.0)
    both.up, both.acting = {'1.0': (5, 1, 3)}, {'1.0': (0, 2, 3)}
    both.turn()
    assert both.caught == host.caught
    # None moves there.
    host.up = {}
    host.acting = {}
    host.turn(1.0)
    assert len(host.caught) == 1
    # Recovery fills it: its PGs cannot be pinned.
    host.up, host.acting = {'1.0': (1, 2, 3)}, {'1.0': (2, 3)}
    host.turn(1.0)
    assert len(host.caught) == 1


def test_nothing_is_filled_while_state_could_not_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    for host in (filling_host(), ready()):
        monkeypatch.setattr(type(host.store), 'interrupted', 'unreadable', raising=False)
        for seconds in (0.0, 10.0, 10.0):
            host.turn(seconds)
        assert not host.filled and not host.caught
        assert [(event.kind, event.what, event.why) for event in host.events] == [
            ('refused', 'filling of osd.1', 'unreadable')]
    host = Host()
    host.rows[1] = DESTROYED
    host.turn()
    assert not host.events


@pytest.mark.parametrize('seconds, ends', [(29.5, False), (30.0, True)])
def test_a_device_in_use_ends_its_replacement_after_a_while(seconds: float, ends: bool) -> None:
    host = ready(weight=1.0)
    host.turn()
    assert host.replacing
    host.turn(seconds)
    assert bool(host.replacing) == (not ends)
    assert host.whats() == (['the replacement of osd.1 has ended'] if ends else [])
    if not ends:
        # It starts anew after it was down.
        host.rows[1] = replace(AGAIN, up=False)
        host.turn(1.0)
        host.rows[1] = AGAIN
        host.turn(1.0)
        host.turn(29.5)
        assert host.replacing and not host.caught
        host.turn(0.5)
        assert not host.replacing


def test_a_device_that_was_put_back_ends_its_replacement_at_once() -> None:
    host = Host()
    host.turn()
    assert not host.replacing
    assert host.events[0].why == 'it is in use again with the same device'
    host.replacing.remarks = ('replacement of osd.1: WAITING',)
    host.turn()
    assert host.replacing.remarks == ()


def test_an_aborted_fill_ends_the_replacement() -> None:
    host = ready((1, 5))
    host.turn(campaign=replace(FILL, phase=Phase.ABORTING))
    assert list(host.replacing) == [5] and not host.replacing.remarks


def test_phases_are_reported_as_they_change() -> None:
    host = Host()
    host.weights[1] = 0.0
    host.turn()
    assert not host.events
    host.space[1] = Space(100 * GIB, 0, 0)
    host.turn(9.5)
    assert not host.events and not host.replacing.remarks
    host.turn(0.5)
    assert host.whats() == ['osd.1 is EMPTY']
    assert host.replacing.remarks[0].startswith('replacement of osd.1: EMPTY, once "ceph osd ')
    host.turn(1.0)
    assert len(host.events) == 1
    host.rows[1] = DESTROYED
    host.turn(1.0)
    assert host.whats() == ['osd.1 is EMPTY', 'osd.1 is WAITING']


def test_remarks_name_what_waits_for_an_operator() -> None:
    host = Host(dict.fromkeys((1, 5, 2, 3, 4), RECORD))
    for osd in (1, 2, 3, 4):
        host.rows[osd], host.weights[osd] = replace(DESTROYED, id=osd), 0.0
    host.weights[5] = 0.0
    host.turn()
    assert [remark[:28] for remark in host.replacing.remarks] == [
        'replacement of osd.%d: WAITIN' % osd for osd in (1, 2, 3)]
    host.replacing._put({5: RECORD})
    host.turn()
    assert not host.replacing.remarks
    host.turn(campaign=HELD)
    assert len(host.replacing.remarks) == 1
    host = ready(weight=1.0)
    host.replacing._put({1: RECORD._replace(drive='ACME_1')})
    host.turn(campaign=EARLIER)
    assert 'same drive' in host.replacing.remarks[0] and host.replacing.on_replaced_drive == {1}


def test_the_space_of_osds_is_read_seldom_while_operators_are_waited_for() -> None:
    host = Host()
    host.weights[1] = 0.0
    host.turn()
    assert host.reads == 1
    host.turn(9.5)
    assert host.reads == 1
    host.space[1] = Space(100 * GIB, 0, 0)
    host.turn(0.5)
    assert host.reads == 2
    host.turn(119.5)
    assert host.reads == 2
    host.turn(0.5)
    assert host.reads == 3
    # One that is filled, or on the old drive.
    host.replacing._put({1: RECORD, 5: RECORD})
    host.weights[5] = 0.0
    host.turn()
    host.turn(10.0)
    assert host.reads == 4


def test_an_accepted_drive_is_forgotten() -> None:
    host = ready(weight=1.0)
    host.replacing._put({1: SAME})
    host.turn(campaign=EARLIER)
    assert host.replacing._records == {1: SAME} and host.replacing.on_replaced_drive == {1}
    host.turn(campaign=FILL)
    assert host.replacing._records == {1: RECORD} and not host.replacing.on_replaced_drive
    # Another drive is no old one.
    host = ready(weight=1.0)
    host.replacing._put({1: RECORD._replace(drive='ACME_2')})
    host.turn(campaign=FILL)
    assert host.replacing._records[1].drive == 'ACME_2'


# ---- removals by the orchestrator

def empty(**record: Any) -> Host:
    host = Host({1: RECORD._replace(remove=True, **record)})
    host.weights[1], host.space[1] = 0.0, Space(100 * GIB, 0, 0)
    return host


def test_an_empty_osd_is_removed_until_the_orchestrator_does_it() -> None:
    host = empty()
    host.turn()
    assert host.removed == [1] and len(host.events) == 1
    host.turn(REMOVAL_SECONDS - 0.5)
    assert host.removed == [1]
    host.turn(0.5)
    assert host.removed == [1, 1]
    assert host.whats() == ['removal of osd.1 by the orchestrator']
    host.reply = Reply(-22, '', 'no host')
    host.turn(REMOVAL_SECONDS)
    host.turn(REMOVAL_SECONDS)
    assert [event.why for event in host.events] == ['ordered', 'no host']
    # It is in the queue, and then it is not.
    host.removing = frozenset({1})
    host.turn(1.0)
    assert host.replacing._records[1].queued and len(host.removed) == 4
    host.turn(REMOVAL_SECONDS)
    host.removing = frozenset()
    host.turn(REMOVAL_SECONDS - 0.5)
    assert host.replacing._records[1].remove
    host.turn(0.5)
    assert not host.replacing._records[1].remove and len(host.removed) == 4
    assert host.whats()[-1] == 'osd.1 is not removed'


@pytest.mark.parametrize('changes, campaign, removes', [
    ({}, NO_CAMPAIGN, True), ({'remove': False}, NO_CAMPAIGN, False), ({}, DRAIN, False),
    ({'queued': True}, NO_CAMPAIGN, False)])
def test_when_an_osd_is_removed(changes: Dict[str, Any], campaign: Campaign,
                                removes: bool) -> None:
    wanted = RECORD._replace(remove=True)
    host = Host({1: wanted._replace(**changes), 5: wanted})
    host.weights.update({1: 0.0, 5: 0.0})
    host.space[1] = Space(100 * GIB, 0, 0)
    host.turn(campaign=campaign)
    assert host.removed == ([1] if removes else [])


def test_an_osd_that_was_not_empty_for_a_while_is_removed_anew() -> None:
    host = empty()
    host.turn()
    host.up, host.acting = {'1.0': (2, 3, 4)}, {'1.0': (1, 3, 4)}
    host.turn(1.0)
    assert host.removed == [1]
    host.up, host.acting = {}, {}
    host.turn(1.0)
    assert host.removed == [1, 1]


# ---- orders about replacements

def test_a_replacement_is_ordered() -> None:
    host = Host({})
    answer = host.order('osd.1', remove=True)
    assert host.filled == [('osd.1',)] and answer['campaign'] == 3
    assert host.replacing._records == {1: Replacement(OLD, 1.0, 100 * GIB, NOW, 'ACME_1', True)}
    row, = answer['drains']
    assert row == {'osd': 1, 'host': 'h1', 'phase': 'DRAINING', 'replace': True,
                   'weight_before': 1.0, 'weight': 1.0, 'pgs': 10, 'used_bytes': 10 * GIB,
                   'fill': 0.1, 'next': EMPTIED}
    assert [(event.kind, event.what, event.why) for event in host.events] == [
        ('request', 'replace', 'by command')]
    assert answer['verb'] == REPLACE and not answer['dry_run']
    # One that does not serve needs no drain.
    host.rows[5] = replace(DOWN, id=5)
    answer = host.order('osd.5')
    assert host.filled == [('osd.1',)] and answer['campaign'] is None
    assert [row['osd'] for row in answer['drains']] == [5] and list(host.replacing) == [1, 5]
    assert answer['drains'][0]['next'].startswith('recovery begins')


def test_a_preview_of_a_replacement_changes_nothing() -> None:
    host = Host({})
    host.rows[5] = replace(DOWN, id=5)
    answer = host.order('osd.1', 'osd.5', dry_run=True, change=lambda drain, journal: {
        'campaign': None, 'dry': drain.dry_run, 'names': drain.names})
    assert answer['dry'] and answer['names'] == ('osd.1',) and answer['dry_run']
    assert not host.replacing and not host.events
    assert host.order('osd.5', dry_run=True)['campaign'] is None and not host.replacing
    # The campaign has not begun yet.
    assert host.order('osd.1', change=lambda drain, journal: None) is None and not host.events


def test_a_removal_requires_an_orchestrator() -> None:
    host = Host({})
    host.present = False
    with pytest.raises(Refused, match='--remove requires cephadm') as refused:
        host.order('osd.1', remove=True)
    assert refused.value.errno == errno.EOPNOTSUPP and host.order('osd.1')


def test_a_plan_begins_a_replacement() -> None:
    host = Host({})
    drain, keep = host.replacing.draining(Order(REPLACE, ('osd.1',)), host.seen(), NO_CAMPAIGN)
    assert drain.names == ('osd.1',) and not host.replacing
    keep()
    assert list(host.replacing) == [1] and host.events[0].why == 'by a plan'
    host.rows[5] = replace(DOWN, id=5)
    with pytest.raises(Refused, match='osd.5: no drain is needed') as refused:
        host.replacing.draining(Order(REPLACE, ('osd.5',)), host.seen(), NO_CAMPAIGN)
    assert refused.value.errno == errno.EINVAL


@pytest.mark.parametrize('name, ended', [
    ('osd.1', [1]), ('h1', [1, 5]), ('osd.5', [5]), ('osd.77', [77]), ('osd.2', []), ('osd.', []),
    ('osd.\u0665', []), ('osd.x', []), ('5', [])])
def test_a_replacement_is_cancelled(name: str, ended: List[int]) -> None:
    host = Host(dict.fromkeys((1, 5, 77), RECORD))
    host.removing = frozenset({5})
    if not ended:
        with pytest.raises(Refused, match='not being replaced: ') as refused:
            host.order(name, verb=CANCEL)
        assert refused.value.errno == errno.ENOENT
        return
    answer = host.order(name, verb=CANCEL)
    assert answer['verb'] == CANCEL and set(host.replacing) == {1, 5, 77} - set(ended)
    assert ('ceph orch osd rm stop 5' in answer['message']) == (5 in ended)
    assert host.whats() == ['the replacement of osd.%d has ended' % osd for osd in ended]
    assert Store(host.store._kv).get('replacements') is not None


def test_what_is_known_of_a_replacement_ends_with_it() -> None:
    host = ready(weight=1.0)
    host.replacing._put({1: SAME})
    host.turn(campaign=EARLIER)
    assert host.replacing.on_replaced_drive == {1} and host.replaced == [[1], [1]]
    host.order('osd.1', verb=CANCEL)
    assert not host.replacing.on_replaced_drive and host.replaced[-1] == []
    # It is replaced once more: the time in which it was in use before does not count.
    host = ready(weight=1.0)
    host.turn()
    host.order('osd.1', verb=CANCEL)
    host.replacing._put({1: RECORD})
    host.turn(40.0)
    assert host.replacing
    # Nor is its first phase a change.
    host = Host()
    host.rows[1] = DESTROYED
    host.turn()
    host.order('osd.1', verb=CANCEL)
    host.rows[1], host.weights[1] = IN_USE, 0.0
    host.replacing._put({1: RECORD})
    host.turn()
    assert host.whats() == ['the replacement of osd.1 has ended']


def test_all_replacements_are_cancelled() -> None:
    host = Host(dict.fromkeys((5, 1), RECORD))
    host.rows[1] = DESTROYED
    host.turn()
    assert host.replacing.remarks
    host.replacing.cancel_all('a shutdown')
    assert not host.replacing and not host.replacing.remarks
    assert [event.why for event in host.events][-1] == 'a shutdown'
    number = len(host.events)
    host.replacing.cancel_all('a shutdown')
    assert len(host.events) == number


def test_the_list_of_drains() -> None:
    host = Host({5: RECORD._replace(weight=2.0)}, drained={1: 1.5, 4: 1.0, 99: 1.0})
    host.weights.update({1: TINY_WEIGHT, 4: 0.0})
    host.space[1] = Space(100 * GIB, 0, 0)
    host.space[4], host.space[5] = Space(0, 0, 0), Space(300, 100, 10)
    host.rows[4] = replace(DESTROYED, id=4)
    first, second, third = host.order(verb=DRAINS)['drains']
    assert (first['osd'], first['phase'], first['replace'], first['weight_before']) == (
        1, 'EMPTY', False, 1.5)
    assert first['next'].startswith(BALANCER + '"undrain" restores its CRUSH weight; once ')
    assert (second['osd'], second['phase'], second['next'], second['fill']) == (
        4, 'WAITING', '"undrain" restores its CRUSH weight once it is up', None)
    assert (third['osd'], third['replace'], third['weight_before'], third['fill']) == (
        5, True, 2.0, 0.3333)


@pytest.mark.parametrize('seconds, phase', [(29.5, 'RECOVERING'), (30.0, 'EMPTY')])
def test_an_osd_that_has_just_stopped_may_still_be_remapped(seconds: float, phase: str) -> None:
    host = Host()
    host.rows[1] = OUT
    assert host.order(verb=DRAINS)['drains'][0]['phase'] == 'RECOVERING'
    host.now += seconds
    assert host.order(verb=DRAINS)['drains'][0]['phase'] == phase
    # It serves again, and stops once more.
    host.rows[1] = IN_USE
    host.order(verb=DRAINS)
    host.rows[1] = OUT
    assert host.order(verb=DRAINS)['drains'][0]['phase'] == 'RECOVERING'


def test_records_are_loaded() -> None:
    host = Host({1: RECORD._replace(since=500.0)})
    host.replacing.remarks = ('x',)
    host.replacing.on_replaced_drive = frozenset({1})
    assert host.replacing.load(400.0) == []
    assert host.replacing._records[1].since == 400.0
    assert not host.replacing.remarks and not host.replacing.on_replaced_drive
