/* sample.c: the scores of a variant without any attention, and a drawing of what it masks.

   Who calls it: the user. A window of rows and keys is walked in strips of VM_WIDTH keys, a strip
   for all of its rows, by the same vector machine as attention itself. */
#include "vm.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct sampler {
    const attn_graph *g;
    attn_window w;
    attn__bound *bound;
    attn__vm *vm; /* score, mask */
    void *scratch;
} sampler;

/* -- The window -------------------------------------------------------------------------------- */

static int in_range(const char *name, int64_t x, int64_t lo, int64_t hi) {
    if (x < lo || x > hi) {
        return attn__fail(ATTN_INVALID, name, "%s is %lld; %lld to %lld is allowed", name,
                          (long long)x, (long long)lo, (long long)hi);
    }
    return ATTN_OK;
}

static int check_window(attn_window *w) {
    if (w->flags & ~(uint32_t)ATTN_TOP_LEFT) {
        return attn__fail(ATTN_INVALID, "window.flags",
                          "window.flags is %u; ATTN_TOP_LEFT is allowed", w->flags);
    }
    ATTN_TRY(in_range("window.nq", w->nq, 1, INT32_MAX));
    ATTN_TRY(in_range("window.nk", w->nk, 1, INT32_MAX));
    ATTN_TRY(in_range("window.nh", w->nh, 0, INT32_MAX));
    ATTN_TRY(in_range("window.hk", w->hk, 0, INT32_MAX));
    ATTN_TRY(in_range("window.batch", w->batch, 0, INT32_MAX));
    w->nh = w->nh ? w->nh : 1;
    w->hk = w->hk ? w->hk : 1;
    w->batch = w->batch ? w->batch : 1;
    ATTN_TRY(in_range("window.b", w->b, 0, w->batch - 1));
    ATTN_TRY(in_range("window.h", w->h, 0, w->nh - 1));
    ATTN_TRY(in_range("window.i", w->i, 0, w->nq - 1));
    ATTN_TRY(in_range("window.k", w->k, 0, w->nk - 1));
    w->rows = w->rows ? w->rows : w->nq - w->i;
    w->columns = w->columns ? w->columns : w->nk - w->k;
    ATTN_TRY(in_range("window.rows", w->rows, 1, w->nq - w->i));
    return in_range("window.columns", w->columns, 1, w->nk - w->k);
}

static int32_t q_of(const attn_window *w, int64_t i) {
    return (int32_t)(w->flags & ATTN_TOP_LEFT ? i : i + w->nk - w->nq);
}

static attn__env env_of(const attn_window *w) {
    attn__env env;
    memset(&env, 0, sizeof env);
    env.leaf[LEAF_b] = (int32_t)w->b;
    env.leaf[LEAF_h] = (int32_t)w->h;
    env.leaf[LEAF_nq] = (int32_t)w->nq;
    env.leaf[LEAF_nk] = (int32_t)w->nk;
    env.leaf[LEAF_nh] = (int32_t)w->nh;
    env.leaf[LEAF_hk] = (int32_t)w->hk;
    env.leaf[LEAF_batch] = (int32_t)w->batch;
    return env;
}

/* As a plan does: no i32 operation may overflow within the window. */
static int check_overflow(const sampler *x, const attn_variant *variant) {
    const attn_window *const w = &x->w;
    const attn__env env = env_of(w);
    attn__box box;
    attn__box_init(&box, x->bound);
    for (int i = 0; i < LEAF_COUNT; i++) {
        if (i != LEAF_s) {
            attn__box_set(&box, i, env.leaf[i], env.leaf[i]);
        }
    }
    const int64_t i1 = w->i + w->rows - 1, k1 = w->k + w->columns - 1;
    attn__box_set(&box, LEAF_i, (double)w->i, (double)i1);
    attn__box_set(&box, LEAF_q, q_of(w, w->i), q_of(w, i1));
    attn__box_set(&box, LEAF_k, (double)w->k, (double)k1);
    void *const scratch = attn__alloc(attn__overflow_scratch(x->g), "a window");
    if (!scratch) {
        return ATTN_MEMORY;
    }
    int status = attn__check_overflow(x->g, variant->score, &box, scratch);
    if (status >= 0) {
        status = attn__check_overflow(x->g, variant->mask, &box, scratch);
    }
    free(scratch);
    return status;
}

static void sampler_close(sampler *x) {
    free(x->scratch);
    attn__vm_free(x->vm);
    free(x->bound);
}

