# SPDX-License-Identifier: LGPL-2.1-or-later
"""Answers of "perfguard why": causes for a PG, an OSD or the campaign."""
