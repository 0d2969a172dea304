/* Convolution of NCHW, float32, with constant windows of 3×3 or 5×5 and stride 1, by Winograd's minimal
 * filtering: F(4×4, 3×3), which makes a tile of outputs from 6×6 inputs with 36 multiplications instead of 144;
 * F(2×2, 5×5) with 36 instead of 100; and F(2×2, 3×3) with 16 instead of 36 where the transformed windows would
 * take longer to read than to multiply. A bias and a Relu after it cost nothing, a sum with another value of the
 * same shape a read of that.
 *
 * Source: A. Lavin, S. Gray, Fast Algorithms for Convolutional Neural Networks, CVPR 2016. The points are
 * 0, ±A, ±B and infinity; of F(2×2, 3×3) 0, ±1 and infinity.
 *
 * Where channels come out even it also reads and writes them in blocks of a vector (opatlas_blocks), for which
 * the transforms need no shuffles: a vector is the channels of one place.
 *
 * Tiles are numbered over all images, rows and columns. Where all windows fit into a core's cache, each task
 * takes some tiles from their inputs to their outputs. Else all tiles of a group are transformed, then each
 * point is one product of matrices, so that a window is read once, and then they are transformed back.
 */
#include <stdlib.h>
#include <string.h>

#include "opatlas_operator.h"

#define A 0.75f /* these two make no product below inexact, and lose half of what 1 and 2 do */
#define B 1.5f

#define C IN0_DIM1
#define H IN0_DIM2
#define W IN0_DIM3
#define F IN1_DIM0
#define R IN1_DIM2
#define OH OUT0_DIM2
#define OW OUT0_DIM3
#define TOP ATTR_PADS_0
#define LEFT ATTR_PADS_1
#define IS(OP) (!__builtin_strcmp(OPATLAS_OP, OP))
#define RELU (IS("Conv+Relu") || IS("Conv+Add+Relu"))
#define SUM (IS("Conv+Add") || IS("Conv+Add+Relu"))
#if OPATLAS_INPUTS > 2 && IN2_RANK == 1
#define BIAS 1
#else
#define BIAS 0
#endif

#ifdef __AVX512F__
#define V 16
#define MOST_TILES 14 /* with two vectors of output channels each: 28 of 32 registers */
#else
#define V 8
#define MOST_TILES 6 /* 12 of 16 registers */
#endif

/* F(2×2, 3×3) where that takes less, for each product of channels: by arithmetic (a place's direct products are
 * 18), or by reading the windows, which takes as long as so much arithmetic; of small windows it takes nothing. */
#define LARGER(a, b) ((a) > (b) ? (a) : (b))
#define TILES_OF(m) (IN0_DIM0 * ((OH + (m) - 1) / (m)) * ((OW + (m) - 1) / (m)))
#define READING (64 * C * F <= MOST_WINDOWS * 4 ? 1600 : 1400)
#define MOST_WINDOWS (10 << 16) /* floats that fit into a core's cache beside the rest */
#if V == 16 && R == 3 && 144 * C * F > (2 << 20) && \
    LARGER(72 * TILES_OF(4), READING) > LARGER(32 * TILES_OF(2), READING * 16 / 36)
#define SIDE 4
#else
#define SIDE 6 /* of a tile's inputs */
#endif
#define M (SIDE + 1 - R) /* of its outputs */
#define POINTS (SIDE * SIDE)
#define REST ((SIDE - 1) / M) /* tiles that the last one reaches into */
#define DOWN ((OH + M - 1) / M)
#define ACROSS ((OW + M - 1) / M)
#define TILES (IN0_DIM0 * DOWN * ACROSS)

#define WIDE (F > V ? 2 : 1) /* vectors of a panel of output channels */
#define PANEL (WIDE * V)
#define PANELS ((F + PANEL - 1) / PANEL)
#define MOST (WIDE == 2 ? MOST_TILES : 2 * MOST_TILES)
#define BLOCKS ((TILES + MOST - 1) / MOST)
#define T ((TILES + BLOCKS - 1) / BLOCKS) /* tiles of a block: evenly many */

