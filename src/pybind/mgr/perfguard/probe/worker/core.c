/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The native engine: what engine.py does, without Python between an answer and the next operation.
 * native.py is its only caller and has the same structures.
 *
 * The C APIs of librados and librbd are stable, and their functions are looked up when they are
 * needed. So neither their headers nor the libraries are needed to build this.
 *
 * A stream's operations are answered in librados' threads, several at a time. All that changes in
 * a stream is behind its lock. Times are in ns of CLOCK_MONOTONIC, which is Python's
 * time.monotonic_ns() too.
 */
#include <dlfcn.h>
#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* As in histogram.py. */
#define SUB_BITS 8
#define SUB_BUCKETS (1 << SUB_BITS)
#define BUCKETS ((42 - SUB_BITS) * SUB_BUCKETS + SUB_BUCKETS)

#define SECOND_NS 1000000000ull

/*
 * Comparing 4 MiB costs a quarter of what reading them from an OSD's memory does. So of reads that
 * are longer than WHOLE_BYTES every WHOLE_EVERY-th is compared whole, and of the others
 * SAMPLE_BYTES of each STRIDE_BYTES: something wrong altogether is seen at once, a wrong byte in
 * one of so many reads.
 */
#define WHOLE_BYTES (64u << 10)
#define WHOLE_EVERY 16
#define SAMPLE_BYTES 64u
#define STRIDE_BYTES (32u << 10)

typedef void *handle_t;
typedef void (*callback_t)(handle_t completion, void *arg);

static struct {
    int (*create2)(handle_t *, const char *, const char *, uint64_t);
    int (*conf_read_file)(handle_t, const char *);
    int (*conf_set)(handle_t, const char *, const char *);
    int (*connect)(handle_t);
    int (*ioctx_create)(handle_t, const char *, handle_t *);
    void (*ioctx_set_namespace)(handle_t, const char *);
    int (*aio_create_completion)(void *, callback_t, callback_t, handle_t *);
    int (*aio_get_return_value)(handle_t);
    void (*aio_release)(handle_t);
    int (*aio_read)(handle_t, const char *, handle_t, char *, size_t, uint64_t);
    int (*aio_write)(handle_t, const char *, handle_t, const char *, size_t, uint64_t);
    int (*aio_write_full)(handle_t, const char *, handle_t, const char *, size_t);
    void (*set_full_try)(handle_t);
} rados;

static struct {
    int (*open)(handle_t, const char *, handle_t *, const char *);
    int (*close)(handle_t);
    int (*aio_create_completion)(void *, callback_t, handle_t *);
    long (*aio_get_return_value)(handle_t);
    void (*aio_release)(handle_t);
    int (*aio_read)(handle_t, uint64_t, size_t, char *, handle_t);
    int (*aio_write)(handle_t, uint64_t, size_t, const char *, handle_t);
} rbd;

/* One direction of a stream; native.py reads it. */
struct tally {
    uint64_t ios, bytes, least, most, last_ns;
    double total, squares;
    uint64_t counts[BUCKETS];
    /* Of each second: operations, bytes, sum of latencies. */
    uint64_t *rows;
};

struct job {
    uint64_t bs, iodepth, blocks, objects, rate_iops, io_size, errors_max;
    /* Share of reads, 0 to 2^32. */
    uint64_t read_share;
    uint64_t is_random, seconds;
    /* An operation is as long as an object. */
    uint64_t is_whole;
    uint64_t begin_ns, measure_ns, end_ns;
};

struct stream;

/* A place for one operation. */
struct slot {
    struct stream *stream;
    struct slot *next_free;
    char *buffer;
    const char *expected;
    uint64_t start_ns;
    uint64_t reads;
    int is_read;
};

/* The first part is read by native.py. */
struct stream {
    struct tally tally[2]; /* writes, reads */
    uint64_t errors, corrupt, in_flight, ended, ended_ns, refused;
    int64_t first_error, first_error_is_read;

    struct job job;
    handle_t ioctx;
    /* NULL, or an image: ranges of it that begin at `begins` take the place of the objects. */
    handle_t image;
    const uint64_t *begins;
    const char *const *names;
    const char *base;
    const uint64_t *starts;
    uint64_t sent, counted, next_block, random;
    struct slot *slots, *free_slots;
    pthread_mutex_t lock;
};

static uint64_t now_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * SECOND_NS + now.tv_nsec;
}

/* As in histogram.py. */
static unsigned bucket_of(uint64_t latency)
{
    int octave = 64 - SUB_BITS - 1 - (latency ? __builtin_clzll(latency) : 63);
    uint64_t bucket;

    if (octave <= 0)
        return latency;
    bucket = octave * SUB_BUCKETS + (latency >> octave);
    return bucket < BUCKETS ? bucket : BUCKETS - 1;
}

