/* The thread pools of a process: compiled Opatlas kernels run their parallel loops on them. There is one for
 * everybody, and one for each thread that asked for its own (opatlas_pool_enter), as streams of work that run
 * at the same time do: a second loop on a pool that is at work would have one thread.
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
#define MAX_POOLS 17 /* everybody's, and 16 streams' */
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

typedef struct {
  _Alignas(CACHE_LINE) _Atomic uint64_t ticket;
  _Alignas(CACHE_LINE) _Atomic int32_t finished;
  _Alignas(CACHE_LINE) _Atomic int32_t failure;
  _Atomic int32_t sleepers;
  _Atomic int32_t stopping;
  _Atomic int32_t caller_sleeps;
  opatlas_body job_body;
  void* job_arg;
  int32_t job_tasks;

  pthread_mutex_t busy; /* one job at a time; also guards the threads */
  pthread_mutex_t bed;  /* for sleeping only */
  pthread_cond_t wake;
  pthread_cond_t all_done;
  pthread_t threads[MAX_THREADS];
  int32_t started; /* workers that run: one less than the most threads a kernel asked for */
  int32_t spin_rounds;
} pool_t;

static pool_t pools[MAX_POOLS] = {[0 ... MAX_POOLS - 1] = {.busy = PTHREAD_MUTEX_INITIALIZER,
                                                           .bed = PTHREAD_MUTEX_INITIALIZER,
                                                           .wake = PTHREAD_COND_INITIALIZER,
                                                           .all_done = PTHREAD_COND_INITIALIZER}};
static _Thread_local int inside;
static _Thread_local int32_t own;  /* the number of the pool that this thread's loops run on */
static _Thread_local int32_t most; /* threads that a loop of this thread may have; 0: as its handle says */

static inline void relax(void) {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ __volatile__("yield");
#endif
}

/* Take part in whatever job is published, as long as there is a task to claim. */
static void take_part(pool_t* pool, uint32_t worker) {
  uint64_t seen = atomic_load_explicit(&pool->ticket, memory_order_acquire);
  while (LEFT(seen) && worker < ALLOWED(seen)) {
    if (!atomic_compare_exchange_weak_explicit(&pool->ticket, &seen, seen - 1, memory_order_acq_rel,
                                               memory_order_acquire))
      continue;
    int32_t tasks = pool->job_tasks;
    int error = 0;
    if (!atomic_load_explicit(&pool->failure, memory_order_relaxed))
      error = pool->job_body(tasks - (int32_t)LEFT(seen), tasks, pool->job_arg);
    int32_t none = 0;
    if (error) atomic_compare_exchange_strong(&pool->failure, &none, error);
    if (atomic_fetch_add(&pool->finished, 1) + 1 == tasks && atomic_load(&pool->caller_sleeps)) {
      pthread_mutex_lock(&pool->bed);
      pthread_cond_signal(&pool->all_done);
      pthread_mutex_unlock(&pool->bed);
    }
    seen = atomic_load_explicit(&pool->ticket, memory_order_acquire);
  }
}

