/* interval.h: intervals of the operations of a variant, from which attn_class says what a box of
   pairs is. Never too small: what an operation gives lies in the interval that stands here.

   Who includes it: the text of a variant (lib/gpu_text.c), which calls one function per node, named
   after the op: iv_... for i32 and bool arguments, fv_... for f32. i32 ends are computed in 64
   bits; where they leave i32 the interval is all of it. f32 intervals exist only where the host has
   shown that no value is NaN or infinite, and of what is read from tensors: those are compared
   alone, and fv_all, which holds NaN, too, is neither below nor above anything. */
#ifndef ATTN_INTERVAL_H
#define ATTN_INTERVAL_H

#include "core/math.h"
#include "core/spans.h"

typedef struct attn_iv {
    i32 lo, hi; /* bool: 0 and 1 */
} attn_iv;
typedef struct attn_fv {
    float lo, hi;
} attn_fv;

DEV attn_iv iv(i32 lo, i32 hi) {
    attn_iv r;
    r.lo = lo;
    r.hi = hi;
    return r;
}
DEV attn_fv fv(float lo, float hi) {
    attn_fv r;
    r.lo = lo;
    r.hi = hi;
    return r;
}
DEV attn_iv iv_all(void) { return iv(-0x7fffffff - 1, 0x7fffffff); }
DEV attn_iv iv_of(i64 lo, i64 hi) {
    return lo < -0x7fffffffLL - 1 || hi > 0x7fffffffLL ? iv_all() : iv((i32)lo, (i32)hi);
}
DEV i32 iv_least(i32 a, i32 b) { return a < b ? a : b; }
DEV i32 iv_most(i32 a, i32 b) { return a > b ? a : b; }
DEV attn_iv iv_hull(attn_iv a, attn_iv b) {
    return iv(iv_least(a.lo, b.lo), iv_most(a.hi, b.hi));
}
DEV attn_fv fv_hull(attn_fv a, attn_fv b) { return fv(vm_min(a.lo, b.lo), vm_max(a.hi, b.hi)); }
DEV int iv_single(attn_iv a) { return a.lo == a.hi; }

/* -- What is read: the elements of a box of indices, if they are at most IV_MOST --------------- */

#define IV_MOST 256

/* n times the numbers of a; more than IV_MOST are IV_MOST + 1. */
DEV i32 iv_times(i32 n, attn_iv a) {
    const i64 m = n * ((i64)a.hi - a.lo + 1);
    return m > IV_MOST ? IV_MOST + 1 : (i32)m;
}
DEV attn_iv iv_none(void) { return iv(0x7fffffff, -0x7fffffff - 1); }
DEV attn_iv iv_with(attn_iv a, i32 x) { return iv(iv_least(a.lo, x), iv_most(a.hi, x)); }
DEV attn_fv fv_all(void) { return fv(-VM_INF, VM_INF); }
DEV attn_fv fv_none(void) { return fv(VM_INF, -VM_INF); }
/* Of what is not finite nothing is known. */
DEV attn_fv fv_with(attn_fv a, float x) {
    return !(vm_abs(x) < VM_INF) ? fv_all() : fv(x < a.lo ? x : a.lo, x > a.hi ? x : a.hi);
}

/* The same of elements i of a row, from the row's part of a table of core/spans.h: of all runs in
   which some of them lie, IV_RUNS of them read side by side; `most` where those are many. */
