/* Softmax over the last axis, dense float32: one read and one write of every row.
 *
 * exp is a polynomial of degree 6 after reduction by ln 2 (relative error below 2e-7). A row that fits the
 * vector registers is never read twice; a longer one stays in the first-level cache between its passes. Rows
 * are shared among the pool's threads in chunks, small inputs are done by the caller alone.
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
typedef int32_t ivec __attribute__((vector_size(V * 4)));

static inline vec all(float x) { return (vec){0} + x; }
#if V == 16
static inline vec larger(vec a, vec b) { return (vec)_mm512_max_ps((__m512)a, (__m512)b); }
static inline vec kept_unless_less(vec v, vec x, vec low) {
  return (vec)_mm512_maskz_mov_ps(_mm512_cmp_ps_mask((__m512)x, (__m512)low, _CMP_NLT_UQ), (__m512)v);
}
#else
static inline vec larger(vec a, vec b) { return (vec)_mm256_max_ps((__m256)a, (__m256)b); }
static inline vec kept_unless_less(vec v, vec x, vec low) {
  return (vec)_mm256_and_ps((__m256)v, _mm256_cmp_ps((__m256)x, (__m256)low, _CMP_NLT_UQ));
}
#endif

/* exp(x) for x up to 0; exactly 0 below -87; a NaN stays one (max gives its second operand then). */
static inline vec exp_negative(vec x) {
  vec low = all(-87.0f), y = larger(low, x);
  vec shifted = y * 1.44269504f + 12582912.0f; /* the integer nearest, in the last bits */
  vec n = shifted - 12582912.0f;
  vec r = y - n * 0.693359375f;
  r = r - n * -2.12194440e-4f;
  vec p = all(1.9875691500e-4f);
  p = p * r + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  p = p * r * r + r + 1.0f;
  vec scale = (vec)(((ivec)shifted << 23) + (127 << 23)); /* what is above the low bits falls off */
  return kept_unless_less(p * scale, x, low);
}

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
  float m = v[0];
  for (int i = 1; i < V; i++) m = v[i] > m ? v[i] : m;
  return m;
}

static inline float total(vec v) {
  float lanes[V];
  memcpy(lanes, &v, sizeof v);
  for (int step = V / 2; step; step /= 2)
    for (int i = 0; i < step; i++) lanes[i] += lanes[i + step];
  return lanes[0];
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
