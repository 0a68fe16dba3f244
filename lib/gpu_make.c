/* gpu_make.c: devices "make:CHIP", CHIP being a name of target.c or an emulated one, emu:sm_80:
   plans compile for the chip, and a run does nothing. What was compiled can be written to a bundle
   (jit_bundle.c). No chip is needed, but its compiler is.

   Who calls it: device.c and the GPU engine, as they call any driver. */
#define _POSIX_C_SOURCE 200809L
#include "gpu_make.h"
#include "emu/emu_driver.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct attn__chip {
    attn__target target;
    char name[64];
    pthread_mutex_t lock; /* of the bundle */
    attn__bundle *bundle;
};

/* There is always one of each; a list of what computes does not have them. */
static int make_list(attn_device_info *list, int cap) {
    (void)list, (void)cap;
    return 0;
}

static int target_of(const char *device, const char *chip, attn__target *target) {
    if (strncmp(chip, "emu:", 4) == 0) {
        return attn__emu_target(chip, target);
    }
    const attn__target *const found = attn__target_find(chip);
    if (!found) {
        char names[ATTN__TARGET_NAMES];
        attn__target_names(NULL, names);
        return attn__fail(ATTN_DEVICE, "name",
                          "no device \"%s\"; kernels are written for %s, and each chip emulated, "
                          "as in make:emu:sm_80",
                          device, names);
    }
    *target = *found;
    return ATTN_OK;
}

static int make_open(const char *device, attn__chip **chip) {
    attn__target target;
    *chip = NULL;
    ATTN_TRY(target_of(device, device + strlen("make:"), &target));
    attn__chip *const c = attn__alloc(sizeof *c, "a device");
    if (!c) {
        return ATTN_MEMORY;
    }
    *c = (attn__chip){.target = target};
    snprintf(c->name, sizeof c->name, "%s", device);
    const int status = attn__bundle_new(&c->bundle);
    if (status < 0) {
        free(c);
        return status;
    }
    pthread_mutex_init(&c->lock, NULL);
    *chip = c;
    return ATTN_OK;
}

static void make_close(attn__chip *chip) {
    attn__bundle_free(chip->bundle);
    pthread_mutex_destroy(&chip->lock);
    free(chip);
}

static const attn__target *make_target(const attn__chip *chip) {
    return &chip->target;
}

static int make_query(attn__chip *chip, attn_device_info *info) {
    *info = (attn_device_info){.size = sizeof *info, .kind = attn__make.kind, .emulated = 1};
    info->memory = attn__host_memory();
    snprintf(info->name, sizeof info->name, "%s", chip->name);
    snprintf(info->arch, sizeof info->arch, "%.40s, compiled for", chip->target.name);
    return ATTN_OK;
}

/* -- Code -------------------------------------------------------------------------------------- */

attn__bundle *attn__make_begin(attn__chip *chip) {
    pthread_mutex_lock(&chip->lock);
    return chip->bundle;
}
void attn__make_end(attn__chip *chip) {
    pthread_mutex_unlock(&chip->lock);
}

static int make_keep(attn__chip *chip, const char *job, const void *code, size_t bytes) {
    const int status = attn__bundle_add(attn__make_begin(chip), job, code, bytes);
    attn__make_end(chip);
    return status;
}

/* Nothing is loaded; a module is a name. */
static int make_load(attn__chip *chip, const void *code, size_t bytes, attn__module **module) {
    (void)code, (void)bytes;
    *module = (attn__module *)(void *)chip;
    return ATTN_OK;
}
static void make_unload(attn__chip *chip, attn__module *module) {
    (void)chip, (void)module;
}

static int make_number(attn__chip *chip, attn__module *module, const char *name, int32_t *value) {
    (void)chip, (void)module, (void)name;
    *value = 0;
    return ATTN_OK;
}

static int make_launch(attn__chip *chip, attn__module *module, const char *kernel, int64_t blocks,
                       int threads, int shared, const void *params, size_t bytes, void *stream) {
    (void)chip, (void)module, (void)kernel, (void)blocks, (void)threads, (void)shared;
    (void)params, (void)bytes, (void)stream;
    return ATTN_OK;
}

const attn__driver attn__make = {
    .name = "make",
    .kind = 1,
    .list = make_list,
    .open = make_open,
    .close = make_close,
    .target = make_target,
    .query = make_query,
    .alloc = attn__near_alloc,
    .free = attn__near_free,
    .to_device = attn__near_copy,
    .to_host = attn__near_copy,
    .stream_new = attn__near_stream_new,
    .stream_free = attn__near_stream_free,
    .stream_sync = attn__near_stream_sync,
    .load = make_load,
    .keep = make_keep,
    .unload = make_unload,
    .number = make_number,
    .launch = make_launch,
};