#define WINDOWS (POINTS * C * PANELS * PANEL) /* floats */
#define TOGETHER (BLOCKS < 32 ? 1 : 2)        /* blocks of a task that takes them to their outputs */
#define FUSED (BLOCKS >= OPATLAS_THREADS && WINDOWS <= MOST_WINDOWS && POINTS * C * TOGETHER * T <= (5 << 15))
#define BUDGET (8 << 20) /* bytes of a group's transformed inputs and outputs */
#define FITTING (BUDGET / (POINTS * 4 * (C + PANELS * PANEL) * T))
#define GROUPS (FITTING < 1 ? BLOCKS : (BLOCKS + FITTING - 1) / FITTING)
#define GROUP (FUSED ? TOGETHER : (BLOCKS + GROUPS - 1) / GROUPS) /* blocks that lie beside each other */
#define TURNS ((BLOCKS + GROUP - 1) / GROUP)
#define HALVES (PANELS > 1 ? 2 : 1) /* tasks of a point */
#define PARTS (PANELS < 8 ? 8 / PANELS : 1) /* tasks of a panel's outputs */

/* From point to point of transformed tiles, never a multiple of 4096 bytes: what is written and read together
 * would lie in the same set of a cache. */
#define APART_OF(n) (((n) + 31) / 32 * 32 + 16)
#define APART APART_OF(GROUP * T * C)
/* In blocks: from a block of channels to the next, and from point to point. */
#define HAS_BLOCKS (C % V == 0 && F % V == 0)
#define BLOCK_STRIDE (GROUP * T * V + 16)
#define BLOCK_APART APART_OF(C / V * BLOCK_STRIDE)
#define INPUTS (HAS_BLOCKS && BLOCK_APART > APART ? BLOCK_APART : APART)
/* Vectors from point to point of the products: of a group's, or of one panel of a task's. */
#define MADE (FUSED ? GROUP * T * WIDE | 1 : PANELS * GROUP * T * WIDE | 1)
#define OWN (POINTS * INPUTS + POINTS * MADE * V)
#define SPLIT (C / V < 8 ? 8 / (C / V) : 1) /* tasks of a block of channels */
#define LINE ((M * (ACROSS + 2 * V) + 6 + V) / V * V)
#define WINDOW(panel, point) \
  ((size_t)(FUSED ? (panel) * POINTS + (point) : (point) * PANELS + (panel)) * C * PANEL)

typedef float vec __attribute__((vector_size(V * 4)));
typedef float loose __attribute__((vector_size(V * 4), aligned(4), may_alias));
typedef int32_t picks __attribute__((vector_size(V * 4)));

#if V == 16
#define EVEN ((picks){0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30})
#define LOW ((picks){0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23})
#else
#define EVEN ((picks){0, 2, 4, 6, 8, 10, 12, 14})
#define LOW ((picks){0, 8, 1, 9, 2, 10, 3, 11})
#endif
#define even(a, b) __builtin_shuffle(a, b, EVEN)
#define odd(a, b) __builtin_shuffle(a, b, EVEN + 1)
#define low(a, b) __builtin_shuffle(a, b, LOW)
#define high(a, b) __builtin_shuffle(a, b, LOW + V / 2)

typedef struct {
  float* windows; /* [C][PANEL] of each panel and point */
  float* inputs;  /* [POINTS][APART], [GROUP][C][T] of it: one group's; in blocks [C / V][BLOCK_STRIDE] */
  vec* made;      /* [POINTS][MADE], [PANELS][GROUP][T][WIDE] of it: its products */
  float* own;     /* [OPATLAS_THREADS][OWN]: the same for a task that takes its tiles to their outputs */
  char taken[OPATLAS_THREADS]; /* of which these are in use */
} memory;

typedef struct {
  const float *x, *bias, *other;
  float* y;
  memory* m;
  int first; /* block of a group */
} job;

static void* room(size_t bytes) { return aligned_alloc(64, (bytes + 63) / 64 * 64); }

void opatlas_release(void* state) {
  memory* m = state;
  free(m->windows), free(m->inputs), free(m->made), free(m->own), free(m);
}

