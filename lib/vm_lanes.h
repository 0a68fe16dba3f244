/* vm_lanes.h: the instructions of the vector machine, those of each rule of vm_math.h and a few
   that move chunks, and their table.

   Who includes it: vm_base.c and the files for single instruction sets, each of which defines
   VM_TABLE and VM_NAME, the table's symbol and name, VL, the lanes of a vector, VM_ANY(x), whether
   a bit of a vector is set, and VM_LEAVE, what is to be done after the last vector, and sets the
   compiler to its instructions. Every table gives the same bits.

   A rule is one value's. LANES makes it a function of vectors: a loop over the lanes of one, which
   the compiler turns into vector instructions without a trip to memory. */
#include "vm_loops.h"

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC optimize("O3", "no-math-errno", "no-trapping-math")
#endif

#include "vm_math.h"

/* The last call of an instruction is a jump. Where a compiler makes a call of it, `pause` bounds
   how deep they go. */
#if defined(__has_attribute) && defined(__clang__)
#if __has_attribute(musttail)
#define TAIL __attribute__((musttail)) return
#endif
#endif
#ifndef TAIL
#define TAIL
#endif
#define INLINE static inline __attribute__((always_inline))

enum { VECTORS = 4, BYTES = VL * 4 };

typedef float vf __attribute__((vector_size(VL * 4)));
typedef int32_t vi __attribute__((vector_size(VL * 4)));

typedef struct state {
    vf save[VECTORS]; /* what was at hand at a pause */
    vi wild;          /* lanes where a score was -inf */
    char *base[VM_BASES];
    const float *s;
    const vm_insn *next; /* behind a pause */
    float by;
} state;

#define ARGS state *st, const vm_insn *in, vf a, vf b, vf c, vf d
typedef void (*op_fn)(ARGS);
#define NEXT TAIL((op_fn)in[1].fn)(st, in + 1, a, b, c, d)

INLINE char *place_of(const state *st, const vm_insn *in, int e) {
    return st->base[in->of[e].base] + in->of[e].at;
}
INLINE vf get(const void *from, int v) {
    vf x;
    memcpy(&x, (const char *)from + v * BYTES, sizeof x);
    return x;
}
INLINE void put(void *to, int v, vf x) {
    memcpy((char *)to + v * BYTES, &x, sizeof x);
}

/* -- Chunks ------------------------------------------------------------------------------------ */

static void do_load(ARGS) {
    const char *const x = place_of(st, in, 0);
    a = get(x, 0), b = get(x, 1), c = get(x, 2), d = get(x, 3);
    NEXT;
}

static void do_store(ARGS) {
    char *const x = place_of(st, in, 0);
    put(x, 0, a), put(x, 1, b), put(x, 2, c), put(x, 3, d);
    NEXT;
}

static void do_score(ARGS) {
    const float none = -__builtin_inff();
    a = get(st->s, 0) * st->by, b = get(st->s, 1) * st->by;
    c = get(st->s, 2) * st->by, d = get(st->s, 3) * st->by;
    st->wild |= ~((a + b) + (c + d) > none); /* a sum may be so without: others look closer */
    NEXT;
}

static void do_pause(ARGS) {
    st->save[0] = a, st->save[1] = b, st->save[2] = c, st->save[3] = d;
    st->next = in + 1;
}

static void do_end(ARGS) {
    (void)st, (void)in, (void)a, (void)b, (void)c, (void)d;
}

static int run_lanes(const vm_insn *chain, char *const base[VM_BASES], const float *s, float by,
                     int begin, int end) {
    const vf zero = {0};
    const vi no = {0};
    state st; /* its `save` is not cleared: this runs once per row */
    begin = begin / (VECTORS * VL) * (VECTORS * VL);
    st.wild = no;
    st.s = s ? s + begin : NULL;
    st.by = by;
    memcpy(st.base, base, sizeof st.base);
    st.base[AT_ROW] += begin * (int)sizeof *s;
    st.base[AT_DIAGONAL] += begin * (int)sizeof *s;
    for (int at = begin; at < end; at += VECTORS * VL) {
        st.next = NULL;
        ((op_fn)chain->fn)(&st, chain, zero, zero, zero, zero);
        while (st.next) {
            const vm_insn *const in = st.next;
            st.next = NULL;
            ((op_fn)in->fn)(&st, in, st.save[0], st.save[1], st.save[2], st.save[3]);
        }
        st.base[AT_ROW] += VECTORS * BYTES;
        st.base[AT_DIAGONAL] += VECTORS * BYTES;
        st.s = s ? st.s + VECTORS * VL : NULL;
    }
    const int any = VM_ANY(st.wild);
    VM_LEAVE;
    return any;
}

