/* emu_common.c: instructions that all chips have alike: where am I, meetings, plain memory.

   Who calls it: models' tables (emu_common.h), hence compiled kernels. */
#include "emu_common.h"

#include "emu_core.h"

#include <string.h>

int attn__emu_chip(void) {
    return attn__emu_here->launch->chip;
}
int attn__emu_lanes(void) {
    return attn__emu_here->launch->family->lanes;
}
int attn__emu_thread(void) {
    return attn__emu_here->now;
}
int attn__emu_warp_first(void) {
    return attn__emu_here->now / attn__emu_lanes() * attn__emu_lanes();
}
int64_t attn__emu_block(void) {
    return attn__emu_here->block;
}
int64_t attn__emu_grid(void) {
    return attn__emu_here->launch->blocks;
}
int attn__emu_threads(void) {
    return attn__emu_here->launch->threads;
}
void *attn__emu_state(void) {
    return attn__emu_here->state;
}
uint64_t attn__emu_random(void) {
    return emu_random(&attn__emu_here->random);
}
int attn__emu_early(void) {
    const emu_async async = attn__emu_here->options.async;
    return async == ASYNC_EARLY || (async == ASYNC_RANDOM && attn__emu_random() >> 63);
}
void attn__emu_matrix(uint64_t flops) {
    attn__emu_here->counts.matrix_ops++;
    attn__emu_here->counts.flops += flops;
}

long long attn__emu_api_block(void) {
    return attn__emu_here->block;
}
long long attn__emu_api_grid(void) {
    return attn__emu_here->launch->blocks;
}

/* -- Meetings ---------------------------------------------------------------------------------- */

static void sync_all(void *const *lane) {
    emu_core *const c = attn__emu_here;
    (void)lane;
    c->warp[c->now >> c->shift].syncs++;
}
void attn__emu_warp_sync(void) {
    attn__emu_meet("warp_sync", sync_all, NULL);
}

typedef struct exchange {
    float x, got;
    int mask;
} exchange;

static void exchange_all(void *const *lane) {
    const int n = attn__emu_lanes();
    for (int i = 0; i < n; i++) {
        exchange *const e = lane[i];
        if (e->mask < 0 || e->mask >= n) {
            attn__emu_fault(attn__emu_warp_first() + i, "exchanges by mask %d; a warp has %d lanes",
                            e->mask, n);
        }
        e->got = ((const exchange *)lane[i ^ e->mask])->x;
    }
}

float attn__emu_lane_xor(float x, int mask) {
    exchange e = {.x = x, .mask = mask};
    attn__emu_meet("lane_xor", exchange_all, &e);
    return e.got;
}

typedef struct vote {
    uint64_t all;
    int x;
} vote;

static void vote_all(void *const *lane) {
    const int n = attn__emu_lanes();
    uint64_t all = 0;
    for (int i = 0; i < n; i++) {
        all |= (uint64_t)(((const vote *)lane[i])->x != 0) << i;
    }
    for (int i = 0; i < n; i++) {
        ((vote *)lane[i])->all = all;
    }
}

unsigned long long attn__emu_warp_ballot(int x) {
    vote v = {.x = x};
    attn__emu_meet("warp_ballot", vote_all, &v);
    return v.all;
}

/* -- Memory ------------------------------------------------------------------------------------ */

static void check(uint64_t at, uint32_t bytes, const char *what) {
    if (at % bytes != 0 || at < 4096) {
        attn__emu_fault(attn__emu_here->now, "%s %u bytes of device memory at 0x%llx: %s", what,
                        bytes, (unsigned long long)at,
                        at < 4096 ? "nothing is there" : "no multiple of it");
    }
}

const void *attn__emu_load(uint64_t at, uint32_t bytes) {
    check(at, bytes, "reads");
    attn__emu_here->counts.load_bytes += bytes;
    return (const void *)(uintptr_t)at;
}

void attn__emu_loaded(uint64_t bytes) {
    attn__emu_here->counts.load_bytes += bytes;
}

void attn__emu_stored(uint64_t bytes) {
    attn__emu_here->counts.store_bytes += bytes;
}

void *attn__emu_store(uint64_t at, uint32_t bytes) {
    check(at, bytes, "writes");
    attn__emu_stored(bytes);
    return (void *)(uintptr_t)at;
}

void attn__emu_api_load(void *to, unsigned long long at, unsigned bytes) {
    memcpy(to, attn__emu_load(at, bytes), bytes);
}
void attn__emu_api_store(unsigned long long at, const void *from, unsigned bytes) {
    memcpy(attn__emu_store(at, bytes), from, bytes);
}
void attn__emu_atomic_add_u64(unsigned long long at, unsigned long long x) {
    unsigned long long *const to = attn__emu_store(at, sizeof x);
    __atomic_fetch_add(to, x, __ATOMIC_RELAXED);
}
static float added(float x, float y, int flush) {
    return flush ? emu_flush(emu_flush(x) + emu_flush(y)) : x + y;
}
void attn__emu_atomic_add_f32(unsigned long long at, const float *x, int n, int flush) {
    uint32_t *const to = attn__emu_store(at, (uint32_t)n * sizeof *to);
    for (int i = 0; i < n; i++) {
        uint32_t old = __atomic_load_n(to + i, __ATOMIC_RELAXED);
        while (!__atomic_compare_exchange_n(to + i, &old,
                                            emu_bits(added(emu_float(old), x[i], flush)), 0,
                                            __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
        }
    }
}
void attn__emu_atomic_or_u32(unsigned long long at, unsigned x) {
    unsigned *const to = attn__emu_store(at, sizeof x);
    __atomic_fetch_or(to, x, __ATOMIC_RELAXED);
}
/* Kernels are inlined, so where a call returns to is which instruction it is. */
#define SITE ((uint32_t)(uintptr_t)__builtin_return_address(0))
void attn__emu_api_shared_load(void *to, unsigned at, unsigned bytes) {
    memcpy(to, attn__emu_shared_own(at, bytes, 0, SITE), bytes);
}
void attn__emu_api_shared_store(unsigned at, const void *from, unsigned bytes) {
    memcpy(attn__emu_shared_own(at, bytes, 1, SITE), from, bytes);
}
