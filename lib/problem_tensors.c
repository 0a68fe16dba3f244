/* problem_tensors.c: the tensors of a call beside q, k, v and the lengths, whose sizes are known by
   now: results and gradients, sink, scales, block lists.

   Who calls it: problem.c. */
#include "problem.h"

static const int result_types[] = {ATTN_F64, ATTN_F32, ATTN_F16, ATTN_BF16, 0};
static const int lse_types[] = {ATTN_F64, ATTN_F32, 0};
static const int f32_types[] = {ATTN_F32, 0};
static const int i32_types[] = {ATTN_I32, 0};

/* -- Results and gradients --------------------------------------------------------------------- */

/* [B][H][N][D] or [T][H][D]. */
static int read_rows(const attn__reader *r, const attn_tensor *t, const char *name, int packed,
                     const int *types, int output, attn__view *view) {
    const attn__want want = {name, packed ? "nhd" : "bhnd", packed ? "[T][H][D]" : "[B][H][N][D]",
                             types + !r->ref, output};
    return attn__read_view(r, t, &want, view);
}

static int read_lse(const attn__reader *r, const attn_tensor *t, const char *name, int output,
                    attn__view *view) {
    const attn__problem *const p = r->p;
    const attn__want want = {name, p->q_packed ? "hn" : "bhn",
                             p->q_packed ? "[H][T]" : "[B][H][NQ]", lse_types + !r->ref, output};
    ATTN_TRY(attn__read_view(r, t, &want, view));
    return attn__read_fits(name, view, p->q.n[0], p->H, p->TQ, 1);
}

static int some_gradient(const attn_call *c) {
    int some = c->dq || c->dk || c->dv || c->dsink;
    for (int64_t i = 0; c->captures && i < c->n_captures; i++) {
        some |= c->captures[i].grad != NULL;
    }
    return some;
}

/* Forward writes o and lse; backward reads them and has its own. What belongs to the other
   direction alone may stand in the call and is not looked at. */
int attn__read_results(const attn__reader *r) {
    const attn_call *const c = r->call;
    attn__problem *const p = r->p;
    const int64_t Bq = p->q.n[0], Bk = p->k.n[0];
    const int forward = p->direction == ATTN_FORWARD;
    ATTN_TRY(attn__read_need(c->o, "o", forward ? "forward writes it" : "backward reads it"));
    ATTN_TRY(read_rows(r, c->o, "o", p->q_packed, result_types, forward, &p->o));
    ATTN_TRY(attn__read_fits("o", &p->o, Bq, p->H, p->TQ, p->DV));
    ATTN_TRY(read_lse(r, c->lse, "lse", forward, &p->lse));
    if (forward) {
        return ATTN_OK;
    }
    ATTN_TRY(attn__read_need(c->lse, "lse", "backward reads it"));
    ATTN_TRY(attn__read_need(c->dout, "dout", "backward reads it"));
    if (!some_gradient(c)) {
        return attn__fail(ATTN_INVALID, "dq",
                          "dq, dk, dv, dsink and every capture's grad are NULL; "
                          "backward needs one of them");
    }
    ATTN_TRY(read_rows(r, c->dout, "dout", p->q_packed, result_types, 0, &p->dout));
    ATTN_TRY(attn__read_fits("dout", &p->dout, Bq, p->H, p->TQ, p->DV));
    ATTN_TRY(read_lse(r, c->dlse, "dlse", 0, &p->dlse));
    ATTN_TRY(read_rows(r, c->dq, "dq", p->q_packed, result_types, 1, &p->dq));
    ATTN_TRY(attn__read_fits("dq", &p->dq, Bq, p->H, p->TQ, p->D));
    ATTN_TRY(read_rows(r, c->dk, "dk", p->k_packed, result_types, 1, &p->dk));
    ATTN_TRY(attn__read_fits("dk", &p->dk, Bk, p->HK, p->TK, p->D));
    ATTN_TRY(read_rows(r, c->dv, "dv", p->k_packed, result_types, 1, &p->dv));
    return attn__read_fits("dv", &p->dv, Bk, p->HK, p->TK, p->DV);
}

/* -- Sink, scales, blocks ---------------------------------------------------------------------- */

