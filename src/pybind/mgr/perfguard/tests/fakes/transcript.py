# SPDX-License-Identifier: LGPL-2.1-or-later
"""What operators and mons see of a story, turn by turn, as text that can be read and compared.

    python3 -m perfguard.tests.fakes.transcript recorded/transcripts

writes the transcripts of all stories, with src/pybind/mgr as PYTHONPATH. Read what `git diff` shows
then: it is what a change of the code changes for operators.
"""
import sys
from pathlib import Path
from typing import Any, Dict, Iterator, List, Mapping, Sequence, Tuple

from .driver import Driver
from .zones import in_zone

#: PGs named in a line.
MOST_NAMED = 12


class Transcript:
    """Wraps the turns of a driver; `text` is what happened so far."""

    def __init__(self, driver: Driver) -> None:
        self._driver, self._cluster = driver, driver.cluster
        self._begin = driver.cluster.now
        self._lines: List[str] = []
        self._known: Dict[str, str] = {}
        self._sent, self._moved, self._event = len(self._cluster.sent), 0, self._last_event()
        self._tick = self._cluster.tick
        setattr(self._cluster, 'tick', self._after_turn)

    @property
    def text(self) -> str:
        return '\n'.join(self._lines) + '\n'

    def say(self, text: str) -> None:
        """What the operator does, or others."""
        self._lines.append('%5d s  > %s' % (self._cluster.now - self._begin, text))

    def _after_turn(self, seconds: float = 1.0) -> None:
        lines = list(self._news())
        if lines:
            self._lines.append('%5d s  %s' % (self._cluster.now - self._begin, lines[0]))
            self._lines += [9 * ' ' + line for line in lines[1:]]
        self._tick(seconds)

    def _news(self) -> Iterator[str]:
        status = self._driver.status
        sent = self._cluster.sent[self._sent:]
        self._sent += len(sent)
        moved = [one.pgid for one in self._cluster.moved[self._moved:]]
        self._moved += len(moved)
        if moved:
            yield 'arrived: ' + _names(moved)
        yield from self._events()
        for name, text in (('phase', status['phase'] + ' (paused)' * bool(status.get('paused'))),
                           ('limits', ', '.join(row['code'] for row in status['limits']) or '-'),
                           ('checks', ', '.join(sorted(self._cluster.checks)) or '-'),
                           ('counts', _counts(status))):
            if self._known.get(name) != text:
                self._known[name] = text
                yield '%s: %s' % (name, text)
        yield from _commands(sent)

    def _last_event(self) -> int:
        return max((event['id'] for event in self._driver.loop.published.events), default=0)

    def _events(self) -> Iterator[str]:
        for event in self._driver.loop.published.events:
            if event['id'] > self._event:
                yield 'event: %s: %s%s' % (event['kind'], event['what'], ' (%s)' % event['why']
                                           if event['why'] else '')
        self._event = self._last_event()


def _counts(status: Mapping[str, Any]) -> str:
    if status['id'] is None:
        return '-'
    return '%(pinned)d pinned, %(in_flight)d in flight (limit %(limit)s), %(released)d of ' \
        '%(total)d released, %(kept)d kept' % status


def _names(pgids: Sequence[str]) -> str:
    more = len(pgids) - MOST_NAMED
    return ', '.join(pgids[:MOST_NAMED]) + (' and %d more' % more if more > 0 else '')


def _commands(sent: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """One line for each kind of command in a row."""
    rows: List[Tuple[str, List[str]]] = []
    for command in sent:
        values = [_value(command[key]) for key in command if key not in ('prefix', 'format')]
        if not rows or rows[-1][0] != command['prefix']:
            rows.append((command['prefix'], []))
        rows[-1][1].append(' '.join(values))
    for prefix, texts in rows:
        yield 'sends: %s %s' % (prefix, '; '.join(texts[:MOST_NAMED]) + (
            ' and %d more' % (len(texts) - MOST_NAMED) if len(texts) > MOST_NAMED else ''))


def _value(value: Any) -> str:
    if isinstance(value, (list, tuple)):
        return '[%s]' % ' '.join(map(str, value))
    return str(value)


def main() -> None:
    from ..test_transcripts import STORIES
    directory = Path(sys.argv[1])
    directory.mkdir(parents=True, exist_ok=True)
    for path in directory.glob('*.txt'):
        path.unlink()
    with in_zone('UTC'):
        for name, story in STORIES.items():
            (directory / (name + '.txt')).write_text(story().transcript.text)


if __name__ == '__main__':
    main()