/* -- Rules ------------------------------------------------------------------------------------- */

enum {
#define X(name, text, n, ...) ARGUMENTS_##name = n,
    ATTN_OPS(X)
#undef X
};

typedef float T_f;
typedef int32_t T_i;

#define LANES(name, R, A, value)                                                                   \
    INLINE vf name(vf x, vf y, vf z) {                                                             \
        T_##A xs[VL], ys[VL], zs[VL];                                                              \
        T_##R out[VL];                                                                             \
        vf result;                                                                                 \
        memcpy(xs, &x, sizeof xs), memcpy(ys, &y, sizeof ys), memcpy(zs, &z, sizeof zs);           \
        for (int i = 0; i < VL; i++) {                                                             \
            const T_##A a = xs[i], b = ys[i], c = zs[i];                                           \
            (void)a, (void)b, (void)c;                                                             \
            out[i] = value;                                                                        \
        }                                                                                          \
        memcpy(&result, out, sizeof result);                                                       \
        return result;                                                                             \
    }

/* The same with a slow side: the lanes in need, if there are any, are mended. */
#define MENDED(name, R, A, far, fast, slow)                                                        \
    LANES(name##_fast, R, A, fast)                                                                 \
    LANES(name##_far, i, A, (far) ? -1 : 0)                                                        \
    INLINE vf name(vf x, vf y, vf z) {                                                             \
        vf result = name##_fast(x, y, z);                                                          \
        const vf need = name##_far(x, y, z);                                                       \
        if (VM_ANY(need)) {                                                                        \
            int32_t of[VL];                                                                        \
            T_##A xs[VL], ys[VL];                                                                  \
            T_##R out[VL];                                                                         \
            memcpy(of, &need, sizeof of);                                                          \
            memcpy(xs, &x, sizeof xs), memcpy(ys, &y, sizeof ys);                                  \
            memcpy(out, &result, sizeof out);                                                      \
            for (int i = 0; i < VL; i++) {                                                         \
                const T_##A a = xs[i], b = ys[i];                                                  \
                (void)b;                                                                           \
                out[i] = of[i] ? slow : out[i];                                                    \
            }                                                                                      \
            memcpy(&result, out, sizeof result);                                                   \
        }                                                                                          \
        return result;                                                                             \
    }

/* The three instructions of a rule: its first, second or third argument is at hand. */
#define FIRST(f, x, v)  f(x, get(p, v), get(q, v))
#define SECOND(f, x, v) f(get(p, v), x, get(q, v))
#define THIRD(f, x, v)  f(get(p, v), get(q, v), x)
#define INSTRUCTION(name, f, at_hand)                                                              \
    static void name(ARGS) {                                                                       \
        const char *const p = place_of(st, in, 0), *const q = place_of(st, in, 1);                 \
        (void)p, (void)q;                                                                          \
        a = at_hand(f, a, 0), b = at_hand(f, b, 1), c = at_hand(f, c, 2), d = at_hand(f, d, 3);    \
        NEXT;                                                                                      \
    }
#define INSTRUCTIONS(f)                                                                            \
    INSTRUCTION(f##_1, f, FIRST) INSTRUCTION(f##_2, f, SECOND) INSTRUCTION(f##_3, f, THIRD)

#define X(op, type, R, A, value)                                                                   \
    LANES(op##_##type, R, A, value) INSTRUCTIONS(op##_##type)
#define Y(op, type, R, A, far, fast, slow)                                                         \
    MENDED(op##_##type, R, A, far, fast, slow) INSTRUCTIONS(op##_##type)
VM_RULES(X, Y)
#undef X
#undef Y

#define X(op, type, ...)                                                                           \
    [OP_##op][VT_##type] = {(attn__lane_fn)op##_##type##_1,                                        \
                            ARGUMENTS_##op > 1 ? (attn__lane_fn)op##_##type##_2 : NULL,            \
                            ARGUMENTS_##op > 2 ? (attn__lane_fn)op##_##type##_3 : NULL},
const attn__lanes VM_TABLE = {.name = VM_NAME,
                              .chunk = VECTORS * VL,
                              .run = run_lanes,
                              .load = (attn__lane_fn)do_load,
                              .store = (attn__lane_fn)do_store,
                              .score = (attn__lane_fn)do_score,
                              .pause = (attn__lane_fn)do_pause,
                              .end = (attn__lane_fn)do_end,
                              .op = {VM_RULES(X, X)}};
#undef X
