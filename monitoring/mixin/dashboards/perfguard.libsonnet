// SPDX-License-Identifier: LGPL-2.1-or-later
// The Grafana dashboard.
local panels = import 'panels.libsonnet';

{
  local cfg = $._config,

  grafanaDashboards+:: { 'perfguard.json': {
    annotations: {
      list: [
        {
          builtIn: 1,
          datasource: { type: 'grafana', uid: '-- Grafana --' },
          enable: true,
          hide: true,
          iconColor: 'rgba(0, 211, 255, 1)',
          name: 'Annotations & Alerts',
          type: 'dashboard',
        },
        {
          datasource: { type: 'prometheus', uid: '${datasource}' },
          enable: true,
          hide: false,
          iconColor: 'blue',
          name: 'Campaigns begin',
          expr: 'changes(max by (job, cluster) (ceph_perfguard_campaign_started_timestamp_seconds{%(matchers)s})[5m:1m]) > 0' % cfg,
          step: '60s',
          titleFormat: 'Campaign began',
          type: 'prometheus',
        },
        {
          datasource: { type: 'prometheus', uid: '${datasource}' },
          enable: true,
          hide: false,
          iconColor: 'orange',
          name: 'Releases held',
          expr: 'max by (job, cluster) (ceph_perfguard_campaign_phase{%(matchers)s,phase="HOLDING"}) == 1' % cfg,
          step: '60s',
          titleFormat: 'Releases held',
          type: 'prometheus',
        },
      ],
    },
    description: 'State and actions of perfguard: campaign, client latency, movement, OSDs, mitigation, probes.',
    editable: true,
    fiscalYearStartMonth: 0,
    graphTooltip: 1,
    id: null,
    links: [],
    liveNow: false,
    refresh: '10s',
    schemaVersion: 39,
    tags: ['ceph', 'perfguard'],
    templating: {
      list: [
        {
          hide: 0,
          includeAll: false,
          label: 'Data source',
          multi: false,
          name: 'datasource',
          options: [],
          query: 'prometheus',
          refresh: 1,
          regex: '',
          skipUrlSync: false,
          type: 'datasource',
        },
        {
          allValue: '.*',
          current: { selected: true, text: ['All'], value: ['$__all'] },
          datasource: { type: 'prometheus', uid: '${datasource}' },
          hide: 0,
          includeAll: true,
          label: 'Cluster',
          multi: true,
          name: 'cluster',
          options: [],
          query: {
            qryType: 1,
            query: 'label_values(ceph_perfguard_last_loop_timestamp_seconds, cluster)',
            refId: 'PrometheusVariableQueryEditor-VariableQuery',
          },
          refresh: 2,
          regex: '',
          skipUrlSync: false,
          sort: 1,
          type: 'query',
        },
        {
          allValue: '.*',
          current: { selected: true, text: ['All'], value: ['$__all'] },
          datasource: { type: 'prometheus', uid: '${datasource}' },
          hide: 0,
          includeAll: true,
          label: 'Job',
          multi: true,
          name: 'job',
          options: [],
          query: {
            qryType: 1,
            query: 'label_values(ceph_perfguard_last_loop_timestamp_seconds{cluster=~"$cluster"}, job)',
            refId: 'PrometheusVariableQueryEditor-VariableQuery',
          },
          refresh: 2,
          regex: '',
          skipUrlSync: false,
          sort: 1,
          type: 'query',
        },
        {
          allValue: '.*',
          current: { selected: true, text: ['All'], value: ['$__all'] },
          datasource: { type: 'prometheus', uid: '${datasource}' },
          hide: 0,
          includeAll: true,
          label: 'Pool',
          multi: true,
          name: 'pool',
          options: [],
          query: {
            qryType: 1,
            query: 'label_values(ceph_perfguard_pool_slow{%(matchers)s}, name)' % cfg,
            refId: 'PrometheusVariableQueryEditor-VariableQuery',
          },
          refresh: 2,
          regex: '',
          skipUrlSync: false,
          sort: 1,
          type: 'query',
        },
      ],
    },
    time: { from: 'now-1h', to: 'now' },
    timepicker: {},
    timezone: '',
    title: 'Ceph - perfguard',
    uid: 'ceph-perfguard',
    version: 2,
    weekStart: '',
    panels: [
      panels.row(1, 'Campaign', 0),
      panels.stat(2, 'Phase', 'Phase of the active campaign, or of the last one.', [0, 1, 4, 4], [
        panels.target('A', 'max by (phase) (ceph_perfguard_campaign_phase{%(matchers)s}) == 1' % cfg, '{{phase}}', 'instant'),
      ]) + { options+: { textMode: 'name' } },
      panels.stat(3, 'Moved', 'Share of the bytes of the campaign that have moved.', [4, 1, 4, 4], [
        panels.target('A', 'max(ceph_perfguard_campaign_moved_bytes{%(matchers)s}) / (max(ceph_perfguard_campaign_size_bytes{%(matchers)s}) > 0)' % cfg, '', 'instant'),
      ]) + { fieldConfig+: { defaults+: { unit: 'percentunit', noValue: '-' } } },
      panels.stat(4, 'Time left', 'Estimated time until the last PG is in place.', [8, 1, 4, 4], [
        panels.target('A', 'max(ceph_perfguard_campaign_eta_seconds{%(matchers)s})' % cfg, '', 'instant'),
      ]) + { fieldConfig+: { defaults+: { unit: 's', noValue: '-' } } },
      panels.stat(5, 'Misplaced', 'Share of objects that are not where CRUSH and upmaps place them.', [12, 1, 4, 4], [
        panels.target('A', 'max(ceph_perfguard_misplaced_ratio{%(matchers)s})' % cfg, '', 'instant'),
      ]) + { fieldConfig+: { defaults+: { unit: 'percentunit' } } },
      panels.stat(6, 'Laggy PGs', 'PGs in which client operations wait for a read lease.', [16, 1, 4, 4], [
        panels.target('A', 'max(ceph_perfguard_pgs{%(matchers)s,state="laggy"})' % cfg, '', 'instant'),
      ]) + {
        fieldConfig+: {
          defaults+: {
            thresholds+: { steps: [{ color: 'green', value: null }, { color: 'red', value: 1 }] },
          },
        },
        options+: { colorMode: 'background' },
      },
      panels.stat(7, 'Health checks', 'Health checks that perfguard has raised.', [20, 1, 4, 4], [
        panels.target('A', 'max by (name) (ceph_perfguard_health_check{%(matchers)s}) == 1' % cfg, '{{name}}', 'instant'),
      ]) + {
        fieldConfig+: { defaults+: { noValue: 'none' } },
        options+: { textMode: 'name' },
      },
      panels.timeseries(8, 'PGs of the campaign', 'Pinned PGs wait; released PGs have arrived.', [0, 5, 12, 8], [
        panels.target('A', 'max by (state) (ceph_perfguard_campaign_pgs{%(matchers)s})' % cfg, '{{state}}'),
      ]) + {
        fieldConfig+: {
          defaults+: { custom+: { fillOpacity: 25, stacking+: { mode: 'normal' } }, unit: 'none' },
        },
      },
      panels.timeseries(9, 'PGs in flight', 'PGs that move, and the limit: the throttle sets it by client latency.', [12, 5, 12, 8], [
        panels.target('A', 'max(ceph_perfguard_campaign_pgs{%(matchers)s,state="in_flight"})' % cfg, 'in flight'),
        panels.target('B', 'max(ceph_perfguard_campaign_limit_pgs{%(matchers)s})' % cfg, 'limit'),
      ]) + {
        fieldConfig+: {
          defaults+: { unit: 'none' },
          overrides: [
            {
              matcher: { id: 'byRegexp', options: 'limit' },
              properties: [
                { id: 'custom.lineStyle', value: { dash: [10, 10], fill: 'dash' } },
                { id: 'custom.fillOpacity', value: 0 },
              ],
            },
          ],
        },
      },
      panels.timeseries(35, 'What limits the releases', 'Share of the time of the campaign by what limited its releases. "ceph perfguard why campaign" explains the reasons.', [0, 13, 12, 8], [
        panels.target('A', 'max by (reason) (ceph_perfguard_campaign_limited_ratio{%(matchers)s})' % cfg, '{{reason}}'),
      ]) + {
        fieldConfig+: {
          defaults+: { custom+: { fillOpacity: 25, stacking+: { mode: 'normal' } }, max: 1, unit: 'percentunit' },
        },
      },
      panels.heatmap(36, 'Fill of all OSDs', 'Number of OSDs by the share of their space that is used.', [12, 13, 12, 8], [
        panels.target('A', 'max by (ceph_daemon) (ceph_osd_stat_bytes_used{%(ceph_matchers)s} / ceph_osd_stat_bytes{%(ceph_matchers)s})' % cfg, '{{ceph_daemon}}'),
      ], 0.02, 'percentunit'),
      panels.row(10, 'Clients', 21),
      panels.timeseries(11, 'Latency of reads by pool', 'Mean latency of the last minute, and the limit of each pool while data moves.', [0, 22, 12, 8], [
        panels.target('A', 'max by (name) (ceph_perfguard_pool_latency_seconds{%(matchers)s,op="read",name=~"$pool"})' % cfg, '{{name}}'),
        panels.target('B', 'max by (name) (ceph_perfguard_pool_latency_limit_seconds{%(matchers)s,op="read",name=~"$pool"})' % cfg, '{{name}} limit'),
      ]) + {
        fieldConfig+: {
          overrides: [
            {
              matcher: { id: 'byRegexp', options: '.* limit' },
              properties: [
                { id: 'custom.lineStyle', value: { dash: [10, 10], fill: 'dash' } },
                { id: 'custom.fillOpacity', value: 0 },
              ],
            },
          ],
        },
      },
      panels.timeseries(12, 'Latency of writes by pool', 'Mean latency of the last minute, and the limit of each pool while data moves.', [12, 22, 12, 8], [
        panels.target('A', 'max by (name) (ceph_perfguard_pool_latency_seconds{%(matchers)s,op="write",name=~"$pool"})' % cfg, '{{name}}'),
        panels.target('B', 'max by (name) (ceph_perfguard_pool_latency_limit_seconds{%(matchers)s,op="write",name=~"$pool"})' % cfg, '{{name}} limit'),
      ]) + {
        fieldConfig+: {
          overrides: [
            {
              matcher: { id: 'byRegexp', options: '.* limit' },
              properties: [
                { id: 'custom.lineStyle', value: { dash: [10, 10], fill: 'dash' } },
                { id: 'custom.fillOpacity', value: 0 },
              ],
            },
          ],
        },
      },
      panels.timeseries(13, 'Latency as a multiple of the baseline', "Client latency as a multiple of the pool's baseline.", [0, 30, 8, 8], [
        panels.target('A', 'max by (name, op) (ceph_perfguard_pool_latency_seconds{%(matchers)s,name=~"$pool"}) / max by (name, op) (ceph_perfguard_pool_latency_baseline_seconds{%(matchers)s,name=~"$pool"})' % cfg, '{{name}} {{op}}'),
      ]) + { fieldConfig+: { defaults+: { unit: 'none' } } },
      panels.timeseries(14, 'p99 of the cluster', '99th percentile of client latency, over sampled OSDs.', [8, 30, 8, 8], [
        panels.target('A', 'max by (op) (ceph_perfguard_client_latency_p99_seconds{%(matchers)s})' % cfg, '{{op}}'),
      ]),
      panels.timeseries(15, 'Operations by pool', 'Client operations per second.', [16, 30, 8, 8], [
        panels.target('A', 'max by (name, op) (ceph_perfguard_pool_ops_per_second{%(matchers)s,name=~"$pool"})' % cfg, '{{name}} {{op}}'),
      ]) + { fieldConfig+: { defaults+: { unit: 'ops' } } },
      panels.row(16, 'Movement and problems', 38),
      panels.timeseries(17, 'Misplaced objects', 'Share of objects that are not where CRUSH and upmaps place them.', [0, 39, 8, 8], [
        panels.target('A', 'max(ceph_perfguard_misplaced_ratio{%(matchers)s})' % cfg, 'misplaced'),
      ]) + { fieldConfig+: { defaults+: { unit: 'percentunit' } } },
      panels.timeseries(18, 'Backfill and recovery', 'Bytes per second that backfill and recovery write.', [8, 39, 8, 8], [
        panels.target('A', 'max(ceph_perfguard_recovery_bytes_per_second{%(matchers)s})' % cfg, 'recovery'),
      ]) + { fieldConfig+: { defaults+: { unit: 'Bps' } } },
      panels.timeseries(19, 'PGs with problems', 'A PG can be in several states.', [16, 39, 8, 8], [
        panels.target('A', 'max by (state) (ceph_perfguard_pgs{%(matchers)s,state!="active_clean"}) > 0' % cfg, '{{state}}'),
      ]) + { fieldConfig+: { defaults+: { unit: 'none' } } },
      panels.row(20, 'OSDs', 47),
      panels.panel('status-history', 21, 'The slowest OSDs', 'Latency as a multiple of that of peers at the same load: the 20 OSDs with the highest slowdown in the time range.', [0, 48, 12, 12], [
        panels.target('A', 'max by (ceph_daemon, hostname) (ceph_perfguard_osd_slowdown_ratio{%(matchers)s}) and topk(20, max by (ceph_daemon, hostname) (max_over_time(ceph_perfguard_osd_slowdown_ratio{%(matchers)s}[$__range] @ end())))' % cfg, '{{ceph_daemon}} {{hostname}}'),
      ]) + {
        fieldConfig: {
          defaults: {
            color: { mode: 'continuous-GrYlRd' },
            custom: { fillOpacity: 80, lineWidth: 0 },
            decimals: 2,
            mappings: [],
            max: 4,
            min: 1,
            thresholds: { mode: 'absolute', steps: [{ color: 'green', value: null }] },
            unit: 'none',
          },
          overrides: [],
        },
        options: {
          colWidth: 1,
          legend: { calcs: [], displayMode: 'list', placement: 'bottom', showLegend: false },
          rowHeight: 0.9,
          showValue: 'never',
          tooltip: { mode: 'single', sort: 'none' },
        },
        maxDataPoints: 120,
      },
      panels.heatmap(22, 'Slowdown of all OSDs', 'Number of OSDs by slowdown against their peers.', [12, 48, 12, 12], [
        panels.target('A', 'max by (ceph_daemon) (ceph_perfguard_osd_slowdown_ratio{%(matchers)s})' % cfg, '{{ceph_daemon}}'),
      ], 0.25, 'none'),
      panels.table(23, 'Each OSD', 'Each OSD compared with its peers.', [0, 60, 24, 10], [
        panels.target('A', 'max by (ceph_daemon, hostname, device_class) (ceph_perfguard_osd_slowdown_ratio{%(matchers)s})' % cfg, 'slowdown', 'table'),
        panels.target('B', 'max by (ceph_daemon, hostname, device_class) (ceph_perfguard_osd_latency_seconds{%(matchers)s,op="read"})' % cfg, 'read', 'table'),
        panels.target('C', 'max by (ceph_daemon, hostname, device_class) (ceph_perfguard_osd_latency_seconds{%(matchers)s,op="write"})' % cfg, 'write', 'table'),
        panels.target('D', 'max by (ceph_daemon, hostname, device_class) (ceph_perfguard_osd_latency_seconds{%(matchers)s,op="store"})' % cfg, 'store', 'table'),
        panels.target('E', 'max by (ceph_daemon, hostname, device_class) (ceph_perfguard_osd_latency_p99_seconds{%(matchers)s,op="write"})' % cfg, 'write p99', 'table'),
        panels.target('F', 'max by (ceph_daemon, hostname, device_class) (ceph_perfguard_osd_ping_seconds{%(matchers)s})' % cfg, 'ping', 'table'),
        panels.target('G', 'max by (ceph_daemon, hostname, device_class) (ceph_perfguard_osd_laggy_pgs{%(matchers)s})' % cfg, 'laggy PGs', 'table'),
      ]) + {
        fieldConfig+: {
          overrides: [
            {
              matcher: { id: 'byName', options: 'slowdown' },
              properties: [
                { id: 'unit', value: 'none' },
                { id: 'decimals', value: 2 },
                {
                  id: 'custom.cellOptions',
                  value: { mode: 'basic', type: 'color-background' },
                },
                {
                  id: 'thresholds',
                  value: {
                    mode: 'absolute',
                    steps: [
                      { color: 'transparent', value: null },
                      { color: 'orange', value: 1.5 },
                      { color: 'red', value: 3 },
                    ],
                  },
                },
              ],
            },
            {
              matcher: { id: 'byName', options: 'laggy PGs' },
              properties: [{ id: 'unit', value: 'none' }],
            },
          ],
        },
        options+: { sortBy: [{ desc: true, displayName: 'slowdown' }] },
        transformations: [
          { id: 'merge', options: {} },
          {
            id: 'organize',
            options: {
              excludeByName: { Time: true },
              indexByName: {},
              renameByName: {
                ceph_daemon: 'OSD',
                hostname: 'host',
                device_class: 'class',
                'Value #A': 'slowdown',
                'Value #B': 'read',
                'Value #C': 'write',
                'Value #D': 'store',
                'Value #E': 'write p99',
                'Value #F': 'ping',
                'Value #G': 'laggy PGs',
              },
            },
          },
        ],
      },
      panels.row(24, 'Mitigation', 70),
      panels.stat(25, 'Mode', 'act: perfguard may change the cluster; observe: it only reports what it would do.', [0, 71, 4, 4], [
        panels.target('A', 'max by (mode) (ceph_perfguard_mitigation_mode{%(matchers)s}) == 1' % cfg, '{{mode}}', 'instant'),
      ]) + { options+: { textMode: 'name' } },
      panels.panel('state-timeline', 26, 'Mitigations', 'Mitigations in force; in mode observe, those that mode act would take.', [4, 71, 20, 7], [
        panels.target('A', 'max by (mitigation, state) (ceph_perfguard_mitigations{%(matchers)s}) > 0' % cfg, '{{mitigation}} {{state}}'),
      ]) + {
        fieldConfig: {
          defaults: {
            color: { mode: 'fixed', fixedColor: 'orange' },
            custom: { fillOpacity: 70, lineWidth: 0, spanNulls: false },
            mappings: [],
            noValue: 'nothing',
            thresholds: { mode: 'absolute', steps: [{ color: 'green', value: null }] },
            unit: 'none',
          },
          overrides: [],
        },
        options: {
          alignValue: 'left',
          legend: { calcs: [], displayMode: 'list', placement: 'bottom', showLegend: false },
          mergeValues: true,
          rowHeight: 0.8,
          showValue: 'never',
          tooltip: { mode: 'single', sort: 'none' },
        },
      },
      panels.row(27, 'Probes', 78),
      panels.timeseries(28, 'p99 of probes', '99th percentile measured by the last completed probe, for each profile and what it measured.', [0, 79, 12, 8], [
        panels.target('A', 'max by (measured, profile, probe_job, op) (ceph_perfguard_probe_latency_p99_seconds{%(matchers)s})' % cfg, '{{measured}} {{profile}} {{probe_job}} {{op}}'),
      ]),
      panels.timeseries(29, 'Operations of probes', 'Operations per second measured by the last completed probe.', [12, 79, 12, 8], [
        panels.target('A', 'sum by (measured, profile, probe_job, op, part) (ceph_perfguard_probe_ops_per_second{%(matchers)s})' % cfg, '{{measured}} {{profile}} {{probe_job}} {{op}} {{part}}'),
      ]) + { fieldConfig+: { defaults+: { unit: 'ops' } } },
      panels.timeseries(30, 'Throughput of probes', 'Bytes per second measured by the last completed probe.', [0, 87, 12, 8], [
        panels.target('A', 'sum by (measured, profile, probe_job, op, part) (ceph_perfguard_probe_bytes_per_second{%(matchers)s})' % cfg, '{{measured}} {{profile}} {{probe_job}} {{op}} {{part}}'),
      ]) + { fieldConfig+: { defaults+: { unit: 'Bps' } } },
      panels.table(31, 'Last probes', 'The last probe for each profile and what it measured; slower means slower than its baseline.', [12, 87, 12, 8], [
        panels.target('A', 'time() - max by (measured, profile) (ceph_perfguard_probe_ended_timestamp_seconds{%(matchers)s})' % cfg, 'age', 'table'),
        panels.target('B', 'max by (measured, profile) (ceph_perfguard_probe_success{%(matchers)s})' % cfg, 'done', 'table'),
        panels.target('C', 'max by (measured, profile) (ceph_perfguard_probe_regression{%(matchers)s})' % cfg, 'slower', 'table'),
      ]) + {
        transformations: [
          { id: 'merge', options: {} },
          {
            id: 'organize',
            options: {
              excludeByName: { Time: true },
              indexByName: {},
              renameByName: { 'Value #A': 'age', 'Value #B': 'done', 'Value #C': 'slower' },
            },
          },
        ],
      },
      panels.row(32, 'perfguard itself', 95),
      panels.timeseries(33, 'Cost', 'CPU time of one iteration of the loop in the active mgr.', [0, 96, 12, 8], [
        panels.target('A', 'max(ceph_perfguard_loop_cpu_seconds{%(matchers)s})' % cfg, 'one iteration'),
      ]),
      panels.timeseries(34, 'Age of the data', 'Time since the loop last completed an iteration.', [12, 96, 12, 8], [
        panels.target('A', 'time() - max(ceph_perfguard_last_loop_timestamp_seconds{%(matchers)s})' % cfg, 'age'),
      ]),
    ],
  } },
}
