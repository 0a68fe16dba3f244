/* cpu_rows.h: the loops on rows of scores: which pairs count, softmax and its derivative.

   Who includes it: cpu_loops.h, which tells what VL and the other macros are. */
#include "cpu_vec.h"

#ifndef STORE_NARROW
#define STORE_NARROW(to, x, n) ((void)(to), (void)(x), (void)(n))
#endif
#ifndef STORE_SPLIT
#define STORE_SPLIT(to, part, x, n) ((void)(to), (void)(part), (void)(x), (void)(n))
#endif
#ifndef GO_ON
#define GO_ON(queue) (void)(queue)
#endif

static int ops_finite(const float *x, int64_t n) {
    const int32_t top = 0x7f800000;
    vi bad = {0};
    for (int64_t j = 0; j < n; j += VL) {
        bad |= ((vi)load(x + j) & top) == top;
    }
    return !any_of(bad);
}

static void ops_scale(float *x, const float *by_each, float by, int n) {
    for (int j = 0; j < n; j += VL) {
        const vf y = load(x + j);
        store(x + j, (by_each ? y * load(by_each + j) : y) * by);
    }
}

static void ops_visible(int32_t *on, const int32_t *mask, const int32_t *block, const float *s,
                        int n) {
    for (int j = 0; j < n; j += VL) {
        vi x = mask ? load_i(mask + j) != 0 : ~(vi){0};
        if (s) {
            x &= load(s + j) != -__builtin_inff();
        }
        if (block) {
            x &= load_i(block + j) != 0;
        }
        store_i(on + j, x);
    }
}

static void ops_settle(float *to, const float *score, float by, const int32_t *on, int n) {
    const vf none = splat(-__builtin_inff());
    for (int j = 0; j < n; j += VL) {
        const vf x = load(score + j) * by;
        store(to + j, on ? choose(load_i(on + j) != 0, x, none) : x);
    }
}

/* Lanes j.. that count: in begin..n, on, and not -inf. */
INLINE vi lanes_on(const int32_t *on, vf score, int j, int begin, int n) {
    const vi x = within(j, begin, n) & (score != -__builtin_inff());
    return on ? x & (load_i(on + j) != 0) : x;
}

/* A row without a score above -inf: whether a visible one is NaN; p holds -inf elsewhere. */
static int row_without_max(const float *p, int n) {
    vi bad = {0};
    for (int j = 0; j < n; j += VL) {
        const vf x = load(p + j);
        bad |= x != x;
    }
    return any_of(bad) ? ROW_NAN : ROW_EMPTY;
}

#define LOG2_E 1.44269502f
INLINE vf power_of(vf score, float top, float unit) {
    return (score - top) * (unit * LOG2_E);
}
/* What sums made beside the maximum `old` are to be multiplied by. */
INLINE float correction(float old, float top, float unit) {
    vf x = power_of(splat(old), top, unit);
    exp2_down(&x, 1);
    return x[0];
}

/* p = the row's scores in `unit`, -inf where a column does not count; returns the maximum. LANES
   columns that all count need no look at each. A visible NaN passes the maximum by and shows in the
   sum. */
INLINE float row_scores(float *p, const float *score, float by, float unit, const int32_t *on,
                        int begin, int n, int32_t *on_out) {
    by = unit == by ? 1 : by;
    const vf none = splat(-__builtin_inff());
    vf most[GROUPS];
    LOOP_LANES {
        most[g] = none;
    }
    for (int j = 0; j < n; j += ATTN__LANES) {
        const int all = j >= begin && j + ATTN__LANES <= n && !on && !on_out;
        LOOP_LANES {
            const int at = j + g * VL;
            vf x = load(score + at) * by;
            if (!all) {
                const vi yes = lanes_on(on, x * unit, at, begin, n);
                x = choose(yes, x, none);
                if (on_out) {
                    store_i(on_out + at, yes);
                }
            }
            most[g] = LARGER(x, most[g]);
            store(p + at, x);
        }
    }
    return max_of(most);
}

