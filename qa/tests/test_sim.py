# SPDX-License-Identifier: LGPL-2.1-or-later
"""The model cluster: its placement, its physics, and perfguard's own loop over it.

No cluster is needed.
"""

import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import List, Set

import numpy as np
import pytest
import hypothesis as hyp
from hypothesis import strategies as st

from perfguard.cluster.types import UpmapEntry
from perfguard.rebalance.orders import Order
from qa.sim import physics
from qa.sim.caps import Caps, Wrong
from qa.sim.cli import parser, runs
from qa.sim.crush import Tree
from qa.sim.port import SimCluster
from qa.sim.run import Settings, model_of, rested, run, troubled
from qa.sim.scenarios import SCENARIOS
from qa.sim.troubles import KINDS, Trouble, troubles

SMALL = Settings(pools=(96,))


def test_placement_by_weight_and_least_movement() -> None:
    tree = Tree(12, 2, 3)
    before = tree.place(np.arange(4096), 3, np.where(np.arange(12) < 8, 1.0, 0.0))
    after = tree.place(np.arange(4096), 3, np.ones(12))
    assert before.max() == 7
    hosts = np.sort(after // 2, axis=1)
    assert (hosts[:, 1:] != hosts[:, :-1]).all()
    share = np.bincount(after.ravel(), minlength=12) / after.size * 12
    assert share == pytest.approx(np.ones(12), abs=0.12)
    # A third of the shards belongs to the new OSDs, and few others move.
    changed = (before != after).sum() / before.size
    assert 0.33 < changed < 0.55


def test_placement_by_racks() -> None:
    found = Tree(24, 2, 3, 'rack').place(np.arange(512), 3, np.ones(24))
    racks = np.sort(found // 6, axis=1)
    assert (racks[:, 1:] != racks[:, :-1]).all() and racks.max() == 3


@pytest.mark.parametrize('share', [0.01, 0.5, 0.9])
def test_a_part_of_the_weights_places_pgs_as_crush_does(share: float) -> None:
    """The model does not place the PGs again that the whole expansion leaves in place."""
    model, after = model_of(replace(SMALL, osds=126, added=18, osds_per_host=6, hosts_per_rack=7,
                                    pools=(4096,)))
    weights = np.where(after > model.weights, share * after, after)
    weights[-9:] *= 0.5  # of the last burst of the tranche before
    cluster = SimCluster(model, after)
    places = cluster.raw_under(weights)
    assert (places == model.tree.place(np.arange(model.pgs), 3, weights)).all()
    assert (places != model.raw).any()


def test_a_released_pg_peers_is_copied_and_arrives() -> None:
    model, _ = model_of(SMALL)
    up = tuple(model.up[5].tolist())
    target = next(osd for osd in range(8) if osd // 2 not in {each // 2 for each in up})
    model.entries[5] = UpmapEntry(((up[1], target),))
    model.place([5])
    model.prime(5)
    assert model.peering == 1 and model.acting(5) == up
    model.advance(model.now + 30.0)
    assert model.acting(5) == (up[0], target, up[2])
    assert (model.moved, model.remapped, model.peering) == ({5: 1}, 0, 0)
    assert model.holds.sum() == 3 * 96 and model.led.sum() == 96


RACKS = replace(SMALL, osds=32, added=8, osds_per_host=2, hosts_per_rack=4, domain='rack')


@pytest.mark.parametrize('caps, why', [
    (Caps(source=1), 'source'), (Caps(target=1), 'target'), (Caps(primary=1), 'primary'),
    (Caps(host=1), 'host'), (Caps(domain=1), 'domain'), (Caps(pgs=3), r'4 PGs move \(limit 3'),
    (Caps(bytes=3.5e6), 'bytes move')])
@pytest.mark.parametrize('flags', [set(), {'norebalance'}])
def test_a_cap_that_is_exceeded_is_noticed(caps: Caps, why: str, flags: Set[str]) -> None:
    """Also while norebalance is set: PGs that were released move as soon as it is cleared."""
    model, after = model_of(RACKS)
    raw = model.tree.place(np.arange(model.pgs), 3, after)
    changed = np.nonzero((raw != model.raw).any(axis=1))[0].tolist()
    for pg in changed:
        model.entries[pg] = UpmapEntry(vector=tuple(model.up[pg].tolist()))
    model.weights, model.in_flight.caps, model.flags = after, caps, flags
    model.set_raw(raw)
    assert not model.moving and not model.remapped_by_crush
    with pytest.raises(Wrong, match=why):
        for pg in changed:
            del model.entries[pg]
            model.place([pg])


def test_what_crush_remaps_is_no_release() -> None:
    model, after = model_of(SMALL)
    model.in_flight.caps = Caps(pgs=1)
    model.weights = after
    model.set_raw(model.tree.place(np.arange(model.pgs), 3, after))
    assert model.remapped_by_crush == model.remapped > 40 and not len(model.in_flight)


def test_an_osd_that_is_out_gives_its_pgs_away() -> None:
    """norebalance stops that only while the OSD is up; and the mons drop upmaps that lead there."""
    model, after = model_of(replace(SMALL, osds=16, added=4, pools=(64,)))
    cluster = SimCluster(model, after)
    pg = int(np.nonzero((model.up != 3).all(axis=1) & (model.up // 2 != 1).all(axis=1))[0][0])
    model.entries[pg] = UpmapEntry(((int(model.up[pg, 1]), 3),))
    model.place([pg])
    model.set_flag('norebalance', True)
    cluster.set_out(3, True)
    assert not model.entries and (model.up != 3).all() and cluster.map_view().osdmap.osds[3].up
    held = int(model.holds[3])
    model.advance(model.now + 60.0)
    assert model.holds[3] == held > 5 and model.remapped >= held
    model.fail(3)
    model.advance(model.now + 60.0)
    assert model.holds[3] == model.remapped == 0 and not len(model.degraded())
    assert (np.sort(model.data) == np.sort(model.up)).all()


@pytest.mark.parametrize('scenario', ['calm', 'failure'])
def test_an_expansion_ends_and_clients_hardly_notice(scenario: str) -> None:
    """`run` itself checks the caps at each event, that each PG moves once, and the end."""
    result = run(replace(SMALL, scenario=scenario))
    assert result.moved > 40
    assert result.during[0.99] < 8 * result.quiet[0.99]


def test_an_expansion_ends_balanced() -> None:
    """With the default end state: each OSD holds its share but for a few PGs."""
    settings = replace(SMALL, osds=32, added=8, pools=(256, 64), target='balanced')
    balanced, crush = run(settings), run(replace(settings, target='crush'))
    assert balanced.imbalance < 5.0 < crush.imbalance
    assert balanced.shards < 1.3 * crush.shards


def test_an_osd_that_hangs_makes_pgs_laggy_and_is_the_suspect() -> None:
    settings = replace(SMALL, osds=24, pools=(256,))
    model, after = model_of(settings)
    driver, _ = rested(settings, SimCluster(model, after))
    model.hang(5)
    driver.quiet(60.0)
    laggy, pgs = driver.loop.published.watched.laggy, model.data
    waiting = (pgs == 5).any(axis=1) & (pgs[:, 0] != 5)
    assert laggy.laggy_pgs == waiting.sum() > 10
    assert {pg.pgid for pg in laggy.pgs} == {
        driver.cluster.names[pg] for pg in np.nonzero(waiting)[0]}
    assert laggy.suspects[0].osd == 5 and 'no report' in laggy.suspects[0].why
    assert 'PERFGUARD_LAGGY_PGS' in driver.cluster.checks


TROUBLED = replace(SMALL, osds=16, pools=(64, 32), pg_bytes=20 << 20, limit=4 * 3600.0)


@hyp.settings(max_examples=6, deadline=None, derandomize=True,
              suppress_health_check=[hyp.HealthCheck.too_slow])
@hyp.given(st.lists(st.builds(Trouble, st.floats(0.0, 120.0), st.sampled_from(sorted(KINDS)),
                              st.integers(0, 999), st.floats(0.0, 200.0)), max_size=8),
           st.sampled_from(['crush', 'balanced']), st.integers(1, 99))
def test_whatever_happens_an_expansion_ends(found: List[Trouble], target: str, seed: int) -> None:
    """`troubled` checks the caps at each event, that each PG moves once, the end, and that what the
    campaign has borrowed is given back."""
    troubled(replace(TROUBLED, target=target, seed=seed), found)


@pytest.mark.releases('pacific', quick=())
@pytest.mark.timeout(3600)
def test_many_troubles_of_many_seeds() -> None:
    for seed in range(1, 401):
        target = ('crush', 'balanced')[seed % 2]
        try:
            troubled(replace(TROUBLED, target=target, seed=seed), troubles(seed, 12))
        except Wrong as wrong:
            pytest.fail('python3 -m qa.sim --osds 16 --pgs 64,32 --pg-mib 20 --target %s '
                        '--troubles 12 --seed %d: %s' % (target, seed, wrong))


def test_a_cluster_of_chance_gets_the_target_and_the_troubles_of_the_command() -> None:
    args = parser().parse_args(['--chance', '--seed', '7', '--target', 'balanced',
                                '--troubles', '4'])
    found, = runs(args)
    assert (found.seed, found.target, found.troubles) == (7, 'balanced', 4)


def test_a_seed_repeats_the_troubles() -> None:
    one, other = (troubled(TROUBLED, troubles(3, 6)) for _ in range(2))
    assert one == replace(other, costs=one.costs) and one.moved > 40
    assert troubles(3, 6) != troubles(4, 6)


def test_a_seed_repeats_a_run() -> None:
    first, second = run(SMALL), run(SMALL)
    assert first == replace(second, costs=first.costs, preview_seconds=first.preview_seconds)
    assert first.seconds != run(replace(SMALL, seed=2)).seconds


@pytest.mark.releases('pacific', quick=())
@pytest.mark.timeout(1800)
def test_the_time_left_is_within_its_interval_after_a_tenth() -> None:
    """In 9 of 10 runs whose rate of movement changes, and of hours, not orders of magnitude."""
    widths, inside = [], []
    for seed in range(1, 13):
        found = run(Settings(pools=(256,), pg_bytes=1e9, seed=seed,
                             scenario=('noise', 'diurnal', 'neighbour')[seed % 3]))
        eta = found.foreseen
        assert eta is not None and eta.low <= eta.seconds <= eta.high
        print('%-9s %5.0f s left, foreseen %5.0f s (%.0f to %.0f)' % (
            found.settings.scenario, found.left, *eta))
        inside.append(eta.low <= found.left <= eta.high)
        widths.append(eta.high / eta.low)
    assert np.mean(inside) >= 0.9 and np.median(widths) < 3.8


def test_everything_at_once_is_what_clients_notice() -> None:
    stock, ours = run(replace(SMALL, controller='stock')), run(SMALL)
    assert stock.during[0.99] > 20 * ours.during[0.99]
    assert stock.seconds < ours.seconds


def test_the_others_keep_their_speed_while_a_host_is_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    """At least 80 % of it, by the PGs whose moves do not touch that host. Each OSD serves six reads
    in a reading, which say nothing about it alone."""
    monkeypatch.setitem(physics.HARDWARE, 'bench', replace(physics.BENCH, rate=2.0))
    settings = replace(SMALL, osds=48, added=8, osds_per_host=8, pools=(512,))
    calm, slow = (seconds_elsewhere(replace(settings, scenario=scenario))
                  for scenario in ('calm', 'slow_host'))
    assert slow <= calm / 0.8


def seconds_elsewhere(settings: Settings) -> float:
    """Until most PGs that host 1 has no part in have moved."""
    model, after = model_of(settings)
    cluster = SimCluster(model, after)
    driver, _ = rested(settings, cluster)
    driver.quiet(900.0)
    there = cluster.raw_under(after)
    away = (np.hstack([model.raw, there]) // settings.osds_per_host != 1).all(axis=1)
    pgs = set(np.nonzero(away & (model.raw != there).any(axis=1))[0].tolist())
    begin = model.now
    SCENARIOS[settings.scenario](model, begin)
    driver.order(Order('expand'))
    while len(pgs & model.moved.keys()) < 0.9 * len(pgs):
        driver.turn()
        assert model.now < begin + 3600.0, driver.phase
    return model.now - begin


CHECKOUT = Path(__file__).resolve().parents[2]
COMMANDS = set(re.findall(r'python3\s+-m\s+(qa\.[a-z_.]+)', (CHECKOUT / 'README.md').read_text()))


@pytest.mark.parametrize('name', sorted({'qa.sim.cli', *COMMANDS}))
def test_commands_of_the_readme_need_no_pythonpath(name: str) -> None:
    subprocess.run([sys.executable, '-c', 'import %s' % name], cwd=CHECKOUT, check=True,
                   env={'PATH': '/usr/bin:/bin', 'PYTHONDONTWRITEBYTECODE': '1'}, timeout=60)
