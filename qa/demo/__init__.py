# SPDX-License-Identifier: LGPL-2.1-or-later
"""The demonstration: a small cluster is expanded with perfguard under client load."""
