/* vm_lanes.h: the loops of the vector machine, one for each rule of vm_math.h, and their table.

   Who includes it: vm_base.c and the files for single instruction sets, each of which defines
   VM_TABLE, the name of its table, and sets the compiler to its instructions. The lanes of a value
   are 32 bits wide and lie one after another; every table gives the same bits. */
#include "vm_loops.h"

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC optimize("O3", "no-math-errno", "no-trapping-math")
#endif

#include "vm_math.h"

/* Registers hold floats and integers in turn. */
typedef float T_f __attribute__((may_alias));
typedef int32_t T_i __attribute__((may_alias));

/* The value of every lane; where a rule has a slow side, a second loop mends the lanes in need. */
#define X(op, type, R, A, value)                                                                   \
    static void op##_##type(void *restrict to, const void *x, const void *y, const void *z,        \
                            int n) {                                                               \
        T_##R *const out = to;                                                                     \
        const T_##A *const xs = x, *const ys = y, *const zs = z;                                   \
        for (int i = 0; i < n; i++) {                                                              \
            const T_##A a = xs[i], b = ys[i], c = zs[i];                                           \
            (void)a, (void)b, (void)c;                                                             \
            out[i] = value;                                                                        \
        }                                                                                          \
    }
#define Y(op, type, R, A, far, fast, slow)                                                         \
    X(op##_fast, type, R, A, fast)                                                                 \
    static void op##_##type(void *restrict to, const void *x, const void *y, const void *z,        \
                            int n) {                                                               \
        T_##R *const out = to;                                                                     \
        const T_##A *const xs = x, *const ys = y;                                                  \
        op##_fast_##type(to, x, y, z, n);                                                          \
        for (int i = 0; i < n; i++) {                                                              \
            const T_##A a = xs[i], b = ys[i];                                                      \
            (void)b;                                                                               \
            if (far) {                                                                             \
                out[i] = slow;                                                                     \
            }                                                                                      \
        }                                                                                          \
    }
VM_RULES(X, Y)
#undef X
#undef Y

#define X(op, type, ...) [OP_##op][VT_##type] = op##_##type,
const attn__lane_table VM_TABLE = {VM_RULES(X, X)};
#undef X
