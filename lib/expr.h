/* expr.h: the expression graph, in which every variant is written.

   Who calls it: the parser and the Lua tracer build; plan splits and differentiates; vm compiles;
   ref evaluates. One op table, ATTN_OPS, yields the enum, the verifier, the printer, the parser,
   the scalar and the vector evaluator, the interval rule, the derivative and docs/ops.md: each of
   those files expands the table to functions named after the op, so a missing rule does not
   compile.

       text ---- expr_parse ----+                       +---- expr_text ---- canonical text
       Lua  ---- attn_graph_* --+-- graph (expr, fold) -+---- expr_range --- block classes
       ready ---- variants -----+                       +---- expr_grad ---- adjoint -- vm, ref

   Nodes live in an array; arguments come before their users; equal nodes are one node. Values are
   f32, i32 and bool. i32 operations never overflow: expr_range shows it at plan, or the plan is
   refused. */
#ifndef ATTN_EXPR_H
#define ATTN_EXPR_H

#include "attn_int.h"

/* X(name, text, arguments, type rule, error in ulp of f32, sentence)
   text: an infix or prefix operator, or the name of a function.
   type rules, with N one of i32 and f32 (mixed operands are promoted to f32):
     N_N   N -> N          F_F   f32 -> f32       I_I  i32 -> i32      B_B  bool -> bool
     NN_N  N, N -> N       FF_F  f32, f32 -> f32  II_I i32, i32 -> i32 BB_B bool, bool -> bool
     NN_B  N, N -> bool    EE_B  N or bool, twice -> bool              BTT_T bool, T, T -> T
     I_F   i32 -> f32      F_I   f32 -> i32
   An i32 given where f32 is wanted is promoted. */
// clang-format off
#define ATTN_OPS(X) \
    X(neg,      "-",        1, N_N,   0,   "minus x") \
    X(abs,      "abs",      1, N_N,   0,   "absolute value") \
    X(add,      "+",        2, NN_N,  0.5, "sum") \
    X(sub,      "-",        2, NN_N,  0.5, "difference") \
    X(mul,      "*",        2, NN_N,  0.5, "product") \
    X(div,      "/",        2, FF_F,  0.5, "quotient, always f32") \
    X(floordiv, "floordiv", 2, II_I,  0,   "floor of the quotient; 0 for divisor 0") \
    X(mod,      "%",        2, NN_N,  0.5, "x - floor(x/y)*y, the sign of y; 0 for divisor 0") \
    X(fmod,     "fmod",     2, NN_N,  0,   "x - trunc(x/y)*y, the sign of x; 0 for divisor 0") \
    X(pow,      "pow",      2, FF_F,  4,   "x to the y; NaN where x < 0 and y is no integer") \
    X(min,      "min",      2, NN_N,  0,   "the smaller, or NaN; the first's derivative at a tie") \
    X(max,      "max",      2, NN_N,  0,   "the larger, or NaN; the first's derivative at a tie") \
    X(exp,      "exp",      1, F_F,   2,   "e to the x") \
    X(exp2,     "exp2",     1, F_F,   2,   "2 to the x; exact for whole x") \
    X(log,      "log",      1, F_F,   2,   "natural logarithm") \
    X(log2,     "log2",     1, F_F,   2,   "binary logarithm; exact for powers of two") \
    X(tanh,     "tanh",     1, F_F,   4,   "hyperbolic tangent") \
    X(sqrt,     "sqrt",     1, F_F,   0.5, "square root") \
    X(sin,      "sin",      1, F_F,   4,   "sine; x in radians") \
    X(cos,      "cos",      1, F_F,   4,   "cosine; x in radians") \
    X(floor,    "floor",    1, F_F,   0,   "largest whole number <= x; an i32 stays what it is") \
    X(ceil,     "ceil",     1, F_F,   0,   "smallest whole number >= x; an i32 stays what it is") \
    X(band,     "band",     2, II_I,  0,   "bitwise and") \
    X(bor,      "bor",      2, II_I,  0,   "bitwise or") \
    X(bxor,     "bxor",     2, II_I,  0,   "bitwise exclusive or") \
    X(bnot,     "bnot",     1, I_I,   0,   "bitwise not") \
    X(shl,      "shl",      2, II_I,  0,   "shift left, wrapping; count mod 32") \
    X(shr,      "shr",      2, II_I,  0,   "logical shift right, a signed result; count mod 32") \
    X(sar,      "sar",      2, II_I,  0,   "arithmetic shift right; count mod 32") \
    X(lt,       "<",        2, NN_B,  0,   "less; false with NaN") \
    X(le,       "<=",       2, NN_B,  0,   "less or equal; false with NaN") \
    X(eq,       "==",       2, EE_B,  0,   "equal; false with NaN") \
    X(ne,       "!=",       2, EE_B,  0,   "not equal; true with NaN") \
    X(and,      "&&",       2, BB_B,  0,   "both") \
    X(or,       "||",       2, BB_B,  0,   "either") \
    X(not,      "!",        1, B_B,   0,   "not") \
    X(select,   "?:",       3, BTT_T, 0,   "the second where the first is true, else the third") \
    X(float,    "float",    1, I_F,   0.5, "f32 of an i32, to nearest even") \
    X(int,      "int",      1, F_I,   0,   "i32 of an f32, toward zero, saturating; NaN gives 0")

