// Softmax over the last axis, a block a row: the row is read once into registers, and written once.
#include "opatlas_operator.h"

#define THREADS 256
#define LENGTH IN0_LAST1
#define EACH ((LENGTH + THREADS - 1) / THREADS)

template <class Combine>
__device__ float over_block(float value, Combine combine, float* shared) {
  for (int step = 16; step; step /= 2) value = combine(value, __shfl_xor_sync(~0u, value, step));
  __syncthreads();  // nobody reads the last result any more
  if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32] = value;
  __syncthreads();
  value = shared[threadIdx.x % (THREADS / 32)];
  for (int step = THREADS / 64; step; step /= 2) value = combine(value, __shfl_xor_sync(~0u, value, step));
  return value;
}

extern "C" __global__ __launch_bounds__(THREADS) void softmax(const float* x, float* y) {
  __shared__ float shared[THREADS / 32];
  const float* row = x + (int64_t)blockIdx.x * LENGTH;
  float* out = y + (int64_t)blockIdx.x * LENGTH;
  float kept[EACH];
  float largest = -1.0f / 0.0f;
#pragma unroll
  for (int i = 0; i < EACH; i++) {
    int at = threadIdx.x + i * THREADS;
    kept[i] = at < LENGTH ? row[at] : -1.0f / 0.0f;
    largest = fmaxf(largest, kept[i]);
  }
  largest = over_block(largest, [](float a, float b) { return fmaxf(a, b); }, shared);
  float sum = 0;
#pragma unroll
  for (int i = 0; i < EACH; i++) {
    int at = threadIdx.x + i * THREADS;
    kept[i] = at < LENGTH ? expf(kept[i] - largest) : 0;
    sum += kept[i];
  }
  sum = over_block(sum, [](float a, float b) { return a + b; }, shared);
#pragma unroll
  for (int i = 0; i < EACH; i++) {
    int at = threadIdx.x + i * THREADS;
    if (at < LENGTH) out[at] = kept[i] / sum;
  }
}
