# SPDX-License-Identifier: LGPL-2.1-or-later
"""What a probe creates on the cluster: commands, the journal, and what the mons refuse."""
import errno
import json
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, Dict, FrozenSet, List, Optional, Sequence, Tuple

import pytest

from perfguard.cluster.types import ConfigEntry, OsdMap, Pool, Reply
from perfguard.errors import warning
from perfguard.ledger import Owner, Row
from perfguard.probe.resources import (ALLOWED, DELETE_OPTION, LEFT_CHECK, NOT_KEPT, QUIET_FLAGS,
                                       SIZE_ONE_OPTION, UNCERTAIN_TEXT, CannotMake,
                                       ResourceManager, RunResources, SweepPart, Sweeps,
                                       leftover_check, leftovers, own_pool, pg_num_for,
                                       pool_commands, probe_rows, quoted,
                                       unreadable_journal_check, user_command, value_for_mons)
from perfguard.probe.types import BadJob

OWN = RunResources(7, 'perfguard-probe-7', True, user=True, mark=99)
THEIRS = RunResources(7, 'rep', False, user=True)


# ---- texts and commands

@pytest.mark.parametrize('resources, left', [
    (replace(OWN, user=False), []), (OWN, ['pool perfguard-probe-7', 'client.perfguard-probe-7']),
    (replace(THEIRS, allowed={DELETE_OPTION: None}, flags=('noscrub',)),
     ['client.perfguard-probe-7', 'option mon_allow_pool_delete of the mons', 'flag noscrub']),
    (replace(THEIRS, worker_ends=5.0), [
        'objects perfguard-probe-7-* of namespace perfguard-probe in pool rep',
        'client.perfguard-probe-7']),
    (replace(THEIRS, user=False, flags=('noscrub',)), ['flag noscrub'])])
def test_what_is_left(resources: RunResources, left: List[str]) -> None:
    assert leftovers(resources) == left
    check = leftover_check(resources, 'why')[LEFT_CHECK]
    assert check['summary'] == 'probe 7 cannot complete its clean-up'
    assert check['detail'] == ['why', *('not removed yet: ' + text for text in left)]


def test_a_journal_that_is_unreadable() -> None:
    assert unreadable_journal_check('why') == {LEFT_CHECK: warning(
        'the journal of an earlier probe is unreadable', [
            'why', 'not removed yet: the objects, pool and user of that probe',
            'no other probe can begin; "probe cancel 0 --force" gives up the clean-up'])}


@pytest.mark.parametrize('osds, pg_num', [
    (0, 32), (1, 32), (4, 32), (5, 64), (8, 64), (9, 128), (128, 1024), (1000, 1024)])
def test_the_pgs_of_an_own_pool(osds: int, pg_num: int) -> None:
    assert pg_num_for(osds) == pg_num


def test_the_commands_that_create_a_pool() -> None:
    create, size, nodelete, application = pool_commands(OWN, 2, 64)
    assert create == {
        'prefix': 'osd pool create', 'pool': 'perfguard-probe-7', 'pg_num': 64, 'pgp_num': 64,
        'pool_type': 'replicated', 'autoscale_mode': 'off', 'target_size_bytes': 99}
    assert size == {'prefix': 'osd pool set', 'pool': 'perfguard-probe-7', 'var': 'size',
                    'val': '2'}
    assert (nodelete['var'], nodelete['val']) == ('nodelete', 'false')
    assert application['app'] == 'perfguard'
    assert pool_commands(OWN, 1, 64)[1] == {**size, 'val': '1', 'yes_i_really_mean_it': True}


@pytest.mark.parametrize('resources, caps', [
    (OWN, 'allow rw pool=perfguard-probe-7 namespace=perfguard-probe'),
    (replace(OWN, image=True), 'allow rwx pool=perfguard-probe-7'),
    (replace(THEIRS, image=True), 'allow rw pool=rep namespace=perfguard-probe'),
    (replace(THEIRS, pool='a b'), 'allow rw pool="a b" namespace=perfguard-probe')])
def test_the_capabilities_of_a_user(resources: RunResources, caps: str) -> None:
    assert user_command(resources) == {
        'prefix': 'auth get-or-create', 'entity': 'client.perfguard-probe-7', 'format': 'json',
        'caps': ['mon', 'allow r', 'osd', caps]}