/* p of n_vecs vectors of scores, which lanes' sums take in as it is. part: of split ones. */
INLINE void exp_to(float *p, const enum attn__form form, int part, const float *score, float top,
                   float unit, vf sum[GROUPS], const int n_vecs) {
    vf x[SIDE];
    EACH x[e] = power_of(load(score + e * VL), top, unit);
    exp2_down(x, n_vecs);
    EACH sum[e % GROUPS] += x[e];
    if (form == FORM_SPLIT) {
        STORE_SPLIT(p, part, x, n_vecs);
    } else if (form == FORM_PAIRS) {
        STORE_NARROW(p, x, n_vecs);
    } else {
        EACH store(p + e * VL, x[e]);
    }
}

/* The row's p; returns their sum. */
INLINE float exp_row(float *p, const enum attn__form form, int part, const float *score, float top,
                     float unit, int n) {
    const int half = form != FORM_F32;
    vf sum[GROUPS];
    int j = 0;
    LOOP_LANES {
        sum[g] = splat(0);
    }
    for (; j + SIDE * VL <= n; j += SIDE * VL) {
        exp_to(p + (half ? j / 2 : j), form, part, score + j, top, unit, sum, SIDE);
    }
    for (; j < n; j += ATTN__LANES) {
        exp_to(p + (half ? j / 2 : j), form, part, score + j, top, unit, sum, GROUPS);
    }
    return sum_of(sum);
}

static int ops_softmax(float *p, const float *score, float by, const int32_t *on, int begin, int n,
                       float *m, float *l, float *corr, int32_t *on_out) {
    const float unit = ATTN__UNIT(by), here = row_scores(p, score, by, unit, on, begin, n, on_out);
    const float old = *m, top = here > old ? here : old;
    float more = 0;
    int state = here * unit == __builtin_inff()    ? ROW_NAN
                : here * unit == -__builtin_inff() ? row_without_max(p, n)
                                                   : ROW_VISIBLE;
    if (state == ROW_VISIBLE) {
        more = exp_row(p, FORM_F32, 0, p, top, unit, n);
        state = more == more ? state : ROW_NAN;
    }
    if (state != ROW_VISIBLE) {
        memset(p, 0, (size_t)attn__round_lanes(n) * sizeof *p);
        return state;
    }
    *m = top;
    *corr = here > old ? correction(old, top, unit) : 1;
    *l = *l * *corr + more;
    return state;
}

/* here[ATTN__LANES] = the rows' maxima, -inf where no column counts; 0 if one is infinite or NaN or
   `by` is unusual. */
INLINE int rows_max(float *here, const float *s, int ld, int rows, int n, const float *by) {
    int fine = 1;
    for (int i = 0; i < rows; i++, s += ld) {
        vf most[SIDE];
        int j = 0;
        UNROLL for (int e = 0; e < SIDE; e++) {
            most[e] = splat(-__builtin_inff());
        }
        for (; j + SIDE * VL <= n; j += SIDE * VL) {
            UNROLL for (int e = 0; e < SIDE; e++) {
                most[e] = LARGER(load(s + j + e * VL), most[e]);
            }
        }
        for (; j < n; j += ATTN__LANES) {
            LOOP_LANES {
                most[g] = LARGER(load(s + j + g * VL), most[g]);
            }
        }
        UNROLL for (int e = GROUPS; e < SIDE; e++) {
            most[e % GROUPS] = LARGER(most[e], most[e % GROUPS]);
        }
        here[i] = max_of(most);
        fine &= by[i] == ATTN__UNIT(by[i]) &&
                (here[i] == -__builtin_inff() ? row_without_max(s, n) == ROW_EMPTY
                                              : here[i] * by[i] - here[i] * by[i] == 0);
    }
    return fine;
}

/* A row's p set to 0. */
INLINE void clear_row(float *p, enum attn__form form, int part, int n) {
    const size_t bytes = (size_t)n * (form == FORM_F32 ? sizeof *p : 2);
    for (int e = 0; e < (form == FORM_SPLIT ? 3 : 1); e++) {
        memset(p + e * part, 0, bytes);
    }
}

