/* fake_cuda.c: a look-alike of NVIDIA's driver library and of NVRTC; see fake_gpu.h.

   Who calls it: lib/gpu_cuda.c and lib/jit_nvrtc.c, which the environment variables ATTN_CUDA and
   ATTN_NVRTC lead here; cuda_test.cc and tests/lua/device_memory_test.lua. What is CUDA's own:

       contexts   what needs one must find one that is there on top of the thread's stack: a
                  device's primary one that is retained, or a program's own
       maps       there are none where no emulator is behind it
       launches   shared memory above 48 KB only where it was asked for

   FAKE_CUDA_INIT: what cuInit answers; FAKE_CUDA_VERSION; FAKE_CUDA_DEVICES: how many, of compute
   capability 9.0, 7.5 and 12.0. */
#include "fake_gpu_code.h"

/* -- Devices and contexts ---------------------------------------------------------------------- */

enum { DEVICES = 8, CONTEXTS = 64, PRIMARY = 0x1000, OWN = 0x1100 };
static int retained[DEVICES];           /* of each device's primary context */
static int own[CONTEXTS];               /* contexts that a program made: 1 + device; 0: gone */
static _Thread_local void *stack[16];
static _Thread_local int depth;

static void *current_context(void) {
    return depth > 0 ? stack[depth - 1] : NULL;
}
/* The device of a context that is there, or -1. */
static int device_of(const void *context) {
    const uintptr_t primary = (uintptr_t)context - PRIMARY, made = (uintptr_t)context - OWN;
    return primary < DEVICES ? (retained[primary] > 0 ? (int)primary : -1)
           : made < CONTEXTS ? own[made] - 1
                             : -1;
}
static int current(void) {
    return device_of(current_context()) >= 0;
}
static int current_device(void) {
    return device_of(current_context());
}

API int fake_depth(void) {
    return depth;
}
API int fake_retained(void) {
    return retained[0];
}

API int cuInit(unsigned flags) {
    return note("cuInit", " %u", flags) ? 999 : number("FAKE_CUDA_INIT", 0);
}
API int cuDriverGetVersion(int *version) {
    *version = number("FAKE_CUDA_VERSION", 13000);
    return 0;
}
API int cuGetErrorName(int code, const char **name) {
    static _Thread_local char text[64];
    snprintf(text, sizeof text, "CUDA_ERROR_%s", error_word(code));
    *name = text;
    return 0;
}
API int cuGetErrorString(int code, const char **text) {
    (void)code;
    *text = "the fake's words";
    return 0;
}
API int cuDeviceGetCount(int *count) {
    *count = number("FAKE_CUDA_DEVICES", 3);
    return 0;
}
API int cuDeviceGet(int *device, int index) {
    *device = index;
    return 0;
}
API int cuDeviceGetName(char *name, int n, int device) {
    snprintf(name, (size_t)n, "Fake %d", device);
    return 0;
}
API int cuDeviceGetAttribute(int *value, int attribute, int device) {
    *value = attribute == 75   ? (device == 0 ? 9 : device == 1 ? 7 : 12)
             : attribute == 76 ? (device == 1 ? 5 : 0)
             : attribute == 16 ? 132
             : attribute == 97 ? 232448
                               : 0;
    return 0;
}
API int cuDeviceTotalMem_v2(size_t *bytes, int device) {
    (void)device;
    *bytes = (size_t)1 << SPACE_BITS;
    return 0;
}
API int cuDevicePrimaryCtxRetain(void **context, int device) {
    const int code = note("cuDevicePrimaryCtxRetain", " %d", device);
    *context = (void *)(uintptr_t)(PRIMARY + device);
    retained[device] += code == 0;
    return code;
}
API int cuDevicePrimaryCtxRelease_v2(int device) {
    note("cuDevicePrimaryCtxRelease", " %d", device);
    retained[device]--;
    return 0;
}
API int cuDevicePrimaryCtxGetState(int device, unsigned *flags, int *active) {
    *flags = 0;
    *active = retained[device] > 0;
    return 0;
}
API int cuCtxCreate_v2(void **context, unsigned flags, int device) { /* it is current then */
    static int made;
    if (flags || made == CONTEXTS || depth == 16) {
        return INVALID;
    }
    own[made] = 1 + device;
    *context = stack[depth++] = (void *)(uintptr_t)(OWN + made++);
    return 0;
}
API int cuCtxDestroy_v2(void *context) {
    const uintptr_t made = (uintptr_t)context - OWN;
    if (made >= CONTEXTS || !own[made]) {
        return INVALID;
    }
    own[made] = 0;
    depth -= current_context() == context;
    return 0;
}
API int cuCtxGetCurrent(void **context) {
    *context = current_context();
    return 0;
}
API int cuCtxGetDevice(int *device) {
    *device = current_device();
    return *device < 0 ? NO_CONTEXT : 0;
}
API int cuCtxPushCurrent_v2(void *context) {
    if (depth == 16 || device_of(context) < 0) {
        return INVALID;
    }
    stack[depth++] = context;
    return note("push", "");
}
API int cuCtxPopCurrent_v2(void **context) {
    if (depth == 0) {
        return NO_CONTEXT;
    }
    *context = stack[--depth];
    return note("pop", "");
}
API int cuCtxSynchronize(void) {
    return call_wait("cuCtxSynchronize");
}

