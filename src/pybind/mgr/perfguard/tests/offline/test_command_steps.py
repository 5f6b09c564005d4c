# SPDX-License-Identifier: LGPL-2.1-or-later
"""What perfguard-plan reads, says and prints, in this process."""
import json
import os
from dataclasses import replace
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple

import pytest

from perfguard.cluster.crush import CrushRules
from perfguard.cluster.dumps import osdmap_from_dump
from perfguard.cluster.ports import Future, FuturePg, NoFuture, Outlook
from perfguard.cluster.types import ConfigEntry, PgCounts, PgSets, Signals, Space
from perfguard.errors import Refused
from perfguard.offline import command
from perfguard.offline.sources import BadInput, Maps
from perfguard.rebalance import epochs
from perfguard.rebalance.releasing import BALANCER_ON

from .test_command import CRUSH_DUMP, OSD_DUMP, PGS, pool

Dump = Dict[str, Any]
BUCKETS: Any = CRUSH_DUMP['buckets']
CRUSH = CrushRules.from_dump(CRUSH_DUMP)
#: OSD 9 is filled.
FULL_CRUSH = CrushRules.from_dump({**CRUSH_DUMP, 'buckets': [
    {**bucket, 'items': [{**item, 'weight': 65536} for item in bucket['items']]}
    for bucket in BUCKETS]})
REMAPPED = [PgSets(pgid, tuple(up), tuple(acting), 'active+remapped')
            for pgid, up, acting in PGS if up != acting]
#: PGs 1.0 to 1.11, of which the first six would have their last shard on OSD 9.
CLEAN = [PgSets('1.%x' % seed, osds, osds, 'active+clean')
         for seed in range(12) for osds in [(seed % 9, (seed + 1) % 9, (seed + 2) % 9)]]
PINNED: Dump = {
    **OSD_DUMP, 'pools': [pool(1, 3, 1, pg_num=12, pg_num_target=12, pg_num_pending=12)],
    'flags_set': [], 'flags': '', 'pg_temp': [], 'pg_upmap': [], 'pg_upmap_items': [
        {'pgid': row.pgid, 'mappings': [{'from': 9, 'to': row.acting[2]}]} for row in CLEAN[:6]]}


class SourceFake:
    def __init__(self, dump: Dump = OSD_DUMP, rows: Sequence[PgSets] = REMAPPED,
                 crush: Optional[CrushRules] = CRUSH, balances: bool = False,
                 pool_bytes: Mapping[int, int] = {}, encoded: Optional[bytes] = b'map',
                 devices: Mapping[int, Sequence[str]] = {
                     osd: ['h:sd%d' % osd] for osd in range(10)}) -> None:
        self.rows, self._balances, self._encoded = list(rows), balances, encoded
        self._maps = Maps(osdmap_from_dump(dump), crush, Signals(
            PgCounts(), pool_bytes=pool_bytes), devices)
        self.entries: Sequence[ConfigEntry] = ()
        self.calls: List[str] = []

    def module_campaign(self) -> str:
        self.calls.append('campaign')
        return ''

    def balances(self) -> bool:
        self.calls.append('balances')
        return self._balances

    def maps(self) -> Maps:
        self.calls.append('maps')
        return self._maps

    def pgs(self, also_clean: bool) -> List[PgSets]:
        self.calls.append('pgs, also clean' if also_clean else 'pgs')
        return self.rows

    def space(self) -> Dict[int, Space]:
        return {osd: Space(1 << 40, 1 << 30, 0 if osd == 9 else 96) for osd in range(10)}

    def config(self) -> Optional[Sequence[ConfigEntry]]:
        return self.entries

    def encoded(self, epoch: int) -> Optional[bytes]:
        self.calls.append('epoch %d' % epoch)
        return self._encoded


class Said:
    """What a user sees who waits."""

    def __init__(self) -> None:
        self.texts: List[str] = []

    def say(self, text: str) -> None:
        self.texts.append(text)


def carried_out(source: SourceFake, *argv: str) -> Tuple[str, List[str]]:
    """The output, and the progress."""
    args, progress = command._parser().parse_args(argv), Said()
    text: str = args.carry_out(args, source, progress)
    return text, progress.texts


def lines_of(capsys: Any) -> List[str]:
    return [line.partition(': ')[2] for line in capsys.readouterr().err.splitlines()]


# ---- pin

