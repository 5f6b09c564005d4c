#!/usr/bin/env python3
# SPDX-License-Identifier: LGPL-2.1-or-later
"""Installs perfguard on a cluster of cephadm, without an image and without a registry.

Run it on one host with the administrator's keyring, from the unpacked archive:

    ./install-cephadm --copy            copy the files to the hosts of mgrs, mount them into the
                                        containers of the mgrs, and enable the module
    ./install-cephadm --copy --upgrade  replace another version
    ./install-cephadm --remove          go back to mgrs without perfguard

Each host gets a new directory for each version, which never changes. The service specification of
the mgrs is changed in nothing but the mounts of this directory. --dry-run only checks, and prints
what would be done. Repeating a command is safe.
"""
import argparse
import concurrent.futures
import contextlib
import fnmatch
import hashlib
import importlib.util
import json
import os
import queue
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import threading
import time
from typing import Any, Callable, Collection, Dict, List, NamedTuple, Optional, Sequence

Json = Dict[str, Any]

ARCHIVE = os.path.dirname(os.path.abspath(__file__))
SUMS = 'SHA256SUMS'
MODULES = '/usr/share/ceph/mgr'
#: Path in the archive, and below MODULES in the container.
MOUNTED = ('perfguard', 'dashboard/controllers/perfguard.py')
OLDEST_RELEASE, OLDEST_PYTHON = 16, (3, 9)
WAIT_SECONDS = 600.0
COMMAND_SECONDS = 120.0
#: For cephadm's shell, which may have to pull its image; and to end.
START_SECONDS, END_SECONDS = 300.0, 10.0
#: Hosts at a time.
HOSTS_AT_ONCE = 10


class Refusal(Exception):
    """The command cannot go on; the text says why and what to do."""


# ---- The specification of the mgrs

def argument_text(argument: Any) -> str:
    """An extra container argument; later releases also have {"argument": ..., "split": ...}."""
    return str(argument['argument'] if isinstance(argument, dict) else argument)


def is_own(argument: Any) -> bool:
    """Whether this program has added the argument."""
    text = argument_text(argument)
    return text.startswith('--volume=') and any(
        ':%s/%s:' % (MODULES, path) in text for path in MOUNTED)


def without_mounts(spec: Json) -> Json:
    """The specification without what this program has added."""
    rest = [argument for argument in spec.get('extra_container_args') or []
            if not is_own(argument)]
    found = {name: value for name, value in spec.items() if name != 'extra_container_args'}
    return {**found, 'extra_container_args': rest} if rest else found


def with_mounts(spec: Json, directory: str) -> Json:
    """The specification with the mounts of a version; "z" labels the files where SELinux is on.
    Raises Refusal if they are mounted in another way."""
    kept = without_mounts(spec).get('extra_container_args', [])
    if any('%s/%s' % (MODULES, path) in argument_text(argument)
           for argument in kept for path in MOUNTED):
        raise Refusal('the specification of the mgrs already mounts perfguard by arguments of '
                      'yours: remove them first ("ceph orch ls mgr --export")')
    own = ['--volume=%s/%s:%s/%s:ro,z' % (directory, path, MODULES, path) for path in MOUNTED]
    return {**spec, 'extra_container_args': [*kept, *own]}


def directory_of(spec: Json) -> Optional[str]:
    """The mounted directory; None without one."""
    for argument in spec.get('extra_container_args') or []:
        if is_own(argument):
            return argument_text(argument)[len('--volume='):].split('/%s:' % MOUNTED[0])[0]
    return None


