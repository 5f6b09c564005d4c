# SPDX-License-Identifier: LGPL-2.1-or-later
"""Mappings with hosts that are not there, and without OSDs: by Ceph's tools, against OSDMaps in
which the OSDs exist, or have no CRUSH weight."""
import json
import struct
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any, Dict, List, Mapping, Tuple

import pytest

from perfguard.cluster.crush_preview import (CRUSHTOOL, OSDMAPTOOL, _Tools, _tools, _with_hosts,
                                             grown, outlook, shrunk)
from perfguard.cluster.map_encoding import (_states_at, _with_checksum, with_osds_out,
                                            with_pg_nums)
from perfguard.cluster.ports import Future, FuturePg, Grown, NewHost, NewHosts, NoFuture
from perfguard.cluster.types import Osd, OsdMap, OsdSet, Pool, PoolPgs

PGS = 192
POOL = Pool(1, 'rbd', False, 3, 2, 0, PGS, PGS, PGS)
OSDMAP = OsdMap(1, frozenset(), {1: POOL}, {osd: Osd(osd, True, 1.0) for osd in range(8)}, {}, {},
                {})
NEW = NewHosts((NewHost('new1', ('root', 'root'), (8, 9)),
                NewHost('new2', ('root', 'root'), (10, 11))), 1.5, 'hdd')


def run(*argv: str) -> bytes:
    return subprocess.run(argv, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                          timeout=30).stdout