int opatlas_prepare(const opatlas_tensor* constants, int32_t n, const opatlas_threads* threads, void** state) {
#if SIDE == 6
  const double at[5] = {0, A, -A, B, -B};
#else
  const double at[3] = {0, 1, -1};
#endif
  const float* w = constants[0].data;
  double g[SIDE][R];
  (void)n, (void)threads;
  for (int p = 0; p < SIDE; p++)
    for (int r = 0; r < R; r++) {
      double power = 1, scale = 1;
      if (p < SIDE - 1) {
        for (int q = 0; q < r; q++) power *= at[p];
        for (int q = 0; q < SIDE - 1; q++)
          if (q != p) scale *= at[p] - at[q];
        g[p][r] = power / scale;
      } else {
        g[p][r] = r == R - 1;
      }
    }
  memory* m = calloc(1, sizeof *m);
  if (!m) return 1;
  size_t windows = WINDOWS * sizeof(float), inputs = (size_t)POINTS * INPUTS * sizeof(float);
  m->windows = room(windows);
  if (FUSED) m->own = room((size_t)OPATLAS_THREADS * OWN * sizeof(float));
  else m->inputs = room(inputs), m->made = room((size_t)POINTS * MADE * sizeof(vec));
  if (!m->windows || (FUSED ? !m->own : !m->inputs || !m->made)) return opatlas_release(m), 1;
  memset(m->windows, 0, windows); /* channels that fill a panel up */
  if (FUSED) memset(m->own, 0, (size_t)OPATLAS_THREADS * OWN * sizeof(float));
  else memset(m->inputs, 0, inputs);
  for (int f = 0; f < F; f++)
    for (int c = 0; c < C; c++) {
      double half[SIDE][R];
      for (int p = 0; p < SIDE; p++)
        for (int s = 0; s < R; s++) {
          half[p][s] = 0;
          for (int r = 0; r < R; r++) half[p][s] += g[p][r] * w[((size_t)f * C + c) * R * R + r * R + s];
        }
      for (int p = 0; p < SIDE; p++)
        for (int q = 0; q < SIDE; q++) {
          double sum = 0;
          for (int s = 0; s < R; s++) sum += half[p][s] * g[q][s];
          m->windows[WINDOW(f / PANEL, p * SIDE + q) + (size_t)c * PANEL + f % PANEL] = (float)sum;
        }
    }
  *state = m;
  return 0;
}

/* One direction of a tile's inputs. */
static inline __attribute__((always_inline)) void input_side(const vec d[SIDE], vec out[SIDE]) {
#if SIDE == 6
  vec ea = d[4] - B * B * d[2], oa = (d[3] - B * B * d[1]) * A;
  vec eb = d[4] - A * A * d[2], ob = (d[3] - A * A * d[1]) * B;
  out[0] = A * A * B * B * d[0] - (A * A + B * B) * d[2] + d[4];
  out[1] = ea + oa, out[2] = ea - oa;
  out[3] = eb + ob, out[4] = eb - ob;
  out[5] = A * A * B * B * d[1] - (A * A + B * B) * d[3] + d[5];
#else
  out[0] = d[2] - d[0];
  out[1] = d[2] + d[1], out[2] = d[2] - d[1];
  out[3] = d[3] - d[1];
#endif
}

/* One direction of a tile's outputs. */
static inline __attribute__((always_inline)) void output_side(const vec m[SIDE], vec out[M]) {
#if SIDE == 6
  vec sa = m[1] + m[2], da = m[1] - m[2], sb = m[3] + m[4], db = m[3] - m[4];
  out[0] = m[0] + sa + sb;
  out[1] = A * da + B * db;
#if M == 4
  out[2] = A * A * sa + B * B * sb;
  out[3] = A * A * A * da + B * B * B * db;
#endif
#else
  out[0] = m[0] + m[1] + m[2];
  out[1] = m[1] - m[2];
#endif
  out[M - 1] += m[SIDE - 1];
}

/* Of a channel's transformed tiles, beyond which the last vector goes. Rows begin with a cache line, or what is
 * read soon after it was written waits. */
#define REACH APART_OF(GROUP * T + V)

