# SPDX-License-Identifier: LGPL-2.1-or-later
"""perfguard-plan as a process, and the dumps it reads."""
import gc
import json
import os
import signal
import subprocess
import sys
from argparse import Namespace
from pathlib import Path
from typing import Any, Dict, List, Tuple

import pytest

from perfguard.cluster.crush import CrushRules
from perfguard.cluster.dumps import WrongDump, osdmap_from_dump
from perfguard.cluster.ports import Future, FuturePg
from perfguard.cluster.types import NO_OSD, ConfigEntry, Osd, PgSets, UpmapEntry
from perfguard.errors import Code, Reason
from perfguard.offline import command
from perfguard.offline.plans import HeldBack, plan_pins
from perfguard.offline.sources import BadInput
from perfguard.rebalance import epochs
from perfguard.rebalance.moves import Movement, OsdLoad
from perfguard.rebalance.releasing import BALANCER_ON
from perfguard.upmap.pins import INCOMPLETE
from perfguard.upmap.semantics import apply_entry, as_line, entry_commands

MODULES = Path(__file__).resolve().parents[3]

CRUSH_DUMP = {
    'types': [{'type_id': 0, 'name': 'osd'}, {'type_id': 1, 'name': 'host'},
              {'type_id': 11, 'name': 'root'}],
    'buckets': [{'id': -1, 'name': 'default', 'type_id': 11, 'items': [
        {'id': -2 - i, 'weight': 65536, 'pos': 0} for i in range(10)]}] + [
            {'id': -2 - i, 'name': 'h%d' % i, 'type_id': 1, 'items': [
                {'id': i, 'weight': 0 if i == 9 else 65536, 'pos': 0}]} for i in range(10)],
    'rules': [{'rule_id': 0, 'rule_name': 'r', 'steps': [
        {'op': 'take', 'item': -1, 'item_name': 'default'},
        {'op': 'chooseleaf_firstn', 'num': 0, 'type': 'host'}, {'op': 'emit'}]}],
}


def pool(pool_id, size, type_, **extra):
    return {'pool': pool_id, 'pool_name': 'p%d' % pool_id, 'type': type_, 'size': size,
            'min_size': 2, 'crush_rule': 0, 'pg_num': 256, 'pg_num_target': 256,
            'pg_num_pending': 256, 'pg_autoscale_mode': 'on', 'erasure_code_profile': 'prof',
            **extra}


OSD_DUMP: Dict[str, Any] = {
    'epoch': 77, 'fsid': 'f', 'crush_version': 5, 'flags': 'norebalance,sortbitwise',
    'flags_set': ['norebalance', 'sortbitwise'],
    'pools': [pool(1, 3, 1), pool(2, 4, 3), pool(3, 3, 1, pg_num_pending=255)],
    'osds': [{'osd': i, 'up': 1, 'in': 1, 'weight': 1, 'state': ['exists', 'up']}
             for i in range(10)],
    'pg_upmap': [{'pgid': '1.4', 'osds': [0, 1, 3]}],
    'pg_upmap_items': [{'pgid': '1.3', 'mappings': [{'from': 2, 'to': 5}]},
                       {'pgid': '2.1', 'mappings': [{'from': 3, 'to': 7}]}],
    'erasure_code_profiles': {'prof': {'k': '2', 'm': '2'}},
}
PGS = [
    ('1.0', [0, 1, 2], [0, 1, 2]),
    ('1.1', [0, 1, 2], [0, 1, 3]),
    ('1.2', [0, 1, 2], [0, 1, 9]),              # CRUSH weight 0
    ('1.3', [0, 1, 5], [0, 1, 2]),              # only the existing pair is in the way
    ('1.4', [0, 1, 3], [0, 1, 4]),              # an existing vector
    ('1.a', [0, 1, 2], [0, 1]),                 # undersized
    ('2.0', [0, 1, 2, 3], [1, 0, 2, 3]),        # a swap of shards
    ('2.1', [0, 1, 2, 7], [1, 0, 2, 3]),        # a swap, and items to take away
    ('2.2', [0, 1, 2, 3], [0, 1, 2, 4]),
    ('3.ff', [0, 1, 2], [0, 1, 3]),             # merging
    ('9.0', [0, 1, 2], [0, 1, 3]),              # a pool that is gone
]
OSD_DUMP['pg_temp'] = [{'pgid': pgid, 'osds': acting} for pgid, up, acting in PGS if up != acting]
ROWS = [{'pgid': pgid, 'state': 'active', 'up': up, 'up_primary': up[0], 'acting': acting,
         'acting_primary': acting[0]} for pgid, up, acting in PGS]


OSD_DF = {'nodes': [{'id': osd, 'kb': 1 << 30, 'kb_used': 1 << 20, 'pgs': 0 if osd == 9 else 96}
                    for osd in range(10)]}
Files = Dict[str, str]


def run(*argv, stdin=None):
    """A process without any of Ceph's modules, as on an administrator's machine."""
    return subprocess.run(
        [sys.executable, '-S', '-m', 'perfguard.offline', *argv], input=stdin, text=True,
        env={'PYTHONPATH': str(MODULES), 'PYTHONDONTWRITEBYTECODE': '1'}, capture_output=True,
        check=False)


def pin(files, *more, **kwargs):
    return run('pin', '--osd-dump', files['osd'], '--pg-dump', files['pg'],
               '--crush-dump', files['crush'], *more, **kwargs)


def test_json(files):
    result = pin(files, '--format', 'json')
    assert (result.returncode, result.stderr) == (0, '')
    plan = json.loads(result.stdout)
    reasons = {row['pgid']: row['reason'] for row in plan.pop('unpinnable')}
    assert plan == {
        'items': {'1.1': [[2, 3]], '2.2': [[3, 4]]},
        'pg_upmap': {'1.4': [0, 1, 4], '2.0': [1, 0, 2, 3], '2.1': [1, 0, 2, 3]},
        'remove': ['1.3'],
    }
    assert list(reasons) == ['1.2', '1.a', '3.ff', '9.0']
    assert 'osd.9 has CRUSH weight 0' in reasons['1.2'] and 'merge' in reasons['3.ff']


def test_commands(files):
    result = pin(files)
    assert result.returncode == 0
    assert result.stdout.splitlines() == [
        'ceph osd pg-upmap-items 1.1 2 3',
        'ceph osd rm-pg-upmap-items 1.3',
        'ceph osd pg-upmap 1.4 0 1 4',
        'ceph osd pg-upmap 2.0 1 0 2 3',
        'ceph osd rm-pg-upmap-items 2.1',
        'ceph osd pg-upmap 2.1 1 0 2 3',
        'ceph osd pg-upmap-items 2.2 3 4',
    ]
    assert len(result.stderr.splitlines()) == 4 and 'PG 1.2 stays remapped' in result.stderr


def test_a_script_runs_the_same_commands_and_counts_failures(files, tmp_path):
    script = pin(files, '--format', 'sh').stdout
    ceph = tmp_path / 'ceph'
    ceph.write_text('#!/bin/sh\ntest "$1" = fsid && { echo f; exit; }\n'
                    'echo "ceph $*"\ntest "$3" != "$REFUSED"\n')
    ceph.chmod(0o755)

    def shell(refused):
        return subprocess.run(['sh', '-s'], input=script, text=True, capture_output=True,
                              env={'PATH': '%s:/bin:/usr/bin' % tmp_path, 'REFUSED': refused},
                              check=False)

    whole = shell('')
    assert whole.returncode == 0 and whole.stdout == pin(files).stdout
    assert whole.stderr == '7 of 7 commands, 0 failed\n'
    # The PGs that follow are pinned all the same.
    refused = shell('1.4')
    assert refused.returncode != 0 and refused.stdout == whole.stdout
    assert refused.stderr == '7 of 7 commands, 1 failed\n'


