# SPDX-License-Identifier: LGPL-2.1-or-later
"""The module's options: one table for Ceph, one frozen object for the code."""
from dataclasses import dataclass
from typing import AbstractSet, Any, Callable, Dict, Iterable, List, Optional, Union

from .cluster.types import ConfigEntry

#: An option as Ceph's MODULE_OPTIONS wants it.
OptionSpec = Dict[str, Any]
OptionValue = Union[bool, int, float, str]


def _option(name: str, type_: str, default: OptionValue, desc: str, long_desc: str = '',
            **limits: Any) -> OptionSpec:
    spec: OptionSpec = {'name': name, 'type': type_, 'default': default, 'desc': desc,
                        'runtime': True}
    if long_desc:
        spec['long_desc'] = long_desc
    spec.update(limits)
    return spec


OPTIONS: List[OptionSpec] = [
    _option('loop_interval', 'float', 5.0, 'seconds between two turns of the loop while idle',
            min=1.0, max=60.0),
    _option('campaign_interval', 'float', 1.0,
            'seconds between two turns of the loop while a campaign is under way',
            min=0.2, max=60.0),
    _option('target', 'str', 'balanced', 'what a rebalance ends in',
            'balanced: each OSD has its share of the PGs of each pool that was touched, by '
            'weight, with as little movement as possible: what CRUSH moves to within one PG, other '
            "shards only beyond the balancer's upmap_max_deviation; upmaps stay where "
            'the balance needs them. crush: every pin is released, PGs end where CRUSH (and the '
            'upmaps from before the campaign) put them.', enum_allowed=['balanced', 'crush']),
    _option('pin_batch', 'uint', 512, 'PGs that are pinned in one batch of commands',
            'The next batch waits until the PGs of the last one have peered.', min=1, max=10000),
    _option('max_transition_ratio', 'float', 0.05,
            'share of PGs that may be between two intervals (peering, activating) before pinning '
            'or releasing more', min=0.0, max=1.0),
    _option('max_pgs_in_flight', 'uint', 0, 'PGs that may be moving at the same time',
            '0: as many as the caps by OSD, host and failure domain let move on the whole cluster, '
            'at least 32.', min=0, max=100000),
    _option('max_bytes_in_flight', 'uint', 4 << 40, 'bytes that may be moving at the same time',
            'One PG may always move, however large it is.', min=1 << 20, max=1 << 60),
    _option('max_backfills_source', 'uint', 2,
            'PGs that may move away from one OSD at the same time', min=1, max=1000),
    _option('max_backfills_primary', 'uint', 2,
            'PGs that one OSD may lead (as their primary) through backfill at the same time',
            min=1, max=1000),
    _option('max_backfills_target', 'uint', 2,
            'PGs that may move onto one OSD at the same time', min=1, max=1000),
    _option('max_backfills_host', 'uint', 8,
            'PGs that may move onto or away from one host at the same time', min=1, max=10000),
    _option('max_backfills_domain', 'uint', 16,
            'PGs that may move onto or away from one failure domain at the same time',
            "The failure domain of the pool's CRUSH rule, such as a rack.", min=1, max=100000),
    _option('max_extra_movement', 'float', 1.0,
            'shards that move for the balance alone, as a share of those that CRUSH moves',
            'With target=balanced, on a cluster that was never balanced. The balance is then '
            'improved where it is worst, and is not reached.', min=0.0, max=1000.0),
    _option('max_unpinnable_ratio', 'float', 0.05,
            'share of the PGs of a campaign that may be unpinnable for releases to begin',
            'PGs that cannot be pinned move all at once, outside every cap, as soon as norebalance '
            'is cleared. With more of them it stays set until "rebalance start" accepts that, and '
            'changes of CRUSH need --force. As many as max_backfills_target are never too many.',
            min=0.0, max=1.0),
    _option('readback_timeout', 'float', 20.0,
            'seconds until an upmap that the OSDMap does not show counts as refused by the mon',
            min=2.0, max=600.0),
    _option('auto_expand', 'bool', False,
            'pin and release by itself what a change of CRUSH remaps that nobody announced',
            'New hosts that come up, new weights, moved buckets, other rules. PGs that are '
            'remapped because OSDs went down or out are left to recovery.'),
    _option('auto_expand_ratio', 'float', 0.01,
            'share of the PGs that such a change has to remap', min=0.0, max=1.0),
    _option('stalled_after', 'float', 1800.0,
            'seconds without a release or an arrival until PERFGUARD_STALLED is raised',
            min=10.0, max=7 * 86400.0),
    _option('slow_osd_ratio', 'float', 1.5,
            'times as slow as its peers from which an OSD is called slow',
            'Peers are the OSDs of the same CRUSH root and device class (and drive model, where '
            'enough are known), at the same load.', min=1.2, max=100.0),
    _option('slow_osd_seconds', 'float', 60.0,
            'seconds that an OSD is watched until it is called slow, or well again',
            'It takes longer the less slow the OSD is.', min=5.0, max=3600.0),
    _option('latency_factor', 'float', 1.5,
            'latency that clients may feel, in baselines of their pool', min=1.0, max=100.0),
    _option('latency_floor_ms', 'float', 0.0,
            'latency above the baseline that clients may feel in any case, in ms',
            'Less is noise where the baseline is short. 0: 2 ms for pools on hdd whose baseline is '
            '2 ms or more, 0.5 ms for all others.', min=0.0, max=1000.0),
    _option('latency_alarm_factor', 'float', 3.0,
            'latency from which on PERFGUARD_LATENCY is raised, in baselines of the pool',
            min=1.1, max=1000.0),
    _option('baseline_seconds', 'float', 600.0,
            "seconds of quiet that make one point of a pool's baseline",
            'Quiet: all PGs are active+clean and no operation is slow. A pool without such a '
            'point has no baseline yet.', min=5.0, max=86400.0),
    _option('latency_targets', 'str', '',
            'latency that clients of a pool may feel, in ms: <pool>=<ms>, and so on',
            'Takes the place of latency_factor x baseline for the pools that it names.'),
    _option('stall_share', 'float', 0.003,
            'share of the client operations of a pool that may be held up by PGs that peer because '
            'they are released', min=0.00001, max=1.0),
    _option('fast_peering', 'str', 'auto',
            "whether the mons' paxos_propose_interval is shortened while PGs are released",
            'Released PGs wait for it while they peer, and clients with them. auto: 0.1 s up to '
            '10,000 PGs and 64 MiB that all OSDs together store for an OSDMap epoch, 0.25 s up '
            'to 25,000 PGs and 512 MiB, then not at all; on: 0.25 s there, too.',
            enum_allowed=['auto', 'on', 'off']),
    _option('begin_time', 'str', '0000', 'time of the day from which PGs may be released, HHMM',
            'Local time of the mgr. What is under way at end_time goes on to its end.'),
    _option('end_time', 'str', '2400', 'time of the day from which none is released, HHMM'),
    _option('begin_weekday', 'uint', 0,
            'day of the week from which PGs may be released; 0 is Sunday', min=0, max=6),
    _option('end_weekday', 'uint', 0,
            'day of the week from which none is released; the same as begin_weekday: all days',
            min=0, max=6),
    _option('mitigation_mode', 'str', 'observe',
            'what to do to the cluster while clients suffer from the movement of data',
            'off: nothing. observe: say what would be done. act: set norebalance, pin back PGs '
            'that wait for backfill, slow recovery, one after the other, and undo it after. '
            'Releases are held in every mode.', enum_allowed=['off', 'observe', 'act']),
    _option('mitigation_seconds', 'float', 30.0,
            'seconds that the trouble must last for the next rung of the mitigation',
            'Once the trouble has been gone for twice as long, the rungs are undone one by one.',
            min=1.0, max=3600.0),
    _option('mitigation_affinity', 'bool', False,
            'whether the primary affinity of a slow OSD is set to 0 until it is well again',
            'With mitigation_mode act.'),
    _option('probe_max_bytes', 'uint', 64 << 30,
            'bytes that a probe may write before it measures, all copies counted',
            'What is measured comes on top: it overwrites these bytes, and is bounded by the '
            'runtime.', min=1 << 20, max=1 << 50),
    _option('probe_max_seconds', 'uint', 3600, 'seconds that a probe may take in all',
            min=10, max=86400),
    _option('probe_engine', 'str', 'auto', 'what does the I/O of probes',
            'native: the compiled core; python: works everywhere and is slower at large queue '
            'depths; auto: the compiled core where it was built.',
            enum_allowed=['auto', 'native', 'python']),
    _option('probe_history', 'uint', 200, 'probes to remember; baselines are kept beyond that',
            min=1, max=10000),
    _option('probe_days', 'uint', 365, 'days after which a probe that is no baseline is forgotten',
            min=1, max=3650),
    _option('metrics_addr', 'str', '::', 'address on which metrics are served to Prometheus',
            'An IP address; :: stands for all addresses, also where there is no IPv6.'),
    _option('metrics_port', 'uint', 0, 'port on which metrics are served to Prometheus; 0: none',
            'Of every mgr, active or not. Where two mgrs share a host: '
            'mgr/perfguard/<id>/metrics_port.', min=0, max=65535),
    _option('history', 'uint', 20, 'ended campaigns to remember', min=1, max=200),
    _option('event_history', 'uint', 500, 'events to remember', min=10, max=2000),
]


