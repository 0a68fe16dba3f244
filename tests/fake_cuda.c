/* fake_cuda.c: a look-alike of NVIDIA's driver library, for tests on machines without a GPU; and of
   NVRTC (ATTN_NVRTC may name it, too), whose code is no code but comes at once.

   Who calls it: lib/gpu_cuda.c, which the environment variable ATTN_CUDA leads here; cuda_test.cc
   and tests/lua/device_memory.lua. It runs no kernel. What it is strict about:

       memory     a device address cannot be read or written by the host: it stands for a place in a
                  shadow; copies must lie within one live allocation
       contexts   what needs one must find the device's primary context on top of the thread's stack
       copies     pitches not less than a row
       launches   one parameter, by address; shared memory above 48 KB only where it was asked for

   Every call is written to a log. FAKE_CUDA_INIT: what cuInit answers; FAKE_CUDA_VERSION;
   FAKE_CUDA_DEVICES: how many, the first of compute capability 9.0, the second of 7.5. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define API __attribute__((visibility("default")))
enum { INVALID = 1, NO_MEMORY = 2, NO_CONTEXT = 201, NOT_FOUND = 500 };
enum { MOST_BLOCKS = 4096, LOG = 1 << 16, SPACE_BITS = 36 };
enum { FUNCTIONS = 5, PARAMS = 256 }; /* parameters have so many bytes at least */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* -- What a test reads ------------------------------------------------------------------------- */

typedef struct fake_launch {
    char kernel[48];
    unsigned grid, block, shared;
    void *stream;
    unsigned char params[PARAMS];
    int count;
} fake_launch;

static char log_text[LOG];
static size_t log_at;
static fake_launch last;
static int spills[4]; /* what the next kernels that are asked about spill */
static char fail_name[64];
static int fail_code;

API const char *fake_log(void) {
    return log_text;
}
API void fake_clear(void) {
    log_text[log_at = 0] = 0;
}
API const fake_launch *fake_last(void) {
    return &last;
}
/* The next call of that name answers `code`. */
API void fake_fail(const char *name, int code) {
    snprintf(fail_name, sizeof fail_name, "%s", name);
    fail_code = code;
}

/* What the next kernel spills, the one after it, and so on; the rest nothing. */
API void fake_spills(int a, int b, int c) {
    memcpy(spills, (int[]){a, b, c, 0}, sizeof spills);
}

/* Writes a line and returns what the call is to answer at once, or 0. */
static int note(const char *name, const char *format, ...) {
    va_list values;
    int code = 0;
    pthread_mutex_lock(&lock);
    if (log_at > LOG - 512) {
        log_at = 0;
    }
    log_at += (size_t)sprintf(log_text + log_at, "%s", name);
    va_start(values, format);
    log_at += (size_t)vsnprintf(log_text + log_at, 300, format, values);
    va_end(values);
    log_at += (size_t)sprintf(log_text + log_at, "\n");
    if (strcmp(fail_name, name) == 0) {
        fail_name[0] = 0;
        code = fail_code;
    }
    pthread_mutex_unlock(&lock);
    return code;
}

static int number(const char *variable, int otherwise) {
    const char *const text = getenv(variable);
    return text ? atoi(text) : otherwise;
}

/* -- Devices and contexts ---------------------------------------------------------------------- */

static int retained[8];
static _Thread_local void *stack[16];
static _Thread_local int depth;