COMMANDS = ['ceph osd pg-upmap-items 1.1 2 3', 'ceph osd rm-pg-upmap-items 1.3',
            'ceph osd pg-upmap 1.4 0 1 4', 'ceph osd pg-upmap 2.0 1 0 2 3',
            'ceph osd rm-pg-upmap-items 2.1', 'ceph osd pg-upmap 2.1 1 0 2 3',
            'ceph osd pg-upmap-items 2.2 3 4']


@pytest.mark.parametrize('balances', [False, True])
def test_the_pins_of_remapped_pgs(capsys: Any, balances: bool) -> None:
    source = SourceFake(balances=balances)
    text, progress = carried_out(source, 'pin')
    assert text.splitlines() == COMMANDS and text.endswith('\n')
    # The largest dump is read first.
    assert source.calls == ['pgs', 'campaign', 'maps', 'balances']
    assert progress == ['planning pins for 10 PGs']
    said = lines_of(capsys)
    if balances:
        assert said.pop(0) == BALANCER_ON.text
    assert [line.partition(':')[0] for line in said] == [
        'PG %s stays remapped' % pgid for pgid in ('1.2', '1.a', '3.ff', '9.0')]


def test_the_pins_as_json(capsys: Any) -> None:
    found = json.loads(carried_out(SourceFake(), 'pin', '--format', 'json')[0])
    assert [row['pgid'] for row in found['unpinnable']] == ['1.2', '1.a', '3.ff', '9.0']
    assert found['remove'] == ['1.3'] and lines_of(capsys) == []


def test_pgs_whose_acting_sets_differ_are_not_pinned(capsys: Any) -> None:
    source = SourceFake(rows=[row._replace(acting=(0, 1, 4)) if row.pgid == '1.1' else row
                              for row in REMAPPED])
    assert carried_out(source, 'pin')[0].splitlines() == COMMANDS[1:]
    said = lines_of(capsys)
    assert said[0].startswith('the acting sets of 1 PG differ')
    assert said[-1] == 'PG 1.1 stays remapped: ' + command.MAPS_APART.reason


@pytest.fixture
def few_pins(monkeypatch: pytest.MonkeyPatch) -> None:
    """The mons have no time to check upmaps."""
    monkeypatch.setattr(epochs, 'UPMAPS_SECONDS', 0.0)
    monkeypatch.setattr(epochs, 'PINS_SECONDS', 0.0)


@pytest.mark.usefixtures('few_pins')
def test_more_pins_than_the_mons_should_check_have_to_be_accepted() -> None:
    with pytest.raises(Refused, match=r'^6 pins and 3 other upmaps .*max_pins\) \(PIN_LIMIT\); '):
        carried_out(SourceFake(), 'pin')
    assert carried_out(SourceFake(), 'pin', '--accept', 'PIN_LIMIT')[0].splitlines() == COMMANDS


def max_pins(value: str, section: str = 'mgr', mask: str = '') -> ConfigEntry:
    return ConfigEntry(section, mask, 'mgr/perfguard/max_pins', value)


@pytest.mark.parametrize('entries, limit', [
    ([max_pins('5')], 5), ([max_pins('9'), max_pins('5', 'global')], None),
    ([max_pins('5', 'global')], 5), ([max_pins('5', mask='host:a')], None)])
def test_the_limit_of_pins_is_the_one_that_the_module_has(
        entries: Sequence[ConfigEntry], limit: Optional[int]) -> None:
    source = SourceFake()
    source.entries = entries
    if limit is None:
        assert carried_out(source, 'pin')[0].splitlines() == COMMANDS
        return
    with pytest.raises(Refused, match=r'^6 pins .*\(limit %d pins, max_pins\)' % limit):
        carried_out(source, 'pin')


@pytest.mark.parametrize('value', ['many', '-1'])
def test_an_invalid_limit_of_pins_does_not_count(value: str, capsys: Any) -> None:
    source = SourceFake()
    source.entries = [max_pins(value)]
    assert carried_out(source, 'pin')[0].splitlines() == COMMANDS
    assert lines_of(capsys)[0].startswith('module option max_pins ')


# ---- release and plan

def pinned(**fields: Any) -> SourceFake:
    fields = {'dump': PINNED, 'rows': CLEAN, 'crush': FULL_CRUSH, 'pool_bytes': {1: 12 << 30},
              **fields}
    return SourceFake(**fields)


