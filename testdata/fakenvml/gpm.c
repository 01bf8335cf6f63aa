/* GPM: a sample keeps the time and the sums; two samples make a period, over which the metrics are
 * evaluated. In the scenario a metric is a sum in which util is the busy part of that window. */
#include "fakenvml.h"

#if SINCE(535)
#include <stdlib.h>
#include <string.h>

/* The first metric that a driver branch does not have. */
#if SINCE(610)
#define METRIC_IDS NVML_GPM_METRIC_MAX
#elif SINCE(595)
#define METRIC_IDS 333
#elif SINCE(580)
#define METRIC_IDS 210
#else
#define METRIC_IDS 98
#endif

#define SAMPLE_MAGIC 0x47504d73u

struct sample {
    uint32_t magic;
    const struct session *session;
    const struct gpu *gpu; /* NULL: never taken */
    const struct layout *layout;
    int gi; /* NONE: the whole GPU */
    int ci; /* NONE: all of the GPU instance */
    int64_t at;
    double busy;
};

static struct sample *sample_of(nvmlGpmSample_t s)
{
    struct sample *sample = (struct sample *)s.handle;
    return sample != NULL && sample->magic == SAMPLE_MAGIC ? sample : NULL;
}

nvmlReturn_t nvmlGpmQueryDeviceSupport(nvmlDevice_t device, nvmlGpmSupport_t *support)
{
    DEVICE_CALL("GpmQueryDeviceSupport", device, ON_GPU | ON_MIG);
    REQUIRE(support != NULL);
    if (support->version != NVML_GPM_SUPPORT_VERSION)
        return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    return answer_u32(&call, "GpmQueryDeviceSupport", 0, &support->isSupportedDevice);
}

nvmlReturn_t nvmlGpmSampleAlloc(nvmlGpmSample_t *out)
{
    CALL("GpmSampleAlloc");
    REQUIRE(out != NULL);
    struct sample *s = calloc(1, sizeof *s);
    if (s == NULL)
        return NVML_ERROR_MEMORY;
    s->magic = SAMPLE_MAGIC;
    out->handle = (struct nvmlGpmSample_st *)s;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlGpmSampleFree(nvmlGpmSample_t sample)
{
    MEASURED;
    control_count(__func__, NONE);
    struct sample *s = sample_of(sample);
    REQUIRE(s != NULL);
    s->magic = 0;
    free(s);
    return NVML_SUCCESS;
}

static bool offered(const struct call *call)
{
    unsigned int supported = 0;
    return answer_u32(call, "GpmQueryDeviceSupport", 0, &supported) == NVML_SUCCESS && supported != 0;
}

static nvmlReturn_t take(const struct call *call, int gi, int ci, nvmlGpmSample_t sample)
{
    struct sample *s = sample_of(sample);
    REQUIRE(s != NULL && ci < MAX_CI);
    if (!offered(call))
        return NVML_ERROR_NOT_SUPPORTED;
    struct sums sums = {0};
    model_since_load(call->scenario, call->gpu, call->now, &sums);
    s->session = call->session;
    s->gpu = call->gpu;
    s->layout = call->layout;
    s->gi = gi;
    s->ci = ci;
    s->at = call->now;
    s->busy = gi < 0 ? sums.busy : ci < 0 ? sums.gi[gi] : sums.ci[gi][ci];
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlGpmSampleGet(nvmlDevice_t device, nvmlGpmSample_t sample)
{
    DEVICE_CALL("GpmSampleGet", device, ON_GPU | ON_MIG);
    return call.mig == NULL ? take(&call, NONE, NONE, sample) : take(&call, call.mig->gi, call.mig->ci, sample);
}

nvmlReturn_t nvmlGpmMigSampleGet(nvmlDevice_t device, unsigned int gi, nvmlGpmSample_t sample)
{
    DEVICE_CALL("GpmMigSampleGet", device, ON_GPU);
    if (!call.layout->current)
        return NVML_ERROR_NOT_SUPPORTED;
    REQUIRE(gi < MAX_GI && mig_first_device(call.layout, (int)gi) >= 0);
    return take(&call, (int)gi, NONE, sample);
}

nvmlReturn_t nvmlGpmMetricsGet(nvmlGpmMetricsGet_t *get)
{
    CALL("GpmMetricsGet");
    REQUIRE(get != NULL);
    if (get->version != NVML_GPM_METRICS_GET_VERSION)
        return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    const struct sample *a = sample_of(get->sample1), *b = sample_of(get->sample2);
    REQUIRE(a != NULL && b != NULL && a->gpu != NULL && get->numMetrics <= NVML_GPM_METRIC_MAX);
    /* Both from one session, one GPU, one instance of one layout, the older first. */
    REQUIRE(a->session == b->session && a->gpu == b->gpu && a->gi == b->gi && a->ci == b->ci);
    REQUIRE(a->layout == b->layout && a->at < b->at);
    call.gpu = b->gpu;
    struct moment m = {.scenario = call.scenario,
                       .gpu = b->gpu,
                       .now = b->at,
                       .windowed = true,
                       .util = (b->busy - a->busy) / (double)(b->at - a->at),
                       .busy_seconds = b->busy / SECOND};
    for (unsigned int i = 0; i < get->numMetrics; i++) {
        nvmlGpmMetric_t *metric = &get->metrics[i];
        char key[64];
        const struct answer *answer =
            metric->metricId >= METRIC_IDS
                ? NULL
                : scenario_answer(call.scenario, b->gpu->index, keyf(key, sizeof key, "Gpm[%u]", metric->metricId), b->at);
        metric->value = 0;
        metric->nvmlReturn = NVML_ERROR_NOT_SUPPORTED;
        if (answer != NULL && answer->code > 0)
            metric->nvmlReturn = (nvmlReturn_t)answer->code;
        if (answer == NULL || answer->code != 0 || answer->ncomponents == 0)
            continue;
        metric->nvmlReturn = NVML_SUCCESS;
        metric->value = model_value(&m, &answer->components[0]);
        metric->metricInfo.shortName = "metric";
        metric->metricInfo.longName = "A metric of the scenario";
        metric->metricInfo.unit = "";
    }
    return NVML_SUCCESS;
}
#endif