def hosts_of(spec: Json, hosts: Sequence[Json]) -> List[str]:
    """Names of the hosts that may get an mgr by the placement."""
    placement = spec.get('placement') or {}
    hosts = [host for host in hosts if '_no_schedule' not in host['labels']]
    names = [host['hostname'] for host in hosts]
    if placement.get('hosts'):
        named = [each if isinstance(each, str) else each['hostname']
                 for each in placement['hosts']]
        return [name for name in names
                if name in {re.split('[:=]', each)[0] for each in named}]
    if placement.get('label'):
        return [host['hostname'] for host in hosts if placement['label'] in host['labels']]
    pattern = placement.get('host_pattern') or '*'
    if isinstance(pattern, dict):
        if pattern.get('pattern_type') == 'regex':
            return [name for name in names if re.match(pattern['pattern'], name)]
        pattern = pattern['pattern']
    return fnmatch.filter(names, pattern)


# ---- The cluster and its hosts

#: Gives commands to the cluster, and answers each line with one. The program ceph would take a
#: second for each command, and cephadm's shell takes seconds to start; it also writes lines of its
#: own.
SESSION = '''
import json, sys
import rados
with rados.Rados(conffile=rados.Rados.DEFAULT_CONF_FILES) as cluster:
    print(sys.argv[1], flush=True)
    for line in iter(sys.stdin.readline, ""):
        to_mgr, command, given = json.loads(line)
        answer = (cluster.mgr_command if to_mgr else cluster.mon_command)(
            json.dumps(command), given.encode())
        print(sys.argv[1] + json.dumps([answer[0], answer[1].decode(), answer[2]]), flush=True)
'''
#: What the commands for mgrs begin with.
OF_MGRS = ('orch', 'cephadm', 'perfguard')
ANSWER = 'perfguard: '


class Answer(NamedTuple):
    """To a command. `status`: 0, or a negative errno."""
    status: int
    out: str
    text: str


class Ceph:
    """The cluster, through librados of this host or of cephadm's shell. A command is its prefix and
    its arguments by name, as in "ceph -h". Raises Refusal if there is no answer, or none in
    time."""

    def __init__(self) -> None:
        if importlib.util.find_spec('rados'):
            python = [sys.executable]
        elif shutil.which('cephadm'):
            python = ['cephadm', 'shell', '--', 'python3']
        else:
            raise Refusal('neither python3-rados nor cephadm is installed on this host')
        # A group of its own, as cephadm's shell has children.
        self._shell = subprocess.Popen(
            [*python, '-c', SESSION, ANSWER], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            universal_newlines=True, start_new_session=True)
        self._lines: 'queue.Queue[str]' = queue.Queue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        try:
            self._answer(START_SECONDS, 'no connection to the cluster in %g seconds; '
                         '"cephadm shell -- ceph -s" may show why' % START_SECONDS)
        except Refusal:
            self.close()
            raise

    def close(self) -> None:
        """End the shell, in time."""
        assert self._shell.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._shell.stdin.close()
        try:
            self._shell.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            os.killpg(self._shell.pid, signal.SIGKILL)
            self._shell.wait()
        self._reader.join(END_SECONDS)

    def _read(self) -> None:
        assert self._shell.stdout is not None
        with self._shell.stdout:
            for line in self._shell.stdout:
                self._lines.put(line)
        self._lines.put('')

    def _answer(self, seconds: float, refusal: str) -> str:
        """The next answer of the session; raises Refusal if there is none in time."""
        deadline = time.monotonic() + seconds
        while True:
            try:
                line = self._lines.get(timeout=max(0.0, deadline - time.monotonic()))
            except queue.Empty:
                raise Refusal(refusal)
            if not line:
                raise Refusal('the connection to the cluster has ended, as said above')
            if line.startswith(ANSWER):
                return line[len(ANSWER):]

    def attempt(self, prefix: str, given: str = '', **arguments: Any) -> Answer:
        assert self._shell.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            print(json.dumps([prefix.split()[0] in OF_MGRS, {'prefix': prefix, **arguments},
                              given]), file=self._shell.stdin, flush=True)
        return Answer(*json.loads(self._answer(COMMAND_SECONDS, 'no answer to "ceph %s" in %g '
                                               'seconds' % (prefix, COMMAND_SECONDS))))

    def __call__(self, prefix: str, given: str = '', **arguments: Any) -> str:
        done = self.attempt(prefix, given, **arguments)
        if done.status != 0:
            raise Refusal('"ceph %s": %s' % (prefix, last_line(done.text)))
        return done.out

    def json(self, prefix: str, **arguments: Any) -> Any:
        text = self(prefix, format='json', **arguments)
        try:
            return json.loads(text)
        except ValueError:
            raise Refusal('unexpected answer to "ceph %s": %s' % (prefix, last_line(text)))


