/* cpu.h: what the files of the CPU engine share: its plan, a run, and the tile a thread works on.

       cpu.c        plan: programs, layout of the workspace; run: work items on the pool
       cpu_load.c   tensors to tiles and back
       cpu_score.c  the scores of a tile, for every pass by one function
       cpu_walk.c   the key tiles that a tile of queries sees
       cpu_fwd.c    a tile of queries: online softmax over the keys it sees
       cpu_bwd.c    a tile of queries: dq, dsink; a tile of keys: dk, dv
       cpu_grad.c   gradients of captured tensors and parameters
       cpu_tile.h   the loops on tiles, a table per instruction set */
#ifndef ATTN_CPU_H
#define ATTN_CPU_H

#include "cpu_tile.h"
#include "vm.h"

enum { BM = ATTN__BM, BN = ATTN__BN, RUNS = 8, PARTS = 8 };

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
    int ldd, ldv;             /* D and DV rounded up to LANES */
    int pairs;                /* q, k and v are bf16 and multiplied as pairs */
    int pairs_grad;           /* and so is dO: backward's products, too */
    int one_pass;             /* there is room for the run's dq */
    int parts;                /* most query tiles of a forward item, <= PARTS */
    int64_t q_tiles, k_tiles; /* room for tiles of all sequences */
    size_t vm_bytes[PROGRAMS], thread_bytes;
    size_t at_q_start, at_k_start, at_item_start, at_c, at_dq, at_dsink, at_sums,
        at_threads; /* in the workspace */
} attn__cpu_plan;

/* One run. */
typedef struct attn__cpu_run {
    const attn__cpu_plan *plan;
    const attn__problem *p;
    struct attn__pool *pool;
    int64_t *q_start, *k_start; /* [B+1]: tiles of queries, of keys before sequence b */
    int64_t *item_start;        /* [B+1]: forward items of one key head before sequence b */
    int parts;                  /* query tiles of a forward item */
    int one_pass;               /* backward: items have all tiles of a key head */
    float *dq;                  /* [threads][H / HK][NQ][ldd] */
    float *c;                   /* [B][H][TQ]: dO.O - dLSE */
    double *dsink;              /* [H * tiles of queries] */
    double *sums;               /* [chunks][size] */
    char *threads;
} attn__cpu_run;

/* Where a tile of queries stands in the list of key tiles that it sees. */
typedef struct attn__walk {
    attn__box box;
    attn__run runs[RUNS];
    int n, e;   /* runs, the one at hand */
    int32_t at; /* how far attn__runs has come */
} attn__walk;

/* A tile of queries and what a forward item keeps of it from key tile to key tile. */
typedef struct attn__part {
    attn__walk walk;
    int64_t h;
    int r0, rows;
    float *q, *o; /* [BM][ldd], [BM][ldv] */
    float *wild;  /* [BM][ldv]: sums of visible elements of v that are not finite */
    int has_wild; /* wild counts */
    float row_scale[BM], m[BM], l[BM];
    uint8_t nan[BM];
} attn__part;

/* A thread's part of the workspace. */
typedef struct attn__scratch {
    void *vm[PROGRAMS];
    const void **out;  /* the machine's results for a row */
    float *strip;      /* [LANES][larger of ldd, ldv] */
    float *q;          /* forward: [parts][BM][ldd], as factor of scores; backward: [BM][ldd] */
    float *o;          /* forward: [parts][BM][ldv]; backward: [BM][ldv]: dO */
    float *kt;         /* [ldd][BN] */
    float *v;          /* [BN][ldv]: forward: v; backward: dv being summed */
    float *s;          /* [BM][BN]: scores, then p */
    int32_t *block;    /* [BM][BN]: with block lists, a mask for each of their rows */
    attn__part *part;  /* [parts] (forward) */
    float *wild;       /* [parts][BM][ldv] (forward) */
    float *vt;         /* [ldv][BN] (backward, and so the rest) */
    float *k;          /* [BN][ldd]: dk being summed */
    float *kb;         /* [BN][ldd]: k as factor of dq */
    float *dq;         /* [BM][ldd] */
    float *g;          /* [BM][BN / 2]: pairs along keys of what follows in dp */
    float *dp;         /* [BM][BN]: dO v, then d loss / d (q . k) */
    float *q_pairs;    /* [BM][ldd / 2]: q and dO where they are multiplied as pairs, else */
    float *dout_pairs; /* [BM][ldv / 2]  q and o themselves */
} attn__scratch;

