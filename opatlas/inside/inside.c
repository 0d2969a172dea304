/* Kernels of the catalogue ("c-abi") inside one session of ONNX Runtime, as operators of a domain of ours. Their
 * loops run on the session's own threads, their values lie where ONNX Runtime places them.
 *
 * A session's kernels are *handed over* before it is made: opatlas_inside_open, then opatlas_inside_add for each
 * with the functions of a library that was verified and loaded, then opatlas_inside_next, and ONNX Runtime calls
 * RegisterCustomOps on the same thread. So a model names a kernel by what this process was given, and nothing
 * that a model's file says leads to a library. What is handed over outlives the sessions that were made with it.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "opatlas_abi.h"
#include "ort.h"

#define DOMAIN "ai.opatlas"
#define OLDEST 17   /* of ONNX Runtime 1.x: the first with KernelContext_ParallelFor */
#define IN_PLACE 18 /* the first that asks which outputs may lie where an input does */
#define SHAPES 24   /* the first that shows a tensor's shape without a copy */
#define MOST_DIMS 16
#define SAID 256

typedef int (*run_t)(const opatlas_tensor*, int32_t, const opatlas_threads*, void*);
typedef int (*prepare_t)(const opatlas_tensor*, int32_t, const opatlas_threads*, void**);
typedef void (*release_t)(void*);
typedef const char* (*error_t)(void);

/* A kernel's functions, NULL for one that is not there, and what they were made for. */
typedef struct {
  run_t run;
  prepare_t prepare;
  release_t release;
  error_t error;
  size_t alignment;
  int32_t threads;
} code;

/* One tensor of a kernel as it is handed over, dense and row-major. */
typedef struct {
  const int64_t* dims;
  int32_t dtype, itemsize, ndim, is_constant;
} value;

/* The same as ONNX Runtime says it, and as the kernel sees it, which are two where it lies in blocks of
 * channels. */
typedef struct {
  int32_t dtype, ndim, is_constant, seen_ndim;
  int64_t dims[MOST_DIMS], seen[MOST_DIMS + 1], strides[MOST_DIMS + 1];
  size_t bytes;
} kind;

typedef struct handed handed;

/* One kernel that was handed over. */
typedef struct {
  OrtCustomOp op; /* first: ONNX Runtime gives back its address */
  handed* all;
  char* name;
  code code;
  int32_t inputs, outputs;
  kind* kinds;
  pthread_mutex_t alone; /* a library, and a state, is used by one thread at a time */
  _Atomic int32_t failures;
  char said[SAID]; /* of the first failure; whole once `failures` is not 0 */
} kernel;

struct handed {
  OrtApi api;
  int shows_shapes;
  OrtCustomOpDomain* domain;
  int32_t count, most;
  kernel** kernels;
  _Atomic int32_t failures;
  _Atomic int32_t nodes; /* of a session, that have not been destroyed yet */
};

/* One node of a session. */
typedef struct {
  kernel* k;
  OrtApi api;
  void* state;
  opatlas_tensor* tensors; /* as they are prepared: constants have their data */
  void** copies;           /* of what is not aligned */
} node;

static _Thread_local handed* next;       /* of the session that this thread makes */
static _Thread_local int in_a_loop;      /* this thread runs a task of a kernel's loop */

static OrtStatus* status(OrtApi api, const char* text) {
  return CALL(api, CREATE_STATUS, f_create_status)(ORT_FAIL, text);
}
#define TRY(call) \
  do { \
    OrtStatus* status_ = (call); \
    if (status_) return status_; \
  } while (0)

/* ---- what is handed over ------------------------------------------------------------------------- */

