/* cpu_ggml.c: the CPU engine beside llama.cpp's attention, which is ggml_flash_attn_ext.

       cpu_ggml [tries]

   Where ggml is built (https://github.com/ggml-org/ggml, `cmake -DGGML_OPENMP=OFF
   -DBUILD_SHARED_LIBS=OFF -DCMAKE_BUILD_TYPE=Release`), from its folder G:

       cc -O2 -Ilib -I$G/include -c tests/bench/cpu_ggml.c -o cpu_ggml.o
       c++ cpu_ggml.o build/libattn.a $G/build/src/libggml-cpu.a $G/build/src/libggml-base.a
           -lm -ldl -lpthread -o cpu_ggml

   One thread, its CPU time; both take turns on the same numbers, medians. ggml takes q in f32 and
   rounds it to the type of k, which is the type that attn's q has here; its causal mask is a tensor
   of f16. The results are compared. */
#include "cpu_clock.h"

#include <ggml-cpu.h>
#include <ggml.h>

#include <math.h>

enum { MOST_TRIES = 99 };

typedef struct shape {
    const char *name;
    int64_t B, H, HK, NQ, NK, D;
    int causal;
} shape;

typedef struct type {
    const char *name;
    int attn;
    enum ggml_type ggml;
} type;

/* -- attn -------------------------------------------------------------------------------------- */

typedef struct ours {
    attn_device *device;
    attn_plan *plan;
    attn_call call;
    attn_tensor q, k, v, o;
    int64_t q_shape[4], k_shape[4];
    void *workspace;
} ours;

static attn_tensor tensor(attn_device *device, int code, int64_t *n, uint64_t seed) {
    attn_tensor t = ATTN_TENSOR(NULL, code, n[0], n[1], n[2], n[3]);
    t.shape = n;
    TRY(attn_buffer_new(device, (uint64_t)(n[0] * n[1] * n[2] * n[3]) * (uint64_t)(code >> 11),
                        &t.data));
    if (seed) {
        TRY(attn_random(device, &t, ATTN_NORMAL, seed, NULL));
    }
    return t;
}

static void open_ours(ours *x, const shape *s, int code) {
    const attn_device_options options = {.size = sizeof options, .threads = 1};
    attn_variant *variant;
    attn_plan_info info = {.size = sizeof info};
    const int64_t q[] = {s->B, s->H, s->NQ, s->D}, k[] = {s->B, s->HK, s->NK, s->D};
    memset(x, 0, sizeof *x);
    memcpy(x->q_shape, q, sizeof q);
    memcpy(x->k_shape, k, sizeof k);
    TRY(attn_device_open("cpu", &options, &x->device));
    x->q = tensor(x->device, code, x->q_shape, 1);
    x->k = tensor(x->device, code, x->k_shape, 2);
    x->v = tensor(x->device, code, x->k_shape, 3);
    x->o = tensor(x->device, code, x->q_shape, 0);
    x->call = (attn_call){.size = sizeof x->call, .q = &x->q, .k = &x->k, .v = &x->v, .o = &x->o};
    TRY(attn_variant_parse(s->causal ? "k <= q" : "true", &variant));
    TRY(attn_plan_new(x->device, ATTN_FORWARD, &x->call, variant, &x->plan));
    TRY(attn_plan_query(x->plan, &info));
    TRY(attn_buffer_new(x->device, info.workspace, &x->workspace));
    attn_variant_release(variant);
}

static void run_ours(const ours *x) {
    TRY(attn_run(x->plan, &x->call, x->workspace, NULL));
}

static void close_ours(ours *x) {
    void *const memory[] = {x->q.data, x->k.data, x->v.data, x->o.data, x->workspace};
    for (int i = 0; i < 5; i++) {
        attn_buffer_release(x->device, memory[i]);
    }
    attn_plan_release(x->plan);
    attn_device_release(x->device);
}

/* -- ggml -------------------------------------------------------------------------------------- */

typedef struct theirs {
    struct ggml_context *context;
    struct ggml_cgraph *graph;
    struct ggml_tensor *o;
    struct ggml_cplan plan;
} theirs;

static void to_f32(float *to, const void *from, enum ggml_type code, int64_t n) {
    if (code == GGML_TYPE_F32) {
        memcpy(to, from, (size_t)n * sizeof *to);
    } else {
        ggml_get_type_traits(code)->to_float(from, to, n);
    }
}

static struct ggml_tensor *causal_mask(struct ggml_context *context, const shape *s) {
    struct ggml_tensor *const mask =
        ggml_new_tensor_2d(context, GGML_TYPE_F16, s->NK, GGML_PAD(s->NQ, 64));
    ggml_fp16_t *const at = (ggml_fp16_t *)mask->data;
    for (int64_t i = 0; i < GGML_PAD(s->NQ, 64); i++) {
        for (int64_t j = 0; j < s->NK; j++) {
            at[i * s->NK + j] = ggml_fp32_to_fp16(j <= i + s->NK - s->NQ ? 0 : -INFINITY);
        }
    }
    return mask;
}

