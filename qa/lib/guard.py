# SPDX-License-Identifier: LGPL-2.1-or-later
"""Operates perfguard on a test cluster, and records settings that must not change."""
import json
import time
from typing import Any, Dict, List, Optional, Set, Tuple

from qa.cluster import Cluster
from qa.cluster.patience import patient
from qa.lib.auditor import Foreign, audit

#: perfguard runs from the start: enabling a module later restarts every mgr.
ENABLED = {'mgr_initial_modules': 'iostat perfguard'}
#: With the default proposal interval, which a ceph.conf would override.
USUAL_CONF: Dict[str, Dict[str, str]] = {'mon': ENABLED, 'mgr': {'mgr_stats_period': '1'}}
#: Global: after one slow heartbeat, OSD_SLOW_PING_TIME remains for 15 minutes.
CALM = {'mon_warn_on_slow_ping_time': '60000'}
#: Options for campaigns that take seconds instead of minutes.
FAST_CONF = {'mon': {**ENABLED, 'paxos_propose_interval': '0.2'}, 'mgr': {'mgr_stats_period': '1'}}
FAST_OPTIONS = {'campaign_interval': '0.3', 'loop_interval': '1', 'max_backfills_source': '8',
                'max_backfills_primary': '8', 'max_backfills_target': '8',
                'max_backfills_host': '32', 'max_transition_ratio': '0.2',
                # The OSDs of a test with files are on one device.
                'max_backfills_device': '32',
                # Most tests do not consider client latency.
                'stall_ratio': '1',
                # New OSDs come up together.
                'auto_expand_settle': '2',
                # So that a campaign leaves no upmaps.
                'target': 'crush'}

#: Log messages of exceptions in the module, followed by a traceback.
FAILURES = ('Traceback', 'a loop iteration failed', 'the watch failed to process')

Json = Dict[str, Any]


