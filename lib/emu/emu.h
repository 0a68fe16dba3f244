/* emu.h: the emulated chip: what runs a kernel, and what the models of instructions build on.

   Who calls it: emu_driver.c (lib/gpu.h), the models ptx*.c and gcn*.c, and through the tables of
   functions in isa/common.h, isa/ptx.h and isa/gcn.h the compiled kernel itself.

   A block's threads are fibers of one host thread; a thread runs until it waits. An instruction
   that lanes do together is a meeting: each lane brings a struct of its operands, the last one that
   arrives does the work of all, then all go on.

       lane 0  ....meet(work, &mine)                     | goes on
       lane 1  ........meet(work, &mine)                 | goes on
       ...                                               |
       lane 31 ...............meet: work(lane[0..31])----+ goes on

   Shared memory is an arena per block with a shadow word per 4 bytes:
   - poison: never written, or a copy on its way: reading it is reported;
   - who wrote and who read it last: an access of another warp that no barrier orders behind it is
     a race and reported, also where the fibers' order would hide it; so is another lane's since
     warp_sync;
   - bank conflicts are counted per access of a warp.
   Every access of device memory is counted in bytes.

   A fault (attn__emu_fault) ends the launch with a sentence that names kernel, block and thread. */
#ifndef ATTN_EMU_H
#define ATTN_EMU_H

#include <stddef.h>
#include <stdint.h>

enum { EMU_LANES = 64, EMU_THREADS = 1024 };

/* What one launch did. */
typedef struct attn__emu_counts {
    uint64_t load_bytes, store_bytes; /* device memory, as issued by lanes */
    uint64_t shared_access;           /* accesses of a warp */
    uint64_t shared_cycles;           /* what they take; equal without conflicts */
    uint64_t matrix_ops;              /* of a warp */
    uint64_t flops;                   /* of them */
    uint64_t barriers;                /* of a block */
} attn__emu_counts;

/* -- For the models: where am I ---------------------------------------------------------------- */
int attn__emu_chip(void);        /* ATTN_EMU's value */
int attn__emu_lanes(void);       /* of a warp of this chip: 32 or 64 */
int attn__emu_thread(void);      /* number in the block */
int attn__emu_warp_first(void);  /* number of this warp's lane 0 */
int attn__emu_threads(void);     /* of the block */
void *attn__emu_state(void);     /* the family's (attn__emu_family) */
uint64_t attn__emu_random(void); /* of the seed that ATTN_EMU names */
int64_t attn__emu_block(void);   /* number in the grid */
int64_t attn__emu_grid(void);    /* blocks */

/* -- Waiting ----------------------------------------------------------------------------------- */
/* All lanes of the warp meet; the last runs work(lane), lane[i] being what lane i brought. `name`
   is the instruction; lanes of a warp that meet for different ones are reported. */
void attn__emu_meet(const char *name, void (*work)(void *const *lane), void *mine);
/* All threads of the block meet; what comes after is ordered behind all that was before. */
void attn__emu_block_sync(void);
/* Who waits for something else: lanes of each warp, as bits. This thread waits for `what` until
   somebody wakes the queue. */
typedef struct attn__emu_queue {
    uint64_t lanes[EMU_THREADS / 32];
} attn__emu_queue;
void attn__emu_pause(attn__emu_queue *queue, const char *what);
void attn__emu_wake(attn__emu_queue *queue);

/* -- Order beyond the block's barrier (emu_order.c) -------------------------------------------- */
/* What has happened before: of each agent the number of its last act that has. Agents are warps,
   the copies that an mbarrier counts (EMU_COPIES + its number; acts are its phases), and what a
   warp's group does for it (EMU_MATRICES + warp). Whoever uses one has called attn__emu_ordered in
   this block before. */
enum { EMU_COPIES = 32, EMU_MATRICES = 96, EMU_ALL = 128, EMU_AGENTS = 160 };
typedef struct attn__emu_clock {
    uint32_t at[EMU_AGENTS];
} attn__emu_clock;
void attn__emu_ordered(void);
attn__emu_clock *attn__emu_clock_of(int warp);
void attn__emu_join(attn__emu_clock *to, const attn__emu_clock *more);
/* What warp has done and seen happens before whoever acquires `to`. */
void attn__emu_release(int warp, attn__emu_clock *to);
void attn__emu_acquire(int warp, const attn__emu_clock *from);
/* This thread's ordinary writes so far may be read by copies and matrix units of whoever is
   ordered behind. */
void attn__emu_proxy_fence(void);
/* The words [at, at + bytes) hold an object that is no data: no access but its own. */
void attn__emu_reserve(uint32_t at, uint32_t bytes);
/* A copy that thread began and that mbarrier `barrier` counts in its phase number `act` may write
   [at, at + bytes) from now on: poison until it has landed, when it returns where to write. */
void attn__emu_claim(int thread, uint32_t at, uint32_t bytes, int barrier, uint32_t act);
void *attn__emu_landed(uint32_t at, uint32_t bytes);
/* A copy that thread begins may read [at, at + bytes) from now on, until attn__emu_lent: nobody
   writes there meanwhile. */
