#!/bin/sh
# SPDX-License-Identifier: LGPL-2.1-or-later
# Adds perfguard's dashboard to the service specification of cephadm's Grafana:
#
#     ceph orch ls grafana --export | ./cephadm-spec.sh perfguard.json > grafana.yaml
#
# "ceph orch apply -i grafana.yaml" and "ceph orch redeploy grafana" follow. DASHBOARDS is the
# directory from which Grafana is provisioned (mgr/cephadm/grafana_dashboards_path where it is set).
set -eu

dashboard=${1:?usage: cephadm-spec.sh perfguard.json < specification}
spec=$(cat)
case "$spec" in
    *service_type:\ grafana*) ;;
    *) echo 'cephadm-spec.sh: the input is no specification of Grafana' >&2; exit 1 ;;
esac
case "$spec" in
    *custom_configs:*)
        echo 'cephadm-spec.sh: the specification has custom_configs; add the dashboard by hand' >&2
        exit 1 ;;
esac
printf '%s\ncustom_configs:\n' "$spec"
printf '  - mount_path: %s/perfguard.json\n    content: |\n' \
    "${DASHBOARDS:-/etc/grafana/dashboards/ceph-dashboard}"
sed 's/^/      /' "$dashboard"
