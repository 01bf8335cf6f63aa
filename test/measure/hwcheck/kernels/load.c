/* Known loads for one GPU, by the CUDA driver alone: no toolkit is needed. PTX is the text of load.ptx.
 *
 *   load spin SECONDS DUTY PERIOD PHASE   keep every multiprocessor busy for DUTY of each PERIOD
 *   load memory SECONDS BYTES             allocate memory and do nothing
 *   load h2d|d2h|p2p SECONDS RATE         copy RATE bytes per second from or to the host, or to the second GPU
 *   load launch SECONDS                   launch empty kernels one by one
 *   load fault|trap SECONDS               write to an invalid address (XID 31), stop by a trap (XID 43)
 *
 * It prints its process ID ("pid N"), what it did ("burst UNIX-TIME SECONDS BYTES") and latencies of launches in
 * microseconds ("launch P50 P99 P99.9"). */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

extern const char ptx[]; /* from load.ptx */

typedef int (*function)(); /* arguments are declared at each call, as in cuda.h */

static void *cuda;

static function symbol(const char *name)
{
    function f = (function)dlsym(cuda, name);
    if (f == NULL) {
        fprintf(stderr, "libcuda.so.1 has no %s\n", name);
        exit(1);
    }
    return f;
}

#define CALL(name, type, ...) ((int (*) type)symbol(#name))(__VA_ARGS__)
#define MUST(name, type, ...)                                          \
    do {                                                               \
        int code = CALL(name, type, __VA_ARGS__);                      \
        if (code != 0) {                                               \
            fprintf(stderr, "%s: CUDA error %d\n", #name, code);       \
            exit(1);                                                   \
        }                                                              \
    } while (0)

static double now(clockid_t clock)
{
    struct timespec t;
    clock_gettime(clock, &t);
    return t.tv_sec + t.tv_nsec / 1e9;
}

static void sleep_until(double unix_time)
{
    double left = unix_time - now(CLOCK_REALTIME);
    if (left > 0)
        usleep((useconds_t)(left * 1e6));
}

static void synchronize(void) { MUST(cuCtxSynchronize, (void)); }

static void launch(const char *kernel, unsigned blocks, unsigned threads, unsigned long long argument)
{
    static void *module;
    void *f, *arguments[] = {&argument};
    if (module == NULL)
        MUST(cuModuleLoadData, (void **, const void *), &module, ptx);
    MUST(cuModuleGetFunction, (void **, void *, const char *), &f, module, kernel);
    MUST(cuLaunchKernel,
         (void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **, void **), f, blocks,
         1, 1, threads, 1, 1, 0, NULL, arguments, NULL);
}

static unsigned long long allocate(size_t bytes)
{
    unsigned long long address;
    MUST(cuMemAlloc_v2, (unsigned long long *, size_t), &address, bytes);
    return address;
}

static void burst(double at, double begin, double bytes)
{
    printf("burst %.6f %.6f %.0f\n", at, now(CLOCK_MONOTONIC) - begin, bytes);
    fflush(stdout);
}

static int by_value(const void *a, const void *b)
{
    double d = *(const double *)a - *(const double *)b;
    return d < 0 ? -1 : d > 0;
}

static void open_device(int index, int *device, void **context)
{
    MUST(cuDeviceGet, (int *, int), device, index);
    MUST(cuDevicePrimaryCtxRetain, (void **, int), context, *device);
    MUST(cuCtxSetCurrent, (void *), *context);
}

int main(int argc, char **argv)
{
    enum { CHUNK = 64 << 20, LAUNCHES = 1 << 20 };
    const char *mode = argc > 2 ? argv[1] : "";
    double seconds = argc > 2 ? atof(argv[2]) : 0, x[3] = {0};
    for (int i = 0; i < 3 && i + 3 < argc; i++)
        x[i] = atof(argv[i + 3]);
    if ((cuda = dlopen("libcuda.so.1", RTLD_NOW)) == NULL) {
        fprintf(stderr, "%s\n", dlerror());
        return 1;
    }
    int device, peer, processors;
    void *context, *other = NULL;
    MUST(cuInit, (unsigned), 0);
    open_device(0, &device, &context);
    MUST(cuDeviceGetAttribute, (int *, int, int), &processors, 16 /* CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT */, device);
    printf("pid %d\n", getpid());
    double end = now(CLOCK_MONOTONIC) + seconds;

    if (strcmp(mode, "spin") == 0) {
        launch("spin", processors, 256, 1000);
        synchronize();
        for (double next = (long long)now(CLOCK_REALTIME) + 1 + x[2]; now(CLOCK_MONOTONIC) < end; next += x[1]) {
            sleep_until(next);
            double at = now(CLOCK_REALTIME), begin = now(CLOCK_MONOTONIC);
            launch("spin", processors, 256, (unsigned long long)(x[0] * x[1] * 1e9));
            synchronize();
            burst(at, begin, 0);
        }
    } else if (strcmp(mode, "memory") == 0) {
        allocate((size_t)x[0]);
        burst(now(CLOCK_REALTIME), now(CLOCK_MONOTONIC), x[0]);
        sleep((unsigned)seconds);
    } else if (strcmp(mode, "h2d") == 0 || strcmp(mode, "d2h") == 0 || strcmp(mode, "p2p") == 0) {
        void *host = NULL;
        unsigned long long there = allocate(CHUNK), remote = 0;
        if (mode[0] == 'p') {
            open_device(1, &peer, &other);
            remote = allocate(CHUNK);
            MUST(cuCtxSetCurrent, (void *), context);
            MUST(cuCtxEnablePeerAccess, (void *, unsigned), other, 0);
        } else {
            MUST(cuMemAllocHost_v2, (void **, size_t), &host, CHUNK);
            memset(host, 1, CHUNK);
        }
        for (double next = now(CLOCK_REALTIME); now(CLOCK_MONOTONIC) < end; next += CHUNK / x[0]) {
            sleep_until(next);
            double at = now(CLOCK_REALTIME), begin = now(CLOCK_MONOTONIC);
            if (mode[0] == 'h')
                MUST(cuMemcpyHtoD_v2, (unsigned long long, const void *, size_t), there, host, CHUNK);
            else if (mode[0] == 'd')
                MUST(cuMemcpyDtoH_v2, (void *, unsigned long long, size_t), host, there, CHUNK);
            else
                MUST(cuMemcpyPeer, (unsigned long long, void *, unsigned long long, void *, size_t), remote, other, there,
                     context, CHUNK);
            synchronize();
            burst(at, begin, CHUNK);
        }
    } else if (strcmp(mode, "launch") == 0) {
        double *took = malloc(LAUNCHES * sizeof *took);
        int n = 0;
        launch("nothing", 1, 1, 0);
        synchronize();
        burst(now(CLOCK_REALTIME), now(CLOCK_MONOTONIC), 0);
        for (; n < LAUNCHES && now(CLOCK_MONOTONIC) < end; n++) {
            double begin = now(CLOCK_MONOTONIC);
            launch("nothing", 1, 1, 0);
            synchronize();
            took[n] = (now(CLOCK_MONOTONIC) - begin) * 1e6;
            usleep(100);
        }
        qsort(took, n, sizeof *took, by_value);
        if (n > 0)
            printf("launch %.2f %.2f %.2f\n", took[n / 2], took[(int)(n * 0.99)], took[(int)(n * 0.999)]);
    } else if (strcmp(mode, "fault") == 0 || strcmp(mode, "trap") == 0) {
        launch(mode[0] == 'f' ? "fault" : "stop", 1, 1, 0x10);
        burst(now(CLOCK_REALTIME), now(CLOCK_MONOTONIC), 0);
        int code = CALL(cuCtxSynchronize, (void));
        if (code == 0)
            fprintf(stderr, "the kernel did not fail\n");
        return code == 0;
    } else {
        fprintf(stderr, "usage: load MODE SECONDS [ARGUMENT...]\n");
        return 2;
    }
    return 0;
}
