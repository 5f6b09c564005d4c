# SPDX-License-Identifier: LGPL-2.1-or-later
"""What the loop publishes, as Prometheus reads it, and the small web server that serves it."""
