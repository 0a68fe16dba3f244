/* cpu_peak.c: what a processor can do at most, to set the engine's figures against.

       cpu_peak [threads]      0: one, by its CPU time, on a shared machine

   Prints, each the median of several tries with all threads at work:

       fma     GFLOP/s of independent f32 multiply-adds, in the widest vectors there are
       pairs   GFLOP/s of products of bf16 pairs, where the processor has them
       tiles   the same in AMX's registers
       read    GB/s of reading memory in the order of addresses, from 1, 2 or 4 places at a time,
               whichever is fastest

   Build: cc -O3 tests/bench/cpu_peak.c -lpthread -o cpu_peak */
#define _GNU_SOURCE /* syscall */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

enum { CHAINS = 12, STEPS = 4 << 20, MOST = 256, TRIES = 9 };
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

/* The same loops for vectors of n floats. Each chain has numbers of its own, lest a compiler make
   one of equal ones; gcc and clang fuse x * y + z where the target can. */
#define LOOPS(n, features)                                                                         \
    typedef float v##n __attribute__((vector_size(n * 4), aligned(4)));                            \
    features static double fma_##n(job *j) {                                                       \
        v##n sum[CHAINS], x = (v##n){0} + 0.999f, y = (v##n){0} + 1e-3f;                           \
        for (int c = 0; c < CHAINS; c++) {                                                         \
            sum[c] = (v##n){0} + j->memory[c];                                                     \
        }                                                                                          \
        for (int i = 0; i < STEPS; i++) {                                                          \
            _Pragma("GCC unroll 12") for (int c = 0; c < CHAINS; c++) {                            \
                sum[c] = sum[c] * x + y;                                                           \
            }                                                                                      \
        }                                                                                          \
        for (int c = 0; c < CHAINS; c++) {                                                         \
            j->keep += sum[c][0];                                                                  \
        }                                                                                          \
        return 2.0 * n * CHAINS * STEPS;                                                           \
    }                                                                                              \
    features static inline                                                                         \
        __attribute__((always_inline)) double places_##n(job *j, const int places) {               \
        v##n sum[8] = {{0}};                                                                       \
        const size_t part = BYTES / 4 / (size_t)places, step = (size_t)(8 / places * n);           \
        for (size_t i = 0; i < part; i += step) {                                                  \
            _Pragma("GCC unroll 8") for (int c = 0; c < 8; c++) {                                  \
                sum[c] += *(const v##n *)(j->memory + (size_t)(c % places) * part + i +            \
                                          (size_t)(c / places * n));                               \
            }                                                                                      \
        }                                                                                          \
        for (int c = 0; c < 8; c++) {                                                              \
            j->keep += sum[c][0];                                                                  \
        }                                                                                          \
        return (double)BYTES;                                                                      \
    }                                                                                              \
    features static double read_##n##_1(job *j) {                                                  \
        return places_##n(j, 1);                                                                   \
    }                                                                                              \
    features static double read_##n##_2(job *j) {                                                  \
        return places_##n(j, 2);                                                                   \
    }                                                                                              \
    features static double read_##n##_4(job *j) {                                                  \
        return places_##n(j, 4);                                                                   \
    }

#if defined(__x86_64__)
LOOPS(16, __attribute__((target("avx512f"))))
LOOPS(8, __attribute__((target("avx2,fma"))))

__attribute__((target("avx512f,avx512bf16"))) static double pair_work(job *j) {
    __m512 sum[CHAINS];
    const __m512bh x = (__m512bh)_mm512_set1_epi32(0x3f803f80);
    for (int c = 0; c < CHAINS; c++) {
        sum[c] = _mm512_set1_ps(j->memory[c]);
    }
    for (int i = 0; i < STEPS; i++) {
        _Pragma("GCC unroll 12") for (int c = 0; c < CHAINS; c++) {
            sum[c] = _mm512_dpbf16_ps(sum[c], x, x);
        }
    }
    for (int c = 0; c < CHAINS; c++) {
        j->keep += _mm512_reduce_add_ps(sum[c]);
    }
    return 4.0 * 16 * CHAINS * STEPS;
}

/* Four sums of 16 by 16, two left and two right factors of zeros. */
__attribute__((target("amx-tile,amx-bf16"))) static double tile_work(job *j) {
    static const struct {
        unsigned char palette, start, zero[14];
        unsigned short row_bytes[16];
        unsigned char rows[16];
    } config = {1, 0, {0}, {64, 64, 64, 64, 64, 64, 64, 64}, {16, 16, 16, 16, 16, 16, 16, 16}};
    _tile_loadconfig(&config);
    for (int i = 0; i < STEPS / 4; i++) {
        _tile_dpbf16ps(0, 4, 6);
        _tile_dpbf16ps(1, 4, 7);
        _tile_dpbf16ps(2, 5, 6);
        _tile_dpbf16ps(3, 5, 7);
    }
    _tile_release();
    (void)j;
    return 2.0 * 16 * 16 * 32 * STEPS;
}

static int has_tiles(void) {
    unsigned a, b, c, d;
    return __get_cpuid_count(7, 0, &a, &b, &c, &d) && (d >> 22 & 1) && (d >> 24 & 1) &&
           syscall(SYS_arch_prctl, 0x1023, 18) == 0; /* asks Linux for the registers */
}
#endif
LOOPS(4, )

static void *run(void *arg) {
    job *const j = (job *)arg;
    j->done = j->work(j);
    return NULL;
}

static int by_size(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double measure(double (*work)(job *), int threads, job *jobs) {
    pthread_t thread[MOST];
    double rate[TRIES];
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
        rate[t] = 1e-9 * done / (now() - start);
    }
    qsort(rate, TRIES, sizeof *rate, by_size);
    return rate[TRIES / 2];
}

static void measure_all(double (*fma)(job *), double (*const read[3])(job *), int threads,
                        job *jobs) {
    double best = 0;
    printf("fma %.1f\n", measure(fma, threads, jobs));
    for (int i = 0; i < 3; i++) {
        const double rate = measure(read[i], threads, jobs);
        best = rate > best ? rate : best;
    }
    printf("read %.1f\n", best);
}

int main(int argc, char **argv) {
    const int given = argc > 1 ? atoi(argv[1]) : 1, threads = given ? given : 1;
    static job jobs[MOST];
    double (*fma)(job *) = fma_4, (*read[3])(job *) = {read_4_1, read_4_2, read_4_4};
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
#if defined(__x86_64__)
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx512f")) {
        fma = fma_16, read[0] = read_16_1, read[1] = read_16_2, read[2] = read_16_4;
    } else if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
        fma = fma_8, read[0] = read_8_1, read[1] = read_8_2, read[2] = read_8_4;
    }
#endif
    measure_all(fma, read, threads, jobs);
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx512bf16")) {
        printf("pairs %.1f\n", measure(pair_work, threads, jobs));
    }
    if (has_tiles()) {
        printf("tiles %.1f\n", measure(tile_work, threads, jobs));
    }
#endif
    return 0;
}
