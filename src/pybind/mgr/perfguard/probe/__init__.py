# SPDX-License-Identifier: LGPL-2.1-or-later
"""Short fio-style I/O through librados: is the cluster, a pool, an OSD as fast as it was?"""