class Maps:
    """OSDMaps with 12 OSDs and a pool on those of a class, of which CRUSH has eight in four
    hosts."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        built, classes, self.crush = (str(directory / name) for name in ('1', '2', 'crush'))
        run(CRUSHTOOL, '--outfn', built, '--build', '--num_osds', '8', 'host', 'straw2', '2',
            'root', 'straw2', '0')
        run(CRUSHTOOL, '-i', built, '--remove-rule', 'replicated_rule', '--set-subtree-class',
            'root', 'hdd', '--rebuild-class-roots', '-o', classes)
        run(CRUSHTOOL, '-i', classes, '--rebuild-class-roots', '-o', built)
        run(CRUSHTOOL, '-i', built, '--create-replicated-rule', 'r', 'root', 'host',
            '--device-class', 'hdd', '-o', self.crush)

    def encoded(self, crush: str) -> bytes:
        path = str(self.directory / 'map')
        run(OSDMAPTOOL, path, '--createsimple', '12', '--pg-bits', '4', '--pgp-bits', '4',
            '--with-default-pool', '--clobber')
        run(OSDMAPTOOL, path, '--import-crush', crush)
        # The first is saved along with the second only.
        run(OSDMAPTOOL, path, '--mark-up-in', '--adjust-crush-weight', '0:1.0', '--save')
        return Path(path).read_bytes()

    def enlarged(self) -> str:
        """CRUSH with the OSDs of NEW, added as for a cluster that has them."""
        path = self.crush
        for host in NEW.hosts:
            for osd in host.osds:
                run(CRUSHTOOL, '-i', path, '--add-item', str(osd), '1.5', 'osd.%d' % osd, '--loc',
                    'host', host.name, '--loc', 'root', 'root', '-o', path + '+')
                path += '+'
        run(CRUSHTOOL, '-i', path, '--set-subtree-class', 'root', 'hdd', '--rebuild-class-roots',
            '-o', path + 'c')
        run(CRUSHTOOL, '-i', path + 'c', '--rebuild-class-roots', '-o', path + 't')
        return path + 't'


@pytest.fixture(scope='module')
def maps(tmp_path_factory: pytest.TempPathFactory) -> Maps:
    return Maps(tmp_path_factory.mktemp('maps'))


@pytest.fixture(scope='module')
def encoded(maps: Maps) -> bytes:
    return maps.encoded(maps.crush)


def enlarged_by(encoded: bytes, osdmap: OsdMap = OSDMAP, new: NewHosts = NEW) -> Any:
    return grown(osdmap, lambda epoch: encoded, new, lambda: False)


def every(future: Future) -> Dict[str, FuturePg]:
    assert not future.pgs.keys() & future.others.keys()
    return {**future.pgs, **future.others}


def placed(encoded: bytes, osdmap: OsdMap = OSDMAP) -> Dict[str, OsdSet]:
    """Where osdmaptool places all PGs."""
    found = outlook(osdmap, lambda epoch: encoded, {}, None, lambda: False, True)
    assert isinstance(found, Future), found
    return {pgid: pg.raw for pgid, pg in every(found).items()}


@pytest.mark.parametrize('pgp_num', [PGS, 160, 1])
def test_pgs_are_where_they_are_once_the_osds_exist(maps: Maps, encoded: bytes,
                                                    pgp_num: int) -> None:
    numbers = PoolPgs(1, PGS, pgp_num)
    osdmap = replace(OSDMAP, pools={1: replace(POOL, pgp_num=pgp_num)})
    found = enlarged_by(with_pg_nums(encoded, numbers), osdmap)
    assert isinstance(found, Grown), found
    pgs = every(found.future)
    now = placed(with_pg_nums(encoded, numbers))
    later = placed(with_pg_nums(maps.encoded(maps.enlarged()), numbers))
    assert {pgid: pg.raw for pgid, pg in pgs.items()} == later
    assert {pgid: pg.present for pgid, pg in pgs.items()} == now
    assert set(found.future.pgs) == {pgid for pgid in now if now[pgid] != later[pgid]}


def test_osds_that_are_out_or_have_a_reweight_count(maps: Maps, encoded: bytes) -> None:
    osds = {**OSDMAP.osds, 3: Osd(3, True, 0.0)}
    found = enlarged_by(with_osds_out(encoded, [3]), replace(OSDMAP, osds=osds))
    assert isinstance(found, Grown), found
    later = placed(with_osds_out(maps.encoded(maps.enlarged()), [3]))
    assert {pgid: pg.raw for pgid, pg in every(found.future).items()} == later
    # The same without the reweight is noticed: crushtool then places PGs elsewhere now.
    found = enlarged_by(with_osds_out(encoded, [3]))
    assert isinstance(found, NoFuture) and 'elsewhere than the OSDMap' in found.reason


def with_reweight(encoded: bytes, osd: int, units: int, state: int = 3) -> bytes:
    """`units`: of 1/65536; `state`: 1 (it exists) and 2 (it is up)."""
    changed = bytearray(encoded)
    at, number = _states_at(encoded)
    struct.pack_into('<I', changed, at + 4 * osd, state)
    struct.pack_into('<I', changed, at + 4 * number + 4 + 4 * osd, units)
    return _with_checksum(changed)


def test_an_osd_that_was_removed_and_is_still_in_crush_gets_no_pg(
        maps: Maps, encoded: bytes) -> None:
    osds = {osd: row for osd, row in OSDMAP.osds.items() if osd != 3}
    found = enlarged_by(with_reweight(encoded, 3, 0, 0), replace(OSDMAP, osds=osds))
    assert isinstance(found, Grown), found
    later = placed(with_reweight(maps.encoded(maps.enlarged()), 3, 0, 0))
    assert {pgid: pg.raw for pgid, pg in every(found.future).items()} == later


def test_crushtool_is_given_the_reweight_itself(
        encoded: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """With six digits it takes one of 60,000 units for 59,999."""
    given: List[str] = []
    run_tool = _Tools.run

    def noted(tools: _Tools, *argv: str, **others: Any) -> Path:
        given.extend(argv[argv.index('--weight') + 2:][:1] if '--weight' in argv else ())
        return run_tool(tools, *argv, **others)

    monkeypatch.setattr(_Tools, 'run', noted)
    osds = {**OSDMAP.osds, 3: Osd(3, True, 60000 / 65536)}
    found = enlarged_by(with_reweight(encoded, 3, 60000), replace(OSDMAP, osds=osds))
    assert isinstance(found, Grown), found
    assert given and {int(float(text) * 65536) for text in given} == {60000}


def test_crush_has_the_hosts_before_their_osds_have_a_weight(encoded: bytes) -> None:
    found = enlarged_by(encoded)
    before, after = found.crush, found.future.crush
    for osd in NEW.osds:
        assert (before.weights()[osd], after.weights()[osd]) == (0.0, 1.5)
        assert before.weight_of(0, osd) == 0.0 and after.weight_of(0, osd) == 1.5
        assert before.class_of(osd) == after.class_of(osd) == 'hdd'
        assert before.host_of(osd) == ('new1' if osd < 10 else 'new2')
    assert all(before.weights()[osd] == after.weights()[osd] == 1.0 for osd in range(8))


RACKS = ('rack', 'rack0'), ('rack', 'rack1')


def built(directory: Path, osds: int, *layers: str) -> Path:
    path = directory / 'built'
    run(CRUSHTOOL, '--outfn', str(path), '--build', '--num_osds', str(osds), *layers)
    return path


def dumped(path: Path) -> Any:
    return json.loads(run(CRUSHTOOL, '-i', str(path), '--dump'))


def added_one_by_one(path: Path, new: NewHosts) -> Any:
    added = path.with_name('added')
    added.write_bytes(path.read_bytes())
    for host in new.hosts:
        for osd in host.osds:
            run(CRUSHTOOL, '-i', str(added), '--add-item', str(osd), repr(new.weight),
                'osd.%d' % osd, '--loc', 'host', host.name, '--loc', *host.parent,
                '-o', str(added))
    return dumped(added)


def added(path: Path, new: NewHosts) -> Tuple[Any, int]:
    """The map, and the number of runs of tools."""
    with _tools(lambda: False) as tools:
        enlarged = dumped(_with_hosts(tools, path, new))
        return enlarged, tools._runs


@pytest.mark.parametrize('osds', [8, 40])
@pytest.mark.parametrize('weight', [10.9138, 0.0001])
def test_one_run_per_host_adds_osds(osds: int, weight: float, tmp_path: Path) -> None:
    path = built(tmp_path, osds, 'host', 'straw2', '2', 'rack', 'straw2', '2', 'root', 'straw2',
                 '0')
    for name in ('osd.2', 'osd.3', 'host1'):  # a slot is free in the middle
        run(CRUSHTOOL, '-i', str(path), '--remove-item', name, '-o', str(path))
    hosts = tuple(NewHost('new%d' % number, RACKS[number % 2],
                          tuple(range(osds + 4 * number, osds + 4 * number + 3)))
                  for number in range(6))
    new = NewHosts(hosts, weight, '')
    assert added(path, new) == (added_one_by_one(path, new), len(hosts))


def test_osds_are_added_beside_the_trees_of_classes(maps: Maps, tmp_path: Path) -> None:
    path = tmp_path / 'classes'
    path.write_bytes(Path(maps.crush).read_bytes())
    new = NEW._replace(device_class='')
    assert added(path, new) == (added_one_by_one(path, new), len(new.hosts))


def test_a_tool_that_cannot_add_an_osd_is_a_reason(encoded: bytes) -> None:
    bad = NEW._replace(hosts=(NewHost('no name', ('root', 'root'), (8, 9)),))
    found = enlarged_by(encoded, new=bad)
    assert isinstance(found, NoFuture)
    # crushtool logs "not a valid crush name" from another thread, before or after this.
    assert CRUSHTOOL in found.reason and '/bin/sh' not in found.reason


def test_pgs_with_an_upmap_are_listed(encoded: bytes) -> None:
    found = enlarged_by(encoded)
    stays = next(iter(found.future.others))
    osdmap = replace(OSDMAP, upmap_items={stays: ((1, 2),)})
    assert stays in enlarged_by(encoded, osdmap).future.pgs


def test_a_class_without_pools_gets_no_pg(encoded: bytes) -> None:
    found = enlarged_by(encoded, new=NEW._replace(device_class='ssd'))
    assert not found.future.pgs and found.future.crush.class_of(8) == 'ssd'


@pytest.mark.parametrize('lost', [(5,), (4, 5), (0, 1, 2, 3, 4, 5, 6, 7)])
def test_lost_osds_get_no_pg(maps: Maps, encoded: bytes, lost: Tuple[int, ...]) -> None:
    """Out, OSDs keep their weight in CRUSH, so others get other shares than with weight 0."""
    found = shrunk(OSDMAP, lambda epoch: encoded, frozenset(lost), lambda: False)
    assert isinstance(found, Future), found
    assert found.crush.weights()[lost[0]] == 1.0
    path = str(maps.directory / 'map')
    Path(path).write_bytes(encoded)
    if len(lost) == 1:
        # The tool's own option takes one OSD.
        run(OSDMAPTOOL, path, '--mark-out', str(lost[0]), '--adjust-crush-weight', '0:1.0',
            '--save')
        assert placed(Path(path).read_bytes()) == {
            pgid: pg.raw for pgid, pg in every(found).items()}
    now = placed(encoded)
    for pgid, pg in every(found).items():
        assert not set(pg.raw) & set(lost)
        assert pg.acting == now[pgid] and pg.present in ((), now[pgid])
        assert (pgid in found.pgs) is (pg.raw != now[pgid])
        assert len(pg.raw) == (3 if len(lost) < 8 else 0)


def test_only_the_reweights_change(encoded: bytes, tmp_path: Path) -> None:
    def dumped(data: bytes) -> Mapping[str, Any]:
        path = tmp_path / 'map'
        path.write_bytes(data)
        out = run(OSDMAPTOOL, str(path), '--dump', 'json')
        found: Mapping[str, Any] = json.loads(out[out.index(b'{'):])
        return found

    before, after = dumped(encoded), dumped(with_osds_out(encoded, [2, 11]))
    assert [osd['in'] for osd in after['osds']] == [osd not in (2, 11) for osd in range(12)]
    for osds in (before['osds'], after['osds']):
        for osd in osds:
            osd.pop('in'), osd.pop('weight')
    assert before == after
    with pytest.raises(ValueError):
        with_osds_out(encoded, [12])
    with pytest.raises(ValueError):
        with_osds_out(b'short', [0])