def last_line(text: str) -> str:
    return (text.strip().splitlines() or ['no reason given'])[-1]


def check_orchestrator(ceph: Ceph) -> None:
    status = ceph.json('orch status')
    if status.get('backend') != 'cephadm' or not status.get('available'):
        raise Refusal('cephadm does not run this cluster, or is not available ("ceph orch '
                      'status")')
    if status.get('paused'):
        raise Refusal('cephadm is paused: "ceph orch resume" first')


def check_release(versions: Json) -> None:
    """`versions`: of "ceph versions". Raises Refusal."""
    texts = sorted(versions.get('mgr') or {})
    if len(texts) != 1:
        raise Refusal('the mgrs have different versions of Ceph: end the upgrade first')
    found = re.search(r'version (\d+)', texts[0])
    if found is None or int(found.group(1)) < OLDEST_RELEASE:
        raise Refusal('the mgrs run "%s": perfguard requires version %d (Pacific) or later' % (
            texts[0], OLDEST_RELEASE))


class Hosts:
    """Runs scripts on hosts with the key of cephadm, which it keeps in a directory of its own."""

    def __init__(self, ceph: Ceph, folder: str) -> None:
        config, key = os.path.join(folder, 'config'), os.path.join(folder, 'key')
        for path, text in ((config, ceph('cephadm get-ssh-config')),
                           (key, ceph('config-key get', key='mgr/cephadm/ssh_identity_key'))):
            with open(path, 'w', opener=lambda name, flags: os.open(name, flags, 0o600)) as f:
                f.write(text.rstrip('\n') + '\n')
        self._user = ceph('cephadm get-user').strip() or 'root'
        self._options = ['-F', config, '-i', key, '-o', 'BatchMode=yes', '-o', 'LogLevel=ERROR']
        self.rows: List[Json] = ceph.json('orch host ls')

    def online(self, names: Sequence[str]) -> List[str]:
        """Those on which cephadm runs daemons; the others are named."""
        away = {row['hostname'] for row in self.rows if row.get('status')}
        for name in sorted(away.intersection(names)):
            print('%s is offline or in maintenance, and left out: repeat this command once it is '
                  'back, before it gets an mgr' % name)
        return [name for name in names if name not in away]

    def attempt(self, host: str, script: str, *words: str, given: Optional[str] = None
                ) -> 'subprocess.CompletedProcess[str]':
        """Run a shell script with arguments as root; `given`: a file for its input."""
        address = next((row['addr'] for row in self.rows if row['hostname'] == host), host)
        sudo = [] if self._user == 'root' else ['sudo', '-n']
        remote = ' '.join(shlex.quote(word) for word in (*sudo, 'sh', '-euc', script, 'sh', *words))
        with open(given or os.devnull, 'rb') as source:
            try:
                return subprocess.run(
                    ['ssh', *self._options, '%s@%s' % (self._user, address), remote], stdin=source,
                    stdout=subprocess.PIPE, stderr=subprocess.PIPE, universal_newlines=True,
                    timeout=COMMAND_SECONDS)
            except subprocess.TimeoutExpired:
                raise Refusal('%s: no answer by ssh in %g seconds' % (host, COMMAND_SECONDS))

    def run(self, host: str, script: str, *words: str, given: Optional[str] = None) -> str:
        done = self.attempt(host, script, *words, given=given)
        if done.returncode != 0:
            raise Refusal('%s: %s' % (host, last_line(done.stderr)))
        return done.stdout


