/* emu_driver.c: emulated chips as devices: the driver "emu" of lib/gpu.h.

   Who calls it: device.c and the GPU engine, as they call any driver. Device memory is the host's;
   a launch has ended when the call returns, so there is one stream, NULL. A code object is what
   the host's compiler made (jit_cc.c), a shared object:

       load: bytes -> temporary folder -> dlopen; attn_emu_bind(table of the models) */
#define _GNU_SOURCE
#include "emu_driver.h"
#include "../temporary.h"

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const struct kind {
    const char *target; /* target.c's name of it */
    int chip;           /* ATTN_EMU's value */
    const attn__emu_family *family;
    int units; /* SMs, where they are not those of the chip */
} kinds[] = {
    {"sm_80", 80, &attn__emu_ptx, 0},
    {"sm_90a", 90, &attn__emu_ptx, 5}, /* of 132: a block has several items then */
    {"gfx90a", 0x90a, &attn__emu_gcn, 0},
    {"gfx942", 0x942, &attn__emu_gcn, 0},
};
enum { KINDS = sizeof kinds / sizeof kinds[0] };

/* Each host thread has up to 512 fibers with a guard page, two mappings a fiber; Linux gives a
   process 65,530 of them. */
enum { MOST_THREADS = 32 };

struct attn__chip {
    const struct kind *kind;
    attn__target target; /* that of the real chip, but for who compiles */
    struct attn__pool *pool;
    pthread_mutex_t lock; /* of `last` */
    attn__emu_counts last;
};

struct attn__module {
    void *handle;
};

/* -- Devices ----------------------------------------------------------------------------------- */

static void describe(const struct kind *k, attn_device_info *info) {
    const long pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);
    *info = (attn_device_info){.size = sizeof *info, .kind = attn__emu.kind, .emulated = 1};
    info->memory = pages > 0 && page > 0 ? (uint64_t)pages * (uint64_t)page : 0;
    snprintf(info->name, sizeof info->name, "emu:%s", k->target);
    snprintf(info->arch, sizeof info->arch, "%s, emulated", k->target);
}

static int emu_list(attn_device_info *list, int cap) {
    int n = 0;
    for (; n < KINDS && n < cap; n++) {
        describe(&kinds[n], &list[n]);
    }
    return n;
}

static const struct kind *kind_of(const char *device) {
    const char *const name = strncmp(device, "emu:", 4) == 0 ? device + 4 : "";
    for (int i = 0; i < KINDS; i++) {
        if (strcmp(name, kinds[i].target) == 0) {
            return &kinds[i];
        }
    }
    return NULL;
}

int attn__emu_target(const char *device, attn__target *target) {
    const struct kind *const k = kind_of(device);
    const attn__target *const chip = k ? attn__target_find(k->target) : NULL;
    char all[128] = "";
    for (int i = 0; i < KINDS; i++) {
        const size_t n = strlen(all);
        snprintf(all + n, sizeof all - n, "%semu:%s", i ? ", " : "", kinds[i].target);
    }
    if (!chip) {
        return attn__fail(ATTN_DEVICE, "name", "no device \"%s\"; emulated are %s", device, all);
    }
    *target = *chip;
    target->compiler = "cc";
    target->emulated = k->chip;
    target->units = k->units ? k->units : chip->units;
    return ATTN_OK;
}

static int emu_open(const char *device, attn__chip **chip) {
    attn__target target;
    *chip = NULL;
    ATTN_TRY(attn__emu_target(device, &target));
    attn__chip *const c = attn__alloc(sizeof *c, "an emulated chip");
    if (!c) {
        return ATTN_MEMORY;
    }
    *c = (attn__chip){.kind = kind_of(device), .target = target};
    const int cores = attn__cores();
    const int status = attn__pool_new(cores < MOST_THREADS ? cores : MOST_THREADS, &c->pool);
    if (status < 0) {
        free(c);
        return status;
    }
    pthread_mutex_init(&c->lock, NULL);
    *chip = c;
    return ATTN_OK;
}

static void emu_close(attn__chip *chip) {
    attn__pool_free(chip->pool);
    pthread_mutex_destroy(&chip->lock);
    free(chip);
}

static const attn__target *emu_target(const attn__chip *chip) {
    return &chip->target;
}

static int emu_query(attn__chip *chip, attn_device_info *info) {
    describe(chip->kind, info);
    return ATTN_OK;
}

