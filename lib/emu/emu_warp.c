/* emu_warp.c: one block: its threads as fibers, meetings of warps, barriers of the block.

   Who calls it: emu.c for a block; the models for meet and block_sync. Which fiber runs next:

       a lane waits:   the next ready lane of its warp, in the order that ATTN_EMU names;
                       no lane is ready: the next ready warp
       no warp ready:  a deadlock, which is a fault: the sentence says who waits where */
#define _GNU_SOURCE
#include "emu_core.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define SANITIZED 1
#endif
#endif
#if defined(__SANITIZE_ADDRESS__)
#define SANITIZED 1
#endif
#ifdef SANITIZED
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

_Thread_local emu_core *attn__emu_here;

static uint64_t all_of(int n) {
    return n == 64 ? ~0ull : (1ull << n) - 1;
}
static char *stack_of(const emu_core *c, int thread) {
    return c->stacks + (size_t)thread * EMU_STACK;
}

/* -- Switching --------------------------------------------------------------------------------- */

static void left(void **fake, const void *bottom, size_t size) {
#ifdef SANITIZED
    __sanitizer_start_switch_fiber(fake, bottom, size);
#else
    (void)fake, (void)bottom, (void)size;
#endif
}
static void entered(void *fake, const void **bottom, size_t *size) {
#ifdef SANITIZED
    __sanitizer_finish_switch_fiber(fake, bottom, size);
#else
    (void)fake, (void)bottom, (void)size;
#endif
}

/* To itself where it alone can go on: then its stack pointer is not the one that it last left. */
static void go(emu_core *c, int to) {
    emu_thread *const me = &c->thread[c->now];
    if (to == c->now) {
        return;
    }
    c->now = to;
    left(&me->fake, stack_of(c, to), EMU_STACK);
    attn__emu_switch(&me->sp, c->thread[to].sp);
    entered(me->fake, NULL, NULL);
}

/* Back to attn__emu_block_run, for good. */
_Noreturn static void leave(emu_core *c) {
    void *sp;
    left(NULL, c->main_bottom, c->main_size);
    attn__emu_switch(&sp, c->main_sp);
    __builtin_unreachable();
}

/* A bit of `from`, which is not 0. */
static int pick(emu_core *c, uint64_t from) {
    if (c->options.order == ORDER_ASCENDING) {
        return __builtin_ctzll(from);
    }
    if (c->options.order == ORDER_DESCENDING) {
        return 63 - __builtin_clzll(from);
    }
    const int turn = (int)(emu_random(&c->random) >> 58);
    const uint64_t high = from & ~0ull << turn;
    return __builtin_ctzll(high ? high : from);
}

/* Who waits for what, when nobody can go on: a thread for each of the things, and who has ended. */
_Noreturn static void deadlock(emu_core *c) {
    enum { MOST = 5 };
    const char *what[MOST];
    char others[sizeof c->text] = "";
    int first = -1, n = 0, ended = -1;
    for (int i = 0; i < c->launch->threads && n < MOST; i++) {
        const char *const waits = c->thread[i].waits;
        int known = 0;
        for (int k = 0; k < n; k++) {
            known |= what[k] == waits;
        }
        if (!waits) {
            ended = ended < 0 ? i : ended;
        } else if (!known) {
            const size_t used = strlen(others);
            if (n > 0) {
                snprintf(others + used, sizeof others - used, "%sthread %d waits at %s",
                         n > 1 ? ", " : "", i, waits);
            }
            first = n == 0 ? i : first;
            what[n++] = waits;
        }
    }
    if (ended >= 0) {
        const size_t used = strlen(others);
        snprintf(others + used, sizeof others - used, "%sthread %d has ended", n > 1 ? ", " : "",
                 ended);
    }
    attn__emu_fault(first, "waits at %s for ever, since %s", what[0], others);
}

/* The running thread cannot go on (waits or has ended); runs another. */
static void next(emu_core *c, int warp) {
    emu_warp *w = &c->warp[warp];
    w->ready &= ~(1ull << (c->now & ((1 << c->shift) - 1)));
    if (!w->ready) {
        c->ready &= ~(1ull << warp);
        while (!c->ready) {
            const attn__emu_family *const f = c->launch->family;
            if (!f->idle || !f->idle(c->state)) {
                deadlock(c);
            }
        }
        warp = pick(c, c->ready);
        w = &c->warp[warp];
    }
    go(c, (warp << c->shift) + pick(c, w->ready));
}

/* -- Waiting ----------------------------------------------------------------------------------- */

void attn__emu_meet(const char *name, void (*work)(void *const *lane), void *mine) {
    emu_core *const c = attn__emu_here;
    const int lanes = 1 << c->shift, warp = c->now >> c->shift, lane = c->now & (lanes - 1);
    emu_warp *const w = &c->warp[warp];
    const uint64_t all = all_of(lanes);
    if (w->arrived && (w->work != work || (w->name != name && strcmp(w->name, name) != 0))) {
        const int other = warp * lanes + __builtin_ctzll(w->arrived);
        attn__emu_fault(c->now, "is at %s, but thread %d of its warp at %s", name, other, w->name);
    }
    w->work = work;
    w->name = name;
    w->lane[lane] = mine;
    w->arrived |= 1ull << lane;
    if (w->arrived == all) {
        attn__emu_own_flush(c, warp);
        c->meeting = 1;
        work(w->lane);
        c->meeting = 0;
        w->arrived = 0;
        w->ready = all;
    } else {
        c->thread[c->now].waits = name;
        next(c, warp);
    }
}

