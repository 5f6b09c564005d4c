# SPDX-License-Identifier: LGPL-2.1-or-later
"""Taking back what a campaign has changed in CRUSH.

The old weights, or the old CRUSH map, are sent with the pins of the PGs that have moved meanwhile,
as in joining.py. The pins that this makes unnecessary are removed once it is read back: the mons
may refuse a change of CRUSH and still remove the pins that are sent along with it.
"""
import errno
from dataclasses import replace
from typing import Optional

from ..errors import Refused
from .types import Campaign, Change, Phase, Stage


def check(campaign: Optional[Campaign], crush_version: int) -> Campaign:
    """The campaign that can be rolled back; raises Refused."""
    if campaign is None or not campaign.open:
        raise Refused(errno.ENOENT, 'no campaign is active or holds pins')
    if campaign.back is not None or campaign.rolled_back and not _unfinished(campaign):
        raise Refused(errno.EALREADY, 'campaign %d is already being rolled back' % campaign.id)
    if campaign.phase is Phase.FINISHING:
        raise Refused(errno.EBUSY, 'campaign %d is %s' % (campaign.id, campaign.phase.value))
    change = campaign.change
    if change is not None and change.pending:
        raise Refused(errno.EBUSY, 'campaign %d is changing CRUSH: try again in a few seconds, or '
                      '"rebalance abort" first' % campaign.id)
    if change is not None and change.stage is Stage.WANTED and not change.done:
        raise Refused(errno.EBUSY, 'campaign %d has not changed CRUSH: end it '
                      'with "rebalance abort"'
                      % campaign.id)
    if campaign.crush_own != crush_version:
        raise Refused(errno.EPERM, _changed_by_others(campaign, crush_version))
    return campaign


def _unfinished(campaign: Campaign) -> bool:
    """An earlier rollback was aborted when a part of its change was in force."""
    return (campaign.phase is Phase.ABORTED and campaign.change is not None
            and campaign.change.stage is Stage.WANTED)


def _changed_by_others(campaign: Campaign, crush_version: int) -> str:
    if campaign.crush_own < 0:
        return ('the CRUSH change of campaign %d is not known: undo the CRUSH '
                'change in another campaign' % campaign.id)
    return ('CRUSH (version %d) was changed after campaign %d, which left version %d: undo the '
            'CRUSH change in another campaign' % (
                crush_version, campaign.id, campaign.crush_own))


def begin(campaign: Campaign, change: Change, now: float) -> Campaign:
    """The campaign once what is moving is to be pinned where it is, and then rolled back."""
    return replace(campaign, phase=Phase.ABORTING, phase_since=now, paused=False, held=False,
                   left=0, ended=None, automatic=True, prepared=True, back=change,
                   holds=replace(campaign.holds, given_up=()))
