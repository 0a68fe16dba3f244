/* fake_hip.c: a look-alike of HIP's runtime library and of hipRTC; see fake_gpu.h.

   Who calls it: lib/gpu_hip.c and lib/jit_hiprtc.c, which the environment variables ATTN_HIP and
   ATTN_HIPRTC lead here; hip_test.cc. What is HIP's own:

       devices      a thread has a current device instead of a stack of contexts
       properties   hipGetDevicePropertiesR0600 alone, 1472 bytes, the chip's name at byte 1160
       launches     a block may have 64 KB of shared memory

   FAKE_HIP_DEVICES: how many of a gfx942, a gfx90a and a gfx1100; FAKE_HIP_XCCS: what the first
   has, -1: the driver does not know that attribute; FAKE_HIPRTC: "hang" or "end", what a compile
   does; FAKE_HIPRTC_COUNT: a file that grows by a byte with each. */
#include "fake_gpu_code.h"

enum { DEVICES = 3 };
static const char *const chip[DEVICES] = {"gfx942:sramecc+:xnack-", "gfx90a:sramecc+:xnack-",
                                          "gfx1100"};
static const int units[DEVICES] = {304, 104, 96};

/* -- Devices ----------------------------------------------------------------------------------- */

static _Thread_local int device_now;

static int current(void) {
    return 1;
}
static int current_device(void) {
    return device_now;
}
static void *current_context(void) { /* of each device one */
    return (void *)(uintptr_t)(0x1000 + device_now);
}

API int hipInit(unsigned flags) {
    return note("hipInit", " %u", flags);
}
API int hipGetDeviceCount(int *count) {
    *count = number("FAKE_HIP_DEVICES", DEVICES);
    return 0;
}
API int hipGetDevice(int *device) {
    *device = device_now;
    return 0;
}
API int hipSetDevice(int device) {
    if (device < 0 || device >= DEVICES) {
        return INVALID;
    }
    device_now = device;
    return note("hipSetDevice", " %d", device);
}
API int hipGetDevicePropertiesR0600(void *properties, int device) {
    char *const p = properties;
    memset(p, 0, 1472);
    snprintf(p, 256, "Fake Instinct %d", device);
    snprintf(p + 1160, 256, "%s", chip[device]);
    const int code = note("hipGetDeviceProperties", " %d", device);
    return code ? code : broken == NO_DEVICE ? NO_DEVICE : 0; /* lost */
}
API int hipDeviceTotalMem(size_t *bytes, int device) {
    (void)device;
    *bytes = (size_t)1 << SPACE_BITS;
    return 0;
}
API int hipDeviceGetAttribute(int *value, int attribute, int device) {
    const int xccs = device == 0 ? number("FAKE_HIP_XCCS", 8) : 1;
    *value = attribute == 63 ? units[device] : xccs;
    return attribute == 63 || (attribute == 10018 && xccs > 0) ? 0 : INVALID;
}
API const char *hipGetErrorName(int code) {
    static _Thread_local char text[64];
    snprintf(text, sizeof text, "hipError_%s", error_word(code));
    return text;
}
API const char *hipGetErrorString(int code) {
    (void)code;
    return "the fake's words";
}
API int hipDeviceSynchronize(void) {
    return call_wait("hipDeviceSynchronize");
}

/* -- Memory ------------------------------------------------------------------------------------ */

API int hipMalloc(uint64_t *at, size_t bytes) {
    return call_alloc("hipMalloc", at, bytes);
}
API int hipFree(uint64_t at) {
    return call_free("hipFree", at);
}
API int hipMemcpyHtoDAsync(uint64_t to, const void *from, size_t bytes, void *stream) {
    return call_host_rows(note("hipMemcpyHtoD", " %zu stream %p", bytes, stream), 1, to, 0,
                          (char *)from, 0, bytes, 1, stream);
}
API int hipMemcpyDtoHAsync(void *to, uint64_t from, size_t bytes, void *stream) {
    return call_host_rows(note("hipMemcpyDtoH", " %zu stream %p", bytes, stream), 0, from, 0, to, 0,
                          bytes, 1, stream);
}
API int hipMemcpyDtoDAsync(uint64_t to, uint64_t from, size_t bytes, void *stream) {
    return call_within_rows(note("hipMemcpyDtoD", " %zu stream %p", bytes, stream), to, 0, from, 0,
                            bytes, 1, stream);
}
API int hipMemcpy2DAsync(void *to, size_t to_pitch, const void *from, size_t from_pitch,
                         size_t bytes, size_t rows, int kind, void *stream) {
    const int code = note("hipMemcpy2D", " kind %d %zu x %zu stream %p", kind, rows, bytes, stream);
    const uint64_t t = (uintptr_t)to, f = (uintptr_t)from;
    if (to_pitch < bytes || from_pitch < bytes || kind < 1 || kind > 3) {
        return INVALID;
    }
    return kind == 1 ? call_host_rows(code, 1, t, to_pitch, (char *)from, from_pitch, bytes, rows,
                                      stream)
           : kind == 2
               ? call_host_rows(code, 0, f, from_pitch, to, to_pitch, bytes, rows, stream)
               : call_within_rows(code, t, to_pitch, f, from_pitch, bytes, rows, stream);
}

