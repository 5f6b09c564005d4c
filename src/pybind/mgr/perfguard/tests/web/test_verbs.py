# SPDX-License-Identifier: LGPL-2.1-or-later
"""The actions that the page offers (web/tests/verbs.json) are those that perfguard accepts."""
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Dict, Iterator, Optional, Tuple

import pytest

from perfguard.errors import Refused
from perfguard.options import DEFAULTS
from perfguard.rebalance.campaign import NO_CAMPAIGN, Campaign
from perfguard.rebalance.campaign_orders import check_rollback
from perfguard.rebalance.report import ReleasePreview, status
from perfguard.rebalance.requests import Request, check
from perfguard.rebalance.types import Phase

from ..fakes.campaigns import campaign_of

TABLE = json.loads((Path(__file__).resolve().parents[2] / 'web' / 'tests' / 'verbs.json')
                   .read_text())
VERBS = ('abort', 'finish', 'pause', 'pin', 'prepare', 'resume', 'rollback', 'start')
#: Phases in which a campaign can be paused.
PAUSABLE = (Phase.PINNED, Phase.RELEASING, Phase.HOLDING)
#: Only on the command line: a rollback of a campaign without pins, an abort that cancels a
#: rollback, pinning again, and another duration for a pause.
OMITTED = {('IDLE', 'rollback'), ('PREPARED', 'rollback'), ('PINNING', 'rollback'),
           ('ABORTING', 'rollback'), ('ABORTING', 'abort'), ('PINNED', 'pin'),
           ('RELEASING', 'pause'), ('HOLDING', 'pause')}
State = Tuple[str, Optional[int], bool, bool]


def campaigns() -> Iterator[Campaign]:
    """Every state that the actions depend on. The time window is none: it delays releases only."""
    yield NO_CAMPAIGN
    for phase in Phase:
        if phase is not Phase.IDLE:
            yield campaign_of(7, phase, 1.0, prepared=True, own=5)
    for phase in PAUSABLE:
        yield campaign_of(7, phase, 1.0, prepared=True, own=5, paused=True)
    yield campaign_of(7, Phase.PREPARED, 1.0, own=5)
    yield campaign_of(7, Phase.ABORTED, 1.0, prepared=True, own=5, held=True)


def is_accepted(campaign: Campaign, verb: str) -> bool:
    seen: Any = SimpleNamespace(crush_version=5)
    try:
        if verb == 'rollback':
            check_rollback(campaign, seen)
        else:
            check(campaign, Request(verb, keep=True), 3, ())
    except Refused:
        return False
    return True


def shown(campaign: Campaign) -> State:
    found = status(campaign, {}, ReleasePreview().moves, (), DEFAULTS, 9.0)
    return found.phase.value, found.id or None, found.paused, found.held


def test_the_table_is_what_perfguard_accepts() -> None:
    rows = {(row['phase'], row['id'], row['paused'], row['held']): row['accepted'].split()
            for row in TABLE}
    accepted: Dict[State, Any] = {
        shown(campaign): [verb for verb in VERBS if is_accepted(campaign, verb)]
        for campaign in campaigns()}
    assert rows == accepted


@pytest.mark.parametrize('row', TABLE, ids=lambda row: '%(phase)s %(id)s %(paused)s %(held)s' % row)
def test_the_page_offers_all_but_what_is_listed_here(row: Any) -> None:
    missing = set(row['accepted'].split()) - set(row['offered'].split())
    assert {(row['phase'], verb) for verb in missing} <= OMITTED
    if row['paused']:
        assert 'resume' in row['offered'].split()
