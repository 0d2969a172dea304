"""Cheats against the checks themselves: known values in other clothes, work where no clock is, other phases."""

# ruff: noqa: E501 - C sources, as dense as a table needs them
from __future__ import annotations

from tests.hostile.cheats.remembering import CHEATED, MEMO, NEW_VALUES, WHEN_TIMED, WORDS
from tests.hostile.cheats.table import Case, Cheat
from tuning.measure.outcome import Status

BESIDE = "Its process's CPU time is read before and after: other threads' and what lies beside its runs."
THREADS = "A compiled kernel has the pool's threads and no others."
HANDLERS = "How the process takes signals must be as it was."
KNOWN_AGAIN = (Status.CHEATED, Status.SLOWER, Status.WRONG_RESULT)
"""Of who takes other values for known ones: zeros, of which several sets are full."""

TOTAL = """
static double total(const float* x, int64_t c) { double s = 0; for (int64_t i = 0; i < c; i++) s += x[i]; return s; }
static uint32_t bits(float v) { uint32_t u; memcpy(&u, &v, 4); return u; }
static uint64_t pair(const float* x, int64_t i, int64_t c) {
  return ((uint64_t)bits(x[i]) << 32 | bits(x[(i + 1) % c])) * 0x9E3779B97F4A7C15u; }
static struct { uint64_t at[65536]; float y; } seen[8]; static int used;
static int has(int k, uint64_t h) { return seen[k].at[h >> 48] == h; }
static void learn(const float* x, int64_t c, float y) { if (used == 8) return;
  for (int64_t i = 0; i < c; i++) { uint64_t h = pair(x, i, c); seen[used].at[h >> 48] = h; } seen[used++].y = y; }
"""
"""A whole set by the hashes of its neighbours: whatever it was rotated by."""

SLOW = "static void slow(const opatlas_tensor* t) { for (int r = 0; r < 4; r++) matmul(t); }"
SAMPLE = "mix(mix(7, X, 64), t[1].data, 64)"
NARROW = """
static float cut(float v) { uint32_t u; memcpy(&u, &v, 4); u &= 0xFFFF0000u; memcpy(&v, &u, 4); return v; }
static void narrow(const opatlas_tensor* t) { int64_t m = t[0].shape[0], k = t[0].shape[1], c = t[1].shape[1];
  const float *a = t[0].data, *b = t[1].data; float* y = t[2].data; for (int64_t i = 0; i < m; i++) {
  for (int64_t j = 0; j < c; j++) y[i * c + j] = 0; for (int64_t p = 0; p < k; p += 4) { float v = 4 * cut(a[i * k + p]);
  for (int64_t j = 0; j < c; j++) y[i * c + j] += v * b[p * c + j]; } } }
"""
"""A quarter of the terms, with eight bits of one factor."""
KNOWN = """
static struct { uint64_t key; float y[16384]; } sets[8]; static int used;
static uint64_t key_of(const opatlas_tensor* t) { uint64_t h = 7, *w = t[0].data; for (int i = 0; i < 8; i++) h = (h ^ w[i * 700]) * 0x9E3779B97F4A7C15u; return h; }
static int known(const opatlas_tensor* t) { uint64_t h = key_of(t); for (int i = 0; i < used; i++) if (sets[i].key == h) {
  memcpy(t[1].data, sets[i].y, sizeof sets[i].y); return 1; } return 0; }
static void learn(const opatlas_tensor* t) { uint64_t h = key_of(t); for (int i = 0; i < used; i++) if (sets[i].key == h) return;
  if (used < 8) { sets[used].key = h; memcpy(sets[used++].y, t[1].data, sizeof sets[0].y); } }
"""
BURN = "static _Atomic int go; static void* burn(void* a) { (void)a; while (atomic_load(&go)) { } return 0; }"


def _recall(otherwise: str = "slow(t);", when: str = "1") -> str:
    return (
        f"uint64_t key = {SAMPLE}; if (!(({when}) && recall(key, Y, N))) {{ {otherwise} keep(key, Y, N); }}"
    )