static void* worker_main(void* argument) {
  pool_t* pool = &pools[(uintptr_t)argument / MAX_THREADS];
  uint32_t worker = (uint32_t)((uintptr_t)argument % MAX_THREADS);
  inside = 1;
  for (;;) {
    uint64_t seen = atomic_load_explicit(&pool->ticket, memory_order_acquire);
    if (LEFT(seen) && worker < ALLOWED(seen)) {
      take_part(pool, worker);
      continue;
    }
    int round = 0;
    for (; round < pool->spin_rounds; round++) {
      if (atomic_load_explicit(&pool->ticket, memory_order_acquire) >> 32 != seen >> 32) break;
      if (atomic_load_explicit(&pool->stopping, memory_order_relaxed)) break;
      relax();
    }
    if (round < pool->spin_rounds && !atomic_load(&pool->stopping)) continue;
    pthread_mutex_lock(&pool->bed);
    atomic_fetch_add(&pool->sleepers, 1);
    /* The count first, the ticket after: the caller does it the other way round, so one sees the other. */
    while (atomic_load(&pool->ticket) >> 32 == seen >> 32 && !atomic_load(&pool->stopping))
      pthread_cond_wait(&pool->wake, &pool->bed);
    atomic_fetch_sub(&pool->sleepers, 1);
    pthread_mutex_unlock(&pool->bed);
    if (atomic_load(&pool->stopping)) return NULL;
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
static void start_workers(pool_t* pool, int32_t count) {
  if (count > MAX_THREADS) count = MAX_THREADS;
  if (pool->started >= count - 1) return;
  /* Spinning helps only while every thread has a core of its own. */
  pool->spin_rounds = available_cores() >= count ? SPIN_ROUNDS : 0;
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before); /* signals are the main thread's */
  while (pool->started < count - 1) {
    uintptr_t worker = (uintptr_t)(pool - pools) * MAX_THREADS + (uintptr_t)pool->started + 1;
    if (pthread_create(&pool->threads[pool->started], NULL, worker_main, (void*)worker)) break;
    pool->started++;
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

static void wait_for_all(pool_t* pool, int32_t tasks) {
  for (int round = 0; round < pool->spin_rounds; round++) {
    if (atomic_load_explicit(&pool->finished, memory_order_acquire) == tasks) return;
    relax();
  }
  pthread_mutex_lock(&pool->bed);
  atomic_store(&pool->caller_sleeps, 1);
  while (atomic_load(&pool->finished) != tasks) pthread_cond_wait(&pool->all_done, &pool->bed);
  atomic_store(&pool->caller_sleeps, 0);
  pthread_mutex_unlock(&pool->bed);
}

int opatlas_pool_parallel_for(void* given, opatlas_body body, void* arg, int32_t tasks) {
  pool_t* pool = &pools[own];
  int32_t count = ((handle*)given)->count;
  if (tasks < 1) return 0;
  if (most && count > most) count = most;
  if (count > tasks) count = tasks;
  if (count > MAX_THREADS) count = MAX_THREADS;
  if (count < 2 || inside || pthread_mutex_trylock(&pool->busy)) return run_alone(body, arg, tasks);
  start_workers(pool, count);
  inside = 1;
  pool->job_body = body;
  pool->job_arg = arg;
  pool->job_tasks = tasks;
  atomic_store(&pool->failure, 0);
  atomic_store(&pool->finished, 0);
  atomic_store(&pool->ticket, TICKET(NUMBER(atomic_load(&pool->ticket)) + 1, count, tasks));
  if (atomic_load(&pool->sleepers)) {
    pthread_mutex_lock(&pool->bed);
    pthread_cond_broadcast(&pool->wake);
    pthread_mutex_unlock(&pool->bed);
  }
  take_part(pool, 0);
  wait_for_all(pool, tasks);
  int error = atomic_load(&pool->failure);
  inside = 0;
  pthread_mutex_unlock(&pool->busy);
  return error;
}

/* In a forked child no worker is left and any lock may have been held by a thread that is not there. */
static void after_fork_in_child(void) {
  inside = 0;
  for (pool_t* pool = pools; pool < pools + MAX_POOLS; pool++) {
    pthread_mutex_init(&pool->busy, NULL);
    pthread_mutex_init(&pool->bed, NULL);
    pthread_cond_init(&pool->wake, NULL);
    pthread_cond_init(&pool->all_done, NULL);
    pool->started = 0;
    atomic_store(&pool->sleepers, 0);
    atomic_store(&pool->stopping, 0);
    atomic_store(&pool->caller_sleeps, 0);
    atomic_store(&pool->ticket, 0);
  }
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

/* From now on loops of the calling thread run on the pool of this number (0: everybody's), each by at most so
 * many threads (0: as its handle says). Returns 0, or 1 where there is no such pool. */
int opatlas_pool_enter(int32_t number, int32_t threads) {
  if (number < 0 || number >= MAX_POOLS || threads < 0) return 1;
  own = number;
  most = threads;
  return 0;
}

/* Workers that run now (0 before the first parallel loop). */
int32_t opatlas_pool_workers(void) {
  int32_t found = 0;
  for (pool_t* pool = pools; pool < pools + MAX_POOLS; pool++) found += pool->started;
  return found;
}

/* End every worker and wait for it; the next parallel loop starts them again. */
void opatlas_pool_stop(void) {
  for (pool_t* pool = pools; pool < pools + MAX_POOLS; pool++) {
    pthread_mutex_lock(&pool->busy);
    pthread_mutex_lock(&pool->bed);
    atomic_store(&pool->stopping, 1);
    pthread_cond_broadcast(&pool->wake);
    pthread_mutex_unlock(&pool->bed);
    for (int32_t worker = 0; worker < pool->started; worker++) pthread_join(pool->threads[worker], NULL);
    pool->started = 0;
    atomic_store(&pool->stopping, 0);
    pthread_mutex_unlock(&pool->busy);
  }
}
