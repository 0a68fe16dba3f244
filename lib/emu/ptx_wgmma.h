/* ptx_wgmma.h: a group's products on their way.

   Who includes it: ptx_wgmma.c (issue, wait), ptx_wgmma_sum.c (what a product reads and sums). */
#ifndef ATTN_EMU_PTX_WGMMA_H
#define ATTN_EMU_PTX_WGMMA_H

#include "ptx_state.h"

enum { SUMS = 8, FLYING = 64, KNOWN = 64, WGMMA_N = 256 };

/* A d on its way: registers of the warps that have `taken` part and are not `given` theirs back,
   as bits; each one's last product. */
typedef struct sum {
    int n, taken, given, last[4];
    float *x[PTX_GROUP], *y[PTX_GROUP];
    float d[64][WGMMA_N];
} sum;

typedef struct product {
    attn_emu_wgmma what;
    int number, issued; /* warps that have, as bits */
    uint32_t set[4];    /* of commits, for each warp */
    sum *sum;
    attn__emu_clock seen;                     /* before it, by all four warps */
    uint32_t at_a[2 * 64], at_b[2 * WGMMA_N]; /* chunks of 16 bytes */
    const void *from[PTX_GROUP];              /* a in registers: where and what */
    uint32_t a[PTX_GROUP][4];
} product;

/* Registers of a warp that have been part of a product. */
typedef struct known {
    const void *at[32];
    int words, flying, stale, has_sum;
    uint32_t sum; /* of their bits at the last fence */
} known;

struct ptx_group {
    int n, done; /* products that the first warp has issued; that have been summed */
    int issued[4], waited[4], fenced[4], n_known[4];
    uint32_t sets[4];
    attn__emu_queue queue;
    product product[FLYING]; /* number i at i % FLYING */
    known known[4][KNOWN];
    sum sum[SUMS];
};

/* ptx_wgmma_sum.c: where the chunks of a matrix of `rows` rows (M or N) by 16 lie; in its order:
   chunk 2 r + c has k 8 c .. of row r, across: chunk k rows / 8 + c rows 8 c .. of k. What is wrong
   with the descriptor, or NULL. */
const char *attn__ptx_chunks(uint32_t *at, uint64_t descriptor, int rows, int across);
/* Sums all products before number n. */
void attn__ptx_run_to(ptx_group *g, int group, int n);

#endif