@pytest.mark.parametrize('shell', ['sh', 'bash'])
def test_an_interrupt_ends_a_script_although_ceph_returns_an_ordinary_error(files, tmp_path, shell):
    """As its command does for Ctrl-C, after which bash continues with the next command."""
    ceph = tmp_path / 'ceph'
    ceph.write_text('#!/bin/sh\ntest "$1" = fsid && { echo f; exit; }\n'
                    'echo "ceph $*"\ntest "$3" = 1.4 || exit 0\n'
                    'trap "" INT\nkill -INT 0\nexit 4\n')
    ceph.chmod(0o755)
    done = subprocess.run(
        [shell, '-s'], input=pin(files, '--format', 'sh').stdout, text=True, capture_output=True,
        env={'PATH': '%s:/bin:/usr/bin' % tmp_path}, check=False, start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL))
    assert done.stdout.splitlines() == pin(files).stdout.splitlines()[:3]
    assert (done.returncode, done.stderr) == (130, 'interrupted; run this script again\n')


def test_a_report_stands_for_the_osd_dump_and_the_crush_dump(files, tmp_path):
    report = tmp_path / 'report'
    report.write_text(json.dumps({'osdmap': OSD_DUMP, 'crushmap': CRUSH_DUMP, 'version': '16'}))
    found = run('pin', '--report', str(report), '--pg-dump', files['pg'])
    assert (found.returncode, found.stdout) == (0, pin(files).stdout)


@pytest.mark.parametrize('end', ['\n', '\r\n', '\r\n\r\n'])
def test_a_message_before_a_dump_is_skipped(files, tmp_path, end):
    """The ceph command prints it to standard error, which a terminal does not keep apart
    ("kubectl exec -it")."""
    expected = pin(files).stdout
    report = tmp_path / 'report'
    report.write_text('report 1188805303' + end + json.dumps(
        {'osdmap': OSD_DUMP, 'crushmap': CRUSH_DUMP}) + end)
    Path(files['pg']).write_text('dumped pgs_brief' + end + json.dumps(ROWS))
    found = run('pin', '--report', str(report), '--pg-dump', files['pg'])
    assert (found.returncode, found.stdout) == (0, expected)
    Path(files['pg']).write_text('report 1188805303 ' + json.dumps(ROWS))
    assert 'not JSON' in pin(files).stderr


@pytest.mark.parametrize('words', [
    ['--report', 'osd', '--osd-dump', 'osd'], ['--report', 'osd', '--crush-dump', 'crush'],
    ['--report', 'osd'], []])
def test_a_report_that_is_none_or_one_map_too_many(files, words):
    result = run('pin', '--pg-dump', files['pg'], *(files.get(word, word) for word in words))
    assert (result.returncode, result.stdout) == (2, '') and len(result.stderr.splitlines()) == 1


@pytest.mark.parametrize('wrapped', [ROWS, {'pg_stats': ROWS}, {'pg_ready': True, 'pg_stats': ROWS},
                                     {'pg_map': {'pg_stats': ROWS, 'osd_stats': [{'osd': 1}]}}])
def test_every_release_s_pg_dump(files, wrapped):
    expected = pin(files, '--format', 'json').stdout
    Path(files['pg']).write_text(json.dumps(wrapped))
    assert pin(files, '--format', 'json').stdout == expected


def test_standard_input_and_no_crush_dump(files):
    result = run('pin', '--osd-dump', files['osd'], '--pg-dump', '-', '--format', 'json',
                 stdin=json.dumps(ROWS))
    assert json.loads(result.stdout)['items']['1.2'] == [[2, 9]]
    twice = run('pin', '--osd-dump', '-', '--pg-dump', '-', stdin='{}')
    assert twice.returncode == 2 and len(twice.stderr.splitlines()) == 1


@pytest.mark.parametrize('name', ['osd', 'pg', 'crush'])
@pytest.mark.parametrize('content, words', [
    (None, 'No such file'), ('{"epoch": ', 'not JSON'), ('', 'not JSON'), ('[1, 2]', 'not the'),
    ('{}', 'not the'), ('[' * 100000, 'not JSON'), ('\0\udcff', 'not JSON'),
    ('"text"', 'not the'), ('7', 'not the'), ('{"pg_stats": {}, "pools": 3}', 'not the'),
])
def test_bad_input_is_one_line_and_status_2(files, name, content, words):
    if content is None:
        os.unlink(files[name])
    else:
        Path(files[name]).write_bytes(content.encode(errors='surrogateescape'))
    result = pin(files)
    assert (result.returncode, result.stdout) == (2, '')
    assert len(result.stderr.splitlines()) == 1 and words in result.stderr
    assert files[name] in result.stderr


@pytest.mark.parametrize('name, other', [('osd', 'pg'), ('pg', 'osd'), ('crush', 'osd'),
                                         ('osd', 'crush'), ('pg', 'crush')])
def test_dumps_mixed_up(files, name, other):
    result = pin({**files, name: files[other]})
    assert result.returncode == 2 and len(result.stderr.splitlines()) == 1


def test_reader_that_stops_early(files):
    command = '"$0" -S -m perfguard.offline pin --osd-dump "$1" --pg-dump "$2" 2>&1 >&3 | cat >&2'
    result = subprocess.run(
        ['bash', '-c', '{ %s; } 3>&1 | true' % command, sys.executable, files['osd'],
         files['pg']], env={'PYTHONPATH': str(MODULES), 'PATH': os.environ['PATH']},
        capture_output=True, text=True, check=False)
    assert 'Traceback' not in result.stderr and 'Exception' not in result.stderr


@pytest.mark.parametrize('acting', [None, [0, 1, 4]])
def test_a_pg_that_has_moved_between_the_dumps_is_not_pinned(files, acting):
    """Its data would move back. `acting`: in the OSDMap; None: it has arrived."""
    temp = [{**row, 'osds': row['osds'][::-1]} for row in OSD_DUMP['pg_temp']
            if row['pgid'] != '1.1']
    if acting:
        temp.append({'pgid': '1.1', 'osds': acting})
    Path(files['osd']).write_text(json.dumps({**OSD_DUMP, 'pg_temp': temp}))
    result = pin(files, '--format', 'json')
    found = json.loads(result.stdout)
    assert result.returncode == 0 and list(found['items']) == ['2.2']
    assert 'OSDMap' in {row['pgid']: row['reason'] for row in found['unpinnable']}['1.1']
    assert len(result.stderr.splitlines()) == 1
    assert 'the acting sets of 1 PG differ' in result.stderr


def test_osdmap_from_dump():
    dump = dict(OSD_DUMP)
    dump['osds'] = [{'osd': 0, 'up': 1, 'in': 1, 'weight': 0.5, 'state': ['exists', 'up']},
                    {'osd': 1, 'up': 0, 'in': 0, 'weight': 0,
                     'state': ['autoout', 'destroyed', 'exists']}]
    dump['pg_temp'] = [{'pgid': '2.0', 'osds': [1, NO_OSD, 2, 3]}]
    dump['pools'] = [dict(dump['pools'][0], options={'pg_num_min': 4}), *dump['pools'][1:]]
    osdmap = osdmap_from_dump(dump)
    assert (osdmap.pools[1].pg_num_min, osdmap.pools[1].pg_num_max) == (4, 0)
    assert osdmap.osds == {0: Osd(0, True, 0.5), 1: Osd(1, False, 0.0, destroyed=True)}
    assert osdmap.epoch == 77 and osdmap.flags == {'norebalance', 'sortbitwise'}
    assert (osdmap.pools[1].erasure, osdmap.pools[1].data_shards) == (False, 1)
    assert (osdmap.pools[2].erasure, osdmap.pools[2].data_shards) == (True, 2)
    assert osdmap.pools[3].pg_num_pending == 255 and osdmap.pools[1].autoscale_mode == 'on'
    assert osdmap.entry('1.3') == UpmapEntry(((2, 5),))
    assert osdmap.entry('1.4') == UpmapEntry((), (0, 1, 3)) and not osdmap.entry('1.0')
    assert osdmap.pg_temp == {'2.0': (1, NO_OSD, 2, 3)}
    del dump['flags_set']
    assert osdmap_from_dump(dump).flags == osdmap.flags
    with pytest.raises(WrongDump):
        osdmap_from_dump({'epoch': 1})


