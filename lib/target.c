/* target.c: the kinds of chips that attn knows by name but this version cannot use.

   Who calls it: device.c, for attn_device_list and attn_device_open. A driver is looked for by
   dlopen. One that is found stays loaded: unloading a driver is asking for trouble. */
#include "gpu.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

static const struct target {
    const char *name, *vendor;
    int kind; /* DLPack's */
    const char *library[4];
} targets[] = {
    {"cuda:0", "NVIDIA", 2, {"libcuda.so.1"}},
    {"hip:0",
     "AMD",
     10,
     {"libamdhip64.so", "libamdhip64.so.7", "libamdhip64.so.6", "libamdhip64.so.5"}},
};

static int is_here(const struct target *t) {
    for (int i = 0; i < 4 && t->library[i]; i++) {
        if (dlopen(t->library[i], RTLD_LAZY | RTLD_LOCAL)) {
            return 1;
        }
    }
    return 0;
}

int attn__target_list(attn_device_info *list) {
    const int n = (int)(sizeof targets / sizeof targets[0]);
    for (int i = 0; i < n; i++) {
        const struct target *const t = &targets[i];
        list[i] = (attn_device_info){.size = sizeof list[i], .kind = t->kind};
        snprintf(list[i].name, sizeof list[i].name, "%s", t->name);
        if (is_here(t)) {
            snprintf(list[i].missing, sizeof list[i].missing,
                     "an %s driver is here, but this version of attn has no GPU kernels",
                     t->vendor);
        } else {
            snprintf(list[i].missing, sizeof list[i].missing, "no %s driver (%s) was found",
                     t->vendor, t->library[0]);
        }
    }
    return n;
}

/* What a driver's chip starts from; units and shared memory are read from the chip. */
static const attn__target chips[] = {
    {.name = "sm_80", .compiler = "nvrtc", .lanes = 32, .xcds = 1},
    {.name = "sm_90a", .compiler = "nvrtc", .lanes = 32, .xcds = 1},
    {.name = "gfx90a", .compiler = "hiprtc", .lanes = 64, .xcds = 1},
    {.name = "gfx942", .compiler = "hiprtc", .lanes = 64, .xcds = 8}};

const attn__target *attn__target_find(const char *name) {
    for (size_t i = 0; i < sizeof chips / sizeof chips[0]; i++) {
        if (strcmp(chips[i].name, name) == 0) {
            return &chips[i];
        }
    }
    return NULL;
}
