/*
 * A stand-in for NVIDIA's management library: the values of its calls come from a scenario instead of
 * from GPUs. Struct layouts and prototypes come from NVIDIA's own nvml.h (shipped with go-nvml), so a
 * mismatch does not compile.
 *
 *   FAKENVML_SCENARIO  path of the flat scenario, compiled by internal/standin/scenario
 *   FAKENVML_CONTROL   path of the control file: the clock, and the counters of calls
 *   FAKENVML_DEV       directory of files nvidiactl and nvidiaN (N: minor number), which a session has open; not set: none
 *
 * They are read again whenever a session begins, so that one process may play several scenarios, one
 * after the other. Sessions and scenarios are never freed: a call that hangs may outlive its session.
 *
 * SYMBOLS is the driver branch whose set of functions is exported (470, 535, 580, 595, 9999): what a
 * branch lacks is absent from the symbol table, as in the real library. Which branch has what was read
 * from the headers of NVML 11.1 to 13.4; field and metric ids end where those headers end.
 */
#ifndef FAKENVML_H
#define FAKENVML_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The prototypes of the header decide what is exported; everything else stays hidden (-fvisibility=hidden). */
#define NVML_NO_UNVERSIONED_FUNC_DEFS
#pragma GCC visibility push(default)
#include <nvml.h>
#pragma GCC visibility pop

#ifndef SYMBOLS
#define SYMBOLS 9999
#endif
#define SINCE(branch) (SYMBOLS >= (branch))

#define MAX_GPUS 16
#define MAX_GI 16
#define MAX_CI 8
#define MAX_COMPONENTS 12
#define MAX_MIG_DEVICES 8
#define NONE (-1)
#define FOREVER INT64_MAX
#define SECOND 1000000000LL

/* ---- the flat scenario (scenario.c) ---- */

enum variable {
    VAR_ONE,           /* a constant */
    VAR_T,             /* seconds since the driver was loaded */
    VAR_BUSY,          /* busy seconds since then */
    VAR_MEMBUSY,       /* seconds since then in which memory was read or written */
    VAR_UTIL,          /* busy part of the driver's last window, 0 to 1 */
    VAR_MEMUTIL,       /* likewise, of memory */
    VAR_ACTIVE,        /* 1 if the last window was busy at all */
    VAR_POWER,         /* mW, mean of the last second */
    VAR_POWER_INSTANT, /* mW, now */
    VAR_ENERGY,        /* mJ since the driver was loaded */
    VAR_PROCESS_MEMORY, /* bytes of processes and loads */
    VAR_TEMPERATURE    /* degrees Celsius, after the load of the last ten seconds */
};

struct term {
    double factor;
    enum variable variable;
};

enum component_kind { COMPONENT_TEXT, COMPONENT_EXACT, COMPONENT_SUM };

struct component {
    enum component_kind kind;
    const char *text;
    uint64_t exact;
    struct term *terms;
    int nterms;
    double modulus; /* 0: none */
};

#define CODE_UNTOUCHED (-2) /* a field value that the driver leaves as it was */

/* One answer, from a time on. Answers to one key form a chain, oldest first. */
struct answer {
    int64_t at;
    int code;
    int type; /* nvmlValueType_t of a field value */
    int ncomponents;
    struct component components[MAX_COMPONENTS];
    struct answer *next;
};

struct demand {
    unsigned pid;
    int kind; /* 0 compute, 1 graphics, 2 MPS */
    int gi, ci;
    uint64_t memory;
    bool memory_unknown, listed;
    int64_t on, period, phase, from, to;
    double dram;
};

struct profile {
    char name[32];
    unsigned number, id, slices, memory_mib, sms, count, ce, dec, enc, jpg, ofa;
};

struct mig_device {
    int gi, ci, profile, start, size, ci_slices, index;
    char uuid[80];
};

