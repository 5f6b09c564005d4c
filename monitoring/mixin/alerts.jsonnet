// SPDX-License-Identifier: LGPL-2.1-or-later
// jsonnet -S alerts.jsonnet
std.manifestYamlDoc((import 'mixin.libsonnet').prometheusAlerts)
