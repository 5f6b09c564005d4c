# SPDX-License-Identifier: LGPL-2.1-or-later
"""Helpers of tests and benches on real clusters."""
