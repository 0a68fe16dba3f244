/* gpu_native_code.c: compiled code on a chip: modules, kernels, launches; see gpu_native.h.

   Who calls it: gpu_kernel.c, through a driver's table. */
#include "gpu_native.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* LOCAL_BYTES: both makers' number of that attribute of a kernel. */
enum { KERNELS = 16, PLAIN_SHARED = 48 << 10, LOCAL_BYTES = 3 };

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

int attn__native_load(attn__chip *chip, const void *code, size_t bytes, attn__module **module) {
    (void)bytes; /* the code object tells */
    *module = NULL;
    attn__module *const m = attn__alloc(sizeof *m, "a module");
    if (!m) {
        return ATTN_MEMORY;
    }
    memset(m, 0, sizeof *m);
    int status = attn__native_enter(chip);
    if (status == ATTN_OK) {
        status =
            attn__native_leave(chip, chip->vendor->load(&m->module, code), "loading compiled code");
    }
    if (status < 0) {
        free(m);
        return status;
    }
    pthread_mutex_init(&m->lock, NULL);
    *module = m;
    return ATTN_OK;
}

void attn__native_unload(attn__chip *chip, attn__module *module) {
    if (attn__native_enter(chip) == ATTN_OK) {
        attn__native_leave(chip, chip->vendor->unload(module->module), "unloading code");
    }
    pthread_mutex_destroy(&module->lock);
    free(module);
}

int attn__native_number(attn__chip *chip, attn__module *module, const char *name, int32_t *value) {
    uint64_t at = 0;
    size_t bytes = 0;
    ATTN_TRY(attn__native_enter(chip));
    int code = chip->vendor->global(&at, &bytes, module->module, name);
    if (code == 0 && bytes == sizeof *value) {
        code = chip->vendor->to_host(value, at, bytes, NULL);
        code = code ? code : chip->vendor->stream_sync(NULL);
    }
    ATTN_TRY(attn__native_leave(chip, code, name));
    return bytes == sizeof *value
               ? ATTN_OK
               : attn__fail(ATTN_DRIVER, "device", "the code's %s has %zu bytes instead of 4", name,
                            bytes);
}

/* The function of that name, allowed `shared` bytes. The lock is held and the context current. */
static int lookup(const attn__chip *chip, attn__module *m, const char *name, int shared,
                  void **function) {
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
        const int code = chip->vendor->function(&made.function, m->module, name);
        if (code) {
            return attn__native_fail(chip->vendor, code, name);
        }
        strcpy(made.name, name);
        *k = made;
        m->kernels++;
    }
    if (shared > k->shared) {
        const int code = chip->vendor->allow_shared(k->function, shared);
        if (code) {
            return attn__native_fail(chip->vendor, code, "asking for more shared memory");
        }
        k->shared = shared;
    }
    *function = k->function;
    return ATTN_OK;
}

static int find_kernel(const attn__chip *chip, attn__module *module, const char *name, int shared,
                       void **function) {
    pthread_mutex_lock(&module->lock);
    const int status = lookup(chip, module, name, shared, function);
    pthread_mutex_unlock(&module->lock);
    return status;
}

int attn__native_prepare(attn__chip *chip, attn__module *module, const char *kernel, int shared,
                         int *spilled) {
    void *function;
    ATTN_TRY(attn__native_enter(chip));
    const int status = find_kernel(chip, module, kernel, shared, &function);
    const int code =
        status < 0 ? 0 : chip->vendor->attribute(spilled, LOCAL_BYTES, function);
    ATTN_TRY(attn__native_leave(chip, code, "asking what a kernel spills"));
    return status;
}

int attn__native_launch(attn__chip *chip, attn__module *module, const char *kernel, int64_t blocks,
                        int threads, int shared, const void *params, size_t bytes, void *stream) {
    void *function;
    void *values[] = {(void *)(uintptr_t)params};
    (void)bytes; /* the driver takes as many as a kernel has */
    if (blocks == 0) {
        return ATTN_OK;
    }
    if (blocks < 0 || blocks > INT32_MAX) {
        return attn__fail(ATTN_UNSUPPORTED, "q", "%lld blocks; a launch has up to 2^31 - 1",
                          (long long)blocks);
    }
    ATTN_TRY(attn__native_enter(chip));
    int status = find_kernel(chip, module, kernel, shared, &function);
    if (status == ATTN_OK) {
        const int code = chip->vendor->launch(function, (unsigned)blocks, 1, 1, (unsigned)threads,
                                              1, 1, (unsigned)shared, stream, values, NULL);
        status = code ? attn__native_fail(chip->vendor, code, kernel) : ATTN_OK;
    }
    attn__native_leave(chip, 0, NULL);
    return status;
}