@pytest.mark.parametrize('name, text', [
    ('a_Z.9-', 'a_Z.9-'), ('', '""'), ('a b', '"a b"'), ('a"b', '\'a"b\''), ("a'b", '"a\'b"'),
    ('a"\'b', None), ('a\nb', None)])
def test_a_name_in_capabilities(name: str, text: Optional[str]) -> None:
    if text is None:
        with pytest.raises(BadJob):
            quoted(name)
    else:
        assert quoted(name) == text


def test_the_value_of_an_option_of_the_mons() -> None:
    entries = [ConfigEntry('osd', '', 'a', '1'), ConfigEntry('mon', 'host:x', 'a', '2'),
               ConfigEntry('mon', '', 'b', '3'), ConfigEntry('mon', '', 'a', '4')]
    assert (value_for_mons(entries, 'a'), value_for_mons(entries, 'c')) == ('4', None)


def test_the_borrowed_settings_of_a_probe() -> None:
    resources = replace(OWN, allowed={DELETE_OPTION: None, SIZE_ONE_OPTION: 'false'},
                        flags=('noscrub',))
    rows = [
        Row(Owner.PROBE, DELETE_OPTION + ' of the mons', None, 'true', 5.0,
            'ceph config rm mon mon_allow_pool_delete', DELETE_OPTION),
        Row(Owner.PROBE, SIZE_ONE_OPTION + ' of the mons', 'false', 'true', 5.0,
            'ceph config set mon mon_allow_pool_size_one false', SIZE_ONE_OPTION),
        Row(Owner.PROBE, 'flag noscrub', 'unset', 'set', 5.0, 'ceph osd unset noscrub', 'noscrub'),
        Row(Owner.PROBE, 'user client.perfguard-probe-7', None, 'exists', 5.0,
            'ceph auth rm client.perfguard-probe-7'),
        Row(Owner.PROBE, 'pool perfguard-probe-7', None, 'exists', 5.0,
            'ceph osd pool rm perfguard-probe-7 perfguard-probe-7 --yes-i-really-really-mean-it')]
    assert probe_rows(resources, 5.0) == rows
    assert probe_rows(replace(resources, own=False), 5.0) == rows[:4]
    assert probe_rows(replace(resources, user=False), 5.0) == rows[:3]


# ---- the mons

class Mons:
    """The mons, and the journal."""

    def __init__(self, resources: RunResources = OWN, orphan: bool = False) -> None:
        self.sent: List[Dict[str, Any]] = []
        self.replies: Dict[str, Reply] = {'auth get-or-create': Reply(0, '[{"key": "secret"}]')}
        self.entries: Optional[Sequence[ConfigEntry]] = ()
        self.is_unanswered = False
        self.set_by_others: FrozenSet[str] = frozenset()
        self.kept: List[RunResources] = []
        self.keeps = True
        cluster: Any = self
        self.manager = ResourceManager(cluster, self._keep, resources, orphan)

    def _keep(self, resources: RunResources) -> bool:
        self.kept.append(resources)
        return self.keeps

    def run(self, commands: Sequence[Any]) -> List[Reply]:
        self.sent += commands
        return [self.replies.get(command['prefix'], Reply(0)) for command in commands]

    def unanswered(self) -> bool:
        return self.is_unanswered

    def config_entries(self) -> Optional[Sequence[ConfigEntry]]:
        return self.entries

    def flags_set_by_others(self) -> FrozenSet[str]:
        return self.set_by_others

    @property
    def prefixes(self) -> List[str]:
        return [command['prefix'] for command in self.sent]


def view_of(*pools: str, flags: Sequence[str] = ()) -> Any:
    osdmap = OsdMap(1, frozenset(flags), {
        number: Pool(number, name, False, 3, 2, 0, 8, 8, 8) for number, name in enumerate(pools)},
        {}, {}, {}, {})
    return SimpleNamespace(osdmap=osdmap)


def fresh(own: bool = True) -> RunResources:
    return RunResources(7, own_pool(7) if own else 'rep', own)