/* The tiles `from` to `to` of the row of tiles `row`, one channel: into `made`. */
static __attribute__((noinline)) void transform_row(const float* image, int row, int from, int to,
                                                    float (*lines)[LINE], float (*made)[REACH], int at) {
  static const float nothing[LINE] __attribute__((aligned(64)));
  float down[SIDE][LINE] __attribute__((aligned(64))), phase[M][LINE / M + V] __attribute__((aligned(64)));
  const float* line[SIDE];
  int left = from * M - LEFT < 0 ? 0 : from * M - LEFT, right = (to - 1) * M - LEFT + SIDE;
  if (right > W) right = W;
  for (int i = 0; i < SIDE; i++) {
    int y = row * M - TOP + i;
    line[i] = y < 0 || y >= H ? nothing : lines[i];
    if (y < 0 || y >= H) continue;
    if (to - from == ACROSS)
      memcpy(lines[i] + LEFT, image + y * W, W * sizeof(float));
    else
      for (int x = left; x < right; x++) lines[i][LEFT + x] = image[y * W + x];
  }
  for (int x = from * M / V * V; x < (to + REST) * M; x += V) {
    vec d[SIDE], out[SIDE];
    for (int i = 0; i < SIDE; i++) d[i] = *(const vec*)(line[i] + x);
    input_side(d, out);
    for (int i = 0; i < SIDE; i++) *(vec*)(down[i] + x) = out[i];
  }
  for (int i = 0; i < SIDE; i++) {
    for (int t = from; t < to + REST; t += V) {
      const float* at = down[i] + t * M;
      vec a = *(const loose*)at, b = *(const loose*)(at + V);
#if M == 4
      vec c = *(const loose*)(at + 2 * V), d = *(const loose*)(at + 3 * V);
      vec e = even(a, b), o = odd(a, b), f = even(c, d), p = odd(c, d);
      *(loose*)(phase[0] + t - from) = even(e, f), *(loose*)(phase[2] + t - from) = odd(e, f);
      *(loose*)(phase[1] + t - from) = even(o, p), *(loose*)(phase[3] + t - from) = odd(o, p);
#else
      *(loose*)(phase[0] + t - from) = even(a, b), *(loose*)(phase[1] + t - from) = odd(a, b);
#endif
    }
    for (int t = 0; t < to - from; t += V) {
      vec d[SIDE], out[SIDE];
      for (int j = 0; j < SIDE; j++) d[j] = *(const loose*)(phase[j % M] + t + j / M);
      input_side(d, out);
      for (int j = 0; j < SIDE; j++) *(loose*)(made[i * SIDE + j] + at + t) = out[j];
    }
  }
}

/* Some channels of the tiles `begin` to `end`. */
static void transform(const float* x, int c, int last, int begin, int end, float* inputs) {
  float lines[SIDE][LINE] __attribute__((aligned(64))), made[POINTS][REACH] __attribute__((aligned(64)));
  memset(lines, 0, sizeof lines); /* the borders stay zero */
  memset(made, 0, sizeof made);
  for (; c < last; c++) {
    for (int t = begin; t < end;) {
      int row = t / ACROSS, from = t % ACROSS, to = end - t < ACROSS - from ? from + end - t : ACROSS;
      const float* image = x + ((size_t)(row / DOWN) * C + c) * H * W;
      transform_row(image, row % DOWN, from, to, lines, made, t - begin);
      t += to - from;
    }
    for (int point = 0; point < POINTS; point++)
      for (int b = 0; b < GROUP; b++)
        memcpy(inputs + (size_t)point * APART + ((size_t)b * C + c) * T, made[point] + b * T, T * sizeof(float));
  }
}

