// vm_test.cc: the vector machine against attn__op32 bit by bit, the arithmetic of vm_math.h against
// libm in double, and loads at and past the edges of tensors.
#if __has_include(<catch2/catch_all.hpp>)
#include <catch2/catch_all.hpp>
#else
#include <catch2/catch.hpp>
#endif
extern "C" {
#include "vm.h"
#include "vm_loops.h"
#include "vm_math.h"
}
#include "variant_handle.h"

#include <algorithm>
#include <limits>
#include <memory>
#include <string>

namespace {

using random_expr::graph;
using random_expr::rng;

// A program with its scratch.
struct machine {
    attn__vm *vm = nullptr;
    std::vector<char> memory;
    void *scratch = nullptr;
    std::vector<const void *> out;

    machine(const attn_graph *g, const std::vector<int32_t> &roots) : out(roots.size()) {
        REQUIRE(attn__vm_new(g, roots.data(), (int)roots.size(), &vm) == ATTN_OK);
        memory.resize(attn__vm_scratch(vm) + 64, (char)0xa5);
        scratch = (void *)(((uintptr_t)memory.data() + 63) / 64 * 64);
    }
    ~machine() { attn__vm_free(vm); }
    machine(const machine &) = delete;
    attn__val32 at(size_t root, int lane) const {
        attn__val32 x;
        memcpy(&x, (const char *)out[root] + 4 * lane, 4);
        return x;
    }
};

// A symbol of the graph's.
int symbol_of(attn_graph *g, const char *name, int type, int rank) {
    attn__symbol s;
    memset(&s, 0, sizeof s);
    strcpy(s.name, name);
    s.type = (uint8_t)type;
    s.rank = (uint8_t)rank;
    return attn__symbol_add(g, &s);
}

const float inf = std::numeric_limits<float>::infinity();
const float edges_f[] = {0.0f,
                         -0.0f,
                         1.0f,
                         -1.0f,
                         0.5f,
                         -0.5f,
                         1.5f,
                         -2.5f,
                         3.0f,
                         7.0f,
                         -7.0f,
                         1e-45f,
                         -1e-45f,
                         1.2e-38f,
                         3.4e38f,
                         -3.4e38f,
                         inf,
                         -inf,
                         NAN,
                         8388608,
                         16777216,
                         2147483520,
                         2147483648.0f,
                         -2147483648.0f,
                         -2147483904.0f,
                         1e9f,
                         -1e9f,
                         88.5f,
                         -103.9f,
                         128.0f,
                         -149.5f,
                         0.99999994f,
                         1.0000001f,
                         1048577.0f,
                         1e20f,
                         3.1415927f,
                         1.5707964f,
                         0.0001f,
                         12345.678f,
                         -0.1f,
                         1e-20f};
const int32_t edges_i[] = {0,
                           1,
                           -1,
                           2,
                           -2,
                           3,
                           -3,
                           5,
                           7,
                           -7,
                           31,
                           32,
                           33,
                           63,
                           64,
                           INT32_MAX,
                           INT32_MIN,
                           INT32_MAX - 1,
                           INT32_MIN + 1,
                           65536,
                           -65536,
                           1000003};

// All triples of the edge values would be many; all pairs, the third cyclic.
template <class T, size_t N>
void pairs(const T (&edge)[N], std::vector<T> &a, std::vector<T> &b, std::vector<T> &c) {
    for (size_t i = 0; i < N; i++) {
        for (size_t j = 0; j < N; j++) {
            a.push_back(edge[i]);
            b.push_back(edge[j]);
            c.push_back(edge[(i + j) % N]);
        }
    }
}

attn__bound row_of(const void *data, int type, int64_t n) {
    attn__bound t;
    memset(&t, 0, sizeof t);
    t.data = (const char *)data;
    t.type = type;
    t.n[0] = n;
    t.st[0] = 1;
    return t;
}

// One op over lanes read from three tensors, against attn__op32. Returns the number of lanes.
int check_op(int op, int type) {
    graph x;
    int32_t arg[3] = {-1, -1, -1};
    for (int i = 0; i < attn__ops[op].n; i++) {
        const int vt = op == OP_select && i == 0 ? VT_BOOL : type;
        const int32_t k = attn__leaf(&x.g, LEAF_k);
        const std::string name(1, (char)('u' + i));
        arg[i] = attn__load(&x.g, symbol_of(&x.g, name.c_str(), vt, 1), &k, 1);
    }
    x.g.no_fold = 1;
    const int root = attn__op(&x.g, op, arg[0], arg[1], arg[2]);
    if (root < 0 || x.g.node[root].op != op || x.g.node[x.g.node[root].u.arg[0]].op != OP_load) {
        return 0; // not this op on this type
    }
    std::vector<float> f[3];
    std::vector<int32_t> n[3];
    std::vector<uint8_t> t[3];
    pairs(edges_f, f[0], f[1], f[2]);
    pairs(edges_i, n[0], n[1], n[2]);
    const size_t count = type == VT_F32 ? f[0].size() : n[0].size();
    std::vector<attn__bound> bound;
    for (int i = 0; i < 3; i++) {
        for (size_t j = 0; j < count; j++) {
            t[i].push_back((uint8_t)(j >> i & 1));
        }
        const int vt = op == OP_select && i == 0 ? VT_BOOL : type;
        bound.push_back(vt == VT_F32   ? row_of(f[i].data(), ATTN_F32, (int64_t)count)
                        : vt == VT_I32 ? row_of(n[i].data(), ATTN_I32, (int64_t)count)
                                       : row_of(t[i].data(), ATTN_BOOL, (int64_t)count));
    }
    machine m(&x.g, {root});
    attn__env env;
    memset(&env, 0, sizeof env);
    attn__vm_begin(m.vm, m.scratch, &env, bound.data());
    int compared = 0;
    for (size_t k0 = 0; k0 < count; k0 += ATTN__VM_WIDTH) {
        const int width = (int)std::min<size_t>(ATTN__VM_WIDTH, count - k0);
        attn__vm_columns(m.vm, m.scratch, (int32_t)k0, width);
        attn__vm_rows(m.vm, m.scratch, 0, 0, 1);
        attn__vm_row(m.vm, m.scratch, 0, nullptr, 1, 0, width, m.out.data());
        for (int j = 0; j < width; j++) {
            attn__val32 v[3];
            for (int i = 0; i < 3; i++) {
                const int vt = op == OP_select && i == 0 ? VT_BOOL : type;
                const size_t at = k0 + (size_t)j;
                v[i].i = vt == VT_BOOL ? t[i][at] : n[i][at % n[i].size()];
                if (vt == VT_F32) {
                    v[i].f = f[i][at];
                }
            }
            const int of = op == OP_select ? VT_BOOL : type;
            const attn__val32 want = attn__op32(op, of, v[0], v[1], v[2]);
            const attn__val32 got = m.at(0, j);
            if (!random_expr::same(x.g.node[root].type, got, want)) {
                FAIL(attn__op_name(op)
                     << " type " << type << ": " << v[0].f << "|" << v[0].i << ", " << v[1].f << "|"
                     << v[1].i << ": lanes give " << got.f << "|" << got.i << ", attn__op32 "
                     << want.f << "|" << want.i);
            }
            compared++;
        }
    }
    return compared;
}

double ulps(float got, double want) {
    if (std::isnan(want) || std::isnan(got)) {
        return std::isnan(want) && std::isnan(got) ? 0 : HUGE_VAL;
    }
    if (std::isinf(got) || std::isinf((float)want)) {
        return got == (float)want ? 0 : HUGE_VAL;
    }
    int e;
    std::frexp(want, &e);
    return std::fabs((double)got - want) / std::ldexp(1, std::max(e, -125) - 24);
}

double bound_of(int op) {
    static const double bounds[] = {
#define X(name, text, n, rule, ulp, sentence) ulp,
        ATTN_OPS(X)
#undef X
    };
    return bounds[op];
}

attn__val32 of_f(float x) {
    attn__val32 v;
    v.f = x;
    return v;
}
float op_f(int op, float a, float b = 0) {
    return attn__op32(op, VT_F32, of_f(a), of_f(b), of_f(0)).f;
}
float from_bits(uint32_t u) {
    float x;
    memcpy(&x, &u, 4);
    return x;
}

} // namespace

