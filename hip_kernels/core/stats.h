/* stats.h: what backward knows of a query row beforehand.

   Who calls it: attn_bwd_rows.hip writes it; grad.h, careful_grad.h and attn_bwd_sink.hip read it.

       p.back.stats   [B][H][NQ] (packed: [H][T]) of two f32:
           lse    LSE log2 e, as exponents are of two; +inf where the row sees nothing, and there
                  alone, so that its p are 0
           c      dO.O - dLSE; there 0

   A row that is NaN has the LSE NaN, and p and g NaN at the keys that it sees. */
#ifndef ATTN_STATS_H
#define ATTN_STATS_H

#include "core/work.h"

typedef struct attn_stats {
    float lse, c;
} attn_stats;

/* Memory row `row` of head h. */
DEV attn_stats stats_of(const attn_params *p, i64 b, i64 h, i64 row) {
    const u64 both = load_u64(rows_at(&p->back.stats, b, h, row));
    attn_stats t;
    t.lse = float_of((u32)both);
    t.c = float_of((u32)(both >> 32));
    return t;
}

/* What stands for a row that is not there. */
DEV attn_stats stats_nothing(void) {
    attn_stats t;
    t.lse = float_of(0x7f800000u);
    t.c = 0;
    return t;
}

/* p for the product with x: no p of a pair, nor of a sink, is 0; infinity times it is infinity. */
DEV float stats_p(float p, float x) {
    return x - x != 0 && p < 0x1p-126f ? 0x1p-126f : p;
}

/* Of a step's queries, in shared memory at `to`: of query i, and of i and i + 1 for even i. */
DEV void stats_share(u32 to, int i, const attn_stats *t) {
    shared_store_u32(to + (u32)i * 8, bits_of(t->lse));
    shared_store_u32(to + (u32)i * 8 + 4, bits_of(t->c));
}
DEV void stats_shared(u32 from, int i, attn_stats t[2]) {
    const b128 x = shared_load_b128(from + (u32)i * 8);
    UNROLL for (int j = 0; j < 2; j++) {
        t[j].lse = float_of(x.w[2 * j]);
        t[j].c = float_of(x.w[2 * j + 1]);
    }
}

#endif