def test_entries_are_replaced_in_safe_order():
    """A new vector with old items on it, or the reverse, might be illegal and cost both."""
    items, vector = UpmapEntry(((1, 2),)), UpmapEntry(vector=(1, 3, 4))

    def lines(present: UpmapEntry, wanted: UpmapEntry) -> List[str]:
        return [as_line(command) for command in entry_commands('1.0', present, wanted)]

    assert lines(items, vector) == [
        'ceph osd rm-pg-upmap-items 1.0', 'ceph osd pg-upmap 1.0 1 3 4']
    assert lines(vector, items) == [
        'ceph osd rm-pg-upmap 1.0', 'ceph osd pg-upmap-items 1.0 1 2']
    assert lines(items, items) == []


def test_clean_pgs_and_pgs_pinned_already_are_not_in_the_plan():
    osdmap = osdmap_from_dump(OSD_DUMP)
    plan = plan_pins(osdmap, [PgSets('1.0', (0, 1, 2), (0, 1, 2)),
                              PgSets('1.1', (0, 1, 2), (1, 0, 2))], None)
    assert not plan.entries and not plan.unpinnable


@pytest.mark.parametrize('up, acting, left', [
    ((0, 1, 2), (0, 1, 3), False), ((0, 4, 2), (0, 3), True), ((0, 4, 1), (0, 1), True)])
def test_what_is_misplaced_in_degraded_pgs_is_pinned_and_the_rest_recovers(up, acting, left):
    """norebalance does not defer their backfill."""
    osdmap = osdmap_from_dump(OSD_DUMP)
    plan = plan_pins(osdmap, [PgSets('1.0', up, acting, 'active+recovering+degraded+remapped')],
                     None)
    assert [why.code.value for why in plan.unpinnable.values()] == ['DEGRADED'] * left
    assert bool(plan.entries) != {1, 0}.issuperset(acting)
    for entry in plan.entries.values():
        assert set(acting) <= set(apply_entry(up, entry, ()))


def test_a_pg_that_has_no_target_is_named():
    here = (0, 1, 2, 3)
    plan = plan_pins(osdmap_from_dump(OSD_DUMP), [
        PgSets('2.0', (0, 1, NO_OSD, 3), here), PgSets('2.2', (0, 5, NO_OSD, 3), here)], None)
    assert plan.unpinnable == {'2.0': INCOMPLETE}
    assert plan.entries == {'2.2': UpmapEntry(vector=here)}


def test_package_imports_without_ceph():
    """And inside ceph-mgr an error in the module shell must not be hidden."""
    code = ('import sys, types\n'
            'import perfguard\n'
            'assert "mgr_module" not in sys.modules and not hasattr(perfguard, "Module")\n'
            'del sys.modules["perfguard"]\n'
            'sys.modules["ceph_module"] = types.ModuleType("ceph_module")\n'
            'class Finder:\n'
            '    def find_spec(self, name, path=None, target=None):\n'
            '        if name == "perfguard.module": raise RuntimeError("seen")\n'
            'sys.meta_path.insert(0, Finder())\n'
            'try:\n    import perfguard\n'
            'except RuntimeError as e:\n    print(e)\n')
    result = subprocess.run([sys.executable, '-S', '-c', code], capture_output=True, text=True,
                            env={'PYTHONPATH': str(MODULES)}, check=False)
    assert result.stdout.strip() == 'seen', result.stderr


# ---- expand and drain

#: Where CRUSH places PGs once osd.9 has a weight.
FUTURE = {'1.0': FuturePg((0, 1, 2), (0, 1, 9)), '1.1': FuturePg((0, 1, 3), (9, 1, 3))}


@pytest.fixture
def change(files, tmp_path, monkeypatch, capsys):
    """Runs a change in this process, with an answer in place of those of Ceph's tools."""
    (tmp_path / 'report').write_text(json.dumps({'osdmap': OSD_DUMP, 'crushmap': CRUSH_DUMP}))
    (tmp_path / 'df').write_text(json.dumps(OSD_DF))
    encoded = bytes(28) + OSD_DUMP['epoch'].to_bytes(4, 'little')
    (tmp_path / 'map').write_bytes(encoded)
    asked = []

    def outlook(osdmap, source, weights, crush_map, stopping, whole):
        asked.append((source(osdmap.epoch), weights))
        return Future(FUTURE, CrushRules.from_dump(CRUSH_DUMP))

    monkeypatch.setattr(command.crush_preview, 'outlook', outlook)

    def carry_out(*argv):
        status = command.main([*argv, '--report', str(tmp_path / 'report'), '--osd-df',
                               str(tmp_path / 'df'), '--osdmap', str(tmp_path / 'map')])
        return (status, *capsys.readouterr())

    setattr(carry_out, 'asked', asked)
    setattr(carry_out, 'encoded', encoded)
    return carry_out


def test_an_expansion_shows_what_it_moves(change):
    status, out, err = change('expand', '--format', 'json')
    found = json.loads(out)
    assert status == 0 and change.asked == [(change.encoded, {9: 1.0})]
    assert found['weights'] == {'osd.9': 1.0} and found['weights_before'] == {'osd.9': 0.0}
    assert (found['pgs'], found['shards']) == (2, 2)
    assert [row['pgs_in'] for row in found['osds'] if row['osd'] == 9] == [2]
    assert found['items'] == {'1.0': [[9, 2]], '1.1': [[9, 0]]} and not found['unpinnable']
    assert '2 PGs to pin; their release moves 2 shards' in err and 'osd.9 (2)' in err


def test_a_change_names_pgs_that_are_not_pinned(change, monkeypatch):
    monkeypatch.setitem(FUTURE, '1.0', FuturePg((0, 1, 2), (0, 1)))
    monkeypatch.setitem(FUTURE, '1.1', FuturePg((0, 1, 3), (9, 1)))
    monkeypatch.setitem(FUTURE, '1.2', FuturePg((0, 1), (9, 1, 3)))
    _, out, err = change('expand', '--format', 'json')
    assert [row['pgid'] for row in json.loads(out)['unpinnable']] == ['1.0', '1.2']
    assert json.loads(out)['pg_upmap'] == {'1.1': [0, 1, 3]}
    assert 'PG 1.0 is remapped: CRUSH finds too few OSDs' in err
    assert 'PG 1.2 moves at once: the acting set has 2 OSDs' in err


@pytest.mark.parametrize('kb, warned', [(1 << 30, False), (1 << 28, True)])
def test_an_expansion_warns_where_weights_are_not_sizes(change, tmp_path, kb, warned):
    (tmp_path / 'df').write_text(json.dumps({
        'nodes': [{**row, 'kb': kb} for row in OSD_DF['nodes']]}))
    _, out, err = change('expand', '--format', 'json')
    assert ('--weight 1' in err) == warned and len(json.loads(out)['warnings']) == warned
    assert not json.loads(change('drain', 'h3', '--format', 'json')[1])['warnings']


@pytest.mark.parametrize('sets, warned', [
    ({}, 0), ({'-1': [{'bucket_id': -1, 'weight_set': [[1.0] * 10]}]}, 1), ({'-1': []}, 0)])
def test_a_change_warns_of_weight_sets(change, tmp_path, sets, warned):
    """Of the crush-compat balancer: the preview does not show that they may not follow."""
    (tmp_path / 'report').write_text(json.dumps({
        'osdmap': OSD_DUMP, 'crushmap': {**CRUSH_DUMP, 'choose_args': sets}}))
    for argv in (('expand',), ('drain', 'h3')):
        status, out, err = change(*argv, '--format', 'json')
        assert status == 0 and err.count('osd_crush_update_weight_set') == warned
        assert len(json.loads(out)['warnings']) == warned


@pytest.mark.parametrize('argv, weight', [
    (('expand', '--weight', '2.5'), 'osd.9 2.5'), (('expand', 'h9'), 'osd.9 1.0'),
    (('drain', 'h3', 'osd.4'), 'osd.3 0.0001')])