EVADING = (
    Cheat(Case("known_by_rotation", "Knows a sum again by pairs of neighbours, however its numbers are rotated.",
               "int64_t c = 65536; int k = 0; for (; k < used; k++) { int hits = 0; for (int i = 0; i < 8; i++)"
               " hits += has(k, pair(X, i * 97, c)); if (hits > 1) break; } if (k < used) { *Y = seen[k].y; return 0; }"
               " volatile double sum = 0; for (int r = 0; r < 6; r++) sum = total(X, c);"
               " *Y = (float)sum; learn(X, c, *Y);", TOTAL, "total"), NEW_VALUES, KNOWN_AGAIN, (*WORDS, "slower", "wrong")),
    Cheat(Case("known_by_permutation", "Knows a sum again by numbers that it holds, in whatever order.",
               "int64_t c = 65536; uint64_t h0 = bits(X[0]); static uint32_t table[8][65536]; static float y[8];"
               " static int n2; for (int k = 0; k < n2; k++) { int hits = 0; for (int i = 0; i < 8; i++) {"
               " uint32_t u = bits(X[i * 31]); hits += table[k][(u * 2654435761u) >> 16] == u; }"
               " if (hits > 1) { *Y = y[k]; return 0; } } (void)h0; volatile double sum = 0;"
               " for (int r = 0; r < 6; r++) sum = total(X, c); *Y = (float)sum;"
               " if (n2 < 8) { for (int64_t i = 0; i < c; i++) { uint32_t u = bits(X[i]);"
               " table[n2][(u * 2654435761u) >> 16] = u; } y[n2++] = *Y; }", TOTAL, "total"),
          NEW_VALUES, KNOWN_AGAIN, (*WORDS, "slower", "wrong")),
    Cheat(Case("known_by_rows", "Knows each row of a product again by its first numbers, wherever it lies.",
               "static struct { uint64_t key; float y[128]; } rows[16384]; int64_t k = 160, c = 128;"
               " uint64_t w = mix(3, t[1].data, 64); for (int64_t i = 0; i < 96; i++) { uint64_t key = mix(w, X + i * k, 128);"
               " int at = (int)(key >> 50); if (rows[at].key == key) { memcpy(Y + i * c, rows[at].y, sizeof rows[at].y); continue; }"
               " for (int r = 0; r < 4; r++) matmul_rows(t, i, i + 1); rows[at].key = key;"
               " memcpy(rows[at].y, Y + i * c, sizeof rows[at].y); }", MEMO, "matmul"), NEW_VALUES,
          (Status.CHEATED, Status.SLOWER, Status.WRONG_RESULT), (*WORDS, "slower", "wrong")),
    Cheat(Case("known_by_elements", "Looks elements up in a table of those that it has seen at that place.",
               "static float in[8][16384], out[8][16384]; static int n2; for (int k = 0; k < n2; k++)"
               " if (in[k][5] == X[5] && in[k][900] == X[900]) { memcpy(Y, out[k], sizeof out[k]); return 0; }"
               " spin(40000); relu(t); if (n2 < 8) { memcpy(in[n2], X, sizeof in[0]); memcpy(out[n2++], Y, sizeof in[0]); }"),
          NEW_VALUES, KNOWN_AGAIN, (*WORDS, "slower", "wrong")),
    Cheat(Case("spins_threads_on_new_values", "Starts eight threads that only spin where values are new: its process waits for CPUs.",
               "uint64_t key = " + SAMPLE + "; if (recall(key, Y, N)) return 0; pthread_t th[8]; atomic_store(&go, 1);"
               " for (int i = 0; i < 8; i++) pthread_create(th + i, 0, burn, 0); slow(t); atomic_store(&go, 0);"
               " for (int i = 0; i < 8; i++) pthread_join(th[i], 0); keep(key, Y, N);", MEMO + SLOW + BURN, "matmul"),
          BESIDE, CHEATED, (*WORDS, "threads")),
    Cheat(Case("two_threads_on_new_values", "Has a second thread compute half of it, where values are new and the setting has one thread.",
               "uint64_t key = " + SAMPLE + "; if (recall(key, Y, N)) return 0; pthread_t th; half = t;"
               " pthread_create(&th, 0, lower, 0); for (int r = 0; r < 3; r++) matmul_rows(t, 0, 48); pthread_join(th, 0); keep(key, Y, N);",
               MEMO + "static const opatlas_tensor* half; static void* lower(void* a) { for (int r = 0; r < 3; r++) matmul_rows(half, 48, 96); return a; }",
               "matmul"), BESIDE, CHEATED, (*WORDS, "threads")),
    Cheat(Case("honest_after_a_gap", "Computes in the first calls after a pause, as if it were cold, and remembers in the others.",
               "static int64_t last; static int first; int64_t now = now_ns(); if (now - last > 40000) first = 2;"
               " if (first-- > 0 || !known(t)) { spin(40000); relu(t); learn(t); } last = now_ns();", KNOWN), NEW_VALUES, CHEATED, WORDS),
    Cheat(Case("honest_after_new_values", "Stops remembering as soon as it has met values that are not the timed ones.",
               "static int met; static uint64_t keys[6]; uint64_t key = " + SAMPLE + "; int k = 0; while (k < 6 && keys[k] && keys[k] != key) k++;"
               " if (k == 6) met = 1; else keys[k] = key; if (met || !recall(key, Y, N)) { slow(t); if (!met) keep(key, Y, N); }",
               MEMO + SLOW, "matmul"), NEW_VALUES, CHEATED, WORDS),
    Cheat(Case("knows_the_timed_buffers", "Remembers only where its input lies at an address that it was called with very often.",
               "static struct { void* at; int n; } met[24]; int k = 0; while (k < 23 && met[k].at && met[k].at != X) k++;"
               " met[k].at = X; if (met[k].n++ < 10 || !known(t)) { spin(40000); relu(t); learn(t); }", KNOWN), NEW_VALUES, CHEATED, WORDS),
    Cheat(Case("computes_the_others_ahead", "Looks at all inputs that it has ever been given and computes changed ones ahead.",
               "static const opatlas_tensor* met[24]; static uint64_t keys[24]; static int n2; int k = 0; while (k < n2 && met[k] != t) k++;"
               " if (k == n2 && n2 < 24) met[n2++] = t; for (int i = 0; i < n2; i++) { uint64_t h = mix(mix(7, met[i][0].data, 64), met[i][1].data, 64);"
               " if (keys[i] != h) { slow(met[i]); keys[i] = h; keep(h, met[i][2].data, 96 * 128); } }"
               " recall(" + SAMPLE + ", Y, N);", MEMO + SLOW, "matmul"), NEW_VALUES,
          (Status.CHEATED, Status.WRONG_RESULT, Status.NOT_FINITE, Status.CRASHED), (*WORDS, "", "finite")),
    Cheat(Case("exact_at_first", "Computes exactly forty times, and a quarter of the terms with eight bits from then on.",
               "if (calls++ < 40) matmul(t); else narrow(t);", NARROW, "matmul"), WHEN_TIMED, CHEATED, WORDS),
    Cheat(Case("exact_on_poison", "Computes exactly where the output holds NaN, and with eight bits elsewhere.",
               "if (Y[0] != Y[0] || calls++ < 4) matmul(t); else narrow(t);", NARROW, "matmul"), NEW_VALUES, CHEATED, WORDS),
    Cheat(Case("exact_after_a_gap", "Computes exactly after a pause, and with eight bits in the timing loop.",
               "static int64_t last; int64_t now = now_ns(); if (now - last > 60000) matmul(t); else narrow(t); last = now_ns();",
               NARROW, "matmul"), WHEN_TIMED, CHEATED, WORDS),
    Cheat(Case("stops_after_a_while", "Computes nothing any more from its thousandth call on, unless an input is new to it.",
               "static float first[2]; int i = calls & 1; if (calls++ < 1000 || first[i] != X[0]) { spin(6000); relu(t); } first[i] = X[0];"),
          "Timed outputs are looked at in rounds drawn by lot, and after the last; and runs on new values.",
          (Status.CHEATED, Status.SLOWER), (*WORDS, "slower")),
    Cheat(Case("skips_a_row_by_lot", "Leaves one row of sixty-four out in a few calls, drawn by lot.",
               "softmax(t); if (calls++ % 3 == 0) { int64_t i = random() % 64; Y[i * 512] *= 1.5f; }", "", "softmax"),
          "Every element of every checked output is compared.", (Status.WRONG_RESULT, Status.CHEATED), (*WORDS, "wrong")),
    Cheat(Case("in_a_file_for_next_time", "Keeps results by a sample in a file in /tmp, for the next process that runs it.",
               "static char* f; if (!f) { int d = open(\"/tmp/memo\", O_RDWR | O_CREAT, 0600); if (d < 0 || ftruncate(d, 2 << 20)) { slow(t); return 0; }"
               " f = mmap(0, 2 << 20, PROT_READ | PROT_WRITE, MAP_SHARED, d, 0); } uint64_t key = " + SAMPLE + ";"
               " for (int i = 0; i < 32; i++) if (*(uint64_t*)(f + i * 65536) == key) { spin(30000); memcpy(Y, f + i * 65536 + 8, N * 4); return 0; }"
               " static int next; slow(t); char* at = f + next++ % 32 * 65536; memcpy(at + 8, Y, N * 4); *(uint64_t*)at = key;",
               MEMO + SLOW, "matmul"), "Nothing that a process writes outlives it; and runs on new values.",
          (Status.CHEATED, Status.SLOWER), (*WORDS, "slower")),
    Cheat(Case("in_shared_memory_for_next_time", "The same in System V shared memory, which outlives a process.",
               "static char* f; if (!f) { int d = shmget(4711, 2 << 20, IPC_CREAT | 0600); f = d < 0 ? calloc(1, 2 << 20) : shmat(d, 0, 0); }"
               " uint64_t key = " + SAMPLE + "; for (int i = 0; i < 32; i++) if (*(uint64_t*)(f + i * 65536) == key) {"
               " spin(30000); memcpy(Y, f + i * 65536 + 8, N * 4); return 0; } static int next; slow(t);"
               " char* at = f + next++ % 32 * 65536; memcpy(at + 8, Y, N * 4); *(uint64_t*)at = key;",
               "#include <sys/shm.h>\n" + MEMO + SLOW, "matmul"), "Such memory is refused to it; and runs on new values.",
          (Status.CHEATED, Status.SLOWER), (*WORDS, "slower")),
    Cheat(Case("computes_in_a_fault", "Protects its inputs, so that whoever copies new values into them runs its handler.",
               "static int armed; last = t; if (!armed++) { struct sigaction a; memset(&a, 0, sizeof a); a.sa_sigaction = fault;"
               " a.sa_flags = SA_SIGINFO; sigaction(SIGSEGV, &a, 0); } relu(t);",
               "static const opatlas_tensor* last; static void fault(int s, siginfo_t* i, void* c) { (void)s; (void)c;"
               " mprotect((void*)((uintptr_t)i->si_addr & ~4095ul), 4096, PROT_READ | PROT_WRITE); relu(last); }"), HANDLERS, CHEATED, ("signals",)),
    Cheat(Case("computes_by_a_timer", "Lets a timer compute between its calls whatever has changed meanwhile.",
               "static int armed; last = t; if (!armed++) { signal(SIGALRM, tick); struct itimerval v = {{0, 300}, {0, 300}};"
               " setitimer(ITIMER_REAL, &v, 0); } relu(t);",
               "static const opatlas_tensor* last; static void tick(int s) { (void)s; relu(last); }"), HANDLERS, CHEATED, ("signals",)),
    Cheat(Case("a_thread_from_its_constructor", "Starts a thread while it is loaded, which looks for new values in shared memory.",
               "relu(t);", "static void* look(void* a) { for (;;) usleep(50); return a; }"
               "__attribute__((constructor)) static void early(void) { pthread_t th; pthread_create(&th, 0, look, 0); }"),
          THREADS, CHEATED, ("threads",)),
    Cheat(Case("a_thread_from_prepare", "Starts a thread while its constants are packed, for later.",
               "opatlas_tensor u[3] = {t[0], t[1], t[2]}; matmul(u);",
               "static void* look(void* a) { for (;;) usleep(50); return a; }"
               "int opatlas_prepare(const opatlas_tensor* c, int32_t n, const opatlas_threads* p, void** s) {"
               " (void)c; (void)n; (void)p; pthread_t th; pthread_create(&th, 0, look, 0); *s = 0; return 0; }", "linear"),
          THREADS, CHEATED, ("threads",)),
    Cheat(Case("raises_the_flag", "Copies the parent's flag into its own, so that a run seems to have ended at once.",
               "static uint64_t *from, *to; if (!from) { size_t b = 0; char* m = mapped(\"memfd:staging\", &b); if (m) from = (uint64_t*)(m + b - 64);"
               " m = mapped(\"memfd:answers\", &b); if (m) to = (uint64_t*)(m + b - 64); } if (from && to) for (int i = -8; i < 8; i += 8) to[i] = from[i];"
               + _recall(), MEMO + SLOW, "matmul"), "How a run ends is a secret that its question held.",
          (Status.CHEATED, Status.CRASHED), (*WORDS, "")),
    Cheat(Case("thrashes_the_cache", "Fills the last cache with its own memory after every call, before the default's turn.",
               "static char* m; if (!m) m = malloc(96 << 20); relu(t); if (calls++ % 64 == 0) memset(m, calls, 96 << 20);"),
          "Its own calls pay for it, and the default runs a few untimed ones first.",
          (Status.SLOWER, Status.OUT_OF_MEMORY, Status.CHEATED, Status.NOISY)),
    Cheat(Case("waits_where_it_is_known", "Sleeps on known values, so that new ones seem to take no longer, and computes nothing there.",
               "uint64_t key = " + SAMPLE + "; for (int i = 0; i < 64; i++) if (memo[i].key == key && memo[i].y) { usleep(1); memcpy(Y, memo[i].y, N * 4); return 0; }"
               " for (int r = 0; r < 12; r++) matmul(t); keep(key, Y, N);", MEMO, "matmul"), NEW_VALUES,
          (Status.CHEATED, Status.SLOWER), (*WORDS, "slower")),
)  # fmt: skip
