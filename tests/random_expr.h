/* random_expr.h: random well-typed expressions, values for what they read, their f32 evaluation.

   Who includes it: the tests of the expression graph (expr, parse, compose, range, grad, vm). A
   graph is built without folding; copying it with attn__graph_import into an ordinary one folds it.
   All draws come from one seed, so a failing test names a seed that repeats it. */
#ifndef ATTN_RANDOM_EXPR_H
#define ATTN_RANDOM_EXPR_H

#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

extern "C" {
#include "expr.h"
}

namespace random_expr {

/* SplitMix64 (Steele, Lea and Flood 2014). */
struct rng {
    uint64_t state;
    uint64_t bits() {
        uint64_t z = state += 0x9e3779b97f4a7c15u;
        z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
        z = (z ^ z >> 27) * 0x94d049bb133111ebu;
        return z ^ z >> 31;
    }
    int below(int n) { return (int)(bits() % (uint64_t)n); }
    int between(int lo, int hi) { return lo + below(hi - lo + 1); }
    double uniform() { return (double)(bits() >> 11) * 0x1p-53; }
};

struct options {
    bool floor = true;   /* floor, ceil: folding makes i32 of some of them */
    bool wild = true;    /* nan, infinities, huge and tiny constants */
    bool smooth = false; /* f32 operations with a derivative only */
    bool symbols = true; /* loads and parameters */
};

/* The tensors and parameters that expressions read. */
inline const std::vector<attn__symbol> &symbols() {
    static const std::vector<attn__symbol> all = [] {
        const struct {
            const char *name;
            int type, rank, bounded, lo, hi;
        } rows[] = {{"w", VT_F32, 1, 0, 0, 0},    {"table", VT_F32, 2, 0, 0, 0},
                    {"ids", VT_I32, 1, 1, -3, 9}, {"keep", VT_BOOL, 1, 0, 0, 0},
                    {"cap", VT_F32, 0, 0, 0, 0},  {"width", VT_I32, 0, 0, 0, 0},
                    {"flag", VT_BOOL, 0, 0, 0, 0}};
        std::vector<attn__symbol> made;
        for (const auto &row : rows) {
            attn__symbol symbol;
            memset(&symbol, 0, sizeof symbol);
            strcpy(symbol.name, row.name);
            symbol.type = (uint8_t)row.type;
            symbol.rank = (uint8_t)row.rank;
            symbol.bounded = (uint8_t)row.bounded;
            symbol.lo = row.lo;
            symbol.hi = row.hi;
            made.push_back(symbol);
        }
        return made;
    }();
    return all;
}

class builder {
  public:
    builder(attn_graph *g, uint64_t seed, const options &o = options()) : g(g), r{seed}, o(o) {}

    /* A node of the type (enum attn__vt), at most `depth` operations deep. */
    int node(int type, int depth) {
        if (depth <= 0 || r.below(8) == 0) {
            return end(type);
        }
        /* Now and then something that is there already, so that graphs share. */
        if (r.below(6) == 0) {
            for (int tries = 0; tries < 8 && g->n; tries++) {
                const int at = r.below(g->n);
                if (g->node[at].type == type) {
                    return at;
                }
            }
        }
        for (;;) {
            const int op = r.below(OP_leaf);
            const int made = try_op(op, type, depth - 1);
            if (made != -1) {
                return made;
            }
        }
    }

  private:
    attn_graph *g;
    rng r;
    options o;

    int constant(int type) {
        static const float edge[] = {0.0f,    -0.0f,       1.0f,      -1.0f, 0.5f,
                                     2.0f,    INFINITY,    -INFINITY, NAN,   1e-45f,
                                     3.4e38f, 16777216.0f, -1e-38f};
        static const int32_t edge_i[] = {0, 1, -1, 2, 31, 32, INT32_MAX, INT32_MIN, 16777217};
        if (type == VT_BOOL) {
            return attn__const_b(g, r.below(2));
        }
        const bool wild = o.wild && r.below(3) == 0;
        if (type == VT_I32) {
            return attn__const_i(g, wild ? edge_i[r.below(9)] : r.between(-9, 9));
        }
        return attn__const_f(g, wild ? edge[r.below(13)] : (float)r.between(-40, 40) / 8.0f);
    }

