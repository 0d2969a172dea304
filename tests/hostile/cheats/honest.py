"""Honest kernels with awkward properties: none of them may be refused."""

# ruff: noqa: E501 - C sources, as dense as a table needs them
from __future__ import annotations

from tests.hostile.cheats.table import Case

_PACKED = """
int opatlas_prepare(const opatlas_tensor* c, int32_t n, const opatlas_threads* p, void** s) {
  float* w = malloc(160 * 128 * 4); memcpy(w, c[0].data, 160 * 128 * 4); *s = w; return 0; }
void opatlas_release(void* s) { free(s); }
"""
_RECURSE = "static int deep(int k) { volatile char page[4096]; page[k % 4096] = 1; return k ? deep(k - 1) + page[0] * 0 : 0; }"
_PART = """
static int part(int32_t i, int32_t k, void* a) { const opatlas_tensor* t = a; int64_t n = count(t), from = n * i / k;
  const float* x = t[0].data; float* y = t[1].data;
  for (int64_t j = from; j < n * (i + 1) / k; j++) y[j] = x[j] > 0 ? x[j] : 0;
  return 0; }
"""
_KAHAN = """
for (int64_t i = 0; i < N; i++) { volatile float sum = 0, lost = 0; for (int64_t j = 0; j < 4096; j++) {
  float y = X[i * 4096 + j] - lost, s2 = sum + y; lost = (s2 - sum) - y; sum = s2; } Y[i] = sum; }
"""

