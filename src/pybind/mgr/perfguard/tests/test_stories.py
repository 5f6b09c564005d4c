# SPDX-License-Identifier: LGPL-2.1-or-later
"""Stories of any operator, other hands, failing OSDs and failing mgrs, with the whole loop.

PERFGUARD_STORIES=1000 plays so many stories, those of PERFGUARD_SEED.
"""
import os
from dataclasses import replace
from typing import Any, Callable, Dict, Optional, Tuple

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (RuleBasedStateMachine, initialize, precondition, rule,
                                 run_state_machine_as_test)

from perfguard.cluster.types import pool_of
from perfguard.errors import Refused
from perfguard.rebalance.risks import RISKS
from perfguard.rebalance.types import is_option

from .fakes.audit import over_caps
from .fakes.cluster import BALANCER, Crash
from .fakes.driver import OPTIONS, Driver
from .fakes.straw_cluster import AuditedCluster

MORE = int(os.environ.get('PERFGUARD_STORIES', '0'))
STORIES = settings(max_examples=MORE or 20, stateful_step_count=30,
                   suppress_health_check=list(HealthCheck))
#: Hosts, OSDs of each, racks.
SHAPES = [(6, 1, 0), (5, 2, 0), (8, 1, 4), (10, 2, 5)]
ENDED = {'IDLE', 'DONE', 'ABORTED'}
#: Turns in which any campaign ends once nothing is in its way and the operator does their part.
TURNS_TO_END = 500


