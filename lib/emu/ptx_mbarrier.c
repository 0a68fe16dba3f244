/* ptx_mbarrier.c: the model of mbarriers, PTX ISA 9.0, 9.7.13.15; and a block's state of sm_90a.

   Who calls it: ptx.c's table; ptx_tensor.c, whose boxes complete phases. A phase ends when its
   arrivals and its bytes have come; then the next one begins, with the other parity:

       phase     0              | 1              | 2
       parity    0              | 1              | 0
       pending   count .. 0     | count .. 0     |
       bytes     + expected - come, 0 at the end |

   try_wait(parity) is true while the phase of that parity is the last one that ended: of a fresh
   barrier for parity 1. A thread that finds it false waits, and is then told false once more, as a
   chip may: the loop around it is needed. */
#include "ptx_state.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BYTES_MOST = (1 << 20) - 1, COUNT_MOST = (1 << 20) - 1 };

/* -- State ------------------------------------------------------------------------------------- */

ptx_state *attn__ptx_state(void) {
    ptx_state *const s = attn__emu_state();
    if (!s) {
        attn__emu_fault(attn__emu_thread(), "finds no memory for its barriers");
    }
    attn__emu_ordered();
    return s;
}

void attn__ptx_begin(void **state) {
    ptx_state *s = *state;
    if (!s) {
        *state = s = calloc(1, sizeof *s);
    }
    if (s) {
        s->n_barriers = s->n_boxes = s->n_stores = 0;
        attn__ptx_groups_begin(s);
        attn__ptx_wgmma_begin(s);
    }
}

int attn__ptx_idle(void *state) {
    ptx_state *const s = state;
    if (s && attn__ptx_tensor_idle(s)) {
        return 1;
    }
    for (int i = 0; s && i < s->n_barriers; i++) {
        attn__ptx_mbarrier_say(&s->barrier[i]);
    }
    return 0;
}

void attn__ptx_end(void *state) {
    const ptx_state *const s = state;
    if (s && s->n_boxes > 0) {
        attn__emu_fault(s->box[0].thread, "ends with a copy to shared memory at %u on its way",
                        s->box[0].to);
    }
    if (s && s->n_stores > 0) {
        attn__emu_fault(s->store[0].thread, "ends with a store of shared memory at %u on its way",
                        s->store[0].from);
    }
    if (s) {
        attn__ptx_groups_end(s);
        attn__ptx_wgmma_end(s);
    }
}

void attn__ptx_free(void *state) {
    ptx_state *const s = state;
    for (int i = 0; s && i < PTX_GROUPS; i++) {
        attn__ptx_wgmma_free(s->group[i]);
    }
    if (s) {
        free(s->box);
        free(s->store);
    }
    free(s);
}

/* -- Barriers ---------------------------------------------------------------------------------- */

ptx_mbarrier *attn__ptx_mbarrier(ptx_state *s, uint32_t at) {
    const int me = attn__emu_thread(), warp = me / 32;
    for (int i = 0; i < s->n_barriers; i++) {
        ptx_mbarrier *const b = &s->barrier[i];
        if (b->at == at) {
            if (attn__emu_clock_of(warp)->at[b->init_thread / 32] < b->init_act) {
                attn__emu_fault(me,
                                "uses the mbarrier at %u, which thread %d initialised, with no "
                                "barrier in between",
                                at, b->init_thread);
            }
            return b;
        }
    }
    attn__emu_fault(me, "uses an mbarrier at %u, where none was initialised", at);
}

void attn__ptx_mbarrier_init(unsigned at, int count) {
    ptx_state *const s = attn__ptx_state();
    const int me = attn__emu_thread();
    if (count < 1 || count > COUNT_MOST || s->n_barriers == PTX_BARRIERS) {
        attn__emu_fault(me, "initialises mbarrier %d, at %u, for %d arrivals", s->n_barriers, at,
                        count);
    }
    attn__emu_reserve(at, 8);
    ptx_mbarrier *const b = &s->barrier[s->n_barriers];
    memset(b, 0, sizeof *b);
    b->number = s->n_barriers++;
    b->at = at;
    b->count = b->pending = count;
    b->init_thread = me;
    b->init_act = attn__emu_clock_of(me / 32)->at[me / 32];
}

void attn__ptx_mbarrier_init_fence(void) {
    ptx_state *const s = attn__ptx_state();
    for (int i = 0; i < s->n_barriers; i++) {
        s->barrier[i].fenced |= s->barrier[i].init_thread == attn__emu_thread();
    }
}

void attn__ptx_mbarrier_say(ptx_mbarrier *b) {
    snprintf(b->text, sizeof b->text,
             "mbarrier %u, phase %u, which lacks %d of %d arrivals, %d bytes", b->at, b->phase,
             b->pending, b->count, b->bytes);
}

static void ended(ptx_mbarrier *b) {
    if (b->pending > 0 || b->bytes != 0) {
        return;
    }
    b->now.at[EMU_COPIES + b->number] = ++b->phase;
    b->pending = b->count;
    b->done = b->now;
    attn__emu_wake(&b->queue);
}

static void arrive(ptx_mbarrier *b, int bytes) {
    const int me = attn__emu_thread();
    if (b->pending == 0) {
        attn__emu_fault(me, "arrives at mbarrier %u, whose phase %u has had its %d arrivals", b->at,
                        b->phase, b->count);
    }
    if (bytes < 0 || b->bytes + bytes > BYTES_MOST) {
        attn__emu_fault(me, "expects %d bytes at mbarrier %u, which awaits %d", bytes, b->at,
                        b->bytes);
    }
    attn__emu_release(me / 32, &b->now);
    b->bytes += bytes;
    b->pending--;
    ended(b);
}

void attn__ptx_mbarrier_arrive(unsigned at) {
    arrive(attn__ptx_mbarrier(attn__ptx_state(), at), 0);
}
void attn__ptx_mbarrier_expect(unsigned at, int bytes) {
    arrive(attn__ptx_mbarrier(attn__ptx_state(), at), bytes);
}

void attn__ptx_mbarrier_bytes(ptx_mbarrier *b, int bytes, int thread) {
    b->bytes -= bytes;
    if (b->bytes < -BYTES_MOST || (b->bytes < 0 && b->pending == 0)) {
        attn__emu_fault(thread,
                        "copies %d bytes more than phase %u of mbarrier %u expects: it never ends",
                        -b->bytes, b->phase, b->at);
    }
    ended(b);
}

int attn__ptx_mbarrier_try_wait(unsigned at, unsigned parity) {
    ptx_mbarrier *const b = attn__ptx_mbarrier(attn__ptx_state(), at);
    if (parity > 1) {
        attn__emu_fault(attn__emu_thread(), "waits for parity %u of mbarrier %u", parity, at);
    }
    if ((b->phase & 1) == parity) {
        attn__ptx_mbarrier_say(b);
        attn__emu_pause(&b->queue, b->text);
        return 0;
    }
    attn__emu_acquire(attn__emu_thread() / 32, &b->done);
    return 1;
}
