# SPDX-License-Identifier: LGPL-2.1-or-later
"""Each cause for which an OSD is slow, provoked one at a time."""
from dataclasses import replace
from typing import Any, Dict, List, Optional, Tuple

import pytest

from perfguard.cluster.types import Osd, PgCounts, Signals, UpmapEntry
from perfguard.errors import Code, Reason
from perfguard.rebalance.campaign import NO_CAMPAIGN, Campaign
from perfguard.rebalance.progress import Limits
from perfguard.rebalance.types import Flight, Phase
from perfguard.watch.causes import LikelyCause
from perfguard.watch.laggy import Suspect
from perfguard.watch.report import OsdRow
from perfguard.watch.types import Chronic
from perfguard.why.causes import (NOTABLE_PING_MS, Cause, OsdCase, Why, as_json,
                                  campaign_causes, osd_causes, parsed)

from ..fakes.campaigns import campaign_of

ROW = OsdRow(3, 'h0', 'ssd', '', read_ms=1.0, write_ms=1.0, score=1.0, ping_ms=1.0)
CALM = OsdCase(Osd(3, True, 1.0), ROW)
NETWORK = LikelyCause('network', 'heartbeats are slow', {'ping_ms': 300.0})
HOT = LikelyCause('object', 'most operations are on one object', {'share': 0.9})
FLIGHT = Flight(1.0, UpmapEntry(), sources=(1,), targets=(3,), primary=1)


def row(**more: Any) -> OsdCase:
    return replace(CALM, row=ROW._replace(**more))


def counts(**more: Any) -> OsdCase:
    return replace(CALM, counts=PgCounts(total=9, **more))


@pytest.mark.parametrize('case, code', [
    (CALM, Code.NOT_SLOW),
    (replace(CALM, osd=Osd(3, False, 1.0)), Code.OSD_DOWN),
    (replace(CALM, row=None), Code.NO_READINGS),
    (row(silent_seconds=40.0), Code.NO_ANSWER),
    (row(slow=True, why='commits take 9 ms'), 'PERFGUARD_SLOW_OSD'),
    (row(slow=True, why='commits take 9 ms', causes=(NETWORK,)), 'network'),
    (row(score=9.0, waits_for=4), Code.WAITS_FOR_OSD),
    (row(chronic=Chronic(3, 1.0, 2.0, 3.0, 0.04, 2, 5.0, 'slow for 4 % of the time')),
     Code.SLOW_AGAIN),
    (replace(CALM, suspect=Suspect(3, 1.0, 'in all')), 'PERFGUARD_LAGGY_PGS'),
    (row(ping_ms=300.0), Code.SLOW_PING), (row(ping_ms=NOTABLE_PING_MS), Code.SLOW_PING),
    (row(ping_ms=0.99 * NOTABLE_PING_MS), Code.NOT_SLOW),
    (replace(CALM, signals=Signals(PgCounts(), slow_daemons={'osd.3': 2})), Code.SLOW_OPS),
    (replace(CALM, campaign=campaign_of(1, Phase.RELEASING, 0.0, in_flight={'1.a': FLIGHT})),
     Code.IN_FLIGHT),
    (counts(backfilling=2), Code.BACKFILLING),
    (counts(recovering=2), Code.DEGRADED),
    (counts(deep_scrubbing=1), Code.SCRUB),
    (counts(snaptrim=1), Code.SNAPTRIM),
    (replace(CALM, osd=Osd(3, True, 1.0, fullness='nearfull')), Code.TARGET_FULL),
])
def test_the_first_cause(case: OsdCase, code: str) -> None:
    assert osd_causes(case)[0].code == code


def test_a_busy_osd_is_not_slow() -> None:
    assert [cause.code for cause in osd_causes(row(load=(HOT,)))] == [Code.NOT_SLOW, 'object']
    slow = osd_causes(row(slow=True, why='reads take 9 ms', causes=(HOT,), load=(HOT,)))
    assert [cause.code for cause in slow] == ['object', 'PERFGUARD_SLOW_OSD']


def test_that_it_is_slow_comes_after_why() -> None:
    found = osd_causes(row(slow=True, why='commits take 9 ms', causes=(NETWORK,)))
    assert [cause.code for cause in found] == ['network', 'PERFGUARD_SLOW_OSD']
    assert found[0].evidence == {'ping_ms': 300.0}