def test_a_pool_and_its_user_are_created() -> None:
    mons = Mons(fresh())
    assert (mons.manager.key, mons.manager.met_problem) == ('', False)
    mons.manager.make(view_of('rep'), 3, 32)
    assert mons.sent[0]['pool'] == 'perfguard-probe-7'
    assert mons.prefixes == ['osd pool create', 'osd pool set', 'osd pool set',
                             'osd pool application enable', 'auth get-or-create']
    assert mons.manager.key == 'secret'
    journalled, = mons.kept
    assert journalled.user and 1 <= journalled.mark <= 1 << 20
    theirs = Mons(fresh(own=False))
    theirs.manager.make(view_of('rep'), 3, 32)
    assert theirs.prefixes == ['auth get-or-create'] and theirs.kept[0].mark == 0


def test_a_pool_with_one_replica() -> None:
    mons = Mons(fresh())
    mons.entries = [ConfigEntry('mon', '', SIZE_ONE_OPTION, 'false')]
    mons.manager.make(view_of(), 1, 32)
    assert mons.prefixes == ['osd pool create', 'config set', 'osd pool set', 'osd pool set',
                             'osd pool application enable', 'auth get-or-create']
    # Others have set the option back meanwhile, so nothing restores it.
    assert [dict(resources.allowed) for resources in mons.kept] == [
        {}, {SIZE_ONE_OPTION: 'false'}, {}]
    assert mons.sent[1] == {'prefix': 'config set', 'who': 'mon', 'name': SIZE_ONE_OPTION,
                            'value': ALLOWED}


@pytest.mark.parametrize('change, why, sent', [
    ({'keeps': False}, NOT_KEPT, 0),
    ({'replies': {'osd pool create': Reply(-22, '', 'no')}}, 'osd pool create: no', 1),
    ({'entries': None}, 'the mons do not accept mon_allow_pool_size_one', 1),
    ({'replies': {'auth get-or-create': Reply(-13, '', 'no')}}, 'auth get-or-create: no', 6),
    ({'is_unanswered': True}, 'osd pool create: no answer', 0),
    ({'replies': {'auth get-or-create': Reply(None)}}, 'auth get-or-create: no answer', 6)])
def test_what_the_mons_refuse(change: Dict[str, Any], why: str, sent: int) -> None:
    mons = Mons(fresh())
    for name, value in change.items():
        setattr(mons, name, value)
    with pytest.raises(CannotMake) as refused:
        mons.manager.make(view_of(), 1, 32)
    assert (str(refused.value), len(mons.sent)) == (why, sent)


def test_an_option_that_the_journal_does_not_have_is_not_set() -> None:
    mons = Mons(fresh())
    keep = mons._keep
    mons.manager._keep = lambda resources: keep(resources) and len(mons.kept) == 1
    with pytest.raises(CannotMake, match='^the mons do not accept mon_allow_pool_size_one$'):
        mons.manager.make(view_of(), 1, 32)
    assert mons.prefixes == ['osd pool create'] and mons.manager.problem == NOT_KEPT


def test_the_mark_of_a_pool_is_never_that_of_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr('random.randint', lambda least, most: least * 1000 + most)
    mons = Mons(fresh())
    mons.manager.make(view_of(), 3, 32)
    assert mons.manager.resources.mark == 1000 + (1 << 20)


def test_a_pool_of_others_is_not_the_probe_s() -> None:
    mons = Mons(fresh())
    with pytest.raises(CannotMake, match='^pool perfguard-probe-7 already exists, but no probe'):
        mons.manager.make(view_of('rep', 'perfguard-probe-7'), 3, 32)
    assert not mons.manager.resources.own and mons.sent == mons.kept == []


@pytest.mark.parametrize('listed, is_ours', [
    ([('perfguard-probe-7', 0)], False), ([('perfguard-probe-7', -1)], True),
    ([('other', -1)], False), ('nonsense', False)])
def test_a_pool_that_exists_already_is_known_by_its_mark(listed: Any, is_ours: bool) -> None:
    mons = Mons(fresh())
    mons.replies['osd pool create'] = Reply(0, '', "pool 'x' already exists")
    run = mons.run

    def answered(commands: Sequence[Any]) -> List[Reply]:
        mark = mons.manager.resources.mark
        mons.replies['osd pool ls'] = Reply(0, 'x' if listed == 'nonsense' else json.dumps([
            {'pool_name': name, 'options': {'target_size_bytes': mark if number < 0 else number}}
            for name, number in listed]))
        return run(commands)

    setattr(mons, 'run', answered)
    if is_ours:
        mons.manager.make(view_of(), 3, 32)
    else:
        with pytest.raises(CannotMake):
            mons.manager.make(view_of(), 3, 32)
    assert mons.manager.resources.own == is_ours
    assert [resources.own for resources in mons.kept] == [True] + [False] * (not is_ours)


