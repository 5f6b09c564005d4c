# SPDX-License-Identifier: LGPL-2.1-or-later
"""The thread of the module: observe, judge, act, publish."""
