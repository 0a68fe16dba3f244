/* vm_write.h: what vm.c, which places values, and vm_write.c, which writes code, share. */
#ifndef ATTN_VM_WRITE_H
#define ATTN_VM_WRITE_H

#include "vm_int.h"

enum { IRREGULAR = INT32_MIN, NOWHERE = -1 };

/* A node's value. */
typedef struct place {
    uint8_t phase;     /* CODE_BEGIN, CODE_COLUMNS or CODE_ROW: when its arguments are known */
    uint8_t home;      /* the code that makes it for others: its phase, or CODE_ROWS */
    uint8_t wide;      /* each lane has its own; else it is uniform */
    uint8_t output;    /* wide: others than its home's code read it */
    int32_t row, lane; /* i32: growth from row to row and from lane to lane, or IRREGULAR */
    int32_t slot;      /* uniform */
    vm_ref kept;       /* wide: where others find it; uniform: its splatted chunk */
} place;

/* The same in the code that is being written. */
typedef struct local {
    vm_ref at;            /* base NOWHERE: in no memory yet */
    int32_t uses, level;  /* readers to come; loads before it that wait for lanes */
    uint8_t needed, made; /* needed here; made here as lanes */
    uint8_t crosses;      /* read by a load or on a later level: wants a row */
} local;

typedef struct vm_pool {
    int32_t *spare; /* places that nobody holds */
    int n;
} vm_pool;

typedef struct writer {
    const attn_graph *g;
    attn__vm *vm;
    place *at;
    uint8_t *need; /* by a root */
    local *here;
    int32_t *order, *stack;
    vm_pool pool[VM_BASES];
    int failed; /* no memory */
} writer;

/* A place that nothing else is ever put in. */
vm_ref attn__vm_keep(writer *w, int base);
vm_step *attn__vm_step(writer *w, int code, int kind);
void attn__vm_scalar(writer *w, int code, int node);
/* The code of the values whose `needed` is set, for which a place that is `output` is kept. */
void attn__vm_write(writer *w, int code);

#endif