#if HAS_BLOCKS
/* One tile of a block's channels. */
static void transform_tile(const float* image, int row, int column, float* made) {
  vec down[SIDE][SIDE];
  int top = row * M - TOP, left = column * M - LEFT;
  int inside = top >= 0 && left >= 0 && top + SIDE <= H && left + SIDE <= W;
  for (int j = 0; j < SIDE; j++) {
    vec d[SIDE], out[SIDE];
    int x = left + j;
    if (inside) {
      for (int i = 0; i < SIDE; i++) d[i] = *(const vec*)(image + ((size_t)(top + i) * W + x) * V);
    } else {
      for (int i = 0; i < SIDE; i++) {
        int y = top + i;
        d[i] = y < 0 || y >= H || x < 0 || x >= W ? (vec){0} : *(const vec*)(image + ((size_t)y * W + x) * V);
      }
    }
    input_side(d, out);
    for (int i = 0; i < SIDE; i++) down[i][j] = out[i];
  }
  for (int i = 0; i < SIDE; i++) {
    vec out[SIDE];
    input_side(down[i], out);
    for (int j = 0; j < SIDE; j++) *(vec*)(made + (size_t)(i * SIDE + j) * BLOCK_APART) = out[j];
  }
}

/* The tiles `from` to `to` of a block of channels; the first of all is `begin`. */
static void transform_block(const float* x, int block, int from, int to, int begin, float* inputs) {
  for (int t = from; t < to; t++) {
    int row = t / ACROSS, image = row / DOWN;
    transform_tile(x + ((size_t)image * (C / V) + block) * H * W * V, row % DOWN, t % ACROSS,
                   inputs + (size_t)block * BLOCK_STRIDE + (size_t)(t - begin) * V);
  }
}
#endif

/* made[t][f] = Σ inputs[c][t]·windows[c][f]: T tiles, one panel. Inputs lie `apart` from tile to tile, `step`
 * from channel to channel of a `run`, `stride` from one such run to the next. */
static inline __attribute__((always_inline)) void product(const float* inputs, const float* windows, vec* made,
                                                          int apart, int step, int run, int stride) {
  vec sum[T][WIDE];
#pragma GCC unroll 32
  for (int t = 0; t < T; t++)
#pragma GCC unroll 2
    for (int v = 0; v < WIDE; v++) sum[t][v] = (vec){0};
  for (int first = 0; first < C; first += run, inputs += stride)
#pragma GCC unroll 2
    for (int c = 0; c < run; c++, windows += PANEL) {
      vec w[WIDE];
#pragma GCC unroll 2
      for (int v = 0; v < WIDE; v++) w[v] = *(const vec*)(windows + v * V);
#pragma GCC unroll 32
      for (int t = 0; t < T; t++)
#pragma GCC unroll 2
        for (int v = 0; v < WIDE; v++) sum[t][v] += w[v] * inputs[t * apart + c * step];
    }
#pragma GCC unroll 32
  for (int t = 0; t < T; t++)
#pragma GCC unroll 2
    for (int v = 0; v < WIDE; v++) made[t * WIDE + v] = sum[t][v];
}

static inline __attribute__((always_inline)) void product_of(int blocked, const float* inputs, int point, int block,
                                                             const float* windows, vec* made) {
  if (blocked)
    product(inputs + (size_t)point * BLOCK_APART + (size_t)block * T * V, windows, made, V, 1, V, BLOCK_STRIDE);
  else
    product(inputs + (size_t)point * APART + (size_t)block * C * T, windows, made, 1, T, C, 0);
}

