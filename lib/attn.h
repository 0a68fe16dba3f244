/* attn.h: exact attention, its gradient and every variant of it.

   The whole public API, for C11, C++17 and, by tools/gen_cdef.lua, LuaJIT's cdef. The order of use:

       attn_device_open -> attn_variant_* -> attn_plan_new -> attn_plan_query -> attn_run ...
             device          score and mask    shapes only      workspace bytes    launch and return

   Manners.
   - A function that can fail returns an attn_status: 0, or negative; attn_error() has a sentence.
   - Structs that may grow begin with `size`: set it to sizeof. Every other zero means the default.
     Members named `reserved` are 0.
   - Handles are immutable after creation and counted: _retain; _release takes NULL and never fails.
     They may be used from many threads at once; runs at the same time need a workspace each.
   - Shapes are written [B][H][N][D]: batch, heads, rows, head dimension. H query heads share HK key
     and value heads (H a multiple of HK); NQ and NK rows; D for q and k, DV for v and o.
   - All strides are in elements, any size, but the last one is 1 (or the last extent is 1).
   - What a call writes shares no element with anything else that it names, read or written; two
     tensors may interleave. A common mistake, two that begin at one address, is refused.
   - A function that makes a handle sets its place to NULL when it fails. */
#ifndef ATTN_H
#define ATTN_H

#include <stddef.h>
#include <stdint.h>

#if defined(__GNUC__)
#define ATTN_API __attribute__((visibility("default")))
#else
#define ATTN_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

#define ATTN_VERSION_MAJOR 0
#define ATTN_VERSION_MINOR 1
#define ATTN_VERSION_PATCH 0

/* -- Status and errors ------------------------------------------------------------------------- */

/* X(name, number, meaning). docs/errors.md is generated from this list. */
#define ATTN_STATUSES(X)                                                                           \
    X(OK, 0, "it worked")                                                                          \
    X(INVALID, -1, "an argument has a value that is not allowed")                                  \
    X(SHAPE, -2, "a tensor has the wrong rank or extent")                                          \
    X(DTYPE, -3, "a tensor has the wrong element type")                                            \
    X(DEVICE, -4, "a tensor is on another device; or no such device, or no compiler, is here")     \
    X(LAYOUT, -5, "a stride, an alignment or an overlap is not allowed")                           \
    X(VARIANT, -6, "a variant is not well typed, may overflow, or is too large")                   \
    X(PARSE, -7, "a variant text or a file is damaged")                                            \
    X(CAPTURE, -8, "a tensor or parameter that the variant reads is missing or does not fit")      \
    X(MISMATCH, -9, "a run differs from its plan")                                                 \
    X(MEMORY, -10, "out of memory")                                                                \
    X(IO, -11, "a file could not be read or written")                                              \
    X(UNSUPPORTED, -12, "this device cannot do it in this version")                                \
    X(DRIVER, -13, "a driver, a compiler or a device failed")

#define ATTN__STATUS_ENUM(name, number, meaning) ATTN_##name = number,
typedef enum attn_status { ATTN_STATUSES(ATTN__STATUS_ENUM) ATTN_STATUS_END = 1 } attn_status;
#undef ATTN__STATUS_ENUM

/* "0.1.0". */
ATTN_API const char *attn_version(void);
/* This thread's last failure in one sentence: the argument, what was given, what is allowed. */
ATTN_API const char *attn_error(void);
/* The name of the argument that the last failure is about ("k", "captures.slopes"), or "". */
ATTN_API const char *attn_error_arg(void);
/* "SHAPE" for ATTN_SHAPE; "unknown" for a number that is no status. */
ATTN_API const char *attn_status_name(int status);
/* sizeof of a public struct by its name ("attn_call"); 0 if there is none. Bindings check it. */
ATTN_API size_t attn_sizeof(const char *struct_name);
/* Appends to `path` one JSON object per plan and per kernel that the cache could not keep (level
   1), per run (level 2); level 0 stops. */
ATTN_API int attn_log(const char *path, int level);

/* -- Tensors ----------------------------------------------------------------------------------- */

