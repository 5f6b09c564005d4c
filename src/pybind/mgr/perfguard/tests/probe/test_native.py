# SPDX-License-Identifier: LGPL-2.1-or-later
"""The native engine on a librados that answers when the test says so."""
import ctypes
import errno
import shutil
import subprocess
import time
import types
from typing import Any, Dict

import pytest

from perfguard.probe.types import Job, JobStep, Stream
from perfguard.probe.worker import native, work
from perfguard.probe.worker.build import build
from perfguard.probe.worker.engine import ERRORS_MAX, Timing
from perfguard.probe.worker.objects import Payload
from perfguard.probe.worker.protocol import Failed, WorkerRequest

OBJECT_BYTES = 1 << 18
NAME = 'perfguard-probe-7-0'
SECOND_NS = 10 ** 9

#: One object; operations wait in a ring.
FAKE = r'''
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
typedef void (*callback_t)(void *, void *);
struct op { callback_t callback; void *arg; char *buffer; size_t length, offset; int ret; };
char content[1 << 18];
static struct op *waiting[4096];
unsigned first, last, most, reads, writes, whole;
int connected, refusal;
int rados_create2(void **c, const char *n, const char *e, uint64_t f) { *c = &connected; return 0; }
int rados_conf_read_file(void *c, const char *f) { return -2; }
int rados_conf_set(void *c, const char *n, const char *v) { return 0; }
int rados_connect(void *c) { connected++; return 0; }
int rados_ioctx_create(void *c, const char *p, void **i)
{ *i = &connected; return strcmp(p, "nowhere") ? 0 : -2; }
void rados_ioctx_set_namespace(void *i, const char *n)
{ connected += 10 * !strcmp(n, "perfguard-probe"); }
void rados_set_osdmap_full_try(void *i) { connected += 100; }
int rados_aio_create_completion(void *arg, callback_t done, callback_t safe, void **c)
{
    struct op *op = calloc(1, sizeof(*op));
    op->callback = done;
    op->arg = arg;
    *c = op;
    return 0;
}
int rados_aio_get_return_value(void *c) { return ((struct op *)c)->ret; }
void rados_aio_release(void *c) { free(c); }
static int queue(struct op *op, size_t length, uint64_t offset)
{
    op->length = length;
    op->offset = offset;
    if (refusal)
        return refusal;
    waiting[last++ % 4096] = op;
    if (last - first > most)
        most = last - first;
    return 0;
}
int rados_aio_read(void *i, const char *o, void *c, char *b, size_t length, uint64_t offset)
{
    ((struct op *)c)->buffer = b;
    reads++;
    return queue(c, length, offset);
}
int rados_aio_write(void *i, const char *o, void *c, const char *b, size_t length, uint64_t offset)
{
    writes++;
    memcpy(content + offset, b, length);
    return queue(c, length, offset);
}
int rados_aio_write_full(void *i, const char *o, void *c, const char *b, size_t length)
{
    whole++;
    return rados_aio_write(i, o, c, b, length, 0);
}
int rbd_open(void *i, const char *n, void **image, const char *snapshot)
{ *image = &connected; return strcmp(n, "missing") ? 0 : -2; }
int rbd_close(void *image) { connected = -1; return 0; }
int rbd_aio_create_completion(void *arg, callback_t done, void **c)
{ return rados_aio_create_completion(arg, done, 0, c); }
long rbd_aio_get_return_value(void *c) { return ((struct op *)c)->ret; }
void rbd_aio_release(void *c) { free(c); }
int rbd_aio_read(void *i, uint64_t offset, size_t length, char *b, void *c)
{ return rados_aio_read(i, 0, c, b, length, offset); }
int rbd_aio_write(void *i, uint64_t offset, size_t length, const char *b, void *c)
{ return rados_aio_write(i, 0, c, b, length, offset); }
unsigned under_way(void) { return last - first; }
void answer(unsigned number, int fails)
{
    while (number-- && first != last) {
        struct op *op = waiting[first++ % 4096];
        if (op->buffer)
            memcpy(op->buffer, content + op->offset, op->length);
        op->ret = fails ? fails : op->buffer ? (int)op->length : 0;
        op->callback(op, op->arg);
    }
}
'''


