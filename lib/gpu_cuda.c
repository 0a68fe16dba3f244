/* gpu_cuda.c: NVIDIA's chips through their driver library, found at run time.

   Who calls it: device.c through the table attn__cuda. The library is libcuda.so.1, or what the
   environment variable ATTN_CUDA names; no header of its vendor is needed. A device is cuda:N. Every
   call that touches a device looks like this, so that the caller's own context stays current:

       push the primary context -> the driver's functions -> pop

   Streams are CUstream, NULL the legacy default stream. Those made here wait for it and it for them,
   so that copies on NULL see what they have computed; a caller's own non-blocking ones do not. */
#include "gpu_cuda.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CUDA = 2, OLDEST = 11040 };
enum { OUT_OF_MEMORY = 2, HOST_MEMORY = 1, DEVICE_MEMORY = 2 };
enum { UNITS = 16, COMPUTE_MODE = 20, MAJOR = 75, MINOR = 76, SHARED = 97 }; /* attributes */

attn__cuda_entries attn__cu;
#define cu attn__cu
static int cuda_version, devices;
static char missing[192]; /* "" where devices can be asked for */
static pthread_once_t once = PTHREAD_ONCE_INIT;

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
        snprintf(missing, sizeof missing, "no NVIDIA driver was found: %.150s", dlerror());
        return 0;
    }
    const struct {
        const char *symbol;
        void *at;
    } entry[] = {
#define ENTRY(name, symbol, arguments) {#symbol, &cu.name},
        ATTN__CUDA_ENTRIES(ENTRY)
#undef ENTRY
    };
    for (size_t i = 0; i < sizeof entry / sizeof entry[0]; i++) {
        void *const f = dlsym(library, entry[i].symbol);
        if (!f) {
            snprintf(missing, sizeof missing, "the NVIDIA driver is too old: %.80s has no %s", path,
                     entry[i].symbol);
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
    code = code ? code : cu.version(&cuda_version);
    code = code ? code : cu.count(&devices);
    if (code) {
        devices = 0;
        snprintf(missing, sizeof missing,
                 "the NVIDIA driver cannot be used: it answers %d, %s (%.100s)", code,
                 error_name(code), error_text(code));
    } else if (cuda_version < OLDEST) {
        snprintf(missing, sizeof missing,
                 "the NVIDIA driver is too old: it is for CUDA %d.%d and 11.4 is wanted",
                 cuda_version / 1000, cuda_version % 1000 / 10);
    } else if (devices == 0) {
        snprintf(missing, sizeof missing,
                 "an NVIDIA driver is here, but it has no device (CUDA_VISIBLE_DEVICES?)");
    }
}

int attn__cuda_version(void) {
    pthread_once(&once, find);
    return missing[0] ? 0 : cuda_version;
}

int attn__cuda_fail(int code, const char *what) {
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
    if (missing[0]) {
        attn_device_info *const info = list;
        if (cap > 0) {
            *info = (attn_device_info){.size = sizeof *info, .kind = CUDA};
            snprintf(info->name, sizeof info->name, "cuda:0");
            snprintf(info->missing, sizeof info->missing, "%s", missing);
        }
        return 1;
    }
    for (int i = 0; i < devices && i < cap; i++) {
        describe(i, &list[i], NULL);
    }
    return devices;
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
    if (missing[0]) {
        return attn__fail(ATTN_DEVICE, "name", "device %s cannot be opened: %s", name, missing);
    }
    if (index >= devices) {
        return attn__fail(ATTN_DEVICE, "name", "there is no device %s; the driver has %d", name,
                          devices);
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
        return attn__cuda_fail(code, "opening the device");
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

int attn__cuda_enter(const attn__chip *chip) {
    const int code = cu.push(chip->context);
    return code ? attn__cuda_fail(code, "making the device current") : ATTN_OK;
}

int attn__cuda_leave(int code, const char *what) {
    void *context;
    cu.pop(&context);
    return code ? attn__cuda_fail(code, what) : ATTN_OK;
}

static int cuda_alloc(attn__chip *chip, uint64_t bytes, void **pointer) {
    uint64_t at = 0;
    *pointer = NULL;
    ATTN_TRY(attn__cuda_enter(chip));
    ATTN_TRY(attn__cuda_leave(cu.alloc(&at, bytes ? bytes : 1), "taking device memory"));
    *pointer = (void *)(uintptr_t)at;
    return ATTN_OK;
}

static void cuda_free(attn__chip *chip, void *pointer) {
    if (attn__cuda_enter(chip) == ATTN_OK) {
        attn__cuda_leave(cu.free((uintptr_t)pointer), "giving back device memory");
    }
}

static int cuda_to_device(attn__chip *chip, void *to, const void *from, uint64_t bytes,
                          void *stream) {
    ATTN_TRY(attn__cuda_enter(chip));
    int code = cu.to_device((uintptr_t)to, from, bytes, stream);
    code = code ? code : cu.stream_sync(stream);
    return attn__cuda_leave(code, "a copy to the device");
}

static int cuda_to_host(attn__chip *chip, void *to, const void *from, uint64_t bytes,
                        void *stream) {
    ATTN_TRY(attn__cuda_enter(chip));
    int code = cu.to_host(to, (uintptr_t)from, bytes, stream);
    code = code ? code : cu.stream_sync(stream);
    return attn__cuda_leave(code, "a copy from the device");
}

static attn__cuda_side side_of(const attn__rows *rows) {
    attn__cuda_side side = {.type = rows->is_host ? HOST_MEMORY : DEVICE_MEMORY,
                            .pitch = rows->pitch};
    if (rows->is_host) {
        side.host = rows->at;
    } else {
        side.device = (uintptr_t)rows->at;
    }
    return side;
}

/* One row has no pitch, which has a limit that its length need not have. */
static int copy_one(const attn__rows *to, const attn__rows *from, uint64_t bytes, void *stream) {
    const uint64_t t = (uintptr_t)to->at, f = (uintptr_t)from->at;
    return to->is_host     ? cu.to_host(to->at, f, bytes, stream)
           : from->is_host ? cu.to_device(t, from->at, bytes, stream)
                           : cu.within(t, f, bytes, stream);
}

static int cuda_copy_rows(attn__chip *chip, const attn__rows *to, const attn__rows *from,
                          uint64_t bytes, uint64_t rows, void *stream) {
    const attn__cuda_copy copy = {side_of(from), side_of(to), bytes, rows};
    ATTN_TRY(attn__cuda_enter(chip));
    int code = rows == 1 ? copy_one(to, from, bytes, stream) : cu.copy(&copy, stream);
    if (code == 0 && (to->is_host || from->is_host)) {
        code = cu.stream_sync(stream);
    }
    return attn__cuda_leave(code, "a copy");
}

static int cuda_stream_new(attn__chip *chip, void **stream) {
    *stream = NULL;
    ATTN_TRY(attn__cuda_enter(chip));
    return attn__cuda_leave(cu.stream_new(stream, 0), "making a stream");
}

static void cuda_stream_free(attn__chip *chip, void *stream) {
    if (attn__cuda_enter(chip) == ATTN_OK) {
        attn__cuda_leave(cu.stream_free(stream), "releasing a stream");
    }
}

static int cuda_stream_sync(attn__chip *chip, void *stream) {
    ATTN_TRY(attn__cuda_enter(chip));
    return attn__cuda_leave(cu.stream_sync(stream), "waiting for the stream");
}

static int cuda_wait(attn__chip *chip) {
    ATTN_TRY(attn__cuda_enter(chip));
    return attn__cuda_leave(cu.wait(), "waiting for the device");
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
    .load = attn__cuda_load,
    .unload = attn__cuda_unload,
    .number = attn__cuda_number,
    .prepare = attn__cuda_prepare,
    .launch = attn__cuda_launch,
};
