/* cpu_load.c: tensors to tiles and back.

   Who calls it: cpu_fwd and cpu_bwd. A tile is f32, or pairs of bf16 in the places of f32s; each in
   rows or in panels of LANES columns:

       rows         load_rows      [row][d]             load_pairs        [row][d, d + 1]
       transposed   load_columns   [row / LANES][d][LANES]    and of pairs [d, d + 1]
       panels       load_panels    [d / LANES][row][LANES]    and of pairs [row, row + 1]         */
#include "cpu.h"

#include <math.h>
#include <string.h>

void attn__load_rows(float *to, const attn__view *view, int64_t b, int64_t h, int64_t row,
                     int rows) {
    const int64_t n = view->n[3], ld = attn__round_lanes(n);
    for (int i = 0; i < rows; i++, to += ld) {
        attn__load_f32(to, attn__at(view, b, h, row + i), view->type, n, view->st[3]);
        memset(to + n, 0, (size_t)(ld - n) * sizeof *to);
    }
}

void attn__load_pairs(float *to, const attn__view *view, int64_t b, int64_t h, int64_t row,
                      int rows) {
    const int64_t n = view->n[3], ld = attn__round_lanes(n), step = view->st[3] * 2;
    char *at = (char *)to;
    for (int i = 0; i < rows; i++, at += ld * 2) {
        const char *const from = attn__at(view, b, h, row + i);
        if (step == 2) {
            memcpy(at, from, (size_t)n * 2);
        } else {
            for (int64_t d = 0; d < n; d++) {
                memcpy(at + d * 2, from + d * step, 2);
            }
        }
        memset(at + n * 2, 0, (size_t)(ld - n) * 2);
    }
}

const char *attn__direct(const attn__view *view, int64_t b, int64_t h, int64_t row, int type,
                         int multiple) {
    const int whole = view->st[3] == 1 && view->n[3] % multiple == 0;
    return whole && view->type == type ? attn__at(view, b, h, row) : NULL;
}

void attn__prefetch(const attn__view *view, int64_t b, int64_t h, int64_t row, int64_t rows) {
    const int64_t bytes = view->n[3] * view->st[3] * view->bytes;
    for (int64_t i = 0; i < rows; i++) {
        const char *const at = attn__at(view, b, h, row + i);
        for (int64_t e = 0; e < bytes; e += 64) {
            __builtin_prefetch(at + e, 0, 2);
        }
    }
}

attn__ahead attn__ahead_of(const attn__view *view, int64_t b, int64_t h, int64_t row, int rows,
                           int64_t work) {
    const int row_bytes = (int)(view->n[3] * view->st[3] * view->bytes);
    const int at_each = rows > 0 ? (rows + ATTN__PLACES - 1) / ATTN__PLACES : 0;
    const int64_t lines = ((int64_t)row_bytes + 63) / 64 * at_each;
    return (attn__ahead){.at = attn__at(view, b, h, row),
                         .apart = at_each * view->st[2] * view->bytes,
                         .step = view->st[2] * view->bytes,
                         .row_bytes = row_bytes,
                         .rows = at_each,
                         .each = (int)(1 + work * ATTN__WORK / (lines + 1))};
}

void attn__load_columns(attn__tile *t, float *to, const attn__view *view, int64_t b, int64_t h,
                        int64_t row, int rows, int pairs) {
    const attn__tile_ops *const ops = t->run->plan->ops;
    const int ld = attn__round_lanes(view->n[3]) / (pairs ? 2 : 1);
    const int columns = (int)(view->n[3] + pairs) / (pairs ? 2 : 1);
    const int64_t step = view->st[2] * view->bytes;
    const char *const f32 = pairs ? NULL : attn__direct(view, b, h, row, ATTN_F32, 4);
    const char *const bf16 = attn__direct(view, b, h, row, ATTN_BF16, 8);
    const char *const direct = f32 ? f32 : bf16;
    for (int j = 0; j < rows; j += ATTN__LANES, to += ld * ATTN__LANES) {
        if (direct && rows - j >= ATTN__LANES) {
            ops->transpose(to, direct + j * step, step, f32 ? columns : (int)view->n[3] / 2,
                           !f32 && !pairs, &t->ahead);
            continue;
        }
        const int here = rows - j < ATTN__LANES ? rows - j : ATTN__LANES;
        (pairs ? attn__load_pairs : attn__load_rows)(t->x.strip, view, b, h, row + j, here);
        memset(t->x.strip + here * ld, 0, (size_t)(ATTN__LANES - here) * (size_t)ld * sizeof *to);
        ops->transpose(to, (const char *)t->x.strip, ld * (int64_t)sizeof *to,
                       (columns + 3) / 4 * 4, 0, &t->ahead);
    }
}

