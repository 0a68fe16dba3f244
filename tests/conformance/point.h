/* point.h: one case of the suite, wholly described by a struct and by one line of text.

   Who calls it: every file of the suite. The fields below are the struct, the text and the help at
   once: a line is `name=value` for every field that is not at its default, in this order. Lists are
   numbers with commas; a list that is too short repeats. */
#ifndef CONFORMANCE_POINT_H
#define CONFORMANCE_POINT_H

#include <stddef.h>
#include <stdint.h>

/* X(name, names): the choices of a field; the first is the default. */
#define POINT_PICKS(X)                                                                             \
    X(check, "value", "repeat", "batch", "threads", "window", "merge", "shard", "dropout",         \
      "isolate", "refuse")                                                                         \
    X(dir, "fwd", "bwd")                                                                           \
    X(dtype, "f32", "f16", "bf16", "e4m3fn", "e5m2", "e4m3fnuz", "e5m2fnuz")                       \
    X(otype, "same", "f32", "f16", "bf16")                                                         \
    X(packed, "none", "q", "k", "both")                                                            \
    X(ends, "finite", "nan", "inf")                                                                \
    X(layout, "compact", "swapped", "padded", "odd", "reversed", "huge", "same_batch",             \
      "same_head", "same_row")                                                                     \
    X(scales, "none", "one", "head", "block", "qblock")                                            \
    X(lists, "bh", "b1", "1h", "11")                                                               \
    X(plant, "none", "nan", "inf", "ninf")                                                         \
    X(where, "q", "k", "v", "dout")                                                                \
    X(split, "keys", "heads", "batch", "rows")

/* INT(name, default, sentence) REAL(...) PICK(name, picks, sentence) LIST(name, sentence)
   TEXT(name, sentence) */
#define POINT_FIELDS(PICK, INT, REAL, LIST, TEXT)                                                  \
    PICK(check, check, "what is checked; docs/conformance.md tells each")                          \
    PICK(dir, dir, "forward alone, or forward and then backward")                                  \
    PICK(dtype, dtype, "type of q, k and v")                                                       \
    PICK(otype, otype, "type of o, dout, dq, dk, dv; same: that of q, bf16 where that has 8 bits") \
    INT(B, 1, "batch entries")                                                                     \
    INT(H, 1, "query heads")                                                                       \
    INT(HK, 0, "key/value heads; 0: H")                                                            \
    INT(NQ, 1, "query rows in memory (packed: of a sequence without qlens)")                       \
    INT(NK, 1, "key rows")                                                                         \
    INT(D, 8, "head dimension of q and k")                                                         \
    INT(DV, 0, "head dimension of v; 0: D")                                                        \
    INT(seed, 1, "of all random data")                                                             \
    PICK(packed, packed, "which sides are packed")                                                 \
    LIST(qlens, "packed: rows of each sequence")                                                   \
    LIST(klens, "packed: keys of each sequence")                                                   \
    LIST(qused, "q_used of each sequence; empty: not given")                                       \
    LIST(kused, "k_used of each sequence")                                                         \
    INT(spare, 0, "packed: rows of no sequence before the first and behind the last")              \
    INT(longest, 0, "1: q_longest and k_longest are given where packed")                           \
    PICK(ends, ends, "what stands in rows that no sequence uses")                                  \
    PICK(lq, layout, "layout of q")                                                                \
    PICK(lk, layout, "layout of k")                                                                \
    PICK(lv, layout, "layout of v")                                                                \
    PICK(lo, layout, "layout of o and lse")                                                        \
    PICK(ldo, layout, "layout of dout and dlse")                                                   \
    PICK(lg, layout, "layout of dq, dk and dv")                                                    \
    PICK(lc, layout, "layout of captures and their gradients")                                     \
    INT(grads, 31, "sum of 1 dq, 2 dk, 4 dv, 8 dsink, 16 captures: which gradients are wanted")    \
    INT(nolse, 0, "1: forward alone writes no lse")                                                \
    INT(dlse, 0, "1: a gradient comes in through lse")                                             \
    TEXT(variant, "parts with ~ between them, composed (`any ~` first: one is enough); a part "    \
                  "is a text, or @name and numbers: ready-made")                                   \
    TEXT(caps, "captures: name=number, or name:type:extents:values with extents as 2x8")           \
    REAL(scale, NAN, "scale; not given: 1/sqrt(D)")                                                \
    INT(sink, 0, "1: a sink")                                                                      \
    REAL(dropout, 0, "probability")                                                                \
    INT(dseed, 0, "dropout's key")                                                                 \
    INT(seedat, 0, "1: the key lies in device memory")                                             \
    INT(offset, 0, "dropout's counter word 3")                                                     \
    INT(top_left, 0, "1: q = i")                                                                   \
    INT(det, 0, "1: deterministic")                                                                \
    INT(inv, 0, "1: batch invariant")                                                              \
    INT(b0, 0, "origin: batch entry")                                                              \
    INT(h0, 0, "origin: head")                                                                     \
    INT(i0, 0, "origin: row")                                                                      \
    INT(k0, 0, "origin: key")                                                                      \
    INT(tb, 0, "total: batch entries")                                                             \
    INT(th, 0, "total: heads")                                                                     \
    INT(tq, 0, "total: rows")                                                                      \
    INT(tk, 0, "total: keys")                                                                      \
    PICK(qs, scales, "q_scale")                                                                    \
    PICK(ks, scales, "k_scale")                                                                    \
    PICK(vs, scales, "v_scale")                                                                    \
    REAL(vmul, 1, "every other v_scale, the first among them, is multiplied by this")              \
    INT(bm, 0, "block lists: rows of a block; 0: no lists")                                        \
    INT(bn, 0, "block lists: keys of a block")                                                     \
    INT(dense, 50, "block lists: blocks listed, in percent")                                       \
    PICK(lists, lists, "block lists: extents of batch and heads")                                  \
    REAL(mul, 1, "logits are multiplied by this")                                                  \
    REAL(shift, 0, "and this is added")                                                            \
    PICK(plant, plant, "what is planted in a few elements")                                        \
    PICK(where, where, "and in which tensor; check=isolate: in k and v where no row looks")        \
    INT(align, 0, "promised alignment in bytes; 0: 16, or 1 where layouts or parts need it")       \
    INT(larger, 0, "1: the plan is made for larger sizes")                                         \
    INT(stale, 0, "1: the plan runs with other lengths and data first, and another plan between")  \
    PICK(split, split, "check=merge and shard: what is cut into parts")                            \
    INT(parts, 2, "and into how many")                                                             \
    TEXT(wrong, "check=refuse: what is wrong; refuse.c names them")                                \
    LIST(q, "elements of q, instead of random ones")                                               \
    LIST(k, "elements of k")                                                                       \
    LIST(v, "elements of v")                                                                       \
    LIST(want, "what o must be")                                                                   \
    LIST(want_lse, "what lse must be")