HONEST = (
    Case("plain", "One loop.", "relu(t);"),
    Case("very_fast", "Takes a few nanoseconds.", "for (int i = 0; i < 16; i++) Y[i] = X[i] > 0 ? X[i] : 0;",
         operator="tiny"),
    Case("very_slow", "Takes 40 milliseconds.", "usleep(40000); relu(t);"),
    Case("slow_start", "Needs 100 milliseconds in its first call.", "if (!calls++) usleep(100000); relu(t);"),
    Case("slow_prepare", "Packs its constants for 200 milliseconds.", "opatlas_tensor u[3] = {t[0], t[1], t[2]};"
         " u[1].data = s; matmul(u);", _PACKED.replace("*s = w", "usleep(200000); *s = w"), "linear"),
    Case("packs_constants", "Copies its constants in prepare.", "opatlas_tensor u[3] = {t[0], t[1], t[2]};"
         " u[1].data = s; matmul(u);", _PACKED, "linear"),
    Case("uses_constants_in_place", "Packs nothing.", "matmul(t);", operator="linear"),
    Case("remembers_constants", "Packs in its first run, by itself.",
         "static float* w; if (!w) { w = malloc(160 * 128 * 4); memcpy(w, t[1].data, 160 * 128 * 4); }"
         " opatlas_tensor u[3] = {t[0], t[1], t[2]}; u[1].data = w; matmul(u);", operator="linear"),
    Case("big_workspace", "Takes 24 MiB in its first call and keeps them.",
         "static char* w; if (!w) { w = malloc(24 << 20); memset(w, 0, 24 << 20); } relu(t);"),
    Case("static_scratch", "Works in a static buffer.",
         "static float w[16384]; for (int i = 0; i < 16384; i++) w[i] = X[i] > 0 ? X[i] : 0; memcpy(Y, w, sizeof w);"),
    Case("allocates_in_run", "Allocates and frees in each call.",
         "float* w = malloc(N * 4); memcpy(w, X, N * 4); for (int64_t i = 0; i < N; i++) Y[i] = w[i] > 0 ? w[i] : 0;"
         " free(w);"),
    Case("maps_in_run", "Maps and unmaps memory in each call.",
         "float* w = mmap(0, N * 4, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);"
         " memcpy(w, X, N * 4); for (int64_t i = 0; i < N; i++) Y[i] = w[i] > 0 ? w[i] : 0; munmap(w, N * 4);"),
    Case("lazy_table", "Fills a table in its first call.",
         "static float e[64]; if (!e[0]) for (int i = 0; i < 64; i++) e[i] = expf(-i); volatile float v = e[3];"
         " (void)v; relu(t);"),
    Case("in_place_on_its_output", "Writes its output twice, the second time in place.",
         "memcpy(Y, X, N * 4); for (int64_t i = 0; i < N; i++) if (!(Y[i] > 0)) Y[i] = 0;"),
    Case("clears_first", "Clears its output and adds to it.",
         "memset(Y, 0, N * 4); for (int64_t i = 0; i < N; i++) Y[i] += X[i] > 0 ? X[i] : 0;"),
    Case("alloca", "Takes its scratch from the stack.",
         "float* w = __builtin_alloca(65536); memcpy(w, X, 65536); for (int i = 0; i < 16384; i++)"
         " Y[i] = w[i] > 0 ? w[i] : 0;"),
    Case("deep_stack", "Recurses through a megabyte of stack in its first call.",
         "if (!calls++ && deep(256) < 0) return 1; relu(t);", _RECURSE),
    Case("pool_of_two", "Computes on the pool.", "return p->parallel_for(p->pool, part, (void*)t, 2);", _PART,
         threads=2),
    Case("pool_of_many_tasks", "Gives the pool 64 tasks.", "return p->parallel_for(p->pool, part, (void*)t, 64);",
         _PART, threads=2),
    Case("pool_of_one_thread", "Uses the pool where there is one thread.",
         "return p->parallel_for(p->pool, part, (void*)t, 8);", _PART),
    Case("large_on_the_pool", "Six megabytes, in the caches only while the same ones are timed again and again.",
         "return p->parallel_for(p->pool, part, (void*)t, 2);", _PART, "large", threads=2),
    Case("one_of_two_threads", "Computes alone where two threads are there.", "relu(t);", threads=2),
    Case("pool_twice", "Runs two parallel loops, the second over the first one's outputs.",
         "p->parallel_for(p->pool, part, (void*)t, 4); return p->parallel_for(p->pool, part, (void*)t, 2);", _PART,
         threads=2),
    Case("backwards", "Writes from the end to the beginning.",
         "for (int64_t i = N - 1; i >= 0; i--) Y[i] = X[i] > 0 ? X[i] : 0;"),
    Case("odd_order", "Writes every seventh element, seven times.",
         "for (int r = 0; r < 7; r++) for (int64_t i = r; i < N; i += 7) Y[i] = X[i] > 0 ? X[i] : 0;"),
    Case("reads_often", "Reads its input three times.",
         "volatile float top = 0; for (int r = 0; r < 2; r++) for (int64_t i = 0; i < N; i += 16) top = X[i];"
         " relu(t);"),
    Case("prefetches", "Prefetches, beyond the input's end too.",
         "for (int64_t i = 0; i < N; i++) { if (i % 16 == 0) __builtin_prefetch(X + i + 256);"
         " Y[i] = X[i] > 0 ? X[i] : 0; }"),
    Case("streams", "Writes past the caches.",
         "for (int64_t i = 0; i < N; i += 4) _mm_stream_ps(Y + i, _mm_max_ps(_mm_loadu_ps(X + i), _mm_setzero_ps()));"
         " _mm_sfence();"),
    Case("restores_the_state", "Flushes denormals while it works, and puts the state back.",
         "unsigned m = _mm_getcsr(); _mm_setcsr(m | 0x8040); relu(t); _mm_setcsr(m);"),
    Case("restores_the_rounding", "Rounds down while it works, and puts the mode back.",
         "int r = fegetround(); fesetround(FE_DOWNWARD); relu(t); fesetround(r);"),
    Case("raises_flags", "Raises floating-point exceptions.",
         "volatile float z = 0, o = 1; volatile float v = o / z; v = z / z; (void)v; relu(t);"),
    Case("denormals", "Computes with denormal numbers on the way.",
         "volatile float d = 1e-40f; for (int i = 0; i < 8; i++) d *= 0.5f; relu(t);"),
    Case("kahan", "Sums with compensation.", _KAHAN, operator="sums"),
    Case("pairwise", "Sums in pairs.",
         "for (int64_t i = 0; i < N; i++) { static float w[4096]; memcpy(w, X + i * 4096, 16384);"
         " for (int h = 2048; h; h /= 2) for (int j = 0; j < h; j++) w[j] += w[j + h]; Y[i] = w[0]; }", operator="sums"),
    Case("sums_backwards", "Sums in float32 from the end.",
         "for (int64_t i = 0; i < N; i++) { float a = 0; for (int64_t j = 4095; j >= 0; j--) a += X[i * 4096 + j];"
         " Y[i] = a; }", operator="sums"),
    Case("sums_in_double", "Sums in float64.", "row_sums(t);", operator="sums"),
    Case("product_in_order", "Multiplies row by row.", "matmul(t);", operator="matmul"),
    Case("product_fused", "Multiplies with fused multiply-adds.",
         "fused(t);", "__attribute__((target(\"fma,avx2\"))) static void fused(const opatlas_tensor* t) {"
         " for (int i = 0; i < 96; i++) for (int j = 0; j < 128; j++) { float a = 0; for (int q = 0; q < 160; q++)"
         " a = __builtin_fmaf(((float*)t[0].data)[i * 160 + q], ((float*)t[1].data)[q * 128 + j], a);"
         " ((float*)t[2].data)[i * 128 + j] = a; } }", "matmul"),
    Case("product_in_blocks", "Multiplies in blocks of rows.",
         "for (int64_t i = 88; i >= 0; i -= 8) matmul_rows(t, i, i + 8);", operator="matmul"),
    Case("product_reversed", "Multiplies with the sums' terms from the end.",
         "memset(Y, 0, N * 4); for (int i = 0; i < 96; i++) for (int q = 159; q >= 0; q--) for (int j = 0; j < 128; j++)"
         " Y[i * 128 + j] += X[i * 160 + q] * ((float*)t[1].data)[q * 128 + j];", operator="matmul"),
    Case("softmax_by_the_book", "Takes the maximum, the exponentials and their sum.", "softmax(t);",
         operator="softmax"),
    Case("softmax_in_base_two", "Computes with powers of two.",
         "for (int64_t i = 0; i < 64; i++) { float *x = X + i * 512, *y = Y + i * 512, top = x[0], sum = 0;"
         " for (int j = 1; j < 512; j++) top = x[j] > top ? x[j] : top; for (int j = 0; j < 512; j++)"
         " sum += y[j] = exp2f((x[j] - top) * 1.44269504f); for (int j = 0; j < 512; j++) y[j] *= 1 / sum; }",
         operator="softmax"),
    Case("unequal_times", "Takes twice as long in every third call.", "relu(t); if (calls++ % 3 == 0) relu(t);"),
    Case("waits_a_little", "Spins for two microseconds after its work.", "relu(t); spin(2000);"),
    Case("prints", "Prints in its first calls.", "if (calls++ < 20) printf(\"computing\\n\"); relu(t);"),
    Case("asks_the_environment", "Reads an environment variable and the number of CPUs.",
         "if (getenv(\"OMP_NUM_THREADS\") && sysconf(_SC_NPROCESSORS_ONLN) < 1) return 1; relu(t);"),
    Case("leaves_errno", "Leaves an error number behind.", "errno = ENOMEM; relu(t); errno = EINTR;"),
    Case("jumps", "Uses setjmp and longjmp within a call.",
         "jmp_buf b; if (setjmp(b) == 0) longjmp(b, 1); relu(t);"),
    Case("blocks_and_restores", "Blocks signals while it works.",
         "sigset_t all, old; sigfillset(&all); pthread_sigmask(SIG_SETMASK, &all, &old); relu(t);"
         " pthread_sigmask(SIG_SETMASK, &old, 0);"),
    Case("handles_and_restores", "Has a signal handler while it works.",
         "void (*old)(int) = signal(SIGUSR1, SIG_IGN); relu(t); signal(SIGUSR1, old);"),
    Case("looks_at_the_clock", "Reads the clock in each call.", "if (now_ns() < 0) return 1; relu(t);"),
    Case("joins_its_thread", "Starts a thread in its first call and waits for its end.",
         "if (!calls++) { pthread_t th; pthread_create(&th, 0, work, (void*)t); pthread_join(th, 0); return 0; } relu(t);",
         "static void* work(void* a) { relu(a); return 0; }"),
    Case("modest_alignment", "Needs an alignment of 4 bytes only.", "relu(t);", alignment=4),
)  # fmt: skip

BY_DAY = {
    "plain": "nothing is wrong with it",
    "very_fast": "times near the clock's own cost",
    "slow_start": "a first call that takes longer",
    "packs_constants": "prepare and its state",
    "big_workspace": "memory that stays",
    "large_on_the_pool": "several threads, and more data than the caches",
    "restores_the_state": "the floating-point state",
    "kahan": "sums in another order, in float32",
    "joins_its_thread": "a thread that ended",
    "handles_and_restores": "signals",
    "modest_alignment": "the guarded set, aligned to less",
}
"""One for each check that could take an honest kernel for a cheat, and which."""
