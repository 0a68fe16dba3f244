/* bundle.c: the kernels of a list as a file for machines without a compiler.

       bundle CHIP LIST OUT        bundle gfx942 tools/kernels.txt attn-gfx942.bundle

   CHIP is what "make:CHIP" knows; a line of LIST is like those of tools/kernels.txt: element type,
   D, DV, query rows, features, and a variant between quotes; backward where the features have dq,
   dkdv or, of all three, fused; one for multistage where plans take another schedule is passed
   over. What the chip cannot do is left out, and said. ATTN_CLANG=clang-22
   or ATTN_NVCC=nvcc names a compiler that is a program.

   Who calls it: //:bundle_sm80 and its like. A script does the same for its own calls:
   docs/drivers.md, "Bundles". */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "expr.h"

enum { HEADS = 8, KEYS = 4096, LONG = 65536, LINE = 1024 };

typedef struct task {
    attn_device *device;
    attn_variant *variant;
    char type[8], features[LINE];
    int type_number;
    int64_t d, dv, rows;
    int kernels, left_out;
} task;

static int has(const task *t, const char *feature) {
    return strstr(t->features, feature) != NULL;
}

/* A plan reads shapes alone. */
static _Alignas(64) char nothing[64];
static attn_tensor tensor(int type, int rank, int64_t *shape) {
    const attn_tensor t = {.data = nothing,
                           .ndim = rank,
                           .dtype = {(uint8_t)(type & 255), (uint8_t)(type >> 8), 1},
                           .shape = shape};
    return t;
}

/* What the variant reads: of a tensor, rank and type are all that matters. */
static int bind(const task *t, attn_capture *captures, attn_tensor *of, int64_t *extents) {
    const attn_graph *const g = &t->variant->graph;
    for (int i = 0; i < g->n_symbols; i++) {
        of[i] =
            tensor(g->symbol[i].type == VT_F32 ? ATTN_F32 : ATTN_I32, g->symbol[i].rank, extents);
        captures[i] =
            (attn_capture){.name = g->symbol[i].name, .value = g->symbol[i].rank ? &of[i] : NULL};
    }
    return g->n_symbols;
}

static void plan(task *t, int direction, const attn_call *call, const char *line) {
    attn_plan *made = NULL;
    if (attn_plan_new(t->device, direction, call, t->variant, &made) < 0) {
        printf("left out: %s: %s\n", line, attn_error());
        t->left_out++;
    } else {
        t->kernels++;
    }
    attn_plan_release(made);
}

static void plan_line(task *t, const char *line) {
    int64_t q_shape[] = {1, HEADS, t->rows, t->d}, k_shape[] = {1, HEADS, KEYS, t->d};
    int64_t v_shape[] = {1, HEADS, KEYS, t->dv}, o_shape[] = {1, HEADS, t->rows, t->dv};
    int64_t lse_shape[] = {1, HEADS, t->rows}, one[] = {1};
    int64_t counts_shape[] = {1, 1, 1}, indices_shape[] = {1, 1, 1, 1};
    int64_t extents[] = {HEADS, HEADS, HEADS, HEADS, HEADS, HEADS, HEADS, HEADS};
    const attn_tensor q = tensor(t->type_number, 4, q_shape),
                      k = tensor(t->type_number, 4, k_shape),
                      v = tensor(t->type_number, 4, v_shape),
                      o = tensor(t->type_number, 4, o_shape), lse = tensor(ATTN_F32, 3, lse_shape),
                      scale = tensor(ATTN_F32, 1, one), counts = tensor(ATTN_I32, 3, counts_shape),
                      indices = tensor(ATTN_I32, 4, indices_shape);
    const attn_blocks blocks = {
        .size = sizeof blocks, .bm = t->rows, .bn = KEYS, .counts = &counts, .indices = &indices};
    attn_capture captures[ATTN__MAX_SYMBOLS];
    attn_tensor of[ATTN__MAX_SYMBOLS];
    attn_call call = {.size = sizeof call,
                      .q = &q,
                      .k = &k,
                      .v = &v,
                      .o = &o,
                      .lse = &lse,
                      .dout = &o,
                      .captures = captures};
    call.n_captures = bind(t, captures, of, extents);
    call.dropout = has(t, "dropout") ? 0.5 : 0;
    if (has(t, "scales")) {
        call.q_scale = call.k_scale = call.v_scale = &scale;
    }
    call.blocks = has(t, "blocks") ? &blocks : NULL;
    const int dq = has(t, "dq") || has(t, "fused"), dkdv = has(t, "dkdv") || has(t, "fused");
    call.dq = dq ? &q : NULL;
    call.dk = dkdv ? &k : NULL;
    call.dv = dkdv ? &v : NULL;
    plan(t, dq || dkdv ? ATTN_BACKWARD : ATTN_FORWARD, &call, line);
}

