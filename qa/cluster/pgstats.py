# SPDX-License-Identifier: LGPL-2.1-or-later
"""PG states in the mgr, and whether they are current.

OSDs report their PGs every five seconds, so the mgr shows the previous state right after a change.
This file requests a report from OSDs at once, and waits for its sequence number.
"""

import time
from typing import Any, Dict, List, cast

from .connection import Connection, parse
from .errors import WaitTimeout

# An OSD that hangs cannot report; what is known of its PGs stays old.
ANSWER_SECONDS = 2.0


class PgStats:
    """PG states of one cluster."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def brief(self) -> List[Dict[str, Any]]:
        """pg dump pgs_brief."""
        found = self._mgr('pg dump', dumpcontents=['pgs_brief'])
        return cast(List[Dict[str, Any]],
                    found.get('pg_stats', []) if isinstance(found, dict) else found)

    def states(self) -> Dict[str, int]:
        """Number of PGs by state."""
        found = self._mgr('pg stat')
        summary = found.get('pg_summary', found)
        return {row['name']: row['num'] for row in summary['num_pg_by_state']}

    def flush(self, timeout: float) -> None:
        """Wait until the mgr has a report from each OSD that is up, newer than this call."""
        deadline = time.monotonic() + timeout
        self._wait_maps(deadline)
        wanted = self.request()
        while True:
            have = self._sequences()
            late = [osd for osd, sequence in wanted.items() if have.get(osd, 0) < sequence]
            if not late:
                return
            if time.monotonic() > deadline:
                raise WaitTimeout(f'no PG stats of OSDs {late} in {timeout:g} s')
            time.sleep(0.1)

    def request(self) -> Dict[int, int]:
        """Request a report from all OSDs; returns its sequence number by OSD that answers."""
        return self._tell_up('flush_pg_stats')

    def _wait_maps(self, deadline: float) -> None:
        """Wait until the OSDs that answer have the newest OSDMap: their states change only then."""
        epoch = parse(self._connection.command('mon', {'prefix': 'osd stat', 'format': 'json'}),
                      'osd stat')['epoch']
        while True:
            maps = self._tell_up('status')
            if all(int(status['newest_map']) >= epoch for status in maps.values()):
                return
            if time.monotonic() > deadline:
                raise WaitTimeout(f'some OSDs do not get OSDMap {epoch}')
            time.sleep(0.1)

    def _tell_up(self, prefix: str) -> Dict[int, Any]:
        dump = parse(self._connection.command('mon', {'prefix': 'osd dump', 'format': 'json'}),
                     'osd dump')
        up = [osd['osd'] for osd in dump['osds'] if osd['up']]
        return self._connection.tell_osds(up, {'prefix': prefix, 'format': 'json'},
                                          ANSWER_SECONDS)

    def _sequences(self) -> Dict[int, int]:
        found = self._mgr('pg dump', dumpcontents=['osds'])
        rows = found.get('osd_stats', []) if isinstance(found, dict) else found
        return {row['osd']: row['seq'] for row in rows}

    def _mgr(self, prefix: str, **args: Any) -> Any:
        command = {'prefix': prefix, 'format': 'json', **args}
        return parse(self._connection.command('mgr', command), prefix)
