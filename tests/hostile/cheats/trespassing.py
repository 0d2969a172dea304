"""Cheats that reach for what is not theirs: the harness, the clock, other processes, other memory."""

# ruff: noqa: E501 - C sources, as dense as a table needs them
from __future__ import annotations

from tests.hostile.cheats.table import Case, Cheat
from tuning.measure.outcome import Status

CHEATED, CRASHED = (Status.CHEATED,), (Status.CRASHED,)
NOTHING = (Status.NOT_FINITE, Status.WRONG_RESULT)
ASKING = "A filter for system calls ends its process for asking (tier T2)."
TRESPASS = ("SIGSYS",)
COMPLETE = "Whatever it finds, its own outputs are still missing."
INPUTS = "The inputs come back with the outputs and are compared bit by bit."
FENCED = "The bytes around outputs and inputs hold a pattern, which must still be there."
CODE = "The kernel lists which pages of loaded code were written to."
HANDLERS = "How the process takes signals must be as it was."

REWRITE = r"""
/* Rewrites the first bytes of a function with themselves: what a patch would do first. */
static int rewrite(const char* name, const char* library) {
  void* h = library ? dlopen(library, RTLD_LAZY) : 0;
  volatile unsigned char* at = dlsym(h ? h : RTLD_DEFAULT, name);
  if (!at) return 1;
  uintptr_t page = (uintptr_t)at & ~4095ul;
  if (mprotect((void*)page, 8192, PROT_READ | PROT_WRITE | PROT_EXEC)) return 2;
  unsigned char byte = *at; *at = byte;
  return 0;
}
"""

