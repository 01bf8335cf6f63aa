/* The driver's sample rings: utilization of the GPU, and of processes. A ring has the last so many
 * cells of equal length; a sample describes the cell that ends at its timestamp. */
#include "fakenvml.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define MAX_RING 4096

/* Rounds to the nearest number, exact halves up although the value is the result of a division. */
#define HALF_UP (0.5 + 1e-9)

/* The cells of the ring are (first, last], by number; cell k ends k periods after second 0. */
static void ring_bounds(const struct call *call, int64_t *first, int64_t *last)
{
    const struct gpu *c = call->gpu;
    *last = call->now / c->ring_period;
    *first = *last - c->ring_entries;
    int64_t loaded = model_loaded_since(call->scenario, call->now) / c->ring_period;
    if (*first < loaded)
        *first = loaded;
}

static uint64_t cell_timestamp(const struct gpu *c, int64_t cell)
{
    /* A clock since boot begins some time before the scenario, so that it is no epoch. */
    int64_t base = c->ring_boot_clock ? 4242000000LL : clock_realtime_us(0);
    return (uint64_t)(base + cell * (c->ring_period / 1000));
}

static double cell_part(const struct gpu *c, int64_t cell, bool memory, double *share)
{
    struct sums sums = {0};
    model_integrate(c, (cell - 1) * c->ring_period, cell * c->ring_period, &sums, share);
    return (memory ? sums.dram : sums.busy) / (double)c->ring_period;
}

static bool cell_kept(const struct gpu *c, int64_t cell)
{
    /* A ring that stops when idle keeps the first idle sample, and then nothing. */
    return !c->ring_stops || cell_part(c, cell, false, NULL) > 0 || (cell > 1 && cell_part(c, cell - 1, false, NULL) > 0);
}

static nvmlReturn_t sample_value(const struct call *call, nvmlSamplingType_t type, int64_t cell, unsigned int *value)
{
    char key[64];
    const struct answer *a =
        scenario_answer(call->scenario, call->gpu->index, keyf(key, sizeof key, "Samples[%u]", (unsigned)type), call->now);
    if (a != NULL && a->code > 0)
        return (nvmlReturn_t)a->code;
    if (a != NULL && a->ncomponents > 0)
        return answer_u32(call, key, 0, value);
    const struct gpu *c = call->gpu;
    switch (type) {
    case NVML_TOTAL_POWER_SAMPLES:
        if (c->busy_mw == 0)
            return NVML_ERROR_NOT_SUPPORTED;
        *value = (unsigned int)(c->idle_mw + (c->busy_mw - c->idle_mw) * cell_part(c, cell, false, NULL) + 0.5);
        return NVML_SUCCESS;
    case NVML_GPU_UTILIZATION_SAMPLES:
        *value = (unsigned int)(100 * cell_part(c, cell, false, NULL) + HALF_UP);
        return NVML_SUCCESS;
    case NVML_MEMORY_UTILIZATION_SAMPLES:
        *value = (unsigned int)(100 * cell_part(c, cell, true, NULL) + HALF_UP);
        return NVML_SUCCESS;
    default:
        return NVML_ERROR_NOT_SUPPORTED;
    }
}

