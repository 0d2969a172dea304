/* A stand-in for NVIDIA's libcuda.so.1 over the host's memory, so that what calls it is run without a GPU:
 * two devices, one primary context each, current or not by thread. As in the real one, launches and copies
 * happen in their stream's order when somebody waits, what has no context or another device's is refused, and
 * an address that was never given out breaks its context for good. Images are "SIMULATED"; of functions there
 * are "twice" (from, to, floats) and "beyond". */
#define _GNU_SOURCE
#include <cuda.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { DEVICES = 2, DEEPEST = 16, MOST_BLOCKS = 4096 };
enum kind { LAUNCH, COPY, FILL, RECORD, WAIT };

struct work {
    struct work *next;
    enum kind kind;
    CUevent event;
    CUfunction function;
    char *target, *source;
    size_t size;
    int value;
};
struct queue { struct work *first, **end; };
struct CUctx_st { int device; CUresult broken; CUstream streams; double us; };
struct CUstream_st { CUcontext context; CUstream next; struct queue todo, *captured; };
struct CUevent_st { CUcontext context; CUstream stream; int recorded, happened; double at_us; };
struct CUmod_st { CUcontext context; };
struct CUfunc_st { CUcontext context; int beyond; int shared_bytes; };
struct CUgraph_st { struct queue work; };
struct CUgraphExec_st { struct queue work; CUcontext context; };

static struct CUctx_st contexts[DEVICES];
static struct CUstream_st defaults[DEVICES];
static struct { char *start; size_t size; CUcontext context; } blocks[MOST_BLOCKS];
static int initialised;
static __thread CUcontext stack[DEEPEST];
static __thread int depth;
static __thread CUstream capturing;

#define CURRENT (depth ? stack[depth - 1] : NULL)
#define NEED_CONTEXT                                                      \
    CUcontext here = CURRENT;                                             \
    if (!initialised) return CUDA_ERROR_NOT_INITIALIZED;                  \
    if (!here) return CUDA_ERROR_INVALID_CONTEXT;                         \
    if (here->broken) return here->broken
#define NOT_WHILE_CAPTURING                                               \
    if (capturing) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED

static CUstream stream_of(CUstream given) { return given ? given : &defaults[CURRENT->device]; }

static void add(struct queue *queue, struct work work) {
    struct work *made = malloc(sizeof *made);
    *made = work;
    made->next = NULL;
    if (!queue->first) queue->end = &queue->first;
    *queue->end = made;
    queue->end = &made->next;
}

static CUresult begin(CUstream given, struct work work) {
    CUstream stream = stream_of(given);
    if (stream->context != CURRENT) return CUDA_ERROR_INVALID_HANDLE;
    add(stream->captured ? stream->captured : &stream->todo, work);
    return CUDA_SUCCESS;
}

/* Whether these bytes are the host's, or were given out by this context. */
static int reachable(CUcontext context, char *start, size_t size) {
    for (int n = 0; n < MOST_BLOCKS; n++)
        if (blocks[n].start && blocks[n].start <= start && start + size <= blocks[n].start + blocks[n].size)
            return blocks[n].context == context || !blocks[n].context;
    return 0;
}

static void run(CUstream stream, CUevent until);

static void one(CUstream stream, struct work *work) {
    CUcontext context = stream->context;
    context->us += 1;
    if (work->kind == WAIT) {
        if (!work->event->happened) run(work->event->stream, work->event);
    } else if (work->kind == RECORD) {
        work->event->happened = 1;
        work->event->at_us = context->us;
    } else if (work->kind == FILL) {
        if (!reachable(context, work->target, work->size)) context->broken = CUDA_ERROR_ILLEGAL_ADDRESS;
        else memset(work->target, work->value, work->size);
    } else if (work->kind == COPY) {
        memcpy(work->target, work->source, work->size);
    } else if (work->function->beyond || !reachable(context, work->source, work->size * sizeof(float))
               || !reachable(context, work->target, work->size * sizeof(float))) {
        context->broken = CUDA_ERROR_ILLEGAL_ADDRESS;
    } else {
        for (size_t n = 0; n < work->size; n++)
            ((float *)work->target)[n] = 2 * ((float *)work->source)[n];
    }
}