def test_flags_are_set_unless_they_are_set_already() -> None:
    mons = Mons()
    mons.manager.set_flags(view_of(flags=['noscrub', 'other']))
    assert mons.sent == [{'prefix': 'osd set', 'key': 'nodeep-scrub'},
                         {'prefix': 'osd set', 'key': 'nosnaptrim'}]
    assert mons.kept[0].flags == ('nodeep-scrub', 'nosnaptrim')
    for keeps, reply, why in ((False, Reply(0), NOT_KEPT),
                              (True, Reply(-22, '', 'no'), 'osd set: no'),
                              (True, Reply(None), 'osd set: no answer')):
        mons = Mons()
        mons.keeps, mons.replies = keeps, {'osd set': reply}
        with pytest.raises(CannotMake) as refused:
            mons.manager.set_flags(view_of())
        assert str(refused.value) == why


def test_the_first_of_several_failures_is_reported() -> None:
    mons = Mons()
    setattr(mons, 'run', lambda commands: [
        Reply(-22, '', command['key']) for command in commands])
    with pytest.raises(CannotMake, match='^osd set: noscrub$'):
        mons.manager.set_flags(view_of())


def test_a_flag_that_others_unset_is_no_longer_the_run_s() -> None:
    mons = Mons(replace(OWN, flags=('noscrub', 'nodeep-scrub')))
    # It is not shown yet.
    mons.manager.follow_flags(view_of(flags=['nodeep-scrub']))
    assert mons.kept == []
    mons.manager.follow_flags(view_of(flags=['noscrub', 'nodeep-scrub']))
    mons.manager.follow_flags(view_of(flags=['noscrub']))
    assert [resources.flags for resources in mons.kept] == [('noscrub',)]


@pytest.mark.parametrize('before, later, orphan, unset', [
    ((), (), False, ['noscrub', 'nosnaptrim']), ((), ('noscrub',), False, ['nosnaptrim']),
    (('noscrub',), ('noscrub',), False, ['noscrub', 'nosnaptrim'])])
def test_flags_that_others_have_set_stay(before: Tuple[str, ...], later: Tuple[str, ...],
                                         orphan: bool, unset: List[str]) -> None:
    mons = Mons(orphan=orphan)
    mons.set_by_others = frozenset(before)
    mons.manager.set_flags(view_of(flags=['nodeep-scrub']))
    mons.sent.clear()
    mons.set_by_others = frozenset(later)
    assert mons.manager.unset_flags()
    assert mons.sent == [{'prefix': 'osd unset', 'key': flag} for flag in unset]
    assert mons.manager.resources.flags == () and mons.manager.unset_flags()


@pytest.mark.parametrize('orphan, reply, problem', [
    (False, Reply(-22, '', 'x'), 'osd unset: x'), (True, Reply(0), UNCERTAIN_TEXT)])
def test_flags_that_are_not_unset_for_certain_remain_in_the_journal(orphan: bool, reply: Reply,
                                                                    problem: str) -> None:
    mons = Mons(replace(OWN, flags=('noscrub',)), orphan)
    mons.replies['osd unset'] = reply
    assert not mons.manager.unset_flags() and mons.kept == []
    assert mons.manager.problem == problem
    assert not mons.manager.restore_settings() and mons.manager.resources.flags == ('noscrub',)


def test_an_orphan_does_not_know_what_was_set_before_it() -> None:
    mons = Mons(replace(OWN, flags=QUIET_FLAGS), orphan=True)
    mons.set_by_others = frozenset({'noscrub'})
    mons.manager.unset_flags()
    assert [command['key'] for command in mons.sent] == list(QUIET_FLAGS)


@pytest.mark.parametrize('seconds, is_gone', [(12.0, False), (12.5, True)])
def test_what_an_orphan_removes_is_certain_once_the_mons_have_answered_for_some_time(
        seconds: float, is_gone: bool) -> None:
    mons = Mons(orphan=True)
    mons.manager.now = 5.0
    assert not mons.manager.remove_pool()
    assert (mons.manager.problem, mons.manager.met_problem) == (UNCERTAIN_TEXT, True)
    mons.manager.now += seconds
    assert mons.manager.remove_pool() == is_gone
    assert mons.prefixes == ['osd pool rm'] * 2