static void open_theirs(theirs *x, const shape *s, enum ggml_type code, const ours *from) {
    const int64_t nq = s->B * s->H * s->NQ * s->D, nk = s->B * s->HK * s->NK * s->D;
    const struct ggml_init_params all = {
        .mem_size = (size_t)(8 * nq + 8 * nk + 4 * s->NK * (s->NQ + 64)) + (64 << 20)};
    x->context = ggml_init(all);
    struct ggml_tensor *const q =
        ggml_new_tensor_4d(x->context, GGML_TYPE_F32, s->D, s->NQ, s->H, s->B);
    struct ggml_tensor *const k = ggml_new_tensor_4d(x->context, code, s->D, s->NK, s->HK, s->B);
    struct ggml_tensor *const v = ggml_new_tensor_4d(x->context, code, s->D, s->NK, s->HK, s->B);
    to_f32((float *)q->data, from->q.data, code, nq);
    memcpy(k->data, from->k.data, ggml_nbytes(k));
    memcpy(v->data, from->v.data, ggml_nbytes(v));
    x->o = ggml_flash_attn_ext(x->context, q, k, v, s->causal ? causal_mask(x->context, s) : NULL,
                               1 / sqrtf((float)s->D), 0, 0);
    x->graph = ggml_new_graph(x->context);
    ggml_build_forward_expand(x->graph, x->o);
    x->plan = ggml_graph_plan(x->graph, 1, NULL);
    x->plan.work_data = malloc(x->plan.work_size);
}

static void run_theirs(theirs *x) {
    if (ggml_graph_compute(x->graph, &x->plan) != GGML_STATUS_SUCCESS) {
        exit(1);
    }
}

static void close_theirs(theirs *x) {
    free(x->plan.work_data);
    ggml_free(x->context);
}

/* -- Both -------------------------------------------------------------------------------------- */

/* The largest difference of the results; ggml's are [B][NQ][H][D]. */
static double difference(const shape *s, enum ggml_type code, const ours *a, const theirs *b) {
    double most = 0;
    float row[512];
    for (int64_t i = 0; i < s->B * s->H * s->NQ; i++) {
        const int64_t at = i % s->NQ, h = i / s->NQ % s->H, batch = i / s->NQ / s->H;
        const float *const y =
            (const float *)b->o->data + ((batch * s->NQ + at) * s->H + h) * s->D;
        to_f32(row, (const char *)a->o.data + (size_t)(i * s->D) * ggml_type_size(code), code,
               s->D);
        for (int64_t d = 0; d < s->D; d++) {
            const double off = fabs((double)row[d] - (double)y[d]);
            most = off > most || isnan(off) ? off : most;
        }
    }
    return most;
}

static void compare(const shape *s, const type *code, int tries) {
    double mine[MOST_TRIES], other[MOST_TRIES];
    ours a;
    theirs b;
    open_ours(&a, s, code->attn);
    open_theirs(&b, s, code->ggml, &a);
    run_ours(&a);
    run_theirs(&b);
    for (int i = 0; i < tries; i++) {
        const double begin = seconds_of(0);
        run_ours(&a);
        const double middle = seconds_of(0);
        run_theirs(&b);
        mine[i] = middle - begin;
        other[i] = seconds_of(0) - middle;
    }
    const double x = median(mine, tries), y = median(other, tries);
    printf("| %s | %s | %.2f | %.2f | %.2f | differs by %.1e\n", s->name, code->name, 1e3 * x,
           1e3 * y, y / x, difference(s, code->ggml, &a, &b));
    fflush(stdout);
    close_theirs(&b);
    close_ours(&a);
}

int main(int argc, char **argv) {
    static const shape shapes[] = {
        {"prefill H4 S2048 D128", 1, 4, 4, 2048, 2048, 128, 0},
        {"prefill H4 S2048 D128 causal", 1, 4, 4, 2048, 2048, 128, 1},
        {"prefill H4 S2048 D64 causal", 1, 4, 4, 2048, 2048, 64, 1},
        {"decode B8 H32/8 S8192 D128", 8, 32, 8, 1, 8192, 128, 0},
        {"decode H1 S131072 D128", 1, 1, 1, 1, 131072, 128, 0},
    };
    static const type types[] = {{"f32", ATTN_F32, GGML_TYPE_F32},
                                 {"f16", ATTN_F16, GGML_TYPE_F16},
                                 {"bf16", ATTN_BF16, GGML_TYPE_BF16}};
    const int given = argc > 1 ? atoi(argv[1]) : 5;
    const int tries = given < 1 ? 1 : given > MOST_TRIES ? MOST_TRIES : given;
    ggml_cpu_init();
    printf("| case | type | attn ms | ggml ms | ratio |\n");
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        for (size_t e = 0; e < sizeof types / sizeof types[0]; e++) {
            compare(&shapes[i], &types[e], tries);
        }
    }
    return 0;
}