static const char* op_name(const OrtCustomOp* op) { return ((const kernel*)op)->name; }
static const char* op_provider(const OrtCustomOp* op) { return (void)op, "CPUExecutionProvider"; }
static int input_type(const OrtCustomOp* op, size_t at) { return ((const kernel*)op)->kinds[at].dtype; }
static size_t input_count(const OrtCustomOp* op) { return ((const kernel*)op)->inputs; }
static size_t output_count(const OrtCustomOp* op) { return ((const kernel*)op)->outputs; }
static int output_type(const OrtCustomOp* op, size_t at) {
  const kernel* k = (const kernel*)op;
  return k->kinds[k->inputs + at].dtype;
}
static int required(const OrtCustomOp* op, size_t at) { return (void)op, (void)at, ORT_REQUIRED; }
static int in_memory(const OrtCustomOp* op, size_t at) { return (void)op, (void)at, ORT_CPU_INPUT; }
static int least(const OrtCustomOp* op) { return (void)op, 1; }
static int since(const OrtCustomOp* op) { return (void)op, 1; }
static int until(const OrtCustomOp* op) { return (void)op, INT32_MAX; }
static size_t nowhere(int** in, int** out) { return *in = NULL, *out = NULL, 0; }
static size_t first_over_first(int** in, int** out) {
  static int zeros[2];
  return *in = zeros, *out = zeros + 1, 1;
}
static void keep(int* in, int* out) { (void)in, (void)out; }

/* NULL without memory. */
handed* opatlas_inside_open(void) { return calloc(1, sizeof(handed)); }

static void free_kernel(kernel* k) {
  pthread_mutex_destroy(&k->alone);
  free(k->name), free(k->kinds), free(k);
}

static OrtStatus* create(const OrtCustomOp*, OrtApi, const OrtKernelInfo*, void**);
static OrtStatus* compute(void*, OrtKernelContext*);
static void destroy(void*);

static int set_kind(kind* one, const value* given, int32_t block) {
  if (given->ndim < 0 || given->ndim > MOST_DIMS) return 0;
  one->dtype = given->dtype, one->ndim = one->seen_ndim = given->ndim, one->is_constant = given->is_constant;
  one->bytes = given->itemsize;
  for (int32_t d = 0; d < one->ndim; d++) {
    one->dims[d] = one->seen[d] = given->dims[d];
    one->bytes *= given->dims[d];
  }
  if (block && one->ndim == 4 && !one->is_constant) {
    if (one->dims[1] % block) return 0;
    one->seen_ndim = 5, one->seen[1] /= block, one->seen[4] = block;
  }
  int64_t stride = 1;
  for (int32_t d = one->seen_ndim - 1; d >= 0; d--) one->strides[d] = stride, stride *= one->seen[d];
  return 1;
}

/* The next kernel's number, or -1. `name`: its operator's in the model; `values`: its inputs, then its outputs;
 * `may_write_over`: its first output may lie where its first input does; `block`: of channels, in which its
 * tensors lie, or 0. */
int32_t opatlas_inside_add(handed* all, const char* name, const code* code, const value* values, int32_t inputs,
                           int32_t outputs, int32_t may_write_over, int32_t block) {
  if (all->count == all->most) {
    int32_t most = all->most ? 2 * all->most : 16;
    kernel** more = realloc(all->kernels, most * sizeof *more);
    if (!more) return -1;
    all->kernels = more, all->most = most;
  }
  kernel* k = calloc(1, sizeof *k);
  if (!k) return -1;
  pthread_mutex_init(&k->alone, NULL);
  k->all = all, k->code = *code, k->inputs = inputs, k->outputs = outputs;
  k->name = strdup(name), k->kinds = calloc(inputs + outputs, sizeof *k->kinds);
  int is_fine = k->name && k->kinds;
  for (int32_t t = 0; t < inputs + outputs && is_fine; t++) is_fine = set_kind(&k->kinds[t], &values[t], block);
  if (!is_fine) return free_kernel(k), -1;
  k->op = (OrtCustomOp){
      .name = op_name, .provider = op_provider, .input_type = input_type, .input_count = input_count,
      .output_type = output_type, .output_count = output_count, .destroy = destroy,
      .input_characteristic = required, .output_characteristic = required, .input_memory = in_memory,
      .least_inputs = least, .inputs_alike = least, .least_outputs = least, .outputs_alike = least,
      .create_or_say = create, .compute_or_say = compute, .start_version = since, .end_version = until,
      .may_write_over = may_write_over ? first_over_first : nowhere, .release_may_write_over = keep,
      .aliases = nowhere, .release_aliases = keep};
  all->kernels[all->count] = k;
  return all->count++;
}

