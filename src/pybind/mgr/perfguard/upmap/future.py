# SPDX-License-Identifier: LGPL-2.1-or-later
"""Where CRUSH will place PGs once its map has changed."""
from dataclasses import dataclass, field
from typing import Mapping, NamedTuple, Optional, Union

from ..cluster.crush import CrushRules
from ..cluster.types import OsdSet
from ..errors import PerfguardError


class ToolFailed(PerfguardError):
    """A tool of Ceph's is missing, failed, took too long or said what nobody expected."""


class FuturePg(NamedTuple):
    """A PG that the change may touch."""
    #: What serves it now.
    acting: OsdSet
    #: What CRUSH will choose.
    raw: OsdSet


@dataclass(frozen=True)
class Future:
    """All PGs where CRUSH will choose differently or that have an upmap entry."""
    pgs: Mapping[str, FuturePg]
    crush: CrushRules
    #: The CRUSH map itself, for a change that is a whole map.
    crush_map: Optional[bytes] = None
    #: The other PGs of the pools that the change touches, where that was asked for.
    others: Mapping[str, FuturePg] = field(default_factory=dict)


@dataclass(frozen=True)
class NoFuture:
    """The future mapping cannot be had; everything goes the ordinary way."""
    reason: str


Outlook = Union[Future, NoFuture]
