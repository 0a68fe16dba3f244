/* gpu_cuda.c: NVIDIA's chips through their driver library, found at run time.

   Who calls it: device.c, through the table attn__cuda. The library is libcuda.so.1, or what the
   environment variable ATTN_CUDA names; no header of its vendor is needed. A device is cuda:N, or
   cuda:N:compute_80 with the kernels of newer chips.
   Streams are CUstream, NULL the legacy default stream. Those made here wait for it and it for
   them, so that copies on NULL see what they have computed; a caller's own non-blocking ones do
   not. */
#include "gpu_native.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CUDA = 2, OLDEST = 11040, OUT_OF_MEMORY = 2 };
enum { UNITS = 16, COMPUTE_MODE = 20, MAJOR = 75, MINOR = 76, SHARED = 97 }; /* of a device */
enum { MAX_DYNAMIC_SHARED = 8 };                                             /* of a function */

/* cuMemcpy2DAsync's parameter: a rectangle on either side. */
typedef struct side {
    size_t x, y;
    int32_t type; /* 1 host, 2 device */
    void *host;
    uint64_t device;
    void *array;
    size_t pitch;
} side;
typedef struct copy {
    side from, to;
    size_t width, height;
} copy;

static struct calls {
    int (*init)(unsigned);
    int (*version)(int *);
    int (*error_name)(int, const char **);
    int (*error_text)(int, const char **);
    int (*count)(int *);
    int (*device)(int *, int);
    int (*name)(char *, int, int);
    int (*attribute)(int *, int, int);
    int (*memory)(size_t *, int);
    int (*current)(void **);
    int (*device_of_current)(int *);
    int (*primary_state)(int, unsigned *, int *);
    int (*primary)(void **, int);
    int (*copy)(const copy *, void *);
    int (*set)(void *, int, int);
    int (*set_words)(uint64_t, unsigned, size_t, void *);
    int (*encode)(uint64_t *, int, uint32_t, void *, const uint64_t *, const uint64_t *,
                  const uint32_t *, const uint32_t *, int, int, int, int);
} cu;
static attn__vendor cuda;
static int cuda_version;
static pthread_once_t once = PTHREAD_ONCE_INIT;

/* Entry points with the suffix that their present form has; the plain names are older functions. */
static const attn__entry entries[] = {
    {"cuInit", &cu.init},
    {"cuDriverGetVersion", &cu.version},
    {"cuGetErrorName", &cu.error_name},
    {"cuGetErrorString", &cu.error_text},
    {"cuDeviceGetCount", &cu.count},
    {"cuDeviceGet", &cu.device},
    {"cuDeviceGetName", &cu.name},
    {"cuDeviceGetAttribute", &cu.attribute},
    {"cuDeviceTotalMem_v2", &cu.memory},
    {"cuMemcpy2DAsync_v2", &cu.copy},
    {"cuFuncSetAttribute", &cu.set},
    {"cuCtxGetCurrent", &cu.current},
    {"cuCtxGetDevice", &cu.device_of_current},
    {"cuDevicePrimaryCtxGetState", &cu.primary_state},
    {"cuDevicePrimaryCtxRetain", &cu.primary},
    {"cuDevicePrimaryCtxRelease_v2", &cuda.release},
    {"cuCtxPushCurrent_v2", &cuda.push},
    {"cuCtxPopCurrent_v2", &cuda.pop},
    {"cuCtxSynchronize", &cuda.wait},
    {"cuMemAlloc_v2", &cuda.alloc},
    {"cuMemFree_v2", &cuda.free},
    {"cuMemcpyHtoDAsync_v2", &cuda.to_device},
    {"cuMemcpyDtoHAsync_v2", &cuda.to_host},
    {"cuMemcpyDtoDAsync_v2", &cuda.within},
    {"cuStreamCreate", &cuda.stream_new},
    {"cuStreamDestroy_v2", &cuda.stream_free},
    {"cuStreamSynchronize", &cuda.stream_sync},
    {"cuEventCreate", &cuda.event_new},
    {"cuEventDestroy_v2", &cuda.event_free},
    {"cuEventRecord", &cuda.event_record},
    {"cuEventQuery", &cuda.event_query},
    {"cuStreamWaitEvent", &cuda.event_await},
    {"cuModuleLoadData", &cuda.load},
    {"cuModuleUnload", &cuda.unload},
    {"cuModuleGetFunction", &cuda.function},
    {"cuModuleGetGlobal_v2", &cuda.global},
    {"cuFuncGetAttribute", &cuda.attribute},
    {"cuLaunchKernel", &cuda.launch},
    {"?cuTensorMapEncodeTiled", &cu.encode},
    {"cuMemsetD32Async", &cu.set_words},
};

