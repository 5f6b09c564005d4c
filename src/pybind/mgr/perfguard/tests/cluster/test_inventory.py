# SPDX-License-Identifier: LGPL-2.1-or-later
"""What the inventory reads from the statistics of pools, metadata of OSDs and the configuration."""
from typing import Dict, FrozenSet, List, Optional, Sequence, Tuple

import pytest

from perfguard.cluster.crush import CrushRules
from perfguard.cluster.inventory import (ConfigTarget, _pool, client_releases, db_drives,
                                         device_ids, devices_of, drive_id, drive_model, in_force,
                                         pool_row, pool_space, scarcest_domains, shared_bytes,
                                         shared_ratios, store_layout)
from perfguard.cluster.types import ConfigEntry, Pool

from .test_crush import DUMP, EMIT, step, take, with_rule


class Mgr:
    """An mgr that knows the pool's objects, and clones among them."""

    def __init__(self, space: Dict[str, int], objects: int, clones: int) -> None:
        self._space = space
        self._sum = {'num_objects': objects, 'num_object_clones': clones}

    def get(self, name: str) -> object:
        if name == 'df':
            return {'pools': [{'id': 1, 'stats': self._space}]}
        assert name == 'pool_stats'
        return {'pool_stats': [{'poolid': 1, 'stat_sum': self._sum}]}


@pytest.mark.parametrize('space, objects, shared', [
    ({}, (0, 0), 0),
    # Each object takes a little more than is stored.
    ({'stored_raw': 1000, 'bytes_used': 1040}, (10, 9), 0),
    ({'stored_raw': 3000, 'bytes_used': 1100}, (10, 9), 1900),
    # Sparse objects, or space that is not reported yet.
    ({'stored_raw': 3000, 'bytes_used': 1100}, (10, 0), 0),
    ({'stored_raw': 3000, 'bytes_used': 1100}, (10, 1), 300),
    # Compression saves 600 bytes.
    ({'stored_raw': 1000, 'bytes_used': 400, 'compress_under_bytes': 1000,
      'compress_bytes_used': 400}, (10, 9), 0),
    ({'stored_raw': 3000, 'bytes_used': 1400, 'compress_under_bytes': 1000,
      'compress_bytes_used': 400}, (10, 9), 1000)])
def test_bytes_that_clones_share(space: Dict[str, int], objects: Tuple[int, int], shared: int
                                 ) -> None:
    mgr = Mgr(space, *objects)
    assert shared_bytes(mgr, {1: space}) == ({1: shared} if shared else {})
    assert shared_ratios(mgr) == (
        {1: shared / space['stored_raw']} if shared else {})


@pytest.mark.parametrize('space, found', [
    ({}, 0), ({'stored': 77}, 0),
    # Allocation units, compression, and clones.
    ({'stored_raw': 1000, 'bytes_used': 3000}, 2000),
    ({'stored_raw': 1000, 'bytes_used': 600, 'compress_under_bytes': 1000,
      'compress_bytes_used': 600}, 400),
    ({'stored_raw': 3000, 'bytes_used': 1200}, 2000)])
def test_space_of_one_copy(space: Dict[str, int], found: int) -> None:
    assert pool_space(Pool(1, 'ec', True, 6, 5, 0, 8, 8, 8, data_shards=4), space) == found


@pytest.mark.parametrize('rule, size, domains', [
    (0, 3, ('host', 3, 4)), (2, 3, ('host', 3, 4)), (3, 3, ('osd', 3, 8)),
    # Two hosts in each of two racks: no other rack can take what one of them held.
    (1, 4, ('rack', 2, 2)),
    # Several trees.
    (4, 2, ('', 0, 0))])
def test_failure_domains_that_a_pool_needs_and_has(rule: int, size: int,
                                                   domains: Tuple[str, int, int]) -> None:
    assert scarcest_domains(rule, size, CrushRules.from_dump(DUMP)) == domains


@pytest.mark.parametrize('steps, size, domains', [
    # As many racks, or hosts, as there are: CRUSH passes over those that it does not find.
    ((step('choose_firstn', 0, 'rack'), step('chooseleaf_firstn', 2, 'host')), 4, ('rack', 2, 2)),
    ((step('choose_indep', 3, 'rack'), step('chooseleaf_indep', 2, 'host')), 4, ('rack', 2, 2)),
    ((step('choose_indep', 0, 'host'), step('choose_indep', 2, 'osd')), 8, ('host', 4, 4)),
    ((step('choose_firstn', 0, 'rack'), step('chooseleaf_firstn', 1, 'host')), 3,
     ('rack', 3, 2))])
def test_a_step_may_choose_more_buckets_than_a_pg_needs(
        steps: Sequence[Dict[str, object]], size: int, domains: Tuple[str, int, int]) -> None:
    assert scarcest_domains(0, size, with_rule(take(-1), *steps, EMIT)) == domains


# ---- the configuration database

OSD_3 = ConfigTarget(3, 'hdd', (('host', 'h1'), ('rack', 'r0'), ('root', 'default')))


