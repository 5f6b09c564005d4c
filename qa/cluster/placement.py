# SPDX-License-Identifier: LGPL-2.1-or-later
"""CRUSH hosts and racks of OSDs."""

import re
from typing import Dict, List, Mapping, Optional, Sequence


def host_of_first(osds: int, hosts: int) -> Dict[int, str]:
    """Hosts of the OSDs of a new cluster, in turn."""
    return {osd: f'host{osd % hosts}' for osd in range(osds)}


def host_of_added(existing: Mapping[int, str], count: int,
                  hosts: Optional[Sequence[str]] = None) -> Dict[int, str]:
    """Ids and hosts of `count` more OSDs.

    Without `hosts`, they are in new hosts of about the same size as the present ones.
    """
    first = max(existing, default=-1) + 1
    names = list(hosts) if hosts else _new_hosts(existing, count)
    return {first + i: names[i % len(names)] for i in range(count)}


def _new_hosts(existing: Mapping[int, str], count: int) -> List[str]:
    present = set(existing.values())
    osds_per_host = max(1, round(len(existing) / max(1, len(present))))
    number = max(1, round(count / osds_per_host))
    first = max((host_number(host) for host in present), default=-1) + 1
    return [f'host{first + i}' for i in range(number)]


def host_number(host: str) -> int:
    """The number at the end of the name of a host; 0 without one."""
    match = re.search(r'(\d+)$', host)
    return int(match.group(1)) if match else 0


def location(host: str, racks: int) -> List[str]:
    """The CRUSH location of a host; hosts are assigned to racks in turn."""
    rack = [f'rack=rack{host_number(host) % racks}'] if racks else []
    return ['root=default', *rack, f'host={host}']
