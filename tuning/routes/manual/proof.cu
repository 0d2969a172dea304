#include "opatlas_operator.h"

extern "C" __global__ void relu(const float* x, float* y) {
  const int64_t at = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
  if (at < IN0_SIZE) y[at] = x[at] > 0 ? x[at] : 0;
}
