// SPDX-License-Identifier: LGPL-2.1-or-later
// What the panels of the dashboard have in common.
{
  local datasource = { type: 'prometheus', uid: '${datasource}' },

  // What Prometheus is asked. `kind`: 'range' or 'instant' as time series, or 'table'.
  target(ref, expr, legend, kind='range'):: {
    datasource: datasource,
    editorMode: 'code',
    expr: expr,
    format: if kind == 'table' then 'table' else 'time_series',
    instant: kind != 'range',
    [if legend != null then 'legendFormat']: legend,
    range: kind == 'range',
    refId: ref,
  },

  row(id, title, y):: {
    collapsed: false,
    gridPos: { h: 1, w: 24, x: 0, y: y },
    id: id,
    panels: [],
    title: title,
    type: 'row',
  },

  // `at`: x, y, width and height on the grid.
  panel(type, id, title, description, at, targets):: {
    datasource: datasource,
    description: description,
    gridPos: { h: at[3], w: at[2], x: at[0], y: at[1] },
    id: id,
    targets: targets,
    title: title,
    type: type,
  },

  stat(id, title, description, at, targets)::
    self.panel('stat', id, title, description, at, targets) + {
      fieldConfig: {
        defaults: {
          color: { mode: 'thresholds' },
          mappings: [],
          thresholds: { mode: 'absolute', steps: [{ color: 'text', value: null }] },
          unit: 'none',
        },
        overrides: [],
      },
      options: {
        colorMode: 'value',
        graphMode: 'none',
        justifyMode: 'auto',
        orientation: 'auto',
        reduceOptions: { calcs: ['lastNotNull'], fields: '', values: false },
        textMode: 'auto',
        percentChangeColorMode: 'standard',
        showPercentChange: false,
        wideLayout: true,
      },
    },

  timeseries(id, title, description, at, targets)::
    self.panel('timeseries', id, title, description, at, targets) + {
      fieldConfig: {
        defaults: {
          color: { mode: 'palette-classic' },
          custom: {
            drawStyle: 'line',
            lineWidth: 1,
            fillOpacity: 0,
            showPoints: 'never',
            spanNulls: 60000,
            stacking: { group: 'A', mode: 'none' },
          },
          mappings: [],
          thresholds: { mode: 'absolute', steps: [{ color: 'green', value: null }] },
          unit: 's',
          min: 0,
        },
        overrides: [],
      },
      options: {
        legend: {
          calcs: ['lastNotNull', 'max'],
          displayMode: 'table',
          placement: 'bottom',
          showLegend: true,
        },
        tooltip: { mode: 'multi', sort: 'desc' },
      },
    },

  // `bucket`: height of its cells, in `unit`.
  heatmap(id, title, description, at, targets, bucket, unit)::
    self.panel('heatmap', id, title, description, at, targets) + {
      fieldConfig: {
        defaults: {
          custom: {
            hideFrom: { legend: false, tooltip: false, viz: false },
            scaleDistribution: { type: 'linear' },
          },
        },
        overrides: [],
      },
      options: {
        calculate: true,
        calculation: {
          xBuckets: { mode: 'count', value: '60' },
          yBuckets: { mode: 'size', scale: { type: 'linear' }, value: std.toString(bucket) },
        },
        cellGap: 1,
        showValue: 'never',
        color: {
          exponent: 0.5,
          fill: 'dark-orange',
          mode: 'scheme',
          reverse: false,
          scale: 'exponential',
          scheme: 'Oranges',
          steps: 64,
        },
        exemplars: { color: 'rgba(255,0,255,0.7)' },
        filterValues: { le: 1e-09 },
        legend: { show: true },
        rowsFrame: { layout: 'auto' },
        tooltip: { mode: 'single', showColorScale: false, yHistogram: false },
        yAxis: { axisPlacement: 'left', reverse: false, unit: unit },
      },
    },

  table(id, title, description, at, targets)::
    self.panel('table', id, title, description, at, targets) + {
      fieldConfig: {
        defaults: {
          color: { mode: 'thresholds' },
          custom: {
            align: 'auto',
            cellOptions: { type: 'auto' },
            filterable: true,
            inspect: false,
          },
          mappings: [],
          thresholds: { mode: 'absolute', steps: [{ color: 'text', value: null }] },
          unit: 's',
        },
        overrides: [
          {
            matcher: { id: 'byRegexp', options: 'done|slower' },
            properties: [{ id: 'unit', value: 'bool_yes_no' }],
          },
          {
            matcher: { id: 'byName', options: 'slower' },
            properties: [
              {
                id: 'custom.cellOptions',
                value: { mode: 'basic', type: 'color-background' },
              },
              {
                id: 'thresholds',
                value: {
                  mode: 'absolute',
                  steps: [{ color: 'transparent', value: null }, { color: 'red', value: 1 }],
                },
              },
            ],
          },
        ],
      },
      options: { cellHeight: 'sm', frameIndex: 0, showHeader: true },
    },
}
