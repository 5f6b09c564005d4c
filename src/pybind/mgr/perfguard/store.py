# SPDX-License-Identifier: LGPL-2.1-or-later
"""perfguard's documents in the mgr's key/value store.

The mons replicate each value and refuse those over 64 KiB. A document that fits is one value, its
head. A longer one is split into parts, which are written beside those of the document before: the
head, which is written last, says which parts count. So a crash between any two writes leaves the
document before, which every caller can continue from. A document that cannot be read is set aside
(`damaged/...`) and reported, never raised. JSON that is whole may still have wrong types: `load`
sets it aside before a turn fails on it.
"""
import contextlib
import json
from typing import (Any, Dict, List, Mapping, NamedTuple, Optional, Protocol, Sequence, Set, Tuple,
                    TypeVar)

from .codec import Malformed, Newer, decode
from .text import listed

T = TypeVar('T')

#: Version of the documents' layout; a newer one is left alone, not guessed at. It may stay where
#: fields with a default are added: a document in which one of them is set is left alone as well.
STORE_VERSION = 1
#: The mon's limit is 65,536 bytes a value (mon_config_key_max_entry_size); the rest is for headers.
PART_BYTES = 60000
#: Prefix of what was set aside, and the suffix of the mark of documents that were lost by that.
ASIDE, LOST = 'damaged/', '/lost'
#: Documents on changes that campaigns and the mitigation have made to the cluster.
STATE = ('campaign', 'mitigation', 'rescues', 'replacements', 'await', 'crushmap', 'crushbase',
         'crushbefore', 'drained', 'added', 'shutdown', 'unpinnable', 'pins/', 'led/')
PLANS_PREFIX = 'plans/'
#: Documents that the mons must have stored before the commands that they describe are sent.
VERIFIED = (*STATE, 'probing', PLANS_PREFIX)


class KeyValue(Protocol):
    """The part of MgrModule that the store needs."""

    def get_store(self, key: str) -> Optional[str]: ...

    def set_store(self, key: str, val: Optional[str]) -> None: ...

    def get_store_prefix(self, key_prefix: str) -> Dict[str, str]: ...


