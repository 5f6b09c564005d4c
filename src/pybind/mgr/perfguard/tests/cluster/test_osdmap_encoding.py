# SPDX-License-Identifier: LGPL-2.1-or-later
"""Copies of an OSDMap with other numbers of PGs, or with OSDs that are up, read by osdmaptool."""
import json
import struct
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any, Dict

import pytest

from perfguard.cluster.crush_preview import CRUSHTOOL, OSDMAPTOOL, outlook
from perfguard.cluster.map_encoding import crc32c, pg_nums, with_osds_up, with_pg_nums
from perfguard.cluster.ports import Future
from perfguard.cluster.types import Osd, OsdMap, Pool, PoolPgs

OSDMAP = OsdMap(3, frozenset(), {1: Pool(1, 'rbd', False, 3, 2, 0, 64, 64, 64)}, {}, {}, {}, {})


@pytest.fixture(scope='module')
def encoded(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """A map with a pool of 64 PGs on eight OSDs in four hosts."""
    directory = tmp_path_factory.mktemp('maps')
    path, crush = str(directory / 'map'), str(directory / 'crush')
    for argv in (
            (OSDMAPTOOL, path, '--createsimple', '8', '--pg-bits', '3', '--pgp-bits', '3',
             '--with-default-pool'),
            (CRUSHTOOL, '--outfn', crush, '--build', '--num_osds', '8', 'host', 'straw2', '2',
             'root', 'straw2', '0'),
            (OSDMAPTOOL, path, '--import-crush', crush),
            # The first is saved along with the second only.
            (OSDMAPTOOL, path, '--mark-up-in', '--adjust-crush-weight', '0:1.0', '--save')):
        subprocess.run(argv, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                       timeout=30)
    return Path(path).read_bytes()


def dumped(data: bytes, path: Path) -> Dict[str, Any]:
    path.write_bytes(data)
    result = subprocess.run([OSDMAPTOOL, str(path), '--dump', 'json'], check=True, timeout=30,
                            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    found: Dict[str, Any] = json.loads(result.stdout[result.stdout.index(b'{'):])
    return found


def test_the_checksum_is_that_of_ceph(encoded: bytes) -> None:
    assert crc32c(b'123456789') == 0xE3069283 ^ 0xFFFFFFFF
    assert crc32c(encoded[:-4]) == int.from_bytes(encoded[-4:], 'little')


def test_only_the_numbers_of_the_pool_change(encoded: bytes, tmp_path: Path) -> None:
    assert pg_nums(encoded, 1) == PoolPgs(1, 64, 64)
    before = dumped(encoded, tmp_path / 'before')
    after = dumped(with_pg_nums(encoded, PoolPgs(1, 96, 80)), tmp_path / 'after')
    pool = after['pools'][0]
    assert (pool['pg_num'], pool['pg_placement_num']) == (96, 80)
    for name in ('pg_num', 'pg_placement_num', 'pg_num_pending'):
        before['pools'][0].pop(name), pool.pop(name)
    assert before['pools'] == after['pools'] and before['osds'] == after['osds']


@pytest.mark.parametrize('damage', [b'', b'short', bytes(60)])
def test_what_is_no_osdmap_is_refused(damage: bytes) -> None:
    with pytest.raises(ValueError):
        with_pg_nums(damage, PoolPgs(1, 96, 80))
    with pytest.raises(ValueError):
        with_osds_up(damage, [0])


def future(encoded: bytes, numbers: PoolPgs, osdmap: OsdMap = OSDMAP) -> Future:
    found = outlook(osdmap, lambda epoch: encoded, {}, None, lambda: False, False, numbers)
    assert isinstance(found, Future), found
    return found


def test_children_leave_the_osds_of_their_parents(encoded: bytes) -> None:
    found = future(encoded, PoolPgs(1, 96, 96)).pgs
    whole = {'1.%x' % seed for seed in range(96)}
    assert found and set(found) <= whole - {'1.%x' % seed for seed in range(64)}
    assert all(pg.acting != pg.raw and len(pg.raw) == 3 for pg in found.values())


def test_pgs_to_be_merged_end_on_the_same_osds(encoded: bytes) -> None:
    found = future(encoded, PoolPgs(1, 64, 32)).pgs
    now = future(with_pg_nums(encoded, PoolPgs(1, 64, 32)), PoolPgs(1, 64, 64)).pgs
    assert found and set(found) == set(now)
    for pgid, pg in found.items():
        # What moves there is what would move back, and to where it is.
        assert now[pgid].raw == pg.acting and now[pgid].acting == pg.raw


def with_osds_down(encoded: bytes, *osds: int) -> bytes:
    """osd.0 and the following ones were created one after the other, so their states are equal."""
    states = struct.pack('<8I', *[3] * 8)
    assert encoded.count(states) == 1
    changed = encoded.replace(states, struct.pack('<8I', *[
        3 - 2 * (osd in osds) for osd in range(8)]))
    return changed[:-4] + struct.pack('<I', crc32c(changed[:-4]))


def test_osds_that_are_down_are_up_in_the_copy(encoded: bytes, tmp_path: Path) -> None:
    down = with_osds_down(encoded, 2, 5)
    assert [osd['up'] for osd in dumped(down, tmp_path / 'down')['osds']] == [
        1, 1, 0, 1, 1, 0, 1, 1]
    assert with_osds_up(down, [2, 5]) == encoded
    with pytest.raises(ValueError):
        with_osds_up(encoded, [8])


@pytest.mark.parametrize('osd, returns', [
    (Osd(5, False, 1.0), True), (Osd(5, False, 0.0), False),
    (Osd(5, False, 1.0, destroyed=True), False)])
def test_a_preview_includes_osds_that_are_down_and_in(encoded: bytes, osd: Osd,
                                                      returns: bool) -> None:
    """Those that are out, or destroyed, do not return with their data."""
    def places(data: bytes, osdmap: OsdMap) -> Future:
        found = outlook(osdmap, lambda epoch: data, {0: 1.5}, None, lambda: False, True)
        assert isinstance(found, Future), found
        return found

    osds = {number: Osd(number, True, 1.0) for number in range(8)}
    before = places(encoded, replace(OSDMAP, osds=osds))
    after = places(with_osds_down(encoded, 5), replace(OSDMAP, osds={**osds, 5: osd}))
    lacking = [pgid for pgid, pg in (*after.pgs.items(), *after.others.items())
               if len(pg.acting) < 3]
    assert before.pgs and (before == after) is returns
    assert bool(lacking) is not returns
