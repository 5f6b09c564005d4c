# SPDX-License-Identifier: LGPL-2.1-or-later
"""Brings perfguard's REST API and its page into the dashboard.

The dashboard imports each file of this folder when it starts, and does not start if one fails: so
this one only asks, and an error of perfguard costs only perfguard's own part.
"""
import logging

try:
    from perfguard.web import controllers  # noqa: F401  # importing registers them
except Exception:
    logging.getLogger(__name__).exception('the dashboard goes without perfguard')
