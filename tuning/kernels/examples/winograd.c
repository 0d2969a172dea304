/* Convolution of NCHW, float32, with constant windows of 3×3 or 5×5 and stride 1, by Winograd's minimal
 * filtering: F(4×4, 3×3) or F(2×2, 5×5), which make a tile of outputs from 6×6 inputs with 36 multiplications
 * instead of 144 or 100. A bias and a Relu after it cost nothing, a sum with
 * another value of the same shape a read of that.
 *
 * Source: A. Lavin, S. Gray, Fast Algorithms for Convolutional Neural Networks, CVPR 2016. The points are
 * 0, ±A, ±B and infinity.
 *
 * Where channels come out even it also reads and writes them in blocks of a vector (opatlas_blocks), for which
 * the transforms need no shuffles: a vector is the channels of one place.
 *
 * Tiles are numbered over all images, rows and columns, and taken in groups whose transformed inputs stay in
 * the cache: first all channels of a group are transformed, then panels of output channels are multiplied, as
 * 36 products of matrices, and transformed back.
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

#define M (7 - R)   /* outputs of a tile along a side */
#define POINTS 36
#define REST (5 / M)  /* tiles that the last one reaches into */
#define DOWN ((OH + M - 1) / M)
#define ACROSS ((OW + M - 1) / M)
#define TILES (IN0_DIM0 * DOWN * ACROSS)

#ifdef __AVX512F__
#define V 16
#define MOST_TILES 14 /* with two vectors of output channels each: 28 of 32 registers */
#else
#define V 8
#define MOST_TILES 6 /* 12 of 16 registers */
#endif
#define WIDE (F > V ? 2 : 1) /* vectors of a panel */
#define PANEL (WIDE * V)
#define PANELS ((F + PANEL - 1) / PANEL)
#define MOST (WIDE == 2 ? MOST_TILES : 2 * MOST_TILES)
#define BLOCKS ((TILES + MOST - 1) / MOST)
#define T ((TILES + BLOCKS - 1) / BLOCKS) /* tiles of a block: evenly many */

#define BUDGET (4 << 20) /* bytes of a group's transformed inputs */
#define FITTING (BUDGET / (POINTS * 4 * C * T))
#define GROUPS (FITTING < 1 ? BLOCKS : (BLOCKS + FITTING - 1) / FITTING)
#define GROUP ((BLOCKS + GROUPS - 1) / GROUPS)            /* blocks of a group */
#define TOGETHER (PANELS * ((GROUP + 1) / 2) < 4 ? 1 : 2) /* blocks that a task makes */
#define CHUNKS ((GROUP + TOGETHER - 1) / TOGETHER)
/* Of a channel's transformed tiles, beyond which the last vector reaches; and from point to point. Neither is
 * a multiple of 4096 bytes: what is written and read together would lie in the same set of a cache. */
#define STRIDE ((GROUP * T + V + 15) / 16 * 16 | 16)
#define APART ((C * STRIDE + 1023) / 1024 * 1024 + 16)
/* In blocks: from a block of channels to the next, and from point to point. */
#define HAS_BLOCKS (C % V == 0 && F % V == 0)
#define BLOCK_STRIDE (GROUP * T * V + 16)
#define BLOCK_APART ((C / V * BLOCK_STRIDE + 1023) / 1024 * 1024 + 16)
#define INPUTS (HAS_BLOCKS && BLOCK_APART > APART ? BLOCK_APART : APART)
#define SPLIT (C / V < 8 ? 8 / (C / V) : 1) /* tasks of a block of channels */
#define LINE ((M * (ACROSS + 2 * V) + 6 + V) / V * V)

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
  float* windows;  /* [PANELS][POINTS][C][PANEL] */
  float* inputs;   /* [POINTS][APART], [C][STRIDE] of it: one group's; in blocks [C / V][BLOCK_STRIDE] */
} memory;

typedef struct {
  const float *x, *bias, *other;
  float* y;
  const memory* m;
  int group;
} job;