/* The kernels that stand alone: one row of many keys, rows of no sequence, a sink's gradient. */
static void plan_alone(task *t) {
    int64_t q_shape[] = {1, 1, 1, 64}, k_shape[] = {1, 1, LONG, 64}, one[] = {1}, row[] = {1, 1, 1};
    const attn_tensor q = tensor(ATTN_F16, 4, q_shape), k = tensor(ATTN_F16, 4, k_shape),
                      used = tensor(ATTN_I32, 1, one), lse = tensor(ATTN_F32, 3, row),
                      sink = tensor(ATTN_F32, 1, one);
    attn_call call = {.size = sizeof call, .q = &q, .k = &k, .v = &k, .o = &q, .q_used = &used};
    plan(t, ATTN_FORWARD, &call, "one row");
    call.lse = &lse;
    call.dout = call.dq = &q;
    call.sink = call.dsink = &sink;
    plan(t, ATTN_BACKWARD, &call, "one row, backward");
}

/* 0: no line of a list. */
static int read_line(task *t, char *line) {
    char *const text = strchr(line, '"'), *const end = text ? strrchr(line, '"') : NULL;
    int at = 0;
    line += strspn(line, "* ");
    if (*line == '#' || (end && end == text) ||
        sscanf(line, "%7s %lld %lld %lld %n", t->type, (long long *)&t->d, (long long *)&t->dv,
               (long long *)&t->rows, &at) != 4) {
        return 0;
    }
    if (end) {
        *end = 0;
    }
    snprintf(t->features, sizeof t->features, "%.*s", text ? (int)(text - (line + at)) : LINE - 1,
             line + at);
    t->type_number = strcmp(t->type, "f16") == 0    ? ATTN_F16
                     : strcmp(t->type, "bf16") == 0 ? ATTN_BF16
                     : strcmp(t->type, "f32") == 0  ? ATTN_F32
                                                    : 0;
    return t->type_number && attn_variant_parse(text ? text + 1 : "s", &t->variant) == ATTN_OK;
}

int main(int argc, char **argv) {
    char name[64], line[LINE], copy[LINE];
    task t = {0};
    FILE *const list = argc == 4 ? fopen(argv[2], "r") : NULL;
    const time_t began = time(NULL);
    snprintf(name, sizeof name, "make:%.40s", argc == 4 ? argv[1] : "");
    if (!list || attn_device_open(name, NULL, &t.device) < 0) {
        fprintf(stderr, "bundle CHIP LIST OUT: %s\n", list ? attn_error() : "no list");
        return 2;
    }
    plan_alone(&t);
    while (fgets(line, sizeof line, list)) {
        line[strcspn(line, "\n")] = 0;
        snprintf(copy, sizeof copy, "%s", line);
        if (read_line(&t, copy)) {
            if (!has(&t, "multistage")) {
                plan_line(&t, line);
            }
            attn_variant_release(t.variant);
            t.variant = NULL;
        }
    }
    fclose(list);
    const int status = attn_bundle_write(t.device, argv[3]);
    printf("%s: %d plans, %d left out, %lld s\n", argv[3], t.kernels, t.left_out,
           (long long)(time(NULL) - began));
    attn_device_release(t.device);
    if (status < 0) {
        fprintf(stderr, "%s\n", attn_error());
    }
    return status < 0 || t.kernels == 0;
}
