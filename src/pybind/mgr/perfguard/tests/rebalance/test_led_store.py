# SPDX-License-Identifier: LGPL-2.1-or-later
"""What changes have led ahead is stored in parts: a turn writes what has changed."""
import random
from dataclasses import replace
from typing import Any, Dict, List

import pytest

from perfguard.cluster.types import UpmapEntry
from perfguard.codec import encode
from perfguard.rebalance.campaign import NO_CAMPAIGN, Campaign
from perfguard.rebalance.campaign_store import MOST_LED, SMALL_LED, CampaignStore, LedStore
from perfguard.rebalance.change import Led
from perfguard.rebalance.types import Phase
from perfguard.rebalance.weights import WeightChange
from perfguard.store import STORE_VERSION, Store

from ..fakes.campaigns import campaign_of
from ..fakes.cluster import MemoryKv
from ..test_campaign_writes import Writes


def led(number: int) -> Led:
    return Led(UpmapEntry(((number, 4000),)), UpmapEntry(((number, 4000), (number + 1, 4001))))


def with_ahead(campaign: Campaign, ahead: Dict[str, Led]) -> Campaign:
    return replace(campaign, change=WeightChange(weights={1: 0.0}, ahead=ahead))


def test_a_turn_writes_what_it_has_led_ahead_and_not_the_rest() -> None:
    """4,096 PGs with two pairs were 158 kB in 7 values, of each write."""
    writes, campaign = Writes(), campaign_of(1, Phase.RELEASING, 1.7e9, prepared=True)
    ahead = {'1.%x' % number: led(number) for number in range(3796)}
    writes.save(with_ahead(campaign, ahead))
    before, most = len(Store(writes.driver.kv).names('led/')), 0
    for number in range(3796, 4096):
        ahead = {**ahead, '1.%x' % number: led(number)}
        campaign = with_ahead(campaign, ahead)
        sizes = writes.save(campaign)
        assert len(sizes) == 2, sizes
        most = max(most, *sizes)
    assert most < 10000
    assert len(Store(writes.driver.kv).names('led/')) == before + 300 / SMALL_LED
    writes.driver.restart()
    assert writes.driver.loop.rebalance.campaign == campaign


def test_thousands_at_once_are_few_values() -> None:
    writes = Writes()
    campaign = with_ahead(campaign_of(1, Phase.RELEASING, 1.7e9, prepared=True),
                          {'1.%x' % number: led(number) for number in range(4096)})
    sizes = writes.save(campaign)
    assert len(sizes) <= 2 + 4096 / MOST_LED and max(sizes) < 60000


def test_documents_of_an_ended_campaign_are_removed_over_several_turns() -> None:
    kv, now = MemoryKv(), [0.0]
    stored = CampaignStore(Store(kv), lambda: now[0])
    stored.save(with_ahead(campaign_of(1, Phase.DONE, 1.7e9), {
        '1.%x' % number: led(number) for number in range(3 * MOST_LED)}))
    stored.remove()
    assert len(Store(kv).names('led/')) == 3 and not stored.is_tidy
    later = CampaignStore(Store(kv), lambda: now[0])
    # The next campaign begins meanwhile.
    assert later.load() == (NO_CAMPAIGN, []) and not later.is_tidy
    campaign = with_ahead(campaign_of(2, Phase.PINNED, 1.7e9), {'2.1': led(1)})
    later.save(campaign)
    reread = CampaignStore(Store(kv), lambda: now[0])
    assert reread.load() == (campaign, [])
    set_store = kv.set_store

    def slow(key: str, val: Any) -> None:
        now[0] += 1.0
        set_store(key, val)

    setattr(kv, 'set_store', slow)
    for left in (3, 2, 1):
        reread.tidy()
        assert len(Store(kv).names('led/')) == left
    assert reread.is_tidy


@pytest.mark.parametrize('lists', [None, [], [[1]], [[1], [], [], []], [1, 2, 3]])
def test_a_campaign_without_a_list_for_each_change_is_set_aside(lists: Any) -> None:
    kv = MemoryKv()
    Store(kv).put('campaign', {'led': lists, **encode(campaign_of(1, Phase.PINNED, 1.7e9))})
    store = Store(kv)
    campaign, (lost,) = CampaignStore(store, lambda: 0.0).load()
    assert campaign == NO_CAMPAIGN and lost.startswith('the campaign (')
    assert 'campaign' in store.unreadable


def test_a_document_that_cannot_be_read_loses_its_pgs_only() -> None:
    kv = MemoryKv()
    stored = CampaignStore(Store(kv), lambda: 0.0)
    ahead = {'1.%x' % number: led(number) for number in range(2 * MOST_LED)}
    stored.save(with_ahead(campaign_of(1, Phase.PINNED, 1.7e9), ahead))
    Store(kv).put('led/000001', ['nonsense'])
    campaign, lost = CampaignStore(Store(kv), lambda: 0.0).load()
    assert lost == ['led/000001'] and campaign.id
    assert campaign.ahead == dict(list(ahead.items())[MOST_LED:])


