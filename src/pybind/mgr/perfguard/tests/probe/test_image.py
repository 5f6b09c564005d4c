# SPDX-License-Identifier: LGPL-2.1-or-later
"""An image in place of objects: which range each name stands for, and what librbd refuses."""
import errno
import sys
import time
import types
from typing import Any, Dict, List, Tuple, cast

import pytest
import rados

from perfguard.probe.types import RBD
from perfguard.probe.worker import objects
from perfguard.probe.worker.engine import python_streams
from perfguard.probe.worker.objects import Image, Payload, remove_images
from perfguard.probe.worker.protocol import Failed
from perfguard.probe.worker.work import Stepping

from .test_worker import SECOND_NS, Completion, Input, job, step, timing


class LibrbdError(Exception):
    errno = errno.ESHUTDOWN


class NotFound(LibrbdError):
    errno = errno.ENOENT


class FakeLibrbd:
    """One image in memory, whose operations complete at once, and names of others."""
    Error, ImageNotFound = LibrbdError, NotFound

    def __init__(self) -> None:
        self.created: List[Tuple[str, int]] = []
        self.content = bytearray()
        self.refuses = self.lacks_namespace = False
        self.names: List[str] = []
        #: Id -> name; and how often an image is still in use.
        self.trash: Dict[str, str] = {}
        self.busy = 0

    def RBD(self) -> Any:
        def create(ioctx: Any, name: str, size: int, old_format: bool) -> None:
            if self.refuses or self.lacks_namespace:
                raise NotFound('no') if self.lacks_namespace else LibrbdError('no')
            self.created.append((name, size))
            self.content = bytearray(size)

        def remove(ioctx: Any, name: str) -> None:
            if self.busy:
                self.busy -= 1
                raise LibrbdError('busy')
            self.names.remove(name)

        def trash_remove(ioctx: Any, image_id: str, force: bool) -> None:
            if image_id not in self.trash:
                raise NotFound('no')
            assert force
            del self.trash[image_id]

        return types.SimpleNamespace(
            create=create, remove=remove, trash_remove=trash_remove,
            list=lambda ioctx: list(self.names), trash_list=lambda ioctx: [
                {'id': number, 'name': name} for number, name in self.trash.items()])

    def Image(self, ioctx: Any, name: str) -> 'FakeLibrbd':
        return self

    def aio_read(self, offset: int, length: int, oncomplete: Any) -> None:
        if self.refuses:
            raise LibrbdError('no')
        data = bytes(self.content[offset:offset + length])
        oncomplete(Completion(len(data)), data)

    def aio_write(self, data: bytes, offset: int, oncomplete: Any) -> None:
        assert offset + len(data) <= len(self.content)
        self.content[offset:offset + len(data)] = data
        oncomplete(Completion(0))


@pytest.fixture
def librbd(monkeypatch: pytest.MonkeyPatch) -> FakeLibrbd:
    fake = FakeLibrbd()
    monkeypatch.setitem(cast(Any, sys.modules), 'rbd', fake)
    return fake


def test_objects_of_all_steps_are_ranges_side_by_side(librbd: FakeLibrbd) -> None:
    small = step(job('randwrite', ioengine=RBD), streams=2)
    image = Image(None, 'image', [small, small])
    assert librbd.created == [('image', 2 * small.job.size)]
    for name, letter in zip(small.streams[1].objects, 'wxyz'):
        image.aio_write_full(name, letter.encode() * (1 << 16), lambda completion: None)
    second = bytes(librbd.content[small.job.size:])
    assert second == b''.join(letter * (1 << 16) for letter in (b'w', b'x', b'y', b'z'))
    assert not any(librbd.content[:small.job.size])