REMOVALS = ['ceph osd rm-pg-upmap-items ' + row.pgid for row in CLEAN[:6]]


def test_the_next_batch_is_released(capsys: Any) -> None:
    source = pinned()
    text, progress = carried_out(source, 'release', '--max-backfills', '2')
    *removals, last = text.splitlines()
    assert len(removals) == 2 and set(removals) < set(REMOVALS) and last == 'sleep 10'
    assert source.calls == ['pgs, also clean', 'campaign', 'maps', 'balances'] and progress == []
    said, = lines_of(capsys)
    assert said.startswith('6 PGs are pinned, 0 in flight; this batch moves 2 shards')
    assert said.endswith('most PGs move to osd.9 (2)')


def test_all_batches_are_planned(capsys: Any) -> None:
    text, progress = carried_out(pinned(), 'plan', '--osd-max-backfills', '3',
                                 '--host-max-backfills', '3')
    lines = text.splitlines()
    assert sorted(line for line in lines if line.startswith('ceph ')) == REMOVALS
    # Each waits until OSD 9 has room.
    assert sum('^osd[.](9) ' in line for line in lines) == 2 and lines[-1] != 'sleep 10'
    assert progress == ['planning releases: %d of 6' % number for number in (3, 6)]
    assert lines_of(capsys)[0].startswith(
        '6 PGs are pinned, 0 in flight; their release moves 6 shards')
    document, _ = carried_out(pinned(), 'plan', '--osd-max-backfills', '3',
                              '--host-max-backfills', '3', '--format', 'json')
    found = json.loads(document)
    assert [len(batch) for batch in found['batches']] == [3, 3]
    assert found['remove'] == sum(found['batches'], []) and len(set(found['remove'])) == 6
    assert (found['pgs'], found['pinned'], found['in_flight']) == (6, 6, 0)
    assert found['bytes'] == 6 << 30 and found['left_out'] == []


@pytest.mark.parametrize('devices, unknown', [
    ({osd: ['h:sd%d' % osd] for osd in range(10) if osd != 9}, 'osd.9'),
    ({}, 'osd.2, osd.3, osd.4, osd.5, osd.6, osd.7, osd.9')])
def test_osds_are_named_whose_drives_are_not_known(
        devices: Mapping[int, Sequence[str]], unknown: str, capsys: Any) -> None:
    # Without PGs to move, it does not matter.
    for dump, said in ((PINNED, 1), ({**PINNED, 'pg_upmap_items': []}, 0)):
        carried_out(pinned(dump=dump, devices=devices), 'plan')
        assert lines_of(capsys).count(
            'the drives and DB devices of %s are not known: those that several OSDs share do not '
            'limit these releases' % unknown) == said


MOVING = [CLEAN[6]._replace(up=(6, 7, 9), state='active+remapped+backfilling')]


def in_motion(temp: bool = True, **fields: Any) -> SourceFake:
    dump = {**PINNED, 'pg_temp': [{'pgid': row.pgid, 'osds': row.acting} for row in MOVING]
            if temp else []}
    return pinned(dump=dump, rows=[*CLEAN[:6], *MOVING, *CLEAN[7:]], **fields)


@pytest.mark.parametrize('temp', [True, False])
def test_pgs_that_move_already_count(capsys: Any, temp: bool) -> None:
    text, _ = carried_out(in_motion(temp), 'release', '--max-backfills', '1')
    assert text == ''
    said = lines_of(capsys)
    if not temp:
        assert said.pop(0).startswith('the acting sets of 1 PG differ')
    assert said[0].startswith('6 PGs are pinned, 1 in flight; this batch moves 0 shards')
    assert said[1:] == ['no more PGs may move until those in flight have arrived']
    found = json.loads(carried_out(in_motion(), 'plan', '--max-backfills', '1', '--format',
                                   'json')[0])
    # The first batch is empty.
    assert [len(batch) for batch in found['batches']] == [1] * 6 and found['in_flight'] == 1