def test_documents_of_a_newer_version_stay() -> None:
    """An mgr of that version continues its campaign once it is active again."""
    kv = MemoryKv()
    CampaignStore(Store(kv), lambda: 0.0).save(with_ahead(
        campaign_of(1, Phase.PINNED, 1.7e9), {'1.1': led(1)}))
    for key in ('campaign/head', 'led/000001/head'):
        kv.data[key] = kv.data[key].replace(
            '"version": %d' % STORE_VERSION, '"version": %d' % (STORE_VERSION + 1))
    newer, store = dict(kv.data), Store(kv)
    assert CampaignStore(store, lambda: 0.0).load() == (NO_CAMPAIGN, [])
    assert kv.data == newer and {'campaign', 'led/000001'} <= store.written_by_newer


def test_a_document_that_is_missing_is_reported() -> None:
    kv = MemoryKv()
    CampaignStore(Store(kv), lambda: 0.0).save(with_ahead(
        campaign_of(1, Phase.PINNED, 1.7e9), {'1.1': led(1)}))
    Store(kv).remove('led/000001')
    campaign, lost = CampaignStore(Store(kv), lambda: 0.0).load()
    assert lost == ['led/000001, which is missing']
    assert not campaign.ahead


def test_documents_stay_until_the_mons_have_a_campaign_that_lists_others() -> None:
    kv = MemoryKv()
    store = Store(kv)
    stored = CampaignStore(store, lambda: 0.0)
    many = {'1.%x' % number: led(number) for number in range(200)}
    first = with_ahead(campaign_of(1, Phase.RELEASING, 1.7e9), many)
    stored.save(first)
    store.expect_nothing()
    second = with_ahead(first, dict(list(many.items())[50:]))
    head = kv.data['campaign/head']
    stored.save(second)
    stored.tidy()
    # The mons have not stored it.
    lost = MemoryKv()
    lost.data = {**kv.data, 'campaign/head': head}
    assert CampaignStore(Store(lost), lambda: 0.0).load() == (first, [])
    store.expect_nothing()
    stored.tidy()
    assert stored.is_tidy and len(store.names('led/')) == 1
    assert CampaignStore(Store(kv), lambda: 0.0).load() == (second, [])


@pytest.mark.parametrize('head', ['{', '{"version": 1, "document": {"phase": "nonsense"}}'])
def test_documents_are_set_aside_with_a_campaign_that_cannot_be_read(head: str) -> None:
    kv = MemoryKv()
    CampaignStore(Store(kv), lambda: 0.0).save(with_ahead(
        campaign_of(1, Phase.PINNED, 1.7e9), {'1.1': led(1)}))
    document = kv.data['led/000001/head']
    kv.data['campaign/head'] = head
    again = CampaignStore(Store(kv), lambda: 0.0)
    assert again.load()[0] == NO_CAMPAIGN
    again.tidy()
    assert kv.data['damaged/led/000001/head'] == document


@pytest.mark.parametrize('seed', range(30))
def test_every_history_of_changes_is_read_as_it_was_stored(seed: int) -> None:
    """Changes are begun, undone, and continued, with PGs that are led further."""
    choice, kv = random.Random(seed), MemoryKv()
    store = LedStore(Store(kv))
    mappings: List[Dict[str, Led]] = [{}, {}, {}]
    lists: List[Any] = [(), (), ()]
    for _ in range(60):
        step = choice.choice(['add', 'add', 'many', 'alter', 'begin', 'undo', 'back', 'restart',
                              'tidy', 'end'])
        change, back, undone = mappings
        if step in ('add', 'many'):
            count = choice.randrange(1, 3 if step == 'add' else 1200)
            mappings = [{**change, **{'1.%x' % choice.randrange(9999): led(choice.randrange(99))
                                      for _ in range(count)}}, back, undone]
        elif step == 'alter' and change:
            mappings = [{**change, choice.choice(list(change)): led(100)}, back, undone]
        elif step == 'begin':
            mappings = [{}, back, undone]
        elif step == 'undo':
            mappings = [back, {}, change]
        elif step == 'back':
            mappings = [undone, back, {}]
        elif step == 'end':
            mappings = [{}, {}, {}]
        if step == 'restart':
            store = LedStore(Store(kv))
            found, lost = store.load(lists)
            assert found == mappings and not lost
            mappings = [dict(each) for each in found] if choice.random() < 0.5 else \
                found  # type: ignore[assignment]
        elif step == 'tidy':
            store.tidy(lambda: choice.random() < 0.5)
        else:
            lists = store.put(mappings)
    found, lost = LedStore(Store(kv)).load(lists)
    assert found == mappings and not lost
    store.put([{}, {}, {}])
    store.tidy(lambda: True)
    assert not kv.data
