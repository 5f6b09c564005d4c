# SPDX-License-Identifier: LGPL-2.1-or-later
"""A real mon and mgr with the OSDMap of a large cluster, and no OSD daemon.

The mons believe what an OSDMap says: OSDs that are up in it are up until something reports them
down. So a map of thousands of OSDs is made with Ceph's own tools, put into the mon's store while
the mon is stopped, and served to the mgr like any other. PGs of such a cluster are `unknown`
(there is no OSD to report them), but they map to OSDs as those of the large cluster would.
"""
import re
import struct
from pathlib import Path
from typing import Dict, Iterator, List, NamedTuple, Tuple

from perfguard.cluster.map_encoding import crc32c
from qa.cluster import Cluster
from qa.cluster.connection import parse

OSDS_PER_HOST, HOSTS_PER_RACK = 10, 20
#: Commands that the mon gets at once: it commits those that arrive together in one epoch.
BURST = 2000
#: At this size the mon takes some milliseconds to check each upmap.
UPMAP_BURST = 100
POOL_PGS_MAX = 65536
#: What OSDs of Pacific and later report (osd_xinfo[].features in `ceph osd dump`). The mon asserts
#: that every OSD which is up has the features of Luminous.
OSD_FEATURES = 0x3f01cfbf7ffdffff
#: osd_xinfo_t, version 4 (src/osd/OSDMap.h): six bytes of version and length, then down_stamp
#: (8 bytes), laggy_probability (4), laggy_interval (4), features (8), old_weight (4),
#: last_purged_snaps_scrub (8), dead_epoch (4).
XINFO = b'\4\1\x28\0\0\0'
XINFO_BYTES, FEATURES_OFFSET = 46, 22
#: OSDs never report here, and the mon must not wait for it.
CONF = {'mon': {'mon osd report timeout': 10 ** 7, 'mon max pool pg num': POOL_PGS_MAX,
                'mon osd max initial pgs': POOL_PGS_MAX}}


class Shape(NamedTuple):
    """The last `new` of the `osds` OSDs are empty hosts of CRUSH weight 0."""
    osds: int
    pgs: int
    upmaps: int
    new: int


def boot(release: str, shape: Shape, conf: Dict[str, Dict[str, str]]) -> Cluster:
    """A cluster with a map of this shape; raises ClusterError where a tool refuses it."""
    cluster = Cluster.up(release, osds=0, hosts=1, conf={
        **conf, 'mon': {**CONF['mon'], **conf.get('mon', {})}})
    try:
        _fill(cluster, shape)
    except BaseException:
        cluster.down()
        raise
    return cluster


