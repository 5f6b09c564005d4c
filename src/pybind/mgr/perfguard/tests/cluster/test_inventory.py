# SPDX-License-Identifier: LGPL-2.1-or-later
"""What the inventory reads from the statistics of pools."""
from typing import Dict

import pytest

from perfguard.cluster.inventory import shared_bytes_of


@pytest.mark.parametrize('space, shared', [
    ({}, 0),
    # Each object takes a little more than is stored.
    ({'stored_raw': 1000, 'bytes_used': 1040}, 0),
    ({'stored_raw': 3000, 'bytes_used': 1100}, 1900),
    # Compression saves 600 bytes.
    ({'stored_raw': 1000, 'bytes_used': 400, 'compress_under_bytes': 1000,
      'compress_bytes_used': 400}, 0),
    ({'stored_raw': 3000, 'bytes_used': 1400, 'compress_under_bytes': 1000,
      'compress_bytes_used': 400}, 1000)])
def test_bytes_that_clones_share(space: Dict[str, int], shared: int) -> None:
    assert shared_bytes_of(space) == shared