struct layout {
    int64_t at;
    bool current, pending;
    int slices; /* compute slices of the GPU */
    int ndevices;
    struct mig_device devices[MAX_MIG_DEVICES];
};

enum fault_kind { FAULT_LOSE, FAULT_RESET, FAULT_RESTORE, FAULT_REMOVE, FAULT_UNBIND, FAULT_BIND };
struct fault {
    int64_t at;
    enum fault_kind kind;
};

struct stall {
    int64_t at;
    const char *function;
    int64_t delay; /* FOREVER: hangs until the GPU is restored */
};

struct event {
    int64_t at;
    int gpu;
    uint64_t type, data;
    unsigned gi, ci;
};

enum driver_kind { DRIVER_LOAD, DRIVER_UNLOAD, DRIVER_MISMATCH, DRIVER_REPLACE };
struct driver_step {
    int64_t at;
    enum driver_kind kind;
};

struct gpu {
    int index;
    char uuid[80];
    unsigned domain, bus, device, minor;
    int64_t ring_period, window;
    unsigned ring_entries, ring_sizing;
    bool ring_boot_clock, ring_zeros, ring_slots, ring_stops, ring_own_mean;
    double idle_mw, busy_mw, idle_celsius, busy_celsius;
    struct demand *demands;
    int ndemands;
    struct profile *profiles;
    int nprofiles;
    struct layout *layouts;
    int nlayouts;
    struct fault *faults;
    int nfaults;
    struct stall *stalls;
    int nstalls;
    struct cumulative *cumulative;
    struct accounts *accounts;
};

struct scenario {
    struct gpu gpus[MAX_GPUS];
    int ngpus;
    struct stall *stalls; /* of the calls that concern no GPU */
    int nstalls;
    struct event *events;
    int nevents;
    struct driver_step *driver;
    int ndriver;
    struct answer_key *keys;
    int nkeys;
    int *index; /* hash table: positions in keys, plus one */
    int nindex;
};

#define SYSTEM NONE

struct scenario *scenario_load(const char *path);
const struct answer *scenario_answer(const struct scenario *s, int owner, const char *key, int64_t now);

/* ---- the clock and the control file (control.c) ---- */

void control_open(void);
int64_t clock_now(void);         /* nanoseconds of the scenario */
bool clock_stepped(void);
int64_t clock_loaded_at(void);   /* when this process mapped the library */
int64_t clock_realtime_us(int64_t at);
void clock_pause(int64_t ns);    /* sleep of real time */
void control_count(const char *function, int gpu);
int64_t processor_time(void); /* of this thread */
void control_processor(const int64_t *since);
void control_overlap(void);
void control_session(int delta);
void control_hanging(int delta);

/* ---- what a GPU is doing (model.c) ---- */

/* Integrals over time, in nanoseconds. Under MIG an instance counts with its share of the GPU. */
struct sums {
    double busy, dram, gi[MAX_GI], ci[MAX_GI][MAX_CI];
};

void model_integrate(const struct gpu *c, int64_t t0, int64_t t1, struct sums *out, double *share);
void model_since_load(const struct scenario *s, const struct gpu *c, int64_t now, struct sums *out);
double model_utilization(const struct gpu *c, int64_t now, int64_t window, double *dram);
const struct layout *model_layout(const struct gpu *c, int64_t now);
bool model_alive(const struct gpu *c, const struct demand *d, int64_t now);
int64_t model_loaded_since(const struct scenario *s, int64_t now);

/* The time for which a sum is evaluated; the caller may set the last two members (GPM). */
struct moment {
    const struct scenario *scenario;
    const struct gpu *gpu;
    int64_t now;
    bool windowed; /* util and busy are given */
    double util, busy_seconds;
};
double model_value(const struct moment *m, const struct component *c);

/* ---- sessions, handles, and the frame of every call (session.c) ---- */

struct session {
    const struct scenario *scenario;
    int64_t began;
    int visible[MAX_GPUS];
    int nvisible;
    struct handle *handles;
    int nhandles;
};

