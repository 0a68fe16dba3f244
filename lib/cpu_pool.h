/* cpu_pool.h: what the pool's test needs besides attn_int.h. */
#ifndef ATTN_CPU_POOL_H
#define ATTN_CPU_POOL_H

#include "attn_int.h"

/* The smaller of `cores` and the CPU quota of the groups in `table` (/proc/self/cgroup), whose
   files stand below `root` (/sys/fs/cgroup); version 1 and 2; a quota of 1.5 cores counts 2. */
int attn__cgroup_cores(const char *table, const char *root, int cores);

#endif
