# SPDX-License-Identifier: LGPL-2.1-or-later
"""Further inputs of the decision of a campaign's turn, besides the common observation."""
from dataclasses import dataclass, replace
from typing import (Callable, Dict, FrozenSet, List, Mapping, NamedTuple, Optional, Sequence,
                    Tuple, Union)

from ..cluster.ports import Cluster, Future, NoFuture, Outlook, View
from ..cluster.tool_thread import Recomputed, ToolJob, ToolThread
from ..cluster.types import QUEUE, ConfigEntry, OsdMap, Question, UpmapEntry, pool_of
from ..events import Event
from ..observation import Observation
from ..options import Options
from ..text import plural
from ..upmap.semantics import PoolUp, pgs_lacking_osds, with_down_osds
from . import copying, goals
from .campaign import Basis, Campaign, GoalsMark
from .campaign_store import PinStore, document_parts
from .campaigns import CampaignContext
from .change import Change, ChangeStage
from .crush_orders import CrushOrders
from .epochs import pin_limit
from .join_plan import for_same_mons, renewed
from .joining import change_is_overdue, wants_outlook
from .release_moves import ReleaseMoves
from .types import RELEASING_PHASES, Bounds, Phase, PinRecord

#: The balancer decides to make a plan, copies the OSDMap (about a second for a huge one), and only
#: then reports that it is busy. If it is switched off in between, it still makes and executes the
#: plan (balancer/module.py, serve). It rests once it has been off and idle for this time.
BALANCER_REST_SECONDS = 2.0
#: Seconds until Ceph's tools compute again what CRUSH chooses, after they failed.
RAW_SECONDS = 60.0
#: Number of times that a preview is computed until it counts as failed, and the seconds before it
#: is computed again: the mons may be electing a leader, or a tool was killed for lack of memory.
PREVIEW_TIMES = 5
PREVIEW_SECONDS = 20.0
#: Number of times in a row that the OSDMap changes during the computation, and their seconds, until
#: it counts as failed: OSDs may go down and up all the time, and other orders wait for the tools.
OUTDATED_TIMES, OUTDATED_SECONDS = 10, 600.0


class TurnInputs:
    """Completes the observation: whether the balancer rests, the mapping after the campaign's
    change, the schedulers of OSDs. Keeps data from one turn to the next."""

    def __init__(self, cluster: Cluster, orders: CrushOrders, tools: ToolThread) -> None:
        self._cluster = cluster
        self._orders = orders
        self._previews = ChangePreviews(tools, orders)
        #: Schedulers of the OSDs (osd_op_queue); empty: unknown.
        self._schedulers: FrozenSet[str] = frozenset()
        #: The configuration database, for the OSDs to ask; None: not read yet.
        self._entries: Optional[Tuple[ConfigEntry, ...]] = None
        #: Since when the balancer has been off and idle; None: it was not. A campaign that an
        #: earlier mgr has begun finds a balancer that started with this mgr, switched off.
        self._balancer_idle_since: Optional[float] = 0.0

    def begin(self) -> None:
        """Forget what was kept for an earlier campaign: another one begins."""
        self._previews.forget()
        self._balancer_idle_since = None

    def with_balancer(self, observation: Observation) -> Observation:
        """`observation` with a balancer that counts as busy until it has been off and idle for a
        moment: it may still execute a plan that it began to make before."""
        settings = observation.settings
        if settings.balancer_active != 'false' or settings.balancer_busy:
            self._balancer_idle_since = None
            return observation
        if self._balancer_idle_since is None:
            self._balancer_idle_since = observation.now
        rests = observation.now - self._balancer_idle_since >= BALANCER_REST_SECONDS
        return replace(observation, settings=replace(settings, balancer_busy=not rests))

    def complete(self, campaign: Campaign, observation: Observation,
                 options: Options) -> Observation:
        """`observation` with the further inputs that the phase of the campaign needs."""
        observation = self._with_schedulers(campaign, self._with_outlook(campaign, observation),
                                            options)
        if change_is_overdue(campaign, observation, options) \
                and self._orders.mgr_is_behind_mons(observation):
            # No change counts as lost while the mons have a newer CRUSH map than this mgr.
            return replace(observation, unanswered_at=observation.now)
        return observation

    def _with_outlook(self, campaign: Campaign, observation: Observation) -> Observation:
        """`observation` with the mapping after the campaign's change, if it is about to be sent."""
        change = campaign.change
        if campaign.phase is not Phase.PINNING or change is None \
                or change.stage is not ChangeStage.WANTED:
            self._previews.forget()  # "campaign resume" begins with another one
        if change is None or change.stage is ChangeStage.LANDED:
            return observation
        observation = replace(observation, overtaken=self._orders.overtaken(observation, change))
        if observation.overtaken or not wants_outlook(campaign, observation):
            return observation
        return replace(observation, outlook=self._previews.outlook(change, observation),
                       outlook_failure=self._previews.failure)

    def _with_schedulers(self, campaign: Campaign, observation: Observation,
                         options: Options) -> Observation:
        """`observation` with the schedulers of some OSDs, if their recovery may be paced. OSDs are
        asked until all of them have answered, each time that releases begin."""
        if options.pace_copying == copying.OFF or campaign.phase not in RELEASING_PHASES:
            # The OSDs may use another scheduler when releases continue, or in the next campaign.
            self._schedulers, self._entries = frozenset(), None
            return observation
        if not self._schedulers:
            if self._entries is None:
                self._entries = self._cluster.config_entries()
            osds = copying.some_osds(observation.osdmap, copying.queue_kinds(
                self._cluster.osd_versions(observation.osdmap.osds), self._entries or (),
                observation.crush))
            questions = [Question(osd, option=QUEUE) for osd in osds]
            answers = self._cluster.inquire(questions)
            if len(answers) == len(questions):
                self._schedulers = frozenset(answers.values())
        return replace(observation, schedulers=self._schedulers)


