# SPDX-License-Identifier: LGPL-2.1-or-later
"""Many slow OSDs: devices, hosts and racks that they share, and parts of a class that are too large
to name their OSDs."""
from typing import (AbstractSet, Collection, Dict, Iterable, List, Mapping, NamedTuple, Optional,
                    Set, Tuple)

from ..cluster.types import OsdPlace
from ..text import figure, osds_text
from .peers import median
from .slowness import CROWD_PART
from .types import OsdVerdict, SharedPart, SlowPart, SlowShared

#: Share of the OSDs of a shared part, in one root and class, from which the part is slow.
SHARED_RATIO = 2 / 3
#: Kinds of shared parts, and the order in which one of them is named if the same OSDs share
#: several: a whole host has more that can be slow than the only device of its DBs.
DEVICE, HOST, RACK = 'device', 'host', 'rack'
SHARED_KINDS = {HOST: 0, DEVICE: 1, RACK: 2}
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


def shared_by(place: OsdPlace) -> List[SharedPart]:
    """What an OSD may share with others: its devices, its host, and its rack if it is in one."""
    parts = [(DEVICE, device) for device in place.devices]
    parts.append((HOST, place.host))
    if place.rack:
        parts.append((RACK, place.rack))
    return parts


def by_shared(osds: Iterable[int], places: Mapping[int, OsdPlace],
              only: Optional[Mapping[Class, Collection[SharedPart]]] = None
              ) -> Dict[Class, Dict[SharedPart, Set[int]]]:
    """Class -> shared part -> its OSDs of that class among `osds`. `only`: class -> the parts to
    return; None: all. `places`: of all OSDs."""
    osds_by_part: Dict[Class, Dict[SharedPart, Set[int]]] = {}
    names = {name for parts in (only or {}).values() for _, name in parts}
    for osd in osds:
        place = places[osd]
        # A quick test, which nearly all OSDs of a large cluster fail: they share no part in `only`.
        if only is not None and place.host not in names and place.rack not in names \
                and names.isdisjoint(place.devices):
            continue
        parts = osds_by_part.setdefault(place.kind, {})
        for part in shared_by(place):
            if only is None or part in only.get(place.kind, ()):
                parts.setdefault(part, set()).add(osd)
    return osds_by_part


def by_class(osds: Iterable[int], places: Mapping[int, OsdPlace]) -> Dict[Class, Set[int]]:
    """The OSDs by root and device class."""
    osds_by_class: Dict[Class, Set[int]] = {}
    for osd in osds:
        osds_by_class.setdefault(places[osd].kind, set()).add(osd)
    return osds_by_class


def whole_parts(slow: Collection[int], judged: Iterable[int],
                places: Mapping[int, OsdPlace]) -> Dict[Tuple[Class, SharedPart], Set[int]]:
    """Class and shared part (device, host or rack) -> its slow OSDs, of parts of which most OSDs
    are slow. `judged`: the OSDs that may have become slow: others of a part do not count.

    Of several parts that explain the same slow OSDs, only the one that the fewest OSDs share. No
    part of a kind if half of the class is in slow parts of this kind: that says nothing about any
    of them.
    """
    if len(slow) < 2:
        return {}
    slow_by_part = by_shared(slow, places)
    judged_by_part = by_shared({*judged, *slow}, places, slow_by_part)
    slow_parts: Dict[Tuple[Class, SharedPart], Set[int]] = {}
    for key, parts in slow_by_part.items():
        members, extents = judged_by_part[key], _extents(key, places)
        mostly_slow = {part: osds for part, osds in parts.items()
                       if len(osds) >= SHARED_RATIO * len(members[part])}
        # A rack is slow if all of its hosts are.
        whole = {part: osds for part, osds in mostly_slow.items() if len(osds) >= 2 and (
            part[0] != RACK
            or all((HOST, places[osd].host) in mostly_slow for osd in members[part]))}
        telling_kinds = {kind for kind in SHARED_KINDS if 2 * _extent(kind, whole) < extents[kind]}
        explained: Set[int] = set()
        # The parts with the most slow OSDs first, of these the ones that the fewest OSDs share.
        for part in sorted(whole, key=lambda part: (
                -len(whole[part]), len(members[part]), SHARED_KINDS[part[0]], part)):
            if part[0] in telling_kinds and explained.isdisjoint(whole[part]):
                slow_parts[key, part] = whole[part]
                explained |= whole[part]
    return slow_parts


