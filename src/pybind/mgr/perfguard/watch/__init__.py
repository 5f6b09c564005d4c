# SPDX-License-Identifier: LGPL-2.1-or-later
"""Laggy PGs, slow OSDs and slow pools, and their likely causes."""