def test_no_release_without_crush_or_while_the_balancer_is_on(capsys: Any) -> None:
    with pytest.raises(BadInput, match='^--crush-dump is required with --osd-dump$'):
        carried_out(pinned(crush=None), 'plan')
    with pytest.raises(BadInput) as refused:
        carried_out(pinned(balances=True), 'release')
    assert str(refused.value) == 'no PG is released now: ' + BALANCER_ON.text
    assert carried_out(pinned(balances=True), 'plan')[0]
    assert 'wait before you release PGs: ' + BALANCER_ON.text in lines_of(capsys)
    # A condition of the cluster comes first.
    with pytest.raises(BadInput, match='^no PG is released now: 1 PG is peering.*; .*balancer'):
        rows = [CLEAN[0]._replace(state='peering'), *CLEAN[1:]]
        carried_out(pinned(rows=rows, balances=True), 'release')


@pytest.mark.parametrize('argv, entries, left', [
    (('--mon-max-pg-per-osd', '2'), (), 4), ((), (ConfigEntry('mgr', '', command.PG_LIMIT, '2'),),
                                             4), ((), (), 0)])
def test_no_osd_gets_more_pgs_than_the_limit(capsys: Any, argv: Tuple[str, ...], left: int,
                                             entries: Sequence[ConfigEntry]) -> None:
    source = pinned()
    source.entries = entries
    found = json.loads(carried_out(source, 'plan', '--format', 'json', *argv)[0])
    assert len(found['left_out']) == left and len(found['remove']) == 6 - left
    assert sum('is left unchanged: osd.9 would hold more PGs' in line
               for line in lines_of(capsys)) == left


def test_drained_osds_that_are_empty_are_named(capsys: Any) -> None:
    tiny = FULL_CRUSH.with_weights({9: 0.0001})
    for crush, named in ((tiny, 1), (FULL_CRUSH, 0)):
        carried_out(pinned(dump={**PINNED, 'pg_upmap_items': []}, crush=crush), 'plan')
        assert sum(line.startswith('osd.9 is empty and has a small CRUSH weight: ')
                   for line in lines_of(capsys)) == named


def test_the_caps_of_the_arguments() -> None:
    def caps(*argv: str) -> Any:
        args = command._parser().parse_args(['plan', '--report', 'r', *argv])
        return command._caps(args, pinned().maps())

    usual = caps()
    # As many as the others allow, at least 32.
    assert usual.pgs == 32
    assert caps('--max-backfills', '5') == replace(usual, pgs=5)
    assert caps('--host-max-backfills', '5') == replace(usual, host=5)
    assert caps('--device-max-backfills', '6') == replace(usual, device=6)
    assert caps('--domain-max-backfills', '7') == replace(usual, domain=7)
    assert caps('--osd-max-backfills', '9', '--max-backfills', '5') == replace(
        usual, pgs=5, target=9, source=9, primary=9)


# ---- where CRUSH places PGs