@dataclass(frozen=True)
class Options:
    """The options' values; the fields are named as in OPTIONS, which holds the defaults."""
    loop_interval: float
    campaign_interval: float
    target: str
    pin_batch: int
    max_transition_ratio: float
    max_pgs_in_flight: int
    max_bytes_in_flight: int
    max_backfills_source: int
    max_backfills_primary: int
    max_backfills_target: int
    max_backfills_host: int
    max_backfills_domain: int
    max_extra_movement: float
    max_unpinnable_ratio: float
    readback_timeout: float
    auto_expand: bool
    auto_expand_ratio: float
    stalled_after: float
    slow_osd_ratio: float
    slow_osd_seconds: float
    latency_factor: float
    latency_floor_ms: float
    latency_alarm_factor: float
    baseline_seconds: float
    latency_targets: str
    stall_share: float
    fast_peering: str
    begin_time: str
    end_time: str
    begin_weekday: int
    end_weekday: int
    mitigation_mode: str
    mitigation_seconds: float
    mitigation_affinity: bool
    probe_max_bytes: int
    probe_max_seconds: int
    probe_engine: str
    probe_history: int
    probe_days: int
    metrics_addr: str
    metrics_port: int
    history: int
    event_history: int


def read_options(get: Callable[[str], Any]) -> Options:
    """Options from a getter such as MgrModule.get_module_option; None stands for the default."""
    values: Dict[str, Any] = {}
    for spec in OPTIONS:
        value = get(spec['name'])
        values[spec['name']] = spec['default'] if value is None else value
    return Options(**values)


