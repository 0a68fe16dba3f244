/* gpu_cuda.c: NVIDIA's chips through their driver library, found at run time.

   Who calls it: device.c through the table attn__cuda. The library is libcuda.so.1, or what the
   environment variable ATTN_CUDA names; no header of its vendor is needed. A device is cuda:N. Every
   call that touches a device looks like this, so that the caller's own context stays current:

       push the primary context -> the driver's functions -> pop

   Streams are CUstream, NULL the legacy default stream. Those made here wait for it and it for them,
   so that copies on NULL see what they have computed; a caller's own non-blocking ones do not. */
#include "gpu.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CUDA = 2, OLDEST = 11040, KERNELS = 16 };
enum { OUT_OF_MEMORY = 2, HOST_MEMORY = 1, DEVICE_MEMORY = 2, PLAIN_SHARED = 48 << 10 };
enum { UNITS = 16, COMPUTE_MODE = 20, MAJOR = 75, MINOR = 76, SHARED = 97 }; /* attributes */
enum { MAX_DYNAMIC_SHARED = 8 };                                             /* of a function */

/* cuMemcpy2DAsync's parameter: a rectangle on either side. */
typedef struct cuda_side {
    size_t x, y;
    int32_t type; /* HOST_MEMORY or DEVICE_MEMORY */
    void *host;
    uint64_t device;
    void *array;
    size_t pitch;
} cuda_side;
typedef struct cuda_copy {
    cuda_side from, to;
    size_t width, height;
} cuda_copy;

/* Entry points with the suffix that their present form has; the plain names are older functions. */
#define ENTRIES(X)                                                                                 \
    X(init, cuInit, (unsigned))                                                                    \
    X(version, cuDriverGetVersion, (int *))                                                        \
    X(error_name, cuGetErrorName, (int, const char **))                                            \
    X(error_text, cuGetErrorString, (int, const char **))                                          \
    X(count, cuDeviceGetCount, (int *))                                                            \
    X(device, cuDeviceGet, (int *, int))                                                           \
    X(name, cuDeviceGetName, (char *, int, int))                                                   \
    X(attribute, cuDeviceGetAttribute, (int *, int, int))                                          \
    X(memory, cuDeviceTotalMem_v2, (size_t *, int))                                                \
    X(retain, cuDevicePrimaryCtxRetain, (void **, int))                                            \
    X(release, cuDevicePrimaryCtxRelease_v2, (int))                                                \
    X(push, cuCtxPushCurrent_v2, (void *))                                                         \
    X(pop, cuCtxPopCurrent_v2, (void **))                                                          \
    X(wait, cuCtxSynchronize, (void))                                                              \
    X(alloc, cuMemAlloc_v2, (uint64_t *, size_t))                                                  \
    X(free, cuMemFree_v2, (uint64_t))                                                              \
    X(copy, cuMemcpy2DAsync_v2, (const cuda_copy *, void *))                                       \
    X(to_device, cuMemcpyHtoDAsync_v2, (uint64_t, const void *, size_t, void *))                   \
    X(to_host, cuMemcpyDtoHAsync_v2, (void *, uint64_t, size_t, void *))                           \
    X(stream_new, cuStreamCreate, (void **, unsigned))                                             \
    X(stream_free, cuStreamDestroy_v2, (void *))                                                   \
    X(stream_sync, cuStreamSynchronize, (void *))                                                  \
    X(load, cuModuleLoadData, (void **, const void *))                                             \
    X(unload, cuModuleUnload, (void *))                                                            \
    X(function, cuModuleGetFunction, (void **, void *, const char *))                              \
    X(global, cuModuleGetGlobal_v2, (uint64_t *, size_t *, void *, const char *))                  \
    X(set, cuFuncSetAttribute, (void *, int, int))                                                 \
    X(launch, cuLaunchKernel,                                                                      \
      (void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *,       \
       void **, void **))