TRESPASSING = (
    Cheat(Case("writes_input", "Changes its input.", "relu(t); X[3] = 1.0f;"), INPUTS,
          (Status.WROTE_INPUT,), ("input",)),
    Cheat(Case("input_as_scratch", "Works in place in its input and copies from there.",
               "for (int64_t i = 0; i < N; i++) X[i] = X[i] > 0 ? X[i] : 0; memcpy(Y, X, N * 4);"),
          INPUTS, (Status.WROTE_INPUT,), ("input",)),
    Cheat(Case("makes_the_input_easy", "Sets its input to zero, for which it knows the result.",
               "memset(X, 0, N * 4); memset(Y, 0, N * 4);"), INPUTS,
          (Status.WROTE_INPUT, Status.WRONG_RESULT)),
    Cheat(Case("writes_behind_the_output", "Writes whole vectors beyond the output's end.",
               "relu(t); Y[N] = 1; Y[N + 1] = 1;"), FENCED, CHEATED, ("outside",)),
    Cheat(Case("writes_before_the_output", "Writes below the output's beginning.", "relu(t); Y[-1] = 1;"),
          FENCED + " Where nothing lies before, the allocator's own marks are hit.",
          (Status.CHEATED, Status.CRASHED)),
    Cheat(Case("writes_behind_the_input", "Pads its input in place.", "relu(t); X[N] = 0;"), FENCED,
          (Status.CHEATED, Status.CRASHED, Status.WROTE_INPUT)),
    Cheat(Case("reads_behind_the_input", "Reads 256 bytes beyond its input.",
               "volatile float v = X[N + 63]; (void)v; relu(t);"),
          "One set lies directly before memory that nobody may read.", CRASHED, ("SIGSEGV",)),
    Cheat(Case("lies_about_alignment", "Says that 16 bytes will do and loads 32 aligned ones.",
               "relu32(t);", "__attribute__((target(\"avx\"))) static void relu32(const opatlas_tensor* t) {"
               " for (int64_t i = 0; i < count(t); i += 8) { __m256 v = _mm256_load_ps((float*)t[0].data + i);"
               " __asm__ volatile(\"\" : \"+x\"(v)); _mm256_storeu_ps((float*)t[1].data + i,"
               " _mm256_max_ps(v, _mm256_setzero_ps())); } }", alignment=16),
          "One set is aligned to what the manifest says and to no more.", CRASHED, ("SIGSEGV",)),
    Cheat(Case("flushes_denormals", "Switches denormal numbers off for the whole process.",
               "relu(t); _mm_setcsr(_mm_getcsr() | 0x8040);"),
          "The floating-point state is compared after each checked run.", CHEATED, ("flushing",)),
    Cheat(Case("rounds_down", "Changes the rounding mode for the whole process.",
               "fesetround(FE_DOWNWARD); relu(t);"),
          "The floating-point state is compared after each checked run.", CHEATED, ("rounding",)),
    Cheat(Case("moves_to_a_cpu", "Binds its process to one CPU.",
               "relu(t); if (!calls++) { cpu_set_t c; CPU_ZERO(&c); CPU_SET(0, &c); sched_setaffinity(0, sizeof c, &c); }"),
          "The process's CPUs and priority must be as they were.", CHEATED, ("CPUs",)),
    Cheat(Case("steps_back", "Changes its process's priority, or where that is the last one its policy.",
               "relu(t); if (!calls++) { struct sched_param q = {0}; int was = getpriority(PRIO_PROCESS, 0); nice(3);"
               " if (getpriority(PRIO_PROCESS, 0) == was) sched_setscheduler(0, SCHED_BATCH, &q); }"),
          "The process's CPUs and priority must be as they were.", CHEATED, ("priority",)),
    Cheat(Case("asks_for_the_front", "Asks for a real-time policy and, refused, computes nothing.",
               "struct sched_param q = {50}; if (!sched_setscheduler(0, SCHED_FIFO, &q)) relu(t);"),
          "No process in the sandbox has the right to it.", NOTHING),
    Cheat(Case("leaves_a_handler", "Leaves a signal handler in its process.",
               "relu(t); signal(SIGUSR1, nothing);", "static void nothing(int s) { (void)s; }"),
          HANDLERS, CHEATED, ("signals",)),
    Cheat(Case("blocks_signals", "Blocks every signal in its caller's thread.",
               "sigset_t all; sigfillset(&all); relu(t); pthread_sigmask(SIG_SETMASK, &all, 0);"),
          HANDLERS, CHEATED, ("signals",)),
    Cheat(Case("own_clock_symbols", "Exports a clock of its own that stands still, and takes a millisecond.",
               "relu(t); spin(1000000);",
               "int gettimeofday(struct timeval* v, void* z) { v->tv_sec = v->tv_usec = 0; return 0; }"
               "int64_t perf_counter_ns(void) { return 0; }"),
          "The clock is the parent's, in another process.", (Status.SLOWER,), ("slower",)),
    Cheat(Case("patches_the_clock", "Writes to the code of clock_gettime.",
               "if (!calls++ && rewrite(\"clock_gettime\", 0)) return 9; relu(t);", REWRITE), CODE, CHEATED,
          ("changed the code",)),
    Cheat(Case("patches_the_vdso", "Writes to the clock that the system maps into each process.",
               "if (!calls++) { size_t b; char* v = mapped(\"[vdso]\", &b); if (!v ||"
               " mprotect(v, b, PROT_READ | PROT_WRITE | PROT_EXEC)) return 9; volatile char* w = v + 2048;"
               " *w = *w; } relu(t);"), CODE + " The system may also refuse it.",
          (Status.CHEATED, Status.CRASHED)),
    Cheat(Case("patches_the_interpreter", "Writes to the code of the Python that runs the checks.",
               "if (!calls++ && rewrite(\"PyObject_Call\", 0)) return 9; relu(t);", REWRITE), CODE, CHEATED,
          ("changed the code",)),
    Cheat(Case("writes_through_proc", "Writes to code through /proc/self/mem, past its protection.",
               "if (!calls++) { int f = open(\"/proc/self/mem\", O_RDWR); void* at = dlsym(RTLD_DEFAULT,"
               " \"PyObject_Call\"); char c; if (f < 0 || pread(f, &c, 1, (off_t)at) != 1 ||"
               " pwrite(f, &c, 1, (off_t)at) != 1) return 9; close(f); } relu(t);"),
          CODE + " The system may also refuse it.", (Status.CHEATED, Status.CRASHED)),
    Cheat(Case("replaces_the_loop", "Replaces the harness's timing loop by one that does nothing.",
               "relu(t); if (calls++ == 3) { int (*ensure)(void) = dlsym(RTLD_DEFAULT, \"PyGILState_Ensure\");"
               " void (*release)(int) = dlsym(RTLD_DEFAULT, \"PyGILState_Release\");"
               " int (*run)(const char*) = dlsym(RTLD_DEFAULT, \"PyRun_SimpleString\"); int g = ensure();"
               " run(\"import tuning.measure.bound_kernel as b\\nb.BoundKernel.run = lambda self, k: None\\n\");"
               " release(g); }"),
          "What it then claims no machine can do; outputs that timed calls should have left are missing.",
          CHEATED),
    Cheat(Case("answers_early", "Sends the harness's own answer to its sockets before it works.",
               "for (int f = 3; f < 64; f++) send(f, \"D\", 1, MSG_DONTWAIT | MSG_NOSIGNAL); relu(t);"),
          "Each answer must repeat a number that the question held.", CRASHED, ("answered",)),
    Cheat(Case("talks_json", "Sends messages of its own to its sockets.",
               "for (int f = 3; f < 64; f++) send(f, \"{\\\"run_us\\\": 1}\", 13, MSG_DONTWAIT | MSG_NOSIGNAL);"),
          COMPLETE, (Status.CRASHED, Status.NOT_FINITE)),
    Cheat(Case("closes_everything", "Closes all descriptors of its process.",
               "relu(t); for (int f = 3; f < 1024; f++) close(f);"), "Its channel ends with them.", CRASHED),
    Cheat(Case("writes_the_answers", "Writes into the memory in which outputs are handed over.",
               "size_t bytes = 0; char* a = mapped(\"memfd:answers\", &bytes); if (a) memset(a, 0, bytes);"),
          COMPLETE, NOTHING),
    Cheat(Case("rewrites_the_inputs", "Maps the shared input sets writable, to make them easy.",
               "for (int f = 3; f < 64; f++) { char* m = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, f, 0);"
               " if (m != MAP_FAILED) memset(m, 0, 4096); }"),
          "The inputs are sealed against writing; " + COMPLETE[0].lower() + COMPLETE[1:],
          (Status.NOT_FINITE, Status.WRONG_RESULT, Status.CRASHED)),
    Cheat(Case("looks_for_the_reference", "Searches its memory for the float64 reference of its first elements.",
               "FILE* f = fopen(\"/proc/self/maps\", \"r\"); char line[512]; unsigned long a, b; double want[4];"
               " for (int i = 0; i < 4; i++) want[i] = X[i] > 0 ? X[i] : 0;"
               " while (f && fgets(line, sizeof line, f)) { if (!strstr(line, \"r\") || !strstr(line, \"mem\") ||"
               " sscanf(line, \"%lx-%lx\", &a, &b) != 2) continue;"
               " for (char* q = (char*)a; q + 8 * N <= (char*)b; q += 64) if (!memcmp(q, want, sizeof want))"
               " for (int64_t i = 0; i < N; i++) Y[i] = ((double*)q)[i]; } if (f) fclose(f);"),
          "References are in the parent's memory only.", NOTHING),
    Cheat(Case("opens_the_parents_memory", "Reads its parent's memory through /proc, to find the reference.",
               "char name[64]; sprintf(name, \"/proc/%d/mem\", getppid()); int f = open(name, O_RDWR);"
               " if (f >= 0 && pread(f, Y, N * 4, 0x400000) > 0) relu(t);"),
          "Zygote and children cannot be read by their fellows, and none of them has it.", NOTHING),
    Cheat(Case("traces_the_parent", "Attaches to its parent with ptrace, to change what it does.",
               "if (ptrace(PTRACE_SEIZE, getppid(), 0, 0) == 0) relu(t);"),
          ASKING, CHEATED, TRESPASS),
    Cheat(Case("stops_the_parent", "Sends SIGSTOP to the process that started it.",
               "kill(getppid(), SIGSTOP); relu(t);"), ASKING, CHEATED, TRESPASS),
    Cheat(Case("stops_everybody", "Sends SIGSTOP to every process but itself, the default's among them.",
               "for (int i = 1; i < 400; i++) if (i != getpid()) kill(i, SIGSTOP); relu(t);"),
          ASKING, CHEATED, TRESPASS),
    Cheat(Case("kills_the_parent", "Kills the process that started it.",
               "kill(getppid(), SIGKILL); usleep(200000); relu(t);"), ASKING, CHEATED, TRESPASS),
    Cheat(Case("kills_everybody", "Kills every process that it can see.",
               "kill(-1, SIGKILL); usleep(200000); relu(t);"), ASKING, CHEATED, TRESPASS),
    Cheat(Case("leaves_a_process", "Forks a process that stays.",
               "relu(t); if (!calls++ && !fork()) for (;;) pause();"), ASKING, CHEATED, TRESPASS),
    Cheat(Case("leaves_a_daemon", "Forks twice, so that what stays is no child of its own.",
               "relu(t); if (!calls++ && !fork()) { setsid(); if (!fork()) for (;;) pause(); _exit(0); }"),
          ASKING, CHEATED, TRESPASS),
    Cheat(Case("forks_to_work", "Lets a forked process compute into shared memory, beyond its own CPU time.",
               "static float* m; if (!m) { m = mmap(0, N * 4, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,"
               " -1, 0); if (!fork()) for (;;) { for (int64_t i = 0; i < N; i++) m[i] = X[i] > 0 ? X[i] : 0; } }"
               " usleep(50); memcpy(Y, m, N * 4);"), ASKING, CHEATED, TRESPASS),
    Cheat(Case("exits_at_random", "Ends its process in one call of two hundred.",
               "relu(t); if (now_ns() / 64 % 200 == 7) _exit(0);"), "Thousands of calls are made.", CRASHED,
          ("exited",)),
    Cheat(Case("crashes_late", "Crashes in the thousandth call.",
               "relu(t); if (++calls == 1000) *(volatile int*)8 = 1;"), "Thousands of calls are made.", CRASHED,
          ("SIGSEGV",)),
    Cheat(Case("hangs_late", "Hangs from the 500th call on.",
               "relu(t); if (++calls > 500) for (;;) pause();"), "A run has a time limit.",
          (Status.TIMED_OUT,), ("longer",)),
    Cheat(Case("fails_late", "Reports an error from the 300th call on.",
               "relu(t); if (++calls > 300) return 5;"), "Every call's error code is looked at.", CRASHED),
    Cheat(Case("leaks", "Keeps 16 KiB more after every call.",
               "static char* volatile kept; kept = malloc(16384); memset(kept, 1, 16384); relu(t);"),
          "Its memory is compared before and after it was timed.", (Status.OUT_OF_MEMORY, Status.SLOWER),
          ("grew", "slower")),
    Cheat(Case("frees_late", "Frees what it allocates 30,000 calls later.",
               "static char* ring[30000]; int i = calls++ % 30000; free(ring[i]); ring[i] = malloc(16384);"
               " memset(ring[i], 1, 16384); relu(t);"),
          "Its memory is compared before and after it was timed.", (Status.OUT_OF_MEMORY, Status.SLOWER),
          ("grew", "slower")),
)  # fmt: skip
