# SPDX-License-Identifier: LGPL-2.1-or-later
"""What tests and benches on real clusters share: how perfguard is driven, and what is broken."""