def test_reads_return_what_the_prefill_and_writes_wrote(librbd: FakeLibrbd) -> None:
    mixed = step(job('randrw', ioengine=RBD, io_size=16 * 4096), streams=2)
    payload = Payload(1, mixed.job.object_bytes)
    image = Image(None, 'image', [mixed])
    for stream in mixed.streams:
        image.prefill(stream.objects, mixed.job.object_bytes, payload, timing().end_ns / SECOND_NS,
                      lambda: False)
    streams = python_streams(image, mixed, payload, timing(), 1)
    result = Stepping(streams, timing(), timing().end_ns / SECOND_NS, Input()).run(lambda: None)
    assert [stream.read.ios + stream.write.ios for stream in result.streams] == [16, 16]
    assert not any(stream.errors or stream.corrupt for stream in result.streams)
    librbd.content[:4096] = bytes(4096)
    found: Dict[str, Any] = {}
    first = mixed.streams[0].objects[0]
    image.aio_read(first, 4096, 0, lambda completion, data: found.update(data=data))
    assert found['data'] != payload.slice(first, 0, 4096)


def test_an_operation_that_librbd_refuses_is_an_error_of_rados(librbd: FakeLibrbd) -> None:
    reads = step(job('read', ioengine=RBD))
    image = Image(None, 'image', [reads])
    librbd.refuses = True
    with pytest.raises(rados.Error) as error:
        image.aio_read(reads.streams[0].objects[0], 4096, 0, lambda *values: None)
    assert error.value.errno == errno.ESHUTDOWN


def test_there_are_no_images_without_librbds_binding(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(cast(Any, sys.modules), 'rbd', None)
    with pytest.raises(Failed) as failed:
        Image(None, 'image', [step(job('read', ioengine=RBD))])
    assert failed.value.errno == -errno.ENOTSUP


def test_an_image_that_cannot_be_created(librbd: FakeLibrbd) -> None:
    librbd.refuses = True
    with pytest.raises(Failed, match='image perfguard-probe-7-image: .*ESHUTDOWN'):
        Image(None, 'perfguard-probe-7-image', [step(job(ioengine=RBD))])


def test_without_the_binding_the_error_names_its_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(cast(Any, sys.modules), 'rbd', cast(Any, None))
    with pytest.raises(Failed, match='install the package python3-rbd') as failed:
        Image(None, 'image', [step(job(ioengine=RBD))])
    assert failed.value.errno == -errno.ENOTSUP


def test_a_namespace_without_images_is_named(librbd: FakeLibrbd) -> None:
    librbd.lacks_namespace = True
    with pytest.raises(Failed, match='namespace probes for images: .*rbd namespace create'):
        Image(types.SimpleNamespace(nspace='probes'), 'image', [step(job(ioengine=RBD))])


# ---- Removing images

class Pool:
    def __init__(self, has_images: bool = True) -> None:
        self._has_images = has_images

    def stat(self, name: str) -> None:
        assert name == 'rbd_directory'
        if not self._has_images:
            raise rados.ObjectNotFound('no', errno.ENOENT)


def test_only_images_of_the_run_are_removed(librbd: FakeLibrbd) -> None:
    librbd.names = ['perfguard-probe-7-image', 'perfguard-probe-77-image', 'disk']
    librbd.trash = {'a': 'perfguard-probe-7-image', 'b': 'disk'}
    assert remove_images(Pool(), 'perfguard-probe-7-', time.monotonic()) == (2, 0, 0)
    assert librbd.names == ['perfguard-probe-77-image', 'disk'] and librbd.trash == {'b': 'disk'}


def test_an_image_in_use_is_removed_later(librbd: FakeLibrbd,
                                          monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(objects, 'IMAGE_PAUSE_SECONDS', 0.0)
    librbd.names, librbd.busy = ['perfguard-probe-7-image'], 2
    assert remove_images(Pool(), 'perfguard-probe-7-', time.monotonic() + 30) == (1, 0, 0)
    librbd.names, librbd.busy = ['perfguard-probe-7-image'], 2
    assert remove_images(Pool(), 'perfguard-probe-7-', time.monotonic()) == (0, 1, 0)


def test_without_images_the_binding_is_not_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(cast(Any, sys.modules), 'rbd', None)
    assert remove_images(Pool(has_images=False), 'perfguard-probe-7-', 0.0) == (0, 0, 0)
    with pytest.raises(Failed, match='python3-rbd'):
        remove_images(Pool(), 'perfguard-probe-7-', 0.0)