static struct cuda {
#define MEMBER(name, symbol, arguments) int(*name) arguments;
    ENTRIES(MEMBER)
#undef MEMBER
    int cuda_version, devices;
    char missing[192]; /* "" where devices can be asked for */
} cu;
static pthread_once_t once = PTHREAD_ONCE_INIT;

struct attn__chip {
    int index, device;
    void *context;
    attn__target target; /* of this chip: its own units and shared memory */
};

/* A kernel is looked up once; `shared` is what it may have been allowed. */
struct attn__module {
    void *module;
    pthread_mutex_t lock;
    int kernels;
    struct kernel {
        char name[48];
        void *function;
        int shared;
    } kernel[KERNELS];
};

/* -- The library ------------------------------------------------------------------------------- */

static const char *error_name(int code) {
    const char *name = NULL;
    return cu.error_name(code, &name) == 0 && name ? name : "an unknown error";
}

static const char *error_text(int code) {
    const char *text = NULL;
    return cu.error_text(code, &text) == 0 && text ? text : "without a text";
}

static int load_entries(const char *path) {
    void *const library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        snprintf(cu.missing, sizeof cu.missing, "no NVIDIA driver was found: %.150s", dlerror());
        return 0;
    }
    const struct {
        const char *symbol;
        void *at;
    } entry[] = {
#define ENTRY(name, symbol, arguments) {#symbol, &cu.name},
        ENTRIES(ENTRY)
#undef ENTRY
    };
    for (size_t i = 0; i < sizeof entry / sizeof entry[0]; i++) {
        void *const f = dlsym(library, entry[i].symbol);
        if (!f) {
            snprintf(cu.missing, sizeof cu.missing, "the NVIDIA driver is too old: %.80s has no %s",
                     path, entry[i].symbol);
            return 0;
        }
        memcpy(entry[i].at, &f, sizeof f);
    }
    return 1;
}

static void find(void) {
    const char *const named = getenv("ATTN_CUDA");
    if (!load_entries(named && *named ? named : "libcuda.so.1")) {
        return;
    }
    int code = cu.init(0);
    code = code ? code : cu.version(&cu.cuda_version);
    code = code ? code : cu.count(&cu.devices);
    if (code) {
        cu.devices = 0;
        snprintf(cu.missing, sizeof cu.missing,
                 "the NVIDIA driver cannot be used: it answers %s (%.100s)", error_name(code),
                 error_text(code));
    } else if (cu.cuda_version < OLDEST) {
        snprintf(cu.missing, sizeof cu.missing,
                 "the NVIDIA driver is too old: it is for CUDA %d.%d and 11.4 is wanted",
                 cu.cuda_version / 1000, cu.cuda_version % 1000 / 10);
    } else if (cu.devices == 0) {
        snprintf(cu.missing, sizeof cu.missing,
                 "an NVIDIA driver is here, but it has no device (CUDA_VISIBLE_DEVICES?)");
    }
}

int attn__cuda_version(void) {
    pthread_once(&once, find);
    return cu.missing[0] ? 0 : cu.cuda_version;
}

static int fail(int code, const char *what) {
    return attn__fail(code == OUT_OF_MEMORY ? ATTN_MEMORY : ATTN_DRIVER, "device",
                      "%s failed: the driver answers %s (%s)", what, error_name(code),
                      error_text(code));
}

/* -- Devices ----------------------------------------------------------------------------------- */

/* The kernels' target for a compute capability, or NULL. Code of a chip runs on those of the same
   major number and a higher minor one, unless its name ends in "a". */
static const attn__target *target_for(int major, int minor) {
    return attn__target_find(major == 8 ? "sm_80" : major == 9 && minor == 0 ? "sm_90a" : "");
}

