# SPDX-License-Identifier: LGPL-2.1-or-later
"""Every metric that perfguard has: name, labels, and what it tells.

Alert rules, dashboards and the manual are held against this table, and nothing else is served.
"""
from typing import NamedTuple, Tuple

PREFIX = 'ceph_perfguard_'

OSD = ('ceph_daemon', 'hostname', 'device_class')
#: As in ceph_pool_metadata of the prometheus module, which can be joined on pool_id.
POOL = ('pool_id', 'name')
PROBE = ('target', 'profile')
MEASURED = PROBE + ('job', 'op', 'part', 'ceph_daemon')


class Metric(NamedTuple):
    """All are gauges: they tell the state at the end of the loop's last turn."""
    #: Without the prefix.
    name: str
    labels: Tuple[str, ...]
    help: str


CATALOGUE: Tuple[Metric, ...] = (
    Metric('info', ('version', 'ceph_version', 'ceph_daemon'),
           'Version of perfguard and of the mgr that it runs in; always 1.'),
    Metric('last_turn_timestamp_seconds', (),
           'When the last turn of the loop that came to its end began.'),
    Metric('turn_cpu_seconds', (), 'CPU time of the last turn of the loop.'),
    Metric('health_check', ('name',), 'Whether the health check is raised.'),

    Metric('campaign_phase', ('phase',), '1 for the phase that the campaign is in, 0 for others.'),
    Metric('campaign_active', (), 'Whether a campaign is under way.'),
    Metric('campaign_id', (), 'Number of the campaign under way, or of the last one.'),
    Metric('campaign_paused', (), 'Whether the campaign is paused by command.'),
    Metric('campaign_waits_for_window', (),
           'Whether nothing is released because it is outside begin_time and end_time.'),
    Metric('campaign_size_pgs', (), 'PGs that the campaign has pinned in all.'),
    Metric('campaign_pgs', ('state',),
           'PGs of the campaign: pinned, in_flight, released, kept as upmaps, unpinnable.'),
    Metric('campaign_limit_pgs', (), 'PGs that may be in flight at present.'),
    Metric('campaign_size_bytes', (), 'Bytes that the campaign moves in all.'),
    Metric('campaign_moved_bytes', (), 'Bytes that the campaign has moved so far.'),
    Metric('campaign_eta_seconds', (), 'Seconds until the last PG will have arrived, if known.'),
    Metric('campaign_started_timestamp_seconds', (), 'When the campaign began.'),
    Metric('campaign_progress_timestamp_seconds', (),
           'When a PG was last released or arrived, or the phase began.'),
    Metric('campaign_stall_seconds', (),
           'Seconds for which a release holds up the clients of its PG.'),

    Metric('pgs', ('state',), 'PGs in a condition; a PG can be in several.'),
    Metric('cluster_pgs', (), 'PGs of the cluster.'),
    Metric('misplaced_ratio', (), 'Share of objects that are not where they belong, 0 to 1.'),
    Metric('slow_ops', (), 'Operations that daemons report as slow.'),
    Metric('recovery_bytes_per_second', (), 'Bytes that backfill and recovery write.'),
    Metric('untrimmed_osdmaps', (), 'OSDMap epochs that the mons keep.'),

    Metric('client_latency_seconds', ('op',), 'Mean latency of client operations.'),
    Metric('client_latency_p99_seconds', ('op',),
           '99th percentile of client latency, over sampled OSDs.'),
    Metric('client_ops_per_second', ('op',), 'Client operations.'),

    Metric('pool_latency_seconds', POOL + ('op',), 'Mean latency that clients of the pool feel.'),
    Metric('pool_latency_baseline_seconds', POOL + ('op',), 'Latency that is usual for the pool.'),
    Metric('pool_latency_target_seconds', POOL + ('op',),
           'Latency that clients of the pool may feel while data moves.'),
    Metric('pool_ops_per_second', POOL + ('op',), 'Client operations on the pool.'),
    Metric('pool_slow', POOL + ('op',),
           'Whether PERFGUARD_LATENCY is raised because of the pool.'),

    Metric('osd_latency_seconds', OSD + ('op',),
           'Mean latency of client reads and writes, and of commits to the store.'),
    Metric('osd_latency_p99_seconds', OSD + ('op',), '99th percentile of client latency.'),
    Metric('osd_ops_per_second', OSD + ('op',), 'Client operations of the OSD.'),
    Metric('osd_slowdown_ratio', OSD, 'Times as slow as its peers at the same load.'),
    Metric('osd_slow', OSD, 'Whether the OSD is called slow.'),
    Metric('osd_chronically_slow', OSD, 'Whether the OSD is slow again and again.'),
    Metric('osd_slow_time_ratio', OSD,
           'Share of the time with operations in which the OSD is several times as slow as its '
           'peers, 0 to 1; recent hours count most.'),
    Metric('osd_ping_seconds', OSD, 'Heartbeat ping time, the median over its peers.'),
    Metric('osd_silent_seconds', OSD, 'Time since the OSD last reported to the mgr.'),
    Metric('osd_laggy_pgs', OSD, 'Laggy PGs with the OSD in their acting set.'),
    Metric('osd_laggy_suspect_score', ('ceph_daemon',),
           'How likely the OSD is the cause of laggy PGs; suspects only.'),

    Metric('mitigation_mode', ('mode',), '1 for the mode of the mitigation, 0 for others.'),
    Metric('mitigation_rungs', ('rung', 'state'),
           'Rungs of the mitigation that are held, would be (mode observe), or are being undone.'),

    Metric('probe_running', (), 'Whether a probe is under way.'),
    Metric('probe_success', PROBE,
           'Whether the last probe came to its end; those cancelled do not count.'),
    Metric('probe_ended_timestamp_seconds', PROBE,
           'When the last probe ended that was not cancelled.'),
    Metric('probe_regression', PROBE,
           'Whether the last probe is slower than its baseline; only where there is one.'),
    Metric('probe_latency_seconds', MEASURED, 'Mean latency that the last whole probe measured.'),
    Metric('probe_latency_p99_seconds', MEASURED,
           '99th percentile of latency that the last whole probe measured.'),
    Metric('probe_ops_per_second', MEASURED, 'Operations of the last whole probe.'),
    Metric('probe_bytes_per_second', MEASURED, 'Throughput of the last whole probe.'),
    Metric('probe_schedule_refused', ('schedule',),
           'Whether the schedule is due and cannot begin.'),
)
