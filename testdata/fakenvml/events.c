/* Event sets. Each set remembers how far it has read the scenario's list of events, so sets do not steal
 * from each other, and none sees what came before a GPU was registered with it. */
#include "fakenvml.h"

#include <pthread.h>
#include <stdlib.h>
#include <time.h>

#define SET_MAGIC 0x45767374u

struct set {
    uint32_t magic;
    const struct session *session;
    uint64_t types[MAX_GPUS]; /* registered, by GPU */
    int64_t since[MAX_GPUS];
    int next; /* position in the list of events */
    pthread_mutex_t lock;
};

static struct set *set_of(nvmlEventSet_t s)
{
    struct set *set = (struct set *)s.handle;
    return set != NULL && set->magic == SET_MAGIC ? set : NULL;
}

nvmlReturn_t nvmlEventSetCreate(nvmlEventSet_t *out)
{
    CALL("EventSetCreate");
    REQUIRE(out != NULL);
    struct set *s = calloc(1, sizeof *s);
    if (s == NULL)
        return NVML_ERROR_MEMORY;
    s->magic = SET_MAGIC;
    s->session = call.session;
    pthread_mutex_init(&s->lock, NULL);
    out->handle = (struct nvmlEventSet_st *)s;
    return NVML_SUCCESS;
}

