/* gpu_hip.c: AMD's chips through HIP's runtime library, found at run time.

   Who calls it: device.c, through the table attn__hip. The library is what the environment variable
   ATTN_HIP names, or else the first of those below that is here; no header of its vendor is needed.
   A device is hip:N, a chip or one die of it, as HIP counts. Streams are hipStream_t, with the same
   manners as CUDA's (gpu_cuda.c).

   HIP has a current device per thread in the place of a stack of contexts: push keeps the number
   and pop sets it again; no two calls of attn nest.

   It was never run on a device; hip_test.cc runs it on a look-alike whose kernels are emulated. */
#include "gpu_native.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROCM = 10, OUT_OF_MEMORY = 2, PROPERTIES = 8192 };
enum { TO_DEVICE = 1, TO_HOST = 2, WITHIN = 3 }; /* kinds of copies */
enum { UNITS = 63, XCCS = 10018 };               /* attributes of a device */

static struct calls {
    int (*init)(unsigned);
    int (*count)(int *);
    int (*properties)(void *, int), (*old_properties)(void *, int);
    int (*memory)(size_t *, int);
    int (*attribute)(int *, int, int);
    int (*copy)(void *, size_t, const void *, size_t, size_t, size_t, int, void *);
    int (*get_device)(int *);
    int (*set_device)(int);
} call;
static attn__vendor hip;
static pthread_once_t once = PTHREAD_ONCE_INIT;

/* hipGetDeviceProperties had another struct up to HIP 5 and keeps its name for it; the one of HIP 6
   has the first of these two names. Its first members, and a text that begins with "gfx", are all
   that is read, so either serves. */
static const attn__entry entries[] = {
    {"?hipGetDevicePropertiesR0600", &call.properties},
    {"?hipGetDeviceProperties", &call.old_properties},
    {"hipInit", &call.init},
    {"hipGetDeviceCount", &call.count},
    {"hipDeviceTotalMem", &call.memory},
    {"hipDeviceGetAttribute", &call.attribute},
    {"hipMemcpy2DAsync", &call.copy},
    {"hipGetDevice", &call.get_device},
    {"hipSetDevice", &call.set_device},
    {"hipGetErrorName", &hip.error_name},
    {"hipGetErrorString", &hip.error_text},
    {"hipDeviceSynchronize", &hip.wait},
    {"hipMalloc", &hip.alloc},
    {"hipFree", &hip.free},
    {"hipMemcpyHtoDAsync", &hip.to_device},
    {"hipMemcpyDtoHAsync", &hip.to_host},
    {"hipMemcpyDtoDAsync", &hip.within},
    {"hipStreamCreateWithFlags", &hip.stream_new},
    {"hipStreamDestroy", &hip.stream_free},
    {"hipStreamSynchronize", &hip.stream_sync},
    {"hipEventCreateWithFlags", &hip.event_new},
    {"hipEventDestroy", &hip.event_free},
    {"hipEventRecord", &hip.event_record},
    {"hipEventQuery", &hip.event_query},
    {"hipStreamWaitEvent", &hip.event_await},
    {"hipModuleLoadData", &hip.load},
    {"hipModuleUnload", &hip.unload},
    {"hipModuleGetFunction", &hip.function},
    {"hipModuleGetGlobal", &hip.global},
    {"hipFuncGetAttribute", &hip.attribute},
    {"hipModuleLaunchKernel", &hip.launch},
};
enum { ENTRIES = sizeof entries / sizeof entries[0] };

/* -- What HIP lacks or has otherwise ----------------------------------------------------------- */

static _Thread_local int before; /* the device that was current */

static int retain(void **context, int *adopted, int device) {
    *adopted = 0;
    *context = (void *)(uintptr_t)device;
    return 0;
}

static int release(int device) {
    (void)device;
    return 0;
}

static int push(void *context) {
    const int code = call.get_device(&before);
    return code ? code : call.set_device((int)(uintptr_t)context);
}

static int pop(void **context) {
    *context = NULL;
    return call.set_device(before);
}

static int copy_rows(const attn__rows *to, const attn__rows *from, size_t bytes, size_t rows,
                     void *stream) {
    return call.copy(to->at, (size_t)to->pitch, from->at, (size_t)from->pitch, bytes, rows,
                     to->is_host     ? TO_HOST
                     : from->is_host ? TO_DEVICE
                                     : WITHIN,
                     stream);
}

/* A block may have all of a compute unit's 64 KB without asking. */
static int allow_shared(void *function, int bytes) {
    (void)function;
    (void)bytes;
    return 0;
}

/* -- Devices ----------------------------------------------------------------------------------- */

