# SPDX-License-Identifier: LGPL-2.1-or-later
"""The worker's connection to the cluster."""
import json
import os
from typing import Any, Callable, Dict, Mapping, Optional, Tuple

import rados

from ...cluster.types import Json
from ..types import NAMESPACE
from .protocol import Failed, WorkerRequest, words

CONNECT_SECONDS_MAX = 15.0
LIBRARY = 'librados.so.2'


def settings(request: WorkerRequest) -> Dict[str, str]:
    """Options of librados for a connection as the request says, also for that of native.py."""
    # Some releases accept whole seconds only.
    timeout = '%d' % min(CONNECT_SECONDS_MAX, max(1.0, request.limit_seconds / 3))
    return {
        **({'mon_host': request.mon_host} if request.mon_host else {}), 'key': request.key,
        # The key is given, so no keyring is read; no logs are written.
        'keyring': '', 'log_file': '', 'admin_socket': '', 'log_to_stderr': 'false',
        'err_to_stderr': 'false', 'log_to_syslog': 'false', 'err_to_syslog': 'false',
        'rados_mon_op_timeout': timeout, 'client_mount_timeout': timeout,
        # The probe determines the queue depth; limits of librados must not.
        'objecter_inflight_ops': '1000000', 'objecter_inflight_op_bytes': str(1 << 40),
        # A probe measures the cluster, not the memory of its client or a device of this host. The
        # worker does not close its image: a persistent cache would stay on this host.
        'rbd_cache': 'false', 'rbd_plugins': '', 'rbd_persistent_cache_mode': 'disabled',
        # All objects of the image are in the pool of the probe, the only one that its user can
        # write to.
        'rbd_default_data_pool': '', 'rbd_journal_pool': '',
        # The user may neither write to the default namespace of a pool of others, nor ban clients:
        # the owner of an image that is removed is a worker of the run, which has died.
        'rbd_validate_pool': 'false', 'rbd_blocklist_on_break_lock': 'false',
    }


def conf_path(request: WorkerRequest) -> str:
    """The path of ceph.conf; '' if it is not readable: the request contains what is needed."""
    return request.conf if os.access(request.conf, os.R_OK) else ''


class Connection:
    """Raises Failed if the cluster does not answer, the pool is missing, or the key is wrong."""

    def __init__(self, request: WorkerRequest, options: Mapping[str, str] = {}) -> None:
        """`options`: further ones of librados."""
        try:
            self._handle = self._connect(request, {**settings(request), **options})
        except rados.Error as e:
            raise failed(e, 'no connection to the cluster as %s' % request.entity)
        self._pool = request.pool
        self.ioctx = self.open_pool()
        self.ioctx.set_namespace(NAMESPACE)

    def open_pool(self) -> Any:
        """A handle of the pool's default namespace. Raises Failed if there is no such pool."""
        try:
            ioctx = self._handle.open_ioctx(self._pool)
        except rados.Error as e:
            raise failed(e, 'pool %s' % self._pool)
        # A full pool then returns errors instead of blocking writes, and objects can be removed.
        ioctx.set_osdmap_full_try()
        return ioctx

    def fsid(self) -> str:
        """Of the cluster."""
        return str(self._handle.get_fsid())

    def board(self, name: str) -> 'ObjectBoard':
        return ObjectBoard(self.ioctx, name)

    def health(self) -> Dict[str, str]:
        """The cluster's health checks that are not muted: code -> summary. Raises Failed."""
        checks = self._ask('the health of the cluster', prefix='health')['checks']
        return {code: check['summary']['message']
                for code, check in checks.items() if not check.get('muted')}

    def quota_left(self) -> Tuple[Optional[int], Optional[int]]:
        """Bytes and objects that the quotas of the pool leave; None: no quota. Raises Failed."""
        quota = self._ask('the quota of pool %s' % self._pool, prefix='osd pool get-quota',
                          pool=self._pool)
        remaining = [quota['quota_max_' + name] - quota['current_num_' + name]
                     if quota['quota_max_' + name] else None for name in ('bytes', 'objects')]
        return remaining[0], remaining[1]

    def free_bytes(self) -> int:
        """Bytes that clients can write to the pool until its first OSD is full; 0 for an unknown
        pool. Raises Failed."""
        df = self._ask('the free space of pool %s' % self._pool, prefix='df')
        return next((int(pool['stats']['max_avail'])
                     for pool in df['pools'] if pool['name'] == self._pool), 0)

    def _ask(self, subject: str, **command: str) -> Json:
        """The answer of the mons to a command, parsed. `subject`: what it reads, for the error.
        Raises Failed."""
        retval, out, error = self._handle.mon_command(
            json.dumps({**command, 'format': 'json'}), b'')
        if retval:
            raise Failed(-retval, 'cannot read %s: %s' % (subject, error or words(-retval)))
        answer: Json = json.loads(out)
        return answer

    @staticmethod
    def _connect(request: WorkerRequest, options: Mapping[str, str]) -> 'rados.Rados':
        handle = rados.Rados(name=request.entity, conffile=conf_path(request) or None)
        for name, value in options.items():
            handle.conf_set(name, value)
        handle.connect()
        return handle


