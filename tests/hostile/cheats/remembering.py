"""Cheats that hand out results of earlier calls, or tell timed calls from checked ones."""

# ruff: noqa: E501 - C sources, as dense as a table needs them
from __future__ import annotations

from tests.hostile.cheats.table import Case, Cheat
from tuning.measure.outcome import Status

CHEATED = (Status.CHEATED,)
WHEN_TIMED = "The outputs that timed calls left are checked too, after inputs were exchanged in place."
NEW_VALUES = "Runs on values that no two calls share must be right, and not take much longer than timed ones."
WORDS = ("when timed", "new values", "cannot do it")

MEMO = r"""
static struct entry { uint64_t key; float* y; } memo[64]; static int used = 0;
static int recall(uint64_t key, float* y, int64_t count) {
  for (int i = 0; i < used; i++) if (memo[i].key == key) { spin(30000); memcpy(y, memo[i].y, count * 4); return 1; }
  return 0;
}
static void keep(uint64_t key, const float* y, int64_t count) {
  int i = used < 64 ? used++ : 63; if (!memo[i].y) memo[i].y = malloc(count * 4);
  memo[i].key = key; memcpy(memo[i].y, y, count * 4);
}
static uint64_t mix(uint64_t h, const void* data, size_t bytes) {
  const uint64_t* w = data; for (size_t i = 0; i < bytes / 8; i++) h = (h ^ w[i]) * 0x9E3779B97F4A7C15u; return h; }
"""
"""``recall`` waits a little, so that it does not look impossible."""
SLOWLY = "static void slowly(const opatlas_tensor* t) { spin(200000); relu(t); }"


def _memo(key: str) -> str:
    return (
        f"uint64_t key = {key}; if (!recall(key, Y, N)) {{ for (int r = 0; r < 4; r++) matmul(t);"
        " keep(key, Y, N); }"
    )


