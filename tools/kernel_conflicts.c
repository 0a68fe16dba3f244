/* kernel_conflicts.c: conflicts of banks in shared memory that the emulator counts in a forward
   kernel: cycles over the least that its accesses could take.

       kernel_conflicts gfx942 f16 128 128 4096

   Prints one number, of up to 256 query rows and 256 keys of one head. What a variant computes, and
   the numbers in memory, change no address.

   Who calls it: tools/kernels.lua, which builds it with build/libattn.a. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "attn_int.h"
#include "emu/emu_driver.h"

enum { MOST = 256 };

static int fail(void) {
    fprintf(stderr, "kernel_conflicts: %s\n", attn_error());
    return 1;
}

static int run(attn_device *device, const attn_call *call) {
    attn_plan *plan;
    attn__emu_counts counts;
    if (attn_plan_new(device, ATTN_FORWARD, call, NULL, &plan) < 0) {
        return fail();
    }
    const int status = attn_run(plan, call, NULL, NULL);
    attn__emu_last(device->chip, &counts);
    attn_plan_release(plan);
    printf("%llu\n", (unsigned long long)(counts.shared_cycles - counts.shared_access));
    return status < 0 ? fail() : 0;
}

int main(int argc, char **argv) {
    char name[32];
    attn_device *device;
    if (argc != 6) {
        fprintf(stderr, "kernel_conflicts: target, type, D, DV, rows\n");
        return 2;
    }
    const int type = strcmp(argv[2], "f16") == 0    ? ATTN_F16
                     : strcmp(argv[2], "bf16") == 0 ? ATTN_BF16
                                                    : ATTN_F32;
    const int64_t d = atoi(argv[3]), dv = atoi(argv[4]), rows = atoi(argv[5]);
    int64_t shape[4][4] = {{1, 1, rows < MOST ? rows : MOST, d}, {1, 1, MOST, d},
                           {1, 1, MOST, dv}, {1, 1, rows < MOST ? rows : MOST, dv}};
    attn_tensor t[4];
    for (int i = 0; i < 4; i++) {
        t[i] = (attn_tensor){.data = calloc((size_t)MOST * 256, 4),
                             .ndim = 4,
                             .dtype = {(uint8_t)(type & 255), (uint8_t)(type >> 8), 1},
                             .shape = shape[i]};
        t[i].device.device_type = 1;
    }
    attn_call call = {.size = sizeof call, .q = &t[0], .k = &t[1], .v = &t[2], .o = &t[3]};
    call.flags = ATTN_BATCH_INVARIANT; /* one kernel, not split */
    snprintf(name, sizeof name, "emu:%s", argv[1]);
    if (attn_device_open(name, NULL, &device) < 0) {
        return fail();
    }
    const int status = run(device, &call);
    attn_device_release(device);
    for (int i = 0; i < 4; i++) {
        free(t[i].data);
    }
    return status;
}
