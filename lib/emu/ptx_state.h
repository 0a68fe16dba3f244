/* ptx_state.h: what the files of the model of sm_90a share: the state of a block beyond threads and
   shared memory.

   Who includes it: ptx.c (the table), ptx_mbarrier.c, ptx_group.c, ptx_tensor.c, ptx_wgmma.c,
   ptx_wgmma_sum.c. The state is the family's (attn__emu_family), one per core, kept from block to
   block. */
#ifndef ATTN_EMU_PTX_STATE_H
#define ATTN_EMU_PTX_STATE_H

#include "emu_common.h"

#include "isa/ptx.h"

enum {
    PTX_BARRIERS = 64,
    PTX_NAMED = 16,
    PTX_WARPS = EMU_THREADS / 32,
    PTX_GROUP = 128, /* lanes of a group */
    PTX_GROUPS = EMU_THREADS / PTX_GROUP,
    PTX_TEXT = 96
};

/* -- ptx_mbarrier.c ---------------------------------------------------------------------------- */
typedef struct ptx_mbarrier {
    int number;
    uint32_t at;
    int count, pending; /* arrivals of a phase, those that the present one lacks */
    int bytes;          /* that it lacks */
    uint32_t phase;
    int init_thread, fenced;
    uint32_t init_act;
    attn__emu_clock now, done; /* of arrivals; the same when the last phase ended */
    attn__emu_queue queue;
    char text[PTX_TEXT]; /* what its waiters wait for */
} ptx_mbarrier;

/* -- ptx_group.c ------------------------------------------------------------------------------- */
typedef struct ptx_named {
    int threads, arrived, round;
    uint64_t warps;            /* that have come */
    attn__emu_clock now, done; /* of arrivals; the same when the last round ended */
    attn__emu_queue queue;
    char text[PTX_TEXT];
} ptx_named;

/* Of each warp registers of a thread, and how often they changed; what was given up and is not
   taken; who waits for some. */
typedef struct ptx_registers {
    int of[PTX_WARPS], calls[PTX_WARPS], free;
    attn__emu_queue queue;
} ptx_registers;

/* -- ptx_tensor.c ------------------------------------------------------------------------------ */
/* A box on its way. */
typedef struct ptx_box {
    const uint64_t *word;
    ptx_mbarrier *barrier;
    int32_t from[4];
    uint32_t to;
    int thread;
} ptx_box;

/* A store whose thread has not waited for it; closed: by store_commit. */
typedef struct ptx_store {
    uint32_t from, bytes;
    int thread, closed;
} ptx_store;

/* -- ptx_wgmma.c ------------------------------------------------------------------------------- */
typedef struct ptx_group ptx_group;

typedef struct ptx_state {
    int n_barriers, n_named, n_boxes, room, n_stores, store_room;
    ptx_mbarrier barrier[PTX_BARRIERS];
    ptx_named named[PTX_NAMED];
    ptx_registers registers;
    ptx_box *box;
    ptx_store *store;
    ptx_group *group[PTX_GROUPS];
} ptx_state;

/* This block's, with the order of its warps tracked; a fault if there is no memory. */
ptx_state *attn__ptx_state(void);

void attn__ptx_mbarrier_init(unsigned at, int count);
void attn__ptx_mbarrier_init_fence(void);
void attn__ptx_mbarrier_arrive(unsigned at);
void attn__ptx_mbarrier_expect(unsigned at, int bytes);
int attn__ptx_mbarrier_try_wait(unsigned at, unsigned parity);
ptx_mbarrier *attn__ptx_mbarrier(ptx_state *s, uint32_t at);
/* `bytes` of a copy that thread began have come. */
void attn__ptx_mbarrier_bytes(ptx_mbarrier *b, int bytes, int thread);
void attn__ptx_mbarrier_say(ptx_mbarrier *b);

void attn__ptx_named_sync(int id, int threads);
void attn__ptx_named_arrive(int id, int threads);
void attn__ptx_registers(int n, int more);
unsigned attn__ptx_warp_from(unsigned x, int lane);
void attn__ptx_groups_begin(ptx_state *s);
void attn__ptx_groups_end(const ptx_state *s);

void attn__ptx_tensor_load(unsigned to, const void *map, unsigned barrier, const int from[4]);
int attn__ptx_tensor_idle(ptx_state *s);
void attn__ptx_tensor_store(const void *map, unsigned from, const int to[4]);
void attn__ptx_store_commit(void);
void attn__ptx_store_wait_read(void);

void attn__ptx_wgmma_fence(void);
void attn__ptx_wgmma_commit(void);
void attn__ptx_wgmma_wait(int n);
void attn__ptx_wgmma(const attn_emu_wgmma *w);
void attn__ptx_wgmma_begin(ptx_state *s);
void attn__ptx_wgmma_end(const ptx_state *s);
void attn__ptx_wgmma_free(ptx_group *group);

/* The family's functions. */
void attn__ptx_begin(void **state);
int attn__ptx_idle(void *state);
void attn__ptx_end(void *state);
void attn__ptx_free(void *state);

#endif