static void *context_of(int device) {
    return (void *)(uintptr_t)(0x1000 + device);
}
static int current(void) {
    return depth > 0 && stack[depth - 1] == context_of(0) && retained[0] > 0;
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
    *name = code == NO_MEMORY    ? "CUDA_ERROR_OUT_OF_MEMORY"
            : code == NO_CONTEXT ? "CUDA_ERROR_INVALID_CONTEXT"
            : code == 100        ? "CUDA_ERROR_NO_DEVICE"
            : code == 700        ? "CUDA_ERROR_ILLEGAL_ADDRESS"
            : code == NOT_FOUND  ? "CUDA_ERROR_NOT_FOUND"
                                 : "CUDA_ERROR_INVALID_VALUE";
    return 0;
}
API int cuGetErrorString(int code, const char **text) {
    (void)code;
    *text = "the fake's words";
    return 0;
}
API int cuDeviceGetCount(int *count) {
    *count = number("FAKE_CUDA_DEVICES", 2);
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
    *value = attribute == 75   ? (device == 0 ? 9 : 7)
             : attribute == 76 ? (device == 0 ? 0 : 5)
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
    *context = context_of(device);
    retained[device] += code == 0;
    return code;
}
API int cuDevicePrimaryCtxRelease_v2(int device) {
    note("cuDevicePrimaryCtxRelease", " %d", device);
    retained[device]--;
    return 0;
}
API int cuCtxPushCurrent_v2(void *context) {
    if (depth == 16) {
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
    return current() ? note("cuCtxSynchronize", "") : NO_CONTEXT;
}

/* -- Memory ------------------------------------------------------------------------------------ */

static struct {
    uint64_t at;
    size_t bytes;
    int live;
} blocks[MOST_BLOCKS];
static int n_blocks;
static char *space, *shadow; /* device addresses; what they stand for */
static size_t used;

static void begin(void) {
    const size_t all = (size_t)1 << SPACE_BITS;
    const int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    space = mmap(NULL, all, PROT_NONE, flags, -1, 0);
    shadow = mmap(NULL, all, PROT_READ | PROT_WRITE, flags, -1, 0);
}

/* The shadow of a range within one live block, or NULL. */
static char *within(uint64_t at, size_t bytes) {
    for (int i = n_blocks; i-- > 0;) {
        const uint64_t from = blocks[i].at;
        if (blocks[i].live && at >= from && at + bytes <= from + blocks[i].bytes) {
            return shadow + (at - (uint64_t)(uintptr_t)space);
        }
    }
    return NULL;
}

API int fake_live(void) {
    int live = 0;
    for (int i = 0; i < n_blocks; i++) {
        live += blocks[i].live;
    }
    return live;
}

API int cuMemAlloc_v2(uint64_t *at, size_t bytes) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, begin);
    const int code = note("cuMemAlloc", " %zu", bytes);
    if (code || !current()) {
        return code ? code : NO_CONTEXT;
    }
    if (n_blocks == MOST_BLOCKS || bytes > ((size_t)1 << SPACE_BITS) - used) {
        return NO_MEMORY;
    }
    *at = (uint64_t)(uintptr_t)space + used;
    memset(shadow + used, 0x5a, bytes < 4096 ? bytes : 4096);
    blocks[n_blocks].at = *at;
    blocks[n_blocks].bytes = bytes;
    blocks[n_blocks++].live = 1;
    used += (bytes + 511) / 256 * 256; /* neighbours never touch */
    return 0;
}
API int cuMemFree_v2(uint64_t at) {
    note("cuMemFree", "");
    for (int i = 0; i < n_blocks; i++) {
        if (blocks[i].live && blocks[i].at == at && current()) {
            blocks[i].live = 0;
            return 0;
        }
    }
    return INVALID;
}
API int cuMemcpyHtoDAsync_v2(uint64_t to, const void *from, size_t bytes, void *stream) {
    const int code = note("cuMemcpyHtoD", " %zu stream %p", bytes, stream);
    char *const at = within(to, bytes);
    if (code || !at || !current()) {
        return code ? code : INVALID;
    }
    memcpy(at, from, bytes);
    return 0;
}
API int cuMemcpyDtoHAsync_v2(void *to, uint64_t from, size_t bytes, void *stream) {
    const int code = note("cuMemcpyDtoH", " %zu stream %p", bytes, stream);
    const char *const at = within(from, bytes);
    if (code || !at || !current()) {
        return code ? code : INVALID;
    }
    memcpy(to, at, bytes);
    return 0;
}
API int cuMemcpyDtoDAsync_v2(uint64_t to, uint64_t from, size_t bytes, void *stream) {
    const int code = note("cuMemcpyDtoD", " %zu stream %p", bytes, stream);
    char *const t = within(to, bytes), *const f = within(from, bytes);
    if (code || !t || !f || !current()) {
        return code ? code : INVALID;
    }
    memcpy(t, f, bytes);
    return 0;
}

typedef struct side {
    size_t x, y;
    unsigned type;
    void *host;
    uint64_t device;
    void *array;
    size_t pitch;
} side;
typedef struct copy {
    side from, to;
    size_t width, height;
} copy;

static char *row_of(const side *s, size_t row, size_t width) {
    if (s->x || s->y || s->pitch < width || (s->type != 1 && s->type != 2)) {
        return NULL;
    }
    return s->type == 1 ? (char *)s->host + row * s->pitch
                        : within(s->device + row * s->pitch, width);
}
API int cuMemcpy2DAsync_v2(const copy *c, void *stream) {
    const int code = note("cuMemcpy2D", " %u to %u %zu x %zu stream %p", c->from.type, c->to.type,
                          c->height, c->width, stream);
    if (code || !current()) {
        return code ? code : NO_CONTEXT;
    }
    for (size_t row = 0; row < c->height; row++) {
        char *const to = row_of(&c->to, row, c->width), *const from =
                                                            row_of(&c->from, row, c->width);
        if (!to || !from) {
            return INVALID;
        }
        memcpy(to, from, c->width);
    }
    return 0;
}

/* -- Streams, code ----------------------------------------------------------------------------- */

API int cuStreamCreate(void **stream, unsigned flags) {
    static uintptr_t next = 0x2000;
    *stream = (void *)next++;
    return current() ? note("cuStreamCreate", " %u", flags) : NO_CONTEXT;
}
API int cuStreamDestroy_v2(void *stream) {
    return current() ? note("cuStreamDestroy", " %p", stream) : NO_CONTEXT;
}
API int cuStreamSynchronize(void *stream) {
    return current() ? note("cuStreamSynchronize", " %p", stream) : NO_CONTEXT;
}

