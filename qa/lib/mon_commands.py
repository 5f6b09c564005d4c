# SPDX-License-Identifier: LGPL-2.1-or-later
"""The commands that an mgr has sent to the mons, and those that reached them, from the logs."""
import re
from collections import Counter
from datetime import datetime
from typing import Counter as CounterType, Dict, Iterator, List

from qa.cluster import Cluster
from qa.lib.failing_mgr import CHANGES

#: So that an mgr logs what it sends, and when.
LOGGING = {'debug_monc': '10'}
JOURNAL = 'mgr/perfguard/'
#: An mgr that cannot ask whether it was replaced may report that, before it stops.
EVENTS = JOURNAL + 'events'
_SENT = re.compile(r'(\S+) .* start_mon_command cmd=(.*)')
_HANDLED = re.compile(r'\S+ .* handle_command mon_command\((.*) v 0\)')
_AUDITED = re.compile(r"(\S+) .* log_channel\(audit\) .* entity='([^']*)' (.*)")
_WORD = r'\b%s"?[:=] ?"?([^",}]*)'


def sent(cluster: Cluster, mgr: str, begin: float) -> CounterType[str]:
    """Commands that an mgr with LOGGING has sent since then, by name: "config-key set KEY"."""
    found = filter(None, map(_SENT.match, _lines(cluster, 'mgr.' + mgr)))
    return Counter(_name(each[2]) for each in found if _seconds(each[1]) >= begin)


def arrived(cluster: Cluster, mgr: str, begin: float) -> CounterType[str]:
    """Commands of the mgr that the only mon has had since then."""
    return Counter(_arrived(cluster, 'mgr.' + mgr, begin))


def _arrived(cluster: Cluster, entity: str, begin: float) -> Iterator[str]:
    handled = ''
    for line in _lines(cluster, 'mon.a'):
        found = _HANDLED.match(line)
        if found:
            handled = found[1]
        audited = _AUDITED.match(line)
        if audited and audited[2] == entity and _seconds(audited[1]) >= begin \
                and not audited[3].endswith(': finished'):
            # The audit log does not say which config-key is set or removed.
            yield _name(audited[3].strip() or handled)


def changes(commands: CounterType[str]) -> Dict[str, int]:
    """Those with which perfguard changes the cluster or its journal, but not its log of events."""
    return {name: count for name, count in commands.items() if name.startswith(CHANGES)
            or JOURNAL in name and EVENTS not in name and not name.startswith('config-key get')}


def _name(command: str) -> str:
    found = (re.search(_WORD % word, command) for word in ('prefix', 'key'))
    return ' '.join(each[1] for each in found if each)


def _seconds(text: str) -> float:
    return datetime.strptime(text, '%Y-%m-%dT%H:%M:%S.%f%z').timestamp()


def _lines(cluster: Cluster, daemon: str) -> List[str]:
    return cluster.log_path(daemon).read_text(errors='replace').splitlines()
