/* stage.h: tensors in memory that is not the host's, brought to it in parts.

       far tensor --part--> smaller tensor --stage_in--> compact host tensor
                                                              | computed on
       far tensor <--------------------------stage_out--------+

   Who calls it: copy.c, random.c, merge.c, dropout_mask.c, check.c. What stands here is the plain
   way, right for every layout: a bus and one thread of the host set its speed. */
#ifndef ATTN_STAGE_H
#define ATTN_STAGE_H

#include "attn_int.h"

enum { ATTN__AXES = 16 };

/* Memory of the device that the host cannot reach? */
static inline int attn__is_far(const attn_device *device, const attn_tensor *t) {
    return device->kind != 1 && (int)t->device.device_type != 1;
}
/* attn__tensor_check, where a device with memory of its own takes the host's, too. */
int attn__tensor_check_either(const attn_device *device, const attn_tensor *t, const char *name);

/* A tensor that owns its shape and strides. */
typedef struct attn__own {
    attn_tensor t;
    int64_t shape[ATTN__AXES], strides[ATTN__AXES];
} attn__own;

/* A box of an index space: entries at[i] .. at[i] + n[i] - 1 of each axis. Boxes follow each other
   in row-major order, and what is in one is a row-major range of the whole: elements first, first +
   1, ... */
typedef struct attn__part {
    int rank;
    int64_t whole[ATTN__AXES], at[ATTN__AXES], n[ATTN__AXES];
    int64_t first, step;
    int split; /* the axis that is cut, `step` entries at a time; those before it have n = 1 */
} attn__part;
/* Boxes of at most `most` elements, or one entry of the last axis. 0: the space is empty. */
int attn__part_first(attn__part *part, int rank, const int64_t *shape, int64_t most);
int attn__part_next(attn__part *part);
/* The box of t. */
void attn__part_of(const attn__part *part, const attn_tensor *t, attn__own *of);

/* Host memory for the elements of a tensor, in the order that they have there. A host tensor stands
   for itself. */
typedef struct attn__near {
    attn__own own;
    void *memory;            /* NULL: the tensor's own */
    int64_t elements, first; /* of memory; where the element with index 0 stands */
    int shared;              /* elements share memory, as they do there */
} attn__near;
/* fetch: the elements are read. Ended by stage_out or stage_drop. */
int attn__stage_in(attn_device *device, const attn_tensor *t, int fetch, void *stream,
                   attn__near *near);
int attn__stage_out(attn_device *device, const attn_tensor *t, void *stream, attn__near *near);
void attn__stage_drop(attn__near *near);

/* Copies equal types and shapes between memories without a stage where few driver calls do it.
   1: done, 0: not to be done so, negative: a status. */
int attn__stage_direct(attn_device *device, const attn_tensor *to, const attn_tensor *from,
                       void *stream);

#endif
