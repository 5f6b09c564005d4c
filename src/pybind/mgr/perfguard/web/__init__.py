# SPDX-License-Identifier: LGPL-2.1-or-later
"""perfguard in the Ceph dashboard: REST API and page.

`controllers` runs in the dashboard's module and asks perfguard's module through MgrModule.remote;
`status.overview` runs in perfguard's own. `routes`, which both agree on, imports neither.
"""
