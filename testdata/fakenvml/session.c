/* Sessions, handles, and what every call begins with: is there a driver, is the GPU there, does the
 * scenario make this call hang or fail. */
#include "fakenvml.h"

#include <fcntl.h>
#include <math.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Handles live as long as the process, so a stale one is recognised instead of followed. */
struct session_list {
    struct session session;
    struct session_list *older;
};

static pthread_mutex_t starting = PTHREAD_MUTEX_INITIALIZER;
static int references;
static _Atomic(struct session_list *) sessions; /* newest first */
static _Atomic(const struct session *) current;
static _Atomic int in_flight[MAX_GPUS];

/* ---- the driver ---- */

static enum driver_kind driver_at(const struct scenario *s, int64_t now)
{
    enum driver_kind kind = DRIVER_LOAD;
    for (int i = 0; i < s->ndriver && s->driver[i].at <= now; i++) {
        kind = s->driver[i].kind;
        /* A replaced driver works for processes that mapped the library after it. */
        if (kind == DRIVER_REPLACE)
            kind = clock_loaded_at() < s->driver[i].at ? DRIVER_MISMATCH : DRIVER_LOAD;
    }
    return kind;
}

/* A session ends when the driver goes away under it. */
static bool session_over(const struct session *s, int64_t now)
{
    for (int i = 0; i < s->scenario->ndriver && s->scenario->driver[i].at <= now; i++) {
        const struct driver_step *d = &s->scenario->driver[i];
        if (d->at > s->began && d->kind != DRIVER_LOAD)
            return true;
    }
    return false;
}

static bool gpu_present(const struct gpu *c, int64_t now)
{
    bool present = true;
    for (int i = 0; i < c->nfaults && c->faults[i].at <= now; i++) {
        if (c->faults[i].kind == FAULT_REMOVE || c->faults[i].kind == FAULT_UNBIND)
            present = false;
        else if (c->faults[i].kind == FAULT_RESTORE || c->faults[i].kind == FAULT_BIND)
            present = true;
    }
    return present;
}

/* What every call on the GPU returns now. */
nvmlReturn_t gpu_state(const struct gpu *c, int64_t now)
{
    nvmlReturn_t state = NVML_SUCCESS;
    for (int i = 0; i < c->nfaults && c->faults[i].at <= now; i++) {
        switch (c->faults[i].kind) {
        case FAULT_LOSE:
        case FAULT_REMOVE:
            state = NVML_ERROR_GPU_IS_LOST;
            break;
        case FAULT_RESET:
            state = NVML_ERROR_RESET_REQUIRED;
            break;
        case FAULT_RESTORE:
            state = NVML_SUCCESS;
            break;
        default: /* an unbind waits for the sessions that have the GPU open */
            break;
        }
    }
    return state;
}

/* ---- sessions ---- */

static int device_files[MAX_GPUS + 1];
static int ndevice_files;

static void close_devices(void)
{
    while (ndevice_files > 0)
        close(device_files[--ndevice_files]);
}

static void open_devices(const struct session *s)
{
    const char *dir = getenv("FAKENVML_DEV");
    close_devices();
    for (int i = NONE; dir != NULL && i < s->nvisible; i++) {
        char path[512] = "";
        int n = snprintf(path, sizeof path, "%s/nvidia", dir);
        if (i == NONE)
            snprintf(path + n, sizeof path - (size_t)n, "ctl");
        else
            snprintf(path + n, sizeof path - (size_t)n, "%u", s->scenario->gpus[s->visible[i]].minor);
        int fd = open(path, O_RDWR | O_CLOEXEC);
        if (fd >= 0)
            device_files[ndevice_files++] = fd;
    }
}