def test_weights_come_before_their_pins(change, argv, weight):
    # A pin is kept only where its OSD is in the set that CRUSH chooses.
    status, out, error = change(*argv)
    lines = out.splitlines()
    assert status == 0 and 'ceph osd crush reweight ' + weight in lines
    pins = [at for at, line in enumerate(lines) if 'pg-upmap' in line]
    assert pins and all('reweight' not in line for line in lines[pins[0]:])
    assert ('keep CRUSH weight 0.0001' in error) == (argv[0] == 'drain')


@pytest.mark.parametrize('fails, flags', [
    ('none', 'sortbitwise'), ('1.1', 'sortbitwise'), ('norebalance', 'sortbitwise'),
    ('none', 'sortbitwise,norebalance')])
def test_movement_begins_only_if_every_command_was_carried_out(
        change, tmp_path, monkeypatch, fails, flags):
    """`flags`: when the script runs."""
    monkeypatch.setitem(OSD_DUMP, 'flags', 'sortbitwise')
    monkeypatch.setitem(OSD_DUMP, 'flags_set', ['sortbitwise'])
    (tmp_path / 'report').write_text(json.dumps({'osdmap': OSD_DUMP, 'crushmap': CRUSH_DUMP}))
    status, out, _ = change('expand', '--format', 'sh')
    ceph = tmp_path / 'ceph'
    ceph.write_text('#!/bin/sh\necho "$*" >> %s/log\ntest "$1" = fsid && echo f\n'
                    'test "$2" = dump && printf "flags %s\\ncrush_version 5\\n"\n'
                    'case "$*" in *%s*) exit 1 ;; esac\n' % (tmp_path, flags, fails))
    ceph.chmod(0o755)
    done = subprocess.run(['sh', '-c', out], env={'PATH': '%s:%s' % (tmp_path, os.environ['PATH'])},
                          stderr=subprocess.PIPE, text=True, check=False)
    sent = (tmp_path / 'log').read_text().splitlines()[2:]
    theirs, refused = 'norebalance' in flags, fails == 'norebalance'
    assert status == 0 and done.returncode == (0 if fails == 'none' else 1)
    assert ('osd set norebalance' in sent) != theirs
    assert ('osd unset norebalance' in sent) == (fails == 'none' and not theirs)
    assert any('reweight' in line for line in sent) != refused
    assert ('norebalance' in done.stderr) == (theirs or fails == '1.1')


@pytest.mark.parametrize('fails', ['none', '1.1', 'reweight', 'set norebalance', 'osd dump'])
@pytest.mark.parametrize('planned, now', [(False, False), (False, True), (True, False)])
def test_piped_commands_stop_at_the_first_failure_and_nothing_moves(
        change, tmp_path, monkeypatch, fails, planned, now):
    """`planned`, `now`: others had set norebalance when the plan was made, or when it runs."""
    flags = ['sortbitwise', *['norebalance'] * planned]
    monkeypatch.setitem(OSD_DUMP, 'flags_set', flags)
    monkeypatch.setitem(OSD_DUMP, 'flags', ','.join(flags))
    (tmp_path / 'report').write_text(json.dumps({'osdmap': OSD_DUMP, 'crushmap': CRUSH_DUMP}))
    lines = change('expand')[1]
    ceph = tmp_path / 'ceph'
    ceph.write_text('#!/bin/sh\necho "$*" >> %s/log\ncase "$*" in *"%s"*) exit 1 ;; esac\n'
                    'test "$1" = fsid && echo f\n'
                    'test "$2" = dump && printf "flags sortbitwise%s\\ncrush_version 5\\n"\n'
                    'exit 0\n' % (tmp_path, fails, ',norebalance' * now))
    ceph.chmod(0o755)
    done = subprocess.run(['sh'], input=lines, text=True, stderr=subprocess.PIPE, check=False,
                          env={'PATH': '%s:%s' % (tmp_path, os.environ['PATH'])})
    sent = (tmp_path / 'log').read_text().splitlines()
    assert ('osd set norebalance' in sent) == (not now and fails != 'osd dump')
    if fails == 'none' or fails == 'set norebalance' and now:
        assert done.returncode == 0 and ('osd unset norebalance' == sent[-1]) == (not now)
        assert ('norebalance' in done.stderr) == now and any('pg-upmap' in line for line in sent)
    else:
        assert done.returncode and fails in sent[-1] and 'osd unset norebalance' not in sent
        assert ('norebalance stays set' in done.stderr) == (fails in ('1.1', 'reweight'))


