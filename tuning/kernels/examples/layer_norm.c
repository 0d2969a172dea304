/* Layer normalisation over the last axis, dense float32, with scale and optional bias, and with the mean and
 * the inverse deviation where they are asked for. Two passes for mean and variance (the row stays in the
 * first-level cache), one to write.
 */
#include <immintrin.h>
#include <math.h>
#include <string.h>

#include "opatlas_operator.h"

#ifdef __AVX512F__
#define V 16
#else
#define V 8
#endif
#define D IN0_LAST1
#define ROWS (IN0_SIZE / D)
#define WHOLE (D / V)       /* vectors of a row */
#define FOURS (WHOLE & ~3)   /* those that are read four at a time */
#define CHUNK (D >= 8192 ? 1 : 8192 / D)
#define CHUNKS ((ROWS + CHUNK - 1) / CHUNK)

typedef float vec __attribute__((vector_size(V * 4)));
typedef float loose __attribute__((vector_size(V * 4), aligned(4), may_alias));

static inline vec load(const float* x) { return *(const loose*)x; }

static inline float total(vec v) {
#if V == 16
  return _mm512_reduce_add_ps((__m512)v);
#else
  __m128 s = _mm_add_ps(_mm256_castps256_ps128((__m256)v), _mm256_extractf128_ps((__m256)v, 1));
  s = _mm_add_ps(s, _mm_movehl_ps(s, s));
  return _mm_cvtss_f32(_mm_add_ss(s, _mm_movehdup_ps(s)));
#endif
}

static inline float mean_of(const float* x) {
  vec s0 = {0}, s1 = s0, s2 = s0, s3 = s0;
  float rest = 0;
  for (int i = 0; i < FOURS; i += 4) {
    s0 += load(x + i * V), s1 += load(x + i * V + V);
    s2 += load(x + i * V + 2 * V), s3 += load(x + i * V + 3 * V);
  }
  for (int i = FOURS; i < WHOLE; i++) s0 += load(x + i * V);
  for (int k = WHOLE * V; k < D; k++) rest += x[k];
  return (total((s0 + s1) + (s2 + s3)) + rest) / D;
}

static inline vec square(vec d) { return d * d; }

static inline float variance_of(const float* x, float mean) {
  vec s0 = {0}, s1 = s0, s2 = s0, s3 = s0;
  float rest = 0;
  for (int i = 0; i < FOURS; i += 4) {
    s0 += square(load(x + i * V) - mean), s1 += square(load(x + i * V + V) - mean);
    s2 += square(load(x + i * V + 2 * V) - mean), s3 += square(load(x + i * V + 3 * V) - mean);
  }
  for (int i = FOURS; i < WHOLE; i++) s0 += square(load(x + i * V) - mean);
  for (int k = WHOLE * V; k < D; k++) rest += (x[k] - mean) * (x[k] - mean);
  return (total((s0 + s1) + (s2 + s3)) + rest) / D;
}

typedef struct {
  const float *x, *scale, *bias;
  float *y, *mean, *inverse;
} job;

static int chunk(int32_t task, int32_t tasks, void* argument) {
  const job* j = argument;
  int64_t first = (int64_t)task * CHUNK, last = first + CHUNK < ROWS ? first + CHUNK : ROWS;
  (void)tasks;
  for (int64_t row = first; row < last; row++) {
    const float* x = j->x + row * D;
    float* y = j->y + row * D;
    float mean = mean_of(x), inverse = 1.0f / sqrtf(variance_of(x, mean) + (float)ATTR_EPSILON);
    for (int i = 0; i < WHOLE; i++) {
      vec v = (load(x + i * V) - mean) * inverse * load(j->scale + i * V);
#if OPATLAS_INPUTS > 2
      v += load(j->bias + i * V);
#endif
      *(loose*)(y + i * V) = v;
    }
    for (int k = WHOLE * V; k < D; k++)
      y[k] = (x[k] - mean) * inverse * j->scale[k] + (j->bias ? j->bias[k] : 0.0f);
    if (j->mean) j->mean[row] = mean;
    if (j->inverse) j->inverse[row] = inverse;
  }
  return 0;
}

int opatlas_run(const opatlas_tensor* tensors, int32_t n, const opatlas_threads* threads, void* state) {
  const opatlas_tensor* out = tensors + OPATLAS_INPUTS;
  job j = {.x = tensors[0].data, .scale = tensors[1].data, .y = out[0].data};
  (void)n, (void)state;
#if OPATLAS_INPUTS > 2
  j.bias = tensors[2].data;
#endif
#if OPATLAS_OUTPUTS > 1
  j.mean = out[1].data;
#endif
#if OPATLAS_OUTPUTS > 2
  j.inverse = out[2].data;
#endif
  if (threads->count > 1 && IN0_SIZE > 8192 && CHUNKS > 1)
    return threads->parallel_for(threads->pool, chunk, &j, CHUNKS);
  for (int32_t task = 0; task < CHUNKS; task++) chunk(task, CHUNKS, &j);
  return 0;
}
