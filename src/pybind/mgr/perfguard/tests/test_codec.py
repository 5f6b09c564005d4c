# SPDX-License-Identifier: LGPL-2.1-or-later
"""Every stored type survives its JSON, and JSON of another shape is refused."""
import enum
import json
import math
from dataclasses import dataclass, field
from typing import (Annotated, Any, ClassVar, Dict, FrozenSet, Mapping, NamedTuple, Optional, Tuple,
                    Union, get_args)

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfguard.cluster.types import PoolPgs, PoolRule, UpmapEntry
from perfguard.codec import BY_PG, As, Malformed, Newer, decode, encode
from perfguard.ledger import Held
from perfguard.mitigation.rescue import Rescue
from perfguard.mitigation.types import (LadderStep, MitigationState, Revert, Rung, Setting,
                                        SettingKind, StepStage, Trouble)
from perfguard.rebalance.balancing import BalanceChange
from perfguard.rebalance.campaign import AnyChange, Campaign
from perfguard.rebalance.change import ChangeStage, Led
from perfguard.rebalance.copying import Copying
from perfguard.rebalance.crush_orders import Added, Drained
from perfguard.rebalance.pg_num import PgNumChange
from perfguard.rebalance.pool_rule import RuleChange
from perfguard.rebalance.progress import Arrivals, Limits
from perfguard.rebalance.replacing import Replacement
from perfguard.rebalance.requests import VERBS, Request
from perfguard.rebalance.risks import RISKS
from perfguard.rebalance.stalls import IntervalChange, Stalls
from perfguard.rebalance.types import (Flight, Holds, Pace, Phase, PinRecord, Sent,
                                       UnpinnablePgs)
from perfguard.rebalance.weights import WeightChange
from perfguard.rebalance.whole_map import MapChange
from perfguard.upmap.pins import DEGRADED, Unpinnable

from .fakes.campaigns import campaign_of, changed


class Color(enum.Enum):
    RED = 'red'


class Row(NamedTuple):
    first: int
    second: str = 'x'
    third: Optional[Color] = None


@dataclass(frozen=True)
class Short:
    first: int
    second: Tuple[int, ...] = ()
    json_row: ClassVar[bool] = True


@dataclass(frozen=True)
class Whole:
    needed: float
    rows: Tuple[Row, ...] = ()
    pair: Tuple[int, str] = (0, '')
    by_id: Mapping[int, Short] = field(default_factory=dict)
    words: Annotated[Mapping[str, Optional[int]], BY_PG] = field(default_factory=dict)
    chosen: FrozenSet[int] = frozenset()
    raw: Optional[bytes] = None
    on: bool = False
    anything: Mapping[str, Any] = field(default_factory=dict)
    own: int = field(default=0, compare=False)


def again(hint: Any, value: Any) -> Any:
    return decode(hint, json.loads(json.dumps(encode(value, hint))))


def test_the_json_is_short() -> None:
    assert encode(Whole(1.0)) == {'needed': 1.0}
    whole = Whole(1.0, (Row(1), Row(2, 'y'), Row(3, third=Color.RED)), by_id={7: Short(1)},
                  words={'1.a': 1, '1.b': None, '1.c': 1, '2.0': 1},
                  chosen=frozenset({3, 1}), raw=b'x', own=9)
    assert encode(whole) == {
        'needed': 1.0, 'rows': [[1], [2, 'y'], [3, 'x', 'red']], 'by_id': {'7': [1]},
        'words': [[1, '1.a c 2.0'], [None, '1.b']], 'chosen': [1, 3], 'raw': 'eA=='}
    assert again(Whole, whole) == whole and again(Whole, whole).own == 0


@pytest.mark.parametrize('change', [
    {'needed': None}, {'needed': math.nan}, {'needed': math.inf}, {'needed': 10 ** 400},
    {'needed': '1'},
    {'needed': True}, {'rows': 5}, {'rows': [[]]}, {'rows': [[1, 'y', 'blue']]},
    {'rows': [[1, 'y', 'red', 1]]}, {'rows': [[1.5]]}, {'pair': [1]}, {'pair': [1, 'x', 2]},
    {'by_id': {'x': [1]}}, {'by_id': []}, {'words': [[1]]}, {'words': [['a', 'b']]},
    {'words': [[1, 2]]}, {'raw': 'x'}, {'raw': 5}, {'on': 1}, {'chosen': ['1']}, {'more': 1}])