@pytest.mark.parametrize('reply, is_gone, problem', [
    (Reply(0), True, ''), (Reply(-errno.ENOENT, '', 'none'), True, ''),
    (Reply(-errno.EBUSY, '', 'busy'), False, 'osd pool rm: busy'),
    (Reply(None), False, 'osd pool rm: no answer'), (Reply(-errno.EPERM, '', 'no'), False, '')])
def test_a_pool_is_removed(reply: Reply, is_gone: bool, problem: str) -> None:
    mons = Mons()
    mons.replies['osd pool rm'] = reply
    assert mons.manager.remove_pool() == is_gone and mons.manager.problem == problem
    allowed = reply.retval == -errno.EPERM
    assert mons.prefixes == ['osd pool rm'] + ['config set'] * allowed
    assert mons.manager.pool_delete_allowed == allowed
    if allowed:
        # One attempt, after which the option is as before.
        mons.entries = [ConfigEntry('mon', '', DELETE_OPTION, 'true')]
        assert not mons.manager.remove_pool() and not mons.manager.pool_delete_allowed
        assert mons.sent[-1] == {'prefix': 'config rm', 'who': 'mon', 'name': DELETE_OPTION}
        assert mons.manager.problem == (
            'osd pool rm: no; if the configuration database has no effect: ceph tell mon.* config '
            'set mon_allow_pool_delete true')


@pytest.mark.parametrize('change, problem', [
    ({'entries': None}, 'config dump: no answer'), ({'keeps': False}, NOT_KEPT),
    ({'replies': {'osd pool rm': Reply(-errno.EPERM), 'config set': Reply(-22, '', 'x')}},
     'config set: x')])
def test_an_option_that_cannot_be_set(change: Dict[str, Any], problem: str) -> None:
    mons = Mons()
    mons.replies['osd pool rm'] = Reply(-errno.EPERM)
    for name, value in change.items():
        setattr(mons, name, value)
    assert not mons.manager.remove_pool() and mons.manager.problem == problem


@pytest.mark.parametrize('value, sent', [
    ('true', ['config set']), ('false', []), (None, []), ('maybe', [])])
def test_options_are_restored_unless_others_have_changed_them(value: Optional[str],
                                                              sent: List[str]) -> None:
    mons = Mons(replace(OWN, allowed={DELETE_OPTION: 'false'}))
    mons.entries = [] if value is None else [ConfigEntry('mon', '', DELETE_OPTION, value)]
    assert mons.manager.restore_settings() and mons.prefixes == sent
    assert mons.manager.resources.allowed == {} and mons.manager.restore_settings()


def test_an_orphan_does_not_know_whether_an_option_is_set_later() -> None:
    mons = Mons(replace(OWN, allowed={DELETE_OPTION: None}), orphan=True)
    assert not mons.manager.restore_settings() and mons.kept == []
    assert mons.manager.problem == UNCERTAIN_TEXT


@pytest.mark.parametrize('change, problem', [
    ({'entries': None}, 'config dump: no answer'), ({'is_unanswered': True},
                                                    'config rm: no answer'),
    ({'replies': {'config rm': Reply(-22, '', 'x')}}, 'config rm: x')])
def test_options_that_cannot_be_restored_remain_in_the_journal(change: Dict[str, Any],
                                                               problem: str) -> None:
    mons = Mons(replace(OWN, allowed={DELETE_OPTION: None}))
    mons.entries = [ConfigEntry('mon', '', DELETE_OPTION, 'true')]
    for name, value in change.items():
        setattr(mons, name, value)
    assert not mons.manager.restore_settings() and mons.kept == []
    assert mons.manager.problem == problem


def test_a_user_is_removed() -> None:
    mons = Mons()
    mons.manager.key = 'secret'
    assert mons.manager.remove_user() and mons.manager.key == ''
    assert [resources.user for resources in mons.kept] == [False]
    mons = Mons()
    mons.replies['auth rm'] = Reply(-22, '', 'x')
    assert not mons.manager.remove_user() and mons.kept == []
    assert mons.manager.problem == 'auth rm: x'


@pytest.mark.parametrize('pools, pool_id, renamed', [
    (('rep',), 0, None), (('new',), 0, 'new'), (('new',), 1, None), (('new',), -1, None)])