@pytest.mark.parametrize('places, place', [
    # The section precedes the mask.
    ([('global', ''), ('osd', '')], ('osd', '')),
    ([('osd.3', ''), ('osd', 'host:h1'), ('osd', '')], ('osd.3', '')),
    ([('global', 'host:h1'), ('osd', '')], ('osd', '')),
    # A lower bucket precedes a higher one, and any of them a device class.
    ([('osd', 'rack:r0'), ('osd', 'host:h1'), ('osd', 'root:default')], ('osd', 'host:h1')),
    ([('osd', 'class:hdd'), ('osd', 'root:default')], ('osd', 'root:default')),
    ([('osd', ''), ('osd', 'class:hdd')], ('osd', 'class:hdd')),
    ([('osd', 'class:hdd/rack:r0'), ('osd', 'root:default')], ('osd', 'class:hdd/rack:r0')),
    # Of equal ones, the later in the store of the mons: "osd/host:h1/osd_..." follows
    # "osd/host:h1/class:hdd/osd_...".
    ([('osd', 'host:h1'), ('osd', 'host:h1/class:hdd')], ('osd', 'host:h1')),
    # They are not for this OSD.
    ([('osd.4', ''), ('mgr', ''), ('osd', 'host:h2'), ('osd', 'class:ssd'), ('osd', 'rack:h1'),
      ('osd', 'class:ssd/host:h1')], None),
    ([('osd', 'host:h1/class:ssd'), ('global', '')], ('global', '')), ([], None)])
def test_the_entry_that_is_in_force(places: List[Tuple[str, str]],
                                    place: Optional[Tuple[str, str]]) -> None:
    entries = [ConfigEntry(section, mask, 'osd_max_backfills', '1') for section, mask in places]
    for given in (entries, entries[::-1]):
        entry = in_force(given, OSD_3)
        assert (entry and (entry.section, entry.mask)) == place


# ---- devices of OSDs

DRIVES = {'hostname': 'h1', 'bluestore_bdev_devices': 'sda', 'bluefs_dedicated_db': '1',
          'bluefs_db_devices': 'nvme0n1', 'bluefs_dedicated_wal': '1',
          'bluefs_wal_devices': 'nvme1n1',
          'device_ids': 'nvme0n1=ACME_DB_S2,sda=ACME_HD_10_S1,nvme1n1=ACME_WAL_S3'}


@pytest.mark.parametrize('change, model, drives', [
    ({}, 'ACME_HD_10', {'nvme0n1', 'nvme1n1'}),
    # One drive is not that of the DB or the WAL.
    ({'bluestore_bdev_devices': ''}, 'ACME_HD_10', {'nvme0n1', 'nvme1n1'}),
    ({'bluestore_bdev_devices': '', 'bluefs_dedicated_wal': '0'}, '', {'nvme0n1'}),
    # It has no id.
    ({'device_ids': 'nvme0n1=ACME_DB_S2,sda='}, '', {'nvme0n1', 'nvme1n1'}),
    ({'device_ids': 'nvme0n1=ACME_DB_S2,sda'}, '', {'nvme0n1', 'nvme1n1'}),
    ({'bluefs_dedicated_db': '0', 'bluefs_dedicated_wal': '0', 'device_ids': 'sdb=ACME_HD_S1'},
     'ACME_HD', set())])
def test_the_model_of_an_osd_is_that_of_its_main_drive(change: Dict[str, str], model: str,
                                                       drives: FrozenSet[str]) -> None:
    metadata = {**DRIVES, **change}
    assert (drive_model(metadata), db_drives(metadata)) == (model, drives)


def test_the_devices_of_an_osd() -> None:
    assert drive_id(DRIVES) == 'ACME_HD_10_S1' and drive_id({}) == ''
    assert devices_of(DRIVES) == ('h1:sda', 'h1:nvme0n1', 'h1:nvme1n1')
    assert device_ids(DRIVES) == {'h1:sda': 'ACME_HD_10_S1', 'h1:nvme0n1': 'ACME_DB_S2',
                                  'h1:nvme1n1': 'ACME_WAL_S3'}
    shared = {**DRIVES, 'bluestore_bdev_devices': 'sda,sdb', 'bluefs_db_devices': 'sdb,,nvme1n1',
              'device_ids': 'nvme1n1=ACME_WAL_S3'}
    assert devices_of(shared) == ('h1:sda', 'h1:sdb', 'h1:nvme1n1')
    assert device_ids(shared) == {'h1:nvme1n1': 'ACME_WAL_S3'}
    assert devices_of({}) == () and device_ids({}) == {}


@pytest.mark.parametrize('metadata, layout', [
    ({}, ''), ({'osd_objectstore': 'bluestore', 'bluefs_dedicated_db': '0'}, 'bluestore'),
    ({'osd_objectstore': 'bluestore', 'bluefs_dedicated_db': '1', 'bluefs_db_rotational': '0',
      'bluefs_dedicated_wal': '1', 'bluefs_wal_rotational': '1'},
     'bluestore, DB on flash, WAL on disk')])
def test_the_layout_of_a_store(metadata: Dict[str, str], layout: str) -> None:
    assert store_layout(metadata) == layout


def test_clients_by_release() -> None:
    assert client_releases('') == {} and client_releases('{"osd": []}') == {}
    assert client_releases('{"client": [{"release": "luminous", "num": 3},'
                           ' {"release": "reef", "num": 1}, {"release": "luminous", "num": 2}]}') \
        == {'luminous': 5, 'reef': 1}


def test_a_replicated_pool_may_name_its_rule_as_profile() -> None:
    """As those from before Mimic do."""
    dumped = pool_row({'pool': 1, 'pool_name': 'rbd', 'crush_rule': 0, 'size': 2, 'pg_num': 8,
                       'erasure_code_profile': 'replicated_rule'})
    assert not _pool(dumped, Pool(1, 'rbd', False, 2, 1, 0, 8, 8, 8), {(0, 2): ('host', 2, 4)},
                     frozenset(), {}, 0).erasure