static const char *error_name(int code) {
    const char *name = NULL;
    return cu.error_name(code, &name) == 0 && name ? name : "an unknown error";
}

static const char *error_text(int code) {
    const char *text = NULL;
    return cu.error_text(code, &text) == 0 && text ? text : "without a text";
}

/* The caller's context where it is of the device and not its primary one. Whether it is that is
   asked only of a primary one that is there: retaining would make it. */
static int retain(void **context, int *adopted, int device) {
    void *now = NULL;
    unsigned flags;
    int its_device = -1, has_primary = 0;
    *adopted = cu.current(&now) == 0 && now && cu.device_of_current(&its_device) == 0 &&
               its_device == device;
    if (*adopted) {
        *context = now;
        if (cu.primary_state(device, &flags, &has_primary) || !has_primary) {
            return 0;
        }
    }
    const int code = cu.primary(context, device);
    if (*adopted && code == 0 && *context != now) {
        *context = now;
        return cuda.release(device);
    }
    *adopted = 0;
    return code;
}

static side side_of(const attn__rows *rows) {
    side s = {.type = rows->is_host ? 1 : 2, .pitch = (size_t)rows->pitch};
    if (rows->is_host) {
        s.host = rows->at;
    } else {
        s.device = (uintptr_t)rows->at;
    }
    return s;
}

static int copy_rows(const attn__rows *to, const attn__rows *from, size_t bytes, size_t rows,
                     void *stream) {
    const copy both = {side_of(from), side_of(to), bytes, rows};
    return cu.copy(&both, stream);
}

static int allow_shared(void *function, int bytes) {
    return cu.set(function, MAX_DYNAMIC_SHARED, bytes);
}

/* -- Devices ----------------------------------------------------------------------------------- */

/* The kernels' target for a compute capability, or NULL. Code of a chip runs on those of the same
   major number and a higher minor one, unless its name ends in "a"; PTX on all newer ones. */
static const attn__target *target_for(int major, int minor, const char *wanted) {
    const char *const own = major == 8 ? "sm_80" : major == 9 && minor == 0 ? "sm_90a" : "";
    const char *const best = major >= 9 && !*own ? "compute_80" : own;
    const int fits = !*wanted || strcmp(wanted, best) == 0 ||
                     (major >= 8 && strcmp(wanted, "compute_80") == 0);
    return attn__target_find(!fits ? "" : *wanted ? wanted : best);
}

static int describe(int index, const char *wanted, attn_device_info *info, attn__target *target) {
    int device = 0, major = 0, minor = 0, mode = 0, units = 0, shared = 0;
    char name[44] = "";
    size_t memory = 0;
    *info = (attn_device_info){.size = sizeof *info, .kind = CUDA, .index = index};
    snprintf(info->name, sizeof info->name, "cuda:%d%s%s", index, *wanted ? ":" : "", wanted);
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
    const attn__target *const kernels = target_for(major, minor, wanted);
    info->memory = memory;
    snprintf(info->arch, sizeof info->arch, "%s (%d.%d)", name, major, minor);
    if (mode == 2) { /* prohibited */
        snprintf(info->missing, sizeof info->missing,
                 "the device's compute mode lets no program use it");
    } else if (!kernels) {
        snprintf(info->missing, sizeof info->missing,
                 "its compute capability is %d.%d; %s", major, minor,
                 major < 8 ? "8.0 and newer ones have kernels in this version"
                           : "it has kernels of its own and compute_80's");
    } else if (target) {
        *target = *kernels;
        target->units = units;
        target->shared = shared;
    }
    return device;
}