TEST_CASE("every op has the same bits in lanes and alone") {
    for (int op = 0; op < OP_leaf; op++) {
        int compared = 0;
        for (int type = VT_BOOL; type <= VT_F32; type++) {
            compared += check_op(op, type);
        }
        INFO(attn__op_name(op));
        CHECK(compared >= 400);
    }
}

TEST_CASE("every table of this processor has the same bits, whichever argument is at hand") {
    rng r{17};
    int tables = 0;
    for (int t = 0; attn__lanes_at(t); t++) {
        const attn__lanes *const lanes = attn__lanes_at(t);
        const int chunk = lanes->chunk;
        tables++;
        for (int at = 0; at < OP_leaf * 3 * 3 * 40; at++) { // op, type, argument, round
            const int op = at / 360, type = at / 120 % 3, hand = at / 40 % 3;
            if (!lanes->op[op][type][hand]) {
                CHECK((hand >= attn__ops[op].n || !lanes->op[op][type][0]));
                continue;
            }
            alignas(64) attn__val32 memory[4][128];
            for (auto &row : memory) {
                for (attn__val32 &v : row) {
                    v.i = (int32_t)r.bits();
                    if (type == VT_F32 && r.below(3) == 0) {
                        v.f = r.below(2) ? edges_f[r.below(40)] : (float)(9 * r.uniform());
                    } else if (r.below(3) == 0) {
                        v.i = edges_i[r.below(22)];
                    }
                }
            }
            // Arguments in rows 0 to 2, the result in row 3: two chunks of a chain, with a pause.
            const auto row = [&](int e) { return vm_ref{e * (int32_t)sizeof memory[0], AT_ROW}; };
            const vm_insn chain[] = {
                {lanes->load, {row(hand), row(0)}},
                {lanes->pause, {row(0), row(0)}},
                {lanes->op[op][type][hand], {row(hand == 0), row(hand == 2 ? 1 : 2)}},
                {lanes->store, {row(3), row(0)}},
                {lanes->end, {row(0), row(0)}}};
            char *const base[VM_BASES] = {nullptr, (char *)memory, nullptr};
            CHECK(lanes->run(chain, base, nullptr, 1, 0, chunk + 1) == 0);
            for (int j = 0; j < 2 * chunk; j++) {
                const int of = op == OP_select ? VT_BOOL : type;
                const attn__val32 want =
                    attn__op32(op, of, memory[0][j], memory[1][j], memory[2][j]);
                const bool f = type == VT_F32 && attn__ops[op].rule != RULE_NN_B &&
                               attn__ops[op].rule != RULE_EE_B && op != OP_int;
                const int result = f || op == OP_float ? VT_F32 : VT_I32;
                if (!random_expr::same(result, memory[3][j], want)) {
                    FAIL(lanes->name << " " << attn__op_name(op) << " argument " << hand << " lane "
                                     << j << ": " << memory[3][j].f << "|" << memory[3][j].i
                                     << ", not " << want.f << "|" << want.i);
                }
            }
        }
    }
    CHECK(tables >= 1);
}

