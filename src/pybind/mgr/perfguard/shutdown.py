# SPDX-License-Identifier: LGPL-2.1-or-later
"""`perfguard shutdown`: everything that is borrowed goes back, so that the module may be disabled.

Ceph runs no code of a module that is disabled, so this has to come first. It survives a failover.
"""
import errno
from dataclasses import dataclass
from typing import ClassVar, List, Optional

from .errors import Refused
from .rebalance.requests import Request
from .rebalance.types import Campaign, Phase
from .store import Store
from .words import pgs

#: Document in the store while the shutdown is going on.
DOCUMENT = 'shutdown'
SAFE = 'every borrowed setting is given back: "ceph mgr module disable perfguard" is safe now'
CLOSING = ('perfguard is shutting down: "ceph perfguard held" lists the settings that '
           'are not given back yet')


@dataclass(frozen=True)
class Shutdown:
    """The order."""
    sure: bool = False
    verb: str = 'shutdown'
    job: ClassVar[str] = 'shutdown'


class Leaving:
    def __init__(self, store: Store) -> None:
        self._store = store
        #: It was ordered; everything is given back.
        self.wanted = False
        self.done = False

    def load(self) -> None:
        self.wanted = self._store.get(DOCUMENT) is not None

    def begin(self, now: float) -> None:
        if not self.wanted:
            self._store.put(DOCUMENT, {'since': now})
            self.wanted = True

    def finish(self) -> None:
        self._store.remove(DOCUMENT)
        self.done = True

    def reopen(self) -> None:
        """For an order that begins something: refused while the shutdown is going on."""
        if self.wanted and not self.done:
            raise Refused(errno.EBUSY, CLOSING)
        self.wanted = self.done = False

    @property
    def remarks(self) -> List[str]:
        """Nothing where no shutdown was ordered."""
        if not self.wanted:
            return []
        return [SAFE if self.done else CLOSING]


def losses(campaign: Optional[Campaign], pins: int, probe: Optional[int]) -> List[str]:
    """What a shutdown ends or gives up, in words."""
    found: List[str] = []
    if campaign is not None and campaign.active:
        found.append('campaign %d is %s and will be aborted' % (campaign.id, campaign.phase.value))
    if campaign is not None and campaign.open and pins:
        found.append('the pins of %s will become ordinary upmaps, which the balancer may change '
                     '("rebalance rollback" restores CRUSH first)' % pgs(pins))
    if campaign is not None and campaign.open and campaign.unpinnable:
        found.append('%s cannot be pinned and will move at once'
                     % pgs(len(campaign.unpinnable)))
    if probe is not None:
        found.append('probe %d will be cancelled' % probe)
    return found


def refuse(found: List[str]) -> None:
    if found:
        raise Refused(errno.EPERM, '%s; add --yes-i-really-mean-it to confirm' % '; '.join(found))


def next_request(campaign: Optional[Campaign]) -> Optional[Request]:
    """What brings a campaign nearer to its end; None: it is ending, or there is none."""
    if campaign is None or not campaign.open:
        return None
    if campaign.held:
        return Request('finish', keep=True)
    if campaign.phase is Phase.FINISHING or (
            campaign.phase is Phase.ABORTING and campaign.back is None):
        return None
    return Request('abort')