/* The session that this thread makes next has these, whatever other has; NULL: none. */
void opatlas_inside_next(handed* all) { next = all; }

/* How often a kernel has failed. `said` gets what it said first, in at most so many bytes. */
int32_t opatlas_inside_failures(handed* all, int32_t number, char* said, int32_t most) {
  kernel* k = all->kernels[number];
  int32_t failures = atomic_load(&k->failures);
  if (failures && most > 0) snprintf(said, most, "%s", k->said);
  return failures;
}

/* Whether any of them has. */
int32_t opatlas_inside_any_failed(handed* all) { return all && atomic_load(&all->failures) != 0; }

/* Frees all of it, and returns 0; while a session has nodes of it, does nothing and returns how many. */
int32_t opatlas_inside_close(handed* all) {
  int32_t nodes = atomic_load(&all->nodes);
  if (nodes) return nodes;
  if (all->domain) CALL(all->api, RELEASE_DOMAIN, f_release)(all->domain);
  for (int32_t at = 0; at < all->count; at++) free_kernel(all->kernels[at]);
  free(all->kernels), free(all);
  return 0;
}

/* ---- a session's threads as opatlas_threads -------------------------------------------------------- */

typedef struct {
  opatlas_body body;
  void* arg;
  int32_t tasks;
  _Atomic int32_t failure;
} loop;

typedef struct {
  OrtApi api;
  const OrtKernelContext* context; /* NULL: there is none yet */
} pool;

static int run_alone(opatlas_body body, void* arg, int32_t tasks) {
  for (int32_t task = 0; task < tasks; task++) {
    int failure = body(task, tasks, arg);
    if (failure) return failure;
  }
  return 0;
}

static void one_task(void* data, size_t task) {
  loop* l = data;
  if (atomic_load_explicit(&l->failure, memory_order_relaxed)) return;
  int before = in_a_loop;
  in_a_loop = 1;
  int failure = l->body((int32_t)task, l->tasks, l->arg);
  in_a_loop = before;
  int32_t none = 0;
  if (failure) atomic_compare_exchange_strong(&l->failure, &none, failure);
}

static int parallel_for(void* given, opatlas_body body, void* arg, int32_t tasks) {
  pool* p = given;
  if (tasks < 1) return 0;
  if (tasks == 1 || in_a_loop || !p->context) return run_alone(body, arg, tasks);
  loop l = {body, arg, tasks, 0};
  OrtStatus* wrong = CALL(p->api, PARALLEL_FOR, f_parallel_for)(p->context, one_task, tasks, 0, &l);
  if (!wrong) return l.failure;
  CALL(p->api, RELEASE_STATUS, f_release)(wrong);
  return -1;
}

/* ---- one node: made ------------------------------------------------------------------------------- */

/* With `alone` held. */
static OrtStatus* failed(node* n, int number) {
  kernel* k = n->k;
  const char* said = k->code.error ? k->code.error() : NULL;
  char text[SAID];
  if (said && *said) snprintf(text, sizeof text, "%s", said);
  else snprintf(text, sizeof text, "error code %d", number);
  if (!atomic_load(&k->failures)) memcpy(k->said, text, sizeof text);
  atomic_fetch_add(&k->failures, 1);
  atomic_fetch_add(&k->all->failures, 1);
  return status(n->api, text);
}

static void* aligned_copy(node* n, int32_t t) {
  if (!n->copies[t]) {
    size_t unit = n->k->code.alignment < sizeof(void*) ? sizeof(void*) : n->k->code.alignment;
    n->copies[t] = aligned_alloc(unit, (n->k->kinds[t].bytes + unit - 1) / unit * unit);
  }
  return n->copies[t];
}

static int is_misaligned(const node* n, int32_t t, const void* data) {
  return n->k->kinds[t].bytes && (uintptr_t)data & (n->k->code.alignment - 1);
}