FIGURES = {'score': 1.0, 'read_ms': 1.0, 'write_ms': 1.0, 'store_ms': None, 'ping_ms': 1.0,
           'since': None}


def flights(*osds: Tuple[str, Tuple[int, ...], Tuple[int, ...], int, Tuple[int, ...]]) -> OsdCase:
    """PG, sources, targets, primary and readers of each flight."""
    return replace(CALM, campaign=campaign_of(1, Phase.RELEASING, 0.0, in_flight={
        pgid: replace(FLIGHT, sources=sources, targets=targets, primary=primary, readers=readers)
        for pgid, sources, targets, primary, readers in osds}))


@pytest.mark.parametrize('case, cause', [
    (CALM, Cause(Code.NOT_SLOW, 'osd.3 is not slower than its peers', FIGURES)),
    (replace(CALM, osd=Osd(3, False, 1.0)), Cause(Code.OSD_DOWN, 'osd.3 is down', {'in': True})),
    (replace(CALM, osd=Osd(3, False, 0.0)), Cause(Code.OSD_DOWN, 'osd.3 is down', {'in': False})),
    (replace(CALM, osd=Osd(3, False, 0.0, destroyed=True)),
     Cause(Code.OSD_DOWN, 'osd.3 is destroyed', {'in': False})),
    (replace(CALM, row=None), Cause(
        Code.NO_READINGS, 'osd.3 has not reported yet, or OSDs are not judged (see "ceph perfguard '
        'status")')),
    (row(silent_seconds=40.0),
     Cause(Code.NO_ANSWER, 'osd.3 has not reported for 40 s', {'silent_seconds': 40.0})),
    (row(slow=True, why='commits take 9 ms'),
     Cause('PERFGUARD_SLOW_OSD', 'commits take 9 ms', FIGURES)),
    (row(score=9.0, waits_for=0), Cause(
        Code.WAITS_FOR_OSD, 'osd.3 waits for osd.0, a slow replica of its PGs',
        {**FIGURES, 'score': 9.0, 'waits_for': 0})),
    (replace(CALM, suspect=Suspect(3, 0.7, 'in all', 'look at it')),
     Cause('PERFGUARD_LAGGY_PGS', 'in all', {'score': 0.7, 'advice': 'look at it'})),
    (row(ping_ms=300.4), Cause(Code.SLOW_PING, 'its heartbeats take 300 ms', {'ping_ms': 300.4})),
    (replace(CALM, signals=Signals(PgCounts(), slow_daemons={'osd.3': 1, 'osd.33': 9})),
     Cause(Code.SLOW_OPS, 'it reports 1 slow operation', {'slow_ops': 1})),
    (counts(backfilling=2), Cause(Code.BACKFILLING, 'it backfills 2 PGs', {'pgs': 2})),
    (counts(recovering=1), Cause(Code.DEGRADED, 'it recovers 1 PG', {'pgs': 1})),
    (counts(deep_scrubbing=1), Cause(Code.SCRUB, 'it deep-scrubs 1 PG', {'pgs': 1})),
    (counts(snaptrim=3),
     Cause(Code.SNAPTRIM, 'it removes deleted snapshots from 3 PGs', {'pgs': 3})),
    (replace(CALM, osd=Osd(3, True, 1.0, fullness='nearfull')),
     Cause(Code.TARGET_FULL, 'it is nearfull', {'fullness': 'nearfull'})),
    (flights(('1.b', (1,), (3,), 1, ()), ('1.a', (1,), (3,), 3, ()), ('1.c', (3,), (2,), 1, ()),
             ('1.d', (1,), (2,), 1, (3,)), ('1.e', (1,), (2,), 1, ())),
     Cause(Code.IN_FLIGHT, 'PGs in flight: 2 as source, 2 as target, 1 as primary',
           {'source': ['1.c', '1.d'], 'target': ['1.a', '1.b'], 'primary': ['1.a']})),
    (flights(*(('1.%02d' % number, (1,), (3,), 1, ()) for number in range(12))),
     Cause(Code.IN_FLIGHT, 'PGs in flight: 12 as target',
           {'target': ['1.%02d' % number for number in range(10)]}))])
def test_the_text_and_the_evidence_of_each_cause(case: OsdCase, cause: Cause) -> None:
    assert osd_causes(case) == [cause]


