/* The one thread pool of a process: every compiled Opatlas kernel runs its parallel loops on it.
 *
 * A parallel_for publishes one job: its tasks are claimed one by one (so uneven tasks balance) by the caller
 * and by as many workers as its handle allows. The word `ticket` holds the job's number, how many threads
 * may take part and how many tasks are left to claim. A task is claimed by a compare-and-swap of that word,
 * and the job's other fields are read only after a claim: while a claimed task is unfinished the caller
 * cannot return, so they stand still. A worker that wakes late finds no task left and goes back to sleep;
 * the caller never waits for it.
 *
 * No call can deadlock: a nested parallel_for, or one from a second thread while a job is running, does all
 * its tasks itself. Threads start on first use and, after a fork, again on first use in the child.
 */
#define _GNU_SOURCE /* CPU_COUNT, sched_getaffinity */
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <unistd.h>

#include "opatlas_abi.h"

#define MAX_THREADS 1024
#define SPIN_ROUNDS 4000 /* about 50 us: longer than the gap between two kernels of a job, then sleep */
#define CACHE_LINE 64

#define LEFT(ticket) ((uint32_t)(ticket))
#define ALLOWED(ticket) ((uint32_t)((ticket) >> 32) & 0xfff)
#define NUMBER(ticket) ((uint32_t)((ticket) >> 44))
#define TICKET(number, allowed, left) \
  (((uint64_t)(number) << 44) | ((uint64_t)(allowed) << 32) | (uint64_t)(left))

typedef struct {
  int32_t count; /* threads a kernel may use, the caller's included */
} handle;

static _Alignas(CACHE_LINE) _Atomic uint64_t ticket;
static _Alignas(CACHE_LINE) _Atomic int32_t finished;
static _Alignas(CACHE_LINE) _Atomic int32_t failure;
static _Atomic int32_t sleepers;
static _Atomic int32_t stopping;
static _Atomic int32_t caller_sleeps;
static opatlas_body job_body;
static void* job_arg;
static int32_t job_tasks;

static pthread_mutex_t busy = PTHREAD_MUTEX_INITIALIZER; /* one job at a time; also guards the threads */
static pthread_mutex_t bed = PTHREAD_MUTEX_INITIALIZER;  /* for sleeping only */
static pthread_cond_t wake = PTHREAD_COND_INITIALIZER;
static pthread_cond_t all_done = PTHREAD_COND_INITIALIZER;
static pthread_t threads[MAX_THREADS];
static int32_t started; /* workers that run: one less than the most threads a kernel asked for */
static int32_t spin_rounds;
static _Thread_local int inside;

static inline void relax(void) {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ __volatile__("yield");
#endif
}

/* Take part in whatever job is published, as long as there is a task to claim. */
static void take_part(uint32_t worker) {
  uint64_t seen = atomic_load_explicit(&ticket, memory_order_acquire);
  while (LEFT(seen) && worker < ALLOWED(seen)) {
    if (!atomic_compare_exchange_weak_explicit(&ticket, &seen, seen - 1, memory_order_acq_rel,
                                               memory_order_acquire))
      continue;
    int32_t tasks = job_tasks;
    int error = 0;
    if (!atomic_load_explicit(&failure, memory_order_relaxed))
      error = job_body(tasks - (int32_t)LEFT(seen), tasks, job_arg);
    int32_t none = 0;
    if (error) atomic_compare_exchange_strong(&failure, &none, error);
    if (atomic_fetch_add(&finished, 1) + 1 == tasks && atomic_load(&caller_sleeps)) {
      pthread_mutex_lock(&bed);
      pthread_cond_signal(&all_done);
      pthread_mutex_unlock(&bed);
    }
    seen = atomic_load_explicit(&ticket, memory_order_acquire);
  }
}

static void* worker_main(void* argument) {
  uint32_t worker = (uint32_t)(uintptr_t)argument;
  inside = 1;
  for (;;) {
    uint64_t seen = atomic_load_explicit(&ticket, memory_order_acquire);
    if (LEFT(seen) && worker < ALLOWED(seen)) {
      take_part(worker);
      continue;
    }
    int round = 0;
    for (; round < spin_rounds; round++) {
      if (atomic_load_explicit(&ticket, memory_order_acquire) >> 32 != seen >> 32) break;
      if (atomic_load_explicit(&stopping, memory_order_relaxed)) break;
      relax();
    }
    if (round < spin_rounds && !atomic_load(&stopping)) continue;
    pthread_mutex_lock(&bed);
    atomic_fetch_add(&sleepers, 1);
    /* The count first, the ticket after: the caller does it the other way round, so one sees the other. */
    while (atomic_load(&ticket) >> 32 == seen >> 32 && !atomic_load(&stopping)) pthread_cond_wait(&wake, &bed);
    atomic_fetch_sub(&sleepers, 1);
    pthread_mutex_unlock(&bed);
    if (atomic_load(&stopping)) return NULL;
  }
}