TEST_CASE("a score is scaled, and -inf among them is seen in every lane") {
    for (int t = 0; attn__lanes_at(t); t++) {
        const attn__lanes *const lanes = attn__lanes_at(t);
        alignas(64) float to[128];
        char *const base[VM_BASES] = {nullptr, (char *)to, nullptr};
        const vm_ref first = {0, AT_ROW};
        const vm_insn chain[] = {{lanes->score, {first, first}},
                                 {lanes->store, {first, first}},
                                 {lanes->end, {first, first}}};
        for (int bad = -1; bad < 128; bad++) {
            float s[128];
            for (int j = 0; j < 128; j++) {
                s[j] = j == bad ? 3e38f : (float)j;
            }
            CHECK(lanes->run(chain, base, s, -2, 0, 128) == (bad >= 0));
            for (int j = 0; j < 128; j++) {
                CHECK(to[j] == s[j] * -2);
            }
        }
    }
}

TEST_CASE("random programs give what attn__op32 gives, at any width and offset") {
    int64_t lanes = 0;
    for (uint64_t seed = 1; seed <= 600; seed++) {
        graph x;
        x.g.no_fold = (int)(seed & 1);
        random_expr::builder build(&x.g, seed);
        const std::vector<int32_t> roots = {build.node(VT_F32, 6), build.node(VT_BOOL, 5),
                                            build.node(VT_I32, 5)};
        if (*std::min_element(roots.begin(), roots.end()) < 0) {
            CHECK(!x.g.no_fold); // folding found an i32 overflow
            continue;
        }
        const random_expr::values values(&x.g, seed);
        rng r{seed};
        machine m(&x.g, roots);
        attn__env env = random_expr::environment(r);
        attn__vm_begin(m.vm, m.scratch, &env, values.bound.data());
        for (int tile = 0; tile < 3; tile++) {
            const int k0 = r.between(-3, 300), width = r.between(1, ATTN__VM_WIDTH);
            attn__vm_columns(m.vm, m.scratch, k0, width);
            const int i0 = r.below(40), q0 = r.between(-9, 40);
            const int rows = r.below(3) ? r.between(1, ATTN__VM_ROWS) : ATTN__VM_ROWS;
            attn__vm_rows(m.vm, m.scratch, i0, q0, rows);
            for (int row = r.below(rows), turn = 0; turn < 3; turn++, row = r.below(rows)) {
                env.leaf[LEAF_i] = i0 + row;
                env.leaf[LEAF_q] = q0 + row;
                std::vector<float> s(ATTN__VM_WIDTH);
                for (float &one : s) {
                    one = r.below(8) ? (float)(8 * r.uniform() - 4) : edges_f[r.below(40)];
                }
                const int begin = r.below(3) ? 0 : r.below(width);
                attn__vm_row(m.vm, m.scratch, row, s.data(), 1, begin, width, m.out.data());
                for (int j = begin; j < width; j += 1 + r.below(5)) {
                    env.leaf[LEAF_k] = k0 + j;
                    for (size_t n = 0; n < roots.size(); n++) {
                        const auto want =
                            random_expr::eval32(&x.g, roots[n], s[(size_t)j], env, values.bound);
                        const attn__val32 got = m.at(n, j), should = want[(size_t)roots[n]];
                        if (!random_expr::same(x.g.node[roots[n]].type, got, should)) {
                            FAIL("seed " << seed << " root " << n << " lane " << j << " of "
                                         << width << ": " << got.f << "|" << got.i << " instead of "
                                         << should.f << "|" << should.i);
                        }
                        lanes++;
                    }
                }
            }
        }
    }
    CHECK(lanes > 100000);
}