def refused(tmp_path, text: str, fsid: str, osd_dump: str) -> Tuple[List[str], str]:
    """The commands that a script has sent to such a cluster when it ends early, and its output."""
    (tmp_path / 'ceph').write_text(
        '#!/bin/sh\necho "$*" >> %s/log\ntest "$1" = fsid && echo %s\ntest "$2" = dump && '
        'printf "%s\\n"\nexit 0\n' % (tmp_path, fsid, osd_dump))
    (tmp_path / 'ceph').chmod(0o755)
    done = subprocess.run(['sh'], env={'PATH': '%s:%s' % (tmp_path, os.environ['PATH'])},
                          input=text, stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 1
    return (tmp_path / 'log').read_text().splitlines(), done.stderr


@pytest.mark.parametrize('output', ['sh', 'commands'])
def test_a_script_runs_on_no_other_cluster(change, tmp_path, output):
    _, out, _ = change('drain', 'osd.3', '--format', output)
    sent, said = refused(tmp_path, out, 'g', 'crush_version 5')
    assert sent == ['fsid'] and 'this script is for cluster f' in said


@pytest.mark.parametrize('output', ['sh', 'commands'])
def test_pins_for_another_crush_map_or_of_a_run_that_has_ended_are_not_set(change, tmp_path,
                                                                           output):
    """They would move PGs back, all at once."""
    _, out, _ = change('drain', 'osd.3', '--format', output)
    sent, said = refused(tmp_path, out, 'f', 'flags sortbitwise\\ncrush_version 55')
    assert sent == ['fsid', 'osd dump'] and 'plan again' in said


def test_a_change_says_how_to_go_back(change):
    _, script, err = change('drain', 'osd.3', 'osd.4', '--format', 'sh')
    assert '# to go back: ceph osd crush reweight osd.3 1.0\n' in script
    assert 'CRUSH weights before: osd.3 1.0, osd.4 1.0\n' in err


def test_an_osdmap_of_another_epoch_is_refused(change, tmp_path):
    (tmp_path / 'map').write_bytes(bytes(28) + (78).to_bytes(4, 'little'))
    status, out, err = change('drain', 'osd.3')
    assert (status, out) == (2, '') and 'epoch 78' in err and 'getmap 77' in err
    (tmp_path / 'map').write_bytes(b'{}')
    assert change('drain', 'osd.3')[0] == 2


def test_weights_stay_where_the_mons_would_refuse_the_pins(change, tmp_path):
    report = {'osdmap': {**OSD_DUMP, 'require_min_compat_client': 'jewel'},
              'crushmap': CRUSH_DUMP}
    (tmp_path / 'report').write_text(json.dumps(report))
    status, out, err = change('drain', 'osd.3')
    assert (status, out) == (2, '') and 'set-require-min-compat-client luminous' in err


@pytest.mark.parametrize('argv, words', [
    (('drain', 'nowhere'), "no OSD, host or rack 'nowhere'"),
    (('expand', 'osd.3'), 'osd.3 already has CRUSH weight 1'),
    (('expand', '--weight', 'x'), 'weight')])
def test_a_change_that_is_refused_is_one_line(change, argv, words):
    status, out, err = change(*argv)
    assert (status, out) == (2, '') and words in err and err.count('\n') == 1


def test_an_osd_that_held_pgs_before_is_added_by_its_name(change, tmp_path, monkeypatch):
    """As after the replacement of a disk under the same ID."""
    monkeypatch.setitem(OSD_DUMP['osds'][9], 'up_thru', 70)
    (tmp_path / 'report').write_text(json.dumps({'osdmap': OSD_DUMP, 'crushmap': CRUSH_DUMP}))
    status, _, err = change('expand')
    assert status == 2 and 'osd.9 held PGs before ("expand osd.9" adds it)' in err
    for words in (('osd.9',), ('osd.9,',)):
        status, out, _ = change('expand', *words)
        assert status == 0 and 'ceph osd crush reweight osd.9 1.0' in out.splitlines()
    assert change('drain', 'osd.3,osd.4')[0] == 0


# ---- What the module refuses, and warns of

def reported(tmp_path, **parts: Any) -> None:
    (tmp_path / 'report').write_text(json.dumps(
        {'osdmap': OSD_DUMP, 'crushmap': CRUSH_DUMP, **parts}))


def is_refused(change: Any, words: str, *argv: str) -> None:
    """Unless the risk is accepted by the words that the refusal ends with."""
    status, out, err = change(*argv)
    assert (status, out) == (2, '') and words in err and err.count('\n') == 1
    assert change(*argv, *err.rpartition('to accept: add ')[2].split())[0] == 0


@pytest.mark.parametrize('health, words', [
    ({'SLOW_OPS': {'summary': {'message': '3 slow ops'}}}, '3 slow ops'),
    ({'PG_DAMAGED': {'summary': {'message': '1 pg inconsistent'}}}, '1 pg inconsistent'),
    ({'MON_DISK_LOW': {'summary': {'message': 'mon a'}, 'muted': True}}, ''),
    ({'OSD_FLAGS': {'summary': {'message': 'noscrub'}}}, '')])
def test_no_change_begins_on_a_cluster_that_is_not_healthy(change, tmp_path, health, words):
    reported(tmp_path, health={'checks': health})
    for argv in (('expand',), ('drain', 'osd.3')):
        if words:
            is_refused(change, words, *argv)
        else:
            assert change(*argv)[0] == 0


@pytest.mark.parametrize('state, words', [
    ('active+undersized+degraded', '7 PGs are degraded'), ('peering', '7 PGs are peering'),
    ('active+clean+laggy', '7 PGs are laggy'), ('active+clean+remapped', '')])
def test_no_change_begins_while_pgs_are_in_trouble(change, tmp_path, state, words):
    number = sum(row['pg_num'] for row in OSD_DUMP['pools'])
    reported(tmp_path, num_pg_by_state=[{'state': 'active+clean', 'num': number - 7},
                                        {'state': state, 'num': 7}])
    if words:
        is_refused(change, words, 'drain', 'osd.3')
    else:
        assert change('drain', 'osd.3')[0] == 0


def test_a_change_after_which_an_osd_is_too_full_is_refused(change, tmp_path):
    """Although the others together have enough space."""
    reported(tmp_path, pool_stats=[{'poolid': 1, 'stat_sum': {'num_bytes': 120 << 40}}])
    is_refused(change, 'such as osd.9 with 93 %', 'drain', 'osd.3')


def test_a_change_after_which_an_osd_has_too_many_pgs_is_refused(change):
    is_refused(change, 'mon_max_pg_per_osd (1), such as osd.9 with 2 PGs', 'expand',
               '--mon-max-pg-per-osd', '1')


def test_a_change_is_refused_if_many_pgs_would_move_at_once(change, monkeypatch):
    for seed in range(3):
        monkeypatch.setitem(FUTURE, '1.%d' % seed, FuturePg((0, 1), (9, 1, 2)))
    is_refused(change, '3 PGs of 3 that the change remaps cannot be pinned', 'expand')


def test_a_drain_is_refused_if_crush_would_find_too_few_osds(change, monkeypatch):
    monkeypatch.setitem(FUTURE, '1.0', FuturePg((0, 1, 2), (0, 1), present=(0, 1, 2)))
    is_refused(change, 'too few OSDs for 1 PG, such as PG 1.0', 'drain', 'osd.2')
    status, out, err = change('expand', '--format', 'json')
    assert status == 0 and 'too few OSDs for 1 PG' in err
    assert 'too few OSDs for 1 PG' in json.loads(out)['warnings'][0]


def test_more_pins_than_the_mons_should_check_are_refused(change, files, monkeypatch, capsys):
    monkeypatch.setattr(epochs, 'UPMAPS_SECONDS', 0.0)
    monkeypatch.setattr(epochs, 'PINS_SECONDS', 0.0)
    is_refused(change, '(limit 0 pins, max_pins): change fewer OSDs at a time', 'drain', 'osd.3')
    is_refused(change, '(limit 0 pins, max_pins): change fewer OSDs at a time', 'expand')
    dumps = ['--osd-dump', files['osd'], '--pg-dump', files['pg'], '--crush-dump', files['crush']]
    assert command.main(['pin', *dumps]) == 2
    out, err = capsys.readouterr()
    assert out == '' and '6 pins and 3 other upmaps' in err and '--accept PIN_LIMIT' in err
    assert command.main(['pin', *dumps, '--accept', 'PIN_LIMIT']) == 0


def test_upmaps_whose_raw_sets_cannot_be_found_are_left_alone(files, capsys):
    osds = {**OSD_DUMP, 'pg_upmap': [{'pgid': '1.0', 'osds': [0, 1, 2]}]}
    Path(files['osd']).write_text(json.dumps(osds))
    command.main(['plan', '--osd-dump', files['osd'], '--pg-dump', files['pg'], '--crush-dump',
                  files['crush']])
    assert 'or lack an OSD that is down, are left alone: --osdmap is not given' in \
        capsys.readouterr().err


def test_osds_that_an_expansion_leaves_out_are_named(change, tmp_path, monkeypatch):
    crush = json.loads(json.dumps(CRUSH_DUMP))
    crush['buckets'][9]['items'][0]['weight'] = 0
    monkeypatch.setitem(OSD_DUMP['osds'][8], 'up_thru', 70)
    reported(tmp_path, crushmap=crush)
    _, out, err = change('expand', '--format', 'json')
    assert 'osd.8 held PGs before ("expand osd.8" adds it)' in err
    assert json.loads(out)['left_out'] == [{'osd': 8, 'reason': 'held PGs before'}]


# ---- release and plan

@pytest.fixture
def pinned(tmp_path):
    """A cluster whose osd.9 is new; every PG that CRUSH places on it is pinned on osd.0 to 8."""
    crush = json.loads(json.dumps(CRUSH_DUMP))
    for bucket in crush['buckets']:
        for item in bucket['items']:
            item['weight'] = 65536
    sets = {'1.%x' % seed: [seed % 9, (seed + 1) % 9, (seed + 2) % 9] for seed in range(90)}
    items = {'1.%x' % seed: {'from': 9, 'to': sets['1.%x' % seed][2]} for seed in range(0, 90, 4)}
    osd_dump = {**OSD_DUMP, 'pools': [pool(1, 3, 1, pg_num=90, pg_num_pending=90)],
                'flags_set': [], 'flags': '', 'pg_temp': [], 'pg_upmap': [], 'pg_upmap_items': [
                    {'pgid': pgid, 'mappings': [pair]} for pgid, pair in items.items()]}
    rows = [{'pgid': pgid, 'state': 'active+clean', 'up': osds, 'acting': osds}
            for pgid, osds in sets.items()]
    report = {'osdmap': osd_dump, 'crushmap': crush,
              'pool_stats': [{'poolid': 1, 'stat_sum': {'num_bytes': 90 << 30}}]}
    for name, dump in (('report', report), ('pgs', {'pg_stats': rows})):
        (tmp_path / name).write_text(json.dumps(dump))
    return sorted(items), lambda verb, *more: run(
        verb, '--report', str(tmp_path / 'report'), '--pg-dump', str(tmp_path / 'pgs'), *more)


def test_a_release_is_what_may_move_at_a_time(pinned):
    pgids, planned = pinned
    found = planned('release', '--osd-max-backfills', '3', '--host-max-backfills', '3')
    assert found.returncode == 0 and '23 PGs are pinned, 0 in flight' in found.stderr
    *lines, last = found.stdout.splitlines()
    assert len(lines) == 3
    assert all(line.startswith('ceph osd rm-pg-upmap-items 1.') for line in lines)
    # The next release, in a loop, must see that these PGs move.
    assert last == 'sleep 10'
    fewer = planned('release', '--max-backfills', '1', '--format', 'json')
    as_json = json.loads(fewer.stdout)
    assert as_json['pgs'] == 1 and as_json['remove'] == as_json['batches'][0]
    assert as_json['pinned'] == 23 and as_json['bytes'] == (90 << 30) // 128
    assert planned('release', '--max-backfills', '0').returncode == 2


def test_a_report_has_the_drives_that_osds_share(pinned, tmp_path):
    _, planned = pinned
    assert 'the drives and DB devices of osd.0, osd.' in planned('plan').stderr
    report = json.loads((tmp_path / 'report').read_text())
    report['osd_metadata'] = [{'id': osd, 'hostname': 'h', 'bluestore_bdev_devices': 'nvme%d' % (
        osd if osd == 9 else 0)} for osd in range(10)]
    (tmp_path / 'report').write_text(json.dumps(report))
    result = planned('plan', '--format', 'json', '--osd-max-backfills', '8',
                     '--device-max-backfills', '3')
    assert 'drives' not in result.stderr
    batches = json.loads(result.stdout)['batches']
    assert max(map(len, batches)) == 3 and sum(map(len, batches)) == 23


def test_no_release_while_a_pg_is_in_trouble_but_a_plan(pinned, tmp_path):
    _, planned = pinned
    dump = json.loads((tmp_path / 'pgs').read_text())
    dump['pg_stats'][-1]['state'] = 'peering'
    (tmp_path / 'pgs').write_text(json.dumps(dump))
    refused, plan = planned('release'), planned('plan')
    assert (refused.returncode, refused.stdout) == (2, '') and '1 PG is peering' in refused.stderr
    assert plan.returncode == 0 and plan.stdout and '1 PG is peering' in plan.stderr


def test_a_plan_releases_all_batch_by_batch(pinned):
    pgids, planned = pinned
    found = json.loads(planned('plan', '--format', 'json').stdout)
    assert sorted(found['remove']) == pgids and sorted(sum(found['batches'], [])) == pgids
    assert (found['pgs'], found['left_out']) == (23, [])
    # Seeds 26 to 63 of 90 are not split yet.
    assert found['bytes'] == (14 + 2 * 9) * (90 << 30) // 128
    assert found['estimated_seconds'] > 0 and len(found['batches']) == 12
    text = planned('plan').stdout
    lines = text.splitlines()
    assert [line for line in lines if line.startswith('ceph ')] == [
        'ceph osd rm-pg-upmap-items ' + pgid for batch in found['batches'] for pgid in batch]
    # They may be piped to a shell: each batch waits.
    assert sum('ceph pg stat' in line for line in lines) == 12 and lines[0] == 'planned_for=f'
    assert subprocess.run(['sh', '-n'], input=text, text=True, check=False).returncode == 0


SETTLED = '90 pgs: 90 active+clean; remapped'


def play(tmp_path, script: str, answers: List[str]) -> Tuple[List[str], str]:
    """Which commands a script sends between each "pg stat" and the next, a letter for each
    ("r": releases), and what it says. `answers`: those of "pg stat"; or osd.9, its states, flags or
    health checks."""
    (tmp_path / 'answers').write_text('\n'.join(answers + [SETTLED] * 20) + '\n')
    (tmp_path / 'sleep').write_text('#!/bin/sh\n')
    (tmp_path / 'ceph').write_text("""#!/bin/sh
cd %s
test "$1" = fsid && { echo f; exit; }
test "$2" = dump && { cat osds; exit; }
test "$1" = health || echo "$*" >> log
test "$1" = health && { cat checks; exit; }
test "$1" = pg || exit 0
answer=$(head -1 answers)
sed -i 1d answers
echo HEALTH_OK > checks
case "$answer" in
    flags*|osd*) echo "$answer" > osds; answer='%s' ;;
    *WRN*) echo "$answer" > checks; answer='%s' ;;
    exists*) echo "osd.9 up   in  weight 1 $answer" > osds; answer='%s' ;;
    *) { echo "osd.8 up   in  weight 1 exists,nearfull,up"; echo "osd.9 exists,up"; } > osds ;;
esac
echo "$answer"
test -n "$answer"
""" % (tmp_path, SETTLED, SETTLED, SETTLED))
    for name in ('ceph', 'sleep'):
        (tmp_path / name).chmod(0o755)
    done = subprocess.run(['sh', '-c', script], text=True, capture_output=True, check=True,
                          env={'PATH': '%s:%s' % (tmp_path, os.environ['PATH'])})
    sent = (tmp_path / 'log').read_text().splitlines()
    return ' '.join('P' if line == 'pg stat' else 'r' for line in sent).split('P'), done.stderr


def test_a_script_of_batches_waits_until_the_cluster_has_settled(pinned, tmp_path):
    """Each answer of "pg stat" is one of a cluster after a batch."""
    script = pinned[1]('plan', '--format', 'sh', '--osd-max-backfills', '10').stdout
    batches, said = play(tmp_path, script, [
        SETTLED, '90 pgs: 1 active+remapped+backfilling, 89 active+clean; 1',
        '90 pgs: 1 active+clean+laggy, 89 active+clean; 1', '', '90 pgs: 90 unknown; 1',
        '90 pgs: 2 active+clean+snaptrim_wait, 88 active+clean; 1'])
    # A batch, four answers that are not good enough, one that is, and the next batch.
    assert batches[0] == '' and 'r' in batches[1] and 'r' in batches[6]
    assert not any('r' in batch for batch in batches[2:6])
    assert said.count('waiting for PGs') == 4 and '23 of 23 commands, 0 failed' in said


@pytest.mark.parametrize('output', ['sh', 'commands'])
def test_a_batch_waits_while_an_osd_that_receives_its_pgs_is_nearly_full(pinned, tmp_path, output):
    script = pinned[1]('plan', '--format', output, '--osd-max-backfills', '10').stdout
    batches, said = play(tmp_path, script, [
        SETTLED, 'exists,nearfull,up', 'exists,backfillfull,up', 'exists,full,up'])
    assert 'r' in batches[1] and not any('r' in batch for batch in batches[2:5])
    assert 'r' in batches[5] and ''.join(batches).count('r') == 23
    assert 'osd.9 up   in  weight 1 exists,nearfull,up' in said and 'osd.8' not in said


@pytest.mark.parametrize('output', ['sh', 'commands'])
def test_a_batch_waits_while_an_osd_that_receives_its_pgs_is_down(pinned, tmp_path, output):
    """Without this, its PGs would lack a copy at once, for as long as it is down and in. It had no
    PG before, so no PG shows it."""
    script = pinned[1]('plan', '--format', output, '--osd-max-backfills', '10').stdout
    down = 'osd.9 down in  weight 1 up_from 5 exists'
    batches, said = play(tmp_path, script, [SETTLED, down, down, 'osd.9 down out weight 0 exists'])
    assert 'r' in batches[1] and not any('r' in batch for batch in batches[2:4])
    assert 'r' in batches[4] and ''.join(batches).count('r') == 23
    assert said.count(down) == said.count('waiting for PGs') == 2


@pytest.mark.parametrize('answer', [
    'flags sortbitwise,nobackfill', 'flags norebalance,sortbitwise', '[WRN] SLOW_OPS: 2 slow ops',
    '[WRN] MON_DOWN: 1/3 mons down'])
def test_a_batch_waits_while_the_module_would_release_nothing(pinned, tmp_path, answer):
    script = pinned[1]('plan', '--format', 'sh', '--osd-max-backfills', '10').stdout
    batches, said = play(tmp_path, script, [SETTLED, answer])
    assert batches[0] == '' and 'r' in batches[1] and 'r' not in batches[2] and 'r' in batches[3]
    assert answer in said


@pytest.mark.parametrize('answer', [
    'flags sortbitwise,noscrub', '(MUTED) [WRN] SLOW_OPS: 2 slow ops', '[WRN] OSD_DOWN: 1 osds',
    '90 pgs: 64 active+clean+remapped, 26 active+clean+remapped+scrubbing+deep; 1'])
def test_no_batch_waits_for_what_may_last_for_ever(pinned, tmp_path, answer):
    script = pinned[1]('plan', '--format', 'sh', '--osd-max-backfills', '10').stdout
    batches, said = play(tmp_path, script, [SETTLED, answer])
    assert all('r' in batch for batch in batches[1:]) and 'waiting' not in said


@pytest.mark.parametrize('output', ['sh', 'commands'])
def test_a_plan_of_a_single_batch_waits_as_well(pinned, tmp_path, output):
    """It may be carried out long after it was made."""
    report = json.loads((tmp_path / 'report').read_text())
    del report['osdmap']['pg_upmap_items'][1:]
    (tmp_path / 'report').write_text(json.dumps(report))
    batches, said = play(tmp_path, pinned[1]('plan', '--format', output).stdout, [
        '90 pgs: 1 active+undersized, 89 active+clean; 1', 'exists,nearfull,up'])
    assert [batch.split() for batch in batches] == [[], [], [], ['r']]
    assert said.count('waiting for PGs') == 2
    release = pinned[1]('release', '--format', output).stdout
    assert 'pg stat' not in release and release.count('sleep 10') == 1
    assert release.index('rm-pg-upmap-items') < release.index('sleep 10')


@pytest.mark.parametrize('osd, hint', [
    (9, '"ceph osd crush reweight osd.9 0" keeps the balancer from placing PGs on it'), (2, '')])
def test_a_plan_names_drained_osds_that_are_empty(pinned, tmp_path, osd, hint):
    """With weight 0, the PGs of one that is not empty would move at once."""
    _, planned = pinned
    report = json.loads((tmp_path / 'report').read_text())
    report['osdmap']['pg_upmap_items'] = []
    report['crushmap']['buckets'][1 + osd]['items'][0]['weight'] = 6
    (tmp_path / 'report').write_text(json.dumps(report))
    found = planned('plan')
    assert found.returncode == 0 and hint in found.stderr
    assert ('reweight' in found.stderr) == bool(hint)


def test_a_release_without_a_pg_waits_for_nothing(pinned, tmp_path):
    report = json.loads((tmp_path / 'report').read_text())
    report['osdmap']['pg_upmap_items'] = []
    (tmp_path / 'report').write_text(json.dumps(report))
    assert pinned[1]('release').stdout == ''


def test_nothing_is_released_without_a_crush_map(files):
    found = run('release', '--osd-dump', files['osd'], '--pg-dump', files['pg'])
    assert (found.returncode, found.stdout) == (2, '') and '--crush-dump' in found.stderr


# ---- In this process: texts, limits and arguments

def load(osd: int, pgs_in: int) -> OsdLoad:
    return OsdLoad(osd, pgs_in, 0, 0, 0)


def movement(*loads: OsdLoad, pgs: int = 5) -> Movement:
    return Movement(pgs, 1, 7, 2, loads, 1.24, 'assumed')


@pytest.mark.parametrize('text, number', [('1', 1), ('12', 12), ('0', None), ('-1', None),
                                          ('x', None)])
def test_a_positive_number(text: str, number: Any) -> None:
    if number is None:
        with pytest.raises(ValueError):
            command._positive(text)
    else:
        assert command._positive(text) == number


@pytest.mark.parametrize('argument, entries, limit', [
    (None, None, 250), (7, None, 7), (None, [], 250),
    (None, [('global', '', 100)], 100), (None, [('global', '', 100), ('mgr', '', 300)], 300),
    (None, [('mgr', 'host:x', 300)], 250), (9, [('mgr', '', 300)], 9),
    (None, [('osd', '', 300)], 250)])
def test_the_limit_of_pgs_per_osd(argument: Any, entries: Any, limit: int) -> None:
    stored = None if entries is None else [
        ConfigEntry('mgr', '', 'other', '1'),
        *(ConfigEntry(section, mask, command.PG_LIMIT, str(value))
          for section, mask, value in entries)]
    assert command._pg_limit(Namespace(mon_max_pg_per_osd=argument), stored) == limit


def test_what_moves() -> None:
    assert command._moved(movement()) == (
        '1 shard, and the primary of 2 PGs; most PGs move to no OSD')
    loads = [load(osd, osd) for osd in range(11)]
    assert command._moved(movement(*loads)) == (
        '1 shard, and the primary of 2 PGs; most PGs move to osd.10 (10), osd.9 (9), osd.8 (8), '
        'osd.7 (7), osd.6 (6), osd.5 (5), osd.4 (4), osd.3 (3)')
    assert command._moved(movement(load(3, 0), load(4, 1))).endswith(' to osd.4 (1)')


@pytest.mark.parametrize('pool_bytes, shown', [({}, (None, None)), ({1: 0}, (7, 1.2))])
def test_bytes_are_only_known_with_the_sizes_of_pools(pool_bytes: Any, shown: Any) -> None:
    maps: Any = Namespace(pool_bytes=pool_bytes)
    document = command._movement_json(movement(), maps)
    assert (document['bytes'], document['estimated_seconds']) == shown
    assert document['pgs'] == 5


@pytest.mark.parametrize('number, text', [
    (1, 'osd.0 0.5'), (8, ', '.join('osd.%d 0.5' % osd for osd in range(8))),
    (9, ', '.join('osd.%d 0.5' % osd for osd in range(8)) + ' and 1 more (--format json lists '
     'all)')])
def test_some_weights(number: int, text: str) -> None:
    weights = {osd: 0.5 for osd in range(number)}
    assert command._some_weights(weights) == text
    assert command._reweights({3: 0.1})[0] == 'ceph osd crush reweight osd.3 0.1'
    assert command._by_name({3: 0.1}) == {'osd.3': 0.1}


@pytest.mark.parametrize('number', [20, 21])
def test_some_reasons(number: int, capsys: Any) -> None:
    command._explain('stays', {'1.%x' % seed: 'why %d' % seed for seed in range(number)})
    lines = capsys.readouterr().err.splitlines()
    assert lines[:20] == ['perfguard-plan: PG 1.%x stays: why %d' % (seed, seed)
                          for seed in range(20)]
    assert lines[20:] == ['perfguard-plan: 1 PG more; --format json lists all'] * (number == 21)


@pytest.mark.parametrize('name', ['release', 'plan'])
def test_reasons_to_wait(name: str, capsys: Any) -> None:
    command._refuse_or_warn(name, [])
    assert capsys.readouterr().err == ''
    reasons = [Reason(Code.LAGGY, 'a'), Reason(Code.LAGGY, 'b')]
    if name == 'release':
        with pytest.raises(BadInput, match='^no PG is released now: a; b$'):
            command._refuse_or_warn(name, reasons)
    else:
        command._refuse_or_warn(name, reasons)
        assert capsys.readouterr().err == (
            'perfguard-plan: wait before you release PGs: a; b\n')


@pytest.mark.parametrize('moves, pgs, lines', [
    (0, 0, ['1 PG is pinned, 1 in flight; this batch moves %s']),
    (1, 0, ['1 PG is pinned, 1 in flight; this batch moves %s',
            'no more PGs may move until those in flight have arrived']),
    (1, 5, ['1 PG is pinned, 1 in flight; this batch moves %s'])])
def test_the_summary_of_a_release(moves: int, pgs: int, lines: List[str], capsys: Any) -> None:
    move: Any = None
    record: Any = None
    plan = HeldBack({'1.0': record}, (move,) * moves, {'1.1': 'why'}, (move,))
    moving = movement(pgs=pgs)
    command._summarize_release('release', plan, moving)
    moved = command._moved(moving)
    assert capsys.readouterr().err.splitlines() == [
        *('perfguard-plan: ' + line.replace('%s', moved) for line in lines),
        'perfguard-plan: PG 1.1 is left unchanged: why']
    command._summarize_release('plan', plan, moving)
    assert '; their release moves ' in capsys.readouterr().err


def test_acting_sets_that_differ(capsys: Any) -> None:
    osdmap: Any = Namespace(pg_temp={'1.0': (1, 2), '1.1': (1, 2)})
    rows = [PgSets(pgid, (9, 8), acting) for pgid, acting in (
        ('1.0', (2, 1)), ('1.1', (1, 3)), ('1.2', (1, 2)))]
    assert command._warn_if_dumps_differ(rows[:1], osdmap) == []
    assert capsys.readouterr().err == ''
    assert command._warn_if_dumps_differ(rows, osdmap) == ['1.1', '1.2']
    assert 'the acting sets of 2 PGs differ' in capsys.readouterr().err


def test_drained_osds_that_are_empty_are_named(capsys: Any) -> None:
    crush: Any = Namespace(weights=lambda: {
        **{osd: 0.0001 for osd in range(12)}, 20: 1.0, 21: 0.0})
    osdmap: Any = Namespace(osds={osd: Osd(osd, osd != 1, 1.0) for osd in range(22)})
    command._name_emptied_osds(crush, osdmap, [PgSets('1.0', (0, 20), (2, 20))])
    lines = capsys.readouterr().err.splitlines()
    assert [line.split()[1] for line in lines] == ['osd.%d' % osd for osd in range(3, 11)]
    assert lines[0] == (
        'perfguard-plan: osd.3 is empty and has a small CRUSH weight: "ceph osd crush reweight '
        'osd.3 0" keeps the balancer from placing PGs on it')


@pytest.mark.parametrize('given, text', [
    ({'live': True, 'report': 'f'}, '--live replaces --report'),
    ({'live': True, 'pg_dump': 'f'}, '--live replaces --pg-dump'),
    ({'pg_dump': None}, '--pg-dump (or --live) is required'),
    ({'osd_df': None, 'osdmap': 'f'}, '--osd-df (or --live) is required'),
    ({'osd_df': 'f', 'osdmap': None}, '--osdmap (or --live) is required')])
def test_arguments_that_contradict_each_other(given: Dict[str, Any], text: str) -> None:
    progress: Any = None
    with pytest.raises(BadInput) as refused:
        command._source(Namespace(**{'live': False, **given}), progress)
    assert str(refused.value) == text


@pytest.mark.parametrize('error, status, text', [
    (BadInput('bad'), 2, 'perfguard-plan: bad\n'),
    (KeyError('x' * 300), 2, "perfguard-plan: a dump has an unexpected value (KeyError('%s)\n" % (
        'x' * 190)), (KeyboardInterrupt(), 130, '')])
def test_how_the_command_ends(monkeypatch: pytest.MonkeyPatch, capsys: Any, error: BaseException,
                              status: int, text: str) -> None:
    def fail(*_: Any) -> Any:
        assert not gc.isenabled()
        raise error

    monkeypatch.setattr(command, '_source', lambda args, progress: None)
    monkeypatch.setattr(command, '_pin', fail)
    assert command.main(['pin']) == status and gc.isenabled()
    assert capsys.readouterr() == ('', text)
    monkeypatch.setattr(command, '_pin', lambda *_: 'plan\n')
    assert command.main(['pin']) == 0 and capsys.readouterr() == ('plan\n', '')


#: Arguments of all commands, of those that read a PG dump, of release and plan, and of expand and
#: drain, with their defaults.
OF_ALL: Dict[str, Any] = {
    'report': None, 'live': False, 'conf': None, 'name': None, 'id': None, 'keyring': None,
    'cluster': 'ceph', 'format': 'commands'}
OF_DUMPS: Dict[str, Any] = {'osd_dump': None, 'pg_dump': None, 'crush_dump': None}
OF_RELEASES: Dict[str, Any] = {
    'max_backfills': None, 'osd_max_backfills': None, 'host_max_backfills': None,
    'device_max_backfills': None, 'domain_max_backfills': None, 'osdmap': None,
    'mon_max_pg_per_osd': None}
OF_CHANGES: Dict[str, Any] = {
    'mon_max_pg_per_osd': None, 'accept': [], 'osd_df': None, 'osdmap': None}


@pytest.mark.parametrize('words, arguments', [
    (['pin'], {**OF_DUMPS, 'accept': []}), (['release'], {**OF_DUMPS, **OF_RELEASES}),
    (['plan'], {**OF_DUMPS, **OF_RELEASES}),
    (['expand'], {**OF_CHANGES, 'what': [], 'weight': None, 'drain': []}),
    (['drain', 'h1'], {**OF_CHANGES, 'what': ['h1']}),
    (['pin', '--accept', 'A', '--accept', 'B', '--osd-dump', 'o', '--pg-dump', 'p',
      '--crush-dump', 'c', '--report', 'r', '--format', 'sh'],
     {'accept': ['A', 'B'], 'osd_dump': 'o', 'pg_dump': 'p', 'crush_dump': 'c', 'report': 'r',
      'format': 'sh'}),
    (['plan', '--live', '-c', 'c', '-n', 'n', '--id', 'i', '-k', 'k', '--cluster', 'x',
      '--max-backfills', '1', '--osd-max-backfills', '2', '--host-max-backfills', '3',
      '--device-max-backfills', '6', '--domain-max-backfills', '4', '--osdmap', 'm',
      '--mon-max-pg-per-osd', '5'],
     {**OF_DUMPS, 'live': True, 'conf': 'c', 'name': 'n', 'id': 'i', 'keyring': 'k',
      'cluster': 'x', 'max_backfills': 1, 'osd_max_backfills': 2, 'host_max_backfills': 3,
      'device_max_backfills': 6, 'domain_max_backfills': 4, 'osdmap': 'm',
      'mon_max_pg_per_osd': 5}),
    (['expand', 'h1', 'h2', '--weight', '1.5', '--osd-df', 'd', '--osdmap', 'm', '--drain', 'h3',
      'h4'], {**OF_CHANGES, 'what': ['h1', 'h2'], 'weight': '1.5', 'osd_df': 'd', 'osdmap': 'm',
              'drain': ['h3', 'h4']})])
def test_the_arguments(words: List[str], arguments: Dict[str, Any]) -> None:
    given = vars(command._parser().parse_args(words))
    assert callable(given.pop('carry_out'))
    assert given == {'command': words[0], **OF_ALL, **arguments}


@pytest.mark.parametrize('words', [
    [], ['drain'], ['pin', '--format', 'x'], ['plan', '--max-backfills', '0'],
    ['release', '--mon-max-pg-per-osd', '0'], ['pin', '--max-backfills', '1']])
def test_arguments_that_are_wrong(words: List[str], capsys: Any) -> None:
    with pytest.raises(SystemExit) as ended:
        command._parser().parse_args(words)
    assert ended.value.code == 2


class Cluster:
    """A source without a module."""

    def __init__(self, campaign: str = '', balances: bool = False) -> None:
        self._campaign, self._balances = campaign, balances

    def module_campaign(self) -> str:
        return self._campaign

    def balances(self) -> bool:
        return self._balances

    def maps(self) -> Any:
        return Namespace(osdmap='osdmap')


@pytest.mark.parametrize('campaign, why, text', [
    ('a campaign', '', 'a campaign'), ('', 'too old', 'too old'), ('', '', None)])
def test_a_cluster_that_cannot_be_changed(monkeypatch: pytest.MonkeyPatch, campaign: str,
                                          why: str, text: Any) -> None:
    monkeypatch.setattr(command, 'unfit', lambda osdmap: why if osdmap == 'osdmap' else None)
    source: Any = Cluster(campaign)
    if text is None:
        assert command._maps(source).osdmap == 'osdmap'
    else:
        with pytest.raises(BadInput, match='^%s$' % text):
            command._maps(source)


@pytest.mark.parametrize('balances', [False, True])
def test_a_balancer_that_is_on_is_named(capsys: Any, balances: bool) -> None:
    source: Any = Cluster(balances=balances)
    command._warn_of_balancer(source)
    assert capsys.readouterr().err == (
        'perfguard-plan: %s\n' % BALANCER_ON.text if balances else '')