@pytest.fixture
def fake(tmp_path, monkeypatch):
    if shutil.which('cc') is None:
        pytest.skip('no C compiler found')
    assert build(str(tmp_path)) is None
    (tmp_path / 'fake.c').write_text(FAKE)
    library = str(tmp_path / 'fake.so')
    subprocess.run(['cc', '-shared', '-fPIC', str(tmp_path / 'fake.c'), '-o', library], check=True)
    monkeypatch.setattr(native, 'CORE', str(tmp_path / native.CORE))
    for name in ('LIBRARY', 'RBD_LIBRARY'):
        monkeypatch.setattr(native, name, library)
    return ctypes.CDLL(library)


def number(fake, name):
    return ctypes.c_uint.in_dll(fake, name).value


def request(**fields):
    usual: Dict[str, Any] = {'pool': 'p', 'prefix': NAME, 'entity': 'client.x', 'key': 'AQ',
                             'mon_host': 'm'}
    return WorkerRequest(**{**usual, **fields})


def flows(fake, rw, ramp=0.0, **fields):
    job = Job(**{'name': 'j', 'rw': rw, 'bs': 4096, 'iodepth': 5, 'size': OBJECT_BYTES,
                 'nrfiles': 1, 'runtime': 60.0, **fields})
    payload = Payload(1, OBJECT_BYTES)
    data = payload.slice(NAME, 0, OBJECT_BYTES)
    ctypes.memmove(ctypes.addressof((ctypes.c_char * OBJECT_BYTES).in_dll(fake, 'content')), data,
                   OBJECT_BYTES)
    now = time.monotonic_ns()
    timing = Timing(now, now + int(ramp * SECOND_NS), now + int((ramp + 60) * SECOND_NS))
    found = native.native_streams(
        native.Core(request()), JobStep(job, (Stream('s', (NAME,)),)), payload, timing, 1)
    found.pace()
    return found


def test_the_connection(fake):
    native.Core(request())
    assert number(fake, 'connected') == 111
    with pytest.raises(Failed, match='ENOENT'):
        native.Core(request(pool='nowhere'))


@pytest.mark.parametrize('rw', ['randread', 'randwrite'])
def test_ranges_of_an_image(fake, rw):
    half = OBJECT_BYTES // 2
    payload, now = Payload(1, half), time.monotonic_ns()
    content = (ctypes.c_char * OBJECT_BYTES).in_dll(fake, 'content')
    ctypes.memmove(ctypes.addressof(content) + half, payload.slice(NAME, 0, half), half)
    core = native.Core(request(), on_image=True)
    assert number(fake, 'connected') == 101  # in the default namespace
    with pytest.raises(Failed, match='image missing: .*ENOENT'):
        core.open_image('missing', {})
    core.open_image('image', {NAME: half})
    job = Job(name='j', rw=rw, bs=4096, iodepth=4, size=half, nrfiles=1, runtime=60.0)
    streams = native.native_streams(core, JobStep(job, (Stream('s', (NAME,)),)), payload,
                                    Timing(now, now, now + 60 * SECOND_NS), 1)
    streams.pace()
    fake.answer(300, 0)
    result, = streams.results()
    assert result.read.ios + result.write.ios == 300
    assert (result.errors, result.corrupt) == (0, 0)
    assert content[:half] == bytes(half) and content[half:] == payload.slice(NAME, 0, half)
    fake.answer(1, -5)
    assert streams.results()[0].first_error.endswith('(EIO)')
    streams.stop()
    fake.answer(100, 0)
    assert streams.in_flight() == 0 and number(fake, 'whole') == 0
    streams.free()
    core.close_image()
    assert not core.image and ctypes.c_int.in_dll(fake, 'connected').value == -1


def test_without_librbd(fake, monkeypatch):
    monkeypatch.setattr(native, 'RBD_LIBRARY', 'librbd.so.99')
    native.Core(request())
    with pytest.raises(Failed, match='no native engine: librbd.so.99'):
        native.Core(request(), on_image=True)