TEST_CASE("functions keep the error bounds of the op table") {
    struct row {
        int op;
        double (*f)(double);
    };
    const row rows[] = {{OP_exp, std::exp},   {OP_exp2, std::exp2}, {OP_log, std::log},
                        {OP_log2, std::log2}, {OP_tanh, std::tanh}, {OP_sqrt, std::sqrt},
                        {OP_sin, std::sin},   {OP_cos, std::cos}};
    for (const row &one : rows) {
        double worst = 0;
        float at = 0;
        for (uint64_t u = 0; u < 1ull << 32; u += 20011) { // all exponents, both signs
            const float x = from_bits((uint32_t)u);
            const double error = ulps(op_f(one.op, x), one.f((double)x));
            if (error > worst) {
                worst = error;
                at = x;
            }
        }
        INFO(attn__op_name(one.op) << ": " << worst << " ulp at " << at);
        CHECK(worst <= bound_of(one.op));
    }
    rng r{7};
    double worst = 0;
    for (int n = 0; n < 300000; n++) {
        float x = from_bits((uint32_t)r.bits()), y = from_bits((uint32_t)r.bits());
        if (n % 3 == 1) {
            y = (float)r.between(-40, 40);
        } else if (n % 3 == 2) {
            x = 1 + (float)(r.uniform() - 0.5) / 64;
            y = (float)(20000 * (r.uniform() - 0.5));
        }
        const double want = x < 0 && y != std::floor(y) ? NAN : std::pow((double)x, (double)y);
        worst = std::max(worst, ulps(op_f(OP_pow, x, y), want));
    }
    INFO("pow: " << worst << " ulp");
    CHECK(worst <= bound_of(OP_pow));
}

