# SPDX-License-Identifier: LGPL-2.1-or-later
"""Commands of plans, and scripts that run them."""
from typing import Iterator, Mapping, Sequence

from ..cluster.types import OsdMap, UpmapEntry
from ..upmap.semantics import as_line, entry_commands

#: Commands of a script from one line of progress to the next.
PROGRESS_LINES = 20
#: PG states in which a script sends no further batch, as patterns of a shell.
UNSETTLED = ('remapped', 'degraded', 'undersized', 'peering', 'activating', 'creating', 'unknown',
             'stale', 'down', 'incomplete', 'laggy', '+wait', 'recover')
#: PG statistics lag behind the OSDMap by seconds.
SETTLE = r'''settle() {
    sleep 10
    until pgs=$(ceph pg stat) && case "${pgs%%%%;*}" in (%s) false ;; esac; do
        echo "waiting for PGs: $pgs" >&2
        sleep 10
    done
}''' % '|'.join('*%s*' % state for state in UNSETTLED)


def commands(osdmap: OsdMap, entries: Mapping[str, UpmapEntry]) -> Iterator[str]:
    """The ceph commands that give PGs these entries, one per line, in safe order."""
    for pgid, wanted in entries.items():
        yield from map(as_line, entry_commands(pgid, osdmap.entry(pgid), wanted))


def script(batches: Sequence[Sequence[str]], last: str = '') -> Iterator[str]:
    """The same as a script that shows its progress.

    Before each of several batches it waits until no PG moves or is in trouble. An error of one
    command does not stop it, since the PGs that follow would move without their pins. It may be
    interrupted and run again: each command sets the complete entry of one PG, or a weight or flag
    to its value. `last`: a command for when none has failed.
    """
    yield '#!/bin/sh'
    # Some shells continue after Ctrl-C, since "ceph" returns an ordinary error then.
    yield 'trap \'echo "interrupted; run this script again" >&2; exit 130\' INT TERM'
    yield 'failed=0'
    if len(batches) > 1:
        yield SETTLE
    number, total = 0, sum(map(len, batches))
    for batch in batches:
        if len(batches) > 1:
            yield 'settle'
        for at, line in enumerate(batch, 1):
            number += 1
            yield line + ' || failed=$((failed + 1))'
            if number % PROGRESS_LINES == 0 or at == len(batch):
                yield 'echo "%d of %d commands, $failed failed" >&2' % (number, total)
    if last:
        yield 'test "$failed" -ne 0 || %s || failed=1' % last
    yield 'test "$failed" -eq 0'