/* Count an operation that was sent in the measurement; with the lock. The last row has all later
 * answers. */
static void count(struct stream *s, int is_read, uint64_t start_ns, uint64_t end_ns)
{
    struct tally *t = &s->tally[is_read];
    uint64_t latency = end_ns - start_ns, measured_ns = end_ns - s->job.measure_ns;
    uint64_t second = measured_ns / SECOND_NS;
    uint64_t *row = t->rows + 3 * (second < s->job.seconds ? second : s->job.seconds - 1);

    if (!t->ios || latency < t->least)
        t->least = latency;
    if (latency > t->most)
        t->most = latency;
    if (measured_ns > t->last_ns)
        t->last_ns = measured_ns;
    t->ios++;
    t->bytes += s->job.bs;
    t->total += latency;
    t->squares += (double)latency * latency;
    t->counts[bucket_of(latency)]++;
    row[0]++;
    row[1] += s->job.bs;
    row[2] += latency;
}

/* xorshift64*, Vigna 2014. */
static uint64_t next_random(struct stream *s)
{
    s->random ^= s->random >> 12;
    s->random ^= s->random << 25;
    s->random ^= s->random >> 27;
    return s->random * 2685821657736338717ull;
}

static uint64_t next_block(struct stream *s)
{
    uint64_t all = s->job.blocks * s->job.objects, block = s->next_block;

    if (s->job.is_random)
        return (unsigned __int128)next_random(s) * all >> 64;
    s->next_block = (block + 1) % all;
    return block;
}

/* When the rate allows the next operation; only with a rate. */
static uint64_t due_ns(const struct stream *s)
{
    return s->job.begin_ns
        + (uint64_t)((unsigned __int128)s->sent * SECOND_NS / s->job.rate_iops);
}

static void end(struct stream *s, uint64_t now)
{
    if (!s->ended)
        s->ended_ns = now;
    s->ended = 1;
}

/* Takes a slot for the next operation, and chooses its block; NULL: none may be sent now. With the
 * lock. */
static struct slot *take(struct stream *s, uint64_t *block)
{
    const struct job *job = &s->job;
    struct slot *slot = s->free_slots;
    uint64_t now = now_ns();

    if (s->ended || !slot)
        return NULL;
    if (now >= job->end_ns || s->errors >= job->errors_max
        || (job->io_size && (s->counted + 1) * job->bs > job->io_size)) {
        end(s, now);
        return NULL;
    }
    if (job->rate_iops && now < due_ns(s))
        return NULL;
    s->free_slots = slot->next_free;
    s->sent++;
    s->counted += now >= job->measure_ns;
    s->in_flight++;
    *block = next_block(s);
    slot->is_read = job->read_share >> 32 || (next_random(s) >> 32) < job->read_share;
    return slot;
}

static void give_back(struct stream *s, struct slot *slot)
{
    slot->next_free = s->free_slots;
    s->free_slots = slot;
    s->in_flight--;
}

static void note_error(struct stream *s, int64_t code, int is_read)
{
    if (!s->errors++) {
        s->first_error = code;
        s->first_error_is_read = is_read;
    }
}

static void answered(handle_t completion, void *arg);

/* The library itself refuses to send: a retry is useless, so the stream ends. */
static void refused(struct stream *s, struct slot *slot, int code)
{
    pthread_mutex_lock(&s->lock);
    give_back(s, slot);
    note_error(s, code, slot->is_read);
    s->refused = 1;
    end(s, now_ns());
    pthread_mutex_unlock(&s->lock);
}

static int send_to_object(struct stream *s, struct slot *slot, const char *name, uint64_t offset)
{
    handle_t completion;
    int ret = rados.aio_create_completion(slot, answered, NULL, &completion);

    if (ret < 0)
        return ret;
    if (slot->is_read)
        ret = rados.aio_read(s->ioctx, name, completion, slot->buffer, s->job.bs, offset);
    else if (s->job.is_whole)
        /* Equivalent in a replicated pool. An erasure coded pool without overwrites accepts no
         * other write. */
        ret = rados.aio_write_full(s->ioctx, name, completion, slot->expected, s->job.bs);
    else
        ret = rados.aio_write(s->ioctx, name, completion, slot->expected, s->job.bs, offset);
    if (ret < 0)
        rados.aio_release(completion);
    return ret;
}

static int send_to_image(struct stream *s, struct slot *slot, uint64_t offset)
{
    handle_t completion;
    int ret = rbd.aio_create_completion(slot, answered, &completion);

    if (ret < 0)
        return ret;
    if (slot->is_read)
        ret = rbd.aio_read(s->image, offset, s->job.bs, slot->buffer, completion);
    else
        ret = rbd.aio_write(s->image, offset, s->job.bs, slot->expected, completion);
    if (ret < 0)
        rbd.aio_release(completion);
    return ret;
}

