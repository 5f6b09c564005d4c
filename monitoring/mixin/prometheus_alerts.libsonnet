// SPDX-License-Identifier: LGPL-2.1-or-later
// The alert rules. A test compares them with perfguard_alerts.yml.
{
  local page(name, section) =
    $._config.manual + name + $._config.manual_suffix + '#' + std.asciiLower(section),

  local alert(name,
              severity,
              wait,
              expr,
              summary,
              description,
              check=null,
              oid=null) = {
    alert: name,
    expr: expr,
    [if wait != null then 'for']: wait,
    labels: {
      severity: severity,
      type: 'ceph_default',
      // For the SNMP gateway; defined in ../snmp/perfguard-mib.txt.
      [if oid != null then 'oid']: '1.3.6.1.4.1.50495.1.2.1.15.%d' % oid,
    },
    annotations: {
      // What to do: the section of the health check, or of the alert.
      documentation: if check != null
      then page('reference', std.strReplace(check, '_', '-'))
      else page('monitoring', name),
      summary: summary,
      description: description,
    },
  },

  prometheusAlerts+:: {
    groups: [{
      name: 'perfguard',
      rules: [
        alert(
          'PerfguardLaggyPGs',
          'critical',
          '1m',
          'last_over_time((max without (instance, pod, state)\n'
          + '  (ceph_perfguard_pgs{state="laggy"}))[5m:5s]) > 0',
          '{{ if eq $value 1.0 }}1 PG is{{ else }}{{ $value }} PGs are{{ end }} laggy',
          'Clients wait because an OSD does not renew read leases in time. "ceph '
          + 'perfguard laggy" names the suspect OSDs, the most likely first, and the '
          + 'recommended action.',
          check='PERFGUARD_LAGGY_PGS',
          oid=1,
        ),

        alert(
          'PerfguardSlowOSD',
          'warning',
          '5m',
          'last_over_time((max without (instance, pod) '
          + '(ceph_perfguard_osd_slow))[5m:5s]) == 1 unless on (job, cluster, hostname)'
          + ' (\n'
          + '  sum without (ceph_daemon, device_class)\n'
          + '    (last_over_time((max without (instance, pod) '
          + '(ceph_perfguard_osd_slow))[5m:5s])) >= 3\n'
          + '  and\n'
          + '  avg without (ceph_daemon, device_class)\n'
          + '    (last_over_time((max without (instance, pod) '
          + '(ceph_perfguard_osd_slow))[5m:5s]))\n'
          + '    >= 0.5\n'
          + ')',
          '{{ $labels.ceph_daemon }} on {{ $labels.hostname }} is slower than its '
          + 'peers',
          '"ceph health detail" (PERFGUARD_SLOW_OSD) shows the slowdown and the kind of '
          + 'operation; "ceph perfguard probe run latency --osd" measures it.',
          check='PERFGUARD_SLOW_OSD',
        ),

        // One alert in place of those of its OSDs.
        alert(
          'PerfguardSlowHost',
          'warning',
          '5m',
          'sum without (ceph_daemon, device_class)\n'
          + '  (last_over_time((max without (instance, pod) '
          + '(ceph_perfguard_osd_slow))[5m:5s])) >= 3\n'
          + 'and avg without (ceph_daemon, device_class)\n'
          + '  (last_over_time((max without (instance, pod) '
          + '(ceph_perfguard_osd_slow))[5m:5s]))\n'
          + '  >= 0.5',
          '{{ $value }} OSDs of host {{ $labels.hostname }} are slower than their '
          + 'peers',
          'Most OSDs of the host are slow: look at its controller, network, memory '
          + 'and load. "ceph health detail" (PERFGUARD_SLOW_OSD) shows the slowdown and '
          + 'the kind of operation.',
          check='PERFGUARD_SLOW_OSD',
        ),

        alert(
          'PerfguardChronicallySlowOSD',
          'warning',
          '5m',
          'last_over_time((max without (instance, pod)\n'
          + '  (ceph_perfguard_osd_chronically_slow))[5m:5s]) == 1',
          '{{ $labels.ceph_daemon }} on {{ $labels.hostname }} is chronically slow',
          '"ceph health detail" (PERFGUARD_OSD_CHRONIC) shows the share of the time and '
          + 'its beginning. The check clears after a day without an episode.',
          check='PERFGUARD_OSD_CHRONIC',
        ),

        alert(
          'PerfguardPoolLatency',
          'warning',
          '5m',
          'last_over_time((max without (instance, pod) '
          + '(ceph_perfguard_pool_slow))[5m:5s]) == 1',
          '{{ $labels.op }}s of pool {{ $labels.name }} are much slower than their '
          + 'baseline',
          'PERFGUARD_LATENCY is raised: latency is above latency_alarm_factor times '
          + 'the baseline of the pool. "ceph perfguard status" shows the cause.',
          check='PERFGUARD_LATENCY',
        ),

        // Slow for any client, with any baseline. Change 0.5 s to what your clients tolerate.
        alert(
          'PerfguardPoolLatencyHigh',
          'critical',
          '5m',
          'last_over_time((max without (instance, pod) '
          + '(ceph_perfguard_pool_latency_seconds))[5m:5s]) > 0.5 and '
          + 'last_over_time((max without (instance, pod) '
          + '(ceph_perfguard_pool_slow))[5m:5s]) == 1',
          '{{ $labels.op }}s of pool {{ $labels.name }} take {{ $value | '
          + 'humanizeDuration }}',
          'Latency is above 0.5 s and far above the baseline of the pool. "ceph '
          + 'perfguard status" shows the cause; "ceph perfguard campaign pause" stops '
          + 'all movement.',
          check='PERFGUARD_LATENCY',
          oid=2,
        ),

        alert(
          'PerfguardPoolOverLimit',
          'warning',
          '15m',
          'last_over_time((max without (instance, pod) '
          + '(ceph_perfguard_pool_latency_seconds))[5m:5s]) > last_over_time((max '
          + 'without (instance, pod)\n'
          + '  (ceph_perfguard_pool_latency_limit_seconds))[5m:5s])\n'
          + 'and on (job, cluster) max without (instance, pod, state)\n'
          + '  (max_over_time(ceph_perfguard_campaign_pgs{state="in_flight"}[5m])) > 0',
          '{{ $labels.op }}s of pool {{ $labels.name }} stay above their limit',
          'Latency is {{ $value | humanizeDuration }} while a campaign moves data, '
          + 'although releases are throttled. "ceph perfguard campaign pause" stops '
          + 'all movement.',
        ),

        alert(
          'PerfguardCampaignStalled',
          'warning',
          '1m',
          'last_over_time((max without (instance, pod, name)\n'
          + '  (ceph_perfguard_health_check{name="PERFGUARD_STALLED"}))[5m:5s]) == 1',
          'The campaign is making no progress',
          'No PG was released or arrived, and no data was copied, for stalled_after seconds. "ceph '
          + 'perfguard campaign status" shows why.',
          check='PERFGUARD_STALLED',
        ),

        alert(
          'PerfguardCampaignHolding',
          'warning',
          '1h',
          'last_over_time((max without (instance, pod, phase)\n'
          + '  (ceph_perfguard_campaign_phase{phase="HOLDING"}))[5m:5s]) == 1\n'
          + 'unless last_over_time((max without (instance, pod)\n'
          + '  (ceph_perfguard_campaign_paused))[5m:5s]) == 1\n'
          + 'unless last_over_time((max without (instance, pod)\n'
          + '  (ceph_perfguard_campaign_waits_for_window))[5m:5s]) == 1',
          'The campaign has released nothing for an hour',
          'Releases are stopped, but not by "campaign pause" or the time window '
          + '(begin_time, end_time). "ceph perfguard campaign status" shows why.',
        ),

        alert(
          'PerfguardCampaignPaused',
          'warning',
          '12h',
          'last_over_time((max without (instance, pod) '
          + '(ceph_perfguard_campaign_paused))[5m:5s]) == 1 and last_over_time((max '
          + 'without (instance, pod)\n'
          + '  (ceph_perfguard_campaign_active))[5m:5s]) == 1',
          'The campaign has been paused for 12 hours',
          'The mons cannot trim OSDMaps while PGs are not clean. "ceph perfguard '
          + 'campaign resume" continues it, "abort" ends it.',
        ),

        alert(
          'PerfguardCampaignFinished',
          'info',
          null,
          'last_over_time((max without (instance, pod) '
          + '(ceph_perfguard_campaign_active))[5m:5s]) == 0 and max_over_time((max '
          + 'without (instance, pod)\n'
          + '  (ceph_perfguard_campaign_active))[15m:1m]) == 1',
          'The campaign has ended',
          '"ceph perfguard campaign ls" shows how. The alert clears after 15 '
          + 'minutes.',
        ),

        alert(
          'PerfguardCampaignSlowsDown',
          'warning',
          '1h',
          'last_over_time((max without (instance, pod) '
          + '(ceph_perfguard_campaign_eta_seconds))[5m:5s]) > 1.5 * last_over_time((max'
          + ' without (instance, pod)\n'
          + '  (ceph_perfguard_campaign_eta_seconds))[5m:5s] offset 6h)\n'
          + 'and last_over_time((max without (instance, pod)\n'
          + '  (ceph_perfguard_campaign_active))[6h:5m] offset 5m) == 1\n'
          + 'and last_over_time((max without (instance, pod) '
          + '(ceph_perfguard_campaign_id))[5m:5s]) == last_over_time((max without '
          + '(instance, pod)\n'
          + '  (ceph_perfguard_campaign_id))[5m:5s] offset 6h)',
          'The time left of the campaign grows: {{ $value | humanizeDuration }}',
          'It is more than 1.5 times what it was six hours ago. "ceph perfguard '
          + 'campaign status" names what limits releases.',
        ),

        alert(
          'PerfguardIdleOSDs',
          'info',
          '24h',
          'last_over_time((max without (instance, pod) '
          + '(ceph_perfguard_idle_osds))[5m:5s]) > 0 and last_over_time((max without (instance, pod)\n'
          + '  (ceph_perfguard_campaign_active))[5m:5s]) == 0',
          '{{ if eq $value 1.0 }}1 OSD has{{ else }}{{ $value }} OSDs have{{ end }} held no data '
          + 'for a day',
          'New OSDs wait for "ceph perfguard expand". Drained ones can be removed: "ceph perfguard '
          + 'osds --drained" names the next step of each.',
        ),

        alert(
          'PerfguardPoolCapacity',
          'warning',
          '1h',
          'last_over_time((max without (instance, pod)\n'
          + '  (ceph_perfguard_pool_capacity_used_ratio))[5m:5s]) > 0.8\n'
          + 'or last_over_time((max without (instance, pod)\n'
          + '  (ceph_perfguard_pool_capacity_full_seconds))[5m:5s]) < 4 * 7 * 86400',
          'Pool {{ $labels.name }} is near the most operations that it serves',
          'Clients use over 80 % of what a probe has measured, or will use all of it within four '
          + 'weeks. "ceph perfguard pools --capacity" shows both.',
        ),

        alert(
          'PerfguardUntrimmedOSDMaps',
          'warning',
          '1h',
          'last_over_time((max without (instance, pod) '
          + '(ceph_perfguard_untrimmed_osdmaps))[5m:5s]) > 5000',
          'The mons keep {{ $value }} OSDMaps',
          'Maps are trimmed only while all PGs are clean. The stores of the mons grow'
          + ' meanwhile. Releases of a campaign wait on their own (max_untrimmed_osdmaps,'
          + ' untrimmed_ceiling). "ceph pg dump_stuck unclean" lists the PGs that keep the'
          + ' mons from trimming. Do not pause the campaign: norebalance would keep the PGs'
          + ' in flight unclean.',
        ),

        alert(
          'PerfguardProbeLeftovers',
          'warning',
          '1h',
          'last_over_time((max without (instance, pod, name)\n'
          + '  (ceph_perfguard_health_check{name="PERFGUARD_PROBE_LEFT"}))[5m:5s]) == 1',
          'The clean-up of a probe cannot complete',
          '"ceph health detail" (PERFGUARD_PROBE_LEFT) names the remaining objects, '
          + 'pool or user, and the cause. No other probe begins before that.',
          check='PERFGUARD_PROBE_LEFT',
        ),

        alert(
          'PerfguardStandbyMgr',
          'warning',
          '30m',
          'last_over_time((max without (instance, pod, name)\n'
          + '  (ceph_perfguard_health_check{name="PERFGUARD_STANDBY_MGR"}))[5m:5s]) == '
          + '1',
          'A standby mgr cannot take over with perfguard',
          '"ceph health detail" (PERFGUARD_STANDBY_MGR) names the mgrs that lack the '
          + 'module or have another version. A failover to one of them stops campaigns '
          + 'and the watch.',
          check='PERFGUARD_STANDBY_MGR',
        ),

        alert(
          'PerfguardUnpinnable',
          'warning',
          '5m',
          'last_over_time((max without (instance, pod, state)\n'
          + '  (ceph_perfguard_campaign_pgs{state="unpinnable"}))[5m:5s]) > 0\n'
          + 'and last_over_time((max without (instance, pod)\n'
          + '  (ceph_perfguard_campaign_active))[5m:5s]) == 1',
          '{{ if eq $value 1.0 }}1 PG{{ else }}{{ $value }} PGs{{ end }} cannot be pinned where '
          + 'the data is',
          'They move as soon as norebalance is cleared. "ceph health detail" '
          + '(PERFGUARD_UNPINNABLE) names them and the reasons.',
          check='PERFGUARD_UNPINNABLE',
        ),

        alert(
          'PerfguardMitigationActing',
          'warning',
          '1m',
          'last_over_time((max without (instance, pod)\n'
          + '  '
          + '(ceph_perfguard_mitigations{state="held",mitigation!="hold_releases"}))[5m:5s])'
          + ' > 0',
          'perfguard has changed the cluster to protect clients: {{ $labels.mitigation }}',
          '"ceph perfguard mitigation ls" shows the changes, the reasons, and the values '
          + 'before. They are undone when the cause has cleared, or by "ceph perfguard '
          + 'mitigation revert".',
        ),

        alert(
          'PerfguardProbeRegression',
          'warning',
          null,
          'last_over_time((max without (instance, pod)\n'
          + '  (ceph_perfguard_probe_regression))[5m:5s]) == 1',
          '{{ $labels.measured }} is slower than its baseline (probe {{ $labels.profile'
          + ' }})',
          '"ceph perfguard probe compare" shows the difference; "ceph health detail" '
          + '(PERFGUARD_PROBE_REGRESSION) names the probes.',
          check='PERFGUARD_PROBE_REGRESSION',
        ),

        alert(
          'PerfguardProbeFailed',
          'info',
          '1h',
          'last_over_time((max without (instance, pod) '
          + '(ceph_perfguard_probe_success))[5m:5s]) == 0',
          'The last probe {{ $labels.profile }} of {{ $labels.measured }} did not complete',
          '"ceph perfguard probe ls" shows why.',
        ),

        alert(
          'PerfguardStateLost',
          'critical',
          '1m',
          'last_over_time((max without (instance, pod, name)\n'
          + '  (ceph_perfguard_health_check{name="PERFGUARD_INTERRUPTED"}))[5m:5s]) == '
          + '1',
          'perfguard could not read all of its state',
          'Pins or settings of a campaign may be left over. "ceph health detail" '
          + '(PERFGUARD_INTERRUPTED) lists what to check.',
          check='PERFGUARD_INTERRUPTED',
          oid=3,
        ),

        alert(
          'PerfguardHeldPins',
          'warning',
          '1h',
          'last_over_time((max without (instance, pod, name)\n'
          + '  (ceph_perfguard_health_check{name="PERFGUARD_HELD_PINS"}))[5m:5s]) == 1',
          'An aborted campaign keeps PGs pinned',
          'The balancer and the autoscaler of the pools stay off until an operator '
          + 'decides: "ceph perfguard campaign resume", "rollback" or "finish --keep".',
          check='PERFGUARD_HELD_PINS',
        ),

        alert(
          'PerfguardEvacuation',
          'warning',
          '1m',
          'last_over_time((max without (instance, pod, name)\n'
          + '  (ceph_perfguard_health_check{name="PERFGUARD_EVACUATION"}))[5m:5s]) == 1',
          'A campaign keeps data on OSDs that are to be emptied',
          'OSDs are out or have a lower weight, and norebalance keeps their PGs there. '
          + '"ceph health detail" (PERFGUARD_EVACUATION) names them, and the command that '
          + 'clears the flag.',
          check='PERFGUARD_EVACUATION',
        ),

        alert(
          'PerfguardLoopFailed',
          'critical',
          '1m',
          'last_over_time((max without (instance, pod, name)\n'
          + '  (ceph_perfguard_health_check{name="PERFGUARD_LOOP_FAILED"}))[5m:5s]) == '
          + '1',
          "perfguard's loop fails in every iteration",
          'Nothing is watched, and a campaign may not proceed. "ceph health detail" '
          + '(PERFGUARD_LOOP_FAILED) names the error; the log of the active mgr has a '
          + 'traceback.',
          check='PERFGUARD_LOOP_FAILED',
          oid=4,
        ),

        // Without the last value of five minutes: a module that does not answer is another alert.
        alert(
          'PerfguardHangs',
          'critical',
          '1m',
          'time() - max without (instance, pod) '
          + '(ceph_perfguard_last_loop_timestamp_seconds) > 120',
          "perfguard's loop has completed no iteration for {{ $value | "
          + 'humanizeDuration }}',
          'The mgr answers, but its data is out of date, and an active campaign '
          + 'has stopped. See the log of the active mgr; "ceph mgr fail" activates '
          + 'another one.',
          oid=5,
        ),

        // From the mgr with the last loop iteration; an earlier one may have failed in the middle of
        // a campaign that has ended since.
        alert(
          'PerfguardLostDuringCampaign',
          'critical',
          '2m',
          'max without (instance, pod) (\n'
          + '  last_over_time(ceph_perfguard_campaign_active[7d])\n'
          + '  and\n'
          + '    last_over_time(ceph_perfguard_last_loop_timestamp_seconds[7d])\n'
          + '    == on (job, cluster) group_left ()\n'
          + '    max by (job, cluster)\n'
          + '      (last_over_time(ceph_perfguard_last_loop_timestamp_seconds[7d]))\n'
          + ') == 1 unless max without (instance, pod) (ceph_perfguard_campaign_active)',
          'A campaign was active, and no mgr reports it any more',
          'Pinned PGs stay pinned, but nothing is released, watched or stopped. Is an '
          + 'mgr active, and the module perfguard enabled?',
          oid=6,
        ),

        // With the labels of the cluster that is missing; without any where there was none for a day.
        alert(
          'PerfguardAbsent',
          'warning',
          '15m',
          'max without (instance, pod, version, ceph_version, ceph_daemon)\n'
          + '  (last_over_time(ceph_perfguard_info[1d]))\n'
          + 'unless max without (instance, pod, version, ceph_version, ceph_daemon) '
          + '(ceph_perfguard_info) or absent(last_over_time(ceph_perfguard_info[1d]))',
          'No mgr serves metrics of perfguard',
          'Is the module enabled, metrics_port set, and every mgr a target of '
          + 'Prometheus? "ceph perfguard status" reports a port that cannot be used.',
        ),
      ],
    }],
  },
}
