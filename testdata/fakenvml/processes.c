/* The lists of processes. The three versions differ in the size of an entry and in nothing else. */
#include "fakenvml.h"

#include <dirent.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

enum { COMPUTE, GRAPHICS, MPS };

static void put_v2(void *array, unsigned int i, nvmlProcessInfo_v2_t p)
{
    ((nvmlProcessInfo_v2_t *)array)[i] = p;
}

static void put_v1(void *array, unsigned int i, nvmlProcessInfo_v2_t p)
{
    ((nvmlProcessInfo_v1_t *)array)[i] = (nvmlProcessInfo_v1_t){.pid = p.pid, .usedGpuMemory = p.usedGpuMemory};
}

static nvmlReturn_t list(const struct call *call, int kind, unsigned int *count, void *out,
                         void (*put)(void *array, unsigned int i, nvmlProcessInfo_v2_t p))
{
    REQUIRE(count != NULL && (out != NULL || *count == 0));
    unsigned int room = *count, found = 0;
    for (int i = 0; i < call->gpu->ndemands; i++) {
        const struct demand *d = &call->gpu->demands[i];
        if (!d->listed || d->kind != kind || !model_alive(call->gpu, d, call->now))
            continue;
        if (call->mig != NULL && (d->gi != call->mig->gi || d->ci != call->mig->ci))
            continue;
        if (found < room) {
            put(out, found,
                (nvmlProcessInfo_v2_t){
                    .pid = d->pid,
                    .usedGpuMemory = d->memory_unknown ? (unsigned long long)NVML_VALUE_NOT_AVAILABLE : d->memory,
                    .gpuInstanceId = d->gi < 0 ? 0xFFFFFFFFu : (unsigned)d->gi,
                    .computeInstanceId = d->gi < 0 ? 0xFFFFFFFFu : (unsigned)d->ci,
                });
        }
        found++;
    }
    *count = found;
    return found > room ? NVML_ERROR_INSUFFICIENT_SIZE : NVML_SUCCESS;
}

#define LIST(name, key, kind, type, put)                                                             \
    nvmlReturn_t name(nvmlDevice_t device, unsigned int *count, type *out)                           \
    {                                                                                                \
        DEVICE_CALL(key, device, ON_GPU | ON_MIG);                                                   \
        return list(&call, kind, count, out, put);                                                   \
    }

LIST(nvmlDeviceGetComputeRunningProcesses, "ComputeRunningProcesses", COMPUTE, nvmlProcessInfo_v1_t, put_v1)
LIST(nvmlDeviceGetGraphicsRunningProcesses, "GraphicsRunningProcesses", GRAPHICS, nvmlProcessInfo_v1_t, put_v1)
LIST(nvmlDeviceGetMPSComputeRunningProcesses, "MPSComputeRunningProcesses", MPS, nvmlProcessInfo_v1_t, put_v1)
LIST(nvmlDeviceGetComputeRunningProcesses_v2, "ComputeRunningProcesses", COMPUTE, nvmlProcessInfo_v2_t, put_v2)
LIST(nvmlDeviceGetGraphicsRunningProcesses_v2, "GraphicsRunningProcesses", GRAPHICS, nvmlProcessInfo_v2_t, put_v2)
LIST(nvmlDeviceGetMPSComputeRunningProcesses_v2, "MPSComputeRunningProcesses", MPS, nvmlProcessInfo_v2_t, put_v2)
#if SINCE(535)
LIST(nvmlDeviceGetComputeRunningProcesses_v3, "ComputeRunningProcesses", COMPUTE, nvmlProcessInfo_t, put_v2)
LIST(nvmlDeviceGetGraphicsRunningProcesses_v3, "GraphicsRunningProcesses", GRAPHICS, nvmlProcessInfo_t, put_v2)
LIST(nvmlDeviceGetMPSComputeRunningProcesses_v3, "MPSComputeRunningProcesses", MPS, nvmlProcessInfo_t, put_v2)
#endif

#if SINCE(615)
/* Adds the memory of the processes of a cgroup and of those below it. Returns whether it can be opened. */
static bool charged(const struct call *call, const char *path, int depth, unsigned long long *used)
{
    DIR *dir = opendir(path);
    if (dir == NULL)
        return false;
    char name[PATH_MAX];
    snprintf(name, sizeof name, "%s/cgroup.procs", path);
    FILE *list = fopen(name, "re");
    unsigned pid;
    while (list != NULL && fscanf(list, "%u", &pid) == 1) {
        for (int i = 0; i < call->gpu->ndemands; i++) {
            const struct demand *d = &call->gpu->demands[i];
            if (d->listed && d->pid == pid && model_alive(call->gpu, d, call->now))
                *used += d->memory;
        }
    }
    if (list != NULL)
        fclose(list);
    for (struct dirent *e; depth < 16 && (e = readdir(dir)) != NULL;) {
        if (e->d_type == DT_DIR && e->d_name[0] != '.' &&
            snprintf(name, sizeof name, "%s/%s", path, e->d_name) < (int)sizeof name)
            charged(call, name, depth + 1, used);
    }
    closedir(dir);
    return true;
}

/* By nvml.h: "No limit is set when softLimit is 0 and hardLimit is NVML_DEVICE_MEMORY_LIMIT_MAX"; "OPERATING_SYSTEM if the
 * cgroup path cannot be opened". A file memory_limits in the cgroup stands for nvmlDeviceSetMemoryLimits_v1. Of cgroups
 * without it a scenario may set the answer, such as NOT_FOUND: the header leaves open whether they have an account. */
nvmlReturn_t nvmlDeviceGetMemoryLimits_v1(nvmlDevice_t device, nvmlGetMemoryLimits_v1_t *limits)
{
    DEVICE_CALL(__func__, device, ON_GPU); /* a code of the scenario does not apply to cgroups with limits */
    REQUIRE(limits != NULL && limits->nameSpace != NULL);
    char name[PATH_MAX];
    snprintf(name, sizeof name, "%s/memory_limits", limits->nameSpace);
    FILE *file = fopen(name, "re");
    limits->softLimit = limits->currentUsed = 0;
    limits->hardLimit = NVML_DEVICE_MEMORY_LIMIT_MAX;
    if (file != NULL) {
        int found = fscanf(file, "%llu %llu", &limits->softLimit, &limits->hardLimit);
        fclose(file);
        REQUIRE(found == 2);
    } else if (answer_u64(&call, "MemoryLimits_v1", 0, &limits->softLimit) != NVML_ERROR_NOT_SUPPORTED) {
        nvmlReturn_t r = answer_u64(&call, "MemoryLimits_v1", 1, &limits->hardLimit);
        return r != NVML_SUCCESS ? r : answer_u64(&call, "MemoryLimits_v1", 2, &limits->currentUsed);
    }
    if (strncmp(limits->nameSpace, "/sys/fs/cgroup", 14) == 0)
        return NVML_ERROR_NOT_FOUND; /* of the machine that runs the test, whose processes are not the scenario's */
    return charged(&call, limits->nameSpace, 0, &limits->currentUsed) ? NVML_SUCCESS : NVML_ERROR_OPERATING_SYSTEM;
}
#endif
