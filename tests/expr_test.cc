/* expr_test.cc: construction: folding keeps bits, sharing, types, limits, the verifier. */
#if __has_include(<catch2/catch_all.hpp>)
#include <catch2/catch_all.hpp>
#else
#include <catch2/catch.hpp>
#endif

#include "random_expr.h"

#include <cmath>
#include <string>

using namespace random_expr;

namespace {

struct graph {
    attn_graph g;
    explicit graph(bool fold = true) {
        attn__graph_init(&g);
        g.no_fold = !fold;
    }
    ~graph() { attn__graph_clear(&g); }
    graph(const graph &) = delete;
    graph &operator=(const graph &) = delete;
    attn_graph *operator&() { return &g; }
    int parse(const char *text) {
        int root = -1;
        const int status = attn__parse(text, &g, &root);
        return status < 0 ? status : root;
    }
};

std::string text_of(const attn_graph *g, int node) {
    char *text = nullptr;
    REQUIRE(attn__print_node(g, node, &text) == ATTN_OK);
    std::string s(text);
    free(text);
    return s;
}

/* The folded text of an expression. */
std::string folded(const char *text) {
    graph g;
    const int root = g.parse(text);
    INFO(attn_error());
    REQUIRE(root >= 0);
    return text_of(&g, root);
}

int status_of(const char *text) {
    graph g;
    return g.parse(text);
}

} // namespace

TEST_CASE("folding keeps every bit") {
    options o;
    o.floor = false;
    int folds = 0, refused = 0;
    for (uint64_t seed = 1; seed <= 4000; seed++) {
        graph plain(false), fold;
        builder make(&plain, seed, o);
        const int type = (int)(seed % 3);
        const int root = make.node(type, 5);
        REQUIRE(root >= 0);
        REQUIRE(attn__verify(&plain) == ATTN_OK);
        const int same_root = attn__graph_import(&fold, &plain, root, -1);
        if (same_root < 0) { /* constants that do not fit i32 */
            REQUIRE(same_root == ATTN_VARIANT);
            refused++;
            continue;
        }
        REQUIRE(attn__verify(&fold) == ATTN_OK);
        folds += fold.g.n < plain.g.n;
        const values of_plain(&plain, seed), of_fold(&fold, seed);
        rng r{seed};
        for (int pair = 0; pair < 8; pair++) {
            const attn__env env = environment(r);
            const float s = pair == 0   ? -0.0f
                            : pair == 1 ? (float)NAN
                                        : (float)(8 * r.uniform() - 4);
            const attn__val32 a = eval32(&plain, root, s, env, of_plain.bound).back();
            const attn__val32 b = eval32(&fold, same_root, s, env, of_fold.bound).back();
            INFO("seed " << seed << ": " << text_of(&plain, root) << " became "
                         << text_of(&fold, same_root));
            REQUIRE(fold.g.node[same_root].type == type);
            REQUIRE(same(type, a, b));
        }
    }
    REQUIRE(folds > 1000);
    REQUIRE(refused < 2000);
}

TEST_CASE("folding is settled: rebuilding a folded graph changes nothing") {
    for (uint64_t seed = 1; seed <= 2000; seed++) {
        graph plain(false), once, twice, thrice;
        const int root = builder(&plain, seed).node((int)(seed % 3), 6);
        const int a = attn__graph_import(&once, &plain, root, -1);
        if (a < 0) {
            continue;
        }
        /* The first copy has the nodes in the order of folding, the second in that of the text. */
        const int b = attn__graph_import(&twice, &once, a, -1);
        const int c = attn__graph_import(&thrice, &twice, b, -1);
        INFO("seed " << seed);
        REQUIRE(c == b);
        REQUIRE(thrice.g.n == b + 1);
        REQUIRE(text_of(&twice, b) == text_of(&thrice, c));
    }
}

