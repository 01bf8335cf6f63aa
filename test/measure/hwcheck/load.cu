// Keeps every multiprocessor of the GPU busy for a share of each period and prints when and for how long.
// Arguments: duty (0 to 1), period and length in seconds. Each line: Unix time of the start, seconds.
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <thread>

#define MUST(call)                                                                      \
  do {                                                                                  \
    cudaError_t code = (call);                                                          \
    if (code != cudaSuccess) {                                                          \
      fprintf(stderr, "%s: %s\n", #call, cudaGetErrorString(code));                     \
      exit(1);                                                                          \
    }                                                                                   \
  } while (0)

__device__ unsigned long long nanoseconds() {
  unsigned long long t;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(t));
  return t;
}

__global__ void spin(unsigned long long length) {
  unsigned long long begin = nanoseconds();
  while (nanoseconds() - begin < length) {
  }
}

int main(int argc, char **argv) {
  if (argc != 4) {
    fprintf(stderr, "usage: %s duty period length\n", argv[0]);
    return 2;
  }
  double duty = atof(argv[1]), period = atof(argv[2]), length = atof(argv[3]);
  cudaDeviceProp gpu;
  MUST(cudaGetDeviceProperties(&gpu, 0));
  MUST(cudaSetDeviceFlags(cudaDeviceScheduleBlockingSync));
  cudaEvent_t first, last;
  MUST(cudaEventCreate(&first));
  MUST(cudaEventCreate(&last));
  // One block per multiprocessor always fits, so all of them spin at once and end together.
  spin<<<gpu.multiProcessorCount, 256>>>(1000);
  MUST(cudaDeviceSynchronize());

  using clock = std::chrono::steady_clock;
  auto begin = clock::now(), next = begin;
  while (std::chrono::duration<double>(clock::now() - begin).count() < length) {
    double at = std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
    MUST(cudaEventRecord(first));
    spin<<<gpu.multiProcessorCount, 256>>>((unsigned long long)(duty * period * 1e9));
    MUST(cudaEventRecord(last));
    MUST(cudaEventSynchronize(last));
    float milliseconds;
    MUST(cudaEventElapsedTime(&milliseconds, first, last));
    printf("%.6f %.6f\n", at, milliseconds / 1e3);
    fflush(stdout);
    next += std::chrono::duration_cast<clock::duration>(std::chrono::duration<double>(period));
    std::this_thread::sleep_until(next);
  }
  return 0;
}
