# SPDX-License-Identifier: LGPL-2.1-or-later
"""Events name the user who gave an order."""
import json
import time
import types
from typing import Any, Dict, List, Sequence

import pytest

from perfguard.cluster.types import AuditEntry
from perfguard.events import Event, EventLog
from perfguard.loop.ordered_by import LATE_SECONDS, QUEUED_SECONDS, OrderedBy, sending
from perfguard.mitigation.types import Revert
from perfguard.requests import Origin, ordered
from perfguard.store import Store

from ..fakes.cluster import MemoryKv
from ..fakes.driver import Driver
from ..test_cli import Shell

PREPARE = 'perfguard rebalance prepare'


@pytest.mark.parametrize('times, found', [
    ({'client.admin': 99.999}, 'client.admin'),
    ({'client.admin': 99.9 - QUEUED_SECONDS}, ''),
    # Another user sends the same command, before or after.
    ({'client.admin': 99.0, 'client.ops': 99.9}, 'client.ops'),
    # The entry of the sender is still on the way.
    ({'client.admin': 70.0}, ''),
    ({'client.admin': 99.9, 'client.ops': 100.1}, 'client.admin'), ({}, '')])
def test_the_sender_was_the_last_one_before_the_handler_began(times: Dict[str, float],
                                                              found: str) -> None:
    entries = [AuditEntry(time, entity, PREPARE) for entity, time in times.items()]
    others = [AuditEntry(99.9999, 'client.x', 'perfguard rebalance pin')]
    entry = sending(entries + others, Origin(PREPARE, 100.0))
    assert (entry.entity if entry else '') == found


class Orders:
    """Orders with one event each, and the audit log."""

    def __init__(self, audited: Sequence[AuditEntry] = ()) -> None:
        self.now = 100.0
        self.asked = 0
        self.kv = MemoryKv()
        self.log = EventLog(Store(self.kv))
        self.audited = audited
        self.ordered_by = OrderedBy(self.log, self._audit_log, lambda: self.now)

    def _audit_log(self) -> Sequence[AuditEntry]:
        self.asked += 1
        return self.audited

    def note(self, what: str) -> None:
        self.ordered_by.noted(self.log.note(Event('request', what), self.now, 500))

    def order(self, what: str, origin: Origin) -> None:
        with self.ordered_by.order(origin):
            self.note(what)

    def wait(self, seconds: float) -> None:
        self.now += seconds
        self.ordered_by.look()

    @property
    def by(self) -> Dict[str, str]:
        return {event['what']: event['by'] for event in self.log.all() if 'by' in event}


def test_the_audit_log_is_read_once_when_it_is_complete() -> None:
    orders = Orders([AuditEntry(100.0, 'client.admin', PREPARE),
                     AuditEntry(101.0, 'client.ops', 'perfguard drain')])
    orders.note('mine')
    orders.order('prepare', Origin(PREPARE, 100.0))
    orders.wait(1.0)
    orders.order('drain', Origin('perfguard drain', 101.0))
    assert (orders.by, orders.asked) == ({}, 0)
    orders.wait(LATE_SECONDS - 1.0)
    assert orders.by == {'prepare': 'client.admin', 'drain': 'client.ops'}
    orders.wait(60.0)
    assert orders.asked == 1


def test_the_entry_of_one_order_names_no_other() -> None:
    """A user repeats the command of another one, and the mons are slow."""
    orders = Orders([AuditEntry(100.0, 'client.admin', PREPARE)])
    orders.order('prepare', Origin(PREPARE, 100.1))
    orders.order('and its pin', Origin(PREPARE, 100.1))
    orders.wait(1.0)
    orders.order('again', Origin(PREPARE, 101.1))
    orders.wait(LATE_SECONDS - 1.0)
    orders.wait(LATE_SECONDS)
    assert orders.by == {'prepare': 'client.admin', 'and its pin': 'client.admin'}


def test_a_user_of_the_dashboard_is_named_at_once() -> None:
    orders = Orders()
    orders.order('prepare', Origin(PREPARE, 100.0, 'dashboard user ann'))
    assert orders.by == {'prepare': 'dashboard user ann'}
    orders.wait(60.0)
    assert orders.asked == 0


