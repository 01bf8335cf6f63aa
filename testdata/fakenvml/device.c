/* Getters that take more than to return a line of the scenario; those that do not are in calls.c. */
#include "fakenvml.h"

#include <stdio.h>
#include <string.h>

const char *nvmlErrorString(nvmlReturn_t result)
{
    static const char *const texts[] = {
        [NVML_SUCCESS] = "Success",
        [NVML_ERROR_UNINITIALIZED] = "Uninitialized",
        [NVML_ERROR_INVALID_ARGUMENT] = "Invalid Argument",
        [NVML_ERROR_NOT_SUPPORTED] = "Not Supported",
        [NVML_ERROR_NO_PERMISSION] = "Insufficient Permissions",
        [NVML_ERROR_NOT_FOUND] = "Not Found",
        [NVML_ERROR_INSUFFICIENT_SIZE] = "Insufficient Size",
        [NVML_ERROR_DRIVER_NOT_LOADED] = "Driver Not Loaded",
        [NVML_ERROR_TIMEOUT] = "Timeout",
        [NVML_ERROR_FUNCTION_NOT_FOUND] = "Function Not Found",
        [NVML_ERROR_GPU_IS_LOST] = "GPU is lost",
        [NVML_ERROR_RESET_REQUIRED] = "GPU requires reset",
        [NVML_ERROR_LIB_RM_VERSION_MISMATCH] = "Driver/library version mismatch",
        [NVML_ERROR_IN_USE] = "In use by another client",
        [NVML_ERROR_NO_DATA] = "No data",
        [NVML_ERROR_ARGUMENT_VERSION_MISMATCH] = "Argument version mismatch",
        [NVML_ERROR_DEPRECATED] = "Deprecated",
    };
    size_t i = (size_t)result;
    return i < sizeof texts / sizeof *texts && texts[i] != NULL ? texts[i] : "Unknown Error";
}

/* ---- the system ---- */

nvmlReturn_t nvmlSystemGetDriverVersion(char *version, unsigned int length)
{
    CALL("DriverVersion");
    return answer_text(&call, "DriverVersion", version, length);
}

nvmlReturn_t nvmlSystemGetNVMLVersion(char *version, unsigned int length)
{
    CALL("NVMLVersion");
    return answer_text(&call, "NVMLVersion", version, length);
}

static nvmlReturn_t cuda_version(const struct call *call, int *version)
{
    REQUIRE(version != NULL);
    unsigned int v = 0;
    nvmlReturn_t r = answer_u32(call, "CudaDriverVersion", 0, &v);
    *version = (int)v;
    return r;
}

nvmlReturn_t nvmlSystemGetCudaDriverVersion(int *version)
{
    CALL("CudaDriverVersion");
    return cuda_version(&call, version);
}

nvmlReturn_t nvmlSystemGetCudaDriverVersion_v2(int *version)
{
    CALL("CudaDriverVersion");
    return cuda_version(&call, version);
}

/* ---- finding GPUs ---- */

/* A lost GPU has no handle. */
static nvmlReturn_t give_gpu(const struct call *call, int gpu, nvmlDevice_t *device)
{
    nvmlReturn_t r = gpu_state(&call->scenario->gpus[gpu], call->now);
    const struct answer *override = scenario_answer(call->scenario, gpu, "Handle", call->now);
    if (r == NVML_SUCCESS && override != NULL && override->code > 0)
        r = (nvmlReturn_t)override->code;
    if (r == NVML_SUCCESS)
        device->handle = (struct nvmlDevice_st *)session_gpu_handle(call->session, gpu);
    return r;
}

nvmlReturn_t nvmlDeviceGetCount_v2(unsigned int *count)
{
    CALL("Count");
    REQUIRE(count != NULL);
    *count = (unsigned)call.session->nvisible;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned int index, nvmlDevice_t *device)
{
    CALL("HandleByIndex");
    REQUIRE(device != NULL && index < (unsigned)call.session->nvisible);
    return give_gpu(&call, call.session->visible[index], device);
}