#if defined(DLPACK_DLPACK_H_) || defined(DLPACK_DLPACK_H)
typedef DLTensor attn_tensor;
typedef DLDataType attn_dtype;
#else
typedef struct attn_device_id {
    int32_t device_type; /* DLPack's number: 1 CPU, 2 CUDA, 10 ROCm; 0 the plan's own device */
    int32_t device_id;
} attn_device_id;
typedef struct attn_dtype {
    uint8_t code, bits; /* an attn_type is code | bits << 8 */
    uint16_t lanes;     /* 1 */
} attn_dtype;
/* DLPack's DLTensor, member for member. */
typedef struct attn_tensor {
    void *data;
    attn_device_id device;
    int32_t ndim;
    attn_dtype dtype;
    int64_t *shape;
    int64_t *strides; /* NULL: compact, row-major */
    uint64_t byte_offset;
} attn_tensor;
#endif

/* X(NAME, name, DLPack code, bits). */
#define ATTN_TYPES(X)                                                                              \
    X(F64, f64, 2, 64)                                                                             \
    X(F32, f32, 2, 32)                                                                             \
    X(F16, f16, 2, 16)                                                                             \
    X(BF16, bf16, 4, 16)                                                                           \
    X(I32, i32, 0, 32)                                                                             \
    X(U8, u8, 1, 8)                                                                                \
    X(BOOL, bool, 6, 8)                                                                            \
    X(E4M3FN, e4m3fn, 10, 8)                                                                       \
    X(E4M3FNUZ, e4m3fnuz, 11, 8)                                                                   \
    X(E5M2, e5m2, 12, 8)                                                                           \
    X(E5M2FNUZ, e5m2fnuz, 13, 8)

#define ATTN__TYPE_ENUM(NAME, name, code, bits) ATTN_##NAME = code | bits << 8,
typedef enum attn_type { ATTN_TYPES(ATTN__TYPE_ENUM) ATTN_TYPE_END = 0x7fff } attn_type;
#undef ATTN__TYPE_ENUM

#ifndef __cplusplus
/* attn_tensor q = ATTN_TENSOR(pointer, ATTN_BF16, B, H, N, D); compact, valid within its block. C
   alone: its shape is a compound literal, which C++ lacks. */
#define ATTN_TENSOR(pointer, type, ...)                                                            \
    {                                                                                              \
        (pointer), {0, 0}, (int32_t)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)),          \
            {(uint8_t)((type)&255), (uint8_t)((type) >> 8), 1}, (int64_t[]){__VA_ARGS__}, NULL, 0  \
    }
#endif

/* -- Devices, memory, streams ------------------------------------------------------------------ */

typedef struct attn_device attn_device;

typedef struct attn_device_options {
    uint32_t size;
    int32_t threads; /* CPU: threads of the pool; 0: the cores this process may use */
} attn_device_options;

typedef struct attn_device_info {
    uint32_t size;
    int32_t kind, index; /* DLPack's device type and id */
    int32_t emulated;    /* 1: results of a model of the chip, no clock */
    int32_t threads;
    uint32_t reserved;
    uint64_t memory; /* bytes the device has */
    uint64_t used;   /* bytes of live attn_buffer_new memory */
    char name[64];   /* what attn_device_open takes */
    char arch[64];   /* the chip's own name */
    char missing[192]; /* "" when it can be opened, else a sentence that says what is missing */
} attn_device_info;

/* Fills list[0..capacity) and returns how many there are, the missing ones included. */
ATTN_API int attn_device_list(attn_device_info *list, int capacity);
/* name: "auto" (the fastest that does everything: "cpu"), "ref" (the double-precision oracle), or
   another one that attn_device_list names: "cuda:0", "hip:0", "emu:sm_80", ...; or "make:gfx942":
   plans compile for that chip, and a run does nothing (attn_bundle_write). CUDA: the current
   context is taken if it is of that device (it must outlive the handle), else the primary one. */
ATTN_API int attn_device_open(const char *name, const attn_device_options *options,
                              attn_device **device);
ATTN_API int attn_device_query(const attn_device *device, attn_device_info *info);
ATTN_API attn_device *attn_device_retain(attn_device *device);
ATTN_API void attn_device_release(attn_device *device);

/* Device memory, aligned to 256 bytes, contents undefined. Host memory on a CPU and on an emulated
   chip. It is released at once, whatever its stream: all work on it must have finished. Its device
   must be alive still: release buffers first, the device last. Any other memory of the device will
   do in its place (cudaMalloc's, hipMalloc's, a framework's). */
ATTN_API int attn_buffer_new(attn_device *device, uint64_t bytes, void **pointer);
ATTN_API void attn_buffer_release(attn_device *device, void *pointer);
/* Memory that is reused in the order of streams, for programs that drop what work may still use,
   as a collector does. new_on: for work that will be put on `stream`. use: work that was put on
   `stream` so far uses the buffer; not needed for NULL. retire: it may go to another new_on of
   about its size: to one for stream NULL at once where NULL's work alone used it, otherwise when
   all the work that was told has ended. trim: what waits so goes back to the driver, as all of it
   does before new_on fails for lack of memory. A host's memory is not kept. */
ATTN_API int attn_buffer_new_on(attn_device *device, uint64_t bytes, void *stream, void **pointer);
ATTN_API int attn_buffer_use(attn_device *device, void *pointer, void *stream);
ATTN_API void attn_buffer_retire(attn_device *device, void *pointer);
ATTN_API int attn_buffer_trim(attn_device *device);
/* Strided copy with conversion of the element type (round to nearest even; out of range becomes
   infinity, or the largest value where the type has no infinity). Shapes must be equal; strides may
   be any, the last one included. The bytes from a tensor's first to its last may not meet the
   other's, unless both are the same view.
   Where the device has its own memory, a tensor of DLPack's device 1 is in the host's: so data
   comes and goes. The copy is in the stream's order, and has happened when the call returns, unless
   both tensors are the device's. Layouts and types that the driver cannot copy as they are go
   through host memory in parts, as attn_random, attn_merge and attn_dropout do: right, but no
   faster than the bus. Such a call cannot be captured in a graph; attn_run can. */
ATTN_API int attn_tensor_copy(attn_device *device, const attn_tensor *to, const attn_tensor *from,
                              void *stream);
/* The documented generator: element n (row-major) of the tensor depends on (seed, n) alone and has
   the same bits on every device. docs/random.md has the formula. */
typedef enum attn_distribution { ATTN_NORMAL = 1, ATTN_UNIFORM = 2 } attn_distribution;
ATTN_API int attn_random(attn_device *device, const attn_tensor *tensor, int distribution,
                         uint64_t seed, void *stream);
/* Streams of the device: CUstream (cudaStream_t), hipStream_t, the caller's own, too; a CPU has
   only NULL. NULL is the driver's default stream; those made here wait for it and it for them.
   attn_stream_sync waits for all work given to it. */
ATTN_API int attn_stream_new(attn_device *device, void **stream);
ATTN_API void attn_stream_release(attn_device *device, void *stream);
ATTN_API int attn_stream_sync(attn_device *device, void *stream);

/* -- Variants ---------------------------------------------------------------------------------- */

/* A variant maps (s, b, h, q, k, x) to a score or to "masked":
     s   the scaled score scale * (q . k), f32
     b h batch entry and query head, counted from 0
     q   the query's position in key coordinates, q = i + nk - nq (ATTN_TOP_LEFT: q = i); may be < 0
     k   the key's position
     x   i (the query's row), nq, nk (used lengths), nh, hk (heads of q and of k), batch
   A result of false or -inf masks the pair; true keeps s. docs/ops.md lists the operations. */
typedef struct attn_variant attn_variant;

/* Text, for example "k <= q && q - k < 1024 ? s + slopes[h] * (k - q) : -inf"; docs/variants.md has
   the grammar. Undeclared names are f32: with indices tensors, without parameters. Here and below a
   failure sets *variant to NULL. */
ATTN_API int attn_variant_parse(const char *text, attn_variant **variant);
/* The ready-made ones by name: "causal" {}, "window" {l, r}, "prefix" {n}, "first_keys" {n, l},
   "alibi" {H} or {} with tensor slopes[H], "softcap" {c}, "dilated" {n}, "document" {} with i32
   tensor ids[B][NK], "bias" {b, h, q, k} (1 where tensor bias has that axis, 0 where its extent is
   1; {} all four), "relative" {r} with tensor table[H][2r+1]. attn_variant_list names them. */
ATTN_API int attn_variant_ready(const char *name, const double *numbers, int n_numbers,
                                attn_variant **variant);
/* The i-th ready-made name, its defining text and a sentence; NULL name past the end. */
ATTN_API const char *attn_variant_list(int i, const char **text, const char **about);
/* Left to right: scores chain, masks AND; what was masked stays masked. n may be 0: plain. */
ATTN_API int attn_variant_compose(const attn_variant *const *parts, int n, attn_variant **variant);
/* Visible where any part is visible; the parts must be masks (scores that are s). */
ATTN_API int attn_variant_any(const attn_variant *const *parts, int n, attn_variant **variant);
/* The canonical text, owned by the variant; parsing it gives the same text again. */
ATTN_API const char *attn_variant_text(const attn_variant *variant);
ATTN_API attn_variant *attn_variant_retain(attn_variant *variant);
ATTN_API void attn_variant_release(attn_variant *variant);

