/* fork.h: the locks of what a process has once; see fork.c.

   Who includes it: gpu_module.c, jit_bundle.c, jit_cc.c, blocks.c, status.c, emu/emu.c. */
#ifndef ATTN_FORK_H
#define ATTN_FORK_H

#include <pthread.h>

/* A thread that holds one of them may take only those behind it. */
typedef enum attn__lock_name {
    ATTN__MODULES,  /* gpu_module.c: loaded kernels */
    ATTN__COMPILER, /* jit_cc.c: what compilers say they are */
    ATTN__BUNDLES,  /* jit_bundle.c: opened bundles */
    ATTN__BLOCKS,   /* blocks.c: memory of devices */
    ATTN__CORES,    /* emu.c: idle cores of the emulator */
    ATTN__LOG,      /* status.c: the log's file */
    ATTN__LOCKS
} attn__lock_name;

void attn__lock(attn__lock_name which);
void attn__unlock(attn__lock_name which);
/* Waits for `changed`; other threads may have the lock meanwhile. */
void attn__lock_wait(attn__lock_name which, pthread_cond_t *changed);

/* Called in a child, which has the forking thread alone, while all locks are held. */
void attn__modules_in_child(void); /* gpu_module.c */

#endif