def _extent(kind: str, parts: Mapping[SharedPart, Set[int]]) -> int:
    """The number of hosts or racks among parts of a class; for devices, the number of their OSDs,
    since most devices may be shared by none."""
    of_kind = [osds for part, osds in parts.items() if part[0] == kind]
    return len(set().union(*of_kind)) if kind == DEVICE else len(of_kind)


def _extents(key: Class, places: Mapping[int, OsdPlace]) -> Dict[str, int]:
    """By kind, the extent (see _extent) of a class, slow or not: for devices, its OSDs whose
    devices are known, shared or not."""
    root, device_class = key
    of_class = [place for place in places.values()
                if place.device_class == device_class and place.root == root]
    return {DEVICE: sum(bool(place.devices) for place in of_class),
            HOST: len({place.host for place in of_class}),
            RACK: len({place.rack for place in of_class if place.rack})}


def crowded(slow: Iterable[int], judged: Iterable[int], places: Mapping[int, OsdPlace]) -> Set[int]:
    """The slow OSDs of classes in which more than CROWD_PART of the judged OSDs are slow, so that
    the cause is not the OSDs; a single slow OSD is never a crowd."""
    everyone = by_class(judged, places)
    return {osd for key, osds in by_class(slow, places).items()
            if len(osds) > max(1.0, CROWD_PART * len(everyone.get(key, ()))) for osd in osds}


def in_crowded_classes(slow: AbstractSet[int], judged: Iterable[int],
                       places: Mapping[int, OsdPlace]) -> Set[int]:
    """The slow OSDs of classes with too many of them to report them one by one (`crowded`). Those
    of hosts, devices and racks that are slow as a whole do not count, and are not returned."""
    if len(slow) < 2:
        return set()
    single = slow - set().union(*whole_parts(slow, judged, places).values())
    return crowded(single, judged, places)


def unnamed(slow: Mapping[int, float], judged: Iterable[int],
            places: Mapping[int, OsdPlace]) -> Set[int]:
    """The slow OSDs of classes with too many of them to name each. Those that are PART_RATIO times
    as slow as their median are left out, to be named, unless they are too many as well. `slow`:
    OSD -> slowdown; `judged`: all OSDs that may have become slow."""
    crowd = in_crowded_classes(slow.keys(), judged, places)
    far_slower: Set[int] = set()
    for osds in by_class(crowd, places).values():
        median_slowdown = median(sorted(slow[osd] for osd in osds))
        far_slower |= {osd for osd in osds if slow[osd] >= PART_RATIO * median_slowdown}
    return crowd - (far_slower - in_crowded_classes(far_slower, judged, places))


def shared_parts(slow: Mapping[int, OsdVerdict], judged: Iterable[int],
                 places: Mapping[int, OsdPlace]) -> Tuple[SlowShared, ...]:
    """The shared parts that are slow as a whole, sorted by class, kind and name, with the text of
    their slowest OSD. `slow`: the OSDs that are reported; `judged`: all that may have become
    slow."""
    whole = whole_parts(slow, judged, places)
    if not whole:
        return ()
    compared = by_shared({*judged, *slow}, places, by_shared(slow, places))
    slow_parts = []
    for (key, part), osds in sorted(whole.items()):
        (_, device_class), members = key, compared[key][part]
        # An OSD without recent operations has no score.
        scores = sorted(score for score in (slow[osd].score for osd in osds) if score is not None)
        worst = max(osds, key=lambda osd: (slow[osd].score or 0.0, -osd))
        devices = [] if part[0] == DEVICE else sorted(
            name for (kind, name), users in compared[key].items()
            if kind == DEVICE and users == members)
        why = '%d of its %d %s OSDs are slow, osd.%d: %s' % (
            len(osds), len(members), device_class or 'classless', worst, slow[worst].why)
        slow_parts.append(SlowShared(
            part, tuple(sorted(osds)), len(members), tuple(devices),
            median(scores) if scores else 1.0, median(sorted(slow[osd].since for osd in osds)),
            why))
    return tuple(slow_parts)


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
    slower_than_before: bool


