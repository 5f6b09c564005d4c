# SPDX-License-Identifier: LGPL-2.1-or-later
"""Detectors of slow OSDs under one interface: perfguard's, and two written from descriptions.

Ceph change #69995 (open): score = (commit latency - median) / max(MAD, 1 ms) among the OSDs of a
CRUSH root and device class, five or more; who recovers, backfills or deep scrubs is left out; slow
are those with score >= 10 and a latency of at least 100 ms, if it persists. Its persistence
is not known to us: here a minute.

Perseus (Lu et al., FAST 2023): latency of a device against its throughput. PCA and DBSCAN remove
outlying points, a polynomial regression gives the expected latency with a 99.9 % upper bound of
prediction, the ratio to that bound is the slowdown, and windows in which it lasts add up to a
risk. The paper works on days and on the drives of one node; in its favour the
windows are minutes here, so that it can detect anything within a trace, and its peers are all
drives of a class, since it could not see a slow host otherwise, and OSDs that
backfill or deep scrub are passed over. Its parameters are the best of a few tried on these traces.

Peer evaluation, which the same paper compares itself with: a drive is slow whose latency is twice
the median of its node's drives for more than half of five minutes.
"""
import json
from typing import Dict, List, Optional, Protocol, Set, Tuple

import numpy as np

from perfguard.codec import decode, encode
from perfguard.tests.fakes.functions import whole
from perfguard.watch.chronic import StoredCounts
from perfguard.watch.controller import CHRONIC_SECONDS
from perfguard.watch.slow_osds import SlowOsds, StoredSlow
from perfguard.watch.slowness import SlowSettings
from perfguard.watch.types import OsdReading

from .traces import Array, Trace

SLOW = Dict[int, StoredSlow]


class Detector(Protocol):
    name: str

    def flagged(self, beat: int) -> Set[int]:
        """Who is slow, asked beat by beat."""


class Perfguard:
    """What PERFGUARD_SLOW_OSD reports."""
    name = 'perfguard'

    def __init__(self, trace: Trace, settings: SlowSettings = SlowSettings()) -> None:
        self.trace, self.settings = trace, settings
        self.detector = SlowOsds()
        self.hosts: Set[str] = set()
        #: What is reported of parts of a class.
        self.parts: Set[str] = set()
        length = trace.beats // (trace.case.failovers + 1)
        #: Beats in which another mgr takes over.
        self.failovers = set(range(length, trace.beats, length)) if trace.case.failovers else set()
        #: What the mgr has stored: the slow OSDs, and the counts, for which OSDs, and when.
        self._slow: str = '{}'
        self._chronic: Tuple[str, Set[int], float] = ('{}', set(), 0.0)

    def flagged(self, beat: int) -> Set[int]:
        now = 1e9 + self.trace.clock(beat)
        if beat in self.failovers:
            self.detector = SlowOsds()
            self.detector.load(decode(SLOW, json.loads(self._slow)), now)
            self.detector.chronic.load(decode(StoredCounts, json.loads(self._chronic[0])))
        whole(self.detector.round(OsdReading(
            now, self.trace.samples(beat), self.trace.places_at(beat),
            self.trace.busy[beat]), self.settings))
        if self.failovers:
            self._store(now)
        self.hosts.update(shared.part[1] for shared in self.detector.shared())
        self.parts.update(part.what for part in self.detector.class_parts())
        slow = {osd for osd, verdict in self.detector.verdicts.items() if verdict.slow}
        return slow.union(*(part.osds for part in self.detector.class_parts())) \
            - self.detector.chronic.standing.keys()

    def _store(self, now: float) -> None:
        """As watch/controller.py."""
        self._slow = json.dumps(encode(self.detector.stored(), SLOW))
        standing = set(self.detector.chronic.standing)
        if standing != self._chronic[1] or now - self._chronic[2] >= CHRONIC_SECONDS:
            counts = encode(self.detector.chronic.stored({}), StoredCounts)
            self._chronic = (json.dumps(counts), standing, now)