/* Whether a tensor has the shape that its kernel was made for: its element type ONNX Runtime has compared. */
static OrtStatus* check_shape(const node* n, int32_t t, const OrtValue* given) {
  const kind* wanted = &n->k->kinds[t];
  const int64_t* dims = NULL;
  int64_t own[MOST_DIMS];
  size_t count = 0;
  int element;
  if (n->k->all->shows_shapes) {
    TRY(CALL(n->api, SHAPE_IN_PLACE, f_shape_in_place)(given, &element, &dims, &count));
  } else {
    OrtTypeAndShape* made = NULL;
    TRY(CALL(n->api, TYPE_AND_SHAPE, f_type_and_shape)(given, &made));
    OrtStatus* wrong = CALL(n->api, DIMS_COUNT, f_dims_count)(made, &count);
    if (!wrong && count == (size_t)wanted->ndim && count)
      wrong = CALL(n->api, DIMS, f_dims)(made, own, count);
    CALL(n->api, RELEASE_TYPE_AND_SHAPE, f_release)(made);
    if (wrong) return wrong;
    dims = own;
  }
  if (count == (size_t)wanted->ndim && !memcmp(dims, wanted->dims, count * sizeof *dims)) return NULL;
  return status(n->api, "an input of a kernel has another shape than the model says");
}

static void destroy(void* given) {
  node* n = given;
  if (!n) return;
  kernel* k = n->k;
  if (n->state && k->code.release) k->code.release(n->state);
  if (n->copies)
    for (int32_t t = 0; t < k->inputs + k->outputs; t++) free(n->copies[t]);
  free(n->copies), free(n->tensors), free(n);
  atomic_fetch_sub(&k->all->nodes, 1);
}

static OrtStatus* set_up(node* n, const OrtKernelInfo* info) {
  kernel* k = n->k;
  int32_t total = k->inputs + k->outputs, found = 0;
  n->tensors = calloc(total, sizeof *n->tensors), n->copies = calloc(total, sizeof *n->copies);
  opatlas_tensor* constants = calloc(total, sizeof *constants);
  OrtStatus* wrong = !n->tensors || !n->copies || !constants ? status(n->api, "no memory") : NULL;
  for (int32_t t = 0; t < total && !wrong; t++) {
    kind* one = &k->kinds[t];
    n->tensors[t] = (opatlas_tensor){NULL, one->seen, one->strides, one->seen_ndim, one->dtype};
    if (!one->is_constant) continue;
    int is_constant = 0;
    const OrtValue* given = NULL;
    void* data = NULL;
    wrong = CALL(n->api, CONSTANT_INPUT, f_constant_input)(info, t, &is_constant, &given);
    if (!wrong && !is_constant) wrong = status(n->api, "a kernel's weights are no constant here");
    if (!wrong) wrong = check_shape(n, t, given);
    if (!wrong) wrong = CALL(n->api, TENSOR_DATA, f_tensor_data)(given, &data);
    if (wrong) continue;
    if (is_misaligned(n, t, data)) {
      void* copy = aligned_copy(n, t);
      if (!copy) wrong = status(n->api, "no memory");
      else memcpy(copy, data, one->bytes), data = copy;
    }
    n->tensors[t].data = data;
    constants[found++] = n->tensors[t];
  }
  if (!wrong && k->code.prepare && found) {
    opatlas_threads threads = {k->code.threads, parallel_for, &(pool){n->api, NULL}};
    pthread_mutex_lock(&k->alone);
    int number = k->code.prepare(constants, found, &threads, &n->state);
    if (number) wrong = failed(n, number);
    pthread_mutex_unlock(&k->alone);
  }
  free(constants);
  return wrong;
}

static OrtStatus* create(const OrtCustomOp* op, OrtApi api, const OrtKernelInfo* info, void** made) {
  node* n = calloc(1, sizeof *n);
  if (!n) return status(api, "no memory");
  n->k = (kernel*)op, n->api = api;
  atomic_fetch_add(&n->k->all->nodes, 1);
  OrtStatus* wrong = set_up(n, info);
  if (wrong) destroy(n);
  else *made = n;
  return wrong;
}

/* ---- one node: run -------------------------------------------------------------------------------- */

