# SPDX-License-Identifier: LGPL-2.1-or-later
"""Commands to OSDs. The loop never waits for answers, because an OSD may hang."""
import json
import logging
import math
from array import array
from bisect import bisect_right
from typing import (Any, Callable, Dict, FrozenSet, Iterable, List, Mapping, NamedTuple, Optional,
                    Sequence, Set, Tuple)

from mgr_module import CommandResult, MgrModule

from .types import OSD_ANSWER_SECONDS, LONGEST_OP_SECONDS, LatencyCounts, Pressure, Question

log = logging.getLogger(__name__)


class OsdAnswer(NamedTuple):
    osd: int
    #: When the command was sent, by the clock of OsdCommands.
    asked: float
    parsed: Any


class OsdCommands:
    """Commands to many OSDs on one topic. Only for the thread of the module.

    At least up to Reef, ceph-mgr keeps the Python state of the thread that sends a command until
    the answer arrives. The state of the thread of a command handler is freed before, which crashes
    the mgr.
    """

    def __init__(self, mgr: MgrModule, clock: Callable[[], float]) -> None:
        self._mgr = mgr
        self._clock = clock
        #: When it was sent, until when an answer is expected, and the answer.
        self._open: Dict[Tuple[str, int], Tuple[float, float, CommandResult]] = {}
        #: Answers that are not expected anymore. They arrive once the OSD continues or is down.
        self._overdue: Dict[Tuple[str, int], CommandResult] = {}

    def ask(self, topic: str, osds: Iterable[int], command: Mapping[str, Any],
            patience_seconds: float = OSD_ANSWER_SECONDS) -> None:
        """Send a command to each of the OSDs that has answered all earlier ones on this topic,
        without waiting. An answer is expected for `patience_seconds`; `answers` drops later ones.

        Each pending command is one of the messages of clients that an OSD accepts at a time
        (osd_client_message_cap): repeated ones would keep the operations of clients out of an OSD
        of which only the thread for commands hangs."""
        self._overdue = {key: result for key, result in self._overdue.items()
                         if not result.ev.is_set()}
        for osd in osds:
            if (topic, osd) not in self._open and (topic, osd) not in self._overdue:
                result = CommandResult('')
                self._mgr.send_command(result, 'osd', str(osd),
                                       json.dumps({'format': 'json', **command}), '')
                now = self._clock()
                self._open[topic, osd] = (now, now + patience_seconds, result)

    def asked(self, topic: str) -> Set[int]:
        """OSDs whose answer is expected."""
        return {osd for open_topic, osd in self._open if open_topic == topic}

    def answers(self, topic: str, parse: Callable[[str], Any]) -> List[OsdAnswer]:
        """Answers since the last call, without refusals and late answers.

        Answers that `parse` cannot read are logged and dropped.
        """
        parsed: List[OsdAnswer] = []
        now = self._clock()
        for (open_topic, osd), (asked_at, until, result) in list(self._open.items()):
            if open_topic != topic:
                continue
            if result.ev.is_set():
                del self._open[topic, osd]
                if result.r != 0:
                    continue
                try:
                    parsed.append(OsdAnswer(osd, asked_at, parse(result.outb)))
                except (ArithmeticError, AttributeError, LookupError, TypeError,
                        ValueError) as error:
                    log.warning('osd.%d: cannot read %s: %r', osd, topic, error)
            elif now > until:
                self._overdue[topic, osd] = self._open.pop((topic, osd))[2]
        return parsed


# ---- Single questions to OSDs

#: Age of an answer after which it is requested again, and after which it is dropped.
FRESH_SECONDS = 5.0
OLD_SECONDS = 15.0