TEST_CASE("equal expressions are one node") {
    graph g;
    for (const auto &pair : std::vector<std::pair<const char *, const char *>>{
             {"q >= k", "k <= q"},
             {"!(q < k)", "k <= q"},
             {"q > k", "!(q <= k)"},
             {"q + k", "k + q"},
             {"s * cap", "cap * s"},
             {"k <= q && q < 5", "q < 5 && k <= q"},
             {"band(q, k)", "band(k, q)"},
             {"q == k", "!(k != q)"},
             {"h == 1 || h == 256", "h == 256 || h == 1"},
             {"s == 1.5 || s == 256.5", "s == 256.5 || s == 1.5"},
             {"floor(q / k)", "floordiv(q, k)"},
             {"floor(q / 4)", "floordiv(q, 4)"},
             {"ceil(q / 4)", "-floordiv(-q, 4)"},
             {"floor(q)", "q"},
             {"ceil(float(q))", "float(q)"},
             {"q - 3 + 5", "q + 2"},
             {"w[h]", "w[h + 0]"},
             {"k <= q ? (k < 5 ? s : -inf) : -inf", "k <= q && k < 5 ? s : false"},
         }) {
        INFO(pair.first << " and " << pair.second);
        const int a = g.parse(pair.first), b = g.parse(pair.second);
        INFO(attn_error());
        REQUIRE(a >= 0);
        CHECK(a == b);
    }
    /* The first argument of min and max takes the derivative at a tie. */
    CHECK(g.parse("min(s, cap)") != g.parse("min(cap, s)"));
    CHECK(g.parse("max(s, cap)") != g.parse("max(cap, s)"));
    /* Not equal where NaN is possible. */
    CHECK(g.parse("!(s < cap)") != g.parse("cap <= s"));
    CHECK(g.parse("s == s") != g.parse("true"));
    CHECK(g.parse("s < cap || cap <= s") != g.parse("true"));
    CHECK(g.parse("q == q") == g.parse("true"));
    CHECK(g.parse("s + 0.0") != g.parse("s"));
    CHECK(g.parse("s - 0.0") == g.parse("s"));
    CHECK(g.parse("s * 0.0") != g.parse("0.0"));
}

TEST_CASE("folding of each rule") {
    const struct {
        const char *text, *result;
    } rows[] = {
        {"s * 1", "s"},
        {"s / 1", "s"},
        {"s * -1", "-s"},
        {"--s", "s"},
        {"s + -cap", "s - cap"},
        {"s - -cap", "s + cap"},
        {"-cap + s", "s - cap"},
        {"s - 1.5", "s - 1.5"},
        {"q - q", "0"},
        {"0 - q", "-q"},
        {"-(q - k)", "k - q"},
        {"-(s - cap)", "-(s - cap)"},
        {"q * 0", "0"},
        {"q % 1", "0"},
        {"floordiv(q, 1)", "q"},
        {"floordiv(q, 0)", "0"},
        {"q % 0", "0"},
        {"7 % 0 + floordiv(7, 0)", "0"},
        {"-1 % 7", "6"},
        {"floordiv(-1, 7)", "-1"},
        {"fmod(-8, 7)", "-1"},
        {"7.5 % 0.0", "0.0"},
        {"shl(1, 33)", "2"},
        {"shr(-1, 28)", "15"},
        {"sar(-16, 34)", "-4"},
        {"int(nan)", "0"},
        {"int(1e20)", "2147483647"},
        {"int(-1e20)", "-2147483648"},
        {"float(16777217)", "16777216.0"},
        {"min(nan, 1.0)", "nan"},
        {"max(1.0, nan)", "nan"},
        {"1 / 0", "inf"},
        {"true ? s : cap", "s"},
        {"k < q ? s : s", "s"},
        {"!(s < cap) ? s : cap", "s < cap ? cap : s"},
        {"k < q ? (k < q ? s : cap) : 1.0", "k < q ? s : 1"},
        {"(k < q) == true", "k < q"},
        {"(k < q) != true", "q <= k"},
        {"!(k < q && h < 2)", "q <= k || 2 <= h"},
        {"!(k < q && s < 2)", "!(k < q && s < 2)"},
        {"k < q && q <= k", "false"},
        {"k < q || q <= k", "true"},
        {"k < q && (h < 2 && k < q)", "h < 2 && k < q"},
        {"k < q && (h < 2 || k < q)", "k < q"},
        {"pow(s, 1)", "s"},
        {"floor(ceil(s))", "ceil(s)"},
        {"bnot(bnot(q))", "q"},
        {"bxor(q, q)", "0"},
        {"-(-0.0) + s * -0.0", "s * -0.0 + 0"},
    };
    for (const auto &row : rows) {
        INFO(row.text);
        CHECK(folded(row.text) == row.result);
    }
}