/* The scenario that the environment names; one that did not change is not read again. */
static const struct scenario *load_scenario(void)
{
    static const struct scenario *loaded;
    static struct stat loaded_stat;
    const char *path = getenv("FAKENVML_SCENARIO");
    if (path == NULL) {
        fprintf(stderr, "fakenvml: FAKENVML_SCENARIO is not set\n");
        return NULL;
    }
    struct stat st;
    if (loaded != NULL && stat(path, &st) == 0 && st.st_dev == loaded_stat.st_dev && st.st_ino == loaded_stat.st_ino &&
        st.st_mtim.tv_sec == loaded_stat.st_mtim.tv_sec && st.st_mtim.tv_nsec == loaded_stat.st_mtim.tv_nsec)
        return loaded;
    const struct scenario *s = scenario_load(path);
    if (s != NULL && stat(path, &loaded_stat) == 0)
        loaded = s;
    return s;
}

static void wait_out(const struct stall *stalls, int n, const struct gpu *gpu, const char *function, const char *key);

static nvmlReturn_t init(const char *function, const char *key, bool need_gpus)
{
    MEASURED;
    control_open();
    control_count(function, NONE);
    pthread_mutex_lock(&starting);
    const struct scenario *s = load_scenario();
    pthread_mutex_unlock(&starting);
    if (s == NULL)
        return NVML_ERROR_DRIVER_NOT_LOADED;
    wait_out(s->stalls, s->nstalls, NULL, function, key);
    int64_t now = clock_now();
    switch (driver_at(s, now)) {
    case DRIVER_UNLOAD:
        return NVML_ERROR_DRIVER_NOT_LOADED;
    case DRIVER_MISMATCH:
        return NVML_ERROR_LIB_RM_VERSION_MISMATCH;
    default:
        break;
    }
    const struct answer *override = scenario_answer(s, SYSTEM, key, now);
    if (override != NULL && override->code > 0)
        return (nvmlReturn_t)override->code;

    nvmlReturn_t result = NVML_SUCCESS;
    pthread_mutex_lock(&starting);
    const struct session *old = atomic_load(&current);
    if (references > 0 && old != NULL && !session_over(old, now)) {
        references++;
    } else {
        struct session_list *l = calloc(1, sizeof *l);
        if (l == NULL)
            abort();
        l->session.scenario = s;
        l->session.began = now;
        int handles = 0;
        for (int i = 0; i < s->ngpus; i++) {
            if (gpu_present(&s->gpus[i], now))
                l->session.visible[l->session.nvisible++] = i;
            handles += 1;
            for (int j = 0; j < s->gpus[i].nlayouts; j++)
                handles += s->gpus[i].layouts[j].ndevices;
        }
        if (need_gpus && l->session.nvisible == 0) {
            free(l);
            result = NVML_ERROR_DRIVER_NOT_LOADED;
        } else {
            l->session.handles = calloc((size_t)handles + 1, sizeof *l->session.handles);
            if (l->session.handles == NULL)
                abort();
            for (int i = 0; i < s->ngpus; i++) {
                struct handle *h = &l->session.handles[l->session.nhandles++];
                *h = (struct handle){.session = &l->session, .gpu = &s->gpus[i]};
                for (int j = 0; j < s->gpus[i].nlayouts; j++) {
                    const struct layout *layout = &s->gpus[i].layouts[j];
                    for (int k = 0; k < layout->ndevices; k++) {
                        l->session.handles[l->session.nhandles++] = (struct handle){
                            .session = &l->session, .gpu = &s->gpus[i], .mig = true, .layout = layout, .device = k};
                    }
                }
            }
            l->older = atomic_load(&sessions);
            atomic_store(&sessions, l);
            atomic_store(&current, &l->session);
            open_devices(&l->session);
            if (references == 0)
                control_session(+1);
            references++;
        }
    }
    pthread_mutex_unlock(&starting);
    return result;
}

nvmlReturn_t nvmlInit_v2(void)
{
    return init(__func__, "Init", false);
}

nvmlReturn_t nvmlInit(void)
{
    return init(__func__, "Init", true);
}

nvmlReturn_t nvmlInitWithFlags(unsigned int flags)
{
    (void)flags;
    return init(__func__, "Init", false);
}

nvmlReturn_t nvmlShutdown(void)
{
    MEASURED;
    control_count(__func__, NONE);
    pthread_mutex_lock(&starting);
    nvmlReturn_t result = NVML_ERROR_UNINITIALIZED;
    if (references > 0) {
        result = NVML_SUCCESS;
        if (--references == 0) {
            atomic_store(&current, NULL);
            close_devices();
            control_session(-1);
        }
    }
    pthread_mutex_unlock(&starting);
    return result;
}

