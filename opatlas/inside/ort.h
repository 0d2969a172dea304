/* The little of ONNX Runtime's C interface that kernels inside it need, declared anew. OrtApi is a table of
 * functions whose order never changes (new ones are only ever added at its end), so that a slot's number is
 * enough. Each number holds from the version on that is named with it, the others from 1.17 on.
 */
#ifndef OPATLAS_ORT_H
#define OPATLAS_ORT_H
#include <stddef.h>
#include <stdint.h>

typedef struct OrtStatus OrtStatus; /* NULL: all is well */
typedef struct OrtValue OrtValue;
typedef struct OrtKernelInfo OrtKernelInfo;
typedef struct OrtKernelContext OrtKernelContext;
typedef struct OrtSessionOptions OrtSessionOptions;
typedef struct OrtCustomOpDomain OrtCustomOpDomain;
typedef struct OrtTypeAndShape OrtTypeAndShape;

typedef void* const* OrtApi; /* the table */
typedef struct {
  OrtApi (*get)(uint32_t version); /* NULL, and a line on stderr, for one that is too new */
  const char* (*version)(void);    /* "1.31.1" */
} OrtApiBase;

#define ORT_FAIL 1
#define ORT_CPU_INPUT 0
#define ORT_REQUIRED 0

enum {
  CREATE_STATUS = 0,
  GET_ERROR_CODE = 1,
  GET_ERROR_MESSAGE = 2,
  CREATE_DOMAIN = 26,
  DOMAIN_ADD = 27,
  ADD_DOMAIN = 28,
  TENSOR_DATA = 51,
  DIMS_COUNT = 61,
  DIMS = 62,
  TYPE_AND_SHAPE = 65,
  GET_INPUT = 90,
  GET_OUTPUT = 91,
  RELEASE_STATUS = 93,
  RELEASE_TYPE_AND_SHAPE = 99,
  RELEASE_DOMAIN = 101,
  CONSTANT_INPUT = 249,
  PARALLEL_FOR = 274,
  SHAPE_IN_PLACE = 414, /* 1.24 */
};

#define CALL(api, slot, type) ((type)(api)[slot])
typedef OrtStatus* (*f_create_status)(int code, const char* message);
typedef int (*f_error_code)(const OrtStatus*);
typedef const char* (*f_error_message)(const OrtStatus*);
typedef void (*f_release)(void*);
typedef OrtStatus* (*f_create_domain)(const char* name, OrtCustomOpDomain** made);
typedef OrtStatus* (*f_domain_add)(OrtCustomOpDomain*, const void* op);
typedef OrtStatus* (*f_add_domain)(OrtSessionOptions*, OrtCustomOpDomain*);
typedef OrtStatus* (*f_tensor_data)(const OrtValue*, void** data);
typedef OrtStatus* (*f_type_and_shape)(const OrtValue*, OrtTypeAndShape** made);
typedef OrtStatus* (*f_dims_count)(const OrtTypeAndShape*, size_t* count);
typedef OrtStatus* (*f_dims)(const OrtTypeAndShape*, int64_t* dims, size_t count);
typedef OrtStatus* (*f_shape_in_place)(const OrtValue*, int* element, const int64_t** dims, size_t* count);
typedef OrtStatus* (*f_constant_input)(const OrtKernelInfo*, size_t, int* is_constant, const OrtValue**);
typedef OrtStatus* (*f_get_input)(const OrtKernelContext*, size_t, const OrtValue**);
typedef OrtStatus* (*f_get_output)(OrtKernelContext*, size_t, const int64_t* dims, size_t count, OrtValue**);
typedef OrtStatus* (*f_parallel_for)(const OrtKernelContext*, void (*)(void*, size_t), size_t total,
                                     size_t batches, void* data);

/* One operator of a domain; ONNX Runtime reads as much of it as `version` says there is. */
typedef struct OrtCustomOp OrtCustomOp;
struct OrtCustomOp {
  uint32_t version;
  void* (*create)(const OrtCustomOp*, OrtApi, const OrtKernelInfo*);
  const char* (*name)(const OrtCustomOp*);
  const char* (*provider)(const OrtCustomOp*);
  int (*input_type)(const OrtCustomOp*, size_t);
  size_t (*input_count)(const OrtCustomOp*);
  int (*output_type)(const OrtCustomOp*, size_t);
  size_t (*output_count)(const OrtCustomOp*);
  void (*compute)(void*, OrtKernelContext*);
  void (*destroy)(void*);
  int (*input_characteristic)(const OrtCustomOp*, size_t);
  int (*output_characteristic)(const OrtCustomOp*, size_t);
  int (*input_memory)(const OrtCustomOp*, size_t);
  int (*least_inputs)(const OrtCustomOp*);
  int (*inputs_alike)(const OrtCustomOp*);
  int (*least_outputs)(const OrtCustomOp*);
  int (*outputs_alike)(const OrtCustomOp*);
  OrtStatus* (*create_or_say)(const OrtCustomOp*, OrtApi, const OrtKernelInfo*, void** kernel); /* 16 */
  OrtStatus* (*compute_or_say)(void*, OrtKernelContext*);
  void* infer; /* 17 */
  int (*start_version)(const OrtCustomOp*);
  int (*end_version)(const OrtCustomOp*);
  size_t (*may_write_over)(int** inputs, int** outputs); /* 18 */
  void (*release_may_write_over)(int* inputs, int* outputs);
  size_t (*aliases)(int** inputs, int** outputs);
  void (*release_aliases)(int* inputs, int* outputs);
};
#endif