TEST_CASE("floor and ceil of an i32 quotient are whole, and the same while f32 is exact") {
    graph fold;
    graph plain(false);
    const int floor_f = fold.parse("floor(q / k)"), ceil_f = fold.parse("ceil(q / k)");
    const int floor_p = plain.parse("floor(q / k)"), ceil_p = plain.parse("ceil(q / k)");
    REQUIRE(fold.g.node[floor_f].type == VT_I32);
    REQUIRE(fold.g.node[ceil_f].type == VT_I32);
    REQUIRE(plain.g.node[ceil_p].type == VT_F32);
    attn__env env;
    memset(&env, 0, sizeof env);
    const std::vector<attn__bound> none;
    for (int a = -50; a <= 50; a++) {
        for (int b = -50; b <= 50; b++) {
            env.leaf[LEAF_q] = a;
            env.leaf[LEAF_k] = b;
            const auto x = eval32(&fold, fold.g.n - 1, 0, env, none);
            const auto y = eval32(&plain, plain.g.n - 1, 0, env, none);
            INFO(a << " / " << b);
            REQUIRE(x[(size_t)floor_f].i == (b == 0 ? 0 : (int)y[(size_t)floor_p].f));
            REQUIRE(x[(size_t)ceil_f].i == (b == 0 ? 0 : (int)y[(size_t)ceil_p].f));
        }
    }
    /* Past 2^24 the f32 quotient is not exact; the folded one is. */
    env.leaf[LEAF_q] = 16777217;
    env.leaf[LEAF_k] = 1;
    CHECK(eval32(&fold, fold.g.n - 1, 0, env, none)[(size_t)floor_f].i == 16777217);
}

TEST_CASE("constants that leave i32 are refused") {
    for (const char *text :
         {"2147483647 + 1", "-2147483648 - 1", "65536 * 65536", "-(-2147483648)",
          "abs(-2147483648)", "floordiv(-2147483648, -1)", "q < 1000000 * 1000000"}) {
        INFO(text);
        CHECK(status_of(text) == ATTN_VARIANT);
        CHECK(std::string(attn_error()).find("does not fit i32") != std::string::npos);
    }
    CHECK(status_of("2147483646 + 1") >= 0);
    CHECK(status_of("-2147483648 % -1") >= 0);
    CHECK(status_of("2147483647 + 1.0") >= 0);
}

TEST_CASE("types are checked and i32 is promoted") {
    for (const char *text :
         {"k && q", "q + true", "!s", "s ? 1 : 2", "band(s, 1)", "-true", "true < false",
          "true == 1", "shl(1.0, 2)", "w[true]", "int(true)", "float(k < q)", "exp(true)"}) {
        INFO(text);
        CHECK(status_of(text) == ATTN_VARIANT);
        CHECK(std::string(attn_error()).size() > 20);
    }
    CHECK(folded("q / 4") == "q / 4");
    CHECK(folded("s + q") == "s + q");
    CHECK(folded("w[s * 2]") == "w[int(s * 2)]");
    CHECK(folded("float(q) + 2.0") == "q + 2.0");
    CHECK(folded("float(q) + float(k)") == "float(q) + k");
}