struct handle {
    const struct session *session;
    const struct gpu *gpu;
    bool mig;
    const struct layout *layout; /* the layout in which a MIG device exists */
    int device;                  /* index in layout->devices */
};

/* A call under way. end_call runs when it goes out of scope. */
struct call {
    const struct session *session;
    const struct scenario *scenario;
    const struct handle *handle;
    const struct gpu *gpu;
    const struct layout *layout;
    const struct mig_device *mig;
    const char *key;
    int64_t now;
    bool in_flight;
};

#define ON_GPU 1
#define ON_MIG 2
nvmlReturn_t begin_call(struct call *c, const char *function, const char *key);
nvmlReturn_t begin_device_call(struct call *c, const char *function, const char *key, nvmlDevice_t device, int accepts);
void end_call(struct call *c);

/* The processor time of the function that it is in is added to the control file: the measurement of a program can leave
 * out what only the stand-in costs. */
#define MEASURED __attribute__((cleanup(control_processor), unused)) const int64_t measured_since_ = processor_time()

/* Every exported function begins with one of these. */
#define CALL(key)                                                   \
    MEASURED;                                                       \
    __attribute__((cleanup(end_call))) struct call call;            \
    do {                                                            \
        nvmlReturn_t begun_ = begin_call(&call, __func__, key);     \
        if (begun_ != NVML_SUCCESS)                                 \
            return begun_;                                          \
    } while (0)
#define DEVICE_CALL(key, device, accepts)                                             \
    MEASURED;                                                                         \
    __attribute__((cleanup(end_call))) struct call call;                              \
    do {                                                                              \
        nvmlReturn_t begun_ = begin_device_call(&call, __func__, key, device, accepts); \
        if (begun_ != NVML_SUCCESS)                                                   \
            return begun_;                                                            \
    } while (0)
#define REQUIRE(condition)                      \
    do {                                        \
        if (!(condition))                       \
            return NVML_ERROR_INVALID_ARGUMENT; \
    } while (0)

nvmlReturn_t gpu_state(const struct gpu *c, int64_t now);

/* Handles of the session. */
struct handle *session_gpu_handle(const struct session *s, int gpu);
struct handle *session_mig_handle(const struct session *s, const struct gpu *gpu, const struct layout *l, int device);
int mig_first_device(const struct layout *l, int gi);

/* Answers. Their numbers are evaluated at the time of the call. */
nvmlReturn_t answer_number(const struct call *c, const char *key, int component, double *out);
nvmlReturn_t answer_u64(const struct call *c, const char *key, int component, unsigned long long *out);
nvmlReturn_t answer_u32(const struct call *c, const char *key, int component, unsigned int *out);
nvmlReturn_t answer_text(const struct call *c, const char *key, char *out, unsigned int length);
nvmlReturn_t copy_text(const char *text, char *out, unsigned int length);
const char *keyf(char *buffer, size_t size, const char *format, ...) __attribute__((format(printf, 3, 4)));
uint64_t component_u64(const struct moment *m, const struct component *c);
struct moment moment_of(const struct call *c);

/* ---- getters whose value is one line of the scenario (calls.c) ---- */