class Chronic:
    """What PERFGUARD_OSD_CHRONIC reports."""
    name = 'chronic'

    def __init__(self, perfguard: Perfguard) -> None:
        self.perfguard = perfguard

    def flagged(self, beat: int) -> Set[int]:
        return set(self.perfguard.detector.chronic.standing)


class CommitMad:
    """#69995."""
    name = '#69995'
    SCORE, LEAST_MS, MAD_MS, MEMBERS = 10.0, 100.0, 1.0, 5
    PERSIST_SECONDS = 60.0

    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        self.persist = round(self.PERSIST_SECONDS / trace.case.beat)
        self.commit = trace.commit_whole_ms()
        self.groups = _classes(trace)
        self.over = np.zeros(len(trace.places), dtype=int)

    def flagged(self, beat: int) -> Set[int]:
        slow = np.zeros(len(self.over), dtype=bool)
        busy = self.trace.busy[beat]
        for members in self.groups:
            able = np.array([osd for osd in members if osd not in busy], dtype=int)
            if len(able) < self.MEMBERS:
                continue
            ms = self.commit[beat, able]
            middle = np.median(ms)
            mad = np.median(np.abs(ms - middle))
            slow[able] = (((ms - middle) / max(float(mad), self.MAD_MS) >= self.SCORE)
                          & (ms >= self.LEAST_MS))
        self.over = np.where(slow, self.over + 1, 0)
        return {int(osd) for osd in np.flatnonzero(self.over >= self.persist)}


class PeerEvaluation:
    name = 'peer eval.'
    RATIO, SECONDS, PART, MEMBERS = 2.0, 300.0, 0.5, 3

    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        _, self.ms = trace.device()
        nodes: Dict[str, List[int]] = {}
        for osd, place in trace.places.items():
            nodes.setdefault(place.host, []).append(osd)
        self.nodes = [members for members in nodes.values() if len(members) >= self.MEMBERS]
        self.over = np.zeros((round(self.SECONDS / trace.case.beat), len(trace.places)))

    def flagged(self, beat: int) -> Set[int]:
        row = self.over[beat % len(self.over)]
        row[:] = 0.0
        for members in self.nodes:
            ms = self.ms[beat, members]
            row[members] = ms >= self.RATIO * max(float(np.median(ms)), 1e-9)
        return {int(osd) for osd in np.flatnonzero(self.over.mean(axis=0) > self.PART)}


