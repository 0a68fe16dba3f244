/* random.h: features, their classes, and how a case is drawn.

       cover.c    classes[]  one class per feature, chosen so that every pair of classes comes early
       random.c   -> point   numbers within each class
       variety.c  -> point   the text of a variant and what it reads

   A class that cannot matter (a gradient's layout without backward) is set to 0 by `settle`, so
   pairs are counted only where both classes take part. */
#ifndef CONFORMANCE_RANDOM_H
#define CONFORMANCE_RANDOM_H

#include "suite.h"

enum { MOST_CLASSES = 20 };

/* X(NAME, weights of its classes) */
#define FEATURES(X)                                                                                \
    X(DTYPE, 6, 5, 5, 1, 1, 1, 1)       /* as point.dtype */                                       \
    X(OTYPE, 6, 1, 1, 1)                                                                           \
    X(DIR, 2, 3)                                                                                   \
    X(CHECK, 80, 2, 3, 3, 4, 2, 2, 2, 2, 3) /* value repeat batch threads merge heads batches rows \
                                               dropout isolate */                                  \
    X(PACKED, 6, 1, 1, 3)                                                                          \
    X(QUSED, 6, 2, 1, 1) /* none, within, with zeros, out of range */                              \
    X(KUSED, 6, 2, 1, 1)                                                                           \
    X(SPARE, 2, 1)                                                                                 \
    X(LONGEST, 2, 1)                                                                               \
    X(ENDS, 1, 3, 1)                                                                               \
    X(LQ, 4, 2, 2, 1, 1, 1, 1, 1) /* compact swapped padded odd reversed same_batch _head _row */  \
    X(LK, 4, 2, 2, 1, 1, 1, 1, 1)                                                                  \
    X(LV, 4, 2, 2, 1, 1, 1, 1, 1)                                                                  \
    X(LO, 4, 2, 2, 1, 1)                                                                           \
    X(LDO, 4, 2, 2, 1, 1, 1, 1, 1)                                                                 \
    X(LG, 4, 2, 2, 1, 1)                                                                           \
    X(LC, 4, 2, 2, 1, 1, 1) /* compact swapped padded odd reversed, one entry for all */           \
    X(DLSE, 2, 1)                                                                                  \
    X(NOLSE, 4, 1)                                                                                 \
    X(GRADS, 4, 1, 1) /* all, one, some */                                                         \
    X(VARIANT, 4, 4, 3, 1, 1, 2, 2, 2, 1, 2, 3, 2, 3, 2, 6, 4, 1, 2, 1) /* variety.c names them */ \
    X(SCALE, 6, 2, 1, 1) /* default, given, zero, negative */                                      \
    X(SINK, 3, 1)                                                                                  \
    X(DROPOUT, 6, 1, 1) /* none, seed by value, seed in memory */                                  \
    X(TOP_LEFT, 5, 1)                                                                              \
    X(DET, 2, 1)                                                                                   \
    X(INV, 3, 1)                                                                                   \
    X(ORIGIN, 8, 1, 1, 1) /* none, batch and heads, rows and keys, all */                          \
    X(QS, 12, 1, 1, 1, 1) /* none one head block qblock */                                         \
    X(KS, 12, 1, 1, 1, 1)                                                                          \
    X(VS, 12, 1, 1, 1, 1)                                                                          \
    X(BLOCKS, 12, 1, 1, 1, 1) /* none, lists bh b1 1h 11 */                                        \
    X(MUL, 12, 1, 1, 1) /* 1 50 4400 1e5 */                                                        \
    X(SHIFT, 12, 1, 1) /* 0 -120 -5e5 */                                                           \
    X(PLANT, 15, 1, 1, 1)                                                                          \
    X(WHERE, 1, 1, 1, 1)                                                                           \
    X(ALIGN, 5, 1) /* what the layouts have, 1 */                                                  \
    X(LARGER, 5, 1)                                                                                \
    X(STALE, 8, 1)                                                                                 \
    X(GROUP, 8, 4, 2, 1, 1, 1, 1, 1) /* 1 2 3 5 6 7 8 16 */                                        \
    X(HEADS, 6, 3, 1) /* 1, 2, 3 key/value heads */                                                \
    X(BATCH, 6, 3, 1) /* 1, 2, 3 to 5 */                                                           \
    X(NQ, 1, 4, 20, 6, 3, 1) /* 0; 1; 2 to 33; 63 to 65; 127 to 129; 1023 to 1025 */               \
    X(NK, 1, 2, 20, 8, 4, 1)                                                                       \
    X(D, 4, 6, 6, 3, 1, 1) /* below 16; 16; 24 to 64; to 128; to 256; 512 */                       \
    X(DV, 6, 1, 1)         /* D; less; more */

typedef enum feature {
#define X(NAME, ...) F_##NAME,
    FEATURES(X)
#undef X
        FEATURE_COUNT
} feature;

/* Classes of VARIANT and CHECK. */
// clang-format off
enum { V_PLAIN, V_CAUSAL, V_WINDOW, V_PREFIX, V_FIRST_KEYS, V_ALIBI, V_SLOPES, V_SOFTCAP,
       V_DILATED, V_DOCUMENT, V_BIAS, V_RELATIVE, V_MASK, V_KEEP, V_SCORE, V_COMPOSED, V_ANY,
       V_NUMBERS, V_FALSE };

enum { C_VALUE, C_REPEAT, C_BATCH, C_THREADS, C_MERGE, C_HEADS, C_BATCHES, C_ROWS, C_DROPOUT,
       C_ISOLATE };
// clang-format on

/* random.c: clears what cannot matter or does not go together. */
void settle(uint8_t classes[FEATURE_COUNT]);
void point_of_classes(point *p, const uint8_t classes[FEATURE_COUNT], rng *r);
/* variety.c */
int reads_tensors(int variant_class);
void variety_of(point *p, int variant_class, rng *r);

#endif
