/* gpu_module.h: loaded kernels, shared by the plans of a device.

   Who includes it: gpu_kernel.h, device.c. */
#ifndef ATTN_GPU_MODULE_H
#define ATTN_GPU_MODULE_H

#include "jit.h"

typedef struct attn__kernel_code attn__kernel_code;
/* Compiles, loads or finds; released by put. */
int attn__code_get(const attn_device *device, const attn__job *job, attn__kernel_code **code);
void attn__code_put(attn__kernel_code *code); /* NULL is fine */
attn__module *attn__code_module(const attn__kernel_code *code);
/* Unloads what the device still has; before its chip is closed. */
void attn__code_close(const attn_device *device);

#endif