def test_without_an_entry_or_an_order_nobody_is_named() -> None:
    orders = Orders()
    orders.order('prepare', Origin(PREPARE, 100.0))
    orders.order('replace', Origin())
    orders.wait(LATE_SECONDS)
    orders.wait(LATE_SECONDS)
    assert (orders.by, orders.asked) == ({}, 1)


def test_a_clock_that_was_set_back_does_not_keep_the_question_for_ever() -> None:
    orders = Orders([AuditEntry(100.0, 'client.admin', PREPARE)])
    orders.order('prepare', Origin(PREPARE, 100.0))
    orders.wait(-3600.0)
    assert orders.by == {'prepare': 'client.admin'}


def test_names_are_stored() -> None:
    orders = Orders()
    orders.order('prepare', Origin(PREPARE, 100.0, 'client.admin'))
    orders.log.save()
    orders.log.name([1], 'client.ops')
    orders.log.save()
    again = EventLog(Store(orders.kv))
    again.load()
    assert [event['by'] for event in again.all()] == ['client.ops']


@pytest.fixture()
def shell(mgr_stub: types.ModuleType) -> Shell:
    return Shell(Driver())


def named(shell: Shell) -> List[Any]:
    return [(event['kind'], event['what'], event['by'])
            for event in shell.driver.loop.published.events if 'by' in event]


def test_events_of_commands_name_the_sender(shell: Shell) -> None:
    driver = shell.driver
    driver.run(2)
    driver.cluster.audited = [AuditEntry(time.time(), 'client.admin', PREPARE),
                              AuditEntry(time.time(), 'client.ops', 'perfguard rebalance abort')]
    assert shell('rebalance prepare')[0] == 0
    driver.run(1)
    assert shell('rebalance abort', by='dashboard user ann')[0] == 0
    driver.run(int(LATE_SECONDS) + 3)
    found = named(shell)
    assert ('request', 'rebalance prepare', 'client.admin') in found
    assert ('request', 'rebalance abort', 'dashboard user ann') in found
    assert 'client.ops' not in {by for _, _, by in found}
    assert 'dashboard user ann' in shell('events')[1]


ADMIN = "from='client.4098 -' entity='client.admin' "


@pytest.mark.parametrize('message, found', [
    (ADMIN + 'cmd=[{"prefix": "perfguard expand", "dry_run": false}]: dispatch',
     [('client.admin', 'perfguard expand')]),
    ("from='mgr.4114 127.0.0.1:0/3' entity='mgr.x' cmd={\"prefix\": \"config-key get\"} : dispatch",
     [('mgr.x', 'config-key get')]),
    (ADMIN + 'cmd=\'[{"prefix": "osd down"}]\': finished', []),
    (ADMIN + 'cmd=[{"prefix": "osd down"}, {"prefix": "osd out"}]: dispatch', []),
    (ADMIN + 'cmd=[{}]: dispatch', []), (ADMIN + 'cmd=[3]: dispatch', []),
    (ADMIN + 'cmd=nonsense: dispatch', []), ('', [])])
def test_entries_of_the_audit_log(mgr_stub: types.ModuleType, message: str, found: Any) -> None:
    from perfguard.cluster.mgr import audit_entries
    rows = [{'stamp': '2026-11-24T11:15:05.936736+0000', 'channel': 'audit', 'priority': '[DBG]',
             'message': message}]
    entries = audit_entries(json.loads(json.dumps(rows)))
    assert [(entry.entity, entry.prefix) for entry in entries] == found
    assert all(entry.time == 1795518905.936736 for entry in entries)
    assert audit_entries([{'message': ADMIN + 'cmd=[{"prefix": "a"}]: dispatch'}]) == []


def test_a_mitigation_that_is_reverted_names_the_sender(shell: Shell) -> None:
    driver = shell.driver
    driver.run(2)
    driver.loop.requests.put(Revert(7))
    with ordered(Origin('perfguard mitigation revert', time.time(), 'dashboard user ann')):
        driver.loop.requests.put(Revert(8))
    driver.run(1)
    assert named(shell) == [('request', 'mitigation revert 8', 'dashboard user ann')]