    int symbol(int type) {
        const int pick = r.below((int)symbols().size());
        if (symbols()[(size_t)pick].type != type) {
            return -1;
        }
        const int at = attn__symbol_add(g, &symbols()[(size_t)pick]);
        int32_t index[ATTN__MAX_RANK];
        const int rank = symbols()[(size_t)pick].rank;
        for (int i = 0; i < rank; i++) {
            index[i] = node(VT_I32, 1);
        }
        return attn__load(g, at, index, rank);
    }

    int end(int type) {
        const int read = o.symbols && r.below(3) == 0 ? symbol(type) : -1;
        if (read != -1) {
            return read;
        }
        if (type == VT_BOOL || r.below(3) == 0) {
            return constant(type);
        }
        return type == VT_F32 ? attn__leaf(g, LEAF_s) : attn__leaf(g, r.between(1, LEAF_COUNT - 1));
    }

    int number() { return r.below(2) ? VT_F32 : VT_I32; }

    /* The operation with random operands if its result has the type, else -1. */
    int try_op(int op, int type, int depth) {
        if ((!o.floor && (op == OP_floor || op == OP_ceil)) ||
            (o.smooth && type == VT_F32 &&
             (op == OP_floor || op == OP_ceil || op == OP_mod || op == OP_fmod))) {
            return -1;
        }
        int of = type; /* type of the operands */
        switch (attn__ops[op].rule) {
        case RULE_N_N:
        case RULE_NN_N:
            if (type == VT_BOOL) {
                return -1;
            }
            break;
        case RULE_F_F:
        case RULE_FF_F:
            if (type != VT_F32) {
                return -1;
            }
            break;
        case RULE_I_I:
        case RULE_II_I:
            if (type != VT_I32) {
                return -1;
            }
            break;
        case RULE_B_B:
        case RULE_BB_B:
            if (type != VT_BOOL) {
                return -1;
            }
            break;
        case RULE_NN_B:
        case RULE_EE_B:
            if (type != VT_BOOL) {
                return -1;
            }
            of = attn__ops[op].rule == RULE_EE_B && r.below(4) == 0 ? VT_BOOL : number();
            break;
        case RULE_I_F:
            if (type != VT_F32) {
                return -1;
            }
            of = VT_I32;
            break;
        case RULE_F_I:
            if (type != VT_I32) {
                return -1;
            }
            of = VT_F32;
            break;
        default: break;
        }
        int arg[3] = {-1, -1, -1};
        for (int i = 0; i < attn__ops[op].n; i++) {
            arg[i] = node(op == OP_select && i == 0 ? VT_BOOL : of, depth);
        }
        return attn__op(g, op, arg[0], arg[1], arg[2]);
    }
};

/* Values for the symbols of a graph that `symbols` describes; indices beyond 8 are outside. */
class values {
  public:
    values(const attn_graph *g, uint64_t seed, bool wild = true) : bound((size_t)g->n_symbols) {
        for (int i = 0; i < g->n_symbols; i++) {
            const attn__symbol &symbol = g->symbol[i];
            /* A tensor's values depend on its name, not on its number. */
            rng r{seed * 31 + (uint64_t)symbol.name[0]};
            attn__bound &b = bound[(size_t)i];
            memset(&b, 0, sizeof b);
            b.f = draw(r, wild);
            b.i = symbol.type == VT_BOOL ? r.below(2) : r.between(-9, 9);
            b.type = symbol.type == VT_F32   ? ATTN_F32
                     : symbol.type == VT_I32 ? ATTN_I32
                                             : ATTN_BOOL;
            int64_t n = 1;
            for (int k = symbol.rank; k-- > 0;) {
                b.n[k] = 8;
                b.st[k] = n;
                n *= 8;
            }
            if (symbol.rank) {
                store.emplace_back((size_t)(4 * n));
                char *const data = store.back().data();
                for (int64_t k = 0; k < n; k++) {
                    const float f = draw(r, wild);
                    const int32_t x = r.between(-20, 20);
                    if (symbol.type == VT_BOOL) {
                        data[k] = (char)(x & 1);
                    } else if (symbol.type == VT_I32) {
                        memcpy(data + 4 * k, &x, 4);
                    } else {
                        memcpy(data + 4 * k, &f, 4);
                    }
                }
                b.data = data;
            }
        }
    }
    std::vector<attn__bound> bound;

