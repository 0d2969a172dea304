/* A small dense product Y = A · B, float32, B constant: packed once into column panels by opatlas_prepare.
 *
 * A tile of MR rows by two vectors stays in registers over the whole depth; nothing is blocked for caches,
 * which is right as long as a panel fits the first two levels.
 */
#include <stdlib.h>
#include <string.h>

#include "opatlas_operator.h"

#ifdef __AVX512F__
#define V 16
#define MR 12
#else
#define V 8
#define MR 6
#endif
#define M IN0_DIM0
#define DEPTH IN0_DIM1
#define N OUT0_DIM1
#define NR (2 * V)
#define PANELS ((N + NR - 1) / NR)
#define TILES ((M + MR - 1) / MR)

typedef float vec __attribute__((vector_size(V * 4)));
typedef float loose __attribute__((vector_size(V * 4), aligned(4), may_alias));

typedef struct {
  const float *a, *panels;
  float* y;
} job;

int opatlas_prepare(const opatlas_tensor* constants, int32_t n, const opatlas_threads* threads, void** state) {
  const float* b = constants[0].data;
  float* packed = aligned_alloc(64, sizeof(float) * PANELS * DEPTH * NR);
  (void)n, (void)threads;
  if (!packed) return 1;
  for (int p = 0; p < PANELS; p++)
    for (int k = 0; k < DEPTH; k++)
      for (int i = 0; i < NR; i++) {
        int column = p * NR + i;
        packed[(p * DEPTH + k) * NR + i] = column < N ? b[k * N + column] : 0.0f;
      }
  *state = packed;
  return 0;
}

void opatlas_release(void* state) { free(state); }

static inline __attribute__((always_inline)) void tile(const job* j, int p, int first, int rows) {
  const float* panel = j->panels + (size_t)p * DEPTH * NR;
  vec s[MR][2];
  memset(s, 0, sizeof s);
  for (int k = 0; k < DEPTH; k++) {
    vec b0 = *(const vec*)(panel + k * NR), b1 = *(const vec*)(panel + k * NR + V);
#pragma GCC unroll 16
    for (int r = 0; r < MR; r++) {
      if (r >= rows) break;
      float a = j->a[(size_t)(first + r) * DEPTH + k];
      s[r][0] += b0 * a;
      s[r][1] += b1 * a;
    }
  }
  int columns = N - p * NR < NR ? N - p * NR : NR;
#pragma GCC unroll 16
  for (int r = 0; r < MR; r++) {
    if (r >= rows) break;
    float* y = j->y + (size_t)(first + r) * N + p * NR;
    if (columns == NR) {
      *(loose*)y = s[r][0];
      *(loose*)(y + V) = s[r][1];
    } else {
      memcpy(y, &s[r], columns * sizeof(float));
    }
  }
}

/* A task is a panel of columns: its part of B is read by one thread only. */
static int one_panel(int32_t task, int32_t tasks, void* argument) {
  const job* j = argument;
  (void)tasks;
  for (int t = 0; t < M / MR; t++) tile(j, task, t * MR, MR);
  if (M % MR) tile(j, task, M / MR * MR, M % MR);
  return 0;
}

/* A task is a tile of rows: for outputs with fewer panels than threads. */
static int one_tile(int32_t task, int32_t tasks, void* argument) {
  const job* j = argument;
  (void)tasks;
  for (int p = 0; p < PANELS; p++)
    if ((task + 1) * MR <= M)
      tile(j, p, task * MR, MR);
    else
      tile(j, p, task * MR, M % MR);
  return 0;
}

int opatlas_run(const opatlas_tensor* tensors, int32_t n, const opatlas_threads* threads, void* state) {
  job j = {tensors[0].data, state, tensors[2].data};
  (void)n;
  if (threads->count > 1 && (int64_t)M * N * DEPTH > 100000) {
    if (PANELS >= threads->count && PANELS % threads->count == 0)
      return threads->parallel_for(threads->pool, one_panel, &j, PANELS);
    return threads->parallel_for(threads->pool, one_tile, &j, TILES);
  }
  for (int32_t task = 0; task < PANELS; task++) one_panel(task, PANELS, &j);
  return 0;
}