/* What a variant reads: its i-th tensor or parameter. */
typedef struct attn_symbol {
    uint32_t size;
    int32_t type; /* ATTN_F32, ATTN_I32 or ATTN_BOOL */
    int32_t rank; /* number of indices; 0 for a parameter */
    int32_t lo, hi; /* i32: declared bounds, to which what is read is clamped; none: lo > hi */
    char name[48];
} attn_symbol;
/* Returns the number of symbols and fills `symbol` with the i-th, if there is one. */
ATTN_API int attn_variant_symbol(const attn_variant *variant, int i, attn_symbol *symbol);

/* A value for a tensor or parameter that a variant reads, by name, and where its gradient goes. It
   stands in arrays and will not grow. A CPU reads values anywhere, a chip at multiples of their
   elements' size. */
typedef struct attn_capture {
    const char *name;
    const attn_tensor *value; /* the tensor; for a parameter NULL, or a tensor of one element (a run
                                 waits for a device with its own memory to read that) */
    const attn_tensor *grad;  /* f32, the shape of value; overwritten by backward; may be NULL */
    double number;            /* a parameter's value where `value` is NULL */
} attn_capture;

/* Where attn_variant_sample and _picture look. */
typedef struct attn_window {
    uint32_t size, flags;       /* ATTN_TOP_LEFT */
    int64_t b, h, i, k;         /* the first row and key, counted from 0 */
    int64_t rows, columns;      /* 0: up to nq, nk */
    int64_t nq, nk;             /* lengths; required */
    int64_t nh, hk, batch;      /* 0: 1 */
    const attn_capture *captures; /* values in host memory */
    int64_t n_captures;
} attn_window;
/* scores[rows][columns]: the variant's score of the scaled scores s[rows][columns] (NULL: zeros),
   -inf where it masks. Evaluated as every device does, in f32. No grad of a capture is written. */
ATTN_API int attn_variant_sample(const attn_variant *variant, const attn_window *window,
                                 const float *s, float *scores);
/* A drawing in characters, a line per query row: '#' visible, '.' masked. Returns the bytes needed
   with the closing zero and writes at most `capacity` of them. */
ATTN_API int64_t attn_variant_picture(const attn_variant *variant, const attn_window *window,
                                      char *text, size_t capacity);

/* Building a variant node by node; what the Lua tracer calls. A node is a number >= 0; a negative
   one is a status. Construction folds and shares: equal expressions are equal numbers. */
typedef struct attn_graph attn_graph;
typedef struct attn_node {
    uint32_t size;
    int32_t op;       /* as attn_op_find */
    int32_t type;     /* ATTN_F32, ATTN_I32 or ATTN_BOOL */
    int32_t constant; /* 1: the value is known and in `value` */
    double value;
    int32_t symbol; /* of a load or parameter; of a leaf the leaf's number; else -1 */
    int32_t n_args;
    int32_t args[4];
} attn_node;
ATTN_API int attn_graph_new(attn_graph **graph);
ATTN_API void attn_graph_release(attn_graph *graph);
/* The number of an operation ("add") or of another node ("leaf", "const", "param", "load") by its
   name, or ATTN_INVALID; and back, NULL past the end. */
ATTN_API int attn_op_find(const char *name);
ATTN_API const char *attn_op_name(int op);
/* Leaves by name: s b h q k i nq nk nh hk batch. */
ATTN_API int attn_graph_leaf(attn_graph *graph, const char *name);
/* i32 where x has no fraction and fits, else f32 (rounded to nearest); a finite x beyond f32 is
   refused. */
ATTN_API int attn_graph_number(attn_graph *graph, double x);
ATTN_API int attn_graph_bool(attn_graph *graph, int x);
ATTN_API int attn_graph_param(attn_graph *graph, const char *name, int type);
/* A tensor symbol (not a node); lo > hi, or 0 for both, means no declared bounds. */
ATTN_API int attn_graph_tensor(attn_graph *graph, const char *name, int type, int rank, int32_t lo,
                               int32_t hi);
ATTN_API int attn_graph_load(attn_graph *graph, int symbol, const int32_t *indices, int n);
/* Unused arguments are -1. i32 and f32 operands are promoted to f32. */
ATTN_API int attn_graph_op(attn_graph *graph, int op, int a, int b, int c);
ATTN_API int attn_graph_node(const attn_graph *graph, int node, attn_node *info);
/* The text of one node; as attn_variant_picture for the buffer. */
ATTN_API int64_t attn_graph_text(const attn_graph *graph, int node, char *text, size_t capacity);
/* A bool is a mask, a number a score. The graph stays usable. */
ATTN_API int attn_graph_finish(attn_graph *graph, int node, attn_variant **variant);