void attn__emu_last(attn__chip *chip, attn__emu_counts *counts) {
    pthread_mutex_lock(&chip->lock);
    *counts = chip->last;
    pthread_mutex_unlock(&chip->lock);
}

/* -- Code -------------------------------------------------------------------------------------- */

static int open_code(const void *code, size_t bytes, void **handle) {
    attn__temporary folder;
    char path[ATTN__PATH_IN];
    ATTN_TRY(attn__temporary_new(&folder));
    attn__temporary_path(&folder, "code.so", path);
    int status = attn__temporary_write(&folder, "code.so", code, bytes);
    if (status >= 0 && !(*handle = dlopen(path, RTLD_NOW | RTLD_LOCAL))) {
        status = attn__fail(ATTN_DRIVER, "kernel", "a kernel could not be loaded: %s", dlerror());
    }
    attn__temporary_remove(&folder);
    return status;
}

static int emu_load(attn__chip *chip, const void *code, size_t bytes, attn__module **module) {
    void (*bind)(const void *);
    void *handle;
    *module = NULL;
    ATTN_TRY(open_code(code, bytes, &handle));
    *(void **)&bind = dlsym(handle, "attn_emu_bind");
    attn__module *const m = bind ? attn__alloc(sizeof *m, "a kernel") : NULL;
    if (!m) {
        dlclose(handle);
        return bind ? ATTN_MEMORY
                    : attn__fail(ATTN_DRIVER, "kernel", "the code is no emulated kernel");
    }
    bind(chip->kind->family->api);
    m->handle = handle;
    *module = m;
    return ATTN_OK;
}

static void emu_unload(attn__chip *chip, attn__module *module) {
    (void)chip;
    dlclose(module->handle);
    free(module);
}

static int find(const attn__module *module, const char *name, void **at) {
    *at = dlsym(module->handle, name);
    return *at ? ATTN_OK : attn__fail(ATTN_DRIVER, "kernel", "the code has no \"%s\"", name);
}

static int emu_number(attn__chip *chip, attn__module *module, const char *name, int32_t *value) {
    void *at;
    (void)chip;
    ATTN_TRY(find(module, name, &at));
    memcpy(value, at, sizeof *value);
    return ATTN_OK;
}

static int emu_launch(attn__chip *chip, attn__module *module, const char *kernel, int64_t blocks,
                      int threads, int shared, const void *params, size_t bytes, void *stream) {
    void *at;
    attn__emu_counts counts = {0};
    (void)bytes, (void)stream;
    ATTN_TRY(find(module, kernel, &at));
    if (shared > chip->target.shared) {
        return attn__fail(ATTN_DRIVER, "kernel",
                          "kernel %s has %d bytes of shared memory; %s has %d", kernel, shared,
                          chip->target.name, chip->target.shared);
    }
    attn__emu_launch launch = {.family = chip->kind->family,
                               .chip = chip->kind->chip,
                               .name = kernel,
                               .params = params,
                               .blocks = blocks,
                               .threads = threads,
                               .shared = shared,
                               .pool = chip->pool};
    memcpy(&launch.kernel, &at, sizeof launch.kernel);
    const int status = attn__emu_run(&launch, &counts);
    pthread_mutex_lock(&chip->lock);
    chip->last = counts;
    pthread_mutex_unlock(&chip->lock);
    return status;
}

static int emu_zero(attn__chip *chip, void *at, uint64_t bytes, void *stream) {
    (void)chip, (void)stream;
    memset(at, 0, bytes);
    return ATTN_OK;
}

static int emu_describe(attn__chip *chip, const attn__boxes *box, uint64_t word[16]) {
    return chip->kind->chip == 90 && attn__ptx_describe(box, word);
}

const attn__driver attn__emu = {
    .name = "emu",
    .kind = 1,
    .list = emu_list,
    .open = emu_open,
    .close = emu_close,
    .target = emu_target,
    .query = emu_query,
    .alloc = attn__near_alloc,
    .free = attn__near_free,
    .to_device = attn__near_copy,
    .to_host = attn__near_copy,
    .stream_new = attn__near_stream_new,
    .stream_free = attn__near_stream_free,
    .stream_sync = attn__near_stream_sync,
    .load = emu_load,
    .unload = emu_unload,
    .number = emu_number,
    .launch = emu_launch,
    .describe = emu_describe,
    .zero = emu_zero,
};
