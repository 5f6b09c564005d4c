# SPDX-License-Identifier: LGPL-2.1-or-later
"""An expansion by hosts that are not there: what an operator wants to know before buying them.

The cluster is taken as it would be once they have booted, with OSDs of CRUSH weight 0. From there
on it is an expansion like any other, which ends with its preview. Pure.
"""
import errno
import re
from dataclasses import dataclass, replace
from itertools import chain, count, islice
from typing import FrozenSet, Iterable, List, Optional, Sequence, Tuple

from ..cluster.crush import CrushRules
from ..cluster.ports import Grown, NewHost, NewHosts
from ..cluster.types import Document, Osd, Space
from ..errors import Refused
from ..observation import Observation
from ..tables import listed
from .orders import DRAINED_WEIGHT, TIB, TINY_WEIGHT, Order, OrderFacts, weight_of, words

#: Maximum number of OSDs: crushtool adds their hosts one by one.
MOST_NEW_OSDS = 500
_SHAPE = re.compile(r'(\d{1,4})x(\d{1,4})x(\d{1,6}(?:\.\d{1,6})?)([GTP])(i?)B?', re.ASCII)
#: As sold, and as Ceph counts.
_UNITS = {'': {'G': 10 ** 9, 'T': 10 ** 12, 'P': 10 ** 15},
          'i': {'G': 1 << 30, 'T': 1 << 40, 'P': 1 << 50}}


@dataclass(frozen=True)
class Growth:
    """Hosts that an order supposes, and the size of each of their OSDs."""
    new: NewHosts
    size_bytes: int

    def order(self, order: Order) -> Order:
        """The expansion by these OSDs."""
        return replace(order, names=tuple('osd.%d' % osd for osd in self.new.osds), hosts=(),
                       weight=repr(self.new.weight), what_if=None, under=(), device_class=None)

    def observed(self, observation: Observation, grown: Grown) -> Observation:
        """The cluster with these hosts, before their OSDs get a weight."""
        osdmap = replace(observation.osdmap, osds={
            **observation.osdmap.osds, **{osd: Osd(osd, True, 1.0) for osd in self.new.osds}})
        settings = replace(observation.settings, osdmap=osdmap)
        return replace(observation, settings=settings, crush=grown.crush)

    def facts(self, facts: OrderFacts, observation: Observation) -> OrderFacts:
        """`observation`: as `observed`."""
        return replace(facts, osdmap=observation.osdmap, crush=observation.crush, space={
            **facts.space, **{osd: Space(self.size_bytes, 0, 0) for osd in self.new.osds}})

    def as_json(self) -> Document:
        hosts = self.new.hosts
        return {'hosts': len(hosts), 'osds': len(self.new.osds), 'size_bytes': self.size_bytes,
                'under': sorted({host.parent[1] for host in hosts}),
                'device_class': self.new.device_class, 'weight': self.new.weight}


def growth(order: Order, facts: OrderFacts) -> Growth:
    """The hosts of `--what-if`. Raises Refused."""
    hosts, per_host, size = shape(order.what_if or '')
    crush = facts.crush
    above = _above(order.under, crush)
    device_class = _device_class(order.device_class, [name for _, name in above], facts)
    weight = weight_of(repr(max(TINY_WEIGHT, round(size / TIB, 4)))
                       if order.weight is None else order.weight)
    free = (osd for osd in count() if osd not in facts.osdmap.osds and osd not in crush.weights())
    names = (name for name in map('what-if-{}'.format, count(1)) if crush.type_of(name) is None)
    return Growth(NewHosts(tuple(
        NewHost(name, above[number % len(above)], tuple(islice(free, per_host)))
        for number, name in enumerate(islice(names, hosts))), weight, device_class), size)


def shape(text: str) -> Tuple[int, int, int]:
    """Hosts, OSDs of each, and bytes of each OSD, from "4x12x16T". Raises Refused."""
    match = _SHAPE.fullmatch(text)
    if match is None:
        raise Refused(errno.EINVAL, '--what-if must be <hosts>x<OSDs of each>x<size>, such as '
                      '4x12x16T (16 * 10^12 bytes, as sold; 16TiB: 2^40), not %.40r' % text)
    hosts, osds = int(match.group(1)), int(match.group(2))
    size = int(float(match.group(3)) * _UNITS[match.group(5)][match.group(4)])
    if not hosts * osds or not size:
        raise Refused(errno.EINVAL, '--what-if %s adds nothing' % text)
    if hosts * osds > MOST_NEW_OSDS:
        raise Refused(errno.E2BIG, '--what-if %s adds %d OSDs (at most %d)' % (
            text, hosts * osds, MOST_NEW_OSDS))
    return hosts, osds, size


def _above(under: Sequence[str], crush: CrushRules) -> List[Tuple[str, str]]:
    """Types and names of the buckets that the hosts are added to, in turn. Raises Refused."""
    parents = crush.parents('host')
    used = sorted({parents[host] for host, osds in crush.osds_by('host').items()
                   if host in parents and any(_has_weight(osd, crush) for osd in osds)})
    if not used:
        raise Refused(errno.EINVAL, 'CRUSH has no hosts with OSDs below another bucket')
    if not under:
        if len(used) > 1:
            raise Refused(errno.EINVAL, 'hosts are in %s: name one or more of them with --under'
                          % listed([name for _, name in used]))
        return used
    types = sorted({kind for kind, _ in used})
    above = []
    for name in words(*under):
        kind = crush.type_of(name)
        if kind is None:
            raise Refused(errno.ENOENT, 'no bucket %.64r in CRUSH' % name)
        if kind not in types:
            raise Refused(errno.EINVAL, '%s is a %s, but hosts are in buckets of type %s, such as '
                          '%s' % (name, kind, ' or '.join(types), used[0][1]))
        above.append((kind, name))
    return above


def _device_class(named: Optional[str], under: Sequence[str], facts: OrderFacts) -> str:
    """The class of the new OSDs: the only one of the OSDs that are there. Raises Refused."""
    crush = facts.crush
    all_classes = _classes(crush.weights(), crush)
    if named is not None:
        if named not in all_classes:
            raise Refused(errno.ENOENT, 'no OSD has the device class %.40r' % named)
        return named
    classes = _classes(chain.from_iterable(crush.osds_below(name) or () for name in under),
                       crush) or all_classes
    if len(classes) > 1:
        raise Refused(errno.EINVAL, 'OSDs below %s have the device classes %s: name one with '
                      '--class' % (listed(under), listed([name or '(none)'
                                                          for name in sorted(classes)])))
    return next(iter(classes), '')


def _classes(osds: Iterable[int], crush: CrushRules) -> FrozenSet[str]:
    return frozenset(crush.class_of(osd) for osd in osds if _has_weight(osd, crush))


def _has_weight(osd: int, crush: CrushRules) -> bool:
    return crush.weights()[osd] > DRAINED_WEIGHT
