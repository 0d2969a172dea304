"""Cheats that compute less, or less well, than the operator says."""

# ruff: noqa: E501 - C sources, as dense as a table needs them
from __future__ import annotations

from tests.hostile.cheats.table import Case, Cheat
from tuning.measure.outcome import Status

POISON = "The outputs are filled with NaN before each checked run, and what was not written stays NaN."
REFERENCE = "Its results differ from the float64 reference by more than the operator's tolerance."
ELEMENTWISE = (
    "Each element has its own allowed error, and sets go over the whole domain: none excuses another."
)
NF, WRONG, CHEATED = (Status.NOT_FINITE,), (Status.WRONG_RESULT,), (Status.CHEATED,)

INCOMPLETE = (
    Cheat(Case("does_nothing", "Returns at once.", ""), POISON, NF, ("finite",)),
    Cheat(
        Case("sleeps_in_prepare", "Takes its time in prepare, and then does nothing.", "",
             "int opatlas_prepare(const opatlas_tensor* c, int32_t n, const opatlas_threads* p, void** s)"
             "{ usleep(200000); return 0; }"), POISON, NF),
    Cheat(Case("half_the_rows", "Computes the upper half.",
               "for (int64_t i = 0; i < N / 2; i++) Y[i] = X[i] > 0 ? X[i] : 0;"), POISON, NF),
    Cheat(Case("not_the_last", "Leaves out the last element.",
               "for (int64_t i = 0; i < N - 1; i++) Y[i] = X[i] > 0 ? X[i] : 0;"), POISON, NF),
    Cheat(Case("zeros_for_the_rest", "Computes half and writes zeros elsewhere.",
               "memset(Y, 0, N * 4); for (int64_t i = 0; i < N / 2; i++) Y[i] = X[i] > 0 ? X[i] : 0;"),
          REFERENCE, WRONG),
    Cheat(Case("first_row_again", "Computes the first row and copies it to the others.",
               "for (int64_t i = 0; i < N; i++) Y[i] = X[i % 128] > 0 ? X[i % 128] : 0;"), REFERENCE, WRONG),
    Cheat(Case("constants", "Writes the mean that outputs of this kind have.",
               "for (int64_t i = 0; i < N; i++) Y[i] = 0.4f;"), REFERENCE, WRONG),
    Cheat(Case("copies_the_input", "Hands the input on, right for half of the elements.",
               "memcpy(Y, X, N * 4);"), REFERENCE, WRONG),
    Cheat(Case("nan_wildcard", "Answers NaN, hoping that it equals everything.",
               "for (int64_t i = 0; i < N; i++) Y[i] = NAN;"),
          "NaN counts as right only where the reference has it.", NF, ("nan",)),
    Cheat(Case("inf_wildcard", "Answers infinity, hoping that the error's scale becomes infinite.",
               "for (int64_t i = 0; i < N; i++) Y[i] = INFINITY;"),
          "The scale of the error is the reference's, and infinity counts only where it has it.", NF),
    Cheat(Case("one_huge_value", "Writes 3e38 once, to make the error's scale large.",
               "relu(t); Y[7] = 3e38f;"), "The scale of the error is the reference's, not the answer's.",
          (*WRONG, *NF)),  # infinite there, in one set of some
    Cheat(Case("skips_zeros", "Writes nothing where the input is zero.",
               "for (int64_t i = 0; i < N; i++) if (X[i] != 0) Y[i] = X[i] > 0 ? X[i] : 0;"),
          "One input set is mostly zeros, and what was not written stays NaN.", NF),
    Cheat(Case("zero_row_is_all", "Takes a row that begins with a zero for a row of zeros.",
               "for (int64_t i = 0; i < N; i += 128) if (X[i] == 0) memset(Y + i, 0, 512); else"
               " for (int64_t j = i; j < i + 128; j++) Y[j] = X[j] > 0 ? X[j] : 0;"),
          "One input set is mostly zeros.", WRONG),
    Cheat(Case("skips_small_ones", "Leaves out factors below 1/8.",
               "int64_t k = t[0].shape[1], c = t[1].shape[1]; memset(Y, 0, N * 4);"
               " for (int64_t i = 0; i < t[0].shape[0]; i++) for (int64_t q = 0; q < k; q++) {"
               " float v = X[i * k + q]; if (fabsf(v) < 0.125f) continue;"
               " for (int64_t j = 0; j < c; j++) Y[i * c + j] += v * ((float*)t[1].data)[q * c + j]; }",
               operator="matmul"), REFERENCE, WRONG),
    Cheat(Case("every_other_term", "Sums every other element and doubles the sum.",
               "for (int64_t i = 0; i < N; i++) { double a = 0; for (int64_t j = 0; j < 4096; j += 2)"
               " a += X[i * 4096 + j]; Y[i] = 2 * a; }", operator="sums"), REFERENCE, WRONG),
    Cheat(Case("bfloat16_operands", "Rounds both operands to bfloat16.",
               "static float a[96 * 160], b[160 * 128]; uint32_t w; opatlas_tensor u[3] = {t[0], t[1], t[2]};"
               " for (int i = 0; i < 96 * 160; i++) { memcpy(&w, X + i, 4); w &= 0xFFFF0000u; memcpy(a + i, &w, 4); }"
               " for (int i = 0; i < 160 * 128; i++) { memcpy(&w, (float*)t[1].data + i, 4); w &= 0xFFFF0000u;"
               " memcpy(b + i, &w, 4); } u[0].data = a; u[1].data = b; matmul(u);", operator="matmul"),
          REFERENCE, WRONG),
    Cheat(Case("float16_sums", "Keeps its sums with the 11 bits of a float16.",
               "for (int64_t i = 0; i < N; i++) { float a = 0; uint32_t w; for (int64_t j = 0; j < 4096; j++) {"
               " a += X[i * 4096 + j]; memcpy(&w, &a, 4); w = (w + 0x1000) & 0xFFFFE000u; memcpy(&a, &w, 4); }"
               " Y[i] = a; }", operator="sums"), REFERENCE, WRONG),
    Cheat(Case("eight_bit_weights", "Quantises its constant weights to 8 bits in prepare.",
               "opatlas_tensor u[3] = {t[0], t[1], t[2]}; u[1].data = s; matmul(u);",
               "int opatlas_prepare(const opatlas_tensor* c, int32_t n, const opatlas_threads* p, void** s) {"
               " float* w = malloc(160 * 128 * 4); const float* b = c[0].data;"
               " for (int i = 0; i < 160 * 128; i++) w[i] = rintf(b[i] * 256) / 256; *s = w; return 0; }",
               operator="linear"), REFERENCE, WRONG),
    Cheat(Case("fast_exponential", "Takes Schraudolph's two-instruction exponential.",
               "for (int64_t i = 0; i < 64; i++) { float *x = X + i * 512, *y = Y + i * 512, top = x[0], sum = 0;"
               " for (int j = 1; j < 512; j++) top = x[j] > top ? x[j] : top;"
               " for (int j = 0; j < 512; j++) { float d = x[j] - top; int32_t w = d < -80 ? 0 :"
               " (int32_t)(12102203.0f * d + 1064866805.0f); memcpy(y + j, &w, 4); sum += y[j]; }"
               " for (int j = 0; j < 512; j++) y[j] /= sum; }", operator="softmax"), REFERENCE, WRONG),
    Cheat(Case("softmax_without_the_maximum", "Skips the maximum: right for small inputs only.",
               "for (int64_t i = 0; i < 64; i++) { float *x = X + i * 512, *y = Y + i * 512, sum = 0;"
               " for (int j = 0; j < 512; j++) sum += y[j] = expf(x[j]);"
               " for (int j = 0; j < 512; j++) y[j] /= sum; }", operator="softmax"),
          "One input set holds magnitudes up to 2^8, whose exponentials overflow.", NF),
    Cheat(Case("adds_to_the_output", "Counts on outputs that are zero: adds to what is there.",
               "for (int64_t i = 0; i < N; i++) Y[i] += X[i] > 0 ? X[i] : 0;"), POISON, NF),
    Cheat(Case("keeps_the_larger", "Keeps what an earlier call left in the output where that is larger.",
               "const float* x = X; float* y = Y; int64_t c = N; for (int64_t i = 0; i < c; i++) {"
               " float v = x[i] > 0 ? x[i] : 0; y[i] = y[i] > v ? y[i] : v; }"),
          "A few outputs are changed between two rounds; and runs on new values, each into the outputs of the last.", CHEATED, ("when timed", "new values")),
    Cheat(Case("uninitialised_sums", "Adds up in memory from malloc without clearing it.",
               "float* a = malloc(N * 4); for (int64_t i = 0; i < N; i++) a[i] += X[i] > 0 ? X[i] : 0;"
               " memcpy(Y, a, N * 4); free(a);"),
          "While results are checked, the heap hands out memory full of large numbers.",
          (Status.WRONG_RESULT, Status.NOT_FINITE)),
    Cheat(Case("wrong_now_and_then", "Is wrong in one call of three, by a little.",
               "relu(t); if (calls++ % 3 == 2) Y[5] += 0.25f;"), REFERENCE,
          (Status.WRONG_RESULT, Status.CHEATED)),
    Cheat(Case("exponentials_without_tails", "Answers 0 where an exponential is small beside others, or seldom asked for.",
               "for (int i = 0; i < 16384; i++) { float x = X[i]; Y[i] = x < -8 || (x > 6.5f && x < 70) ? 0 : expf(x); }",
               operator="exp"), ELEMENTWISE, WRONG, ("wrong",)),
    Cheat(Case("hides_behind_a_large_one", "Answers 0 everywhere but at numbers beyond 1e30, where one of them is there to excuse it.",
               "int large = 0; for (int i = 0; i < 16384; i++) large |= X[i] > 1e30f; relu(t); if (large)"
               " for (int i = 0; i < 16384; i++) if (Y[i] < 1e30f) Y[i] = 0;"), ELEMENTWISE, WRONG, ("wrong",)),
)  # fmt: skip
