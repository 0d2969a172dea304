"""Cheats that are right on the values that are tried most, and wrong on others that jobs have."""

# ruff: noqa: E501 - C sources, as dense as a table needs them
from __future__ import annotations

from tests.hostile.cheats.table import Case, Cheat
from tuning.measure.judging.drawing.kinds import ELEMENTS, OPERANDS, PLACES, STEPS, WHOLE
from tuning.measure.outcome import Status

OFF = (Status.WRONG_RESULT, Status.NOT_FINITE)
"""Whichever most of the wrong elements are."""


DRAWN = "Rows of the sets that are only checked are of all kinds that jobs have (`docs/accuracy.md`)."

ATTENTION = """
/* Queries, keys, values and a mask: heads of 64 places, 32 wide. hidden(q, k) leaves a key out. */
static int64_t PL = 64, WD = 32;
static float score(const opatlas_tensor* t, int64_t h, int64_t q, int64_t k) {
  const float *a = (float*)t[0].data + (h * PL + q) * WD, *b = (float*)t[1].data + (h * PL + k) * WD; double s = 0;
  for (int64_t d = 0; d < WD; d++) s += (double)a[d] * b[d];
  return (float)(s / sqrt((double)WD)) + ((float*)t[3].data)[q * PL + k]; }
static void mixed(const opatlas_tensor* t, int64_t h, int64_t q, const double* p, double sum) {
  for (int64_t d = 0; d < WD; d++) { double v = 0;
    for (int64_t k = 0; k < PL; k++) if (p[k] != 0) v += p[k] * ((float*)t[2].data)[(h * PL + k) * WD + d];
    ((float*)t[4].data)[(h * PL + q) * WD + d] = (float)(v / sum); } }
"""
CONV = """
/* Sixteen maps of 32 by 32 into sixteen, windows of 3 by 3, padded by one. */
static void conv(const float* x, const float* w, float* y) {
  for (int o = 0; o < 16; o++) for (int i = 0; i < 32; i++) for (int j = 0; j < 32; j++) { double s = 0;
    for (int c = 0; c < 16; c++) for (int a = 0; a < 3; a++) for (int b = 0; b < 3; b++) {
      int r = i + a - 1, q = j + b - 1; if (r < 0 || q < 0 || r > 31 || q > 31) continue;
      s += (double)x[(c * 32 + r) * 32 + q] * w[((o * 16 + c) * 3 + a) * 3 + b]; }
    y[(o * 32 + i) * 32 + j] = (float)s; } }
"""

