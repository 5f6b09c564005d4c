# SPDX-License-Identifier: LGPL-2.1-or-later
"""Advice on settings, pools and devices that harm clients."""
