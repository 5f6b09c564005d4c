# SPDX-License-Identifier: LGPL-2.1-or-later
"""A campaign whose times are ahead of the clock.

The clock of a host may be set back, and that of the next active mgr may be behind. Whatever waits
for time to pass since such a time would wait as long again.
"""
from dataclasses import replace
from typing import Optional

from .types import Campaign, Change, Flight

#: Times of a campaign at which something has happened.
_TIMES = ('phase_since', 'pins_sent', 'turned', 'progressed', 'stopped', 'blocked')


def without_future(campaign: Campaign, now: float) -> Campaign:
    """The campaign itself if its last turn is in the past."""
    if campaign.turned <= now:
        return campaign

    def change(found: Optional[Change]) -> Optional[Change]:
        return found and replace(found, since=min(found.since, now))

    def flight(found: Flight) -> Flight:
        confirmed = found.confirmed
        return replace(found, since=min(found.since, now),
                       confirmed=None if confirmed is None else min(confirmed, now))

    return replace(
        campaign, **{name: min(getattr(campaign, name), now) for name in _TIMES},
        change=change(campaign.change), back=change(campaign.back),
        undone=change(campaign.undone),
        pinning={pgid: replace(sent, since=min(sent.since, now))
                 for pgid, sent in campaign.pinning.items()},
        in_flight={pgid: flight(each) for pgid, each in campaign.in_flight.items()},
        pace=replace(campaign.pace, decided=min(campaign.pace.decided, now),
                     acquitted=min(campaign.pace.acquitted, now),
                     seen_since=min(campaign.pace.seen_since, now)),
        stalls=replace(
            campaign.stalls, credited=min(campaign.stalls.credited, now),
            released=min(campaign.stalls.released, now),
            changes=tuple(each for each in campaign.stalls.changes if each.time <= now)),
        copying=replace(campaign.copying, changed=min(campaign.copying.changed, now)))