nvmlReturn_t nvmlDeviceGetSamples(nvmlDevice_t device, nvmlSamplingType_t type, unsigned long long last_seen,
                                  nvmlValueType_t *value_type, unsigned int *count, nvmlSample_t *samples)
{
    DEVICE_CALL("Samples", device, ON_GPU);
    REQUIRE(count != NULL && value_type != NULL && (samples == NULL || *count > 0));
    const struct gpu *c = call.gpu;
    if (c->ring_period <= 0 || (call.layout->current && type != NVML_TOTAL_POWER_SAMPLES))
        return NVML_ERROR_NOT_SUPPORTED;
    unsigned int probe;
    nvmlReturn_t r = sample_value(&call, type, 1, &probe);
    if (r != NVML_SUCCESS)
        return r;
    *value_type = NVML_VALUE_TYPE_UNSIGNED_INT;
    if (samples == NULL) {
        *count = c->ring_sizing;
        return NVML_SUCCESS;
    }
    int64_t first, last;
    ring_bounds(&call, &first, &last);
    /* What does not fit is dropped from the old end. */
    int64_t wanted[MAX_RING];
    unsigned int found = 0;
    for (int64_t cell = last; cell > first && found < *count && found < MAX_RING; cell--) {
        if (cell_timestamp(c, cell) <= last_seen)
            break;
        if (cell_kept(c, cell))
            wanted[found++] = cell;
    }
    if (found == 0)
        return NVML_ERROR_NOT_FOUND;
    /* In the order of memory the cells since the ring last wrapped come first. */
    unsigned int wrapped = 0;
    if (c->ring_slots) {
        while (wrapped < found && wanted[wrapped] / c->ring_entries == wanted[0] / c->ring_entries)
            wrapped++;
    }
    for (unsigned int i = 0; i < found; i++) {
        int64_t cell = wanted[(wrapped + found - 1 - i) % found];
        memset(&samples[i], 0, sizeof samples[i]);
        samples[i].timeStamp = cell_timestamp(c, cell);
        r = sample_value(&call, type, cell, &samples[i].sampleValue.uiVal);
        if (r != NVML_SUCCESS)
            return r;
    }
    if (c->ring_zeros) /* the rest of the ring, as if it had been filled */
        memset(&samples[found], 0, (*count - found) * sizeof *samples);
    else
        *count = found;
    return NVML_SUCCESS;
}

/* ---- processes ---- */

/* A number in [0, 1) that depends on nothing but its arguments (the mixer of SplitMix64). */
static double draw(uint64_t gpu, uint64_t cell)
{
    uint64_t x = cell * 0x9e3779b97f4a7c15ull + gpu + 1;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
    return (double)((x ^ (x >> 31)) >> 11) / 9007199254740992.0;
}

struct tally {
    unsigned int pid;
    double sm, memory;
    unsigned int cells;
    int64_t newest;
};

#define MAX_TALLIES 256

static struct tally *tally_of(struct tally *tallies, unsigned int *n, unsigned int pid)
{
    for (unsigned int i = 0; i < *n; i++) {
        if (tallies[i].pid == pid)
            return &tallies[i];
    }
    if (*n >= MAX_TALLIES)
        return NULL;
    tallies[*n] = (struct tally){.pid = pid};
    return &tallies[(*n)++];
}

/* The demand whose process was seen on the GPU in a cell, drawn by weight; NONE in a cell that is not busy. */
static int cell_owner(const struct gpu *c, int64_t cell, double *busy)
{
    double share[256] = {0}, total = 0;
    *busy = cell_part(c, cell, false, share);
    for (int i = 0; i < c->ndemands && i < 256; i++)
        total += share[i];
    double x = draw((uint64_t)c->index, (uint64_t)cell) * total;
    int chosen = NONE;
    for (int i = 0; *busy > 0 && i < c->ndemands && i < 256; i++) {
        if (share[i] <= 0)
            continue;
        chosen = i;
        x -= share[i];
        if (x < 0)
            break;
    }
    return chosen;
}

/* Each cell belongs to the one process that was seen on the GPU, drawn by weight, with all the busy
 * time of the cell. */
static unsigned int tally_cells(const struct gpu *c, int64_t first, int64_t last, struct tally *tallies, int64_t *newest)
{
    unsigned int n = 0;
    *newest = first;
    for (int64_t cell = first + 1; cell <= last; cell++) {
        double busy;
        int chosen = cell_owner(c, cell, &busy);
        if (busy <= 0)
            continue;
        *newest = cell;
        if (chosen == NONE || c->demands[chosen].pid == 0)
            continue;
        struct tally *t = tally_of(tallies, &n, c->demands[chosen].pid);
        if (t == NULL)
            continue;
        t->sm += busy;
        t->memory += busy * c->demands[chosen].dram;
        t->cells++;
        t->newest = cell;
    }
    return n;
}