#: librados reports -4095 less the offset of the first byte that differs (cmpext).
MISMATCH = 4095


class ObjectBoard:
    """The object at which hosts meet (meeting.py), by the operations that a user with "allow rw"
    may send, also to erasure-coded pools."""

    def __init__(self, ioctx: Any, name: str) -> None:
        self._ioctx, self._name = ioctx, name

    def create(self, content: str, xattrs: Mapping[str, str]) -> bool:
        """Create the object unless it exists. Returns whether this has created it. Raises Failed.
        """
        def fill(operation: Any) -> None:
            operation.new(rados.LIBRADOS_CREATE_EXCLUSIVE)
            operation.write_full(content.encode())
            for key, value in xattrs.items():
                operation.set_xattr(key, value.encode())

        return self._write_if(fill)

    def read(self) -> Optional[Mapping[str, str]]:
        """The xattrs of the object; None: it does not exist. Raises Failed."""
        try:
            return {key: value.decode(errors='replace')
                    for key, value in self._ioctx.get_xattrs(self._name)}
        except rados.ObjectNotFound:
            return None
        except rados.Error as e:
            raise self._failed(e)

    def write(self, content: str, key: str, value: str) -> bool:
        """Set an xattr if the object has this content. Returns whether it has. Raises Failed."""
        def fill(operation: Any) -> None:
            operation.cmpext(content.encode(), 0)
            operation.set_xattr(key, value.encode())

        return self._write_if(fill)

    def remove(self, content: str) -> None:
        """Remove the object if it has this content. Raises Failed."""
        def fill(operation: Any) -> None:
            operation.cmpext(content.encode(), 0)
            operation.remove()

        self._write_if(fill)

    def put(self, suffix: str, data: bytes) -> None:
        """Write an object whose name is that of the meeting and a suffix. Raises Failed."""
        try:
            self._ioctx.write_full('%s/%s' % (self._name, suffix), data)
        except rados.Error as e:
            raise self._failed(e)

    def get(self, suffix: str) -> Optional[bytes]:
        """The data that `put` has written with this suffix; None: there are none. Raises Failed."""
        name = '%s/%s' % (self._name, suffix)
        try:
            data: bytes = self._ioctx.read(name, self._ioctx.stat(name)[0])
        except rados.ObjectNotFound:
            return None
        except rados.Error as e:
            raise self._failed(e)
        return data

    def drop(self, suffix: str) -> None:
        """Remove what `put` has written with this suffix, if anything. Raises Failed."""
        try:
            self._ioctx.remove_object('%s/%s' % (self._name, suffix))
        except rados.ObjectNotFound:
            pass
        except rados.Error as e:
            raise self._failed(e)

    def _write_if(self, fill: Callable[[Any], None]) -> bool:
        """Send the operations that `fill` adds, as one. Returns False, and changes nothing, if a
        condition among them does not hold: the object exists, does not exist, or has another
        content. Raises Failed."""
        try:
            with rados.WriteOpCtx() as operation:
                fill(operation)
                self._ioctx.operate_write_op(operation, self._name)
        except (rados.ObjectExists, rados.ObjectNotFound):
            return False
        except rados.Error as e:
            if (e.errno or 0) >= MISMATCH:
                return False
            raise self._failed(e)
        return True

    def _failed(self, error: Exception) -> Failed:
        return failed(error, 'object %s' % self._name)


def failed(error: Exception, subject: str) -> Failed:
    code = int(getattr(error, 'errno', None) or 5)
    return Failed(code, '%s: %s' % (subject, words(code)))
