# SPDX-License-Identifier: LGPL-2.1-or-later
"""Examines the cluster every few minutes, publishes the advice, and keeps the muted codes."""
import errno
import logging
from dataclasses import dataclass, replace
from typing import Callable, Dict, FrozenSet, Mapping, Optional

from ..cluster.inventory import Inventory
from ..cluster.ports import Reader, View
from ..cluster.types import Json, Question
from ..codec import encode
from ..errors import HealthChecks, Refused
from ..observation import Observation
from ..store import Store
from . import pools, report
from .drives import without_smart
from .report import Advice, AdviseOrder, Facts, Measurements
from .rules import CODES, findings

log = logging.getLogger(__name__)

#: Document in the store: codes that operators have muted.
ADVISE_DOCUMENT = 'advise'
#: The facts behind the advice rarely change, and reading them takes about 0.1 s on a large cluster.
EVERY_SECONDS = 600.0
#: During an upgrade of Ceph a standby without the module may appear at any time; and a health check
#: must end with its cause, such as the moment of an upgrade in which the mgrs' versions differ.
SOON_SECONDS = 30.0
#: After a failover the OSDs report first.
FIRST_SECONDS = 30.0
#: OSDs that have not answered by then are left out.
ADVISE_PATIENCE_SECONDS = 10.0
WAITING = 'OSDs are being asked for their options: try again in a few seconds'
NO_CONFIG = 'the mons did not answer "config dump": rules about options were not checked'


@dataclass(frozen=True)
class StoredAdvice:
    muted: FrozenSet[str] = frozenset()


class Advising:
    """Looks at the cluster in three steps.

    1. Read the inventory, every EVERY_SECONDS (SOON_SECONDS during an upgrade of Ceph and while a
       health check is raised), or when an operator asks.
    2. Ask OSDs whose location in CRUSH differs from their host, over several turns.
    3. Apply the rules and publish what they find.
    """

    def __init__(self, cluster: Reader, store: Store,
                 measured: Callable[[float], Measurements]) -> None:
        """`measured`: what probes and the watch have measured until a time."""
        self._cluster = cluster
        self._store = store
        self._measured = measured
        self._muted: FrozenSet[str] = frozenset()
        self._next_reading_at: Optional[float] = None
        #: The inventory and the time of reading it, while answers of OSDs are pending.
        self._inventory: Optional[Inventory] = None
        self._inventory_read_at = 0.0
        self.advice = Advice()
        #: Health checks.
        self.checks: HealthChecks = {}

    def load(self) -> None:
        # Codes that only a newer version knows stay muted.
        self._muted = self._store.load_record(ADVISE_DOCUMENT, StoredAdvice, StoredAdvice()).muted
        self.advice = Advice(muted=self._muted)

    def turn(self, observation: Observation, view: View, campaign_open: bool,
             untrimmed_epochs: Optional[int]) -> None:
        """Run one turn (`_turn`). An error ends the present reading and becomes a remark: the
        advice must not stop the loop."""
        try:
            self._turn(observation, view, campaign_open, untrimmed_epochs)
        except Exception as error:
            log.exception('could not compute the advice')
            self._inventory = None  # end this reading; the next one is due later
            self.advice = replace(self.advice, remarks=('could not read the cluster\'s '
                                                        'configuration: %r' % error,))

    def _turn(self, observation: Observation, view: View, campaign_open: bool,
              untrimmed_epochs: Optional[int]) -> None:
        """Begin to read the cluster when that is due, and publish the advice once the OSDs have
        answered, or after ADVISE_PATIENCE_SECONDS. `campaign_open`: a campaign has stopped the
        balancer; `untrimmed_epochs`: OSDMap epochs that the mons keep, None: not known."""
        if self._next_reading_at is None:
            self._next_reading_at = observation.now + FIRST_SECONDS
        interval = SOON_SECONDS if observation.orchestrating.image or self.checks else EVERY_SECONDS
        # The interval may have become shorter.
        self._next_reading_at = min(self._next_reading_at, observation.now + interval)
        if self._inventory is None and observation.now >= self._next_reading_at:
            self._begin(observation.now, view, interval)
        if self._inventory is None:
            return
        questions = pools.questions(self._inventory.osds)
        answers = self._cluster.inquire(questions) if questions else {}
        waited = observation.now - self._inventory_read_at
        if len(answers) == len(questions) or waited >= ADVISE_PATIENCE_SECONDS:
            self._publish(observation, campaign_open, untrimmed_epochs, self._inventory, answers)

    def _begin(self, now: float, view: View, interval: float) -> None:
        self._next_reading_at = now + interval
        self._inventory, self._inventory_read_at = self._cluster.inventory(view), now

    def _publish(self, observation: Observation, campaign_open: bool,
                 untrimmed_epochs: Optional[int], inventory: Inventory,
                 answers: Mapping[Question, str]) -> None:
        """Publish what the rules find in the inventory and in the OSDs' answers on their options in
        force. This ends the reading."""
        in_force: Dict[int, Dict[str, str]] = {}
        for question, value in answers.items():
            in_force.setdefault(question.osd, {})[question.option] = value
        facts = Facts(inventory, observation.signals.health, untrimmed_epochs, campaign_open,
                      in_force, self._measured(observation.now))
        self.advice = Advice(observation.now, findings(facts, self._muted), self._muted,
                             (*((NO_CONFIG,) if inventory.config is None else ()),
                              *without_smart(facts)))
        self.checks = report.standby_checks(inventory)
        self._inventory = None

    def carry_out(self, order: AdviseOrder, observation: Observation, view: View,
                  campaign_open: bool, untrimmed_epochs: Optional[int]) -> Json:
        """Answer an order with the advice: examined again for "advise", which may take some turns;
        after a code was muted or unmuted, the last one with this change. Raises Refused."""
        if order.verb == 'advise':
            if self._inventory is None:
                self._next_reading_at = observation.now
            self.turn(observation, view, campaign_open, untrimmed_epochs)
        else:
            self._mute(order)
        return report.to_json(self.advice if self._inventory is None else replace(
            self.advice, remarks=(*self.advice.remarks, WAITING)))

    def _mute(self, order: AdviseOrder) -> None:
        """Mute or unmute the code of an order, and store that. Raises Refused for another code."""
        muting = order.verb == 'advise mute'
        if muting and order.code not in CODES:
            raise Refused(errno.ENOENT, 'unknown code %r: must be one of %s'
                          % (order.code, ', '.join(sorted(CODES))))
        if not muting and order.code not in self._muted:
            raise Refused(errno.ENOENT, '%r is not muted' % order.code)
        change = frozenset({order.code})
        self._muted = self._muted | change if muting else self._muted - change
        self._store.put(ADVISE_DOCUMENT, encode(StoredAdvice(self._muted)))
        self.advice = replace(self.advice, muted=self._muted, findings=tuple(
            replace(finding, muted=finding.rule.code in self._muted)
            for finding in self.advice.findings))