TEST_CASE("exp2 of whole numbers and log2 of powers of two are exact") {
    for (int k = -170; k <= 140; k++) {
        CHECK(op_f(OP_exp2, (float)k) == (float)std::ldexp(1.0, k));
    }
    for (int k = -149; k <= 127; k++) {
        CHECK(op_f(OP_log2, std::ldexp(1.0f, k)) == (float)k);
    }
    CHECK(op_f(OP_exp, 0) == 1);
    CHECK(op_f(OP_log, 1) == 0);
    CHECK(op_f(OP_exp, -inf) == 0);
    CHECK(op_f(OP_log, 0) == -inf);
    CHECK(std::signbit(op_f(OP_tanh, -0.0f)));
    CHECK(op_f(OP_pow, NAN, 0) == 1);
    CHECK(op_f(OP_pow, 1, NAN) == 1);
    CHECK(op_f(OP_pow, 0, -3) == inf);
    CHECK(op_f(OP_pow, -0.0f, -3) == -inf);
    CHECK(op_f(OP_pow, -8, 3) == -512);
    CHECK(std::isnan(op_f(OP_pow, -8, 0.5f)));
}

TEST_CASE("f32 remainders are exact, with the sign of the definition") {
    rng r{11};
    for (int n = 0; n < 400000; n++) {
        float x = from_bits((uint32_t)r.bits()), y = from_bits((uint32_t)r.bits());
        if (n % 2) {
            y = x / (float)r.between(1, 100000);
        }
        const float want = y == 0 ? 0 : std::fmod(x, y);
        const float got = op_f(OP_fmod, x, y);
        if (!random_expr::same(VT_F32, of_f(got), of_f(want))) {
            FAIL("fmod(" << x << ", " << y << ") = " << got << ", not " << want);
        }
        const float m = op_f(OP_mod, x, y);
        const float moved = want != 0 && (want < 0) != (y < 0) ? want + y : want;
        if (!(m == moved || (std::isnan(m) && std::isnan(moved)))) {
            FAIL(x << " % " << y << " = " << m << ", not " << moved);
        }
    }
    CHECK(op_f(OP_mod, -1, 7) == 6);
    CHECK(op_f(OP_mod, 1, -7) == -6);
    CHECK(op_f(OP_mod, NAN, 0) == 0);
    CHECK(op_f(OP_mod, -3, inf) == inf);
}

TEST_CASE("integer rules at their edges") {
    const auto op_i = [](int op, int32_t a, int32_t b = 0) {
        attn__val32 x, y;
        x.i = a;
        y.i = b;
        return attn__op32(op, VT_I32, x, y, y).i;
    };
    CHECK(op_i(OP_floordiv, -1, 7) == -1);
    CHECK(op_i(OP_floordiv, 7, -2) == -4);
    CHECK(op_i(OP_floordiv, 5, 0) == 0);
    CHECK(op_i(OP_mod, -1, 7) == 6);
    CHECK(op_i(OP_mod, 5, 0) == 0);
    CHECK(op_i(OP_fmod, -8, 7) == -1);
    CHECK(op_i(OP_mod, INT32_MIN, -1) == 0);
    CHECK(op_i(OP_shl, 1, 33) == 2);
    CHECK(op_i(OP_shl, 1, 31) == INT32_MIN);
    CHECK(op_i(OP_shr, -1, 28) == 15);
    CHECK(op_i(OP_sar, -16, 2) == -4);
    for (int32_t a : edges_i) {
        for (int32_t b : edges_i) {
            const int64_t q = b ? (int64_t)std::floor((long double)a / b) : 0;
            CHECK(op_i(OP_floordiv, a, b) == (int32_t)q);
            CHECK(op_i(OP_mod, a, b) == (b ? (int64_t)a - q * b : 0));
            CHECK(op_i(OP_fmod, a, b) == (b ? (int64_t)a % b : 0));
        }
    }
    const auto to_int = [](float x) {
        return attn__op32(OP_int, VT_F32, of_f(x), of_f(0), of_f(0)).i;
    };
    CHECK(to_int(-2.9f) == -2);
    CHECK(to_int(NAN) == 0);
    CHECK(to_int(inf) == INT32_MAX);
    CHECK(to_int(-2147483904.0f) == INT32_MIN);
}