def test_json_of_another_shape_is_refused(change: Dict[str, Any]) -> None:
    with pytest.raises(Malformed):
        decode(Whole, {'needed': 1.0, **change})


@pytest.mark.parametrize('raw', [None, 5, 'x', [], {}])
def test_what_is_no_object_is_refused(raw: Any) -> None:
    with pytest.raises(Malformed):
        decode(Whole, raw)


def test_the_text_names_the_field() -> None:
    with pytest.raises(Malformed, match="by_id: 7: 'x' is no int"):
        decode(Whole, {'needed': 1.0, 'by_id': {'7': ['x']}})


@pytest.mark.parametrize('hint', [complex, Union[int, str], Dict[str, complex], Optional[complex],
                                  object()])
def test_a_type_without_a_form_is_an_error_of_the_caller(hint: Any) -> None:
    with pytest.raises(TypeError):
        decode(hint, None)


# ---- what perfguard stores

PGIDS = st.from_regex(r'[1-9]\.[0-9a-f]{1,3}', fullmatch=True)
NUMBERS = st.floats(allow_nan=False, allow_infinity=False, width=32)
OSDS = st.lists(st.integers(0, 99), max_size=3).map(lambda osds: tuple(osds))
PAIRS = st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), max_size=3)
ENTRIES = st.builds(UpmapEntry, PAIRS.map(lambda pairs: tuple(pairs)), st.none() | OSDS)
PINS = st.builds(PinRecord, ENTRIES, ENTRIES, st.none() | OSDS, *[st.none() | ENTRIES] * 3)
FLIGHTS = st.builds(Flight, NUMBERS, ENTRIES, st.integers(0, 9), st.none() | NUMBERS,
                    st.booleans(), st.integers(0), OSDS, OSDS, st.integers(-1, 9), st.integers(0),
                    OSDS,
                    st.none() | PINS)
SENT = (ChangeStage.SENT, 5.0, 2, 41, 7, True, True,
        {'1.a': Led(UpmapEntry(((1, 2),)), UpmapEntry(((1, 3),)))})
CHANGES = (
    WeightChange(*SENT, {8: 1.5, 9: 0.0001}, (9,), True, (8,), 1, {8: 1.0}, {8: 0.5}, {8: 0.1}, 0.5,
                 1, 2, 6.0),
    MapChange(*SENT, 2, 8, 9), RuleChange(*SENT, 2, True, PoolRule(3, 7), 9, 'a', 'b', 'c'),
    PgNumChange(*SENT, 2, True, PoolPgs(3, 16, 8), 16, 8, PoolPgs(3, 8, 8)),
    BalanceChange(*SENT, (1, 3), True, 2.0, 0.1))
HELD = Held('1', '3', True, True, ('2',))
CAMPAIGN = campaign_of(
    7, Phase.PINNING, 1.5, automatic=True, change=CHANGES[0], wanted=CHANGES[1], undone=CHANGES[2],
    draining=(3, 5), acknowledged=('X',), absent={'X': 3.5},
    ended=9.0, undersized=4, undersized_pgs=('1.a', '2.0'),
    holds=Holds({'a': HELD, 'b': HELD}, frozenset({'c'}), frozenset({'d'})),
    pace=Pace(3.5, 7.0, 1, 2, True, 'why', 'CODE', {'reads': 1.5}, 8.0, 3, 4),
    stalls=Stalls((IntervalChange(1.5, 3, (1, 2), '1.a'), IntervalChange(2.5, 3, ())), 1.0, 2.0,
                  3.0, {3: 0.5}, 4.0, 0.25, 5.0),
    copying=Copying(3, 12.5, 11.0, {'option': '0.05'}, 'auto wpq 0.05', True, True),
    arrivals=Arrivals((1.5, 2.0), 5.0, 1.0, 7.0, 2.0, 3.0), limits=Limits({'CODE': 1.5}, 'CODE'),
    settings={'latency_factor': '2'}, paused_seconds=7.0, plan='p', plan_token='t')


@pytest.mark.parametrize('change', CHANGES)
def test_changes(change: AnyChange) -> None:
    assert again(AnyChange, change) == change