const void *attn__emu_lend(int thread, uint32_t at, uint32_t bytes);
void attn__emu_lent(int thread, uint32_t at, uint32_t bytes);
/* A group's matrix unit, by its act number `act`, reads 16 bytes at `at` at some time from now on;
   and reads them, behind what `seen` has. */
void attn__emu_will_read(int group, uint32_t act, int thread, uint32_t at);
const void *attn__emu_read(int thread, uint32_t at, const attn__emu_clock *seen);

/* -- Shared memory: bytes from the block's first ----------------------------------------------- */
/* `bytes` (1, 2, 4, 8, 16) at `at` for thread number `thread`, checked: in range, aligned to
   `bytes`, no race, if read no poison. A fault does not return. A store is complete when the
   function's caller has written all bytes. */
void *attn__emu_shared(int thread, uint32_t at, uint32_t bytes, int write);
/* The same of this thread alone, outside of a meeting, by the instruction `site`: it is also noted,
   so that what the lanes do by one instruction counts as one access of the warp (banks below). */
void *attn__emu_shared_own(uint32_t at, uint32_t bytes, int write, uint32_t site);
/* Counts one access of a warp: at[lane] for n lanes, EMU_AWAY where a lane takes no part, each
   `bytes` wide: calls the family's `banks`, which adds by attn__emu_access. */
enum { EMU_AWAY = -1 };
void attn__emu_banks(const uint32_t *at, int n, int bytes, int write);
/* Cycles of one phase: n lanes at once, 32 banks of 4 bytes; equal words are read once. */
int attn__emu_phase(const uint32_t *at, int n, int bytes);
/* One access that took `cycles`, at best `least`; shared_access counts the latter. */
void attn__emu_access(int least, int cycles);

/* -- Asynchronous copies of 16 or fewer bytes, device to shared memory ------------------------- */
/* Begins: `bytes` (4, 8, 16) to `to`, of which the first `valid` are read from `from` and the rest
   are 0. Its place is poison until it lands: when waited for, or earlier (ATTN_EMU async=). */
void attn__emu_copy(uint32_t to, uint64_t from, int bytes, int valid);
void attn__emu_copy_commit(void); /* closes a group of this thread's copies */
void attn__emu_copy_wait(int n);  /* all but the n youngest groups have landed */

/* -- Device memory ----------------------------------------------------------------------------- */
/* `bytes` at `at`, checked: aligned to `bytes`, not near 0; counted. ASan sees the rest. */
const void *attn__emu_load(uint64_t at, uint32_t bytes);
void *attn__emu_store(uint64_t at, uint32_t bytes);
void attn__emu_loaded(uint64_t bytes); /* counts what was read otherwise */
void attn__emu_stored(uint64_t bytes); /* and written */

/* Whether what may come early comes now (ATTN_EMU async=), drawn anew each time. */
int attn__emu_early(void);

/* -- Counting and failing ---------------------------------------------------------------------- */
void attn__emu_matrix(uint64_t flops); /* one matrix instruction of a warp */
/* The sentence's middle: "kernel k, block b, thread t: <this>". */
void attn__emu_fault(int thread, const char *format, ...)
    __attribute__((noreturn, format(printf, 2, 3)));

/* -- A family of chips: what its model gives to the driver ------------------------------------- */
typedef struct attn__emu_family {
    int lanes;
    const void *api; /* what attn_emu_bind of the compiled kernel takes: isa/ptx.h, isa/gcn.h */
    /* Splits lanes into phases; they depend on the lane's number, and on reading or writing. */
    void (*banks)(const uint32_t *at, int n, int bytes, int write);
    /* Either all or none: *state is the model's own, NULL at first, kept from block to block. */
    void (*begin)(void **state); /* a block begins */
    int (*idle)(void *state);    /* nobody can go on: 1 if now somebody can */
    void (*end)(void *state);    /* all threads have ended */
    void (*free)(void *state);
} attn__emu_family;
struct attn__boxes;                                                       /* lib/gpu.h */
int attn__ptx_describe(const struct attn__boxes *box, uint64_t word[16]); /* ptx_tensor.c */
extern const attn__emu_family attn__emu_ptx;                              /* ptx.c */
extern const attn__emu_family attn__emu_gcn;                              /* gcn.c */

/* -- For the driver ---------------------------------------------------------------------------- */
typedef struct attn__emu_launch {
    const attn__emu_family *family;
    int chip;
    const char *name; /* of the kernel */
    void (*kernel)(const void *params);
    const void *params;
    int64_t blocks;
    int threads;             /* of a block: whole warps */
    int shared;              /* bytes of shared memory of a block */
    struct attn__pool *pool; /* host threads that share the blocks; NULL: the caller alone */
} attn__emu_launch;
/* Runs all blocks. Status, with the sentence of the first block that failed. */
int attn__emu_run(const attn__emu_launch *launch, attn__emu_counts *counts);

#endif
