# SPDX-License-Identifier: LGPL-2.1-or-later
"""The manual: its tables are those of the code, its recipes have tests, and Sphinx builds it."""
import ast
import re
import shutil
import subprocess
import sys
import types
from pathlib import Path
from typing import List

import pytest

from perfguard.cluster.crush_preview import TOOL_SECONDS
from perfguard.cluster.map_encoding import SPARE_IDS
from perfguard.errors import Code
from perfguard.metrics.catalogue import CHECK_CODES
from perfguard.mitigation.types import StepStage
from perfguard.probe.compare import FASTER, SAME, SLOWER, UNKNOWN
from perfguard.probe.expectations import ABOVE, AS_EXPECTED, BELOW, NO_EXPECTATION
from perfguard.probe.jobs import IMPLIED, PROFILES, SUPPORTED
from perfguard.probe.records import CLEANING, ENDED_STATES, PREPARING, RUNNING
from perfguard.rebalance.adopting import MOST_PAIRS
from perfguard.rebalance.joining import MAX_BURST_PINS
from perfguard.rebalance.pg_num import MOST_AHEAD
from perfguard.rebalance.replacing import ReplacePhase
from perfguard.rebalance.settings import SETTABLE
from perfguard.rebalance.throttle import LEAST_PGS
from perfguard.tables import STEP_TEXTS
from perfguard.watch.causes import WORK
from perfguard.watch.laggy import MECHANISM_TEXTS
from perfguard.watch.slow_parts import DEVICE, HOST, RACK
from perfguard.watch.stop_conditions import WAIVABLE
from perfguard.web.routes import ROUTES

from qa.lib import recipes, reference

CHECKOUT = Path(__file__).resolve().parents[5]
MANUAL = reference.manual()
#: With the rules behind it.
TEXTS = MANUAL + (CHECKOUT / 'doc' / 'dev' / 'perfguard-rules.rst').read_text()


def section(title: str) -> str:
    return MANUAL.split('\n%s\n---' % title)[1].split('\n---')[0]


@pytest.mark.parametrize('text, limit', [
    ('One epoch takes at most {:,} pins', MAX_BURST_PINS),
    ('such a list, of at most {:,} mappings', MOST_PAIRS),
    ('OSD IDs up to {:,} above the highest one', SPARE_IDS),
    ('is at most {:,} ahead of ``pgp_num``', MOST_AHEAD),
    ('and at least {:,}: {:,} on 12 OSDs', LEAST_PGS),
    ('for at most {:,} s) compute this', int(TOOL_SECONDS))])
def test_limits(text: str, limit: int) -> None:
    assert text.format(limit, limit) in ' '.join(TEXTS.split())


#: Ceph's documentation has the directive "prompt" from an extension.
CONF = """
from docutils.nodes import literal_block
from docutils.parsers.rst import Directive


class Prompt(Directive):
    has_content, optional_arguments = True, 2

    def run(self):
        text = '\\n'.join(self.content)
        return [literal_block(text, text)]


def setup(app):
    app.add_directive('prompt', Prompt)
"""


def test_the_manual_can_be_read_in_an_afternoon() -> None:
    """What is measured, and the rules behind it, belong to doc/dev."""
    assert len([word for word in MANUAL.split() if re.search(r'\w', word)]) <= 15000


def test_sphinx_builds_the_manual_without_warnings(tmp_path: Path) -> None:
    pytest.importorskip('sphinx')
    source = tmp_path / 'source'
    shutil.copytree(CHECKOUT / 'doc', source)
    (source / 'conf.py').write_text(CONF)
    (source / 'index.rst').write_text(
        'manuals\n=======\n\n.. toctree::\n   :glob:\n\n   dev/*\n   mgr/*/index\n')
    done = subprocess.run(
        [sys.executable, '-m', 'sphinx', '-q', '-W', '--keep-going', '-n', '-b', 'html',
         str(source), str(tmp_path / 'built')], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        universal_newlines=True, timeout=120)
    assert done.returncode == 0, done.stdout


