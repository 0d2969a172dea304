/* What Halide's generated code expects of Halide's runtime, on top of the thread pool that opatlas_run is
 * given. Thread-safe: runs may overlap; the pool travels as Halide's user context. */
#define _POSIX_C_SOURCE 200809L
#define _ISOC11_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "opatlas_abi.h"

/* Halide reads and writes whole vectors at the ends of its own buffers. */
#define ALIGNMENT 128

/* halide_buffer_t and its parts, as HalideRuntime.h of Halide 21 has them. */
typedef struct { int32_t min, extent, stride; uint32_t flags; } Dimension;
typedef struct {
  uint64_t device;
  const void* device_interface;
  void* host;
  uint64_t flags;
  struct { uint8_t code, bits; uint16_t lanes; } type;
  int32_t dimensions;
  Dimension* dim;
  void* padding;
} Buffer;

typedef int (*Task)(const void* context, int index, uint8_t* closure);

static __thread char message[256];

const char* opatlas_error(void) { return message[0] ? message : 0; }

static int fail(const char* text) {
  strncpy(message, text, sizeof message - 1);
  return -1;
}

/* Parallel loops. The context of a task is null: a loop inside a loop runs on the thread that it is on.
 * Autoschedulers make loops of 100,000 steps of nanoseconds; the pool gets stretches of them. */
#define STRETCHES 32
typedef struct { Task task; uint8_t* closure; int first, size, stretch; } Loop;

static int body(int32_t index, int32_t tasks, void* arg) {
  Loop* loop = arg;
  int64_t from = (int64_t)index * loop->stretch, to = from + loop->stretch;
  int code = 0;
  (void)tasks;
  if (to > loop->size) to = loop->size;
  for (; from < to && !code; ++from) code = loop->task(0, loop->first + (int)from, loop->closure);
  return code;
}

int halide_do_par_for(const void* context, Task task, int first, int size, uint8_t* closure) {
  const opatlas_threads* threads = context;
  Loop loop = {task, closure, first, size, size};
  if (size < 1) return 0;
  if (size < 2 || !threads || threads->count < 2) return body(0, 1, &loop);
  loop.stretch = (size - 1) / (STRETCHES * threads->count) + 1;
  return threads->parallel_for(threads->pool, body, &loop, (size - 1) / loop.stretch + 1);
}

/* Memory: kept between runs (fresh large allocations would fault their pages in on every run) and freed when
 * the library is unloaded. */
typedef struct Block { struct Block* next; size_t bytes; char pad[ALIGNMENT - sizeof(void*) - sizeof(size_t)]; } Block;

static Block* idle;
static pthread_mutex_t idle_lock = PTHREAD_MUTEX_INITIALIZER;

void* halide_malloc(const void* context, size_t bytes) {
  Block **at, *block = 0;
  (void)context;
  pthread_mutex_lock(&idle_lock);
  for (at = &idle; *at; at = &(*at)->next) {
    if ((*at)->bytes >= bytes && (*at)->bytes <= 4 * bytes + 4096) {
      block = *at;
      *at = block->next;
      break;
    }
  }
  pthread_mutex_unlock(&idle_lock);
  if (!block) {
    size_t rounded = (bytes + 2 * ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    block = aligned_alloc(ALIGNMENT, sizeof(Block) + rounded);
    if (!block) return 0;
    block->bytes = rounded;
  }
  return block + 1;
}

void halide_free(const void* context, void* pointer) {
  Block* block = (Block*)pointer - 1;
  (void)context;
  if (!pointer) return;
  pthread_mutex_lock(&idle_lock);
  block->next = idle;
  idle = block;
  pthread_mutex_unlock(&idle_lock);
}

__attribute__((destructor)) static void release_idle(void) {
  while (idle) {
    Block* next = idle->next;
    free(idle);
    idle = next;
  }
}

/* Li2018 lets several threads add into one place and guards it with locks where the processor has no such
 * addition. */
typedef struct { uint64_t size; pthread_mutex_t locks[]; } Locks;

void* halide_mutex_array_create(uint64_t size) {
  Locks* made = malloc(sizeof(Locks) + size * sizeof(pthread_mutex_t));
  uint64_t i;
  if (!made) return 0;
  made->size = size;
  for (i = 0; i < size; ++i) pthread_mutex_init(&made->locks[i], 0);
  return made;
}

void halide_mutex_array_destroy(void* context, void* array) {
  Locks* made = array;
  uint64_t i;
  (void)context;
  for (i = 0; i < made->size; ++i) pthread_mutex_destroy(&made->locks[i]);
  free(made);
}

int halide_mutex_array_lock(void* array, int entry) { return pthread_mutex_lock(&((Locks*)array)->locks[entry]); }
int halide_mutex_array_unlock(void* array, int entry) {
  return pthread_mutex_unlock(&((Locks*)array)->locks[entry]);
}

/* Halide's generated checks report through these, with arguments that differ. Out of memory is the only one
 * that a caller of opatlas_run can meet. */
#define CHECK(name)                                                   \
  int halide_error_##name() { return fail("Halide's check: " #name); }
CHECK(access_out_of_bounds)
CHECK(bad_dimensions)
CHECK(bad_fold)
CHECK(bad_type)
CHECK(bounds_inference_call_failed)
CHECK(buffer_allocation_too_large)
CHECK(buffer_argument_is_null)
CHECK(buffer_extents_negative)
CHECK(buffer_extents_too_large)
CHECK(buffer_is_null)
CHECK(constraint_violated)
CHECK(constraints_make_required_region_smaller)
CHECK(device_dirty_with_no_device_support)
CHECK(explicit_bounds_too_small)
CHECK(fold_factor_too_small)
CHECK(host_and_device_dirty)
CHECK(host_is_null)
CHECK(out_of_memory)
CHECK(requirement_failed)
CHECK(specialize_fail)
CHECK(split_factor_not_positive)
CHECK(storage_bound_too_small)
CHECK(unaligned_host_ptr)
void halide_error(const void* context, const char* text) { (void)context; fail(text); }

/* A tensor of up to eight dimensions copied to another layout. Strides in bytes, of source and of result. */
static void copy(char* to, const char* from, int rank, const int64_t* shape, const int64_t* to_strides,
                 const int64_t* from_strides, size_t item) {
  int64_t i;
  if (!rank) {
    memcpy(to, from, item);
    return;
  }
  for (i = 0; i < *shape; ++i)
    copy(to + i * *to_strides, from + i * *from_strides, rank - 1, shape + 1, to_strides + 1, from_strides + 1,
         item);
}
