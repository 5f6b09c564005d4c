# SPDX-License-Identifier: LGPL-2.1-or-later
"""How many PGs a campaign may keep pinned at a time, and the tranches of weights that require more.
Pure.

The leading mon checks every upmap for each OSDMap epoch. If that takes longer than mon_lease (5 s),
the mons elect another leader again and again.

A tranche brings all OSDs of the change closer to their weights by the same share. The straws of an
OSD in CRUSH (straw2) become longer or shorter in proportion, so a shard that enters one of the new
OSDs, or leaves a drained one, stays where it is in all later tranches: each shard moves once. OSD
by OSD, a host would pass shards on from its first OSD to its next one. All OSDs also receive data
from the first tranche on.
"""
import math
from dataclasses import replace
from typing import Mapping, Optional

from ..cluster.crush import CrushRules
from ..cluster.types import OsdMap
from ..options import Options
from .fast_peering import epoch_of
from .types import TINY_WEIGHT, Change, ChangeStage

#: Seconds that checking all upmaps may take the mons in each epoch; if other upmaps alone take
#: about as long, seconds that the pins may add.
UPMAPS_SECONDS, PINS_SECONDS = 0.3, 0.05
#: Minimum share of the difference of weights that a tranche changes, and how close to the limit of
#: pins it is planned.
SHARE_MIN, SAFETY = 0.01, 0.95
#: CRUSH keeps weights in units of 1/65536.
WEIGHT_UNIT = 1 / 0x10000
#: Intermediate weights are above those of drained OSDs.
WEIGHT_MIN = 3 * TINY_WEIGHT


def pin_limit(options: Options, osdmap: OsdMap, own: int = 0) -> int:
    """PGs that a campaign may keep pinned at a time. `own`: how many of the upmaps are its pins."""
    if options.max_pins:
        return options.max_pins
    epoch = epoch_of(osdmap)
    others = epoch._replace(upmaps=max(0, epoch.upmaps - own))
    return int(max(PINS_SECONDS, UPMAPS_SECONDS - others.upmap_seconds)
               / epoch._replace(upmaps=1).upmap_seconds)


def too_many(pins: int, options: Options, osdmap: OsdMap, own: int = 0) -> str:
    """Why a campaign must not keep so many PGs pinned; '' if it may."""
    most = pin_limit(options, osdmap, own)
    if pins <= most:
        return ''
    epoch = epoch_of(osdmap)
    others = max(0, epoch.upmaps - own)
    return '%d pins and %d other upmaps would take the mons about %.2g s in each OSDMap epoch ' \
        '(limit %d pins, max_pins)' % (
            pins, others, epoch._replace(upmaps=others + pins).upmap_seconds, most)


def same_weight(one: float, other: float) -> bool:
    return abs(one - other) < 2 * WEIGHT_UNIT


def has_tranches(change: Change, crush: CrushRules) -> bool:
    """Whether a part of the change can be made. An OSD whose weights differ between trees would get
    more of some of them."""
    return bool(change.weights) and change.weights.keys().isdisjoint(crush.uneven)


def partly_text(change: Optional[Change]) -> str:
    """Text on a change of which further tranches are still to come; '' otherwise."""
    if change is None or not change.partly:
        return ''
    return '; CRUSH weights are changed in part, up to tranche %d of %d' % (
        change.tranche + (change.stage is ChangeStage.LANDED), change.tranches)


def divided(change: Change, pins: int, most: int, weights: Mapping[int, float]) -> Change:
    """The change with a smaller tranche than the present one, which requires `pins` pins; `most`:
    pins that it may require. `weights`: present CRUSH weights."""
    if change.is_last:
        # Equal tranches: the balance needs PGs that can be moved in the last one as well.
        tranches = math.ceil(pins / most)
        change = replace(change, following=tranches - 1, start=change.start or {
            osd: weights.get(osd, 0.0) for osd in change.weights})
        share = 1.0 / tranches
    else:
        # More than in proportion: PGs of which several shards move have a pin in each tranche.
        share = change.share * min(0.9, SAFETY * most / pins)
    return _with_step(replace(change, share=max(SHARE_MIN, share)), weights)


def next_tranche(change: Change, weights: Mapping[int, float]) -> Change:
    """The change with all that is left, without OSDs to which others have given another weight
    meanwhile."""
    return without_others(replace(
        change, reached=change.step, step={}, share=1.0, tranche=change.tranche + 1,
        following=max(0, change.following - 1), stage=ChangeStage.WANTED, done=(), burst=0, times=0,
        removing=0.0), weights)


def without_others(change: Change, weights: Mapping[int, float]) -> Change:
    """The change without the OSDs that do not have the weight of the tranche before any longer."""
    ours = {osd: weight for osd, weight in change.weights.items()
            if same_weight(weights.get(osd, -1.0), change.reached.get(osd, -2.0))}
    return replace(change, weights=ours,
                   drained=tuple(osd for osd in change.drained if osd in ours))


def _with_step(change: Change, weights: Mapping[int, float]) -> Change:
    return replace(change, step={osd: _between(weights.get(osd, 0.0), weight, change.share)
                                 for osd, weight in change.weights.items()})


def _between(now: float, end: float, share: float) -> float:
    return max(now + (end - now) * share, min(WEIGHT_MIN, max(now, end)))
