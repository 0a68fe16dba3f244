/* suite.h: what the files of the suite share.

       point (text) -> setup (build.c, fill.c): two sides with the same data
           ref   the double oracle: host memory, compact, outputs f64
           dev   the device under test: its own memory, the point's layouts and types of output
       -> run.c: plan, workspace, run   -> check.c: tolerance   -> main.c: lines, JSON, exit status

   The device under test is opened by name and driven through attn.h alone. */
#ifndef CONFORMANCE_SUITE_H
#define CONFORMANCE_SUITE_H

#include <attn.h>

#include "../plain.h"
#include "point.h"

/* X(ROLE, member of attn_call) */
#define ROLES_WITH_MEMBER(X)                                                                       \
    X(Q, q)                                                                                        \
    X(K, k) X(V, v) X(SINK, sink) X(Q_OFFSETS, q_offsets) X(K_OFFSETS, k_offsets)                  \
        X(Q_USED, q_used) X(K_USED, k_used) X(Q_SCALE, q_scale) X(K_SCALE, k_scale)                \
            X(V_SCALE, v_scale) X(DOUT, dout) X(DLSE, dlse) X(O, o) X(LSE, lse) X(DQ, dq)          \
                X(DK, dk) X(DV, dv) X(DSINK, dsink)

typedef enum role {
#define X(ROLE, member) ROLE_##ROLE,
    ROLES_WITH_MEMBER(X)
#undef X
        ROLE_COUNTS, /* of the block lists */
    ROLE_INDICES,
    ROLE_SEED,
    ROLES
} role;
static inline int role_is_output(role r) {
    return r >= ROLE_O && r <= ROLE_DSINK;
}

enum { CAPTURES = 8 };

typedef struct tensor {
    attn_tensor t; /* device 0:0: the memory of its side's device */
    int64_t shape[4], strides[4];
    char axes[5]; /* a letter each: b batch, h heads, n rows, d elements; ? of a capture */
    attn_device *device;
    void *memory; /* what attn_buffer_new gave; NULL: shapes only, or a part of another tensor */
    uint64_t bytes;
    int sparse; /* too large to be filled or read as a whole */
} tensor;

typedef struct side {
    attn_device *device;
    attn_call call;
    attn_blocks blocks;
    tensor t[ROLES];
    tensor value[CAPTURES], grad[CAPTURES]; /* captures that are tensors */
    attn_capture capture[CAPTURES];
} side;

/* A capture as the point's text has it. */
typedef struct cap {
    char name[48], values[16];
    int type, rank; /* type 0: a number */
    int graded;     /* the variant reads it as f32 */
    int64_t shape[4];
    double number;
} cap;

typedef struct setup {
    const point *p;
    attn_variant *variant;
    cap cap[CAPTURES];
    int n_caps;
    side ref, dev;
} setup;

/* -- rng.h's worth: a small generator of the suite's own --------------------------------------- */
typedef struct rng {
    uint64_t state;
} rng;
uint64_t rng_next(rng *r);
double rng_unit(rng *r);              /* [0, 1) */
int64_t rng_below(rng *r, int64_t n); /* 0 .. n - 1 */
double rng_normal(rng *r);
rng rng_of(uint64_t seed, uint64_t stream);

/* -- build.c: tensors, variants; side.c: calls ------------------------------------------------- */
/* A sentence about the case that is run: the first one stays. Returns -1. */
int complain(char *why, const char *format, ...) __attribute__((format(printf, 2, 3)));
enum { WHY = 600 };

/* Returns the status of what refused the text, or 0. */
int variant_of(const char *text, attn_variant **variant, char *why);
int caps_of(const point *p, const attn_variant *variant, cap caps[CAPTURES], int *n, char *why);
int point_type(const point *p);
int point_otype(const point *p);
int64_t side_q_rows(const point *p); /* in memory, of a batch entry or packed */
int64_t side_k_rows(const point *p);
/* Shapes, types and the call of one side. oracle: compact, f64. memory: buffers are made, too. */
int side_build(side *s, attn_device *device, const point *p, const cap *caps, int n_caps,
               int oracle, int memory, char *why);
void side_wire(side *s); /* the call's pointers to the side's tensors */
void side_free(side *s);
int tensor_build(tensor *t, attn_device *device, int type, const char *axes, const int64_t *shape,
                 int layout, int memory, char *why);
