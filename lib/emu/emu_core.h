/* emu_core.h: one host thread's emulator: fibers, warps and shared memory of the block it runs.

   Who includes it: emu.c (blocks over host threads), emu_warp.c (fibers, meetings), emu_shared.c
   (shadow, banks), emu_order.c (clocks), emu_copy.c (asynchronous copies), emu_common.c,
   emu_fiber.c, emu_option.c. The models do not.

   Stacks lie in one region that is aligned to its size, so that an address in a stack tells the
   thread's number without a load (isa/common.h: thread_id):

       region    | stack 0 | stack 1 | ... | stack 1023 |     each 1 << EMU_STACK_BITS
                 guard^ grows down <--- ^ top, less a colour: without one all stacks' hot ends
                                          share a cache set */
#ifndef ATTN_EMU_CORE_H
#define ATTN_EMU_CORE_H

#include "emu.h"

#include "isa/common.h"

enum {
    EMU_STACK = 1 << EMU_STACK_BITS,
    EMU_WARPS = EMU_THREADS / 32,
    EMU_SHARED = 256 << 10, /* the most bytes of shared memory of a block */
    EMU_FENCES = 4,
    EMU_SEVERAL_LANES = 127
};

typedef enum emu_order { ORDER_ASCENDING, ORDER_DESCENDING, ORDER_RANDOM } emu_order;
typedef enum emu_async { ASYNC_LATE, ASYNC_EARLY, ASYNC_RANDOM } emu_async;

typedef struct emu_options {
    emu_order order;
    emu_async async;
    uint64_t seed;
    int counts; /* 1: printed after every launch */
} emu_options;
/* emu_option.c: of the environment variable ATTN_EMU. */
int attn__emu_options(emu_options *options);
void attn__emu_print(const char *kernel, const attn__emu_counts *counts);

/* An asynchronous copy on its way. */
typedef struct emu_copy {
    uint32_t to, bytes, group;
    unsigned char data[16];
} emu_copy;

/* An access of shared memory by a lane alone; site: the instruction, by where it was called. */
typedef struct emu_own {
    uint32_t at, site;
    uint8_t bytes, write;
} emu_own;

typedef struct emu_thread {
    void *sp;          /* of the fiber, while it does not run */
    void *fake;        /* ASan's */
    const char *waits; /* for what; NULL: it runs, may run or has ended */
    emu_copy *copies;  /* copies[first..n), oldest first */
    int first, n, room;
    uint32_t groups; /* closed ones */
    emu_own *own;    /* since the warp met */
    int owns, owns_room;
    uint32_t fences;            /* proxy fences */
    uint32_t fence[EMU_FENCES]; /* of the last ones: the warp's own clock */
} emu_thread;

typedef struct emu_warp {
    uint64_t ready, arrived; /* lanes, as bits */
    uint32_t syncs;          /* 1 + warp_syncs */
    const char *name;
    void (*work)(void *const *lane);
    void *lane[EMU_LANES];
} emu_warp;

/* Per 4 bytes of shared memory. Who wrote and read last: tags are act << 8 | agent, agent EMU_ALL
   where several read; within the warp syncs << 7 | lane, EMU_SEVERAL_LANES where it was not one. */
typedef struct emu_shadow {
    uint32_t write, read, write_lane, read_lane;
} emu_shadow;

typedef struct emu_core {
    struct emu_core *next; /* of the idle ones */
    const attn__emu_launch *launch;
    emu_options options;
    int shift; /* lanes of a warp: 1 << shift */
    int64_t block;
    int now;  /* the thread that runs */
    int live; /* threads that have not ended */
    int at_barrier;
    int meeting;    /* 1: the work of a meeting is under way */
    uint64_t ready; /* warps with a ready lane, as bits */
    uint64_t random;
    attn__emu_clock clock[EMU_WARPS]; /* what has happened before what the warp does now */
    int ordered;                      /* 1: not by barriers of the block alone */
    char *stacks;
    int guarded; /* stacks that have their guard page */
    void *main_sp, *main_fake;
    const void *main_bottom;
    size_t main_size;
    int failed;
    char text[512];
    attn__emu_counts counts;
    unsigned char *data;  /* EMU_SHARED */
    unsigned char *valid; /* per 4 bytes: bits 0..3 bytes that are no poison, EMU_PENDING .. */
    emu_shadow *shadow;   /* per 4 bytes */
    /* emu_order.c: per 4 bytes, act of each warp that read since the last write, where several did;
       who wrote it by an ordinary store: fences << 11 | 1 + thread. Per 128 bytes, last act of each
       group that reads it. */
    uint32_t (*readers)[EMU_WARPS], *plain, (*matrix)[EMU_WARPS / 4];
    void *state; /* of the family */
    const attn__emu_family *state_of;
    emu_thread thread[EMU_THREADS];
    emu_warp warp[EMU_WARPS];
} emu_core;

enum { EMU_PENDING = 16, EMU_RESERVED = 32, EMU_LENT = 64 };

/* The core whose block this host thread runs. It is read at every step, hence without a call. */
extern _Thread_local emu_core *attn__emu_here __attribute__((tls_model("initial-exec")));

/* emu_warp.c: runs one block on this host thread; 0, or -1 with core->text. */
int attn__emu_block_run(emu_core *core);
/* emu_shared.c */
void attn__emu_shared_reset(emu_core *core);
void attn__emu_own_flush(emu_core *core, int warp);
/* emu_order.c: a block begins; all warps have met; thread noted as writer, reader of a word. */
void attn__emu_order_reset(emu_core *core);
void attn__emu_order_all(emu_core *core);
void attn__emu_order_read(emu_core *core, uint32_t word, uint32_t tag);
int attn__emu_order_unread(const emu_core *core, uint32_t word, int warp);
int attn__emu_order_unmultiplied(const emu_core *core, uint32_t word, int warp);
_Noreturn void attn__emu_race(int thread, const char *what, uint32_t at, const char *other,
                              uint32_t tag);
/* emu_fiber.c: makes what attn__emu_switch can go to; stores where the running one stands, goes. */
void *attn__emu_fiber(void *top, void (*entry)(void));
void attn__emu_switch(void **from, void *to);

/* Whether the act of this tag happened before what warp does now. */
static inline int emu_before(const emu_core *c, int warp, uint32_t tag) {
    return tag >> 8 <= c->clock[warp].at[tag & 255];
}

static inline uint64_t emu_random(uint64_t *state) { /* xorshift64* */
    *state ^= *state >> 12;
    *state ^= *state << 25;
    *state ^= *state >> 27;
    return *state * 0x2545f4914f6cdd1dull;
}

#endif
