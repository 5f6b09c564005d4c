# SPDX-License-Identifier: LGPL-2.1-or-later
"""A real expansion under client load: Ceph alone beside perfguard, in one run.

    /usr/bin/python3 -m qa.bench.expansion [--release pacific] [--quick] [--json FILE]

Each run boots a cluster of its own, balances it, fills a replicated and an erasure-coded pool, and
lets clients of two kinds read and write at a fixed rate: some with as many operations in flight as
it takes, some with one at a time. Then OSDs on new hosts, booted before, join in the way of the
run's arm. When all data has arrived the balancer is let loose until it finds nothing more; what it
still moves is counted. Latency counts from when an operation was due.
"""
