# SPDX-License-Identifier: LGPL-2.1-or-later
"""The demonstration: a small cluster grows under perfguard while clients are at work."""