@pytest.mark.parametrize('rw', ['read', 'randread', 'write', 'randwrite', 'randrw'])
def test_the_depth_is_kept(fake, rw):
    streams = flows(fake, rw, rwmixread=70)
    for _ in range(1000):
        assert fake.under_way() == streams.in_flight() == 5
        fake.answer(1, 0)
    streams.stop()
    fake.answer(5, 0)
    assert number(fake, 'most') == 5 and streams.in_flight() == 0 and streams.ended()
    result, = streams.results()
    assert (result.errors, result.corrupt, result.unfinished) == (0, 0, 0)
    assert (result.read.ios, result.write.ios) == (number(fake, 'reads'), number(fake, 'writes'))
    assert result.read.ios + result.write.ios == 1005
    for direction in (result.read, result.write):
        assert sum(second.ios for second in direction.seconds) == direction.ios
        assert sum(second.bytes for second in direction.seconds) == direction.bytes
    if rw == 'randrw':
        assert 0.65 < result.read.ios / 1005 < 0.75
    latency = (result.read if result.read.ios else result.write).latency
    assert 0 < latency.min <= latency.percentile['50.000000'] <= latency.max
    assert latency.min < latency.mean < latency.max and latency.stddev > 0
    streams.free()


def test_operations_that_begin_in_the_ramp_do_not_count(fake):
    streams = flows(fake, 'randread', ramp=1.0)
    time.sleep(1.01)
    fake.answer(5, 0)
    assert streams.results()[0].read.ios == 0
    fake.answer(2, 0)
    assert streams.results()[0].read.ios == 2


@pytest.mark.parametrize('bs, whole', [(OBJECT_BYTES, True), (OBJECT_BYTES - 4096, False)])
def test_only_whole_objects_are_replaced(fake, bs, whole):
    """A block that is the only one, but shorter, must not cut the object."""
    streams = flows(fake, 'write', bs=bs)
    fake.answer(5, 0)
    assert number(fake, 'whole') == (number(fake, 'writes') if whole else 0)
    assert streams.results()[0].write.ios == 5


def test_io_size_and_rate(fake):
    streams = flows(fake, 'write', io_size=10 * 4096 + 100)
    fake.answer(100, 0)
    assert streams.ended() and streams.results()[0].write.ios == 10
    begun = time.monotonic()
    streams = flows(fake, 'write', rate_iops=4)
    started = time.monotonic()
    time.sleep(0.55)
    # However long this machine takes, a write is sent each quarter of a second.
    least = 1 + int(4 * (time.monotonic() - started))
    assert streams.pace() > begun * SECOND_NS
    most = 1 + int(4 * (time.monotonic() - begun))
    assert 3 <= least and min(5, least) <= fake.under_way() <= min(5, most)


