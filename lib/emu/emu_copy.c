/* emu_copy.c: asynchronous copies from device to shared memory.

   Who calls it: ptx.c's model of cp.async. A copy is read when it is issued, since no launch
   changes what it reads, and lands later:

       copy ... copy commit | copy commit | ... wait(1)
       '----- group 1 ----'   'group 2 '         group 1 has landed, group 2 may have

   async=late lands at the wait that demands it, no sooner; early at the issue; random either. */
#include "emu_core.h"

#include <stdlib.h>
#include <string.h>

/* Its bytes are there, written now by the thread that issued it. */
static void land(emu_core *c, const emu_copy *copy) {
    const uint32_t words = copy->bytes / 4;
    for (uint32_t i = copy->to / 4; i < copy->to / 4 + words; i++) {
        c->valid[i] = 0;
    }
    memcpy(attn__emu_shared(c->now, copy->to, copy->bytes, 1), copy->data, copy->bytes);
}

/* From issue to landing its place is written at any time: claim it, then poison it. */
static void claim(emu_core *c, const emu_copy *copy) {
    memset(attn__emu_shared(c->now, copy->to, copy->bytes, 1), 0xcb, copy->bytes);
    for (uint32_t i = copy->to / 4; i < (copy->to + copy->bytes) / 4; i++) {
        c->valid[i] = EMU_PENDING;
    }
}

static emu_copy *place(emu_thread *t) {
    if (t->first > 0 && t->first == t->n) {
        t->first = t->n = 0;
    }
    if (t->n == t->room) {
        const int room = t->room ? 2 * t->room : 64;
        emu_copy *const copies = realloc(t->copies, (size_t)room * sizeof *copies);
        if (!copies) {
            return NULL;
        }
        t->copies = copies;
        t->room = room;
    }
    return &t->copies[t->n++];
}

void attn__emu_copy(uint32_t to, uint64_t from, int bytes, int valid) {
    emu_core *const c = attn__emu_here;
    emu_thread *const t = &c->thread[c->now];
    if (from % (uint64_t)bytes != 0 || valid < 0 || valid > bytes) {
        attn__emu_fault(c->now, "copies %d of %d bytes from 0x%llx, no multiple of it", valid,
                        bytes, (unsigned long long)from);
    }
    emu_copy *const copy = place(t);
    if (!copy) {
        attn__emu_fault(c->now, "finds no memory for its asynchronous copies");
    }
    *copy = (emu_copy){.to = to, .bytes = (uint32_t)bytes, .group = t->groups};
    if (valid > 0) {
        if (from < 4096) {
            attn__emu_fault(c->now, "copies from device memory at 0x%llx",
                            (unsigned long long)from);
        }
        memcpy(copy->data, (const void *)(uintptr_t)from, (size_t)valid);
        c->counts.load_bytes += (uint64_t)valid;
    }
    claim(c, copy);
    if (attn__emu_early()) {
        land(c, copy);
        t->n--;
    }
}

void attn__emu_copy_commit(void) {
    attn__emu_here->thread[attn__emu_here->now].groups++;
}

void attn__emu_copy_wait(int n) {
    emu_core *const c = attn__emu_here;
    emu_thread *const t = &c->thread[c->now];
    for (; t->first < t->n; t->first++) {
        const emu_copy *const copy = &t->copies[t->first];
        if (copy->group + (uint32_t)n >= t->groups) {
            break;
        }
        land(c, copy);
    }
}