@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The questions for the mapping, and its answer."""
    answer: Dict[str, Any] = {'questions': [], 'outlook': Future({
        row.pgid: FuturePg(row.acting, (6, 7, 9)) for row in CLEAN}, FULL_CRUSH)}

    def outlook(osdmap: Any, encoded: Any, weights: Any, crush_map: Any, stopping: Any,
                whole: bool) -> Outlook:
        assert stopping() is False and crush_map is None
        answer['questions'].append((encoded(osdmap.epoch), weights, whole))
        found: Outlook = answer['outlook']
        return found

    monkeypatch.setattr(command.crush_preview, 'outlook', outlook)
    return answer


VECTORS = {**PINNED, 'pg_upmap': [{'pgid': '1.7', 'osds': [7, 8, 0]}]}
DOWN = {**PINNED, 'osds': [{**row, 'up': 0, 'state': ['exists']} if row['osd'] == 9 else row
                           for row in PINNED['osds']]}


@pytest.mark.parametrize('dump, rows, questions, known', [
    (PINNED, CLEAN, [], []), (DOWN, CLEAN, [], []), (VECTORS, CLEAN, [(b'map', {}, False)],
                                                     ['1.7']),
    (DOWN, [CLEAN[8]._replace(up=(8, 0))], [(b'map', {}, True)], ['1.8'])])
def test_where_crush_places_pgs_whose_sets_do_not_show_it(
        asked: Any, capsys: Any, dump: Dump, rows: Sequence[PgSets], questions: List[Any],
        known: List[str]) -> None:
    source: Any = SourceFake(dump, rows)
    osdmap = source.maps().osdmap
    assert command._raws(osdmap, source, rows) == dict.fromkeys(known, (6, 7, 9))
    assert asked['questions'] == questions and lines_of(capsys) == []
    asked['outlook'] = NoFuture('no answer')
    assert command._raws(osdmap, source, rows) == {}
    assert lines_of(capsys) == ['PGs that have a pg_upmap entry, or lack an OSD that is down, are '
                                'left alone: no answer'] * len(questions)
    source = SourceFake(dump, rows, encoded=None)
    assert command._raws(osdmap, source, rows) == {} and len(asked['questions']) == 2 * len(
        questions)
    assert lines_of(capsys) == ['PGs that have a pg_upmap entry, or lack an OSD that is down, are '
                                'left alone: --osdmap is not given'] * len(questions)


# ---- expand and drain

#: Where CRUSH places PGs once OSD 9 has a weight.
FUTURE = Future({'1.0': FuturePg((0, 1, 2), (0, 1, 9)), '1.1': FuturePg((1, 2, 3), (9, 2, 3)),
                 '1.2': FuturePg((2, 3, 4), (2, 3, 4))}, FULL_CRUSH)


def unbalanced(**fields: Any) -> SourceFake:
    return pinned(**{'crush': CRUSH, 'dump': {**PINNED, 'pg_upmap_items': []}, **fields})


@pytest.mark.parametrize('balances', [False, True])
def test_an_expansion(asked: Any, capsys: Any, balances: bool) -> None:
    asked['outlook'] = FUTURE
    source = unbalanced(balances=balances)
    text, progress = carried_out(source, 'expand')
    assert asked['questions'] == [(b'map', {9: 1.0}, False)]
    assert source.calls == ['campaign', 'maps', 'epoch 77', 'balances']
    assert progress == ['computing where CRUSH places PGs']
    assert [line for line in text.splitlines() if line.startswith('ceph osd ')] == [
        'ceph osd crush reweight osd.9 1.0', 'ceph osd pg-upmap-items 1.0 9 2',
        'ceph osd pg-upmap-items 1.1 9 1']
    assert 'crush_version 5"' in text and text.splitlines()[-1] == 'test "$failed" -eq 0'
    said = lines_of(capsys)
    if balances:
        assert said.pop(0) == BALANCER_ON.text
    assert said == ['2 PGs to pin; their release moves 2 shards, and the primary of 1 PG; most '
                    'PGs move to osd.9 (2)', 'CRUSH weights before: osd.9 0.0']


def test_an_expansion_as_json(asked: Any) -> None:
    asked['outlook'] = FUTURE
    found = json.loads(carried_out(unbalanced(), 'expand', 'osd.9', '--weight', '0.5', '--format',
                                   'json')[0])
    assert asked['questions'] == [(b'map', {9: 0.5}, False)]
    assert found['weights'] == {'osd.9': 0.5} and found['weights_before'] == {'osd.9': 0.0}
    assert found['warnings'] == found['left_out'] == found['unpinnable'] == []
    assert (found['pgs'], found['shards'], found['bytes']) == (2, 2, 3 << 29)
    assert found['items'] == {'1.0': [[9, 2]], '1.1': [[9, 1]]}


def test_a_drain(asked: Any, capsys: Any) -> None:
    asked['outlook'] = Future({'1.0': FuturePg((0, 1, 2), (3, 1, 2))}, CRUSH)
    text, _ = carried_out(unbalanced(), 'drain', 'osd.0', 'h1', '--format', 'sh')
    assert asked['questions'] == [(b'map', {0: 0.0001, 1: 0.0001}, False)]
    for line in ('ceph osd crush reweight osd.0 0.0001', 'ceph osd crush reweight osd.1 0.0001',
                 'ceph osd pg-upmap-items 1.0 3 0'):
        assert line + ' || failed=$((failed + 1))' in text.splitlines()
    assert '# to go back: ceph osd crush reweight osd.1 1.0' in text.splitlines()
    assert lines_of(capsys)[1:] == [
        'CRUSH weights before: osd.0 1.0, osd.1 1.0',
        'drained OSDs keep CRUSH weight 0.0001: with weight 0, the mons would drop their pins. '
        'When they are empty, "plan" names the command for weight 0']


def test_an_expansion_and_a_drain_at_once(asked: Any) -> None:
    asked['outlook'] = FUTURE
    carried_out(unbalanced(), 'expand', 'osd.9', '--drain', 'osd.0')
    assert asked['questions'] == [(b'map', {9: 1.0, 0: 0.0001}, False)]


def test_pgs_that_a_change_does_not_keep_in_place(asked: Any, capsys: Any) -> None:
    asked['outlook'] = Future({
        '1.0': FuturePg((0, 1, 2), (0, 1, 9)), '1.1': FuturePg((1, 2, 3), (1, 2)),
        '1.2': FuturePg((2, 3), (9, 3, 4))}, FULL_CRUSH)
    carried_out(unbalanced(), 'expand')
    said = lines_of(capsys)
    assert [line for line in said if line.startswith('PG 1.2 moves at once: ')]
    assert [line for line in said if line.startswith('PG 1.1 is remapped: ')]
    assert len(said) == 4


@pytest.mark.usefixtures('few_pins')
def test_a_change_with_more_pins_than_the_mons_should_check(asked: Any) -> None:
    asked['outlook'] = FUTURE
    with pytest.raises(Refused, match=r'^2 pins .*max_pins\): change fewer OSDs at a time \(PIN_'):
        carried_out(unbalanced(), 'expand')
    assert carried_out(unbalanced(), 'expand', '--accept', 'PIN_LIMIT')[0]
    source = unbalanced()
    source.entries = [max_pins('2')]
    assert carried_out(source, 'expand')[0]
    source.entries = [max_pins('1')]
    with pytest.raises(Refused, match=r'^2 pins .*\(limit 1 pins, max_pins\)'):
        carried_out(source, 'expand')


def test_the_share_of_unpinnable_pgs_is_the_one_that_the_module_allows(asked: Any) -> None:
    asked['outlook'] = Future({'1.%x' % seed: FuturePg(
        (seed, seed + 1) if seed < 3 else (seed, seed + 1, seed + 2), (9, seed + 1, seed + 2))
        for seed in range(6)}, FULL_CRUSH)
    source = unbalanced()
    with pytest.raises(Refused, match='^3 PGs of 6 .*max_unpinnable_ratio'):
        carried_out(source, 'expand')
    source.entries = [ConfigEntry('mgr', '', 'mgr/perfguard/max_unpinnable_ratio', '0.5')]
    assert carried_out(source, 'expand')[0]


def test_osds_that_are_left_out_are_named(asked: Any, capsys: Any) -> None:
    asked['outlook'] = FUTURE
    osds = [{**row, 'up_thru': 70} if row['osd'] == 8 else row for row in OSD_DUMP['osds']]
    source = unbalanced(dump={**PINNED, 'osds': osds}, crush=CRUSH.with_weights({8: 0.0}))
    carried_out(source, 'expand')
    assert lines_of(capsys)[0] == 'osd.8 held PGs before ("expand osd.8" adds it)'


def test_changes_that_are_refused(asked: Any) -> None:
    with pytest.raises(BadInput, match=r'^--report \(or --live\) is required$'):
        carried_out(unbalanced(crush=None), 'expand')
    asked['outlook'] = NoFuture('no answer')
    with pytest.raises(BadInput, match='^cannot compute the mapping after the change: no answer$'):
        carried_out(unbalanced(), 'expand')
    asked['outlook'] = FUTURE
    with pytest.raises(Refused, match=r'mon_max_pg_per_osd \(1\), such as osd.9 with 2 PGs'):
        carried_out(unbalanced(), 'expand', '--mon-max-pg-per-osd', '1')
    assert carried_out(unbalanced(), 'expand', '--mon-max-pg-per-osd', '1', '--accept',
                       'PG_LIMIT')[0]


def test_a_reader_that_has_closed_the_pipe(monkeypatch: pytest.MonkeyPatch) -> None:
    """Python flushes again when it exits, which must not fail."""
    class Closed:
        def write(self, text: str) -> None:
            assert text == 'plan\n'

        def flush(self) -> None:
            raise BrokenPipeError

        def fileno(self) -> int:
            return 17

    replaced: List[int] = []

    def dup2(null: int, replaces: int) -> None:
        os.close(null)
        replaced.append(replaces)

    monkeypatch.setattr(command, '_source', lambda args, progress: None)
    monkeypatch.setattr(command, '_pin', lambda *_: 'plan\n')
    # pytest itself needs both once the test ends.
    with monkeypatch.context() as patched:
        patched.setattr('sys.stdout', Closed())
        patched.setattr('os.dup2', dup2)
        status = command.main(['pin'])
    assert status == 1 and replaced == [17]
