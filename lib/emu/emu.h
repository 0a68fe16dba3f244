/* emu.h: the emulated chip: what runs a kernel, and what the models of instructions build on.

   Who calls it: emu.c's driver (lib/gpu.h), the models ptx.c and gcn.c, and through the table
   attn__emu_api the compiled kernel itself, whose isa/ is lib/emu/isa/.

   A block's threads are fibers of one host thread; a thread runs until it waits. An instruction
   that lanes do together is a meeting: each lane brings a struct of its operands, the last one that
   arrives does the work of all, then all go on.

       lane 0  ....meet(work, &mine)                     | goes on
       lane 1  ........meet(work, &mine)                 | goes on
       ...                                               |
       lane 31 ...............meet: work(lane[0..31])----+ goes on

   Shared memory is an arena per block with a shadow word per 4 bytes:
   - poison: never written, or a copy on its way: reading it is reported;
   - who wrote and who read it since the last block barrier: another warp's access is a race and
     reported, also where the fibers' order would hide it;
   - bank conflicts are counted per access of a warp.
   Every access of device memory is counted in bytes. */
#ifndef ATTN_EMU_H
#define ATTN_EMU_H

#include <stddef.h>
#include <stdint.h>

enum { EMU_LANES = 64, EMU_THREADS = 1024 };

/* What one launch did. */
typedef struct attn__emu_counts {
    uint64_t load_bytes, store_bytes; /* device memory, as issued by lanes */
    uint64_t shared_access;           /* accesses of a warp */
    uint64_t shared_cycles;           /* what they take; equal without conflicts */
    uint64_t matrix_ops;              /* of a warp */
    uint64_t flops;                   /* of them */
    uint64_t barriers;                /* of a block */
} attn__emu_counts;

/* -- For the models (ptx.c, gcn.c) ------------------------------------------------------------- */
int attn__emu_thread(void); /* number in the block */
int attn__emu_lanes(void);  /* of a warp of this chip: 32 or 64 */
/* All lanes of the warp meet; the last runs work(lane), lane[i] being what lane i brought. */
void attn__emu_meet(void (*work)(void *const *lane), void *mine);
/* `bytes` of shared memory at `at`, checked: in range, aligned to `bytes`, no race, if read no
   poison. A fault ends the launch with a sentence and does not return. */
void *attn__emu_shared(uint32_t at, uint32_t bytes, int write);
/* Counts one access of a warp: n lanes with their addresses, each `bytes` wide. */
void attn__emu_banks(const uint32_t *at, int n, int bytes);
void attn__emu_loaded(uint64_t bytes);
void attn__emu_stored(uint64_t bytes);
void attn__emu_matrix(uint64_t flops); /* one matrix instruction of a warp */
_Noreturn void attn__emu_fault(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif
