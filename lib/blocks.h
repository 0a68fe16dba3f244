/* blocks.h: memory of a device that is not the host's; see blocks.c.

   Who includes it: memory.c, device.c. */
#ifndef ATTN_BLOCKS_H
#define ATTN_BLOCKS_H

#include "gpu.h"

/* From the driver. */
int attn__block_new(attn_device *device, uint64_t bytes, void **pointer);
/* One that is kept, or from the driver, for work on `stream`. */
int attn__block_new_on(attn_device *device, uint64_t bytes, void *stream, void **pointer);
int attn__block_use(attn_device *device, const void *pointer, void *stream);
/* Back to the driver, or `keep` for a later block. The bytes that were asked for; 0: there is no
   such block. */
uint64_t attn__block_end(attn_device *device, const void *pointer, int keep);
/* What is kept goes back to the driver. How many blocks these were. */
int attn__blocks_trim(attn_device *device);

#endif
