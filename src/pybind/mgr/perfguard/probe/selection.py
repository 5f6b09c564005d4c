# SPDX-License-Identifier: LGPL-2.1-or-later
"""Which OSDs are probed: by number, by host, by device class, or all."""
from typing import Mapping, NamedTuple, Tuple

from .types import BadJob


class Place(NamedTuple):
    """What there is to know of an OSD."""
    host: str
    device_class: str
    up: bool
    into: bool


ALL = 'all'


def selected_osds(places: Mapping[int, Place], osd: str = '', host: str = '',
                  device_class: str = '') -> Tuple[int, ...]:
    """The OSDs that are meant, in order; BadJob, with the name, where that makes no sense.

    `osd`: "3", "osd.3", "3,osd.4" or "all". Host and class narrow it down. An OSD that is named
    and is down or out is refused; of a host, a class or all those are left out.
    """
    if host and host not in {place.host for place in places.values()}:
        raise BadJob('there is no host %s with OSDs' % host)
    if device_class and device_class not in {place.device_class for place in places.values()}:
        raise BadJob('no OSD is of device class %s' % device_class)
    named = () if osd in ('', ALL) else _named(osd, places)
    found = [each for each, place in sorted(places.items())
             if (each in named if named else place.up and place.into)
             and host in ('', place.host) and device_class in ('', place.device_class)]
    if not found:
        raise BadJob('no OSD %s' % ' and '.join(filter(None, (
            'among %s' % osd if named else 'is up and in', host and 'on host %s' % host,
            device_class and 'of device class %s' % device_class))))
    return tuple(found)


def _named(text: str, places: Mapping[int, Place]) -> Tuple[int, ...]:
    named = []
    for name in (part.strip() for part in text.split(',')):
        digits = name[len('osd.'):] if name.startswith('osd.') else name
        if not (digits.isascii() and digits.isdigit() and len(digits) < 10):
            raise BadJob('%r is no OSD: 3, osd.3, 3,4 or all is wanted' % name)
        osd = int(digits)
        if osd not in places:
            raise BadJob('osd.%d does not exist' % osd)
        if not (places[osd].up and places[osd].into):
            raise BadJob('osd.%d is %s' % (osd, 'out' if places[osd].up else 'down'))
        named.append(osd)
    return tuple(named)