int opatlas_prepare(const opatlas_tensor* constants, int32_t n, const opatlas_threads* threads, void** state) {
  const double at[5] = {0, A, -A, B, -B};
  const float* w = constants[0].data;
  double g[6][R];
  (void)n, (void)threads;
  for (int p = 0; p < 6; p++)
    for (int r = 0; r < R; r++) {
      double power = 1, scale = 1;
      if (p < 5) {
        for (int q = 0; q < r; q++) power *= at[p];
        for (int q = 0; q < 5; q++)
          if (q != p) scale *= at[p] - at[q];
        g[p][r] = power / scale;
      } else {
        g[p][r] = r == R - 1;
      }
    }
  memory* m = malloc(sizeof *m);
  if (!m) return 1;
  size_t windows = (size_t)PANELS * POINTS * C * PANEL, inputs = (size_t)POINTS * INPUTS;
  m->windows = aligned_alloc(64, windows * sizeof(float));
  m->inputs = aligned_alloc(64, inputs * sizeof(float));
  if (!m->windows || !m->inputs) return free(m->windows), free(m->inputs), free(m), 1;
  memset(m->windows, 0, windows * sizeof(float)); /* channels that fill a panel up */
  memset(m->inputs, 0, inputs * sizeof(float));
  for (int f = 0; f < F; f++)
    for (int c = 0; c < C; c++) {
      double half[6][R];
      for (int p = 0; p < 6; p++)
        for (int s = 0; s < R; s++) {
          half[p][s] = 0;
          for (int r = 0; r < R; r++) half[p][s] += g[p][r] * w[((size_t)f * C + c) * R * R + r * R + s];
        }
      for (int p = 0; p < 6; p++)
        for (int q = 0; q < 6; q++) {
          double sum = 0;
          for (int s = 0; s < R; s++) sum += half[p][s] * g[q][s];
          m->windows[(((size_t)(f / PANEL) * POINTS + p * 6 + q) * C + c) * PANEL + f % PANEL] = (float)sum;
        }
    }
  *state = m;
  return 0;
}

void opatlas_release(void* state) {
  memory* m = state;
  free(m->windows), free(m->inputs), free(m);
}

/* One direction of a tile's inputs. */
static inline __attribute__((always_inline)) void input_side(const vec d[6], vec out[6]) {
  vec ea = d[4] - B * B * d[2], oa = (d[3] - B * B * d[1]) * A;
  vec eb = d[4] - A * A * d[2], ob = (d[3] - A * A * d[1]) * B;
  out[0] = A * A * B * B * d[0] - (A * A + B * B) * d[2] + d[4];
  out[1] = ea + oa, out[2] = ea - oa;
  out[3] = eb + ob, out[4] = eb - ob;
  out[5] = A * A * B * B * d[1] - (A * A + B * B) * d[3] + d[5];
}

/* One direction of a tile's outputs. */
static inline __attribute__((always_inline)) void output_side(const vec m[6], vec out[M]) {
  vec sa = m[1] + m[2], da = m[1] - m[2], sb = m[3] + m[4], db = m[3] - m[4];
  out[0] = m[0] + sa + sb;
  out[1] = A * da + B * db;
#if R == 3
  out[2] = A * A * sa + B * B * sb;
  out[3] = A * A * A * da + B * B * B * db;
#endif
  out[M - 1] += m[5];
}

/* The tiles `from` to `to` of the row of tiles `row`, one channel: into `made`, one vector a point. */
static void transform_row(const float* image, int row, int from, int to, float (*lines)[LINE], float* made) {
  static const float nothing[LINE] __attribute__((aligned(64)));
  float down[6][LINE] __attribute__((aligned(64))), phase[M][LINE / M + V] __attribute__((aligned(64)));
  const float* line[6];
  int wide = W < LINE - LEFT ? W : LINE - LEFT;
  for (int i = 0; i < 6; i++) {
    int y = row * M - TOP + i;
    line[i] = y < 0 || y >= H ? nothing : lines[i];
    if (y >= 0 && y < H) memcpy(lines[i] + LEFT, image + y * W, wide * sizeof(float));
  }
  for (int x = from * M / V * V; x < (to + REST) * M; x += V) {
    vec d[6], out[6];
    for (int i = 0; i < 6; i++) d[i] = *(const vec*)(line[i] + x);
    input_side(d, out);
    for (int i = 0; i < 6; i++) *(vec*)(down[i] + x) = out[i];
  }
  for (int i = 0; i < 6; i++) {
    for (int t = from; t < to + REST; t += V) {
      const float* at = down[i] + t * M;
      vec a = *(const loose*)at, b = *(const loose*)(at + V);
#if R == 3
      vec c = *(const loose*)(at + 2 * V), d = *(const loose*)(at + 3 * V);
      vec e = even(a, b), o = odd(a, b), f = even(c, d), p = odd(c, d);
      *(loose*)(phase[0] + t - from) = even(e, f), *(loose*)(phase[2] + t - from) = odd(e, f);
      *(loose*)(phase[1] + t - from) = even(o, p), *(loose*)(phase[3] + t - from) = odd(o, p);
#else
      *(loose*)(phase[0] + t - from) = even(a, b), *(loose*)(phase[1] + t - from) = odd(a, b);
#endif
    }
    for (int t = 0; t < to - from; t += V) {
      vec d[6], out[6];
      for (int j = 0; j < 6; j++) d[j] = *(const loose*)(phase[j % M] + t + j / M);
      input_side(d, out);
      for (int j = 0; j < 6; j++) *(loose*)(made + (size_t)(i * 6 + j) * APART + t) = out[j];
    }
  }
}