TEST_CASE("a bool beside a number: false masks, true keeps s") {
    CHECK(folded("k <= q ? s * 2 : false") == "k <= q ? s * 2 : -inf");
    CHECK(folded("k <= q ? true : cap") == "k <= q ? s : cap");
    CHECK(folded("k <= q ? h < 2 : cap") == "k <= q ? (h < 2 ? s : -inf) : cap");
}

TEST_CASE("the verifier rejects what the builder would not make") {
    const auto spoiled = [](void (*spoil)(attn_graph *)) {
        graph g;
        REQUIRE(g.parse("k <= q && keep[k] != 0.0 ? s + w[h] * (k - q) : cap") >= 0);
        REQUIRE(attn__verify(&g) == ATTN_OK);
        spoil(&g);
        return attn__verify(&g);
    };
    CHECK(spoiled([](attn_graph *g) { g->node[g->n - 1].u.arg[0] = g->n - 1; }) == ATTN_VARIANT);
    CHECK(spoiled([](attn_graph *g) { g->node[g->n - 1].u.arg[1] = -5; }) == ATTN_VARIANT);
    CHECK(spoiled([](attn_graph *g) { g->node[g->n - 1].u.arg[3] = 0; }) == ATTN_VARIANT);
    CHECK(spoiled([](attn_graph *g) { g->node[g->n - 1].type = VT_I32; }) == ATTN_VARIANT);
    CHECK(spoiled([](attn_graph *g) { g->node[g->n - 1].n = 2; }) == ATTN_VARIANT);
    CHECK(spoiled([](attn_graph *g) { g->node[g->n - 1].op = OP_COUNT; }) == ATTN_VARIANT);
    CHECK(spoiled([](attn_graph *g) { g->node[0].sym = LEAF_COUNT; }) == ATTN_VARIANT);
    CHECK(spoiled([](attn_graph *g) { g->n_symbols = 0; }) == ATTN_VARIANT);
}

TEST_CASE("limits: nodes, symbols, names") {
    graph g;
    int node = attn__leaf(&g, LEAF_s);
    int made = 0;
    while (node >= 0 && made < 3 * ATTN__MAX_NODES) {
        node = attn__op(&g, OP_sin, node, -1, -1);
        made++;
    }
    CHECK(node == ATTN_VARIANT);
    CHECK(g.g.n == ATTN__MAX_NODES);

    std::string text;
    for (int i = 0; i < ATTN__MAX_SYMBOLS; i++) {
        text += "p" + std::to_string(i) + " + ";
    }
    CHECK(status_of((text + "0").c_str()) >= 0);
    CHECK(status_of((text + "one_more").c_str()) == ATTN_VARIANT);

    CHECK(status_of(std::string(47, 'a').c_str()) >= 0);
    CHECK(status_of(std::string(48, 'a').c_str()) == ATTN_PARSE);
}

TEST_CASE("a symbol has one type, rank and bounds") {
    CHECK(status_of("w[h] + w[h][q]") == ATTN_VARIANT);
    CHECK(status_of("w[h] + w") == ATTN_VARIANT);
    CHECK(status_of("w + w[h]") == ATTN_VARIANT);
    CHECK(status_of("i32 w[1]; w[h][q] == 1") == ATTN_VARIANT);
    CHECK(status_of("f32 w[1]; f32 w[1]; w[h]") == ATTN_PARSE);
    CHECK(status_of("i32 w[1] in 5..4; w[h] == 1") == ATTN_VARIANT);
    CHECK(status_of("f32 w[1] in 0..4; w[h]") == ATTN_VARIANT);
}

/* -- The public builder ------------------------------------------------------------------------ */

