/* gpu_cuda.h: what the files of the CUDA driver share.

       gpu_cuda.c        the library, devices, memory, streams; the table attn__cuda
       gpu_cuda_code.c   modules, kernels, launches */
#ifndef ATTN_GPU_CUDA_H
#define ATTN_GPU_CUDA_H

#include "gpu.h"

/* cuMemcpy2DAsync's parameter: a rectangle on either side. */
typedef struct attn__cuda_side {
    size_t x, y;
    int32_t type; /* 1 host, 2 device */
    void *host;
    uint64_t device;
    void *array;
    size_t pitch;
} attn__cuda_side;
typedef struct attn__cuda_copy {
    attn__cuda_side from, to;
    size_t width, height;
} attn__cuda_copy;

/* Entry points with the suffix that their present form has; the plain names are older functions. */
#define ATTN__CUDA_ENTRIES(X)                                                                      \
    X(init, cuInit, (unsigned))                                                                    \
    X(version, cuDriverGetVersion, (int *))                                                        \
    X(error_name, cuGetErrorName, (int, const char **))                                            \
    X(error_text, cuGetErrorString, (int, const char **))                                          \
    X(count, cuDeviceGetCount, (int *))                                                            \
    X(device, cuDeviceGet, (int *, int))                                                           \
    X(name, cuDeviceGetName, (char *, int, int))                                                   \
    X(attribute, cuDeviceGetAttribute, (int *, int, int))                                          \
    X(memory, cuDeviceTotalMem_v2, (size_t *, int))                                                \
    X(retain, cuDevicePrimaryCtxRetain, (void **, int))                                            \
    X(release, cuDevicePrimaryCtxRelease_v2, (int))                                                \
    X(push, cuCtxPushCurrent_v2, (void *))                                                         \
    X(pop, cuCtxPopCurrent_v2, (void **))                                                          \
    X(wait, cuCtxSynchronize, (void))                                                              \
    X(alloc, cuMemAlloc_v2, (uint64_t *, size_t))                                                  \
    X(free, cuMemFree_v2, (uint64_t))                                                              \
    X(copy, cuMemcpy2DAsync_v2, (const attn__cuda_copy *, void *))                                 \
    X(to_device, cuMemcpyHtoDAsync_v2, (uint64_t, const void *, size_t, void *))                   \
    X(within, cuMemcpyDtoDAsync_v2, (uint64_t, uint64_t, size_t, void *))                          \
    X(to_host, cuMemcpyDtoHAsync_v2, (void *, uint64_t, size_t, void *))                           \
    X(stream_new, cuStreamCreate, (void **, unsigned))                                             \
    X(stream_free, cuStreamDestroy_v2, (void *))                                                   \
    X(stream_sync, cuStreamSynchronize, (void *))                                                  \
    X(load, cuModuleLoadData, (void **, const void *))                                             \
    X(unload, cuModuleUnload, (void *))                                                            \
    X(function, cuModuleGetFunction, (void **, void *, const char *))                              \
    X(global, cuModuleGetGlobal_v2, (uint64_t *, size_t *, void *, const char *))                  \
    X(set, cuFuncSetAttribute, (void *, int, int))                                                 \
    X(launch, cuLaunchKernel,                                                                      \
      (void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *,       \
       void **, void **))

typedef struct attn__cuda_entries {
#define ATTN__MEMBER(name, symbol, arguments) int(*name) arguments;
    ATTN__CUDA_ENTRIES(ATTN__MEMBER)
#undef ATTN__MEMBER
} attn__cuda_entries;
extern attn__cuda_entries attn__cu;

struct attn__chip {
    int index, device;
    void *context;
    attn__target target; /* of this chip: its own units and shared memory */
};

/* A status with its sentence for the driver's answer `code` to `what`. */
int attn__cuda_fail(int code, const char *what);
/* Makes the chip's context current; leave makes the one before it so again. `what` was tried in
   between and answered `code`. */
int attn__cuda_enter(const attn__chip *chip);
int attn__cuda_leave(int code, const char *what);

/* -- gpu_cuda_code.c: members of attn__driver --------------------------------------------------- */
int attn__cuda_load(attn__chip *chip, const void *code, size_t bytes, attn__module **module);
void attn__cuda_unload(attn__chip *chip, attn__module *module);
int attn__cuda_number(attn__chip *chip, attn__module *module, const char *name, int32_t *value);
int attn__cuda_prepare(attn__chip *chip, attn__module *module, const char *kernel, int shared);
int attn__cuda_launch(attn__chip *chip, attn__module *module, const char *kernel, int64_t blocks,
                      int threads, int shared, const void *params, size_t bytes, void *stream);

#endif
