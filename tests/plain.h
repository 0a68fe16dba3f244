/* plain.h: attention in the plainest way, in fp32 or in double; the yardstick of the suite.

   Who calls it: tests/conformance. It reads an attn_call as attn.h describes it, by itself:
   lengths, positions, dropout and derivatives are worked out here once more and share nothing with
   lib/ but the values of operations (attn__op32, attn__eval) and of what a variant reads
   (attn__bind).

       PLAIN_F32   every operation rounded to f32, p, dS and dO rounded to the type of q where that
                   has 16 bits (p also of 8), outputs rounded to their type: an error that no
                   kernel need beat
       PLAIN_F64   in double, without any of these; also the sums of absolute terms, which bound the
                   rounding of every output, and a second opinion on the oracle

   Host memory only. */
#ifndef TESTS_PLAIN_H
#define TESTS_PLAIN_H

#include "../lib/expr.h"

enum plain_precision { PLAIN_F32, PLAIN_F64 };

/* What is computed; the gradient of capture i is output PLAIN_GRADS + i. */
enum plain_output { PLAIN_O, PLAIN_LSE, PLAIN_DQ, PLAIN_DK, PLAIN_DV, PLAIN_DSINK, PLAIN_GRADS };
enum { PLAIN_CAPTURES = 16, PLAIN_OUTPUTS = PLAIN_GRADS + PLAIN_CAPTURES };

/* Each output is compact, in the order of its tensor's axes, and n elements long; 0: not there. */
typedef struct plain_result {
    int64_t n[PLAIN_OUTPUTS];
    double *value[PLAIN_OUTPUTS];
    double *sum[PLAIN_OUTPUTS]; /* PLAIN_F64: M, the sum of an element's absolute terms */
    double *
        slack[PLAIN_OUTPUTS]; /* PLAIN_F64: terms whose derivative rounding may choose; see below */
    uint8_t *seen;            /* 1 for the rows of k, in dk's order, that any row of q sees */
    double amplify; /* PLAIN_F64: largest error of a score in units of 4 * 2^-24; see plain_score */
} plain_result;

/* o, lse, dq ... of the call say which outputs are wanted and their types; their memory is not
   touched. The shapes must be right. Returns 0, or -1 with attn_error(). */
int plain_run(const attn_call *call, const attn_variant *variant, int backward,
              enum plain_precision precision, plain_result *result);
void plain_free(plain_result *result);

/* keep u8 [B][H][NQ][NK], compact, of the call's dropout. */
void plain_dropout(const attn_call *call, uint8_t *keep);

/* -- plain_call.c: what a call says ------------------------------------------------------------ */
/* One of q, k, v, o, dout ...: padded [B][heads][N][E], packed [T][heads][E]. */
typedef struct plain_plane {
    const attn_tensor *t;
    int packed;
} plain_plane;
/* The used rows [row, row + n) of sequence b in memory. */
typedef struct plain_span {
    int64_t row, n;
} plain_span;
typedef struct plain_dropper {
    uint64_t seed;
    uint32_t offset, threshold; /* 0: keep all */
    double factor;
} plain_dropper;

int64_t plain_stride(const attn_tensor *t, int axis);
void plain_read_row(float *to, plain_plane x, int64_t b, int64_t h, int64_t row, int64_t n);
/* One element of a tensor of rank <= 4; indices past its rank count nothing. */
double plain_number(const attn_tensor *t, int64_t i0, int64_t i1, int64_t i2, int64_t i3);
plain_span plain_span_of(const attn_tensor *t, const attn_tensor *offsets, const attn_tensor *used,
                         int64_t b);
/* q_scale, k_scale or v_scale (NULL: 1) at a row of a sequence, for query head h. */
double plain_scale_at(const attn_tensor *t, int64_t H, int64_t HK, int64_t b, int64_t h,
                      int64_t row);
/* Do the block lists show this key to this row? */
int plain_listed(const attn_blocks *blocks, int64_t b, int64_t h, int64_t row, int64_t key);
plain_dropper plain_dropper_of(const attn_call *c);
uint32_t plain_keep_head(const attn_call *c, int64_t H, int64_t b, int64_t h);
/* keep[n] of global row i, from global key k0 on. */
void plain_keep_row(const plain_dropper *d, uint32_t bh, uint32_t i, int64_t k0, int64_t n,
                    uint8_t *keep);

/* -- plain_score.c: one pair ------------------------------------------------------------------- */
/* The derivative comes from one backward sweep over the nodes, not from lib/expr_grad.c. Beside it
   runs a sweep over the absolute values of the partial derivatives, from which follow
     ds_sum   the sum of absolute terms of d score / d s (1 - tanh^2 counts as 1 + tanh^2)
     amplify  max(s_size |ds|, |score|) + sum over operations of (ulp / 2) |d score / d node * node|
     kink     a choice (min, abs, a comparison ...) lies within rounding of its edge, so either
              branch's derivative is right */
typedef struct plain_pair {
    int visible, kink;
    double score, ds, ds_sum, amplify;
} plain_pair;

typedef struct plain_scorer {
    const attn_variant *variant;
    attn__bound bound[ATTN__MAX_SYMBOLS];
    int f32;
    attn__val *val;        /* [nodes] */
    double *adjoint, *sum; /* [nodes] */
    int32_t *site;         /* [n_sites] nodes that read an f32 tensor or parameter */
    int n_sites;
    uint8_t *needed; /* [nodes] what score and mask depend on */
} plain_scorer;

int plain_scorer_new(plain_scorer *r, const attn_variant *variant, const attn_call *call, int f32);
void plain_scorer_free(plain_scorer *r);
/* What the pair gives the gradient of one site: derivative, its sum of absolute terms, and the
   element read, in the compact order of its tensor; -1: outside. */
typedef struct plain_part {
    double d, sum;
    int64_t element;
} plain_part;

/* s is the scaled score, s_size its size as rounding sees it: |s|, or half the root of the sum of
   squares of the partial sums of scale * q . k if that is more. part[n_sites] is set where the pair
   is visible. */
plain_pair plain_score(plain_scorer *r, const attn__env *env, double s, double s_size,
                       plain_part *part);

#endif