TEST_CASE("loads: any stride, any type, outside gives 0 and touches nothing") {
    rng r{5};
    for (int round = 0; round < 400; round++) {
        const int types[] = {ATTN_F32, ATTN_F16, ATTN_BF16, ATTN_I32, ATTN_U8};
        const int type = types[round % 5], bytes = attn__type_bytes(type);
        const int vt = type == ATTN_I32 ? VT_I32 : type == ATTN_U8 ? VT_BOOL : VT_F32;
        attn__bound t;
        memset(&t, 0, sizeof t);
        t.type = type;
        int64_t lowest = 0, reach = 1;
        for (int i = 0; i < 2; i++) { // strides of either sign, 0 among them; extents from 0
            t.n[i] = r.below(12);
            t.st[i] = r.between(-20, 20);
            const int64_t span = t.n[i] ? (t.n[i] - 1) * t.st[i] : 0;
            lowest += std::min<int64_t>(span, 0);
            reach += std::abs(span);
        }
        // Exactly as many bytes as the tensor reaches, so that ASan sees any other access.
        const size_t size = t.n[0] && t.n[1] ? (size_t)(reach * bytes) : 0;
        std::unique_ptr<char[]> memory(new char[size]);
        for (size_t i = 0; i < size; i++) {
            memory[i] = (char)(type == ATTN_U8 ? r.below(3) : r.below(120));
        }
        t.data = memory.get() - lowest * bytes;
        graph x;
        attn__symbol symbol;
        memset(&symbol, 0, sizeof symbol);
        strcpy(symbol.name, "t");
        symbol.type = (uint8_t)vt;
        symbol.rank = 2;
        symbol.bounded = vt == VT_I32 && round % 2;
        symbol.lo = -5;
        symbol.hi = 1000000;
        const int at = attn__symbol_add(&x.g, &symbol);
        const int32_t k = attn__leaf(&x.g, LEAF_k), q = attn__leaf(&x.g, LEAF_q);
        const int shift = attn__const_i(&x.g, r.between(-9, 9));
        const int32_t forms[] = {
            k,
            q,
            attn__op(&x.g, OP_add, k, shift, -1),
            attn__op(&x.g, OP_sub, q, k, -1),
            attn__op(&x.g, OP_mul, k, shift, -1),
            attn__op(&x.g, OP_min, attn__op(&x.g, OP_sub, k, q, -1), shift, -1)};
        const int32_t index[2] = {forms[r.below(6)], forms[r.below(6)]};
        const int root = attn__load(&x.g, at, index, 2);
        machine m(&x.g, {root});
        attn__env env;
        memset(&env, 0, sizeof env);
        const std::vector<attn__bound> bound = {t};
        attn__vm_begin(m.vm, m.scratch, &env, bound.data());
        const int k0 = r.between(-15, 5), width = r.between(1, 40);
        attn__vm_columns(m.vm, m.scratch, k0, width);
        const int q0 = r.between(-5, 15), rows = r.between(1, 40), row = r.below(rows);
        attn__vm_rows(m.vm, m.scratch, 0, q0, rows);
        env.leaf[LEAF_q] = q0 + row;
        attn__vm_row(m.vm, m.scratch, row, nullptr, 1, 0, width, m.out.data());
        for (int j = 0; j < width; j++) {
            env.leaf[LEAF_k] = k0 + j;
            const auto val = random_expr::eval32(&x.g, root, 0, env, bound);
            const int64_t a = val[(size_t)index[0]].i, b = val[(size_t)index[1]].i;
            double want = 0;
            if (a >= 0 && a < t.n[0] && b >= 0 && b < t.n[1]) {
                want = attn__get(t.data + (a * t.st[0] + b * t.st[1]) * bytes, type);
                want = vt == VT_BOOL ? want != 0 : want;
                want = symbol.bounded ? std::min(std::max(want, -5.0), 1e6) : want;
            }
            const attn__val32 got = m.at(0, j);
            INFO("round " << round << " lane " << j);
            REQUIRE((vt == VT_F32 ? (double)got.f : (double)got.i) == want);
        }
    }
}