class OsdQuestions:
    """Single questions to OSDs, whose answers are kept for some seconds."""

    def __init__(self, asking: OsdCommands, clock: Callable[[], float]) -> None:
        self._asking = asking
        self._clock = clock
        self._open: Set[Question] = set()
        #: When the question was sent, and the answer.
        self._known: Dict[Question, Tuple[float, str]] = {}

    def answers(self, questions: Sequence[Question]) -> Mapping[Question, str]:
        """Known answers; the others are requested, and known in a later turn."""
        now = self._clock()
        self._collect(now)
        for question in questions:
            asked_at, _ = self._known.get(question, (float('-inf'), ''))
            if question not in self._open and now - asked_at > FRESH_SECONDS:
                self._asking.ask(_topic(question), [question.osd], _command(question))
                self._open.add(question)
        return {question: self._known[question][1] for question in questions
                if question in self._known}

    def _collect(self, now: float) -> None:
        """Note the answers to open questions that have arrived, close questions whose answer is no
        longer expected, and forget old answers."""
        for topic in sorted(set(map(_topic, self._open))):
            answers = {answer.osd: answer for answer in self._asking.answers(topic, json.loads)}
            pending = self._asking.asked(topic)
            for question in [open_question for open_question in self._open
                             if _topic(open_question) == topic]:
                if question.osd in answers:
                    self._note(question, answers[question.osd])
                if question.osd not in pending:
                    self._open.remove(question)
        self._known = {question: answer for question, answer in self._known.items()
                       if now - answer[0] <= OLD_SECONDS}

    def _note(self, question: Question, answer: OsdAnswer) -> None:
        """Note the value of the option, or the state of the PG, that was asked for."""
        try:
            self._known[question] = (answer.asked, str(answer.parsed[question.option or 'state']))
        except (LookupError, TypeError) as error:
            log.warning('osd.%d: cannot read its answer: %r', question.osd, error)


def _topic(question: Question) -> str:
    return 'question ' + (question.pgid or question.option)


def _command(question: Question) -> Mapping[str, Any]:
    if question.pgid:
        # Sent to the primary as an OSD: a command to a PG does not arrive on every release, and an
        # OSD that is not the primary of the PG never answers.
        return {'prefix': 'query', 'pgid': question.pgid}
    return {'prefix': 'config get', 'var': question.option}


# ---- Readings taken from a few OSDs at a time: latency histograms, and ping times of heartbeats.
# ceph-mgr knows the ping times of all pairs, but converts all of them to Python objects at once,
# which takes 50 ms with 60 OSDs and far too long with 1,000.

#: One of this many OSDs is sampled at the same time, within these bounds. A sample takes two dumps
#: of about 15 KB at this interval. All OSDs of a small cluster are, so that the operations of a
#: campaign of minutes are counted up to its end.
SAMPLED_SHARE = 8
SAMPLED_LEAST, SAMPLED_MOST = 16, 32
SAMPLE_SECONDS = 30.0
#: Operations between two dumps of an OSD that are further apart are not counted. With 10,000 OSDs,
#: each is dumped twice in three hours.
MOST_COUNTED_SECONDS = 4 * 3600.0
LATENCY_TOPIC = 'latency'
LATENCY_COMMAND = {'prefix': 'perf histogram dump', 'logger': 'osd'}
READ_HISTOGRAM = 'op_r_latency_out_bytes_histogram'
WRITE_HISTOGRAM = 'op_w_latency_in_bytes_histogram'


class Histograms(NamedTuple):
    """Client operations by latency since the OSD started; buckets as in LatencyCounts. Tuples take
    five times the memory of arrays, and there may be those of 10,000 OSDs."""
    bounds: 'array[int]'
    read: 'array[int]'
    write: 'array[int]'

    def since(self, before: 'Histograms') -> Optional[Tuple[Tuple[int, ...], Tuple[int, ...]]]:
        """(read, write) counts since `before`; None if the OSD was restarted."""
        if before.bounds != self.bounds:
            return None
        counts = [tuple([b - a for a, b in zip(old, new)])
                  for old, new in ((before.read, self.read), (before.write, self.write))]
        return (counts[0], counts[1]) if min(min(row) for row in counts) >= 0 else None


