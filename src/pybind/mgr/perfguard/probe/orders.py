# SPDX-License-Identifier: LGPL-2.1-or-later
"""What the operator asks of the probes."""
import errno
from dataclasses import dataclass, field
from typing import Any, ClassVar, Dict, Mapping, Optional

from ..errors import Refused


@dataclass(frozen=True)
class RunOrder:
    """A run, in the words of the command line."""
    profile: Optional[str] = None
    #: fio's words -> texts.
    words: Mapping[str, str] = field(default_factory=dict)
    job_file: Optional[str] = None
    pool: Optional[str] = None
    #: Which OSDs: ids, a host, a device class; all of them that are given.
    osd: Optional[str] = None
    host: Optional[str] = None
    device_class: Optional[str] = None
    #: Bench the OSDs' stores; measure the OSDs alone, together, and alone again.
    store: bool = False
    interference: bool = False
    #: Of the run's own pool; a pool of one replica takes consent.
    replicas: Optional[str] = None
    consent: bool = False
    repeat: Optional[str] = None
    during_campaign: bool = False
    dry_run: bool = False
    #: "command", or the name of a schedule.
    trigger: str = 'command'
    job: ClassVar[str] = 'probe'

    @property
    def verb(self) -> str:
        return 'probe run'

    @property
    def kind(self) -> str:
        """As in Target."""
        if self.interference:
            return 'interference'
        if self.store:
            return 'store'
        if self.osd or self.host or self.device_class:
            return 'osd'
        return 'pool' if self.pool else 'cluster'


@dataclass(frozen=True)
class RunId:
    """Something about one run: "probe cancel", "probe rm", "probe baseline set" or "... rm"."""
    verb: str
    run: int
    job: ClassVar[str] = 'probe'


@dataclass(frozen=True)
class Named:
    """Something about a thing with a name: "probe schedule rm"."""
    verb: str
    key: str
    job: ClassVar[str] = 'probe'


@dataclass(frozen=True)
class NewSchedule:
    """The words of "schedule add"; `run` is what is started when it is due."""
    key: str
    run: RunOrder
    window: Mapping[str, str]
    job: ClassVar[str] = 'probe'

    @property
    def verb(self) -> str:
        return 'probe schedule add'


#: Fields of a RunOrder that are texts, and those that are switches, as a schedule keeps them.
_TEXTS = ('profile', 'pool', 'osd', 'host', 'device_class', 'replicas', 'repeat')
_SWITCHES = ('store', 'during_campaign', 'consent')


def words_of_order(order: RunOrder) -> Dict[str, str]:
    """What of an order a schedule keeps."""
    words = {name: getattr(order, name) for name in _TEXTS if getattr(order, name) is not None}
    return {**words, **{name: 'yes' for name in _SWITCHES if getattr(order, name)}}


def order_of_words(words: Mapping[str, str], trigger: str) -> RunOrder:
    fields: Dict[str, Any] = {name: words[name] for name in _TEXTS if name in words}
    fields.update({name: True for name in _SWITCHES if name in words})
    return RunOrder(trigger=trigger, **fields)


def count_of(word: str, text: Optional[str], usual: int, most: int) -> int:
    """A number from 1 to `most`; Refused else."""
    if text is None:
        return usual
    if not (text.isascii() and text.isdigit() and 1 <= int(text) <= most):
        raise Refused(errno.EINVAL, '%s is %r: must be a number from 1 to %d'
                      % (word, text, most))
    return int(text)
