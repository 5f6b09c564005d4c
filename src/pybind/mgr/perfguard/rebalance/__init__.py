# SPDX-License-Identifier: LGPL-2.1-or-later
"""Campaigns: PGs are pinned where their data is, and released a few at a time."""
