/* cpu.h: what the files of the CPU engine share: its plan, a run, and the tile a thread works on.

       cpu.c        plan: programs, layout of the workspace; run: backward's work items
       cpu_split.c  run: forward's work items, segments of keys and how they are merged
       cpu_load.c   tensors to tiles and back
       cpu_score.c  the scores of a tile, for every pass by one function
       cpu_sum.c    products of a tile, as much of it as is visible
       cpu_walk.c   the key tiles that a tile of queries sees
       cpu_limits.c the keys that a row sees, where the mask is one of ranges
       cpu_fwd.c    some tiles of queries: online softmax over the keys they see
       cpu_softmax.c  rows of its tiles
       cpu_strips.c whole tiles of forward, where tile registers multiply beside the other work
       cpu_narrow.c tiles of few rows
       cpu_bwd.c    a tile of queries: dq, dsink; a tile of keys: dk, dv
       cpu_grad.c   gradients of captured tensors and parameters
       cpu_tile.h   the loops on tiles, a table per instruction set */
#ifndef ATTN_CPU_H
#define ATTN_CPU_H

#include "cpu_tile.h"
#include "vm.h"

enum {
    BM = ATTN__BM,
    BN = ATTN__BN,
    LANES = ATTN__LANES,
    LDS = ATTN__LDS,
    SEGMENT = 2048, /* keys whose sums are a state of their own */
    RUNS = 8,
    PARTS = 16
};

/* A variant compiled for one pass: where its results stand in the machine's output, -1 for those it
   does without: the score is s, the mask is true, ds is 1. No results at all: vm is NULL. */
typedef struct attn__program {
    attn__vm *vm;
    int n, score, mask, ds;
    int reads_s;
} attn__program;

/* Programs of a pass. A tile whose pairs are all visible runs the one without a mask. */
enum { PROGRAM_FULL, PROGRAM_PART, PROGRAMS };

/* A place where the score reads a captured value whose gradient is wanted. */
typedef struct attn__cpu_site {
    int symbol, rank;
    int from; /* in the adjoint's list */
    int at;   /* in the output: d score / d value, then the indices */
} attn__cpu_site;

/* by . (k, q, i, nq, nk, parameter) + one >= 0, by[TERM_K] -1, 0 or 1; q, i: the row's. */
enum { TERM_K, TERM_Q, TERM_I, TERM_NQ, TERM_NK, TERM_PARAM, ATTN__LIMIT_TERMS };
enum { ATTN__LIMITS = 8 };
typedef struct attn__limit {
    int64_t by[ATTN__LIMIT_TERMS], one;
    int symbol;      /* of the parameter */
    int alternative; /* it or the one before it must hold */
} attn__limit;
typedef struct attn__limits {
    int n, all; /* all: the mask says nothing else */
    attn__limit limit[ATTN__LIMITS];
} attn__limits;

/* How captured gradients are summed; cpu_grad.c has the reasons. */
typedef struct attn__cpu_grads {
    attn__cpu_site *site; /* [n_sites] */
    int n_sites;
    int chunks;                       /* sums of their own; 0: all gradients are added in place */
    int64_t size;                     /* f64 elements of such a sum */
    int64_t at[ATTN__MAX_SYMBOLS];    /* a symbol's first element there, or -1: in place, or none */
    int64_t count[ATTN__MAX_SYMBOLS]; /* its elements; 0: no gradient wanted */
    int inner_b, inner_h;             /* a work item takes all batch entries, all heads in turn */
} attn__cpu_grads;

/* The engine's part of a plan; immutable. */
typedef struct attn__cpu_plan {
    const attn__tile_ops *ops;
    attn__adjoint *adjoint;          /* backward */
    attn__program queries[PROGRAMS]; /* forward, and dq */
    attn__program keys[PROGRAMS];    /* dk and dv */
    attn__cpu_grads grads;
    attn__limits limits;
    int ldd, ldv;             /* D and DV rounded up to LANES */
    int pairs;                /* q, k and v are bf16 and multiplied as pairs */
    int split;                /* whole tiles of f32 are multiplied split, in forward */
    int pairs_grad;           /* and so is dO: backward's products, too */
    int one_pass;             /* there is room for the run's dq */
    int wide;                 /* most full query tiles of a forward item, <= PARTS */
    int parts;                /* most query tiles of a forward item: several heads' with few rows */
    int64_t state_floats;     /* room for states of segments */
    int64_t q_tiles, k_tiles; /* room for tiles of all sequences */
    size_t vm_bytes[PROGRAMS], thread_bytes;
    size_t at_q_start, at_k_start, at_item_start, at_c, at_dq, at_dsink, at_sums, at_states,
        at_threads; /* in the workspace */
} attn__cpu_plan;