DEFAULTS = read_options(lambda name: None)


#: Seconds between two comparisons with the configuration database; at least, if a comparison is
#: due because Ceph reported a change.
COMPARE_SECONDS = 30.0
COMPARE_SECONDS_MIN = 1.0
#: Where the configuration database keeps this module's options.
STORED_PREFIX = 'mgr/perfguard/'


class LiveOptions:
    """The options of a running mgr, without the values of options that were removed meanwhile.

    ceph-mgr takes over each option that is set, but does not notice that one is gone: after
    ``config rm`` its getters return the removed value until the mgr restarts
    (PyModuleRegistry::handle_config is called for keys that are set, never for keys that are not;
    Pacific to Tentacle). So the options are compared with the configuration database now and then.
    """

    def __init__(self, get: Callable[[str], Any], get_localized: Callable[[str], Any],
                 mgr_id: Callable[[], str]) -> None:
        """`get`, `get_localized`: getters as MgrModule has them."""
        self._get = get
        self._get_localized = get_localized
        self._mgr_id = mgr_id
        #: Key -> the value that was in force when the configuration database did not have the key.
        #: A getter that returns another one has heard of a new value. Replaced whole: commands
        #: read it in other threads.
        self._gone: Dict[str, Any] = {}
        self._notified = False
        self._compared: Optional[float] = None

    def read(self) -> Options:
        return read_options(self.get)

    def get(self, name: str) -> Any:
        value = self._get(name)
        return getattr(DEFAULTS, name) if self._is_gone(name, value) else value

    def localized(self, name: str) -> Any:
        """The option of this mgr alone (``mgr/perfguard/<id>/<name>``), or else of all."""
        value = self._get_localized(name)
        return self.get(name) if self._is_gone(self._own(name), value) else value

    def notify(self) -> None:
        """Some option of the mgr has changed. Called by any thread."""
        self._notified = True

    def compare(self, entries: Callable[[], Optional[Iterable[ConfigEntry]]], now: float) -> None:
        """Compare with the configuration database if that is due; `now` of any steady clock.

        `entries`: reads the database; None: the mons did not answer.
        """
        passed = None if self._compared is None else now - self._compared
        if passed is not None and passed < (
                COMPARE_SECONDS_MIN if self._notified else COMPARE_SECONDS):
            return
        self._compared, self._notified = now, False
        # Before the database is read: what is set in between must not look as if it was gone.
        names = [spec['name'] for spec in OPTIONS]
        in_force = {name: self._get(name) for name in names}
        in_force.update({self._own(name): self._get_localized(name) for name in names})
        found = entries()
        if found is not None:
            stored = self._stored(found)
            self._gone = {key: value for key, value in in_force.items() if key not in stored}

    def _stored(self, entries: Iterable[ConfigEntry]) -> AbstractSet[str]:
        """Keys that the database has for this mgr; an entry with a mask may be for another one."""
        sections = ('global', 'mgr', 'mgr.' + self._mgr_id())
        return {entry.name[len(STORED_PREFIX):] for entry in entries
                if entry.section in sections and entry.name.startswith(STORED_PREFIX)}

    def _own(self, name: str) -> str:
        return '%s/%s' % (self._mgr_id(), name)

    def _is_gone(self, key: str, value: Any) -> bool:
        gone = self._gone
        return key in gone and bool(gone[key] == value)
