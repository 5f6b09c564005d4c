# SPDX-License-Identifier: LGPL-2.1-or-later
"""Quality assurance on real clusters."""
