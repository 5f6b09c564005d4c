# SPDX-License-Identifier: LGPL-2.1-or-later
"""The table of all rules, and what they find. Pure.

Rules only cover facts that the mgr can read.
"""
from typing import AbstractSet, Tuple

from . import drives, pools, settings
from .report import Facts, Finding, Rule, Severity

WARNING, INFO = Severity.WARNING, Severity.INFO

RULES: Tuple[Rule, ...] = (
    Rule('BALANCER_DEVIATION', INFO,
         'The balancer stops when each OSD is within this number of PGs of its ideal. With 100 PGs '
         'per OSD, 5 allows OSDs to differ by 10 % in fill and load, 1 by 2 %.',
         'Ceph documentation, Balancer', settings.balancer_deviation),
    Rule('BALANCER_OFF', WARNING,
         'Without the balancer in an upmap mode, CRUSH alone places PGs. The fullest OSD then '
         'limits the usable space of its pools, and the OSD with the most PGs limits their speed.',
         'Ceph documentation, Balancer', settings.balancer_off),
    Rule('CAPACITY_AFTER_HOST_LOSS', WARNING,
         'When the host fails, its data is rebuilt on the others. Above the nearfull ratio, pools '
         'are close to the ratios at which backfill and then writes stop.',
         'Ceph documentation, Monitor configuration (storage capacity)',
         pools.fill_after_host_loss),
    Rule('CLONES_SHARED', INFO,
         'An OSD stores data shared by snapshots and newer versions only once. The copy of a PG on '
         'another OSD may store it several times: a pool of 266 MiB grew to between 338 and 542 '
         'MiB when a third of its OSDs was emptied.',
         'Measured, qa/tests/test_advise.py', pools.shared_clones),
    Rule('COMPRESSION', INFO,
         'BlueStore compresses whole blobs. A small read decompresses its blob, and a small '
         'overwrite leaves the old blob in place until garbage collection rewrites it, so that '
         'objects fragment.',
         'Ceph documentation, BlueStore configuration (inline compression)', pools.compression),
    Rule('CRUSH_LOCATION', WARNING,
         'An OSD with osd_crush_update_on_start moves to the host that it runs on when it '
         'restarts, which remaps its PGs.',
         'Ceph documentation, CRUSH maps (CRUSH location)', pools.moves_at_restart),
    Rule('DB_DEVICE_SHARED', WARNING,
         'The DBs of many OSDs wait for one another on one device, and all of these OSDs are lost '
         'with it. Usual are up to 5 per SATA or SAS drive and 12 to 18 per NVMe drive.',
         'Red Hat Ceph Storage, Hardware guide', drives.shared_dbs),
    Rule('DB_SMALL', INFO,
         'What does not fit on the device of the DB is on the slow drive. 1 % of its size is '
         'usual for block devices, 4 % for objects and files.',
         'Red Hat Ceph Storage, Hardware guide', drives.small_dbs),
    Rule('DEBUG_LEVEL', WARNING,
         'Log lines for each operation slow daemons down and can take over 1 GB per hour.',
         'Ceph documentation, Logging and debugging', settings.debug_levels),
    Rule('DEVICE_CLASS_MIXED', WARNING,
         'A pool is as slow as its slowest OSD: one disk with 100 IOPS slows SSDs with 10,000.',
         'yourcmc.ru, Ceph performance', pools.mixed_class),
    Rule('DRIVE_FIRMWARE_DIFFERS', INFO,
         'Firmware decides how a drive flushes, collects garbage and throttles. One drive with '
         'another firmware than its peers may slow all PGs of its OSD.',
         'Reports by operators', drives.firmware_differs),
    Rule('DRIVE_SHARED', WARNING,
         'The heads of a rotating drive move between the areas of its OSDs, and all of these OSDs '
         'are lost with it.', 'Ceph documentation, Hardware recommendations',
         drives.shared_drives),
    Rule('DRIVE_SHINGLED', WARNING,
         'Shingled drives rewrite whole zones for random writes: once their cache zone is full, '
         'backfill and client writes are far slower than on other drives.',
         'yourcmc.ru, Ceph performance', pools.shingled),
    Rule('DRIVE_UNPROTECTED', WARNING,
         'Ceph flushes the cache of the drive with each write. Without capacitors a flush reaches '
         'the flash: about 600 IOPS at queue depth 1 instead of up to 22,000.',
         'yourcmc.ru, Ceph performance', pools.unprotected),
    Rule('DRIVE_WEAR', WARNING,
         'Flash drives near the end of their life fail, and some become read-only. Drives of one '
         'age reach it together.', 'Ceph documentation, Device management', drives.worn),
    Rule('DRIVE_WRITE_CACHE', WARNING,
         'Ceph flushes the cache of a drive with each write. With its volatile cache off, a drive '
         'with capacitors may reach 22,000 IOPS at queue depth 1 instead of 600; some drives are '
         'slower without it.',
         'Ceph documentation, Hardware recommendations; yourcmc.ru, Ceph performance',
         drives.write_caches),
    Rule('EC_OPTIMIZATIONS_OFF', INFO,
         'Without allow_ec_optimizations a small read fetches a whole stripe from all data shards, '
         'and a small write rewrites it. The flag cannot be cleared once it is set.',
         'Ceph documentation, Erasure code (optimizations)', pools.erasure_reads),
    Rule('EC_SINGLE_PARITY', INFO,
         'Once a shard is lost, nothing protects the data: a second failure, or a sector that '
         'cannot be read during recovery, loses it. With min_size k + 1 the PG also stops serving.',
         'Ceph documentation, Erasure code', pools.single_parity),
    Rule('EC_SMALL_IO', INFO,
         '4 KiB writes to an erasure-coded pool reach about a third of the IOPS of a replicated '
         'one.', 'Mark Nelson, Ceph performance posts (2023, 2024)',
         pools.small_io_on_erasure),
    Rule('FRAGMENTATION', WARNING,
         'Where free space is in small pieces, a write needs several extents, each with its own '
         'metadata. Overwrites and deletions fragment free space, more so the fuller the OSD is.',
         'Ceph documentation, Health checks (BLUESTORE_FREE_FRAGMENTATION)',
         pools.fragmentation),
    Rule('MCLOCK_CAPACITY', WARNING,
         'The mclock scheduler divides the capacity that is configured. If the value is too low, '
         'OSDs throttle clients; if it is too high, recovery starves them.',
         'Ceph documentation, mClock configuration', settings.mclock_capacity),
    Rule('MCLOCK_IGNORES', WARNING,
         'OSDs that schedule with mclock force sleeps to 0, and reset backfill and recovery limits '
         'unless osd_mclock_override_recovery_settings is true. The options have no effect.',
         'Ceph documentation, mClock configuration', settings.mclock_ignores),
    Rule('MEMORY_OVERCOMMITTED', WARNING,
         'OSDs sometimes exceed their memory targets. A host that runs out of memory swaps, or '
         'kills OSDs; 20 % of its memory should stay free.',
         'Ceph documentation, Hardware recommendations', settings.memory_overcommitted),
    Rule('MEMORY_TARGET', WARNING,
         'Below 4 GiB, metadata may have to be read from the drive for each operation; below '
         '2 GiB an OSD can become extremely slow.',
         'Ceph documentation, Hardware recommendations', settings.memory_target),
    Rule('MESSENGER_THREADS', WARNING,
         'The threads of the messenger carry the connections of all clients and OSDs. With fewer '
         'than the default, many clients wait for one another.',
         'Ceph documentation, Messenger configuration', settings.messenger_threads),
    Rule('MIN_ALLOC_SIZE', INFO,
         'OSDs that were created before Pacific on rotating drives allocate 64 KiB for each small '
         'object, and defer or rewrite small overwrites. Pacific and later use 4 KiB.',
         'Ceph release notes, Pacific', pools.old_allocation),
    Rule('MIN_COMPAT_CLIENT', WARNING,
         'Below luminous, mons refuse upmaps: neither the balancer nor perfguard can place PGs.',
         'Ceph documentation, pg-upmap', pools.old_compat),
    Rule('NEARLY_FULL', WARNING,
         'OSDs differ in fill, so that at 80 % on average the fullest are near the nearfull ratio. '
         'Allocation and compaction take longer, and backfill has little room.',
         'Ceph documentation, Health checks (OSD_NEARFULL)',
         pools.nearly_full),
    Rule('NETWORK_PINGS', WARNING,
         'A good network has round trips of 30 to 50 us, and a write takes at least two. '
         'Ceph reports heartbeats that take over 1 s.',
         'yourcmc.ru, Ceph performance; Ceph documentation, Health checks', pools.slow_pings),
    Rule('NO_SPARE_DOMAIN', INFO,
         'When a failure domain is lost, its shards have nowhere to go: PGs remain degraded until '
         'it is back.',
         'Ceph documentation, CRUSH maps', pools.no_spare_domain),
    Rule('OP_QUEUE_CUT_OFF', WARNING,
         'With cut-off low, replication and peering operations bypass the priorities of wpq, so '
         'that recovery competes with clients. The default is high since Octopus.',
         'Ceph documentation, OSD configuration', settings.cut_off),
    Rule('PGS_PER_OSD', WARNING,
         'Too few PGs balance badly and serialize operations, too many cost memory and peering '
         'time. With 60 OSDs, random 4 KiB reads became faster up to 16,384 PGs, writes up to '
         '2,048.',
         'Mark Nelson, Ceph performance posts (2023, 2024)', pools.pgs_per_osd),
    Rule('POOL_CAPACITY', WARNING,
         'The pool with the highest share is the first to slow down when load grows. Close to its '
         'limit, operations wait for one another on its OSDs, and latency rises steeply.',
         'Measured by probes of this cluster', pools.busiest_pool),
    Rule('POWER_SAVING', WARNING,
         'CPUs that sleep or slow down between operations cost 10 to 20 % of each, on some hosts '
         'a factor of 2 to 3: clients that wait for each operation, as journals do, feel that.',
         'yourcmc.ru, Ceph performance', settings.power_saving),
    Rule('READ_BALANCE', INFO,
         'The primary of a PG serves its reads. Where one OSD is the primary of more PGs than '
         'others, it limits the reads of the pool.',
         'Ceph documentation, Read balancing', pools.uneven_reads),
    Rule('ROCKSDB_BUILD', WARNING,
         'The packages of the Ceph project for Debian and Ubuntu before 16.2.15, 17.2.8 and 18.2.4 '
         'have a RocksDB without optimization. With it, random 4 KiB writes of one cluster doubled '
         'and compactions took half the time or less. Packages of distributions may differ.',
         'Mark Nelson, Ceph: a journey to 1 TiB/s (2024); Ceph pull request 54918',
         drives.slow_rocksdb),
    Rule('ROCKSDB_OPTIONS', WARNING,
         'RocksDB options from guides for older releases halve random 4 KiB writes; the defaults '
         'are tuned.', 'Mark Nelson, Ceph performance posts (2023, 2024)',
         settings.rocksdb_options),
    Rule('SCRUBS_BEHIND', WARNING,
         'Late scrubs accumulate and run at busy hours. Latent errors go undetected.',
         'Ceph documentation, Health checks', pools.scrub_behind),
    Rule('SECURE_MODE', INFO,
         'Encryption on the wire costs CPU time on both ends, for each byte: about 0.25 s per GiB '
         'where "openssl speed -evp aes-128-gcm" shows 4 GB/s. Reads of one cluster fell from '
         '1 TiB/s to 750 GiB/s.', 'Mark Nelson, Ceph performance posts (2023, 2024); openssl speed',
         settings.secure_mode),
    Rule('SHARED_OSDS', INFO,
         'Bursts of one service, such as deletions of many files or a scan of all of them, queue '
         'before the small synchronous writes of the other on every OSD.',
         'Frank Schilder (DTU)', pools.shared_osds),
    Rule('SIGNATURES_OFF', INFO,
         'Only the messenger protocol v1 signs messages: one encryption of 32 bytes for each '
         'message, whatever its size. OSDs among themselves and clients with v2 gain nothing '
         'without signatures; with v1, altered messages go undetected.',
         'Ceph source, CephxSessionHandler and ProtocolV2', settings.signatures),
    Rule('SPILLOVER', WARNING,
         'Metadata that does not fit on the fast device is read from the slow one.',
         'Ceph documentation, Health checks (BLUEFS_SPILLOVER)', pools.spillover),
    Rule('TOO_FEW_DOMAINS', WARNING,
         'CRUSH finds no place for some copies or shards, so that PGs are undersized and tolerate '
         'fewer failures, or stop serving below min_size.',
         'Ceph documentation, Troubleshooting PGs', pools.too_few_domains),
    Rule('UNTRIMMED_MAPS', WARNING,
         'The mons and each OSD store every OSDMap that is not trimmed, and a daemon that was down '
         'has to read them all. Maps are trimmed only while all PGs are clean.',
         'Ceph documentation, Monitor configuration', pools.untrimmed_maps),
    Rule('UPMAP_PRIMARY', WARNING,
         'Clients that do not know pg_upmap_primary, such as kernel clients, cannot connect to a '
         'cluster that has such entries.',
         'Ceph pull request 65419', pools.upmap_primaries))

CODES = frozenset(rule.code for rule in RULES)


def findings(facts: Facts, muted: AbstractSet[str] = frozenset()) -> Tuple[Finding, ...]:
    """All findings, warnings first."""
    all_findings = [Finding(rule, *observed, muted=rule.code in muted) for rule in RULES
                    for observed in [rule.look(facts)] if observed is not None]
    return tuple(sorted(all_findings, key=lambda finding: (
        finding.rule.severity is not WARNING, finding.rule.code)))
