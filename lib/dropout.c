/* dropout.c: which pairs dropout keeps: the same on every backend, tiling and shard.

   Who calls it: problem.c (its settings), the engines (a row's keys), dropout_mask.c (all of
   them). The generator is Philox4x32-7 (Salmon et al., SC 2011). One call serves eight keys that
   lie in one lane of a matrix instruction:

       key      {seed low, seed high}
       counter  {b*nh + h, i, 4G + t, offset}   G = k / 32, t = (k % 8) / 2
       result   word (k % 32) / 8, its low half for even k, high half for odd
       kept     iff that half >= T, T = floor(65536 p + 1/2) in 1..65535; then p is scaled by
                65536 / (65536 - T) */
#include "attn_int.h"

#include <math.h>
#include <string.h>

enum { HOST = 1 }; /* DLPack's number */

void attn__philox(uint64_t key, const uint32_t counter[4], uint32_t out[4]) {
    uint32_t c0 = counter[0], c1 = counter[1], c2 = counter[2], c3 = counter[3];
    uint32_t k0 = (uint32_t)key, k1 = (uint32_t)(key >> 32);
    for (int round = 0; round < 7; round++) {
        const uint64_t a = 0xD2511F53ull * c0, b = 0xCD9E8D57ull * c2;
        c0 = (uint32_t)(b >> 32) ^ c1 ^ k0;
        c1 = (uint32_t)b;
        c2 = (uint32_t)(a >> 32) ^ c3 ^ k1;
        c3 = (uint32_t)a;
        k0 += 0x9E3779B9u; /* the golden ratio and sqrt 3 - 1, as the paper has them */
        k1 += 0xBB67AE85u;
    }
    out[0] = c0;
    out[1] = c1;
    out[2] = c2;
    out[3] = c3;
}

int attn__dropout_in(const attn_device *device, const attn_call *call, int planning,
                     attn__problem *p) {
    const double drop = call->dropout;
    if (!(drop >= 0 && drop < 1)) {
        return attn__fail(ATTN_INVALID, "dropout", "dropout is %g; 0 <= dropout < 1 is allowed",
                          drop);
    }
    p->dropout = drop;
    p->drop_factor = 1;
    p->offset = call->offset;
    p->seed = call->seed;
    p->has_seed_at = call->seed_at != NULL;
    if (!planning && (uintptr_t)call->seed_at % sizeof *call->seed_at) {
        return attn__fail(ATTN_LAYOUT, "seed_at", "seed_at is %p; a multiple of 8 is allowed",
                          (const void *)call->seed_at);
    }
    if (drop > 0) {
        const double T = floor(65536 * drop + 0.5);
        p->drop_threshold = T < 1 ? 1 : T > 65535 ? 65535 : (uint32_t)T;
        p->drop_factor = 65536.0f / (float)(65536 - p->drop_threshold);
        if (call->seed_at && !planning) {
            if (device->kind == HOST) {
                p->seed = *call->seed_at;
            } else {
                p->seed_at = call->seed_at;
            }
        }
    }
    return ATTN_OK;
}

void attn__dropout_row(const attn__problem *p, uint32_t bh, uint32_t i, int64_t k, int n,
                       uint8_t *keep) {
    if (p->drop_threshold == 0) {
        memset(keep, 1, (size_t)n);
        return;
    }
    uint32_t word[4][4]; /* [t][j]: the calls of one group of 32 keys */
    int64_t group = -1;
    for (int c = 0; c < n; c++) {
        const int64_t at = k + c;
        if (at / 32 != group) {
            group = at / 32;
            for (uint32_t t = 0; t < 4; t++) {
                const uint32_t counter[4] = {bh, i, 4 * (uint32_t)group + t, p->offset};
                attn__philox(p->seed, counter, word[t]);
            }
        }
        const uint32_t x = word[at % 8 / 2][at % 32 / 8];
        keep[c] = (at % 2 ? x >> 16 : x & 0xffff) >= p->drop_threshold;
    }
}
