/* vm_loops.h: the instructions of the vector machine's lanes, a table per instruction set.

   Who calls it: vm.c picks a table, vm_write.c writes programs with it, vm_run.c runs them;
   vm_base.c, vm_avx2.c and vm_avx512.c fill one each from vm_lanes.h.

   A chunk of lanes is four vectors, and one chunk is at hand in vector registers. An instruction
   makes it anew from itself and from up to two others in memory, and jumps to the next: a chain of
   operations leaves the registers only where a value is wanted twice.

       at hand   a b c d --- op ---> a b c d --- op ---> a b c d ---> store
                              ^                   ^
       memory             chunk of x          chunk of y

   Memory has three kinds of values: a row of lanes, a row along the tile's diagonals, and a chunk
   that is the same for all chunks of a row (constants) or lives no longer than one (what is wanted
   twice). */
#ifndef ATTN_VM_LOOPS_H
#define ATTN_VM_LOOPS_H

#include "expr.h"

enum vm_base { AT_CHUNK, AT_ROW, AT_DIAGONAL, VM_BASES };

/* Where a value lies: `at` bytes behind a base. */
typedef struct vm_ref {
    int32_t at, base;
} vm_ref;

typedef void (*attn__lane_fn)(void); /* its true type is a table's own: it has vectors */

typedef struct vm_insn {
    attn__lane_fn fn;
    vm_ref of[2]; /* the arguments that are not at hand, in order; what a store writes */
} vm_insn;

typedef struct attn__lanes {
    const char *name; /* that of the CPU engine's table */
    int chunk;        /* lanes of a chunk */
    /* Runs a chain over the chunks that have lanes begin..end. Returns 1 if `score` met -inf. */
    int (*run)(const vm_insn *chain, char *const base[VM_BASES], const float *s, float by,
               int begin, int end);
    attn__lane_fn load, store, score, pause, end; /* score: s * by comes at hand */
    /* [op][argument type][which argument is at hand]; bools and every select stand under VT_I32,
       NULL where there is no rule. */
    attn__lane_fn op[OP_leaf][3][3];
} attn__lanes;

/* The i-th table that this processor can run, the fastest first; NULL past the end. */
const attn__lanes *attn__lanes_at(int i);
/* The one that the environment variable ATTN_CPU names, else the fastest. */
const attn__lanes *attn__lanes_chosen(void);

extern const attn__lanes attn__lanes_base;
#if defined(__x86_64__)
extern const attn__lanes attn__lanes_avx2, attn__lanes_avx512;
#endif

#endif
