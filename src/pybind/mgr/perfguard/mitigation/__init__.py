# SPDX-License-Identifier: LGPL-2.1-or-later
"""Slows recovery down while it harms clients, and rescues PGs whose OSDs are too full."""
