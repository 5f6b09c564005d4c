# SPDX-License-Identifier: LGPL-2.1-or-later
"""What perfguard has borrowed from the cluster now, with the command that restores it by hand."""
import shlex
from dataclasses import asdict, dataclass
from typing import Any, Dict, Iterable, List, Mapping, Optional

from .cluster.types import OsdMap
from .mitigation.recovery_options import command_of
from .mitigation.types import Put, State, active
from .observation import BALANCER, MON, Observation
from .probe import site as sites
from .probe.site import Site
from .rebalance.executor import commands_of
from .rebalance.holds import NOREBALANCE
from .rebalance.mon_options import PROPOSE_INTERVAL
from .rebalance.types import Action, Campaign, SetAutoscale, SetFlag, SetOption

#: The plain commands.
BALANCER_ON = 'ceph balancer on'


@dataclass(frozen=True)
class Row:
    what: str
    #: What was found, and what perfguard has put in its place; found None: not set.
    found: Optional[str]
    put: str
    #: Seconds since the epoch.
    since: float
    #: A command of Ceph's own that puts it back.
    restore: str


def shell(command: Mapping[str, Any]) -> str:
    """A mon command as an operator types it."""
    words = ['--' + key.replace('_', '-') if value is True else shlex.quote(str(value))
             for key, value in command.items() if key != 'prefix']
    return ' '.join(['ceph', command['prefix'], *words])


def campaign_rows(campaign: Optional[Campaign], osdmap: OsdMap, pins: int) -> List[Row]:
    """Of a campaign that is active, or aborted with pins left."""
    if campaign is None or not campaign.open:
        return []
    since, holds = campaign.started, campaign.holds
    rows = [Row('flag ' + flag, None, 'set', since, _restore(SetFlag(flag, False)))
            for flag in holds.flags]
    for name, held in holds.options.items():
        restore = BALANCER_ON if name == BALANCER else _restore(SetOption('mgr', name, held.found))
        rows.append(Row(name, held.found, held.put, since, restore))
    for pool_id, held in holds.autoscale.items():
        pool = osdmap.pools.get(pool_id)
        if pool is not None:
            rows.append(Row('pg_autoscale_mode of pool ' + pool.name, held.found, held.put, since,
                            _restore(SetAutoscale(pool.name, held.found or 'on'))))
    rows += [Row('%s of the mons' % name, held.found, held.put, since,
                 _restore(SetOption(MON, name, held.found)))
             for name, held in holds.mon.items()]
    if pins:
        rows.append(Row('upmaps of pinned PGs', 'upmaps from before the campaign',
                        '%d pins' % pins, since, 'ceph osd rm-pg-upmap-items <pgid>, ceph osd '
                        'rm-pg-upmap <pgid>: moves the PG; the pins may stay as ordinary upmaps'))
    return rows


def _restore(action: Action) -> str:
    return '; '.join(shell(command) for command in commands_of(action))


def mitigation_rows(state: State) -> List[Row]:
    return [Row(setting.text(), setting.found, setting.put, step.since,
                shell(command_of(Put(setting, setting.found))))
            for step in active(state) for setting in step.settings if not setting.done]


def probe_rows(site: Optional[Site], since: float) -> List[Row]:
    """Of the probe that runs or cleans up."""
    if site is None:
        return []
    rows = [Row('%s of the mons' % option, before, sites.ALLOWED, since,
                shell(sites.restore_command(option, before)))
            for option, before in site.allowed.items()]
    if site.user:
        rows.append(Row('user ' + site.entity, None, 'exists', since,
                        shell(sites.remove_user_command(site))))
        if site.own:
            rows.append(Row('pool ' + site.pool, None, 'exists', since,
                            shell(sites.remove_pool_command(site))))
    return rows


def to_json(rows: Iterable[Row]) -> Dict[str, Any]:
    return {'held': [asdict(row) for row in rows]}


def to_check(seen: Observation) -> List[str]:
    """Where the journal is lost: what a campaign may have left, as far as the cluster shows it."""
    osdmap = seen.osdmap
    lines = []
    if NOREBALANCE in osdmap.flags:
        lines.append('the flag norebalance is set: ' + _restore(SetFlag(NOREBALANCE, False)))
    if seen.settings.balancer_active == 'false':
        lines.append('the balancer is off: ' + BALANCER_ON)
    lines += ['pg_autoscale_mode of pool %s is off: %s' % (
        pool.name, _restore(SetAutoscale(pool.name, 'on')))
        for pool in osdmap.pools.values() if pool.autoscale_mode == 'off']
    lines.append('%s of the mons may be set: %s' % (
        PROPOSE_INTERVAL, _restore(SetOption(MON, PROPOSE_INTERVAL, None))))
    return ['if perfguard and not an operator changed it: ' + line for line in lines]