def same_placement(a: Observation, b: Observation) -> bool:
    """Whether a mapping computed for one OSDMap is valid for the other, except for where PGs are,
    which join_plan.renewed brings up to date.

    The fullness of OSDs and pools, quotas and the autoscaler change all the time, and have no
    effect on placement.
    """
    return a.osdmap.epoch == b.osdmap.epoch or what_places(a) == what_places(b)


def what_places(observation: Observation) -> Tuple[object, ...]:
    """All that the placement of PGs depends on, to find out whether it has changed."""
    osdmap = observation.osdmap
    osds = {osd.id: replace(osd, fullness='') for osd in osdmap.osds.values()}
    # hashpspool is the only flag of a pool that affects placement.
    pools = {pool.id: replace(pool, name='', autoscale_mode='', quota_bytes=0, quota_objects=0,
                              pg_num_min=0, pg_num_max=0, flags=pool.flags & {'hashpspool'})
             for pool in osdmap.pools.values()}
    return (observation.crush_version, osds, pools, osdmap.upmap_items, osdmap.upmap_vectors,
            osdmap.upmap_primaries)


@dataclass(frozen=True)
class _Preview:
    """A preview of a change that is being computed, or has been."""
    change: Change
    #: The observation that it is based on.
    basis: Observation
    job: ToolJob[Outlook]


