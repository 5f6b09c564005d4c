# SPDX-License-Identifier: LGPL-2.1-or-later
"""perfguard's own version."""

VERSION = '0.1.0'
