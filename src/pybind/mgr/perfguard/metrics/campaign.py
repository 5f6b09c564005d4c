# SPDX-License-Identifier: LGPL-2.1-or-later
"""Metrics of the campaign and of the mitigation."""
from collections import Counter
from typing import Any, Dict, List, Mapping, Optional

from ..mitigation.types import Rung, Stage
from ..rebalance.types import Campaign, Phase
from .text import Sample, labels, state_set

Json = Mapping[str, Any]

MODES = ('off', 'observe', 'act')
#: States of rungs that are worth a metric: others are those of rungs that nothing holds.
STATES = (Stage.HELD.value, Stage.WOULD.value, Stage.UNDOING.value)


def campaign(rebalance: Json, known: Optional[Campaign]) -> Dict[str, List[Sample]]:
    """`rebalance`: as `rebalance status` prints it; empty: the loop has not turned yet."""
    if not rebalance:
        return {}
    counts = [(state, rebalance[state]) for state in ('pinned', 'in_flight', 'released', 'kept')]
    counts.append(('unpinnable', len(rebalance['unpinnable'])))
    found: Dict[str, List[Sample]] = {
        'campaign_phase': state_set('phase', [phase.value for phase in Phase],
                                    rebalance['phase']),
        'campaign_pgs': [(labels(state=state), count) for state, count in counts]}
    single = {
        'active': known is not None and known.active, 'id': rebalance['id'] or 0,
        'paused': rebalance['paused'],
        'waits_for_window': rebalance['waits_for_window'], 'size_pgs': rebalance['total'],
        'limit_pgs': rebalance['limit'], 'size_bytes': rebalance['bytes_total'],
        'moved_bytes': rebalance['bytes_done'], 'eta_seconds': rebalance['eta_seconds'],
        'started_timestamp_seconds': rebalance['started'],
        'progress_timestamp_seconds': max(known.progressed, known.phase_since) or None
        if known is not None else None,
        'stall_seconds': rebalance['stall_seconds']}
    for name, value in single.items():
        found['campaign_' + name] = [('', value)]
    return found


def mitigation(listing: Json) -> Dict[str, List[Sample]]:
    """`listing`: as `mitigation ls` prints it."""
    counts = Counter((row['rung'], row['state']) for row in listing['rungs'])
    return {
        'mitigation_mode': state_set('mode', MODES, listing['mode']),
        'mitigation_rungs': [
            (labels(rung=rung.value.replace(' ', '_'), state=state), counts[rung.value, state])
            for rung in Rung for state in STATES]}