def _fill(cluster: Cluster, shape: Shape) -> None:
    order(cluster, [{'prefix': 'osd create'}] * shape.osds)
    _set_crush(cluster, shape, 1.0)
    count = -(-shape.pgs // POOL_PGS_MAX)
    order(cluster, [{'prefix': 'osd pool create', 'pool': 'pool%d' % i, 'size': 3,
                     'pg_num': shape.pgs // count, 'pgp_num': shape.pgs // count,
                     'pool_type': 'replicated', 'rule': 'replicated_rule',
                     'autoscale_mode': 'off'} for i in range(count)])
    _mark_up(cluster, shape)
    # osdmaptool gives OSDs of weight 0 a weight when it marks them up.
    _set_crush(cluster, shape, 0.0)
    order(cluster, list(upmaps(cluster, shape)), UPMAP_BURST)


def order(cluster: Cluster, commands: List[Dict[str, object]], burst: int = BURST) -> None:
    for start in range(0, len(commands), burst):
        part = commands[start:start + burst]
        for command, reply in zip(part, cluster.burst(part)):
            parse(reply, str(command['prefix']))


def _run(cluster: Cluster, *command: str) -> str:
    return cluster.run_tool(list(command), timeout=600.0)


# -- CRUSH

def crush_text(shape: Shape, new_weight: float) -> str:
    """The CRUSH map in the language of crushtool: racks of 20 hosts of ten OSDs."""
    tunables = {'choose_local_tries': 0, 'choose_local_fallback_tries': 0,
                'choose_total_tries': 50, 'chooseleaf_descend_once': 1, 'chooseleaf_vary_r': 1,
                'chooseleaf_stable': 1, 'straw_calc_version': 1}
    hosts = range(-(-shape.osds // OSDS_PER_HOST))
    old = (shape.osds - shape.new) // OSDS_PER_HOST
    lines = ['tunable %s %d' % each for each in tunables.items()]
    lines += ['device %d osd.%d class hdd' % (osd, osd) for osd in range(shape.osds)]
    lines += ['type 0 osd', 'type 1 host', 'type 3 rack', 'type 11 root']
    weight = [1.0 if host < old else new_weight for host in hosts]
    for host in hosts:
        lines += _bucket('host h%d' % host, -2 - host, [
            ('osd.%d' % osd, weight[host]) for osd in range(
                host * OSDS_PER_HOST, min(shape.osds, (host + 1) * OSDS_PER_HOST))])
    racks = [hosts[start:start + HOSTS_PER_RACK]
             for start in range(0, len(hosts), HOSTS_PER_RACK)]
    for number, rack in enumerate(racks):
        lines += _bucket('rack r%d' % number, -2 - len(hosts) - number, [
            ('h%d' % host, OSDS_PER_HOST * weight[host]) for host in rack])
    lines += _bucket('root default', -1, [
        ('r%d' % number, OSDS_PER_HOST * sum(weight[host] for host in rack))
        for number, rack in enumerate(racks)])
    lines += ['rule replicated_rule {', 'id 0', 'type replicated', 'min_size 1', 'max_size 10',
              'step take default', 'step chooseleaf firstn 0 type host', 'step emit', '}']
    return '\n'.join(lines) + '\n'


def _bucket(name: str, number: int, items: List[Tuple[str, float]]) -> Iterator[str]:
    yield from ('%s {' % name, 'id %d' % number, 'alg straw2', 'hash 0')
    yield from ('item %s weight %.3f' % item for item in items)
    yield '}'


def _set_crush(cluster: Cluster, shape: Shape, new_weight: float) -> None:
    text, binary = (cluster.directory / name for name in ('crush.txt', 'crush.bin'))
    text.write_text(crush_text(shape, new_weight))
    _run(cluster, 'crushtool', '-c', str(text), '-o', str(binary))
    parse(cluster.command('mon', {'prefix': 'osd setcrushmap'}, binary.read_bytes()),
          'osd setcrushmap')


# -- OSDs that are up

def _mark_up(cluster: Cluster, shape: Shape) -> None:
    path = cluster.directory / 'osdmap'
    cluster.ceph('osd', 'getmap', '-o', str(path), timeout=120)
    # It writes the map only if it changed something in CRUSH as well.
    out = _run(cluster, 'osdmaptool', str(path), '--mark-up-in',
               '--adjust-crush-weight', '0:1', '--save')
    found = re.search(r'writing epoch (\d+)', out)
    assert found is not None, out
    path.write_bytes(with_features(path.read_bytes(), shape.osds))
    pools = sorted(pool['pool'] for pool in cluster.osd_dump()['pools'])
    _replace_map(cluster, path, int(found.group(1)), pools)


def with_features(osdmap: bytes, osds: int) -> bytes:
    """An encoded OSDMap whose OSDs all report OSD_FEATURES."""
    start = osdmap.find(b''.join([XINFO + bytes(XINFO_BYTES - len(XINFO))] * osds))
    if start < 0:
        raise ValueError('this OSDMap has no %d OSDs that never booted' % osds)
    changed = bytearray(osdmap)
    for osd in range(osds):
        struct.pack_into('<Q', changed, start + osd * XINFO_BYTES + FEATURES_OFFSET, OSD_FEATURES)
    struct.pack_into('<I', changed, len(changed) - 4, crc32c(bytes(changed[:-4])))
    return bytes(changed)


def nothing_to_create(epoch: int, pools: List[int]) -> bytes:
    """The mon's list of PGs that OSDs have not created yet, encoded: none, in any pool.

    Otherwise it works through tens of thousands of them at each epoch. creating_pgs_t, version 3
    (src/mon/CreatingPGs.h): last_scan_epoch, pgs, created_pools, queue, pending.
    """
    body = struct.pack('<III%dqII' % len(pools), epoch, 0, len(pools), *pools, 0, 0)
    return struct.pack('<BBI', 3, 1, len(body)) + body


def _replace_map(cluster: Cluster, path: Path, epoch: int, pools: List[int]) -> None:
    """Let the mon begin with this map when it starts, as if the map were its own."""
    mgr = cluster.active_mgr()
    cluster.kill('mgr.%s' % mgr)
    cluster.kill('mon.a')
    store = ('ceph-kvstore-tool', 'rocksdb', str(cluster.directory / 'data/mon.a/store.db'),
             'set')
    _run(cluster, *store, 'osdmap', 'full_%d' % epoch, 'in', str(path))
    for key in ('full_latest', 'last_committed'):
        _run(cluster, *store, 'osdmap', key, 'ver', str(epoch))
    creating = cluster.directory / 'creating'
    creating.write_bytes(nothing_to_create(epoch, pools))
    _run(cluster, *store, 'osd_pg_creating', 'creating', 'in', str(creating))
    cluster.start('mon.a')
    cluster.start('mgr.%s' % mgr)
    cluster.wait(lambda: cluster.mon('osd stat')['num_up_osds'], 120, 'OSDs up in the map')
    cluster.wait(lambda: cluster.mon('mgr dump')['available'], 300, 'an active mgr')


# -- upmaps

def upmaps(cluster: Cluster, shape: Shape) -> Iterator[Dict[str, object]]:
    """Pin every so-manieth PG's first OSD to the one a few hosts further on."""
    path = cluster.directory / 'osdmap'
    cluster.ceph('osd', 'getmap', '-o', str(path), timeout=120)
    out = _run(cluster, 'osdmaptool', str(path), '--test-map-pgs-dump')
    rows = re.findall(r'^(\d+\.[0-9a-f]+)\s+\[([\d,]+)\]', out, re.M)
    old = (shape.osds - shape.new) // OSDS_PER_HOST
    step = max(1, len(rows) // max(1, shape.upmaps))
    for number, (pgid, up) in enumerate(rows[::step][:shape.upmaps]):
        used = {int(osd) // OSDS_PER_HOST for osd in up.split(',')}
        source = int(up.split(',')[0])
        host = next(host % old for host in range(number, number + old)
                    if host % old not in used)
        yield {'prefix': 'osd pg-upmap-items', 'pgid': pgid,
               'id': [source, host * OSDS_PER_HOST + number % OSDS_PER_HOST]}
