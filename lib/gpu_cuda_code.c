/* gpu_cuda_code.c: compiled code on NVIDIA's chips: modules, kernels, launches.

   Who calls it: gpu.c, through the table attn__cuda. */
#include "gpu_cuda.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define cu attn__cu
enum { KERNELS = 16, PLAIN_SHARED = 48 << 10, MAX_DYNAMIC_SHARED = 8 /* an attribute */ };

/* A kernel is looked up once; `shared` is what it may have been allowed. */
struct attn__module {
    void *module;
    pthread_mutex_t lock;
    int kernels;
    struct kernel {
        char name[48];
        void *function;
        int shared;
    } kernel[KERNELS];
};

int attn__cuda_load(attn__chip *chip, const void *code, size_t bytes, attn__module **module) {
    (void)bytes; /* the code object tells */
    *module = NULL;
    attn__module *const m = attn__alloc(sizeof *m, "a module");
    if (!m) {
        return ATTN_MEMORY;
    }
    memset(m, 0, sizeof *m);
    int status = attn__cuda_enter(chip);
    if (status == ATTN_OK) {
        status = attn__cuda_leave(cu.load(&m->module, code), "loading compiled code");
    }
    if (status < 0) {
        free(m);
        return status;
    }
    pthread_mutex_init(&m->lock, NULL);
    *module = m;
    return ATTN_OK;
}

void attn__cuda_unload(attn__chip *chip, attn__module *module) {
    if (attn__cuda_enter(chip) == ATTN_OK) {
        attn__cuda_leave(cu.unload(module->module), "unloading code");
    }
    pthread_mutex_destroy(&module->lock);
    free(module);
}

int attn__cuda_number(attn__chip *chip, attn__module *module, const char *name, int32_t *value) {
    uint64_t at = 0;
    size_t bytes = 0;
    ATTN_TRY(attn__cuda_enter(chip));
    int code = cu.global(&at, &bytes, module->module, name);
    if (code == 0 && bytes == sizeof *value) {
        code = cu.to_host(value, at, bytes, NULL);
        code = code ? code : cu.stream_sync(NULL);
    }
    ATTN_TRY(attn__cuda_leave(code, name));
    return bytes == sizeof *value
               ? ATTN_OK
               : attn__fail(ATTN_DRIVER, "device", "the code's %s has %zu bytes instead of 4", name,
                            bytes);
}

/* The function of that name, allowed `shared` bytes. The lock is held and the context current. */
static int lookup(attn__module *m, const char *name, int shared, void **function) {
    struct kernel *k = m->kernel;
    while (k < m->kernel + m->kernels && strcmp(k->name, name) != 0) {
        k++;
    }
    if (k == m->kernel + m->kernels) {
        struct kernel made = {.shared = PLAIN_SHARED};
        if (m->kernels == KERNELS || strlen(name) >= sizeof made.name) {
            return attn__fail(ATTN_DRIVER, "device", "kernel %s is one too many, or its name",
                              name);
        }
        const int code = cu.function(&made.function, m->module, name);
        if (code) {
            return attn__cuda_fail(code, name);
        }
        strcpy(made.name, name);
        *k = made;
        m->kernels++;
    }
    if (shared > k->shared) {
        const int code = cu.set(k->function, MAX_DYNAMIC_SHARED, shared);
        if (code) {
            return attn__cuda_fail(code, "asking for more shared memory");
        }
        k->shared = shared;
    }
    *function = k->function;
    return ATTN_OK;
}

static int find_kernel(attn__module *module, const char *name, int shared, void **function) {
    pthread_mutex_lock(&module->lock);
    const int status = lookup(module, name, shared, function);
    pthread_mutex_unlock(&module->lock);
    return status;
}

int attn__cuda_prepare(attn__chip *chip, attn__module *module, const char *kernel, int shared) {
    void *function;
    ATTN_TRY(attn__cuda_enter(chip));
    const int status = find_kernel(module, kernel, shared, &function);
    attn__cuda_leave(0, NULL);
    return status;
}

int attn__cuda_launch(attn__chip *chip, attn__module *module, const char *kernel, int64_t blocks,
                      int threads, int shared, const void *params, size_t bytes, void *stream) {
    void *function;
    void *values[] = {
        (void *)(uintptr_t)params}; /* the driver takes as many bytes as a kernel has */
    (void)bytes;
    if (blocks == 0) {
        return ATTN_OK;
    }
    if (blocks < 0 || blocks > INT32_MAX) {
        return attn__fail(ATTN_UNSUPPORTED, "q", "%lld blocks; a launch has up to 2^31 - 1",
                          (long long)blocks);
    }
    ATTN_TRY(attn__cuda_enter(chip));
    int status = find_kernel(module, kernel, shared, &function);
    if (status == ATTN_OK) {
        const int code = cu.launch(function, (unsigned)blocks, 1, 1, (unsigned)threads, 1, 1,
                                   (unsigned)shared, stream, values, NULL);
        status = code ? attn__cuda_fail(code, kernel) : ATTN_OK;
    }
    attn__cuda_leave(0, NULL);
    return status;
}
