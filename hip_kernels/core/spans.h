/* spans.h: a table of the least and the greatest of every run of SPAN elements of a tensor, from
   which attn_class learns what a box reads without reading it.

   Who fills it: attn_spans.hip, before a forward. Who reads it: interval.h's iv_span, fv_span; of
   the host lib/gpu_spans.c. Runs are of the last axis, and the last one of a row may be short:

       tensor  [rows][extent]              table  [rows][ceil(extent / SPAN)] of {least, greatest},
                                                  words of the type that the variant reads        */
#ifndef ATTN_SPANS_H
#define ATTN_SPANS_H

#define SPAN 64

/* The parameters of attn_spans. */
typedef struct attn_span_table {
    u64 from, to;    /* the tensor, the table */
    i64 n[4], st[4]; /* extents, and bytes from one element to the next; axes not there: 1, 0 */
    i64 rows, runs;  /* rows in all, runs of each */
    i32 type;        /* ATTN_F32 ATTN_F16 ATTN_BF16, or one of those below */
    i32 lo, hi;      /* the bounds that an i32 tensor declares */
} attn_span_table;
#define SPANS_I32 4
#define SPANS_BOOL 5

#endif
