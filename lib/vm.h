/* vm.h: the vector virtual machine, which evaluates a variant over one row of a tile at a time.

   Who calls it: the CPU engine for tiles, sample.c. A program is compiled once per plan; every
   thread has its own scratch. What does not depend on the row is hoisted:

       begin(env)            once per work item: what depends on b, h, lengths, parameters
         columns(k0, n)      once per key tile: what depends on k too
           row(i, q, s)      once per row: the rest

   Arithmetic is f32 and i32, bit for bit attn__op32's, whatever the width and a column's place. */
#ifndef ATTN_VM_H
#define ATTN_VM_H

#include "expr.h"

enum { ATTN__VM_WIDTH = 128 }; /* most columns of a row */

typedef struct attn__vm attn__vm;

/* Roots are nodes of g; the program keeps what it needs of g by copy. */
int attn__vm_new(const attn_graph *g, const int32_t *roots, int n_roots, attn__vm **vm);
void attn__vm_free(attn__vm *vm);
size_t attn__vm_scratch(const attn__vm *vm); /* bytes per thread, aligned to 64 */
void attn__vm_begin(const attn__vm *vm, void *scratch, const attn__env *env,
                    const attn__bound *bound);
void attn__vm_columns(const attn__vm *vm, void *scratch, int32_t k0, int n);
/* out[r]: n lanes of root r: float (f32), int32_t (i32), int32_t 0 or 1 (bool); valid until the
   next call. s may be NULL if no root depends on it. */
void attn__vm_row(const attn__vm *vm, void *scratch, int32_t i, int32_t q, const float *s,
                  const void **out);

#endif
