/* cpu_load.c: tensors to tiles and back.

   Who calls it: cpu_fwd and cpu_bwd. A tile is f32, or pairs of bf16 in the places of f32s:

       rows         load_rows  [row][d]          load_pairs      [row][d, d + 1]
       transposed   load_columns  [d][row]       and of pairs    [d, d + 1][row]
       two rows                                  load_row_pairs  [row, row + 1][d]               */
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

const float *attn__direct(const attn__view *view, int64_t b, int64_t h, int64_t row, int *ld) {
    const int64_t step = view->st[2];
    const char *const at = attn__at(view, b, h, row);
    if (view->type != ATTN_F32 || view->st[3] != 1 || view->n[3] % ATTN__LANES || step < 0 ||
        step > INT32_MAX || (uintptr_t)at % sizeof(float)) {
        return NULL;
    }
    *ld = (int)step;
    return (const float *)(const void *)at;
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

void attn__load_columns(attn__tile *t, float *to, const attn__view *view, int64_t b, int64_t h,
                        int64_t row, int rows, int pairs) {
    const int ld = attn__round_lanes(view->n[3]) / (pairs ? 2 : 1);
    const int columns = (int)(view->n[3] + pairs) / (pairs ? 2 : 1);
    int from_ld = 0;
    const float *const direct = attn__direct(view, b, h, row, &from_ld);
    for (int j = 0; j < rows; j += ATTN__LANES) {
        if (direct && rows - j >= ATTN__LANES) {
            t->run->plan->ops->transpose(to + j, BN, direct + (int64_t)j * from_ld, from_ld,
                                         columns);
            continue;
        }
        const int here = rows - j < ATTN__LANES ? rows - j : ATTN__LANES;
        (pairs ? attn__load_pairs : attn__load_rows)(t->x.strip, view, b, h, row + j, here);
        memset(t->x.strip + here * ld, 0, (size_t)(ATTN__LANES - here) * (size_t)ld * sizeof *to);
        t->run->plan->ops->transpose(to + j, BN, t->x.strip, ld, (columns + 3) / 4 * 4);
    }
}

int attn__load_row_pairs(attn__tile *t, float *to, const attn__view *view, int64_t b, int64_t h,
                         int64_t row, int rows) {
    const int ld = attn__round_lanes(view->n[3]);
    float *const first = t->x.strip, *const second = first + ld / 2;
    int finite = 1;
    for (int j = 0; j < rows; j += 2, to += ld) {
        const int here = rows - j < 2 ? 1 : 2;
        attn__load_pairs(first, view, b, h, row + j, here);
        memset(first + here * (ld / 2), 0, (size_t)(2 - here) * (size_t)ld * 2);
        finite &= t->run->plan->ops->zip(to, first, second, ld);
    }
    return finite;
}

void attn__store_rows(const attn__view *view, int64_t b, int64_t h, int64_t row, const float *from,
                      int rows) {
    const int64_t n = view->n[3], ld = attn__round_lanes(n);
    for (int i = 0; i < rows; i++) {
        attn__store_f32(attn__at(view, b, h, row + i), view->type, view->st[3], from + i * ld, n);
    }
}

void attn__drop_wild(float *x, int ld, int rows) {
    for (int64_t e = 0; e < (int64_t)rows * ld; e++) {
        x[e] = isfinite(x[e]) ? x[e] : 0;
    }
}

void attn__drop_wild_pairs(float *x, int ld, int rows) {
    for (int64_t e = 0; e < (int64_t)rows * ld * 2; e++) {
        uint16_t y;
        memcpy(&y, (char *)x + e * 2, sizeof y);
        if ((y & 0x7f80) == 0x7f80) {
            memset((char *)x + e * 2, 0, sizeof y);
        }
    }
}