/* -- Memory ------------------------------------------------------------------------------------ */

API int cuMemAlloc_v2(uint64_t *at, size_t bytes) {
    return call_alloc("cuMemAlloc", at, bytes);
}
API int cuMemFree_v2(uint64_t at) {
    return call_free("cuMemFree", at);
}
API int cuMemcpyHtoDAsync_v2(uint64_t to, const void *from, size_t bytes, void *stream) {
    return call_host_rows(note("cuMemcpyHtoD", " %zu stream %p", bytes, stream), 1, to, 0,
                          (char *)from, 0, bytes, 1, stream);
}
API int cuMemcpyDtoHAsync_v2(void *to, uint64_t from, size_t bytes, void *stream) {
    return call_host_rows(note("cuMemcpyDtoH", " %zu stream %p", bytes, stream), 0, from, 0, to, 0,
                          bytes, 1, stream);
}
API int cuMemcpyDtoDAsync_v2(uint64_t to, uint64_t from, size_t bytes, void *stream) {
    return call_within_rows(note("cuMemcpyDtoD", " %zu stream %p", bytes, stream), to, 0, from, 0,
                            bytes, 1, stream);
}

API int cuMemsetD32Async(uint64_t to, unsigned value, size_t words, void *stream) {
    return call_fill(note("cuMemsetD32", " %zu stream %p", words, stream), to, value, words,
                     stream);
}

typedef struct side {
    size_t x, y;
    unsigned type; /* 1 host, 2 device */
    void *host;
    uint64_t device;
    void *array;
    size_t pitch;
} side;
typedef struct copy {
    side from, to;
    size_t width, height;
} copy;

static int is_good(const side *s, size_t width) {
    return !s->x && !s->y && s->pitch >= width && (s->type == 1 || s->type == 2);
}
API int cuMemcpy2DAsync_v2(const copy *c, void *stream) {
    const side *const to = &c->to, *const from = &c->from;
    const int code = note("cuMemcpy2D", " %u to %u %zu x %zu stream %p", from->type, to->type,
                          c->height, c->width, stream);
    if (!is_good(to, c->width) || !is_good(from, c->width) || (to->type == 1 && from->type == 1)) {
        return INVALID;
    }
    if (to->type == 2 && from->type == 2) {
        return call_within_rows(code, to->device, to->pitch, from->device, from->pitch, c->width,
                                c->height, stream);
    }
    const int down = to->type == 2;
    const side *const far = down ? to : from, *const near = down ? from : to;
    return call_host_rows(code, down, far->device, far->pitch, near->host, near->pitch, c->width,
                          c->height, stream);
}

/* -- Streams, code ----------------------------------------------------------------------------- */

