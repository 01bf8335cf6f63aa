/* Multi-instance GPU: the mode, the GPU instances, the MIG devices in them. */
#include "fakenvml.h"

#include <stdio.h>
#include <string.h>

nvmlReturn_t nvmlDeviceGetMigMode(nvmlDevice_t device, unsigned int *current, unsigned int *pending)
{
    DEVICE_CALL("MigMode", device, ON_GPU);
    REQUIRE(current != NULL && pending != NULL);
    if (call.gpu->nprofiles == 0)
        return NVML_ERROR_NOT_SUPPORTED;
    *current = call.layout->current ? NVML_DEVICE_MIG_ENABLE : NVML_DEVICE_MIG_DISABLE;
    *pending = call.layout->pending ? NVML_DEVICE_MIG_ENABLE : NVML_DEVICE_MIG_DISABLE;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetMaxMigDeviceCount(nvmlDevice_t device, unsigned int *count)
{
    DEVICE_CALL("MaxMigDeviceCount", device, ON_GPU);
    REQUIRE(count != NULL);
    *count = call.gpu->nprofiles == 0 ? 0 : 7;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetMigDeviceHandleByIndex(nvmlDevice_t device, unsigned int index, nvmlDevice_t *mig)
{
    DEVICE_CALL("MigDeviceHandleByIndex", device, ON_GPU);
    REQUIRE(mig != NULL);
    if (!call.layout->current)
        return NVML_ERROR_NOT_SUPPORTED;
    for (int i = 0; i < call.layout->ndevices; i++) {
        if ((unsigned)call.layout->devices[i].index == index) {
            mig->handle = (struct nvmlDevice_st *)session_mig_handle(call.session, call.gpu, call.layout, i);
            return NVML_SUCCESS;
        }
    }
    return NVML_ERROR_NOT_FOUND;
}

nvmlReturn_t nvmlDeviceIsMigDeviceHandle(nvmlDevice_t device, unsigned int *is)
{
    DEVICE_CALL("IsMigDeviceHandle", device, ON_GPU | ON_MIG);
    REQUIRE(is != NULL);
    *is = call.mig != NULL;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetDeviceHandleFromMigDeviceHandle(nvmlDevice_t mig, nvmlDevice_t *device)
{
    DEVICE_CALL("DeviceHandleFromMigDeviceHandle", mig, ON_MIG);
    REQUIRE(device != NULL);
    device->handle = (struct nvmlDevice_st *)session_gpu_handle(call.session, call.gpu->index);
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetGpuInstanceId(nvmlDevice_t device, unsigned int *id)
{
    DEVICE_CALL("GpuInstanceId", device, ON_MIG);
    REQUIRE(id != NULL);
    *id = (unsigned)call.mig->gi;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetComputeInstanceId(nvmlDevice_t device, unsigned int *id)
{
    DEVICE_CALL("ComputeInstanceId", device, ON_MIG);
    REQUIRE(id != NULL);
    *id = (unsigned)call.mig->ci;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetAttributes_v2(nvmlDevice_t device, nvmlDeviceAttributes_t *attributes)
{
    DEVICE_CALL("Attributes", device, ON_MIG);
    REQUIRE(attributes != NULL);
    const struct profile *p = &call.gpu->profiles[call.mig->profile];
    *attributes = (nvmlDeviceAttributes_t){
        .multiprocessorCount = p->slices == 0 ? p->sms : p->sms * (unsigned)call.mig->ci_slices / p->slices,
        .sharedCopyEngineCount = p->ce,
        .sharedDecoderCount = p->dec,
        .sharedEncoderCount = p->enc,
        .sharedJpegCount = p->jpg,
        .sharedOfaCount = p->ofa,
        .gpuInstanceSliceCount = p->slices,
        .computeInstanceSliceCount = (unsigned)call.mig->ci_slices,
        .memorySizeMB = p->memory_mib,
    };
    return NVML_SUCCESS;
}

/* ---- GPU instances ----
 * A GPU instance handle is the handle of its first MIG device, seen through the other type. */

static nvmlGpuInstance_t instance_handle(const struct call *call, int device)
{
    return (nvmlGpuInstance_t){(struct nvmlGpuInstance_st *)session_mig_handle(call->session, call->gpu, call->layout, device)};
}

nvmlReturn_t nvmlDeviceGetGpuInstances(nvmlDevice_t device, unsigned int profile_id, nvmlGpuInstance_t *instances,
                                       unsigned int *count)
{
    DEVICE_CALL("GpuInstances", device, ON_GPU);
    REQUIRE(instances != NULL && count != NULL);
    if (!call.layout->current)
        return NVML_ERROR_NOT_SUPPORTED;
    *count = 0;
    for (int i = 0; i < call.layout->ndevices; i++) {
        const struct mig_device *d = &call.layout->devices[i];
        if (mig_first_device(call.layout, d->gi) == i && call.gpu->profiles[d->profile].id == profile_id)
            instances[(*count)++] = instance_handle(&call, i);
    }
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetGpuInstanceById(nvmlDevice_t device, unsigned int id, nvmlGpuInstance_t *instance)
{
    DEVICE_CALL("GpuInstanceById", device, ON_GPU);
    REQUIRE(instance != NULL);
    if (!call.layout->current)
        return NVML_ERROR_NOT_SUPPORTED;
    int first = mig_first_device(call.layout, (int)id);
    if (first < 0)
        return NVML_ERROR_NOT_FOUND;
    *instance = instance_handle(&call, first);
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlGpuInstanceGetInfo(nvmlGpuInstance_t instance, nvmlGpuInstanceInfo_t *info)
{
    DEVICE_CALL("GpuInstanceInfo", (nvmlDevice_t){(struct nvmlDevice_st *)instance.handle}, ON_MIG);
    REQUIRE(info != NULL);
    *info = (nvmlGpuInstanceInfo_t){
        .device = {(struct nvmlDevice_st *)session_gpu_handle(call.session, call.gpu->index)},
        .id = (unsigned)call.mig->gi,
        .profileId = call.gpu->profiles[call.mig->profile].id,
        .placement = {.start = (unsigned)call.mig->start, .size = (unsigned)call.mig->size},
    };
    return NVML_SUCCESS;
}

static const struct profile *profile_numbered(const struct gpu *c, unsigned int number)
{
    for (int i = 0; i < c->nprofiles; i++) {
        if (c->profiles[i].number == number)
            return &c->profiles[i];
    }
    return NULL;
}

#define FILL_PROFILE(info, p)                     \
    do {                                          \
        (info)->id = (p)->id;                     \
        (info)->sliceCount = (p)->slices;         \
        (info)->instanceCount = (p)->count;       \
        (info)->multiprocessorCount = (p)->sms;   \
        (info)->copyEngineCount = (p)->ce;        \
        (info)->decoderCount = (p)->dec;          \
        (info)->encoderCount = (p)->enc;          \
        (info)->jpegCount = (p)->jpg;             \
        (info)->ofaCount = (p)->ofa;              \
        (info)->memorySizeMB = (p)->memory_mib;   \
    } while (0)

nvmlReturn_t nvmlDeviceGetGpuInstanceProfileInfo(nvmlDevice_t device, unsigned int number, nvmlGpuInstanceProfileInfo_t *info)
{
    DEVICE_CALL("GpuInstanceProfileInfo", device, ON_GPU);
    REQUIRE(info != NULL && number < NVML_GPU_INSTANCE_PROFILE_COUNT);
    const struct profile *p = profile_numbered(call.gpu, number);
    if (p == NULL)
        return NVML_ERROR_NOT_SUPPORTED;
    memset(info, 0, sizeof *info);
    FILL_PROFILE(info, p);
    return NVML_SUCCESS;
}

#if SINCE(535)
nvmlReturn_t nvmlDeviceGetGpuInstanceProfileInfoV(nvmlDevice_t device, unsigned int number, nvmlGpuInstanceProfileInfo_v2_t *info)
{
    DEVICE_CALL("GpuInstanceProfileInfo", device, ON_GPU);
    REQUIRE(info != NULL && number < NVML_GPU_INSTANCE_PROFILE_COUNT);
    if (info->version != nvmlGpuInstanceProfileInfo_v2 && info->version != nvmlGpuInstanceProfileInfo_v3)
        return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    const struct profile *p = profile_numbered(call.gpu, number);
    if (p == NULL)
        return NVML_ERROR_NOT_SUPPORTED;
    if (info->version == nvmlGpuInstanceProfileInfo_v2) {
        info->isP2pSupported = 0;
        FILL_PROFILE(info, p);
        snprintf(info->name, sizeof info->name, "MIG %s", p->name);
    } else {
        nvmlGpuInstanceProfileInfo_v3_t *v3 = (nvmlGpuInstanceProfileInfo_v3_t *)info;
        v3->capabilities = 0;
        FILL_PROFILE(v3, p);
        snprintf(v3->name, sizeof v3->name, "MIG %s", p->name);
    }
    return NVML_SUCCESS;
}
#endif