nvmlReturn_t nvmlDeviceGetProcessUtilization(nvmlDevice_t device, nvmlProcessUtilizationSample_t *out, unsigned int *count,
                                             unsigned long long last_seen)
{
    DEVICE_CALL("ProcessUtilization", device, ON_GPU);
    REQUIRE(count != NULL);
    const struct gpu *c = call.gpu;
    if (c->ring_period <= 0 || call.layout->current)
        return NVML_ERROR_NOT_SUPPORTED;
    if (out == NULL) {
        *count = c->ring_sizing;
        return NVML_ERROR_INSUFFICIENT_SIZE;
    }
    int64_t first, last, newest;
    ring_bounds(&call, &first, &last);
    while (first < last && cell_timestamp(c, first + 1) <= last_seen)
        first++;
    struct tally tallies[MAX_TALLIES];
    unsigned int n = tally_cells(c, first, last, tallies, &newest);
    if (n == 0)
        return NVML_ERROR_NOT_FOUND;
    if (*count < n) {
        *count = n;
        return NVML_ERROR_INSUFFICIENT_SIZE;
    }
    for (unsigned int i = 0; i < n; i++) {
        /* Means are over the whole window, up to the newest busy cell, so that the processes add up to
         * the GPU; or, if the scenario asks, over the cells in which the process was seen. */
        double cells = c->ring_own_mean ? tallies[i].cells : (double)(newest - first);
        memset(&out[i], 0, sizeof out[i]);
        out[i].pid = tallies[i].pid;
        out[i].timeStamp = cell_timestamp(c, tallies[i].newest);
        out[i].smUtil = (unsigned int)(100 * tallies[i].sm / cells + 0.5);
        out[i].memUtil = (unsigned int)(100 * tallies[i].memory / cells + 0.5);
        unsigned int *fields[] = {&out[i].smUtil, &out[i].memUtil, &out[i].encUtil, &out[i].decUtil};
        for (int f = 0; f < 4; f++)
            answer_u32(&call, "ProcessUtilization", f, fields[f]);
    }
    *count = n;
    return NVML_SUCCESS;
}

/* ---- accounts ---- */

/* The sums of each demand over all cells until one. The driver adds new cells once a second (gpu_acct.c of its open
 * kernel modules), keeps the accounts of processes that have ended until the buffer is full, and is off by default. */
struct accounts {
    int64_t until;
    double busy[256], dram[256];
};
static pthread_mutex_t accounting = PTHREAD_MUTEX_INITIALIZER;

#define ACCOUNTING_BUFFER 4000

/* What the accounts say of a process: the first demand with its PID, or NONE. A process that is no longer kept has no account. */
static bool accounted(const struct call *call, unsigned int pid, struct accounts *out, int64_t *from, int64_t *to)
{
    const struct gpu *c = call->gpu;
    int64_t now = call->now / SECOND * SECOND, loaded = model_loaded_since(call->scenario, call->now);
    bool found = false;
    for (int i = 0; i < c->ndemands && i < 256; i++) {
        const struct demand *d = &c->demands[i];
        if (d->pid != pid || pid == 0 || d->from > call->now || d->to <= loaded)
            continue;
        if (!found || d->from < *from)
            *from = d->from;
        if (!found || d->to > *to)
            *to = d->to;
        found = true;
    }
    if (!found || out == NULL)
        return found;
    pthread_mutex_lock(&accounting);
    struct gpu *mutable = (struct gpu *)c; /* what is remembered is all that changes */
    if (mutable->accounts == NULL)
        mutable->accounts = calloc(1, sizeof *mutable->accounts);
    struct accounts *a = mutable->accounts;
    if (a == NULL)
        abort();
    if (a->until > now / c->ring_period || a->until < loaded / c->ring_period) {
        memset(a, 0, sizeof *a);
        a->until = loaded / c->ring_period;
    }
    for (; a->until < now / c->ring_period; a->until++) {
        double busy;
        int i = cell_owner(c, a->until + 1, &busy);
        if (i == NONE)
            continue;
        a->busy[i] += busy;
        a->dram[i] += busy * c->demands[i].dram;
    }
    out->until = a->until;
    out->busy[0] = out->dram[0] = 0;
    for (int i = 0; i < c->ndemands && i < 256; i++) {
        if (c->demands[i].pid == pid) {
            out->busy[0] += a->busy[i];
            out->dram[0] += a->dram[i];
        }
    }
    pthread_mutex_unlock(&accounting);
    return true;
}

