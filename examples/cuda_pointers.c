/* cuda_pointers.c: attention on memory and on a stream that the program has from CUDA itself.

   A program that already uses CUDA hands attn its pointers and its stream; attn copies nothing and
   waits for nothing. Here the driver comes by dlopen, so that this builds and runs anywhere:
   without an NVIDIA GPU it says what is missing. In a program of yours cudaMalloc and
   cudaStreamCreate stand in the place of the `cu...` functions.

       cc examples/cuda_pointers.c $(pkg-config --cflags --libs attn) -ldl -o cuda_pointers */
#include <attn.h>
#include <dlfcn.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TRY(x)                                                                                     \
    do {                                                                                           \
        if ((x) < 0) {                                                                             \
            fprintf(stderr, "%s\n", attn_error());                                                 \
            return 1;                                                                              \
        }                                                                                          \
    } while (0)
#define CUDA(x)                                                                                    \
    do {                                                                                           \
        const int code = (x);                                                                      \
        if (code != 0) {                                                                           \
            fprintf(stderr, "%s answers %d\n", #x, code);                                          \
            return 1;                                                                              \
        }                                                                                          \
    } while (0)

enum { B = 2, H = 8, HK = 2, N = 1000, D = 64, Q = B * H * N * D, K = B * HK * N * D };

/* -- The driver -------------------------------------------------------------------------------- */

static struct driver {
    int (*init)(unsigned);
    int (*retain)(void **, int);
    int (*push)(void *);
    int (*alloc)(uint64_t *, size_t);
    int (*release)(uint64_t);
    int (*to_device)(uint64_t, const void *, size_t, void *);
    int (*to_host)(void *, uint64_t, size_t, void *);
    int (*stream)(void **, unsigned);
    int (*wait)(void *);
} cuda;

static int load_driver(void) {
    const char *const named = getenv("ATTN_CUDA"); /* as attn itself looks for it */
    void *const library = dlopen(named ? named : "libcuda.so.1", RTLD_NOW);
    const struct {
        const char *name;
        void *at;
    } entry[] = {{"cuInit", &cuda.init},
                 {"cuDevicePrimaryCtxRetain", &cuda.retain},
                 {"cuCtxPushCurrent_v2", &cuda.push},
                 {"cuMemAlloc_v2", &cuda.alloc},
                 {"cuMemFree_v2", &cuda.release},
                 {"cuMemcpyHtoDAsync_v2", &cuda.to_device},
                 {"cuMemcpyDtoHAsync_v2", &cuda.to_host},
                 {"cuStreamCreate", &cuda.stream},
                 {"cuStreamSynchronize", &cuda.wait}};
    for (size_t i = 0; i < sizeof entry / sizeof *entry; i++) {
        void *const f = library ? dlsym(library, entry[i].name) : NULL;
        if (!f) {
            return -1;
        }
        memcpy(entry[i].at, &f, sizeof f);
    }
    return 0;
}

/* -- Attention --------------------------------------------------------------------------------- */

typedef struct tensors {
    attn_tensor q, k, v, o;
    int64_t shape[2][4];
} tensors;

static void tensors_of(tensors *t, void *q, void *k, void *v, void *o) {
    const int64_t shape[2][4] = {{B, H, N, D}, {B, HK, N, D}};
    void *const data[4] = {q, k, v, o};
    attn_tensor *const list[4] = {&t->q, &t->k, &t->v, &t->o};
    memset(t, 0, sizeof *t);
    memcpy(t->shape, shape, sizeof shape);
    for (int i = 0; i < 4; i++) {
        list[i]->data = data[i];
        list[i]->ndim = 4;
        list[i]->dtype = (attn_dtype){ATTN_F32 & 255, ATTN_F32 >> 8, 1};
        list[i]->shape = t->shape[i == 1 || i == 2];
    }
}

/* Device 0:0 of a tensor is the plan's own. workspace: as much of `memory` as the plan asks for;
   the caller frees it when the stream's work is done. */
static int attend(attn_device *device, const tensors *t, const attn_variant *variant,
                  void *(*memory)(size_t), void **workspace, void *stream) {
    attn_call call = {.size = sizeof call, .q = &t->q, .k = &t->k, .v = &t->v, .o = &t->o};
    attn_plan_info info = {.size = sizeof info};
    attn_plan *plan;
    TRY(attn_plan_new(device, ATTN_FORWARD, &call, variant, &plan));
    TRY(attn_plan_query(plan, &info));
    printf("%s\n", info.kernel);
    *workspace = info.workspace ? memory((size_t)info.workspace) : NULL;
    TRY(attn_run(plan, &call, *workspace, stream));
    attn_plan_release(plan);
    return 0;
}

static void *device_memory(size_t bytes) {
    uint64_t at = 0;
    return cuda.alloc(&at, bytes) == 0 ? (void *)(uintptr_t)at : NULL;
}

static void *host_memory(size_t bytes) {
    return aligned_alloc(64, (bytes + 63) / 64 * 64);
}

int main(void) {
    static _Alignas(64) float q[Q], k[K], v[K], o[Q], got[Q];
    attn_device *device, *ref;
    attn_variant *variant;
    tensors here, there;
    if (attn_device_open("cuda:0", NULL, &device) < 0) {
        printf("left out: %s\n", attn_error());
        return 0;
    }
    TRY(attn_device_open("ref", NULL, &ref));
    tensors_of(&here, q, k, v, o);
    TRY(attn_random(ref, &here.q, ATTN_NORMAL, 1, NULL));
    TRY(attn_random(ref, &here.k, ATTN_NORMAL, 2, NULL));
    TRY(attn_random(ref, &here.v, ATTN_NORMAL, 3, NULL));
    TRY(attn_variant_parse("k <= q && q - k < 300 ? s + 0.02 * (k - q) : -inf", &variant));

    /* The program's own context, memory and stream (1: it does not wait for stream NULL). */
    void *context, *stream, *workspace, *host_workspace;
    if (load_driver() < 0) {
        fprintf(stderr, "the driver lacks a function\n");
        return 1;
    }
    CUDA(cuda.init(0));
    CUDA(cuda.retain(&context, 0));
    CUDA(cuda.push(context));
    CUDA(cuda.stream(&stream, 1));
    void *const dq = device_memory(Q * sizeof(float)), *const dk = device_memory(K * sizeof(float));
    void *const dv = device_memory(K * sizeof(float)), *const d_o =
                                                           device_memory(Q * sizeof(float));
    CUDA(cuda.to_device((uintptr_t)dq, q, Q * sizeof(float), stream));
    CUDA(cuda.to_device((uintptr_t)dk, k, K * sizeof(float), stream));
    CUDA(cuda.to_device((uintptr_t)dv, v, K * sizeof(float), stream));

    tensors_of(&there, dq, dk, dv, d_o);
    if (attend(device, &there, variant, device_memory, &workspace, stream)) {
        return 1;
    }
    CUDA(cuda.to_host(got, (uintptr_t)d_o, Q * sizeof(float), stream));
    CUDA(cuda.wait(stream));
    void *const device_blocks[] = {dq, dk, dv, d_o, workspace};
    for (size_t i = 0; i < sizeof device_blocks / sizeof *device_blocks; i++) {
        CUDA(device_blocks[i] ? cuda.release((uintptr_t)device_blocks[i]) : 0);
    }

    if (attend(ref, &here, variant, host_memory, &host_workspace, NULL)) {
        return 1;
    }
    free(host_workspace);
    double worst = 0;
    for (int i = 0; i < Q; i++) {
        const double off = fabs((double)got[i] - (double)o[i]);
        worst = off > worst || isnan(off) ? off : worst;
    }
    printf("largest difference from the oracle: %.3g\n", worst);
    attn_variant_release(variant);
    attn_device_release(device);
    attn_device_release(ref);
    return worst < 1e-4 ? 0 : 1;
}