static void run(CUstream stream, CUevent until) {
    while (stream->todo.first && !stream->context->broken && !(until && until->happened)) {
        struct work *work = stream->todo.first;
        stream->todo.first = work->next;
        one(stream, work);
        free(work);
    }
}

static void run_all(CUcontext context) {
    run(&defaults[context->device], NULL);
    for (CUstream stream = context->streams; stream; stream = stream->next) run(stream, NULL);
}

static CUresult given_out(void **address, size_t size, CUcontext context) {
    for (int n = 0; n < MOST_BLOCKS; n++)
        if (!blocks[n].start) {
            *address = blocks[n].start = aligned_alloc(256, (size + 255) & ~(size_t)255);
            blocks[n].size = size, blocks[n].context = context;
            return CUDA_SUCCESS;
        }
    return CUDA_ERROR_OUT_OF_MEMORY;
}

static CUresult taken_back(void *address, CUcontext context) {
    run_all(CURRENT);
    for (int n = 0; n < MOST_BLOCKS; n++)
        if (blocks[n].start == address && blocks[n].context == context) {
            free(address);
            blocks[n].start = NULL;
            return CUDA_SUCCESS;
        }
    return CUDA_ERROR_INVALID_VALUE;
}

CUresult cuInit(unsigned flags) {
    for (int n = 0; n < DEVICES; n++) contexts[n].device = n, defaults[n].context = &contexts[n];
    initialised = 1;
    return CUDA_SUCCESS;
}
CUresult cuDriverGetVersion(int *version) { *version = 13000; return CUDA_SUCCESS; }
CUresult cuDeviceGetCount(int *count) { *count = DEVICES; return CUDA_SUCCESS; }
CUresult cuDeviceGet(CUdevice *device, int number) {
    *device = number;
    return number < DEVICES ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}
CUresult cuDeviceGetName(char *name, int size, CUdevice device) {
    snprintf(name, size, "Simulated Device");
    return CUDA_SUCCESS;
}
CUresult cuDeviceTotalMem(size_t *bytes, CUdevice device) { *bytes = 80ull << 30; return CUDA_SUCCESS; }
CUresult cuDeviceComputeCapability(int *major, int *minor, CUdevice device) {
    *major = 9, *minor = 0;
    return CUDA_SUCCESS;
}
CUresult cuDeviceGetAttribute(int *value, CUdevice_attribute what, CUdevice device) {
    *value = what == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR ? 9
           : what == CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT     ? 132
           : what == CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE            ? 50 << 20 : 0;
    return CUDA_SUCCESS;
}
CUresult cuGetErrorString(CUresult error, const char **said) { *said = "an error"; return CUDA_SUCCESS; }

CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device) {
    *context = &contexts[device];
    return CUDA_SUCCESS;
}
CUresult cuDevicePrimaryCtxRelease(CUdevice device) { return CUDA_SUCCESS; }
CUresult cuCtxGetCurrent(CUcontext *context) { *context = CURRENT; return CUDA_SUCCESS; }
CUresult cuCtxSetCurrent(CUcontext context) {
    if (!depth) depth = 1;
    stack[depth - 1] = context;
    return CUDA_SUCCESS;
}
CUresult cuCtxPushCurrent(CUcontext context) { stack[depth++] = context; return CUDA_SUCCESS; }
CUresult cuCtxPopCurrent(CUcontext *context) {
    if (!depth) return CUDA_ERROR_INVALID_CONTEXT;
    if (context) *context = CURRENT;
    depth--;
    return CUDA_SUCCESS;
}
CUresult cuCtxGetDevice(CUdevice *device) { NEED_CONTEXT; *device = here->device; return CUDA_SUCCESS; }
CUresult cuCtxSynchronize(void) {
    NEED_CONTEXT;
    NOT_WHILE_CAPTURING;
    run_all(here);
    return here->broken;
}

CUresult cuMemAlloc(CUdeviceptr *address, size_t size) {
    NEED_CONTEXT;
    NOT_WHILE_CAPTURING;
    return size > 1ull << 32 ? CUDA_ERROR_OUT_OF_MEMORY : given_out((void **)address, size, here);
}
CUresult cuMemFree(CUdeviceptr address) { NEED_CONTEXT; return taken_back((void *)address, here); }
CUresult cuMemHostAlloc(void **address, size_t size, unsigned flags) {
    NEED_CONTEXT;
    return given_out(address, size, NULL);
}
CUresult cuMemFreeHost(void *address) { NEED_CONTEXT; return taken_back(address, NULL); }

