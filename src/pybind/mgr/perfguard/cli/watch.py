# SPDX-License-Identifier: LGPL-2.1-or-later
"""The commands that show the cluster and perfguard's own state: one thin function each."""
import errno
from typing import Any, Dict, Optional, Sequence

from .. import tables
from ..advise import report as advice
from ..advise.report import AdviseOrder
from ..cluster.types import Json
from ..errors import Refused, code_of
from ..ledger import to_json as held_to_json
from ..mitigation.report import listing_json
from ..mitigation.types import Revert
from ..probe import tables as probe_tables
from ..rebalance.orders import Order
from ..rebalance.replacing import DRAINS
from ..rebalance.tables import drains
from ..shutdown import ShutdownOrder
from ..status import osds_json
from ..watch.report import OsdRow, exported_json, history_json, laggy_json, pool_json
from ..why.causes import parsed
from .shell import CommandResult, Handlers, reads, show, writes

#: Maximum number of points of one export: formatting one holds the GIL of the mgr for about 5 us.
MOST_EXPORTED = 50000
#: Rows of a history that fit a terminal of 24 lines.
SCREEN_ROWS = 20


class WatchCommands(Handlers):
    @reads('perfguard status', tables.status)
    def status(self) -> Json:
        """Show the state of the cluster and of perfguard, with reasons"""
        return self.loop.status()

    @reads('perfguard events', tables.events)
    def events(self, count: int = 20) -> Json:
        """List what perfguard detected and did, newest last"""
        if count < 1:
            raise Refused(errno.EINVAL, 'count must be at least 1, not %d' % count)
        return {'events': list(self.loop.published.events[-count:])}

    @reads('perfguard osds')
    def osds(self, drained: bool = False, format: Optional[str] = None) -> CommandResult:
        """Show the slowdown of each OSD, or the next step of those --drained or being replaced"""
        if drained:
            return show(self.loop.ask(Order(DRAINS, dry_run=True)), format, drains)
        published = self._ready()
        rows = osds_json(published.watched.osds, published.rebalanced.preview)
        return show({'osds': rows}, format, tables.osds)

    @reads('perfguard pools')
    def pools(self, expected: bool = False, capacity: bool = False,
              format: Optional[str] = None) -> CommandResult:
        """Show client latency and baseline of each pool, what is --expected, or its --capacity"""
        if capacity and expected:
            raise Refused(errno.EINVAL, '--expected and --capacity exclude each other')
        if capacity:
            return show(self.loop.probed().capacity_json(
                self._ready().watched.uses, self.loop.clock()), format, probe_tables.capacity)
        if expected:
            return show(self.loop.probed().expected_json(), format, probe_tables.expected)
        return show({'pools': [pool_json(row) for row in self._ready().watched.pools]}, format,
                    tables.pools)

    @reads('perfguard laggy', tables.laggy)
    def laggy(self) -> Json:
        """Show laggy PGs and the suspect OSDs"""
        return laggy_json(self._ready().watched.laggy)

    @reads('perfguard held', tables.held)
    def held(self) -> Json:
        """List every borrowed setting, with the command that restores it by hand"""
        return held_to_json(self._ready().ledger)

    @reads('perfguard advise', advice.plain)
    def advise(self, refresh: bool = False) -> Json:
        """List settings and devices that cost performance, with reason, command and source"""
        return self.loop.advise() if refresh else advice.to_json(self.loop.advice())

    @writes('perfguard advise mute', advice.plain)
    def advise_mute(self, code: str) -> Json:
        """Hide the findings of one code"""
        return self.loop.ask(AdviseOrder('advise mute', code_of(code)))

    @writes('perfguard advise unmute', advice.plain)
    def advise_unmute(self, code: str) -> Json:
        """Show the findings of one code again"""
        return self.loop.ask(AdviseOrder('advise unmute', code_of(code)))

    @reads('perfguard why', tables.why)
    def why(self, what: str) -> Json:
        """Explain why a PG does not move, why osd.<id> is slow, or what limits the campaign"""
        return self.loop.ask(parsed(what))

    @writes('perfguard shutdown', tables.shutdown)
    def shut_down(self, dry_run: bool = False, yes_i_really_mean_it: bool = False) -> Json:
        """Give back every borrowed setting and report when the module may be disabled"""
        return self.loop.ask(ShutdownOrder(yes_i_really_mean_it, dry_run))

    @reads('perfguard mitigation ls', tables.mitigation)
    def mitigation_ls(self) -> Json:
        """Show the mitigations in force, or that mode "act" would take, and why"""
        return listing_json(self._ready().mitigated.listing)

    @writes('perfguard mitigation revert', tables.accepted)
    def mitigation_revert(self, mitigation: int, dry_run: bool = False) -> Json:
        """Undo one mitigation; it is not repeated until its cause has cleared"""
        if dry_run:
            effects = self.loop.dry_run(Revert(mitigation))
            return {'id': mitigation, 'dry_run': True, 'effects': effects,
                    'message': '\n'.join(effects)}
        self.loop.request(Revert(mitigation))
        return {'id': mitigation, 'dry_run': False, 'message': 'undoing; see "mitigation ls"'}

    @reads('perfguard history')
    def history(self, what: str = 'cluster', week: bool = False, export: bool = False,
                all_: bool = False, format: Optional[str] = None) -> CommandResult:
        """Show the latency of the cluster, a pool or osd.<id>: the last hour, or the --week"""
        watched = self._ready().watched
        if export:
            return show(self._exported(watched.osds, what, week), format, tables.exported)
        points = self.loop.history_of(what, condensed=week)
        if points is None:
            raise Refused(errno.ENOENT, 'no history of %r: must be cluster, a pool, or osd.<id> of '
                          'an OSD that has reported' % what)
        is_whole = all_ or format not in (None, 'plain')
        return show(history_json(what, points, 0 if is_whole else SCREEN_ROWS), format,
                    tables.watch_history)

    def _exported(self, osds: Sequence[OsdRow], what: str, week: bool) -> Dict[str, Any]:
        """The history of all OSDs (`what` is "cluster"), of a host's, or of one ("osd.<id>"): the
        last hour or the week. Raises Refused if there are no such OSDs, or too many points."""
        chosen = [row for row in osds if what in ('cluster', row.host, 'osd.%d' % row.osd)]
        if not chosen:
            raise Refused(errno.ENOENT, 'no OSDs to export of %r: must be cluster, a host, or '
                          'osd.<id>' % what)
        histories = [(row, self.loop.history_of('osd.%d' % row.osd, condensed=week) or [])
                     for row in chosen]
        points = sum(len(history_points) for _, history_points in histories)
        if points > MOST_EXPORTED:
            raise Refused(errno.E2BIG, 'the history of %d OSDs has %d points (limit %d): export '
                          'a host or osd.<id>' % (len(chosen), points, MOST_EXPORTED))
        return exported_json(what, histories)