/* X(name, type, sentence) */
#define ATTN_LEAVES(X) \
    X(s,     F32, "the scaled score") \
    X(b,     I32, "batch entry") \
    X(h,     I32, "query head") \
    X(q,     I32, "query position in key coordinates, i + nk - nq") \
    X(k,     I32, "key position") \
    X(i,     I32, "query row") \
    X(nq,    I32, "used query length") \
    X(nk,    I32, "used key length") \
    X(nh,    I32, "query heads") \
    X(hk,    I32, "key/value heads") \
    X(batch, I32, "batch size")

enum attn__op {
#define X(name, ...) OP_##name,
    ATTN_OPS(X)
#undef X
    OP_leaf,  /* sym: enum attn__leaf */
    OP_const, /* value: f or i, by type */
    OP_param, /* sym: symbol */
    OP_load,  /* sym: symbol, arg[0..n): i32 indices; outside the tensor 0 */
    OP_COUNT
};
enum attn__leaf {
#define X(name, ...) LEAF_##name,
    ATTN_LEAVES(X)
#undef X
    LEAF_COUNT
};
// clang-format on
enum { ATTN__MAX_RANK = 4, ATTN__MAX_NODES = 20000, ATTN__MAX_SYMBOLS = 64, ATTN__NAME = 48 };
/* Node types in memory; the public numbers are attn_type's. */
enum attn__vt { VT_BOOL, VT_I32, VT_F32 };

typedef struct attn__node {
    uint8_t op, type, n; /* enum attn__op, enum attn__vt, number of arguments */
    uint8_t height;      /* of the tree below, at most 255; attn__node_add sets it */
    int32_t sym;              /* leaf or symbol number; else 0 */
    union {
        int32_t arg[ATTN__MAX_RANK]; /* unused ones are -1 */
        struct {
            int32_t i; /* constants: i32 and bool */
            float f;   /* constants: f32 */
        } value;
    } u;
} attn__node;

/* u.arg counts. */
static inline int attn__has_args(const attn__node *node) {
    return node->op != OP_leaf && node->op != OP_const && node->op != OP_param;
}

typedef struct attn__symbol {
    char name[ATTN__NAME];
    uint8_t type, rank; /* enum attn__vt; 0 = parameter */
    uint8_t bounded;    /* lo, hi are declared: what is read is clamped to them */
    int32_t lo, hi;
} attn__symbol;

/* What is read of an i32 tensor or parameter. */
static inline int32_t attn__clamp(int32_t x, const attn__symbol *s) {
    x = s->bounded && x < s->lo ? s->lo : x;
    return s->bounded && x > s->hi ? s->hi : x;
}

struct attn_graph {
    attn__node *node;
    int32_t n, cap;
    attn__symbol *symbol;
    int32_t n_symbols;
    int32_t *bucket; /* hash table of node numbers + 1 */
    int32_t n_buckets;
    int no_fold; /* tests: share but do not fold */
};

/* Frozen. score is f32 (the leaf s if the variant is a mask); mask is bool (true if none). */
struct attn_variant {
    int32_t refs; /* atomic */
    attn_graph graph;
    int32_t score, mask;
    char *text; /* canonical */
};

