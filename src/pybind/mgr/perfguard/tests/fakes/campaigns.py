# SPDX-License-Identifier: LGPL-2.1-or-later
"""Campaigns for tests, by the names of their fields, whatever groups these are in."""
from dataclasses import fields, replace
from typing import Any, Dict

from perfguard.rebalance.campaign import Campaign, Origin
from perfguard.rebalance.types import Phase

_GROUPS = ('origin', 'rollback', 'crush', 'orders', 'holds', 'pinning', 'flights', 'progress')


def campaign_of(number: int, phase: Phase, started: float, **changes: Any) -> Campaign:
    return changed(Campaign(number, Origin(started), phase), **changes)


def changed(campaign: Campaign, **changes: Any) -> Campaign:
    """With these values of its fields, or of those of its groups."""
    own = {field.name for field in fields(Campaign)}
    whole = {name: changes.pop(name) for name in tuple(changes) if name in own}
    campaign = replace(campaign, **whole)
    for group in _GROUPS:
        of_group: Dict[str, Any] = {
            field.name: changes.pop(field.name) for field in fields(getattr(campaign, group))
            if field.name in changes}
        campaign = replace(campaign, **{group: replace(getattr(campaign, group), **of_group)})
    assert not changes, changes
    return campaign