void tensor_free(tensor *t);
int64_t tensor_count(const tensor *t);
int64_t tensor_element(const tensor *t,
                       int64_t n); /* offset, in elements, of the n-th in row-major order */
int tensor_copy(const tensor *to, const tensor *from, char *why);
/* All memory gets the byte 0xff, a NaN of every type; not where it is sparse. */
int tensor_poison(const tensor *t, char *why);
/* The elements in row-major order. */
int tensor_read(const tensor *t, double *values, char *why);
/* The elements' bits in row-major order. */
int tensor_bits(const tensor *t, char *bits, char *why);
/* The bytes between elements are what tensor_poison left. */
int tensor_gaps(const tensor *t, const char *name, char *why);
const char *role_name(role r);

/* -- fill.c: the data -------------------------------------------------------------------------- */
/* Fills the inputs of the oracle's side. */
void fill_side(side *ref, const point *p, const cap *caps, int n_caps);

/* -- run.c ------------------------------------------------------------------------------------- */
int setup_new(setup *s, const point *p, attn_device *ref, attn_device *dev, char *why);
void setup_free(setup *s);
/* The inputs of `to` become those of `from`. */
int side_copy_inputs(side *to, const side *from, char *why);
int side_poison_outputs(side *s, char *why);
/* A plan that is refused with ATTN_UNSUPPORTED has a sentence that begins so, then the argument. */
#define UNSUPPORTED "unsupported "
int plan_of(const side *s, const attn_call *shapes, const attn_variant *variant, int direction,
            attn_plan **plan, char *why);
int run_plan(const side *s, const attn_plan *plan, const attn_call *call, char *why);
/* Plans and runs forward and, where the point says so, backward. */
int run_side(const side *s, const point *p, const attn_call *call, const attn_variant *variant,
             char *why);
/* As the point says: a larger plan, a stale run before. */
int run_dev(setup *s, char *why);
/* The outputs' bits, one after the other; *bits is malloc'ed. `skip`: a bit for each role left
   out. */
int side_bits(const side *s, unsigned skip, char **bits, size_t *n, char *why);

/* -- check.c: the tolerance rule --------------------------------------------------------------- */
typedef struct output_error {
    char name[56];
    double max, rms;             /* error against the oracle */
    double max_most, rms_most;   /* allowed */
    double plain_max, plain_rms; /* the yardstick's error */
    double floor, largest;       /* the oracle's largest element */
} output_error;

typedef struct outcome {
    int ok;
    char why[WHY];
    char refused[48]; /* the argument about which the device said that it cannot do it; a backward
                         case is then judged by its forward, any other not at all */
    output_error error[PLAIN_OUTPUTS];
    int n_errors;
} outcome;

/* Compares every output of dev with the oracle's, and the oracle's with the second opinion. */
void check_values(setup *s, outcome *out);

/* -- property.c, refuse.c ---------------------------------------------------------------------- */
typedef struct suite {
    const char *device_name;
    attn_device *ref, *dev;
    attn_device_info info;
} suite;
/* What p->check names, all but refuse. */
void check_property(setup *s, outcome *out, const suite *suite);
/* What p->wrong names must be refused with its status and its argument's name. */
void check_refusal(const suite *suite, const point *p, outcome *out);

/* -- case.c ------------------------------------------------------------------------------------ */
void run_case(const suite *s, const point *p, outcome *out);

/* -- list.c, random.c, cover.c ----------------------------------------------------------------- */
typedef struct listed {
    const char *name, *line;
} listed;
extern const listed suite_list[]; /* a NULL name ends it */

typedef struct drawer drawer;
drawer *drawer_new(uint64_t seed);
void drawer_free(drawer *d);
/* The next point of the seed's sequence. */
void drawer_next(drawer *d, point *p);
/* Gives q what a chip compiles for p: types, head sizes, variant, which features there are. Sizes,
   lengths, layouts, values stay its own. */
void point_share(point *q, const point *p);
/* For chips, whose kernels have cases that classes made for a processor leave out. Of 8 cases that
   code is shared with, two get heads of 128 and 192 columns. Of those that share it, in 16 and 8
   bits, every other one gets 600 keys more where that is not too much work; the rest a tensor with
   elements past 2^31. */
void point_head(point *p, long number);
void point_far(point *p, long number, long member);
/* Pairs of feature classes drawn so far and how many there are; triples likewise. */
void drawer_cover(const drawer *d, long *pairs, long *all_pairs, long *triples);

#endif
