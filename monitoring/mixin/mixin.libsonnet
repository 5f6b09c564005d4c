// SPDX-License-Identifier: LGPL-2.1-or-later
// The shape is that of monitoring/ceph-mixin, so that its mixin.libsonnet can import these.
(import 'config.libsonnet') +
(import 'prometheus_alerts.libsonnet') +
(import 'dashboards/perfguard.libsonnet')
