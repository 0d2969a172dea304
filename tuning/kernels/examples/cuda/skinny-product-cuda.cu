// A product with at most 8 rows: every weight is read once, by neighbours side by side, and the depth is
// split over the warps of a block, which add up in shared memory.
#include "opatlas_operator.h"

#define ROWS (IN0_SIZE / IN0_LAST1)
#define DEPTH IN0_LAST1
#define COLUMNS IN1_LAST1
#define WARPS 8
#define WIDE (COLUMNS % 4 == 0)

extern "C" __global__ __launch_bounds__(32 * WARPS) void skinny_product(const float* x, const float* w, float* y) {
  __shared__ float shared[WARPS][ROWS][32 * 4];
  const int lane = threadIdx.x, warp = threadIdx.y, column = (blockIdx.x * 32 + lane) * 4;
  float sums[ROWS][4] = {};
  if (column < COLUMNS) {
    for (int k = warp; k < DEPTH; k += WARPS) {
      const float* at = w + (int64_t)k * COLUMNS + column;
      float weights[4];
      if (WIDE) {
        const float4 four = *reinterpret_cast<const float4*>(at);
        weights[0] = four.x, weights[1] = four.y, weights[2] = four.z, weights[3] = four.w;
      } else {
#pragma unroll
        for (int i = 0; i < 4; i++) weights[i] = column + i < COLUMNS ? at[i] : 0;
      }
#pragma unroll
      for (int row = 0; row < ROWS; row++) {
        const float left = x[row * DEPTH + k];
#pragma unroll
        for (int i = 0; i < 4; i++) sums[row][i] += left * weights[i];
      }
    }
  }
#pragma unroll
  for (int row = 0; row < ROWS; row++)
#pragma unroll
    for (int i = 0; i < 4; i++) shared[warp][row][lane * 4 + i] = sums[row][i];
  __syncthreads();
  for (int place = warp * 32 + lane; place < ROWS * 128; place += 32 * WARPS) {
    const int row = place / 128, i = place % 128, to = blockIdx.x * 128 + i;
    float sum = 0;
#pragma unroll
    for (int part = 0; part < WARPS; part++) sum += shared[part][row][i];
    if (to < COLUMNS) y[(int64_t)row * COLUMNS + to] = sum;
  }
}