class SlowParts:
    """Decides which parts of classes are slow, by the set of slow OSDs alone: not by the order in
    which they became slow."""

    def __init__(self) -> None:
        #: Seconds for which a part was slow minus seconds for which it was not.
        self._slow_seconds: Dict[Class, float] = {}
        self.parts: Tuple[SlowPart, ...] = ()

    def update(self, elapsed: float, slow: Mapping[int, SlowOne], compared: AbstractSet[int],
               places: Mapping[int, OsdPlace], seconds: float) -> Set[int]:
        """Update `parts`, and return their OSDs. A part is raised after it was slow for long
        enough, and cleared after it was not for as long. There is at most one part per class.

        `elapsed`: seconds since the last call; `slow`: all slow OSDs; `compared`: the OSDs that may
        have become slow, and have or not; `seconds`: for how long a part must be slow if it is far
        slower than the others."""
        compared = compared | slow.keys()
        everyone = by_class(compared, places)
        # Hosts, devices and racks that are slow as a whole are reported as such.
        single = by_class(slow.keys() - set().union(
            *whole_parts(slow, compared, places).values()), places)
        parts: List[SlowPart] = []
        for key in sorted(single):
            of_class = {osd: slow[osd] for osd in single[key]}
            raised_before = {osd for osd, slow_osd in of_class.items() if slow_osd.of_part}
            osds, raise_after = _slow_part(of_class, compared, places, seconds, len(everyone[key]))
            # A part that an earlier mgr has raised has lasted long enough.
            lasted = self._slow_seconds.get(key, raise_after if raised_before else 0.0)
            lasted = min(lasted + elapsed, raise_after) if osds else lasted - elapsed
            self._slow_seconds[key] = lasted
            # A raised part that is not slow now keeps its OSDs until it is cleared.
            osds = osds or raised_before
            if len(osds) > 1 and (lasted >= raise_after or (raised_before and lasted > 0.0)):
                parts.append(_part(key, osds, slow, len(everyone[key])))
        self._slow_seconds = {key: lasted for key, lasted in self._slow_seconds.items()
                              if key in single and lasted > 0.0}
        self.parts = tuple(parts)
        return {osd for part in parts for osd in part.osds}


def _slow_part(slow: Mapping[int, SlowOne], compared: AbstractSet[int],
               places: Mapping[int, OsdPlace], seconds: float,
               size: int) -> Tuple[AbstractSet[int], float]:
    """The OSDs of the part of one class that is slow now (empty: none is), and for how many seconds
    it must be slow to be raised: `seconds` if it is far slower than the others. `slow`: the slow
    OSDs of the class; `size`: number of OSDs of the class."""
    osds = unnamed({osd: slow_osd.score for osd, slow_osd in slow.items()}, compared, places)
    # Those of a part that is raised count until they have recovered.
    changed = sum(slow[osd].slower_than_before
                  or slow[osd].of_part and slow[osd].score >= PART_CLEAR_RATIO for osd in osds)
    has_changed = changed > CHANGED_PART * len(osds)
    far_slower = bool(osds) and median(sorted(slow[osd].score for osd in osds)) >= PART_RATIO
    # If most are slower than a few, these may be faster because they serve other operations.
    is_most = 2 * len(osds) > size
    if far_slower and (has_changed or not is_most):
        return osds, seconds
    return osds if has_changed else set(), max(seconds, CHANGED_SECONDS)


def _part(key: Class, osds: AbstractSet[int], slow: Mapping[int, SlowOne], count: int) -> SlowPart:
    """The slow OSDs of a part (`osds`) of a class as one finding, with the text of the slowest.
    `slow`: all slow OSDs; `count`: number of OSDs of the class."""
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
