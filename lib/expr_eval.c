/* expr_eval.c: one pair, one value at a time.

   Who calls it: ref.c and the tests (attn__eval, the double oracle), expr_fold.c (attn__op32, the
   arithmetic of every device), vm.c and both evaluators (attn__fetch_*).

   The oracle keeps i32 and bool exact (wrapping, as devices do, where the plan's check was left
   out) and computes f32 operations in double; only constants, loads, parameters and float() are
   f32. */
#include "expr.h"
#include "vm_math.h"

#include <math.h>
#include <string.h>

/* -- f32 and i32: the rules of vm_math.h ------------------------------------------------------- */

attn__val32 attn__op32(int op, int arg_type, attn__val32 x, attn__val32 y, attn__val32 z) {
    attn__val32 r = {.i = 0};
    const int type = op == OP_select || arg_type != VT_F32 ? VT_I32 : VT_F32;
    switch (op * 4 + type) {
#define T_f float
#define T_i int32_t
#define X(op, type, R, A, value)                                                                   \
    case OP_##op * 4 + VT_##type: {                                                                \
        const T_##A a = x.A, b = y.A, c = z.A;                                                     \
        (void)a, (void)b, (void)c;                                                                 \
        r.R = value;                                                                               \
        break;                                                                                     \
    }
#define Y(op, type, R, A, far, fast, slow) X(op, type, R, A, (far) ? (slow) : (fast))
        VM_RULES(X, Y)
#undef X
#undef Y
#undef T_f
#undef T_i
    }
    return r;
}

/* -- Loads ------------------------------------------------------------------------------------- */

/* The element's address, or NULL outside the tensor. */
static const char *element(const attn__bound *t, int n, const int64_t *index) {
    int64_t at = 0;
    for (int i = 0; i < n; i++) {
        if (index[i] < 0 || index[i] >= t->n[i]) {
            return NULL;
        }
        at += index[i] * t->st[i];
    }
    return t->data + at * attn__type_bytes(t->type);
}

float attn__fetch_f(const attn__bound *t, int n, const int64_t *index) {
    const char *const p = element(t, n, index);
    float x = 0;
    if (p) {
        attn__load_f32(&x, p, t->type, 1, 1);
    }
    return x;
}

int32_t attn__fetch_i(const attn__bound *t, const attn__symbol *sym, int n, const int64_t *index) {
    const char *const p = element(t, n, index);
    if (!p) {
        return 0;
    }
    if (sym->type == VT_BOOL) {
        return *p != 0;
    }
    int32_t x;
    memcpy(&x, p, sizeof x);
    return attn__clamp(x, sym);
}

/* -- The oracle: one function for each op ------------------------------------------------------ */

static attn__val of_f(double x) {
    return (attn__val){.f = x};
}
static attn__val of_i(int64_t x) {
    return (attn__val){.i = (int32_t)(uint32_t)(uint64_t)x};
}

static int64_t floor_quotient(int64_t a, int64_t b) {
    if (b == 0) {
        return 0;
    }
    return a / b - (a % b != 0 && (a < 0) != (b < 0));
}

static double f_fmod(double a, double b) {
    return b == 0 ? 0 : fmod(a, b);
}
static double f_mod(double a, double b) {
    const double r = f_fmod(a, b);
    return b == 0 ? 0 : r == 0 ? copysign(0, b) : (r < 0) != (b < 0) ? r + b : r;
}
static double f_pow(double a, double b) {
    return a < 0 && b != floor(b) ? (double)NAN : pow(a, b);
}
static double f_min(double a, double b) {
    return isnan(a) || a <= b ? a : b;
}
static double f_max(double a, double b) {
    return isnan(a) || a >= b ? a : b;
}
static int64_t i_mod(int64_t a, int64_t b) {
    return b == 0 ? 0 : a - floor_quotient(a, b) * b;
}
static int64_t saturated(double x) {
    return x >= 0x1p31 ? INT32_MAX : x <= -0x1p31 ? INT32_MIN : isnan(x) ? 0 : (int64_t)x;
}

/* The type is the arguments': a comparison's too. */
// clang-format off
#define RULE(name) static attn__val eval_##name(int type, const attn__val *a)
#define ON_F(name, function) RULE(name) { return (void)type, of_f(function(a[0].f)); }
#define ON_I(name, value) RULE(name) { return (void)type, of_i(value); }
#define ON_N(name, f_value, i_value) \
    RULE(name) { return type == VT_F32 ? of_f(f_value) : of_i(i_value); }
#define TRUTH(name, operator) \
    RULE(name) { return of_i(type == VT_F32 ? a[0].f operator a[1].f : a[0].i operator a[1].i); }

