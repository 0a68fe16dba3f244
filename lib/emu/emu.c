/* emu.c: a launch: its blocks over host threads, and the cores that run them.

   Who calls it: emu_driver.c, tests. Blocks are independent, so each is one item of the pool; a
   core (emu_core.h) is taken from a list of idle ones for every block and put back, since several
   launches may be under way. The list is kept until the library is unloaded. */
#define _GNU_SOURCE
#include "emu_core.h"

#include "../attn_int.h"
#include "../fork.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

static emu_core *idle;

static void core_free(emu_core *c) {
    if (!c) {
        return;
    }
    for (int i = 0; i < EMU_THREADS; i++) {
        free(c->thread[i].copies);
        free(c->thread[i].own);
    }
    if (c->stacks) {
        munmap(c->stacks, (size_t)EMU_THREADS * EMU_STACK);
    }
    free(c->data);
    free(c->valid);
    free(c->shadow);
    free(c->readers);
    free(c->plain);
    free(c->matrix);
    if (c->state_of) {
        c->state_of->free(c->state);
    }
    free(c);
}

/* The region of stacks, aligned to its size: twice as much is asked for and the ends given back. */
static char *stacks_new(void) {
    const size_t size = (size_t)EMU_THREADS * EMU_STACK;
    char *const all = mmap(NULL, 2 * size, PROT_READ | PROT_WRITE,
                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (all == MAP_FAILED) {
        return NULL;
    }
    char *const at = (char *)(((uintptr_t)all + size - 1) & ~(uintptr_t)(size - 1));
    if (at > all) {
        munmap(all, (size_t)(at - all));
    }
    if (at < all + size) {
        munmap(at + size, (size_t)(all + size - at));
    }
    return at;
}

static emu_core *core_new(void) {
    emu_core *const c = calloc(1, sizeof *c);
    if (c) {
        c->data = aligned_alloc(1024, EMU_SHARED);
        c->valid = aligned_alloc(64, EMU_SHARED / 4);
        c->shadow = aligned_alloc(64, EMU_SHARED / 4 * sizeof *c->shadow);
        c->readers = calloc(EMU_SHARED / 4, sizeof *c->readers); /* what is used of it is touched */
        c->plain = calloc(EMU_SHARED / 4, sizeof *c->plain);
        c->matrix = calloc(EMU_SHARED / 128, sizeof *c->matrix);
        const int all = c->data && c->valid && c->shadow && c->readers && c->plain && c->matrix;
        c->stacks = all ? stacks_new() : NULL;
    }
    if (!c || !c->stacks) {
        core_free(c);
        return NULL;
    }
    return c;
}

static emu_core *core_take(void) {
    attn__lock(ATTN__CORES);
    emu_core *const c = idle;
    idle = c ? c->next : NULL;
    attn__unlock(ATTN__CORES);
    return c ? c : core_new();
}

static void core_put(emu_core *c) {
    attn__lock(ATTN__CORES);
    c->next = idle;
    idle = c;
    attn__unlock(ATTN__CORES);
}

__attribute__((destructor)) static void cores_free(void) {
    while (idle) {
        emu_core *const next = idle->next;
        core_free(idle);
        idle = next;
    }
}

/* -- A launch ---------------------------------------------------------------------------------- */

typedef struct run {
    const attn__emu_launch *launch;
    emu_options options;
    pthread_mutex_t lock; /* of what follows */
    attn__emu_counts counts;
    int64_t failed; /* the lowest block that failed, or -1 */
    int no_memory;
    char text[sizeof((emu_core *)0)->text];
} run;

static void add(attn__emu_counts *to, const attn__emu_counts *more) {
    to->load_bytes += more->load_bytes;
    to->store_bytes += more->store_bytes;
    to->shared_access += more->shared_access;
    to->shared_cycles += more->shared_cycles;
    to->matrix_ops += more->matrix_ops;
    to->flops += more->flops;
    to->barriers += more->barriers;
}

/* Blocks come in the order of the fibers; a random one is a step that shares no factor with n. */
static int64_t block_of(const run *r, int64_t item) {
    const int64_t n = r->launch->blocks;
    if (r->options.order == ORDER_ASCENDING) {
        return item;
    }
    if (r->options.order == ORDER_DESCENDING) {
        return n - 1 - item;
    }
    int64_t step = (int64_t)((r->options.seed * 0x9e3779b97f4a7c15ull >> 33) % (uint64_t)n) + 1;
    for (int64_t a = step, b = n; a != 1;) { /* until gcd(step, n) = 1 */
        const int64_t rest = b % a;
        if (rest == 0) {
            a = ++step;
            b = n;
        } else {
            b = a;
            a = rest;
        }
    }
    return (int64_t)((unsigned __int128)(uint64_t)item * (uint64_t)step % (uint64_t)n);
}

static void run_block(void *arg, int64_t item, int thread) {
    run *const r = arg;
    (void)thread;
    if (__atomic_load_n(&r->failed, __ATOMIC_RELAXED) >= 0 ||
        __atomic_load_n(&r->no_memory, __ATOMIC_RELAXED)) {
        return;
    }
    emu_core *const c = core_take();
    if (!c) {
        __atomic_store_n(&r->no_memory, 1, __ATOMIC_RELAXED);
        return;
    }
    c->launch = r->launch;
    c->options = r->options;
    c->block = block_of(r, item);
    c->counts = (attn__emu_counts){0};
    const int failed = attn__emu_block_run(c) < 0;
    pthread_mutex_lock(&r->lock);
    add(&r->counts, &c->counts);
    if (failed && (r->failed < 0 || c->block < r->failed)) {
        memcpy(r->text, c->text, sizeof r->text);
        __atomic_store_n(&r->failed, c->block, __ATOMIC_RELAXED);
    }
    pthread_mutex_unlock(&r->lock);
    core_put(c);
}

int attn__emu_run(const attn__emu_launch *launch, attn__emu_counts *counts) {
    run r = {.launch = launch, .lock = PTHREAD_MUTEX_INITIALIZER, .failed = -1};
    const int lanes = launch->family->lanes;
    ATTN_TRY(attn__emu_options(&r.options));
    if (launch->threads <= 0 || launch->threads > EMU_THREADS || launch->threads % lanes != 0) {
        return attn__fail(ATTN_INVALID, "threads",
                          "kernel %s has %d threads a block; multiples of %d up to %d are allowed",
                          launch->name, launch->threads, lanes, EMU_THREADS);
    }
    if (launch->shared < 0 || launch->shared > EMU_SHARED) {
        return attn__fail(ATTN_INVALID, "shared",
                          "kernel %s has %d bytes of shared memory a block; up to %d are allowed",
                          launch->name, launch->shared, EMU_SHARED);
    }
    if (launch->pool && launch->blocks > 1) {
        attn__pool_run(launch->pool, launch->blocks, run_block, &r);
    } else {
        for (int64_t i = 0; i < launch->blocks; i++) {
            run_block(&r, i, 0);
        }
    }
    *counts = r.counts;
    if (r.options.counts) {
        attn__emu_print(launch->name, counts);
    }
    if (r.failed >= 0) {
        return attn__fail(ATTN_DRIVER, "kernel", "%s", r.text);
    }
    return r.no_memory ? attn__fail(ATTN_MEMORY, "kernel",
                                    "out of memory: no stacks for the "
                                    "threads of kernel %s",
                                    launch->name)
                       : ATTN_OK;
}