TEST_CASE("attn_graph builds what the parser builds") {
    attn_graph *g = nullptr;
    REQUIRE(attn_graph_new(&g) == ATTN_OK);
    const int q = attn_graph_leaf(g, "q"), k = attn_graph_leaf(g, "k"), s = attn_graph_leaf(g, "s");
    const int slopes = attn_graph_tensor(g, "slopes", ATTN_F32, 1, 0, 0);
    const int32_t h = attn_graph_leaf(g, "h");
    const int slope = attn_graph_load(g, slopes, &h, 1);
    const int far = attn_graph_op(g, attn_op_find("sub"), k, q, -1);
    const int bias = attn_graph_op(g, attn_op_find("mul"), slope, far, -1);
    const int score = attn_graph_op(g, attn_op_find("add"), s, bias, -1);
    const int mask = attn_graph_op(g, attn_op_find("le"), k, q, -1);
    const int root = attn_graph_op(g, attn_op_find("select"), mask, score, attn_graph_bool(g, 0));
    attn_variant *a = nullptr, *b = nullptr;
    REQUIRE(attn_graph_finish(g, root, &a) == ATTN_OK);
    REQUIRE(attn_variant_parse("k <= q ? s + slopes[h] * (k - q) : -inf", &b) == ATTN_OK);
    CHECK(std::string(attn_variant_text(a)) == attn_variant_text(b));
    attn_symbol symbol;
    memset(&symbol, 0, sizeof symbol);
    symbol.size = sizeof symbol;
    CHECK(attn_variant_symbol(a, 0, &symbol) == 1);
    CHECK(std::string(symbol.name) == "slopes");
    CHECK(symbol.type == ATTN_F32);
    CHECK(symbol.rank == 1);

    /* Folded constants are visible. */
    attn_node info;
    memset(&info, 0, sizeof info);
    info.size = sizeof info;
    REQUIRE(attn_graph_node(g, attn_graph_op(g, attn_op_find("eq"), q, q, -1), &info) == ATTN_OK);
    CHECK(info.constant == 1);
    CHECK(info.value == 1);
    CHECK(info.type == ATTN_BOOL);
    REQUIRE(attn_graph_node(g, attn_graph_number(g, 2.5), &info) == ATTN_OK);
    CHECK(info.value == 2.5);
    CHECK(info.type == ATTN_F32);
    REQUIRE(attn_graph_node(g, attn_graph_number(g, 1024), &info) == ATTN_OK);
    CHECK(info.type == ATTN_I32);
    REQUIRE(attn_graph_node(g, attn_graph_number(g, -0.0), &info) == ATTN_OK);
    CHECK(info.type == ATTN_F32);
    REQUIRE(attn_graph_node(g, bias, &info) == ATTN_OK);
    CHECK(info.constant == 0);
    CHECK(std::string(attn_op_name(info.op)) == "mul");
    CHECK(info.n_args == 2);

    char text[8];
    CHECK(attn_graph_text(g, mask, text, sizeof text) == 7);
    CHECK(std::string(text) == "k <= q");
    CHECK(attn_graph_text(g, mask, text, 3) == 7);
    CHECK(std::string(text) == "k ");
    CHECK(attn_graph_text(g, mask, nullptr, 0) == 7);
    CHECK(attn_graph_text(g, mask, nullptr, 4) == ATTN_INVALID);
    CHECK(std::string(attn_error_arg()) == "text");

    attn_variant_release(attn_variant_retain(a));
    attn_variant_release(a);
    attn_variant_release(b);
    attn_variant_release(nullptr);
    attn_graph_release(g);
    attn_graph_release(nullptr);
}

