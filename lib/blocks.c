/* blocks.c: memory of a device that is not the host's, in blocks which are used again in the order
   of streams.

   Who calls it: memory.c; device.c before a chip is closed.

       driver -- new, new_on --> live --- end, keep ---> kept
          ^                       | ^                     |
          +------- end -----------+ +------ new_on -------+   of its size, if `may_have` says so
          +------------------------------- trim ----------+

   A block knows the streams whose work uses it, but for NULL, each with a mark behind the last of
   that work. Work on NULL is behind all earlier work on NULL, so it may have a block without marks
   at once. For another stream, or a block with marks, these must have been reached; then a mark is
   put into NULL, too.

   A mark moves to later work only after its stream was told to wait for it: the handle may be a
   new stream's, and the one that it named is gone with work still to do. So a mark is behind
   everything that it ever stood for, no stream is asked for but the one that the caller names now,
   and the host never waits. */
#include "blocks.h"
#include "fork.h"

#include <stdlib.h>
#include <string.h>

enum { MOST_MARKS = 4, LEAST = 512 };

typedef struct mark {
    void *stream, *event;
} mark;

typedef struct block {
    const attn_device *device;
    void *pointer;
    uint64_t bytes, room; /* asked for; there */
    int marks;
    mark mark[MOST_MARKS];
} block;

typedef struct blocks {
    block *at;
    size_t n, room;
} blocks;
static blocks live, kept;

/* As the library is unloaded. */
__attribute__((destructor)) static void forget_all(void) {
    free(live.at);
    free(kept.at);
    live = kept = (blocks){0};
}

static int append(blocks *list, const block *b) {
    if (list->n == list->room) {
        const size_t more = list->room ? 2 * list->room : 64;
        block *const larger = realloc(list->at, more * sizeof *larger);
        if (!larger) {
            return attn__fail(ATTN_MEMORY, "bytes", "out of memory for a list of %zu buffers",
                              more);
        }
        list->at = larger;
        list->room = more;
    }
    list->at[list->n++] = *b;
    return ATTN_OK;
}

static block take_out(blocks *list, size_t i) {
    const block b = list->at[i];
    list->n--;
    memmove(list->at + i, list->at + i + 1, (list->n - i) * sizeof b);
    return b;
}

/* Its place among the live ones, or SIZE_MAX; young blocks die first. */
static size_t find(const attn_device *device, const void *pointer) {
    size_t i = live.n;
    while (i-- > 0) {
        if (live.at[i].pointer == pointer && live.at[i].device == device) {
            return i;
        }
    }
    return SIZE_MAX;
}

/* At most an eighth more, so that sizes which differ little share blocks. */
static uint64_t rounded(uint64_t bytes) {
    uint64_t step = LEAST / 8;
    while (step < bytes / 16) {
        step *= 2;
    }
    const uint64_t all = bytes > UINT64_MAX - step ? bytes : (bytes + step - 1) / step * step;
    return all < LEAST ? LEAST : all;
}

/* -- Marks ------------------------------------------------------------------------------------- */

static void drop_mark(block *b, int i) {
    b->device->driver->event_free(b->device->chip, b->mark[i].event);
    b->mark[i] = b->mark[--b->marks];
}

static void drop_marks(block *b) {
    while (b->marks > 0) {
        drop_mark(b, b->marks - 1);
    }
}

/* Behind all that was put on the stream so far. With too many streams the first mark moves. */
static int put_mark(block *b, void *stream) {
    const attn__driver *const driver = b->device->driver;
    attn__chip *const chip = b->device->chip;
    int i = 0;
    while (i < b->marks && b->mark[i].stream != stream) {
        i++;
    }
    if (i == b->marks && i < MOST_MARKS) {
        ATTN_TRY(driver->event_new(chip, &b->mark[i].event));
        b->marks++;
    } else {
        i %= MOST_MARKS;
        ATTN_TRY(driver->event_await(chip, b->mark[i].event, stream));
    }
    b->mark[i].stream = stream;
    return driver->event_record(chip, b->mark[i].event, stream);
}

