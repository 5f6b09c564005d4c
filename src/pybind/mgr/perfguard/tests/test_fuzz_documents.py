# SPDX-License-Identifier: LGPL-2.1-or-later
"""Documents that make sense but for one value: stored state, imports, job files, dumps.

Each is read, or refused in one line; no turn of the loop fails on it.
"""
import contextlib
import copy
import io
import json
from pathlib import Path
from typing import Any, Dict, List, Optional, Tuple

import pytest
from hypothesis import strategies as st

from perfguard import tables
from perfguard.errors import Refused
from perfguard.offline import command
from perfguard.rebalance import tables as rebalance_tables
from perfguard.rebalance.report import summary
from perfguard.rebalance.types import Phase
from perfguard.store import STORE_VERSION, Store

from .fakes import recording
from .fakes.campaigns import campaign_of
from .fakes.driver import Driver
from .offline.test_command import CRUSH_DUMP, OSD_DUMP, ROWS
from .probe.test_imported import measured
from .test_cli import Shell
from .test_fuzz import JSON, TEXTS, check, fuzz, shell  # noqa: F401
from .test_upgrade import RECORDED

NEWEST = RECORDED[max(RECORDED)]
Path_ = Tuple[Any, ...]


def places(document: Any, at: Path_ = ()) -> List[Path_]:
    """The path of each value in a document."""
    rows = (document.items() if isinstance(document, dict)
            else enumerate(document) if isinstance(document, list) else ())
    return [at] + [place for key, value in rows for place in places(value, (*at, key))]


#: In place of a value that is left out.
NOTHING = object()


def with_value(document: Any, place: Path_, value: Any) -> Any:
    """The document with another value in a place, or without one."""
    if not place:
        return None if value is NOTHING else value
    *parents, last = place
    document = copy.deepcopy(document)
    inner = document
    for key in parents:
        inner = inner[key]
    if value is NOTHING:
        del inner[last]
    else:
        inner[last] = value
    return document


def spoiled(document: Any) -> st.SearchStrategy:
    return st.builds(with_value, st.just(document), st.sampled_from(places(document)),
                     st.one_of(JSON, st.just(NOTHING)))


# ---- documents of the previous mgr

def names(stored: Dict[str, str]) -> List[str]:
    return sorted(key[:-len('/head')] for key in stored if key.endswith('/head'))


def document_of(stored: Dict[str, str], name: str) -> Any:
    return json.loads(stored[name + '/head'])['document']


def with_document(stored: Dict[str, str], name: str, document: Any) -> Dict[str, str]:
    """With other contents of a document."""
    return {**stored, name + '/head': json.dumps({'version': STORE_VERSION, 'document': document})}


#: Story -> document, place and value with which each turn of the loop has failed.
FOUND: Dict[str, List[Tuple[str, Path_, Any]]] = {
    'RELEASING': [('campaign', ('stalls', 'changes', 0, 2), [[]])]}


@pytest.mark.parametrize('story', NEWEST)
def test_stored_state(story: str) -> None:
    stored = NEWEST[story]['store']
    documents = {name: document_of(stored, name) for name in names(stored)}

    def try_(each: Tuple[str, Any]) -> None:
        driver = Driver(recording.cluster_from_json(NEWEST[story]['cluster']))
        driver.kv.data = with_document(stored, *each)
        driver.restart()
        driver.run(4)
        assert driver.loop.status() and driver.status is not None
        with contextlib.suppress(Refused):
            driver.ask('abort')
        driver.run(4)

    fuzz(st.sampled_from(sorted(documents)).flatmap(
        lambda name: st.tuples(st.just(name), spoiled(documents[name]))),
        [(name, with_value(documents[name], place, value))
         for name, place, value in FOUND.get(story, ())], try_)


@pytest.mark.parametrize('document', [
    {'3': None}, {'3': []}, {'3': ['1.0', 'first']}, {'3': [1.0, 'first', 2]}, {'x': 1.0}, [3],
    {'3': float('nan')}])
def test_records_of_drains_that_make_no_sense_are_kept_aside(document: Any) -> None:
    """Found by the test above: each turn of the loop has failed."""
    driver = Driver()
    Store(driver.kv).put('drained', document)
    driver.restart()
    assert 'drained OSDs' in driver.loop._store.interrupted
    driver.run(2)
    with pytest.raises(Refused):
        driver.order('undrain', 'osd.3')
    assert any(key.startswith('damaged/drained') for key in driver.kv.data)


@pytest.mark.parametrize('document', [{'3': None}, {'3': [5]}, {'x': ['a', True]}, [3]])
def test_records_of_expansions_that_make_no_sense_are_kept_aside(document: Any) -> None:
    driver = Driver()
    Store(driver.kv).put('added', document)
    driver.restart()
    assert 'new OSDs' in driver.loop._store.interrupted
    driver.run(2)
    assert any(key.startswith('damaged/added') for key in driver.kv.data)


def test_a_campaign_with_a_primary_that_is_no_osd_is_kept_aside() -> None:
    """Found by the test above: each turn of the loop has failed."""
    story = NEWEST['RELEASING']
    driver = Driver(recording.cluster_from_json(story['cluster']))
    driver.kv.data = dict(story['store'])
    document = Store(driver.kv).get('campaign')
    assert document is not None
    document['stalls']['changes'][0][2] = [[]]
    Store(driver.kv).put('campaign', document)
    driver.restart()
    driver.run(4)
    assert any(key.startswith('damaged/campaign') for key in driver.kv.data)