#define TEXT(suffix)                                                                            \
    nvmlReturn_t nvmlDeviceGet##suffix(nvmlDevice_t device, char *text, unsigned int length)    \
    {                                                                                           \
        DEVICE_CALL(#suffix, device, ON_GPU);                                                   \
        return answer_text(&call, #suffix, text, length);                                       \
    }

/* What the driver gives as an int, an enum or an unsigned int is read as a number of 64 bits. */
#define NUMBER(suffix, type)                                                 \
    nvmlReturn_t nvmlDeviceGet##suffix(nvmlDevice_t device, type *out)       \
    {                                                                        \
        DEVICE_CALL(#suffix, device, ON_GPU);                                \
        REQUIRE(out != NULL);                                                \
        unsigned long long value;                                            \
        nvmlReturn_t r = answer_u64(&call, #suffix, 0, &value);              \
        if (r == NVML_SUCCESS)                                               \
            *out = (type)value;                                              \
        return r;                                                            \
    }

#define INDEXED(suffix, kind, type)                                                          \
    nvmlReturn_t nvmlDeviceGet##suffix(nvmlDevice_t device, kind which, type *out)           \
    {                                                                                        \
        DEVICE_CALL(#suffix, device, ON_GPU);                                                \
        REQUIRE(out != NULL);                                                                \
        char key[64];                                                                        \
        unsigned long long value;                                                            \
        nvmlReturn_t r = answer_u64(&call, keyf(key, sizeof key, #suffix "[%u]", (unsigned)which), 0, &value); \
        if (r == NVML_SUCCESS)                                                               \
            *out = (type)value;                                                              \
        return r;                                                                            \
    }

#define PAIR(suffix, first_type, second_type)                                                   \
    nvmlReturn_t nvmlDeviceGet##suffix(nvmlDevice_t device, first_type *first, second_type *second) \
    {                                                                                           \
        DEVICE_CALL(#suffix, device, ON_GPU);                                                   \
        REQUIRE(first != NULL && second != NULL);                                               \
        unsigned int a = 0, b = 0;                                                              \
        nvmlReturn_t r = answer_u32(&call, #suffix, 0, &a);                                     \
        if (r == NVML_SUCCESS)                                                                  \
            r = answer_u32(&call, #suffix, 1, &b);                                              \
        if (r == NVML_SUCCESS) {                                                                \
            *first = (first_type)a;                                                             \
            *second = (second_type)b;                                                           \
        }                                                                                       \
        return r;                                                                               \
    }

#define INDEXED_TEXT(suffix, kind)                                                                          \
    nvmlReturn_t nvmlDeviceGet##suffix(nvmlDevice_t device, kind which, char *text, unsigned int length)    \
    {                                                                                                       \
        DEVICE_CALL(#suffix, device, ON_GPU);                                                               \
        char key[64];                                                                                       \
        return answer_text(&call, keyf(key, sizeof key, #suffix "[%u]", (unsigned)which), text, length);    \
    }

/* A structure, of which the members are named that a scenario sets. An array of bytes holds the digits of a number. */
struct member {
    size_t offset, size;
};
#define MEMBER(type, name) {offsetof(type, name), sizeof(((type *)0)->name)}
nvmlReturn_t answer_members(const struct call *c, const char *key, void *out, const struct member *members, int n);
#define STRUCT(suffix, type, ...)                                                                           \
    nvmlReturn_t nvmlDeviceGet##suffix(nvmlDevice_t device, type *out)                                      \
    {                                                                                                       \
        DEVICE_CALL(#suffix, device, ON_GPU);                                                               \
        REQUIRE(out != NULL);                                                                               \
        static const struct member members[] = {__VA_ARGS__};                                               \
        return answer_members(&call, #suffix, out, members, (int)(sizeof members / sizeof *members));       \
    }

/* Utilization is not offered in MIG mode. */
#define NOT_UNDER_MIG                          \
    do {                                       \
        if (call.layout->current)              \
            return NVML_ERROR_NOT_SUPPORTED;   \
    } while (0)

#define ENGINE(suffix)                                                                                     \
    nvmlReturn_t nvmlDeviceGet##suffix(nvmlDevice_t device, unsigned int *utilization, unsigned int *period) \
    {                                                                                                      \
        DEVICE_CALL(#suffix, device, ON_GPU);                                                              \
        REQUIRE(utilization != NULL && period != NULL);                                                    \
        NOT_UNDER_MIG;                                                                                     \
        nvmlReturn_t r = answer_u32(&call, #suffix, 0, utilization);                                       \
        return r != NVML_SUCCESS ? r : answer_u32(&call, #suffix, 1, period);                              \
    }

#endif
