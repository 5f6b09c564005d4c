# SPDX-License-Identifier: LGPL-2.1-or-later
"""Every health check of perfguard: what it means and what an operator does about it.

The manual's reference is generated from this table (qa/lib/reference.py), and a metric of each
check is served from the start, so that alerts see it before it is first raised.
"""
from typing import NamedTuple, Tuple


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
        'Check the first suspect: its host, its network, and its log. Releases wait. The check '
        'clears when no PG is laggy.'),
    HealthCheck(
        'PERFGUARD_SLOW_OSD',
        'OSDs or whole hosts are slower than their peers at the same load. The detail names the '
        'kind of operation, the latency, the duration, and the likely causes.',
        'Check the drive (SMART, firmware, queue), the load of the host, and the memory of the '
        'OSD. ``ceph perfguard why osd.<id>`` lists the evidence. The check clears within two '
        'minutes after the OSD is as fast as its peers.'),
    HealthCheck(
        'PERFGUARD_OSD_CHRONIC',
        'OSDs, or most OSDs of a host, are slow for a share of the time, again and again. The '
        'detail names this share, its beginning, the number of episodes, and the slowdown in '
        'them.',
        'Replace the drive, or look for what disturbs it; ``ceph health mute '
        'PERFGUARD_OSD_CHRONIC`` silences the check meanwhile. It clears after a day without an '
        'episode.'),
    HealthCheck(
        'PERFGUARD_LATENCY',
        'The client latency of a pool is much higher than its baseline. The detail names the '
        'client that sends most operations, where there is one.',
        '``ceph perfguard status`` and ``ceph perfguard osds`` show whether data movement, an OSD '
        'or the load is the cause. The option ``latency_alarm_factor`` is the threshold.'),
    HealthCheck(
        'PERFGUARD_STALLED',
        'No PG was released and none arrived for ``stalled_after`` seconds. The detail names the '
        'reasons. While no PG is in flight, waiting for ``begin_time`` does not count.',
        'Remove the cause that the detail names; ``ceph perfguard why campaign`` shows the share '
        'of time of each. The check clears with the next release or arrival.'),
    HealthCheck(
        'PERFGUARD_UNPINNABLE',
        'Remapped PGs cannot be pinned; the detail names the reasons. The PGs move as soon as '
        '``norebalance`` is cleared. If their share exceeds ``max_unpinnable_ratio``, perfguard '
        'keeps the flag set.',
        'Either revert the CRUSH change and run ``rebalance abort``, or accept with ``rebalance '
        'start`` that these PGs all move at once.'),
    HealthCheck(
        'PERFGUARD_HELD_PINS',
        'An aborted campaign keeps PGs pinned, and some borrowed settings stay in force. The '
        'detail lists them.',
        'Choose one of the ways out that the detail lists: ``rebalance resume``, ``rebalance '
        'rollback`` (or ``rebalance rule``, ``rebalance pg_num``), or ``rebalance finish '
        '--keep``.'),
    HealthCheck(
        'PERFGUARD_INTERRUPTED',
        'Stored state could not be read. It was set aside under ``damaged/`` in the module\'s '
        'store. The pins of a campaign that was active are still in the OSDMap.',
        'The detail lists the borrowed settings that may remain, with the commands that restore '
        'them. The next ``rebalance prepare`` clears the check.'),
    HealthCheck(
        'PERFGUARD_PROBE_REGRESSION',
        'A probe was slower than its baseline by more than the usual variation.',
        '``probe compare`` shows the difference. The check clears when a later probe is not '
        'slower, or with ``probe baseline rm``.'),
    HealthCheck(
        'PERFGUARD_PROBE_LEFT',
        'A probe has ended, but its clean-up cannot complete. The detail names the remaining '
        'objects, pool or user, and the cause.',
        'perfguard repeats the clean-up until it succeeds; no other probe begins before that. '
        '``probe abandon`` gives up the clean-up.'),
    HealthCheck(
        'PERFGUARD_LOOP_FAILED',
        'The loop failed three or more times in a row: the data that perfguard shows is out of '
        'date, and perfguard neither releases nor stops anything. The check is also raised while '
        'the journal belongs to another mgr, and while the stored state was written by a newer '
        'version of perfguard; then the mgr sends no command and refuses requests.',
        'The detail names the last error; the log of the active mgr contains the traceback. '
        '``ceph mgr fail`` activates another mgr. The check clears when the loop succeeds again. '
        'After a downgrade, activate an mgr with the newer version.'),
    HealthCheck(
        'PERFGUARD_STANDBY_MGR',
        'Standby mgrs do not have perfguard, cannot run it, or have another version. The detail '
        'names them. After a failover to one of them a campaign stands still, and nothing is '
        'watched.',
        'Install the version of the active mgr there, and restart these mgrs. The check is '
        'updated every 10 minutes and by ``perfguard advise --refresh``.'))

CODES = tuple(check.code for check in HEALTH_CHECKS)