enum { IV_RUNS = 3, IV_MOST_RUNS = 64 };
typedef struct attn_runs {
    i32 first, last;
    int outside; /* some elements are none of the row's: they are 0 */
} attn_runs;
DEV attn_runs iv_runs(attn_iv i, i64 extent) {
    attn_runs r;
    r.first = iv_most(i.lo, 0) / SPAN;
    r.last = iv_least(i.hi, (i32)extent - 1) / SPAN;
    r.outside = i.lo < 0 || i.hi >= extent;
    return r;
}
DEV int iv_runs_few(attn_runs r) { return r.last >= r.first && r.last - r.first < IV_MOST_RUNS; }
DEV u64 iv_run(u64 table, attn_runs r, int n) {
    return load_u64(table + (u64)iv_least(r.first + n, r.last) * 8);
}
DEV attn_iv iv_span(u64 table, attn_iv i, i64 extent, attn_iv most) {
    attn_runs runs = iv_runs(i, extent);
    attn_iv r = runs.outside ? iv(0, 0) : iv_none();
    if (!iv_runs_few(runs)) {
        return most;
    }
    ROLLED for (; runs.first <= runs.last; runs.first += IV_RUNS) {
        UNROLL for (int n = 0; n < IV_RUNS; n++) {
            const u64 x = iv_run(table, runs, n);
            r = iv_hull(r, iv((i32)x, (i32)(x >> 32)));
        }
    }
    return r;
}
DEV attn_fv fv_span(u64 table, attn_iv i, i64 extent) {
    attn_runs runs = iv_runs(i, extent);
    attn_fv r = runs.outside ? fv(0, 0) : fv_none();
    if (!iv_runs_few(runs)) {
        return fv_all();
    }
    ROLLED for (; runs.first <= runs.last; runs.first += IV_RUNS) {
        UNROLL for (int n = 0; n < IV_RUNS; n++) {
            const u64 x = iv_run(table, runs, n);
            r = fv_hull(r, fv(float_of((u32)x), float_of((u32)(x >> 32))));
        }
    }
    return r;
}

/* The nearer of two ends of a row's keys. */
DEV i32 end_least(i32 end, i64 x) {
    return x >= end ? end : x < -0x7fffffffLL - 1 ? -0x7fffffff - 1 : (i32)x;
}
DEV i32 end_most(i32 end, i64 x) { return x <= end ? end : x > 0x7fffffff ? 0x7fffffff : (i32)x; }

/* -- i32: arithmetic --------------------------------------------------------------------------- */

DEV attn_iv iv_neg(attn_iv a) { return iv_of(-(i64)a.hi, -(i64)a.lo); }
DEV attn_iv iv_abs(attn_iv a) {
    return a.lo >= 0             ? a
           : a.hi <= 0            ? iv_neg(a)
           : a.lo < -0x7fffffff ? iv_all() /* whose size wraps */
                                  : iv(0, iv_most(-a.lo, a.hi));
}
DEV attn_iv iv_add(attn_iv a, attn_iv b) {
    return iv_of((i64)a.lo + b.lo, (i64)a.hi + b.hi);
}
DEV attn_iv iv_sub(attn_iv a, attn_iv b) {
    return iv_of((i64)a.lo - b.hi, (i64)a.hi - b.lo);
}
DEV attn_iv iv_mul(attn_iv a, attn_iv b) {
    const i64 w = (i64)a.lo * b.lo, x = (i64)a.lo * b.hi;
    const i64 y = (i64)a.hi * b.lo, z = (i64)a.hi * b.hi;
    const i64 l = w < x ? w : x, m = y < z ? y : z, g = w > x ? w : x, h = y > z ? y : z;
    return iv_of(l < m ? l : m, g > h ? g : h);
}
DEV attn_iv iv_min(attn_iv a, attn_iv b) {
    return iv(iv_least(a.lo, b.lo), iv_least(a.hi, b.hi));
}
DEV attn_iv iv_max(attn_iv a, attn_iv b) { return iv(iv_most(a.lo, b.lo), iv_most(a.hi, b.hi)); }

/* -- i32: divisions; of a divisor that is not one number only positive ones say something ------ */