static CUresult copied(CUstream stream, void *target, const void *source, size_t size, int ends) {
    NEED_CONTEXT;
    if ((ends & 1 && !reachable(here, target, size)) || (ends & 2 && !reachable(here, (char *)source, size)))
        return CUDA_ERROR_INVALID_VALUE;
    return begin(stream, (struct work){.kind = COPY, .target = target, .source = (char *)source, .size = size});
}
CUresult cuMemcpyHtoDAsync(CUdeviceptr target, const void *source, size_t size, CUstream stream) {
    return copied(stream, (void *)target, source, size, 1);
}
CUresult cuMemcpyDtoHAsync(void *target, CUdeviceptr source, size_t size, CUstream stream) {
    return copied(stream, target, (void *)source, size, 2);
}
CUresult cuMemcpyDtoDAsync(CUdeviceptr target, CUdeviceptr source, size_t size, CUstream stream) {
    return copied(stream, (void *)target, (void *)source, size, 3);
}
CUresult cuMemcpyAsync(CUdeviceptr target, CUdeviceptr source, size_t size, CUstream stream) {
    return copied(stream, (void *)target, (void *)source, size, 0);
}
CUresult cuMemsetD8(CUdeviceptr target, unsigned char value, size_t size) {
    NEED_CONTEXT;
    NOT_WHILE_CAPTURING;
    return begin(NULL, (struct work){.kind = FILL, .target = (char *)target, .value = value, .size = size});
}

CUresult cuStreamCreate(CUstream *stream, unsigned flags) {
    NEED_CONTEXT;
    *stream = calloc(1, sizeof **stream);
    (*stream)->context = here, (*stream)->next = here->streams;
    here->streams = *stream;
    return CUDA_SUCCESS;
}
CUresult cuStreamDestroy(CUstream stream) {
    NEED_CONTEXT;
    run(stream, NULL);
    for (CUstream *place = &stream->context->streams; *place; place = &(*place)->next)
        if (*place == stream) {
            *place = stream->next;
            free(stream);
            return CUDA_SUCCESS;
        }
    return CUDA_ERROR_INVALID_HANDLE;
}
CUresult cuStreamSynchronize(CUstream stream) {
    NEED_CONTEXT;
    run(stream_of(stream), NULL);
    return here->broken;
}
CUresult cuStreamWaitEvent(CUstream stream, CUevent event, unsigned flags) {
    NEED_CONTEXT;
    return begin(stream, (struct work){.kind = WAIT, .event = event});
}

CUresult cuEventCreate(CUevent *event, unsigned flags) {
    NEED_CONTEXT;
    *event = calloc(1, sizeof **event);
    (*event)->context = here;
    return CUDA_SUCCESS;
}
CUresult cuEventDestroy(CUevent event) { free(event); return CUDA_SUCCESS; }
CUresult cuEventRecord(CUevent event, CUstream stream) {
    NEED_CONTEXT;
    if (event->context != here) return CUDA_ERROR_INVALID_HANDLE;
    event->stream = stream_of(stream), event->recorded = 1, event->happened = 0;
    return begin(stream, (struct work){.kind = RECORD, .event = event});
}
CUresult cuEventSynchronize(CUevent event) {
    NEED_CONTEXT;
    if (event->recorded) run(event->stream, event);
    return here->broken;
}
CUresult cuEventQuery(CUevent event) {
    NEED_CONTEXT;
    if (event->happened) return CUDA_SUCCESS;
    run(event->stream, event);
    return here->broken ? here->broken : CUDA_ERROR_NOT_READY;
}
CUresult cuEventElapsedTime(float *ms, CUevent first, CUevent last) {
    if (!first->happened || !last->happened) return CUDA_ERROR_NOT_READY;
    *ms = (last->at_us - first->at_us) / 1e3;
    return CUDA_SUCCESS;
}

