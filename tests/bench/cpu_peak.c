/* cpu_peak.c: what a processor can do at most, to set the engine's figures against.

       cpu_peak [threads]      0: one, by its CPU time, on a shared machine

   Prints GFLOP/s of independent fused multiply-adds (f32) and of products of bf16 pairs, both of
   AVX-512, and GB/s of reading memory, each the best of several tries with all threads at work. A
   line that the processor cannot run is left out. Build: cc -O3 tests/bench/cpu_peak.c -lpthread */
#define _POSIX_C_SOURCE 200809L
#include <immintrin.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { CHAINS = 16, STEPS = 4 << 20, MOST = 256, TRIES = 9 };
static const size_t BYTES = (size_t)256 << 20;

typedef struct job {
    double (*work)(struct job *); /* returns what was done */
    const float *memory;          /* [BYTES / 4] */
    double done;
    float keep;
} job;

static int cpu_time; /* count the process's own time: one thread on a shared machine */

static double now(void) {
    struct timespec t;
    clock_gettime(cpu_time ? CLOCK_PROCESS_CPUTIME_ID : CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

__attribute__((target("avx512f"))) static double fma_work(job *j) {
    __m512 sum[CHAINS], x = _mm512_set1_ps(0.999f), y = _mm512_set1_ps(1e-3f);
    for (int c = 0; c < CHAINS; c++) { /* each its own, lest a compiler make one of equal ones */
        sum[c] = _mm512_set1_ps(j->memory[c]);
    }
    for (int i = 0; i < STEPS; i++) {
#pragma GCC unroll 16
        for (int c = 0; c < CHAINS; c++) {
            sum[c] = _mm512_fmadd_ps(sum[c], x, y);
        }
    }
#pragma GCC unroll 16
    for (int c = 0; c < CHAINS; c++) {
        j->keep += _mm512_reduce_add_ps(sum[c]);
    }
    return 2.0 * 16 * CHAINS * STEPS;
}

__attribute__((target("avx512f,avx512bf16"))) static double pair_work(job *j) {
    __m512 sum[CHAINS];
    const __m512bh x = (__m512bh)_mm512_set1_epi32(0x3f803f80);
    for (int c = 0; c < CHAINS; c++) {
        sum[c] = _mm512_set1_ps(j->memory[c]);
    }
    for (int i = 0; i < STEPS; i++) {
#pragma GCC unroll 16
        for (int c = 0; c < CHAINS; c++) {
            sum[c] = _mm512_dpbf16_ps(sum[c], x, x);
        }
    }
#pragma GCC unroll 16
    for (int c = 0; c < CHAINS; c++) {
        j->keep += _mm512_reduce_add_ps(sum[c]);
    }
    return 4.0 * 16 * CHAINS * STEPS;
}

__attribute__((target("avx512f"))) static double read_work(job *j) {
    __m512 sum[8];
    memset(sum, 0, sizeof sum);
    for (size_t i = 0; i < BYTES / 4; i += 128) {
#pragma GCC unroll 8
        for (size_t c = 0; c < 8; c++) {
            sum[c] = _mm512_add_ps(sum[c], _mm512_loadu_ps(j->memory + i + 16 * c));
        }
    }
#pragma GCC unroll 8
    for (int c = 0; c < 8; c++) {
        j->keep += _mm512_reduce_add_ps(sum[c]);
    }
    return (double)BYTES;
}

static void *run(void *arg) {
    job *const j = (job *)arg;
    j->done = j->work(j);
    return NULL;
}

static void measure(const char *what, double (*work)(job *), int threads, job *jobs) {
    pthread_t thread[MOST];
    double best = 0;
    for (int t = 0; t < TRIES; t++) {
        const double start = now();
        double done = 0;
        for (int i = 0; i < threads; i++) {
            jobs[i].work = work;
            if (pthread_create(&thread[i], NULL, run, &jobs[i])) {
                exit(1);
            }
        }
        for (int i = 0; i < threads; i++) {
            pthread_join(thread[i], NULL);
            done += jobs[i].done;
        }
        const double rate = 1e-9 * done / (now() - start);
        best = rate > best ? rate : best;
    }
    printf("%s %.1f\n", what, best);
}

int main(int argc, char **argv) {
    const int given = argc > 1 ? atoi(argv[1]) : 1, threads = given ? given : 1;
    static job jobs[MOST];
    cpu_time = given == 0;
    if (threads < 1 || threads > MOST) {
        fprintf(stderr, "1 to %d threads\n", MOST);
        return 1;
    }
    for (int i = 0; i < threads; i++) {
        float *const memory = malloc(BYTES);
        if (!memory) {
            return 1;
        }
        for (size_t e = 0; e < BYTES / 4; e++) {
            memory[e] = (float)e;
        }
        jobs[i].memory = memory;
    }
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx512f")) {
        measure("fma", fma_work, threads, jobs);
        measure("read", read_work, threads, jobs);
    }
    if (__builtin_cpu_supports("avx512bf16")) {
        measure("pairs", pair_work, threads, jobs);
    }
    return 0;
}
