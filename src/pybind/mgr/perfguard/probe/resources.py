# SPDX-License-Identifier: LGPL-2.1-or-later
"""What one run of a probe has on the cluster: made, given back, and journalled before either."""
import errno
import json
from dataclasses import replace
from typing import Any, Callable, Dict, Optional

from ..cluster.ports import Cluster, View
from ..cluster.types import Pool
from ..errors import PerfguardError
from . import site as sites
from .site import Site

Json = Dict[str, Any]

#: Nothing is made, or set, that another mgr would not find in the journal.
NOT_KEPT = 'the mons do not keep the journal of the probe'


class CannotMake(PerfguardError):
    """The mons refuse something that the run needs; the message is one line."""


class Premises:
    """For the loop's thread only: it waits for the mons."""

    def __init__(self, cluster: Cluster, keep: Callable[[Site], bool], site: Site) -> None:
        self._cluster = cluster
        self._keep = keep
        self.site = site
        #: Secret of the user; '' where it is not known, or not any more.
        self.key = ''
        #: What is in the way of giving back, in words, and whether it was met in this attempt.
        self.hindrance = ''
        self.hindered = False

    def note(self, **changes: Any) -> bool:
        """Journal what is about to change; whether the mons have it."""
        self.site = replace(self.site, **changes)
        return self._keep(self.site)

    def hinder(self, text: str) -> None:
        self.hindrance, self.hindered = text, True

    # ---- making

    def make(self, view: View, replicas: int, pg_num: int) -> None:
        """The own pool, if there shall be one, and the user; raises CannotMake."""
        if self.site.own and pool_named(view, self.site.pool) is not None:
            # Whoever made it, it is not the run's to remove.
            self.site = replace(self.site, own=False)
            raise CannotMake('pool %s already exists, but no probe created it' % self.site.pool)
        if not self.note(user=True):
            raise CannotMake(NOT_KEPT)
        if self.site.own:
            self._make_pool(replicas, pg_num)
        self.make_user()

    def _make_pool(self, replicas: int, pg_num: int) -> None:
        for command in sites.pool_commands(self.site, replicas, pg_num):
            if command.get('yes_i_really_mean_it') and not self._allow(sites.SIZE_ONE_OPTION):
                raise CannotMake('the mons do not accept %s' % sites.SIZE_ONE_OPTION)
            reply = self._cluster.run([command])[0]
            if 'already exists' in reply.error:
                # Somebody has made it just now; the mons take that for success.
                self.note(own=False)
            if reply.retval != 0 or not self.site.own:
                raise CannotMake('%s: %s' % (command['prefix'], reply.error))
        # Not for longer than it takes.
        self.restored()

    def make_user(self) -> None:
        """Or learn the secret of the one that there is; raises CannotMake."""
        reply = self._cluster.run([sites.user_command(self.site)])[0]
        if reply.retval != 0:
            raise CannotMake('auth get-or-create: %s' % reply.error)
        self.key = str(json.loads(reply.out)[0]['key'])

    def _allow(self, option: str) -> bool:
        """Set an option of the mons for a moment; False: they did not."""
        if option not in self.site.allowed:
            entries = self._cluster.config_entries()
            if entries is None:
                self.hinder('config dump: no answer')
                return False
            if not self.note(allowed={**self.site.allowed,
                                      option: sites.in_force(entries, option)}):
                self.hinder(NOT_KEPT)
                return False
        return self._done(sites.allow_command(option))

    # ---- giving back

    def close(self) -> None:
        """What can be given back at once, where there will be no other turn.

        The journal stays, so that the next start sees to what the mons do not do in time.
        """
        if not self.site.user:
            return
        if self.site.own and not self.remove_pool():
            self.remove_pool()
        self.drop_user()
        self.restored()

    def drop_user(self) -> None:
        """Whatever the mons say to it: it is made anew, or removed, later on."""
        self.key = ''
        self._cluster.run([sites.remove_user_command(self.site)])

    def user_removed(self) -> bool:
        """Whether it is gone."""
        self.key = ''
        return self._done(sites.remove_user_command(self.site))

    def remove_user(self) -> bool:
        """Whether it is gone, and noted so."""
        if not self.user_removed():
            return False
        self.note(user=False)
        return True

    def follow_rename(self, view: View) -> None:
        """The operator may have renamed the pool; the user has no right under the new name."""
        pool = view.osdmap.pools.get(self.site.pool_id)
        if pool is not None and pool.name != self.site.pool:
            self.drop_user()
            self.note(pool=pool.name)

    @property
    def half_way(self) -> bool:
        """The next call of `remove_pool` belongs to the attempt of the last one."""
        return sites.DELETE_OPTION in self.site.allowed

    def remove_pool(self) -> bool:
        """What the mons say counts: this mgr's OSDMap need not show yet what was just made.

        Mons that do not delete pools are allowed to for one attempt, from one call to the next,
        so that all of them have heard of it.
        """
        allowed = self.half_way
        reply = self._cluster.run([sites.remove_pool_command(self.site)])[0]
        if allowed:
            self.restored()
        if reply.retval in (0, -errno.ENOENT):
            return True
        if reply.retval != -errno.EPERM:
            self.hinder('osd pool rm: %s' % (reply.error or 'no answer'))
        elif allowed:
            # Their ceph.conf wins over the database, or the pool itself has to stay.
            self.hinder('osd pool rm: %s; if the configuration database has no effect: ceph tell '
                        'mon.* config set %s true' % (reply.error, sites.DELETE_OPTION))
        else:
            self._allow(sites.DELETE_OPTION)
        return False

    def restored(self) -> bool:
        """Give back what the operator has not set anew meanwhile; False: not all of it yet."""
        if not self.site.allowed:
            return True
        entries = self._cluster.config_entries()
        if entries is None:
            self.hinder('config dump: no answer')
            return False
        for option, before in self.site.allowed.items():
            ours = sites.in_force(entries, option) == sites.ALLOWED and before != sites.ALLOWED
            if ours and not self._done(sites.restore_command(option, before)):
                return False
        self.note(allowed={})
        return True

    def _done(self, command: Json) -> bool:
        reply = self._cluster.run([command])[0]
        if reply.retval not in (0, -errno.ENOENT):
            self.hinder('%s: %s' % (command['prefix'], reply.error or 'no answer'))
            return False
        return True


def pool_named(view: View, name: str) -> Optional[Pool]:
    return next((pool for pool in view.osdmap.pools.values() if pool.name == name), None)
