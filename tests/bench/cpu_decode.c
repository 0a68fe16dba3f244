/* cpu_decode.c: a decoding step of the CPU engine beside reads of as much memory, in turn.

       cpu_decode [B [H [HK [S [D [type [tries [threads]]]]]]]]  defaults: 8 32 8 8192 128 bf16 5 0

   threads 0: one thread and its CPU time, on a shared machine; else so many, and the wall's clock.
   There are so many k and v that they have 1 GiB together, and each call takes the next ones, as
   the layers of a model would, so that caches hold nothing of them. Before each call every thread
   reads its share of the k and v before these by vectors, in one of these ways, by turns:

       at 1, 2 or 4 places of the share at a time      read      loads alone
                                                       asked     each line asked for 2 KiB ahead

   Times are medians of the tries, of a way's own tries; `read` and `asked` are those of the fastest
   way. To build:

       cc -O3 -march=native -Ilib tests/bench/cpu_decode.c libattn.a -lm -ldl -lpthread */
#include "cpu_clock.h"

#include <pthread.h>

enum { MOST = 999, VECTOR = 16, LOADS = 8, THREADS = 256, WAYS = 6, AHEAD = 2048 };
typedef float vec __attribute__((vector_size(VECTOR * 4), aligned(4)));

typedef struct share {
    const char *at[2]; /* of k and v */
    size_t bytes;
    int way;
    float sum; /* of all floats, lest the loads be left out */
} share;

static inline __attribute__((always_inline)) float read_at(const char *x, size_t bytes,
                                                           const size_t places, const int ask) {
    const size_t part = bytes / places / sizeof(vec) * sizeof(vec), each = LOADS / places;
    vec sum[LOADS] = {{0}};
    float all = 0;
    for (size_t i = 0; i + each * sizeof(vec) <= part; i += each * sizeof(vec)) {
        _Pragma("GCC unroll 8") for (size_t c = 0; c < LOADS; c++) {
            const char *const at = x + c % places * part + i + c / places * sizeof(vec);
            sum[c] += *(const vec *)at;
            if (ask) {
                __builtin_prefetch(at + AHEAD, 0, 3);
            }
        }
    }
    for (int c = 0; c < LOADS; c++) {
        all += sum[c][0];
    }
    return all;
}

static float read_way(const char *x, size_t bytes, int way) {
    switch (way) {
    case 0: return read_at(x, bytes, 1, 0);
    case 1: return read_at(x, bytes, 2, 0);
    case 2: return read_at(x, bytes, 4, 0);
    case 3: return read_at(x, bytes, 1, 1);
    case 4: return read_at(x, bytes, 2, 1);
    default: return read_at(x, bytes, 4, 1);
    }
}

static void *read_share(void *arg) {
    share *const s = (share *)arg;
    s->sum = read_way(s->at[0], s->bytes, s->way) + read_way(s->at[1], s->bytes, s->way);
    return NULL;
}

/* All of k and v, by so many threads. */
static float read_all(const void *k, const void *v, size_t bytes, int threads, int way) {
    pthread_t thread[THREADS];
    share s[THREADS];
    float sum = 0;
    for (int i = threads - 1; i >= 0; i--) {
        const size_t each = bytes / (size_t)threads, from = (size_t)i * each;
        s[i] = (share){{(const char *)k + from, (const char *)v + from}, each, way, 0};
        if (i == 0) {
            read_share(&s[i]);
        } else if (pthread_create(&thread[i], NULL, read_share, &s[i])) {
            exit(1);
        }
    }
    for (int i = 0; i < threads; i++) {
        if (i) {
            pthread_join(thread[i], NULL);
        }
        sum += s[i].sum;
    }
    return sum;
}

/* The least of the medians of ways begin..end. */
static double fastest(double read[WAYS][MOST], int begin, int end, int tries) {
    double best = median(read[begin], tries);
    for (int i = begin + 1; i < end; i++) {
        const double t = median(read[i], tries);
        best = t < best ? t : best;
    }
    return best;
}

/* k and v of a call, `sets` times. */
typedef struct memory {
    int sets;
    void *k[MOST], *v[MOST];
} memory;

