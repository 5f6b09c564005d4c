# SPDX-License-Identifier: LGPL-2.1-or-later
"""A real expansion under client load: Ceph alone compared with perfguard, in one run.

    /usr/bin/python3 -m qa.bench.expansion [--release pacific] [--quick] [--json FILE]

Each run boots its own cluster, balances it, fills a replicated and an erasure-coded pool, and
starts two kinds of clients that read and write at a fixed rate: some with as many operations in
flight as the rate requires, some with one at a time. Then OSDs on new hosts, booted before, join
by the method of the arm. When all data has arrived, the balancer runs until it finds no further
change; the data that it moves counts as well. Latency is measured from the time at which an
operation was due.
"""
