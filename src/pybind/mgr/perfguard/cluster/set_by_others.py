# SPDX-License-Identifier: LGPL-2.1-or-later
"""Flags, modes of the autoscaler, states of the balancer and primary affinities that others have
set, from the audit log of the mons.

The OSDMap shows neither who has set a flag nor that it was set a second time, which changes
nothing. The mons write each command that they receive to the audit log, with the entity that sent
it, and pass new entries to the active mgr, within about a second. What was written before this mgr
became active is read once: Pacific's mons report the last 50 entries only, so that an earlier
command may be missed there, and so may one whose entry is not there yet when the flag is cleared.
The mgr writes "balancer on" and "balancer off" to the same log, but as debug messages, which no mgr
receives: they are only found by reading the log.
"""
import datetime
import json
import re
import threading
from typing import (AbstractSet, Callable, Dict, FrozenSet, Iterable, Mapping, NamedTuple,
                    Optional, Tuple)

#: A command that a mon has received: in brackets up to Reef.
_COMMAND = re.compile(r"entity='(?P<entity>[^']*)' cmd=\[?(?P<command>\{.*\})\]? ?: dispatch$")
#: Messages with the commands that count contain one of these; other entries are not parsed.
_SETTING_COMMANDS = ('"osd set"', '"osd unset"', 'pg_autoscale_mode', 'balancer',
                     'primary-affinity')
#: Commands of mgrs are perfguard's, or those of other modules: the dashboard only sends changes.
_MGR = 'mgr.'
#: Settings whose values are followed: the option of the balancer, and prefixes for the mode of a
#: pool's autoscaler and for the primary affinity of an OSD. The mons do not log "config set", and
#: the history of the configuration lacks those that change nothing.
BALANCER, AUTOSCALE_OF_POOL = 'mgr/balancer/active', 'pg_autoscale_mode of '
AFFINITY_OF_OSD = 'primary affinity of osd.'
#: Several mons write the log, and entries may arrive in another order. Their times count if they
#: differ by no more from the time of arrival: the clock of a mon may be wrong, and be set right.
SKEW_SECONDS = 5.0
#: Maximum time between a command and the OSDMap that shows the flag it sets.
SHOWN_SECONDS = 60.0


class SetByOthers:
    """`hear` may be called by any thread. `now`: seconds since the epoch."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        #: Flag -> when others have last sent a command that sets it, and when anyone (mgrs
        #: included) has last sent one that clears it, in seconds since the epoch.
        self._set: Dict[str, float] = {}
        self._cleared: Dict[str, float] = {}
        #: Flags of the OSDMap, and since when they are set; None: no OSDMap was seen yet.
        self._set_since: Optional[Dict[str, float]] = None
        #: Setting -> the value that others have set last, and when, in seconds since the epoch.
        self._values: Dict[str, Tuple[str, float]] = {}

    def read(self, entries: Iterable[Mapping[str, object]], now: float) -> None:
        """`entries`: earlier ones, as "log last" reports them."""
        self._note(entries, lambda when: min(when, now))

    def hear(self, entry: Mapping[str, object], now: float) -> None:
        """`entry`: a new one, as the mgr passes it to modules."""
        self._note([entry], lambda when: when if abs(when - now) <= SKEW_SECONDS else now)

    def _note(self, entries: Iterable[Mapping[str, object]],
              heard: Callable[[float], float]) -> None:
        """Note when each flag was last set by others than mgrs, when anyone last cleared it, and
        the values that others than mgrs have set. Entries that set nothing have no effect. `heard`:
        the time of a command, from that of its entry."""
        for entry in entries:
            sent = _sent(entry)
            if sent is None:
                continue
            when, is_of_mgr = heard(sent.when), sent.entity.startswith(_MGR)
            change, value = _flag_change(sent.command), _value(sent.command)
            with self._lock:
                # Whoever clears a flag, mgrs included, ends what others have set.
                if change is not None and not (change.sets and is_of_mgr):
                    times = self._set if change.sets else self._cleared
                    times[change.flag] = max(when, times.get(change.flag, 0.0))
                if value is not None and not is_of_mgr \
                        and when >= self._values.get(value.setting, ('', 0.0))[1]:
                    self._values[value.setting] = value.value, when

    def values(self) -> Mapping[str, Tuple[str, float]]:
        """Setting -> the value that others have set last, and when, in seconds since the epoch."""
        with self._lock:
            return dict(self._values)

    def see(self, flags: AbstractSet[str], now: float) -> None:
        """Note the flags of the present OSDMap, for the thread that calls `flags`: an entry of the
        log may be lost, and a command does not count beyond an OSDMap without its flag."""
        since = dict.fromkeys(flags, 0.0) if self._set_since is None else self._set_since
        self._set_since = {flag: since.get(flag, now) for flag in flags}

    def flags(self) -> FrozenSet[str]:
        """Flags that others have set, and that were not cleared since."""
        since = self._set_since or {}
        # If the OSDMap shows a flag only since long after the command, it lacked the flag in
        # between, and another command has set it.
        with self._lock:
            return frozenset(
                flag for flag, when in self._set.items()
                if when > max(self._cleared.get(flag, 0.0), since.get(flag, 0.0) - SHOWN_SECONDS))


class _Sent(NamedTuple):
    """A command that a mon or the mgr has received."""
    entity: str
    command: Mapping[str, object]
    when: float


def _sent(entry: Mapping[str, object]) -> Optional[_Sent]:
    """The command in an entry of the log; None: it is none, or none that sets what counts here."""
    message = str(entry.get('message'))
    match = _COMMAND.search(message) if entry.get('channel') == 'audit' \
        and any(word in message for word in _SETTING_COMMANDS) else None
    when = None if match is None else _seconds(str(entry.get('stamp')))
    if match is None or when is None:
        return None
    try:
        return _Sent(match['entity'], json.loads(match['command']), when)
    except ValueError:
        return None


class _FlagChange(NamedTuple):
    flag: str
    #: It sets the flag, or clears it.
    sets: bool


def _flag_change(command: Mapping[str, object]) -> Optional[_FlagChange]:
    """The flag that a command sets or clears; None: it is another command."""
    prefix = command.get('prefix')
    if prefix not in ('osd set', 'osd unset') or 'key' not in command:
        return None
    return _FlagChange(str(command['key']), prefix == 'osd set')


class _Value(NamedTuple):
    setting: str
    value: str


def _value(command: Mapping[str, object]) -> Optional[_Value]:
    """The setting that a command sets, and its value; None: it is another command."""
    prefix = command.get('prefix')
    if prefix in ('balancer on', 'balancer off'):
        return _Value(BALANCER, 'true' if prefix == 'balancer on' else 'false')
    if prefix == 'osd pool set' and command.get('var') == 'pg_autoscale_mode' \
            and 'pool' in command and 'val' in command:
        return _Value(AUTOSCALE_OF_POOL + str(command['pool']), str(command['val']))
    if prefix == 'osd primary-affinity' and 'id' in command and 'weight' in command:
        return _Value(AFFINITY_OF_OSD + str(command['id']).replace('osd.', ''),
                      str(command['weight']))
    return None


def _seconds(stamp: str) -> Optional[float]:
    try:
        return datetime.datetime.strptime(stamp, '%Y-%m-%dT%H:%M:%S.%f%z').timestamp()
    except ValueError:
        return None
