# SPDX-License-Identifier: LGPL-2.1-or-later
"""perfguard's own version, also that of the packages."""
VERSION = '0.1.0'
