/* The control file: the clock, and the counters of calls. It is a small file that the
 * test maps too. Go's side of the layout is internal/standin/scenario/control_linux.go. */
#include "fakenvml.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define MAX_FUNCTIONS 256

struct function_count {
    char name[56];
    _Atomic uint64_t total;
    _Atomic uint64_t gpus[MAX_GPUS];
};

struct control {
    char magic[8]; /* "FAKENVML" */
    uint32_t version;
    _Atomic uint32_t stepped;
    _Atomic int64_t now;       /* scenario time, where stepped */
    int64_t start_monotonic;   /* CLOCK_MONOTONIC at scenario second 0, where real */
    int64_t start_realtime;    /* CLOCK_REALTIME at scenario second 0 */
    _Atomic uint32_t sessions; /* open now, of all processes */
    _Atomic uint32_t hanging;  /* calls that hang now */
    _Atomic uint64_t overlaps; /* calls that found another one under way on the same GPU */
    _Atomic uint32_t nfunctions;
    _Atomic uint32_t lock; /* guards the adding of a function */
    struct function_count functions[MAX_FUNCTIONS];
    _Atomic int64_t processor; /* nanoseconds of processor time that calls took */
};

static _Atomic(struct control *) control;
static pthread_mutex_t opening = PTHREAD_MUTEX_INITIALIZER;
static dev_t opened_device;
static ino_t opened_inode;
static _Atomic int64_t loaded_at;
static _Atomic int64_t fallback_start;

static int64_t clock_of(clockid_t id)
{
    struct timespec ts;
    clock_gettime(id, &ts);
    return ts.tv_sec * SECOND + ts.tv_nsec;
}

/* Maps the control file that the environment names, unless it is the one already mapped. */
void control_open(void)
{
    const char *path = getenv("FAKENVML_CONTROL");
    pthread_mutex_lock(&opening);
    int fd = path == NULL ? -1 : open(path, O_RDWR | O_CLOEXEC);
    struct stat st;
    if (fd >= 0 && fstat(fd, &st) == 0 && (size_t)st.st_size >= sizeof(struct control) &&
        (atomic_load(&control) == NULL || st.st_dev != opened_device || st.st_ino != opened_inode)) {
        struct control *c = mmap(NULL, sizeof *c, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        if (c != MAP_FAILED && memcmp(c->magic, "FAKENVML", 8) == 0 && c->version == 1) {
            opened_device = st.st_dev;
            opened_inode = st.st_ino;
            atomic_store(&control, c);
            atomic_store(&loaded_at, clock_now());
        } else if (c != MAP_FAILED) {
            fprintf(stderr, "fakenvml: %s is not a control file\n", path);
            munmap(c, sizeof *c);
        }
    }
    if (fd >= 0)
        close(fd);
    pthread_mutex_unlock(&opening);
}

/* The library counts as loaded when the dynamic linker maps it, as the real one does. */
__attribute__((constructor)) static void library_loaded(void)
{
    atomic_store(&fallback_start, clock_of(CLOCK_MONOTONIC));
    control_open();
}

int64_t clock_now(void)
{
    const struct control *c = atomic_load(&control);
    if (c == NULL)
        return clock_of(CLOCK_MONOTONIC) - atomic_load(&fallback_start);
    if (atomic_load(&c->stepped) != 0)
        return atomic_load(&c->now);
    int64_t now = clock_of(CLOCK_MONOTONIC) - c->start_monotonic;
    return now < 0 ? 0 : now;
}

/* A stepped clock may be stepped at any time: waiting polls it. */
bool clock_stepped(void)
{
    const struct control *c = atomic_load(&control);
    return c != NULL && atomic_load(&c->stepped) != 0;
}

int64_t clock_loaded_at(void)
{
    return atomic_load(&loaded_at);
}

/* Microseconds since 1970 at a time of the scenario. */
int64_t clock_realtime_us(int64_t at)
{
    const struct control *c = atomic_load(&control);
    int64_t start = c == NULL ? clock_of(CLOCK_REALTIME) - clock_now() : c->start_realtime;
    return (start + at) / 1000;
}

void clock_pause(int64_t ns)
{
    struct timespec ts = {.tv_sec = ns / SECOND, .tv_nsec = ns % SECOND};
    nanosleep(&ts, NULL);
}

static struct function_count *function_slot(struct control *c, const char *function)
{
    uint32_t seen = 0;
    for (;;) {
        uint32_t n = atomic_load(&c->nfunctions);
        for (; seen < n && seen < MAX_FUNCTIONS; seen++) {
            if (strcmp(c->functions[seen].name, function) == 0)
                return &c->functions[seen];
        }
        uint32_t unlocked = 0;
        if (!atomic_compare_exchange_strong(&c->lock, &unlocked, 1))
            continue;
        if (atomic_load(&c->nfunctions) == n) { /* no other thread was faster */
            struct function_count *f = n < MAX_FUNCTIONS ? &c->functions[n] : NULL;
            if (f != NULL) {
                snprintf(f->name, sizeof f->name, "%s", function);
                atomic_store(&c->nfunctions, n + 1);
            }
            atomic_store(&c->lock, 0);
            return f;
        }
        atomic_store(&c->lock, 0);
    }
}

void control_count(const char *function, int gpu)
{
    struct control *c = atomic_load(&control);
    if (c == NULL)
        return;
    struct function_count *f = function_slot(c, function);
    if (f == NULL)
        return;
    atomic_fetch_add(&f->total, 1);
    if (gpu >= 0 && gpu < MAX_GPUS)
        atomic_fetch_add(&f->gpus[gpu], 1);
}

int64_t processor_time(void)
{
    return clock_of(CLOCK_THREAD_CPUTIME_ID);
}

void control_processor(const int64_t *since)
{
    struct control *c = atomic_load(&control);
    if (c != NULL)
        atomic_fetch_add(&c->processor, processor_time() - *since);
}

void control_overlap(void)
{
    struct control *c = atomic_load(&control);
    if (c != NULL)
        atomic_fetch_add(&c->overlaps, 1);
}

void control_session(int delta)
{
    struct control *c = atomic_load(&control);
    if (c != NULL)
        atomic_fetch_add(&c->sessions, (uint32_t)delta);
}

void control_hanging(int delta)
{
    struct control *c = atomic_load(&control);
    if (c != NULL)
        atomic_fetch_add(&c->hanging, (uint32_t)delta);
}