API int cuStreamCreate(void **stream, unsigned flags) {
    return call_stream_new(note("cuStreamCreate", " %u", flags), flags, stream);
}
API int cuStreamDestroy_v2(void *stream) {
    return call_stream_free("cuStreamDestroy", stream);
}
API int cuStreamSynchronize(void *stream) {
    return call_stream_sync("cuStreamSynchronize", stream);
}
API int cuEventCreate(void **event, unsigned flags) {
    return flags == 2 ? call_event_new("cuEventCreate", event) : INVALID;
}
API int cuEventDestroy_v2(void *event) {
    return call_event_free("cuEventDestroy", event);
}
API int cuEventRecord(void *event, void *stream) {
    return call_event_record("cuEventRecord", event, stream);
}
API int cuEventQuery(void *event) {
    return call_event_query("cuEventQuery", event);
}
API int cuStreamWaitEvent(void *stream, void *event, unsigned flags) {
    return flags ? INVALID : call_event_await("cuStreamWaitEvent", event, stream);
}
API int cuModuleLoadData(void **module, const void *code) {
    return call_load("cuModuleLoadData", module, code);
}
API int cuModuleUnload(void *module) {
    return call_unload("cuModuleUnload", module);
}
API int cuModuleGetFunction(void **function, void *module, const char *name) {
    return call_function("cuModuleGetFunction", function, module, name);
}
API int cuModuleGetGlobal_v2(uint64_t *at, size_t *bytes, void *module, const char *name) {
    return call_global("cuModuleGetGlobal", at, bytes, module, name);
}
API int cuFuncSetAttribute(void *handle, int attribute, int value) {
    function *const f = function_of(handle);
    const int code = needs_device(note("cuFuncSetAttribute", " %d", value));
    if (code || !f || attribute != 8 || value > 232448) {
        return code ? code : INVALID;
    }
    f->allowed = value;
    return 0;
}
API int cuFuncGetAttribute(int *value, int attribute, void *handle) {
    const int code = needs_device(note("cuFuncGetAttribute", " %p", handle));
    *value = spills[0];
    memmove(spills, spills + 1, 3 * sizeof *spills);
    return code ? code : attribute == 3 ? 0 : INVALID;
}
/* 16-bit elements, 4 axes, boxes without gaps in rows of 128 bytes. */
API int cuTensorMapEncodeTiled(void *map, int type, unsigned rank, void *at, const uint64_t *n,
                               const uint64_t *st, const unsigned *box, const unsigned *step,
                               int interleave, int swizzle, int promotion, int fill) {
    const int code = needs_device(note("cuTensorMapEncodeTiled", " %d", type));
    const int is_good = (uintptr_t)map % 64 == 0 && (type == 6 || type == 9) && rank == 4 &&
                        step[0] == 1 && step[1] == 1 && step[2] == 1 && step[3] == 1 &&
                        !interleave && swizzle == 3 && promotion <= 3 && !fill;
    return code || !emulator || !is_good ? (code ? code : INVALID)
                                         : emulator->map(type == 6, at, n, st, box, map);
}
API int cuLaunchKernel(void *function, unsigned gx, unsigned gy, unsigned gz, unsigned bx,
                       unsigned by, unsigned bz, unsigned shared, void *stream, void **params,
                       void **extra) {
    return call_launch("cuLaunchKernel", function, (unsigned[]){gx, gy, gz},
                       (unsigned[]){bx, by, bz}, shared, stream, params, extra);
}

/* -- NVRTC ------------------------------------------------------------------------------------- */

API int nvrtcVersion(int *major, int *minor) {
    *major = 13;
    *minor = 99;
    return 0;
}
API int nvrtcCreateProgram(void **to, const char *text, const char *name, int n,
                           const char *const *texts, const char *const *names) {
    return rtc_create("nvrtcCreateProgram", to, text, name, n, texts, names);
}
API int nvrtcDestroyProgram(void **to) {
    *to = NULL;
    return rtc_destroy();
}
API int nvrtcCompileProgram(void *of, int n, const char *const *options) {
    (void)of;
    return rtc_compile("nvrtcCompileProgram", n, options);
}
API int nvrtcGetProgramLogSize(void *of, size_t *n) {
    (void)of;
    *n = 1;
    return 0;
}
API int nvrtcGetProgramLog(void *of, char *text) {
    (void)of;
    *text = 0;
    return 0;
}
API int nvrtcGetCUBINSize(void *of, size_t *n) {
    (void)of;
    *n = program.bytes;
    return 0;
}
API int nvrtcGetCUBIN(void *of, char *to) {
    (void)of;
    memcpy(to, program.code, program.bytes);
    return 0;
}
API int nvrtcGetPTXSize(void *of, size_t *n) {
    note("nvrtcGetPTX", " ");
    return nvrtcGetCUBINSize(of, n);
}
API int nvrtcGetPTX(void *of, char *to) {
    return nvrtcGetCUBIN(of, to);
}
API const char *nvrtcGetErrorString(int error) {
    (void)error;
    return "the fake's words";
}