CUresult cuModuleLoadData(CUmodule *module, const void *image) {
    NEED_CONTEXT;
    if (strncmp(image, "SIMULATED", 9)) return CUDA_ERROR_INVALID_IMAGE;
    *module = malloc(sizeof **module);
    (*module)->context = here;
    return CUDA_SUCCESS;
}
CUresult cuModuleLoadDataEx(CUmodule *module, const void *image, unsigned count, CUjit_option *options,
                            void **values) {
    return cuModuleLoadData(module, image);
}
CUresult cuModuleUnload(CUmodule module) { NEED_CONTEXT; free(module); return CUDA_SUCCESS; }
CUresult cuModuleGetFunction(CUfunction *function, CUmodule module, const char *name) {
    NEED_CONTEXT;
    if (strcmp(name, "twice") && strcmp(name, "beyond")) return CUDA_ERROR_NOT_FOUND;
    *function = calloc(1, sizeof **function);
    (*function)->context = module->context, (*function)->beyond = !strcmp(name, "beyond");
    return CUDA_SUCCESS;
}
CUresult cuFuncSetAttribute(CUfunction function, CUfunction_attribute what, int value) {
    if (what == CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES) function->shared_bytes = value;
    return CUDA_SUCCESS;
}
CUresult cuLaunchKernel(CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
                        unsigned block_y, unsigned block_z, unsigned shared_bytes, CUstream stream,
                        void **parameters, void **extra) {
    NEED_CONTEXT;
    if (function->context != here) return CUDA_ERROR_INVALID_HANDLE;
    if (!grid_x || !grid_y || !grid_z || !block_x || block_x * block_y * block_z > 1024
        || (shared_bytes > 48 << 10 && shared_bytes > function->shared_bytes))
        return CUDA_ERROR_INVALID_VALUE;
    struct work work = {.kind = LAUNCH, .function = function};
    int floats = 0;
    if (extra) { /* one buffer of all arguments, as PyCUDA has them */
        char *packed = extra[1];
        memcpy(&work.source, packed, 8), memcpy(&work.target, packed + 8, 8), memcpy(&floats, packed + 16, 4);
    } else {
        work.source = *(char **)parameters[0], work.target = *(char **)parameters[1];
        floats = *(int *)parameters[2];
    }
    work.size = floats;
    return begin(stream, work);
}

CUresult cuStreamBeginCapture(CUstream stream, CUstreamCaptureMode mode) {
    NEED_CONTEXT;
    if (!stream || capturing) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    stream->captured = calloc(1, sizeof *stream->captured);
    capturing = stream;
    return CUDA_SUCCESS;
}
CUresult cuStreamEndCapture(CUstream stream, CUgraph *graph) {
    NEED_CONTEXT;
    if (capturing != stream) return CUDA_ERROR_ILLEGAL_STATE;
    *graph = malloc(sizeof **graph);
    (*graph)->work = *stream->captured;
    stream->captured = NULL, capturing = NULL;
    return CUDA_SUCCESS;
}
CUresult cuGraphInstantiate(CUgraphExec *made, CUgraph graph, unsigned long long flags) {
    NEED_CONTEXT;
    *made = malloc(sizeof **made);
    (*made)->work = graph->work, (*made)->context = here;
    return CUDA_SUCCESS;
}
CUresult cuGraphDestroy(CUgraph graph) { free(graph); return CUDA_SUCCESS; }
CUresult cuGraphExecDestroy(CUgraphExec graph) { free(graph); return CUDA_SUCCESS; }
CUresult cuGraphLaunch(CUgraphExec graph, CUstream stream) {
    NEED_CONTEXT;
    if (graph->context != here) return CUDA_ERROR_INVALID_VALUE;
    for (struct work *work = graph->work.first; work; work = work->next) {
        CUresult error = begin(stream, *work);
        if (error) return error;
    }
    return CUDA_SUCCESS;
}

/* The newest of a name, as the real one gives to who was built with its header. */
CUresult cuGetProcAddress(const char *name, void **found, int version, cuuint64_t flags,
                          CUdriverProcAddressQueryResult *status) {
    static const char *suffixes[] = {"_v4", "_v3", "_v2", ""};
    char whole[256];
    Dl_info self;
    dladdr((void *)cuInit, &self);
    void *library = dlopen(self.dli_fname, RTLD_NOW | RTLD_NOLOAD);
    *found = NULL;
    for (int n = 0; n < 4 && !*found; n++) {
        snprintf(whole, sizeof whole, "%s%s", name, suffixes[n]);
        *found = dlsym(library, whole);
    }
    return *found ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}
