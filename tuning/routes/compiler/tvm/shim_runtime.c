/* What TVM's generated code expects of TVM's runtime, on top of the thread pool that opatlas_run is given.
 * Thread-safe: runs may overlap; each thread that enters opatlas_run has its own `current` pool. */
#define _POSIX_C_SOURCE 200809L
#define _ISOC11_SOURCE
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "opatlas_abi.h"

#define ALIGNMENT 64

/* DLPack's DLTensor and TVM FFI's TVMFFIAny, as TVM's generated code reads them. */
typedef struct {
  void* data;
  struct { int32_t type, id; } device;
  int32_t ndim;
  struct { uint8_t code, bits; uint16_t lanes; } dtype;
  int64_t* shape;
  int64_t* strides;
  uint64_t byte_offset;
} Tensor;

typedef struct {
  int32_t type;
  uint32_t padding;
  union { int64_t integer; void* pointer; } value;
} Any;

enum { ANY_TENSOR = 7 }; /* kTVMFFIDLTensorPtr */

typedef struct { void* sync_handle; int32_t num_task; } Group;
typedef int (*Lambda)(int task, Group* group, void* closure);

static __thread const opatlas_threads* current;
static __thread char message[256];

const char* opatlas_error(void) { return message[0] ? message : 0; }

static int fail(const char* text) {
  strncpy(message, text, sizeof message - 1);
  return -1;
}

/* TVM's generated checks report through this. */
void TVMFFIErrorSetRaisedFromCStrParts(const char* kind, const char** parts, int32_t count) {
  size_t used = 0;
  int32_t i;
  (void)kind;
  for (i = 0; i < count; ++i) {
    size_t size = parts[i] ? strlen(parts[i]) : 0;
    if (size > sizeof message - 1 - used) size = sizeof message - 1 - used;
    if (size) memcpy(message + used, parts[i], size);
    used += size;
  }
  message[used] = 0;
}

/* Parallel loops. */
typedef struct { Lambda lambda; void* closure; } Launch;

static int body(int32_t task, int32_t tasks, void* arg) {
  Launch* launch = arg;
  Group group = {0, tasks};
  return launch->lambda(task, &group, launch->closure);
}

static int parallel(Lambda lambda, void* closure, int tasks) {
  Launch launch = {lambda, closure};
  const opatlas_threads* threads = current;
  int code;
  if (!threads || threads->count < 2) return body(0, 1, &launch); /* every loop can run as one task */
  current = 0; /* a loop inside the loop runs as one task */
  code = threads->parallel_for(threads->pool, body, &launch, tasks > 0 ? tasks : threads->count);
  current = threads;
  return code;
}

/* Workspaces: kept between runs (fresh large allocations would fault their pages in on every run), 64-byte
 * aligned, freed when the library is unloaded. */
typedef struct Block { struct Block* next; size_t bytes; char pad[ALIGNMENT - sizeof(void*) - sizeof(size_t)]; } Block;

static Block* idle;
static pthread_mutex_t idle_lock = PTHREAD_MUTEX_INITIALIZER;

static char* take(size_t bytes) {
  Block **at, *block = 0;
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
    size_t rounded = (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    block = aligned_alloc(ALIGNMENT, sizeof(Block) + rounded);
    if (!block) return 0;
    block->bytes = rounded;
  }
  return (char*)(block + 1);
}

static void give(void* pointer) {
  Block* block = (Block*)pointer - 1;
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

static void* allocate(int device, int id, uint64_t bytes, int code, int bits) {
  (void)device, (void)id, (void)code, (void)bits;
  return take(bytes);
}

static int release(int device, int id, void* pointer) {
  (void)device, (void)id;
  if (pointer) give(pointer);
  return 0;
}

/* The slots through which generated code finds its runtime. */
int (*__TVMBackendParallelLaunch)(Lambda, void*, int) = parallel;
void* (*__TVMBackendAllocWorkspace)(int, int, uint64_t, int, int) = allocate;
int (*__TVMBackendFreeWorkspace)(int, int, void*) = release;

static int call(int (*function)(void*, const Any*, int32_t, Any*), Tensor* tensors, int32_t n) {
  Any arguments[32], result = {0, 0, {0}};
  int32_t i;
  if (n > 32) return fail("more than 32 tensors in one call");
  for (i = 0; i < n; ++i) {
    arguments[i].type = ANY_TENSOR;
    arguments[i].padding = 0;
    arguments[i].value.pointer = &tensors[i];
  }
  return function(0, arguments, n, &result);
}