nvmlReturn_t nvmlDeviceGetHandleByUUID(const char *uuid, nvmlDevice_t *device)
{
    CALL("HandleByUUID");
    REQUIRE(uuid != NULL && device != NULL);
    for (int i = 0; i < call.session->nvisible; i++) {
        const struct gpu *c = &call.scenario->gpus[call.session->visible[i]];
        if (strcmp(c->uuid, uuid) == 0)
            return give_gpu(&call, c->index, device);
        const struct layout *l = model_layout(c, call.now);
        for (int j = 0; j < l->ndevices; j++) {
            if (strcmp(l->devices[j].uuid, uuid) == 0) {
                device->handle = (struct nvmlDevice_st *)session_mig_handle(call.session, c, l, j);
                return NVML_SUCCESS;
            }
        }
    }
    return NVML_ERROR_NOT_FOUND;
}

nvmlReturn_t nvmlDeviceGetHandleByPciBusId_v2(const char *bus_id, nvmlDevice_t *device)
{
    CALL("HandleByPciBusId");
    REQUIRE(bus_id != NULL && device != NULL);
    unsigned domain, bus, slot, function;
    REQUIRE(sscanf(bus_id, "%x:%x:%x.%x", &domain, &bus, &slot, &function) == 4);
    for (int i = 0; i < call.session->nvisible; i++) {
        const struct gpu *c = &call.scenario->gpus[call.session->visible[i]];
        if (c->domain == domain && c->bus == bus && c->device == slot)
            return give_gpu(&call, c->index, device);
    }
    return NVML_ERROR_NOT_FOUND;
}

/* ---- identity ---- */

nvmlReturn_t nvmlDeviceGetUUID(nvmlDevice_t device, char *uuid, unsigned int length)
{
    DEVICE_CALL("UUID", device, ON_GPU | ON_MIG);
    return copy_text(call.mig != NULL ? call.mig->uuid : call.gpu->uuid, uuid, length);
}

nvmlReturn_t nvmlDeviceGetName(nvmlDevice_t device, char *name, unsigned int length)
{
    DEVICE_CALL("Name", device, ON_GPU | ON_MIG);
    char board[NVML_DEVICE_NAME_V2_BUFFER_SIZE], full[2 * NVML_DEVICE_NAME_V2_BUFFER_SIZE];
    nvmlReturn_t r = answer_text(&call, "Name", board, sizeof board);
    if (r != NVML_SUCCESS || call.mig == NULL)
        return r != NVML_SUCCESS ? r : copy_text(board, name, length);
    const struct profile *p = &call.gpu->profiles[call.mig->profile];
    if ((unsigned)call.mig->ci_slices < p->slices) /* a compute instance smaller than its GPU instance */
        snprintf(full, sizeof full, "%s MIG %dc.%s", board, call.mig->ci_slices, p->name);
    else
        snprintf(full, sizeof full, "%s MIG %s", board, p->name);
    return copy_text(full, name, length);
}