/* Sends an operation on a block, counted through all objects of the stream. */
static void send_one(struct stream *s, struct slot *slot, uint64_t block)
{
    uint64_t number = block / s->job.blocks, offset = block % s->job.blocks * s->job.bs;
    int ret;

    slot->expected = s->base + s->starts[number] + offset;
    slot->start_ns = now_ns();
    if (s->image)
        ret = send_to_image(s, slot, s->begins[number] + offset);
    else
        ret = send_to_object(s, slot, s->names[number], offset);
    if (ret < 0)
        refused(s, slot, ret);
}

/* Whether a read has returned the expected content; long reads are sampled (see WHOLE_BYTES). */
static int is_expected(struct slot *slot, uint64_t length)
{
    uint64_t at;

    if (length <= WHOLE_BYTES || slot->reads++ % WHOLE_EVERY == 0)
        return !memcmp(slot->buffer, slot->expected, length);
    for (at = 0; at + SAMPLE_BYTES <= length; at += STRIDE_BYTES)
        if (memcmp(slot->buffer + at, slot->expected + at, SAMPLE_BYTES))
            return 0;
    return !memcmp(slot->buffer + length - SAMPLE_BYTES, slot->expected + length - SAMPLE_BYTES,
                   SAMPLE_BYTES);
}

static int returned(struct stream *s, handle_t completion)
{
    int ret;

    if (s->image) {
        ret = rbd.aio_get_return_value(completion);
        rbd.aio_release(completion);
    } else {
        ret = rados.aio_get_return_value(completion);
        rados.aio_release(completion);
    }
    return ret;
}

static void answered(handle_t completion, void *arg)
{
    struct slot *slot = arg, *next;
    struct stream *s = slot->stream;
    uint64_t end_ns = now_ns(), block;
    int ret = returned(s, completion);
    /* A read returns its number of bytes. */
    int good = slot->is_read ? ret == (int64_t)s->job.bs : ret >= 0;
    int corrupt = good && slot->is_read && !is_expected(slot, s->job.bs);

    pthread_mutex_lock(&s->lock);
    if (!good) {
        note_error(s, ret, slot->is_read);
    } else {
        s->corrupt += corrupt;
        if (slot->start_ns >= s->job.measure_ns)
            count(s, slot->is_read, slot->start_ns, end_ns);
    }
    give_back(s, slot);
    next = take(s, &block);
    pthread_mutex_unlock(&s->lock);
    if (next)
        send_one(s, next, block);
}

/* -- what native.py calls */

/* Increment with each change of a function or structure that native.py uses. */
#define VERSION 3

/* native.py requires these values: an old core may be installed beside a new package. */
void core_layout(uint64_t layout[4])
{
    layout[0] = VERSION;
    layout[1] = sizeof(struct tally);
    layout[2] = sizeof(struct job);
    layout[3] = offsetof(struct stream, job);
}

struct function {
    const char *name;
    void **place;
};

static int look_up(const char *library, const struct function *wanted, size_t number)
{
    void *found = dlopen(library, RTLD_NOW | RTLD_LOCAL);
    size_t i;

    if (!found)
        return -1;
    for (i = 0; i < number; i++) {
        *wanted[i].place = dlsym(found, wanted[i].name);
        if (!*wanted[i].place)
            return -1;
    }
    return 0;
}

/* Returns 0, or -1 where librados or a function of it is not there. */
int core_load(const char *library)
{
    static const struct function wanted[] = {
        {"rados_create2", (void **)&rados.create2},
        {"rados_conf_read_file", (void **)&rados.conf_read_file},
        {"rados_conf_set", (void **)&rados.conf_set},
        {"rados_connect", (void **)&rados.connect},
        {"rados_ioctx_create", (void **)&rados.ioctx_create},
        {"rados_ioctx_set_namespace", (void **)&rados.ioctx_set_namespace},
        {"rados_aio_create_completion", (void **)&rados.aio_create_completion},
        {"rados_aio_get_return_value", (void **)&rados.aio_get_return_value},
        {"rados_aio_release", (void **)&rados.aio_release},
        {"rados_aio_read", (void **)&rados.aio_read},
        {"rados_aio_write", (void **)&rados.aio_write},
        {"rados_aio_write_full", (void **)&rados.aio_write_full},
        {"rados_set_osdmap_full_try", (void **)&rados.set_full_try},
    };

    return look_up(library, wanted, sizeof(wanted) / sizeof(*wanted));
}

