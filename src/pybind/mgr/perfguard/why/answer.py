# SPDX-License-Identifier: LGPL-2.1-or-later
"""Answers of `perfguard why`: causes for one PG, one OSD or the campaign, each with a code."""
import errno
import re
from dataclasses import dataclass, field
from typing import Any, ClassVar, Dict, Mapping, Optional, Sequence

from ..errors import Reason, Refused

Json = Dict[str, Any]

CAMPAIGN = 'campaign'
_PGID = re.compile(r'[0-9]{1,10}\.[0-9a-f]{1,8}')
_OSD = re.compile(r'osd\.[0-9]{1,9}')


@dataclass(frozen=True)
class Why:
    """The order; its command waits for the answer."""
    #: A PG id, "osd.<id>" or CAMPAIGN.
    subject: str
    verb: ClassVar[str] = 'why'
    job: ClassVar[str] = 'why'
    #: It changes nothing.
    dry_run: ClassVar[bool] = True

    @property
    def osd(self) -> Optional[int]:
        return int(self.subject[4:]) if self.subject.startswith('osd.') else None

    @property
    def pgid(self) -> Optional[str]:
        return self.subject if self.subject[0].isdigit() else None


def parsed(text: str) -> Why:
    """Raises Refused for any other subject."""
    if text == CAMPAIGN or _PGID.fullmatch(text) or _OSD.fullmatch(text):
        return Why(text)
    raise Refused(errno.EINVAL, '%.60r is neither a PG id (such as 1.2f) nor osd.<id> nor "%s"'
                  % (text, CAMPAIGN))


@dataclass(frozen=True)
class Cause:
    #: One of errors.Code, or the code of a health check.
    code: str
    text: str
    #: The numbers and names in the text.
    evidence: Mapping[str, object] = field(default_factory=dict)
    #: Share of the campaign's time; None: not measured for this cause.
    share: Optional[float] = None


def passed_on(reason: Reason, **evidence: object) -> Cause:
    """A reason of the campaign or of a health check."""
    return Cause(reason.code, reason.text, evidence)


def as_json(order: Why, causes: Sequence[Cause]) -> Json:
    """The most decisive cause first."""
    return {'subject': order.subject, 'causes': [
        {'code': cause.code, 'text': cause.text, 'share': cause.share,
         'evidence': dict(cause.evidence)} for cause in causes]}
