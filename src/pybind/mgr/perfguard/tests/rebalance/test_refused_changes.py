# SPDX-License-Identifier: LGPL-2.1-or-later
"""What remains of a change that was refused before any part of it was in force."""
from dataclasses import replace

import pytest

from perfguard.rebalance.campaign import Rollback
from perfguard.rebalance.change import ChangeStage
from perfguard.rebalance.joining import keep_part_in_force
from perfguard.rebalance.types import Phase
from perfguard.rebalance.weights import WeightChange

from ..fakes.campaigns import campaign_of
from ..fakes.drafts import draft_of

UNDONE = WeightChange(ChangeStage.LANDED, weights={2: 1.0})


@pytest.mark.parametrize('rollback, change', [
    (Rollback(begun=True, undone=UNDONE), UNDONE),
    (Rollback(), WeightChange(stage=ChangeStage.LANDED)),
    (Rollback(wanted=UNDONE), WeightChange(stage=ChangeStage.LANDED))])
def test_a_rollback_returns_to_the_change_that_it_was_to_undo(rollback: Rollback,
                                                              change: WeightChange) -> None:
    campaign = replace(campaign_of(1, Phase.ABORTING, 1.0), rollback=rollback,
                       change=WeightChange(ChangeStage.WANTED, weights={1: 7.0}))
    after = keep_part_in_force(draft_of(campaign)).campaign
    assert after.change == change
    assert after.rollback == (Rollback() if rollback.begun else rollback)