/* A set is never given back to the allocator: somebody may still be waiting on it. */
nvmlReturn_t nvmlEventSetFree(nvmlEventSet_t set)
{
    MEASURED;
    control_count(__func__, NONE);
    struct set *s = set_of(set);
    REQUIRE(s != NULL);
    s->magic = 0;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetSupportedEventTypes(nvmlDevice_t device, unsigned long long *types)
{
    DEVICE_CALL("SupportedEventTypes", device, ON_GPU);
    REQUIRE(types != NULL);
    return answer_u64(&call, "SupportedEventTypes", 0, types);
}

nvmlReturn_t nvmlDeviceRegisterEvents(nvmlDevice_t device, unsigned long long types, nvmlEventSet_t set)
{
    DEVICE_CALL("RegisterEvents", device, ON_GPU);
    struct set *s = set_of(set);
    REQUIRE(s != NULL && s->session == call.session && types != 0);
    unsigned long long supported = 0;
    nvmlReturn_t r = answer_u64(&call, "SupportedEventTypes", 0, &supported);
    if (r != NVML_SUCCESS || (types & ~supported) != 0)
        return NVML_ERROR_NOT_SUPPORTED;
    pthread_mutex_lock(&s->lock);
    if (s->types[call.gpu->index] == 0)
        s->since[call.gpu->index] = call.now;
    s->types[call.gpu->index] |= types;
    pthread_mutex_unlock(&s->lock);
    return NVML_SUCCESS;
}

/* XIDs that are in the kernel log alone: DCGM "can't report XID 79, 119, and 120 due to limitations in the NVML library"
 * (NVIDIA/DCGM, issue 162), and an XID 62 never arrived (issue 235). */
static bool reported(const struct event *e)
{
    return e->type != nvmlEventTypeXidCriticalError || (e->data != 62 && e->data != 79 && e->data != 119 && e->data != 120);
}

/* The next event that is due, if any. */
static bool next_event(struct set *s, int64_t now, nvmlEventData_t *data)
{
    const struct scenario *scenario = s->session->scenario;
    bool found = false;
    pthread_mutex_lock(&s->lock);
    while (!found && s->next < scenario->nevents && scenario->events[s->next].at <= now) {
        const struct event *e = &scenario->events[s->next++];
        if ((s->types[e->gpu] & e->type) == 0 || !reported(e) || e->at <= s->since[e->gpu])
            continue;
        *data = (nvmlEventData_t){
            .device = {(struct nvmlDevice_st *)session_gpu_handle(s->session, e->gpu)},
            .eventType = e->type,
            .eventData = e->data,
            .gpuInstanceId = e->gi,
            .computeInstanceId = e->ci,
        };
        found = true;
    }
    pthread_mutex_unlock(&s->lock);
    return found;
}

/* Whether a registered GPU has fallen off the bus. */
static bool any_lost(const struct set *s, int64_t now)
{
    for (int i = 0; i < s->session->scenario->ngpus; i++) {
        const struct gpu *c = &s->session->scenario->gpus[i];
        bool lost = false;
        for (int j = 0; j < c->nfaults && c->faults[j].at <= now; j++)
            lost = c->faults[j].kind == FAULT_LOSE || (lost && c->faults[j].kind != FAULT_RESTORE);
        if (lost && s->types[i] != 0)
            return true;
    }
    return false;
}

static int64_t monotonic(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return ts.tv_sec * SECOND + ts.tv_nsec;
}

/* How long nothing can happen on a clock that runs by itself. */
static int64_t quiet(struct set *s, int64_t now)
{
    int64_t longest = SECOND / 20;
    pthread_mutex_lock(&s->lock);
    if (s->next < s->session->scenario->nevents && s->session->scenario->events[s->next].at - now < longest)
        longest = s->session->scenario->events[s->next].at - now;
    pthread_mutex_unlock(&s->lock);
    return longest > 0 ? longest : 0;
}

/* The timeout is real time, also where the scenario's clock is stepped. */
static nvmlReturn_t wait_for(const struct call *call, nvmlEventSet_t set, nvmlEventData_t *data, unsigned int timeout_ms)
{
    struct set *s = set_of(set);
    REQUIRE(s != NULL && data != NULL && s->session == call->session);
    int64_t deadline = monotonic() + (int64_t)timeout_ms * 1000000;
    for (;;) {
        int64_t now = clock_now();
        if (s->magic != SET_MAGIC)
            return NVML_ERROR_INVALID_ARGUMENT;
        if (next_event(s, now, data))
            return NVML_SUCCESS;
        if (any_lost(s, now))
            return NVML_ERROR_GPU_IS_LOST;
        int64_t left = deadline - monotonic();
        if (left <= 0)
            return NVML_ERROR_TIMEOUT;
        int64_t nap = clock_stepped() ? SECOND / 500 : quiet(s, now);
        clock_pause(left < nap ? left : nap);
    }
}

nvmlReturn_t nvmlEventSetWait_v2(nvmlEventSet_t set, nvmlEventData_t *data, unsigned int timeout_ms)
{
    CALL("EventSetWait");
    return wait_for(&call, set, data, timeout_ms);
}

/* The first version has no instances. */
nvmlReturn_t nvmlEventSetWait(nvmlEventSet_t set, nvmlEventData_t *data, unsigned int timeout_ms)
{
    CALL("EventSetWait");
    struct {
        nvmlDevice_t device;
        unsigned long long type, data;
    } *v1 = (void *)data;
    nvmlEventData_t full;
    nvmlReturn_t r = wait_for(&call, set, data == NULL ? NULL : &full, timeout_ms);
    if (r == NVML_SUCCESS) {
        v1->device = full.device;
        v1->type = full.eventType;
        v1->data = full.eventData;
    }
    return r;
}

#if SINCE(560)
/* A set of system events: it returns what its registration precedes. */
struct system_set {
    uint32_t magic;
    const struct session *session;
    uint64_t types;
    int64_t at; /* of the last event that was returned, and its GPU */
    int gpu;
};

#define VERSIONED(request, name)                             \
    do {                                                     \
        REQUIRE((request) != NULL);                          \
        if ((request)->version != (name))                    \
            return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;     \
    } while (0)

static struct system_set *system_set_of(nvmlSystemEventSet_t s)
{
    struct system_set *set = (struct system_set *)s.handle;
    return set != NULL && set->magic == SET_MAGIC ? set : NULL;
}

nvmlReturn_t nvmlSystemEventSetCreate(nvmlSystemEventSetCreateRequest_t *request)
{
    CALL("SystemEventSetCreate");
    VERSIONED(request, nvmlSystemEventSetCreateRequest_v1);
    struct system_set *s = calloc(1, sizeof *s);
    if (s == NULL)
        return NVML_ERROR_MEMORY;
    *s = (struct system_set){.magic = SET_MAGIC, .session = call.session};
    request->set.handle = (struct nvmlSystemEventSet_st *)s;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlSystemEventSetFree(nvmlSystemEventSetFreeRequest_t *request)
{
    MEASURED;
    control_count(__func__, NONE);
    VERSIONED(request, nvmlSystemEventSetFreeRequest_v1);
    struct system_set *s = system_set_of(request->set);
    REQUIRE(s != NULL);
    s->magic = 0;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlSystemRegisterEvents(nvmlSystemRegisterEventRequest_t *request)
{
    CALL("SystemRegisterEvents");
    VERSIONED(request, nvmlSystemRegisterEventRequest_v1);
    struct system_set *s = system_set_of(request->set);
    REQUIRE(s != NULL && s->session == call.session);
    if (s->types == 0) {
        s->at = call.now;
        s->gpu = MAX_GPUS;
    }
    s->types |= request->eventTypes;
    return NVML_SUCCESS;
}

/* The next event of a set: those of one time come in the order of the GPUs. */
static bool next_system_event(struct system_set *s, int64_t now, nvmlSystemEventData_v1_t *data)
{
    const struct gpu *found = NULL;
    const struct fault *first = NULL;
    for (int i = 0; i < s->session->scenario->ngpus; i++) {
        const struct gpu *c = &s->session->scenario->gpus[i];
        for (int j = 0; j < c->nfaults && c->faults[j].at <= now; j++) {
            const struct fault *f = &c->faults[j];
            uint64_t type = f->kind == FAULT_UNBIND ? nvmlSystemEventTypeGpuDriverUnbind
                            : f->kind == FAULT_BIND ? nvmlSystemEventTypeGpuDriverBind : 0;
            bool later = f->at > s->at || (f->at == s->at && i > s->gpu);
            if ((s->types & type) == 0 || !later || (first != NULL && first->at <= f->at))
                continue;
            found = c;
            first = f;
            data->eventType = type;
        }
    }
    if (found == NULL)
        return false;
    s->at = first->at;
    s->gpu = found->index;
    data->gpuId = found->domain << 16 | found->bus << 8 | found->device; /* RM's id: gpuEncodeDomainBusDevice */
    return true;
}

nvmlReturn_t nvmlSystemEventSetWait(nvmlSystemEventSetWaitRequest_t *request)
{
    CALL("SystemEventSetWait");
    VERSIONED(request, nvmlSystemEventSetWaitRequest_v1);
    struct system_set *s = system_set_of(request->set);
    REQUIRE(s != NULL && s->session == call.session && request->data != NULL && request->dataSize > 0);
    int64_t deadline = monotonic() + (int64_t)request->timeoutms * 1000000;
    for (request->numEvent = 0;;) {
        while (request->numEvent < request->dataSize &&
               next_system_event(s, clock_now(), &request->data[request->numEvent]))
            request->numEvent++;
        if (request->numEvent > 0)
            return NVML_SUCCESS;
        int64_t left = deadline - monotonic(), nap = clock_stepped() ? SECOND / 500 : SECOND / 20;
        if (left <= 0)
            return NVML_ERROR_TIMEOUT;
        clock_pause(left < nap ? left : nap);
    }
}
#endif
