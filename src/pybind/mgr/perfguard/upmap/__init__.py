# SPDX-License-Identifier: LGPL-2.1-or-later
"""pg_upmap entries: what the mons and OSDMap make of them, pins, and the balance of PGs."""
