# SPDX-License-Identifier: LGPL-2.1-or-later
"""OSDMaps with one pool, and what osdmaptool makes of them."""
import re
import struct
import subprocess
from pathlib import Path
from typing import Dict, List, Mapping, Sequence

from perfguard.cluster.map_encoding import crc32c
from perfguard.cluster.types import OsdSet, UpmapEntry, seed_of

from .crushmaps import Map

POOL = 1
_ROW = re.compile(r'^(\d+\.[0-9a-f]+) raw \(\[([\d,]*)\]', re.MULTILINE)
_UPMAP = re.compile(r'^ceph osd pg-upmap-items (\S+) ([\d ]+)$', re.MULTILINE)


class OsdMapFile:
    """A map of osdmaptool. Its pool counts as replicated under any rule, which makes no difference
    to where PGs are placed, and to the checks of upmaps."""

    def __init__(self, directory: Path, osds: int, pg_bits: int, size: int) -> None:
        """`osds`: one more than the highest ID; `pg_bits`: the number of PGs is `osds` times the
        power of two."""
        self._path, self._directory = directory / 'osdmap', directory
        self._tool('--createsimple', str(osds), '--with-default-pool', '--clobber', '--pg-bits',
                   str(pg_bits), '--pgp-bits', str(pg_bits), '--osd_pool_default_size=%d' % size)

    def place(self, map_: Map) -> Dict[str, OsdSet]:
        """The raw sets under a CRUSH map, which the OSDMap then has."""
        text, crush = self._directory / 'crush.txt', self._directory / 'crush'
        text.write_text(map_.text())
        subprocess.run(['crushtool', '-c', str(text), '-o', str(crush)], check=True)
        self._tool('--import-crush', str(crush))
        out = self._tool('--mark-up-in', '--test-map-pgs-dump-all')
        return {pgid: tuple(map(int, osds.split(','))) for pgid, osds in _ROW.findall(out)}

    def balance(self) -> Dict[str, UpmapEntry]:
        """The upmaps of the balancer, repeated until it finds no more."""
        found = self._commands('--upmap', '--upmap-max', '1000000', '--upmap-deviation', '1')
        entries = {}
        for pgid, osds in _UPMAP.findall('\n'.join(found)):
            ids = [int(osd) for osd in osds.split()]
            entries[pgid] = UpmapEntry(tuple(zip(ids[::2], ids[1::2])))
        return entries

    def store_upmaps(self, entries: Mapping[str, UpmapEntry]) -> None:
        """Add upmaps to a map without any. They follow the CRUSH map and the profiles."""
        crush = self._directory / 'stored'
        self._tool('--export-crush', str(crush))
        encoded, placing = bytearray(self._path.read_bytes()), crush.read_bytes()
        at = _after_profiles(encoded, encoded.index(placing) + len(placing))
        assert encoded[at:at + 8] == bytes(8)
        vectors = {pgid: entry.vector for pgid, entry in entries.items() if entry.vector}
        pairs = {pgid: sum(entry.items, ()) for pgid, entry in entries.items() if entry.items}
        upmaps = _encoded(vectors, 1) + _encoded(pairs, 2)
        encoded[at:at + 8] = upmaps
        for length in (2, 8):  # of the whole, and of what clients read
            known, = struct.unpack_from('<I', encoded, length)
            struct.pack_into('<I', encoded, length, known + len(upmaps) - 8)
        struct.pack_into('<I', encoded, len(encoded) - 4, crc32c(bytes(encoded[:-4])))
        self._path.write_bytes(encoded)

    def cancelled(self) -> List[str]:
        """The commands with which the mons would remove upmaps."""
        return self._commands('--upmap-cleanup')

    def finds_more(self, deviation: int) -> bool:
        """Whether the balancer would move anything."""
        return bool(self._commands('--upmap', '--upmap-max', '1', '--upmap-deviation',
                                   str(deviation)))

    def _commands(self, action: str, *argv: str) -> List[str]:
        found = self._directory / 'commands'
        self._tool('--mark-up-in', action, str(found), *argv)
        return found.read_text().splitlines()

    def _tool(self, *argv: str) -> str:
        return subprocess.run(['osdmaptool', str(self._path), *argv], check=True,
                              stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                              universal_newlines=True).stdout


def _encoded(rows: Mapping[str, Sequence[int]], unit: int) -> bytes:
    """A map of lists of so many OSDs each."""
    return struct.pack('<I', len(rows)) + b''.join(
        struct.pack('<BqIiI%di' % len(osds), 1, POOL, seed_of(pgid), -1, len(osds) // unit, *osds)
        for pgid, osds in sorted(rows.items(), key=lambda row: seed_of(row[0])))


def _after_profiles(encoded: bytes, at: int) -> int:
    """Where the erasure code profiles end: a map of maps of strings."""
    def number(at: int) -> int:
        return int(struct.unpack_from('<I', encoded, at)[0])

    profiles, at = number(at), at + 4
    for _ in range(profiles):
        at += 4 + number(at)
        strings, at = 2 * number(at), at + 4
        for _ in range(strings):
            at += 4 + number(at)
    return at
