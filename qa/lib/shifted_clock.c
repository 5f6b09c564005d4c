/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Preloaded into a daemon: its wall clock is that of the machine plus the seconds that the file
 * $SHIFTED_CLOCK contains (a long). The monotonic clock stays as it is. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

/* Deadlines of the monotonic clock are far below this: seconds since the machine started. */
#define WALL_CLOCK 1000000000L

static const volatile long *shift;
static int (*clock_now)(clockid_t, struct timespec *);

__attribute__((constructor)) static void begin(void)
{
    const char *path = getenv("SHIFTED_CLOCK");
    int file = path ? open(path, O_RDONLY) : -1;
    void *found = file < 0 ? MAP_FAILED : mmap(0, sizeof(long), PROT_READ, MAP_SHARED, file, 0);

    clock_now = dlsym(RTLD_NEXT, "clock_gettime");
    shift = found == MAP_FAILED ? 0 : found;
    if (file >= 0)
        close(file);
}

static long seconds(void)
{
    return shift ? *shift : 0;
}

int clock_gettime(clockid_t clock, struct timespec *now)
{
    int error;

    if (!clock_now)
        clock_now = dlsym(RTLD_NEXT, "clock_gettime");
    error = clock_now(clock, now);
    if (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)
        now->tv_sec += seconds();
    return error;
}

int gettimeofday(struct timeval *now, void *zone)
{
    struct timespec exact;
    int error = clock_gettime(CLOCK_REALTIME, &exact);

    (void)zone;
    now->tv_sec = exact.tv_sec;
    now->tv_usec = exact.tv_nsec / 1000;
    return error;
}

time_t time(time_t *result)
{
    struct timespec now;

    clock_gettime(CLOCK_REALTIME, &now);
    if (result)
        *result = now.tv_sec;
    return now.tv_sec;
}

/* The kernel waits by the clock of the machine. */
int pthread_cond_timedwait(pthread_cond_t *condition, pthread_mutex_t *mutex,
                           const struct timespec *until)
{
    static int (*wait)(pthread_cond_t *, pthread_mutex_t *, const struct timespec *);
    struct timespec real = *until;

    if (!wait)
        wait = dlvsym(RTLD_NEXT, "pthread_cond_timedwait", "GLIBC_2.3.2");
    if (real.tv_sec > WALL_CLOCK)
        real.tv_sec -= seconds();
    return wait(condition, mutex, &real);
}

int pthread_cond_clockwait(pthread_cond_t *condition, pthread_mutex_t *mutex, clockid_t clock,
                           const struct timespec *until)
{
    static int (*wait)(pthread_cond_t *, pthread_mutex_t *, clockid_t, const struct timespec *);
    struct timespec real = *until;

    if (!wait)
        wait = dlsym(RTLD_NEXT, "pthread_cond_clockwait");
    if (clock == CLOCK_REALTIME)
        real.tv_sec -= seconds();
    return wait(condition, mutex, clock, &real);
}