DEV attn_iv iv_floordiv(attn_iv a, attn_iv b) {
    if (iv_single(b)) {
        const i32 x = vm_floordiv(a.lo, b.lo), y = vm_floordiv(a.hi, b.lo);
        return b.lo == -1 ? iv_neg(a) : iv(iv_least(x, y), iv_most(x, y));
    }
    return b.lo < 1 ? iv_all()
                    : iv(vm_floordiv(a.lo, a.lo < 0 ? b.lo : b.hi),
                         vm_floordiv(a.hi, a.hi < 0 ? b.hi : b.lo));
}
DEV attn_iv iv_mod(attn_iv a, attn_iv b) {
    if (iv_single(b) && vm_floordiv(a.lo, b.lo) == vm_floordiv(a.hi, b.lo) && b.lo != -1) {
        return iv(vm_mod_i(a.lo, b.lo), vm_mod_i(a.hi, b.lo)); /* x - turns * y grows */
    }
    if (b.lo < 1) {
        return b.hi < 0 ? iv(b.lo + 1, 0) : iv(b.lo < 0 ? b.lo + 1 : 0, b.hi > 0 ? b.hi - 1 : 0);
    }
    return iv(0, a.lo >= 0 ? iv_least(a.hi, b.hi - 1) : b.hi - 1);
}
/* Of the sign of a, and no farther from 0 than a. */
DEV attn_iv iv_fmod(attn_iv a, attn_iv b) {
    const i64 lo = b.lo < 0 ? -(i64)b.lo : b.lo, hi = b.hi < 0 ? -(i64)b.hi : b.hi;
    const i64 most = (lo > hi ? lo : hi) - 1;
    const i64 x = a.lo < -most ? -most : a.lo, y = a.hi > most ? most : a.hi;
    return most < 0 ? iv(0, 0) : iv((i32)(a.lo >= 0 ? 0 : x), (i32)(a.hi <= 0 ? 0 : y));
}

/* -- i32: bits --------------------------------------------------------------------------------- */

/* All ones up to the highest bit in which some number of a or b differs from its sign. */
DEV i32 iv_ones(attn_iv a, attn_iv b) {
    u32 x = (u32)(a.lo ^ (a.lo >> 31)) | (u32)(a.hi ^ (a.hi >> 31)) |
            (u32)(b.lo ^ (b.lo >> 31)) | (u32)(b.hi ^ (b.hi >> 31));
    x |= x >> 1;
    x |= x >> 2;
    x |= x >> 4;
    x |= x >> 8;
    return (i32)(x | x >> 16);
}
DEV attn_iv iv_band(attn_iv a, attn_iv b) {
    const i32 ones = iv_ones(a, b);
    if (a.lo >= 0 || b.lo >= 0) {
        return iv(0, iv_least(a.lo >= 0 ? a.hi : 0x7fffffff, b.lo >= 0 ? b.hi : 0x7fffffff));
    }
    return iv(-ones - 1, ones);
}
DEV attn_iv iv_bor(attn_iv a, attn_iv b) {
    const i32 ones = iv_ones(a, b);
    return iv(a.lo >= 0 && b.lo >= 0 ? iv_most(a.lo, b.lo) : -ones - 1, ones);
}
DEV attn_iv iv_bxor(attn_iv a, attn_iv b) {
    const i32 ones = iv_ones(a, b);
    return iv(a.lo >= 0 && b.lo >= 0 ? 0 : -ones - 1, ones);
}
DEV attn_iv iv_bnot(attn_iv a) { return iv(~a.hi, ~a.lo); }
DEV attn_iv iv_shl(attn_iv a, attn_iv b) {
    const i64 size = 1LL << (b.lo & 31);
    return iv_single(b) ? iv_of(a.lo * size, a.hi * size) : iv_all();
}
DEV attn_iv iv_sar(attn_iv a, attn_iv b) {
    return iv_single(b) ? iv(a.lo >> (b.lo & 31), a.hi >> (b.lo & 31))
                        : iv(iv_least(a.lo, 0), iv_most(a.hi, -1));
}
DEV attn_iv iv_shr(attn_iv a, attn_iv b) {
    return a.lo < 0 ? iv_all() : iv_single(b) ? iv_sar(a, b) : iv(0, a.hi);
}

/* -- f32: rounding keeps order, so ends go to ends --------------------------------------------- */

