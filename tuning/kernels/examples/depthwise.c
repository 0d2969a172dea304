/* Depthwise convolution, NCHW, float32, square kernels, stride 1 or 2, with or without bias.
 *
 * A plane is copied once into a padded buffer on the stack (split by column phase where the stride is 2), so
 * that every read after that is a plain vector and no border is a special case. Some output rows are computed
 * together: they share what they read. The last vector of a row overlaps the one before instead of being cut.
 */
#include <string.h>

#include "opatlas_operator.h"

#define C IN0_DIM1
#define H IN0_DIM2
#define W IN0_DIM3
#define OH OUT0_DIM2
#define OW OUT0_DIM3
#define K IN1_DIM2
#define S ATTR_STRIDES_0
#define TOP ATTR_PADS_0
#define LEFT ATTR_PADS_1
#define PLANES (IN0_DIM0 * C)

#if defined(__AVX512F__) && OW >= 14
#define V 16
#elif OW >= 8
#define V 8
#else
#define V 4
#endif
#define R (K == 7 && OH % 7 == 0 ? 7 : 4)          /* output rows computed together */
#define PHASE (OW + (K - 1) / S + V)               /* columns of one phase */
#define LINE (PHASE * S)                           /* floats of a padded row */
#define HEIGHT ((OH + R - 1) / R * R * S + K - 1)  /* padded rows */
#define STEPS ((OW + V - 1) / V)
#define TASK_PLANES (OH * OW >= 4096 ? 1 : 4096 / (OH * OW))
#define TASKS ((PLANES + TASK_PLANES - 1) / TASK_PLANES)

typedef float vec __attribute__((vector_size(V * 4)));
typedef float loose __attribute__((vector_size(V * 4), aligned(4), may_alias));

static inline void fill(float* padded, const float* x) {
  for (int y = 0; y < H && y + TOP < HEIGHT; y++) {
    float* line = padded + (y + TOP) * LINE;
    if (S == 1)
      memcpy(line + LEFT, x + y * W, (W < LINE - LEFT ? W : LINE - LEFT) * sizeof(float));
    else
      for (int i = 0; i < W && (i + LEFT) / S < PHASE; i++)
        line[(i + LEFT) % S * PHASE + (i + LEFT) / S] = x[y * W + i];
  }
}

static void plane(float* padded, const float* x, const float* w, float bias, float* out) {
  fill(padded, x);
  for (int y = 0; y < OH; y += R)
    for (int step = 0; step < STEPS; step++) {
      int at = OW >= V && step == STEPS - 1 ? OW - V : step * V;
      vec sum[R];
#pragma GCC unroll 8
      for (int r = 0; r < R; r++) sum[r] = (vec){0} + bias;
#pragma GCC unroll 16
      for (int line = 0; line < (R - 1) * S + K; line++) {
        const float* from = padded + (y * S + line) * LINE + at;
#pragma GCC unroll 8
        for (int k = 0; k < K; k++) {
          vec v = *(const loose*)(from + k % S * PHASE + k / S);
#pragma GCC unroll 8
          for (int r = 0; r < R; r++)
            if (line >= r * S && line < r * S + K) sum[r] += v * w[(line - r * S) * K + k];
        }
      }
      for (int r = 0; r < R && y + r < OH; r++)
        if (OW >= V)
          *(loose*)(out + (y + r) * OW + at) = sum[r];
        else
          memcpy(out + (y + r) * OW, &sum[r], OW * sizeof(float));
    }
}

typedef struct {
  const float *x, *w, *bias;
  float* y;
} job;

static int some_planes(int32_t task, int32_t tasks, void* argument) {
  const job* j = argument;
  float padded[HEIGHT * LINE + V] __attribute__((aligned(64)));
  int64_t first = (int64_t)task * TASK_PLANES;
  int64_t last = first + TASK_PLANES < PLANES ? first + TASK_PLANES : PLANES;
  (void)tasks;
  memset(padded, 0, sizeof padded); /* the borders stay zero for all planes */
  for (int64_t p = first; p < last; p++)
    plane(padded, j->x + p * H * W, j->w + p % C * K * K, j->bias ? j->bias[p % C] : 0.0f, j->y + p * OH * OW);
  return 0;
}

int opatlas_run(const opatlas_tensor* tensors, int32_t n, const opatlas_threads* threads, void* state) {
  job j = {.x = tensors[0].data, .w = tensors[1].data, .y = tensors[OPATLAS_INPUTS].data};
  (void)n, (void)state;
#if OPATLAS_INPUTS > 2
  j.bias = tensors[2].data;
#endif
  if (threads->count > 1 && TASKS > 1) return threads->parallel_for(threads->pool, some_planes, &j, TASKS);
  for (int32_t task = 0; task < TASKS; task++) some_planes(task, TASKS, &j);
  return 0;
}
