#!/bin/sh
# SPDX-License-Identifier: LGPL-2.1-or-later
# Installs what is missing, boots a small Ceph cluster on this machine and expands it under
# perfguard while clients are at work. "./demo.sh --help" lists the options.
set -eu

cd "$(dirname "$0")"
./install-deps.sh demo
exec /usr/bin/python3 -m qa.demo "$@"