class Perseus:
    name = 'Perseus'
    #: Beats between fits, beats that a fit looks at, and points that it takes of them.
    REFIT, LOOK, POINTS = 24, 120, 600
    #: Of traces of many days.
    LONG_BEATS, LONG_REFIT = 5000, 240
    #: DBSCAN on the two standardised principal components.
    EPS, NEIGHBOURS = 2.0, 8
    DEGREE = 2
    #: 99.9 % of a normal distribution, one-sided.
    BOUND = 3.09
    #: Beats of a window, part of them above the bound, and the windows that a risk takes.
    WINDOW, PART, RISK = 12, 0.9, 5

    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        self.load, self.ms = trace.device()
        self.refit = self.LONG_REFIT if trace.beats > self.LONG_BEATS else self.REFIT
        self.groups = _classes(trace)
        count = len(trace.places)
        self.bounds: List[Optional[_Fit]] = [None] * len(self.groups)
        self.ratios = np.zeros((self.WINDOW, count))
        self.risk = np.zeros(count, dtype=int)
        self.rng = np.random.default_rng(0)

    def flagged(self, beat: int) -> Set[int]:
        row = np.zeros(len(self.risk))
        for number, members in enumerate(self.groups):
            if beat % self.refit == self.WINDOW:
                self.bounds[number] = self._fit(members, beat)
            fit = self.bounds[number]
            if fit is not None:
                row[members] = self.ms[beat, members] / fit.bound(self.load[beat, members])
        row[list(self.trace.busy[beat])] = 0.0
        self.ratios[beat % self.WINDOW] = row
        if beat % self.WINDOW == self.WINDOW - 1:
            slow = (self.ratios > 1.0).mean(axis=0) >= self.PART
            self.risk = np.where(slow, self.risk + 1, np.maximum(self.risk - 1, 0))
        return {int(osd) for osd in np.flatnonzero(self.risk >= self.RISK)}

    def _fit(self, members: List[int], beat: int) -> Optional['_Fit']:
        begin = max(0, beat - self.LOOK)
        load = self.load[begin:beat][:, members].ravel()
        ms = self.ms[begin:beat][:, members].ravel()
        some = np.flatnonzero(load > 0)
        if len(some) < 50:
            return None
        some = self.rng.choice(some, min(self.POINTS, len(some)), replace=False)
        load, ms = load[some], ms[some]
        core = self._core(load, ms)
        if core.sum() < 30:
            return None
        return _Fit(load[core], ms[core], self.DEGREE, self.BOUND)

    def _core(self, load: Array, ms: Array) -> Array:
        """Points of the greatest DBSCAN cluster, after a rotation to the principal components."""
        points = np.column_stack([load, ms])
        points = (points - np.median(points, axis=0)) / np.maximum(
            1.4826 * np.median(np.abs(points - np.median(points, axis=0)), axis=0), 1e-9)
        _, axes = np.linalg.eigh(np.cov(np.clip(points, -10, 10).T))
        labels = dbscan(points @ axes, self.EPS, self.NEIGHBOURS)
        if labels.max() < 0:
            return np.zeros(len(ms), dtype=bool)
        return np.asarray(labels == np.bincount(labels[labels >= 0]).argmax())


class _Fit:
    """Polynomial regression of latency on throughput."""

    def __init__(self, load: Array, ms: Array, degree: int, bound: float) -> None:
        self.range = float(load.min()), float(load.max())
        self.scale = max(self.range[1], 1e-9)
        self.degree = degree
        design = self._design(load)
        self.weights = np.linalg.lstsq(design, ms, rcond=None)[0]
        errors = ms - design @ self.weights
        self.variance = float(errors @ errors) / max(len(ms) - degree - 1, 1)
        self.inverse = np.linalg.pinv(design.T @ design)
        self.quantile = bound

    def _design(self, load: Array) -> Array:
        return np.vander(np.asarray(load) / self.scale, self.degree + 1)

    def bound(self, load: Array) -> Array:
        """Upper bound of prediction; flat beyond the loads that were fitted."""
        design = self._design(np.clip(load, *self.range))
        leverage = np.einsum('ij,jk,ik->i', design, self.inverse, design)
        return np.asarray(np.maximum(design @ self.weights, 1e-3)
                          + self.quantile * np.sqrt(self.variance * (1 + leverage)))


def dbscan(points: Array, eps: float, neighbours: int) -> Array:
    """Labels of clusters, -1: noise (Ester et al. 1996), by distances of all pairs."""
    near = ((points[:, None, :] - points[None, :, :]) ** 2).sum(axis=2) <= eps * eps
    core = near.sum(axis=1) >= neighbours
    labels = np.full(len(points), -1)
    cluster = 0
    for seed in np.flatnonzero(core):
        if labels[seed] >= 0:
            continue
        reached = np.zeros(len(points), dtype=bool)
        front = reached.copy()
        front[seed] = True
        while front.any():
            reached |= front
            front = near[front & core].any(axis=0) & ~reached
        labels[reached & (labels < 0)] = cluster
        cluster += 1
    return labels


def _classes(trace: Trace) -> List[List[int]]:
    """OSDs by root and device class."""
    found: Dict[Tuple[str, str], List[int]] = {}
    for osd, place in trace.places.items():
        found.setdefault((place.root, place.device_class), []).append(osd)
    return list(found.values())