static void fill(memory *to, attn_device *device, attn_tensor *k, attn_tensor *v, size_t bytes) {
    to->sets = 2 + 2 * (int)(((size_t)1 << 28) / bytes); /* even: reads have half of them */
    if (to->sets > MOST) {
        fprintf(stderr, "k and v are too small\n");
        exit(1);
    }
    for (int i = 0; i < to->sets; i++) { /* AHEAD is asked for beyond them */
        TRY(attn_buffer_new(device, bytes + AHEAD, &to->k[i]));
        TRY(attn_buffer_new(device, bytes + AHEAD, &to->v[i]));
    }
    k->data = to->k[0];
    v->data = to->v[0];
    TRY(attn_random(device, k, ATTN_NORMAL, 2, NULL));
    TRY(attn_random(device, v, ATTN_NORMAL, 3, NULL));
    for (int i = 1; i < to->sets; i++) {
        memcpy(to->k[i], to->k[0], bytes);
        memcpy(to->v[i], to->v[0], bytes);
    }
}

static double read_time[WAYS][MOST], run_time[WAYS * MOST];

/* Reads and calls in turn; returns the sum of what was read. */
static float measure(attn_device *device, const attn_call *call, attn_tensor *k, attn_tensor *v,
                     size_t bytes, int tries, int wall, attn_plan_info *info) {
    static memory all;
    attn_plan *plan;
    void *workspace;
    float sum = 0;
    fill(&all, device, k, v, bytes);
    TRY(attn_plan_new(device, ATTN_FORWARD, call, NULL, &plan));
    TRY(attn_plan_query(plan, info));
    TRY(attn_buffer_new(device, info->workspace, &workspace));
    for (int i = -1; i < tries * WAYS; i++) {
        const int at = i < 0 ? 0 : i, way = at % WAYS, set = 2 * at % all.sets;
        const double a = seconds_of(wall);
        sum += read_all(all.k[set], all.v[set], bytes, wall ? wall : 1, way);
        const double b = seconds_of(wall);
        k->data = all.k[set + 1];
        v->data = all.v[set + 1];
        TRY(attn_run(plan, call, workspace, NULL));
        read_time[way][at / WAYS] = b - a;
        run_time[at] = seconds_of(wall) - b;
    }
    return sum;
}

int main(int argc, char **argv) {
    int64_t size[5] = {8, 32, 8, 8192, 128};
    for (int i = 0; i < 5 && i + 1 < argc; i++) {
        size[i] = atoll(argv[i + 1]);
    }
    const char *const name = argc > 6 ? argv[6] : "bf16";
    const int tries = argc > 7 && atoi(argv[7]) < MOST ? atoi(argv[7]) : 5;
    const int wall = argc > 8 ? atoi(argv[8]) : 0, type = type_of(name);
    const int64_t B = size[0], H = size[1], HK = size[2], S = size[3], D = size[4];
    const size_t each = (size_t)(type >> 11), few = (size_t)(B * H * D) * each,
                 bytes = (size_t)(B * HK * S * D) * each;
    attn_device_options options = {.size = sizeof options, .threads = wall ? wall : 1};
    attn_device *device;
    if (tries < 1 || wall < 0 || wall > THREADS) {
        fprintf(stderr, "1 to %d tries, 0 to %d threads\n", MOST - 1, THREADS);
        return 1;
    }
    TRY(attn_device_open("cpu", &options, &device));
    void *row[3]; /* q o lse */
    for (int i = 0; i < 3; i++) {
        TRY(attn_buffer_new(device, few + (size_t)(B * H) * 4, &row[i]));
    }
    attn_tensor q = ATTN_TENSOR(row[0], type, B, H, 1, D);
    attn_tensor k = ATTN_TENSOR(NULL, type, B, HK, S, D);
    attn_tensor v = ATTN_TENSOR(NULL, type, B, HK, S, D);
    attn_tensor o = ATTN_TENSOR(row[1], type, B, H, 1, D);
    attn_tensor lse = ATTN_TENSOR(row[2], ATTN_F32, B, H, 1);
    const attn_call call = {
        .size = sizeof call, .q = &q, .k = &k, .v = &v, .o = &o, .lse = &lse};
    attn_plan_info info = {.size = sizeof info};
    TRY(attn_random(device, &q, ATTN_NORMAL, 1, NULL));
    const float sum = measure(device, &call, &k, &v, bytes, tries, wall, &info);
    const double plain = fastest(read_time, 0, WAYS / 2, tries);
    const double asked = fastest(read_time, WAYS / 2, WAYS, tries);
    const double t = median(run_time, tries * WAYS), gb = 2e-9 * (double)bytes;
    printf("%s %s: %.2f ms, best %.2f, %.1f GB/s; read %.1f GB/s: %.0f %%; asked %.1f: %.0f %%\n",
           info.kernel, name, 1e3 * t, 1e3 * run_time[0], gb / t, gb / plain, 100 * plain / t,
           gb / asked, 100 * asked / t);
    return sum == 1; /* it is used */
}
