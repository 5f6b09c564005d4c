// SPDX-License-Identifier: LGPL-2.1-or-later
// jsonnet -m DIRECTORY dashboards.jsonnet
(import 'mixin.libsonnet').grafanaDashboards
