# SPDX-License-Identifier: LGPL-2.1-or-later
"""The cluster: the only package that calls the mgr's API."""
