# SPDX-License-Identifier: LGPL-2.1-or-later
"""The results in words and as a table."""

from typing import Iterable, List, Sequence

import numpy as np

from .run import Result


def lines(result: Result) -> List[str]:
    """One run in full."""
    found = [
        'moved: %d PGs, %d shards in %s, %.2f OSDMap epochs a PG' % (
            result.moved, result.shards, duration(result.seconds),
            result.epochs / max(1, result.moved)),
        'p50 %.2f ms (quiet %.2f), p99 %.2f ms (quiet %.2f), p99.9 %.2f ms (quiet %.2f), '
        'max %.0f ms' % (*(value for share in (0.5, 0.99, 0.999)
                           for value in (result.during[share], result.quiet[share])),
                         result.most_ms)]
    costs = result.costs
    if costs is not None:
        found += [
            'halted: %.1f %% of the time' % (100.0 * result.halted),
            'turns: %d, median %.1f ms, max %.1f ms; while releasing: median %.1f ms, max %.1f ms'
            % (len(costs.turns), costs.median_ms(), costs.most_ms(),
               costs.median_ms('RELEASING'), costs.most_ms('RELEASING')),
            'plan of pins and effects: %.2f s beside the loop; memory of all: %d MiB' % (
                result.preview_seconds, costs.peak_mib)]
        found += ['  %s: %d turns, median %.1f ms, max %.1f ms' % (
            phase, len(turns), costs.median_ms(phase), costs.most_ms(phase))
            for phase, turns in costs.phases.items()]
    return found


def table(results: Iterable[Result]) -> List[str]:
    found = ['%-10s %-10s %5s %9s %9s %9s %9s %8s %8s' % (
        'controller', 'scenario', 'seed', 'quiet p99', 'p99', 'p99.9', 'max ms', 'seconds',
        'halted')]
    found += ['%-10s %-10s %5d %9.2f %9.2f %9.2f %9.0f %8.0f %7.1f%%' % (
        each.settings.controller, each.settings.scenario, each.settings.seed, each.quiet[0.99],
        each.during[0.99], each.during[0.999], each.most_ms, each.seconds, 100 * each.halted)
        for each in results]
    return found


def worst(results: Sequence[Result]) -> List[str]:
    """Over many runs, by controller: p99 against that without movement; time against `stock`, or
    in seconds."""
    stock = {each.settings.seed: each.seconds for each in results
             if each.settings.controller == 'stock'}
    found = ['%-10s %5s %28s %28s %8s' % (
        'controller', 'runs', 'p99 / unmoved: median, p90, max', '%s: median, p90, max' % (
            'time / stock' if stock else 'seconds'),
        'halted')]
    for controller in dict.fromkeys(each.settings.controller for each in results):
        mine = [each for each in results if each.settings.controller == controller]
        times = [each.seconds / stock.get(each.settings.seed, 1.0) for each in mine
                 if not stock or each.settings.seed in stock] or [0.0]
        found.append('%-10s %5d %28s %28s %7.1f%%' % (
            controller, len(mine), _spread([each.ratio for each in mine]), _spread(times),
            100 * max(each.halted for each in mine)))
        found += ['  seed %d, %s: %.1f times the p99 without movement, %.0f s' % (
            each.settings.seed, each.settings.scenario, each.ratio, each.seconds)
            for each in sorted(mine, key=lambda each: -each.ratio)[:3]]
        found += ['  seed %d, %s: %.0f s' % (each.settings.seed, each.settings.scenario,
                                             each.seconds)
                  for each in sorted(mine, key=lambda each: -each.seconds)[:3]]
    return found


def _spread(values: List[float]) -> str:
    return '%8.1f %8.1f %8.1f' % tuple(np.percentile(values, (50, 90, 100)))


def duration(seconds: float) -> str:
    return '%.0f s' % seconds if seconds < 7200 else '%.2f days' % (seconds / 86400.0)
