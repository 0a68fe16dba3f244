/* cpu_bench.c: time of attention calls on the CPU engine.

       cpu_bench [variants [N [D [H [B [threads [type [way]]]]]]]]

   Defaults: true 4096 64 16 1 0 f32 both; way: forward, backward or both. Variants are divided by
   semicolons and take turns, so that a load of the machine meets all of them:

       cpu_bench 'k <= q; k <= q && q - k < 256' 32768 64 1 1 1 f32 forward

   Prints median and best of several rounds by the wall's clock, one thread's by its CPU time, in
   GFLOP/s of the plan's own count, which is that of visible pairs, and the median of a round's
   ratio to the first variant. To build:

       cc -O2 -Ilib tests/bench/cpu_bench.c libattn.a -lm -ldl -lpthread -o cpu_bench */
#include "cpu_clock.h"

enum { MOST_VARIANTS = 8, MOST_ROUNDS = 1000, TENSORS = 8 };
static const double enough = 5; /* seconds of a variant */

typedef struct variants {
    int n;
    const char *text[MOST_VARIANTS];
    attn_variant *variant[MOST_VARIANTS];
} variants;

static void parse_all(variants *all, char *text) {
    all->n = 0;
    for (char *at = strtok(text, ";"); at && all->n < MOST_VARIANTS; at = strtok(NULL, ";")) {
        all->text[all->n] = at + strspn(at, " ");
        TRY(attn_variant_parse(at, &all->variant[all->n++]));
    }
}

static void print_line(const char *way, const attn_plan_info *info, double *taken, double *ratio,
                       int rounds) {
    const double middle = median(taken, rounds);
    printf("%-8s %-14s %8.2f ms, best %8.2f  %7.1f GFLOP/s  workspace %.2f MiB  ratio %.4f", way,
           info->kernel, 1e3 * middle, 1e3 * taken[0], 1e-9 * info->flops / middle,
           (double)info->workspace / (1 << 20), median(ratio, rounds));
}

static void bench(attn_device *device, int direction, const attn_call *call, const variants *all,
                  int wall) {
    static double taken[MOST_VARIANTS][MOST_ROUNDS], ratio[MOST_VARIANTS][MOST_ROUNDS];
    attn_plan *plan[MOST_VARIANTS];
    attn_plan_info info[MOST_VARIANTS];
    void *workspace[MOST_VARIANTS];
    int rounds = 0;
    for (int e = 0; e < all->n; e++) {
        info[e] = (attn_plan_info){.size = sizeof info[e]};
        TRY(attn_plan_new(device, direction, call, all->variant[e], &plan[e]));
        TRY(attn_plan_query(plan[e], &info[e]));
        TRY(attn_buffer_new(device, info[e].workspace, &workspace[e]));
    }
    const double begin = seconds_of(wall);
    for (; rounds < MOST_ROUNDS && (rounds < 3 || seconds_of(wall) - begin < all->n * enough);
         rounds++) {
        for (int e = 0; e < all->n; e++) {
            const double start = seconds_of(wall);
            TRY(attn_run(plan[e], call, workspace[e], NULL));
            taken[e][rounds] = seconds_of(wall) - start;
            ratio[e][rounds] = taken[e][rounds] / taken[0][rounds];
        }
    }
    for (int e = 0; e < all->n; e++) {
        print_line(direction == ATTN_FORWARD ? "forward" : "backward", &info[e], taken[e], ratio[e],
                   rounds);
        printf("  %s\n", all->text[e]);
        attn_buffer_release(device, workspace[e]);
        attn_plan_release(plan[e]);
    }
}

int main(int argc, char **argv) {
    char whole[] = "true";
    const int64_t N = argc > 2 ? atoll(argv[2]) : 4096, D = argc > 3 ? atoll(argv[3]) : 64;
    const int64_t H = argc > 4 ? atoll(argv[4]) : 16, B = argc > 5 ? atoll(argv[5]) : 1;
    const int type = type_of(argc > 7 ? argv[7] : "f32");
    const char *const way = argc > 8 ? argv[8] : "both";
    attn_device_options options = {.size = sizeof options, .threads = argc > 6 ? atoi(argv[6]) : 0};
    attn_device_info about = {.size = sizeof about};
    attn_device *device;
    variants all;
    parse_all(&all, argc > 1 ? argv[1] : whole);
    TRY(attn_device_open("cpu", &options, &device));
    TRY(attn_device_query(device, &about));
    void *memory[TENSORS + 1];
    attn_tensor t[TENSORS];
    int64_t rows[] = {B, H, N, D};
    const uint64_t bytes = (uint64_t)(B * H * N * D) * (uint64_t)(type >> 11);
    for (int i = 0; i < TENSORS; i++) { /* q k v o dout dq dk dv */
        TRY(attn_buffer_new(device, bytes, &memory[i]));
        const attn_tensor made = ATTN_TENSOR(memory[i], type, B, H, N, D);
        t[i] = made;
        t[i].shape = rows;
        TRY(attn_random(device, &t[i], ATTN_NORMAL, (uint64_t)i, NULL));
    }
    TRY(attn_buffer_new(device, (uint64_t)(B * H * N) * 4, &memory[TENSORS]));
    attn_tensor lse = ATTN_TENSOR(memory[TENSORS], ATTN_F32, B, H, N);
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
    printf("%s, %d threads, B %lld H %lld N %lld D %lld\n", about.arch, about.threads, (long long)B,
           (long long)H, (long long)N, (long long)D);
    if (strcmp(way, "backward") != 0) {
        bench(device, ATTN_FORWARD, &call, &all, options.threads != 1);
    }
    if (strcmp(way, "forward") != 0) {
        bench(device, ATTN_BACKWARD, &call, &all, options.threads != 1);
    }
    for (int i = 0; i <= TENSORS; i++) {
        attn_buffer_release(device, memory[i]);
    }
    for (int e = 0; e < all.n; e++) {
        attn_variant_release(all.variant[e]);
    }
    attn_device_release(device);
    return 0;
}