def on_each(hosts: Sequence[str], call: Callable[[str], Any]) -> List[Any]:
    """The results in the order of the hosts; raises what the first of the calls raises."""
    with concurrent.futures.ThreadPoolExecutor(HOSTS_AT_ONCE) as pool:
        return list(pool.map(call, hosts))


#: $1: the directory of a version, $2: the checksum of its SHA256SUMS. Status 3: it does not exist.
CHECK = '''
test -e "$1" || exit 3
cd "$1"
echo "$2  SHA256SUMS" | sha256sum -c --quiet
sha256sum -c --quiet SHA256SUMS
'''
COPY = '''
rm -rf "$1.partial"
mkdir -p "$1.partial"
tar -C "$1.partial" -xf -
sync
mv -T "$1.partial" "$1"
'''
#: $1: the directory of all versions.
REMOVE = '''
for version in "$1"/*-????????; do
    if [ -e "$version/SHA256SUMS" ]; then rm -rf "$version"; fi
done
rmdir "$1" 2>/dev/null || true
'''
#: $1: a pattern for the name of a container. cephadm may know the ID of the one before.
CONTAINER = '''
engine=$(command -v podman || command -v docker)
container=$("$engine" ps -q -f "name=$1")
'''
PYTHON = CONTAINER + '''
"$engine" exec "$container" python3 -c 'import sys; print("%d.%d" % sys.version_info[:2])'
'''
#: $2: a directory. Status 0: it is mounted.
IS_MOUNTED = CONTAINER + '''
"$engine" inspect "$container" | grep -qF "$2/"
'''


# ---- What is installed

#: For a module that cannot give anything back.
LEFT = ('not given back, since perfguard does not run (%s): what it has borrowed. The mons keep '
        'its records ("ceph config-key dump mgr/perfguard/"): once it is installed and runs again, '
        '"ceph perfguard shutdown" gives all back. Otherwise check "ceph osd dump" (norebalance, '
        'primary affinities, pg_upmap_items), "ceph balancer status", "ceph osd pool '
        'autoscale-status" and "ceph config dump"')


