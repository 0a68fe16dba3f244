/* cpu_bench.c: time of one attention call on the CPU engine.

       cpu_bench [variant [N [D [H [B [threads [type [way]]]]]]]]

   Defaults: true 4096 64 16 1 0 f32 both; way: forward, backward or both.

   Prints the best of several runs by the wall's clock, one thread's by its CPU time, in GFLOP/s of
   the plan's own count, which is that of visible pairs. To build:

       cc -O2 -Ilib tests/bench/cpu_bench.c libattn.a -lm -ldl -lpthread -o cpu_bench */
#define _POSIX_C_SOURCE 200809L
#include "attn.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define TRY(x)                                                                                     \
    do {                                                                                           \
        if ((x) < 0) {                                                                             \
            fprintf(stderr, "%s\n", attn_error());                                                 \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

static int cpu_time; /* count the process's own time: one thread on a shared machine */

static double now(void) {
    struct timespec t;
    clock_gettime(cpu_time ? CLOCK_PROCESS_CPUTIME_ID : CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int type_of(const char *name) {
    const struct {
        const char *name;
        int type;
    } all[] = {{"f32", ATTN_F32}, {"f16", ATTN_F16}, {"bf16", ATTN_BF16}};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        if (strcmp(all[i].name, name) == 0) {
            return all[i].type;
        }
    }
    fprintf(stderr, "type %s; f32, f16 and bf16 are allowed\n", name);
    exit(1);
}

static void bench(attn_device *device, int direction, const attn_call *call,
                  const attn_variant *variant) {
    attn_plan *plan;
    attn_plan_info info = {.size = sizeof info};
    void *workspace;
    TRY(attn_plan_new(device, direction, call, variant, &plan));
    TRY(attn_plan_query(plan, &info));
    TRY(attn_buffer_new(device, info.workspace, &workspace));
    double best = 1e30;
    const double begin = now();
    for (int i = 0; i < 1000 && (i < 3 || now() - begin < 5); i++) {
        const double start = now();
        TRY(attn_run(plan, call, workspace, NULL));
        const double seconds = now() - start;
        best = seconds < best ? seconds : best;
    }
    printf("%-8s %-14s %8.2f ms  %7.1f GFLOP/s  workspace %.2f MiB\n",
           direction == ATTN_FORWARD ? "forward" : "backward", info.kernel, 1e3 * best,
           1e-9 * info.flops / best, (double)info.workspace / (1 << 20));
    attn_buffer_release(device, workspace);
    attn_plan_release(plan);
}

int main(int argc, char **argv) {
    const char *const text = argc > 1 ? argv[1] : "true";
    const int64_t N = argc > 2 ? atoll(argv[2]) : 4096, D = argc > 3 ? atoll(argv[3]) : 64;
    const int64_t H = argc > 4 ? atoll(argv[4]) : 16, B = argc > 5 ? atoll(argv[5]) : 1;
    const int type = type_of(argc > 7 ? argv[7] : "f32");
    attn_device_options options = {.size = sizeof options, .threads = argc > 6 ? atoi(argv[6]) : 0};
    attn_device_info about = {.size = sizeof about};
    attn_device *device;
    attn_variant *variant;
    cpu_time = options.threads == 1;
    TRY(attn_device_open("cpu", &options, &device));
    TRY(attn_device_query(device, &about));
    TRY(attn_variant_parse(text, &variant));
    void *memory[9];
    attn_tensor t[8], lse;
    const uint64_t bytes = (uint64_t)(B * H * N * D) * (uint64_t)(type >> 11);
    for (int i = 0; i < 8; i++) { /* q k v o dout dq dk dv */
        TRY(attn_buffer_new(device, bytes, &memory[i]));
        const attn_tensor made = ATTN_TENSOR(memory[i], type, B, H, N, D);
        TRY(attn_random(device, &made, ATTN_NORMAL, (uint64_t)i, NULL));
        t[i] = made;
    }
    int64_t rows[] = {B, H, N, D};
    for (int i = 0; i < 8; i++) {
        t[i].shape = rows;
    }
    TRY(attn_buffer_new(device, (uint64_t)(B * H * N) * 4, &memory[8]));
    const attn_tensor made = ATTN_TENSOR(memory[8], ATTN_F32, B, H, N);
    lse = made;
    const attn_call call = {.size = sizeof call,
                            .q = &t[0],
                            .k = &t[1],
                            .v = &t[2],
                            .o = &t[3],
                            .lse = &lse,
                            .dout = &t[4],
                            .dq = &t[5],
                            .dk = &t[6],
                            .dv = &t[7]};
    printf("%s, %d threads, B %lld H %lld N %lld D %lld, %s\n", about.arch, about.threads,
           (long long)B, (long long)H, (long long)N, (long long)D, text);
    const char *const way = argc > 8 ? argv[8] : "both";
    if (strcmp(way, "backward") != 0) {
        bench(device, ATTN_FORWARD, &call, variant);
    }
    if (strcmp(way, "forward") != 0) {
        bench(device, ATTN_BACKWARD, &call, variant);
    }
    for (int i = 0; i < 9; i++) {
        attn_buffer_release(device, memory[i]);
    }
    attn_variant_release(variant);
    attn_device_release(device);
    return 0;
}