nvmlReturn_t nvmlDeviceGetMinorNumber(nvmlDevice_t device, unsigned int *minor)
{
    DEVICE_CALL("MinorNumber", device, ON_GPU);
    REQUIRE(minor != NULL);
    *minor = call.gpu->minor;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetIndex(nvmlDevice_t device, unsigned int *index)
{
    DEVICE_CALL("Index", device, ON_GPU | ON_MIG);
    REQUIRE(index != NULL);
    if (call.mig != NULL) {
        *index = (unsigned)call.mig->index;
        return NVML_SUCCESS;
    }
    for (int i = 0; i < call.session->nvisible; i++) {
        if (call.session->visible[i] == call.gpu->index)
            *index = (unsigned)i;
    }
    return NVML_SUCCESS;
}

static nvmlReturn_t pci_info(const struct call *call, nvmlPciInfo_t *pci)
{
    REQUIRE(pci != NULL);
    const struct gpu *c = call->gpu;
    memset(pci, 0, sizeof *pci);
    pci->domain = c->domain;
    pci->bus = c->bus;
    pci->device = c->device;
    answer_u32(call, "PciInfo", 0, &pci->pciDeviceId);
    answer_u32(call, "PciInfo", 1, &pci->pciSubSystemId);
    snprintf(pci->busIdLegacy, sizeof pci->busIdLegacy, NVML_DEVICE_PCI_BUS_ID_LEGACY_FMT, c->domain & 0xffff, c->bus & 0xff,
             c->device & 0xff);
    snprintf(pci->busId, sizeof pci->busId, NVML_DEVICE_PCI_BUS_ID_FMT, c->domain, c->bus, c->device);
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetPciInfo_v2(nvmlDevice_t device, nvmlPciInfo_t *pci)
{
    DEVICE_CALL("PciInfo", device, ON_GPU);
    return pci_info(&call, pci);
}

nvmlReturn_t nvmlDeviceGetPciInfo_v3(nvmlDevice_t device, nvmlPciInfo_t *pci)
{
    DEVICE_CALL("PciInfo", device, ON_GPU);
    return pci_info(&call, pci);
}

nvmlReturn_t nvmlDeviceGetNvLinkErrorCounter(nvmlDevice_t device, unsigned int link, nvmlNvLinkErrorCounter_t counter,
                                             unsigned long long *value)
{
    DEVICE_CALL("NvLinkErrorCounter", device, ON_GPU);
    REQUIRE(value != NULL);
    char key[64];
    return answer_u64(&call, keyf(key, sizeof key, "NvLinkErrorCounter[%u,%u]", link, (unsigned)counter), 0, value);
}

nvmlReturn_t nvmlDeviceGetTotalEccErrors(nvmlDevice_t device, nvmlMemoryErrorType_t severity, nvmlEccCounterType_t counter,
                                         unsigned long long *count)
{
    DEVICE_CALL("TotalEccErrors", device, ON_GPU);
    REQUIRE(count != NULL);
    char key[64];
    return answer_u64(&call, keyf(key, sizeof key, "TotalEccErrors[%u,%u]", (unsigned)severity, (unsigned)counter), 0, count);
}

nvmlReturn_t nvmlDeviceGetMemoryErrorCounter(nvmlDevice_t device, nvmlMemoryErrorType_t severity, nvmlEccCounterType_t counter,
                                             nvmlMemoryLocation_t location, unsigned long long *count)
{
    DEVICE_CALL("MemoryErrorCounter", device, ON_GPU);
    REQUIRE(count != NULL);
    char key[64];
    return answer_u64(&call,
                      keyf(key, sizeof key, "MemoryErrorCounter[%u,%u,%u]", (unsigned)severity, (unsigned)counter,
                           (unsigned)location),
                      0, count);
}

/* ---- a few numbers ---- */

nvmlReturn_t nvmlDeviceGetUtilizationRates(nvmlDevice_t device, nvmlUtilization_t *utilization)
{
    DEVICE_CALL("UtilizationRates", device, ON_GPU);
    REQUIRE(utilization != NULL);
    NOT_UNDER_MIG;
    nvmlReturn_t r = answer_u32(&call, "UtilizationRates", 0, &utilization->gpu);
    return r != NVML_SUCCESS ? r : answer_u32(&call, "UtilizationRates", 1, &utilization->memory);
}

nvmlReturn_t nvmlDeviceGetRemappedRows(nvmlDevice_t device, unsigned int *correctable, unsigned int *uncorrectable,
                                       unsigned int *pending, unsigned int *failure)
{
    DEVICE_CALL("RemappedRows", device, ON_GPU);
    REQUIRE(correctable != NULL && uncorrectable != NULL && pending != NULL && failure != NULL);
    if (call.layout->ndevices > 0)
        return NVML_ERROR_NOT_SUPPORTED;
    unsigned int *out[] = {correctable, uncorrectable, pending, failure};
    nvmlReturn_t r = NVML_SUCCESS;
    for (int i = 0; i < 4 && r == NVML_SUCCESS; i++)
        r = answer_u32(&call, "RemappedRows", i, out[i]);
    return r;
}

nvmlReturn_t nvmlDeviceGetRowRemapperHistogram(nvmlDevice_t device, nvmlRowRemapperHistogramValues_t *values)
{
    DEVICE_CALL("RowRemapperHistogram", device, ON_GPU);
    REQUIRE(values != NULL);
    if (call.layout->ndevices > 0)
        return NVML_ERROR_NOT_SUPPORTED;
    unsigned int *out[] = {&values->max, &values->high, &values->partial, &values->low, &values->none};
    nvmlReturn_t r = NVML_SUCCESS;
    for (int i = 0; i < 5 && r == NVML_SUCCESS; i++)
        r = answer_u32(&call, "RowRemapperHistogram", i, out[i]);
    return r;
}

/* The scenario gives the number of retired pages; addresses are made up. */
static nvmlReturn_t retired_pages(const struct call *call, nvmlPageRetirementCause_t cause, unsigned int *count,
                                  unsigned long long *addresses, unsigned long long *timestamps)
{
    REQUIRE(count != NULL);
    char key[64];
    unsigned int pages = 0;
    nvmlReturn_t r = answer_u32(call, keyf(key, sizeof key, "RetiredPages[%u]", (unsigned)cause), 0, &pages);
    if (r != NVML_SUCCESS)
        return r;
    if (addresses == NULL || *count < pages) {
        bool sizing = addresses == NULL && *count == 0;
        *count = pages;
        return sizing && pages == 0 ? NVML_SUCCESS : NVML_ERROR_INSUFFICIENT_SIZE;
    }
    for (unsigned int i = 0; i < pages; i++) {
        addresses[i] = 0x100000ull * (i + 1);
        if (timestamps != NULL)
            timestamps[i] = (unsigned long long)clock_realtime_us(0);
    }
    *count = pages;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetRetiredPages(nvmlDevice_t device, nvmlPageRetirementCause_t cause, unsigned int *count,
                                       unsigned long long *addresses)
{
    DEVICE_CALL("RetiredPages", device, ON_GPU);
    return retired_pages(&call, cause, count, addresses, NULL);
}

nvmlReturn_t nvmlDeviceGetRetiredPages_v2(nvmlDevice_t device, nvmlPageRetirementCause_t cause, unsigned int *count,
                                          unsigned long long *addresses, unsigned long long *timestamps)
{
    DEVICE_CALL("RetiredPages", device, ON_GPU);
    return retired_pages(&call, cause, count, addresses, timestamps);
}

/* ---- memory ---- */

/* Of a MIG device: the memory of its profile and of its processes. */
static nvmlReturn_t instance_memory(const struct call *call, unsigned long long *total, unsigned long long *used)
{
    *total = (unsigned long long)call->gpu->profiles[call->mig->profile].memory_mib << 20;
    *used = 0;
    for (int i = 0; i < call->gpu->ndemands; i++) {
        const struct demand *d = &call->gpu->demands[i];
        if (d->gi == call->mig->gi && model_alive(call->gpu, d, call->now))
            *used += d->memory;
    }
    if (*used > *total)
        *used = *total;
    return NVML_SUCCESS;
}

static nvmlReturn_t three(const struct call *call, const char *key, unsigned long long *total, unsigned long long *used,
                          unsigned long long *free_)
{
    nvmlReturn_t r = answer_u64(call, key, 0, total);
    if (r == NVML_SUCCESS)
        r = answer_u64(call, key, 1, used);
    if (r == NVML_SUCCESS)
        r = answer_u64(call, key, 2, free_);
    return r;
}

nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t device, nvmlMemory_t *memory)
{
    DEVICE_CALL("MemoryInfo", device, ON_GPU | ON_MIG);
    REQUIRE(memory != NULL);
    if (call.mig == NULL)
        return three(&call, "MemoryInfo", &memory->total, &memory->used, &memory->free);
    instance_memory(&call, &memory->total, &memory->used);
    memory->free = memory->total - memory->used;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetBAR1MemoryInfo(nvmlDevice_t device, nvmlBAR1Memory_t *memory)
{
    DEVICE_CALL("BAR1MemoryInfo", device, ON_GPU);
    REQUIRE(memory != NULL);
    return three(&call, "BAR1MemoryInfo", &memory->bar1Total, &memory->bar1Used, &memory->bar1Free);
}

#if SINCE(535)
nvmlReturn_t nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t device, nvmlMemory_v2_t *memory)
{
    DEVICE_CALL("MemoryInfo_v2", device, ON_GPU | ON_MIG);
    REQUIRE(memory != NULL);
    if (memory->version != nvmlMemory_v2)
        return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    if (call.mig == NULL) {
        nvmlReturn_t r = three(&call, "MemoryInfo_v2", &memory->total, &memory->used, &memory->free);
        return r != NVML_SUCCESS ? r : answer_u64(&call, "MemoryInfo_v2", 3, &memory->reserved);
    }
    instance_memory(&call, &memory->total, &memory->used);
    memory->reserved = 0;
    memory->free = memory->total - memory->used;
    return NVML_SUCCESS;
}
#endif

/* ---- temperature, in its newer forms ---- */

#if SINCE(580)
nvmlReturn_t nvmlDeviceGetTemperatureV(nvmlDevice_t device, nvmlTemperature_t *temperature)
{
    DEVICE_CALL("TemperatureV", device, ON_GPU);
    REQUIRE(temperature != NULL);
    if (temperature->version != nvmlTemperature_v1)
        return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    char key[64];
    unsigned int value = 0;
    nvmlReturn_t r = answer_u32(&call, keyf(key, sizeof key, "Temperature[%u]", (unsigned)temperature->sensorType), 0, &value);
    if (r == NVML_SUCCESS)
        temperature->temperature = (int)value;
    return r;
}

nvmlReturn_t nvmlDeviceGetMarginTemperature(nvmlDevice_t device, nvmlMarginTemperature_t *margin)
{
    DEVICE_CALL("MarginTemperature", device, ON_GPU);
    REQUIRE(margin != NULL);
    if (margin->version != nvmlMarginTemperature_v1)
        return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    unsigned int value = 0;
    nvmlReturn_t r = answer_u32(&call, "MarginTemperature", 0, &value);
    if (r == NVML_SUCCESS)
        margin->marginTemperature = (int)value;
    return r;
}
#endif

/* ---- structures and pairs of their own form ---- */

nvmlReturn_t answer_members(const struct call *c, const char *key, void *out, const struct member *members, int n)
{
    for (int i = 0; i < n; i++) {
        unsigned long long value;
        nvmlReturn_t r = answer_u64(c, key, i, &value);
        if (r != NVML_SUCCESS)
            return r;
        unsigned char *at = (unsigned char *)out + members[i].offset;
        char digits[24] = {0};
        switch (members[i].size) {
        case 1:
            *at = (unsigned char)value;
            break;
        case 4:
            *(unsigned int *)at = (unsigned int)value;
            break;
        case 8:
            *(unsigned long long *)at = value;
            break;
        default:
            snprintf(digits, sizeof digits, "%llu", value);
            memcpy(at, digits, members[i].size);
        }
    }
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetEncoderStats(nvmlDevice_t device, unsigned int *sessions, unsigned int *fps, unsigned int *latency)
{
    DEVICE_CALL("EncoderStats", device, ON_GPU);
    REQUIRE(sessions != NULL && fps != NULL && latency != NULL);
    unsigned int *out[] = {sessions, fps, latency};
    nvmlReturn_t r = NVML_SUCCESS;
    for (int i = 0; i < 3 && r == NVML_SUCCESS; i++)
        r = answer_u32(&call, "EncoderStats", i, out[i]);
    return r;
}

#if SINCE(535)
nvmlReturn_t nvmlDeviceGetGspFirmwareVersion(nvmlDevice_t device, char *version)
{
    DEVICE_CALL("GspFirmwareVersion", device, ON_GPU);
    return answer_text(&call, "GspFirmwareVersion", version, NVML_GSP_FIRMWARE_VERSION_BUF_SIZE);
}
#endif

#if SINCE(580)
nvmlReturn_t nvmlDeviceGetDramEncryptionMode(nvmlDevice_t device, nvmlDramEncryptionInfo_t *current,
                                             nvmlDramEncryptionInfo_t *pending)
{
    DEVICE_CALL("DramEncryptionMode", device, ON_GPU);
    REQUIRE(current != NULL && pending != NULL);
    unsigned int value[2];
    for (int i = 0; i < 2; i++) {
        nvmlReturn_t r = answer_u32(&call, "DramEncryptionMode", i, &value[i]);
        if (r != NVML_SUCCESS)
            return r;
    }
    current->encryptionState = (nvmlEnableState_t)value[0];
    pending->encryptionState = (nvmlEnableState_t)value[1];
    return NVML_SUCCESS;
}
#endif

/* ---- the NVSwitch fabric ---- */

#if SINCE(535)
struct fabric {
    unsigned int state, status, clique, health_mask, health_summary, cluster;
};

static nvmlReturn_t read_fabric(const struct call *call, struct fabric *f)
{
    unsigned int *out[] = {&f->state, &f->status, &f->clique, &f->health_mask, &f->health_summary, &f->cluster};
    nvmlReturn_t r = NVML_SUCCESS;
    for (int i = 0; i < 6 && r == NVML_SUCCESS; i++)
        r = answer_u32(call, "GpuFabricInfo", i, out[i]);
    return r;
}

#define FILL_FABRIC(info, f)                      \
    do {                                          \
        memset((info)->clusterUuid, 0, sizeof(info)->clusterUuid); \
        (info)->clusterUuid[0] = (unsigned char)(f).cluster;       \
        (info)->state = (nvmlGpuFabricState_t)(f).state;           \
        (info)->status = (nvmlReturn_t)(f).status;                 \
        (info)->cliqueId = (f).clique;                             \
    } while (0)

nvmlReturn_t nvmlDeviceGetGpuFabricInfo(nvmlDevice_t device, nvmlGpuFabricInfo_t *info)
{
    DEVICE_CALL("GpuFabricInfo", device, ON_GPU);
    REQUIRE(info != NULL);
    struct fabric f;
    nvmlReturn_t r = read_fabric(&call, &f);
    if (r == NVML_SUCCESS)
        FILL_FABRIC(info, f);
    return r;
}
#endif

#if SINCE(580)
nvmlReturn_t nvmlDeviceGetGpuFabricInfoV(nvmlDevice_t device, nvmlGpuFabricInfoV_t *info)
{
    DEVICE_CALL("GpuFabricInfoV", device, ON_GPU);
    REQUIRE(info != NULL);
    if (info->version != nvmlGpuFabricInfo_v2 && info->version != nvmlGpuFabricInfo_v3)
        return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    struct fabric f;
    nvmlReturn_t r = read_fabric(&call, &f);
    if (r != NVML_SUCCESS)
        return r;
    FILL_FABRIC(info, f);
    info->healthMask = f.health_mask;
    if (info->version == nvmlGpuFabricInfo_v3)
        info->healthSummary = (unsigned char)f.health_summary;
    return NVML_SUCCESS;
}
#endif