TEST_CASE("attn_graph refuses numbers that are none of its nodes") {
    attn_graph *g = nullptr;
    REQUIRE(attn_graph_new(&g) == ATTN_OK);
    const int q = attn_graph_leaf(g, "q");
    const int add = attn_op_find("add");
    CHECK(attn_graph_op(g, add, q, 99, -1) == ATTN_INVALID);
    CHECK(attn_graph_op(g, add, q, -1, -1) == ATTN_INVALID);
    CHECK(attn_graph_op(g, add, q, q, q) == ATTN_INVALID);
    CHECK(attn_graph_op(g, 1000, q, q, -1) == ATTN_INVALID);
    CHECK(attn_graph_op(nullptr, add, q, q, -1) == ATTN_INVALID);
    CHECK(attn_graph_op(g, attn_op_find("load"), q, -1, -1) == ATTN_INVALID);
    CHECK(attn_graph_number(g, 1e300) == ATTN_INVALID);
    CHECK(attn_graph_number(g, -1e300) == ATTN_INVALID);
    CHECK(attn_graph_number(g, INFINITY) >= 0);
    CHECK(attn_graph_number(g, NAN) >= 0);
    CHECK(attn_graph_param(g, nullptr, ATTN_F32) == ATTN_INVALID);
    CHECK(std::string(attn_error()) == "name is NULL");
    CHECK(attn_graph_leaf(g, "zz") == ATTN_INVALID);
    CHECK(std::string(attn_error()).find("the leaves are s b h q k i nq nk nh hk batch") !=
          std::string::npos);
    CHECK(attn_op_find("nothing") == ATTN_INVALID);
    CHECK(attn_op_find(nullptr) == ATTN_INVALID);
    CHECK(attn_op_name(-1) == nullptr);
    CHECK(attn_op_name(1000) == nullptr);
    CHECK(attn_graph_leaf(g, "z") == ATTN_INVALID);
    CHECK(attn_graph_param(g, "s", ATTN_F32) == ATTN_VARIANT);
    CHECK(attn_graph_param(g, "a-b", ATTN_F32) == ATTN_VARIANT);
    CHECK(attn_graph_param(g, "", ATTN_F32) == ATTN_VARIANT);
    CHECK(attn_graph_param(g, nullptr, ATTN_F32) == ATTN_INVALID);
    CHECK(attn_graph_param(g, "p", ATTN_BF16) == ATTN_DTYPE);
    CHECK(attn_graph_tensor(g, "t", ATTN_F32, 0, 0, 0) == ATTN_INVALID);
    CHECK(attn_graph_tensor(g, "t", ATTN_F32, 5, 0, 0) == ATTN_INVALID);
    const int32_t bad[1] = {77}, good[1] = {q};
    const int t = attn_graph_tensor(g, "t", ATTN_F32, 1, 0, 0);
    CHECK(t >= 0);
    CHECK(attn_graph_load(g, t, bad, 1) == ATTN_INVALID);
    CHECK(attn_graph_load(g, 55, good, 1) == ATTN_INVALID);
    CHECK(attn_graph_load(g, t, good, 2) == ATTN_VARIANT);
    CHECK(attn_graph_load(g, t, good, 1) >= 0);
    attn_variant *v = nullptr;
    CHECK(attn_graph_load(g, t, nullptr, 1) == ATTN_INVALID);
    CHECK(attn_graph_finish(g, -3, &v) == ATTN_INVALID);
    CHECK(attn_graph_finish(g, q, nullptr) == ATTN_INVALID);
    attn_graph_release(g);
}

TEST_CASE("every operation and leaf node has a name that finds it") {
    for (int op = 0; attn_op_name(op); op++) {
        CHECK(attn_op_find(attn_op_name(op)) == op);
    }
    CHECK(attn_op_find("leaf") > 0);
    attn_graph *g = nullptr;
    REQUIRE(attn_graph_new(&g) == ATTN_OK);
    attn_node info;
    memset(&info, 0, sizeof info);
    info.size = sizeof info;
    REQUIRE(attn_graph_node(g, attn_graph_leaf(g, "k"), &info) == ATTN_OK);
    CHECK(std::string(attn_op_name(info.op)) == "leaf");
    CHECK(info.symbol == LEAF_k);
    CHECK(info.n_args == 0);
    attn_graph_release(g);
}

