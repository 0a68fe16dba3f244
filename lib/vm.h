/* vm.h: the vector virtual machine, which evaluates a variant over one row of a tile at a time.

   Who calls it: the CPU engine for tiles, sample.c. A program is compiled once per plan; every
   thread has its own scratch. What does not depend on the row is hoisted:

       begin(env)                once per work item: what depends on b, h, lengths, parameters
         columns(k0, n)          once per key tile: what depends on k too
           rows(i0, q0, rows)    once per tile: what depends on k - q, along its diagonals
             row(r, s, by, ...)  once per row: the rest

   Arithmetic is f32 and i32, bit for bit attn__op32's, whatever the width and a column's place. */
#ifndef ATTN_VM_H
#define ATTN_VM_H

#include "expr.h"

enum {
    ATTN__VM_WIDTH = 128, /* most columns of a row */
    ATTN__VM_ROWS = 64    /* most rows of a tile */
};

typedef struct attn__vm attn__vm;

/* Roots are nodes of g; the program keeps what it needs of g by copy. */
int attn__vm_new(const attn_graph *g, const int32_t *roots, int n_roots, attn__vm **vm);
void attn__vm_free(attn__vm *vm);
size_t attn__vm_scratch(const attn__vm *vm); /* bytes per thread, aligned to 64 */
void attn__vm_begin(const attn__vm *vm, void *scratch, const attn__env *env,
                    const attn__bound *bound);
void attn__vm_columns(const attn__vm *vm, void *scratch, int32_t k0, int n);
/* The tile's first row stands at i0 and q0, the others follow one by one. */
void attn__vm_rows(const attn__vm *vm, void *scratch, int32_t i0, int32_t q0, int rows);
/* Columns begin..end of row r of the tile, whose scores are s[j] * by. out[root]: n lanes of a
   root, of which the others hold anything: float (f32), int32_t (i32), int32_t 0 or 1 (bool); valid
   until the next call, in places of any alignment. s has room for VM_WIDTH columns, and may be NULL
   if no root depends on it. Returns 1 if the program reads s and an element near these columns
   times `by` may be -inf. */
int attn__vm_row(const attn__vm *vm, void *scratch, int r, const float *s, float by, int begin,
                 int end, const void **out);

#endif