def test_every_kind_of_change_is_stored_under_its_own_name() -> None:
    assert [type(change) for change in CHANGES] == list(get_args(AnyChange))
    assert len({encode(change, AnyChange)['kind'] for change in CHANGES}) == len(CHANGES)
    with pytest.raises(Malformed, match="unknown kind 'other'"):
        decode(AnyChange, {'kind': 'other'})


def test_every_kind_of_change_says_how_it_needs_fewer_pins() -> None:
    assert len({change.fewer_pins for change in CHANGES}) == len(CHANGES)


@given(st.dictionaries(PGIDS, PINS, max_size=4))
def test_pins(pins: Dict[str, PinRecord]) -> None:
    assert again(Mapping[str, PinRecord], pins) == pins


@given(st.dictionaries(PGIDS, FLIGHTS, max_size=3), st.dictionaries(PGIDS, NUMBERS, max_size=9),
       st.dictionaries(PGIDS, st.sampled_from([Unpinnable('osd.0 is out'), DEGRADED]), max_size=9))
def test_campaigns(flights: Dict[str, Flight], sent: Dict[str, float],
                   unpinnable: Dict[str, Unpinnable]) -> None:
    campaign = changed(CAMPAIGN, in_flight=flights, unpinnable=unpinnable, sent={
        pgid: Sent(since) for pgid, since in sent.items()})
    assert again(Campaign, campaign) == campaign
    assert again(UnpinnablePgs, unpinnable) == unpinnable


@pytest.mark.parametrize('hint, value', [
    (MitigationState, MitigationState((LadderStep(
        1, Rung.AFFINITY, StepStage.UNDOING, 1.0, 'slow', '3',
        (Setting(SettingKind.AFFINITY, '3', '', Held(None, '0', True, True), True),), ('1.a',),
        StepStage.IN_VAIN, 'note'),), 1, 2.0, 3.0, 4.0, 5.0, ((3, 6.0),),
        (Trouble('x', 7.0, 8.0, True),), 9.0, given_back=((Rung.SLOW, 9.5),))),
    (Dict[str, Rescue], {'1.a': Rescue(UpmapEntry(), UpmapEntry(((1, 2),)), (1,), (2,), 5.0, True,
                                       True, UpmapEntry(((1, 3),)))}),
    (Dict[int, Drained], {3: Drained(1.5), 4: Drained(1.5, 'uuid', (('rack=a', 1.0),))}),
    (Dict[int, Added], {3: Added('uuid'), 4: Added('uuid', True)}),
    (Dict[int, Replacement], {3: Replacement('uuid', 1.5, 10, 5.0)}),
    (Revert, Revert(3)), *((Request, Request(verb, accept=RISKS)) for verb in sorted(VERBS))])
def test_documents(hint: Any, value: Any) -> None:
    assert again(hint, value) == value


@dataclass(frozen=True)
class Known:
    needed: float
    rows: Tuple[Row, ...] = ()
    packed: Annotated[Optional[Row], As(Optional[Row], lambda row: row, lambda row: row)] = None


@pytest.mark.parametrize('raw, is_newer', [
    ({'needed': 1.0, 'more': 1}, True), ({'needed': 1.0, 'rows': [[1, 'y', 'red', 1]]}, True),
    ({'needed': 1.0, 'packed': [1, 'y', 'red', 1]}, True),
    ({'needed': 1.0, 'rows': [[1, 'y', 'blue']]}, True),
    # Another type, or damage.
    ({'more': 1}, False), ({'needed': 1.0, 'rows': [[1, 'y', 5]]}, False),
    ({'needed': 1.0, 'rows': 5}, False)])
def test_fields_of_a_newer_version(raw: Dict[str, Any], is_newer: bool) -> None:
    with pytest.raises(Malformed) as refused:
        decode(Known, raw)
    assert isinstance(refused.value, Newer) is is_newer


@pytest.mark.parametrize('kind, is_newer', [('other', True), (5, False), (None, False)])
def test_a_kind_of_a_newer_version(kind: Any, is_newer: bool) -> None:
    with pytest.raises(Malformed) as refused:
        decode(AnyChange, {'kind': kind})
    assert isinstance(refused.value, Newer) is is_newer