TEST_CASE("structs that are filled say their size; a symbol without bounds has lo > hi") {
    attn_graph *g = nullptr;
    REQUIRE(attn_graph_new(&g) == ATTN_OK);
    attn_node info;
    memset(&info, 0x55, sizeof info);
    info.size = sizeof info;
    REQUIRE(attn_graph_node(g, attn_graph_number(g, 3), &info) == ATTN_OK);
    CHECK(info.size == sizeof info);
    CHECK(info.value == 3);
    CHECK(info.symbol == -1);
    for (const uint32_t size : {0u, (uint32_t)sizeof info + 8}) {
        info.size = size;
        CHECK(attn_graph_node(g, 0, &info) == ATTN_INVALID);
        CHECK(std::string(attn_error_arg()) == "attn_node");
    }
    CHECK(attn_graph_node(g, 0, nullptr) == ATTN_INVALID);
    attn_graph_release(g);

    attn_variant *v = nullptr;
    REQUIRE(attn_variant_parse("i32 t[1] in 0..0; bool u[2]; u[q][t[k]]", &v) == ATTN_OK);
    attn_symbol symbol;
    memset(&symbol, 0x55, sizeof symbol);
    symbol.size = sizeof symbol;
    REQUIRE(attn_variant_symbol(v, 0, &symbol) == 2);
    CHECK(symbol.rank == 1);
    CHECK(symbol.lo == 0);
    CHECK(symbol.hi == 0);
    REQUIRE(attn_variant_symbol(v, 1, &symbol) == 2);
    CHECK(symbol.type == ATTN_BOOL);
    CHECK(symbol.lo > symbol.hi);
    CHECK(std::string(symbol.name) == "u");
    symbol.size = 0;
    CHECK(attn_variant_symbol(v, 0, &symbol) == ATTN_INVALID);
    CHECK(std::string(attn_error_arg()) == "attn_symbol");
    attn_variant_release(v);
}

TEST_CASE("attn_graph_tensor: bounds, and two ways to have none") {
    attn_graph *g = nullptr;
    REQUIRE(attn_graph_new(&g) == ATTN_OK);
    const int32_t k = attn_graph_leaf(g, "k");
    const int32_t bounds[3][2] = {{0, 0}, {1, 0}, {-3, 5}};
    const char *const names[] = {"t", "u", "w"};
    int mask = attn_graph_bool(g, 1);
    for (int i = 0; i < 3; i++) {
        const int t = attn_graph_tensor(g, names[i], ATTN_I32, 1, bounds[i][0], bounds[i][1]);
        REQUIRE(t >= 0);
        const int same = attn_graph_op(g, attn_op_find("eq"), attn_graph_load(g, t, &k, 1), k, -1);
        mask = attn_graph_op(g, attn_op_find("and"), mask, same, -1);
    }
    attn_variant *v = nullptr;
    REQUIRE(attn_graph_finish(g, mask, &v) == ATTN_OK);
    const std::string text = attn_variant_text(v);
    CHECK(text.find("i32 t[1];\n") != std::string::npos);
    CHECK(text.find("i32 u[1];\n") != std::string::npos);
    CHECK(text.find("i32 w[1] in -3..5;\n") != std::string::npos);
    attn_variant_release(v);
    attn_graph_release(g);
}

TEST_CASE("floor and ceil keep the type: f32 of an f32, i32 of an i32") {
    CHECK(folded("s + floor(float(q)) * 10000") == "s + q * 1e+04");
    CHECK(folded("floor(q) * 10000 < k") == "q * 10000 < k");
    CHECK(folded("ceil(float(q)) < s") == "q < s");
    for (const char *quotient :
         {"floor(q / 1)", "floor(q / -1)", "ceil(q / 1)", "ceil(q / -1)", "floor(q / 16)"}) {
        graph g;
        const int root = g.parse(quotient);
        INFO(quotient);
        REQUIRE(root >= 0);
        CHECK(g.g.node[root].type == VT_I32);
    }
    /* As an index a promoted i32 is itself, exact past 2^24. */
    CHECK(folded("t[floor(float(q))]") == "t[q]");
    CHECK(folded("t[int(float(q))]") == "t[q]");
    CHECK(folded("int(float(q)) < k") == "int(float(q)) < k"); /* the f32 was wanted */
}