int attn__read_sink(const attn__reader *r) {
    attn__problem *const p = r->p;
    const attn__want sink = {"sink", "h", "[H]", f32_types, 0};
    const attn__want dsink = {"dsink", "h", "[H]", f32_types, 1};
    ATTN_TRY(attn__read_view(r, r->call->sink, &sink, &p->sink));
    ATTN_TRY(attn__read_fits("sink", &p->sink, 1, p->H, 1, 1));
    if (p->direction == ATTN_FORWARD || !r->call->dsink) {
        return ATTN_OK;
    }
    ATTN_TRY(attn__read_need(r->call->sink, "sink", "dsink is its gradient"));
    ATTN_TRY(attn__read_view(r, r->call->dsink, &dsink, &p->dsink));
    return attn__read_fits("dsink", &p->dsink, 1, p->H, 1, 1);
}

/* [1], [B][HK], or [B][H or HK][ceil(N/128)] with N rows in the longest sequence. */
static int read_scale(const attn__reader *r, const attn_tensor *t, const char *name, int64_t N,
                      attn__view *view, int32_t *heads, int32_t *ranks) {
    static const char *const axes[] = {"d", "bh", "bhn"};
    const attn__problem *const p = r->p;
    const int rank = t ? t->ndim : 1;
    const int64_t blocks = (N + 127) / 128;
    const attn__want want = {name, axes[rank == 2 || rank == 3 ? rank - 1 : 0],
                             "[1], [B][HK] or [B][H or HK][ceil(N/128)]", f32_types, 0};
    ATTN_TRY(attn__read_view(r, t, &want, view));
    if (!t) {
        return ATTN_OK;
    }
    const int by_query = rank == 3 && view->n[1] == p->H;
    *heads = (int32_t)view->n[1];
    *ranks = rank;
    return attn__read_fits(name, view, rank > 1 ? p->B : 1,
                           rank > 1 ? (by_query ? p->H : p->HK) : 1, rank > 2 ? blocks : 1, 1);
}

int attn__read_scales(const attn__reader *r) {
    const attn_call *const c = r->call;
    attn__problem *const p = r->p;
    ATTN_TRY(read_scale(r, c->q_scale, "q_scale", p->NQ, &p->q_scale, &p->q_scale_heads,
                        &p->q_scale_rank));
    ATTN_TRY(read_scale(r, c->k_scale, "k_scale", p->NK, &p->k_scale, &p->k_scale_heads,
                        &p->k_scale_rank));
    return read_scale(r, c->v_scale, "v_scale", p->NK, &p->v_scale, &p->v_scale_heads,
                      &p->v_scale_rank);
}

/* B or 1, H or 1, query blocks, and `most` indices. */
int attn__read_blocks(const attn__reader *r) {
    attn__problem *const p = r->p;
    attn_blocks b;
    if (!r->call->blocks) {
        return ATTN_OK;
    }
    ATTN_TRY(attn__struct_in(&b, sizeof b, r->call->blocks, "attn_blocks"));
    if (b.reserved) {
        return attn__fail(ATTN_INVALID, "blocks.reserved", "blocks.reserved is %u; 0 is allowed",
                          (unsigned)b.reserved);
    }
    const int64_t sizes[] = {b.bm, b.bn};
    for (int i = 0; i < 2; i++) {
        if (sizes[i] < 1 || sizes[i] > INT32_MAX) {
            return attn__fail(ATTN_INVALID, i ? "blocks.bn" : "blocks.bm",
                              "blocks.%s is %lld; 1 to 2^31 - 1 is allowed", i ? "bn" : "bm",
                              (long long)sizes[i]);
        }
    }
    ATTN_TRY(attn__read_need(b.counts, "blocks.counts", "a block list has counts"));
    ATTN_TRY(attn__read_need(b.indices, "blocks.indices", "a block list has indices"));
    const attn__want counts = {"blocks.counts", "bhn", "[B or 1][H or 1][ceil(NQ/bm)]", i32_types,
                               0};
    const attn__want indices = {"blocks.indices", "bhnd", "[B or 1][H or 1][ceil(NQ/bm)][most]",
                                i32_types, 0};
    ATTN_TRY(attn__read_view(r, b.counts, &counts, &p->block_counts));
    ATTN_TRY(attn__read_view(r, b.indices, &indices, &p->block_indices));
    p->block_m = b.bm;
    p->block_n = b.bn;
    p->block_most = p->block_indices.n[3];
    const attn__view *const views[] = {&p->block_counts, &p->block_indices};
    for (int i = 0; i < 2; i++) {
        const int64_t *const n = views[i]->n;
        ATTN_TRY(attn__read_fits(i ? indices.name : counts.name, views[i], n[0] == 1 ? 1 : p->B,
                                 n[1] == 1 ? 1 : p->H, (p->NQ + b.bm - 1) / b.bm,
                                 i ? p->block_most : 1));
    }
    return ATTN_OK;
}
