# SPDX-License-Identifier: LGPL-2.1-or-later
"""Flags that others have ordered, in the audit log as the releases write it."""
import json
from typing import Any, Dict, List, Set

import pytest

from perfguard.cluster.flag_orders import FlagOrders

FORMS = {
    'pacific': "from='client.? 127.0.0.1:0/466242006' entity='{}' cmd=[{}]: dispatch",
    'tentacle': "from='client.? 127.0.0.1:0/2559357048' entity='{}' cmd={} : dispatch"}


def entry(second: int, verb: str, entity: str = 'client.admin', flag: str = 'norebalance', *,
          form: str = 'pacific') -> Dict[str, Any]:
    command = json.dumps({'prefix': 'osd ' + verb, 'format': 'json', 'key': flag})
    return {'channel': 'audit', 'stamp': '2026-11-27T01:17:%02d.002169+0000' % second,
            'message': FORMS[form].format(entity, command)}


@pytest.mark.parametrize('form', FORMS)
@pytest.mark.parametrize('entries, standing', [
    ([], set()),
    ([(1, 'set')], {'norebalance'}),
    ([(1, 'set'), (2, 'unset')], set()),
    ([(1, 'set'), (2, 'unset'), (3, 'set')], {'norebalance'}),
    # perfguard has the flag set already, or sets it at the same moment.
    ([(1, 'set', 'mgr.x'), (2, 'set')], {'norebalance'}),
    ([(1, 'set'), (2, 'set', 'mgr.x')], {'norebalance'}),
    ([(1, 'set', 'mgr.x')], set()),
    ([(1, 'set'), (2, 'unset', 'mgr.x'), (3, 'set', 'mgr.x')], set()),
    ([(1, 'set', 'client.admin', 'noout')], {'noout'}),
    ([(1, 'set'), (2, 'unset', 'client.admin', 'noout')], {'norebalance'}),
    # Several mons write the log.
    ([(2, 'unset'), (1, 'set')], set())])
def test_orders_that_stand(entries: List[Any], standing: Set[str], form: str) -> None:
    orders = FlagOrders()
    for row in entries:
        orders.hear([entry(*row, form=form)])
    assert orders.standing() == standing


@pytest.mark.parametrize('other', [
    {'channel': 'cluster'}, {'stamp': ''}, {'message': 'osd.3 reported "osd set" norebalance'},
    {'message': "entity='client.admin' cmd=[{\"prefix\": \"osd set\"}]: dispatch"},
    {'message': "entity='client.admin' cmd=[{\"prefix\": \"osd set\": dispatch"},
    {'message': entry(1, 'set')['message'].replace(': dispatch', ':  access denied')}])
def test_other_entries_are_none(other: Dict[str, str]) -> None:
    orders = FlagOrders()
    orders.hear([{**entry(1, 'set'), **other}, {}])
    assert not orders.standing()
