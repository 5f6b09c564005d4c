# SPDX-License-Identifier: LGPL-2.1-or-later
"""Who only waits for a slow replica is not called slow."""
from typing import Dict, List

from perfguard.watch.comparison import Finding
from perfguard.watch.peers import Comparison
from perfguard.watch.recent import COMMITS, READS, REPLICATED, STORE_READS, WRITES
from perfguard.watch.slow_osds import without_victims

RATIO = 1.5


def finding(channel: int, ms: float, expected_ms: float = 1.0) -> Finding:
    return Finding(channel, Comparison(ms, ms, expected_ms, 0.1, 20.0, 0.1, 1.0, 9), 1.0)


def left(findings: Dict[int, List[Finding]]) -> Dict[int, List[int]]:
    kept = without_victims(findings, RATIO)
    assert kept.keys() == findings.keys(), 'who has no finding left is still judged'
    return {osd: [each.channel for each in found] for osd, found in kept.items()}


def test_without_a_cause_everything_stays() -> None:
    findings = {1: [finding(READS, 5.0)], 2: [finding(WRITES, 9.0)], 3: [finding(COMMITS, 1.1)]}
    assert without_victims(findings, RATIO) is findings


def test_what_waits_for_a_replica_is_explained_by_it() -> None:
    findings = {1: [finding(READS, 5.0), finding(WRITES, 3.0)],
                3: [finding(REPLICATED, 6.0), finding(READS, 4.0)]}
    assert left(findings) == {1: [], 3: [REPLICATED, READS]}


def test_a_slow_store_is_a_cause_too() -> None:
    assert left({1: [finding(READS, 5.0)], 3: [finding(COMMITS, 300.0)]}) == {1: [], 3: [COMMITS]}


def test_who_is_slower_than_the_cause_explains_is_slow_itself() -> None:
    assert left({1: [finding(READS, 50.0)], 3: [finding(REPLICATED, 6.0)]}) == {
        1: [READS], 3: [REPLICATED]}


def test_two_causes_are_both_named() -> None:
    findings = {1: [finding(COMMITS, 8.0), finding(WRITES, 5.0)], 3: [finding(REPLICATED, 90.0)],
                4: [finding(STORE_READS, 7.0), finding(READS, 7.0)]}
    assert left(findings) == {1: [COMMITS, WRITES], 3: [REPLICATED], 4: [STORE_READS, READS]}


def test_what_is_not_over_the_ratio_is_no_cause() -> None:
    findings = {1: [finding(READS, 5.0)], 3: [finding(REPLICATED, 1.3)]}
    assert without_victims(findings, RATIO) is findings
