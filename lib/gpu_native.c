/* gpu_native.c: devices, memory and streams through a maker's driver; see gpu_native.h.

   Who calls it: gpu_cuda.c and gpu_hip.c, and through their tables device.c, memory.c, stage.c. */
#include "gpu_native.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum attn__found attn__native_entries(attn__vendor *vendor, const char *path,
                                      const attn__entry *entry, size_t n) {
    char *const missing = vendor->missing;
    const size_t room = sizeof vendor->missing;
    void *const library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    missing[0] = 0;
    if (!library) { /* one that was opened stays: unloading a driver is asking for trouble */
        snprintf(missing, room,
                 "no %s driver was found (%.90s): install it, or name its library in %s",
                 vendor->maker, dlerror(), vendor->variable);
        return ATTN__ABSENT;
    }
    for (size_t i = 0; i < n; i++) {
        const int may_lack = entry[i].symbol[0] == '?';
        void *const f = dlsym(library, entry[i].symbol + may_lack);
        if (!f && !may_lack) {
            snprintf(missing, room, "the %s driver is too old: %.70s has no %.40s; %s is wanted",
                     vendor->maker, path, entry[i].symbol, vendor->oldest);
            return ATTN__TOO_OLD;
        }
        memcpy(entry[i].at, &f, sizeof f);
    }
    return ATTN__FOUND;
}

void attn__native_unusable(attn__vendor *vendor, int code) {
    const int denied = access(vendor->node, R_OK | W_OK) != 0;
    const int is_there = !denied || errno == EACCES;
    char why[112] = "";
    if (!is_there) {
        snprintf(why, sizeof why, "there is no %s: load the kernel module, or share it with the "
                 "container", vendor->node);
    } else if (denied) {
        snprintf(why, sizeof why, "this user may not open %s: %s", vendor->node, vendor->permit);
    }
    const size_t room = sizeof vendor->missing;
    if (code) {
        snprintf(vendor->missing, room, "the %s driver answers %d, %s%s%.95s", vendor->maker, code,
                 vendor->error_name(code), *why ? "; " : ", ",
                 *why ? why : vendor->error_text(code));
    } else {
        snprintf(vendor->missing, room, "the %s driver is here, but it has no device%s%s%s",
                 vendor->maker, *why ? "; " : " (is ", *why ? why : vendor->hides,
                 *why ? "" : " set?)");
    }
}

int attn__native_fail(const attn__vendor *vendor, int code, const char *what) {
    return attn__fail(code == vendor->out_of_memory ? ATTN_MEMORY : ATTN_DRIVER, "device",
                      "%s failed: the driver answers %d, %s (%s)", what, code,
                      vendor->error_name(code), vendor->error_text(code));
}

/* -- Devices ----------------------------------------------------------------------------------- */

int attn__native_list(const attn__vendor *vendor, attn_device_info *list, int cap) {
    if (vendor->missing[0]) {
        if (cap > 0) {
            *list = (attn_device_info){.size = sizeof *list, .kind = vendor->kind};
            snprintf(list->name, sizeof list->name, "%s:0", vendor->name);
            snprintf(list->missing, sizeof list->missing, "%s", vendor->missing);
        }
        return 1;
    }
    for (int i = 0; i < vendor->devices && i < cap; i++) {
        vendor->describe(i, "", &list[i], NULL);
    }
    return vendor->devices;
}

/* The number behind "cuda:", or -1; behind that a colon may be followed by the kernels' target. */
static int index_of(const attn__vendor *vendor, const char *name, const char **kernels) {
    const size_t n = strlen(vendor->name);
    char *end = NULL;
    if (strncmp(name, vendor->name, n) != 0 || name[n] != ':' || name[n + 1] < '0' ||
        name[n + 1] > '9') {
        return -1;
    }
    const long index = strtol(name + n + 1, &end, 10);
    *kernels = *end ? end + 1 : end;
    return (*end && *end != ':') || strlen(*kernels) >= sizeof ((attn__chip *)0)->kernels ||
                   index > INT32_MAX
               ? -1
               : (int)index;
}

int attn__native_open(const attn__vendor *vendor, const char *name, attn__chip **chip) {
    const char *kernels = "";
    const int index = index_of(vendor, name, &kernels);
    attn_device_info info;
    attn__target target;
    *chip = NULL;
    if (index < 0) {
        return attn__fail(ATTN_DEVICE, "name", "device %s is not of the form %s:0", name,
                          vendor->name);
    }
    if (vendor->missing[0]) {
        return attn__fail(ATTN_DEVICE, "name", "device %s cannot be opened: %s", name,
                          vendor->missing);
    }
    if (index >= vendor->devices) {
        return attn__fail(ATTN_DEVICE, "name", "there is no device %s; the driver has %d", name,
                          vendor->devices);
    }
    const int device = vendor->describe(index, kernels, &info, &target);
    if (info.missing[0]) {
        return attn__fail(ATTN_DEVICE, "name", "device %s cannot be opened: %s", name,
                          info.missing);
    }
    attn__chip *const c = attn__alloc(sizeof *c, "a device");
    if (!c) {
        return ATTN_MEMORY;
    }
    *c = (attn__chip){.vendor = vendor, .index = index, .device = device, .target = target};
    strcpy(c->kernels, kernels);
    const int code = vendor->retain(&c->context, &c->adopted, device);
    if (code) {
        free(c);
        return attn__native_fail(vendor, code, "opening the device");
    }
    *chip = c;
    return ATTN_OK;
}

