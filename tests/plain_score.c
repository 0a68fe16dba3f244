/* plain_score.c: one score and its derivative, node by node; see plain.h. */
#include "plain.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const double ulps[OP_COUNT] = {
#define X(name, text, n, rule, ulp, about) [OP_##name] = ulp,
    ATTN_OPS(X)
#undef X
};

/* Marks what `root` depends on; arguments come before their users. */
static void need(const attn_graph *g, int root, uint8_t *needed) {
    needed[root] = 1;
    for (int i = root; i >= 0; i--) {
        const attn__node *const node = &g->node[i];
        const int has_args = node->op < OP_leaf || node->op == OP_load;
        for (int j = 0; needed[i] && has_args && j < node->n; j++) {
            needed[node->u.arg[j]] = 1;
        }
    }
}

int plain_scorer_new(plain_scorer *r, const attn_variant *variant, const attn_call *call, int f32) {
    const attn_graph *const g = &variant->graph;
    const size_t n = (size_t)g->n;
    memset(r, 0, sizeof *r);
    r->variant = variant;
    r->f32 = f32;
    r->val = calloc(n, sizeof *r->val);
    r->adjoint = calloc(n, sizeof *r->adjoint);
    r->sum = calloc(n, sizeof *r->sum);
    r->site = calloc(n, sizeof *r->site);
    r->needed = calloc(n, 1);
    if (!r->val || !r->adjoint || !r->sum || !r->site || !r->needed) {
        abort();
    }
    need(g, variant->score, r->needed);
    for (int i = 0; i <= variant->score; i++) {
        const attn__node *const node = &g->node[i];
        if (r->needed[i] && node->type == VT_F32 && (node->op == OP_load || node->op == OP_param)) {
            r->site[r->n_sites++] = i;
        }
    }
    need(g, variant->mask, r->needed);
    return attn__bind(NULL, variant, call->captures, call->n_captures, 0, r->bound);
}

void plain_scorer_free(plain_scorer *r) {
    free(r->val);
    free(r->adjoint);
    free(r->sum);
    free(r->site);
    free(r->needed);
}

/* As attn__eval, but every operation in f32. */
static void eval_f32(plain_scorer *r, double s, const attn__env *env, int last) {
    const attn_graph *const g = &r->variant->graph;
    for (int i = 0; i <= last; i++) {
        const attn__node *const node = &g->node[i];
        attn__val *const out = &r->val[i];
        if (!r->needed[i]) {
            continue;
        }
        if (node->op == OP_leaf) {
            if (node->sym == LEAF_s) {
                out->f = s;
            } else {
                out->i = env->leaf[node->sym];
            }
        } else if (node->op == OP_const || node->op == OP_param) {
            const int param = node->op == OP_param;
            if (node->type == VT_F32) {
                out->f = (double)(param ? r->bound[node->sym].f : node->u.value.f);
            } else {
                out->i = param ? r->bound[node->sym].i : node->u.value.i;
            }
        } else if (node->op == OP_load) {
            int64_t index[ATTN__MAX_RANK];
            for (int j = 0; j < node->n; j++) {
                index[j] = r->val[node->u.arg[j]].i;
            }
            const attn__bound *const b = &r->bound[node->sym];
            if (node->type == VT_F32) {
                out->f = (double)attn__fetch_f(b, node->n, index);
            } else {
                out->i = attn__fetch_i(b, &g->symbol[node->sym], node->n, index);
            }
        } else {
            attn__val32 a[3] = {{0}};
            for (int j = 0; j < node->n; j++) {
                const int arg = node->u.arg[j];
                if (g->node[arg].type == VT_F32) {
                    a[j].f = (float)r->val[arg].f;
                } else {
                    a[j].i = (int32_t)r->val[arg].i;
                }
            }
            const int typed = node->op == OP_select ? 1 : 0;
            const attn__val32 x =
                attn__op32(node->op, g->node[node->u.arg[typed]].type, a[0], a[1], a[2]);
            if (node->type == VT_F32) {
                out->f = (double)x.f;
            } else {
                out->i = x.i;
            }
        }
    }
}

/* Within what rounding of either could make of it; an infinity is no rounding's work. */
static int near(double a, double b) {
    return isfinite(a) && isfinite(b) && fabs(a - b) <= 0x1p-17 * fmax(fabs(a), fabs(b));
}

/* Partial derivatives d[] of a node by its arguments, and e[] >= |d[]|, with sums of absolute
   values where a difference could cancel. Returns 1 at a kink. */