/* One run. */
typedef struct attn__cpu_run {
    const attn__cpu_plan *plan;
    const attn__problem *p;
    struct attn__pool *pool;
    int64_t *q_start, *k_start; /* [B+1]: tiles of queries, of keys before sequence b */
    int64_t *item_start;        /* [B+1]: forward chunks of one key head before sequence b */
    int parts;                  /* query tiles of a chunk */
    int segments, pieces;       /* of the longest sequence; parts of them that are work items */
    int64_t first_chunk;        /* the chunk whose states come first */
    float *states;
    int one_pass;  /* backward: items have all tiles of a key head */
    float *dq;     /* [threads][H / HK][NQ][ldd] */
    float *c;      /* [B][H][TQ]: dO.O - dLSE */
    double *dsink; /* [H * tiles of queries] */
    double *sums;  /* [chunks][size] */
    char *threads;
} attn__cpu_run;

/* Where a tile of queries stands in the list of key tiles that it sees. */
typedef struct attn__walk {
    attn__box box;
    attn__run runs[RUNS];
    int n, e;        /* runs, the one at hand */
    int32_t at, end; /* how far attn__runs has come, and is to come */
} attn__walk;

/* Sums of rows over some keys, before they are divided: out = o / l, LSE = m + log l. No key that a
   row sees: m is -inf. A row that is NaN has a NaN l. Elements of o that visible elements of v made
   infinite or NaN are so. */
typedef struct attn__state {
    float *o;     /* [rows][ldv] */
    float *m, *l; /* [rows] */
} attn__state;

/* A tile of queries and what a forward item keeps of it from key tile to key tile. */
typedef struct attn__part {
    attn__walk walk;
    int64_t h;
    int r0, rows;
    int at;               /* rows of the parts before it */
    float *q;             /* [rows][ldd] */
    attn__state now, all; /* the segment at hand, those before it */
    int has_all;
    float *wild;  /* [rows][ldv]: sums of visible elements of v that are not finite */
    int has_wild; /* wild counts */
    float *q_split; /* [rows][3][ldd / 2]: q, where the plan splits, */
    int tame;       /* and all of it is tame */
    float *row_scale;
    uint8_t nan[BM];
} attn__part;

/* Query tiles of one key head's group that are worked on together: n in the list of (head, tile),
   from `first`. */
typedef struct attn__chunk {
    int64_t b, hk;
    int first, n;
} attn__chunk;

/* A thread's part of the workspace. */
typedef struct attn__scratch {
    void *vm[PROGRAMS];
    const void **out; /* the machine's results for a row */
    float *strip;     /* [LANES][larger of ldd, ldv] */
    float *q;         /* forward: [rows of all parts][ldd]; backward: [BM][ldd] */
    float *kt;        /* panels of keys [BN / LANES][ldd][LANES] */
    float *v;         /* forward: panels of v [ldv / LANES][BN][LANES]; backward: [BN][ldv]: dv */
    float *s;         /* [BM][LDS]: scores, then p */
    int32_t *block;   /* [BM][BN]: with block lists, a mask for each of their rows */
    attn__part *part; /* [parts] (forward, and so what follows) */
    attn__state state[2]; /* of all parts */
    float *row_scale;     /* of all parts */
    float *wild;          /* [rows of all parts][ldv] */
    float *q_split;       /* where the plan splits: [rows of all parts][3][ldd / 2] */
    float *kt_split;      /* [3] panels of pairs, as kt */
    float *v_split;       /* [3] panels of pairs, as v */
    float *p_split;       /* [BM][3][BN / 2] */
    float *sum;           /* [BM][ldv]: p v */
    float *q_columns;     /* panels of few rows of pairs [2][ldd / 2][LANES] */
    float *o;             /* [BM][ldv]: dO (backward, and so what follows) */
    float *q_panels;      /* [ldd / LANES][BM][LANES] as factor of dk */
    float *o_panels;      /* [ldv / LANES][BM][LANES] as factor of dv */
    float *vt;            /* panels of keys [BN / LANES][ldv][LANES] */
    float *k;             /* [BN][ldd]: dk being summed */
    float *kb;            /* panels of k [ldd / LANES][BN][LANES] as factor of dq */
    float *dq;            /* [BM][ldd] */
    float *g;             /* [BM][BN / 2]: pairs along keys of what follows in dp */
    float *dp;            /* [BM][LDS]: dO v, then d loss / d (q . k) */
    float *q_pairs;       /* [BM][ldd / 2]: q and dO where they are multiplied as pairs, else */
    float *dout_pairs;    /* [BM][ldv / 2]  q and o themselves */
} attn__scratch;