/* Whether the mode is on. */
static nvmlReturn_t accounting_on(const struct call *call)
{
    unsigned int mode = 0;
    nvmlReturn_t r = answer_u32(call, "AccountingMode", 0, &mode);
    if (r != NVML_SUCCESS)
        return r;
    return mode == 1 && call->gpu->ring_period > 0 && !call->layout->current ? NVML_SUCCESS : NVML_ERROR_NOT_SUPPORTED;
}

nvmlReturn_t nvmlDeviceGetAccountingPids(nvmlDevice_t device, unsigned int *count, unsigned int *pids)
{
    DEVICE_CALL("AccountingPids", device, ON_GPU);
    REQUIRE(count != NULL && (pids != NULL || *count == 0));
    nvmlReturn_t r = accounting_on(&call);
    if (r != NVML_SUCCESS)
        return r;
    unsigned int kept = ACCOUNTING_BUFFER, found = 0, ended = 0, room = *count;
    answer_u32(&call, "AccountingPids", 0, &kept); /* 0 outside the host's PID namespace: gpuacctGetAcctPids_IMPL */
    /* The newest demands come last in a scenario: those that ended are dropped from the front. */
    for (int pass = 0; pass < 2; pass++) {
        unsigned int skip = ended > kept ? ended - kept : 0;
        found = ended = 0;
        for (int i = 0; i < call.gpu->ndemands; i++) {
            unsigned int pid = call.gpu->demands[i].pid;
            int64_t from = 0, to = 0;
            bool again = false;
            for (int j = 0; j < i; j++)
                again = again || call.gpu->demands[j].pid == pid;
            if (again || !accounted(&call, pid, NULL, &from, &to))
                continue;
            if (to <= call.now && ended++ < skip)
                continue;
            if (found < room)
                pids[found] = pid;
            found++;
        }
    }
    *count = found;
    return found > room ? NVML_ERROR_INSUFFICIENT_SIZE : NVML_SUCCESS;
}

#if SINCE(610)
nvmlReturn_t nvmlDeviceGetAccountingStats_v2(nvmlDevice_t device, nvmlAccountingStats_v2_t *stats)
{
    DEVICE_CALL("AccountingStats_v2", device, ON_GPU);
    REQUIRE(stats != NULL);
    nvmlReturn_t r = accounting_on(&call);
    if (r != NVML_SUCCESS)
        return r;
    struct accounts sums;
    int64_t from = 0, to = 0;
    unsigned int pid = stats->pid;
    if (!accounted(&call, pid, &sums, &from, &to))
        return NVML_ERROR_NOT_FOUND;
    memset(stats, 0, sizeof *stats);
    stats->pid = pid;
    stats->isRunning = to > call.now;
    int64_t end = to / call.gpu->ring_period < sums.until ? to / call.gpu->ring_period : sums.until;
    stats->sampleCount = end > from / call.gpu->ring_period ? (unsigned int)(end - from / call.gpu->ring_period) : 0;
    stats->sumGpuUtil = (unsigned long long)(10000 * sums.busy[0] + HALF_UP);
    stats->sumFbUtil = (unsigned long long)(10000 * sums.dram[0] + HALF_UP);
    if (stats->sampleCount > 0) {
        stats->gpuUtilization = (unsigned int)(100 * sums.busy[0] / stats->sampleCount);
        stats->memoryUtilization = (unsigned int)(100 * sums.dram[0] / stats->sampleCount);
    }
    stats->time = stats->isRunning ? 0 : (unsigned long long)((to - from) / 1000000);
    stats->startTime = (unsigned long long)clock_realtime_us(from);
    return NVML_SUCCESS;
}
#endif