/* ---- handles ---- */

struct handle *session_gpu_handle(const struct session *s, int gpu)
{
    for (int i = 0; i < s->nhandles; i++) {
        if (!s->handles[i].mig && s->handles[i].gpu->index == gpu)
            return &s->handles[i];
    }
    return NULL;
}

struct handle *session_mig_handle(const struct session *s, const struct gpu *gpu, const struct layout *l, int device)
{
    for (int i = 0; i < s->nhandles; i++) {
        struct handle *h = &s->handles[i];
        if (h->mig && h->gpu == gpu && h->layout == l && h->device == device)
            return h;
    }
    return NULL;
}

/* Whether a pointer is a handle that some session gave out. */
static const struct handle *known_handle(const void *pointer)
{
    for (struct session_list *l = atomic_load(&sessions); l != NULL; l = l->older) {
        for (int i = 0; i < l->session.nhandles; i++) {
            if (&l->session.handles[i] == pointer)
                return &l->session.handles[i];
        }
    }
    return NULL;
}

int mig_first_device(const struct layout *l, int gi)
{
    for (int i = 0; i < l->ndevices; i++) {
        if (l->devices[i].gi == gi)
            return i;
    }
    return NONE;
}

/* ---- calls ---- */

static bool concerns(const struct stall *s, const char *function, const char *key)
{
    return strcmp(s->function, "*") == 0 || strcmp(s->function, function) == 0 || strcmp(s->function, key) == 0;
}

/* Sleeps for the duration that the scenario sets for this call. The last matching line counts; restoring the
 * GPU lifts all of them. */
static void wait_out(const struct stall *stalls, int n, const struct gpu *gpu, const char *function, const char *key)
{
    bool hanging = false;
    for (;;) {
        int64_t now = clock_now(), delay = 0, since = 0;
        for (int i = 0; i < n && stalls[i].at <= now; i++) {
            if (concerns(&stalls[i], function, key)) {
                delay = stalls[i].delay;
                since = stalls[i].at;
            }
        }
        for (int i = 0; gpu != NULL && i < gpu->nfaults && gpu->faults[i].at <= now; i++) {
            if (gpu->faults[i].kind == FAULT_RESTORE && gpu->faults[i].at >= since)
                delay = 0;
        }
        if (delay != FOREVER) {
            if (hanging)
                control_hanging(-1);
            else if (delay > 0)
                clock_pause(delay);
            return;
        }
        if (!hanging)
            control_hanging(+1);
        hanging = true;
        clock_pause(SECOND / 500);
    }
}

/* The scenario may make a whole call fail, whatever its arguments. */
static nvmlReturn_t call_override(const struct call *c, int owner)
{
    const struct answer *a = scenario_answer(c->scenario, owner, c->key, c->now);
    return a != NULL && a->code > 0 ? (nvmlReturn_t)a->code : NVML_SUCCESS;
}

static nvmlReturn_t begin(struct call *c, const char *function, const char *key)
{
    *c = (struct call){.key = key};
    c->session = atomic_load(&current);
    if (c->session == NULL)
        return NVML_ERROR_UNINITIALIZED;
    c->scenario = c->session->scenario;
    c->now = clock_now();
    (void)function;
    return session_over(c->session, c->now) ? NVML_ERROR_UNINITIALIZED : NVML_SUCCESS;
}

nvmlReturn_t begin_call(struct call *c, const char *function, const char *key)
{
    control_count(function, NONE);
    nvmlReturn_t r = begin(c, function, key);
    if (r != NVML_SUCCESS)
        return r;
    wait_out(c->scenario->stalls, c->scenario->nstalls, NULL, function, key);
    c->now = clock_now();
    return call_override(c, SYSTEM);
}

