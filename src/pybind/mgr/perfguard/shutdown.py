# SPDX-License-Identifier: LGPL-2.1-or-later
"""`perfguard shutdown`: everything borrowed is given back, so that the module may be disabled.

Ceph runs no code of a module that is disabled, so this must be done before. A shutdown survives a
failover.
"""
import errno
from dataclasses import dataclass
from typing import ClassVar, List, Optional, Sequence

from .errors import Refused
from .rebalance.campaign import Campaign
from .rebalance.pinning import unpinned_count
from .rebalance.requests import Request
from .rebalance.types import Phase
from .store import Store
from .text import pgs

#: Document in the store during the shutdown.
SHUTDOWN = 'shutdown'
SAFE = 'every borrowed setting is given back: "ceph mgr module disable perfguard" is safe now'
CLOSING = ('perfguard is shutting down: "ceph perfguard held" lists the settings that '
           'are not given back yet')


@dataclass(frozen=True)
class ShutdownOrder:
    """The order."""
    sure: bool = False
    dry_run: bool = False
    verb: str = 'shutdown'
    addressee: ClassVar[str] = 'shutdown'


class Shutdown:
    """A shutdown that was ordered, and whether it is complete."""

    def __init__(self, store: Store) -> None:
        self._store = store
        #: Whether it was ordered, and whether everything is given back.
        self.ordered = False
        self.done = False

    def load(self) -> None:
        self.ordered = self._store.get(SHUTDOWN) is not None

    def begin(self, now: float) -> None:
        if not self.ordered:
            self._store.put(SHUTDOWN, {'since': now})
            self.ordered = True

    def finish(self) -> None:
        self._store.remove(SHUTDOWN)
        self.done = True

    def refuse(self) -> None:
        """For an order that would begin something: raises Refused during the shutdown."""
        if self.ordered and not self.done:
            raise Refused(errno.EBUSY, CLOSING)

    def reopen(self) -> None:
        """For an order that begins something, once nothing else can refuse it; as `refuse`."""
        self.refuse()
        self.ordered = self.done = False

    @property
    def remarks(self) -> List[str]:
        """Reasons for `status`; empty without a shutdown."""
        if not self.ordered:
            return []
        return [SAFE if self.done else CLOSING]


def losses(campaign: Campaign, pins: int, probe: Optional[int]) -> List[str]:
    """What a shutdown ends or gives up, as texts. `pins`: their number; `probe`: id of the active
    one."""
    texts: List[str] = []
    if campaign.active:
        texts.append('campaign %d is %s and will be aborted' % (campaign.id, campaign.phase.value))
    if campaign.open and pins:
        texts.append('the pins of %s will become ordinary upmaps, which the balancer may change '
                     '("campaign rollback" restores CRUSH first)' % pgs(pins))
    if campaign.open and unpinned_count(campaign):
        texts.append('%s cannot be pinned and will move at once' % pgs(unpinned_count(campaign)))
    if probe is not None:
        texts.append('probe %d will be cancelled' % probe)
    return texts


def dry_run_text(risks: Sequence[str]) -> str:
    """`shutdown --dry-run`."""
    return '\n'.join([*risks, 'perfguard would give back what it has borrowed, and begin nothing '
                      'until it is enabled again'])


def refuse(risks: List[str]) -> None:
    if risks:
        raise Refused(errno.EPERM, '%s; add --yes-i-really-mean-it to confirm' % '; '.join(risks))


def next_request(campaign: Campaign) -> Optional[Request]:
    """The next request on the way to the end of a campaign; None: it is ending, or there is none.
    An abort during the abort for a rollback cancels that rollback."""
    if not campaign.open:
        return None
    # Aborted: its pins become ordinary upmaps.
    if campaign.held:
        return Request('finish', keep=True)
    if campaign.phase is Phase.FINISHING or (
            campaign.phase is Phase.ABORTING and campaign.rollback.wanted is None):
        return None
    return Request('abort')