def test_the_guide_for_developers_names_what_exists() -> None:
    guide = (CHECKOUT / 'doc' / 'dev' / 'perfguard.rst').read_text()
    paths = [path for root in ('src', 'qa') for suffix in ('py', 'ts', 'tsx', 'c')
             for path in (CHECKOUT / root).rglob('*.' + suffix) if 'node_modules' not in path.parts]
    named = set(re.findall(r'``([\w/]+\.(?:py|tsx?|c))``', guide))
    assert named and not [name for name in named
                          if not any(str(path).endswith('/' + name) for path in paths)]
    words = set(re.findall(r'\w+', ' '.join(path.read_text() for path in paths)))
    private = set(re.findall(r'``(_\w+)``', guide))
    assert private and not private - words


def test_every_recipe_is_followed_by_a_test() -> None:
    tests = (CHECKOUT / 'qa' / 'tests' / 'test_recipes.py').read_text()
    followed = re.findall(r"follow\(guard, '([^']+)'", tests)
    assert set(followed) == set(recipes.recipes(MANUAL))
    # Nothing that looks like a recipe escapes.
    assert all('.. recipe: ' in part for part in re.split(r'\n(?:-{4,}|~{4,})\n', MANUAL)
               if re.search(r'^#\. (?:.+\n| {3}.+\n|\n)*? {3}\.\. prompt', part, re.MULTILINE))


def test_what_a_test_does_by_hand_belongs_to_a_step_of_its_recipe() -> None:
    tests = ast.parse((CHECKOUT / 'qa' / 'tests' / 'test_recipes.py').read_text())
    by_hand = [(ast.literal_eval(call.args[1]), ast.literal_eval(key))
               for call in ast.walk(tests) if isinstance(call, ast.Call)
               and isinstance(call.func, ast.Name) and call.func.id == 'follow'
               and isinstance(call.args[2], ast.Dict) for key in call.args[2].keys if key]
    known = recipes.recipes(MANUAL)
    assert by_hand and not [(name, begin) for name, begin in by_hand
                            if not any(step.text.startswith(begin) for step in known[name])]


@pytest.mark.parametrize('name, number, step', [
    (name, number, step) for name, steps in recipes.recipes(MANUAL).items()
    for number, step in enumerate(steps, 1)])
def test_what_differs_is_given_for_packages_and_for_cephadm(
        name: str, number: int, step: recipes.Step) -> None:
    assert bool(step.packages) == bool(step.cephadm)
    assert all(command.startswith('ceph orch ') for command in step.cephadm)
    assert not [command for command in (*step.commands, *step.packages)
                if command.startswith('ceph orch ')]
    programs = {command.split()[0] for command in step.packages}
    assert not programs or programs & {'systemctl', 'apt', 'ceph-volume'}
    # perfguard starts, stops and creates no daemon.
    assert step.commands or step.packages or not re.match(
        '(Create|Stop|Remove|Upgrade|Add|Replace) ', step.text)


def test_generated_tables_are_current(mgr_stub: types.ModuleType) -> None:
    import perfguard.cli  # noqa: F401
    pages = {**reference.pages(), 'doc/dev/perfguard.rst': reference.NOTES.read_text()}
    assert sorted(name for page in pages.values() for name in reference.generated(page)) \
        == sorted(reference.TABLES)
    for name, page in pages.items():
        assert reference.current(page) == page, '%s: run python3 -m qa.lib.reference' % name


def test_the_openapi_fragment_has_every_route_and_field() -> None:
    yaml = pytest.importorskip('yaml')
    from qa.lib import openapi
    paths = yaml.safe_load(openapi.fragment())['paths']
    for route in ROUTES:
        operation = paths[openapi.API + route.path][route.method.lower()]
        body = operation.get('requestBody', {}).get('content', {}).get('application/json', {})
        named = {each['name'] for each in operation['parameters']} | set(
            body.get('schema', {}).get('properties', {}))
        assert named == {field.name for field in route.fields}, route
    assert sum(map(len, paths.values())) == len(ROUTES)


def test_what_a_campaign_can_accept_and_set() -> None:
    control = section('Control')
    accepted = control.split('``campaign accept <code>``')[1].split('Commands that take')[0]
    assert sorted(re.findall('``([A-Z_]+)``', accepted)) == sorted(WAIVABLE)
    options = control.split('``campaign set <option>=<value>``')[1].split('``<option>=``')[0]
    assert 'time window' in ' '.join(options.split())
    named = [option for word in re.findall(r'``(\w+)[*]?``', options) for option in SETTABLE
             if option == word or word.endswith('_') and option.startswith(word)]
    window = ['begin_time', 'end_time', 'begin_weekday', 'end_weekday']
    assert sorted(named + window) == sorted(SETTABLE)


