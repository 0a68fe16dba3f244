/* gpu.h: a chip with kernels, whoever makes it: the driver's table, and what the files of the GPU
   engine share.

       gpu.c gpu_fwd.c gpu_bwd.c gpu_grads.c gpu_kernel.c gpu_module.c
                     engine: plan -> text, compile, load; run -> parameters, launch
       gpu_text*.c   a variant as text of device functions: score, mask, class, derivative
       gpu_params.c  a run's attn_params
       target_*.c    one table of tile sizes per chip
       jit.c         text -> code object: hash, cache; jit_cc.c jit_nvrtc.c jit_hiprtc.c compile
       kernel_text.c the files of hip_kernels/ as strings (generated)
       gpu_cuda.c gpu_hip.c emu/emu_driver.c gpu_make.c    drivers

   Who calls it: device.c (attn_device holds an attn__chip), the engine attn__gpu. */
#ifndef ATTN_GPU_H
#define ATTN_GPU_H

#include "attn_int.h"

typedef struct attn__chip attn__chip;     /* an opened device, the driver's own */
typedef struct attn__module attn__module; /* loaded code, the driver's own */

/* Rows of memory, `pitch` bytes from one to the next. */
typedef struct attn__rows {
    void *at;
    int64_t pitch;
    int32_t is_host;
} attn__rows;

/* Boxes of a tensor, whose rows TMA brings to shared memory in 128-byte swizzle: element c of row r
   (counted through the box, its second axis fastest) at byte (r * 128 + 2 c) ^ (r % 8 * 16). */
typedef struct attn__boxes {
    int type; /* ATTN_F16, ATTN_BF16 */
    const void *data;
    int64_t n[4];     /* extents, the first one's elements follow each other */
    int64_t st[3];    /* bytes from one to the next of the others; where n is 1, any number */
    int32_t box[4];   /* extents of a box, at most 64, 256, 256, 256 */
} attn__boxes;

/* One way to reach chips. Every function that can fail returns an attn_status with its sentence. */
typedef struct attn__driver {
    const char *name; /* "emu", "cuda", "hip", "make" */
    int kind;         /* DLPack's device type of its memory; the emulator's is the host's */
    /* Fills at most cap entries, those that are missing with their sentence; returns how many. */
    int (*list)(attn_device_info *list, int cap);
    int (*open)(const char *device, attn__chip **chip);
    void (*close)(attn__chip *chip);
    const struct attn__target *(*target)(const attn__chip *chip);
    int (*query)(attn__chip *chip, attn_device_info *info); /* memory, arch */
    /* Memory, aligned to 256 bytes. */
    int (*alloc)(attn__chip *chip, uint64_t bytes, void **pointer);
    void (*free)(attn__chip *chip, void *pointer);
    /* Host memory <-> device memory, in stream order; returns when it has happened. */
    int (*to_device)(attn__chip *chip, void *to, const void *from, uint64_t bytes, void *stream);
    int (*to_host)(attn__chip *chip, void *to, const void *from, uint64_t bytes, void *stream);
    /* `rows` rows of `bytes` bytes, either side; the bytes between the rows are not touched.
       Returns when it has happened if a side is host memory. NULL where memory is the host's, as
       `wait` is: waits for all that the device was given. */
    int (*copy_rows)(attn__chip *chip, const attn__rows *to, const attn__rows *from, uint64_t bytes,
                     uint64_t rows, void *stream);
    int (*wait)(attn__chip *chip);
    int (*stream_new)(attn__chip *chip, void **stream);
    void (*stream_free)(attn__chip *chip, void *stream);
    int (*stream_sync)(attn__chip *chip, void *stream);
    /* `bytes`, a multiple of 4, become 0 in stream order. NULL: there are no counters. */
    int (*zero)(attn__chip *chip, void *at, uint64_t bytes, void *stream);
    /* A mark in a stream: done when all that was put there before it has ended. NULL where work has
       ended when its call returns. */
    int (*event_new)(attn__chip *chip, void **event);
    void (*event_free)(attn__chip *chip, void *event);
    int (*event_record)(attn__chip *chip, void *event, void *stream);
    int (*event_done)(attn__chip *chip, void *event, int *done);
    /* What is put on the stream from now on comes after the mark; the host does not wait. */
    int (*event_await)(attn__chip *chip, void *event, void *stream);
    /* A code object of this chip's compiler (jit.h). */
    int (*load)(attn__chip *chip, const void *code, size_t bytes, attn__module **module);
    /* Of a driver that collects code: what the job of this key became. May be NULL. */
    int (*keep)(attn__chip *chip, const char *job, const void *code, size_t bytes);
    void (*unload)(attn__chip *chip, attn__module *module);
    int (*number)(attn__chip *chip, attn__module *module, const char *name, int32_t *value);
    /* Looks a kernel up and allows it `shared` bytes, so that launch need not; a plan does it.
       *spilled: bytes of memory in which a thread keeps what its registers cannot hold. May be
       NULL: none. */
    int (*prepare)(attn__chip *chip, attn__module *module, const char *kernel, int shared,
                   int *spilled);
    int (*launch)(attn__chip *chip, attn__module *module, const char *kernel, int64_t blocks,
                  int threads, int shared, const void *params, size_t bytes, void *stream);
    /* 1: the words describe the box for the chip; 0: its copies cannot bring it (an address or a
       stride that is no multiple of 16 bytes, or too large). May be NULL: there are none. Emulated,
       the words are: address, n[0..3], st[0..2], box[0..3], bytes of an element, 0, 0, 0. */
    int (*describe)(attn__chip *chip, const attn__boxes *box, uint64_t word[16]);
} attn__driver;

