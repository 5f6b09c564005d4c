# SPDX-License-Identifier: LGPL-2.1-or-later
"""Many slow OSDs: whole hosts, and parts of a class that are too large to name their OSDs."""
from typing import (AbstractSet, Collection, Dict, Iterable, List, Mapping, NamedTuple, Set,
                    Tuple)

from ..cluster.types import OsdPlace
from ..tables import figure, osds_text
from .peers import median
from .slowness import CROWD_PART
from .types import OsdVerdict, SlowHost, SlowPart

#: Share of the OSDs of a host, in one root and class, from which the host is slow.
HOST_PART = 2 / 3
#: Slowdown from which such a part of a class is reported, and below which it no longer is: OSDs of
#: one class often differ by less, by drive or by what is cached for them.
PART_RATIO = 3.0
PART_CLEAR_RATIO = 2.0
#: A part that is less slow is reported after this time, if more than this share of its OSDs are
#: slower than they were against their peers.
CHANGED_SECONDS = 600.0
CHANGED_PART = 1 / 2

#: Root, device class.
Class = Tuple[str, str]


def by_host(osds: Iterable[int],
            places: Mapping[int, OsdPlace]) -> Dict[Class, Dict[str, Set[int]]]:
    """Class -> host -> its OSDs among `osds`."""
    osds_by_host: Dict[Class, Dict[str, Set[int]]] = {}
    for osd in osds:
        place = places[osd]
        hosts = osds_by_host.setdefault(place.kind, {})
        hosts.setdefault(place.host, set()).add(osd)
    return osds_by_host


def by_class(osds: Iterable[int], places: Mapping[int, OsdPlace]) -> Dict[Class, Set[int]]:
    osds_by_class: Dict[Class, Set[int]] = {}
    for osd in osds:
        osds_by_class.setdefault(places[osd].kind, set()).add(osd)
    return osds_by_class


def whole_hosts(slow: Collection[int], judged: Iterable[int],
                places: Mapping[int, OsdPlace]) -> Dict[Tuple[Class, str], Set[int]]:
    """The slow OSDs of hosts that are slow as a whole in a class, if most hosts are not."""
    slow_hosts: Dict[Tuple[Class, str], Set[int]] = {}
    if len(slow) < 2:
        return slow_hosts
    every, compared = by_host(places, places), by_host({*judged, *slow}, places)
    for key, hosts in by_host(slow, places).items():
        whole = {host: osds for host, osds in hosts.items()
                 if len(osds) >= 2 and len(osds) >= HOST_PART * len(compared[key][host])}
        if 2 * len(whole) < len(every[key]):
            slow_hosts.update({(key, host): osds for host, osds in whole.items()})
    return slow_hosts


def too_many(slow: AbstractSet[int], judged: Iterable[int],
             places: Mapping[int, OsdPlace]) -> Set[int]:
    """The slow OSDs of classes with so many of them that they are not reported one by one."""
    crowd: Set[int] = set()
    if len(slow) < 2:
        return crowd
    hosts = whole_hosts(slow, judged, places)
    single = slow - {osd for osds in hosts.values() for osd in osds}
    everyone = by_class(judged, places)
    for key, osds in by_class(single, places).items():
        if len(osds) > max(1.0, CROWD_PART * len(everyone.get(key, ()))):
            crowd |= osds
    return crowd


def unnamed(slow: Mapping[int, float], judged: Iterable[int],
            places: Mapping[int, OsdPlace]) -> Set[int]:
    """As too_many, without few OSDs that are PART_RATIO times as slow as most of these. `slow`: OSD
    -> slowdown."""
    crowd = too_many(slow.keys(), judged, places)
    far: Set[int] = set()
    for osds in by_class(crowd, places).values():
        usual = median(sorted(slow[osd] for osd in osds))
        far |= {osd for osd in osds if slow[osd] >= PART_RATIO * usual}
    return crowd - (far - too_many(far, judged, places))


