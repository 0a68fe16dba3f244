/* gpu_spans.c: tables of the least and the greatest elements of what a mask reads
   (hip_kernels/core/spans.h), so that the class of a block costs a few loads.

   Who calls it: gpu_text_class.c asks which tensors have one; gpu_fwd.c makes them before each run,
   behind the partial results in the workspace:

       plan   which tensors, bytes of the tables -> compile attn_spans
       run    a launch a tensor, the table's address into the tensor's last word */
#include "gpu_kernel.h"

#include "../hip_kernels/core/spans.h"

#include <stdlib.h>
#include <string.h>

/* Where rows of a tensor are shorter, its elements are read one by one. */
enum { FEW = 256 };

/* -- Which tensors ----------------------------------------------------------------------------- */

/* By q, k or i. */
static int is_of_pair(const attn__node *node) {
    return node->op == OP_leaf &&
           (node->sym == LEAF_q || node->sym == LEAF_k || node->sym == LEAF_i);
}

/* Every load of the tensor has a last index that depends on the pair, and no other that does. */
static void look_at(const attn_graph *g, const attn__node *load, const uint8_t *varies,
                    uint8_t *has) {
    int others = 0;
    for (int j = 0; j + 1 < load->n; j++) {
        others |= varies[load->u.arg[j]];
    }
    if (others || !varies[load->u.arg[load->n - 1]] || g->symbol[load->sym].rank == 0) {
        has[load->sym] = 0;
    }
}

void attn__span_symbols(const attn_graph *g, const uint8_t *need, int root, uint8_t *varies,
                        uint8_t has[ATTN__MAX_SYMBOLS]) {
    memset(has, 0, ATTN__MAX_SYMBOLS);
    for (int i = 0; i <= root; i++) {
        const attn__node *const node = &g->node[i];
        varies[i] = (uint8_t)is_of_pair(node);
        for (int j = 0; attn__has_args(node) && j < node->n; j++) {
            varies[i] |= varies[node->u.arg[j]];
        }
        if (need[i] && node->op == OP_load) {
            has[node->sym] = 1;
        }
    }
    for (int i = 0; i <= root; i++) {
        if (need[i] && g->node[i].op == OP_load) {
            look_at(g, &g->node[i], varies, has);
        }
    }
}

static int symbols_of(const attn_variant *v, uint8_t has[ATTN__MAX_SYMBOLS]) {
    const attn_graph *const g = &v->graph;
    uint8_t *const marks = attn__alloc(2 * (size_t)g->n, "a plan");
    const int32_t roots[] = {v->mask};
    if (!marks) {
        return ATTN_MEMORY;
    }
    attn__need(g, roots, 1, marks);
    attn__span_symbols(g, marks, v->mask, marks + g->n, has);
    free(marks);
    return ATTN_OK;
}

/* -- A table ----------------------------------------------------------------------------------- */

static int type_of(int type) {
    return type == ATTN_I32                       ? SPANS_I32
           : type == ATTN_U8 || type == ATTN_BOOL ? SPANS_BOOL
                                                  : attn__type_number(type);
}

/* Of a symbol of this rank; rows 0: it has none. */
static attn_span_table table_of(const attn__symbol *symbol, const attn__bound *b) {
    attn_span_table t = {.from = (u64)(uintptr_t)b->data, .type = type_of(b->type), .rows = 1};
    t.lo = symbol->bounded ? symbol->lo : INT32_MIN;
    t.hi = symbol->bounded ? symbol->hi : INT32_MAX;
    for (int axis = 0; axis < ATTN__MAX_RANK; axis++) {
        const int at = axis - (ATTN__MAX_RANK - symbol->rank);
        t.n[axis] = at < 0 ? 1 : b->n[at];
        t.st[axis] = at < 0 ? 0 : b->st[at] * attn__type_bytes(b->type);
        t.rows *= axis + 1 < ATTN__MAX_RANK ? t.n[axis] : 1;
    }
    t.runs = attn__ceil_div(t.n[ATTN__MAX_RANK - 1], SPAN);
    t.rows = t.n[ATTN__MAX_RANK - 1] > FEW && t.n[ATTN__MAX_RANK - 1] <= INT32_MAX ? t.rows : 0;
    return t;
}

static uint64_t bytes_of(const attn_span_table *t) {
    return (uint64_t)(t->rows * t->runs) * 8;
}

/* -- Plan and run ------------------------------------------------------------------------------ */

int attn__spans_plan(attn_plan *plan, attn__job *job, attn__kernel *k, uint64_t *bytes) {
    const attn__problem *const p = &plan->problem;
    const attn_graph *const g = &p->variant->graph;
    uint8_t has[ATTN__MAX_SYMBOLS];
    *bytes = 0;
    ATTN_TRY(symbols_of(p->variant, has));
    for (int i = 0; i < g->n_symbols; i++) {
        if (has[i]) {
            const attn_span_table t = table_of(&g->symbol[i], &plan->bound[i]);
            *bytes += bytes_of(&t);
        }
    }
    return *bytes ? attn__kernel_alone(plan, job, k, "attn_spans.hip", "attn_spans",
                                       ATTN__ALONE_WARPS)
                  : ATTN_OK;
}

int attn__spans_run(const attn_plan *of, const attn__kernel *k, const attn__problem *p, char *to,
                    uint64_t bytes, i64 *word, void *stream) {
    const attn_graph *const g = &p->variant->graph;
    uint8_t has[ATTN__MAX_SYMBOLS];
    int32_t begin[ATTN__MAX_SYMBOLS];
    attn__variant_words(g, begin);
    ATTN_TRY(symbols_of(p->variant, has));
    for (int i = 0; i < g->n_symbols; i++) {
        attn_span_table t = {0};
        if (has[i]) {
            t = table_of(&g->symbol[i], &p->bound[i]);
        }
        if (t.rows == 0 || bytes_of(&t) > bytes) { /* a plan's sizes bound those of a run */
            continue;
        }
        t.to = (u64)(uintptr_t)to;
        ATTN_TRY(attn__launch_rows(of, k, t.rows * t.runs, &t, sizeof t, stream));
        word[begin[i] + 1 + 2 * g->symbol[i].rank] = (i64)t.to;
        to += bytes_of(&t);
        bytes -= bytes_of(&t);
    }
    return ATTN_OK;
}