nvmlReturn_t begin_device_call(struct call *c, const char *function, const char *key, nvmlDevice_t device, int accepts)
{
    nvmlReturn_t r = begin(c, function, key);
    const struct handle *h = known_handle(device.handle);
    control_count(function, h == NULL ? NONE : h->gpu->index);
    if (r != NVML_SUCCESS)
        return r;
    if (h == NULL || h->session != c->session)
        return NVML_ERROR_INVALID_ARGUMENT;
    c->handle = h;
    c->gpu = h->gpu;
    c->in_flight = true;
    if (atomic_fetch_add(&in_flight[c->gpu->index], 1) > 0)
        control_overlap();

    wait_out(c->gpu->stalls, c->gpu->nstalls, c->gpu, function, key);
    c->now = clock_now();
    if (session_over(c->session, c->now))
        return NVML_ERROR_UNINITIALIZED;
    r = gpu_state(c->gpu, c->now);
    if (r != NVML_SUCCESS)
        return r;
    c->layout = model_layout(c->gpu, c->now);
    if (h->mig) {
        if (h->layout != c->layout) /* handles die with their layout */
            return NVML_ERROR_INVALID_ARGUMENT;
        c->mig = &h->layout->devices[h->device];
    }
    if ((accepts & (h->mig ? ON_MIG : ON_GPU)) == 0)
        return NVML_ERROR_NOT_SUPPORTED;
    return call_override(c, c->gpu->index);
}

void end_call(struct call *c)
{
    if (c->in_flight)
        atomic_fetch_sub(&in_flight[c->gpu->index], 1);
}

/* ---- answers ---- */

const char *keyf(char *buffer, size_t size, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(buffer, size, format, args);
    va_end(args);
    return buffer;
}

struct moment moment_of(const struct call *c)
{
    return (struct moment){.scenario = c->scenario, .gpu = c->gpu, .now = c->now};
}

uint64_t component_u64(const struct moment *m, const struct component *c)
{
    if (c->kind == COMPONENT_EXACT)
        return c->exact;
    double v = model_value(m, c);
    return v < 0 ? (uint64_t)(int64_t)llround(v) : (uint64_t)(v + 0.5);
}

static const struct component *find_component(const struct call *c, const char *key, int component, nvmlReturn_t *code)
{
    const struct answer *a = scenario_answer(c->scenario, c->gpu == NULL ? SYSTEM : c->gpu->index, key, c->now);
    *code = NVML_ERROR_NOT_SUPPORTED;
    if (a == NULL)
        return NULL;
    if (a->code > 0)
        *code = (nvmlReturn_t)a->code;
    if (a->code != 0 || component >= a->ncomponents)
        return NULL;
    *code = NVML_SUCCESS;
    return &a->components[component];
}

nvmlReturn_t answer_number(const struct call *c, const char *key, int component, double *out)
{
    nvmlReturn_t code;
    const struct component *found = find_component(c, key, component, &code);
    struct moment m = moment_of(c);
    if (found != NULL)
        *out = model_value(&m, found);
    return code;
}

nvmlReturn_t answer_u64(const struct call *c, const char *key, int component, unsigned long long *out)
{
    nvmlReturn_t code;
    const struct component *found = find_component(c, key, component, &code);
    struct moment m = moment_of(c);
    if (found != NULL)
        *out = component_u64(&m, found);
    return code;
}

nvmlReturn_t answer_u32(const struct call *c, const char *key, int component, unsigned int *out)
{
    unsigned long long wide = 0;
    nvmlReturn_t code = answer_u64(c, key, component, &wide);
    if (code == NVML_SUCCESS)
        *out = (unsigned int)wide;
    return code;
}

nvmlReturn_t copy_text(const char *text, char *out, unsigned int length)
{
    if (out == NULL)
        return NVML_ERROR_INVALID_ARGUMENT;
    if (strlen(text) >= length)
        return NVML_ERROR_INSUFFICIENT_SIZE;
    strcpy(out, text);
    return NVML_SUCCESS;
}

nvmlReturn_t answer_text(const struct call *c, const char *key, char *out, unsigned int length)
{
    nvmlReturn_t code;
    const struct component *found = find_component(c, key, 0, &code);
    if (found == NULL)
        return code;
    return found->kind == COMPONENT_TEXT ? copy_text(found->text, out, length) : NVML_ERROR_UNKNOWN;
}
