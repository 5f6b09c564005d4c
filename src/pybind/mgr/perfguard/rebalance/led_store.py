# SPDX-License-Identifier: LGPL-2.1-or-later
"""Change.ahead in the store: the PGs that the changes of a campaign have led to their place.

They may be thousands, and each turn adds a few. So they are in documents of their own, which the
document of the campaign lists by number: later ones overrule earlier ones, and those that it does
not list do not count. A document is written before the campaign that lists it. The last one is
written again, with further PGs, until it has SMALL_LED of them: after a crash it may contain PGs
that are still in flight, whose release has been read back.
"""
from typing import Annotated, Callable, Dict, Iterator, List, Mapping, Sequence, Set, Tuple

from ..codec import BY_PG, Malformed, decode, encode
from ..store import Store
from .change import Led

LED_PREFIX = 'led/'
Ahead = Mapping[str, Led]
Numbers = Tuple[int, ...]
#: The number of PGs up to which a document is extended, and the maximum, which fits into one value.
SMALL_LED = 100
MOST_LED = 500


class LedStore:
    def __init__(self, store: Store) -> None:
        self._store = store
        #: What each document contains, by number.
        self._contents: Dict[int, Ahead] = {}
        #: The mappings of the stored campaign, and the documents of each.
        self._stored: List[Tuple[Ahead, Numbers]] = []

    def load(self, lists: Sequence[Sequence[int]]) -> Tuple[List[Ahead], List[str]]:
        """The mapping of each list of documents, and texts on what cannot be read."""
        lost = []
        for name in self._store.names(LED_PREFIX):
            try:
                number = int(name[len(LED_PREFIX):])
                self._contents[number] = decode(
                    Annotated[Mapping[str, Led], BY_PG], self._store.get(name) or {})
            except (Malformed, ValueError):
                self._store.refuse(name)
                lost.append(name)
        missing = {_name(number) for numbers in lists for number in numbers
                   if number not in self._contents}
        lost += ['%s, which is missing' % name for name in sorted(missing.difference(lost))]
        self._stored = [({pgid: led for number in numbers
                          for pgid, led in self._contents.get(number, {}).items()},
                         tuple(number for number in numbers if number in self._contents))
                        for numbers in lists]
        return [ahead for ahead, _ in self._stored], lost

    def set_aside(self) -> None:
        """The campaign cannot be read: keep its documents with it, for whoever restores it."""
        for name in self._store.names(LED_PREFIX):
            self._store.set_aside(name)

    def put(self, mappings: Sequence[Ahead]) -> List[Numbers]:
        """Store what has changed in the mappings of a campaign; returns the documents of each."""
        stored = self._stored or [({}, ()) for _ in mappings]
        self._stored = [(ahead, self._put(ahead, row, mappings))
                        for ahead, row in zip(mappings, stored)]
        return [numbers for _, numbers in self._stored]

    @property
    def unlisted(self) -> Set[int]:
        """Documents that the stored campaign does not list."""
        return self._contents.keys() - {number for _, numbers in self._stored
                                        for number in numbers}

    def forget(self) -> None:
        """The campaign was removed: `tidy` removes its documents."""
        self._stored = []

    def tidy(self, goes_on: Callable[[], bool]) -> None:
        """Remove documents that the stored campaign does not list, as long as `goes_on`."""
        for number in sorted(self.unlisted):
            del self._contents[number]
            self._store.remove(_name(number))
            if not goes_on():
                return

    def _put(self, ahead: Ahead, row: Tuple[Ahead, Numbers],
             mappings: Sequence[Ahead]) -> Numbers:
        """`row`: what is stored in its place."""
        for known, numbers in self._stored:
            if known is ahead:
                return numbers  # perhaps in another place
        before, numbers = row if row[0].keys() <= ahead.keys() else ({}, ())
        fresh = {pgid: led for pgid, led in ahead.items() if before.get(pgid) != led}
        if not fresh:
            return numbers
        last = numbers[-1] if numbers else 0
        if last and len(self._contents[last]) < SMALL_LED and not any(
                other is before for other in mappings) and sum(
                last in listed for _, listed in self._stored) == 1:
            fresh, numbers = {**self._contents[last], **fresh}, numbers[:-1]
        else:
            last = 0
        for part in _parts(fresh):
            number = last or max(self._contents, default=0) + 1
            last = 0
            self._store.put(_name(number), encode(part, Annotated[Mapping[str, Led], BY_PG]))
            self._contents[number] = part
            numbers = (*numbers, number)
        return numbers


def _name(number: int) -> str:
    return '%s%06d' % (LED_PREFIX, number)


def _parts(ahead: Ahead) -> Iterator[Ahead]:
    rows = list(ahead.items())
    for first in range(0, len(rows), MOST_LED):
        yield dict(rows[first:first + MOST_LED])