/* The same for librbd. */
int core_load_rbd(const char *library)
{
    static const struct function wanted[] = {
        {"rbd_open", (void **)&rbd.open},
        {"rbd_close", (void **)&rbd.close},
        {"rbd_aio_create_completion", (void **)&rbd.aio_create_completion},
        {"rbd_aio_get_return_value", (void **)&rbd.aio_get_return_value},
        {"rbd_aio_release", (void **)&rbd.aio_release},
        {"rbd_aio_read", (void **)&rbd.aio_read},
        {"rbd_aio_write", (void **)&rbd.aio_write},
    };

    return look_up(library, wanted, sizeof(wanted) / sizeof(*wanted));
}

/* After core_load_rbd. Returns 0 or a negative errno. */
int core_open_image(handle_t ioctx, const char *name, handle_t *image)
{
    return rbd.open(ioctx, name, image, NULL);
}

/* Only where nothing is in flight: it would wait for that. */
void core_close_image(handle_t image)
{
    rbd.close(image);
}

/* `settings`: names and values in turn. Returns 0 or a negative errno. */
int core_connect(const char *conf, const char *entity, const char *const *settings, size_t number,
                 const char *pool, const char *space, handle_t *ioctx)
{
    handle_t cluster;
    size_t i;
    int ret = rados.create2(&cluster, "ceph", entity, 0);

    if (ret >= 0 && *conf)
        ret = rados.conf_read_file(cluster, conf);
    for (i = 0; ret >= 0 && i < number; i++)
        ret = rados.conf_set(cluster, settings[2 * i], settings[2 * i + 1]);
    if (ret >= 0)
        ret = rados.connect(cluster);
    if (ret >= 0)
        ret = rados.ioctx_create(cluster, pool, ioctx);
    if (ret < 0)
        return ret;
    rados.ioctx_set_namespace(*ioctx, space);
    rados.set_full_try(*ioctx);
    return 0;
}

/*
 * `image` and `begins` are NULL if the stream uses objects. `begins`, `names`, `base` and `starts`
 * must stay as long as operations are in flight. NULL: no memory.
 */
struct stream *core_stream(handle_t ioctx, handle_t image, const struct job *job,
                           const char *const *names, const uint64_t *begins, const char *base,
                           const uint64_t *starts, uint64_t seed)
{
    struct stream *s = calloc(1, sizeof(*s));
    uint64_t i;

    if (!s)
        return NULL;
    s->job = *job;
    s->ioctx = ioctx;
    s->image = image;
    s->begins = begins;
    s->names = names;
    s->base = base;
    s->starts = starts;
    s->random = seed | 1; /* xorshift needs a state other than 0 */
    pthread_mutex_init(&s->lock, NULL);
    s->tally[0].rows = calloc(3 * job->seconds, sizeof(uint64_t));
    s->tally[1].rows = calloc(3 * job->seconds, sizeof(uint64_t));
    s->slots = calloc(job->iodepth, sizeof(*s->slots));
    if (!s->tally[0].rows || !s->tally[1].rows || !s->slots)
        return NULL;
    for (i = 0; i < job->iodepth; i++) {
        struct slot *slot = &s->slots[i];

        slot->stream = s;
        slot->reads = i; /* staggers the reads that are compared whole */
        slot->next_free = s->free_slots;
        s->free_slots = slot;
        slot->buffer = job->read_share ? malloc(job->bs) : NULL;
        if (job->read_share && !slot->buffer)
            return NULL;
    }
    return s;
}

/* Sends what may be sent now. Returns when the rate allows the next operation, in ns; 0: there is
 * no rate, or the stream has ended. */
uint64_t core_pace(struct stream *s)
{
    struct slot *slot;
    uint64_t block, due = 0;

    do {
        pthread_mutex_lock(&s->lock);
        slot = take(s, &block);
        if (!slot && s->job.rate_iops && !s->ended)
            due = due_ns(s);
        pthread_mutex_unlock(&s->lock);
        if (slot)
            send_one(s, slot, block);
    } while (slot);
    return due;
}

/* Sends nothing more. */
void core_stop(struct stream *s)
{
    pthread_mutex_lock(&s->lock);
    end(s, now_ns());
    pthread_mutex_unlock(&s->lock);
}

/* Numbers that belong together can be read between these two. */
void core_lock(struct stream *s)
{
    pthread_mutex_lock(&s->lock);
}

void core_unlock(struct stream *s)
{
    pthread_mutex_unlock(&s->lock);
}

/* Only where nothing is in flight, and some time after the last answer. */
void core_free(struct stream *s)
{
    uint64_t i;

    for (i = 0; i < s->job.iodepth; i++)
        free(s->slots[i].buffer);
    free(s->slots);
    free(s->tally[0].rows);
    free(s->tally[1].rows);
    pthread_mutex_destroy(&s->lock);
    free(s);
}