ON_N(neg, -a[0].f, -a[0].i)
ON_N(abs, fabs(a[0].f), a[0].i < 0 ? -a[0].i : a[0].i)
ON_N(add, a[0].f + a[1].f, a[0].i + a[1].i)
ON_N(sub, a[0].f - a[1].f, a[0].i - a[1].i)
ON_N(mul, a[0].f * a[1].f, a[0].i * a[1].i)
RULE(div) { return (void)type, of_f(a[0].f / a[1].f); }
ON_I(floordiv, floor_quotient(a[0].i, a[1].i))
ON_N(mod, f_mod(a[0].f, a[1].f), i_mod(a[0].i, a[1].i))
ON_N(fmod, f_fmod(a[0].f, a[1].f), a[1].i == 0 ? 0 : a[0].i % a[1].i)
RULE(pow) { return (void)type, of_f(f_pow(a[0].f, a[1].f)); }
ON_N(min, f_min(a[0].f, a[1].f), a[1].i < a[0].i ? a[1].i : a[0].i)
ON_N(max, f_max(a[0].f, a[1].f), a[1].i > a[0].i ? a[1].i : a[0].i)
ON_F(exp, exp)
ON_F(exp2, exp2)
ON_F(log, log)
ON_F(log2, log2)
ON_F(tanh, tanh)
ON_F(sqrt, sqrt)
ON_F(sin, sin)
ON_F(cos, cos)
ON_F(floor, floor)
ON_F(ceil, ceil)
ON_I(band, a[0].i & a[1].i)
ON_I(bor, a[0].i | a[1].i)
ON_I(bxor, a[0].i ^ a[1].i)
ON_I(bnot, ~a[0].i)
ON_I(shl, (int64_t)((uint64_t)a[0].i << (a[1].i & 31)))
ON_I(shr, (uint32_t)a[0].i >> (a[1].i & 31))
ON_I(sar, a[0].i >> (a[1].i & 31))
TRUTH(lt, <)
TRUTH(le, <=)
TRUTH(eq, ==)
TRUTH(ne, !=)
ON_I(and, a[0].i & a[1].i)
ON_I(or, a[0].i | a[1].i)
ON_I(not, !a[0].i)
RULE(select) { return (void)type, a[0].i ? a[1] : a[2]; }
RULE(float) { return (void)type, of_f((double)(float)a[0].i); }
RULE(int) { return (void)type, of_i(saturated(a[0].f)); }
// clang-format on

static attn__val (*const rules[])(int type, const attn__val *a) = {
#define X(name, ...) eval_##name,
    ATTN_OPS(X)
#undef X
};

static attn__val eval_load(const attn_graph *g, const attn__node *node, const attn__bound *bound,
                           const attn__val *val) {
    int64_t index[ATTN__MAX_RANK];
    for (int i = 0; i < node->n; i++) {
        index[i] = val[node->u.arg[i]].i;
    }
    const attn__bound *const t = &bound[node->sym];
    if (node->type == VT_F32) {
        return of_f((double)attn__fetch_f(t, node->n, index));
    }
    return of_i(attn__fetch_i(t, &g->symbol[node->sym], node->n, index));
}

static attn__val eval_node(const attn_graph *g, const attn__node *node, double s,
                           const attn__env *env, const attn__bound *bound, const attn__val *val) {
    switch (node->op) {
    case OP_leaf: return node->sym == LEAF_s ? of_f(s) : of_i(env->leaf[node->sym]);
    case OP_const:
        return node->type == VT_F32 ? of_f((double)node->u.value.f) : of_i(node->u.value.i);
    case OP_param:
        return node->type == VT_F32 ? of_f((double)bound[node->sym].f) : of_i(bound[node->sym].i);
    case OP_load: return eval_load(g, node, bound, val);
    default: {
        attn__val a[3] = {{0}, {0}, {0}};
        for (int i = 0; i < node->n; i++) {
            a[i] = val[node->u.arg[i]];
        }
        return rules[node->op](g->node[node->u.arg[0]].type, a);
    }
    }
}

void attn__eval(const attn_graph *g, const uint8_t *need, int root, double s, const attn__env *env,
                const attn__bound *bound, attn__val *val) {
    for (int i = 0; i <= root; i++) {
        if (!need || need[i]) {
            val[i] = eval_node(g, &g->node[i], s, env, bound, val);
        }
    }
}

void attn__need(const attn_graph *g, const int32_t *roots, int n, uint8_t *need) {
    memset(need, 0, (size_t)g->n);
    for (int i = 0; i < n; i++) {
        need[roots[i]] = 1;
    }
    for (int i = g->n - 1; i >= 0; i--) {
        const attn__node *const node = &g->node[i];
        for (int j = 0; need[i] && attn__has_args(node) && j < node->n; j++) {
            need[node->u.arg[j]] = 1;
        }
    }
}
