# SPDX-License-Identifier: LGPL-2.1-or-later
"""Keeps the upmaps that rescue degraded PGs: journals, puts, follows and removes them."""
from dataclasses import replace
from typing import AbstractSet, Callable, Dict, Iterable, List, Mapping, Optional, Tuple

from ..cluster.ports import Cluster
from ..cluster.types import Space, UpmapEntry, pool_of
from ..codec import encode, no_later_than
from ..events import Event
from ..ledger import Owner, Row
from ..observation import Observation
from ..options import Options
from ..rebalance.requests import unfit
from ..store import Store
from ..text import osds_text, pgs, pgs_are
from ..upmap.shares import Room
from ..upmap.semantics import Command, as_line, entry_commands
from .ladder import MITIGATION, READBACK_SECONDS
from .rescue import (AT_ONCE, TOOFULL, Rescue, RescueFacts, Stuck, any_too_full,
                     dropped_by_mons, has_own_entry, may_be_copying, may_return, plan_rescues,
                     questions, room_of, stuck, without_dropped_pairs)

#: The document in the store.
RESCUES_DOCUMENT = 'rescues'
#: Seconds between two readings of the OSDs' space, which is costly on large clusters, and until a
#: command is sent again that the OSDMap does not show.
SPACE_LOOK_SECONDS, RESEND_SECONDS = 10.0, 5.0
#: Seconds for which nothing moves before an upmap is removed: reports of PGs are late.
CALM_SECONDS = 15.0
#: Seconds after which an upmap is tried again that the mons did not accept. It doubles each time,
#: up to the maximum.
REFUSED_SECONDS, MOST_REFUSED_SECONDS = 600.0, 86400.0
#: Seconds that PGs have to answer before the next ones are asked.
ANSWER_SECONDS = 10.0


