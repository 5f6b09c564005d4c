# SPDX-License-Identifier: LGPL-2.1-or-later
"""The commands of a plan as lines and as a script."""
from typing import List, Sequence

import pytest

from perfguard.offline.plans import LAG, CommandBatch, Script, listing, script

TRAP = 'trap \'echo "interrupted; run this script again" >&2; exit 130\' INT TERM'
FSID = '6c21'
ONLY_ON = [
    'planned_for=6c21',
    'test "$(%s fsid)" = "$planned_for" || {\n    echo "this script is for cluster $planned_for: '
    'set CEPH_CONF" >&2\n    exit 1\n}']


def lines(number: int) -> List[str]:
    return ['ceph osd rm-pg-upmap-items 1.%x' % pg for pg in range(number)]


def progress(plan: Script) -> List[str]:
    return [line for line in script(plan) if line.startswith('echo')]


@pytest.mark.parametrize('batches, shown', [
    ([1], ['1 of 1']), ([19], ['19 of 19']), ([20], ['20 of 20']),
    ([41], ['20 of 41', '40 of 41', '41 of 41']), ([0], []),
    ([15, 10], ['15 of 25', '20 of 25', '25 of 25'])])
def test_progress_is_shown_every_20_commands_and_after_each_batch(
        batches: Sequence[int], shown: Sequence[str]) -> None:
    plan = Script([CommandBatch(lines(number)) for number in batches])
    assert progress(plan) == [
        'echo "%s commands, $failed failed" >&2' % text for text in shown]


def test_a_script_of_commands() -> None:
    plan = Script([CommandBatch(lines(2))], back=['ceph osd crush reweight osd.1 1.0'])
    assert list(script(plan, FSID, "/etc/ceph/o'ne.conf")) == [
        '#!/bin/sh', 'CEPH_CONF=\'/etc/ceph/o\'"\'"\'ne.conf\'; export CEPH_CONF',
        ONLY_ON[0], ONLY_ON[1] % 'ceph', TRAP, '# to go back: ceph osd crush reweight osd.1 1.0',
        'failed=0',
        'ceph osd rm-pg-upmap-items 1.0 || failed=$((failed + 1))',
        'ceph osd rm-pg-upmap-items 1.1 || failed=$((failed + 1))',
        'echo "2 of 2 commands, $failed failed" >&2', 'test "$failed" -eq 0']


def test_plain_commands_need_no_shell() -> None:
    plan = Script([CommandBatch(lines(2))])
    assert not plan.for_shell
    assert list(listing(plan, FSID)) == lines(2)
    assert list(listing(plan, FSID, 'my conf')) == [
        "ceph -c 'my conf' osd rm-pg-upmap-items 1.0",
        "ceph -c 'my conf' osd rm-pg-upmap-items 1.1"]


def test_what_waits_is_for_one_cluster_only() -> None:
    plan = Script([CommandBatch(lines(1), frozenset({9, 10})), CommandBatch(lines(1), frozenset())])
    assert plan.for_shell
    found = list(listing(plan, FSID, 'c'))
    assert found[:2] == [ONLY_ON[0], ONLY_ON[1] % 'ceph -c c']
    assert [found[3], found[5]] == 2 * ['ceph -c c osd rm-pg-upmap-items 1.0']
    assert len(found) == 6
    for wait, receivers in ((found[2], '9|10'), (found[4], 'none')):
        assert wait.startswith(LAG + '; until pgs=$(ceph -c c pg stat) && osds=$(ceph -c c osd ')
        assert '^osd[.](%s) (down in |.*full)|' % receivers in wait
    assert list(listing(plan))[0].startswith(LAG)


def test_nothing_moves_until_all_commands_were_executed() -> None:
    plan = Script([CommandBatch(lines(1))], hold=17)
    found = list(listing(plan))
    assert plan.for_shell
    assert found[0] == 'set -e' and found[1].startswith('osds=$(ceph osd dump) || exit 1\n')
    assert 'grep -x "crush_version 17"' in found[1]
    assert found[2].startswith('trap ') and found[3:5] == ['failed=0', lines(1)[0]]
    assert found[5].startswith('if test "$failed" -ne 0; then') and 'VERSION' not in found[5]
    assert found[6:] == ['test "$failed" -eq 0']
    whole = list(script(plan))
    assert whole[2:4] == ['failed=0', found[1]] and whole[-2:] == found[5:]


@pytest.mark.parametrize('batches, end', [(1, [LAG]), (0, [])])
def test_another_plan_sees_what_a_repeated_one_moves(batches: int, end: Sequence[str]) -> None:
    """PG statistics lag behind the OSDMap."""
    plan = Script([CommandBatch(lines(1))] * batches, repeated=True)
    assert list(listing(plan)) == [*lines(batches), *end]
