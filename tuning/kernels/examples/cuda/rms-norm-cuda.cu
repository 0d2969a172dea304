// RMSNormalization over the last axis, a block a row: the row stays in registers between its two uses.
#include "opatlas_operator.h"

#define THREADS 256
#define LENGTH IN0_LAST1
#define EACH ((LENGTH + THREADS - 1) / THREADS)

extern "C" __global__ __launch_bounds__(THREADS) void rms_norm(const float* x, const float* scale, float* y) {
  __shared__ float shared[THREADS / 32];
  const float* row = x + (int64_t)blockIdx.x * LENGTH;
  float* out = y + (int64_t)blockIdx.x * LENGTH;
  float kept[EACH];
  float sum = 0;
#pragma unroll
  for (int i = 0; i < EACH; i++) {
    int at = threadIdx.x + i * THREADS;
    kept[i] = at < LENGTH ? row[at] : 0;
    sum += kept[i] * kept[i];
  }
  for (int step = 16; step; step /= 2) sum += __shfl_xor_sync(~0u, sum, step);
  if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32] = sum;
  __syncthreads();
  sum = shared[threadIdx.x % (THREADS / 32)];
  for (int step = THREADS / 64; step; step /= 2) sum += __shfl_xor_sync(~0u, sum, step);
  const float factor = 1.0f / sqrtf(sum / LENGTH + (float)ATTR_EPSILON);
#pragma unroll
  for (int i = 0; i < EACH; i++) {
    int at = threadIdx.x + i * THREADS;
    if (at < LENGTH) out[at] = kept[i] * factor * scale[at];
  }
}
