/* The lists of processes. The three versions differ in the size of an entry and in nothing else. */
#include "fakenvml.h"

#include <stdio.h>

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
