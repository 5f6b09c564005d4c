# SPDX-License-Identifier: LGPL-2.1-or-later
"""A model of a Ceph cluster that drives perfguard's own loop: sizes that no test machine has.

    /usr/bin/python3 -m qa.sim --osds 630 --pgs 262144 --seed 1

The loop, the watch, the campaign and the throttle are the real ones. They see the model through
the same interface as ceph-mgr (perfguard/cluster/ports.py). A seed repeats a run.
"""