/* "gfx90a" of "gfx90a:sramecc+:xnack-", which stands somewhere in the properties. */
static void chip_of(const char *properties, char name[16]) {
    name[0] = 0;
    for (int i = 0; i + 16 < PROPERTIES && !name[0]; i++) {
        if (memcmp(properties + i, "gfx", 3) == 0) {
            int n = 3;
            while (n < 15 && strchr("0123456789abcdef", properties[i + n]) && properties[i + n]) {
                n++;
            }
            memcpy(name, properties + i, (size_t)n);
            name[n] = 0;
        }
    }
}

/* Chiplets that blocks are dealt to. HIP tells since 7; before, of 38 units each where there are
   whole ones (MI300's, in any of its partitions), else 1, which costs time and nothing else. */
static int chiplets(int index, int units) {
    int n = 0;
    if (call.attribute(&n, XCCS, index) == 0 && n > 0) {
        return n;
    }
    return units % 38 == 0 ? units / 38 : 1;
}

static int describe(int index, const char *wanted, attn_device_info *info, attn__target *target) {
    char properties[PROPERTIES], chip[16];
    size_t memory = 0;
    int units = 0;
    *info = (attn_device_info){.size = sizeof *info, .kind = ROCM, .index = index};
    snprintf(info->name, sizeof info->name, "hip:%d", index);
    memset(properties, 0, sizeof properties);
    int code = (call.properties ? call.properties : call.old_properties)(properties, index);
    code = code ? code : call.memory(&memory, index);
    code = code ? code : call.attribute(&units, UNITS, index);
    if (code) {
        snprintf(info->missing, sizeof info->missing,
                 "the device cannot be asked: the driver answers %s", hip.error_name(code));
        return index;
    }
    chip_of(properties, chip);
    const attn__target *const kernels = *wanted ? NULL : attn__target_find(chip);
    info->memory = memory;
    snprintf(info->arch, sizeof info->arch, "%.40s (%s)", properties, chip);
    if (!kernels) {
        char names[ATTN__TARGET_NAMES];
        attn__target_names("hiprtc", names);
        snprintf(info->missing, sizeof info->missing,
                 "it is a chip %s; those that have kernels in this version: %s", chip, names);
    } else if (target) {
        *target = *kernels;
        target->units = units;
        target->xcds = chiplets(index, units);
    }
    return index;
}

static attn__vendor hip = {.retain = retain,
                           .release = release,
                           .push = push,
                           .pop = pop,
                           .copy_rows = copy_rows,
                           .allow_shared = allow_shared,
                           .describe = describe,
                           .name = "hip",
                           .kind = ROCM,
                           .maker = "AMD",
                           .oldest = "ROCm 5 or newer",
                           .variable = "ATTN_HIP",
                           .hides = "HIP_VISIBLE_DEVICES",
                           .node = "/dev/kfd",
                           .permit = "add it to the group render",
                           .out_of_memory = OUT_OF_MEMORY};

static enum attn__found load(const char *path) {
    enum attn__found found = attn__native_entries(&hip, path, entries, ENTRIES);
    if (found == ATTN__FOUND && !call.properties && !call.old_properties) {
        const attn__entry old = {"hipGetDeviceProperties", &call.old_properties};
        found = attn__native_entries(&hip, path, &old, 1);
    }
    return found;
}

/* The first that serves; where none does, the sentence of the first that is too old, or of the
   first. */
static enum attn__found load_any(void) {
    static const char *const names[] = {"libamdhip64.so.7", "libamdhip64.so.6", "libamdhip64.so.5",
                                        "libamdhip64.so", "/opt/rocm/lib/libamdhip64.so"};
    char said[sizeof hip.missing] = "";
    enum attn__found best = ATTN__ABSENT;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        const enum attn__found found = load(names[i]);
        if (found == ATTN__FOUND) {
            return found;
        }
        if (!*said || found > best) {
            memcpy(said, hip.missing, sizeof said);
            best = found;
        }
    }
    memcpy(hip.missing, said, sizeof said);
    return best;
}

static void find(void) {
    const char *const named = getenv("ATTN_HIP");
    if ((named && *named ? load(named) : load_any()) != ATTN__FOUND) {
        return;
    }
    int code = call.init(0);
    code = code ? code : call.count(&hip.devices);
    if (code || hip.devices == 0) {
        hip.devices = 0;
        attn__native_unusable(&hip, code);
    }
}

static int hip_list(attn_device_info *list, int cap) {
    pthread_once(&once, find);
    return attn__native_list(&hip, list, cap);
}

static int hip_open(const char *name, attn__chip **chip) {
    pthread_once(&once, find);
    return attn__native_open(&hip, name, chip);
}

const attn__driver attn__hip = {
    .name = "hip", .kind = ROCM, .list = hip_list, .open = hip_open, ATTN__NATIVE_MEMBERS};
