/* gpu_hip.c: AMD's devices are listed with a sentence and cannot be opened in this version: their
   kernels run in the emulator alone (emu:gfx90a, emu:gfx942).

   Who calls it: device.c. A driver is looked for by dlopen; one that is found stays loaded:
   unloading a driver is asking for trouble. */
#include "gpu.h"

#include <dlfcn.h>
#include <stdio.h>

enum { ROCM = 10 };

static int is_here(void) {
    static const char *const names[] = {"libamdhip64.so", "libamdhip64.so.7", "libamdhip64.so.6",
                                        "libamdhip64.so.5"};
    for (int i = 0; i < 4; i++) {
        if (dlopen(names[i], RTLD_LAZY | RTLD_LOCAL)) {
            return 1;
        }
    }
    return 0;
}

static int hip_list(attn_device_info *list, int cap) {
    if (cap > 0) {
        *list = (attn_device_info){.size = sizeof *list, .kind = ROCM, .name = "hip:0"};
        snprintf(list->missing, sizeof list->missing, "%s",
                 is_here() ? "an AMD driver is here, but this version of attn cannot use it"
                           : "no AMD driver (libamdhip64.so) was found");
    }
    return 1;
}

static int hip_open(const char *name, attn__chip **chip) {
    attn_device_info info;
    *chip = NULL;
    hip_list(&info, 1);
    return attn__fail(ATTN_DEVICE, "name", "device %s cannot be opened: %s", name, info.missing);
}

const attn__driver attn__hip = {.name = "hip", .kind = ROCM, .list = hip_list, .open = hip_open};