void attn__emu_block_sync(void) {
    emu_core *const c = attn__emu_here;
    const int lanes = 1 << c->shift, n = c->launch->threads;
    if (++c->at_barrier < n) {
        c->thread[c->now].waits = "block_sync";
        next(c, c->now >> c->shift);
        return;
    }
    c->at_barrier = 0;
    c->counts.barriers++;
    for (int i = 0; i < n / lanes; i++) {
        attn__emu_own_flush(c, i);
        c->warp[i].ready = all_of(lanes);
    }
    c->ready = all_of(n / lanes);
    attn__emu_order_all(c);
    const int warp = pick(c, c->ready); /* the order begins anew, not with who came last */
    go(c, (warp << c->shift) + pick(c, c->warp[warp].ready));
}

void attn__emu_pause(attn__emu_queue *queue, const char *what) {
    emu_core *const c = attn__emu_here;
    const int warp = c->now >> c->shift;
    queue->lanes[warp] |= 1ull << (c->now & ((1 << c->shift) - 1));
    c->thread[c->now].waits = what;
    next(c, warp);
}

void attn__emu_wake(attn__emu_queue *queue) {
    emu_core *const c = attn__emu_here;
    for (int i = 0; i < c->launch->threads >> c->shift; i++) {
        if (queue->lanes[i]) {
            c->warp[i].ready |= queue->lanes[i];
            c->ready |= 1ull << i;
            queue->lanes[i] = 0;
        }
    }
}

void attn__emu_fault(int thread, const char *format, ...) {
    emu_core *const c = attn__emu_here;
    const int n = snprintf(c->text, sizeof c->text, "kernel %s, block %lld, thread %d ",
                           c->launch->name, (long long)c->block, thread);
    va_list args;
    va_start(args, format);
    vsnprintf(c->text + n, sizeof c->text - (size_t)n, format, args);
    va_end(args);
    c->failed = 1;
    leave(c);
}

/* -- A block ----------------------------------------------------------------------------------- */

_Noreturn static void run_thread(emu_core *c) {
    c->launch->kernel(c->launch->params);
    c->live--;
    c->thread[c->now].waits = NULL;
    if (c->live == 0) {
        for (int i = 0; i < c->launch->threads >> c->shift; i++) {
            attn__emu_own_flush(c, i);
        }
        if (c->launch->family->end) {
            c->launch->family->end(c->state);
        }
        leave(c);
    }
    next(c, c->now >> c->shift);
    __builtin_unreachable();
}

/* The first function on a fiber's stack; of the fiber that runs first it also hears from ASan where
   the host thread's own stack is. */
static void thread_main(void) {
    entered(NULL, NULL, NULL);
    run_thread(attn__emu_here);
}
static void first_main(void) {
    emu_core *const c = attn__emu_here;
    entered(NULL, &c->main_bottom, &c->main_size);
    run_thread(c);
}

static void start(emu_core *c, int first) {
    const int n = c->launch->threads, lanes = 1 << c->shift;
    for (; c->guarded < n; c->guarded++) {
        mprotect(stack_of(c, c->guarded), 4096, PROT_NONE);
    }
    for (int i = 0; i < n; i++) {
        emu_thread *const t = &c->thread[i];
        char *const top = stack_of(c, i) + EMU_STACK - (i % 64) * 576;
#ifdef SANITIZED
        ASAN_UNPOISON_MEMORY_REGION(stack_of(c, i) + 4096, EMU_STACK - 4096);
#endif
        t->sp = attn__emu_fiber(top, i == first ? first_main : thread_main);
        t->waits = NULL;
        t->first = t->n = t->owns = 0;
        t->groups = t->fences = 0;
    }
    for (int i = 0; i < n / lanes; i++) {
        c->warp[i].ready = all_of(lanes);
        c->warp[i].arrived = 0;
        c->warp[i].syncs = 1;
    }
    c->ready = all_of(n / lanes);
    c->meeting = 0;
    c->live = n;
    c->at_barrier = 0;
    c->failed = 0;
}

int attn__emu_block_run(emu_core *c) {
    emu_core *const before = attn__emu_here;
    attn__emu_here = c;
    const uint64_t block = (uint64_t)c->block + 1;
    c->random = ((c->options.seed + 1) * 0x9e3779b97f4a7c15ull) ^ (block << 20);
    c->random += !c->random;
    const int first = c->options.order == ORDER_DESCENDING ? c->launch->threads - 1 : 0;
    c->shift = __builtin_ctz((unsigned)c->launch->family->lanes);
    attn__emu_shared_reset(c);
    start(c, first);
    if (c->launch->family->begin) {
        c->launch->family->begin(&c->state);
        c->state_of = c->launch->family;
    }
    c->now = first;
    left(&c->main_fake, stack_of(c, first), EMU_STACK);
    attn__emu_switch(&c->main_sp, c->thread[first].sp);
    entered(c->main_fake, NULL, NULL);
    attn__emu_here = before;
    return c->failed ? -1 : 0;
}