@pytest.mark.parametrize('name', recipes.recipes(MANUAL))
def test_a_recipe_backs_up_before_it_changes_what_crush_places(name: str) -> None:
    commands = [command for step in recipes.recipes(MANUAL)[name]
                for command in (*step.commands, *step.packages)]
    changes = [number for number, command in enumerate(commands) if re.match(
        r'ceph (perfguard (expand|drain|undrain|replace|rule|pg_num|crushmap|balance|adopt|import'
        r'|shutdown|campaign (prepare|abort|rollback))|osd (crush|purge|destroy|pool set))\b',
        command)]
    backups = [number for number, command in enumerate(commands)
               if command.startswith('ceph osd getmap -o ')]
    assert not changes or backups and backups[0] < changes[0]
    assert changes or 'in the middle of a campaign' in name


@pytest.mark.parametrize('word', [*SUPPORTED, *IMPLIED, *PROFILES])
def test_words_of_jobs(word: str) -> None:
    assert re.search('``%s[`=]' % word, section('What a probe does'))


#: Words that commands print instead of sentences, by their row in the manual.
WORDS = {
    'laggy': MECHANISM_TEXTS, 'osds --drained': [phase.value for phase in ReplacePhase],
    'mitigation ls': [STEP_TEXTS.get(state, state) for state in {
        *STEP_TEXTS, *(stage.value for stage in StepStage)}],
    'probe ls': [PREPARING, RUNNING, CLEANING, *ENDED_STATES],
    'probe show': [AS_EXPECTED, BELOW, ABOVE, NO_EXPECTATION],
    'probe compare': [FASTER, SLOWER, SAME, UNKNOWN]}


@pytest.mark.parametrize('row', WORDS)
def test_states_and_verdicts(row: str) -> None:
    text = ' '.join(section('States and verdicts').split())
    meaning = text.split('``%s`` ' % row)[1].split(' :ref:')[0]
    others = [meaning.find('``%s`` ' % other) for other in WORDS]
    meaning = meaning[:min((place for place in others if place > 0), default=None)]
    assert sorted(re.findall('``([^`]+)``', meaning)) == sorted(WORDS[row])


CAUSES = sorted(set(re.findall(r"LikelyCause\(\s*'(\w+)'", (
    Path(__file__).parents[1] / 'watch' / 'causes.py').read_text())))


def test_causes_of_slow_osds() -> None:
    codes = {*CAUSES, *WORK, DEVICE, HOST, RACK}
    assert len(codes) > 12
    explained = re.findall(r'``(\w+)``', ' '.join(re.findall(
        r'^``\w+``.*$', section('Likely causes'), re.MULTILINE)))
    assert set(explained) == codes


def sources() -> List[Path]:
    """The package's own files, wherever the checkout is."""
    package = Path(__file__).parents[1]
    return [path for path in package.rglob('*.py')
            if 'tests' not in path.relative_to(package).parts]


def test_every_health_check_has_a_reference() -> None:
    raised = {code for path in sources()
              for code in re.findall(r"= '(PERFGUARD_[A-Z_]+)'|checks\['(PERFGUARD_[A-Z_]+)'\]",
                                     path.read_text())}
    assert sorted(first or second for first, second in raised) == sorted(CHECK_CODES)
    words = (Path(__file__).parents[1] / 'web' / 'src' / 'words.ts').read_text()
    explained = re.findall(r'^    (PERFGUARD_[A-Z_]+):', words, re.MULTILINE)
    assert sorted(explained) == sorted(CHECK_CODES)


CODES = sorted(value for name, value in vars(Code).items() if name.isupper())


def test_each_code_of_a_reason_has_a_meaning() -> None:
    explained = re.findall(r'^``([A-Z_]+)`` +\S', section('Reason codes'), re.MULTILINE)
    assert sorted(explained) == CODES


@pytest.mark.parametrize('code', CODES)
def test_codes_are_used(code: str) -> None:
    assert any('Code.%s' % code in path.read_text() for path in sources())