/* A tile of one head: query rows r0.. and keys c0.. of a sequence; and its row at hand. */
typedef struct attn__tile {
    const attn__cpu_run *run;
    const attn__program *program; /* [PROGRAMS] */
    attn__scratch x;
    attn__seq seq;
    int64_t b, h, hk;
    int r0, rows, c0, n;
    int which;                   /* PROGRAM_ */
    int columns[PROGRAMS];       /* the machine knows the tile's columns */
    int block_rows;              /* rows of a block list that meet the tile; 0: no block lists */
    float *row_scale;            /* [rows] */
    float *s;                    /* [rows][LDS]: the tile's rows in x.s */
    int bounded;                 /* rows see keys begin..end of the tile at most */
    uint8_t first[BM], last[BM]; /* these, by row */
    uint8_t group_first[BM / LANES], group_last[BM / LANES]; /* of LANES rows, multiples of LANES */
    float own_scale[BM];
    float *dq;  /* [NQ][ldd]: sums of dq of this head, or NULL */
    attn__ahead ahead; /* what is asked for while other things are loaded; rows 0: nothing */
    attn__ahead next[2]; /* the next tile's k and v, while this one is worked on */
    enum attn__form form; /* of p */
    int tame;   /* k and v are tame and stand split */
    int whole;  /* they stand as f32 or pairs */
    int wild_k; /* k has elements that are not finite, and dq is wanted */
    float key_scale[BN], value_scale[BN];
    int has_key_scale, has_value_scale;
    const float *score, *ds;         /* [n]; ds NULL: 1 */
    float by;                        /* score is to be multiplied by it */
    float down;                      /* forward: what p is multiplied by besides; 1, or AGAIN */
    int begin, end;                  /* columns that the row may see */
    const int32_t *on;               /* [n], not 0 where visible, or NULL: all of these */
    int32_t on_buffer[BN], seen[BN]; /* seen: which pairs of the row counted in the end */
    float w[BN];
} attn__tile;

/* -- cpu_score.c ------------------------------------------------------------------------------- */
void attn__scratch_lay(const attn__cpu_plan *plan, const attn__problem *p, char *base,
                       attn__scratch *x, size_t *bytes);
/* In this order: a sequence (and at the end it is closed), a head of it, rows, keys, the pairs of
   both, a row. */
void attn__tile_open(attn__tile *t, const attn__cpu_run *run, const attn__program *program,
                     int thread, int64_t b);
void attn__tile_close(const attn__tile *t);
void attn__tile_head(attn__tile *t, int64_t h);
void attn__tile_rows(attn__tile *t, int r0, int rows);
void attn__tile_keys(attn__tile *t, int c0, int n);
/* 0: block lists leave no pair of the tile. */
int attn__tile_pairs(attn__tile *t, int class_);
/* Row i of the tile: score, ds, on from the dot products in x.s, which it scales. */
void attn__tile_row(attn__tile *t, int i);
/* Weights of row i's probabilities in the output, dropout times v's scale; NULL: 1. */
const float *attn__tile_weights(attn__tile *t, int i);
/* The intervals of query rows r0.. of the tile's head; k is left to the caller. */
void attn__tile_box(const attn__tile *t, int r0, int rows, attn__box *box);

/* x[0..round_lanes(n)) = 0 but for columns from..to, which are multiples of LANES. */
void attn__clear_outside(const attn__tile *t, void *x, int from, int to);

/* -- cpu_sum.c: products of a tile, without what nothing is visible of ------------------------- */
/* to[rows][LDS] = dot products of rows and columns of n elements, as pairs or not. */
void attn__sum_dots(const attn__tile *t, float *to, const float *rows, const float *columns,
                    int64_t n, int pairs);
/* to[rows][ld] += x b: x[rows][x_ld] is p or g, b has the tile's keys as panels. */
void attn__sum_rows(const attn__tile *t, float *to, int ld, const float *x, int x_ld,
                    const float *b, int pairs);
/* to[keys][ld] += x' b: b has the tile's rows as panels. */
void attn__sum_keys(const attn__tile *t, float *to, int ld, const float *x, const float *b,
                    int pairs);

/* -- cpu_limits.c ------------------------------------------------------------------------------ */
void attn__limits_plan(const attn_graph *g, int mask, attn__limits *to);
/* Local keys begin..end that the limits leave to each of some local rows; none: begin >= end. */
void attn__limits_rows(const attn__tile *t, int64_t row, int rows, int64_t *begin, int64_t *end);