static int describe(int index, attn_device_info *info, attn__target *target) {
    int device = 0, major = 0, minor = 0, mode = 0, units = 0, shared = 0;
    char name[44] = "";
    size_t memory = 0;
    *info = (attn_device_info){.size = sizeof *info, .kind = CUDA, .index = index};
    snprintf(info->name, sizeof info->name, "cuda:%d", index);
    int code = cu.device(&device, index);
    code = code ? code : cu.name(name, sizeof name, device);
    code = code ? code : cu.memory(&memory, device);
    code = code ? code : cu.attribute(&major, MAJOR, device);
    code = code ? code : cu.attribute(&minor, MINOR, device);
    code = code ? code : cu.attribute(&mode, COMPUTE_MODE, device);
    code = code ? code : cu.attribute(&units, UNITS, device);
    code = code ? code : cu.attribute(&shared, SHARED, device);
    if (code) {
        snprintf(info->missing, sizeof info->missing,
                 "the device cannot be asked: the driver answers %s", error_name(code));
        return device;
    }
    const attn__target *const kernels = target_for(major, minor);
    info->memory = memory;
    snprintf(info->arch, sizeof info->arch, "%s (%d.%d)", name, major, minor);
    if (mode == 2) { /* prohibited */
        snprintf(info->missing, sizeof info->missing,
                 "the device's compute mode lets no program use it");
    } else if (!kernels) {
        snprintf(info->missing, sizeof info->missing,
                 "its compute capability is %d.%d; 8.0 to 9.0 have kernels in this version", major,
                 minor);
    } else if (target) {
        *target = *kernels;
        target->units = units;
        target->shared = shared;
    }
    return device;
}

static int cuda_list(attn_device_info *list, int cap) {
    pthread_once(&once, find);
    if (cu.missing[0]) {
        attn_device_info *const info = list;
        if (cap > 0) {
            *info = (attn_device_info){.size = sizeof *info, .kind = CUDA};
            snprintf(info->name, sizeof info->name, "cuda:0");
            snprintf(info->missing, sizeof info->missing, "%s", cu.missing);
        }
        return 1;
    }
    for (int i = 0; i < cu.devices && i < cap; i++) {
        describe(i, &list[i], NULL);
    }
    return cu.devices;
}

static int cuda_open(const char *name, attn__chip **chip) {
    char end;
    int index = 0;
    attn_device_info info;
    attn__target target;
    *chip = NULL;
    pthread_once(&once, find);
    if (sscanf(name, "cuda:%d%c", &index, &end) != 1 || index < 0) {
        return attn__fail(ATTN_DEVICE, "name", "device %s is not of the form cuda:0", name);
    }
    if (cu.missing[0]) {
        return attn__fail(ATTN_DEVICE, "name", "device %s cannot be opened: %s", name, cu.missing);
    }
    if (index >= cu.devices) {
        return attn__fail(ATTN_DEVICE, "name", "there is no device %s; the driver has %d", name,
                          cu.devices);
    }
    const int device = describe(index, &info, &target);
    if (info.missing[0]) {
        return attn__fail(ATTN_DEVICE, "name", "device %s cannot be opened: %s", name,
                          info.missing);
    }
    attn__chip *const c = attn__alloc(sizeof *c, "a device");
    if (!c) {
        return ATTN_MEMORY;
    }
    *c = (attn__chip){.index = index, .device = device, .target = target};
    const int code = cu.retain(&c->context, device);
    if (code) {
        free(c);
        return fail(code, "opening the device");
    }
    *chip = c;
    return ATTN_OK;
}

static void cuda_close(attn__chip *chip) {
    cu.release(chip->device);
    free(chip);
}

static const attn__target *cuda_target(const attn__chip *chip) {
    return &chip->target;
}

static int cuda_query(attn__chip *chip, attn_device_info *info) {
    describe(chip->index, info, NULL);
    return ATTN_OK;
}

/* -- Calls with the chip's context current ----------------------------------------------------- */

static int enter(const attn__chip *chip) {
    const int code = cu.push(chip->context);
    return code ? fail(code, "making the device current") : ATTN_OK;
}

/* Ends what enter began; `what` was tried and answered `code`. */
static int leave(int code, const char *what) {
    void *context;
    cu.pop(&context);
    return code ? fail(code, what) : ATTN_OK;
}

