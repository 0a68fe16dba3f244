/* memory.c: a device's memory and its streams.

   Who calls it: the public API; whoever reads a few bytes of device memory (attn__device_read).
   Where the memory is the host's, a block from attn_buffer_new carries its size:

       base                    base + 256 = the pointer handed out, aligned to 256
       | size | ............. | bytes                                        |

   Of large blocks the system is asked for large pages: a processor then looks up few addresses.
   Memory that is not the host's comes in the blocks of blocks.c. */
#ifndef _DEFAULT_SOURCE
#define _DEFAULT_SOURCE /* madvise */
#endif
#include "blocks.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { HOST = 1, ALIGN = 256, LARGE_PAGE = 2 << 20 };

/* -- Buffers ----------------------------------------------------------------------------------- */

static int no_memory(const attn_device *device, uint64_t bytes) {
    const uint64_t used = __atomic_load_n(&device->used, __ATOMIC_RELAXED);
    return attn__fail(ATTN_MEMORY, "bytes",
                      "out of memory: device %s does not give %llu bytes; %llu are in use here",
                      device->name, (unsigned long long)bytes, (unsigned long long)used);
}

static int new_near(const attn_device *device, uint64_t bytes, void **pointer) {
    const uint64_t total = attn__host_memory();
    const uint64_t used = __atomic_load_n(&device->used, __ATOMIC_RELAXED);
    char *base = NULL;
    if (bytes <= total && used <= total - bytes) {
        base = aligned_alloc(ALIGN, ((size_t)bytes + 2 * ALIGN - 1) / ALIGN * ALIGN);
    }
    if (!base) {
        return attn__fail(
            ATTN_MEMORY, "bytes",
            "out of memory: %llu bytes wanted, device %s has %llu and %llu are in use",
            (unsigned long long)bytes, device->name, (unsigned long long)total,
            (unsigned long long)used);
    }
#ifdef MADV_HUGEPAGE
    if (bytes >= 2 * LARGE_PAGE) { /* whole pages of it; a system may do otherwise */
        char *const first = base + (size_t)-(uintptr_t)base % LARGE_PAGE;
        (void)madvise(first, (size_t)(base + bytes - first) / LARGE_PAGE * LARGE_PAGE,
                      MADV_HUGEPAGE);
    }
#endif
    memcpy(base, &bytes, sizeof bytes);
    *pointer = base + ALIGN;
    return ATTN_OK;
}

/* again: it may be a block that was retired. */
static int buffer_new(attn_device *device, uint64_t bytes, int again, void *stream,
                      void **pointer) {
    ATTN_TRY(attn__device_check(device));
    if (!pointer) {
        return attn__fail(ATTN_INVALID, "pointer",
                          "pointer is NULL; a place for the address is wanted");
    }
    *pointer = NULL;
    const int status = device->kind == HOST ? new_near(device, bytes, pointer)
                       : again ? attn__block_new_on(device, bytes, stream, pointer)
                               : attn__block_new(device, bytes, pointer);
    if (status < 0) {
        return status == ATTN_MEMORY && device->kind != HOST ? no_memory(device, bytes) : status;
    }
    __atomic_fetch_add(&device->used, bytes, __ATOMIC_RELAXED);
    return ATTN_OK;
}

int attn_buffer_new(attn_device *device, uint64_t bytes, void **pointer) {
    return buffer_new(device, bytes, 0, NULL, pointer);
}

int attn_buffer_new_on(attn_device *device, uint64_t bytes, void *stream, void **pointer) {
    return buffer_new(device, bytes, 1, stream, pointer);
}

int attn_buffer_use(attn_device *device, void *pointer, void *stream) {
    ATTN_TRY(attn__device_check(device));
    ATTN_TRY(attn__stream_check(device, stream));
    return device->kind == HOST || !pointer ? ATTN_OK : attn__block_use(device, pointer, stream);
}

static void buffer_end(attn_device *device, void *pointer, int keep) {
    uint64_t bytes = 0;
    if (!device || !pointer) {
        return;
    }
    if (device->kind == HOST) {
        char *const base = (char *)pointer - ALIGN;
        memcpy(&bytes, base, sizeof bytes);
        free(base);
    } else {
        bytes = attn__block_end(device, pointer, keep);
    }
    __atomic_fetch_sub(&device->used, bytes, __ATOMIC_RELAXED);
}

void attn_buffer_release(attn_device *device, void *pointer) {
    buffer_end(device, pointer, 0);
}

void attn_buffer_retire(attn_device *device, void *pointer) {
    buffer_end(device, pointer, 1);
}

int attn_buffer_trim(attn_device *device) {
    ATTN_TRY(attn__device_check(device));
    if (device->kind != HOST) {
        attn__blocks_trim(device);
    }
    return ATTN_OK;
}

int attn__device_read(const attn_device *device, void *to, const void *from, uint64_t bytes) {
    if (device->kind == HOST) {
        memcpy(to, from, (size_t)bytes);
        return ATTN_OK;
    }
    ATTN_TRY(device->driver->wait(device->chip));
    return device->driver->to_host(device->chip, to, from, bytes, NULL);
}

/* -- Streams: a host has NULL alone, and work is done when a call returns ---------------------- */

int attn__stream_check(const attn_device *device, const void *stream) {
    if (stream && device->kind == HOST) {
        return attn__fail(ATTN_INVALID, "stream", "stream is %p; device %s has only NULL", stream,
                          device->name);
    }
    return ATTN_OK;
}

int attn_stream_new(attn_device *device, void **stream) {
    ATTN_TRY(attn__device_check(device));
    if (!stream) {
        return attn__fail(ATTN_INVALID, "stream",
                          "stream is NULL; a place for the handle is wanted");
    }
    *stream = NULL;
    return device->kind == HOST ? ATTN_OK : device->driver->stream_new(device->chip, stream);
}

void attn_stream_release(attn_device *device, void *stream) {
    if (device && stream && device->kind != HOST) {
        device->driver->stream_free(device->chip, stream);
    }
}

int attn_stream_sync(attn_device *device, void *stream) {
    ATTN_TRY(attn__device_check(device));
    ATTN_TRY(attn__stream_check(device, stream));
    return device->kind == HOST ? ATTN_OK : device->driver->stream_sync(device->chip, stream);
}
