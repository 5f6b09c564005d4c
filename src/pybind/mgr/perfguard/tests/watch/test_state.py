# SPDX-License-Identifier: LGPL-2.1-or-later
"""Parts of the state of the watch."""
from typing import Dict

import pytest

from perfguard.cluster.types import OsdPlace
from perfguard.watch.state import LaggyState, PeerMedians
from perfguard.watch.types import Alarm


@pytest.mark.parametrize('laggy, waiting, since', [
    (Alarm(), Alarm(), 0.0), (Alarm(True, 5.0), Alarm(), 5.0), (Alarm(), Alarm(True, 4.0), 4.0),
    (Alarm(True, 5.0), Alarm(True, 4.0), 4.0),
    # One that is not raised yet.
    (Alarm(True, 5.0), Alarm(False, 4.0), 5.0)])
def test_pgs_are_laggy_since_the_first_of_them_was(
        laggy: Alarm, waiting: Alarm, since: float) -> None:
    state = LaggyState(laggy, waiting)
    assert (state.since, state.raised) == (since, bool(since))


#: Four disks and two flash drives.
PLACES = {osd: OsdPlace(osd, 'h', 'default', 'ssd' if osd > 4 else 'hdd') for osd in range(1, 7)}


@pytest.mark.parametrize('numbers, medians', [
    ({1: 1.0, 2: 5.0, 3: 9.0, 5: 7.0}, {1: 5.0, 2: 1.0, 3: 1.0, 4: 5.0, 5: 0.0, 6: 7.0, 99: 0.0}),
    ({1: 4.0, 2: 4.0, 3: 4.0, 4: 4.0}, {1: 4.0, 4: 4.0, 6: 0.0})])
def test_medians_of_the_peers_of_an_osd(
        numbers: Dict[int, float], medians: Dict[int, float]) -> None:
    """Without the OSD itself; those without a number have 0."""
    peers = PeerMedians(numbers, PLACES)
    assert {osd: peers.of_peers(osd) for osd in medians} == medians


def test_a_single_osd_has_no_median_of_peers() -> None:
    assert PeerMedians({1: 4.0}, {1: PLACES[1]}).of_peers(1) == 0.0