class Store:
    """Documents (anything json can hold) by name. For one thread, except `note`.

    The keys are listed when this mgr begins to act and when a campaign ends, and are kept up to
    date. In ceph-mgr, get_store_prefix waits for the GIL while it has the locks of all modules and
    of their options. If a change of the configuration arrives at that moment, and another thread
    reads an option of Ceph, these three wait for each other for ever: the mgr hangs, and only its
    end helps. So it must not be called again and again.
    """

    def __init__(self, kv: KeyValue) -> None:
        self._kv = kv
        #: The keys of all that is stored; None: not listed yet.
        self._keys: Optional[Dict[str, None]] = None
        self._last_note = 0
        #: (document or note, reason) of those that were set aside since the module started, except
        #: those that a caller has reported.
        self.damaged: List[Tuple[str, str]] = []
        #: All documents that were set aside since the module started.
        self.unreadable: Set[str] = set()
        #: Documents that a newer perfguard wrote, which stay as they are: an mgr of that version
        #: may become active again.
        self.written_by_newer: Set[str] = set()
        #: Documents that this mgr or earlier ones could not read, until operators acknowledge that.
        self.losses: List[Loss] = []
        #: Name -> document, of those that were not read back from the mons since they were written.
        self._unverified: Dict[str, Any] = {}
        #: Keys of documents whose removal was not read back, by document: a later mgr would take
        #: them for the present state.
        self._removed: Dict[str, List[str]] = {}
        #: Keys and values of notes that were not read back (None: removed), and the keys of those
        #: that `unverified` returned last: threads of commands write notes at any time.
        self._noted: Dict[str, Optional[str]] = {}
        self._listed_notes: List[str] = []

    def put(self, name: str, document: Any) -> None:
        """Write a document, unless a newer perfguard wrote the present one. Until its head is
        written, the document before counts."""
        if name in self.written_by_newer:
            return
        body = json.dumps(document, separators=(',', ':'))
        parts: Dict[str, str] = {}
        head = '{"version": %d, "document": %s}' % (STORE_VERSION, body)
        if len(body) > PART_BYTES:
            # The document before stays whole in the other slot.
            slot = 'b' if self._slot(name) == 'a' else 'a'
            parts = {f'{name}/{slot}/{begin // PART_BYTES:04d}': body[begin:begin + PART_BYTES]
                     for begin in range(0, len(body), PART_BYTES)}
            head = json.dumps({'version': STORE_VERSION, 'slot': slot, 'parts': len(parts)})
        for key, part in parts.items():
            self._set(key, part)
        self._set(f'{name}/head', head)
        for key in set(self._keys_under(name + '/')) - parts.keys() - {f'{name}/head'}:
            self._set(key, None)
        self._removed.pop(name, None)
        if name.startswith(VERIFIED):
            self._unverified[name] = document

    def get(self, name: str) -> Optional[Any]:
        """A document; None if there is none, if it is not readable, or if a newer perfguard wrote
        it. One that is not readable is set aside and reported."""
        try:
            return self.read(name)
        except Malformed as error:
            self.set_aside_unreadable(name, str(error))
            return None

    def read(self, name: str) -> Optional[Any]:
        """A document; None if there is none, or a newer perfguard wrote it. Raises Malformed if it
        is not readable: it stays as it is, and the caller reports it."""
        raw = self._kv.get_store(f'{name}/head')
        if raw is None:
            return None
        try:
            head = json.loads(raw)
            if head['version'] > STORE_VERSION:
                self.written_by_newer.add(name)
                return None
            if 'slot' not in head:
                return head['document']
            parts: List[Any] = [self._kv.get_store(f'{name}/{head["slot"]}/{number:04d}')
                                for number in range(head['parts'])]
            return json.loads(''.join(parts))  # TypeError where one is missing
        except (ValueError, LookupError, TypeError) as error:
            raise Malformed('not readable: %s' % error) from error

    def load(self, name: str, hint: Any, empty: T) -> Tuple[T, List[str]]:
        """(a document as a value with this type hint, why it is malformed).

        The value is `empty` if there is no such document, if it is not readable or malformed, and
        so is set aside, or if a newer perfguard wrote it, and so is left as it is. The list has one
        text if it is malformed. One that is not readable is reported by the store (`damaged`).
        """
        document = self.get(name)
        try:
            return empty if document is None else decode(hint, document), []
        except Newer:
            self.withhold(name)
            return empty, []
        except Malformed as error:
            self.set_aside_unreadable(name)
            return empty, [str(error)]

    def load_record(self, name: str, hint: Any, empty: T) -> T:
        """As `load`, for one of RECORDS, without the list: the store reports one that is malformed
        (`damaged`)."""
        value, errors = self.load(name, hint, empty)
        self.damaged += [(name, error) for error in errors]
        return value

    def withhold(self, name: str) -> None:
        """Leave a document as it is from now on, as one whose layout has a newer version: it has
        fields that this version does not know. Written without these fields, it would lack what an
        mgr of the newer version needs."""
        self.written_by_newer.add(name)

    def recheck_newer(self) -> None:
        """Forget which documents of the state and which plans a newer version wrote, and which keys
        exist: each is checked again when it is next read, since another mgr, of another version,
        may have replaced it."""
        self.list_again()
        self.written_by_newer = {name for name in self.written_by_newer
                                 if not name.startswith((*STATE, PLANS_PREFIX))}

    def is_newer(self, name: str) -> bool:
        """Whether a newer version wrote the document."""
        if name in self.written_by_newer:
            return True
        with contextlib.suppress(ValueError, LookupError, TypeError):
            version: int = json.loads(self._kv.get_store(f'{name}/head') or '{}')['version']
            return version > STORE_VERSION
        return False

    @property
    def interrupted(self) -> str:
        """Why nothing may begin without an operator, who has to see what is lost; '' if it may. The
        loss of a record (RECORDS) does not matter, except that of the history."""
        # The history says how the last campaign has ended, which matters for the next one.
        state = [loss for loss in self.losses if loss.document not in RECORDS - {'history'}]
        return 'perfguard could not read all of its state: %s' % state[0].text if state else ''

    def acknowledge_losses(self) -> None:
        """Forget all losses, and remove what was set aside: a campaign begins. Without an operator,
        none does while `interrupted` gives a reason, but the loss of a record is none."""
        self.losses = []
        self.damaged.clear()
        self.unreadable.clear()
        for key in self._keys_under(ASIDE):
            self._set(key, None)

    def set_aside(self, name: str) -> None:
        """Move a document to damaged/..., also one that a newer version wrote, so that another one
        can be written in its place."""
        self.written_by_newer.discard(name)
        for key, value in self._values_under(name + '/').items():
            self._set(ASIDE + key, value)
            self._set(key, None)

    def set_aside_unreadable(self, name: str, why: str = '') -> None:
        """Keep a document that cannot be read as damaged/..., and mark it as lost. `why`: the
        reason to report; '': the caller reports it."""
        self.set_aside(name)
        self.unreadable.add(name)
        self._mark_lost(name)
        if why:
            self.damaged.append((name, why))

    def get_entries(self, name: str, hints: Mapping[str, Any]) -> List[Dict[str, Any]]:
        """The entries of a document: objects with an integer `id`, and with the keys of `hints`,
        whose values have these type hints. If it contains anything else, the document is set aside
        and reported, and only the entries are returned. []: there is no such document."""
        document = self.get(name)
        if document is None:
            return []
        rows = document if isinstance(document, list) else []
        entries = [entry for entry in rows if _is_entry(entry, {'id': int, **hints})]
        if entries != document:
            self.set_aside_unreadable(name, 'it is no list of entries, or has malformed ones')
        return entries

    def remove(self, name: str) -> None:
        """Remove a document, unless a newer perfguard wrote it."""
        if name in self.written_by_newer:
            return
        self._unverified.pop(name, None)
        # The head first: a head without its parts would count as damaged.
        head = f'{name}/head'
        keys = [key for key in self._keys_under(name + '/') if key != head]
        if self._kv.get_store(head) is not None:
            keys.insert(0, head)
        for key in keys:
            self._set(key, None)
        # Parts without a head count as no document, so only a removed head must be read back.
        if name.startswith(VERIFIED) and head in keys:
            self._removed[name] = keys

    def put_or_remove(self, name: str, document: Any) -> None:
        """Write a document; one that is empty is removed."""
        if document:
            self.put(name, document)
        else:
            self.remove(name)

    def put_key(self, key: str, value: str) -> None:
        """Write a plain value."""
        self._set(key, value)

    @property
    def removing(self) -> bool:
        """Whether something was removed that was not read back."""
        return bool(self._removed) or None in self._noted.copy().values()

    def unverified(self) -> Dict[str, Optional[str]]:
        """The keys that have to be read back from the mons, with the values that they should have
        there; None: the key was removed. Of documents with a name in VERIFIED, and of notes."""
        expected = self._noted.copy()
        self._listed_notes = list(expected)
        for keys in self._removed.values():
            expected.update(dict.fromkeys(key for key in keys if key.endswith('/head')))
        for name in self._unverified:
            expected.update(self._values_under(name + '/'))
        return expected

    def is_verified(self, name: str) -> bool:
        """Whether the mons are known to have the last version of the document, or its removal."""
        return name not in self._unverified and name not in self._removed

    def expect_nothing(self) -> None:
        """Read back no more of what was written, and of the notes that `unverified` returned last:
        the mons have shown it, or another mgr may have replaced it."""
        self._unverified.clear()
        self._removed.clear()
        for key in self._listed_notes:
            self._noted.pop(key, None)

    def put_again(self) -> None:
        """Write values again that the mons did not store."""
        for name, document in list(self._unverified.items()):
            self.put(name, document)
        for keys in self._removed.values():
            for key in keys:
                self._set(key, None)
        for key, value in self._noted.copy().items():
            self._set(key, value)

    def note(self, prefix: str, document: Any, now: float) -> str:
        """Write a small document once, under a new name; returns the key, which ends with `now`
        (seconds since the epoch) in nanoseconds.

        One write, from one thread at a time: for requests that must survive between the answer of a
        command and the next turn of the loop.
        """
        self._last_note = max(self._last_note + 1, int(now * 1e9))
        key, value = '%s/%020d' % (prefix, self._last_note), json.dumps(document)
        self._set(key, value)
        self._noted[key] = value
        return key

    def notes(self, prefix: str) -> List[Tuple[str, Any]]:
        """(key, document) of the notes in the order they were written; unreadable ones are set
        aside and reported."""
        rows: List[Tuple[str, Any]] = []
        for key, value in sorted(self._values_under(prefix + '/').items()):
            try:
                rows.append((key, json.loads(value)))
            except ValueError as error:
                self._set(ASIDE + key, value)
                self._mark_lost(key)
                self.drop_note(key)
                self.damaged.append((key, 'unreadable: %s' % error))
        return rows

    def drop_note(self, key: str) -> None:
        """Remove a note."""
        self._noted[key] = None
        self._set(key, None)

    def names(self, prefix: str) -> List[str]:
        """Names of the documents that begin with `prefix`, sorted."""
        return sorted(key[:-len('/head')] for key in self._keys_under(prefix)
                      if key.endswith('/head'))

    def withheld(self) -> List[str]:
        """Documents of a newer perfguard that prevent all actions, because they describe changes of
        the cluster."""
        return sorted({name for prefix in STATE for name in self.names(prefix)
                       if self.is_newer(name)})

    def lost_earlier(self) -> List[str]:
        """Documents and notes that an earlier mgr could not read."""
        lost = {key[len(ASIDE):-len(LOST)] for key in self._keys_under(ASIDE)
                if key.endswith(LOST)}
        return sorted(lost - self.unreadable - {key for key, _ in self.damaged})

    def _mark_lost(self, name: str) -> None:
        """Mark a document or note as lost, for later mgrs."""
        self._set(ASIDE + name + LOST, 'could not be read')

    def _set(self, key: str, value: Optional[str]) -> None:
        """Write a value, or remove it (None)."""
        self._kv.set_store(key, value)
        keys = self._keys  # None: this key will be among those that are listed
        if keys is not None and value is not None:
            keys[key] = None
        elif keys is not None:
            keys.pop(key, None)

    def list_again(self) -> None:
        """List the keys when one is next looked for. Commands of an earlier mgr may have arrived
        since: it repeats those that were not answered, maybe hours later."""
        self._keys = None

    def _keys_under(self, prefix: str) -> List[str]:
        """The keys that begin with `prefix`."""
        keys = self._keys
        if keys is None:
            # Not None from now on: other threads add what they write while they are listed.
            keys = self._keys = {}
            try:
                keys.update(dict.fromkeys(self._kv.get_store_prefix('')))
            except BaseException:
                self._keys = None
                raise
        return [key for key in list(keys) if key.startswith(prefix)]

    def _values_under(self, prefix: str) -> Dict[str, str]:
        """The keys that begin with `prefix`, with their values."""
        values = ((key, self._kv.get_store(key)) for key in self._keys_under(prefix))
        return {key: value for key, value in values if value is not None}

    def _slot(self, name: str) -> str:
        """The slot of the parts that count; '' if there are none."""
        with contextlib.suppress(ValueError, LookupError, TypeError):
            return str(json.loads(self._kv.get_store(f'{name}/head') or '{}')['slot'])
        return ''