/* -- expr.c, expr_op.c, expr_fold.c: construction; all return a node number or a status -------- */
void attn__graph_init(attn_graph *g);
void attn__graph_clear(attn_graph *g);
int attn__node_add(attn_graph *g, attn__node node); /* shares; no folding, no checks */
int attn__op(attn_graph *g, int op, int a, int b, int c); /* checks, promotes, folds, shares */
/* expr_fold.c: a simpler node of the same value, or ATTN__NO_FOLD. type: of the result. */
int attn__fold(attn_graph *g, int op, int a, int b, int c, int type);
enum { ATTN__NO_FOLD = 0x7fffffff };
int attn__leaf(attn_graph *g, int leaf);
int attn__const_f(attn_graph *g, float x);
int attn__const_i(attn_graph *g, int32_t x);
int attn__const_b(attn_graph *g, int x);
int attn__load(attn_graph *g, int symbol, const int32_t *index, int n);
int attn__symbol_add(attn_graph *g, const attn__symbol *symbol); /* same name: must be the same */
int attn__symbol_find(const attn_graph *g, const char *name);    /* or -1 */
int attn__verify(const attn_graph *g); /* every node well typed, arguments before users */
/* Copies `root` of `from` into `to`, every leaf s replaced by node s_node of `to` (-1: kept). */
int attn__graph_import(attn_graph *to, const attn_graph *from, int root, int s_node);
const char *attn__op_name(int op);
/* The table of ATTN_OPS at run time: name, text, number of arguments, type rule. */
enum attn__rule {
    RULE_N_N,
    RULE_F_F,
    RULE_I_I,
    RULE_B_B,
    RULE_NN_N,
    RULE_FF_F,
    RULE_II_I,
    RULE_BB_B,
    RULE_NN_B,
    RULE_EE_B,
    RULE_BTT_T,
    RULE_I_F,
    RULE_F_I
};
typedef struct attn__op_info {
    const char *name, *text;
    uint8_t n, rule;
} attn__op_info;
extern const attn__op_info attn__ops[]; /* indexed by enum attn__op, up to OP_leaf */
extern const char *const attn__leaf_names[LEAF_COUNT];
const char *attn__vt_name(int type); /* "bool", "i32", "f32" */
int attn__vt_public(int type);       /* ATTN_BOOL, ATTN_I32, ATTN_F32 */
int attn__reserved(const char *name, size_t length); /* 1: cannot name a tensor or parameter */
/* An order of nodes that depends on what they are, not on their numbers: < 0, 0, > 0. */
int attn__compare(const attn_graph *g, int a, int b);

/* -- expr_compose.c: split into score and mask, composition ------------------------------------ */
/* Splits select trees with -inf or bool results into a score and a mask (both nodes of g). */
int attn__split(attn_graph *g, int root, int *score, int *mask);
/* Copies what score and mask need; g gets further nodes. */
int attn__variant_new(attn_graph *g, int score, int mask, attn_variant **out);

/* -- expr_text.c, expr_parse.c ----------------------------------------------------------------- */
/* The whole variant; *text is malloc'ed. */
int attn__print(const attn_graph *g, int score, int mask, char **text);
int attn__print_node(const attn_graph *g, int node, char **text);
int attn__parse(const char *text, attn_graph *g, int *root);
/* Shortest decimal text that reads back to the same f32, and the f32 of a decimal text; both with a
   '.' in every locale. float_parse takes up to ATTN__FLOAT_LENGTH characters; an infinity: the
   number does not fit. */
enum { ATTN__FLOAT_TEXT = 32, ATTN__FLOAT_LENGTH = 100 };
void attn__float_text(float x, char text[ATTN__FLOAT_TEXT]);
float attn__float_parse(const char *text, size_t length);

/* -- Values of what a variant reads ------------------------------------------------------------ */
/* One value per symbol, in the graph's order. Offsets in elements; n and st by index position. */
typedef struct attn__bound {
    const char *data; /* tensor; NULL for a parameter, and while planning */
    int32_t type;     /* attn_type of data: F32 F16 BF16 I32 U8 BOOL; 0: a parameter whose value is
                         not known yet, as it lies in a tensor and this is the plan */
    int64_t n[ATTN__MAX_RANK], st[ATTN__MAX_RANK];
    float f; /* parameter */
    int32_t i;
    int32_t has_grad; /* a gradient is wanted; known while planning, too */
    float *grad;      /* f32, or NULL */
    int64_t gst[ATTN__MAX_RANK];
} attn__bound;
/* bind.c: finds every symbol's capture by name and checks it; `bound` has room for every symbol.
   While planning, data pointers are neither needed nor read. Without a device captures lie in host
   memory. */
int attn__bind(const attn_device *device, const attn_variant *v, const attn_capture *captures,
               int64_t n, int planning, attn__bound *bound);

/* The leaves but s, for one pair. */
typedef struct attn__env {
    int32_t leaf[LEAF_COUNT];
} attn__env;