static int ops_softmax_rows(float *p, int p_ld, enum attn__form form, const float *s, int ld,
                            int rows, int n, const float *by, float *m, float *l, float *corr,
                            uint8_t *nan, attn__queue *queue) {
    float here[ATTN__LANES];
    const int part = p_ld / 3;
    if (!rows_max(here, s, ld, rows, n, by)) {
        return 0;
    }
    for (int i = 0; i < rows; i++, p += p_ld, s += ld) {
        const float old = m[i], top = here[i] > old ? here[i] : old;
        /* All of the row's p are 0, exactly, if its maximum's is. */
        if (here[i] == -__builtin_inff() ||
            ((here[i] - top) * (by[i] * LOG2_E) < -152 && row_without_max(s, n) == ROW_EMPTY)) {
            corr[i] = 1;
            clear_row(p, form, part, n);
            GO_ON(queue);
            continue;
        }
        const float more =
            form == FORM_SPLIT   ? exp_row(p, FORM_SPLIT, part, s, top, by[i], n)
            : form == FORM_PAIRS ? exp_row(p, FORM_PAIRS, 0, s, top, by[i], n)
                                 : exp_row(p, FORM_F32, 0, s, top, by[i], n);
        corr[i] = here[i] > old ? correction(old, top, by[i]) : 1;
        GO_ON(queue);
        if (more == more) {
            m[i] = top;
            l[i] = l[i] * corr[i] + more;
            continue;
        }
        nan[i] = 1;
        corr[i] = 1;
        clear_row(p, form, part, n);
    }
    return 1;
}

/* to = to * by_to + from * by_from */
static void ops_fold(float *to, float by_to, const float *from, float by_from, int n) {
    for (int j = 0; j < n; j += VL) {
        store(to + j, FMA(load(from + j), splat(by_from), load(to + j) * by_to));
    }
}

/* log(2^-126): a p below it counts as 0, as products of subnormal numbers take processors up to a
   hundred times as long, and whole tiles of distant keys may have no others. Not so in a row whose
   c is not finite, which reaches what it sees. */
#define TINY (-87.3365f)

/* plain: nothing but scores and dp counts, and only p_out and g_dot are wanted. */
INLINE void grad_of(float *p_out, float *g_dot, float *g_score, const float *score, const float *dp,
                    const int32_t *on, int begin, int n, const attn__grad_row *row, int32_t *on_out,
                    const int plain) {
    const vf zero = splat(0), least = splat(row->c - row->c == 0 ? TINY : -__builtin_inff());
    for (int j = 0; j < attn__round_lanes(n); j += VL) {
        const vf s = load(score + j) * row->by;
        const vi yes = plain ? s != -__builtin_inff() : lanes_on(on, s, j, begin, n);
        const vf power = s - row->lse;
        const vi counts = yes & ~(power < least); /* a NaN counts */
        vf p = LARGER(splat(TINY), power);
        exp_of(&p, 1);
        vf pw = p, wdp = load(dp + j);
        if (!plain && row->w) {
            const vf w = load(row->w + j);
            pw = choose(w == 0, zero, p * w);
            wdp = choose(w == 0, zero, wdp * w);
        }
        const vf g = p * (wdp - row->c);
        vf gd = !plain && row->ds ? g * load(row->ds + j) : g;
        gd = (!plain && row->key_scale ? gd * load(row->key_scale + j) : gd) * row->row_scale;
        store(p_out + j, choose(counts, pw, zero));
        store(g_dot + j, choose(counts, gd, zero));
        if (!plain && g_score) {
            store(g_score + j, choose(counts, g, zero));
        }
        if (!plain && on_out) {
            store_i(on_out + j, yes);
        }
    }
}

static void ops_grad(float *p_out, float *g_dot, float *g_score, const float *score,
                     const float *dp, const int32_t *on, int begin, int n,
                     const attn__grad_row *row, int32_t *on_out) {
    if (on || g_score || on_out || row->w || row->ds || row->key_scale || begin ||
        n % ATTN__LANES) {
        grad_of(p_out, g_dot, g_score, score, dp, on, begin, n, row, on_out, 0);
    } else {
        grad_of(p_out, g_dot, NULL, score, dp, NULL, 0, n, row, NULL, 1);
    }
}