static const char *const functions[FUNCTIONS] = {"one", "two", "attn_fwd", "attn_combine",
                                                 "attn_clear"};
static int allowed[FUNCTIONS] = {48 << 10, 48 << 10, 48 << 10, 48 << 10, 48 << 10};

API int cuModuleLoadData(void **module, const void *code) {
    *module = (void *)0x3000;
    return current() ? note("cuModuleLoadData", " %.8s", (const char *)code) : NO_CONTEXT;
}
API int cuModuleUnload(void *module) {
    return current() ? note("cuModuleUnload", " %p", module) : NO_CONTEXT;
}
API int cuModuleGetFunction(void **function, void *module, const char *name) {
    int which = 0;
    while (which < FUNCTIONS && strcmp(functions[which], name) != 0) {
        which++;
    }
    *function = (void *)(uintptr_t)(0x4000 + which);
    note("cuModuleGetFunction", " %p %s", module, name);
    return current() && which < FUNCTIONS ? 0 : NOT_FOUND;
}
API int cuModuleGetGlobal_v2(uint64_t *at, size_t *bytes, void *module, const char *name) {
    static uint64_t cell;
    const int32_t value = 49152;
    note("cuModuleGetGlobal", " %p %s", module, name);
    if (strcmp(name, "NUMBER") != 0 && strcmp(name, "attn_fwd_shared") != 0) {
        return NOT_FOUND;
    }
    if (cell == 0 && cuMemAlloc_v2(&cell, 4) == 0) {
        blocks[n_blocks - 1].live = 2; /* the module's, not the test's */
        memcpy(within(cell, 4), &value, 4);
    }
    *at = cell;
    *bytes = 4;
    return 0;
}
API int cuFuncSetAttribute(void *function, int attribute, int value) {
    allowed[(uintptr_t)function - 0x4000] = value;
    return current() && attribute == 8 && value <= 232448 ? note("cuFuncSetAttribute", " %d", value)
                                                          : INVALID;
}
API int cuFuncGetAttribute(int *value, int attribute, void *function) {
    *value = spills[0];
    memmove(spills, spills + 1, 3 * sizeof *spills);
    return current() && attribute == 3 ? note("cuFuncGetAttribute", " %p", function) : INVALID;
}
API int cuLaunchKernel(void *function, unsigned gx, unsigned gy, unsigned gz, unsigned bx,
                       unsigned by, unsigned bz, unsigned shared, void *stream, void **params,
                       void **extra) {
    const uintptr_t which = (uintptr_t)function - 0x4000;
    const int code = note("cuLaunchKernel", " %u stream %p", gx, stream);
    if (code || !current()) {
        return code ? code : NO_CONTEXT;
    }
    if (which >= FUNCTIONS || !params || extra || gy != 1 || gz != 1 || by != 1 || bz != 1 ||
        gx == 0 || bx > 1024 || (int)shared > allowed[which]) {
        return INVALID;
    }
    last = (fake_launch){
        .grid = gx, .block = bx, .shared = shared, .stream = stream, .count = last.count + 1};
    snprintf(last.kernel, sizeof last.kernel, "%s", functions[which]);
    memcpy(last.params, params[0], sizeof last.params);
    return 0;
}

/* -- NVRTC ------------------------------------------------------------------------------------- */

static const char code[] = "fakecode";

API int nvrtcVersion(int *major, int *minor) {
    *major = 13;
    *minor = 99;
    return 0;
}
API int nvrtcCreateProgram(void **program, const char *text, const char *name, int n,
                           const char *const *texts, const char *const *names) {
    (void)texts;
    (void)names;
    *program = (void *)0x5000;
    return note("nvrtcCreateProgram", " %s %zu %d", name, strlen(text), n);
}
API int nvrtcDestroyProgram(void **program) {
    *program = NULL;
    return 0;
}
API int nvrtcCompileProgram(void *program, int n, const char *const *options) {
    (void)program;
    return note("nvrtcCompileProgram", " %d %s", n, options[0]);
}
API int nvrtcGetProgramLogSize(void *program, size_t *n) {
    (void)program;
    *n = 1;
    return 0;
}
API int nvrtcGetProgramLog(void *program, char *text) {
    (void)program;
    *text = 0;
    return 0;
}
API int nvrtcGetCUBINSize(void *program, size_t *n) {
    (void)program;
    *n = sizeof code;
    return 0;
}
API int nvrtcGetCUBIN(void *program, char *to) {
    (void)program;
    memcpy(to, code, sizeof code);
    return 0;
}
API const char *nvrtcGetErrorString(int error) {
    (void)error;
    return "the fake's words";
}