/* -- expr_eval.c: one pair, scalar ------------------------------------------------------------- */
/* Exact i32 and bool, f32 in double (only constants, loads and float() are f32): the oracle. */
typedef union attn__val {
    double f;
    int64_t i; /* i32 and bool */
} attn__val;
/* Evaluates nodes 0..root that are marked in `need` (NULL: all), into val[0..root]. */
void attn__eval(const attn_graph *g, const uint8_t *need, int root, double s, const attn__env *env,
                const attn__bound *bound, attn__val *val);
/* need[0..g->n): 1 for what some of n roots depend on. */
void attn__need(const attn_graph *g, const int32_t *roots, int n, uint8_t *need);
/* One op on f32 and i32 operands, bit for bit what vm computes; folding uses it. */
typedef union attn__val32 {
    float f;
    int32_t i;
} attn__val32;
attn__val32 attn__op32(int op, int arg_type, attn__val32 a, attn__val32 b, attn__val32 c);
float attn__fetch_f(const attn__bound *t, int n, const int64_t *index);   /* outside: 0 */
int32_t attn__fetch_i(const attn__bound *t, const attn__symbol *sym, int n, const int64_t *index);

/* -- expr_range.c: intervals ------------------------------------------------------------------- */
/* f32 and i32: lo <= x <= hi; nan: may be NaN. bool: lo, hi in {0, 1}. */
typedef struct attn__range {
    double lo, hi;
    uint8_t nan;
} attn__range;
typedef struct attn__box {
    attn__range leaf[LEAF_COUNT]; /* s too */
    const attn__bound *bound;     /* NULL or data NULL: symbols have their declared bounds */
    int32_t no_overflow;          /* 1: i32 operations do not overflow, as in every plan */
} attn__box;
/* Every leaf with its widest legal range, s with NaN: a caller narrows what it knows. */
void attn__box_init(attn__box *box, const attn__bound *bound);
static inline void attn__box_set(attn__box *box, int leaf, double lo, double hi) {
    const attn__range r = {lo, hi, 0};
    box->leaf[leaf] = r;
}
/* range[0..root] of every node, which is the caller's. */
void attn__ranges(const attn_graph *g, int root, const attn__box *box, attn__range *range);
enum attn__class { CLASS_NONE, CLASS_PART, CLASS_FULL };
/* The class of `mask` over the box, exact as far as intervals with refinement go; CLASS_PART for a
   mask of more than ATTN__CLASS_NODES nodes. Allocates nothing. */
enum { ATTN__CLASS_NODES = 768 };
int attn__class(const attn_graph *g, int mask, const attn__box *box);
/* ATTN_VARIANT with a sentence if an i32 operation may overflow within the box. Only a refusal
   allocates; `scratch` has attn__overflow_scratch bytes, aligned to 8. */
size_t attn__overflow_scratch(const attn_graph *g);
int attn__check_overflow(const attn_graph *g, int root, const attn__box *box, void *scratch);
/* Runs of keys with one class: [begin, end) aligned to `step`, in order, empty ones left out, found
   by bisection. `box` has the q side; leaf k is set here (key coordinates = k0 + column). */
typedef struct attn__run {
    int32_t begin, end; /* columns */
    int32_t class_;     /* CLASS_PART or CLASS_FULL */
} attn__run;
/* Writes up to `cap` runs and returns how many; continues from *at, which ends at nk. */
int attn__runs(const attn_graph *g, int mask, attn__box *box, int64_t k0, int32_t nk, int32_t step,
               int32_t *at, attn__run *runs, int cap);

/* -- expr_grad.c: the derivative --------------------------------------------------------------- */
typedef struct attn__site {
    int32_t symbol, load; /* the node that reads (a param node: rank 0) */
    int32_t d;            /* node: d score / d load */
    int32_t n, index[ATTN__MAX_RANK];
} attn__site;
/* A copy of the variant's graph with derivative nodes added. */
typedef struct attn__adjoint {
    attn_graph graph;
    int32_t score, mask, ds; /* ds: d score / d s */
    attn__site *site;        /* every f32 load and parameter the score reads and can move it */
    int32_t n_sites;
} attn__adjoint;
int attn__adjoint_new(const attn_variant *v, attn__adjoint **out);
void attn__adjoint_free(attn__adjoint *a);
/* d root / d target (a node number); the constant 0 where it cannot matter. */
int attn__derivative(attn_graph *g, int root, int target);

#endif
