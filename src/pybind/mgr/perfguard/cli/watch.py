# SPDX-License-Identifier: LGPL-2.1-or-later
"""The commands that show the cluster and perfguard's own state: one thin function each."""
import errno
from typing import Any, Dict, Optional, Sequence

from .. import tables
from ..advise import report as advice
from ..advise.report import AdviseOrder
from ..compat import read_command, write_command
from ..errors import Refused
from ..holds import to_json as held_to_json
from ..mitigation.report import listing_json
from ..mitigation.types import Revert
from ..probe import tables as probe_tables
from ..requests import ShutdownOrder
from ..status import osds_json
from ..watch.report import OsdRow, exported_json, history_json, laggy_json, pool_json
from ..why.causes import parsed
from .shell import CommandResult, Handlers, command, show

#: Maximum number of points of one export: formatting one holds the GIL of the mgr for about 5 us.
MOST_EXPORTED = 50000


class WatchCommands(Handlers):
    @read_command('perfguard status')
    @command
    def status(self, format: Optional[str] = None) -> CommandResult:
        """Show the state of the cluster and of perfguard, with reasons"""
        return show(self.loop.status(), format, tables.status)

    @read_command('perfguard events')
    @command
    def events(self, count: int = 20, format: Optional[str] = None) -> CommandResult:
        """List what perfguard detected and did, newest last"""
        if count < 1:
            raise Refused(errno.EINVAL, 'count must be at least 1, not %d' % count)
        return show({'events': list(self.loop.published.events[-count:])}, format, tables.events)

    @read_command('perfguard osds')
    @command
    def osds(self, format: Optional[str] = None) -> CommandResult:
        """Show the latency of each OSD and its slowdown against its peers"""
        published = self._ready()
        return show({'osds': osds_json(published.watched.osds, published.rebalanced.plan)},
                    format, tables.osds)

    @read_command('perfguard pools')
    @command
    def pools(self, format: Optional[str] = None) -> CommandResult:
        """Show the client latency of each pool and its baseline"""
        return show({'pools': [pool_json(row) for row in self._ready().watched.pools]}, format,
                    tables.pools)

    @read_command('perfguard laggy')
    @command
    def laggy(self, format: Optional[str] = None) -> CommandResult:
        """Show laggy PGs and the suspect OSDs"""
        return show(laggy_json(self._ready().watched.laggy), format, tables.laggy)

    @read_command('perfguard held')
    @command
    def held(self, format: Optional[str] = None) -> CommandResult:
        """List every borrowed setting, with the command that restores it by hand"""
        return show(held_to_json(self._ready().held), format, tables.held)

    @read_command('perfguard advise')
    @command
    def advise(self, refresh: bool = False, format: Optional[str] = None) -> CommandResult:
        """List settings and devices that cost performance: what, why, the command, the source"""
        data = self.loop.ask(AdviseOrder('advise')) if refresh \
            else advice.to_json(self.loop.advice())
        return show(data, format, advice.plain)

    @read_command('perfguard advise expect')
    @command
    def advise_expect(self, format: Optional[str] = None) -> CommandResult:
        """Show what each pool is expected to achieve for one client, next to the last probes"""
        return show(self.loop.probed().expected_json(), format, probe_tables.expected)

    @read_command('perfguard advise capacity')
    @command
    def advise_capacity(self, format: Optional[str] = None) -> CommandResult:
        """Show the operations and virtual machines that each pool is expected to serve"""
        return show(self.loop.probed().capacity_json(), format, probe_tables.capacity)

    @write_command('perfguard advise mute')
    @command
    def advise_mute(self, code: str, format: Optional[str] = None) -> CommandResult:
        """Hide the findings of one code"""
        return show(self.loop.ask(AdviseOrder('advise mute', code)), format, advice.plain)

    @write_command('perfguard advise unmute')
    @command
    def advise_unmute(self, code: str, format: Optional[str] = None) -> CommandResult:
        """Show the findings of one code again"""
        return show(self.loop.ask(AdviseOrder('advise unmute', code)), format, advice.plain)

    @read_command('perfguard why')
    @command
    def why(self, what: str, format: Optional[str] = None) -> CommandResult:
        """Explain why a PG does not move, why osd.<id> is slow, or what limits the campaign"""
        return show(self.loop.ask(parsed(what)), format, tables.why)

    @write_command('perfguard shutdown')
    @command
    def shut_down(self, yes_i_really_mean_it: bool = False,
                  format: Optional[str] = None) -> CommandResult:
        """Give back every borrowed setting and report when the module may be disabled"""
        return show(self.loop.ask(ShutdownOrder(yes_i_really_mean_it)), format, tables.shutdown)

    @read_command('perfguard mitigation ls')
    @command
    def mitigation_ls(self, format: Optional[str] = None) -> CommandResult:
        """Show the mitigations in force, or that mode "act" would take, and why"""
        return show(listing_json(self._ready().mitigated.listing), format, tables.mitigation)

    @write_command('perfguard mitigation revert')
    @command
    def mitigation_revert(self, rung: int, format: Optional[str] = None) -> CommandResult:
        """Undo one mitigation; it is not repeated until its cause has cleared"""
        self.loop.request(Revert(rung))
        return show({'id': rung, 'message': 'undoing; see "mitigation ls"'},
                    format, tables.accepted)

    @read_command('perfguard history')
    @command
    def history(self, what: str = 'cluster', week: bool = False, export: bool = False,
                format: Optional[str] = None) -> CommandResult:
        """Show the latency of the cluster, a pool or osd.<id> over the last hour (--week: week)"""
        watched = self._ready().watched
        if export:
            return show(self._exported(watched.osds, what, week), format, tables.exported)
        points = self.loop.history_of(what, week, 0)
        if points is None:
            raise Refused(errno.ENOENT, 'no history of %r: must be cluster, a pool, or osd.<id>'
                          % what)
        return show(history_json(what, points), format, tables.watch_history)

    def _exported(self, osds: Sequence[OsdRow], what: str, week: bool) -> Dict[str, Any]:
        """The history of all OSDs, of a host's, or of one."""
        chosen = [row for row in osds if what in ('cluster', row.host, 'osd.%d' % row.osd)]
        if not chosen:
            raise Refused(errno.ENOENT, 'no OSDs to export of %r: must be cluster, a host, or '
                          'osd.<id>' % what)
        histories = [(row, self.loop.history_of('osd.%d' % row.osd, week, 0) or [])
                     for row in chosen]
        points = sum(len(each) for _, each in histories)
        if points > MOST_EXPORTED:
            raise Refused(errno.E2BIG, 'the history of %d OSDs has %d points (limit %d): export '
                          'a host or osd.<id>' % (len(chosen), points, MOST_EXPORTED))
        return exported_json(what, histories)