class Installer:
    def __init__(self, args: argparse.Namespace, ceph: Ceph, hosts: Hosts) -> None:
        self.args, self.ceph, self.hosts = args, ceph, hosts
        with open(os.path.join(ARCHIVE, SUMS), 'rb') as f:
            self.checksum = hashlib.sha256(f.read()).hexdigest()
        with open(os.path.join(ARCHIVE, 'VERSION')) as version:
            self.version = version.read().strip()
        self.directory = '%s/%s-%s' % (
            args.directory.rstrip('/'), self.version, self.checksum[:8])
        self.spec: Json = {}

    def step(self, text: str, call: Callable[[], Any]) -> None:
        """Do something that changes the cluster or a host."""
        print(('would do: ' if self.args.dry_run else '') + text, flush=True)
        if not self.args.dry_run:
            call()

    def step_on(self, hosts: Sequence[str], text: str, call: Callable[[str], Any]) -> None:
        """The same on each host, on several at a time."""
        if hosts:
            self.step('%s: %s' % (', '.join(hosts), text), lambda: on_each(hosts, call))

    def install(self) -> None:
        self.check_cluster()
        installed = directory_of(self.spec)
        if installed and installed != self.directory and not self.args.upgrade:
            raise Refusal('%s is installed: --upgrade replaces it by %s' % (
                installed, self.directory))
        spec = with_mounts(self.spec, self.directory)
        check_release(self.ceph.json('versions'))
        self.check_python()
        self.place_files()
        if installed == self.directory:
            self.step('nothing changes; wait until all mgrs have %s' % installed,
                      lambda: self.wait_redeployed(self.mgr_count(), installed))
        else:
            self.apply(spec)
        self.enable()

    def remove(self) -> None:
        self.check_cluster()
        if 'perfguard' in self.ceph.json('mgr module ls')['enabled_modules']:
            failure = self.failure()
            if failure and not self.args.force:
                raise Refusal('perfguard cannot give back what it has borrowed: %s; "ceph mgr '
                              'fail" lets another mgr try, and --force leaves it' % failure)
            if failure:
                print(LEFT % failure, flush=True)
            else:
                self.step('give back what perfguard has borrowed (ceph perfguard shutdown)',
                          self.shut_down)
            self.step('disable the module', self.disable)
        if directory_of(self.spec):
            self.apply(without_mounts(self.spec))
        self.step_on(self.hosts.online([row['hostname'] for row in self.hosts.rows]),
                     'remove the versions in %s' % self.args.directory,
                     lambda host: self.hosts.run(host, REMOVE, self.args.directory))

    # ---- Checks

    def check_cluster(self) -> None:
        """Refuse a cluster that is not in order; read the specification of the mgrs."""
        # Later releases answer in words if there is none.
        if re.search(r'"in_progress": *true', self.ceph('orch upgrade status', format='json')):
            raise Refusal('an upgrade of Ceph is in progress: wait for its end')
        quorum = self.ceph.json('quorum_status')
        missing = ({mon['name'] for mon in quorum['monmap']['mons']}
                   - set(quorum['quorum_names']))
        if missing:
            raise Refusal('out of quorum: mon.%s' % ', mon.'.join(sorted(missing)))
        if not self.ceph.json('mgr dump')['standbys']:
            raise Refusal('there is no standby mgr, and the active one has to restart: "ceph orch '
                          'apply mgr 2" first')
        self.read_spec()

    def read_spec(self) -> None:
        specs = self.ceph.json('orch ls', service_type='mgr', export=True)
        if len(specs) != 1:
            raise Refusal('%d specifications of mgrs, expected one' % len(specs))
        self.spec = specs[0]
        if self.spec.get('unmanaged'):
            raise Refusal('the mgrs are unmanaged: "ceph orch set-managed mgr" first')

    def check_python(self) -> None:
        """Refuse an image whose Python is too old."""
        daemons = [row for row in self.ceph.json('orch ps', daemon_type='mgr')
                   if row.get('container_id')]
        for daemon in daemons:
            text = self.hosts.run(daemon['hostname'], PYTHON, container_name(daemon)).strip()
            if tuple(int(part) for part in text.split('.')) < OLDEST_PYTHON:
                raise Refusal('the image of mgr.%s has Python %s; perfguard requires %d.%d' % (
                    (daemon['daemon_id'], text) + OLDEST_PYTHON))

    # ---- Files

    def place_files(self) -> None:
        """Every host that may get an mgr needs them: without, its mgr does not start."""
        hosts = self.hosts.online(hosts_of(self.spec, self.hosts.rows))
        missing = [host for host, there in zip(hosts, on_each(hosts, self.has)) if not there]
        if missing and not self.args.copy:
            raise Refusal('%s not on %s: --copy copies it there by ssh, or limit the placement of '
                          'the mgrs' % (self.directory, ', '.join(missing)))
        if missing:
            with tempfile.NamedTemporaryFile() as packed:
                with tarfile.open(packed.name, 'w') as tar:
                    for name in (*MOUNTED, SUMS):
                        tar.add(os.path.join(ARCHIVE, name), name, filter=owned_by_root)
                self.step_on(missing, 'create %s' % self.directory, lambda host: self.hosts.run(
                    host, COPY, self.directory, given=packed.name))

    def has(self, host: str) -> bool:
        """Whether the host has the files of this version; raises Refusal if they are damaged."""
        done = self.hosts.attempt(host, CHECK, self.directory, self.checksum)
        if done.returncode not in (0, 3):
            raise Refusal('%s: %s: %s; if it is damaged, remove it and repeat' % (
                host, self.directory, last_line(done.stderr or done.stdout)))
        return done.returncode == 0

    # ---- Mgrs

    def apply(self, spec: Json) -> None:
        """Apply a specification and wait until all mgrs run with it."""
        before = self.spec
        self.check_cluster()
        if self.spec != before:
            raise Refusal('the specification of the mgrs has changed meanwhile: repeat the command')
        saved = os.path.join(os.getcwd(), 'mgr-spec-%s.json' % time.strftime('%Y%m%d-%H%M%S'))
        self.step('save the specification of the mgrs in %s' % saved,
                  lambda: write_json(saved, self.spec))
        count = self.mgr_count()
        self.step('apply this specification: %s' % json.dumps(spec), lambda: self.ceph(
            'orch apply', json.dumps(spec)))
        self.step('wait until cephadm has redeployed the mgrs, one after the other',
                  lambda: self.wait_redeployed(count, directory_of(spec), saved))

    def mgr_count(self) -> int:
        return len(self.ceph.json('mgr dump')['standbys']) + 1

    def wait_redeployed(self, count: int, directory: Optional[str], saved: str = '') -> None:
        """Wait until all mgrs have the files in `directory`; None: until no mgr has the module.
        `saved`: file with the earlier specification; '': it was not changed."""
        expected_version = self.version if directory else None
        deadline = time.monotonic() + WAIT_SECONDS
        while True:
            done = self.ceph.attempt('mgr dump', format='json')
            versions = mgr_versions(json.loads(done.out)) if done.status == 0 else {}
            if len(versions) >= count and {*versions.values()} == {expected_version} \
                    and (directory is None or self.are_mounted(directory, versions)):
                return
            if time.monotonic() > deadline:
                raise Refusal(
                    'not all mgrs were redeployed: perfguard is %s ("ceph orch ps --daemon_type '
                    'mgr", "ceph log last 50 info cephadm")%s' % (
                        ', '.join('%s in mgr.%s' % (version or 'missing', name)
                                  for name, version in sorted(versions.items())),
                        '; "ceph orch apply -i %s" goes back' % saved if saved else ''))
            time.sleep(1)

    def are_mounted(self, directory: str, names: Collection[str]) -> bool:
        """Whether the mgrs of these names have these files; other ones may have the same version.
        False if cephadm, or a host, does not answer yet."""
        done = self.ceph.attempt('orch ps', daemon_type='mgr', format='json')
        daemons = {daemon['daemon_id']: daemon
                   for daemon in (json.loads(done.out) if done.status == 0 else [])}
        try:
            return all(name in daemons and self.hosts.attempt(
                daemons[name]['hostname'], IS_MOUNTED, container_name(daemons[name]),
                directory).returncode == 0 for name in names)
        except Refusal as error:
            print(error, flush=True)
            return False

    def enable(self) -> None:
        if 'perfguard' not in self.ceph.json('mgr module ls')['enabled_modules']:
            self.step('enable the module', lambda: self.ceph('mgr module enable',
                                                             module='perfguard'))
        self.step('show "ceph perfguard status"', self.show_status)

    def show_status(self) -> None:
        print(self.retried('perfguard status'))

    def failure(self) -> str:
        """Why the module of the active mgr answers no command; '' if it does."""
        checks = self.ceph.json('health', detail='detail').get('checks') or {}
        for code in ('MGR_MODULE_ERROR', 'MGR_MODULE_DEPENDENCY'):
            for line in checks.get(code, {}).get('detail', []):
                if line['message'].startswith("Module 'perfguard' "):
                    return str(line['message'])
        # No health check names an enabled module whose files are missing.
        done = self.ceph.attempt('perfguard status')
        return 'the active mgr has not loaded it' \
            if done.status != 0 and 'No handler found' in done.text else ''

    def shut_down(self) -> None:
        """Until it reports that disabling is safe; refused if it would abort a campaign."""
        def is_safe() -> bool:
            return 'is safe now' in self.ceph('perfguard shutdown',
                                              yes_i_really_mean_it=self.args.force)

        wait(is_safe, 'perfguard to give back everything; see "ceph perfguard held"')

    def disable(self) -> None:
        """All mgrs restart."""
        def has_restarted() -> bool:
            mgrs = self.ceph.json('mgr dump')
            return bool(mgrs['available'] and mgrs['active_gid'] != before and mgrs['standbys']
                        and self.ceph.attempt('orch status').status == 0)

        before = self.ceph.json('mgr dump')['active_gid']
        self.ceph('mgr module disable', module='perfguard')
        wait(has_restarted, 'the mgrs to restart')

    def retried(self, prefix: str) -> str:
        """The answer to a command of a mgr that may be restarting."""
        def answers() -> bool:
            done.append(self.ceph.attempt(prefix))
            return done[-1].status == 0

        done: List[Answer] = []
        wait(answers, '"ceph %s"' % prefix)
        return done[-1].out.rstrip()