/* One tile's products of V output channels to where they belong. */
static inline __attribute__((always_inline)) void finish(int blocked, const vec* made, int tile, int f, const job* j) {
  int row = tile / ACROSS, top = row % DOWN * M, left = tile % ACROSS * M;
  int rows = OH - top < M ? OH - top : M, columns = OW - left < M ? OW - left : M;
  int channels = F - f < V ? F - f : V;
  vec half[M][SIDE], add = {0};
  if (BIAS) memcpy(&add, j->bias + f, channels == V ? sizeof add : channels * sizeof(float));
#pragma GCC unroll 6
  for (int q = 0; q < SIDE; q++) {
    vec column[SIDE], out[M];
    for (int i = 0; i < SIDE; i++) column[i] = made[(size_t)(i * SIDE + q) * MADE];
    output_side(column, out);
    for (int r = 0; r < M; r++) half[r][q] = out[r];
  }
  size_t at = blocked ? ((((size_t)(row / DOWN) * (F / V) + f / V) * OH + top) * OW + left) * V
                      : (((size_t)(row / DOWN) * F + f) * OH + top) * OW + left;
#pragma GCC unroll 4
  for (int r = 0; r < M; r++) {
    vec out[M], line[M];
    if (r >= rows) break;
    output_side(half[r], out);
    for (int s = 0; s < M; s++) {
      out[s] += add;
      if (SUM && s < columns) {
        const float* other = j->other + at + (blocked ? ((size_t)r * OW + s) * V : (size_t)r * OW + s);
        if (blocked)
          out[s] += *(const vec*)other;
        else
          for (int k = 0; k < channels; k++) out[s][k] += other[(size_t)k * OH * OW];
      }
      if (RELU) out[s] = (vec)((picks)out[s] & ~(out[s] < 0)); /* a NaN stays one */
      if (blocked && s < columns) *(vec*)(j->y + at + ((size_t)r * OW + s) * V) = out[s];
    }
    if (blocked) continue;
#if M == 4
    vec a = low(out[0], out[2]), b = high(out[0], out[2]), c = low(out[1], out[3]), d = high(out[1], out[3]);
    line[0] = low(a, c), line[1] = high(a, c), line[2] = low(b, d), line[3] = high(b, d);
#else
    line[0] = low(out[0], out[1]), line[1] = high(out[0], out[1]);
#endif
    const float* from = (const float*)line;
    float* to = j->y + at + r * OW;
    if (columns == M)
      for (int k = 0; k < channels; k++) memcpy(to + (size_t)k * OH * OW, from + k * M, M * sizeof(float));
    else
      for (int k = 0; k < channels; k++)
        for (int s = 0; s < columns; s++) to[(size_t)k * OH * OW + s] = from[k * M + s];
  }
}

/* Tiles of the group, or the task, that begins with this block. */
static int tiles_from(int block) { return TILES - block * T < GROUP * T ? TILES - block * T : GROUP * T; }
static int blocks_from(int block) { return BLOCKS - block < GROUP ? BLOCKS - block : GROUP; }

#if FUSED
static inline __attribute__((always_inline)) int from_end_to_end(int blocked, int task, const job* j) {
  memory* m = j->m;
  int mine = 0, first = task * GROUP, begin = first * T, count = tiles_from(first);
  while (__atomic_test_and_set(m->taken + mine, __ATOMIC_ACQUIRE)) mine = (mine + 1) % OPATLAS_THREADS;
  float* inputs = m->own + (size_t)mine * OWN;
  vec* made = (vec*)(inputs + POINTS * INPUTS);
#if HAS_BLOCKS
  if (blocked)
    for (int block = 0; block < C / V; block++) transform_block(j->x, block, begin, begin + count, begin, inputs);
#endif
  if (!blocked) transform(j->x, 0, C, begin, begin + count, inputs);
  for (int panel = 0; panel < PANELS; panel++) {
    for (int point = 0; point < POINTS; point++)
      for (int b = 0; b < blocks_from(first); b++)
        product_of(blocked, inputs, point, b, m->windows + WINDOW(panel, point), made + point * MADE + b * T * WIDE);
    for (int v = 0; v < WIDE && panel * PANEL + v * V < F; v++)
      for (int t = 0; t < count; t++)
        finish(blocked, made + t * WIDE + v, begin + t, panel * PANEL + v * V, j);
  }
  __atomic_clear(m->taken + mine, __ATOMIC_RELEASE);
  return 0;
}

static int fused(int32_t task, int32_t tasks, void* argument) {
  (void)tasks;
  return from_end_to_end(0, task, argument);
}

#if HAS_BLOCKS
static int fused_in_blocks(int32_t task, int32_t tasks, void* argument) {
  (void)tasks;
  return from_end_to_end(1, task, argument);
}
#endif
#else
static int transforming(int32_t task, int32_t tasks, void* argument) {
  const job* j = argument;
  int begin = j->first * T;
  transform(j->x, (int64_t)C * task / tasks, (int64_t)C * (task + 1) / tasks, begin, begin + tiles_from(j->first),
            j->m->inputs);
  return 0;
}

