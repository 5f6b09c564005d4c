# SPDX-License-Identifier: LGPL-2.1-or-later
"""The one file that knows that Ceph releases differ. It tests for features, never for versions."""
from typing import Any, Callable, Dict, Iterable, List, Optional, Tuple

import mgr_module
from mgr_module import NotifyType, Option

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]

#: The base class of a release's own command registry; None where commands register globally.
_registry_base: Optional[Any] = getattr(mgr_module, 'CLICommandBase', None)

if _registry_base is not None and hasattr(_registry_base, 'make_registry_subtype'):
    # From Tentacle on each module owns its registry and names it in `Module.CLICommand`.
    CLICommand: Any = _registry_base.make_registry_subtype('PerfguardCLICommand')

    def read_command(prefix: str, poll: bool = False) -> Decorator:
        """`poll`: the ceph tool repeats it every --period until it fails."""
        return CLICommand.Read(prefix, poll)

    def write_command(prefix: str) -> Decorator:
        return CLICommand.Write(prefix)
else:
    CLICommand = getattr(mgr_module, 'CLICommand')

    def read_command(prefix: str, poll: bool = False) -> Decorator:
        return getattr(mgr_module, 'CLIReadCommand')(prefix, poll)

    def write_command(prefix: str) -> Decorator:
        return getattr(mgr_module, 'CLIWriteCommand')(prefix)


def notify_types(*names: str) -> List[NotifyType]:
    """The notifications among `names` that this release knows."""
    return [NotifyType(name) for name in names if name in {t.value for t in NotifyType}]


def module_option(level: int, **spec: Any) -> Option:
    """Pacific's class does not take the level, and its ceph-mgr ignores it."""
    option = Option(**spec)
    option['level'] = level
    return option


#: Names of the counter of commit latency; a store with neither does not report it.
COMMIT_COUNTERS: Tuple[str, ...] = ('bluestore.txc_commit_lat', 'bluestore.commit_lat')


def latest_counter(mgr: Any) -> Callable[[str, str, str], Any]:
    """The method of the mgr that returns the latest value of a performance counter without labels:
    (daemon type, daemon id, counter) -> {counter: [time, value(, count)]}.

    In releases whose counters can have labels, the older name, get_latest_counter, is for those
    that do.
    """
    return getattr(mgr, 'get_latest_unlabeled_counter', None) or mgr.get_latest_counter


def ceph_options(mgr: Any, names: Iterable[str]) -> Dict[str, str]:
    """The values of options that this mgr has; those that its release does not know are left out.
    For instance, OSDs with mclock honour osd_mclock_override_recovery_settings from Quincy 17.2.6
    on. Before, they replace limits for recovery whatever is set, and mons refuse the option unless
    they are forced to take it."""
    values = {}
    for name in names:
        try:
            value = mgr.get_ceph_option(name)
        except KeyError:
            continue
        if value is not None:
            # As the configuration database has it: "true".
            values[name] = str(value).lower() if isinstance(value, bool) else str(value)
    return values


def degraded_sleep(mgr: Any, alike: bool) -> str:
    """Name of the option for how long OSDs sleep after each object of a degraded PG. Newer versions
    have one for degraded PGs alone. `alike`: all mons and OSDs run the version of this mgr. If not,
    some may lack the newer option: mons refuse it then, and OSDs ignore it. The older one has an
    effect on all OSDs."""
    name = 'osd_recovery_sleep_degraded'
    return name if alike and ceph_options(mgr, [name]) else 'osd_recovery_sleep'


def call_module(mgr: Any, module: str, method: str, *args: Any) -> Any:
    """What a method of another module returns. Raises OSError with the reason: the module is not
    enabled, it fails, or its release has no such method, as not all of them are meant for others.
    """
    try:
        return mgr.remote(module, method, *args)
    except NameError as error:
        raise OSError('module %s of this Ceph release has no method %s, which this version of '
                      'perfguard needs' % (module, method)) from error
    except (ImportError, RuntimeError) as error:
        raise OSError('%s: %s' % (module, error)) from error