/* -- cpu_load.c -------------------------------------------------------------------------------- */
/* Rows row.. of head h as to[rows][round_lanes(D)]. */
void attn__load_rows(float *to, const attn__view *view, int64_t b, int64_t h, int64_t row,
                     int rows);
/* Rows of bf16 as they are, as to[rows][round_lanes(D) / 2]. */
void attn__load_pairs(float *to, const attn__view *view, int64_t b, int64_t h, int64_t row,
                      int rows);
/* The row in memory itself where its elements lie together, are of the type, and are a multiple of
   `multiple`; else NULL. */
const char *attn__direct(const attn__view *view, int64_t b, int64_t h, int64_t row, int type,
                         int multiple);
/* Asks for rows that will be read soon: at once, or in so many askings. */
void attn__prefetch(const attn__view *view, int64_t b, int64_t h, int64_t row, int64_t rows);
attn__ahead attn__ahead_of(const attn__view *view, int64_t b, int64_t h, int64_t row, int rows,
                           int64_t work);
/* Either one, transposed: to[rows / LANES][D or D / 2][LANES], the last ones filled up by zeros;
   panels lie round_lanes(D) * LANES elements (pairs: half of it) apart. */
void attn__load_columns(attn__tile *t, float *to, const attn__view *view, int64_t b, int64_t h,
                        int64_t row, int rows, int pairs);
/* Rows as panels: to[D / LANES][rows][LANES]; pairs: of bf16 two by two, to[D / LANES][rows / 2]
   [LANES]. Returns 1 if all are finite. */
int attn__load_panels(attn__tile *t, float *to, const attn__view *view, int64_t b, int64_t h,
                      int64_t row, int rows, int pairs);
void attn__rows_to_panels(float *to, const float *from, int ld, int rows);
void attn__store_rows(const attn__view *view, int64_t b, int64_t h, int64_t row, const float *from,
                      int rows);
/* Elements of x[n] (or of its bf16, two in each) that are not finite become 0. */
void attn__drop_wild(float *x, int64_t n, int pairs);

/* -- cpu_walk.c -------------------------------------------------------------------------------- */
/* From key `begin` on, a multiple of BN. */
void attn__walk_begin(attn__walk *w, const attn__tile *t, int begin);
/* The first key >= c, a multiple of BN, where a visible tile begins, and its class; nk: none. */
int attn__walk_next(attn__walk *w, const attn__tile *t, int c, int *class_);

/* -- cpu_fwd.c, cpu_bwd.c: the work items ------------------------------------------------------ */
/* Some segments of a chunk. states: where each segment's state goes, cpu_split.c tells how; NULL:
   these are all segments, and the results are wanted. */
void attn__cpu_forward(const attn__cpu_run *run, int thread, attn__chunk chunk, int begin, int end,
                       float *states);
/* c and dsink, and unless constants_only dq. sums: where captured gradients are added, or
   NULL. */
void attn__cpu_queries(const attn__cpu_run *run, int thread, int64_t b, int64_t h, int tile,
                       int constants_only, double *sums);
void attn__cpu_keys(const attn__cpu_run *run, int thread, int64_t b, int64_t hk, int tile);
/* All tiles of keys of a key head, and dq of its group. */
void attn__cpu_group(const attn__cpu_run *run, int thread, int64_t b, int64_t hk);

/* -- cpu_split.c ------------------------------------------------------------------------------- */
void attn__cpu_forward_all(attn__cpu_run *run, int threads);
/* Most heads whose rows a chunk takes together. */
int attn__narrow_parts(int64_t group, int64_t NQ);
/* Floats that the states of a plan's runs may take. */
int64_t attn__state_floats(const attn__cpu_plan *plan, const attn__problem *p, int threads);

/* -- cpu.c ------------------------------------------------------------------------------------- */
typedef struct attn__item {
    int64_t b, h;
    int tile, tiles;
} attn__item;
/* Item `at` of the list of all (b, h, tile) in that order; start[b]: tiles before sequence b. */
attn__item attn__find_item(const int64_t *start, int64_t B, int64_t heads, int64_t at);

/* -- cpu_grad.c -------------------------------------------------------------------------------- */
/* Finds the sites whose gradient is wanted and how to sum them. */
int attn__grads_plan(attn__cpu_plan *plan, const attn__problem *p);
/* A run's captures against the plan's. */
int attn__grads_check(const attn__cpu_plan *plan, const attn__problem *p);
/* Adds a row's contributions, to `sums` or in place. */
void attn__grads_row(const attn__tile *t, const float *g_score, double *sums);
/* Adds the chunks' sums to the tensors. */
void attn__grads_finish(const attn__cpu_run *run);

#endif