static int partials(int op, const double *x, double v, double d[3], double e[3]) {
    int kink = 0;
    switch (op) {
    case OP_neg: d[0] = -1; break;
    case OP_abs:
        d[0] = x[0] < 0 ? -1 : 1;
        kink = fabs(x[0]) < 0x1p-17;
        break;
    case OP_add: d[0] = d[1] = 1; break;
    case OP_sub: d[0] = 1, d[1] = -1; break;
    case OP_mul: d[0] = x[1], d[1] = x[0]; break;
    case OP_div: d[0] = 1 / x[1], d[1] = -v / x[1]; break;
    case OP_mod:
    case OP_fmod:
        d[0] = x[1] == 0 ? 0 : 1;
        d[1] = x[1] == 0 ? 0 : op == OP_mod ? -floor(x[0] / x[1]) : -trunc(x[0] / x[1]);
        kink = near(x[0] / x[1], nearbyint(x[0] / x[1]));
        break;
    case OP_pow:
        d[0] = x[1] == 0 ? 0 : x[1] * pow(x[0], x[1] - 1);
        d[1] = x[0] == 0 ? 0 : v * log(x[0]);
        break;
    case OP_min:
    case OP_max:
        d[0] = op == OP_min ? x[0] <= x[1] : x[0] >= x[1];
        d[1] = 1 - d[0];
        kink = near(x[0], x[1]);
        break;
    case OP_exp: d[0] = v; break;
    case OP_exp2: d[0] = v * (double)0.69314718f; break; /* constants are f32 */
    case OP_log: d[0] = 1 / x[0]; break;
    case OP_log2: d[0] = (double)1.44269504f / x[0]; break;
    case OP_tanh: d[0] = 1 - v * v; break;
    case OP_sqrt: d[0] = 0.5 / v; break;
    case OP_sin: d[0] = cos(x[0]); break;
    case OP_cos: d[0] = -sin(x[0]); break;
    case OP_select:
        d[1] = x[0] != 0;
        d[2] = x[0] == 0;
        break;
    default: break; /* floor, ceil, float: constant almost everywhere */
    }
    for (int j = 0; j < 3; j++) {
        e[j] = kink && d[j] == 0 && op != OP_mod && op != OP_fmod ? 1 : fabs(d[j]);
    }
    if (op == OP_tanh) {
        e[0] = 1 + v * v;
    } else if (op == OP_sin || op == OP_cos) {
        e[0] = 1;
    }
    return kink;
}

/* A comparison of numbers that rounding could turn. */
static int edge(const plain_scorer *r, const attn__node *node) {
    const attn__node *const all = r->variant->graph.node;
    const int *const arg = node->u.arg;
    return (node->op == OP_lt || node->op == OP_le || node->op == OP_eq || node->op == OP_ne) &&
           all[arg[0]].type == VT_F32 && near(r->val[arg[0]].f, r->val[arg[1]].f);
}

static void sweep(plain_scorer *r, plain_pair *p, double s_size) {
    const attn_graph *const g = &r->variant->graph;
    const int root = r->variant->score;
    double s_part = 0;
    memset(r->adjoint, 0, (size_t)(root + 1) * sizeof *r->adjoint);
    memset(r->sum, 0, (size_t)(root + 1) * sizeof *r->sum);
    r->adjoint[root] = r->sum[root] = 1;
    p->amplify = 0;
    for (int i = root; i >= 0; i--) {
        const attn__node *const node = &g->node[i];
        if (!r->needed[i]) {
            continue;
        }
        p->kink |= edge(r, node);
        if (node->type != VT_F32 || r->sum[i] == 0) {
            continue;
        }
        if (node->op == OP_leaf) {
            p->ds = r->adjoint[i];
            p->ds_sum = r->sum[i];
            s_part = fabs(p->ds) * s_size;
        } else if (node->op < OP_leaf) {
            double x[3] = {0}, d[3] = {0}, e[3] = {0};
            for (int j = 0; j < node->n; j++) {
                const int arg = node->u.arg[j];
                x[j] = g->node[arg].type == VT_F32 ? r->val[arg].f : (double)r->val[arg].i;
            }
            p->amplify += ulps[node->op] / 2 * fabs(r->adjoint[i] * r->val[i].f);
            p->kink |= partials(node->op, x, r->val[i].f, d, e);
            for (int j = 0; j < node->n; j++) {
                const int arg = node->u.arg[j];
                if (e[j] != 0) {
                    const double a = r->adjoint[arg] + r->adjoint[i] * d[j];
                    r->adjoint[arg] = r->f32 ? (float)a : a;
                    r->sum[arg] += r->sum[i] * e[j];
                }
            }
        }
    }
    p->amplify += fmax(s_part, fabs(p->score));
}

static int64_t element_read(const plain_scorer *r, const attn__node *node) {
    const attn__bound *const b = &r->bound[node->sym];
    int64_t element = 0;
    for (int j = 0; j < (node->op == OP_load ? node->n : 0); j++) {
        const int64_t index = r->val[node->u.arg[j]].i;
        if (index < 0 || index >= b->n[j]) {
            return -1;
        }
        element = element * b->n[j] + index;
    }
    return element;
}

plain_pair plain_score(plain_scorer *r, const attn__env *env, double s, double s_size,
                       plain_part *part) {
    const attn_variant *const v = r->variant;
    const int last = v->score > v->mask ? v->score : v->mask;
    plain_pair p = {0};
    if (r->f32) {
        eval_f32(r, s, env, last);
    } else {
        attn__eval(&v->graph, r->needed, last, s, env, r->bound, r->val);
    }
    p.score = r->val[v->score].f;
    p.visible = r->val[v->mask].i != 0 && p.score != -INFINITY && s != -INFINITY;
    if (p.visible) {
        sweep(r, &p, s_size);
        for (int i = 0; i < r->n_sites; i++) {
            const int32_t node = r->site[i];
            part[i] =
                (plain_part){r->adjoint[node], r->sum[node], element_read(r, &v->graph.node[node])};
        }
    }
    return p;
}