def hosts_of(slow: Mapping[int, OsdVerdict], judged: Iterable[int],
             places: Mapping[int, OsdPlace]) -> Tuple[SlowHost, ...]:
    """The slow hosts, sorted by name."""
    if len(slow) < 2:
        return ()
    compared = by_host({*judged, *slow}, places)
    slow_hosts = []
    for (key, host), osds in sorted(whole_hosts(slow, judged, places).items()):
        scores = sorted(score for score in (slow[osd].score for osd in osds) if score is not None)
        since = median(sorted(slow[osd].since for osd in osds))
        score = median(scores) if scores else 1.0
        worst = max(osds, key=lambda osd: (slow[osd].score or 0.0, -osd))
        why = '%d of its %d %s OSDs are slow, osd.%d: %s' % (
            len(osds), len(compared[key][host]), key[1] or 'classless', worst, slow[worst].why)
        slow_hosts.append(SlowHost(host, tuple(sorted(osds)), score, since, why))
    return tuple(slow_hosts)


#: Number of OSDs that the text of a part names.
NAMED_OSDS = 20


class SlowOne(NamedTuple):
    """A slow OSD, whether it is reported or not."""
    score: float
    since: float
    why: str
    #: It belongs to a part, in this mgr or the one before it.
    of_part: bool
    #: It is slower than it was against its peers.
    changed: bool


class SlowParts:
    """Decides which parts of classes are slow, by the set of slow OSDs alone: not by the order in
    which they became slow."""

    def __init__(self) -> None:
        #: Seconds for which so many OSDs were slow minus seconds for which they were not.
        self._seconds: Dict[Class, float] = {}
        self.parts: Tuple[SlowPart, ...] = ()

    def update(self, passed: float, slow: Mapping[int, SlowOne], compared: AbstractSet[int],
               places: Mapping[int, OsdPlace], seconds: float) -> Set[int]:
        """Returns the OSDs of the parts. `compared`: the OSDs that may be slow or not; `seconds`:
        for how long a part must be slow."""
        compared = compared | slow.keys()
        everyone = by_class(compared, places)
        single = by_class(slow.keys() - {
            osd for osds in whole_hosts(slow, compared, places).values() for osd in osds}, places)
        parts: List[SlowPart] = []
        for key in sorted(single):
            mine = {osd: slow[osd] for osd in single[key]}
            before = {osd for osd, slow_osd in mine.items() if slow_osd.of_part}
            osds, hold = _slow_part(mine, compared, places, seconds, len(everyone[key]))
            lasted = self._seconds.get(key, hold if before else 0.0)
            lasted = min(lasted + passed, hold) if osds else lasted - passed
            self._seconds[key] = lasted
            osds = osds or before
            if len(osds) > 1 and (lasted >= hold or (before and lasted > 0.0)):
                parts.append(_part(key, osds, slow, len(everyone[key])))
        self._seconds = {key: lasted for key, lasted in self._seconds.items()
                         if key in single and lasted > 0.0}
        self.parts = tuple(parts)
        return {osd for part in parts for osd in part.osds}


def _slow_part(slow: Mapping[int, SlowOne], compared: AbstractSet[int],
               places: Mapping[int, OsdPlace], seconds: float,
               size: int) -> Tuple[AbstractSet[int], float]:
    """The OSDs of the part of one class that is slow, if there is one, and for how many seconds it
    must last. `size`: number of OSDs of the class."""
    osds = unnamed({osd: slow_osd.score for osd, slow_osd in slow.items()}, compared, places)
    changed = sum(slow[osd].changed or slow[osd].of_part and slow[osd].score >= PART_CLEAR_RATIO
                  for osd in osds)
    has_changed = changed > CHANGED_PART * len(osds)
    # A few OSDs may be faster because they serve other operations.
    is_most = 2 * len(osds) > size
    if osds and median(sorted(slow[osd].score for osd in osds)) >= PART_RATIO \
            and (has_changed or not is_most):
        return osds, seconds
    return osds if has_changed else set(), max(seconds, CHANGED_SECONDS)


def _part(key: Class, osds: AbstractSet[int], slow: Mapping[int, SlowOne],
          count: int) -> SlowPart:
    score = median(sorted(slow[osd].score for osd in osds))
    worst = max(osds, key=lambda osd: (slow[osd].score, -osd))
    root, device_class = key
    subject = '%d of %d %s OSDs%s' % (len(osds), count, device_class or 'classless',
                                      '' if root in ('default', '') else ' of root ' + root)
    why = '%s are %s times as slow as %s: %s; osd.%d: %s' % (
        subject, figure(score), 'the others' if len(osds) < count else 'before',
        osds_text(osds, NAMED_OSDS), worst, slow[worst].why)
    return SlowPart(root, device_class, tuple(sorted(osds)), subject, score,
                    median(sorted(slow[osd].since for osd in osds)), why)