static int cuda_alloc(attn__chip *chip, uint64_t bytes, void **pointer) {
    uint64_t at = 0;
    *pointer = NULL;
    ATTN_TRY(enter(chip));
    ATTN_TRY(leave(cu.alloc(&at, bytes ? bytes : 1), "taking device memory"));
    *pointer = (void *)(uintptr_t)at;
    return ATTN_OK;
}

static void cuda_free(attn__chip *chip, void *pointer) {
    if (enter(chip) == ATTN_OK) {
        leave(cu.free((uintptr_t)pointer), "giving back device memory");
    }
}

static int cuda_to_device(attn__chip *chip, void *to, const void *from, uint64_t bytes,
                          void *stream) {
    ATTN_TRY(enter(chip));
    int code = cu.to_device((uintptr_t)to, from, bytes, stream);
    code = code ? code : cu.stream_sync(stream);
    return leave(code, "a copy to the device");
}

static int cuda_to_host(attn__chip *chip, void *to, const void *from, uint64_t bytes,
                        void *stream) {
    ATTN_TRY(enter(chip));
    int code = cu.to_host(to, (uintptr_t)from, bytes, stream);
    code = code ? code : cu.stream_sync(stream);
    return leave(code, "a copy from the device");
}

static cuda_side side_of(const attn__rows *rows) {
    cuda_side side = {.type = rows->is_host ? HOST_MEMORY : DEVICE_MEMORY, .pitch = rows->pitch};
    if (rows->is_host) {
        side.host = rows->at;
    } else {
        side.device = (uintptr_t)rows->at;
    }
    return side;
}

static int cuda_copy_rows(attn__chip *chip, const attn__rows *to, const attn__rows *from,
                          uint64_t bytes, uint64_t rows, void *stream) {
    const cuda_copy copy = {side_of(from), side_of(to), bytes, rows};
    ATTN_TRY(enter(chip));
    int code = cu.copy(&copy, stream);
    if (code == 0 && (to->is_host || from->is_host)) {
        code = cu.stream_sync(stream);
    }
    return leave(code, "a copy of rows");
}

static int cuda_stream_new(attn__chip *chip, void **stream) {
    *stream = NULL;
    ATTN_TRY(enter(chip));
    return leave(cu.stream_new(stream, 0), "making a stream");
}

static void cuda_stream_free(attn__chip *chip, void *stream) {
    if (enter(chip) == ATTN_OK) {
        leave(cu.stream_free(stream), "releasing a stream");
    }
}

static int cuda_stream_sync(attn__chip *chip, void *stream) {
    ATTN_TRY(enter(chip));
    return leave(cu.stream_sync(stream), "waiting for the stream");
}

static int cuda_wait(attn__chip *chip) {
    ATTN_TRY(enter(chip));
    return leave(cu.wait(), "waiting for the device");
}

/* -- Code -------------------------------------------------------------------------------------- */

static int cuda_load(attn__chip *chip, const void *code, size_t bytes, attn__module **module) {
    (void)bytes; /* the code object tells */
    *module = NULL;
    attn__module *const m = attn__alloc(sizeof *m, "a module");
    if (!m) {
        return ATTN_MEMORY;
    }
    memset(m, 0, sizeof *m);
    int status = enter(chip);
    if (status == ATTN_OK) {
        status = leave(cu.load(&m->module, code), "loading compiled code");
    }
    if (status < 0) {
        free(m);
        return status;
    }
    pthread_mutex_init(&m->lock, NULL);
    *module = m;
    return ATTN_OK;
}

static void cuda_unload(attn__chip *chip, attn__module *module) {
    if (enter(chip) == ATTN_OK) {
        leave(cu.unload(module->module), "unloading code");
    }
    pthread_mutex_destroy(&module->lock);
    free(module);
}