class Rescuing:
    """Once every turn of the loop:

    1. Follow: upmaps whose PGs have moved, or that others have replaced, are given up.
    2. Plan: degraded PGs that wait for OSDs that are too full get upmaps to OSDs with room, a few
       at a time.
    3. Journal: the upmaps are stored before any command is sent.
    4. Act: the commands are sent, unless the mons have not stored the journal.
    """

    def __init__(self, cluster: Cluster, store: Store, note: Callable[[Event], None],
                 journal_is_stored: Callable[[], bool], may_write: Callable[[], bool]) -> None:
        """`journal_is_stored`: whether the mons have stored the journal; `may_write`: whether this
        mgr owns it."""
        self._cluster = cluster
        self._store = store
        self._note = note
        self._journal_is_stored, self._may_write = journal_is_stored, may_write
        #: PG -> its rescue, and when its commands were last sent. Here and below, times are seconds
        #: since the epoch.
        self._rescues: Dict[str, Rescue] = {}
        self._sent_at: Dict[str, float] = {}
        #: PG whose upmap the mons did not accept -> when, and the seconds until the next attempt.
        self._refused: Dict[str, Tuple[float, float]] = {}
        #: PG whose upmap others have changed -> when, and the OSDs that were too full.
        self._overruled: Dict[str, Tuple[float, Tuple[int, ...]]] = {}
        #: PGs whose upmap a campaign holds, which restores it when it has released them.
        self._pinned: AbstractSet[str] = frozenset()
        #: (PG, command that failed the last time) -> the error, so that each failure is reported
        #: once.
        self._failures: Dict[Tuple[str, str], str] = {}
        #: The PG after which the next ones are looked up ('': from the first), and since when these
        #: are asked (0.0: never).
        self._last_checked, self._asked_since = '', 0.0
        #: OSD -> its space, and when that was read (0.0: never).
        self._space: Mapping[int, Space] = {}
        self._space_read_at = 0.0
        #: Since when PGs have waited for OSDs that are too full; None: no PG waits.
        self._toofull_since: Optional[float] = None
        #: Since when the cluster has been quiet (`_is_quiet`) without the removal of an upmap;
        #: None: not in the last turn.
        self._calm_since: Optional[float] = None
        #: For `status`: in this turn, and in the last one.
        self.remarks: Tuple[str, ...] = ()
        self._last_remarks: Tuple[str, ...] = ()
        #: Whether some of the PGs that were asked have not answered yet.
        self._is_waiting = False

    def load(self, now: float) -> List[str]:
        """Read the stored rescues; returns texts on what cannot be read."""
        self._rescues, self._sent_at, self._refused, self._last_checked = {}, {}, {}, ''
        self._failures, self._overruled = {}, {}
        self._rescues, errors = self._store.load(RESCUES_DOCUMENT, Dict[str, Rescue], {})
        self._rescues = no_later_than(Dict[str, Rescue], self._rescues, now)
        return ['the upmaps of rescued PGs (%s)' % error for error in errors]

    @property
    def held(self) -> List[Row]:
        """Upmaps in force, with the command that removes each."""
        return [Row(Owner.MITIGATION, 'upmap of PG ' + pgid, str(list(rescue.before.items)),
                    str(list(rescue.entry.items)), rescue.since,
                    '; '.join(as_line(command)
                              for command in entry_commands(pgid, rescue.entry, rescue.before)))
                for pgid, rescue in sorted(self._rescues.items())
                if pgid not in self._pinned]

    def turn(self, observation: Observation, options: Options, pinned: AbstractSet[str],
             campaign: bool, shutting_down: bool, drained: Iterable[int] = ()) -> None:
        """Run one turn: follow the present upmaps, plan new ones, and send what is due. `pinned`:
        PGs that a campaign holds; `campaign`: one is active; `shutting_down`: perfguard is to be
        disabled; `drained`: OSDs that the campaign empties."""
        self._last_remarks, self.remarks = self.remarks, ()
        self._prune(observation.now)
        if shutting_down:
            if self._rescues and self._may_write():
                self._hand_over()
            return
        toofull = observation.signals.counts.backfill_toofull > 0
        self._toofull_since = (self._toofull_since or observation.now) if toofull else None
        if not observation.osdmap.osds or not (self._rescues or self._overruled or toofull) \
                or not self._may_write():
            return
        facts = RescueFacts(observation, self._recent_space(observation.now), pinned,
                            self._rescues,
                            observation.orchestrating.removing.union(drained),
                            self._cluster.hard_pg_limit())
        self._overruled = {pgid: (when, full) for pgid, (when, full) in self._overruled.items()
                           if observation.now - when < MOST_REFUSED_SECONDS
                           and any_too_full(full, pgid, facts)}
        acts = options.mitigation_mode == 'act'
        rescues = self._follow_all(facts, campaign, acts)
        facts = facts._replace(rescued=rescues)
        lasting = self._toofull_since is not None \
            and observation.now - self._toofull_since >= options.mitigation_seconds
        if lasting and options.mitigation_mode != 'off':
            rescues.update(self._plan(facts, rescues, options.mitigation_mode))
        self._put(rescues)
        self._pinned = pinned & rescues.keys()
        self._send(observation, acts)

    def _prune(self, now: float) -> None:
        """Forget old refusals, and failures of PGs that are not tried again."""
        self._refused = {pgid: (when, pause) for pgid, (when, pause) in self._refused.items()
                         if now - when <= 2 * MOST_REFUSED_SECONDS}
        self._failures = {key: error for key, error in self._failures.items()
                          if key[0] in self._rescues or key[0] in self._refused}

    def _hand_over(self) -> None:
        """At shutdown, forget all rescues and leave their upmaps to the operator: without them the
        PGs would move to OSDs that are too full."""
        if self.held:
            self._note(Event(MITIGATION, 'the upmaps of %s remain' % pgs(len(self.held)),
                             'perfguard is shutting down, and removing them would send the PGs to '
                             'OSDs that were too full'))
        self._put({})

    def _recent_space(self, now: float) -> Mapping[int, Space]:
        """OSD -> its space, as read in the last SPACE_LOOK_SECONDS."""
        if now - self._space_read_at >= SPACE_LOOK_SECONDS:
            self._space, self._space_read_at = self._cluster.osd_space(), now
        return self._space

    def _put(self, rescues: Dict[str, Rescue]) -> None:
        """Replace the rescues by these, also in the store."""
        if rescues == self._rescues:
            return
        self._store.put_or_remove(RESCUES_DOCUMENT, encode(rescues, Dict[str, Rescue]))
        self._rescues = rescues
        self._sent_at = {pgid: when for pgid, when in self._sent_at.items() if pgid in rescues}

    # ---- upmaps in force

    def _follow_all(self, facts: RescueFacts, campaign: bool, acts: bool) -> Dict[str, Rescue]:
        """Follow the present rescues. Returns PG -> its rescue after this turn, without those that
        are over. One upmap at a time is removed, while the cluster is calm. A removal that has not
        happened is given up once the PG must stay. `campaign`: one is active; `acts`:
        mitigation_mode is act."""
        rescues: Dict[str, Rescue] = {}
        is_quiet = _is_quiet(facts.observed, campaign)
        may_remove = self._is_calm(facts.observed.now, is_quiet)
        being_removed = any(rescue.returning for rescue in self._rescues.values())
        room = room_of(facts) if may_remove or being_removed else Room({}, 0.0)
        for pgid, rescue in sorted(self._rescues.items()):
            followed = self._follow(pgid, rescue, facts, acts)
            if followed is None:
                continue
            # One whose new OSDs are too full returns although its PG is degraded.
            is_stuck = pgid in facts.observed.osdmap.pg_temp and not may_be_copying(pgid, facts)
            may_still_execute = \
                facts.observed.now - facts.observed.unanswered_at < RESEND_SECONDS
            if followed.returning and not may_still_execute \
                    and self._is_due(pgid, facts.observed.now) and not (
                    is_stuck or is_quiet and may_return(pgid, followed, facts.observed, room)):
                followed = replace(followed, returning=False)
                self._note(Event(MITIGATION, 'the upmap of PG %s remains' % pgid,
                                 '%s cannot take the PG now' % osds_text(rescue.full) if is_quiet
                                 else 'a campaign is active, or PGs are degraded or move'))
            is_in_force = followed.seen and not followed.returning and pgid not in facts.pinned
            if may_remove and is_in_force and may_return(pgid, followed, facts.observed, room):
                # One at a time.
                may_remove, self._calm_since = False, None
                followed = replace(followed, returning=True)
                self._note_return(pgid, rescue)
                self._sent_at.pop(pgid, None)
            rescues[pgid] = followed
        return rescues

    def _note_return(self, pgid: str, rescue: Rescue) -> None:
        self._note(Event(MITIGATION, 'the upmap of PG %s is being removed' % pgid,
                         '%s room again' % _osds(rescue.full, ' has', ' have')))

    def _is_calm(self, now: float, is_quiet: bool) -> bool:
        """Whether the cluster has been quiet for CALM_SECONDS. `is_quiet`: in this turn."""
        self._calm_since = (self._calm_since or now) if is_quiet else None
        return self._calm_since is not None and now - self._calm_since >= CALM_SECONDS

    def _follow(self, pgid: str, rescue: Rescue, facts: RescueFacts,
                acts: bool) -> Optional[Rescue]:
        """The rescue after this turn, by what the OSDMap shows of it; None: it is over: removed,
        given up, or its pool is gone. `acts`: mitigation_mode is act."""
        osdmap, now = facts.observed.osdmap, facts.observed.now
        entry = osdmap.entry(pgid)
        if pool_of(pgid) not in osdmap.pools:
            return None
        if pgid in facts.pinned:
            # The campaign restores the upmap when it has released the PG.
            return replace(rescue, returning=False)
        if rescue.seen:
            rescue = without_dropped_pairs(rescue, entry)
        if rescue.returning:
            return rescue if entry == rescue.entry else None
        if not has_own_entry(rescue, osdmap, pgid):
            self._give_up(pgid, rescue, facts)
            return None
        if entry == rescue.entry:
            if not rescue.seen:
                self._refused.pop(pgid, None)
            return replace(rescue, seen=True, replaced=None)
        if now - max(rescue.since, facts.observed.unanswered_at) > READBACK_SECONDS:
            _, pause = self._refused.get(pgid, (0.0, REFUSED_SECONDS / 2))
            if acts:
                self._refused[pgid] = now, min(2 * pause, MOST_REFUSED_SECONDS)
            self._note(Event(MITIGATION, 'the upmap of PG %s is given up' % pgid,
                             'the mons did not accept it within %d s' % READBACK_SECONDS if acts
                             else 'mitigation_mode is not act'))
            # The entry that it was to replace is still ours.
            return _as_before(rescue) if entry == rescue.replaced else None
        return rescue

    def _give_up(self, pgid: str, rescue: Rescue, facts: RescueFacts) -> None:
        """Note that the upmap of a rescue is given up: a campaign, the mons, or others outside
        perfguard have changed it. After a change by others, the PG is left alone for a while."""
        why = 'a campaign has replaced it'
        if pgid not in self._pinned:
            why = 'it was changed outside perfguard'
            if not dropped_by_mons(pgid, rescue, facts.observed):
                self._overruled[pgid] = facts.observed.now, rescue.full
                why += ', which leaves the PG alone for a day, or until %s room' % _osds(
                    rescue.full, ' has', ' have')
        self._note(Event(MITIGATION, 'the upmap of PG %s is given up' % pgid, why))

    # ---- new upmaps

    def _plan(self, facts: RescueFacts, rescues: Mapping[str, Rescue],
              mode: str) -> Dict[str, Rescue]:
        """Plan rescues of degraded PGs that wait for full OSDs, and set the remarks. Returns PG ->
        its new rescue, or its existing one if the upmap of that is to be removed (`returning`);
        none if `mode`, the option mitigation_mode, is not act. `rescues`: those that exist."""
        why = unfit(facts.observed.osdmap)
        if why:
            self.remarks = ('no upmap can map degraded PGs away from full OSDs: ' + why,)
            return {}
        toofull = self._waiting_for_full_osds(facts)
        stuck_pgs = {pg.pgid for pg in toofull}
        in_progress = sum(1 for pgid, rescue in rescues.items() if not rescue.seen
                          or pgid not in stuck_pgs and may_be_copying(pgid, facts))
        planned = plan_rescues(toofull, facts, AT_ONCE - in_progress) if toofull else {}
        overruled = sum(pgid in facts.observed.osdmap.pg_temp for pgid in self._overruled)
        self._remark(overruled, '%s changed outside perfguard' % (
            'its upmap was' if overruled == 1 else 'their upmaps were'))
        if mode != 'act' and planned:
            self._remark(len(planned), 'mitigation_mode act would map them to OSDs with room')
            return {}
        self._remark(len(toofull) - len(planned),
                     'perfguard maps a few at a time to OSDs with room' if planned or in_progress
                     else 'no other OSD that their CRUSH rule allows has room')
        if self._is_waiting:
            self.remarks = self.remarks or self._last_remarks
        for pgid, rescue in planned.items():
            self._sent_at.pop(pgid, None)
            if rescue.returning:
                self._note_return(pgid, rescue)
                continue
            self._note(Event(
                MITIGATION, 'PG %s is mapped to %s' % (pgid, osds_text(rescue.taken_by)),
                'it is degraded and waits for %s too full' % _osds(
                    rescue.full, ', which is', ', which are')))
        return planned

    def _waiting_for_full_osds(self, facts: RescueFacts) -> List[Stuck]:
        """Ask the primaries of some PGs that may be stuck; returns the PGs that wait for full OSDs,
        by the answers so far. The next PGs are asked in a later turn."""
        now = facts.observed.now
        refused = {pgid for pgid, (when, pause) in self._refused.items() if now - when < pause}
        candidates, last = stuck(facts, self._last_checked, refused | self._overruled.keys())
        to_ask = questions(candidates)
        answers = self._cluster.inquire(to_ask) if to_ask else {}
        self._is_waiting = len(answers) < len(to_ask)
        if not self._is_waiting or now - self._asked_since >= ANSWER_SECONDS:
            # Answers arrive in a later turn: the next PGs are asked once these have answered.
            self._last_checked, self._asked_since = last, now
        toofull = {question.pgid for question, state in answers.items() if TOOFULL in state}
        return [pg for pg in candidates if pg.pgid in toofull]

    def _remark(self, number: int, text: str) -> None:
        """Add a remark on so many PGs that wait for full OSDs; none if there are 0."""
        if number:
            self.remarks += ('%s degraded and %s for OSDs that are too full: %s' % (
                pgs_are(number), 'waits' if number == 1 else 'wait', text),)

    # ---- commands

    def _is_due(self, pgid: str, now: float) -> bool:
        """Whether a command for the PG may be sent: none was within RESEND_SECONDS, whose effect
        the OSDMap may not show yet."""
        return now - self._sent_at.get(pgid, -RESEND_SECONDS) >= RESEND_SECONDS

    def _send(self, observation: Observation, acts: bool) -> None:
        """Send the upmaps that the OSDMap does not show yet, and again after RESEND_SECONDS. Unless
        perfguard `acts`, upmaps that the OSDMap has never shown are only awaited: the mons may have
        accepted them."""
        commands: List[Command] = []
        sent_pgids: List[str] = []
        for pgid, rescue in sorted(self._rescues.items()):
            present = observation.osdmap.entry(pgid)
            entry: UpmapEntry = rescue.before if rescue.returning else rescue.entry
            if pgid in self._pinned or not (acts or rescue.seen):
                continue
            if present != entry and self._is_due(pgid, observation.now):
                commands += entry_commands(pgid, present, entry)
                sent_pgids.append(pgid)
        if not commands or not self._journal_is_stored():
            return
        self._sent_at.update(dict.fromkeys(sent_pgids, observation.now))
        for command, reply in zip(commands, self._cluster.run(commands)):
            line, error = as_line(command), reply.error or 'no answer'
            pgid = str(command['pgid'])
            if reply.retval == 0:
                self._failures.pop((pgid, line), None)
            elif self._failures.get((pgid, line)) != error:
                self._failures[pgid, line] = error
                self._note(Event('failed', '%s: %s' % (line, error)))


def _as_before(rescue: Rescue) -> Rescue:
    """The rescue that `rescue` was to replace, whose entry is still in the OSDMap."""
    assert rescue.replaced is not None
    takers = tuple(taker for source, taker in rescue.replaced.items
                   if (source, taker) not in rescue.before.items)
    return replace(rescue, entry=rescue.replaced, taken_by=takers, seen=True, replaced=None)


def _is_quiet(observation: Observation, campaign: bool) -> bool:
    """Whether nothing moves or is degraded. `campaign`: one is active."""
    counts = observation.signals.counts
    # PGs that are clean and remapped have no other place to go to.
    return not (campaign or counts.degraded or counts.inactive or counts.in_transition
                or counts.backfill_toofull
                or len(observation.osdmap.pg_temp) > counts.remapped_clean)


def _osds(osds: Tuple[int, ...], singular: str, plural_form: str) -> str:
    """"osd.3 has", "osd.3, osd.4 have"."""
    return osds_text(osds) + (singular if len(osds) == 1 else plural_form)