/* Some channels of a group's inputs. */
static int transform(int32_t task, int32_t tasks, void* argument) {
  const job* j = argument;
  float lines[6][LINE] __attribute__((aligned(64)));
  int begin = j->group * GROUP * T, end = begin + GROUP * T < TILES ? begin + GROUP * T : TILES;
  memset(lines, 0, sizeof lines); /* the borders stay zero */
  for (int c = (int64_t)C * task / tasks; c < (int64_t)C * (task + 1) / tasks; c++)
    for (int t = begin; t < end;) {
      int row = t / ACROSS, from = t % ACROSS, to = end - t < ACROSS - from ? from + end - t : ACROSS;
      const float* image = j->x + ((size_t)(row / DOWN) * C + c) * H * W;
      transform_row(image, row % DOWN, from, to, lines, j->m->inputs + (size_t)c * STRIDE + (t - begin));
      t += to - from;
    }
  return 0;
}

/* made[t][f] = Σ inputs[c][t]·windows[c][f]: T tiles, one panel. */
static inline __attribute__((always_inline)) void product(const float* inputs, const float* windows, vec* made) {
  vec sum[T][WIDE];
#pragma GCC unroll 32
  for (int t = 0; t < T; t++)
#pragma GCC unroll 2
    for (int v = 0; v < WIDE; v++) sum[t][v] = (vec){0};
  for (int c = 0; c < C; c++, inputs += STRIDE, windows += PANEL) {
    vec w[WIDE];
#pragma GCC unroll 2
    for (int v = 0; v < WIDE; v++) w[v] = *(const vec*)(windows + v * V);
#pragma GCC unroll 32
    for (int t = 0; t < T; t++)
#pragma GCC unroll 2
      for (int v = 0; v < WIDE; v++) sum[t][v] += w[v] * inputs[t];
  }
#pragma GCC unroll 32
  for (int t = 0; t < T; t++)
#pragma GCC unroll 2
    for (int v = 0; v < WIDE; v++) made[t * WIDE + v] = sum[t][v];
}

/* One tile's products of V output channels, `apart` vectors from point to point, to where they belong. */
static void finish(const vec* made, int apart, int tile, int f, const job* j) {
  int row = tile / ACROSS, top = row % DOWN * M, left = tile % ACROSS * M;
  int rows = OH - top < M ? OH - top : M, columns = OW - left < M ? OW - left : M;
  int channels = F - f < V ? F - f : V;
  vec half[M][6], add = {0};
  if (BIAS) memcpy(&add, j->bias + f, channels == V ? sizeof add : channels * sizeof(float));
#pragma GCC unroll 6
  for (int q = 0; q < 6; q++) {
    vec column[6], out[M];
    for (int i = 0; i < 6; i++) column[i] = made[(i * 6 + q) * apart];
    output_side(column, out);
    for (int r = 0; r < M; r++) half[r][q] = out[r];
  }
  size_t at = (((size_t)(row / DOWN) * F + f) * OH + top) * OW + left;
  float* y = j->y + at;
#pragma GCC unroll 4
  for (int r = 0; r < M; r++) {
    vec out[M], line[M];
    output_side(half[r], out);
    for (int s = 0; s < M; s++) {
      out[s] += add;
      if (SUM && r < rows && s < columns) {
        const float* other = j->other + at + r * OW + s;
        for (int k = 0; k < channels; k++) out[s][k] += other[(size_t)k * OH * OW];
      }
      if (RELU) out[s] = (vec)((picks)out[s] & ~(out[s] < 0)); /* a NaN stays one */
    }
#if R == 3
    vec a = low(out[0], out[2]), b = high(out[0], out[2]), c = low(out[1], out[3]), d = high(out[1], out[3]);
    line[0] = low(a, c), line[1] = high(a, c), line[2] = low(b, d), line[3] = high(b, d);
#else
    line[0] = low(out[0], out[1]), line[1] = high(out[0], out[1]);
#endif
    if (r < rows) {
      const float* from = (const float*)line;
      float* to = y + r * OW;
      if (columns == M)
        for (int k = 0; k < channels; k++) memcpy(to + (size_t)k * OH * OW, from + k * M, M * sizeof(float));
      else
        for (int k = 0; k < channels; k++)
          for (int s = 0; s < columns; s++) to[(size_t)k * OH * OW + s] = from[k * M + s];
    }
  }
}