def histograms(out: str) -> Histograms:
    """From ``perf histogram dump``; raises KeyError, TypeError or ValueError otherwise.

    The histograms have the axes latency and size; sizes are summed up. The name of the latency axis
    contains usec, but the values are nanoseconds (PerfHistogramCommon.h, OSD.cc).
    """
    osd = json.loads(out)['osd']
    bounds, read = _by_latency(osd[READ_HISTOGRAM])
    write_bounds, write = _by_latency(osd[WRITE_HISTOGRAM])
    if write_bounds != bounds:
        raise ValueError('reads and writes are counted in different buckets')
    return Histograms(bounds, read, write)


def _by_latency(histogram: Mapping[str, Any]) -> Tuple['array[int]', 'array[int]']:
    """(upper bounds of all latency buckets but the last, operations in each bucket)."""
    ranges = histogram['axes'][0]['ranges']
    rows = histogram['values']
    if len(rows) != len(ranges) or len(ranges) < 2:
        raise ValueError('%d buckets, %d rows' % (len(ranges), len(rows)))
    bounds = array('q', [int(bucket['max']) + 1 for bucket in ranges[:-1]])
    return bounds, array('q', [sum(row) for row in rows])


class InTurn:
    """Chooses a few OSDs at a time, so that each one's turn comes."""

    def __init__(self) -> None:
        #: The last one that was chosen.
        self._last = -1

    def choose(self, osds: Sequence[int], number: int) -> List[int]:
        """At most `number` of these, by their ids: those after the last one first."""
        ordered = sorted(osds)
        first = bisect_right(ordered, self._last)
        chosen = (ordered[first:] + ordered[:first])[:max(0, number)]
        self._last = chosen[-1] if chosen else self._last
        return chosen