static int sampler_make(sampler *x, const attn_variant *variant) {
    const int32_t roots[] = {variant->score, variant->mask};
    x->g = &variant->graph;
    x->bound = attn__alloc((size_t)x->g->n_symbols * sizeof *x->bound, "captures");
    if (!x->bound) {
        return ATTN_MEMORY;
    }
    ATTN_TRY(attn__bind(NULL, variant, x->w.captures, x->w.n_captures, 0, x->bound));
    ATTN_TRY(check_overflow(x, variant));
    ATTN_TRY(attn__vm_new(x->g, roots, 2, &x->vm));
    const size_t bytes = attn__vm_scratch(x->vm);
    x->scratch = aligned_alloc(64, bytes);
    if (!x->scratch) {
        return attn__fail(ATTN_MEMORY, "", "out of memory: %zu bytes for a window", bytes);
    }
    const attn__env env = env_of(&x->w);
    attn__vm_begin(x->vm, x->scratch, &env, x->bound);
    return ATTN_OK;
}

static int sampler_open(sampler *x, const attn_variant *variant, const attn_window *window) {
    memset(x, 0, sizeof *x);
    if (!variant || !window) {
        return attn__fail(ATTN_INVALID, variant ? "window" : "variant", "%s is NULL",
                          variant ? "window" : "variant");
    }
    ATTN_TRY(attn__struct_in(&x->w, sizeof x->w, window, "attn_window"));
    ATTN_TRY(check_window(&x->w));
    const int status = sampler_make(x, variant);
    if (status < 0) {
        sampler_close(x);
    }
    return status;
}

/* -- Strips ------------------------------------------------------------------------------------ */

/* Keys column.. of the window, n of them. */
static void strip(const sampler *x, int64_t column, int n) {
    attn__vm_columns(x->vm, x->scratch, (int32_t)(x->w.k + column), n);
}

/* out[n]: the strip's scores of a row, -inf where masked; s[n] or NULL. */
static void row_of(const sampler *x, int64_t row, const float *s, int n, float *out) {
    const int64_t i = x->w.i + row;
    const void *roots[2];
    float own[ATTN__VM_WIDTH] = {0}; /* the machine wants a whole row */
    if (s) {
        memcpy(own, s, (size_t)n * sizeof *own);
    }
    s = own;
    attn__vm_rows(x->vm, x->scratch, (int32_t)i, q_of(&x->w, i), 1);
    attn__vm_row(x->vm, x->scratch, 0, s, 1, 0, n, roots);
    const float *const score = roots[0];
    const int32_t *const mask = roots[1];
    for (int j = 0; j < n; j++) {
        out[j] = mask[j] && s[j] != -INFINITY ? score[j] : -INFINITY;
    }
}

static int width_at(const sampler *x, int64_t column) {
    const int64_t left = x->w.columns - column;
    return (int)(left < ATTN__VM_WIDTH ? left : ATTN__VM_WIDTH);
}

int attn_variant_sample(const attn_variant *variant, const attn_window *window, const float *s,
                        float *scores) {
    sampler x;
    if (!scores) {
        return attn__fail(ATTN_INVALID, "scores", "scores is NULL; it receives [rows][columns]");
    }
    ATTN_TRY(sampler_open(&x, variant, window));
    for (int64_t c = 0; c < x.w.columns; c += ATTN__VM_WIDTH) {
        const int n = width_at(&x, c);
        strip(&x, c, n);
        for (int64_t r = 0; r < x.w.rows; r++) {
            const int64_t at = r * x.w.columns + c;
            row_of(&x, r, s ? s + at : NULL, n, scores + at);
        }
    }
    sampler_close(&x);
    return ATTN_OK;
}

/* Writes the strip's part of a line, as far as it fits before text[end]. */
static void draw(char *text, int64_t end, int64_t at, const float *score, int n) {
    for (int j = 0; j < n && at + j < end; j++) {
        text[at + j] = score[j] == -INFINITY ? '.' : '#';
    }
}

int64_t attn_variant_picture(const attn_variant *variant, const attn_window *window, char *text,
                             size_t capacity) {
    sampler x;
    if (!text && capacity) {
        return attn__fail(ATTN_INVALID, "text", "text is NULL and capacity %zu; 0 is allowed",
                          capacity);
    }
    ATTN_TRY(sampler_open(&x, variant, window));
    const int64_t line = x.w.columns + 1, all = x.w.rows * line + 1;
    const int64_t end = (uint64_t)all > capacity ? (int64_t)capacity - 1 : all - 1;
    for (int64_t c = 0; c < x.w.columns && c < end; c += ATTN__VM_WIDTH) {
        const int n = width_at(&x, c);
        strip(&x, c, n);
        for (int64_t r = 0; r < x.w.rows && r * line + c < end; r++) {
            float score[ATTN__VM_WIDTH];
            row_of(&x, r, NULL, n, score);
            draw(text, end, r * line + c, score, n);
        }
    }
    for (int64_t at = line - 1; at < end; at += line) {
        text[at] = '\n';
    }
    if (capacity) {
        text[end] = 0;
    }
    sampler_close(&x);
    return all;
}