EVENT: Dict[str, Any] = {'time': 900.0, 'kind': 'request', 'what': 'x', 'why': '', 'id': 3}


@pytest.mark.parametrize('name, document', [
    ('advise', {'muted': 5}), ('advise', []), ('lastclean', {'crush_version': 1, 'serving': [[]]}),
    ('lastclean', {'crush_version': 1, 'serving': [1], 'identity': 'x'})])
def test_a_record_that_makes_no_sense_is_kept_aside(name: str, document: Any) -> None:
    driver = Driver()
    Store(driver.kv).put(name, document)
    driver.restart()
    driver.run(2)
    assert any(key.startswith('damaged/' + name) for key in driver.kv.data)
    # Nothing on the cluster depends on it.
    assert not driver.loop._store.interrupted


@pytest.mark.parametrize('name', ['events', 'events_recent'])
@pytest.mark.parametrize('document', [5, [5], [{'id': 1}], [{**EVENT, 'time': 'x'}]])
def test_events_that_make_no_sense_are_kept_aside(name: str, document: Any) -> None:
    driver = Driver()
    Store(driver.kv).put(name, document + [EVENT] if isinstance(document, list) else document)
    driver.restart()
    driver.run(2)
    assert any(key.startswith('damaged/%s/' % name) for key in driver.kv.data)
    assert tables.events({'events': driver.loop.published.events})
    assert any(event['what'] == 'x' for event in driver.loop.published.events) \
        is isinstance(document, list)
    assert not driver.loop._store.interrupted


@pytest.mark.parametrize('spoiled_row', [5, {'id': 1}, {'moving_seconds': 'a'}, {'started': [1]}])
def test_a_history_that_makes_no_sense_is_kept_aside(spoiled_row: Any) -> None:
    """Each preview has failed, and "campaign ls"."""
    row = summary(campaign_of(1, Phase.DONE, 900.0, ended=950.0))
    if isinstance(spoiled_row, dict) and 'id' not in spoiled_row:
        spoiled_row = {**row, **spoiled_row}
    driver = Driver()
    driver.cluster.add_waiting(2)
    Store(driver.kv).put('history', [spoiled_row, row])
    driver.restart()
    driver.run(2)
    assert any(key.startswith('damaged/history') for key in driver.kv.data)
    assert 'history' in driver.loop._store.interrupted
    assert list(driver.history) == [row] and rebalance_tables.history({'campaigns': [row]})
    assert driver.order('expand', weight='1.0', dry_run=True)['dry_run']


# ---- what operators hand over

MAPPINGS = [{'pgid': '1.%x' % pg, 'mapping': {'from': pg, 'to': 7}} for pg in range(3)]
JOBS = """[global]
bs=4k
size=1m
[first]
rw=randread
iodepth=16
runtime=1
[second]
stonewall
rw=write
rate_iops=50
"""
MAP = """# begin crush map
tunable choose_total_tries 50
device 0 osd.0
type 0 osd
type 11 root
root default {
    id -1
    alg straw2
    hash 0
    item osd.0 weight 1.000
}
rule replicated_rule {
    id 0
    type replicated
    step take default
    step emit
}
"""


@pytest.mark.parametrize('handler, document', [
    ('import_mappings', MAPPINGS), ('probe_import', measured())], ids=['mappings', 'probe'])
def test_imports(handler: str, document: Any, shell: Shell) -> None:  # noqa: F811
    fuzz(spoiled(document), [], lambda other: check(
        shell, handler, {'inbuf': json.dumps(other), 'format': 'json'}))


@pytest.mark.parametrize('handler, text', [('probe_run', JOBS), ('crushmap', MAP)],
                         ids=['jobs', 'CRUSH map'])
def test_texts(handler: str, text: str, shell: Shell) -> None:  # noqa: F811
    """A part of the text is missing, is there twice, or is replaced by something hostile."""
    def other(cuts: Tuple[int, int], inner: Optional[str]) -> str:
        begin, end = sorted(cuts)
        return text[:begin] + (2 * text[begin:end] if inner is None else inner) + text[end:]

    fuzz(st.builds(other, st.tuples(*2 * [st.integers(0, len(text))]),
                   st.one_of(TEXTS, st.none(), st.just(''))),
         [text + '\ud800'], lambda given_: check(
             shell, handler, {'inbuf': given_, 'format': 'json'}))


# ---- dumps, which the offline tool takes from anywhere

DUMPS: Dict[str, Any] = {'--osd-dump': OSD_DUMP, '--pg-dump': {'pg_stats': ROWS},
                         '--crush-dump': CRUSH_DUMP}


@pytest.mark.parametrize('kind', DUMPS)
def test_dumps(kind: str, tmp_path: Path) -> None:
    paths = {name: tmp_path / name.strip('-') for name in DUMPS}

    def try_(other: Any) -> None:
        for name, path in paths.items():
            path.write_text(json.dumps(other if name == kind else DUMPS[name]))
        argv = [word for name, path in paths.items() for word in (name, str(path))]
        out, error = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(error):
            status = command.main(['pin', *argv])
        assert status == 0 or status == 2 and not out.getvalue(), error.getvalue()
        assert 'Traceback' not in error.getvalue()

    fuzz(spoiled(DUMPS[kind]), [], try_)