def container_name(daemon: Json) -> str:
    """The end of the name of its container, as a pattern."""
    return 'mgr.%s$' % daemon['daemon_id'].replace('-', '.')


def mgr_versions(mgr_map: Json) -> Dict[str, Optional[str]]:
    """The version of perfguard in each mgr, from the MgrMap; None: it does not have the module."""
    versions = {}
    for mgr in ({**mgr_map, 'name': mgr_map['active_name']}, *mgr_map['standbys']):
        if mgr['name']:
            module = next((each for each in mgr['available_modules']
                           if each['name'] == 'perfguard'), None)
            versions[mgr['name']] = None if module is None else str(
                module['module_options'].get('installed_version', {}).get(
                    'default_value', 'unknown'))
    return versions


def wait(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + WAIT_SECONDS
    while not condition():
        if time.monotonic() > deadline:
            raise Refusal('waited %g seconds for %s' % (WAIT_SECONDS, what))
        time.sleep(1)


def owned_by_root(info: tarfile.TarInfo) -> Optional[tarfile.TarInfo]:
    if '__pycache__' in info.name:
        return None
    info.uid = info.gid = 0
    info.uname = info.gname = 'root'
    # ceph-mgr runs as user ceph, and does not start with a module that it cannot read.
    info.mode = 0o755 if info.isdir() or info.mode & 0o100 else 0o644
    return info


def write_json(path: str, document: Json) -> None:
    with open(path, 'w') as f:
        json.dump(document, f, indent=1)


def main(argv: Optional[List[str]] = None) -> int:
    p = argparse.ArgumentParser(description=__doc__,
                                formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument('--copy', action='store_true', help='copy the files to hosts that lack them')
    p.add_argument('--upgrade', action='store_true', help='replace another version')
    p.add_argument('--remove', action='store_true', help='remove perfguard')
    p.add_argument('--force', action='store_true',
                   help='with --remove: even if this aborts a campaign (ceph perfguard shutdown '
                   '--yes-i-really-mean-it), or if perfguard does not run')
    p.add_argument('--dry-run', action='store_true', help='change nothing')
    p.add_argument('--directory', default='/opt/perfguard',
                   help='on the hosts (default: %(default)s)')
    args = p.parse_args(argv)
    try:
        with tempfile.TemporaryDirectory() as folder, contextlib.closing(Ceph()) as ceph:
            check_orchestrator(ceph)
            installer = Installer(args, ceph, Hosts(ceph, folder))
            installer.remove() if args.remove else installer.install()
    except Refusal as refusal:
        print('install-cephadm: %s' % refusal, file=sys.stderr)
        return 1
    return 0


if __name__ == '__main__':
    sys.exit(main())