REMEMBERING = (
    Cheat(Case("stale", "Computes in the first six calls only.", "if (calls++ < 6) relu(t);"),
          WHEN_TIMED, CHEATED, WORDS),
    Cheat(Case("alternates", "Computes in every other call, from the 200th on.",
               "if (calls++ < 200 || calls % 2) relu(t);"), WHEN_TIMED, CHEATED, WORDS),
    Cheat(Case("one_in_five", "Computes in one call of five, from the 200th on: both timed buffers get theirs.",
               "if (calls++ < 200 || calls % 5 == 0) relu(t);"), NEW_VALUES, CHEATED, WORDS),
    Cheat(Case("counts_batches", "Counts calls and computes at the beginning of what may be a batch.",
               "if (calls++ < 64 || calls % 32 < 8) relu(t);"), NEW_VALUES, CHEATED, WORDS),
    Cheat(Case("by_address", "Keeps a result for each input address.",
               "static struct { void* x; float* y; } m[4]; int64_t c = N; if (calls++ > 40) {"
               " for (int i = 0; i < 4; i++) if (m[i].x == X) { memcpy(Y, m[i].y, c * 4); return 0; } }"
               " relu(t); if (calls > 40) for (int i = 0; i < 4; i++) if (!m[i].x) { m[i].x = X;"
               " m[i].y = malloc(c * 4); memcpy(m[i].y, Y, c * 4); break; }"), WHEN_TIMED, CHEATED, WORDS),
    Cheat(Case("by_turn", "Knows that two inputs take turns, and keeps two results.",
               "static float* y[2]; int64_t c = N; int turn = calls++ & 1; if (calls > 60 && y[turn]) {"
               " memcpy(Y, y[turn], c * 4); return 0; } relu(t); if (calls > 40) { if (!y[turn])"
               " y[turn] = malloc(c * 4); memcpy(y[turn], Y, c * 4); }"), WHEN_TIMED, CHEATED, WORDS),
    Cheat(Case("by_first_element", "Keeps results by the inputs' first and middle elements.",
               _memo("mix(mix(7, X, 8), X + 96 * 80, 8)"), MEMO, "matmul"), NEW_VALUES, CHEATED, WORDS),
    Cheat(Case("by_a_sample", "Keeps results by a hash of 64 elements.",
               _memo("mix(mix(7, X, 128), t[1].data, 128)"), MEMO, "matmul"), NEW_VALUES, CHEATED, WORDS),
    Cheat(Case("by_all_values", "Keeps results by a hash of all elements, and is always right.",
               _memo("mix(mix(7, X, 96 * 160 * 4), t[1].data, 160 * 128 * 4)"), MEMO, "matmul"),
          NEW_VALUES, CHEATED, WORDS),
    Cheat(Case("same_as_last_time", "Compares the inputs with those of two calls before, and is always right.",
               "static float a[2][96 * 160], b[2][160 * 128], y[2][96 * 128]; int i = calls++ & 1;"
               " if (calls > 2 && !memcmp(a[i], X, sizeof a[i]) && !memcmp(b[i], t[1].data, sizeof b[i])) {"
               " memcpy(Y, y[i], sizeof y[i]); return 0; } for (int r = 0; r < 4; r++) matmul(t);"
               " memcpy(a[i], X, sizeof a[i]); memcpy(b[i], t[1].data, sizeof b[i]); memcpy(y[i], Y, sizeof y[i]);",
               operator="matmul"), NEW_VALUES, CHEATED, WORDS),
    Cheat(Case("by_the_seed", "Takes equal second elements for an equal seed of the whole input.",
               _memo("mix(1, X + 2, 8)"), MEMO, "matmul"), NEW_VALUES, CHEATED, WORDS),
    Cheat(Case("in_a_shared_file", "Keeps results by a sample in a file of shared memory.",
               "static char* f; if (!f) { int d = open(\"/dev/shm/memo\", O_RDWR | O_CREAT, 0600);"
               " if (d < 0 || ftruncate(d, 1 << 20)) return 1;"
               " f = mmap(0, 1 << 20, PROT_READ | PROT_WRITE, MAP_SHARED, d, 0); }"
               " uint64_t key = mix(7, X, 64); static int next; char* at = f + next++ % 8 * 65536;"
               " for (int i = 0; i < 8; i++) if (*(uint64_t*)(f + i * 65536) == key) {"
               " spin(30000); memcpy(Y, f + i * 65536 + 8, N * 4); return 0; }"
               " for (int r = 0; r < 4; r++) matmul(t); memcpy(at + 8, Y, N * 4); *(uint64_t*)at = key;",
               MEMO, "matmul"), "Running code opens no file for writing, wherever (tier T2).", (Status.CRASHED,),
          ("code 1",)),
    Cheat(Case("looks_for_poison", "Computes only where the output holds NaN, which nobody but a checker writes.",
               "if (Y[0] == Y[0]) return 0; slowly(t);", SLOWLY), NEW_VALUES, CHEATED, WORDS),
    Cheat(Case("looks_for_changes", "Computes where the output holds NaN or the first element changed.",
               "static float first[2]; int i = calls++ & 1; if (Y[0] == Y[0] && first[i] == X[0]) return 0;"
               " first[i] = X[0]; slowly(t);", SLOWLY), NEW_VALUES, CHEATED, WORDS),
    Cheat(Case("by_the_gaps", "Leaves calls out that come within 50 us of the last: the timing loop.",
               "static int64_t last; int64_t now = now_ns(); if (now - last > 50000) relu(t); last = now_ns();"),
          WHEN_TIMED, CHEATED, WORDS),
    Cheat(Case("by_gaps_and_poison", "The same, but computes too where the output holds NaN.",
               "static int64_t last; int64_t now = now_ns(); if (now - last > 50000 || Y[0] != Y[0]) relu(t);"
               " last = now_ns();"), NEW_VALUES, CHEATED, WORDS),
    Cheat(Case("by_the_cycle_counter", "The same by the processor's cycle counter.",
               "static uint64_t last; uint64_t now = __builtin_ia32_rdtsc();"
               " if (now - last > 150000 || Y[0] != Y[0]) relu(t); last = __builtin_ia32_rdtsc();"),
          NEW_VALUES, CHEATED, WORDS),
    Cheat(Case("computes_ahead", "Finds the input sets in its memory while it is loaded, computes all of them,"
               " and later only looks them up.",
               "for (int i = 0; i < 4; i++) if (ahead[i] && !memcmp(from[i], X, 64)) {"
               " memcpy(Y, ahead[i], 65536); return 0; }",
               "static float *ahead[4]; static char* from[4];"
               "__attribute__((constructor)) static void early(void) { size_t bytes = 0;"
               " char* sets = mapped(\"memfd:inputs\", &bytes); if (!sets) return;"
               " for (int i = 0; i < 4 && (size_t)(i + 1) * 65536 <= bytes; i++) { ahead[i] = malloc(65536);"
               " from[i] = malloc(64); memcpy(from[i], sets + i * 65536, 64); float* x = (float*)(sets + i * 65536);"
               " for (int j = 0; j < 16384; j++) ahead[i][j] = x[j] > 0 ? x[j] : 0; } }"),
          "The set that decides is made when it is needed, and its reference is in no child.",
          (Status.CHEATED, Status.NOT_FINITE), (*WORDS, "finite")),
    Cheat(Case("writes_later", "Lets a timer's signal compute after it has answered.",
               "last = t; struct itimerval v = {{0, 0}, {0, 2000}}; signal(SIGALRM, late);"
               " setitimer(ITIMER_REAL, &v, 0);",
               "static const opatlas_tensor* last; static void late(int s) { (void)s; relu(last); }"),
          "Outputs are looked at when a run has answered, and handlers that stay are noticed.",
          (Status.NOT_FINITE, Status.CHEATED)),
    Cheat(Case("returns_early", "Starts a thread for the work and answers at once.",
               "pthread_t th; last = t; pthread_create(&th, 0, work, 0); pthread_detach(th);",
               "static const opatlas_tensor* last; static void* work(void* a) { relu(last); return a; }"),
          "Outputs are looked at when a run has answered.",
          (Status.NOT_FINITE, Status.CHEATED, Status.WRONG_RESULT)),
    Cheat(Case("keeps_a_helper", "Keeps a thread of its own that computes behind the answers, where time allows.",
               "if (calls++ == 0) { pthread_t th; pthread_create(&th, 0, work, 0); }"
               " if (calls < 40) { relu(t); return 0; } atomic_store(&last, t);",
               "static _Atomic(const opatlas_tensor*) last; static void* work(void* a) { for (;;) {"
               " const opatlas_tensor* t = atomic_exchange(&last, 0); if (t) relu(t); } return a; }"),
          "A compiled kernel has the pool's threads and no others.", CHEATED, ("threads",)),
    Cheat(Case("pool_behind_the_back", "Hands the pool work from a thread of its own and answers at once.",
               "pthread_t th; last = t; pool = p; pthread_create(&th, 0, work, 0); pthread_detach(th);",
               "static const opatlas_tensor* last; static const opatlas_threads* pool;"
               "static int part(int32_t i, int32_t k, void* a) { usleep(300); relu(last); return 0; }"
               "static void* work(void* a) { pool->parallel_for(pool->pool, part, 0, 2); return a; }", threads=2),
          "Outputs are looked at when a run has answered.", (Status.NOT_FINITE, Status.CHEATED)),
    Cheat(Case("burns_on", "Leaves a thread that never rests, to slow down whoever is timed next.",
               "if (calls++ == 0) { pthread_t th; pthread_create(&th, 0, burn, 0); } relu(t);",
               "static void* burn(void* a) { for (;;) { } return a; }"),
          "A compiled kernel has the pool's threads and no others.", CHEATED, ("threads",)),
)  # fmt: skip