enum { POINT_LIST = 12, POINT_TEXT = 400, POINT_LINE = 4500 };

typedef struct point_list {
    int n;
    double x[POINT_LIST];
} point_list;

typedef struct point {
#define PICK(name, picks, about) int64_t name;
#define INT(name, start, about) int64_t name;
#define REAL(name, start, about) double name;
#define LIST(name, about) point_list name;
#define TEXT(name, about) char name[POINT_TEXT];
    POINT_FIELDS(PICK, INT, REAL, LIST, TEXT)
#undef PICK
#undef INT
#undef REAL
#undef LIST
#undef TEXT
} point;

// clang-format off
enum { CHECK_VALUE, CHECK_REPEAT, CHECK_BATCH, CHECK_THREADS, CHECK_WINDOW, CHECK_MERGE,
       CHECK_SHARD, CHECK_DROPOUT, CHECK_ISOLATE, CHECK_REFUSE };
enum { DIR_FWD, DIR_BWD };
enum { PACKED_NONE, PACKED_Q, PACKED_K, PACKED_BOTH };
enum { ENDS_FINITE, ENDS_NAN, ENDS_INF };
enum { LAYOUT_COMPACT, LAYOUT_SWAPPED, LAYOUT_PADDED, LAYOUT_ODD, LAYOUT_REVERSED, LAYOUT_HUGE,
       LAYOUT_SAME_BATCH, LAYOUT_SAME_HEAD, LAYOUT_SAME_ROW };
enum { SCALES_NONE, SCALES_ONE, SCALES_HEAD, SCALES_BLOCK, SCALES_QBLOCK };
enum { LISTS_BH, LISTS_B1, LISTS_1H, LISTS_11 };
enum { WHERE_Q, WHERE_K, WHERE_V, WHERE_DOUT };
enum { SPLIT_KEYS, SPLIT_HEADS, SPLIT_BATCH, SPLIT_ROWS };
// clang-format on

/* All fields at their defaults. */
void point_start(point *p);
/* Sets the fields that a line names. Returns 0, or -1 with a sentence in `why`. */
int point_parse(point *p, const char *line, char why[200]);
/* The canonical line. */
void point_print(const point *p, char line[POINT_LINE]);
/* The i-th field's name, choices or kind, and sentence; 0 past the end. For --help. */
int point_describe(int i, const char **name, char kind[200], const char **about);

/* The j-th number of a list; of an empty one `otherwise`. */
double point_number(const point_list *list, int64_t j, double otherwise);
static inline int64_t point_HK(const point *p) { return p->HK ? p->HK : p->H; }
static inline int64_t point_DV(const point *p) { return p->DV ? p->DV : p->D; }
static inline int point_q_packed(const point *p) { return p->packed & 1; }
static inline int point_k_packed(const point *p) { return p->packed >> 1; }

#endif