/* May work on `stream` have the block now? */
static int may_have(block *b, const void *stream) {
    int after_null = !stream;
    for (int i = b->marks; i-- > 0;) {
        const int is_null = !b->mark[i].stream;
        int done = 0;
        if (is_null && !stream) {
            continue;
        }
        if (b->device->driver->event_done(b->device->chip, b->mark[i].event, &done) < 0 || !done) {
            return 0;
        }
        after_null |= is_null;
        drop_mark(b, i);
    }
    if (after_null) {
        drop_marks(b);
    } else {
        put_mark(b, NULL);
    }
    return after_null;
}

/* -- Blocks ------------------------------------------------------------------------------------ */

int attn__block_new(attn_device *device, uint64_t bytes, void **pointer) {
    block b = {.device = device, .bytes = bytes, .room = bytes};
    int status = device->driver->alloc(device->chip, bytes, &b.pointer);
    if (status == ATTN_MEMORY && attn__blocks_trim(device)) {
        status = device->driver->alloc(device->chip, bytes, &b.pointer);
    }
    ATTN_TRY(status);
    attn__lock(ATTN__BLOCKS);
    status = append(&live, &b);
    attn__unlock(ATTN__BLOCKS);
    if (status < 0) {
        device->driver->free(device->chip, b.pointer);
        return status;
    }
    *pointer = b.pointer;
    return ATTN_OK;
}

int attn__block_new_on(attn_device *device, uint64_t bytes, void *stream, void **pointer) {
    const uint64_t room = rounded(bytes);
    *pointer = NULL;
    attn__lock(ATTN__BLOCKS);
    for (size_t i = kept.n; i-- > 0 && !*pointer;) {
        block *const b = &kept.at[i];
        if (b->device == device && b->room == room && may_have(b, stream)) {
            block again = *b;
            again.bytes = bytes;
            if (append(&live, &again) == ATTN_OK) {
                take_out(&kept, i);
                *pointer = again.pointer;
            }
        }
    }
    attn__unlock(ATTN__BLOCKS);
    if (*pointer) {
        return ATTN_OK;
    }
    ATTN_TRY(attn__block_new(device, room, pointer));
    attn__lock(ATTN__BLOCKS);
    live.at[find(device, *pointer)].bytes = bytes;
    attn__unlock(ATTN__BLOCKS);
    return ATTN_OK;
}

int attn__block_use(attn_device *device, const void *pointer, void *stream) {
    attn__lock(ATTN__BLOCKS);
    const size_t i = find(device, pointer);
    const int status =
        i == SIZE_MAX ? attn__fail(ATTN_INVALID, "pointer", "%p is no buffer of device %s", pointer,
                                   device->name)
        : stream ? put_mark(&live.at[i], stream)
                 : ATTN_OK;
    attn__unlock(ATTN__BLOCKS);
    return status;
}

static void give_back(block *b) {
    drop_marks(b);
    b->device->driver->free(b->device->chip, b->pointer); /* which waits for its work */
}

uint64_t attn__block_end(attn_device *device, const void *pointer, int keep) {
    block b = {0};
    int ends = 0;
    attn__lock(ATTN__BLOCKS);
    const size_t i = find(device, pointer);
    if (i != SIZE_MAX) {
        b = take_out(&live, i);
        ends = !keep || append(&kept, &b) < 0;
    }
    attn__unlock(ATTN__BLOCKS);
    if (ends) {
        give_back(&b);
    }
    return b.bytes;
}

/* One that the device has kept; 0: none. */
static int take_kept(const attn_device *device, block *b) {
    int found = 0;
    attn__lock(ATTN__BLOCKS);
    for (size_t i = kept.n; i-- > 0 && !found;) {
        if (kept.at[i].device == device) {
            *b = take_out(&kept, i);
            found = 1;
        }
    }
    attn__unlock(ATTN__BLOCKS);
    return found;
}

int attn__blocks_trim(attn_device *device) {
    block b;
    int n = 0;
    for (; take_kept(device, &b); n++) {
        give_back(&b);
    }
    return n;
}
