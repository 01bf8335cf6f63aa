/* Field values: many readings in one call, each with a return code of its own. */
#include "fakenvml.h"

#define FIELD_CODE(answer) ((answer)->code > 0 ? (nvmlReturn_t)(answer)->code : NVML_SUCCESS)

/* The first field that a driver branch does not have. */
#if SINCE(610)
#define FIELD_IDS NVML_FI_MAX
#elif SINCE(595)
#define FIELD_IDS 303
#elif SINCE(580)
#define FIELD_IDS 274
#elif SINCE(535)
#define FIELD_IDS 197
#else
#define FIELD_IDS 161
#endif

static void set_value(nvmlFieldValue_t *v, const struct answer *a, const struct moment *m)
{
    const struct component *c = &a->components[0];
    v->valueType = (nvmlValueType_t)a->type;
    switch (v->valueType) {
    case NVML_VALUE_TYPE_DOUBLE:
        v->value.dVal = model_value(m, c);
        break;
    case NVML_VALUE_TYPE_UNSIGNED_INT:
        v->value.uiVal = (unsigned int)component_u64(m, c);
        break;
    case NVML_VALUE_TYPE_UNSIGNED_LONG:
        v->value.ulVal = (unsigned long)component_u64(m, c);
        break;
    case NVML_VALUE_TYPE_SIGNED_LONG_LONG:
        v->value.sllVal = (long long)component_u64(m, c);
        break;
    case NVML_VALUE_TYPE_SIGNED_INT:
        v->value.siVal = (int)component_u64(m, c);
        break;
    case NVML_VALUE_TYPE_UNSIGNED_SHORT:
        v->value.usVal = (unsigned short)component_u64(m, c);
        break;
    default:
        v->value.ullVal = component_u64(m, c);
        break;
    }
}

nvmlReturn_t nvmlDeviceGetFieldValues(nvmlDevice_t device, int count, nvmlFieldValue_t *values)
{
    DEVICE_CALL("FieldValues", device, ON_GPU);
    REQUIRE(values != NULL && count > 0);
    struct moment m = moment_of(&call);
    unsigned int latency = 0;
    answer_u32(&call, "FieldLatency", 0, &latency);
    for (int i = 0; i < count; i++) {
        nvmlFieldValue_t *v = &values[i];
        char key[64];
        const struct answer *a = NULL;
        if (v->fieldId < FIELD_IDS) {
            /* The scope may be named; a line without one serves any scope. */
            a = scenario_answer(call.scenario, call.gpu->index,
                                keyf(key, sizeof key, "Field[%u,%u]", v->fieldId, v->scopeId), call.now);
            if (a == NULL)
                a = scenario_answer(call.scenario, call.gpu->index, keyf(key, sizeof key, "Field[%u]", v->fieldId), call.now);
        }
        if (a != NULL && a->code == CODE_UNTOUCHED)
            continue;
        v->timestamp = clock_realtime_us(call.now);
        v->latencyUsec = latency;
        v->nvmlReturn = a == NULL ? NVML_ERROR_NOT_SUPPORTED : FIELD_CODE(a);
        if (v->nvmlReturn == NVML_SUCCESS)
            set_value(v, a, &m);
    }
    return NVML_SUCCESS;
}
