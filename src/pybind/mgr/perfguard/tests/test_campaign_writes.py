# SPDX-License-Identifier: LGPL-2.1-or-later
"""How much a large campaign writes: each value is a commit of the mons."""
from dataclasses import replace
from typing import List, Optional, Tuple

from perfguard.cluster.types import UpmapEntry
from perfguard.rebalance.campaign import Campaign
from perfguard.rebalance.copying import Copying
from perfguard.rebalance.types import Flight, Phase, PinRecord
from perfguard.upmap.pins import Unpinnable

from .fakes.campaigns import campaign_of, changed
from .fakes.driver import Driver

UNPINNABLE, FLIGHTS = 10000, 32


def flight(number: int) -> Flight:
    pin = PinRecord(UpmapEntry(items=((number, 900 + number),)),
                    UpmapEntry(items=((number, 900 + number), (800 + number, 700 + number))),
                    goal=UpmapEntry(items=((number, 600 + number),)))
    return Flight(since=1.7e9 + number / 7, entry=pin.leads_to, sources=(700 + number,),
                  targets=(600 + number,), primary=number, bytes=40 << 30, pin=pin)


def large() -> Campaign:
    reasons = [Unpinnable('osd.%d is out' % osd) for osd in range(20)]
    return campaign_of(1, Phase.RELEASING, 1.7e9, prepared=True, total=20000, in_flight={
        '1.%x' % number: flight(number) for number in range(FLIGHTS)}, unpinnable={
            '1.%x' % number: reasons[number % 20] for number in range(5000, 5000 + UNPINNABLE)})


class Writes:
    """What a loop writes of a campaign of its own."""

    def __init__(self) -> None:
        self.driver = Driver()
        self.driver.cluster.now = 1.8e9
        self.sizes: List[Tuple[str, int]] = []
        set_store = self.driver.kv.set_store

        def count(key: str, val: Optional[str]) -> None:
            self.sizes.append((key, len(val or '')))
            set_store(key, val)

        setattr(self.driver.kv, 'set_store', count)

    def save(self, campaign: Campaign, sending: bool = True) -> List[int]:
        """The sizes of what is written when a turn ends with this campaign."""
        self.sizes.clear()
        self.driver.loop.rebalance.campaigns.stored.save(campaign, sending)
        return [size for _, size in self.sizes]


def without(campaign: Campaign, pgid: str) -> Campaign:
    return changed(campaign, released=campaign.progress.released + 1, in_flight={
        other: flight for other, flight in campaign.flights.in_flight.items() if other != pgid})


def test_a_large_campaign_takes_one_small_write_a_turn() -> None:
    writes, campaign = Writes(), large()
    assert len(writes.save(campaign)) == 2, 'the campaign, and what cannot be pinned'
    for number in range(FLIGHTS):
        campaign = without(campaign, '1.%x' % number)
        campaign = changed(campaign, unpinnable={
            pgid: why for pgid, why in campaign.pinning.unpinnable.items() if pgid != '1.%x' % (
                5000 + number)})
        writes.driver.cluster.now += 1.0
        sizes = writes.save(campaign)
        assert len(sizes) == 1 and max(sizes) <= 8192, sizes
    writes.driver.cluster.now += 60.0
    sizes = writes.save(campaign)
    assert len(sizes) == 1 and max(sizes) <= 65536, sizes
    writes.driver.restart()
    assert writes.driver.loop.rebalance.campaign == campaign


def test_clocks_are_not_written_and_what_the_osdmap_shows_waits_unless_something_is_sent() -> None:
    writes, campaign = Writes(), large()
    writes.save(campaign)
    assert writes.save(changed(campaign, turned=1.0, last_epoch=9)) == []
    # While PGs of others recover, for hours perhaps, every turn sees that they do.
    assert writes.save(replace(campaign, copying=Copying(degraded=1.7e9 + 5))) == []
    flights = campaign.flights.in_flight.items()
    arrived = without(changed(campaign, in_flight={
        pgid: replace(flight, confirmed=2.0) for pgid, flight in flights}), '1.1')
    assert writes.save(arrived, sending=False) == []
    paused = changed(arrived, paused=True)
    assert len(writes.save(paused, sending=False)) == 1
    later = without(paused, '1.2')
    assert writes.save(later, sending=False) == []
    writes.driver.cluster.now += 5.0
    assert len(writes.save(later, sending=False)) == 1
    assert len(writes.save(without(later, '1.3'), sending=True)) == 1


def test_a_new_phase_writes_what_cannot_be_pinned() -> None:
    writes, campaign = Writes(), large()
    writes.save(campaign)
    aborted = changed(campaign, phase=Phase.ABORTED, held=True, in_flight={},
                      unpinnable={'1.1388': Unpinnable('osd.0 is out')})
    assert len(writes.save(aborted)) == 2
    writes.driver.restart()
    assert writes.driver.loop.rebalance.campaign == aborted