class ChangePreviews:
    """Where CRUSH will place the PGs after a change, for the OSDMap of each turn.

    A result serves until the change is sent: the mons take a moment to gather commands for longer.
    """

    def __init__(self, tools: ToolThread, orders: CrushOrders) -> None:
        self._tools = tools
        self._crush_orders = orders
        #: The last preview; None: there is none that serves or is being computed.
        self._preview: Optional[_Preview] = None
        #: The change of the previews, how many of its previews have failed, and when the next one
        #: is due (seconds since the epoch; 0.0: at once).
        self._change: Optional[Change] = None
        self._failures, self._due = 0, 0.0
        #: How many previews in a row were for an OSDMap that had changed when they were done, and
        #: when the first of these was done (seconds since the epoch).
        self._outdated, self._outdated_since = 0, 0.0
        #: Why the last preview failed; '': none has, or the result is final.
        self.failure = ''
        #: The final result after too many failures; None: previews are computed.
        self._given_up: Optional[NoFuture] = None

    def outlook(self, change: Change, observation: Observation) -> Optional[Outlook]:
        """Where CRUSH places the PGs with the change; None: that is being computed, or will be
        computed again. A result is never used in the turn that requested it, since the OSDMap may
        have changed meanwhile."""
        change = replace(change, gathers=False)  # which does not affect the result
        if change != self._change:
            self.forget()
            self._change = change
        if self._given_up is not None:
            return self._given_up
        preview = self._preview
        if preview is None:
            if observation.now >= self._due:
                self._begin(change, observation)
            return None
        if not preview.job.done:
            return None
        # Removed first: its error must not be raised in every later turn, nor for the next order.
        self._preview = None
        outlook = preview.job.result()
        if isinstance(outlook, NoFuture):
            return self._note_failure(outlook, observation.now)
        if not same_placement(preview.basis, observation):
            # The OSDMap has changed meanwhile. Without an outlook PGs would be remapped before they
            # are pinned, so this is repeated.
            if not self._outdated:
                self._outdated_since = observation.now
            self._outdated += 1
            if self._outdated >= OUTDATED_TIMES \
                    and observation.now - self._outdated_since >= OUTDATED_SECONDS:
                self._given_up = NoFuture('OSDs, pools or upmaps have changed during each of %d '
                                          'computations' % self._outdated)
                return self._given_up
            self._begin(change, observation)
            return None
        self._preview, self._failures, self._outdated, self.failure = preview, 0, 0, ''
        return renewed(outlook, preview.basis, observation, change)

    def _note_failure(self, no_future: NoFuture, now: float) -> Optional[Outlook]:
        """Note a failed preview; returns the result if it is final, else None."""
        if self._failures + 1 >= PREVIEW_TIMES:
            self._given_up, self.failure = no_future, ''
            return no_future
        self._failures += 1
        self.failure, self._due = no_future.reason, now + PREVIEW_SECONDS
        return None

    def forget(self) -> None:
        """Discard all results: the change is sent or given up, or another campaign begins, in which
        the same change may be one of another CRUSH map."""
        if self._preview is not None:
            self._preview.job.cancelled = True
        self._preview = self._change = self._given_up = None
        self._failures, self._due, self._outdated, self.failure = 0, 0.0, 0, ''

    def _begin(self, change: Change, observation: Observation) -> None:
        job = self._tools.submit(self._crush_orders.foreseeing(observation, change), first=True)
        self._preview = None if job is None else _Preview(change, observation, job)


class NewGoals(NamedTuple):
    """What the campaign has to note on its goals."""
    mark: GoalsMark
    #: None: some goals are yet to be stored.
    event: Optional[Event] = None


class _Storing(NamedTuple):
    """Goals that are being stored."""
    ground: goals.Ground
    new_goals: goals.Goals
    #: What is yet to be stored, each in one value.
    parts: List[Dict[str, PinRecord]]

    def serves(self, campaign: Campaign, basis: Basis, goals_fit: bool) -> bool:
        """Whether the campaign needs these goals. `goals_fit`: the pins have theirs already."""
        return not goals_fit and self.ground.campaign.id == campaign.id \
            and self.ground.basis.covers(basis)


class _NewRaws(NamedTuple):
    """Raw sets that are being stored."""
    basis: Basis
    #: The pins that they were computed for.
    known: Mapping[str, PinRecord]
    #: What is yet to be stored, each in one value.
    parts: List[Dict[str, PinRecord]]
    #: Why the raw sets are not known; '': they are.
    failure: str


def _raws_shown(outlook: Outlook, vectors: Mapping[str, PinRecord], basis: Basis) -> _NewRaws:
    """The pins of `vectors` to store, with their raw sets in the present mapping `outlook`, where
    these are other than recorded."""
    failure = outlook.reason if isinstance(outlook, NoFuture) else ''
    raws = {} if isinstance(outlook, NoFuture) else {
        pgid: pg.raw for pgid, pg in outlook.pgs.items()}
    changed = {pgid: replace(pin, raw=raws.get(pgid), goal=_lasting_goal(pin))
               for pgid, pin in vectors.items() if pin.raw != raws.get(pgid)}
    return _NewRaws(basis, vectors, list(document_parts(changed, vectors)), failure)