def _is_entry(entry: Any, hints: Mapping[str, Any]) -> bool:
    """Whether it is an object with values of these type hints."""
    try:
        for key, hint in hints.items():
            decode(hint, entry.get(key))
    except (AttributeError, Malformed):
        return False
    return True


# ---- Texts on unreadable parts of the stored state

#: Documents whose loss leaves nothing behind on the cluster: only the mgr that finds them
#: unreadable raises PERFGUARD_INTERRUPTED.
RECORDS = frozenset({'history', 'events', 'events_recent', 'watch', 'baseline', 'chronic',
                     'usual', 'provisional', 'lastclean', 'probe', 'probe-ids', 'probe-settings',
                     'advise'})
PINS_REMAIN_TEXT = 'if a campaign was active, its pins are still in the OSDMap'


class Loss(NamedTuple):
    """Something that could not be read."""
    text: str
    #: The damaged document; '' if it could be read and made no sense.
    document: str = ''


def new_losses(store: Store, lost: Sequence[str]) -> List[Loss]:
    """What this mgr could not read. `lost`: texts on documents that could be read, but had invalid
    contents."""
    losses = [Loss('cannot read %s' % text) for text in lost]
    losses += [Loss('%s: %s; set aside as %s%s' % (name, reason, ASIDE, name), name.split('/')[0])
               for name, reason in store.damaged]
    return losses + ([Loss(PINS_REMAIN_TEXT, 'campaign')] if 'campaign' in store.unreadable else [])