static int cuda_number(attn__chip *chip, attn__module *module, const char *name, int32_t *value) {
    uint64_t at = 0;
    size_t bytes = 0;
    ATTN_TRY(enter(chip));
    int code = cu.global(&at, &bytes, module->module, name);
    if (code == 0 && bytes == sizeof *value) {
        code = cu.to_host(value, at, bytes, NULL);
        code = code ? code : cu.stream_sync(NULL);
    }
    ATTN_TRY(leave(code, name));
    return bytes == sizeof *value
               ? ATTN_OK
               : attn__fail(ATTN_DRIVER, "device", "the code's %s has %zu bytes instead of 4", name,
                            bytes);
}

/* The function of that name, allowed `shared` bytes. The lock is held and the context current. */
static int lookup(attn__module *m, const char *name, int shared, void **function) {
    struct kernel *k = m->kernel;
    while (k < m->kernel + m->kernels && strcmp(k->name, name) != 0) {
        k++;
    }
    if (k == m->kernel + m->kernels) {
        struct kernel made = {.shared = PLAIN_SHARED};
        if (m->kernels == KERNELS || strlen(name) >= sizeof made.name) {
            return attn__fail(ATTN_DRIVER, "device", "kernel %s is one too many, or its name",
                              name);
        }
        const int code = cu.function(&made.function, m->module, name);
        if (code) {
            return fail(code, name);
        }
        strcpy(made.name, name);
        *k = made;
        m->kernels++;
    }
    if (shared > k->shared) {
        const int code = cu.set(k->function, MAX_DYNAMIC_SHARED, shared);
        if (code) {
            return fail(code, "asking for more shared memory");
        }
        k->shared = shared;
    }
    *function = k->function;
    return ATTN_OK;
}

static int find_kernel(attn__module *module, const char *name, int shared, void **function) {
    pthread_mutex_lock(&module->lock);
    const int status = lookup(module, name, shared, function);
    pthread_mutex_unlock(&module->lock);
    return status;
}

static int cuda_prepare(attn__chip *chip, attn__module *module, const char *kernel, int shared) {
    void *function;
    ATTN_TRY(enter(chip));
    const int status = find_kernel(module, kernel, shared, &function);
    leave(0, NULL);
    return status;
}

static int cuda_launch(attn__chip *chip, attn__module *module, const char *kernel, int64_t blocks,
                       int threads, int shared, const void *params, size_t bytes, void *stream) {
    void *function;
    /* 1 and 2 mark address and size of the parameters, 0 the end. */
    void *extra[] = {(void *)1, (void *)(uintptr_t)params, (void *)2, &bytes, NULL};
    if (blocks == 0) {
        return ATTN_OK;
    }
    if (blocks < 0 || blocks > INT32_MAX) {
        return attn__fail(ATTN_UNSUPPORTED, "q", "%lld blocks; a launch has up to 2^31 - 1",
                          (long long)blocks);
    }
    ATTN_TRY(enter(chip));
    int status = find_kernel(module, kernel, shared, &function);
    if (status == ATTN_OK) {
        const int code = cu.launch(function, (unsigned)blocks, 1, 1, (unsigned)threads, 1, 1,
                                   (unsigned)shared, stream, NULL, extra);
        status = code ? fail(code, kernel) : ATTN_OK;
    }
    leave(0, NULL);
    return status;
}

const attn__driver attn__cuda = {
    .name = "cuda",
    .kind = CUDA,
    .list = cuda_list,
    .open = cuda_open,
    .close = cuda_close,
    .target = cuda_target,
    .query = cuda_query,
    .alloc = cuda_alloc,
    .free = cuda_free,
    .to_device = cuda_to_device,
    .to_host = cuda_to_host,
    .copy_rows = cuda_copy_rows,
    .stream_new = cuda_stream_new,
    .stream_free = cuda_stream_free,
    .stream_sync = cuda_stream_sync,
    .wait = cuda_wait,
    .load = cuda_load,
    .unload = cuda_unload,
    .number = cuda_number,
    .prepare = cuda_prepare,
    .launch = cuda_launch,
};
