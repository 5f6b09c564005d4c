# SPDX-License-Identifier: LGPL-2.1-or-later
"""The answers of OSDs about a PG."""
import re
from dataclasses import dataclass, field
from typing import Dict, FrozenSet, List, Mapping, Optional, Tuple

from ..cluster.types import Json

#: Shard of an erasure coded PG, as in "2.1fs0".
_SHARD = re.compile(r's[0-9]+$')


@dataclass(frozen=True)
class Queue:
    """The local or the remote backfill reservations of one OSD."""
    most: int
    #: PGs that hold a reservation, and those that wait for one.
    granted: Tuple[str, ...] = ()
    waiting: Tuple[str, ...] = ()


@dataclass(frozen=True)
class Reservations:
    local: Queue
    remote: Queue


@dataclass(frozen=True)
class PgAnswers:
    """The answers that arrived in time."""
    #: Words of the PG's state; empty: the primary has not answered.
    state: FrozenSet[str] = frozenset()
    reservations: Mapping[int, Reservations] = field(default_factory=dict)
    #: Options of the primary.
    options: Mapping[str, str] = field(default_factory=dict)
    #: OSDs that have not answered.
    silent: Tuple[int, ...] = ()


def state_of(pgid: str, query: Json) -> Optional[FrozenSet[str]]:
    """The words of the state in the answer to "query"; None: it is another PG's.

    Raises KeyError or TypeError for any other document.
    """
    if plain_pgid(query['info']['pgid']) != pgid:
        return None
    return frozenset(str(query['state']).split('+'))


def reservations(dump: Json) -> Reservations:
    """From "dump_recovery_reservations"; raises KeyError or TypeError as above."""
    return Reservations(_queue(dump['local_reservations']), _queue(dump['remote_reservations']))


def _queue(raw: Json) -> Queue:
    waiting: List[str] = [_item(item) for queue in raw['queues'] for item in queue['items']]
    return Queue(int(raw['max_allowed']), tuple(_item(item) for item in raw['in_progress']),
                 tuple(waiting))


def _item(raw: Json) -> str:
    return plain_pgid(raw['item'])


def plain_pgid(text: str) -> str:
    """Without the shard."""
    return _SHARD.sub('', text)


def option_of(answer: Json, name: str) -> Dict[str, str]:
    """From "config get"."""
    return {name: str(answer[name])} if name in answer else {}
