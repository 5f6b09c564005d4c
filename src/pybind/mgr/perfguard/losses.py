# SPDX-License-Identifier: LGPL-2.1-or-later
"""What of the stored state could not be read, in words."""
from typing import List, Sequence, Tuple

from .store import Store

#: Where requests wait in the store.
REQUESTS = 'requests'
#: Documents without which nothing is left behind on the cluster: only the mgr that finds them
#: unreadable raises PERFGUARD_INTERRUPTED.
RECORDS = frozenset({'history', 'events', 'watch', 'baseline'})
ADVICE = 'if a campaign was active, its pins are still in the OSDMap'


def found(store: Store, lost: Sequence[str]) -> Tuple[List[str], List[str]]:
    """Of what this mgr has read: all that is to be noted, and what is lost of that.

    `lost`: what could be read and made no sense.
    """
    noted: List[str] = []
    losses = ['%s cannot be read' % text for text in lost]
    for key, reason in store.damaged:
        text = '%s: %s; set aside as damaged/%s' % (key, reason, key)
        # One copy of a document may be damaged by a crash: then the other one serves.
        if key.rsplit('/', 1)[0] in store.unreadable or key.startswith(REQUESTS):
            losses.append(text)
        else:
            noted.append(text)
    if 'campaign' in store.unreadable:
        losses.append(ADVICE)
    return noted + losses, losses


def found_earlier(store: Store) -> List[str]:
    """What mgrs before this one have lost, and nobody has acknowledged with a new campaign."""
    names = [name for name in store.lost_earlier() if name.split('/')[0] not in RECORDS]
    texts = ['%s could not be read by an mgr before this one; set aside as damaged/%s' % (
        name, name) for name in names]
    return texts + ([ADVICE] if 'campaign' in names else [])