/* -- Streams, code ----------------------------------------------------------------------------- */

API int hipStreamCreateWithFlags(void **stream, unsigned flags) {
    return call_stream_new(note("hipStreamCreate", " %u", flags), flags, stream);
}
API int hipStreamDestroy(void *stream) {
    return call_stream_free("hipStreamDestroy", stream);
}
API int hipStreamSynchronize(void *stream) {
    return call_stream_sync("hipStreamSynchronize", stream);
}
API int hipEventCreateWithFlags(void **event, unsigned flags) {
    return flags == 2 ? call_event_new("hipEventCreateWithFlags", event) : INVALID;
}
API int hipEventDestroy(void *event) {
    return call_event_free("hipEventDestroy", event);
}
API int hipEventRecord(void *event, void *stream) {
    return call_event_record("hipEventRecord", event, stream);
}
API int hipEventQuery(void *event) {
    return call_event_query("hipEventQuery", event);
}
API int hipStreamWaitEvent(void *stream, void *event, unsigned flags) {
    return flags ? INVALID : call_event_await("hipStreamWaitEvent", event, stream);
}
API int hipModuleLoadData(void **module, const void *code) {
    return call_load("hipModuleLoadData", module, code);
}
API int hipModuleUnload(void *module) {
    return call_unload("hipModuleUnload", module);
}
API int hipModuleGetFunction(void **to, void *module, const char *name) {
    const int code = call_function("hipModuleGetFunction", to, module, name);
    if (code == 0) {
        function_of(*to)->allowed = 64 << 10;
    }
    return code;
}
API int hipModuleGetGlobal(uint64_t *at, size_t *bytes, void *module, const char *name) {
    return call_global("hipModuleGetGlobal", at, bytes, module, name);
}
API int hipFuncGetAttribute(int *value, int attribute, void *handle) {
    const int code = needs_device(note("hipFuncGetAttribute", " %p", handle));
    *value = spills[0];
    memmove(spills, spills + 1, 3 * sizeof *spills);
    return code ? code : attribute == 3 ? 0 : INVALID;
}
API int hipModuleLaunchKernel(void *function, unsigned gx, unsigned gy, unsigned gz, unsigned bx,
                              unsigned by, unsigned bz, unsigned shared, void *stream,
                              void **params, void **extra) {
    return call_launch("hipModuleLaunchKernel", function, (unsigned[]){gx, gy, gz},
                       (unsigned[]){bx, by, bz}, shared, stream, params, extra);
}

/* -- hipRTC ------------------------------------------------------------------------------------ */

API int hiprtcVersion(int *major, int *minor) {
    *major = 7;
    *minor = 0;
    return 0;
}
API int hiprtcCreateProgram(void **to, const char *text, const char *name, int n,
                            const char *const *texts, const char *const *names) {
    return rtc_create("hiprtcCreateProgram", to, text, name, n, texts, names);
}
API int hiprtcDestroyProgram(void **to) {
    *to = NULL;
    return rtc_destroy();
}
API int hiprtcCompileProgram(void *of, int n, const char *const *options) {
    const char *const how = getenv("FAKE_HIPRTC"), *const count = getenv("FAKE_HIPRTC_COUNT");
    FILE *const file = count ? fopen(count, "a") : NULL;
    if (file) {
        fputc('.', file);
        fclose(file);
    }
    (void)of;
    if (how && strcmp(how, "hang") == 0) {
        pause();
    } else if (how && strcmp(how, "end") == 0) {
        abort();
    }
    return rtc_compile("hiprtcCompileProgram", n, options);
}
API int hiprtcGetProgramLogSize(void *of, size_t *n) {
    (void)of;
    *n = 1;
    return 0;
}
API int hiprtcGetProgramLog(void *of, char *text) {
    (void)of;
    *text = 0;
    return 0;
}
API int hiprtcGetCodeSize(void *of, size_t *n) {
    (void)of;
    *n = program.bytes;
    return 0;
}
API int hiprtcGetCode(void *of, char *to) {
    (void)of;
    memcpy(to, program.code, program.bytes);
    return 0;
}
API const char *hiprtcGetErrorString(int error) {
    (void)error;
    return "the fake's words";
}
