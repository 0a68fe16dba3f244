/* emu_order.c: what happens before what in a block: clocks, and accesses of shared memory by copies
   of whole boxes and by matrix units.

   Who calls it: emu_shared.c, emu_warp.c; the models of sm_90a. An agent's acts are numbered. A
   warp's own number grows when it releases: at a barrier of any kind. The others' numbers in its
   clock grow when it acquires:

       warp 0   acts 1   release(barrier) acts 2           clock of warp 1: {0, 1, ...}
                               |
       warp 1   acts 1         '-> acquire(barrier) acts 1                  {1, 1, ...}

   A tag in the shadow is act << 8 | agent; its act happened before what a warp does now if its
   number is at most the one in the warp's clock. Barriers of the block join all clocks.

   Copies and matrix units reach shared memory by a proxy of their own: what an ordinary store wrote
   they may read if its thread executed a proxy fence, and that is ordered before them. */
#include "emu_core.h"

#include <string.h>

enum { ACT_MOST = (1 << 24) - 1, CELL = 128 };
static const uint32_t several = (uint32_t)ACT_MOST << 8 | EMU_ALL; /* see `readers` */

static int warps_of(const emu_core *c) {
    return c->launch->threads >> c->shift;
}

/* -- Clocks ------------------------------------------------------------------------------------ */

void attn__emu_order_reset(emu_core *c) {
    for (int i = 0; i < warps_of(c); i++) {
        memset(&c->clock[i], 0, sizeof c->clock[i]);
        c->clock[i].at[i] = 1;
    }
    c->ordered = 0;
    if (c->launch->family->begin) {
        memset(c->plain, 0, ((size_t)c->launch->shared + 3) / 4 * sizeof *c->plain);
    }
}

void attn__emu_ordered(void) {
    emu_core *const c = attn__emu_here;
    if (!c->ordered) {
        const size_t cells = ((size_t)c->launch->shared + CELL - 1) / CELL;
        c->ordered = 1;
        memset(c->matrix, 0, cells * sizeof *c->matrix);
    }
}

attn__emu_clock *attn__emu_clock_of(int warp) {
    return &attn__emu_here->clock[warp];
}

void attn__emu_join(attn__emu_clock *to, const attn__emu_clock *more) {
    for (int i = 0; i < EMU_AGENTS; i++) {
        to->at[i] = to->at[i] > more->at[i] ? to->at[i] : more->at[i];
    }
}

void attn__emu_release(int warp, attn__emu_clock *to) {
    attn__emu_clock *const own = attn__emu_clock_of(warp);
    attn__emu_join(to, own);
    own->at[warp] += own->at[warp] < ACT_MOST - 1;
}

void attn__emu_acquire(int warp, const attn__emu_clock *from) {
    attn__emu_join(attn__emu_clock_of(warp), from);
}

void attn__emu_order_all(emu_core *c) {
    attn__emu_clock all = c->clock[0];
    uint32_t last = 0;
    for (int i = 1; i < warps_of(c); i++) {
        attn__emu_join(&all, &c->clock[i]);
    }
    for (int i = 0; i < EMU_AGENTS; i++) {
        last = last > all.at[i] || i == EMU_ALL ? last : all.at[i];
    }
    all.at[EMU_ALL] = last;
    if (last >= ACT_MOST - 2 && !c->ordered) { /* tags have room for no more: forget them */
        memset(c->shadow, 0, (size_t)c->launch->shared / 4 * sizeof *c->shadow);
        memset(&all, 0, sizeof all);
    }
    for (int i = 0; i < warps_of(c); i++) {
        c->clock[i] = all;
        c->clock[i].at[i]++;
    }
}

/* -- Words that several warps read ------------------------------------------------------------- */

void attn__emu_order_read(emu_core *c, uint32_t word, uint32_t tag) {
    emu_shadow *const s = &c->shadow[word];
    uint32_t *const readers = c->readers[word];
    if (s->read != several) {
        memset(readers, 0, sizeof c->readers[word]);
        if ((s->read & 255) < EMU_WARPS) {
            readers[s->read & 255] = s->read >> 8;
        } else { /* all of them, before the block was `ordered` */
            for (int i = 0; i < EMU_WARPS; i++) {
                readers[i] = s->read >> 8;
            }
        }
        s->read = several;
    }
    readers[tag & 255] = tag >> 8;
}

int attn__emu_order_unread(const emu_core *c, uint32_t word, int warp) {
    const uint32_t read = c->shadow[word].read;
    if (read != several) {
        return emu_before(c, warp, read);
    }
    for (int i = 0; i < warps_of(c); i++) {
        if (c->readers[word][i] > c->clock[warp].at[i]) {
            return 0;
        }
    }
    return 1;
}

/* A group reads for its four warps; each of them knows when that is over. */
int attn__emu_order_unmultiplied(const emu_core *c, uint32_t word, int warp) {
    const uint32_t *const acts = c->matrix[word * 4 / CELL];
    for (int i = 0; i < warps_of(c); i++) {
        if (acts[i / 4] > c->clock[warp].at[EMU_MATRICES + i]) {
            return 0;
        }
    }
    return 1;
}

/* -- The other proxy --------------------------------------------------------------------------- */

void attn__emu_proxy_fence(void) {
    emu_core *const c = attn__emu_here;
    emu_thread *const t = &c->thread[c->now];
    const int warp = c->now >> c->shift;
    t->fence[++t->fences % EMU_FENCES] = c->clock[warp].at[warp];
}

/* What ordinary stores wrote at `word` must have been fenced, and that be seen. Of fences long ago
   it is not known when; they count as seen. */
