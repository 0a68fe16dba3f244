/* problem.h: what the two halves of reading a call share.

   Who includes it: problem.c (sizes, lengths, origins, the order of it all), problem_tensors.c (the
   tensors that must fit those sizes). */
#ifndef ATTN_PROBLEM_H
#define ATTN_PROBLEM_H

#include "expr.h"

typedef struct attn__reader {
    const attn_device *device;
    const attn_call *call;
    attn__problem *p;
    int planning, ref;
} attn__reader;

/* -- problem.c --------------------------------------------------------------------------------- */
/* An absent tensor is a view of type 0. */
int attn__read_view(const attn__reader *r, const attn_tensor *t, const attn__want *want,
                    attn__view *view);
int attn__read_need(const void *given, const char *name, const char *why);
/* Extents against b, h, n, d; an absent tensor fits. */
int attn__read_fits(const char *name, const attn__view *t, int64_t b, int64_t h, int64_t n,
                    int64_t d);

/* -- problem_tensors.c ------------------------------------------------------------------------- */
int attn__read_results(const attn__reader *r);
int attn__read_sink(const attn__reader *r);
int attn__read_scales(const attn__reader *r);
int attn__read_blocks(const attn__reader *r);

#endif
