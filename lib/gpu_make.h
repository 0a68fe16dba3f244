/* gpu_make.h: devices that compile for a chip and compute nothing; see gpu_make.c.

   Who includes it: device.c, jit_bundle.c. */
#ifndef ATTN_GPU_MAKE_H
#define ATTN_GPU_MAKE_H

#include "jit.h"

extern const attn__driver attn__make;

/* What the chip's plans have had compiled; nothing is added to it until the end. */
attn__bundle *attn__make_begin(attn__chip *chip);
void attn__make_end(attn__chip *chip);

#endif