static OrtStatus* compute(void* given, OrtKernelContext* context) {
  node* n = given;
  kernel* k = n->k;
  int32_t total = k->inputs + k->outputs;
  opatlas_tensor tensors[total];
  void* outputs[total];
  memcpy(tensors, n->tensors, total * sizeof *tensors);
  for (int32_t t = 0; t < k->inputs; t++) {
    if (k->kinds[t].is_constant) continue;
    const OrtValue* given = NULL;
    TRY(CALL(n->api, GET_INPUT, f_get_input)(context, t, &given));
    if (!given) return status(n->api, "an input of a kernel is not there");
    TRY(check_shape(n, t, given));
    TRY(CALL(n->api, TENSOR_DATA, f_tensor_data)(given, &tensors[t].data));
  }
  for (int32_t t = k->inputs; t < total; t++) {
    OrtValue* made = NULL;
    const kind* one = &k->kinds[t];
    TRY(CALL(n->api, GET_OUTPUT, f_get_output)(context, t - k->inputs, one->dims, one->ndim, &made));
    TRY(CALL(n->api, TENSOR_DATA, f_tensor_data)(made, &tensors[t].data));
    outputs[t] = tensors[t].data;
  }
  opatlas_threads threads = {k->code.threads, parallel_for, &(pool){n->api, context}};
  OrtStatus* wrong = NULL;
  pthread_mutex_lock(&k->alone);
  for (int32_t t = 0; t < total && !wrong; t++) {
    if (__builtin_expect(!is_misaligned(n, t, tensors[t].data), 1)) continue;
    void* copy = aligned_copy(n, t);
    if (!copy) wrong = status(n->api, "no memory");
    else if (t < k->inputs) memcpy(copy, tensors[t].data, k->kinds[t].bytes);
    tensors[t].data = copy;
  }
  if (!wrong) {
    int number = k->code.run(tensors, total, &threads, n->state);
    if (number) wrong = failed(n, number);
  }
  for (int32_t t = k->inputs; t < total && !wrong; t++)
    if (tensors[t].data != outputs[t]) memcpy(outputs[t], tensors[t].data, k->kinds[t].bytes);
  pthread_mutex_unlock(&k->alone);
  return wrong;
}

/* ---- for ONNX Runtime ----------------------------------------------------------------------------- */

/* Whether the table is the one that these numbers are of, as far as anybody can tell. */
static int is_known(OrtApi api) {
  OrtStatus* made = status(api, DOMAIN);
  int is = made && CALL(api, GET_ERROR_CODE, f_error_code)(made) == ORT_FAIL &&
           !strcmp(CALL(api, GET_ERROR_MESSAGE, f_error_message)(made), DOMAIN);
  if (is) CALL(api, RELEASE_STATUS, f_release)(made);
  return is;
}

__attribute__((visibility("default"))) OrtStatus* RegisterCustomOps(OrtSessionOptions* options,
                                                                    const OrtApiBase* base) {
  int major = 0, minor = 0;
  const char* version = base->version();
  if (!version || sscanf(version, "%d.%d", &major, &minor) != 2) major = 0;
  int is_old = major != 1 || minor < OLDEST;
  OrtApi api = base->get(is_old ? 1 : OLDEST);
  if (is_old) return api ? status(api, "kernels run inside ONNX Runtime from 1.17 on") : NULL;
  if (!api || !is_known(api)) return NULL; /* nobody can be told; the model's operators are then unknown */
  handed* all = next;
  next = NULL;
  if (!all) return status(api, "no kernels are handed over for this session");
  if (!all->domain) {
    all->api = api, all->shows_shapes = minor >= SHAPES;
    TRY(CALL(api, CREATE_DOMAIN, f_create_domain)(DOMAIN, &all->domain));
    for (int32_t at = 0; at < all->count; at++) {
      all->kernels[at]->op.version = minor >= IN_PLACE ? IN_PLACE : OLDEST;
      TRY(CALL(api, DOMAIN_ADD, f_domain_add)(all->domain, all->kernels[at]));
    }
  }
  return CALL(api, ADD_DOMAIN, f_add_domain)(options, all->domain);
}