  private:
    std::vector<std::vector<char>> store;

    static float draw(rng &r, bool wild) {
        static const float edge[] = {INFINITY, -INFINITY, NAN, 0.0f, -0.0f, 3e38f, 1e-44f};
        return wild && r.below(6) == 0 ? edge[r.below(7)] : (float)(4 * r.uniform() - 2);
    }
};

/* A random pair: every leaf but s. */
inline attn__env environment(rng &r) {
    attn__env env;
    memset(&env, 0, sizeof env);
    env.leaf[LEAF_b] = r.below(3);
    env.leaf[LEAF_h] = r.below(8);
    env.leaf[LEAF_nq] = r.between(1, 40);
    env.leaf[LEAF_nk] = r.between(1, 40);
    env.leaf[LEAF_i] = r.below(env.leaf[LEAF_nq]);
    env.leaf[LEAF_q] = env.leaf[LEAF_i] + env.leaf[LEAF_nk] - env.leaf[LEAF_nq];
    env.leaf[LEAF_k] = r.below(env.leaf[LEAF_nk]);
    env.leaf[LEAF_nh] = 8;
    env.leaf[LEAF_hk] = 2;
    env.leaf[LEAF_batch] = 3;
    return env;
}

/* All nodes 0..root in f32 and i32, as devices compute them: attn__op32 node by node. */
inline std::vector<attn__val32> eval32(const attn_graph *g, int root, float s, const attn__env &env,
                                       const std::vector<attn__bound> &bound) {
    std::vector<attn__val32> val((size_t)root + 1);
    for (int at = 0; at <= root; at++) {
        const attn__node &node = g->node[at];
        attn__val32 &v = val[(size_t)at];
        v.i = 0;
        if (node.op == OP_leaf) {
            if (node.sym == LEAF_s) {
                v.f = s;
            } else {
                v.i = env.leaf[node.sym];
            }
        } else if (node.op == OP_const) {
            if (node.type == VT_F32) {
                v.f = node.u.value.f;
            } else {
                v.i = node.u.value.i;
            }
        } else if (node.op == OP_param) {
            if (node.type == VT_F32) {
                v.f = bound[(size_t)node.sym].f;
            } else {
                v.i = bound[(size_t)node.sym].i;
            }
        } else if (node.op == OP_load) {
            int64_t index[ATTN__MAX_RANK];
            for (int i = 0; i < node.n; i++) {
                index[i] = val[(size_t)node.u.arg[i]].i;
            }
            if (node.type == VT_F32) {
                v.f = attn__fetch_f(&bound[(size_t)node.sym], node.n, index);
            } else {
                v.i = attn__fetch_i(&bound[(size_t)node.sym], &g->symbol[node.sym], node.n, index);
            }
        } else {
            attn__val32 arg[3];
            memset(arg, 0, sizeof arg);
            for (int i = 0; i < node.n; i++) {
                arg[i] = val[(size_t)node.u.arg[i]];
            }
            v = attn__op32(node.op, g->node[node.u.arg[0]].type, arg[0], arg[1], arg[2]);
        }
    }
    return val;
}

/* Equal bits, or both NaN; values of type `type`. */
inline bool same(int type, attn__val32 a, attn__val32 b) {
    return type == VT_F32 ? (std::isnan(a.f) && std::isnan(b.f)) || !memcmp(&a.f, &b.f, 4)
                          : a.i == b.i;
}

} // namespace random_expr

#endif