class Guard:
    def __init__(self, cluster: Cluster, options: Optional[Dict[str, str]] = None) -> None:
        self.cluster = cluster
        #: Bytes of each log that were searched for tracebacks.
        self._seen: Dict[str, int] = {}
        #: The id of the last campaign before the test; 0: none.
        self.former = 0
        cluster.mon('mgr module enable', module='perfguard')
        self.configure({**FAST_OPTIONS, **(options or {})})
        # On, as usual, but with nothing to do. perfguard goes by this value when it adopts upmaps.
        cluster.mon('config set', who='mgr', name='mgr/balancer/upmap_max_deviation', value='100')
        self.wait_ready()

    def configure(self, options: Dict[str, str]) -> None:
        self.cluster.order([
            {'prefix': 'config set', 'who': 'mgr', 'name': 'mgr/perfguard/' + name, 'value': value}
            for name, value in options.items()])

    def option(self, name: str, value: str) -> None:
        self.configure({name: value})

    def close_window(self) -> None:
        """No release may begin for at least an hour."""
        hour = time.localtime().tm_hour
        self.configure({'begin_time': '%02d00' % ((hour + 2) % 24),
                        'end_time': '%02d00' % ((hour + 3) % 24)})

    def unset(self, name: str) -> None:
        """Remove an option, so that its default applies."""
        self.cluster.mon('config rm', who='mgr', name='mgr/perfguard/' + name)

    def wait_ready(self) -> None:
        def ready() -> bool:
            retval, out, _ = self.ask('status')
            return retval == 0 and bool(json.loads(out)['signals'])

        self.cluster.wait(ready, 90, 'perfguard to answer')

    def ask(self, command: str, **args: Any) -> Tuple[int, str, str]:
        return self.cluster.mgr('perfguard ' + command, **{'format': 'json', **args})

    def get(self, command: str, **args: Any) -> Any:
        retval, out, error = self.ask(command, **args)
        assert retval == 0, (command, retval, error)
        return json.loads(out)

    def do(self, verb: str, timeout: float = 20, **args: Any) -> None:
        """Run a command on the campaign that must succeed; repeated while the cluster settles."""
        deadline = time.monotonic() + patient(timeout)
        while True:
            retval, _, error = self.ask('campaign ' + verb, **args)
            if retval == 0:
                return
            assert time.monotonic() < deadline, (verb, retval, error)
            time.sleep(0.3)

    def refused(self, verb: str, **args: Any) -> str:
        """The error of a command on the campaign that must be refused."""
        retval, out, error = self.ask('campaign ' + verb, **args)
        assert retval < 0 and not out and error and '\n' not in error, (verb, retval, out, error)
        return error

    def status(self) -> Json:
        found: Json = self.get('campaign status')
        return found

    def codes(self, command: str = 'campaign status') -> List[str]:
        """Codes of the reasons of `status` or `campaign status`."""
        return [reason['code'] for reason in self.get(command)['limits']]

    def wait_code(self, *codes: str, timeout: float = 40) -> Json:
        """Wait until `campaign status` has a reason with one of these codes."""
        self.cluster.wait(lambda: not set(codes).isdisjoint(self.codes()), timeout,
                          'the reason %s' % ' or '.join(codes))
        return self.status()

    def wait_phase(self, *phases: str, timeout: float = 90) -> Json:
        """Wait until the campaign of the test is in one of the phases (IDLE without one)."""
        seen: List[Json] = []

        def there() -> bool:
            retval, out, _ = self.ask('campaign status')
            if retval == 0:
                seen.append(json.loads(out))
            return bool(seen) and self._phase_of(seen[-1]) in phases

        try:
            self.cluster.wait(there, timeout, 'phase %s' % '/'.join(phases))
        except Exception as error:
            raise AssertionError('%s; status: %s' % (error, seen[-1:])) from error
        return seen[-1]

    def phase(self) -> str:
        """The phase of the campaign of the test; IDLE without one."""
        return self._phase_of(self.status())

    def _phase_of(self, status: Json) -> str:
        return 'IDLE' if status['id'] and status['id'] == self.former else str(status['phase'])

    def wait_moving(self, at_least: int = 1, timeout: float = 60) -> Json:
        """Wait until some PGs have been released and others are pinned."""
        def moving() -> bool:
            status = self.status()
            return status['released'] >= at_least and status['in_flight'] > 0
        self.cluster.wait(moving, timeout, 'PGs in flight')
        return self.status()

    def prepare(self) -> None:
        """Again if an accepted command is refused later, because PGs peer again."""
        for _ in range(5):
            after = self.last_event()
            self.do('prepare')
            self.cluster.wait(lambda: self.phase() == 'PREPARED'
                              or self.event_texts('refused', after), 90, 'an answer to prepare')
            if self.phase() == 'PREPARED':
                return
        raise AssertionError(self.event_texts('refused'))

    def hold(self, change: Any) -> Json:
        """Prepare, change CRUSH, pin: returns with the campaign PINNED."""
        self.prepare()
        change()
        self.wait_remapped()
        self.do('pin')
        return self.wait_phase('PINNED')

    def wait_remapped(self) -> int:
        """Wait until the change of CRUSH has an effect and PGs have peered; returns the number
        of remapped PGs."""
        self.cluster.wait(lambda: self.cluster.osd_dump()['pg_temp'], 30, 'remapped PGs')
        self.cluster.wait_active(30)
        return len(self.cluster.osd_dump()['pg_temp'])

    def events(self) -> List[Json]:
        found: List[Json] = self.get('events', count=500)['events']
        return found

    def foreign(self) -> Foreign:
        """The settings that perfguard must restore."""
        return audit(self.cluster, self.balancer())

    def balancer(self) -> Json:
        retval, out, error = self.cluster.mgr('balancer status', format='json')
        assert retval == 0, error
        found: Json = json.loads(out)
        return found

    def upmaps(self) -> Dict[str, Any]:
        """All upmaps of the cluster."""
        dump = self.cluster.osd_dump()
        found: Dict[str, Any] = {e['pgid']: [(m['from'], m['to']) for m in e['mappings']]
                                 for e in dump['pg_upmap_items']}
        found.update({e['pgid'] + ' vector': e['osds'] for e in dump['pg_upmap']})
        return found

    def remove_upmaps(self) -> None:
        """Remove all upmaps of the cluster."""
        dump = self.cluster.osd_dump()
        self.cluster.burst(
            [{'prefix': 'osd rm-pg-upmap-items', 'pgid': e['pgid']}
             for e in dump['pg_upmap_items']]
            + [{'prefix': 'osd rm-pg-upmap', 'pgid': e['pgid']} for e in dump['pg_upmap']])

    def store_keys(self) -> List[str]:
        keys: List[str] = self.cluster.mon('config-key ls')
        return sorted(key[len('mgr/perfguard/'):] for key in keys
                      if key.startswith('mgr/perfguard/'))

    def tracebacks(self) -> List[str]:
        """Lines of the mgr logs that report an exception in perfguard.

        Only those since the last call: a traceback fails one test, not all that follow.
        """
        lines: List[str] = []
        for path in (self.cluster.directory / 'log').glob('mgr.*.log'):
            with open(path, 'rb') as log:
                log.seek(self._seen.get(path.name, 0))
                whole, newline, _ = log.read().rpartition(b'\n')
            self._seen[path.name] = self._seen.get(path.name, 0) + len(whole + newline)
            lines += [line for line in whole.decode(errors='replace').splitlines()
                      if 'perfguard' in line and any(text in line for text in FAILURES)]
        return lines

    # ---- Watch

    def osds(self) -> Dict[int, Json]:
        """The rows of `perfguard osds` by OSD."""
        return {row['osd']: row for row in self.get('osds')['osds']}

    def slow_osds(self) -> Set[int]:
        return {osd for osd, row in self.osds().items() if row['slow']}

    def checks(self) -> Dict[str, Json]:
        """Health checks of perfguard in the mons, with details."""
        checks: Dict[str, Json] = self.cluster.mon('health', detail='detail')['checks']
        return {code: check for code, check in checks.items() if code.startswith('PERFGUARD_')}

    def wait_check(self, code: str, raised: bool, timeout: float) -> None:
        """Wait until the mons show a health check, or no longer do."""
        self.cluster.wait(lambda: (code in self.checks()) == raised, timeout,
                          '%s %s' % (code, 'raised' if raised else 'gone'))

    def event_texts(self, kind: str, after: int = 0) -> List[str]:
        """The texts of the events of a kind with an id above `after`, oldest first."""
        return [event['what'] for event in self.events()
                if event['kind'] == kind and event['id'] > after]

    def last_event(self) -> int:
        """The id of the newest event."""
        return max((event['id'] for event in self.events()), default=0)

    def wait_log(self, text: str, lines: int) -> None:
        """Wait until perfguard has written so many lines with the text to the cluster log."""
        self.cluster.wait(lambda: len(self.cluster_log(text)) >= lines, 15,
                          '%r in the cluster log' % text)
        assert len(self.cluster_log(text)) == lines, self.cluster_log(text)

    def cluster_log(self, text: str) -> List[str]:
        """Lines of perfguard in the cluster log that contain the text."""
        # Not the audit channel, which contains all commands.
        return [line for line in self.log_lines(text) if 'perfguard: ' in line]

    def log_lines(self, text: str) -> List[str]:
        """Lines of the mons' logs of all channels that contain the text."""
        with open(self.cluster.directory / 'log' / 'cluster.log', errors='replace') as log:
            return [line for line in log if text in line]