DEV attn_fv fv_neg(attn_fv a) { return fv(-a.hi, -a.lo); }
DEV attn_fv fv_abs(attn_fv a) {
    return a.lo >= 0 ? a : a.hi <= 0 ? fv_neg(a) : fv(0, vm_max(-a.lo, a.hi));
}
DEV attn_fv fv_add(attn_fv a, attn_fv b) { return fv(a.lo + b.lo, a.hi + b.hi); }
DEV attn_fv fv_sub(attn_fv a, attn_fv b) { return fv(a.lo - b.hi, a.hi - b.lo); }
DEV attn_fv fv_corners(float w, float x, float y, float z) {
    return fv(vm_min(vm_min(w, x), vm_min(y, z)), vm_max(vm_max(w, x), vm_max(y, z)));
}
DEV attn_fv fv_mul(attn_fv a, attn_fv b) {
    return fv_corners(a.lo * b.lo, a.lo * b.hi, a.hi * b.lo, a.hi * b.hi);
}
DEV attn_fv fv_div(attn_fv a, attn_fv b) { /* 0 is not in b */
    return fv_corners(a.lo / b.lo, a.lo / b.hi, a.hi / b.lo, a.hi / b.hi);
}
DEV attn_fv fv_min(attn_fv a, attn_fv b) { return fv(vm_min(a.lo, b.lo), vm_min(a.hi, b.hi)); }
DEV attn_fv fv_max(attn_fv a, attn_fv b) { return fv(vm_max(a.lo, b.lo), vm_max(a.hi, b.hi)); }
DEV attn_fv fv_floor(attn_fv a) { return fv(vm_floor(a.lo), vm_floor(a.hi)); }
DEV attn_fv fv_ceil(attn_fv a) { return fv(vm_ceil(a.lo), vm_ceil(a.hi)); }
DEV attn_fv iv_float(attn_iv a) { return fv((float)a.lo, (float)a.hi); }
DEV attn_iv fv_int(attn_fv a) { return iv(vm_int(a.lo), vm_int(a.hi)); }

/* -- Truth: lo is 1 if it is always true, hi is 0 if it never is ------------------------------- */

DEV attn_iv iv_lt(attn_iv a, attn_iv b) { return iv(a.hi < b.lo, a.lo < b.hi); }
DEV attn_iv fv_lt(attn_fv a, attn_fv b) { return iv(a.hi < b.lo, a.lo < b.hi); }
DEV attn_iv iv_le(attn_iv a, attn_iv b) { return iv(a.hi <= b.lo, a.lo <= b.hi); }
DEV attn_iv fv_le(attn_fv a, attn_fv b) { return iv(a.hi <= b.lo, a.lo <= b.hi); }
DEV attn_iv iv_eq(attn_iv a, attn_iv b) {
    return iv(iv_single(a) && iv_single(b) && a.lo == b.lo, a.lo <= b.hi && b.lo <= a.hi);
}
DEV attn_iv fv_eq(attn_fv a, attn_fv b) {
    return iv(a.lo == a.hi && b.lo == b.hi && a.lo == b.lo, a.lo <= b.hi && b.lo <= a.hi);
}
DEV attn_iv iv_not(attn_iv a) { return iv(!a.hi, !a.lo); }
DEV attn_iv iv_ne(attn_iv a, attn_iv b) { return iv_not(iv_eq(a, b)); }
DEV attn_iv fv_ne(attn_fv a, attn_fv b) { return iv_not(fv_eq(a, b)); }
DEV attn_iv iv_and(attn_iv a, attn_iv b) { return iv(a.lo & b.lo, a.hi & b.hi); }
DEV attn_iv iv_or(attn_iv a, attn_iv b) { return iv(a.lo | b.lo, a.hi | b.hi); }
DEV attn_iv iv_select(attn_iv c, attn_iv a, attn_iv b) {
    return c.lo ? a : c.hi ? iv_hull(a, b) : b;
}
DEV attn_fv fv_select(attn_iv c, attn_fv a, attn_fv b) {
    return c.lo ? a : c.hi ? fv_hull(a, b) : b;
}

#endif
