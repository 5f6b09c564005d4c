# SPDX-License-Identifier: LGPL-2.1-or-later
"""The published state as metrics for Prometheus, and the small web server that serves them."""
