# SPDX-License-Identifier: LGPL-2.1-or-later
"""Orders that change CRUSH: what differs between two CRUSH maps."""
from typing import Dict

import pytest

from perfguard.rebalance.crush_orders import differences

BEFORE = {'osd.2': 1, 'osd.10': 1, 'h1': 1, 'rack.5': 1}


@pytest.mark.parametrize('now, text', [
    (BEFORE, 'tunables or weight sets'),
    ({**BEFORE, 'h1': 2, 'osd.10': 2, 'osd.2': 2}, 'osd.2, osd.10, h1'),
    ({**BEFORE, 'osd.3': 1, 'rack.5': 2}, 'osd.3, rack.5'), ({'h1': 1}, 'osd.2, osd.10, rack.5')])
def test_differences_are_listed_with_osds_first_and_by_id(now: Dict[str, int], text: str) -> None:
    assert differences(BEFORE, now) == text