def earlier_losses(store: Store) -> List[Loss]:
    """Losses of earlier mgrs that no new campaign has acknowledged."""
    names = [name for name in store.lost_earlier() if name.split('/')[0] not in RECORDS]
    losses = [Loss('a previous mgr could not read %s; set aside as damaged/%s' % (name, name),
                   name.split('/')[0]) for name in names]
    return losses + ([Loss(PINS_REMAIN_TEXT, 'campaign')] if 'campaign' in names else [])


# ---- Whether the mons keep what was journalled, and whether this mgr may still act. Ceph only logs
# a write that fails, and an mgr reads its own cache. So important values are read back from the
# mons before commands are sent. The same reading shows another mgr that has become active: each
# writes its gid under `owner` when it does. A write may reach the mons late, when another mgr has
# taken over long ago: so the mgr that the MgrMap names owns the journal again.

#: Key of the mgr that became active last.
OWNER = 'owner'
#: Interval of reading the MgrMap while fenced, because the mgr converts the whole map each time,
#: and of reading back what was removed while that fails.
CLAIM_SECONDS = 30.0


class Mons(Protocol):
    def stored(self, keys: Sequence[str]) -> Mapping[str, Optional[str]]:
        """None: there is no such key; keys without an answer are left out."""

    def active_gid(self) -> int: ...


