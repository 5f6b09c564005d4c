# SPDX-License-Identifier: LGPL-2.1-or-later
"""All metrics of perfguard with their names, labels and meanings, and all health checks.

Tests compare alert rules, dashboards and the manual with these tables; nothing else is served or
raised. The manual's reference is generated from them (qa/lib/reference.py). A metric of each health
check is served from the start, so that alerts see it before it is first raised.
"""
from typing import NamedTuple, Tuple

METRIC_PREFIX = 'ceph_perfguard_'

OSD_LABELS = ('ceph_daemon', 'hostname', 'device_class')
#: As in ceph_pool_metadata of the prometheus module, which can be joined on pool_id.
POOL = ('pool_id', 'name')
PROBE = ('measured', 'profile')
MEASURED = PROBE + ('probe_job', 'op', 'part', 'ceph_daemon')


class Metric(NamedTuple):
    """A gauge: all metrics show the state at the end of the last turn of the loop."""
    #: Without the prefix.
    name: str
    labels: Tuple[str, ...]
    help: str


CATALOGUE: Tuple[Metric, ...] = (
    Metric('info', ('version', 'ceph_version', 'ceph_daemon'),
           'Version of perfguard and of the mgr that runs it; always 1.'),
    Metric('last_loop_timestamp_seconds', (),
           'Start of the last completed loop iteration.'),
    Metric('loop_cpu_seconds', (), 'CPU time of the last loop iteration.'),
    Metric('health_check', ('name',), 'Whether the health check is raised.'),

    Metric('campaign_phase', ('phase',), '1 for the current phase of the '
           'campaign, 0 for all others.'),
    Metric('campaign_active', (), 'Whether a campaign is active.'),
    Metric('campaign_id', (), 'ID of the active campaign, or of the last one.'),
    Metric('campaign_paused', (), 'Whether the campaign is paused by command.'),
    Metric('campaign_waits_for_window', (),
           'Whether releases wait for the time window (begin_time to end_time) to open.'),
    Metric('campaign_size_pgs', (), 'Total number of PGs of the campaign.'),
    Metric('campaign_pgs', ('state',),
           'PGs of the campaign by state: pinned, in_flight, released, kept '
           '(as upmaps), unpinnable (without those that will be pinned after their recovery).'),
    Metric('campaign_limit_pgs', (), 'Current limit of PGs in flight.'),
    Metric('campaign_size_bytes', (), 'Total number of bytes that the campaign moves.'),
    Metric('campaign_moved_bytes', (), 'Number of bytes that the campaign has moved so far.'),
    Metric('campaign_eta_seconds', (), 'Estimated seconds until the last PG arrives, if known.'),
    Metric('campaign_started_timestamp_seconds', (), 'Start of the campaign.'),
    Metric('campaign_progress_timestamp_seconds', (),
           'Time of the last release, the last arrival of a PG, or the start of the phase.'),
    Metric('campaign_stall_seconds', (),
           'Seconds for which clients of a PG wait after its release.'),
    Metric('campaign_limited_ratio', ('reason',),
           'Share of the time of the campaign in which this reason limited its releases, 0 to 1; '
           'the reasons are those of limit_shares.'),

    Metric('pgs', ('state',), 'PGs by state; a PG can have several states.'),
    Metric('cluster_pgs', (), 'Number of PGs in the cluster.'),
    Metric('misplaced_ratio', (), 'Ratio of misplaced objects, 0 to 1.'),
    Metric('slow_ops', (), 'Number of slow operations that daemons report.'),
    Metric('recovery_bytes_per_second', (), 'Bytes per second that backfill and recovery write.'),
    Metric('idle_osds', (), 'Number of OSDs that are up and in, and hold no data since their CRUSH '
           'weight is 0: new ones that wait for "expand", and drained ones.'),
    Metric('untrimmed_osdmaps', (), 'Number of OSDMap epochs that the mons keep.'),

    Metric('client_latency_seconds', ('op',), 'Mean latency of client operations.'),
    Metric('client_latency_p99_seconds', ('op',),
           '99th percentile of client latency over sampled OSDs.'),
    Metric('client_ops_per_second', ('op',), 'Client operations per second.'),

    Metric('pool_latency_seconds', POOL + ('op',), 'Mean client latency of the pool.'),
    Metric('pool_latency_baseline_seconds', POOL + ('op',), 'Baseline of the '
           'client latency of the pool.'),
    Metric('pool_latency_limit_seconds', POOL + ('op',),
           'Limit of the client latency of the pool while data moves.'),
    Metric('pool_ops_per_second', POOL + ('op',), 'Client operations per second on the pool.'),
    Metric('pool_slow', POOL + ('op',),
           'Whether PERFGUARD_LATENCY is raised for the pool.'),
    Metric('pool_capacity_used_ratio', POOL,
           'Share of what the pool serves at capacity_p99_ms that clients of it, and of other '
           'pools on its OSDs, use; only where a probe measured it under the present conditions.'),
    Metric('pool_capacity_full_seconds', POOL,
           'Seconds until the busiest hour uses all of it, if it grows significantly.'),

    Metric('osd_latency_seconds', OSD_LABELS + ('op',),
           'Mean latency of client reads and writes, and of commits to the store.'),
    Metric('osd_latency_p99_seconds', OSD_LABELS + ('op',), '99th percentile of client latency.'),
    Metric('osd_ops_per_second', OSD_LABELS + ('op',), 'Client operations per second of the OSD.'),
    Metric('osd_slowdown_ratio', OSD_LABELS,
           'Slowdown of the OSD against its peers at the same load.'),
    Metric('osd_slow', OSD_LABELS, 'Whether perfguard reports the OSD as slow.'),
    Metric('osd_chronically_slow', OSD_LABELS, 'Whether the OSD is chronically slow.'),
    Metric('osd_slow_time_ratio', OSD_LABELS,
           'Share of the time with operations in which the OSD is several times as slow as its '
           'peers, 0 to 1; recent hours count most.'),
    Metric('osd_ping_seconds', OSD_LABELS,
           'Heartbeat ping time, median over the peers of the OSD.'),
    Metric('osd_silent_seconds', OSD_LABELS,
           'Seconds since the last report of the OSD to the mgr.'),
    Metric('osd_laggy_pgs', OSD_LABELS, 'Number of laggy PGs with the OSD in their acting set.'),
    Metric('osd_laggy_suspect_score', ('ceph_daemon',),
           'Score of the OSD as suspected cause of laggy PGs; suspects only.'),

    Metric('mitigation_mode', ('mode',), '1 for the current mitigation_mode, 0 for all others.'),
    Metric('mitigations', ('mitigation', 'state'),
           'Mitigations by state: in force, not taken in mode observe, or being undone.'),

    Metric('probe_running', (), 'Whether a probe is active.'),
    Metric('probe_success', PROBE,
           'Whether the last probe completed; cancelled probes do not count.'),
    Metric('probe_ended_timestamp_seconds', PROBE,
           'End of the last probe that was not cancelled.'),
    Metric('probe_regression', PROBE,
           'Whether the last probe is slower than its baseline; only with a baseline.'),
    Metric('probe_latency_seconds', MEASURED, 'Mean latency in the last completed probe.'),
    Metric('probe_latency_p99_seconds', MEASURED,
           '99th percentile of latency in the last completed probe.'),
    Metric('probe_ops_per_second', MEASURED, 'Operations per second in the last completed probe.'),
    Metric('probe_bytes_per_second', MEASURED, 'Throughput in the last completed probe.'),
    Metric('probe_schedule_refused', ('schedule',),
           'Whether the scheduled probe is due but cannot begin.'),
)


