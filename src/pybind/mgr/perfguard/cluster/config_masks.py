# SPDX-License-Identifier: LGPL-2.1-or-later
"""To which OSDs the entries of the configuration database apply. Pure."""
from typing import Iterable, NamedTuple, Optional, Tuple

from .types import ConfigEntry


class ConfigTarget(NamedTuple):
    """An OSD, as sections and masks refer to it."""
    osd: int
    device_class: str = ''
    #: Type and name of each bucket above it in CRUSH, from the lowest.
    location: Tuple[Tuple[str, str], ...] = ()

    @property
    def sections(self) -> Tuple[str, ...]:
        """From the least specific one on."""
        return 'global', 'osd', 'osd.%d' % self.osd


def precedence(entry: ConfigEntry, target: ConfigTarget) -> Optional[Tuple[int, int]]:
    """Of the entries of an option, the one with the highest value is in force; None: the entry does
    not apply to the OSD.

    The most specific section precedes, and within a section the most specific mask: a bucket the
    lower it is, then a device class (ConfigMap::generate_entity_map, OptionMask::get_precision).
    """
    if entry.section not in target.sections:
        return None
    levels = {bucket: level for level, bucket in enumerate(reversed(target.location), 2)}
    levels['class', target.device_class] = 1
    precision = 0
    for part in filter(None, entry.mask.split('/')):
        kind, _, name = part.partition(':')
        if (kind, name) not in levels:
            return None
        precision = max(precision, levels[kind, name])
    return target.sections.index(entry.section), precision


def in_force(entries: Iterable[ConfigEntry], target: ConfigTarget) -> Optional[ConfigEntry]:
    """The one of an option's entries that precedes on an OSD, if any applies to it."""
    ranked = [(rank, entry) for entry in entries
              for rank in [precedence(entry, target)] if rank is not None]
    return max(ranked)[1] if ranked else None