/* -- Calls, plans, runs ------------------------------------------------------------------------ */

typedef enum attn_direction { ATTN_FORWARD = 1, ATTN_BACKWARD = 2 } attn_direction;

typedef enum attn_flag {
    ATTN_SCALE_GIVEN = 1,     /* `scale` counts, even 0; otherwise 1/sqrt(D) */
    ATTN_DETERMINISTIC = 2,   /* backward repeats bit by bit */
    ATTN_BATCH_INVARIANT = 4, /* a row's bits do not depend on its neighbours */
    ATTN_TOP_LEFT = 8         /* q = i: the first query at the first key */
} attn_flag;

/* Which key blocks each query block sees; the mask is the AND of this and the variant. Rows and
   keys are counted per sequence, without origins. Numbers out of range and repeated ones are
   ignored. */
typedef struct attn_blocks {
    uint32_t size, reserved;
    int64_t bm, bn;             /* rows and keys of a block */
    const attn_tensor *counts;  /* i32 [B or 1][H or 1][ceil(NQ/bm)] */
    const attn_tensor *indices; /* i32 [B or 1][H or 1][ceil(NQ/bm)][most]: the first counts hold */
} attn_blocks;

/* One attention call. A plan reads the shapes, dtypes and which members are there; a run brings the
   pointers, with sizes up to the plan's. Padded: q [B][H][NQ][D]. Packed: q [T][H][D] with
   q_offsets; k and v likewise and independently.
   Element types: q, k and v have one type, f32, f16, bf16 or one of the four of 8 bits; o, dout,
   dq, dk and dv each f32, f16 or bf16, whatever q has; lse and dlse f32. Device "ref" alone takes
   f64 in all of these. GPUs round a dout of another type to q's first; if that is f16, 2^-25 and
   less becomes 0, 65520 and more infinite: scale the loss. Forward looks at no member from dout to
   dsink and writes no capture's grad: one call serves both directions. */
typedef struct attn_call {
    uint32_t size, flags;
    double scale;            /* any number that is finite in f32, with ATTN_SCALE_GIVEN */
    double dropout;          /* probability in [0, 1) */
    uint64_t seed;           /* dropout's key */
    const uint64_t *seed_at; /* the key in device memory instead, at a multiple of 8 */
    uint32_t offset;         /* dropout's counter word 3 */
    uint32_t alignment;      /* a promise: the first elements of q, k, v, o, dout, dq, dk and dv lie
                                at multiples of so many bytes, a power of two (0: 16), and in any
                                case of their size. A run promises what its plan does, or more */
    int64_t b0, h0, i0, k0;            /* origins: this call is a shard that begins there */
    int64_t batch, nh, hk, nq, nk;     /* totals of the whole; 0: this call is the whole */
    const attn_tensor *q;              /* [B][H][NQ][D]   or [T][H][D] */
    const attn_tensor *k;              /* [B][HK][NK][D]  or [TK][HK][D] */
    const attn_tensor *v;              /* [B][HK][NK][DV] or [TK][HK][DV] */
    const attn_tensor *sink;           /* f32 [H]: a logit per head added to the denominator */
    const attn_tensor *q_offsets;      /* i32 [B+1]: rows where packed sequences begin */
    const attn_tensor *k_offsets;      /* i32 [B+1] */
    const attn_tensor *q_used;         /* i32 [B]: used rows of each sequence */
    const attn_tensor *k_used;         /* i32 [B] */
    const attn_tensor *q_scale;        /* f32 [1], [B][HK], or [B][H or HK][ceil(N/128)] */
    const attn_tensor *k_scale;
    const attn_tensor *v_scale;
    const attn_blocks *blocks;
    int64_t q_longest, k_longest;      /* packed: bound of a sequence's length; 0: T, TK. Padded
                                          or packed, 2^31 - 4096 rows are allowed */
    const attn_tensor *o;              /* [B][H][NQ][DV]  or [T][H][DV]; read by backward */
    const attn_tensor *lse;            /* f32 [B][H][NQ]  or [H][T]; read by backward */
    const attn_tensor *dout;           /* like o */
    const attn_tensor *dlse;           /* like lse, may be NULL */
    const attn_tensor *dq, *dk, *dv;   /* like q, k, v; each may be NULL */
    const attn_tensor *dsink;          /* f32 [H], may be NULL */
    const attn_capture *captures;
    int64_t n_captures;
} attn_call;