def test_a_pool_that_is_renamed(pools: Tuple[str, ...], pool_id: int, renamed: Optional[str]
                                ) -> None:
    mons = Mons(replace(THEIRS, pool_id=pool_id))
    mons.manager.key = 'secret'
    mons.manager.follow_rename(view_of(*pools))
    assert [resources.pool for resources in mons.kept] == ([] if renamed is None else [renamed])
    assert mons.prefixes == (['auth rm'] if renamed else [])
    assert mons.manager.key == ('' if renamed else 'secret')


@pytest.mark.parametrize('resources, reply, prefixes', [
    (replace(OWN, user=False), Reply(0), []), (OWN, Reply(0), ['osd pool rm', 'auth rm']),
    (OWN, Reply(-errno.EBUSY), ['osd pool rm', 'osd pool rm', 'auth rm']),
    (THEIRS, Reply(0), ['auth rm'])])
def test_what_is_removed_at_once(resources: RunResources, reply: Reply, prefixes: List[str]
                                 ) -> None:
    mons = Mons(resources)
    mons.replies['osd pool rm'] = reply
    mons.manager.close()
    assert mons.prefixes == prefixes and mons.kept == []


def test_settings_are_restored_at_once() -> None:
    mons = Mons(replace(THEIRS, allowed={DELETE_OPTION: None}, flags=('noscrub',)))
    mons.entries = [ConfigEntry('mon', '', DELETE_OPTION, 'true')]
    mons.manager.close()
    assert mons.prefixes == ['auth rm', 'osd unset', 'config rm']
    assert (mons.manager.resources.flags, mons.manager.resources.allowed) == ((), {})


# ---- sweeps

def test_when_the_next_sweep_begins() -> None:
    sweeps = Sweeps(orphan=False, cursor=10)
    assert sweeps.is_due(0.0) and not sweeps.done
    sweeps.note_result(SweepPart(0, 1, 20, 100), 5.0)
    assert sweeps.cursor == 20 and sweeps.is_due(5.0), 'it has progressed'
    sweeps.note_result(SweepPart(1, 1, 20, 100), 5.0)
    assert sweeps.is_due(5.0), 'it has removed one'
    # Without progress the pause doubles.
    for pause in (5.0, 10.0, 20.0, 40.0, 80.0, 160.0, 300.0, 300.0):
        sweeps.note_result(SweepPart(0, 1, 20, 100), 5.0)
        assert not sweeps.is_due(5.0 + pause - 0.5) and sweeps.is_due(5.0 + pause)
    # The pass ends, but it has removed something.
    sweeps.note_result(SweepPart(0, 0, 100, 100), 5.0)
    assert not sweeps.done and sweeps.cursor == 0
    assert not sweeps.is_due(9.5) and sweeps.is_due(10.0)
    sweeps.note_failure(10.0)
    assert not sweeps.is_due(14.5) and sweeps.is_due(15.0)
    sweeps.note_result(SweepPart(0, 0, 100, 100), 15.0)
    assert sweeps.done


def test_a_first_sweep_that_fails_is_repeated() -> None:
    sweeps = Sweeps(orphan=False, cursor=0)
    sweeps.note_failure(5.0)
    assert not sweeps.is_due(9.5) and sweeps.is_due(10.0)


@pytest.mark.parametrize('part, ends', [
    (SweepPart(0, 0, 100, 100), True), (SweepPart(5, 0, 100, 100), True),
    (SweepPart(0, 1, 100, 100), False), (SweepPart(0, 0, 99, 100), False)])
def test_the_end_of_a_pass(part: SweepPart, ends: bool) -> None:
    assert part.ends_pass == ends


@pytest.mark.parametrize('times, removed, done', [
    ((5.0,), 0, False), ((5.0, 17.0), 0, False), ((5.0, 17.5), 0, True),
    ((5.0, 10.0, 17.5), 0, True), ((5.0, 10.0, 17.5), 1, False)])
def test_an_orphan_has_two_empty_passes_far_apart(times: Tuple[float, ...], removed: int,
                                                  done: bool) -> None:
    sweeps = Sweeps(orphan=True, cursor=0)
    for number, now in enumerate(times):
        sweeps.note_result(SweepPart(removed if number == 1 else 0, 0, 9, 9), now)
    assert sweeps.done == done