static int available_cores(void) {
#ifdef __linux__
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) == 0) return CPU_COUNT(&set);
#endif
  return (int)sysconf(_SC_NPROCESSORS_ONLN);
}

/* With `busy` held: have at least `count - 1` workers. Fewer where the system refuses more threads. */
static void start_workers(int32_t count) {
  if (count > MAX_THREADS) count = MAX_THREADS;
  if (started >= count - 1) return;
  /* Spinning helps only while every thread has a core of its own. */
  spin_rounds = available_cores() >= count ? SPIN_ROUNDS : 0;
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before); /* signals are the main thread's */
  while (started < count - 1) {
    uintptr_t worker = (uintptr_t)started + 1;
    if (pthread_create(&threads[started], NULL, worker_main, (void*)worker)) break;
    started++;
  }
  pthread_sigmask(SIG_SETMASK, &before, NULL);
}

static int run_alone(opatlas_body body, void* arg, int32_t tasks) {
  for (int32_t task = 0; task < tasks; task++) {
    int error = body(task, tasks, arg);
    if (error) return error;
  }
  return 0;
}

static void wait_for_all(int32_t tasks) {
  for (int round = 0; round < spin_rounds; round++) {
    if (atomic_load_explicit(&finished, memory_order_acquire) == tasks) return;
    relax();
  }
  pthread_mutex_lock(&bed);
  atomic_store(&caller_sleeps, 1);
  while (atomic_load(&finished) != tasks) pthread_cond_wait(&all_done, &bed);
  atomic_store(&caller_sleeps, 0);
  pthread_mutex_unlock(&bed);
}

int opatlas_pool_parallel_for(void* pool, opatlas_body body, void* arg, int32_t tasks) {
  int32_t count = ((handle*)pool)->count;
  if (tasks < 1) return 0;
  if (count > tasks) count = tasks;
  if (count > MAX_THREADS) count = MAX_THREADS;
  if (count < 2 || inside || pthread_mutex_trylock(&busy)) return run_alone(body, arg, tasks);
  start_workers(count);
  inside = 1;
  job_body = body;
  job_arg = arg;
  job_tasks = tasks;
  atomic_store(&failure, 0);
  atomic_store(&finished, 0);
  atomic_store(&ticket, TICKET(NUMBER(atomic_load(&ticket)) + 1, count, tasks));
  if (atomic_load(&sleepers)) {
    pthread_mutex_lock(&bed);
    pthread_cond_broadcast(&wake);
    pthread_mutex_unlock(&bed);
  }
  take_part(0);
  wait_for_all(tasks);
  int error = atomic_load(&failure);
  inside = 0;
  pthread_mutex_unlock(&busy);
  return error;
}

/* In a forked child no worker is left and any lock may have been held by a thread that is not there. */
static void after_fork_in_child(void) {
  pthread_mutex_init(&busy, NULL);
  pthread_mutex_init(&bed, NULL);
  pthread_cond_init(&wake, NULL);
  pthread_cond_init(&all_done, NULL);
  started = 0;
  inside = 0;
  atomic_store(&sleepers, 0);
  atomic_store(&stopping, 0);
  atomic_store(&caller_sleeps, 0);
  atomic_store(&ticket, 0);
}

static void register_fork_handler(void) { pthread_atfork(NULL, NULL, after_fork_in_child); }

/* The pool argument for a kernel that may use `count` threads; NULL without memory. */
void* opatlas_pool_open(int32_t count) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, register_fork_handler);
  handle* made = malloc(sizeof *made);
  if (made) made->count = count < 1 ? 1 : count;
  return made;
}

void opatlas_pool_close(void* pool) { free(pool); }

/* Workers that run now (0 before the first parallel loop). */
int32_t opatlas_pool_workers(void) { return started; }

/* End every worker and wait for it; the next parallel loop starts them again. */
void opatlas_pool_stop(void) {
  pthread_mutex_lock(&busy);
  pthread_mutex_lock(&bed);
  atomic_store(&stopping, 1);
  pthread_cond_broadcast(&wake);
  pthread_mutex_unlock(&bed);
  for (int32_t worker = 0; worker < started; worker++) pthread_join(threads[worker], NULL);
  started = 0;
  atomic_store(&stopping, 0);
  pthread_mutex_unlock(&busy);
}
