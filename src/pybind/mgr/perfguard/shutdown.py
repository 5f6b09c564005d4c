# SPDX-License-Identifier: LGPL-2.1-or-later
"""`perfguard shutdown`: everything borrowed is given back, so that the module may be disabled.

Ceph runs no code of a module that is disabled, so this must be done before. A shutdown survives a
failover. Once it is complete, it ends with the next order that begins something, or when the module
is enabled again: all processes of mgrs begin anew then, while a standby that becomes active has run
since before.
"""
import errno
from dataclasses import dataclass, replace
from typing import ClassVar, List, Optional, Sequence

from .codec import encode
from .errors import Refused
from .rebalance.campaign import Campaign
from .rebalance.pinning import unpinned_count
from .rebalance.requests import Request
from .rebalance.types import Phase
from .store import Store
from .text import pgs

#: Document in the store until the shutdown ends.
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


@dataclass(frozen=True)
class StoredShutdown:
    """When it was ordered, and when everything was given back (None: not yet)."""
    since: float
    done: Optional[float] = None


class Shutdown:
    """A shutdown that was ordered, and whether it is complete."""

    def __init__(self, store: Store) -> None:
        self._store = store
        #: None: none was ordered, or it has ended.
        self._stored: Optional[StoredShutdown] = None

    def load(self, process_began: float) -> List[str]:
        """Load the shutdown from the store; one that was complete before the process of this mgr
        began has ended. Returns texts on what cannot be read. `process_began`: seconds since the
        epoch."""
        self._stored, errors = self._store.load(SHUTDOWN, Optional[StoredShutdown], None)
        done = None if self._stored is None else self._stored.done
        if done is not None and done < process_began:
            self._end()
        return ['the shutdown (%s)' % error for error in errors]

    @property
    def ordered(self) -> bool:
        """Whether it was ordered, and has not ended."""
        return self._stored is not None

    @property
    def done(self) -> bool:
        """Whether everything is given back."""
        return self._stored is not None and self._stored.done is not None

    def begin(self, now: float) -> None:
        self._put(StoredShutdown(now))

    def finish(self, now: float) -> None:
        assert self._stored is not None
        self._put(replace(self._stored, done=now))

    def _put(self, stored: StoredShutdown) -> None:
        self._store.put(SHUTDOWN, encode(stored))
        self._stored = stored

    def _end(self) -> None:
        self._store.remove(SHUTDOWN)
        self._stored = None

    def refuse_closing(self) -> None:
        """For an order that would begin something: raises Refused during the shutdown."""
        if self.ordered and not self.done:
            raise Refused(errno.EBUSY, CLOSING)

    def reopen(self) -> None:
        """For an order that begins something, once nothing else can refuse it: end a shutdown that
        is complete. Raises Refused during one that is not."""
        self.refuse_closing()
        if self.ordered:
            self._end()

    @property
    def remarks(self) -> List[str]:
        """Reasons for `status`; empty without a shutdown."""
        if not self.ordered:
            return []
        return [SAFE if self.done else CLOSING]


def losses(campaign: Campaign, pins: int, probe: Optional[int]) -> List[str]:
    """What a shutdown ends or gives up, as texts. `pins`: number of pins of the campaign; `probe`:
    id of the active probe, None: there is none."""
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


def refuse_losses(risks: List[str]) -> None:
    """Raise Refused if a shutdown that is not confirmed would end or give up something."""
    if risks:
        raise Refused(errno.EPERM, '%s; add --yes-i-really-mean-it to confirm' % '; '.join(risks))


def next_request(campaign: Campaign) -> Optional[Request]:
    """The next request with which a shutdown ends a campaign: abort, then finish --keep; None: it
    is ending or being aborted, or there is none. One that is finishing while movement is halted
    might not end otherwise."""
    if not campaign.open:
        return None
    # Aborted: its pins become ordinary upmaps.
    if campaign.held:
        return Request('finish', keep=True)
    # An abort that precedes a rollback is aborted as well, which cancels the rollback.
    is_aborting = campaign.phase is Phase.ABORTING and campaign.rollback.wanted is None
    is_ending = campaign.phase is Phase.FINISHING and not (
        campaign.pace.halted and campaign.flights.in_flight)
    return None if is_aborting or is_ending else Request('abort')
