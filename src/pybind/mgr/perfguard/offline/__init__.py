# SPDX-License-Identifier: LGPL-2.1-or-later
"""perfguard-plan: perfguard's plans for clusters that cannot load a module.

Reads dumps or a live cluster, prints a plan, changes nothing.
"""
from .command import main

__all__ = ['main']
