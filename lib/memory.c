/* memory.c: a device's memory and its streams.

   Who calls it: the public API; whoever reads a few bytes of device memory (attn__device_read).
   Where the memory is the host's, a block from attn_buffer_new carries its size:

       base                    base + 256 = the pointer handed out, aligned to 256
       | size | ............. | bytes                                        |

   Of memory that is not, the host keeps a list of blocks. */
#include "fork.h"
#include "gpu.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { HOST = 1, ALIGN = 256 };

/* -- Blocks of memory that is not the host's --------------------------------------------------- */

typedef struct block {
    const attn_device *device;
    void *pointer;
    uint64_t bytes;
} block;
static block *blocks;
static size_t n_blocks, room;

static int remember(const attn_device *device, void *pointer, uint64_t bytes) {
    int status = ATTN_OK;
    attn__lock(ATTN__BLOCKS);
    if (n_blocks == room) {
        const size_t more = room ? 2 * room : 64;
        block *const larger = realloc(blocks, more * sizeof *blocks);
        if (larger) {
            blocks = larger;
            room = more;
        } else {
            status =
                attn__fail(ATTN_MEMORY, "bytes", "out of memory for a list of %zu buffers", more);
        }
    }
    if (status == ATTN_OK) {
        blocks[n_blocks++] = (block){device, pointer, bytes};
    }
    attn__unlock(ATTN__BLOCKS);
    return status;
}

/* 1 and its size if the device has such a block, which is forgotten. */
static int forget(const attn_device *device, const void *pointer, uint64_t *bytes) {
    int found = 0;
    attn__lock(ATTN__BLOCKS);
    for (size_t i = n_blocks; i-- > 0 && !found;) { /* young blocks die first */
        if (blocks[i].pointer == pointer && blocks[i].device == device) {
            *bytes = blocks[i].bytes;
            blocks[i] = blocks[--n_blocks];
            found = 1;
        }
    }
    if (n_blocks == 0) {
        free(blocks);
        blocks = NULL;
        room = 0;
    }
    attn__unlock(ATTN__BLOCKS);
    return found;
}

/* -- Buffers ----------------------------------------------------------------------------------- */

static int new_far(attn_device *device, uint64_t bytes, void **pointer) {
    void *at = NULL;
    int status = device->driver->alloc(device->chip, bytes, &at);
    if (status == ATTN_MEMORY) {
        const uint64_t used = __atomic_load_n(&device->used, __ATOMIC_RELAXED);
        return attn__fail(ATTN_MEMORY, "bytes",
                          "out of memory: device %s does not give %llu bytes; %llu are in use here",
                          device->name, (unsigned long long)bytes, (unsigned long long)used);
    }
    ATTN_TRY(status);
    status = remember(device, at, bytes);
    if (status < 0) {
        device->driver->free(device->chip, at);
        return status;
    }
    *pointer = at;
    return ATTN_OK;
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
    memcpy(base, &bytes, sizeof bytes);
    *pointer = base + ALIGN;
    return ATTN_OK;
}

int attn_buffer_new(attn_device *device, uint64_t bytes, void **pointer) {
    ATTN_TRY(attn__device_check(device));
    if (!pointer) {
        return attn__fail(ATTN_INVALID, "pointer",
                          "pointer is NULL; a place for the address is wanted");
    }
    *pointer = NULL;
    ATTN_TRY(device->kind == HOST ? new_near(device, bytes, pointer)
                                  : new_far(device, bytes, pointer));
    __atomic_fetch_add(&device->used, bytes, __ATOMIC_RELAXED);
    return ATTN_OK;
}

void attn_buffer_release(attn_device *device, void *pointer) {
    uint64_t bytes = 0;
    if (!device || !pointer) {
        return;
    }
    if (device->kind == HOST) {
        char *const base = (char *)pointer - ALIGN;
        memcpy(&bytes, base, sizeof bytes);
        free(base);
    } else if (forget(device, pointer, &bytes)) {
        device->driver->free(device->chip, pointer);
    }
    __atomic_fetch_sub(&device->used, bytes, __ATOMIC_RELAXED);
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
