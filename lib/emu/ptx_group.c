/* ptx_group.c: the model of what warps of sm_90a do besides memory and products: barriers by
   number (PTX ISA 9.0, 9.7.13.1), registers handed from group to group (9.7.20.5).

   Who calls it: ptx.c's table.

   bar.sync and bar.arrive count whole warps; a barrier that has its threads begins anew. A thread
   begins with as many registers as ptxas says that such kernels use: 65536 / threads, a multiple of
   8, at most 240. What a warp gives up others of its block may take, and no more. */
#include "ptx_state.h"

#include <stdio.h>
#include <string.h>

enum { REGISTERS = 65536, FEWEST = 24, MOST = 256, MOST_AT_ENTRY = 240 };

void attn__ptx_groups_begin(ptx_state *s) {
    ptx_registers *const r = &s->registers;
    const int n = attn__emu_threads(), own = REGISTERS / n / 8 * 8;
    memset(s->named, 0, sizeof s->named);
    memset(r, 0, sizeof *r);
    for (int i = 0; i < n / 32; i++) {
        r->of[i] = own < MOST_AT_ENTRY ? own : MOST_AT_ENTRY;
    }
}

/* -- bar --------------------------------------------------------------------------------------- */

typedef struct coming {
    ptx_state *s;
    int id, threads, round;
} coming;

static void check_named(const ptx_named *b, const coming *first, int warp) {
    const int me = attn__emu_warp_first();
    if (first->id < 1 || first->id >= PTX_NAMED || first->threads <= 0 ||
        first->threads % 32 != 0 || first->threads > attn__emu_threads()) {
        attn__emu_fault(me, "is at barrier %d for %d threads; 1..15 and whole warps are possible",
                        first->id, first->threads);
    }
    if (b->arrived > 0 && b->threads != first->threads) {
        attn__emu_fault(me, "is at barrier %d for %d threads, others for %d", first->id,
                        first->threads, b->threads);
    }
    if (b->warps >> warp & 1) {
        attn__emu_fault(me, "arrives twice at barrier %d", first->id);
    }
}

static void come(void *const *lane) {
    coming *const first = lane[0];
    const int warp = attn__emu_warp_first() / 32;
    for (int i = 1; i < 32; i++) {
        const coming *const own = lane[i];
        if (own->id != first->id || own->threads != first->threads) {
            attn__emu_fault(warp * 32 + i, "is at barrier %d for %d threads, lane 0 at %d for %d",
                            own->id, own->threads, first->id, first->threads);
        }
    }
    ptx_named *const b = &first->s->named[first->id & (PTX_NAMED - 1)];
    check_named(b, first, warp);
    for (int i = 0; i < 32; i++) {
        ((coming *)lane[i])->round = b->round;
    }
    b->threads = first->threads;
    b->warps |= 1ull << warp;
    b->arrived += 32;
    attn__emu_release(warp, &b->now);
    snprintf(b->text, sizeof b->text, "barrier %d for %d threads", first->id, first->threads);
    if (b->arrived == b->threads) {
        b->round++;
        b->arrived = 0;
        b->warps = 0;
        b->done = b->now;
        attn__emu_wake(&b->queue);
    }
}

void attn__ptx_named_sync(int id, int threads) {
    coming mine = {.s = attn__ptx_state(), .id = id, .threads = threads};
    attn__emu_meet("named_sync", come, &mine);
    ptx_named *const b = &mine.s->named[id];
    while (b->round == mine.round) {
        attn__emu_pause(&b->queue, b->text);
    }
    attn__emu_acquire(attn__emu_thread() / 32, &b->done);
}

void attn__ptx_named_arrive(int id, int threads) {
    coming mine = {.s = attn__ptx_state(), .id = id, .threads = threads};
    attn__emu_meet("named_arrive", come, &mine);
}

/* -- setmaxnreg -------------------------------------------------------------------------------- */

typedef struct change {
    ptx_state *s;
    int n, more, need, done;
} change;

static void change_all(void *const *lane) {
    change *const first = lane[0];
    ptx_registers *const r = &first->s->registers;
    const int me = attn__emu_warp_first(), warp = me / 32, own = r->of[warp];
    if (first->n % 8 != 0 || first->n < FEWEST || first->n > MOST ||
        (first->more ? first->n < own : first->n > own)) {
        attn__emu_fault(me,
                        "asks for %s registers, %d; it has %d, and multiples of 8 from %d to %d "
                        "are possible",
                        first->more ? "more" : "fewer", first->n, own, FEWEST, MOST);
    }
    const int need = (first->n - own) * 32, done = need <= r->free;
    for (int i = 0; i < 32; i++) {
        ((change *)lane[i])->need = need;
        ((change *)lane[i])->done = done;
    }
    if (done) {
        r->free -= need;
        r->of[warp] = first->n;
        r->calls[warp]++;
    }
    if (need < 0) {
        attn__emu_wake(&r->queue);
    }
}

void attn__ptx_registers(int n, int more) {
    change mine = {.s = attn__ptx_state(), .n = n, .more = more};
    ptx_registers *const r = &mine.s->registers;
    do {
        attn__emu_meet(more ? "regs_more" : "regs_less", change_all, &mine);
        while (!mine.done && mine.need > r->free) { /* somebody must give some first */
            attn__emu_pause(&r->queue, "regs_more, for which too few are free");
        }
    } while (!mine.done);
}

/* All four warps of a group must have asked for the same. */
void attn__ptx_groups_end(const ptx_state *s) {
    const ptx_registers *const r = &s->registers;
    for (int i = 0; i < attn__emu_threads() / 32; i++) {
        const int first = i / 4 * 4;
        if (r->calls[i] != r->calls[first] || r->of[i] != r->of[first]) {
            attn__emu_fault(i * 32,
                            "has set its registers %d times, to %d, thread %d %d times, to %d",
                            r->calls[i], r->of[i], first * 32, r->calls[first], r->of[first]);
        }
    }
}

/* -- What is the same in all lanes ------------------------------------------------------------- */

typedef struct spread {
    unsigned x, got;
    int lane;
} spread;

static void spread_all(void *const *lane) {
    const int from = ((const spread *)lane[0])->lane;
    for (int i = 0; i < 32; i++) {
        spread *const s = lane[i];
        if (s->lane != from || from < 0 || from >= 32) {
            attn__emu_fault(attn__emu_warp_first() + i,
                            "asks for the word of lane %d, its warp's first for that of lane %d",
                            s->lane, from);
        }
        s->got = ((const spread *)lane[from & 31])->x;
    }
}

unsigned attn__ptx_warp_from(unsigned x, int lane) {
    spread s = {.x = x, .lane = lane};
    attn__emu_meet("warp_from", spread_all, &s);
    return s.got;
}
