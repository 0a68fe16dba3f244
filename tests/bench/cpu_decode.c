/* cpu_decode.c: a decoding step of the CPU engine beside a read of the same memory, in turn.

       cpu_decode [B [H [HK [S [D [type [tries]]]]]]]      defaults: 8 32 8 8192 128 bf16 15

   One thread's CPU time, medians of the tries; `read` is the median of reads of k and v by vectors,
   at 4 places of each, one before each call. To build:

       cc -O3 -march=native -Ilib tests/bench/cpu_decode.c libattn.a -lm -ldl -lpthread */
#include "cpu_clock.h"

enum { MOST = 999, PLACES = 4, VECTOR = 16 };
typedef float vec __attribute__((vector_size(VECTOR * 4), aligned(4)));

/* The sum of all floats of x, lest the loads be left out. */
static float read_all(const float *x, size_t bytes) {
    vec sum[2 * PLACES] = {{0}};
    const size_t part = bytes / 4 / PLACES;
    for (size_t i = 0; i + 2 * VECTOR <= part; i += 2 * VECTOR) {
        _Pragma("GCC unroll 8") for (int c = 0; c < 2 * PLACES; c++) {
            sum[c] += *(const vec *)(x + (size_t)(c % PLACES) * part + i +
                                     (size_t)(c / PLACES) * VECTOR);
        }
    }
    float all = 0;
    for (int c = 0; c < 2 * PLACES; c++) {
        all += sum[c][0];
    }
    return all;
}

int main(int argc, char **argv) {
    int64_t size[5] = {8, 32, 8, 8192, 128};
    for (int i = 0; i < 5 && i + 1 < argc; i++) {
        size[i] = atoll(argv[i + 1]);
    }
    const char *const name = argc > 6 ? argv[6] : "bf16";
    const int tries = argc > 7 && atoi(argv[7]) < MOST ? atoi(argv[7]) : 15;
    const int type = type_of(name);
    const int64_t B = size[0], H = size[1], HK = size[2], S = size[3], D = size[4];
    const size_t each = (size_t)(type >> 11), few = (size_t)(B * H * D) * each,
                 bytes = (size_t)(B * HK * S * D) * each;
    attn_device_options options = {.size = sizeof options, .threads = 1};
    attn_device *device;
    TRY(attn_device_open("cpu", &options, &device));
    void *memory[5];
    for (int i = 0; i < 5; i++) { /* q k v o lse */
        TRY(attn_buffer_new(device, i == 1 || i == 2 ? bytes : few + (size_t)(B * H) * 4,
                            &memory[i]));
    }
    attn_tensor q = ATTN_TENSOR(memory[0], type, B, H, 1, D);
    attn_tensor k = ATTN_TENSOR(memory[1], type, B, HK, S, D);
    attn_tensor v = ATTN_TENSOR(memory[2], type, B, HK, S, D);
    attn_tensor o = ATTN_TENSOR(memory[3], type, B, H, 1, D);
    attn_tensor lse = ATTN_TENSOR(memory[4], ATTN_F32, B, H, 1);
    TRY(attn_random(device, &q, ATTN_NORMAL, 1, NULL));
    TRY(attn_random(device, &k, ATTN_NORMAL, 2, NULL));
    TRY(attn_random(device, &v, ATTN_NORMAL, 3, NULL));
    const attn_call call = {
        .size = sizeof call, .q = &q, .k = &k, .v = &v, .o = &o, .lse = &lse};
    attn_plan *plan;
    attn_plan_info info = {.size = sizeof info};
    void *workspace;
    TRY(attn_plan_new(device, ATTN_FORWARD, &call, NULL, &plan));
    TRY(attn_plan_query(plan, &info));
    TRY(attn_buffer_new(device, info.workspace, &workspace));
    double read[MOST], run[MOST];
    float sink = 0;
    for (int i = -1; i < tries; i++) {
        const double a = seconds_of(0);
        sink += read_all(memory[1], bytes) + read_all(memory[2], bytes);
        const double b = seconds_of(0);
        TRY(attn_run(plan, &call, workspace, NULL));
        const double c = seconds_of(0);
        if (i >= 0) {
            read[i] = b - a;
            run[i] = c - b;
        }
    }
    const double r = median(read, tries), t = median(run, tries);
    printf("%s %s: %.2f ms, best %.2f, %.1f GB/s; read %.2f ms, best %.2f, %.1f GB/s; %.0f %%\n",
           info.kernel, name, 1e3 * t, 1e3 * run[0], 2e-9 * (double)bytes / t, 1e3 * r,
           1e3 * read[0], 2e-9 * (double)bytes / r, 100 * r / t);
    return sink == 1; /* it is used */
}