@pytest.mark.parametrize('bs', [4096, 128 << 10])
def test_wrong_bytes(fake, bs):
    """Of large reads one of sixteen is compared whole."""
    streams = flows(fake, 'read', bs=bs, iodepth=1)
    fake.answer(20, 0)
    assert streams.results()[0].corrupt == 0
    content = (ctypes.c_ubyte * OBJECT_BYTES).in_dll(fake, 'content')
    content[bs - 1000] ^= 1
    fake.answer(32 * OBJECT_BYTES // bs, 0)
    result, = streams.results()
    assert 1 <= result.corrupt <= 32 and result.errors == 0
    # Something else altogether is always seen.
    before = result.corrupt
    ctypes.memset(content, 0, OBJECT_BYTES)
    fake.answer(10, 0)
    assert streams.results()[0].corrupt - before >= 9


def test_errors_in_words_and_an_end_to_them(fake):
    streams = flows(fake, 'randwrite')
    fake.answer(1000, -122)
    assert streams.ended() and not fake.under_way()
    assert streams.results()[0].errors == ERRORS_MAX + 4
    assert streams.results()[0].first_error == 'write: Disk quota exceeded (EDQUOT)'
    assert 'EDQUOT' in streams.why_given_up()
    streams = flows(fake, 'read')
    assert streams.why_given_up() == ''
    fake.answer(1, 10)
    assert streams.results()[0].first_error == 'read: 10 bytes instead of 4096'


def test_a_refused_operation_ends_its_stream_and_cuts_the_step(fake):
    streams = flows(fake, 'write')
    fake.answer(3, 0)
    ctypes.c_int.in_dll(fake, 'refusal').value = -108
    fake.answer(5, 0)
    result, = streams.results()
    assert (streams.ended(), result.write.ios, result.errors, result.unfinished) == (True, 8, 1, 0)
    assert streams.why_given_up() == (
        'operation refused; first error: write: Cannot send after transport endpoint shutdown '
        '(ESHUTDOWN)')


def test_late_answers_complete_after_the_streams_are_freed(fake):
    streams = flows(fake, 'randread')
    streams.stop()
    result, = streams.results()
    assert result.unfinished == 5
    streams.free()
    fake.answer(5, 0)
    assert streams.in_flight() == 0 and not fake.under_way()


def test_without_a_core_or_librados(tmp_path, monkeypatch, fake):
    monkeypatch.setattr(native, 'LIBRARY', 'librados.so.99')
    with pytest.raises(Failed, match='librados.so.99'):
        native.Core(request())
    monkeypatch.setattr(native, 'CORE', str(tmp_path / 'none.so'))
    with pytest.raises(Failed, match='no native engine'):
        native.Core(request())


@pytest.mark.parametrize('code', ['', 'void core_layout(unsigned long *found) { found[0] = 999; }'])
def test_a_core_of_another_version_is_not_used(fake, tmp_path, code):
    (tmp_path / 'other.c').write_text(code)
    subprocess.run(['cc', '-shared', '-fPIC', str(tmp_path / 'other.c'), '-o',
                    str(tmp_path / native.CORE)], check=True)
    with pytest.raises(Failed, match='has version'):
        native.Core(request())


def test_the_structures_are_the_same(fake, monkeypatch):
    for name in ('_Tally', '_Job'):
        kind = getattr(native, name)
        larger = type(name, (ctypes.Structure,), {
            '_fields_': [*kind._fields_, ('more', ctypes.c_uint64)]})
        with monkeypatch.context() as changed:
            changed.setattr(native, name, larger)
            with pytest.raises(Failed, match='has version'):
                native.Core(request())


def test_compiler_and_flags_of_the_environment_count(tmp_path, monkeypatch):
    called = tmp_path / 'called'
    compiler = tmp_path / 'compiler'
    compiler.write_text('#!/bin/sh\necho "$@" > %s\nexit 1\n' % called)
    compiler.chmod(0o755)
    for name, value in {'CC': '%s -m64' % compiler, 'CFLAGS': '-g -DX="a b"',
                        'LDFLAGS': '-Wl,-z,now'}.items():
        monkeypatch.setenv(name, value)
    assert build(str(tmp_path)) is not None
    words = called.read_text()
    assert words.startswith('-m64 ') and '-g -DX=a b' in words and '-Wl,-z,now' in words


@pytest.mark.parametrize('engine, missing, made', [
    (work.PYTHON_ENGINE, False, False), (work.NATIVE_ENGINE, False, True), ('', False, True),
    ('', True, False)])
def test_which_engine_is_used(monkeypatch, engine, missing, made):
    def core(request, on_image):
        if missing:
            raise Failed(errno.ENOENT, 'no native engine')
        return 'a core'

    monkeypatch.setattr(work, 'Core', core)
    asked: Any = types.SimpleNamespace(engine=engine, steps=())
    assert (work._load_core(asked) is not None) == made


def test_a_native_engine_that_is_required_and_missing(monkeypatch):
    def core(request, on_image):
        raise Failed(errno.ENOENT, 'no native engine')

    monkeypatch.setattr(work, 'Core', core)
    asked: Any = types.SimpleNamespace(engine=work.NATIVE_ENGINE, steps=())
    with pytest.raises(Failed, match='no native engine'):
        work._load_core(asked)
