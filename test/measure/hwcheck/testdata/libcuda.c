/* A CUDA driver without a GPU: what load.c calls, with the signatures of cuda.h. A kernel takes as long as its argument
 * says if its name is spin, and a kernel named fault or stop fails. */
#include <stdlib.h>
#include <string.h>
#include <time.h>

static unsigned long long left;
static int failed;

int cuInit(unsigned flags) { return (int)flags; }
int cuDeviceGet(int *device, int ordinal) { return (*device = ordinal) > 1; }
int cuDevicePrimaryCtxRetain(void **context, int device) { return (*context = (void *)(long)(device + 1)) == NULL; }
int cuCtxSetCurrent(void *context) { return context == NULL; }
int cuDeviceGetAttribute(int *value, int attribute, int device) { return (*value = 132) == 0 || attribute != 16 || device != 0; }
int cuModuleLoadData(void **module, const void *image) { return (*module = (void *)image, strstr(image, ".visible .entry spin(") == NULL); }
int cuModuleGetFunction(void **f, void *module, const char *name)
{
    return (*f = (void *)name) == NULL || strstr(module, name) == NULL;
}
int cuLaunchKernel(void *f, unsigned x, unsigned y, unsigned z, unsigned bx, unsigned by, unsigned bz, unsigned shared, void *stream,
                   void **arguments, void **extra)
{
    if (strcmp(f, "spin") == 0)
        left = *(unsigned long long *)arguments[0];
    failed = strcmp(f, "fault") == 0 || strcmp(f, "stop") == 0;
    return y != 1 || z != 1 || by != 1 || bz != 1 || shared != 0 || stream != NULL || extra != NULL || x * bx == 0;
}
int cuCtxSynchronize(void)
{
    struct timespec t = {(long)(left / 1000000000), (long)(left % 1000000000)};
    nanosleep(&t, NULL);
    left = 0;
    return failed ? 700 : 0;
}
int cuMemAlloc_v2(unsigned long long *address, size_t size) { return (*address = 0x7f0000000000) == 0 || size == 0; }
int cuMemAllocHost_v2(void **host, size_t size) { return (*host = malloc(size)) == NULL; }
int cuCtxEnablePeerAccess(void *peer, unsigned flags) { return peer == NULL || flags != 0; }
int cuMemcpyHtoD_v2(unsigned long long to, const void *from, size_t size) { return to == 0 || from == NULL || size == 0; }
int cuMemcpyDtoH_v2(void *to, unsigned long long from, size_t size) { return from == 0 || to == NULL || size == 0; }
int cuMemcpyPeer(unsigned long long to, void *at, unsigned long long from, void *context, size_t size)
{
    return to == 0 || at == context || from == 0 || size == 0;
}