class Stories(RuleBasedStateMachine):
    driver: Driver
    cluster: AuditedCluster

    @initialize(shape=st.sampled_from(SHAPES), lag=st.integers(0, 3),
                seconds=st.sampled_from([2.0, 6.0, 20.0]), balanced=st.booleans(),
                caps=st.tuples(*5 * [st.integers(1, 3)]), pgs=st.integers(1, 8),
                stage=st.integers(0, 3), aborts=st.booleans())
    def begin(self, shape: Tuple[int, int, int], lag: int, seconds: float, balanced: bool,
              caps: Tuple[int, ...], pgs: int, stage: int, aborts: bool) -> None:
        hosts, per_host, racks = shape
        self.cluster = AuditedCluster(hosts, per_host, racks, pgs=10, lag=lag,
                                      backfill_seconds=seconds)
        source, primary, most, host, domain = caps
        self.driver = Driver(self.cluster, replace(
            OPTIONS, target='balanced' if balanced else 'crush', max_pgs_in_flight=pgs,
            max_backfills_source=source, max_backfills_primary=primary, max_backfills_target=most,
            max_backfills_host=host, max_backfills_domain=domain))
        self.aborts = aborts
        self.down: Optional[int] = None
        self.pass_time(3)
        self.go_to(stage)

    def go_to(self, stage: int) -> None:
        """0: no campaign; 1: prepared, with remapped PGs; 2: pinned; 3: releasing."""
        driver = self.driver
        if stage:
            driver.ask('prepare')
            driver.run_to('PREPARED')
            driver.run(5)
            self.cluster.add_osds(2, 1.0)
            self.pass_time(6)
        if stage > 1:
            driver.ask('pin')
            driver.run_to('PINNED')
        if stage > 2:
            driver.ask('start')
            self.pass_time(4)

    # ---- time

    @rule(turns=st.integers(1, 12))
    def pass_time(self, turns: int) -> None:
        for _ in range(turns):
            self.turn()

    def turn(self) -> None:
        cluster, driver = self.cluster, self.driver
        try:
            driver.turn()
        except Crash:
            driver.restart()
            cluster.tick()
        if driver.phase in ENDED:
            cluster.taken.clear()
        assert over_caps(cluster, driver.options) == []
        assert cluster.wrong == []

    # ---- the operator

    @rule(verb=st.sampled_from(['prepare', 'pin', 'start', 'pause', 'resume', 'abort', 'finish']),
          sure=st.booleans())
    def ask(self, verb: str, sure: bool) -> None:
        more: Dict[str, Any] = {'keep': sure} if verb == 'finish' else {}
        if verb == 'prepare' and sure:
            more = {'accept': RISKS}
        self.try_to(lambda: self.driver.ask(verb, **more))
        self.turn()

    @rule()
    def follow(self) -> None:
        """What the operator would do next."""
        phase = self.driver.phase
        self.ask({'PREPARED': 'pin', 'PINNED': 'start', 'HOLDING': 'resume'}.get(phase, 'prepare'),
                 False)
        self.pass_time(10)

    @rule(verb=st.sampled_from(['expand', 'drain', 'undrain', 'replace', 'replace cancel']),
          which=st.integers(0, 99))
    def order(self, verb: str, which: int) -> None:
        names = () if verb == 'expand' else ('osd.%d' % self.some_osd(which),)
        if verb == 'expand' and not any(toy.crush_weight == 0.0
                                        for toy in self.cluster.toys.values()):
            self.cluster.add_osds(2, 0.0)
            self.pass_time(self.cluster.lag + 1)
        if verb in ('drain', 'replace'):
            # Upmaps that lead onto the drained OSD go with what it held.
            self.cluster.their_upmaps.clear()
        self.try_to(lambda: self.driver.order(verb, *names))

    @rule(which=st.integers(0, 99))
    def new_device(self, which: int) -> None:
        """An OSD that was drained and is empty has another device under its id."""
        held = {osd for pg in self.cluster.pg.values() for osd in (*pg.data, *pg.up)}
        empty = sorted(osd for osd, toy in self.cluster.toys.items()
                       if 0.0 < toy.crush_weight < 0.001 and osd not in held)
        if empty:
            osd = empty[which % len(empty)]
            self.cluster.uuids[osd] = 'device %d' % self.cluster.epoch
            self.pass_time(12)

    def try_to(self, act: Callable[[], object]) -> None:
        try:
            act()
        except Refused:
            pass
        except Crash:
            self.driver.restart()

    def some_osd(self, which: int) -> int:
        return sorted(self.cluster.toys)[which % len(self.cluster.toys)]

    # ---- the mgr

    @rule()
    def fail_over(self) -> None:
        self.driver.restart()
        self.turn()

    @rule(steps=st.integers(1, 12))
    def crash(self, steps: int) -> None:
        """The mgr dies before one of its next writes or commands."""
        self.cluster.fault.at = self.cluster.fault.count + steps
        self.pass_time(5)
        self.cluster.fault.at = None

    # ---- other hands

    @rule(count=st.integers(1, 3))
    def others_expand(self, count: int) -> None:
        if len(self.cluster.toys) < 26:
            self.cluster.add_osds(count, 1.0)
            self.turn()

    @rule(which=st.integers(0, 99), weight=st.sampled_from([0.5, 1.0, 1.5]))
    def others_weigh(self, which: int, weight: float) -> None:
        osd = self.some_osd(which)
        if self.cluster.toys[osd].crush_weight > 0.01:
            self.cluster.weigh(osd, weight)
            self.turn()

    @rule(flag=st.sampled_from(['nobackfill', 'norecover', 'noout']), on=st.booleans())
    def others_put_a_flag(self, flag: str, on: bool) -> None:
        self.cluster.put_flag(flag, on)
        self.turn()

    @precondition(lambda self: 'norebalance' not in self.cluster.flags and self.settled())
    @rule()
    def others_set_norebalance(self) -> None:
        self.cluster.put_flag('norebalance', True)
        self.be_seen()

    @precondition(lambda self: self.settled())
    @rule(on=st.booleans())
    def others_switch_the_balancer(self, on: bool) -> None:
        if self.cluster.config[BALANCER] != ('true' if on else 'false'):
            self.cluster.put_balancer(on)
            self.be_seen()

    @precondition(lambda self: self.settled())
    @rule(pool=st.integers(1, 2), mode=st.sampled_from(['on', 'warn']))
    def others_set_the_autoscaler(self, pool: int, mode: str) -> None:
        if self.cluster.modes[pool] != mode:
            self.cluster.put_mode(pool, mode)
            self.be_seen()

    @rule(which=st.integers(0, 99), to=st.integers(0, 99))
    def others_set_an_upmap(self, which: int, to: int) -> None:
        pgid = sorted(self.cluster.pg)[which % len(self.cluster.pg)]
        pg, osd = self.cluster.pg[pgid], self.some_osd(to)
        if osd not in pg.mon.raw and pg.mon.raw:
            pair = (pg.mon.raw[which % len(pg.mon.raw)], osd)
            # A part of a pin looks like an entry that the mon has cleaned up.
            if pair not in pg.mon.stored.items:
                self.cluster.set_upmap(pgid, [pair])
                self.their_upmap(pgid)
                self.turn()

    @rule(which=st.integers(0, 99))
    def others_remove_an_upmap(self, which: int) -> None:
        entries = sorted(self.cluster.entries())
        if entries:
            pgid = entries[which % len(entries)]
            self.cluster.set_upmap(pgid, [])
            self.their_upmap(pgid)
            self.turn()

    def be_seen(self) -> None:
        """Until the mgr's map shows it: who asks for a flag before takes it for its own."""
        self.pass_time(self.cluster.lag + 2)

    def their_upmap(self, pgid: str) -> None:
        entry = self.cluster.entries().get(pgid)
        if entry is None:
            self.cluster.their_upmaps.pop(pgid, None)
        else:
            self.cluster.their_upmaps[pgid] = entry

    def settled(self) -> bool:
        """No setting is on its way: what is changed now is seen to be changed by others."""
        campaign = self.driver.loop.published.rebalanced.campaign
        if not campaign.active:
            return True
        holds = campaign.holds
        return (campaign.holds.prepared and campaign.phase.value == 'RELEASING'
                and self.cluster.now - campaign.phase_since > 8.0
                and holds.flag is None
                and all(held.seen for key, held in holds.held.items() if not is_option(key)))

    # ---- OSDs

    @precondition(lambda self: self.down is None)
    @rule(which=st.integers(0, 99), out=st.booleans())
    def osd_fails(self, which: int, out: bool) -> None:
        self.down = self.some_osd(which)
        self.cluster.take_down(self.down)
        self.pass_time(4)
        if out:
            self.cluster.mark_out(self.down)

    @precondition(lambda self: self.down is not None)
    @rule()
    def osd_returns(self) -> None:
        assert self.down is not None
        self.cluster.revive(self.down)
        self.down = None
        self.turn()

    # ---- the end

    def teardown(self) -> None:
        if not hasattr(self, 'driver'):
            return
        self.pass_time(10)
        self.check_reasons()
        self.heal()
        self.play_to_the_end()
        self.pass_time(15)
        for _ in range(10):
            # What others have remapped after the end.
            if not cluster_is_clean(self.cluster):
                self.pass_time(10)
        self.check_the_end()

    def check_reasons(self) -> None:
        """What waits says for what; a turn that does something may have nothing to say."""
        for _ in range(4):
            if self.driver.phase in ENDED or self.driver.status['reasons']:
                return
            self.turn()
        raise AssertionError('no reason: %s' % self.driver.phase)

    def heal(self) -> None:
        cluster = self.cluster
        if self.down is not None:
            cluster.revive(self.down)
        for flag in ('nobackfill', 'norecover', 'norebalance'):
            if flag in cluster.their_flags:
                cluster.put_flag(flag, False)
        if BALANCER in cluster.taken:
            cluster.put_balancer(False)

    def play_to_the_end(self) -> None:
        """The operator does what each phase asks for."""
        driver = self.driver
        for turn in range(TURNS_TO_END):
            phase = driver.phase
            if phase in ENDED:
                return
            verb = {'PREPARED': 'pin', 'PINNED': 'start'}.get(phase, '')
            if phase == 'HOLDING' and driver.status['paused']:
                verb = 'resume'
            if self.aborts and turn == 5:
                verb = 'abort'
            if verb:
                self.try_to(lambda: driver.ask(verb))
            self.turn()
        raise AssertionError('no end: %s %s' % (driver.phase, driver.status['reasons']))

    def check_the_end(self) -> None:
        cluster, driver = self.cluster, self.driver
        pins = driver.loop.rebalance.pins
        if driver.phase == 'ABORTED':
            # The settings that keep PGs in place stay in force, and the operator sees a report.
            assert cluster.unlike_theirs({pool_of(pgid) for pgid in pins}, kept=True) == []
            assert not pins or 'PERFGUARD_HELD_PINS' in cluster.checks
            return
        assert not pins and cluster.unlike_theirs() == []
        assert 'norebalance' not in cluster.own_flags
        assert cluster_is_clean(cluster) and not cluster.released
        if driver.options.target == 'crush':
            present = cluster.entries()
            for pgid, entry in cluster.their_upmaps.items():
                assert present.get(pgid) == entry, pgid


def cluster_is_clean(cluster: AuditedCluster) -> bool:
    return cluster.report_now().active_clean == len(cluster.pg)


@pytest.mark.timeout(600)
def test_every_story_keeps_the_caps_and_ends() -> None:
    run_state_machine_as_test(Stories, settings=STORIES)
