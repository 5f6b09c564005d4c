# SPDX-License-Identifier: LGPL-2.1-or-later
"""Commands of plans, and scripts that run them."""
import shlex
from dataclasses import dataclass
from typing import FrozenSet, Iterator, Mapping, Optional, Sequence

from ..cluster.types import OsdMap, UpmapEntry
from ..upmap.semantics import as_line, entry_commands

#: Number of commands per line of progress.
PROGRESS_LINES = 20
#: PG states in which a script sends no further batch, as patterns of a shell.
UNSETTLED = ('remapped', 'degraded', 'undersized', 'peering', 'activating', 'creating', 'unknown',
             'stale', 'down', 'incomplete', 'laggy', '+wait', 'recover')
#: PG statistics lag behind the OSDMap by seconds. RECEIVERS: ids of OSDs, with | between them.
SETTLE = ('sleep 10; until pgs=$(CEPH pg stat) && osds=$(CEPH osd dump) && case "${pgs%%;*}" in '
          '(STATES) false ;; esac && ! echo "$osds" | grep -E "^osd[.](RECEIVERS) .*full" >&2; '
          'do echo "waiting for PGs, or for space: $pgs" >&2; sleep 10; done').replace(
              'STATES', '|'.join('*%s*' % state for state in UNSETTLED))
CEPH = 'ceph'
#: Nothing moves until all commands were executed. A flag that others have set is left alone; they
#: may have set or cleared it since the plan was made.
HOLD = '''osds=$(CEPH osd dump) || exit 1
if echo "$osds" | grep "^flags.*norebalance" > /dev/null; then
    echo "norebalance was set before, so it stays set" >&2
    hold=theirs
else
    hold=ours
    CEPH osd set norebalance || exit 1
fi'''
LET_GO = '''if test "$failed" -ne 0; then
    echo "norebalance stays set, since commands failed: run this script again" >&2
elif test "$hold" = ours; then
    CEPH osd unset norebalance || failed=1
else
    echo "unset norebalance when nothing else needs it; an interrupted run may have set it" >&2
fi'''
#: The same for commands that are piped to a shell, once the flag is set.
STOP = ('trap \'test "$?" -eq 0 || echo "stopped: norebalance stays set, so no PG moves; pin the '
        'remaining PGs (perfguard-plan pin), then unset it" >&2\' EXIT')


def commands(osdmap: OsdMap, entries: Mapping[str, UpmapEntry]) -> Iterator[str]:
    """The ceph commands that give PGs these entries, one per line, in safe order."""
    for pgid, wanted in entries.items():
        yield from map(as_line, entry_commands(pgid, osdmap.entry(pgid), wanted))


@dataclass(frozen=True)
class CommandBatch:
    lines: Sequence[str]
    #: OSDs that receive PGs; None: it does not wait.
    receivers: Optional[FrozenSet[int]] = None

    def settle(self, ceph: str) -> Iterator[str]:
        """Waits until no PG moves or is in trouble, and the receivers are not nearly full."""
        if self.receivers is not None:
            receivers = '|'.join(map(str, sorted(self.receivers))) or 'none'
            yield SETTLE.replace('CEPH', ceph).replace('RECEIVERS', receivers)


@dataclass(frozen=True)
class Script:
    """The commands of a plan."""
    batches: Sequence[CommandBatch]
    #: No data must move until all commands have been executed.
    hold: bool = False
    #: The commands that undo the plan.
    back: Sequence[str] = ()


def listing(plan: Script, conf: str = '') -> Iterator[str]:
    """One command per line. `conf`: the cluster's configuration file, if not the default.

    The lines may be piped to a shell: waits precede each batch of a plan. If nothing must move,
    the script first sets norebalance and exits on the first error.
    """
    ceph = '%s -c %s' % (CEPH, shlex.quote(conf)) if conf else CEPH
    if plan.hold:
        yield from ('set -e', HOLD.replace('CEPH', ceph), STOP, 'failed=0')
    for batch in plan.batches:
        yield from batch.settle(ceph)
        yield from (ceph + line[len(CEPH):] for line in batch.lines)
    if plan.hold:
        yield from (LET_GO.replace('CEPH', ceph), 'test "$failed" -eq 0')


def script(plan: Script, fsid: str = '', conf: str = '') -> Iterator[str]:
    """The same as a script that shows its progress.

    An error of one command does not stop it, since the PGs that follow would move without their
    pins. It may be interrupted and run again: each command sets the complete entry of one PG, or a
    weight to its value.
    """
    yield '#!/bin/sh'
    if conf:
        yield 'CEPH_CONF=%s; export CEPH_CONF' % shlex.quote(conf)
    if fsid:
        yield from _only_on(fsid)
    # Some shells continue after Ctrl-C, since "ceph" returns an ordinary error then.
    yield 'trap \'echo "interrupted; run this script again" >&2; exit 130\' INT TERM'
    yield from ('# to go back: ' + line for line in plan.back)
    yield 'failed=0'
    if plan.hold:
        yield HOLD.replace('CEPH', CEPH)
    yield from _counted(plan.batches)
    if plan.hold:
        yield LET_GO.replace('CEPH', CEPH)
    yield 'test "$failed" -eq 0'


def _only_on(fsid: str) -> Iterator[str]:
    """PGs and OSDs have the same ids in every cluster."""
    yield 'planned_for=%s' % shlex.quote(fsid)
    yield ('test "$(ceph fsid)" = "$planned_for" || {\n    echo "this script is for cluster '
           '$planned_for: set CEPH_CONF" >&2\n    exit 1\n}')


def _counted(batches: Sequence[CommandBatch]) -> Iterator[str]:
    number, total = 0, sum(len(batch.lines) for batch in batches)
    for batch in batches:
        yield from batch.settle(CEPH)
        for at, line in enumerate(batch.lines, 1):
            number += 1
            yield line + ' || failed=$((failed + 1))'
            if number % PROGRESS_LINES == 0 or at == len(batch.lines):
                yield 'echo "%d of %d commands, $failed failed" >&2' % (number, total)