typedef struct attn_plan attn_plan;

typedef struct attn_plan_info {
    uint32_t size;
    uint32_t block;     /* rows and keys of a counted block: 128, doubled until there are at most
                           65,536 of them */
    uint64_t workspace; /* bytes attn_run needs, aligned to 64 */
    double flops;       /* of the visible pairs, as far as shapes tell */
    double bytes;       /* of tensors read and written once */
    int64_t blocks, blocks_part, blocks_full; /* of head h0 of the longest sequence */
    char kernel[64];
} attn_plan_info;

/* variant NULL: plain softmax. Everything that can be refused is refused here. */
ATTN_API int attn_plan_new(attn_device *device, int direction, const attn_call *shapes,
                           const attn_variant *variant, attn_plan **plan);
/* Blocks are counted by the first query of a plan. */
ATTN_API int attn_plan_query(const attn_plan *plan, attn_plan_info *info);
ATTN_API attn_plan *attn_plan_retain(attn_plan *plan);
ATTN_API void attn_plan_release(attn_plan *plan);
/* Launches on the stream and returns (a CPU has finished then). Allocates nothing, but for a little
   host memory where a device has its own and the variant an i32 parameter. Offsets, lengths, block
   lists and bounded i32 tables lie in memory and are clamped, not checked; with ATTN_CHECK=1 in the
   environment a run refuses bad ones, and waits for the device to see them. A parameter that is
   a tensor in device memory makes it wait for the device, too; neither can be captured. */
ATTN_API int attn_run(const attn_plan *plan, const attn_call *call, void *workspace, void *stream);

/* Merges n partial results over disjoint keys (Milakov and Gimelshein 2018):
   lse = log sum exp(lse_i), o = sum exp(lse_i - lse) o_i. Shapes as in attn_call. The partial ones
   were made without sink; it is merged here, once, as the state (0, sink). States without visible
   keys (0, -inf) are exact. o_out may be one of o, and lse_out one of lse: the same view. */
ATTN_API int attn_merge(attn_device *device, int n, const attn_tensor *const *o,
                        const attn_tensor *const *lse, const attn_tensor *sink,
                        const attn_tensor *o_out, const attn_tensor *lse_out, void *stream);
/* keep u8 [B][H][NQ][NK] of the call's dropout (padded lengths): 1 where a pair is kept. */
ATTN_API int attn_dropout(attn_device *device, const attn_call *call, const attn_tensor *keep,
                          void *stream);

/* -- Bundles: kernels compiled elsewhere ------------------------------------------------------- */

/* Writes the kernels that plans of a device "make:CHIP" have had compiled so far into one file, for
   this version of the library and that chip. */
ATTN_API int attn_bundle_write(const attn_device *device, const char *path);
/* From now on plans of this process take kernels from there where it has them, and ask no compiler.
   The environment variable ATTN_BUNDLE names bundles that are opened before any plan. ATTN_IO: it
   cannot be read, or is no bundle. A bundle is code: open none that you would not run. */
ATTN_API int attn_bundle_open(const char *path);

/* -- Files ------------------------------------------------------------------------------------- */

/* A mapped .npy (one tensor, named "") or .safetensors file. Tensors point into the mapping and
   live until attn_file_release; writing to one changes memory, never the file. Damaged files are
   refused, never read out of bounds; a file must not be cut short by others while it is mapped. */
typedef struct attn_file attn_file;
ATTN_API int attn_file_open(const char *path, attn_file **file);
/* The same from memory that stays the caller's; `kind` is "npy" or "safetensors". */
ATTN_API int attn_file_parse(const char *kind, const void *bytes, size_t n, attn_file **file);
ATTN_API int64_t attn_file_count(const attn_file *file);
/* The i-th tensor; its shape and strides belong to the file. */
ATTN_API int attn_file_tensor(const attn_file *file, int64_t i, const char **name,
                              attn_tensor *tensor);
ATTN_API void attn_file_release(attn_file *file);
/* Writes to a temporary name and renames. Host memory, any strides. */
ATTN_API int attn_file_save_npy(const char *path, const attn_tensor *tensor);
ATTN_API int attn_file_save_safetensors(const char *path, int64_t n, const char *const *names,
                                        const attn_tensor *const *tensors);

#ifdef __cplusplus
}
#endif
#endif