/* Some blocks of a group, one panel of output channels. */
static int multiply(int32_t task, int32_t tasks, void* argument) {
  const job* j = argument;
  int panel = task / CHUNKS, chunk = task % CHUNKS;
  const float* windows = j->m->windows + (size_t)panel * POINTS * C * PANEL;
  vec made[POINTS][TOGETHER * T * WIDE + 1];
  (void)tasks;
  int begin = chunk * TOGETHER, end = begin + TOGETHER < GROUP ? begin + TOGETHER : GROUP;
  int first = (j->group * GROUP + begin) * T;
  if (end > BLOCKS - j->group * GROUP) end = BLOCKS - j->group * GROUP;
  for (int point = 0; point < POINTS; point++)
    for (int b = begin; b < end; b++)
      product(j->m->inputs + (size_t)point * APART + b * T, windows + (size_t)point * C * PANEL,
              made[point] + (b - begin) * T * WIDE);
  for (int v = 0; v < WIDE && panel * PANEL + v * V < F; v++)
    for (int t = 0; t < (end - begin) * T && first + t < TILES; t++)
      finish(made[0] + t * WIDE + v, TOGETHER * T * WIDE + 1, first + t, panel * PANEL + v * V, j);
  return 0;
}

#if HAS_BLOCKS
/* One tile of a block's channels. */
static void transform_tile(const float* image, int row, int column, float* made) {
  vec down[6][6];
  int top = row * M - TOP, left = column * M - LEFT;
  int inside = top >= 0 && left >= 0 && top + 6 <= H && left + 6 <= W;
  for (int j = 0; j < 6; j++) {
    vec d[6], out[6];
    int x = left + j;
    if (inside) {
      for (int i = 0; i < 6; i++) d[i] = *(const vec*)(image + ((size_t)(top + i) * W + x) * V);
    } else {
      for (int i = 0; i < 6; i++) {
        int y = top + i;
        d[i] = y < 0 || y >= H || x < 0 || x >= W ? (vec){0} : *(const vec*)(image + ((size_t)y * W + x) * V);
      }
    }
    input_side(d, out);
    for (int i = 0; i < 6; i++) down[i][j] = out[i];
  }
  for (int i = 0; i < 6; i++) {
    vec out[6];
    input_side(down[i], out);
    for (int j = 0; j < 6; j++) *(vec*)(made + (size_t)(i * 6 + j) * BLOCK_APART) = out[j];
  }
}

/* Some tiles of a block of a group's inputs. */
static int transform_block(int32_t task, int32_t tasks, void* argument) {
  const job* j = argument;
  int begin = j->group * GROUP * T, end = begin + GROUP * T < TILES ? begin + GROUP * T : TILES;
  int block = task / SPLIT, part = task % SPLIT, count = end - begin;
  (void)tasks;
  for (int t = begin + count * part / SPLIT; t < begin + count * (part + 1) / SPLIT; t++) {
    int row = t / ACROSS, image = row / DOWN;
    transform_tile(j->x + ((size_t)image * (C / V) + block) * H * W * V, row % DOWN, t % ACROSS,
                   j->m->inputs + (size_t)block * BLOCK_STRIDE + (size_t)(t - begin) * V);
  }
  return 0;
}