def test_the_pgs_of_a_campaign_that_has_ended_are_not_in_flight() -> None:
    ended = campaign_of(1, Phase.ABORTED, 0.0, in_flight={'1.a': FLIGHT})
    assert [cause.code for cause in osd_causes(replace(CALM, campaign=ended))] == [Code.NOT_SLOW]


def test_a_slow_osd_that_waits_for_another_is_slow_itself() -> None:
    assert [cause.code for cause in osd_causes(row(slow=True, why='x', waits_for=4))] == [
        'PERFGUARD_SLOW_OSD']


def limited(seconds: Dict[str, float], now: str = '', phase: Phase = Phase.RELEASING) -> Campaign:
    return campaign_of(7, phase, 0.0, limits=Limits(seconds, now))


def timed(code: str, text: str, now: bool, seconds: float, share: float) -> Cause:
    return Cause(code, text, {'now': now, 'seconds': seconds}, share)


PEERING = timed(Code.PEERING, 'it waited for PGs to peer', False, 300.0, 0.3)


@pytest.mark.parametrize('campaign, reasons, causes', [
    (NO_CAMPAIGN, (), [Cause(Code.NO_CAMPAIGN, 'no campaign is active')]),
    (NO_CAMPAIGN, (Reason('X', 'x'),), [Cause('X', 'x')]),
    (limited({}), (), [Cause(Code.NO_CAMPAIGN, 'nothing has limited campaign 7 yet')]),
    # The current limit comes first, then the others by their share; which is 0.001 at least.
    (limited({Code.PEERING: 300.0, Code.LATENCY: 100.04, Code.CAP_PGS: 598.96, 'NEW': 1.0},
             Code.LATENCY),
     (Reason(Code.LATENCY, 'write latency is 3 ms'), Reason(Code.LATENCY, 'another'),
      Reason(Code.PAUSED, 'paused')),
     [timed(Code.LATENCY, 'write latency is 3 ms', True, 100.0, 0.1),
      timed(Code.CAP_PGS, 'as many PGs as max_pgs_in_flight were in flight', False, 599.0, 0.599),
      PEERING, timed('NEW', 'it was limited by NEW', False, 1.0, 0.001),
      Cause(Code.PAUSED, 'paused', {'now': True})]),
    (limited({Code.PEERING: 300.0, Code.CAP_PGS: 699.01, 'NEW': 0.99}), (),
     [timed(Code.CAP_PGS, 'as many PGs as max_pgs_in_flight were in flight', False, 699.0, 0.699),
      PEERING]),
    (limited({Code.PEERING: 1000.0, 'NEW': 0.0}, 'NEW'), (),
     [timed('NEW', 'it was limited by NEW', True, 0.0, 0.0), replace(PEERING, share=1.0, evidence={
         'now': False, 'seconds': 1000.0})]),
    # One that has ended is limited by nothing.
    (limited({Code.CAP_PGS: 700.0, Code.PEERING: 300.0}, Code.PEERING, Phase.DONE), (),
     [timed(Code.CAP_PGS, 'as many PGs as max_pgs_in_flight were in flight', False, 700.0, 0.7),
      PEERING])])
def test_what_has_limited_a_campaign(
        campaign: Campaign, reasons: Tuple[Reason, ...], causes: List[Cause]) -> None:
    assert campaign_causes(campaign, reasons) == causes


@pytest.mark.parametrize('text, osd, pgid', [
    ('campaign', None, None), ('osd.12', 12, None), ('3.1f', None, '3.1f'),
    ('1234567890.12345678', None, '1234567890.12345678'), ('osd.123456789', 123456789, None)])
def test_the_subjects_of_the_command(
        text: str, osd: Optional[int], pgid: Optional[str]) -> None:
    order = parsed(text)
    assert (order, order.osd, order.pgid) == (Why(text), osd, pgid)


def test_what_limited_the_campaign_earlier_needs_no_command() -> None:
    rows = as_json(Why('campaign'), [
        Cause(Code.DEGRADED, 'degraded', {'now': now}, share) for now, share in (
            (False, 0.5), (True, None))])
    assert rows['subject'] == 'campaign'
    assert [(cause['code'], cause['text'], cause['share'], cause['evidence'])
            for cause in rows['causes']] == [
        (Code.DEGRADED, 'degraded', 0.5, {'now': False}),
        (Code.DEGRADED, 'degraded', None, {'now': True})]
    assert [bool(cause['next']) for cause in rows['causes']] == [False, True]