static void check_plain(const emu_core *c, int thread, uint32_t word, const attn__emu_clock *seen,
                        const char *what) {
    const uint32_t plain = c->plain[word];
    if (!plain) {
        return;
    }
    const int writer = (int)(plain & 2047) - 1;
    const emu_thread *const t = &c->thread[writer];
    const uint32_t fence = (plain >> 11) + 1, since = t->fences - (plain >> 11);
    if (since == 0 ||
        (since <= EMU_FENCES && t->fence[fence % EMU_FENCES] > seen->at[writer >> c->shift])) {
        attn__emu_fault(thread,
                        "%s shared memory at %u by copy or product; thread %d wrote it, "
                        "with no proxy_fence in between",
                        what, word * 4, writer);
    }
}

/* -- Copies of boxes --------------------------------------------------------------------------- */

static void check_range(const emu_core *c, int thread, uint32_t at, uint32_t bytes,
                        const char *what) {
    const uint32_t size = (uint32_t)c->launch->shared;
    if (bytes > size || at > size - bytes) {
        attn__emu_fault(thread, "%s %u bytes of shared memory at %u; the block has %u", what, bytes,
                        at, size);
    }
}

void attn__emu_reserve(uint32_t at, uint32_t bytes) {
    emu_core *const c = attn__emu_here;
    attn__emu_shared(c->now, at, bytes, 1);
    for (uint32_t i = at / 4; i < (at + bytes) / 4; i++) {
        c->valid[i] = EMU_RESERVED;
    }
}

void attn__emu_claim(int thread, uint32_t at, uint32_t bytes, int barrier, uint32_t act) {
    emu_core *const c = attn__emu_here;
    const int warp = thread >> c->shift;
    const uint32_t tag = act << 8 | (uint32_t)(EMU_COPIES + barrier);
    check_range(c, thread, at, bytes, "copies to");
    for (uint32_t i = at / 4; i < (at + bytes) / 4; i++) {
        emu_shadow *const s = &c->shadow[i];
        if (c->valid[i] & (EMU_PENDING | EMU_RESERVED | EMU_LENT)) {
            attn__emu_fault(thread, "copies to shared memory at %u, where %s", i * 4,
                            c->valid[i] & EMU_PENDING ? "a copy is on its way"
                            : c->valid[i] & EMU_LENT  ? "a copy may still read"
                                                      : "a barrier is");
        }
        if (!emu_before(c, warp, s->write)) {
            attn__emu_race(thread, "copies to", i * 4, "wrote", s->write);
        }
        if (!attn__emu_order_unread(c, i, warp)) {
            attn__emu_race(thread, "copies to", i * 4, "read", s->read);
        }
        if (i % (CELL / 4) == 0 && !attn__emu_order_unmultiplied(c, i, warp)) {
            attn__emu_fault(thread, "copies to shared memory at %u, where a product may still read",
                            i * 4);
        }
        check_plain(c, thread, i, &c->clock[warp], "writes");
        *s = (emu_shadow){.write = tag};
        c->plain[i] = 0;
        c->valid[i] = EMU_PENDING;
    }
    memset(c->data + at, 0xcb, bytes);
}

void *attn__emu_landed(uint32_t at, uint32_t bytes) {
    emu_core *const c = attn__emu_here;
    memset(c->valid + at / 4, 15, bytes / 4);
    return c->data + at;
}

const void *attn__emu_lend(int thread, uint32_t at, uint32_t bytes) {
    emu_core *const c = attn__emu_here;
    const int warp = thread >> c->shift;
    check_range(c, thread, at, bytes, "copies from");
    for (uint32_t i = at / 4; i < (at + bytes) / 4; i++) {
        attn__emu_shared(thread, i * 4, 4, 0);
        check_plain(c, thread, i, &c->clock[warp], "reads");
        c->valid[i] |= EMU_LENT;
    }
    return c->data + at;
}

void attn__emu_lent(int thread, uint32_t at, uint32_t bytes) {
    emu_core *const c = attn__emu_here;
    const int warp = thread >> c->shift;
    const uint32_t tag = c->clock[warp].at[warp] << 8 | (uint32_t)warp;
    for (uint32_t i = at / 4; i < (at + bytes) / 4; i++) {
        emu_shadow *const s = &c->shadow[i];
        c->valid[i] &= (unsigned char)~EMU_LENT;
        if (emu_before(c, warp, s->read)) {
            s->read = tag;
        } else {
            attn__emu_order_read(c, i, tag);
        }
        s->read_lane = 0;
    }
}

/* -- Matrix units ------------------------------------------------------------------------------ */

void attn__emu_will_read(int group, uint32_t act, int thread, uint32_t at) {
    emu_core *const c = attn__emu_here;
    check_range(c, thread, at, 16, "multiplies");
    c->matrix[at / CELL][group] = act;
}

const void *attn__emu_read(int thread, uint32_t at, const attn__emu_clock *seen) {
    emu_core *const c = attn__emu_here;
    for (uint32_t i = at / 4; i < at / 4 + 4; i++) {
        const uint32_t tag = c->shadow[i].write;
        if ((c->valid[i] & ~EMU_LENT) != 15) {
            attn__emu_fault(thread, "multiplies shared memory at %u, %s", i * 4,
                            c->valid[i] & EMU_PENDING    ? "where a copy is on its way"
                            : c->valid[i] & EMU_RESERVED ? "where a barrier is"
                                                         : "which nobody has written");
        }
        if (tag >> 8 > seen->at[tag & 255]) {
            attn__emu_race(thread, "multiplies", i * 4, "wrote", tag);
        }
        check_plain(c, thread, i, seen, "reads");
    }
    return c->data + at;
}
