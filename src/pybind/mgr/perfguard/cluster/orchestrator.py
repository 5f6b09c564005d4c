# SPDX-License-Identifier: LGPL-2.1-or-later
"""What cephadm does to the cluster meanwhile: upgrades, removals of OSDs, maintenance of hosts.

It is read from what cephadm stores for its next mgr: calls of the module itself may wait for hosts
that do not answer. Other orchestrators store nothing of this.
"""
import json
from dataclasses import dataclass, replace
from typing import Any, Callable, FrozenSet, List, Mapping, Optional, Sequence, Tuple

from ..text import listed, osds_text
from .types import OsdMap

#: The value of the option `orchestrator` of the module of the same name.
CEPHADM = 'cephadm'
#: Keys of mgr/cephadm/.
UPGRADE, REMOVALS, HOSTS, MGRS = 'upgrade_state', 'osd_remove_queue', 'inventory', 'spec.mgr'
CEPHADM_PREFIX = 'mgr/cephadm/'
KEYS = (UPGRADE, REMOVALS, HOSTS, MGRS)
#: Seconds between two readings.
ORCHESTRATOR_SECONDS = 10.0
#: The path in containers at which install-cephadm mounts the module.
MOUNTED = '/mgr/perfguard:'


@dataclass(frozen=True)
class Orchestrating:
    """What cephadm is doing. The defaults: nothing, or the cluster has no cephadm."""
    #: Target of the upgrade that is in progress; '': none, or it is paused.
    image: str = ''
    #: The upgrade includes the OSDs ("ceph orch upgrade start --daemon-types").
    of_osds: bool = True
    #: The mgrs get the module from their host, whatever their image contains.
    mounted: bool = False
    #: OSDs that are emptied to be removed ("ceph orch osd rm", "ceph orch host drain").
    removing: FrozenSet[int] = frozenset()
    #: Hosts in maintenance.
    maintenance: FrozenSet[str] = frozenset()
    #: The cluster has cephadm, which can be ordered to remove OSDs.
    present: bool = False
    #: The upgrade includes the mgrs.
    of_mgrs: bool = True
    #: All hosts.
    hosts: FrozenSet[str] = frozenset()

    def restarting(self, osdmap: OsdMap) -> str:
        """The OSDs that an upgrade restarts now, as a reason to release nothing; '' if none. A PG
        that is peering keeps cephadm from stopping the next OSD ("ceph osd ok-to-stop")."""
        down = osdmap.absent if self.image and self.of_osds else ()
        return 'Ceph is being upgraded, and %s not up yet' % (
            osds_text(down) + (' is' if len(down) == 1 else ' are')) if down else ''

    @property
    def remarks(self) -> List[str]:
        """What the orchestrator is doing, as reasons of `status`."""
        texts: List[str] = []
        if self.image:
            texts.append('Ceph is being upgraded to %s, %s' % (self.image, (
                'which leaves the mgrs as they are' if not self.of_mgrs else
                'which keeps perfguard (it is mounted into the containers of the mgrs)'
                if self.mounted else
                'which stops perfguard if this image does not contain it; "ceph orch upgrade '
                'stop", then "ceph perfguard shutdown", gives back what it has borrowed')))
        if self.removing:
            # Pins cannot delay it: the mons drop those to an OSD of CRUSH weight 0.
            texts.append('the orchestrator is emptying %s to remove %s ("ceph orch osd rm '
                         'status"): perfguard does not delay this; "ceph perfguard drain", before '
                         'a removal is ordered, goes at the pace of clients' % (
                             osds_text(self.removing), 'it' if len(self.removing) == 1
                             else 'them'))
        if self.maintenance:
            texts.append('in maintenance: %s' % listed(sorted(self.maintenance)))
        return texts


def orchestrating(stored: Mapping[str, Optional[str]]) -> Orchestrating:
    """What the orchestrator is doing. `stored`: the values of KEYS; None: not stored. What another
    release stores in another form is ignored."""
    upgrade = _parsed(stored, UPGRADE)
    kinds = _get(upgrade, 'daemon_types')
    # Without a list of types: all.
    kinds = kinds if kinds and isinstance(kinds, list) else ['mgr', 'osd']
    hosts = _parsed(stored, HOSTS)
    args = _get(_get(_parsed(stored, MGRS), 'spec'), 'extra_container_args')
    return Orchestrating(
        image='' if _get(upgrade, 'paused') else str(_get(upgrade, 'target_name') or ''),
        of_osds='osd' in kinds, of_mgrs='mgr' in kinds,
        mounted=MOUNTED in str(args),
        removing=frozenset(row['osd_id'] for row in _rows(_parsed(stored, REMOVALS))
                           if _get(row, 'started') and type(row.get('osd_id')) is int),
        maintenance=frozenset(
            host for host, row in _items(hosts) if _get(row, 'status') == 'maintenance'),
        hosts=frozenset(host for host, row in _items(hosts) if isinstance(row, dict)))


def _parsed(stored: Mapping[str, Optional[str]], key: str) -> Any:
    try:
        return json.loads(stored.get(key) or 'null')
    except (ValueError, RecursionError):
        return None


def _get(document: Any, key: str) -> Any:
    return document.get(key) if isinstance(document, dict) else None


def _rows(document: Any) -> List[Any]:
    return [row for row in document if isinstance(row, dict)] \
        if isinstance(document, list) else []


def _items(document: Any) -> List[Tuple[str, Any]]:
    return list(document.items()) if isinstance(document, dict) else []


class OrchestratorReader:
    """Reads it at intervals."""

    def __init__(self, is_cephadm: Callable[[], bool],
                 stored: Callable[[Sequence[str]], Mapping[str, Optional[str]]],
                 clock: Callable[[], float]) -> None:
        """`stored`: values of keys, without those that the mons did not answer for."""
        self._is_cephadm, self._stored, self._clock = is_cephadm, stored, clock
        self._known: Orchestrating = Orchestrating()
        self._read_at: Optional[float] = None

    def __call__(self) -> Orchestrating:
        """What the orchestrator is doing, read at most every ORCHESTRATOR_SECONDS."""
        now = self._clock()
        if self._read_at is None or now - self._read_at >= ORCHESTRATOR_SECONDS:
            self._read_at = now
            present = self._is_cephadm()
            stored = self._stored(KEYS) if present else dict.fromkeys(KEYS)
            # If the mons did not answer for some keys, what was read before stays.
            if len(stored) == len(KEYS):
                self._known = replace(orchestrating(stored), present=present)
        return self._known
