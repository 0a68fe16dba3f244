/* attn_int.h: what the files of lib/ share: errors, dtypes, the resolved problem, the engine table.

   Who includes it: every file of lib/. Internal names begin with attn__ and are hidden. */
#ifndef ATTN_INT_H
#define ATTN_INT_H

#include "attn.h"

#include <math.h>

/* Products and sums stay apart, here and in every file that includes this one: the same bits from
   every compiler and on every chip. gcc 12 -O2 takes (double)(float)x for x where it does two of
   them at once, hence no straight-line vectorisation. */
#if defined(__clang__)
#pragma STDC FP_CONTRACT OFF
#elif defined(__GNUC__)
#pragma GCC optimize("fp-contract=off", "no-tree-slp-vectorize")
#endif

/* -- status.c ---------------------------------------------------------------------------------- */
/* Stores the sentence and the argument's name for attn_error(); returns `status`. */
int attn__fail(int status, const char *arg, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
#define ATTN_TRY(x)                                                                                \
    do {                                                                                           \
        int attn__status = (x);                                                                    \
        if (attn__status < 0) {                                                                    \
            return attn__status;                                                                   \
        }                                                                                          \
    } while (0)

/* malloc that fails with ATTN_MEMORY's sentence; NULL then. Released by free. */
void *attn__alloc(size_t bytes, const char *what);
/* Structs with a `size`: from the caller and to the caller, `known` bytes. Another size is refused:
   no struct has grown since the first release. Both sides' `size` is set. */
int attn__struct_in(void *to, size_t known, const void *from, const char *name);
int attn__struct_out(void *to, const void *from, size_t known, const char *name);
void attn__log_write(int level, const char *format, ...) __attribute__((format(printf, 2, 3)));
int attn__log_level(void);
/* Text as the inside of a JSON string; NULL without memory. Released by free. */
char *attn__json_text(const char *text);
/* Makes a folder and those that it is in. */
void attn__make_folder(const char *path);

/* -- dtype.c ----------------------------------------------------------------------------------- */
static inline int attn__type_of(const attn_tensor *t) { return t->dtype.code | t->dtype.bits << 8; }
const char *attn__type_name(int type); /* "bf16", or "?" */
int attn__type_bytes(int type);        /* 0: not an attn_type */
/* n elements with stride `step` (elements) from memory to f32 and back (round to nearest even). */
void attn__load_f32(float *to, const void *from, int type, int64_t n, int64_t step);
void attn__store_f32(void *to, int type, int64_t step, const float *from, int64_t n);
double attn__get(const void *at, int type);  /* one element, exact */
void attn__set(void *at, int type, double x); /* one element, rounded once */
float attn__f16_to_f32(uint16_t x);
uint16_t attn__f32_to_f16(float x);
float attn__bf16_to_f32(uint16_t x);
uint16_t attn__f32_to_bf16(float x);

/* -- tensor.c: one attn_tensor, checked -------------------------------------------------------- */
struct attn__view;
/* How a tensor is to be: `axes` names the view's axis of each dimension, a letter of "bhnd". */
typedef struct attn__want {
    const char *name, *axes, *shape; /* "q", "bhnd", "[B][H][NQ][D]" */
    const int *types;                /* what is allowed, 0 at the end */
    int output;                      /* elements must not share memory */
} attn__want;
/* Fills the view; a refused tensor has its sentence. planning: data is neither needed nor read. */
int attn__tensor_view(const attn_device *device, const attn_tensor *t, const attn__want *want,
                      int planning, struct attn__view *view);
/* What every tensor must fulfil, whatever its rank: type, device (NULL: host memory), extents, and
   a size that fits. */
int attn__tensor_check(const attn_device *device, const attn_tensor *t, const char *name,
                       int planning);
int64_t attn__stride(const attn_tensor *t, int axis); /* compact ones written out */
/* What is demanded of tensors that are written: every stride steps over all that smaller ones
   reach, so that no two elements share memory. Axes in any order; an empty tensor passes. */
int attn__check_steps(const char *name, int rank, const int64_t *n, const int64_t *st);
/* Rows of the last axis in order: moves `at` to the next one, 0 after the last. No extent is 0;
   `index` has an entry per axis, all 0 at first. */
int attn__next_row(const attn_tensor *t, int64_t *index, char **at);

/* -- device.c ---------------------------------------------------------------------------------- */
int attn__device_check(const attn_device *device); /* refuses NULL */
uint64_t attn__host_memory(void);                  /* bytes this machine has */

/* -- memory.c ---------------------------------------------------------------------------------- */
int attn__stream_check(const attn_device *device, const void *stream);
/* A few bytes of the device's memory; waits for all that a chip was given. */
int attn__device_read(const attn_device *device, void *to, const void *from, uint64_t bytes);

/* -- problem.c: a call, checked and resolved --------------------------------------------------- */
/* Axes [batch][head][row][element]; packed tensors have n[0] = 1 and st[0] = 0. Strides in
   elements. Absent tensors have type 0. */
typedef struct attn__view {
    char *data; /* byte_offset applied; NULL while planning */
    int32_t type, bytes;
    int64_t n[4], st[4];
} attn__view;

static inline char *attn__at(const attn__view *t, int64_t b, int64_t h, int64_t row) {
    return t->data + (b * t->st[0] + h * t->st[1] + row * t->st[2]) * t->bytes;
}

struct attn__bound;

typedef struct attn__problem {
    uint32_t flags;
    int32_t direction;
    int64_t B, H, HK, NQ, NK, D, DV; /* NQ, NK: longest sequence */
    int64_t TQ, TK;                  /* rows of q and k in memory, per [batch] if padded */
    int32_t q_packed, k_packed;
    double scale, dropout;
    uint32_t drop_threshold; /* T: keep iff u16 >= T; 0: no dropout */
    float drop_factor;       /* 65536 / (65536 - T) */
    uint64_t seed;
    uint32_t offset;
    const uint64_t *seed_at; /* the key lies there and `seed` is not known: memory not the host's */
    int32_t has_seed_at;
    uint32_t alignment; /* promised, never 0 */
    int64_t b0, h0, i0, k0;                 /* origins */
    int64_t batch, nh, hk, nq_all, nk_all;  /* totals; nq_all, nk_all 0: the used length */
    attn__view q, k, v, o, dout, dq, dk, dv;
    attn__view lse, dlse;                   /* n[3] = 1 */
    attn__view sink, dsink;                 /* [1][H][1][1] */
    attn__view q_scale, k_scale, v_scale;   /* [B][HK or H][blocks of 128][1]; extents may be 1 */
    int32_t q_scale_heads, k_scale_heads, v_scale_heads; /* extent of the head axis: 1, HK or H */
    int32_t q_scale_rank, k_scale_rank, v_scale_rank;
    const int32_t *q_offsets, *k_offsets, *q_used, *k_used; /* NULL: absent or planning */
    int64_t q_offsets_st, k_offsets_st, q_used_st, k_used_st;
    int32_t has_q_offsets, has_k_offsets, has_q_used, has_k_used;
    int64_t block_m, block_n, block_most;   /* 0: no block lists */
    attn__view block_counts, block_indices; /* [B or 1][H or 1][blocks][1 or most] */
    const attn_variant *variant;            /* never NULL: plain is the variant "s" */
    struct attn__bound *bound;              /* one per symbol; owned by the caller of problem_new */
} attn__problem;

/* Resolves and checks everything the host sees. planning: data pointers are neither needed nor
   read. bound has room for every symbol of the variant, `scratch` attn__overflow_scratch bytes; a
   run needs it only if attn__checks_overflow. */
int attn__problem_new(const attn_device *device, int direction, const attn_call *call,
                      const attn_variant *variant, int planning, struct attn__bound *bound,
                      void *scratch, attn__problem *problem);
int attn__checks_overflow(const attn_variant *variant); /* 1: every run does, not the plan alone */

int attn__check_flags(uint32_t flags);
/* Sets origins and totals; the problem's sizes and dropout are known. */
int attn__origins_in(const attn_call *call, attn__problem *p);

/* -- sequence.c -------------------------------------------------------------------------------- */
/* One sequence, lengths clamped to what memory holds. Local rows are 0..nq; local row r stands at
   memory row q_row + r of its tensors (batch index `mb` there: 0 if packed). */
typedef struct attn__seq {
    int64_t qb, kb;         /* batch index into q-like and k-like views (0 if packed) */
    int64_t q_row, k_row;   /* first memory row */
    int32_t nq, nk;         /* used rows and keys here */
    int32_t i0, k0;         /* global row of local row 0, global key of local key 0 */
    int32_t q0;             /* key coordinate of local row 0: q = q0 + local row */
    int32_t b, nq_all, nk_all; /* leaves b, nq, nk */
} attn__seq;
attn__seq attn__sequence(const attn__problem *p, int64_t b);
/* Gives every row that belongs to no used part of a sequence its value: out 0, LSE -inf, gradients
   0; and zeroes dsink and the captures' gradients. Engines then touch used rows only and add to
   dsink and capture gradients. */
void attn__clear_unused(const attn__problem *p);
/* scale * q_scale * k_scale of a pair's blocks, and v's scale; 1 where absent. h: local query head;
   row: local row of its sequence. */
float attn__scale_at(const attn__view *t, int heads, const attn__problem *p, int64_t b, int64_t h,
                     int64_t row);

/* -- check.c ----------------------------------------------------------------------------------- */
/* ATTN_CHECK=1: refuses what engines would clamp: lengths, block lists, i32 tables with bounds. */
int attn__check_memory(const attn_device *device, const attn__problem *p);

/* -- setting.c --------------------------------------------------------------------------------- */
enum attn__setting {
    ATTN__SET_CHECK,      /* ATTN_CHECK: 1 or 0 */
    ATTN__SET_MULTISTAGE, /* ATTN_SCHEDULE: 1 or 0 */
    ATTN__SET_SECONDS,    /* ATTN_COMPILE_SECONDS */
    ATTN__SET_CACHE_MIB,  /* ATTN_CACHE_MIB */
    ATTN__SETTINGS
};
/* What the environment says, or what holds where it says nothing or nonsense. */
int64_t attn__setting(enum attn__setting which);
/* Refuses nonsense, of one or of all. */
int attn__setting_check(enum attn__setting which);
int attn__settings_check(void);

/* -- alias.c ----------------------------------------------------------------------------------- */
/* Refuses what is written if another tensor begins at its address; NULL: absent or empty. */
int attn__check_alias(const char *written, const void *at, const char *other, const void *there);
/* Of all that a run names. */
int attn__check_aliases(const attn__problem *p);

/* -- dropout.c: Philox4x32-7 (Salmon et al. 2011) ---------------------------------------------- */
void attn__philox(uint64_t key, const uint32_t counter[4], uint32_t out[4]);
/* Sets the problem's dropout, threshold, factor, seed and offset; a run reads a seed in the host's
   memory, and leaves another one to the kernels: seed_at. */
int attn__dropout_in(const attn_device *device, const attn_call *call, int planning,
                     struct attn__problem *p);
/* keep[j] in {0, 1} for global keys k .. k+n of global row i; bh = b * nh + h, global. */
void attn__dropout_row(const attn__problem *p, uint32_t bh, uint32_t i, int64_t k, int n,
                       uint8_t *keep);

/* e^x of a visible pair or a sink, which is never 0: infinity times it is infinity. What is below
   e^-480 is below all that types hold, beside the row's largest. */
static inline double attn__weight(double x) { return exp(x < -480 ? -480 : x); }

/* -- Engines ----------------------------------------------------------------------------------- */
/* What computes on one kind of device. plan: may compile, sets workspace, kernel and state. */
typedef struct attn__engine {
    const char *name;
    int (*plan)(attn_plan *plan);
    int (*run)(const attn_plan *plan, const attn__problem *problem, char *workspace,
               void *stream);
    void (*release)(attn_plan *plan); /* frees plan->state */
} attn__engine;
extern const attn__engine attn__cpu, attn__ref, attn__gpu; /* cpu.c, ref.c, gpu.c */

/* plan_info.c: blocks of one head of the longest sequence, and its visible pairs. */
typedef struct attn__counts {
    int64_t block, blocks, part, full;
    double pairs;
} attn__counts;

struct attn_plan {
    int32_t refs; /* atomic */
    attn_device *device;
    const attn__engine *engine;
    attn_variant *variant;
    attn__problem problem; /* of the planned shapes; no pointers */
    struct attn__bound *bound;
    uint64_t workspace;
    char kernel[64];
    void *state; /* the engine's */
    int32_t counted; /* atomic: 0 no, 1 somebody writes `counts`, 2 they are there */
    attn__counts counts;
};

struct attn__pool;
struct attn__tile_ops;
struct attn__driver;
struct attn__chip;
struct attn_device {
    int32_t refs; /* atomic */
    int32_t kind, index; /* DLPack's */
    const attn__engine *engine;
    int32_t threads;
    struct attn__pool *pool; /* CPU */
    const struct attn__tile_ops *ops; /* CPU */
    const struct attn__driver *driver; /* gpu.h: a chip, emulated or not; NULL on a CPU */
    struct attn__chip *chip;
    uint64_t used; /* atomic: bytes of live buffers */
    char name[64];
};

/* -- cpu_base.c -------------------------------------------------------------------------------- */
/* The table of loops that the environment variable ATTN_CPU names, or else the fastest. */
int attn__cpu_choose(const struct attn__tile_ops **ops);

/* -- cpu_pool.c -------------------------------------------------------------------------------- */
/* A small pool of threads: signals blocked, safe over fork, counts the cores the cgroup allows. */
int attn__cores(void);
int attn__pool_new(int threads, struct attn__pool **pool);
void attn__pool_free(struct attn__pool *pool);
/* Calls fn(arg, item, thread) for every item in 0..n; thread < threads. The caller is thread 0.
   Items go to threads in any order. A run while another one has the pool does its items alone. */
void attn__pool_run(struct attn__pool *pool, int64_t n,
                    void (*fn)(void *arg, int64_t item, int thread), void *arg);

#endif