class PinGoals:
    """Keeps the goals of the pins, and the raw sets behind pins that are vectors, up to date.

    A goal is the upmap entry that the release of the PG sets; a raw set is where CRUSH alone places
    it. Both depend on the OSDMap and CRUSH. The tool thread computes them again when these change,
    and they are stored in the pins before they are used. Times are seconds since the epoch.
    """

    def __init__(self, context: CampaignContext, pins: PinStore,
                 release_moves: ReleaseMoves) -> None:
        self._cluster = context.cluster
        self._note, self._may_write = context.note, context.may_write
        self._pins = pins
        self._release_moves = release_moves
        #: The basis of the goals (None: not known yet), and since when it is unchanged: PGs peer
        #: for a while after a change.
        self._basis: Optional[Basis] = None
        self._basis_since = 0.0
        #: The basis of the stored raw sets (None: not known), and when the tools, after a failure,
        #: compute raw sets again.
        self._raw_basis: Optional[Basis] = None
        self._raws_due = 0.0
        self._raw_job: Recomputed[_NewRaws] = Recomputed(context.tools)
        #: Raw sets of which some are yet to be stored.
        self._new_raws: Optional[_NewRaws] = None
        self._goals_job: Recomputed[Union[_Storing, NoFuture]] = Recomputed(context.tools)
        #: How often in a row Ceph's tools could not map the PGs of other tranches, and when the
        #: goals may be computed again.
        self._tranche_failures = 0
        self._goals_due = 0.0
        #: Goals of which some are yet to be stored.
        self._storing: Optional[_Storing] = None
        #: Whether the pins have the goals for this OSDMap and the phase of the campaign.
        self.goals_fit = False

    def look_again(self) -> None:
        """Examine in the next turn whether the goals fit: a request may have changed their
        basis."""
        self.goals_fit = False

    def refresh_raws(self, campaign: Campaign, observation: Observation) -> bool:
        """Compute the raw sets behind pins that are vectors again when CRUSH has changed, and store
        them, over several turns if they are many. PGs that are released and still move are left
        out. Returns False while raw sets are being computed or stored; True also while a change of
        the campaign is awaited, this mgr may not write, or the tools rest after a failure.

        If Ceph's tools fail, the raw sets are unknown, and such PGs are released one by one. After
        a crash in between, the raw sets are computed again.
        """
        change = campaign.change
        awaits_change = change is not None and change.stage is not ChangeStage.LANDED
        vectors = {pgid: self._pins[pgid] for pgid in self._pins.vectors
                   if pgid not in campaign.flights.in_flight}
        if not vectors:
            return True
        basis = goals.basis(observation.osdmap, observation.crush, map(pool_of, vectors))
        # Raw sets are computed once the change is in force. Outdated ones are not stored further.
        if awaits_change or self._new_raws is not None and not self._new_raws.basis.covers(basis):
            self._new_raws = None
        if self._new_raws is not None:
            return self._store_raws(self._new_raws, observation)
        if awaits_change or self._raw_basis is not None and self._raw_basis.covers(basis) \
                or not self._may_write() \
                or observation.now < self._raws_due:
            return True
        new_raws = self._raws_behind(vectors, observation.osdmap, basis)
        if new_raws is None:
            return False
        self._new_raws = new_raws
        return self._store_raws(new_raws, observation)

    def _store_raws(self, new: _NewRaws, observation: Observation) -> bool:
        """Store the raw sets of pins for the PGs whose raw set has changed. Returns whether all are
        stored."""
        if not self._may_write():
            return False
        # Goals depend on raw sets. `note_some` removes from `parts` what it has stored.
        self.goals_fit = self.goals_fit and not new.parts
        still_apply = self._pins.note_some(new.parts, observation.osdmap, new.known)
        self._release_moves.outdate_movement()
        if still_apply and new.parts:
            return False
        self._new_raws = None
        if not still_apply:
            return False  # raw sets are computed again, as some PGs have other pins by now
        if new.failure:
            self._raws_due = observation.now + RAW_SECONDS
            self._note(Event('pins', 'the CRUSH mapping of %s pinned by pg_upmap is not known'
                             % plural(len(new.known), 'PG'), new.failure))
        else:
            self._raw_basis = new.basis
        return True

    def _raws_behind(self, vectors: Mapping[str, PinRecord], osdmap: OsdMap,
                     basis: Basis) -> Optional[_NewRaws]:
        """The raw sets of `vectors`, from the present mapping; None: it is being computed."""
        return self._raw_job.result(basis, lambda: lambda: _raws_shown(
            self._cluster.outlook(osdmap, {}, None), vectors, basis))

    def work_out(self, campaign: Campaign, observation: Observation, view: View,
                 options: Options) -> Optional[NewGoals]:
        """Compute the goals of the pins again, if they are outdated, and store them. Returns what
        the campaign has to note; None: nothing in this turn, see `goals_fit`."""
        if self.goals_fit and not observation.new_map:
            return None
        basis = goals.basis(observation.osdmap, observation.crush, self._pins.pools,
                            observation.balancing, options.target_deviation)
        if basis != self._basis:
            self._basis, self._basis_since = basis, observation.now
        self.goals_fit = not goals.needed(campaign, self._pins, basis, observation.osdmap)
        if self._storing is not None and not self._storing.serves(campaign, basis, self.goals_fit):
            self._storing = None
        if self._storing is not None:
            return self._store(campaign, observation)
        # PGs peer for a while after a change of the basis.
        is_steady = observation.now - self._basis_since > observation.stats_period
        if self.goals_fit or not is_steady or not goals.settled(
                campaign, self._pins, observation, options.max_transition_ratio) \
                or not self._may_write() or observation.now < self._goals_due:
            return None
        computed = self._goals_if_computed(
            goals.ground(campaign, self._pins, observation, basis), observation, view, options)
        if isinstance(computed, NoFuture):
            self._put_off_goals(computed.reason, observation.now)
            return None
        if computed is not None:
            self._tranche_failures = 0
        self._storing = computed
        return self._store(campaign, observation)

    def _put_off_goals(self, failure: str, now: float) -> None:
        """Compute the goals again after RAW_SECONDS, since Ceph's tools could not map the PGs of
        other tranches: goals without these would move PGs twice. After PREVIEW_TIMES failures the
        goals are computed without them."""
        self._tranche_failures += 1
        self._goals_due = now + RAW_SECONDS
        if self._tranche_failures == 1:
            self._note(Event('plan', 'cannot compute the targets of the pinned PGs; perfguard will '
                             'retry', failure))
        if self._tranche_failures == PREVIEW_TIMES:
            self._note(Event('plan', 'the targets of the pinned PGs ignore the later tranches, so '
                             'PGs may move twice', failure))

    def _store(self, campaign: Campaign, observation: Observation) -> Optional[NewGoals]:
        """Store new goals, over several turns if they are many; returns what the campaign has to
        note, or None.

        Until all are stored, the campaign shows that its goals have no basis: after a crash in
        between, the goals are computed again.
        """
        storing = self._storing
        if storing is None or not self._may_write():
            return None
        mark = campaign.pinning.goals
        if mark.basis is not None and len(storing.parts) > 1:
            return NewGoals(mark.being_stored())
        # Removes from `parts` what it has stored in this turn.
        still_apply = self._pins.note_some(storing.parts, observation.osdmap, storing.ground.pins)
        self._release_moves.outdate_movement()
        if not still_apply:
            self._storing = None
        if storing.parts:
            return None
        self._pins.forget(storing.new_goals.dropped)
        self._storing, self.goals_fit = None, True
        return NewGoals(storing.new_goals.mark, goals.event(storing.new_goals, self._pins))

    def _goals_if_computed(self, ground: goals.Ground, observation: Observation, view: View,
                           options: Options) -> Union[_Storing, NoFuture, None]:
        """The goals of all pins on the present basis, none of which is stored yet; they are handed
        out once. None: the tool thread is computing them, which takes 8 s for two pools of 16,000
        PGs, or is closed. NoFuture: see `_put_off_goals`. Raises what the computation raises."""
        def prepare() -> Callable[[], Union[_Storing, NoFuture]]:
            """Read what only the loop may read; returns the job of the tool thread."""
            space = self._cluster.osd_space()
            must_map = self._tranche_failures < PREVIEW_TIMES

            def work() -> Union[_Storing, NoFuture]:
                tranches = self._tranches(ground, observation, options, must_map)
                if isinstance(tranches, NoFuture):
                    return tranches
                pool_up, absent = self._with_down_osds(
                    goals.pools_of(ground.pins, observation.osdmap), observation.osdmap, view)
                new_goals = goals.work_out(ground, observation, pool_up, Bounds.of(options), space,
                                           absent, tranches)
                return _Storing(ground, new_goals, list(document_parts(
                    new_goals.changed(ground.pins), ground.pins)))

            return work

        return self._goals_job.result(ground, prepare)

    def _tranches(self, ground: goals.Ground, observation: Observation, options: Options,
                  must_map: bool) -> Union[goals.Tranches, NoFuture]:
        """What goals need to know of the other tranches of the campaign's change, so that PGs whose
        shards move in several tranches move once: half of the limit of pins is for such PGs.
        NoFuture, only with `must_map`: Ceph's tools failed."""
        change = ground.campaign.change
        if change is None or change.tranches == 1:
            return goals.NO_TRANCHES
        # Only a balance considers PGs that do not move and have no upmap.
        whole = ground.campaign.target == 'balanced'
        mappings: List[Optional[Future]] = []
        for weights, is_needed in ((change.start, change.tranche > 0 and whole),
                                   (change.weights, not change.is_last)):
            mapping = self._mapping(observation, weights, whole) if is_needed else None
            if must_map and isinstance(mapping, NoFuture):
                return mapping
            mappings.append(mapping if isinstance(mapping, Future) else None)
        before, ahead = mappings
        return goals.Tranches(
            osds=change.weights.keys(), before=before, ahead=ahead,
            upmaps=pin_limit(options, observation.osdmap, len(ground.pins)) // 2)

    def _mapping(self, observation: Observation, weights: Mapping[int, float],
                 whole: bool) -> Outlook:
        """The mapping with other CRUSH weights: of all PGs (`whole`), or of those that move or have
        an upmap."""
        return for_same_mons(self._cluster.outlook(
            observation.osdmap, weights, None, whole), observation.crush)

    def _with_down_osds(self, pools: Sequence[int], osdmap: OsdMap,
                        view: View) -> Tuple[PoolUp, FrozenSet[int]]:
        """The up sets of pools with the OSDs that are down, which only Ceph's tools show; and
        `absent`: OSDs that are down and may be missing from some of these up sets."""
        lacking = pgs_lacking_osds(osdmap, view.pool_up, pools)
        if not lacking:
            return view.pool_up, frozenset()
        outlook = self._cluster.outlook(osdmap, {}, None, True)  # True: of all PGs
        raws = {} if isinstance(outlook, NoFuture) else outlook.raws(lacking)
        whole = with_down_osds(osdmap, view.pool_up, raws)
        # The tools may place a PG elsewhere than where it is, as with a newer map, or find too few
        # OSDs for it: then its set stays incomplete.
        return whole, osdmap.absent if pgs_lacking_osds(osdmap, whole, pools) else frozenset()


def _lasting_goal(pin: PinRecord) -> Optional[UpmapEntry]:
    """The goal of a pin whose raw set has changed; None: it is to be computed.

    The balance cannot place a PG whose raw set is unknown, and gives it its earlier entry as its
    goal, which is computed again once the set is known. Other goals stay, such as those of an
    import, which nothing would set again.
    """
    return None if pin.raw is None and pin.goal == pin.before else pin.goal
