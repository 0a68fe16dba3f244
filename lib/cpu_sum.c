/* cpu_sum.c: the products of a tile, without what nothing is visible of.

   Who calls it: cpu_fwd and cpu_bwd. Where rows have limits, the tile is worked on in strips of
   LANES rows, each from its first visible column to its last, in steps of LANES:

       +---------------+      rows:  dots      the strip's columns alone
       |####           |             sum_rows  the same, as terms of the strip's sums
       |########       |
       |   #########   |      keys:  sum_keys  for LANES columns, the strips that reach them
       +---------------+

   What is left out is a sum of zeros, so no bit depends on it. */
#include "cpu.h"

typedef void product(float *, int, attn__left, attn__right, int, int, int, enum attn__mul);

static product *product_of(const attn__tile *t, int pairs) {
    return pairs ? t->run->plan->ops->mul_pairs : t->run->plan->ops->mul;
}

static int least(int a, int b) {
    return a < b ? a : b;
}

void attn__sum_dots(const attn__tile *t, float *to, const float *rows, const float *columns,
                    int64_t n, int pairs) {
    product *const mul = product_of(t, pairs);
    const int ld = attn__round_lanes(n) / (pairs ? 2 : 1), k = (int)(pairs ? (n + 1) / 2 : n);
    const int64_t panel = (int64_t)ld * LANES;
    if (!t->bounded) {
        mul(to, LDS, (attn__left){rows, ld, 1}, (attn__right){columns, LANES, panel}, t->rows,
            attn__round_lanes(t->n), k, MUL_SET);
        return;
    }
    for (int i = 0; i < t->rows; i += LANES) {
        const int from = t->group_first[i / LANES], end = t->group_last[i / LANES];
        if (from < end) {
            mul(to + i * LDS + from, LDS, (attn__left){rows + i * ld, ld, 1},
                (attn__right){columns + from / LANES * panel, LANES, panel},
                least(t->rows - i, LANES), end - from, k, MUL_SET);
        }
    }
}

void attn__sum_rows(const attn__tile *t, float *to, int ld, const float *x, int x_ld,
                    const float *b, int pairs) {
    product *const mul = product_of(t, pairs);
    const int two = pairs ? 2 : 1, keys = (t->n + two - 1) / two;
    const int64_t panel = (int64_t)keys * LANES;
    if (!t->bounded) {
        mul(to, ld, (attn__left){x, x_ld, 1}, (attn__right){b, LANES, panel}, t->rows, ld, keys,
            MUL_ADD);
        return;
    }
    for (int i = 0; i < t->rows; i += LANES) {
        const int from = t->group_first[i / LANES] / two;
        const int end = least(t->group_last[i / LANES] / two, keys);
        if (from < end) {
            mul(to + i * ld, ld, (attn__left){x + i * x_ld + from, x_ld, 1},
                (attn__right){b + from * LANES, LANES, panel}, least(t->rows - i, LANES), ld,
                end - from, MUL_ADD);
        }
    }
}

void attn__sum_keys(const attn__tile *t, float *to, int ld, const float *x, const float *b,
                    int pairs) {
    product *const mul = product_of(t, pairs);
    const int two = pairs ? 2 : 1, rows = (t->rows + two - 1) / two;
    const int64_t panel = (int64_t)rows * LANES;
    const int step = t->bounded ? LANES : t->n;
    for (int j = 0; j < t->n; j += step) {
        int from = 0, end = t->rows;
        if (t->bounded) {
            from = BM;
            end = 0;
            for (int i = 0; i < t->rows; i += LANES) {
                if (t->group_first[i / LANES] <= j && j < t->group_last[i / LANES]) {
                    from = least(from, i);
                    end = least(i + LANES, t->rows);
                }
            }
            from = from / (two * LANES) * two * LANES;
        }
        if (from < end) {
            mul(to + j * ld, ld, (attn__left){x + from / two * LDS + j, 1, LDS},
                (attn__right){b + from / two * LANES, LANES, panel}, least(t->n - j, step), ld,
                (end + two - 1) / two - from / two, MUL_ADD);
        }
    }
}