class HealthCheck(NamedTuple):
    """One health check, a HEALTH_WARN. Texts are reStructuredText."""
    code: str
    #: When it is raised and what its detail contains.
    meaning: str
    #: What to do, and when the check clears.
    action: str


HEALTH_CHECKS: Tuple[HealthCheck, ...] = (
    HealthCheck(
        'PERFGUARD_LAGGY_PGS',
        'PGs are laggy, or have waited for read leases to expire for 30 s. The detail names the '
        'suspect OSDs, the recommended action, and the PGs.',
        'Check the first suspect that ``laggy`` lists: its host, its network, and its log. '
        'Releases wait. The check clears when no PG is laggy.'),
    HealthCheck(
        'PERFGUARD_SLOW_OSD',
        'OSDs, whole hosts, or a large part of the OSDs of a class are slower than their peers at '
        'the same load. The detail names the kind of operation, the latency, the duration, and the '
        'likely causes.',
        '``ceph perfguard why osd.<id>`` lists the evidence: check the drive (SMART, firmware, '
        'queue), the load of the host, or the memory of the OSD. ``ceph osd primary-affinity <id> '
        '0`` moves its reads to other OSDs (not those of erasure-coded pools); restore it later. '
        'Without a campaign, ``drain`` empties it. The check clears within two minutes after the '
        'OSD is as fast as its peers.'),
    HealthCheck(
        'PERFGUARD_OSD_CHRONIC',
        'OSDs, or most OSDs of a host, are slow in repeated episodes, or remain slow. The detail '
        'names the share of time, its beginning, the episodes, and the slowdown.',
        'Replace the drive (``replace``), or find the cause with ``why``. The check clears after a '
        'day without an episode, six hours after a short one, or once the OSD is drained.'),
    HealthCheck(
        'PERFGUARD_LATENCY',
        'The client latency of a pool is much higher than its baseline. The detail says whether '
        'one client sends most operations.',
        '``ceph perfguard pools`` names that client. ``ceph perfguard status`` and ``ceph '
        'perfguard osds`` show whether data movement, an OSD or the load is the cause. The option '
        '``latency_alarm_factor`` is the threshold.'),
    HealthCheck(
        'PERFGUARD_STALLED',
        'No PG was released, none arrived and no data of PGs in flight was copied for '
        '``stalled_after`` seconds. Waiting for ``begin_time`` with no PG in flight does not '
        'count, nor do up to four hours of waiting for OSDs that are down with ``noout``.',
        'The wait slows no client. Remove the cause that the detail names; ``ceph perfguard why '
        'campaign`` shows the share of time of each.'),
    HealthCheck(
        'PERFGUARD_UNPINNABLE',
        'Remapped PGs cannot be pinned; the detail names the reasons. The PGs move as soon as '
        '``norebalance`` is cleared, except those for which CRUSH finds too few OSDs. If the share '
        'of the others exceeds ``max_unpinnable_ratio``, perfguard keeps the flag set.',
        'Either revert the CRUSH change and run ``campaign abort``, or accept with ``campaign '
        'start`` that these PGs all move at once. If CRUSH finds too few OSDs, add OSDs or failure '
        'domains, or let it try more often (the tunable ``choose_total_tries``, or the step '
        '``set_choose_tries`` of an erasure-coded rule); releases do not wait for that.'),
    HealthCheck(
        'PERFGUARD_HELD_PINS',
        'An aborted campaign keeps PGs pinned, and some borrowed settings stay in force. The '
        'detail lists them.',
        'No PG of it moves meanwhile, except the last tranche under a hybrid rule. Choose one of '
        'the ways out that the detail lists: ``campaign resume``, ``campaign rollback`` (or '
        '``rule``, ``pg_num``), or ``campaign finish --keep``.'),
    HealthCheck(
        'PERFGUARD_EVACUATION',
        'For a minute or more, ``norebalance`` of a campaign has kept PGs on OSDs that are to be '
        'emptied: OSDs that are out, were reweighted, are too full, or have CRUSH weight 0. Their '
        'drives may be failing. The detail names the OSDs and their PGs.',
        'Run the command that the detail names, which clears the flag.'),
    HealthCheck(
        'PERFGUARD_INTERRUPTED',
        'Stored state could not be read. It was set aside under ``damaged/`` in the module\'s '
        'store. Pins of a campaign and settings of mitigations may remain.',
        '``ceph health detail`` lists what is lost, and how to restore settings of a campaign. No '
        'campaign begins automatically meanwhile (``auto_expand``, new OSDs or devices, an '
        'approved plan). The next one that an operator begins clears it.'),
    HealthCheck(
        'PERFGUARD_PROBE_REGRESSION',
        'A probe was slower than its baseline by more than the normal variation.',
        '``probe compare`` shows the difference. The check clears when a later probe is not '
        'slower, with its pool, or with ``probe baseline <id> --rm``.'),
    HealthCheck(
        'PERFGUARD_PROBE_LEFT',
        'A probe has ended, but its clean-up cannot complete. The detail names the remaining '
        'objects, pool or user, and the cause.',
        'perfguard repeats the clean-up until it succeeds; no other probe begins before that. '
        '``probe cancel <id> --force`` gives up the clean-up.'),
    HealthCheck(
        'PERFGUARD_LOOP_FAILED',
        'The loop failed three or more times in a row: the data that perfguard shows is out of '
        'date, and perfguard neither releases nor stops anything. Or only the watch failed, and a '
        'campaign continues. Or the journal belongs to another mgr, or was written by a newer '
        'version of perfguard; then the mgr sends no command.',
        'The detail names the last error; the log of the active mgr contains the traceback. '
        '``ceph mgr fail`` activates another mgr. After a downgrade, activate an mgr with the '
        'newer version.'),
    HealthCheck(
        'PERFGUARD_STANDBY_MGR',
        'Standby mgrs do not have perfguard, cannot run it, or have another version, or the files '
        'of the active mgr are missing or of another version. The detail names them. After a '
        'failover to one of them, or a restart, a campaign stops, and nothing is watched.',
        'Install the version of the active mgr there, and restart these mgrs. The check is '
        'updated every 10 minutes and by ``perfguard advise --refresh``.'))

CHECK_CODES = tuple(check.code for check in HEALTH_CHECKS)
