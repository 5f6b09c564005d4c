# SPDX-License-Identifier: LGPL-2.1-or-later
"""Slow OSDs together: whole hosts, and crowds that are no fault of single OSDs."""
from typing import AbstractSet, Collection, Dict, Iterable, Mapping, Set, Tuple

from .peers import median
from .types import OsdPlace, SlowHost, Verdict

#: Part of a host's OSDs in one root and class that is slow where the host is.
HOST_PART = 2 / 3
#: Part of a group's OSDs that may be slow one by one; where more are it is the load, or a kind of
#: device, and naming OSDs would mislead.
CROWD_PART = 1 / 4

#: Root, device class.
Class = Tuple[str, str]


def by_host(osds: Iterable[int],
            places: Mapping[int, OsdPlace]) -> Dict[Class, Dict[str, Set[int]]]:
    found: Dict[Class, Dict[str, Set[int]]] = {}
    for osd in osds:
        place = places[osd]
        hosts = found.setdefault((place.root, place.device_class), {})
        hosts.setdefault(place.host, set()).add(osd)
    return found


def whole_hosts(slow: Collection[int], judged: Iterable[int],
                places: Mapping[int, OsdPlace]) -> Dict[Tuple[Class, str], Set[int]]:
    """The slow OSDs of those hosts that are slow as a whole in a class, other hosts not being."""
    found: Dict[Tuple[Class, str], Set[int]] = {}
    every, known = by_host(places, places), by_host({*judged, *slow}, places)
    for key, hosts in by_host(slow, places).items():
        whole = {host: osds for host, osds in hosts.items()
                 if len(osds) >= 2 and len(osds) >= HOST_PART * len(known[key][host])}
        if 2 * len(whole) < len(every[key]):
            found.update({(key, host): osds for host, osds in whole.items()})
    return found


def too_many(slow: AbstractSet[int], judged: Iterable[int],
             places: Mapping[int, OsdPlace]) -> Set[int]:
    """Those of the slow that are so many that none of them should be named."""
    crowd: Set[int] = set()
    hosts = whole_hosts(slow, judged, places)
    single = slow - {osd for osds in hosts.values() for osd in osds}
    everyone = by_host(judged, places)
    for key, found in by_host(single, places).items():
        osds = {osd for each in found.values() for osd in each}
        count = sum(len(each) for each in everyone.get(key, {}).values())
        if len(osds) > max(1.0, CROWD_PART * count):
            crowd |= osds
    return crowd


def hosts_of(slow: Mapping[int, Verdict], judged: Iterable[int],
             places: Mapping[int, OsdPlace]) -> Tuple[SlowHost, ...]:
    """The slow hosts, in order of their names."""
    known = by_host({*judged, *slow}, places)
    found = []
    for (key, host), osds in sorted(whole_hosts(slow, judged, places).items()):
        scores = sorted(score for score in (slow[osd].score for osd in osds) if score is not None)
        since = median(sorted(slow[osd].since for osd in osds))
        score = median(scores) if scores else 1.0
        worst = max(osds, key=lambda osd: (slow[osd].score or 0.0, -osd))
        why = '%d of its %d %s OSDs are slow, osd.%d: %s' % (
            len(osds), len(known[key][host]), key[1] or 'classless', worst, slow[worst].why)
        found.append(SlowHost(host, tuple(sorted(osds)), score, since, why))
    return tuple(found)