/* A tile of one head: query rows r0.. and keys c0.. of a sequence; and its row at hand. */
typedef struct attn__tile {
    const attn__cpu_run *run;
    const attn__program *program; /* [PROGRAMS] */
    attn__scratch x;
    attn__seq seq;
    int64_t b, h, hk;
    int r0, rows, c0, n;
    int which;             /* PROGRAM_ */
    int columns[PROGRAMS]; /* the machine knows the tile's columns */
    int block_rows;        /* rows of a block list that meet the tile; 0: no block lists */
    float *row_scale;      /* [rows] */
    const float *v;        /* forward: [n][v_ld], x.v or v in memory */
    int v_ld;
    float own_scale[BM];
    float *dq;  /* [NQ][ldd]: sums of dq of this head, or NULL */
    int wild_k; /* k has elements that are not finite, and dq is wanted */
    float key_scale[BN], value_scale[BN];
    int has_key_scale, has_value_scale;
    const float *score, *ds;         /* [n]; ds NULL: 1 */
    float by;                        /* score is to be multiplied by it */
    const int32_t *on;               /* [n], not 0 where visible, or NULL: all */
    int32_t on_buffer[BN], seen[BN]; /* seen: which pairs of the row counted in the end */
    float w[BN];
} attn__tile;

/* -- cpu_score.c ------------------------------------------------------------------------------- */
void attn__scratch_lay(const attn__cpu_plan *plan, const attn__problem *p, char *base,
                       attn__scratch *x, size_t *bytes);
/* In this order: a sequence, a head of it, rows, keys, the pairs of both, a row. */
void attn__tile_open(attn__tile *t, const attn__cpu_run *run, const attn__program *program,
                     int thread, int64_t b);
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

/* to[rows][BN] = dot products of rows and columns of n elements, as pairs or not. */
void attn__tile_dots(const attn__tile *t, float *to, const float *rows, const float *columns,
                     int64_t n, int pairs);

/* -- cpu_load.c -------------------------------------------------------------------------------- */
/* Rows row.. of head h as to[rows][round_lanes(D)]. */
void attn__load_rows(float *to, const attn__view *view, int64_t b, int64_t h, int64_t row,
                     int rows);
/* Rows of bf16 as they are, as to[rows][round_lanes(D) / 2]. */
void attn__load_pairs(float *to, const attn__view *view, int64_t b, int64_t h, int64_t row,
                      int rows);
/* The row in memory itself where a tile's would be the same numbers, rows *ld apart; else NULL. */
const float *attn__direct(const attn__view *view, int64_t b, int64_t h, int64_t row, int *ld);
/* Asks for rows that will be read soon. */
void attn__prefetch(const attn__view *view, int64_t b, int64_t h, int64_t row, int64_t rows);
/* Either one, transposed: to[D or D / 2][BN], columns up to the next multiple of LANES zero. */
void attn__load_columns(attn__tile *t, float *to, const attn__view *view, int64_t b, int64_t h,
                        int64_t row, int rows, int pairs);
/* Rows of bf16 two by two: to[rows / 2][round_lanes(D)]. Returns 1 if all are finite. */
int attn__load_row_pairs(attn__tile *t, float *to, const attn__view *view, int64_t b, int64_t h,
                         int64_t row, int rows);
void attn__store_rows(const attn__view *view, int64_t b, int64_t h, int64_t row, const float *from,
                      int rows);
/* Elements of x[rows][ld] that are not finite become 0. */
void attn__drop_wild(float *x, int ld, int rows);
void attn__drop_wild_pairs(float *x, int ld, int rows);

/* -- cpu_walk.c -------------------------------------------------------------------------------- */
void attn__walk_begin(attn__walk *w, const attn__tile *t);
/* The first key >= c, a multiple of BN, where a visible tile begins, and its class; nk: none. */
int attn__walk_next(attn__walk *w, const attn__tile *t, int c, int *class_);

/* -- cpu_fwd.c, cpu_bwd.c: the work items ------------------------------------------------------ */
/* Parts first.. of the list (head of hk's group, query tile). */
void attn__cpu_forward(const attn__cpu_run *run, int thread, int64_t b, int64_t hk, int first,
                       int n);
/* c and dsink, and unless constants_only dq. sums: where captured gradients are added, or
   NULL. */
void attn__cpu_queries(const attn__cpu_run *run, int thread, int64_t b, int64_t h, int tile,
                       int constants_only, double *sums);
void attn__cpu_keys(const attn__cpu_run *run, int thread, int64_t b, int64_t hk, int tile);
/* All tiles of keys of a key head, and dq of its group. */
void attn__cpu_group(const attn__cpu_run *run, int thread, int64_t b, int64_t hk);

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
