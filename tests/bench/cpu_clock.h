/* cpu_clock.h: what the benchmarks of the CPU engine share: the clock, medians, types, TRY.

   Who includes it: cpu_bench.c, cpu_decode.c and cpu_ggml.c, before anything else. */
#ifndef CPU_CLOCK_H
#define CPU_CLOCK_H

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

/* Seconds: the process's own, which is what one thread on a shared machine is measured by, or the
   wall's. */
static inline double seconds_of(int wall) {
    struct timespec t;
    clock_gettime(wall ? CLOCK_MONOTONIC : CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static inline int by_size(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Of x[n], which it sorts: x[0] is the least then. */
static inline double median(double *x, int n) {
    qsort(x, (size_t)n, sizeof *x, by_size);
    return x[n / 2];
}

static inline int type_of(const char *name) {
    static const struct {
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

#endif