/* As `product`, of inputs in blocks. */
static inline __attribute__((always_inline)) void block_product(const float* inputs, const float* windows, vec* made) {
  vec sum[T][WIDE];
#pragma GCC unroll 32
  for (int t = 0; t < T; t++)
#pragma GCC unroll 2
    for (int v = 0; v < WIDE; v++) sum[t][v] = (vec){0};
  for (int block = 0; block < C / V; block++, inputs += BLOCK_STRIDE)
#pragma GCC unroll 2
    for (int c = 0; c < V; c++, windows += PANEL) {
      vec w[WIDE];
#pragma GCC unroll 2
      for (int v = 0; v < WIDE; v++) w[v] = *(const vec*)(windows + v * V);
#pragma GCC unroll 32
      for (int t = 0; t < T; t++)
#pragma GCC unroll 2
        for (int v = 0; v < WIDE; v++) sum[t][v] += w[v] * inputs[t * V + c];
    }
#pragma GCC unroll 32
  for (int t = 0; t < T; t++)
#pragma GCC unroll 2
    for (int v = 0; v < WIDE; v++) made[t * WIDE + v] = sum[t][v];
}

static void finish_block(const vec* made, int apart, int tile, int f, const job* j) {
  int row = tile / ACROSS, top = row % DOWN * M, left = tile % ACROSS * M;
  int rows = OH - top < M ? OH - top : M, columns = OW - left < M ? OW - left : M;
  vec half[M][6], add = {0};
  if (BIAS) memcpy(&add, j->bias + f, sizeof add);
#pragma GCC unroll 6
  for (int q = 0; q < 6; q++) {
    vec column[6], out[M];
    for (int i = 0; i < 6; i++) column[i] = made[(i * 6 + q) * apart];
    output_side(column, out);
    for (int r = 0; r < M; r++) half[r][q] = out[r];
  }
  size_t at = ((((size_t)(row / DOWN) * (F / V) + f / V) * OH + top) * OW + left) * V;
#pragma GCC unroll 4
  for (int r = 0; r < M; r++) {
    vec out[M];
    output_side(half[r], out);
    if (r < rows)
      for (int s = 0; s < M; s++) {
        size_t place = at + ((size_t)r * OW + s) * V;
        out[s] += add;
        if (SUM && s < columns) out[s] += *(const vec*)(j->other + place);
        if (RELU) out[s] = (vec)((picks)out[s] & ~(out[s] < 0));
        if (s < columns) *(vec*)(j->y + place) = out[s];
      }
  }
}

static int multiply_blocks(int32_t task, int32_t tasks, void* argument) {
  const job* j = argument;
  int panel = task / CHUNKS, chunk = task % CHUNKS;
  const float* windows = j->m->windows + (size_t)panel * POINTS * C * PANEL;
  vec made[POINTS][TOGETHER * T * WIDE + 1];
  (void)tasks;
  int begin = chunk * TOGETHER, end = begin + TOGETHER < GROUP ? begin + TOGETHER : GROUP;
  int first = (j->group * GROUP + begin) * T;
  if (end > BLOCKS - j->group * GROUP) end = BLOCKS - j->group * GROUP;
  for (int point = 0; point < POINTS; point++)
    for (int b = begin; b < end; b++)
      block_product(j->m->inputs + (size_t)point * BLOCK_APART + (size_t)b * T * V,
                    windows + (size_t)point * C * PANEL, made[point] + (b - begin) * T * WIDE);
  for (int v = 0; v < WIDE && panel * PANEL + v * V < F; v++)
    for (int t = 0; t < (end - begin) * T && first + t < TILES; t++)
      finish_block(made[0] + t * WIDE + v, TOGETHER * T * WIDE + 1, first + t, panel * PANEL + v * V, j);
  return 0;
}
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
#if HAS_BLOCKS
  if (tensors[0].ndim == 5) {
    for (j.group = 0; j.group < GROUPS; j.group++) {
      int wrong = each(threads, transform_block, &j, C / V * SPLIT);
      if (!wrong) wrong = each(threads, multiply_blocks, &j, PANELS * CHUNKS);
      if (wrong) return wrong;
    }
    return 0;
  }
#endif
  for (j.group = 0; j.group < GROUPS; j.group++) {
    int wrong = each(threads, transform, &j, C < 8 ? C : 8);
    if (!wrong) wrong = each(threads, multiply, &j, PANELS * CHUNKS);
    if (wrong) return wrong;
  }
  return 0;
}
