/* attention.c: attention from C, forward and backward, on memory of the caller.

   A window of 128 keys with a learned slope per head, written as text; run on the fastest device
   that is here and once more on the double-precision oracle, and the two compared.

       cc examples/attention.c $(pkg-config --cflags --libs attn) -o attention && ./attention

   C11 and C++17 alike. */
#include <attn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TRY(x)                                                                                     \
    do {                                                                                           \
        if ((x) < 0) {                                                                             \
            fprintf(stderr, "%s\n", attn_error());                                                 \
            return -1;                                                                             \
        }                                                                                          \
    } while (0)

enum { B = 2, H = 8, HK = 2, N = 384, D = 64 };

static const char *text = "k <= q && q - k < 128 ? s + slopes[h] * (k - q) : -inf";

/* A compact f32 tensor with its memory. */
typedef struct array {
    attn_tensor t;
    int64_t shape[4], count;
} array;

static void array_new(array *a, int rank, int64_t n0, int64_t n1, int64_t n2, int64_t n3) {
    const int64_t shape[4] = {n0, n1, n2, n3};
    memset(a, 0, sizeof *a);
    a->count = 1;
    for (int i = 0; i < rank; i++) {
        a->shape[i] = shape[i];
        a->count *= shape[i];
    }
    a->t.data = calloc((size_t)a->count, sizeof(float));
    if (!a->t.data) {
        fprintf(stderr, "out of memory\n");
        exit(1);
    }
    a->t.ndim = rank;
    a->t.shape = a->shape;
    a->t.dtype.code = ATTN_F32 & 255;
    a->t.dtype.bits = ATTN_F32 >> 8;
    a->t.dtype.lanes = 1;
}

typedef struct inputs {
    array q, k, v, dout, slopes;
} inputs;

enum { O, LSE, DQ, DK, DV, DSLOPES, OUTPUTS };
static const char *const output_name[OUTPUTS] = {"o", "lse", "dq", "dk", "dv", "dslopes"};

static void outputs_new(array *out) {
    array_new(&out[O], 4, B, H, N, D);
    array_new(&out[LSE], 3, B, H, N, 0);
    array_new(&out[DQ], 4, B, H, N, D);
    array_new(&out[DK], 4, B, HK, N, D);
    array_new(&out[DV], 4, B, HK, N, D);
    array_new(&out[DSLOPES], 1, H, 0, 0, 0);
}

static int inputs_new(inputs *in) {
    attn_device *cpu;
    array_new(&in->q, 4, B, H, N, D);
    array_new(&in->k, 4, B, HK, N, D);
    array_new(&in->v, 4, B, HK, N, D);
    array_new(&in->dout, 4, B, H, N, D);
    array_new(&in->slopes, 1, H, 0, 0, 0);
    TRY(attn_device_open("cpu", NULL, &cpu));
    TRY(attn_random(cpu, &in->q.t, ATTN_NORMAL, 1, NULL));
    TRY(attn_random(cpu, &in->k.t, ATTN_NORMAL, 2, NULL));
    TRY(attn_random(cpu, &in->v.t, ATTN_NORMAL, 3, NULL));
    TRY(attn_random(cpu, &in->dout.t, ATTN_NORMAL, 4, NULL));
    TRY(attn_random(cpu, &in->slopes.t, ATTN_UNIFORM, 5, NULL));
    attn_device_release(cpu);
    return 0;
}

/* Plans once, runs forward and backward. Plans read shapes only and may be kept for many runs. */
static int step(const char *device_name, inputs *in, array *out) {
    attn_device *device;
    attn_variant *variant;
    attn_plan *forward, *backward;
    attn_plan_info f, b;
    attn_capture slopes;
    attn_call c;

    memset(&slopes, 0, sizeof slopes);
    slopes.name = "slopes";
    slopes.value = &in->slopes.t;
    slopes.grad = &out[DSLOPES].t;
    memset(&c, 0, sizeof c);
    c.size = sizeof c;
    c.q = &in->q.t;
    c.k = &in->k.t;
    c.v = &in->v.t;
    c.o = &out[O].t;
    c.lse = &out[LSE].t;
    c.captures = &slopes;
    c.n_captures = 1;
    c.dout = &in->dout.t;
    c.dq = &out[DQ].t;
    c.dk = &out[DK].t;
    c.dv = &out[DV].t;

    TRY(attn_device_open(device_name, NULL, &device));
    TRY(attn_variant_parse(text, &variant));
    TRY(attn_plan_new(device, ATTN_FORWARD, &c, variant, &forward));
    TRY(attn_plan_new(device, ATTN_BACKWARD, &c, variant, &backward));
    memset(&f, 0, sizeof f);
    memset(&b, 0, sizeof b);
    f.size = b.size = sizeof f;
    TRY(attn_plan_query(forward, &f));
    TRY(attn_plan_query(backward, &b));
    const uint64_t most = f.workspace > b.workspace ? f.workspace : b.workspace;
    void *workspace = aligned_alloc(64, (size_t)(most / 64 + 1) * 64);
    if (!workspace) {
        fprintf(stderr, "out of memory\n");
        return -1;
    }
    TRY(attn_run(forward, &c, workspace, NULL));
    TRY(attn_run(backward, &c, workspace, NULL));
    printf("%-5s %-20s %7llu bytes of workspace, %lld of %lld blocks visited\n", device_name,
           f.kernel, (unsigned long long)most, (long long)(f.blocks_part + f.blocks_full),
           (long long)f.blocks);

    free(workspace);
    attn_plan_release(forward);
    attn_plan_release(backward);
    attn_variant_release(variant);
    attn_device_release(device);
    return 0;
}

static double larger(double a, double b) {
    return a > b ? a : b;
}

int main(void) {
    inputs in;
    array fast[OUTPUTS], exact[OUTPUTS];
    int wrong = 0;
    outputs_new(fast);
    outputs_new(exact);
    printf("attn %s: %s\n", attn_version(), text);
    if (inputs_new(&in) < 0 || step("auto", &in, fast) < 0 || step("ref", &in, exact) < 0) {
        return 1;
    }
    for (int i = 0; i < OUTPUTS; i++) {
        const float *x = (const float *)fast[i].t.data, *y = (const float *)exact[i].t.data;
        double error = 0, largest = 0;
        for (int64_t j = 0; j < fast[i].count; j++) {
            const double d = (double)x[j] - y[j];
            error = d == d ? larger(error, larger(d, -d)) : 1;
            largest = larger(largest, larger(y[j], -y[j]));
        }
        const int ok = largest > 0 && error <= 1e-5 * larger(1, largest);
        printf("%-8s largest %8.3f  error %.1e  %s\n", output_name[i], largest, error,
               ok ? "ok" : "WRONG");
        wrong += !ok;
        free(fast[i].t.data);
        free(exact[i].t.data);
    }
    free(in.q.t.data);
    free(in.k.t.data);
    free(in.v.t.data);
    free(in.dout.t.data);
    free(in.slopes.t.data);
    return wrong != 0;
}
