/* The one C entry that every compiled Opatlas kernel has (artifact kind "c-abi").
 *
 * A kernel is a shared library that exports opatlas_run and may export the others. It needs libc (libm,
 * libpthread) only, starts no thread of its own and calls parallel_for of the pool that it is given.
 */
#ifndef OPATLAS_ABI_H
#define OPATLAS_ABI_H
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define OPATLAS_ABI_VERSION 1

/* ONNX's TensorProto.DataType numbers. */
typedef struct opatlas_tensor {
  void* data;             /* aligned to the manifest's `alignment` bytes */
  const int64_t* shape;   /* in elements */
  const int64_t* strides; /* in elements */
  int32_t ndim;
  int32_t dtype;
} opatlas_tensor;

/* body(task, tasks, arg) returns 0 or an error code; tasks 0 … tasks-1 run once each, on any threads, maybe all
 * on one: no task may wait for another. After an error the tasks that have not begun are left out. */
typedef int (*opatlas_body)(int32_t task, int32_t tasks, void* arg);

typedef struct opatlas_threads {
  int32_t count; /* threads that will really work, the caller's included: the setting's `threads` */
  int (*parallel_for)(void* pool, opatlas_body body, void* arg, int32_t tasks);
  void* pool;
} opatlas_threads;

/* tensors: the operator's tensor inputs in canonical order (constants included, shape-giving inputs left
 * out), then its outputs. n: how many. state: what opatlas_prepare made, or NULL. Returns 0 on success. */
int opatlas_run(const opatlas_tensor* tensors, int32_t n, const opatlas_threads* threads, void* state);

/* Optional: called once with the constant inputs, in canonical order; may pack them into *state. */
int opatlas_prepare(const opatlas_tensor* constants, int32_t n, const opatlas_threads* threads, void** state);

/* Optional: frees what opatlas_prepare made. */
void opatlas_release(void* state);

/* Optional: the sum of the blocks of channels (8, 16) in which opatlas_run takes and gives its tensors too. Where
 * it is called so, every tensor of four dimensions that is no constant lies as [N][C / b][H][W][b], and says so by
 * five dimensions; all others, and constants, are as ever, and the state is what opatlas_prepare made. A kernel
 * without it, or that returns 0, is given [N][C][H][W] alone. */
int32_t opatlas_blocks(void);

/* Optional: one sentence about the last non-zero return, or NULL. */
const char* opatlas_error(void);

#ifdef __cplusplus
}
#endif
#endif