/* A row of ld floats to its places in panels of `rows` rows. */
static void to_panels(float *to, const void *from, int ld, int rows) {
    for (int d = 0; d < ld; d += ATTN__LANES, to += (int64_t)rows * ATTN__LANES) {
        memcpy(to, (const char *)from + (size_t)d * sizeof *to, ATTN__LANES * sizeof *to);
    }
}

void attn__rows_to_panels(float *to, const float *from, int ld, int rows) {
    for (int i = 0; i < rows; i++) {
        to_panels(to + i * ATTN__LANES, from + (int64_t)i * ld, ld, rows);
    }
}

/* Rows 2 j, 2 j + 1 as they lie in memory, or copied beside zeros. */
static void two_rows(attn__tile *t, const attn__view *view, int64_t b, int64_t h, int64_t row,
                     int rows, const void *two[2]) {
    const int64_t ld = attn__round_lanes(view->n[3]), step = view->st[2] * view->bytes;
    const char *const direct = attn__direct(view, b, h, row, ATTN_BF16, ATTN__LANES);
    if (direct && rows == 2) {
        two[0] = direct;
        two[1] = direct + step;
    } else {
        two[0] = t->x.strip;
        two[1] = t->x.strip + ld / 2;
        attn__load_pairs(t->x.strip, view, b, h, row, rows);
        memset(t->x.strip + rows * (ld / 2), 0, (size_t)(2 - rows) * (size_t)ld * 2);
    }
}

static int panels_of_pairs(attn__tile *t, float *to, const attn__view *view, int64_t b, int64_t h,
                           int64_t row, int rows) {
    const int ld = attn__round_lanes(view->n[3]), twos = (rows + 1) / 2;
    int finite = 1;
    for (int j = 0; j < twos; j++) {
        const void *two[2];
        two_rows(t, view, b, h, row + 2 * j, rows - 2 * j < 2 ? 1 : 2, two);
        finite &= t->run->plan->ops->zip(to + j * ATTN__LANES, two[0], two[1], ld,
                                         (int64_t)twos * ATTN__LANES);
        attn__ask(&t->ahead, 2);
    }
    return finite;
}

int attn__load_panels(attn__tile *t, float *to, const attn__view *view, int64_t b, int64_t h,
                      int64_t row, int rows, int pairs) {
    const int ld = attn__round_lanes(view->n[3]);
    if (pairs) {
        return panels_of_pairs(t, to, view, b, h, row, rows);
    }
    const char *const direct = attn__direct(view, b, h, row, ATTN_F32, ATTN__LANES);
    for (int j = 0; j < rows; j++) {
        const char *const from = direct ? direct + j * view->st[2] * view->bytes : NULL;
        if (!direct) {
            attn__load_rows(t->x.strip, view, b, h, row + j, 1);
            attn__ask(&t->ahead, 1);
        }
        to_panels(to + j * ATTN__LANES, direct ? from : (const char *)t->x.strip, ld, rows);
    }
    return t->run->plan->ops->finite(to, (int64_t)ld * rows);
}

void attn__store_rows(const attn__view *view, int64_t b, int64_t h, int64_t row, const float *from,
                      int rows) {
    const int64_t n = view->n[3], ld = attn__round_lanes(n);
    for (int i = 0; i < rows; i++) {
        attn__store_f32(attn__at(view, b, h, row + i), view->type, view->st[3], from + i * ld, n);
    }
}

void attn__drop_wild(float *x, int64_t n, int pairs) {
    for (int64_t e = 0; e < n && !pairs; e++) {
        x[e] = isfinite(x[e]) ? x[e] : 0;
    }
    for (int64_t e = 0; e < 2 * n && pairs; e++) {
        uint16_t y;
        memcpy(&y, (char *)x + e * 2, sizeof y);
        if ((y & 0x7f80) == 0x7f80) {
            memset((char *)x + e * 2, 0, sizeof y);
        }
    }
}
