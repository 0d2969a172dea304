/* Softmax over the last axis, dense float32: one read and one write of every row.
 *
 * exp(x) is 2^(x * log2 e), with a polynomial of degree 6 for the fraction. A row that fits the vector
 * registers is never read twice; a longer one stays in the first-level cache between its passes. Rows are
 * shared among the pool's threads in chunks, small inputs are done by the caller alone.
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
#define WHOLE (D / V)
#define TAIL (D % V)
#define VECTORS (WHOLE + (TAIL != 0))
#define IN_REGISTERS (VECTORS <= (V == 16 ? 20 : 8))
#define CHUNK (D >= 8192 ? 1 : 8192 / D)
#define CHUNKS ((ROWS + CHUNK - 1) / CHUNK)

typedef float vec __attribute__((vector_size(V * 4)));
typedef float loose __attribute__((vector_size(V * 4), aligned(4), may_alias));

static inline vec all(float x) { return (vec){0} + x; }
/* 2 to the power of f, for f from -1/2 to 1/2. */
static inline vec power(vec f) {
  vec p = all(1.535336188e-4f);
  p = p * f + 1.339887440e-3f;
  p = p * f + 9.618437357e-3f;
  p = p * f + 5.550332471e-2f;
  p = p * f + 2.402264791e-1f;
  p = p * f + 6.931472029e-1f;
  return p * f + 1.0f;
}

/* exp(x) for x up to 0; what is too small for a float is 0; a NaN stays one (max gives its second operand). */
#if V == 16
static inline vec larger(vec a, vec b) { return (vec)_mm512_max_ps((__m512)a, (__m512)b); }
static inline vec exp_negative(vec x) {
  __m512 t = (__m512)larger(all(-200.0f), x * 1.44269504f);
  __m512 n = _mm512_roundscale_ps(t, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  return (vec)_mm512_scalef_ps((__m512)power((vec)(t - n)), n);
}
#else
static inline vec larger(vec a, vec b) { return (vec)_mm256_max_ps((__m256)a, (__m256)b); }
static inline vec exp_negative(vec x) {
  __m256 least = _mm256_set1_ps(-126.0f), t = _mm256_max_ps(least, (__m256)(x * 1.44269504f));
  __m256 n = _mm256_round_ps(t, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  __m256i exponent = _mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127));
  __m256 scale = _mm256_castsi256_ps(_mm256_slli_epi32(exponent, 23));
  __m256 y = (__m256)power((vec)(t - n)) * scale;
  return (vec)_mm256_andnot_ps(_mm256_cmp_ps(t, least, _CMP_EQ_OQ), y);
}
#endif

static inline vec load(const float* x, int i) {
  if (TAIL && i == WHOLE) {
    vec v = all(-INFINITY);
    memcpy(&v, x + i * V, TAIL * sizeof(float));
    return v;
  }
  return *(const loose*)(x + i * V);
}

static inline void store(float* y, int i, vec v) {
  if (TAIL && i == WHOLE)
    memcpy(y + i * V, &v, TAIL * sizeof(float));
  else
    *(loose*)(y + i * V) = v;
}

static inline float widest(vec v) {
#if V == 16
  return _mm512_reduce_max_ps((__m512)v);
#else
  __m128 m = _mm_max_ps(_mm256_castps256_ps128((__m256)v), _mm256_extractf128_ps((__m256)v, 1));
  m = _mm_max_ps(m, _mm_movehl_ps(m, m));
  return _mm_cvtss_f32(_mm_max_ss(m, _mm_movehdup_ps(m)));
#endif
}

static inline float total(vec v) {
#if V == 16
  return _mm512_reduce_add_ps((__m512)v);
#else
  __m128 s = _mm_add_ps(_mm256_castps256_ps128((__m256)v), _mm256_extractf128_ps((__m256)v, 1));
  s = _mm_add_ps(s, _mm_movehl_ps(s, s));
  return _mm_cvtss_f32(_mm_add_ss(s, _mm_movehdup_ps(s)));
#endif
}

static inline void row_in_registers(const float* x, float* y) {
#if IN_REGISTERS
  vec v[VECTORS], m = all(-INFINITY), s = all(0);
#pragma GCC unroll 32
  for (int i = 0; i < VECTORS; i++) v[i] = load(x, i);
#pragma GCC unroll 32
  for (int i = 0; i < VECTORS; i++) m = larger(m, v[i]);
  vec top = all(widest(m));
#pragma GCC unroll 32
  for (int i = 0; i < VECTORS; i++) s += v[i] = exp_negative(v[i] - top);
  vec scale = all(1.0f / total(s));
#pragma GCC unroll 32
  for (int i = 0; i < VECTORS; i++) store(y, i, v[i] * scale);
#endif
}

static inline void row_in_cache(const float* x, float* y) {
  vec m0 = all(-INFINITY), m1 = m0, s0 = all(0), s1 = s0;
  int i = 0;
  for (; i + 1 < VECTORS; i += 2) m0 = larger(m0, load(x, i)), m1 = larger(m1, load(x, i + 1));
  if (i < VECTORS) m0 = larger(m0, load(x, i));
  vec top = all(widest(larger(m0, m1)));
  for (i = 0; i + 1 < VECTORS; i += 2) {
    vec a = exp_negative(load(x, i) - top), b = exp_negative(load(x, i + 1) - top);
    store(y, i, a), store(y, i + 1, b);
    s0 += a, s1 += b;
  }
  if (i < VECTORS) {
    vec a = exp_negative(load(x, i) - top);
    store(y, i, a);
    s0 += a;
  }
  vec scale = all(1.0f / total(s0 + s1));
  for (i = 0; i < VECTORS; i++) store(y, i, load(y, i) * scale);
}

typedef struct {
  const float* x;
  float* y;
} job;

static int chunk(int32_t task, int32_t tasks, void* argument) {
  const job* j = argument;
  int64_t first = (int64_t)task * CHUNK, last = first + CHUNK < ROWS ? first + CHUNK : ROWS;
  (void)tasks;
  for (int64_t row = first; row < last; row++)
    if (IN_REGISTERS)
      row_in_registers(j->x + row * D, j->y + row * D);
    else
      row_in_cache(j->x + row * D, j->y + row * D);
  return 0;
}

int opatlas_run(const opatlas_tensor* tensors, int32_t n, const opatlas_threads* threads, void* state) {
  job j = {tensors[0].data, tensors[1].data};
  (void)n, (void)state;
  if (threads->count > 1 && IN0_SIZE > 4096 && CHUNKS > 1)
    return threads->parallel_for(threads->pool, chunk, &j, CHUNKS);
  for (int32_t task = 0; task < CHUNKS; task++) chunk(task, CHUNKS, &j);
  return 0;
}