/* How a chip's code is made, and what its kernels should look like: target_*.c. */
typedef struct attn__target {
    const char *name;     /* "sm_80", "compute_80", "sm_90a", "gfx90a", "gfx942" */
    const char *compiler; /* "nvrtc", "ptx", "hiprtc", "cc" (emulated) */
    int emulated;         /* ATTN_EMU's value, or 0 */
    int lanes;            /* of a warp */
    int units;            /* SMs or CUs to fill; read from the chip where there is one */
    int xcds;
    int shared;           /* bytes of shared memory a block may have */
    const struct attn__tile_row *tiles; /* target.h: of forward */
    const struct attn__tile_row *producer; /* forward's of that schedule; NULL: there is none */
    const struct attn__tile_row *few;      /* the same of few rows with a mask */
    const struct attn__tile_row *plain;    /* the same where nothing is asked but q.k and p.v */
    const struct attn__grad_row *grads; /* of backward */
    const struct attn__group_row *groups; /* of it, too: what is tried first; NULL: none */
} attn__target;
/* target.c. The target of a name, or number i of all; NULL: there is none. */
const attn__target *attn__target_find(const char *name);
const attn__target *attn__target_at(int i);
/* The names of those of a compiler, NULL: of any, as "gfx90a, gfx942". */
enum { ATTN__TARGET_NAMES = 96 };
void attn__target_names(const char *compiler, char names[ATTN__TARGET_NAMES]);

/* The tile of a kernel: what core/config.h wants. */
typedef struct attn__tile_size {
    int bm, bn, warps, stages;
} attn__tile_size;
enum { ATTN__LEAST_KEYS = 32 }; /* of forward's steps */
typedef struct attn__tile_row attn__tile_row;
/* Chosen by element type (attn_type), compiled head sizes, and rows that share K and V. */
attn__tile_size attn__target_tile(const attn__target *target, int type, int d, int dv,
                                  int64_t rows);
/* The same of the producer schedule; bn 0: the chip does not have it for them. */
enum attn__tile_kind {
    ATTN__TILE_ANY,
    ATTN__TILE_FEW,  /* and masked */
    ATTN__TILE_PLAIN /* scores are products, and all of them are visible */
};
attn__tile_size attn__target_producer(const attn__target *target, int type, int d, int dv,
                                      int64_t rows, enum attn__tile_kind kind);
/* The next smaller tile of at least so many keys a step, for a variant that would spill; 0: there
   is none. */
int attn__tile_smaller(attn__tile_size *tile, int least);

/* Of backward, whose head sizes are one. */
typedef struct attn__grad_size {
    attn__tile_size tile;
    int apart; /* dk and dv are summed one after the other */
    attn__tile_size fused; /* of all three gradients by one kernel; bm 0: there is none */
    int split;             /* its warps that share rows */
} attn__grad_size;
/* groups: fused, products are those of groups of warps, and nothing else is told. */
attn__grad_size attn__target_grad(const attn__target *target, int type, int d, int64_t rows,
                                  int groups);
int attn__grad_least(const attn__target *target, int d, int fused, int groups); /* of its steps */

extern const attn__driver attn__cuda, attn__hip; /* gpu_cuda.c, gpu_hip.c */
/* gpu_near.c: of a table whose memory is the host's. */
int attn__near_alloc(attn__chip *chip, uint64_t bytes, void **pointer);
void attn__near_free(attn__chip *chip, void *pointer);
int attn__near_copy(attn__chip *chip, void *to, const void *from, uint64_t bytes, void *stream);
int attn__near_stream_new(attn__chip *chip, void **stream);
void attn__near_stream_free(attn__chip *chip, void *stream);
int attn__near_stream_sync(attn__chip *chip, void *stream);
int attn__cuda_version(void); /* of the driver, 12040 for 12.4; 0: there is none */

#endif