static attn__vendor cuda = {.retain = retain,
                            .copy_rows = copy_rows,
                            .allow_shared = allow_shared,
                            .error_name = error_name,
                            .error_text = error_text,
                            .describe = describe,
                            .name = "cuda",
                            .kind = CUDA,
                            .maker = "NVIDIA",
                            .oldest = "CUDA 11.4 or newer",
                            .variable = "ATTN_CUDA",
                            .hides = "CUDA_VISIBLE_DEVICES",
                            .node = "/dev/nvidiactl",
                            .permit = "let it read and write /dev/nvidia*",
                            .out_of_memory = OUT_OF_MEMORY};

static void find(void) {
    const char *const named = getenv("ATTN_CUDA");
    if (attn__native_entries(&cuda, named && *named ? named : "libcuda.so.1", entries,
                             sizeof entries / sizeof entries[0]) != ATTN__FOUND) {
        return;
    }
    int code = cu.init(0);
    code = code ? code : cu.version(&cuda_version);
    code = code ? code : cu.count(&cuda.devices);
    if (code || (cuda_version >= OLDEST && cuda.devices == 0)) {
        attn__native_unusable(&cuda, code);
    } else if (cuda_version < OLDEST) {
        snprintf(cuda.missing, sizeof cuda.missing,
                 "the NVIDIA driver is too old: it is for CUDA %d.%d and 11.4 is wanted",
                 cuda_version / 1000, cuda_version % 1000 / 10);
    }
}

int attn__cuda_version(void) {
    pthread_once(&once, find);
    return cuda.missing[0] ? 0 : cuda_version;
}

static int cuda_list(attn_device_info *list, int cap) {
    pthread_once(&once, find);
    return attn__native_list(&cuda, list, cap);
}

static int cuda_open(const char *name, attn__chip **chip) {
    pthread_once(&once, find);
    return attn__native_open(&cuda, name, chip);
}

static int zero(attn__chip *chip, void *at, uint64_t bytes, void *stream) {
    ATTN_TRY(attn__native_enter(chip));
    return attn__native_leave(chip, cu.set_words((uintptr_t)at, 0, (size_t)bytes / 4, stream),
                              "setting memory to 0");
}

/* A tensor map: numbers of cuTensorMapEncodeTiled's arguments, zeros outside of the tensor. */
static int describe_box(attn__chip *chip, const attn__boxes *box, uint64_t word[16]) {
    enum { F16 = 6, BF16 = 9, SWIZZLE_128 = 3, PROMOTE_256 = 3 };
    const uint32_t one[4] = {1, 1, 1, 1};
    uint64_t n[4], st[3];
    uint32_t size[4];
    _Alignas(64) uint64_t map[16];
    if (!cu.encode || (uintptr_t)box->data % 16) {
        return 0;
    }
    for (int i = 0; i < 4; i++) {
        n[i] = (uint64_t)box->n[i];
        size[i] = (uint32_t)box->box[i];
    }
    for (int i = 0; i < 3; i++) {
        if (box->n[i + 1] > 1 && (box->st[i] < 0 || box->st[i] % 16 || box->st[i] >> 40)) {
            return 0;
        }
        st[i] = box->n[i + 1] > 1 ? (uint64_t)box->st[i] : 16;
    }
    if (attn__native_enter(chip) != ATTN_OK) { /* it wants a context, whatever it is */
        return 0;
    }
    const int code = cu.encode(map, box->type == ATTN_F16 ? F16 : BF16, 4,
                               (void *)(uintptr_t)box->data, n, st, size, one, 0, SWIZZLE_128,
                               PROMOTE_256, 0);
    attn__native_leave(chip, 0, NULL);
    if (code) {
        return 0;
    }
    memcpy(word, map, sizeof map);
    return 1;
}

const attn__driver attn__cuda = {.name = "cuda",
                                 .kind = CUDA,
                                 .list = cuda_list,
                                 .open = cuda_open,
                                 .describe = describe_box,
                                 .zero = zero,
                                 ATTN__NATIVE_MEMBERS};