#if HAS_BLOCKS
static int transforming_blocks(int32_t task, int32_t tasks, void* argument) {
  const job* j = argument;
  int begin = j->first * T, count = tiles_from(j->first), part = task % SPLIT;
  (void)tasks;
  transform_block(j->x, task / SPLIT, begin + count * part / SPLIT, begin + count * (part + 1) / SPLIT, begin,
                  j->m->inputs);
  return 0;
}
#endif

/* One point: some panels of a product of matrices. */
static inline __attribute__((always_inline)) int multiply(int blocked, int task, const job* j) {
  int point = task / HALVES, half = task % HALVES;
  for (int panel = PANELS * half / HALVES; panel < PANELS * (half + 1) / HALVES; panel++)
    for (int b = 0; b < blocks_from(j->first); b++)
      product_of(blocked, j->m->inputs, point, b, j->m->windows + WINDOW(panel, point),
                 j->m->made + (size_t)point * MADE + (size_t)(panel * GROUP + b) * T * WIDE);
  return 0;
}

static int multiplying(int32_t task, int32_t tasks, void* argument) {
  (void)tasks;
  return multiply(0, task, argument);
}

static inline __attribute__((always_inline)) int finish_part(int blocked, int task, const job* j) {
  int panel = task / PARTS, part = task % PARTS, count = tiles_from(j->first);
  for (int t = count * part / PARTS; t < count * (part + 1) / PARTS; t++)
    for (int v = 0; v < WIDE && panel * PANEL + v * V < F; v++)
      finish(blocked, j->m->made + ((size_t)panel * GROUP * T + t) * WIDE + v, j->first * T + t,
             panel * PANEL + v * V, j);
  return 0;
}

static int finishing(int32_t task, int32_t tasks, void* argument) {
  (void)tasks;
  return finish_part(0, task, argument);
}

#if HAS_BLOCKS
static int multiplying_blocks(int32_t task, int32_t tasks, void* argument) {
  (void)tasks;
  return multiply(1, task, argument);
}

static int finishing_blocks(int32_t task, int32_t tasks, void* argument) {
  (void)tasks;
  return finish_part(1, task, argument);
}
#endif
#endif

static const char* message;
const char* opatlas_error(void) { return message; }

int32_t opatlas_blocks(void) { return HAS_BLOCKS ? V : 0; }

/* On the pool, where that is worth it. */
static int each(const opatlas_threads* threads, opatlas_body body, job* j, int tasks) {
  if (threads->count > 1 && tasks > 1) return threads->parallel_for(threads->pool, body, j, tasks);
  for (int32_t task = 0; task < tasks; task++) body(task, tasks, j);
  return 0;
}

int opatlas_run(const opatlas_tensor* tensors, int32_t n, const opatlas_threads* threads, void* state) {
  job j = {.x = tensors[0].data, .y = tensors[OPATLAS_INPUTS].data, .m = state};
  (void)n;
  if (BIAS) j.bias = tensors[2].data;
  if (SUM) {
    const opatlas_tensor *other = &tensors[OPATLAS_INPUTS - 1], *made = &tensors[OPATLAS_INPUTS];
    if (other->ndim != made->ndim || memcmp(other->shape, made->shape, made->ndim * sizeof(int64_t))) {
      message = "what is added has another shape";
      return 2;
    }
    j.other = other->data;
  }
  int blocked = HAS_BLOCKS && tensors[0].ndim == 5, wrong = 0;
#if FUSED
  opatlas_body body = fused;
#if HAS_BLOCKS
  if (blocked) body = fused_in_blocks;
#endif
  (void)blocked;
  wrong = each(threads, body, &j, TURNS);
#else
  opatlas_body first = transforming, second = multiplying, third = finishing;
  int tasks = C < 16 ? C : 16;
#if HAS_BLOCKS
  if (blocked) first = transforming_blocks, second = multiplying_blocks, third = finishing_blocks;
  if (blocked) tasks = C / V * SPLIT;
#endif
  for (j.first = 0; j.first < BLOCKS && !wrong; j.first += GROUP) {
    wrong = each(threads, first, &j, tasks);
    if (!wrong) wrong = each(threads, second, &j, POINTS * HALVES);
    if (!wrong) wrong = each(threads, third, &j, PANELS * PARTS);
  }
#endif
  return wrong;
}