class Journal:
    """Whether this mgr may act, and whether the mons have stored what `Store.unverified` lists.

    Times are seconds since the epoch.
    """

    def __init__(self, mons: Mons, store: Store) -> None:
        self._mons = mons
        self._store = store
        self._gid = 0
        #: What this mgr writes under OWNER.
        self._token = ''
        #: Since `_take`, the mons have shown this mgr as the owner.
        self._owned = False
        #: Another mgr has become active: this one must not act anymore.
        self.fenced = False
        #: When the MgrMap was last read, or `claim` was first called since this mgr was fenced;
        #: None: not since `_take`.
        self._map_read_at: Optional[float] = None
        #: When removals were last read back, or `may_ask` last allowed a question; 0.0: never.
        self._read_back_at = 0.0
        #: Why no commands may be sent now: another owner or none; documents that the mons do not
        #: have. '' otherwise.
        self._not_owned = self._not_stored = ''

    @property
    def failure(self) -> str:
        """Why no commands may be sent now; '' if everything is stored."""
        return self._not_owned or self._not_stored

    def load(self, now: float) -> None:
        """Own the journal, once this mgr has become active."""
        self._take(self._mons.active_gid(), now)

    def _take(self, gid: int, now: float) -> None:
        """Own the journal: write the mark of this mgr, whose gid is `gid`."""
        self._gid, self._token = gid, '%d %.6f' % (gid, now)
        self._owned = self.fenced = False
        self._map_read_at, self._not_owned, self._not_stored = None, '', ''
        self._store.put_key(OWNER, self._token)

    def claim(self, now: float) -> bool:
        """While fenced: own the journal again if the MgrMap names this mgr as the active one, which
        is checked every CLAIM_SECONDS. Returns whether this mgr owns it again."""
        if self._map_read_at is None:
            # Read only after an interval: an mgr that is no longer active ends when it is notified.
            self._map_read_at = now
        if now - self._map_read_at < CLAIM_SECONDS:
            return False
        self._map_read_at = now
        if not self._gid or self._mons.active_gid() != self._gid:
            return False
        self._take(self._gid, now)
        return True

    def owns(self) -> bool:
        """Whether the mons show this mgr as the owner; checked before records are written, as
        another mgr uses the same keys. If not, `failure` says why."""
        return not self.fenced and self._check_owner(self._mons.stored([OWNER]))

    def is_stored(self) -> bool:
        """Whether the mons show this mgr as the owner, and have all that was written since the last
        time. If they lack some of it, it is written again. If not, `failure` says why.

        The mons are not asked if nothing was written that matters, and they have shown this mgr as
        the owner before.
        """
        if self.fenced:
            return False
        expected = self._store.unverified()
        if not expected and self._owned:
            self._not_stored = ''
            return True
        stored = self._mons.stored([OWNER, *expected])
        if not self._check_owner(stored):
            return False
        lost = sorted(key for key, value in expected.items()
                      if key not in stored or stored[key] != value)
        if lost:
            self._store.put_again()
            self._not_stored = ("the mons do not store perfguard's journal (%s): "
                                'perfguard sends no command') % listed(lost, 1)
            return False
        self._store.expect_nothing()
        self._not_stored = ''
        return True

    def read_back(self, now: float) -> bool:
        """At the beginning of a turn: read back what the last one removed, even if no command
        follows that requires this, and what the mons did not have. Returns False if it was read,
        and is not as expected.

        After a failure, at intervals: each question waits for mons that do not answer.
        """
        must_read = self._store.removing or bool(self._not_stored)
        if not must_read or self.failure and now - self._read_back_at < CLAIM_SECONDS:
            return True
        self._read_back_at = now
        return self.is_stored()

    def may_ask(self, now: float) -> bool:
        """Whether the mons may be asked before a record is written for which nothing waits. After a
        failure, this is so once in CLAIM_SECONDS, counted together with `read_back`."""
        if not self.failure:
            return True
        if now - self._read_back_at < CLAIM_SECONDS:
            return False
        self._read_back_at = now
        return True

    def _check_owner(self, values: Mapping[str, Optional[str]]) -> bool:
        """Whether the mons, which have these `values`, show this mgr as the owner. If not, note why
        it must not send commands. It is fenced if it was the owner and they show another one.
        Otherwise its mark is written again, unless it was the owner and they did not answer."""
        owner = values.get(OWNER)
        if owner == self._token:
            self._owned, self._not_owned = True, ''
            return True
        if self._owned and owner:
            self.fenced = True
            self._not_owned = ('the journal belongs to another mgr, which has become active '
                               '(gid %s): this mgr sends no command' % owner.split()[0])
            return False
        if not self._owned or OWNER in values:
            # Its own mark did not arrive, or was removed. Without an answer, another mgr may be
            # active now, whose mark a late write would replace.
            self._store.put_key(OWNER, self._token)
        self._not_owned = 'cannot read the journal back from the mons: perfguard sends no command'
        return False