class HistogramSampler:
    """Samples all OSDs in turn."""

    def __init__(self, asking: OsdCommands) -> None:
        self._asking = asking
        #: OSD -> (time, histograms) of its last dump.
        self._last_dumps: Dict[int, Tuple[float, Histograms]] = {}
        #: OSDs whose last dump is the first one of a sample.
        self._sampling: Set[int] = set()
        #: What the last `take` has counted; see Readings.counted.
        self.counted: Tuple[LatencyCounts, ...] = ()
        self._in_turn = InTurn()

    def take(self, now: float, alive: Sequence[int]) -> Tuple[LatencyCounts, ...]:
        """Sample the latency of operations, a few OSDs at a time: a sample is what two dumps of an
        OSD differ by. Returns completed samples and requests further dumps. `alive`: sorted OSDs
        that report."""
        samples = self._collect(now)
        self._sampling.intersection_update(alive)
        # An OSD that hangs is not alive, and its slow operations must count later.
        self._last_dumps = {osd: (when, dump) for osd, (when, dump) in self._last_dumps.items()
                            if osd in self._sampling or now - when <= MOST_COUNTED_SECONDS}
        ending = [osd for osd in sorted(self._sampling)
                  if now - self._last_dumps[osd][0] >= SAMPLE_SECONDS]
        self._asking.ask(LATENCY_TOPIC, ending + self._beginning(alive), LATENCY_COMMAND)
        return tuple(samples)

    def sampling(self) -> FrozenSet[int]:
        """OSDs whose sample is in progress."""
        return frozenset(self._sampling)

    def _collect(self, now: float) -> List[LatencyCounts]:
        """The samples that the dumps received now complete. `counted` becomes what each dump adds
        to the one before."""
        samples: List[LatencyCounts] = []
        counted: List[LatencyCounts] = []
        for answer in self._asking.answers(LATENCY_TOPIC, histograms):
            counts = self._since_last(answer.osd, answer.asked, answer.parsed)
            if counts is not None:
                counted.append(counts._replace(age=now - answer.asked))
            if answer.osd in self._sampling and counts is not None:
                samples.append(counts)
            # The second dump of a sample ends it; any other one begins the next.
            if answer.osd in self._sampling:
                self._sampling.discard(answer.osd)
            else:
                self._sampling.add(answer.osd)
            self._last_dumps[answer.osd] = (answer.asked, answer.parsed)
        self.counted = tuple(counted)
        return samples

    def _since_last(self, osd: int, end: float, dump: Histograms) -> Optional[LatencyCounts]:
        """The operations since the last dump of an OSD; None: there is none, or the OSD was
        restarted."""
        begin, before = self._last_dumps.get(osd, (math.inf, None))
        if before is None or end <= begin:
            return None
        counts = dump.since(before)
        return None if counts is None else LatencyCounts(osd, end - begin, tuple(dump.bounds),
                                                         *counts)

    def _beginning(self, alive: Sequence[int]) -> List[int]:
        """OSDs whose next sample begins now."""
        busy = self._sampling | self._asking.asked(LATENCY_TOPIC)
        at_once = min(SAMPLED_MOST, max(SAMPLED_LEAST, len(alive) // SAMPLED_SHARE))
        return self._in_turn.choose([osd for osd in alive if osd not in busy],
                                    at_once - len(busy))


# ---- Ping times

PING_TOPIC = 'pings'
PING_COMMAND = {'prefix': 'dump_osd_network', 'value': 0}
#: Number of OSDs that are asked at the same time, and the interval, which is shorter while PGs are
#: laggy.
ASKED_OSDS = 4
ROUND_SECONDS = 60.0
URGENT_SECONDS = 10.0
#: Maximum age of a ping time.
KEEP_SECONDS = 600.0


class PingTimes:
    """Ping times of all OSDs, by reporter."""

    def __init__(self, asking: OsdCommands) -> None:
        self._asking = asking
        #: OSD -> reporter -> (time, ms)
        self._times: Dict[int, Dict[int, Tuple[float, float]]] = {}
        self._asked_at = float('-inf')
        self._in_turn = InTurn()

    def take(self, now: float, alive: Sequence[int],
             laggy: Sequence[int]) -> Optional[Mapping[int, Mapping[int, float]]]:
        """OSD -> reporter, the OSD that has measured it -> ping time in ms, of all recent
        measurements; None: no answer has arrived since the last call. Asks some more OSDs if it is
        time: of those with laggy PGs if there are any.

        `alive`: OSDs that report; `laggy`: OSDs with laggy PGs. They share PGs with the OSD that
        causes them, so they ping it.
        """
        fresh = self._collect()
        if now - self._asked_at >= (URGENT_SECONDS if laggy else ROUND_SECONDS):
            self._asked_at = now
            osds = self._in_turn.choose(laggy or alive,
                                        ASKED_OSDS - len(self._asking.asked(PING_TOPIC)))
            self._asking.ask(PING_TOPIC, osds, PING_COMMAND)
        return self._recent(now) if fresh else None

    def _collect(self) -> bool:
        fresh = False
        for answer in self._asking.answers(PING_TOPIC, ping_times):
            fresh = True
            for osd, ms in answer.parsed.items():
                self._times.setdefault(osd, {})[answer.osd] = (answer.asked, ms)
        return fresh

    def _recent(self, now: float) -> Dict[int, Dict[int, float]]:
        """OSD -> reporter -> ping time in ms, without times that are too old."""
        for reporters in self._times.values():
            for reporter, (when, _) in list(reporters.items()):
                if now - when > KEEP_SECONDS:
                    del reporters[reporter]
        self._times = {osd: reporters for osd, reporters in self._times.items() if reporters}
        return {osd: {reporter: ms for reporter, (_, ms) in reporters.items()}
                for osd, reporters in self._times.items()}


def median_ping_ms(peer_ping_ms: Mapping[int, Mapping[int, float]]) -> Dict[int, float]:
    """OSD -> median of its reporters."""
    return {osd: sorted(times.values())[len(times) // 2] for osd, times in peer_ping_ms.items()}


def ping_times(out: str) -> Dict[int, float]:
    """Ping times of the peers of an OSD in ms, from ``dump_osd_network``.

    The average of the last minute, since "last" is one ping of it; the slower one of the interfaces
    (front and back) counts.
    """
    times: Dict[int, float] = {}
    for entry in json.loads(out)['entries']:
        peer = int(entry['to osd'])
        ms = float(entry['average']['1min'])
        if 0.0 <= ms <= 1000.0 * LONGEST_OP_SECONDS:
            times[peer] = max(times.get(peer, 0.0), ms)
    return times


# ---- How busy the threads of OSDs are, while PGs are laggy. These counters do not reach the mgr
# (their priority is 0), and a dump of all counters has about 50 KB.

PRESSURE_TOPIC = 'pressure'
PRESSURE_COMMAND = {'prefix': 'perf dump'}
#: Seconds between two dumps of an OSD: at least, since an answer under load is late by up to a
#: second, and at most, since in a flood of writes PGs are laggy every few seconds.
PRESSURE_SECONDS, PRESSURE_SECONDS_MAX = 5.0, 60.0
#: Seconds that the threads of one messenger worker have worked since the OSD started.
_WORKER, _WORKED = 'AsyncMessenger::Worker', 'msgr_running_total_time'


class WorkTimes(NamedTuple):
    """Since the OSD started: seconds by messenger thread; waits of operations, their seconds."""
    messengers: Mapping[str, float]
    waits: float
    waited: float

    def since(self, before: 'WorkTimes', seconds: float) -> Optional[Pressure]:
        """How busy the busiest messenger thread has been since `before`, `seconds` ago, and the
        mean wait in the queue. None if the OSD was restarted, or has no such threads."""
        worked = [end - before.messengers.get(name, 0.0) for name, end in self.messengers.items()]
        waits, waited = self.waits - before.waits, self.waited - before.waited
        if not worked or not all(value >= 0.0 for value in (*worked, waits, waited)):
            return None
        return Pressure(min(1.0, max(worked) / seconds), 1e3 * waited / waits if waits else None)


def work_times(out: str) -> WorkTimes:
    """From ``perf dump``."""
    dump = json.loads(out)
    queue = dump['osd']['op_before_dequeue_op_lat']
    return WorkTimes({name: float(counters[_WORKED]) for name, counters in dump.items()
                      if name.startswith(_WORKER) and _WORKED in counters},
                     float(queue['avgcount']), float(queue['sum']))


class PressureSampler:
    """Samples how busy the threads of OSDs with laggy PGs are."""

    def __init__(self, asking: OsdCommands) -> None:
        self._asking = asking
        #: OSD -> (time, counters) of its last dump.
        self._last_dumps: Dict[int, Tuple[float, WorkTimes]] = {}

    def take(self, now: float, laggy: Sequence[int]) -> Dict[int, Pressure]:
        """OSD -> how busy it has been between the dump that has arrived now and the one before, at
        most PRESSURE_SECONDS_MAX earlier. Requests further dumps. `laggy`: OSDs with laggy PGs,
        those with most of them first; only ASKED_OSDS are asked."""
        pressures: Dict[int, Pressure] = {}
        for answer in self._asking.answers(PRESSURE_TOPIC, work_times):
            asked_before, before = self._last_dumps.get(answer.osd, (math.inf, None))
            self._last_dumps[answer.osd] = answer.asked, answer.parsed
            pressure = answer.parsed.since(before, answer.asked - asked_before) if before else None
            if pressure is not None:
                pressures[answer.osd] = pressure
        due = [osd for osd in laggy[:ASKED_OSDS]
               if now - self._last_dumps.get(osd, (-math.inf,))[0] >= PRESSURE_SECONDS]
        self._asking.ask(PRESSURE_TOPIC, due, PRESSURE_COMMAND)
        self._last_dumps = {osd: (when, dump) for osd, (when, dump) in self._last_dumps.items()
                            if now - when <= PRESSURE_SECONDS_MAX}
        return pressures
