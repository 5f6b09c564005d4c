# SPDX-License-Identifier: LGPL-2.1-or-later
"""The ceph.conf of a loopback cluster."""

from pathlib import Path
from typing import Any, Dict, Mapping, Optional, Tuple

Sections = Dict[str, Dict[str, str]]

#: Modules that no test needs. At each start, an mgr loads all modules that it finds, even disabled
#: ones, which takes up to 0.2 s of CPU time each. Modules that the mons always enable must exist.
UNUSED_MODULES = ('alerts', 'influx', 'insights', 'localpool', 'mirroring', 'nfs',
                  'osd_perf_query', 'osd_support', 'restful', 'smb', 'snap_schedule', 'stats',
                  'telegraf', 'test_orchestrator', 'zabbix')

GiB = 1 << 30
MiB = 1 << 20


def default_conf(directory: Path, fsid: str, mon_host: str, address: str, ports: Tuple[int, int],
                 store: str, hosts: int, pool_size: int) -> Sections:
    """Settings that make a cluster on one machine behave like a large one, but faster.

    `ports`: the first and the last port for daemons. `pool_size`: the default size of pools, for
    example of the pool of the mgr.
    """
    daemon = {
        'log file': f'{directory}/log/$name.log',
        'admin socket': f'{directory}/run/$name.asok',
    }
    return {
        'global': {
            'fsid': fsid,
            'mon host': mon_host,
            'public addr': address,
            'ms bind ipv6': 'false',
            'ms bind port min': str(ports[0]),
            'ms bind port max': str(ports[1]),
            'run dir': f'{directory}/run',
            'crash dir': f'{directory}/crash',
            'auth cluster required': 'cephx',
            'auth service required': 'cephx',
            'auth client required': 'cephx',
            'auth allow insecure global id reclaim': 'false',
            'osd pool default pg autoscale mode': 'off',
            'osd pool default size': str(pool_size),
            'osd crush chooseleaf type': '1' if hosts > 1 else '0',
        },
        'client': {
            'keyring': f'{directory}/keyring',
        },
        'mon': {
            **daemon,
            'mon data': f'{directory}/data/$type.$id',
            'mon cluster log file': f'{directory}/log/cluster.log',
            'mon allow pool delete': 'true',
            'mon allow pool size one': 'true',
            'mon max pg per osd': '2000',
            # The disk of a developer is rarely as empty as a mon expects.
            'mon data avail warn': '2',
            'mon data avail crit': '1',
            'mon warn on insecure global id reclaim allowed': 'false',
            'mon warn on pool no redundancy': 'false',
            'mon warn on pool no app': 'false',
            'mon warn on too few osds': 'false',
            # The default contains `restful`, which does not load everywhere.
            'mgr initial modules': 'iostat',
            # Reporters are counted by host, and clusters may have two hosts.
            'mon osd min down reporters': str(max(1, min(2, hosts - 1))),
        },
        'mgr': {
            **daemon,
            'mgr data': f'{directory}/data/$type.$id',
            'mgr module path': f'{directory}/mgr-modules',
            'mgr disabled modules': ','.join(UNUSED_MODULES),
            # The mgr may be restarted while it creates its pool.
            'mon warn on pool no app': 'false',
            'mon max pg per osd': '2000',
        },
        'osd': {
            **daemon,
            'osd data': f'{directory}/data/$type.$id',
            'osd objectstore': store,
            'osd crush update on start': 'false',
            'mon max pg per osd': '2000',
            # In a young cluster, the log of a PG contains its whole history, so new OSDs would be
            # filled by recovery (degraded, nothing remapped) instead of backfill.
            'osd min pg log entries': '2',
            'osd max pg log entries': '3',
            'osd pg log trim min': '1',
            # memstore and files count as rotational. Without these, backfill is limited to ten
            # objects per second (wpq) or to the 315 IOPS of a disk (mclock, Reef and later).
            'osd recovery sleep': '0',
            'osd recovery sleep hdd': '0',
            'osd mclock skip benchmark': 'true',
            'osd mclock max capacity iops hdd': '20000',
            'osd mclock max sequential bandwidth hdd': str(GiB),
            **_store_conf(store),
        },
    }


def _store_conf(store: str) -> Dict[str, str]:
    if store == 'memstore':
        return {'memstore device bytes': str(8 * GiB)}
    return {
        'bluestore block size': str(8 * GiB),
        'bluestore cache autotune': 'false',
        'bluestore cache size': str(64 * MiB),
        # The minimum of the option.
        'osd memory target': str(896 * MiB),
    }


def merge(conf: Sections, extra: Optional[Mapping[str, Any]]) -> None:
    """Merge the settings of a caller into `conf`.

    `extra` maps a section to a mapping of options, or an option to its value. The latter is set in
    [global] and removed from all other sections, which have precedence. A section may be that of
    one daemon (``osd.3``). If an option of a section is None, it is removed, so that the default or
    the configuration database of the mons applies.
    """
    for key, value in (extra or {}).items():
        if isinstance(value, Mapping):
            section = conf.setdefault(key, {})
            section.update({_spaced(option): _text(setting) for option, setting in value.items()})
            for option in [option for option, setting in value.items() if setting is None]:
                del section[_spaced(option)]
            continue
        for section in conf.values():
            section.pop(_spaced(key), None)
        conf['global'][_spaced(key)] = _text(value)


def _spaced(option: str) -> str:
    """The form of an option with spaces; Ceph also accepts dashes and underscores."""
    return option if '/' in option else option.replace('_', ' ').replace('-', ' ')


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def render(conf: Sections) -> str:
    """The text of ceph.conf."""
    lines = []
    for section, options in conf.items():
        lines.append(f'[{section}]')
        lines.extend(f'{option} = {value}' for option, value in options.items())
        lines.append('')
    return '\n'.join(lines)
