# SPDX-License-Identifier: LGPL-2.1-or-later
"""PGs that are remapped and not pinned: they move outside all caps unless norebalance is set."""
import pytest

from perfguard.rebalance.types import Phase

from .test_machine import Machine, expanded, pinned, releasing


def everything(machine: Machine) -> None:
    """A host fails: each OSD has a degraded PG."""
    machine.cluster.degraded = set(machine.cluster.pg)
    machine.cluster.report()


def recovered(machine: Machine) -> None:
    machine.cluster.degraded = set()
    machine.cluster.report()


def test_degraded_pgs_are_still_to_be_pinned_and_nothing_moves_meanwhile() -> None:
    machine = expanded()
    cluster = machine.cluster
    everything(machine)
    machine.ask('pin')
    for _ in range(30):
        machine.turn()
        assert 'norebalance' in cluster.flags
    assert machine.campaign.phase is Phase.PINNING and len(machine.campaign.unpinnable) == 12
    recovered(machine)
    machine.to(Phase.PINNED)
    assert len(machine.pins) == 12 and not machine.campaign.unpinnable
    machine.ask('start')
    machine.to(Phase.DONE)
    assert cluster.most_moving <= 4


@pytest.mark.parametrize('phase', [Phase.PINNED, Phase.HOLDING, Phase.RELEASING])
def test_degraded_pgs_of_a_later_change_keep_norebalance(phase: Phase) -> None:
    machine = pinned() if phase is Phase.PINNED else releasing()
    cluster = machine.cluster
    machine.until(lambda: not machine.campaign.in_flight or phase is not Phase.HOLDING)
    moved = len(cluster.moved)
    everything(machine)
    cluster.expand(share=1)
    machine.until(lambda: len(cluster.remapped()) > 12)
    machine.turn()
    cluster.most_moving = 0  # what nobody announced moves until it is seen
    for _ in range(20):
        machine.turn()
        assert 'norebalance' in cluster.flags or phase is Phase.PINNED
    assert len(cluster.moved) - moved <= 4, 'only what was released before'
    recovered(machine)
    machine.until(lambda: not cluster.remapped() or machine.campaign.phase is Phase.RELEASING)
    if phase is Phase.PINNED:
        machine.ask('start')
    machine.to(Phase.DONE)
    assert cluster.most_moving <= 4