void attn__native_close(attn__chip *chip) {
    if (!chip->adopted) {
        chip->vendor->release(chip->device);
    }
    free(chip);
}

const attn__target *attn__native_target(const attn__chip *chip) {
    return &chip->target;
}

int attn__native_query(attn__chip *chip, attn_device_info *info) {
    chip->vendor->describe(chip->index, chip->kernels, info, NULL);
    return ATTN_OK;
}

/* -- Calls with the chip's context current ----------------------------------------------------- */

int attn__native_enter(const attn__chip *chip) {
    const int code = chip->vendor->push(chip->context);
    return code ? attn__native_fail(chip->vendor, code, "making the device current") : ATTN_OK;
}

int attn__native_leave(const attn__chip *chip, int code, const char *what) {
    void *context;
    chip->vendor->pop(&context);
    return code ? attn__native_fail(chip->vendor, code, what) : ATTN_OK;
}

int attn__native_alloc(attn__chip *chip, uint64_t bytes, void **pointer) {
    uint64_t at = 0;
    *pointer = NULL;
    ATTN_TRY(attn__native_enter(chip));
    ATTN_TRY(attn__native_leave(chip, chip->vendor->alloc(&at, bytes ? bytes : 1),
                                "taking device memory"));
    *pointer = (void *)(uintptr_t)at;
    return ATTN_OK;
}

void attn__native_free(attn__chip *chip, void *pointer) {
    if (attn__native_enter(chip) == ATTN_OK) {
        attn__native_leave(chip, chip->vendor->free((uintptr_t)pointer),
                           "giving back device memory");
    }
}

int attn__native_to_device(attn__chip *chip, void *to, const void *from, uint64_t bytes,
                           void *stream) {
    ATTN_TRY(attn__native_enter(chip));
    int code = chip->vendor->to_device((uintptr_t)to, from, bytes, stream);
    code = code ? code : chip->vendor->stream_sync(stream);
    return attn__native_leave(chip, code, "a copy to the device");
}

int attn__native_to_host(attn__chip *chip, void *to, const void *from, uint64_t bytes,
                         void *stream) {
    ATTN_TRY(attn__native_enter(chip));
    int code = chip->vendor->to_host(to, (uintptr_t)from, bytes, stream);
    code = code ? code : chip->vendor->stream_sync(stream);
    return attn__native_leave(chip, code, "a copy from the device");
}

/* One row has no pitch, which has a limit that its length need not have. */
static int copy_one(const attn__vendor *v, const attn__rows *to, const attn__rows *from,
                    uint64_t bytes, void *stream) {
    const uint64_t t = (uintptr_t)to->at, f = (uintptr_t)from->at;
    return to->is_host     ? v->to_host(to->at, f, bytes, stream)
           : from->is_host ? v->to_device(t, from->at, bytes, stream)
                           : v->within(t, f, bytes, stream);
}

int attn__native_copy_rows(attn__chip *chip, const attn__rows *to, const attn__rows *from,
                           uint64_t bytes, uint64_t rows, void *stream) {
    const attn__vendor *const v = chip->vendor;
    ATTN_TRY(attn__native_enter(chip));
    int code = rows == 1 ? copy_one(v, to, from, bytes, stream)
                         : v->copy_rows(to, from, bytes, rows, stream);
    if (code == 0 && (to->is_host || from->is_host)) {
        code = chip->vendor->stream_sync(stream);
    }
    return attn__native_leave(chip, code, "a copy");
}

int attn__native_stream_new(attn__chip *chip, void **stream) {
    *stream = NULL;
    ATTN_TRY(attn__native_enter(chip));
    return attn__native_leave(chip, chip->vendor->stream_new(stream, 0), "making a stream");
}

void attn__native_stream_free(attn__chip *chip, void *stream) {
    if (attn__native_enter(chip) == ATTN_OK) {
        attn__native_leave(chip, chip->vendor->stream_free(stream), "releasing a stream");
    }
}

int attn__native_stream_sync(attn__chip *chip, void *stream) {
    ATTN_TRY(attn__native_enter(chip));
    return attn__native_leave(chip, chip->vendor->stream_sync(stream), "waiting for the stream");
}

int attn__native_wait(attn__chip *chip) {
    ATTN_TRY(attn__native_enter(chip));
    return attn__native_leave(chip, chip->vendor->wait(), "waiting for the device");
}