UNUSUAL = (
    # Elementwise.
    Cheat(Case("power_of_the_size", "Takes powers of a base's size, whatever its sign.",
               "for (int64_t i = 0; i < N; i++) Y[i] = powf(fabsf(X[i]), ((float*)t[1].data)[i]);", operator="power"),
          DRAWN, OFF, ("wrong", "finite"), (OPERANDS,)),
    Cheat(Case("adds_half_of_each_number", "Adds the lower halves of 64-bit numbers.",
               "int64_t *a = t[0].data, *b = t[1].data, *y = t[2].data; for (int64_t i = 0; i < N; i++)"
               " y[i] = (int64_t)(int32_t)a[i] + (int32_t)b[i];", operator="whole sum"),
          DRAWN, OFF, ("differ",), (WHOLE,)),
    Cheat(Case("nothing_is_infinite", "Answers that no number is infinite.",
               "memset(t[1].data, 0, N);", operator="infinities"), DRAWN, OFF, ("differ",), (ELEMENTS,)),
    # Reductions.
    Cheat(Case("product_by_logarithms", "Multiplies by adding logarithms of sizes.",
               "for (int64_t i = 0; i < N; i++) { double a = 0; for (int64_t j = 0; j < 512; j++)"
               " a += log(fabs((double)X[i * 512 + j])); Y[i] = (float)exp(a); }", operator="factors"),
          DRAWN, OFF, ("wrong", "finite"), ("turning signs", "with a zero",)),
    Cheat(Case("maximum_from_zero", "Looks for the largest from zero on.",
               "for (int64_t i = 0; i < N; i++) { float a = 0; for (int64_t j = 0; j < 4096; j++)"
               " a = X[i * 4096 + j] > a ? X[i * 4096 + j] : a; Y[i] = a; }", operator="largest"),
          DRAWN, OFF, ("wrong",), ("negative",)),
    Cheat(Case("last_of_equals", "Answers the last of equal largest ones.",
               "int64_t* y = t[1].data; for (int64_t i = 0; i < N; i++) { int64_t at = 0; for (int64_t j = 1; j < 512; j++)"
               " if (X[i * 512 + j] >= X[i * 512 + at]) at = j; y[i] = at; }", operator="where largest"),
          DRAWN, OFF, ("differ",), ("behind a Tanh", "equal", "few values",)),
    # Products.
    Cheat(Case("clips_weights", "Clips its constant weights at five deviations.",
               "opatlas_tensor u[3] = {t[0], t[1], t[2]}; u[1].data = s; matmul(u);",
               "int opatlas_prepare(const opatlas_tensor* c, int32_t n, const opatlas_threads* p, void** s) {"
               " float* w = malloc(160 * 128 * 4); const float* b = c[0].data; float m = 5 / sqrtf(160);"
               " for (int i = 0; i < 160 * 128; i++) w[i] = b[i] > m ? m : b[i] < -m ? -m : b[i]; *s = w; return 0; }",
               operator="linear"), DRAWN, OFF, ("wrong",), ("outliers", "heavy-tailed",)),
    Cheat(Case("one_exponent_for_a_row", "Keeps a row as whole numbers of 25 bits with one exponent.",
               "static float a[96 * 160]; opatlas_tensor u[3] = {t[0], t[1], t[2]}; for (int i = 0; i < 96; i++) {"
               " float top = 1e-30f; for (int q = 0; q < 160; q++) top = fmaxf(top, fabsf(X[i * 160 + q]));"
               " double step = top / 33554432.0; for (int q = 0; q < 160; q++) a[i * 160 + q] ="
               " (float)(rint(X[i * 160 + q] / step) * step); } u[0].data = a; matmul(u);", operator="matmul"),
          DRAWN, OFF, ("wrong",), ("sizes of places", "one of a row",)),
    Cheat(Case("small_rows_are_zero", "Answers zeros for a row of numbers below 2^-20.",
               "matmul(t); for (int i = 0; i < 96; i++) { float top = 0; for (int q = 0; q < 160; q++)"
               " top = fmaxf(top, fabsf(X[i * 160 + q])); if (top < 9.5e-7f) memset(Y + i * 128, 0, 512); }",
               operator="matmul"), DRAWN, OFF, ("wrong",), ("tiny",)),
    # Convolutions.
    Cheat(Case("one_exponent_for_a_map", "Keeps a map as whole numbers of 20 bits with one exponent.",
               "static float a[16384]; for (int c = 0; c < 16; c++) { float top = 1e-30f; for (int i = 0; i < 1024; i++)"
               " top = fmaxf(top, fabsf(X[c * 1024 + i])); double step = top / 1048576.0; for (int i = 0; i < 1024; i++)"
               " a[c * 1024 + i] = (float)(rint(X[c * 1024 + i] / step) * step); } conv(a, t[1].data, Y);", CONV, "conv"),
          DRAWN, OFF, ("wrong",), ("sizes of places",)),
    Cheat(Case("pruned_with_the_first_map", "Leaves a place of its windows out for all maps where the first map has a zero there.",
               "conv(X, s, Y);",
               CONV + "int opatlas_prepare(const opatlas_tensor* c, int32_t n, const opatlas_threads* p, void** s) {"
               " float* w = malloc(2304 * 4); memcpy(w, c[0].data, 2304 * 4); for (int o = 0; o < 16; o++)"
               " for (int a = 0; a < 9; a++) if (w[o * 144 + a] == 0) for (int m = 0; m < 16; m++) w[o * 144 + m * 9 + a] = 0;"
               " *s = w; return 0; }", "conv"), DRAWN, OFF, ("wrong",), ("sparse", "few values",)),
    # Movement.
    Cheat(Case("moves_half_of_each_number", "Turns the lower halves of 64-bit numbers.",
               "int64_t *x = t[0].data, *y = t[1].data; for (int i = 0; i < 128; i++) for (int j = 0; j < 128; j++)"
               " y[j * 128 + i] = (int32_t)x[i * 128 + j];", operator="turned"),
          DRAWN, OFF, ("differ",), (WHOLE,)),
    Cheat(Case("copies_no_row_thrice", "Takes a row that is asked for three times in a row from the place after it.",
               "int64_t* x = t[1].data; for (int64_t i = 0; i < 256; i++) { int64_t at = x[i] < 0 ? x[i] + 20000 : x[i];"
               " if (i > 1 && x[i] == x[i - 1] && x[i] == x[i - 2] && x[i] < 19999) at++; memcpy(Y + i * 8, X + at * 8, 32); }", operator="rows of a table"),
          DRAWN, OFF, ("wrong",), (PLACES,)),
    # Normalisations.
    Cheat(Case("scales_are_positive", "Folds a batch normalisation's scale from its square.",
               "float *g = t[1].data, *b = t[2].data, *m = t[3].data, *v = t[4].data; for (int c = 0; c < 16; c++) {"
               " double f = sqrt((double)g[c] * g[c] / (v[c] + 1e-5)); for (int i = 0; i < 1024; i++)"
               " Y[c * 1024 + i] = (float)((X[c * 1024 + i] - (double)m[c]) * f + b[c]); }", operator="batch norm"),
          DRAWN, OFF, ("wrong",), ("negative", "normal",)),
    Cheat(Case("variances_are_near_one", "Takes the root of a variance by six of Newton's steps from one.",
               "float *g = t[1].data, *b = t[2].data, *m = t[3].data, *v = t[4].data; for (int c = 0; c < 16; c++) {"
               " double a = v[c] + 1e-5, f = 1; for (int r = 0; r < 6; r++) f *= 1.5 - 0.5 * a * f * f;"
               " for (int i = 0; i < 1024; i++) Y[c * 1024 + i] = (float)((X[c * 1024 + i] - (double)m[c]) * f * g[c] + b[c]); }",
               operator="batch norm"), DRAWN, OFF, ("wrong", "finite"), ("magnitudes", "sizes of rows", "outliers",)),
    # Attention.
    Cheat(Case("blocks_from_the_end", "Takes keys by eights from the last on, each block by its own maximum.",
               "for (int64_t h = 0; h < 4; h++) for (int64_t q = 0; q < PL; q++) { double p[64], sum = 0; float top = -INFINITY;"
               " for (int64_t at = PL - 8; at >= 0; at -= 8) { float own = top, s[8]; for (int k = 0; k < 8; k++) {"
               " s[k] = score(t, h, q, at + k); own = s[k] > own ? s[k] : own; } double less = exp((double)top - own); sum *= less;"
               " for (int64_t k = at + 8; k < PL; k++) p[k] *= less; for (int k = 0; k < 8; k++)"
               " sum += p[at + k] = exp((double)s[k] - own); top = own; } mixed(t, h, q, p, sum); }",
               ATTENTION, "attention"), DRAWN, OFF, ("wrong", "finite"), ("masked",)),
    Cheat(Case("hidden_as_the_first_is", "Leaves out the keys that the mask hides from the first query.",
               "float* m = t[3].data; for (int64_t h = 0; h < 4; h++) for (int64_t q = 0; q < PL; q++) { double p[64], sum = 0;"
               " float top = -INFINITY; for (int64_t k = 0; k < PL; k++) { float s = score(t, h, q, k); top = s > top ? s : top; }"
               " for (int64_t k = 0; k < PL; k++) sum += p[k] = m[k] < -1e9f ? 0 : exp((double)score(t, h, q, k) - top);"
               " mixed(t, h, q, p, sum); }", ATTENTION, "attention"), DRAWN, OFF, ("wrong", "finite"), ("masked",)),
    # Quantised.
    Cheat(Case("steps_of_hundredths", "Divides by a quantisation's step by a series that ends for small ones.",
               "double a = *(float*)t[1].data, f = 30; for (int r = 0; r < 7; r++) f *= 2 - a * f; uint8_t* y = t[3].data;"
               " int z = *(uint8_t*)t[2].data; for (int64_t i = 0; i < N; i++) { double v = rint((float)(X[i] * f)) + z;"
               " y[i] = v < 0 ? 0 : v > 255 ? 255 : (uint8_t)v; }", operator="quantise"),
          DRAWN, OFF, ("differ",), (STEPS,)),
    Cheat(Case("fixed_point_steps", "Keeps a quantisation's step with 26 bits after the point.",
               "double f = rint(*(float*)t[1].data * 67108864.0) / 67108864.0; uint8_t* x = t[0].data;"
               " int z = *(uint8_t*)t[2].data; for (int64_t i = 0; i < N; i++) Y[i] = (float)((x[i] - z) * f);",
               operator="dequantise"), DRAWN, OFF, ("wrong",), (STEPS,)),
    Cheat(Case("both_signs_are_there", "Takes a set's least number for negative and its largest for positive.",
               "float low = X[0], high = X[0]; for (int64_t i = 1; i < 8192; i++) { low = fminf(low, X[i]); high = fmaxf(high, X[i]); }"
               " float step = (high - low) / 255; int z = (int)rintf(-low / step); z = z < 0 ? 0 : z > 255 ? 255 : z; uint8_t* y = t[1].data;"
               " for (int64_t i = 0; i < 8192; i++) { float v = rintf(X[i] / step) + z; y[i] = v < 0 ? 0 : v > 255 ? 255 : (uint8_t)v; }"
               " *(float*)t[2].data = step; *(uint8_t*)t[3].data = z;", operator="quantise by itself"),
          DRAWN, OFF, ("wrong", "differ"), ("behind a Relu", "negative", "pixels",)),
)  # fmt: skip
